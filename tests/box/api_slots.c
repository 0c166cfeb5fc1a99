/* api_slots.c - the slots of a box and their channels, with a device that floods, reads and keeps
   silent, and a host whose every frame and TLP the test decides about
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "identity.h"
#include "guard.h"
#include "limit.h"
/* Memory for TLPs that wait runs out when a test says so. */
static bool no_memory_left;
static void *short_malloc(size_t bytes)
{
    return no_memory_left ? NULL : malloc(bytes);
}
/* Not linked: replaces malloc(). */
#define malloc short_malloc
#include "slots.c"
#undef malloc
#include "leases.h"
#include "state.h"
#include "peer.h"

enum { CAPACITY = 4, FLOOD = 700, BURST = 32, SMALL_BYTES = 64, LARGE_BYTES = 192 };

/* ==== The device: what it does with a TLP is the test's ======================================= */

typedef struct stub {
    const device_port *port;
    unsigned requests, writes, resets, most; /* most TLPs seen waiting */
    unsigned refusals;                       /* of its own requests */
    bool slow;                               /* the test's */
} stub;

static void (*on_write)(stub *d);
static void (*on_read)(stub *d, const dxpu_tlp *t);

static void stub_emit(stub *d, const dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    unsigned waiting;
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    d->port->emit(d->port->user, tlp);
    waiting = d->port->waiting(d->port->user);
    if (waiting > d->most)
        d->most = waiting;
}

static void stub_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    stub *d = device;
    (void)bytes;
    if (t->type == DXPU_TLP_CFGWR0) {
        dxpu_tlp cpl;
        dxpu_tlp_completion(t, t->target, DXPU_CPL_SC, &cpl);
        stub_emit(d, &cpl);
    } else if (dxpu_tlp_class(t) == DXPU_COMPLETION) {
        assert_int_equal(t->status, DXPU_CPL_UR);
        d->refusals++;
    } else if (dxpu_tlp_class(t) == DXPU_NONPOSTED) {
        d->requests++;
        if (on_read)
            on_read(d, t);
    } else if (dxpu_tlp_class(t) == DXPU_POSTED) {
        d->writes++;
        if (on_write)
            on_write(d);
    }
}

static uint8_t events[4]; /* resets and power, with their flags */
static unsigned event_count;

static void stub_event(void *device, const dxpu_event *e)
{
    (void)device;
    if ((e->type == DXPU_EVENT_HOT_RESET || e->type == DXPU_EVENT_SLOT_POWER) &&
        event_count < sizeof events)
        events[event_count++] = (uint8_t)(e->type | e->flags);
}

static unsigned turns_left; /* that the device needs for what it has begun */

static void stub_tick(void *device, uint64_t now_ns)
{
    (void)device;
    (void)now_ns;
    turns_left -= turns_left > 0;
}

static bool stub_unfinished(const void *device)
{
    (void)device;
    return turns_left > 0;
}

static void stub_reset(void *device)
{
    ((stub *)device)->resets++;
}

static void stub_report(void *device, report *r)
{
    (void)device;
    (void)r;
}

static uint64_t given_timeout_ns;

static void *stub_create(const device_settings *s, const device_port *port)
{
    stub *d = calloc(1, sizeof *d);
    given_timeout_ns = s->timeout_ns;
    assert_non_null(d);
    d->port = port;
    return d;
}

static unsigned values_count; /* that it declares */

/* As virtio devices do. */
static unsigned stub_values(const void *device, device_value out[DEVICE_VALUES_MAX])
{
    const device_value all[] = { { .bytes = 1, .offset = 0x14 },
                                 { .bytes = 2, .offset = 0x1c },
                                 { .bytes = 2, .offset = 0x3a } };
    (void)device;
    memcpy(out, all, values_count * sizeof *all);
    return values_count;
}

static const device_kind stub_kind = { .name = "stub",
                                       .create = stub_create,
                                       .destroy = free,
                                       .tlp = stub_tlp,
                                       .event = stub_event,
                                       .reset = stub_reset,
                                       .tick = stub_tick,
                                       .unfinished = stub_unfinished,
                                       .report = stub_report,
                                       .values = stub_values };

static void emit_request(stub *d, uint8_t type, uint16_t tag)
{
    dxpu_tlp t = peer_request(type, tag);
    stub_emit(d, &t);
}

/* Of one dword. */
static void emit_completion(stub *d, uint16_t tag)
{
    static const uint8_t data[4];
    dxpu_tlp read = peer_request(DXPU_TLP_MRD, tag), cpl;
    dxpu_tlp_completion(&read, 0, DXPU_CPL_SC, &cpl);
    cpl.payload.ptr = data;
    cpl.payload.len = sizeof data;
    stub_emit(d, &cpl);
}

/* ==== The box ================================================================================= */

static box b;
static shard loop;
static peer host, second;

static stub *device(void)
{
    return b.slots[0].device;
}

static void run_until(bool (*done)(void))
{
    peer_run(&loop.fabric, done);
}

static bool some_polls(void)
{
    return peer_polls >= 100;
}

static bool host_is_up(void)
{
    return dxpu_channel_status(&host.ch).state == DXPU_STATE_UP && b.slots[0].active;
}

static uint64_t window_frames;           /* 0: the usual */
static char state_dir[32], state_at[48]; /* "": no --state */

static void tick(void *user, uint64_t now_ns)
{
    (void)now_ns;
    slots_written(user);
}

static uint64_t next_ns(void *user)
{
    return slots_next_ns(user);
}

static int setup(void **state)
{
    fabric_settings net = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { &loop,      slots_authorize, slots_up, slots_work,
                            slots_down, next_ns,         tick,     NULL,
                            NULL };
    device_settings set;
    (void)state;
    memset(&b, 0, sizeof b);
    memset(&loop, 0, sizeof loop);
    memset(&set, 0, sizeof set);
    on_write = NULL;
    on_read = NULL;
    values_count = 0;
    loop.box = &b;
    loop.node = 2;
    b.shards = &loop;
    b.shard_count = b.count = 1;
    b.keys = net.keys = keys_none();
    net.hold_ms = 60000; /* nothing here ends by silence */
    if (window_frames)
        net.window_frames = window_frames;
    window_frames = 0;
    assert_int_equal(fabric_open(&loop.fabric, &net, CAPACITY, &cb), 0);
    b.state_file = *state_at ? state_at : NULL;
    assert_int_equal(slots_open(&b, &stub_kind, &set), 0);
    peer_start(&host, dxpu_udp_base(loop.fabric.udp));
    peer_start(&second, dxpu_udp_base(loop.fabric.udp));
    host.cfg.hold_ms = second.cfg.hold_ms = 60000;
    return 0;
}

static int setup_wide(void **state)
{
    window_frames = 256;
    return setup(state);
}

static int teardown(void **state)
{
    (void)state;
    peer_stop(&host);
    peer_stop(&second);
    assert_int_equal(fabric_close(&loop.fabric), 0);
    slots_close(&b);
    return 0;
}

static void attach(void)
{
    peer_dial(&host, dxpu_udp_local(loop.fabric.udp, 0), 1);
    run_until(host_is_up);
}

