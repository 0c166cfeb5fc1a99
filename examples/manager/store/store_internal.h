/* store_internal.h - what the files store*.c share
   SPDX-License-Identifier: MIT */
#ifndef STORE_INTERNAL_H_INCLUDED
#define STORE_INTERNAL_H_INCLUDED

#include "store.h"

/* Fills *f; returns the code. */
store_error storei_fault(store_fault *f, store_error code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* STORE_E_ARG for a commit that no store accepts. */
store_error storei_check(const store_change *changes, unsigned count, store_fault *f);

#endif /* STORE_INTERNAL_H_INCLUDED */
