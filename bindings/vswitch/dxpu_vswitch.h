/* dxpu_vswitch.h - the PCIe virtual switch that a host sees, as configuration space and hot-plug
   SPDX-License-Identifier: MIT

   The pair of proxies looks to the host like one PCIe switch whose slots fill and empty at run time
   (paper, 3.3).  This header is that switch as pure C: type 1 headers with bus numbers and windows,
   the PCI Express capability with hot-plug slot registers, MSI, power management, AER and ACS.  It
   answers configuration requests for its own ports, tells which slot any other one goes to, keeps
   the host table of dxpu.h, and asks for what must happen next (an interrupt, a reset of a slot).
   No allocation, no clock, no I/O.

   In exactly one source file, after dxpu.h's own implementation or beside it:
       #define DXPU_VSWITCH_IMPLEMENTATION
       #include "bindings/vswitch/dxpu_vswitch.h"

   CONTENTS: 1 Configuration  2 Interface  3 Registers  4 Ports  5 Requests  6 Slots  7 Routing
*/
#ifndef DXPU_VSWITCH_H_INCLUDED
#define DXPU_VSWITCH_H_INCLUDED

#include "dxpu.h"

/* ==== 1  Configuration ========================================================================= */

#ifndef DXPU_VSWITCH_SLOTS_MAX /* slots a switch can have; about 700 B of dxpu_vswitch each */
#define DXPU_VSWITCH_SLOTS_MAX 28
#endif
#if DXPU_VSWITCH_SLOTS_MAX < 1 || DXPU_VSWITCH_SLOTS_MAX > 30
#error "DXPU_VSWITCH_SLOTS_MAX: 1..30 (device numbers of one bus)"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 2  Interface ============================================================================= */

/* What the host sees. */
enum {
    /* Slots are root ports on the root bus.  Linux regrows the window of such a slot from free space
       of the root bus, so large BARs hot-add without any guest parameter: the default. */
    DXPU_VSWITCH_ROOT_PORTS,
    /* The paper's picture: root port 00:01.0, upstream port, a downstream port a slot. */
    DXPU_VSWITCH_SWITCH
};

typedef struct dxpu_vswitch_config {
    uint8_t topology; /* DXPU_VSWITCH_ROOT_PORTS or _SWITCH */
    uint8_t slots;    /* 1..DXPU_VSWITCH_SLOTS_MAX */
    uint8_t buses;    /* bus numbers the host can reach, 0 first [32] */
    uint8_t mps_code; /* Max_Payload_Size the ports come up with: 0 is 128 B, 1 256 B .. 5 [1] */
    bool power_controller; /* slots have one, and an attention button; commands then complete */
    uint16_t vendor, device[3]; /* ids of root, upstream, downstream ports */
} dxpu_vswitch_config;

enum {                    /* kinds of dxpu_vswitch_port */
       DXPUI_VS_ROOT = 4, /* as in the Device/Port Type field */
       DXPUI_VS_UPSTREAM = 5,
       DXPUI_VS_DOWNSTREAM = 6
};
enum { DXPUI_VS_BYTES = 0x180 }; /* configuration space that holds anything */

/* One port; visible so that you can allocate it; not API. */
typedef struct dxpu_vswitch_port {
    uint8_t kind;
    uint8_t dev;   /* device number on its bus */
    uint8_t slot;  /* 1.., 0 for a port without one */
    bool filled;   /* a device stands in the slot */
    bool irq_line; /* level of (enabled & status), for the edge that sends an MSI */
    bool msi_due;
    uint8_t cfg[DXPUI_VS_BYTES]; /* little-endian, as PCI has it */
} dxpu_vswitch_port;

/* Something the owner must do, from dxpu_vswitch_action(). */
enum {
    DXPU_VSWITCH_MSI = 1,   /* write data (32 bits) to address in host memory */
    DXPU_VSWITCH_RESET_ON,  /* reset asserted towards the slot: hot reset or link disabled */
    DXPU_VSWITCH_RESET_OFF, /* ... and released */
    DXPU_VSWITCH_POWER_ON,  /* the slot's power controller */
    DXPU_VSWITCH_POWER_OFF
};
typedef struct dxpu_vswitch_action {
    uint8_t kind;
    uint8_t slot; /* 1.., not for MSI */
    uint32_t data;
    uint64_t address;
} dxpu_vswitch_action;

typedef struct dxpu_vswitch {
    dxpu_vswitch_config cfg;
    dxpu_vswitch_port port[DXPU_VSWITCH_SLOTS_MAX + 2]; /* slots first, then root and upstream */
    unsigned ports;
    uint32_t reset_on, reset_due, power_due, power_on; /* bit slot - 1 */
    dxpu_host_table table; /* row slot - 1 is that slot's; learnt from the ports' registers */
    dxpu_host_entry rows[DXPU_VSWITCH_SLOTS_MAX];
    dxpu_host_window windows[2 * DXPU_VSWITCH_SLOTS_MAX];
    uint64_t count_answered, count_forwarded, count_refused;
} dxpu_vswitch;

/* [in brackets above] */
DXPU_API void dxpu_vswitch_config_default(dxpu_vswitch_config *cfg);
/* Bring up an empty switch.  DXPU_OK or E_ARG (too few buses: N + 1 for root ports, N + 3 for a
   switch).  O(slots). */
DXPU_API int dxpu_vswitch_init(dxpu_vswitch *vs, const dxpu_vswitch_config *cfg);

