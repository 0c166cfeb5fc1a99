/* pool_text.c - see pool_text.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool_text.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool within(uint32_t v, const uint32_t (*ranges)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (v >= ranges[i][0] && v <= ranges[i][1])
            return true;
    }
    return false;
}

static unsigned columns(uint32_t v)
{
    static const uint32_t wide[][2] = { { 0x1100, 0x115f },  { 0x2e80, 0xa4cf },
                                        { 0xac00, 0xd7a3 },  { 0xf900, 0xfaff },
                                        { 0xfe30, 0xfe6f },  { 0xff00, 0xff60 },
                                        { 0xffe0, 0xffe6 },  { 0x1f300, 0x1faff },
                                        { 0x20000, 0x3fffd } };
    static const uint32_t above[][2] = { { 0x300, 0x36f }, { 0x1ab0, 0x1aff }, { 0x20d0, 0x20ff } };
    if (within(v, above, sizeof above / sizeof *above))
        return 0;
    return within(v, wide, sizeof wide / sizeof *wide) ? 2 : 1;
}

void pool_text_clean_json(json_t *j)
{
    const char *key;
    json_t *value;
    size_t index;
    if (json_is_object(j)) {
        json_object_foreach(j, key, value) pool_text_clean_json(value);
    } else if (json_is_array(j)) {
        json_array_foreach(j, index, value) pool_text_clean_json(value);
    } else if (json_is_string(j)) {
        char *copy = strdup(json_string_value(j));
        if (copy)
            text_clean(copy);
        (void)json_string_set_nocheck(j, copy ? copy : "?");
        free(copy);
    }
}

unsigned pool_text_width(const char *text)
{
    unsigned width = 0;
    while (*text) {
        uint32_t v;
        text += text_next(text, &v);
        width += columns(v);
    }
    return width;
}

size_t pool_text_cut(const char *text, unsigned width)
{
    size_t at = 0;
    while (text[at]) {
        uint32_t v;
        size_t len = text_next(text + at, &v);
        if (columns(v) > width)
            break;
        width -= columns(v);
        at += len;
    }
    return at;
}

const char *pool_text_time(const char *rfc3339, char out[32])
{
    snprintf(out, 32, "%.31s", rfc3339);
    if (strlen(rfc3339) == 24 && out[10] == 'T' && out[19] == '.' && out[23] == 'Z') {
        out[10] = ' ';
        out[19] = 'Z';
        out[20] = '\0';
    }
    text_clean(out); /* cut within a character, perhaps */
    return out;
}

bool pool_text_escape(const char *in, char *out, size_t cap)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    size_t at = 0;
    for (; *in; in++) {
        if (at + 4 > cap)
            return false;
        if (strchr(plain, *in))
            out[at++] = *in;
        else
            at += (size_t)snprintf(out + at, 4, "%%%02X", (unsigned char)*in);
    }
    out[at] = '\0';
    return true;
}
