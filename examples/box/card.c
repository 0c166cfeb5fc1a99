/* card.c - see card.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Object   2 Presence   3 Requests to the device   4 Its completions
              5 Its requests   6 Its questions   7 Resets   8 Kinds */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "card.h"

#include "card_wire.h"
#include "dxpu_libevent.h"
#include "fabric.h"
#include "function.h"
#include "log.h"
#include "remote.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ==== 1  Object =============================================================================== */

enum {
    READS = 16,     /* of the host at a time; a further one is a probe */
    PROBE = READS,  /* its index */
    ENTRIES = 256,  /* requests whose tags may not be used again yet */
    FETCHES = 64,   /* reads of the device at a time */
    PROBE_MS = 250, /* without a word of the device until it is asked for one */
    WRITES = 64,    /* that the device may not have handled yet; a probe after half of them */
    TICK_MS = 50,
    SILENCE_MS = 2000, /* or as many times the wait for a completion, until it is absent */
    SILENCE_TIMES = 4,
    ANSWER_MS = 500,
    MILLION = 1000000,
    RCB_BYTES = 128,
    MSIX_BAR = 2,
    MSIX_BAR_BYTES = 4096,
    MSIX_PBA = 2048,
    BAR_BYTES = 65536,
    CARD_VENDOR = 0x1af4, /* the range 10f0..10ff of this vendor is open to experiments */
    CARD_DEVICE = 0x10f2,
    CARD_CLASS = 0xff0000
};

/* Where the device has its memory, whatever the host made of BAR 0; a larger BAR begins at its
   size. */
#define CARD_BASE ((uint64_t)1 << 32)

#define CARD_COUNTERS(X)                                                                           \
    X(reads)                                                                                       \
    X(writes)                                                                                      \
    X(read_timeouts)                                                                               \
    X(completions_unexpected)                                                                      \
    X(completions_refused)                                                                         \
    X(requests_refused)                                                                            \
    X(card_reads)                                                                                  \
    X(card_writes)                                                                                 \
    X(interrupts_signaled)                                                                         \
    X(probes)                                                                                      \
    X(lost)

/* A read of the host that waits for the device. */
typedef struct read_job {
    bool used;
    dxpu_tlp t;
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
} read_job;

/* A read of the device, on its way through the host's memory. */
typedef struct fetch_job {
    bool used;
    fn_fetch fetch;
    dxpu_tlp t;
    uint32_t skip; /* from the first dword to the first byte that it asks for */
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
} fetch_job;

typedef struct card {
    fn fn;
    const device_port *port;
    device_settings set;
    device_medium medium;
    card_wire *wire;
    int epoll, timer;
    bool there, explained;
    uint64_t heard_ns;  /* the last time that the device said anything */
    uint64_t asked_ns;  /* the last probe */
    uint64_t paused_ns; /* since when the wire takes nothing; 0: it does */
    uint32_t serial;    /* of requests to it, from a random one on */
    uint64_t base;      /* where it has its memory */
    unsigned in_flight; /* reads */
    bool probing;       /* a probe is not answered yet, */
    uint16_t probe_requester, probe_tag;
    uint32_t covered; /* writes that its answer will confirm */
    uint32_t writes;  /* that are not confirmed */
    dxpu_tags tags;
    dxpu_tag_entry entries[ENTRIES];
    read_job *reads;
    fetch_job *fetches;
#define CARD_FIELD(name) uint64_t name;
    struct {
        CARD_COUNTERS(CARD_FIELD)
    } count;
#undef CARD_FIELD
} card;

static uint64_t answer_ms(const card *c)
{
    return c->set.answer_ms ? c->set.answer_ms : (uint64_t)ANSWER_MS;
}

/* ==== 2  Presence ============================================================================= */

static void report_presence(card *c, bool there)
{
    c->there = there;
    if (c->port->present)
        c->port->present(c->port->user, there);
}

static void forget_work(card *c);

/* It said something that is of this wire. */
static void heard(card *c)
{
    c->heard_ns = dxpu_udp_now_ns();
    if (c->there)
        return;
    log_info("%s at %s is there", c->set.raw_wire ? "rawtlp" : "nettlp", c->set.peer);
    c->explained = false;
    report_presence(c, true);
}

