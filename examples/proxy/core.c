/* core.c - the one place where dxpu.h becomes code, with its CRC-32 from bindings/zlib
   SPDX-License-Identifier: MIT */
#include "dxpu_zlib.h"
#define DXPU_IMPLEMENTATION
#include "dxpu.h"

#include "fabric.h"

const char *fabric_crc_name(void)
{
    return dxpu_zlib_name();
}
