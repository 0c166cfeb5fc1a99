/* The vfio-user server against a scripted client: every message, every refusal, hostile input.
   SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "descriptors.h"
#include "dxpu_vfio_user.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VERSION = 1, MAP, UNMAP, INFO, REGION, IO_FDS, IRQ, SET_IRQS, READ, WRITE, DREAD, DWRITE };
enum { RESET = 13, MULTI = 15, FEATURE = 16, NO_REPLY = 0x10, FAILED = 0x21, REPLY = 1 };
enum { BAR_BYTES = 8192 };

/* One server, one client, and what the callbacks saw. */
typedef struct world {
    dxpu_vfu *s;
    dxpu_vfu_config cfg;
    char directory[16], path[20]; /* choose_path() */
    int c;                        /* the client's socket */
    int fds_before;
    uint8_t bar[BAR_BYTES];
    bool later; /* do not answer, keep the tokens */
    uint64_t tokens[64];
    dxpu_vfu_access seen[64];
    unsigned reads, writes, resets, connects, disconnects, dones, pause_after;
    bool interrupts; /* each write has one */
    unsigned sent, refused;
    const char *why;
    const dxpu_vfu_region *next; /* disconnected(), or write(), presents this function */
    const uint32_t *next_irqs;
    bool hide, present_in_write; /* disconnected() hides it; write() loses its client first */
    int done_error;
    uint64_t done_tag;
    uint8_t done_data[64];
    size_t done_len;
    /* the last message received */
    uint8_t in[70000];
    size_t in_len;
} world;

static void on_read(void *user, const dxpu_vfu_access *a)
{
    world *w = (world *)user;
    w->seen[w->reads % 64] = *a;
    w->tokens[w->reads++ % 64] = a->token;
    assert_true(a->token != 0);
    if (w->later)
        return;
    if (a->region == DXPU_VFU_CONFIG) {
        uint8_t config[256];
        memset(config, 0xc0, sizeof config);
        assert_int_equal(dxpu_vfu_reply_read(w->s, a->token, config, a->bytes), DXPU_OK);
    } else {
        assert_int_equal(dxpu_vfu_reply_read(w->s, a->token, w->bar + a->offset, a->bytes),
                         DXPU_OK);
    }
}

static void on_write(void *user, const dxpu_vfu_access *a, const uint8_t *data)
{
    world *w = (world *)user;
    w->seen[w->writes % 64] = *a;
    w->tokens[w->writes++ % 64] = a->token;
    if (a->region == 0)
        memcpy(w->bar + a->offset, data, a->bytes);
    if (w->pause_after && --w->pause_after == 0)
        dxpu_vfu_pause(w->s, true);
    if (w->present_in_write) {
        dxpu_vfu_disconnect(w->s);
        assert_int_equal(dxpu_vfu_present(w->s, w->next, w->next_irqs), DXPU_OK);
        return;
    }
    if (w->interrupts) {
        int rc = dxpu_vfu_msi(w->s, 0xfee00000, 0);
        assert_true(rc == DXPU_OK || rc == DXPU_E_AGAIN);
        w->sent += rc == DXPU_OK;
        w->refused += rc != DXPU_OK;
    }
    if (!w->later && a->token)
        assert_int_equal(dxpu_vfu_reply_write(w->s, a->token), DXPU_OK);
}

static void on_reset(void *user, uint64_t token)
{
    world *w = (world *)user;
    w->tokens[w->resets++ % 64] = token;
    if (!w->later && token)
        assert_int_equal(dxpu_vfu_reply_write(w->s, token), DXPU_OK);
}

static void on_connected(void *user)
{
    ((world *)user)->connects++;
}

static void on_disconnected(void *user, const char *why)
{
    world *w = (world *)user;
    w->disconnects++;
    w->why = why;
    if (w->hide || w->next)
        assert_int_equal(dxpu_vfu_present(w->s, w->hide ? NULL : w->next, w->next_irqs), DXPU_OK);
}

static void on_done(void *user, uint64_t tag, int error, dxpu_bytes data)
{
    world *w = (world *)user;
    w->dones++;
    w->done_tag = tag;
    w->done_error = error;
    w->done_len = data.len;
    if (data.len && data.len <= sizeof w->done_data)
        memcpy(w->done_data, data.ptr, data.len);
}

static dxpu_vfu_callbacks callbacks(world *w)
{
    dxpu_vfu_callbacks cb;
    cb.user = w;
    cb.read = on_read;
    cb.write = on_write;
    cb.reset = on_reset;
    cb.connected = on_connected;
    cb.disconnected = on_disconnected;
    cb.dma_done = on_done;
    return cb;
}

static bool readable(const world *w)
{
    struct pollfd p = { dxpu_vfu_fd(w->s), POLLIN, 0 };
    return poll(&p, 1, 0) == 1;
}

/* Run the server until there is nothing left to do. */
static void pump(world *w)
{
    int i;
    for (i = 0; i < 10000 && readable(w); i++)
        assert_int_equal(dxpu_vfu_process(w->s), DXPU_OK);
    assert_true(i < 10000); /* nothing must spin */
}

static void send_bytes(world *w, const void *p, size_t n, const int *fds, unsigned count)
{
    assert_int_equal(send_with_fds(w->c, p, n, fds, count, 0), n);
}

static size_t pack(uint8_t *out, uint16_t id, uint16_t command, uint32_t flags, const void *body,
                   size_t len)
{
    uint32_t size = (uint32_t)(16 + len), zero = 0;
    memcpy(out, &id, 2);
    memcpy(out + 2, &command, 2);
    memcpy(out + 4, &size, 4);
    memcpy(out + 8, &flags, 4);
    memcpy(out + 12, &zero, 4);
    if (len)
        memcpy(out + 16, body, len);
    return size;
}

static void put_message(world *w, uint16_t id, uint16_t command, uint32_t flags, const void *body,
                        size_t len, const int *fds, unsigned count)
{
    static uint8_t out[70000];
    send_bytes(w, out, pack(out, id, command, flags, body, len), fds, count);
}

static bool take_bytes(world *w, size_t at, size_t n)
{
    while (n > 0) {
        ssize_t got = recv(w->c, w->in + at, n, MSG_DONTWAIT);
        if (got <= 0)
            return false;
        at += (size_t)got;
        n -= (size_t)got;
    }
    return true;
}

/* The next message of the server into w->in; false when there is none. */
static bool take(world *w)
{
    uint32_t size;
    w->in_len = 0;
    if (!take_bytes(w, 0, 16))
        return false;
    memcpy(&size, w->in + 4, 4);
    assert_in_range(size, 16, sizeof w->in);
    assert_true(take_bytes(w, 16, size - 16));
    w->in_len = size;
    return true;
}

static uint32_t u32(const world *w, size_t at)
{
    uint32_t v;
    assert_true(at + 4 <= w->in_len);
    memcpy(&v, w->in + at, 4);
    return v;
}

static uint64_t u64(const world *w, size_t at)
{
    return u32(w, at) | (uint64_t)u32(w, at + 4)
                            << 32; /* the tests run on little-endian machines */
}

static void expect_reply(world *w, uint16_t id, uint16_t command, size_t len)
{
    assert_true(take(w));
    assert_int_equal(u32(w, 0), id | (uint32_t)command << 16);
    assert_int_equal(u32(w, 8), REPLY);
    assert_int_equal(w->in_len, 16 + len);
}

static void expect_error(world *w, uint16_t id, uint16_t command, int error)
{
    assert_true(take(w));
    assert_int_equal(u32(w, 0), id | (uint32_t)command << 16);
    assert_int_equal(u32(w, 8), FAILED);
    assert_int_equal(u32(w, 12), error);
    assert_int_equal(w->in_len, 16);
}

/* Ask and run the server. */
static void ask(world *w, uint16_t id, uint16_t command, const void *body, size_t len)
{
    put_message(w, id, command, 0, body, len, NULL, 0);
    pump(w);
}

static void ask_error(world *w, uint16_t command, const void *body, size_t len, int error)
{
    ask(w, 77, command, body, len);
    expect_error(w, 77, command, error);
}

static void say_version(world *w, const char *json)
{
    uint8_t body[4096] = { 0 };
    memcpy(body + 4, json, strlen(json) + 1);
    ask(w, 1, VERSION, body, 4 + strlen(json) + 1);
}

#define CAPS                                                                                       \
    "{\"capabilities\": {\"pgsizes\": 4096, \"max_msg_fds\": 16, \"max_dma_maps\": 65535, "        \
    "\"max_data_xfer_size\": 1048576, \"migration\": {\"pgsize\": 4096}, \"write_multiple\": "     \
    "true}}"

static void adopt(world *w)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(dxpu_vfu_adopt(w->s, pair[0]), DXPU_OK);
    w->c = pair[1];
}

static void greet(world *w)
{
    say_version(w, CAPS);
    assert_true(take(w));
    assert_int_equal(u32(w, 8), REPLY);
    assert_true(dxpu_vfu_is_connected(w->s));
}

static void open_server(world *w)
{
    const char *why = "";
    dxpu_vfu_callbacks cb = callbacks(w);
    w->s = dxpu_vfu_open(&w->cfg, &cb, &why);
    if (!w->s)
        fail_msg("%s", why);
}

/* The server's socket is in a directory of its own. */
static void choose_path(world *w)
{
    strcpy(w->directory, "/tmp/vfuXXXXXX");
    assert_non_null(mkdtemp(w->directory));
    snprintf(w->path, sizeof w->path, "%s/s", w->directory);
    w->cfg.path = w->path;
}

/* No file is left of the server. */
static void close_and_remove(world *w)
{
    dxpu_vfu_close(w->s);
    w->s = NULL;
    assert_int_equal(rmdir(w->directory), 0);
}

static world *world_new(void)
{
    world *w = (world *)calloc(1, sizeof *w);
    assert_non_null(w);
    w->fds_before = open_fds();
    w->c = -1;
    dxpu_vfu_config_default(&w->cfg);
    w->cfg.region[0].bytes = BAR_BYTES;
    w->cfg.region[0].access = DXPU_VFU_READ | DXPU_VFU_WRITE;
    w->cfg.region[1].bytes = 4096;
    w->cfg.region[1].access = DXPU_VFU_READ;
    w->cfg.region[4].bytes = (uint64_t)1 << 40;
    w->cfg.region[4].access = DXPU_VFU_READ | DXPU_VFU_WRITE;
    w->cfg.irqs[DXPU_VFU_INTX] = 1;
    w->cfg.irqs[DXPU_VFU_MSIX] = 4;
    return w;
}

static int setup_closed(void **state)
{
    *state = world_new();
    return 0;
}

static int setup(void **state)
{
    world *w = world_new();
    *state = w;
    open_server(w);
    adopt(w);
    greet(w);
    return 0;
}

/* Every test ends with: no descriptor more than before. */
static int teardown(void **state)
{
    world *w = (world *)*state;
    int now;
    dxpu_vfu_close(w->s);
    if (w->c >= 0)
        close(w->c);
    now = settled_fds(w->fds_before);
    if (now != w->fds_before)
        print_error("%d descriptors before, %d after\n", w->fds_before, now);
    now -= w->fds_before;
    free(w);
    return now;
}

static uint64_t counter(const world *w, const char *name)
{
    unsigned i;
    for (i = 0; dxpu_vfu_counter_name(i); i++)
        if (strcmp(dxpu_vfu_counter_name(i), name) == 0)
            return dxpu_vfu_counter_value(w->s, i);
    fail_msg("no counter %s", name);
    return 0;
}

/* The server dropped the client, and serves the next one. */
static void expect_broken(world *w, const char *why, unsigned disconnects)
{
    pump(w);
    while (take(w))
        ;
    assert_int_equal(recv(w->c, w->in, 1, MSG_DONTWAIT), 0);
    assert_int_equal(w->disconnects, disconnects);
    if (disconnects)
        assert_string_equal(w->why, why);
    assert_false(dxpu_vfu_is_connected(w->s));
    close(w->c);
    adopt(w);
    greet(w);
}

/* ==== version ================================================================================= */

static void test_version(void **state)
{
    world *w = (world *)*state;
    open_server(w);
    adopt(w);
    assert_false(dxpu_vfu_is_connected(w->s));
    assert_int_equal(dxpu_vfu_dma_message_bytes(w->s), 0);
    say_version(w, CAPS);
    assert_true(take(w));
    assert_int_equal(u32(w, 16), 0); /* 0.0 was proposed */
    assert_int_equal(w->in[w->in_len - 1], 0);
    assert_string_equal((char *)w->in + 20,
                        "{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":65536,"
                        "\"max_dma_maps\":4096,\"pgsizes\":4096,\"write_multiple\":true}}");
    assert_int_equal(w->connects, 1);
    assert_true(dxpu_vfu_is_connected(w->s));
    assert_int_equal(dxpu_vfu_dma_message_bytes(w->s), 65536);
    say_version(w, CAPS);
    expect_error(w, 1, VERSION, EINVAL);
    assert_true(dxpu_vfu_is_connected(w->s));
}

static void test_version_small_client(void **state)
{
    world *w = (world *)*state;
    static const uint8_t body[4] = { 0, 0, 9, 0 };
    open_server(w);
    adopt(w);
    ask(w, 1, VERSION, body, 4);
    assert_true(take(w));
    assert_int_equal(u32(w, 16), 0x10000); /* 0.9 was proposed, 0.1 is ours */
    assert_null(strstr((char *)w->in + 20, "write_multiple"));
    assert_int_equal(dxpu_vfu_dma_message_bytes(w->s), 65536);
    close(w->c);
    pump(w);
    adopt(w);
    say_version(w, "{\"x\":[1,{\"y\":\"\\\"}\"}],\"capabilities\":{\"q\":-1.5e3,"
                   "\"max_data_xfer_size\" :\t5000 , \"write_multiple\":false}, \"z\":null}");
    assert_true(take(w));
    assert_int_equal(u32(w, 8), REPLY);
    assert_null(strstr((char *)w->in + 20, "write_multiple"));
    assert_int_equal(dxpu_vfu_dma_message_bytes(w->s), 5000);
}

