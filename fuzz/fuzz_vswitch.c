/* Fuzz target: configuration requests, devices that come and go, host resets and messages, in any
   order.  The input is a header byte (topology, slots, power controller) and steps of eight bytes.
   Every request is answered or goes to a slot whose link is up; the host table, routing, status
   registers and actions stay in agreement with the control registers.
   libFuzzer: -max_len=512 */
#include <stdlib.h>
#include "dxpu_vswitch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEP_BYTES = 8, BUSES = 16 };

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_slot(const dxpu_vswitch *vs, unsigned slot)
{
    const dxpu_vswitch_port *p = &vs->port[slot - 1];
    const dxpu_host_entry *row = &vs->rows[slot - 1];
    bool held = (p->cfg[0x3e] & 0x40) || (p->cfg[0x50] & 0x10);
    bool off = vs->cfg.power_controller && (p->cfg[0x59] & 4);
    must(((p->cfg[0x5a] & 0x40) != 0) == p->filled);
    must(((p->cfg[0x53] & 0x20) != 0) == (p->filled && !held && !off));
    must(!dxpu_vswitch_link_up(vs, (uint8_t)slot) || (p->cfg[0x53] & 0x20));
    must((vs->resets.now >> (slot - 1) & 1) || !held);
    must(row->port == dxpu_vswitch_dump(vs, slot - 1, NULL, 0));
    must((row->reg[1] & 0xffffff) == (dxpu_get_le32(p->cfg + 0x18) & 0xffffff));
    must(row->bus == 0 || (row->bus == p->cfg[0x19] && row->bus_last == p->cfg[0x1a]));
    for (unsigned k = 0; k < 2; k++) {
        dxpu_range r = k ? row->prefetchable : row->memory;
        if (r.base > r.limit)
            continue;
        must((p->cfg[4] & 2) != 0);
        must(dxpu_host_by_address(&vs->table, r.base) == (int)slot - 1);
        must(dxpu_vswitch_window_bytes(vs, (uint8_t)slot, k != 0) == r.limit - r.base + 1);
    }
}

static void check(dxpu_vswitch *vs)
{
    dxpu_vswitch_action a, late = { 0 };
    unsigned actions = 0;
    while (dxpu_vswitch_action_next(vs, &a)) {
        must(a.port < vs->ports && vs->port[a.port].slot == a.slot);
        if (a.kind == DXPU_VSWITCH_MSI && (vs->port[a.port].cfg[4] & 2))
            late = a; /* its owner has no room for it now */
        must(a.kind != DXPU_VSWITCH_MSI || (vs->port[a.port].cfg[0x82] & 1));
        must(a.kind >= DXPU_VSWITCH_MSI && a.kind <= DXPU_VSWITCH_POWER_OFF);
        must(a.kind == DXPU_VSWITCH_MSI || (a.slot >= 1 && a.slot <= vs->cfg.slots));
        must((a.address & 3) == 0 && ++actions < 200);
    }
    dxpu_vswitch_msi_later(vs, &late);
    must(vs->resets.now == vs->resets.reported && vs->power.now == vs->power.reported);
    for (unsigned s = 1; s <= vs->cfg.slots; s++)
        check_slot(vs, s);
    for (unsigned i = 0; i < vs->ports; i++) {
        const uint8_t *c = vs->port[i].cfg;
        must(c[0x0e] == 1 && c[0x34] == 0x40 && !c[0x1c] && !c[0x1d] && !c[0x3d]);
        must((c[0x24] & 15) == 1 && (c[0x26] & 15) == 1);
        must((c[0x94] & 3) == 0 || (c[0x94] & 3) == 3);
    }
}

static void request(dxpu_vswitch *vs, const uint8_t *step)
{
    static uint8_t bytes[4];
    dxpu_tlp req, cpl;
    uint8_t data[4], slot = 0xff;
    bool write = (step[0] & 1) != 0;
    memset(&req, 0, sizeof req);
    req.type = write ? (step[0] & 2 ? DXPU_TLP_CFGWR0 : DXPU_TLP_CFGWR1)
                     : (step[0] & 2 ? DXPU_TLP_CFGRD0 : DXPU_TLP_CFGRD1);
    req.header_dw = 3;
    req.length_dw = 1;
    req.first_be = step[0] >> 4;
    req.ep = write && step[1] == 0xff;
    req.target = DXPU_BDF(step[1] & 15, step[2] & 31, step[2] & 0xe0 ? 0 : step[1] >> 4 & 7);
    /* every register of a port lies in two ranges of 256 and 128 bytes */
    req.register_bytes = (uint16_t)((step[3] & 0xfc) | (step[3] & 1 ? 0x100 : 0));
    memcpy(bytes, step + 4, 4);
    if (write) {
        req.payload.ptr = bytes;
        req.payload.len = 4;
    }
    if (dxpu_vswitch_config_request(vs, &req, &cpl, data, &slot) == DXPU_VSWITCH_ANSWERED) {
        must(slot == 0 && dxpu_tlp_check(&cpl) == DXPU_OK);
        must(cpl.status == DXPU_CPL_SC || cpl.status == DXPU_CPL_UR);
        return;
    }
    must(dxpu_vswitch_link_up(vs, slot) && dxpu_vswitch_by_bdf(vs, req.target) == slot);
    must(dxpu_host_by_bdf(&vs->table, req.target) == slot - 1);
}

