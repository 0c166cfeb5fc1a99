/* core_internal.h - what the files core*.c share: private tables, timers, the transaction
   SPDX-License-Identifier: MIT

   core.c          opening, time, views
   core_tables.c   heaps, hashes, the tables of what was sent to proxies
   core_load.c     tables out of the store, and what of the former ones lives on
   core_record.c   records as JSON
   core_store.c    the transaction
   core_events.c   events
   core_history.c  which of them are kept, and how much each key may make the pool do
   core_nodes.c    what proxies say
   core_paths.c    whose an address is
   core_reach.c    boxes that serve no lease, and which host reaches which box
   core_slots.c    what follows for a slot or a lease
   core_orders.c   what proxies are ordered
   core_retain.c   what is kept for a lease, how long; the clock that leases end by
   core_requests.c what users and operators ask for
   core_adopt.c    leases that the store does not know */
#ifndef CORE_INTERNAL_H_INCLUDED
#define CORE_INTERNAL_H_INCLUDED

#include <jansson.h>

#include "core.h"

enum {
    COREI_FORMAT = 2, /* of the records; 1 knows nothing of what is retained */
    COREI_MODELS_MAX = 1024,
    COREI_HOST_SLOTS_MAX = 4096,
    COREI_ABSENT_MS = 35000,       /* a box refuses hosts of a device that is absent, and says so
                                      after 30 s (S-242) */
    COREI_REFUSE_MS = 1000,        /* after a failed commit */
    COREI_DIAL_MS = 5000,          /* a proxy's longest back-off: so late it may be back */
    COREI_FOLLOW_COMMITS = 8,      /* between two looks at the time, of what registers cause */
    COREI_START_MS = 8000,         /* from the start: so late all proxies are back that run */
    COREI_YIELD_MS = 2000,         /* for a host to give up a slot before the box ends the lease */
    COREI_LEAVE_MS = 25000,        /* more, where the host says that it is closing: its guest is
                                      asked to let go of the device, for 20 s (V-47) */
    COREI_RETRY_MS = 100,          /* doubling to COREI_RETRY_MAX_MS */
    COREI_RETRY_MAX_MS = 5000,     /* of an order that was refused */
    COREI_SAVE_MS = 3600000,       /* between two writes of how much retention time is left */
    COREI_REPLACE_MS = 1000,       /* to look again for a slot in place of a broken one */
    COREI_RIVAL_MS = 10000,        /* for a proxy to be back before a copy of it gets its place */
    COREI_ENLARGE_MS = 60000,      /* for a node to get more slots again; */
    COREI_ENLARGE_UNITS = 1000000, /* and any other, in a pool of that many slots */
    COREI_CONNECTS = 128,          /* of one key at once: all its identities, twice; */
    COREI_CONNECT_MS = 1000,       /* then so often */
    COREI_CHANGES = 64, /* of one key in a second, and one for each slot: see settle_report() */
    COREI_ALARMS = 10,  /* of one key in a second; further ones are dropped */
    COREI_TOLD = 64,    /* keys whose refusal an event reports, in */
    COREI_TOLD_MS = 3600000,
    COREI_REFUSALS = 3,    /* of one order: then the slot's lease goes elsewhere */
    COREI_DOUBTS = 256,    /* of boxes and hosts, at once */
    COREI_DOUBT_WAITS = 6, /* times reach_ms: half of how long the first doubt lasts */
    COREI_KEY_NODES = 64,  /* that one key may register: a node for each guest of a proxy */
    COREI_NO_REPORT = 0xff
};
/* JSON has 63 bits.  Epochs begin at the time of day in microseconds, which is not believed beyond
   a quarter of that.  A proxy is believed up to what the pool has given itself, or that many
   microseconds (35 years) beyond the clock: so none can use up the others' epochs, and there is
   room above for all leases that ever are. */
