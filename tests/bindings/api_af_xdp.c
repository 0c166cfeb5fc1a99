/* api_af_xdp.c - AF_XDP without rights: headers against known bytes, hostile packets, the filter
   SPDX-License-Identifier: MIT

   The filter's instructions are run by a small interpreter here, which also sees every load that
   would leave the packet; that the kernel takes them is for net_af_xdp.py. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "dxpu_af_xdp.h"
#include "dxpu_bytes.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { PAYLOAD = 87, FRAME_MAX = 14 + DXPU_XDP_PACKET_MAX };

/* 87 bytes 1, 2, 3 ... from port 4458 to 4459.  The IPv4 header is the example that textbooks use
   for its checksum, 0xb861; the rest was computed apart from this program, by RFC 768 and 8200. */
static const uint8_t known_4[DXPU_XDP_HEADERS_4] = {
    0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00,
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
    0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7, 0x11, 0x6a, 0x11, 0x6b, 0x00, 0x5f, 0xc2, 0xd6
};
static const uint8_t known_6[DXPU_XDP_HEADERS_6] = {
    0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x86, 0xdd, 0x60, 0x20,
    0x00, 0x00, 0x00, 0x5f, 0x11, 0x40, 0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x11, 0x6a, 0x11, 0x6b, 0x00, 0x5f, 0xe9, 0x7a
};

static dxpu_xdp_address address(int family, const char *text, unsigned port)
{
    dxpu_xdp_address a;
    memset(&a, 0, sizeof a);
    a.any.sa_family = (sa_family_t)family;
    if (family == AF_INET6) {
        assert_int_equal(inet_pton(family, text, &a.v6.sin6_addr), 1);
        a.v6.sin6_port = htons((uint16_t)port);
    } else {
        assert_int_equal(inet_pton(family, text, &a.v4.sin_addr), 1);
        a.v4.sin_port = htons((uint16_t)port);
    }
    return a;
}

/* The receiver of both known packets, at sockets 3 and 5. */
static dxpu_xdp_local locals[2];
static dxpu_xdp_receiver receiver = { locals, 2, 7, false };

static dxpu_xdp_way way_of(int family)
{
    dxpu_xdp_way w = { { 2, 0, 0, 0, 0, 1 }, { 2, 0, 0, 0, 0, 2 }, { { 0 } }, { { 0 } }, 0 };
    bool six = family == AF_INET6;
    w.from = address(family, six ? "2001:db8::1" : "192.168.0.1", 4458);
    w.to = address(family, six ? "2001:db8::2" : "192.168.0.199", 4459);
    w.ecn = six ? 2 : 0;
    locals[six].at = w.to;
    locals[six].socket = six ? 5 : 3;
    return w;
}

static int setup(void **state)
{
    (void)state;
    (void)way_of(AF_INET);
    (void)way_of(AF_INET6);
    receiver.partial_ok = false;
    return 0;
}

/* The known packet of a family; its length. */
static size_t known(int family, uint8_t *frame)
{
    size_t headers = dxpu_xdp_header_bytes(family);
    memcpy(frame, family == AF_INET6 ? known_6 : known_4, headers);
    for (unsigned i = 0; i < PAYLOAD; i++)
        frame[headers + i] = (uint8_t)(i + 1);
    return headers + PAYLOAD;
}

/* Made again after a field was changed, so that only that field is wrong.  IPv4's header only. */
static void fix_header(uint8_t *frame)
{
    uint32_t sum = 0;
    frame[24] = frame[25] = 0;
    for (unsigned i = 14; i < 34; i += 2)
        sum += dxpu_get_be16(frame + i);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16));
    dxpu_put_be16(frame + 24, sum);
}

static int parse(const uint8_t *frame, size_t len)
{
    dxpu_xdp_datagram d;
    uint8_t *copy = malloc(len ? len : 1); /* exactly as long: the sanitizer sees a byte more */
    int rc;
    assert_non_null(copy);
    memcpy(copy, frame, len);
    rc = dxpu_xdp_parse(&receiver, copy, len, &d);
    if (rc == DXPU_XDP_GOOD) {
        assert_true(d.offset <= len && d.len <= len - d.offset);
        assert_true(d.socket == 3 || d.socket == 5);
    }
    free(copy);
    return rc;
}

