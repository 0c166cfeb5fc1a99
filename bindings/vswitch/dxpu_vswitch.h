/* dxpu_vswitch.h - the PCIe virtual switch that a host sees, as configuration space and hot-plug
   SPDX-License-Identifier: MIT

   The pair of proxies looks to the host like one PCIe switch whose slots fill and empty at run time
   (paper, 3.3).  This header is that switch as pure C: type 1 headers with bus numbers and windows,
   the PCI Express capability with hot-plug slot registers, MSI, power management, AER and ACS.  It
   answers configuration requests for its own ports, returns the slot of any other one, keeps
   the host table of dxpu.h, and asks for what must happen next (an interrupt, a reset of a slot).
   No allocation, no clock, no I/O.  The rules, V-1 ff., are in spec/vswitch.md.

   In exactly one source file, after dxpu.h's own implementation or beside it:
       #define DXPU_VSWITCH_IMPLEMENTATION
       #include "bindings/vswitch/dxpu_vswitch.h"

   CONTENTS: 1 Configuration  2 Interface  3 Registers  4 Ports  5 Status  6 Requests  7 Slots
             8 Routing  9 Windows  10 Values of what is gone
*/
#ifndef DXPU_VSWITCH_H_INCLUDED
#define DXPU_VSWITCH_H_INCLUDED

#include "dxpu.h"

/* ==== 1  Configuration ======================================================================== */

#ifndef DXPU_VSWITCH_SLOTS_MAX /* slots a switch can have; about 1.4 KB of dxpu_vswitch each */
#define DXPU_VSWITCH_SLOTS_MAX 28
#endif
#if DXPU_VSWITCH_SLOTS_MAX < 1 || DXPU_VSWITCH_SLOTS_MAX > 30
#error "DXPU_VSWITCH_SLOTS_MAX: 1..30 (device numbers of one bus)"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 2  Interface ============================================================================ */

/* What the host sees. */
enum {
    /* Slots are root ports on the root bus.  Linux regrows the window of such a slot from free
       space of the root bus, so large BARs hot-add without any guest parameter: the default. */
    DXPU_VSWITCH_ROOT_PORTS,
    /* The paper's picture: root port 00:01.0, upstream port, a downstream port a slot. */
    DXPU_VSWITCH_SWITCH
};

typedef struct dxpu_vswitch_config {
    uint8_t topology; /* DXPU_VSWITCH_ROOT_PORTS or _SWITCH */
    uint8_t slots;    /* 1..DXPU_VSWITCH_SLOTS_MAX [8] */
    uint8_t buses;    /* bus numbers the host can reach, 0 first [32] */
    uint8_t mps_code; /* Max_Payload_Size the ports support, and come up with unless set_mps() says
                         less: 0 is 128 B, 1 256 B .. 5 [1] */
    bool power_controller; /* slots have one, and an attention button; commands then complete */
    uint16_t vendor[3], device[3]; /* ids of root, upstream, downstream ports [as QEMU's] */
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
    uint8_t dev;       /* device number on its bus */
    uint8_t slot;      /* 1.., 0 for a port without one */
    uint8_t irq_lines; /* causes whose (enabled & status) is true, for the edge that sends an MSI */
    bool msi_due;
    bool pme;                    /* PME enable and status are set */
    bool filled;                 /* a device is in the slot */
    uint8_t speed, width;        /* of the link to it */
    uint8_t mps_code;            /* with which it comes up */
    uint16_t pme_next;           /* requester of the PME that is pending */
    uint8_t cfg[DXPUI_VS_BYTES]; /* little-endian, as PCI has it */
} dxpu_vswitch_port;

/* Something the owner must do, from dxpu_vswitch_action_next(). */
enum {
    DXPU_VSWITCH_MSI = 1,  /* write data (32 bits) to address in host memory */
    DXPU_VSWITCH_RESET_ON, /* reset asserted towards the slot, filled or not: hot reset, link off */
    DXPU_VSWITCH_RESET_OFF, /* ... and released.  The two alternate; no pulse is ever lost */
    DXPU_VSWITCH_POWER_ON,  /* the slot's power controller, in the same manner */
    DXPU_VSWITCH_POWER_OFF
};
typedef struct dxpu_vswitch_action {
    uint8_t kind;
    uint8_t slot; /* 1..; of an MSI that of its port, 0 when that has none */
    uint8_t port; /* index as of dxpu_vswitch_dump() */
    uint32_t data;
    uint64_t address;
} dxpu_vswitch_action;

enum {
    DXPU_VSWITCH_VALUES_MAX = 7, /* of a device: the declaration fits into any Max_Payload_Size */
    DXPU_VSWITCH_FUNCTIONS = 8,  /* of a device that has several */
    DXPU_VSWITCH_BARS = 6
};
/* What a range of a BAR reads once its device is lost, where that is not all ones (V-49). */
typedef struct dxpu_vswitch_value {
    uint8_t function, bar;
    uint16_t bytes;    /* of the range */
    uint8_t value[4];  /* what it reads from its first byte on, over and over */
    uint64_t offset;   /* in the BAR */
    uint64_t bar_mask; /* bits of the BAR that are its address, as fit() finds them */
    bool wide;         /* the BAR has 64 bits */
} dxpu_vswitch_value;
typedef struct dxpu_vswitch_values {
    unsigned count;
    dxpu_vswitch_value value[DXPU_VSWITCH_VALUES_MAX]; /* of those that overlap the first counts */
} dxpu_vswitch_values;

/* Where software has placed a slot's device, and what is read of the one that it lost; not API. */
typedef struct dxpu_vswitch_place {
    uint32_t bar[DXPU_VSWITCH_FUNCTIONS][DXPU_VSWITCH_BARS]; /* as written last */
    uint8_t memory; /* bit n: Memory Space is enabled in function n */
    dxpu_vswitch_values lost;
    uint64_t lost_at[DXPU_VSWITCH_VALUES_MAX]; /* address of each range */
} dxpu_vswitch_place;

typedef struct dxpu_vswitch_edge {
    uint32_t now, reported, due; /* bit slot - 1: level, level last reported, an edge since */
} dxpu_vswitch_edge;

/* Holds pointers into itself: do not move or copy after init. */
typedef struct dxpu_vswitch {
    dxpu_vswitch_config cfg;
    dxpu_vswitch_port port[DXPU_VSWITCH_SLOTS_MAX + 2]; /* slots first, then root and upstream */
    unsigned ports;
    dxpu_vswitch_edge resets, power;
    /* Row slot - 1 is that slot's.  Port, buses and windows are learnt from the port's registers;
       box, path, epoch and channel are yours to set. */
    dxpu_host_table table;
    dxpu_host_entry rows[DXPU_VSWITCH_SLOTS_MAX];
    dxpu_host_window windows[2 * DXPU_VSWITCH_SLOTS_MAX];
    dxpu_vswitch_place place[DXPU_VSWITCH_SLOTS_MAX];
    uint64_t count_answered, count_forwarded, count_refused;
} dxpu_vswitch;

/* [in brackets above] */
DXPU_API void dxpu_vswitch_config_default(dxpu_vswitch_config *cfg);
/* Bring up an empty switch.  DXPU_OK or E_ARG (too few buses: N + 1 for root ports, N + 3 for a
   switch).  O(slots). */
DXPU_API int dxpu_vswitch_init(dxpu_vswitch *vs, const dxpu_vswitch_config *cfg);
/* The host was reset: every register is as after init, devices stay in their slots and are reset
   (by actions), no change is reported, interrupts not yet taken are forgotten.  O(slots). */
DXPU_API void dxpu_vswitch_reset(dxpu_vswitch *vs);

/* Where a configuration request went. */
enum {
    DXPU_VSWITCH_ANSWERED, /* *cpl is its completion; it does not leave the host */
    DXPU_VSWITCH_FORWARD /* *req goes to *slot, made type 0 when its target is the slot's own bus */
};
/* Take one decoded configuration request (type 0 or 1 alike) and look at actions afterwards.
   req   may be changed from type 1 to type 0 or back
   cpl   completion when answered; for a read that succeeded its payload points to data
   slot  1.. when forwarded, else 0
   O(slots). */
DXPU_API int dxpu_vswitch_config_request(dxpu_vswitch *vs, dxpu_tlp *req, dxpu_tlp *cpl,
                                         uint8_t data[4], uint8_t *slot);
/* Play the root for a completion with status CRS of `req`, which was forwarded to slot.  True: *cpl
   is what the host gets (CRS Software Visibility is on and this read the Vendor ID: 0xffff0001).
   False: ask the device again, until the host's time is up. */
DXPU_API bool dxpu_vswitch_crs(const dxpu_vswitch *vs, uint8_t slot, const dxpu_tlp *req,
                               dxpu_tlp *cpl, uint8_t data[4]);

/* The slot that a memory address of the host, or a BDF, leads to: 1.., 0 for none (answer
   Unsupported Request).  Only through ports that pass it on, all the way down.  O(log slots). */
DXPU_API uint8_t dxpu_vswitch_by_address(const dxpu_vswitch *vs, uint64_t address);
DXPU_API uint8_t dxpu_vswitch_by_bdf(const dxpu_vswitch *vs, uint16_t bdf);
/* Where a memory request, an atomic or a message by ID of the device in `slot` goes: 0 to the host,
   1.. to that other slot, -DXPU_CPL_UR or -DXPU_CPL_CA refused with that status (posted ones are
   dropped). */
DXPU_API int dxpu_vswitch_upstream(const dxpu_vswitch *vs, uint8_t slot, const dxpu_tlp *t);
/* May completions of the device in `slot` for another slot's go there without passing the root?
   Not with ACS P2P Completion Redirect. */
DXPU_API bool dxpu_vswitch_completes_direct(const dxpu_vswitch *vs, uint8_t slot);
/* An ERR_COR, ERR_NONFATAL, ERR_FATAL or PM_PME message came from `slot`: the root port takes it
   into its registers, an MSI may follow.  False for another message, or when a port
   above blocks it. */
DXPU_API bool dxpu_vswitch_message(dxpu_vswitch *vs, uint8_t slot, const dxpu_tlp *t);

/* Before insert(): what the port of the slot comes up with, also after resets, is this, from 128 to
   4096, or what the configuration says if that is less.  Linux gives a hot-added device its port's
   Max_Payload_Size when the device supports it, else 128: so say what the device supports.
   DXPU_OK, or E_ARG (no such slot, filled, another size). */
DXPU_API int dxpu_vswitch_set_mps(dxpu_vswitch *vs, uint8_t slot, uint32_t bytes);
/* A device is there: presence and link come up, the host is notified.  speed as Link Status (1..6),
   width in lanes; shown as at most the port's own.  DXPU_OK, or E_ARG (no such slot, filled). */
