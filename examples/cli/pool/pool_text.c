/* pool_text.c - see pool_text.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAD = 0 }; /* no code point that is ever shown */

/* The code point at s, which is not at its end, and its bytes. */
static size_t next(const char *s, uint32_t *out)
{
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char *p = (const unsigned char *)s;
    size_t len = p[0] < 0x80       ? 1
                 : p[0] >> 5 == 6  ? 2
                 : p[0] >> 4 == 14 ? 3
                 : p[0] >> 3 == 30 ? 4
                                   : 0;
    uint32_t v = len == 1 ? p[0] : len ? p[0] & (0x7fu >> len) : BAD;
    *out = BAD;
    if (!len)
        return 1;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return i;
        v = v << 6 | (p[i] & 0x3f);
    }
    if (v >= least[len] && v <= 0x10ffff && !(v >= 0xd800 && v <= 0xdfff))
        *out = v;
    return len;
}

static bool within(uint32_t v, const uint32_t (*ranges)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (v >= ranges[i][0] && v <= ranges[i][1])
            return true;
    }
    return false;
}

static bool shown(uint32_t v)
{
    static const uint32_t not_shown[][2] = {
        { 0, 0x1f },          { 0x7f, 0x9f },       { 0xad, 0xad },     { 0x61c, 0x61c },
        { 0x180e, 0x180e },   { 0x200b, 0x200f },   { 0x2028, 0x202e }, { 0x2060, 0x206f },
        { 0xfe00, 0xfe0f },   { 0xfeff, 0xfeff },   { 0xfff0, 0xfffb }, { 0xe000, 0xf8ff },
        { 0xe0000, 0xe0fff }, { 0xf0000, 0x10ffff }
    };
    return !within(v, not_shown, sizeof not_shown / sizeof *not_shown);
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

void pool_text_clean(char *text)
{
    char *to = text;
    while (*text) {
        uint32_t v;
        size_t len = next(text, &v);
        if (shown(v)) {
            memmove(to, text, len);
            to += len;
        } else {
            *to++ = '?';
        }
        text += len;
    }
    *to = '\0';
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
            pool_text_clean(copy);
        (void)json_string_set_nocheck(j, copy ? copy : "?");
        free(copy);
    }
}

unsigned pool_text_width(const char *text)
{
    unsigned width = 0;
    while (*text) {
        uint32_t v;
        text += next(text, &v);
        width += columns(v);
    }
    return width;
}

size_t pool_text_cut(const char *text, unsigned width)
{
    size_t at = 0;
    while (text[at]) {
        uint32_t v;
        size_t len = next(text + at, &v);
        if (columns(v) > width)
            break;
        width -= columns(v);
        at += len;
    }
    return at;
}

bool pool_text_number(const char *text, uint64_t max, uint64_t *out)
{
    size_t len = strlen(text);
    uint64_t v = 0;
    if (!len || strspn(text, "0123456789") != len)
        return false;
    for (; *text; text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (v > (max - (digit > max ? max : digit)) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return v <= max;
}

bool pool_text_seconds(const char *text, uint64_t *out)
{
    static const char units[] = "smhdw";
    static const uint64_t seconds[] = { 1, 60, 3600, 86400, 604800 };
    const uint64_t most = 100u * 366u * 86400ull;
    char digits[24];
    size_t len = strlen(text);
    const char *unit = len ? strchr(units, text[len - 1]) : NULL;
    uint64_t scale = unit ? seconds[unit - units] : 1;
    len -= unit ? 1 : 0;
    if (len >= sizeof digits)
        return false;
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (!pool_text_number(digits, most / scale, out))
        return false;
    *out *= scale;
    return true;
}

const char *pool_text_time(const char *rfc3339, char out[32])
{
    snprintf(out, 32, "%.31s", rfc3339);
    if (strlen(rfc3339) == 24 && out[10] == 'T' && out[19] == '.' && out[23] == 'Z') {
        out[10] = ' ';
        out[19] = 'Z';
        out[20] = '\0';
    }
    pool_text_clean(out); /* cut within a character, perhaps */
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
