/* guest.c - see guest.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Accesses that wait for an answer   2 What devices may reach   3 Configuration
              4 Memory windows   5 What the client does   6 What slots do   7 Lines
              8 Opening */
#include "guest.h"
#include "log.h"
#include "dxpu_libevent.h"
#include "vmd.h"

#include "dxpu_vfio_user.h"
#include "dxpu_vswitch.h"

#include <errno.h>
#include <stdlib.h>

enum {
    ACCESSES = 256, /* unanswered at a time */
    PORTS_MAX = DXPU_VSWITCH_SLOTS_MAX + 2,
    MARGIN_NS = 100000000,
    ACCESS_BYTES = 64,  /* the largest that a processor makes */
    REQUEST_BYTES = 64, /* of one TLP made from it; PCIe's smallest Read Completion Boundary */
    LINK_SPEED = 4,     /* 16 GT/s */
    LINK_WIDTH = 16
};

/* One access of the guest that TLPs were made of. */
typedef struct guest_access {
    uint64_t token;    /* 0 while the place is free */
    uint64_t until_ns; /* QEMU breaks off after 5 s, wherever its request waits */
    uint32_t bytes;
    uint32_t tlps;       /* not yet completed */
    uint16_t generation; /* of this place: an answer to an earlier access is dropped */
    uint8_t data[ACCESS_BYTES];
} guest_access;

struct guest {
    const guest_settings *set;
    uint64_t hold_ns;
    dxpu_vfu *vfu;
    dxpu_vswitch vs;
    vmd vmd;
    slot_host host;
    guest_slot *slots; /* [set->slots] */
    windows memory;    /* of the guest, as the client gave it last */
    uint32_t memory_changes;
    bool reach_changed; /* what devices may reach, and their boxes were not notified */
    guest_access accesses[ACCESSES];
    unsigned next_access;
    uint64_t deadline_ns;  /* no access in `accesses` is due before */
    bool owed;             /* there was no room for an interrupt of the switch */
    uint64_t line_address; /* of the first byte in line */
    uint32_t line_bytes;   /* written and not yet sent; 0: none */
    uint8_t line[REQUEST_BYTES];
    uint64_t config_reads, config_writes, memory_reads, memory_writes, combined, unclaimed, resets;
    uint64_t timeouts;
};

/* ==== 1  Accesses that wait for an answer ===================================================== */

/* What a completion needs to know, in the 64 bits that come back with it. */
typedef struct request {
    uint8_t access;
    uint16_t generation; /* of the access */
    uint8_t at;          /* place of the request's first byte in access.data */
    uint8_t bytes;       /* of the access that it covers; 0 for a write */
    uint8_t skip;        /* configuration: bytes of the dword before them */
} request;

static uint64_t pack(request r)
{
    return (uint64_t)r.access << 48 | (uint64_t)r.generation << 32 | (uint64_t)r.at << 16 |
           (uint64_t)r.bytes << 8 | r.skip;
}

static request unpack(uint64_t v)
{
    request r = { (uint8_t)(v >> 48), (uint16_t)(v >> 32), (uint8_t)(v >> 16), (uint8_t)(v >> 8),
                  (uint8_t)v };
    return r;
}

/* A part of an access; of a write (NULL) nothing comes back. */
static request request_of(const guest *g, const guest_access *a, uint32_t at, uint32_t bytes,
                          uint32_t skip)
{
    request r = { 0 };
    if (a) {
        r.access = (uint8_t)(a - g->accesses);
        r.generation = a->generation;
        r.at = (uint8_t)at;
        r.bytes = (uint8_t)bytes;
        r.skip = (uint8_t)skip;
    }
    return r;
}

/* All ones is what a processor reads where no device answers.  NULL: too many wait. */
static guest_access *access_new(guest *g, uint64_t token, uint32_t bytes)
{
    for (unsigned i = 0; i < ACCESSES; i++) {
        guest_access *a = &g->accesses[g->next_access++ % ACCESSES];
        if (a->token == 0) {
            a->token = token;
            a->bytes = bytes;
            a->tlps = 0;
            a->generation++;
            memset(a->data, 0xff, sizeof a->data);
            return a;
        }
    }
    return NULL;
}

