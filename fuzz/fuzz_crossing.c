/* Fuzz target: what keeper and worker share, when one of them is somebody else's.

   The first byte says who.  A worker that was taken over, against the whole keeper: its records,
   the switch, the slots, what the guest asks, with the vfio-user server replaced by a list of
   unanswered accesses.  The worker writes anything anywhere into the memory, or records as they
   should be, it gives credits back or not, it ends, and another one comes.  The keeper goes on:
   each access has one answer, at the latest when its time is up, and of a worker that is gone
   nothing waits.
   A keeper that was taken over: the worker's end of the memory, its queues, and the report that it
   prints of what the keeper has written there.

   What changes while it is looked at is not tried: each step is whole.
   libFuzzer: -max_len=2048 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "quiet.h"

#include <unistd.h>

#include "bridge.h"
#include "dxpu_libevent.h"
#include "dxpu_vfio_user.h"
#include "keeper_internal.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOTS = 2, ASKED_MAX = 512, MEMORY_BYTES = 1 << 16, LINKS_MAX = 4, STEPS_MAX = 400 };

/* ==== The vfio-user server ==================================================================== */

static struct {
    dxpu_vfu_config cfg;
    dxpu_vfu_callbacks cb;
    dxpu_vfu_counters count;
    bool waits[ASKED_MAX + 1]; /* by token */
    unsigned asked, waiting;
    uint8_t memory[MEMORY_BYTES];
} qemu;

void dxpu_vfu_config_default(dxpu_vfu_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    cfg->region[DXPU_VFU_CONFIG].bytes = 256;
}

dxpu_vfu *dxpu_vfu_open(const dxpu_vfu_config *cfg, const dxpu_vfu_callbacks *cb, const char **why)
{
    *why = NULL;
    qemu.cfg = *cfg;
    qemu.cb = *cb;
    return (dxpu_vfu *)&qemu;
}

void dxpu_vfu_close(dxpu_vfu *s)
{
    (void)s;
}

void dxpu_vfu_remove(const char *path)
{
    (void)path;
}

void dxpu_vfu_end(int fd)
{
    (void)fd;
}

int dxpu_vfu_client(const dxpu_vfu *s)
{
    (void)s;
    return -1;
}

int dxpu_vfu_fd(const dxpu_vfu *s)
{
    (void)s;
    return -1;
}

int dxpu_vfu_process(dxpu_vfu *s)
{
    (void)s;
    return DXPU_OK;
}

void dxpu_vfu_pause(dxpu_vfu *s, bool pause)
{
    (void)s;
    (void)pause;
}

static int answered(uint64_t token)
{
    must(token && token <= qemu.asked && qemu.waits[token]); /* once */
    qemu.waits[token] = false;
    qemu.waiting--;
    return DXPU_OK;
}

int dxpu_vfu_reply_read(dxpu_vfu *s, uint64_t token, const void *data, size_t bytes)
{
    (void)s;
    (void)data;
    must(bytes > 0);
    return answered(token);
}

int dxpu_vfu_reply_write(dxpu_vfu *s, uint64_t token)
{
    (void)s;
    return answered(token);
}

int dxpu_vfu_reply_error(dxpu_vfu *s, uint64_t token, int error)
{
    (void)s;
    must(error > 0);
    return answered(token);
}

static bool in_memory(uint64_t address, size_t bytes)
{
    return address < MEMORY_BYTES && bytes <= MEMORY_BYTES - address;
}

int dxpu_vfu_dma_read(dxpu_vfu *s, uint64_t address, void *data, size_t bytes)
{
    (void)s;
    if (!in_memory(address, bytes))
        return DXPU_E_NONE;
    memcpy(data, qemu.memory + address, bytes);
    return DXPU_OK;
}

int dxpu_vfu_dma_write(dxpu_vfu *s, uint64_t address, const void *data, size_t bytes)
{
    (void)s;
    if (!in_memory(address, bytes))
        return DXPU_E_NONE;
    memcpy(qemu.memory + address, data, bytes);
    return DXPU_OK;
}

