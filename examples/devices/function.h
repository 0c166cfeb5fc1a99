/* function.h - a function that masters the bus: DMA with tags, MSI, MSI-X, power states
   SPDX-License-Identifier: MIT

   Beside the header and PCI Express of pci.h: power management (Base Spec 7.5.2), MSI (7.7.1) and
   MSI-X (7.7.2); requests of the function's own split at Max_Payload_Size and
   Max_Read_Request_Size, with as many tags as software allows.  The owner calls fn_tlp() for every
   TLP and does the memory requests that this gives back. */
#ifndef FUNCTION_H_INCLUDED
#define FUNCTION_H_INCLUDED

#include "dxpu_push.h"
#include "pci.h"

/* ==== 1  Settings ============================================================================= */

enum {
    FN_TAGS = 256,
    FN_MSIX_MAX = 128, /* vectors */
    FN_PAGE_BYTES = 4096,
    FN_LOCAL_TURN = 256, /* accesses of the owner's own memory in a turn, of 4 KB at most */

    FN_CAP_PM = 0x40, /* where the capabilities stand, if they are there */
    FN_CAP_MSIX = 0x50,
    FN_CAP_PCIE = 0x60,
    FN_CAP_MSI = 0xa0,
    FN_CAP_END = 0x100
};

/* A dword of the owner's capabilities. */
typedef struct fn_own {
    uint32_t value, writable; /* after a reset, and the bits that software may change */
} fn_own;

typedef struct fn_bar {
    uint64_t bytes; /* 0: none */
    uint32_t flags; /* PCI_BAR_* */
} fn_bar;

typedef struct fn_setup {
    uint16_t vendor, device;
    uint32_t class_revision; /* as the register has it */
    uint32_t subsystem;      /* likewise, when has_subsystem; else as vendor and device */
    bool has_subsystem;
    fn_bar bar[PCI_BARS];
    bool msi;
    unsigned msi_log2;             /* how many vectors: 2 to this power, at most 5 */
    unsigned msix;                 /* how many vectors; 0: no MSI-X */
    uint32_t msix_table, msix_pba; /* offset, a multiple of 8, and the BAR's number */
    uint64_t mps_bytes;            /* largest Max_Payload_Size */
    uint64_t mrrs_bytes;           /* Max_Read_Request_Size after a reset; 0: 512 */
    uint64_t timeout_ns;           /* least time to wait for a completion of the host */
    bool errors;                   /* Advanced Error Reporting, and this Device Serial Number */
    uint64_t serial;
    bool several;                 /* it is one of several functions of its device: */
    uint8_t number;               /* this one */
    const pci_function *physical; /* as in pci_function, as are */
    uint16_t virtuals;            /* those that there can be, with BARs of these sizes */
    const fn_own *own; /* in place of MSI: dwords from FN_CAP_MSI on, capabilities linked to one
                          another, the last to FN_CAP_PCIE; they outlive the function; NULL: none */
    unsigned own_count;
    /* Memory of the owner's own that requests of the function reach, none of which crosses a
       multiple of 4 KB: where `bytes` bytes from `address` on are, to be read or written.  NULL:
       they are the host's.  The function NULL: there is none. */
    uint8_t *(*local)(void *user, uint64_t address, uint32_t bytes, bool write);
    bool no_push; /* it makes no push rules */
} fn_setup;

/* ==== 2  The function ========================================================================= */

typedef struct fn fn;

/* A piece of the host's memory, not empty. */
typedef struct fn_range {
    uint64_t address;
    uint32_t bytes;
    bool nowhere; /* no memory at all: what is written there is dropped */
} fn_range;

/* Host memory on its way into a buffer. */
typedef struct fn_fetch {
    struct fn_fetch *next;
    uint64_t address;       /* when ranges is NULL */
    const fn_range *ranges; /* else where the bytes are, `bytes` in all or more; none nowhere */
    uint8_t *to;
    uint32_t bytes;
    uint32_t asked;     /* bytes for which requests were sent */
    uint32_t range, at; /* where the next one begins */
    uint32_t in_flight; /* requests */
    bool queued;        /* more is to be asked for */
    bool failed;
    void (*done)(void *user, struct fn_fetch *f);
    void *owner;
} fn_fetch;

#define FN_COUNTERS(X)                                                                             \
    X(config)                                                                                      \
    X(unsupported)                                                                                 \
    X(posted_dropped)                                                                              \
    X(poisoned)                                                                                    \
    X(malformed)                                                                                   \
    X(messages)                                                                                    \
    X(dma_reads)                                                                                   \
    X(dma_read_bytes)                                                                              \
    X(dma_writes)                                                                                  \
    X(dma_write_bytes)                                                                             \
    X(completions_refused)                                                                         \
    X(completions_late)                                                                            \
    X(completions_failed)                                                                          \
    X(completion_timeouts)                                                                         \
    X(push_rules)                                                                                  \
    X(pushes)                                                                                      \
    X(pushed_bytes)                                                                                \
    X(pushes_dropped)                                                                              \
    X(interrupts)

