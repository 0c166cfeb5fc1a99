/* Fuzz target: virtio's transport and its devices under a hostile driver.  The input is features
   and the device, then steps: descriptors, rings and tables in the host's memory, also while they
   are being read, notifications, registers, configuration requests, unsolicited completions, jobs
   that end late, frames, time and resets of every kind.  Whatever the device emits is a TLP that
   decodes strictly; a device that was reset, or needs a reset, accesses no memory; and it comes to
   an end.
   libFuzzer: -max_len=512 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dxpu.h"

#include "virtio_blk.h"
#include "virtio_gpu.h"
#include "virtio_net.h"

#include "virtio_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STORE_BYTES = 128 << 10, ANSWERS_MAX = 3000, STEPS_MAX = 400 };

static enum { BLK, GPU, NET } which;
static int wire; /* the other end of a network adapter's frames */
static uint64_t now_ns;

/* ==== Jobs that end when the input says ======================================================= */

static jobs_queue waiting, over;

static job *take(jobs_queue *q)
{
    job *j = q->head;
    if (j) {
        q->head = j->next;
        if (!q->head)
            q->tail = &q->head;
    }
    return j;
}

static void job_over(void *user, job *j)
{
    (void)user;
    rc_job_keep(&over, j);
}

static void job_submit(void *user, job *j)
{
    (void)user;
    if (j->quick && j->quick(j))
        job_over(NULL, j);
    else
        rc_job_keep(&waiting, j);
}

static job *job_reap(void *user)
{
    (void)user;
    return take(&over);
}

/* The first has begun. */
static bool job_cancel(void *user, job *j)
{
    job *first = waiting.head;
    (void)user;
    if (!first || first == j)
        return false;
    for (job *at = first; at->next; at = at->next) {
        if (at->next != j)
            continue;
        at->next = j->next;
        if (!at->next)
            waiting.tail = &at->next;
        return true;
    }
    return false;
}

static void job_run(void)
{
    job *j = take(&waiting);
    if (!j)
        return;
    j->run(j);
    job_over(NULL, j);
}

static void job_settle(void *user)
{
    (void)user;
    while (waiting.head)
        job_run();
}

/* ==== The driver ============================================================================== */

/* Where the rings, tables and requests of the steps are, or anywhere. */
static uint64_t address(input *in, uint8_t how)
{
    uint64_t at;
    switch (how & 3) {
    case 0:
        return MEM_LOW + AT_DATA + (uint32_t)next(in) * 64u;
    case 1:
        return MEM_LOW + AT_HEADERS + (uint32_t)next(in) * 4u;
    case 2:
        return MEM_LOW + AT_RINGS + next32(in) % 0x4000u;
    default:
        at = next32(in);
        return at | (uint64_t)next32(in) << 32;
    }
}

/* A descriptor of a queue, or of a table. */
static void put_any_desc(input *in, uint8_t op)
{
    uint8_t how = next(in), i = next(in), flags = next(in);
    uint64_t at = address(in, how);
    uint32_t bytes = how & 0x10 ? next32(in) : how & 0x20 ? next(in) * 16u : next(in);
    uint8_t *table = op & 0x20 ? r.mem + AT_TABLES + (i >> 6) * 0x400u : ring_mem(op >> 4 & 1, 0);
    put_desc(table + (i & 63) * 16u, at, bytes, flags & 7u, flags & 0x80 ? next(in) : flags >> 3);
}

/* A request as a driver makes one, but for what the input changes. */
static void put_request(input *in, uint8_t op)
{
    static const uint8_t types[] = { 0, 1, 4, 8, 11, 13, 1, 0 };
    uint8_t how = next(in), first = next(in) % 32;
    chain c = chain_begin(op, op >> 4 & 1, first);
    uint32_t bytes = (how & 8 ? 0x1000u : 0x200u) * (1u + (how >> 6)) + (how & 16 ? next(in) : 0);
    uint8_t *h = r.mem + AT_HEADERS + first * 64u;
    unsigned wide = how & 32 ? next(in) * 16u : 16;
    unsigned writable = types[how & 7] == 0 || types[how & 7] == 8 ? 2 : 0;
    dxpu_put_le32(h, types[how & 7]);
    dxpu_put_le32(h + 8, next(in));
    chain_put(&c, 0, MEM_LOW + AT_HEADERS + first * 64u, wide, 1);
    chain_put(&c, 1, MEM_LOW + AT_DATA + first * 0x800u, bytes, 1 | writable);
    chain_put(&c, 2, MEM_LOW + AT_HEADERS + first * 64u + 32, 1, 2);
    chain_give(&c, 3);
}

