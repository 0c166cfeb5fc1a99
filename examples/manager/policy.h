/* policy.h - which slots of the pool a request gets, which device replaces a broken one
   SPDX-License-Identifier: MIT

   A pool is boxes with slots, hosts, tenants and leases, in memory that the caller gives.  What
   decides (pool_choose(), pool_choose_other()) only reads; what changes (all the others) either
   does all of it or returns an error and changes nothing.  So a manager decides, writes the
   decision to its store, and changes the pool last.  No I/O, no clock, no allocation; one thread
   at a time.

   Free slots are indexed by model, by how many are free in their box, and in their NVLink group: an
   answer costs what it gives out, not what the pool holds.  Each choice leaves the free slots as
   concentrated as it can: pool_room() says how much. */
#ifndef POLICY_H_INCLUDED
#define POLICY_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_NONE UINT32_MAX

enum { POOL_BOX_SLOTS_MAX = 1024, POOL_COUNT_MAX = 64 };

typedef enum pool_state {
    POOL_FREE,
    POOL_SPARE, /* free, and kept back to replace a broken device */
    POOL_LEASED,
    POOL_WIPING,      /* released; free when a verified wipe says so */
    POOL_DRAINED,     /* its box is being taken out of service */
    POOL_BROKEN,      /* may still belong to a lease, until replaced */
    POOL_QUARANTINED, /* could not be wiped, or is not to be before somebody has looked */
    POOL_RETAINED,    /* left a lease and keeps its data: that lease's, lent to none */
    POOL_STATES
} pool_state;

typedef enum pool_reason {
    POOL_WHY_NONE,
    POOL_WHY_DEVICE,    /* the device reported an error, or stopped answering */
    POOL_WHY_BOX,       /* its box is gone */
    POOL_WHY_DRAIN,     /* its box is being taken out of service */
    POOL_WHY_WIPE,      /* a wipe failed, or its verification */
    POOL_WHY_OPERATOR,  /* somebody said so */
    POOL_WHY_FOREIGN,   /* it has a lease that the store does not know */
    POOL_WHY_RELEASE,   /* its lease was released, or ended without data to keep */
    POOL_WHY_DISCARD,   /* its tenant gave up what was retained */
    POOL_WHY_RETENTION, /* what was retained was not taken back in time */
    POOL_WHY_RECOVER,   /* an older slot was taken back in its place */
    POOL_WHY_ABSENT,    /* there is no device in it */
    POOL_WHY_REFUSED,   /* its box refused to bind it, or did not answer */
    POOL_WHY_PATH,      /* its host did not reach its box */
    POOL_REASONS
} pool_reason;

typedef enum pool_need {
    POOL_ANY,
    POOL_SAME_BOX,
    POOL_SAME_GROUP, /* one NVLink or PCIe group */
    POOL_SPREAD,     /* each in another box: no two behind one proxy */
    POOL_NEEDS
} pool_need;

/* What kind of slot serves a request: one that has its device to itself, or a function of a device
   that it shares with other slots (M-157). */
typedef enum pool_device {
    POOL_DEVICE_ANY,
    POOL_DEVICE_WHOLE,
    POOL_DEVICE_FUNCTION,
    POOL_DEVICES
} pool_device;

#define POOL_ERRORS(X)                                                                             \
    X(OK, 0, "ok")                                                                                 \
    X(E_ARG, -1, "the count, the need or a number is outside its range")                           \
    X(E_UNKNOWN, -2, "no such box, slot, host, tenant, model or lease")                            \
    X(E_QUOTA, -3, "the tenant's quota is used up; release a lease or ask for a higher quota")     \
    X(E_HOST, -4, "the host has too few empty slots; name another host")                           \
    X(E_FREE, -5, "too few slots with this model are free; ask for fewer or wait for a release")   \
    X(E_PLACE, -6, "enough slots are free, but not as close or as spread as asked; ask for any")   \
    X(E_STATE, -7, "the slot, box or lease is in a state that does not allow this")                \
    X(E_ROOM, -8, "the pool is as large as its limits allow")

enum {
#define POOL_ERROR_ENUM(name, value, text) POOL_##name = value,
    POOL_ERRORS(POOL_ERROR_ENUM)
#undef POOL_ERROR_ENUM
};
const char *pool_error_text(int rc);
const char *pool_state_name(unsigned state);
const char *pool_reason_name(unsigned reason); /* "box": a word */
const char *pool_reason_text(unsigned reason); /* "its box is unreachable": a part of a sentence */

typedef struct pool_limits {
    uint32_t slots, boxes, hosts, tenants, leases;
    uint16_t models;
} pool_limits;

typedef struct pool_slot_info {
    uint16_t model; /* below limits.models */
    uint32_t group; /* any number that means this group within its box; POOL_NONE: in none */
} pool_slot_info;