DXPU_API int dxpu_vswitch_insert(dxpu_vswitch *vs, uint8_t slot, uint8_t speed, uint8_t width);
/* It is gone (surprise removal).  DXPU_OK, or E_ARG. */
DXPU_API int dxpu_vswitch_remove(dxpu_vswitch *vs, uint8_t slot);
/* Press the attention button of a slot with a power controller.  DXPU_OK or E_ARG. */
DXPU_API int dxpu_vswitch_attention(dxpu_vswitch *vs, uint8_t slot);
/* True when the device in the slot may be talked to: filled, powered, and every link above it up
   and out of reset. */
DXPU_API bool dxpu_vswitch_link_up(const dxpu_vswitch *vs, uint8_t slot);
/* The device may master the bus: Bus Master Enable is set on every port above it. */
DXPU_API bool dxpu_vswitch_bus_master(const dxpu_vswitch *vs, uint8_t slot);
/* The smallest Max_Payload_Size of the ports above the slot, as set now: 128..4096; 0: no slot. */
DXPU_API uint32_t dxpu_vswitch_mps_bytes(const dxpu_vswitch *vs, uint8_t slot);
/* The next thing to do; false when there is none.  A slot's resets come before its interrupts. */
DXPU_API bool dxpu_vswitch_action_next(dxpu_vswitch *vs, dxpu_vswitch_action *out);
/* An MSI that cannot be sent yet: action_next() returns it again, with what is programmed then,
   unless its port may not send it any more (V-7).  Call it when action_next() has said false. */
DXPU_API void dxpu_vswitch_msi_later(dxpu_vswitch *vs, const dxpu_vswitch_action *msi);
/* Configuration space of port `index`: `bytes` from offset 0 (0: out may be NULL), for lspci -F.
   Returns the BDF, or -1 when index is past the last port. */
DXPU_API int dxpu_vswitch_dump(const dxpu_vswitch *vs, unsigned index, uint8_t *out, size_t bytes);

/* A base address register of a device. */
typedef struct dxpu_vswitch_bar {
    uint64_t bytes;    /* a power of two; 0: none */
    bool prefetchable; /* prefetchable and 64-bit; any other is in the 32-bit window */
} dxpu_vswitch_bar;
enum { DXPU_VSWITCH_BARS_MAX = 48 }; /* six of each of eight functions */
/* The window (bytes) that the slot's port holds now. */
DXPU_API uint64_t dxpu_vswitch_window_bytes(const dxpu_vswitch *vs, uint8_t slot,
                                            bool prefetchable);
/* Would a device with these BARs find room if it were inserted now?  Ask before insert(): a hot-add
   that fails costs the slot its windows, and the neighbours theirs.  Always true before the host
   has numbered the slot's bus (it then sizes for what it finds).
   root  what the host's root bus can give, non-prefetchable and prefetchable; used for root ports,
         whose windows grow; NULL: do not look
   O(slots^2), rare. */
DXPU_API bool dxpu_vswitch_fits(const dxpu_vswitch *vs, uint8_t slot, const dxpu_vswitch_bar *bars,
                                unsigned count, const dxpu_range root[2]);
/* The prefetchable window that a Linux guest must give every slot so that a device whose largest
   64-bit prefetchable BAR is this will hot-add; 0 when what it does unasked suffices. */
DXPU_API uint64_t dxpu_vswitch_slot_window(const dxpu_vswitch *vs, uint64_t largest_bar_bytes);
/* The guest's kernel parameter for that, "pci=hpmmioprefsize=64M", or "".  Returns its length, or
   E_ROOM (32 bytes always do). */
DXPU_API int dxpu_vswitch_parameter(const dxpu_vswitch *vs, uint64_t largest_bar_bytes, char *out,
                                    size_t cap);

/* Is this TLP of a device a declaration of values (V-49)?  1: it is, in place of the one before;
   0: it is another TLP; E_ARG: it is one that is malformed, and to be dropped. */
DXPU_API int dxpu_vswitch_values_decode(const dxpu_tlp *t, dxpu_vswitch_values *out);
/* Keep the ranges that lie in a memory BAR (V-50).  Returns how many do not, and are left out.
   sized  what the BARs of each function read after ones were written; 0: there is none */
DXPU_API unsigned
dxpu_vswitch_values_fit(dxpu_vswitch_values *v,
                        uint32_t sized[DXPU_VSWITCH_FUNCTIONS][DXPU_VSWITCH_BARS]);
/* `bytes` of a lost function's BAR, from `offset` on: those in a range get its value, the others
   stay as they are in data. */
DXPU_API void dxpu_vswitch_values_read(const dxpu_vswitch_values *v, unsigned function,
                                       unsigned bar, uint64_t offset, uint8_t *data, size_t bytes);
/* As dxpu_vswitch_remove() of a device that declared these, fitted: call it before what is in
   flight to the device is answered as not answered.  They count until software enables Memory
   Space in the slot's next device (V-51). */
DXPU_API int dxpu_vswitch_lose(dxpu_vswitch *vs, uint8_t slot, const dxpu_vswitch_values *v);
/* `bytes` of a read of the host that got no data, from `address` on: those in a range of a lost
   device get its value, the others stay as they are in data.  O(log slots). */
DXPU_API void dxpu_vswitch_lost_read(const dxpu_vswitch *vs, uint64_t address, uint8_t *data,
                                     size_t bytes);

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
    DXPUI_VS_BARS = 0x10, /* of a device */
    DXPUI_VS_BUSES = 0x18,
    DXPUI_VS_SECSTA = 0x1c, /* I/O base and limit, none; secondary status in the upper half */
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
    DXPUI_VS_LNKSTA = DXPUI_VS_LNKCTL + 2,
    DXPUI_VS_SLTCAP = DXPUI_VS_EXP + 0x14,
    DXPUI_VS_SLTCTL = DXPUI_VS_EXP + 0x18, /* status in the upper half */
    DXPUI_VS_SLTSTA = DXPUI_VS_SLTCTL + 2,
    DXPUI_VS_ROOTCTL = DXPUI_VS_EXP + 0x1c, /* capabilities in the upper half */
    DXPUI_VS_ROOTSTA = DXPUI_VS_EXP + 0x20,
    DXPUI_VS_DEVCAP2 = DXPUI_VS_EXP + 0x24,
    DXPUI_VS_DEVCTL2 = DXPUI_VS_EXP + 0x28,
    DXPUI_VS_LNKCAP2 = DXPUI_VS_EXP + 0x2c,
    DXPUI_VS_LNKCTL2 = DXPUI_VS_EXP + 0x30,
    DXPUI_VS_MSI = 0x80,
    DXPUI_VS_PM = 0x90,
    DXPUI_VS_PMCSR = DXPUI_VS_PM + 4,
    DXPUI_VS_PM_ENABLE = 0x0100,
    DXPUI_VS_PM_STATUS = 0x8000,
    DXPUI_VS_CAUSE_PME = 4, /* of an interrupt */
    DXPUI_VS_AER = 0x100,
    DXPUI_VS_AER_BYTES = 0x48,
    DXPUI_VS_ROOTERR_CMD = DXPUI_VS_AER + 0x2c,
    DXPUI_VS_ROOTERR = DXPUI_VS_AER + 0x30,
    DXPUI_VS_ROOTERR_ID = DXPUI_VS_AER + 0x34,
    DXPUI_VS_ACS = 0x148,
    DXPUI_VS_ACSCTL = DXPUI_VS_ACS + 6,
    /* bits */
    DXPUI_VS_MEM_SPACE = 0x0002,
    DXPUI_VS_MASTER = 0x0004,
    DXPUI_VS_BRIDGE_SERR = 0x0002, /* bridge control */
    DXPUI_VS_BUS_RESET = 0x0040,
    DXPUI_VS_LINK_DISABLE = 0x0010, /* link control */
    DXPUI_VS_LINK_RETRAIN = 0x0020,
    DXPUI_VS_LINK_ACTIVE = 0x2000, /* link status */
    DXPUI_VS_LINK_BW = 0x4000,
    DXPUI_VS_SPEED_MAX = 4, /* 16 GT/s */
    DXPUI_VS_WIDTH_MAX = 16,
    DXPUI_VS_SLT_ABP = 0x0001, /* slot status */
    DXPUI_VS_SLT_PDC = 0x0008,
    DXPUI_VS_SLT_CC = 0x0010,
    DXPUI_VS_SLT_PDS = 0x0040,
    DXPUI_VS_SLT_DLLSC = 0x0100,
    DXPUI_VS_SLTCTL_HPIE = 0x0020,
    DXPUI_VS_SLTCTL_PCC = 0x0400, /* 1: power off */
    DXPUI_VS_SLTCTL_DLLSCE = 0x1000,
    DXPUI_VS_ARI = 0x20,         /* device control 2: forwarding on */
    DXPUI_VS_CRS_VISIBLE = 0x10, /* root control */
    DXPUI_VS_ACS_SV = 0x01,
    DXPUI_VS_ACS_TB = 0x02,
    DXPUI_VS_ACS_RR = 0x04,
    DXPUI_VS_ACS_CR = 0x08,
    DXPUI_VS_ACS_DT = 0x40
};
#define DXPUI_VS_PME_STATUS  0x00010000u /* root status */
#define DXPUI_VS_PME_PENDING 0x00020000u

static uint64_t dxpui_vs_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint32_t dxpui_vs_get(const dxpu_vswitch_port *p, unsigned at)
{
    return dxpu_get_le32(p->cfg + at);
}

static void dxpui_vs_put(dxpu_vswitch_port *p, unsigned at, uint32_t value)
{
    dxpu_put_le32(p->cfg + at, value);
}

static unsigned dxpui_vs_get16(const dxpu_vswitch_port *p, unsigned at)
{
    return dxpu_get_le16(p->cfg + at);
}

static void dxpui_vs_put16(dxpu_vswitch_port *p, unsigned at, unsigned value)
{
    dxpu_put_le16(p->cfg + at, value);
}

static bool dxpui_vs_has(const dxpu_vswitch_port *p, unsigned at, unsigned bits)
{
    return (dxpui_vs_get16(p, at) & bits) != 0;
}

/* For whom a rule is: kinds of port, or properties that a port has besides. */
enum {
    DXPUI_VS_R = 1,  /* root ports */
    DXPUI_VS_U = 2,  /* upstream port */
    DXPUI_VS_D = 4,  /* downstream ports */
    DXPUI_VS_S = 8,  /* ports with a slot */
    DXPUI_VS_P = 16, /* ports with a slot with a power controller */
    DXPUI_VS_ALL = 7
};

/* One dword of configuration space that is not all read-only; several may name one dword. */
typedef struct dxpui_vs_rule {
    uint16_t at;
    uint8_t whom;
    uint32_t write; /* bits that take the value written */
    uint32_t clear; /* bits that a written 1 clears */
} dxpui_vs_rule;

