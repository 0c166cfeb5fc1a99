/* slots.c - see slots.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 From the device   2 To the device   3 Leases   4 Life   5 Screens
              6 Statistics */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "slots.h"
#include "screenshot.h"
#include "state.h"

#include <stdlib.h>
#include <time.h>

enum {
    TLPS_PER_TURN = 256, /* then other slots and the network have their turn */
    WAITING_MAX = 512    /* TLPs of a device; with more it is given no further request */
};

/* ==== 1  From the device ====================================================================== */

static void queue(slot *s, dxpu_bytes tlp)
{
    waiting_tlp *w = malloc(sizeof *w + tlp.len);
    if (!w) {
        fprintf(stderr, "dxpu-box: out of memory for a completion\n");
        abort(); /* a lost completion would be a silent fault at the host */
    }
    w->next = NULL;
    w->len = tlp.len;
    memcpy(w->bytes, tlp.ptr, tlp.len);
    *s->tail = w;
    s->tail = &w->next;
    s->waiting++;
    s->waited++;
}

static void clear_queue(slot *s)
{
    while (s->head) {
        waiting_tlp *w = s->head;
        s->head = w->next;
        s->waiting--;
        free(w);
        s->dropped++;
    }
    s->tail = &s->head;
}

static int submit(slot *s, dxpu_bytes tlp, uint64_t now)
{
    return dxpu_channel_submit(&s->active->ch, tlp, now, 0);
}

/* device_port.emit */
static void device_emits(void *user, dxpu_bytes tlp)
{
    slot *s = user;
    int rc;
    s->emitted++;
    if (!s->active) {
        s->dropped++;
        return;
    }
    rc = s->head ? DXPU_E_AGAIN : submit(s, tlp, dxpu_udp_now_ns());
    if (rc == DXPU_E_AGAIN)
        queue(s, tlp);
    else if (rc != DXPU_OK)
        s->dropped++; /* the channel is over */
}

/* device_port.waiting */
static unsigned device_waits(void *user)
{
    return ((const slot *)user)->waiting;
}

/* Submit what waits; true when nothing does any more. */
static bool drain_queue(slot *s, uint64_t now)
{
    while (s->head) {
        waiting_tlp *w = s->head;
        dxpu_bytes tlp = { w->bytes, w->len };
        int rc = submit(s, tlp, now);
        if (rc == DXPU_E_AGAIN)
            return false;
        if (rc != DXPU_OK)
            s->dropped++;
        s->head = w->next;
        s->waiting--;
        if (!s->head)
            s->tail = &s->head;
        free(w);
    }
    return true;
}

/* ==== 2  To the device ======================================================================== */

static void record(box *b, dxpu_bytes tlp)
{
    struct timespec t;
    if (!b->record)
        return;
    clock_gettime(CLOCK_REALTIME, &t);
    (void)dxpu_pcap_write_tlp(b->record, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec,
                              tlp);
}

/* Give the next TLP of a class to the device; false when there is none. */
static bool take_one(box *b, slot *s, unsigned cls, uint64_t now)
{
    fabric_channel *c = s->active;
    dxpu_delivery d = dxpu_channel_peek(&c->ch, cls);
    dxpu_tlp t;
    if (!d.tlp.len)
        return false;
    record(b, d.tlp);
    s->taken[cls]++;
    if (dxpu_tlp_decode(d.tlp, &t) == DXPU_OK)
        s->kind->tlp(s->device, &t, d.tlp);
    else
        s->malformed++;
    (void)dxpu_channel_take(&c->ch, cls, now); /* peek() has just shown it */
    return true;
}

static bool take_event(slot *s)
{
    dxpu_event e;
    if (!dxpu_channel_peek_event(&s->active->ch, &e))
        return false;
    if (e.type)
        s->kind->event(s->device, &e);
    (void)dxpu_channel_take_event(&s->active->ch);
    return true;
}

bool slots_work(void *user, fabric_channel *c, uint64_t now_ns)
{
    box *b = user;
    slot *s = &b->slots[c->slot - 1];
    if (s->active != c)
        return false;
    (void)drain_queue(s, now_ns);
    if (s->kind->tick)
        s->kind->tick(s->device, now_ns);
    for (unsigned n = 0; n < TLPS_PER_TURN; n++) {
        bool any = take_event(s);
        any |= take_one(b, s, DXPU_POSTED, now_ns);
        /* bounds what waits, and a device that streams still answers */
        if (drain_queue(s, now_ns) || s->waiting < WAITING_MAX)
            any |= take_one(b, s, DXPU_NONPOSTED, now_ns);
        any |= take_one(b, s, DXPU_COMPLETION, now_ns);
        if (!any)
            return false;
    }
    return true;
}