/* Where a configuration request went. */
enum {
    DXPU_VSWITCH_ANSWERED, /* *cpl is its completion; it does not leave the host */
    DXPU_VSWITCH_FORWARD /* *req goes to *slot, made type 0 when its target is the slot's own bus */
};
/* Take one decoded configuration request (type 0 or 1 alike).
   req   may be changed from type 1 to type 0
   cpl   completion when answered; for a read its payload points to data
   slot  1.. when forwarded
   O(slots). */
DXPU_API int dxpu_vswitch_config_request(dxpu_vswitch *vs, dxpu_tlp *req, dxpu_tlp *cpl,
                                         uint8_t data[4], uint8_t *slot);
/* The slot that a memory address or BDF leads to: 1.., 0 for none (answer Unsupported Request).  Only
   through ports whose Memory Space is on, all the way down.  O(log slots). */
DXPU_API uint8_t dxpu_vswitch_by_address(const dxpu_vswitch *vs, uint64_t address);
DXPU_API uint8_t dxpu_vswitch_by_bdf(const dxpu_vswitch *vs, uint16_t bdf);

/* A device is there: presence and link come up, the host is told.  speed as Link Status (1..6), width in
   lanes.  DXPU_OK, or E_ARG (no such slot, or filled). */
DXPU_API int dxpu_vswitch_insert(dxpu_vswitch *vs, uint8_t slot, uint8_t speed, uint8_t width);
/* It is gone (surprise removal).  DXPU_OK, or E_ARG. */
DXPU_API int dxpu_vswitch_remove(dxpu_vswitch *vs, uint8_t slot);
/* Press the attention button of a slot with a power controller.  DXPU_OK or E_ARG. */
DXPU_API int dxpu_vswitch_attention(dxpu_vswitch *vs, uint8_t slot);
/* True when the device in the slot may be talked to: filled, powered, link not disabled, no reset. */
DXPU_API bool dxpu_vswitch_link_up(const dxpu_vswitch *vs, uint8_t slot);
/* The device may master the bus: Bus Master Enable is set on every port above the slot. */
DXPU_API bool dxpu_vswitch_bus_master(const dxpu_vswitch *vs, uint8_t slot);
/* Max_Payload_Size that the system has set for the slot's port: 128..4096; 0 for no such slot. */
DXPU_API uint32_t dxpu_vswitch_mps_bytes(const dxpu_vswitch *vs, uint8_t slot);
/* The next thing to do, oldest kind first; false when there is none. */
DXPU_API bool dxpu_vswitch_action_next(dxpu_vswitch *vs, dxpu_vswitch_action *out);
/* What a config space dump of a port shows: `bytes` from offset 0, for lspci -F.  Returns the BDF, or -1
   when index is past the last port. */
DXPU_API int dxpu_vswitch_dump(const dxpu_vswitch *vs, unsigned index, uint8_t *out, size_t bytes);
/* The largest window (bytes, prefetchable or not) that the slot's ports hold now. */
DXPU_API uint64_t dxpu_vswitch_window_bytes(const dxpu_vswitch *vs, uint8_t slot,
                                            bool prefetchable);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_VSWITCH_H_INCLUDED */

#if defined(DXPU_VSWITCH_IMPLEMENTATION) && !defined(DXPU_VSWITCH_IMPLEMENTED)
#define DXPU_VSWITCH_IMPLEMENTED

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 3  Registers =============================================================================
   Offsets in a port's configuration space. */
enum {
    DXPUI_VS_COMMAND = 0x04,
    DXPUI_VS_BUSES = 0x18,
    DXPUI_VS_MEMORY = 0x20,
    DXPUI_VS_PREF = 0x24,
    DXPUI_VS_PREF_BASE_HI = 0x28,
    DXPUI_VS_PREF_LIMIT_HI = 0x2c,
    DXPUI_VS_BRIDGE = 0x3c, /* interrupt line, pin; bridge control in the upper half */
    DXPUI_VS_EXP = 0x40,
    DXPUI_VS_DEVCAP = DXPUI_VS_EXP + 0x04,
    DXPUI_VS_DEVCTL = DXPUI_VS_EXP + 0x08,
    DXPUI_VS_LNKCAP = DXPUI_VS_EXP + 0x0c,
    DXPUI_VS_LNKCTL = DXPUI_VS_EXP + 0x10, /* status in the upper half */
    DXPUI_VS_SLTCAP = DXPUI_VS_EXP + 0x14,
    DXPUI_VS_SLTCTL = DXPUI_VS_EXP + 0x18, /* status in the upper half */
    DXPUI_VS_ROOTCTL = DXPUI_VS_EXP + 0x1c,
    DXPUI_VS_ROOTSTA = DXPUI_VS_EXP + 0x20,
    DXPUI_VS_DEVCAP2 = DXPUI_VS_EXP + 0x24,
    DXPUI_VS_DEVCTL2 = DXPUI_VS_EXP + 0x28,
    DXPUI_VS_LNKCAP2 = DXPUI_VS_EXP + 0x2c,
    DXPUI_VS_LNKCTL2 = DXPUI_VS_EXP + 0x30,
    DXPUI_VS_MSI = 0x80,
    DXPUI_VS_PM = 0x90,
    DXPUI_VS_AER = 0x100,
    DXPUI_VS_ACS = 0x148,
    /* bits */
    DXPUI_VS_MEM_SPACE = 0x0002,
    DXPUI_VS_MASTER = 0x0004,
    DXPUI_VS_BUS_RESET = 0x0040,    /* bridge control */
    DXPUI_VS_LINK_DISABLE = 0x0010, /* link control */
    DXPUI_VS_LINK_ACTIVE = 0x2000,  /* link status */
    DXPUI_VS_SLT_EVENTS = 0x011f,   /* slot status, write 1 to clear */
    DXPUI_VS_SLT_ABP = 0x0001,
    DXPUI_VS_SLT_PDC = 0x0008,
    DXPUI_VS_SLT_CC = 0x0010,
    DXPUI_VS_SLT_PDS = 0x0040,
    DXPUI_VS_SLT_DLLSC = 0x0100,
    DXPUI_VS_SLTCTL_CCIE = 0x0010,
    DXPUI_VS_SLTCTL_HPIE = 0x0020,
    DXPUI_VS_SLTCTL_DLLSCE = 0x1000,
    DXPUI_VS_SLTCTL_PCC = 0x0400, /* 1: power off */
    DXPUI_VS_SLTCTL_COMMANDS = 0x0fc0
};

