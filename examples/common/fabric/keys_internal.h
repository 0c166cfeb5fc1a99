/* keys_internal.h - the public keys that a program knows: of keys.c and its tests
   SPDX-License-Identifier: MIT */
#ifndef KEYS_INTERNAL_H_INCLUDED
#define KEYS_INTERNAL_H_INCLUDED

#include "keys.h"

#include <pthread.h>
#include <stdio.h>

typedef struct keys_table {
    keys_peer *rows;         /* by key */
    const keys_peer **named; /* those with a name, by it */
    unsigned count, room, named_count;
} keys_table;

/* The newest timestamp of a public key, by its owner's clock (S-93). */
typedef struct keys_stamp {
    uint8_t key[DXPU_NOISE_KEY_BYTES];
    uint64_t newest;
    bool passing; /* keys_fresh_passing() */
} keys_stamp;

struct keys {
    keys_settings set;
    dxpu_noise_pair *own;
    bool own_new;
    bool abandoned;        /* keys_abandon() */
    pthread_mutex_t mutex; /* of the following */
    keys_table peers;
    keys_stamp *stamps; /* by key */
    unsigned stamps_count;
    unsigned generation;
    uint64_t wall_ns; /* last one given */
    keys_table next;  /* of keys_read(), without the mutex */
};

/* Add the lines of a file of peers: NULL, or what is wrong with line *number. */
const char *keys_table_read(keys_table *t, FILE *f, unsigned *number);
/* Before something is looked up: NULL, or what is wrong. */
const char *keys_table_sort(keys_table *t);
/* NULL: there is none. */
keys_peer *keys_table_find(const keys_table *t, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
const keys_peer *keys_table_find_name(const keys_table *t, const char *name, size_t len);
void keys_table_clear(keys_table *t);
/* What a line gives to its key. */
bool keys_has_slot(const keys_peer *p, uint16_t slot);
bool keys_is_at(const keys_peer *p, const dxpu_udp_address *a);

#endif /* KEYS_INTERNAL_H_INCLUDED */
