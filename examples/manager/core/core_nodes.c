/* core_nodes.c - what proxies report: registration, state of slots, alarms, silence
   SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_internal.h"
#include "dxpu_sodium.h"

/* -- Connections -- */

void corei_node_gone(core *c, uint32_t node, uint64_t extra_ms)
{
    corei_node *more = &c->t.node_more[node];
    if (more->gone_ms || c->t.node[node].role != DXPU_CONTROL_ROLE_BOX)
        return;
    more->gone_ms = c->mono_ms + c->set.grace_ms + extra_ms;
    corei_look_at(c, corei_node_unit(c, node), more->gone_ms);
}

static void gather_end(corei_node *more)
{
    free(more->told);
    free(more->got);
    more->told = NULL;
    more->got = NULL;
    more->missing = more->told_total = 0;
}

/* Forgets what was ordered: nothing is under way there, and the next connection is given it at
   once. */
static void forget_orders(core *c, uint32_t unit)
{
    corei_work *w = &c->t.work[unit];
    w->out = w->refused = false;
    w->tries = 0;
    w->kind = 0;
    w->not_before_ms = 0;
}

void core_disconnected(core *c, uint32_t number)
{
    uint32_t node = core_find_node(c, number);
    /* What waits for a commit is stored first: slots that are hidden are not stored as hidden.
       Where either fails, no event is stored. */
    if (c->pending && node != CORE_NONE && c->t.node_more[node].joined)
        (void)corei_commit(c);
    else
        (void)corei_make_room(c, COREI_REGISTER_CHANGES);
    corei_tables *t = &c->t;
    node = core_find_node(c, number);
    if (node == CORE_NONE)
        return;
    core_node *n = &t->node[node];
    bool box = n->role == DXPU_CONTROL_ROLE_BOX, was = n->connected;
    gather_end(&t->node_more[node]);
    if (was)
        t->node_more[node].left_ms = c->mono_ms;
    n->connected = false;
    forget_orders(c, corei_node_unit(c, node));
    for (uint32_t i = n->first; i < n->first + n->total; i++) {
        forget_orders(c, box ? corei_slot_unit(i) : corei_port_unit(c, i));
        if (!box && t->port_more[i].before != CORE_NONE)
            corei_touch(c, corei_slot_unit(t->port_more[i].before));
        if (box)
            corei_retain_count(c, i);
    }
    corei_node_gone(c, node, 0);
    if (!was)
        return;
    if (box)
        corei_hide_silent(t, node);
    n->since_unix_ms = c->unix_ms;
    if (corei_begin(c).code != CORE_OK)
        return;
    corei_event_node(c, CORE_EVENT_NODE_LOST, node, "%s", n->name);
    (void)corei_commit_later(c);
}

/* -- What it has -- */

static void clean_device(dxpu_control_device *d, unsigned number)
{
    d->number = (uint16_t)number;
    if (!d->model[0])
        snprintf(d->model, sizeof d->model, "unknown");
    corei_clean_model(d->model);
    corei_clean_name(d->serial);
    corei_clean_name(d->attributes);
}

static bool same_inventory(const dxpu_control_device *a, const dxpu_control_device *b)
{
    return strcmp(a->model, b->model) == 0 && a->vendor == b->vendor && a->device == b->device &&
           a->class_code == b->class_code && a->group == b->group &&
           (!a->serial[0] || !b->serial[0] || strcmp(a->serial, b->serial) == 0);
}

static void report_slot(core *c, uint32_t slot, const dxpu_control_device *told)
{
    core_slot *s = &c->t.slot[slot];
    corei_slot *more = &c->t.slot_more[slot];
    if (s->reported && told->port_offset != s->device.port_offset && more->port != CORE_NONE)
        c->t.port_more[more->port].moved = true; /* see note_move() */
    bool first = !s->reported;
    s->reported = true;
    const dxpu_control_device before = s->device;
    bool strange = told->health == DXPU_CONTROL_HEALTH_NONE || !same_inventory(&s->device, told);
    corei_copy_report(&s->device, told);
    if (first)
        corei_note_lent(c, slot);
    if (strange) { /* M-90: what another one keeps, and has, says nothing of this one */
        s->device.data = before.data;
        memcpy(s->device.attributes, before.attributes, sizeof before.attributes);
    }
    corei_set_device(&c->t, slot);
    if (!strange && !s->device.serial[0])
        memcpy(s->device.serial, told->serial, sizeof told->serial);
    c->shares = c->shares || *corei_subsystem_of(told);
    c->shares_no_more |= *corei_subsystem_of(&before) && !*corei_subsystem_of(&s->device);
    if (s->device.data != before.data || strcmp(s->device.attributes, before.attributes) != 0 ||
        strcmp(s->device.serial, before.serial) != 0)
        more->data_unsaved = true;
    free(more->other);
    more->other = NULL;
    if (told->health == DXPU_CONTROL_HEALTH_NONE || same_inventory(&s->device, told))
        return;
    more->other = malloc(sizeof *more->other);
    if (more->other) /* else the next report says it again */
        *more->other = *told;
}

