/* Fuzz target: the leases of a box (leases.c), over a state file that is slow or fails, power cuts,
   media that
   are exchanged and wipes that fail, between a manager, which keeps the rules until the input has
   it do anything, and hosts that try what they once had.  No host finds another's data; who is
   let in has the lease; what was answered is there after a power cut, what was refused changed
   nothing (M-54 to M-67, M-83, M-84); who calls a slot wiped has wiped it; and the manager is
   notified of each change at once.
   libFuzzer: -max_len=1024 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"
#include "quiet.h"

#include "dxpu.h"
#include "dxpu_control.h"
#include "leases.h"
#include "hot_plug.h"
#include "p2p.h"
#include "shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOTS = 2, MEDIA = 2, TENANTS = 3, WIPE_STEPS = 3, STEPS_MAX = 300 };
enum { LEND, AGAIN, RENEW, RELEASE, RESUME, CLEAN, USE, WRITE, WIPE, FAIL, CUT, RESET, WILD };
enum { SLOW = WILD + 1, SETTLE, OPS };

/* What a device keeps its data on. */
typedef struct medium {
    uint8_t data; /* whose: a tenant's number; 0: all is 0 */
    bool used;    /* ever */
    unsigned wiped;
} medium;

/* A slot as its manager knows it. */
typedef struct order {
    uint8_t tenant; /* who has it, or whose data it keeps; 0: none */
    bool leased, kept;
    uint64_t epoch;
} order;

/* Of a state_key, without what pads it. */
enum { LEASE_KEY_BYTES = offsetof(state_key, key) + DXPU_NOISE_KEY_BYTES };

/* A line of the file. */
typedef struct file_line {
    dxpu_box_entry entry;
    uint8_t phase;
    uint64_t medium;
    state_key key;
} file_line;

/* How a slot was when it was asked for something. */
typedef struct before {
    dxpu_box_entry entry;
    uint8_t phase;
    state_key key;
    bool broken, waits;
} before;

/* A bind, or an unbind without a tenant. */
typedef struct asking {
    unsigned i;
    uint8_t tenant, key; /* whose; a proxy has one */
    uint64_t epoch;
    bool data_stay;
    order then; /* what the manager has of the slot once it is done; kept: as the box says */
    before was;
} asking;

static const device_kind lasting, passing;
static file_line line[SLOTS], wanted[SLOTS];
static bool writing[SLOTS]; /* what is requested */
static bool slow;           /* it stays under way */
static asking asked[SLOTS];
static bool due[SLOTS]; /* for the answer to that */
static dxpu_box_entry entries[SLOTS];
static uint8_t phases[SLOTS];
static uint64_t mediums[SLOTS];
static state_key lease_keys[SLOTS];
static medium media[SLOTS][MEDIA];
static unsigned in_place[SLOTS]; /* which one */
static slot slots[SLOTS];
static shard loop;
static box b;
static order orders[SLOTS];
static uint8_t channel[SLOTS]; /* the tenant that has one; 0: none */
static struct {
    uint8_t phase;
    uint64_t epoch;
} heard[SLOTS]; /* of each slot, when its manager was last notified */
static bool plain, wild;
static bool begun[SLOTS];   /* its wipe */
static bool ordered[SLOTS]; /* a wipe, since the start */
static unsigned failing;    /* writes of the file */
static uint64_t newest;     /* epoch ever given */
static int wipe_ends;       /* how the wipe does */

static medium *medium_of(unsigned i)
{
    return &media[i][in_place[i]];
}

/* -- What surrounds it -- */

void state_want(state_file *s, const dxpu_box_entry *e, uint8_t phase, uint64_t at,
                const state_key *key)
{
    unsigned i = e->slot - 1u;
    must(!s && i < SLOTS && !writing[i]); /* one at a time */
    wanted[i] = (file_line){ *e, phase, at, *key };
    writing[i] = true;
}

void state_note(state_file *s, const dxpu_box_entry *e, uint8_t phase, uint64_t at,
                const state_key *key)
{
    must(!s && e->slot >= 1 && e->slot <= SLOTS);
    line[e->slot - 1] = (file_line){ *e, phase, at, *key };
}

