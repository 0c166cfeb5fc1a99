/* The virtual switch as an operating system meets it: spec/vswitch.md.
   SPDX-License-Identifier: MIT */
#define DXPU_VSWITCH_IMPLEMENTATION
#include "dxpu_vswitch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { ECAM_BUSES = 64 };
#define MSI_ADDRESS 0xfee01000u
enum {
    COMMAND = 0x04,
    BUSES = 0x18,
    SECSTA = 0x1c,
    MEMORY = 0x20,
    PREF = 0x24,
    PREF_BASE = 0x28,
    PREF_LIMIT = 0x2c,
    BRIDGE = 0x3c,
    DEVCTL = 0x48,
    LNKCAP = 0x4c,
    LNKCTL = 0x50,
    SLTCAP = 0x54,
    SLTCTL = 0x58,
    ROOTCTL = 0x5c,
    ROOTSTA = 0x60,
    DEVCTL2 = 0x68,
    MSI = 0x80,
    PMCSR = 0x94,
    AER = 0x100,
    ACS = 0x148
};
enum { ABP = 1, PDC = 8, CC = 0x10, PDS = 0x40, DLLSC = 0x100, EVENTS = 0x11f };

typedef struct bench {
    dxpu_vswitch vs;
    dxpu_vswitch_config cfg;
    uint16_t port[DXPU_VSWITCH_SLOTS_MAX + 1]; /* BDF of each slot's port, from slot 1 */
    unsigned msis, msi_data, slots_seen;
    unsigned last_bus;
    uint8_t last_slot;
    dxpu_tlp last;                   /* the request forwarded last */
    char log[64];                    /* resets and power as they came: R r P p */
    uint64_t next_memory, next_pref; /* where the enumerator puts the next window */
} bench;

static void start(bench *b, unsigned topology, unsigned slots, bool power)
{
    memset(b, 0xee, sizeof *b); /* init must not trust what was there */
    memset(b->port, 0, sizeof b->port);
    memset(b->log, 0, sizeof b->log);
    b->msis = b->msi_data = b->slots_seen = b->last_bus = 0;
    b->next_memory = 0xe0000000;
    b->next_pref = 0x2000000000;
    dxpu_vswitch_config_default(&b->cfg);
    b->cfg.topology = (uint8_t)topology;
    b->cfg.slots = (uint8_t)slots;
    b->cfg.buses = ECAM_BUSES;
    b->cfg.power_controller = power;
    assert_int_equal(dxpu_vswitch_init(&b->vs, &b->cfg), DXPU_OK);
}

/* Take all actions; MSIs must go where the enumerator set ports to send them. */
static void drain(bench *b)
{
    dxpu_vswitch_action a;
    while (dxpu_vswitch_action_next(&b->vs, &a)) {
        size_t n = strlen(b->log);
        if (a.kind == DXPU_VSWITCH_MSI) {
            assert_int_equal(a.address, MSI_ADDRESS);
            b->msis++;
            b->msi_data = a.data;
            continue;
        }
        assert_in_range(a.slot, 1, b->cfg.slots);
        if (n + 1 < sizeof b->log)
            b->log[n] = " RrPp"[a.kind - 1];
    }
}

static int request(bench *b, unsigned type, unsigned bdf, unsigned reg, unsigned be, uint32_t value,
                   uint32_t *out, uint8_t *status)
{
    dxpu_tlp req, cpl;
    uint8_t data[4] = { 0xaa, 0xaa, 0xaa, 0xaa };
    uint8_t bytes[4];
    dxpu_put_le32(bytes, value);
    memset(&req, 0, sizeof req);
    req.type = (uint8_t)type;
    req.header_dw = 3;
    req.length_dw = 1;
    req.tag = 0x55;
    req.target = (uint16_t)bdf;
    req.register_bytes = (uint16_t)reg;
    req.first_be = (uint8_t)be;
    if (type == DXPU_TLP_CFGWR0 || type == DXPU_TLP_CFGWR1) {
        req.payload.ptr = bytes;
        req.payload.len = 4;
    }
    int went = dxpu_vswitch_config_request(&b->vs, &req, &cpl, data, &b->last_slot);
    *status = 0;
    *out = 0xffffffff;
    b->last = req;
    if (went == DXPU_VSWITCH_ANSWERED) {
        assert_int_equal(cpl.tag, 0x55);
        assert_int_equal(b->last_slot, 0);
        assert_int_equal(dxpu_tlp_check(&cpl), DXPU_OK);
        *status = cpl.status;
        if (cpl.status == DXPU_CPL_SC && cpl.type == DXPU_TLP_CPLD)
            *out = dxpu_get_le32(data);
    }
    return went;
}

/* As ECAM gives it to a driver: all ones for what is not there, or not ours. */
static uint32_t rd(bench *b, unsigned bdf, unsigned reg)
{
    uint32_t v;
    uint8_t status;
    request(b, DXPU_TLP_CFGRD1, bdf, reg & ~3u, 0xf, 0, &v, &status);
    return v;
}

static unsigned rd16(bench *b, unsigned bdf, unsigned reg)
{
    return rd(b, bdf, reg) >> 8 * (reg & 2) & 0xffff;
}

static void wr_be(bench *b, unsigned bdf, unsigned reg, unsigned be, uint32_t value)
{
    uint32_t v;
    uint8_t status;
    request(b, DXPU_TLP_CFGWR1, bdf, reg, be, value, &v, &status);
    drain(b);
}

static void wr(bench *b, unsigned bdf, unsigned reg, uint32_t value)
{
    wr_be(b, bdf, reg, 0xf, value);
}

static void wr16(bench *b, unsigned bdf, unsigned reg, unsigned value)
{
    wr_be(b, bdf, reg & ~3u, reg & 2 ? 0xc : 3, (uint32_t)value << 8 * (reg & 2));
}

static unsigned forwards_to(bench *b, unsigned bdf)
{
    uint32_t v;
    uint8_t status;
    int went = request(b, DXPU_TLP_CFGRD1, bdf, 0, 0xf, 0, &v, &status);
    if (went == DXPU_VSWITCH_ANSWERED)
        assert_int_equal(status, DXPU_CPL_UR);
    return b->last_slot;
}

/* ---- invariants ---- */

static unsigned reg8(const dxpu_vswitch_port *p, unsigned at)
{
    return p->cfg[at];
}

/* What registers say of windows, by another way than the code under test. */
static bool in_window(const dxpu_vswitch_port *p, uint64_t a)
{
    uint64_t mb = a >> 20, base = reg8(p, 0x20) >> 4 | reg8(p, 0x21) << 4;
    uint64_t limit = reg8(p, 0x22) >> 4 | reg8(p, 0x23) << 4;
    uint64_t pbase = reg8(p, 0x24) >> 4 | reg8(p, 0x25) << 4;
    uint64_t plimit = reg8(p, 0x26) >> 4 | reg8(p, 0x27) << 4;
    for (unsigned i = 0; i < 4; i++) {
        pbase |= (uint64_t)reg8(p, 0x28 + i) << (12 + 8 * i);
        plimit |= (uint64_t)reg8(p, 0x2c + i) << (12 + 8 * i);
    }
    return (reg8(p, COMMAND) & 2) && ((mb >= base && mb <= limit) || (mb >= pbase && mb <= plimit));
}

static void check_slot(const bench *b, unsigned slot)
{
    const dxpu_vswitch *vs = &b->vs;
    const dxpu_vswitch_port *p = &vs->port[slot - 1];
    const dxpu_host_entry *row = &vs->rows[slot - 1];
    assert_int_equal(reg8(p, 0x5a) >> 6 & 1, p->filled); /* presence */
    bool held = (reg8(p, 0x3e) & 0x40) || (reg8(p, LNKCTL) & 0x10);
    bool off = vs->cfg.power_controller && (reg8(p, 0x59) & 4);
    assert_int_equal(reg8(p, 0x53) >> 5 & 1, p->filled && !held && !off); /* link active */
    if (dxpu_vswitch_link_up(vs, (uint8_t)slot))
        assert_true(p->filled && !held && !off);
    /* the table holds what the registers say */
    assert_int_equal(row->reg[0], (uint32_t)reg8(p, 4) | (uint32_t)reg8(p, 5) << 8);
    assert_int_equal(row->reg[1] >> 8 & 0xff, reg8(p, 0x19));
    assert_int_equal(row->reg[1] >> 16 & 0xff, reg8(p, 0x1a));
    assert_int_equal(row->port, (uint16_t)dxpu_vswitch_dump(vs, slot - 1, NULL, 0));
    if (row->bus) {
        assert_int_equal(row->bus, reg8(p, 0x19));
        assert_int_equal(row->bus_last, reg8(p, 0x1a));
    }
    if (row->memory.base <= row->memory.limit && row->memory.limit)
        assert_true(in_window(p, row->memory.base) && in_window(p, row->memory.limit));
    if (row->prefetchable.base <= row->prefetchable.limit && row->prefetchable.limit)
        assert_true(in_window(p, row->prefetchable.base));
}

static void check(const bench *b)
{
    const dxpu_vswitch *vs = &b->vs;
    for (unsigned s = 1; s <= vs->cfg.slots; s++)
        check_slot(b, s);
    for (unsigned i = 0; i < vs->ports; i++) {
        const dxpu_vswitch_port *p = &vs->port[i];
        assert_int_equal(reg8(p, 0x0e), 1);
        assert_int_equal(reg8(p, 0x34), 0x40);
        assert_int_equal(reg8(p, 0x24) & 15, 1); /* prefetchable window of 64 bits */
        assert_int_equal(reg8(p, 0x26) & 15, 1);
        assert_int_equal(reg8(p, 0x1c) | reg8(p, 0x1d), 0); /* no I/O window */
        assert_int_equal(reg8(p, 0x3d), 0);                 /* no INTx */
        assert_int_not_equal(reg8(p, PMCSR) & 3, 1);
        assert_int_not_equal(reg8(p, PMCSR) & 3, 2);
    }
}

/* ---- an operating system ---- */

static void enable_hotplug(bench *b, unsigned bdf)
{
    uint32_t cap = rd(b, bdf, SLTCAP);
    unsigned control = 0x1000 | 0x20; /* DLLSCE, HPIE */
    assert_int_equal(cap & 0x60, 0x60);
    assert_int_equal(rd(b, bdf, LNKCAP) >> 20 & 1, 1);
    control |= cap & 1 ? 1 : 8;              /* attention button, or presence */
    control |= cap & 0x40000 ? 0 : 0x10;     /* commands complete */
    wr16(b, bdf, SLTCTL + 2, EVENTS & ~PDC); /* as pciehp, which keeps a presence change */
    wr16(b, bdf, SLTCTL, (rd16(b, bdf, SLTCTL) & 0x7c0) | control);
}

static void enable_msi(bench *b, unsigned bdf, unsigned data)
{
    unsigned control = rd16(b, bdf, MSI + 2);
    assert_int_equal(rd(b, bdf, MSI) & 0xff, 5);
    assert_int_equal(control & 0xfe, 0x80); /* 64-bit, one vector */
    wr(b, bdf, MSI + 4, MSI_ADDRESS);
    wr(b, bdf, MSI + 8, 0);
    wr16(b, bdf, MSI + 12, data);
    wr16(b, bdf, MSI + 2, control | 1);
}

