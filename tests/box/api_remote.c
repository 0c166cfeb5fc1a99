/* api_remote.c - a slot's device that a server has: a vfio-user server in this process, whose every
   message the test decides about, and the TLPs of a host
   SPDX-License-Identifier: MIT

   CONTENTS   1 The server   2 The slot   3 What happens to DMA   4 Windows   5 Configuration space
              6 Turns   7 Connections */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dxpu_libevent.h"
#include "dxpu_vfio_user.h"
#include "dxpu_vfio_user_stream.h"
#include "remote.h"
#include "report_value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BAR_BYTES = 65536, LOG = 4096, CONFIG = 7, TLPS = 8192, IN_BYTES = 4 << 20 };
#define BAR_AT 0x4000000000u
#define MEM_AT 0x100000000u

/* ==== 1  The server =========================================================================== */

/* A command that it received. */
typedef struct command {
    uint16_t id, what;
    uint32_t region;
    uint64_t length; /* of a window */
} command;

static struct {
    char path[64], folder[40];
    int listener, fd;
    uint8_t config[256], bar[BAR_BYTES], *in;
    size_t have;
    uint32_t vectors; /* of MSI-X */
    bool deaf[32];    /* commands that it leaves unanswered */
    bool sleeps;      /* reads nothing */
    command log[LOG];
    unsigned count, replies, refused; /* replies: to its own commands */
} srv;

/* Of the box. */
static struct {
    void *device;
    device_port port;
    bool present;
    unsigned waiting, count, changes;
    dxpu_tlp tlp[TLPS];
    uint8_t bytes[TLPS][32]; /* the beginning of each */
} slot;

static void srv_listen(int backlog)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, srv.path, sizeof srv.path);
    (void)unlink(srv.path);
    srv.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(srv.listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(srv.listener, backlog), 0);
}

static void srv_close(void)
{
    if (srv.fd >= 0)
        (void)close(srv.fd);
    srv.fd = -1;
    srv.have = 0;
}