/* The disk answers. */
static void settle(unsigned i)
{
    bool kept = !failing;
    if (!writing[i])
        return;
    failing -= failing != 0;
    writing[i] = false;
    if (kept)
        line[i] = wanted[i];
    leases_written(&b, i + 1, kept);
    must(!due[i]);
}

void slots_end(slot *s, uint8_t reason)
{
    unsigned i = (unsigned)(s - slots);
    must(i < SLOTS && reason);
    channel[i] = 0;
    if (s->kind == &passing)
        medium_of(i)->data = 0;
}

void p2p_direct(slot *s, bool on)
{
    s->indirect = !on;
}

uint8_t slots_state(const slot *s)
{
    unsigned i = (unsigned)(s - slots);
    return channel[i] ? DXPU_CONTROL_SLOT_UP : entries[i].used ? DXPU_CONTROL_SLOT_HELD : phases[i];
}

void manager_changed(manager_link *m, unsigned number)
{
    must(!m && number && number <= SLOTS);
    heard[number - 1].phase = phases[number - 1];
    heard[number - 1].epoch = entries[number - 1].epoch_seen;
}

void manager_alarm(manager_link *m, unsigned number, unsigned kind, uint64_t epoch,
                   const char *text)
{
    (void)epoch;
    must(!m && number && number <= SLOTS && kind && strlen(text) <= DXPU_CONTROL_TEXT_MAX);
}

/* Devices stay in their slots here. */
const device_kind no_device_kind = { .name = "none" };

/* state_promises(), state_uses() */
static bool look_up(const state_file *s, unsigned number, uint64_t of)
{
    must(!s && number && number <= SLOTS && of > 1);
    for (unsigned i = 0; i < SLOTS; i++) /* no two slots have a medium in common */
        must(i + 1 == number || line[i].medium != of);
    return false;
}

bool state_promises(state_file *s, unsigned number, uint64_t of)
{
    return look_up(s, number, of);
}

bool state_uses(state_file *s, unsigned number, uint64_t of)
{
    return look_up(s, number, of);
}

void plug_written(slot *s, bool kept)
{
    must(!s && kept);
}

bool keys_plain(const keys *k)
{
    (void)k;
    return plain;
}

static int do_wipe(void *device, bool begin)
{
    unsigned i = (unsigned)((slot *)device - slots);
    medium *at = medium_of(i);
    must(!channel[i] && phases[i] == DXPU_CONTROL_SLOT_WIPING && begin == !begun[i]);
    must(ordered[i]); /* M-105 */
    begun[i] = wipe_ends != DEVICE_UNWIPED;
    if (begin)
        at->wiped = 0;
    if (wipe_ends != DEVICE_WIPED || ++at->wiped < WIPE_STEPS)
        return wipe_ends == DEVICE_UNWIPED ? DEVICE_UNWIPED : DEVICE_WIPING;
    begun[i] = false;
    at->data = 0;
    return DEVICE_WIPED;
}

static uint64_t do_medium(void *device, bool *pristine)
{
    unsigned i = (unsigned)((slot *)device - slots);
    *pristine = !medium_of(i)->used;
    return 1 + i * MEDIA + in_place[i];
}

static const device_kind lasting = { .name = "lasting", .wipe = do_wipe, .medium = do_medium };
static const device_kind passing = { .name = "passing" };

/* -- The box -- */

static void set_key(bool *known, uint8_t key[DXPU_CONTROL_KEY_BYTES], uint8_t tenant)
{
    memset(key, 0, DXPU_CONTROL_KEY_BYTES);
    *known = !plain;
    key[0] = plain ? 0 : tenant;
}

/* With what its file says, which may be of other media. */
static void start(void)
{
    memset(&loop, 0, sizeof loop);
    memset(slots, 0, sizeof slots);
    memset(channel, 0, sizeof channel);
    memset(begun, 0, sizeof begun);
    memset(ordered, 0, sizeof ordered);
    must(dxpu_box_init(&b.table, entries, SLOTS) == DXPU_OK);
    b.count = SLOTS;
    b.entries = entries;
    b.phase = phases;
    b.lease_key = lease_keys;
    b.medium = mediums;
    b.slots = slots;
    b.shards = &loop;
    b.shard_count = 1;
    b.managed = true;
    loop.box = &b;
    for (unsigned i = 0; i < SLOTS; i++) {
        slots[i].shard = &loop;
        slots[i].device = &slots[i];
        slots[i].kind = i ? &passing : &lasting;
        if (i)
            medium_of(i)->data = 0;
        entries[i].valid = true;
        entries[i].epoch_seen = line[i].entry.epoch_seen;
        entries[i].host_node = line[i].entry.host_node;
        entries[i].host_slot = line[i].entry.host_slot;
        phases[i] = line[i].phase;
        mediums[i] = line[i].medium;
        lease_keys[i] = line[i].key;
    }
    leases_look(&b);
    leases_begin(&b);
    leases_tell(&b);
    for (unsigned i = 0; i < SLOTS; i++) /* it registers */
        manager_changed(NULL, i + 1);
}

