/* front.c - see front.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Object   2 Setting up the device   3 What the device may reach   4 Vectors
              5 Requests of the card   6 Requests of the device   7 The card's completions
              8 The card's answers   9 The source */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "front.h"

#include "enumerate.h"
#include "grants.h"
#include "log.h"
#include "vectors.h"

#include <stdlib.h>

/* ==== 1  Object =============================================================================== */

enum {
    READS = 64,   /* of the card at a time */
    FETCHES = 64, /* of the device */
    TAGS = 16,
    CONFIG_USER = 0xffff,
    MPS_BYTES = 128, /* what every machine takes */
    RCB_BYTES = 64,
    ANSWER_MS = 500,
    ASK_MS = 1000, /* between two questions */
    TIMER_US = 50000,
    MILLION = 1000000,
    BAR_ALIGNED = 4096
};

/* Where the device's BARs are. */
#define BAR0_ADDRESS  0x8000000000u
#define OTHER_ADDRESS 0x4000000000u

#define FRONT_COUNTERS(X)                                                                          \
    X(card_reads)                                                                                  \
    X(card_writes)                                                                                 \
    X(card_refused)                                                                                \
    X(answers_missing)                                                                             \
    X(device_reads)                                                                                \
    X(device_writes)                                                                               \
    X(device_refused)                                                                              \
    X(read_timeouts)                                                                               \
    X(completions_unexpected)                                                                      \
    X(vectors_written)

/* A read of the card that waits for the device. */
typedef struct front_job {
    uint64_t user; /* of the request; 0: free */
    dxpu_tlp t;
} front_job;

/* A read of the device, in the card's machine and back. */
typedef struct fetch {
    enum { FREE, ASKED, FORGOTTEN, ANSWERING } state; /* FORGOTTEN: of an earlier incarnation */
    bool failed, piece;                               /* piece: `cpl` waits for room */
    dxpu_tlp t, cpl;
    dxpu_cpl_split split;
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
} fetch;

struct front {
    host_link *link;
    const front_settings *set;
    card_wire *wire;
    struct event *event, *timer;
    uint64_t quiet_ns;  /* until then its tags may be those of an earlier process */
    uint64_t paused_ns; /* since when the wire takes nothing; 0: it does */
    enum { LEARNING, ENUMERATING, FINDING_VECTORS, SERVING } phase;
    bool has_bar, has_id;
    uint64_t bar;         /* of the card */
    uint16_t id, next_id; /* next_id: once no read of the device is under way with the other */
    bool changes_id;
    unsigned question; /* the one that comes next */
    uint64_t ask_ns;
    enumerate device;
    uint64_t requests, asked; /* as in load.c */
    grants grants;
    windows memory; /* what the operator named */
    vectors vectors;
    dxpu_nettlp_vector table[DXPU_NETTLP_VECTORS];
    dxpu_nettlp_vector before[DXPU_NETTLP_VECTORS]; /* its messages may be on their way */
    unsigned written; /* entries of the device's table that are as `table` says */
    front_job jobs[READS];
    fetch *fetches;
    dxpu_tags tags;
    dxpu_tag_entry entries[DXPU_TAGS_256];
    bool held; /* a request of the card waits for room */
    dxpu_tlp held_tlp;
    uint8_t held_data[DXPU_TLP_PAYLOAD_MAX_BYTES];
#define FRONT_FIELD(name) uint64_t name;
    struct {
        FRONT_COUNTERS(FRONT_FIELD)
    } count;
#undef FRONT_FIELD
};

/* The largest payload on the bus of the card's machine: more is a fatal error there. */
static uint32_t card_mps(const front *f)
{
    uint32_t wire = card_wire_payload(f->wire), mps = f->set->mps ? f->set->mps : MPS_BYTES;
    return mps < wire ? mps : wire;
}

static bool is_serving(const front *f)
{
    return f->phase == SERVING && f->link->is_up && !f->link->stopping && !f->link->closing;
}