/* The box takes what arrives meanwhile: it is in the same thread. */
static void srv_send(const void *bytes, size_t len)
{
    size_t at = 0;
    while (at < len && srv.fd >= 0) {
        ssize_t n =
            send(srv.fd, (const uint8_t *)bytes + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        at += n > 0 ? (size_t)n : 0;
        if (n < 0 && errno == EAGAIN)
            vfio_user_kind.tick(slot.device, dxpu_udp_now_ns());
        else if (n < 0)
            return; /* the box has ended the connection */
    }
}

static void srv_message(uint16_t id, uint16_t what, uint32_t flags, const void *body, size_t len)
{
    static uint8_t m[16 + BAR_BYTES + 64];
    memset(m, 0, 16);
    dxpu_put_le16(m, id);
    dxpu_put_le16(m + 2, what);
    dxpu_put_le32(m + 4, (uint32_t)(16 + len));
    dxpu_put_le32(m + 8, flags);
    memcpy(m + 16, body, len);
    srv_send(m, 16 + len);
}

/* Its own access to memory: a read, or a write of zeros. */
static void srv_dma(uint16_t id, bool write, uint64_t at, uint32_t bytes, uint32_t flags)
{
    static uint8_t body[16 + BAR_BYTES];
    dxpu_put_le64(body, at);
    dxpu_put_le64(body + 8, bytes);
    srv_message(id, write ? CMD_DMA_WRITE : CMD_DMA_READ, flags, body, 16 + (write ? bytes : 0));
}

static size_t srv_access(uint16_t what, const uint8_t *body, uint8_t *out)
{
    uint64_t at = dxpu_get_le64(body);
    uint32_t region = dxpu_get_le32(body + 8), bytes = dxpu_get_le32(body + 12);
    uint8_t *store = region == CONFIG ? srv.config : srv.bar;
    assert_true(at + bytes <= (region == CONFIG ? sizeof srv.config : BAR_BYTES));
    memcpy(out, body, 16);
    if (what == CMD_REGION_READ)
        memcpy(out + 16, store + at, bytes);
    else if (region != CONFIG)
        memcpy(store + at, body + 16, bytes);
    return what == CMD_REGION_READ ? 16 + bytes : 16;
}

static size_t srv_answer(uint16_t what, const uint8_t *body, uint8_t *out)
{
    static const char caps[] = "{\"capabilities\":{\"max_data_xfer_size\":65536}}";
    uint32_t index = what == CMD_VERSION ? 0 : dxpu_get_le32(body + 8);
    switch (what) {
    case CMD_VERSION:
        dxpu_put_le32(out, 1u << 16);
        memcpy(out + 4, caps, sizeof caps);
        return 4 + sizeof caps;
    case CMD_GET_INFO:
        dxpu_put_le32(out + 4, 3);
        dxpu_put_le32(out + 8, 9);
        dxpu_put_le32(out + 12, 5);
        return 16;
    case CMD_GET_REGION_INFO:
        dxpu_put_le32(out + 4, 3);
        dxpu_put_le32(out + 8, index);
        dxpu_put_le64(out + 16, index == 0 ? BAR_BYTES : index == CONFIG ? 256 : 0);
        return 32;
    case CMD_GET_IRQ_INFO:
        dxpu_put_le32(out + 4, 1);
        dxpu_put_le32(out + 8, index);
        dxpu_put_le32(out + 12, index == DXPU_VFU_MSIX ? srv.vectors : 0);
        return 16;
    case CMD_REGION_READ:
    case CMD_REGION_WRITE:
        return srv_access(what, body, out);
    default:
        return 0;
    }
}

static void srv_note(const uint8_t *m)
{
    command *c = &srv.log[srv.count++ % LOG];
    memset(c, 0, sizeof *c);
    c->id = dxpu_get_le16(m);
    c->what = dxpu_get_le16(m + 2);
    if (c->what == CMD_REGION_READ || c->what == CMD_REGION_WRITE)
        c->region = dxpu_get_le32(m + 24);
    else if (c->what == CMD_DMA_MAP || c->what == CMD_DMA_UNMAP)
        c->length = dxpu_get_le64(m + (c->what == CMD_DMA_MAP ? 40 : 32));
}

static void srv_take(const uint8_t *m)
{
    static uint8_t out[BAR_BYTES + 64];
    uint32_t flags = dxpu_get_le32(m + 8);
    uint16_t what = dxpu_get_le16(m + 2);
    size_t len;
    if (flags & TYPE_MASK) {
        srv.replies++;
        srv.refused += (flags & FLAG_ERROR) != 0;
        return;
    }
    srv_note(m);
    if (srv.deaf[what % 32])
        return;
    memset(out, 0, 64);
    len = srv_answer(what, m + 16, out);
    if (!(flags & FLAG_NO_REPLY))
        srv_message(dxpu_get_le16(m), what, TYPE_REPLY, out, len);
}

/* Accept, and handle what has arrived. */
static void srv_work(void)
{
    size_t at = 0;
    ssize_t n;
    if (srv.fd < 0 && srv.listener >= 0)
        srv.fd = accept(srv.listener, NULL, NULL);
    if (srv.fd < 0 || srv.sleeps)
        return;
    n = recv(srv.fd, srv.in + srv.have, IN_BYTES - srv.have, MSG_DONTWAIT);
    if (n == 0)
        srv_close();
    srv.have += n > 0 ? (size_t)n : 0;
    while (srv.have - at >= 16 && srv.have - at >= dxpu_get_le32(srv.in + at + 4)) {
        uint32_t size = dxpu_get_le32(srv.in + at + 4);
        srv_take(srv.in + at);
        at += size;
    }
    memmove(srv.in, srv.in + at, srv.have - at);
    srv.have -= at;
}

/* ==== 2  The slot ============================================================================= */

static void on_emit(void *user, dxpu_bytes tlp)
{
    dxpu_tlp *t = &slot.tlp[slot.count % TLPS];
    (void)user;
    assert_int_equal(dxpu_tlp_receive(tlp, t), DXPU_OK);
    if (t->payload.len) {
        size_t len = t->payload.len < 32 ? t->payload.len : 32;
        memcpy(slot.bytes[slot.count % TLPS], t->payload.ptr, len);
        t->payload.ptr = slot.bytes[slot.count % TLPS];
    }
    slot.count++;
}

static unsigned on_waiting(void *user)
{
    (void)user;
    return slot.waiting;
}

static void on_present(void *user, bool there)
{
    (void)user;
    slot.present = there;
    slot.changes++;
}

static void give(const dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp received;
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    assert_int_equal(dxpu_tlp_receive(tlp, &received), DXPU_OK);
    vfio_user_kind.tlp(slot.device, &received, tlp);
}

static void config_write(unsigned at, uint32_t value)
{
    uint8_t data[4];
    dxpu_tlp t = { .type = DXPU_TLP_CFGWR0,
                   .header_dw = 3,
                   .length_dw = 1,
                   .first_be = 15,
                   .target = 0x100,
                   .register_bytes = (uint16_t)at };
    dxpu_put_le32(data, value);
    t.payload.ptr = data;
    t.payload.len = 4;
    give(&t);
}

static uint32_t config_read(unsigned at)
{
    dxpu_tlp t = { .type = DXPU_TLP_CFGRD0,
                   .header_dw = 3,
                   .length_dw = 1,
                   .first_be = 15,
                   .target = 0x100,
                   .register_bytes = (uint16_t)at };
    const dxpu_tlp *answer = &slot.tlp[slot.count % TLPS];
    give(&t);
    return answer->status == DXPU_CPL_SC ? dxpu_get_le32(answer->payload.ptr) : 0xffffffffu;
}

/* Up to 128 bytes of zeros, dwords. */
static void mem_write(uint64_t at, uint32_t bytes)
{
    static const uint8_t zeros[128];
    dxpu_tlp t = { .type = DXPU_TLP_MWR, .header_dw = 4, .address = at };
    assert_int_equal(dxpu_be_from_range(at, bytes, &t.first_be, &t.last_be, &t.length_dw), DXPU_OK);
    t.payload.ptr = zeros;
    t.payload.len = t.length_dw * 4u;
    give(&t);
}

static void mem_read(uint64_t at, uint32_t bytes, unsigned tag)
{
    dxpu_tlp t = { .type = DXPU_TLP_MRD, .header_dw = 4, .address = at, .tag = (uint16_t)tag };
    assert_int_equal(dxpu_be_from_range(at, bytes, &t.first_be, &t.last_be, &t.length_dw), DXPU_OK);
    give(&t);
}

static void turn(void)
{
    vfio_user_kind.tick(slot.device, dxpu_udp_now_ns());
    srv_work();
}

/* Turns until `what` is so, for a time that a loaded machine needs as well. */
#define UNTIL(what)                                                                                \
    do {                                                                                           \
        uint64_t until_ns = dxpu_udp_now_ns() + 30000000000u;                                      \
        while (!(what)) {                                                                          \
            assert_true(dxpu_udp_now_ns() < until_ns);                                             \
            turn();                                                                                \
            (void)usleep(100);                                                                     \
        }                                                                                          \
    } while (0)

static void turns(unsigned ms)
{
    uint64_t end_ns = dxpu_udp_now_ns() + ms * 1000000ull;
    while (dxpu_udp_now_ns() < end_ns) {
        turn();
        (void)usleep(200);
    }
}

static void event(unsigned type, uint64_t base, uint64_t length, unsigned flags)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = (uint8_t)type;
    e.base = base;
    e.length = length;
    e.flags = (uint8_t)flags;
    vfio_user_kind.event(slot.device, &e);
}

