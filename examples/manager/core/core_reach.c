/* core_reach.c - boxes that answer the manager and serve no lease, and which host reaches which box
   SPDX-License-Identifier: MIT

   M-160 to M-166.  A box may refuse to bind (its disk is full), not answer a bind (its disk hangs),
   or be out of reach for hosts, whose network to it is not the manager's.  Failures are kept as
   doubts: about a box, about a box for one host, about a host.  They are in no record: a manager
   that starts finds them again. */
#include <stdio.h>
#include <string.h>

#include "core_internal.h"

/* -- What is wrong with a slot of a lease -- */

typedef enum trouble_kind {
    TROUBLE_NONE,
    TROUBLE_REFUSED,  /* its box refuses to bind it */
    TROUBLE_SILENT,   /* its box has not answered the bind */
    TROUBLE_ATTACH,   /* its host refuses to attach it */
    TROUBLE_UNREACHED /* its host has no channel to its box */
} trouble_kind;

typedef struct trouble {
    trouble_kind kind;
    uint64_t since_ms;
    uint64_t due_ms; /* it counts from then on; UINT64_MAX: that is not known yet */
    unsigned code;   /* DXPU_CONTROL_CODE_* of a refusal */
    unsigned count;  /* of refusals */
    bool answers;    /* the box answers its host, and refuses the channel */
} trouble;

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static trouble trouble_bind(const core *c, uint32_t slot)
{
    const corei_slot *more = &c->t.slot_more[slot];
    const corei_work *w = &c->t.work[corei_slot_unit(slot)];
    bool refused = more->refusal.epoch == c->t.pool->slot[slot].epoch && more->refusal.count;
    trouble out = { TROUBLE_NONE, more->asked_ms, UINT64_MAX, more->refusal.code, 0, false };
    if (refused) {
        out.kind = TROUBLE_REFUSED;
        out.count = more->refusal.count;
    }
    if (out.count >= COREI_REFUSALS) {
        out.due_ms = 0;
    } else if (w->out && w->kind == DXPU_CONTROL_BIND) {
        out.kind = TROUBLE_SILENT;
        out.due_ms = more->asked_ms + c->set.reach_ms;
    }
    return out;
}

/* Has the host failed to reach the box?  One that has made no attempts shows nothing of the box
   (M-160), nor does one that is too old to report them. */
static bool fails(const dxpu_control_device *port)
{
    return port->state == DXPU_CONTROL_SLOT_DIALING &&
           (port->reach == DXPU_CONTROL_REACH_SILENT || port->reach == DXPU_CONTROL_REACH_REFUSED);
}

/* Both ends are connected: what is between them is given its time. */
static trouble trouble_attach(const core *c, uint32_t slot)
{
    const corei_tables *t = &c->t;
    uint32_t port = t->slot_more[slot].port;
    const core_port *p = &t->port[port];
    const corei_port *more = &t->port_more[port];
    uint64_t epoch = t->pool->slot[slot].epoch;
    trouble out = { TROUBLE_NONE, 0, UINT64_MAX, more->refusal.code, more->refusal.count, false };
    if (!t->node[p->node].connected)
        return out;
    if (p->device.state == DXPU_CONTROL_SLOT_EMPTY && more->refusal.epoch == epoch &&
        more->refusal.count) {
        out.kind = TROUBLE_ATTACH;
        out.due_ms = more->refusal.count >= COREI_REFUSALS ? 0 : UINT64_MAX;
    } else if (fails(&p->device) && p->device.epoch == epoch) {
        out.kind = TROUBLE_UNREACHED;
        out.answers = p->device.reach == DXPU_CONTROL_REACH_REFUSED;
        out.since_ms =
            later_of(more->dial_ms, later_of(t->node_more[p->node].joined_ms,
                                             t->node_more[t->slot[slot].node].joined_ms));
        out.due_ms = out.since_ms +
                     (out.answers ? later_of(c->set.reach_ms, COREI_ABSENT_MS) : c->set.reach_ms);
    }
    return out;
}

static bool has_port(const core *c, uint32_t slot)
{
    uint32_t port = c->t.slot_more[slot].port;
    return c->t.pool->slot[slot].state == POOL_LEASED && port != CORE_NONE &&
           c->t.port[port].slot == slot;
}

