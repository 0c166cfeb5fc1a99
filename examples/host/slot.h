/* slot.h - one slot of the guest's switch: TLPs down, DMA and answers up
   SPDX-License-Identifier: MIT

   The slot is filled while its line is up: a channel to a box, or a device model in this process.
   TLPs go down in the order given, through a queue while the line has no room; what a device
   requests of the guest's memory is done here. */
#ifndef SLOT_H_INCLUDED
#define SLOT_H_INCLUDED

#include "dxpu_p2p.h"
#include "dxpu_push.h"
#include "grants.h"
#include "msi.h"
#include "probe.h"
#include "queue.h"
#include "retry.h"
#include "stats.h"

enum {
    SLOT_TAGS = 256,
    SLOT_QUEUE = 1024,          /* posted TLPs that wait for the channel; as many requests */
    SLOT_TLP_BYTES = 96,        /* of one that waits: header and what one access can carry */
    SLOT_OWED = 512,            /* completions for the device that wait for the channel */
    SLOT_ROOM_BYTES = 16 + 512, /* of a TLP with data that waits; larger ones are allocated */
    SLOT_WHOSE_BYTES = 704,
    SLOT_QUEUE_PEERS = 128,  /* TLPs of other slots' devices that wait here, a class */
    SLOT_PEER_REQUESTS = 128 /* of other slots' devices, in flight to this one */
};

/* What may be pushed to its box (U-2), if anything, and how much was. */
typedef struct slot_pushes {
    bool offered; /* set by whoever has called slot_init() */
    dxpu_push_table table;
    uint64_t sent, bytes;
    uint64_t refused;       /* of memory that the device may not read */
    uint64_t no_room;       /* the doorbell went alone */
    uint64_t rules_refused; /* malformed, or beyond what was offered */
} slot_pushes;

/* Which other slots its box may let it reach by itself (B-1), if that is offered, as sent last. */
typedef struct slot_p2p {
    bool offered;         /* set by whoever has called slot_init() */
    dxpu_p2p_place place; /* of its device, for the others' boxes; slot 0: not known */
    uint32_t payload_bytes;
    uint8_t payload[DXPU_P2P_BYTES_MAX];
    uint64_t sent;
} slot_p2p;

/* The way to the device and back.  Each function does what that of dxpu.h does which is named. */
typedef struct slot_line {
    void *user;
    /* dxpu_channel_submit(), with the slot's tags */
    int (*submit)(void *user, dxpu_bytes tlp, uint64_t now_ns, uint64_t request);
    int (*submit_event)(void *user, const dxpu_event *e);    /* dxpu_channel_submit_event() */
    dxpu_delivery (*peek)(void *user, unsigned cls);         /* dxpu_channel_peek() */
    void (*take)(void *user, unsigned cls, uint64_t now_ns); /* dxpu_channel_take() */
    bool (*take_event)(void *user);                          /* false: the device said nothing */
    bool (*contain)(void *user, dxpu_request *out);          /* dxpu_channel_contain() */
    void (*close)(void *user, uint8_t reason);               /* dxpu_channel_close() */
    void (*reset)(void *user, uint8_t reason);               /* dxpu_channel_reset() */
} slot_line;

/* What a slot asks of the guest it belongs to. */
typedef struct slot_host {
    void *user;
    /* Copy from or to guest memory; false when a part is not mapped or not for this access. */
    bool (*dma_read)(void *user, uint64_t address, void *data, size_t bytes);
    bool (*dma_write)(void *user, uint64_t address, const void *data, size_t bytes);
    /* Interrupt the guest; false: not now, its way is full.  Ask again. */
    bool (*msi)(void *user, uint64_t address, uint32_t data);
    /* Where a memory request of the device, or its message by ID, goes: 0 to the guest, 1.. to that
       other slot, -DXPU_CPL_UR or -DXPU_CPL_CA refused. */
    int (*route)(void *user, unsigned slot, const dxpu_tlp *t);
    struct guest_slot *(*peer)(void *user, unsigned slot);
    /* Add to `out` what the device may reach besides its interrupts (S-103). */
    void (*reach)(void *user, unsigned slot, windows *out);
    /* Windows of other slots that it may reach inside its box; called where that is offered. */
    void (*neighbors)(void *user, unsigned slot, dxpu_p2p_list *out);
    /* A message of the device (V-12); false: a root port accepts no such message. */
    bool (*message)(void *user, unsigned slot, const dxpu_tlp *t);
    /* The answer to a configuration request that the device completed with CRS, when there is one
       at once: as dxpu_vswitch_crs(). */
    bool (*crs)(void *user, unsigned slot, const dxpu_tlp *req, dxpu_tlp *cpl, uint8_t data[4]);
    /* The payload size its completions may have. */
    uint32_t (*mps_bytes)(void *user, unsigned slot);
    /* A completion for submit()'s `user`; cpl is NULL when none will come. */
    void (*completion)(void *user, const dxpu_tlp *cpl, uint64_t request, bool last);
    /* The device is there, its BARs known; or it is gone. */
    void (*filled)(void *user, unsigned slot, bool filled);
    /* It is lost: from now on, what is in flight to it included, reads of its BARs give these
       values (V-51). */
    void (*lost)(void *user, unsigned slot, const dxpu_vswitch_values *values);
} slot_host;

