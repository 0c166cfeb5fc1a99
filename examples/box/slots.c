/* slots.c - see slots.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 From the device   2 To the device   3 Leases   4 Life   5 Screens
              6 Statistics */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "slots.h"
#include "block_store.h"
#include "connector.h"
#include "declare.h"
#include "durable.h"
#include "functions.h"
#include "log.h"
#include "identity.h"
#include "isolate.h"
#include "leases.h"
#include "hot_plug.h"
#include "p2p.h"
#include "program.h"
#include "remote.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TLPS_PER_TURN = 256,   /* then other slots and the network have their turn */
    TURN_NS_MAX = 1000000, /* the same */
    TURN_NS_MIN = 20000,
    TURNS_OF_HOLD = 8,   /* all slots' turns together: this part of the hold time */
    ABSENCE_S = 30,      /* of a device, not reported to its manager */
    WAITING_MAX = 512,   /* TLPs of a device; with more it is given no further request */
    WAITING_MOST = 4096, /* far beyond what a device owes for all that it was asked */
    RESERVE_BYTES_EACH = (sizeof(waiting_tlp) + DXPU_TLP_MAX_BYTES + 15) & ~15u, /* aligned */
    RESERVE_BYTES = RESERVE_TLPS * RESERVE_BYTES_EACH
};

enum { ERR_COR = 0x30, ERR_NONFATAL = 0x31, ERR_FATAL = 0x33 }; /* Base Spec 2.2.8.3 */

/* ==== 1  From the device ====================================================================== */

/* Ordering is PCIe's (Base Spec 2.4.1): each class keeps its own order, nothing passes an older
   posted TLP, and posted TLPs and completions pass requests that wait for an answer. */

static waiting_tlp *reserve_take(waiting_reserve *r)
{
    waiting_tlp *w = r->free;
    if (w)
        r->free = w->next;
    else if (r->memory && r->fresh < RESERVE_TLPS)
        w = (waiting_tlp *)(void *)(r->memory + (size_t)RESERVE_BYTES_EACH * r->fresh++);
    return w;
}

static bool reserve_owns(const waiting_reserve *r, const waiting_tlp *w)
{
    return r->memory && (uintptr_t)w - (uintptr_t)r->memory < RESERVE_BYTES;
}

/* False: there is no memory, not even in the reserve. */
static bool queue(slot *s, unsigned cls, dxpu_bytes tlp, uint64_t order)
{
    waiting_queue *q = &s->queues[cls];
    waiting_tlp *w = malloc(sizeof *w + tlp.len);
    if (!w) {
        w = reserve_take(&s->shard->reserve);
        s->in_reserve += w != NULL;
        s->reserved += w != NULL;
    }
    if (!w)
        return false;
    w->next = NULL;
    w->order = order;
    w->len = tlp.len;
    memcpy(w->bytes, tlp.ptr, tlp.len);
    *q->tail = w;
    q->tail = &w->next;
    s->waiting++;
    s->waited++;
    return true;
}

static void pop(slot *s, waiting_queue *q)
{
    waiting_reserve *r = &s->shard->reserve;
    waiting_tlp *w = q->head;
    q->head = w->next;
    if (!q->head)
        q->tail = &q->head;
    s->waiting--;
    if (!reserve_owns(r, w)) {
        free(w);
        return;
    }
    w->next = r->free;
    r->free = w;
    s->in_reserve--;
}

static void clear_queue(slot *s, unsigned cls)
{
    for (; s->queues[cls].head; s->dropped++)
        pop(s, &s->queues[cls]);
}

void slots_drop_completions(slot *s, bool (*is)(slot *s, dxpu_bytes tlp))
{
    waiting_queue *q = &s->queues[DXPU_COMPLETION], kept = { NULL, &kept.head };
    while (q->head) {
        waiting_tlp *w = q->head;
        dxpu_bytes tlp = { w->bytes, w->len };
        if (is(s, tlp)) {
            pop(s, q);
            s->dropped++;
            continue;
        }
        q->head = w->next;
        w->next = NULL;
        *kept.tail = w;
        kept.tail = &w->next;
    }
    q->head = kept.head;
    q->tail = kept.head ? kept.tail : &q->head;
}

static void clear_queues(slot *s)
{
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        clear_queue(s, cls);
}

/* Must a TLP wait for an older one that waits? */
static bool has_to_wait(const slot *s, unsigned cls, uint64_t order)
{
    const waiting_tlp *posted = s->queues[DXPU_POSTED].head, *own = s->queues[cls].head;
    return (posted && posted->order < order) || (own && own->order < order);
}

static int submit(slot *s, dxpu_bytes tlp, uint64_t now)
{
    uint64_t next_ns = limit_next_ns(&s->limit, now);
    int rc;
    if (next_ns > now) { /* S-111 */
        s->limited_ns = next_ns;
        return DXPU_E_AGAIN;
    }
    fabric_stir_channel(&s->shard->fabric, s->active);
    rc = p2p_submit(s, tlp, now);
    if (rc == P2P_HOST)
        rc = dxpu_channel_submit(&s->active->ch, tlp, now, 0);
    if (rc == DXPU_OK)
        limit_take(&s->limit, tlp);
    return rc;
}

/* What the host writes can make a device send, and nothing holds writes up: of a host, or a guest
   under a limit, that takes less than it causes the memory of all others is not to pay for it. */
static void overflow(slot *s)
{
    log_warning("slot %u: its host reads too slowly what the device sends; the channel ends",
                s->active->slot);
    fabric_reset(&s->shard->fabric, s->active, DXPU_REASON_HOLD);
}

/* A lost completion would be a silent fault at the host, and the other slots are not to pay. */
void slots_no_memory(slot *s)
{
    log_error("slot %u: out of memory for a TLP of the device; the channel ends; give the box more "
              "memory or fewer slots",
              s->active->slot);
    fabric_reset(&s->shard->fabric, s->active, DXPU_REASON_BUSY);
}

/* Does so much wait that the device is to make nothing more?  Any TLP in the reserve is: memory is
   short, and what the device makes next may be what it is for. */
static bool held_up(const slot *s)
{
    return s->waiting >= WAITING_MAX || s->in_reserve;
}

/* A message of an error, which the device's registers have as well. */
static bool may_be_lost(dxpu_bytes tlp)
{
    dxpu_tlp t;
    return dxpu_tlp_decode_header(tlp, &t) == DXPU_OK && t.type == DXPU_TLP_MSG &&
           (t.message_code == ERR_COR || t.message_code == ERR_NONFATAL ||
            t.message_code == ERR_FATAL);
}

static bool has_place(const slot *s, dxpu_bytes tlp)
{
    return s->waiting < WAITING_MAX || (s->waiting < WAITING_MOST && !may_be_lost(tlp));
}

