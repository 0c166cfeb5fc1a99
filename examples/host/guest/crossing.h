/* crossing.h - memory between the process that faces the guest and the one that faces the fabric
   SPDX-License-Identifier: MIT

   Two rings of records, one each way, credits for what the receiver has room for, and what the
   keeper reports for statistics.  Neither end trusts the other: positions, lengths and credits
   are looked at before they are used, records are copied before they are read, and an end that
   finds the other wrong takes nothing more (S-181).  Records that carry TLPs and events need a
   credit of their slot and class, so a slot whose line is full holds up no other one.

   An end that is about to block says so; a peer that writes to one that looks by itself makes no
   system call.  What wakes it is a byte in a pipe: the two ends of a pipe are two files, so that
   neither process can make the other one's block (S-202), as it could with an eventfd that both
   have.  An object belongs to one thread.

   CONTENTS   1 Records   2 Shared memory   3 One end */
#ifndef CROSSING_H_INCLUDED
#define CROSSING_H_INCLUDED

#include "dxpu_vswitch.h"

#include <stdatomic.h>

/* ==== 1  Records ============================================================================== */

enum { CROSSING_VERSION = 1 };

enum {
    /* both ways */
    CROSSING_HELLO, /* the first one: crossing_hello; the keeper's answer is READY */
    CROSSING_TLP,   /* arg: class */
    /* worker to keeper */
    CROSSING_UP,      /* the line is up, and this its life; payload: whose device, for people */
    CROSSING_DOWN,    /* it is over */
    CROSSING_BEGIN,   /* another device is to stand there; payload: attachment_memory */
    CROSSING_DETACH,  /* close it gracefully; arg: DXPU_REASON_* */
    CROSSING_FORGET,  /* the attachment is over */
    CROSSING_NUMBERS, /* write the numbers for a report */
    /* keeper to worker */
    CROSSING_EVENT,    /* payload: dxpu_event */
    CROSSING_CLOSE,    /* behind all before it; arg: DXPU_REASON_* */
    CROSSING_RESET,    /* at once; arg: DXPU_REASON_* */
    CROSSING_REMEMBER, /* what an earlier worker had attached; payload: as in BEGIN */
    CROSSING_READY,    /* all that there was to remember */
    CROSSING_KINDS
};

typedef struct crossing_hello {
    uint32_t version, slots;
    uint32_t record_bytes, memory_bytes; /* of crossing_record and crossing_memory */
} crossing_hello;

typedef struct crossing_record {
    uint16_t bytes; /* of the payload */
    uint8_t kind;   /* CROSSING_* */
    uint8_t arg;
    uint32_t slot; /* 1..; 0: of none */
    uint32_t life; /* of the line: what belongs to an earlier one is dropped */
    uint32_t zero;
} crossing_record;

enum { CROSSING_PAYLOAD_MAX = DXPU_TLP_MAX_BYTES };

/* Of the key that workers alone have: what a keeper remembers for them is theirs (S-184). */
enum { CROSSING_KEY_BYTES = 32 };

/* ==== 2  Shared memory ======================================================================== */

enum {
    CROSSING_RING_BYTES = 1 << 20,
    CROSSING_RESERVE = CROSSING_RING_BYTES / 4, /* of it, for what needs no credit */
    CROSSING_EVENTS = DXPU_CLASSES,             /* the credit of link events */
    CROSSING_CREDITS = DXPU_CLASSES + 1,
    CROSSING_TLPS = 512, /* of a slot and class that a receiver has room for */
    CROSSING_EVENTS_MAX = 16,
    CROSSING_TAPE_BYTES = 256 << 10,
    CROSSING_NOTE_BYTES = 64
};

/* What one end writes. */
typedef struct crossing_side {
    _Alignas(64) _Atomic uint64_t head;   /* bytes put into `ring` since the beginning */
    _Alignas(64) _Atomic uint64_t tail;   /* bytes taken from the other end's */
    _Atomic uint32_t returned;            /* changes when credits were given back */
    _Alignas(64) _Atomic uint32_t asleep; /* write to its pipe */
    _Atomic uint32_t hungry;              /* ... also when credits were given back */
    _Alignas(64) _Atomic uint32_t taken[DXPU_VSWITCH_SLOTS_MAX][CROSSING_CREDITS];
    _Alignas(64) uint8_t ring[CROSSING_RING_BYTES];
} crossing_side;