static void look_for_silence(card *c, uint64_t now)
{
    uint64_t ms = answer_ms(c) * SILENCE_TIMES;
    ms = ms > SILENCE_MS ? ms : (uint64_t)SILENCE_MS;
    if (now < c->heard_ns + ms * MILLION)
        return;
    if (!c->explained)
        log_warning("%s at %s answers nothing; asking again", c->set.raw_wire ? "rawtlp" : "nettlp",
                    c->set.peer);
    c->explained = true;
    if (!c->there)
        return;
    c->count.lost++;
    forget_work(c);
    report_presence(c, false);
}

/* ==== 3  Requests to the device =============================================================== */

/* A request of this function's own to what is behind BAR 0: requester ID and tag are no other's of
   a long time (N-12). */
static void to_card(card *c, dxpu_tlp *out, uint8_t type, uint64_t offset)
{
    memset(out, 0, sizeof *out);
    out->type = type;
    out->header_dw = 4;
    out->address = c->base + (offset & ~(uint64_t)3);
    if (type != DXPU_TLP_MRD)
        return;
    c->serial++;
    out->tag = (uint16_t)(c->serial % READS * READS);
    out->requester = (uint16_t)(c->serial / READS);
}

/* False: it cannot be asked now. */
static bool ask(card *c, const dxpu_tlp *t, unsigned index)
{
    if (dxpu_tags_track(&c->tags, t, dxpu_udp_now_ns(), index) != DXPU_OK)
        return false;
    (void)card_wire_send(c->wire, t, true); /* if it is lost here, as if on the way */
    return true;
}

/* A read of no byte: it changes nothing, and whatever speaks PCI Express answers it, behind the
   writes before it.  So the device is not sent more of them than its sockets hold, which the wire
   has no credits for. */
static void probe(card *c)
{
    dxpu_tlp t;
    if (c->probing)
        return;
    to_card(c, &t, DXPU_TLP_MRD, 0);
    t.length_dw = 1;
    c->covered = c->writes;
    c->probing = ask(c, &t, PROBE);
    c->probe_requester = t.requester;
    c->probe_tag = t.tag;
    c->count.probes += c->probing;
}

/* Answered, or given up. */
static void probe_is_over(card *c)
{
    c->probing = false;
    c->writes -= c->covered;
    c->covered = 0;
    if (c->writes >= WRITES / 2)
        probe(c);
}

static void probe_the_quiet(card *c, uint64_t now)
{
    if (now < c->heard_ns + PROBE_MS * (uint64_t)MILLION ||
        now < c->asked_ns + PROBE_MS * (uint64_t)MILLION)
        return;
    c->asked_ns = now;
    probe(c);
}

static void abort_read(card *c, read_job *j)
{
    const dxpu_bytes none = { NULL, 0 };
    j->used = false;
    c->in_flight--;
    pci_complete(&c->fn.pci, &j->t, DXPU_CPL_CA, none);
}

/* MSI-X, which is here. */
static void read_msix(card *c, const dxpu_tlp *t, uint64_t offset)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
    for (uint32_t i = 0; i < t->length_dw; i++) {
        uint32_t value = 0;
        (void)fn_msix_read(&c->fn, MSIX_BAR, offset + i * 4, &value);
        dxpu_put_le32(data + (size_t)i * 4, value);
    }
    pci_complete_read(&c->fn.pci, t, data);
}

static read_job *free_read(const card *c)
{
    for (unsigned i = 0; i < READS; i++) {
        if (!c->reads[i].used)
            return &c->reads[i];
    }
    return NULL;
}

static void read_bar(card *c, const dxpu_tlp *t)
{
    uint64_t offset;
    int bar = fn_locate(&c->fn, t, &offset);
    read_job *j = free_read(c);
    dxpu_tlp out;
    if (bar < 0 || !c->there || !j) {
        fn_unsupported(&c->fn, t);
        return;
    }
    if (bar == MSIX_BAR) {
        read_msix(c, t, offset);
        return;
    }
    c->count.reads++;
    j->used = true;
    c->in_flight++;
    j->t = *t;
    j->t.payload.ptr = NULL;
    j->t.payload.len = 0;
    memset(j->data, 0, t->length_dw * 4u);
    to_card(c, &out, DXPU_TLP_MRD, offset);
    out.length_dw = t->length_dw;
    out.first_be = t->first_be;
    out.last_be = t->last_be;
    if (!ask(c, &out, (unsigned)(j - c->reads)))
        abort_read(c, j);
}

