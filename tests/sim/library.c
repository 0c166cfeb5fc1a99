/* dxpu.h with its assertions on and the programs' CRC, compiled once for all simulations.
   SPDX-License-Identifier: MIT */
#include <assert.h>

#include "dxpu_zlib.h" /* the built-in CRC took most of their time */

#define DXPU_ASSERT(x) assert(x)
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