/* -- Its manager -- */

static dxpu_control_device told(unsigned i)
{
    dxpu_control_device d = { .number = (uint16_t)(i + 1) };
    leases_device(&b, i + 1, &d);
    return d;
}

static before as_it_is(unsigned i)
{
    return (before){ entries[i], phases[i], lease_keys[i], slots[i].broken, slots[i].wipe_waits };
}

static void check_as_it_was(unsigned i, const before *was)
{
    must(!memcmp(&entries[i], &was->entry, sizeof entries[i]) && phases[i] == was->phase);
    must(!memcmp(&lease_keys[i], &was->key, LEASE_KEY_BYTES) && slots[i].broken == was->broken);
}

/* What is done is in the file. */
static void check_done(unsigned i)
{
    must(line[i].entry.epoch_seen == entries[i].epoch_seen);
    must(line[i].phase == phases[i] || /* or, if that could not be written, it is wiped again */
         (line[i].phase == DXPU_CONTROL_SLOT_WIPING &&
          (phases[i] == DXPU_CONTROL_SLOT_WIPED || phases[i] == DXPU_CONTROL_SLOT_UNWIPED)));
    must(!memcmp(&line[i].key, &lease_keys[i], LEASE_KEY_BYTES));
}

/* M-54, M-60, M-62, M-83 */
static void check_given(const asking *a)
{
    const before *was = &a->was;
    unsigned i = a->i;
    bool same = was->entry.host_node == a->tenant && was->entry.epoch_seen == a->epoch;
    must(a->epoch > was->entry.epoch_seen || (same && was->phase == DXPU_CONTROL_SLOT_HELD));
    must((was->phase != DXPU_CONTROL_SLOT_WIPING || was->waits) &&
         was->phase != DXPU_CONTROL_SLOT_UNWIPED);
    must(entries[i].used && entries[i].epoch == a->epoch && entries[i].host_node == a->tenant);
    must(lease_keys[i].known == !plain && (plain || lease_keys[i].key[0] == a->key));
}

/* M-63, M-64 */
static void check_taken(const asking *a)
{
    const before *was = &a->was;
    unsigned i = a->i;
    must(a->epoch >= was->entry.epoch_seen && entries[i].epoch_seen == a->epoch);
    must(!entries[i].used && !lease_keys[i].known && !channel[i]);
    must(was->phase != DXPU_CONTROL_SLOT_WIPING || phases[i] == was->phase);
    must(a->data_stay || phases[i] == DXPU_CONTROL_SLOT_WIPING ||
         was->phase == DXPU_CONTROL_SLOT_WIPED);
}

static void answered(const asking *a, unsigned code)
{
    if (code) {
        check_as_it_was(a->i, &a->was);
        return;
    }
    check_done(a->i);
    if (a->tenant)
        check_given(a);
    else
        check_taken(a);
    orders[a->i] = a->then;
    if (!a->tenant && a->then.kept)
        orders[a->i].kept = phases[a->i] == DXPU_CONTROL_SLOT_KEPT;
}

void shards_answer(box *of, unsigned number, unsigned code)
{
    unsigned i = number - 1;
    must(of == &b && i < SLOTS && due[i] && (!code || code == DXPU_CONTROL_CODE_STATE));
    due[i] = false;
    answered(&asked[i], code);
}

static unsigned send_order(const asking *a)
{
    dxpu_control_bind give = {
        (uint16_t)(a->i + 1), 1, a->tenant, a->epoch, false, { 0 }, a->epoch, a->tenant
    };
    dxpu_control_unbind take = { (uint16_t)(a->i + 1), a->data_stay, a->epoch };
    ordered[a->i] |= !a->tenant && !a->data_stay;
    if (!a->tenant)
        return leases_unbind(&b, &take);
    set_key(&give.keyed, give.key, a->key);
    return leases_bind(&b, &give);
}

