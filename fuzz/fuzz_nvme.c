/* Fuzz target: the NVMe model under a hostile host. The input is steps: configuration and
   register requests, bytes in the host's memory, submission entries, doorbells, unsolicited
   completions, offers and pushes, time and resets. Whatever the device emits is a TLP that
   decodes strictly, and it ends.
   libFuzzer: -max_len=512 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dxpu.h"

#include "device_rig.h"
#include "function.h"
#include "nvme.h"
#include "nvme_model.h"
#include "pci.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { /* of the host's memory and the device's place */
       BAR = 0x20000000,
       CMB_BAR = 0x30000000,
       CMB_BYTES = 64 << 10,
       BDF = 0x0510,
       STORE_BYTES = 128 << 10,
       DEPTH = 16,
       QUEUES = 3,
       AT_QUEUES = 0x30000,
       AT_DATA = 0x10000,
       ANSWERS_MAX = 3000,
       STEPS_MAX = 400
};

static rc r;
static uint32_t tail[QUEUES];

static void put_word(uint32_t at, uint32_t value)
{
    uint8_t b[4];
    dxpu_put_le32(b, value);
    mmio_write(&r, at, b, 4);
}

static void reg32(uint32_t offset, uint32_t value)
{
    put_word(BAR + offset, value);
}

static uint32_t sq_at(unsigned q)
{
    return AT_QUEUES + q * 0x2000u;
}

static void answer_all(void)
{
    unsigned n = 0;
    rc_look(&r);
    while (rc_answer_one(&r)) {
        rc_look(&r);
        must(++n < ANSWERS_MAX * 16);
    }
}

/* A submission entry; PRPs and lists lie where the host has memory, unless the input says else. */
static void submit(unsigned q, const uint32_t dw[16])
{
    uint8_t *e = r.mem + sq_at(q) + tail[q] * 64u;
    for (unsigned i = 0; i < 16; i++)
        dxpu_put_le32(e + 4 * i, dw[i]);
    tail[q] = (tail[q] + 1) % DEPTH;
    reg32(NVME_DOORBELLS + q * 8, tail[q]);
}

static void make_queue(unsigned q)
{
    uint32_t dw[16] = { 5, 0, 0, 0, 0, 0, MEM_LOW + sq_at(q) + 0x1000 };
    dw[10] = (DEPTH - 1u) << 16 | q;
    dw[11] = q << 16 | 3;
    submit(0, dw);
    answer_all();
    dw[0] = 1;
    dw[6] = MEM_LOW + sq_at(q);
    dw[11] = q << 16 | 1;
    submit(0, dw);
    answer_all();
}

static void enable(void)
{
    memset(tail, 0, sizeof tail);
    r.bdf = BDF;
    cfg_write(&r, 0x10, BAR);
    cfg_write(&r, 0x14, 0);
    cfg_write(&r, 0x18, CMB_BAR);
    cfg_write(&r, 0x1c, 0);
    cfg_write_be(&r, 0x04, 0x0006, 0x3);
    reg32(0x14, 0);
    reg32(0x24, (DEPTH - 1u) << 16 | (DEPTH - 1u));
    reg32(0x28, MEM_LOW + sq_at(0));
    reg32(0x2c, 0);
    reg32(0x30, MEM_LOW + sq_at(0) + 0x1000);
    reg32(0x34, 0);
    reg32(0x14, 4u << 20 | 6u << 16 | 1);
    for (unsigned q = 1; q < QUEUES; q++)
        make_queue(q);
    reg32(NVME_CMBMSC, (MEM_LOW + AT_DATA) | 3); /* its addresses are those of the data */
}

static void put_entry(input *in, uint8_t op)
{
    static const uint8_t opcodes[] = { 0, 1, 2, 4, 5, 6, 8, 9, 0x0a, 0x0c, 0x0d, 0x15, 0x80, 0x19 };
    uint32_t dw[16] = { 0 };
    uint8_t how = next(in);
    dw[0] = op & 0x80 ? next(in) : opcodes[next(in) % sizeof opcodes];
    dw[0] |= (uint32_t)next(in) << 16;
    dw[1] = how & 1 ? next32(in) : 1u + (how >> 6);
    dw[6] = MEM_LOW + (how & 2 ? next32(in) % MEM_BYTES : (uint32_t)AT_DATA);
    dw[8] = MEM_LOW + (how & 4 ? next32(in) % MEM_BYTES : AT_DATA + 0x1000u);
    if (how & 8) { /* SGL */
        dw[0] |= 1u << 14;
        dw[8] = next32(in);
        dw[9] = (uint32_t)next(in) << 24;
    }
    dw[10] = how & 16 ? next32(in) : next(in);
    dw[11] = how & 32 ? next32(in) : next(in) % 2;
    dw[12] = (uint32_t)next(in) | (uint32_t)next(in) << 8;
    submit(op >> 4 & 1 ? 1u + (op >> 5 & 1) : 0, dw);
}

