/* bridge.c - see bridge.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 What devices may reach   2 Configuration   3 Memory windows
              4 What the client does   5 What slots do   6 Opening */
#include "bridge_internal.h"
#include "fabric.h"
#include "log.h"
#include "dxpu_libevent.h"

#include "dxpu_vswitch.h"

#include <errno.h>
#include <stdlib.h>

enum {
    PORTS_MAX = DXPU_VSWITCH_SLOTS_MAX + 2,
    LINK_SPEED = 4,    /* 16 GT/s */
    MPS_CODE_MAX = 5,  /* 4096 bytes, as what a device may support */
    MPS_UNKNOWN = 256, /* a device without PCI Express capability */
    LINK_WIDTH = 16
};

/* ==== 1  What devices may reach =============================================================== */

static void look_at_memory(bridge *g)
{
    if (access_memory(g->vfu, &g->memory_changes, &g->memory))
        g->reach_changed = true;
}

/* Would the switch let a slot's device through to this window of another one? */
static bool reaches(const bridge *g, unsigned slot, unsigned other, const dxpu_range *r)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.requester = DXPU_BDF(g->vs.rows[slot - 1].bus, 0, 0);
    t.address = r->base;
    return r->base <= r->limit && dxpu_vswitch_upstream(&g->vs, (uint8_t)slot, &t) == (int)other;
}

static void reach_peer(const bridge *g, unsigned slot, unsigned other, const dxpu_range *r,
                       windows *out)
{
    if (reaches(g, slot, other, r))
        (void)windows_grant(out, r->base, r->limit, WINDOW_READ | WINDOW_WRITE);
}

/* slot_host.reach */
void bridge_on_reach(void *user, unsigned slot, windows *out)
{
    bridge *g = user;
    look_at_memory(g);
    (void)windows_copy(out, &g->memory); /* without memory the device reaches nothing */
    for (unsigned i = 1; i <= g->guest.set->slots; i++) {
        if (i == slot)
            continue;
        reach_peer(g, slot, i, &g->vs.rows[i - 1].memory, out);
        reach_peer(g, slot, i, &g->vs.rows[i - 1].prefetchable, out);
    }
}

/* Windows of slot `to` that the device of slot `from` reaches, in the list of one of them. */
static void list_windows(const bridge *g, unsigned from, unsigned to, dxpu_p2p_list *out)
{
    const dxpu_host_entry *row = &g->vs.rows[to - 1];
    const dxpu_range *ranges[] = { &row->memory, &row->prefetchable };
    if (!dxpu_vswitch_completes_direct(&g->vs, (uint8_t)to) ||
        dxpu_vswitch_mps_bytes(&g->vs, (uint8_t)to) !=
            dxpu_vswitch_mps_bytes(&g->vs, (uint8_t)from))
        return;
    for (unsigned i = 0; i < 2; i++) {
        dxpu_p2p_window *w = &out->at[out->count];
        if (!reaches(g, from, to, ranges[i]))
            continue;
        w->first = ranges[i]->base;
        w->last = ranges[i]->limit;
        w->own = to == out->slot;
        w->slot = (uint8_t)(w->own ? from : to);
        w->payload_bytes = (uint16_t)dxpu_vswitch_mps_bytes(&g->vs, (uint8_t)from);
        out->count++;
    }
}

static void list_place(const bridge *g, unsigned other, dxpu_p2p_list *out)
{
    const guest_slot *s = &g->guest.slots[other - 1];
    dxpu_p2p_place *p = &out->place[out->places];
    if (!s->up || !s->p2p.place.slot)
        return;
    *p = s->p2p.place;
    p->bus = g->vs.rows[other - 1].bus;
    p->last_bus = g->vs.rows[other - 1].bus_last;
    out->places++;
}

/* slot_host.neighbors.  Ports of different Max_Payload_Size need the host, which cuts (V-16). */
void bridge_on_neighbors(void *user, unsigned slot, dxpu_p2p_list *out)
{
    const bridge *g = user;
    memcpy(out->domain, g->domain, sizeof out->domain);
    out->slot = (uint8_t)slot;
    for (unsigned i = 1; i <= g->guest.set->slots; i++) {
        if (i == slot)
            continue;
        list_place(g, i, out);
        list_windows(g, slot, i, out);
        list_windows(g, i, slot, out);
    }
}

