/* shards.c - see shards.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 A loop   2 Answers   3 Opening   4 Running   5 Requests   6 Statistics */
#include "shards.h"
#include "p2p.h"
#include "log.h"
#include "leases.h"
#include "hot_plug.h"
#include "shots.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* places for incarnations: the one in use, those opening, and those that answer a last close */
enum { CHANNELS_PER_SLOT = 4 };

/* completions on their way to a host, each slot: 128 KB of reads */
enum { COMPLETION_HEADERS = 1024, COMPLETION_UNITS = 8192 };

/* up to which a turn of a loop serves all of its channels */
enum { FEW_CHANNELS = 8 };

enum { PORT_TRIES = 100, LISTED_MAX = 4, ADDRESSES_BYTES = 1024 };

/* ==== 1  A loop =============================================================================== */

/* The turn that follows takes the jobs back. */
static void on_wake(evutil_socket_t fd, short what, void *user)
{
    (void)what;
    fabric_stir(&((shard *)user)->fabric);
    jobs_woken(fd);
}

static void look_at(slot *s)
{
    unsigned ended = atomic_load_explicit(&s->ended, memory_order_relaxed);
    if (ended != s->ended_seen && s->active)
        fabric_stir_channel(&s->shard->fabric, s->active);
    s->ended_seen = ended;
}

/* The same while the loop looks for datagrams without blocking, when it would see the eventfd only
   from time to time, and for the slots alone whose jobs they are. */
static bool on_look(void *user, bool about_to_block)
{
    shard *sh = user;
    const box *b = sh->box;
    unsigned ended = atomic_load_explicit(&sh->ended, memory_order_acquire);
    (void)about_to_block; /* the eventfd ends that */
    if (ended == sh->ended_seen)
        return false;
    sh->ended_seen = ended;
    for (unsigned i = sh->index; i < b->count; i += b->shard_count)
        look_at(&b->slots[i]);
    return true;
}

static uint64_t next_ns(void *user)
{
    const shard *sh = user;
    uint64_t next = slots_next_ns(sh);
    if (leases_wiping(sh))
        return 0; /* at once */
    return sh->stopping && sh->stop_ns < next ? sh->stop_ns : next;
}

static void tick(void *user, uint64_t now)
{
    shard *sh = user;
    slots_written(sh);
    leases_work(sh);
    plug_work(sh);
    if (sh->stopping && (!fabric_busy(&sh->fabric) || now >= sh->stop_ns))
        fabric_stop(&sh->fabric);
}

static uint8_t authorize(void *user, const dxpu_offer *offer, const uint8_t *key,
                         dxpu_channel_config *cfg)
{
    return ((shard *)user)->stopping ? (uint8_t)DXPU_REASON_SHUTDOWN
                                     : slots_authorize(user, offer, key, cfg);
}

static void begin_stop(void *arg)
{
    shard *sh = arg;
    sh->stopping = true;
    sh->stop_ns = dxpu_udp_now_ns() + sh->fabric.base.hold_ms * 1000000ull;
    fabric_close_all(&sh->fabric, DXPU_REASON_SHUTDOWN);
}

static void stop_at_once(void *arg)
{
    fabric_stop(&((shard *)arg)->fabric);
}

static void on_all(box *b, void (*fn)(void *arg))
{
    for (unsigned i = 0; i < b->shard_count; i++)
        worker_call(b->shards[i].worker, fn, &b->shards[i]);
}

static void keys_changed(void *arg)
{
    fabric_keys_changed(&((shard *)arg)->fabric);
}

void shards_keys_changed(box *b)
{
    on_all(b, keys_changed);
}

static int run_shard(void *user)
{
    int rc = fabric_run(&((shard *)user)->fabric);
    if (rc)
        log_error("cannot wait for events: %s", strerror(errno));
    return rc;
}

/* ==== 2  Answers ============================================================================== */

/* Of the loops, to what the first thread was asked: one of each slot at a time. */
struct answers {
    pthread_mutex_t lock; /* of code[] */
    unsigned *code;       /* of each slot; NO_ANSWER: none is due */
    int wake;             /* eventfd: one is */
    struct event *woken;
};

enum { NO_ANSWER = REQUESTS_LATER };