/* Probe the bridge windows as Linux does: is the prefetchable one there, of 64 bits; I/O is not. */
static void probe_windows(bench *b, unsigned bdf)
{
    wr16(b, bdf, SECSTA, 0xe0f0);
    assert_int_equal(rd16(b, bdf, SECSTA), 0);
    wr(b, bdf, PREF, 0xffe0fff0);
    assert_int_equal(rd(b, bdf, PREF), 0xffe1fff1);
    wr(b, bdf, PREF, 0);
    wr(b, bdf, PREF_BASE, 0xffffffff);
    assert_int_equal(rd(b, bdf, PREF_BASE), 0xffffffff);
    wr(b, bdf, PREF_BASE, 0);
    for (unsigned bar = 0x10; bar <= 0x14; bar += 4) { /* and no BARs */
        wr(b, bdf, bar, 0xffffffff);
        assert_int_equal(rd(b, bdf, bar), 0);
    }
    wr(b, bdf, MEMORY, 0x0000fff0);
    wr(b, bdf, PREF, 0x0000fff0);
}

/* Scan a bus depth first; windows of 2 MB + 2 MB a slot, bridges span their children. */
static void scan(bench *b, unsigned bus)
{
    for (unsigned dev = 0; dev < 32; dev++) {
        for (unsigned fn = 0; fn < 8; fn++) {
            unsigned bdf = DXPU_BDF(bus, dev, fn);
            if (rd(b, bdf, 0) == 0xffffffff)
                continue;
            assert_int_equal(fn, 0);
            assert_int_equal(rd(b, bdf, 8) >> 8, 0x060400);
            assert_int_equal(rd(b, bdf, 0x0c) >> 16 & 0xff, 1);
            bool slot = rd(b, bdf, 0x40) >> 24 & 1;
            uint64_t memory = b->next_memory, pref = b->next_pref;
            unsigned secondary = ++b->last_bus;
            probe_windows(b, bdf);
            wr(b, bdf, BUSES, bus | secondary << 8 | 0xff0000);
            if (!slot)
                scan(b, secondary);
            else
                b->port[++b->slots_seen] = (uint16_t)bdf;
            wr(b, bdf, BUSES, bus | secondary << 8 | b->last_bus << 16);
            b->next_memory += slot ? 0x200000 : 0;
            b->next_pref += slot ? 0x200000 : 0;
            uint32_t limit = (uint32_t)b->next_memory - 1, plimit = (uint32_t)b->next_pref - 1;
            wr(b, bdf, MEMORY, (limit & 0xfff00000) | ((uint32_t)memory >> 16 & 0xfff0));
            wr(b, bdf, PREF_LIMIT, 0);
            wr(b, bdf, PREF, (plimit & 0xfff00000) | ((uint32_t)pref >> 16 & 0xfff0));
            wr(b, bdf, PREF_BASE, (uint32_t)(pref >> 32));
            wr(b, bdf, PREF_LIMIT, (uint32_t)((b->next_pref - 1) >> 32));
            check(b);
        }
    }
}

static void boot(bench *b, unsigned topology, unsigned slots, bool power)
{
    start(b, topology, slots, power);
    for (unsigned bus = 0; bus < 3; bus++) { /* before any bus has a number */
        for (unsigned dev = 0; dev < 32; dev++) {
            bool there =
                bus == 0 && dev >= 1 && dev <= (topology == DXPU_VSWITCH_SWITCH ? 1 : slots);
            assert_int_equal(rd(b, DXPU_BDF(bus, dev, 0), 0) != 0xffffffff, there);
        }
    }
    scan(b, 0);
    assert_int_equal(b->slots_seen, slots);
    for (unsigned i = 0; i < b->vs.ports; i++) {
        unsigned bdf = (unsigned)dxpu_vswitch_dump(&b->vs, i, NULL, 0);
        wr16(b, bdf, COMMAND, 0x0506);
        enable_msi(b, bdf, 0x4000 + i);
        wr16(b, bdf, BRIDGE + 2, 2); /* SERR */
        if (b->vs.port[i].slot)
            enable_hotplug(b, bdf);
    }
    b->msis = 0;
    drain(b);
}

/* The interrupt service of pciehp: collect events until none is left.  Returns them. */
static unsigned serve(bench *b, unsigned slot)
{
    unsigned events = 0, now;
    while ((now = rd16(b, b->port[slot], SLTCTL + 2) & EVENTS) != 0) {
        events |= now;
        wr16(b, b->port[slot], SLTCTL + 2, now);
    }
    return events;
}

static void insert(bench *b, unsigned slot)
{
    assert_int_equal(dxpu_vswitch_insert(&b->vs, (uint8_t)slot, 3, 4), DXPU_OK);
    drain(b);
}

static void remove_device(bench *b, unsigned slot)
{
    assert_int_equal(dxpu_vswitch_remove(&b->vs, (uint8_t)slot), DXPU_OK);
    drain(b);
}

static unsigned own_bus(bench *b, unsigned slot)
{
    return rd(b, b->port[slot], BUSES) >> 8 & 0xff;
}

#define EACH_TOPOLOGY                                                                              \
    for (unsigned topology = DXPU_VSWITCH_ROOT_PORTS; topology <= DXPU_VSWITCH_SWITCH; topology++)

/* ---- tests ---- */

static void test_v1_config(void **state)
{
    (void)state;
    static bench b;
    dxpu_vswitch_config c;
    start(&b, DXPU_VSWITCH_ROOT_PORTS, 8, false);
    c = b.cfg;
    c.slots = 0;
    assert_int_equal(dxpu_vswitch_init(&b.vs, &c), DXPU_E_ARG);
    c.slots = DXPU_VSWITCH_SLOTS_MAX + 1;
    c.buses = 255;
    assert_int_equal(dxpu_vswitch_init(&b.vs, &c), DXPU_E_ARG);
    c.slots = DXPU_VSWITCH_SLOTS_MAX;
    assert_int_equal(dxpu_vswitch_init(&b.vs, &c), DXPU_OK);
    c.slots = 8;
    for (unsigned t = 0; t < 2; t++) {
        c.topology = (uint8_t)t;
        c.buses = t ? 11 : 9;
        assert_int_equal(dxpu_vswitch_init(&b.vs, &c), DXPU_OK);
        c.buses--;
        assert_int_equal(dxpu_vswitch_init(&b.vs, &c), DXPU_E_ARG);
    }
    c.buses = 32;
    c.topology = 2;
    assert_int_equal(dxpu_vswitch_init(&b.vs, &c), DXPU_E_ARG);
    c.topology = 0;
    c.mps_code = 6;
    assert_int_equal(dxpu_vswitch_init(&b.vs, &c), DXPU_E_ARG);
    dxpu_vswitch_config_default(&c);
    assert_int_equal(c.topology, DXPU_VSWITCH_ROOT_PORTS);
    assert_int_equal(dxpu_vswitch_init(&b.vs, &c), DXPU_OK);
}

static void test_v2_dump(void **state)
{
    (void)state;
    static bench b;
    uint8_t space[DXPUI_VS_BYTES + 4];
    boot(&b, DXPU_VSWITCH_SWITCH, 2, false);
    memset(space, 0xee, sizeof space);
    assert_int_equal(dxpu_vswitch_dump(&b.vs, 1, space, sizeof space), DXPU_BDF(2, 1, 0));
    for (unsigned at = 0; at < sizeof space; at++)
        assert_int_equal(space[at], rd(&b, DXPU_BDF(2, 1, 0), at) >> 8 * (at & 3) & 0xff);
    assert_int_equal(dxpu_vswitch_dump(&b.vs, 2, space, 2), DXPU_BDF(0, 1, 0));
    assert_int_equal(dxpu_vswitch_dump(&b.vs, 3, space, 2), DXPU_BDF(1, 0, 0));
    assert_int_equal(dxpu_vswitch_dump(&b.vs, 4, space, 2), -1);
    assert_int_equal(dxpu_vswitch_window_bytes(&b.vs, 0, true), 0);
    assert_int_equal(dxpu_vswitch_window_bytes(&b.vs, 3, true), 0);
}

/* What sticks of all ones and of all zeros, register by register. */
typedef struct bits {
    unsigned at;
    uint32_t ones, zeros;
} bits;

static void sticks(bench *b, unsigned bdf, const bits *want, size_t count)
{
    for (unsigned at = 0; at < 0x1000; at += 4) {
        uint32_t before = rd(b, bdf, at), ones = before, zeros = before;
        for (size_t i = 0; i < count; i++) {
            if (want[i].at == at) {
                ones = want[i].ones;
                zeros = want[i].zeros;
            }
        }
        if (at == BRIDGE || at == LNKCTL) /* reset and link disable have their own tests */
            continue;
        if (at == BUSES || at == PMCSR || at == MSI)
            continue;
        wr(b, bdf, at, 0xffffffff);
        assert_int_equal(rd(b, bdf, at), ones);
        wr(b, bdf, at, 0);
        assert_int_equal(rd(b, bdf, at), zeros);
    }
}

static void test_v2_registers(void **state)
{
    (void)state;
    static bench b;
    static const bits root[] = {
        { COMMAND, 0x00100547, 0x00100000 },
        { 0x0c, 0x000100ff, 0x00010000 },
        { MEMORY, 0xfff0fff0, 0 },
        { PREF, 0xfff1fff1, 0x00010001 },
        { PREF_BASE, 0xffffffff, 0 },
        { PREF_LIMIT, 0xffffffff, 0 },
        { DEVCTL, 0x000071ef, 0 },
        { SLTCTL, 0x000013e8, 0x000003c0 },
        { ROOTCTL, 0x0001001f, 0x00010000 },
        { DEVCTL2, 0x00000030, 0 },
        { 0x70, 0x0000000f, 0 },
        { 0x84, 0xfffffffc, 0 },
        { 0x88, 0xffffffff, 0 },
        { 0x8c, 0x0000ffff, 0 },
        { AER + 8, 0x0077f010, 0 },
        { AER + 0xc, 0x0077f010, 0 },
        { AER + 0x14, 0x0000f1c1, 0 },
        { AER + 0x2c, 0x00000007, 0 },
        { ACS + 4, 0x005f005f, 0x0000005f },
    };
    static bits other[sizeof root / sizeof root[0]];
    start(&b, DXPU_VSWITCH_ROOT_PORTS, 2, false);
    sticks(&b, DXPU_BDF(0, 1, 0), root, sizeof root / sizeof root[0]);
    memcpy(other, root, sizeof root);
    other[7].ones = 0x001017f9; /* a power controller has commands, which complete */
    other[7].zeros = 0x00100000;
    start(&b, DXPU_VSWITCH_ROOT_PORTS, 2, true);
    sticks(&b, DXPU_BDF(0, 1, 0), other, sizeof root / sizeof root[0]);
    boot(&b, DXPU_VSWITCH_SWITCH, 2, false);
    other[7].ones = 0x000013e8;
    other[7].zeros = 0x000003c0;
    other[8].ones = other[8].zeros = 0; /* root control */
    other[9].ones = 0x00000020;
    other[17].ones = 0; /* root error command */
    sticks(&b, b.port[1], other, sizeof root / sizeof root[0]);
    other[7].ones = other[7].zeros = 0;
    other[9].ones = 0;
    other[14].ones = other[15].ones = 0x0057f010;
    other[18].ones = other[18].zeros = 0; /* ACS */
    sticks(&b, DXPU_BDF(1, 0, 0), other, sizeof root / sizeof root[0]);
}

