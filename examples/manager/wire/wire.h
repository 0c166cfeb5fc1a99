/* wire.h - the manager's port for proxies
   SPDX-License-Identifier: MIT

   TCP connections that proxies make: hello, register, heartbeats, alarms arrive and are reported to
   the core; what the core orders goes out, and the answers go back to it.  A proxy that breaks a
   rule, is silent for three heartbeats, or leaves an order without an answer, loses its connection,
   no more; it may reconnect.

   One identity has one connection.  The same proxy (same instance) that connects again takes the
   place of its old connection.  Another instance with that identity is refused while the old one
   still speaks: a restarted proxy gets in when the old connection is over, after three heartbeats
   at the latest, and a copied identity file never drives out the proxy that has it. */
#ifndef WIRE_H_INCLUDED
#define WIRE_H_INCLUDED

#include "core.h"
#include "secure_stream.h"
#include "stats.h"

enum { WIRE_PORT = 4457 };

typedef struct wire_settings {
    const char *listen;    /* ADDR:PORT ["127.0.0.1:4457"] */
    keys *keys;            /* of proxies that can register; stays the caller's */
    unsigned connections;  /* at a time [4,096] */
    unsigned heartbeat_ms; /* proxies send one so often [1,000] */
    unsigned status_ms;    /* each proxy is asked for its slots' counters so often [5,000] */
    void *user;
    /* A proxy's answer to that; of many slots in several. */
    void (*on_status)(void *user, uint32_t node, const dxpu_control_status *st);
} wire_settings;

void wire_settings_default(wire_settings *set); /* the values in brackets */

typedef struct wire wire;

/* What is wrong with an address to listen at, and stays so; NULL: nothing. */
const char *wire_check(const char *listen, const keys_settings *k);
/* Listen.  NULL after a message on stderr with the remedy; says where it is. */
wire *wire_open(struct event_base *base, core *c, const wire_settings *set);
/* All connections end, which is not reported to the core; the proxies go on as they are. */
void wire_close(wire *w); /* NULL: nothing */

/* The keys were read again: nodes that lost the right to register or to their name are cut. */
void wire_recheck(wire *w);

/* core_clock() with the time of now: first in every callback that calls the core. */
void wire_clock(core *c);
/* Hear new proxies that had to wait, send what the core orders: after each turn of the loop. */
void wire_pump(wire *w);

/* Were there several proxies, and did all of them fall silent?  Another manager may be reached. */
bool wire_is_cut_off(const wire *w);

#define WIRE_COUNTERS(X)                                                                           \
    X(hellos, "greetings of proxies")                                                              \
    X(registers, "registers taken")                                                                \
    X(registers_refused, "registers refused")                                                      \
    X(keys_refused, "registers refused: the key may not, or is not the identity's")                \
    X(names_refused, "registers refused: the name is another key's, or not that of its line")      \
    X(paths_refused, "registers refused: a box of another key is reached there")                   \
    X(replaced, "connections that the same proxy replaced by another")                             \
    X(doubles, "registers refused: another instance with that identity is connected")              \
    X(heartbeats, "heartbeats answered")                                                           \
    X(alarms, "alarms passed to the core")                                                         \
    X(orders, "orders sent")                                                                       \
    X(done, "of them, those that were done")                                                       \
    X(refused, "of them, those that the proxy refused")                                            \
    X(statuses, "statuses received")                                                               \
    X(errors_sent, "messages answered with an error")                                              \
    X(bad, "messages that could not be read, or were not to be sent then")                         \
    X(unasked, "answers to what was not asked")                                                    \
    X(ignored, "messages of unknown types that may be ignored")                                    \
    X(silent, "connections ended: no heartbeat received")                                          \
    X(unanswered, "connections ended: an order was not answered")

typedef struct wire_counters {
#define WIRE_COUNTER(name, text) uint64_t name;
    WIRE_COUNTERS(WIRE_COUNTER)
#undef WIRE_COUNTER
} wire_counters;

void wire_report(const wire *w, report *r);

#endif /* WIRE_H_INCLUDED */
