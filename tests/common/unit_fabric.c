/* The order in which a port serves its channels; how two ports agree on keys, with this file
   between them: it sees every datagram, and hands on, keeps, alters or invents it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sendmmsg */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fabric_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CAPACITY = 7, CHANNELS = 3 };

/* The clock of all that is here, in place of the system's: each look at it takes as long, whatever
   else the machine does.  So what is asked again, or comes too often, is so in each run. */
enum { LOOK_NS = 500 };

int clock_gettime(clockid_t id, struct timespec *t)
{
    static uint64_t ns = 1000000000000000;
    (void)id;
    ns += LOOK_NS;
    t->tv_sec = (time_t)(ns / 1000000000u);
    t->tv_nsec = (long)(ns % 1000000000u);
    return 0;
}

static fabric port;
static fabric_channel *channels[CHANNELS];
static unsigned order[CHANNELS], served, downs;
static bool busy;     /* what is there to be taken never ends */
static bool speaking; /* the device has a TLP for each turn */

static bool on_work(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)now;
    for (unsigned i = 0; i < CHANNELS; i++) {
        if (channels[i] == c && served++ < CHANNELS)
            order[served - 1] = i;
    }
    c->ch.count.tx_tlps += speaking; /* as if it had left */
    return busy;
}

static void on_end(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)c;
    (void)now;
    downs++;
}

static void dial(unsigned i, const dxpu_udp_path *path)
{
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    cfg.epoch = 1;
    cfg.remote.slot = (uint16_t)(i + 1);
    channels[i] = fabric_dial(&port, &cfg, NULL, path, 1, dxpu_udp_now_ns());
    assert_non_null(channels[i]);
    channels[i]->up = true; /* as if the box had answered: it is asked for work */
    port.up++;
}

/* A port with channels to where no reader is. */
static void open_test_port(fabric_settings *set, fabric_callbacks *cb)
{
    dxpu_udp_address self;
    dxpu_udp_path path;
    set->keys = keys_none();
    assert_int_equal(fabric_open(&port, set, CAPACITY, cb), 0);
    self = *dxpu_udp_local(port.udp, 0);
    assert_int_equal(fabric_route(&port, &self, 1, &path), DXPU_OK);
    for (unsigned i = 0; i < CHANNELS; i++)
        dial(i, &path);
}

static void test_each_channel_is_first_in_turn(void **state)
{
    fabric_settings set = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { 0 };
    (void)state;
    cb.work = on_work;
    assert_int_equal(fabric_open(&port, &set, CAPACITY, &cb), -1); /* without keys */
    (void)fabric_close(&port);
    set.keys = keys_none();
    set.listen = "0.0.0.0:0";
    assert_int_equal(fabric_open(&port, &set, CAPACITY, &cb), -1); /* S-97 */
    (void)fabric_close(&port);
    set.listen = "127.0.0.1:0";
    open_test_port(&set, &cb);
    for (unsigned turn = 1; turn <= 2 * CHANNELS; turn++) {
        served = 0;
        fabric_turn(&port, dxpu_udp_now_ns());
        assert_int_equal(served, CHANNELS); /* all of them, once each, beginning with the next */
        for (unsigned i = 0; i < CHANNELS; i++)
            assert_int_equal(order[i], (turn + i) % CHANNELS);
    }
    for (unsigned i = 0; i < CHANNELS; i++)
        fabric_channel_free(&port, channels[i]);
    assert_int_equal(port.up, 0);
    served = 0;
    fabric_turn(&port, dxpu_udp_now_ns()); /* none at all: the search ends */
    assert_int_equal(served, 0);
    assert_int_equal(fabric_close(&port), 0);
}

static uint64_t timer_ns;

static uint64_t on_next_ns(void *user)
{
    (void)user;
    return timer_ns;
}

/* How many channels a turn looked at that has a reason: a datagram, for no channel that is here. */
static unsigned looked_at(uint64_t now)
{
    uint8_t byte = 0;
    fabric_on_datagram(&port, &byte, 1, &(dxpu_udp_path){ 0 }, 0);
    served = 0;
    fabric_turn(&port, now);
    (void)fabric_next_ns(&port);
    return served;
}

/* With channels of which a turn may pass over some; all have had one, at the time that is
   returned. */
static uint64_t open_sparing_port(void)
{
    fabric_settings set = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { 0 };
    uint64_t now;
    timer_ns = DXPU_NEVER;
    cb.work = on_work;
    cb.down = on_end;
    cb.next_ns = on_next_ns;
    open_test_port(&set, &cb);
    now = dxpu_udp_now_ns();
    assert_int_equal(looked_at(now), CHANNELS);
    assert_int_equal(looked_at(now), CHANNELS); /* the control: a program that does not say */
    port.few = CHANNELS;
    assert_int_equal(looked_at(now), CHANNELS); /* they are few */
    port.few = 1;
    timer_ns = now;
    assert_int_equal(looked_at(now), CHANNELS); /* the program's timer */
    timer_ns = DXPU_NEVER;
    assert_int_equal(looked_at(now), 0);
    return now;
}

/* A turn's cost does not grow with channels that have nothing to do, and none with work waits. */
static void test_idle_channels_are_passed_over(void **state)
{
    uint64_t now = open_sparing_port(), due;
    dxpu_udp_path from = { 0 };
    uint8_t frame[64];
    size_t len = dxpu_reset_encode(channels[1]->id, DXPU_REASON_BUSY, frame);
    (void)state;
    frame[len - 1] ^= 1; /* whatever it is: it may have changed the channel */
    fabric_on_datagram(&port, frame, len, &from, 0);
    assert_int_equal(fabric_next_ns(&port), 0);
    assert_int_equal(looked_at(now), 1);
    assert_int_equal(order[0], 1);
    busy = true; /* what leaves work has the next turn as well */
    fabric_stir_channel(&port, channels[2]);
    assert_int_equal(fabric_next_ns(&port), 0);
    assert_int_equal(looked_at(now), 1);
    assert_int_equal(order[0], 2);
    busy = false;
    assert_int_equal(fabric_next_ns(&port), 0);
    assert_int_equal(looked_at(now), 1);
    assert_int_equal(looked_at(now), 0);
    fabric_stir(&port);
    assert_int_equal(fabric_next_ns(&port), 0);
    assert_int_equal(looked_at(now), CHANNELS);
    downs = 0;
    fabric_reset(&port, channels[0], DXPU_REASON_DETACH);
    assert_int_equal(looked_at(now), 1);
    assert_int_equal(downs, 1);
    assert_int_equal(looked_at(now), 0);
    due = port.due_ns[channels[1]->live_at]; /* its open is sent again */
    assert_true(due > now && due != DXPU_NEVER);
    port.all_ns = due + 1;
    assert_int_equal(looked_at(due - 1), 0);
    assert_true(looked_at(due) >= 1);
    assert_int_equal(port.count.unannounced, 0);
    assert_int_equal(fabric_close(&port), 0);
}

/* A channel is over, which nothing announced, nor has it a time of its own before. */
static void forget(unsigned i)
{
    dxpu_channel_reset(&channels[i]->ch, DXPU_REASON_DETACH); /* and no fabric_stir_channel() */
    port.due_ns[channels[i]->live_at] = DXPU_NEVER;
}

/* What nothing has announced is done some milliseconds after whatever turn comes next, at once if
   that has no reason that is known, and it is counted. */