static void test_v2_capabilities(void **state)
{
    (void)state;
    static bench b;
    boot(&b, DXPU_VSWITCH_SWITCH, 3, false);
    for (unsigned i = 0; i < b.vs.ports; i++) {
        unsigned bdf = (unsigned)dxpu_vswitch_dump(&b.vs, i, NULL, 0);
        unsigned at = rd(&b, bdf, 0x34) & 0xff, ids = 0;
        bool up = bdf == DXPU_BDF(1, 0, 0), root = bdf == DXPU_BDF(0, 1, 0);
        for (unsigned n = 0; at && n < 8; n++) {
            uint32_t header = rd(&b, bdf, at);
            ids |= 1u << (header & 31);
            at = header >> 8 & 0xff;
        }
        assert_int_equal(at, 0);
        assert_int_equal(ids, 1u << 0x10 | 1u << 5 | 1u << 1);
        assert_int_equal(rd(&b, bdf, 0x40) >> 16 & 0x1ff, 2 |
                                                              (root ? 4u
                                                               : up ? 5u
                                                                    : 6u)
                                                                  << 4 |
                                                              (root || up ? 0u : 0x100u));
        assert_int_equal(rd(&b, bdf, AER), 0x00020001u | (up ? 0 : (uint32_t)ACS << 20));
        assert_int_equal(rd(&b, bdf, ACS), up ? 0 : 0x0001000du);
        assert_int_equal(rd(&b, bdf, LNKCAP) >> 18 & 15, up ? 0u : 0xcu); /* active, bandwidth */
        assert_int_equal(rd16(&b, bdf, LNKCTL + 2) >> 13 & 1, root ? 1 : 0);
        assert_int_equal(rd(&b, bdf, DEVCTL) >> 5 & 7, 1); /* 256 B */
        assert_int_equal(rd(&b, bdf, 0xffc), 0);
    }
    for (unsigned s = 1; s <= 3; s++)
        assert_int_equal(rd(&b, b.port[s], SLTCAP) >> 19, s);
}

static void test_v3_byte_enables_and_poison(void **state)
{
    (void)state;
    static bench b;
    unsigned bdf = DXPU_BDF(0, 1, 0);
    dxpu_tlp req, cpl;
    uint8_t data[4], slot, bytes[4] = { 0xff, 0xff, 0xff, 0xff };
    boot(&b, DXPU_VSWITCH_ROOT_PORTS, 1, false);
    wr(&b, bdf, PREF_BASE, 0x11223344);
    wr_be(&b, bdf, PREF_BASE, 0x4, 0xaabbccdd);
    assert_int_equal(rd(&b, bdf, PREF_BASE), 0x11bb3344);
    wr_be(&b, bdf, PREF_BASE, 0, 0);
    assert_int_equal(rd(&b, bdf, PREF_BASE), 0x11bb3344);
    insert(&b, 1);
    /* other bytes, and a write to the control half of the dword, clear nothing */
    assert_int_equal(rd16(&b, bdf, SLTCTL + 2), PDS | PDC | DLLSC);
    wr_be(&b, bdf, SLTCTL, 0x8, 0xffffffff);
    assert_int_equal(rd16(&b, bdf, SLTCTL + 2), PDS | PDC);
    wr16(&b, bdf, SLTCTL, 0xffff);
    assert_int_equal(rd16(&b, bdf, SLTCTL + 2), PDS | PDC);
    wr_be(&b, bdf, SLTCTL, 0x4, 0xffffffff);
    assert_int_equal(rd16(&b, bdf, SLTCTL + 2), PDS);

    memset(&req, 0, sizeof req);
    req.type = DXPU_TLP_CFGWR0;
    req.length_dw = 1;
    req.first_be = 0xf;
    req.target = (uint16_t)bdf;
    req.register_bytes = PREF_LIMIT;
    req.payload.ptr = bytes;
    req.payload.len = 4;
    req.ep = true;
    uint32_t before = rd(&b, bdf, PREF_LIMIT);
    assert_int_equal(dxpu_vswitch_config_request(&b.vs, &req, &cpl, data, &slot),
                     DXPU_VSWITCH_ANSWERED);
    assert_int_equal(cpl.status, DXPU_CPL_UR);
    assert_int_equal(rd(&b, bdf, PREF_LIMIT), before);
    req.ep = false;
    dxpu_vswitch_config_request(&b.vs, &req, &cpl, data, &slot);
    assert_int_equal(cpl.status, DXPU_CPL_SC);
    assert_int_equal(rd(&b, bdf, PREF_LIMIT), 0xffffffff);
}

static void test_v3_power_states(void **state)
{
    (void)state;
    static bench b;
    boot(&b, DXPU_VSWITCH_SWITCH, 2, false);
    insert(&b, 1);
    unsigned bus = own_bus(&b, 1), up = DXPU_BDF(1, 0, 0);
    assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 1);
    wr16(&b, up, PMCSR, 2);
    assert_int_equal(rd16(&b, up, PMCSR), 8);
    wr16(&b, up, PMCSR, 3);
    assert_int_equal(rd16(&b, up, PMCSR), 0xb);
    assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 0);
    assert_int_equal(rd(&b, b.port[1], 0), 0xffffffff);
    wr16(&b, up, PMCSR, 0);
    assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 1);
    /* an event of a port that sleeps waits */
    serve(&b, 2);
    b.msis = 0;
    wr16(&b, b.port[2], PMCSR, 3);
    insert(&b, 2);
    assert_int_equal(b.msis, 0);
    wr16(&b, b.port[2], PMCSR, 0);
    assert_int_equal(b.msis, 1);
}

static void enumerate(unsigned topology, unsigned slots)
{
    static bench b;
    boot(&b, topology, slots, false);
    for (unsigned s = 1; s <= slots; s++) {
        unsigned bus = own_bus(&b, s);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 0);
        insert(&b, s);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), s);
        assert_int_equal(b.last.type, DXPU_TLP_CFGRD0);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 7)), s);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 1, 0)), 0);
        assert_int_equal(dxpu_vswitch_by_bdf(&b.vs, DXPU_BDF(bus, 0, 3)), s);
        const dxpu_host_entry *row = &b.vs.rows[s - 1];
        assert_int_equal(row->port, b.port[s]);
        assert_int_equal(row->bus, bus);
        for (unsigned k = 0; k < 2; k++) {
            dxpu_range r = k ? row->prefetchable : row->memory;
            assert_int_equal(r.limit - r.base, 0x1fffff);
            assert_int_equal(dxpu_vswitch_window_bytes(&b.vs, (uint8_t)s, k != 0), 0x200000);
            assert_int_equal(dxpu_vswitch_by_address(&b.vs, r.base), s);
            assert_int_equal(dxpu_vswitch_by_address(&b.vs, r.limit), s);
            assert_int_not_equal(dxpu_vswitch_by_address(&b.vs, r.limit + 1), s);
            assert_int_not_equal(dxpu_vswitch_by_address(&b.vs, r.base - 1), s);
        }
        check(&b);
    }
    assert_int_equal(b.msis, slots);
    assert_int_equal(dxpu_vswitch_by_bdf(&b.vs, DXPU_BDF(b.last_bus + 1, 0, 0)), 0);
    assert_int_equal(forwards_to(&b, DXPU_BDF(b.last_bus + 1, 0, 0)), 0);
}

static void test_v4_enumerate(void **state)
{
    (void)state;
    static const unsigned counts[] = { 1, 8, 28 };
    for (unsigned i = 0; i < 3; i++) {
        enumerate(DXPU_VSWITCH_ROOT_PORTS, counts[i]);
        enumerate(DXPU_VSWITCH_SWITCH, counts[i]);
    }
}

/* Whatever is between the host and a slot must let addresses, requests and DMA through. */
static void test_v4_way_down(void **state)
{
    (void)state;
    static bench b;
    boot(&b, DXPU_VSWITCH_SWITCH, 2, false);
    insert(&b, 2);
    uint64_t address = b.vs.rows[1].memory.base;
    unsigned path[] = { DXPU_BDF(0, 1, 0), DXPU_BDF(1, 0, 0), b.port[2] };
    for (unsigned i = 0; i < 3; i++) {
        wr16(&b, path[i], COMMAND, 0x4);
        assert_int_equal(dxpu_vswitch_by_address(&b.vs, address), 0);
        assert_true(dxpu_vswitch_bus_master(&b.vs, 2));
        wr16(&b, path[i], COMMAND, 0x2);
        assert_int_equal(dxpu_vswitch_by_address(&b.vs, address), 2);
        assert_false(dxpu_vswitch_bus_master(&b.vs, 2));
        wr16(&b, path[i], COMMAND, 0x6);
        uint32_t window = rd(&b, path[i], MEMORY);
        wr(&b, path[i], MEMORY, 0x0000fff0);
        assert_int_equal(dxpu_vswitch_by_address(&b.vs, address), 0);
        wr(&b, path[i], MEMORY, window);
        assert_int_equal(dxpu_vswitch_by_address(&b.vs, address), 2);
        assert_true(dxpu_vswitch_bus_master(&b.vs, 2));
    }
}

/* A bus number that two ports claim belongs to the nearer one; none is passed past the last. */
static void test_v4_bus_numbers(void **state)
{
    (void)state;
    static bench b;
    boot(&b, DXPU_VSWITCH_SWITCH, 2, false);
    insert(&b, 1);
    insert(&b, 2);
    unsigned up = DXPU_BDF(1, 0, 0);
    uint32_t was = rd(&b, up, BUSES);
    wr(&b, up, BUSES, 0x00ff0101); /* secondary as the root port's */
    assert_int_equal(rd(&b, up, 0), 0x8232104c);
    wr(&b, up, BUSES, was);
    wr(&b, b.port[2], BUSES, 0x00080402); /* a switch behind the slot: buses 4 to 8 */
    assert_int_equal(forwards_to(&b, DXPU_BDF(4, 0, 0)), 2);
    assert_int_equal(b.last.type, DXPU_TLP_CFGRD0);
    assert_int_equal(forwards_to(&b, DXPU_BDF(8, 31, 7)), 0); /* the ports above end at 4 */
    wr(&b, up, BUSES, (was & 0xffff) | 0xff0000);
    assert_int_equal(forwards_to(&b, DXPU_BDF(8, 31, 7)), 0);
    wr(&b, DXPU_BDF(0, 1, 0), BUSES, 0xff0100);
    assert_int_equal(forwards_to(&b, DXPU_BDF(8, 31, 7)), 2);
    assert_int_equal(b.last.type, DXPU_TLP_CFGRD1);
    assert_int_equal(forwards_to(&b, DXPU_BDF(9, 0, 0)), 0);
    wr(&b, b.port[2], BUSES, 0x00ff0402); /* more than the host can reach */
    assert_int_equal(forwards_to(&b, DXPU_BDF(ECAM_BUSES - 1, 0, 0)), 2);
    assert_int_equal(forwards_to(&b, DXPU_BDF(ECAM_BUSES, 0, 0)), 0);
    assert_int_equal(dxpu_vswitch_by_bdf(&b.vs, DXPU_BDF(ECAM_BUSES, 0, 0)), 0);
    wr(&b, up, BUSES, 0x00ff1101); /* the slots' ports move to bus 17 */
    assert_int_equal(rd(&b, b.port[2], 0), 0xffffffff);
    assert_int_equal(rd(&b, DXPU_BDF(0x11, 1, 0), 0), 0x8233104c);
    assert_int_equal(b.vs.rows[1].port, DXPU_BDF(0x11, 1, 0));
    assert_int_equal(rd(&b, DXPU_BDF(0x11, 2, 0), 0), 0xffffffff);
    assert_int_equal(rd(&b, DXPU_BDF(0x11, 1, 1), 0), 0xffffffff);
    check(&b);
}

