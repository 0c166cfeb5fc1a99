/* screenshot.c - see screenshot.h
   SPDX-License-Identifier: MIT */
#include "screenshot.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

uint8_t *screenshot_encode(const uint8_t *rgb, unsigned width, unsigned height, size_t *bytes)
{
    png_image image;
    png_alloc_size_t size;
    uint8_t *png, *exact;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.format = PNG_FORMAT_RGB;
    image.flags = PNG_IMAGE_FLAG_FAST; /* somebody waits for it */
    image.width = width;
    image.height = height;
    size = PNG_IMAGE_PNG_SIZE_MAX(image);
    png = malloc(size);
    if (!png || !png_image_write_to_memory(&image, png, &size, 0, rgb, 0, NULL)) {
        free(png);
        return NULL;
    }
    *bytes = size;
    exact = realloc(png, size);
    return exact ? exact : png;
}
