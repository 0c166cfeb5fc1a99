/* attachment.c - see attachment.h
   SPDX-License-Identifier: MIT */
#include "attachment.h"
#include "control.h"
#include "log.h"
#include "refusal.h"

enum { RETRY_NS = 100000000 };

enum { RECORD_TURN = 256 };

int attachment_init(attachment *a, unsigned number, uint32_t node, fabric *f, crossing *cross,
                    const uint8_t *secret)
{
    int rc = 0;
    memset(a, 0, sizeof *a);
    a->number = number;
    a->node = node;
    a->fabric = f;
    a->cross = cross;
    a->secret = secret;
    a->dial_ns = DXPU_NEVER;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        rc |= queue_init(&a->down, cls, CROSSING_TLPS, 16 + 512);
    return rc;
}

void attachment_free(attachment *a)
{
    queue_free(&a->down);
}

/* ==== The channel as the slot's line ========================================================== */

static void put(attachment *a, unsigned kind, unsigned arg, const void *payload, size_t bytes)
{
    const crossing_record r = {
        (uint16_t)bytes, (uint8_t)kind, (uint8_t)arg, a->number, a->life, 0
    };
    (void)crossing_put(a->cross, &r, payload); /* a keeper that reads nothing is gone, or will be */
}

static void drop_first(attachment *a, unsigned cls)
{
    queue_pop(&a->down, cls);
    crossing_return(a->cross, a->number, cls);
}

static void drop_event(attachment *a)
{
    queue_pop_event(&a->down);
    crossing_return(a->cross, a->number, CROSSING_EVENTS);
}

/* The channel never takes this request: its keeper is answered. */
static void refuse(attachment *a, dxpu_bytes req)
{
    uint8_t bytes[REFUSAL_BYTES];
    dxpu_bytes cpl = refusal_encode(req, DXPU_CPL_UR, bytes);
    if (cpl.len && crossing_room(a->cross, a->number, DXPU_COMPLETION))
        put(a, CROSSING_TLP, DXPU_COMPLETION, cpl.ptr, cpl.len);
}

static void send_class(attachment *a, unsigned cls, uint64_t now)
{
    const queue_item *w;
    while ((w = queue_peek(&a->down, cls)) != NULL) {
        dxpu_bytes tlp = { w->bytes, w->len };
        int rc = dxpu_channel_submit(&a->channel->ch, tlp, now, 0);
        if (rc == DXPU_E_AGAIN || rc <= DXPU_E_CLOSED)
            return; /* no room yet, or attachment_down() comes */
        if (rc != DXPU_OK)
            refuse(a, tlp);
        drop_first(a, cls);
    }
}

static bool is_empty(const tlp_queue *q)
{
    return !queue_first(q, DXPU_POSTED) && !queue_first(q, DXPU_NONPOSTED) &&
           !queue_first(q, DXPU_COMPLETION) && !queue_peek_event(q);
}

static void send_waiting(attachment *a, uint64_t now)
{
    const dxpu_event *e;
    for (;;) {
        send_class(a, DXPU_POSTED, now);
        send_class(a, DXPU_COMPLETION, now);
        send_class(a, DXPU_NONPOSTED, now);
        e = queue_peek_event(&a->down);
        if (!e || dxpu_channel_submit_event(&a->channel->ch, e) != DXPU_OK)
            break;
        drop_event(a);
    }
    if (a->close_behind && is_empty(&a->down))
        (void)dxpu_channel_close(&a->channel->ch, a->close_reason); /* closing already: fine */
}

static bool take_class(attachment *a, unsigned cls, uint64_t now)
{
    dxpu_delivery d = dxpu_channel_peek(&a->channel->ch, cls);
    if (!d.tlp.len || !crossing_room(a->cross, a->number, cls))
        return false;
    put(a, CROSSING_TLP, cls, d.tlp.ptr, d.tlp.len);
    (void)dxpu_channel_take(&a->channel->ch, cls, now);
    return true;
}

bool attachment_work(attachment *a, uint64_t now)
{
    dxpu_event e;
    bool more = true;
    for (unsigned n = 0; more && n < RECORD_TURN; n++) {
        more = take_class(a, DXPU_POSTED, now);
        more |= take_class(a, DXPU_COMPLETION, now);
        more |= take_class(a, DXPU_NONPOSTED, now);
        if (dxpu_channel_peek_event(&a->channel->ch, &e)) /* of a box: none concerns the guest */
            more |= dxpu_channel_take_event(&a->channel->ch) == DXPU_OK;
    }
    send_waiting(a, now);
    return more;
}

static void hear_event(attachment *a, const crossing_record *r, const uint8_t *payload)
{
    dxpu_event e;
    if (r->bytes == sizeof e) {
        memcpy(&e, payload, sizeof e);
        if (queue_push_event(&a->down, &e))
            return;
    }
    crossing_return(a->cross, a->number, CROSSING_EVENTS);
}