/* Reads and writes of both types come out as what the place of their target asks for. */
static void test_v4_types(void **state)
{
    (void)state;
    static bench b;
    static const uint8_t types[4] = { DXPU_TLP_CFGRD0, DXPU_TLP_CFGRD1, DXPU_TLP_CFGWR0,
                                      DXPU_TLP_CFGWR1 };
    uint32_t v;
    uint8_t status;
    boot(&b, DXPU_VSWITCH_ROOT_PORTS, 1, false);
    insert(&b, 1);
    wr(&b, b.port[1], BUSES, 0x00030100);
    for (unsigned i = 0; i < 4; i++) {
        request(&b, types[i], DXPU_BDF(1, 0, 0), 0x10, 0xf, 0x12345678, &v, &status);
        assert_int_equal(b.last_slot, 1);
        assert_int_equal(b.last.type, types[i & 2]);
        request(&b, types[i], DXPU_BDF(2, 0, 0), 0x10, 0xf, 0x12345678, &v, &status);
        assert_int_equal(b.last_slot, 1);
        assert_int_equal(b.last.type, types[i | 1]);
    }
    assert_int_equal(b.vs.count_forwarded, 8);
}

static void test_v4_ari(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 1, false);
        insert(&b, 1);
        unsigned bdf = DXPU_BDF(own_bus(&b, 1), 3, 2);
        assert_int_equal(forwards_to(&b, bdf), 0);
        wr16(&b, b.port[1], DEVCTL2, 0x20);
        assert_int_equal(forwards_to(&b, bdf), 1);
        assert_int_equal(b.last.type, DXPU_TLP_CFGRD0);
        assert_int_equal(b.last.target, bdf);
    }
}

static void cycles(unsigned topology, unsigned slots)
{
    static bench b;
    boot(&b, topology, slots, false);
    for (unsigned n = 0; n < 3 * slots; n++) {
        unsigned s = 1 + n * 5 % slots, index = s - 1, bus = own_bus(&b, s);
        b.msis = 0;
        insert(&b, s);
        assert_int_equal(b.msis, 1);
        assert_int_equal(b.msi_data, 0x4000 + index);
        assert_int_equal(rd16(&b, b.port[s], LNKCTL + 2), 0x2043); /* 8 GT/s, x4 */
        assert_int_equal(serve(&b, s), PDC | DLLSC);
        assert_int_equal(rd16(&b, b.port[s], SLTCTL + 2), PDS);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), s);
        assert_int_equal(b.msis, 1);
        remove_device(&b, s);
        assert_int_equal(b.msis, 2);
        assert_int_equal(serve(&b, s), PDC | DLLSC);
        assert_int_equal(rd16(&b, b.port[s], SLTCTL + 2), 0);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 0);
        check(&b);
    }
    assert_string_equal(b.log, "");
    assert_int_equal(dxpu_vswitch_remove(&b.vs, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_vswitch_insert(&b.vs, 0, 1, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_vswitch_insert(&b.vs, (uint8_t)(slots + 1), 1, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_vswitch_insert(&b.vs, 1, 0, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_vswitch_insert(&b.vs, 1, 1, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vswitch_insert(&b.vs, 1, 6, 32), DXPU_OK);
    assert_int_equal(rd16(&b, b.port[1], LNKCTL + 2), 0x2104); /* no more than the port can */
    assert_int_equal(dxpu_vswitch_insert(&b.vs, 1, 1, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_vswitch_attention(&b.vs, 1), DXPU_E_ARG);
}

static void test_v6_cycles(void **state)
{
    (void)state;
    EACH_TOPOLOGY
    {
        cycles(topology, 1);
        cycles(topology, 8);
        cycles(topology, 28);
    }
}

static void test_v7_interrupt_edges(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        unsigned p = b.port[1];
        insert(&b, 1); /* two events, then two more: one MSI until all are cleared */
        remove_device(&b, 1);
        insert(&b, 1);
        assert_int_equal(b.msis, 1);
        wr16(&b, p, SLTCTL + 2, PDC); /* one is left */
        remove_device(&b, 1);
        assert_int_equal(b.msis, 1);
        wr16(&b, p, SLTCTL + 2, PDC | DLLSC);
        insert(&b, 1);
        assert_int_equal(b.msis, 2);
        serve(&b, 1);
        /* an event with its enables off is not signaled, and is when they come on: each of them */
        static const struct {
            unsigned at, mask;
        } gates[] = { { SLTCTL, 0x20 }, { SLTCTL, 0x1008 }, { MSI + 2, 1 }, { COMMAND, 4 } };
        for (unsigned i = 0; i < 4; i++) {
            unsigned on = rd16(&b, p, gates[i].at), was = b.msis;
            wr16(&b, p, gates[i].at, on & ~gates[i].mask);
            remove_device(&b, 1);
            insert(&b, 1);
            assert_int_equal(b.msis, was);
            wr16(&b, p, gates[i].at, on);
            assert_int_equal(b.msis, was + 1);
            wr16(&b, p, gates[i].at, on);
            assert_int_equal(b.msis, was + 1);
            serve(&b, 1);
        }
        /* one that was not yet taken when MSI went off never reaches a stale address */
        unsigned was = b.msis;
        assert_int_equal(dxpu_vswitch_remove(&b.vs, 1), DXPU_OK);
        uint32_t v;
        uint8_t status;
        request(&b, DXPU_TLP_CFGWR0, p, MSI, 0xc, 0, &v, &status);
        drain(&b);
        assert_int_equal(b.msis, was);
    }
}

/* In a switch the MSI of a downstream port needs the ports above. */
static void test_v7_interrupt_way_up(void **state)
{
    (void)state;
    static bench b;
    unsigned above[] = { DXPU_BDF(0, 1, 0), DXPU_BDF(1, 0, 0) };
    boot(&b, DXPU_VSWITCH_SWITCH, 1, false);
    for (unsigned i = 0; i < 2; i++) {
        unsigned was = b.msis;
        wr16(&b, above[i], COMMAND, 2);
        insert(&b, 1);
        assert_int_equal(b.msis, was);
        wr16(&b, above[i], COMMAND, 6);
        assert_int_equal(b.msis, was + 1);
        remove_device(&b, 1);
        serve(&b, 1);
    }
}

static void test_v8_commands_complete(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, true);
        unsigned p = b.port[1];
        assert_int_equal(rd(&b, p, SLTCAP) & 0x4001b, 0x1b);
        serve(&b, 1);
        b.msis = 0;
        unsigned control = rd16(&b, p, SLTCTL);
        assert_int_equal(control & 0x400, 0x400); /* empty: power is off */
        wr16(&b, p, SLTCTL, control & ~0xc0u);    /* an indicator */
        assert_int_equal(b.msis, 1);
        assert_int_equal(serve(&b, 1), CC);
        wr16(&b, p, SLTCTL + 2, EVENTS); /* status alone is not a command */
        wr_be(&b, p, SLTCTL, 0, 0);
        assert_int_equal(rd16(&b, p, SLTCTL + 2), 0);
        wr_be(&b, p, SLTCTL, 2, rd(&b, p, SLTCTL)); /* one byte of it is */
        assert_int_equal(serve(&b, 1), CC);
        /* no command completes where none is said to */
        boot(&b, topology, 1, false);
        wr16(&b, b.port[1], SLTCTL, 0xffff);
        assert_int_equal(rd16(&b, b.port[1], SLTCTL + 2), 0);
    }
}

static void test_v8_power(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, true);
        unsigned p = b.port[2], bus = own_bus(&b, 2), on = rd16(&b, p, SLTCTL) & ~0x400u;
        serve(&b, 2);
        b.msis = 0;
        insert(&b, 2); /* no power, no link; presence is reported, but not enabled */
        assert_int_equal(rd16(&b, p, SLTCTL + 2), PDS | PDC);
        assert_int_equal(b.msis, 0);
        assert_int_equal(dxpu_vswitch_attention(&b.vs, 2), DXPU_OK);
        drain(&b);
        assert_int_equal(b.msis, 1);
        assert_int_equal(serve(&b, 2), ABP | PDC);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 0);
        assert_string_equal(b.log, "");
        wr16(&b, p, SLTCTL, on);
        assert_string_equal(b.log, "P");
        assert_int_equal(serve(&b, 2), CC | DLLSC);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 2);
        wr16(&b, p, SLTCTL, on | 0x400);
        assert_string_equal(b.log, "Pp");
        assert_int_equal(serve(&b, 2), CC | DLLSC);
        assert_int_equal(rd16(&b, p, SLTCTL + 2), PDS);
        remove_device(&b, 2);
        assert_int_equal(serve(&b, 2), PDC);
        wr16(&b, p, SLTCTL, on);
        insert(&b, 2);
        assert_int_equal(serve(&b, 2), CC | PDC | DLLSC);
        check(&b);
        assert_int_equal(dxpu_vswitch_attention(&b.vs, 3), DXPU_E_ARG);
    }
}

static void test_v9_slot_reset(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        unsigned p = b.port[1], bus = own_bus(&b, 1);
        insert(&b, 1);
        serve(&b, 1);
        uint32_t window = rd(&b, p, MEMORY), devctl = rd(&b, p, DEVCTL);
        wr16(&b, p, BRIDGE + 2, 0x42);
        assert_string_equal(b.log, "R");
        assert_int_equal(rd16(&b, p, LNKCTL + 2) & 0x2000, 0);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 0);
        assert_int_equal(dxpu_vswitch_by_address(&b.vs, b.vs.rows[0].memory.base), 0);
        assert_int_equal(rd16(&b, p, SLTCTL + 2), PDS | DLLSC); /* presence is kept */
        wr16(&b, p, BRIDGE + 2, 2);
        assert_string_equal(b.log, "Rr");
        assert_int_equal(serve(&b, 1), DLLSC);
        assert_int_equal(rd16(&b, p, LNKCTL + 2) & 0x2000, 0x2000);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 1);
        assert_int_equal(rd(&b, p, MEMORY), window); /* the port's own registers are */
        assert_int_equal(rd(&b, p, DEVCTL), devctl);
        check(&b);
    }
}

/* A pulse that is over before the owner looks is reported whole. */
static void test_v9_pulse(void **state)
{
    (void)state;
    static bench b;
    uint32_t v;
    uint8_t status;
    boot(&b, DXPU_VSWITCH_ROOT_PORTS, 1, false);
    for (unsigned i = 0; i < 3; i++) {
        request(&b, DXPU_TLP_CFGWR0, b.port[1], BRIDGE, 0xc, 0x420000, &v, &status);
        request(&b, DXPU_TLP_CFGWR0, b.port[1], BRIDGE, 0xc, 0x020000, &v, &status);
    }
    drain(&b);
    assert_string_equal(b.log, "Rr");
    request(&b, DXPU_TLP_CFGWR0, b.port[1], BRIDGE, 0xc, 0x420000, &v, &status);
    drain(&b);
    request(&b, DXPU_TLP_CFGWR0, b.port[1], BRIDGE, 0xc, 0x020000, &v, &status);
    request(&b, DXPU_TLP_CFGWR0, b.port[1], BRIDGE, 0xc, 0x420000, &v, &status);
    drain(&b);
    assert_string_equal(b.log, "RrRrR");
}