static void test_known_headers(void **state)
{
    (void)state;
    for (unsigned six = 0; six < 2; six++) {
        int family = six ? AF_INET6 : AF_INET;
        uint8_t want[200], frame[200];
        size_t len = known(family, want);
        dxpu_xdp_way w = way_of(family);
        dxpu_xdp_datagram d;
        memset(frame, 0xaa, sizeof frame);
        memcpy(frame + len - PAYLOAD, want + len - PAYLOAD, PAYLOAD);
        dxpu_xdp_build(frame, &w, PAYLOAD);
        assert_memory_equal(frame, want, len);
        assert_int_equal(dxpu_xdp_parse(&receiver, want, len, &d), DXPU_XDP_GOOD);
        assert_int_equal(d.offset, dxpu_xdp_header_bytes(family));
        assert_int_equal(d.len, PAYLOAD);
        assert_int_equal(d.socket, six ? 5 : 3);
        assert_memory_equal(&d.from, &w.from, six ? sizeof w.from.v6 : sizeof w.from.v4);
        assert_false(d.partial);
        assert_int_equal(d.flags, 0);
    }
}

static void test_every_length(void **state)
{
    static uint8_t frame[DXPU_XDP_HEADERS_6 + DXPU_XDP_DATAGRAM_MAX];
    (void)state;
    for (unsigned six = 0; six < 2; six++) {
        dxpu_xdp_way w = way_of(six ? AF_INET6 : AF_INET);
        size_t headers = dxpu_xdp_header_bytes(w.to.any.sa_family);
        for (size_t len = 0; len <= DXPU_XDP_DATAGRAM_MAX; len += len < 70 ? 1 : 103) {
            dxpu_xdp_datagram d;
            w.ecn = len & 3;
            for (size_t i = 0; i < len; i++)
                frame[headers + i] = (uint8_t)(i * 7 + len);
            dxpu_xdp_build(frame, &w, len);
            assert_int_equal(dxpu_xdp_parse(&receiver, frame, headers + len, &d), DXPU_XDP_GOOD);
            assert_int_equal(d.len, len);
            assert_int_equal(d.flags, w.ecn == 3 ? DXPU_RX_ECN_CE : 0);
        }
    }
}

/* A sum of 0 is sent as 0xffff: 0 would say that there is none. */
static void test_checksum_is_never_zero(void **state)
{
    (void)state;
    for (unsigned six = 0; six < 2; six++) {
        dxpu_xdp_way w = way_of(six ? AF_INET6 : AF_INET);
        size_t headers = dxpu_xdp_header_bytes(w.to.any.sa_family);
        uint8_t frame[80] = { 0 };
        unsigned all_ones = 0;
        for (unsigned v = 0; v < 65536; v++) {
            dxpu_put_be16(frame + headers, v);
            dxpu_xdp_build(frame, &w, 2);
            assert_true(frame[headers - 2] || frame[headers - 1]);
            all_ones += frame[headers - 2] == 0xff && frame[headers - 1] == 0xff;
            assert_int_equal(parse(frame, headers + 2), DXPU_XDP_GOOD);
        }
        assert_in_range(all_ones, 1, 2); /* the control: the case was met */
    }
}

/* RFC 1071, word by word; the end around is taken after each. */
static uint16_t sum_by_words(uint16_t sum, const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 2) {
        uint8_t pair[2] = { p[i], i + 1 < bytes ? p[i + 1] : 0 };
        uint16_t word;
        memcpy(&word, pair, sizeof word);
        sum = (uint16_t)(sum + word + (sum + word > 0xffff));
    }
    return sum;
}

