/* Fuzz target: 3D of the virtio display adapter between a hostile driver and a hostile renderer.
   The input is steps: commands of a context with their streams and boxes, backing memory, answers
   to reads of memory, resets, time, and what the renderer does: it is there or not, says READY,
   answers, sends results and nonsense, changes the shared memory, ends.  Each request to it fits
   render_wire.h, has a number and a slot that no other has, and there are no more than may be; the
   bytes of resources are counted and bounded; whatever the device emits is a TLP that decodes
   strictly; and after a reset it accesses no memory.
   libFuzzer: -max_len=512 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dxpu.h"

#include "fd_message.h"
#include "launcher.h"
#include "virtio_gpu.h"
#include "virtio_gpu_model.h"

#include "virtio_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ANSWERS_MAX = 3000, STEPS_MAX = 200, PLACES = 16, CAPS_2_BYTES = 1376, FENCE = 1 };
#define F_VIRGL ((uint64_t)1)

static uint64_t now_ns;

/* ==== The renderer ============================================================================ */

static struct {
    int launcher, socket; /* socket -1: there is none */
    uint8_t *shared;
    bool whole; /* all of it is there */
    struct {
        uint32_t number; /* 0: free */
        int slot;        /* -1: none */
    } asked[RENDER_PENDING];
} it;

static void renderer_end(void)
{
    if (it.socket < 0)
        return;
    (void)close(it.socket);
    (void)munmap(it.shared, RENDER_MEMORY_BYTES);
    it.socket = -1;
    memset(it.asked, 0, sizeof it.asked);
}