static void ask(asking *a)
{
    unsigned code;
    a->was = as_it_is(a->i);
    code = send_order(a);
    if (code != REQUESTS_LATER) {
        answered(a, code);
        return;
    }
    check_as_it_was(a->i, &a->was); /* until it is on disk */
    if (due[a->i])
        return; /* the same again */
    due[a->i] = true;
    asked[a->i] = *a;
    if (!slow)
        settle(a->i);
}

static void give(unsigned i, uint8_t tenant, uint64_t epoch, uint8_t key, order then)
{
    asking a = { .i = i, .tenant = tenant, .epoch = epoch, .key = key, .then = then };
    ask(&a);
}

static void take_back(unsigned i, uint64_t epoch, bool data_stay, order then)
{
    asking a = { .i = i, .epoch = epoch, .data_stay = data_stay, .then = then };
    ask(&a);
}

static void lend(unsigned i, uint8_t tenant)
{
    dxpu_control_device d = told(i);
    order *o = &orders[i];
    if (o->leased || o->kept || d.state != DXPU_CONTROL_SLOT_WIPED ||
        d.health != DXPU_CONTROL_HEALTH_GOOD)
        return;
    ++newest;
    give(i, tenant, newest, tenant, (order){ tenant, true, false, newest });
}

static void bind_again(unsigned i, bool higher)
{
    order then = orders[i];
    if (!then.leased)
        return;
    then.epoch = higher ? ++newest : then.epoch;
    give(i, then.tenant, then.epoch, then.tenant, then);
}

static void release(unsigned i, bool data_stay)
{
    order then = orders[i];
    if (!then.leased)
        return;
    then.leased = false;
    then.kept = true;
    take_back(i, then.epoch, data_stay, then);
}

static void resume(unsigned i)
{
    order then = orders[i];
    if (!then.kept || told(i).state != DXPU_CONTROL_SLOT_KEPT)
        return;
    then.leased = true;
    then.kept = false;
    then.epoch = ++newest;
    give(i, then.tenant, then.epoch, then.tenant, then);
}

/* An unassigned slot is wiped, also if its data are kept. */
static void clean(unsigned i)
{
    dxpu_control_device d = told(i);
    order then = orders[i];
    uint64_t epoch = d.epoch_seen > then.epoch ? d.epoch_seen : then.epoch;
    if (then.leased)
        return;
    then.kept = false;
    take_back(i, epoch ? epoch : ++newest, false, then);
}

/* Anything, after which nothing is said of data any more. */
static void do_wild(input *in, unsigned i)
{
    uint8_t how = next(in), tenant = 1 + next(in) % TENANTS;
    uint64_t epoch = newest + 1 - next(in) % 4 + (how & 0x80 ? 1 : 0);
    wild = true;
    if (!epoch)
        epoch = 1;
    if (how & 1)
        give(i, tenant, epoch, how & 4 ? 1 : tenant, orders[i]);
    else
        take_back(i, epoch, how & 2, orders[i]);
    newest = epoch > newest ? epoch : newest;
}

/* -- Hosts -- */

static bool key_fits(unsigned i, uint8_t tenant)
{
    return plain || (lease_keys[i].known && lease_keys[i].key[0] == tenant);
}

static void use(unsigned i, uint8_t tenant, uint64_t epoch)
{
    const order *o = &orders[i];
    if (!key_fits(i, tenant) || leases_admit(&b, i + 1, tenant, epoch) != DXPU_REASON_NONE)
        return;
    must(entries[i].used && entries[i].epoch == epoch && entries[i].host_node == tenant);
    must(wild || (o->leased && o->tenant == tenant && o->epoch == epoch));
    channel[i] = tenant;
}

static void write_data(unsigned i)
{
    medium *at = medium_of(i);
    if (!channel[i])
        return;
    must(wild || !at->data || at->data == channel[i]);
    at->data = channel[i];
    at->used = true;
}

/* -- All -- */