static void access_answer(guest *g, guest_access *a)
{
    (void)dxpu_vfu_reply_read(g->vfu, a->token, a->data, a->bytes); /* a client gone: counted */
    a->token = 0;
    a->tlps = 0;
}

static void access_done(guest *g, guest_access *a)
{
    if (a->tlps == 0) {
        access_answer(g, a);
        return;
    }
    a->until_ns = dxpu_udp_now_ns() + g->hold_ns + MARGIN_NS;
    if (a->until_ns < g->deadline_ns)
        g->deadline_ns = a->until_ns;
}

/* Answer what has waited for long enough, for the device, for room or for another slot (V-17). */
static void accesses_expire(guest *g, uint64_t now)
{
    if (now < g->deadline_ns)
        return;
    g->deadline_ns = DXPU_NEVER;
    for (unsigned i = 0; i < ACCESSES; i++) {
        guest_access *a = &g->accesses[i];
        if (!a->token)
            continue;
        if (now >= a->until_ns) {
            g->timeouts++;
            access_answer(g, a);
        } else if (a->until_ns < g->deadline_ns) {
            g->deadline_ns = a->until_ns;
        }
    }
}

/* The client that asked is gone. */
static void accesses_forget(guest *g)
{
    for (unsigned i = 0; i < ACCESSES; i++)
        g->accesses[i].token = g->accesses[i].tlps = 0;
}

/* A completion's bytes to their place.  Everything the completer chose is bounded here. */
static void access_fill(guest_access *a, request r, const dxpu_tlp *cpl)
{
    uint32_t from = r.skip, to = r.at, bytes = r.bytes;
    if (cpl->status != DXPU_CPL_SC || !cpl->payload.len)
        return;
    if (r.skip == 0 && cpl->byte_count <= bytes) { /* memory: a part of the bytes asked for */
        from = cpl->lower_addr & 3u;
        to += bytes - cpl->byte_count;
        bytes = cpl->byte_count;
    }
    if (from >= cpl->payload.len)
        return;
    if (bytes > cpl->payload.len - from)
        bytes = (uint32_t)(cpl->payload.len - from);
    if (to < sizeof a->data && bytes <= sizeof a->data - to)
        memcpy(a->data + to, cpl->payload.ptr + from, bytes);
}

static void on_completion(void *user, const dxpu_tlp *cpl, uint64_t request_bits, bool last)
{
    guest *g = user;
    request r = unpack(request_bits);
    guest_access *a = &g->accesses[r.access % ACCESSES];
    if (r.bytes == 0 || !a->tlps || r.generation != a->generation) /* a write, or none waits */
        return;
    if (cpl)
        access_fill(a, r, cpl);
    if (last && --a->tlps == 0)
        access_answer(g, a);
}

/* ==== 2  What devices may reach =============================================================== */

/* Memory that can be reached without asking the client. */
static void look_at_memory(guest *g)
{
    dxpu_vfu_memory m;
    if (g->memory_changes == dxpu_vfu_memory_changes(g->vfu))
        return;
    g->memory_changes = dxpu_vfu_memory_changes(g->vfu);
    g->reach_changed = true;
    windows_clear(&g->memory);
    for (uint32_t i = 0; dxpu_vfu_memory_at(g->vfu, i, &m); i++) {
        if (m.direct) /* its access bits are the windows' */
            (void)windows_grant(&g->memory, m.address, m.address + (m.bytes - 1), m.access);
    }
}

/* A window of another slot, where the switch would let this one's device through. */
static void reach_peer(const guest *g, unsigned slot, unsigned other, const dxpu_range *r,
                       windows *out)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.requester = DXPU_BDF(g->vs.rows[slot - 1].bus, 0, 0);
    t.address = r->base;
    if (r->base <= r->limit && dxpu_vswitch_upstream(&g->vs, (uint8_t)slot, &t) == (int)other)
        (void)windows_grant(out, r->base, r->limit, WINDOW_READ | WINDOW_WRITE);
}