/* A device is lost that declared what follows in the input.  What is read of it is bytes of its
   ranges or ones, and only where windows of slots are. */
static void lose(dxpu_vswitch *vs, uint8_t slot, const uint8_t *step, size_t left)
{
    uint32_t sized[DXPU_VSWITCH_FUNCTIONS][DXPU_VSWITCH_BARS] = { { 0xfffff000u } };
    dxpu_vswitch_values v;
    uint8_t data[64];
    dxpu_tlp t;
    unsigned count;
    int rc;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSGD;
    t.message_code = 0x7f;
    t.message_routing = DXPU_MSG_TO_ROOT;
    t.message_dw[0] = 0xffff;
    t.message_dw[1] = 0x64787075;
    t.payload.ptr = step + STEP_BYTES;
    t.payload.len = (left - STEP_BYTES) & ~(size_t)3;
    rc = dxpu_vswitch_values_decode(&t, &v);
    must(v.count <= DXPU_VSWITCH_VALUES_MAX && (rc == 1 || !v.count));
    count = v.count;
    for (unsigned i = 1; i < DXPU_VSWITCH_FUNCTIONS * DXPU_VSWITCH_BARS; i++)
        sized[i / 6][i % 6] = dxpu_get_le32(step + 4) << (i % 32) | (i % 5 ? 4 : 0);
    must(dxpu_vswitch_values_fit(&v, sized) + v.count == count);
    rc = dxpu_vswitch_lose(vs, slot, &v);
    for (unsigned i = 0; rc == DXPU_OK && i < vs->place[slot - 1].lost.count; i++) {
        uint64_t at = vs->place[slot - 1].lost_at[i];
        memset(data, 0xff, sizeof data);
        dxpu_vswitch_lost_read(vs, at, data, 1 + step[3] % sizeof data);
        must(dxpu_host_by_address(&vs->table, at) >= 0 || data[0] == 0xff);
    }
}

static void other(dxpu_vswitch *vs, const uint8_t *step, size_t left)
{
    static const uint8_t codes[4] = { 0x30, 0x31, 0x33, 0x18 };
    uint8_t slot = (uint8_t)(step[1] % 10);
    dxpu_vswitch_bar bar = { (uint64_t)1 << (step[3] & 63), (step[2] & 1) != 0 };
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSG;
    t.requester = dxpu_get_be16(step + 4);
    t.message_code = codes[step[6] & 3];
    t.at = step[6] & 2;
    t.address = (uint64_t)step[7] << 28;
    switch (step[2] % 6) {
    case 0:
        (void)dxpu_vswitch_insert(vs, slot, step[3] & 7, step[4] & 63);
        break;
    case 1:
        if (step[3] & 1)
            lose(vs, slot, step, left);
        else
            (void)dxpu_vswitch_remove(vs, slot);
        break;
    case 2:
        (void)dxpu_vswitch_attention(vs, slot);
        break;
    case 3:
        (void)dxpu_vswitch_message(vs, slot, &t);
        break;
    case 4:
        must(dxpu_vswitch_upstream(vs, slot, &t) <= vs->cfg.slots);
        (void)dxpu_vswitch_fits(vs, slot, &bar, 1, NULL);
        must(dxpu_vswitch_mps_bytes(vs, slot) <= 4096);
        break;
    default:
        dxpu_vswitch_reset(vs);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static dxpu_vswitch vs;
    dxpu_vswitch_config cfg;
    if (size < 1)
        return 0;
    dxpu_vswitch_config_default(&cfg);
    cfg.topology = data[0] & 1;
    cfg.slots = (uint8_t)(1 + (data[0] >> 1 & 7));
    cfg.power_controller = (data[0] & 16) != 0;
    cfg.buses = BUSES;
    must(dxpu_vswitch_init(&vs, &cfg) == DXPU_OK);
    for (size_t at = 1; at + STEP_BYTES <= size; at += STEP_BYTES) {
        if ((data[at] & 12) == 12)
            other(&vs, data + at, size - at);
        else
            request(&vs, data + at);
        check(&vs);
    }
    return 0;
}
