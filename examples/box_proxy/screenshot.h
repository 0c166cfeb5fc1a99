/* screenshot.h - what a device shows, as a PNG file
   SPDX-License-Identifier: MIT */
#ifndef SCREENSHOT_H_INCLUDED
#define SCREENSHOT_H_INCLUDED

#include <stdint.h>

enum { SCREENSHOT_WHY_BYTES = 160 };

/* Write a picture: rows from the top, three bytes a pixel: red, green, blue.  The file appears
   whole, with its name, or not at all.  0, or -1 and why. */
int screenshot_write(const char *path, const uint8_t *rgb, unsigned width, unsigned height,
                     char why[SCREENSHOT_WHY_BYTES]);

#endif /* SCREENSHOT_H_INCLUDED */