static void test_unannounced_work_is_found_and_counted(void **state)
{
    uint64_t now = open_sparing_port(), next;
    (void)state;
    downs = 0;
    for (next = now; next <= now + 20000000; (void)looked_at(next))
        next = fabric_next_ns(&port);
    assert_int_equal(port.count.unannounced, 0); /* the control: nothing was forgotten */
    now = next;
    forget(0);
    assert_int_equal(looked_at(now), 0);
    assert_int_equal(downs, 0); /* it waits */
    for (next = now; !downs && next <= now + 5000000; (void)looked_at(next))
        next = fabric_next_ns(&port);
    assert_true(next <= now + 5000000);
    assert_int_equal(downs, 1);
    assert_int_equal(port.count.unannounced, 1);
    port.again = false; /* as after all have had one and nothing has come since */
    for (unsigned i = 0; i < port.live_count; i++)
        port.due_ns[i] = DXPU_NEVER;
    now = port.all_ns;
    forget(1);
    served = 0;
    fabric_turn(&port, now); /* something woke the loop */
    assert_int_equal(served, 2);
    assert_int_equal(downs, 2);
    assert_int_equal(port.count.unannounced, 2 + 1); /* and the other's time is not NEVER */
    assert_int_equal(fabric_close(&port), 0);
}

/* What only work() finds out has no time to compare: it is seen by what comes of it. */
static void test_work_that_no_event_announced_is_counted(void **state)
{
    uint64_t now = open_sparing_port();
    (void)state;
    speaking = true;
    fabric_stir_channel(&port, channels[0]);
    assert_int_equal(looked_at(now), 1);
    timer_ns = now; /* it may be that of any channel */
    assert_int_equal(looked_at(now), CHANNELS);
    timer_ns = DXPU_NEVER;
    fabric_stir(&port);
    assert_int_equal(looked_at(now), CHANNELS);
    assert_int_equal(port.count.unseen, 0); /* the control: all was announced */
    port.all_ns = now;
    assert_int_equal(looked_at(now), CHANNELS);
    assert_int_equal(port.count.unseen, CHANNELS);
    speaking = false;
    port.all_ns = now;
    assert_int_equal(looked_at(now), CHANNELS);
    assert_int_equal(port.count.unseen, CHANNELS); /* the control: nothing came of it */
    busy = true;
    port.all_ns = now;
    assert_int_equal(looked_at(now), CHANNELS);
    assert_int_equal(port.count.unseen, 2 * CHANNELS);
    assert_int_equal(looked_at(now), CHANNELS); /* what is left is known */
    assert_int_equal(port.count.unseen, 2 * CHANNELS);
    busy = false;
    assert_int_equal(port.count.unannounced, 0);
    assert_int_equal(fabric_close(&port), 0);
}

/* One that is freed is replaced by another, which may take a turn from a third: that one has the
   next. */
static void test_a_missed_turn_is_made_up_for(void **state)
{
    uint64_t now = open_sparing_port();
    unsigned first = 0;
    (void)state;
    for (unsigned i = 0; i < CHANNELS; i++)
        first = channels[i]->live_at == 0 ? i : first;
    dxpu_channel_reset(&channels[first]->ch, DXPU_REASON_DETACH);
    port.first = CHANNELS - 2; /* the last of the list has its turn before that one is freed */
    fabric_stir(&port);
    (void)looked_at(now);
    assert_int_equal(port.live_count, CHANNELS - 1);
    assert_int_equal(fabric_next_ns(&port), 0);
    assert_int_equal(looked_at(now), 1);
    assert_int_equal(looked_at(now), 0);
    assert_int_equal(fabric_close(&port), 0);
}

/* S-161: the turns that a closed channel has are its own, one in each round of the loop, and they
   end. */
static void test_s161_a_closed_channel_waits_for_its_turns(void **state)
{
    fabric_settings set = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { 0 };
    unsigned rounds = 0;
    (void)state;
    cb.work = on_work;
    cb.down = on_end;
    open_test_port(&set, &cb);
    busy = true;
    downs = 0;
    channels[0]->ch.link.state =
        DXPU_STATE_CLOSED; /* as if it had been: much of it is to be taken */
    for (; !downs && rounds <= 2 * FABRIC_CLOSED_TURNS; rounds++) {
        served = 0;
        fabric_turn(&port, dxpu_udp_now_ns());
        assert_int_equal(served, CHANNELS);
        assert_true(downs || fabric_next_ns(&port) == 0);
    }
    assert_int_equal(rounds, FABRIC_CLOSED_TURNS);
    busy = false;
    channels[1]->ch.link.state = DXPU_STATE_CLOSED;
    fabric_turn(&port, dxpu_udp_now_ns()); /* the control: one with nothing left ends at once */
    assert_int_equal(downs, 2);
    for (unsigned i = 0; i < CHANNELS; i++)
        fabric_channel_free(&port, channels[i]);
    assert_int_equal(fabric_close(&port), 0);
}

/* Places are given in the order in which they became free, also around one that is taken out. */
static void test_a_place_out_of_the_middle(void **state)
{
    uint32_t list[CAPACITY] = { 5, 6, 0, 1, 2, 3, 4 };
    static const uint32_t left[] = { 3, 4, 5, 0, 1 };
    fabric f = { .capacity = CAPACITY, .free_list = list, .free_head = 4, .free_count = 7 };
    (void)state;
    fabric_take_place(&f, 6);
    fabric_take_place(&f, 2);
    assert_int_equal(f.free_count, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(list[(f.free_head + i) % CAPACITY], left[i]);
}

/* ==== Two ports and what is between =========================================================== */

enum { HOST, BOX, ENDS, SLOTS = 2, ROOM = 2048 };

typedef struct end {
    fabric f;
    keys *keys;
    int fd; /* of ours, which this end takes for the other one */
    dxpu_udp_address fd_at;
    unsigned authorizations, ups, downs;
    fabric_channel *last; /* that went down; not to be looked into */
    int error;
    uint8_t reason, last_reason;
    bool deny;
} end;

static end ends[ENDS];
static dxpu_noise_pair *pair[ENDS];
/* What becomes of a frame of an end; NULL: all pass. */
static bool (*hook)(unsigned from, uint8_t *frame, size_t len);

static uint8_t on_authorize(void *user, const dxpu_offer *offer, const uint8_t *key,
                            dxpu_channel_config *cfg)
{
    end *e = user;
    (void)cfg;
    e->authorizations++;
    assert_memory_equal(key, pair[HOST]->public_key, DXPU_NOISE_KEY_BYTES);
    return offer->destination.slot <= SLOTS ? e->reason : (uint8_t)DXPU_REASON_NO_SLOT;
}

static void on_up(void *user, fabric_channel *c, uint64_t now)
{
    (void)c;
    (void)now;
    ((end *)user)->ups++;
}

static bool no_work(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)c;
    (void)now;
    return false;
}

static void on_down(void *user, fabric_channel *c, uint64_t now)
{
    end *e = user;
    (void)now;
    e->downs++;
    e->last = c;
    e->error = dxpu_channel_status(&c->ch).error;
    e->last_reason = dxpu_channel_status(&c->ch).reason;
}

static bool on_allowed(void *user, const fabric_channel *c, const uint8_t *key)
{
    (void)c;
    (void)key;
    return !((end *)user)->deny;
}

