/* card_wire.h - the sockets of one card or its software: TLPs over UDP as spec/foreign.md has them
   SPDX-License-Identifier: MIT

   Two ends exchange TLPs: NetTLP's adapter and its software, or a card with RawUDP and what feeds
   it.  Each TLP is of an exchange that one of them began: a request of this end and its
   completions are `ours`, one of the other end `theirs`.

   Datagrams of another address or port are not received (N-10).  What arrives was decoded strictly;
   nothing else about it is to be believed.  Nothing is sent again, and what cannot be sent now is
   lost, as it may be on the way. */
#ifndef CARD_WIRE_H_INCLUDED
#define CARD_WIRE_H_INCLUDED

#include "dxpu_foreign.h"
#include "stats.h"

typedef struct card_wire card_wire;

typedef struct card_wire_callbacks {
    void *user;
    /* A request of the other end, or a completion of a request of ours. */
    void (*tlp)(void *user, const dxpu_tlp *t);
    /* There is room for a further request of the other end.  False: they stay in the sockets, or
       are lost there, until card_wire_work() is called with room again. */
    bool (*room)(void *user);
    /* The adapter's end: fill in what was asked for.  NULL: no questions are answered. */
    void (*question)(void *user, dxpu_nettlp_answer *a);
    /* The software's end: an answer to card_wire_ask(). */
    void (*answer)(void *user, const dxpu_nettlp_answer *a);
} card_wire_callbacks;

typedef struct card_wire_settings {
    bool raw;          /* RawUDP, else NetTLP */
    bool adapter;      /* NetTLP: this end behaves as the adapter, else as the software */
    bool spans;        /* RawUDP: TLPs may go on in the next datagram (N-5) */
    const char *peer;  /* address of the other end */
    const char *local; /* of this one; NULL: any */
    unsigned tags;     /* NetTLP: tags of the software that have a port here, 1..256 */
} card_wire_settings;

/* What is wrong with an address of peer or local; NULL: nothing. */
const char *card_wire_check(const char *address);
/* NULL after a message. */
card_wire *card_wire_open(const card_wire_settings *s, const card_wire_callbacks *cb);
void card_wire_close(card_wire *w);
/* Readable when card_wire_work() has something to do. */
int card_wire_descriptor(const card_wire *w);
/* Take what arrived, at most for a short while. */
void card_wire_work(card_wire *w);
/* Drop what arrived and is not given yet, but for messages.  As much as a turn takes is dropped at
   once, and the rest before anything else is taken from its socket.  What comes later is given,
   but for some of it where a socket that was not emptied at once never becomes empty. */
void card_wire_forget(card_wire *w);
/* There was no room for requests of the other end. */
bool card_wire_is_paused(const card_wire *w);
/* ours: its exchange was begun here.  False: it cannot be sent. */
bool card_wire_send(card_wire *w, const dxpu_tlp *t, bool ours);
/* The largest payload of a TLP to the other end. */
uint32_t card_wire_payload(const card_wire *w);
/* The software's end: ask for DXPU_NETTLP_BAR4..; RawUDP: let the card know where this end is. */
void card_wire_ask(card_wire *w, unsigned what);
void card_wire_report(const card_wire *w, report *r);

#endif /* CARD_WIRE_H_INCLUDED */
