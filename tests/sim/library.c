/* dxpu.h with its assertions on, compiled once for all simulations.
   SPDX-License-Identifier: MIT */
#include <assert.h>

#define DXPU_ASSERT(x) assert(x)
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