/* How the guest takes a device, for status. */
typedef struct crossing_view {
    _Atomic uint32_t life;  /* of the line that this is about */
    _Atomic uint32_t state; /* GUEST_* */
    _Atomic uint64_t to_device, from_device, dropped, msis_refused;
    char note[CROSSING_NOTE_BYTES];
} crossing_view;

typedef struct crossing_memory {
    crossing_side keeper, worker;
    crossing_view view[DXPU_VSWITCH_SLOTS_MAX]; /* the keeper's */
    _Atomic uint32_t tapes;                     /* reports that the keeper has written */
    _Atomic uint32_t tape_bytes;
    char tape[CROSSING_TAPE_BYTES];
} crossing_memory;

/* ==== 3  One end ============================================================================== */

typedef struct crossing {
    crossing_memory *mem;
    crossing_side *mine, *other;
    int wake, wake_other; /* of pipes: readable when there is news; to be written to */
    bool deaf;            /* the other end is gone: `wake` says so for ever */
    uint64_t head, tail;  /* as mine has them; the other end cannot change these */
    uint32_t returned;    /* of the other end's, when looked at last */
    uint32_t sent[DXPU_VSWITCH_SLOTS_MAX][CROSSING_CREDITS];
    uint32_t got[DXPU_VSWITCH_SLOTS_MAX][CROSSING_CREDITS];
    uint32_t taken[DXPU_VSWITCH_SLOTS_MAX][CROSSING_CREDITS]; /* of what came, done with */
    bool broken; /* the other end is not to be believed */
    uint8_t payload[CROSSING_PAYLOAD_MAX];
} crossing;

/* What a record with that payload takes of the ring. */
enum { CROSSING_ALIGN = sizeof(crossing_record) };
static inline uint64_t crossing_record_bytes(uint32_t payload)
{
    return sizeof(crossing_record) +
           (payload + CROSSING_ALIGN - 1) / CROSSING_ALIGN * (uint64_t)CROSSING_ALIGN;
}

/* What travels to a process. */
typedef struct crossing_fds {
    int memory;               /* memfd */
    int keeper[2], worker[2]; /* the pipe that wakes each, as of pipe() */
} crossing_fds;
enum { CROSSING_FDS = 5 };

/* Memory of a fixed size for both ends.  0, or -1 with errno. */
int crossing_create(crossing_fds *out);
void crossing_close_fds(crossing_fds *fds);
/* Be one end.  It takes over the descriptors, also when it fails; 0, or -1 with errno. */
int crossing_open(crossing *c, const crossing_fds *fds, bool is_keeper);
void crossing_close(crossing *c);

/* Is there room for a TLP or event of this class (CROSSING_EVENTS) and slot?  Without it the other
   end will wake this one. */
bool crossing_room(crossing *c, unsigned slot, unsigned cls);
/* Append a record; one with a credit takes it.  False: there is no room at all. */
bool crossing_put(crossing *c, const crossing_record *r, const void *payload);
/* The next record, its payload in c->payload.  False: there is none, or the other end is broken. */
bool crossing_get(crossing *c, crossing_record *out);
/* What came in a record with a credit is done with. */
void crossing_return(crossing *c, unsigned slot, unsigned cls);
/* Is there anything new?  about_to_block: and if there is not, `wake` notifies from now on. */
bool crossing_news(crossing *c, bool about_to_block);
/* `wake` was readable.  With `deaf` set there is no use in waiting for it any more. */
void crossing_woken(crossing *c);
/* Wake the other end, for what it finds outside the rings. */
void crossing_nudge(crossing *c);
/* Bytes that the other end has not taken yet. */
uint64_t crossing_unread(const crossing *c);

#endif /* CROSSING_H_INCLUDED */