/* Reset of the whole switch from its root port, from its upstream port, and its root link off. */
static void test_v9_switch_reset(void **state)
{
    (void)state;
    static bench b;
    static const struct {
        unsigned bdf, at, on, off;
    } ways[] = { { DXPU_BDF(0, 1, 0), BRIDGE + 2, 0x42, 2 },
                 { DXPU_BDF(1, 0, 0), BRIDGE + 2, 0x42, 2 },
                 { DXPU_BDF(0, 1, 0), LNKCTL, 0x10, 0 } };
    for (unsigned i = 0; i < 3; i++) {
        boot(&b, DXPU_VSWITCH_SWITCH, 2, false);
        unsigned p = b.port[1], bus = own_bus(&b, 1), up = DXPU_BDF(1, 0, 0);
        uint32_t buses = rd(&b, up, BUSES);
        insert(&b, 1);
        serve(&b, 1);
        wr(&b, p, AER + 0x14, 0xf1c1); /* sticky */
        wr16(&b, ways[i].bdf, ways[i].at, ways[i].on);
        assert_int_equal(rd(&b, p, 0), 0xffffffff);
        assert_int_equal(rd(&b, up, 0) == 0xffffffff, i != 1);
        assert_int_equal(forwards_to(&b, DXPU_BDF(bus, 0, 0)), 0);
        assert_string_equal(b.log, "RR");
        wr16(&b, ways[i].bdf, ways[i].at, ways[i].off);
        assert_string_equal(b.log, "RRrr");
        assert_int_equal(rd(&b, up, BUSES), i == 1 ? buses : 0);
        wr(&b, up, BUSES, buses);
        assert_int_equal(rd(&b, p, BUSES), 0);
        assert_int_equal(rd16(&b, p, COMMAND), 0);
        assert_int_equal(rd16(&b, p, SLTCTL + 2), PDS); /* presence is kept, no change shown */
        assert_int_equal(rd16(&b, p, LNKCTL + 2), 0x2043);
        assert_int_equal(rd(&b, p, AER + 0x14), 0xf1c1);
        assert_int_equal(rd(&b, p, DEVCTL) >> 5 & 7, 1);
        assert_int_equal(dxpu_vswitch_by_address(&b.vs, b.vs.rows[0].memory.base), 0);
        unsigned was = b.msis; /* a new driver hears of the next event */
        wr(&b, p, BUSES, bus << 8 | bus << 16);
        wr16(&b, p, COMMAND, 6);
        wr16(&b, up, COMMAND, 6);
        enable_msi(&b, p, 7);
        enable_hotplug(&b, p);
        assert_int_equal(b.msis, was);
        remove_device(&b, 1);
        assert_int_equal(b.msis, was + 1);
        check(&b);
    }
}

static void test_v9_link_disable(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        unsigned p = b.port[2];
        insert(&b, 2);
        serve(&b, 2);
        wr16(&b, p, LNKCTL, 0x10);
        assert_int_equal(serve(&b, 2), DLLSC);
        assert_false(dxpu_vswitch_link_up(&b.vs, 2));
        assert_string_equal(b.log, "R");
        remove_device(&b, 2);
        assert_int_equal(serve(&b, 2), PDC);
        insert(&b, 2);
        assert_int_equal(serve(&b, 2), PDC);
        assert_false(dxpu_vswitch_link_up(&b.vs, 2));
        wr16(&b, p, LNKCTL, 0);
        assert_int_equal(serve(&b, 2), DLLSC);
        assert_true(dxpu_vswitch_link_up(&b.vs, 2));
        assert_string_equal(b.log, "Rr");
    }
}

static void test_v9_retrain(void **state)
{
    (void)state;
    static bench b;
    boot(&b, DXPU_VSWITCH_ROOT_PORTS, 1, false);
    unsigned p = b.port[1];
    wr16(&b, p, LNKCTL, 0x0420); /* no link: nothing to train */
    assert_int_equal(rd16(&b, p, LNKCTL + 2) & 0xc800, 0);
    insert(&b, 1);
    b.msis = 0;
    wr16(&b, p, LNKCTL, 0x0420);
    assert_int_equal(rd16(&b, p, LNKCTL), 0x0400);
    assert_int_equal(rd16(&b, p, LNKCTL + 2) & 0xc800, 0x4000);
    assert_int_equal(b.msis, 1); /* besides the hot-plug event that still stands */
    wr16(&b, p, LNKCTL + 2, 0x4000);
    assert_int_equal(rd16(&b, p, LNKCTL + 2) & 0xc000, 0);
    wr16(&b, p, LNKCTL, 0x0030); /* disabled by the same write */
    assert_int_equal(rd16(&b, p, LNKCTL + 2) & 0xc000, 0);
}

/* The host restarts while devices are there: it finds them unchanged, and they are reset. */
static void test_v5_host_reset(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        for (unsigned power = 0; power < 2; power++) {
            boot(&b, topology, 3, power != 0);
            insert(&b, 2);
            b.vs.rows[1].channel = 77;
            memset(b.log, 0, sizeof b.log);
            dxpu_vswitch_reset(&b.vs);
            drain(&b);
            assert_string_equal(b.log, power ? "PRr" : "Rr");
            check(&b);
            b.last_bus = b.slots_seen = b.msis = 0;
            scan(&b, 0);
            assert_int_equal(rd16(&b, b.port[2], SLTCTL + 2), PDS);
            assert_true(dxpu_vswitch_link_up(&b.vs, 2));
            assert_int_equal(b.vs.rows[1].channel, 77);
            enable_msi(&b, b.port[2], 1);
            enable_hotplug(&b, b.port[2]);
            wr16(&b, b.port[2], COMMAND, 6);
            assert_int_equal(rd16(&b, b.port[2], SLTCTL + 2) & PDC, 0);
            assert_int_equal(serve(&b, 2), power ? CC : 0);
        }
    }
}

static void test_v10_crs(void **state)
{
    (void)state;
    static bench b;
    dxpu_tlp req, cpl;
    uint8_t data[4];
    EACH_TOPOLOGY
    {
        boot(&b, topology, 1, false);
        unsigned root = DXPU_BDF(0, 1, 0);
        insert(&b, 1);
        assert_int_equal(forwards_to(&b, DXPU_BDF(own_bus(&b, 1), 0, 0)), 1);
        forwards_to(&b, DXPU_BDF(own_bus(&b, 1), 0, 0));
        req = b.last;
        assert_false(dxpu_vswitch_crs(&b.vs, 1, &req, &cpl, data));
        wr16(&b, root, ROOTCTL, 0x10);
        assert_true(dxpu_vswitch_crs(&b.vs, 1, &req, &cpl, data));
        assert_int_equal(cpl.status, DXPU_CPL_SC);
        assert_memory_equal(cpl.payload.ptr, "\x01\x00\xff\xff", 4);
        req.first_be = 0xc;
        assert_false(dxpu_vswitch_crs(&b.vs, 1, &req, &cpl, data));
        req.first_be = 0xf;
        req.register_bytes = 4;
        assert_false(dxpu_vswitch_crs(&b.vs, 1, &req, &cpl, data));
        assert_false(dxpu_vswitch_crs(&b.vs, 2, &req, &cpl, data));
    }
}

static void test_v11_upstream(void **state)
{
    (void)state;
    static bench b;
    dxpu_tlp t;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        insert(&b, 1);
        insert(&b, 2);
        unsigned p = b.port[1];
        uint64_t own = b.vs.rows[0].memory.base, peer = b.vs.rows[1].memory.base;
        memset(&t, 0, sizeof t);
        t.type = DXPU_TLP_MRD;
        t.requester = (uint16_t)DXPU_BDF(own_bus(&b, 1), 0, 0);
        t.address = 0x1000;
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 0);
        t.address = own;
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), -DXPU_CPL_UR);
        t.address = peer;
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        uint32_t window = rd(&b, b.port[2], MEMORY); /* a hole in the upstream port's window */
        wr(&b, b.port[2], MEMORY, 0x0000fff0);
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t),
                         topology == DXPU_VSWITCH_SWITCH ? -DXPU_CPL_UR : 0);
        wr(&b, b.port[2], MEMORY, window);
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        wr16(&b, p, ACS + 6, 4); /* request redirect */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 0);
        t.at = 2;
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 0);
        wr16(&b, p, ACS + 6, 0x44); /* direct translated */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        wr16(&b, p, ACS + 6, 2); /* translation blocking */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), -DXPU_CPL_CA);
        t.at = 0;
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        assert_true(dxpu_vswitch_completes_direct(&b.vs, 1));
        wr16(&b, p, ACS + 6, 8); /* completion redirect */
        assert_false(dxpu_vswitch_completes_direct(&b.vs, 1));
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        wr16(&b, p, ACS + 6, 1); /* source validation */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        t.requester = 0;
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), -DXPU_CPL_CA);
        wr16(&b, p, ACS + 6, 0);
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        wr16(&b, b.port[2], LNKCTL, 0x10);
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), -DXPU_CPL_UR);
        wr16(&b, DXPU_BDF(0, 1, 0), COMMAND, 2);
        t.address = 0x1000;
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), -DXPU_CPL_UR);
        wr16(&b, DXPU_BDF(0, 1, 0), COMMAND, 6);
        wr16(&b, p, COMMAND, 2);
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), -DXPU_CPL_UR);
        wr16(&b, p, COMMAND, 6);
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 0);
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 3, &t), -DXPU_CPL_UR);
    }
}

static void test_r24_v41_messages_by_id(void **state)
{
    (void)state;
    static bench b;
    dxpu_tlp t;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        insert(&b, 1);
        insert(&b, 2);
        unsigned p = b.port[1];
        memset(&t, 0, sizeof t);
        t.type = DXPU_TLP_MSG;
        t.message_code = 0x7f;
        t.message_routing = DXPU_MSG_BY_ID;
        t.requester = (uint16_t)DXPU_BDF(own_bus(&b, 1), 0, 0);
        t.target = (uint16_t)DXPU_BDF(own_bus(&b, 2), 0, 0);
        wr16(&b, p, COMMAND, 2); /* no Bus Master Enable */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        t.type = DXPU_TLP_MSGD;
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        wr16(&b, p, ACS + 6, 4); /* request redirect */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 0);
        wr16(&b, p, ACS + 6, 1); /* source validation */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 2);
        t.requester = 0;
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), -DXPU_CPL_CA);
        wr16(&b, p, ACS + 6, 0);
        t.target = (uint16_t)DXPU_BDF(own_bus(&b, 1), 0, 0); /* where it came from */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), -DXPU_CPL_UR);
        t.target = 0; /* the root */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 0);
        t.target = (uint16_t)DXPU_BDF(own_bus(&b, 2), 0, 0);
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 3, &t), -DXPU_CPL_UR);
        wr16(&b, b.port[2], LNKCTL, 0x10); /* its link is down */
        assert_int_equal(dxpu_vswitch_upstream(&b.vs, 1, &t), 0);
    }
}

static bool message(bench *b, unsigned slot, unsigned code, unsigned requester)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSG;
    t.message_code = (uint8_t)code;
    t.requester = (uint16_t)requester;
    bool taken = dxpu_vswitch_message(&b->vs, (uint8_t)slot, &t);
    drain(b);
    return taken;
}

static void test_v12_errors(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        insert(&b, 1);
        serve(&b, 1);
        unsigned root = DXPU_BDF(0, 1, 0);
        b.msis = 0;
        assert_false(message(&b, 2, 0x30, 0x0200)); /* no device there */
        assert_false(message(&b, 1, 0x20, 0x0200)); /* another message */
        assert_true(message(&b, 1, 0x30, 0x0200));
        assert_int_equal(b.msis, 0);
        wr(&b, root, AER + 0x2c, 7);
        assert_int_equal(b.msis, 1);
        assert_true(message(&b, 1, 0x30, 0x0201));
        assert_int_equal(rd(&b, root, AER + 0x30), 3);
        assert_int_equal(rd(&b, root, AER + 0x34), 0x0200);
        wr(&b, root, AER + 0x30, 3);
        assert_int_equal(rd(&b, root, AER + 0x30), 0);
        assert_true(message(&b, 1, 0x33, 0x0300));
        assert_int_equal(b.msis, 2);
        assert_int_equal(rd(&b, root, AER + 0x30), 0x54);
        assert_true(message(&b, 1, 0x31, 0x0400));
        assert_int_equal(rd(&b, root, AER + 0x30), 0x7c);
        assert_int_equal(rd(&b, root, AER + 0x34), 0x03000200);
        assert_int_equal(rd16(&b, b.port[1], SECSTA + 2), 0x4000);
        wr(&b, root, AER + 0x30, 0x7f);
        wr16(&b, b.port[1], BRIDGE + 2, 0);
        assert_false(message(&b, 1, 0x31, 0x0400)); /* the bridge keeps errors */
        assert_int_equal(rd(&b, root, AER + 0x30), 0);
    }
}

