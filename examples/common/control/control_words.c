/* control_words.c - the one place that compiles bindings/control into the programs
   SPDX-License-Identifier: MIT */
#define DXPU_CONTROL_IMPLEMENTATION
#include "dxpu_control.h"