static keys *keys_of(unsigned own)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    keys_settings s = { NULL, NULL, NULL, false, false };
    keys *k;
    bool wrong;
    s.peer = dxpu_sodium_key_print(pair[!own]->public_key, text);
    k = keys_open(&s, &wrong);
    assert_non_null(k);
    memcpy((void *)(uintptr_t)keys_own(k), pair[own], sizeof *pair[own]);
    return k;
}

static void open_end(unsigned i, keys *k, uint64_t hold_ms)
{
    end *e = &ends[i];
    fabric_settings set = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = {
        e, i == BOX ? on_authorize : NULL, on_up, no_work, on_down, NULL, NULL, NULL, NULL
    };
    cb.allowed = i == BOX ? on_allowed : NULL;
    memset(e, 0, sizeof *e);
    e->keys = set.keys = k;
    set.hold_ms = hold_ms;
    assert_int_equal(fabric_open(&e->f, &set, CAPACITY, &cb), 0);
    e->fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_null(dxpu_udp_parse("127.0.0.1:0", &e->fd_at));
    assert_int_equal(bind(e->fd, &e->fd_at.u.any, e->fd_at.len), 0);
    e->fd_at.len = sizeof e->fd_at.u;
    assert_int_equal(getsockname(e->fd, &e->fd_at.u.any, &e->fd_at.len), 0);
    assert_int_equal(fcntl(e->fd, F_SETFL, O_NONBLOCK), 0);
}

/* Each knows the other's public key. */
static void open_both(uint64_t hold_ms)
{
    hook = NULL;
    assert_int_equal(dxpu_sodium_init(), DXPU_OK);
    for (unsigned i = 0; i < ENDS; i++) {
        pair[i] = dxpu_sodium_key_new();
        assert_non_null(pair[i]);
    }
    for (unsigned i = 0; i < ENDS; i++)
        open_end(i, keys_of(i), hold_ms);
}

static void close_end(unsigned i)
{
    assert_int_equal(fabric_close(&ends[i].f), 0);
    close(ends[i].fd);
    if (!keys_plain(ends[i].keys))
        keys_close(ends[i].keys);
}

static void close_both(void)
{
    for (unsigned i = 0; i < ENDS; i++) {
        close_end(i);
        dxpu_sodium_key_free(pair[i]);
    }
}

/* A frame that reaches an end, from where it takes the other one to be. */
static void bring(unsigned to, const uint8_t *frame, size_t len)
{
    uint8_t copy[ROOM];
    dxpu_udp_path from;
    memcpy(copy, frame, len);
    from.socket = 0;
    from.remote = ends[to].fd_at;
    fabric_on_datagram(&ends[to].f, copy, len, &from, 0);
}

/* What an end has sent goes to the other one; how many frames there were. */
static unsigned pump_one(unsigned from, uint64_t now)
{
    uint8_t frame[ROOM];
    ssize_t len;
    unsigned n = 0;
    fabric_turn(&ends[from].f, now);
    dxpu_udp_flush(ends[from].f.udp);
    while ((len = recv(ends[from].fd, frame, sizeof frame, 0)) > 0) {
        n++;
        if (!hook || hook(from, frame, (size_t)len))
            bring(!from, frame, (size_t)len);
    }
    return n;
}

static void pump(void)
{
    for (unsigned quiet = 0; quiet < 4;) {
        unsigned n = pump_one(HOST, dxpu_udp_now_ns()) + pump_one(BOX, dxpu_udp_now_ns());
        quiet = n ? 0 : quiet + 1;
    }
}

/* Both go on until the given number of channels is up at an end: what came too often is asked
   again. */
static void pump_ups(unsigned i, unsigned ups)
{
    uint64_t end_ns = dxpu_udp_now_ns() + 10000000000ull;
    while (ends[i].ups < ups && dxpu_udp_now_ns() < end_ns)
        pump();
    assert_int_equal(ends[i].ups, ups);
}

static fabric_channel *dial_box(uint16_t slot)
{
    dxpu_channel_config cfg;
    dxpu_udp_path path;
    fabric_channel *c;
    dxpu_channel_config_default(&cfg);
    cfg.epoch = 1;
    cfg.local.node = 7;
    cfg.remote.slot = slot;
    path.socket = 0;
    path.remote = ends[HOST].fd_at;
    c = fabric_dial(&ends[HOST].f, &cfg, pair[BOX]->public_key, &path, 1, dxpu_udp_now_ns());
    assert_non_null(c);
    return c;
}

static const dxpu_sodium_counters *counted(unsigned i)
{
    return dxpu_sodium_count(ends[i].f.sealing.end);
}

static unsigned places_used(unsigned i)
{
    return ends[i].f.capacity - ends[i].f.free_count;
}

static void test_s92_keys_then_a_channel(void **state)
{
    fabric_channel *c;
    (void)state;
    open_both(60000);
    c = dial_box(1);
    assert_true(c->asking);
    pump();
    assert_false(c->asking);
    for (unsigned i = 0; i < ENDS; i++) {
        assert_int_equal(ends[i].ups, 1);
        assert_int_equal(ends[i].f.up, 1);
        assert_int_equal(places_used(i), 1);
    }
    assert_int_equal(counted(BOX)->cookies_sent, 1);
    assert_int_equal(counted(BOX)->responses_sent, 1);
    assert_int_equal(ends[BOX].authorizations, 2); /* for the handshake, and for the open */
    /* in order, and nothing is left but what answers a repeated close */
    assert_int_equal(dxpu_channel_close(&c->ch, DXPU_REASON_SHUTDOWN), DXPU_OK);
    pump();
    assert_int_equal(ends[HOST].error, DXPU_E_CLOSED);
    assert_int_equal(ends[BOX].error, DXPU_E_PEER_CLOSED);
    assert_int_equal(places_used(HOST), 0);
    assert_int_equal(ends[BOX].f.up, 0);
    (void)dial_box(2);
    pump();
    assert_int_equal(ends[BOX].ups, 2);
    close_both();
}

/* The closing period, also of the side that dialed: a close whose answer was lost is answered. */
static void test_d66_who_is_closed_stays(void **state)
{
    uint8_t out[DXPU_FRAME_MAX_LIMIT_BYTES], path;
    (void)state;
    open_both(60000);
    fabric_channel *c = dial_box(1);
    pump();
    fabric_channel *peer = ends[BOX].f.live[0];
    assert_int_equal(dxpu_channel_close(&peer->ch, DXPU_REASON_DETACH), DXPU_OK);
    pump();
    assert_int_equal(ends[HOST].error, DXPU_E_PEER_CLOSED);
    assert_int_equal(ends[HOST].f.up, 0);
    assert_int_equal(places_used(HOST), 1);
    assert_true(dxpu_channel_emit(&c->ch, dxpu_udp_now_ns(), out, sizeof out, &path) <= 0);
    c->ch.link.send_answer = true; /* as for a repeated close */
    assert_true(dxpu_channel_emit(&c->ch, dxpu_udp_now_ns(), out, sizeof out, &path) > 0);
    c->ch.link.hold_ns = 0; /* it has passed */
    pump();
    assert_int_equal(places_used(HOST), 0);
    close_both();
}

/* Nothing comes of a channel while its keys are asked for: not even its id is known. */
static void test_s92_no_frame_reaches_a_channel_without_keys(void **state)
{
    uint8_t reset[64];
    fabric_channel *c;
    size_t len;
    (void)state;
    open_both(60000);
    c = dial_box(1);
    len = dxpu_reset_encode(c->id, DXPU_REASON_NO_SLOT, reset);
    bring(HOST, reset, len);
    assert_int_equal(ends[HOST].f.count.unknown_channel, 1);
    pump();
    assert_int_equal(ends[HOST].ups, 1);
    len = dxpu_reset_encode(c->id, DXPU_REASON_NO_SLOT, reset);
    bring(HOST, reset, len); /* nor one that is up (S-33) */
    pump();
    assert_int_equal(ends[HOST].downs, 0);
    close_both();
}