static void test_v12_pme(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        insert(&b, 1);
        serve(&b, 1);
        unsigned root = DXPU_BDF(0, 1, 0);
        wr16(&b, root, ROOTCTL, 8);
        b.msis = 0;
        assert_true(message(&b, 1, 0x18, 0x0200));
        assert_int_equal(b.msis, 1);
        assert_true(message(&b, 1, 0x18, 0x0201));
        assert_int_equal(rd(&b, root, ROOTSTA), 0x00030200);
        assert_int_equal(b.msis, 1);
        wr(&b, root, ROOTSTA, 0x00010000);
        assert_int_equal(rd(&b, root, ROOTSTA), 0x00010201);
        assert_int_equal(b.msis, 2);
        wr(&b, root, ROOTSTA, 0x00010000);
        assert_int_equal(rd(&b, root, ROOTSTA) & 0x30000, 0);
    }
}

/* A port in D3hot sends no hot-plug interrupt; a PME says that the OS must look. */
static void test_v40_events_wake_a_sleeping_port(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        serve(&b, 1);
        unsigned root = DXPU_BDF(0, 1, 0), port = b.port[1];
        wr16(&b, root, ROOTCTL, 8);
        wr16(&b, port, SLTCTL, 0x1008); /* as Linux leaves it: no interrupt, but which events */
        b.msis = 0;
        wr16(&b, port, PMCSR, 0x8003);
        insert(&b, 1);
        assert_int_equal(b.msis, 0); /* PME is not enabled */
        assert_int_equal(rd16(&b, port, PMCSR), 0x800b);
        wr16(&b, port, PMCSR, 0x0103);
        assert_int_equal(b.msis, 1);
        assert_int_equal(rd(&b, root, ROOTSTA), 0x00010000 | port);
        wr16(&b, port, PMCSR, 0x8000); /* as its driver does: no more of them, and D0 */
        wr(&b, root, ROOTSTA, 0x00010000);
        assert_int_equal(rd16(&b, port, PMCSR), 8);
        wr16(&b, port, SLTCTL + 2, 0x0108);
        assert_int_equal(b.msis, 1);
        wr16(&b, port, PMCSR, 0x0103);
        assert_int_equal(b.msis, 1); /* no event, no PME */
        assert_int_equal(dxpu_vswitch_remove(&b.vs, 1), DXPU_OK);
        drain(&b);
        assert_int_equal(b.msis, 2);
        assert_int_equal(rd(&b, root, ROOTSTA), 0x00010000 | port);
        wr16(&b, port, PMCSR, 0x8000);
        wr(&b, root, ROOTSTA, 0x00010000);
        wr16(&b, port, SLTCTL + 2, 0x0108);
        insert(&b, 1);
        assert_int_equal(b.msis, 2); /* control: in D0 there is no PME */
        assert_int_equal(rd(&b, root, ROOTSTA) & 0x30000, 0);
    }
}

static void test_v13_mps(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        assert_int_equal(dxpu_vswitch_mps_bytes(&b.vs, 2), 256);
        wr16(&b, b.port[1], DEVCTL, 0);
        assert_int_equal(dxpu_vswitch_mps_bytes(&b.vs, 1), 128);
        assert_int_equal(dxpu_vswitch_mps_bytes(&b.vs, 2), 256);
        wr16(&b, b.port[2], DEVCTL, 0xe0);
        assert_true(dxpu_vswitch_mps_bytes(&b.vs, 2) <= 4096);
        assert_int_equal(dxpu_vswitch_mps_bytes(&b.vs, 3), 0);
    }
}

/* What a port comes up with is the device's, and stays over resets. */
static void test_v13_mps_of_a_device(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        boot(&b, topology, 2, false);
        assert_int_equal(dxpu_vswitch_set_mps(&b.vs, 1, 4096), DXPU_OK); /* the ports have 256 */
        assert_int_equal(dxpu_vswitch_mps_bytes(&b.vs, 1), 256);
        assert_int_equal(dxpu_vswitch_set_mps(&b.vs, 1, 128), DXPU_OK);
        assert_int_equal(dxpu_vswitch_mps_bytes(&b.vs, 1), 128);
        assert_int_equal(dxpu_vswitch_mps_bytes(&b.vs, 2), 256);
        assert_int_equal(rd16(&b, b.port[1], DEVCTL) & 0xe0, 0);
        wr16(&b, b.port[1], DEVCTL, 0x20); /* as software wants */
        assert_int_equal(dxpu_vswitch_mps_bytes(&b.vs, 1), 256);
        insert(&b, 1);
        assert_int_equal(dxpu_vswitch_set_mps(&b.vs, 1, 256), DXPU_E_ARG); /* too late */
        dxpu_vswitch_reset(&b.vs);
        assert_int_equal(dxpu_vswitch_mps_bytes(&b.vs, 1), 128);
        assert_int_equal(dxpu_vswitch_set_mps(&b.vs, 2, 300), DXPU_E_ARG);
        assert_int_equal(dxpu_vswitch_set_mps(&b.vs, 2, 64), DXPU_E_ARG);
        assert_int_equal(dxpu_vswitch_set_mps(&b.vs, 2, 8192), DXPU_E_ARG);
        assert_int_equal(dxpu_vswitch_set_mps(&b.vs, 3, 256), DXPU_E_ARG);
    }
}

static void test_v14_fits(void **state)
{
    (void)state;
    static bench b;
    const uint64_t m = 0x100000;
    dxpu_vswitch_bar small[] = { { 0x4000, false }, { m, true } };
    dxpu_vswitch_bar packed[] = { { m, true }, { m, true } }, big = { 16 * m, true };
    dxpu_vswitch_bar odd = { 3 * m, true }, low = { 4 * m, false };
    dxpu_range root[2] = { { 0xe0000000, 0xe3ffffff }, { 0x2000000000, 0x203fffffff } };
    start(&b, DXPU_VSWITCH_SWITCH, 2, false);
    assert_true(dxpu_vswitch_fits(&b.vs, 1, &big, 1, NULL)); /* not numbered: the host will size */
    boot(&b, DXPU_VSWITCH_SWITCH, 2, false);
    assert_true(dxpu_vswitch_fits(&b.vs, 1, small, 2, root));
    assert_true(dxpu_vswitch_fits(&b.vs, 1, packed, 2, root));
    assert_false(dxpu_vswitch_fits(&b.vs, 1, &big, 1, root));
    assert_false(dxpu_vswitch_fits(&b.vs, 1, &odd, 1, root));
    assert_false(dxpu_vswitch_fits(&b.vs, 3, small, 2, root));
    /* 64 MB, not aligned to 64: the largest that fits is 32; smaller ones go round it */
    wr(&b, b.port[1], PREF, 0x04300010 | 1);
    wr(&b, b.port[1], PREF_BASE, 0x30);
    wr(&b, b.port[1], PREF_LIMIT, 0x30);
    dxpu_vswitch_bar many[] = { { m, true }, { 32 * m, true }, { 16 * m, true } };
    assert_true(dxpu_vswitch_fits(&b.vs, 1, many, 3, NULL));
    many[1].bytes = 64 * m;
    assert_false(dxpu_vswitch_fits(&b.vs, 1, many, 3, NULL));
    wr(&b, b.port[1], PREF_LIMIT, 0); /* no window */
    assert_false(dxpu_vswitch_fits(&b.vs, 1, small, 2, NULL));

    boot(&b, DXPU_VSWITCH_ROOT_PORTS, 2, false);
    assert_true(dxpu_vswitch_fits(&b.vs, 1, &big, 1, NULL)); /* grows, who knows how far */
    assert_true(dxpu_vswitch_fits(&b.vs, 1, &big, 1, root));
    big.bytes = 1024 * m; /* the other slot's window is in the way */
    assert_false(dxpu_vswitch_fits(&b.vs, 1, &big, 1, root));
    big.bytes = 512 * m;
    assert_true(dxpu_vswitch_fits(&b.vs, 1, &big, 1, root));
    assert_true(dxpu_vswitch_fits(&b.vs, 1, &low, 1, root));
    /* what the slot has itself is free to it: 2 MB in all beside slot 1, of which it uses 1 */
    dxpu_range tight[2] = { root[0], { 0x2000000000, 0x20003fffff } };
    tight[0].limit = 0xe0200000;
    wr(&b, b.port[2], PREF, 0x00200020);
    big.bytes = 2 * m;
    assert_true(dxpu_vswitch_fits(&b.vs, 2, &big, 1, tight));
    tight[1].limit -= m;
    assert_false(dxpu_vswitch_fits(&b.vs, 2, &big, 1, tight));
    dxpu_vswitch_bar huge[] = { { (uint64_t)1 << 63, true },
                                { (uint64_t)1 << 63, true },
                                { 0x4000, false } };
    tight[1].limit = UINT64_MAX;
    assert_true(dxpu_vswitch_fits(&b.vs, 1, huge + 1, 2, tight));
    assert_false(dxpu_vswitch_fits(&b.vs, 1, huge, 3, tight));
    wr(&b, b.port[2], PREF_LIMIT, 0xffffffff); /* the other slot has all to the top */
    wr(&b, b.port[2], PREF, 0xfff00040);
    assert_false(dxpu_vswitch_fits(&b.vs, 1, huge + 1, 2, tight));
    low.bytes = 64 * m;
    assert_false(dxpu_vswitch_fits(&b.vs, 1, &low, 1, root));

    boot(&b, DXPU_VSWITCH_ROOT_PORTS, 2, false);
    /* 2 MB have no place in a window at an odd MB: they take the other one from the small BAR */
    dxpu_vswitch_bar crowd[] = { { 2 * m, true }, { 0x4000, false }, { 0x1000, true } };
    wr(&b, b.port[1], MEMORY, 0xf810f800);
    wr(&b, b.port[1], PREF, 0x00300020);
    assert_true(dxpu_vswitch_fits(&b.vs, 1, crowd, 2, root));
    wr(&b, b.port[1], PREF, 0x00200010);
    assert_false(dxpu_vswitch_fits(&b.vs, 1, crowd, 2, root));
    assert_false(dxpu_vswitch_fits(&b.vs, 1, crowd, 3, root));
    assert_true(dxpu_vswitch_fits(&b.vs, 1, crowd, 1, root)); /* alone it has it */
    crowd[0].bytes = 4 * m; /* no place there either: the right one grows */
    assert_true(dxpu_vswitch_fits(&b.vs, 1, crowd, 2, root));
    crowd[0].bytes = 2 * m;
    wr(&b, b.port[1], MEMORY, 0xf830f800); /* room for both */
    assert_true(dxpu_vswitch_fits(&b.vs, 1, crowd, 2, root));
}