static trouble trouble_of(const core *c, uint32_t slot)
{
    const trouble none = { TROUBLE_NONE, 0, UINT64_MAX, 0, 0, false };
    if (!has_port(c, slot) || !c->t.node[c->t.slot[slot].node].connected)
        return none;
    return corei_is_bound(c, slot) ? trouble_attach(c, slot) : trouble_bind(c, slot);
}

bool core_slot_trouble(const core *c, uint32_t slot, char out[CORE_TROUBLE_BYTES])
{
    trouble w = trouble_of(c, slot);
    unsigned long long seconds = (c->mono_ms - w.since_ms) / 1000;
    *out = '\0';
    if (w.kind == TROUBLE_REFUSED)
        snprintf(out, CORE_TROUBLE_BYTES, "its box refuses to bind it: %s (%u times)",
                 dxpu_control_code_name(w.code), w.count);
    else if (w.kind == TROUBLE_ATTACH)
        snprintf(out, CORE_TROUBLE_BYTES, "its host refuses to attach it: %s (%u times)",
                 dxpu_control_code_name(w.code), w.count);
    else if (w.kind == TROUBLE_SILENT && seconds)
        snprintf(out, CORE_TROUBLE_BYTES, "its box has not answered the bind for %llu s", seconds);
    else if (w.kind == TROUBLE_UNREACHED && w.answers)
        snprintf(out, CORE_TROUBLE_BYTES, "its box has refused its host for %llu s", seconds);
    else if (w.kind == TROUBLE_UNREACHED && w.due_ms != UINT64_MAX)
        snprintf(out, CORE_TROUBLE_BYTES, "its host has had no answer from its box for %llu s",
                 seconds);
    return *out != '\0';
}

/* -- Doubts -- */

static corei_doubt *doubt_find(core *c, uint32_t host, uint32_t box)
{
    for (unsigned i = 0; i < c->doubts; i++)
        if (c->doubt[i].host == host && c->doubt[i].box == box)
            return &c->doubt[i];
    return NULL;
}

/* Is the doubt acted upon?  Later it is only remembered, so that the next wait is longer. */
static bool doubt_counts(const core *c, const corei_doubt *d)
{
    return d && c->mono_ms < d->end_ms;
}

/* How a box is lent: 0 like any other, 1 last, 2 not at all. */
static unsigned doubt_level(const core *c, const corei_doubt *d)
{
    bool twice = d->host || (d->strikes > 1 && (d->refuses || d->several));
    return !doubt_counts(c, d) ? 0 : twice && c->mono_ms < d->until_ms ? 2 : 1;
}

static void doubt_drop(core *c, corei_doubt *d)
{
    *d = c->doubt[--c->doubts];
}

static corei_doubt *doubt_new(core *c, uint32_t host, uint32_t box)
{
    unsigned at = 0;
    if (c->doubts < COREI_DOUBTS)
        at = c->doubts++;
    else
        for (unsigned i = 1; i < c->doubts; i++) /* the one that is forgotten first */
            at = c->doubt[i].forget_ms < c->doubt[at].forget_ms ? i : at;
    memset(&c->doubt[at], 0, sizeof c->doubt[at]);
    c->doubt[at].host = host;
    c->doubt[at].box = box;
    return &c->doubt[at];
}

/* Begins the doubt now, since its cause continues. */
static void doubt_renew(core *c, corei_doubt *d)
{
    uint64_t wait_ms = c->set.reach_ms * COREI_DOUBT_WAITS;
    uint64_t now_ms = wait_ms << (d->strikes < 5 ? d->strikes - 1 : 4);
    d->until_ms = c->mono_ms + now_ms;
    d->end_ms = d->until_ms + now_ms;
    d->forget_ms = d->end_ms + 16 * wait_ms;
    d->ended = false;
}

/* Counts a failure.  Slots of one lease that fail together are one failure. */
static corei_doubt *doubt_strike(core *c, uint32_t host, uint32_t box, const trouble *w)
{
    corei_doubt *d = doubt_find(c, host, box);
    if (d && c->mono_ms - d->last_ms < c->set.reach_ms)
        return d;
    if (!d)
        d = doubt_new(c, host, box);
    d->refuses = w->kind == TROUBLE_REFUSED || w->kind == TROUBLE_SILENT;
    d->silent = w->kind == TROUBLE_SILENT;
    d->own = w->kind == TROUBLE_ATTACH;
    d->code = (uint16_t)w->code;
    d->since_unix_ms = doubt_counts(c, d) ? d->since_unix_ms : c->unix_ms;
    d->last_ms = c->mono_ms;
    d->strikes = (uint8_t)(d->strikes < 255 ? d->strikes + 1 : 255);
    d->judged = false;
    doubt_renew(c, d);
    return d;
}