static void write_bar(card *c, const dxpu_tlp *t)
{
    uint64_t offset = 0;
    int bar = fn_locate(&c->fn, t, &offset);
    dxpu_tlp out;
    if (fn_refuse_write(&c->fn, t, bar) || !c->there)
        return;
    for (uint32_t i = 0; bar == MSIX_BAR && i < t->length_dw; i++)
        (void)fn_msix_write(&c->fn, bar, offset + i * 4,
                            dxpu_get_le32(t->payload.ptr + (size_t)i * 4), pci_enabled(t, i));
    if (bar == MSIX_BAR)
        return;
    c->count.writes++;
    to_card(c, &out, DXPU_TLP_MWR, offset);
    out.length_dw = t->length_dw;
    out.first_be = t->first_be;
    out.last_be = t->last_be;
    out.payload = t->payload;
    (void)card_wire_send(c->wire, &out, true);
    if (++c->writes >= WRITES / 2)
        probe(c);
}

/* What is not answered in time: the host has waited long enough for a lost datagram.  Answers may
   wait among requests that there is no room for, but not longer than an answer may. */
static void expire(card *c, uint64_t now)
{
    dxpu_request r;
    if (!card_wire_is_paused(c->wire)) {
        c->paused_ns = 0;
    } else {
        c->heard_ns = now; /* it says more than there is room for */
        c->paused_ns = c->paused_ns ? c->paused_ns : now;
        if (now - c->paused_ns < answer_ms(c) * MILLION)
            return;
    }
    while (dxpu_tags_expire(&c->tags, now, &r)) {
        if (r.user == PROBE) {
            probe_is_over(c);
            continue;
        }
        c->count.read_timeouts++;
        abort_read(c, &c->reads[r.user]);
    }
}

/* ==== 4  Its completions ====================================================================== */

/* libtlp answers a read of no byte as one of four: nothing of its data is used, so any bytes do. */
static bool is_of_probe(const card *c, const dxpu_tlp *t)
{
    return c->probing && t->requester == c->probe_requester && t->tag == c->probe_tag;
}

static void take_completion(card *c, const dxpu_tlp *t)
{
    uint32_t skip = t->lower_addr & 3u, at, span;
    dxpu_request r;
    read_job *j;
    int rc = dxpu_tags_complete(&c->tags, t, &r);
    if (rc == DXPU_E_CPL_BYTES && is_of_probe(c, t)) {
        (void)dxpu_tags_drop(&c->tags, t->requester, t->tag);
        heard(c);
        probe_is_over(c);
        return;
    }
    if (rc != DXPU_OK) {
        c->count.completions_unexpected++;
        return;
    }
    heard(c);
    if (r.user == PROBE) {
        probe_is_over(c);
        return;
    }
    j = &c->reads[r.user];
    if (t->status != DXPU_CPL_SC || t->ep) {
        c->count.completions_refused++;
        if (!r.done)
            (void)dxpu_tags_drop(&c->tags, t->requester, t->tag);
        abort_read(c, j);
        return;
    }
    dxpu_be_to_range(j->t.first_be, j->t.last_be, j->t.length_dw, &at, &span);
    if (span) /* what tags.complete() let pass fits into the request and the payload */
        memcpy(j->data + at + r.offset_bytes, t->payload.ptr + skip, r.bytes);
    if (!r.done)
        return;
    j->used = false;
    c->in_flight--;
    pci_complete_read(&c->fn.pci, &j->t, j->data);
}

/* ==== 5  Its requests ========================================================================= */

static bool may_master(const card *c)
{
    return c->there && fn_masters(&c->fn);
}

static void refuse(card *c, const dxpu_tlp *t)
{
    dxpu_tlp cpl;
    c->count.requests_refused++;
    if (dxpu_tlp_class(t) != DXPU_NONPOSTED)
        return;
    dxpu_tlp_completion(t, 0, DXPU_CPL_UR, &cpl);
    (void)card_wire_send(c->wire, &cpl, false);
}