/* Which slots of the model serve a request or a lease. */
typedef struct pool_filter {
    bool (*fits)(const void *user, uint32_t slot);
    const void *user;
} pool_filter;

typedef struct pool_request {
    uint32_t tenant, host;
    uint16_t model;
    uint8_t count;             /* 1..POOL_COUNT_MAX */
    uint8_t need;              /* pool_need */
    const pool_filter *filter; /* for pool_choose(); NULL: all */
    uint8_t device;            /* pool_device */
    bool exclusive;            /* no other tenant has a function of its devices meanwhile */
    bool apart;                /* no two of its slots are functions of one device */
    uint64_t peer; /* a lease in whose boxes its slots are, where these have room; 0: none */
} pool_request;

typedef struct pool_choice {
    uint8_t count;
    uint32_t slot[POOL_COUNT_MAX];
} pool_choice;

typedef struct pool_other {
    uint32_t slot;
    bool need_kept; /* it stands where the lease's need asks; false: there is no such slot */
} pool_other;

/* The free slots with one model in one box, or in one group of it. */
typedef struct pool_cell {
    uint32_t box, next, prev;
    uint32_t parent; /* the box's cell of a group's cell; POOL_NONE: this is a box's cell */
    uint32_t label;  /* of a group */
    uint16_t model;
    uint16_t free, slots; /* slots 0: nothing stands there, it may become another cell */
} pool_cell;

typedef struct pool_slot {
    uint64_t epoch; /* of the newest lease: the box refuses a lower one */
    uint32_t box;   /* index */
    uint32_t box_cell, group_cell;
    uint32_t lease;      /* index; POOL_NONE: unassigned */
    uint32_t next, prev; /* in its lease, what is retained for one, or the spares of its model */
    uint32_t owner;      /* lease that it left, and whose data it keeps; POOL_NONE: none */
    uint16_t model;
    uint16_t device; /* of whose functions it is one: number of the box's slot that has the first,
                        from 1; 0: it has its device to itself */
    uint8_t state, reason;
    uint8_t place; /* in its owner */
    uint8_t wipe;  /* pool_reason of the decision to wipe it; POOL_WHY_NONE: there is none */
    bool dirty;    /* holds, or may hold, a tenant's data */
} pool_slot;

typedef struct pool_box {
    uint32_t first_slot, first_cell;
    uint16_t slots, cells; /* as many cells of models as slots at most, and of groups */
    bool draining;
} pool_box;

typedef struct pool_host {
    uint32_t capacity, used; /* slots */
} pool_host;

typedef struct pool_tenant {
    uint32_t quota, used; /* slots; used: what its leases have, and what is retained for them */
    uint32_t exclusive;   /* leases of it that are; see pool_used() */
} pool_tenant;

typedef struct pool_lease {
    uint64_t serial; /* of its number: counted, so never used again */
    uint32_t tenant, host;
    uint32_t first, last; /* slots; first is the next empty entry's index when this one is empty */
    uint32_t retained;    /* the first slot that it left and whose data are kept */
    uint32_t retained_count;
    uint64_t peer; /* as in its request */
    uint16_t model;
    uint8_t count, need, device;
    bool exclusive, apart;
} pool_lease;

/* No lease is larger, so all cells of the last rank have room for any. */
enum { POOL_RANKS = POOL_COUNT_MAX };

typedef struct pool_model {
    uint32_t count[POOL_STATES];
    uint32_t spares_wanted, first_spare;
    /* Cells by rank: their free slots, or POOL_RANKS where there are more.  Bit n - 1: there is one
       of rank n. */
    uint64_t box_mask, group_mask, group_box_mask[POOL_RANKS + 1];
    uint32_t box_head[POOL_RANKS + 1];
    /* By the rank of the group, then of its box: of groups as full, those of fuller boxes go
       first, so that whole boxes stay whole. */
    uint32_t group_head[POOL_RANKS + 1][POOL_RANKS + 1];
} pool_model;

/* Visible so that everything can be listed and checked; changed by the functions below alone. */
typedef struct pool {
    pool_limits limits;
    uint32_t slots, boxes, hosts, tenants;
    uint32_t cells;     /* two for each slot: a box's are at twice its first slot */
    uint32_t leases;    /* that there are */
    uint32_t exclusive; /* of these, those that share no device */
    uint32_t empty_lease;
    uint64_t serial; /* the last one given to a lease */
    uint64_t epoch;  /* the highest given */
    pool_slot *slot;
    pool_box *box;
    pool_host *host;
    pool_tenant *tenant;
    pool_lease *lease;
    pool_cell *cell;
    pool_model *model;
} pool;