static uint8_t kept[ROOM];
static size_t kept_len;

static bool keep_first_open(unsigned from, uint8_t *frame, size_t len)
{
    if (from == HOST && frame[DXPU_FRAME_KIND] == DXPU_KIND_OPEN && !kept_len) {
        memcpy(kept, frame, len);
        kept_len = len;
    }
    return true;
}

/* An open without keys gets no answer, not even a reset; nor does a handshake where there are none.
   The control is the first frame of each, which is seen to be there. */
static void test_s92_plain_and_sealed_do_not_answer(void **state)
{
    dxpu_channel_config cfg;
    dxpu_udp_path path;
    (void)state;
    open_both(60000);
    close_end(HOST);
    open_end(HOST, keys_none(), 60000);
    path.socket = 0;
    path.remote = ends[HOST].fd_at;
    kept_len = 0;
    hook = keep_first_open;
    dxpu_channel_config_default(&cfg);
    cfg.epoch = 1;
    cfg.remote.slot = SLOTS + 1; /* which would be refused */
    assert_non_null(fabric_dial(&ends[HOST].f, &cfg, NULL, &path, 1, dxpu_udp_now_ns()));
    (void)pump_one(HOST, dxpu_udp_now_ns());
    assert_true(kept_len > 0);
    assert_int_equal(ends[BOX].f.sealing.count.plain_opens, 1);
    assert_int_equal(pump_one(BOX, dxpu_udp_now_ns()), 0);
    assert_int_equal(ends[BOX].authorizations, 0);
    bring(HOST, kept, kept_len); /* nor does one who only opens answer one */
    assert_int_equal(ends[HOST].f.count.bad_opens, 1);
    close_end(HOST);
    close_end(BOX);
    open_end(HOST, keys_of(HOST), 60000);
    open_end(BOX, keys_none(), 60000);
    (void)dial_box(1);
    assert_int_equal(pump_one(HOST, dxpu_udp_now_ns()), 1);
    assert_int_equal(ends[BOX].f.sealing.count.plain_here, 1);
    assert_int_equal(pump_one(BOX, dxpu_udp_now_ns()), 0);
    close_both();
}

/* The answer is lost: the next initiation has another timestamp and key, and displaces nothing. */
static unsigned answers_dropped;

static bool drop_answers(unsigned from, uint8_t *frame, size_t len)
{
    bool answer = from == BOX && frame[DXPU_FRAME_KIND] == DXPU_KIND_HANDSHAKE &&
                  frame[DXPU_FRAME_BASE_BYTES] == 2;
    (void)len;
    if (!answer || answers_dropped == 2)
        return true;
    answers_dropped++;
    return false;
}

static void test_s92_answers_are_lost(void **state)
{
    fabric_channel *c;
    (void)state;
    open_both(60000);
    answers_dropped = 0;
    hook = drop_answers;
    c = dial_box(1);
    for (unsigned tries = 0; tries < 3; tries++) {
        pump();
        assert_int_equal(ends[HOST].ups, tries == 2);
        assert_true(tries == 2 || (c->asked == tries + 1 && c->ask_ns > dxpu_udp_now_ns()));
        if (tries < 2)
            c->ask_ns = 0; /* as if the time had passed */
    }
    assert_int_equal(counted(BOX)->responses_sent, 3);
    assert_int_equal(counted(BOX)->displaced, 0);
    assert_int_equal(places_used(BOX), 1);
    close_both();
}

static void test_s92_initiations_get_rarer(void **state)
{
    uint64_t hold_ms[] = { 10, 1000, 60000 };
    fabric f;
    (void)state;
    memset(&f, 0, sizeof f);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t hold_ns = hold_ms[i] * 1000000, sum_ns = 0;
        f.base.hold_ms = (uint32_t)hold_ms[i];
        assert_true(fabric_ask_gap_ns(&f, 0) <= 50000000 &&
                    fabric_ask_gap_ns(&f, 0) <= hold_ns / 8);
        for (unsigned n = 0; n < 20; n++) {
            assert_true(!n || fabric_ask_gap_ns(&f, n) >= fabric_ask_gap_ns(&f, n - 1));
            assert_true(fabric_ask_gap_ns(&f, n) <= hold_ns / 2);
            sum_ns += n < 3 ? fabric_ask_gap_ns(&f, n) : 0;
        }
        assert_true(sum_ns < hold_ns); /* some more than one */
    }
}

/* No answer: it ends as an unanswered open, and nothing but initiations was sent. */
static unsigned other_kinds;

static bool drop_all(unsigned from, uint8_t *frame, size_t len)
{
    (void)from;
    (void)len;
    other_kinds += frame[DXPU_FRAME_KIND] != DXPU_KIND_HANDSHAKE;
    return false;
}

static void test_s92_silence_ends_it(void **state)
{
    fabric_channel *c;
    uint64_t now;
    (void)state;
    open_both(1000);
    other_kinds = 0;
    hook = drop_all;
    c = dial_box(1);
    now = c->born_ns;
    while (!ends[HOST].downs) {
        uint64_t next = fabric_next_ns(&ends[HOST].f);
        assert_true(next > now && next <= now + 1000000000);
        now = next;
        (void)pump_one(HOST, now);
    }
    assert_int_equal(ends[HOST].error, DXPU_E_NO_ANSWER);
    assert_true(counted(HOST)->initiations_sent > 3 && counted(HOST)->initiations_sent < 12);
    assert_int_equal(other_kinds, 0);
    assert_int_equal(places_used(HOST), 0);
    close_both();
}

static void test_s15_a_refusal_has_its_reason(void **state)
{
    (void)state;
    open_both(60000);
    ends[BOX].reason = DXPU_REASON_EPOCH;
    (void)dial_box(1);
    pump();
    assert_int_equal(ends[HOST].downs, 1);
    assert_int_equal(ends[HOST].error, DXPU_E_RESET);
    assert_int_equal(ends[HOST].last_reason, DXPU_REASON_EPOCH);
    assert_int_equal(ends[BOX].f.count.opens_refused, 1);
    assert_int_equal(places_used(BOX), 0);
    close_both();
}

/* Between handshake and open: nothing is said then, the next handshake does. */
static bool refuse_open(unsigned from, uint8_t *frame, size_t len)
{
    (void)len;
    if (from == HOST && frame[DXPU_FRAME_KIND] == DXPU_KIND_OPEN)
        ends[BOX].reason = DXPU_REASON_EPOCH;
    return true;
}

static void test_s14_refused_when_the_open_arrives(void **state)
{
    (void)state;
    open_both(60000);
    hook = refuse_open;
    (void)dial_box(1);
    pump();
    assert_int_equal(ends[HOST].ups + ends[BOX].ups, 0);
    assert_int_equal(ends[BOX].f.count.opens_refused, 1);
    assert_int_equal(places_used(BOX), 0);
    close_both();
}

/* S-14: a promised place that somebody else has when the open arrives is not taken from him. */
static uint16_t rival;