static const dxpui_vs_rule dxpui_vs_rules[] = {
    { DXPUI_VS_COMMAND, DXPUI_VS_ALL, 0x00000547, 0xf9000000 },
    { 0x0c, DXPUI_VS_ALL, 0x000000ff, 0 }, /* cache line size */
    { DXPUI_VS_BUSES, DXPUI_VS_ALL, 0x00ffffff, 0 },
    { DXPUI_VS_SECSTA, DXPUI_VS_ALL, 0, 0xf9000000 },
    { DXPUI_VS_MEMORY, DXPUI_VS_ALL, 0xfff0fff0, 0 },
    { DXPUI_VS_PREF, DXPUI_VS_ALL, 0xfff0fff0, 0 },
    { DXPUI_VS_PREF_BASE_HI, DXPUI_VS_ALL, 0xffffffff, 0 },
    { DXPUI_VS_PREF_LIMIT_HI, DXPUI_VS_ALL, 0xffffffff, 0 },
    { DXPUI_VS_BRIDGE, DXPUI_VS_ALL, 0x004300ff, 0 },
    { DXPUI_VS_DEVCTL, DXPUI_VS_ALL, 0x000071ef, 0x000f0000 },
    { DXPUI_VS_LNKCTL, DXPUI_VS_ALL, 0x000000c3, 0 },
    { DXPUI_VS_LNKCTL, DXPUI_VS_R | DXPUI_VS_D, 0x00000c10, 0xc0000000 },
    { DXPUI_VS_SLTCTL, DXPUI_VS_S, 0x00001028, 0x01080000 },
    { DXPUI_VS_SLTCTL, DXPUI_VS_P, 0x000007d1, 0x00110000 },
    { DXPUI_VS_ROOTCTL, DXPUI_VS_R, 0x0000001f, 0 },
    { DXPUI_VS_ROOTSTA, DXPUI_VS_R, 0, 0x00010000 },
    { DXPUI_VS_DEVCTL2, DXPUI_VS_R, 0x00000010, 0 },
    { DXPUI_VS_DEVCTL2, DXPUI_VS_R | DXPUI_VS_D, 0x00000020, 0 },
    { DXPUI_VS_LNKCTL2, DXPUI_VS_ALL, 0x0000000f, 0 },
    { DXPUI_VS_MSI, DXPUI_VS_ALL, 0x00010000, 0 },
    { DXPUI_VS_MSI + 4, DXPUI_VS_ALL, 0xfffffffc, 0 },
    { DXPUI_VS_MSI + 8, DXPUI_VS_ALL, 0xffffffff, 0 },
    { DXPUI_VS_MSI + 12, DXPUI_VS_ALL, 0x0000ffff, 0 },
    { DXPUI_VS_PMCSR, DXPUI_VS_ALL, 0x00000103, 0x00008000 },
    { DXPUI_VS_AER + 0x04, DXPUI_VS_ALL, 0, 0x0057f010 },
    { DXPUI_VS_AER + 0x08, DXPUI_VS_ALL, 0x0057f010, 0 },
    { DXPUI_VS_AER + 0x0c, DXPUI_VS_ALL, 0x0057f010, 0 },
    { DXPUI_VS_AER + 0x04, DXPUI_VS_R | DXPUI_VS_D, 0, 0x00200000 }, /* ACS violation */
    { DXPUI_VS_AER + 0x08, DXPUI_VS_R | DXPUI_VS_D, 0x00200000, 0 },
    { DXPUI_VS_AER + 0x0c, DXPUI_VS_R | DXPUI_VS_D, 0x00200000, 0 },
    { DXPUI_VS_AER + 0x10, DXPUI_VS_ALL, 0, 0x0000f1c1 },
    { DXPUI_VS_AER + 0x14, DXPUI_VS_ALL, 0x0000f1c1, 0 },
    { DXPUI_VS_ROOTERR_CMD, DXPUI_VS_R, 0x00000007, 0 },
    { DXPUI_VS_ROOTERR, DXPUI_VS_R, 0, 0x0000007f },
    { DXPUI_VS_ACS + 4, DXPUI_VS_R | DXPUI_VS_D, 0x005f0000, 0 },
};

/* What software can do to the dword at `at`; false when nothing. */
static bool dxpui_vs_rule_at(const dxpu_vswitch *vs, const dxpu_vswitch_port *p, unsigned at,
                             uint32_t *write, uint32_t *clear)
{
    unsigned is = 1u << (p->kind - DXPUI_VS_ROOT);
    if (p->slot)
        is |= DXPUI_VS_S | (vs->cfg.power_controller ? (unsigned)DXPUI_VS_P : 0u);
    *write = *clear = 0;
    for (unsigned i = 0; i < sizeof dxpui_vs_rules / sizeof dxpui_vs_rules[0]; i++) {
        const dxpui_vs_rule *r = &dxpui_vs_rules[i];
        if (r->at == at && (r->whom & is)) {
            *write |= r->write;
            *clear |= r->clear;
        }
    }
    return (*write | *clear) != 0;
}

/* ==== 4  Ports ================================================================================ */

/* Capabilities, which never change. */
static void dxpui_vs_capabilities(const dxpu_vswitch *vs, dxpu_vswitch_port *p)
{
    bool root = p->kind == DXPUI_VS_ROOT, upstream = p->kind == DXPUI_VS_UPSTREAM;
    uint32_t slot = p->slot;
    dxpui_vs_put(p, DXPUI_VS_EXP,
                 0x8010u | 2u << 16 | (uint32_t)p->kind << 20 | (slot ? 1u << 24 : 0));
    dxpui_vs_put(p, DXPUI_VS_DEVCAP, 0x00008020u | vs->cfg.mps_code);
    /* ports of a component are numbered apart; those above a link report its state and bandwidth */
    dxpui_vs_put(p, DXPUI_VS_LNKCAP,
                 slot << 24 | (upstream ? 0x00400000u : 0x00700000u) | DXPUI_VS_WIDTH_MAX << 4 |
                     DXPUI_VS_SPEED_MAX);
    if (slot) {
        uint32_t features = vs->cfg.power_controller ? 0x0000001bu : 0x00040000u;
        dxpui_vs_put(p, DXPUI_VS_SLTCAP, slot << 19 | features | 75u << 7 | 0x60u); /* 75 W */
    }
    if (root)
        dxpui_vs_put(p, DXPUI_VS_ROOTCTL, 0x00010000); /* CRS Software Visibility can be had */
    dxpui_vs_put(p, DXPUI_VS_DEVCAP2, (root ? 0x10u : 0) | (upstream ? 0 : 0x20u));
    dxpui_vs_put(p, DXPUI_VS_LNKCAP2, 0x0000001e);
    dxpui_vs_put(p, DXPUI_VS_MSI, 0x00809005);
    dxpui_vs_put(p, DXPUI_VS_PM, 0xc8030001);
    dxpui_vs_put(p, DXPUI_VS_AER, (upstream ? 0u : (uint32_t)DXPUI_VS_ACS << 20) | 0x00020001u);
    if (!upstream) {
        dxpui_vs_put(p, DXPUI_VS_ACS, 0x0001000d);
        dxpui_vs_put(p, DXPUI_VS_ACS + 4, 0x0000005f);
    }
}

/* Registers as they come up (V-5).  A device in the slot is powered, its link up, and no change is
   shown, so that an OS that starts now does not take it for one that was exchanged. */
static void dxpui_vs_defaults(const dxpu_vswitch *vs, dxpu_vswitch_port *p)
{
    unsigned kind = (unsigned)p->kind - DXPUI_VS_ROOT;
    unsigned link = (unsigned)p->width << 4 | p->speed;
    memset(p->cfg, 0, sizeof p->cfg);
    dxpui_vs_put(p, 0x00, (uint32_t)vs->cfg.device[kind] << 16 | vs->cfg.vendor[kind]);
    dxpui_vs_put(p, DXPUI_VS_COMMAND, 0x00100000); /* capability list */
    dxpui_vs_put(p, 0x08, 0x06040001);             /* PCI bridge, normal decode */
    dxpui_vs_put(p, 0x0c, 0x00010000);             /* type 1 */
    dxpui_vs_put(p, DXPUI_VS_MEMORY, 0x0000fff0);
    dxpui_vs_put(p, DXPUI_VS_PREF, 0x0001fff1);
    dxpui_vs_put(p, 0x34, DXPUI_VS_EXP);
    dxpui_vs_capabilities(vs, p);
    dxpui_vs_put(p, DXPUI_VS_DEVCTL, 0x00002000u | (uint32_t)p->mps_code << 5);
    if (p->kind != DXPUI_VS_UPSTREAM && (!p->slot || p->filled))
        link |= DXPUI_VS_LINK_ACTIVE;
    dxpui_vs_put16(p, DXPUI_VS_LNKSTA, link);
    if (p->slot) {
        dxpui_vs_put16(p, DXPUI_VS_SLTSTA, p->filled ? DXPUI_VS_SLT_PDS : 0);
        /* indicators off, also where there are none: tools find the other codes strange */
        unsigned off = vs->cfg.power_controller && !p->filled ? DXPUI_VS_SLTCTL_PCC : 0;
        dxpui_vs_put16(p, DXPUI_VS_SLTCTL, 0x03c0u | off);
    }
    dxpui_vs_put(p, DXPUI_VS_LNKCTL2, DXPUI_VS_SPEED_MAX);
    dxpui_vs_put(p, DXPUI_VS_PMCSR, 0x00000008);      /* no soft reset */
    dxpui_vs_put(p, DXPUI_VS_AER + 0x08, 0x00400000); /* uncorrectable internal errors masked */
    dxpui_vs_put(p, DXPUI_VS_AER + 0x0c, 0x00462010);
    dxpui_vs_put(p, DXPUI_VS_AER + 0x14, 0x0000e000);
}

/* A hot reset, which leaves the sticky registers alone (V-9). */
static void dxpui_vs_hot_reset(const dxpu_vswitch *vs, dxpu_vswitch_port *p)
{
    uint8_t aer[DXPUI_VS_AER_BYTES];
    unsigned speed = dxpui_vs_get16(p, DXPUI_VS_LNKCTL2);
    unsigned pme = dxpui_vs_get16(p, DXPUI_VS_PMCSR) & 0x8100u;
    memcpy(aer, p->cfg + DXPUI_VS_AER, sizeof aer);
    dxpui_vs_defaults(vs, p);
    memcpy(p->cfg + DXPUI_VS_AER, aer, sizeof aer);
    dxpui_vs_put16(p, DXPUI_VS_LNKCTL2, speed);
    dxpui_vs_put16(p, DXPUI_VS_PMCSR, dxpui_vs_get16(p, DXPUI_VS_PMCSR) | pme);
}

static const dxpu_vswitch_port *dxpui_vs_slot_port(const dxpu_vswitch *vs, unsigned slot)
{
    return slot >= 1 && slot <= vs->cfg.slots ? &vs->port[slot - 1] : NULL;
}