/* Bytes that a pool of these limits needs; 0 when a limit is 0 or too large. */
size_t pool_bytes(const pool_limits *limits);
/* memory: pool_bytes(), aligned as malloc() does; it is the pool's until the caller frees it.
   NULL when `bytes` is too small. */
pool *pool_init(void *memory, size_t bytes, const pool_limits *limits);

int pool_add_box(pool *p, const pool_slot_info *slots, unsigned count, uint32_t *box);
/* Another device is in the slot, or in another group.  POOL_E_STATE: a lease has it, or its
   data are kept for one. */
int pool_change_slot(pool *p, uint32_t slot, const pool_slot_info *now);
/* Of which device the slot is a function: as in pool_slot.  A lease keeps its slot. */
int pool_set_device(pool *p, uint32_t slot, unsigned device);
/* A slot's functions are at most so far behind the first one. */
enum { POOL_FUNCTIONS_MAX = 256 };
int pool_add_host(pool *p, uint32_t capacity, uint32_t *host);
/* Not below what is used. */
int pool_set_capacity(pool *p, uint32_t host, uint32_t capacity);
int pool_add_tenant(pool *p, uint32_t quota, uint32_t *tenant);
/* The newest one, which has nothing; POOL_E_STATE: another. */
int pool_drop_tenant(pool *p, uint32_t tenant);
/* What counts against the tenant's quota: slots of its leases, those retained for them, and those
   that exclusive ones keep from other tenants. */
uint32_t pool_used(const pool *p, uint32_t tenant);
/* A quota below what is used takes nothing away; nothing more is given. */
int pool_set_quota(pool *p, uint32_t tenant, uint32_t quota);

/* How many spares make it at most as likely as `risk` (0..1) that more of `devices` fail while one
   is being repaired; failures are taken to be independent. */
uint32_t pool_spares_for(uint32_t devices, double failures_per_year, double repair_days,
                         double risk);
/* Keep that many back; at once, and whenever slots become free later. */
int pool_set_spares(pool *p, uint16_t model, uint32_t spares);

/* Which slots the request would get.  Cost: O(count) and O(slots) of the boxes
   chosen; where these have more than 64 free slots, all such boxes are looked at.  With a
   filter, or where devices are asked for or have an exclusive lease, those that fit, of the boxes
   with the fewest free slots first, and no promise about pool_room(): O(free slots) for the
   filter, which is asked of each once or twice, and O(count * free slots) for their order.
   Within a box functions are packed: first those of a device that the tenant has a function of,
   then of one that others have, then the others, each from where the fewest are free, and slots
   with a device of their own last; for a lease with `apart` those of devices of which the fewest
   are lent.  POOL_E_QUOTA also where the choice would be too much with what it keeps from other
   tenants. */
int pool_choose(const pool *p, const pool_request *r, pool_choice *out);
/* Could the slot be among them, if it is free? */
bool pool_serves(const pool *p, const pool_request *r, uint32_t slot);
/* Give them out.  POOL_E_STATE when the choice is no longer, or never was, the pool's to give. */
int pool_grant(pool *p, const pool_request *r, const pool_choice *c, uint64_t *lease);
/* A slot that is quarantined as foreign is a lease of its own, r->count 1, under the epoch that it
   has; as its host has it already, no quota is asked.  POOL_E_STATE: it is not so, or another's. */
int pool_adopt(pool *p, const pool_request *r, uint32_t slot, uint64_t *lease);
/* NULL: there is no such lease (any more). */
const pool_lease *pool_find_lease(const pool *p, uint64_t lease);
/* The number of a lease by its index, as a slot has it; 0: that entry is empty. */
uint64_t pool_lease_number(const pool *p, uint32_t index);
/* The index in a lease's number: its serial is above POOL_INDEX_BITS. */
enum { POOL_INDEX_BITS = 24, POOL_SERIAL_BITS = 40 };
static inline uint32_t pool_lease_index(uint64_t number)
{
    return (uint32_t)(number & (((uint32_t)1 << POOL_INDEX_BITS) - 1));
}
/* In the order in which they were chosen; a replacement stands where the broken one stood. */
unsigned pool_lease_slots(const pool *p, uint64_t lease, uint32_t out[POOL_COUNT_MAX]);
/* Slots that the lease left and whose data are kept for it, the one that left last first.  A store
   may name more of them than the lease has slots: no more than POOL_COUNT_MAX are listed. */
unsigned pool_lease_retained(const pool *p, uint64_t lease, uint32_t out[POOL_COUNT_MAX]);

/* Do its slots stand as its need, and `apart`, ask?  A replacement may have been taken from
   elsewhere. */
bool pool_need_kept(const pool *p, uint64_t lease);