static void test_version_refused(void **state)
{
    world *w = (world *)*state;
    static const char *const bad[] = {
        "{",
        "x",
        "[]",
        "{\"capabilities\":1}",
        "{\"capabilities\":{\"max_data_xfer_size\":\"9\"}}",
        "{\"capabilities\":{\"max_data_xfer_size\":-9}}",
        "{\"capabilities\":{\"max_data_xfer_size\":18446744073709551616}}",
        "{\"capabilities\":{\"write_multiple\":{}}}",
        "{\"a\" 1}",
        "{\"a\":\"unfinished",
        "{\"a\":\"\\",
        "{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}",
        "{\"capabilities\":{}"
    };
    static const uint8_t major[5] = { 1, 0, 0, 0, 0 };
    unsigned i;
    open_server(w);
    for (i = 0; i < sizeof bad / sizeof bad[0] + 2; i++) {
        adopt(w);
        if (i < sizeof bad / sizeof bad[0])
            say_version(w, bad[i]);
        else
            ask(w, 1, VERSION, major, i % 2 ? 3 : 5);
        expect_error(w, 1, VERSION, EINVAL);
        assert_int_equal(recv(w->c, w->in, 1, MSG_DONTWAIT), 0);
        close(w->c);
    }
    assert_int_equal(counter(w, "clients_broken"), i);
    assert_int_equal(w->connects + w->disconnects, 0); /* never announced */
    adopt(w);
    greet(w);
}

static void test_version_must_come_first(void **state)
{
    world *w = (world *)*state;
    uint32_t body[4] = { 16, 0, 0, 0 };
    open_server(w);
    adopt(w);
    put_message(w, 5, INFO, 0, body, 16, NULL, 0);
    expect_broken(w, NULL, 0);
    ask(w, 5, INFO, body, 16);
    expect_reply(w, 5, INFO, 16); /* control: after the version it is answered */
}

/* ==== information ============================================================================= */

static void test_info(void **state)
{
    world *w = (world *)*state;
    uint32_t body[4] = { 16, 0, 0, 0 };
    ask(w, 2, INFO, body, 16);
    expect_reply(w, 2, INFO, 16);
    assert_int_equal(u32(w, 16), 16);
    assert_int_equal(u32(w, 20), 3);
    assert_int_equal(u32(w, 24), 9);
    assert_int_equal(u32(w, 28), 5);
    ask_error(w, INFO, body, 12, EINVAL);
    body[0] = 15;
    ask_error(w, INFO, body, 16, EINVAL);
}

static void test_region_info(void **state)
{
    world *w = (world *)*state;
    static const uint64_t size[10] = { BAR_BYTES, 4096, 0, 0, (uint64_t)1 << 40, 0, 0, 256, 0 };
    static const uint32_t flags[10] = { 3, 1, 0, 0, 3, 0, 0, 3, 0 };
    uint32_t body[8] = { 32, 0, 0, 0, 0, 0, 0, 0 };
    for (body[2] = 0; body[2] < 9; body[2]++) {
        ask(w, 3, REGION, body, 32);
        expect_reply(w, 3, REGION, 32);
        assert_int_equal(u32(w, 16), 32);
        assert_int_equal(u32(w, 20), flags[body[2]]);
        assert_int_equal(u32(w, 24), body[2]);
        assert_int_equal(u64(w, 32), size[body[2]]);
    }
    ask_error(w, REGION, body, 32, EINVAL); /* index 9 */
    body[2] = 0xffffffff;
    ask_error(w, REGION, body, 32, EINVAL);
    body[2] = 0;
    ask_error(w, REGION, body, 31, EINVAL);
    body[0] = 16;
    ask_error(w, REGION, body, 32, EINVAL);
}

static void test_irq_info(void **state)
{
    world *w = (world *)*state;
    uint32_t body[4] = { 16, 0, 0, 0 };
    static const uint32_t count[3] = { 1, 0, 4 }, flags[3] = { 7, 0, 1 };
    for (body[2] = 0; body[2] < 3; body[2]++) {
        ask(w, 4, IRQ, body, 16);
        expect_reply(w, 4, IRQ, 16);
        assert_int_equal(u32(w, 20), flags[body[2]]);
        assert_int_equal(u32(w, 24), body[2]);
        assert_int_equal(u32(w, 28), count[body[2]]);
    }
    for (body[2] = 3; body[2] < 7; body[2]++)
        ask_error(w, IRQ, body, 16, EINVAL);
    body[2] = 0;
    ask_error(w, IRQ, body, 8, EINVAL);
}

static void test_unknown_commands(void **state)
{
    world *w = (world *)*state;
    static const uint16_t cmd[] = { 0, 6, 11, 12, 14, 16, 17, 18, 19, 0xffff };
    static const int error[] = { ENOSYS,  ENOTSUP, ENOSYS,  ENOSYS, ENOSYS,
                                 ENOTSUP, ENOTSUP, ENOTSUP, ENOSYS, ENOSYS };
    uint8_t body[64] = { 0 };
    unsigned i;
    for (i = 0; i < sizeof cmd / sizeof cmd[0]; i++)
        ask_error(w, cmd[i], body, i * 5, error[i]);
    assert_int_equal(counter(w, "unknown"), i);
    put_message(w, 1, 99, NO_REPLY, body, 8, NULL, 0);
    pump(w);
    assert_false(take(w));
    assert_int_equal(counter(w, "errors_silent"), 1);
    assert_true(dxpu_vfu_is_connected(w->s));
}

/* ==== region accesses ========================================================================= */

static size_t access_body(uint8_t *out, uint32_t region, uint64_t offset, uint32_t bytes,
                          const void *data)
{
    memcpy(out, &offset, 8);
    memcpy(out + 8, &region, 4);
    memcpy(out + 12, &bytes, 4);
    if (!data)
        return 16;
    memcpy(out + 16, data, bytes);
    return 16 + (size_t)bytes;
}

static void put_read(world *w, uint16_t id, uint32_t region, uint64_t offset, uint32_t bytes)
{
    uint8_t b[16];
    put_message(w, id, READ, 0, b, access_body(b, region, offset, bytes, NULL), NULL, 0);
}

static void put_write(world *w, uint16_t id, uint32_t flags, uint32_t region, uint64_t offset,
                      uint32_t bytes, const void *data)
{
    static uint8_t b[70000];
    put_message(w, id, WRITE, flags, b, access_body(b, region, offset, bytes, data), NULL, 0);
}

static void test_read_and_write(void **state)
{
    world *w = (world *)*state;
    static uint8_t block[BAR_BYTES];
    unsigned i;
    for (i = 0; i < BAR_BYTES; i++)
        block[i] = (uint8_t)(i * 31 + (i >> 8));
    put_write(w, 9, 0, 0, 0, BAR_BYTES, block);
    pump(w);
    expect_reply(w, 9, WRITE, 16);
    assert_int_equal(u32(w, 28), BAR_BYTES);
    assert_memory_equal(w->bar, block, BAR_BYTES);
    put_write(w, 9, NO_REPLY, 0, 5, 3, "abc");
    put_read(w, 10, 0, 3, 7);
    pump(w);
    expect_reply(w, 10, READ, 16 + 7); /* the posted write has no reply and was done before */
    assert_int_equal(u64(w, 16), 3);
    assert_int_equal(u32(w, 24), 0);
    assert_int_equal(u32(w, 28), 7);
    memcpy(block + 5, "abc", 3);
    assert_memory_equal(w->in + 32, block + 3, 7);
    assert_int_equal(counter(w, "writes_posted"), 1);
    put_read(w, 11, DXPU_VFU_CONFIG, 252, 4);
    pump(w);
    expect_reply(w, 11, READ, 20);
    assert_int_equal(u32(w, 32), 0xc0c0c0c0);
    w->later = true;
    put_read(w, 12, 4, ((uint64_t)1 << 40) - 1, 1); /* the last byte of a large BAR */
    pump(w);
    assert_int_equal(w->seen[2].offset, ((uint64_t)1 << 40) - 1);
}

static void test_access_out_of_range(void **state)
{
    world *w = (world *)*state;
    static const struct {
        uint32_t region;
        uint64_t offset;
        uint32_t bytes;
        int error;
    } bad[] = { { 0, BAR_BYTES, 1, EINVAL },
                { 0, BAR_BYTES - 3, 4, EINVAL },
                { 0, UINT64_MAX, 1, EINVAL },
                { 0, UINT64_MAX - 3, 4, EINVAL },
                { 0, (uint64_t)1 << 63, 8, EINVAL },
                { 0, 0, 0, EINVAL },
                { 0, 0, BAR_BYTES + 1, EINVAL },
                { 4, 0, 65537, EINVAL },
                { 4, 0, 0xffffffff, EINVAL },
                { 4, 0, 0xfffffff0, EINVAL },
                { 2, 0, 4, EINVAL },
                { 8, 0, 1, EINVAL },
                { 9, 0, 1, EINVAL },
                { 0xffffffff, 0, 1, EINVAL },
                { DXPU_VFU_CONFIG, 255, 2, EINVAL } };
    uint8_t b[16 + 64] = { 0 };
    unsigned i;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        access_body(b, bad[i].region, bad[i].offset, bad[i].bytes, NULL);
        ask_error(w, READ, b, 16, bad[i].error);
        ask_error(w, WRITE, b, 16 + (bad[i].bytes <= 64 ? bad[i].bytes : 64), EINVAL);
    }
    access_body(b, 1, 0, 4, NULL);
    ask_error(w, WRITE, b, 20, EPERM); /* a read-only region */
    access_body(b, 0, 0, 4, NULL);
    ask_error(w, READ, b, 15, EINVAL);
    ask_error(w, READ, b, 17, EINVAL);
    ask_error(w, WRITE, b, 19, EINVAL); /* less data than it says */
    ask_error(w, WRITE, b, 21, EINVAL);
    ask_error(w, WRITE, b, 8, EINVAL);
    assert_int_equal(w->reads + w->writes, 0);
    put_message(w, 1, READ, NO_REPLY, b, 16, NULL, 0);
    pump(w);
    assert_false(take(w));
    assert_int_equal(w->reads, 0);
    ask(w, 1, READ, b, 16); /* control */
    expect_reply(w, 1, READ, 20);
}

static void test_answers_later_and_out_of_order(void **state)
{
    world *w = (world *)*state;
    unsigned i;
    w->later = true;
    for (i = 0; i < 8; i++)
        put_read(w, (uint16_t)(100 + i), 0, i * 8, 8);
    put_write(w, 7, 0, 0, 64, 8, "12345678");
    pump(w);
    assert_int_equal(w->reads, 8);
    assert_int_equal(w->writes, 1);
    assert_false(take(w));
    assert_int_equal(dxpu_vfu_unanswered(w->s), 9);
    w->tokens[8] = w->tokens[0]; /* on_write() took entry 0; the reads are 1 to 7 */
    for (i = 7; i > 0; i--) {
        uint64_t data = i;
        assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[i], &data, 8), DXPU_OK);
        expect_reply(w, (uint16_t)(100 + i), READ, 24);
        assert_int_equal(u64(w, 16), i * 8);
        assert_int_equal(u64(w, 32), i);
    }
    assert_int_equal(dxpu_vfu_reply_write(w->s, w->tokens[8]), DXPU_OK);
    expect_reply(w, 7, WRITE, 16);
    assert_int_equal(dxpu_vfu_unanswered(w->s), 1);
}

static void test_answers_refused(void **state)
{
    world *w = (world *)*state;
    uint64_t old;
    w->later = true;
    put_read(w, 1, 0, 0, 4);
    pump(w);
    old = w->tokens[0];
    assert_int_equal(dxpu_vfu_reply_read(w->s, old, "abc", 3), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_reply_write(w->s, old), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_reply_error(w->s, old, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_unanswered(w->s), 1);
    assert_int_equal(dxpu_vfu_reply_read(w->s, old, "abcd", 4), DXPU_OK);
    assert_int_equal(dxpu_vfu_reply_read(w->s, old, "abcd", 4), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_reply_error(w->s, old, EIO), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_reply_write(w->s, 0), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_reply_write(w->s, UINT64_MAX), DXPU_E_NONE);
    assert_int_equal(counter(w, "reply_refused"), 4);
    expect_reply(w, 1, READ, 20);
    assert_false(take(w));
    put_read(w, 2, 0, 0, 4); /* uses the same entry again */
    pump(w);
    assert_true(w->tokens[1] != old);
    assert_int_equal(dxpu_vfu_reply_read(w->s, old, "abcd", 4), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_reply_error(w->s, w->tokens[1], EIO), DXPU_OK);
    expect_error(w, 2, READ, EIO);
    assert_false(take(w));
}

static void test_late_answers_are_dropped(void **state)
{
    world *w = (world *)*state;
    unsigned i;
    w->cfg.late_ms = 1;
    w->cfg.requests = 1;
    w->cfg.queue_bytes = 131072;
    open_server(w);
    adopt(w);
    greet(w);
    w->later = true;
    for (i = 0; i < 50; i++) { /* the entry and its room come back each time */
        put_read(w, 1, 0, 0, 4096);
        pump(w);
        assert_int_equal(w->reads, i + 1);
        usleep(3000);
        assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[i], w->bar, 4096), DXPU_E_NONE);
        assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[i], w->bar, 4096), DXPU_E_NONE);
        assert_false(take(w));
    }
    assert_int_equal(counter(w, "reply_late"), 50);
    assert_int_equal(counter(w, "reply_refused"), 50);
    assert_int_equal(dxpu_vfu_unanswered(w->s), 0);
}