static int submit(front *f, const dxpu_tlp *t, uint64_t now, uint64_t user)
{
    uint8_t out[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { out, 0 };
    int rc = dxpu_tlp_encode(t, out, sizeof out, &tlp.len);
    return rc == DXPU_OK ? link_submit(f->link, tlp, now, user) : rc;
}

/* A non-posted request with a tag of ours.  DXPU_OK with *user, which comes back with its
   completions. */
static int submit_tagged(front *f, dxpu_tlp *t, uint64_t now, unsigned index, uint64_t *user)
{
    int tag = dxpu_tags_alloc(&f->link->tags), rc;
    if (tag < 0)
        return DXPU_E_AGAIN;
    *user = ++f->requests << 16 | index;
    t->tag = (uint16_t)tag;
    rc = submit(f, t, now, *user);
    if (rc != DXPU_OK)
        (void)dxpu_tags_drop(&f->link->tags, 0, (uint16_t)tag); /* it was allocated just now */
    return rc;
}

/* ==== 2  Setting up the device ================================================================ */

static void set_up(front *f, uint64_t now)
{
    uint8_t payload[4];
    dxpu_tlp t;
    bool more = f->phase == ENUMERATING ? enumerate_request(&f->device, &t, payload)
                                        : vectors_request(&f->vectors, ENUMERATE_BDF, &t, payload);
    if (more) {
        if (submit_tagged(f, &t, now, CONFIG_USER, &f->asked) != DXPU_OK)
            f->asked = 0;
    } else if (f->phase == ENUMERATING && enumerate_done(&f->device)) {
        vectors_start(&f->vectors, BAR0_ADDRESS, OTHER_ADDRESS);
        f->phase = FINDING_VECTORS;
    } else if (f->phase == FINDING_VECTORS) {
        f->phase = SERVING;
        f->written = 0;
        if (f->vectors.why)
            log_warning("the device's MSI-X cannot be used: %s; the card's machine gets no "
                        "interrupts of it",
                        f->vectors.why);
        log_info("the card at %s is the front of the device: %llu bytes of BAR 0, %u vectors",
                 f->set->peer, (unsigned long long)f->device.bar_bytes, f->vectors.count);
    }
}

/* ==== 3  What the device may reach ============================================================ */

static void wish_vectors(windows *w, const dxpu_nettlp_vector *table)
{
    for (unsigned i = 0; i < DXPU_NETTLP_VECTORS; i++) {
        uint64_t at = table[i].address;
        if (at && at % 4 == 0)
            (void)windows_grant(w, at, at + 3, WINDOW_WRITE);
    }
}

static void wish(front *f)
{
    windows *w = &f->grants.wanted;
    windows_clear(w);
    windows_clear(&f->memory);
    for (unsigned i = 0; i < f->set->windows; i++) {
        const dxpu_window *m = &f->set->memory[i];
        (void)windows_grant(w, m->first, m->last, m->access);
        (void)windows_grant(&f->memory, m->first, m->last, m->access);
    }
    wish_vectors(w, f->table);
    wish_vectors(w, f->before);
    (void)grants_changed(&f->grants);
}

/* Ahead of what the device needs them for.  False: there is no room for the rest now. */
static bool send_grants(front *f)
{
    dxpu_event e;
    while (grants_next(&f->grants, &e)) {
        if (!f->link->channel || dxpu_channel_submit_event(&f->link->channel->ch, &e) != DXPU_OK)
            return false;
        grants_sent(&f->grants, &e);
    }
    return true;
}

/* ==== 4  Vectors ============================================================================== */

/* The card's table into the device's.  An entry without an address is masked. */
static void write_vectors(front *f, uint64_t now)
{
    unsigned count =
        f->vectors.count < DXPU_NETTLP_VECTORS ? f->vectors.count : DXPU_NETTLP_VECTORS;
    uint8_t entry[16];
    dxpu_tlp t;
    while (f->written < count) {
        const dxpu_nettlp_vector *v = &f->table[f->written];
        memset(&t, 0, sizeof t);
        dxpu_put_le64(entry, v->address);
        dxpu_put_le32(entry + 8, v->data);
        dxpu_put_le32(entry + 12, v->address == 0);
        t.type = DXPU_TLP_MWR;
        t.address = f->vectors.address + f->written * 16u;
        t.header_dw = t.address >> 32 ? 4 : 3;
        t.length_dw = 4;
        t.first_be = t.last_be = 0xf;
        t.payload.ptr = entry;
        t.payload.len = sizeof entry;
        if (submit(f, &t, now, 0) != DXPU_OK)
            return;
        f->written++;
        f->count.vectors_written++;
    }
}

/* ==== 5  Requests of the card ================================================================= */

/* The card's machine reads ones, and what it writes is dropped. */
static void refuse(front *f, const dxpu_tlp *t)
{
    dxpu_tlp cpl;
    f->count.card_refused++;
    if (dxpu_tlp_class(t) != DXPU_NONPOSTED)
        return;
    dxpu_tlp_completion(t, f->id, DXPU_CPL_UR, &cpl);
    (void)card_wire_send(f->wire, &cpl, false);
}

static front_job *free_job(front *f)
{
    for (unsigned i = 0; i < READS; i++) {
        if (!f->jobs[i].user)
            return &f->jobs[i];
    }
    return NULL;
}

/* Within BAR 0, and as the device was set up. */
static bool may_pass(const front *f, const dxpu_tlp *t)
{
    uint64_t at = t->address - f->bar, bytes = t->length_dw * 4u;
    if (!is_serving(f) || t->at || t->prefix_count || t->ep || t->address < f->bar)
        return false;
    if (at >= f->device.bar_bytes || bytes > f->device.bar_bytes - at)
        return false;
    return t->type == DXPU_TLP_MRD ||
           (t->type == DXPU_TLP_MWR && t->payload.len <= f->device.mps_bytes);
}

/* True: `held_tlp` does not wait any more. */
static bool pass_held(front *f, uint64_t now)
{
    const dxpu_tlp *from = &f->held_tlp;
    bool read = from->type == DXPU_TLP_MRD;
    front_job *j = read ? free_job(f) : NULL;
    uint64_t user = 0;
    dxpu_tlp t;
    int rc;
    if (read && !j && is_serving(f))
        return false;
    memset(&t, 0, sizeof t);
    t.type = from->type;
    t.header_dw = 4;
    t.length_dw = from->length_dw;
    t.first_be = from->first_be;
    t.last_be = from->last_be;
    t.address = BAR0_ADDRESS + (from->address - f->bar);
    t.payload = from->payload;
    rc = !may_pass(f, from) ? DXPU_E_ARG
         : read             ? submit_tagged(f, &t, now, (unsigned)(j - f->jobs), &user)
                            : submit(f, &t, now, 0);
    if (rc == DXPU_E_AGAIN)
        return false;
    f->held = false;
    if (rc != DXPU_OK) {
        refuse(f, from);
    } else if (read) {
        f->count.card_reads++;
        j->user = user;
        j->t = *from;
    } else {
        f->count.card_writes++;
    }
    return true;
}

static void card_request(front *f, const dxpu_tlp *t)
{
    f->held_tlp = *t;
    if (t->payload.len) {
        memcpy(f->held_data, t->payload.ptr, t->payload.len);
        f->held_tlp.payload.ptr = f->held_data;
    }
    f->held = true;
    (void)pass_held(f, dxpu_udp_now_ns());
}

/* The device's answer, a part of it, or none: `cpl` NULL. */
static void answer_card(front *f, unsigned index, uint64_t user, const dxpu_tlp *cpl, bool last)
{
    front_job *j = &f->jobs[index % READS];
    bool fits = cpl && cpl->payload.len <= card_mps(f);
    dxpu_tlp t;
    if (index >= READS || j->user != user)
        return;
    if (fits) {
        t = *cpl;
        t.tc = j->t.tc;
        t.attr = j->t.attr;
        t.requester = j->t.requester;
        t.tag = j->t.tag;
        t.completer = f->id;
        t.prefix_count = 0;
        t.td = false;
        f->count.answers_missing += !card_wire_send(f->wire, &t, false);
    } else {
        f->count.answers_missing++;
        refuse(f, &j->t);
    }
    if (last || !fits)
        j->user = 0;
}

/* ==== 6  Requests of the device =============================================================== */

/* A vector's data at its address: other data there are other interrupts of the machine. */
static bool is_vector(const dxpu_nettlp_vector *table, const dxpu_tlp *t)
{
    if (t->type != DXPU_TLP_MWR || t->length_dw != 1 || t->first_be != 0xf)
        return false;
    for (unsigned i = 0; i < DXPU_NETTLP_VECTORS; i++) {
        if (table[i].address && table[i].address == t->address &&
            table[i].data == dxpu_get_le32(t->payload.ptr))
            return true;
    }
    return false;
}

static bool device_may(const front *f, const dxpu_tlp *t, unsigned access)
{
    uint32_t at, bytes;
    uint64_t first;
    dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &at, &bytes);
    first = t->address + at;
    bytes += bytes == 0;
    return is_serving(f) && t->requester == ENUMERATE_BDF && !t->at && !t->prefix_count && !t->ep &&
           windows_allow(&f->grants.told, first, bytes, access) &&
           (windows_allow(&f->memory, first, bytes, access) || is_vector(f->table, t) ||
            is_vector(f->before, t));
}

