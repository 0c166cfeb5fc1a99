/* options.c - see options.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Rows   2 Values   3 Help   4 The file   5 Arguments   6 Verbs */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "options.h"
#include "log.h"
#include "status.h"
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ==== 1  Rows ================================================================================= */

enum { GIVEN_MAX = 160 };

static struct {
    unsigned quiet, verbose, log;
    const char *config;
    const void *given[GIVEN_MAX]; /* targets */
    unsigned given_count;
    const char *name; /* of the command, in messages */
    const char *took; /* an option whose value may be left out, and was not */
} state;

static const option_row standard[] = {
    { "quiet", NULL, "no routine messages; twice: warnings and errors; three times: errors only",
      OPTION_COUNT, &state.quiet, 0, 0 },
    { "verbose", NULL, "more messages", OPTION_COUNT, &state.verbose, 0, 0 },
    { "log", LOG_FORMATS, "format of messages (auto: the journal's under systemd, else text)",
      OPTION_CHOICE, &state.log, 0, 0 },
};
static const option_row config_row = {
    "config", "FILE", "read options from FILE, lines of `name = value`", OPTION_TEXT, &state.config,
    0,        0
};

/* Of a program that is one command. */
static option_verb only_verb(const option_program *p)
{
    option_verb v;
    memset(&v, 0, sizeof v);
    v.name = v.words = "";
    v.rows[0].row = p->rows;
    v.rows[0].count = p->count;
    return v;
}

/* All rows of a command, numbered: its own, those of every program, --config; NULL behind them. */
static const option_row *row_at(const option_verb *v, unsigned i)
{
    const unsigned common = sizeof standard / sizeof *standard;
    for (unsigned g = 0; g < OPTION_GROUPS; g++) {
        if (i < v->rows[g].count)
            return &v->rows[g].row[i];
        i -= v->rows[g].count;
    }
    if (i < common)
        return &standard[i];
    return i == common && !*v->name ? &config_row : NULL;
}

static unsigned row_count(const option_verb *v)
{
    unsigned n = 0;
    while (row_at(v, n))
        n++;
    return n;
}

static const char *row_name(const void *user, unsigned i)
{
    const option_row *r = row_at(user, i);
    return r ? r->name : NULL;
}

/* As row_name(), of the options that have no row as well. */
static const char *option_name(const void *user, unsigned i)
{
    static const char *const without[] = { "help", "version" };
    unsigned rows = row_count(user);
    if (i < rows)
        return row_name(user, i);
    return i - rows < sizeof without / sizeof *without ? without[i - rows] : NULL;
}

/* The number of the row, -1: none. */
static int find(const option_verb *v, const char *name, size_t len)
{
    const option_row *r;
    for (unsigned i = 0; (r = row_at(v, i)) != NULL; i++) {
        if (strlen(r->name) == len && !memcmp(r->name, name, len))
            return (int)i;
    }
    return -1;
}

bool options_given(const void *target)
{
    for (unsigned i = 0; i < state.given_count; i++) {
        if (state.given[i] == target)
            return true;
    }
    return false;
}

static void note_given(const void *target)
{
    if (!options_given(target) && state.given_count < GIVEN_MAX)
        state.given[state.given_count++] = target;
}

/* ==== 2  Values =============================================================================== */

int options_wrong(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_error("%s; see %s --help", text, state.name);
    return PROGRAM_USAGE;
}

static int wrong(const char *where, const char *name, const char *what)
{
    (void)options_wrong("%s%.300s: %s", where, name, what);
    return OPTIONS_WRONG;
}

static int no_memory(void)
{
    log_error("out of memory");
    return OPTIONS_MEMORY;
}

