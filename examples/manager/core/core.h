/* core.h - the pool as the manager knows it: nodes, slots, leases, what is stored, what is ordered
   SPDX-License-Identifier: MIT

   All of the manager but its sockets.  The part that speaks to proxies (wire.h) reports here what
   they say, and carries out the orders that result.  The part that speaks to users (api.h) reads
   the tables and calls the requests.  The only I/O is the store's; time is what core_clock() was
   given.

   A request is durable when it returns CORE_OK: the records it changes are committed together.
   When the store refuses, everything is as before (it is loaded again).  Orders to proxies follow
   from comparing, slot by slot, the tables with the proxy's last report: they are given until both
   agree, and again after a restart of either side.

   CONTENTS   1 Results   2 Tables   3 Opening   4 From proxies   5 Orders   6 Requests
              7 Events */
#ifndef CORE_H_INCLUDED
#define CORE_H_INCLUDED

#include "dxpu_control.h"
#include "policy.h"
#include "store.h"

/* ==== 1  Results ============================================================================== */

typedef enum core_code {
    CORE_OK = 0,
    CORE_E_ARG,      /* a value out of its range */
    CORE_E_UNKNOWN,  /* no such node, slot, lease, tenant or model */
    CORE_E_QUOTA,    /* the tenant's quota is used up */
    CORE_E_CAPACITY, /* no such slots are free, or the host has too few */
    CORE_E_STATE,    /* it is in a state that does not allow this */
    CORE_E_AWAY,     /* the box that it is about is not connected */
    CORE_E_STORE,    /* nothing was changed: the store cannot write; try again in a second */
    CORE_E_DAMAGED,  /* of core_open(): the records are not what this program can load, ever */
    CORE_E_MEMORY,   /* nothing was changed: out of memory; try again in a second */
    CORE_E_PACE      /* nothing was changed: leases outpace their numbers (M-101); the same */
} core_code;

/* What a request led to; text is a sentence with the remedy, empty when it is CORE_OK. */
typedef struct core_result {
    core_code code;
    char text[256];
} core_result;

/* ==== 2  Tables =============================================================================== */

enum { CORE_NAME_BYTES = 65, CORE_MODEL_BYTES = 33, CORE_ATTRIBUTES_BYTES = 65 };
#define CORE_NONE UINT32_MAX

/* A proxy that registered once. */
typedef struct core_node {
    uint32_t number; /* 1.. */
    uint8_t role;    /* DXPU_CONTROL_ROLE_HOST or _BOX */
    uint8_t identity[16];
    char name[CORE_NAME_BYTES];    /* its --name */
    char program[CORE_NAME_BYTES]; /* "dxpu-box 0.2.0" */
    uint32_t pool_index;           /* of the pool's box or host */
    uint32_t first, total;         /* slots: indices into core_slots() or core_ports() */
    uint8_t paths;                 /* of a box: where hosts reach it */
    dxpu_control_address path[DXPU_CONTROL_PATHS_MAX];
    bool draining;               /* a box */
    bool no_direct;              /* no request of its devices passes by their hosts (M-182) */
    char owner[CORE_NAME_BYTES]; /* of a host: the tenant whose it is; "": unassigned */
    bool used;  /* some lease had a slot of it, or may have had before this was written down */
    bool keyed; /* key is known: that of its first sealed register (M-81) */
    uint8_t key[DXPU_CONTROL_KEY_BYTES];
    bool sealed;    /* its last register came under that key, so orders name it */
    bool connected; /* registered in whole, on a connection that lives */
    uint64_t instance;
    uint64_t since_unix_ms; /* connected, or not, since then */
} core_node;

/* A box's slot; its index is also the pool's. */
typedef struct core_slot {
    uint32_t node;              /* index into core_nodes() */
    dxpu_control_device device; /* as it was reported last; after a restart as it was stored */
    uint64_t stored_ms;  /* of core_slot_left_ms(), when it was stored last; 0: all of it is left */
    bool served;         /* its lease was up here: what the slot has is that lease's */
    uint64_t medium;     /* on which its box had its lease's data last; 0: unknown */
    bool repaired_empty; /* to be wiped: a medium that its box called `empty`, and no other */
    bool reported;       /* by the proxy, since this program runs */
} core_slot;

