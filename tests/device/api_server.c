/* api_server.c - a model behind the vfio-user server of dxpu-device, and a client in this process
   SPDX-License-Identifier: MIT

   Nothing calls the server but events: it has no clock of 10 ms here. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dxpu_vfio_user_client.h"
#include "eptest.h"
#include "nvme.h"
#include "report_value.h"
#include "server.h"

#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { BYTES = 4 << 20, WAIT_MS = 10000, MASTER_AND_MEMORY = 6 };
enum { TAG_NONE, TAG_CONFIG };
#define MEM_AT    0x100000000u
#define BUFFER_AT 0x200000000u

static struct {
    char folder[40], path[64];
    server *server;
    dxpu_vfuc *client;
    uint64_t written, written_before; /* before the answer of the configuration space */
    bool answered;
    uint32_t value; /* of the answer */
    int news;       /* readable until the model has a turn; -1: it has no such descriptor */
} the;

static device_kind noticed;

static int news_descriptor(const void *device)
{
    (void)device;
    return the.news;
}

static void take_news(void *device, uint64_t now_ns)
{
    uint64_t count;
    (void)!read(the.news, &count, sizeof count);
    eptest_kind.tick(device, now_ns);
}

static void on_done(void *user, uint64_t tag, int error, dxpu_bytes data)
{
    (void)user;
    assert_int_equal(error, 0);
    if (tag == TAG_CONFIG) {
        the.value = data.len == 4 ? dxpu_get_le32(data.ptr) : 0;
        the.answered = true;
        the.written_before = the.written;
    }
}

static void on_dma_write(void *user, uint64_t token, uint64_t address, dxpu_bytes data)
{
    (void)user;
    assert_true(address >= MEM_AT && address - MEM_AT <= BYTES - data.len);
    the.written += data.len;
    if (token)
        assert_int_equal(dxpu_vfuc_dma_reply_write(the.client, token), DXPU_OK);
}

/* One round: what is ready, and a wait for it.  False: nothing happens any more. */
static bool turn(bool client)
{
    struct pollfd p[2] = { { server_descriptor(the.server), POLLIN, 0 },
                           { dxpu_vfuc_fd(the.client), POLLIN, 0 } };
    if (poll(p, client ? 2 : 1, client ? WAIT_MS : 0) <= 0)
        return false;
    if (p[0].revents)
        assert_int_equal(server_work(the.server), 0);
    if (client && p[1].revents)
        assert_int_equal(dxpu_vfuc_process(the.client), DXPU_OK);
    return true;
}

static int open_both(const device_kind *kind)
{
    server_settings s = { .kind = kind, .mode = 0600 };
    dxpu_vfuc_callbacks cb = { .done = on_done, .dma_write = on_dma_write };
    dxpu_vfuc_config cfg;
    const char *why;
    snprintf(the.folder, sizeof the.folder, "/tmp/api_server.XXXXXX");
    if (!mkdtemp(the.folder))
        return -1;
    snprintf(the.path, sizeof the.path, "%s/s", the.folder);
    s.socket = the.path;
    s.device.memory_bytes = 1 << 20;
    s.device.cmb_bytes = kind == &nvme_kind ? 2 << 20 : 0;
    s.device.mrrs_bytes = kind == &nvme_kind ? 256 : 0;
    s.device.mps_bytes = 128; /* what the model sends in a turn fits into the socket */
    the.server = server_open(&s);
    dxpu_vfuc_config_default(&cfg);
    cfg.path = the.path;
    cfg.twin = false;
    the.client = dxpu_vfuc_open(&cfg, &cb, &why);
    if (!the.server || !the.client || dxpu_vfuc_connect(the.client) != DXPU_OK)
        return -1;
    while (!dxpu_vfuc_is_ready(the.client) && turn(true)) {
    }
    return dxpu_vfuc_is_ready(the.client) ? 0 : -1;
}

static int setup(void **state)
{
    (void)state;
    memset(&the, 0, sizeof the);
    the.news = -1;
    return open_both(&eptest_kind);
}

static int setup_noticed(void **state)
{
    (void)state;
    memset(&the, 0, sizeof the);
    the.news = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    noticed = eptest_kind;
    noticed.descriptor = news_descriptor;
    noticed.tick = take_news;
    return the.news < 0 ? -1 : open_both(&noticed);
}

static int teardown(void **state)
{
    (void)state;
    dxpu_vfuc_close(the.client);
    server_close(the.server);
    if (the.news >= 0)
        close(the.news);
    (void)unlink(the.path);
    return rmdir(the.folder);
}

static void write_register(uint64_t at, uint32_t value)
{
    uint8_t bytes[4];
    dxpu_put_le32(bytes, value);
    assert_int_equal(dxpu_vfuc_write(the.client, 0, at, bytes, 4, true, 0), DXPU_OK);
}

