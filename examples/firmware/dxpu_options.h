/* dxpu_options.h - options of dxpu.h for these images, named by DXPU_CONFIG_HEADER
   SPDX-License-Identifier: MIT */
#ifndef DXPU_OPTIONS_H_INCLUDED
#define DXPU_OPTIONS_H_INCLUDED

#define DXPU_PATHS_MAX 2

#define DXPU_SEAL_STATE_BYTES     32 /* ChaCha20-Poly1305 alone */
#define DXPU_PORTABLE_STACK_BYTES 2048

#endif /* DXPU_OPTIONS_H_INCLUDED */