/* What waited during a pause was sent before it ended. */
static void test_late_counts_the_pause(void **state)
{
    world *w = (world *)*state;
    w->cfg.late_ms = 300;
    open_server(w);
    adopt(w);
    greet(w);
    w->later = true;
    put_read(w, 1, 0, 0, 4);
    pump(w);
    dxpu_vfu_pause(w->s, true);
    put_read(w, 2, 0, 0, 4);
    put_read(w, 3, 0, 0, 4);
    usleep(400000);
    dxpu_vfu_pause(w->s, false);
    pump(w);
    assert_int_equal(w->reads, 3);
    assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[0], "abcd", 4), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[1], "abcd", 4), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[2], "abcd", 4), DXPU_E_NONE);
    assert_int_equal(counter(w, "reply_late"), 3);
    put_read(w, 4, 0, 0, 4);
    pump(w);
    assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[3], "abcd", 4), DXPU_OK);
    expect_reply(w, 4, READ, 20); /* control: and only that */
    assert_false(take(w));
}

/* The same behind a message with a descriptor, at which the kernel ends a read. */
static void test_late_counts_the_pause_behind_descriptors(void **state)
{
    world *w = (world *)*state;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    uint8_t b[16] = { 16 };
    w->cfg.late_ms = 300;
    open_server(w);
    adopt(w);
    greet(w);
    w->later = true;
    dxpu_vfu_pause(w->s, true);
    put_message(w, 1, INFO, 0, b, sizeof b, &null, 1);
    put_read(w, 2, 0, 0, 4);
    usleep(400000);
    dxpu_vfu_pause(w->s, false);
    pump(w);
    expect_reply(w, 1, INFO, 16);
    assert_int_equal(w->reads, 1);
    assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[0], "abcd", 4), DXPU_E_NONE);
    put_message(w, 3, INFO, 0, b, sizeof b, &null, 1); /* control: nothing waited */
    put_read(w, 4, 0, 0, 4);
    pump(w);
    expect_reply(w, 3, INFO, 16);
    assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[1], "abcd", 4), DXPU_OK);
    expect_reply(w, 4, READ, 20);
    close(null);
}

static void test_tokens_of_a_gone_client(void **state)
{
    world *w = (world *)*state;
    uint64_t old;
    w->later = true;
    put_read(w, 1, 0, 0, 4);
    pump(w);
    old = w->tokens[0];
    close(w->c);
    pump(w);
    assert_int_equal(w->disconnects, 1);
    assert_int_equal(dxpu_vfu_unanswered(w->s), 0);
    assert_int_equal(dxpu_vfu_reply_read(w->s, old, "abcd", 4), DXPU_E_NONE);
    adopt(w);
    greet(w);
    put_read(w, 1, 0, 0, 4);
    pump(w);
    assert_int_equal(dxpu_vfu_reply_read(w->s, old, "abcd", 4), DXPU_E_NONE);
    assert_false(take(w));
    assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[1], "efgh", 4), DXPU_OK);
    expect_reply(w, 1, READ, 20);
    assert_memory_equal(w->in + 32, "efgh", 4);
}

static void test_reading_stops_without_room(void **state)
{
    world *w = (world *)*state;
    uint16_t i;
    uint64_t token;
    w->cfg.requests = 2;
    open_server(w);
    adopt(w);
    greet(w);
    w->later = true;
    for (i = 0; i < 5; i++)
        put_read(w, i, 0, i, 1);
    pump(w);
    assert_int_equal(w->reads, 2);
    assert_int_equal(dxpu_vfu_unanswered(w->s), 2);
    assert_false(readable(w)); /* it does not spin */
    for (i = 0; i < 5; i++) {
        token = w->tokens[i];
        assert_int_equal(dxpu_vfu_reply_read(w->s, token, "x", 1), DXPU_OK);
        pump(w);
        assert_int_equal(w->reads, i + 3 < 5 ? i + 3 : 5);
        expect_reply(w, i, READ, 17);
    }
    assert_true(counter(w, "stalls") >= 1);
}

static void test_stalled_client_leaves(void **state)
{
    world *w = (world *)*state;
    w->cfg.requests = 1;
    open_server(w);
    adopt(w);
    greet(w);
    w->later = true;
    put_read(w, 1, 0, 0, 1);
    put_read(w, 2, 0, 0, 1);
    pump(w);
    assert_int_equal(w->reads, 1);
    close(w->c);
    pump(w);
    assert_int_equal(w->disconnects, 1);
    adopt(w);
    greet(w);
}

static void test_pause(void **state)
{
    world *w = (world *)*state;
    unsigned i;
    uint8_t stream[5 * 48];
    size_t n = 0;
    for (i = 0; i < 5; i++) { /* five writes in one piece, and a pause after the second */
        uint8_t b[20];
        access_body(b, 0, i * 4, 4, "wxyz");
        n += pack(stream + n, (uint16_t)i, WRITE, NO_REPLY, b, 20);
    }
    w->pause_after = 2;
    send_bytes(w, stream, n, NULL, 0);
    pump(w);
    assert_int_equal(w->writes, 2);
    put_read(w, 9, 0, 0, 4);
    pump(w);
    assert_int_equal(w->reads, 0);
    dxpu_vfu_pause(w->s, true); /* no change */
    assert_false(readable(w));
    dxpu_vfu_pause(w->s, false);
    pump(w);
    assert_int_equal(w->writes, 5);
    expect_reply(w, 9, READ, 20);
    dxpu_vfu_pause(w->s, true);
    close(w->c);
    pump(w);
    assert_int_equal(w->disconnects, 1); /* a client that leaves is noticed in a pause */
    adopt(w);
    dxpu_vfu_pause(w->s, false);
    greet(w);
}

static void test_burst_is_limited(void **state)
{
    world *w = (world *)*state;
    unsigned i;
    w->cfg.burst = 3;
    open_server(w);
    adopt(w);
    greet(w);
    for (i = 0; i < 10; i++)
        put_write(w, 1, NO_REPLY, 0, i, 1, "q");
    for (i = 3; i < 10; i += 3) {
        assert_true(readable(w));
        assert_int_equal(dxpu_vfu_process(w->s), DXPU_OK);
        assert_int_equal(w->writes, i);
    }
    pump(w);
    assert_int_equal(w->writes, 10);
}

static size_t multi_body(uint8_t *out, uint64_t n)
{
    uint64_t i;
    memcpy(out, &n, 8);
    for (i = 0; i < n; i++) {
        uint8_t *p = out + 8 + 24 * i;
        memset(p, 0, 24);
        access_body(p, 0, i * 8, 8, "AAAAAAAA");
        p[16] = (uint8_t)i;
    }
    return 8 + 24 * (size_t)n;
}

static void test_write_multi(void **state)
{
    world *w = (world *)*state;
    uint8_t b[8 + 24 * 6];
    size_t len = multi_body(b, 5);
    uint64_t n;
    ask(w, 3, MULTI, b, len);
    expect_reply(w, 3, MULTI, 8);
    assert_int_equal(u64(w, 16), 5);
    assert_int_equal(w->writes, 5);
    assert_int_equal(w->bar[32], 4);
    assert_int_equal(w->bar[33], 'A');
    assert_int_equal(counter(w, "writes_posted"), 4);
    put_message(w, 3, MULTI, NO_REPLY, b, len, NULL, 0);
    pump(w);
    assert_false(take(w));
    assert_int_equal(w->writes, 10);
    b[8 + 24 * 3 + 12] = 9; /* nine bytes: more than an entry has; nothing is done */
    ask_error(w, MULTI, b, len, EINVAL);
    len = multi_body(b, 5);
    b[8 + 24 * 4 + 8] = 2; /* no such region */
    ask_error(w, MULTI, b, len, EINVAL);
    len = multi_body(b, 5);
    ask_error(w, MULTI, b, len - 1, EINVAL);
    ask_error(w, MULTI, b, 7, EINVAL);
    ask_error(w, MULTI, b, len + 24, EINVAL);
    n = UINT64_MAX / 24 + 2;
    memcpy(b, &n, 8);
    ask_error(w, MULTI, b, len, EINVAL);
    n = 0;
    memcpy(b, &n, 8);
    ask_error(w, MULTI, b, 8, EINVAL);
    assert_int_equal(w->writes, 10);
}

/* QEMU's longest, to a server that transfers as little as there is. */
static void test_write_multi_of_200(void **state)
{
    world *w = (world *)*state;
    static uint8_t b[8 + 24 * 201], block[4097];
    size_t len = multi_body(b, 200);
    w->cfg.transfer_bytes = 4096;
    open_server(w);
    adopt(w);
    greet(w);
    ask(w, 3, MULTI, b, len);
    expect_reply(w, 3, MULTI, 8);
    assert_int_equal(w->writes, 200);
    assert_int_equal(w->bar[199 * 8], 199);
    put_write(w, 4, 0, 0, 0, sizeof block, block); /* no longer accesses for that */
    pump(w);
    expect_error(w, 4, WRITE, EINVAL);
    put_message(w, 3, MULTI, 0, b, multi_body(b, 201), NULL, 0);
    expect_broken(w, "a message of an impossible size arrived", 1);
}

static void test_write_multi_paused(void **state)
{
    world *w = (world *)*state;
    uint8_t b[8 + 24 * 5];
    size_t len = multi_body(b, 5);
    w->pause_after = 2;
    put_message(w, 3, MULTI, 0, b, len, NULL, 0);
    put_read(w, 4, 0, 0, 1);
    pump(w);
    assert_int_equal(w->writes, 2);
    assert_false(take(w));
    w->pause_after = 2;
    dxpu_vfu_pause(w->s, false);
    pump(w);
    assert_int_equal(w->writes, 4);
    dxpu_vfu_pause(w->s, false);
    pump(w);
    assert_int_equal(w->writes, 5);
    expect_reply(w, 3, MULTI, 8);
    expect_reply(w, 4, READ, 17);
}

static void test_reset(void **state)
{
    world *w = (world *)*state;
    ask(w, 1, RESET, NULL, 0);
    expect_reply(w, 1, RESET, 0);
    w->later = true;
    ask(w, 2, RESET, NULL, 0);
    assert_false(take(w));
    assert_int_equal(dxpu_vfu_reply_read(w->s, w->tokens[1], "", 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_reply_write(w->s, w->tokens[1]), DXPU_OK);
    expect_reply(w, 2, RESET, 0);
    put_message(w, 3, RESET, NO_REPLY, NULL, 0, NULL, 0);
    pump(w);
    assert_false(take(w));
    assert_int_equal(w->resets, 3);
    assert_true(w->tokens[2] == 0);
    ask_error(w, RESET, "x", 1, EINVAL);
}

static void test_reset_not_offered(void **state)
{
    world *w = (world *)*state;
    uint32_t body[4] = { 16, 0, 0, 0 };
    w->cfg.can_reset = false;
    open_server(w);
    adopt(w);
    greet(w);
    ask_error(w, RESET, NULL, 0, ENOTSUP);
    ask(w, 2, INFO, body, 16);
    expect_reply(w, 2, INFO, 16);
    assert_int_equal(u32(w, 20), 2);
    assert_int_equal(w->resets, 0);
}

/* ==== guest memory ============================================================================ */

static int memory_file(size_t bytes, bool sealed)
{
    int fd = memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    if (sealed)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    return fd;
}

typedef struct map_body {
    uint32_t argsz, flags;
    uint64_t offset, address, bytes;
} map_body;

static map_body map_of(uint32_t flags, uint64_t offset, uint64_t address, uint64_t bytes)
{
    map_body b;
    b.argsz = 32;
    b.flags = flags;
    b.offset = offset;
    b.address = address;
    b.bytes = bytes;
    return b;
}

static void put_map(world *w, map_body b, int fd)
{
    put_message(w, 20, MAP, 0, &b, sizeof b, &fd, fd >= 0);
    pump(w);
}

static void map_ok(world *w, map_body b, int fd)
{
    put_map(w, b, fd);
    expect_reply(w, 20, MAP, 0);
}

static void map_error(world *w, map_body b, int fd, int error)
{
    put_map(w, b, fd);
    expect_error(w, 20, MAP, error);
}

static void unmap(world *w, uint32_t flags, uint64_t address, uint64_t bytes, int error)
{
    struct {
        uint32_t argsz, flags;
        uint64_t address, bytes;
    } b;
    b.argsz = 24;
    b.flags = flags;
    b.address = address;
    b.bytes = bytes;
    ask(w, 21, UNMAP, &b, 24);
    if (error) {
        expect_error(w, 21, UNMAP, error);
        return;
    }
    expect_reply(w, 21, UNMAP, 24);
    assert_memory_equal(w->in + 16, &b, 24);
}

static void copies(world *w, bool sealed)
{
    int fd = memory_file(16384, sealed);
    uint8_t *m = (uint8_t *)mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    static uint8_t block[8192], back[8192];
    unsigned i;
    size_t n;
    for (i = 0; i < sizeof block; i++)
        block[i] = (uint8_t)(i * 7 + 1);
    map_ok(w, map_of(3, 4096, 0x100000, 12288), fd);
    for (n = 1; n <= 300; n++) { /* all lengths and alignments around the copy's steps */
        memset(m, 0, 16384);
        assert_int_equal(dxpu_vfu_dma_write(w->s, 0x100000 + n % 17, block, n), DXPU_OK);
        assert_memory_equal(m + 4096 + n % 17, block, n);
        assert_int_equal(m[4096 + n % 17 + n], 0);
        assert_int_equal(m[4096 + n % 17 - 1], 0);
        assert_int_equal(dxpu_vfu_dma_read(w->s, 0x100000 + n % 17, back, n), DXPU_OK);
        assert_memory_equal(back, block, n);
    }
    assert_int_equal(dxpu_vfu_dma_write(w->s, 0x101000, block, 8192), DXPU_OK);
    assert_memory_equal(m + 8192, block, 8192);
    assert_int_equal(dxpu_vfu_dma_write(w->s, 0x101001, block, 8192), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_dma_write(w->s, 0xfffff, block, 2), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_dma_read(w->s, 0x103000, back, 1), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_dma_read(w->s, 0x100000, back, 0), DXPU_E_NONE);
    assert_int_equal(counter(w, "dma_refused"), 4);
    munmap(m, 16384);
    close(fd);
}

static void test_dma_copies(void **state)
{
    copies((world *)*state, true);
}

static void test_dma_copies_guarded(void **state)
{
    copies((world *)*state, false);
}

static void test_dma_several_regions(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(5 * 4096, true);
    dxpu_vfu_memory mem;
    uint8_t in[12288], back[12288];
    unsigned i;
    uint32_t changes = dxpu_vfu_memory_changes(w->s);
    for (i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i ^ i >> 8);
    /* given in no order: 1 is file page 4, 3 page 0, 2 page 2 read-only, 4 a hole, 5 page 1 */
    map_ok(w, map_of(3, 4 * 4096, 0x1000, 4096), fd);
    map_ok(w, map_of(3, 0, 0x3000, 4096), fd);
    map_ok(w, map_of(1, 2 * 4096, 0x2000, 4096), fd);
    map_ok(w, map_of(3, 4096, 0x5000, 4096), fd);
    for (i = 0; dxpu_vfu_memory_at(w->s, i, &mem); i++)
        assert_true(mem.direct && mem.bytes == 4096 && mem.access == (i == 1 ? 1 : 3));
    assert_int_equal(i, 4);
    assert_int_equal(dxpu_vfu_memory_changes(w->s) - changes, 4);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 0x3000, DXPU_VFU_READ), DXPU_VFU_DMA_DIRECT);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 0x3000, DXPU_VFU_WRITE), DXPU_VFU_DMA_NONE);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x3fff, 1, 3), DXPU_VFU_DMA_DIRECT);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x3fff, 2, 3), DXPU_VFU_DMA_NONE);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x4fff, 2, 3), DXPU_VFU_DMA_NONE);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0, 0x1001, 1), DXPU_VFU_DMA_NONE);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, UINT64_MAX, 1), DXPU_VFU_DMA_VOID);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 0, 1), DXPU_VFU_DMA_VOID);
    assert_int_equal(dxpu_vfu_dma_write(w->s, 0x1ffc, in, 8), DXPU_E_NONE);
    assert_int_equal(pread(fd, back, 4, 4 * 4096 + 0xffc), 4);
    assert_memory_equal(back, "\0\0\0\0", 4); /* refused as a whole */
    assert_int_equal(pwrite(fd, in, 4096, 4 * 4096), 4096);
    assert_int_equal(pwrite(fd, in + 4096, 4096, 2 * 4096), 4096);
    assert_int_equal(pwrite(fd, in + 8192, 4096, 0), 4096);
    assert_int_equal(dxpu_vfu_dma_read(w->s, 0x1000, back, 0x3000), DXPU_OK);
    assert_memory_equal(in, back, 0x3000);
    assert_int_equal(dxpu_vfu_dma_read(w->s, 0x1000, back, 0x3001), DXPU_E_NONE);
    unmap(w, 0, 0x2000, 4096, 0);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 0x3000, DXPU_VFU_READ), DXPU_VFU_DMA_NONE);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x3000, 0x1000, 3), DXPU_VFU_DMA_DIRECT);
    close(fd);
}

