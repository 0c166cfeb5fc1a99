/* api_requests.c - see api_requests.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api_requests.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ==== 1  Identifiers ========================================================================== */

bool api_read_number(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t n = 0;
    if (!*text || (text[0] == '0' && text[1]) || text[strspn(text, "0123456789")])
        return false;
    for (; *text; text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (digit > max || n > (max - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *out = n;
    return true;
}

bool api_read_lease(const char *text, uint64_t *out)
{
    size_t len = strspn(text, "0123456789abcdef");
    if (!len || len > 16 || text[len] || text[0] == '0')
        return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

bool api_read_slot(const char *text, uint32_t *node, uint32_t *slot)
{
    char first[12];
    size_t len = strcspn(text, ".");
    uint64_t a, b;
    if (len >= sizeof first || text[len] != '.')
        return false;
    memcpy(first, text, len);
    first[len] = '\0';
    if (!api_read_number(first, UINT32_MAX, &a) || !api_read_number(text + len + 1, UINT16_MAX, &b))
        return false;
    *node = (uint32_t)a;
    *slot = (uint32_t)b;
    return a > 0 && b > 0;
}

bool api_is_name(const char *text, size_t max)
{
    size_t len = 0;
    for (; text[len]; len++) {
        char c = text[len];
        if (len == max || !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                            (c >= 'A' && c <= 'Z') || strchr("._-", c)))
            return false;
    }
    return len > 0;
}

static bool is_text(const char *text, size_t max)
{
    size_t len = 0;
    for (; text[len]; len++) {
        if (len == max || text[len] <= ' ' || text[len] > '~')
            return false;
    }
    return len > 0;
}

/* ==== 2  One value ============================================================================ */

static bool refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, API_WHY_BYTES, format, args);
    va_end(args);
    return false;
}

static bool put_number(const api_member *m, uint64_t n, char *why)
{
    if (n < m->min || n > m->max)
        return refuse(why, "%s: a whole number from %llu to %llu", m->name,
                      (unsigned long long)m->min, (unsigned long long)m->max);
    *(uint64_t *)m->target = n;
    return true;
}

static bool put_choice(const api_member *m, const char *text, char *why)
{
    size_t len = strlen(text);
    unsigned index = 0;
    for (const char *word = m->words; *word; index++) {
        size_t n = strcspn(word, "|");
        if (n == len && !memcmp(word, text, n)) {
            *(unsigned *)m->target = index;
            return true;
        }
        word += n + (word[n] == '|');
    }
    return refuse(why, "%s: one of %s", m->name, m->words);
}

static bool put_text(const api_member *m, const char *text, char *why)
{
    uint32_t node, slot;
    size_t max = (size_t)m->max;
    switch (m->kind) {
    case API_NAME:
        if (!api_is_name(text, max))
            return refuse(why, "%s: 1 to %zu letters, digits, '.', '_', '-'", m->name, max);
        break;
    case API_TEXT:
        if (!is_text(text, max))
            return refuse(why, "%s: 1 to %zu printable ASCII characters, no spaces", m->name, max);
        break;
    case API_CHOICE:
        return put_choice(m, text, why);
    case API_LEASE:
        return api_read_lease(text, m->target) ||
               refuse(why, "%s: a lease, in lower-case hex as it was given", m->name);
    case API_SLOT:
        if (!api_read_slot(text, &node, &slot))
            return refuse(why, "%s: a slot, as 10.3 for slot 3 of node 10", m->name);
        *(uint64_t *)m->target = (uint64_t)node << 16 | slot;
        return true;
    default: /* flags and reals are in bodies, as such */
        return refuse(why, "%s: not as text", m->name);
    }
    memcpy(m->target, text, strlen(text) + 1);
    return true;
}

/* ==== 3  JSON ================================================================================= */

static bool put_json(const api_member *m, const json_t *j, char *why)
{
    if (json_is_null(j) && m->nullable && m->kind == API_NUMBER) {
        *(uint64_t *)m->target = m->min - 1;
        return true;
    }
    if (json_is_null(j) && m->nullable) {
        *(char *)m->target = '\0';
        return true;
    }
    switch (m->kind) {
    case API_NUMBER:
        if (!json_is_integer(j) || json_integer_value(j) < 0)
            return refuse(why, "%s: a whole number from %llu to %llu%s", m->name,
                          (unsigned long long)m->min, (unsigned long long)m->max,
                          m->nullable ? ", or null" : "");
        return put_number(m, (uint64_t)json_integer_value(j), why);
    case API_REAL:
        if (!json_is_number(j) || !(json_number_value(j) > 0) ||
            json_number_value(j) > (double)m->max)
            return refuse(why, "%s: a number above 0, at most %llu", m->name,
                          (unsigned long long)m->max);
        *(double *)m->target = json_number_value(j);
        return true;
    case API_FLAG:
        if (!json_is_boolean(j))
            return refuse(why, "%s: true or false", m->name);
        *(bool *)m->target = json_is_true(j);
        return true;
    case API_SWITCH:
        if (!json_is_boolean(j))
            return refuse(why, "%s: true or false", m->name);
        *(unsigned *)m->target = json_is_true(j) ? 1 : 2;
        return true;
    default:
        if (!json_is_string(j))
            return refuse(why, "%s: a text", m->name);
        return put_text(m, json_string_value(j), why);
    }
}

static bool read_members(json_t *object, const api_member *members, unsigned count, char *why)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return refuse(why, "the body: one JSON object");
    for (unsigned i = 0; i < count; i++) {
        if (members[i].required && !json_object_get(object, members[i].name))
            return refuse(why, "%s: is missing", members[i].name);
    }
    json_object_foreach(object, name, value)
    {
        unsigned i = 0;
        while (i < count && strcmp(members[i].name, name))
            i++;
        if (i == count)
            return refuse(why, "%.40s: no such member here",
                          is_text(name, 40) ? name : "a member with a strange name");
        if (!put_json(&members[i], value, why))
            return false;
    }
    return true;
}

bool api_request_read(const char *text, size_t bytes, const api_member *members, unsigned count,
                      char why[API_WHY_BYTES])
{
    json_error_t error;
    json_t *object;
    bool good;
    if (!bytes) {
        text = "{}";
        bytes = 2;
    }
    object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        return refuse(why, "the body: invalid JSON, or a member twice (line %d, column %d)",
                      error.line, error.column);
    good = read_members(object, members, count, why);
    json_decref(object);
    return good;
}

/* ==== 4  Parameters =========================================================================== */

bool api_param_read(const char *name, const char *value, const api_param *params, unsigned count,
                    char why[API_WHY_BYTES])
{
    unsigned i = 0;
    uint64_t n;
    while (i < count && strcmp(params[i].name, name))
        i++;
    if (i == count)
        return refuse(why, "%.40s: no such parameter here", name);
    if (params[i].kind != API_NUMBER)
        return put_text(&params[i], value, why);
    return put_number(&params[i], api_read_number(value, UINT64_MAX, &n) ? n : UINT64_MAX, why);
}