static unsigned level_for(const core *c, uint32_t host, uint32_t box)
{
    unsigned level = 0;
    for (unsigned i = 0; i < c->doubts; i++) {
        const corei_doubt *d = &c->doubt[i];
        unsigned of = d->box == box && (!d->host || d->host == host) ? doubt_level(c, d) : 0;
        level = of > level ? of : level;
    }
    return level;
}

static void doubt_text(const corei_doubt *d, char out[CORE_TROUBLE_BYTES])
{
    if (!d->box)
        snprintf(out, CORE_TROUBLE_BYTES, "it reaches none of the boxes of its leases");
    else if (d->silent)
        snprintf(out, CORE_TROUBLE_BYTES, "it does not answer a bind");
    else if (d->refuses)
        snprintf(out, CORE_TROUBLE_BYTES, "it refuses to bind: %s",
                 dxpu_control_code_name(d->code));
    else
        snprintf(out, CORE_TROUBLE_BYTES, "hosts that are connected do not reach it");
}

unsigned core_suspect(const core *c, uint32_t node, uint64_t *since_unix_ms,
                      char out[CORE_TROUBLE_BYTES])
{
    const core_node *n = &c->t.node[node];
    bool box = n->role == DXPU_CONTROL_ROLE_BOX;
    *out = '\0';
    *since_unix_ms = 0;
    for (unsigned i = 0; i < c->doubts; i++) {
        const corei_doubt *d = &c->doubt[i];
        if (d->box != (box ? n->number : 0) || d->host != (box ? 0 : n->number) ||
            !doubt_counts(c, d))
            continue;
        doubt_text(d, out);
        *since_unix_ms = d->since_unix_ms;
        return doubt_level(c, d);
    }
    return 0;
}

unsigned core_unreached_by(const core *c, uint32_t node, uint32_t *hosts, unsigned max)
{
    unsigned count = 0;
    for (unsigned i = 0; i < c->doubts; i++)
        if (c->doubt[i].box == c->t.node[node].number && c->doubt[i].host &&
            doubt_counts(c, &c->doubt[i])) {
            if (count < max)
                hosts[count] = c->doubt[i].host;
            count++;
        }
    return count;
}

/* -- Who reaches whom now -- */

static bool is_up(const core *c, uint32_t slot)
{
    return has_port(c, slot) && core_slot_phase(c, slot) == CORE_UP &&
           c->t.port[c->t.slot_more[slot].port].reported &&
           c->t.node[c->t.port[c->t.slot_more[slot].port].node].connected;
}

/* Does the host have a channel to the box; others: does another one than this? */
static bool is_reached(const core *c, uint32_t box, uint32_t host, bool others)
{
    uint32_t node = core_find_node(c, box);
    const core_node *n = node == CORE_NONE ? NULL : &c->t.node[node];
    for (uint32_t i = n ? n->first : 0; n && i < n->first + n->total; i++)
        if (is_up(c, i) &&
            (c->t.node[c->t.port[c->t.slot_more[i].port].node].number != host) == others)
            return true;
    return false;
}

/* Returns the box, as a node, to which the port has a channel, or (up: false) has none; or
   CORE_NONE. */
static uint32_t box_behind(const core *c, uint32_t port, bool up)
{
    uint32_t slot = c->t.port[port].slot;
    if (slot == CORE_NONE || (up ? !is_up(c, slot) : !fails(&c->t.port[port].device)))
        return CORE_NONE;
    return c->t.slot[slot].node;
}

/* Counts the boxes to which the host has a channel (up), or has none now, as far as `most`. */
static unsigned count_boxes(const core *c, uint32_t host, bool up, unsigned most)
{
    const core_node *n = &c->t.node[core_find_node(c, host)];
    unsigned count = 0;
    for (uint32_t i = n->first; i < n->first + n->total && count < most; i++) {
        uint32_t box = box_behind(c, i, up), j = n->first;
        while (j < i && box_behind(c, j, up) != box)
            j++;
        count += box != CORE_NONE && j == i;
    }
    return count;
}

