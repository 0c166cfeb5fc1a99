/* slot.c - see slot.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Whose request it was   2 Down   3 Up: to other slots   4 Up: memory requests
              5 Up: completions   6 Sizing the device's BARs   7 Life of the line */
#include "slot.h"
#include "log.h"
#include "dxpu_libevent.h"
#include "dxpu_guard.h"
#include "refusal.h"

#include <stdlib.h>

enum {
    TURN = 256,
    MARGIN_NS = 100000000,
    QUEUE_HIGH = SLOT_QUEUE / 2,
    REQUESTS_HIGH = SLOT_TAGS / 4,
    COMPLETIONS_MAX = 65, /* of the largest read: 64 bytes each */
    VENDOR_TYPE_0 = 0x7e, /* message codes */
    VENDOR_TYPE_1 = 0x7f
};

static void init_tags(guest_slot *s)
{
    (void)dxpu_tags_init(&s->tags, s->entries, SLOT_TAGS, 0, DXPU_TAGS_256,
                         s->hold_ns + MARGIN_NS); /* in range */
}

int slot_init(guest_slot *s, unsigned number, const slot_host *host, const slot_line *line,
              uint64_t hold_ns)
{
    memset(s, 0, sizeof *s);
    s->number = number;
    s->host = host;
    s->line = line;
    s->hold_ns = hold_ns;
    init_tags(s);
    return queue_init(&s->queue, DXPU_POSTED, SLOT_QUEUE, SLOT_TLP_BYTES) ||
                   queue_init(&s->queue, DXPU_NONPOSTED, SLOT_QUEUE, SLOT_TLP_BYTES) ||
                   queue_init(&s->queue, DXPU_COMPLETION, SLOT_OWED, SLOT_ROOM_BYTES)
               ? -1
               : 0;
}

void slot_free(guest_slot *s)
{
    msi_clear(&s->msi);
    grants_free(&s->grants);
    queue_free(&s->queue);
}

/* ==== 1  Whose request it was ================================================================= */

/* The `user` of requests that are not the guest's; the guest's have 0 in the upper byte. */
#define PROBE_REQUEST UINT64_MAX
#define PEER_REQUEST  ((uint64_t)0xfe << 56)
#define RETRY_REQUEST ((uint64_t)0xfd << 56) /* the guest's, made again */

static bool is_peer(uint64_t user)
{
    return user >> 56 == PEER_REQUEST >> 56;
}

/* A request of this slot's device to another one's, for which `completions` are reserved. */
static uint64_t peer_user(const guest_slot *s, uint32_t completions)
{
    return PEER_REQUEST | (uint64_t)s->number << 48 | (uint64_t)completions << 32 | s->incarnations;
}

static void send_waiting(guest_slot *s, uint64_t now);
static void count_refused(guest_slot *s, unsigned why);

static uint32_t owed_room(const guest_slot *s)
{
    uint32_t used = queue_used(&s->queue, DXPU_COMPLETION) + s->owed_reserved;
    return used < SLOT_OWED ? SLOT_OWED - used : 0;
}

/* A completion of another slot's device for the one that asked, if that is still there. */
static void peer_completed(guest_slot *s, dxpu_bytes cpl, uint64_t user, bool last)
{
    guest_slot *to = s->host->peer(s->host->user, user >> 48 & 0xff);
    s->peer_requests -= last;
    if (!to->up || to->incarnations != (uint32_t)user)
        return;
    if (last)
        to->owed_reserved -= user >> 32 & 0xffff;
    if (!queue_push(&to->queue, DXPU_COMPLETION, cpl, 0)) /* in smaller parts than are allowed */
        to->dropped++;
    send_waiting(to, dxpu_udp_now_ns());
}

/* The place of a request in `oversized`, or the count. */
static unsigned find_oversized(const guest_slot *s, uint16_t requester, uint16_t tag)
{
    unsigned i = 0;
    while (i < s->oversized_count && s->oversized[i] != ((uint32_t)requester << 16 | tag))
        i++;
    return i;
}

/* A request of another slot's device that gets no answer, or none as it must be, is answered
   here. */
static void peer_unanswered(guest_slot *s, const dxpu_request *r)
{
    uint8_t bytes[REFUSAL_BYTES];
    unsigned i = find_oversized(s, r->requester, r->tag);
    if (i < s->oversized_count)
        s->oversized[i] = s->oversized[--s->oversized_count];
    peer_completed(s, refusal_of_tracked(r, bytes), r->user, true);
}

static void completed(guest_slot *s, const dxpu_tlp *cpl, uint64_t user, bool last)
{
    if (user == PROBE_REQUEST)
        probe_answer(&s->probe, cpl);
    else if (user != RETRY_REQUEST || retry_done(&s->retry, &user))
        s->host->completion(s->host->user, cpl, user, last);
}

/* The root's part of CRS (V-10).  A device that is ready, or none of the guest's configuration
   requests: nothing special. */
static void guest_answered(guest_slot *s, const dxpu_tlp *cpl, uint64_t user, bool last,
                           uint64_t now)
{
    bool again = user == RETRY_REQUEST;
    uint8_t data[4];
    dxpu_tlp req, shown;
    msi_answered(&s->msi, cpl);
    if (s->leaving && !msi_leaving(&s->msi))
        slot_reach(s);
    if (cpl->status != DXPU_CPL_CRS || !retry_is_config(&s->retry, again, cpl->tag)) {
        completed(s, cpl, user, last);
        return;
    }
    retry_request_of(&s->retry, again, cpl->tag, &req);
    if (s->host->crs(s->host->user, s->number, &req, &shown, data))
        completed(s, &shown, user, last);
    else if (!retry_later(&s->retry, again, cpl->tag, now))
        completed(s, cpl, user, last);
}

