/* dxpu_push.h - push rules: what a device reads next travels with the doorbell before it
   SPDX-License-Identifier: MIT

   A box asks its host: "when you forward a write to this doorbell, send me ahead of it what is at
   this address".  A submission entry so arrives with its doorbell and costs no round trip.  Rules,
   and why what arrives is what a read would have returned: spec/push.md.

   Three vendor-defined messages carry this; a peer that does not know them drops them.  The host
   keeps a dxpu_push_table, gives it the rules that arrive and asks it about each write that goes
   down; it reads and sends what that says.  The box keeps a dxpu_push_store, gives it the messages
   and writes that arrive, and asks it before it reads.  No operating system, no allocation, no
   library but mem*.

   CONTENTS   1 Messages   2 The host's table   3 The box's store */
#ifndef DXPU_PUSH_H_INCLUDED
#define DXPU_PUSH_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Messages ============================================================================= */

enum {
    DXPU_PUSH_RULES = 64,   /* of a slot, at most */
    DXPU_PUSH_BYTES = 1024, /* for one doorbell, at most: fits into the smallest frame limit */
    DXPU_PUSH_PARTS = 2,    /* messages for one doorbell: a ring wraps once */
    DXPU_PUSH_OFFER_BYTES = 8,
    DXPU_PUSH_RULE_BYTES = 36,
    DXPU_PUSH_HEAD_BYTES = 16,
    DXPU_PUSH_PAYLOAD_MAX = DXPU_PUSH_HEAD_BYTES + DXPU_PUSH_BYTES
};

/* What a host accepts; rules 0: nothing any more. */
typedef struct dxpu_push_offer {
    uint8_t rules;  /* rule numbers below this one */
    uint16_t bytes; /* for one doorbell */
} dxpu_push_offer;

enum {
    DXPU_PUSH_AT = 1, /* `bytes` at base + stride x (value modulo entries) */
    DXPU_PUSH_SINCE   /* the entries from the doorbell's last value up to its new one */
};

typedef struct dxpu_push_rule {
    uint8_t rule;        /* its number */
    uint8_t mode;        /* DXPU_PUSH_AT, DXPU_PUSH_SINCE */
    uint8_t width;       /* bytes of the doorbell: 1, 2, 4 or 8 */
    uint16_t requester;  /* the function in whose name memory is read */
    uint32_t generation; /* of this number: what was pushed for an earlier one is dropped */
    uint64_t doorbell;   /* address, as in the write */
    uint64_t base;       /* of the ring */
    uint32_t entries;    /* of the ring, at least 1 */
    uint32_t start;      /* SINCE: the doorbell's value by now */
    uint16_t stride;     /* bytes from one entry to the next; AT: may be 0 */
    uint16_t bytes;      /* for one doorbell; 0: the rule is withdrawn */
} dxpu_push_rule;

typedef struct dxpu_push_data {
    uint8_t rule;
    uint32_t generation;
    uint64_t address;
    dxpu_bytes data;
} dxpu_push_data;

/* Make a message; it refers to `payload`, which the caller provides. */
void dxpu_push_offer_message(const dxpu_push_offer *o, uint8_t payload[DXPU_PUSH_OFFER_BYTES],
                             dxpu_tlp *out);
void dxpu_push_rule_message(const dxpu_push_rule *r, uint8_t payload[DXPU_PUSH_RULE_BYTES],
                            dxpu_tlp *out);
/* The data lie at payload + DXPU_PUSH_HEAD_BYTES already: 1 to DXPU_PUSH_BYTES of them, with room
   for 3 more. */
void dxpu_push_data_message(const dxpu_push_rule *r, uint64_t address, uint16_t bytes,
                            uint8_t payload[DXPU_PUSH_PAYLOAD_MAX], dxpu_tlp *out);
/* Is it such a message?  1: yes; 0: it is another one; DXPU_E_ARG: it is malformed. */
int dxpu_push_offer_decode(const dxpu_tlp *t, dxpu_push_offer *out);
int dxpu_push_rule_decode(const dxpu_tlp *t, dxpu_push_rule *out);
/* out->data refers to the payload of t. */
int dxpu_push_data_decode(const dxpu_tlp *t, dxpu_push_data *out);

/* ==== 2  The host's table ===================================================================== */

typedef struct dxpu_push_entry {
    dxpu_push_rule rule; /* bytes 0: there is none */
    uint32_t next;       /* SINCE: the doorbell's last value */
} dxpu_push_entry;