static bool dxpui_vs_is_switch(const dxpu_vswitch *vs)
{
    return vs->cfg.topology == DXPU_VSWITCH_SWITCH;
}

/* Only in a switch. */
static const dxpu_vswitch_port *dxpui_vs_root(const dxpu_vswitch *vs)
{
    return &vs->port[vs->cfg.slots];
}

static const dxpu_vswitch_port *dxpui_vs_upstream(const dxpu_vswitch *vs)
{
    return &vs->port[vs->cfg.slots + 1];
}

static unsigned dxpui_vs_secondary(const dxpu_vswitch_port *p)
{
    return p->cfg[DXPUI_VS_BUSES + 1];
}

/* Bus numbers are assigned and `bus` lies behind the port. */
static bool dxpui_vs_behind(const dxpu_vswitch_port *p, unsigned bus)
{
    unsigned first = dxpui_vs_secondary(p), last = p->cfg[DXPUI_VS_BUSES + 2];
    return first != 0 && bus >= first && bus <= last;
}

/* BDF of a port; its bus is 0 while those above are not numbered. */
static uint16_t dxpui_vs_bdf_of(const dxpu_vswitch *vs, const dxpu_vswitch_port *p)
{
    unsigned bus = 0;
    if (p->kind == DXPUI_VS_UPSTREAM)
        bus = dxpui_vs_secondary(dxpui_vs_root(vs));
    else if (p->kind == DXPUI_VS_DOWNSTREAM)
        bus = dxpui_vs_secondary(dxpui_vs_upstream(vs));
    return DXPU_BDF(bus, p->dev, 0);
}

/* The port keeps what is below it in reset. */
static bool dxpui_vs_holds(const dxpu_vswitch_port *p)
{
    return dxpui_vs_has(p, DXPUI_VS_BRIDGE + 2, DXPUI_VS_BUS_RESET) ||
           dxpui_vs_has(p, DXPUI_VS_LNKCTL, DXPUI_VS_LINK_DISABLE);
}

static bool dxpui_vs_held_above(const dxpu_vswitch *vs, const dxpu_vswitch_port *p)
{
    if (p->kind == DXPUI_VS_ROOT)
        return false;
    return dxpui_vs_holds(dxpui_vs_root(vs)) ||
           (p->kind == DXPUI_VS_DOWNSTREAM && dxpui_vs_holds(dxpui_vs_upstream(vs)));
}

/* The port passes TLPs on: its own state is D0 and it holds nothing in reset. */
static bool dxpui_vs_open(const dxpu_vswitch_port *p)
{
    return !dxpui_vs_holds(p) && !dxpui_vs_has(p, DXPUI_VS_PMCSR, 3);
}

/* The ports between this one and the root complex all pass TLPs on; `needs` are command bits that
   must be set in them. */
static bool dxpui_vs_way_up(const dxpu_vswitch *vs, const dxpu_vswitch_port *p, unsigned needs)
{
    const dxpu_vswitch_port *root = dxpui_vs_root(vs), *up = root + 1;
    if (p->kind == DXPUI_VS_ROOT)
        return true;
    if (!dxpui_vs_open(root) || (dxpui_vs_get16(root, DXPUI_VS_COMMAND) & needs) != needs)
        return false;
    return p->kind == DXPUI_VS_UPSTREAM ||
           (dxpui_vs_open(up) && (dxpui_vs_get16(up, DXPUI_VS_COMMAND) & needs) == needs);
}

static bool dxpui_vs_powered(const dxpu_vswitch_port *p)
{
    return !(dxpui_vs_get(p, DXPUI_VS_SLTCAP) & 2) ||
           !dxpui_vs_has(p, DXPUI_VS_SLTCTL, DXPUI_VS_SLTCTL_PCC);
}

/* ==== 5  Status ================================================================================
   Whatever follows from presence and control registers is recomputed after each change (V-6, V-7);
   that alone takes back interrupts at a reset. */

static void dxpui_vs_level(dxpu_vswitch_edge *e, uint32_t bit, bool level)
{
    if (((e->now & bit) != 0) != level) {
        e->now ^= bit;
        e->due |= bit;
    }
}

/* The next level to report of one bit, so that ON and OFF alternate and a pulse shows as both. */
static bool dxpui_vs_report(dxpu_vswitch_edge *e, uint32_t bit)
{
    e->reported ^= bit;
    if (!((e->reported ^ e->now) & bit))
        e->due &= ~bit;
    return (e->reported & bit) != 0;
}

/* Presence, power, link disable and reset make the link; not resets further up, which hide
   the link. */
static void dxpui_vs_link_update(dxpu_vswitch_port *p)
{
    bool up = !dxpui_vs_holds(p) && (!p->slot || (p->filled && dxpui_vs_powered(p)));
    unsigned status = dxpui_vs_get16(p, DXPUI_VS_LNKSTA);
    unsigned now = up ? status | DXPUI_VS_LINK_ACTIVE : status & ~(unsigned)DXPUI_VS_LINK_ACTIVE;
    if (p->kind == DXPUI_VS_UPSTREAM || now == status)
        return;
    dxpui_vs_put16(p, DXPUI_VS_LNKSTA, now);
    if (p->slot)
        dxpui_vs_put16(p, DXPUI_VS_SLTSTA, dxpui_vs_get16(p, DXPUI_VS_SLTSTA) | DXPUI_VS_SLT_DLLSC);
}

/* Does the slot show an event that software asked to be notified of (Base Spec 6.7.3.4)? */
static bool dxpui_vs_slot_event(const dxpu_vswitch_port *p)
{
    unsigned control = dxpui_vs_get16(p, DXPUI_VS_SLTCTL);
    unsigned status = dxpui_vs_get16(p, DXPUI_VS_SLTSTA);
    return (control & status & 0x1f) ||
           ((control & DXPUI_VS_SLTCTL_DLLSCE) && (status & DXPUI_VS_SLT_DLLSC));
}

/* The causes whose enabled status is set, a bit each (Base Spec 6.7.3.4, 7.5.3.7, 6.1.6, 6.2.4) */
static unsigned dxpui_vs_causes(const dxpu_vswitch_port *p)
{
    unsigned root_status = dxpui_vs_get16(p, DXPUI_VS_ROOTERR);
    unsigned errors = (root_status & 1) | (root_status >> 4 & 2) | (root_status >> 4 & 4);
    bool event = dxpui_vs_slot_event(p) && dxpui_vs_has(p, DXPUI_VS_SLTCTL, DXPUI_VS_SLTCTL_HPIE);
    bool width =
        dxpui_vs_has(p, DXPUI_VS_LNKCTL, 0x0400) && dxpui_vs_has(p, DXPUI_VS_LNKSTA, 0x4000);
    bool pme = dxpui_vs_has(p, DXPUI_VS_ROOTCTL, 8) && dxpui_vs_has(p, DXPUI_VS_ROOTSTA + 2, 1);
    bool error = (errors & dxpui_vs_get16(p, DXPUI_VS_ROOTERR_CMD)) != 0;
    return (event ? 1u : 0) | (width ? 2u : 0) | (pme ? (unsigned)DXPUI_VS_CAUSE_PME : 0) |
           (error ? 8u : 0);
}

static void dxpui_vs_pme(dxpu_vswitch_port *root, uint16_t requester)
{
    uint32_t status = dxpui_vs_get(root, DXPUI_VS_ROOTSTA);
    if (!(status & DXPUI_VS_PME_STATUS)) {
        dxpui_vs_put(root, DXPUI_VS_ROOTSTA, DXPUI_VS_PME_STATUS | requester);
    } else if (!(status &
                 DXPUI_VS_PME_PENDING)) { /* more than one waiting: devices repeat theirs */
        root->pme_next = requester;
        dxpui_vs_put(root, DXPUI_VS_ROOTSTA, status | DXPUI_VS_PME_PENDING);
    }
}

/* V-40: an event in the slot of a port in D3hot wakes the OS by a PME of the port. */
static void dxpui_vs_wake(dxpu_vswitch *vs, dxpu_vswitch_port *p)
{
    unsigned pm = dxpui_vs_get16(p, DXPUI_VS_PMCSR);
    if ((pm & 3) && dxpui_vs_slot_event(p)) {
        pm |= DXPUI_VS_PM_STATUS;
        dxpui_vs_put16(p, DXPUI_VS_PMCSR, pm);
    }
    bool pme = (pm & DXPUI_VS_PM_STATUS) && (pm & DXPUI_VS_PM_ENABLE);
    if (pme && !p->pme)
        dxpui_vs_pme(dxpui_vs_is_switch(vs) ? &vs->port[vs->cfg.slots] : p, dxpui_vs_bdf_of(vs, p));
    p->pme = pme;
}

/* An MSI is due when a cause rises while the port can send one; one that found it shut waits.  In
   D3hot a root port sends one for a PME alone: nothing above it could. */
static void dxpui_vs_interrupt(const dxpu_vswitch *vs, dxpu_vswitch_port *p)
{
    bool can = dxpui_vs_has(p, DXPUI_VS_MSI + 2, 1) &&
               dxpui_vs_has(p, DXPUI_VS_COMMAND, DXPUI_VS_MASTER) &&
               dxpui_vs_way_up(vs, p, DXPUI_VS_MASTER);
    bool asleep = dxpui_vs_has(p, DXPUI_VS_PMCSR, 3);
    unsigned heard = asleep ? (unsigned)DXPUI_VS_CAUSE_PME : 15u;
    unsigned lines = can ? dxpui_vs_causes(p) & heard : 0;
    if (lines & ~(unsigned)p->irq_lines)
        p->msi_due = true;
    if (!can || (asleep && !lines))
        p->msi_due = false; /* its address may be gone */
    p->irq_lines = (uint8_t)lines;
}

static void dxpui_vs_settle(dxpu_vswitch *vs)
{
    for (unsigned i = 0; i < vs->ports; i++) {
        dxpu_vswitch_port *p = &vs->port[i];
        dxpui_vs_link_update(p);
        if (p->slot) {
            uint32_t bit = 1u << i;
            dxpui_vs_level(&vs->resets, bit, dxpui_vs_holds(p) || dxpui_vs_held_above(vs, p));
            if (vs->cfg.power_controller)
                dxpui_vs_level(&vs->power, bit, dxpui_vs_powered(p));
        }
        if (p->slot)
            dxpui_vs_wake(vs, p);
        dxpui_vs_interrupt(vs, p);
    }
}

static void dxpui_vs_event(dxpu_vswitch *vs, dxpu_vswitch_port *p, unsigned status)
{
    dxpui_vs_put16(p, DXPUI_VS_SLTSTA, dxpui_vs_get16(p, DXPUI_VS_SLTSTA) | status);
    dxpui_vs_settle(vs);
}

