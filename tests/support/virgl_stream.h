/* virgl_stream.h - command streams for virglrenderer, by hand: what a test draws
   SPDX-License-Identifier: MIT

   Numbers are those of virgl_protocol.h and virgl_hw.h of Mesa.  A program in a guest includes it,
   too.  Resources are made by the caller: a target of VS_SIDE x VS_SIDE
   pixels, a buffer of VS_VERTICES_BYTES for vertices, one of 16 bytes for a query's result. */
#ifndef VIRGL_STREAM_H_INCLUDED
#define VIRGL_STREAM_H_INCLUDED

#include "dxpu.h"

#include <string.h>

enum {
    VS_SIDE = 64,
    VS_ROW_BYTES = VS_SIDE * 4,
    VS_TARGET_BYTES = VS_SIDE * VS_ROW_BYTES,
    VS_VERTICES_BYTES = 3 * 32,
    VS_RESULT_BYTES = 16,

    VS_TEXTURE_2D = 2, /* targets; a buffer is 0 */
    VS_BGRA = 1,       /* formats */
    VS_R8 = 64,
    VS_RENDER_TARGET = 1 << 1, /* binds */
    VS_SAMPLER_VIEW = 1 << 3,
    VS_VERTEX_BUFFER = 1 << 4,
    VS_CUSTOM = 1 << 17
};

#define VS_CLEARED 0xff0080ffu /* pixels as little-endian words: blue, green, red, alpha */
#define VS_DRAWN   0xff00ff00u

typedef struct virgl_stream {
    uint32_t word[1024];
    uint32_t count;
} virgl_stream;

static inline void vs_put(virgl_stream *s, uint32_t value)
{
    s->word[s->count++] = value;
}

static inline void vs_put_float(virgl_stream *s, float value)
{
    memcpy(&s->word[s->count++], &value, sizeof value);
}

static inline void vs_begin(virgl_stream *s, uint32_t command, uint32_t object, uint32_t words)
{
    vs_put(s, command | object << 8 | words << 16);
}

/* A surface of the resource, as the only colour buffer. */
static inline void vs_target(virgl_stream *s, uint32_t resource)
{
    vs_begin(s, 1, 8, 5);
    vs_put(s, 100);
    vs_put(s, resource);
    vs_put(s, VS_BGRA);
    vs_put(s, 0);
    vs_put(s, 0);
    vs_begin(s, 5, 0, 3);
    vs_put(s, 1);
    vs_put(s, 0);
    vs_put(s, 100);
}

/* All of it becomes VS_CLEARED. */
static inline void vs_clear(virgl_stream *s)
{
    vs_begin(s, 7, 0, 8);
    vs_put(s, 4);
    vs_put_float(s, 0); /* red, green, blue, alpha */
    vs_put_float(s, 128 / 255.0f);
    vs_put_float(s, 1);
    vs_put_float(s, 1);
    for (unsigned i = 0; i < 3; i++) /* depth, stencil */
        vs_put(s, 0);
}

static inline void vs_state(virgl_stream *s, uint32_t object, uint32_t words, uint32_t at,
                            uint32_t value)
{
    vs_begin(s, 1, object, words);
    vs_put(s, 100 + object);
    for (uint32_t i = 2; i <= words; i++)
        vs_put(s, i == at ? value : 0);
    vs_begin(s, 2, object, 1);
    vs_put(s, 100 + object);
}

static inline void vs_shader(virgl_stream *s, uint32_t kind, const char *text)
{
    uint32_t bytes = (uint32_t)strlen(text) + 1, words = (bytes + 3) / 4;
    vs_begin(s, 1, 4, 5 + words);
    vs_put(s, 120 + kind);
    vs_put(s, kind);
    vs_put(s, bytes);
    vs_put(s, 300);
    vs_put(s, 0);
    memset(s->word + s->count, 0, words * 4);
    memcpy(s->word + s->count, text, bytes);
    s->count += words;
    vs_begin(s, 31, 0, 2);
    vs_put(s, 120 + kind);
    vs_put(s, kind);
}

/* A triangle of VS_DRAWN over the half above the diagonal from the last pixel of the first row to
   the first of the last row, as READ gives them; needs vs_target(), once for a context. */