/* What was under way was written, or not; its answer is lost, and it is asked again. */
static void cut(uint8_t how)
{
    uint64_t seen[SLOTS];
    for (unsigned i = 0; i < SLOTS; i++) {
        seen[i] = entries[i].epoch_seen;
        if (writing[i] && how & 4)
            line[i] = wanted[i];
        writing[i] = false;
    }
    in_place[0] = how & 1;
    plain = how & 2;
    start();
    for (unsigned i = 0; i < SLOTS; i++) {
        bool lost = due[i], fast = !slow;
        must(entries[i].epoch_seen == seen[i] || (lost && entries[i].epoch_seen > seen[i]));
        due[i] = slow = false;
        if (lost)
            ask(&asked[i]);
        wild |= lost && (orders[i].leased != asked[i].then.leased ||
                         orders[i].epoch != asked[i].then.epoch); /* it cannot be done now */
        slow = !fast;
    }
}

static void check(const uint64_t seen[SLOTS])
{
    unsigned wiping = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        const dxpu_box_entry *e = &entries[i];
        uint8_t state = slots_state(&slots[i]);
        must(!slots[i].wipe_waits || phases[i] == DXPU_CONTROL_SLOT_WIPING);
        wiping += phases[i] == DXPU_CONTROL_SLOT_WIPING && !slots[i].wipe_waits;
        must(e->epoch_seen >= seen[i] && (!e->used || e->epoch == e->epoch_seen));
        must(!channel[i] || (e->used && e->host_node == channel[i])); /* else slots_end() came */
        must(state != DXPU_CONTROL_SLOT_WIPED || !medium_of(i)->data || (wild && plain));
        must(!e->used || phases[i] == DXPU_CONTROL_SLOT_HELD);
        must(heard[i].phase == phases[i] && heard[i].epoch == e->epoch_seen);
        must(!e->used || lease_keys[i].known == !plain);
    }
    must(loop.wiping == wiping && leases_wiping(&loop) == (wiping != 0));
}

static void step(input *in)
{
    uint8_t op = next(in), how = next(in);
    unsigned i = how & 1;
    uint8_t tenant = (uint8_t)(1 + (how >> 1) % TENANTS);
    uint64_t seen[SLOTS] = { entries[0].epoch_seen, entries[1].epoch_seen };
    switch (op % OPS) {
    case LEND:
        if (!due[i])
            lend(i, tenant);
        break;
    case AGAIN:
    case RENEW:
        if (!due[i])
            bind_again(i, op % OPS == RENEW);
        else /* M-54 */
            ask(&(asking){ .i = i,
                           .tenant = asked[i].tenant,
                           .key = asked[i].key,
                           .epoch = asked[i].epoch,
                           .data_stay = asked[i].data_stay,
                           .then = asked[i].then });
        break;
    case RELEASE:
        if (!due[i])
            release(i, how & 2);
        break;
    case RESUME:
        if (!due[i])
            resume(i);
        break;
    case CLEAN:
        if (!due[i])
            clean(i);
        break;
    case USE: /* and with what it once had */
        use(i, tenant, orders[i].epoch - (how >> 5 & 3));
        break;
    case WRITE:
        write_data(i);
        break;
    case WIPE:
        wipe_ends = how & 0x80 ? DEVICE_UNWIPED : how & 0x40 ? DEVICE_WIPING : DEVICE_WIPED;
        leases_work(&loop);
        for (unsigned n = 0; n < SLOTS; n++) {
            if (!slow && !due[n])
                settle(n);
        }
        break;
    case FAIL:
        failing = how & 3;
        break;
    case CUT:
        cut(how);
        break;
    case RESET: {
        dxpu_control_reset m = { (uint16_t)(i + 1), how & 2 ? orders[i].epoch : 0 };
        leases_drain(&b, i + 1, how & 4);
        if (how & 8)
            (void)leases_reset(&b, &m);
        break;
    }
    case SLOW:
        slow = how & 2;
        break;
    case SETTLE:
        settle(i);
        break;
    default:
        do_wild(in, i);
        break;
    }
    check(seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    memset(line, 0, sizeof line);
    memset(media, 0, sizeof media);
    memset(in_place, 0, sizeof in_place);
    memset(orders, 0, sizeof orders);
    memset(writing, 0, sizeof writing);
    memset(due, 0, sizeof due);
    plain = wild = slow = false;
    failing = 0;
    newest = 0;
    start();
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in);
    return 0;
}