/* Show the host table one register of a port, or all that it learns from (at 0). */
static void dxpui_vs_learn(dxpu_vswitch *vs, const dxpu_vswitch_port *p, unsigned at)
{
    static const uint8_t regs[] = {
        DXPUI_VS_COMMAND, DXPUI_VS_BUSES,        DXPUI_VS_MEMORY,
        DXPUI_VS_PREF,    DXPUI_VS_PREF_BASE_HI, DXPUI_VS_PREF_LIMIT_HI
    };
    for (unsigned i = 0; i < sizeof regs && p->slot; i++) {
        if (at == 0 || at == regs[i])
            (void)dxpu_host_learn(&vs->table, p->slot - 1u, regs[i], 0xf, dxpui_vs_get(p, regs[i]));
    }
}

/* The bus of the slots' ports may have another number. */
static void dxpui_vs_renumber(dxpu_vswitch *vs)
{
    for (unsigned i = 0; i < vs->cfg.slots; i++)
        (void)dxpu_host_set_port(&vs->table, i, dxpui_vs_bdf_of(vs, &vs->port[i]));
}

/* ==== 6  Requests ============================================================================= */

/* Reset below a port of ours that has no slot: the ports there start over; presence stays. */
static void dxpui_vs_reset_below(dxpu_vswitch *vs, const dxpu_vswitch_port *p)
{
    for (unsigned i = 0; i < vs->ports; i++) {
        dxpu_vswitch_port *below = &vs->port[i];
        if (below->kind <= p->kind)
            continue;
        dxpui_vs_hot_reset(vs, below);
        dxpui_vs_learn(vs, below, 0);
    }
    dxpui_vs_renumber(vs);
}

/* The PME that waited takes the place of the one that software cleared. */
static void dxpui_vs_next_pme(dxpu_vswitch_port *p)
{
    uint32_t status = dxpui_vs_get(p, DXPUI_VS_ROOTSTA);
    if (!(status & DXPUI_VS_PME_STATUS) && (status & DXPUI_VS_PME_PENDING)) {
        /* fall and rise: the interrupt is to be seen again */
        p->irq_lines &= (uint8_t) ~(unsigned)DXPUI_VS_CAUSE_PME;
        dxpui_vs_put(p, DXPUI_VS_ROOTSTA, DXPUI_VS_PME_STATUS | p->pme_next);
    }
}

/* What a write means beyond the bits it left; `before` is the dword as it was, `wrote` what
   software wrote into the enabled bytes. */
static void dxpui_vs_wrote(dxpu_vswitch *vs, dxpu_vswitch_port *p, unsigned at, uint32_t before,
                           uint32_t wrote)
{
    uint32_t now = dxpui_vs_get(p, at), set = now & ~before;
    switch (at) {
    case DXPUI_VS_BUSES:
        dxpui_vs_renumber(vs);
        break;
    case DXPUI_VS_BRIDGE:
        if (!p->slot && (set & (uint32_t)DXPUI_VS_BUS_RESET << 16))
            dxpui_vs_reset_below(vs, p);
        break;
    case DXPUI_VS_LNKCTL:
        if (!p->slot && (set & DXPUI_VS_LINK_DISABLE))
            dxpui_vs_reset_below(vs, p);
        /* retraining is done at once; the bit itself reads as 0 */
        if ((wrote & DXPUI_VS_LINK_RETRAIN) && p->kind != DXPUI_VS_UPSTREAM &&
            dxpui_vs_has(p, DXPUI_VS_LNKSTA, DXPUI_VS_LINK_ACTIVE) && !dxpui_vs_holds(p))
            dxpui_vs_put(p, at, now | (uint32_t)DXPUI_VS_LINK_BW << 16);
        break;
    case DXPUI_VS_PMCSR:
        if ((now & 3) == 1 || (now & 3) == 2) /* states that are not there */
            dxpui_vs_put(p, at, (now & ~3u) | (before & 3));
        break;
    case DXPUI_VS_ROOTSTA:
        dxpui_vs_next_pme(p);
        break;
    default:
        break;
    }
}

static void dxpui_vs_write(dxpu_vswitch *vs, dxpu_vswitch_port *p, unsigned at, uint8_t be,
                           uint32_t value)
{
    uint32_t lanes = 0, write, clear;
    for (unsigned i = 0; i < 4; i++)
        lanes |= be >> i & 1 ? 0xffu << 8 * i : 0;
    if (!lanes || !dxpui_vs_rule_at(vs, p, at, &write, &clear))
        return;
    uint32_t before = dxpui_vs_get(p, at);
    write &= lanes;
    clear &= lanes & value;
    dxpui_vs_put(p, at, ((before & ~write) | (value & write)) & ~clear);
    dxpui_vs_wrote(vs, p, at, before, value & lanes);
    dxpui_vs_learn(vs, p, at);
    dxpui_vs_settle(vs);
    /* any write to Slot Control is a command, done at once; not so one to Slot Status alone
       (V-8) */
    if (at == DXPUI_VS_SLTCTL && (be & 3) && p->slot && vs->cfg.power_controller)
        dxpui_vs_event(vs, p, DXPUI_VS_SLT_CC);
}

/* Walk down from the root bus to a BDF: the index of the port of ours that it names, else -1; then
   *slot is the slot that it leads to, or 0. */
static int dxpui_vs_walk(const dxpu_vswitch *vs, uint16_t bdf, unsigned *slot)
{
    unsigned bus = DXPU_BDF_BUS(bdf), dev = DXPU_BDF_DEV(bdf), slots = vs->cfg.slots;
    bool single = DXPU_BDF_FN(bdf) == 0; /* our ports have function 0 only */
    *slot = 0;
    if (bus >= vs->cfg.buses)
        return -1;
    if (!dxpui_vs_is_switch(vs)) {
        if (bus == 0)
            return single && dev >= 1 && dev <= slots ? (int)dev - 1 : -1;
    } else {
        const dxpu_vswitch_port *root = dxpui_vs_root(vs), *up = dxpui_vs_upstream(vs);
        if (bus == 0)
            return single && dev == root->dev ? (int)slots : -1;
        if (!dxpui_vs_behind(root, bus) || !dxpui_vs_open(root))
            return -1;
        if (bus == dxpui_vs_secondary(root)) /* below a link stands device 0 alone */
            return single && dev == 0 ? (int)slots + 1 : -1;
        if (!dxpui_vs_behind(up, bus) || !dxpui_vs_open(up))
            return -1;
        if (bus == dxpui_vs_secondary(up))
            return single && dev < slots ? (int)dev : -1;
    }
    int row = dxpu_host_by_bdf(&vs->table, bdf);
    if (row >= 0 && dxpu_vswitch_link_up(vs, (uint8_t)(row + 1)))
        *slot = (unsigned)row + 1;
    return -1;
}

static bool dxpui_vs_is_write(const dxpu_tlp *req)
{
    return req->type == DXPU_TLP_CFGWR0 || req->type == DXPU_TLP_CFGWR1;
}

/* A port of ours answers. */
static void dxpui_vs_answer(dxpu_vswitch *vs, dxpu_vswitch_port *p, const dxpu_tlp *req,
                            dxpu_tlp *cpl, uint8_t data[4])
{
    unsigned at = req->register_bytes & 0xffcu;
    bool write = dxpui_vs_is_write(req);
    /* a poisoned write must change nothing (Base Spec 2.7.2.2) */
    bool bad = write && (req->ep || req->payload.len < 4);
    dxpu_tlp_completion(req, dxpui_vs_bdf_of(vs, p), bad ? DXPU_CPL_UR : DXPU_CPL_SC, cpl);
    vs->count_answered++;
    if (write) {
        if (!bad && at < DXPUI_VS_BYTES)
            dxpui_vs_write(vs, p, at, req->first_be, dxpu_get_le32(req->payload.ptr));
        return;
    }
    for (unsigned i = 0; i < 4; i++)
        data[i] = at < DXPUI_VS_BYTES ? p->cfg[at + i] : 0;
    cpl->payload.ptr = data;
    cpl->payload.len = 4;
}

/* Software writes a register of a slot's device that says where its memory is.  A device whose
   memory is enabled answers for itself, so what was lost before it is over (V-51). */
static void dxpui_vs_placed(dxpu_vswitch_place *place, const dxpu_tlp *req)
{
    unsigned function = DXPU_BDF_FN(req->target), at = req->register_bytes & 0xffcu;
    unsigned bar = (at - DXPUI_VS_BARS) / 4;
    if (req->ep || req->payload.len < 4)
        return;
    if (at == DXPUI_VS_COMMAND && (req->first_be & 1)) {
        place->memory &= (uint8_t) ~(1u << function);
        if (req->payload.ptr[0] & DXPUI_VS_MEM_SPACE) {
            place->memory |= (uint8_t)(1u << function);
            place->lost.count = 0;
        }
    }
    for (unsigned i = 0; bar < DXPU_VSWITCH_BARS && i < 4; i++) {
        if (req->first_be >> i & 1)
            place->bar[function][bar] = (place->bar[function][bar] & ~(0xffu << 8 * i)) |
                                        (uint32_t)req->payload.ptr[i] << 8 * i;
    }
}

DXPU_API int dxpu_vswitch_config_request(dxpu_vswitch *vs, dxpu_tlp *req, dxpu_tlp *cpl,
                                         uint8_t data[4], uint8_t *slot)
{
    unsigned s;
    int port = dxpui_vs_walk(vs, req->target, &s);
    *slot = 0;
    if (port >= 0) {
        dxpui_vs_answer(vs, &vs->port[port], req, cpl, data);
        return DXPU_VSWITCH_ANSWERED;
    }
    bool own_bus = s && DXPU_BDF_BUS(req->target) == dxpui_vs_secondary(&vs->port[s - 1]);
    bool ari = s && dxpui_vs_has(&vs->port[s - 1], DXPUI_VS_DEVCTL2, DXPUI_VS_ARI);
    if (!s || (own_bus && !ari && DXPU_BDF_DEV(req->target) != 0)) {
        dxpu_tlp_completion(req, DXPU_BDF(0, 0, 0), DXPU_CPL_UR, cpl);
        vs->count_refused++;
        return DXPU_VSWITCH_ANSWERED;
    }
    bool write = dxpui_vs_is_write(req);
    if (own_bus)
        req->type = write ? (uint8_t)DXPU_TLP_CFGWR0 : (uint8_t)DXPU_TLP_CFGRD0;
    else
        req->type = write ? (uint8_t)DXPU_TLP_CFGWR1 : (uint8_t)DXPU_TLP_CFGRD1;
    if (own_bus && write && DXPU_BDF_DEV(req->target) == 0)
        dxpui_vs_placed(&vs->place[s - 1], req);
    *slot = (uint8_t)s;
    vs->count_forwarded++;
    return DXPU_VSWITCH_FORWARD;
}

