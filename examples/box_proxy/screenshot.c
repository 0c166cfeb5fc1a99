/* screenshot.c - see screenshot.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "screenshot.h"

#include <errno.h>
#include <png.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int screenshot_write(const char *path, const uint8_t *rgb, unsigned width, unsigned height,
                     char why[SCREENSHOT_WHY_BYTES])
{
    char part[4096];
    png_image image;
    int n = snprintf(part, sizeof part, "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof part) {
        snprintf(why, SCREENSHOT_WHY_BYTES, "the name is too long");
        return -1;
    }
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.format = PNG_FORMAT_RGB;
    image.width = width;
    image.height = height;
    if (!png_image_write_to_file(&image, part, 0, rgb, 0, NULL)) {
        snprintf(why, SCREENSHOT_WHY_BYTES, "%s", image.message);
    } else if (rename(part, path)) {
        snprintf(why, SCREENSHOT_WHY_BYTES, "%s", strerror(errno));
    } else {
        return 0;
    }
    unlink(part);
    return -1;
}
