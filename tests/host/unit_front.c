/* examples/host/source/front.c and vectors.c: which requests pass between a card and a device, also
   of a box that lies; what configuration space says of MSI-X. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "front.c" /* not linked: reaches device_request(), may_pass() and struct front */
#include "loopback.h"

static host_link host;
static front_settings settings;
static uint8_t payload[4096];

static char addresses[3][LOOPBACK_BYTES];

/* With an address in place of each @N. */
static const char *spelled(const char *text)
{
    static char out[256];
    size_t n = 0;
    for (; *text; text++) {
        const char *address = *text == '@' ? addresses[*++text - '1'] : NULL;
        n += (size_t)snprintf(out + n, sizeof out - n, address ? "%s" : "%.1s",
                              address ? address : text);
        assert_true(n < sizeof out);
    }
    return out;
}

/* A front that serves: nearly 64 KB of BAR 0, the card's at 0x90000000. */
static front *serving(const char *text)
{
    front *f;
    memset(&host, 0, sizeof host);
    memset(&settings, 0, sizeof settings);
    assert_null(front_read(&settings, spelled(text)));
    f = front_open(&host, &settings);
    assert_non_null(f);
    host.is_up = true;
    f->phase = SERVING;
    f->device.bar_bytes = 0xfff8;
    f->device.mps_bytes = 256;
    wish(f);
    assert_true(windows_copy(&f->grants.told, &f->grants.wanted));
    return f;
}

#define CARD                                                                                       \
    "rawtlp,peer=@1,bar=0x90000000,id=03:00.0,memory=0x10000+100,memory=0x20000+4K:r,"             \
    "memory=0x30000+4K:w"

static dxpu_tlp request(uint8_t type, uint64_t address, uint32_t bytes)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = address >> 32 ? 4 : 3;
    t.requester = ENUMERATE_BDF;
    t.address = address & ~(uint64_t)3;
    assert_int_equal(dxpu_be_from_range(address, bytes, &t.first_be, &t.last_be, &t.length_dw),
                     DXPU_OK);
    if (type == DXPU_TLP_MWR) {
        t.payload.ptr = payload;
        t.payload.len = t.length_dw * 4u;
    }
    return t;
}

static int asks(front *f, uint8_t type, uint64_t address, uint32_t bytes)
{
    dxpu_tlp t = request(type, address, bytes);
    return device_request(f, &t, 0);
}

static void test_n22_named_memory_alone(void **state)
{
    front *f = serving(CARD);
    (void)state;
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x10000, 4), SOURCE_TAKEN);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x10061, 3), SOURCE_TAKEN);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x10061, 4), SOURCE_REFUSED);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x10000, 100), SOURCE_TAKEN);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x10000, 101), SOURCE_REFUSED);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0xffff, 1), SOURCE_REFUSED);
    assert_int_equal(asks(f, DXPU_TLP_MRD, 0x10000, 100), SOURCE_TAKEN);
    assert_int_equal(asks(f, DXPU_TLP_MRD, 0x10000, 4096), SOURCE_REFUSED);
    assert_int_equal(asks(f, DXPU_TLP_MRD, 0x20000, 64), SOURCE_TAKEN);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x20000, 64), SOURCE_REFUSED);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x30000, 64), SOURCE_TAKEN);
    assert_int_equal(asks(f, DXPU_TLP_MRD, 0x30000, 64), SOURCE_REFUSED);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x30000, 256), SOURCE_REFUSED); /* too long for a card */
    front_close(f);
}

static void test_n22_of_the_function_alone(void **state)
{
    front *f = serving(CARD);
    dxpu_tlp t = request(DXPU_TLP_MWR, 0x10000, 4), other = t;
    (void)state;
    assert_int_equal(device_request(f, &t, 0), SOURCE_TAKEN);
    other.requester = 0x0300; /* the card's own */
    assert_int_equal(device_request(f, &other, 0), SOURCE_REFUSED);
    other = t;
    other.at = 2;
    assert_int_equal(device_request(f, &other, 0), SOURCE_REFUSED);
    other = t;
    other.ep = true;
    assert_int_equal(device_request(f, &other, 0), SOURCE_REFUSED);
    other = t;
    other.prefix_count = 1;
    assert_int_equal(device_request(f, &other, 0), SOURCE_REFUSED);
    other = t;
    other.type = DXPU_TLP_FETCHADD;
    assert_int_equal(device_request(f, &other, 0), SOURCE_REFUSED);
    f->phase = ENUMERATING;
    assert_int_equal(device_request(f, &t, 0), SOURCE_REFUSED);
    f->phase = SERVING;
    host.is_up = false;
    assert_int_equal(device_request(f, &t, 0), SOURCE_REFUSED);
    front_close(f);
}