/* slot_host.reach */
static void on_reach(void *user, unsigned slot, windows *out)
{
    guest *g = user;
    look_at_memory(g);
    (void)windows_copy(out, &g->memory); /* without memory the device reaches nothing */
    for (unsigned i = 1; i <= g->set->slots; i++) {
        if (i == slot)
            continue;
        reach_peer(g, slot, i, &g->vs.rows[i - 1].memory, out);
        reach_peer(g, slot, i, &g->vs.rows[i - 1].prefetchable, out);
    }
}

/* Ahead of whatever the guest does next. */
static void tell_reach(guest *g)
{
    look_at_memory(g);
    if (!g->reach_changed)
        return;
    g->reach_changed = false;
    for (unsigned i = 0; i < g->set->slots; i++)
        slot_reach(&g->slots[i]);
}

/* ==== 3  Configuration ======================================================================== */

/* Interrupts for which there is no room to the client (no client: none to interrupt) wait in the
   switch, which knows what may still be sent: a device can leave none to the switch. */
static void run_actions(guest *g)
{
    dxpu_vswitch_action act, late[PORTS_MAX];
    unsigned count = 0;
    while (dxpu_vswitch_action_next(&g->vs, &act)) {
        guest_slot *s = act.slot ? &g->slots[act.slot - 1] : NULL;
        switch (act.kind) {
        case DXPU_VSWITCH_MSI:
            if (dxpu_vfu_msi(g->vfu, act.address, act.data) == DXPU_E_AGAIN)
                late[count++] = act; /* one of a port */
            break;
        case DXPU_VSWITCH_RESET_ON:
        case DXPU_VSWITCH_RESET_OFF:
            slot_event(s, DXPU_EVENT_HOT_RESET,
                       act.kind == DXPU_VSWITCH_RESET_ON ? DXPU_EVENT_ON : 0);
            break;
        default:
            slot_event(s, DXPU_EVENT_SLOT_POWER,
                       act.kind == DXPU_VSWITCH_POWER_ON ? DXPU_EVENT_ON : 0);
            break;
        }
    }
    g->owed = count != 0;
    while (count)
        dxpu_vswitch_msi_later(&g->vs, &late[--count]);
}

static void config_tlp(uint64_t offset, bool write, unsigned bytes, dxpu_tlp *t)
{
    memset(t, 0, sizeof *t);
    t->type = write ? DXPU_TLP_CFGWR1 : DXPU_TLP_CFGRD1;
    t->header_dw = 3;
    t->length_dw = 1;
    t->target = (uint16_t)(offset >> 12); /* ECAM: bus, device, function */
    t->register_bytes = (uint16_t)(offset & 0xffc);
    t->first_be = (uint8_t)(((1u << bytes) - 1) << (offset & 3));
}

/* An access within one dword.  a is NULL for a write. */
static void config_access(guest *g, uint64_t offset, unsigned bytes, const uint8_t *data,
                          guest_access *a)
{
    uint8_t dword[4] = { 0 }, answer[4];
    uint8_t slot = 0;
    dxpu_tlp t, cpl;
    request r = request_of(g, a, 0, bytes, offset & 3);
    config_tlp(offset, !a, bytes, &t);
    if (!a) {
        memcpy(dword + (offset & 3), data, bytes);
        t.payload.ptr = dword;
        t.payload.len = 4;
    }
    if (dxpu_vswitch_config_request(&g->vs, &t, &cpl, answer, &slot) == DXPU_VSWITCH_ANSWERED) {
        if (a)
            access_fill(a, r, &cpl);
        else
            g->reach_changed = true;
        run_actions(g);
    } else if (slot_send(&g->slots[slot - 1], &t, pack(r), dxpu_udp_now_ns()) && a) {
        a->tlps++;
    }
}