static bool rival_comes(unsigned from, uint8_t *frame, size_t len)
{
    if (from == HOST && frame[DXPU_FRAME_KIND] == DXPU_KIND_OPEN && rival) {
        dxpu_channel_config cfg = ends[BOX].f.base;
        uint32_t id = 0;
        dxpu_sodium_session *x;
        dxpu_offer offer;
        dxpu_bytes open = { frame, len };
        x = dxpu_sodium_opener(ends[BOX].f.sealing.end, dxpu_udp_now_ns(), open, &offer);
        assert_non_null(x);
        id = dxpu_sodium_local_id(x) & FABRIC_INDEX_MASK;
        rival = 0;
        cfg.epoch = 1;
        channels[0] = fabric_channel_at(&ends[BOX].f, fabric_id_at(id), &cfg);
        assert_non_null(channels[0]);
        channels[0]->up = true;
        ends[BOX].f.up++;
        (void)dxpu_channel_open(&channels[0]->ch, dxpu_udp_now_ns());
    }
    return true;
}

static void test_s14_a_place_that_is_taken(void **state)
{
    (void)state;
    open_both(60000);
    rival = 1;
    hook = rival_comes;
    (void)dial_box(1);
    (void)pump_one(HOST, dxpu_udp_now_ns());
    while (rival && (pump_one(BOX, dxpu_udp_now_ns()) | pump_one(HOST, dxpu_udp_now_ns())))
        continue;
    assert_int_equal(rival, 0);
    assert_int_equal(ends[BOX].f.count.opens_refused, 1);
    assert_int_equal(places_used(BOX), 1);
    assert_ptr_equal(ends[BOX].f.channels[channels[0]->id & FABRIC_INDEX_MASK], channels[0]);
    close_both();
}

/* More handshakes than places: each gets one that is free, or of an incarnation that is over. */
static void test_s14_all_places(void **state)
{
    (void)state;
    open_both(60000);
    for (unsigned round = 0; round < 4; round++) {
        fabric_channel *c[CAPACITY];
        for (unsigned i = 0; i < CAPACITY; i++)
            c[i] = dial_box((uint16_t)(1 + i % SLOTS));
        pump();
        assert_int_equal(ends[BOX].ups, (round + 1) * CAPACITY);
        assert_int_equal(ends[HOST].f.up, CAPACITY);
        for (unsigned i = 0; i < CAPACITY; i++)
            assert_int_equal(dxpu_channel_close(&c[i]->ch, DXPU_REASON_DETACH), DXPU_OK);
        pump(); /* at the box they linger, and make room */
        assert_int_equal(places_used(HOST), 0);
        assert_int_equal(places_used(BOX), CAPACITY);
    }
    close_both();
}

/* With no place at all the caller is refused. */
static void test_s15_no_place(void **state)
{
    (void)state;
    open_both(60000);
    for (unsigned i = 0; i < CAPACITY; i++)
        (void)dial_box(1);
    pump();
    assert_int_equal(ends[BOX].ups, CAPACITY);
    close_end(HOST); /* it says nothing */
    open_end(HOST, keys_of(HOST), 60000);
    (void)dial_box(1);
    pump();
    assert_int_equal(ends[HOST].error, DXPU_E_RESET);
    assert_int_equal(ends[HOST].last_reason, DXPU_REASON_BUSY);
    close_both();
}

static void test_an_open_is_repeated(void **state)
{
    (void)state;
    open_both(60000);
    kept_len = 0;
    hook = keep_first_open;
    (void)dial_box(1);
    while (!kept_len)
        (void)(pump_one(HOST, dxpu_udp_now_ns()) + pump_one(BOX, dxpu_udp_now_ns()));
    assert_int_equal(ends[BOX].f.count.opens_accepted, 1);
    bring(BOX, kept, kept_len);
    assert_int_equal(ends[BOX].f.count.opens_repeated, 1);
    pump();
    assert_int_equal(ends[BOX].ups, 1);
    bring(BOX, kept, kept_len); /* it is up: no longer kept */
    assert_int_equal(counted(BOX)->opens_unknown, 1);
    assert_int_equal(ends[BOX].f.sealing.count.plain_opens, 0);
    assert_int_equal(ends[BOX].f.count.opens_accepted, 1);
    close_both();
}

/* ==== Another address ========================================================================= */

enum { WRITE_BYTES = 12 + 1024, WRITES = 24 };

static int elsewhere; /* a socket: the other address */
static dxpu_udp_address elsewhere_at;
static uint8_t caught[ROOM];
static size_t caught_bytes;
static unsigned taken[ENDS];

static bool take_all(void *user, fabric_channel *c, uint64_t now)
{
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        while (dxpu_channel_peek(&c->ch, cls).tlp.len) {
            assert_int_equal(dxpu_channel_take(&c->ch, cls, now), DXPU_OK);
            taken[(end *)user - ends]++;
        }
    }
    return false;
}

/* A memory write of 1 KB, or of 4 bytes. */
static void write_memory(fabric_channel *c, bool big)
{
    uint8_t tlp[WRITE_BYTES] = { 0x40, 0, big, !big, 0, 0, 0, big ? 0xff : 0x0f, 0x10, 0, 0, 0 };
    dxpu_bytes bytes = { tlp, big ? WRITE_BYTES : 16 };
    assert_int_equal(dxpu_channel_submit(&c->ch, bytes, dxpu_udp_now_ns(), 0), DXPU_OK);
}

static bool catch_all_of_the_host(unsigned from, uint8_t *frame, size_t len)
{
    if (from != HOST)
        return true;
    memcpy(caught, frame, len);
    caught_bytes = len;
    return false;
}

/* A channel that is up, a data frame of the host caught, and WRITES big ones waiting at the box. */
static fabric_channel *frame_to_forward(fabric_channel **host)
{
    fabric_channel *box;
    open_both(1000);
    memset(taken, 0, sizeof taken);
    ends[HOST].f.cb.work = ends[BOX].f.cb.work = take_all;
    *host = dial_box(1);
    pump();
    box = ends[BOX].f.live[0];
    assert_true(box->paths.path[0].validation.valid || box->paths.path[0].validation.allowed_bytes);
    elsewhere = socket(AF_INET, SOCK_DGRAM, 0);
    assert_null(dxpu_udp_parse("127.0.0.1:0", &elsewhere_at));
    assert_int_equal(bind(elsewhere, &elsewhere_at.u.any, elsewhere_at.len), 0);
    elsewhere_at.len = sizeof elsewhere_at.u;
    assert_int_equal(getsockname(elsewhere, &elsewhere_at.u.any, &elsewhere_at.len), 0);
    assert_int_equal(fcntl(elsewhere, F_SETFL, O_NONBLOCK), 0);
    hook = catch_all_of_the_host;
    write_memory(*host, false);
    (void)pump_one(HOST, dxpu_udp_now_ns());
    assert_int_equal(caught[DXPU_FRAME_KIND], DXPU_KIND_DATA);
    for (unsigned i = 0; i < WRITES; i++)
        write_memory(box, true);
    return box;
}

/* To the box, from the other address. */
static void forward(const uint8_t *frame, size_t len)
{
    uint8_t copy[ROOM];
    dxpu_udp_path from;
    memcpy(copy, frame, len);
    from.socket = 0;
    from.remote = elsewhere_at;
    fabric_on_datagram(&ends[BOX].f, copy, len, &from, 0);
}