void shards_answer(box *b, unsigned number, unsigned code)
{
    uint64_t one = 1;
    pthread_mutex_lock(&b->answers->lock);
    b->answers->code[number - 1] = code;
    pthread_mutex_unlock(&b->answers->lock);
    (void)!write(b->answers->wake, &one, sizeof one); /* cannot be full */
}

static unsigned take_answer(const box *b, unsigned number)
{
    unsigned code;
    pthread_mutex_lock(&b->answers->lock);
    code = b->answers->code[number - 1];
    b->answers->code[number - 1] = NO_ANSWER;
    pthread_mutex_unlock(&b->answers->lock);
    return code;
}

static void settle(const box *b, unsigned number, unsigned code)
{
    if (code != NO_ANSWER)
        requests_settled(b->requests, number, code);
}

static void on_answers(evutil_socket_t fd, short what, void *user)
{
    const box *b = user;
    (void)what;
    jobs_woken(fd);
    for (unsigned i = 1; i <= b->count; i++)
        settle(b, i, take_answer(b, i));
}

static void close_answers(box *b)
{
    struct answers *a = b->answers;
    if (!a)
        return;
    if (a->woken)
        event_free(a->woken);
    if (a->wake >= 0)
        (void)close(a->wake);
    (void)pthread_mutex_destroy(&a->lock);
    free(a->code);
    free(a);
    b->answers = NULL;
}

/* 0, or -1 after a message. */
static int open_answers(box *b)
{
    struct answers *a = b->answers = calloc(1, sizeof *a);
    if (a) {
        (void)pthread_mutex_init(&a->lock, NULL); /* an ordinary one: cannot fail */
        a->code = calloc(b->count, sizeof *a->code);
        a->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        a->woken = event_new(b->base, a->wake, EV_READ | EV_PERSIST, on_answers, b);
        for (unsigned i = 0; a->code && i < b->count; i++)
            a->code[i] = NO_ANSWER;
    }
    if (a && a->code && a->wake >= 0 && a->woken && !event_add(a->woken, NULL))
        return 0;
    log_error("cannot create an eventfd or memory for answers: %s", strerror(errno));
    return -1;
}

/* ==== 3  Opening ============================================================================== */

/* Slots of a loop; the n-th of them is n * shard_count + index + 1. */
static unsigned slots_of(const shard *sh)
{
    const box *b = sh->box;
    return (b->count - sh->index + b->shard_count - 1) / b->shard_count;
}

/* Jobs of its devices wake the loop.  0, or -1 after a message. */
static int open_wake(shard *sh)
{
    sh->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (sh->wake >= 0)
        sh->woken =
            event_new(dxpu_udp_base(sh->fabric.udp), sh->wake, EV_READ | EV_PERSIST, on_wake, sh);
    if (sh->woken && !event_add(sh->woken, NULL))
        return 0;
    log_error("cannot create an eventfd for a loop: %s", strerror(errno));
    return -1;
}

static void close_wake(shard *sh)
{
    if (sh->woken)
        event_free(sh->woken);
    sh->woken = NULL;
    if (sh->wake >= 0)
        (void)close(sh->wake);
    sh->wake = -1;
}

/* 0, FABRIC_TAKEN, or -1 after a message. */
static int open_shard(box *b, unsigned index, const fabric_settings *net)
{
    shard *sh = &b->shards[index];
    fabric_callbacks cb = { sh,      authorize, slots_up,    slots_work,   slots_down,
                            next_ns, tick,      slots_known, slots_allowed };
    fabric_settings own = *net;
    int rc;
    sh->box = b;
    sh->index = index;
    sh->node = b->node;
    own.shard = index;
    own.beside = index ? &b->shards[0].fabric : NULL;
    own.in_a_row = true; /* M-73 */
    rc = fabric_open(&sh->fabric, &own,
                     slots_of(sh) * (b->p2p ? CHANNELS_PER_SLOT + P2P_CHANNELS : CHANNELS_PER_SLOT),
                     &cb);
    if (rc)
        return rc;
    sh->fabric.few = FEW_CHANNELS;
    sh->fabric.base.tx.header[DXPU_COMPLETION] = COMPLETION_HEADERS;
    sh->fabric.base.tx.data[DXPU_COMPLETION] = COMPLETION_UNITS;
    if (net->wait == DXPU_UDP_ADAPTIVE) /* a busy loop would yield between its looks, too */
        dxpu_udp_watch(sh->fabric.udp, on_look, sh);
    sh->worker = worker_new(dxpu_udp_base(sh->fabric.udp), run_shard, sh);
    return sh->worker ? open_wake(sh) : -1;
}

