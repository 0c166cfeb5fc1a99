/* options.c - see options.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show_help(const option_program *p)
{
    printf("%s - %s\n\nusage: %s [OPTIONS]\n\n", p->name, p->purpose, p->name);
    for (unsigned i = 0; i < p->count; i++) {
        char left[64];
        const option_row *r = &p->rows[i];
        snprintf(left, sizeof left, "--%s%s%s", r->name, r->value ? " " : "",
                 r->value ? r->value : "");
        if (strlen(left) > 24)
            printf("  %s\n  %-24s  %s\n", left, "", r->help);
        else
            printf("  %-24s  %s\n", left, r->help);
    }
    printf("  %-24s  %s\n", "--config FILE", "lines of `name = value` with the names above");
    printf("  %-24s  %s\n", "--help", "this text");
    printf("  %-24s  %s\n", "--version", "version and build");
    if (p->tail)
        printf("\n%s", p->tail);
}

static int no_memory(const option_program *p)
{
    fprintf(stderr, "%s: out of memory\n", p->name);
    return OPTIONS_MEMORY;
}

static int wrong(const option_program *p, const char *where, const char *name, const char *what)
{
    fprintf(stderr, "%s: %s%s: %s; see %s --help\n", p->name, where, name, what, p->name);
    return OPTIONS_WRONG;
}

bool options_size(const char *text, uint64_t *out)
{
    char *end;
    unsigned shift = 0;
    uint64_t v;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    v = strtoull(text, &end, 0);
    if (*end == 'k' || *end == 'K')
        shift = 10;
    else if (*end == 'm' || *end == 'M')
        shift = 20;
    else if (*end == 'g' || *end == 'G')
        shift = 30;
    if (errno || (shift && end[1]) || (!shift && *end) || v > UINT64_MAX >> shift)
        return false;
    *out = v << shift;
    return true;
}

/* Index of `text` in "one|two|three", -1 for none. */
static int choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (int index = 0;; index++) {
        size_t len = strcspn(choices, "|");
        if (len == n && !strncmp(choices, text, n))
            return index;
        if (!choices[len])
            return -1;
        choices += len + 1;
    }
}

static int set_number(const option_program *p, const option_row *r, const char *where,
                      const char *text)
{
    char what[120];
    uint64_t v;
    bool digits =
        r->kind == OPTION_SIZE || strspn(text, "0123456789xXabcdefABCDEF") == strlen(text);
    if (!digits || !options_size(text, &v) || v < r->min || v > r->max) {
        snprintf(what, sizeof what, "must be a number from %llu to %llu, not '%.30s'",
                 (unsigned long long)r->min, (unsigned long long)r->max, text);
        return wrong(p, where, r->name, what);
    }
    *(uint64_t *)r->target = v;
    return OPTIONS_GO;
}

static int set(const option_program *p, const option_row *r, const char *where, const char *text)
{
    int index;
    switch (r->kind) {
    case OPTION_FLAG:
        index = choice("no|yes", text ? text : "yes");
        if (index < 0)
            return wrong(p, where, r->name, "must be yes or no");
        *(bool *)r->target = index == 1;
        return OPTIONS_GO;
    case OPTION_TEXT:
        *(const char **)r->target = text;
        return OPTIONS_GO;
    case OPTION_CHOICE:
        index = choice(r->value, text);
        if (index < 0)
            return wrong(p, where, r->name, r->value);
        *(unsigned *)r->target = (unsigned)index;
        return OPTIONS_GO;
    default:
        return set_number(p, r, where, text);
    }
}

static const option_row *find(const option_program *p, const char *name, size_t len)
{
    for (unsigned i = 0; i < p->count; i++) {
        if (strlen(p->rows[i].name) == len && !memcmp(p->rows[i].name, name, len))
            return &p->rows[i];
    }
    return NULL;
}

/* Cut white space off both ends, in place. */
static char *trim(char *s)
{
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        *--end = '\0';
    while (isspace((unsigned char)*s))
        s++;
    return s;
}