/* order: of the TLPs that the device has emitted, which one it comes behind or is. */
static void send_up(slot *s, dxpu_bytes tlp, uint64_t order)
{
    dxpu_tlp_shape shape;
    int rc;
    if (!s->active || dxpu_channel_status(&s->active->ch).state >= DXPU_STATE_CLOSED ||
        dxpu_tlp_measure(tlp, &shape) != DXPU_OK) {
        s->dropped++;
        return;
    }
    rc = has_to_wait(s, shape.cls, order) ? DXPU_E_AGAIN : submit(s, tlp, dxpu_udp_now_ns());
    if (rc == DXPU_E_AGAIN && has_place(s, tlp)) {
        if (!queue(s, shape.cls, tlp, order))
            slots_no_memory(s);
    } else if (rc != DXPU_OK) {
        s->dropped++; /* or the channel is over */
        if (s->waiting >= WAITING_MOST)
            overflow(s);
    }
}

/* Ahead of all that the device sends, so that its host knows it whenever it loses the device. */
static void declare(slot *s)
{
    device_value values[DEVICE_VALUES_MAX];
    uint8_t bytes[DECLARE_BYTES];
    unsigned count = s->kind->values ? s->kind->values(s->device, values) : 0;
    if (count)
        send_up(s, declare_encode(values, count, bytes), s->emitted);
}

void slots_answer(slot *s, dxpu_bytes tlp)
{
    uint8_t bytes[REFUSAL_BYTES];
    dxpu_bytes answer = refusal_encode(tlp, DXPU_CPL_UR, bytes);
    s->turned_away++;
    if (!answer.len)
        return;
    if (s->answers_tail - s->answers_head >= SLOT_ANSWERS) { /* more than it has tags */
        s->dropped++;
        return;
    }
    memcpy(s->answers[s->answers_tail++ % SLOT_ANSWERS], bytes, sizeof bytes);
}

/* The device tried what its lease does not allow: reported once, and its requests are answered. */
static void turn_away(slot *s, dxpu_bytes tlp, unsigned reason)
{
    uint64_t epoch = s->active->ch.cfg.epoch;
    if (s->alarmed != epoch)
        log_warning("slot %u: refused a TLP of its device, epoch %llu: it %s; further ones are "
                    "only counted",
                    s->active->slot, (unsigned long long)epoch, dxpu_guard_text(reason));
    s->alarmed = epoch;
    slots_answer(s, tlp);
}

/* device_port.emit */
static void device_emits(void *user, dxpu_bytes tlp)
{
    slot *s = user;
    unsigned verdict;
    s->emitted++;
    if (!s->active) {
        s->dropped++;
        return;
    }
    fabric_stir_channel(&s->shard->fabric, s->active); /* also of what waits, or is refused */
    verdict = dxpu_guard_up(&s->guard, tlp);
    if (verdict == DXPU_GUARD_PASS)
        send_up(s, tlp, s->emitted);
    else if (verdict != DXPU_GUARD_ENDS)
        turn_away(s, tlp, verdict);
}

/* device_port.waiting.  A channel that takes nothing more is as full as one can be: nothing waits
   for it, and a device that streams would have the loop to itself until its stream ends. */
static unsigned device_waits(void *user)
{
    const slot *s = user;
    if (!s->active || dxpu_channel_status(&s->active->ch).state > DXPU_STATE_UP || s->in_reserve)
        return WAITING_MAX;
    return s->waiting + s->turned_away; /* what goes nowhere is not for nothing either */
}

/* It has been absent for long. */
static void on_missing(evutil_socket_t fd, short what, void *user)
{
    slot *s = user;
    (void)fd;
    (void)what;
    s->missing = true;
    manager_changed(s->shard->box->manager, slots_number(s));
}

/* device_port.present.  As one that was pulled out: its host's channel ends, and opens are refused
   until it is back, reset. */
static void device_present(void *user, bool there)
{
    const struct timeval wait = { ABSENCE_S, 0 };
    slot *s = user;
    s->absent = !there;
    s->missing = s->missing && !there;
    if (there)
        (void)event_del(s->waits);
    else if (!s->missing && event_add(s->waits, &wait))
        s->missing = true; /* without memory: at once */
    if (!there && s->active)
        fabric_reset(&s->shard->fabric, s->active, DXPU_REASON_NO_SLOT);
    manager_changed(s->shard->box->manager, slots_number(s));
}

/* device_port.wake */
static void device_wakes(void *user)
{
    slot *s = user;
    if (s->active)
        fabric_stir_channel(&s->shard->fabric, s->active);
}

static void drain_class(slot *s, unsigned cls, uint64_t now)
{
    waiting_queue *q = &s->queues[cls];
    while (q->head && !has_to_wait(s, cls, q->head->order)) {
        dxpu_bytes tlp = { q->head->bytes, q->head->len };
        unsigned verdict = dxpu_guard_waited(&s->guard, tlp);
        int rc = verdict == DXPU_GUARD_PASS ? submit(s, tlp, now) : DXPU_OK;
        if (rc == DXPU_E_AGAIN)
            return;
        if (verdict != DXPU_GUARD_PASS)
            turn_away(s, tlp, verdict);
        s->dropped += rc != DXPU_OK;
        pop(s, q);
    }
}

/* Submit what waits. */
static void drain_queues(slot *s, uint64_t now)
{
    const waiting_queue *answers = &s->queues[DXPU_COMPLETION];
    uint64_t first = answers->head ? answers->head->order : 0;
    drain_class(s, DXPU_POSTED, now);
    drain_class(s, DXPU_COMPLETION, now);
    if (first && (!answers->head || answers->head->order != first))
        drain_class(s, DXPU_POSTED, now); /* to a neighbor: it may have waited for that one */
    drain_class(s, DXPU_NONPOSTED, now);
}

/* ==== 2  To the device ======================================================================== */

/* The device sees only TLPs that a receiver accepts (T-43); the requester of another is answered
   here. */
static void refuse(slot *s, dxpu_bytes tlp)
{
    uint8_t bytes[REFUSAL_BYTES];
    dxpu_bytes answer = refusal_encode(tlp, DXPU_CPL_UR, bytes);
    s->malformed++;
    if (answer.len)
        send_up(s, answer, s->emitted + 1); /* behind all that the device has sent */
}

/* Not from within emit(), where the requests were refused.  True: there are more. */
static bool tell_refused(slot *s)
{
    for (unsigned n = s->answers_tail - s->answers_head; n > 0; n--) {
        dxpu_bytes bytes = { s->answers[s->answers_head++ % SLOT_ANSWERS], REFUSAL_BYTES };
        dxpu_tlp t;
        if (dxpu_tlp_receive(bytes, &t) == DXPU_OK) /* always: it was encoded here */
            s->kind->tlp(s->device, &t, bytes);
    }
    return s->answers_head != s->answers_tail;
}