static uint32_t dxpui_vs_get(const dxpu_vswitch_port *p, unsigned at)
{
    const uint8_t *b = p->cfg + at;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void dxpui_vs_put(dxpu_vswitch_port *p, unsigned at, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++)
        p->cfg[at + i] = (uint8_t)(value >> 8 * i);
}

static unsigned dxpui_vs_get16(const dxpu_vswitch_port *p, unsigned at)
{
    return (unsigned)p->cfg[at] | (unsigned)p->cfg[at + 1] << 8;
}

static void dxpui_vs_put16(dxpu_vswitch_port *p, unsigned at, unsigned value)
{
    p->cfg[at] = (uint8_t)value;
    p->cfg[at + 1] = (uint8_t)(value >> 8);
}

/* One dword of configuration space that is not all read-only. */
typedef struct dxpui_vs_rule {
    uint16_t at;
    uint8_t kinds;  /* 1 root, 2 upstream, 4 downstream */
    uint8_t slots;  /* only ports with a slot */
    uint32_t write; /* bits that take the value written */
    uint32_t clear; /* bits that a written 1 clears */
} dxpui_vs_rule;

static const dxpui_vs_rule dxpui_vs_rules[] = {
    { DXPUI_VS_COMMAND, 7, 0, 0x00000547, 0xf9000000 },
    { 0x0c, 7, 0, 0x000000ff, 0 },
    { DXPUI_VS_BUSES, 7, 0, 0x00ffffff, 0 },
    { 0x1c, 7, 0, 0, 0xf9000000 },
    { DXPUI_VS_MEMORY, 7, 0, 0xfff0fff0, 0 },
    { DXPUI_VS_PREF, 7, 0, 0xfff0fff0, 0 },
    { DXPUI_VS_PREF_BASE_HI, 7, 0, 0xffffffff, 0 },
    { DXPUI_VS_PREF_LIMIT_HI, 7, 0, 0xffffffff, 0 },
    { DXPUI_VS_BRIDGE, 7, 0, 0x004300ff, 0 },
    { DXPUI_VS_DEVCTL, 7, 0, 0x000001ef, 0x000f0000 },
    { DXPUI_VS_LNKCTL, 7, 0, 0x000001d3, 0 },
    { DXPUI_VS_SLTCTL, 5, 1, 0x00001fff, 0x011f0000 },
    { DXPUI_VS_ROOTCTL, 1, 0, 0x0000001f, 0 },
    { DXPUI_VS_ROOTSTA, 1, 0, 0, 0x00010000 },
    { DXPUI_VS_DEVCTL2, 7, 0, 0x0000003f, 0 },
    { DXPUI_VS_LNKCTL2, 7, 0, 0x0000000f, 0 },
    { DXPUI_VS_MSI, 7, 0, 0x00010000, 0 },
    { DXPUI_VS_MSI + 4, 7, 0, 0xfffffffc, 0 },
    { DXPUI_VS_MSI + 8, 7, 0, 0xffffffff, 0 },
    { DXPUI_VS_MSI + 12, 7, 0, 0x0000ffff, 0 },
    { DXPUI_VS_PM + 4, 7, 0, 0x00000103, 0x00008000 },
    { DXPUI_VS_AER + 0x04, 7, 0, 0, 0x04fff030 },
    { DXPUI_VS_AER + 0x08, 7, 0, 0x04fff030, 0 },
    { DXPUI_VS_AER + 0x0c, 7, 0, 0x04fff030, 0 },
    { DXPUI_VS_AER + 0x10, 7, 0, 0, 0x0000f1c1 },
    { DXPUI_VS_AER + 0x14, 7, 0, 0x0000f1c1, 0 },
    { DXPUI_VS_AER + 0x2c, 1, 0, 0x00000007, 0 },
    { DXPUI_VS_AER + 0x30, 1, 0, 0, 0x0000007f },
    { DXPUI_VS_ACS + 4, 5, 0, 0x001d0000, 0 },
};

static const dxpui_vs_rule *dxpui_vs_rule_at(const dxpu_vswitch_port *p, unsigned at)
{
    for (unsigned i = 0; i < sizeof dxpui_vs_rules / sizeof dxpui_vs_rules[0]; i++) {
        const dxpui_vs_rule *r = &dxpui_vs_rules[i];
        if (r->at == at && (r->kinds >> (p->kind - DXPUI_VS_ROOT) & 1) && (!r->slots || p->slot))
            return r;
    }
    return NULL;
}

/* ==== 4  Ports ================================================================================= */