/* The first one last: captured frames are its. */
static int close_all(box *b)
{
    int rc = 0;
    for (unsigned i = b->shard_count; b->shards && i-- > 0;) {
        worker_free(b->shards[i].worker);
        b->shards[i].worker = NULL;
        close_wake(&b->shards[i]);
        if (fabric_close(&b->shards[i].fabric))
            rc = -1;
    }
    return rc;
}

static int open_all(box *b, const fabric_settings *net)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < b->shard_count; i++)
        rc = open_shard(b, i, net);
    return rc;
}

int shards_open(box *b, const fabric_settings *net)
{
    int rc;
    b->shards = calloc((size_t)net->shards, sizeof *b->shards);
    if (!b->shards) {
        log_error("out of memory");
        return -1;
    }
    b->shard_count = (unsigned)net->shards;
    for (unsigned i = 0; i < b->shard_count; i++)
        b->shards[i].wake = -1;
    rc = open_all(b, net);
    for (unsigned n = 0; rc == FABRIC_TAKEN && n < PORT_TRIES; n++) {
        (void)close_all(b);
        rc = open_all(b, net);
    }
    if (rc == FABRIC_TAKEN)
        log_error("--listen %s: no %u free ports in a row; name the first one", net->listen,
                  b->shard_count);
    if (rc)
        return -1;
    b->base = b->shard_count > 1 ? event_base_new() : dxpu_udp_base(b->shards[0].fabric.udp);
    if (!b->base)
        log_error("cannot create an event base: libevent fails");
    return b->base ? open_answers(b) : -1;
}

int shards_close(box *b)
{
    int rc;
    close_answers(b);
    rc = close_all(b);
    if (b->shard_count > 1 && b->base)
        event_base_free(b->base);
    free(b->shards);
    b->shards = NULL;
    b->base = NULL;
    return rc;
}

static const char *print_addresses(const shard *sh, char out[ADDRESSES_BYTES])
{
    char text[DXPU_UDP_TEXT_BYTES];
    size_t len = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < dxpu_udp_sockets(sh->fabric.udp) && len < ADDRESSES_BYTES; i++)
        len += (size_t)snprintf(out + len, ADDRESSES_BYTES - len, "%s%s", i ? ", " : "",
                                dxpu_udp_print(dxpu_udp_local(sh->fabric.udp, i), text));
    return out;
}

static void say_slots(const shard *sh)
{
    unsigned count = slots_of(sh), each = sh->box->shard_count;
    char list[LISTED_MAX * 16] = "", addresses[ADDRESSES_BYTES];
    int len = 0;
    for (unsigned i = 0; i < count; i++) {
        const char *between = i ? ", " : "";
        if (count > LISTED_MAX && i == LISTED_MAX - 1) {
            between = " ... ";
            i = count - 1;
        }
        len += snprintf(list + len, sizeof list - (size_t)len, "%s%u", between,
                        i * each + sh->index + 1);
    }
    log_note("slot%s %s at %s", count == 1 ? "" : "s", list, print_addresses(sh, addresses));
}

void shards_say(const box *b)
{
    char addresses[ADDRESSES_BYTES];
    log_note("%u slot%s at %s, CRC-32 by %s", b->count, b->count == 1 ? "" : "s",
             print_addresses(&b->shards[0], addresses), fabric_crc_name());
    for (unsigned i = 0; b->shard_count > 1 && i < b->shard_count; i++)
        say_slots(&b->shards[i]);
}

/* ==== 4  Running ============================================================================== */

/* One has ended: unrequested it failed, and without its slots the box cannot go on. */
static void stop_rest(void *arg)
{
    box *b = arg;
    if (!b->stopping)
        on_all(b, stop_at_once);
}

