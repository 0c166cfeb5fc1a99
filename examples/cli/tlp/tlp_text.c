/* tlp_text.c - finds the bytes of a TLP in a line of text
   SPDX-License-Identifier: MIT */
#include "tlp_text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* A word of the line: letters and digits without anything between them. */
typedef struct token {
    const char *start, *end;
    const char *hex; /* its digits, behind 0x; NULL when it is not a hex number */
    size_t digits;
} token;

/* What the words before a group of hex numbers make of it. */
typedef enum context { CONTEXT_NONE, CONTEXT_HEADER, CONTEXT_PREFIX } context;

/* Hex numbers of equal width that belong together. */
typedef struct group {
    const char *start, *end;
    size_t width; /* digits of each; shorter ones are filled with zeros from the left */
    size_t count;
} group;

static bool word_is(const token *t, const char *const *words)
{
    size_t len = (size_t)(t->end - t->start);
    for (; *words; words++)
        if (strlen(*words) == len && strncasecmp(t->start, *words, len) == 0)
            return true;
    return false;
}

static bool next_token(const char *at, token *t)
{
    while (*at && !isalnum((unsigned char)*at))
        at++;
    t->start = at;
    while (isalnum((unsigned char)*at))
        at++;
    t->end = at;
    t->hex = t->start;
    if (t->end - t->start > 2 && t->start[0] == '0' && (t->start[1] | 0x20) == 'x')
        t->hex += 2;
    t->digits = (size_t)(t->end - t->hex);
    for (const char *p = t->hex; p < t->end; p++)
        if (!isxdigit((unsigned char)*p)) {
            t->hex = NULL;
            break;
        }
    return t->end > t->start;
}

/* Do `from` .. `to` only separate?  A colon before a blank ends an offset or a label. */
static bool separates(const char *from, const char *to)
{
    for (const char *p = from; p < to; p++) {
        if (!strchr(" \t,:-_", *p))
            return false;
        if (*p == ':' && isspace((unsigned char)p[1]))
            return false;
    }
    return true;
}

static bool has_0x(const token *t)
{
    return t->hex && t->hex != t->start;
}

/* The kernel's trace events print dwords without leading zeros: {0x4a000001,0x4,0x0,0x0}.  Such a
   list is one of dwords when some number is longer than two digits and they differ in width. */
static bool dword_list(token t, group *g)
{
    size_t widest = 0, narrowest = 8;
    g->start = t.start;
    g->count = 0;
    do {
        if (!has_0x(&t) || t.digits > 8)
            break;
        widest = t.digits > widest ? t.digits : widest;
        narrowest = t.digits < narrowest ? t.digits : narrowest;
        g->end = t.end;
        g->count++;
    } while (next_token(t.end, &t) && separates(g->end, t.start));
    g->width = 8;
    return g->count >= 3 && widest > 2 && widest != narrowest;
}

static void equal_widths(token t, group *g)
{
    g->start = t.start;
    g->width = t.digits;
    g->count = 0;
    do {
        if (!t.hex || t.digits != g->width)
            break;
        g->end = t.end;
        g->count++;
    } while (next_token(t.end, &t) && separates(g->end, t.start));
}

static bool put_nibble(tlp_text *out, size_t index, int digit)
{
    uint8_t v = (uint8_t)(isdigit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10);
    if (index / 2 >= sizeof out->bytes)
        return false;
    if (index % 2)
        out->bytes[index / 2] |= v;
    else
        out->bytes[index / 2] = (uint8_t)(v << 4);
    return true;
}

/* Append the numbers of a group; what does not fit is dropped: it is too long for a TLP anyway. */
static void append(const group *g, tlp_text *out)
{
    size_t index = out->len * 2;
    token t;
    for (const char *at = g->start; at < g->end && next_token(at, &t); at = t.end) {
        for (size_t i = t.digits; i < g->width; i++)
            if (!put_nibble(out, index++, '0'))
                return;
        for (const char *p = t.hex; p < t.end; p++)
            if (!put_nibble(out, index++, *p))
                return;
        out->len = index / 2;
    }
}

static size_t group_bytes(const group *g)
{
    return g->width % 2 ? 0 : g->width / 2 * g->count;
}

/* Is there nothing before `g` in the line but the offset 0 of a hex dump?  Rows of other offsets do
   not begin a TLP, and shorter offsets are those of configuration space in lspci -x. */
static bool alone_before(const char *line, const group *g, bool *offset)
{
    token t;
    next_token(line, &t);
    *offset = t.start != g->start;
    if (!*offset)
        return true;
    if (!t.hex || t.digits < 4 || strspn(t.hex, "0") != t.digits)
        return false;
    return next_token(t.end, &t) && t.start == g->start;
}

static bool alone_after(const group *g)
{
    token t;
    return !next_token(g->end, &t);
}