static peer *prepared;

static bool is_prepared(void)
{
    dxpu_tlp t;
    return peer_take(prepared, DXPU_COMPLETION, &t);
}

static void grant(peer *p, uint8_t type, uint64_t first, uint64_t length, uint8_t flags)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = type;
    e.flags = flags;
    e.base = first;
    e.length = length;
    assert_int_equal(dxpu_channel_submit_event(&p->ch, &e), DXPU_OK);
}

/* Command of function 00:00.0, which then is the device's requester ID. */
static void send_command(peer *p, uint8_t value)
{
    uint8_t command[4] = { value };
    dxpu_tlp t = peer_request(DXPU_TLP_CFGWR0, 0);
    t.address = 0;
    t.register_bytes = 4;
    t.payload.ptr = command;
    t.payload.len = sizeof command;
    assert_int_equal(peer_submit(p, &t), DXPU_OK);
}

static void set_command(peer *p, uint8_t value)
{
    send_command(p, value);
    prepared = p;
    run_until(is_prepared);
}

/* The device may read and write the first MB of memory. */
static void attach_master(void)
{
    attach();
    grant(&host, DXPU_EVENT_DMA_GRANT, 0, 1u << 20, DXPU_EVENT_READ | DXPU_EVENT_WRITE);
    set_command(&host, 0x04);
}

static bool one_request_came(void)
{
    return device()->requests == 1;
}

/* Something that the device can answer. */
static void ask_once(uint16_t tag)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, tag);
    assert_int_equal(peer_submit(&host, &t), DXPU_OK);
    run_until(one_request_came);
}

/* One write makes the device do on_write(). */
static void poke(peer *p)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    assert_int_equal(peer_submit(p, &t), DXPU_OK);
}

/* ==== Values of what is gone ================================================================== */

/* spec/vectors/tlp.txt, msg-vendor1-declaration */
static const uint8_t declaration[] = {
    0x70, 0, 0, 0x0d, 0, 0, 0, 0x7f, 0, 0, 0xff, 0xff, 'd', 'x', 'p', 'u',  /* */
    1,    3, 0, 0,                                                          /* */
    0,    0, 0, 1,    0, 0, 0, 0,    0, 0, 0,    0,    0,   0,   0,   0x14, /* device_status */
    0,    0, 0, 2,    0, 0, 0, 0,    0, 0, 0,    0,    0,   0,   0,   0x1c, /* queue_enable */
    0,    0, 0, 2,    0, 0, 0, 0,    0, 0, 0,    0,    0,   0,   0,   0x3a, /* queue_reset */
};

static bool some_posted(void)
{
    return dxpu_channel_peek(&host.ch, DXPU_POSTED).tlp.len != 0;
}

static void take_declaration(void)
{
    dxpu_delivery d;
    run_until(some_posted);
    d = dxpu_channel_peek(&host.ch, DXPU_POSTED);
    assert_int_equal(d.tlp.len, sizeof declaration);
    assert_memory_equal(d.tlp.ptr, declaration, sizeof declaration);
    assert_int_equal(dxpu_channel_take(&host.ch, DXPU_POSTED, dxpu_udp_now_ns()), DXPU_OK);
}

/* Ahead of all that the device sends, in each incarnation; and again after a reset, which makes the
   box forget what waits. */
static void test_v49_declaration_is_the_first(void **state)
{
    dxpu_tlp t;
    (void)state;
    values_count = 3;
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        host.open = false;
        peer_dial_as(&host, dxpu_udp_local(loop.fabric.udp, 0), 1, 1, epoch);
        run_until(host_is_up);
        grant(&host, DXPU_EVENT_DMA_GRANT, 0, 1u << 20, DXPU_EVENT_READ | DXPU_EVENT_WRITE);
        take_declaration(); /* no completion passes it */
        set_command(&host, 0x04);
        emit_request(device(), DXPU_TLP_MWR, 0);
        run_until(some_posted);
        assert_true(peer_take(&host, DXPU_POSTED, &t) && t.type == DXPU_TLP_MWR);
        grant(&host, DXPU_EVENT_HOT_RESET, 0, 0, DXPU_EVENT_ON);
        take_declaration();
        run_until(some_polls);
        assert_false(some_posted());
        dxpu_channel_reset(&host.ch, DXPU_REASON_SHUTDOWN);
        run_until(some_polls);
    }
}

/* The control: one that declares nothing sends nothing. */
static void test_v49_device_without_values(void **state)
{
    (void)state;
    attach();
    run_until(some_polls);
    assert_false(some_posted());
}

static bool no_turn_left(void)
{
    return turns_left == 0;
}

/* What a device does in one turn has a limit, and nothing but itself has it called again. */
static void test_s161_what_is_unfinished_continues(void **state)
{
    enum { TURNS = 5000 };
    uint64_t begin_ns;
    (void)state;
    attach();
    run_until(some_polls);
    turns_left = TURNS;
    begin_ns = dxpu_udp_now_ns();
    poke(&host);
    run_until(no_turn_left);
    assert_true(dxpu_udp_now_ns() - begin_ns < 2000000000u); /* 5 s by the ticks of this loop */
}

static bool all_events(void)
{
    return event_count == sizeof events;
}

/* A device knows power that goes off from a reset that a driver survives. */
static void test_power_is_a_reset_and_more(void **state)
{
    static const uint8_t wanted[] = { DXPU_EVENT_SLOT_POWER, DXPU_EVENT_HOT_RESET | DXPU_EVENT_ON,
                                      DXPU_EVENT_SLOT_POWER | DXPU_EVENT_ON, DXPU_EVENT_HOT_RESET };
    (void)state;
    attach();
    event_count = 0;
    grant(&host, DXPU_EVENT_SLOT_POWER, 0, 0, 0);
    grant(&host, DXPU_EVENT_SLOT_POWER, 0, 0, DXPU_EVENT_ON);
    run_until(all_events);
    assert_memory_equal(events, wanted, sizeof wanted);
}

/* ==== What waits ============================================================================== */

static unsigned sent, got[DXPU_CLASSES];

static void burst(stub *d, const dxpu_tlp *t)
{
    static const uint8_t data[LARGE_BYTES];
    dxpu_tlp cpl;
    uint16_t left = 4096;
    dxpu_tlp_completion(t, 0, DXPU_CPL_SC, &cpl);
    for (unsigned i = 0; i < BURST; i++) { /* a small one fits where a large one has to wait */
        uint16_t bytes = i % 2 ? SMALL_BYTES : LARGE_BYTES;
        cpl.byte_count = left;
        cpl.lower_addr = (uint8_t)((4096 - left) & 0x7f);
        cpl.length_dw = bytes / 4;
        cpl.payload.ptr = data;
        cpl.payload.len = bytes;
        stub_emit(d, &cpl);
        left = (uint16_t)(left - bytes);
    }
}

static dxpu_tlp page_read(uint16_t tag)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, tag);
    t.address = 0x1000;
    t.length_dw = 1024;
    t.last_be = 15;
    return t;
}