/* Rectangles are small, or anything. */
static void put_rect(input *in, uint8_t how, uint8_t *to)
{
    for (unsigned i = 0; i < 4; i++)
        dxpu_put_le32(to + i * 4u, how & 0x80 ? next32(in) : next(in));
}

/* The words of a command of the display adapter. */
static void put_gpu_words(input *in, uint8_t how, uint32_t type, uint8_t *c)
{
    uint32_t id = next(in) & 7;
    if (type == 0x101) {
        dxpu_put_le32(c, id);
        dxpu_put_le32(c + 4, how & 0x40 ? next(in) : 1);
        dxpu_put_le32(c + 8, how & 0x80 ? next32(in) : next(in));
        dxpu_put_le32(c + 12, how & 0x80 ? next32(in) : next(in));
    } else if (type >= 0x103 && type <= 0x105) {
        put_rect(in, how, c);
        dxpu_put_le32(c + 16, type == 0x103 ? how >> 6 & 1 : type == 0x104 ? id : next(in) * 16u);
        dxpu_put_le32(c + 20, type == 0x103 ? id : 0);
        dxpu_put_le32(c + 24, id);
    } else if (type >= 0x300) {
        dxpu_put_le32(c, how >> 6 & 1);
        dxpu_put_le32(c + 4, (uint32_t)(int8_t)next(in));
        dxpu_put_le32(c + 8, (uint32_t)(int8_t)next(in));
        dxpu_put_le32(c + 16, id);
    } else {
        dxpu_put_le32(c, type == 0x10a ? how >> 6 & 1 : id);
        dxpu_put_le32(c + 4, how & 0x80 ? next32(in) : next(in) % 9u);
    }
}

/* A command as a driver makes one, but for what the input changes; of attach a list follows it. */
static void put_gpu_command(input *in, uint8_t op)
{
    static const uint16_t types[] = { 0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x106, 0x107,
                                      0x10a, 0x300, 0x301, 0x105, 0x101, 0x106, 0x105, 0x108 };
    uint8_t how = next(in), first = next(in) % 16 * 2;
    chain c = chain_begin(op, op >> 4 & 1, first);
    uint32_t type = types[how & 15], list = type == 0x106 ? 0x100 : 0;
    uint8_t *h = r.mem + AT_HEADERS + first * 64u, *to = r.mem + AT_DATA + first * 0x800u;
    dxpu_put_le32(h, type);
    dxpu_put_le32(h + 4, how >> 4 & 1);
    put_gpu_words(in, how, type, h + 24);
    for (unsigned i = 0; list && i < 16; i += 4) { /* every fourth as the input says */
        dxpu_put_le64(to + i * 16u, address(in, how & 0x20 ? next(in) : 0));
        dxpu_put_le32(to + i * 16u + 8, how & 0x40 ? next32(in) : next(in) * 16u);
    }
    chain_put(&c, 0, MEM_LOW + AT_HEADERS + first * 64u, list ? 32 : 64, 1);
    chain_put(&c, 1, MEM_LOW + AT_DATA + first * 0x800u, list ? list : 0x440, list ? 1 : 2);
    chain_put(&c, 2, MEM_LOW + AT_DATA + first * 0x800u + 0x400, 24, 2);
    chain_give(&c, list ? 3 : 2);
}