/* The same request of the card. */
static void of_card(const front *f, const dxpu_tlp *t, uint16_t tag, dxpu_tlp *out)
{
    memset(out, 0, sizeof *out);
    out->type = t->type;
    out->header_dw = t->address >> 32 ? 4 : 3;
    out->requester = f->id;
    out->tag = tag;
    out->length_dw = t->length_dw;
    out->first_be = t->first_be;
    out->last_be = t->last_be;
    out->address = t->address;
    out->payload = t->payload;
}

static uint64_t answer_ns(const front *f)
{
    return (f->set->answer_ms ? f->set->answer_ms : (uint64_t)ANSWER_MS) * MILLION;
}

/* With the requester ID comes the table of tags, which is its. */
static void learn_id(front *f, uint16_t id)
{
    unsigned tags = f->set->tags ? f->set->tags : (unsigned)TAGS;
    f->next_id = id;
    f->changes_id = f->has_id && id != f->id && f->tags.in_flight;
    if (f->changes_id || (f->has_id && id == f->id))
        return;
    f->has_id =
        dxpu_tags_init(&f->tags, f->entries, tags, id, DXPU_TAGS_256, answer_ns(f)) == DXPU_OK;
    f->id = id;
}

static int device_reads(front *f, const dxpu_tlp *t, uint64_t now)
{
    fetch *x = NULL;
    dxpu_tlp out;
    int tag;
    if (f->changes_id)
        learn_id(f, f->next_id);
    if (f->changes_id)
        return SOURCE_LATER;
    for (unsigned i = 0; i < FETCHES && !x; i++)
        x = f->fetches[i].state == FREE ? &f->fetches[i] : NULL;
    tag = x ? dxpu_tags_alloc(&f->tags) : -1;
    if (tag < 0)
        return SOURCE_LATER;
    of_card(f, t, (uint16_t)tag, &out);
    if (dxpu_tags_track(&f->tags, &out, now, (uint64_t)(x - f->fetches)) != DXPU_OK) {
        (void)dxpu_tags_drop(&f->tags, f->id, (uint16_t)tag); /* it was allocated just now */
        return SOURCE_LATER;
    }
    f->count.device_reads++;
    x->state = ASKED;
    x->failed = x->piece = false;
    x->t = *t;
    memset(x->data, 0, t->length_dw * 4u);
    (void)card_wire_send(f->wire, &out, true); /* if it is lost here, as if on the way */
    return SOURCE_TAKEN;
}

