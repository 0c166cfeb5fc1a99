/* TLPs that real hardware sent (NetTLP captures) through both decoders.  The captures are not part
   of the repository: directory DXPU_SHARED, else ../shared; without them the tests are skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dxpu.h"
#include <cmocka.h>

typedef struct counts {
    unsigned packets, mrd, mwr, cpld, other, whole, cut;
} counts;

typedef struct capture {
    const char *path;
    counts want;
} capture;

/* Counted by a separate reader of the files. */
static const capture captures[] = {
    { "p4600/p4600-read-1blk.pcap", { 2, 0, 2, 0, 0, 0, 2 } },
    { "p4600/p4600-read-4blk.pcap", { 8, 0, 8, 0, 0, 0, 8 } },
    { "p4600/p4600-read-8blk.pcap", { 16, 0, 16, 0, 0, 0, 16 } },
    { "p4600/p4600-read-32blk.pcap", { 64, 0, 64, 0, 0, 0, 64 } },
    { "p4600/p4600-read-64blk.pcap", { 128, 0, 128, 0, 0, 0, 128 } },
    { "p4600/p4600-write-1blk.pcap", { 3, 1, 0, 2, 0, 1, 2 } },
    { "p4600/p4600-write-4blk.pcap", { 12, 4, 0, 8, 0, 4, 8 } },
    { "p4600/p4600-write-8blk.pcap", { 24, 8, 0, 16, 0, 8, 16 } },
    { "p4600/p4600-write-32blk.pcap", { 96, 32, 0, 64, 0, 32, 64 } },
    { "p4600/p4600-write-64blk.pcap", { 192, 64, 0, 128, 0, 64, 128 } },
    { "root-complex/mrd-512byte-plx.pcap", { 6, 2, 0, 4, 0, 2, 4 } },
    { "root-complex/mrd-512byte-rc.pcap", { 19, 9, 0, 10, 0, 17, 2 } },
    { "simple-nic/simple-nic-ping.pcap", { 12, 3, 6, 3, 0, 12, 0 } },
    { "x520/x520-64B-1pkt.pcap", { 2, 1, 0, 1, 0, 2, 0 } },
    { "x520/x520-64B-32pkt.pcap", { 64, 32, 0, 32, 0, 64, 0 } },
    { "x520/x520-512B-16pkt.pcap", { 48, 16, 0, 32, 0, 16, 32 } },
    { "x520/x520-1500B-32pkt.pcap", { 288, 96, 0, 192, 0, 96, 192 } },
};
enum { CAPTURE_COUNT = sizeof captures / sizeof captures[0] };

static uint8_t file[1 << 16];

/* A pcap number in the file's byte order. */
static uint32_t number(const uint8_t *p, bool little)
{
    return little ? dxpu_get_le32(p) : dxpu_get_be32(p);
}

static FILE *open_capture(const char *path)
{
    char full[600];
    const char *shared = getenv("DXPU_SHARED");
    snprintf(full, sizeof full, "%s/captures/%s", shared ? shared : "../shared", path);
    return fopen(full, "rb");
}

/* The TLP of one Ethernet packet: VLAN tags, IPv4, UDP, six bytes of NetTLP header before it. */
static bool find_tlp(const uint8_t *p, size_t len, dxpu_bytes *tlp)
{
    size_t at = 12, ip_bytes, udp_bytes;
    while (at + 6 <= len && dxpu_get_be16(p + at) == 0x8100)
        at += 4;
    if (at + 22 > len || dxpu_get_be16(p + at) != 0x0800 || p[at + 2] >> 4 != 4 || p[at + 11] != 17)
        return false;
    at += 2;
    ip_bytes = (p[at] & 15u) * 4;
    if (at + ip_bytes + 14 > len)
        return false;
    at += ip_bytes;
    udp_bytes = dxpu_get_be16(p + at + 4);
    if (udp_bytes < 14)
        return false;
    tlp->ptr = p + at + 14;
    tlp->len = udp_bytes - 14 < len - at - 14 ? udp_bytes - 14 : len - at - 14;
    return true;
}