static void test_dma_top_of_the_address_space(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(8192, true);
    uint8_t b[16];
    map_ok(w, map_of(3, 0, UINT64_MAX - 4095, 4096), fd);
    assert_int_equal(dxpu_vfu_dma_write(w->s, UINT64_MAX - 15, "0123456789abcdef", 16), DXPU_OK);
    assert_int_equal(dxpu_vfu_dma_read(w->s, UINT64_MAX - 15, b, 16), DXPU_OK);
    assert_memory_equal(b, "0123456789abcdef", 16);
    assert_int_equal(dxpu_vfu_dma_read(w->s, UINT64_MAX - 14, b, 16), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, UINT64_MAX, 1, 3), DXPU_VFU_DMA_DIRECT);
    map_error(w, map_of(3, 0, UINT64_MAX - 4094, 4096), fd, EINVAL);
    unmap(w, 0, UINT64_MAX - 4095, 4096, 0);
    close(fd);
}

static void test_dma_map_refused(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(8192, true), ro, ends[2], two[2];
    char path[64];
    map_body b;
    dxpu_vfu_memory mem;
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ro = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(ro >= 0);
    map_error(w, map_of(3, 0, 0x1000, 8193), fd, EINVAL); /* beyond the file */
    map_error(w, map_of(3, 4096, 0x1000, 8192), fd, EINVAL);
    map_error(w, map_of(3, 8192, 0x1000, 4096), fd, EINVAL);
    map_error(w, map_of(3, UINT64_MAX, 0x1000, 4096), fd, EINVAL);
    map_error(w, map_of(3, UINT64_MAX - 4095, 0x1000, 8192), fd, EINVAL);
    map_error(w, map_of(3, 0, 0, (uint64_t)1 << 63), fd, EINVAL);
    map_error(w, map_of(3, 0, 0, UINT64_MAX), fd, EINVAL);
    map_error(w, map_of(3, 0, 0x1000, 0), fd, EINVAL);
    map_error(w, map_of(4, 0, 0x1000, 4096), fd, EINVAL);
    map_error(w, map_of(3, 0, UINT64_MAX - 4094, 4096), fd, EINVAL);
    map_error(w, map_of(3, 0, 0x1000, 4096), ends[0], EINVAL);
    map_error(w, map_of(3, 0, 0x1000, 4096), w->c, EINVAL);
    map_error(w, map_of(3, 0, 0x1000, 4096), ro, EACCES);
    b = map_of(3, 0, 0x1000, 4096);
    two[0] = two[1] = fd;
    put_message(w, 20, MAP, 0, &b, sizeof b, two, 2);
    pump(w);
    expect_error(w, 20, MAP, EINVAL);
    ask_error(w, MAP, &b, 31, EINVAL);
    b.argsz = 16;
    map_error(w, b, fd, EINVAL);
    assert_false(dxpu_vfu_memory_at(w->s, 0, &mem));
    map_ok(w, map_of(1, 0, 0x1000, 4096), ro); /* controls */
    map_ok(w, map_of(3, 0, 0x10000, 8192), fd);
    /* overlap: from below, from above, inside, around, the same */
    map_error(w, map_of(3, 0, 0xf000, 4097), fd, EEXIST);
    map_error(w, map_of(3, 0, 0x11fff, 1), fd, EEXIST);
    map_error(w, map_of(3, 0, 0x10800, 16), fd, EEXIST);
    map_error(w, map_of(3, 0, 0xf000, (uint64_t)1 << 40), -1, EEXIST);
    map_error(w, map_of(3, 0, 0x10000, 8192), fd, EEXIST);
    map_ok(w, map_of(3, 0, 0xf000, 4096), fd);
    close(fd);
    close(ro);
    close(ends[0]);
    close(ends[1]);
}

/* Mappings of a memory file that this process has. */
static unsigned mappings(void)
{
    char line[512];
    unsigned n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        n += strstr(line, "memfd:guest") != NULL;
    fclose(f);
    return n;
}

static void test_dma_unmap(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(8192, true);
    uint8_t b[24] = { 24 };
    int before;
    map_ok(w, map_of(3, 0, 0x1000, 8192), fd);
    map_ok(w, map_of(3, 0, 0x4000, 8192), -1);
    unmap(w, 0, 0x1000, 4096, ENOENT);
    unmap(w, 0, 0x2000, 4096, ENOENT);
    unmap(w, 0, 0x0, 8192, ENOENT);
    unmap(w, 0, 0x1000, 0, ENOENT);
    unmap(w, 1, 0x1000, 8192, EINVAL);
    unmap(w, 2, 0x1000, 8192, EINVAL); /* all, but with a range */
    ask_error(w, UNMAP, b, 23, EINVAL);
    b[0] = 23;
    ask_error(w, UNMAP, b, 24, EINVAL);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 8192, 3), DXPU_VFU_DMA_DIRECT);
    assert_int_equal(mappings(), 1);
    unmap(w, 0, 0x1000, 8192, 0);
    assert_int_equal(mappings(), 0);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 1, 1), DXPU_VFU_DMA_NONE);
    map_ok(w, map_of(3, 0, 0x1000, 8192), fd);
    before = open_fds();
    unmap(w, 2, 0, 0, 0);
    assert_int_equal(mappings(), 0);
    assert_int_equal(open_fds(), before);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x4000, 1, 1), DXPU_VFU_DMA_NONE);
    unmap(w, 2, 0, 0, 0);
    close(fd);
}

static void test_dma_map_limit(void **state)
{
    world *w = (world *)*state;
    unsigned i;
    w->cfg.dma_maps = 3;
    open_server(w);
    adopt(w);
    greet(w);
    for (i = 0; i < 3; i++)
        map_ok(w, map_of(3, 0, 0x10000 - i * 0x2000, 4096), -1);
    map_error(w, map_of(3, 0, 0, 4096), -1, ENOSPC);
    unmap(w, 0, 0xe000, 4096, 0);
    map_ok(w, map_of(3, 0, 0, 4096), -1);
}

/* Opened here and not by setup(): cmocka takes SIGBUS for itself in between. */
static void open_with_client(world *w)
{
    open_server(w);
    adopt(w);
    greet(w);
}

/* The client shrinks the file behind a mapping: an error, no signal. */
static void test_s172_memory_taken_away(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(8192, false);
    uint8_t b[8] = { 1 };
    open_with_client(w);
    map_ok(w, map_of(3, 0, 0x1000, 8192), fd);
    assert_int_equal(dxpu_vfu_dma_write(w->s, 0x2ff8, b, 8), DXPU_OK);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(dxpu_vfu_dma_write(w->s, 0x2ff8, b, 8), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_dma_read(w->s, 0x2ff8, b, 8), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_dma_read(w->s, 0x1ff8, b, 8), DXPU_OK);
    assert_int_equal(dxpu_vfu_dma_write(w->s, 0x1ffc, b, 8), DXPU_E_NONE); /* across its end */
    assert_int_equal(counter(w, "dma_faults"), 3);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(dxpu_vfu_dma_write(w->s, 0x2ff8, b, 8), DXPU_OK); /* there again */
    close(fd);
}

/* After its size was looked at, and before its seals could be. */
static void (*after_fstat)(int fd);

int fstat(int fd, struct stat *st)
{
    int rc = fstatat(fd, "", st, AT_EMPTY_PATH);
    if (after_fstat)
        after_fstat(fd);
    return rc;
}

static void cut_and_seal(int fd)
{
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
}

static void test_s172_truncated_before_it_is_sealed(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(8192, false);
    uint8_t b[8] = { 1 };
    open_with_client(w);
    after_fstat = cut_and_seal;
    map_ok(w, map_of(3, 0, 0x1000, 8192), fd);
    after_fstat = NULL;
    assert_int_equal(dxpu_vfu_dma_write(w->s, 0x1000, b, 8), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_dma_read(w->s, 0x1000, b, 8), DXPU_E_NONE);
    assert_int_equal(counter(w, "dma_faults"), 2);
    close(fd);
}

/* One that truncates and extends its memory, over and over, while devices use it. */
typedef struct cutter {
    int fd;
    atomic_bool stop;
} cutter;

static void *cut(void *user)
{
    cutter *c = (cutter *)user;
    while (!c->stop) {
        if (ftruncate(c->fd, 0) || ftruncate(c->fd, 65536))
            return user;
    }
    return NULL;
}

/* From a thread that blocks all signals, as the threads of guests do. */
typedef struct copier {
    world *w;
    unsigned good, bad;
} copier;

static void *copy_much(void *user)
{
    copier *c = (copier *)user;
    static uint8_t b[8192];
    unsigned i;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (i = 0; i < 2000000 && (i < 20000 || !c->good || !c->bad); i++) {
        uint64_t at = 0x1000 + i * 264 % 57344;
        int rc = i & 1 ? dxpu_vfu_dma_write(c->w->s, at, b, i * 8 % sizeof b + 1)
                       : dxpu_vfu_dma_read(c->w->s, at, b, i * 8 % sizeof b + 1);
        c->good += rc == DXPU_OK;
        c->bad += rc == DXPU_E_NONE;
    }
    return NULL;
}

static void test_s172_truncated_meanwhile(void **state)
{
    world *w = (world *)*state;
    copier busy = { w, 0, 0 };
    cutter c;
    pthread_t cuts, copies_it;
    void *failed;
    c.fd = memory_file(65536, false);
    c.stop = false;
    open_with_client(w);
    map_ok(w, map_of(3, 0, 0x1000, 65536), c.fd);
    assert_int_equal(pthread_create(&cuts, NULL, cut, &c), 0);
    assert_int_equal(pthread_create(&copies_it, NULL, copy_much, &busy), 0);
    assert_int_equal(pthread_join(copies_it, NULL), 0);
    c.stop = true;
    assert_int_equal(pthread_join(cuts, &failed), 0);
    assert_null(failed);
    assert_true(busy.good > 0 && busy.bad > 0);
    assert_int_equal(counter(w, "dma_faults"), busy.bad);
    close(c.fd);
}

