/* device_rig.h - the root complex of the tests for targets that fuzz a device model, and requests
   to the device that the input makes
   SPDX-License-Identifier: MIT */
#ifndef DEVICE_RIG_H_INCLUDED
#define DEVICE_RIG_H_INCLUDED

#include "dxpu.h"
#include "input.h"

/* What the root complex of the tests asks of cmocka. */
#define assert_true(a)           must(a)
#define assert_false(a)          must(!(a))
#define assert_non_null(a)       must((a) != NULL)
#define assert_int_equal(a, b)   must((a) == (b))
#define assert_in_range(a, b, c) must((uint64_t)(a) - (b) <= (c) - (b))
#define fail()                   abort()
#ifndef RC_MEM_BYTES
#define RC_MEM_BYTES (256 << 10) /* which is zeroed for each input */
#endif
#include "root_complex.h"

/* A completion with a tag that may be in flight. */
static inline void put_completion(rc *r, input *in)
{
    static const uint8_t bytes[64] = { 0 };
    dxpu_tlp t, read = rc_request(r, DXPU_TLP_MRD, MEM_LOW, 4u * (next(in) % 16 + 1u));
    read.requester = r->bdf;
    read.tag = next(in);
    dxpu_tlp_completion(&read, 0, next(in) & 1 ? DXPU_CPL_SC : DXPU_CPL_UR, &t);
    t.payload.ptr = bytes;
    t.payload.len = t.length_dw * 4u;
    if (t.status) {
        t.payload.ptr = NULL;
        t.payload.len = 0;
    }
    rc_give(r, &t);
}

static inline void put_config(rc *r, input *in, uint8_t op)
{
    uint8_t b[4];
    dxpu_tlp t = cfg_tlp(r, op & 0x10 ? DXPU_TLP_CFGWR0 : DXPU_TLP_CFGRD0, 0);
    t.register_bytes = (uint16_t)(next(in) * 4u | (op & 0x20u) << 5);
    t.first_be = op & 0x40 ? 15 : next(in) & 15;
    dxpu_put_le32(b, op & 0x10 ? next32(in) : 0);
    if (op & 0x10) {
        t.payload.ptr = b;
        t.payload.len = 4;
    }
    rc_give(r, &t);
}

/* How reads of the device's are answered from now on, and whether anything of it leaves. */
static inline void put_answers(rc *r, uint8_t op)
{
    r->status = op & 0x10 ? DXPU_CPL_UR : DXPU_CPL_SC;
    r->poison = op & 0x20;
    r->closed = op & 0x40;
}

#endif /* DEVICE_RIG_H_INCLUDED */