static void ask_on(peer *p, uint64_t now)
{
    dxpu_tlp t = page_read((uint16_t)(sent % 256));
    (void)now;
    while (sent < 200 && peer_submit(p, &t) == DXPU_OK)
        t = page_read((uint16_t)(++sent % 256));
}

static void ask_and_take(peer *p, uint64_t now)
{
    dxpu_tlp t;
    ask_on(p, now);
    while (peer_take(p, DXPU_COMPLETION, &t)) {
        assert_int_equal(t.tag, got[DXPU_COMPLETION] / BURST % 256); /* in order */
        assert_int_equal(t.length_dw * 4, got[DXPU_COMPLETION] % 2 ? SMALL_BYTES : LARGE_BYTES);
        got[DXPU_COMPLETION]++;
    }
}

static bool all_completions(void)
{
    return got[DXPU_COMPLETION] == 200 * BURST;
}

/* While much waits, the device is given no further request. */
static void test_waiting_is_bounded(void **state)
{
    unsigned asked;
    (void)state;
    memset(got, 0, sizeof got);
    sent = 0;
    on_read = burst;
    attach();
    host.step = ask_on;
    run_until(some_polls);
    asked = device()->requests;
    assert_in_range(device()->most, WAITING_MAX, WAITING_MAX + BURST);
    run_until(some_polls);
    assert_int_equal(device()->requests, asked);
    assert_true(asked < sent);
    host.step = ask_and_take; /* the control: then it goes on, and nothing is lost */
    run_until(all_completions);
    assert_int_equal(device()->requests, 200);
    assert_int_equal(b.slots[0].dropped, 0);
}

/* -- What the host's writes make the device send, while the host takes nothing -- */

static void write_on(peer *p, uint64_t now)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    (void)now;
    while (p->open && sent < 3 * WAITING_MOST && peer_submit(p, &t) == DXPU_OK)
        sent++;
}

static void emit_write(stub *d)
{
    emit_request(d, DXPU_TLP_MWR, 0);
}

static void emit_error(stub *d)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 0);
    t.type = DXPU_TLP_MSG;
    t.header_dw = 4;
    t.address = 0;
    t.first_be = t.last_be = 0;
    t.length_dw = 0;
    t.message_code = ERR_NONFATAL;
    stub_emit(d, &t);
}

static bool all_written(void)
{
    return device()->writes == 3 * WAITING_MOST;
}

static bool slot_is_down(void)
{
    return !b.slots[0].active;
}

/* Errors are lost, and the channel goes on; for anything else it ends. */
static void test_s111_what_writes_cause_is_bounded(void **state)
{
    (void)state;
    attach_master();
    sent = 0;
    on_write = emit_error;
    host.step = write_on;
    run_until(all_written);
    assert_non_null(b.slots[0].active);
    assert_in_range(device()->most, WAITING_MAX, WAITING_MAX);
    assert_true(b.slots[0].dropped > 0);
    sent = 0;
    on_write = emit_write;
    run_until(slot_is_down);
    assert_in_range(device()->most, WAITING_MOST - 1, WAITING_MOST);
    assert_int_equal(b.slots[0].waiting, 0);
}

static bool write_came(void)
{
    return device()->writes == 1;
}

static unsigned tried;

/* As long as there is room for more, to where nothing was granted. */
static void stray(stub *d)
{
    while (d->port->waiting(d->port->user) < 256 && tried < 100000) {
        dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
        t.address = 1u << 30;
        stub_emit(d, &t);
        tried++;
    }
}

/* A device whose writes all go nowhere is no reason to do nothing else. */
static void test_s108_what_is_refused_takes_its_turns(void **state)
{
    (void)state;
    attach_master();
    tried = 0;
    on_write = stray;
    poke(&host);
    run_until(write_came);
    assert_int_equal(tried, 256);
    assert_int_equal(dxpu_guard_refused(&b.slots[0].guard), 256);
}

/* -- A device that streams into a channel that takes nothing more -- */

enum { STREAM_MAX = 100000 };

/* device_kind.tick: as many writes as there is room for. */
static void stream(void *device, uint64_t now_ns)
{
    stub *d = device;
    (void)now_ns;
    for (; d->port->waiting(d->port->user) < 256 && tried < STREAM_MAX; tried++)
        emit_write(d);
}

static void end_closed(void)
{
    assert_int_equal(dxpu_channel_close(&host.ch, DXPU_REASON_DETACH), DXPU_OK);
    run_until(slot_is_down);
}

static void end_reset(void)
{
    dxpu_channel_reset(&host.ch, DXPU_REASON_DETACH);
    run_until(slot_is_down);
}

/* The box closes, and what waits does not leave: the channel stays in DRAINING. */
static void end_draining(void)
{
    fabric_close_all(&loop.fabric, DXPU_REASON_DETACH);
    run_until(some_polls);
    assert_non_null(b.slots[0].active);
}

/* S-161: the device's room ends with the channel's, or a turn would be as long as its stream. */
static void test_s161_a_stream_ends_with_its_channel(void **state)
{
    static void (*const ends[])(void) = { end_closed, end_reset, end_draining };
    device_kind streams = stub_kind;
    (void)state;
    streams.tick = stream;
    for (unsigned i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        b.slots[0].kind = &stub_kind;
        attach_master();
        b.slots[0].kind = &streams;
        tried = 0;
        run_until(some_polls);
        assert_in_range(tried, 256, STREAM_MAX - 1); /* the control: until it has to wait */
        tried = 0;
        ends[i]();
        assert_int_equal(tried, 0);
    }
    b.slots[0].kind = &stub_kind;
}

/* -- A close behind much that was written -- */

enum { WRITTEN = 1800 };

static void take_time(stub *d)
{
    uint64_t until_ns = dxpu_udp_now_ns() + 20000;
    (void)d;
    while (dxpu_udp_now_ns() < until_ns)
        ;
}

static void write_and_close(peer *p, uint64_t now)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    (void)now;
    while (p->open && sent < WRITTEN && peer_submit(p, &t) == DXPU_OK)
        sent++;
    if (sent == WRITTEN)
        (void)dxpu_channel_close(&p->ch, DXPU_REASON_DETACH);
}

/* D-44: with a wide window there is more in the queues than a turn takes. */
static void test_d44_all_is_taken_before_the_end(void **state)
{
    (void)state;
    host.cfg.window_frames = 256;
    host.cfg.tx.header[DXPU_POSTED] = 2048;
    host.cfg.tx.data[DXPU_POSTED] = 4096;
    attach();
    sent = 0;
    on_write = take_time;
    host.step = write_and_close;
    run_until(slot_is_down);
    assert_int_equal(device()->writes, WRITTEN);
}

static void reads_then_others(stub *d)
{
    for (unsigned i = 0; i < FLOOD; i++)
        emit_request(d, DXPU_TLP_MRD, (uint16_t)(i % 256));
    emit_completion(d, 1);
    emit_request(d, DXPU_TLP_MWR, 1);
}

static void take_others(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    got[DXPU_POSTED] += peer_take(p, DXPU_POSTED, &t);
    got[DXPU_COMPLETION] += peer_take(p, DXPU_COMPLETION, &t);
}