/* ==== 3  Leases =============================================================================== */

/* Would this open get the slot?  The table is as before: only an incarnation that comes up, which
   needs an answer to a random number, changes a lease. */
uint8_t slots_welcome(void *user, const dxpu_offer *offer, dxpu_channel_config *cfg)
{
    box *b = user;
    uint16_t number = offer->destination.slot;
    dxpu_box_entry *e = dxpu_box_slot(&b->table, number), before;
    int rc;
    (void)cfg;
    if (!e) {
        b->refused_slot++;
        return DXPU_REASON_NO_SLOT;
    }
    before = *e;
    rc = dxpu_box_bind(&b->table, number, offer->source.node, offer->source.slot, 0, offer->epoch);
    *e = before;
    if (rc == DXPU_OK)
        return DXPU_REASON_NONE;
    if (rc == DXPU_E_EPOCH)
        b->refused_epoch++;
    else
        b->refused_busy++;
    return rc == DXPU_E_EPOCH     ? DXPU_REASON_EPOCH
           : rc == DXPU_E_OVERLAP ? DXPU_REASON_BUSY
                                  : DXPU_REASON_NO_SLOT;
}

/* Make the lease of c the slot's.  DXPU_REASON_NONE, or why not (another came up meanwhile). */
static uint8_t bind_slot(box *b, const fabric_channel *c)
{
    const dxpu_channel_config *cfg = &c->ch.cfg;
    dxpu_box_entry *e = dxpu_box_slot(&b->table, c->slot);
    uint64_t seen = e->epoch_seen;
    int rc = dxpu_box_bind(&b->table, c->slot, cfg->remote.node, cfg->remote.slot, 0, cfg->epoch);
    if (rc != DXPU_OK)
        return rc == DXPU_E_EPOCH ? DXPU_REASON_EPOCH : DXPU_REASON_BUSY;
    e->channel = c->id;
    if (b->state_file && e->epoch_seen != seen && state_write(b->state_file, &b->table)) {
        e->used = false; /* a lease that could be forgotten must not be granted */
        return DXPU_REASON_BUSY;
    }
    return DXPU_REASON_NONE;
}

/* ==== 4  Life ================================================================================= */

static void say(const box *b, const fabric_channel *c, const char *what, const char *why)
{
    char text[DXPU_UDP_TEXT_BYTES];
    if (!b->quiet)
        fprintf(stderr, "dxpu-box: slot %u: %s node %u at %s, epoch %llu%s%s\n", c->slot, what,
                c->ch.cfg.remote.node, dxpu_udp_print(&c->path[0].remote, text),
                (unsigned long long)c->ch.cfg.epoch, why ? ": " : "", why ? why : "");
}

void slots_up(void *user, fabric_channel *c, uint64_t now_ns)
{
    box *b = user;
    slot *s = &b->slots[c->slot - 1];
    uint8_t reason = bind_slot(b, c);
    (void)now_ns;
    if (reason != DXPU_REASON_NONE) {
        say(b, c, "refused", dxpu_reason_text(reason));
        dxpu_channel_reset(&c->ch, reason);
        return;
    }
    if (s->active)
        dxpu_channel_reset(&s->active->ch, DXPU_REASON_REPLACED);
    s->active = NULL;
    clear_queue(s);
    s->kind->reset(s->device); /* before the first TLP of the new incarnation is looked at */
    s->active = c;
    say(b, c, "lent to", NULL);
}

void slots_down(void *user, fabric_channel *c, uint64_t now_ns)
{
    box *b = user;
    slot *s = &b->slots[c->slot - 1];
    const char *why = dxpu_error_text(dxpu_channel_error(&c->ch));
    (void)now_ns;
    if (s->active != c) {
        if (c->up)
            say(b, c, "an incarnation is over of", why);
        return;
    }
    s->active = NULL;
    clear_queue(s);
    s->kind->reset(s->device); /* nothing is left for whoever comes next */
    /* Only the host gives a lease back.  After silence the slot stays its own, so that nobody with
       the same epoch can slip in while it may still be alive. */
    if (dxpu_channel_state(&c->ch) == DXPU_STATE_CLOSED) {
        (void)dxpu_box_release(&b->table, c->slot);
        say(b, c, "given back by", dxpu_reason_text(dxpu_channel_reason(&c->ch)));
    } else {
        say(b, c, "lost", why);
    }
}

