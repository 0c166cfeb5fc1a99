/* Fuzz target: a hostile vfio-user client, and a server program that answers late, twice, or not at
   all.  The input is a list of steps: messages with right or wrong headers and descriptors, raw
   bytes, replies to the server's own messages, new connections, and calls of the server's program.
   A client that reads late meets writes that interrupt it.
   The server never waits and never spins, what it sends is well-formed and answers only what was
   asked, guest memory ends where its regions end, and no descriptor stays open.
   libFuzzer: -max_len=1024 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "dxpu_vfio_user.h"
#include "dxpu_vfio_user_stream.h"
#include "descriptors.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOKENS = 8, BARS = 4096 };

typedef struct world {
    dxpu_vfu *s;
    int peer;
    uint8_t bar[BARS], config[256];
    uint64_t tokens[TOKENS];
    uint32_t sizes[TOKENS];
    unsigned kept;
    bool later, deaf;
    uint8_t asked[16]; /* header and body of the server's latest DMA message */
    uint8_t asked_body[16];
    long open_commands; /* that may still be answered */
    size_t have;        /* bytes of a message that is not complete */
} world;

static size_t next_bytes(input *in, uint8_t *out, size_t n)
{
    const uint8_t *p = next_piece(in, &n);
    memcpy(out, p, n);
    return n;
}

static void remember(world *w, uint64_t token, uint32_t bytes)
{
    w->tokens[w->kept % TOKENS] = token;
    w->sizes[w->kept++ % TOKENS] = bytes;
}

static void on_read(void *user, const dxpu_vfu_access *a)
{
    world *w = (world *)user;
    static const uint8_t zero[65536];
    remember(w, a->token, a->bytes);
    must(a->token && a->bytes > 0 && a->bytes <= 4096);
    must(a->region != 0 || (a->offset < BARS && a->bytes <= BARS - a->offset));
    if (!w->later)
        must(dxpu_vfu_reply_read(w->s, a->token, a->region == 0 ? w->bar + a->offset : zero,
                                 a->bytes) == DXPU_OK);
}

static void on_write(void *user, const dxpu_vfu_access *a, const uint8_t *data)
{
    world *w = (world *)user;
    remember(w, a->token, a->bytes);
    must(a->region != 1); /* read-only */
    if (a->region == 0)
        memcpy(w->bar + a->offset, data, a->bytes);
    if (a->region == 0 && a->offset == 8)
        dxpu_vfu_pause(w->s, true);
    if (a->region == 0 && a->offset == 12)
        dxpu_vfu_disconnect(w->s);
    if (a->region == 0 && a->offset >= 16 && a->offset < 24)
        (void)dxpu_vfu_msi(w->s, 0xfee00000, 1);
    if (!w->later && a->token)
        (void)dxpu_vfu_reply_write(w->s, a->token);
}

static void on_reset(void *user, uint64_t token)
{
    world *w = (world *)user;
    remember(w, token, 0);
    if (!w->later && token)
        must(dxpu_vfu_reply_write(w->s, token) == DXPU_OK);
}

static void on_done(void *user, uint64_t tag, int error, dxpu_bytes data)
{
    must(user && tag < 256 && (error || data.len <= 4096));
}

/* Receive all there is, and look at it. */
static void drain(world *w)
{
    static uint8_t in[1 << 17];
    size_t at = 0;
    ssize_t n;
    while ((n = recv(w->peer, in + w->have, sizeof in - w->have, MSG_DONTWAIT)) > 0) {
        w->have += (size_t)n;
        for (; w->have - at >= HEADER; at += get32(in + at + 4)) {
            uint32_t length = get32(in + at + 4), flags = get32(in + at + 8);
            must(length >= HEADER && length <= HEADER + ACCESS + 4096);
            if (w->have - at < length)
                break;
            if (flags & TYPE_REPLY) {
                must(w->open_commands-- > 0);
                must((flags & ~0x21u) == 0 && (!(flags & FLAG_ERROR) || length == HEADER));
            } else {
                uint16_t command = get16(in + at + 2);
                must(command == CMD_DMA_READ || command == CMD_DMA_WRITE);
                memcpy(w->asked, in + at, 16);
                memcpy(w->asked_body, in + at + 16, 16);
            }
        }
        memmove(in, in + at, w->have - at);
        w->have -= at;
        at = 0;
    }
}

static void pump(world *w)
{
    int i;
    struct pollfd p;
    p.fd = dxpu_vfu_fd(w->s);
    p.events = POLLIN;
    for (i = 0; i < 300 && poll(&p, 1, 0) == 1; i++) {
        must(dxpu_vfu_process(w->s) == DXPU_OK);
        if (w->peer >= 0 && !w->deaf)
            drain(w);
    }
    must(i < 300);
}