static void config_region(guest *g, const dxpu_vfu_access *v, const uint8_t *data, guest_access *a)
{
    unsigned room = 4 - (unsigned)(v->offset & 3);
    if (v->bytes > room) { /* no processor configures across dwords */
        g->unclaimed++;
        return;
    }
    if (a)
        g->config_reads++;
    else
        g->config_writes++;
    config_access(g, v->offset, v->bytes, data, a);
}

/* ==== 4  Memory windows ======================================================================= */

static void memory_tlp(uint64_t address, uint32_t bytes, bool write, dxpu_tlp *t)
{
    memset(t, 0, sizeof *t);
    t->type = write ? DXPU_TLP_MWR : DXPU_TLP_MRD;
    t->header_dw = address >> 32 ? 4 : 3;
    t->address = address & ~(uint64_t)3;
    (void)dxpu_be_from_range(address, bytes, &t->first_be, &t->last_be, &t->length_dw);
}

static bool memory_request(guest *g, uint64_t address, uint32_t bytes, const uint8_t *data,
                           request r)
{
    uint8_t payload[REQUEST_BYTES + 4] = { 0 };
    uint8_t slot = dxpu_vswitch_by_address(&g->vs, address);
    dxpu_tlp t;
    if (!slot) {
        g->unclaimed++;
        return false;
    }
    memory_tlp(address, bytes, data != NULL, &t);
    if (data) {
        memcpy(payload + (address & 3), data, bytes);
        t.payload.ptr = payload;
        t.payload.len = t.length_dw * 4u;
    }
    return slot_send(&g->slots[slot - 1], &t, pack(r), dxpu_udp_now_ns());
}

/* Write combining, as a processor does it: writes to prefetchable memory that follow one another
   within a line of REQUEST_BYTES leave as one TLP, before anything else of the guest does.  Without
   it a copy of bytes would be a TLP for each byte. */
static void line_flush(guest *g)
{
    request r = { 0 };
    uint32_t bytes = g->line_bytes;
    g->line_bytes = 0;
    if (bytes)
        (void)memory_request(g, g->line_address, bytes, g->line, r);
}

static bool is_prefetchable(const guest *g, uint64_t address)
{
    for (unsigned i = 0; i < g->set->slots; i++) {
        const dxpu_range *r = &g->vs.rows[i].prefetchable;
        if (address >= r->base && address <= r->limit)
            return true;
    }
    return false;
}

/* True when the write was taken. */
static bool line_take(guest *g, uint64_t address, const uint8_t *data, uint32_t bytes)
{
    uint32_t room = REQUEST_BYTES - (uint32_t)(address % REQUEST_BYTES);
    if (g->line_bytes && address == g->line_address + g->line_bytes &&
        address % REQUEST_BYTES != 0 && bytes <= room) {
        memcpy(g->line + g->line_bytes, data, bytes);
        g->line_bytes += bytes;
        g->combined++;
    } else {
        line_flush(g);
        if (bytes > room || !is_prefetchable(g, address))
            return false;
        g->line_address = address;
        g->line_bytes = bytes;
        memcpy(g->line, data, bytes);
    }
    if (bytes == room)
        line_flush(g); /* no more can follow */
    return true;
}

static void memory_region(guest *g, const dxpu_vfu_access *v, const uint8_t *data, guest_access *a)
{
    uint64_t address = vmd_bar(&g->vmd, v->region) + v->offset;
    if (v->region == 4 && v->offset < VMD_BAR4_RESERVED)
        return; /* QEMU keeps the MSI-X table itself */
    if (a)
        g->memory_reads++;
    else
        g->memory_writes++;
    if (!a && line_take(g, address, data, v->bytes))
        return;
    for (uint32_t at = 0, n; at < v->bytes; at += n) {
        n = dxpu_request_next(address + at, v->bytes - at, REQUEST_BYTES);
        request r = request_of(g, a, at, n, 0);
        if (memory_request(g, address + at, n, a ? NULL : data + at, r) && a)
            a->tlps++;
    }
}

/* ==== 5  What the client does ================================================================= */

