/* fabric_internal.h - places, turns and clients of a port: of fabric.c, sealing.c and their tests
   SPDX-License-Identifier: MIT */
#ifndef FABRIC_INTERNAL_H_INCLUDED
#define FABRIC_INTERNAL_H_INCLUDED

#include "fabric.h"
#include "sealing.h"

/* Turns to take what a channel has when it is closed, one in each round of the loop: more than its
   queues hold. */
enum { FABRIC_CLOSED_TURNS = 64 };
enum { SEALING_DEBT_NS = 100000000 }; /* a handshake takes about 0.2 ms */

/* ==== fabric.c ================================================================================ */

uint32_t fabric_id_at(uint32_t index);
void fabric_take_place(fabric *f, uint32_t index);
fabric_channel *fabric_channel_at(fabric *f, uint32_t id, dxpu_channel_config *cfg);
void fabric_channel_free(fabric *f, fabric_channel *c);
/* Between the nth question for keys and the next one. */
uint64_t fabric_ask_gap_ns(const fabric *f, unsigned n);
/* Of dxpu_udp_callbacks; user is the fabric. */
void fabric_on_datagram(void *user, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                        unsigned flags);
void fabric_turn(void *user, uint64_t now);
uint64_t fabric_next_ns(void *user);

/* ==== sealing.c =============================================================================== */

/* Of dxpu_sodium_callbacks; user is the sealing. */
dxpu_sodium_peer *sealing_find(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
bool sealing_fresh(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES], uint64_t timestamp);
bool sealing_spare(void *user, uint64_t now_ns, dxpu_bytes from);
/* What stands for an address. */
dxpu_bytes sealing_address_bytes(const dxpu_udp_address *a, uint8_t out[DXPU_SODIUM_FROM_BYTES]);

#endif /* FABRIC_INTERNAL_H_INCLUDED */