/* The host gives the slots up; tenant and data stay, and count against the quota. */
int pool_park(pool *p, uint64_t lease);
int pool_attach(pool *p, uint64_t lease, uint32_t host);
/* A slot of a lease that has a host gets a new epoch: whoever has the one before is fenced off. */
int pool_renew(pool *p, uint32_t slot);
/* The lease ends, for this reason, and so does all that is retained for it.  Its slots wait for
   pool_wiped(); the broken and quarantined ones stay so. */
int pool_release(pool *p, uint64_t lease, pool_reason why);
/* The slot was wiped and that was verified, or not: then it is quarantined. */
int pool_wiped(pool *p, uint32_t slot, bool verified);

/* The slot can no longer be used; one that is quarantined stays so (POOL_E_STATE).  A lease keeps
   it until pool_replace() or pool_release(). */
int pool_break(pool *p, uint32_t slot, pool_reason why);
/* A broken or quarantined slot works again.  Its lease has it back.  Without a lease it is retained
   when its data are kept for one, else wiped before it is lent again, or quarantined when there is
   no decision to wipe it.  by: the decision, when one is made now; POOL_WHY_NONE: it works again by
   itself.  A quarantined slot is wiped, kept for a lease or not, and only with a decision.
   POOL_E_STATE also for a quarantined one that a lease has: replace it first. */
int pool_repair(pool *p, uint32_t slot, pool_reason by);
/* What a quarantined slot holds is the data of the lease that has it, or that it is kept for.
   POOL_E_STATE: there is none, or it is not quarantined. */
int pool_keep(pool *p, uint32_t slot);
/* Which slot would replace this one of a lease: what keeps the lease's need, then one in a box of
   its peer, then a spare before a free one, then the same group, then the same box.  filter: the
   lease's, NULL: none. */
int pool_choose_other(const pool *p, uint32_t slot, const pool_filter *filter, pool_other *out);
/* Slots that would take the place of all of a lease that asks for one box or group, in one: of its
   peer's boxes, if one serves, that which has the fewest that suffice, spares or not.
   POOL_E_PLACE: there is none.  Cost: O(slots) of its box for each cell of the model. */
int pool_choose_all(const pool *p, uint64_t lease, const pool_filter *filter, pool_choice *out);
/* Do it.  A broken or quarantined slot stays so when it is given up.  retain: its data are kept
   for the lease, and it is retained as soon as it works; else it is wiped then. */
int pool_replace(pool *p, uint32_t slot, uint32_t other, pool_reason why, bool retain);
/* The lease has a retained slot back where it was, under a new epoch; what is there now is retained
   in turn, or wiped.  POOL_E_STATE: the slot is not retained, or is broken. */
int pool_recover(pool *p, uint32_t slot, bool retain);
/* What is kept in the slot is given up: it is wiped, when it works. */
int pool_discard(pool *p, uint32_t slot, pool_reason why);
/* Take a box out of service, or put it back.  Slots that are leased, or kept for a lease, stay so
   until they are replaced, released or discarded; *left is how many. */
int pool_drain(pool *p, uint32_t box, bool on, unsigned *left);

/* What a store remembers comes back: after the boxes, drains, hosts, tenants and quotas, first
   every slot, then every lease, then pool_restored().  Until that the pool decides nothing.
   was: its state, reason, epoch and dirty count.  POOL_E_ARG: no pool was ever so. */
int pool_restore_slot(pool *p, uint32_t slot, const pool_slot *was);
/* number: as pool_grant() gave it.  r->host: POOL_NONE when it was parked.  POOL_E_STATE: a slot
   is another lease's, or was not leased; the tenant's quota is not asked. */
int pool_restore_lease(pool *p, uint64_t number, const pool_request *r, const pool_choice *slots);
/* After the leases: a slot is kept for one.  POOL_E_STATE: it is in a state that none is kept in,
   or there is no such lease. */
int pool_restore_owner(pool *p, uint32_t slot, uint64_t lease, unsigned place);
/* A slot that was leased or retained, and that no lease has now, is quarantined: unknown whose
   its data are. */
void pool_restored(pool *p);

/* Every epoch, every serial of a lease, up to this one counts as given. */
void pool_raise_epoch(pool *p, uint64_t epoch);
void pool_raise_serial(pool *p, uint64_t serial);
/* A slot turns out to have been lent under this epoch, not lower than its own: it may hold data,
   and is wiped, or quarantined until pool_repair().  POOL_E_STATE: it is to be wiped, and a lease
   has it, or its data are kept for one. */
int pool_taint(pool *p, uint32_t slot, uint64_t epoch, bool quarantine);

/* How many free slots a free slot of this model has in its box (its group: by_group), itself
   included, on average over the free slots: sum of squares over sum.  Small: fragmented.  0 when
   nothing is free.  Cost: O(cells of the pool). */
double pool_room(const pool *p, uint16_t model, bool by_group);

#endif /* POLICY_H_INCLUDED */