static void dispatch(guest *g, const dxpu_vfu_access *v, const uint8_t *data, guest_access *a)
{
    if (a || v->region == 0)
        line_flush(g);
    tell_reach(g);
    if (v->region == 0)
        config_region(g, v, data, a);
    else
        memory_region(g, v, data, a);
}

static void update_pause(guest *g)
{
    bool pause = false;
    for (unsigned i = 0; i < g->set->slots; i++)
        pause |= slot_congested(&g->slots[i]);
    dxpu_vfu_pause(g->vfu, pause);
}

static void on_read(void *user, const dxpu_vfu_access *v)
{
    guest *g = user;
    uint8_t config[VMD_CONFIG_BYTES];
    guest_access *a;
    if (v->region == DXPU_VFU_CONFIG) {
        vmd_read(&g->vmd, (unsigned)v->offset, config, v->bytes);
        (void)dxpu_vfu_reply_read(g->vfu, v->token, config, v->bytes);
        return;
    }
    a = v->bytes <= ACCESS_BYTES ? access_new(g, v->token, v->bytes) : NULL;
    if (!a) {
        (void)dxpu_vfu_reply_error(g->vfu, v->token, EINVAL);
        return;
    }
    dispatch(g, v, NULL, a);
    access_done(g, a);
}

static void on_write(void *user, const dxpu_vfu_access *v, const uint8_t *data)
{
    guest *g = user;
    if (v->region == DXPU_VFU_CONFIG) {
        line_flush(g); /* before a BAR moves */
        vmd_write(&g->vmd, (unsigned)v->offset, data, v->bytes);
    } else {
        dispatch(g, v, data, NULL);
    }
    if (v->token)
        (void)dxpu_vfu_reply_write(g->vfu, v->token);
    update_pause(g);
}

/* What the guest's root bus has for slots that are root ports. */
static void root_windows(const guest *g, dxpu_range root[2])
{
    root[0].base = vmd_bar(&g->vmd, 2);
    root[0].limit = root[0].base + (g->set->bar2_bytes - 1);
    root[1].base = vmd_bar(&g->vmd, 4) + VMD_BAR4_RESERVED;
    root[1].limit = vmd_bar(&g->vmd, 4) + (g->set->bar4_bytes - 1);
}

static const char *size_text(uint64_t bytes, char out[24])
{
    unsigned unit = 0;
    while (unit < 5 && bytes && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 24, "%llu %cB", (unsigned long long)bytes, " KMGTP"[unit]);
    return out;
}

/* What a person can do so that the device can be hot-added; "" when nothing is needed.  As a
   rule it fits into the note of a status, 63 characters. */
static void remedy(const guest *g, uint64_t largest, char *out, size_t cap)
{
    char parameter[32], bar4[40] = "";
    uint64_t window = dxpu_vswitch_slot_window(&g->vs, largest), all = g->set->bar4_bytes;
    (void)dxpu_vswitch_parameter(&g->vs, largest, parameter, sizeof parameter);
    *out = 0;
    if (!window || window > GUEST_BAR4_MAX) /* a BAR of any size: a box says so */
        return;
    while (all <= window * g->set->slots) /* the first window does not begin at the start of BAR4 */
        all *= 2;
    if (all > GUEST_BAR4_MAX)
        return;
    if (all > g->set->bar4_bytes)
        snprintf(bar4, sizeof bar4, " and --bar4 %lluG", (unsigned long long)(all >> 30));
    snprintf(out, cap, "guest parameter %s%s", parameter, bar4);
}

static void say_refused(const guest *g, const guest_slot *s, uint64_t largest)
{
    uint8_t n = (uint8_t)s->number;
    char text[3][24];
    log_warning("slot %u: refused: the device has a BAR of %s, and the guest gave the slot "
                "%s and, 64-bit prefetchable, %s; remedy: %s",
                s->number, size_text(largest, text[0]),
                size_text(dxpu_vswitch_window_bytes(&g->vs, n, false), text[1]),
                size_text(dxpu_vswitch_window_bytes(&g->vs, n, true), text[2]), s->note);
}