int shards_run(box *b)
{
    worker *list[SHARDS_MAX];
    workers all = { b->base, list, b->shard_count, true, stop_rest, b };
    for (unsigned i = 0; i < b->shard_count; i++)
        list[i] = b->shards[i].worker;
    return workers_run(&all);
}

void shards_stop(box *b)
{
    on_all(b, b->stopping ? stop_at_once : begin_stop); /* asked twice: not politely any more */
    b->stopping = true;
}

/* ==== 5  Requests ============================================================================= */

/* What is to be done with a slot, in its loop. */
typedef struct ask {
    box *b;
    unsigned number;
    const void *message;
    void *out;
    void (*fn)(void *arg);
    unsigned code, earlier; /* earlier: the answer to an order before it */
} ask;

static void do_ask(void *arg)
{
    ask *a = arg;
    fabric_stir(&slots_shard(a->b, a->number)->fabric);
    a->fn(a);
}

static unsigned in_loop(box *b, unsigned number, const void *message, void *out,
                        void (*fn)(void *arg))
{
    ask a = { b, number, message, out, fn, DXPU_CONTROL_CODE_NONE, NO_ANSWER };
    worker_call(slots_shard(b, number)->worker, do_ask, &a);
    settle(b, number, a.earlier);
    return a.code;
}

/* M-57: an answer that is still due is that to an earlier order, and not for the caller of now. */
static void do_bind(void *arg)
{
    ask *a = arg;
    a->earlier = take_answer(a->b, a->number);
    a->code = leases_bind(a->b, a->message);
}

unsigned shards_bind(void *user, const dxpu_control_bind *m)
{
    return in_loop(user, m->slot, m, NULL, do_bind);
}

static void do_unbind(void *arg)
{
    ask *a = arg;
    a->earlier = take_answer(a->b, a->number);
    a->code = leases_unbind(a->b, a->message);
}

unsigned shards_unbind(void *user, const dxpu_control_unbind *m)
{
    return in_loop(user, m->slot, m, NULL, do_unbind);
}

static void do_reset(void *arg)
{
    ask *a = arg;
    a->code = leases_reset(a->b, a->message);
}

unsigned shards_reset(void *user, const dxpu_control_reset *m)
{
    return in_loop(user, m->slot, m, NULL, do_reset);
}

static void do_drain(void *arg)
{
    ask *a = arg;
    const dxpu_control_drain *m = a->message;
    leases_drain(a->b, a->number, m->on);
}

unsigned shards_drain(void *user, const dxpu_control_drain *m)
{
    box *b = user;
    for (unsigned i = 1; i <= b->count; i++) {
        if (!m->slot || m->slot == i)
            (void)in_loop(b, i, m, NULL, do_drain);
    }
    return DXPU_CONTROL_CODE_NONE;
}

static void do_direct(void *arg)
{
    ask *a = arg;
    const dxpu_control_direct *m = a->message;
    leases_direct(a->b, a->number, m->on);
}

unsigned shards_direct(void *user, const dxpu_control_direct *m)
{
    box *b = user;
    b->directed |= !m->on;
    return in_loop(b, m->slot, m, NULL, do_direct);
}

typedef struct plug_ask {
    const dxpu_control_plug *m;
    slot_plan *plan; /* NULL: no device comes */
} plug_ask;

static void do_plug(void *arg)
{
    ask *a = arg;
    const plug_ask *p = a->message;
    a->earlier = take_answer(a->b, a->number);
    a->code = plug_begin(a->b, p->m, p->plan);
}

/* What needs a process or a descriptor from before the sandbox cannot come later. */
static unsigned read_plan(const box *b, const dxpu_control_plug *m, slot_plan *plan)
{
    char text[DXPU_CONTROL_TEXT_MAX + 1];
    const char *bad;
    memcpy(text, m->device.ptr, m->device.len);
    text[m->device.len] = '\0';
    bad = plan_read(b->plans, text, plan);
    if (!bad && (!plan_is_model(plan->kind) || plan->set.descriptor || plan->set.subsystem ||
                 plan->of || plan->set.render || plan->set.render_node))
        bad = "vfio-user, nettlp, rawtlp, none, function, subsystem, fd, render and render-node "
              "are for --slot alone";
    if (!bad)
        return DXPU_CONTROL_CODE_NONE;
    log_error("slot %u: cannot make the device: %s", m->slot, bad);
    plan_clear(plan);
    return bad == plan_no_memory ? DXPU_CONTROL_CODE_MEMORY : DXPU_CONTROL_CODE_DEVICE;
}