/* A host has the device and lets it master the bus. */
static void enable(void)
{
    config_write(0x10, (uint32_t)BAR_AT);
    config_write(0x14, (uint32_t)(BAR_AT >> 32));
    config_write(0x04, 6);
    event(DXPU_EVENT_DMA_GRANT, MEM_AT, 1 << 20, DXPU_EVENT_READ | DXPU_EVENT_WRITE);
    turn();
}

/* A counter of the device's report. */
static unsigned long long counter(const char *name)
{
    return report_value(vfio_user_kind.report, slot.device, name);
}

static void create(const device_settings *more)
{
    device_settings s = *more;
    s.socket = srv.path;
    s.mps_bytes = 128;
    s.identity = 7;
    s.timeout_ns = DXPU_NEVER;
    slot.port.emit = on_emit;
    slot.port.waiting = on_waiting;
    slot.port.present = on_present;
    slot.device = vfio_user_kind.create(&s, &slot.port);
    assert_non_null(slot.device);
}

static int setup(void **state)
{
    (void)state;
    memset(&srv, 0, sizeof srv);
    memset(&slot, 0, sizeof slot);
    srv.fd = srv.listener = -1;
    srv.in = malloc(IN_BYTES);
    snprintf(srv.folder, sizeof srv.folder, "/tmp/api_remote.XXXXXX");
    if (!srv.in || !mkdtemp(srv.folder))
        return -1;
    snprintf(srv.path, sizeof srv.path, "%s/s", srv.folder);
    dxpu_put_le32(srv.config, 0x10f01af4u);
    srv.config[0x10] = 0x0c;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (slot.device)
        vfio_user_kind.destroy(slot.device);
    srv_close();
    if (srv.listener >= 0)
        (void)close(srv.listener);
    (void)unlink(srv.path);
    (void)rmdir(srv.folder);
    free(srv.in);
    return 0;
}