shard *slots_shard(const box *b, unsigned number)
{
    return &b->shards[(number - 1) % b->shard_count];
}

/* Give the next TLP of a class to the device; false when there is none. */
static bool take_one(box *b, slot *s, unsigned cls, uint64_t now)
{
    fabric_channel *c = s->active;
    dxpu_delivery d = dxpu_channel_peek(&c->ch, cls);
    dxpu_tlp t;
    if (!d.tlp.len)
        return false;
    recorder_tlp(&b->record, d.tlp);
    s->taken[cls]++;
    if (dxpu_tlp_receive(d.tlp, &t) == DXPU_OK) {
        dxpu_guard_down(&s->guard, &t);
        if (!p2p_message(s, &t))
            s->kind->tlp(s->device, &t, d.tlp);
    } else {
        refuse(s, d.tlp);
    }
    (void)dxpu_channel_take(&c->ch, cls, now); /* peek() has just shown it */
    return true;
}

/* What a device sent before its reset does not leave after it, and its requests are not answered.
   The host's questions are: completions stay. */
static void forget_sent(slot *s)
{
    clear_queue(s, DXPU_POSTED);
    clear_queue(s, DXPU_NONPOSTED);
    s->answers_head = s->answers_tail;
    declare(s); /* it may have been among them */
}

static bool take_event(slot *s)
{
    dxpu_event e;
    if (!dxpu_channel_peek_event(&s->active->ch, &e))
        return false;
    if (e.type) {
        (void)dxpu_guard_event(&s->guard, &e); /* a server has to know its windows, too */
        if (e.type == DXPU_EVENT_HOT_RESET || e.type == DXPU_EVENT_SLOT_POWER) {
            forget_sent(s);
            p2p_reset(s);
        }
        if (e.type == DXPU_EVENT_SLOT_POWER) { /* off is to a device as a reset that stays */
            s->kind->event(s->device, &e);
            e.type = DXPU_EVENT_HOT_RESET;
            e.flags ^= DXPU_EVENT_ON;
        }
        s->kind->event(s->device, &e);
    }
    (void)dxpu_channel_take_event(&s->active->ch);
    return true;
}

/* How long a slot may have the loop to itself (S-161): all of them have had a turn long before a
   channel has to be heard again, which is after a quarter of the hold time. */
static uint64_t turn_ns(const shard *sh)
{
    uint64_t slots = (sh->box->count + sh->box->shard_count - 1) / sh->box->shard_count;
    uint64_t ns = sh->fabric.base.hold_ms * 1000000ull / TURNS_OF_HOLD / slots;
    return ns > TURN_NS_MAX ? TURN_NS_MAX : ns < TURN_NS_MIN ? TURN_NS_MIN : ns;
}

static bool is_busy(const slot *s, bool posted)
{
    return s->kind->busy && s->kind->busy(s->device, posted);
}

/* From another slot of the box, or from the host: that may have seen what the other slot's device
   has done after it wrote to this one (B-7). */
static bool take_any(box *b, slot *s, unsigned cls, uint64_t now)
{
    bool any = p2p_take(s, cls);
    if (!p2p_host_may(s, cls) || !take_one(b, s, cls, now))
        return any;
    p2p_host_did(s, cls);
    return true;
}

static bool is_unfinished(const slot *s)
{
    return s->kind->unfinished && s->kind->unfinished(s->device);
}

bool slots_work(void *user, fabric_channel *c, uint64_t now_ns)
{
    box *b = ((shard *)user)->box;
    slot *s = p2p_is_link(c) ? NULL : &b->slots[c->slot - 1];
    uint64_t end_ns = dxpu_udp_now_ns() + turn_ns(user);
    if (!s)
        return p2p_serve(user, c);
    if (s->active != c)
        return false;
    p2p_work(s, now_ns);
    s->limited_ns = DXPU_NEVER;
    s->turned_away = 0;
    drain_queues(s, now_ns); /* room comes with acknowledgements, so not within a turn */
    if (s->kind->tick)
        s->kind->tick(s->device, now_ns);
    for (unsigned n = 0; n < TLPS_PER_TURN && (n % 4 || dxpu_udp_now_ns() < end_ns); n++) {
        bool any = take_event(s);
        if (!is_busy(s, true))
            any |= take_any(b, s, DXPU_POSTED, now_ns);
        /* bounds what waits, and a device that streams still answers */
        if (!held_up(s) && !is_busy(s, false))
            any |= take_any(b, s, DXPU_NONPOSTED, now_ns);
        any |= take_any(b, s, DXPU_COMPLETION, now_ns);
        if (!any)
            return tell_refused(s) || s->turned_away || is_unfinished(s) || p2p_host_waits(s);
    }
    (void)tell_refused(s);
    return true;
}

uint64_t slots_next_ns(const shard *sh)
{
    const box *b = sh->box;
    uint64_t next = p2p_next_ns(sh);
    if (b->state && !sh->lane && state_writes(b->state, sh->index))
        return 0; /* it is over, and nothing wakes the loop */
    for (unsigned i = sh->index; i < b->count && (b->limit_tlps || b->limit_bytes);
         i += b->shard_count)
        next = b->slots[i].limited_ns < next ? b->slots[i].limited_ns : next;
    return next;
}

/* ==== 3  Leases =============================================================================== */

/* What dxpu_box_bind() refused: the epoch, or a slot in which nothing stands. */
static uint8_t bind_reason(int rc)
{
    return rc == DXPU_E_EPOCH ? DXPU_REASON_EPOCH : DXPU_REASON_NO_SLOT;
}

/* May the owner of this key, NULL with --plain, have a channel to the slot? */
static bool key_allowed(const box *b, unsigned number, const uint8_t *key)
{
    const state_key *lease = &b->lease_key[number - 1];
    if (!key)
        return keys_plain(b->keys);
    return b->managed ? lease->known && !memcmp(lease->key, key, sizeof lease->key) /* M-84 */
                      : keys_allow(b->keys, key, KEYS_FABRIC, (uint16_t)number);
}

sealing_known slots_known(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    const shard *sh = user;
    const box *b = sh->box;
    bool is_known = false;
    for (unsigned i = sh->index; i < b->count; i += b->shard_count)
        is_known |= b->lease_key[i].known && key_allowed(b, i + 1, key);
    return is_known ? SEALING_KNOWN : p2p_knows(sh, key) ? SEALING_PASSING : SEALING_STRANGER;
}

bool slots_allowed(void *user, const fabric_channel *c, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    const shard *sh = user;
    return p2p_is_link(c) ? p2p_allowed(sh, c, key) : key_allowed(sh->box, c->slot, key);
}