/* Why requests that came from the box are refused, whatever the box should have seen to. */
#define SLOT_REFUSALS(X)                                                                           \
    X(requester, "is of a requester that is not behind the slot")                                  \
    X(master, "is of a function without Bus Master Enable")                                        \
    X(translated, "has a translated address, or asks for one, or has a PASID")                     \
    X(route, "is blocked by the guest's switch")                                                   \
    X(memory, "goes to memory that the guest does not have, or not for this")                      \
    X(kind, "is malformed, or of a type that devices do not send")
#define SLOT_REFUSAL(name, text) SLOT_REFUSED_##name,
enum { SLOT_REFUSALS(SLOT_REFUSAL) SLOT_REFUSAL_COUNT, SLOT_NOT_REFUSED };
#undef SLOT_REFUSAL

typedef struct guest_slot {
    unsigned number; /* 1.. */
    const slot_host *host;
    const slot_line *line;
    uint64_t hold_ns; /* how long anything may wait here */
    bool up;
    bool starved;                 /* without memory it ends this incarnation of its line */
    char whose[SLOT_WHOSE_BYTES]; /* the device behind it, for people */
    bool misfit;                  /* the guest has no room for the device, and is not shown it */
    char note[120];               /* what would give it room, for people */
    probe probe;                  /* of the device's BARs, when up */
    bool sized;                   /* the probe has ended well, whatever failed since */
    dxpu_vswitch_values values;   /* that the BARs read once it is lost; fitted when `sized` */
    uint64_t values_refused;      /* ranges and declarations that are malformed */
    msi_filter msi;               /* what the guest programmed into the device */
    grants grants;                /* what the box knows that the device may reach */
    slot_pushes push;
    slot_p2p p2p;
    bool leaving; /* among these, addresses that will be revoked when msi says so */
    uint64_t probe_ns;
    retry_list retry;      /* configuration requests, until the device is ready */
    uint32_t incarnations; /* times that the line came up */
    bool closing;          /* in order, when all that waits has been submitted */
    uint8_t close_reason;  /* DXPU_REASON_* */
    dxpu_tags tags;
    dxpu_tag_entry entries[SLOT_TAGS];
    tlp_queue queue;        /* TLPs that wait for room in the line */
    uint32_t owed_reserved; /* completions that other slots' devices may still bring */
    uint32_t peer_requests; /* of other slots' devices, not yet completed */
    uint32_t oversized[SLOT_PEER_REQUESTS]; /* those with a part too large: requester and tag */
    unsigned oversized_count;
    uint32_t peers_waiting[DXPU_CLASSES]; /* TLPs of theirs in `queue` */
    bool clogged;                    /* it took nothing of another slot's device for too long */
    uint64_t stuck_ns[DXPU_CLASSES]; /* when what waits for another slot is given up; 0: none */
    uint64_t congested_ns;           /* when a box that takes too little is given up; 0: none */
    uint64_t up_tlps, down_tlps, dma_reads, dma_writes, msis, refused, dropped, contained, timeouts;
    uint64_t retries;                         /* configuration requests made again */
    uint64_t peer_tlps;                       /* of the device, given to other slots */
    uint64_t messages;                        /* of the device, taken by the root port */
    uint64_t refused_why[SLOT_REFUSAL_COUNT]; /* sums up to `refused` */
    bool alarmed;                             /* the first refusal of this device was reported */
    uint64_t msis_refused; /* interrupts that the guest did not program; not in `refused` */
} guest_slot;

/* 0, or -1 out of memory. */
int slot_init(guest_slot *s, unsigned number, const slot_host *host, const slot_line *line,
              uint64_t hold_ns);
void slot_free(guest_slot *s);
/* Another device is to be here: its first refusal is reported again. */
void slot_begin(guest_slot *s);
/* Take no more, and close the line gracefully behind all that was sent.  Nothing where it is down.
   reason: DXPU_REASON_*, sent to the box. */
void slot_close(guest_slot *s, uint8_t reason);

/* Send a TLP down behind all earlier ones.  For a non-posted request the tag is filled in and
   `user` comes back with its completions.  False: it will not be sent (counted). */
bool slot_send(guest_slot *s, dxpu_tlp *t, uint64_t user, uint64_t now_ns);
void slot_event(guest_slot *s, uint8_t type, uint8_t flags);
/* The device is to know that no driver of before goes on: a reset alone does not say so. */
static inline void slot_power_cycle(guest_slot *s)
{
    slot_event(s, DXPU_EVENT_SLOT_POWER, 0);
    slot_event(s, DXPU_EVENT_SLOT_POWER, DXPU_EVENT_ON);
}
/* What the device may reach has changed: notify the box, ahead of all that is sent from now on. */
void slot_reach(guest_slot *s);
/* More TLPs of the guest wait than are good for latency: take no more from it.  After the hold time
   of this the channel is ended, so that other slots of the guest go on. */
bool slot_congested(const guest_slot *s);

/* The line is up, to the device that people know as `whose`; it has something, or room again; it
   is over. */
void slot_up(guest_slot *s, const char *whose, uint64_t now_ns);
bool slot_work(guest_slot *s, uint64_t now_ns);
void slot_down(guest_slot *s);
void slot_tick(guest_slot *s, uint64_t now_ns);
uint64_t slot_next_ns(const guest_slot *s);
void slot_report(const guest_slot *s, report *r);

#endif /* SLOT_H_INCLUDED */