static void begin(void)
{
    const device_settings none = { 0 };
    srv_listen(4);
    create(&none);
    UNTIL(slot.present);
}

/* ==== 3  What happens to DMA ================================================================== */

/* The control of all others: a read and a write of the BAR, a DMA read that has an answer. */
static void test_a_device_is_served(void **state)
{
    dxpu_tlp cpl;
    uint8_t data[64] = { 5 };
    unsigned at;
    (void)state;
    begin();
    enable();
    assert_int_equal(config_read(0), 0x10f01af4u);
    mem_write(BAR_AT + 8, 8);
    at = slot.count;
    mem_read(BAR_AT + 8, 8, 3);
    UNTIL(slot.count > at);
    assert_int_equal(slot.tlp[at].tag, 3);
    assert_int_equal(slot.tlp[at].status, DXPU_CPL_SC);
    srv_dma(9, false, MEM_AT, 64, 0);
    at = slot.count;
    UNTIL(slot.count > at);
    assert_int_equal(slot.tlp[at].type, DXPU_TLP_MRD);
    dxpu_tlp_completion(&slot.tlp[at], 0, DXPU_CPL_SC, &cpl);
    cpl.length_dw = 16;
    cpl.byte_count = 64;
    cpl.payload.ptr = data;
    cpl.payload.len = sizeof data;
    give(&cpl);
    UNTIL(srv.replies == 1);
    assert_int_equal(srv.refused, 0);
}

/* S-240: what is under way at a reset is answered, so none of it is left over for the next host. */
static void test_s240_dma_at_a_reset_is_answered(void **state)
{
    (void)state;
    begin();
    for (unsigned round = 0; round < 3; round++) {
        unsigned replies = srv.replies, at;
        enable();
        at = slot.count;
        for (uint16_t i = 0; i < 64; i++)
            srv_dma(i, false, MEM_AT + i * 64, 64, 0);
        UNTIL(slot.count > at && counter("dma_reads") == (round + 1) * 64ul);
        vfio_user_kind.reset(slot.device);
        UNTIL(srv.replies == replies + 64);
        UNTIL(counter("present"));
    }
    assert_int_equal(srv.refused, 3 * 64);
    enable();
    srv_dma(1, true, MEM_AT, 64, 0); /* there is a place for the next host's */
    UNTIL(srv.replies == 3 * 64 + 1);
    assert_int_equal(srv.refused, 3 * 64);
}

/* From the moment a reset begins until the server has ended it (S-240). */
static void test_s240_no_dma_during_a_reset(void **state)
{
    command reset;
    (void)state;
    begin();
    enable();
    srv.deaf[CMD_RESET] = true;
    vfio_user_kind.reset(slot.device);
    UNTIL(srv.count && srv.log[(srv.count - 2) % LOG].what == CMD_RESET);
    reset = srv.log[(srv.count - 2) % LOG]; /* Command is cleared behind it */
    assert_int_equal(config_read(0), 0xffffffffu);
    config_write(0x04, 6); /* a host that does not wait: refused as well */
    srv_dma(1, false, MEM_AT, 64, 0);
    srv_dma(2, true, MEM_AT, 64, 0);
    UNTIL(srv.replies == 2);
    assert_int_equal(srv.refused, 2);
    assert_int_equal(counter("present"), 0);
    srv.deaf[CMD_RESET] = false;
    srv_message(reset.id, CMD_RESET, TYPE_REPLY, "", 0);
    UNTIL(counter("present"));
    enable();
    srv_dma(3, true, MEM_AT, 64, 0);
    UNTIL(srv.replies == 3);
    assert_int_equal(srv.refused, 2);
}