/* How many boxes does this host not reach? */
static unsigned count_missed(const core *c, uint32_t host)
{
    unsigned count = 0;
    for (unsigned i = 0; i < c->doubts; i++)
        count += c->doubt[i].host == host && c->doubt[i].box && doubt_counts(c, &c->doubt[i]);
    return count;
}

/* Are both of one party?  What one reports of a box, the other adds nothing to. */
static bool same_party(const core *c, uint32_t host, uint32_t other)
{
    uint32_t one = core_find_node(c, host), two = core_find_node(c, other);
    if (one == two || one == CORE_NONE || two == CORE_NONE)
        return true;
    const core_node *a = &c->t.node[one], *b = &c->t.node[two];
    return (a->keyed && b->keyed && memcmp(a->key, b->key, sizeof a->key) == 0) ||
           (a->owner[0] && strcmp(a->owner, b->owner) == 0);
}

/* Counts the parties with a host that does not reach the box and is not in doubt itself: 0, 1, or 2
   for more. */
static unsigned accusers(core *c, uint32_t box)
{
    uint32_t first = 0;
    for (unsigned i = 0; i < c->doubts; i++) {
        const corei_doubt *d = &c->doubt[i];
        if (!d->host || d->box != box || d->own || !doubt_counts(c, d) ||
            doubt_counts(c, doubt_find(c, d->host, 0)))
            continue;
        if (first && !same_party(c, first, d->host))
            return 2;
        first = first ? first : d->host;
    }
    return first ? 1 : 0;
}

/* -- Blame -- */

static void tell_doubt(core *c, uint32_t number, const corei_doubt *d, const char *where)
{
    char text[CORE_TROUBLE_BYTES];
    uint32_t node = core_find_node(c, number);
    if (node == CORE_NONE || corei_begin(c).code != CORE_OK)
        return;
    doubt_text(d, text);
    corei_event_node(c, CORE_EVENT_ALARM, node, "suspect: %s%s", text, where);
    (void)corei_commit(c);
}

static void tell_trust(core *c, uint32_t number, const char *text)
{
    uint32_t node = core_find_node(c, number);
    if (node == CORE_NONE || corei_begin(c).code != CORE_OK)
        return;
    corei_event_node(c, CORE_EVENT_NODE_TRUSTED, node, "%s", text);
    (void)corei_commit(c);
}

static const char *level_text(const core *c, const corei_doubt *d)
{
    return doubt_level(c, d) > 1 ? "; it is lent no more" : "; it is lent last";
}

/* The box itself is at fault. */
static void strike_box(core *c, uint32_t box, const trouble *w)
{
    const corei_doubt *before = doubt_find(c, 0, box);
    unsigned strikes = before ? before->strikes : 0;
    corei_doubt *d = doubt_strike(c, 0, box, w);
    d->several = accusers(c, box) > 1;
    if (d->strikes != strikes)
        tell_doubt(c, box, d, level_text(c, d));
}

/* Returns a doubt about a box that no host but this one misses; NULL: there is none. */
static corei_doubt *doubted_by(core *c, uint32_t host)
{
    for (unsigned i = 0; i < c->doubts; i++) {
        corei_doubt *d = &c->doubt[i];
        if (!d->host && !d->refuses && doubt_find(c, host, d->box) && !accusers(c, d->box))
            return d;
    }
    return NULL;
}

/* The host fails with every box: it is at fault, and the boxes are not. */
static void strike_host(core *c, uint32_t host, const trouble *w)
{
    bool known = doubt_counts(c, doubt_find(c, host, 0));
    const corei_doubt *d = doubt_strike(c, host, 0, w);
    if (!known)
        tell_doubt(c, host, d, "; its leases stay where they are");
    corei_doubt *of;
    while ((of = doubted_by(c, host)) != NULL) {
        uint32_t box = of->box;
        bool counted = doubt_counts(c, of);
        doubt_drop(c, of);
        if (counted)
            tell_trust(c, box, "only a host that reaches no box had doubted it");
    }
}

/* M-162: is the box at fault, the host, or what is between the two?  A host that misses more boxes
   than it reaches is not a witness. */