static uint8_t refuse_key(shard *sh, unsigned number, const uint8_t *key)
{
    char who[KEYS_TEXT_BYTES];
    sh->refused_key++;
    if (!sh->told_key && key)
        log_warning("slot %u: %s is not authorized for it; name the slot in slots= of its line in "
                    "--peers, or where a manager lends the slot, ask the manager",
                    number, keys_text(sh->box->keys, key, who));
    sh->told_key = true;
    return DXPU_REASON_NO_SLOT; /* a caller without a right to them learns no more */
}

/* Another key than this one's opened the lease of this epoch, which may be over since: the node,
   which any caller claims for itself, does not make it his. */
static bool has_other_owner(const slot *s, const dxpu_box_entry *e, uint64_t epoch,
                            const uint8_t *key)
{
    return key && s->owned && e->epoch_seen == epoch && memcmp(s->owner, key, sizeof s->owner) != 0;
}

/* DXPU_REASON_NONE: an open gets the slot, and *entry is the slot's then.  The table is as
   before. */
static uint8_t try_open(box *b, unsigned number, const dxpu_place *host, uint64_t epoch,
                        const uint8_t *key, dxpu_box_entry *entry)
{
    const slot *s = &b->slots[number - 1];
    dxpu_box_entry *e = &b->entries[number - 1], before = *e;
    int rc = has_other_owner(s, e, epoch, key)
                 ? DXPU_E_EPOCH
                 : dxpu_box_bind(&b->table, (uint16_t)number, host->node, host->slot, 0, epoch);
    *entry = *e;
    *e = before;
    if (rc != DXPU_OK)
        return bind_reason(rc);
    /* not known yet whether the lease that is being written stands: a repeated open is answered */
    return s->opening.channel ? DXPU_REASON_BUSY : DXPU_REASON_NONE;
}

/* Would this open get the slot?  Only an incarnation that comes up, which needs an answer to a
   random number, changes a lease. */
uint8_t slots_authorize(void *user, const dxpu_offer *offer, const uint8_t *key,
                        dxpu_channel_config *cfg)
{
    shard *sh = user;
    box *b = sh->box;
    uint16_t number = offer->destination.slot;
    dxpu_box_entry next;
    uint8_t reason;
    cfg->local.node = sh->node; /* W-29; the open may leave it to the address */
    if (p2p_is_offer(offer))
        return p2p_authorize(sh, offer, key);
    if (!dxpu_box_slot(&b->table, number) || slots_shard(b, number) != sh) {
        sh->refused_slot++;
        return DXPU_REASON_NO_SLOT;
    }
    if (!key_allowed(b, number, key))
        return refuse_key(sh, number, key);
    if (b->slots[number - 1].absent) {
        sh->refused_slot++;
        return DXPU_REASON_NO_SLOT;
    }
    reason = b->managed ? leases_admit(b, number, offer->source.node, offer->epoch)
                        : try_open(b, number, &offer->source, offer->epoch, key, &next);
    sh->refused_epoch += reason == DXPU_REASON_EPOCH;
    sh->refused_slot += reason == DXPU_REASON_NO_SLOT;
    return reason;
}

/* The key that the peer of a channel has shown; NULL with --plain. */
static const uint8_t *key_of(const fabric_channel *c)
{
    return c->session ? dxpu_sodium_peer_key(c->session) : NULL;
}

static void take_lease(box *b, const fabric_channel *c, const dxpu_box_entry *entry)
{
    slot *s = &b->slots[c->slot - 1];
    const uint8_t *key = key_of(c);
    b->entries[c->slot - 1] = *entry;
    s->owned = key != NULL;
    if (key)
        memcpy(s->owner, key, sizeof s->owner);
}

/* Make the lease of c the slot's.  DXPU_REASON_NONE, and c waits until it is on disk if it must be
   written; or why not (another came up meanwhile). */
static uint8_t bind_slot(box *b, fabric_channel *c)
{
    const dxpu_channel_config *cfg = &c->ch.cfg;
    slot *s = &b->slots[c->slot - 1];
    unsigned i = c->slot - 1u;
    dxpu_box_entry next;
    uint8_t reason;
    if (b->managed)
        return leases_admit(b, c->slot, cfg->remote.node, cfg->epoch);
    reason = try_open(b, c->slot, &cfg->remote, cfg->epoch, key_of(c), &next);
    if (reason != DXPU_REASON_NONE)
        return reason;
    next.channel = c->id;
    if (!b->state || next.epoch_seen == b->entries[i].epoch_seen) {
        take_lease(b, c, &next);
        return DXPU_REASON_NONE;
    }
    c->waits = true;
    s->opening.channel = c;
    s->opening.entry = next;
    state_want(b->state, &next, b->phase[i], b->medium[i], &b->lease_key[i]);
    return DXPU_REASON_NONE;
}

/* ==== 4  Life ================================================================================= */

static void say(const fabric_channel *c, const char *what, const char *why)
{
    char text[DXPU_UDP_TEXT_BYTES];
    log_info("slot %u: %s node %u at %s, epoch %llu%s%s", c->slot, what, c->ch.cfg.remote.node,
             dxpu_udp_print(fabric_peer(c), text), (unsigned long long)c->ch.cfg.epoch,
             why ? ": " : "", why ? why : "");
}

/* Nothing is left for whoever comes next (S-112). */
static void clean(slot *s)
{
    s->active = NULL;
    p2p_end(s);
    clear_queues(s);
    s->answers_head = s->answers_tail;
    s->limited_ns = DXPU_NEVER;
    guard_end(&s->guard);
    s->kind->reset(s->device);
}

void slots_end(slot *s, uint8_t reason)
{
    if (s->active)
        fabric_reset(&s->shard->fabric, s->active, reason);
    clean(s);
}

static void let_in(box *b, fabric_channel *c)
{
    slot *s = &b->slots[c->slot - 1];
    slots_end(s, DXPU_REASON_REPLACED); /* before the first TLP of the new one is looked at */
    if (s->absent) {                    /* since it was let to open */
        fabric_reset(&s->shard->fabric, c, DXPU_REASON_NO_SLOT);
        return;
    }
    if (guard_begin(&s->guard)) {
        say(c, "refused", "out of memory");
        fabric_reset(&s->shard->fabric, c, DXPU_REASON_BUSY);
        return;
    }
    s->active = c;
    s->incarnations++;
    declare(s);
    c->more = true; /* what came while it waited */
    fabric_stir_channel(&s->shard->fabric, c);
    manager_changed(b->manager, c->slot);
    say(c, "lent to", NULL);
}