/* source.request */
static int device_request(void *self, const dxpu_tlp *t, uint64_t now)
{
    front *f = self;
    dxpu_tlp out;
    if (t->type == DXPU_TLP_MRD && device_may(f, t, WINDOW_READ))
        return device_reads(f, t, now);
    if (t->type == DXPU_TLP_MWR && device_may(f, t, WINDOW_WRITE) &&
        t->payload.len <= card_mps(f)) {
        of_card(f, t, 0, &out);
        f->count.device_writes += card_wire_send(f->wire, &out, true);
        return SOURCE_TAKEN;
    }
    f->count.device_refused++;
    return SOURCE_REFUSED;
}

/* ==== 7  The card's completions =============================================================== */

static void fetch_is_over(fetch *x, bool failed)
{
    x->failed |= failed;
    if (x->state == FORGOTTEN)
        x->state = FREE;
    else
        x->state = ANSWERING;
    if (x->state == ANSWERING && !x->failed)
        x->failed = dxpu_cpl_split_start(&x->split, &x->t, RCB_BYTES, 128) != DXPU_OK;
}

static void take_completion(front *f, const dxpu_tlp *t)
{
    uint32_t skip = t->lower_addr & 3u, at, span;
    dxpu_request r;
    fetch *x;
    if (!f->tags.entries || dxpu_tags_complete(&f->tags, t, &r) != DXPU_OK) {
        f->count.completions_unexpected++;
        return;
    }
    x = &f->fetches[r.user];
    if (t->status != DXPU_CPL_SC || t->ep) {
        if (!r.done)
            (void)dxpu_tags_drop(&f->tags, t->requester, t->tag);
        fetch_is_over(x, true);
        return;
    }
    dxpu_be_to_range(x->t.first_be, x->t.last_be, x->t.length_dw, &at, &span);
    if (span) /* what tags.complete() let pass fits into the request and the payload */
        memcpy(x->data + at + r.offset_bytes, t->payload.ptr + skip, r.bytes);
    if (r.done)
        fetch_is_over(x, false);
}