static void judge(core *c, uint32_t host, uint32_t box, const trouble *w)
{
    corei_doubt *pair = doubt_find(c, host, box);
    if (!doubt_counts(c, pair) || pair->judged || is_reached(c, box, host, false))
        return;
    unsigned missed = count_missed(c, host), now = count_boxes(c, host, false, COREI_DOUBTS);
    missed = now > missed ? now : missed; /* all others may fail, too, and are just not due yet */
    unsigned reached = count_boxes(c, host, true, missed);
    if (!pair->own && !is_reached(c, box, host, true) &&
        (reached >= missed || accusers(c, box) > 1)) {
        pair->judged = true;
        strike_box(c, box, w);
    } else if (!reached && missed > 1) {
        strike_host(c, host, w);
    }
}

static void blame_pair(core *c, uint32_t host, uint32_t box, const trouble *w)
{
    const corei_doubt *before = doubt_find(c, host, box);
    unsigned strikes = before ? before->strikes : 0;
    uint32_t node = core_find_node(c, box);
    const corei_doubt *d = doubt_strike(c, host, box, w);
    bool told = d->strikes == strikes || doubt_counts(c, doubt_find(c, host, 0));
    if (!told && corei_begin(c).code == CORE_OK) {
        corei_event_node(c, CORE_EVENT_ALARM, node, "host %u %s", host,
                         w->kind == TROUBLE_ATTACH ? "refuses to attach its slots"
                         : w->answers              ? "is refused by it"
                                                   : "has no answer from it");
        (void)corei_commit(c);
    }
}

/* -- What follows -- */

void corei_reached(core *c, uint32_t slot)
{
    uint32_t box = c->t.node[c->t.slot[slot].node].number;
    uint32_t host = c->t.node[c->t.port[c->t.slot_more[slot].port].node].number;
    static const trouble unreached = { TROUBLE_UNREACHED, 0, 0, 0, 0, false };
    corei_doubt *d;
    if (!c->doubts)
        return;
    if ((d = doubt_find(c, host, box)) != NULL)
        doubt_drop(c, d);
    if ((d = doubt_find(c, host, 0)) != NULL) {
        doubt_drop(c, d);
        tell_trust(c, host, "it reaches a box");
    }
    d = doubt_find(c, 0, box);
    if (d && !d->refuses) {
        bool counted = doubt_counts(c, d);
        doubt_drop(c, d);
        if (counted)
            tell_trust(c, box, "a host reaches it");
    }
    for (unsigned i = 0; i < c->doubts; i++) /* this host is good: so what of those others? */
        if (c->doubt[i].host == host && c->doubt[i].box)
            judge(c, host, c->doubt[i].box, &unreached);
}

void corei_binds(core *c, uint32_t slot)
{
    uint32_t box = c->t.node[c->t.slot[slot].node].number;
    corei_doubt *d = doubt_find(c, 0, box);
    if (!d || !d->refuses)
        return;
    bool counted = doubt_counts(c, d);
    doubt_drop(c, d);
    if (counted)
        tell_trust(c, box, "it carries out orders again");
}

void corei_binds_not(core *c, uint32_t slot)
{
    corei_doubt *d = doubt_find(c, 0, c->t.node[c->t.slot[slot].node].number);
    if (doubt_counts(c, d) && d->refuses)
        doubt_renew(c, d);
}

void corei_reach_forget(core *c, uint32_t number, const char *why)
{
    for (unsigned i = 0; i < c->doubts;) {
        corei_doubt *d = &c->doubt[i];
        if (d->host != number && d->box != number) {
            i++;
            continue;
        }
        bool told = doubt_counts(c, d) && !(d->host && d->box);
        doubt_drop(c, d);
        if (told)
            tell_trust(c, number, why);
    }
}

void corei_refused(corei_refusal *r, uint64_t epoch, unsigned code)
{
    if (r->epoch != epoch)
        r->count = 0;
    r->epoch = epoch;
    r->code = (uint16_t)code;
    r->count = (uint8_t)(r->count < 255 ? r->count + 1 : 255);
}

void corei_note_dial(core *c, uint32_t port)
{
    const dxpu_control_device *d = &c->t.port[port].device;
    corei_port *more = &c->t.port_more[port];
    if (!fails(d))
        more->dial_ms = 0;
    else if (!more->dial_ms || more->dial_epoch != d->epoch)
        more->dial_ms = c->mono_ms ? c->mono_ms : 1;
    more->dial_epoch = d->epoch;
}