static bool is_tlp(const char *line, const group *g, context c)
{
    bool offset;
    size_t bytes = group_bytes(g);
    if (bytes < 4 || c == CONTEXT_PREFIX)
        return false;
    if (c == CONTEXT_HEADER)
        return true;
    return alone_before(line, g, &offset) && (bytes >= 12 || (!offset && alone_after(g)));
}

static context next_context(const token *t, context c, bool *flit)
{
    static const char *const header[] = { "tlp", "header", "headerlog", "hdr", NULL };
    static const char *const prefix[] = { "prefix", "prefixes", NULL };
    static const char *const filler[] = { "log", "raw", "dump", "flit", NULL };
    static const char *const mode[] = { "flit", NULL };
    if (word_is(t, prefix))
        return CONTEXT_PREFIX;
    if (word_is(t, header))
        return CONTEXT_HEADER;
    if (c != CONTEXT_NONE && word_is(t, mode))
        *flit = true;
    return word_is(t, filler) ? c : CONTEXT_NONE;
}

bool tlp_text_begins_dump(const char *line)
{
    static const char *const dump[] = { "dump", NULL };
    token t;
    for (const char *at = line; next_token(at, &t); at = t.end)
        if (word_is(&t, dump))
            return true;
    return false;
}

bool tlp_text_has_words(const char *line)
{
    token t;
    for (const char *at = line; next_token(at, &t); at = t.end)
        if (!t.hex)
            return true;
    return false;
}

/* Put the prefixes that follow the header in a log in front of it; an unused one is logged as 0. */
static void take_prefixes(const char *at, tlp_text *out)
{
    context c = CONTEXT_NONE;
    bool flit;
    tlp_text header = *out;
    token t;
    for (; next_token(at, &t); at = t.end) {
        if (t.hex && c == CONTEXT_PREFIX)
            break;
        c = next_context(&t, c, &flit);
    }
    if (!t.hex || c != CONTEXT_PREFIX || t.digits != 8)
        return;
    group g;
    equal_widths(t, &g);
    out->len = 0;
    append(&g, out);
    while (out->len >= 4 && memcmp(out->bytes + out->len - 4, "\0\0\0", 4) == 0)
        out->len -= 4;
    if (out->len + header.len > sizeof out->bytes)
        out->len = 0;
    out->prefix_bytes = out->len;
    memcpy(out->bytes + out->len, header.bytes, header.len);
    out->len += header.len;
}

bool tlp_text_find(const char *line, tlp_text *out)
{
    static const char *const lspci[] = { "headerlog", NULL };
    context c = CONTEXT_NONE;
    token t;
    group g;
    out->len = out->prefix_bytes = 0;
    out->flit = out->headerlog = false;
    for (const char *at = line; next_token(at, &t);) {
        at = t.end;
        if (!t.hex) {
            c = next_context(&t, c, &out->flit);
            out->headerlog = word_is(&t, lspci);
            continue;
        }
        if (c != CONTEXT_HEADER || !dword_list(t, &g))
            equal_widths(t, &g);
        if (is_tlp(line, &g, c)) {
            append(&g, out);
            take_prefixes(g.end, out);
            return true;
        }
        at = g.end;
        c = CONTEXT_NONE;
    }
    return false;
}

/* Hex digits and the mark that must follow them; their number, 0 when it is another one. */
static size_t digits_before(const char *p, char mark, size_t least, size_t most)
{
    size_t n = 0;
    while (isxdigit((unsigned char)p[n]))
        n++;
    return n >= least && n <= most && p[n] == mark ? n : 0;
}

/* The length of [domain:]bus:device.function at p, 0 when none stands there. */
static size_t device_length(const char *p)
{
    size_t n = digits_before(p, ':', 4, 8);
    const char *bus = n ? p + n + 1 : p;
    if (!digits_before(bus, ':', 2, 2) || !digits_before(bus + 3, '.', 2, 2) || bus[3] > '1' ||
        bus[6] < '0' || bus[6] > '7' || isalnum((unsigned char)bus[7]) ||
        (bus[7] == '.' && isalnum((unsigned char)bus[8])))
        return 0;
    return (size_t)(bus + 7 - p);
}

bool tlp_text_device(const char *line, char out[TLP_TEXT_DEVICE_BYTES])
{
    for (const char *p = line; *p; p++) {
        size_t n;
        if (p > line && (isalnum((unsigned char)p[-1]) || strchr(":.-", p[-1])))
            continue; /* in the middle of something, a time perhaps */
        n = device_length(p);
        if (n) {
            memcpy(out, p, n);
            out[n] = '\0';
            return true;
        }
    }
    return false;
}

long tlp_text_bytes(const char *hex, uint8_t *out, size_t cap)
{
    size_t digits = strlen(hex);
    if (digits % 2 || digits / 2 > cap || strspn(hex, "0123456789abcdefABCDEF") != digits)
        return -1;
    for (size_t i = 0; i < digits; i++) {
        int d = hex[i];
        uint8_t v = (uint8_t)(isdigit(d) ? d - '0' : (d | 0x20) - 'a' + 10);
        out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | v : v << 4);
    }
    return (long)(digits / 2);
}
