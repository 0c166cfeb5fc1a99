/* slot.c - see slot.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Down   2 Up: memory requests   3 Up: completions   4 Sizing the device's BARs
              5 Life of the channel */
#include "slot.h"
#include "refusal.h"

#include <stdlib.h>

enum { TURN = 256, RETRY_NS = 100000000, MARGIN_NS = 100000000, QUEUE_HIGH = SLOT_QUEUE / 2 };

int slot_init(guest_slot *s, unsigned number, uint32_t node, const slot_host *host, fabric *f)
{
    memset(s, 0, sizeof *s);
    s->number = number;
    s->node = node;
    s->host = host;
    s->fabric = f;
    s->dial_ns = DXPU_NEVER;
    s->waiting = calloc(SLOT_QUEUE, sizeof *s->waiting);
    s->owed = calloc(SLOT_OWED, sizeof *s->owed);
    return s->waiting && s->owed ? 0 : -1;
}

void slot_free(guest_slot *s)
{
    free(s->waiting);
    free(s->owed);
}

/* ==== 1  Down ================================================================================= */

/* 0 sent, 1 no room yet, -1 never. */
static int submit(guest_slot *s, const slot_waiting *w, uint64_t now)
{
    dxpu_bytes tlp = { w->bytes, w->len };
    int rc = dxpu_channel_submit(&s->channel->ch, tlp, now, w->user);
    if (rc == DXPU_E_AGAIN || rc == DXPU_E_NO_TAG || rc <= DXPU_E_CLOSED)
        return 1; /* a channel that is over: slot_down() answers all that waits */
    if (rc != DXPU_OK)
        return -1;
    s->down_tlps++;
    return 0;
}

#define PROBE_REQUEST UINT64_MAX /* the `user` of requests that are not the guest's */

static void completed(guest_slot *s, const dxpu_tlp *cpl, uint64_t user, bool last)
{
    if (user != PROBE_REQUEST)
        s->host->completion(s->host->user, cpl, user, last);
    else if (last)
        probe_answer(&s->probe, cpl);
}

static void give_up(guest_slot *s, const slot_waiting *w)
{
    s->dropped++;
    if (w->nonposted)
        completed(s, NULL, w->user, true);
}

static void send_waiting(guest_slot *s, uint64_t now)
{
    while (s->waiting_head != s->waiting_tail) {
        const slot_waiting *w = &s->waiting[s->waiting_head % SLOT_QUEUE];
        int rc = submit(s, w, now);
        if (rc > 0)
            return;
        s->waiting_head++;
        if (rc < 0)
            give_up(s, w);
    }
}

bool slot_send(guest_slot *s, dxpu_tlp *t, uint64_t user, uint64_t now)
{
    slot_waiting *w = &s->waiting[s->waiting_tail % SLOT_QUEUE];
    size_t len = 0;
    int tag = 0;
    bool room = s->up && s->waiting_tail - s->waiting_head < SLOT_QUEUE;
    bool nonposted = dxpu_tlp_class(t) == DXPU_NONPOSTED;
    if (room && nonposted)
        tag = dxpu_tags_alloc(&s->tags);
    if (!room || tag < 0) {
        s->dropped++;
        return false;
    }
    t->tag = (uint16_t)tag;
    if (dxpu_tlp_encode(t, w->bytes, sizeof w->bytes, &len) != DXPU_OK) {
        (void)dxpu_tags_drop(&s->tags, t->requester, t->tag); /* allocated just above, if at all */
        s->dropped++;
        return false;
    }
    w->user = user;
    w->nonposted = nonposted;
    w->len = (uint16_t)len;
    s->waiting_tail++;
    send_waiting(s, now);
    return true;
}

void slot_event(guest_slot *s, uint8_t type, uint8_t flags)
{
    dxpu_event e;
    if (s->probe.running && type == DXPU_EVENT_HOT_RESET)
        s->probe.again = true;
    memset(&e, 0, sizeof e);
    e.type = type;
    e.flags = flags;
    if (s->up && dxpu_channel_submit_event(&s->channel->ch, &e) != DXPU_OK)
        s->dropped++;
}

bool slot_congested(const guest_slot *s)
{
    return s->waiting_tail - s->waiting_head >= QUEUE_HIGH;
}