static void report_port(core *c, uint32_t port, const dxpu_control_device *told)
{
    core_port *p = &c->t.port[port];
    uint32_t before = c->t.port_more[port].before;
    p->device = *told;
    p->reported = true;
    if (p->device.state == DXPU_CONTROL_SLOT_EMPTY)
        p->device.epoch = 0;
    corei_note_dial(c, port);
    corei_touch(c, corei_port_unit(c, port));
    if (before != CORE_NONE)
        corei_touch(c, corei_slot_unit(before));
}

static void note_report(core *c, uint32_t node, const dxpu_control_device *told)
{
    const core_node *n = &c->t.node[node];
    uint32_t at = n->first + told->number - 1;
    if (told->number < 1 || told->number > n->total)
        return;
    if (n->role == DXPU_CONTROL_ROLE_HOST) {
        report_port(c, at, told);
    } else {
        report_slot(c, at, told);
        corei_touch_slot(c, at);
    }
}

/* Does what follows from the report. */
static void settle_report(core *c, uint32_t node, uint16_t number)
{
    const core_node *n = &c->t.node[node];
    if (number < 1 || number > n->total)
        return;
    uint32_t at = n->first + number - 1;
    uint32_t slot = n->role == DXPU_CONTROL_ROLE_BOX ? at : c->t.port[at].slot;
    if (n->role == DXPU_CONTROL_ROLE_HOST)
        corei_settle_port(c, at);
    if (slot != CORE_NONE)
        corei_settle_slot(c, slot);
}

/* The same, unless reports of this node's key have changed the store so often that others would
   wait for it.  Then it is done once more, when the second is over. */
static void settle_in_turn(core *c, uint32_t node, uint16_t number)
{
    corei_party *party = corei_party_of(c, node);
    const core_node *n = &c->t.node[node];
    uint64_t before = c->commits;
    if (corei_party_may(&party->change_ms, &party->changes, COREI_CHANGES + n->total, c->mono_ms)) {
        settle_report(c, node, number);
        corei_party_of(c, node)->changes += c->commits - before;
        return;
    }
    uint32_t at = n->first + number - 1;
    bool box = n->role == DXPU_CONTROL_ROLE_BOX;
    if (number < 1 || number > n->total)
        return;
    if (box)
        c->t.slot_more[at].late = true;
    corei_look_at(c, box ? corei_slot_unit(at) : corei_port_unit(c, at), party->change_ms + 1000);
}

/* -- Nodes -- */

