/* stdio.h - a name for what stats.h declares; there are no files here
   SPDX-License-Identifier: MIT */
#ifndef FIRMWARE_STDIO_H_INCLUDED
#define FIRMWARE_STDIO_H_INCLUDED

#include <stddef.h>

typedef struct firmware_file FILE;

#endif /* FIRMWARE_STDIO_H_INCLUDED */
