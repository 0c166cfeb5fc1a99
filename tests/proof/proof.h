/* What the harnesses of tests/proof/ share: any values, and dxpu.h with its asserts as claims.
   CBMC takes an uninitialised object and a function nondet_*() without body for any value. */
#ifndef DXPU_TESTS_PROOF_H
#define DXPU_TESTS_PROOF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define must(claim)  __CPROVER_assert(claim, #claim)
#define given(state) __CPROVER_assume(state)

bool nondet_bool(void);
uint8_t nondet_u8(void);
uint16_t nondet_u16(void);
uint32_t nondet_u32(void);
uint64_t nondet_u64(void);
size_t nondet_size(void);

/* The stub for CRC-32: of the first range of bytes it is asked about any number, the same each
   time, and of others any number; all are there.  Harness crc proves the CRC itself. */
#ifndef PROOF_REAL_CRC
static uint32_t proof_crc;
static const void *proof_crc_of;
static size_t proof_crc_bytes;
static uint32_t proof_crc32(uint32_t crc, const void *ptr, size_t len)
{
    (void)crc;
    __CPROVER_assert(len == 0 || __CPROVER_r_ok(ptr, len), "a CRC of bytes that are there");
    if (!proof_crc_of) {
        proof_crc_of = ptr;
        proof_crc_bytes = len;
    }
    return ptr == proof_crc_of && len == proof_crc_bytes ? proof_crc : nondet_u32();
}
#define DXPU_CRC32(crc, ptr, len) proof_crc32(crc, ptr, len)
#endif

#define DXPU_ASSERT(x) __CPROVER_assert(x, "DXPU_ASSERT " #x)
#define DXPU_IMPLEMENTATION
#include "dxpu.h"

/* Any bytes, at most `most`, in an object of just their size: one before or after is a fault. */
static inline dxpu_bytes any_bytes_alone(size_t most)
{
    dxpu_bytes b;
    b.len = nondet_size();
    given(b.len <= most);
    b.ptr = (const uint8_t *)malloc(b.len);
    given(b.ptr != NULL);
    return b;
}

/* The same at the end of a larger object: one byte after is a fault.  Where views move along the
   bytes CBMC needs seconds for this, and minutes for the other. */
static inline dxpu_bytes any_bytes(size_t most)
{
    const uint8_t *all = (const uint8_t *)malloc(most);
    dxpu_bytes b;
    b.len = nondet_size();
    given(all != NULL && b.len <= most);
    b.ptr = all + (most - b.len);
    return b;
}

/* Any struct whose bools are bools: one is a byte that may hold more to CBMC. */
static dxpu_tlp any_tlp(void)
{
    dxpu_tlp t;
    t.th = (nondet_u8() & 1) != 0;
    t.td = (nondet_u8() & 1) != 0;
    t.ep = (nondet_u8() & 1) != 0;
    t.bcm = (nondet_u8() & 1) != 0;
    return t;
}

/* All bytes are equal: one that stands for any of them is. */
static bool same_bytes(const uint8_t *a, const uint8_t *b, size_t len)
{
    size_t i = nondet_size();
    return i >= len || a[i] == b[i];
}
#endif