/* The next completion of x into x->cpl.  False: there is no further one. */
static bool next_piece(fetch *x)
{
    uint64_t at;
    if (x->piece)
        return true;
    dxpu_tlp_completion(&x->t, 0, x->failed ? DXPU_CPL_UR : DXPU_CPL_SC, &x->cpl);
    if (x->failed)
        return true;
    if (!dxpu_cpl_split_next(&x->split, &x->cpl, &at))
        return false;
    x->cpl.payload.ptr = x->data + (at - x->t.address);
    x->cpl.payload.len = x->cpl.length_dw * 4u;
    return true;
}

static void answer_device(front *f, uint64_t now)
{
    for (unsigned i = 0; i < FETCHES; i++) {
        fetch *x = &f->fetches[i];
        while (x->state == ANSWERING && next_piece(x)) {
            int rc = submit(f, &x->cpl, now, 0);
            x->piece = rc == DXPU_E_AGAIN;
            if (x->piece)
                return;
            if (x->failed || rc != DXPU_OK)
                x->state = FREE;
        }
        if (x->state == ANSWERING)
            x->state = FREE;
    }
}

/* Answers may wait among requests that there is no room for, but not longer than an answer may. */
static void expire(front *f, uint64_t now)
{
    dxpu_request r;
    if (!card_wire_is_paused(f->wire))
        f->paused_ns = 0;
    else if (!f->paused_ns)
        f->paused_ns = now;
    if (f->paused_ns && now - f->paused_ns < answer_ns(f))
        return;
    while (f->tags.entries && dxpu_tags_expire(&f->tags, now, &r)) {
        f->count.read_timeouts++;
        fetch_is_over(&f->fetches[r.user], true);
    }
}

/* ==== 8  The card's answers =================================================================== */

