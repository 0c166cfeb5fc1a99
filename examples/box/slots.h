/* slots.h - the slots of a box: a device each, its lease, and the channel that reaches it
   SPDX-License-Identifier: MIT */
#ifndef SLOTS_H_INCLUDED
#define SLOTS_H_INCLUDED

#include "control.h"
#include "device.h"
#include "fabric.h"
#include "guard.h"
#include "jobs.h"
#include "limit.h"
#include "manager_link.h"
#include "plan.h"
#include "refusal.h"
#include "worker.h"
#include "state.h"

/* A TLP of the device that the channel had no room for. */
typedef struct waiting_tlp {
    struct waiting_tlp *next;
    uint64_t order; /* in which the device emitted them, over all classes */
    size_t len;
    uint8_t bytes[];
} waiting_tlp;

typedef struct waiting_queue {
    waiting_tlp *head, **tail;
} waiting_queue;

/* Of a loop: room for the TLPs of its devices while the system has no memory. */
enum { RESERVE_TLPS = 512 };

typedef struct waiting_reserve {
    uint8_t *memory; /* RESERVE_TLPS of the longest ones; pages never used cost nothing */
    waiting_tlp *free;
    unsigned fresh; /* how many were ever used: those behind have not been touched */
} waiting_reserve;

/* Notices to the device of requests that were refused, in a ring. */
enum { SLOT_ANSWERS = 256 };

/* A lease that a host's open makes once it is on disk (S-165): without a manager. */
typedef struct opening {
    fabric_channel *channel; /* that is let in then, and waits; NULL: there is none */
    dxpu_box_entry entry;    /* the slot's, then */
} opening;

/* What a manager's order, the end of a wipe, or another device makes of a lease once it is on
   disk. */
typedef struct lease_change {
    enum { CHANGE_NONE, CHANGE_BIND, CHANGE_UNBIND, CHANGE_WIPED, CHANGE_DEVICE } by;
    dxpu_box_entry entry;
    uint8_t phase;
    state_key key;
    bool keep; /* of unbind */
} lease_change;

struct shard;
struct shots;
struct arrival;
struct p2p;

/* A device on its way into a slot. */
typedef struct slot_device {
    const device_kind *kind;
    device_settings set; /* some of its texts are these: */
    char files[16384], layout[4096], tap[PLAN_TAP_BYTES];
    char serial[32], model[PLAN_MODEL_MAX + 1];
    char attributes[DEVICE_ATTRIBUTES_BYTES]; /* from the operator */
    char sharing[DEVICE_ATTRIBUTES_BYTES];    /* with which slots it shares its device */
    void *device;                             /* NULL: not made */
} slot_device;

typedef struct slot {
    struct shard *shard; /* whose loop it is in */
    const device_kind *kind;
    void *device;
    device_port port;
    struct event *ready;                      /* its descriptor's; NULL: it has none */
    char model[PLAN_MODEL_MAX + 1];           /* its name for users */
    char attributes[DEVICE_ATTRIBUTES_BYTES]; /* what distinguishes it from others of its model */
    device_ids ids;          /* of its model; 0: not known before its server is there */
    bool keeps;              /* its device has data that a reset leaves */
    bool absent;             /* as device_port.present said */
    bool missing;            /* so for longer than a restart of its server takes */
    struct event *waits;     /* until then */
    jobs jobs;               /* the device's, by */
    jobs_lane *lane;         /* of the box's pool; NULL: its loop waits for disks */
    atomic_uint ended;       /* how many are over */
    unsigned ended_seen;     /* of them, by the loop */
    struct arrival *arrival; /* of hot_plug.c; NULL: no device comes or leaves */
    fabric_channel *active;  /* the incarnation that reaches the device; NULL: none */
    fabric_paths past;       /* of channels that are over */
    waiting_queue queues[DXPU_CLASSES];
    unsigned waiting;     /* TLPs in them */
    unsigned in_reserve;  /* of these */
    unsigned turned_away; /* in this turn */
    dxpu_guard guard;     /* of what the device sends */
    struct p2p *p2p;      /* to and from other slots of the box; NULL: no host has listed any */
    bool indirect;        /* no request reaches it, or leaves it, but through the host (B-16) */
    limit limit;
    uint64_t limited_ns; /* when more may leave; DXPU_NEVER: the limit holds nothing up */
    uint64_t alarmed;    /* the epoch whose first refusal was reported */
    uint8_t (*answers)[REFUSAL_BYTES]; /* its part of the box's notices */
    unsigned answers_head, answers_tail;
    uint64_t taken[DXPU_CLASSES]; /* TLPs given to the device or refused */
    uint64_t emitted;             /* TLPs of the device */
    uint64_t waited;              /* of them, queued for want of room */
    uint64_t reserved;            /* of these, kept in the reserve for want of memory */
    uint64_t malformed;           /* refused by the strict decoder */
    uint64_t dropped;             /* of a device whose host was gone */
    uint32_t incarnations;        /* channels that came up */
    int last_error;               /* of the one that ended last */
    uint8_t last_reason;
    char serial[32];
    uint64_t identity;                  /* of its device; a further function has that one's */
    char subsystem[PLAN_MODEL_MAX + 1]; /* "": its data are its alone */
    bool leaves;                        /* its wipe is of what others do not use */
    bool erases;                        /* what others share, since its wipe began */
    bool erased;                        /* at least in part, through another; not lent since */
    bool broken;                        /* what it keeps its data on fails */
    bool elsewhere;    /* its lease's data are on another medium than is here (M-67): */
    uint8_t its_phase; /* also of before a device came or left, until that is written */
    uint64_t its_medium;
    bool unfit;       /* what is kept about its data does not fit them (S-163) */
    bool drained;     /* takes no new lease */
    bool wipe_begins; /* with the next step */
    bool wipe_waits;  /* for the manager to order it again (M-105) */
    bool owned;       /* without a manager: the lease is of the key that opened it */
    uint8_t owner[DXPU_NOISE_KEY_BYTES];
    opening opening;      /* at most one of the two is under way */
    lease_change change;  /* with a manager */
    uint32_t fenced_node; /* who was refused last, and reported */
    uint64_t fenced_epoch;
} slot;

