/* attachment.h - one slot's box: who it is, its dialing and re-dialing, its channel
   SPDX-License-Identifier: MIT

   What faces the fabric, as slot.h faces the guest.  While the channel is up it is the slot's line:
   TLPs and events of the keeper go down it as the box has room, and those of the box go up as the
   keeper has. */
#ifndef ATTACHMENT_H_INCLUDED
#define ATTACHMENT_H_INCLUDED

#include "crossing.h"
#include "fabric.h"
#include "queue.h"

typedef struct attachment {
    unsigned number; /* of the guest's slot, 1.. */
    fabric *fabric;
    crossing *cross;
    const uint8_t *secret;   /* CROSSING_KEY_BYTES, of this guest's workers */
    uint32_t life;           /* of the line, counted */
    tlp_queue down;          /* of the keeper, until the channel has room */
    fabric_channel *channel; /* the incarnation, NULL between two */
    bool attached;           /* a box is named; else the slot stays empty */
    bool up;
    dxpu_udp_path path[DXPU_PATHS_MAX];
    unsigned paths;
    fabric_paths past; /* of channels that are over */
    /* The box's public key: what the attachment named, or keyed is false and it is looked up with
       each dial, since --peers may change. */
    bool keyed;
    uint8_t key[DXPU_NOISE_KEY_BYTES];
    char box[DXPU_PATHS_MAX * DXPU_UDP_TEXT_BYTES];
    uint32_t node; /* of this host; 0: not known yet, nothing is dialed */
    uint16_t box_slot;
    uint64_t epoch;
    int last_error;        /* of the channel that ended last, DXPU_OK: none did, or its box is not
                              dialed since */
    uint8_t last_reason;   /* DXPU_REASON_* of it */
    uint32_t attempts;     /* channels in a row that did not come up */
    uint32_t incarnations; /* channels that did */
    uint64_t too_late;     /* TLPs of the guest's that waited here, or arrived, after their end */
    uint64_t leave_ms;     /* that its guest has to let go of the device */
    uint64_t dial_ns;
    uint64_t closing_ns;  /* when a gracefully closing channel is ended; 0: it is not */
    uint8_t close_reason; /* DXPU_REASON_* */
    bool close_behind;    /* the keeper has sent its last, which may still wait in `down` */
} attachment;

/* What the keeper is to remember of it, for the next worker. */
typedef struct attachment_memory {
    uint64_t epoch;
    uint32_t paths;
    uint16_t box_slot;
    uint8_t keyed;
    uint8_t key[DXPU_NOISE_KEY_BYTES];
    uint8_t box_key[DXPU_NOISE_KEY_BYTES]; /* the one it was dialed with; zeros with --plain */
    dxpu_udp_address box[DXPU_PATHS_MAX];
    uint8_t mac[16]; /* last: of all before it and the slot's number (S-184) */
} attachment_memory;

/* Why attachment_begin() does not. */
enum {
    ATTACHMENT_BUSY = -1,    /* attached already */
    ATTACHMENT_CLOSING = -2, /* detached, its channel is not over yet */
    ATTACHMENT_FAMILY = -3,  /* the fabric's port has no socket for this kind of address */
    ATTACHMENT_ALIKE = -4,   /* two of the addresses are the same */
    ATTACHMENT_NO_KEY = -5,  /* the box's public key is not known; it was said */
    ATTACHMENT_PLAIN = -6,   /* --plain dials only this machine */
    ATTACHMENT_FORGED = -7   /* what was remembered is of no worker, or of another slot */
};

/* secret: CROSSING_KEY_BYTES, the key of what its keeper remembers; stays the caller's.  0, or -1
   out of memory. */
int attachment_init(attachment *a, unsigned number, uint32_t node, fabric *f, crossing *cross,
                    const uint8_t *secret);
void attachment_free(attachment *a);
/* Name the box's slot behind this one and dial; box[paths], 1..DXPU_PATHS_MAX, are its addresses.
   key: the box's public one, or NULL: as --peer and --peers say.  0, or ATTACHMENT_*. */
int attachment_begin(attachment *a, const dxpu_udp_address *box, unsigned paths, uint16_t box_slot,
                     const uint8_t *key, uint64_t epoch, uint64_t now_ns);
/* The same, from what a keeper remembered: a record's payload. */
int attachment_recall(attachment *a, const uint8_t *payload, size_t bytes, uint64_t now_ns);
/* Was it attached with this key, NULL: with none? */
bool attachment_has_key(const attachment *a, const uint8_t *key);
/* fabric_callbacks.allowed: a key that the attachment named, or one that --peers still has. */
bool attachment_allows(const attachment *a, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
/* Are these the addresses that it was attached with? */
bool attachment_is_at(const attachment *a, const dxpu_udp_address *box, unsigned paths);
/* Is this the slot's box (M-32)?  An address in common, and with keys the box's public one, too:
   `key`, or NULL: as --peer and --peers say. */
bool attachment_reaches(const attachment *a, const dxpu_udp_address *box, unsigned paths,
                        const uint8_t *key);
/* Dial no more.  A channel that is up is closed by the keeper, behind all that was sent, or ended
   after the hold time, and the time that its guest has to let go of it (leave_ms); the attachment
   is over when it is, and may begin again.
   reason: DXPU_REASON_*, sent to the box. */
void attachment_end(attachment *a, uint8_t reason);

/* A record of the keeper that concerns it. */
void attachment_hear(attachment *a, const crossing_record *r, const uint8_t *payload);

/* The fabric's callbacks, for this attachment's channel. */
void attachment_up(attachment *a);
bool attachment_work(attachment *a, uint64_t now_ns);
void attachment_down(attachment *a, uint64_t now_ns);
void attachment_tick(attachment *a, uint64_t now_ns);
uint64_t attachment_next_ns(const attachment *a);
/* M-160: does the box answer?  DXPU_CONTROL_REACH_* */
uint8_t attachment_reached(const attachment *a);
void attachment_report(const attachment *a, report *r);

#endif /* ATTACHMENT_H_INCLUDED */