/* A host's slot. */
typedef struct core_port {
    uint32_t node;              /* index into core_nodes() */
    uint32_t slot;              /* the box's slot that it is to have; CORE_NONE: none */
    dxpu_control_device device; /* as it was reported last: state, epoch, peer */
    bool reported;
    bool foreign; /* it has a lease that the store does not know; it gets no orders */
} core_port;

/* When a lease gets another slot, without being asked, in place of one whose device or box fails.
   The slot that it leaves is retained when it keeps data. */
typedef enum core_replacing {
    CORE_REPLACE_DEFAULT, /* when the slot keeps no data over a reset */
    CORE_REPLACE_YES,
    CORE_REPLACE_NO
} core_replacing;

/* What belongs to a lease beside the pool's entry; its index is the pool's. */
typedef struct core_lease {
    char key[CORE_NAME_BYTES]; /* the creator's own name for it; unique for a tenant, may be "" */
    char attributes[CORE_ATTRIBUTES_BYTES]; /* that its slots must have; "": none */
    uint64_t created_unix_ms;
    uint64_t expires_unix_ms; /* 0: never */
    uint8_t replace;          /* core_replacing */
    uint32_t replaced;        /* how often a slot was exchanged, */
    uint32_t moved_node;      /* and which one last, by its box's number; 0: none, or unknown */
    uint16_t moved_slot;
    uint8_t moved_why; /* pool_reason */
    uint64_t made_ms;  /* monotonic; 0: before this program started */
    bool was_up;       /* all slots were up once */
    bool kept;         /* parked or recovered, and not up since: none of its slots is exchanged */
    bool ended; /* expired or released, and its data are kept: parked until it is extended, or
                       released for good when core_lease_left_ms() is over */
    uint64_t stored_ms;            /* of that time, when it was stored last; 0: all of it is left */
    uint64_t ran_ms;               /* of it since, but for what runs now: */
    uint64_t since_ms;             /* while `counts`; monotonic */
    bool counts;                   /* all of its slots are within reach */
    uint16_t port[POOL_COUNT_MAX]; /* host's slot numbers, in the order of pool_lease_slots() */
} core_lease;

typedef struct core_tenant {
    char name[CORE_NAME_BYTES];
    bool no_direct; /* of its leases */
    uint64_t word;  /* of its name, to boxes (M-174) */
} core_tenant;      /* quota and use are the pool's */

typedef struct core_model {
    char name[CORE_MODEL_BYTES];
} core_model; /* counts are the pool's */

typedef struct core core;
typedef struct core_event core_event;