static void hear_tlp(attachment *a, const crossing_record *r, const uint8_t *payload)
{
    dxpu_bytes tlp = { payload, r->bytes };
    if (queue_push(&a->down, r->arg, tlp, 0))
        return;
    crossing_return(a->cross, a->number, r->arg);
    if (dxpu_channel_status(&a->channel->ch).state == DXPU_STATE_FAILED)
        return; /* attachment_down() comes */
    log_error(
        "slot %u: out of memory for a TLP to its device; the channel ends; give the host more "
        "memory or fewer slots",
        a->number);
    fabric_reset(a->fabric, a->channel, DXPU_REASON_BUSY); /* the device would wait for ever */
}

/* What belongs to an earlier channel is done with. */
static void hear_late(attachment *a, const crossing_record *r)
{
    if (r->kind == CROSSING_TLP) {
        a->too_late++;
        crossing_return(a->cross, a->number, r->arg);
    } else if (r->kind == CROSSING_EVENT)
        crossing_return(a->cross, a->number, CROSSING_EVENTS);
}

void attachment_hear(attachment *a, const crossing_record *r, const uint8_t *payload)
{
    if (!a->up || r->life != a->life) {
        hear_late(a, r);
        return;
    }
    fabric_stir_channel(a->fabric, a->channel);
    switch (r->kind) {
    case CROSSING_TLP:
        hear_tlp(a, r, payload);
        break;
    case CROSSING_EVENT:
        hear_event(a, r, payload);
        break;
    case CROSSING_CLOSE:
        a->close_behind = true;
        a->close_reason = r->arg;
        break;
    default: /* CROSSING_RESET */
        fabric_reset(a->fabric, a->channel, r->arg);
        break;
    }
}

/* ==== Whose box it is ========================================================================= */

/* The box's key, as it is known now; false, said unless `again`, when it is not. */
static bool find_key(attachment *a, const dxpu_udp_path *path, unsigned paths, bool again)
{
    dxpu_udp_address box[DXPU_PATHS_MAX];
    char text[DXPU_UDP_TEXT_BYTES];
    const char *why;
    if (a->keyed || keys_plain(a->fabric->keys))
        return true;
    for (unsigned i = 0; i < paths; i++)
        box[i] = path[i].remote;
    why = keys_box(a->fabric->keys, box, paths, a->key);
    if (why && !again)
        log_error("slot %u: %s: %s", a->number, dxpu_udp_print(&box[0], text), why);
    return !why;
}

static void dial(attachment *a, uint64_t now)
{
    dxpu_channel_config cfg;
    a->dial_ns = DXPU_NEVER;
    if (!a->node) /* M-56: its manager has yet to give it one */
        return;
    if (!find_key(a, a->path, a->paths, a->attempts != 0)) { /* its key was taken off --peers */
        a->attempts++;
        a->last_error = DXPU_OK; /* the box was not tried (M-160) */
        a->dial_ns = now + RETRY_NS;
        return;
    }
    dxpu_channel_config_default(&cfg);
    cfg.epoch = a->epoch;
    cfg.local.node = a->node;
    cfg.local.slot = DXPU_SLOT_HOST;
    cfg.local.function = cfg.remote.function = DXPU_FUNCTION_ALL;
    cfg.remote.slot = a->box_slot;
    a->channel = fabric_dial(a->fabric, &cfg, keys_plain(a->fabric->keys) ? NULL : a->key, a->path,
                             a->paths, now);
    log_debug("slot %u: dialing slot %u of %s, attempt %u", a->number, a->box_slot, a->box,
              (unsigned)a->attempts + 1);
    if (!a->channel)
        a->dial_ns = now + RETRY_NS;
}

static void name_box(attachment *a)
{
    size_t at = 0;
    for (unsigned i = 0; i < a->paths; i++) {
        char text[DXPU_UDP_TEXT_BYTES];
        at += (size_t)snprintf(a->box + at, sizeof a->box - at, "%s%s", i ? "," : "",
                               dxpu_udp_print(&a->path[i].remote, text));
    }
}

/* Is it to be dialed, and by which key? */
static int check_keys(attachment *a, const dxpu_udp_path *path, unsigned paths, const uint8_t *key)
{
    for (unsigned i = 0; i < paths; i++) {
        if (!keys_allow_address(a->fabric->keys, &path[i].remote))
            return ATTACHMENT_PLAIN;
    }
    a->keyed = key != NULL;
    if (key)
        memcpy(a->key, key, sizeof a->key);
    return find_key(a, path, paths, false) ? 0 : ATTACHMENT_NO_KEY;
}