/* Registers that reset brings back; capabilities that never change. */
static void dxpui_vs_port_reset(const dxpu_vswitch *vs, dxpu_vswitch_port *p)
{
    unsigned kind = p->kind - DXPUI_VS_ROOT;
    unsigned status = dxpui_vs_get16(p, DXPUI_VS_LNKCTL + 2);
    unsigned slot_status = dxpui_vs_get16(p, DXPUI_VS_SLTCTL + 2);
    memset(p->cfg, 0, sizeof p->cfg);
    dxpui_vs_put(p, 0x00, (uint32_t)vs->cfg.device[kind] << 16 | vs->cfg.vendor);
    dxpui_vs_put(p, DXPUI_VS_COMMAND, 0x00100000); /* capability list */
    dxpui_vs_put(p, 0x08, 0x06040001);             /* PCI bridge, normal decode */
    dxpui_vs_put(p, 0x0c, 0x00010000);             /* type 1 */
    dxpui_vs_put(p, DXPUI_VS_MEMORY, 0x0000fff0);
    dxpui_vs_put(p, DXPUI_VS_PREF, 0x0001fff1);
    dxpui_vs_put(p, 0x34, DXPUI_VS_EXP);
    uint32_t exp = 0x8010u | 2u << 16 | (uint32_t)p->kind << 20 | (p->slot ? 1u << 24 : 0);
    dxpui_vs_put(p, DXPUI_VS_EXP, exp);
    dxpui_vs_put(p, DXPUI_VS_DEVCAP, 0x00008020u | vs->cfg.mps_code);
    dxpui_vs_put(p, DXPUI_VS_DEVCTL, 0x00002000u | (uint32_t)vs->cfg.mps_code << 5);
    dxpui_vs_put(p, DXPUI_VS_LNKCAP,
                 0x00000104u | (p->slot ? 0x00180000u : 0) | (uint32_t)p->slot << 24);
    dxpui_vs_put16(p, DXPUI_VS_LNKCTL + 2, p->slot ? status : 0x0104u);
    if (p->slot) {
        uint32_t features = vs->cfg.power_controller ? 0x0000001bu : 0x00040000u;
        dxpui_vs_put(p, DXPUI_VS_SLTCAP, 0x00000060u | features | (uint32_t)p->slot << 19);
        dxpui_vs_put16(p, DXPUI_VS_SLTCTL + 2, slot_status);
        dxpui_vs_put16(p, DXPUI_VS_SLTCTL,
                       vs->cfg.power_controller && !p->filled ? 0x07c0 : 0x03c0);
    }
    dxpui_vs_put(p, DXPUI_VS_DEVCAP2, 0x00000010); /* completion timeout can be disabled */
    dxpui_vs_put(p, DXPUI_VS_LNKCAP2, 0x0000001e);
    dxpui_vs_put(p, DXPUI_VS_LNKCTL2, 0x00000004);
    dxpui_vs_put(p, DXPUI_VS_MSI, 0x00809005);
    dxpui_vs_put(p, DXPUI_VS_PM, 0xc8030001);
    dxpui_vs_put(p, DXPUI_VS_PM + 4, 0x00000008); /* no soft reset */
    dxpui_vs_put(p, DXPUI_VS_AER,
                 (p->kind == DXPUI_VS_UPSTREAM ? 0u : (uint32_t)DXPUI_VS_ACS << 20) | 0x00020001u);
    dxpui_vs_put(p, DXPUI_VS_AER + 0x08, 0x00400000); /* uncorrectable internal errors masked */
    dxpui_vs_put(p, DXPUI_VS_AER + 0x0c, 0x00462030);
    dxpui_vs_put(p, DXPUI_VS_AER + 0x14, 0x0000e000);
    if (p->kind != DXPUI_VS_UPSTREAM) {
        dxpui_vs_put(p, DXPUI_VS_ACS, 0x0001000d);
        dxpui_vs_put(p, DXPUI_VS_ACS + 4, 0x0000001d);
    }
}

static const dxpu_vswitch_port *dxpui_vs_slot_port(const dxpu_vswitch *vs, unsigned slot)
{
    return slot >= 1 && slot <= vs->cfg.slots ? &vs->port[slot - 1] : NULL;
}

static unsigned dxpui_vs_secondary(const dxpu_vswitch_port *p)
{
    return p->cfg[DXPUI_VS_BUSES + 1];
}

static unsigned dxpui_vs_subordinate(const dxpu_vswitch_port *p)
{
    return p->cfg[DXPUI_VS_BUSES + 2];
}

/* Bus numbers are assigned and `bus` lies behind the port. */
static bool dxpui_vs_behind(const dxpu_vswitch_port *p, unsigned bus)
{
    unsigned first = dxpui_vs_secondary(p);
    return first != 0 && bus >= first && bus <= dxpui_vs_subordinate(p);
}

/* The bus on which a port itself stands. */
static unsigned dxpui_vs_bus_of(const dxpu_vswitch *vs, const dxpu_vswitch_port *p)
{
    if (vs->cfg.topology == DXPU_VSWITCH_ROOT_PORTS || p->kind == DXPUI_VS_ROOT)
        return 0;
    const dxpu_vswitch_port *root = &vs->port[vs->cfg.slots];
    return dxpui_vs_secondary(p->kind == DXPUI_VS_UPSTREAM ? root : root + 1);
}

static uint16_t dxpui_vs_bdf_of(const dxpu_vswitch *vs, const dxpu_vswitch_port *p)
{
    return DXPU_BDF(dxpui_vs_bus_of(vs, p), p->dev, 0);
}