static void take_requests(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    while (peer_take(p, DXPU_NONPOSTED, &t)) {
        assert_int_equal(t.tag, got[DXPU_NONPOSTED] % 256);
        got[DXPU_NONPOSTED]++;
    }
}

static bool others_came(void)
{
    return got[DXPU_POSTED] == 1 && got[DXPU_COMPLETION] == 1;
}

static bool requests_came(void)
{
    return got[DXPU_NONPOSTED] == FLOOD;
}

/* A host that takes no requests gets posted TLPs and completions all the same. */
static void test_posted_and_completions_pass_requests(void **state)
{
    (void)state;
    memset(got, 0, sizeof got);
    on_write = reads_then_others;
    attach_master();
    ask_once(1);
    host.step = take_others;
    poke(&host);
    run_until(others_came);
    assert_true(b.slots[0].waiting > 0); /* the control: requests do wait */
    host.step = take_requests;
    run_until(requests_came);
    assert_int_equal(b.slots[0].dropped, 0);
}

static void writes_then_others(stub *d)
{
    for (unsigned i = 0; i < FLOOD; i++)
        emit_request(d, DXPU_TLP_MWR, (uint16_t)i);
    emit_completion(d, 1);
    emit_request(d, DXPU_TLP_MRD, 1);
    emit_request(d, DXPU_TLP_MWR, FLOOD);
}

/* Everything, the younger classes first whenever they may. */
static void take_all(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    for (;;) {
        if (peer_take(p, DXPU_COMPLETION, &t) || peer_take(p, DXPU_NONPOSTED, &t)) {
            assert_true(got[DXPU_POSTED] >= FLOOD);
            got[dxpu_tlp_class(&t)]++;
        } else if (peer_take(p, DXPU_POSTED, &t)) {
            assert_int_equal(t.address, 0x1000u + 4 * got[DXPU_POSTED]);
            got[DXPU_POSTED]++;
        } else {
            return;
        }
    }
}

static bool all_came(void)
{
    return got[DXPU_POSTED] == FLOOD + 1 && got[DXPU_COMPLETION] == 1 && got[DXPU_NONPOSTED] == 1;
}

static void test_nothing_passes_older_posted(void **state)
{
    (void)state;
    memset(got, 0, sizeof got);
    on_write = writes_then_others;
    attach_master();
    ask_once(1);
    poke(&host);
    run_until(some_polls);
    assert_true(b.slots[0].waiting > 2);
    host.step = take_all;
    run_until(all_came);
}

static void flood(stub *d)
{
    for (unsigned i = 0; i < FLOOD; i++)
        emit_request(d, DXPU_TLP_MWR, (uint16_t)i);
}

static void answer(stub *d, const dxpu_tlp *t)
{
    emit_completion(d, t->tag);
}

static bool second_is_up(void)
{
    return dxpu_channel_status(&second.ch).state == DXPU_STATE_UP && b.slots[0].active;
}

static bool one_completion(void)
{
    return got[DXPU_COMPLETION] == 1;
}

static void take_and_count(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    got[DXPU_POSTED] += peer_take(p, DXPU_POSTED, &t);
    got[DXPU_COMPLETION] += peer_take(p, DXPU_COMPLETION, &t);
}

static void take_posted(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    got[DXPU_POSTED] += peer_take(p, DXPU_POSTED, &t);
}

/* S-168: without memory what waits is in the reserve, repeatedly; meanwhile the device is
   asked nothing. */
static void test_s168_the_reserve_is_enough(void **state)
{
    (void)state;
    memset(got, 0, sizeof got);
    on_write = flood;
    attach_master();
    no_memory_left = true;
    for (unsigned round = 1; round <= 4; round++) {
        host.step = NULL;
        poke(&host);
        run_until(some_polls);
        assert_in_range(b.slots[0].in_reserve, 1, RESERVE_TLPS);
        assert_int_equal(b.slots[0].port.waiting(&b.slots[0]), WAITING_MAX);
        host.step = take_posted;
        while (got[DXPU_POSTED] < round * FLOOD)
            run_until(some_polls);
        assert_int_equal(b.slots[0].in_reserve, 0);
    }
    no_memory_left = false;
    assert_true(b.slots[0].reserved > RESERVE_TLPS); /* its places were used again */
    assert_int_equal(b.slots[0].dropped, 0);
}

static bool host_is_over(void)
{
    return dxpu_channel_status(&host.ch).state >= DXPU_STATE_CLOSED;
}

/* S-168: more than the reserve ends the slot's channel, and the box goes on. */
static void test_s168_beyond_it_one_channel_ends(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 5);
    (void)state;
    memset(got, 0, sizeof got);
    on_write = flood;
    on_read = answer;
    attach_master();
    no_memory_left = true;
    for (unsigned i = 0; i < 4; i++)
        poke(&host);
    run_until(host_is_over);
    assert_int_equal(dxpu_channel_status(&host.ch).reason, DXPU_REASON_BUSY);
    no_memory_left = false;
    peer_dial(&second, dxpu_udp_local(loop.fabric.udp, 0), 1);
    run_until(second_is_up);
    assert_int_equal(b.slots[0].in_reserve, 0);
    second.step = take_and_count;
    assert_int_equal(peer_submit(&second, &t), DXPU_OK);
    run_until(one_completion);
}

static bool reset_twice(void)
{
    return device()->resets == 2;
}

/* What waits for one incarnation never reaches the next one. */
static void test_next_incarnation_gets_nothing_of_the_last(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 5);
    (void)state;
    memset(got, 0, sizeof got);
    on_write = flood;
    on_read = answer;
    attach_master();
    poke(&host);
    run_until(some_polls);
    assert_true(b.slots[0].waiting > 0);
    peer_dial(&second, dxpu_udp_local(loop.fabric.udp, 0), 1);
    run_until(second_is_up);
    run_until(reset_twice); /* the box is up when the second's first sequenced frame has arrived */
    second.step = take_and_count;
    assert_int_equal(peer_submit(&second, &t), DXPU_OK);
    run_until(one_completion); /* it would come behind posted TLPs */
    assert_int_equal(got[DXPU_POSTED], 0);
    assert_true(b.slots[0].dropped > 0);
    run_until(some_polls);
    assert_int_equal(dxpu_channel_status(&host.ch).error, DXPU_E_RESET);
    assert_int_equal(dxpu_channel_status(&host.ch).reason, DXPU_REASON_REPLACED);
}

/* S-161: a device that takes long for each TLP has a few of them in a turn, others have all. */
static unsigned most_in_turn, in_turn;

static void begin_turn(void *device, uint64_t now_ns)
{
    (void)device;
    (void)now_ns;
    in_turn = 0;
}

static void take_long(stub *d)
{
    uint64_t end = dxpu_udp_now_ns() + TURN_NS_MAX;
    (void)d;
    in_turn++;
    most_in_turn = in_turn > most_in_turn ? in_turn : most_in_turn;
    while (d->slow && dxpu_udp_now_ns() < end)
        continue;
}

static bool all_were_written(void)
{
    return device()->writes == BURST;
}

