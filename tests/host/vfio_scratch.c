/* tests/host/vfio_scratch.c: a PCI function for tests of the vfio-user server under a real QEMU.
   SPDX-License-Identifier: MIT

       vfio_scratch SOCKET

   1234:d0c5, MSI-X with 4 vectors.
     BAR0  64 KiB, 32-bit: memory
     BAR2   4 KiB, 64-bit prefetchable: registers
             0x00  source address (8)       0x08  target address (8)
             0x10  bytes (4)                0x14  doorbell (4), see the DOORBELL_ numbers
             0x18  result of the doorbell   0x1c  resets so far
             0x20  late reads asked so far (4)   0x24  of them answered later (4)
             0x40  read: answered 20 ms later, with what 0x48 holds then
     BAR4   4 KiB, 32-bit: MSI-X table and pending bits (the client keeps the table)
   Prints "ready", then obeys lines on standard input: "count" prints the counters and an empty
   line, "memory" the regions of guest memory and an empty line; the end of input ends it. */
#define _POSIX_C_SOURCE 200809L
#include "dxpu_vfio_user.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    DOORBELL_COPY = 1,        /* source to target */
    DOORBELL_MSI = 2,         /* `bytes` as data to target, by message */
    DOORBELL_IRQ = 3,         /* raise vector `bytes` */
    DOORBELL_FETCH = 4,       /* 4 bytes at source into 0x48, by message */
    DOORBELL_COPY_MESSAGE = 5 /* 4 bytes from 0x48 to target, by message, answered */
};

enum { SCRATCH = 65536, REGISTERS = 4096, TABLE = 4096, VECTORS = 4, MSIX = 0x40, LATE_MS = 20 };

typedef struct device {
    dxpu_vfu *server;
    uint8_t config[256], writable[256];
    uint8_t scratch[SCRATCH], registers[REGISTERS];
    uint64_t late; /* token of the read at 0x40 */
    uint32_t late_bytes;
    struct timespec due;
} device;

