/* core_world.h - simulated boxes and hosts, and the connections that they lose
   SPDX-License-Identifier: MIT

   The proxies keep the rules of spec/control.md; which of them a mutation breaks is named in
   `mutation`.  A slot's data are a tag: the number of the lease that wrote there last. */
#ifndef CORE_WORLD_H_INCLUDED
#define CORE_WORLD_H_INCLUDED

#include "core_rig.h"

enum { BOXES = 3, BOX_SLOTS = 4, HOSTS = 2, PORTS = 5, PROXIES = BOXES + HOSTS, UNITS = PORTS };
enum { QUEUE = 256, EPOCHS = 1 << 14, FOREIGN_TAG = 1 }; /* a number that no lease has */

typedef enum mutation {
    HONEST,
    ADMITS_ALL,     /* a box lets in whoever comes */
    FORGETS_COMMIT, /* the store says that it has what it has not */
    KEY_TWICE,      /* the key of a request is lost */
    WIPES_NOT,      /* a box says that it wiped, and did not */
    WIPES_KEPT,     /* a box wipes what it was to keep */
    NO_QUOTA,       /* the use of a quota is forgotten */
    MOVES_KEPT,     /* a parked lease is exchanged as others are */
    LIES_DONE,      /* a host says that it detached, and did not */
    COPIES_SHARE,   /* a copy of a host is given the epoch that the first one has */
    DROPS_RETAINED, /* what is retained is wiped without a decision */
    MIXES_OWNERS,   /* what is retained for one lease is given to another */
    TRUSTS_COPIES,  /* a store is not taken for an old copy, where a box lost its state */
    SAME_SALT,      /* all runs begin at the same epoch */
    RESUMES_WIPES,  /* a box that starts goes on with the wipes of its state by itself */
    MUTATIONS
} mutation;

typedef struct unit {
    uint64_t epoch, seen;
    uint32_t peer_node;
    uint16_t peer_slot;
    uint8_t state;
    bool broken, bad_wipe;
    bool waits;              /* its wipe, for the manager to order it again (M-105) */
    uint64_t tag;            /* what is on the medium; 0: nothing */
    uint64_t wrote;          /* the lease that wrote it and was not wiped since, as it should be */
    bool strange, elsewhere; /* a used disk is in it; and what it keeps is on its own */
    uint8_t looks; /* of that one: like its own, of another group, or such that keeps no data */
} unit;

typedef enum { TO_REGISTER, TO_ANSWER, TO_OBEY } message_kind;
typedef struct message {
    message_kind kind;
    core_order order;
    unsigned code;
    dxpu_control_done done;
    unsigned first, count;
    dxpu_control_device device[UNITS];
} message;

typedef struct queue {
    message m[QUEUE];
    unsigned first, count;
} queue;

typedef struct proxy {
    uint8_t role, id;
    unsigned units;
    uint32_t node; /* as the manager said */
    uint64_t instance;
    bool linked;  /* the proxy has a connection */
    bool fresh;   /* and the manager has heard nothing on it yet */
    bool noticed; /* the manager has one */
    bool draining;
    unit unit[UNITS];
    queue in, out; /* to the proxy, to the manager */
} proxy;

static proxy world[PROXIES];
static unit own_disk[BOXES][BOX_SLOTS];  /* of those with a strange one, as it was then */
static unit old_state[BOXES][BOX_SLOTS]; /* a copy of what a box knew */
/* A second program with a host's identity, without a connection: it goes on with what it had. */
static proxy copy_of_host[HOSTS];
static mutation mutant;
/* Whose epoch it is, as bind was ordered; by the epoch. */
static struct {
    uint64_t epoch, lease;
} given[EPOCHS];
static char violation[300];
static uint64_t random_word, instances;

static uint32_t draw(uint32_t below)
{
    random_word ^= random_word << 13;
    random_word ^= random_word >> 7;
    random_word ^= random_word << 17;
    return (uint32_t)(random_word >> 32) % below;
}

/* A box is about to erase these data of a lease. */
static void note_wipe(const proxy *p, unsigned i, uint64_t lease);

static void violate(const char *what, uint64_t number)
{
    if (!violation[0])
        snprintf(violation, sizeof violation, "%s (%llx)", what, (unsigned long long)number);
}

static uint64_t *lease_of_epoch(uint64_t epoch)
{
    unsigned at = (unsigned)(epoch % EPOCHS);
    while (given[at].epoch && given[at].epoch != epoch)
        at = (at + 1) % EPOCHS;
    given[at].epoch = epoch;
    return &given[at].lease;
}

/* -- Messages -- */

