/* starter.h - starts and watches the processes that serve devices of isolated slots
   SPDX-License-Identifier: MIT

   A box behind its sandbox starts nothing (S-122).  The starter is a process made before that: it
   runs dxpu-device, from the directory of the box's own program, with the arguments that the box
   gives while it opens its slots, and never with others afterwards.  A device that ends is started
   again, later each time it lasts only a moment.  The end of the box ends all of them. */
#ifndef STARTER_H_INCLUDED
#define STARTER_H_INCLUDED

#include <stddef.h>

enum { STARTER_PATH_BYTES = 64, STARTER_ARGUMENTS_BYTES = 32768 };

/* Before sandbox_start(), and before there are threads.  A descriptor, -1 after a message. */
int starter_start(void);
/* Where the device of a slot is to listen. */
void starter_socket(unsigned slot, char out[STARTER_PATH_BYTES]);
/* A file beside it that lasts as long as the box: the layout of a disk that has no other place. */
void starter_layout(unsigned slot, char out[STARTER_PATH_BYTES]);
/* Start the device of a slot.  arguments: of dxpu-device, each with its NUL, `bytes` in all.  0, or
   -1: too many, or the starter is gone. */
int starter_add(int starter, unsigned slot, const char *arguments, size_t bytes);
/* All devices are started; it accepts no further one. */
void starter_seal(int starter);
/* End all of them, and wait for that. */
void starter_end(int starter);

#endif /* STARTER_H_INCLUDED */