/* Texts of the file live as long as the program, but for those that another one goes before. */
static void keep_text(const option_program *p, const option_row *r, char **texts, char *text)
{
    free(texts[r - p->rows]);
    texts[r - p->rows] = text;
}

static int parse_line(const option_program *p, const char *where, char *line, char **texts)
{
    char *name, *value, *equals = strchr(line, '=');
    const option_row *r;
    name = trim(line);
    if (!*name || *name == '#')
        return OPTIONS_GO;
    if (!equals)
        return wrong(p, where, name, "a line must be `name = value`");
    *equals = '\0';
    name = trim(name);
    value = trim(equals + 1);
    r = find(p, name, strlen(name));
    if (!r)
        return wrong(p, where, name, "no such option");
    if (r->kind != OPTION_TEXT)
        return set(p, r, where, value);
    value = strdup(value);
    if (!value)
        return no_memory(p);
    (void)set(p, r, where, value);
    keep_text(p, r, texts, value);
    return OPTIONS_GO;
}

static int parse_file(const option_program *p, const char *file, char **texts)
{
    char line[1024], where[300];
    int rc = OPTIONS_GO;
    FILE *f = fopen(file, "r");
    if (!f)
        return wrong(p, "cannot read ", file, strerror(errno));
    for (unsigned n = 1; rc == OPTIONS_GO && fgets(line, sizeof line, f); n++) {
        snprintf(where, sizeof where, "%.200s line %u: ", file, n);
        if (!strchr(line, '\n') && !feof(f))
            rc = wrong(p, where, "", "the line is too long");
        else
            rc = parse_line(p, where, line, texts);
    }
    if (rc == OPTIONS_GO && ferror(f))
        rc = wrong(p, "cannot read ", file, strerror(errno));
    fclose(f);
    return rc;
}

/* One argument, and the next one when it needs a value.  *file gets --config's; texts: the
   argument is applied over those of the file, NULL: only looked at. */
static int parse_argument(const option_program *p, int argc, char **argv, int *i, const char **file,
                          char **texts)
{
    int rc;
    const char *arg = argv[*i], *name = arg + 2, *value = NULL;
    size_t len;
    const option_row *r;
    bool config;
    if (strncmp(arg, "--", 2) || !*name)
        return wrong(p, "", arg, "options begin with --");
    len = strcspn(name, "=");
    config = len == 6 && !memcmp(name, "config", 6);
    r = find(p, name, len);
    if (!r && !config)
        return wrong(p, "", arg, "no such option");
    if (name[len] == '=') {
        value = name + len + 1;
    } else if (config || r->kind != OPTION_FLAG) {
        if (*i + 1 >= argc)
            return wrong(p, "", arg, "requires a value");
        value = argv[++*i];
    }
    if (config)
        *file = value;
    if (config || !texts)
        return OPTIONS_GO;
    rc = set(p, r, "--", value);
    if (r->kind == OPTION_TEXT)
        keep_text(p, r, texts, NULL);
    return rc;
}

int options_parse(const option_program *p, int argc, char **argv)
{
    const char *file = NULL;
    char **texts;
    int rc = OPTIONS_GO;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            show_help(p);
            return OPTIONS_SHOWN;
        }
        if (!strcmp(argv[i], "--version")) {
            printf("%s %s\n", p->name, p->version);
            return OPTIONS_SHOWN;
        }
    }
    for (int i = 1; i < argc; i++) {
        if (parse_argument(p, argc, argv, &i, &file, NULL) != OPTIONS_GO)
            return OPTIONS_WRONG;
    }
    texts = calloc(p->count ? p->count : 1, sizeof *texts);
    if (!texts)
        return no_memory(p);
    if (file) /* first, so that the command line wins */
        rc = parse_file(p, file, texts);
    for (int i = 1; rc == OPTIONS_GO && i < argc; i++)
        rc = parse_argument(p, argc, argv, &i, &file, texts);
    free(texts);
    return rc;
}