bool dxpu_vfu_memory_at(const dxpu_vfu *s, uint32_t index, dxpu_vfu_memory *out)
{
    const dxpu_vfu_memory all = { 0, MEMORY_BYTES, DXPU_VFU_READ | DXPU_VFU_WRITE, true };
    (void)s;
    *out = all;
    return index == 0;
}

uint32_t dxpu_vfu_memory_changes(const dxpu_vfu *s)
{
    (void)s;
    return 1;
}

int dxpu_vfu_msi(dxpu_vfu *s, uint64_t address, uint32_t data)
{
    (void)s;
    (void)address;
    return data % 3 ? DXPU_OK : DXPU_E_AGAIN;
}

const dxpu_vfu_counters *dxpu_vfu_count(const dxpu_vfu *s)
{
    (void)s;
    return &qemu.count;
}

const char *dxpu_vfu_counter_name(unsigned index)
{
    return index ? NULL : "clients";
}

uint64_t dxpu_vfu_counter_value(const dxpu_vfu *s, unsigned index)
{
    (void)s;
    return index;
}

/* ==== The one that was taken over ============================================================= */

static crossing_memory *shared;
static uint64_t its_head; /* of what it puts in order */

static uint32_t word(input *in)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < 4; i++)
        v = v << 8 | next(in);
    return v;
}

static void to_ring(crossing_side *side, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        side->ring[(its_head + i) % CROSSING_RING_BYTES] = ((const uint8_t *)bytes)[i];
}

/* A record; its payload is what a worker says first, or the input's. */
static void put_record(input *in, crossing_side *side)
{
    crossing_hello hello = { CROSSING_VERSION, SLOTS, sizeof(crossing_record),
                             sizeof(crossing_memory) };
    uint8_t payload[256] = { 0 };
    crossing_record r = { 0, 0, 0, 0, 0, 0 };
    r.kind = next(in) % (CROSSING_KINDS + 1);
    r.arg = next(in) % 5;
    r.slot = next(in) % (SLOTS + 2);
    r.life = next(in) % 3;
    if (r.kind == CROSSING_HELLO) {
        r.bytes = sizeof hello;
        memcpy(payload, &hello, sizeof hello);
        r.slot = 0;
    } else {
        r.bytes = next(in);
        for (unsigned i = 0; i < r.bytes; i++)
            payload[i] = next(in);
    }
    to_ring(side, &r, sizeof r);
    its_head += sizeof r;
    to_ring(side, payload, r.bytes);
    its_head += crossing_record_bytes(r.bytes) - sizeof r;
    atomic_store(&side->head, its_head);
}

/* Anything, anywhere; most of it where it is read. */
static void poke(input *in, crossing_side *its, crossing_side *others)
{
    uint32_t at = word(in), value = word(in);
    unsigned slot = at % DXPU_VSWITCH_SLOTS_MAX, cls = at >> 8 & (CROSSING_CREDITS - 1);
    switch (next(in) % 9) {
    case 0:
        atomic_store(&its->head, its_head + (value % 64) - 16);
        break;
    case 1:
        atomic_store(&its->head, (uint64_t)value << (at & 32));
        break;
    case 2:
        atomic_store(&its->tail, atomic_load(&others->head) - (at & 1 ? value : 0));
        break;
    case 3:
        atomic_store(&its->taken[slot % SLOTS][cls], value);
        break;
    case 4:
        atomic_store(&its->returned, value);
        break;
    case 5:
        atomic_store(&its->asleep, value & 1);
        atomic_store(&its->hungry, value >> 1 & 1);
        break;
    case 6:
        its->ring[(its_head + at % 64 - 32) % CROSSING_RING_BYTES] = (uint8_t)value;
        break;
    case 7: /* what the other one has written for itself */
        atomic_store(&others->head, value);
        atomic_store(&others->taken[slot % SLOTS][cls], value);
        break;
    default:
        ((uint8_t *)shared)[at % sizeof *shared] = (uint8_t)value;
        break;
    }
}

/* It takes all and has room for all, as it should. */
static void take_all(crossing_side *its, const crossing *c)
{
    atomic_store(&its->tail, c->head);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        for (unsigned cls = 0; cls < CROSSING_CREDITS; cls++)
            atomic_store(&its->taken[slot][cls], c->sent[slot][cls]);
    }
    atomic_fetch_add(&its->returned, 1);
}

