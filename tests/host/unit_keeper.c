/* unit_keeper.c - what a keeper takes from a worker, and what it does when that ends or lies.
   The guest is played here, and the worker.
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "dxpu_libevent.h"
#include "fd_message.h"
#include "attachment.h"
#include "keeper_internal.h"

#include "crossing.h"
#include "queue.h"

enum { SLOTS = 2 };
static keeper the;
static keeper_slot the_slots[SLOTS];
static guest_settings guest_set;
static keeper_settings set;
static crossing worker;
static int parent; /* the parent's end */
static dxpu_tags tags[SLOTS];
static dxpu_tag_entry entries[SLOTS][SLOT_TAGS];
static bool up[SLOTS];
static unsigned reports, ups, downs, completions, silent, begun;
static uint8_t plugged, detached;
static char last_whose[SLOT_WHOSE_BYTES];

/* ==== The guest =============================================================================== */

guest *guest_open(const guest_settings *s, const slot_line *const *lines, uint64_t hold_ns)
{
    (void)s;
    (void)lines;
    (void)hold_ns;
    return (guest *)&the; /* not looked into */
}

void guest_close(guest *g)
{
    (void)g;
}

int guest_fd(const guest *g)
{
    (void)g;
    return -1;
}

int guest_process(guest *g)
{
    (void)g;
    return 0;
}

int guest_client(const guest *g, unsigned n, uint64_t *number)
{
    (void)n;
    (void)g;
    *number = 0;
    return -1;
}

unsigned guest_sockets(const guest_settings *s)
{
    (void)s;
    return 1;
}

const char *guest_socket(const guest_settings *s, unsigned n, char out[GUEST_SOCKET_BYTES])
{
    (void)n;
    (void)out;
    return s->socket;
}

void guest_tick(guest *g, uint64_t now)
{
    (void)g;
    (void)now;
}

uint64_t guest_next_ns(const guest *g)
{
    (void)g;
    return DXPU_NEVER;
}

static dxpu_p2p_place last_place;

void guest_place(guest *g, unsigned slot, const dxpu_p2p_place *place)
{
    (void)g;
    (void)slot;
    last_place = *place;
}

void guest_begin(guest *g, unsigned slot)
{
    (void)g;
    (void)slot;
    begun++;
}

void guest_up(guest *g, unsigned slot, const char *whose, uint64_t now)
{
    (void)g;
    (void)now;
    assert_false(up[slot - 1]);
    up[slot - 1] = true;
    ups++;
    memcpy(last_whose, whose, strlen(whose) + 1);
}

static unsigned works, work_left; /* calls of guest_work(); how many more say that they left some */

/* Takes all completions. */
bool guest_work(guest *g, unsigned slot, uint64_t now)
{
    const slot_line *l = &the_slots[slot - 1].line;
    dxpu_delivery d;
    (void)g;
    works++;
    while ((d = l->peek(l->user, DXPU_COMPLETION)).tlp.len) {
        completions += d.last;
        l->take(l->user, DXPU_COMPLETION, now);
    }
    return work_left && work_left--;
}

void guest_detach(guest *g, unsigned slot, uint8_t reason)
{
    (void)g;
    (void)slot;
    detached = reason;
}

plug_view guest_plug(const guest *g, unsigned slot)
{
    const plug_view v = { slot == 1 ? plugged : (uint8_t)PLUG_NONE, true, false };
    (void)g;
    return v;
}

void guest_down(guest *g, unsigned slot)
{
    dxpu_request r;
    (void)g;
    up[slot - 1] = false;
    downs++;
    while (the_slots[slot - 1].line.contain(&the_slots[slot - 1], &r))
        silent++;
}

dxpu_tags *guest_tags(guest *g, unsigned slot)
{
    (void)g;
    return &tags[slot - 1];
}

guest_view guest_look(const guest *g, unsigned slot)
{
    guest_view v = { .state = GUEST_SHOWN, .to_device = slot };
    (void)g;
    return v;
}

void guest_report(const guest *g, report *r)
{
    (void)g;
    report_number(r, "config_reads", 5);
    reports++;
}

void guest_report_slot(const guest *g, unsigned slot, report *r)
{
    (void)g;
    report_open(r, "inner");
    report_number(r, "number", slot);
    report_close(r);
}

