/* audit_command.c - dxpu audit: is the log of leases, keys and refusals as it was written?
   SPDX-License-Identifier: MIT */
#include "command.h"

#include "audit.h"
#include "log.h"
#include "print_json.h"

#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

typedef struct audit_found {
    int64_t lines;         /* -1: line is wrong, and why */
    uint64_t line, begins; /* begins: the first line's number */
    char why[160], first[AUDIT_HASH_TEXT_BYTES], last[AUDIT_HASH_TEXT_BYTES];
} audit_found;

static void print_object(const char *file, const audit_found *f)
{
    json_t *j = f->lines >= 0
                    ? json_pack("{s:s, s:b, s:I, s:I, s:s, s:s}", "file", file, "good", 1, "lines",
                                (json_int_t)f->lines, "begins", (json_int_t)f->begins,
                                "first_follows", f->first, "last", f->last)
                    : json_pack("{s:s, s:b, s:I, s:s}", "file", file, "good", 0, "line",
                                (json_int_t)f->line, "why", f->why);
    print_json(j, 0);
}

/* A file without faults; follows: the one before it was given, and this one begins there. */
static void print_good(const char *file, const audit_found *f, bool follows)
{
    if (!f->lines) {
        printf("%s: empty: no line, so nothing that could be checked\n", file);
        return;
    }
    if (f->begins != 1 && !follows)
        printf("%s: begins with line %llu, which follows %s: correct only after the file whose "
               "last line that is; else lines are missing\n",
               file, (unsigned long long)f->begins, f->first);
    printf("%s: %lld lines, as they were written; the last is %s\n", file, (long long)f->lines,
           f->last);
}

static bool json;

/* One file, which is to follow `before` ("": any).  An exit status. */
static int check(const char *file, char before[AUDIT_HASH_TEXT_BYTES])
{
    audit_found f;
    f.lines = audit_check(file, &f.line, f.why, &f.begins, f.first, f.last);
    if (f.lines < 0 && !f.line) {
        log_error("%s: %s", file, f.why);
        return EXIT_USAGE;
    }
    if (f.lines > 0 && before[0] && strcmp(f.first, before) != 0) {
        f.lines = -1;
        f.line = 1;
        snprintf(f.why, sizeof f.why, "does not follow the last line of the file before it");
    }
    if (json)
        print_object(file, &f);
    else if (f.lines >= 0)
        print_good(file, &f, before[0] != 0);
    else
        printf("%s: line %llu %s\n", file, (unsigned long long)f.line, f.why);
    if (f.lines > 0)
        memcpy(before, f.last, sizeof f.last);
    return f.lines < 0 ? EXIT_REFUSED : EXIT_ALL;
}

static int run(const option_call *c)
{
    char before[AUDIT_HASH_TEXT_BYTES] = "";
    int worst = EXIT_ALL;
    if (sodium_init() < 0)
        out_of_memory();
    for (unsigned i = 0; i < c->count; i++) {
        int status = check(c->words[i], before);
        worst = status > worst ? status : worst;
    }
    return worst;
}

static const option_row rows[] = {
    { "json", NULL, "one JSON object for each file", OPTION_FLAG, &json, 0, 0 },
};

static const option_verb verb = {
    "audit",
    "FILE...",
    "verify audit logs",
    "Verifies logs that dxpu-manager wrote with --audit: each line carries the hash of the line "
    "before it. Give consecutive files (the log was moved away, and SIGHUP sent) in order; a file "
    "that does not begin with line 1 is reported. Lines cut off at the end, and a changed last "
    "line, cannot be detected without the hash of the last line, or of a later one, which is "
    "printed here and in the manager's statistics.",
    "Exit status: 0 unchanged, 1 lines were changed or are missing, 2 wrong\n"
    "usage or a file that cannot be read.\n",
    1,
    UINT_MAX,
    { OPTION_ROWS(rows), { NULL, 0 } },
    run
};

const option_verbs audit_verbs = { "Logs written with --audit", &verb, 1 };