static void unanswered(guest_slot *s, const dxpu_request *r)
{
    if (is_peer(r->user))
        peer_unanswered(s, r);
    else
        completed(s, NULL, r->user, true);
}

/* ==== 2  Down ================================================================================= */

/* 0 sent, 1 no room yet, -1 never. */
static int submit(guest_slot *s, const queue_item *w, uint64_t now)
{
    dxpu_bytes tlp = { w->bytes, w->len };
    int rc = s->line->submit(s->line->user, tlp, now, w->user);
    if (rc == DXPU_E_AGAIN || rc == DXPU_E_NO_TAG || rc <= DXPU_E_CLOSED)
        return 1; /* a channel that is over: slot_down() answers all that waits */
    if (rc != DXPU_OK)
        return -1;
    s->down_tlps++;
    return 0;
}

static void pop(guest_slot *s, unsigned cls)
{
    s->peers_waiting[cls] -= is_peer(queue_first(&s->queue, cls)->user);
    queue_pop(&s->queue, cls);
}

/* The first TLP of a class will not be sent; of the guest's own requests also the tag is free
   again.  It is out of the queue before anything is notified. */
static void give_up(guest_slot *s, unsigned cls)
{
    const queue_item *w = queue_first(&s->queue, cls);
    uint8_t head[DXPU_TLP_HEADER_MAX_BYTES * 2], bytes[REFUSAL_BYTES]; /* prefixes, header */
    dxpu_bytes tlp = { head, w->len < sizeof head ? w->len : sizeof head };
    uint64_t user = w->user;
    dxpu_tlp t;
    memcpy(head, w->bytes, tlp.len);
    pop(s, cls);
    s->dropped++;
    if (cls != DXPU_NONPOSTED)
        return;
    if (is_peer(user)) {
        peer_completed(s, refusal_encode(tlp, DXPU_CPL_UR, bytes), user, true);
        return;
    }
    if (dxpu_tlp_decode_header(tlp, &t) == DXPU_OK) /* always: it was encoded here */
        (void)dxpu_tags_drop(&s->tags, t.requester, t.tag);
    completed(s, NULL, user, true);
}

static void send_class(guest_slot *s, unsigned cls, uint64_t now)
{
    const queue_item *w;
    while ((w = queue_peek(&s->queue, cls)) != NULL) {
        int rc = submit(s, w, now);
        if (rc > 0)
            return;
        s->clogged = s->clogged && cls == DXPU_COMPLETION;
        if (rc < 0)
            give_up(s, cls);
        else
            pop(s, cls);
    }
}

/* All that waited is submitted: the channel may close behind it. */
static void close_behind(guest_slot *s)
{
    bool waits = queue_peek_event(&s->queue) != NULL;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        waits |= queue_first(&s->queue, cls) != NULL;
    if (!waits)
        s->line->close(s->line->user, s->close_reason); /* closing already: fine */
}

/* False: it waits for room.  A grant in the queue stands for all that there is to send by then. */
static bool submit_event(guest_slot *s, const dxpu_event *e)
{
    dxpu_event next;
    if (e->type != DXPU_EVENT_DMA_GRANT)
        return s->line->submit_event(s->line->user, e) == DXPU_OK;
    while (grants_next(&s->grants, &next)) {
        if (s->line->submit_event(s->line->user, &next) != DXPU_OK)
            return false;
        grants_sent(&s->grants, &next);
    }
    s->grants.waits = false;
    return true;
}

static void send_waiting(guest_slot *s, uint64_t now)
{
    const dxpu_event *e;
    while (s->up) {
        send_class(s, DXPU_POSTED, now);
        send_class(s, DXPU_COMPLETION, now);
        send_class(s, DXPU_NONPOSTED, now);
        e = queue_peek_event(&s->queue);
        if (!e || !submit_event(s, e))
            break; /* it waits for room, or for slot_down() */
        queue_pop_event(&s->queue);
    }
    if (s->up && s->closing)
        close_behind(s);
}

static void push_event(guest_slot *s, const dxpu_event *e)
{
    if (queue_push_event(&s->queue, e)) {
        send_waiting(s, dxpu_udp_now_ns());
        return;
    }
    /* a device that missed one would stay in reset, or out of it: let it begin again */
    log_warning("slot %u: its box does not read link events", s->number);
    s->dropped++;
    s->line->reset(s->line->user, DXPU_REASON_HOLD);
}

/* A message to the box, of the slot's proxy. */
static bool queue_message(guest_slot *s, const dxpu_tlp *t)
{
    uint8_t bytes[16 + DXPU_P2P_BYTES_MAX];
    dxpu_bytes tlp = { bytes, 0 };
    return dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len) == DXPU_OK &&
           queue_push(&s->queue, DXPU_POSTED, tlp, 0);
}