/* What comes there; to_host: and goes on to the host. */
static size_t arrives_elsewhere(bool to_host)
{
    uint8_t frame[ROOM];
    size_t bytes = 0;
    ssize_t len;
    dxpu_udp_flush(ends[BOX].f.udp);
    while ((len = recv(elsewhere, frame, sizeof frame, 0)) > 0) {
        bytes += (size_t)len;
        if (to_host)
            bring(HOST, frame, (size_t)len);
    }
    return bytes;
}

/* Both go on until an end has taken that many TLPs, and its acknowledgements have had time. */
static void pump_until(unsigned by, unsigned tlps)
{
    uint64_t end_ns = dxpu_udp_now_ns() + 900000000ull, quiet_ns = 0;
    while (!quiet_ns || dxpu_udp_now_ns() < quiet_ns) {
        uint64_t now = dxpu_udp_now_ns();
        assert_true(now < end_ns);
        pump();
        if (!quiet_ns && taken[by] == tlps)
            quiet_ns = now + 10000000;
    }
}

static unsigned refusals, refused; /* calls that may yet find the buffer full, each second one */

/* In place of libc's: loopback never has a full buffer. */
int sendmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags)
{
    if (refusals && refusals-- % 2 == 0) {
        refused++;
        errno = EAGAIN;
        return -1;
    }
    return (int)syscall(SYS_sendmmsg, fd, msgs, count, flags);
}

/* A full socket buffer loses nothing: each frame of the channel leaves, and all TLPs arrive. */
static void test_a_full_buffer_loses_nothing(void **state)
{
    const dxpu_udp_counters *sent;
    fabric_channel *c;
    uint64_t before;
    (void)state;
    open_both(60000);
    memset(taken, 0, sizeof taken);
    ends[HOST].f.cb.work = ends[BOX].f.cb.work = take_all;
    c = dial_box(1);
    pump();
    for (unsigned i = 0; i < WRITES; i++)
        write_memory(c, true);
    sent = dxpu_udp_count(ends[HOST].f.udp);
    before = sent->tx_datagrams - c->paths.path[0].tx_frames;
    refused = 0;
    refusals = 8;
    pump_until(BOX, WRITES);
    assert_int_equal(refused, 4);
    assert_int_equal(sent->tx_full, 0);
    assert_int_equal(sent->tx_datagrams - c->paths.path[0].tx_frames, before);
    close_both();
}

/* What the box sends to an address that a frame was forwarded from, within half the hold time. */
static size_t brought(bool limited)
{
    fabric_channel *host, *box = frame_to_forward(&host);
    size_t bytes = 0;
    uint64_t now;
    forward(caught, caught_bytes);
    box->paths.path[0].validation.valid = !limited;
    now = dxpu_udp_now_ns();
    for (unsigned ms = 0; ms < 500; ms++) {
        fabric_turn(&ends[BOX].f, now + ms * 1000000ull);
        bytes += arrives_elsewhere(false);
    }
    assert_int_equal(box->paths.path[0].moves, 1);
    assert_true(limited == (box->paths.path[0].held_back != 0));
    close(elsewhere);
    close_both();
    return bytes;
}

static void test_p27_three_times_what_arrived(void **state)
{
    size_t bytes;
    (void)state;
    bytes = brought(true);
    assert_true(bytes <= 3 * caught_bytes);
    assert_true(brought(false) > 30 * caught_bytes); /* the control */
}

/* The host is there: all that the box had to send arrives soon after its first frame. */
static void test_p27_a_host_that_moved_answers(void **state)
{
    fabric_channel *host, *box = frame_to_forward(&host);
    uint64_t end_ns = dxpu_udp_now_ns() + 900000000ull;
    const fabric_path *p = &box->paths.path[0];
    (void)state;
    forward(caught, caught_bytes);
    assert_false(p->validation.valid);
    while (taken[HOST] < WRITES && dxpu_udp_now_ns() < end_ns) {
        caught_bytes = 0;
        fabric_turn(&ends[BOX].f, dxpu_udp_now_ns());
        (void)arrives_elsewhere(true);
        (void)pump_one(HOST, dxpu_udp_now_ns());
        if (caught_bytes)
            forward(caught, caught_bytes);
    }
    assert_int_equal(taken[HOST], WRITES);
    assert_int_equal(ends[BOX].downs, 0);
    assert_true(p->validation.valid && p->moves == 1);
    assert_true(dxpu_udp_same(&p->valid_at, &elsewhere_at));
    assert_true(p->held_back > 0);
    /* and back: where it was before has not answered lately */
    hook = NULL;
    write_memory(host, false);
    (void)pump_one(HOST, dxpu_udp_now_ns());
    assert_int_equal(p->moves, 2);
    assert_false(p->validation.valid);
    close(elsewhere);
    close_both();
}

/* Frames that another forwards do not slow down an opener that stays where it has answered. */
static void test_p27_back_to_an_address_that_answered(void **state)
{
    fabric_channel *host, *box = frame_to_forward(&host);
    const fabric_path *p = &box->paths.path[0];
    uint64_t held_back;
    (void)state;
    hook = NULL;
    pump_until(HOST, WRITES); /* it answers */
    assert_true(p->validation.valid);
    hook = catch_all_of_the_host;
    write_memory(host, false);
    (void)pump_one(HOST, dxpu_udp_now_ns());
    forward(caught, caught_bytes);
    assert_false(p->validation.valid);
    hook = NULL;
    write_memory(host, false);
    (void)pump_one(HOST, dxpu_udp_now_ns());
    assert_int_equal(p->moves, 2);
    assert_true(p->validation.valid);
    held_back = p->held_back;
    for (unsigned i = 0; i < WRITES; i++)
        write_memory(box, true);
    pump_until(HOST, 2 * WRITES);
    assert_int_equal(p->held_back, held_back);
    close(elsewhere);
    close_both();
}

/* S-93: another port of this program has heard of this key with a later timestamp. */
static void test_s93_another_port_heard_later(void **state)
{
    (void)state;
    open_both(60000);
    assert_true(keys_fresh(ends[BOX].keys, pair[HOST]->public_key, UINT64_MAX));
    (void)dial_box(1);
    pump();
    assert_int_equal(ends[HOST].ups, 0);
    assert_int_equal(counted(BOX)->replayed, 1);
    assert_int_equal(ends[BOX].authorizations, 0);
    close_both();
}

/* ... or does so while this one is looking at it. */
static void test_s93_two_ports_at_once(void **state)
{
    const uint8_t *key;
    sealing *z;
    (void)state;
    open_both(60000);
    z = &ends[BOX].f.sealing;
    key = pair[HOST]->public_key;
    assert_ptr_equal(sealing_find(z, key), &z->peer);
    assert_true(sealing_fresh(z, key, 100));
    assert_false(sealing_fresh(z, key, 100));
    assert_true(sealing_fresh(z, key, 101));
    assert_ptr_equal(sealing_find(z, pair[BOX]->public_key), NULL);
    close_both();
}

/* What a proxy of the host's key says to the box, which is not of this program: an initiation for
   frames of another version, and the same again. */