/* Show the guest the device, unless it has no room for it: a hot-add that fails would cost this
   slot and its neighbours their windows. */
static void insert(guest *g, guest_slot *s)
{
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    unsigned count = probe_bars(&s->probe, bars);
    dxpu_range root[2];
    uint64_t largest[2] = { 0, 0 };
    char what[sizeof s->note];
    for (unsigned i = 0; i < count; i++) {
        if (bars[i].bytes > largest[bars[i].prefetchable])
            largest[bars[i].prefetchable] = bars[i].bytes;
    }
    remedy(g, largest[true], what, sizeof what);
    root_windows(g, root);
    s->misfit = !dxpu_vswitch_fits(&g->vs, (uint8_t)s->number, bars, count, root);
    if (s->misfit) {
        snprintf(s->note, sizeof s->note, "%s",
                 what[0]                                   ? what
                 : g->set->topology == DXPU_VSWITCH_SWITCH ? "--topology root-ports"
                                                           : "larger --bar2 or --bar4");
        say_refused(g, s, largest[largest[true] > largest[false]]);
        return;
    }
    if (what[0] && dxpu_vswitch_window_bytes(&g->vs, (uint8_t)s->number, true) < largest[true])
        log_warning("slot %u: to hot-add its device needs: %s", s->number, what);
    (void)dxpu_vswitch_insert(&g->vs, (uint8_t)s->number, LINK_SPEED, LINK_WIDTH);
}

/* The machine is reset: the switch starts over with the devices in its slots, reset as well.  What
   did not fit will be sized for now. */
static void machine_reset(guest *g)
{
    line_flush(g);
    vmd_reset(&g->vmd);
    dxpu_vswitch_reset(&g->vs);
    for (unsigned i = 0; i < g->set->slots; i++) {
        if (g->slots[i].misfit)
            insert(g, &g->slots[i]);
    }
    dxpu_vswitch_reset(&g->vs); /* what fits now was there all the time (V-5) */
    run_actions(g);
    g->resets++;
}

static void on_reset(void *user, uint64_t token)
{
    guest *g = user;
    machine_reset(g);
    (void)dxpu_vfu_reply_write(g->vfu, token);
}

static void on_connected(void *user)
{
    (void)user;
    log_note("a guest is connected");
}

static void on_disconnected(void *user, const char *why)
{
    guest *g = user;
    log_note("the guest is gone: %s", why);
    accesses_forget(g);
    machine_reset(g);
}

/* ==== 6  What slots do ======================================================================== */

static bool on_dma_read(void *user, uint64_t address, void *data, size_t bytes)
{
    guest *g = user;
    return dxpu_vfu_dma_read(g->vfu, address, data, bytes) == DXPU_OK;
}

static bool on_dma_write(void *user, uint64_t address, const void *data, size_t bytes)
{
    guest *g = user;
    return dxpu_vfu_dma_write(g->vfu, address, data, bytes) == DXPU_OK;
}

static bool on_msi(void *user, uint64_t address, uint32_t data)
{
    guest *g = user;
    return dxpu_vfu_msi(g->vfu, address, data) != DXPU_E_AGAIN; /* no guest: not received */
}

/* As a switch routes it; besides, every request must have a requester that stands behind the slot
   now (V-11, S-109), and one to another slot a payload that the other port may send (Base Spec
   2.2.2). */
static int on_route(void *user, unsigned slot, const dxpu_tlp *t)
{
    guest *g = user;
    int to = dxpu_vswitch_upstream(&g->vs, (uint8_t)slot, t);
    if (to < 0)
        return to;
    if (dxpu_vswitch_by_bdf(&g->vs, t->requester) != slot ||
        (to > 0 && t->payload.len > dxpu_vswitch_mps_bytes(&g->vs, (uint8_t)to)))
        return -DXPU_CPL_UR;
    return to;
}