/* Arrays and their lengths, valid until the next call that changes something. */
const pool *core_pool(const core *c);
const core_node *core_nodes(const core *c, uint32_t *count);
const core_slot *core_slots(const core *c, uint32_t *count);
const core_port *core_ports(const core *c, uint32_t *count);
const core_lease *core_leases(const core *c); /* core_pool()->limits.leases of them */
const core_tenant *core_tenants(const core *c, uint32_t *count);
const core_model *core_models(const core *c, uint32_t *count);
/* Does the slot's device keep data over a reset?  Its box says so; true when it does not say. */
bool core_keeps_data(const core *c, uint32_t slot);
/* The same of a model: some slot with it does. */
bool core_model_keeps_data(const core *c, uint32_t model);
/* Are these attributes, which commas separate, all among those of a slot? */
bool core_has_attributes(const char *slot, const char *required);
/* What a box reports of the device of a slot (M-157). */
typedef struct core_function {
    uint16_t device;    /* number of the box's slot with its first function; 0: it is not shared */
    uint16_t function;  /* of a shared one: the slot's */
    uint16_t functions; /* that the slot lends: 1, or those of a device that is lent whole, */
    uint16_t virtuals;  /* and virtual ones that its host may create */
} core_function;
core_function core_function_of(const core *c, uint32_t slot);
/* May requests from device to device pass by the host of a lease (spec/p2p.md)? */
typedef enum core_direct {
    CORE_DIRECT_ALLOWED,
    CORE_DIRECT_FORBIDDEN,
    CORE_DIRECT_ORDERED,   /* forbidden, and some box of it has not carried that out yet */
    CORE_DIRECT_UNENFORCED /* forbidden, and some box of it does not know the order */
} core_direct;
const char *core_direct_name(unsigned direct);
bool core_may_direct(const core *c); /* in the pool: core_settings.no_direct */
core_direct core_lease_direct(const core *c, uint64_t lease);
/* What way such requests go between two leases, where nothing else forbids it. */
typedef enum core_way {
    CORE_WAY_HOST,  /* they have not the same host, or it is forbidden to one */
    CORE_WAY_BOXES, /* from box to box */
    CORE_WAY_BOX    /* inside one box */
} core_way;
const char *core_way_name(unsigned way);
core_way core_way_between(const core *c, uint64_t a, uint64_t b);
enum { CORE_PEERS_MAX = 64 };
/* Counts the peers of a lease, and gives the first ones in `out`, in no order: leases that it was
   made a peer of, or that were made its peers and have the same host. */
unsigned core_lease_peers(const core *c, uint64_t lease, uint64_t out[CORE_PEERS_MAX]);
/* Would a slot of the lease that fails be replaced without being asked? */
bool core_lease_replaces(const core *c, uint64_t lease);
/* What is left of the retention time of a slot that keeps data for the lease that it left, and of a
   lease that has ended.  UINT64_MAX: there is no limit, or nothing is kept so.  It runs only while
   the slot, or each slot of the lease, works and its box is connected. */
uint64_t core_slot_left_ms(const core *c, uint32_t slot);
uint64_t core_lease_left_ms(const core *c, uint64_t lease);
/* Returns the number of the lease for which the slot keeps data: one that it left, or that has
   ended. 0: none. */
uint64_t core_slot_owner(const core *c, uint32_t slot);
/* The slot's pool_state as users see it: one that works and is of an ended lease is retained. */
unsigned core_slot_state(const core *c, uint32_t slot);
/* Slots of each model in these states; count has a row for each of core_models(). */
void core_count_slots(const core *c, uint32_t (*count)[POOL_STATES]);
/* Slots that count against the tenant's quota, and how many may (POOL_NONE: no limit). */
void core_quota(const core *c, const char *tenant, uint32_t *used, uint32_t *limit);
/* May a refusal be due to proxies that are yet to register since this program started? */
bool core_is_starting(const core *c);
/* Index, or CORE_NONE. */
uint32_t core_find_node(const core *c, uint32_t number);
uint32_t core_find_slot(const core *c, uint32_t node_number, uint32_t slot_number);
uint32_t core_find_tenant(const core *c, const char *name);
uint32_t core_find_model(const core *c, const char *name);
/* Returns a model's name of now, where stores and boxes of earlier versions have another; and that
   earlier one, or NULL. */
const char *core_model_name(const char *name);
const char *core_model_was(const char *name);

/* How far a slot of a lease is. */
typedef enum core_phase {
    CORE_BINDING,   /* its box has not been notified yet */
    CORE_ATTACHING, /* its host is notified, there is no channel yet */
    CORE_UP,
    CORE_LOST,  /* it was up; the host gets no answer */
    CORE_BROKEN /* and is not replaced */
} core_phase;
const char *core_phase_name(unsigned phase);
core_phase core_slot_phase(const core *c, uint32_t slot);

/* pending until it was up once; degraded: a slot is lost or broken; parked: without a host */
typedef enum core_lease_state {
    CORE_LEASE_PENDING,
    CORE_LEASE_ACTIVE,
    CORE_LEASE_DEGRADED,
    CORE_LEASE_PARKED,
    CORE_LEASE_ENDED, /* expired or released, and its data are kept for the retention time */
    CORE_LEASE_STATES
} core_lease_state;
const char *core_lease_state_name(unsigned state);
core_lease_state core_lease_now(const core *c, uint64_t lease);
/* Returns how long the lease that has waited longest is pending; 0: none is. */
uint64_t core_pending_ms(const core *c);