/* Characters of a word, as many as fit. */
static void copy_word(char out[CORE_NAME_BYTES], const void *text, size_t len)
{
    const char *p = text;
    size_t n = 0;
    for (; n < len && n < CORE_NAME_BYTES - 1 && p[n]; n++)
        out[n] = p[n];
    out[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (out[i] < ' ' || out[i] > '~')
            out[i] = '?';
}

/* Name, program, paths; is anything different? */
static bool describe(core_node *n, const dxpu_control_register *r, const char *program)
{
    core_node was = *n;
    copy_word(n->name, r->name.ptr, r->name.len);
    copy_word(n->program, program, strlen(program));
    n->paths = r->paths < DXPU_CONTROL_PATHS_MAX ? r->paths : DXPU_CONTROL_PATHS_MAX;
    memset(n->path, 0, sizeof n->path);
    memcpy(n->path, r->path, n->paths * sizeof n->path[0]);
    return strcmp(n->name, was.name) != 0 || strcmp(n->program, was.program) != 0 ||
           n->paths != was.paths || memcmp(n->path, was.path, sizeof n->path) != 0;
}

uint32_t corei_node_of(const core *c, const dxpu_control_register *r)
{
    uint32_t node = core_find_node(c, r->node);
    if (node != CORE_NONE && memcmp(c->t.node[node].identity, r->identity, 16) == 0)
        return node;
    for (node = 0; node < c->t.nodes; node++)
        if (memcmp(c->t.node[node].identity, r->identity, 16) == 0)
            return node;
    return CORE_NONE;
}

/* Returns the slot as the pool takes it in.  One that was ever lent, and is not known to be wiped
   since, is left for an operator to look at: the store may be new although the pool is not. */
static pool_slot slot_at_first(const core *c, const dxpu_control_device *d, uint32_t index)
{
    pool_slot s = { .state = POOL_FREE, .owner = POOL_NONE };
    s.epoch = d->epoch > d->epoch_seen ? d->epoch : d->epoch_seen;
    bool good = d->health == DXPU_CONTROL_HEALTH_GOOD;
    bool unknown = corei_has_data(d) || ((s.epoch || good) && d->state != DXPU_CONTROL_SLOT_WIPED);
    if (unknown) {
        s.state = POOL_QUARANTINED;
        s.reason = POOL_WHY_FOREIGN;
    } else if (!good) {
        s.state = POOL_BROKEN;
        s.reason = d->health == DXPU_CONTROL_HEALTH_NONE ? POOL_WHY_ABSENT : POOL_WHY_DEVICE;
    }
    if (unknown && !s.epoch) /* its wipe needs one, and no two slots the same */
        s.epoch = c->t.pool->epoch + 1 + index;
    s.dirty = s.state != POOL_FREE && s.epoch;
    return s;
}

static void tell_quarantined(core *c, uint32_t node, const pool_slot *s, uint32_t number)
{
    const dxpu_control_device *d = &c->t.node_more[node].told[number - 1];
    if (s->state != POOL_QUARANTINED)
        return;
    core_event *e =
        corei_has_data(d) || d->epoch_seen
            ? corei_event(c, CORE_EVENT_SLOT_QUARANTINED,
                          "new here, and was lent before (epoch %llu): is this the pool's store? "
                          "nothing is wiped before repair",
                          (unsigned long long)s->epoch)
            : corei_event(c, CORE_EVENT_SLOT_QUARANTINED,
                          "new here, and its data are unknown: repair wipes it");
    e->node = c->t.node[node].number;
    e->slot = (uint16_t)number;
}

/* The records of slots that are new at a node, which gets that many. */
static void mark_slots(core *c, uint32_t node, uint32_t total)
{
    const corei_node *more = &c->t.node_more[node];
    core_node *n = &c->t.node[node];
    for (uint32_t i = n->total; n->role == DXPU_CONTROL_ROLE_BOX && i < total; i++) {
        pool_slot s = slot_at_first(c, &more->told[i], i);
        corei_mark_new(c, corei_slot_json(c, &s, &(core_slot){ .device = more->told[i] }),
                       "slot/%u.%u", n->number, i + 1);
        corei_see_epoch(c, s.epoch);
        tell_quarantined(c, node, &s, i + 1);
    }
    n->total = total;
    corei_mark_changed(c, COREI_NODE, node);
    corei_mark_changed(c, COREI_META, 0);
}

/* Hosts that dial a box as it was before get new orders: see order_port(). */
static void tell_hosts(core *c, uint32_t node)
{
    corei_tables *t = &c->t;
    const core_node *n = &t->node[node];
    if (n->role != DXPU_CONTROL_ROLE_BOX)
        return;
    for (uint32_t i = n->first; i < n->first + n->total; i++) {
        uint32_t port = t->slot_more[i].port;
        if (port != CORE_NONE)
            t->port_more[port].moved = true;
    }
}

/* Refuses nodes and slots beyond the limits.  Whoever reaches the port can register, and must not
   fill memory and disk. */
static core_result check_room(core *c, bool new_node, uint32_t slots)
{
    uint64_t all = (uint64_t)c->t.pool->slots + c->t.ports + slots;
    bool many = new_node && c->t.nodes >= c->set.nodes;
    if (!many && all <= c->set.slots) {
        c->full = false;
        return (core_result){ CORE_OK, "" };
    }
    core_result r = many
                        ? corei_result(CORE_E_CAPACITY,
                                       "the pool has %u nodes, its maximum; forget those that are "
                                       "gone (dxpu forget), or start the manager with more --nodes",
                                       c->t.nodes)
                        : corei_result(CORE_E_CAPACITY,
                                       "the pool would have %llu slots of boxes and hosts, and its "
                                       "maximum is %u; forget nodes that are gone (dxpu forget), "
                                       "or start the manager with more --slots",
                                       (unsigned long long)all, c->set.slots);
    if (c->full || corei_begin(c).code != CORE_OK)
        return r;
    (void)corei_event(c, CORE_EVENT_ALARM, "a proxy is refused: %.130s", r.text);
    c->full = corei_commit(c).code == CORE_OK;
    return r;
}

/* It may be elsewhere than before. */
static void note_move(core *c, uint32_t node, const dxpu_control_register *r)
{
    const core_node *n = &c->t.node[node];
    if (n->paths == r->paths && memcmp(n->path, r->path, n->paths * sizeof n->path[0]) == 0)
        return;
    corei_reach_forget(c, n->number, "it has other addresses");
    tell_hosts(c, node);
}

/* Refuses a key's nodes beyond its limit: no key fills the pool with nodes. */
static core_result check_key(const core *c, const uint8_t *key)
{
    uint32_t count = 0;
    for (uint32_t i = 0; key && i < c->t.nodes; i++) {
        const core_node *n = &c->t.node[i];
        count += n->keyed && !memcmp(n->key, key, sizeof n->key);
    }
    if (count < COREI_KEY_NODES)
        return (core_result){ CORE_OK, "" };
    return corei_result(CORE_E_CAPACITY,
                        "%u nodes have this key, the maximum; give further proxies keys of their "
                        "own, or forget those that are gone (dxpu forget)",
                        count);
}

/* Adds an unknown node.  It has no slots before it has reported all. */
static uint32_t add_node(core *c, const dxpu_control_register *r, const char *program,
                         const uint8_t *key, core_result *why)
{
    bool box = r->role == DXPU_CONTROL_ROLE_BOX;
    if ((*why = check_room(c, true, r->total)).code != CORE_OK ||
        (*why = check_key(c, key)).code != CORE_OK)
        return CORE_NONE;
    bool full = !box && c->t.pool->hosts == c->t.pool->limits.hosts;
    if ((full || c->t.nodes == c->t.node_room) && (*why = corei_load(c)).code != CORE_OK)
        return CORE_NONE;
    if ((*why = corei_begin(c)).code != CORE_OK)
        return CORE_NONE;
    corei_tables *t = &c->t;
    uint32_t node = t->nodes;
    core_node *n = &t->node[node];
    memset(n, 0, sizeof *n);
    n->number = t->highest_node + 1;
    n->role = r->role;
    memcpy(n->identity, r->identity, 16);
    (void)describe(n, r, program);
    n->keyed = key != NULL;
    if (key)
        memcpy(n->key, key, sizeof n->key);
    n->pool_index = POOL_NONE;
    n->first = box ? t->pool->slots : t->ports;
    n->since_unix_ms = c->unix_ms;
    if (!box && pool_add_host(t->pool, 0, &n->pool_index) != POOL_OK) {
        *why = corei_result(CORE_E_CAPACITY, "the pool has its maximum number of nodes");
        return CORE_NONE;
    }
    if (!box)
        t->host_node[n->pool_index] = node;
    t->node_more[node] = (corei_node){ .drain_told = COREI_NO_REPORT };
    t->nodes++;
    t->highest_node++;
    corei_mark_changed(c, COREI_NODE, node);
    corei_mark_changed(c, COREI_META, 0);
    corei_event_node(c, CORE_EVENT_NODE_NEW, node, "%s, a %s", n->name, box ? "box" : "host");
    *why = corei_commit_later(c);
    return why->code == CORE_OK ? node : CORE_NONE;
}

/* -- Registration -- */

uint64_t corei_epoch_told_max(const core *c)
{
    uint64_t clock =
        c->unix_ms < COREI_EPOCH_CLOCK_MAX / 1000 ? c->unix_ms * 1000 : COREI_EPOCH_CLOCK_MAX;
    uint64_t ahead = clock + COREI_EPOCH_AHEAD;
    return ahead > c->t.pool->epoch ? ahead : c->t.pool->epoch;
}

/* M-73: has every path such a port? */
static bool has_ports(const dxpu_control_register *r, unsigned port_offset)
{
    for (unsigned i = 0; i < r->paths && i < DXPU_CONTROL_PATHS_MAX; i++)
        if (r->path[i].port + port_offset > UINT16_MAX)
            return false;
    return true;
}

/* M-76: a copy of the proxy that is disconnected for a moment. */
static bool is_rival(const core *c, uint32_t node, uint64_t instance)
{
    const corei_node *more = &c->t.node_more[node];
    return more->rival == instance && c->t.node[node].instance != instance &&
           c->mono_ms < more->left_ms + COREI_RIVAL_MS;
}

void core_rival(core *c, uint32_t number, uint64_t instance)
{
    uint32_t node = core_find_node(c, number);
    if (node == CORE_NONE || c->t.node_more[node].rival == instance)
        return;
    c->t.node_more[node].rival = instance;
    if (corei_begin(c).code != CORE_OK)
        return;
    corei_event_node(c, CORE_EVENT_ALARM, node, "%s", CORE_DOUBLE);
    (void)corei_commit(c);
}

static core_result check_register(const core *c, const dxpu_control_register *r)
{
    bool box = r->role == DXPU_CONTROL_ROLE_BOX;
    unsigned most = box ? POOL_BOX_SLOTS_MAX : COREI_HOST_SLOTS_MAX;
    dxpu_bytes entries = r->entries;
    dxpu_control_device d;
    uint64_t most_epoch = corei_epoch_told_max(c);
    if (!box && r->role != DXPU_CONTROL_ROLE_HOST)
        return corei_result(CORE_E_ARG, "only hosts and boxes register");
    if (r->total > most)
        return corei_result(CORE_E_ARG, "%u slots; a %s has %u at most", r->total,
                            box ? "box" : "host", most);
    uint32_t node = corei_node_of(c, r);
    if (node != CORE_NONE && is_rival(c, node, r->instance))
        return corei_result(CORE_E_STATE, "%s", CORE_DOUBLE);
    if (node != CORE_NONE && c->t.node[node].role != r->role)
        return corei_result(CORE_E_STATE, "this identity is a %s's; give each its own file",
                            box ? "host" : "box");
    for (unsigned i = 0; i < r->count && dxpu_control_device_next(r, &entries, &d); i++) {
        if (d.epoch > most_epoch || d.epoch_seen > most_epoch)
            return corei_result(CORE_E_ARG,
                                "slot %u: no epoch of this pool is so high; begin with another "
                                "--state",
                                d.number);
        if (!has_ports(r, d.port_offset))
            return corei_result(CORE_E_ARG, "slot %u: its port offset leads above port 65535",
                                d.number);
    }
    return (core_result){ CORE_OK, "" };
}

/* One of a registration's slots; false: out of memory. */
static bool node_gather(core *c, uint32_t node, const dxpu_control_register *r)
{
    corei_node *more = &c->t.node_more[node];
    dxpu_bytes entries = r->entries;
    dxpu_control_device d;
    if (!more->told || more->told_total != r->total) {
        gather_end(more);
        more->told = calloc(r->total + 1u, sizeof *more->told);
        more->got = calloc(r->total + 1u, sizeof *more->got);
        more->told_total = more->missing = r->total;
    }
    if (!more->told || !more->got) {
        gather_end(more);
        return false;
    }
    for (unsigned i = 0; i < r->count && dxpu_control_device_next(r, &entries, &d); i++) {
        unsigned at = r->first + i - 1;
        if (at >= r->total)
            break;
        clean_device(&d, at + 1);
        more->missing = (uint16_t)(more->missing - !more->got[at]);
        more->got[at] = true;
        more->told[at] = d;
    }
    return true;
}

/* A box without slots is given them, behind all others; false: there is no room. */
static bool append_box(core *c, uint32_t node, uint32_t total)
{
    corei_tables *t = &c->t;
    core_node *n = &t->node[node];
    const dxpu_control_device *told = t->node_more[node].told;
    pool_slot_info info[POOL_BOX_SLOTS_MAX];
    pool_slot was[POOL_BOX_SLOTS_MAX];
    unsigned left;
    for (uint32_t i = 0; i < total; i++) {
        uint32_t model = corei_model_for(t, told[i].model, false);
        if (model == CORE_NONE)
            return false;
        info[i].model = (uint16_t)model;
        info[i].group = told[i].group ? told[i].group : POOL_NONE;
        was[i] = slot_at_first(c, &told[i], i);
    }
    uint32_t first = t->pool->slots;
    if (pool_add_box(t->pool, info, total, &n->pool_index) != POOL_OK)
        return false;
    if (n->draining)
        (void)pool_drain(t->pool, n->pool_index, true, &left);
    n->first = first;
    n->total = total;
    corei_init_slots(t, node);
    for (uint32_t i = 0; i < total; i++) {
        t->slot[first + i].device = told[i];
        corei_set_device(t, first + i);
        corei_see_epoch(c, was[i].epoch);
        tell_quarantined(c, node, &was[i], i + 1);
        (void)pool_restore_slot(t->pool, first + i, &was[i]);
        corei_mark_changed(c, COREI_SLOT, first + i);
    }
    return true;
}

/* Notes the epochs of leases that a new host has and the store has not given. */
static void see_ports(core *c, uint32_t node, uint32_t total)
{
    const corei_node *more = &c->t.node_more[node];
    for (uint32_t i = c->t.node[node].total; i < total; i++)
        corei_see_epoch(c, more->told[i].epoch);
}

/* Notes the epochs of a box's leases that the store has not given.  All come before anything
   follows from one: a slot lent in its place must not have the epoch of another. */
static void see_slots(core *c, uint32_t node)
{
    const core_node *n = &c->t.node[node];
    for (uint32_t i = n->first; n->role == DXPU_CONTROL_ROLE_BOX && i < n->first + n->total; i++) {
        const dxpu_control_device *d = &c->t.slot[i].device;
        uint64_t epoch = d->epoch > d->epoch_seen ? d->epoch : d->epoch_seen;
        if (epoch > c->t.pool->slot[i].epoch)
            corei_see_epoch(c, epoch);
    }
}

static bool append_host(core *c, uint32_t node, uint32_t total)
{
    corei_tables *t = &c->t;
    core_node *n = &t->node[node];
    if (total > t->port_room - t->ports)
        return false;
    (void)pool_set_capacity(t->pool, n->pool_index, total);
    n->first = t->ports;
    n->total = total;
    t->ports += total;
    corei_init_slots(t, node);
    return true;
}

/* May its slots from `first` on come in?  A store with more models could not be loaded again. */
static core_result check_models(const core *c, uint32_t node, uint32_t first, uint32_t total)
{
    const dxpu_control_device *told = c->t.node_more[node].told;
    uint32_t models = corei_models_used(&c->t);
    for (uint32_t i = first; c->t.node[node].role == DXPU_CONTROL_ROLE_BOX && i < total; i++) {
        bool known = core_find_model(c, told[i].model) != CORE_NONE;
        for (uint32_t j = first; j < i && !known; j++)
            known = strcmp(told[j].model, told[i].model) == 0;
        models += !known;
    }
    if (models <= COREI_MODELS_MAX)
        return (core_result){ CORE_OK, "" };
    return corei_result(CORE_E_CAPACITY, "the pool has %d models at most; give it another --model",
                        COREI_MODELS_MAX);
}

/* A node that has slots gets more by rebuilding all tables, so not often: others wait meanwhile. */
static core_result may_enlarge(core *c, uint32_t node)
{
    corei_node *more = &c->t.node_more[node];
    uint64_t units = c->t.pool->slots + c->t.ports;
    if (!c->t.node[node].total)
        return (core_result){ CORE_OK, "" };
    if (c->mono_ms < more->enlarge_ms || c->mono_ms < c->enlarge_ms)
        return corei_result(CORE_E_STATE, "its slots, or those of another proxy, changed a moment "
                                          "ago; it is accepted within a minute");
    more->enlarge_ms = c->mono_ms + COREI_ENLARGE_MS;
    c->enlarge_ms = c->mono_ms + COREI_ENLARGE_MS * units / COREI_ENLARGE_UNITS;
    return (core_result){ CORE_OK, "" };
}

/* Takes in slots that were not known.  The first ones of a node go behind all others; for further
   ones of a node that has some the tables are rebuilt. */
static core_result enlarge(core *c, uint32_t node)
{
    uint32_t total = c->t.node_more[node].told_total;
    core_node *n = &c->t.node[node];
    core_result r = { CORE_OK, "" };
    if (total > n->total)
        r = check_room(c, false, total - n->total);
    if (total > n->total && r.code == CORE_OK)
        r = check_models(c, node, n->total, total);
    if (total > n->total && r.code == CORE_OK)
        r = may_enlarge(c, node);
    if (total > n->total && r.code == CORE_OK)
        r = corei_begin(c);
    if (total <= n->total || r.code != CORE_OK)
        return r;
    if (n->role == DXPU_CONTROL_ROLE_HOST)
        see_ports(c, node, total);
    if (!n->total && (n->role == DXPU_CONTROL_ROLE_BOX ? append_box(c, node, total)
                                                       : append_host(c, node, total))) {
        corei_mark_changed(c, COREI_NODE, node);
        corei_mark_changed(c, COREI_META, 0);
        return corei_commit_later(c);
    }
    mark_slots(c, node, total);
    r = corei_commit(c);
    return r.code == CORE_OK ? corei_reload(c) : r;
}

/* Ends the transaction.  If it failed, or could not begin, the node is stored later. */
static void save_node(core *c, uint32_t node, bool began)
{
    if (began && c->t.node_more[node].unsaved)
        corei_mark_changed(c, COREI_NODE, node);
    if (began && corei_commit_later(c).code == CORE_OK)
        c->t.node_more[node].unsaved = false;
    else
        corei_look_at(c, corei_node_unit(c, node), corei_again_ms(c));
}

void corei_save_node(core *c, uint32_t node)
{
    if (!c->t.node_more[node].unsaved)
        return;
    save_node(c, node, corei_begin(c).code == CORE_OK);
    uint64_t gone_ms = c->t.node_more[node].gone_ms;
    if (gone_ms > c->mono_ms) /* what its timer was for */
        corei_look_at(c, corei_node_unit(c, node), gone_ms);
}

/* Stores what a box reports of its slots' data for the first time.  When that fails, each slot is
   stored alone. */
static void save_data(core *c, uint32_t node)
{
    const core_node *n = &c->t.node[node];
    uint32_t first = n->first, end = n->role == DXPU_CONTROL_ROLE_BOX ? first + n->total : first;
    unsigned changes = 0;
    for (uint32_t i = first; i < end; i++)
        changes += c->t.slot_more[i].data_unsaved;
    if (!changes || corei_make_room(c, changes).code != CORE_OK || corei_begin(c).code != CORE_OK)
        return;
    for (uint32_t i = first; i < end; i++)
        if (c->t.slot_more[i].data_unsaved)
            corei_mark_changed(c, COREI_SLOT, i);
    bool saved = corei_commit(c).code == CORE_OK;
    for (uint32_t i = first; saved && i < end; i++)
        c->t.slot_more[i].data_unsaved = false;
}

/* Does what follows from the report of a node whose records are in the store.  A slot that was
   hidden while its box was disconnected is shown before its record is written. */
static void node_follow(core *c, uint32_t node)
{
    if (c->t.node[node].role == DXPU_CONTROL_ROLE_BOX)
        corei_settle_free(c, node);
    save_data(c, node);
    for (unsigned i = 1; i <= c->t.node[node].total; i++)
        settle_report(c, node, (uint16_t)i);
    corei_touch_node(c, node);
}

void core_batch(core *c)
{
    c->batch = true;
    c->lost = false;
}

bool core_batch_end(core *c)
{
    c->batch = false;
    if (c->pending)
        (void)corei_commit(c);
    if (!c->lost)
        (void)core_follow(c);
    return !c->lost;
}

/* No order goes to its slots until then (M-100). */
static void follow_late(core *c, uint32_t node)
{
    const core_node *n = &c->t.node[node];
    for (uint32_t i = 0; n->role == DXPU_CONTROL_ROLE_BOX && i < n->total; i++)
        c->t.slot_more[n->first + i].late = true;
}

bool core_follow(core *c)
{
    uint64_t before = c->commits;
    bool more = false;
    for (uint32_t i = 0; i < c->t.nodes; i++) {
        bool joined = c->t.node_more[i].joined && c->t.node[i].connected;
        bool waits = joined && c->commits - before >= COREI_FOLLOW_COMMITS;
        c->t.node_more[i].joined = waits;
        if (waits)
            follow_late(c, i);
        else if (joined)
            node_follow(c, i);
        more = more || waits;
    }
    return more;
}

/* Everything was reported: it is connected, and orders can go there. */
static void node_connect(core *c, uint32_t node)
{
    corei_node *more = &c->t.node_more[node];
    dxpu_control_device *told = more->told;
    unsigned total = more->told_total;
    core_node *n = &c->t.node[node];
    n->connected = true;
    n->since_unix_ms = c->unix_ms;
    more->joined_ms = c->mono_ms;
    more->told = NULL;
    more->gone_ms = 0;
    gather_end(more);
    corei_heap_remove(&c->t.timers, corei_node_unit(c, node));
    for (unsigned i = 0; i < n->total; i++) {
        /* Of slots that were there once there is no device now. */
        dxpu_control_device none = { .number = (uint16_t)(i + 1) };
        note_report(c, node, i < total ? &told[i] : &none);
    }
    free(told);
    if (n->role == DXPU_CONTROL_ROLE_BOX)
        corei_direct_begin(c, node);
    bool began = corei_begin(c).code == CORE_OK;
    if (began) {
        corei_event_node(c, CORE_EVENT_NODE_CONNECTED, node, "%s, %s", n->name, n->program);
        see_slots(c, node);
    }
    save_node(c, node, began);
    if (c->batch)
        c->t.node_more[node].joined = true;
    else
        node_follow(c, node);
}

/* Single slots of a connected proxy. */
static void node_update(core *c, uint32_t node, const dxpu_control_register *r)
{
    dxpu_bytes entries = r->entries;
    dxpu_control_device d;
    for (unsigned i = 0; i < r->count && dxpu_control_device_next(r, &entries, &d); i++) {
        clean_device(&d, r->first + i);
        note_report(c, node, &d);
        settle_in_turn(c, node, d.number);
    }
}

core_result core_check_key(core *c, const dxpu_control_register *r,
                           const uint8_t key[DXPU_CONTROL_KEY_BYTES])
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    uint32_t node = corei_node_of(c, r);
    if (node == CORE_NONE || !c->t.node[node].keyed ||
        !memcmp(c->t.node[node].key, key, DXPU_CONTROL_KEY_BYTES))
        return (core_result){ CORE_OK, "" };
    uint32_t number = c->t.node[node].number;
    uint8_t both[DXPU_CONTROL_KEY_BYTES]; /* the key, and whose identity it has */
    memcpy(both, key, sizeof both);
    for (unsigned i = 0; i < 4; i++)
        both[i] ^= (uint8_t)(number >> 8 * i);
    if (corei_may_tell(c, &c->keys, both) && corei_begin(c).code == CORE_OK) {
        corei_event_node(c, CORE_EVENT_NODE_KEY, node,
                         "refused: another public key used its identity, %s",
                         dxpu_sodium_key_print(key, text));
        (void)corei_commit(c);
    }
    return corei_result(CORE_E_STATE,
                        "node %u has another public key; if this one is to replace it, stop the "
                        "other one and run: dxpu rekey %u",
                        number, number);
}