/* The model writes 4 MB, to memory that it reaches by messages. */
static void begin_writing(void)
{
    const uint8_t command[2] = { MASTER_AND_MEMORY };
    assert_int_equal(dxpu_vfuc_dma_map(the.client, MEM_AT, BYTES, DXPU_VFU_WRITE, TAG_NONE),
                     DXPU_OK);
    assert_int_equal(dxpu_vfuc_write(the.client, DXPU_VFU_CONFIG, 4, command, 2, false, TAG_NONE),
                     DXPU_OK);
    write_register(EPTEST_DESTINATION, (uint32_t)MEM_AT);
    write_register(EPTEST_DESTINATION + 4, (uint32_t)(MEM_AT >> 32));
    write_register(EPTEST_SIZE, BYTES);
    write_register(EPTEST_COMMAND, EPTEST_WRITE);
}

/* A model that stopped because much waited goes on when it has left: writes have no answer. */
static void test_a_long_write_continues_by_itself(void **state)
{
    (void)state;
    begin_writing();
    while (the.written < BYTES)
        assert_true(turn(true));
}

static void fill(void *from, report *r)
{
    server_report(from, r);
}

/* Bytes that the model has sent. */
static uint64_t sent(void)
{
    return report_value(fill, the.server, "dma_write_bytes");
}

/* A read of the configuration space comes back behind the writes before it, as any read does. */
static void test_a_config_read_is_behind_writes(void **state)
{
    uint64_t before;
    (void)state;
    begin_writing();
    while (turn(false)) { /* until the socket takes no more */
    }
    assert_int_equal(dxpu_vfuc_read(the.client, DXPU_VFU_CONFIG, 0, 4, TAG_CONFIG), DXPU_OK);
    while (turn(false)) {
    }
    before = sent();
    assert_in_range(before, 1, BYTES - 1);
    while (!the.answered)
        assert_true(turn(true));
    assert_true(the.written_before >= before);
    while (the.written < BYTES)
        assert_true(turn(true));
}

static bool has_news(void)
{
    struct pollfd p = { the.news, POLLIN, 0 };
    return poll(&p, 1, 0) > 0;
}

/* While a client takes nothing the model has no turn, and what its descriptor says is no reason to
   look at it without pause. */
static void test_a_model_without_a_turn_is_not_looked_at(void **state)
{
    enum { ROUNDS = 10000 };
    const uint64_t one = 1;
    unsigned n = 0;
    (void)state;
    begin_writing();
    while (turn(false)) {
    }
    assert_in_range(sent(), 1, BYTES - 1);
    assert_int_equal(write(the.news, &one, sizeof one), (ssize_t)sizeof one);
    while (n < ROUNDS && turn(false))
        n++;
    assert_in_range(n, 0, ROUNDS - 1);
    assert_true(has_news());
    while (the.written < BYTES)
        assert_true(turn(true));
    assert_false(has_news());
    assert_int_equal(write(the.news, &one, sizeof one), (ssize_t)sizeof one);
    while (turn(false)) {
    }
    assert_false(has_news()); /* it is looked at again */
}

static int setup_nvme(void **state)
{
    (void)state;
    memset(&the, 0, sizeof the);
    the.news = -1;
    return open_both(&nvme_kind);
}

static uint32_t read_region(uint32_t region, uint64_t at)
{
    the.answered = false;
    assert_int_equal(dxpu_vfuc_read(the.client, region, at, 4, TAG_CONFIG), DXPU_OK);
    while (!the.answered)
        assert_true(turn(true));
    return the.value;
}

static uint32_t read_register(uint64_t at)
{
    return read_region(0, at);
}

/* --mrrs is for good: a client that sets another one changes nothing, nor does a reset. */
static void test_the_size_of_reads_is_an_option(void **state)
{
    enum { CONTROL = 0x68 };
    const uint8_t other[2] = { 0x10, 0x28 };
    (void)state;
    assert_int_equal(read_region(DXPU_VFU_CONFIG, CONTROL) >> 12 & 7, 1);
    assert_int_equal(
        dxpu_vfuc_write(the.client, DXPU_VFU_CONFIG, CONTROL, other, 2, false, TAG_NONE), DXPU_OK);
    assert_int_equal(read_region(DXPU_VFU_CONFIG, CONTROL) >> 12 & 7, 1);
    assert_int_equal(dxpu_vfuc_reset(the.client, TAG_NONE), DXPU_OK);
    assert_int_equal(read_region(DXPU_VFU_CONFIG, CONTROL) >> 12 & 7, 1);
}

/* A large write out of the controller memory buffer: one call copies 1 MB at most, and no message
   of the client's comes behind the doorbell. */
