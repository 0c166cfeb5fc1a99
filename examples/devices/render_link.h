/* render_link.h - a display adapter's connection to its renderer
   SPDX-License-Identifier: MIT

   The renderer is started by a launcher (launcher.h), again whenever it ends, breaks a rule of
   render_wire.h or does not answer, later each time it lasts only a moment.  Nothing waits:
   render_link_tick() does what can be done. */
#ifndef RENDER_LINK_H_INCLUDED
#define RENDER_LINK_H_INCLUDED

#include "render_wire.h"

typedef struct render_capset {
    uint32_t version, bytes;
    uint8_t data[RENDER_CAPSET_BYTES];
} render_capset;

/* Called from render_link_tick() alone. */
typedef struct render_events {
    /* A request is done.  owner: as it was asked; NULL: disowned.  slot: its slot, the callee's to
       free, or -1. */
    void (*done)(void *user, void *owner, int slot, bool good);
    void (*result)(void *user, uint32_t resource, const uint8_t result[RENDER_RESULT_BYTES]);
    /* No request is answered any more, and no context or resource is there; slots are free after
       it, and nothing may be moved to or from them. */
    void (*lost)(void *user);
} render_events;

#define RENDER_COUNTERS(X)                                                                         \
    X(renderer_starts)                                                                             \
    X(renderer_ends)                                                                               \
    X(render_requests)                                                                             \
    X(render_results)

typedef enum render_state {
    RENDER_OFF,      /* the launcher is gone */
    RENDER_WAITING,  /* until due_ns */
    RENDER_STARTING, /* it is asked for */
    RENDER_OPENING,  /* it has not said READY */
    RENDER_RUNNING
} render_state;

typedef struct render_link {
    int launcher; /* 0: none; -1: gone */
    int watch, socket;
    uint8_t *memory;
    const render_events *on;
    void *user;
    render_state state;
    bool used;           /* this one was asked for something */
    uint32_t generation; /* of renderers */
    uint32_t number;     /* of the last request */
    unsigned pending;
    struct {
        uint32_t number; /* 0: free */
        int slot;
        void *owner;
    } request[RENDER_PENDING];
    bool taken[RENDER_SLOTS];
    uint64_t now_ns, due_ns, wait_ns;
    uint64_t ready_ns, since_ns;          /* it is READY; it was asked or answered last */
    render_capset capset[RENDER_CAPSETS]; /* masked */
#define RENDER_FIELD(name) uint64_t name;
    struct {
        RENDER_COUNTERS(RENDER_FIELD)
    } count;
#undef RENDER_FIELD
} render_link;

/* launcher: of launcher_start(), the link's; 0: there is none, and never a renderer.  *l is zeroed.
   0, or -1: no descriptor; render_link_close() is called in both cases. */
int render_link_open(render_link *l, int launcher, const render_events *on, void *user);
void render_link_close(render_link *l);
int render_link_descriptor(const render_link *l);       /* readable when there is work */
bool render_link_tick(render_link *l, uint64_t now_ns); /* true when anything was done */
/* The end of this renderer, if it was used: nothing that it knows outlives that.  lost() is not
   called. */
void render_link_renew(render_link *l);

/* A slot; -1: none is free, or there is no renderer now. */
int render_link_slot(render_link *l);
uint8_t *render_link_at(const render_link *l, int slot);
void render_link_free(render_link *l, int slot);
/* False: another request has to wait until one is answered. */
bool render_link_place(const render_link *l);
/* Ask.  slot: that the words name, or -1.  False: it cannot be asked now. */
bool render_link_ask(render_link *l, void *owner, uint32_t op, uint32_t context, uint32_t resource,
                     int slot, unsigned count, const uint32_t *words);
void render_link_disown(render_link *l, const void *owner);
/* False: a renderer will be there in a moment, so that it is worth waiting for. */
bool render_link_settled(const render_link *l);

#endif /* RENDER_LINK_H_INCLUDED */
