/* pool_table.h - a table with aligned columns that fits the terminal
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_POOL_TABLE_H
#define DXPU_CLI_POOL_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum { POOL_COLUMNS_MAX = 16 };

typedef struct pool_table {
    unsigned columns;
    char title[POOL_COLUMNS_MAX][24];
    char kind[POOL_COLUMNS_MAX]; /* '+', '!', '#' or '\0' */
    char **cell;
    size_t count, room;
} pool_table;

/* "#slot|!state|+epoch": + is aligned right, ! is a word that has a color, # is an identifier that
   people copy: it is never cut or left out.  Put what matters least last: on a narrow terminal the
   longest texts are cut (~), then the last columns are left out. */
void pool_table_begin(pool_table *t, const char *titles);
/* The next cell, row by row. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void pool_table_add(pool_table *t, const char *format, ...);
/* A value as people read it: yes, no, - for none, ? for what no cell can show. */
void pool_table_json(pool_table *t, const json_t *value);
/* width: 0 is any; then the table is empty again. */
void pool_table_end(pool_table *t, FILE *out, unsigned width, bool color);

/* Of a terminal there: its columns (and rows, may be NULL); 0: it is no terminal. */
unsigned pool_terminal(FILE *out, unsigned *rows);
/* A terminal that shows colors, without NO_COLOR. */
bool pool_colors(FILE *out);
/* "\033[31m" or the like for a state's word; "" for other words. */
const char *pool_color(const char *word);
#define POOL_COLOR_END "\033[0m"

#endif
