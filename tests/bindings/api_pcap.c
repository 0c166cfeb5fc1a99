/* api_pcap.c - captures: what bindings/pcap writes it reads back, and what others write it reads
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "dxpu_pcap.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/dxpu-pcap-XXXXXX";
static char why[DXPU_PCAP_WHY_BYTES];

static int setup(void **state)
{
    int fd;
    (void)state;
    strcpy(path + sizeof path - 7, "XXXXXX");
    fd = mkstemp(path);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static const uint8_t read_tlp[12] = { 0x00, 0, 0, 1, 0x01, 0x00, 0x2a, 0x0f, 0xfe, 0, 0, 0 };

static dxpu_bytes bytes_of(const void *p, size_t len)
{
    dxpu_bytes b = { p, len };
    return b;
}

static void test_tlps_read_back(void **state)
{
    static uint8_t big[DXPU_TLP_MAX_BYTES];
    dxpu_pcap_writer *w = dxpu_pcap_create(path, why);
    dxpu_pcap_reader *r;
    dxpu_pcap_packet p;
    (void)state;
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (uint8_t)(i * 7);
    assert_non_null(w);
    assert_int_equal(dxpu_pcap_write_tlp(w, 1234567890123456789u, bytes_of(read_tlp, 12)), DXPU_OK);
    assert_int_equal(dxpu_pcap_write_tlp(w, 5, bytes_of(big, sizeof big)), DXPU_OK);
    assert_int_equal(dxpu_pcap_write_tlp(w, 6, bytes_of(big, 1)), DXPU_OK);
    assert_int_equal(dxpu_pcap_finish(w), 0);
    r = dxpu_pcap_open(path, why);
    assert_non_null(r);
    assert_int_equal(dxpu_pcap_next(r, &p, why), 1);
    assert_int_equal(p.kind, DXPU_PCAP_TLP);
    assert_int_equal(p.index, 1);
    assert_true(p.time_ns == 1234567890123456789u); /* to the nanosecond */
    assert_int_equal(p.bytes.len, 12);
    assert_int_equal(p.whole_bytes, 12);
    assert_memory_equal(p.bytes.ptr, read_tlp, 12);
    assert_int_equal(p.port, 0x3000 + 0x2a); /* its tag */
    assert_int_equal(p.sequence, 0);
    assert_int_equal(p.timestamp, (uint32_t)1234567890123456789u);
    assert_int_equal(dxpu_pcap_next(r, &p, why), 1);
    assert_int_equal(p.bytes.len, sizeof big);
    assert_memory_equal(p.bytes.ptr, big, sizeof big);
    assert_int_equal(p.sequence, 1);
    assert_int_equal(dxpu_pcap_next(r, &p, why), 1);
    assert_int_equal(p.bytes.len, 1);
    assert_int_equal(dxpu_pcap_next(r, &p, why), 0);
    dxpu_pcap_close(r);
}

static void test_frames_read_back(void **state)
{
    uint8_t frame[100] = { 'D', 'X', 1, 2 };
    struct sockaddr_in from4, to4;
    struct sockaddr_in6 from6, to6;
    dxpu_pcap_writer *w = dxpu_pcap_create(path, why);
    dxpu_pcap_reader *r;
    dxpu_pcap_packet p;
    (void)state;
    memset(&from4, 0, sizeof from4);
    from4.sin_family = AF_INET;
    from4.sin_port = htons(40000);
    to4 = from4;
    to4.sin_port = htons(4458);
    memset(&from6, 0, sizeof from6);
    from6.sin6_family = AF_INET6;
    from6.sin6_addr = in6addr_loopback;
    from6.sin6_port = htons(40000);
    to6 = from6;
    to6.sin6_port = htons(4458);
    assert_non_null(w);
    assert_int_equal(dxpu_pcap_write_frame(w, 7, (struct sockaddr *)&from4, (struct sockaddr *)&to4,
                                           bytes_of(frame, sizeof frame)),
                     DXPU_OK);
    assert_int_equal(dxpu_pcap_write_frame(w, 8, (struct sockaddr *)&from6, (struct sockaddr *)&to6,
                                           bytes_of(frame, 99)),
                     DXPU_OK);
    assert_int_equal(dxpu_pcap_write_frame(w, 8, (struct sockaddr *)&from4, (struct sockaddr *)&to6,
                                           bytes_of(frame, 99)),
                     DXPU_E_ARG);
    frame[0] = 'E'; /* the control: what is not a frame is not called one */
    assert_int_equal(dxpu_pcap_write_frame(w, 9, (struct sockaddr *)&from4, (struct sockaddr *)&to4,
                                           bytes_of(frame, sizeof frame)),
                     DXPU_OK);
    frame[0] = 'D';
    assert_int_equal(dxpu_pcap_finish(w), 0);
    r = dxpu_pcap_open(path, why);
    assert_non_null(r);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(dxpu_pcap_next(r, &p, why), 1);
        assert_int_equal(p.kind, DXPU_PCAP_FRAME);
        assert_int_equal(p.bytes.len, sizeof frame - i);
        assert_int_equal(p.port, 4458);
        assert_memory_equal(p.bytes.ptr, frame, sizeof frame - i);
    }
    assert_int_equal(dxpu_pcap_next(r, &p, why), 1);
    assert_int_equal(p.kind, DXPU_PCAP_OTHER);
    assert_int_equal(dxpu_pcap_next(r, &p, why), 0);
    dxpu_pcap_close(r);
}