/* A buffer for a frame, a frame, or a command of the control queue. */
static void put_buffer(input *in, uint8_t op)
{
    uint8_t how = next(in), first = next(in) % 16 * 2;
    unsigned q = how & 0x80 ? 2 : op >> 4 & 1;
    chain c = chain_begin(op, q, first);
    uint8_t *to = r.mem + (q == 2 ? AT_HEADERS + first * 64u : AT_DATA + first * 0x800u);
    uint64_t place = MEM_LOW + (uint64_t)(to - r.mem);
    uint32_t bytes = how & 0x40 ? next32(in) % 0x12000u : next(in) * 8u;
    if (q == 2)
        bytes = how & 31;
    for (uint32_t i = 0; i < (q == 2 ? bytes : 16); i++)
        to[i] = next(in);
    chain_put(&c, 0, place, bytes, q == 0 ? 2 : 1);
    chain_put(&c, 1, place + (q == 2 ? 63 : 16), q == 2 ? 1 : next(in), q == 2 ? 2 : 0);
    chain_give(&c, q == 0 ? 1 : 2);
}

/* A frame from the other end, with a header of 12 bytes; those that came to it are taken. */
static void put_on_wire(input *in, uint8_t op)
{
    static uint8_t frame[16 * 255];
    ssize_t got;
    do
        got = recv(wire, frame, sizeof frame, 0);
    while (got > 0);
    memset(frame, 0, sizeof frame);
    for (unsigned i = 0; i < 32 && op & 0x10; i++)
        frame[i] = next(in);
    (void)!send(wire, frame, op & 0x40 ? next(in) * 16u : next(in), 0);
}

/* What is shown can be looked at whenever the box is asked to. */
static void look_at_picture(void)
{
    static uint8_t rgb[3 * 255 * 255];
    unsigned w = 0, h = 0;
    if (!r.kind->picture || !r.kind->picture(r.dev, NULL, 0, 0, &w, &h))
        return;
    must(w && h && (uint64_t)w * h <= 16 << 20);
    if (w <= 255 && h <= 255)
        must(r.kind->picture(r.dev, rgb, 0, h, &w, &h));
}

static void put_ring(input *in, uint8_t op)
{
    unsigned q = op >> 4 & 1;
    uint8_t *a = ring_mem(q, AT_AVAIL);
    switch (op >> 5) {
    case 0: /* an entry */
        avail_put(q, next(in));
        break;
    case 1: /* the index jumps */
        made[q] = (uint16_t)(made[q] + next(in));
        dxpu_put_le16(a + 2, made[q]);
        break;
    case 2:
        dxpu_put_le16(a + 4 + 2u * ring_size, next(in)); /* used_event */
        break;
    case 3:
        dxpu_put_le16(a, next(in));
        break;
    case 4: /* words of a segment list */
        for (unsigned i = 0; i < 16; i++)
            dxpu_put_le32(r.mem + AT_DATA + i * 4u, next(in));
        break;
    default:
        notify(q);
        break;
    }
}

/* Of the common configuration, or anywhere; as wide as the input says. */
static void put_register(input *in, uint8_t op)
{
    uint32_t offset = op & 0x10 ? next(in) % VIRTIO_COMMON_BYTES : next32(in) % VIRTIO_BAR_BYTES;
    unsigned bytes = 1u << (op >> 6);
    offset &= ~(bytes - 1);
    if (op & 0x20) {
        dxpu_tlp t = rc_request(&r, DXPU_TLP_MRD, BAR + offset, bytes);
        t.tag = next(in);
        rc_give(&r, &t);
    } else if (bytes == 8) {
        uint64_t low = next32(in);
        set(offset, low | (uint64_t)next32(in) << 32, 8);
    } else {
        set(offset, next32(in), bytes);
    }
}

/* ==== Claims ================================================================================== */

/* Whatever was asked for arrives, jobs end, and the device touches no memory. */
static void must_rest(void)
{
    unsigned n = 0, reads, writes;
    rc_look(&r);
    reads = r.reads;
    writes = r.writes;
    while (rc_answer_one(&r))
        must(++n < ANSWERS_MAX * 16);
    job_settle(NULL);
    r.kind->tick(r.dev, now_ns);
    rc_look(&r);
    must(r.reads == reads && r.writes == writes);
}

static uint8_t status(void)
{
    return ((const virtio *)r.dev)->status;
}