static message *push(queue *q, message_kind kind)
{
    if (q->count == QUEUE) {
        violate("a queue runs full: orders in a hot loop", kind);
        q->count--;
    }
    message *m = &q->m[(q->first + q->count++) % QUEUE];
    memset(m, 0, sizeof *m);
    m->kind = kind;
    return m;
}

static const message *pop(queue *q)
{
    const message *m = &q->m[q->first];
    q->first = (q->first + 1) % QUEUE;
    q->count--;
    return m;
}

static dxpu_control_device as_device(const proxy *p, unsigned i)
{
    const unit *u = &p->unit[i];
    dxpu_control_device d = { .number = (uint16_t)(i + 1),
                              .state = u->state,
                              .epoch = u->epoch,
                              .peer_node = u->peer_node,
                              .peer_slot = u->peer_slot };
    if (p->role == DXPU_CONTROL_ROLE_HOST) {
        d.peer_node = u->peer_node ? world[u->peer_node - 1].node : 0;
        return d;
    }
    bool broken = u->broken || u->elsewhere;
    d.health = broken ? DXPU_CONTROL_HEALTH_BROKEN : DXPU_CONTROL_HEALTH_GOOD;
    d.epoch_seen = u->seen;
    d.group = (u->looks ? 10 : 1) + i / 2;
    d.medium = (p->id * UNITS + i) * 2 + (u->strange ? 2 : 1);
    d.data = p->id == 2 || u->looks == 2 ? DXPU_CONTROL_DATA_NONE : DXPU_CONTROL_DATA_PERSISTENT;
    snprintf(d.model, sizeof d.model, "%s", p->id == 2 ? "gpu" : "nvme");
    snprintf(d.serial, sizeof d.serial, "%u-%u", p->id, i);
    return d;
}

/* Report slots from `first` on, as they are now. */
static void tell(proxy *p, unsigned first, unsigned count)
{
    if (!p->linked)
        return;
    message *m = push(&p->out, TO_REGISTER);
    m->first = first + 1;
    m->count = count;
    for (unsigned i = 0; i < count; i++)
        m->device[first + i] = as_device(p, first + i);
}

static void dial(proxy *p)
{
    unsigned some = draw(p->units);
    p->linked = p->fresh = true;
    p->in.count = p->out.count = 0;
    if (some) /* a registration may come in pieces */
        tell(p, 0, some);
    tell(p, some, p->units - some);
}

/* -- Boxes -- */

static void unit_end(unit *u, uint8_t state)
{
    u->epoch = 0;
    u->peer_node = 0;
    u->peer_slot = 0;
    u->state = state;
}

static unsigned obey_bind(const proxy *p, unit *u, const dxpu_control_bind *b)
{
    if (b->epoch < u->seen || (b->epoch == u->seen && u->epoch != b->epoch))
        return DXPU_CONTROL_CODE_EPOCH;
    if (u->epoch == b->epoch)
        return DXPU_CONTROL_CODE_NONE;
    if ((u->state == DXPU_CONTROL_SLOT_WIPING && !u->waits) ||
        u->state == DXPU_CONTROL_SLOT_UNWIPED || u->elsewhere)
        return DXPU_CONTROL_CODE_BUSY;
    bool goes_on = u->epoch && u->peer_node == b->host_node && u->peer_slot == b->host_slot;
    if (p->draining && u->state != DXPU_CONTROL_SLOT_KEPT && !goes_on)
        return DXPU_CONTROL_CODE_DRAINED;
    u->waits = false;
    u->epoch = u->seen = b->epoch;
    u->peer_node = b->host_node;
    u->peer_slot = b->host_slot;
    u->state = DXPU_CONTROL_SLOT_HELD;
    return DXPU_CONTROL_CODE_NONE;
}

static unsigned obey_unbind(unit *u, const dxpu_control_unbind *b)
{
    if (u->epoch ? b->epoch != u->epoch : b->epoch < u->seen)
        return DXPU_CONTROL_CODE_EPOCH;
    if (b->keep && u->elsewhere)
        return DXPU_CONTROL_CODE_BUSY;
    bool clean = u->state == DXPU_CONTROL_SLOT_WIPING ||
                 (u->state == DXPU_CONTROL_SLOT_WIPED && b->epoch == u->seen);
    u->waits = u->waits && b->keep;
    u->seen = b->epoch;
    if (b->keep && mutant == WIPES_KEPT)
        u->tag = 0;
    if (clean) /* M-64 */
        return DXPU_CONTROL_CODE_NONE;
    if (!b->keep)
        unit_end(u, DXPU_CONTROL_SLOT_WIPING);
    else if (u->state != DXPU_CONTROL_SLOT_UNWIPED)
        unit_end(u, DXPU_CONTROL_SLOT_KEPT);
    return DXPU_CONTROL_CODE_NONE;
}