enum { CORE_TROUBLE_BYTES = 96 };
/* Why a slot of a lease is not up, as far as its box or host reported; false: unknown, or it is. */
bool core_slot_trouble(const core *c, uint32_t slot, char out[CORE_TROUBLE_BYTES]);
/* Is the node in doubt?  2: a box that is not lent, 1: lent last (a host: its leases do not move);
   0: no.  out: why. */
unsigned core_suspect(const core *c, uint32_t node, uint64_t *since_unix_ms,
                      char out[CORE_TROUBLE_BYTES]);
/* Counts the hosts that have had no channel to the box of a lease lately, and gives their
   numbers. */
unsigned core_unreached_by(const core *c, uint32_t node, uint32_t *hosts, unsigned max);

/* ==== 3  Opening ============================================================================== */

/* A box that is disconnected longer is broken: a restart of its service, and a link or switch that
   comes up again, must fit in. */
#define CORE_GRACE_MS    30000
#define CORE_RETENTION_S 604800 /* 7 days */
#define CORE_STEP_MS     60000  /* a larger step of the clock holds expiries */
#define CORE_REACH_MS    10000

typedef struct core_settings {
    uint64_t grace_ms;      /* a box silent for that long is broken [CORE_GRACE_MS] */
    uint64_t retention_ms;  /* how long data are kept for a lease that left them, or has ended
                              [CORE_RETENTION_S]; 0: until somebody says what is to be done */
    uint64_t reach_ms;      /* how long a host may be without an answer from a box, or a box not
                               answer a bind, before the lease gets another slot [CORE_REACH_MS] */
    uint32_t default_quota; /* slots, of a tenant without one of its own; POOL_NONE: no limit */
    uint32_t events;        /* kept [10,000] */
    uint32_t nodes;         /* that there may be [65,536] */
    uint32_t slots;         /* of all boxes and hosts [1,048,576] */
    bool no_direct; /* no request of a device passes by its host, in the whole pool [false] */
    bool reader;    /* its store is a reader's: nothing is stored at the end [false] */
    uint64_t salt;  /* a random number of this run: how far its epochs begin above those before,
                               and where the clock stands back, numbers of leases, so that a run
                               that began with the same old store gave others [0] */
    uint64_t early; /* leases that may be made before the time of their numbers (M-101): of a pool
                       that is never put back as it was, as in tests [0] */
    uint64_t word_bits; /* of a tenant's word (M-174) that count: fewer in tests [all] */
    void *user;
    void (*on_event)(void *user, const core_event *e); /* after it is durable; or NULL */
} core_settings;

void core_settings_default(core_settings *set);
/* Load the store; it stays the caller's.  NULL after an error, with *why filled. */
core *core_open(store *s, const core_settings *set, uint64_t unix_ms, uint64_t mono_ms,
                core_result *why);
void core_close(core *c);
/* Sets the time of all that follows: the time of day, and a monotonic one.  When the first steps
   against the second by more than CORE_STEP_MS, an alarm event says so, and no lease expires until
   it has stepped back, or core_confirm_clock(). */
void core_clock(core *c, uint64_t unix_ms, uint64_t mono_ms);
/* Is the clock in doubt?  *step_ms: how far it is from where it should be; 0 when that is not
   known, after a restart. */
bool core_clock_held(const core *c, int64_t *step_ms);
/* The time of day is right.  CORE_E_STATE: it is not in doubt. */
core_result core_confirm_clock(core *c);
/* Do what is due (leases that end, boxes given up, orders to repeat). */
void core_tick(core *c);
/* When core_tick() has something to do next, in mono_ms; UINT64_MAX: never. */
uint64_t core_next_ms(const core *c);
/* Returns this program's term (M-144), stored by the first call: higher than that of each program
   that had the store before, and, when the clock is right, of those that had copies of it.  0: it
   could not be stored. */