/* Renews a doubt whose cause continues; false: there is no such doubt any more. */
static bool goes_on(core *c, uint32_t host, uint32_t box)
{
    corei_doubt *d = doubt_find(c, host, box), *of = doubt_find(c, 0, box);
    if (!doubt_counts(c, d))
        return false;
    doubt_renew(c, d);
    if (d->judged && doubt_counts(c, of)) {
        of->several = accusers(c, box) > 1; /* one party alone keeps it from no other */
        doubt_renew(c, of);
    }
    return true;
}

static void blame(core *c, uint32_t slot, const trouble *w)
{
    corei_slot *more = &c->t.slot_more[slot];
    uint64_t epoch = c->t.pool->slot[slot].epoch;
    uint32_t box = c->t.node[c->t.slot[slot].node].number;
    uint32_t host = c->t.node[c->t.port[more->port].node].number;
    bool refuses = w->kind == TROUBLE_REFUSED || w->kind == TROUBLE_SILENT;
    bool again = more->blamed_epoch == epoch && goes_on(c, refuses ? 0 : host, box);
    more->blamed_epoch = epoch;
    if (w->kind == TROUBLE_UNREACHED && is_reached(c, box, host, false))
        return; /* it is this slot alone */
    if (!again && refuses)
        strike_box(c, box, w);
    else if (!again)
        blame_pair(c, host, box, w);
    if (!refuses)
        judge(c, host, box, w);
}

void corei_reach_slot(core *c, uint32_t slot)
{
    trouble w = trouble_of(c, slot);
    uint64_t epoch = c->t.pool->slot[slot].epoch;
    uint32_t node = c->t.node[c->t.slot[slot].node].number;
    uint32_t number = c->t.slot[slot].device.number;
    if (is_up(c, slot)) {
        corei_reached(c, slot);
        return;
    }
    if (has_port(c, slot) && !corei_is_bound(c, slot) && corei_is_withheld(c, slot)) {
        corei_evade(c, slot, POOL_WHY_REFUSED); /* the box is not to blame */
        return;
    }
    if (w.kind == TROUBLE_NONE || w.due_ms == UINT64_MAX)
        return;
    corei_look_at(c, corei_slot_unit(slot),
                  w.due_ms > c->mono_ms ? w.due_ms : c->mono_ms + COREI_REPLACE_MS);
    if (w.due_ms > c->mono_ms)
        return;
    blame(c, slot, &w);
    slot = core_find_slot(c, node, number); /* what could not be stored loaded other tables */
    if (slot == CORE_NONE || !has_port(c, slot) || c->t.pool->slot[slot].epoch != epoch)
        return;
    uint32_t host = c->t.node[c->t.port[c->t.slot_more[slot].port].node].number;
    bool refuses = w.kind == TROUBLE_REFUSED || w.kind == TROUBLE_SILENT;
    if (refuses || !doubt_counts(c, doubt_find(c, host, 0)))
        corei_evade(c, slot, refuses ? POOL_WHY_REFUSED : POOL_WHY_PATH);
}

uint64_t corei_reach_next_ms(const core *c)
{
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i < c->doubts; i++) {
        uint64_t due = c->doubt[i].ended ? c->doubt[i].forget_ms : c->doubt[i].end_ms;
        next = due < next ? due : next;
    }
    return next;
}

void corei_reach_tick(core *c)
{
    while (corei_reach_next_ms(c) <= c->mono_ms)
        for (unsigned i = 0; i < c->doubts; i++) {
            corei_doubt *d = &c->doubt[i];
            uint32_t box = d->box, host = d->host;
            if (c->mono_ms >= d->forget_ms) {
                doubt_drop(c, d);
            } else if (c->mono_ms >= d->end_ms && !d->ended) {
                d->ended = true;
                if (!box || !host)
                    tell_trust(c, box ? box : host, "to be tried again");
            }
        }
}

/* -- Choosing -- */

enum { NOTHING_LASTS = 1 }; /* as a medium (M-104) */

/* Hides free slots while the policy chooses: those of boxes that are doubted this much for the
   host, and of `own`, the box that fails. */