/* Ahead of the grants that it needs, and of all that the guest does next. */
static void list_neighbors(guest_slot *s)
{
    uint8_t payload[DXPU_P2P_BYTES_MAX];
    dxpu_p2p_list list;
    dxpu_tlp t;
    if (!s->p2p.offered)
        return;
    memset(&list, 0, sizeof list);
    s->host->neighbors(s->host->user, s->number, &list);
    dxpu_p2p_message(&list, payload, &t);
    if (t.payload.len == s->p2p.payload_bytes &&
        !memcmp(payload, s->p2p.payload, s->p2p.payload_bytes))
        return;
    s->p2p.payload_bytes = (uint32_t)t.payload.len;
    memcpy(s->p2p.payload, payload, t.payload.len);
    if (queue_message(s, &t)) {
        s->p2p.sent++;
        return;
    }
    log_warning("slot %u: its box does not read the list of slots that its device may reach",
                s->number);
    s->line->reset(s->line->user, DXPU_REASON_HOLD); /* it would go by an earlier one */
}

void slot_reach(guest_slot *s)
{
    dxpu_event e;
    if (!s->up || s->closing)
        return;
    list_neighbors(s);
    windows_clear(&s->grants.wanted);
    s->host->reach(s->host->user, s->number, &s->grants.wanted);
    msi_windows(&s->msi, &s->grants.wanted);
    s->leaving = msi_leaving(&s->msi);
    s->msi.moved = false;
    if (!grants_changed(&s->grants) || s->grants.waits)
        return;
    s->grants.waits = true;
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_DMA_GRANT;
    push_event(s, &e);
}

/* What the guest programs into the device, sent to the box before it gets there. */
static void program(guest_slot *s, const dxpu_tlp *t)
{
    msi_sent(&s->msi, t);
    if (s->msi.moved)
        slot_reach(s);
}

/* May this function send requests at all?  SLOT_NOT_REFUSED, or why not. */
static unsigned look_at(const guest_slot *s, const dxpu_tlp *t)
{
    switch (msi_master(&s->msi, t->requester)) {
    case MSI_STRANGER:
        return SLOT_REFUSED_requester;
    case MSI_NO_MASTER:
        return SLOT_REFUSED_master;
    default:
        return t->at == 1 || dxpu_guard_pasid(t) ? SLOT_REFUSED_translated : SLOT_NOT_REFUSED;
    }
}

/* Rules end here and, when the message or the event before it arrives, at the box (U-2, U-10). */
static void push_begin(guest_slot *s, bool offer)
{
    static const dxpu_push_offer all = { DXPU_PUSH_RULES, DXPU_PUSH_BYTES };
    uint8_t payload[DXPU_PUSH_OFFER_BYTES];
    dxpu_tlp t;
    if (!s->push.offered)
        return;
    dxpu_push_table_init(&s->push.table, &all);
    dxpu_push_offer_message(&all, payload, &t);
    if (offer && !queue_message(s, &t)) /* without memory; the box makes no rules then */
        s->push.no_room++;
}

/* As the device would read it (U-8): in requests that no boundary of 4 KB cuts. */
static bool push_allowed(guest_slot *s, const dxpu_push_rule *r, const dxpu_push_part *p)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.requester = r->requester;
    for (uint32_t at = 0, n; at < p->bytes; at += n) {
        n = dxpu_request_next(p->address + at, p->bytes - at, 4096);
        t.address = (p->address + at) & ~(uint64_t)3;
        t.header_dw = t.address >> 32 ? 4 : 3;
        (void)dxpu_be_from_range(p->address + at, n, &t.first_be, &t.last_be, &t.length_dw);
        if (look_at(s, &t) != SLOT_NOT_REFUSED || s->host->route(s->host->user, s->number, &t) ||
            !windows_allow(&s->grants.told, p->address + at, n, WINDOW_READ))
            return false;
    }
    return true;
}

/* Ahead of a write of the guest: what its box asked to have with it. */
static void push_ahead(guest_slot *s, const dxpu_tlp *write)
{
    uint8_t payload[DXPU_PUSH_PAYLOAD_MAX];
    dxpu_push_part part[DXPU_PUSH_PARTS];
    const dxpu_push_rule *r;
    dxpu_tlp t;
    unsigned parts = dxpu_push_table_match(&s->push.table, write, part, &r);
    if (parts && queue_used(&s->queue, DXPU_POSTED) >= QUEUE_HIGH - DXPU_PUSH_PARTS) {
        s->push.no_room++;
        return;
    }
    for (unsigned i = 0; i < parts; i++) {
        if (!push_allowed(s, r, &part[i]) ||
            !s->host->dma_read(s->host->user, part[i].address, payload + DXPU_PUSH_HEAD_BYTES,
                               part[i].bytes)) {
            s->push.refused++;
            return; /* what comes behind a gap the box would not use */
        }
        dxpu_push_data_message(r, part[i].address, part[i].bytes, payload, &t);
        if (!queue_message(s, &t)) {
            s->push.no_room++;
            return;
        }
        s->push.sent++;
        s->push.bytes += part[i].bytes;
    }
}

/* Give it a tag, if it needs one, and queue it.  False: it will not be sent (counted). */
static bool send_now(guest_slot *s, dxpu_tlp *t, uint64_t user, uint64_t now)
{
    uint8_t bytes[SLOT_TLP_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    unsigned cls = dxpu_tlp_class(t);
    bool good = s->up && !s->closing && queue_used(&s->queue, cls) < SLOT_QUEUE;
    int tag = good && cls == DXPU_NONPOSTED ? dxpu_tags_alloc(&s->tags) : 0;
    if (good && tag >= 0) {
        t->tag = (uint16_t)tag;
        good = dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len) == DXPU_OK;
        if (good && user != PROBE_REQUEST)
            program(s, t);
        if (good && cls == DXPU_POSTED)
            push_ahead(s, t);
        good = good && queue_push(&s->queue, cls, tlp, user);
        if (!good && cls == DXPU_NONPOSTED)
            (void)dxpu_tags_drop(&s->tags, t->requester, t->tag); /* allocated just above */
    }
    if (!good || tag < 0) {
        s->dropped++;
        return false;
    }
    if (user != PROBE_REQUEST && user != RETRY_REQUEST)
        retry_sent(&s->retry, t, user, now + s->hold_ns);
    send_waiting(s, now);
    return true;
}