static void test_sum_of_any_bytes(void **state)
{
    uint8_t bytes[300];
    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        for (unsigned i = 0; i < sizeof bytes; i++) /* carries of all words, of some, of none */
            bytes[i] = kind == 0 ? 0xff : kind == 1 ? (uint8_t)(i * i * 37 + i) : (uint8_t)(i / 8);
        if (kind == 3)
            memset(bytes + 8, 0xff, 100);
        for (size_t at = 0; at < 8; at++) {
            for (size_t len = 0; len + at <= sizeof bytes; len++) {
                uint64_t first = len * 0x1234567u * kind;
                assert_int_equal(dxpu_bytes_fold(dxpu_bytes_sum(first, bytes + at, len)),
                                 sum_by_words(dxpu_bytes_fold(first), bytes + at, len));
            }
        }
    }
}

static void test_cut_and_padded(void **state)
{
    (void)state;
    for (unsigned six = 0; six < 2; six++) {
        uint8_t frame[300] = { 0 };
        size_t len = known(six ? AF_INET6 : AF_INET, frame);
        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(parse(frame, cut), DXPU_XDP_LENGTH);
        for (size_t more = len; more < len + 60; more++) /* Ethernet pads short frames */
            assert_int_equal(parse(frame, more), DXPU_XDP_GOOD);
    }
}

static void test_every_flipped_bit(void **state)
{
    (void)state;
    for (unsigned six = 0; six < 2; six++) {
        uint8_t frame[300];
        size_t len = known(six ? AF_INET6 : AF_INET, frame);
        unsigned good = 0;
        for (size_t bit = 0; bit < 8 * len; bit++) {
            bool open = bit < 8 * 12 || /* Ethernet addresses */
                        (six && ((bit >= 14 * 8 + 4 && bit < 18 * 8) || bit / 8 == 21));
            frame[bit / 8] ^= (uint8_t)(0x80 >> bit % 8); /* IPv6: traffic class to hop limit */
            if (parse(frame, len) == DXPU_XDP_GOOD) {
                assert_true(open);
                good++;
            }
            frame[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
        }
        assert_int_equal(good, six ? 8 * 12 + 28 + 8 : 8 * 12);
    }
}

typedef struct change {
    unsigned at;
    uint8_t value;
    int want;
    bool six;
} change;

static void test_fields_out_of_range(void **state)
{
    static const change changes[] = {
        { 12, 0x81, DXPU_XDP_NOT_OURS, false }, /* a VLAN tag */
        { 14, 0x46, DXPU_XDP_NOT_OURS, false }, /* options */
        { 14, 0x44, DXPU_XDP_NOT_OURS, false }, /* a header too short */
        { 14, 0x55, DXPU_XDP_NOT_OURS, false }, /* version 5 */
        { 17, 27, DXPU_XDP_LENGTH, false },     /* total length without UDP */
        { 17, 0x74, DXPU_XDP_LENGTH, false },   /* one more than there is */
        { 16, 0xff, DXPU_XDP_LENGTH, false },
        { 17, 0x72, DXPU_XDP_LENGTH, false },   /* UDP says one more */
        { 20, 0x60, DXPU_XDP_FRAGMENT, false }, /* more fragments */
        { 21, 0x01, DXPU_XDP_FRAGMENT, false }, /* an offset */
        { 20, 0x5f, DXPU_XDP_FRAGMENT, false },
        { 23, 6, DXPU_XDP_NOT_OURS, false }, /* TCP */
        { 26, 0, DXPU_XDP_SOURCE, false },   /* 0/8 */
        { 26, 127, DXPU_XDP_SOURCE, false }, /* loopback */
        { 26, 224, DXPU_XDP_SOURCE, false }, /* multicast */
        { 26, 255, DXPU_XDP_SOURCE, false },
        { 33, 0xc8, DXPU_XDP_NOT_OURS, false }, /* another address */
        { 37, 0x6c, DXPU_XDP_NOT_OURS, false }, /* another port */
        { 38, 0xff, DXPU_XDP_LENGTH, false },   /* UDP beyond IP */
        { 39, 7, DXPU_XDP_LENGTH, false },      /* UDP without its header */
        { 39, 0, DXPU_XDP_LENGTH, false },
        { 14, 0x40, DXPU_XDP_NOT_OURS, true },
        { 20, 0, DXPU_XDP_NOT_OURS, true },  /* hop-by-hop options */
        { 20, 44, DXPU_XDP_NOT_OURS, true }, /* a fragment header */
        { 19, 7, DXPU_XDP_LENGTH, true },
        { 19, 0x60, DXPU_XDP_LENGTH, true },
        { 18, 0xff, DXPU_XDP_LENGTH, true },
        { 22, 0xff, DXPU_XDP_SOURCE, true }, /* multicast */
        { 53, 3, DXPU_XDP_NOT_OURS, true },
        { 57, 0, DXPU_XDP_NOT_OURS, true },
        { 58, 0xff, DXPU_XDP_LENGTH, true },
        { 59, 7, DXPU_XDP_LENGTH, true },
    };
    uint8_t frame[300];
    size_t len;
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const change *c = &changes[i];
        len = known(c->six ? AF_INET6 : AF_INET, frame);
        frame[c->at] = c->value;
        if (!c->six)
            fix_header(frame);
        if (parse(frame, len) != c->want)
            fail_msg("change %zu: %d", i, parse(frame, len));
    }
    len = known(AF_INET, frame);
    frame[34] = frame[35] = 0; /* from port 0 */
    assert_int_equal(parse(frame, len), DXPU_XDP_SOURCE);
    len = known(AF_INET6, frame);
    memset(frame + 22, 0, 16); /* from :: */
    assert_int_equal(parse(frame, len), DXPU_XDP_SOURCE);
    frame[37] = 1; /* from ::1 */
    assert_int_equal(parse(frame, len), DXPU_XDP_SOURCE);
}