void slots_up(void *user, fabric_channel *c, uint64_t now_ns)
{
    box *b = ((shard *)user)->box;
    uint8_t reason;
    if (p2p_is_link(c)) {
        p2p_up(user, c, now_ns);
        return;
    }
    reason = bind_slot(b, c);
    if (reason != DXPU_REASON_NONE) {
        say(c, "refused", dxpu_reason_text(reason));
        fabric_reset(&((shard *)user)->fabric, c, reason);
    } else if (!c->waits) {
        let_in(b, c);
    }
}

/* state_result, without a manager: the channel waited for it.  Meanwhile it may have closed,
   and what it brought is the device's; it may have failed, or its key may have lost the slot. */
static void opened(box *b, slot *s, bool kept)
{
    opening o = s->opening;
    fabric_channel *c = o.channel;
    s->opening.channel = NULL;
    c->waits = false;
    fabric_stir_channel(&s->shard->fabric, c);
    if (!kept) { /* as if it had not dialed: the next one with this epoch writes again */
        log_warning("slot %u: a lease that cannot be stored is not granted", c->slot);
        say(c, "refused", dxpu_reason_text(DXPU_REASON_NO_SLOT));
        fabric_reset(&s->shard->fabric, c, DXPU_REASON_NO_SLOT);
        return;
    }
    take_lease(b, c, &o.entry);
    if (dxpu_channel_status(&c->ch).state != DXPU_STATE_FAILED &&
        key_allowed(b, c->slot, key_of(c)))
        let_in(b, c);
    else
        slots_end(s, DXPU_REASON_REPLACED); /* an older lease has ended all the same */
}

static void written(void *user, unsigned number, bool kept)
{
    box *b = ((shard *)user)->box;
    fabric_stir(&((shard *)user)->fabric); /* the lease of any slot may have ended */
    if (b->managed)
        leases_written(b, number, kept);
    else
        opened(b, &b->slots[number - 1], kept);
}

void slots_written(shard *sh)
{
    if (sh->box->state)
        state_work(sh->box->state, sh->index);
}

void slots_down(void *user, fabric_channel *c, uint64_t now_ns)
{
    box *b = ((shard *)user)->box;
    slot *s = p2p_is_link(c) ? NULL : &b->slots[c->slot - 1];
    char end[FABRIC_END_BYTES], why[FABRIC_END_BYTES + 60];
    fabric_end_text(c, end);
    (void)now_ns;
    if (!s) {
        p2p_down(user, c);
        return;
    }
    if (c->up)
        fabric_paths_keep(&s->past, c);
    if (s->active != c) {
        if (c->up)
            say(c, "ended an earlier channel of", end);
        return;
    }
    s->last_error = dxpu_channel_status(&c->ch).error;
    s->last_reason = dxpu_channel_status(&c->ch).reason;
    clean(s);
    manager_changed(b->manager, c->slot);
    if (b->managed) { /* only the manager ends a lease */
        if (dxpu_channel_status(&c->ch).state == DXPU_STATE_CLOSED)
            say(c, "closed the channel of", dxpu_reason_text(s->last_reason));
        else
            say(c, "lost the channel of", end);
        return;
    }
    /* Only the host gives a lease back.  After silence the slot stays assigned: another with
       the same epoch could otherwise open it while the host still runs. */
    if (dxpu_channel_status(&c->ch).state == DXPU_STATE_CLOSED) {
        (void)dxpu_box_release(&b->table, c->slot);
        say(c, "given back by", dxpu_reason_text(dxpu_channel_status(&c->ch).reason));
    } else {
        snprintf(why, sizeof why, "%s; kept for it, until a host brings a higher epoch", end);
        say(c, "lost", why);
    }
}

/* FILE, or FILE.2 and so on for further slots; each of several with commas between them.  0, or -1:
   they are too long. */
static int files_of_slot(const char *files, unsigned index, char *names, size_t size)
{
    char number[16] = "";
    size_t at = 0;
    if (index)
        snprintf(number, sizeof number, ".%u", index + 1);
    for (;;) {
        size_t len = strcspn(files, ",");
        int put = snprintf(names + at, size - at, "%.*s%s%s", (int)len, files, number,
                           files[len] ? "," : "");
        if (put < 0 || (size_t)put >= size - at)
            return -1;
        if (!files[len])
            return 0;
        at += (size_t)put;
        files += len + 1;
    }
}

/* NULL: the slot is as those that no --slot names. */
static const slot_plan *plan_of(const box *b, unsigned index)
{
    return b->plans && b->plans->slot[index].kind ? &b->plans->slot[index] : NULL;
}