bool slot_send(guest_slot *s, dxpu_tlp *t, uint64_t user, uint64_t now)
{
    if (!s->retry.count || !retry_takes(t))
        return send_now(s, t, user, now);
    if (s->up && retry_wait(&s->retry, t, user, now + s->hold_ns))
        return true;
    s->dropped++;
    return false;
}

/* Make again what the device was not ready for; answer what it will not be in time. */
static void retry_step(guest_slot *s, uint64_t now)
{
    dxpu_tlp t;
    uint64_t user;
    while (retry_expire(&s->retry, now, &user))
        s->host->completion(s->host->user, NULL, user, true);
    while (s->up && retry_next(&s->retry, now, &t)) {
        s->retries++;
        if (!send_now(s, &t, RETRY_REQUEST, now))
            completed(s, NULL, RETRY_REQUEST, true);
    }
}

void slot_event(guest_slot *s, uint8_t type, uint8_t flags)
{
    dxpu_event e;
    if (s->probe.running && type == DXPU_EVENT_HOT_RESET)
        s->probe.again = true;
    msi_reset(&s->msi); /* both events reset the device */
    retry_reset(&s->retry);
    memset(&e, 0, sizeof e);
    e.type = type;
    e.flags = flags;
    if (!s->up)
        return;
    push_begin(s, false);
    push_event(s, &e);
    slot_reach(s); /* no interrupt is programmed any more */
}

bool slot_congested(const guest_slot *s)
{
    uint32_t posted = queue_used(&s->queue, DXPU_POSTED) - s->peers_waiting[DXPU_POSTED];
    /* without a tag a configuration write would be lost, which is not awaited */
    uint32_t asked = queue_used(&s->queue, DXPU_NONPOSTED) + s->tags.in_flight;
    return posted >= QUEUE_HIGH || asked >= s->peer_requests + REQUESTS_HIGH;
}

/* ==== 3  Up: to other slots =================================================================== */

/* The other slot has room for one more of this one's device, and this one for the answer.  A write
   that is cut may be up to 32 of them: if it waited for so much room, small writes of a third slot
   would take it first. */
static bool peer_has_room(const guest_slot *to, unsigned cls)
{
    return to->peers_waiting[cls] < SLOT_QUEUE_PEERS &&
           (cls == DXPU_POSTED || to->peer_requests < SLOT_PEER_REQUESTS);
}

/* Without room, what waits does so for at most the hold time: the first of several that wait, and
   then none until the other slot has taken something. */
static bool peer_in_time(guest_slot *s, guest_slot *to, unsigned cls, uint64_t now)
{
    uint64_t *until = &s->stuck_ns[cls];
    if (!*until)
        *until = now + s->hold_ns;
    if (now >= *until)
        to->clogged = true;
    return !to->clogged;
}

enum { PEER_SENT, PEER_WAITS, PEER_REFUSED };

/* Largest payload that the other port may pass of this TLP; UINT32_MAX: it goes as it is. */
static uint32_t part_bytes(const guest_slot *s, unsigned number, const dxpu_tlp *t)
{
    uint32_t most = s->host->mps_bytes(s->host->user, number);
    return t->type == DXPU_TLP_MWR && t->payload.len > most ? most : UINT32_MAX;
}

static bool push_to_peer(guest_slot *to, unsigned cls, dxpu_bytes tlp, uint64_t user)
{
    bool pushed = queue_push(&to->queue, cls, tlp, user);
    to->peers_waiting[cls] += pushed;
    return pushed;
}

/* A write that is too large for the other port goes in parts, as a root complex may cut it (Base
   Spec 1.3.1): a device is not informed of a posted write that is refused, and nor is the guest. */
static bool push_parts(guest_slot *to, const dxpu_tlp *t, uint32_t most, uint64_t user)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    uint32_t end = (uint32_t)t->payload.len, n;
    for (uint32_t at = 0; at < end; at += n) {
        dxpu_bytes tlp = { bytes, 0 };
        dxpu_tlp part = *t;
        n = end - at < most ? end - at : most;
        part.address = t->address + at;
        part.length_dw = (uint16_t)(n / 4);
        part.payload.ptr = t->payload.ptr + at;
        part.payload.len = n;
        part.first_be = at ? 0xf : t->first_be;
        part.last_be = at + n < end ? 0xf : t->last_be;
        if (n == 4) { /* of one dword the only enables are the first */
            part.first_be = at ? part.last_be : part.first_be;
            part.last_be = 0;
        }
        if (dxpu_tlp_encode(&part, bytes, sizeof bytes, &tlp.len) != DXPU_OK ||
            !push_to_peer(to, DXPU_POSTED, tlp, user))
            return false;
    }
    return true;
}

/* A request of this slot's device to memory of another one's.  It goes as it is, but for a write
   that has to be cut: its completions carry its requester ID and tag, and the other channel's tags
   identify their owner. */