static void test_checksum_left_out_or_open(void **state)
{
    /* folded sums of the pseudo-headers, computed apart from this program */
    static const uint8_t open_4[2] = { 0x82, 0x89 }, open_6[2] = { 0x5b, 0xe5 };
    uint8_t frame[300];
    size_t len;
    (void)state;
    len = known(AF_INET, frame);
    frame[40] = frame[41] = 0;
    assert_int_equal(parse(frame, len), DXPU_XDP_GOOD);
    len = known(AF_INET6, frame);
    frame[60] = frame[61] = 0;
    assert_int_equal(parse(frame, len), DXPU_XDP_CHECKSUM);
    for (unsigned six = 0; six < 2; six++) {
        dxpu_xdp_datagram d;
        size_t at = six ? 60 : 40;
        len = known(six ? AF_INET6 : AF_INET, frame);
        memcpy(frame + at, six ? open_6 : open_4, 2);
        receiver.partial_ok = false;
        assert_int_equal(parse(frame, len), DXPU_XDP_CHECKSUM);
        receiver.partial_ok = true;
        assert_int_equal(dxpu_xdp_parse(&receiver, frame, len, &d), DXPU_XDP_GOOD);
        assert_true(d.partial);
        frame[at] ^= 1; /* neither this nor that */
        assert_int_equal(parse(frame, len), DXPU_XDP_CHECKSUM);
    }
}

static void test_link_local_source_has_our_scope(void **state)
{
    uint8_t frame[300];
    dxpu_xdp_way w = way_of(AF_INET6);
    dxpu_xdp_datagram d;
    (void)state;
    w.from = address(AF_INET6, "fe80::9", 4458);
    (void)known(AF_INET6, frame);
    dxpu_xdp_build(frame, &w, PAYLOAD);
    assert_int_equal(dxpu_xdp_parse(&receiver, frame, DXPU_XDP_HEADERS_6 + PAYLOAD, &d),
                     DXPU_XDP_GOOD);
    assert_int_equal(d.from.v6.sin6_scope_id, receiver.scope);
}

/* ---- The filter ---- */

enum { CONTEXT = 0x1000, PACKET = 0x100000, QUEUE = 3, REDIRECT = 1000, STEPS_MAX = 1000 };