core_result core_check_pace(core *c, const uint8_t key[DXPU_CONTROL_KEY_BYTES])
{
    corei_party *p = corei_party_of_key(c, key);
    if (p->connects_ms < c->mono_ms)
        p->connects_ms = c->mono_ms;
    uint64_t ahead = p->connects_ms - c->mono_ms;
    if (ahead <= (uint64_t)COREI_CONNECT_MS * (COREI_CONNECTS - 1)) {
        p->connects_ms += COREI_CONNECT_MS;
        return (core_result){ CORE_OK, "" };
    }
    return corei_result(CORE_E_STATE, "proxies of its key connect too often; the next may in %d ms",
                        COREI_CONNECT_MS);
}

/* -- Names -- */

void core_name(const dxpu_control_register *r, char out[CORE_NAME_BYTES])
{
    copy_word(out, r->name.ptr, r->name.len);
}

/* Returns the first node from `from` on that has the name, and is neither `but` nor of this key. */
static uint32_t namesake(const core *c, const char *name, const uint8_t *key, uint32_t but,
                         uint32_t from)
{
    for (; from < c->t.nodes; from++) {
        const core_node *n = &c->t.node[from];
        if (from != but && strcmp(n->name, name) == 0 &&
            !(n->keyed && memcmp(n->key, key, sizeof n->key) == 0))
            return from;
    }
    return CORE_NONE;
}