static int send_to_peer(guest_slot *s, unsigned number, const dxpu_tlp *t, dxpu_bytes bytes,
                        uint64_t now)
{
    guest_slot *to = s->host->peer(s->host->user, number);
    unsigned cls = dxpu_tlp_class(t);
    uint32_t headers = 0, data, offset, span, most = part_bytes(s, number, t);
    bool cut = most != UINT32_MAX, pushed;
    if (!to->up || to->closing)
        return PEER_REFUSED;
    if (!peer_has_room(to, cls))
        return peer_in_time(s, to, cls, now) ? PEER_WAITS : PEER_REFUSED;
    if (cls == DXPU_NONPOSTED) {
        dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &offset, &span);
        dxpu_tags_worst((uint8_t)((t->address + offset) & 0x7f), span, &headers, &data);
    }
    pushed = cut ? push_parts(to, t, most, peer_user(s, headers))
                 : push_to_peer(to, cls, bytes, peer_user(s, headers));
    if (!pushed)
        return PEER_REFUSED;
    if (cls == DXPU_NONPOSTED) {
        to->peer_requests++;
        s->owed_reserved += headers;
    }
    s->peer_tlps++;
    send_waiting(to, now);
    return PEER_SENT;
}

/* ==== 4  Up: memory requests ================================================================== */

/* A device would wait for ever for what is lost here: let it begin again. */
static void lose(guest_slot *s)
{
    s->dropped++;
    if (s->starved)
        return;
    s->starved = true;
    log_error("slot %u: out of memory for a completion to %s; the channel ends; give the host more "
              "memory or fewer slots",
              s->number, s->whose);
    s->line->reset(s->line->user, DXPU_REASON_BUSY);
}

static void owe(guest_slot *s, const dxpu_tlp *cpl)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    if (dxpu_tlp_encode(cpl, bytes, sizeof bytes, &tlp.len) != DXPU_OK ||
        !queue_push(&s->queue, DXPU_COMPLETION, tlp, 0))
        lose(s);
}

/* The box that limits a device to its lease is not trusted: it is checked here too. */
static void count_refused(guest_slot *s, unsigned why)
{
#define SLOT_SENTENCE(name, text) text,
    static const char *const texts[] = { SLOT_REFUSALS(SLOT_SENTENCE) };
    s->refused++;
    s->refused_why[why]++;
    if (!s->alarmed)
        log_warning("slot %u: refused a request of %s: it %s; further ones are only counted",
                    s->number, s->whose, texts[why]);
    s->alarmed = true;
}

static void refuse(guest_slot *s, dxpu_bytes req, uint8_t status, unsigned why)
{
    uint8_t bytes[REFUSAL_BYTES];
    dxpu_bytes tlp = refusal_encode(req, status, bytes);
    count_refused(s, why);
    if (tlp.len && !queue_push(&s->queue, DXPU_COMPLETION, tlp, 0))
        s->dropped++;
}

/* Read what the request wants, whole dwords around it zero where nothing is asked for. */
static bool fetch(guest_slot *s, const dxpu_tlp *req, uint8_t *data)
{
    uint32_t offset, span;
    dxpu_be_to_range(req->first_be, req->last_be, req->length_dw, &offset, &span);
    memset(data, 0, req->length_dw * 4u);
    return span == 0 ||
           s->host->dma_read(s->host->user, req->address + offset, data + offset, span);
}

static void answer_read(guest_slot *s, const dxpu_tlp *req, dxpu_bytes bytes)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
    dxpu_cpl_split split;
    dxpu_tlp cpl;
    uint64_t at;
    uint32_t mps = s->host->mps_bytes(s->host->user, s->number);
    if (req->at || !fetch(s, req, data) || dxpu_cpl_split_start(&split, req, 64, mps) != DXPU_OK) {
        refuse(s, bytes, DXPU_CPL_UR, req->at ? SLOT_REFUSED_translated : SLOT_REFUSED_memory);
        return;
    }
    dxpu_tlp_completion(req, 0, DXPU_CPL_SC, &cpl);
    while (dxpu_cpl_split_next(&split, &cpl, &at)) {
        cpl.payload.ptr = data + (at - req->address);
        cpl.payload.len = cpl.length_dw * 4u;
        owe(s, &cpl);
    }
    s->dma_reads++;
}

/* An interrupt message, delivered only when the guest asked for it.  False: it waits, for a lost
   one would leave a driver waiting. */
static bool take_msi(guest_slot *s, const dxpu_tlp *t)
{
    bool allowed = msi_allowed(&s->msi, t);
    if (allowed && !s->host->msi(s->host->user, t->address, dxpu_get_le32(t->payload.ptr)))
        return false;
    s->msis += allowed;
    s->msis_refused += !allowed;
    return true;
}

/* The enabled bytes of one dword, run by run. */
static bool store_dword(guest_slot *s, uint64_t address, const uint8_t *data, unsigned be)
{
    bool ok = true;
    for (unsigned i = 0; i < 4; i++) {
        if (be >> i & 1)
            ok = s->host->dma_write(s->host->user, address + i, data + i, 1) && ok;
    }
    return ok;
}

static bool store(guest_slot *s, const dxpu_tlp *t)
{
    uint32_t offset, span;
    if (t->length_dw <= 2 && (t->first_be != 0xf || (t->length_dw == 2 && t->last_be != 0xf)))
        return store_dword(s, t->address, t->payload.ptr, t->first_be) &&
               (t->length_dw == 1 ||
                store_dword(s, t->address + 4, t->payload.ptr + 4, t->last_be));
    dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &offset, &span);
    return s->host->dma_write(s->host->user, t->address + offset, t->payload.ptr + offset, span);
}

