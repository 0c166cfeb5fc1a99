/* keeper_internal.h - what a keeper holds, and the steps of its loop: of keeper.c and its tests
   SPDX-License-Identifier: MIT */
#ifndef KEEPER_INTERNAL_H_INCLUDED
#define KEEPER_INTERNAL_H_INCLUDED

#include "keeper.h"
#include "queue.h"

typedef struct keeper_slot {
    struct keeper *keeper;
    unsigned number;
    slot_line line;
    uint32_t life;   /* of the line, as the worker counts it */
    bool known;      /* a device has been here */
    bool up, ending; /* ending: CLOSE or RESET was sent */
    bool matched;    /* the first completion of `in`: with these */
    uint64_t request;
    bool last;
    tlp_queue in;          /* of the device, until the slot takes it */
    uint64_t unexpected;   /* completions without a request */
    uint16_t memory_bytes; /* 0: nothing is attached */
    uint8_t memory[KEEPER_MEMORY_BYTES];
    uint8_t shown;        /* state in the view */
    plug_view plugged;    /* as it was said last */
    bool leaving;         /* the guest is asked to let go of the device, until ... */
    uint64_t leave_ns;    /* ... at the latest; then it is detached, */
    uint8_t leave_reason; /* ... for this */
} keeper_slot;

typedef struct keeper {
    const keeper_settings *set;
    int parent;
    guest *guest; /* NULL until the first worker is there */
    keeper_slot *slots;
    crossing cross;
    bool linked;  /* there is a worker, */
    bool agreed;  /* and it has said hello */
    bool killed;  /* its end was asked for */
    bool stirred; /* it said something since the last turn */
    bool asked;   /* ... and that it wants the numbers */
    bool over, failed;
    uint64_t client[DXPU_VSWITCH_SLOTS_MAX]; /* number of the connection to each socket that the
                                                parent holds; 0: none */
    uint64_t unread_tail;                    /* of the worker, since unread_ns */
    uint64_t unread_ns;
    uint64_t workers; /* that there have been */
    int plugger;      /* the process that speaks QMP, -1: none */
} keeper;

/* 0, or -1 after a message. */
int keeper_open_slot(keeper *k, unsigned i);
/* What the worker has said since; true: something.  about_to_block: it is to wake this one. */
bool keeper_hear_worker(keeper *k, bool about_to_block);
/* It has ended: what it said last counts, its slots are empty, what waits for it is answered. */
void keeper_lose_worker(keeper *k);
/* One that does not read is ended. */
void keeper_watch_worker(keeper *k, uint64_t now);
/* Another worker, whose memory these are; another process that speaks QMP. */
void keeper_on_link(keeper *k, const int *fds, unsigned count);
void keeper_on_plug(keeper *k, const int *fds, unsigned count);
/* What that process receives about the slots, and sends. */
void keeper_share_plugs(keeper *k, uint64_t now);
void keeper_hear_plugger(keeper *k);
void keeper_close_plugger(keeper *k);
/* When the first guest that was asked to let go of a device is not waited for any longer. */
uint64_t keeper_next_leave_ns(const keeper *k);
/* What status shows. */
void keeper_show_all(keeper *k);
/* One turn; true: something happened. */
bool keeper_turn(keeper *k, uint64_t now);

#endif /* KEEPER_INTERNAL_H_INCLUDED */