static void prepare_writes(unsigned count)
{
    enum { LIST = 0x80000, DATA = 0x100000, QUEUE = 0x1000 };
    uint8_t list[2048], e[64];
    for (uint64_t i = 0; i < 256; i++)
        dxpu_put_le64(list + 8 * i, BUFFER_AT + DATA + i % 256 * 4096);
    assert_int_equal(dxpu_vfuc_write(the.client, 2, LIST, list, sizeof list, true, 0), DXPU_OK);
    for (unsigned i = 0; i < count; i++) {
        memset(e, 0, sizeof e);
        dxpu_put_le32(e, 0x01 | i << 16);
        dxpu_put_le32(e + 4, 1);
        dxpu_put_le64(e + 24, BUFFER_AT + DATA);
        dxpu_put_le64(e + 32, BUFFER_AT + LIST + 8);
        dxpu_put_le32(e + 48, 2047);
        assert_int_equal(dxpu_vfuc_write(the.client, 2, QUEUE + i * 64, e, 64, true, 0), DXPU_OK);
    }
}

static void admin_command(unsigned index, uint32_t dw0, uint64_t at, uint32_t dw10, uint32_t dw11)
{
    uint8_t e[64] = { 0 };
    dxpu_put_le32(e, dw0 | index << 16);
    dxpu_put_le64(e + 24, at);
    dxpu_put_le32(e + 40, dw10);
    dxpu_put_le32(e + 44, dw11);
    assert_int_equal(dxpu_vfuc_write(the.client, 2, index * 64ull, e, 64, true, 0), DXPU_OK);
}

static void test_a_turn_with_a_limit_continues_by_itself(void **state)
{
    enum { WRITES = 16, DEPTH = 32 };
    const uint8_t command[2] = { MASTER_AND_MEMORY };
    (void)state;
    assert_int_equal(dxpu_vfuc_dma_map(the.client, MEM_AT, BYTES, DXPU_VFU_WRITE, TAG_NONE),
                     DXPU_OK);
    assert_int_equal(dxpu_vfuc_write(the.client, DXPU_VFU_CONFIG, 4, command, 2, false, TAG_NONE),
                     DXPU_OK);
    write_register(0x50, (uint32_t)BUFFER_AT | 3);
    write_register(0x54, (uint32_t)(BUFFER_AT >> 32));
    write_register(0x24, (DEPTH - 1) << 16 | (DEPTH - 1));
    write_register(0x28, (uint32_t)BUFFER_AT);
    write_register(0x2c, (uint32_t)(BUFFER_AT >> 32));
    write_register(0x30, (uint32_t)MEM_AT);
    write_register(0x34, (uint32_t)(MEM_AT >> 32));
    write_register(0x14, 0x460001);
    admin_command(0, 0x05, MEM_AT + 4096, (DEPTH - 1) << 16 | 1, 1);
    admin_command(1, 0x01, BUFFER_AT + 4096, (DEPTH - 1) << 16 | 1, 1 << 16 | 1);
    write_register(0x1000, 2);
    while (the.written < 32)
        assert_true(turn(true));
    prepare_writes(WRITES);
    write_register(0x1008, WRITES);
    while (the.written < 32 + WRITES * 16)
        assert_true(turn(true));
    assert_int_equal(report_value(fill, the.server, "commands_failed"), 0);
    assert_true(report_value(fill, the.server, "cmb_accesses") > WRITES * 256);
}

/* A client's reset is one of a driver that goes on, and that wrote CMBMSC once; when the client is
   gone none does. */
static void test_a_reset_keeps_the_place_of_the_buffer(void **state)
{
    enum { CMBMSC = 0x50, PLACE = 0x12345003 };
    (void)state;
    assert_int_equal(read_register(CMBMSC), 0);
    write_register(CMBMSC, PLACE);
    assert_int_equal(dxpu_vfuc_reset(the.client, TAG_NONE), DXPU_OK);
    assert_int_equal(read_register(CMBMSC), PLACE);
    dxpu_vfuc_disconnect(the.client, "the end");
    while (dxpu_vfuc_is_connected(the.client) || turn(false))
        (void)dxpu_vfuc_process(the.client);
    assert_int_equal(dxpu_vfuc_connect(the.client), DXPU_OK);
    while (!dxpu_vfuc_is_ready(the.client))
        assert_true(turn(true));
    assert_int_equal(read_register(CMBMSC), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_long_write_continues_by_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_config_read_is_behind_writes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_turn_with_a_limit_continues_by_itself, setup_nvme,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_the_size_of_reads_is_an_option, setup_nvme, teardown),
        cmocka_unit_test_setup_teardown(test_a_reset_keeps_the_place_of_the_buffer, setup_nvme,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_model_without_a_turn_is_not_looked_at, setup_noticed,
                                        teardown),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
