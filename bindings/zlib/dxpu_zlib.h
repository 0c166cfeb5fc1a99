/* dxpu_zlib.h - dxpu's CRC-32 by libdeflate or zlib instead of the built-in table
   SPDX-License-Identifier: MIT

   Include this before dxpu.h in the one file that defines DXPU_IMPLEMENTATION:

       #include "dxpu_zlib.h"
       #define DXPU_IMPLEMENTATION
       #include "dxpu.h"

   DXPU_ZLIB_USE_LIBDEFLATE  1: libdeflate, link -ldeflate; 0 (default): zlib, link -lz.
   All three, and the built-in one, compute the same function. */
#ifndef DXPU_ZLIB_H_INCLUDED
#define DXPU_ZLIB_H_INCLUDED

#if defined(DXPU_H_INCLUDED) && defined(DXPU_IMPLEMENTATION)
#error "include dxpu_zlib.h before dxpu.h: the implementation has chosen its CRC already"
#endif

#ifndef DXPU_ZLIB_USE_LIBDEFLATE
#define DXPU_ZLIB_USE_LIBDEFLATE 0
#endif

#include <stddef.h>
#include <stdint.h>
#if DXPU_ZLIB_USE_LIBDEFLATE
#include <libdeflate.h>
#else
#include <zlib.h>
#endif

/* zlib's crc32(): crc is 0 to begin.  Both libraries answer their start value to a NULL pointer,
   where continuing over no bytes must change nothing. */
static inline uint32_t dxpu_zlib_crc32(uint32_t crc, const void *ptr, size_t len)
{
    if (!len)
        return crc;
#if DXPU_ZLIB_USE_LIBDEFLATE
    return libdeflate_crc32(crc, ptr, len);
#else
    return (uint32_t)crc32_z(crc, (const unsigned char *)ptr, len);
#endif
}

/* Which library computes: "libdeflate 1.14" or "zlib 1.2.13".  Static text. */
static inline const char *dxpu_zlib_name(void)
{
#if DXPU_ZLIB_USE_LIBDEFLATE
    return "libdeflate " LIBDEFLATE_VERSION_STRING;
#else
    return "zlib " ZLIB_VERSION;
#endif
}

#define DXPU_CRC32(crc, ptr, len) dxpu_zlib_crc32((crc), (ptr), (len))

#endif /* DXPU_ZLIB_H_INCLUDED */