/* The root port above a slot. */
static const dxpu_vswitch_port *dxpui_vs_root_of(const dxpu_vswitch *vs, unsigned slot)
{
    return dxpui_vs_is_switch(vs) ? dxpui_vs_root(vs) : dxpui_vs_slot_port(vs, slot);
}

DXPU_API bool dxpu_vswitch_crs(const dxpu_vswitch *vs, uint8_t slot, const dxpu_tlp *req,
                               dxpu_tlp *cpl, uint8_t data[4])
{
    static const uint8_t shown[4] = { 0x01, 0x00, 0xff, 0xff };
    if (!dxpui_vs_slot_port(vs, slot) || dxpui_vs_is_write(req) || req->register_bytes != 0 ||
        (req->first_be & 3) != 3 ||
        !dxpui_vs_has(dxpui_vs_root_of(vs, slot), DXPUI_VS_ROOTCTL, DXPUI_VS_CRS_VISIBLE))
        return false;
    dxpu_tlp_completion(req, req->target, DXPU_CPL_SC, cpl);
    memcpy(data, shown, 4);
    cpl->payload.ptr = data;
    cpl->payload.len = 4;
    return true;
}

/* ==== 7  Slots ================================================================================ */

DXPU_API void dxpu_vswitch_config_default(dxpu_vswitch_config *cfg)
{
    static const uint16_t vendor[3] = { 0x1b36, 0x104c, 0x104c };
    static const uint16_t device[3] = { 0x000c, 0x8232, 0x8233 };
    memset(cfg, 0, sizeof *cfg);
    cfg->topology = DXPU_VSWITCH_ROOT_PORTS;
    cfg->slots = DXPU_VSWITCH_SLOTS_MAX < 8 ? DXPU_VSWITCH_SLOTS_MAX : 8;
    cfg->buses = 32;
    cfg->mps_code = 1;
    memcpy(cfg->vendor, vendor, sizeof vendor);
    memcpy(cfg->device, device, sizeof device);
}

static void dxpui_vs_port_init(dxpu_vswitch *vs, unsigned index, unsigned kind, unsigned dev,
                               unsigned slot)
{
    dxpu_vswitch_port *p = &vs->port[index];
    p->kind = (uint8_t)kind;
    p->dev = (uint8_t)dev;
    p->slot = (uint8_t)slot;
    p->speed = slot ? 1 : DXPUI_VS_SPEED_MAX;
    p->width = slot ? 1 : DXPUI_VS_WIDTH_MAX;
    p->mps_code = vs->cfg.mps_code;
    dxpui_vs_defaults(vs, p);
}

DXPU_API int dxpu_vswitch_init(dxpu_vswitch *vs, const dxpu_vswitch_config *cfg)
{
    bool is_switch = cfg->topology == DXPU_VSWITCH_SWITCH;
    unsigned buses = cfg->slots + (is_switch ? 3u : 1u);
    dxpu_host_entry row;
    if (cfg->slots < 1 || cfg->slots > DXPU_VSWITCH_SLOTS_MAX || cfg->buses < buses ||
        cfg->topology > DXPU_VSWITCH_SWITCH || cfg->mps_code > 5)
        return DXPU_E_ARG;
    memset(vs, 0, sizeof *vs);
    memset(&row, 0, sizeof row);
    row.box.function = DXPU_FUNCTION_ALL;
    vs->cfg = *cfg;
    (void)dxpu_host_init(&vs->table, vs->rows, vs->windows, cfg->slots);
    for (unsigned i = 0; i < cfg->slots; i++) {
        if (is_switch)
            dxpui_vs_port_init(vs, i, DXPUI_VS_DOWNSTREAM, i, i + 1);
        else
            dxpui_vs_port_init(vs, i, DXPUI_VS_ROOT, i + 1, i + 1);
        (void)dxpu_host_add(&vs->table, &row);
        dxpui_vs_learn(vs, &vs->port[i], 0);
    }
    vs->ports = cfg->slots;
    if (is_switch) {
        dxpui_vs_port_init(vs, vs->ports++, DXPUI_VS_ROOT, 1, 0);
        dxpui_vs_port_init(vs, vs->ports++, DXPUI_VS_UPSTREAM, 0, 0);
    }
    dxpui_vs_renumber(vs);
    return DXPU_OK;
}

DXPU_API void dxpu_vswitch_reset(dxpu_vswitch *vs)
{
    for (unsigned i = 0; i < vs->ports; i++) {
        dxpu_vswitch_port *p = &vs->port[i];
        dxpui_vs_defaults(vs, p);
        dxpui_vs_learn(vs, p, 0);
        if (p->filled) /* a pulse, also for one that was held before */
            vs->resets.due |= 1u << i;
    }
    memset(vs->place, 0, sizeof vs->place);
    dxpui_vs_renumber(vs);
    dxpui_vs_settle(vs);
}

DXPU_API int dxpu_vswitch_insert(dxpu_vswitch *vs, uint8_t slot, uint8_t speed, uint8_t width)
{
    if (!dxpui_vs_slot_port(vs, slot) || vs->port[slot - 1].filled || speed < 1 || speed > 6 ||
        width < 1 || width > 32)
        return DXPU_E_ARG;
    dxpu_vswitch_port *p = &vs->port[slot - 1];
    p->filled = true;
    memset(vs->place[slot - 1].bar, 0, sizeof vs->place[slot - 1].bar);
    vs->place[slot - 1].memory = 0; /* what is read of the one before stays */
    p->speed = (uint8_t)dxpui_vs_min(speed, DXPUI_VS_SPEED_MAX);
    p->width = (uint8_t)dxpui_vs_min(width, DXPUI_VS_WIDTH_MAX);
    unsigned status = dxpui_vs_get16(p, DXPUI_VS_LNKSTA) & ~0x03ffu;
    dxpui_vs_put16(p, DXPUI_VS_LNKSTA, status | p->speed | (unsigned)p->width << 4);
    dxpui_vs_event(vs, p, DXPUI_VS_SLT_PDS | DXPUI_VS_SLT_PDC);
    return DXPU_OK;
}

DXPU_API int dxpu_vswitch_set_mps(dxpu_vswitch *vs, uint8_t slot, uint32_t bytes)
{
    unsigned code = 0;
    if (!dxpui_vs_slot_port(vs, slot) || vs->port[slot - 1].filled)
        return DXPU_E_ARG;
    while (code < 5 && 128u << code < bytes)
        code++;
    if (128u << code != bytes)
        return DXPU_E_ARG;
    dxpu_vswitch_port *p = &vs->port[slot - 1];
    p->mps_code = (uint8_t)dxpui_vs_min(code, vs->cfg.mps_code);
    unsigned control = dxpui_vs_get16(p, DXPUI_VS_DEVCTL) & ~0xe0u;
    dxpui_vs_put16(p, DXPUI_VS_DEVCTL, control | (unsigned)p->mps_code << 5);
    return DXPU_OK;
}

DXPU_API int dxpu_vswitch_remove(dxpu_vswitch *vs, uint8_t slot)
{
    if (!dxpui_vs_slot_port(vs, slot) || !vs->port[slot - 1].filled)
        return DXPU_E_ARG;
    dxpu_vswitch_port *p = &vs->port[slot - 1];
    p->filled = false;
    p->speed = p->width = 1;
    unsigned status = dxpui_vs_get16(p, DXPUI_VS_SLTSTA) & ~(unsigned)DXPUI_VS_SLT_PDS;
    dxpui_vs_put16(p, DXPUI_VS_SLTSTA, status);
    dxpui_vs_event(vs, p, DXPUI_VS_SLT_PDC);
    return DXPU_OK;
}

DXPU_API int dxpu_vswitch_attention(dxpu_vswitch *vs, uint8_t slot)
{
    if (!dxpui_vs_slot_port(vs, slot) || !vs->cfg.power_controller)
        return DXPU_E_ARG;
    dxpui_vs_event(vs, &vs->port[slot - 1], DXPUI_VS_SLT_ABP);
    return DXPU_OK;
}

DXPU_API bool dxpu_vswitch_link_up(const dxpu_vswitch *vs, uint8_t slot)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    return p && p->filled && dxpui_vs_powered(p) && dxpui_vs_open(p) && dxpui_vs_way_up(vs, p, 0);
}