#define COREI_EPOCH_MAX       ((uint64_t)1 << 62)
#define COREI_EPOCH_CLOCK_MAX (COREI_EPOCH_MAX / 4)
#define COREI_EPOCH_AHEAD     ((uint64_t)1 << 50)
#define COREI_TERM_MAX        ((uint64_t)1 << 60)
#define COREI_SERIAL_MAX      ((int64_t)1 << POOL_SERIAL_BITS)
#define COREI_SERIALS         256                 /* of leases, in a second of the clock */
#define COREI_EPOCH_SALT      ((uint64_t)1 << 30) /* how far apart runs begin: 18 minutes, */
#define COREI_SERIAL_SALT     ((uint64_t)1 << 16) /* and 4 */
#define COREI_LEASES          ((uint32_t)1 << 20) /* of a store, or as many as slots */
#define COREI_EVENT_MAX       ((uint64_t)1 << 62) /* that a store may have; more are to come */

/* -- Tables -- */

/* What is due when, by a number below a limit: binary heap. */
typedef struct corei_heap {
    uint64_t *due;        /* by number */
    uint32_t *at, *place; /* numbers in the heap's order; by number, 1 + where, 0: not in it */
    uint32_t count;
} corei_heap;

bool corei_heap_init(corei_heap *h, uint32_t limit);
void corei_heap_free(corei_heap *h);
void corei_heap_set(corei_heap *h, uint32_t number, uint64_t due);
void corei_heap_remove(corei_heap *h, uint32_t number);
uint64_t corei_heap_due(const corei_heap *h); /* UINT64_MAX: nothing */

/* Numbers by the hash of a name: lists. */
typedef struct corei_hash {
    uint32_t *head, *next; /* numbers, CORE_NONE: end */
    uint32_t mask, room;
} corei_hash;

bool corei_hash_init(corei_hash *h, uint32_t expected);
void corei_hash_free(corei_hash *h);
bool corei_hash_add(corei_hash *h, uint32_t hash, uint32_t number); /* false: out of memory */
void corei_hash_remove(corei_hash *h, uint32_t hash, uint32_t number);
uint32_t corei_hash_name(const char *tenant, const char *key);
/* What boxes keep of a slot's lease, and of whose it is (M-174); 0: it has none. */
uint64_t corei_tenant_word(const core *c, const char *name);
void corei_name_lease(const core *c, uint32_t slot, uint64_t *lease, uint64_t *tenant);

/* A slot, a port or a node in its dealings with its proxy ("unit"). */
typedef struct corei_work {
    bool queued;  /* in the queue of those to look at */
    bool out;     /* an order is under way */
    bool refused; /* the event was made */
    uint8_t tries;
    uint16_t kind; /* of the last order, and what it said */
    uint64_t epoch;
    uint64_t not_before_ms; /* to say the same again */
} corei_work;

typedef enum corei_direct {
    COREI_DIRECT_ON,
    COREI_DIRECT_OFF,
    COREI_DIRECT_UNKNOWN,
    COREI_DIRECT_NOT /* the box does not know the order */
} corei_direct;

/* What its proxy refused, of a slot or a port, in a row. */
typedef struct corei_refusal {
    uint64_t epoch;
    uint16_t code; /* DXPU_CONTROL_CODE_* */
    uint8_t count;
} corei_refusal;

typedef struct corei_slot {
    uint32_t port;            /* that has it or had it last; CORE_NONE: not known */
    uint64_t up_epoch;        /* the lease epoch in which it was up */
    uint64_t known_epoch;     /* of its lease, before its box reported a later one; 0: unknown */
    uint64_t yield_ms;        /* until then its host may give it up; 0: not asked yet */
    uint64_t wipe_told;       /* the instance of its box that was ordered this wipe; 0: none was */
    bool reset;               /* an order to be given, */
    uint64_t reset_epoch;     /* of the lease that there was; 0: none */
    uint64_t repair_epoch;    /* an operator has the device wiped that stands there; 0: no */
    uint64_t repair_instance; /* of its box, then */
    bool silent; /* broken in the pool alone, until its box has reported: see corei_hide_silent() */
    bool counts; /* its retention time runs, */
    uint64_t since_ms, ran_ms; /* since then, and has run before that */
    bool data_unsaved;         /* what its box says of its data, or its attributes, is not stored */
    bool agreed; /* its box has reported, since the start, the lease that the store has: so the
                    store is not an old copy in what it says of the slot; or an operator says so */
    /* The lease that is its host's, as its box said before this run ordered anything, or as an
       adoption found (M-179); 0: none. */
    uint64_t lent;
    bool late; /* its report is not acted upon yet: its box said much, or the store has no room */
    uint64_t asked_ms;                  /* when the last bind went out, */
    corei_refusal refusal;              /* and what came back */
    uint64_t blamed_epoch;              /* somebody was, for the failure of this lease */
    bool veiled;                        /* see corei_choose() */
    uint8_t direct;                     /* corei_direct: as its box knows it, */
    bool forbids;                       /* and as events have it, over connections */
    uint64_t offered_epoch, offered_to; /* the last attach: its epoch, and the host's instance */
    dxpu_control_device *other;         /* what stands there now, when it is not what is stored */
} corei_slot;