static int signals(front *f, uint64_t address, uint32_t data)
{
    uint8_t bytes[4];
    dxpu_tlp t = request(DXPU_TLP_MWR, address, 4);
    dxpu_put_le32(bytes, data);
    t.payload.ptr = bytes;
    return device_request(f, &t, 0);
}

/* What an interrupt is the data say: at its address no others pass. */
static void test_n22_vectors_as_they_are(void **state)
{
    front *f = serving(CARD);
    dxpu_nettlp_answer a;
    dxpu_tlp part;
    (void)state;
    memset(&a, 0, sizeof a);
    a.what = DXPU_NETTLP_TABLE;
    a.table[0].address = a.table[1].address = 0xfee00000;
    a.table[2].address = 0xfee01000;
    a.table[0].data = 0x41;
    a.table[1].data = 0x42;
    a.table[2].data = 0x43;
    on_answer(f, &a);
    assert_true(windows_copy(&f->grants.told, &f->grants.wanted));
    assert_int_equal(signals(f, 0xfee00000, 0x41), SOURCE_TAKEN);
    assert_int_equal(signals(f, 0xfee00000, 0x42), SOURCE_TAKEN);
    assert_int_equal(signals(f, 0xfee01000, 0x43), SOURCE_TAKEN);
    assert_int_equal(signals(f, 0xfee00000, 0x43), SOURCE_REFUSED);
    assert_int_equal(signals(f, 0xfee00000, 0x400), SOURCE_REFUSED); /* an NMI */
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0xfee00000, 1), SOURCE_REFUSED);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0xfee00000, 8), SOURCE_REFUSED);
    part = request(DXPU_TLP_MWR, 0xfee00000, 4);
    part.first_be = 0; /* writes nothing */
    assert_int_equal(device_request(f, &part, 0), SOURCE_REFUSED);
    a.table[0].data = 0x51;
    on_answer(f, &a);
    assert_int_equal(signals(f, 0xfee00000, 0x51), SOURCE_TAKEN);
    assert_int_equal(signals(f, 0xfee00000, 0x41), SOURCE_TAKEN); /* it may be on its way */
    on_answer(f, &a);
    assert_int_equal(signals(f, 0xfee00000, 0x51), SOURCE_TAKEN);
    assert_int_equal(signals(f, 0xfee00000, 0x41), SOURCE_REFUSED);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x10000, 4), SOURCE_TAKEN);
    front_close(f);
}

/* As many as have tags; the others stay where they are, and none is lost. */
static void test_n22_reads_wait_for_tags(void **state)
{
    front *f = serving(CARD);
    unsigned taken = 0;
    (void)state;
    while (taken < 100 && asks(f, DXPU_TLP_MRD, 0x10000, 4) == SOURCE_TAKEN)
        taken++;
    assert_int_equal(taken, TAGS);
    assert_int_equal(asks(f, DXPU_TLP_MRD, 0x10000, 4), SOURCE_LATER);
    start(f, 0); /* another incarnation: their answers are waited for, and dropped */
    for (unsigned i = 0; i < TAGS; i++)
        assert_int_equal(f->fetches[i].state, FORGOTTEN);
    expire(f, dxpu_udp_now_ns() + 60000000000u);
    for (unsigned i = 0; i < TAGS; i++)
        assert_int_equal(f->fetches[i].state, FREE);
    front_close(f);
}

static bool passes(const front *f, uint8_t type, uint64_t address, uint32_t bytes)
{
    dxpu_tlp t = request(type, address, bytes);
    return may_pass(f, &t);
}