void guest_report_server(const guest *g, report *r)
{
    (void)g;
    report_number(r, "messages", 7);
}

/* ==== The worker ============================================================================== */

static void send_record(unsigned kind, unsigned arg, unsigned slot, uint32_t life, const void *data,
                        size_t bytes)
{
    const crossing_record r = { (uint16_t)bytes, (uint8_t)kind, (uint8_t)arg, slot, life, 0 };
    assert_true(crossing_put(&worker, &r, data));
}

static void say_hello(uint32_t version)
{
    const crossing_hello h = { version, SLOTS, sizeof(crossing_record), sizeof(crossing_memory) };
    send_record(CROSSING_HELLO, 0, 0, 0, &h, sizeof h);
}

static void hear(void)
{
    while (keeper_hear_worker(&the, false))
        continue;
}

static bool was_killed(void)
{
    int fd;
    unsigned count = 1;
    for (int kind; (kind = keeper_hear(parent, &fd, &count)) > 0; count = 1) {
        if (kind == KEEPER_KILL)
            return true;
    }
    return false;
}

static void link_worker(void)
{
    crossing_fds fds, copy;
    int list[CROSSING_FDS];
    assert_int_equal(crossing_create(&fds), 0);
    copy.memory = dup(fds.memory);
    for (unsigned i = 0; i < 2; i++) {
        list[1 + i] = fds.keeper[i];
        list[3 + i] = fds.worker[i];
        copy.keeper[i] = dup(fds.keeper[i]);
        copy.worker[i] = dup(fds.worker[i]);
    }
    list[0] = fds.memory;
    crossing_close(&worker);
    assert_int_equal(crossing_open(&worker, &copy, false), 0);
    keeper_on_link(&the, list, CROSSING_FDS);
    assert_true(the.linked);
}

static int setup(void **state)
{
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    memset(&the, 0, sizeof the);
    memset(the_slots, 0, sizeof the_slots);
    guest_set.slots = SLOTS;
    guest_set.socket = "vm";
    set.guest = &guest_set;
    set.hold_ms = 1000;
    the.set = &set;
    the.parent = pair[0];
    the.plugger = -1;
    plugged = PLUG_NONE;
    detached = 0;
    the.slots = the_slots;
    parent = pair[1];
    ups = downs = completions = silent = begun = works = work_left = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        up[i] = false;
        assert_int_equal(keeper_open_slot(&the, i), 0);
        assert_int_equal(
            dxpu_tags_init(&tags[i], entries[i], SLOT_TAGS, 0, DXPU_TAGS_256, 1000000000u),
            DXPU_OK);
    }
    link_worker();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    keeper_lose_worker(&the);
    crossing_close(&worker);
    for (unsigned i = 0; i < SLOTS; i++)
        queue_free(&the_slots[i].in);
    close(the.parent);
    close(parent);
    return 0;
}

static void begin(uint32_t life)
{
    say_hello(CROSSING_VERSION);
    send_record(CROSSING_UP, 0, 1, life, "a box", 5);
    hear();
    assert_true(up[0]);
}