static uint64_t load(const struct bpf_insn *i, uint64_t at, const uint8_t *frame, size_t len)
{
    size_t n = BPF_SIZE(i->code) == BPF_W ? 4 : BPF_SIZE(i->code) == BPF_H ? 2 : 1;
    uint32_t word = 0;
    uint16_t half = 0;
    if (at < PACKET) {
        assert_int_equal(n, 4);
        return at == CONTEXT ? PACKET : at == CONTEXT + 4 ? PACKET + len : QUEUE;
    }
    at -= PACKET;
    assert_true(at <= len && n <= len - at); /* the kernel's verifier wants this, too */
    if (n == 1)
        return frame[at];
    if (n == 2) {
        memcpy(&half, frame + at, n);
        return half;
    }
    memcpy(&word, frame + at, n);
    return word;
}

/* XDP_PASS, or REDIRECT + queue. */
static int interpret(const struct bpf_insn *program, unsigned count, const uint8_t *frame,
                     size_t len)
{
    uint64_t r[10] = { 0, CONTEXT };
    unsigned at = 0;
    for (unsigned steps = 0; steps < STEPS_MAX; steps++) {
        const struct bpf_insn *i = &program[at++];
        uint32_t word = (uint32_t)r[i->dst_reg], value = (uint32_t)i->imm;
        bool jump = false;
        assert_true(at <= count);
        switch (i->code) {
        case BPF_ALU64 | BPF_MOV | BPF_X:
            r[i->dst_reg] = r[i->src_reg];
            break;
        case BPF_ALU64 | BPF_MOV | BPF_K:
            r[i->dst_reg] = value;
            break;
        case BPF_ALU64 | BPF_ADD | BPF_K:
            r[i->dst_reg] += value;
            break;
        case BPF_ALU64 | BPF_ADD | BPF_X:
            r[i->dst_reg] += r[i->src_reg];
            break;
        case BPF_ALU64 | BPF_AND | BPF_K:
            r[i->dst_reg] &= value;
            break;
        case BPF_JMP | BPF_JGT | BPF_X:
            jump = r[i->dst_reg] > r[i->src_reg];
            break;
        case BPF_JMP32 | BPF_JNE | BPF_K:
            jump = word != value;
            break;
        case BPF_JMP32 | BPF_JGE | BPF_K:
            jump = word >= value;
            break;
        case BPF_JMP32 | BPF_JEQ | BPF_K:
            jump = word == value;
            break;
        case BPF_JMP | BPF_JA:
            jump = true;
            break;
        case BPF_LDX | BPF_MEM | BPF_W:
        case BPF_LDX | BPF_MEM | BPF_H:
        case BPF_LDX | BPF_MEM | BPF_B:
            r[i->dst_reg] = load(i, r[i->src_reg] + (uint64_t)i->off, frame, len);
            break;
        case BPF_LD | BPF_DW | BPF_IMM:
            at++;
            break;
        case BPF_JMP | BPF_CALL:
            assert_int_equal(r[3], XDP_PASS);
            r[0] = REDIRECT + r[2];
            break;
        case BPF_JMP | BPF_EXIT:
            return (int)r[0];
        default:
            fail_msg("instruction %u", at - 1);
        }
        assert_true(!jump || i->off > 0);
        at += jump ? (unsigned)i->off : 0;
    }
    fail_msg("no end");
    return -1;
}

static struct bpf_insn program[DXPU_XDP_FILTER_MAX];

/* The program passes what it must, and what it takes is never for the kernel. */
static int filter(unsigned count, const uint8_t *frame, size_t len)
{
    int verdict = interpret(program, count, frame, len), rc = parse(frame, len);
    if (verdict == XDP_PASS)
        assert_true(rc != DXPU_XDP_GOOD || len > FRAME_MAX);
    else
        assert_true(verdict == REDIRECT + QUEUE && rc != DXPU_XDP_NOT_OURS &&
                    rc != DXPU_XDP_FRAGMENT);
    return verdict;
}