/* fn_fetch.done */
static void fetched(void *user, fn_fetch *x)
{
    card *c = user;
    fetch_job *j = x->owner;
    dxpu_cpl_split split;
    dxpu_tlp cpl;
    uint64_t at;
    j->used = false;
    if (x->failed ||
        dxpu_cpl_split_start(&split, &j->t, RCB_BYTES, card_wire_payload(c->wire)) != DXPU_OK) {
        refuse(c, &j->t);
        return;
    }
    dxpu_tlp_completion(&j->t, 0, DXPU_CPL_SC, &cpl);
    while (dxpu_cpl_split_next(&split, &cpl, &at)) {
        cpl.payload.ptr = j->data + (at - j->t.address);
        cpl.payload.len = cpl.length_dw * 4u;
        (void)card_wire_send(c->wire, &cpl, false);
    }
}

/* Of a read of no byte one is read all the same: it is answered behind the writes before it. */
static void card_reads(card *c, const dxpu_tlp *t)
{
    fetch_job *j = NULL;
    uint32_t bytes;
    for (unsigned i = 0; i < FETCHES && !j; i++)
        j = c->fetches[i].used ? NULL : &c->fetches[i];
    if (!j) { /* room() was asked before */
        refuse(c, t);
        return;
    }
    c->count.card_reads++;
    memset(&j->fetch, 0, sizeof j->fetch);
    j->used = true;
    j->t = *t;
    dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &j->skip, &bytes);
    memset(j->data, 0, t->length_dw * 4u);
    j->fetch.address = t->address + j->skip;
    j->fetch.to = j->data + j->skip;
    j->fetch.bytes = bytes ? bytes : 1;
    j->fetch.done = fetched;
    j->fetch.owner = j;
    fn_fetch_start(&c->fn, &j->fetch);
}

/* An interrupt is a write of what the host programmed into the table, which may be masked. */
static bool is_interrupt(card *c, const dxpu_tlp *t)
{
    uint32_t data;
    if (t->length_dw != 1 || t->first_be != 0xf)
        return false;
    data = dxpu_get_le32(t->payload.ptr);
    for (unsigned i = 0; i < fn_msix_vectors(&c->fn); i++) {
        const uint32_t *entry = &c->fn.table[i * 4];
        uint64_t address = (uint64_t)entry[1] << 32 | entry[0];
        if (address && address == t->address && entry[2] == data) {
            c->count.interrupts_signaled++;
            return fn_msix_signal(&c->fn, i);
        }
    }
    return false;
}

/* Runs of enabled bytes: only requests of one or two dwords have several. */
static void card_writes(card *c, const dxpu_tlp *t)
{
    uint32_t at, bytes, end;
    c->count.card_writes++;
    if (is_interrupt(c, t))
        return;
    dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &at, &bytes);
    end = at + bytes;
    if (t->length_dw > 2) {
        fn_write(&c->fn, t->address + at, t->payload.ptr + at, bytes);
        return;
    }
    while (at < end) {
        uint32_t run = at;
        while (run < end && (pci_enabled(t, run / 4) >> run % 4 * 8 & 1))
            run++;
        if (run > at)
            fn_write(&c->fn, t->address + at, t->payload.ptr + at, run - at);
        at = run + (run == at);
    }
}

static void card_request(card *c, const dxpu_tlp *t)
{
    heard(c);
    if (!may_master(c) || t->at || t->prefix_count || t->ep)
        refuse(c, t);
    else if (t->type == DXPU_TLP_MRD)
        card_reads(c, t);
    else if (t->type == DXPU_TLP_MWR)
        card_writes(c, t);
    else
        refuse(c, t);
}

/* card_wire_callbacks.tlp */
static void on_tlp(void *user, const dxpu_tlp *t)
{
    card *c = user;
    if (dxpu_tlp_class(t) == DXPU_COMPLETION)
        take_completion(c, t);
    else
        card_request(c, t);
}

/* card_wire_callbacks.room: what is refused needs none. */
static bool on_room(void *user)
{
    const card *c = user;
    if (!may_master(c))
        return true;
    for (unsigned i = 0; i < FETCHES; i++) {
        if (!c->fetches[i].used)
            return fn_room(&c->fn);
    }
    return false;
}

/* ==== 6  Its questions ======================================================================== */