static void link_to(crossing *c, bool is_keeper)
{
    crossing_fds fds;
    must(crossing_create(&fds) == 0 && crossing_open(c, &fds, is_keeper) == 0);
    shared = c->mem;
    its_head = 0;
}

/* ==== A keeper ================================================================================ */

static guest_settings guest_set = { .socket = "vm",
                                    .slots = SLOTS,
                                    .bar2_bytes = 64 << 20,
                                    .bar4_bytes = (uint64_t)1 << 30,
                                    .form = &bridge_form };
static keeper_settings the_settings = { &guest_set, 1000, DXPU_UDP_BLOCK };

static void guest_asks(input *in)
{
    static const uint32_t regions[] = { 0, 0, 2, 4, DXPU_VFU_CONFIG };
    uint8_t how = next(in), data[64] = { 0 };
    dxpu_vfu_access v;
    if (qemu.asked == ASKED_MAX)
        return;
    v.region = regions[how % 5];
    v.bytes = 1u << (how >> 5) % 7;
    v.offset = word(in) % (qemu.cfg.region[v.region].bytes - v.bytes + 1);
    if (v.region == 0) /* buses that there are */
        v.offset %= 5u << 20;
    v.token = how & 0x10 ? ++qemu.asked : 0;
    if (v.token || !(how & 8)) {
        v.token = v.token ? v.token : ++qemu.asked;
        qemu.waits[v.token] = true;
        qemu.waiting++;
    }
    for (unsigned i = 0; i < sizeof data / 8; i++)
        data[i] = next(in);
    if (how & 8)
        qemu.cb.write(qemu.cb.user, &v, data);
    else
        qemu.cb.read(qemu.cb.user, &v);
}

static void guest_resets(bool gone)
{
    if (gone) { /* its tokens are void */
        memset(qemu.waits, 0, sizeof qemu.waits);
        qemu.waiting = 0;
        qemu.cb.disconnected(qemu.cb.user, "closed");
    } else if (qemu.asked < ASKED_MAX) {
        qemu.waits[++qemu.asked] = true;
        qemu.waiting++;
        qemu.cb.reset(qemu.cb.user, qemu.asked);
    }
}

static void must_be_empty(keeper *k)
{
    must(!k->linked);
    for (unsigned i = 0; i < SLOTS; i++) {
        must(!k->slots[i].up);
        must(!k->guest || guest_tags(k->guest, i + 1)->in_flight == 0);
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
            must(!queue_used(&k->slots[i].in, cls));
    }
}

static void another_worker(keeper *k)
{
    keeper_lose_worker(k);
    must_be_empty(k);
    link_to(&k->cross, true);
    k->linked = true;
    k->workers++;
}

static void keeper_step(keeper *k, input *in, uint64_t *now)
{
    crossing_side *its = &shared->worker;
    switch (next(in) % 12) {
    case 0:
    case 1:
    case 2:
        put_record(in, its);
        break;
    case 3:
        poke(in, its, &shared->keeper);
        break;
    case 4:
    case 5:
        (void)keeper_turn(k, *now);
        break;
    case 6:
        (void)keeper_hear_worker(k, true);
        keeper_show_all(k);
        break;
    case 7:
    case 8:
        if (k->guest)
            guest_asks(in);
        break;
    case 9:
        take_all(its, &k->cross);
        break;
    case 10:
        if (k->guest && next(in) % 4 == 0)
            guest_resets(next(in) & 1);
        break;
    default:
        *now += (uint64_t)next(in) * 10000000u;
        keeper_watch_worker(k, *now);
        break;
    }
}