uint64_t core_term(core *c);
/* Gives all that the store has, as --export writes it; *text is the caller's to free.
   CORE_E_STORE: it cannot be read, or has lately refused a change. */
core_result core_snapshot(core *c, char **text, size_t *bytes);
/* The tables may differ from the store.  Nothing is done with them any more: restart. */
bool core_is_dead(const core *c);
/* The store cannot be written since its last change failed. */
bool core_store_failed(const core *c, char text[256]);

/* ==== 4  From proxies ========================================================================= */

/* May the owner of this public key speak for the identity?  CORE_E_STATE: it has another key, which
   an event reports, once of each.  Before its first register. */
core_result core_check_key(core *c, const dxpu_control_register *r,
                           const uint8_t key[DXPU_CONTROL_KEY_BYTES]);
/* The name in a register message, as the node has it. */
void core_name(const dxpu_control_register *r, char out[CORE_NAME_BYTES]);
/* May the owner of this public key have this name (M-86)?  Before each register.
   why   "", or why lines of --peers forbid it, with the remedy
   own   a line gives the name to this key alone: other nodes that have it lose it
   CORE_E_STATE: no, or another key's node has it; an event reports it, once an hour of each key. */
core_result core_check_name(core *c, const dxpu_control_register *r,
                            const uint8_t key[DXPU_CONTROL_KEY_BYTES], const char *why, bool own);
/* May a box with this public key be reached there (M-87)?  Before each register of a box.
   CORE_E_STATE: another key's box is, and was first; an event reports it, once an hour of each
   key. */
core_result core_check_paths(core *c, const dxpu_control_register *r,
                             const uint8_t key[DXPU_CONTROL_KEY_BYTES]);
/* May the owner of this public key connect another proxy now (M-133)?  Before the first register of
   a connection; each call counts.  CORE_E_STATE: not yet. */
core_result core_check_pace(core *c, const uint8_t key[DXPU_CONTROL_KEY_BYTES]);
/* Takes a register message (views are copied), of the owner of `key`; NULL: this manager has no
   keys. Returns the node's number, or 0 with *why: refused. */
uint32_t core_register(core *c, const dxpu_control_register *r, const char *program,
                       const uint8_t *key, core_result *why);
/* Between the two calls registers and ends of connections share a commit of the store, or a few.
   Only they, and the checks before registers, come in between; another commit takes along what
   waits. core_batch_end() begins with what follows from them.
   False: the store failed, and it is unknown which of them it has.  No answer to any of them may be
   sent, and their connections must end.  From then on registers are refused until the next
   batch. */
void core_batch(core *c);
bool core_batch_end(core *c);
/* Does more of what follows from registers, which core_batch_end() leaves to this one.  To be
   called when the connections of a batch that was lost have ended.  True: there is more, after a
   few commits of the store. */
bool core_follow(core *c);

/* This instance was refused: another one is connected, and has sent something since, so two
   programs with one identity run.  It is refused for a while after that one's connection ends,
   too. */
void core_rival(core *c, uint32_t node, uint64_t instance);
/* What both are sent. */
#define CORE_DOUBLE                                                                                \
    "another running proxy has this identity; if its identity file was copied here, remove the "   \
    "copy, and a new one is made"
/* The proxy's connection has ended, or it is silent. */
void core_disconnected(core *c, uint32_t node);
void core_alarm(core *c, uint32_t node, const dxpu_control_alarm *a);

/* ==== 5  Orders =============================================================================== */

/* What a connected proxy is ordered: bind, unbind, drain, reset, attach or detach. */
typedef struct core_order {
    uint32_t node;  /* number */
    dxpu_control m; /* but for its request number */
} core_order;

/* Gives the next order; false: none now.  No two are out for one slot of a proxy: after each,
   either core_answered() is called or core_disconnected(). */