/* A write of the device.  False: it waits for another slot, or to interrupt the guest. */
static bool take_write(guest_slot *s, const dxpu_tlp *t, dxpu_bytes bytes, uint64_t now)
{
    int to = s->host->route(s->host->user, s->number, t), sent;
    unsigned why = to < 0 ? (unsigned)SLOT_REFUSED_route : look_at(s, t);
    if (to >= 0 && why != SLOT_NOT_REFUSED && msi_is(t)) {
        s->msis_refused++;
        return true;
    }
    if (to == 0 && why == SLOT_NOT_REFUSED) {
        if (!t->at && msi_is(t))
            return take_msi(s, t);
        why = t->at                   ? SLOT_REFUSED_translated
              : t->ep || !store(s, t) ? SLOT_REFUSED_memory
                                      : SLOT_NOT_REFUSED;
        s->dma_writes += why == SLOT_NOT_REFUSED;
    } else if (why == SLOT_NOT_REFUSED) {
        sent = send_to_peer(s, (unsigned)to, t, bytes, now);
        if (sent == PEER_WAITS)
            return false;
        why = sent == PEER_REFUSED ? SLOT_REFUSED_route : SLOT_NOT_REFUSED;
    }
    if (why != SLOT_NOT_REFUSED)
        count_refused(s, why);
    return true;
}

/* A vendor's message of Type 1, which a receiver that does not know it drops. */
static bool may_be_dropped(const dxpu_tlp *t)
{
    return t->message_code == VENDOR_TYPE_1 &&
           dxpu_message_action(t, DXPU_UPSTREAM) != DXPU_MSG_REFUSE;
}

/* A vendor's message to a function by its ID goes to the slot of that function.  False: it
   waits for that slot. */
static bool take_by_id(guest_slot *s, const dxpu_tlp *t, dxpu_bytes bytes, uint64_t now)
{
    int to = s->host->route(s->host->user, s->number, t);
    int sent = to > 0 ? send_to_peer(s, (unsigned)to, t, bytes, now) : PEER_REFUSED;
    if (sent == PEER_REFUSED && (to != 0 || !may_be_dropped(t)))
        count_refused(s, to ? (unsigned)SLOT_REFUSED_route : (unsigned)SLOT_REFUSED_kind);
    return sent != PEER_WAITS;
}

/* The device is not believed where it says what no BAR of its can hold (V-50). */
static void fit_values(guest_slot *s, unsigned malformed)
{
    unsigned refused = malformed;
    if (s->sized)
        refused += dxpu_vswitch_values_fit(&s->values, s->probe.sized);
    s->values_refused += refused;
    if (refused && s->values_refused == refused)
        log_warning("slot %u: left out ranges that %s declares: not in its BARs, or malformed; "
                    "further ones are only counted",
                    s->number, s->whose);
}

/* What its registers read once it is lost: the last declaration counts (V-49). */
static bool take_values(guest_slot *s, const dxpu_tlp *t)
{
    dxpu_vswitch_values v;
    int rc = dxpu_vswitch_values_decode(t, &v);
    if (rc > 0)
        s->values = v;
    if (rc)
        fit_values(s, rc < 0);
    return rc != 0;
}

/* What its box asks to have with the guest's doorbells. */
static bool take_rule(guest_slot *s, const dxpu_tlp *t)
{
    dxpu_push_rule r;
    int rc = s->push.offered ? dxpu_push_rule_decode(t, &r) : 0;
    if (rc < 0 || (rc > 0 && dxpu_push_table_set(&s->push.table, &r) != DXPU_OK))
        s->push.rules_refused++;
    return rc != 0;
}

static bool take_posted(guest_slot *s, const dxpu_tlp *t, dxpu_bytes bytes, uint64_t now)
{
    bool vendors = t->message_code == VENDOR_TYPE_0 || t->message_code == VENDOR_TYPE_1;
    if (t->type == DXPU_TLP_MWR)
        return take_write(s, t, bytes, now);
    if (vendors && t->message_routing == DXPU_MSG_BY_ID)
        return take_by_id(s, t, bytes, now);
    if (take_values(s, t) || take_rule(s, t))
        return true;
    if (t->type == DXPU_TLP_MSG && s->host->message(s->host->user, s->number, t))
        s->messages++;
    else if (!may_be_dropped(t))
        count_refused(s, SLOT_REFUSED_kind);
    return true;
}

static bool work_posted(guest_slot *s, uint64_t now)
{
    dxpu_delivery d = s->line->peek(s->line->user, DXPU_POSTED);
    dxpu_tlp t;
    if (!d.tlp.len)
        return false;
    if (dxpu_tlp_receive(d.tlp, &t) != DXPU_OK)
        count_refused(s, SLOT_REFUSED_kind);
    else if (!take_posted(s, &t, d.tlp, now))
        return false;
    s->stuck_ns[DXPU_POSTED] = 0;
    s->line->take(s->line->user, DXPU_POSTED, now);
    s->up_tlps++;
    return true;
}