static void test_s161_a_turn_ends_by_time(void **state)
{
    dxpu_tlp t = peer_request(DXPU_TLP_MWR, 0);
    device_kind timed = stub_kind;
    (void)state;
    timed.tick = begin_turn;
    b.slots[0].kind = &timed;
    on_write = take_long;
    attach();
    for (unsigned slow = 0; slow < 2; slow++) {
        device()->slow = slow;
        device()->writes = most_in_turn = 0;
        for (unsigned i = 0; i < BURST; i++)
            assert_int_equal(peer_submit(&host, &t), DXPU_OK);
        run_until(all_were_written);
        if (slow)
            assert_in_range(most_in_turn, 1, 4);
        else
            assert_true(most_in_turn > 4); /* the control */
    }
    b.slots[0].kind = &stub_kind;
}

/* S-161: all turns together are over long before a channel has to be heard again. */
static void test_s161_turns_and_the_hold(void **state)
{
    static const unsigned rows[][2] = { { 1, 1000 }, { 1, 100 }, { 64, 1000 }, { 512, 1000 } };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        box all = { .count = rows[i][0], .shard_count = 1 };
        shard sh = { .box = &all };
        sh.fabric.base.hold_ms = rows[i][1];
        assert_true(turn_ns(&sh) * all.count <= rows[i][1] * 1000000ull / 8);
        assert_in_range(turn_ns(&sh), TURN_NS_MIN, TURN_NS_MAX);
    }
}

/* ==== What a device may send ================================================================== */

static dxpu_tlp own(uint8_t type, uint16_t tag, uint16_t requester, uint32_t address)
{
    dxpu_tlp t = peer_request(type, tag);
    t.requester = requester;
    t.address = address;
    return t;
}

/* Nine that are not to leave, of which four wait for an answer, and two that are. */
static void hostile(stub *d)
{
    const dxpu_tlp list[] = {
        own(DXPU_TLP_MRD, 1, 0, 0x0ffc),      own(DXPU_TLP_MWR, 0, 0, 0x2000),
        own(DXPU_TLP_MRD, 2, 0x0100, 0x1000), own(DXPU_TLP_MWR, 0, 0x0100, 0x1000),
        own(DXPU_TLP_MRD, 3, 0, 0x3000),      own(DXPU_TLP_MWR, 0, 0, 0x3000),
        own(DXPU_TLP_IORD, 4, 0, 0x1000),     own(DXPU_TLP_MWR, 0, 0, 0x1004),
        own(DXPU_TLP_MRD, 5, 0, 0x1008),
    };
    for (unsigned i = 0; i < sizeof list / sizeof list[0]; i++)
        stub_emit(d, &list[i]);
    emit_completion(d, 77); /* unexpected */
    d->port->emit(d->port->user, (dxpu_bytes){ (const uint8_t *)"not a TLP", 9 });
}

static void take_requests_of_all(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        if (!peer_take(p, cls, &t))
            continue;
        got[cls]++;
        assert_int_equal(t.requester, 0);
        assert_in_range(t.address, 0x1000, 0x1fff);
    }
}

static void test_s108_a_hostile_device_is_not_let_out(void **state)
{
    dxpu_control_slot shown = { 0 };
    const dxpu_guard *g = &b.slots[0].guard;
    (void)state;
    memset(got, 0, sizeof got);
    on_write = hostile;
    attach();
    grant(&host, DXPU_EVENT_DMA_GRANT, 0x1000, 0x1000, DXPU_EVENT_READ | DXPU_EVENT_WRITE);
    grant(&host, DXPU_EVENT_DMA_GRANT, 0x3000, 0x1000, DXPU_EVENT_READ | DXPU_EVENT_WRITE);
    grant(&host, DXPU_EVENT_DMA_REVOKE, 0x3000, 0x1000, DXPU_EVENT_READ | DXPU_EVENT_WRITE);
    set_command(&host, 0x04);
    slots_describe(&b, 1, &shown);
    assert_int_equal(shown.note[0], 0);
    host.step = take_requests_of_all;
    poke(&host);
    run_until(some_polls);
    assert_int_equal(got[DXPU_POSTED], 1);
    assert_int_equal(got[DXPU_NONPOSTED], 1);
    assert_int_equal(got[DXPU_COMPLETION], 0);
    assert_int_equal(device()->refusals, 4);
    assert_int_equal(g->refused[DXPU_GUARD_window], 4);
    assert_int_equal(g->refused[DXPU_GUARD_requester], 2);
    assert_int_equal(g->refused[DXPU_GUARD_kind], 1);
    assert_int_equal(g->refused[DXPU_GUARD_completion], 1);
    assert_int_equal(g->refused[DXPU_GUARD_malformed], 1);
    assert_int_equal(b.slots[0].alarmed, 1); /* the epoch */
    slots_describe(&b, 1, &shown);
    assert_string_equal(shown.note, "9 TLPs of the device refused");
    host.step = NULL;
    set_command(&host, 0);
    host.step = take_requests_of_all;
    poke(&host); /* and nothing at all without Bus Master Enable */
    run_until(some_polls);
    assert_int_equal(got[DXPU_POSTED] + got[DXPU_NONPOSTED], 2);
    assert_int_equal(g->refused[DXPU_GUARD_master], 6);
}

/* -- What waits when the right to send it goes away -- */

enum { REVOKED, NO_MASTER, RESET_AGAIN, NOTHING };

static void flood_and_read(stub *d)
{
    flood(d);
    emit_request(d, DXPU_TLP_MRD, 7);
}

static void take_and_count_all(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    while (peer_take(p, DXPU_POSTED, &t))
        got[DXPU_POSTED]++;
    (void)peer_take(p, DXPU_COMPLETION, &t);
    (void)peer_take(p, DXPU_NONPOSTED, &t);
}

static bool nothing_waits(void)
{
    return b.slots[0].waiting == 0 && peer_polls >= 300;
}

/* Returns how many of FLOOD writes reach the host, which takes none before `how`. */
static unsigned came_after(unsigned how)
{
    memset(got, 0, sizeof got);
    on_write = flood_and_read;
    attach_master();
    poke(&host);
    run_until(some_polls);
    assert_true(b.slots[0].waiting > 1);
    if (how == REVOKED)
        grant(&host, DXPU_EVENT_DMA_REVOKE, 0, 1u << 20, DXPU_EVENT_READ | DXPU_EVENT_WRITE);
    if (how == NO_MASTER)
        send_command(&host, 0);
    if (how == RESET_AGAIN)
        grant(&host, DXPU_EVENT_HOT_RESET, 0, 0, DXPU_EVENT_ON);
    run_until(some_polls);
    host.step = take_and_count_all;
    run_until(nothing_waits);
    return got[DXPU_POSTED];
}

static void test_s175_waiting_for_a_window_that_goes(void **state)
{
    (void)state;
    assert_in_range(came_after(REVOKED), 1, FLOOD - 1); /* those on their way */
    assert_true(b.slots[0].guard.refused[DXPU_GUARD_window] > 1);
    assert_int_equal(device()->refusals, 1); /* its read is answered */
}