/* A fault that is not a client's ends the process as before. */
static void test_s172_other_faults_are_not_hidden(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(4096, false), status = 0;
    pid_t child;
    assert_true(signal(SIGBUS, SIG_DFL) != SIG_ERR);
    open_with_client(w);
    map_ok(w, map_of(3, 0, 0x1000, 4096), fd);
    child = fork();
    if (child == 0) {
        volatile uint8_t *m =
            (uint8_t *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        struct rlimit none = { 0, 0 };
        uint8_t b;
        (void)setrlimit(RLIMIT_CORE, &none);
        if (ftruncate(fd, 0) || dxpu_vfu_dma_read(w->s, 0x1000, &b, 1) != DXPU_E_NONE)
            _exit(1);
        _exit(m[0] == 1 ? 2 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
    close(fd);
}

/* Neither size nor file system is queried of a file that is not memory: FUSE would ask its server,
   which may be the client. */
static unsigned asked;

int fstatfs(int fd, struct statfs *f)
{
    asked++;
    return (int)syscall(SYS_fstatfs, fd, f);
}

static void count_fstat(int fd)
{
    (void)fd;
    asked++;
}

static void test_s170_nothing_is_asked_of_other_files(void **state)
{
    world *w = (world *)*state;
    int memory = memory_file(4096, true), disk = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int ends[2], ev = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(pipe(ends), 0);
    asked = 0;
    after_fstat = count_fstat;
    map_ok(w, map_of(1, 0, 0x2000, 4096), disk);
    map_error(w, map_of(1, 0, 0x3000, 4096), w->c, EINVAL);
    map_error(w, map_of(1, 0, 0x3000, 4096), ends[0], EINVAL);
    map_error(w, map_of(1, 0, 0x3000, 4096), ev, EINVAL);
    assert_int_equal(asked, 0);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x2000, 4096, 1), DXPU_VFU_DMA_MESSAGE);
    assert_int_equal(counter(w, "dma_by_message"), 1);
    map_ok(w, map_of(1, 0, 0x4000, 4096), memory); /* control */
    after_fstat = NULL;
    assert_int_equal(asked, 2);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x4000, 4096, 1), DXPU_VFU_DMA_DIRECT);
    close(memory);
    close(disk);
    close(ends[0]);
    close(ends[1]);
    close(ev);
}

static void test_dma_by_message_regions(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(4096, true), other = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    uint8_t b[8];
    map_ok(w, map_of(3, 0, 0x1000, 4096), fd);
    map_ok(w, map_of(1, 0, 0x2000, 4096), -1);
    map_ok(w, map_of(1, 0, 0x3000, 4096), other); /* a file on a disk could make us wait */
    close(other);
    close(fd);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1ffc, 8, 1), DXPU_VFU_DMA_MESSAGE);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1ffc, 8, 3), DXPU_VFU_DMA_NONE);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1ffc, 4, 3), DXPU_VFU_DMA_DIRECT);
    assert_int_equal(dxpu_vfu_dma_read(w->s, 0x1ffc, b, 8), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_dma_read(w->s, 0x1ffc, b, 4), DXPU_OK);
}

/* ==== DMA by message ========================================================================== */

/* The server's request is in w->in: answer it. */
static void answer_dma(world *w, uint32_t flags, uint64_t address, uint64_t count, const void *data,
                       size_t len)
{
    uint8_t b[128];
    memcpy(b, &address, 8);
    memcpy(b + 8, &count, 8);
    if (len)
        memcpy(b + 16, data, len);
    put_message(w, (uint16_t)u32(w, 0), (uint16_t)(u32(w, 0) >> 16), flags, b, 16 + len, NULL, 0);
    pump(w);
}

static void test_dma_messages(void **state)
{
    world *w = (world *)*state;
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0x1234, 8, 42), DXPU_OK);
    assert_true(take(w));
    assert_int_equal(u32(w, 0) >> 16, DREAD);
    assert_int_equal(u32(w, 8), 0);
    assert_int_equal(u64(w, 16), 0x1234);
    assert_int_equal(u64(w, 24), 8);
    answer_dma(w, REPLY, 0x1234, 8, "datadata", 8);
    assert_int_equal(w->dones, 1);
    assert_int_equal(w->done_tag, 42);
    assert_int_equal(w->done_error, 0);
    assert_int_equal(w->done_len, 8);
    assert_memory_equal(w->done_data, "datadata", 8);
    answer_dma(w, REPLY, 0x1234, 8, "datadata", 8); /* again */
    assert_int_equal(w->dones, 1);
    assert_int_equal(counter(w, "reply_unexpected"), 1);
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0x1234, 8, 44), DXPU_OK);
    answer_dma(w, REPLY, 0x1234, 8, "datadata", 8); /* still to the first: not taken for the next */
    assert_int_equal(w->dones, 1);
    assert_true(take(w));
    answer_dma(w, REPLY, 0x1234, 8, "DATADATA", 8);
    assert_int_equal(w->dones, 2);
    assert_int_equal(w->done_tag, 44);
    assert_int_equal(dxpu_vfu_dma_send_write(w->s, 0x99, "hello", 5, false, 43), DXPU_OK);
    assert_true(take(w));
    assert_int_equal(u32(w, 0) >> 16, DWRITE);
    assert_int_equal(w->in_len, 37);
    assert_memory_equal(w->in + 32, "hello", 5);
    answer_dma(w, REPLY, 0x99, 5, NULL, 0);
    assert_int_equal(w->dones, 3);
    assert_int_equal(w->done_tag, 43);
    assert_int_equal(w->done_error, 0);
    assert_int_equal(w->done_len, 0);
    for (size_t len = 0; len <= 12; len += 4) { /* QEMU's header alone; a count of 4 bytes */
        uint8_t b[12] = { 0x99, 0, 0, 0, 0, 0, 0, 0, 5 };
        assert_int_equal(dxpu_vfu_dma_send_write(w->s, 0x99, "hello", 5, false, 45), DXPU_OK);
        assert_true(take(w));
        put_message(w, (uint16_t)u32(w, 0), DWRITE, REPLY, b, len, NULL, 0);
        pump(w);
        assert_int_equal(w->done_tag, 45);
        assert_int_equal(w->done_error, len == 0 || len == 12 ? 0 : EPROTO);
    }
    assert_int_equal(dxpu_vfu_msi(w->s, 0xfee01004, 0x4321), DXPU_OK);
    assert_true(take(w));
    assert_int_equal(u32(w, 0) >> 16, DWRITE);
    assert_int_equal(u32(w, 8), NO_REPLY);
    assert_int_equal(u32(w, 0) & 0xffff, 0xffff); /* no other message has this id */
    assert_int_equal(u64(w, 16), 0xfee01004);
    assert_int_equal(u64(w, 24), 4);
    assert_memory_equal(w->in + 32, "\x21\x43\0\0", 4);
    assert_int_equal(dxpu_vfu_msi(w->s, 0xfee01002, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0, 0, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0, 65537, 1), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, UINT64_MAX, 2, 1), DXPU_E_ARG);
    assert_int_equal(counter(w, "dma_sent"), 8);
}

static void test_dma_messages_answered_wrongly(void **state)
{
    world *w = (world *)*state;
    static const struct {
        bool write;
        uint32_t flags;
        uint64_t address, count;
        size_t len;
        int error;
    } bad[] = {
        { false, FAILED, 0x1000, 8, 0, EIO },          { false, REPLY, 0x1000, 8, 7, EPROTO },
        { false, REPLY, 0x1000, 8, 9, EPROTO },        { false, REPLY, 0x1000, 7, 8, EPROTO },
        { false, REPLY, 0x1001, 8, 8, EPROTO },        { false, REPLY, 0x1000, 8, 0, EPROTO },
        { true, REPLY, 0x1001, 8, 0, EPROTO },         { true, REPLY, 0x1000, 9, 0, EPROTO },
        { true, REPLY, 0x1000, UINT64_MAX, 0, EPROTO }
    };
    unsigned i;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (bad[i].write)
            assert_int_equal(dxpu_vfu_dma_send_write(w->s, 0x1000, "12345678", 8, false, i), 0);
        else
            assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0x1000, 8, i), DXPU_OK);
        assert_true(take(w));
        answer_dma(w, bad[i].flags, bad[i].address, bad[i].count, "xxxxxxxxxxxx", bad[i].len);
        assert_int_equal(w->dones, i + 1);
        assert_int_equal(w->done_tag, i);
        assert_int_equal(w->done_error, bad[i].error);
        assert_int_equal(w->done_len, 0);
    }
    assert_int_equal(counter(w, "dma_errors"), i);
    put_message(w, 0xffff, DWRITE, FAILED, NULL, 0, NULL, 0); /* a posted one failed */
    pump(w);
    assert_int_equal(counter(w, "dma_errors"), i + 1);
    put_message(w, 0xfffe, DREAD, REPLY, NULL, 0, NULL, 0);
    put_message(w, 1, INFO, REPLY, NULL, 0, NULL, 0);
    pump(w);
    assert_int_equal(counter(w, "reply_unexpected"), 2);
    assert_true(dxpu_vfu_is_connected(w->s));
}

static void test_dma_messages_limit(void **state)
{
    world *w = (world *)*state;
    unsigned i;
    w->cfg.dma_messages = 3;
    open_server(w);
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0, 4, 0), DXPU_E_CLOSED);
    assert_int_equal(dxpu_vfu_msi(w->s, 0xfee00000, 0), DXPU_E_CLOSED);
    adopt(w);
    assert_int_equal(dxpu_vfu_msi(w->s, 0xfee00000, 0), DXPU_E_CLOSED); /* no version yet */
    greet(w);
    for (i = 0; i < 3; i++)
        assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0, 4, i), DXPU_OK);
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0, 4, 3), DXPU_E_AGAIN);
    assert_int_equal(dxpu_vfu_msi(w->s, 0xfee00000, 0), DXPU_OK); /* posted ones do not count */
    assert_true(take(w));
    answer_dma(w, REPLY, 0, 4, "abcd", 4);
    assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0, 4, 3), DXPU_OK);
    close(w->c); /* with three of them out: no call, all void */
    pump(w);
    assert_int_equal(w->dones, 1);
    adopt(w);
    greet(w);
    for (i = 0; i < 3; i++)
        assert_int_equal(dxpu_vfu_dma_send_read(w->s, 0, 4, i), DXPU_OK);
}

/* Fill the output queue with DMA writes of `bytes` to addresses that count up from `at`. */
static unsigned fill(world *w, unsigned at, size_t bytes)
{
    static uint8_t big[60000];
    unsigned sent = 0;
    int rc = DXPU_OK;
    while (rc == DXPU_OK && sent < 10000) {
        memset(big, (int)(at + sent), bytes);
        rc = dxpu_vfu_dma_send_write(w->s, at + sent, big, bytes, true, 0);
        sent += rc == DXPU_OK;
    }
    assert_int_equal(rc, DXPU_E_AGAIN); /* bounded */
    return sent;
}

/* Receive the write to address `at`, which may come in pieces. */
static void drain(world *w, unsigned at, size_t bytes)
{
    size_t size = 16 + 16 + bytes, here = 0;
    int tries = 0;
    while (here < size && tries++ < 1000) {
        ssize_t n = recv(w->c, w->in + here, size - here, MSG_DONTWAIT);
        if (n > 0)
            here += (size_t)n;
        pump(w);
    }
    assert_int_equal(here, size);
    w->in_len = here;
    assert_int_equal(u32(w, 4), size);
    assert_int_equal(u64(w, 16), at);
    assert_int_equal(w->in[32], at & 0xff);
    assert_int_equal(w->in[size - 1], at & 0xff);
}

static void test_output_waits_for_the_socket(void **state)
{
    world *w = (world *)*state;
    unsigned i, first, more, small;
    first = fill(w, 0, 60000);
    assert_in_range(first, 16, 40);
    assert_int_equal(counter(w, "output_waited"), 1);
    for (i = 0; i < first / 2; i++)
        drain(w, i, 60000);
    more = fill(w, first, 60000); /* behind what is left */
    assert_true(more > 2);
    small = fill(w, first + more, 1);
    put_read(w, 5, 0, 0, 4); /* no room for an answer: not taken, until there is */
    pump(w);
    assert_int_equal(w->reads, 0);
    assert_int_equal(counter(w, "stalls"), 1);
    for (; i < first + more; i++)
        drain(w, i, 60000);
    for (; i < first + more + small; i++)
        drain(w, i, 1);
    pump(w);
    expect_reply(w, 5, READ, 20);
    assert_false(take(w));
    assert_false(readable(w));
}

/* What the callbacks of a message with several writes send does not take the room of its answer. */
static void test_write_multi_that_interrupts(void **state)
{
    enum { BIG = 60000, SIZE = BIG + 32, LEFT = 260, MSI = 36, WRITES = 9 };
    static uint8_t last[SIZE];
    world *w = (world *)*state;
    uint8_t b[8 + 24 * WRITES];
    size_t len = multi_body(b, WRITES), rest;
    unsigned i, n = fill(w, 0, BIG);
    int unread = 0;
    assert_int_equal(ioctl(w->c, FIONREAD, &unread), 0);
    rest = w->cfg.queue_bytes - (n - (unsigned)unread / SIZE) * (size_t)SIZE - LEFT - 32;
    memset(last, (int)n, rest);
    assert_int_equal(dxpu_vfu_dma_send_write(w->s, n, last, rest, true, 0), DXPU_OK);
    w->interrupts = true;
    put_message(w, 3, MULTI, 0, b, len, NULL, 0);
    pump(w);
    assert_int_equal(w->writes, WRITES);
    assert_int_equal(w->sent, (LEFT - 32) / MSI);
    assert_int_equal(w->refused, WRITES - w->sent);
    for (i = 0; i < n; i++)
        drain(w, i, BIG);
    drain(w, n, rest);
    for (i = 0; i < w->sent; i++) {
        assert_true(take(w));
        assert_int_equal(u64(w, 16), 0xfee00000);
    }
    expect_reply(w, 3, MULTI, 8);
    assert_int_equal(u64(w, 16), WRITES);
    assert_false(take(w));
}