/* May an event report this key's refusal?  Once an interval, and for a limited number of keys:
   proxies dial repeatedly, and the owner of a key that may register chooses names freely. */
bool corei_may_tell(const core *c, corei_told *told, const uint8_t *key)
{
    if (!told->count || c->mono_ms - told->since_ms >= COREI_TOLD_MS) {
        told->count = 0;
        told->since_ms = c->mono_ms;
    }
    for (unsigned i = 0; i < told->count; i++)
        if (memcmp(told->key[i], key, sizeof told->key[i]) == 0)
            return false;
    if (told->count == COREI_TOLD)
        return false;
    memcpy(told->key[told->count++], key, sizeof told->key[0]);
    return true;
}

/* node: the one that has the name; CORE_NONE: a line of --peers has it. */
static core_result refuse_name(core *c, const char *name, const uint8_t *key, uint32_t node,
                               const char *why)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    uint32_t number = node == CORE_NONE ? 0 : c->t.node[node].number;
    if (corei_may_tell(c, &c->names, key) && corei_begin(c).code == CORE_OK) {
        core_event *e =
            corei_event(c, CORE_EVENT_NODE_NAME, "refused: key %s must not have the name '%s'",
                        dxpu_sodium_key_print(key, text), name);
        e->node = number;
        (void)corei_commit(c);
    }
    return number ? corei_result(
                        CORE_E_STATE,
                        "node %u, with another key, has the name '%s'; give this one another "
                        "--name, or bind the name to its key: name= in its line of --peers here",
                        number, name)
                  : corei_result(CORE_E_STATE, "%s", why);
}

