/* front_read.c - what --card says: see front.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "front.h"
#include "options.h"

#include <stdlib.h>

static char problem[160];

static const char *wrong(const char *what, const char *text)
{
    snprintf(problem, sizeof problem, "--card: %s '%.80s'", what, text);
    return problem;
}

/* A number in hexadecimal behind 0x, up to one of the characters of `ends`. */
static bool read_hex(const char **at, const char *ends, uint64_t *out)
{
    char *end;
    if (strncmp(*at, "0x", 2) != 0 || strspn(*at + 2, "0123456789abcdefABCDEF") == 0 ||
        strspn(*at + 2, "0123456789abcdefABCDEF") > 16)
        return false;
    *out = strtoull(*at + 2, &end, 16);
    *at = end;
    return *end == '\0' || strchr(ends, *end);
}

/* FIRST+SIZE, with :r or :w where only one of the two is allowed. */
static bool read_window(front_settings *s, const char *text)
{
    dxpu_window *w = &s->memory[s->windows];
    char size_text[24] = "";
    uint64_t first, size;
    const char *at = text, *colon;
    if (s->windows == FRONT_WINDOWS || !read_hex(&at, "+", &first) || *at != '+')
        return false;
    colon = strchr(++at, ':');
    if ((colon ? (size_t)(colon - at) : strlen(at)) >= sizeof size_text)
        return false;
    memcpy(size_text, at, colon ? (size_t)(colon - at) : strlen(at));
    w->access = DXPU_WINDOW_READ | DXPU_WINDOW_WRITE;
    if (colon)
        w->access = !strcmp(colon, ":r")   ? DXPU_WINDOW_READ
                    : !strcmp(colon, ":w") ? DXPU_WINDOW_WRITE
                                           : 0u;
    if (!w->access || !options_size(size_text, &size) || !size || size - 1 > UINT64_MAX - first)
        return false;
    w->first = first;
    w->last = first + size - 1;
    s->windows++;
    return true;
}

/* BB:DD.F */
static bool read_id(const char *text, uint64_t *out)
{
    unsigned bus, device, function;
    char more;
    if (strlen(text) != 7 || sscanf(text, "%2x:%2x.%1x%c", &bus, &device, &function, &more) != 3 ||
        device > 31 || function > 7)
        return false;
    *out = (uint64_t)(bus << 8 | device << 3 | function);
    return true;
}

static bool read_address(char to[FRONT_TEXT_BYTES], const char *text)
{
    if (card_wire_check(text) || strlen(text) >= FRONT_TEXT_BYTES)
        return false;
    snprintf(to, FRONT_TEXT_BYTES, "%s", text);
    return true;
}

static bool read_key(front_settings *s, const char *key, const char *value)
{
    const char *at = value;
    uint64_t n;
    if (!strcmp(key, "peer"))
        return read_address(s->peer, value);
    if (!strcmp(key, "local"))
        return read_address(s->local, value);
    if (!strcmp(key, "memory"))
        return read_window(s, value);
    if (!strcmp(key, "answer-ms"))
        return options_number(value, 10000, &s->answer_ms) && s->answer_ms >= 1;
    if (!strcmp(key, "tags") && !s->raw && options_number(value, 256, &n) && n >= 1) {
        s->tags = (unsigned)n;
        return true;
    }
    if (!strcmp(key, "mps") && !s->raw && options_number(value, 1024, &n) && n >= 128) {
        s->mps = (uint32_t)n;
        return (n & (n - 1)) == 0;
    }
    if (!strcmp(key, "bar") && s->raw)
        return s->has_bar =
                   read_hex(&at, "", &s->bar) && *at == '\0' && s->bar && s->bar % 4096 == 0;
    if (!strcmp(key, "id") && s->raw)
        return s->has_id = read_id(value, &s->id);
    if (!strcmp(key, "spans") && s->raw && (!*value || !strcmp(value, "yes")))
        return s->spans = true;
    return false;
}

static const char *read_words(front_settings *s, char *words)
{
    char *rest = NULL, *word = strtok_r(words, ",", &rest);
    s->raw = word && !strcmp(word, "rawtlp");
    if (!s->raw && (!word || strcmp(word, "nettlp") != 0))
        return wrong("must begin with nettlp or rawtlp:", word ? word : "");
    while ((word = strtok_r(NULL, ",", &rest)) != NULL) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = '\0';
        if (!read_key(s, word, value ? value : ""))
            return wrong("unknown key or invalid value:", word);
    }
    if (!*s->peer)
        return "--card: peer=ADDR is required, the address of the card";
    if (s->raw && !(s->has_bar && s->has_id))
        return "--card: rawtlp needs bar=0xADDRESS and id=BB:DD.F, which the card's machine shows";
    return NULL;
}

const char *front_read(front_settings *s, const char *text)
{
    char *words = strdup(text);
    const char *bad;
    if (!words)
        return "out of memory";
    bad = read_words(s, words);
    free(words);
    return bad;
}