static void test_n20_within_the_bar(void **state)
{
    front *f = serving(CARD);
    (void)state;
    assert_true(passes(f, DXPU_TLP_MRD, 0x90000000, 4));
    assert_true(passes(f, DXPU_TLP_MRD, 0x9000fff4, 4));
    assert_false(passes(f, DXPU_TLP_MRD, 0x9000fff8, 4));
    assert_false(passes(f, DXPU_TLP_MRD, 0x90010000, 4));
    assert_false(passes(f, DXPU_TLP_MRD, 0x8ffffffc, 4));
    assert_false(passes(f, DXPU_TLP_MRD, 0x9000fff4, 8));
    assert_false(passes(f, DXPU_TLP_MRD, 0x190000000, 4));
    assert_true(passes(f, DXPU_TLP_MWR, 0x90000000, 256));
    assert_false(passes(f, DXPU_TLP_MWR, 0x90000000, 512)); /* than the device takes */
    assert_false(passes(f, DXPU_TLP_IORD, 0x90000000, 4));
    host.stopping = true;
    assert_false(passes(f, DXPU_TLP_MRD, 0x90000000, 4));
    front_close(f);
}

/* ==== vectors.c =============================================================================== */

static uint8_t space[256];
static unsigned writes;

/* Answer all requests from `space`.  How many there were. */
static unsigned look(vectors *v)
{
    uint8_t data[4];
    dxpu_tlp t, cpl;
    unsigned n;
    vectors_start(v, 0x8000000000u, 0x4000000000u);
    writes = 0;
    for (n = 0; n < 100 && vectors_request(v, ENUMERATE_BDF, &t, data); n++) {
        assert_true(t.register_bytes + 4 <= 256 && t.register_bytes % 4 == 0);
        memset(&cpl, 0, sizeof cpl);
        cpl.type = t.type == DXPU_TLP_CFGRD0 ? DXPU_TLP_CPLD : DXPU_TLP_CPL;
        if (t.type == DXPU_TLP_CFGRD0) {
            cpl.payload.ptr = space + t.register_bytes;
            cpl.payload.len = 4;
        }
        writes += t.type == DXPU_TLP_CFGWR0;
        vectors_answer(v, &cpl, 0);
    }
    return n;
}

static void test_n23_table_of_the_device(void **state)
{
    vectors v;
    (void)state;
    memset(space, 0, sizeof space);
    assert_int_equal(look(&v), 1); /* no capability */
    assert_int_equal(v.count, 0);
    space[0x34] = 0x40;
    dxpu_put_le32(space + 0x40, 0x00005001);
    dxpu_put_le32(space + 0x50, 0x00070011); /* 8 vectors */
    dxpu_put_le32(space + 0x54, 0x00002000); /* in BAR 0 */
    (void)look(&v);
    assert_int_equal(v.count, 8);
    assert_int_equal(v.address, 0x8000002000u);
    assert_int_equal(writes, 1);
    dxpu_put_le32(space + 0x54, 0x00000802); /* in BAR 2, which has 64 bits */
    dxpu_put_le32(space + 0x18, 4);
    (void)look(&v);
    assert_int_equal(v.address, 0x4000000800u);
    assert_int_equal(writes, 3);
    dxpu_put_le32(space + 0x18, 0); /* 32 bits */
    (void)look(&v);
    assert_int_equal(v.address, 0x80000800u);
    assert_int_equal(writes, 2);
}

static void test_n23_space_that_makes_no_sense(void **state)
{
    vectors v;
    (void)state;
    memset(space, 0, sizeof space);
    space[0x34] = 0x40;
    dxpu_put_le32(space + 0x40, 0x00004001); /* a loop */
    assert_true(look(&v) < 60);
    assert_int_equal(v.count, 0);
    for (uint32_t bar = 0; bar < 8; bar++) {
        dxpu_put_le32(space + 0x40, 0x00070011);
        dxpu_put_le32(space + 0x44, 0xfffffff8 | bar);
        dxpu_put_le32(space + 0x24, 4); /* BAR 5 cannot have 64 bits */
        (void)look(&v);
        assert_int_equal(v.count, bar == 1 || bar > 4 ? 0 : 8);
    }
    space[0x34] = 0xfc; /* the last dword: its table would be beyond */
    dxpu_put_le32(space + 0xfc, 0x00070011);
    (void)look(&v);
    assert_int_equal(v.count, 0);
}