/* Every prefix of the bytes, on the heap to their exact length: neither decoder may misbehave, and
   none but the whole may pass as whole. */
static void check_cut(dxpu_bytes whole)
{
    size_t len;
    for (len = 0; len < whole.len; len++) {
        uint8_t *copy = (uint8_t *)malloc(len ? len : 1);
        dxpu_bytes in;
        dxpu_tlp t;
        int rc;
        assert_non_null(copy);
        memcpy(copy, whole.ptr, len);
        in.ptr = copy;
        in.len = len;
        rc = dxpu_tlp_decode_header(in, &t);
        assert_true(rc == DXPU_OK || rc == DXPU_E_TLP_SHORT);
        assert_int_equal(dxpu_tlp_decode(in, &t), DXPU_E_TLP_SHORT);
        free(copy);
    }
}

static void check_tlp(dxpu_bytes in, counts *got)
{
    uint8_t again[DXPU_TLP_MAX_BYTES];
    size_t again_len = 0;
    dxpu_tlp_shape shape;
    dxpu_tlp t, strict;
    assert_int_equal(dxpu_tlp_decode_header(in, &t), DXPU_OK);
    assert_int_equal(dxpu_tlp_measure(in, &shape), DXPU_OK);
    got->mrd += t.type == DXPU_TLP_MRD;
    got->mwr += t.type == DXPU_TLP_MWR;
    got->cpld += t.type == DXPU_TLP_CPLD;
    got->other += t.type != DXPU_TLP_MRD && t.type != DXPU_TLP_MWR && t.type != DXPU_TLP_CPLD;
    if (in.len < shape.total_bytes) {
        got->cut++;
        assert_int_equal(dxpu_tlp_decode(in, &strict), DXPU_E_TLP_SHORT);
        assert_true(t.payload.len < shape.payload_bytes);
        return;
    }
    got->whole++;
    assert_int_equal(dxpu_tlp_decode(in, &strict), DXPU_OK);
    assert_int_equal(dxpu_tlp_encode(&strict, again, sizeof again, &again_len), DXPU_OK);
    assert_int_equal(again_len, in.len);
    assert_memory_equal(again, in.ptr, in.len);
    check_cut(in);
}

static void check_capture(FILE *f, const capture *c)
{
    size_t len = fread(file, 1, sizeof file, f), at = 24;
    counts got;
    bool little;
    memset(&got, 0, sizeof got);
    assert_true(len >= 24 && len < sizeof file);
    little = file[0] == 0x4d || file[0] == 0xd4;
    assert_int_equal(number(file + 20, little), 1); /* Ethernet */
    while (at < len) {
        uint32_t bytes;
        dxpu_bytes tlp;
        assert_true(len - at >= 16);
        bytes = number(file + at + 8, little);
        at += 16;
        assert_true(bytes <= len - at);
        assert_true(find_tlp(file + at, bytes, &tlp));
        check_tlp(tlp, &got);
        got.packets++;
        at += bytes;
    }
    if (memcmp(&got, &c->want, sizeof got) != 0)
        fail_msg("%s: packets %u MRd %u MWr %u CplD %u other %u whole %u cut %u", c->path,
                 got.packets, got.mrd, got.mwr, got.cpld, got.other, got.whole, got.cut);
}

static void test_t40_captures(void **state)
{
    unsigned i;
    (void)state;
    for (i = 0; i < CAPTURE_COUNT; i++) {
        FILE *f = open_capture(captures[i].path);
        if (!f && i == 0) {
            fprintf(stderr, "SKIPPED: no captures; set DXPU_SHARED to the folder that has them\n");
            skip();
        }
        if (!f)
            fail_msg("missing: %s", captures[i].path);
        check_capture(f, &captures[i]);
        fclose(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_t40_captures) };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