static void test_client_that_never_reads_leaves(void **state)
{
    world *w = (world *)*state;
    static uint8_t big[60000];
    while (dxpu_vfu_dma_send_write(w->s, 0, big, sizeof big, true, 0) == DXPU_OK)
        ;
    close(w->c);
    pump(w);
    assert_int_equal(w->disconnects, 1);
    adopt(w);
    greet(w);
}

/* ==== interrupts ============================================================================== */

static int event(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

static unsigned events(int fd)
{
    uint64_t v;
    return read(fd, &v, 8) == 8 ? (unsigned)v : 0;
}

static void put_irqs(world *w, uint32_t flags, uint32_t irq, uint32_t start, uint32_t count,
                     const uint8_t *bools, const int *fds, unsigned nfds)
{
    uint32_t b[5 + 4];
    b[0] = 20;
    b[1] = flags;
    b[2] = irq;
    b[3] = start;
    b[4] = count;
    if (bools)
        memcpy(b + 5, bools, count);
    put_message(w, 30, SET_IRQS, 0, b, 20 + (bools ? count : 0), fds, nfds);
    pump(w);
}

enum { NONE = 1, BOOLS = 2, FDS = 4, MASK = 8, UNMASK = 16, TRIGGER = 32 };

static void test_irqs(void **state)
{
    world *w = (world *)*state;
    int fd[4];
    unsigned i;
    static const uint8_t bools[2] = { 0, 1 };
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 0), DXPU_E_NONE);
    for (i = 0; i < 4; i++)
        fd[i] = event();
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 3, NULL, fd, 3);
    expect_reply(w, 30, SET_IRQS, 0);
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 3, 1, NULL, fd + 3, 1);
    expect_reply(w, 30, SET_IRQS, 0);
    for (i = 0; i < 4; i++) {
        assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, i), DXPU_OK);
        assert_int_equal(events(fd[i]), 1);
        assert_int_equal(events(fd[(i + 1) % 4]), 0);
    }
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 4), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSI, 0), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, 5, 0), DXPU_E_ARG);
    put_irqs(w, NONE | MASK, DXPU_VFU_MSIX, 1, 1, NULL, NULL, 0);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 1), DXPU_OK);
    assert_int_equal(events(fd[1]), 0); /* remembered */
    put_irqs(w, BOOLS | UNMASK, DXPU_VFU_MSIX, 0, 2, bools, NULL, 0);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(events(fd[1]), 1);
    put_irqs(w, NONE | UNMASK, DXPU_VFU_MSIX, 1, 1, NULL, NULL, 0);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(events(fd[1]), 0); /* once */
    put_irqs(w, BOOLS | TRIGGER, DXPU_VFU_MSIX, 2, 2, bools, NULL, 0);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(events(fd[2]), 0);
    assert_int_equal(events(fd[3]), 1);
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 2, 2, NULL, NULL, 0); /* take two away */
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 2), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 1), DXPU_OK);
    put_irqs(w, NONE | TRIGGER, DXPU_VFU_MSIX, 0, 0, NULL, NULL, 0); /* take all away */
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 1), DXPU_E_NONE);
    for (i = 0; i < 4; i++)
        close(fd[i]);
}

static void test_irq_intx_masks_itself(void **state)
{
    world *w = (world *)*state;
    int fd = event();
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_INTX, 0, 1, NULL, &fd, 1);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_INTX, 0), DXPU_OK);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_INTX, 0), DXPU_OK);
    assert_int_equal(events(fd), 1);
    put_irqs(w, NONE | UNMASK, DXPU_VFU_INTX, 0, 1, NULL, NULL, 0);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(events(fd), 1); /* the second one */
    close(fd);
}

/* INTx is a level: while a device asserts it, an interrupt that was served is repeated. */
static void test_irq_levels(void **state)
{
    world *w = (world *)*state;
    int fd = event();
    assert_int_equal(dxpu_vfu_irq_level(w->s, DXPU_VFU_INTX, 1, true), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_irq_level(w->s, DXPU_VFU_INTX, 0, true), DXPU_E_NONE);
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_INTX, 0, 1, NULL, &fd, 1); /* asserted before */
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(events(fd), 1);
    assert_int_equal(dxpu_vfu_irq_level(w->s, DXPU_VFU_INTX, 0, true), DXPU_OK);
    assert_int_equal(events(fd), 0); /* no edge, and masked */
    put_irqs(w, NONE | UNMASK, DXPU_VFU_INTX, 0, 1, NULL, NULL, 0);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(events(fd), 1); /* served, and still asserted */
    assert_int_equal(dxpu_vfu_irq_level(w->s, DXPU_VFU_INTX, 0, false), DXPU_OK);
    put_irqs(w, NONE | UNMASK, DXPU_VFU_INTX, 0, 1, NULL, NULL, 0);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(events(fd), 0);
    assert_int_equal(dxpu_vfu_irq_level(w->s, DXPU_VFU_INTX, 0, true), DXPU_OK);
    assert_int_equal(events(fd), 1);   /* control: an edge */
    for (unsigned on = 2; on-- > 0;) { /* up and down while masked: it is low when unmasked */
        assert_int_equal(dxpu_vfu_irq_level(w->s, DXPU_VFU_INTX, 0, false), DXPU_OK);
        assert_int_equal(dxpu_vfu_irq_level(w->s, DXPU_VFU_INTX, 0, true), DXPU_OK);
        (void)dxpu_vfu_irq_level(w->s, DXPU_VFU_INTX, 0, on);
        put_irqs(w, NONE | UNMASK, DXPU_VFU_INTX, 0, 1, NULL, NULL, 0);
        expect_reply(w, 30, SET_IRQS, 0);
        assert_int_equal(events(fd), on); /* control: once, where it is still high */
    }
    assert_int_equal(dxpu_vfu_irq_level(w->s, DXPU_VFU_INTX, 0, true), DXPU_OK);
    assert_int_equal(events(fd), 1);
    dxpu_vfu_disconnect(w->s);
    pump(w);
    close(w->c);
    adopt(w);
    greet(w);
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_INTX, 0, 1, NULL, &fd, 1);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(events(fd), 1); /* kept for the next client */
    close(fd);
}

static void test_irqs_refused(void **state)
{
    world *w = (world *)*state;
    int fd[9], ends[2], before, i;
    uint32_t b[5] = { 20, NONE | TRIGGER, DXPU_VFU_MSIX, 0, 1 };
    static const uint32_t bad[][4] = {
        { NONE, DXPU_VFU_MSIX, 0, 1 },
        { TRIGGER, DXPU_VFU_MSIX, 0, 1 },
        { NONE | BOOLS | TRIGGER, DXPU_VFU_MSIX, 0, 1 },
        { NONE | MASK | UNMASK, DXPU_VFU_MSIX, 0, 1 },
        { NONE | TRIGGER | 0x40, DXPU_VFU_MSIX, 0, 1 },
        { NONE | TRIGGER, 5, 0, 1 },
        { NONE | TRIGGER, 0xffffffff, 0, 1 },
        { NONE | TRIGGER, DXPU_VFU_MSIX, 4, 1 },
        { NONE | TRIGGER, DXPU_VFU_MSIX, 0, 5 },
        { NONE | TRIGGER, DXPU_VFU_MSIX, 1, 0xffffffff },
        { NONE | TRIGGER, DXPU_VFU_MSIX, 0xffffffff, 2 },
        { NONE | MASK, DXPU_VFU_MSIX, 0, 0 },
        { NONE | TRIGGER, DXPU_VFU_MSIX, 1, 0 },
        { BOOLS | TRIGGER, DXPU_VFU_MSIX, 0, 2 },
        { NONE | TRIGGER, DXPU_VFU_MSI, 0, 1 },
    };
    for (i = 0; i < (int)(sizeof bad / sizeof bad[0]); i++) {
        put_irqs(w, bad[i][0], bad[i][1], bad[i][2], bad[i][3], NULL, NULL, 0);
        expect_error(w, 30, SET_IRQS, EINVAL);
    }
    ask_error(w, SET_IRQS, b, 19, EINVAL);
    b[0] = 19;
    ask_error(w, SET_IRQS, b, 20, EINVAL);
    assert_int_equal(pipe(ends), 0);
    for (i = 0; i < 9; i++)
        fd[i] = event();
    before = open_fds();
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 1, NULL, &ends[1], 1); /* no eventfd */
    expect_error(w, 30, SET_IRQS, EINVAL);
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 2, NULL, fd, 1); /* too few */
    expect_error(w, 30, SET_IRQS, EINVAL);
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 2, NULL, fd, 3); /* too many */
    expect_error(w, 30, SET_IRQS, EINVAL);
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 4, NULL, fd, 9); /* more than a message may have */
    expect_error(w, 30, SET_IRQS, EMFILE);
    put_irqs(w, FDS | MASK, DXPU_VFU_MSIX, 0, 1, NULL, fd, 1);
    expect_error(w, 30, SET_IRQS, ENOTSUP);
    assert_int_equal(settled_fds(before), before);
    assert_int_equal(counter(w, "fds_lost"), 1);
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 1, NULL, fd, 1); /* control */
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(open_fds(), before + 1);
    for (i = 0; i < 9; i++)
        close(fd[i]);
    close(ends[0]);
    close(ends[1]);
}

/* A full eventfd must not make the server wait, whatever its owner set; it is signalled already. */
static void test_s173_full_eventfd(void **state)
{
    world *w = (world *)*state;
    int fd = eventfd(0, EFD_CLOEXEC);
    uint64_t most = UINT64_MAX - 1;
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 1, NULL, &fd, 1);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(write(fd, &most, 8), 8);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0); /* blocking again */
    alarm(20);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 0), DXPU_OK);
    alarm(0);
    assert_int_equal(read(fd, &most, 8), 8);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 0), DXPU_OK); /* control */
    assert_int_equal(read(fd, &most, 8), 8);
    assert_int_equal(most, 1);
    close(fd);
}

/* An owner that fills the counter and makes it blocking while the server signals. */
typedef struct filler {
    int fd;
    atomic_bool stop;
    unsigned rounds;
} filler;

static void *fill_and_block(void *user)
{
    filler *f = (filler *)user;
    uint64_t v;
    while (!f->stop) {
        v = UINT64_MAX - 1;
        (void)fcntl(f->fd, F_SETFL, O_NONBLOCK);
        (void)!read(f->fd, &v, 8);
        v = UINT64_MAX - 1;
        (void)!write(f->fd, &v, 8);
        (void)fcntl(f->fd, F_SETFL, 0);
        f->rounds++;
    }
    return NULL;
}

static void test_s173_eventfd_filled_meanwhile(void **state)
{
    world *w = (world *)*state;
    filler f;
    pthread_t thread;
    unsigned i;
    f.fd = eventfd(0, EFD_CLOEXEC);
    f.stop = false;
    f.rounds = 0;
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 1, NULL, &f.fd, 1);
    expect_reply(w, 30, SET_IRQS, 0);
    assert_int_equal(pthread_create(&thread, NULL, fill_and_block, &f), 0);
    alarm(60);
    for (i = 0; i < 100000; i++)
        assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 0), DXPU_OK);
    alarm(0);
    f.stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(f.rounds > 0);
    close(f.fd);
}

/* ==== hostile clients ========================================================================= */

static int dial(const world *w)
{
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    strcpy(a.sun_path, w->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void test_impossible_headers(void **state)
{
    world *w = (world *)*state;
    static const uint32_t size[] = {
        0, 1, 15, 16 + 16 + 65537, 0x7fffffff, 0x80000000, UINT32_MAX
    };
    uint8_t b[16];
    uint32_t type = 2;
    unsigned i;
    for (i = 0; i < sizeof size / sizeof size[0]; i++) {
        pack(b, 1, INFO, 0, NULL, 0);
        memcpy(b + 4, &size[i], 4);
        send_bytes(w, b, 16, NULL, 0);
        expect_broken(w, "a message of an impossible size arrived", i + 1);
    }
    for (; type < 16; type++, i++) {
        pack(b, 1, INFO, type, NULL, 0);
        send_bytes(w, b, 16, NULL, 0);
        expect_broken(w, "a message that is neither command nor reply arrived", i + 1);
    }
    assert_int_equal(counter(w, "clients_broken"), i);
}

static void test_pieces(void **state)
{
    world *w = (world *)*state;
    uint8_t stream[3 * 64], b[20];
    size_t n = 0, i;
    access_body(b, 0, 16, 4, "WXYZ");
    n += pack(stream, 1, WRITE, 0, b, 20);
    n += pack(stream + n, 2, READ, 0, b, 16);
    n += pack(stream + n, 3, RESET, 0, NULL, 0);
    for (i = 0; i < n; i++) { /* byte by byte */
        send_bytes(w, stream + i, 1, NULL, 0);
        pump(w);
    }
    expect_reply(w, 1, WRITE, 16);
    expect_reply(w, 2, READ, 20);
    assert_memory_equal(w->in + 32, "WXYZ", 4);
    expect_reply(w, 3, RESET, 0);
    send_bytes(w, stream, 30, NULL, 0); /* and half of one, then gone */
    pump(w);
    assert_int_equal(w->writes, 1);
    close(w->c);
    pump(w);
    assert_int_equal(w->disconnects, 1);
    adopt(w);
    greet(w); /* the half message is forgotten */
}

static void test_descriptors_find_their_message(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(8192, true), before = open_fds(), seven[7], i;
    uint8_t stream[256], b[16];
    map_body m1 = map_of(3, 0, 0x1000, 4096), m2 = map_of(3, 4096, 0x2000, 4096),
             m3 = map_of(3, 0, 0x3000, 4096);
    size_t n;
    /* sent before the server reads any of it: a plain message, a map with fd, another with fd */
    access_body(b, 0, 0, 4, NULL);
    put_message(w, 1, READ, 0, b, 16, &fd, 1); /* a read wants none */
    put_message(w, 2, MAP, 0, &m1, sizeof m1, &fd, 1);
    put_message(w, 3, READ, 0, b, 16, NULL, 0);
    put_message(w, 4, MAP, 0, &m2, sizeof m2, &fd, 1);
    pump(w);
    expect_reply(w, 1, READ, 20);
    expect_reply(w, 2, MAP, 0);
    expect_reply(w, 3, READ, 20);
    expect_reply(w, 4, MAP, 0);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 8192, 3), DXPU_VFU_DMA_DIRECT);
    assert_int_equal(counter(w, "fds_closed"), 1);
    unmap(w, 2, 0, 0, 0);
    /* a plain message and a map in one piece; then a map in two pieces, the first with it */
    n = pack(stream, 5, READ, 0, b, 16);
    n += pack(stream + n, 6, MAP, 0, &m1, sizeof m1);
    send_bytes(w, stream, n, &fd, 1);
    n = pack(stream, 7, MAP, 0, &m2, sizeof m2);
    send_bytes(w, stream, 10, &fd, 1);
    pump(w);
    send_bytes(w, stream + 10, n - 10, NULL, 0);
    put_message(w, 8, MAP, 0, &m3, sizeof m3, &fd, 1);
    pump(w);
    expect_reply(w, 5, READ, 20);
    expect_reply(w, 6, MAP, 0);
    expect_reply(w, 7, MAP, 0);
    expect_reply(w, 8, MAP, 0);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 0x3000, 3), DXPU_VFU_DMA_DIRECT);
    /* descriptors with every byte of a message, then a message that never ends */
    for (i = 0; i < 7; i++)
        seven[i] = fd;
    n = pack(stream, 9, MAP, 0, &m1, sizeof m1);
    for (i = 0; i < (int)n - 1; i++)
        send_bytes(w, stream + i, 1, seven, 7);
    pump(w);
    close(w->c);
    pump(w);
    assert_int_equal(w->disconnects, 1);
    w->c = -1;
    assert_int_equal(open_fds(), before - 2); /* both ends of the pair are gone, nothing else */
    adopt(w);
    greet(w);
    close(fd);
}