/* ==== Sockets ================================================================================= */

#define NETTLP "nettlp,peer=@2,local=@3,memory=0x30000+4K"

/* Where the card would be, by the port of a tag of its own. */
static int open_card(unsigned tag)
{
    struct sockaddr_in a;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_port = htons((uint16_t)(DXPU_NETTLP_ADAPTER_PORT + tag));
    assert_int_equal(inet_pton(AF_INET, addresses[1], &a.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* What the card gets, one TLP.  False: nothing. */
static bool card_gets(int fd, dxpu_tlp *t)
{
    static uint8_t in[DXPU_NETTLP_DATAGRAM_MAX];
    ssize_t got = recv(fd, in, sizeof in, 0);
    dxpu_bytes tlp = { in + DXPU_NETTLP_HEAD_BYTES, 0 };
    if (got < DXPU_NETTLP_HEAD_BYTES)
        return false;
    tlp.len = (size_t)got - DXPU_NETTLP_HEAD_BYTES;
    assert_int_equal(dxpu_tlp_decode(tlp, t), DXPU_OK);
    return true;
}

static void answer(front *f, const dxpu_tlp *of, uint16_t dwords)
{
    dxpu_tlp cpl;
    f->jobs[0].user = 1u << 16;
    f->jobs[0].t = *of;
    dxpu_tlp_completion(of, ENUMERATE_BDF, DXPU_CPL_SC, &cpl);
    cpl.tc = cpl.attr = 0;
    cpl.length_dw = dwords;
    cpl.payload.ptr = payload;
    cpl.payload.len = dwords * 4u;
    completion(f, &cpl, 1u << 16, true, 0);
}

/* More on its bus is the end of the card's machine. */
static void test_n25_payload_of_the_machine(void **state)
{
    front *f = serving(NETTLP);
    dxpu_tlp read = request(DXPU_TLP_MRD, 0x90000000, 256), t;
    int card = open_card(3);
    (void)state;
    read.tag = 3;
    read.tc = 5;
    read.attr = DXPU_ATTR_RO;
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x30000, 128), SOURCE_TAKEN);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x30000, 256), SOURCE_REFUSED);
    answer(f, &read, 64);
    assert_true(card_gets(card, &t));
    assert_int_equal(t.status, DXPU_CPL_UR);
    assert_int_equal(t.payload.len, 0);
    assert_int_equal(f->jobs[0].user, 0);
    read.length_dw = 32; /* control */
    answer(f, &read, 32);
    assert_true(card_gets(card, &t));
    assert_int_equal(t.payload.len, 128);
    assert_int_equal(t.tc, 5);
    assert_int_equal(t.attr, DXPU_ATTR_RO);
    assert_false(card_gets(card, &t));
    front_close(f);
    f = serving(NETTLP ",mps=256");
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x30000, 256), SOURCE_TAKEN);
    assert_int_equal(asks(f, DXPU_TLP_MWR, 0x30000, 512), SOURCE_REFUSED);
    front_close(f);
    (void)close(card);
}

/* Requests that there is no room for hold up the end of a read, but not for ever. */
static void test_n22_reads_end_while_requests_wait(void **state)
{
    front *f = serving("nettlp,peer=@2,local=@3,memory=0x30000+4K,tags=1");
    static const uint8_t datagram[DXPU_NETTLP_HEAD_BYTES + 12];
    uint64_t now = dxpu_udp_now_ns(), ms = 1000000;
    struct sockaddr_in a;
    int card = open_card(0);
    (void)state;
    learn_id(f, 0x0300);
    assert_int_equal(asks(f, DXPU_TLP_MRD, 0x30000, 4), SOURCE_TAKEN);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_port = htons(DXPU_NETTLP_ADAPTER_PORT);
    assert_int_equal(inet_pton(AF_INET, addresses[2], &a.sin_addr), 1);
    assert_int_equal(sendto(card, datagram, sizeof datagram, 0, (struct sockaddr *)&a, sizeof a),
                     sizeof datagram);
    f->held = true;
    card_wire_work(f->wire);
    assert_true(card_wire_is_paused(f->wire));
    expire(f, now + 600 * ms);
    assert_int_equal(f->fetches[0].state, ASKED);
    expire(f, now + 1000 * ms);
    assert_int_equal(f->fetches[0].state, ASKED);
    expire(f, now + 1200 * ms);
    assert_int_equal(f->fetches[0].state, ANSWERING);
    front_close(f);
    (void)close(card);
}