static void test_v14_parameter(void **state)
{
    (void)state;
    static bench b;
    char text[32];
    const uint64_t m = 0x100000;
    start(&b, DXPU_VSWITCH_ROOT_PORTS, 2, false);
    assert_int_equal(dxpu_vswitch_parameter(&b.vs, 4096 * m, text, sizeof text), 0);
    assert_string_equal(text, "");
    dxpu_vswitch_parameter(&b.vs, 2 * m, text, sizeof text);
    assert_string_equal(text, "pci=hpmmioprefsize=64M");
    start(&b, DXPU_VSWITCH_SWITCH, 2, false);
    assert_int_equal(dxpu_vswitch_parameter(&b.vs, m, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(dxpu_vswitch_parameter(&b.vs, 16 * m, text, sizeof text), 22);
    assert_string_equal(text, "pci=hpmmioprefsize=64M");
    dxpu_vswitch_parameter(&b.vs, 256 * m, text, sizeof text);
    assert_string_equal(text, "pci=hpmmioprefsize=512M");
    dxpu_vswitch_parameter(&b.vs, 4096 * m, text, sizeof text);
    assert_string_equal(text, "pci=hpmmioprefsize=8G");
    assert_int_equal(dxpu_vswitch_slot_window(&b.vs, 4096 * m), 8192 * m);
    assert_int_equal(dxpu_vswitch_parameter(&b.vs, (uint64_t)1 << 63, text, sizeof text), 30);
    assert_int_equal(dxpu_vswitch_parameter(&b.vs, 16 * m, text, 31), DXPU_E_ROOM);
    assert_int_equal(dxpu_vswitch_parameter(&b.vs, 1, text, 0), DXPU_E_ROOM);
}

static uint32_t chance(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* Any writes and events, in any order, leave registers, table and routing in agreement. */
static unsigned random_walk(unsigned topology, uint64_t seed)
{
    unsigned reached = 0;
    static bench b;
    static const unsigned favourites[] = { COMMAND, BUSES,  MEMORY, PREF,    PREF_BASE, PREF_LIMIT,
                                           BRIDGE,  LNKCTL, SLTCTL, ROOTCTL, PMCSR,     MSI };
    boot(&b, topology, 4, seed & 1);
    for (unsigned n = 0; n < 3000; n++) {
        unsigned i = chance(&seed) % b.vs.ports, what = chance(&seed) % 16;
        unsigned bdf = (unsigned)dxpu_vswitch_dump(&b.vs, i, NULL, 0);
        unsigned at = chance(&seed) % 2 ? favourites[chance(&seed) % 12] : chance(&seed) & 0xffc;
        uint32_t value = chance(&seed) << 1 ^ chance(&seed), v;
        uint8_t status, slot = (uint8_t)(1 + chance(&seed) % 4);
        dxpu_vswitch_action a;
        if (at == BUSES)
            value &= 0x070707;
        if (what == 0)
            (void)dxpu_vswitch_insert(&b.vs, slot, 4, 16);
        else if (what == 1)
            (void)dxpu_vswitch_remove(&b.vs, slot);
        else
            request(&b, DXPU_TLP_CFGWR1, bdf, at, chance(&seed) & 15, value, &v, &status);
        while (dxpu_vswitch_action_next(&b.vs, &a))
            assert_in_range(a.kind, DXPU_VSWITCH_MSI, DXPU_VSWITCH_POWER_OFF);
        assert_int_equal(b.vs.resets.now, b.vs.resets.reported);
        assert_int_equal(b.vs.power.now, b.vs.power.reported);
        check(&b);
        unsigned to = dxpu_vswitch_by_bdf(&b.vs, (uint16_t)DXPU_BDF(chance(&seed) % 8, 0, 0));
        reached += to != 0;
        if (to) {
            assert_true(dxpu_vswitch_link_up(&b.vs, (uint8_t)to));
            assert_int_equal(b.vs.resets.now >> (to - 1) & 1, 0);
        }
    }
    return reached;
}

static void test_v4_random(void **state)
{
    unsigned reached[2] = { 0, 0 };
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        reached[0] += random_walk(DXPU_VSWITCH_ROOT_PORTS, seed);
        reached[1] += random_walk(DXPU_VSWITCH_SWITCH, seed);
    }
    assert_true(reached[0] > 100 && reached[1] > 10); /* the walk does not stay in dead corners */
}

/* ---- values of what is gone ---- */

enum { FUNCTION_3 = 3 };

/* spec/vectors/tlp.txt, msg-vendor1-declaration */
static const uint8_t declaration[] = {
    0x70, 0, 0, 0x0d, 0, 0, 0, 0x7f, 0, 0, 0xff, 0xff, 'd', 'x', 'p', 'u',  /* */
    1,    3, 0, 0,                                                          /* */
    0,    0, 0, 1,    0, 0, 0, 0,    0, 0, 0,    0,    0,   0,   0,   0x14, /* device_status */
    0,    0, 0, 2,    0, 0, 0, 0,    0, 0, 0,    0,    0,   0,   0,   0x1c, /* queue_enable */
    0,    0, 0, 2,    0, 0, 0, 0,    0, 0, 0,    0,    0,   0,   0,   0x3a, /* queue_reset */
};

static dxpu_tlp declared(void)
{
    const dxpu_bytes bytes = { declaration, sizeof declaration };
    dxpu_tlp t;
    assert_int_equal(dxpu_tlp_receive(bytes, &t), DXPU_OK);
    return t;
}

static void test_v49_declarations(void **state)
{
    (void)state;
    dxpu_vswitch_values v;
    uint8_t payload[4 + 8 * 16];
    dxpu_tlp t = declared();
    assert_int_equal(dxpu_vswitch_values_decode(&t, &v), 1);
    assert_int_equal(v.count, 3);
    assert_int_equal(v.value[2].bytes, 2);
    assert_int_equal(v.value[2].offset, 0x3a);
    t.payload.len -= 4; /* less than Count says */
    assert_int_equal(dxpu_vswitch_values_decode(&t, &v), DXPU_E_ARG);
    t = declared();
    t.ep = true;
    assert_int_equal(dxpu_vswitch_values_decode(&t, &v), DXPU_E_ARG);
    memset(payload, 0, sizeof payload);
    payload[0] = 1;
    t = declared();
    t.payload.ptr = payload;
    t.payload.len = sizeof payload;
    for (unsigned count = 0; count <= 8; count++) { /* more than it says is of later versions */
        payload[1] = (uint8_t)count;
        assert_int_equal(dxpu_vswitch_values_decode(&t, &v), count == 8 ? DXPU_E_ARG : 1);
        assert_int_equal(v.count, count % 8);
    }
    memset(payload + 4, 0xff, 16);
    memcpy(payload + 8, "\1\2\3\4", 4);
    payload[1] = 1;
    assert_int_equal(dxpu_vswitch_values_decode(&t, &v), 1);
    assert_memory_equal(v.value[0].value, "\1\2\3\4", 4);
    assert_true(v.value[0].offset == UINT64_MAX && v.value[0].bytes == 0xffff);
}

/* Those of other vendors, and those of a kind that is not known yet. */
static void test_v49_other_messages(void **state)
{
    (void)state;
    static uint8_t other[4] = { 2 };
    dxpu_vswitch_values v;
    dxpu_tlp t[7];
    for (unsigned i = 0; i < 7; i++)
        t[i] = declared();
    t[0].type = DXPU_TLP_MSG;
    t[1].message_code = 0x7e;
    t[2].message_routing = DXPU_MSG_LOCAL;
    t[3].message_dw[0] = 0x1af4;
    t[4].message_dw[1] ^= 1;
    t[5].payload.len = 0;
    t[6].payload.ptr = other;
    t[6].payload.len = sizeof other;
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(dxpu_vswitch_values_decode(&t[i], &v), 0);
}

static dxpu_vswitch_value range(unsigned function, unsigned bar, uint64_t offset, unsigned bytes)
{
    dxpu_vswitch_value v;
    memset(&v, 0, sizeof v);
    v.function = (uint8_t)function;
    v.bar = (uint8_t)bar;
    v.offset = offset;
    v.bytes = (uint16_t)bytes;
    memcpy(v.value, "abcd", 4);
    return v;
}

static void test_v50_ranges_outside_of_bars(void **state)
{
    (void)state;
    uint32_t sized[DXPU_VSWITCH_FUNCTIONS][DXPU_VSWITCH_BARS] = {
        /* 4 KB; 64 bits, 16 KB; I/O; 64 bits, 8 GB */
        { 0xfffff000u, 0xffffc004u, UINT32_MAX, 0xffffff01u, 0x0000000cu, 0xfffffffeu },
        /* 64 bits without a place for the upper half; no power of two; 2 GB */
        { 0, 0, 0xfff0f000u, 0x80000000u, 0, 0xfffff004u }
    };
    const struct {
        dxpu_vswitch_value v;
        bool fits;
    } rows[] = {
        { range(0, 0, 0, 1), true },
        { range(0, 0, 0xfff, 1), true },
        { range(0, 0, 0xfff, 2), false },
        { range(0, 0, 0x1000, 1), false },
        { range(0, 0, UINT64_MAX, 1), false },
        { range(0, 0, UINT64_MAX - 0xffe, 0xffff), false },
        { range(0, 0, 8, 0), false },
        { range(0, 1, 0, 0x4000), true },
        { range(0, 1, 1, 0x4000), false },
        { range(0, 2, 0, 1), false }, /* an upper half */
        { range(0, 3, 0, 1), false },
        { range(0, 4, ((uint64_t)8 << 30) - 4, 4), true },
        { range(0, 4, ((uint64_t)8 << 30) - 4, 5), false },
        { range(0, 5, 0, 1), false },
        { range(1, 0, 0, 1), false }, /* there is none */
        { range(1, 2, 0, 1), false },
        { range(1, 3, 0x7fffffff, 1), true },
        { range(1, 5, 0xfff, 1), true },
        { range(2, 0, 0, 1), false },
        { range(7, 5, 0, 1), false },
        { range(8, 0, 0, 1), false },
        { range(255, 255, 0, 1), false },
        { range(0, 6, 0, 1), false },
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dxpu_vswitch_values v = { 3, { range(0, 0, 4, 4), rows[i].v, range(0, 0, 8, 4) } };
        assert_int_equal(dxpu_vswitch_values_fit(&v, sized), !rows[i].fits);
        assert_int_equal(v.count, rows[i].fits ? 3 : 2);
        assert_int_equal(v.value[v.count - 1].offset, 8); /* the others count */
    }
}

/* Software gives a device in slot 1 two BARs, and its function 3 one. */
static const uint64_t far_bar = 0x2000000000u, near_bar = 0xe0000000u, third_bar = 0xe0004000u;

static uint16_t place(bench *b)
{
    unsigned bus;
    insert(b, 1);
    bus = own_bus(b, 1);
    wr(b, DXPU_BDF(bus, 0, 0), 0x10, (uint32_t)near_bar);
    wr(b, DXPU_BDF(bus, 0, 0), 0x14, (uint32_t)far_bar | 0xc);
    wr(b, DXPU_BDF(bus, 0, 0), 0x18, (uint32_t)(far_bar >> 32));
    wr(b, DXPU_BDF(bus, 0, FUNCTION_3), 0x10, (uint32_t)third_bar);
    wr16(b, DXPU_BDF(bus, 0, 0), COMMAND, 6);
    wr16(b, DXPU_BDF(bus, 0, FUNCTION_3), COMMAND, 2);
    return (uint16_t)DXPU_BDF(bus, 0, 0);
}

static dxpu_vswitch_values values_of_slot_1(void)
{
    static uint32_t sized[DXPU_VSWITCH_FUNCTIONS][DXPU_VSWITCH_BARS] = { { 0xffffc000u, 0xffff000cu,
                                                                           UINT32_MAX, 0, 0, 0 } };
    dxpu_vswitch_values v = { 4,
                              { range(0, 0, 0x14, 1), range(0, 1, 0x100, 6), range(0, 1, 0x104, 8),
                                range(FUNCTION_3, 0, 0, 1) } };
    sized[FUNCTION_3][0] = 0xfffff000u;
    assert_int_equal(dxpu_vswitch_values_fit(&v, sized), 0);
    return v;
}

/* What the host reads, of which no device brought anything: a letter for a byte. */
static const char *reads(const bench *b, uint64_t address, size_t bytes)
{
    static char text[65];
    uint8_t data[64];
    memset(data, 0xff, sizeof data);
    dxpu_vswitch_lost_read(&b->vs, address, data, bytes);
    for (size_t i = 0; i < bytes; i++)
        text[i] = data[i] == 0xff ? '.' : (char)data[i];
    text[bytes] = 0;
    return text;
}

static void test_v51_reads_of_a_lost_device(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        dxpu_vswitch_values v = values_of_slot_1();
        boot(&b, topology, 2, false);
        (void)place(&b);
        assert_string_equal(reads(&b, near_bar + 0x14, 1), "."); /* it is there */
        assert_int_equal(dxpu_vswitch_lose(&b.vs, 1, &v), DXPU_OK);
        assert_int_equal(dxpu_vswitch_lose(&b.vs, 1, &v), DXPU_E_ARG);
        drain(&b);
        assert_int_equal(dxpu_vswitch_by_address(&b.vs, near_bar), 0);
        assert_string_equal(reads(&b, near_bar + 0x14, 1), "a");
        assert_string_equal(reads(&b, near_bar + 0x14, 2), "a.");
        assert_string_equal(reads(&b, near_bar + 0x14, 4), "a...");
        assert_string_equal(reads(&b, near_bar + 0x10, 8), "....a...");
        assert_string_equal(reads(&b, near_bar + 0x15, 4), "....");
        assert_string_equal(reads(&b, far_bar + 0xf8, 24), "........abcdabcdabcd....");
        assert_string_equal(reads(&b, far_bar + 0x105, 1), "b"); /* the first of two counts */
        assert_string_equal(reads(&b, far_bar + 0x106, 1), "c");
        assert_string_equal(reads(&b, third_bar, 4), "a...");
        assert_string_equal(reads(&b, third_bar - 2, 4), "..a.");
        assert_string_equal(reads(&b, near_bar + 0x100014, 1), "."); /* in no range */
    }
}

/* An address counts while the port passes it down. */
static void test_v51_windows(void **state)
{
    (void)state;
    static bench b;
    EACH_TOPOLOGY
    {
        dxpu_vswitch_values v = values_of_slot_1();
        boot(&b, topology, 2, false);
        (void)place(&b);
        assert_int_equal(dxpu_vswitch_lose(&b.vs, 1, &v), DXPU_OK);
        drain(&b);
        wr16(&b, b.port[1], COMMAND, 4);
        assert_string_equal(reads(&b, near_bar + 0x14, 1), ".");
        wr16(&b, b.port[1], COMMAND, 6);
        assert_string_equal(reads(&b, near_bar + 0x14, 1), "a");
        if (topology == DXPU_VSWITCH_SWITCH) {
            wr16(&b, (unsigned)dxpu_vswitch_dump(&b.vs, 2, NULL, 0), COMMAND, 4);
            assert_string_equal(reads(&b, near_bar + 0x14, 1), ".");
        }
    }
}

/* Where the device was last, not where it was before, or where a poisoned write says. */
static void test_v51_bars_that_move(void **state)
{
    (void)state;
    static bench b;
    dxpu_vswitch_values v = values_of_slot_1();
    dxpu_tlp req, cpl;
    uint8_t data[4] = { 0, 0, 0, 0 }, slot;
    boot(&b, DXPU_VSWITCH_ROOT_PORTS, 2, false);
    uint16_t bdf = place(&b);
    wr(&b, bdf, 0x10, UINT32_MAX); /* sized again */
    wr(&b, bdf, 0x10, (uint32_t)near_bar + 0x8000);
    wr_be(&b, bdf, 0x10, 2, 0xc000); /* a byte of it */
    memset(&req, 0, sizeof req);
    req.type = DXPU_TLP_CFGWR1;
    req.target = bdf;
    req.register_bytes = 0x10;
    req.first_be = 0xf;
    req.ep = true;
    req.payload.ptr = data;
    req.payload.len = 4;
    assert_int_equal(dxpu_vswitch_config_request(&b.vs, &req, &cpl, data, &slot),
                     DXPU_VSWITCH_FORWARD);
    assert_int_equal(dxpu_vswitch_lose(&b.vs, 1, &v), DXPU_OK);
    assert_string_equal(reads(&b, near_bar + 0x14, 1), ".");
    assert_string_equal(reads(&b, near_bar + 0x8014, 1), ".");
    assert_string_equal(reads(&b, near_bar + 0xc014, 1), "a");
    assert_string_equal(reads(&b, 0x14, 1), ".");
}

/* The driver of the lost one may not have been notified when the next one is there. */
static void test_v51_until_the_next_device_is_enabled(void **state)
{
    (void)state;
    static bench b;
    dxpu_vswitch_values v = values_of_slot_1(), none = { 0 };
    boot(&b, DXPU_VSWITCH_ROOT_PORTS, 2, false);
    uint16_t bdf = place(&b);
    assert_int_equal(dxpu_vswitch_lose(&b.vs, 1, &v), DXPU_OK);
    for (unsigned i = 0; i < 2; i++) { /* one that is lost before software has enabled it */
        insert(&b, 1);
        wr(&b, bdf, 0x10, UINT32_MAX);
        wr16(&b, bdf, COMMAND, 4);
        assert_string_equal(reads(&b, near_bar + 0x14, 1), "a");
        assert_int_equal(dxpu_vswitch_lose(&b.vs, 1, &none), DXPU_OK);
        assert_string_equal(reads(&b, near_bar + 0x14, 1), "a");
    }
    insert(&b, 1);
    wr(&b, bdf, 0x10, (uint32_t)near_bar);
    wr16(&b, bdf, COMMAND, 6);
    assert_string_equal(reads(&b, near_bar + 0x14, 1), ".");
    assert_int_equal(dxpu_vswitch_lose(&b.vs, 1, &none), DXPU_OK); /* it declared nothing */
    assert_string_equal(reads(&b, near_bar + 0x14, 1), ".");
}

/* Of a function that was not enabled nothing was read; a reset of the host is the end. */
static void test_v51_functions_and_resets(void **state)
{
    (void)state;
    static bench b;
    dxpu_vswitch_values v = values_of_slot_1();
    boot(&b, DXPU_VSWITCH_ROOT_PORTS, 2, false);
    uint16_t bdf = place(&b);
    wr16(&b, bdf, COMMAND, 4);
    assert_int_equal(dxpu_vswitch_lose(&b.vs, 1, &v), DXPU_OK);
    assert_string_equal(reads(&b, near_bar + 0x14, 1), ".");
    assert_string_equal(reads(&b, third_bar, 1), "a");
    dxpu_vswitch_reset(&b.vs);
    drain(&b);
    b.last_bus = b.slots_seen = 0;
    b.next_memory = near_bar;
    scan(&b, 0);
    wr16(&b, b.port[1], COMMAND, 6);
    assert_string_equal(reads(&b, third_bar, 1), ".");
}

/* The checks above see a table that is wrong, and a link that is. */
static void test_control_check(void **state)
{
    (void)state;
    static bench b;
    boot(&b, DXPU_VSWITCH_SWITCH, 2, false);
    assert_true(in_window(&b.vs.port[0], b.vs.rows[0].memory.base));
    assert_true(in_window(&b.vs.port[0], b.vs.rows[0].prefetchable.limit));
    assert_false(in_window(&b.vs.port[0], b.vs.rows[0].prefetchable.limit + 1));
    assert_false(in_window(&b.vs.port[1], b.vs.rows[0].memory.base));
    b.vs.port[0].cfg[COMMAND] = 0;
    assert_false(in_window(&b.vs.port[0], b.vs.rows[0].memory.base));
}

/* What cli_lspci.py gives to lspci: every port, enumerated, with a device in slot 2. */
static int dump(const char *topology, unsigned slots, bool power)
{
    static bench b;
    static uint8_t space[4096];
    boot(&b, strcmp(topology, "switch") ? DXPU_VSWITCH_ROOT_PORTS : DXPU_VSWITCH_SWITCH, slots,
         power);
    if (slots > 1)
        insert(&b, 2);
    for (unsigned i = 0; i < b.vs.ports; i++) {
        int bdf = dxpu_vswitch_dump(&b.vs, i, space, sizeof space);
        printf("%02x:%02x.%x PCI bridge", (unsigned)bdf >> 8, (unsigned)bdf >> 3 & 31,
               (unsigned)bdf & 7);
        for (unsigned at = 0; at < sizeof space; at++) {
            if (at % 16 == 0)
                printf("\n%02x:", at);
            printf(" %02x", space[at]);
        }
        printf("\n\n");
    }
    return 0;
}

/* Without arguments the tests; with --dump TOPOLOGY SLOTS POWER what lspci reads. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v1_config),
        cmocka_unit_test(test_v2_registers),
        cmocka_unit_test(test_v2_dump),
        cmocka_unit_test(test_v2_capabilities),
        cmocka_unit_test(test_v3_byte_enables_and_poison),
        cmocka_unit_test(test_v3_power_states),
        cmocka_unit_test(test_v4_enumerate),
        cmocka_unit_test(test_v4_way_down),
        cmocka_unit_test(test_v4_bus_numbers),
        cmocka_unit_test(test_v4_types),
        cmocka_unit_test(test_v4_ari),
        cmocka_unit_test(test_v4_random),
        cmocka_unit_test(test_v5_host_reset),
        cmocka_unit_test(test_v6_cycles),
        cmocka_unit_test(test_v7_interrupt_edges),
        cmocka_unit_test(test_v7_interrupt_way_up),
        cmocka_unit_test(test_v8_commands_complete),
        cmocka_unit_test(test_v8_power),
        cmocka_unit_test(test_v9_slot_reset),
        cmocka_unit_test(test_v9_pulse),
        cmocka_unit_test(test_v9_switch_reset),
        cmocka_unit_test(test_v9_link_disable),
        cmocka_unit_test(test_v9_retrain),
        cmocka_unit_test(test_v10_crs),
        cmocka_unit_test(test_v11_upstream),
        cmocka_unit_test(test_r24_v41_messages_by_id),
        cmocka_unit_test(test_v12_errors),
        cmocka_unit_test(test_v12_pme),
        cmocka_unit_test(test_v40_events_wake_a_sleeping_port),
        cmocka_unit_test(test_v13_mps),
        cmocka_unit_test(test_v13_mps_of_a_device),
        cmocka_unit_test(test_v14_fits),
        cmocka_unit_test(test_v14_parameter),
        cmocka_unit_test(test_v49_declarations),
        cmocka_unit_test(test_v49_other_messages),
        cmocka_unit_test(test_v50_ranges_outside_of_bars),
        cmocka_unit_test(test_v51_reads_of_a_lost_device),
        cmocka_unit_test(test_v51_windows),
        cmocka_unit_test(test_v51_bars_that_move),
        cmocka_unit_test(test_v51_until_the_next_device_is_enabled),
        cmocka_unit_test(test_v51_functions_and_resets),
        cmocka_unit_test(test_control_check),
    };
    if (argc == 5 && !strcmp(argv[1], "--dump"))
        return dump(argv[2], (unsigned)atoi(argv[3]), argv[4][0] == '1');
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
