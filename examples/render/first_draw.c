/* first_draw.c - see first_draw.h
   SPDX-License-Identifier: MIT

   Numbers are those of virglrenderer's protocol (virgl_protocol.h of Mesa), which keeps them. */
#include "first_draw.h"

#include <string.h>

enum { /* commands */
       CREATE = 1,
       BIND = 2,
       VIEWPORT = 4,
       FRAMEBUFFER = 5,
       VERTEX_BUFFERS = 6,
       CLEAR = 7,
       DRAW = 8,
       INLINE_WRITE = 9,
       BIND_SHADER = 31
};
enum { /* objects */
       BLEND = 1,
       RASTERIZER = 2,
       DEPTH = 3,
       SHADER = 4,
       ELEMENTS = 5,
       SURFACE = 8
};
enum { SIDE = 16, FORMAT_BGRA = 1, FORMAT_FLOAT4 = 31, VERTEX_BYTES = 32, TRIANGLES = 4 };

typedef struct stream {
    uint32_t *word;
    unsigned count;
} stream;

static void put(stream *s, uint32_t value)
{
    s->word[s->count++] = value;
}

static void put_float(stream *s, float value)
{
    memcpy(&s->word[s->count++], &value, sizeof value);
}

static void begin(stream *s, unsigned command, unsigned object, unsigned words)
{
    put(s, command | object << 8 | words << 16);
}

/* An object of which all but the handle and some words is 0, bound at once. */
static void state(stream *s, unsigned object, unsigned words, unsigned at, uint32_t value)
{
    begin(s, CREATE, object, words);
    put(s, object);
    for (unsigned i = 2; i <= words; i++)
        put(s, i == at ? value : 0);
    begin(s, BIND, object, 1);
    put(s, object);
}

static void shader(stream *s, unsigned handle, unsigned kind, const char *text)
{
    size_t bytes = strlen(text) + 1, words = (bytes + 3) / 4;
    begin(s, CREATE, SHADER, (unsigned)(5 + words));
    put(s, handle);
    put(s, kind);
    put(s, (uint32_t)bytes);
    put(s, 300); /* tokens, at most */
    put(s, 0);
    memset(s->word + s->count, 0, words * 4);
    memcpy(s->word + s->count, text, bytes);
    s->count += (unsigned)words;
    begin(s, BIND_SHADER, 0, 2);
    put(s, handle);
    put(s, kind);
}

static void vertices_of(stream *s, uint32_t resource)
{
    static const float corner[3][2] = { { -1, -1 }, { 3, -1 }, { -1, 3 } };
    begin(s, INLINE_WRITE, 0, 11 + 3 * VERTEX_BYTES / 4);
    put(s, resource);
    for (unsigned i = 0; i < 7; i++)
        put(s, 0);
    put(s, 3 * VERTEX_BYTES);
    put(s, 1);
    put(s, 1);
    for (unsigned i = 0; i < 3; i++) {
        put_float(s, corner[i][0]);
        put_float(s, corner[i][1]);
        put_float(s, 0);
        for (unsigned k = 0; k < 5; k++)
            put_float(s, 1);
    }
    begin(s, CREATE, ELEMENTS, 9);
    put(s, ELEMENTS);
    for (unsigned i = 0; i < 2; i++) {
        put(s, i * 16);
        put(s, 0);
        put(s, 0);
        put(s, FORMAT_FLOAT4);
    }
    begin(s, BIND, ELEMENTS, 1);
    put(s, ELEMENTS);
    begin(s, VERTEX_BUFFERS, 0, 3);
    put(s, VERTEX_BYTES);
    put(s, 0);
    put(s, resource);
}

static void target_of(stream *s, uint32_t resource)
{
    begin(s, CREATE, SURFACE, 5);
    put(s, SURFACE);
    put(s, resource);
    put(s, FORMAT_BGRA);
    put(s, 0);
    put(s, 0);
    begin(s, FRAMEBUFFER, 0, 3);
    put(s, 1);
    put(s, 0);
    put(s, SURFACE);
    begin(s, VIEWPORT, 0, 7);
    put(s, 0);
    for (unsigned i = 0; i < 6; i++)
        put_float(s, i % 3 == 2 ? 0.5f : (float)SIDE / 2);
}

unsigned first_draw(uint32_t target, uint32_t vertices, uint32_t out[FIRST_DRAW_WORDS])
{
    stream s = { out, 0 };
    target_of(&s, target);
    state(&s, BLEND, 11, 4, 0xfu << 27);
    state(&s, DEPTH, 5, 0, 0);
    state(&s, RASTERIZER, 9, 2, 1u << 1 | 1u << 29);
    shader(&s, 20, 0,
           "VERT\nDCL IN[0]\nDCL IN[1]\nDCL OUT[0], POSITION\nDCL OUT[1], COLOR\n"
           "  0: MOV OUT[1], IN[1]\n  1: MOV OUT[0], IN[0]\n  2: END\n");
    shader(&s, 21, 1,
           "FRAG\nDCL IN[0], COLOR, LINEAR\nDCL OUT[0], COLOR\n  0: MOV OUT[0], IN[0]\n  1: END\n");
    vertices_of(&s, vertices);
    begin(&s, CLEAR, 0, 8);
    put(&s, 4);
    for (unsigned i = 0; i < 7; i++)
        put(&s, 0);
    begin(&s, DRAW, 0, 12);
    put(&s, 0);
    put(&s, 3);
    put(&s, TRIANGLES);
    put(&s, 0);
    put(&s, 1);
    for (unsigned i = 5; i < 10; i++)
        put(&s, 0);
    put(&s, 2);
    put(&s, 0);
    return s.count;
}