/* Ahead of whatever the guest does next. */
static void tell_reach(bridge *g)
{
    look_at_memory(g);
    if (!g->reach_changed)
        return;
    g->reach_changed = false;
    for (unsigned i = 0; i < g->guest.set->slots; i++)
        slot_reach(&g->guest.slots[i]);
}

/* ==== 2  Configuration ======================================================================== */

/* Interrupts for which there is no room to the client (no client: none to interrupt) wait in the
   switch, which knows what may still be sent: a device can leave none to the switch. */
static void run_actions(bridge *g)
{
    dxpu_vswitch_action act, late[PORTS_MAX];
    unsigned count = 0;
    while (dxpu_vswitch_action_next(&g->vs, &act)) {
        guest_slot *s = act.slot ? &g->guest.slots[act.slot - 1] : NULL;
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

/* An access within one dword.  a is NULL for a write. */
static void config_access(bridge *g, uint64_t offset, unsigned bytes, const uint8_t *data,
                          guest_access *a)
{
    uint8_t dword[4] = { 0 }, answer[4];
    uint8_t slot = 0;
    dxpu_tlp t, cpl;
    uint64_t part = access_part(&g->accesses, a, 0, bytes, offset & 3);
    access_config_tlp(a ? DXPU_TLP_CFGRD1 : DXPU_TLP_CFGWR1, (uint16_t)(offset >> 12), /* ECAM */
                      (uint32_t)(offset & 0xfff), bytes, &t);
    if (!a) {
        memcpy(dword + (offset & 3), data, bytes);
        t.payload.ptr = dword;
        t.payload.len = 4;
    }
    if (dxpu_vswitch_config_request(&g->vs, &t, &cpl, answer, &slot) == DXPU_VSWITCH_ANSWERED) {
        if (a)
            access_fill(a, part, &cpl);
        else
            g->reach_changed = true;
        run_actions(g);
    } else if (slot_send(&g->guest.slots[slot - 1], &t, part, dxpu_udp_now_ns()) && a) {
        a->tlps++;
    }
}

static void config_region(bridge *g, const dxpu_vfu_access *v, const uint8_t *data, guest_access *a)
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

/* ==== 3  Memory windows ======================================================================= */

/* access_table.send */
bool bridge_send_memory(void *user, dxpu_tlp *t, uint64_t part)
{
    bridge *g = user;
    uint8_t slot = dxpu_vswitch_by_address(&g->vs, t->address);
    if (!slot) {
        g->unclaimed++;
        return false;
    }
    return slot_send(&g->guest.slots[slot - 1], t, part, dxpu_udp_now_ns());
}

/* access_table.unread */
void bridge_on_unread(void *user, guest_access *a, uint32_t at, uint32_t bytes)
{
    bridge *g = user;
    if (a->region != 0) /* of configuration space, what is not there reads as ones */
        dxpu_vswitch_lost_read(&g->vs, vmd_bar(&g->vmd, a->region) + a->offset + at, a->data + at,
                               bytes);
}

static bool is_prefetchable(const bridge *g, uint64_t address)
{
    for (unsigned i = 0; i < g->guest.set->slots; i++) {
        const dxpu_range *r = &g->vs.rows[i].prefetchable;
        if (address >= r->base && address <= r->limit)
            return true;
    }
    return false;
}

static void memory_region(bridge *g, const dxpu_vfu_access *v, const uint8_t *data, guest_access *a)
{
    uint64_t address = vmd_bar(&g->vmd, v->region) + v->offset;
    if (v->region == 4 && v->offset < VMD_BAR4_RESERVED)
        return; /* QEMU keeps the MSI-X table itself */
    if (a)
        g->memory_reads++;
    else
        g->memory_writes++;
    if (!a &&
        (access_append(&g->accesses, address, data, v->bytes) ||
         (is_prefetchable(g, address) && access_begin(&g->accesses, address, data, v->bytes))))
        return;
    access_transfer(&g->accesses, address, v->bytes, data, a);
}

/* ==== 4  What the client does ================================================================= */

static void dispatch(bridge *g, const dxpu_vfu_access *v, const uint8_t *data, guest_access *a)
{
    if (a || v->region == 0)
        access_flush(&g->accesses);
    tell_reach(g);
    if (v->region == 0)
        config_region(g, v, data, a);
    else
        memory_region(g, v, data, a);
}

static void update_pause(bridge *g)
{
    bool pause = false;
    for (unsigned i = 0; i < g->guest.set->slots; i++)
        pause |= slot_congested(&g->guest.slots[i]);
    dxpu_vfu_pause(g->vfu, pause);
}

void bridge_on_read(void *user, const dxpu_vfu_access *v)
{
    bridge *g = user;
    uint8_t config[VMD_CONFIG_BYTES];
    guest_access *a;
    if (v->region == DXPU_VFU_CONFIG) {
        vmd_read(&g->vmd, (unsigned)v->offset, config, v->bytes);
        (void)dxpu_vfu_reply_read(g->vfu, v->token, config, v->bytes);
        return;
    }
    a = access_new(&g->accesses, v);
    if (!a) {
        (void)dxpu_vfu_reply_error(g->vfu, v->token, EINVAL);
        return;
    }
    dispatch(g, v, NULL, a);
    access_sent(&g->accesses, a);
}

void bridge_on_write(void *user, const dxpu_vfu_access *v, const uint8_t *data)
{
    bridge *g = user;
    if (v->region == DXPU_VFU_CONFIG) {
        access_flush(&g->accesses); /* before a BAR moves */
        vmd_write(&g->vmd, (unsigned)v->offset, data, v->bytes);
    } else {
        dispatch(g, v, data, NULL);
    }
    if (v->token)
        (void)dxpu_vfu_reply_write(g->vfu, v->token);
    update_pause(g);
}

/* What the guest's root bus has for slots that are root ports. */
static void root_windows(const bridge *g, dxpu_range root[2])
{
    root[0].base = vmd_bar(&g->vmd, 2);
    root[0].limit = root[0].base + (g->guest.set->bar2_bytes - 1);
    root[1].base = vmd_bar(&g->vmd, 4) + VMD_BAR4_RESERVED;
    root[1].limit = vmd_bar(&g->vmd, 4) + (g->guest.set->bar4_bytes - 1);
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
void bridge_remedy(const bridge *g, uint64_t largest, char *out, size_t cap)
{
    char parameter[32], bar4[40] = "";
    uint64_t window = dxpu_vswitch_slot_window(&g->vs, largest), all = g->guest.set->bar4_bytes;
    (void)dxpu_vswitch_parameter(&g->vs, largest, parameter, sizeof parameter);
    *out = 0;
    if (!window || window > GUEST_BAR4_MAX) /* a BAR of any size: a box says so */
        return;
    while (all <=
           window * g->guest.set->slots) /* the first window does not begin at the start of BAR4 */
        all *= 2;
    if (all > GUEST_BAR4_MAX)
        return;
    if (all > g->guest.set->bar4_bytes)
        snprintf(bar4, sizeof bar4, " and --bar4 %lluG", (unsigned long long)(all >> 30));
    snprintf(out, cap, "guest parameter %s%s", parameter, bar4);
}

static void say_refused(const bridge *g, const guest_slot *s, uint64_t largest)
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
static void insert(bridge *g, guest_slot *s)
{
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    unsigned count = probe_bars(&s->probe, bars);
    dxpu_range root[2];
    uint64_t largest[2] = { 0, 0 };
    uint32_t mps;
    char what[sizeof s->note];
    for (unsigned i = 0; i < count; i++) {
        if (bars[i].bytes > largest[bars[i].prefetchable])
            largest[bars[i].prefetchable] = bars[i].bytes;
    }
    bridge_remedy(g, largest[true], what, sizeof what);
    root_windows(g, root);
    s->misfit = !dxpu_vswitch_fits(&g->vs, (uint8_t)s->number, bars, count, root);
    if (s->misfit) {
        snprintf(s->note, sizeof s->note, "%s",
                 what[0]                                         ? what
                 : g->guest.set->topology == DXPU_VSWITCH_SWITCH ? "--topology root-ports"
                                                                 : "larger --bar2 or --bar4");
        say_refused(g, s, largest[largest[true] > largest[false]]);
        return;
    }
    if (what[0] && dxpu_vswitch_window_bytes(&g->vs, (uint8_t)s->number, true) < largest[true])
        log_warning("slot %u: to hot-add its device needs: %s", s->number, what);
    mps = probe_mps_bytes(&s->probe);
    (void)dxpu_vswitch_set_mps(&g->vs, (uint8_t)s->number, mps ? mps : MPS_UNKNOWN);
    (void)dxpu_vswitch_insert(&g->vs, (uint8_t)s->number, LINK_SPEED, LINK_WIDTH);
}

/* Devices are to know that no driver of before goes on: a hot reset does not say so. */
static void power_cycle(bridge *g)
{
    for (unsigned i = 0; i < g->guest.set->slots; i++) {
        guest_slot *s = &g->guest.slots[i];
        if (dxpu_vswitch_link_up(&g->vs, (uint8_t)s->number))
            slot_power_cycle(s);
    }
}

/* The machine is reset: the switch starts over with the devices in its slots, reset as well.  What
   did not fit will be sized for now. */
void bridge_machine_reset(bridge *g)
{
    access_flush(&g->accesses);
    power_cycle(g);
    vmd_reset(&g->vmd);
    dxpu_vswitch_reset(&g->vs);
    for (unsigned i = 0; i < g->guest.set->slots; i++) {
        if (g->guest.slots[i].misfit)
            insert(g, &g->guest.slots[i]);
    }
    dxpu_vswitch_reset(&g->vs); /* what fits now was there all the time (V-5) */
    run_actions(g);
    g->resets++;
}

void bridge_on_reset(void *user, uint64_t token)
{
    bridge *g = user;
    bridge_machine_reset(g);
    (void)dxpu_vfu_reply_write(g->vfu, token);
}

static void on_connected(void *user)
{
    (void)user;
    log_note("a guest is connected");
}

void bridge_on_disconnected(void *user, const char *why)
{
    bridge *g = user;
    log_note("the guest is gone: %s", why);
    access_forget(&g->accesses);
    bridge_machine_reset(g);
}

/* ==== 5  What slots do ======================================================================== */

void bridge_on_completion(void *user, const dxpu_tlp *cpl, uint64_t part, bool last)
{
    bridge *g = user;
    access_completed(&g->accesses, cpl, part, last);
}

static bool on_dma_read(void *user, uint64_t address, void *data, size_t bytes)
{
    bridge *g = user;
    return dxpu_vfu_dma_read(g->vfu, address, data, bytes) == DXPU_OK;
}

static bool on_dma_write(void *user, uint64_t address, const void *data, size_t bytes)
{
    bridge *g = user;
    return dxpu_vfu_dma_write(g->vfu, address, data, bytes) == DXPU_OK;
}

static bool on_msi(void *user, uint64_t address, uint32_t data)
{
    bridge *g = user;
    return dxpu_vfu_msi(g->vfu, address, data) != DXPU_E_AGAIN; /* no guest: not received */
}

/* As a switch routes it; besides, every request must have a requester that stands behind the slot
   now (V-11, S-109), and a message to another slot a payload that the other port may send (Base
   Spec 2.2.2); a write is cut (V-16). */
static int on_route(void *user, unsigned slot, const dxpu_tlp *t)
{
    bridge *g = user;
    int to = dxpu_vswitch_upstream(&g->vs, (uint8_t)slot, t);
    if (to < 0)
        return to;
    if (dxpu_vswitch_by_bdf(&g->vs, t->requester) != slot ||
        (to > 0 && t->type != DXPU_TLP_MWR &&
         t->payload.len > dxpu_vswitch_mps_bytes(&g->vs, (uint8_t)to)))
        return -DXPU_CPL_UR;
    return to;
}

static bool on_crs(void *user, unsigned slot, const dxpu_tlp *req, dxpu_tlp *cpl, uint8_t data[4])
{
    bridge *g = user;
    return dxpu_vswitch_crs(&g->vs, (uint8_t)slot, req, cpl, data);
}

static guest_slot *on_peer(void *user, unsigned slot)
{
    bridge *g = user;
    return &g->guest.slots[slot - 1];
}

/* An error or a PME is reported for the device in the slot, not for a neighbor. */
bool bridge_on_message(void *user, unsigned slot, const dxpu_tlp *t)
{
    bridge *g = user;
    bool taken = dxpu_vswitch_by_bdf(&g->vs, t->requester) == slot &&
                 dxpu_vswitch_message(&g->vs, (uint8_t)slot, t);
    run_actions(g);
    return taken;
}

static uint32_t on_mps(void *user, unsigned slot)
{
    bridge *g = user;
    return dxpu_vswitch_mps_bytes(&g->vs, (uint8_t)slot);
}

/* The switch shows it in bridge_on_filled(), behind the answers to what was in flight. */
void bridge_on_lost(void *user, unsigned slot, const dxpu_vswitch_values *values)
{
    bridge *g = user;
    (void)dxpu_vswitch_lose(&g->vs, (uint8_t)slot, values);
}

void bridge_on_filled(void *user, unsigned slot, bool filled)
{
    bridge *g = user;
    if (filled)
        insert(g, &g->guest.slots[slot - 1]);
    run_actions(g); /* an empty slot is the switch's since bridge_on_lost() */
    g->reach_changed = true;
    tell_reach(g);
}

/* ==== 6  Opening ============================================================================== */

static int open_function(bridge *g)
{
    const dxpu_vfu_callbacks cb = { .user = g,
                                    .read = bridge_on_read,
                                    .write = bridge_on_write,
                                    .reset = bridge_on_reset,
                                    .connected = on_connected,
                                    .disconnected = bridge_on_disconnected };
    dxpu_vfu_config cfg;
    const char *why;
    dxpu_vfu_config_default(&cfg);
    cfg.path = g->guest.set->socket;
    cfg.mode = g->guest.set->socket_mode == GUEST_SOCKET_GROUP ? 0660 : 0600;
    for (unsigned bar = 0; bar < 6; bar += 2) {
        cfg.region[bar].bytes = g->vmd.bar_bytes[bar];
        cfg.region[bar].access = DXPU_VFU_READ | DXPU_VFU_WRITE;
    }
    cfg.irqs[DXPU_VFU_MSIX] = VMD_VECTORS;
    g->vfu = dxpu_vfu_open(&cfg, &cb, &why);
    if (!g->vfu) {
        log_error("--vfio-user %s: %s (%s)", g->guest.set->socket, why, strerror(errno));
        return -1;
    }
    return 0;
}

/* Room for twice as many as the slots and ports of a switch need, and for a card with bridges.  Not
   more: Linux's vmd driver looks at each function of each bus when it starts, 288 reads of
   configuration space a bus. */
static uint8_t buses_of(const dxpu_vswitch_config *cfg)
{
    unsigned needed = cfg->slots + (cfg->topology == DXPU_VSWITCH_SWITCH ? 3u : 1u), buses = 16;
    while (buses < 2 * needed && buses < 32)
        buses *= 2;
    return (uint8_t)buses;
}

int bridge_open_switch(bridge *g)
{
    const guest_settings *set = g->guest.set;
    dxpu_vswitch_config cfg;
    dxpu_vswitch_config_default(&cfg);
    cfg.mps_code = MPS_CODE_MAX;
    cfg.topology = (uint8_t)set->topology;
    cfg.slots = (uint8_t)set->slots;
    cfg.buses = buses_of(&cfg);
    if (dxpu_vswitch_init(&g->vs, &cfg) != DXPU_OK) {
        log_error("--slots %llu: too many for this topology", (unsigned long long)set->slots);
        return -1;
    }
    vmd_init(&g->vmd, cfg.buses, set->bar2_bytes, set->bar4_bytes);
    return 0;
}

static int open_slots(bridge *g, const slot_line *const *lines)
{
    guest *of = &g->guest;
    of->slots = calloc(of->set->slots, sizeof *of->slots);
    if (!of->slots)
        return -1;
    for (unsigned i = 0; i < of->set->slots; i++) {
        if (slot_init(&of->slots[i], i + 1, &g->host, lines[i], of->hold_ns))
            return -1;
        of->slots[i].push.offered = of->set->push;
        of->slots[i].p2p.offered = of->set->p2p;
    }
    return 0;
}

static bridge *bridge_of(guest *g)
{
    return (bridge *)(void *)g;
}

static const bridge *bridge_seen(const guest *g)
{
    return (const bridge *)(const void *)g;
}

static void bridge_close(guest *front)
{
    bridge *g = bridge_of(front);
    dxpu_vfu_close(g->vfu);
    windows_free(&g->memory);
    free(g);
}

static void make_domain(bridge *g)
{
    for (unsigned i = 0; i < sizeof g->domain; i += 4)
        dxpu_put_be32(g->domain + i, fabric_random() | 1u); /* all zeros is not a domain */
}

static guest *bridge_open(const guest_settings *set, const slot_line *const *lines,
                          uint64_t hold_ns)
{
    bridge *g = calloc(1, sizeof *g);
    slot_host host = { g,
                       on_dma_read,
                       on_dma_write,
                       on_msi,
                       on_route,
                       on_peer,
                       bridge_on_reach,
                       bridge_on_neighbors,
                       bridge_on_message,
                       on_crs,
                       on_mps,
                       bridge_on_completion,
                       bridge_on_filled,
                       bridge_on_lost };
    if (!g)
        return NULL;
    g->guest.set = set;
    g->guest.hold_ns = hold_ns;
    g->host = host;
    make_domain(g);
    access_init(&g->accesses, hold_ns);
    g->accesses.send = bridge_send_memory;
    g->accesses.unread = bridge_on_unread;
    g->accesses.user = g;
    if (bridge_open_switch(g) || open_slots(g, lines) || open_function(g)) {
        guest_close(&g->guest);
        return NULL;
    }
    g->accesses.vfu = g->vfu;
    return &g->guest;
}

static int bridge_fd(const guest *g)
{
    return dxpu_vfu_fd(bridge_seen(g)->vfu);
}

static int bridge_process(guest *front)
{
    bridge *g = bridge_of(front);
    uint64_t before = dxpu_vfu_count(g->vfu)->messages;
    int rc = dxpu_vfu_process(g->vfu);
    access_flush(&g->accesses); /* nothing is kept between calls */
    tell_reach(g);
    if (g->owed)
        run_actions(g);
    if (rc == DXPU_OK)
        return (int)(dxpu_vfu_count(g->vfu)->messages - before);
    log_error("%s: %s", g->guest.set->socket, strerror(errno));
    return -1;
}

static const dxpu_vfu *bridge_server(const guest *g, unsigned n)
{
    (void)n;
    return bridge_seen(g)->vfu;
}

static void bridge_settle(guest *g, unsigned slot)
{
    (void)slot;
    update_pause(bridge_of(g));
}

static void bridge_tick(guest *g, uint64_t now)
{
    access_expire(&bridge_of(g)->accesses, now);
    update_pause(bridge_of(g));
}

static uint64_t bridge_next_ns(const guest *g)
{
    return bridge_seen(g)->accesses.deadline_ns;
}

static void bridge_report(const guest *front, report *r)
{
    const bridge *g = bridge_seen(front);
    report_number(r, "config_reads", g->config_reads);
    report_number(r, "config_writes", g->config_writes);
    report_number(r, "memory_reads", g->memory_reads);
    report_number(r, "memory_writes", g->memory_writes);
    report_number(r, "memory_writes_combined", g->accesses.line.combined);
    report_number(r, "unclaimed", g->unclaimed);
    report_number(r, "resets", g->resets);
    report_number(r, "timeouts", g->accesses.timeouts);
}

const guest_form bridge_form = { .open = bridge_open,
                                 .close = bridge_close,
                                 .fd = bridge_fd,
                                 .process = bridge_process,
                                 .server = bridge_server,
                                 .settle = bridge_settle,
                                 .tick = bridge_tick,
                                 .next_ns = bridge_next_ns,
                                 .report = bridge_report };