static inline void vs_pipeline(virgl_stream *s, uint32_t vertices)
{
    static const float corner[3][2] = { { -1, -1 }, { 1, -1 }, { -1, 1 } };
    vs_state(s, 1, 11, 4, 0xfu << 27);        /* blend: all colours are written */
    vs_state(s, 3, 5, 0, 0);                  /* depth: no test */
    vs_state(s, 2, 9, 2, 1u << 1 | 1u << 29); /* rasterizer */
    vs_shader(s, 0,
              "VERT\nDCL IN[0]\nDCL IN[1]\nDCL OUT[0], POSITION\nDCL OUT[1], COLOR\n"
              "  0: MOV OUT[1], IN[1]\n  1: MOV OUT[0], IN[0]\n  2: END\n");
    vs_shader(s, 1,
              "FRAG\nDCL IN[0], COLOR, LINEAR\nDCL OUT[0], COLOR\n"
              "  0: MOV OUT[0], IN[0]\n  1: END\n");
    vs_begin(s, 9, 0, 11 + VS_VERTICES_BYTES / 4); /* vertices: position, colour */
    vs_put(s, vertices);
    for (unsigned i = 0; i < 7; i++)
        vs_put(s, 0);
    vs_put(s, VS_VERTICES_BYTES);
    vs_put(s, 1);
    vs_put(s, 1);
    for (unsigned i = 0; i < 3; i++) {
        vs_put_float(s, corner[i][0]);
        vs_put_float(s, corner[i][1]);
        vs_put_float(s, 0);
        vs_put_float(s, 1);
        vs_put_float(s, 0);
        vs_put_float(s, 1);
        vs_put_float(s, 0);
        vs_put_float(s, 1);
    }
    vs_begin(s, 1, 5, 9);
    vs_put(s, 105);
    for (uint32_t i = 0; i < 2; i++) {
        vs_put(s, i * 16);
        vs_put(s, 0);
        vs_put(s, 0);
        vs_put(s, 31); /* four floats */
    }
    vs_begin(s, 2, 5, 1);
    vs_put(s, 105);
    vs_begin(s, 6, 0, 3);
    vs_put(s, 32);
    vs_put(s, 0);
    vs_put(s, vertices);
    vs_begin(s, 4, 0, 7);
    vs_put(s, 0);
    for (unsigned i = 0; i < 6; i++)
        vs_put_float(s, i % 3 == 2 ? 0.5f : VS_SIDE / 2.0f);
}

static inline void vs_draw(virgl_stream *s)
{
    static const uint32_t words[12] = { 0, 3, 4, 0, 1, 0, 0, 0, 0, 0, 2, 0 };
    vs_begin(s, 8, 0, 12);
    for (unsigned i = 0; i < 12; i++)
        vs_put(s, words[i]);
}

/* Around what is drawn, once for a context: a query of how many samples passed; its result goes to
   a resource. */
static inline void vs_query_begin(virgl_stream *s, uint32_t resource)
{
    vs_begin(s, 1, 9, 4);
    vs_put(s, 130);
    vs_put(s, 0);
    vs_put(s, 0);
    vs_put(s, resource);
    vs_begin(s, 19, 0, 1);
    vs_put(s, 130);
}

static inline void vs_query_end(virgl_stream *s)
{
    vs_begin(s, 20, 0, 1);
    vs_put(s, 130);
    vs_begin(s, 21, 0, 2);
    vs_put(s, 130);
    vs_put(s, 1);
}

/* The pixel at column x, row y of what vs_clear() and vs_draw() leave; on the diagonal either. */
static inline uint32_t vs_pixel(uint32_t x, uint32_t y)
{
    return x + y < VS_SIDE - 1 ? VS_DRAWN : VS_CLEARED;
}

/* How many pixels are not as expected. */
static inline unsigned vs_wrong(const uint8_t *pixels)
{
    unsigned wrong = 0;
    for (uint32_t y = 0; y < VS_SIDE; y++) {
        for (uint32_t x = 0; x < VS_SIDE; x++) {
            const uint8_t *p = pixels + y * VS_ROW_BYTES + x * 4;
            uint32_t is = dxpu_get_le32(p);
            wrong += is != vs_pixel(x, y) && x + y != VS_SIDE - 1;
        }
    }
    return wrong;
}

#endif /* VIRGL_STREAM_H_INCLUDED */
