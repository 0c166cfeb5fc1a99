/* p2p.h - TLPs from one slot's device to another's that do not pass the host: spec/p2p.md
   SPDX-License-Identifier: MIT

   The host of a slot lists the windows of its other slots that the device may reach.  Where such a
   slot is in the same loop, and its channel is of the same guest, requests go into its inbox, and
   completions into the requester's.  All that is checked for a TLP to the host (guard, limit) is
   checked before; what the list says is looked at again when the TLP leaves the inbox. */
#ifndef P2P_H_INCLUDED
#define P2P_H_INCLUDED

#include "device.h"
#include "dxpu_p2p.h"
#include "fabric.h"

struct slot;
struct shard;
typedef struct p2p p2p;

enum { P2P_CHANNELS = 8 }; /* of a slot to other boxes, at most */
enum { P2P_HOST = 1 };     /* of p2p_submit(): the TLP is for the host */

/* A TLP that is about to be given to the device: a list of the host ends here. */
bool p2p_message(struct slot *s, const dxpu_tlp *t);
/* A TLP of the device is about to leave: DXPU_OK, it is another slot's, or refused and answered;
   DXPU_E_AGAIN, it waits for room there; P2P_HOST. */
int p2p_submit(struct slot *s, dxpu_bytes tlp, uint64_t now_ns);

/* May the device be given what its host sends, now?  Not before what neighbors wrote until that had
   come (B-7).  Then one of it was; more of it has come, and is to wait for the next turn. */
bool p2p_host_may(const struct slot *s, unsigned cls);
void p2p_host_did(struct slot *s, unsigned cls);
bool p2p_host_waits(const struct slot *s);
/* Give the next one of a class to the device; false: there is none, or order holds it up. */
bool p2p_take(struct slot *s, unsigned cls);

/* The device is reset: nothing in the inbox reaches it, and what it was asked is answered. */
void p2p_reset(struct slot *s);
/* The channel is over: nothing is listed any more either. */
void p2p_end(struct slot *s);
/* May its requests pass by the host, and others' for it (B-16)?  What has left already does. */
void p2p_direct(struct slot *s, bool on);
/* The slot is over. */
void p2p_free(struct slot *s);
/* At the beginning of a turn: answer what its device has not answered in time, take what has come
   from other boxes, dial them. */
void p2p_work(struct slot *s, uint64_t now_ns);
/* The fabric's callbacks for channels between boxes; such an offer, such a channel. */
bool p2p_is_offer(const dxpu_offer *o);
bool p2p_is_link(const fabric_channel *c);
uint8_t p2p_authorize(struct shard *sh, const dxpu_offer *o, const uint8_t *key);
bool p2p_knows(const struct shard *sh, const uint8_t *key);
bool p2p_allowed(const struct shard *sh, const fabric_channel *c, const uint8_t *key);
void p2p_up(struct shard *sh, fabric_channel *c, uint64_t now_ns);
bool p2p_serve(struct shard *sh, const fabric_channel *c);
void p2p_down(struct shard *sh, fabric_channel *c);
uint64_t p2p_next_ns(const struct shard *sh);
void p2p_report(const struct slot *s, report *r);

#endif /* P2P_H_INCLUDED */