static void test_s175_waiting_for_a_master_that_goes(void **state)
{
    (void)state;
    assert_in_range(came_after(NO_MASTER), 0, FLOOD - 1);
    assert_true(b.slots[0].guard.refused[DXPU_GUARD_master] > 1);
    assert_int_equal(device()->refusals, 1);
}

static void test_s175_waiting_for_a_device_that_is_reset(void **state)
{
    (void)state;
    assert_in_range(came_after(RESET_AGAIN), 1, FLOOD - 1);
    assert_true(b.slots[0].dropped > 1);
    assert_int_equal(device()->refusals, 0); /* it does not know of it any more */
    assert_int_equal(dxpu_guard_refused(&b.slots[0].guard), 0);
}

static void test_s175_control_nothing_goes(void **state)
{
    (void)state;
    assert_int_equal(came_after(NOTHING), FLOOD);
    assert_int_equal(dxpu_guard_refused(&b.slots[0].guard), 0);
}

static void ask_for_ever(stub *d)
{
    for (unsigned i = 0; i < 4 * SLOT_ANSWERS; i++)
        emit_request(d, DXPU_TLP_MRD, (uint16_t)(i % 256));
}

/* One that asks for more than it has tags does not fill the box's memory. */
static void test_s108_answers_are_bounded(void **state)
{
    (void)state;
    on_write = ask_for_ever;
    attach();
    poke(&host);
    run_until(some_polls);
    assert_int_equal(device()->refusals, SLOT_ANSWERS);
    assert_int_equal(b.slots[0].dropped, 3 * SLOT_ANSWERS);
    assert_int_equal(dxpu_guard_refused(&b.slots[0].guard), 4 * SLOT_ANSWERS);
}

/* The channel's hold is what ends a request of a device. */
static void test_s110_no_timer_of_a_device_runs_out(void **state)
{
    (void)state;
    assert_true(given_timeout_ns == DXPU_NEVER);
}

static void take_in_order(peer *p, uint64_t now)
{
    dxpu_tlp t;
    (void)now;
    while (peer_take(p, DXPU_POSTED, &t)) {
        assert_int_equal(t.address, 0x1000u + 4 * got[DXPU_POSTED]);
        got[DXPU_POSTED]++;
    }
}

static bool some_came(void)
{
    return got[DXPU_POSTED] > 0;
}

static bool flood_came(void)
{
    return got[DXPU_POSTED] == FLOOD;
}

/* Slower, and all of it, in order. */
static void test_s111_a_limit_holds_back_and_loses_nothing(void **state)
{
    (void)state;
    memset(got, 0, sizeof got);
    on_write = flood;
    attach_master();
    b.limit_tlps = 1000;
    limit_init(&b.slots[0].limit, b.limit_tlps, 0, dxpu_udp_now_ns());
    assert_true(slots_next_ns(&loop) == DXPU_NEVER);
    host.step = take_in_order;
    poke(&host);
    run_until(some_came);
    assert_true(b.slots[0].waiting > 0);
    assert_true(slots_next_ns(&loop) != DXPU_NEVER); /* the loop is woken for the rest */
    run_until(flood_came);
    assert_int_equal(b.slots[0].dropped, 0);
    assert_true(b.slots[0].waited >= FLOOD / 2);
}

/* ==== Opening, closing, paths ================================================================= */

static bool opens_came(void)
{
    return loop.fabric.count.opens_accepted == 2 * CAPACITY;
}

/* Opens that are not continued do not keep their place. */
static void test_half_open_channels_make_room(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * CAPACITY; i++) {
        uint8_t frame[2048], path;
        int n;
        peer_dial(&second, dxpu_udp_local(loop.fabric.udp, 0), 1);
        n = dxpu_channel_emit(&second.ch, dxpu_udp_now_ns(), frame, sizeof frame, &path);
        assert_true(n > 0);
        peer_send(&second, second.fd, frame, (size_t)n);
    }
    second.open = false;
    run_until(opens_came);
    assert_int_equal(loop.fabric.free_count, 0); /* the control: the table is full */
    attach();
    assert_int_equal(loop.fabric.count.opens_refused, 0);
}

static bool box_has_closed(void)
{
    return loop.fabric.count.ended_close == 1;
}

static bool host_has_closed(void)
{
    return dxpu_channel_status(&host.ch).state >= DXPU_STATE_CLOSED;
}

/* The answer to a close may be lost; its opener repeats it. */
static void test_close_is_answered_again(void **state)
{
    (void)state;
    attach();
    host.deaf = true;
    assert_int_equal(dxpu_channel_close(&host.ch, DXPU_REASON_DETACH), DXPU_OK);
    run_until(box_has_closed);
    run_until(some_polls);
    assert_false(host_has_closed()); /* the control */
    host.deaf = false;
    run_until(host_has_closed);
    assert_int_equal(dxpu_channel_status(&host.ch).error, DXPU_E_CLOSED);
    assert_int_equal(loop.fabric.count.unknown_channel, 0);
}

static fabric_channel *only_channel(void)
{
    for (unsigned i = 0; i < CAPACITY; i++) {
        if (loop.fabric.channels[i])
            return loop.fabric.channels[i];
    }
    return NULL;
}

static bool bad_frame_came(void)
{
    return only_channel()->ch.count.rx_crc == 1;
}

/* Only an authentic frame sets where a path leads. */
static void test_path_is_learnt_from_authentic_frames(void **state)
{
    uint8_t frame[2048], path;
    uint32_t crc;
    int n, other = peer_socket();
    (void)state;
    attach();
    run_until(some_polls); /* all acknowledged: the next frame is the write's */
    host.mute = true;
    poke(&host);
    n = dxpu_channel_emit(&host.ch, dxpu_udp_now_ns(), frame, sizeof frame, &path);
    assert_true(n > 0);
    frame[DXPU_FRAME_PATH] = 1;
    crc = dxpu_crc32(0, frame, (size_t)n - 4) ^ 1;
    dxpu_put_be32(frame + n - 4, crc);
    peer_send(&host, other, frame, (size_t)n);
    run_until(bad_frame_came);
    assert_false(only_channel()->paths.path[1].known);
    frame[n - 1] ^= 1;
    peer_send(&host, other, frame, (size_t)n); /* the control */
    run_until(write_came);
    assert_true(only_channel()->paths.path[1].known);
    close(other);
}

/* ==== What waits for the disk: the test decides when it answers (S-165) ======================= */

static job *on_its_way, *over;
static unsigned writes; /* begun */

static void disk_submit(void *user, job *j)
{
    (void)user;
    assert_null(on_its_way);
    on_its_way = j;
    writes++;
}

/* The disk answers. */
static void disk_answers(void)
{
    job *j = on_its_way;
    if (!j)
        return;
    on_its_way = NULL;
    j->run(j);
    over = j;
}

static job *disk_reap(void *user)
{
    job *j = over;
    (void)user;
    over = NULL;
    return j;
}

static void disk_settle(void *user)
{
    (void)user;
    disk_answers();
}

static const jobs disk = { NULL, disk_submit, disk_reap, NULL, disk_settle };