/* It is plugged in where function 0 of a device was, and of that one others are still lent. */
static bool replaces_function(const box *b, unsigned index, const slot_plan *plan)
{
    const slot_plan *first = plan_of(b, index);
    return first && first != plan && first->set.functions && !first->of;
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* It is the very one that the box was started with there, and is so again at the next start. */
static bool is_function_again(const slot_plan *first, const slot_plan *plan)
{
    const device_settings *was = &first->set, *set = &plan->set;
    return plan->kind == first->kind && was->file && is_same_text(was->file, set->file) &&
           is_same_text(was->serial, set->serial) && !set->subsystem && !set->function_count &&
           !set->virtuals;
}

/* Who the device is.  A name that was given to several slots is the first one's; others have their
   number, too. */
static void identify_slot(const box *b, unsigned index, const slot_plan *plan, device_settings *own,
                          char *serial, size_t size)
{
    unsigned shared = plan ? 0 : index;               /* of a name that several slots have */
    unsigned device = own->subsystem ? 0 : index + 1; /* all slots of a subsystem are one drive */
    if (own->serial) {
        snprintf(serial, size, shared ? "%s-%u" : "%s", own->serial, shared + 1);
        own->identity = identity_of_name(serial);
    } else if (b->managed) {
        own->identity = identity_of_proxy(b->identity, device);
    } else {
        own->identity = identity_of_slot(b->node, device, own->file, b->address);
    }
    if (own->subsystem) {
        own->controller = index + 1;
        own->identity = block_store_mix(own->identity ^ identity_of_name(own->subsystem));
    }
    if (replaces_function(b, index, plan)) {
        own->functions = is_function_again(plan_of(b, index), plan);
        if (!own->functions)
            own->identity = block_store_mix(own->identity);
    }
    if (!own->serial)
        snprintf(serial, size, "DXPU%016llx", (unsigned long long)own->identity);
    own->serial = serial;
}

/* The same of a further function: its device is that of a slot before, which is there. */
static void identify_function(const slot *device, device_settings *own, char *serial, size_t size)
{
    own->identity = device->identity;
    snprintf(serial, size, "%s", device->serial);
    own->serial = serial;
}

/* By the disks' own names where they have any: another start may find them in other slots.  What an
   earlier program has kept by the slot is theirs. */
static int layout_of_disks(const char *state, unsigned number, uint64_t disks, char *path,
                           size_t size)
{
    char by_slot[4096];
    int put = snprintf(by_slot, sizeof by_slot, "%s.slot%u.layout", state, number);
    if (!disks || put >= (int)sizeof by_slot)
        return snprintf(path, size, "%s", by_slot);
    put = snprintf(path, size, "%s.disk-%016llx.layout", state, (unsigned long long)disks);
    if (access(path, F_OK) && errno == ENOENT)
        (void)durable_rename(by_slot, path);
    return put;
}

/* Beside a device there is no place for a file; beside --state there is. */
static void place_layout(const box *b, unsigned index, device_settings *own, char *path,
                         size_t size)
{
    char first[4096];
    struct stat st;
    int put = snprintf(first, sizeof first, "%.*s", (int)strcspn(own->file, ","), own->file);
    if (!b->state_file || put >= (int)sizeof first || stat(first, &st) || !S_ISBLK(st.st_mode))
        return;
    put = layout_of_disks(b->state_file, index + 1, block_store_disks(own->file), path, size);
    if (put < (int)size)
        own->layout = path;
}

static void on_ready(evutil_socket_t fd, short what, void *user)
{
    slot *s = user;
    (void)fd;
    (void)what;
    if (s->active)
        fabric_stir_channel(&s->shard->fabric, s->active);
    s->kind->tick(s->device, dxpu_udp_now_ns());
}

/* A device with a descriptor is woken by it.  0, or -1 after a message. */
static int watch_device(slot *s)
{
    if (!s->kind->descriptor)
        return 0;
    s->ready = event_new(dxpu_udp_base(s->shard->fabric.udp), s->kind->descriptor(s->device),
                         EV_READ | EV_PERSIST, on_ready, s);
    if (s->ready && !event_add(s->ready, NULL))
        return 0;
    log_error("out of memory");
    return -1;
}

/* Disks are waited for by the slot's lane.  0, or -1: out of memory. */
static int open_lane(box *b, slot *s)
{
    if (b->pool)
        s->lane = jobs_lane_new(b->pool, s->shard->wake, &s->jobs);
    if (s->lane)
        jobs_lane_count(s->lane, &s->ended, &s->shard->ended);
    return b->pool && !s->lane ? -1 : 0;
}

/* For its users: with which slots it shares its device. */
static void sharing_attributes(const slot_plan *plan, const device_settings *own,
                               char out[DEVICE_ATTRIBUTES_BYTES])
{
    out[0] = '\0';
    if (own->subsystem)
        snprintf(out, DEVICE_ATTRIBUTES_BYTES, "subsystem=%s", own->subsystem);
    else if (plan && plan->of)
        snprintf(out, DEVICE_ATTRIBUTES_BYTES, "function=%u,of=%u", plan->function,
                 (unsigned)plan->of);
    else if (own->functions)
        snprintf(out, DEVICE_ATTRIBUTES_BYTES, "function=0");
}

int slots_prepare(const box *b, unsigned index, const slot_plan *plan, const device_kind *kind,
                  const device_settings *set, slot_device *out)
{
    device_settings *own = &out->set;
    unsigned shared = plan ? 0 : index; /* of a name that several slots have */
    const char *model;
    *own = plan ? plan->set : *set;
    out->device = NULL;
    out->kind = plan ? plan->kind : kind;
    if (own->function_count > 1 || own->virtuals)
        out->kind = &nvme_functions_kind;
    if (own->file) { /* two devices never share their blocks */
        if (files_of_slot(own->file, shared, out->files, sizeof out->files)) {
            log_error("--file: the names are too long");
            return -1;
        }
        own->file = out->files;
        place_layout(b, index, own, out->layout, sizeof out->layout);
    }
    if (own->tap)
        own->tap = plan_tap(own->tap, shared, out->tap);
    if (plan && plan->of)
        identify_function(&b->slots[plan->of - 1], own, out->serial, sizeof out->serial);
    else
        identify_slot(b, index, plan, own, out->serial, sizeof out->serial);
    sharing_attributes(plan, own, out->sharing);
    model = plan && plan->model ? plan->model
            : b->model          ? b->model
            : out->kind->model  ? out->kind->model
                                : out->kind->name;
    snprintf(out->model, sizeof out->model, "%s", model);
    snprintf(out->attributes, sizeof out->attributes, "%s", plan ? plan->attributes : "");
    own->timeout_ns = DXPU_NEVER; /* S-110: the channel's hold ends what is never answered */
    return 0;
}

void slots_create(slot *s, slot_device *d)
{
    d->set.jobs = s->lane ? &s->jobs : NULL;
    d->device = d->kind->create(&d->set, &s->port);
}

/* Its device's, and those that the operator gave the slot. */
static int set_attributes(slot *s, const slot_device *d)
{
    char all[DEVICE_ATTRIBUTES_BYTES] = "";
    if (d->kind->attributes)
        d->kind->attributes(d->device, all);
    if (!plan_attributes(all, d->sharing) || !plan_attributes(all, d->attributes)) {
        log_error("slot %u: with those of its device, its attributes have more than %d characters",
                  slots_number(s), DEVICE_ATTRIBUTES_BYTES - 1);
        return -1;
    }
    memcpy(s->attributes, all, sizeof all);
    return 0;
}

int slots_install(slot *s, slot_device *d)
{
    const box *b = s->shard->box;
    const device_kind *kind_before = s->kind;
    void *before = s->device;
    s->kind = d->kind;
    s->device = d->device;
    if (set_attributes(s, d) || watch_device(s)) {
        s->kind = kind_before;
        s->device = before;
        return -1;
    }
    memcpy(s->serial, d->serial, sizeof s->serial);
    s->identity = d->set.identity;
    if (s->kind != &no_device_kind) /* one that is pulled out goes on to count */
        snprintf(s->subsystem, sizeof s->subsystem, "%s", d->set.subsystem ? d->set.subsystem : "");
    memcpy(s->model, d->model, sizeof s->model);
    s->unfit = s->kind->fits && !s->kind->fits(s->device);
    /* a manager's box keeps the slot, so that it can be wiped */
    b->entries[s - b->slots].valid = s->kind != &no_device_kind && (b->managed || !s->unfit);
    if (s->kind == &no_device_kind)
        s->absent = s->missing = true;
    return 0;
}

/* The model's, or, in a process of its own, that of the kind that lends it.  0, or -1 after a
   message. */
static int open_device(box *b, unsigned index, slot_device *d)
{
    slot *s = &b->slots[index];
    isolated apart = { .fits = true };
    const device_kind *model = d->kind;
    bool isolates = b->starter && plan_is_model(model);
    s->ids = (device_ids){ model->vendor, model->device, model->class_code };
    if (isolates) {
        if (isolate(b->starter, index + 1, model, b->disk_threads, &d->set, &apart))
            return -1;
        d->kind = &vfio_user_kind;
    }
    s->keeps = model->wipe && !d->set.stateless;
    s->waits = evtimer_new(dxpu_udp_base(s->shard->fabric.udp), on_missing, s);
    if (!s->waits || open_lane(b, s))
        return -1;
    if (b->renderers) {
        d->set.renderer = b->renderers[index];
        b->renderers[index] = 0;
    }
    if (b->connectors) {
        d->set.connector = b->connectors[index];
        b->connectors[index] = 0;
    }
    slots_create(s, d);
    s->kind = d->kind;
    s->device = d->device; /* slots_close() destroys it */
    if (!d->device || slots_install(s, d))
        return -1;
    if (!apart.fits) {
        s->unfit = true;
        b->entries[index].valid = b->managed;
    }
    return 0;
}

static int open_slot(box *b, unsigned index, const device_kind *kind, const device_settings *set)
{
    slot *s = &b->slots[index];
    slot_device d;
    s->shard = slots_shard(b, index + 1);
    s->answers = b->notices + (size_t)index * SLOT_ANSWERS;
    s->indirect = b->managed; /* until its manager says which are not (M-180) */
    if (slots_prepare(b, index, plan_of(b, index), kind, set, &d))
        return -1;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        s->queues[cls].tail = &s->queues[cls].head;
    s->port.user = s;
    s->port.emit = device_emits;
    s->port.waiting = device_waits;
    s->port.fault = leases_fault;
    s->port.present = device_present;
    s->port.wake = device_wakes;
    s->limited_ns = DXPU_NEVER;
    limit_init(&s->limit, b->limit_tlps, b->limit_bytes, dxpu_udp_now_ns());
    guard_init(&s->guard, &b->allowed);
    return open_device(b, index, &d);
}

/* Where the server of a slot's device is to listen; NULL: it has none. */
static const char *socket_of(const box *b, unsigned index, char path[STARTER_PATH_BYTES])
{
    const slot_plan *plan = plan_of(b, index);
    if (plan && plan->kind == &vfio_user_kind)
        return plan->set.socket;
    if (!b->starter)
        return NULL;
    starter_socket(index + 1, path);
    return path;
}

int slots_connectors(box *b)
{
    char path[STARTER_PATH_BYTES];
    b->connectors = calloc(b->count, sizeof *b->connectors);
    if (!b->connectors) {
        log_error("out of memory");
        return PROGRAM_SYSTEM;
    }
    for (unsigned i = 0; i < b->count; i++) {
        const char *to = socket_of(b, i, path);
        if (to && (b->connectors[i] = connector_start(to)) < 0) {
            log_error("%s: cannot start a process that connects: %s", to, strerror(errno));
            return PROGRAM_SYSTEM;
        }
    }
    return 0;
}

static bool open_reserves(box *b)
{
    bool all = true;
    for (unsigned i = 0; i < b->shard_count; i++) {
        b->shards[i].reserve.memory = malloc(RESERVE_BYTES);
        all &= b->shards[i].reserve.memory != NULL;
    }
    return all;
}

/* Writes for a loop are jobs of its own.  0, or -1 without memory. */
static int serve_state(box *b, shard *sh)
{
    if (b->pool)
        sh->lane = jobs_lane_new(b->pool, sh->wake, &sh->writes);
    else
        jobs_here(&sh->written, &sh->writes);
    if (b->pool && !sh->lane)
        return -1;
    if (sh->lane)
        jobs_lane_count(sh->lane, &sh->ended, NULL);
    state_serve(b->state, sh->index, &sh->writes, written, sh);
    return 0;
}

/* 0, or an exit status after a message. */
static int open_state(box *b)
{
    int rc = 0;
    b->state = state_open(b->state_file, b->shard_count, &b->table, b->managed ? b->phase : NULL,
                          b->medium, b->lease_key, &rc);
    if (!b->state)
        return rc;
    for (unsigned i = 0; i < b->shard_count; i++) {
        if (serve_state(b, &b->shards[i])) {
            log_error("out of memory");
            return PROGRAM_SYSTEM;
        }
    }
    if (b->managed)
        leases_look(b);
    rc = state_begin(b->state);
    if (!rc && b->managed)
        leases_begin(b);
    return rc;
}

/* They share what no lock is around. */
static bool subsystems_in_one_loop(const box *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        const slot_plan *p = plan_of(b, i);
        for (unsigned k = 0; p && p->set.subsystem && k < i; k++) {
            const slot_plan *q = plan_of(b, k);
            if (!q || !q->set.subsystem || strcmp(p->set.subsystem, q->set.subsystem) != 0 ||
                (i - k) % b->shard_count == 0)
                continue;
            log_error("--cores %u: slots %u and %u of subsystem %s are in different threads; give "
                      "it slots that are a multiple of %u apart",
                      b->shard_count, k + 1, i + 1, p->set.subsystem, b->shard_count);
            return false;
        }
    }
    return true;
}