static void test_ip_checksum(void **state)
{
    uint8_t file[24 + 16 + 60];
    uint32_t sum = 0;
    FILE *f;
    dxpu_pcap_writer *w = dxpu_pcap_create(path, why);
    (void)state;
    assert_non_null(w);
    assert_int_equal(dxpu_pcap_write_tlp(w, 1, bytes_of(read_tlp, 12)), DXPU_OK);
    assert_int_equal(dxpu_pcap_finish(w), 0);
    f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(file, 1, sizeof file, f), sizeof file);
    fclose(f);
    for (unsigned i = 0; i < 20; i += 2)
        sum += dxpu_get_be16(file + 40 + 14 + i);
    assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
}

/* A file as another program writes it: `magic`, one packet with VLAN tags, cut by the mirror. */
static void write_foreign(uint32_t magic, unsigned tags, size_t cut, unsigned port)
{
    uint8_t packet[200] = { 0 };
    uint32_t head[6] = { 0, 0x00040002, 0, 0, 65535, 1 }, record[4] = { 100, 42, 0, 0 };
    size_t at = 12, ip;
    FILE *f = fopen(path, "wb");
    head[0] = magic;
    assert_non_null(f);
    for (unsigned i = 0; i < tags; i++) {
        packet[at] = 0x81;
        packet[at + 3] = 100;
        at += 4;
    }
    packet[at] = 0x08;
    ip = at + 2;
    packet[ip] = 0x45;
    packet[ip + 9] = 17;
    dxpu_put_be16(packet + ip + 22, port);
    packet[ip + 25] = 8 + 6 + 12;
    packet[ip + 28] = 0x12; /* sequence */
    packet[ip + 29] = 0x34;
    memcpy(packet + ip + 34, read_tlp, sizeof read_tlp);
    record[3] = (uint32_t)(ip + 34 + 12 + 10); /* ten bytes of padding */
    record[2] = cut ? (uint32_t)cut : record[3];
    fwrite(head, sizeof head, 1, f);
    fwrite(record, sizeof record, 1, f);
    fwrite(packet, record[2], 1, f);
    fclose(f);
}

static void read_foreign(dxpu_pcap_packet *p)
{
    static uint8_t copy[256];
    dxpu_pcap_reader *r = dxpu_pcap_open(path, why);
    assert_non_null(r);
    assert_int_equal(dxpu_pcap_next(r, p, why), 1);
    assert_in_range(p->bytes.len, 0, sizeof copy);
    if (p->bytes.len)
        memcpy(copy, p->bytes.ptr, p->bytes.len);
    p->bytes.ptr = copy;
    dxpu_pcap_close(r);
}

static void test_foreign_files(void **state)
{
    dxpu_pcap_packet p;
    (void)state;
    for (unsigned tags = 0; tags < 3; tags++) {
        write_foreign(0xa1b23c4d, tags, 0, 0x3005);
        read_foreign(&p);
        assert_int_equal(p.kind, DXPU_PCAP_TLP);
        assert_true(p.time_ns == 100000000042u);
        assert_int_equal(p.sequence, 0x1234);
        assert_int_equal(p.bytes.len, 12); /* the padding is not part of it */
        assert_memory_equal(p.bytes.ptr, read_tlp, 12);
    }
    write_foreign(0xa1b2c3d4, 0, 0, 0x4003);
    read_foreign(&p);
    assert_int_equal(p.kind, DXPU_PCAP_TLP);
    assert_true(p.time_ns == 100000042000u); /* microseconds */
    write_foreign(0xa1b23c4d, 1, 4 + 14 + 34 + 5, 0x3005);
    read_foreign(&p);
    assert_int_equal(p.bytes.len, 5);
    assert_int_equal(p.whole_bytes, 12); /* what the mirror cut is known */
    write_foreign(0xa1b23c4d, 0, 0, 0x5000);
    read_foreign(&p);
    assert_int_equal(p.kind, DXPU_PCAP_OTHER);
}

/* The same datagram under another link type, whose header is `head`. */
static void write_linked(uint32_t link, const uint8_t *head, size_t head_bytes)
{
    uint8_t packet[100] = { 0 }, *ip = packet + head_bytes;
    uint32_t file[6] = { 0xa1b23c4d, 0x00040002, 0, 0, 65535, 0 }, record[4] = { 1, 2, 0, 0 };
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    file[5] = link;
    if (head_bytes)
        memcpy(packet, head, head_bytes);
    ip[0] = 0x45;
    ip[9] = 17;
    ip[22] = 0x30;
    ip[25] = 8 + 6 + 12;
    memcpy(ip + 34, read_tlp, sizeof read_tlp);
    record[2] = record[3] = (uint32_t)(head_bytes + 34 + 12);
    fwrite(file, sizeof file, 1, f);
    fwrite(record, sizeof record, 1, f);
    fwrite(packet, record[2], 1, f);
    fclose(f);
}