static void wipe_step(proxy *p, unsigned i)
{
    unit *u = &p->unit[i];
    if (u->state != DXPU_CONTROL_SLOT_WIPING || (u->waits && mutant != RESUMES_WIPES))
        return;
    u->waits = false;
    u->state = u->bad_wipe ? DXPU_CONTROL_SLOT_UNWIPED : DXPU_CONTROL_SLOT_WIPED;
    if (!u->bad_wipe) {
        if (u->tag)
            note_wipe(p, i, u->tag);
        u->wrote = 0;
        u->elsewhere = false; /* what it keeps is of this one now */
        if (mutant != WIPES_NOT)
            u->tag = 0;
    }
    u->bad_wipe = false;
    tell(p, i, 1);
}

/* A box that was stopped has another disk in a slot, a used one; or its own again (M-67). */
static void swap_disk(const proxy *p, unit *u)
{
    unit *own = &own_disk[p->id - 1][u - p->unit];
    if (!u->strange) {
        *own = *u;
        u->strange = true;
        u->looks = (uint8_t)draw(3);
        u->elsewhere = u->state != DXPU_CONTROL_SLOT_WIPED && u->state != DXPU_CONTROL_SLOT_EMPTY &&
                       u->state != DXPU_CONTROL_SLOT_UNWIPED;
        unit_end(u, DXPU_CONTROL_SLOT_EMPTY);
        u->tag = FOREIGN_TAG;
        u->wrote = 0;
    } else if (u->elsewhere) {
        *u = *own;
    } else if (u->state == DXPU_CONTROL_SLOT_EMPTY) {
        u->tag = own->tag;
        u->wrote = own->wrote;
        u->strange = false;
        u->looks = 0;
    }
}

/* -- Hosts -- */

static unsigned obey_attach(proxy *p, unit *u, const dxpu_control_attach *a)
{
    uint32_t box = a->box.port - 4400u; /* the identity is in the address */
    if (u->state == DXPU_CONTROL_SLOT_CLOSING)
        return DXPU_CONTROL_CODE_CLOSING;
    if (u->epoch)
        return u->epoch == a->epoch && u->peer_slot == a->box_slot ? DXPU_CONTROL_CODE_NONE
                                                                   : DXPU_CONTROL_CODE_BUSY;
    for (unsigned i = 0; i < p->units; i++)
        if (p->unit[i].epoch && p->unit[i].peer_node == box && p->unit[i].peer_slot == a->box_slot)
            return DXPU_CONTROL_CODE_TWICE;
    u->epoch = a->epoch;
    u->peer_node = box;
    u->peer_slot = a->box_slot;
    u->state = DXPU_CONTROL_SLOT_DIALING;
    return DXPU_CONTROL_CODE_NONE;
}

static unsigned obey_detach(unit *u, const dxpu_control_detach *d)
{
    if (!u->epoch)
        return DXPU_CONTROL_CODE_EMPTY;
    if (d->epoch && d->epoch != u->epoch)
        return DXPU_CONTROL_CODE_EPOCH;
    if (mutant == LIES_DONE)
        return DXPU_CONTROL_CODE_NONE;
    if (draw(2))
        u->state = DXPU_CONTROL_SLOT_CLOSING;
    else
        unit_end(u, DXPU_CONTROL_SLOT_EMPTY);
    return DXPU_CONTROL_CODE_NONE;
}

static void close_step(proxy *p, unsigned i)
{
    if (p->unit[i].state != DXPU_CONTROL_SLOT_CLOSING)
        return;
    unit_end(&p->unit[i], DXPU_CONTROL_SLOT_EMPTY);
    tell(p, i, 1);
}

/* -- Orders -- */