/* Another one, if the device has asked for it. */
static void renderer_start(size_t memory)
{
    unsigned char what;
    int pair[2], fds[2];
    bool asked = false;
    while (recv(it.launcher, &what, 1, MSG_DONTWAIT) == 1) {
        must(what == LAUNCHER_START || what == LAUNCHER_END);
        if (what == LAUNCHER_END)
            renderer_end();
        asked = what == LAUNCHER_START;
    }
    if (!asked || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair))
        return;
    renderer_end();
    fds[0] = pair[0];
    fds[1] = memfd_create("fuzz", 0);
    must(fds[1] >= 0 && !ftruncate(fds[1], (off_t)memory));
    it.shared = mmap(NULL, RENDER_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    must(it.shared != MAP_FAILED);
    it.whole = memory == RENDER_MEMORY_BYTES;
    it.socket = pair[1];
    (void)fd_message_send(it.launcher, 0, fds, 2);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void renderer_send(unsigned count, const uint32_t *words)
{
    uint8_t m[RENDER_REPLY_BYTES] = { 0 };
    for (unsigned i = 0; i < count && i < RENDER_REPLY_WORDS; i++)
        render_put(m, i, words[i]);
    if (it.socket >= 0)
        (void)!send(it.socket, m, sizeof m, MSG_NOSIGNAL);
}

static void renderer_ready(void)
{
    const uint32_t words[] = { RENDER_READY, RENDER_VERSION, 1, 308, 2, CAPS_2_BYTES };
    if (it.socket < 0 || !it.whole)
        return;
    memset(it.shared, 0xff, 308);
    memset(it.shared + RENDER_SLOT_BYTES, 0xff, CAPS_2_BYTES);
    renderer_send(6, words);
}

/* A request of the device's: it keeps to render_wire.h, whatever its driver and renderer do. */
static void renderer_asked(const uint8_t *m, ssize_t bytes)
{
    unsigned free = RENDER_PENDING;
    must(render_request_fits(m, (size_t)bytes));
    int slot = render_has_slot(render_word(m, RENDER_OP)) ? (int)render_word(m, RENDER_SLOT) : -1;
    for (unsigned i = 0; i < RENDER_PENDING; i++) {
        if (!it.asked[i].number) {
            free = i;
            continue;
        }
        must(it.asked[i].number != render_word(m, RENDER_NUMBER));
        must(slot < 0 || it.asked[i].slot != slot);
    }
    must(free < RENDER_PENDING && render_word(m, RENDER_NUMBER));
    it.asked[free].number = render_word(m, RENDER_NUMBER);
    it.asked[free].slot = slot;
}

static void renderer_look(void)
{
    uint8_t m[RENDER_REQUEST_BYTES + 4];
    ssize_t got;
    while (it.socket >= 0 && (got = recv(it.socket, m, sizeof m, MSG_DONTWAIT)) > 0)
        renderer_asked(m, got);
}

/* Those that it was asked, in any order; how: the status, and how many. */
static void renderer_answer(input *in, uint8_t op)
{
    unsigned from = next(in) % RENDER_PENDING;
    for (unsigned i = 0, left = 1u + (op >> 5); i < RENDER_PENDING && left; i++) {
        unsigned at = (from + i) % RENDER_PENDING;
        const uint32_t words[] = { RENDER_DONE, it.asked[at].number, op >> 4 & 1 };
        if (!it.asked[at].number)
            continue;
        it.asked[at].number = 0;
        renderer_send(3, words);
        left--;
    }
}

static void renderer_acts(input *in, uint8_t op)
{
    uint32_t words[RENDER_REPLY_WORDS] = { 0 };
    switch (op >> 5) {
    case 0:
        renderer_start(RENDER_MEMORY_BYTES);
        break;
    case 1:
        renderer_start(RENDER_MEMORY_BYTES);
        renderer_ready();
        break;
    case 2: /* a result */
        words[0] = RENDER_RESULT;
        words[1] = next(in) & 7;
        words[2] = words[3] = words[4] = words[5] = next(in);
        renderer_send(6, words);
        break;
    case 3: /* READY with other sizes, or anything */
        words[0] = next(in) & 3;
        for (unsigned i = 1; i < RENDER_REPLY_WORDS; i++)
            words[i] = op & 0x10 ? next32(in) : next(in);
        renderer_send(RENDER_REPLY_WORDS, words);
        break;
    case 4:
        if (it.socket >= 0 && it.whole)
            memset(it.shared + (size_t)(next(in) % RENDER_SLOTS) * RENDER_SLOT_BYTES, next(in),
                   next(in) * 64u);
        break;
    case 5: /* not as long as a message is */
        if (it.socket >= 0)
            (void)!send(it.socket, words, op & 0x10 ? 4 : 0, MSG_NOSIGNAL);
        break;
    case 6:
        renderer_end();
        break;
    default: /* its memory is too short */
        renderer_start(RENDER_SLOT_BYTES);
        break;
    }
}

/* ==== Commands ================================================================================ */

static void put_words(uint8_t *to, unsigned count, input *in, bool wide)
{
    for (unsigned i = 0; i < count; i++)
        dxpu_put_le32(to + i * 4u, wide ? next32(in) : next(in));
}

/* A stream: headers of commands with an object and a length, each with words behind it. */
static uint32_t put_stream(input *in, uint8_t how, uint8_t *to)
{
    unsigned words = next(in) % 64, at = 0;
    while (at < words) {
        uint32_t command = next(in), body = next(in) & (how & 0x80 ? 0xff : 7);
        dxpu_put_le32(to + 4u * at++, command | (uint32_t)next(in) << 8 | body << 16);
        for (; body && at < words; body--)
            dxpu_put_le32(to + 4u * at++, how & 0x40 ? next32(in) : next(in));
    }
    return words * 4;
}

static uint64_t backing(input *in, uint8_t how)
{
    uint64_t at = MEM_LOW + AT_DATA + (uint64_t)next(in) * 0x100u;
    return how & 0x80 ? next32(in) | (uint64_t)next32(in) << 32 : at;
}

/* Entries of a resource's memory behind an ATTACH_BACKING; how many bytes. */
static uint32_t put_entries(input *in, uint8_t how, uint8_t *c, uint8_t *to)
{
    uint32_t count = 1u + (how >> 6);
    dxpu_put_le32(c + 28, how & 0x20 ? next(in) : count);
    for (unsigned i = 0; i < count; i++) {
        dxpu_put_le64(to + i * 16u, backing(in, how));
        dxpu_put_le32(to + i * 16u + 8, next(in) * 64u);
    }
    return count * 16;
}

static void put_create(input *in, uint8_t how, uint32_t id, uint8_t *c)
{
    static const uint32_t usual[] = { 2, 1, 2, 16, 16, 1, 1, 0, 0, 0 };
    dxpu_put_le32(c + 24, id);
    for (unsigned i = 0; i < 10; i++)
        dxpu_put_le32(c + 28 + i * 4u, usual[i]);
    if (how & 0x20) /* a mailbox of results */
        dxpu_put_le32(c + 36, RENDER_BIND_CUSTOM);
    if (how & 0x40)
        put_words(c + 28 + (how >> 7) * 12u, 7, in, how & 0x20);
}

static void put_transfer(input *in, uint8_t how, uint32_t id, uint8_t *c)
{
    put_words(c + 24, 6, in, how & 0x80);
    dxpu_put_le64(c + 48, how & 0x40 ? next32(in) : next(in));
    dxpu_put_le32(c + 56, id);
    put_words(c + 60, 3, in, how & 0x20);
}

/* A command of a context, but for what the input changes; its bytes, and those that follow it. */
static uint32_t make_command(input *in, uint8_t how, uint32_t type, uint8_t *c, uint8_t *to,
                             uint32_t *extra)
{
    uint32_t id = next(in) & 7;
    dxpu_put_le32(c + 24, id);
    switch (type) {
    case 0x200:
        dxpu_put_le32(c + 24, next(in));
        return 96;
    case 0x204:
        put_create(in, how, id, c);
        return 72;
    case 0x205:
    case 0x206:
        put_transfer(in, how, id, c);
        return 72;
    case 0x207:
        *extra = put_stream(in, how, to);
        dxpu_put_le32(c + 24, how & 0x20 ? next32(in) : *extra);
        return 32;
    case 0x106:
        *extra = put_entries(in, how, c, to);
        return 32;
    case 0x103:
    case 0x104:
        put_words(c + 24, 4, in, false);
        dxpu_put_le32(c + 40, type == 0x104 ? id : 0);
        dxpu_put_le32(c + 44, id);
        return 48;
    default:
        dxpu_put_le32(c + 28, next(in));
        return 32;
    }
}

static void put_command(input *in, uint8_t op)
{
    static const uint16_t types[] = { 0x200, 0x201, 0x202, 0x203, 0x204, 0x205, 0x206, 0x207,
                                      0x106, 0x107, 0x102, 0x103, 0x104, 0x108, 0x109, 0x207 };
    uint8_t how = next(in), first = next(in) % PLACES;
    uint32_t type = types[how & 15], extra = 0, bytes;
    chain c = chain_begin(op & 0x60, 0, first * 3u % 32u);
    uint8_t *h = r.mem + AT_HEADERS + first * 0x100u, *to = r.mem + AT_DATA + first * 0x1000u;
    uint64_t at = MEM_LOW + AT_HEADERS + first * 0x100u;
    memset(h, 0, 0x80);
    bytes = make_command(in, how, type, h, to, &extra);
    dxpu_put_le32(h, type);
    dxpu_put_le32(h + 4, how & 0x10 ? 0 : FENCE);
    dxpu_put_le32(h + 16, op >> 4 & 1 ? next(in) : 1);
    chain_put(&c, 0, at, bytes, 1);
    if (extra)
        chain_put(&c, 1, MEM_LOW + AT_DATA + first * 0x1000u, extra, 1);
    chain_put(&c, extra ? 2 : 1, MEM_LOW + AT_DATA + first * 0x1000u + 0x800, 0x600, 2);
    chain_give(&c, extra ? 3 : 2);
}

/* ==== Claims ================================================================================== */

static const virtio_gpu *gpu(void)
{
    return r.dev;
}

static void check_limits(void)
{
    const virtio_gpu *g = gpu();
    uint64_t bytes = 0;
    for (unsigned i = 0; i < GPU_BUCKETS; i++) {
        for (const gpu_resource *at = g->bucket[i]; at; at = at->next)
            bytes += at->render_bytes;
    }
    must(bytes == g->render.bytes && bytes <= GPU_ALL_RENDER_BYTES);
    must(g->render.link.pending <= RENDER_PENDING);
}

static void must_rest(void)
{
    unsigned n = 0, reads, writes;
    rc_look(&r);
    reads = r.reads;
    writes = r.writes;
    while (rc_answer_one(&r))
        must(++n < ANSWERS_MAX * 16);
    r.kind->tick(r.dev, now_ns);
    rc_look(&r);
    must(r.reads == reads && r.writes == writes);
}

static void put_reset(uint8_t op)
{
    dxpu_event hot = { 0 };
    hot.type = DXPU_EVENT_HOT_RESET;
    hot.flags = DXPU_EVENT_ON;
    if ((op >> 4 & 3) == 0) {
        r.kind->reset(r.dev);
        rc_forget(&r);
    } else if ((op >> 4 & 3) == 1) {
        r.kind->event(r.dev, &hot);
        rc_forget(&r);
    } else if ((op >> 4 & 3) == 2) { /* Function Level Reset */
        cfg_write_be(&r, 0x68, 0x8000, 0x3);
    } else {
        set(0x14, 0, 1);
    }
    if (op & 0x80) {
        must_rest();
        must(!gpu()->render.bytes && !gpu()->count.resources && !gpu()->count.contexts);
    }
    enable();
}

static void answer_all(void)
{
    for (unsigned n = 0; n < ANSWERS_MAX && rc_answer_one(&r); n++)
        rc_look(&r);
}

static void step(input *in)
{
    uint8_t op = next(in);
    switch (op & 15) {
    case 8:
        put_answers(&r, op);
        break;
    case 9:
        put_reset(op);
        break;
    case 10:
        now_ns += (uint64_t)1 << (op >> 4) << 20;
        break;
    case 11:
        renderer_acts(in, op);
        break;
    case 12:
    case 13:
        renderer_answer(in, op);
        break;
    case 14:
        for (unsigned n = 1u + (op >> 4); n && rc_answer_one(&r); n--)
            rc_look(&r);
        break;
    case 15:
        answer_all();
        break;
    default:
        put_command(in, op);
        if (!(op & 0x80)) /* else its memory stays unread for now */
            answer_all();
        break;
    }
    r.kind->tick(r.dev, now_ns);
    renderer_look();
    rc_look(&r);
    check_limits();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    device_settings set = { .memory_bytes = 64 << 10, .mps_bytes = 512, .identity = 0x20002 };
    input in = { data, size };
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
        return 0;
    set.renderer = pair[0];
    memset(&it, 0, sizeof it);
    it.launcher = pair[1];
    it.socket = -1;
    now_ns = 1000000000;
    features = VIRTIO_F_VERSION_1 | VIRTIO_F_ACCESS_PLATFORM | VIRTIO_F_INDIRECT_DESC |
               VIRTIO_F_NOTIFICATION_DATA | F_VIRGL;
    ring_size = 32;
    rc_open(&r, &virtio_gpu_kind, &set, BDF);
    r.foreign = true;
    r.kind->tick(r.dev, now_ns);
    enable();
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in);
    answer_all();
    rc_close(&r);
    renderer_end();
    (void)close(it.launcher);
    return 0;
}