typedef struct dxpu_push_table {
    dxpu_push_offer offer;
    unsigned count; /* of rules */
    dxpu_push_entry entry[DXPU_PUSH_RULES];
} dxpu_push_table;

/* What is to be read and pushed, in this order, ahead of a write. */
typedef struct dxpu_push_part {
    uint64_t address;
    uint16_t bytes;
} dxpu_push_part;

/* Another channel, or a reset of all that is behind it: there are no rules.  The offer is cut to
   what this implementation can keep. */
void dxpu_push_table_init(dxpu_push_table *t, const dxpu_push_offer *offer);
/* Make, replace or withdraw a rule.  DXPU_OK, or E_ARG: it is not one that the offer allows; one of
   the same number is then withdrawn. */
int dxpu_push_table_set(dxpu_push_table *t, const dxpu_push_rule *r);
/* A write that the host is about to forward: how many parts are to be pushed ahead of it, and by
   which rule.  At most one rule matches.  Call it once for each write in order. */
unsigned dxpu_push_table_match(dxpu_push_table *t, const dxpu_tlp *write,
                               dxpu_push_part out[DXPU_PUSH_PARTS], const dxpu_push_rule **rule);

/* ==== 3  The box's store ====================================================================== */

enum { DXPU_PUSH_CHUNKS = 32 };

#define DXPU_PUSH_COUNTERS(X)                                                                      \
    X(pushes, "arrived and were kept")                                                             \
    X(taken, "bytes that were taken in place of a read")                                           \
    X(dropped, "arrived without a rule, of an earlier one, out of order, or without room")         \
    X(stale, "kept bytes that were dropped unused")

/* Pushed bytes that were not taken yet. */
typedef struct dxpu_push_chunk {
    uint64_t address; /* of the first one left */
    uint16_t at, left;
    uint8_t rule;
    uint8_t data[DXPU_PUSH_BYTES];
} dxpu_push_chunk;

typedef struct dxpu_push_kept {
    dxpu_push_rule rule; /* bytes 0: there is none */
    uint32_t next; /* SINCE: the entry at which the next push has to begin, UINT32_MAX: none */
    uint16_t room; /* bytes that may still be pushed before the doorbell arrives */
    bool fresh;    /* AT: pushed after the last doorbell */
} dxpu_push_kept;

typedef struct dxpu_push_store {
    dxpu_push_offer offer;
    unsigned rules;      /* in kept[] */
    unsigned held;       /* chunks in use */
    uint32_t generation; /* of the rule made last */
    dxpu_push_kept kept[DXPU_PUSH_RULES];
    dxpu_push_chunk chunk[DXPU_PUSH_CHUNKS];
#define DXPU_PUSH_FIELD(name, text) uint64_t name;
    struct {
        DXPU_PUSH_COUNTERS(DXPU_PUSH_FIELD)
    } count;
#undef DXPU_PUSH_FIELD
} dxpu_push_store;

/* Begin; nothing is offered. */
void dxpu_push_store_init(dxpu_push_store *s);
/* A reset that the host knows of: rules and what was pushed are gone; offer and counters stay. */
void dxpu_push_store_clear(dxpu_push_store *s);
/* An offer of the host: rules and what was pushed are gone. */
void dxpu_push_store_offer(dxpu_push_store *s, const dxpu_push_offer *offer);
/* Make a rule, whose number and generation are assigned: *r is then to be sent to the host
   (dxpu_push_rule_message).  Its number, or E_ARG: it is invalid, or the host offers less. */
int dxpu_push_store_add(dxpu_push_store *s, dxpu_push_rule *r);
/* Withdraw one, with what was pushed for it: *out is then to be sent to the host.  False: there is
   none. */
bool dxpu_push_store_remove(dxpu_push_store *s, unsigned number, dxpu_push_rule *out);
/* Data that the host has pushed.  False: dropped. */
bool dxpu_push_store_arrived(dxpu_push_store *s, const dxpu_push_data *d);
/* A write that arrives, before the device acts on it. */
void dxpu_push_store_rang(dxpu_push_store *s, const dxpu_tlp *write);
/* In place of a read: how many of `bytes` bytes from `address` on were pushed, which are copied and
   gone.  0: the device has to read. */
uint32_t dxpu_push_store_take(dxpu_push_store *s, uint64_t address, uint32_t bytes, uint8_t *to);
/* The device reads or writes this memory itself: what was pushed of it is dropped. */
void dxpu_push_store_touch(dxpu_push_store *s, uint64_t address, uint32_t bytes);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_PUSH_H_INCLUDED */