static void test_link_types(void **state)
{
    static const uint8_t cooked[16] = { [14] = 0x08 }, cooked2[20] = { 0x08 }, null[4] = { 2 };
    dxpu_pcap_packet p;
    (void)state;
    write_linked(113, cooked, sizeof cooked);
    read_foreign(&p);
    assert_int_equal(p.kind, DXPU_PCAP_TLP);
    assert_memory_equal(p.bytes.ptr, read_tlp, sizeof read_tlp);
    write_linked(276, cooked2, sizeof cooked2);
    read_foreign(&p);
    assert_int_equal(p.kind, DXPU_PCAP_TLP);
    write_linked(0, null, sizeof null);
    read_foreign(&p);
    assert_int_equal(p.kind, DXPU_PCAP_TLP);
    write_linked(101, NULL, 0);
    read_foreign(&p);
    assert_int_equal(p.kind, DXPU_PCAP_TLP);
    write_linked(105, null, sizeof null); /* a radio: not understood, said so */
    read_foreign(&p);
    assert_int_equal(p.kind, DXPU_PCAP_OTHER);
}

static void test_every_cut(void **state)
{
    dxpu_pcap_packet p;
    (void)state;
    for (size_t cut = 1; cut < 60; cut++) { /* no length may lead outside the packet */
        write_foreign(0xa1b23c4d, 1, cut, 0x3005);
        read_foreign(&p);
        assert_int_equal(p.kind, cut >= 18 + 28 + 6 ? DXPU_PCAP_TLP : DXPU_PCAP_OTHER);
    }
}

static void test_bad_files(void **state)
{
    dxpu_pcap_packet p;
    dxpu_pcap_reader *r;
    FILE *f;
    (void)state;
    why[0] = '\0';
    assert_null(dxpu_pcap_open("/nonexistent/file.pcap", why));
    assert_string_equal(why, "No such file or directory"); /* the caller names the file */
    why[0] = '\0';
    assert_null(dxpu_pcap_create("/nonexistent/file.pcap", why));
    assert_string_equal(why, "No such file or directory");
    write_foreign(0x12345678, 0, 0, 0x3005);
    assert_null(dxpu_pcap_open(path, why));
    write_foreign(0xa1b23c4d, 0, 0, 0x3005);
    f = fopen(path, "ab"); /* a record that ends in the middle */
    assert_non_null(f);
    fwrite("\1\0\0\0\1\0", 6, 1, f);
    fclose(f);
    r = dxpu_pcap_open(path, why);
    assert_non_null(r);
    assert_int_equal(dxpu_pcap_next(r, &p, why), 1);
    why[0] = '\0';
    assert_int_equal(dxpu_pcap_next(r, &p, why), -1);
    assert_non_null(strstr(why, "packet 2"));
    dxpu_pcap_close(r);
    dxpu_pcap_close(NULL);
    assert_int_equal(dxpu_pcap_finish(NULL), 0);
}

static void test_sizes_refused(void **state)
{
    static uint8_t huge[65001];
    dxpu_pcap_writer *w = dxpu_pcap_create(path, why);
    (void)state;
    assert_non_null(w);
    assert_int_equal(dxpu_pcap_write_tlp(w, 1, bytes_of(huge, 0)), DXPU_E_ARG);
    assert_int_equal(dxpu_pcap_write_tlp(w, 1, bytes_of(huge, sizeof huge)), DXPU_E_ARG);
    assert_int_equal(dxpu_pcap_finish(w), 0);
}

/* A full disk: the first error stays, whatever is called later. */
static void test_full_disk(void **state)
{
    static const uint8_t mrd[12] = { 0, 0, 0, 1, 0, 0, 0, 0x0f };
    dxpu_bytes tlp = { mrd, sizeof mrd };
    unsigned n = 0;
    dxpu_pcap_writer *w = dxpu_pcap_create("/dev/full", why);
    (void)state;
    if (!w)
        skip();
    assert_int_equal(dxpu_pcap_error(w), 0);
    while (!dxpu_pcap_error(w) && n++ < 100000)
        assert_int_equal(dxpu_pcap_write_tlp(w, 1, tlp), DXPU_OK);
    assert_int_equal(dxpu_pcap_error(w), ENOSPC);
    errno = EINVAL;
    assert_int_equal(dxpu_pcap_flush(w), -1);
    assert_int_equal(errno, ENOSPC);
    errno = EINVAL;
    assert_int_equal(dxpu_pcap_finish(w), -1);
    assert_int_equal(errno, ENOSPC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tlps_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_frames_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ip_checksum, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_link_types, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes_refused, setup, teardown),
        cmocka_unit_test(test_full_disk),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
