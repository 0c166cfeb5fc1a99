/* edid.c - see edid.h
   SPDX-License-Identifier: MIT */
#include "edid.h"
#include "dxpu.h"

#include <stdio.h>
#include <string.h>

enum { EDID_TIMINGS = 35, EDID_DESCRIPTORS = 54, DESCRIPTOR_BYTES = 18 };

/* A descriptor that is not a timing: tag, then up to 13 characters. */
static void edid_text(uint8_t *to, uint8_t tag, const char *text)
{
    size_t len = strlen(text), room = DESCRIPTOR_BYTES - 5;
    memset(to, 0, DESCRIPTOR_BYTES);
    to[3] = tag;
    memset(to + 5, ' ', room);
    memcpy(to + 5, text, len < room ? len : room);
    if (len < room)
        to[5 + len] = '\n';
}

/* 1024 x 768 at 60 Hz as VESA times it: 65 MHz, 1344 x 806 with blanking, 271 x 203 mm. */
static const uint8_t edid_preferred[DESCRIPTOR_BYTES] = {
    0x64, 0x19,             /* 6500 x 10 kHz */
    0x00, 0x40, 0x41,       /* 1024 + 320 */
    0x00, 0x26, 0x30,       /* 768 + 38 */
    0x18, 0x88, 0x36, 0x00, /* front porch and sync: 24 and 136; 3 and 6 */
    0x0f, 0xcb, 0x10,       /* size */
    0x00, 0x00, 0x18        /* no border, separate syncs, both negative */
};

/* 50..75 Hz, 30..90 kHz, up to 170 MHz; no formula for further timings */
static const uint8_t edid_ranges[DESCRIPTOR_BYTES] = { 0,    0,    0,    0xfd, 0,    50,
                                                       75,   30,   90,   17,   0x01, '\n',
                                                       0x20, 0x20, 0x20, 0x20, 0x20, 0x20 };

/* Header to chromaticity: manufacturer "DXP", model of 2026, 8 bits a colour, 27 x 20 cm,
   gamma 2.2, sRGB. */
static const uint8_t edid_start[EDID_TIMINGS] = {
    0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00,             /* every EDID begins so */
    0x13, 0x10, 0x01, 0x00, 0,    0,    0,    0,    0xff, 36,   /* maker, product, serial, year */
    0x01, 0x04, 0xa0, 27,   20,   120,  0x06,                   /* version 1.4; digital */
    0xee, 0x91, 0xa3, 0x54, 0x4c, 0x99, 0x26, 0x0f, 0x50, 0x54, /* sRGB primaries, white D65 */
};

static const uint8_t edid_timings[EDID_DESCRIPTORS - EDID_TIMINGS] = {
    0x21, 0x08, 0x00, /* 640 x 480, 800 x 600 and 1024 x 768 at 60 Hz */
    0x81, 0xc0,       /* 1280 x 720 ... */
    0x81, 0x00,       /* 1280 x 800 */
    0x81, 0x40,       /* 1280 x 960 */
    0x81, 0x80,       /* 1280 x 1024 */
    0xa9, 0x40,       /* 1600 x 1200 */
    0xd1, 0xc0,       /* 1920 x 1080, all at 60 Hz */
    0x01, 0x01, 0x01, 0x01
};

void edid_make(uint8_t edid[EDID_BYTES], uint64_t identity)
{
    char serial[14];
    uint8_t sum = 0, *d = edid + EDID_DESCRIPTORS;
    snprintf(serial, sizeof serial, "%012llx", (unsigned long long)(identity & 0xffffffffffffu));
    memset(edid, 0, EDID_BYTES);
    memcpy(edid, edid_start, sizeof edid_start);
    dxpu_put_le32(edid + 12, (uint32_t)identity);
    memcpy(edid + EDID_TIMINGS, edid_timings, sizeof edid_timings);
    memcpy(d, edid_preferred, DESCRIPTOR_BYTES);
    memcpy(d + DESCRIPTOR_BYTES, edid_ranges, DESCRIPTOR_BYTES);
    edid_text(d + 2 * DESCRIPTOR_BYTES, 0xfc, "dxpu display");
    edid_text(d + 3 * DESCRIPTOR_BYTES, 0xff, serial);
    for (unsigned i = 0; i < EDID_BYTES - 1; i++)
        sum = (uint8_t)(sum + edid[i]);
    edid[EDID_BYTES - 1] = (uint8_t)(0x100 - sum); /* the sum of all bytes is 0 */
}
