/* screenshot.h - what a device shows, as a PNG
   SPDX-License-Identifier: MIT */
#ifndef SCREENSHOT_H_INCLUDED
#define SCREENSHOT_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

/* Encode a picture: rows from the top, three bytes a pixel: red, green, blue.  The PNG is the
   caller's to free; NULL: out of memory. */
uint8_t *screenshot_encode(const uint8_t *rgb, unsigned width, unsigned height, size_t *bytes);

#endif /* SCREENSHOT_H_INCLUDED */