typedef struct corei_port {
    uint32_t before;              /* the slot that it is to give up; CORE_NONE: none is known */
    bool moved;                   /* since it was attached its box is reached elsewhere */
    corei_refusal refusal;        /* of attaches */
    uint64_t dial_ms, dial_epoch; /* without a channel since, for this lease; 0: it has one */
} corei_port;

typedef struct corei_node {
    uint8_t drain_told;  /* as the box knows it; COREI_NO_REPORT: unknown */
    uint64_t gone_ms;    /* a box: given up then, unless it is back; 0: it is here */
    uint32_t party;      /* whose it is: see corei_party_of(); 0: not looked up yet */
    uint64_t enlarge_ms; /* not before then has it more slots */
    uint64_t joined_ms;  /* when its connection began, */
    uint64_t left_ms;    /* and when the last one ended */
    uint64_t rival;      /* another instance, seen while this one lived; 0: none */
    bool unsaved;        /* what its registers said of it is not in the store */
    bool joined;         /* what follows from its register is done at the end of the batch */
    uint16_t missing;    /* slots of a registration that has begun */
    uint16_t told_total; /* slots that it is about */
    dxpu_control_device *told;
    bool *got;
} corei_node;

typedef struct corei_tables {
    void *memory; /* the pool's */
    pool *pool;
    core_node *node;
    core_slot *slot;
    core_port *port;
    core_lease *lease;
    core_tenant *tenant;
    core_model *model;
    uint32_t *host_node; /* by the pool's host */
    corei_node *node_more;
    corei_slot *slot_more;
    corei_port *port_more;
    uint8_t *lease_seen; /* the state that events reported */
    corei_work *work;    /* of slots, then ports, then nodes */
    uint32_t *queue;     /* units to look at, a ring */
    uint32_t queue_first, queued;
    uint32_t nodes, ports, models;
    uint32_t node_room, port_room, units;
    uint32_t highest_node; /* number ever given */
    uint32_t no_directs;   /* boxes and tenants with no_direct */
    /* Up to it another store may have given epochs; the pool's above it are this one's. */
    uint64_t foreign_epoch;
    corei_heap expiry; /* leases, time of day */
    corei_heap timers; /* units, the time that never jumps */
    corei_hash tenant_by_name, lease_by_key;
} corei_tables;

enum {
    COREI_MARKS_MAX = 4 * POOL_COUNT_MAX + 64 + POOL_BOX_SLOTS_MAX,
    COREI_TX_EVENTS = 2 * POOL_COUNT_MAX + 32,
    COREI_REGISTER_CHANGES = 8 /* of a register, but for its slots: its node, meta, events */
};

typedef enum corei_kind {
    COREI_META,
    COREI_NODE,
    COREI_SLOT,
    COREI_LEASE,
    COREI_TENANT,
    COREI_SPARES
} corei_kind;

enum { COREI_PARTY_BYTES = CORE_NAME_BYTES + 1, COREI_DROPS_MAX = COREI_TX_EVENTS };

/* A key (without one, a node) or a tenant: what it made the pool do. */
typedef struct corei_party {
    char id[COREI_PARTY_BYTES];
    uint32_t events; /* of it that are kept, */
    uint64_t oldest; /* none of which is before this position */
    /* In a second that began then: changes of the store by reports, alarms. */
    uint64_t change_ms, changes, alarm_ms, alarms;
    uint64_t connects_ms; /* its connections are paid for until then, at their rate */
} corei_party;