/* The answers to an earlier process's reads have the same tags. */
static void test_n22_tags_rest_at_first(void **state)
{
    front *f = serving(CARD);
    uint64_t now = dxpu_udp_now_ns();
    (void)state;
    start(f, now);
    work(f, now);
    assert_int_equal(f->phase, LEARNING);
    assert_true(next_ns(f) <= now + 500000000u);
    work(f, now + 500000000u);
    assert_int_equal(f->phase, ENUMERATING);
    front_close(f);
}

/* One that is not ready, or whose answer is lost, is asked again; one that fails is said. */
static void test_n23_device_not_ready(void **state)
{
    uint64_t second = 1000000000u;
    uint8_t data[4];
    vectors v;
    dxpu_tlp t, crs, error;
    (void)state;
    memset(space, 0, sizeof space);
    space[0x34] = 0x40;
    dxpu_put_le32(space + 0x40, 0x00070011);
    vectors_start(&v, 0x8000000000u, 0x4000000000u);
    memset(&crs, 0, sizeof crs);
    crs.type = DXPU_TLP_CPL;
    crs.status = DXPU_CPL_CRS;
    error = crs;
    error.status = DXPU_CPL_UR;
    vectors_answer(&v, NULL, second);
    vectors_answer(&v, &crs, 60 * second);
    assert_true(vectors_request(&v, ENUMERATE_BDF, &t, data));
    assert_int_equal(t.register_bytes, 0x34);
    assert_null(v.why);
    vectors_answer(&v, &crs, 61 * second);
    assert_false(vectors_request(&v, ENUMERATE_BDF, &t, data));
    assert_non_null(v.why);
    vectors_start(&v, 0x8000000000u, 0x4000000000u);
    vectors_answer(&v, &error, second);
    assert_false(vectors_request(&v, ENUMERATE_BDF, &t, data));
    assert_non_null(v.why);
    (void)look(&v); /* control */
    assert_int_equal(v.count, 8);
    assert_null(v.why);
}

/* Its machine has restarted with another bus number, and the device reads all the time. */
static void test_n22_another_requester(void **state)
{
    front *f = serving(NETTLP);
    dxpu_nettlp_answer a;
    (void)state;
    memset(&a, 0, sizeof a);
    a.what = DXPU_NETTLP_DEVICE;
    a.device = 0x0300;
    on_answer(f, &a);
    assert_int_equal(asks(f, DXPU_TLP_MRD, 0x30000, 4), SOURCE_TAKEN);
    a.device = 0x0400;
    on_answer(f, &a);
    assert_int_equal(asks(f, DXPU_TLP_MRD, 0x30000, 4), SOURCE_LATER); /* none with the old one */
    expire(f, dxpu_udp_now_ns() + 60000000000u);
    assert_int_equal(asks(f, DXPU_TLP_MRD, 0x30000, 4), SOURCE_TAKEN);
    assert_int_equal(f->id, 0x0400);
    front_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_n22_named_memory_alone),
        cmocka_unit_test(test_n22_of_the_function_alone),
        cmocka_unit_test(test_n22_vectors_as_they_are),
        cmocka_unit_test(test_n22_reads_wait_for_tags),
        cmocka_unit_test(test_n20_within_the_bar),
        cmocka_unit_test(test_n25_payload_of_the_machine),
        cmocka_unit_test(test_n22_reads_end_while_requests_wait),
        cmocka_unit_test(test_n22_tags_rest_at_first),
        cmocka_unit_test(test_n22_another_requester),
        cmocka_unit_test(test_n23_device_not_ready),
        cmocka_unit_test(test_n23_table_of_the_device),
        cmocka_unit_test(test_n23_space_that_makes_no_sense),
    };
    loopback_claim(addresses, 3);
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests_name("unit_front", tests, NULL, NULL);
}