/* A read of the guest, which the worker finds in the ring; its tag. */
static uint16_t ask(void)
{
    uint8_t bytes[32];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.address = 0x1000;
    t.tag = (uint16_t)dxpu_tags_alloc(&tags[0]);
    assert_int_equal(dxpu_tlp_encode(&t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    assert_int_equal(the_slots[0].line.submit(&the_slots[0], tlp, dxpu_udp_now_ns(), 9), DXPU_OK);
    return t.tag;
}

/* With these bits of one byte set, too. */
static void answer_with(uint16_t tag, uint32_t life, unsigned cls, unsigned at, uint8_t bits)
{
    uint8_t bytes[32], data[4] = { 1, 2, 3, 4 };
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_CPLD;
    t.header_dw = 3;
    t.length_dw = 1;
    t.byte_count = 4;
    t.tag = tag;
    t.payload.ptr = data;
    t.payload.len = 4;
    assert_int_equal(dxpu_tlp_encode(&t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    bytes[at] |= bits;
    send_record(CROSSING_TLP, cls, 1, life, bytes, tlp.len);
}

static void answer(uint16_t tag, uint32_t life, unsigned cls)
{
    answer_with(tag, life, cls, 0, 0);
}

/* ==== Tests =================================================================================== */

static void test_s183_another_version_is_not_served(void **state)
{
    (void)state;
    say_hello(CROSSING_VERSION + 1);
    send_record(CROSSING_UP, 0, 1, 1, "a box", 5);
    hear();
    assert_true(was_killed());
    assert_int_equal(ups, 0);
    keeper_lose_worker(&the);
    link_worker();
    send_record(CROSSING_UP, 0, 1, 1, "a box", 5); /* none at all */
    hear();
    assert_true(was_killed());
    assert_int_equal(ups, 0);
    keeper_lose_worker(&the);
    link_worker();
    begin(1); /* the control */
    assert_false(was_killed());
}

static void test_v30_what_waits_is_contained_once(void **state)
{
    uint16_t first, second;
    (void)state;
    begin(1);
    first = ask();
    second = ask();
    ask();
    answer(first, 1, DXPU_COMPLETION);
    hear();
    (void)guest_work(the.guest, 1, 0);
    assert_int_equal(completions, 1);
    answer(second, 1, DXPU_COMPLETION); /* its last word, not read yet */
    keeper_lose_worker(&the);
    assert_int_equal(completions, 2);
    assert_int_equal(silent, 1);
    assert_int_equal(downs, 1);
    assert_false(up[0]);
    link_worker();
    begin(1);
    answer(second, 1, DXPU_COMPLETION); /* this one got no request */
    hear();
    (void)guest_work(the.guest, 1, 0);
    assert_int_equal(completions, 2);
    assert_int_equal(the_slots[0].unexpected, 1);
}

/* What a slot leaves for the next turn is done then, though no news comes meanwhile. */
static void test_work_that_is_left_continues(void **state)
{
    (void)state;
    begin(1);
    works = 0;
    work_left = 2;
    the.stirred = true;
    assert_true(keeper_turn(&the, 0));
    assert_int_equal(works, 1);
    assert_true(keeper_turn(&the, 0));
    assert_true(keeper_turn(&the, 0));
    assert_int_equal(works, 3);
    (void)keeper_turn(&the, 0); /* control: without news and work there is no call */
    assert_int_equal(works, 3);
}

/* What belongs to an earlier life of the line, or is of another class than it says, is dropped, and
   its credit given back. */
static void test_s181_tlps_that_do_not_belong(void **state)
{
    uint16_t tag;
    (void)state;
    begin(7);
    tag = ask();
    answer(tag, 6, DXPU_COMPLETION);
    answer(tag, 7, DXPU_POSTED);
    hear();
    (void)guest_work(the.guest, 1, 0);
    assert_int_equal(completions, 0);
    assert_false(queue_first(&the_slots[0].in, DXPU_POSTED) != NULL);
    assert_int_equal(atomic_load(&the.cross.mem->keeper.taken[0][DXPU_POSTED]), 1);
    assert_int_equal(atomic_load(&the.cross.mem->keeper.taken[0][DXPU_COMPLETION]), 1);
    answer(tag, 7, DXPU_COMPLETION); /* the control */
    hear();
    (void)guest_work(the.guest, 1, 0);
    assert_int_equal(completions, 1);
}

/* T-43: devices may set what PCIe reserves. */
static void test_v16_answers_with_reserved_bits(void **state)
{
    static const struct {
        uint8_t at, bits;
    } reserved[] = { { 1, 0x01 }, { 1, 0x02 }, { 2, 0x04 }, { 11, 0x80 } }; /* TH, LN, AT, RSVD */
    (void)state;
    begin(1);
    for (unsigned i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        answer_with(ask(), 1, DXPU_COMPLETION, reserved[i].at, reserved[i].bits);
        hear();
        (void)guest_work(the.guest, 1, 0);
        assert_int_equal(completions, i + 1);
    }
    answer_with(ask(), 1, DXPU_COMPLETION, 3, 0x02); /* control: its length is wrong, */
    answer_with(ask(), 1, DXPU_COMPLETION, 0, 0xa0); /* and so is its type */
    hear();
    (void)guest_work(the.guest, 1, 0);
    assert_int_equal(completions, sizeof reserved / sizeof reserved[0]);
}

/* V-16: what one slot's device asks of another's goes unaltered, as does its 4-DW header for an
   address below 4 GB, and a poisoned or oddly marked read. */
static void test_v16_requests_with_reserved_bits(void **state)
{
    static const uint8_t write[20] = { 0x60, 0, 0, 1, 1, 0, 0, 0xf, 0, 0, 0, 0, 0x10 },
                         read[12] = { 0x00, 0x02, 0x40, 1, 1, 0, 0, 0xf, 0x10 },
                         none[12] = { 0x00, 0, 0, 1, 1, 0, 0, 0xf0, 0x10 };
    const dxpu_bytes sent[] = { { write, sizeof write }, { read, sizeof read } },
                     broken = { none, sizeof none };
    const slot_line *l = &the_slots[0].line;
    crossing_record r;
    (void)state;
    begin(1);
    while (crossing_get(&worker, &r))
        continue;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(l->submit(l->user, sent[i], dxpu_udp_now_ns(), 0), DXPU_OK);
        assert_true(crossing_get(&worker, &r));
        assert_int_equal(r.kind, CROSSING_TLP);
        assert_int_equal(r.bytes, sent[i].len);
        assert_memory_equal(worker.payload, sent[i].ptr, r.bytes);
    }
    assert_true(l->submit(l->user, broken, dxpu_udp_now_ns(), 0) < 0); /* control */
    assert_false(crossing_get(&worker, &r));
}

static void test_s181_a_line_comes_up_once(void **state)
{
    (void)state;
    begin(1);
    send_record(CROSSING_UP, 0, 1, 2, "a box", 5);
    hear();
    assert_true(was_killed());
    assert_int_equal(ups, 1);
}

static void test_s181_slots_that_there_are_not(void **state)
{
    (void)state;
    begin(1);
    send_record(CROSSING_UP, 0, SLOTS + 1, 1, "a box", 5);
    hear();
    assert_true(was_killed());
}

static void test_s181_names_are_printable(void **state)
{
    (void)state;
    say_hello(CROSSING_VERSION);
    send_record(CROSSING_UP, 0, 1, 1, "a\033[2Jb\nc\xff", 9);
    hear();
    assert_string_equal(last_whose, "a?[2Jb?c?");
}

/* The next worker gets what the last one had attached, byte for byte; nothing that is over. */
static void test_v32_attachments_are_remembered(void **state)
{
    crossing_record r;
    uint8_t large[KEEPER_MEMORY_BYTES + 1] = { 0 };
    unsigned remembered = 0;
    (void)state;
    begin(1);
    send_record(CROSSING_BEGIN, 0, 1, 0, "first", 5);
    send_record(CROSSING_BEGIN, 0, 2, 0, "second", 6);
    send_record(CROSSING_FORGET, 0, 2, 0, NULL, 0);
    keeper_lose_worker(&the); /* it had not read that */
    assert_int_equal(begun, 2);
    link_worker();
    say_hello(CROSSING_VERSION);
    hear();
    while (crossing_get(&worker, &r) && r.kind == CROSSING_REMEMBER) {
        assert_int_equal(r.slot, 1);
        assert_int_equal(r.bytes, 5);
        assert_memory_equal(worker.payload, "first", 5);
        remembered++;
    }
    assert_int_equal(remembered, 1);
    assert_int_equal(r.kind, CROSSING_READY);
    send_record(CROSSING_BEGIN, 0, 1, 0, large, sizeof large); /* more than it keeps: nothing */
    hear();
    assert_int_equal(the_slots[0].memory_bytes, 0);
}

/* Other boxes are to know where it is; of a record that is not one, nothing. */
static void test_b10_the_place_of_an_attachment(void **state)
{
    attachment_memory m;
    (void)state;
    memset(&m, 0, sizeof m);
    m.epoch = 7;
    m.box_slot = 3;
    m.box[0].u.v4.sin_family = AF_INET;
    m.box[0].u.v4.sin_port = htons(4458);
    m.box[0].u.v4.sin_addr.s_addr = htonl(0x0a4e0102);
    memset(m.box_key, 9, sizeof m.box_key);
    begin(1);
    send_record(CROSSING_BEGIN, 0, 1, 0, &m, sizeof m);
    hear();
    assert_int_equal(last_place.slot, 1);
    assert_int_equal(last_place.epoch, 7);
    assert_int_equal(last_place.box_slot, 3);
    assert_int_equal(last_place.port, 4458);
    assert_int_equal(last_place.family, 4);
    assert_int_equal(last_place.address[0], 10);
    assert_memory_equal(last_place.key, m.box_key, sizeof m.box_key);
    m.epoch = 0;
    send_record(CROSSING_BEGIN, 0, 1, 0, &m, sizeof m);
    hear();
    assert_int_equal(last_place.slot, 0);
}

static void test_v34_worker_that_does_not_read(void **state)
{
    uint64_t now = dxpu_udp_now_ns();
    crossing_record r;
    (void)state;
    begin(1);
    while (crossing_get(&worker, &r))
        continue;
    ask();
    keeper_watch_worker(&the, now);
    keeper_watch_worker(&the, now + 999999999u);
    assert_false(was_killed());
    assert_true(crossing_get(&worker, &r)); /* it reads: another hold time */
    ask();
    keeper_watch_worker(&the, now + 1500000000u);
    keeper_watch_worker(&the, now + 2499999999u);
    assert_false(was_killed());
    keeper_watch_worker(&the, now + 2500000000u);
    assert_true(was_killed());
    assert_int_equal(silent, 2);
    assert_false(the.linked);
}

/* An idle one is not one that does not read. */
static void test_v34_idle_worker(void **state)
{
    uint64_t now = dxpu_udp_now_ns();
    crossing_record r;
    (void)state;
    begin(1);
    while (crossing_get(&worker, &r))
        continue;
    keeper_watch_worker(&the, now);
    ask();
    keeper_watch_worker(&the, now + 5000000000u); /* the first look since */
    assert_false(was_killed());
}

static void test_numbers_reach_the_worker(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    report r;
    (void)state;
    begin(1);
    send_record(CROSSING_NUMBERS, 0, 0, 0, NULL, 0);
    hear();
    assert_int_equal(atomic_load(&worker.mem->tapes), 1);
    FILE *out = open_memstream(&text, &bytes);
    report_begin(&r, out, true);
    bytes = atomic_load(&worker.mem->tape_bytes);
    report_play(&r, worker.mem->tape, bytes, "guest");
    report_play(&r, worker.mem->tape, bytes, "slot_1");
    report_play(&r, worker.mem->tape, bytes, "server");
    report_play(&r, worker.mem->tape, bytes, "nothing");
    report_end(&r);
    fclose(out);
    assert_string_equal(text, "{\"workers\":1,\"config_reads\":5,\"inner\":{\"number\":1},"
                              "\"unexpected\":0,\"messages\":7}\n");
    free(text);
}

/* A ring full of the question, also of a worker that has ended, is little work. */
static void test_numbers_are_written_once_a_turn(void **state)
{
    const crossing_record r = { 0, CROSSING_NUMBERS, 0, 0, 0, 0 };
    unsigned n = 0;
    (void)state;
    begin(1);
    reports = 0;
    while (n < 20000 && crossing_put(&worker, &r, NULL))
        n++;
    assert_int_equal(n, 20000);
    assert_true(keeper_hear_worker(&the, false));
    assert_int_equal(reports, 1);
    keeper_lose_worker(&the); /* the rest are its last words */
    assert_int_equal(reports, 1);
    assert_int_equal(downs, 1); /* it did read them */
}

/* Whatever stands on a tape, what is printed is one object. */
static void test_s181_invalid_tapes(void **state)
{
    static const char tape[] = "{ a\n{ b\"\nx 1\ny\"z 2\n}\n}\n}\n}\n{ a\nq 18446744073709551616\n"
                               "{ c\n{ d\nz 3";
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    report r;
    int depth = 0;
    (void)state;
    report_begin(&r, out, true);
    report_play(&r, tape, sizeof tape - 1, "a");
    report_end(&r);
    fclose(out);
    for (const char *c = text; *c; c++) {
        depth += *c == '{';
        depth -= *c == '}';
        assert_true(depth >= 0);
    }
    assert_int_equal(depth, 0);
    assert_null(strstr(text, "y\"z"));
    free(text);
}

/* The next message to the process that speaks QMP. */
static void said(int plugger, unsigned slot, unsigned state, bool leaving)
{
    uint8_t m[4];
    keeper_share_plugs(&the, dxpu_udp_now_ns());
    assert_int_equal(recv(plugger, m, sizeof m, MSG_DONTWAIT), 2);
    assert_int_equal(m[0], slot);
    assert_int_equal(m[1], state | 0x40 | (leaving ? 0x80 : 0));
}

static int link_plugger(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    keeper_on_plug(&the, pair, 1);
    return pair[1];
}

static void detach(unsigned reason)
{
    send_record(CROSSING_DETACH, reason, 1, 1, NULL, 0);
    hear();
}

static void test_v47_guest_releases_before_the_line_is_closed(void **state)
{
    const uint8_t first = 1, wrong = 77;
    uint8_t m[4];
    int plugger = link_plugger();
    (void)state;
    begin(1);
    plugged = PLUG_USED;
    said(plugger, 1, PLUG_USED, false);
    assert_int_equal(recv(plugger, m, sizeof m, MSG_DONTWAIT), 2); /* of slot 2 */
    keeper_share_plugs(&the, dxpu_udp_now_ns());
    assert_int_equal(recv(plugger, m, sizeof m, MSG_DONTWAIT), -1); /* nothing has changed */
    detach(DXPU_REASON_DETACH);
    said(plugger, 1, PLUG_USED, true);
    assert_int_equal(detached, 0);
    assert_true(keeper_next_leave_ns(&the) > dxpu_udp_now_ns());
    assert_int_equal(send(plugger, &wrong, 1, 0), 1);
    assert_int_equal(send(plugger, &first, 1, 0), 1);
    keeper_hear_plugger(&the);
    assert_int_equal(detached, DXPU_REASON_DETACH);
    said(plugger, 1, PLUG_USED, false);
    close(plugger);
    keeper_hear_plugger(&the);
    assert_int_equal(the.plugger, -1);
}

/* In any case, and at once where nothing can be asked. */
static void test_v47_line_is_closed_in_time(void **state)
{
    int plugger;
    (void)state;
    begin(1);
    plugged = PLUG_USED;
    detach(DXPU_REASON_DETACH); /* none speaks QMP */
    assert_int_equal(detached, DXPU_REASON_DETACH);
    plugger = link_plugger();
    detached = 0;
    detach(DXPU_REASON_SHUTDOWN);
    assert_int_equal(detached, DXPU_REASON_SHUTDOWN);
    detached = 0;
    detach(DXPU_REASON_DETACH);
    keeper_share_plugs(&the, the_slots[0].leave_ns - 1);
    assert_int_equal(detached, 0);
    keeper_share_plugs(&the, the_slots[0].leave_ns);
    assert_int_equal(detached, DXPU_REASON_DETACH);
    detached = 0;
    detach(DXPU_REASON_DETACH);
    close(plugger); /* it was killed */
    keeper_hear_plugger(&the);
    assert_int_equal(detached, DXPU_REASON_DETACH);
    for (plugged = PLUG_NONE; plugged <= PLUG_SETUP; plugged++) {
        close(link_plugger());
        detached = 0;
        detach(DXPU_REASON_DETACH); /* no guest has it */
        assert_int_equal(detached, DXPU_REASON_DETACH);
        keeper_close_plugger(&the);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_s183_another_version_is_not_served),
        CASE(test_v30_what_waits_is_contained_once),
        CASE(test_work_that_is_left_continues),
        CASE(test_s181_tlps_that_do_not_belong),
        CASE(test_v16_answers_with_reserved_bits),
        CASE(test_v16_requests_with_reserved_bits),
        CASE(test_s181_a_line_comes_up_once),
        CASE(test_s181_slots_that_there_are_not),
        CASE(test_s181_names_are_printable),
        CASE(test_v32_attachments_are_remembered),
        CASE(test_b10_the_place_of_an_attachment),
        CASE(test_v34_worker_that_does_not_read),
        CASE(test_v34_idle_worker),
        CASE(test_numbers_reach_the_worker),
        CASE(test_numbers_are_written_once_a_turn),
        CASE(test_s181_invalid_tapes),
        CASE(test_v47_guest_releases_before_the_line_is_closed),
        CASE(test_v47_line_is_closed_in_time),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