/* card_wire_callbacks.question */
static void on_question(void *user, dxpu_nettlp_answer *a)
{
    card *c = user;
    heard(c);
    a->bar4 = c->base;
    a->device = c->fn.pci.bdf;
    for (unsigned i = 0; i < c->fn.set.msix; i++) {
        a->table[i].address = (uint64_t)c->fn.table[i * 4 + 1] << 32 | c->fn.table[i * 4];
        a->table[i].data = c->fn.table[i * 4 + 2];
    }
}

/* ==== 7  Resets =============================================================================== */

/* The wire has no reset: what the device still sends of the time before matches nothing, or is
   refused until the next driver lets it master; what has arrived already is dropped. */
static void forget_work(card *c)
{
    dxpu_request r;
    while (dxpu_tags_pop(&c->tags, &r))
        continue;
    for (unsigned i = 0; i < READS; i++)
        c->reads[i].used = false;
    c->in_flight = 0;
    c->probing = false;
    c->writes = c->covered = 0;
    for (unsigned i = 0; i < FETCHES; i++) {
        if (c->fetches[i].used)
            fn_fetch_cancel(&c->fn, &c->fetches[i].fetch);
        c->fetches[i].used = false;
    }
}

/* fn.flr */
static void function_level_reset(void *user)
{
    card *c = user;
    forget_work(c);
    card_wire_forget(c->wire);
    fn_reset(&c->fn);
}

static void link_reset(card *c)
{
    forget_work(c);
    card_wire_forget(c->wire);
    fn_link_reset(&c->fn);
}

/* ==== 8  Kinds ================================================================================ */

static void card_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    card *c = device;
    (void)bytes;
    if (t->type == DXPU_TLP_MRD)
        read_bar(c, t);
    else if (t->type == DXPU_TLP_MWR)
        write_bar(c, t);
    else
        (void)fn_tlp(&c->fn, t);
    (void)fn_fetch_ask(&c->fn);
}

static void card_tick(void *device, uint64_t now_ns)
{
    card *c = device;
    uint64_t many;
    (void)!read(c->timer, &many, sizeof many);
    fn_tick(&c->fn, now_ns);
    card_wire_work(c->wire);
    expire(c, now_ns);
    probe_the_quiet(c, now_ns);
    look_for_silence(c, now_ns);
    (void)fn_fetch_ask(&c->fn);
}

static void card_event(void *device, const dxpu_event *e)
{
    if (e->type == DXPU_EVENT_HOT_RESET && (e->flags & DXPU_EVENT_ON))
        link_reset(device);
}

static void card_reset(void *device)
{
    card *c = device;
    link_reset(c);
    fn_power_on(&c->fn);
}

static void card_destroy(void *device)
{
    card *c = device;
    if (c->wire)
        card_wire_close(c->wire);
    if (c->timer >= 0)
        (void)close(c->timer);
    if (c->epoll >= 0)
        (void)close(c->epoll);
    free(c->reads);
    free(c->fetches);
    free(c);
}

static void describe(const card *c, fn_setup *s)
{
    const device_settings *set = &c->set;
    uint64_t payload = card_wire_payload(c->wire);
    memset(s, 0, sizeof *s);
    s->vendor = set->card_id ? (uint16_t)(set->card_id >> 16) : CARD_VENDOR;
    s->device = set->card_id ? (uint16_t)set->card_id : CARD_DEVICE;
    s->class_revision = (uint32_t)(set->card_class ? set->card_class : CARD_CLASS) << 8;
    s->bar[0].bytes = set->bar_bytes ? set->bar_bytes : (uint64_t)BAR_BYTES;
    s->bar[0].flags = PCI_BAR_64 | PCI_BAR_PREFETCHABLE;
    s->bar[MSIX_BAR].bytes = MSIX_BAR_BYTES;
    s->bar[MSIX_BAR].flags = PCI_BAR_64;
    s->msix = CARD_VECTORS_MAX;
    s->msix_table = MSIX_BAR;
    s->msix_pba = MSIX_PBA | MSIX_BAR;
    s->mps_bytes = set->mps_bytes < payload ? set->mps_bytes : payload;
    s->mrrs_bytes = set->mrrs_bytes;
    s->timeout_ns = set->timeout_ns;
    s->errors = true;
    s->serial = set->identity;
    s->no_push = true;
}