static void test_filter(void **state)
{
    unsigned count = dxpu_xdp_filter(locals, 2, QUEUE + 1, 9, program);
    static uint8_t frame[FRAME_MAX + 1];
    (void)state;
    assert_true(count <= DXPU_XDP_FILTER_MAX);
    for (unsigned six = 0; six < 2; six++) {
        size_t len = known(six ? AF_INET6 : AF_INET, frame);
        assert_int_equal(filter(count, frame, len), REDIRECT + QUEUE);
        for (size_t cut = 0; cut < (six ? DXPU_XDP_HEADERS_6 : DXPU_XDP_HEADERS_4); cut++)
            assert_int_equal(filter(count, frame, cut), XDP_PASS);
        for (size_t bit = 0; bit < 8 * len; bit++) {
            frame[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
            (void)filter(count, frame, len);
            frame[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
        }
        assert_int_equal(filter(count, frame, FRAME_MAX), REDIRECT + QUEUE);
        assert_int_equal(filter(count, frame, FRAME_MAX + 1), XDP_PASS);
    }
}

/* Each loop's datagrams go to its part of the map, whichever queue they came to. */
static void test_filter_of_loops(void **state)
{
    dxpu_xdp_local two[2] = { locals[0], locals[1] };
    uint8_t frame[300];
    (void)state;
    two[1].loop = 2;
    for (unsigned queues = QUEUE; queues <= QUEUE + 5; queues++) {
        unsigned count = dxpu_xdp_filter(two, 2, queues, 9, program);
        bool there = QUEUE < queues; /* else no socket can have it */
        size_t len = known(AF_INET, frame);
        assert_int_equal(interpret(program, count, frame, len),
                         there ? REDIRECT + QUEUE : XDP_PASS);
        len = known(AF_INET6, frame);
        assert_int_equal(interpret(program, count, frame, len),
                         there ? REDIRECT + 2 * (int)queues + QUEUE : XDP_PASS);
    }
}

static void test_filter_of_many(void **state)
{
    static dxpu_xdp_local many[DXPU_XDP_LOCALS_MAX];
    unsigned count;
    uint8_t frame[300];
    size_t len;
    (void)state;
    for (unsigned i = 0; i < DXPU_XDP_LOCALS_MAX; i++)
        many[i].at = address(AF_INET6, "2001:db8::ffff", 1000 + i);
    many[DXPU_XDP_LOCALS_MAX - 1] = locals[1];
    many[DXPU_XDP_LOCALS_MAX - 2] = locals[0];
    count = dxpu_xdp_filter(many, DXPU_XDP_LOCALS_MAX, QUEUE + 1, 9, program);
    assert_true(count <= DXPU_XDP_FILTER_MAX);
    for (unsigned six = 0; six < 2; six++) {
        len = known(six ? AF_INET6 : AF_INET, frame);
        assert_int_equal(filter(count, frame, len), REDIRECT + QUEUE);
        count =
            dxpu_xdp_filter(many, DXPU_XDP_LOCALS_MAX - 2, QUEUE + 1, 9, program); /* the control */
        assert_int_equal(interpret(program, count, frame, len), XDP_PASS);
        count = dxpu_xdp_filter(many, DXPU_XDP_LOCALS_MAX, QUEUE + 1, 9, program);
    }
}

/* Packets that begin as the known ones and go on at random, so that all checks are reached. */
static void test_hostile_bytes(void **state)
{
    unsigned count = dxpu_xdp_filter(locals, 2, QUEUE + 1, 9, program),
             reached[DXPU_XDP_SOURCE + 1] = { 0 };
    uint32_t seed = 0x2545f491;
    (void)state;
    for (unsigned round = 0; round < 200000; round++) {
        uint8_t frame[300];
        size_t len = known(round & 1 ? AF_INET6 : AF_INET, frame);
        for (unsigned changes = round % 4; changes; changes--) {
            seed = seed * 1664525u + 1013904223u;
            frame[(seed >> 8) % 64] = (uint8_t)(seed >> 24);
        }
        if (round & 2 && !(round & 1))
            fix_header(frame);
        seed = seed * 1664525u + 1013904223u;
        if (round % 8 == 7)
            len = (seed >> 8) % len;
        (void)filter(count, frame, len);
        reached[parse(frame, len)]++;
    }
    for (unsigned i = 0; i <= DXPU_XDP_SOURCE; i++)
        assert_true(reached[i]);
}

/* ---- Options, counters, opening ---- */

static void test_option(void **state)
{
    static const char *const bad[] = { "",          ",0",           "interface-name-too-long",
                                       "eth0,",     "eth0,fast",    "eth0,1-",
                                       "eth0,3-2",  "eth0,0-16",    "eth0,1x",
                                       "eth0,-1",   "eth0,mac=1:2", "eth0,mac=02:00:00:00:00:01x",
                                       "eth0,99999" };
    dxpu_xdp_config cfg;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        dxpu_xdp_config_default(&cfg);
        if (!dxpu_xdp_parse_option(bad[i], &cfg))
            fail_msg("%s", bad[i]);
    }
    dxpu_xdp_config_default(&cfg);
    assert_null(dxpu_xdp_parse_option("eth0", &cfg));
    assert_string_equal(cfg.interface, "eth0");
    assert_true(cfg.queue == 0 && cfg.queues == 1 && !cfg.generic && !cfg.copy && !cfg.busy_poll);
    assert_null(dxpu_xdp_parse_option("e,2-5,copy,busy-poll,mac=02:00:00:00:00:fe", &cfg));
    assert_true(cfg.queue == 2 && cfg.queues == 4 && cfg.copy && cfg.busy_poll && !cfg.generic);
    assert_true(cfg.fixed_hop && cfg.next_hop[0] == 2 && cfg.next_hop[5] == 0xfe);
    assert_null(dxpu_xdp_parse_option("e,7,generic", &cfg));
    assert_true(cfg.queue == 7 && cfg.queues == 1 && cfg.generic);
}

static void test_counter_names(void **state)
{
    dxpu_xdp_counters c;
    unsigned n = 0;
    (void)state;
    memset(&c, 0, sizeof c);
    c.rx_datagrams = 5;
    c.lookups = 6;
    while (dxpu_xdp_counter_name(n))
        n++;
    assert_int_equal(n, sizeof c / sizeof(uint64_t));
    assert_string_equal(dxpu_xdp_counter_name(0), "rx_datagrams");
    assert_int_equal(dxpu_xdp_counter_value(&c, 0), 5);
    assert_int_equal(dxpu_xdp_counter_value(&c, n - 1), 6);
    assert_int_equal(dxpu_xdp_counter_value(&c, n), 0);
}

static void test_open_says_why(void **state)
{
    dxpu_xdp_config cfg;
    const char *why = NULL;
    (void)state;
    dxpu_xdp_config_default(&cfg);
    cfg.local[0] = address(AF_INET, "127.0.0.1", 4458);
    assert_null(dxpu_xdp_parse_option("no-such-if", &cfg));
    assert_null(dxpu_xdp_open(&cfg, &why)); /* no socket */
    assert_non_null(why);
    cfg.sockets = 1;
    why = NULL;
    assert_null(dxpu_xdp_open(&cfg, &why));
    assert_non_null(strstr(why, DXPU_AF_XDP ? "no such network interface" : "libxdp-dev"));
    assert_null(dxpu_xdp_parse_option("lo", &cfg));
    assert_null(dxpu_xdp_open(&cfg, &why));
    assert_non_null(strstr(why, DXPU_AF_XDP ? "veth" : "libxdp-dev"));
    dxpu_xdp_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_known_headers, setup),
        cmocka_unit_test_setup(test_every_length, setup),
        cmocka_unit_test_setup(test_checksum_is_never_zero, setup),
        cmocka_unit_test(test_sum_of_any_bytes),
        cmocka_unit_test_setup(test_cut_and_padded, setup),
        cmocka_unit_test_setup(test_every_flipped_bit, setup),
        cmocka_unit_test_setup(test_fields_out_of_range, setup),
        cmocka_unit_test_setup(test_checksum_left_out_or_open, setup),
        cmocka_unit_test_setup(test_link_local_source_has_our_scope, setup),
        cmocka_unit_test_setup(test_filter, setup),
        cmocka_unit_test_setup(test_filter_of_loops, setup),
        cmocka_unit_test_setup(test_filter_of_many, setup),
        cmocka_unit_test_setup(test_hostile_bytes, setup),
        cmocka_unit_test(test_option),
        cmocka_unit_test(test_counter_names),
        cmocka_unit_test(test_open_says_why),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests_name("api_af_xdp", tests, NULL, NULL);
}