/* Events in the order of their numbers, at positions that grow: a ring. */
typedef struct corei_history {
    core_event *event;
    uint32_t *whose; /* party */
    uint32_t most, room, count;
    uint64_t first, end; /* positions */
    uint64_t last;       /* number; 0: there was none */
    corei_party *party;  /* the first is the manager's own */
    uint32_t parties;
    uint64_t drop[COREI_DROPS_MAX]; /* numbers of those whose records are to be deleted */
    unsigned drops;
} corei_history;

/* A box without a host: it fails with whoever tries it.  A host without a box: the same.  Both, by
   their numbers: the host does not reach that box. */
typedef struct corei_doubt {
    uint32_t host, box;
    bool refuses, silent; /* the box does not bind; and does not even answer */
    bool own;             /* of a host and a box: the host refuses, the box may be good */
    bool judged;          /* the box was struck for it */
    bool several;         /* of a box: hosts of more than one party do not reach it */
    bool ended;           /* it is remembered alone: how often it was so */
    uint16_t code;        /* DXPU_CONTROL_CODE_* */
    uint8_t strikes;
    uint64_t since_unix_ms, last_ms;
    uint64_t until_ms, end_ms, forget_ms; /* not lent; lent last; as any, but not forgotten */
} corei_doubt;

typedef struct corei_told {
    uint64_t since_ms; /* when counting began */
    unsigned count;    /* since then, and which: */
    uint8_t key[COREI_TOLD][DXPU_CONTROL_KEY_BYTES];
} corei_told;

typedef struct corei_mark {
    corei_kind kind;
    uint32_t index;
} corei_mark;

struct core {
    store *store;
    core_settings set;
    uint64_t unix_ms, mono_ms, open_ms; /* now, and when it was opened */
    /* Epochs up to the first were in the store; those of this run are above the second; what is
       between them may have been given from another store, of which this one is a backup. */
    uint64_t stored_epoch, first_epoch;
    uint64_t first_serial; /* of a lease */
    bool serials_ahead;    /* it is not by the clock, which stands back: see corei_serial_limit() */
    uint64_t term;         /* of this run; stored: in the store, too (M-144) */
    bool term_stored;
    bool no_direct;            /* as the manager before this one had it, which is stored */
    uint64_t offset_ms;        /* unix_ms - mono_ms, as it is believed; modulo 2^64 */
    uint64_t serial_offset_ms; /* the highest that it was: by it serials have their time */
    uint64_t drift_ms;         /* when that followed the clock's drift last */
    uint64_t last_unix_ms;     /* the latest time of day that is stored */
    bool held, unsure;         /* no lease expires; and where the clock should be is not known */
    bool held_told;
    bool older;          /* the store's format is an earlier one */
    bool shares;         /* a box has slots with the same data: see corei_is_withheld() */
    bool shares_no_more; /* one had such slots, and may be the last: to be looked at */
    uint64_t
        save_ms; /* when what is left of retention times is stored again; UINT64_MAX: nothing */
    corei_tables t;
    /* the transaction: records that changed, keys of those to delete, events */
    corei_mark mark[COREI_MARKS_MAX];
    unsigned marks;
    char gone[COREI_MARKS_MAX][32];
    unsigned gones;
    char new_key[POOL_BOX_SLOTS_MAX][32];
    json_t *new_record[POOL_BOX_SLOTS_MAX];
    unsigned news;
    core_event told[COREI_TX_EVENTS];
    unsigned tolds;
    bool batch, pending; /* changes may wait for others: see core_batch(); and some do */
    bool lost;           /* and some of the batch were not made */
    core_event spare;    /* of a change with more events than those: the rest is not reported */
    corei_history history;
    uint64_t commits, loads; /* how many there were */
    bool failed, dead;       /* the last commit failed; the disk's contents are unknown */
    uint64_t refuse_until_ms;
    uint64_t enlarge_ms;           /* see may_enlarge() */
    bool full;                     /* and that was reported: see check_room() */
    corei_told names, paths, keys; /* keys that were refused theirs; keys: with a node's number */
    corei_doubt doubt[COREI_DOUBTS];
    unsigned doubts;
    char failure[256];
};