/* The port that a configuration request is for; NULL when it is for none of ours. */
static dxpu_vswitch_port *dxpui_vs_port_at(dxpu_vswitch *vs, uint16_t bdf)
{
    unsigned bus = DXPU_BDF_BUS(bdf);
    if (DXPU_BDF_FN(bdf) != 0)
        return NULL;
    if (vs->cfg.topology == DXPU_VSWITCH_SWITCH && bus != 0) {
        const dxpu_vswitch_port *root = &vs->port[vs->cfg.slots];
        if (!dxpui_vs_behind(root, bus) ||
            (bus != dxpui_vs_secondary(root) && !dxpui_vs_behind(root + 1, bus)))
            return NULL;
    }
    for (unsigned i = 0; i < vs->ports; i++) {
        dxpu_vswitch_port *p = &vs->port[i];
        bool numbered = dxpui_vs_bus_of(vs, p) != 0 || p->kind == DXPUI_VS_ROOT;
        if (numbered && dxpui_vs_bdf_of(vs, p) == bdf)
            return p;
    }
    return NULL;
}

static bool dxpui_vs_powered(const dxpu_vswitch_port *p)
{
    bool controller = (dxpui_vs_get(p, DXPUI_VS_SLTCAP) & 2) != 0;
    return !controller || !(dxpui_vs_get16(p, DXPUI_VS_SLTCTL) & DXPUI_VS_SLTCTL_PCC);
}

static bool dxpui_vs_link(const dxpu_vswitch_port *p)
{
    return p->filled && dxpui_vs_powered(p) &&
           !(dxpui_vs_get16(p, DXPUI_VS_LNKCTL) & DXPUI_VS_LINK_DISABLE);
}

/* An MSI leaves when "MSI on, hot-plug interrupt on, and an enabled event" becomes true (Base Spec
   6.7.3.4). */
static void dxpui_vs_interrupt(dxpu_vswitch_port *p)
{
    unsigned control = dxpui_vs_get16(p, DXPUI_VS_SLTCTL);
    unsigned status = dxpui_vs_get16(p, DXPUI_VS_SLTCTL + 2);
    bool msi = (dxpui_vs_get16(p, DXPUI_VS_MSI + 2) & 1) != 0;
    bool level = msi && (control & DXPUI_VS_SLTCTL_HPIE) &&
                 ((control & status & 0x1f) ||
                  ((control & DXPUI_VS_SLTCTL_DLLSCE) && (status & DXPUI_VS_SLT_DLLSC)));
    if (level && !p->irq_line)
        p->msi_due = true;
    p->irq_line = level;
}

static void dxpui_vs_event(dxpu_vswitch_port *p, unsigned status)
{
    dxpui_vs_put16(p, DXPUI_VS_SLTCTL + 2, dxpui_vs_get16(p, DXPUI_VS_SLTCTL + 2) | status);
    dxpui_vs_interrupt(p);
}

/* Make the link status say what presence, power and link disable come to. */
static void dxpui_vs_link_update(dxpu_vswitch_port *p)
{
    unsigned status = dxpui_vs_get16(p, DXPUI_VS_LNKCTL + 2);
    unsigned active = dxpui_vs_link(p) ? DXPUI_VS_LINK_ACTIVE : 0;
    if ((status & DXPUI_VS_LINK_ACTIVE) == active)
        return;
    dxpui_vs_put16(p, DXPUI_VS_LNKCTL + 2, (status & ~(unsigned)DXPUI_VS_LINK_ACTIVE) | active);
    dxpui_vs_event(p, DXPUI_VS_SLT_DLLSC);
}

/* Show the host table all registers of a slot's port that it learns from. */
static void dxpui_vs_relearn(dxpu_vswitch *vs, const dxpu_vswitch_port *p)
{
    static const uint8_t regs[] = {
        DXPUI_VS_COMMAND, DXPUI_VS_BUSES,        DXPUI_VS_MEMORY,
        DXPUI_VS_PREF,    DXPUI_VS_PREF_BASE_HI, DXPUI_VS_PREF_LIMIT_HI
    };
    if (!p->slot)
        return;
    for (unsigned i = 0; i < sizeof regs; i++)
        dxpu_host_learn(&vs->table, p->slot - 1u, regs[i], 0xf, dxpui_vs_get(p, regs[i]));
}

static void dxpui_vs_reset_slot(dxpu_vswitch *vs, const dxpu_vswitch_port *p, bool on)
{
    uint32_t bit = 1u << (p->slot - 1);
    vs->reset_on = on ? vs->reset_on | bit : vs->reset_on & ~bit;
    vs->reset_due |= bit;
}

/* Reset asserted below a port: everything there starts over; presence stays. */
static void dxpui_vs_bus_reset(dxpu_vswitch *vs, const dxpu_vswitch_port *p, bool on)
{
    if (p->slot) {
        dxpui_vs_reset_slot(vs, p, on);
        return;
    }
    for (unsigned i = 0; i < vs->ports; i++) {
        dxpu_vswitch_port *below = &vs->port[i];
        bool is_below = below->kind == DXPUI_VS_DOWNSTREAM ||
                        (below->kind == DXPUI_VS_UPSTREAM && p->kind == DXPUI_VS_ROOT);
        if (!is_below)
            continue;
        if (on) {
            dxpui_vs_port_reset(vs, below);
            dxpui_vs_relearn(vs, below);
        }
        if (below->slot)
            dxpui_vs_reset_slot(vs, below, on);
    }
}

/* ==== 5  Requests ============================================================================== */

/* The downstream ports stand on another bus now. */
static void dxpui_vs_renumber(dxpu_vswitch *vs)
{
    for (unsigned i = 0; i < vs->cfg.slots; i++)
        dxpu_host_set_port(&vs->table, i, dxpui_vs_bdf_of(vs, &vs->port[i]));
}