/* False: it waits for another slot. */
static bool take_request(guest_slot *s, const dxpu_tlp *t, dxpu_bytes bytes, uint64_t now)
{
    int to = t->type == DXPU_TLP_MRD ? s->host->route(s->host->user, s->number, t) : -DXPU_CPL_UR;
    unsigned why = t->type != DXPU_TLP_MRD ? SLOT_REFUSED_kind
                   : to < 0                ? SLOT_REFUSED_route
                                           : look_at(s, t);
    int sent = to > 0 && why == SLOT_NOT_REFUSED ? send_to_peer(s, (unsigned)to, t, bytes, now)
                                                 : PEER_REFUSED;
    if (to == 0 && why == SLOT_NOT_REFUSED)
        answer_read(s, t, bytes);
    else if (sent == PEER_REFUSED)
        refuse(s, bytes, (uint8_t)(to < 0 ? -to : DXPU_CPL_UR),
               why != SLOT_NOT_REFUSED ? why : (unsigned)SLOT_REFUSED_route);
    return sent != PEER_WAITS;
}

static bool work_nonposted(guest_slot *s, uint64_t now)
{
    dxpu_delivery d = s->line->peek(s->line->user, DXPU_NONPOSTED);
    dxpu_tlp t;
    /* It waits until all its completions would fit.  Room comes by sending; where the line takes no
       more, it wakes us when it does. */
    if (owed_room(s) < COMPLETIONS_MAX)
        send_waiting(s, now);
    if (!d.tlp.len || owed_room(s) < COMPLETIONS_MAX)
        return false;
    if (dxpu_tlp_receive(d.tlp, &t) != DXPU_OK)
        refuse(s, d.tlp, DXPU_CPL_UR, SLOT_REFUSED_kind);
    else if (!take_request(s, &t, d.tlp, now))
        return false;
    s->stuck_ns[DXPU_NONPOSTED] = 0;
    s->line->take(s->line->user, DXPU_NONPOSTED, now);
    s->up_tlps++;
    send_waiting(s, now);
    return true;
}

/* ==== 5  Up: completions ====================================================================== */

/* A completion of this slot's device for another one's, as large as that may get it.  A request
   with a part that is larger is refused once, when all its parts are here: until then its tag is in
   use. */
static void peer_answered(guest_slot *s, const dxpu_delivery *d)
{
    unsigned to = d->user >> 48 & 0xff, i;
    dxpu_request r;
    dxpu_tlp t;
    if (dxpu_tlp_decode_header(d->tlp, &t) != DXPU_OK)
        return; /* never: the channel matched it with its request */
    i = find_oversized(s, t.requester, t.tag);
    if (i == s->oversized_count && t.length_dw * 4u <= s->host->mps_bytes(s->host->user, to)) {
        peer_completed(s, d->tlp, d->user, d->last);
        return;
    }
    if (i == s->oversized_count) {
        count_refused(s, SLOT_REFUSED_kind);
        if (!d->last) /* there are no more than peer_has_room() lets in */
            s->oversized[s->oversized_count++] = (uint32_t)t.requester << 16 | t.tag;
    }
    if (!d->last)
        return;
    memset(&r, 0, sizeof r);
    r.user = d->user;
    r.requester = t.requester;
    r.tag = t.tag;
    r.left_bytes = t.byte_count;
    peer_unanswered(s, &r);
}

static bool work_completion(guest_slot *s, uint64_t now)
{
    dxpu_delivery d = s->line->peek(s->line->user, DXPU_COMPLETION);
    dxpu_tlp t;
    if (!d.tlp.len)
        return false;
    if (is_peer(d.user)) {
        peer_answered(s, &d);
    } else if (dxpu_tlp_receive(d.tlp, &t) == DXPU_OK) {
        if (d.user == PROBE_REQUEST)
            completed(s, &t, d.user, d.last);
        else
            guest_answered(s, &t, d.user, d.last, now);
    } else if (d.last) {
        completed(s, NULL, d.user, true);
    }
    s->line->take(s->line->user, DXPU_COMPLETION, now);
    s->up_tlps++;
    return true;
}

/* ==== 6  Sizing the device's BARs ============================================================= */

/* Send the next request of the probe when the last is answered; at its end the device is there. */
static void probe_step(guest_slot *s, uint64_t now)
{
    uint8_t data[4];
    dxpu_tlp t;
    if (s->probe.wait) { /* the device asked for time */
        s->probe.wait = false;
        s->probe_ns = now + PROBE_RETRY_NS;
    }
    if (!s->up || s->closing || !s->probe.running || s->probe.sent || now < s->probe_ns)
        return;
    s->probe_ns = 0;
    if (probe_request(&s->probe, &t, data)) {
        s->probe.sent = true;
        if (slot_send(s, &t, PROBE_REQUEST, now))
            return;
        s->probe.failed = true;
    }
    if (s->probe.failed)
        log_warning("slot %u: its device does not report its BARs; not shown", s->number);
    s->probe.running = false;
    if (s->probe.failed)
        return;
    s->sized = true;
    fit_values(s, 0);
    s->host->filled(s->host->user, s->number, true);
}

bool slot_work(guest_slot *s, uint64_t now)
{
    bool more = true;
    for (unsigned n = 0; more && n < TURN; n++) {
        more = work_posted(s, now);
        more |= work_completion(s, now);
        more |= work_nonposted(s, now);
        more |= s->line->take_event(s->line->user);
    }
    send_waiting(s, now);
    retry_step(s, now);
    probe_step(s, now);
    return more;
}

/* ==== 7  Life of the line ===================================================================== */

void slot_begin(guest_slot *s)
{
    s->alarmed = false;
}