int slots_open(box *b, const device_kind *kind, const device_settings *s)
{
    unsigned count = b->count;
    b->slots = calloc(count, sizeof *b->slots);
    b->notices = calloc((size_t)count * SLOT_ANSWERS, sizeof *b->notices);
    b->entries = calloc(count, sizeof *b->entries);
    b->phase = calloc(count, sizeof *b->phase);
    b->medium = calloc(count, sizeof *b->medium);
    b->lease_key = calloc(count, sizeof *b->lease_key);
    if (!b->slots || !b->notices || !b->entries || !b->phase || !b->medium || !b->lease_key ||
        dxpu_box_init(&b->table, b->entries, count) != DXPU_OK) {
        log_error("out of memory for %u slots", count);
        return PROGRAM_SYSTEM;
    }
    if (!open_reserves(b) || (b->disk_threads && !(b->pool = jobs_pool_new(b->disk_threads)))) {
        log_error("out of memory");
        return PROGRAM_SYSTEM;
    }
    if (!subsystems_in_one_loop(b))
        return PROGRAM_USAGE;
    dxpu_udp_print(dxpu_udp_local(b->shards[0].fabric.udp, 0), b->address);
    for (unsigned i = 0; i < count; i++) {
        if (open_slot(b, i, kind, s)) {
            log_error(
                "no device for slot %u; if no other message says why, lower --memory or --slots",
                i + 1);
            return PROGRAM_SYSTEM;
        }
    }
    return b->state_file ? open_state(b) : 0;
}

