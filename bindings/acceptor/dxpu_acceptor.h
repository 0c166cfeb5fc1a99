/* dxpu_acceptor.h - opens and addresses, for a program that accepts channels from many openers
   SPDX-License-Identifier: MIT

   What each such program decides alike, whatever carries its datagrams: whether an open is one,
   whether it repeats another, what a refusal says, where the answers of a path go, and how much
   may be sent there.  Sockets, tables of channels and leases are the program's; examples/embed/
   acceptor.c is the smallest one.  Functions of a header: C99 and C++11, no library, no
   allocation, no clock, no I/O.

   CONTENTS   1 Opens   2 Addresses of paths */
#ifndef DXPU_ACCEPTOR_H_INCLUDED
#define DXPU_ACCEPTOR_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Opens ================================================================================ */

/* Decode an open of the CRC suite; paths: the most that a channel may have here.  DXPU_OK and
   *offer, or a peer error: drop the datagram.  Next, ask whether the offer is allowed. */
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
        rc = DXPU_E_SHORT; /* P-3: a forged one would bring more than it is */
    return rc;
}

/* True when an open with this offer repeats the one, of the opener's id `opener`, that began the
   channel: it goes to dxpu_channel_ingest().  It may come from anywhere, as the opener tries its
   paths in turn. */
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
   An acceptor learns the address of a path from what arrives on it.  Whether that address receives
   what is sent there must be shown before much is sent (P-27).  One dxpu_validation for each path,
   beside its address and the last one that was valid, which the caller keeps.  O(1) each. */
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

/* A frame of the path, its byte DXPU_FRAME_PATH, has arrived, for which dxpu_channel_ingest() or
   dxpu_channel_accept() returned DXPU_OK.  That is so for paths that the channel does not have, too
   (W-6): the caller ignores what is not below cfg.paths, and indexes nothing by it.
   newest   dxpu_channel_status().newest: what is late must not move an address.  The caller takes
            the sender's address as the path's whenever it is set: the socket and the MAC of the
            next hop change while IP address and port stay
   same     it is from the path's address
   before   it is from the last one that was valid
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

/* A frame of the path that dxpu_channel_emit() wrote.  False: do not send it, as if the network
   had lost it. */
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
