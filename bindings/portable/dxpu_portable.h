/* dxpu_portable.h - the primitives of bindings/secure in plain C, for where there is no library
   SPDX-License-Identifier: MIT

   X25519 (RFC 7748), BLAKE2b (RFC 7693), ChaCha20-Poly1305 (RFC 8439) and HChaCha20, small rather
   than fast: some 5 KB of code, no table but BLAKE2b's, no allocation, no library but mem*.  No
   branch and no address depends on a secret (S-190).  On a processor that multiplies some numbers
   faster than others (a Cortex-M3 does, an M4 does not) X25519 and Poly1305 take a time that
   depends on secrets all the same (S-191).

   Where libsodium runs, use bindings/sodium: it is several times faster, and many more people have
   read it. */
#ifndef DXPU_PORTABLE_H_INCLUDED
#define DXPU_PORTABLE_H_INCLUDED

#include "dxpu_primitives.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DXPU_PORTABLE_STACK_BYTES /* wiped by wipe_stack(): more than is used (S-20) */
#define DXPU_PORTABLE_STACK_BYTES 4096
#endif

/* Fill in a table.
   random  unpredictable bytes, of the machine's generator: all keys are as good as it is */
void dxpu_portable_init(dxpu_primitives *table,
                        void (*random)(void *user, uint8_t *out, size_t bytes), void *user);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_PORTABLE_H_INCLUDED */
