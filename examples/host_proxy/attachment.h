/* attachment.h - one slot's box: who it is, its dialing and re-dialing, its channel
   SPDX-License-Identifier: MIT

   What faces the fabric, as slot.h faces the guest.  The channel is the slot's line while it is
   up. */
#ifndef ATTACHMENT_H_INCLUDED
#define ATTACHMENT_H_INCLUDED

#include "fabric.h"
#include "slot.h"

typedef struct attachment {
    unsigned number; /* of the guest's slot, 1.. */
    fabric *fabric;
    dxpu_tags *tags; /* of the slot's requests; set before the first attachment */
    slot_line line;
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
    int last_error;        /* of the channel that ended last, DXPU_OK: none did */
    uint8_t last_reason;   /* DXPU_REASON_* of it */
    uint32_t attempts;     /* channels in a row that did not come up */
    uint32_t incarnations; /* channels that did */
    uint64_t dial_ns;
    uint64_t closing_ns;  /* when a channel that is to close in order is ended; 0: it is not */
    uint8_t close_reason; /* DXPU_REASON_* */
} attachment;

/* Why attachment_begin() does not. */
enum {
    ATTACHMENT_BUSY = -1,    /* attached already */
    ATTACHMENT_CLOSING = -2, /* detached, its channel is not over yet */
    ATTACHMENT_FAMILY = -3,  /* the fabric's port has no socket for this kind of address */
    ATTACHMENT_ALIKE = -4,   /* two of the addresses are the same */
    ATTACHMENT_NO_KEY = -5,  /* the box's public key is not known; it was said */
    ATTACHMENT_PLAIN = -6    /* --plain dials only this machine */
};

void attachment_init(attachment *a, unsigned number, uint32_t node, fabric *f);
/* Name the box's slot behind this one and dial; box[paths], 1..DXPU_PATHS_MAX, are its addresses.
   key: the box's public one, or NULL: as --peer and --peers say.  0, or ATTACHMENT_*. */
int attachment_begin(attachment *a, const dxpu_udp_address *box, unsigned paths, uint16_t box_slot,
                     const uint8_t *key, uint64_t epoch, uint64_t now_ns);
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
/* Dial no more.  A channel that is up is closed by its slot, behind all that was sent, or ended
   after the hold time; the attachment is over when it is, and may begin again.
   reason: DXPU_REASON_*, told to the box. */
void attachment_end(attachment *a, uint8_t reason);

/* The fabric's callbacks, for this attachment's channel.  _up: "slot 1 of ADDR:PORT, epoch 1" for
   people. */
void attachment_up(attachment *a, char whose[SLOT_WHOSE_BYTES]);
void attachment_down(attachment *a, uint64_t now_ns);
void attachment_tick(attachment *a, uint64_t now_ns);
uint64_t attachment_next_ns(const attachment *a);
void attachment_report(const attachment *a, report *r);

#endif /* ATTACHMENT_H_INCLUDED */