static void connect_again(world *w)
{
    int pair[2], sndbuf = 0; /* as small as there is */
    if (w->peer >= 0)
        close(w->peer);
    w->peer = -1;
    pump(w);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    must(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf) == 0);
    must(dxpu_vfu_adopt(w->s, pair[0]) == DXPU_OK);
    w->peer = pair[1];
    w->open_commands = 0;
    w->have = 0;
}

/* What a client may do to a file that the server has, too: take its pages away, or fill a counter
   and let writers wait. */
static void spoil(int fd, unsigned kind)
{
    uint64_t most = UINT64_MAX - 1;
    if (kind % 4 == 0) {
        must(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
        (void)!write(fd, &most, sizeof most);
        must(fcntl(fd, F_SETFL, 0) == 0);
    } else if (kind % 4 > 1) {
        (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 65536);
        (void)!ftruncate(fd, 4096);
    }
}

/* Send with `count` descriptors of a kind, which are closed here afterwards. */
static void transmit(world *w, const uint8_t *p, size_t n, unsigned kind, unsigned count)
{
    int fds[16] = { 0 };
    unsigned i;
    for (i = 0; i < count; i++) {
        if (kind % 4 == 0)
            fds[i] = eventfd(0, EFD_CLOEXEC);
        else if (kind % 4 == 1)
            fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
        else
            fds[i] = memfd_create("m", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        must(fds[i] >= 0 && (kind % 4 < 2 || ftruncate(fds[i], 65536) == 0));
        if (kind % 4 == 2)
            must(fcntl(fds[i], F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    }
    (void)!send_with_fds(w->peer, p, n, fds, count, MSG_DONTWAIT);
    for (i = 0; i < count; i++) {
        if (kind % 4 == 3 || kind >= 8)
            spoil(fds[i], kind);
        close(fds[i]);
    }
}

/* A message: command, flags, descriptors (kind and count), id, length, body. */
static void step_message(world *w, input *in)
{
    uint8_t m[HEADER + 256];
    uint8_t command = next(in), flags = next(in), fds = next(in), id = next(in);
    size_t len = next_bytes(in, m + HEADER, next(in));
    put16(m, id);
    put16(m + 2, command);
    put32(m + 4, (uint32_t)(HEADER + len));
    put32(m + 8, flags);
    put32(m + 12, 0);
    w->open_commands++;
    transmit(w, m, HEADER + len, fds >> 4, fds & 15);
}

static void step_raw(world *w, input *in)
{
    uint8_t m[255];
    uint8_t fds = next(in);
    size_t len = next_bytes(in, m, next(in));
    w->open_commands += 1 + (long)len / HEADER;
    if (len)
        transmit(w, m, len, fds >> 4, fds & 15);
}

/* A reply to the server's latest message: flags, how much of the answer is right, data. */
static void step_reply(world *w, input *in)
{
    uint8_t m[HEADER + ACCESS + 255];
    uint8_t flags = next(in);
    size_t len;
    memcpy(m, w->asked, HEADER);
    memcpy(m + HEADER, w->asked_body, ACCESS);
    len = HEADER + ACCESS + next_bytes(in, m + HEADER + ACCESS, next(in));
    put32(m + 4, (uint32_t)len);
    put32(m + 8, TYPE_REPLY | (flags & FLAG_ERROR));
    if (flags & 1)
        m[HEADER] ^= 1;
    transmit(w, m, len, 0, 0);
}

static void step_program(world *w, input *in)
{
    static uint8_t block[4096];
    uint8_t what = next(in), i = next(in);
    uint64_t address = (uint64_t)next(in) << (next(in) & 63);
    uint64_t token = w->tokens[i % TOKENS];
    size_t bytes = (size_t)i * 17;
    switch (what % 12) {
    case 0:
        (void)dxpu_vfu_reply_read(w->s, token, block, w->sizes[i % TOKENS]);
        break;
    case 1:
        (void)dxpu_vfu_reply_write(w->s, token);
        break;
    case 2:
        (void)dxpu_vfu_reply_error(w->s, token, i);
        break;
    case 3:
        dxpu_vfu_pause(w->s, i & 1);
        break;
    case 4:
        (void)dxpu_vfu_dma_read(w->s, address + i, block, bytes > 4096 ? 4096 : bytes);
        break;
    case 5:
        (void)dxpu_vfu_dma_write(w->s, address - i, block, bytes > 4096 ? 4096 : bytes);
        break;
    case 6:
        (void)dxpu_vfu_dma_send_read(w->s, address, bytes, i);
        break;
    case 7:
        (void)dxpu_vfu_dma_send_write(w->s, address, block, bytes > 4096 ? 4096 : bytes, i & 1, i);
        break;
    case 8:
        (void)dxpu_vfu_msi(w->s, address, i);
        break;
    case 9:
        (void)dxpu_vfu_irq_raise(w->s, i >> 5, i & 31);
        break;
    case 10:
        dxpu_vfu_disconnect(w->s);
        break;
    default:
        if (i & 0x80)
            w->deaf = !w->deaf;
        else
            w->later = !w->later;
    }
}

/* How a range can be reached, by the regions as they are listed: from one to the next that has the
   byte behind it, in whatever order. */
static int reach(const dxpu_vfu *s, uint64_t at, uint64_t bytes, unsigned access)
{
    int how = DXPU_VFU_DMA_DIRECT;
    dxpu_vfu_memory m;
    if (bytes == 0 || at + (bytes - 1) < at)
        return DXPU_VFU_DMA_VOID;
    while (bytes) {
        uint64_t here;
        uint32_t i = 0;
        while (dxpu_vfu_memory_at(s, i, &m) && (at < m.address || at - m.address >= m.bytes))
            i++;
        if (!dxpu_vfu_memory_at(s, i, &m) || (m.access & access) != access)
            return DXPU_VFU_DMA_NONE;
        if (!m.direct)
            how = DXPU_VFU_DMA_MESSAGE;
        here = m.bytes - (at - m.address);
        here = here < bytes ? here : bytes;
        at += here;
        bytes -= here;
    }
    return how;
}

static void check_range(dxpu_vfu *s, uint64_t at, size_t bytes)
{
    uint8_t data[8];
    must(bytes <= sizeof data);
    for (unsigned access = 1; access <= 3; access++)
        must(dxpu_vfu_dma_probe(s, at, bytes, access) == reach(s, at, bytes, access));
    must(dxpu_vfu_dma_read(s, at, data, bytes) != DXPU_OK ||
         reach(s, at, bytes, DXPU_VFU_READ) == DXPU_VFU_DMA_DIRECT);
}

/* Accesses that end at a region's bounds, and that straddle them. */
static void check_memory(dxpu_vfu *s)
{
    dxpu_vfu_memory m;
    for (uint32_t i = 0; dxpu_vfu_memory_at(s, i, &m); i++) {
        uint64_t end = m.address + m.bytes; /* 0: at 2^64 */
        check_range(s, m.address, 4);
        check_range(s, m.address - 1, 2);
        check_range(s, end - 4, 4);
        check_range(s, end - 4, 5);
        check_range(s, end, 1);
    }
}

static dxpu_vfu *start(world *w)
{
    dxpu_vfu_config cfg;
    dxpu_vfu_callbacks cb;
    const char *why;
    dxpu_vfu_config_default(&cfg);
    cfg.region[0].bytes = BARS;
    cfg.region[0].access = 3;
    cfg.region[1].bytes = 4096;
    cfg.region[1].access = DXPU_VFU_READ;
    cfg.irqs[DXPU_VFU_INTX] = 1;
    cfg.irqs[DXPU_VFU_MSIX] = 16;
    cfg.transfer_bytes = 4096;
    cfg.queue_bytes = 8192;
    cfg.requests = 4;
    cfg.dma_maps = 8;
    cfg.dma_messages = 3;
    memset(&cb, 0, sizeof cb);
    cb.user = w;
    cb.read = on_read;
    cb.write = on_write;
    cb.reset = on_reset;
    cb.dma_done = on_done;
    return dxpu_vfu_open(&cfg, &cb, &why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world w;
    input in;
    int before = lowest_fd();
    in.at = data;
    in.left = size;
    memset(&w, 0, sizeof w);
    w.peer = -1;
    w.s = start(&w);
    must(w.s != NULL);
    connect_again(&w);
    while (in.left) {
        uint8_t step = next(&in);
        if (step % 8 < 3)
            step_message(&w, &in);
        else if (step % 8 == 3)
            step_raw(&w, &in);
        else if (step % 8 == 4)
            step_reply(&w, &in);
        else if (step % 8 == 5 && (step & 0x80))
            connect_again(&w);
        else
            step_program(&w, &in);
        if (!(step & 0x40)) /* else several steps are read at once */
            pump(&w);
        check_memory(w.s);
    }
    w.deaf = false;
    pump(&w);
    dxpu_vfu_close(w.s);
    close(w.peer);
    /* a thread closes what is neither memory nor an eventfd */
    must(settled(lowest_fd, before) == before);
    return 0;
}