/* ==== 4  Windows ============================================================================== */

/* A letter for each command since number `since` of the server's log, in order, if it is of these
   kinds.  +: map, -: unmap, w: posted write of a BAR. */
static const char *since_then(unsigned since)
{
    static char text[LOG + 1];
    size_t at = 0;
    for (unsigned i = since; i < srv.count; i++) {
        const command *c = &srv.log[i % LOG];
        if (c->what == CMD_DMA_MAP || c->what == CMD_DMA_UNMAP)
            text[at++] = c->what == CMD_DMA_MAP ? '+' : '-';
        else if (c->what == CMD_REGION_WRITE && c->region != CONFIG)
            text[at++] = 'w';
    }
    text[at] = 0;
    return text;
}

/* Bytes that the server may ask for, by what it was sent; *pieces: how many maps. */
static uint64_t mapped_bytes(unsigned *pieces)
{
    uint64_t all = 0;
    *pieces = 0;
    assert_true(srv.count < LOG);
    for (unsigned i = 0; i < srv.count; i++) {
        const command *c = &srv.log[i];
        all += c->what == CMD_DMA_MAP ? c->length : 0;
        all -= c->what == CMD_DMA_UNMAP ? c->length : 0;
        *pieces += c->what == CMD_DMA_MAP;
        *pieces -= c->what == CMD_DMA_UNMAP;
    }
    return all;
}

static void grant(uint64_t at, uint64_t bytes, unsigned access)
{
    event(DXPU_EVENT_DMA_GRANT, at, bytes, access);
}

/* Nothing but the order of the calls: a grant, and the doorbell that uses it, in one turn. */
static void test_a_grant_is_ahead_of_the_doorbell(void **state)
{
    unsigned at;
    (void)state;
    begin();
    enable();
    turns(20);
    at = srv.count;
    mem_write(BAR_AT, 4);
    grant(MEM_AT + (4 << 20), 1 << 20, DXPU_EVENT_READ);
    mem_write(BAR_AT, 4);
    UNTIL(strlen(since_then(at)) >= 3);
    assert_string_equal(since_then(at), "w+w");
}

/* What the server uses is not taken from it for a moment, because its neighbour is granted. */
static void test_neighbours_of_a_window(void **state)
{
    const unsigned both = DXPU_EVENT_READ | DXPU_EVENT_WRITE;
    unsigned at, pieces;
    (void)state;
    begin();
    enable();
    turns(20);
    at = srv.count;
    grant(MEM_AT + (1 << 20), 1 << 20, both);
    grant(MEM_AT - (1 << 20), 1 << 20, both);
    grant(MEM_AT + (2 << 20), 4096, DXPU_EVENT_READ);
    UNTIL(strlen(since_then(at)) >= 3);
    assert_string_equal(since_then(at), "+++");
    event(DXPU_EVENT_DMA_REVOKE, MEM_AT + 4096, 4096, both); /* its piece goes, the rest is back */
    turns(50);
    assert_string_equal(since_then(at), "+++-++");
    assert_int_equal(mapped_bytes(&pieces), 3 << 20);
    grant(MEM_AT + (2 << 20), 4096, DXPU_EVENT_WRITE); /* the same place, more of it allowed */
    turns(50);
    assert_string_equal(since_then(at), "+++-++-+");
    event(DXPU_EVENT_DMA_REVOKE, 0, UINT64_MAX, both);
    turns(50);
    assert_int_equal(mapped_bytes(&pieces), 0);
    assert_int_equal(pieces, 0);
}

/* Many small grants beside one another become one window, without as many maps. */
static void test_small_neighbours_are_joined(void **state)
{
    unsigned pieces;
    (void)state;
    begin();
    enable();
    for (unsigned i = 0; i < 1100; i++) {
        grant(MEM_AT + (1 << 20) + i * 4096u, 4096, DXPU_EVENT_READ | DXPU_EVENT_WRITE);
        if (i % 50 == 49)
            turns(5);
    }
    UNTIL(mapped_bytes(&pieces) == (1 << 20) + 1100 * 4096u &&
          !vfio_user_kind.busy(slot.device, true));
    assert_true(pieces < 200);
}

