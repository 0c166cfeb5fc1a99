/* What a command of 4 KB costs over a fabric: how many requests the controller makes of the host's
   memory, and how long it takes at a given round trip, in virtual time: each side answers at once.
   First with the submission queue in the controller memory buffer, or with its entries pushed by
   the host, then, as the baseline, in host memory.  Of the last row the data are in the buffer,
   too. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* madvise */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define DXPU_IMPLEMENTATION
#include "dxpu.h"

#include "nvme_model.h"
#include "root_complex.h"

#include "push_host.h"

#include "bench.h"

#define BAR     0x20000000u
#define CMB_BAR 0x30000000u

enum { BDF = 0x0500, CMB_BYTES = 4 << 20, DEPTH = 64, AT_DATA = 0x100000, CMB_DATA = 0x200000 };

enum { IN_HOST, PUSHED, IN_CMB }; /* the submission queue */

static rc host;
static uint16_t command_id;
static uint32_t tail[2];

static uint64_t sq_at(unsigned q)
{
    return MEM_LOW + q * 0x10000u;
}

static void reg32(uint32_t offset, uint32_t value)
{
    uint8_t b[4];
    dxpu_put_le32(b, value);
    mmio_write(&host, BAR + offset, b, 4);
}

/* The completion of the last command is there. */
static bool completed(unsigned q)
{
    const uint8_t *e = rc_mem(&host, sq_at(q) + 0x8000, 1) + (tail[q] + DEPTH - 1) % DEPTH * 16;
    return dxpu_get_le32(e + 12) >> 16 && (dxpu_get_le32(e + 12) & 0xffff) == command_id;
}

/* Submit one to queue q, whose entries are at `cmb` of the buffer, unless that is negative.
   Returns the round trips until its completion is there: the doorbell and the completion are one,
   and each wait of the controller is one more. */
static unsigned submit(unsigned q, int cmb, const uint32_t dw[16])
{
    uint8_t e[NVME_SQE_BYTES];
    unsigned trips = 1;
    for (unsigned i = 0; i < 16; i++)
        dxpu_put_le32(e + i * 4, dw[i]);
    dxpu_put_le16(e + 2, ++command_id);
    for (unsigned i = 0; cmb >= 0 && i < sizeof e; i += 8)
        mmio_write(&host, CMB_BAR + (uint32_t)cmb + tail[q] * NVME_SQE_BYTES + i, e + i, 8);
    if (cmb < 0)
        memcpy(rc_mem(&host, sq_at(q), 1) + tail[q] * NVME_SQE_BYTES, e, sizeof e);
    tail[q] = (tail[q] + 1) % DEPTH;
    reg32(NVME_DOORBELLS + q * 8, tail[q]);
    for (rc_look(&host); !completed(q) && trips < 100; trips++) {
        unsigned waiting = host.answers_waiting;
        while (waiting--)
            (void)rc_answer_one(&host);
        rc_look(&host);
    }
    bench_must(completed(q), "a command is not over");
    reg32(NVME_DOORBELLS + q * 8 + 4, tail[q]);
    return trips;
}

/* A controller with queue 1 there. */
static void open_controller(unsigned where)
{
    const device_settings set = {
        .memory_bytes = 1 << 20, .mps_bytes = 4096, .mrrs_bytes = 4096, .cmb_bytes = CMB_BYTES
    };
    uint32_t dw[16] = { 5 };
    memset(tail, 0, sizeof tail);
    rc_open(&host, &nvme_kind, &set, BDF);
    if (where == PUSHED) {
        push_begin(&host);
        push_offer(&host, DXPU_PUSH_RULES);
    }
    host.mps = host.mrrs = 4096;
    cfg_write(&host, 0x10, BAR);
    cfg_write(&host, 0x18, CMB_BAR);
    cfg_write_be(&host, 0x04, 0x0006, 0x3);
    cfg_write_be(&host, 0x68, 0x59b0, 0x3); /* payloads and requests of 4,096 bytes, 8-bit tags */
    reg32(NVME_CMBMSC, CMB_BAR | 3);
    reg32(0x24, (DEPTH - 1) << 16 | (DEPTH - 1));
    reg32(0x28, (uint32_t)sq_at(0));
    reg32(0x30, (uint32_t)sq_at(0) + 0x8000);
    reg32(0x14, 4u << 20 | 6u << 16 | 1);
    dw[6] = (uint32_t)sq_at(1) + 0x8000;
    dw[10] = (DEPTH - 1) << 16 | 1;
    dw[11] = 1;
    (void)submit(0, -1, dw);
    dw[0] = 1;
    dw[6] = where == IN_CMB ? CMB_BAR : (uint32_t)sq_at(1);
    dw[11] = 1 << 16 | 1;
    (void)submit(0, -1, dw);
}

typedef struct cost {
    unsigned requests, trips;
} cost;

static cost measure(unsigned where, bool write, bool data)
{
    uint32_t dw[16] = { write ? 1 : 2, 1 };
    cost c;
    open_controller(where);
    dw[6] = data ? CMB_BAR + CMB_DATA : MEM_LOW + AT_DATA;
    dw[12] = 7;
    c.requests = host.reads;
    c.trips = submit(1, where == IN_CMB ? 0 : -1, dw);
    c.requests = host.reads - c.requests;
    rc_close(&host);
    return c;
}

static void rows(const char *what, unsigned where)
{
    static const unsigned rtt_us[] = { 20, 100, 1000 };
    for (unsigned write = 0; write < 2; write++) {
        cost ours = measure(where, write, false), base = measure(IN_HOST, write, false);
        char head[48], row[80];
        snprintf(head, sizeof head, "nvme %s of 4 KB%s", write ? "write" : "read", what);
        snprintf(row, sizeof row, "%s, requests", head);
        bench_result(row, ours.requests, base.requests);
        for (unsigned i = 0; i < sizeof rtt_us / sizeof rtt_us[0]; i++) {
            snprintf(row, sizeof row, "%s, %u us round trip", head, rtt_us[i]);
            bench_result(row, ours.trips * rtt_us[i], base.trips * rtt_us[i]);
        }
    }
}

int main(int argc, char **argv)
{
    (void)bench_parse(argc, argv);
    rows("", IN_CMB);
    rows(" pushed", PUSHED);
    bench_result("nvme write of 4 KB, data in the buffer, requests",
                 measure(IN_CMB, true, true).requests, measure(IN_HOST, true, false).requests);
    return 0;
}
