/* model.c - the functions of bindings/model
   SPDX-License-Identifier: MIT */
#define DXPU_MODEL_IMPLEMENTATION
#include "dxpu_model.h"