bool core_next_order(core *c, core_order *out);
/* Takes the proxy's answer to an order: DXPU_CONTROL_CODE_NONE and its done, or the code of its
   error. False: the done has an epoch too high for this pool (M-74), and the connection must
   end. */
bool core_answered(core *c, const core_order *o, unsigned code, const dxpu_control_done *done);
/* The proxy is connected and has not answered it for this time: an event says so. */
void core_unanswered(core *c, const core_order *o, uint64_t ms);

/* ==== 6  Requests ============================================================================= */

typedef struct core_request {
    char tenant[CORE_NAME_BYTES];
    char model[CORE_MODEL_BYTES];
    char key[CORE_NAME_BYTES];              /* "": none */
    uint32_t host;                          /* node number */
    uint8_t count, need;                    /* pool_need */
    uint8_t replace;                        /* core_replacing */
    uint64_t seconds;                       /* until it ends; 0: never */
    char attributes[CORE_ATTRIBUTES_BYTES]; /* that its slots must have, as a box reports them */
    uint8_t device;                         /* pool_device */
    bool exclusive, apart;                  /* as in pool_request */
    uint64_t peer; /* lease of the same tenant and host to whose devices its own are to be near, and
                      which they may reach directly; 0: none */
} core_request;

/* Makes a lease.  The tenant's lease with the same key that asks for the same is returned again,
   with *existed. */
core_result core_create(core *c, const core_request *r, uint64_t *lease, bool *existed);
/* Sets when the lease ends, from now; 0: never.  A lease that had ended is back, parked. */
core_result core_extend(core *c, uint64_t lease, uint64_t seconds);
/* Ends the lease; its slots, and what is retained for it, are wiped.  keep: it ends like one that
   expires: parked, and its data are kept for the retention time.  A lease without data is over at
   once. */
core_result core_release(core *c, uint64_t lease, bool keep);
/* Park: the host gives the slots up, and their data stay.  Until the lease is up again only an
   operator's core_replace() takes a slot from it.  Attach gives them to a host again; CORE_E_STATE
   when a box of theirs is draining or not connected. */
core_result core_park(core *c, uint64_t lease);
core_result core_attach(core *c, uint64_t lease, uint32_t host);

/* Drains the box: it gets no new lease.  move: its leases get other slots, as when one is broken,
   but for those whose data are kept, and those that would lose the arrangement that they ask for.
   *left: slots that still are leased. */
core_result core_drain(core *c, uint32_t node, bool on, bool move, unsigned *left);
/* Puts another slot in the place of this one in its lease, and wipes this one.  CORE_E_CAPACITY
   when the lease would lose the arrangement that it asks for; force: all the same. */
core_result core_replace(core *c, uint32_t slot, pool_reason why, bool force);
/* Gives the slot back to the lease that it is retained for, in place of the slot that the lease got
   for it.  That one is retained in turn if it keeps data.  Not while the lease has ended:
   core_extend() first. */
core_result core_recover(core *c, uint32_t slot);
/* Recovers all slots that are retained for the lease, or none.  Of two slots for one place it gets
   the one that left it first. */
core_result core_recover_all(core *c, uint64_t lease);
/* Gives up what the slot keeps for the lease that it left: it is wiped. */
core_result core_discard(core *c, uint32_t slot);
core_result core_break(core *c, uint32_t slot, pool_reason why);
/* Breaks all functions of the device that the slot has one of (M-157), as one change. */
core_result core_break_device(core *c, uint32_t slot, pool_reason why);
core_result core_repair(core *c, uint32_t slot);
/* The operator says that the slot still has the data of its lease, or of the lease that it is kept
   for, though its box has lost its state.  Nothing is wiped.  CORE_E_STATE: the box has another
   medium there than when it served the lease, or is not known to have that one. */
core_result core_keep(core *c, uint32_t slot);
/* What can be done with a slot that is quarantined since its box knows a lease that the store does
   not, as after an old copy of the store was put back (M-170). */
