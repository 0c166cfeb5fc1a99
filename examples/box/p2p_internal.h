/* p2p_internal.h - what p2p.c and p2p_link.c share
   SPDX-License-Identifier: MIT */
#ifndef P2P_INTERNAL_H_INCLUDED
#define P2P_INTERNAL_H_INCLUDED

#include "p2p.h"
#include "slots.h"

enum {
    INBOX_TLPS = 128,        /* posted, and as many requests */
    INBOX_REQUESTS = 128,    /* of other devices, not yet completed */
    INBOX_COMPLETIONS = 1024 /* that wait or may still come */
};

typedef struct p2p_tlp {
    struct p2p_tlp *next;
    uint64_t order; /* over all classes of this inbox */
    uint32_t life;  /* of the sender */
    uint16_t from;  /* its index */
    uint16_t len;
    uint8_t bytes[];
} p2p_tlp;

typedef struct p2p_queue {
    p2p_tlp *head, **tail;
    unsigned count;
} p2p_queue;

/* links_...: to and from slots of other boxes; refused: allowed no more when they were to be
   delivered, or the other device took nothing. */
#define P2P_COUNTERS(X)                                                                            \
    X(links_out)                                                                                   \
    X(links_in)                                                                                    \
    X(links_refused)                                                                               \
    X(links_ended)                                                                                 \
    X(out)                                                                                         \
    X(in)                                                                                          \
    X(refused)                                                                                     \
    X(unanswered)                                                                                  \
    X(lists)                                                                                       \
    X(lists_refused)

enum { P2P_LINK = 0x8000, P2P_LINKS = 28 };
enum { P2P_LINKS_EACH = P2P_CHANNELS - 1 }; /* one more while one takes another's place */

/* A channel to the box of a neighbor that is in another one. */
typedef struct p2p_link {
    slot *s;
    uint8_t neighbor; /* its slot of the host */
    bool dials;       /* this end does, again when it has ended */
    bool ready;       /* the opener has said which slots it is for */
    bool said;        /* this end, the opener, has */
    bool wrote;       /* the device has, in this channel */
    unsigned tries;
    uint64_t dial_ns;     /* when, without a channel */
    uint64_t up_ns;       /* since when there is this one */
    fabric_channel *c;    /* NULL: none */
    uint64_t stuck_ns;    /* when requests that wait for room are given up; 0: none wait */
    uint64_t early_ns[2]; /* posted, requests: when what is not listed yet is; 0: none waits */
    unsigned behind;      /* writes that the host's TLPs arrive behind, and are not taken yet */
    unsigned owed;        /* completions that the neighbor's requests may still bring */
    uint32_t life;        /* another one after each channel */
    dxpu_p2p_place place; /* as the list has it */
    dxpu_tags asked;      /* requests of this slot's device */
    dxpu_tag_entry entries[INBOX_REQUESTS];
    /* Epochs of the slot of which the first channel, the first invalid TLP were logged. */
    uint64_t linked, warned;
} p2p_link;

/* A request whose answer would arrive too late. */
typedef struct p2p_late {
    uint64_t until_ns;
    uint16_t requester, tag;
} p2p_late;

struct p2p {
    dxpu_p2p_list list;
    uint16_t to[DXPU_P2P_WINDOWS]; /* number of the box's slot of each; 0: none has it */
    uint64_t seen;                 /* shard.p2p_changes when `to` was made */
    p2p_queue in[DXPU_CLASSES];
    uint64_t order;              /* of the TLP put in last */
    uint64_t mark;               /* what the host has sent comes behind this one of the inbox, */
    unsigned behind;             /* and these writes of all links, which are not there yet; */
    unsigned pass[DXPU_CLASSES]; /* TLPs of the host that this is about */
    bool again;                  /* another turn has work, and nothing else says so */
    uint64_t stuck_ns;           /* when what waits for room is given up; 0: nothing waits */
    uint64_t fence_ns; /* when what waits for p2p_links_dirty() does so no longer; 0: nothing */
    bool clogged;      /* it was: until the device takes something */
    uint32_t life;     /* another one after each reset, and in each incarnation */
    unsigned owed;     /* completions that requests of the device may still bring */
    dxpu_tags asked;   /* requests of other slots' devices */
    dxpu_tag_entry entries[INBOX_REQUESTS];
    p2p_late late[INBOX_REQUESTS];
    unsigned late_at;
    uint64_t late_ns;          /* until then there is one of these; 0: none */
    uint64_t dial_ns;          /* of any of them, not before this */
    unsigned dialed;           /* which one was the last, from 0 */
    unsigned links;            /* of these */
    p2p_link *link[P2P_LINKS]; /* by the neighbor's slot of the host, from 1; NULL: none */
#define P2P_FIELD(name) uint64_t name;
    struct {
        P2P_COUNTERS(P2P_FIELD)
    } count;
#undef P2P_FIELD
};

/* A channel of the slot, or of one of its links, has work that no datagram of its own brings. */
static inline void p2p_stir(const slot *s, fabric_channel *c)
{
    c->more = true;
    fabric_stir_channel(&s->shard->fabric, c);
}

/* p2p.c: put a TLP into the inbox of a slot, of P2P_LINK | neighbor or a slot's index.  False:
   out of memory. */
bool p2p_put(slot *to, unsigned cls, dxpu_bytes tlp, uint16_t from, uint32_t life);
/* A request of a link's other end: into the inbox; false: there is no room. */
bool p2p_asked_by(p2p_link *l, const dxpu_tlp *t, dxpu_bytes tlp, uint64_t now_ns);

/* p2p_link.c: a request of the device to a slot in another box: as p2p_submit(). */
int p2p_link_request(slot *s, unsigned neighbor, const dxpu_tlp *t, dxpu_bytes tlp,
                     uint64_t now_ns);
/* May the neighbor ask for these completions?  Only while there is room for all that it has asked
   for: what it does not take holds up none of the device's answers to others. */
bool p2p_link_may_ask(const p2p_link *l, unsigned completions);
/* There is room for what has come by the slot's links and waits for it. */
void p2p_links_wake(const slot *s);
/* Writes on their way to another box than that of `but`, 0: to any (B-14). */
bool p2p_links_dirty(const slot *s, unsigned but);
/* End those. */
void p2p_links_break(slot *s, unsigned but);
/* End all, with a reason by which each end reports what is lost (B-15). */
void p2p_links_revoke(slot *s);
/* NULL: it has ended. */
p2p_link *p2p_link_of(const slot *s, unsigned neighbor, uint32_t life);
void p2p_link_send(p2p_link *l, dxpu_bytes tlp, uint64_t now_ns);
/* A new list, a reset, the end. */
void p2p_links_list(slot *s);
void p2p_links_end(slot *s);
void p2p_links_free(slot *s);
/* Take what has come, and dial. */
void p2p_links_work(slot *s, uint64_t now_ns);
/* Count the writes that have come, and wait for room in the inbox. */
void p2p_links_compare(slot *s);
/* The largest payload that the ports of the list's slot and another one pass; 0: not listed. */
unsigned p2p_payload_bytes(const dxpu_p2p_list *l, unsigned neighbor);
uint64_t p2p_links_next_ns(const slot *s);
unsigned p2p_links_up(const slot *s);

#endif /* P2P_INTERNAL_H_INCLUDED */