void slots_close(box *b)
{
    state_close(b->state);
    b->state = NULL;
    for (unsigned i = 0; b->shards && i < b->shard_count; i++) {
        jobs_lane_free(b->shards[i].lane);
        b->shards[i].lane = NULL;
    }
    for (unsigned i = 0; b->slots && i < b->count; i++) {
        if (b->slots[i].ready)
            event_free(b->slots[i].ready);
        if (b->slots[i].waits)
            event_free(b->slots[i].waits);
        plug_close(&b->slots[i]);
        if (b->slots[i].device) {
            clear_queues(&b->slots[i]);
            b->slots[i].kind->destroy(b->slots[i].device);
        }
        jobs_lane_free(b->slots[i].lane);
        p2p_free(&b->slots[i]);
        guard_end(&b->slots[i].guard);
    }
    for (unsigned i = 0; b->shards && i < b->shard_count; i++)
        free(b->shards[i].reserve.memory);
    jobs_pool_free(b->pool);
    b->pool = NULL;
    free(b->slots);
    free(b->notices);
    free(b->entries);
    free(b->phase);
    free(b->medium);
    free(b->lease_key);
    free(b->connectors);
    free(b->renderers);
}

/* ==== 5  Screens ============================================================================== */

unsigned slots_picture(const box *b, unsigned number, uint8_t *rgb, unsigned row, unsigned rows,
                       unsigned *width, unsigned *height)
{
    const slot *s = &b->slots[number - 1];
    if (!s->kind->picture)
        return DXPU_CONTROL_CODE_NO_SCREEN;
    return s->kind->picture(s->device, rgb, row, rows, width, height) ? DXPU_CONTROL_CODE_NONE
                                                                      : DXPU_CONTROL_CODE_DARK;
}

/* ==== 6  Statistics =========================================================================== */

static void report_guard(const dxpu_guard *g, report *r)
{
    report_number(r, "windows", g->windows.count);
    report_number(r, "windows_no_room", g->no_room);
    report_number(r, "messages_ended", g->ended);
    report_open(r, "refused");
    for (unsigned i = 0; i < DXPU_GUARD_REASON_COUNT; i++)
        report_number(r, dxpu_guard_name(i), g->refused[i]);
    report_close(r);
}

void slots_report(const box *b, unsigned number, report *r)
{
    const slot *s = &b->slots[number - 1];
    char name[16];
    if (!s->device) /* it could not be made */
        return;
    snprintf(name, sizeof name, "slot_%u", number);
    report_open(r, name);
    report_text(r, "device", s->kind->name);
    report_number(r, "up", s->active != NULL);
    report_number(r, "epoch_seen", b->entries[number - 1].epoch_seen);
    report_number(r, "posted", s->taken[DXPU_POSTED]);
    report_number(r, "nonposted", s->taken[DXPU_NONPOSTED]);
    report_number(r, "completions", s->taken[DXPU_COMPLETION]);
    report_number(r, "malformed", s->malformed);
    report_number(r, "emitted", s->emitted);
    report_number(r, "waited", s->waited);
    report_number(r, "reserved", s->reserved);
    report_number(r, "dropped", s->dropped);
    report_guard(&s->guard, r);
    p2p_report(s, r);
    fabric_report_paths(&s->past, s->active, r);
    report_open(r, s->kind->name);
    s->kind->report(s->device, r);
    report_close(r);
    report_close(r);
}

uint8_t slots_state(const slot *s)
{
    const box *b = s->shard->box;
    size_t i = (size_t)(s - b->slots);
    if (s->active)
        return DXPU_CONTROL_SLOT_UP;
    return b->entries[i].used ? DXPU_CONTROL_SLOT_HELD : b->phase[i];
}

static bool is_any(const dxpu_udp_address *a)
{
    return a->u.any.sa_family == AF_INET ? a->u.v4.sin_addr.s_addr == htonl(INADDR_ANY)
                                         : IN6_IS_ADDR_UNSPECIFIED(&a->u.v6.sin6_addr);
}

/* Where it listens, and instead of "everywhere" where the manager sees it. */
static unsigned own_paths(const box *b, const dxpu_udp_address *here, dxpu_udp_address *out)
{
    unsigned count = 0;
    const dxpu_udp *udp = b->shards[0].fabric.udp;
    for (unsigned i = 0; i < dxpu_udp_sockets(udp); i++) {
        dxpu_udp_address *a = &out[count];
        *a = *dxpu_udp_local(udp, i);
        if (!is_any(a)) {
            count++;
        } else if (a->u.any.sa_family == here->u.any.sa_family) {
            if (a->u.any.sa_family == AF_INET)
                a->u.v4.sin_addr = here->u.v4.sin_addr;
            else
                a->u.v6.sin6_addr = here->u.v6.sin6_addr;
            count++;
        }
    }
    return count;
}

unsigned slots_paths(void *user, const dxpu_udp_address *here,
                     dxpu_control_address out[DXPU_CONTROL_PATHS_MAX])
{
    const box *b = user;
    dxpu_udp_address own[DXPU_PATHS_MAX];
    const dxpu_udp_address *from = b->advertised_count ? b->advertised : own;
    unsigned count = b->advertised_count ? b->advertised_count : own_paths(b, here, own);
    for (unsigned i = 0; i < count; i++)
        control_address_from(&from[i], &out[i]);
    if (!count)
        log_error("no address to give to hosts; name some with --advertise");
    return count;
}

/* The port comes first where there are several: whoever attaches by hand has to name it. */
static void note(const slot *s, char *out, size_t size)
{
    const box *b = s->shard->box;
    char paths[FABRIC_PATHS_TEXT_BYTES] = "", address[DXPU_UDP_TEXT_BYTES], port[12] = "";
    if (dxpu_guard_refused(&s->guard)) /* goes before what the status says of paths */
        snprintf(paths, sizeof paths, "%llu TLPs of the device refused",
                 (unsigned long long)dxpu_guard_refused(&s->guard));
    else if (s->active)
        fabric_paths_text(s->active, paths);
    if (b->shard_count > 1) {
        dxpu_udp_print(dxpu_udp_local(s->shard->fabric.udp, 0), address);
        snprintf(port, sizeof port, "port %s", strrchr(address, ':') + 1);
    }
    snprintf(out, size, "%s%s%.48s", port, *port && *paths ? ", " : "", paths);
}

void slots_describe(const box *b, unsigned number, dxpu_control_slot *out)
{
    const slot *s = &b->slots[number - 1];
    const dxpu_box_entry *e = &b->entries[number - 1];
    out->state = leases_state(b, number);
    out->error = (int16_t)s->last_error;
    out->reason = s->last_reason;
    out->epoch_seen = e->epoch_seen;
    out->incarnations = s->incarnations;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        out->to_device += s->taken[cls];
    out->from_device = s->emitted;
    out->dropped = s->dropped;
    snprintf(out->device, sizeof out->device, "%s", s->kind->name);
    if (e->used) {
        out->epoch = e->epoch;
        out->peer_node = e->host_node;
        out->peer_slot = e->host_slot;
    }
    if (s->active)
        control_address_from(fabric_peer(s->active), &out->peer);
    note(s, out->note, sizeof out->note);
}