/* What it replaces passes until the next answer, a second later. */
static void learn_table(front *f, const dxpu_nettlp_vector table[DXPU_NETTLP_VECTORS])
{
    bool changed = memcmp(f->table, table, sizeof f->table) != 0;
    if (!changed && !memcmp(f->before, f->table, sizeof f->table))
        return;
    memcpy(f->before, f->table, sizeof f->table);
    memcpy(f->table, table, sizeof f->table);
    if (changed)
        f->written = 0;
    wish(f);
}

/* card_wire_callbacks.answer */
static void on_answer(void *user, const dxpu_nettlp_answer *a)
{
    front *f = user;
    if (a->what == DXPU_NETTLP_DEVICE) {
        learn_id(f, a->device);
    } else if (a->what == DXPU_NETTLP_BAR4 && a->bar4 && a->bar4 % BAR_ALIGNED == 0) {
        f->bar = a->bar4;
        f->has_bar = true;
    } else if (a->what == DXPU_NETTLP_TABLE) {
        learn_table(f, a->table);
    }
    f->question = a->what % DXPU_NETTLP_TABLE + 1;
    if (f->question != DXPU_NETTLP_BAR4)
        f->ask_ns = 0; /* all three without a pause */
}

/* What an answer may have changed since the card's machine has restarted is asked for again. */
static void ask_card(front *f, uint64_t now)
{
    if (now < f->ask_ns)
        return;
    f->ask_ns = now + ASK_MS * (uint64_t)MILLION;
    card_wire_ask(f->wire, f->question);
}

/* ==== 9  The source =========================================================================== */

/* card_wire_callbacks.tlp */
static void on_tlp(void *user, const dxpu_tlp *t)
{
    front *f = user;
    if (dxpu_tlp_class(t) == DXPU_COMPLETION)
        take_completion(f, t);
    else
        card_request(f, t);
}

/* card_wire_callbacks.room */
static bool on_room(void *user)
{
    const front *f = user;
    return !f->held;
}

static void on_event(evutil_socket_t fd, short what, void *user)
{
    front *f = user;
    (void)fd;
    (void)what;
    card_wire_work(f->wire);
}

/* Also while no channel is up: what the card asks for is refused then, and not left to wait. */
static void on_timer(evutil_socket_t fd, short what, void *user)
{
    front *f = user;
    uint64_t now = dxpu_udp_now_ns();
    if (f->held)
        (void)pass_held(f, now);
    on_event(fd, what, user);
    expire(f, now);
}

static void begin_device(front *f)
{
    enumerate_start(&f->device, BAR0_ADDRESS, card_mps(f));
    f->phase = ENUMERATING;
}

static void start(void *self, uint64_t now)
{
    front *f = self;
    (void)now;
    f->phase = LEARNING;
    f->asked = 0;
    f->written = 0;
    grants_clear(&f->grants);
    wish(f);
    for (unsigned i = 0; i < FETCHES; i++) {
        fetch *x = &f->fetches[i];
        x->state = x->state == ASKED || x->state == FORGOTTEN ? FORGOTTEN : FREE;
    }
}

static void work(void *self, uint64_t now)
{
    front *f = self;
    unsigned phase;
    ask_card(f, now);
    if (f->phase == LEARNING && f->has_bar && f->has_id && now >= f->quiet_ns)
        begin_device(f);
    do {
        phase = f->phase;
        if (!f->asked && (phase == ENUMERATING || phase == FINDING_VECTORS))
            set_up(f, now);
    } while (f->phase != phase);
    if (f->held)
        (void)pass_held(f, now);
    card_wire_work(f->wire);
    expire(f, now);
    if (!send_grants(f))
        return;
    if (f->phase == SERVING)
        write_vectors(f, now);
    answer_device(f, now);
}