static void dxpui_vs_slot_control(dxpu_vswitch *vs, dxpu_vswitch_port *p, unsigned before)
{
    unsigned now = dxpui_vs_get16(p, DXPUI_VS_SLTCTL);
    if (vs->cfg.power_controller) {
        uint32_t bit = 1u << (p->slot - 1);
        if ((before ^ now) & DXPUI_VS_SLTCTL_PCC) {
            vs->power_on = now & DXPUI_VS_SLTCTL_PCC ? vs->power_on & ~bit : vs->power_on | bit;
            vs->power_due |= bit;
        }
        dxpui_vs_event(p, DXPUI_VS_SLT_CC); /* every write is a command, done at once */
    }
    dxpui_vs_link_update(p);
}

/* What a write means beyond the bits it left; `before` is the dword as it was. */
static void dxpui_vs_wrote(dxpu_vswitch *vs, dxpu_vswitch_port *p, unsigned at, uint32_t before)
{
    uint32_t changed = before ^ dxpui_vs_get(p, at);
    switch (at) {
    case DXPUI_VS_BUSES:
        if (!p->slot)
            dxpui_vs_renumber(vs);
        break;
    case DXPUI_VS_BRIDGE:
        if (changed & (uint32_t)DXPUI_VS_BUS_RESET << 16)
            dxpui_vs_bus_reset(vs, p, (before & (uint32_t)DXPUI_VS_BUS_RESET << 16) == 0);
        break;
    case DXPUI_VS_LNKCTL:
        if (p->slot && (changed & DXPUI_VS_LINK_DISABLE)) {
            dxpui_vs_link_update(p);
            dxpui_vs_reset_slot(vs, p, (before & DXPUI_VS_LINK_DISABLE) == 0);
        }
        break;
    case DXPUI_VS_SLTCTL:
        dxpui_vs_slot_control(vs, p, before & 0xffff);
        break;
    default:
        break;
    }
    dxpui_vs_relearn(vs, p);
    if (p->slot)
        dxpui_vs_interrupt(p);
}

static void dxpui_vs_write(dxpu_vswitch *vs, dxpu_vswitch_port *p, unsigned at, uint8_t be,
                           uint32_t value)
{
    const dxpui_vs_rule *r = dxpui_vs_rule_at(p, at);
    uint32_t lanes = 0;
    if (!r)
        return;
    for (unsigned i = 0; i < 4; i++)
        lanes |= be >> i & 1 ? 0xffu << 8 * i : 0;
    uint32_t before = dxpui_vs_get(p, at), write = r->write & lanes;
    dxpui_vs_put(p, at, ((before & ~write) | (value & write)) & ~(value & r->clear & lanes));
    /* a byte of Slot Status alone is no command */
    if (at == DXPUI_VS_SLTCTL && !(be & 3))
        dxpui_vs_interrupt(p);
    else
        dxpui_vs_wrote(vs, p, at, before);
}

/* The slot behind which `bus` lies; 0 for none. */
static unsigned dxpui_vs_slot_behind(const dxpu_vswitch *vs, unsigned bus)
{
    const dxpu_vswitch_port *root = &vs->port[vs->cfg.slots];
    if (vs->cfg.topology == DXPU_VSWITCH_SWITCH &&
        (!dxpui_vs_behind(root, bus) || !dxpui_vs_behind(root + 1, bus)))
        return 0;
    for (unsigned i = 0; i < vs->cfg.slots; i++) {
        if (dxpui_vs_behind(&vs->port[i], bus))
            return i + 1;
    }
    return 0;
}

static bool dxpui_vs_is_write(const dxpu_tlp *req)
{
    return req->type == DXPU_TLP_CFGWR0 || req->type == DXPU_TLP_CFGWR1;
}

