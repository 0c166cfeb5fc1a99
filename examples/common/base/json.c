/* json.c - see json.h
   SPDX-License-Identifier: MIT */
#include "json.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void put(json_writer *w, const char *bytes, size_t len)
{
    size_t room = w->len < w->capacity ? w->capacity - w->len : 0;
    if (w->out) {
        (void)fwrite(bytes, 1, len, w->out);
        return;
    }
    if (room > 1) {
        size_t n = len < room - 1 ? len : room - 1;
        memcpy(w->text + w->len, bytes, n);
        w->text[w->len + n] = '\0';
    }
    w->len += len;
}

static void put_unit(json_writer *w, uint32_t unit)
{
    char text[8];
    put(w, text, (size_t)snprintf(text, sizeof text, "\\u%04" PRIX32, unit));
}

static void put_escaped(json_writer *w, uint32_t v)
{
    static const char plain[] = "\b\f\n\r\t\"\\", letter[] = "bfnrt\"\\";
    const char *at = v && v < 0x80 ? strchr(plain, (int)v) : NULL;
    if (at) {
        put(w, "\\", 1);
        put(w, &letter[at - plain], 1);
    } else if (v > 0xffff) {
        put_unit(w, 0xd800 + ((v - 0x10000) >> 10));
        put_unit(w, 0xdc00 + ((v - 0x10000) & 0x3ff));
    } else {
        put_unit(w, v);
    }
}

static void put_string(json_writer *w, const char *s)
{
    put(w, "\"", 1);
    while (*s) {
        size_t len = 0;
        uint32_t v;
        while (s[len] >= ' ' && s[len] < 0x7f && s[len] != '"' && s[len] != '\\')
            len++;
        put(w, s, len);
        s += len;
        if (*s) {
            s += text_next(s, &v);
            put_escaped(w, v == TEXT_BAD ? 0xfffd : v);
        }
    }
    put(w, "\"", 1);
}

static void put_name(json_writer *w, const char *name)
{
    if (!w->first)
        put(w, ",", 1);
    w->first = false;
    if (name) {
        put_string(w, name);
        put(w, ":", 1);
    }
}

void json_to_file(json_writer *w, FILE *out)
{
    memset(w, 0, sizeof *w);
    w->out = out;
    w->first = true;
}

void json_to_text(json_writer *w, char *text, size_t capacity)
{
    memset(w, 0, sizeof *w);
    w->text = text;
    w->capacity = capacity;
    w->first = true;
    text[0] = '\0';
}

void json_put_open(json_writer *w, const char *name, char bracket)
{
    put_name(w, name);
    put(w, &bracket, 1);
    w->first = true;
}

void json_put_close(json_writer *w, char bracket)
{
    put(w, &bracket, 1);
    w->first = false;
}

void json_put_number(json_writer *w, const char *name, uint64_t value)
{
    char text[24];
    put_name(w, name);
    put(w, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, value));
}

void json_put_real(json_writer *w, const char *name, double value)
{
    char text[336]; /* of the largest double */
    put_name(w, name);
    if (isfinite(value))
        put(w, text, (size_t)snprintf(text, sizeof text, "%.3f", value));
    else
        put(w, "null", 4);
}

void json_put_text(json_writer *w, const char *name, const char *value)
{
    put_name(w, name);
    put_string(w, value);
}

void json_put_bool(json_writer *w, const char *name, bool value)
{
    put_name(w, name);
    put(w, value ? "true" : "false", value ? 4 : 5);
}

void json_put_raw(json_writer *w, const char *name, const char *value, size_t len)
{
    put_name(w, name);
    put(w, value, len);
}