static void put_register(input *in, uint8_t op)
{
    uint32_t offset = (next(in) | (uint32_t)next(in) << 8) * 4u % NVME_BAR_BYTES;
    if (op & 0x10)
        offset %= 0x60;
    if (op & 0x20) {
        dxpu_tlp t =
            rc_request(&r, DXPU_TLP_MRD, BAR + offset, op & 0x40 && offset % 8 == 0 ? 8 : 4);
        t.tag = next(in);
        rc_give(&r, &t);
    } else {
        reg32(offset, next32(in));
    }
}

/* rc.message: the device's push rules are valid, and within the offer. */
static void on_message(rc *host, const dxpu_tlp *t)
{
    const dxpu_push_offer all = { DXPU_PUSH_RULES, DXPU_PUSH_BYTES };
    static dxpu_push_table table;
    dxpu_push_rule rule;
    (void)host;
    must(dxpu_push_rule_decode(t, &rule) == 1);
    dxpu_push_table_init(&table, &all);
    must(dxpu_push_table_set(&table, &rule) == DXPU_OK);
}

/* An offer, or entries that the input makes up, of a rule that may be there. */
static void put_push(input *in, unsigned how)
{
    uint8_t payload[DXPU_PUSH_PAYLOAD_MAX] = { 0 };
    dxpu_push_offer offer;
    dxpu_push_rule rule;
    dxpu_tlp t;
    if (how == 1) {
        offer.rules = next(in);
        offer.bytes = (uint16_t)(next(in) * 8);
        dxpu_push_offer_message(&offer, payload, &t);
        rc_give(&r, &t);
        enable(); /* the rules are made with the queues */
        return;
    }
    memset(&rule, 0, sizeof rule);
    rule.rule = how & 3;
    rule.generation = next(in);
    for (unsigned i = 0; i < 16; i++)
        payload[DXPU_PUSH_HEAD_BYTES + i * 4] = next(in);
    dxpu_push_data_message(&rule, MEM_LOW + sq_at(how & 3) + next(in) % DEPTH * 64u,
                           (uint16_t)(how & 8 ? 64 : 1 + next(in)), payload, &t);
    rc_give(&r, &t);
}

static void step(input *in, uint64_t *now_ns)
{
    uint8_t op = next(in);
    uint32_t at;
    switch (op & 15) {
    case 0:
        put_config(&r, in, op);
        break;
    case 1:
        put_register(in, op);
        break;
    case 2: /* words of the host's memory: queues, PRP lists, SGL segments */
        at = AT_DATA + (op >> 4) * 0x800u;
        for (unsigned n = next(in) % 16; n; n--, at += 4)
            dxpu_put_le32(r.mem + at,
                          next(in) & 1 ? next32(in) : MEM_LOW + next(in) % 0x50 * 0x1000u);
        break;
    case 3:
        put_completion(&r, in);
        break;
    case 4:
        *now_ns += (uint64_t)1 << (op >> 4) << 20;
        nvme_kind.tick(r.dev, *now_ns);
        break;
    case 5:
        put_answers(&r, op);
        break;
    case 6:
        if (op >> 4 == 0) {
            nvme_kind.reset(r.dev);
            rc_forget(&r);
            enable();
        } else {
            put_push(in, op >> 4);
        }
        break;
    case 7:
        reg32(NVME_DOORBELLS + (op >> 4) * 4u, next(in));
        break;
    case 9: /* words of the controller memory buffer */
        at = CMB_BAR + (op >> 4) * 0x1000u;
        for (unsigned n = next(in) % 16; n; n--, at += 4)
            put_word(at, next32(in));
        break;
    case 8:
        for (unsigned n = op >> 4; n && rc_answer_one(&r); n--)
            rc_look(&r);
        break;
    default:
        put_entry(in, op);
        break;
    }
    rc_look(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    device_settings set = { .memory_bytes = STORE_BYTES, .mps_bytes = 512, .identity = 0x20001 };
    input in = { data, size };
    uint64_t now_ns = 1000000000;
    set.namespaces = 2;
    set.cmb_bytes = CMB_BYTES;
    rc_open(&r, &nvme_kind, &set, BDF);
    r.mps = 128;
    r.foreign = true;
    r.message = on_message;
    r.ahead = NULL;
    enable();
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in, &now_ns);
    for (unsigned n = 0; n < ANSWERS_MAX && rc_answer_one(&r); n++)
        rc_look(&r);
    rc_close(&r);
    return 0;
}