/* No descriptor is left: they are given lowest first, and all up to the last one are in use.
   Returns the limit of before. */
static struct rlimit limit_fds(int last)
{
    struct rlimit old, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = (rlim_t)last + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    return old;
}

/* No descriptor left for what comes: the message is refused, the connection stays. */
static void test_descriptors_run_out(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(4096, true);
    map_body m = map_of(3, 0, 0x1000, 4096);
    struct rlimit old;
    put_message(w, 2, MAP, 0, &m, sizeof m, &fd, 1);
    old = limit_fds(fd);
    pump(w);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    expect_error(w, 2, MAP, EMFILE);
    assert_int_equal(counter(w, "fds_lost"), 1);
    put_map(w, m, fd); /* control */
    expect_reply(w, 20, MAP, 0);
    close(fd);
}

/* The same for a connection: it is closed at once instead of waiting in the queue for ever. */
static void test_connections_run_out(void **state)
{
    world *w = (world *)*state;
    struct rlimit old;
    int client;
    choose_path(w);
    open_server(w);
    client = dial(w);
    old = limit_fds(client);
    pump(w);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(recv(client, w->in, 1, MSG_DONTWAIT), 0);
    close(client);
    assert_int_equal(counter(w, "clients_refused"), 1);
    w->c = dial(w);
    pump(w);
    greet(w); /* control */
    close_and_remove(w);
}

static bool steal; /* the second accept4() from now on: another thread has the number by then */
static unsigned accepts;
static int stolen = -1;

int accept4(int fd, __SOCKADDR_ARG a, socklen_t *len, int flags)
{
    if (steal && ++accepts == 2)
        stolen = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return (int)syscall(SYS_accept4, fd, a.__sockaddr__, len, flags);
}

/* The reserve is lost to another thread: it is taken back when there is a descriptor again. */
static void test_reserve_is_taken_back(void **state)
{
    world *w = (world *)*state;
    struct rlimit old;
    int client;
    choose_path(w);
    open_server(w);
    client = dial(w);
    old = limit_fds(client);
    steal = true;
    assert_int_equal(dxpu_vfu_process(w->s), DXPU_OK);
    steal = false;
    assert_true(stolen >= 0); /* control */
    close(stolen);
    pump(w); /* the free one is the reserve, so the connection is refused */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(recv(client, w->in, 1, MSG_DONTWAIT), 0);
    assert_int_equal(counter(w, "clients_refused"), 1);
    close(client);
    client = dial(w);
    (void)limit_fds(client);
    pump(w);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(recv(client, w->in, 1, MSG_DONTWAIT), 0);
    assert_int_equal(counter(w, "clients_refused"), 2);
    close(client);
    close_and_remove(w);
}

/* The function has BAR2 of `bytes` and `vectors` of MSI-X. */
static void expect_function(world *w, uint64_t bytes, uint32_t vectors)
{
    uint32_t b[8] = { 32, 0, 2 };
    ask(w, 5, REGION, b, 32);
    expect_reply(w, 5, REGION, 32);
    assert_int_equal(u64(w, 16 + 16), bytes);
    b[0] = 16;
    ask(w, 6, IRQ, b, 16);
    expect_reply(w, 6, IRQ, 16);
    assert_int_equal(u32(w, 16 + 12), vectors);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, vectors - 1), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, vectors), DXPU_E_ARG);
}

/* A server without a function answers no one; the next client sees the function of then. */
static void test_another_function(void **state)
{
    world *w = (world *)*state;
    dxpu_vfu_region region[DXPU_VFU_REGIONS];
    uint32_t irqs[DXPU_VFU_IRQS] = { 0, 0, 9, 0, 0 };
    choose_path(w);
    memset(region, 0, sizeof region);
    region[2].bytes = 8192;
    region[2].access = DXPU_VFU_READ;
    w->cfg.hidden = true;
    open_server(w);
    w->c = dial(w);
    say_version(w, CAPS);
    pump(w);
    assert_false(take(w)); /* it waits */
    assert_int_equal(dxpu_vfu_present(w->s, region, irqs), DXPU_OK);
    pump(w);
    assert_true(take(w));
    assert_true(dxpu_vfu_is_connected(w->s));
    assert_int_equal(dxpu_vfu_present(w->s, NULL, NULL), DXPU_E_FULL);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 8), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 9), DXPU_E_ARG);
    expect_function(w, 8192, 9);
    dxpu_vfu_disconnect(w->s);
    pump(w);
    close(w->c);
    irqs[2] = 2049;
    assert_int_equal(dxpu_vfu_present(w->s, region, irqs), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 8), DXPU_E_NONE); /* unchanged */
    irqs[2] = 3;
    region[2].bytes = 4096;
    w->c = dial(w); /* it has said nothing when another function is presented */
    pump(w);
    assert_int_equal(dxpu_vfu_present(w->s, region, irqs), DXPU_OK);
    assert_int_equal(recv(w->c, w->in, 1, MSG_DONTWAIT), 0);
    close(w->c);
    w->c = dial(w);
    pump(w);
    greet(w);
    expect_function(w, 4096, 3);
    dxpu_vfu_disconnect(w->s);
    assert_int_equal(dxpu_vfu_present(w->s, NULL, NULL), DXPU_OK);
    pump(w);
    close(w->c);
    w->c = dial(w);
    say_version(w, CAPS);
    assert_false(take(w)); /* it waits */
    assert_int_equal(w->disconnects, 2);
    close_and_remove(w);
}

/* Presented between the loss of a client and disconnected(), which presents, too. */
static void test_another_function_for_a_lost_client(void **state)
{
    world *w = (world *)*state;
    dxpu_vfu_region region[DXPU_VFU_REGIONS], none[DXPU_VFU_REGIONS];
    uint32_t irqs[DXPU_VFU_IRQS] = { 0, 0, 9, 0, 0 };
    int fd = event();
    memset(region, 0, sizeof region);
    memset(none, 0, sizeof none);
    region[2].bytes = 4096;
    region[2].access = DXPU_VFU_READ;
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 1, NULL, &fd, 1);
    expect_reply(w, 30, SET_IRQS, 0);
    w->next = region;
    w->next_irqs = irqs;
    dxpu_vfu_disconnect(w->s);
    assert_int_equal(dxpu_vfu_present(w->s, none, irqs), DXPU_OK);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 0), DXPU_E_NONE);
    assert_int_equal(w->disconnects, 0);
    pump(w);
    assert_int_equal(w->disconnects, 1);
    close(w->c);
    adopt(w);
    greet(w);
    expect_function(w, 4096, 9);
    close(fd);
}

/* The same inside of write(), with messages of that client left. */
static void test_another_function_in_a_callback(void **state)
{
    world *w = (world *)*state;
    dxpu_vfu_region region[DXPU_VFU_REGIONS];
    uint32_t irqs[DXPU_VFU_IRQS] = { 0, 0, 9, 0, 0 };
    unsigned i;
    memset(region, 0, sizeof region);
    region[2].bytes = 4096;
    region[2].access = DXPU_VFU_READ;
    w->next = region;
    w->next_irqs = irqs;
    w->present_in_write = true;
    for (i = 0; i < 5; i++)
        put_write(w, 1, NO_REPLY, 0, i, 1, "q");
    pump(w);
    assert_int_equal(w->writes, 1);
    assert_int_equal(w->disconnects, 1);
    close(w->c);
    adopt(w);
    greet(w);
    expect_function(w, 4096, 9);
    assert_int_equal(w->writes, 1);
}

/* A client that is gone gives way, and then there is no function: the next one waits. */
static void test_hidden_when_a_client_gives_way(void **state)
{
    world *w = (world *)*state;
    unsigned i;
    choose_path(w);
    w->cfg.burst = 1;
    w->hide = true;
    open_server(w);
    w->c = dial(w);
    pump(w);
    greet(w);
    for (i = 0; i < 10; i++)
        put_write(w, 1, NO_REPLY, 0, i, 1, "q");
    close(w->c);
    w->c = dial(w);
    say_version(w, CAPS);
    assert_int_equal(w->disconnects, 1);
    assert_false(dxpu_vfu_is_connected(w->s));
    assert_false(take(w));
    assert_int_equal(dxpu_vfu_present(w->s, w->cfg.region, w->cfg.irqs), DXPU_OK);
    pump(w);
    assert_true(take(w)); /* control */
    close_and_remove(w);
}

/* A socket whose last close() waits, until *peer is closed. */
static int lingering(int *peer)
{
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    struct linger wait = { 1, 3600 };
    static const char block[65536];
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(l, 1), 0);
    assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    *peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    assert_true(*peer >= 0);
    close(l);
    while (send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
    return fd;
}

/* Send one with a message; the server's descriptor is then the last. */
static int send_lingering(world *w)
{
    int peer, fd = lingering(&peer);
    put_message(w, 9, INFO, 0, "\20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, &fd, 1);
    close(fd);
    return peer;
}

typedef struct closing {
    int fd;
    atomic_bool done;
} closing;

static void *close_it(void *user)
{
    closing *c = (closing *)user;
    close(c->fd);
    c->done = true;
    return NULL;
}

static void test_s171_control_close_that_waits(void **state)
{
    closing c;
    pthread_t thread;
    int peer;
    (void)state;
    c.fd = lingering(&peer);
    c.done = false;
    assert_int_equal(pthread_create(&thread, NULL, close_it, &c), 0);
    usleep(20000);
    assert_false(c.done);
    close(peer);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(c.done);
}

static void test_s171_close_that_waits(void **state)
{
    world *w = (world *)*state;
    int peer[40], i, answers = 0;
    alarm(60);
    for (i = 0; i < 40; i++)
        peer[i] = send_lingering(w);
    pump(w);
    while (take(w))
        answers++;
    assert_int_equal(answers, 16); /* no more is received then */
    assert_int_equal(counter(w, "fds_closed"), 16);
    assert_true(counter(w, "stalls") > 0);
    for (i = 0; i < 40; i++)
        close(peer[i]);
    for (i = 0; i < 10000 && answers < 40; i++) { /* the thread closes them, and wakes the server */
        pump(w);
        while (take(w))
            answers++;
        usleep(1000);
    }
    alarm(0);
    assert_int_equal(answers, 40);
}

/* A client that leaves with such descriptors unread; others wait until they can be closed. */
static void test_s171_client_leaves_descriptors(void **state)
{
    world *w = (world *)*state;
    int peer[20], i;
    choose_path(w);
    open_server(w);
    w->c = dial(w);
    pump(w);
    greet(w);
    dxpu_vfu_pause(w->s, true);
    for (i = 0; i < 20; i++)
        peer[i] = send_lingering(w);
    alarm(60);
    dxpu_vfu_disconnect(w->s);
    pump(w);
    assert_int_equal(w->disconnects, 1);
    assert_int_equal(recv(w->c, w->in, 1, MSG_DONTWAIT), 0);
    close(w->c);
    dxpu_vfu_pause(w->s, false);
    w->c = dial(w);
    pump(w);
    put_message(w, 1, VERSION, 0, "\0\0\1", 4, NULL, 0);
    pump(w);
    assert_false(dxpu_vfu_is_connected(w->s));
    for (i = 0; i < 20; i++)
        close(peer[i]);
    for (i = 0; i < 10000 && !dxpu_vfu_is_connected(w->s); i++) {
        pump(w);
        usleep(1000);
    }
    alarm(0);
    assert_true(dxpu_vfu_is_connected(w->s));
    close_and_remove(w);
}

/* A socket that listens: descriptors wait in its connections, which its last close ends. */
static void test_s171_listener_with_descriptors(void **state)
{
    world *w = (world *)*state;
    struct sockaddr_un a;
    socklen_t len = sizeof a;
    int peer, l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof a.sun_family), 0);
    assert_int_equal(listen(l, 1), 0);
    assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
    w->c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(w->c, (struct sockaddr *)&a, len), 0);
    peer = send_lingering(w);
    close(w->c);
    w->c = -1;
    open_server(w);
    assert_int_equal(dxpu_vfu_adopt(w->s, l), DXPU_OK);
    alarm(60);
    pump(w);
    alarm(0);
    assert_int_equal(dxpu_vfu_adopt(w->s, -1), DXPU_E_ARG); /* not E_FULL: it is gone */
    close(peer);
}