struct fn {
    pci_function pci;
    void *user; /* of the callbacks */
    /* Function Level Reset: reset what is the owner's, and call fn_reset(). */
    void (*flr)(void *user);
    fn_setup set;
    uint64_t now_ns;
    uint32_t table[FN_MSIX_MAX * 4];
    uint32_t pending[FN_MSIX_MAX / 32];
    dxpu_tags tags;
    dxpu_tag_entry tag_entries[FN_TAGS];
    struct {
        fn_fetch *owner; /* NULL: no longer awaited */
        uint8_t *to;
    } request[FN_TAGS];
    fn_fetch *fetch_head, **fetch_tail;
    unsigned local_left; /* accesses of the owner's own memory until the next fn_turn() */
    uint64_t local_accesses;
    dxpu_push_offer offer; /* of the host */
    dxpu_push_store *push; /* NULL: there has been no rule since another host came */
#define FN_FIELD(name) uint64_t name;
    struct {
        FN_COUNTERS(FN_FIELD)
    } count;
#undef FN_FIELD
};

/* port and user outlive the function; *s is copied.  Everything is as after power-up. */
void fn_init(fn *f, const fn_setup *s, const device_port *port, void *user,
             void (*flr)(void *user));
/* Registers as after a reset of the function, which stays where it is on its bus. */
void fn_reset(fn *f);
/* The same after the link was down: nothing that was in flight will be answered. */
void fn_link_reset(fn *f);
/* What outlives those resets, errors and their log, is as after power-up. */
void fn_power_on(fn *f);
void fn_report(const fn *f, report *r);
/* How long a completion of the host is waited for, as the host programmed it. */
uint64_t fn_timeout_ns(const fn *f);

/* ==== 3  TLPs to the function ================================================================= */

/* True when it was handled here; false for a memory read or write, which is the owner's to do. */
bool fn_tlp(fn *f, const dxpu_tlp *t);
/* Which BAR a memory request is for, and where in it; -1 when not all of it lies in one. */
int fn_locate(const fn *f, const dxpu_tlp *t, uint64_t *offset);
/* A posted write that is not done: unassigned address, poisoned, or more payload than software
   allowed.  True when it was dropped. */
bool fn_refuse_write(fn *f, const dxpu_tlp *t, int bar);
void fn_unsupported(fn *f, const dxpu_tlp *req); /* counted, else as pci_unsupported() */

/* ==== 4  DMA ================================================================================== */

bool fn_masters(const fn *f); /* software lets it do DMA */
/* There is room to send: the box has not too many TLPs of the device waiting, and this turn has
   moved little within the owner's own memory. */
bool fn_room(const fn *f);
/* A call of the device begins: with fn_setup.local, for each TLP and tick.  share: of what a call
   may do it does one part of this many. */
void fn_turn(fn *f, unsigned share);
/* One TLP of data to the host; returns its bytes. */
uint32_t fn_write_one(fn *f, uint64_t address, const uint8_t *from, uint32_t bytes);
void fn_write(fn *f, uint64_t address, const uint8_t *from, uint32_t bytes);
/* Where the byte after the first x->asked is, and how many lie there with it. */
uint64_t fn_fetch_at(const fn_fetch *x, uint32_t *bytes);
void fn_fetch_advance(fn_fetch *x, uint32_t bytes); /* at most as many */
void fn_fetch_start(fn *f, fn_fetch *x);
/* The same from byte `at` of range `range` on. */
void fn_fetch_start_at(fn *f, fn_fetch *x, uint32_t range, uint32_t at);
void fn_fetch_cancel(fn *f, fn_fetch *x);
bool fn_fetch_ask(fn *f); /* send read requests; true when any was sent */
void fn_tick(fn *f, uint64_t now_ns);

/* ==== 5  Interrupts =========================================================================== */

unsigned fn_msi_vectors(const fn *f);  /* that software enabled; 0: MSI is off */
unsigned fn_msix_vectors(const fn *f); /* of MSI-X, 0 when it is off */
/* False: there is no such vector now.  Masked ones are remembered and sent later. */
bool fn_msi_signal(fn *f, unsigned vector);
bool fn_msix_signal(fn *f, unsigned vector);
/* The table and the pending bits in their BAR.  True when `offset` of BAR `bar` is theirs. */
bool fn_msix_read(const fn *f, int bar, uint64_t offset, uint32_t *value);
bool fn_msix_write(fn *f, int bar, uint64_t offset, uint32_t value, uint32_t enabled);

/* ==== 6  Push rules ===================================================== spec/push.md, U-1 ===
   What the host sends along with a doorbell takes the place of the read that follows it.  Only of
   memory that the driver gives to the device by the doorbell, and that the device does not write
   (U-11). */

/* Make a rule for the doorbell at `offset` in BAR `bar`.  r: mode, width, base, entries, start,
   stride, and the bytes wished for, which the host's offer cuts.  A number other than 0 for
   fn_push_end(); 0: the host offers none, or there is no room. */
uint32_t fn_push_begin(fn *f, unsigned bar, uint64_t offset, dxpu_push_rule *r);
/* The memory is no longer the device's to read in this way.  0: nothing happens. */
void fn_push_end(fn *f, uint32_t rule);
/* It is of this base and, as far as the offer goes, of these bytes, and has not ended, by a reset
   or as its doorbell moved. */
bool fn_push_stands(const fn *f, uint32_t rule, uint64_t base, uint32_t bytes);
/* All rules end, without a word to the host. */
void fn_push_clear(fn *f);
/* Another host comes, or the function goes: nothing is offered. */
void fn_push_forget(fn *f);
/* For function.c.  A message, a write that the owner is about to do, and its registers that
   change. */
void fn_push_message(fn *f, const dxpu_tlp *t);
void fn_push_write(fn *f, const dxpu_tlp *t);
void fn_push_configured(fn *f, const dxpu_tlp *t);

#endif /* FUNCTION_H_INCLUDED */