static void veil(core *c, uint32_t host, uint32_t own, unsigned level, bool on)
{
    corei_tables *t = &c->t;
    for (unsigned i = 0; i <= c->doubts; i++) {
        uint32_t box = i < c->doubts ? c->doubt[i].box : own;
        uint32_t node = box ? core_find_node(c, box) : CORE_NONE;
        if (node == CORE_NONE || (box != own && level_for(c, host, box) < level))
            continue;
        uint32_t first = t->node[node].first, end = first + t->node[node].total;
        for (uint32_t s = first; s < end; s++) {
            unsigned state = t->pool->slot[s].state;
            if (on && (state == POOL_FREE || state == POOL_SPARE)) {
                t->slot_more[s].veiled = true;
                (void)pool_break(t->pool, s, POOL_WHY_BOX);
            } else if (!on && t->slot_more[s].veiled) {
                t->slot_more[s].veiled = false;
                (void)pool_repair(t->pool, s, POOL_WHY_NONE);
            }
        }
    }
}

static uint32_t host_number(const core *c, uint32_t index)
{
    return index == POOL_NONE ? 0 : c->t.node[c->t.host_node[index]].number;
}

int corei_choose(core *c, const pool_request *q, pool_choice *out)
{
    int rc = POOL_E_FREE;
    if (!c->doubts)
        return pool_choose(c->t.pool, q, out);
    if (q->host >= c->t.pool->hosts)
        return POOL_E_UNKNOWN;
    uint32_t host = host_number(c, q->host);
    for (unsigned level = 1; level <= 2 && (rc == POOL_E_FREE || rc == POOL_E_PLACE); level++) {
        veil(c, host, 0, level, true);
        rc = pool_choose(c->t.pool, q, out);
        veil(c, host, 0, level, false);
    }
    return rc;
}

/* Would a box for which direct requests are forbidden separate the lease from its peer? */
static bool is_with_peer(const core *c, uint32_t lease)
{
    const pool_lease *l = &c->t.pool->lease[lease], *peer = pool_find_lease(c->t.pool, l->peer);
    return c->t.no_directs && peer && l->host != POOL_NONE && peer->host == l->host;
}

static int choose_other(core *c, uint32_t slot, bool direct, pool_other *out)
{
    uint32_t lease = c->t.pool->slot[slot].lease;
    uint32_t host = lease == POOL_NONE ? 0 : host_number(c, c->t.pool->lease[lease].host);
    uint32_t box = c->t.node[c->t.slot[slot].node].number;
    uint32_t own = trouble_of(c, slot).kind || level_for(c, host, box) ? box : 0;
    int rc = POOL_E_FREE;
    corei_wanted wanted;
    const pool_filter *filter = corei_lease_filter(c, slot, direct, &wanted);
    if (!c->doubts && !own)
        return pool_choose_other(c->t.pool, slot, filter, out);
    for (unsigned level = 1; level <= 2 && rc == POOL_E_FREE; level++) {
        veil(c, host, own, level, true);
        rc = pool_choose_other(c->t.pool, slot, filter, out);
        veil(c, host, own, level, false);
    }
    return rc;
}

int corei_choose_other(core *c, uint32_t slot, pool_other *out)
{
    uint32_t lease = c->t.pool->slot[slot].lease;
    bool direct = lease != POOL_NONE && is_with_peer(c, lease);
    int rc = choose_other(c, slot, direct, out);
    return direct && rc == POOL_E_FREE ? choose_other(c, slot, false, out) : rc;
}

static int choose_all(core *c, uint64_t lease, bool direct, pool_choice *out)
{
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    uint32_t host = host_number(c, l->host), own = c->t.node[c->t.slot[l->first].node].number;
    int rc = POOL_E_PLACE;
    corei_wanted wanted;
    const pool_filter *filter =
        corei_filter(c, c->t.lease[pool_lease_index(lease)].attributes, direct, &wanted);
    for (unsigned level = 1; level <= 2 && rc == POOL_E_PLACE; level++) {
        veil(c, host, own, level, true);
        rc = pool_choose_all(c->t.pool, lease, filter, out);
        veil(c, host, own, level, false);
    }
    return rc;
}

int corei_choose_all(core *c, uint64_t lease, pool_choice *out)
{
    bool direct = is_with_peer(c, pool_lease_index(lease));
    int rc = choose_all(c, lease, direct, out);
    return direct && rc == POOL_E_PLACE ? choose_all(c, lease, false, out) : rc;
}