/* A server that closes with bytes unread resets the connection, on which QEMU aborts. */
static void test_s171_unread_bytes_do_not_reset(void **state)
{
    world *w = (world *)*state;
    uint8_t b[20];
    access_body(b, 0, 0, 4, "WXYZ");
    dxpu_vfu_pause(w->s, true);
    put_message(w, 1, WRITE, 0, b, 20, NULL, 0);
    dxpu_vfu_close(w->s);
    w->s = NULL;
    assert_int_equal(recv(w->c, w->in, 1, MSG_DONTWAIT), 0);
}

static uint32_t random_state = 1;

static uint32_t rnd(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static void test_random_messages(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(65536, false);
    unsigned round, breaks = 0;
    random_state = 12345;
    for (round = 0; round < 3000; round++) {
        uint8_t b[256];
        uint32_t i, len = rnd() % 64, flags = rnd() % 8 ? (rnd() & 1) * NO_REPLY : rnd();
        uint16_t command = (uint16_t)(rnd() % 20);
        for (i = 0; i < len; i++)
            b[i] = rnd() % 3 ? 0 : (uint8_t)rnd();
        if (len > 4 && rnd() % 2)
            memcpy(b, &len, 4);
        pump(w);
        put_message(w, (uint16_t)rnd(), command, flags, b, len, &fd, rnd() % 4 == 0);
        pump(w);
        while (take(w))
            ;
        if (!dxpu_vfu_is_connected(w->s)) {
            breaks++;
            close(w->c);
            adopt(w);
            greet(w);
        }
    }
    assert_int_equal(w->disconnects, breaks);
    assert_true(breaks > 10 && breaks < 2000);
    assert_true(counter(w, "errors") > 100);
    close(fd);
}

static void test_disconnect(void **state)
{
    world *w = (world *)*state;
    int fd = memory_file(4096, true), ev = event();
    map_ok(w, map_of(3, 0, 0x1000, 4096), fd);
    put_irqs(w, FDS | TRIGGER, DXPU_VFU_MSIX, 0, 1, NULL, &ev, 1);
    expect_reply(w, 30, SET_IRQS, 0);
    dxpu_vfu_disconnect(w->s);
    assert_false(dxpu_vfu_is_connected(w->s));
    assert_int_equal(dxpu_vfu_msi(w->s, 0xfee00000, 0), DXPU_E_CLOSED);
    expect_broken(w, "disconnected by the server", 1);
    assert_int_equal(dxpu_vfu_irq_raise(w->s, DXPU_VFU_MSIX, 0), DXPU_E_NONE);
    assert_int_equal(dxpu_vfu_dma_probe(w->s, 0x1000, 1, 1), DXPU_VFU_DMA_NONE);
    assert_int_equal(counter(w, "clients_broken"), 0);
    close(fd);
    close(ev);
}

/* ==== listening =============================================================================== */

/* A client is gone, but more of it waits to be read than one process() handles. */
static void test_client_replaced_with_messages_left(void **state)
{
    world *w = (world *)*state;
    unsigned i;
    choose_path(w);
    w->cfg.burst = 1;
    open_server(w);
    w->c = dial(w);
    pump(w);
    greet(w);
    for (i = 0; i < 10; i++)
        put_write(w, 1, NO_REPLY, 0, i, 1, "q");
    close(w->c);
    w->c = dial(w);
    pump(w);
    greet(w);
    assert_int_equal(w->disconnects, 1);
    assert_int_equal(counter(w, "clients_refused"), 0);
    close_and_remove(w);
}

/* The file has the mode that was asked for, whatever the mask of who starts the program. */
static void test_mode_of_the_socket(void **state)
{
    static const mode_t masks[] = { 0, 022, 077 }, modes[] = { 0600, 0660 };
    world *w = (world *)*state;
    struct stat st;
    choose_path(w);
    for (unsigned i = 0; i < 6; i++) {
        mode_t usual = umask(masks[i % 3]);
        w->cfg.mode = modes[i / 3];
        open_server(w);
        assert_int_equal(umask(usual), masks[i % 3]); /* as it was */
        assert_int_equal(stat(w->path, &st), 0);
        assert_int_equal(st.st_mode & 0777, modes[i / 3]);
        dxpu_vfu_close(w->s);
        w->s = NULL;
    }
    assert_int_equal(rmdir(w->directory), 0);
}

static void test_listening(void **state)
{
    world *w = (world *)*state;
    struct stat st;
    const char *why = NULL;
    dxpu_vfu_callbacks cb = callbacks(w);
    int first, second;
    choose_path(w);
    open_server(w);
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_null(dxpu_vfu_open(&w->cfg, &cb, &why)); /* somebody listens there: us */
    assert_int_equal(errno, EADDRINUSE);
    assert_int_equal(stat(w->path, &st), 0);
    while (readable(w)) /* the probe for a stale socket was a connection */
        pump(w);
    w->c = first = dial(w);
    pump(w);
    greet(w);
    w->c = second = dial(w); /* one client at a time */
    pump(w);
    assert_int_equal(recv(second, w->in, 1, MSG_DONTWAIT), 0);
    close(second);
    assert_true(dxpu_vfu_is_connected(w->s));
    w->c = first;
    put_read(w, 1, 0, 0, 1);
    close(first); /* gone and back before the server looks */
    w->c = dial(w);
    pump(w);
    greet(w);
    assert_int_equal(w->connects, 2);
    assert_int_equal(w->disconnects, 1);
    close(w->c);
    first = dial(w); /* this one never says its version and gives way */
    pump(w);
    w->c = dial(w);
    pump(w);
    assert_int_equal(recv(first, w->in, 1, MSG_DONTWAIT), 0);
    greet(w);
    close(first);
    dxpu_vfu_close(w->s);
    w->s = NULL;
    assert_int_equal(stat(w->path, &st), -1); /* removed */
    assert_int_equal(rmdir(w->directory), 0);
}

static void test_stale_socket_file(void **state)
{
    world *w = (world *)*state;
    struct sockaddr_un a;
    const char *why = NULL;
    dxpu_vfu_callbacks cb = callbacks(w);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    choose_path(w);
    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    strcpy(a.sun_path, w->path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd); /* the file stays, as after a crash */
    open_server(w);
    w->c = dial(w);
    pump(w);
    greet(w);
    dxpu_vfu_close(w->s);
    w->s = NULL;
    fd = open(w->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* no socket: not ours to remove */
    close(fd);
    assert_null(dxpu_vfu_open(&w->cfg, &cb, &why));
    assert_int_equal(unlink(w->path), 0);
    assert_int_equal(rmdir(w->directory), 0);
}

static void test_open_refused(void **state)
{
    world *w = (world *)*state;
    dxpu_vfu_callbacks cb = callbacks(w);
    dxpu_vfu_config good = w->cfg, bad;
    char longest[200];
    const char *why;
    unsigned i;
    for (i = 0; i < 10; i++) {
        bad = good;
        cb = callbacks(w);
        bad.transfer_bytes = i == 0 ? 4095 : bad.transfer_bytes;
        bad.transfer_bytes = i == 1 ? 1048577 : bad.transfer_bytes;
        bad.queue_bytes = i == 2 ? 2 * bad.transfer_bytes - 1 : bad.queue_bytes;
        bad.requests = i == 3 ? 0 : i == 4 ? 4097 : bad.requests;
        bad.dma_maps = i == 5 ? 0 : bad.dma_maps;
        bad.dma_messages = i == 6 ? 1024 : bad.dma_messages;
        bad.burst = i == 7 ? 0 : bad.burst;
        bad.irqs[2] = i == 8 ? 2049 : bad.irqs[2];
        cb.write = i == 9 ? NULL : cb.write;
        why = NULL;
        assert_null(dxpu_vfu_open(&bad, &cb, &why));
        assert_non_null(why);
        assert_int_equal(errno, EINVAL);
    }
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    cb = callbacks(w);
    bad = good;
    bad.path = longest;
    assert_null(dxpu_vfu_open(&bad, &cb, &why));
    assert_int_equal(errno, ENAMETOOLONG);
    bad.path = "/nowhere/at/all";
    assert_null(dxpu_vfu_open(&bad, &cb, &why));
    dxpu_vfu_close(NULL);
    open_server(w); /* control */
}

static void test_adopt_refused(void **state)
{
    world *w = (world *)*state;
    int ends[2], udp = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dxpu_vfu_adopt(w->s, ends[0]), DXPU_E_FULL);
    close(w->c);
    pump(w);
    assert_int_equal(dxpu_vfu_adopt(w->s, -1), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_adopt(w->s, ends[0]), DXPU_E_ARG);
    assert_int_equal(dxpu_vfu_adopt(w->s, udp), DXPU_E_ARG);
    close(udp);
    close(ends[0]);
    close(ends[1]);
    adopt(w);
    greet(w);
}

static void test_counters_have_names(void **state)
{
    world *w = (world *)*state;
    unsigned i;
    for (i = 0; dxpu_vfu_counter_name(i); i++)
        assert_true(strlen(dxpu_vfu_counter_text(i)) > 10);
    assert_int_equal(i * sizeof(uint64_t), sizeof(dxpu_vfu_counters));
    assert_null(dxpu_vfu_counter_text(i));
    assert_int_equal(dxpu_vfu_counter_value(w->s, i), 0);
    assert_int_equal(counter(w, "clients"), dxpu_vfu_count(w->s)->clients);
    assert_int_equal(counter(w, "clients"), 1);
}

#define CONNECTED(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define CLOSED(name)    cmocka_unit_test_setup_teardown(name, setup_closed, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLOSED(test_version),
        CLOSED(test_version_small_client),
        CLOSED(test_version_refused),
        CLOSED(test_version_must_come_first),
        CONNECTED(test_info),
        CONNECTED(test_region_info),
        CONNECTED(test_irq_info),
        CONNECTED(test_unknown_commands),
        CONNECTED(test_read_and_write),
        CONNECTED(test_access_out_of_range),
        CONNECTED(test_answers_later_and_out_of_order),
        CONNECTED(test_answers_refused),
        CONNECTED(test_tokens_of_a_gone_client),
        CLOSED(test_late_answers_are_dropped),
        CLOSED(test_late_counts_the_pause),
        CLOSED(test_late_counts_the_pause_behind_descriptors),
        CLOSED(test_reading_stops_without_room),
        CLOSED(test_stalled_client_leaves),
        CONNECTED(test_pause),
        CLOSED(test_burst_is_limited),
        CONNECTED(test_write_multi),
        CLOSED(test_write_multi_of_200),
        CONNECTED(test_write_multi_paused),
        CONNECTED(test_reset),
        CLOSED(test_reset_not_offered),
        CONNECTED(test_dma_copies),
        CONNECTED(test_dma_copies_guarded),
        CONNECTED(test_dma_several_regions),
        CONNECTED(test_dma_top_of_the_address_space),
        CONNECTED(test_dma_map_refused),
        CONNECTED(test_dma_unmap),
        CLOSED(test_dma_map_limit),
        CLOSED(test_s172_memory_taken_away),
        CLOSED(test_s172_truncated_before_it_is_sealed),
        CLOSED(test_s172_truncated_meanwhile),
        CLOSED(test_s172_other_faults_are_not_hidden),
        CONNECTED(test_s170_nothing_is_asked_of_other_files),
        CONNECTED(test_dma_by_message_regions),
        CONNECTED(test_dma_messages),
        CONNECTED(test_dma_messages_answered_wrongly),
        CLOSED(test_dma_messages_limit),
        CONNECTED(test_output_waits_for_the_socket),
        CONNECTED(test_write_multi_that_interrupts),
        CONNECTED(test_client_that_never_reads_leaves),
        CONNECTED(test_irqs),
        CONNECTED(test_irq_intx_masks_itself),
        CONNECTED(test_irq_levels),
        CLOSED(test_another_function),
        CONNECTED(test_another_function_for_a_lost_client),
        CONNECTED(test_another_function_in_a_callback),
        CLOSED(test_hidden_when_a_client_gives_way),
        CONNECTED(test_irqs_refused),
        CONNECTED(test_s173_full_eventfd),
        CONNECTED(test_s173_eventfd_filled_meanwhile),
        CONNECTED(test_impossible_headers),
        CONNECTED(test_pieces),
        CONNECTED(test_descriptors_find_their_message),
        CLOSED(test_s171_control_close_that_waits),
        CONNECTED(test_s171_close_that_waits),
        CLOSED(test_s171_client_leaves_descriptors),
        CLOSED(test_s171_listener_with_descriptors),
        CONNECTED(test_s171_unread_bytes_do_not_reset),
        CONNECTED(test_descriptors_run_out),
        CLOSED(test_connections_run_out),
        CLOSED(test_reserve_is_taken_back),
        CONNECTED(test_random_messages),
        CONNECTED(test_disconnect),
        CLOSED(test_client_replaced_with_messages_left),
        CLOSED(test_mode_of_the_socket),
        CLOSED(test_listening),
        CLOSED(test_stale_socket_file),
        CLOSED(test_open_refused),
        CONNECTED(test_adopt_refused),
        CONNECTED(test_counters_have_names),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