/* A line of --peers gives the name to this key: other nodes that have it get their numbers as
   names. */
static void take_name(core *c, const char *name, const uint8_t *key, uint32_t mine)
{
    uint32_t node = CORE_NONE;
    while ((node = namesake(c, name, key, mine, node + 1)) != CORE_NONE) {
        core_node *n = &c->t.node[node];
        if (corei_begin(c).code != CORE_OK)
            return;
        corei_event_node(c, CORE_EVENT_NODE_NAME, node, "its name '%s' belongs to another key",
                         name);
        snprintf(n->name, sizeof n->name, "%u", n->number);
        corei_mark_changed(c, COREI_NODE, node);
        if (corei_commit(c).code != CORE_OK)
            return;
    }
}

core_result core_check_name(core *c, const dxpu_control_register *r,
                            const uint8_t key[DXPU_CONTROL_KEY_BYTES], const char *why, bool own)
{
    char name[CORE_NAME_BYTES];
    uint32_t mine = corei_node_of(c, r), other;
    core_name(r, name);
    if (*why)
        return refuse_name(c, name, key, CORE_NONE, why);
    if (own)
        take_name(c, name, key, mine);
    else if (*name && (mine == CORE_NONE || strcmp(c->t.node[mine].name, name) != 0) &&
             (other = namesake(c, name, key, mine, 0)) != CORE_NONE)
        return refuse_name(c, name, key, other, NULL);
    return (core_result){ CORE_OK, "" };
}

