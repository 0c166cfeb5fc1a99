/* wire_internal.h - the manager's proxies and what each may take: of wire.c and its tests
   SPDX-License-Identifier: MIT */
#ifndef WIRE_INTERNAL_H_INCLUDED
#define WIRE_INTERNAL_H_INCLUDED

#include "wire.h"

enum {
    WIRE_GREETING_BYTES = 512,   /* of a body before the proxy has registered: hello is shorter */
    WIRE_SEND_BYTES = 1 << 20,   /* may wait for a proxy: attach for each of 4,096 slots */
    WIRE_REGISTER_NS = 50000000, /* in a row for new proxies, which write to the disk */
    WIRE_LATER_BYTES = 1 << 20,  /* that a proxy may send while it waits for that: 8,000 slots; */
    WIRE_LATER_SHARES = 4,       /* all of one key so much together */
    WIRE_KEY_CONNECTIONS = 128   /* of one key at a time: an old and a new one of each identity */
};

/* An order that is out.  Its request number is its index, from 1, and the serial above that, so
   that a late or repeated answer meets nothing. */
typedef struct wire_order {
    core_order order;
    uint64_t sent_ns; /* 0: this place is free */
    uint32_t request;
    bool reported; /* that there is no answer */
} wire_order;

typedef struct wire_proxy {
    struct wire_proxy *next, **link;
    wire *owner;
    secure_conn *conn;
    dxpu_control_stream stream;
    uint8_t greeting[DXPU_CONTROL_HEADER_BYTES + WIRE_GREETING_BYTES];
    uint8_t *room; /* for any message, once it greeted */
    char program[CORE_NAME_BYTES];
    uint8_t role;
    bool greeted, over; /* over: closed() comes, or what was said is still being sent */
    /* its first register waits, so that heartbeats of others do not: */
    struct wire_proxy *next_held;
    struct evbuffer *later; /* what came after it; NULL: it does not wait */
    dxpu_control message;
    bool working, closed; /* outside its callbacks; and closed() came meanwhile */
    /* registered: */
    uint32_t node; /* 0: not */
    uint8_t identity[16];
    uint64_t instance, heard_ms;
    uint64_t rival, rival_ms; /* another instance that was refused, and since when; 0: none */
    wire_order *orders;
    unsigned places, free_place; /* free_place: where to look for one first */
    uint16_t serial;
    uint32_t ask; /* request number; 0: none is out */
    uint64_t ask_sent_ms, ask_next_ms;
    uint16_t ask_first, ask_total; /* what was asked for; slots by the first answer, 0: none yet */
} wire_proxy;

struct wire {
    struct event_base *base;
    core *core; /* NULL: wire_close() runs */
    wire_settings set;
    secure_listener *listener;
    struct event *scan;
    uint64_t scan_ms, scanned_ms; /* how often; when last */
    struct event *again;          /* some are held: the loop must not sleep */
    wire_proxy *held, **last_held;
    wire_proxy *going, **last_going; /* registered; what they have said since follows */
    bool follows;                    /* something does from registers: core_follow() */
    uint64_t register_ns;            /* spent since the last wire_pump() */
    wire_proxy *first;
    wire_proxy **by_node; /* in order of their numbers */
    unsigned nodes, room;
    unsigned
        silent; /* that were lost one after the other for their silence, and none heard since */
    wire_counters count;
    histogram answers;
    uint8_t out[DXPU_CONTROL_HEADER_BYTES + DXPU_CONTROL_BODY_MAX];
};

/* Of all proxies with this one's key, while their first register waits. */
size_t wire_kept_bytes(const wire_proxy *p);

#endif /* WIRE_INTERNAL_H_INCLUDED */