static int setup_state(void **state)
{
    strcpy(state_dir, "/tmp/api_slots.XXXXXX");
    assert_non_null(mkdtemp(state_dir));
    snprintf(state_at, sizeof state_at, "%s/state", state_dir);
    on_its_way = over = NULL;
    writes = 0;
    assert_int_equal(setup(state), 0);
    state_serve(b.state, 0, &disk, written, &loop);
    return 0;
}

static int teardown_state(void **state)
{
    char path[64];
    assert_int_equal(teardown(state), 0);
    assert_int_equal(unlink(state_at), 0);
    snprintf(path, sizeof path, "%s.lock", state_at);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(state_dir), 0);
    *state_at = '\0';
    return 0;
}

/* The epoch of slot 1 in the file. */
static unsigned epoch_on_disk(void)
{
    unsigned number = 0, epoch = 0;
    FILE *f = fopen(state_at, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%u %u", &number, &epoch), 2);
    assert_int_equal(number, 1);
    fclose(f);
    return epoch;
}

static unsigned epoch_told(void)
{
    dxpu_control_slot s;
    memset(&s, 0, sizeof s);
    slots_describe(&b, 1, &s);
    return (unsigned)s.epoch_seen;
}

static bool a_write_waits(void)
{
    return on_its_way != NULL;
}

static bool first_is_in(void)
{
    return b.slots[0].active && b.slots[0].active->ch.cfg.remote.node == 1;
}

static bool second_is_in(void)
{
    return b.slots[0].active && b.slots[0].active->ch.cfg.remote.node == 2;
}

static bool second_is_over(void)
{
    return dxpu_channel_status(&second.ch).state == DXPU_STATE_FAILED;
}

static bool one_is_over(void)
{
    return second_is_over() || host_has_closed();
}

static void dial(peer *p, uint32_t node, uint64_t epoch)
{
    peer_dial_as(p, dxpu_udp_local(loop.fabric.udp, 0), 1, node, epoch);
}

/* Node 1 has the slot, and that is on disk. */
static void first_gets_in(void)
{
    dial(&host, 1, 1);
    run_until(a_write_waits);
    disk_answers();
    run_until(first_is_in);
}

/* The disk has no room from now on, or again. */
static void be_full(bool full)
{
    char path[64];
    snprintf(path, sizeof path, "%s.new", state_at);
    assert_int_equal(full ? mkdir(path, 0700) : rmdir(path), 0);
}

/* Nothing is granted, reported, or given to the device before. */
static void test_s165_an_open_waits_for_its_line(void **state)
{
    (void)state;
    dial(&host, 1, 1);
    run_until(a_write_waits);
    poke(&host);
    run_until(some_polls);
    assert_int_equal(dxpu_channel_status(&host.ch).state, DXPU_STATE_UP);
    assert_null(b.slots[0].active);
    assert_int_equal(device()->writes, 0);
    assert_int_equal(epoch_told(), 0);
    assert_int_equal(epoch_on_disk(), 0);
    disk_answers();
    run_until(write_came); /* what came meanwhile is there */
    assert_true(first_is_in());
    assert_int_equal(epoch_told(), 1);
    assert_int_equal(epoch_on_disk(), 1);
    dial(&second, 1, 1); /* another incarnation of the same lease needs no line */
    run_until(reset_twice);
    assert_int_equal(writes, 1);
    assert_int_equal(dxpu_channel_status(&second.ch).state, DXPU_STATE_UP);
}

/* Who has the slot keeps it until the next lease stands; then it is the next one's. */
static void test_s165_the_older_lease_continues(void **state)
{
    (void)state;
    on_read = answer;
    first_gets_in();
    dial(&second, 2, 2);
    run_until(a_write_waits);
    assert_true(first_is_in());
    host.step = take_and_count;
    memset(got, 0, sizeof got);
    ask_once(3);
    run_until(one_completion);
    assert_int_equal(epoch_told(), 1);
    disk_answers();
    run_until(second_is_in);
    run_until(some_polls);
    assert_int_equal(dxpu_channel_status(&host.ch).reason, DXPU_REASON_REPLACED);
    assert_int_equal(epoch_on_disk(), 2);
}

/* A full disk: who came is refused, as if it had not come, and who has the slot keeps it. */
static void test_s165_what_cannot_be_written_is_refused(void **state)
{
    (void)state;
    first_gets_in();
    be_full(true);
    dial(&second, 2, 2);
    run_until(a_write_waits);
    disk_answers();
    run_until(second_is_over);
    assert_int_equal(dxpu_channel_status(&second.ch).reason, DXPU_REASON_NO_SLOT);
    assert_true(first_is_in());
    assert_int_equal(epoch_told(), 1);
    assert_int_equal(epoch_on_disk(), 1);
    be_full(false);
    second.open = false;
    dial(&second, 2, 2); /* the control */
    run_until(a_write_waits);
    disk_answers();
    run_until(second_is_in);
    assert_int_equal(epoch_on_disk(), 2);
}

/* Whether the lease that is being written stands is not known: others ask again. */
static void test_s165_others_are_asked_to_retry(void **state)
{
    (void)state;
    dial(&host, 1, 2);
    run_until(a_write_waits);
    dial(&second, 2, 3);
    run_until(second_is_over);
    assert_int_equal(dxpu_channel_status(&second.ch).reason, DXPU_REASON_BUSY);
    dial(&second, 1, 2); /* its own host as well, begun again */
    run_until(second_is_over);
    assert_int_equal(dxpu_channel_status(&second.ch).reason, DXPU_REASON_BUSY);
    disk_answers();
    run_until(first_is_in);
    assert_int_equal(writes, 1);
    dial(&second, 2, 3); /* the control */
    run_until(a_write_waits);
    disk_answers();
    run_until(second_is_in);
    dial(&host, 1, 2);
    run_until(host_has_closed);
    assert_int_equal(dxpu_channel_status(&host.ch).reason, DXPU_REASON_EPOCH);
}

/* Both came up before either was known. */
static void test_s165_two_at_once(void **state)
{
    (void)state;
    dial(&host, 1, 2);
    dial(&second, 2, 2);
    run_until(a_write_waits);
    run_until(one_is_over);
    disk_answers();
    run_until(some_polls);
    assert_true(first_is_in() != second_is_in());
    assert_int_equal(dxpu_channel_status(first_is_in() ? &second.ch : &host.ch).reason,
                     DXPU_REASON_BUSY);
}

/* D-44: what was accepted before the close is the device's, also when that came first. */
static void test_s165_what_closed_gracefully_is_taken(void **state)
{
    (void)state;
    dial(&host, 1, 1);
    run_until(a_write_waits);
    poke(&host);
    run_until(some_polls);
    assert_int_equal(dxpu_channel_close(&host.ch, DXPU_REASON_SHUTDOWN), DXPU_OK);
    run_until(host_has_closed);
    assert_int_equal(dxpu_channel_status(&host.ch).error, DXPU_E_CLOSED);
    assert_int_equal(device()->writes, 0);
    disk_answers();
    run_until(write_came);
    run_until(some_polls);
    assert_null(b.slots[0].active);
    assert_false(b.entries[0].used); /* given back */
    assert_int_equal(epoch_told(), 1);
}

/* And nothing of one that was cut off, whose key may not have the slot any more. */
static void test_s165_what_was_cut_off_is_not(void **state)
{
    (void)state;
    on_read = answer;
    first_gets_in();
    dial(&second, 2, 2);
    run_until(a_write_waits);
    poke(&second);
    run_until(some_polls);
    dxpu_channel_reset(&b.slots[0].opening.channel->ch, DXPU_REASON_DETACH); /* as for a key */
    run_until(second_is_over);
    assert_true(first_is_in());
    disk_answers();
    run_until(host_has_closed);
    run_until(some_polls);
    assert_int_equal(device()->writes, 0);
    assert_null(b.slots[0].active); /* the older one's epoch is over */
    assert_int_equal(b.slots[0].incarnations, 1);
    assert_int_equal(epoch_told(), 2);
    assert_int_equal(epoch_on_disk(), 2);
}

/* It closed gracefully, but its key lost the slot before the disk answered. */
static void test_s165_what_lost_its_key_is_not(void **state)
{
    keys_settings set;
    bool wrong = false;
    keys *plain = b.keys;
    (void)state;
    memset(&set, 0, sizeof set);
    dial(&host, 1, 1);
    run_until(a_write_waits);
    poke(&host);
    run_until(some_polls);
    assert_int_equal(dxpu_channel_close(&host.ch, DXPU_REASON_SHUTDOWN), DXPU_OK);
    run_until(host_has_closed);
    b.keys = keys_open(&set, &wrong); /* from now on no host without a key */
    assert_non_null(b.keys);
    disk_answers();
    run_until(some_polls);
    assert_int_equal(device()->writes, 0);
    assert_int_equal(b.slots[0].incarnations, 0);
    assert_int_equal(epoch_told(), 1);
    keys_close(b.keys);
    b.keys = plain;
}

/* The box ends: what is on its way is written. */
static void test_s165_the_end_waits_for_the_write(void **state)
{
    (void)state;
    dial(&host, 1, 7);
    run_until(a_write_waits);
    assert_int_equal(epoch_on_disk(), 0);
    state_close(b.state);
    b.state = NULL;
    assert_int_equal(epoch_on_disk(), 7);
}

/* A layout goes with its disks, whichever slot they are in, and is found where it was kept once. */
static void test_s163_the_layout_of_disks(void **state)
{
    char folder[] = "/tmp/api_slots.XXXXXX", base[64], before[96], path[128], other[128];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(base, sizeof base, "%s/state", folder);
    assert_true(block_store_disks("/dev/null") == 0 && block_store_disks(base) == 0);
    assert_true(layout_of_disks(base, 2, 0, before, sizeof before) > 0);
    assert_non_null(strstr(before, ".slot2.layout"));
    FILE *f = fopen(before, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_true(layout_of_disks(base, 2, 7, path, sizeof path) > 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(access(before, F_OK), -1);
    assert_true(layout_of_disks(base, 1, 7, other, sizeof other) > 0);
    assert_string_equal(other, path);
    assert_true(layout_of_disks(base, 2, 8, other, sizeof other) > 0);
    assert_string_not_equal(other, path);
    assert_int_equal(unlink(path) + rmdir(folder), 0);
}

/* What a manager hears of a device whose server is started again: only a long absence. */
static void test_s242_a_short_absence_changes_nothing(void **state)
{
    dxpu_control_device d = { .number = 1 };
    slot *s = &b.slots[0];
    (void)state;
    s->ids.vendor = 0x1af4;
    leases_device(&b, 1, &d);
    assert_int_equal(d.health, DXPU_CONTROL_HEALTH_GOOD);
    device_present(s, false);
    leases_device(&b, 1, &d);
    assert_int_equal(d.health, DXPU_CONTROL_HEALTH_GOOD);
    assert_int_equal(d.vendor, 0x1af4);
    assert_true(evtimer_pending(s->waits, NULL));
    on_missing(-1, 0, s);
    leases_device(&b, 1, &d);
    assert_int_equal(d.health, DXPU_CONTROL_HEALTH_NONE);
    device_present(s, true);
    leases_device(&b, 1, &d);
    assert_int_equal(d.health, DXPU_CONTROL_HEALTH_GOOD);
    assert_false(evtimer_pending(s->waits, NULL));
    s->ids.vendor = 0; /* nothing is known of it before it was there */
    device_present(s, false);
    leases_device(&b, 1, &d);
    assert_int_equal(d.health, DXPU_CONTROL_HEALTH_NONE);
    s->broken = true;
    leases_device(&b, 1, &d);
    assert_int_equal(d.health, DXPU_CONTROL_HEALTH_BROKEN);
}

int main(void)
{
#define WITH_STATE(name) cmocka_unit_test_setup_teardown(name, setup_state, teardown_state)
#define CASE(name)       cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s163_the_layout_of_disks),
        CASE(test_v49_declaration_is_the_first),
        CASE(test_v49_device_without_values),
        CASE(test_power_is_a_reset_and_more),
        CASE(test_s161_what_is_unfinished_continues),
        CASE(test_waiting_is_bounded),
        CASE(test_s242_a_short_absence_changes_nothing),
        CASE(test_s111_what_writes_cause_is_bounded),
        CASE(test_s108_what_is_refused_takes_its_turns),
        cmocka_unit_test_setup_teardown(test_d44_all_is_taken_before_the_end, setup_wide, teardown),
        CASE(test_posted_and_completions_pass_requests),
        CASE(test_nothing_passes_older_posted),
        CASE(test_s161_a_turn_ends_by_time),
        CASE(test_s161_turns_and_the_hold),
        CASE(test_s161_a_stream_ends_with_its_channel),
        CASE(test_next_incarnation_gets_nothing_of_the_last),
        CASE(test_s168_the_reserve_is_enough),
        CASE(test_s168_beyond_it_one_channel_ends),
        CASE(test_s108_a_hostile_device_is_not_let_out),
        CASE(test_s175_waiting_for_a_window_that_goes),
        CASE(test_s175_waiting_for_a_master_that_goes),
        CASE(test_s175_waiting_for_a_device_that_is_reset),
        CASE(test_s175_control_nothing_goes),
        CASE(test_s108_answers_are_bounded),
        CASE(test_s110_no_timer_of_a_device_runs_out),
        CASE(test_s111_a_limit_holds_back_and_loses_nothing),
        CASE(test_half_open_channels_make_room),
        CASE(test_close_is_answered_again),
        CASE(test_path_is_learnt_from_authentic_frames),
        WITH_STATE(test_s165_an_open_waits_for_its_line),
        WITH_STATE(test_s165_the_older_lease_continues),
        WITH_STATE(test_s165_what_cannot_be_written_is_refused),
        WITH_STATE(test_s165_others_are_asked_to_retry),
        WITH_STATE(test_s165_two_at_once),
        WITH_STATE(test_s165_what_closed_gracefully_is_taken),
        WITH_STATE(test_s165_what_was_cut_off_is_not),
        WITH_STATE(test_s165_what_lost_its_key_is_not),
        WITH_STATE(test_s165_the_end_waits_for_the_write),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