/* The key of a node's first sealed register is the node's; true when it is new. */
static bool pin(core *c, uint32_t node, const uint8_t *key)
{
    core_node *n = &c->t.node[node];
    n->sealed = key != NULL;
    if (!key || n->keyed)
        return false;
    n->keyed = true;
    memcpy(n->key, key, sizeof n->key);
    c->t.node_more[node].party = 0;
    tell_hosts(c, node); /* they dial by the key */
    return true;
}

/* Returns how many changes a register may need room for.  For slots that are stored it makes
   none. */
static unsigned register_changes(const core *c, const dxpu_control_register *r)
{
    uint32_t node = corei_node_of(c, r);
    bool known = node != CORE_NONE && r->total <= c->t.node[node].total;
    return (known ? 0 : r->total) + COREI_REGISTER_CHANGES;
}

uint32_t core_register(core *c, const dxpu_control_register *r, const char *program,
                       const uint8_t *key, core_result *why)
{
    *why = check_register(c, r);
    if (why->code == CORE_OK) /* none of its own changes may do that: nodes may be gone then */
        *why = corei_make_room(c, register_changes(c, r));
    if (why->code == CORE_OK && c->batch && c->lost) /* numbers of nodes that are gone are free */
        *why = corei_result(CORE_E_STORE, "the store could not be written a moment ago");
    if (why->code != CORE_OK)
        return 0;
    uint32_t node = corei_node_of(c, r);
    if (node == CORE_NONE)
        node = add_node(c, r, program, key, why);
    if (node == CORE_NONE)
        return 0;
    uint32_t number = c->t.node[node].number;
    core_node *n = &c->t.node[node];
    if (n->instance && n->instance != r->instance) {
        core_disconnected(c, number);
        corei_reach_forget(c, number, "it was restarted");
        node = core_find_node(c, number);
        if (node == CORE_NONE) { /* it was new in this batch, which failed */
            *why = corei_result(CORE_E_STORE, "%.250s", c->failure);
            return 0;
        }
        c->t.node_more[node].drain_told = COREI_NO_REPORT; /* another program: it knows nothing */
    }
    c->t.node[node].instance = r->instance;
    if (c->t.node[node].connected && r->total <= c->t.node[node].total) {
        node_update(c, node, r);
        return number;
    }
    note_move(c, node, r);
    bool changed = pin(c, node, key);
    changed |= describe(&c->t.node[node], r, program);
    c->t.node_more[node].unsaved |= changed;
    if (!node_gather(c, node, r)) {
        *why = corei_result(CORE_E_MEMORY, "out of memory");
        return 0;
    }
    if (c->t.node_more[node].missing)
        return number;
    *why = enlarge(c, node);
    if (why->code != CORE_OK) {
        node = core_find_node(c, number);
        if (node != CORE_NONE)
            gather_end(&c->t.node_more[node]);
        return 0;
    }
    node_connect(c, node);
    return number;
}

void core_alarm(core *c, uint32_t number, const dxpu_control_alarm *a)
{
    uint32_t node = core_find_node(c, number), slot = core_find_slot(c, number, a->slot);
    if (node == CORE_NONE)
        return;
    corei_party *party = corei_party_of(c, node);
    if (!corei_party_may(&party->alarm_ms, &party->alarms, COREI_ALARMS, c->mono_ms))
        return;
    party->alarms++;
    if (corei_begin(c).code != CORE_OK)
        return;
    char text[CORE_NAME_BYTES * 2];
    snprintf(text, sizeof text, "%.*s", (int)(a->text.len < 120 ? a->text.len : 120),
             a->text.len ? (const char *)a->text.ptr : "");
    if (slot != CORE_NONE)
        corei_event_slot(c, CORE_EVENT_ALARM, slot, "%s: %s", dxpu_control_alarm_name(a->kind),
                         text);
    else
        corei_event_node(c, CORE_EVENT_ALARM, node, "%s: %s", dxpu_control_alarm_name(a->kind),
                         text);
    (void)corei_commit(c);
}