/* ==== 2  Up: memory requests ================================================================== */

static bool owed_full(const guest_slot *s, unsigned more)
{
    return s->owed_tail - s->owed_head + more > SLOT_OWED;
}

static void owe(guest_slot *s, const dxpu_tlp *cpl)
{
    slot_owed *o = &s->owed[s->owed_tail % SLOT_OWED];
    size_t len = 0;
    if (dxpu_tlp_encode(cpl, o->bytes, sizeof o->bytes, &len) != DXPU_OK)
        return;
    o->len = (uint16_t)len;
    s->owed_tail++;
}

static bool pay(guest_slot *s, uint64_t now)
{
    while (s->owed_head != s->owed_tail) {
        const slot_owed *o = &s->owed[s->owed_head % SLOT_OWED];
        dxpu_bytes tlp = { o->bytes, o->len };
        if (dxpu_channel_submit(&s->channel->ch, tlp, now, 0) == DXPU_E_AGAIN)
            return false;
        s->owed_head++;
    }
    return true;
}

static void refuse(guest_slot *s, dxpu_bytes req)
{
    slot_owed *o = &s->owed[s->owed_tail % SLOT_OWED];
    o->len = (uint16_t)refusal_encode(req, o->bytes).len;
    s->owed_tail += o->len != 0; /* nothing can be answered to what is no request */
    s->refused++;
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
    if (req->at || !s->host->bus_master(s->host->user, s->number) || !fetch(s, req, data) ||
        dxpu_cpl_split_start(&split, req, 64, mps < SLOT_MPS_MAX ? mps : SLOT_MPS_MAX) != DXPU_OK) {
        refuse(s, bytes);
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

static bool is_msi(const dxpu_tlp *t)
{
    return (t->address & ~(uint64_t)0xfffff) == 0xfee00000u && t->length_dw == 1 &&
           t->first_be == 0xf;
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

static void take_posted(guest_slot *s, const dxpu_tlp *t)
{
    if (t->type != DXPU_TLP_MWR || t->at || t->ep ||
        !s->host->bus_master(s->host->user, s->number)) {
        s->refused++;
    } else if (is_msi(t)) {
        const uint8_t *p = t->payload.ptr;
        s->msis++;
        s->host->msi(s->host->user, t->address,
                     (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                         (uint32_t)p[3] << 24);
    } else if (store(s, t)) {
        s->dma_writes++;
    } else {
        s->refused++;
    }
}

static bool work_posted(guest_slot *s, uint64_t now)
{
    dxpu_delivery d = dxpu_channel_peek(&s->channel->ch, DXPU_POSTED);
    dxpu_tlp t;
    if (!d.tlp.len)
        return false;
    if (dxpu_tlp_decode(d.tlp, &t) == DXPU_OK)
        take_posted(s, &t);
    else
        s->refused++;
    (void)dxpu_channel_take(&s->channel->ch, DXPU_POSTED, now);
    s->up_tlps++;
    return true;
}

static bool work_nonposted(guest_slot *s, uint64_t now)
{
    dxpu_delivery d = dxpu_channel_peek(&s->channel->ch, DXPU_NONPOSTED);
    dxpu_tlp t;
    /* the largest read brings 65 completions of 64 bytes; it waits until they would fit */
    if (!pay(s, now) || !d.tlp.len || owed_full(s, 65))
        return false;
    if (dxpu_tlp_decode(d.tlp, &t) == DXPU_OK && t.type == DXPU_TLP_MRD)
        answer_read(s, &t, d.tlp);
    else
        refuse(s, d.tlp);
    (void)dxpu_channel_take(&s->channel->ch, DXPU_NONPOSTED, now);
    s->up_tlps++;
    (void)pay(s, now);
    return true;
}

/* ==== 3  Up: completions ====================================================================== */

static bool work_completion(guest_slot *s, uint64_t now)
{
    dxpu_delivery d = dxpu_channel_peek(&s->channel->ch, DXPU_COMPLETION);
    dxpu_tlp t;
    if (!d.tlp.len)
        return false;
    if (dxpu_tlp_decode(d.tlp, &t) == DXPU_OK)
        completed(s, &t, d.user, d.last);
    else if (d.last)
        completed(s, NULL, d.user, true);
    (void)dxpu_channel_take(&s->channel->ch, DXPU_COMPLETION, now);
    s->up_tlps++;
    return true;
}

/* ==== 4  Sizing the device's BARs ============================================================= */

/* Send the next request of the probe when the last is answered; at its end the device is there. */
static void probe_step(guest_slot *s, uint64_t now)
{
    uint8_t data[4];
    dxpu_tlp t;
    if (s->probe.wait) { /* the device asked for time */
        s->probe.wait = false;
        s->probe_ns = now + PROBE_RETRY_NS;
    }
    if (!s->up || !s->probe.running || s->probe.sent || now < s->probe_ns)
        return;
    s->probe_ns = 0;
    if (probe_request(&s->probe, &t, data)) {
        s->probe.sent = true;
        if (slot_send(s, &t, PROBE_REQUEST, now))
            return;
        s->probe.failed = true;
    }
    if (s->probe.failed)
        fprintf(stderr, "dxpu-host: slot %u: its device does not tell its BARs; not shown\n",
                s->number);
    else
        s->host->filled(s->host->user, s->number, true);
    s->probe.running = false;
}

bool slot_work(guest_slot *s, uint64_t now)
{
    dxpu_event e;
    bool more = true;
    for (unsigned n = 0; more && n < TURN; n++) {
        more = work_posted(s, now);
        more |= work_completion(s, now);
        more |= work_nonposted(s, now);
        if (dxpu_channel_peek_event(&s->channel->ch, &e))
            more |= dxpu_channel_take_event(&s->channel->ch) == DXPU_OK;
    }
    send_waiting(s, now);
    probe_step(s, now);
    return more;
}

/* ==== 5  Life of the channel ================================================================== */

static void dial(guest_slot *s, uint64_t now)
{
    dxpu_channel_config cfg;
    s->dial_ns = DXPU_NEVER;
    (void)dxpu_tags_init(&s->tags, s->entries, SLOT_TAGS, 0, DXPU_TAGS_256,
                         s->fabric->base.hold_ms * 1000000ull + MARGIN_NS); /* in range */
    dxpu_channel_config_default(&cfg);
    cfg.epoch = s->epoch;
    cfg.local.node = s->node;
    cfg.local.slot = DXPU_SLOT_HOST;
    cfg.local.function = cfg.remote.function = DXPU_FUNCTION_ALL;
    cfg.remote.slot = s->box_slot;
    cfg.tags = &s->tags;
    s->channel = fabric_dial(s->fabric, &cfg, s->path, s->paths, now);
    if (!s->channel)
        s->dial_ns = now + RETRY_NS;
}

static void name_box(guest_slot *s)
{
    size_t at = 0;
    for (unsigned i = 0; i < s->paths; i++) {
        char text[DXPU_UDP_TEXT_BYTES];
        at += (size_t)snprintf(s->box + at, sizeof s->box - at, "%s%s", i ? "," : "",
                               dxpu_udp_print(&s->path[i].remote, text));
    }
}

int slot_attach(guest_slot *s, const dxpu_udp_address *box, unsigned paths, uint16_t box_slot,
                uint64_t epoch, uint64_t now)
{
    dxpu_udp_path path[DXPU_PATHS_MAX];
    int rc;
    if (s->attached || s->channel)
        return s->attached ? SLOT_BUSY : SLOT_CLOSING;
    rc = fabric_route(s->fabric, box, paths, path);
    if (rc != DXPU_OK)
        return rc == DXPU_E_NONE ? SLOT_FAMILY : SLOT_ALIKE;
    s->attached = true;
    s->last_error = DXPU_OK;
    s->last_reason = DXPU_REASON_NONE;
    s->attempts = 0;
    memcpy(s->path, path, sizeof s->path);
    memset(&s->past, 0, sizeof s->past);
    s->paths = paths;
    name_box(s);
    s->box_slot = box_slot;
    s->epoch = epoch;
    dial(s, now);
    return 0;
}

bool slot_is_at(const guest_slot *s, const dxpu_udp_address *box, unsigned paths)
{
    bool same = paths == s->paths;
    for (unsigned i = 0; same && i < paths; i++)
        same = dxpu_udp_same(&s->path[i].remote, &box[i]);
    return same;
}

bool slot_reaches(const guest_slot *s, const dxpu_udp_address *box, unsigned paths)
{
    for (unsigned i = 0; i < s->paths; i++) {
        for (unsigned j = 0; j < paths; j++) {
            if (dxpu_udp_same(&s->path[i].remote, &box[j]))
                return true;
        }
    }
    return false;
}

void slot_detach(guest_slot *s, uint8_t reason)
{
    s->attached = false;
    s->dial_ns = DXPU_NEVER;
    if (s->channel)
        (void)dxpu_channel_close(&s->channel->ch, reason); /* closing already: fine */
}

void slot_up(guest_slot *s, uint64_t now)
{
    s->up = true;
    s->incarnations++;
    s->attempts = 0;
    s->misfit = false;
    fprintf(stderr, "dxpu-host: slot %u: slot %u of %s is attached, epoch %llu\n", s->number,
            s->box_slot, s->box, (unsigned long long)s->epoch);
    probe_start(&s->probe);
    probe_step(s, now);
}

/* Containment: every request in flight and every TLP that waits is answered now. */
static void contain(guest_slot *s)
{
    dxpu_request r;
    while (dxpu_tags_pop(&s->tags, &r)) {
        s->contained++;
        completed(s, NULL, r.user, true);
    }
    while (s->waiting_head != s->waiting_tail)
        give_up(s, &s->waiting[s->waiting_head++ % SLOT_QUEUE]);
    s->owed_head = s->owed_tail;
}

void slot_down(guest_slot *s, uint64_t now)
{
    int error = dxpu_channel_error(&s->channel->ch);
    uint8_t reason = dxpu_channel_reason(&s->channel->ch);
    char end[FABRIC_END_BYTES];
    bool was_up = s->up;
    s->up = false;
    fabric_end_text(s->channel, end);
    s->misfit = false;
    s->probe.running = false;
    fabric_paths_keep(&s->past, s->channel);
    s->channel = NULL;
    contain(s);
    s->last_error = error;
    s->last_reason = reason;
    s->attempts += !was_up;
    if (was_up) {
        fprintf(stderr, "dxpu-host: slot %u: slot %u of %s: channel %s: %s%s\n", s->number,
                s->box_slot, s->box, error == DXPU_E_CLOSED ? "closed" : "lost", end,
                !s->attached                     ? ""
                : reason == DXPU_REASON_REPLACED ? "; to take it back, use a higher epoch"
                                                 : "; dialing again");
        s->host->filled(s->host->user, s->number, false);
    }
    if (s->attached)
        s->dial_ns = now + RETRY_NS;
}

void slot_tick(guest_slot *s, uint64_t now)
{
    dxpu_request r;
    while (s->up && dxpu_tags_expire(&s->tags, now, &r)) {
        s->timeouts++;
        completed(s, NULL, r.user, true);
    }
    probe_step(s, now);
    if (now >= s->dial_ns)
        dial(s, now);
}

uint64_t slot_next_ns(const guest_slot *s)
{
    uint64_t next = s->up ? dxpu_tags_next_ns(&s->tags) : DXPU_NEVER;
    if (s->probe.running && s->probe_ns && s->probe_ns < next)
        next = s->probe_ns;
    return s->dial_ns < next ? s->dial_ns : next;
}

void slot_report(const guest_slot *s, report *r)
{
    char name[16];
    snprintf(name, sizeof name, "slot_%u", s->number);
    report_open(r, name);
    report_number(r, "up", s->up);
    report_number(r, "attached", s->attached);
    report_number(r, "incarnations", s->incarnations);
    report_number(r, "down_tlps", s->down_tlps);
    report_number(r, "up_tlps", s->up_tlps);
    report_number(r, "dma_reads", s->dma_reads);
    report_number(r, "dma_writes", s->dma_writes);
    report_number(r, "msis", s->msis);
    report_number(r, "refused", s->refused);
    report_number(r, "dropped", s->dropped);
    report_number(r, "contained", s->contained);
    report_number(r, "timeouts", s->timeouts);
    fabric_report_paths(&s->past, s->channel, r);
    report_close(r);
}