/* A loop with its port, and the slots in it: each shards-th one from number index + 1 on.  With
   several of them each runs in a thread of its own, which alone touches the shard, its slots, and
   their elements of the box's arrays (shards.h); the rest of the box stays as it is meanwhile, or
   is the first thread's. */
typedef struct shard {
    struct box *box;
    unsigned index;
    worker *worker;
    fabric fabric;
    int wake;            /* eventfd: jobs of its devices are over, or of the state file */
    atomic_uint ended;   /* how many are: of all lanes */
    unsigned ended_seen; /* of them, by the loop */
    struct event *woken; /* NULL: none yet */
    jobs writes;         /* of the state file */
    jobs_lane *lane;     /* theirs; NULL: they are done here */
    jobs_queue written;  /* there */
    uint32_t node;
    waiting_reserve reserve;
    unsigned wiping;      /* slots */
    unsigned plugs;       /* slots whose device comes or leaves */
    unsigned p2p_slots;   /* that have a p2p */
    uint64_t p2p_changes; /* of lists and channels: who reaches whom is looked up again */
    uint64_t refused_epoch, refused_slot, refused_key;
    bool told_key; /* the first of these */
    bool stopping;
    uint64_t stop_ns;
} shard;

typedef struct box {
    keys *keys;
    shard *shards;
    unsigned shard_count;
    dxpu_box_table table;
    dxpu_box_entry *entries;
    slot *slots;
    uint8_t (*notices)[REFUSAL_BYTES]; /* SLOT_ANSWERS of each slot, none touched at first */
    unsigned count;                    /* of slots */
    bool hot_plug;                     /* devices may come and go */
    bool p2p;                          /* channels to other boxes that hosts name, and from them */
    unsigned disk_threads;             /* of each slot at once; 0: its loop waits for disks */
    jobs_pool *pool;                   /* NULL: there are none */
    dxpu_guard_allowed allowed;        /* what every device may, besides what is usual */
    uint64_t limit_tlps, limit_bytes;  /* a second, of each lease; 0: none */
    uint32_t node;                     /* at first; its manager may give another */
    char address[DXPU_UDP_TEXT_BYTES]; /* where it listens, the first of them */
    const char *state_file;            /* leases, kept over restarts; NULL: not kept */
    state_file *state;                 /* that file; NULL: not kept */
    /* Of each slot, while its host has no channel: DXPU_CONTROL_SLOT_HELD..UNWIPED of a manager's
       leases, else _EMPTY. */
    uint8_t *phase;
    state_key *lease_key; /* of each slot, that of a manager's lease: all others are refused */
    uint64_t *medium;     /* of each slot, what its device keeps its data on; 0: not known */
    bool managed;         /* it has a manager: only that one's leases are admitted */
    bool directed;        /* some slot may be `indirect`; of the first thread */
    uint8_t identity[IDENTITY_BYTES];
    const char *model;       /* NULL: the device kind's name */
    const slot_plans *plans; /* NULL: no slot has its own */
    int starter;             /* of devices in processes of their own; 0: none is */
    int *renderers;          /* of each slot: of render_start(); 0: none.  NULL: none has one */
    int *connectors;         /* of each slot; 0: none.  NULL: devices start their own */
    unsigned group_slots;    /* 0: no groups */
    dxpu_udp_address advertised[DXPU_CONTROL_PATHS_MAX];
    unsigned advertised_count; /* 0: where it listens */
    recorder record;
    bool stopping;
    struct event_base *base; /* of the following, and of signals */
    requests *requests;      /* NULL: neither port nor manager */
    struct answers *answers; /* for it; NULL: none yet */
    control *control;        /* NULL: none */
    struct shots *shots;     /* NULL: they are not shown */
    manager_link *manager;   /* NULL: none */
} box;