bool attachment_has_key(const attachment *a, const uint8_t *key)
{
    return a->keyed == (key != NULL) && (!key || !memcmp(a->key, key, sizeof a->key));
}

bool attachment_allows(const attachment *a, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    return a->keyed ? !memcmp(a->key, key, sizeof a->key)
                    : keys_allow(a->fabric->keys, key, KEYS_FABRIC, 0);
}

/* Guests have keys of their own, so what one keeper has is no other's either. */
static void seal_memory(const attachment *a, const attachment_memory *m, uint8_t mac[sizeof m->mac])
{
    uint8_t number[2];
    crypto_generichash_state s;
    dxpu_put_be16(number, a->number);
    (void)crypto_generichash_init(&s, a->secret, CROSSING_KEY_BYTES, sizeof m->mac);
    (void)crypto_generichash_update(&s, number, sizeof number);
    (void)crypto_generichash_update(&s, (const uint8_t *)m, offsetof(attachment_memory, mac));
    (void)crypto_generichash_final(&s, mac, sizeof m->mac);
}

/* The keeper is notified, and remembers. */
static void begin(attachment *a, const uint8_t *key)
{
    attachment_memory m;
    memset(&m, 0, sizeof m);
    m.epoch = a->epoch;
    m.paths = a->paths;
    m.box_slot = a->box_slot;
    m.keyed = key != NULL;
    if (key)
        memcpy(m.key, key, sizeof m.key);
    if (!keys_plain(a->fabric->keys))
        memcpy(m.box_key, a->key, sizeof m.box_key);
    for (unsigned i = 0; i < a->paths; i++)
        m.box[i] = a->path[i].remote;
    seal_memory(a, &m, m.mac);
    put(a, CROSSING_BEGIN, 0, &m, sizeof m);
}

int attachment_begin(attachment *a, const dxpu_udp_address *box, unsigned paths, uint16_t box_slot,
                     const uint8_t *key, uint64_t epoch, uint64_t now)
{
    dxpu_udp_path path[DXPU_PATHS_MAX];
    int rc;
    if (a->attached || a->channel)
        return a->attached ? ATTACHMENT_BUSY : ATTACHMENT_CLOSING;
    rc = fabric_route(a->fabric, box, paths, path);
    if (rc != DXPU_OK)
        return rc == DXPU_E_NONE ? ATTACHMENT_FAMILY : ATTACHMENT_ALIKE;
    rc = check_keys(a, path, paths, key);
    if (rc)
        return rc;
    a->attached = true;
    a->last_error = DXPU_OK;
    a->last_reason = DXPU_REASON_NONE;
    a->attempts = 0;
    memcpy(a->path, path, sizeof a->path);
    memset(&a->past, 0, sizeof a->past);
    a->paths = paths;
    name_box(a);
    a->box_slot = box_slot;
    a->epoch = epoch;
    begin(a, key);
    dial(a, now);
    return 0;
}

int attachment_recall(attachment *a, const uint8_t *payload, size_t bytes, uint64_t now)
{
    attachment_memory m;
    uint8_t mac[sizeof m.mac];
    if (bytes != sizeof m)
        return ATTACHMENT_FORGED;
    memcpy(&m, payload, sizeof m);
    seal_memory(a, &m, mac);
    if (sodium_memcmp(mac, m.mac, sizeof mac))
        return ATTACHMENT_FORGED; /* the keeper, which a guest may have taken over, made it up */
    if (m.paths < 1 || m.paths > DXPU_PATHS_MAX || !m.epoch || !m.box_slot)
        return ATTACHMENT_ALIKE;
    for (unsigned i = 0; i < m.paths; i++) {
        if (m.box[i].len > sizeof m.box[i].u)
            return ATTACHMENT_ALIKE;
    }
    return attachment_begin(a, m.box, m.paths, m.box_slot, m.keyed ? m.key : NULL, m.epoch, now);
}

bool attachment_is_at(const attachment *a, const dxpu_udp_address *box, unsigned paths)
{
    bool same = paths == a->paths;
    for (unsigned i = 0; same && i < paths; i++)
        same = dxpu_udp_same(&a->path[i].remote, &box[i]);
    return same;
}

/* A box without that key does not answer there, whoever named its address: M-32. */
static bool is_key(const attachment *a, const dxpu_udp_address *box, unsigned paths,
                   const uint8_t *key)
{
    uint8_t found[DXPU_NOISE_KEY_BYTES];
    if (keys_plain(a->fabric->keys))
        return true;
    if (!key && !keys_box(a->fabric->keys, box, paths, found))
        key = found;
    return key && !memcmp(a->key, key, sizeof a->key);
}

bool attachment_reaches(const attachment *a, const dxpu_udp_address *box, unsigned paths,
                        const uint8_t *key)
{
    if (!is_key(a, box, paths, key))
        return false;
    for (unsigned i = 0; i < a->paths; i++) {
        for (unsigned j = 0; j < paths; j++) {
            if (dxpu_udp_same(&a->path[i].remote, &box[j]))
                return true;
        }
    }
    return false;
}