const char *corei_subsystem_of(const dxpu_control_device *d)
{
    const char *word = d->attributes;
    while (*word && strncmp(word, "subsystem=", 10) != 0) {
        word += strcspn(word, ",");
        word += *word == ',';
    }
    return word;
}

/* Compares as the box does (S-249): by the medium, or where nothing lasts, by name. */
static bool is_same_drive(const dxpu_control_device *a, const dxpu_control_device *b)
{
    const char *x = corei_subsystem_of(a), *y = corei_subsystem_of(b);
    size_t len = strcspn(x, ",");
    if (a->medium > NOTHING_LASTS && b->medium > NOTHING_LASTS)
        return a->medium == b->medium;
    return len && len == strcspn(y, ",") && !memcmp(x, y, len);
}

/* Are both of one drive to each other slot? */
static bool is_same_to_all(const dxpu_control_device *a, const dxpu_control_device *b)
{
    const char *x = corei_subsystem_of(a), *y = corei_subsystem_of(b);
    size_t len = strcspn(x, ",");
    return a->medium == b->medium && len == strcspn(y, ",") && !memcmp(x, y, len);
}

static bool keeps_one(const core *c, const core_node *box)
{
    for (uint32_t i = box->first; i < box->first + box->total; i++) {
        if (c->t.slot[i].device.state == DXPU_CONTROL_SLOT_KEPT)
            return true;
    }
    return false;
}

bool corei_is_withheld_seen(const core *c, uint32_t slot, corei_seen *seen)
{
    const dxpu_control_device *d = &c->t.slot[slot].device;
    uint32_t node = c->t.slot[slot].node;
    if (!c->shares || d->state != DXPU_CONTROL_SLOT_WIPED || !*corei_subsystem_of(d))
        return false;
    if (!seen->any || seen->node != node)
        *seen = (corei_seen){ true, keeps_one(c, &c->t.node[node]), false, node, CORE_NONE };
    if (!seen->keeps || d->epoch)
        return seen->keeps && corei_is_withheld(c, slot);
    if (seen->slot == CORE_NONE || !is_same_to_all(d, &c->t.slot[seen->slot].device))
        seen->withheld = corei_is_withheld(c, slot);
    seen->slot = slot;
    return seen->withheld;
}

bool corei_is_withheld(const core *c, uint32_t slot)
{
    const dxpu_control_device *d = &c->t.slot[slot].device;
    const core_node *box = &c->t.node[c->t.slot[slot].node];
    bool kept = false, lent = false;
    if (!c->shares || d->state != DXPU_CONTROL_SLOT_WIPED || !*corei_subsystem_of(d))
        return false;
    for (uint32_t i = box->first; i < box->first + box->total; i++) {
        const dxpu_control_device *other = &c->t.slot[i].device;
        bool keeps = other->state == DXPU_CONTROL_SLOT_KEPT;
        if (i == slot || (!keeps && !other->epoch) || !is_same_drive(d, other))
            continue;
        kept |= keeps;
        lent |= other->epoch != 0;
        lent |= keeps && has_port(c, i); /* is about to be: the box binds one that is kept */
    }
    return kept && !lent;
}

void corei_look_at_shares(core *c)
{
    bool any = false;
    if (!c->shares_no_more)
        return;
    for (uint32_t i = 0; !any && i < c->t.pool->slots; i++)
        any = *corei_subsystem_of(&c->t.slot[i].device) ||
              (c->t.slot_more[i].other && *corei_subsystem_of(c->t.slot_more[i].other));
    c->shares = any;
    c->shares_no_more = false;
}

bool corei_is_kept_from(const core *c, uint32_t host, uint32_t slot)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    return c->doubts && (s->state == POOL_FREE || s->state == POOL_SPARE) &&
           level_for(c, host, c->t.node[c->t.slot[slot].node].number) == 2;
}

/* -- How long leases wait -- */

uint64_t core_pending_ms(const core *c)
{
    const pool *p = c->t.pool;
    uint64_t longest = 0;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < p->limits.leases && seen < p->leases; i++) {
        uint64_t lease = pool_lease_number(p, i), since = c->t.lease[i].made_ms;
        seen += lease != 0;
        if (!lease || core_lease_now(c, lease) != CORE_LEASE_PENDING)
            continue;
        since = since ? since : c->open_ms;
        longest = c->mono_ms - since > longest ? c->mono_ms - since : longest;
    }
    return longest;
}