unsigned shards_plug(void *user, const dxpu_control_plug *m)
{
    box *b = user;
    slot_plan plan = { .kind = NULL };
    plug_ask p = { m, m->how == DXPU_CONTROL_REMOVE ? NULL : &plan };
    unsigned code = DXPU_CONTROL_CODE_NONE;
    if (!b->hot_plug)
        return DXPU_CONTROL_CODE_FIXED;
    if (p.plan)
        code = read_plan(b, m, &plan);
    if (code)
        return code;
    code = in_loop(b, m->slot, &p, NULL, do_plug);
    plan_clear(&plan); /* what was taken over is not in it any more */
    return code;
}

unsigned shards_screenshot(void *user, unsigned number)
{
    return shots_begin(((box *)user)->shots, number);
}

static void do_describe(void *arg)
{
    ask *a = arg;
    slots_describe(a->b, a->number, a->out);
}

void shards_describe(void *user, unsigned number, dxpu_control_slot *out)
{
    (void)in_loop(user, number, NULL, out, do_describe);
}

static void do_device(void *arg)
{
    ask *a = arg;
    leases_device(a->b, a->number, a->out);
}

void shards_device(void *user, unsigned number, dxpu_control_device *out)
{
    (void)in_loop(user, number, NULL, out, do_device);
}

static void set_node(void *arg)
{
    shard *sh = arg;
    sh->node = sh->box->node;
}

void shards_node(void *user, uint32_t node)
{
    box *b = user;
    b->node = node; /* no loop reads it but in set_node() */
    on_all(b, set_node);
}

/* M-180: without its manager's orders each slot is direct. */
void shards_directs(void *user, bool on)
{
    box *b = user;
    for (unsigned i = 1; !on && b->directed && i <= b->count; i++) {
        const dxpu_control_direct m = { (uint16_t)i, true };
        (void)in_loop(b, i, &m, NULL, do_direct);
    }
    b->directed &= on;
}

/* ==== 6  Statistics =========================================================================== */

typedef struct totals {
    const shard *sh;
    uint64_t delivered, refused_epoch, refused_slot, refused_key;
} totals;

static void add_totals(void *arg)
{
    totals *t = arg;
    const box *b = t->sh->box;
    for (unsigned i = t->sh->index; i < b->count; i += b->shard_count) {
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
            t->delivered += b->slots[i].taken[cls];
    }
    t->refused_epoch += t->sh->refused_epoch;
    t->refused_slot += t->sh->refused_slot;
    t->refused_key += t->sh->refused_key;
}

static void report_totals(const box *b, report *r)
{
    totals t = { NULL, 0, 0, 0, 0 };
    for (unsigned i = 0; i < b->shard_count; i++) {
        t.sh = &b->shards[i];
        worker_call(t.sh->worker, add_totals, &t);
    }
    report_number(r, "delivered", t.delivered);
    report_number(r, "refused_epoch", t.refused_epoch);
    report_number(r, "refused_slot", t.refused_slot);
    report_number(r, "refused_key", t.refused_key);
}

static void do_report(void *arg)
{
    ask *a = arg;
    slots_report(a->b, a->number, a->out);
}

typedef struct port_report {
    const shard *sh;
    report *r;
} port_report;

static void report_port(void *arg)
{
    const port_report *p = arg;
    char name[16];
    snprintf(name, sizeof name, "core_%u", p->sh->index + 1);
    if (p->sh->box->shard_count > 1)
        report_open(p->r, name);
    fabric_report(&p->sh->fabric, p->r);
    if (p->sh->box->shard_count > 1)
        report_close(p->r);
}

void shards_report(box *b, report *r)
{
    report_totals(b, r);
    for (unsigned i = 1; i <= b->count; i++)
        (void)in_loop(b, i, NULL, r, do_report);
    control_report(b->control, b->requests, r);
    manager_report(b->manager, r);
    for (unsigned i = 0; i < b->shard_count; i++) {
        port_report p = { &b->shards[i], r };
        worker_call(p.sh->worker, report_port, &p);
    }
}