void slot_close(guest_slot *s, uint8_t reason)
{
    if (!s->up)
        return;
    s->close_reason = reason;
    s->closing = true;
    close_behind(s);
}

void slot_up(guest_slot *s, const char *whose, uint64_t now)
{
    s->up = true;
    s->starved = false;
    s->incarnations++;
    s->misfit = false;
    snprintf(s->whose, sizeof s->whose, "%s", whose);
    init_tags(s);
    msi_clear(&s->msi);
    retry_clear(&s->retry);
    grants_clear(&s->grants);
    s->p2p.payload_bytes = 0;
    push_begin(s, true);
    slot_reach(s);
    s->values.count = 0;
    s->sized = false;
    probe_start(&s->probe);
    probe_step(s, now);
}

/* Containment (D-60): every request in flight and every TLP that waits is answered now. */
static void contain(guest_slot *s)
{
    dxpu_request r;
    uint64_t user;
    while (s->line->contain(s->line->user, &r)) {
        s->contained++;
        unanswered(s, &r);
    }
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        while (queue_first(&s->queue, cls))
            give_up(s, cls);
    }
    queue_clear_events(&s->queue);
    while (s->retry.count) {
        if (retry_done(&s->retry, &user))
            s->host->completion(s->host->user, NULL, user, true);
    }
    s->owed_reserved = s->peer_requests = s->oversized_count = 0;
    s->stuck_ns[DXPU_POSTED] = s->stuck_ns[DXPU_NONPOSTED] = 0;
    s->clogged = false;
}

void slot_down(guest_slot *s)
{
    bool was_up = s->up;
    if (!s->sized) /* never shown, and its values are not fitted */
        s->values.count = 0;
    s->up = s->misfit = s->closing = s->probe.running = false;
    if (was_up)
        s->host->lost(s->host->user, s->number, &s->values);
    push_begin(s, false);
    contain(s);
    if (was_up)
        s->host->filled(s->host->user, s->number, false);
}

/* The guest is not read while it waits for this slot.  A box that acknowledges and takes nothing
   must not hold it up for longer than one that is silent (V-17). */
static void bound_congestion(guest_slot *s, uint64_t now)
{
    if (!s->up || !slot_congested(s)) {
        s->congested_ns = 0;
    } else if (!s->congested_ns) {
        s->congested_ns = now + s->hold_ns;
    } else if (now >= s->congested_ns) {
        s->congested_ns = 0;
        log_warning("slot %u: its box reads too slowly: the guest waited for %llu ms", s->number,
                    (unsigned long long)(s->hold_ns / 1000000u));
        s->line->reset(s->line->user, DXPU_REASON_HOLD);
    }
}

void slot_tick(guest_slot *s, uint64_t now)
{
    dxpu_request r;
    while (s->up && dxpu_tags_expire(&s->tags, now, &r)) {
        s->timeouts++;
        unanswered(s, &r);
    }
    retry_step(s, now);
    probe_step(s, now);
    bound_congestion(s, now);
}

uint64_t slot_next_ns(const guest_slot *s)
{
    uint64_t next = s->up ? dxpu_tags_next_ns(&s->tags) : DXPU_NEVER;
    uint64_t retry_ns = retry_next_ns(&s->retry);
    next = retry_ns < next ? retry_ns : next;
    if (s->congested_ns && s->congested_ns < next)
        next = s->congested_ns;
    if (s->probe.running && !s->closing && s->probe_ns && s->probe_ns < next)
        next = s->probe_ns;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        if (s->stuck_ns[cls] && s->stuck_ns[cls] < next)
            next = s->stuck_ns[cls];
    }
    return next;
}

static void report_refused(const guest_slot *s, report *r)
{
#define SLOT_NAME(name, text) #name,
    static const char *const names[] = { SLOT_REFUSALS(SLOT_NAME) };
    report_open(r, "refused_why");
    for (unsigned i = 0; i < SLOT_REFUSAL_COUNT; i++)
        report_number(r, names[i], s->refused_why[i]);
    report_close(r);
    report_number(r, "windows", s->grants.told.count);
    report_number(r, "windows_events", s->grants.events);
    report_number(r, "windows_no_room", s->grants.no_room);
}

void slot_report(const guest_slot *s, report *r)
{
    report_number(r, "up", s->up);
    report_number(r, "down_tlps", s->down_tlps);
    report_number(r, "up_tlps", s->up_tlps);
    report_number(r, "dma_reads", s->dma_reads);
    report_number(r, "dma_writes", s->dma_writes);
    report_number(r, "retries", s->retries);
    report_number(r, "peer_tlps", s->peer_tlps);
    report_number(r, "msis", s->msis);
    report_number(r, "msis_refused", s->msis_refused);
    report_number(r, "messages", s->messages);
    report_number(r, "refused", s->refused);
    report_refused(s, r);
    report_number(r, "dropped", s->dropped);
    report_number(r, "contained", s->contained);
    report_number(r, "timeouts", s->timeouts);
    report_number(r, "values", s->values.count);
    report_number(r, "values_refused", s->values_refused);
    report_number(r, "push_rules", s->push.table.count);
    report_number(r, "push_rules_refused", s->push.rules_refused);
    report_number(r, "pushes", s->push.sent);
    report_number(r, "pushed_bytes", s->push.bytes);
    report_number(r, "pushes_refused", s->push.refused);
    report_number(r, "pushes_no_room", s->push.no_room);
    report_number(r, "p2p_lists", s->p2p.sent);
}