/* ==== 5  Configuration space ================================================================== */

/* S-112: what software made of errors, and their log, are not the next tenant's. */
static void test_s112_errors_of_a_tenant(void **state)
{
    uint32_t before[8];
    (void)state;
    begin();
    for (unsigned i = 0; i < 8; i++)
        before[i] = config_read(0x104 + i * 4);
    enable();
    config_write(0x108, 0x00001000); /* mask and severity */
    config_write(0x10c, 0x00100000);
    mem_read(BAR_AT + BAR_BYTES * 4ull, 4, 1); /* Unsupported Request */
    assert_int_not_equal(config_read(0x104), before[0]);
    assert_int_not_equal(config_read(0x11c), before[6]); /* the log */
    vfio_user_kind.reset(slot.device);
    UNTIL(counter("present"));
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(config_read(0x104 + i * 4), before[i]);
}

/* Writes to CMBMSC since `since`, and resets in `*resets`. */
static unsigned buffer_forgotten(unsigned since, unsigned *resets)
{
    unsigned writes = 0;
    *resets = 0;
    for (unsigned i = since; i < srv.count; i++) {
        writes += srv.log[i % LOG].what == CMD_REGION_WRITE && srv.log[i % LOG].region == 0;
        *resets += srv.log[i % LOG].what == CMD_RESET;
    }
    return writes;
}

/* S-112: an NVMe server keeps over its reset where the memory buffer is, which is right for a
   driver that goes on; of others nothing is known. */
static void test_s112_buffer_of_an_nvme_server(void **state)
{
    (void)state;
    for (unsigned nvme = 0; nvme < 2; nvme++) {
        unsigned since, resets;
        (void)setup(state);
        dxpu_put_le32(srv.config + 8, nvme ? 0x01080201 : 0x01060101);
        begin();
        enable();
        UNTIL(counter("present"));
        turns(10);
        for (unsigned how = 0; how < 3;
             how++) { /* hot reset, power that goes off, end of a lease */
            since = srv.count;
            memset(srv.bar + 0x50, 0xff, 8);
            if (how == 1)
                event(DXPU_EVENT_SLOT_POWER, 0, 0, 0);
            if (how < 2)
                event(DXPU_EVENT_HOT_RESET, 0, 0, DXPU_EVENT_ON);
            else
                vfio_user_kind.reset(slot.device);
            UNTIL(counter("present"));
            assert_int_equal(buffer_forgotten(since, &resets), nvme && how > 0);
            assert_int_equal(resets, 1);
            assert_int_equal(srv.bar[0x57], nvme && how > 0 ? 0 : 0xff);
        }
        if (!nvme)
            (void)teardown(state);
    }
}

/* Sizes that the box set, not the server; software may change them. */
static void test_sizes_are_those_of_the_slot(void **state)
{
    const device_settings s = { .mrrs_bytes = 4096 };
    (void)state;
    srv_listen(4);
    create(&s);
    UNTIL(slot.present);
    assert_int_equal(config_read(0x68) >> 12 & 7, 5);
    vfio_user_kind.reset(slot.device);
    UNTIL(counter("present"));
    assert_int_equal(config_read(0x68) >> 12 & 7, 5);
    config_write(0x68, 0x2000);
    assert_int_equal(config_read(0x68) >> 12 & 7, 2);
}

/* Capabilities of the server's own that fill their place to its end. */
static void test_capabilities_to_the_end(void **state)
{
    unsigned at = 0x40, seen = 0, vendors = 0;
    (void)state;
    srv.vectors = 1;
    srv.config[6] = 0x10;
    srv.config[0x34] = 0x40;
    dxpu_put_le32(srv.config + 0x40, 0x5011); /* MSI-X, then four of 24 bytes */
    dxpu_put_le32(srv.config + 0x44, 0x1000);
    dxpu_put_le32(srv.config + 0x48, 0x2000);
    for (unsigned i = 0; i < 4; i++)
        dxpu_put_le32(srv.config + 0x50 + i * 24, 0x180009u | (i < 3 ? 0x68 + i * 24 : 0) << 8);
    begin();
    for (at = config_read(0x34) & 0xff; at && seen < 32; at = config_read(at) >> 8 & 0xff) {
        seen++;
        if ((config_read(at) & 0xff) != 9)
            continue;
        vendors++;
        assert_int_equal(config_read(at) >> 16, 0x18);
    }
    assert_int_equal(vendors, 4);
    assert_int_equal(seen, 7); /* power management, MSI-X, PCI Express */
}