enum { CORE_ADOPT_WHY_BYTES = 384 };
typedef enum core_adopted {
    CORE_ADOPT_NOT,
    CORE_ADOPT_LEASE, /* box and host agree on a lease, which becomes one of this store */
    CORE_ADOPT_BACK,  /* the same, where the store has a lease under an earlier epoch */
    CORE_ADOPT_FREE,  /* its box says that it is wiped */
    CORE_ADOPT_KEPT /* its box keeps data of the lease that the store has there, or keeps it for */
} core_adopted;
typedef struct core_adoption {
    uint8_t what;       /* core_adopted */
    uint16_t host_slot; /* with the next: who has the lease; 0: unknown, or there is none */
    uint32_t host;
    uint64_t lease; /* 0: not yet */
    uint64_t epoch; /* that its box reports; 0: it is not lent */
    uint64_t
        known_epoch; /* of the lease that the store has there; 0: none, or not known any more */
    char tenant[CORE_NAME_BYTES]; /* whose that lease is, or a new one would be */
    char why[CORE_ADOPT_WHY_BYTES];
} core_adoption;
/* False: the slot is not quarantined so.
   named   the operator has named this slot: else nothing is taken whose owner is not known (M-174)
   tenant  whose the lease is; "": not named */
bool core_may_adopt(const core *c, uint32_t slot, bool named, const char *tenant,
                    core_adoption *out);
/* Adopts the slot.  Nothing is ever wiped. */
core_result core_adopt(core *c, uint32_t slot, bool named, const char *tenant, core_adoption *out);
core_result core_reset(core *c, uint32_t slot); /* the device, in its lease or without */
/* Forgets a node that is not connected, has no leases and retains nothing.  Its number is never
   used again. */
core_result core_forget(core *c, uint32_t node);
/* Releases the key of a node that is not connected: the next one under which it registers is its
   key. */
core_result core_forget_key(core *c, uint32_t node);
/* Sets the owner of a host; "": unassigned.  Which tenants can name it is the callers' rule;
   leases that it has stay as they are. */
core_result core_set_owner(core *c, uint32_t node, const char *tenant);
/* Forgets all nodes that never had a lease and were disconnected for that long, as far as this
   program saw since it began: strangers that registered.  *count: how many. */
core_result core_forget_unused(core *c, uint64_t away_ms, uint32_t *count);
/* Sets the quota, in slots; POOL_NONE: no limit. */
core_result core_set_tenant(core *c, const char *name, uint32_t quota);
/* Changes either, or both; NULL: stays as it is. */
core_result core_change_tenant(core *c, const char *name, const uint32_t *quota,
                               const bool *direct);
/* Sets whether requests of the box's devices may pass by their hosts.  Boxes are ordered what
   follows. */
core_result core_set_direct(core *c, uint32_t node, bool on);
/* A register is about to be answered: is the proxy ordered which of its slots are direct
   (M-180)? */
bool core_directs(core *c, uint32_t node);
core_result core_set_spares(core *c, const char *model, uint32_t count);

/* What a request would erase, so that whoever makes it can be asked. */
typedef enum core_deed {
    CORE_DEED_DRAIN,   /* core_drain() of this node's number, with move */
    CORE_DEED_REPLACE, /* these of this slot */
    CORE_DEED_REPAIR,
    CORE_DEED_DISCARD,
    CORE_DEED_RELEASE /* core_release() of this lease's number, without keep */
} core_deed;
typedef struct core_erased {
    uint32_t slot;
    uint64_t lease;               /* 0: it is not known whose the data are */
    char tenant[CORE_NAME_BYTES]; /* "": the same */
} core_erased;
/* Gives the slots that keep data and would be wiped, at most max of them, and returns how many
   there are. */
unsigned core_would_erase(const core *c, core_deed deed, uint64_t of, core_erased *out,
                          unsigned max);

/* ==== 7  Events =============================================================================== */

