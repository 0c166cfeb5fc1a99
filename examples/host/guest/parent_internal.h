/* parent_internal.h - the processes that a parent has, and what it does with one: of parent.c and
   its test
   SPDX-License-Identifier: MIT */
#ifndef PARENT_INTERNAL_H_INCLUDED
#define PARENT_INTERNAL_H_INCLUDED

#include "parent.h"

#include <sys/types.h>

/* From the end of a worker to the next one: a guest is to see that its slots are empty before they
   are filled again.  Twice as long each time that a worker ends before it has served. */
#define PARENT_PAUSE_MIN_NS 1000000000u
#define PARENT_LASTED_NS    10000000000u /* of one that speaks QMP: then it has served */
enum { PARENT_DESCRIPTORS = 256 };       /* besides those of the guests' connections */
enum { PARENT_MESSAGES = 16 }; /* of a keeper, a turn: another one's worker is not to wait for it */

typedef struct parent_child {
    pid_t pid; /* 0: there is none */
    int socket;
} parent_child;

typedef struct parent_keeper {
    parent_child c;
    int held[DXPU_VSWITCH_SLOTS_MAX];   /* the guest's connections, -1: none */
    bool open;                          /* a guest can connect */
    parent_child plugger;               /* speaks QMP */
    uint64_t plug_ns;                   /* when that is started; 0: it runs, or is not to */
    uint64_t plugged_ns, plug_pause_ns; /* when it was started last; from its end to the next one */
} parent_keeper;

typedef struct parent {
    const parent_settings *set;
    int signals;
    parent_keeper keeper[PARENT_GUESTS_MAX];
    parent_child worker;
    bool again; /* a worker has served: the next one is a restart */
    bool heard; /* this one has said something, or closed its socket: no more is read from it */
    bool served, ready;
    uint8_t key[CROSSING_KEY_BYTES]; /* of workers */
    uint64_t start_ns, pause_ns, end_ns;
    uint64_t stop_ns;      /* when a worker that was asked to end is ended; 0: it was not */
    bool stopping, ending; /* ending: the keepers were notified, too */
    int status;
} parent;

/* 0 in the child, called `name`, its end of the socket in *end; 1 in the parent; -1 after a
   message. */
int parent_start(parent *p, parent_child *c, const char *name, int *end);
void parent_close(int *fd);
void parent_tell_keeper(const parent_child *keeper, char kind, const int *fds, unsigned count);
/* The nth keeper has said something; its plugger has ended. */
void parent_on_keeper(parent *p, unsigned n);
void parent_on_plugger_end(parent *p, unsigned n, int status);
/* It holds each connection of each guest, and so does the guest's keeper (V-33); 64 guests with 28
   sockets are more than the usual 1,024. */
void parent_raise_limit(const parent_settings *set);

#endif /* PARENT_INTERNAL_H_INCLUDED */