/* Its sockets and its timer, in one set of events. */
static bool open_events(card *c, bool raw)
{
    const card_wire_callbacks cb = { c, on_tlp, on_room, on_question, NULL };
    const card_wire_settings s = {
        raw,         true,         c->set.spans,
        c->set.peer, c->set.local, c->set.wire_tags ? (unsigned)c->set.wire_tags : 16u
    };
    const struct itimerspec every = { { 0, TICK_MS * 1000000l }, { 0, 1 } };
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = EPOLLIN;
    c->wire = card_wire_open(&s, &cb);
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return c->wire && c->epoll >= 0 && c->timer >= 0 &&
           !timerfd_settime(c->timer, 0, &every, NULL) &&
           !epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->timer, &e) &&
           !epoll_ctl(c->epoll, EPOLL_CTL_ADD, card_wire_descriptor(c->wire), &e);
}

static void *card_create(const device_settings *set, const device_port *port, bool raw)
{
    card *c = calloc(1, sizeof *c);
    fn_setup s;
    if (!c)
        return NULL;
    c->set = *set;
    c->set.raw_wire = raw;
    c->port = port;
    c->epoll = c->timer = -1;
    c->medium = remote_medium_of(set->peer, set->stateless);
    c->reads = calloc(READS, sizeof *c->reads);
    c->fetches = calloc(FETCHES, sizeof *c->fetches);
    if (!c->reads || !c->fetches || !open_events(c, raw) ||
        dxpu_tags_init(&c->tags, c->entries, ENTRIES, 0, 0, answer_ms(c) * MILLION) != DXPU_OK) {
        card_destroy(c);
        return NULL;
    }
    describe(c, &s);
    c->heard_ns = dxpu_udp_now_ns() - PROBE_MS * (uint64_t)MILLION; /* it is asked at once */
    c->serial = fabric_random();
    c->base = s.bar[0].bytes > CARD_BASE ? s.bar[0].bytes : CARD_BASE;
    fn_init(&c->fn, &s, port, c, function_level_reset);
    report_presence(c, false);
    return c;
}

static void *nettlp_create(const device_settings *s, const device_port *port)
{
    return card_create(s, port, false);
}

static void *rawtlp_create(const device_settings *s, const device_port *port)
{
    return card_create(s, port, true);
}

static void card_report(void *device, report *out)
{
    const card *c = device;
    report_number(out, "present", c->there);
#define CARD_PRINT(name) report_number(out, #name, c->count.name);
    CARD_COUNTERS(CARD_PRINT)
#undef CARD_PRINT
    card_wire_report(c->wire, out);
    fn_report(&c->fn, out);
}

static int card_descriptor(const void *device)
{
    return ((const card *)device)->epoll;
}

/* Reads that wait for the device hold up no write. */
static bool card_busy(const void *device, bool posted)
{
    const card *c = device;
    return c->there && (c->writes >= WRITES || (!posted && c->in_flight >= READS));
}

static bool card_ids(const void *device, device_ids *out)
{
    const card *c = device;
    out->vendor = c->fn.set.vendor;
    out->device = c->fn.set.device;
    out->class_code = c->fn.set.class_revision >> 8;
    return true;
}

static int card_wipe(void *device, bool begin)
{
    const card *c = device;
    (void)begin;
    if (c->set.stateless)
        return DEVICE_WIPED;
    log_warning("%s: the box can neither reset nor erase this device; add stateless to its --slot "
                "if no data outlive a lease",
                c->set.peer);
    return DEVICE_UNWIPED;
}

static uint64_t card_medium(void *device, bool *pristine)
{
    const card *c = device;
    *pristine = c->medium.pristine;
    return c->medium.number;
}

#define CARD_KIND(word, make)                                                                      \
    {                                                                                              \
        .name = word, .create = make, .destroy = card_destroy, .tlp = card_tlp,                    \
        .event = card_event, .reset = card_reset, .report = card_report, .tick = card_tick,        \
        .wipe = card_wipe, .medium = card_medium, .descriptor = card_descriptor,                   \
        .busy = card_busy, .ids = card_ids                                                         \
    }

const device_kind nettlp_kind = CARD_KIND("nettlp", nettlp_create);
const device_kind rawtlp_kind = CARD_KIND("rawtlp", rawtlp_create);
