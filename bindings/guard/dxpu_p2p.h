/* dxpu_p2p.h - which addresses of one device are another device's in the same box: spec/p2p.md
   SPDX-License-Identifier: MIT

   A host sends each of its slots a list: windows of its other slots that this slot's device may
   reach without passing the host.  A box that has both slots carries such requests, and their
   completions, inside.  No operating system, no allocation, no library but mem*. */
#ifndef DXPU_P2P_H_INCLUDED
#define DXPU_P2P_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DXPU_P2P_DOMAIN_BYTES = 16,
    DXPU_P2P_WINDOWS = 108, /* two of each other slot of a switch of 28, and its own for each */
    DXPU_P2P_HEAD_BYTES = 4 + DXPU_P2P_DOMAIN_BYTES,
    DXPU_P2P_WINDOW_BYTES = 20,
    DXPU_P2P_PLACES = 27,
    DXPU_P2P_PLACE_BYTES = 64,
    DXPU_P2P_KEY_BYTES = 32,
    DXPU_P2P_BYTES_MAX = DXPU_P2P_HEAD_BYTES + DXPU_P2P_WINDOWS * DXPU_P2P_WINDOW_BYTES +
                         DXPU_P2P_PLACES * DXPU_P2P_PLACE_BYTES,
    DXPU_P2P_HELLO_BYTES = DXPU_P2P_HEAD_BYTES
};

typedef struct dxpu_p2p_window {
    uint64_t first, last;
    uint16_t payload_bytes; /* largest that both ports pass */
    uint8_t slot;           /* of the host, 1.. */
    bool own;               /* addresses of the list's own slot, which that one may reach */
} dxpu_p2p_window;

/* Where another slot of the host is attached. */
typedef struct dxpu_p2p_place {
    uint64_t epoch;                  /* of its lease */
    uint16_t box_slot;               /* 1.. */
    uint16_t port;                   /* of UDP */
    uint8_t slot;                    /* of the host, 1.. */
    uint8_t family;                  /* 4 or 6 */
    uint8_t bus, last_bus;           /* behind its port: requester IDs of its device */
    uint8_t address[16];             /* family 4: in the first four */
    uint8_t key[DXPU_P2P_KEY_BYTES]; /* its box's public one; zeros: none */
} dxpu_p2p_place;

typedef struct dxpu_p2p_list {
    uint8_t domain[DXPU_P2P_DOMAIN_BYTES]; /* of the host's switch: random, never all zeros */
    uint8_t slot;                          /* of the host: the one that the list is sent to */
    uint8_t count;                         /* of windows */
    uint8_t places;
    dxpu_p2p_window at[DXPU_P2P_WINDOWS];
    dxpu_p2p_place place[DXPU_P2P_PLACES];
} dxpu_p2p_list;

/* The first TLP of a channel between two boxes, of the one that has opened it. */
typedef struct dxpu_p2p_hello {
    uint8_t domain[DXPU_P2P_DOMAIN_BYTES];
    uint8_t from, to; /* slots of the host */
} dxpu_p2p_hello;

/* Make a message; it refers to `payload`, which the caller provides. */
void dxpu_p2p_message(const dxpu_p2p_list *l, uint8_t payload[DXPU_P2P_BYTES_MAX], dxpu_tlp *out);
/* Decode such a message.  1: *out is filled; 0: it is another message; DXPU_E_ARG: it is malformed.
   Unless 1, *out is empty. */
int dxpu_p2p_decode(const dxpu_tlp *t, dxpu_p2p_list *out);
void dxpu_p2p_hello_message(const dxpu_p2p_hello *h, uint8_t payload[DXPU_P2P_HELLO_BYTES],
                            dxpu_tlp *out);
/* 1, 0 or E_ARG, as dxpu_p2p_decode(). */
int dxpu_p2p_hello_decode(const dxpu_tlp *t, dxpu_p2p_hello *out);
/* The place of a slot of the host; NULL: it is not listed. */
const dxpu_p2p_place *dxpu_p2p_place_of(const dxpu_p2p_list *l, unsigned slot);
/* The first window of another slot that has the address: its index, or `count`. */
unsigned dxpu_p2p_find(const dxpu_p2p_list *l, uint64_t address);
/* May this other slot's device make such a request of the list's own? */
bool dxpu_p2p_opens(const dxpu_p2p_list *l, unsigned slot, const dxpu_tlp *t);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_P2P_H_INCLUDED */
