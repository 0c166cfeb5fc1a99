/* vswitch.c - the one place that compiles bindings/vswitch into the program
   SPDX-License-Identifier: MIT */
#define DXPU_VSWITCH_IMPLEMENTATION
#include "dxpu_vswitch.h"