static size_t foreign_initiation(dxpu_sodium *foreign, uint8_t frame[ROOM])
{
    dxpu_sodium_request ask;
    dxpu_sodium_session *x;
    uint8_t cookie[ROOM];
    size_t bytes;
    ssize_t len;
    memset(&ask, 0, sizeof ask);
    ask.channel = 77;
    ask.version_min = ask.version_max = DXPU_WIRE_VERSION + 1;
    ask.epoch = 1;
    x = dxpu_sodium_begin(foreign, pair[BOX]->public_key, &ask);
    assert_non_null(x);
    len = dxpu_sodium_initiate(x, 1, 1, frame, ROOM);
    assert_true(len > 0);
    bring(BOX, frame, (size_t)len);
    dxpu_udp_flush(ends[BOX].f.udp);
    len = recv(ends[BOX].fd, cookie, sizeof cookie, 0);
    assert_true(len > 0);
    assert_int_equal(dxpu_sodium_ingest(foreign, 1, (dxpu_bytes){ cookie, (size_t)len },
                                        (dxpu_bytes){ NULL, 0 }, frame, ROOM, &bytes, &x),
                     DXPU_OK);
    assert_true(bytes > 0);
    return bytes;
}

/* S-13: it is answered once, and refused; its timestamp counts for all ports of the box. */
static void test_s13_a_refused_version_counts(void **state)
{
    uint8_t frame[ROOM];
    dxpu_sodium_config cfg;
    dxpu_sodium *foreign;
    size_t bytes;
    (void)state;
    open_both(60000);
    dxpu_sodium_config_default(&cfg);
    cfg.identity = pair[HOST];
    foreign = dxpu_sodium_create(&cfg);
    assert_non_null(foreign);
    bytes = foreign_initiation(foreign, frame);
    bring(BOX, frame, bytes);
    assert_int_equal(counted(BOX)->refused, 1);
    assert_int_equal(counted(BOX)->replayed, 0);
    assert_true(keys_newest(ends[BOX].keys, pair[HOST]->public_key) > 0);
    bring(BOX, frame, bytes);
    assert_int_equal(counted(BOX)->refused, 1);
    assert_int_equal(counted(BOX)->replayed, 1);
    dxpu_sodium_destroy(foreign);
    close_both();
}

static bool drop_opens(unsigned from, uint8_t *frame, size_t len)
{
    (void)len;
    return from != HOST || frame[DXPU_FRAME_KIND] != DXPU_KIND_OPEN;
}

/* S-14: the box wakes up for it, though nothing arrives any more. */
static void test_s14_keys_end_by_time(void **state)
{
    uint64_t next;
    (void)state;
    open_both(60000);
    assert_true(fabric_next_ns(&ends[BOX].f) == DXPU_NEVER); /* the control */
    hook = drop_opens;
    (void)dial_box(1);
    pump();
    assert_int_equal(counted(BOX)->responses_sent, 1);
    next = fabric_next_ns(&ends[BOX].f);
    assert_true(next > dxpu_udp_now_ns() && next <= dxpu_udp_now_ns() + 5000000000u);
    fabric_turn(&ends[BOX].f, next - 1);
    assert_int_equal(counted(BOX)->expired, 0);
    fabric_turn(&ends[BOX].f, next);
    assert_int_equal(counted(BOX)->expired, 1);
    assert_true(fabric_next_ns(&ends[BOX].f) == DXPU_NEVER);
    close_both();
}

static void test_s96_keys_that_are_gone(void **state)
{
    (void)state;
    open_both(60000);
    (void)dial_box(1);
    pump();
    fabric_keys_changed(&ends[BOX].f); /* the control: it may stay */
    fabric_keys_changed(&ends[HOST].f);
    pump();
    assert_int_equal(ends[BOX].downs + ends[HOST].downs, 0);
    ends[BOX].deny = true;
    fabric_keys_changed(&ends[BOX].f);
    assert_int_equal(ends[BOX].f.sealing.count.revoked, 1);
    pump();
    assert_int_equal(ends[BOX].downs, 1);
    assert_int_equal(ends[HOST].downs, 1);
    assert_int_equal(ends[HOST].last_reason, DXPU_REASON_DETACH);
    close_both();
}

/* S-98: beside channels handshakes get a part of the time, and some at once after quiet. */
static void test_s98_a_share_of_the_time(void **state)
{
    dxpu_secure_budget b = { .debt_ns = SEALING_DEBT_NS };
    uint64_t now = 1000000000000, spent = 0;
    (void)state;
    assert_true(dxpu_secure_has_time(&b, now));
    assert_true(b.credit_ns == DXPU_SECURE_BURST_NS);
    for (unsigned i = 0; i < 10000; i++) { /* 100 us at a time, each of which takes 200 us */
        now += 100000;
        if (!dxpu_secure_has_time(&b, now))
            continue;
        spent += 200000;
        dxpu_secure_spend(&b, 200000);
    }
    assert_true(spent >= 10000ull * 100000 / DXPU_SECURE_SHARE);
    assert_true(spent <= 10000ull * 100000 / DXPU_SECURE_SHARE + DXPU_SECURE_BURST_NS +
                             200000); /* what begins is ended */
    b.credit_ns = 0;
    assert_false(dxpu_secure_has_time(&b, now));
    dxpu_secure_spend(&b, UINT64_MAX); /* a clock that jumps */
    assert_true(b.credit_ns == -SEALING_DEBT_NS);
}

/* And alone all of it: nothing is dropped. */
static void test_s98_nothing_is_late_without_channels(void **state)
{
    uint8_t frame[DXPU_FRAME_BASE_BYTES + 8 + DXPU_FRAME_CRC_BYTES] = { 0x44, 0x58 };
    (void)state;
    frame[DXPU_FRAME_VERSION] = DXPU_WIRE_VERSION;
    frame[DXPU_FRAME_KIND] = DXPU_KIND_HANDSHAKE;
    frame[DXPU_FRAME_LENGTH + 1] = sizeof frame;
    open_both(60000);
    for (unsigned i = 0; i < 1000; i++)
        bring(BOX, frame, sizeof frame);
    assert_int_equal(counted(BOX)->malformed, 1000);
    assert_int_equal(ends[BOX].f.sealing.count.late, 0);
    (void)dial_box(1);
    pump();
    assert_int_equal(ends[BOX].f.up, 1);
    for (unsigned i = 0; !ends[BOX].f.sealing.count.late; i++) { /* the control */
        assert_true(i < 100000000);
        ends[BOX].f.sealing.budget.credit_ns = 0;
        ends[BOX].f.sealing.budget.at_ns = dxpu_udp_now_ns() + 1000;
        bring(BOX, frame, sizeof frame);
    }
    close_both();
}

/* S-156: so do opens, of which each is tried with the keys of all pending sessions. */
static void test_s156_opens_are_in_the_same_share(void **state)
{
    uint8_t frame[DXPU_FRAME_BASE_BYTES + 100] = { 0x44, 0x58 };
    (void)state;
    frame[DXPU_FRAME_VERSION] = DXPU_WIRE_VERSION;
    frame[DXPU_FRAME_KIND] = DXPU_KIND_OPEN;
    frame[DXPU_FRAME_LENGTH + 1] = sizeof frame;
    open_both(60000);
    for (unsigned i = 0; i < 1000; i++) /* the control: alone they have all of it */
        bring(BOX, frame, sizeof frame);
    assert_int_equal(counted(BOX)->opens_unknown, 1000);
    assert_int_equal(ends[BOX].f.sealing.count.late, 0);
    (void)dial_box(1);
    pump();
    assert_int_equal(ends[BOX].f.up, 1);
    ends[BOX].f.sealing.budget.credit_ns = 0;
    ends[BOX].f.sealing.budget.at_ns = UINT64_MAX;
    bring(BOX, frame, sizeof frame);
    assert_int_equal(ends[BOX].f.sealing.count.late, 1);
    assert_int_equal(counted(BOX)->opens_unknown, 1000);
    ends[BOX].f.sealing.budget.credit_ns = DXPU_SECURE_BURST_NS; /* and it pays for what it took */
    bring(BOX, frame, sizeof frame);
    assert_int_equal(counted(BOX)->opens_unknown, 1001);
    assert_true(ends[BOX].f.sealing.budget.credit_ns < DXPU_SECURE_BURST_NS);
    close_both();
}