/* ==== Life of the channel ===================================================================== */

void attachment_end(attachment *a, uint8_t reason)
{
    if (a->attached)
        put(a, CROSSING_FORGET, 0, NULL, 0);
    a->attached = false;
    a->dial_ns = DXPU_NEVER;
    if (!a->channel)
        return;
    a->close_reason = reason;
    a->closing_ns = dxpu_udp_now_ns() + a->fabric->base.hold_ms * 1000000ull;
    if (reason != DXPU_REASON_SHUTDOWN)
        a->closing_ns += a->leave_ms * 1000000ull;
    if (a->up)
        put(a, CROSSING_DETACH, reason, NULL, 0); /* it answers with CLOSE */
    else
        fabric_reset(a->fabric, a->channel, reason); /* nothing to deliver: not awaited (M-34) */
}

void attachment_up(attachment *a)
{
    char whose[DXPU_PATHS_MAX * DXPU_UDP_TEXT_BYTES + 64];
    int len = snprintf(whose, sizeof whose, "slot %u of %s, epoch %llu", a->box_slot, a->box,
                       (unsigned long long)a->epoch);
    a->up = true;
    a->close_behind = false;
    a->life++;
    a->incarnations++;
    a->attempts = 0;
    log_note("slot %u: slot %u of %s is attached, epoch %llu", a->number, a->box_slot, a->box,
             (unsigned long long)a->epoch);
    put(a, CROSSING_UP, 0, whose, (size_t)len);
}

/* The keeper does the containing. */
static void line_over(attachment *a)
{
    if (a->up)
        put(a, CROSSING_DOWN, 0, NULL, 0);
    a->up = false;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        while (queue_first(&a->down, cls)) {
            drop_first(a, cls);
            a->too_late++;
        }
    }
    while (queue_peek_event(&a->down))
        drop_event(a);
}

void attachment_down(attachment *a, uint64_t now)
{
    fabric_channel *c = a->channel;
    int error = dxpu_channel_status(&c->ch).error;
    uint8_t reason = dxpu_channel_status(&c->ch).reason;
    bool closed = dxpu_channel_status(&c->ch).state == DXPU_STATE_CLOSED;
    char end[FABRIC_END_BYTES];
    bool was_up = a->up;
    line_over(a);
    fabric_end_text(c, end);
    fabric_paths_keep(&a->past, c);
    a->channel = NULL;
    a->closing_ns = 0;
    a->last_error = error;
    a->last_reason = reason;
    a->attempts += !was_up;
    if (was_up)
        log_warning("slot %u (box %s, slot %u): channel %s: %s%s", a->number, a->box, a->box_slot,
                    closed ? "closed" : "lost", end,
                    !a->attached                     ? ""
                    : reason == DXPU_REASON_REPLACED ? "; to take it back, use a higher epoch"
                                                     : "; dialing again");
    else if (a->attached && a->attempts == 1 && error == DXPU_E_NO_ANSWER) /* S-92 */
        log_warning("slot %u: no answer from %s for %llu ms: %s", a->number, a->box,
                    (unsigned long long)a->fabric->base.hold_ms, keys_silence(a->fabric->keys));
    if (a->attached)
        a->dial_ns = now + RETRY_NS;
}

void attachment_tick(attachment *a, uint64_t now)
{
    if (a->closing_ns && now >= a->closing_ns) { /* a box that takes nothing would never be left */
        a->closing_ns = DXPU_NEVER;
        fabric_reset(a->fabric, a->channel, a->close_reason);
    }
    if (now >= a->dial_ns)
        dial(a, now);
}

uint64_t attachment_next_ns(const attachment *a)
{
    return a->closing_ns && a->closing_ns < a->dial_ns ? a->closing_ns : a->dial_ns;
}

uint8_t attachment_reached(const attachment *a)
{
    enum { ATTEMPTS = 2 }; /* the first may have been late itself */
    if (!a->attached)
        return DXPU_CONTROL_REACH_UNKNOWN;
    if (a->up)
        return DXPU_CONTROL_REACH_UP;
    if (a->attempts < ATTEMPTS || a->last_error == DXPU_OK)
        return DXPU_CONTROL_REACH_TRYING;
    return a->last_error == DXPU_E_RESET ? DXPU_CONTROL_REACH_REFUSED : DXPU_CONTROL_REACH_SILENT;
}

void attachment_report(const attachment *a, report *r)
{
    report_number(r, "attached", a->attached);
    report_number(r, "incarnations", a->incarnations);
    report_number(r, "too_late", a->too_late);
    fabric_report_paths(&a->past, a->channel, r);
}