static void put(uint8_t *p, uint64_t v, unsigned bytes)
{
    unsigned i;
    for (i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    while (bytes-- > 0)
        v = v << 8 | p[bytes];
    return v;
}

/* A BAR of `bytes`: `type` in its low bits, the address bits above its size writable. */
static void bar(device *d, unsigned at, uint64_t bytes, unsigned type)
{
    unsigned width = type & 4 ? 8 : 4;
    put(d->config + at, type, width);
    put(d->writable + at, ~(bytes - 1), width);
}

static void power_on(device *d)
{
    memset(d->config, 0, sizeof d->config);
    memset(d->writable, 0, sizeof d->writable);
    put(d->config, 0xd0c51234, 4);
    put(d->writable + 4, 0x0407, 2);      /* command: I/O, memory, bus master, INTx off */
    put(d->config + 6, 0x0010, 2);        /* status: capabilities */
    put(d->config + 8, 0xff000001, 4);    /* class: none of the others */
    put(d->config + 0x2c, 0xd0c51234, 4); /* subsystem */
    put(d->config + 0x34, MSIX, 1);
    put(d->writable + 0x3c, 0xff, 1);
    bar(d, 0x10, SCRATCH, 0x0);
    bar(d, 0x18, REGISTERS, 0xc);
    bar(d, 0x20, TABLE, 0x0);
    put(d->config + MSIX, 0x11 | (uint64_t)(VECTORS - 1) << 16, 4);
    put(d->writable + MSIX + 2, 0xc000, 2);
    put(d->config + MSIX + 4, 4, 4);         /* table: BAR4 + 0 */
    put(d->config + MSIX + 8, 0x800 | 4, 4); /* pending bits: BAR4 + 0x800 */
    memset(d->scratch, 0, sizeof d->scratch);
    memset(d->registers, 0, sizeof d->registers);
}

static uint8_t *bytes_of(device *d, const dxpu_vfu_access *a)
{
    if (a->region == DXPU_VFU_CONFIG)
        return d->config + a->offset;
    if (a->region == 0)
        return d->scratch + a->offset;
    return a->region == 2 ? d->registers + a->offset : NULL;
}

static void on_read(void *user, const dxpu_vfu_access *a)
{
    static const uint8_t zero[65536];
    device *d = (device *)user;
    const uint8_t *p = bytes_of(d, a);
    if (a->region == 2 && a->offset == 0x40 && d->late == 0) {
        d->late = a->token;
        d->late_bytes = a->bytes;
        put(d->registers + 0x20, get(d->registers + 0x20, 4) + 1, 4);
        clock_gettime(CLOCK_MONOTONIC, &d->due);
        d->due.tv_nsec += LATE_MS * 1000000;
        return;
    }
    dxpu_vfu_reply_read(d->server, a->token, p ? p : zero, a->bytes);
}

static void doorbell(device *d, uint32_t what)
{
    uint64_t source = get(d->registers, 8), target = get(d->registers + 8, 8);
    uint32_t bytes = (uint32_t)get(d->registers + 0x10, 4);
    uint8_t *block;
    int rc = DXPU_E_ARG;
    if (what == DOORBELL_COPY && bytes <= 1048576 && (block = (uint8_t *)malloc(bytes + 1))) {
        rc = dxpu_vfu_dma_read(d->server, source, block, bytes);
        if (rc == DXPU_OK)
            rc = dxpu_vfu_dma_write(d->server, target, block, bytes);
        free(block);
    } else if (what == DOORBELL_MSI) {
        rc = dxpu_vfu_msi(d->server, target, bytes);
    } else if (what == DOORBELL_IRQ) {
        rc = dxpu_vfu_irq_raise(d->server, DXPU_VFU_MSIX, bytes);
    } else if (what == DOORBELL_FETCH) {
        rc = dxpu_vfu_dma_send_read(d->server, source, 4, 1);
    } else if (what == DOORBELL_COPY_MESSAGE) {
        rc = dxpu_vfu_dma_send_write(d->server, target, d->registers + 0x48, 4, false, 2);
    }
    put(d->registers + 0x18, (uint32_t)rc, 4);
}

static void on_write(void *user, const dxpu_vfu_access *a, const uint8_t *data)
{
    device *d = (device *)user;
    uint8_t *p = bytes_of(d, a);
    uint32_t i;
    for (i = 0; p && i < a->bytes; i++) {
        uint8_t w = a->region == DXPU_VFU_CONFIG ? d->writable[a->offset + i] : 0xff;
        p[i] = (uint8_t)((p[i] & ~w) | (data[i] & w));
    }
    if (a->region == 2 && a->offset == 0x14 && a->bytes == 4)
        doorbell(d, (uint32_t)get(data, 4));
    if (a->token)
        dxpu_vfu_reply_write(d->server, a->token);
}

static void on_reset(void *user, uint64_t token)
{
    device *d = (device *)user;
    uint64_t resets = get(d->registers + 0x1c, 4);
    power_on(d);
    put(d->registers + 0x1c, resets + 1, 4);
    if (token)
        dxpu_vfu_reply_write(d->server, token);
}

static void on_connected(void *user)
{
    (void)user;
    printf("connected\n");
}

static void on_disconnected(void *user, const char *why)
{
    ((device *)user)->late = 0;
    printf("disconnected: %s\n", why);
}

static void on_dma_done(void *user, uint64_t tag, int error, dxpu_bytes data)
{
    device *d = (device *)user;
    put(d->registers + 0x18, error ? (uint64_t)error : 0x100 + tag, 4);
    if (!error && data.len == 4)
        memcpy(d->registers + 0x48, data.ptr, 4);
}

static void obey(device *d, const char *line)
{
    dxpu_vfu_memory m;
    unsigned i;
    for (i = 0; strcmp(line, "count\n") == 0 && dxpu_vfu_counter_name(i); i++)
        printf("%s %llu\n", dxpu_vfu_counter_name(i),
               (unsigned long long)dxpu_vfu_counter_value(d->server, i));
    for (i = 0; strcmp(line, "memory\n") == 0 && dxpu_vfu_memory_at(d->server, i, &m); i++)
        printf("%llx %llx %s%s\n", (unsigned long long)m.address, (unsigned long long)m.bytes,
               m.access & DXPU_VFU_WRITE ? "rw" : "ro", m.direct ? "" : " by message");
    printf("\n");
}

/* Milliseconds until the late read is due, -1 when there is none. */
static int wait_ms(const device *d)
{
    struct timespec now;
    long ms;
    if (!d->late)
        return -1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (long)(d->due.tv_sec - now.tv_sec) * 1000 + (d->due.tv_nsec - now.tv_nsec) / 1000000;
    return ms > 0 ? (int)ms : 0;
}

int main(int argc, char **argv)
{
    static device d;
    dxpu_vfu_config cfg;
    dxpu_vfu_callbacks cb;
    struct pollfd p[2];
    char line[64];
    const char *why;
    if (argc != 2) {
        fprintf(stderr, "usage: vfio_scratch SOCKET\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* poll() must see what fgets() has not taken */
    dxpu_vfu_config_default(&cfg);
    cfg.path = argv[1];
    cfg.region[0].bytes = SCRATCH;
    cfg.region[2].bytes = REGISTERS;
    cfg.region[4].bytes = TABLE;
    cfg.region[0].access = cfg.region[2].access = cfg.region[4].access =
        DXPU_VFU_READ | DXPU_VFU_WRITE;
    cfg.irqs[DXPU_VFU_MSIX] = VECTORS;
    memset(&cb, 0, sizeof cb);
    cb.user = &d;
    cb.read = on_read;
    cb.write = on_write;
    cb.reset = on_reset;
    cb.connected = on_connected;
    cb.disconnected = on_disconnected;
    cb.dma_done = on_dma_done;
    power_on(&d);
    d.server = dxpu_vfu_open(&cfg, &cb, &why);
    if (!d.server) {
        perror(why);
        return 1;
    }
    printf("ready\n");
    p[0].fd = dxpu_vfu_fd(d.server);
    p[1].fd = STDIN_FILENO;
    p[0].events = p[1].events = POLLIN;
    while (poll(p, 2, wait_ms(&d)) >= 0) {
        if (d.late && wait_ms(&d) == 0) {
            dxpu_vfu_reply_read(d.server, d.late, d.registers + 0x48, d.late_bytes);
            d.late = 0;
            put(d.registers + 0x24, get(d.registers + 0x24, 4) + 1, 4);
        }
        if (p[0].revents && dxpu_vfu_process(d.server) != DXPU_OK)
            break;
        if (p[1].revents) {
            if (!fgets(line, sizeof line, stdin))
                break;
            obey(&d, line);
        }
    }
    dxpu_vfu_close(d.server);
    return 0;
}