static bool on_crs(void *user, unsigned slot, const dxpu_tlp *req, dxpu_tlp *cpl, uint8_t data[4])
{
    guest *g = user;
    return dxpu_vswitch_crs(&g->vs, (uint8_t)slot, req, cpl, data);
}

static guest_slot *on_peer(void *user, unsigned slot)
{
    guest *g = user;
    return &g->slots[slot - 1];
}

/* An error or a PME is reported for the device in the slot, not for a neighbor. */
static bool on_message(void *user, unsigned slot, const dxpu_tlp *t)
{
    guest *g = user;
    bool taken = dxpu_vswitch_by_bdf(&g->vs, t->requester) == slot &&
                 dxpu_vswitch_message(&g->vs, (uint8_t)slot, t);
    run_actions(g);
    return taken;
}

static uint32_t on_mps(void *user, unsigned slot)
{
    guest *g = user;
    return dxpu_vswitch_mps_bytes(&g->vs, (uint8_t)slot);
}

static void on_filled(void *user, unsigned slot, bool filled)
{
    guest *g = user;
    if (filled)
        insert(g, &g->slots[slot - 1]);
    else
        (void)dxpu_vswitch_remove(&g->vs, (uint8_t)slot);
    run_actions(g);
    g->reach_changed = true;
    tell_reach(g);
}

/* ==== 7  Lines ============================================================================= */

dxpu_tags *guest_tags(guest *g, unsigned slot)
{
    return &g->slots[slot - 1].tags;
}

void guest_begin(guest *g, unsigned slot)
{
    slot_begin(&g->slots[slot - 1]);
}

void guest_up(guest *g, unsigned slot, const char *whose, uint64_t now)
{
    slot_up(&g->slots[slot - 1], whose, now);
}

bool guest_work(guest *g, unsigned slot, uint64_t now)
{
    bool more = slot_work(&g->slots[slot - 1], now);
    update_pause(g);
    return more;
}

void guest_detach(guest *g, unsigned slot, uint8_t reason)
{
    slot_close(&g->slots[slot - 1], reason);
}

void guest_down(guest *g, unsigned slot)
{
    slot_down(&g->slots[slot - 1]);
    update_pause(g); /* no line is left to work on: nothing else would read the guest again */
}

guest_view guest_look(const guest *g, unsigned slot)
{
    const guest_slot *s = &g->slots[slot - 1];
    guest_view v = { .state = s->probe.running  ? GUEST_LOOKS
                              : s->probe.failed ? GUEST_UNREADABLE
                              : s->misfit       ? GUEST_NO_ROOM
                                                : GUEST_SHOWN,
                     .to_device = s->down_tlps,
                     .from_device = s->up_tlps,
                     .dropped = s->dropped,
                     .msis_refused = s->msis_refused };
    if (v.state == GUEST_NO_ROOM)
        snprintf(v.note, sizeof v.note, "%.63s", s->note);
    return v;
}

uint64_t guest_next_ns(const guest *g)
{
    uint64_t next = g->deadline_ns;
    for (unsigned i = 0; i < g->set->slots; i++) {
        uint64_t at = slot_next_ns(&g->slots[i]);
        next = at < next ? at : next;
    }
    return next;
}

void guest_tick(guest *g, uint64_t now)
{
    for (unsigned i = 0; i < g->set->slots; i++)
        slot_tick(&g->slots[i], now);
    accesses_expire(g, now);
    update_pause(g);
}

int guest_fd(const guest *g)
{
    return dxpu_vfu_fd(g->vfu);
}

int guest_process(guest *g)
{
    uint64_t before = dxpu_vfu_count(g->vfu)->messages;
    int rc = dxpu_vfu_process(g->vfu);
    line_flush(g); /* nothing is kept between calls */
    tell_reach(g);
    if (g->owed)
        run_actions(g);
    if (rc == DXPU_OK)
        return (int)(dxpu_vfu_count(g->vfu)->messages - before);
    log_error("%s: %s", g->set->socket, strerror(errno));
    return -1;
}

int guest_client(const guest *g, uint64_t *number)
{
    *number = dxpu_vfu_count(g->vfu)->clients;
    return dxpu_vfu_client(g->vfu);
}