DXPU_API bool dxpu_vswitch_action_next(dxpu_vswitch *vs, dxpu_vswitch_action *out)
{
    memset(out, 0, sizeof *out);
    for (unsigned i = 0; i < vs->ports; i++) {
        dxpu_vswitch_port *p = &vs->port[i];
        uint32_t bit = p->slot ? 1u << i : 0;
        out->slot = p->slot;
        out->port = (uint8_t)i;
        if (vs->power.due & bit) {
            out->kind = dxpui_vs_report(&vs->power, bit) ? (uint8_t)DXPU_VSWITCH_POWER_ON
                                                         : (uint8_t)DXPU_VSWITCH_POWER_OFF;
            return true;
        }
        if (vs->resets.due & bit) {
            out->kind = dxpui_vs_report(&vs->resets, bit) ? (uint8_t)DXPU_VSWITCH_RESET_ON
                                                          : (uint8_t)DXPU_VSWITCH_RESET_OFF;
            return true;
        }
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

DXPU_API void dxpu_vswitch_msi_later(dxpu_vswitch *vs, const dxpu_vswitch_action *msi)
{
    if (msi->kind != DXPU_VSWITCH_MSI || msi->port >= vs->ports)
        return;
    vs->port[msi->port].msi_due = true;
    dxpui_vs_interrupt(vs, &vs->port[msi->port]);
}

DXPU_API int dxpu_vswitch_dump(const dxpu_vswitch *vs, unsigned index, uint8_t *out, size_t bytes)
{
    if (index >= vs->ports)
        return -1;
    for (size_t i = 0; i < bytes; i++)
        out[i] = i < DXPUI_VS_BYTES ? vs->port[index].cfg[i] : 0;
    return dxpui_vs_bdf_of(vs, &vs->port[index]);
}

/* ==== 8  Routing ============================================================================== */

/* A window of a port, whether Memory Space is on or not; empty while base > limit. */
static dxpu_range dxpui_vs_window(const dxpu_vswitch_port *p, bool prefetchable)
{
    uint32_t reg = dxpui_vs_get(p, prefetchable ? DXPUI_VS_PREF : DXPUI_VS_MEMORY);
    dxpu_range r;
    r.base = (uint64_t)(reg & 0xfff0u) << 16;
    r.limit = (reg & 0xfff00000u) | 0xfffffu;
    if (prefetchable) {
        r.base |= (uint64_t)dxpui_vs_get(p, DXPUI_VS_PREF_BASE_HI) << 32;
        r.limit |= (uint64_t)dxpui_vs_get(p, DXPUI_VS_PREF_LIMIT_HI) << 32;
    }
    return r;
}

/* A port above the slots passes the address down: Memory Space on, inside one of its windows. */
static bool dxpui_vs_passes(const dxpu_vswitch_port *p, uint64_t address)
{
    dxpu_range memory = dxpui_vs_window(p, false), pref = dxpui_vs_window(p, true);
    return dxpui_vs_has(p, DXPUI_VS_COMMAND, DXPUI_VS_MEM_SPACE) &&
           ((address >= memory.base && address <= memory.limit) ||
            (address >= pref.base && address <= pref.limit));
}

/* The row whose port gets this address of the host, whatever is in its slot; -1: none. */
static int dxpui_vs_row_of(const dxpu_vswitch *vs, uint64_t address)
{
    int row = dxpu_host_by_address(&vs->table, address);
    if (row >= 0 && dxpui_vs_is_switch(vs) &&
        (!dxpui_vs_passes(dxpui_vs_root(vs), address) ||
         !dxpui_vs_passes(dxpui_vs_upstream(vs), address)))
        return -1;
    return row;
}

DXPU_API uint8_t dxpu_vswitch_by_address(const dxpu_vswitch *vs, uint64_t address)
{
    int row = dxpui_vs_row_of(vs, address);
    return row >= 0 && dxpu_vswitch_link_up(vs, (uint8_t)(row + 1)) ? (uint8_t)(row + 1) : 0;
}

DXPU_API uint8_t dxpu_vswitch_by_bdf(const dxpu_vswitch *vs, uint16_t bdf)
{
    unsigned slot;
    (void)dxpui_vs_walk(vs, bdf, &slot);
    return (uint8_t)slot;
}

DXPU_API bool dxpu_vswitch_bus_master(const dxpu_vswitch *vs, uint8_t slot)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    return p && dxpui_vs_has(p, DXPUI_VS_COMMAND, DXPUI_VS_MASTER) &&
           dxpui_vs_way_up(vs, p, DXPUI_VS_MASTER);
}

/* No port asks for Bus Master Enable here: a message but for an interrupt is not DMA.  What Request
   Redirect sends to the root ends there. */
static int dxpui_vs_by_id(const dxpu_vswitch *vs, const dxpu_vswitch_port *p, uint8_t slot,
                          const dxpu_tlp *t)
{
    unsigned acs = dxpui_vs_get16(p, DXPUI_VS_ACSCTL);
    uint8_t to = dxpu_vswitch_by_bdf(vs, t->target);
    if ((acs & DXPUI_VS_ACS_SV) && !dxpui_vs_behind(p, DXPU_BDF_BUS(t->requester)))
        return -DXPU_CPL_CA;
    if (to == slot)
        return -DXPU_CPL_UR;
    return dxpu_vswitch_link_up(vs, to) && !(acs & DXPUI_VS_ACS_RR) ? to : 0;
}

DXPU_API int dxpu_vswitch_upstream(const dxpu_vswitch *vs, uint8_t slot, const dxpu_tlp *t)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    if (p && dxpu_vswitch_link_up(vs, slot) &&
        (t->type == DXPU_TLP_MSG || t->type == DXPU_TLP_MSGD))
        return dxpui_vs_by_id(vs, p, slot, t);
    if (!p || !dxpu_vswitch_link_up(vs, slot) ||
        !dxpui_vs_has(p, DXPUI_VS_COMMAND, DXPUI_VS_MASTER))
        return -DXPU_CPL_UR;
    unsigned acs = dxpui_vs_get16(p, DXPUI_VS_ACSCTL);
    bool translated = t->at == 2;
    if ((acs & DXPUI_VS_ACS_SV) && !dxpui_vs_behind(p, DXPU_BDF_BUS(t->requester)))
        return -DXPU_CPL_CA;
    if ((acs & DXPUI_VS_ACS_TB) && t->at != 0)
        return -DXPU_CPL_CA;
    int row = dxpu_host_by_address(&vs->table, t->address);
    if (row + 1 == slot) /* a port sends nothing back where it came from */
        return -DXPU_CPL_UR;
    if (row >= 0 && (!(acs & DXPUI_VS_ACS_RR) || ((acs & DXPUI_VS_ACS_DT) && translated)))
        return dxpu_vswitch_link_up(vs, (uint8_t)(row + 1)) ? row + 1 : -DXPU_CPL_UR;
    /* the upstream port sends nothing up that it would send down again */
    if (row < 0 && dxpui_vs_is_switch(vs) && dxpui_vs_passes(dxpui_vs_upstream(vs), t->address))
        return -DXPU_CPL_UR;
    return dxpu_vswitch_bus_master(vs, slot) ? 0 : -DXPU_CPL_UR;
}

DXPU_API bool dxpu_vswitch_completes_direct(const dxpu_vswitch *vs, uint8_t slot)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    return p && dxpu_vswitch_link_up(vs, slot) &&
           !(dxpui_vs_get16(p, DXPUI_VS_ACSCTL) & DXPUI_VS_ACS_CR);
}

/* An error message reaches the root port's error registers (Base Spec 6.2.6, 7.8.4.10). */
static void dxpui_vs_root_error(dxpu_vswitch_port *root, unsigned code, uint16_t requester)
{
    uint32_t status = dxpui_vs_get(root, DXPUI_VS_ROOTERR);
    if (code == 0x30) {
        if (!(status & 1))
            dxpui_vs_put16(root, DXPUI_VS_ROOTERR_ID, requester);
        status |= status & 1 ? 2u : 1u;
    } else {
        bool fatal = code == 0x33;
        if (!(status & 4)) {
            dxpui_vs_put16(root, DXPUI_VS_ROOTERR_ID + 2, requester);
            status |= fatal ? 0x10u : 0;
        }
        status |= (status & 4 ? 8u : 4u) | (fatal ? 0x40u : 0x20u);
    }
    dxpui_vs_put(root, DXPUI_VS_ROOTERR, status);
}

DXPU_API bool dxpu_vswitch_message(dxpu_vswitch *vs, uint8_t slot, const dxpu_tlp *t)
{
    unsigned code = t->message_code;
    bool error = code == 0x30 || code == 0x31 || code == 0x33;
    if (!dxpu_vswitch_link_up(vs, slot) || t->type != DXPU_TLP_MSG || (!error && code != 0x18))
        return false;
    unsigned index = dxpui_vs_is_switch(vs) ? vs->cfg.slots : slot - 1u;
    if (code == 0x18) {
        dxpui_vs_pme(&vs->port[index], t->requester);
    } else {
        dxpu_vswitch_port *path[3] = { &vs->port[slot - 1], &vs->port[index], &vs->port[index] };
        if (dxpui_vs_is_switch(vs))
            path[1] = &vs->port[index + 1];
        for (unsigned i = 0; i < 3; i++) { /* a bridge forwards errors only when enabled to */
            if (!dxpui_vs_has(path[i], DXPUI_VS_BRIDGE + 2, DXPUI_VS_BRIDGE_SERR))
                return false;
        }
        for (unsigned i = 0; i < 3 && code != 0x30; i++) /* received system error */
            dxpui_vs_put16(path[i], DXPUI_VS_SECSTA + 2,
                           dxpui_vs_get16(path[i], DXPUI_VS_SECSTA + 2) | 0x4000u);
        dxpui_vs_root_error(&vs->port[index], code, t->requester);
    }
    dxpui_vs_settle(vs);
    return true;
}

DXPU_API uint32_t dxpu_vswitch_mps_bytes(const dxpu_vswitch *vs, uint8_t slot)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    uint32_t least = 4096;
    for (unsigned i = 0; p && i < vs->ports; i++) {
        const dxpu_vswitch_port *q = &vs->port[i];
        unsigned code = dxpui_vs_get16(q, DXPUI_VS_DEVCTL) >> 5 & 7;
        if ((q == p || !q->slot) && code <= 5 && 128u << code < least)
            least = 128u << code;
    }
    return p ? least : 0;
}

/* ==== 9  Windows ============================================================================== */

DXPU_API uint64_t dxpu_vswitch_window_bytes(const dxpu_vswitch *vs, uint8_t slot, bool prefetchable)
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    if (!p)
        return 0;
    dxpu_range r = dxpui_vs_window(p, prefetchable);
    return r.base > r.limit ? 0 : r.limit - r.base + 1;
}

/* The lowest place in `window` for `bytes`, aligned, clear of taken[count]; added to taken. */
static bool dxpui_vs_place(dxpu_range window, uint64_t bytes, uint64_t align, dxpu_range *taken,
                           unsigned *count)
{
    uint64_t at = window.base;
    for (bool moved = true; moved;) {
        uint64_t up = (at + (align - 1)) & ~(align - 1);
        if (up < at || up > window.limit || window.limit - up < bytes - 1)
            return false;
        at = up;
        moved = false;
        for (unsigned i = 0; i < *count && !moved; i++) {
            if (taken[i].base <= at + (bytes - 1) && at <= taken[i].limit) {
                moved = true;
                at = taken[i].limit + 1;
                if (at == 0)
                    return false;
            }
        }
    }
    taken[*count].base = at;
    taken[(*count)++].limit = at + (bytes - 1);
    return true;
}

/* All BARs of one kind, largest first as Linux does it, find places in the window. */
static bool dxpui_vs_holds_bars(dxpu_range window, const dxpu_vswitch_bar *bars, unsigned count,
                                bool prefetchable)
{
    dxpu_range taken[DXPU_VSWITCH_BARS_MAX];
    unsigned used = 0;
    for (uint64_t bytes = (uint64_t)1 << 63; bytes; bytes >>= 1) {
        for (unsigned i = 0; i < count; i++) {
            if (bars[i].bytes == bytes && bars[i].prefetchable == prefetchable &&
                (window.base > window.limit || !dxpui_vs_place(window, bytes, bytes, taken, &used)))
                return false;
        }
    }
    return true;
}

/* A window for these BARs fits into what the root has beside the other slots' windows. */
static bool dxpui_vs_grows(const dxpu_vswitch *vs, unsigned slot, const dxpu_vswitch_bar *bars,
                           unsigned count, bool prefetchable, dxpu_range root)
{
    dxpu_range taken[2 * DXPU_VSWITCH_SLOTS_MAX + 1];
    unsigned used = 0;
    uint64_t sum = 0, align = 0x100000;
    for (unsigned i = 0; i < count; i++) {
        if (bars[i].prefetchable != prefetchable)
            continue;
        if (sum + bars[i].bytes < sum)
            return false;
        sum += bars[i].bytes;
        align = bars[i].bytes > align ? bars[i].bytes : align;
    }
    sum = (sum + 0xfffff) & ~(uint64_t)0xfffff;
    for (unsigned i = 0; i < vs->table.window_count; i++) {
        if (vs->table.windows[i].entry != slot - 1)
            taken[used++] = vs->table.windows[i].range;
    }
    return sum == 0 || (root.base <= root.limit && dxpui_vs_place(root, sum, align, taken, &used));
}