/* S-98: of one address, whatever its ports. */
static void test_s98_addresses_are_limited(void **state)
{
    static const char *const same[][2] = { { "10.0.0.1:1", "10.0.0.1:2" },
                                           { "[2001:db8::1]:1", "[2001:db8::2]:9" } };
    static const char *const others[] = { "10.0.0.2:1", "[2001:db8:0:1::1]:1" };
    uint64_t now = 1000000000000;
    (void)state;
    open_both(60000);
    for (unsigned i = 0; i < 2; i++) {
        sealing *z = &ends[BOX].f.sealing;
        uint8_t one[DXPU_SODIUM_FROM_BYTES], two[DXPU_SODIUM_FROM_BYTES],
            other[DXPU_SODIUM_FROM_BYTES];
        dxpu_udp_address a, b, c;
        dxpu_bytes from[2], far;
        unsigned n = 0;
        assert_null(dxpu_udp_parse(same[i][0], &a));
        assert_null(dxpu_udp_parse(same[i][1], &b));
        assert_null(dxpu_udp_parse(others[i], &c));
        from[0] = sealing_address_bytes(&a, one);
        from[1] = sealing_address_bytes(&b, two);
        far = sealing_address_bytes(&c, other);
        assert_memory_not_equal(one, two, from[0].len); /* for a cookie they are two */
        memset(z->budget.spare_ns, 0, sizeof z->budget.spare_ns);
        while (sealing_spare(z, now, from[n & 1]))
            n++;
        assert_int_equal(n, DXPU_SECURE_ADDRESS_BURST + 1);
        for (unsigned k = 0; k < 1000; k++)
            n += sealing_spare(z, now + (uint64_t)k * DXPU_SECURE_ADDRESS_NS / 4, from[k & 1]);
        assert_in_range(n, DXPU_SECURE_ADDRESS_BURST + 1 + 249,
                        DXPU_SECURE_ADDRESS_BURST + 1 + 251);
        for (unsigned k = 0; k < 64; k++) { /* another one, but for one key of 256 */
            memset(z->budget.spare_ns, 0, sizeof z->budget.spare_ns);
            crypto_shorthash_keygen(z->hash_key);
            while (sealing_spare(z, now, from[0]))
                continue;
            n += sealing_spare(z, now, far);
        }
        assert_true(n > DXPU_SECURE_ADDRESS_BURST + 251 + 48);
    }
    close_both();
}

/* ==== Random bytes ============================================================================ */

enum { SEEN = 64 };
static uint8_t seen[SEEN][ROOM];
static size_t seen_len[SEEN];
static unsigned seen_count;

static bool keep_all(unsigned from, uint8_t *frame, size_t len)
{
    (void)from;
    if (seen_count < SEEN) {
        memcpy(seen[seen_count], frame, len);
        seen_len[seen_count++] = len;
    }
    return true;
}

static uint32_t rng_state = 12345;
static uint32_t rng(uint32_t below)
{
    rng_state = rng_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(rng_state >> 8) * below >> 24);
}

/* True frames, mangled, with checksums that fit now and then: at both ends nothing comes up but
   what was dialed. */
static void test_s2_random_frames(void **state)
{
    const char *rounds = getenv("DXPU_ROUNDS");
    unsigned n = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 20000;
    (void)state;
    open_both(60000);
    seen_count = 0;
    hook = keep_all;
    (void)dial_box(1);
    pump();
    assert_true(seen_count > 5);
    hook = NULL;
    for (unsigned i = 0; i < n; i++) {
        uint8_t frame[ROOM];
        unsigned k = rng(seen_count);
        size_t len = seen_len[k];
        memcpy(frame, seen[k], len);
        for (unsigned flips = 1 + rng(4); flips; flips--)
            frame[rng(4) ? rng((uint32_t)len) : rng(40)] ^= (uint8_t)(1u << rng(8));
        if (!rng(8))
            len = 1 + rng((uint32_t)len);
        dxpu_put_be16(frame + DXPU_FRAME_LENGTH, (uint32_t)len);
        if (len > DXPU_FRAME_BASE_BYTES + DXPU_FRAME_CRC_BYTES && rng(2))
            dxpu_frame_seal_crc(frame, len - DXPU_FRAME_CRC_BYTES);
        bring(rng(2), frame, len);
        if (!rng(64))
            pump();
    }
    pump();
    for (unsigned i = 0; i < ENDS; i++) {
        assert_int_equal(ends[i].ups, 1);
        assert_int_equal(ends[i].downs, 0);
    }
    assert_true(counted(BOX)->malformed + counted(BOX)->bad_mac > n / 100);
    (void)dial_box(2); /* and it still serves */
    pump_ups(BOX, 2);
    close_both();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_channel_is_first_in_turn),
        cmocka_unit_test(test_idle_channels_are_passed_over),
        cmocka_unit_test(test_unannounced_work_is_found_and_counted),
        cmocka_unit_test(test_work_that_no_event_announced_is_counted),
        cmocka_unit_test(test_a_missed_turn_is_made_up_for),
        cmocka_unit_test(test_s161_a_closed_channel_waits_for_its_turns),
        cmocka_unit_test(test_a_place_out_of_the_middle),
        cmocka_unit_test(test_s92_keys_then_a_channel),
        cmocka_unit_test(test_s92_no_frame_reaches_a_channel_without_keys),
        cmocka_unit_test(test_s92_plain_and_sealed_do_not_answer),
        cmocka_unit_test(test_s92_answers_are_lost),
        cmocka_unit_test(test_s92_initiations_get_rarer),
        cmocka_unit_test(test_s92_silence_ends_it),
        cmocka_unit_test(test_s15_a_refusal_has_its_reason),
        cmocka_unit_test(test_s14_refused_when_the_open_arrives),
        cmocka_unit_test(test_s14_a_place_that_is_taken),
        cmocka_unit_test(test_d66_who_is_closed_stays),
        cmocka_unit_test(test_s14_all_places),
        cmocka_unit_test(test_s15_no_place),
        cmocka_unit_test(test_an_open_is_repeated),
        cmocka_unit_test(test_a_full_buffer_loses_nothing),
        cmocka_unit_test(test_p27_three_times_what_arrived),
        cmocka_unit_test(test_p27_a_host_that_moved_answers),
        cmocka_unit_test(test_p27_back_to_an_address_that_answered),
        cmocka_unit_test(test_s93_another_port_heard_later),
        cmocka_unit_test(test_s93_two_ports_at_once),
        cmocka_unit_test(test_s13_a_refused_version_counts),
        cmocka_unit_test(test_s14_keys_end_by_time),
        cmocka_unit_test(test_s96_keys_that_are_gone),
        cmocka_unit_test(test_s98_a_share_of_the_time),
        cmocka_unit_test(test_s98_nothing_is_late_without_channels),
        cmocka_unit_test(test_s156_opens_are_in_the_same_share),
        cmocka_unit_test(test_s98_addresses_are_limited),
        cmocka_unit_test(test_s2_random_frames),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
