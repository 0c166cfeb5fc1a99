/* pool_table.c - see pool_table.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* ioctl(), TIOCGWINSZ */
#endif
#include "pool_table.h"
#include "command.h"
#include "pool_text.h"
#include "text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { GAP = 2, NARROW = 6, TEXT_MAX = 4096 };

unsigned pool_terminal(FILE *out, unsigned *rows)
{
    struct winsize size;
    if (!isatty(fileno(out)))
        return 0;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) || !size.ws_col || !size.ws_row) {
        size.ws_col = 80;
        size.ws_row = 24;
    }
    if (rows)
        *rows = size.ws_row;
    return size.ws_col;
}

bool pool_colors(FILE *out)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(out)) && !(none && *none) && term && strcmp(term, "dumb") != 0;
}

const char *pool_color(const char *word)
{
    static const struct {
        const char *word, *color;
    } colors[] = {
        { "active", "\033[32m" },       { "up", "\033[32m" },        { "connected", "\033[32m" },
        { "pending", "\033[33m" },      { "wiping", "\033[33m" },    { "draining", "\033[33m" },
        { "ended", "\033[33m" },        { "drained", "\033[33m" },   { "parked", "\033[33m" },
        { "binding", "\033[33m" },      { "attaching", "\033[33m" }, { "degraded", "\033[31m" },
        { "broken", "\033[31m" },       { "lost", "\033[31m" },      { "quarantined", "\033[31m" },
        { "disconnected", "\033[31m" },
    };
    for (size_t i = 0; i < sizeof colors / sizeof *colors; i++) {
        if (strcmp(colors[i].word, word) == 0)
            return colors[i].color;
    }
    return "";
}

void pool_table_begin(pool_table *t, const char *titles)
{
    memset(t, 0, sizeof *t);
    while (*titles && t->columns < POOL_COLUMNS_MAX) {
        size_t len = strcspn(titles, "|");
        unsigned i = t->columns++;
        if (*titles == '+' || *titles == '!' || *titles == '#') {
            t->kind[i] = *titles++;
            len--;
        }
        snprintf(t->title[i], sizeof t->title[i], "%.*s", (int)len, titles);
        titles += len;
        titles += *titles == '|';
    }
}

void pool_table_add(pool_table *t, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        char **cell = realloc(t->cell, room * sizeof *cell);
        if (!cell)
            out_of_memory();
        t->cell = cell;
        t->room = room;
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_clean(text); /* what was cut within a character, here or before */
    t->cell[t->count] = strdup(*text ? text : "-");
    if (!t->cell[t->count])
        out_of_memory();
    t->count++;
}

void pool_table_json(pool_table *t, const json_t *value)
{
    char time[32];
    if (json_is_string(value))
        pool_table_add(t, "%s",
                       strlen(json_string_value(value)) == 24
                           ? pool_text_time(json_string_value(value), time)
                           : json_string_value(value));
    else if (json_is_integer(value))
        pool_table_add(t, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        pool_table_add(t, "%.1f", json_real_value(value));
    else if (json_is_boolean(value))
        pool_table_add(t, "%s", json_is_true(value) ? "yes" : "no");
    else
        pool_table_add(t, "%s", !value || json_is_null(value) ? "-" : "?");
}

/* The longest column that may be cut; columns: none. */
static unsigned longest_text(const pool_table *t, const unsigned wide[POOL_COLUMNS_MAX])
{
    unsigned longest = t->columns;
    for (unsigned i = 0; i < t->columns; i++) { /* a number that is cut would be another one */
        bool text = t->kind[i] != '+' && t->kind[i] != '#';
        if (text && wide[i] > NARROW && (longest == t->columns || wide[i] > wide[longest]))
            longest = i;
    }
    return longest;
}

/* The last column that may be left out; 0: none, for the first one always stays. */
static unsigned last_column(const pool_table *t, const unsigned wide[POOL_COLUMNS_MAX])
{
    unsigned i = t->columns - 1;
    while (i && (!wide[i] || t->kind[i] == '#'))
        i--;
    return i;
}

/* How wide each column is to be; 0: it is left out. */
static void fit(const pool_table *t, unsigned width, unsigned wide[POOL_COLUMNS_MAX])
{
    unsigned total = 0;
    for (unsigned i = 0; i < t->columns; i++)
        wide[i] = pool_text_width(t->title[i]);
    for (size_t i = 0; i < t->count; i++) {
        unsigned w = pool_text_width(t->cell[i]), column = (unsigned)(i % t->columns);
        if (w > wide[column])
            wide[column] = w;
    }
    for (unsigned i = 0; i < t->columns; i++)
        total += wide[i] + (i ? GAP : 0);
    while (width && total > width) {
        unsigned longest = longest_text(t, wide), last = last_column(t, wide);
        if (longest < t->columns) {
            wide[longest]--;
            total--;
        } else if (last) {
            total -= wide[last] + GAP;
            wide[last] = 0;
        } else {
            break;
        }
    }
}

static void print_cell(FILE *out, const char *text, unsigned wide, char kind, bool last, bool color)
{
    unsigned has = pool_text_width(text);
    bool cut = has > wide && kind != '+' && kind != '#';
    size_t bytes = cut ? pool_text_cut(text, wide - 1) : strlen(text);
    const char *start = color && kind == '!' ? pool_color(text) : "";
    if (cut)
        has = wide;
    if (kind == '+' && has < wide)
        fprintf(out, "%*s", (int)(wide - has), "");
    fprintf(out, "%s%.*s%s%s", start, (int)bytes, text, cut ? "~" : "",
            *start ? POOL_COLOR_END : "");
    if (!last)
        fprintf(out, "%*s", (int)((kind != '+' && has < wide ? wide - has : 0) + GAP), "");
}

/* cells: of one row, or the titles. */
static void print_row(const pool_table *t, FILE *out, const char *const cells[POOL_COLUMNS_MAX],
                      const unsigned wide[POOL_COLUMNS_MAX], bool titles, bool color)
{
    unsigned last = t->columns - 1;
    while (!wide[last])
        last--;
    for (unsigned i = 0; i <= last; i++) {
        char kind = titles && t->kind[i] == '!' ? '\0' : t->kind[i];
        if (wide[i])
            print_cell(out, cells[i], wide[i], kind, i == last, color);
    }
    fputc('\n', out);
}

void pool_table_end(pool_table *t, FILE *out, unsigned width, bool color)
{
    unsigned wide[POOL_COLUMNS_MAX];
    const char *cells[POOL_COLUMNS_MAX];
    fit(t, width, wide);
    for (unsigned i = 0; i < t->columns; i++)
        cells[i] = t->title[i];
    print_row(t, out, cells, wide, true, false);
    for (size_t row = 0; row + t->columns <= t->count; row += t->columns) {
        for (unsigned i = 0; i < t->columns; i++)
            cells[i] = t->cell[row + i];
        print_row(t, out, cells, wide, false, color);
    }
    for (size_t i = 0; i < t->count; i++)
        free(t->cell[i]);
    free(t->cell);
    t->cell = NULL;
    t->count = t->room = 0;
}