static void put_reset(input *in, uint8_t op)
{
    dxpu_event hot = { 0 };
    hot.type = DXPU_EVENT_HOT_RESET;
    hot.flags = DXPU_EVENT_ON;
    switch (op >> 4 & 7) {
    case 0:
        r.kind->reset(r.dev);
        rc_forget(&r);
        break;
    case 1:
        r.kind->event(r.dev, &hot);
        rc_forget(&r);
        break;
    case 2: /* Function Level Reset */
        cfg_write_be(&r, 0x68, 0x8000, 0x3);
        break;
    case 3:
        set(0x14, 0, 1);
        break;
    case 4: /* of a queue, which is made again with another size */
        set(0x16, next(in) % QUEUES, 2);
        set(0x3a, 1, 2);
        return;
    case 5:
        make_queue(next(in) % QUEUES);
        return;
    default:
        ring_size = (uint16_t)(1u << (next(in) & 7));
        negotiate();
        return;
    }
    if (op & 0x80)
        must_rest();
    enable();
}

static void step(input *in)
{
    uint8_t op = next(in);
    switch (op & 15) {
    case 0:
        put_config(&r, in, op);
        break;
    case 1:
        put_register(in, op);
        break;
    case 2:
    case 3:
        put_any_desc(in, op);
        break;
    case 4:
        put_completion(&r, in);
        break;
    case 5:
        now_ns += (uint64_t)1 << (op >> 4) << 20;
        r.kind->tick(r.dev, now_ns);
        break;
    case 6:
        put_answers(&r, op);
        break;
    case 7:
        put_reset(in, op);
        break;
    case 8:
    case 9:
        for (unsigned n = op >> 4; n && rc_answer_one(&r); n--)
            rc_look(&r);
        break;
    case 10:
        if (which == NET)
            put_on_wire(in, op);
        for (unsigned n = 1u + (op >> 4); n; n--)
            job_run();
        r.kind->tick(r.dev, now_ns);
        break;
    case 11:
    case 12:
        put_ring(in, op);
        break;
    default:
        if (which == GPU)
            put_gpu_command(in, op);
        else if (which == NET)
            put_buffer(in, op);
        else
            put_request(in, op);
        break;
    }
    rc_look(&r);
    look_at_picture();
}

static uint64_t choose_features(uint8_t how)
{
    static const uint64_t own[] = {
        (uint64_t)1 << 9,         /* FLUSH of a block device */
        (uint64_t)1 << 1,         /* EDID of a display adapter */
        (uint64_t)0x13f << 15 | 3 /* checksums, merged buffers, all of the control queue */
    };
    const uint64_t bit[] = { VIRTIO_F_INDIRECT_DESC, VIRTIO_F_EVENT_IDX, VIRTIO_F_NOTIFICATION_DATA,
                             VIRTIO_F_RING_RESET, own[which] };
    uint64_t out = VIRTIO_F_VERSION_1 | VIRTIO_F_ACCESS_PLATFORM;
    for (unsigned i = 0; i < sizeof bit / sizeof *bit; i++)
        out |= how >> i & 1 ? bit[i] : 0;
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    jobs late = { NULL, job_submit, job_reap, job_cancel, job_settle };
    device_settings set = { .memory_bytes = STORE_BYTES, .mps_bytes = 512, .identity = 0x20001 };
    input in = { data, size };
    static const device_kind *const which_kind[] = { &virtio_blk_kind, &virtio_gpu_kind,
                                                     &virtio_net_kind };
    int ends[2];
    uint8_t first;
    set.jobs = &late;
    now_ns = 1000000000;
    waiting.tail = &waiting.head;
    over.tail = &over.head;
    first = next(&in);
    which = first < 0x80 ? BLK : first < 0xc0 ? GPU : NET;
    features = choose_features(first);
    ring_size = 32;
    if (which == NET && !socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends)) {
        set.descriptor = (uint64_t)ends[1];
        wire = ends[0];
    }
    rc_open(&r, which_kind[which], &set, BDF);
    r.foreign = true;
    r.kind->tick(r.dev, now_ns); /* it knows the time before it asks for anything */
    enable();
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in);
    for (unsigned n = 0; n < ANSWERS_MAX && rc_answer_one(&r); n++)
        rc_look(&r);
    if (status() & VIRTIO_NEEDS_RESET)
        must_rest();
    rc_close(&r);
    if (which == NET)
        (void)close(wire);
    return 0;
}