/* Names with dots: users select by their beginning. */
#define CORE_EVENTS(X)                                                                             \
    X(NODE_NEW, "node.new")                                                                        \
    X(NODE_CONNECTED, "node.connected")                                                            \
    X(NODE_LOST, "node.lost")                                                                      \
    X(NODE_DRAIN, "node.drain")                                                                    \
    X(NODE_OWNER, "node.owner")                                                                    \
    X(NODE_DIRECT, "node.direct") /* whether its devices may reach others directly */              \
    X(NODE_KEY, "node.key")   /* its identity came with another key; or its key was forgotten */   \
    X(NODE_NAME, "node.name") /* refused: its name is another key's; or it lost its name so */     \
    X(NODE_PATH, "node.path") /* refused: another key's box is reached there */                    \
    X(NODE_FORGOTTEN, "node.forgotten")                                                            \
    X(NODE_TRUSTED, "node.trusted") /* it was suspect, which an alarm said */                      \
    X(SLOT_BROKEN, "slot.broken")                                                                  \
    X(SLOT_REPAIRED, "slot.repaired")                                                              \
    X(SLOT_WIPED, "slot.wiped")                                                                    \
    X(SLOT_QUARANTINED, "slot.quarantined")                                                        \
    X(SLOT_REPLACED, "slot.replaced")                                                              \
    X(SLOT_RETAINED, "slot.retained")   /* it left its lease, and keeps the lease's data */        \
    X(SLOT_RECOVERED, "slot.recovered") /* its lease has it back */                                \
    X(SLOT_DISCARDED, "slot.discarded") /* what it kept is to be wiped */                          \
    X(SLOT_RESET, "slot.reset")                                                                    \
    X(SLOT_DIRECT, "slot.direct")   /* its box has carried out whether its device may */           \
    X(SLOT_CHANGED, "slot.changed") /* another device stands there */                              \
    X(PORT_FOREIGN, "port.foreign") /* a host has a lease that the store does not know */          \
    X(LEASE_CREATED, "lease.created")                                                              \
    X(LEASE_UP, "lease.up")                                                                        \
    X(LEASE_DEGRADED, "lease.degraded")                                                            \
    X(LEASE_EXTENDED, "lease.extended")                                                            \
    X(LEASE_PARKED, "lease.parked")                                                                \
    X(LEASE_ATTACHED, "lease.attached")                                                            \
    X(LEASE_RELEASED, "lease.released")                                                            \
    X(LEASE_KEPT, "lease.kept") /* released, and its data are kept for a while */                  \
    X(LEASE_EXPIRED, "lease.expired")                                                              \
    X(LEASE_ADOPTED, "lease.adopted")     /* its box and host have it, and the store had not */    \
    X(CLOCK_CONFIRMED, "clock.confirmed") /* leases expire again */                                \
    X(TENANT_SET, "tenant.set")                                                                    \
    X(SPARES_SET, "spares.set")                                                                    \
    X(ORDER_REFUSED, "order.refused") /* by a proxy; text has its code */                          \
    X(ALARM, "alarm")
typedef enum core_event_type {
#define CORE_EVENT_ENUM(name, text) CORE_EVENT_##name,
    CORE_EVENTS(CORE_EVENT_ENUM)
#undef CORE_EVENT_ENUM
        CORE_EVENT_TYPES
} core_event_type;
const char *core_event_name(unsigned type);

struct core_event {
    uint64_t number; /* 1.., in order; without gaps but for those no longer kept */
    uint64_t unix_ms;
    uint8_t type;
    uint32_t node; /* number; 0: about none */
    uint16_t slot;
    uint64_t lease;               /* 0: about none */
    char tenant[CORE_NAME_BYTES]; /* whose lease; "": none */
    char text[160];               /* a sentence: what and why */
};

/* Gives the events after number `after`, oldest first, at most max; returns how many.  When the
   history is full, the key or tenant with the most events loses its oldest: none displaces
   others'. */
unsigned core_events_after(const core *c, uint64_t after, core_event *out, unsigned max);
/* Gives the events before number `before`, newest first, at most max; returns how many. */
unsigned core_events_before(const core *c, uint64_t before, core_event *out, unsigned max);

#endif /* CORE_H_INCLUDED */