/* From 1. */
static inline unsigned slots_number(const slot *s)
{
    return (unsigned)(s - s->shard->box->slots) + 1;
}

/* Start the processes that connect to servers of slots, while there is no secret that they would
   have a copy of.  0, or an exit status after a message. */
int slots_connectors(box *b);
/* Make the slots with a device of `kind` each, unless a plan says otherwise, when the shards are
   open, and read the state file.
   0, or an exit status after a message. */
int slots_open(box *b, const device_kind *kind, const device_settings *s);
void slots_close(box *b);

/* Which loop a slot is in. */
shard *slots_shard(const box *b, unsigned number);

/* Find out what a slot's device is to be, and make it: this may wait for a disk, and touches
   nothing of the slot.  plan NULL: of `kind`, by these settings.  0, or -1 after a message. */
int slots_prepare(const box *b, unsigned index, const slot_plan *plan, const device_kind *kind,
                  const device_settings *set, slot_device *out);
void slots_create(slot *s, slot_device *d);
/* Put one that was made into its slot.  0, or -1 after a message: then it is still d's. */
int slots_install(slot *s, slot_device *d);

/* The fabric's callbacks; user is the shard. */
uint8_t slots_authorize(void *user, const dxpu_offer *offer, const uint8_t *key,
                        dxpu_channel_config *cfg);
void slots_up(void *user, fabric_channel *c, uint64_t now_ns);
bool slots_work(void *user, fabric_channel *c, uint64_t now_ns);
void slots_down(void *user, fabric_channel *c, uint64_t now_ns);

sealing_known slots_known(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
bool slots_allowed(void *user, const fabric_channel *c, const uint8_t key[DXPU_NOISE_KEY_BYTES]);
/* When TLPs that the limit holds up may leave, or slots_written() has more to do; DXPU_NEVER:
   neither. */
uint64_t slots_next_ns(const shard *sh);
/* Go on with what is on disk now: in each turn of the loop. */
void slots_written(shard *sh);

/* End the channel of a slot, whatever its lease, and reset the device. */
void slots_end(slot *s, uint8_t reason);
/* A TLP of the device is refused: a request is answered in this turn. */
/* Drop those that wait, and are. */
void slots_drop_completions(slot *s, bool (*is)(slot *s, dxpu_bytes tlp));
void slots_answer(slot *s, dxpu_bytes tlp);
/* There was none for a TLP that must not be lost: the channel ends. */
void slots_no_memory(slot *s);
/* DXPU_CONTROL_SLOT_*, by its own channel, lease and wipe; leases_state() is what is reported. */
uint8_t slots_state(const slot *s);
/* manager_proxy.paths; user is the box.  Those of the first shard. */
unsigned slots_paths(void *user, const dxpu_udp_address *here,
                     dxpu_control_address out[DXPU_CONTROL_PATHS_MAX]);

/* For control_proxy.slot. */
void slots_describe(const box *b, unsigned number, dxpu_control_slot *out);
/* Rows of what a slot shows, as device_kind.picture.  DXPU_CONTROL_CODE_NONE, or why not. */
unsigned slots_picture(const box *b, unsigned number, uint8_t *rgb, unsigned row, unsigned rows,
                       unsigned *width, unsigned *height);
void slots_report(const box *b, unsigned number, report *r);

#endif /* SLOTS_H_INCLUDED */
