/* Proof of section 7, without the stub of the others. */
#define PROOF_REAL_CRC
#include "proof.h"

/* zlib's CRC-32 by its definition, bit by bit. */
static uint32_t by_bits(uint32_t crc, const uint8_t *p, size_t len)
{
    crc = ~crc;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* PROOF crc
   claim    dxpu_crc32() is zlib's CRC-32, from any value on, and reads only its bytes
   bounds   at most 2 bytes, table of 1 KB
   stubs    none
   open     longer runs: each byte is one turn of the same loop; the table of 8 KB:
            tests/core/api_crc.c
   unwind   10
   control  - crc = crc >> 8 ^ dxpui_crc_table[0][(crc ^ *p) & 0xffu];
            + crc = crc >> 8 ^ dxpui_crc_table[0][(crc ^ *p) & 0x7fu]; */
void proof_crc(void)
{
    dxpu_bytes in = any_bytes_alone(2);
    uint32_t crc = nondet_u32();
    must(dxpu_crc32(crc, in.ptr, in.len) == by_bits(crc, in.ptr, in.len));
}
