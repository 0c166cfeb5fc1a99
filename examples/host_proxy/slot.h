/* slot.h - one slot of the guest's switch: its channel to a box, TLPs down, DMA and answers up
   SPDX-License-Identifier: MIT

   The slot is filled while its channel is up.  TLPs go down in the order given, through a queue
   while the channel has no room; what a device requests of the guest's memory is done here. */
#ifndef SLOT_H_INCLUDED
#define SLOT_H_INCLUDED

#include "fabric.h"
#include "probe.h"

enum {
    SLOT_TAGS = 256,
    SLOT_QUEUE = 1024,   /* TLPs that wait for the channel */
    SLOT_TLP_BYTES = 96, /* of one that waits: header and what one access can carry */
    SLOT_OWED = 128,     /* completions for the device that wait for the channel */
    SLOT_MPS_MAX = 512
};

/* What a slot asks of the guest it belongs to. */
typedef struct slot_host {
    void *user;
    /* Copy from or to guest memory; false when a part is not mapped or not for this access. */
    bool (*dma_read)(void *user, uint64_t address, void *data, size_t bytes);
    bool (*dma_write)(void *user, uint64_t address, const void *data, size_t bytes);
    void (*msi)(void *user, uint64_t address, uint32_t data);
    /* The device may master the bus, and the payload size its completions may have. */
    bool (*bus_master)(void *user, unsigned slot);
    uint32_t (*mps_bytes)(void *user, unsigned slot);
    /* A completion for submit()'s `user`; cpl is NULL when none will come. */
    void (*completion)(void *user, const dxpu_tlp *cpl, uint64_t request, bool last);
    /* The device is there, its BARs known; or it is gone. */
    void (*filled)(void *user, unsigned slot, bool filled);
} slot_host;

typedef struct slot_waiting {
    uint64_t user;
    uint16_t len;
    bool nonposted;
    uint8_t bytes[SLOT_TLP_BYTES];
} slot_waiting;

typedef struct slot_owed {
    uint16_t len;
    uint8_t bytes[16 + SLOT_MPS_MAX];
} slot_owed;

typedef struct guest_slot {
    unsigned number; /* 1.. */
    const slot_host *host;
    fabric *fabric;
    fabric_channel *channel; /* the incarnation, NULL between two */
    bool attached;           /* a box is named; else the slot stays empty */
    bool up;
    bool misfit; /* the guest has no room for the device, and is not shown it */
    probe probe; /* of the device's BARs, when up */
    uint64_t probe_ns;
    dxpu_udp_path path[DXPU_PATHS_MAX];
    unsigned paths;
    fabric_paths past; /* of channels that are over */
    char box[DXPU_PATHS_MAX * DXPU_UDP_TEXT_BYTES];
    uint32_t node; /* of this host */
    uint16_t box_slot;
    uint64_t epoch;
    int last_error;        /* of the channel that ended last, DXPU_OK: none did */
    uint8_t last_reason;   /* DXPU_REASON_* of it */
    uint32_t attempts;     /* channels in a row that did not come up */
    uint32_t incarnations; /* channels that did */
    uint64_t dial_ns;
    dxpu_tags tags;
    dxpu_tag_entry entries[SLOT_TAGS];
    slot_waiting *waiting; /* ring of SLOT_QUEUE */
    uint32_t waiting_head, waiting_tail;
    slot_owed *owed; /* ring of SLOT_OWED */
    uint32_t owed_head, owed_tail;
    uint64_t up_tlps, down_tlps, dma_reads, dma_writes, msis, refused, dropped, contained, timeouts;
} guest_slot;

/* Why slot_attach() does not. */
enum {
    SLOT_BUSY = -1,    /* attached already */
    SLOT_CLOSING = -2, /* detached, its channel is not over yet */
    SLOT_FAMILY = -3,  /* the fabric's port has no socket for this kind of address */
    SLOT_ALIKE = -4    /* two of the addresses are the same */
};

/* 0, or -1 out of memory. */
int slot_init(guest_slot *s, unsigned number, uint32_t node, const slot_host *host, fabric *f);
void slot_free(guest_slot *s);
/* Name the box's slot behind this one and dial; box[paths], 1..DXPU_PATHS_MAX, are its addresses.
   0, or SLOT_*. */
int slot_attach(guest_slot *s, const dxpu_udp_address *box, unsigned paths, uint16_t box_slot,
                uint64_t epoch, uint64_t now_ns);
/* Are these the addresses that it was attached with? */
bool slot_is_at(const guest_slot *s, const dxpu_udp_address *box, unsigned paths);
/* Do these paths and those of the slot have an address of a box in common? */
bool slot_reaches(const guest_slot *s, const dxpu_udp_address *box, unsigned paths);
/* Close the channel in order; the slot is emptied when it is over, and may then be attached again.
   reason: DXPU_REASON_*, told to the box. */
void slot_detach(guest_slot *s, uint8_t reason);

/* Send a TLP down behind all earlier ones.  For a non-posted request the tag is filled in and
   `user` comes back with its completions.  False: it will not be sent (counted). */
bool slot_send(guest_slot *s, dxpu_tlp *t, uint64_t user, uint64_t now_ns);
void slot_event(guest_slot *s, uint8_t type, uint8_t flags);
/* More TLPs wait than are good for latency: take no more from the guest. */
bool slot_congested(const guest_slot *s);

/* The fabric's callbacks, for this slot's channel. */
void slot_up(guest_slot *s, uint64_t now_ns);
void slot_down(guest_slot *s, uint64_t now_ns);
bool slot_work(guest_slot *s, uint64_t now_ns);
void slot_tick(guest_slot *s, uint64_t now_ns);
uint64_t slot_next_ns(const guest_slot *s);
void slot_report(const guest_slot *s, report *r);

#endif /* SLOT_H_INCLUDED */