/* FILE, or FILE.2 and so on for further slots. */
static const char *file_of_slot(const char *file, unsigned index, char *name, size_t size)
{
    if (index == 0)
        return file;
    snprintf(name, size, "%s.%u", file, index + 1);
    return name;
}

static int open_slot(box *b, unsigned index, const device_kind *kind, const device_settings *set)
{
    slot *s = &b->slots[index];
    device_settings own = *set;
    char file[4096];
    own.identity = (uint64_t)b->node << 16 | (index + 1);
    if (set->file) /* two devices never share their blocks */
        own.file = file_of_slot(set->file, index, file, sizeof file);
    s->box = b;
    s->kind = kind;
    s->tail = &s->head;
    s->port.user = s;
    s->port.emit = device_emits;
    s->port.waiting = device_waits;
    own.timeout_ns = DXPU_NEVER; /* the channel's hold ends what is never answered */
    s->device = kind->create(&own, &s->port);
    if (!s->device)
        return -1;
    dxpu_box_slot(&b->table, (uint16_t)(index + 1))->valid = true;
    return 0;
}

int slots_open(box *b, unsigned count, const device_kind *kind, const device_settings *s)
{
    b->count = count;
    b->slots = calloc(count, sizeof *b->slots);
    b->entries = calloc(count, sizeof *b->entries);
    if (!b->slots || !b->entries || dxpu_box_init(&b->table, b->entries, count) != DXPU_OK) {
        fprintf(stderr, "dxpu-box: out of memory for %u slots\n", count);
        return -1;
    }
    for (unsigned i = 0; i < count; i++) {
        if (open_slot(b, i, kind, s)) {
            fprintf(stderr, "dxpu-box: no memory for slot %u; lower --memory or --slots\n", i + 1);
            return -1;
        }
    }
    return b->state_file ? state_read(b->state_file, &b->table) : 0;
}

void slots_close(box *b)
{
    for (unsigned i = 0; b->slots && i < b->count; i++) {
        if (b->slots[i].device) {
            clear_queue(&b->slots[i]);
            b->slots[i].kind->destroy(b->slots[i].device);
        }
    }
    free(b->slots);
    free(b->entries);
}

/* ==== 5  Screens ============================================================================== */

static int screenshot_slot(slot *s, unsigned index, const char *file)
{
    char name[4096], why[SCREENSHOT_WHY_BYTES] = "nothing is shown";
    unsigned width, height;
    int rc = -1;
    uint8_t *rgb = s->kind->picture ? s->kind->picture(s->device, &width, &height) : NULL;
    file = file_of_slot(file, index, name, sizeof name);
    if (rgb)
        rc = screenshot_write(file, rgb, width, height, why);
    free(rgb);
    if (rc)
        fprintf(stderr, "dxpu-box: slot %u: no screenshot: %s\n", index + 1, why);
    else if (!s->box->quiet)
        fprintf(stderr, "dxpu-box: slot %u: %u x %u, %s\n", index + 1, width, height, file);
    return rc;
}

int slots_screenshot(box *b, const char *file)
{
    int rc = 0;
    for (unsigned i = 0; i < b->count; i++)
        rc |= screenshot_slot(&b->slots[i], i, file);
    return rc;
}

/* ==== 6  Statistics =========================================================================== */

static void report_slot(const box *b, const slot *s, report *r)
{
    char name[16];
    unsigned number = (unsigned)(s - b->slots) + 1;
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
    report_number(r, "dropped", s->dropped);
    report_open(r, s->kind->name);
    s->kind->report(s->device, r);
    report_close(r);
    report_close(r);
}

void slots_report(box *b, report *r)
{
    uint64_t delivered = 0;
    for (unsigned i = 0; i < b->count; i++) {
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
            delivered += b->slots[i].taken[cls];
    }
    report_number(r, "delivered", delivered);
    report_number(r, "refused_epoch", b->refused_epoch);
    report_number(r, "refused_busy", b->refused_busy);
    report_number(r, "refused_slot", b->refused_slot);
    for (unsigned i = 0; i < b->count; i++)
        report_slot(b, &b->slots[i], r);
    fabric_report(&b->fabric, r);
}