/* A port of ours answers. */
static void dxpui_vs_answer(dxpu_vswitch *vs, dxpu_vswitch_port *p, const dxpu_tlp *req,
                            dxpu_tlp *cpl, uint8_t data[4])
{
    unsigned at = req->register_bytes;
    dxpu_tlp_completion(req, dxpui_vs_bdf_of(vs, p), DXPU_CPL_SC, cpl);
    vs->count_answered++;
    if (dxpui_vs_is_write(req)) {
        const uint8_t *b = req->payload.ptr;
        uint32_t value =
            (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        if (at < DXPUI_VS_BYTES)
            dxpui_vs_write(vs, p, at, req->first_be, value);
        return;
    }
    for (unsigned i = 0; i < 4; i++)
        data[i] = at < DXPUI_VS_BYTES ? p->cfg[at + i] : 0;
    cpl->payload.ptr = data;
    cpl->payload.len = 4;
}

DXPU_API int dxpu_vswitch_config_request(dxpu_vswitch *vs, dxpu_tlp *req, dxpu_tlp *cpl,
                                         uint8_t data[4], uint8_t *slot)
{
    dxpu_vswitch_port *p = dxpui_vs_port_at(vs, req->target);
    if (p) {
        dxpui_vs_answer(vs, p, req, cpl, data);
        return DXPU_VSWITCH_ANSWERED;
    }
    unsigned bus = DXPU_BDF_BUS(req->target);
    unsigned s = dxpui_vs_slot_behind(vs, bus);
    bool own_bus = s && bus == dxpui_vs_secondary(&vs->port[s - 1]);
    if (!s || !dxpu_vswitch_link_up(vs, (uint8_t)s) ||
        (own_bus && DXPU_BDF_DEV(req->target) != 0)) {
        dxpu_tlp_completion(req, DXPU_BDF(0, 0, 0), DXPU_CPL_UR, cpl);
        vs->count_refused++;
        return DXPU_VSWITCH_ANSWERED;
    }
    bool write = dxpui_vs_is_write(req);
    if (own_bus)
        req->type = write ? (uint8_t)DXPU_TLP_CFGWR0 : (uint8_t)DXPU_TLP_CFGRD0;
    else
        req->type = write ? (uint8_t)DXPU_TLP_CFGWR1 : (uint8_t)DXPU_TLP_CFGRD1;
    *slot = (uint8_t)s;
    vs->count_forwarded++;
    return DXPU_VSWITCH_FORWARD;
}

/* ==== 6  Slots ================================================================================= */

DXPU_API void dxpu_vswitch_config_default(dxpu_vswitch_config *cfg)
{
    dxpui_zero(cfg, sizeof *cfg);
    cfg->topology = DXPU_VSWITCH_ROOT_PORTS;
    cfg->slots = 8;
    cfg->buses = 32;
    cfg->mps_code = 1;
    cfg->vendor = 0x1b36;
    cfg->device[0] = 0x000c;
    cfg->device[1] = 0x000d;
    cfg->device[2] = 0x000e;
}

static void dxpui_vs_port_init(dxpu_vswitch *vs, unsigned index, unsigned kind, unsigned dev,
                               unsigned slot)
{
    dxpu_vswitch_port *p = &vs->port[index];
    p->kind = (uint8_t)kind;
    p->dev = (uint8_t)dev;
    p->slot = (uint8_t)slot;
    dxpui_vs_port_reset(vs, p);
}

DXPU_API int dxpu_vswitch_init(dxpu_vswitch *vs, const dxpu_vswitch_config *cfg)
{
    bool is_switch = cfg->topology == DXPU_VSWITCH_SWITCH;
    unsigned buses = cfg->slots + (is_switch ? 3u : 1u);
    dxpu_host_entry row;
    if (cfg->slots < 1 || cfg->slots > DXPU_VSWITCH_SLOTS_MAX || cfg->buses < buses ||
        cfg->topology > DXPU_VSWITCH_SWITCH || cfg->mps_code > 5)
        return DXPU_E_ARG;
    dxpui_zero(vs, sizeof *vs);
    dxpui_zero(&row, sizeof row);
    row.memory.base = row.prefetchable.base = 1; /* above their limits: off */
    vs->cfg = *cfg;
    dxpu_host_init(&vs->table, vs->rows, vs->windows, cfg->slots);
    for (unsigned i = 0; i < cfg->slots; i++) {
        if (is_switch)
            dxpui_vs_port_init(vs, i, DXPUI_VS_DOWNSTREAM, i, i + 1);
        else
            dxpui_vs_port_init(vs, i, DXPUI_VS_ROOT, i + 1, i + 1);
        row.port = dxpui_vs_bdf_of(vs, &vs->port[i]);
        dxpu_host_add(&vs->table, &row);
    }
    vs->ports = cfg->slots;
    if (is_switch) {
        dxpui_vs_port_init(vs, vs->ports++, DXPUI_VS_ROOT, 1, 0);
        dxpui_vs_port_init(vs, vs->ports++, DXPUI_VS_UPSTREAM, 0, 0);
    }
    return DXPU_OK;
}

static dxpu_vswitch_port *dxpui_vs_slot(dxpu_vswitch *vs, unsigned slot)
{
    return slot >= 1 && slot <= vs->cfg.slots ? &vs->port[slot - 1] : NULL;
}

DXPU_API int dxpu_vswitch_insert(dxpu_vswitch *vs, uint8_t slot, uint8_t speed, uint8_t width)
{
    dxpu_vswitch_port *p = dxpui_vs_slot(vs, slot);
    if (!p || p->filled || speed < 1 || speed > 6 || width < 1 || width > 32)
        return DXPU_E_ARG;
    p->filled = true;
    unsigned status = dxpui_vs_get16(p, DXPUI_VS_LNKCTL + 2) & ~0x03ffu;
    dxpui_vs_put16(p, DXPUI_VS_LNKCTL + 2, status | speed | (unsigned)width << 4);
    dxpui_vs_event(p, DXPUI_VS_SLT_PDS | DXPUI_VS_SLT_PDC);
    dxpui_vs_link_update(p);
    return DXPU_OK;
}

DXPU_API int dxpu_vswitch_remove(dxpu_vswitch *vs, uint8_t slot)
{
    dxpu_vswitch_port *p = dxpui_vs_slot(vs, slot);
    if (!p || !p->filled)
        return DXPU_E_ARG;
    p->filled = false;
    unsigned status = dxpui_vs_get16(p, DXPUI_VS_SLTCTL + 2) & ~(unsigned)DXPUI_VS_SLT_PDS;
    dxpui_vs_put16(p, DXPUI_VS_SLTCTL + 2, status);
    dxpui_vs_event(p, DXPUI_VS_SLT_PDC);
    dxpui_vs_link_update(p);
    return DXPU_OK;
}

DXPU_API int dxpu_vswitch_attention(dxpu_vswitch *vs, uint8_t slot)
{
    dxpu_vswitch_port *p = dxpui_vs_slot(vs, slot);
    if (!p || !vs->cfg.power_controller)
        return DXPU_E_ARG;
    dxpui_vs_event(p, DXPUI_VS_SLT_ABP);
    return DXPU_OK;
}

DXPU_API bool dxpu_vswitch_link_up(const dxpu_vswitch *vs, uint8_t slot)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    return p && dxpui_vs_link(p) && !(vs->reset_on >> (slot - 1) & 1);
}