/* What drivers of a virtio device wait for is where its server says that it is (V-49). */
static void test_v49_values_of_a_virtio_server(void **state)
{
    device_value v[DEVICE_VALUES_MAX];
    (void)state;
    dxpu_put_le32(srv.config, 0x10421af4);
    srv.config[6] = 0x10;
    srv.config[0x34] = 0x40;
    dxpu_put_le32(srv.config + 0x40, 0x02145009); /* notifications, then the common configuration */
    dxpu_put_le32(srv.config + 0x50, 0x01100009);
    dxpu_put_le32(srv.config + 0x54, 2);
    dxpu_put_le32(srv.config + 0x58, 0x800);
    dxpu_put_le32(srv.config + 0x5c, 0x3c);
    begin();
    assert_int_equal(vfio_user_kind.values(slot.device, v), 3);
    assert_true(v[0].function == 0 && v[0].bar == 2 && v[0].bytes == 1 && v[0].offset == 0x814);
    assert_int_equal(v[1].offset, 0x81c);
    assert_int_equal(v[2].offset, 0x83a);
}

/* Before version 1.2 there was no reset of a queue: what is there may be another structure. */
static void test_v49_values_of_an_older_virtio_server(void **state)
{
    device_value v[DEVICE_VALUES_MAX];
    (void)state;
    dxpu_put_le32(srv.config, 0x10421af4);
    srv.config[6] = 0x10;
    srv.config[0x34] = 0x40;
    dxpu_put_le32(srv.config + 0x40, 0x01100009);
    dxpu_put_le32(srv.config + 0x44, 2);
    dxpu_put_le32(srv.config + 0x48, 0x800);
    dxpu_put_le32(srv.config + 0x4c, 0x38);
    begin();
    assert_int_equal(vfio_user_kind.values(slot.device, v), 2);
    assert_int_equal(v[1].offset, 0x81c);
}

static void test_v49_other_servers_declare_nothing(void **state)
{
    device_value v[DEVICE_VALUES_MAX];
    (void)state;
    begin(); /* of another vendor, and without such a capability */
    assert_int_equal(vfio_user_kind.values(slot.device, v), 0);
}

static void test_v49_virtio_server_without_its_registers(void **state)
{
    static const uint32_t heads[] = { 0x01000009, 0x01040009, 0x02100009, 0x011000ff };
    device_value v[DEVICE_VALUES_MAX];
    (void)state;
    dxpu_put_le32(srv.config, 0x10421af4);
    srv.config[6] = 0x10;
    srv.config[0x34] = 0x40;
    for (unsigned i = 0; i < 4; i++) { /* too short, of another kind, not a vendor's */
        dxpu_put_le32(srv.config + 0x40 + 16 * i, heads[i] | (i < 3 ? 0x50u + 16 * i : 0u) << 8);
        dxpu_put_le32(srv.config + 0x44 + 16 * i, 2);
    }
    begin();
    assert_int_equal(vfio_user_kind.values(slot.device, v), 0);
}

/* ==== 6  Turns ================================================================================ */

/* S-161: what a server sends at once does not have the loop to itself. */
static void test_s161_a_server_that_floods(void **state)
{
    enum { MANY = 4000, EACH = 32 };
    uint8_t *all = calloc(MANY, EACH);
    (void)state;
    begin();
    assert_non_null(all);
    for (unsigned i = 0; i < MANY; i++) { /* refused: no host lets it */
        dxpu_put_le16(all + i * EACH + 2, CMD_DMA_READ);
        dxpu_put_le32(all + i * EACH + 4, EACH);
        dxpu_put_le64(all + i * EACH + 16, MEM_AT);
        dxpu_put_le64(all + i * EACH + 24, 64);
    }
    srv_send(all, MANY * EACH);
    vfio_user_kind.tick(slot.device, dxpu_udp_now_ns());
    assert_true(counter("dma_refused") > 0 && counter("dma_refused") < 1000);
    UNTIL(counter("dma_refused") == MANY);
    free(all);
}