static void completion(void *self, const dxpu_tlp *cpl, uint64_t user, bool last, uint64_t now)
{
    front *f = self;
    unsigned index = user & 0xffff;
    if (index != CONFIG_USER) {
        answer_card(f, index, user, cpl, last);
        return;
    }
    if (user != f->asked)
        return;
    f->asked = 0;
    if (f->phase == ENUMERATING)
        enumerate_answer(&f->device, cpl, now);
    else
        vectors_answer(&f->vectors, cpl, now);
}

static bool done(const void *self)
{
    const front *f = self;
    return f->phase == ENUMERATING && f->device.why;
}

static uint64_t next_ns(const void *self)
{
    const front *f = self;
    uint64_t next = f->ask_ns;
    bool expires = f->tags.entries && !card_wire_is_paused(f->wire);
    uint64_t tags_ns = expires ? dxpu_tags_next_ns(&f->tags) : DXPU_NEVER;
    if (f->phase == LEARNING && f->has_bar && f->has_id && f->quiet_ns < next)
        next = f->quiet_ns;
    return tags_ns < next ? tags_ns : next;
}

static void progress(const void *self, char out[64])
{
    static const char *const names[] = { "waiting for the card", "enumerating", "enumerating",
                                         "serving the card" };
    const front *f = self;
    snprintf(out, 64, "%s", names[f->phase]);
}

static void write_report(const void *self, report *r)
{
    const front *f = self;
    report_text(r, "source", f->set->raw ? "rawtlp" : "nettlp");
    report_number(r, "serving", f->phase == SERVING);
#define FRONT_PRINT(name) report_number(r, #name, f->count.name);
    FRONT_COUNTERS(FRONT_PRINT)
#undef FRONT_PRINT
    if (f->wire)
        card_wire_report(f->wire, r);
}

static bool wrong(const void *self, char why[SOURCE_WHY_BYTES])
{
    const front *f = self;
    if (f->device.why)
        snprintf(why, SOURCE_WHY_BYTES, "the device cannot be used: %s", f->device.why);
    return f->device.why != NULL;
}

front *front_open(host_link *link, const front_settings *s)
{
    const card_wire_settings set = { s->raw,
                                     false,
                                     s->spans,
                                     s->peer,
                                     *s->local ? s->local : NULL,
                                     s->tags ? s->tags : (unsigned)TAGS };
    front *f = calloc(1, sizeof *f);
    const card_wire_callbacks cb = { f, on_tlp, on_room, NULL, on_answer };
    if (!f || !(f->fetches = calloc(FETCHES, sizeof *f->fetches))) {
        log_error("out of memory");
        free(f);
        return NULL;
    }
    f->link = link;
    f->set = s;
    f->question = DXPU_NETTLP_BAR4;
    f->quiet_ns = dxpu_udp_now_ns() + answer_ns(f);
    f->bar = s->bar;
    f->has_bar = s->has_bar;
    f->wire = card_wire_open(&set, &cb);
    if (!f->wire) {
        front_close(f);
        return NULL;
    }
    if (s->has_id)
        learn_id(f, (uint16_t)s->id);
    return f;
}

int front_listen(front *f)
{
    const struct timeval every = { 0, TIMER_US };
    struct event_base *base = dxpu_udp_base(f->link->fabric.udp);
    f->timer = event_new(base, -1, EV_PERSIST, on_timer, f);
    f->event = event_new(base, card_wire_descriptor(f->wire), EV_READ | EV_PERSIST, on_event, f);
    if (f->event && f->timer && !event_add(f->event, NULL) && !event_add(f->timer, &every))
        return 0;
    log_error("cannot watch the socket of the card at %s", f->set->peer);
    return -1;
}

void front_close(front *f)
{
    if (!f)
        return;
    if (f->event)
        event_free(f->event);
    if (f->timer)
        event_free(f->timer);
    if (f->wire)
        card_wire_close(f->wire);
    grants_free(&f->grants);
    windows_free(&f->memory);
    free(f->fetches);
    free(f);
}

source front_source(front *f)
{
    source s = { f,       start,    work,         completion, done,
                 next_ns, progress, write_report, wrong,      device_request };
    return s;
}
