/* dxpu.c - the implementation, once
   SPDX-License-Identifier: MIT */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