/* ==== 8  Opening ============================================================================== */

static int open_function(guest *g)
{
    static const dxpu_vfu_callbacks callbacks = { NULL,         on_read,         on_write, on_reset,
                                                  on_connected, on_disconnected, NULL };
    dxpu_vfu_callbacks cb = callbacks;
    dxpu_vfu_config cfg;
    const char *why;
    cb.user = g;
    dxpu_vfu_config_default(&cfg);
    cfg.path = g->set->socket;
    cfg.mode = g->set->socket_mode == GUEST_SOCKET_GROUP ? 0660 : 0600;
    for (unsigned bar = 0; bar < 6; bar += 2) {
        cfg.region[bar].bytes = g->vmd.bar_bytes[bar];
        cfg.region[bar].access = DXPU_VFU_READ | DXPU_VFU_WRITE;
    }
    cfg.irqs[DXPU_VFU_MSIX] = VMD_VECTORS;
    g->vfu = dxpu_vfu_open(&cfg, &cb, &why);
    if (!g->vfu) {
        log_error("--vfio-user %s: %s (%s)", g->set->socket, why, strerror(errno));
        return -1;
    }
    return 0;
}

static int open_switch(guest *g, const slot_line *const *lines)
{
    dxpu_vswitch_config cfg;
    dxpu_vswitch_config_default(&cfg);
    cfg.topology = (uint8_t)g->set->topology;
    cfg.slots = (uint8_t)g->set->slots;
    if (dxpu_vswitch_init(&g->vs, &cfg) != DXPU_OK) {
        log_error("--slots %llu: too many for this topology", (unsigned long long)g->set->slots);
        return -1;
    }
    vmd_init(&g->vmd, cfg.buses, g->set->bar2_bytes, g->set->bar4_bytes);
    g->slots = calloc(g->set->slots, sizeof *g->slots);
    if (!g->slots)
        return -1;
    for (unsigned i = 0; i < g->set->slots; i++) {
        if (slot_init(&g->slots[i], i + 1, &g->host, lines[i], g->hold_ns))
            return -1;
    }
    return 0;
}

guest *guest_open(const guest_settings *set, const slot_line *const *lines, uint64_t hold_ns)
{
    guest *g = calloc(1, sizeof *g);
    slot_host host = { g,        on_dma_read, on_dma_write, on_msi, on_route,      on_peer,
                       on_reach, on_message,  on_crs,       on_mps, on_completion, on_filled };
    if (!g)
        return NULL;
    g->set = set;
    g->host = host;
    g->hold_ns = hold_ns;
    g->deadline_ns = DXPU_NEVER;
    if (open_switch(g, lines) || open_function(g)) {
        guest_close(g);
        return NULL;
    }
    return g;
}

void guest_report(const guest *g, report *r)
{
    report_number(r, "config_reads", g->config_reads);
    report_number(r, "config_writes", g->config_writes);
    report_number(r, "memory_reads", g->memory_reads);
    report_number(r, "memory_writes", g->memory_writes);
    report_number(r, "memory_writes_combined", g->combined);
    report_number(r, "unclaimed", g->unclaimed);
    report_number(r, "resets", g->resets);
    report_number(r, "timeouts", g->timeouts);
}

void guest_report_slot(const guest *g, unsigned slot, report *r)
{
    slot_report(&g->slots[slot - 1], r);
}

void guest_report_server(const guest *g, report *r)
{
    report_open(r, "vfio_user");
    for (unsigned i = 0; dxpu_vfu_counter_name(i); i++)
        report_number(r, dxpu_vfu_counter_name(i), dxpu_vfu_counter_value(g->vfu, i));
    report_close(r);
}

void guest_close(guest *g)
{
    dxpu_vfu_close(g->vfu);
    for (unsigned i = 0; g->slots && i < g->set->slots; i++)
        slot_free(&g->slots[i]);
    free(g->slots);
    windows_free(&g->memory);
    free(g);
}