static void obey(proxy *p, const core_order *o)
{
    unsigned number = corei_order_slot(&o->m), code = DXPU_CONTROL_CODE_NO_SLOT;
    unit *u = number && number <= p->units ? &p->unit[number - 1] : NULL;
    if (o->m.type == DXPU_CONTROL_DRAIN) {
        p->draining = o->m.u.drain.on;
        code = DXPU_CONTROL_CODE_NONE;
    } else if (u && o->m.type == DXPU_CONTROL_BIND) {
        code = obey_bind(p, u, &o->m.u.bind);
    } else if (u && o->m.type == DXPU_CONTROL_UNBIND) {
        code = obey_unbind(u, &o->m.u.unbind);
    } else if (u && o->m.type == DXPU_CONTROL_RESET) {
        code = o->m.u.reset.epoch == u->epoch ? 0 : DXPU_CONTROL_CODE_EPOCH;
    } else if (u && o->m.type == DXPU_CONTROL_DIRECT) {
        code = DXPU_CONTROL_CODE_NONE;
    } else if (u && o->m.type == DXPU_CONTROL_ATTACH) {
        code = obey_attach(p, u, &o->m.u.attach);
    } else if (u && o->m.type == DXPU_CONTROL_DETACH) {
        code = obey_detach(u, &o->m.u.detach);
    }
    message *m = push(&p->out, TO_ANSWER);
    m->order = *o;
    m->code = code;
    m->done.slot = (uint16_t)number;
    if (u) {
        m->done.state = u->state;
        m->done.epoch = u->epoch;
        if (mutant == LIES_DONE && o->m.type == DXPU_CONTROL_DETACH)
            m->done = (dxpu_control_done){ (uint16_t)number, DXPU_CONTROL_SLOT_EMPTY, 0 };
        else
            tell(p, number - 1, 1);
    }
}

/* -- Channels -- */

static bool admits(const unit *slot, const proxy *host, unsigned port)
{
    const unit *u = &host->unit[port];
    if (mutant == ADMITS_ALL)
        return slot->state != DXPU_CONTROL_SLOT_WIPING;
    return slot->epoch && slot->epoch == u->epoch && slot->peer_node == host->node &&
           slot->peer_slot == port + 1;
}

/* The guest reads what is there, and writes its own. */
static void use(unit *slot, uint64_t epoch)
{
    uint64_t lease = *lease_of_epoch(epoch);
    if (slot->tag && slot->tag != lease)
        violate("a lease reads another's data", lease);
    if (slot->wrote == lease && slot->tag != lease)
        violate("a lease's data are gone", lease);
    slot->tag = slot->wrote = lease;
}

static void channel_step(proxy *host, unsigned port)
{
    unit *u = &host->unit[port];
    if (u->state != DXPU_CONTROL_SLOT_DIALING && u->state != DXPU_CONTROL_SLOT_UP)
        return;
    proxy *box = &world[u->peer_node - 1];
    unit *slot = &box->unit[u->peer_slot - 1];
    uint8_t was = u->state, slot_was = slot->state;
    u->state = admits(slot, host, port) ? DXPU_CONTROL_SLOT_UP : DXPU_CONTROL_SLOT_DIALING;
    if (u->state == DXPU_CONTROL_SLOT_UP) {
        if (slot->epoch)
            slot->state = DXPU_CONTROL_SLOT_UP;
        use(slot, u->epoch);
    } else if (slot->epoch == u->epoch && slot->state == DXPU_CONTROL_SLOT_UP) {
        slot->state = DXPU_CONTROL_SLOT_HELD;
    }
    if (u->state != was)
        tell(host, port, 1);
    if (slot->state != slot_was)
        tell(box, u->peer_slot - 1u, 1);
}

/* Two that have one slot, both let in. */
static void check_owners(void)
{
    unsigned owners[BOXES][BOX_SLOTS] = { { 0 } };
    for (unsigned h = 0; h < 2 * HOSTS; h++) {
        const proxy *host = h < HOSTS ? &world[BOXES + h] : &copy_of_host[h - HOSTS];
        for (unsigned i = 0; i < host->units; i++) {
            const unit *u = &host->unit[i];
            if (!u->epoch || u->state == DXPU_CONTROL_SLOT_CLOSING)
                continue;
            unsigned box = u->peer_node - 1, slot = u->peer_slot - 1u;
            if (admits(&world[box].unit[slot], host, i) && ++owners[box][slot] > 1)
                violate("two hosts have one slot", u->epoch);
        }
    }
}

static void world_init(void)
{
    memset(world, 0, sizeof world);
    for (unsigned i = 0; i < PROXIES; i++) {
        proxy *p = &world[i];
        p->role = i < BOXES ? DXPU_CONTROL_ROLE_BOX : DXPU_CONTROL_ROLE_HOST;
        p->id = (uint8_t)(i + 1);
        p->units = i < BOXES ? BOX_SLOTS : PORTS;
        p->instance = ++instances;
        for (unsigned u = 0; i < BOXES && u < BOX_SLOTS; u++)
            p->unit[u].state = DXPU_CONTROL_SLOT_WIPED;
    }
    memset(copy_of_host, 0, sizeof copy_of_host);
    memset(given, 0, sizeof given);
    violation[0] = 0;
}

#endif /* CORE_WORLD_H_INCLUDED */