static void keep(input *in)
{
    int pair[2];
    uint64_t now = dxpu_udp_now_ns();
    unsigned links = 0;
    keeper k = { .set = &the_settings, .plugger = -1 };
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    memset(&qemu, 0, sizeof qemu);
    guest_set.topology = next(in) & 1 ? DXPU_VSWITCH_SWITCH : DXPU_VSWITCH_ROOT_PORTS;
    k.parent = pair[0];
    k.slots = calloc(SLOTS, sizeof *k.slots);
    for (unsigned i = 0; i < SLOTS; i++)
        must(k.slots && keeper_open_slot(&k, i) == 0);
    another_worker(&k);
    for (unsigned n = 0; in->left && n < STEPS_MAX && links < LINKS_MAX; n++) {
        keeper_step(&k, in, &now);
        must(!k.over && !k.failed);
        if (k.killed || !k.linked || (links && next(in) == 0)) {
            another_worker(&k);
            links++;
        }
    }
    keeper_lose_worker(&k);
    must_be_empty(&k);
    if (k.guest) {
        guest_tick(k.guest, now + 100000000000u);
        must(qemu.waiting == 0);
        guest_close(k.guest);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        queue_free(&k.slots[i].in);
    free(k.slots);
    close(pair[0]);
    close(pair[1]);
}

/* ==== A worker's end ========================================================================== */

static void take_record(crossing *c, tlp_queue *down, const crossing_record *r)
{
    dxpu_bytes tlp = { c->payload, r->bytes };
    dxpu_event e;
    must(r->bytes <= CROSSING_PAYLOAD_MAX);
    if (r->kind == CROSSING_TLP) {
        must(r->slot && r->arg < DXPU_CLASSES);
        if (r->slot > SLOTS || !queue_push(&down[r->slot - 1], r->arg, tlp, 0))
            crossing_return(c, r->slot, r->arg);
    } else if (r->kind == CROSSING_EVENT) {
        memcpy(&e, c->payload, sizeof e);
        must(r->slot != 0);
        if (r->slot > SLOTS || !queue_push_event(&down[r->slot - 1], &e))
            crossing_return(c, r->slot, CROSSING_EVENTS);
    }
}

static void print_tape(input *in, const crossing_memory *m)
{
    uint32_t bytes = atomic_load(&m->tape_bytes);
    report r;
    report_begin(&r, nowhere(), next(in) & 1);
    bytes = bytes < sizeof m->tape ? bytes : (uint32_t)sizeof m->tape;
    report_play(&r, m->tape, bytes, "guest");
    report_play(&r, m->tape, bytes, "a");
    report_end(&r);
}

static void work_step(crossing *c, tlp_queue *down, input *in)
{
    crossing_record r = { 4, CROSSING_TLP, 0, 1, 1, 0 };
    unsigned n;
    switch (next(in) % 6) {
    case 0:
        put_record(in, &shared->keeper);
        break;
    case 1:
        poke(in, &shared->keeper, &shared->worker);
        break;
    case 2:
        (void)crossing_news(c, next(in) & 1);
        while (crossing_get(c, &r))
            take_record(c, down, &r);
        break;
    case 3:
        r.slot = 1 + next(in) % SLOTS;
        r.arg = next(in) % DXPU_CLASSES;
        if (crossing_room(c, r.slot, r.arg))
            (void)crossing_put(c, &r, "1234");
        else if (queue_first(&down[r.slot - 1], r.arg)) {
            queue_pop(&down[r.slot - 1], r.arg);
            crossing_return(c, r.slot, r.arg);
        }
        break;
    case 4:
        n = next(in);
        for (unsigned i = 0; i < n; i++)
            shared->tape[i] = (char)next(in);
        atomic_store(&shared->tape_bytes, n == 255 ? UINT32_MAX : n);
        print_tape(in, shared);
        break;
    default:
        take_all(&shared->keeper, c);
        break;
    }
}

static void work(input *in)
{
    static crossing c;
    tlp_queue down[SLOTS];
    link_to(&c, false);
    for (unsigned i = 0; i < SLOTS; i++)
        must(queue_init(&down[i], 0, CROSSING_TLPS, 64) == 0 &&
             queue_init(&down[i], 1, CROSSING_TLPS, 64) == 0 &&
             queue_init(&down[i], 2, CROSSING_TLPS, 64) == 0);
    for (unsigned n = 0; in->left && n < STEPS_MAX; n++) {
        work_step(&c, down, in);
        must(c.tail % CROSSING_ALIGN == 0 && c.head % CROSSING_ALIGN == 0);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        queue_free(&down[i]);
    crossing_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    if (next(&in) & 1)
        work(&in);
    else
        keep(&in);
    return 0;
}