core_result corei_result(core_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
core_result corei_pool_result(int rc);

/* Units. */
uint32_t corei_slot_unit(uint32_t slot);
uint32_t corei_port_unit(const core *c, uint32_t port);
uint32_t corei_node_unit(const core *c, uint32_t node);
void corei_touch(core *c, uint32_t unit);                     /* look at it for orders */
void corei_look_at(core *c, uint32_t unit, uint64_t mono_ms); /* then, or earlier if it was so */
void corei_touch_slot(core *c, uint32_t slot);                /* and the port that is to have it */
void corei_touch_node(core *c, uint32_t node);                /* and all its slots */

/* -- Records (core_record.c) -- */

json_t *corei_node_json(const core *c, uint32_t node);
json_t *corei_slot_json(const core *c, const pool_slot *s, const core_slot *box);
json_t *corei_lease_json(const core *c, uint32_t lease);
json_t *corei_event_json(const core_event *e);
bool corei_node_read(json_t *j, core_node *out);
/* For which lease a slot keeps data; 0: none. */
typedef struct corei_owner {
    uint64_t lease;
    char tenant[CORE_NAME_BYTES];
    unsigned place;
    bool older; /* the record does not say whether the slot was up */
} corei_owner;
bool corei_slot_read(json_t *j, core_slot *out, pool_slot *was, corei_owner *owner);
bool corei_event_read(json_t *j, core_event *out);

/* Makes names of devices words, as requests and the store's keys need them: `_` for other
   characters. */
void corei_clean_name(char *text);
void corei_clean_model(char *model); /* under its name of now */

typedef struct corei_lease_record {
    char tenant[CORE_NAME_BYTES], model[CORE_MODEL_BYTES];
    uint32_t host; /* number; 0: parked */
    uint8_t need, count;
    uint8_t device; /* pool_device */
    bool exclusive, apart;
    uint64_t peer;
    uint32_t node[POOL_COUNT_MAX]; /* numbers */
    uint16_t slot[POOL_COUNT_MAX];
    core_lease rest;
} corei_lease_record;
bool corei_lease_read(json_t *j, corei_lease_record *out);

/* -- Attributes (core_tables.c) -- */

/* The pool's device of the slot is the one that its attributes name. */
void corei_set_device(corei_tables *t, uint32_t slot);

/* What was found of the slot before, for the next slot: most are of the same box and drive. */
typedef struct corei_seen {
    bool any, keeps; /* a slot of the box keeps data */
    bool withheld;   /* the slot */
    uint32_t node, slot;
} corei_seen;

/* Returns a filter of slots that have these attributes and are not withheld; NULL: all are such
   slots. `wanted` and the filter are the caller's. */
typedef struct corei_wanted {
    const core *core;
    const char *attributes;
    bool direct; /* not of a box that forbids it */
    corei_seen memory, *seen;
    pool_filter filter;
} corei_wanted;
const pool_filter *corei_filter(const core *c, const char *attributes, bool direct,
                                corei_wanted *wanted);
/* Returns the filter of the lease that has the slot. */
const pool_filter *corei_lease_filter(const core *c, uint32_t slot, bool direct,
                                      corei_wanted *wanted);

/* -- Directly or through the host (core_direct.c) -- */

/* May requests of the leased slot's device pass by its host? */
bool corei_is_direct(const core *c, uint32_t slot);
/* Checks a peer: the lease must exist, and be of this tenant and host. */
core_result corei_check_peer(const core *c, const core_request *r, uint32_t tenant, uint32_t host);
/* Reports, in the first change of a manager, that what the one before forbade is allowed. */
void corei_tell_allowed(core *c);
/* Looks again at what follows for all slots that are lent, as far as is known. */
void corei_touch_leased(core *c);
/* The manager starts.  What is forbidden was reported when it was carried out. */
void corei_direct_load(core *c);
/* A box has registered.  What managers ordered before this connection no longer holds for its
   slots. */
void corei_direct_begin(core *c, uint32_t node);
/* Its box has carried out the order, or does not know it. */
void corei_direct_done(core *c, uint32_t slot, bool on);
void corei_direct_unknown(core *c, uint32_t slot);

/* -- Orders (core_orders.c) -- */

/* Return the number of the slot of an order, 0: none; and the epoch that it gives or takes, 0:
   none. */
uint16_t corei_order_slot(const dxpu_control *m);
uint64_t corei_order_epoch(const dxpu_control *m);

/* -- Store (core_store.c) -- */

/* A key as the store wants it; room for a tenant's name. */
typedef struct corei_key {
    char text[80];
} corei_key;
corei_key corei_key_of(const core *c, corei_mark m);
/* What its record has; NULL: out of memory. */
json_t *corei_json_of(const core *c, corei_mark m);

/* -- Load (core_load.c) -- */

/* Loads the tables from the store, in place of the present ones.  These stay after an error. */
core_result corei_load(core *c);
/* The same where the present tables are not what the store has: after an error nothing is done with
   them any more. */
core_result corei_reload(core *c);
core_result corei_load_events(core *c);
void corei_tables_free(corei_tables *t);
bool corei_tables_init(corei_tables *t, const pool_limits *l, uint32_t ports);
/* Returns the index of a model, which is added if it is new (instead: it may get the place of one
   that nothing has any more); CORE_NONE: there is no room. */
uint32_t corei_model_for(corei_tables *t, const char *name, bool instead);
uint32_t corei_models_used(const corei_tables *t);
/* Sets the slots or ports of a node to what they are before anything is known of them. */
void corei_init_slots(corei_tables *t, uint32_t node);
void corei_copy_report(dxpu_control_device *to, const dxpu_control_device *from);

/* -- The transaction (core_store.c) -- */

/* Begins a change.  Nothing may be changed before it returns CORE_OK. */
core_result corei_begin(core *c);
void corei_mark_changed(core *c, corei_kind kind, uint32_t index);
/* Adds a record of what is in no table yet. */
void corei_mark_new(core *c, json_t *record, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void corei_mark_gone(core *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Commits all that was marked, and the events.  If that fails, everything is as before (loaded
   again). */
core_result corei_commit(core *c);
/* The same; in a batch it is committed later, with what else is marked until then. */
core_result corei_commit_later(core *c);
/* Commits what waits in a batch that has no room for `more` changes. */
core_result corei_make_room(core *c, unsigned more);
/* Returns when to try again what could not be changed. */
uint64_t corei_again_ms(const core *c);

/* -- Events (core_events.c) -- */

core_event *corei_event(core *c, core_event_type type, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void corei_event_node(core *c, core_event_type type, uint32_t node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void corei_event_slot(core *c, core_event_type type, uint32_t slot, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void corei_event_lease(core *c, core_event_type type, uint64_t lease, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void corei_events_keep(core *c); /* those of the transaction are durable */

/* -- What is kept of them (core_history.c) -- */

bool corei_history_init(corei_history *h, uint32_t events); /* false: out of memory */
void corei_history_free(corei_history *h);
void corei_history_keep(core *c, const core_event *e);
/* The same for an event from the store, before the tables are loaded; after they were: sort. */
void corei_history_load(core *c, const core_event *e);
void corei_history_sort(core *c);
/* Returns the party of a node: all nodes of its key.  Valid until the next call. */
corei_party *corei_party_of(core *c, uint32_t node);
/* The same for a key whose node may not be there yet. */
corei_party *corei_party_of_key(core *c, const uint8_t key[DXPU_CONTROL_KEY_BYTES]);
/* Is less than `most` counted in this second? */
bool corei_party_may(uint64_t *since_ms, uint64_t *count, uint64_t most, uint64_t now_ms);

/* -- Nodes (core_nodes.c) -- */

/* The node of this identity; CORE_NONE: it is unknown. */
uint32_t corei_node_of(const core *c, const dxpu_control_register *r);
/* core.c: core_find_node() of a box; CORE_NONE, too, where the number is a host's. */
uint32_t corei_find_box(const core *c, uint32_t number);
/* Is an event to report that this key was refused?  Once an hour of each. */
bool corei_may_tell(const core *c, corei_told *told, const uint8_t *key);
/* The node is not connected: it is given up after the grace period and `extra_ms`. */
void corei_node_gone(core *c, uint32_t node, uint64_t extra_ms);

/* -- Slots, leases (core_slots.c) -- */

/* Changes the pool as follows from what the proxy reported, or did not report for long. */
void corei_settle_slot(core *c, uint32_t slot);
void corei_settle_lease(core *c, uint32_t lease);
void corei_settle_free(core *c, uint32_t node);
/* Hides the free slots of a box while it is not connected: none is chosen.  No record says so,
   since it may be back in a moment. */
void corei_hide_silent(corei_tables *t, uint32_t node);
void corei_show_silent(corei_tables *t, uint32_t slot);
bool corei_node_given_up(const core *c, uint32_t node);
/* Stores what registers said of a node, if it is not stored yet. */
void corei_save_node(core *c, uint32_t node);
/* The host's port has a lease that the store does not know: it is left as it is. */
bool corei_port_foreign(const core *c, uint32_t port);
void corei_settle_port(core *c, uint32_t port);
/* M-74: returns the highest epoch that a proxy may say that it has seen. */
uint64_t corei_epoch_told_max(const core *c);
/* In a transaction: notes an epoch that a proxy knows. */
void corei_see_epoch(core *c, uint64_t epoch);
/* Does the box report a lease in the slot, or data of one?  The store may take the slot for free,
   or not know it. */
bool corei_has_data(const dxpu_control_device *d);
/* M-77: its box does not know whose data it has. */
bool corei_is_unknown(const dxpu_control_device *d);
/* Its box lost its state, and the data are still the lease's (M-77): it was up here, the store is
   no old copy, and the medium is the same. */
bool corei_is_own(const core *c, uint32_t slot);
/* M-98: may a slot that is to be wiped be wiped?  Not when its box does not know whose data it has,
   regardless of whether it said so before the decision or after, unless an operator has repaired
   it. */
bool corei_may_wipe(const core *c, uint32_t slot);
/* Can the slot be lent?  Its box has reported since the start, knows no lease that the store does
   not know, and knows whose data the slot has; and the manager has acted upon that. */
bool corei_can_lend(const core *c, uint32_t slot);
/* Does the box have the slot's lease: that epoch, for that host's slot? */
bool corei_is_bound(const core *c, uint32_t slot);
/* Does the box name another lease than this one for the slot?  One that names none does not
   (M-174). */
bool corei_names_other(const dxpu_control_device *d, uint64_t lease, uint64_t tenant);
/* The box reports the slot for the first time since the start: notes whether it is lent under the
   store's lease (M-179). */
void corei_note_lent(core *c, uint32_t slot);
void corei_bind_refused(core *c, uint32_t slot, uint64_t epoch, unsigned code);
/* May the slot's epoch be given to its host?  Not when another instance of the host learned of
   it. */
bool corei_may_offer(const core *c, uint32_t slot);
/* The slot was parked, and the store is a copy from before (M-74).  The box has ended that epoch
   and keeps this lease's data, for no other had it.  It accepts only a later epoch. */
bool corei_is_kept(const core *c, uint32_t slot);
/* Gives new epochs, in one batch, to this port and those behind it whose epochs another instance of
   the host may have. */
void corei_renew(core *c, uint32_t port);
/* In a transaction, by an operator.  CORE_E_CAPACITY: there is no other slot, or none that keeps
   the arrangement that the lease asks for. */
core_result corei_replace(core *c, uint32_t slot, pool_reason why, bool force);
/* In a transaction. */
core_result corei_recover(core *c, uint32_t slot);
void corei_discard(core *c, uint32_t slot, pool_reason why);
/* Does the lease's slot stay when its box is drained?  Then `why` is filled. */
core_result corei_may_move_out(const core_lease *l);
/* The slot was lent, and never came to its host: the lease has no data there. */
bool corei_never_served(const core *c, uint32_t slot);
/* It is broken and was not lent, and its box does not know what data it has: a repair wipes it
   first (M-77). */
bool corei_repair_finds_data(const core *c, uint32_t slot);
/* In a transaction: out of a box that is drained; the whole lease, when it asks for one box or
   group.  What it asks for holds then as before, or it stays, and an event says why. */
core_result corei_move_out(core *c, uint32_t slot);
/* In a transaction: the node is no longer a stranger. */
void corei_use_node(core *c, uint32_t node);
/* In a transaction: hosts' ports of a lease. */
bool corei_take_ports(core *c, uint64_t lease);
void corei_leave_ports(core *c, uint64_t lease);
void corei_end_lease(core *c, uint64_t lease, core_event_type type, pool_reason why);

/* Its box or the way there fails: its lease gets another slot, where it may and there is one. */
void corei_evade(core *c, uint32_t slot, pool_reason why);

/* -- Who reaches whom (core_reach.c) -- */

void corei_refused(corei_refusal *r, uint64_t epoch, unsigned code);
/* The host's report of a port has changed. */
void corei_note_dial(core *c, uint32_t port);
/* What a leased slot's box and host do not do has consequences: M-161. */
void corei_reach_slot(core *c, uint32_t slot);
/* Its host has a channel to its box; its box has carried out an order that it had to store. */
void corei_reached(core *c, uint32_t slot);
void corei_binds(core *c, uint32_t slot);
/* It refused one, still. */
void corei_binds_not(core *c, uint32_t slot);
/* The node is another one than the one in doubt: it was restarted, is elsewhere, or forgotten. */
void corei_reach_forget(core *c, uint32_t number, const char *why);
void corei_reach_tick(core *c);
uint64_t corei_reach_next_ms(const core *c);
/* As pool_choose() and its like: first without boxes that are in doubt, then with those that are
   lent last. */
int corei_choose(core *c, const pool_request *q, pool_choice *out);
int corei_choose_other(core *c, uint32_t slot, pool_other *out);
int corei_choose_all(core *c, uint64_t lease, pool_choice *out);
/* The attribute `subsystem` (M-155) of a slot that shares a drive, up to the next comma; "": it has
   none. */
const char *corei_subsystem_of(const dxpu_control_device *d);
/* A slot of a drive that others share (S-249), which its box binds to none: a tenant's data are
   kept there, and none of its slots is lent. */
bool corei_is_withheld(const core *c, uint32_t slot);
/* Is there a slot yet that may be? */
void corei_look_at_shares(core *c);
/* The same for one slot after the other, while nothing changes. */
bool corei_is_withheld_seen(const core *c, uint32_t slot, corei_seen *seen);
/* A free slot that is not lent to this host, for its box is in doubt. */
bool corei_is_kept_from(const core *c, uint32_t host, uint32_t slot);

/* -- Requests (core_requests.c) -- */

/* May one more lease be made by now (M-101)? */
core_result corei_may_number(const core *c);
/* In a transaction: the tenant of this name, which may be new; CORE_NONE: there is no room.  Slots
   and nodes may stand elsewhere then. */
uint32_t corei_tenant_for(core *c, const char *name);
void corei_drop_tenant(core *c, const char *name);

/* -- Retention (core_retain.c) -- */

/* In a transaction: the lease has ended and its data are kept. */
void corei_retire(core *c, uint64_t lease, core_event_type type, const char *why);
/* Does anything of it hold data? */
bool corei_lease_keeps_data(const core *c, uint64_t lease);
/* A slot has been taken out of its lease, or its box came or went: its time begins, goes on or
   stops. */
void corei_retain_begin(core *c, uint32_t slot);
void corei_retain_count(core *c, uint32_t slot);
/* The same of a lease that may have ended; what is retained for it has times of its own. */
void corei_retain_owner(core *c, uint32_t lease);
void corei_retain_lease(core *c, uint32_t lease);
/* What is over ends; true: that changed the slot. */
bool corei_retain_due(core *c, uint32_t slot);
/* What is left is stored: now and then, and at the end. */
void corei_retain_save(core *c);
/* The time of day by which leases begin and end. */
uint64_t corei_day_ms(const core *c);
/* The highest serial that a lease may get by now (M-101). */
uint64_t corei_serial_limit(const core *c);
void corei_clock_begin(core *c, bool held);
/* An event reports that expiries are held, once. */
void corei_clock_tell(core *c);

#endif /* CORE_INTERNAL_H_INCLUDED */