/* `name` is in no row; dashes: those before it, on the command line. */
static int unknown(const option_verb *v, const char *where, const char *dashes, const char *name)
{
    const char *(*names)(const void *, unsigned) = *dashes ? option_name : row_name;
    int meant = text_nearest(name, names, v);
    if (meant >= 0)
        log_error("%sunknown option %s%.300s: did you mean %s%s? See %s --help", where, dashes,
                  name, *dashes ? "--" : "", names(v, (unsigned)meant), state.name);
    else
        (void)options_wrong("%sunknown option %s%.300s", where, dashes, name);
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

bool options_number(const char *text, uint64_t max, uint64_t *out)
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

bool options_seconds(const char *text, uint64_t *out)
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
    if (!options_number(digits, most / scale, out))
        return false;
    *out *= scale;
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

static int set_number(const option_row *r, const char *where, const char *text)
{
    char what[160];
    uint64_t v = 0;
    bool good = r->kind == OPTION_SECONDS
                    ? options_seconds(text, &v)
                    : (r->kind == OPTION_SIZE ||
                       strspn(text, "0123456789xXabcdefABCDEF") == strlen(text)) &&
                          options_size(text, &v);
    if (good && v >= r->min && v <= r->max) {
        *(uint64_t *)r->target = v;
        return OPTIONS_GO;
    }
    if (r->kind == OPTION_SECONDS)
        snprintf(what, sizeof what, "must be a time such as 90s, 30m, 2h or 7d, not '%.30s'", text);
    else
        snprintf(what, sizeof what, "must be a number from %llu to %llu, not '%.30s'",
                 (unsigned long long)r->min, (unsigned long long)r->max, text);
    return wrong(where, r->name, what);
}

static int set_real(const option_row *r, const char *where, const char *text)
{
    const double min = (double)r->min / 1000, max = (double)r->max / 1000;
    char what[160], *end;
    double v = strtod(text, &end);
    if (end != text && !*end && v >= min && v <= max) {
        *(double *)r->target = v;
        return OPTIONS_GO;
    }
    snprintf(what, sizeof what, "must be a number from %.10g to %.10g, not '%.30s'", min, max,
             text);
    return wrong(where, r->name, what);
}

static int set_text(const option_row *r, const char *where, const char *text)
{
    char what[100];
    size_t len = strlen(text);
    if (len < r->min) {
        return wrong(where, r->name, "must not be empty");
    } else if (r->max && len > r->max) {
        snprintf(what, sizeof what, "must be at most %llu characters", (unsigned long long)r->max);
        return wrong(where, r->name, what);
    }
    *(const char **)r->target = text;
    return OPTIONS_GO;
}

static int add_text(const option_row *r, const char *where, const char *text)
{
    option_list *list = r->target;
    if (list->count == OPTION_LIST_MAX)
        return wrong(where, r->name, "is given too often");
    list->text[list->count++] = text;
    return OPTIONS_GO;
}

/* text NULL: none was given. */
static int set(const option_row *r, const char *where, const char *text)
{
    char what[240];
    int index;
    note_given(r->target);
    switch (r->kind) {
    case OPTION_FLAG:
    case OPTION_COUNT:
        index = choice("no|yes", text ? text : "yes");
        if (index < 0)
            return wrong(where, r->name, "must be yes or no");
        if (r->kind == OPTION_FLAG)
            *(bool *)r->target = index == 1;
        else
            *(unsigned *)r->target = index ? *(unsigned *)r->target + 1 : 0;
        return OPTIONS_GO;
    case OPTION_TEXT:
        return set_text(r, where, text);
    case OPTION_CHOICE:
        index = choice(r->value, text);
        if (index < 0) {
            snprintf(what, sizeof what, "must be one of %.180s, not '%.30s'", r->value, text);
            return wrong(where, r->name, what);
        }
        *(unsigned *)r->target = (unsigned)index;
        return OPTIONS_GO;
    case OPTION_REAL:
        return set_real(r, where, text);
    case OPTION_LIST:
        return add_text(r, where, text);
    default:
        return text ? set_number(r, where, text) : OPTIONS_GO;
    }
}

static bool is_optional(const option_row *r)
{
    return r->value && r->value[0] == '[';
}

/* ==== 3  Help ================================================================================= */

enum { LEFT = 24, RIGHT = 79 };

/* Words from column `at` on, the lines that follow indented by `indent`. */
static void print_wrapped(const char *text, unsigned at, unsigned indent)
{
    bool first = true;
    while (*text) {
        size_t len = strcspn(text, " \n");
        if (!first && at + 1 + len > RIGHT) {
            printf("\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        at += (unsigned)printf("%s%.*s", first ? "" : " ", (int)len, text);
        first = false;
        text += len;
        if (*text == '\n') {
            printf("\n%*s", text[1] ? (int)indent : 0, "");
            at = indent;
            first = true;
        }
        text += *text != '\0';
    }
}

static void print_row(const char *left, const char *help)
{
    if (strlen(left) > LEFT)
        printf("  %s\n  %-*s  ", left, LEFT, "");
    else
        printf("  %-*s  ", LEFT, left);
    print_wrapped(help, LEFT + 4, LEFT + 4);
    putchar('\n');
}

static void show_heading(const char *const *headings, const option_row *r, bool first)
{
    for (; headings && *headings; headings += 2) {
        if (!strcmp(headings[0], r->name))
            printf("%s%s:\n", first ? "" : "\n", headings[1]);
    }
}

static void show_rows(const option_verb *v, const char *const *headings)
{
    const option_row *r;
    for (unsigned i = 0; (r = row_at(v, i)) != NULL; i++) {
        char left[100];
        bool letter = r->kind == OPTION_COUNT;
        show_heading(headings, r, i == 0);
        snprintf(left, sizeof left, "%s%.1s%s--%s%s%s", letter ? "-" : "", letter ? r->name : "",
                 letter ? ", " : "", r->name, r->value ? " " : "", r->value ? r->value : "");
        print_row(left, r->help);
    }
    print_row("-h, --help", "this text");
}

static void show_help(const option_program *p)
{
    option_verb v = only_verb(p);
    printf("%s - %s\n\nusage: %s [OPTIONS]\n\n", p->name, p->purpose, p->name);
    show_rows(&v, p->headings);
    print_row("--version", "version and build");
    if (p->tail)
        printf("\n%s", p->tail);
}

static void show_usage(const option_program *p, const option_verb *v, const char *before)
{
    printf("%s%s %s%s%s [OPTIONS]\n", before, p->name, v->name, *v->words ? " " : "", v->words);
}

static void show_verb(const option_program *p, const option_verb *v)
{
    const char *tail = v->tail ? v->tail : p->tail;
    show_usage(p, v, "usage: ");
    putchar('\n');
    print_wrapped(v->about ? v->about : v->brief, 0, 0);
    printf("%s", v->about && v->about[strlen(v->about) - 1] == '\n' ? "\n" : "\n\n");
    show_rows(v, NULL);
    if (tail)
        printf("\n%s", tail);
}

/* All commands, numbered; NULL behind them. */
static const option_verb *verb_of(const option_program *p, unsigned i)
{
    for (unsigned g = 0; g < p->verb_groups; g++) {
        if (i < p->verbs[g]->count)
            return &p->verbs[g]->verb[i];
        i -= p->verbs[g]->count;
    }
    return NULL;
}

static void show_brief(const option_verb *v, FILE *out)
{
    char left[100];
    snprintf(left, sizeof left, "%s%s%s", v->name, *v->words ? " " : "", v->words);
    if (strlen(left) > 38)
        fprintf(out, "  %s\n  %-38s ", left, "");
    else
        fprintf(out, "  %-38s ", left);
    fprintf(out, "%s\n", v->brief);
}

static void show_verbs(const option_program *p, FILE *out)
{
    fprintf(out, "%s - %s\n\nusage: %s COMMAND ...\n       %s --help | --version\n", p->name,
            p->purpose, p->name, p->name);
    for (unsigned g = 0; g < p->verb_groups; g++) {
        if (p->verbs[g]->heading)
            fprintf(out, "\n%s:\n", p->verbs[g]->heading);
        for (unsigned i = 0; i < p->verbs[g]->count; i++)
            show_brief(&p->verbs[g]->verb[i], out);
    }
    if (p->tail)
        fprintf(out, "\n%s", p->tail);
}

static void list_rows(const option_verb *v, const char *name, FILE *out)
{
    static const char *const kinds[] = { "flag", "count", "number", "size", "seconds",
                                         "real", "text",  "choice", "list" };
    const option_row *r;
    for (unsigned i = 0; (r = row_at(v, i)) != NULL; i++) {
        bool every = *name && r >= standard && r < standard + sizeof standard / sizeof *standard;
        if (!every || !strcmp(name, "*"))
            fprintf(out, "option\t%s\t--%s\t%s\t%s\t%s\n", name, r->name, r->value ? r->value : "",
                    kinds[r->kind], r->help);
    }
}

void options_list(const option_program *p, FILE *out)
{
    option_verb all = only_verb(p);
    const option_verb *v;
    for (unsigned i = 0; (v = verb_of(p, i)) != NULL; i++) {
        fprintf(out, "verb\t%s\t%s\t%s\n", v->name, v->words, v->brief);
        list_rows(v, v->name, out);
    }
    if (p->verbs)
        all.name = "*";
    list_rows(&all, all.name, out);
    fprintf(out, "option\t%s\t--help\t\tflag\tthis text\n", all.name);
    fprintf(out, "option\t\t--version\t\tflag\tversion and build\n");
    fprintf(out, "option\t\t--help-options\t\tflag\tthis list\n");
}

/* ==== 4  The file ============================================================================= */

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
static void keep_text(char **texts, int row, char *text)
{
    free(texts[row]);
    texts[row] = text;
}

static int parse_line(const option_verb *v, const char *where, char *line, char **texts)
{
    char *name, *value, *equals = strchr(line, '=');
    const option_row *r;
    int row, rc;
    if (!equals)
        return wrong(where, line, "a line must be `name = value`");
    *equals = '\0';
    name = trim(line);
    value = trim(equals + 1);
    row = find(v, name, strlen(name));
    r = row < 0 ? NULL : row_at(v, (unsigned)row);
    if (!r || r == &config_row)
        return unknown(v, where, "", name);
    if (r->kind != OPTION_TEXT && r->kind != OPTION_LIST)
        return set(r, where, value);
    value = strdup(value);
    if (!value)
        return no_memory();
    rc = set(r, where, value);
    if (rc != OPTIONS_GO)
        free(value);
    else if (r->kind == OPTION_TEXT) /* else the list has it */
        keep_text(texts, row, value);
    return rc;
}

/* A section, until the next one or the end of the file. */
typedef struct section {
    const option_row *row; /* a list; NULL: none has begun */
    char where[300];
    char word[32], device[64], keys[2048];
    size_t len; /* of keys */
} section;

/* The line "[NAME WORD]", trimmed. */
static int begin_section(const option_verb *v, const char *where, char *line, section *s)
{
    size_t len = strlen(line);
    char *name, *word;
    int row;
    memset(s, 0, sizeof *s);
    snprintf(s->where, sizeof s->where, "%s", where);
    if (len < 2 || line[len - 1] != ']')
        return wrong(where, line, "a section must be `[name word]`");
    line[len - 1] = '\0';
    name = trim(line + 1);
    word = name + strcspn(name, " \t");
    row = find(v, name, (size_t)(word - name));
    s->row = row < 0 ? NULL : row_at(v, (unsigned)row);
    if (!s->row || s->row->kind != OPTION_LIST || !s->row->min)
        return wrong(where, name, "there is no such section");
    word = trim(word);
    if (!*word || strpbrk(word, ",= \t") || strlen(word) >= sizeof s->word)
        return wrong(where, name, "a section must be `[name word]`");
    memcpy(s->word, word, strlen(word));
    return OPTIONS_GO;
}

/* A line of it that is not empty, trimmed. */
static int section_line(const char *where, char *line, section *s)
{
    char *equals = strchr(line, '='), *name, *value;
    size_t room = sizeof s->keys - s->len;
    int put;
    if (!equals)
        return wrong(where, line, "a line must be `name = value`");
    *equals = '\0';
    name = trim(line);
    value = trim(equals + 1);
    if (!*name || !*value || strchr(name, ',') || strchr(value, ','))
        return wrong(where, name, "must have a name and a value, without a comma");
    if (!strcmp(name, "device")) {
        if (*s->device || strlen(value) >= sizeof s->device)
            return wrong(where, name, "must be given once, and be short");
        memcpy(s->device, value, strlen(value) + 1);
        return OPTIONS_GO;
    }
    put = snprintf(s->keys + s->len, room, ",%s=%s", name, value);
    if (put < 0 || (size_t)put >= room)
        return wrong(where, name, "the section is too long");
    s->len += (size_t)put;
    return OPTIONS_GO;
}

static int end_section(section *s)
{
    size_t bytes = sizeof s->word + sizeof s->device + sizeof s->keys;
    char *text;
    int rc;
    if (!s->row)
        return OPTIONS_GO;
    if (!*s->device)
        return wrong(s->where, s->row->name, "`device = ...` is missing");
    text = malloc(bytes);
    if (!text)
        return no_memory();
    snprintf(text, bytes, "%s=%s%s", s->word, s->device, s->keys);
    rc = set(s->row, s->where, text);
    if (rc != OPTIONS_GO)
        free(text);
    s->row = NULL;
    return rc;
}

static int file_line(const option_verb *v, const char *where, char *line, char **texts, section *s)
{
    char *text = trim(line);
    int rc;
    if (!*text || *text == '#')
        return OPTIONS_GO;
    if (*text != '[')
        return s->row ? section_line(where, text, s) : parse_line(v, where, text, texts);
    rc = end_section(s);
    return rc == OPTIONS_GO ? begin_section(v, where, text, s) : rc;
}

static int parse_file(const option_verb *v, const char *file, char **texts)
{
    char line[1024], where[300];
    section s = { 0 };
    int rc = OPTIONS_GO;
    FILE *f = fopen(file, "r");
    if (!f)
        return wrong("cannot read ", file, strerror(errno));
    for (unsigned n = 1; rc == OPTIONS_GO && fgets(line, sizeof line, f); n++) {
        snprintf(where, sizeof where, "%.200s line %u: ", file, n);
        if (!strchr(line, '\n') && !feof(f))
            rc = wrong(where, "", "the line is too long");
        else
            rc = file_line(v, where, line, texts, &s);
    }
    if (rc == OPTIONS_GO)
        rc = end_section(&s);
    if (rc == OPTIONS_GO && ferror(f))
        rc = wrong("cannot read ", file, strerror(errno));
    fclose(f);
    return rc;
}

/* ==== 5  Arguments ============================================================================ */

/* -q, -qq, -v */
static int parse_letters(const option_verb *v, const char *arg, bool apply)
{
    for (const char *c = arg + 1; *c; c++) {
        const option_row *r = *c == 'q' ? &standard[0] : *c == 'v' ? &standard[1] : NULL;
        if (!r)
            return unknown(v, "", "-", arg + 1);
        if (apply)
            (void)set(r, "", NULL);
    }
    return OPTIONS_GO;
}

/* A number of seconds and the like behind an option whose value may be left out. */
static bool is_number(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text);
}

/* The option argv[*i], and the next argument when it needs a value.  texts: it is applied over
   those of the file, NULL: only looked at. */
static int parse_option(const option_verb *v, int argc, char **argv, int *i, char **texts)
{
    const char *arg = argv[*i], *name = arg + 2, *value = NULL;
    char plain[64];
    size_t len;
    const option_row *r;
    int row, rc;
    if (arg[1] != '-')
        return parse_letters(v, arg, texts != NULL);
    len = strcspn(name, "=");
    row = find(v, name, len);
    if (row < 0) {
        snprintf(plain, sizeof plain, "%.*s", (int)(len < 63 ? len : 63), name);
        return unknown(v, "", "--", plain);
    }
    r = row_at(v, (unsigned)row);
    if (name[len] == '=') {
        value = name + len + 1;
    } else if (is_optional(r)) {
        value = *i + 1 < argc && is_number(argv[*i + 1]) ? argv[++*i] : NULL;
        state.took = value ? r->name : state.took;
    } else if (r->kind != OPTION_FLAG && r->kind != OPTION_COUNT) {
        if (*i + 1 >= argc)
            return wrong("", arg, "requires a value");
        value = argv[++*i];
    }
    if (r == &config_row)
        state.config = value;
    if (r == &config_row || !texts)
        return OPTIONS_GO;
    rc = set(r, "--", value);
    if (r->kind == OPTION_TEXT)
        keep_text(texts, row, NULL);
    return rc;
}

static bool is_option(const char *arg)
{
    return arg[0] == '-' && arg[1];
}

/* Options of argv; its words come first, from argv[1] on, counted by *words.  texts as above. */
static int parse_arguments(const option_verb *v, int argc, char **argv, unsigned *words,
                           char **texts)
{
    bool options = true;
    int rc = OPTIONS_GO;
    *words = 0;
    for (int i = 1; rc == OPTIONS_GO && i < argc; i++) {
        if (options && !strcmp(argv[i], "--"))
            options = false;
        else if (options && is_option(argv[i]))
            rc = parse_option(v, argc, argv, &i, texts);
        else if (texts)
            argv[1 + (*words)++] = argv[i]; /* that place was read before */
        else if (++*words > v->most)
            rc = wrong("", argv[i], v->most ? "one argument too many" : "unexpected argument");
    }
    return rc;
}

static int parse(const option_verb *v, int argc, char **argv, unsigned *words)
{
    char **texts;
    int level, rc = parse_arguments(v, argc, argv, words, NULL);
    if (rc != OPTIONS_GO)
        return rc;
    if (*words < v->least) {
        (void)options_wrong("%s is required%s%s%s", v->words,
                            state.took ? " (the number behind --" : "",
                            state.took ? state.took : "", state.took ? " is its value)" : "");
        return OPTIONS_WRONG;
    }
    texts = calloc(row_count(v), sizeof *texts);
    if (!texts)
        return no_memory();
    if (state.config) /* first, so that the command line wins */
        rc = parse_file(v, state.config, texts);
    if (rc == OPTIONS_GO)
        rc = parse_arguments(v, argc, argv, words, texts);
    free(texts);
    level = LOG_AT_INFO + (int)state.verbose - (int)state.quiet;
    log_set(level < LOG_AT_ERROR   ? LOG_AT_ERROR
            : level > LOG_AT_DEBUG ? LOG_AT_DEBUG
                                   : (log_level)level,
            (log_format)state.log);
    if (state.config)
        log_debug("options were read from %s", state.config);
    return rc;
}

int options_status(int rc)
{
    return rc == OPTIONS_GO       ? PROGRAM_GO
           : rc == OPTIONS_SHOWN  ? PROGRAM_GOOD
           : rc == OPTIONS_MEMORY ? PROGRAM_SYSTEM
                                  : PROGRAM_USAGE;
}

/* ==== 6  Verbs ================================================================================ */

/* Is `words` (count of them) what the name begins with?  *used: how many of them. */
static bool is_verb(const option_verb *v, char **words, int count, int *used)
{
    size_t len = strcspn(v->name, " ");
    *used = 0;
    if (count < 1 || strlen(words[0]) != len || strncmp(words[0], v->name, len))
        return false;
    *used = 1;
    if (!v->name[len])
        return true;
    *used += count > 1 && !strcmp(words[1], v->name + len + 1);
    return *used == 2;
}

static const char *verb_name(const void *user, unsigned i)
{
    const option_verb *v = verb_of(user, i);
    return v ? v->name : NULL;
}

/* The first word of a command's name, valid until the next call. */
static const char *verb_first(const void *user, unsigned i)
{
    static char word[48];
    const option_verb *v = verb_of(user, i);
    snprintf(word, sizeof word, "%.*s", v ? (int)strcspn(v->name, " ") : 0, v ? v->name : "");
    return v ? word : NULL;
}

/* What the words (count of them, 1 or 2) were probably meant to be; "" when nothing is near.
   group: the first word is right. */
static void meant_verb(const option_program *p, char **words, int count, bool group, char *out,
                       size_t cap)
{
    char name[100];
    const option_verb *v;
    int near = -1;
    if (count > 1) {
        snprintf(name, sizeof name, "%.48s %.48s", words[0], words[1]);
        near = text_nearest(name, verb_name, p);
    }
    if (near >= 0) {
        snprintf(out, cap, "%s", verb_name(p, (unsigned)near));
        return;
    }
    *out = '\0';
    for (unsigned i = 0; (v = verb_of(p, i)) != NULL && !*out; i++) {
        const char *second = strchr(v->name, ' ');
        if (second && !strcmp(words[0], second + 1)) /* `extend` of `lease extend` */
            snprintf(out, cap, "%s", v->name);
        else if (count > 1 && !strcmp(words[1], v->name)) /* `lease list` for `list leases` */
            snprintf(out, cap, "%s%s%s", v->name, *v->words ? " " : "", v->words);
    }
    near = *out || group ? -1 : text_nearest(words[0], verb_first, p);
    if (near >= 0)
        snprintf(out, cap, "%s", verb_first(p, (unsigned)near));
}

/* `dxpu lease`, `dxpu lease --help`, `dxpu lease elephant`: the commands whose first word is
   words[0]. */
static int show_group(const option_program *p, char **words, int count, bool help)
{
    const char *word = words[0];
    const char *before = "usage: ";
    char text[200] = "";
    const option_verb *v;
    for (unsigned i = 0; (v = verb_of(p, i)) != NULL; i++) {
        size_t len = strcspn(v->name, " "), at = strlen(text);
        if (strlen(word) != len || strncmp(v->name, word, len))
            continue;
        if (help)
            show_usage(p, v, before);
        before = "       ";
        snprintf(text + at, sizeof text - at, "%s%s", at ? ", " : "", v->name + len + 1);
    }
    if (help)
        printf("\nSee '%s %s COMMAND --help' for details.\n", p->name, word);
    else if (count > 1)
        (void)options_wrong("no command '%s %.48s': its commands are %s", word, words[1], text);
    else
        (void)options_wrong("%s: one of its commands is required: %s", word, text);
    return help ? OPTIONS_SHOWN : OPTIONS_WRONG;
}

/* Beside those that all have, which are those of `any`. */
static bool some_verb_has(const option_program *p, const option_verb *any, const char *arg)
{
    const size_t len = strcspn(arg, "=");
    const option_verb *v;
    if (len < 2 || strncmp(arg, "--", 2) || find(any, arg + 2, len - 2) >= 0)
        return false;
    for (unsigned i = 0; (v = verb_of(p, i)) != NULL; i++) {
        if (find(v, arg + 2, len - 2) >= 0)
            return true;
    }
    return false;
}

/* The command is missing.  An option that no command has is more worth saying. */
static int show_missing(const option_program *p, int argc, char **argv, bool help)
{
    option_verb any = only_verb(p);
    unsigned words;
    int rc = OPTIONS_GO;
    any.name = "*"; /* without --config */
    if (!help && argc > 1 && !some_verb_has(p, &any, argv[1]))
        rc = parse_arguments(&any, argc, argv, &words, NULL);
    if (rc != OPTIONS_GO)
        return rc;
    show_verbs(p, help ? stdout : stderr);
    return help ? OPTIONS_SHOWN : OPTIONS_WRONG;
}

/* argv[at] names no command. */
static int no_verb(const option_program *p, int argc, char **argv, int at, bool help)
{
    char meant[200];
    const option_verb *v;
    bool group = false;
    int used, count = at + 1 < argc && !is_option(argv[at + 1]) ? 2 : 1;
    if (at >= argc)
        return show_missing(p, argc, argv, help);
    for (unsigned i = 0; (v = verb_of(p, i)) != NULL; i++) {
        (void)is_verb(v, argv + at, 1, &used);
        group |= used == 1;
    }
    if (group && count == 1)
        return show_group(p, argv + at, count, help);
    meant_verb(p, argv + at, count, group, meant, sizeof meant);
    if (*meant)
        log_error("no command '%.48s%s%.48s': did you mean '%s'? See %s --help", argv[at],
                  group ? " " : "", group ? argv[at + 1] : "", meant, p->name);
    else if (group)
        return show_group(p, argv + at, count, help);
    else
        (void)options_wrong("no command '%.48s'", argv[at]);
    return OPTIONS_WRONG;
}

/* Where the command's name begins: options that every command has may be before it. */
static int verb_at(int argc, char **argv)
{
    int i = 1;
    while (i < argc && is_option(argv[i]) && strcmp(argv[i], "--"))
        i += strcmp(argv[i], "--log") ? 1 : 2;
    return i < argc ? i : argc;
}

static int parse_verb(const option_program *p, int argc, char **argv, bool help, option_call *call)
{
    static char name[48];
    unsigned words = 0;
    int at = verb_at(argc, argv), used = 0;
    if (at < argc && !strcmp(argv[at], "help")) {
        help = true;
        at++;
    }
    for (unsigned i = 0; (call->verb = verb_of(p, i)) != NULL; i++) {
        if (is_verb(call->verb, argv + at, argc - at, &used))
            break;
    }
    if (!call->verb)
        return no_verb(p, argc, argv, at, help);
    if (help) {
        show_verb(p, call->verb);
        return OPTIONS_SHOWN;
    }
    snprintf(name, sizeof name, "%s %s", p->name, call->verb->name);
    state.name = name;
    log_name(name);
    memmove(argv + at, argv + at + used, (size_t)(argc - at - used) * sizeof *argv);
    call->words = argv + 1;
    used = parse(call->verb, argc - used, argv, &words);
    call->count = words;
    return used;
}

/* -h, also among other letters: -vh */
static bool is_help(const char *arg)
{
    size_t len = strlen(arg);
    return len > 1 && *arg == '-' && strspn(arg + 1, "hqv") == len - 1 && strchr(arg, 'h');
}

/* Was it asked for before --?  What else is there need not be right. */
static bool asks(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (!strcmp(argv[i], name))
            return true;
    }
    return false;
}

static bool asks_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (is_help(argv[i]))
            return true;
    }
    return asks(argc, argv, "--help");
}

int options_parse(const option_program *p, int argc, char **argv, option_call *call)
{
    option_verb only = only_verb(p);
    unsigned words;
    bool help = asks_help(argc, argv);
    memset(&state, 0, sizeof state);
    state.name = p->name;
    log_name(p->name);
    log_set(LOG_AT_INFO, LOG_AUTO);
    if (!help && asks(argc, argv, "--version")) {
        printf("%s %s\n", p->name, p->version);
        return OPTIONS_SHOWN;
    }
    if (!help && asks(argc, argv, "--help-options")) {
        options_list(p, stdout);
        return OPTIONS_SHOWN;
    }
    if (p->verbs)
        return parse_verb(p, argc, argv, help, call);
    if (help) {
        show_help(p);
        return OPTIONS_SHOWN;
    }
    return parse(&only, argc, argv, &words);
}