DXPU_API bool dxpu_vswitch_action_next(dxpu_vswitch *vs, dxpu_vswitch_action *out)
{
    dxpui_zero(out, sizeof *out);
    for (unsigned i = 0; i < vs->cfg.slots; i++) {
        uint32_t bit = 1u << i;
        out->slot = (uint8_t)(i + 1);
        if (vs->reset_due & bit) {
            vs->reset_due &= ~bit;
            out->kind = vs->reset_on & bit ? DXPU_VSWITCH_RESET_ON : DXPU_VSWITCH_RESET_OFF;
            return true;
        }
        if (vs->power_due & bit) {
            vs->power_due &= ~bit;
            out->kind = vs->power_on & bit ? DXPU_VSWITCH_POWER_ON : DXPU_VSWITCH_POWER_OFF;
            return true;
        }
        dxpu_vswitch_port *p = &vs->port[i];
        if (p->msi_due) {
            p->msi_due = false;
            out->kind = DXPU_VSWITCH_MSI;
            out->address = (uint64_t)dxpui_vs_get(p, DXPUI_VS_MSI + 8) << 32 |
                           dxpui_vs_get(p, DXPUI_VS_MSI + 4);
            out->data = dxpui_vs_get16(p, DXPUI_VS_MSI + 12);
            return true;
        }
    }
    return false;
}

DXPU_API int dxpu_vswitch_dump(const dxpu_vswitch *vs, unsigned index, uint8_t *out, size_t bytes)
{
    if (index >= vs->ports)
        return -1;
    memset(out, 0, bytes);
    memcpy(out, vs->port[index].cfg, bytes < DXPUI_VS_BYTES ? bytes : (size_t)DXPUI_VS_BYTES);
    return dxpui_vs_bdf_of(vs, &vs->port[index]);
}

/* ==== 7  Routing =============================================================================== */

/* The ports above the slots pass the address on: Memory Space on, and inside one of their windows. */
static bool dxpui_vs_passes(const dxpu_vswitch_port *p, uint64_t address)
{
    uint32_t mem = dxpui_vs_get(p, DXPUI_VS_MEMORY), pref = dxpui_vs_get(p, DXPUI_VS_PREF);
    uint64_t hi_base = dxpui_vs_get(p, DXPUI_VS_PREF_BASE_HI);
    uint64_t hi_limit = dxpui_vs_get(p, DXPUI_VS_PREF_LIMIT_HI);
    uint64_t base = (uint64_t)(mem & 0xfff0u) << 16;
    uint64_t limit = (mem & 0xfff00000u) | 0xfffffu;
    uint64_t pref_base = hi_base << 32 | (uint64_t)(pref & 0xfff0u) << 16;
    uint64_t pref_limit = hi_limit << 32 | (pref & 0xfff00000u) | 0xfffffu;
    if (!(dxpui_vs_get16(p, DXPUI_VS_COMMAND) & DXPUI_VS_MEM_SPACE))
        return false;
    return (address >= base && address <= limit) || (address >= pref_base && address <= pref_limit);
}

DXPU_API uint8_t dxpu_vswitch_by_address(const dxpu_vswitch *vs, uint64_t address)
{
    int row = dxpu_host_by_address(&vs->table, address);
    const dxpu_vswitch_port *root = &vs->port[vs->cfg.slots];
    if (row < 0 || !dxpu_vswitch_link_up(vs, (uint8_t)(row + 1)))
        return 0;
    if (vs->cfg.topology == DXPU_VSWITCH_SWITCH &&
        (!dxpui_vs_passes(root, address) || !dxpui_vs_passes(root + 1, address)))
        return 0;
    return (uint8_t)(row + 1);
}

DXPU_API uint8_t dxpu_vswitch_by_bdf(const dxpu_vswitch *vs, uint16_t bdf)
{
    unsigned slot = dxpui_vs_slot_behind(vs, DXPU_BDF_BUS(bdf));
    return slot && dxpu_vswitch_link_up(vs, (uint8_t)slot) ? (uint8_t)slot : 0;
}

DXPU_API bool dxpu_vswitch_bus_master(const dxpu_vswitch *vs, uint8_t slot)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    const dxpu_vswitch_port *root = &vs->port[vs->cfg.slots];
    bool above = vs->cfg.topology == DXPU_VSWITCH_ROOT_PORTS ||
                 (dxpui_vs_get16(root, DXPUI_VS_COMMAND) &
                  dxpui_vs_get16(root + 1, DXPUI_VS_COMMAND) & DXPUI_VS_MASTER);
    return p && above && (dxpui_vs_get16(p, DXPUI_VS_COMMAND) & DXPUI_VS_MASTER);
}

DXPU_API uint32_t dxpu_vswitch_mps_bytes(const dxpu_vswitch *vs, uint8_t slot)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    return p ? 128u << (dxpui_vs_get16(p, DXPUI_VS_DEVCTL) >> 5 & 7) : 0;
}

DXPU_API uint64_t dxpu_vswitch_window_bytes(const dxpu_vswitch *vs, uint8_t slot, bool prefetchable)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    if (!p)
        return 0;
    uint32_t reg = dxpui_vs_get(p, prefetchable ? DXPUI_VS_PREF : DXPUI_VS_MEMORY);
    uint64_t base = (uint64_t)(reg & 0xfff0u) << 16;
    uint64_t limit = (reg & 0xfff00000u) | 0xfffffu;
    if (prefetchable) {
        base |= (uint64_t)dxpui_vs_get(p, DXPUI_VS_PREF_BASE_HI) << 32;
        limit |= (uint64_t)dxpui_vs_get(p, DXPUI_VS_PREF_LIMIT_HI) << 32;
    }
    return limit >= base ? limit - base + 1 : 0;
}

#ifdef __cplusplus
}
#endif
#endif /* DXPU_VSWITCH_IMPLEMENTATION */
