/* dxpu_acceptor.h - opens and addresses, for a program that accepts channels from many openers
   SPDX-License-Identifier: MIT

   The decisions that are the same in each such program, on any network: whether an open is valid,
   whether it repeats another, what a refusal says, where the answers of a path go, and how much
   may be sent there.  Sockets, tables of channels and leases are the program's; examples/embed/
   acceptor.c is the smallest one.  Inline functions, C99 and C++11, no library, no allocation, no
   clock, no I/O.

   CONTENTS   1 Opens   2 Addresses of paths */
#ifndef DXPU_ACCEPTOR_H_INCLUDED
#define DXPU_ACCEPTOR_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Opens ================================================================================ */

/* Check and decode an open of the CRC suite.  paths: the most paths of a channel here, 1..64.
   DXPU_OK and *offer, or a peer error: drop the datagram.  The caller then decides whether the
   offer is allowed. */
static inline int dxpu_acceptor_open(dxpu_bytes datagram, uint8_t paths, dxpu_offer *offer)
{
    dxpu_frame frame;
    int rc = dxpu_frame_check_crc(datagram);
    if (rc == DXPU_OK)
        rc = dxpu_frame_decode(datagram, DXPU_FRAME_CRC_BYTES, &frame);
    if (rc == DXPU_OK)
        rc = frame.kind != DXPU_KIND_OPEN ? DXPU_E_STATE
             : frame.path >= paths        ? DXPU_E_PATH
                                          : dxpu_offer_decode(frame.body, offer);
    if (rc == DXPU_OK && datagram.len < offer->frame_limit_bytes)
        rc = DXPU_E_SHORT; /* P-3: the answer to a forged one would be longer than it */
    return rc;
}

/* True when an open with this offer repeats the open that began the channel, which was of the
   opener's channel id `opener`: give it to dxpu_channel_ingest().  It may arrive from any address,
   as the opener tries its paths in turn. */
static inline bool dxpu_acceptor_repeats(const dxpu_channel *ch, uint32_t opener,
                                         const dxpu_offer *offer)
{
    const dxpu_channel_config *c = &ch->cfg;
    return opener == offer->channel && c->epoch == offer->epoch &&
           c->local.slot == offer->destination.slot && c->remote.node == offer->source.node &&
           c->remote.slot == offer->source.slot && c->remote.function == offer->source.function;
}

/* The reason to refuse an open for which dxpu_channel_accept() returned an error. */
static inline uint8_t dxpu_acceptor_reason(int error)
{
    return error == DXPU_E_VERSION ? DXPU_REASON_VERSION
           : error == DXPU_E_EPOCH ? DXPU_REASON_EPOCH
                                   : DXPU_REASON_OFFER;
}

/* ==== 2  Addresses of paths ===================================================================
   An acceptor learns the address of a path from frames that arrive on it.  Until that address has
   shown that it receives, little is sent there (P-27).  For each path the caller keeps a
   dxpu_validation (zeros at first), the address, and the last valid address.  O(1) each. */
typedef struct dxpu_validation {
    bool known;             /* the path has an address */
    bool valid;             /* ... which receives */
    bool was_valid;         /* one was valid */
    uint64_t since_ns;      /* when the address was learnt */
    uint64_t allowed_bytes; /* that may still be sent there */
    uint64_t first, next;   /* packet numbers first..next - 1 are of frames for it, without a gap */
} dxpu_validation;

/* what dxpu_validation_arrived() answers */
enum {
    DXPU_VALIDATION_MOVED = 1, /* the path is at the sender's IP address and port from now on */
    DXPU_VALIDATION_VALID = 2  /* its address was found valid: keep it as the last such one */
};

/* Private.  Does the peer say that it received what was sent to this address, and to no other? */
static inline bool dxpu_validation_answers(const dxpu_validation *v, const uint8_t *frame)
{
    const uint8_t *body = frame + DXPU_FRAME_BASE_BYTES;
    if (frame[DXPU_FRAME_KIND] == DXPU_KIND_PROBE)
        return (body[0] & DXPU_PROBE_REPLY) && dxpu_get_be64(body + 4) > v->since_ns;
    if (frame[DXPU_FRAME_KIND] > DXPU_KIND_BLOCKED)
        return false;
    uint64_t seen = dxpu_get_be64(frame + DXPU_FRAME_SEEN);
    return seen && seen >= v->first && seen < v->next; /* 0: no data frame yet */
}

/* Call it for each frame of the path (byte DXPU_FRAME_PATH) for which dxpu_channel_ingest() or
   dxpu_channel_accept() returned DXPU_OK.  They do so for paths that the channel does not have, too
   (W-6): the caller ignores a path that is not below cfg.paths before it uses it as an index.
   newest   dxpu_channel_status().newest: a late frame must not move an address.  Whenever it is
            true, the caller takes the sender's address as the path's: the socket and the MAC of
            the next hop may change while IP address and port stay
   same     the frame is from the path's address
   before   the frame is from the last valid address
   Returns bits of DXPU_VALIDATION_*. */
static inline unsigned dxpu_validation_arrived(dxpu_validation *v, dxpu_bytes frame, bool newest,
                                               bool same, bool before, uint64_t now_ns)
{
    unsigned what = 0;
    if (newest && !(v->known && same)) {
        what = DXPU_VALIDATION_MOVED;
        v->known = same = true;
        v->valid = v->was_valid && before; /* at once when it returns */
        v->since_ns = now_ns;
        v->allowed_bytes = v->first = v->next = 0;
    }
    if (v->known && same && !v->valid) {
        v->valid = dxpu_validation_answers(v, frame.ptr);
        v->was_valid = v->was_valid || v->valid;
        v->allowed_bytes += 3 * frame.len;
        if (v->valid)
            what |= DXPU_VALIDATION_VALID;
    }
    return what;
}

/* Call it for each frame of the path that dxpu_channel_emit() wrote.  False: do not send it; the
   channel treats it as lost in the network. */
static inline bool dxpu_validation_may_send(dxpu_validation *v, dxpu_bytes frame)
{
    if (v->valid)
        return true;
    uint64_t packet = dxpu_get_be64(frame.ptr + DXPU_FRAME_PACKET);
    if (packet != v->next)
        v->first = packet; /* the numbers between went elsewhere */
    v->next = packet + 1;
    if (frame.len > v->allowed_bytes)
        return false;
    v->allowed_bytes -= frame.len;
    return true;
}

#ifdef __cplusplus
}
#endif
#endif /* DXPU_ACCEPTOR_H_INCLUDED */
