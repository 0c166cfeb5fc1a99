/* text.c - see text.h
   SPDX-License-Identifier: MIT */
#include "text.h"

#include <string.h>

size_t text_next(const char *s, uint32_t *out)
{
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char *p = (const unsigned char *)s;
    size_t len = p[0] < 0x80       ? 1
                 : p[0] >> 5 == 6  ? 2
                 : p[0] >> 4 == 14 ? 3
                 : p[0] >> 3 == 30 ? 4
                                   : 0;
    uint32_t v = len == 1 ? p[0] : len ? p[0] & (0x7fu >> len) : TEXT_BAD;
    *out = TEXT_BAD;
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

static bool shown(uint32_t v)
{
    static const uint32_t not_shown[][2] = {
        { 0, 0x1f },          { 0x7f, 0x9f },          { 0xad, 0xad },     { 0x61c, 0x61c },
        { 0x180e, 0x180e },   { 0x200b, 0x200f },      { 0x2028, 0x202e }, { 0x2060, 0x206f },
        { 0xfe00, 0xfe0f },   { 0xfeff, 0xfeff },      { 0xfff0, 0xfffb }, { 0xe000, 0xf8ff },
        { 0xe0000, 0xe0fff }, { 0xf0000, UINT32_MAX }, /* TEXT_BAD, too */
    };
    for (size_t i = 0; i < sizeof not_shown / sizeof *not_shown; i++) {
        if (v >= not_shown[i][0] && v <= not_shown[i][1])
            return false;
    }
    return true;
}

void text_clean(char *text)
{
    char *to = text;
    while (*text) {
        uint32_t v;
        size_t len = text_next(text, &v);
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

/* ==== What was meant ========================================================================== */

enum { WORD_MAX = 32 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Letters to change, add, leave out or exchange with the next one until `a` is `b`. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned row[3][WORD_MAX + 1], *before = row[0], *last = row[1], *now = row[2], *spare;
    for (unsigned j = 0; j <= b_len; j++)
        last[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[b_len];
}

int text_nearest(const char *word, const char *(*name)(const void *user, unsigned i),
                 const void *user)
{
    size_t len = strlen(word);
    unsigned best = len < 4 ? 2 : 3; /* below this */
    int found = -1;
    const char *of;
    for (unsigned i = 0; len && len <= WORD_MAX && (of = name(user, i)) != NULL; i++) {
        size_t of_len = strlen(of);
        unsigned d = of_len <= WORD_MAX ? distance(word, len, of, of_len) : WORD_MAX;
        if (d < best && d < of_len) {
            best = d;
            found = (int)i;
        } else if (found < 0 && len >= 3 && of_len > len && !strncmp(word, of, len)) {
            found = (int)i; /* only its beginning was written; something nearer goes before */
        }
    }
    return found;
}