/* Linux gives a 64-bit prefetchable BAR for which that window has no place one in the other window,
   and then grows neither: what was to be there finds no place. */
static bool dxpui_vs_crowds(const dxpu_vswitch_port *p, const dxpu_vswitch_bar *bars,
                            unsigned count)
{
    dxpu_vswitch_bar all[DXPU_VSWITCH_BARS_MAX];
    dxpu_range window = dxpui_vs_window(p, false);
    unsigned moved = count;
    if (count == 0 || dxpui_vs_holds_bars(dxpui_vs_window(p, true), bars, count, true))
        return false;
    memcpy(all, bars, count * sizeof *all);
    for (unsigned i = 0; i < count; i++) {
        dxpu_vswitch_bar one = { bars[i].bytes, false };
        if (bars[i].prefetchable && dxpui_vs_holds_bars(window, &one, 1, false) &&
            (moved == count || one.bytes > bars[moved].bytes))
            moved = i;
    }
    if (moved < count)
        all[moved].prefetchable = false;
    return moved < count && !dxpui_vs_holds_bars(window, all, count, false);
}

DXPU_API bool dxpu_vswitch_fits(const dxpu_vswitch *vs, uint8_t slot, const dxpu_vswitch_bar *bars,
                                unsigned count, const dxpu_range root[2])
{
    const dxpu_vswitch_port *p = dxpui_vs_slot_port(vs, slot);
    if (!p || count > DXPU_VSWITCH_BARS_MAX)
        return false;
    for (unsigned i = 0; i < count; i++) {
        if (bars[i].bytes & (bars[i].bytes - 1))
            return false; /* not a BAR */
    }
    if (dxpui_vs_secondary(p) == 0)
        return true;
    bool ports = !dxpui_vs_is_switch(vs);
    if (dxpui_vs_crowds(p, bars, count))
        return false;
    if (!dxpui_vs_holds_bars(dxpui_vs_window(p, false), bars, count, false) &&
        !(ports && (!root || dxpui_vs_grows(vs, slot, bars, count, false, root[0]))))
        return false;
    return dxpui_vs_holds_bars(dxpui_vs_window(p, true), bars, count, true) ||
           (ports && (!root || dxpui_vs_grows(vs, slot, bars, count, true, root[1]) ||
                      dxpui_vs_grows(vs, slot, bars, count, true, root[0])));
}

DXPU_API uint64_t dxpu_vswitch_slot_window(const dxpu_vswitch *vs, uint64_t largest_bar_bytes)
{
    uint64_t window = 0x4000000; /* 64 MB: room for small neighbours too */
    /* Linux gives each slot 2 MB, on a boundary of 1 MB only; root ports' windows grow, but for a
       BAR that has a place in the other window */
    if (largest_bar_bytes <= 0x100000 || (!dxpui_vs_is_switch(vs) && largest_bar_bytes > 0x200000))
        return 0;
    while (window / 2 < largest_bar_bytes && window < (uint64_t)1 << 62)
        window *= 2;
    return window;
}

DXPU_API int dxpu_vswitch_parameter(const dxpu_vswitch *vs, uint64_t largest_bar_bytes, char *out,
                                    size_t cap)
{
    static const char name[] = "pci=hpmmioprefsize=";
    uint64_t window = dxpu_vswitch_slot_window(vs, largest_bar_bytes);
    char digits[12];
    unsigned n = 0, len = 0;
    char unit = 'M';
    if (cap < 1 || (window && cap < 32))
        return DXPU_E_ROOM;
    if (window) {
        memcpy(out, name, sizeof name - 1);
        len = (unsigned)sizeof name - 1;
        window >>= 20;
        if (window >= 1024) {
            window >>= 10;
            unit = 'G';
        }
        for (; window; window /= 10)
            digits[n++] = (char)('0' + window % 10);
        while (n)
            out[len++] = digits[--n];
        out[len++] = unit;
    }
    out[len] = '\0';
    return (int)len;
}

/* ==== 10  Values of what is gone ============================================= V-49 to V-51 === */

enum {
    DXPUI_VS_VENDOR_TYPE_1 = 0x7f, /* message code: one that does not know it drops it */
    DXPUI_VS_NO_VENDOR = 0xffff,
    DXPUI_VS_VALUES = 1, /* kind of such a message */
    DXPUI_VS_VALUES_HEAD = 4,
    DXPUI_VS_VALUE_BYTES = 16,
    DXPUI_VS_BAR_IO = 1,
    DXPUI_VS_BAR_TYPE = 6,
    DXPUI_VS_BAR_WIDE = 4
};
#define DXPUI_VS_NAME 0x64787075u /* "dxpu" */

DXPU_API int dxpu_vswitch_values_decode(const dxpu_tlp *t, dxpu_vswitch_values *out)
{
    const uint8_t *p = t->payload.ptr;
    memset(out, 0, sizeof *out);
    if (t->type != DXPU_TLP_MSGD || t->message_code != DXPUI_VS_VENDOR_TYPE_1 ||
        t->message_routing != DXPU_MSG_TO_ROOT || t->message_dw[0] != DXPUI_VS_NO_VENDOR ||
        t->message_dw[1] != DXPUI_VS_NAME || t->payload.len < DXPUI_VS_VALUES_HEAD ||
        p[0] != DXPUI_VS_VALUES)
        return 0;
    if (t->ep || p[1] > DXPU_VSWITCH_VALUES_MAX ||
        t->payload.len < DXPUI_VS_VALUES_HEAD + (size_t)p[1] * DXPUI_VS_VALUE_BYTES)
        return DXPU_E_ARG;
    out->count = p[1];
    p += DXPUI_VS_VALUES_HEAD;
    for (unsigned i = 0; i < out->count; i++, p += DXPUI_VS_VALUE_BYTES) {
        dxpu_vswitch_value *v = &out->value[i];
        v->function = p[0];
        v->bar = p[1];
        v->bytes = dxpu_get_be16(p + 2);
        memcpy(v->value, p + 4, sizeof v->value);
        v->offset = dxpu_get_be64(p + 8);
    }
    return 1;
}

/* The bits of a BAR that are its address; 0: it is no memory BAR, or the upper half of one. */
static uint64_t dxpui_vs_bar_mask(const uint32_t sized[DXPU_VSWITCH_BARS], unsigned bar, bool *wide)
{
    uint32_t low = sized[bar] & ~(uint32_t)0xf;
    unsigned i = 0;
    while (i < bar) {
        *wide = (sized[i] & (DXPUI_VS_BAR_IO | DXPUI_VS_BAR_TYPE)) == DXPUI_VS_BAR_WIDE;
        i += *wide ? 2 : 1;
    }
    *wide = (sized[bar] & DXPUI_VS_BAR_TYPE) == DXPUI_VS_BAR_WIDE && bar + 1 < DXPU_VSWITCH_BARS;
    if (i > bar || (sized[bar] & DXPUI_VS_BAR_IO))
        return 0;
    return *wide ? (uint64_t)sized[bar + 1] << 32 | low : low ? 0xffffffff00000000u | low : 0;
}

static bool dxpui_vs_value_fits(dxpu_vswitch_value *v,
                                uint32_t sized[DXPU_VSWITCH_FUNCTIONS][DXPU_VSWITCH_BARS])
{
    uint64_t bytes;
    if (v->function >= DXPU_VSWITCH_FUNCTIONS || v->bar >= DXPU_VSWITCH_BARS || !v->bytes)
        return false;
    v->bar_mask = dxpui_vs_bar_mask(sized[v->function], v->bar, &v->wide);
    bytes = ~v->bar_mask + 1;
    return v->bar_mask && !(bytes & (bytes - 1)) && v->offset <= bytes &&
           v->bytes <= bytes - v->offset;
}

DXPU_API unsigned dxpu_vswitch_values_fit(dxpu_vswitch_values *v,
                                          uint32_t sized[DXPU_VSWITCH_FUNCTIONS][DXPU_VSWITCH_BARS])
{
    unsigned kept = 0, all = v->count;
    for (unsigned i = 0; i < all; i++) {
        if (dxpui_vs_value_fits(&v->value[i], sized))
            v->value[kept++] = v->value[i];
    }
    v->count = kept;
    return all - kept;
}

/* What of `bytes` from `at` on is in the range from `start` on. */
static void dxpui_vs_value_read(const dxpu_vswitch_value *v, uint64_t start, uint64_t at,
                                uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint64_t in = at + i - start; /* before it: huge */
        if (in < v->bytes)
            data[i] = v->value[in % sizeof v->value];
    }
}

DXPU_API void dxpu_vswitch_values_read(const dxpu_vswitch_values *v, unsigned function,
                                       unsigned bar, uint64_t offset, uint8_t *data, size_t bytes)
{
    for (unsigned i = v->count; i-- > 0;) {
        const dxpu_vswitch_value *r = &v->value[i];
        if (r->function == function && r->bar == bar)
            dxpui_vs_value_read(r, r->offset, offset, data, bytes);
    }
}

/* Where software placed the range. */
static uint64_t dxpui_vs_value_address(const dxpu_vswitch_place *place, const dxpu_vswitch_value *v)
{
    const uint32_t *bar = place->bar[v->function];
    uint64_t address = bar[v->bar];
    if (v->wide)
        address |= (uint64_t)bar[v->bar + 1] << 32;
    return (address & v->bar_mask) + v->offset;
}

/* Software reads nothing of a device that it had not enabled; of the one before it may. */
DXPU_API int dxpu_vswitch_lose(dxpu_vswitch *vs, uint8_t slot, const dxpu_vswitch_values *v)
{
    int rc = dxpu_vswitch_remove(vs, slot);
    if (rc != DXPU_OK || !vs->place[slot - 1].memory)
        return rc;
    dxpu_vswitch_place *place = &vs->place[slot - 1];
    place->lost.count = 0;
    for (unsigned i = 0; i < v->count; i++) {
        if (!(place->memory >> v->value[i].function & 1))
            continue;
        place->lost_at[place->lost.count] = dxpui_vs_value_address(place, &v->value[i]);
        place->lost.value[place->lost.count++] = v->value[i];
    }
    return DXPU_OK;
}

DXPU_API void dxpu_vswitch_lost_read(const dxpu_vswitch *vs, uint64_t address, uint8_t *data,
                                     size_t bytes)
{
    int row = dxpui_vs_row_of(vs, address);
    const dxpu_vswitch_place *place = row < 0 ? NULL : &vs->place[row];
    for (unsigned i = place ? place->lost.count : 0; i-- > 0;)
        dxpui_vs_value_read(&place->lost.value[i], place->lost_at[i], address, data, bytes);
}

#ifdef __cplusplus
}
#endif
#endif /* DXPU_VSWITCH_IMPLEMENTATION */
