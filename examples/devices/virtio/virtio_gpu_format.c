/* virtio_gpu_format.c - how large the pixels of a 3D resource are in the driver's memory
   SPDX-License-Identifier: MIT

   Numbers are those of virgl_hw.h.  Formats of video are not offered. */
#include "virtio_gpu_model.h"

/* Bytes of a pixel, by the format's number; 0: no such format, or a compressed one. */
static const uint8_t pixel_bytes[] = {
    0,  4,  4,  4, 4, 2,  2,  2, 4, 1,  1,  1, 2, 2,  0,  0,  2,  4,  4,  4, 4,  4,  4,  1, 8,
    16, 24, 32, 4, 8, 12, 16, 4, 8, 12, 16, 4, 8, 12, 16, 4,  8,  12, 16, 4, 8,  12, 16, 2, 4,
    6,  8,  2,  4, 6, 8,  2,  4, 6, 8,  2,  4, 6, 8,  1,  2,  3,  4,  4,  1, 2,  3,  4,  0, 1,
    2,  3,  4,  0, 0, 0,  0,  1, 2, 3,  4,  0, 4, 8,  12, 16, 2,  4,  6,  8, 1,  2,  3,  4, 4,
    4,  4,  4,  4, 4, 0,  0,  0, 0, 0,  0,  0, 0, 0,  0,  0,  0,  0,  0,  4, 2,  4,  2,  4, 4,
    4,  8,  0,  4, 4, 1,  4,  4, 0, 4,  2,  4, 4, 8,  1,  4,  2,  2,  0,  0, 0,  0,  1,  1, 2,
    1,  2,  2,  4, 2, 2,  2,  4, 2, 4,  4,  8, 4, 0,  0,  0,  0,  0,  1,  1, 2,  2,  4,  4, 4,
    4,  4,  1,  2, 3, 4,  1,  2, 3, 4,  2,  4, 6, 8,  2,  4,  6,  8,  4,  8, 12, 16, 4,  8, 12,
    16, 1,  1,  1, 2, 1,  1,  1, 2, 2,  2,  2, 4, 2,  2,  2,  4,  4,  4,  4, 8,  4,  4,  4, 8,
    4,  0,  0,  0, 4, 4,  4,  4, 4, 8,  8,  8, 8, 8,  16, 16, 16, 2,  4,  4, 4,  8,  2,  2, 4,
    4,  8,  8,  4, 2, 0,  0,  0, 0, 2,  2,  2, 4, 2,  2,  4,  4,  4,  4,  0, 0,  0,  0,  0, 0,
    0,  0,  0,  0, 0, 0,  0,  0, 0, 0,  0,  0, 0, 0,  0,  0,  0,  0,  0,  0, 0,  0,  0,  0, 0,
    0,  0,  0,  0, 0, 0,  0,  0, 4, 0,  0,  2, 1
};

/* Compressed formats `first` to `last`. */
static const struct {
    uint16_t first, last;
    gpu_block block;
} compressed[] = { { 105, 106, { 8, 4, 4 } }, { 107, 108, { 16, 4, 4 } }, /* DXT */
                   { 109, 110, { 8, 4, 4 } }, { 111, 112, { 16, 4, 4 } },
                   { 113, 114, { 8, 4, 4 } }, { 115, 116, { 16, 4, 4 } }, /* RGTC */
                   { 143, 144, { 8, 4, 4 } }, { 145, 146, { 16, 4, 4 } }, /* LATC */
                   { 226, 226, { 8, 4, 4 } }, { 255, 258, { 16, 4, 4 } }, /* ETC1, BPTC */
                   { 269, 272, { 8, 4, 4 } }, { 273, 274, { 16, 4, 4 } }, /* ETC2 */
                   { 275, 276, { 8, 4, 4 } }, { 277, 278, { 16, 4, 4 } } };

/* ASTC from 279 on, and from 293 on as sRGB. */
enum { ASTC = 279, ASTC_SRGB = 293, ASTC_END = 307 };
static const uint8_t astc[][2] = { { 4, 4 },  { 5, 4 },   { 5, 5 },   { 6, 5 },  { 6, 6 },
                                   { 8, 5 },  { 8, 6 },   { 8, 8 },   { 10, 5 }, { 10, 6 },
                                   { 10, 8 }, { 10, 10 }, { 12, 10 }, { 12, 12 } };

gpu_block gpu_block_of(uint32_t format)
{
    gpu_block b = { 0, 1, 1 };
    for (unsigned i = 0; i < sizeof compressed / sizeof compressed[0]; i++) {
        if (format >= compressed[i].first && format <= compressed[i].last)
            return compressed[i].block;
    }
    if (format >= ASTC && format < ASTC_END) {
        const uint8_t *side = astc[format < ASTC_SRGB ? format - ASTC : format - ASTC_SRGB];
        b.bytes = 16;
        b.width = side[0];
        b.height = side[1];
        return b;
    }
    if (format < sizeof pixel_bytes)
        b.bytes = pixel_bytes[format];
    return b;
}