/* Reads that wait hold up no write: it may be what the other end waits for. */
static void test_writes_pass_reads_that_wait(void **state)
{
    (void)state;
    begin();
    enable();
    turns(20);
    srv.deaf[CMD_REGION_READ] = true;
    assert_false(vfio_user_kind.busy(slot.device, false));
    for (unsigned i = 0; i < 64; i++)
        mem_read(BAR_AT, 4, i);
    assert_true(vfio_user_kind.busy(slot.device, false));
    assert_false(vfio_user_kind.busy(slot.device, true));
    srv.sleeps = true;
    for (unsigned i = 0; i < 20000 && !vfio_user_kind.busy(slot.device, true); i++)
        mem_write(BAR_AT, 128);
    assert_true(vfio_user_kind.busy(slot.device, true)); /* the control: nothing is taken at all */
}

/* ==== 7  Connections ========================================================================== */

static void fill_backlog(int fd[8])
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, srv.path, sizeof srv.path);
    for (unsigned i = 0; i < 8; i++) {
        fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(fd[i], (struct sockaddr *)&a, sizeof a))
            assert_int_equal(errno, EAGAIN);
    }
}

static void test_a_full_backlog_is_tried_again(void **state)
{
    const device_settings none = { 0 };
    int fd[8], taken;
    (void)state;
    srv_listen(0);
    fill_backlog(fd);
    create(&none);
    for (unsigned i = 0; i < 200 || counter("connects") < 2; i++) {
        assert_true(i < 30000); /* it has been tried more than once */
        vfio_user_kind.tick(slot.device, dxpu_udp_now_ns());
        (void)usleep(1000);
    }
    while ((taken = accept(srv.listener, NULL, NULL)) >= 0)
        (void)close(taken);
    for (unsigned i = 0; i < 8; i++)
        (void)close(fd[i]);
    UNTIL(slot.present);
}

/* A server that is there and gone repeatedly does not have more and more of the loop. */
static void test_a_server_that_comes_and_goes(void **state)
{
    uint64_t end_ns = dxpu_udp_now_ns() + 2000000000u;
    (void)state;
    begin();
    while (dxpu_udp_now_ns() < end_ns) {
        if (slot.present)
            srv_close();
        turn();
        (void)usleep(100);
    }
    assert_in_range(counter("connects"), 2, 9);
    UNTIL(slot.present);
}

/* S-242: one that reads nothing while there are only writes, which have no answer, is given up. */
static void test_s242_a_server_that_does_not_read(void **state)
{
    (void)state;
    begin();
    enable();
    turns(20);
    srv.sleeps = true;
    for (unsigned i = 0; i < 20000 && !vfio_user_kind.busy(slot.device, true); i++)
        mem_write(BAR_AT, 128);
    assert_true(vfio_user_kind.busy(slot.device, true));
    UNTIL(!slot.present);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_device_is_served, setup, teardown),
        cmocka_unit_test_setup_teardown(test_s240_dma_at_a_reset_is_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(test_s240_no_dma_during_a_reset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_s242_a_server_that_does_not_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_grant_is_ahead_of_the_doorbell, setup, teardown),
        cmocka_unit_test_setup_teardown(test_neighbours_of_a_window, setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_neighbours_are_joined, setup, teardown),
        cmocka_unit_test_setup_teardown(test_s112_errors_of_a_tenant, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes_are_those_of_the_slot, setup, teardown),
        cmocka_unit_test_teardown(test_s112_buffer_of_an_nvme_server, teardown),
        cmocka_unit_test_setup_teardown(test_capabilities_to_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v49_values_of_a_virtio_server, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v49_values_of_an_older_virtio_server, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v49_other_servers_declare_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v49_virtio_server_without_its_registers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_s161_a_server_that_floods, setup, teardown),
        cmocka_unit_test_setup_teardown(test_writes_pass_reads_that_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_server_that_comes_and_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_backlog_is_tried_again, setup, teardown),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
