/* options.h - one table of options serves the command line, the configuration file, --help and
   shell completion
   SPDX-License-Identifier: MIT

   Conventions of every program, by getopt_long's: --name VALUE or --name=VALUE; a flag may be given
   =yes or =no; of an option that is repeated the last one counts, of a list all; -- ends the
   options; options and words may be mixed.  Beside its own rows every program understands
     -h, --help          also behind a verb: that verb's
     --version
     -q, --quiet         once: no messages of routine, twice: warnings and errors, thrice: errors
     -v, --verbose       more messages
     --log FORMAT        auto, text, time, json or journal: log.h
     --config FILE       where it has no verbs
     --help-options      all verbs and options, for scripts: see options_list().
   Names cannot be abbreviated; for an unknown one the probable name is suggested. */
#ifndef OPTIONS_H_INCLUDED
#define OPTIONS_H_INCLUDED

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* what a value is, and the type its target points to */
enum {
    OPTION_FLAG,    /* bool         given: true; in a file: yes or no */
    OPTION_COUNT,   /* unsigned     how many times it was given */
    OPTION_NUMBER,  /* uint64_t     min..max */
    OPTION_SIZE,    /* uint64_t     min..max bytes; K, M, G may follow */
    OPTION_SECONDS, /* uint64_t     min..max seconds, 90, 90s, 30m, 2h, 7d or 1w */
    OPTION_REAL,    /* double       min..max thousandths */
    OPTION_TEXT,    /* const char * min..max bytes; max 0: any number */
    OPTION_CHOICE,  /* unsigned     index into `value`, which reads "one|two|three" */
    OPTION_LIST /* option_list  a text each time that it is given, in a file and behind it; min 1:
                       in a file also as a section.  [slot 3] and lines `device = disk`, `size = 1G`
                       are `slot = 3=disk,size=1G` */
};

enum { OPTION_LIST_MAX = 1024 };

typedef struct option_list {
    const char *text[OPTION_LIST_MAX];
    unsigned count;
} option_list;

typedef struct option_row {
    const char *name;  /* "box": --box on the command line, "box = ..." in a file */
    const char *value; /* "ADDR:PORT", NULL for a flag; "[S]": a number that may be left out */
    const char *help;
    unsigned kind;
    void *target;
    uint64_t min, max;
} option_row;

typedef struct option_rows {
    const option_row *row;
    unsigned count;
} option_rows;
#define OPTION_ROWS(array)                                                                         \
    {                                                                                              \
        array, sizeof(array) / sizeof *(array)                                                     \
    }

enum { OPTION_GROUPS = 3 };

typedef struct option_call option_call;

/* One command of a program. */
typedef struct option_verb {
    const char *name;     /* "lease create"; "": of a program that is one command */
    const char *words;    /* "HOST SLOT", as the usage shows them; "" for none */
    const char *brief;    /* one line, without a full stop */
    const char *about;    /* paragraphs of its own --help, wrapped as they are; NULL: the brief */
    const char *tail;     /* printed below the options; NULL: the program's */
    unsigned least, most; /* words */
    option_rows rows[OPTION_GROUPS];     /* its own, then those that it shares */
    int (*run)(const option_call *call); /* the exit status; options_parse() does not call it */
} option_verb;

/* Commands that --help shows below one heading. */
typedef struct option_verbs {
    const char *heading; /* NULL: those before go on */
    const option_verb *verb;
    unsigned count;
} option_verbs;

typedef struct option_program {
    const char *name;    /* "dxpu-host" */
    const char *purpose; /* a sentence */
    const char *version; /* what --version prints */
    const option_row *rows;
    unsigned count;
    const char *tail;                 /* printed below the options by --help */
    const option_verbs *const *verbs; /* NULL: it is one command, with the rows above */
    unsigned verb_groups;
    const char *const *headings; /* in --help: a row's name and the heading above it, and so on;
                                    NULL ends them; NULL: none */
} option_program;

/* The command that was given.  words is a part of argv, in its order. */
struct option_call {
    const option_verb *verb; /* messages begin with its name from now on: "dxpu lease create: " */
    char **words;
    unsigned count;
};

enum { OPTIONS_GO = 0, OPTIONS_SHOWN = 1, OPTIONS_WRONG = -1, OPTIONS_MEMORY = -2 };

/* Fills the targets; sets the name, level and format of the log.  The command line overrides the
   file.  call: the verb given; NULL for a program without verbs.  Returns OPTIONS_GO, OPTIONS_SHOWN
   (help or version was printed: exit 0), or after a message OPTIONS_WRONG (exit 2) or
   OPTIONS_MEMORY (out of memory: exit 3).  argv's order changes. */
int options_parse(const option_program *p, int argc, char **argv, option_call *call);
/* The exit status of its result, PROGRAM_GO of OPTIONS_GO (status.h). */
int options_status(int rc);

/* True when the row with this target was given, on the command line or in the file of the last
   options_parse(). */
bool options_given(const void *target);

/* Reports wrong usage that the rows cannot express, with a hint to --help.  Returns PROGRAM_USAGE
   (status.h). */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
int options_wrong(const char *format, ...);

/* One line for each verb and each option, fields with tabs between them:
     verb    NAME  WORDS  BRIEF
     option  VERB  --NAME  VALUE  KIND  HELP
   VERB is "" for options of the program itself, and "*" for those of each of its verbs.  KIND is
   flag, count, number, size, seconds, real, text, choice or list; the VALUE of a choice reads
   one|two|three, one that begins with FILE names a file, one in [] may be left out. */
void options_list(const option_program *p, FILE *out);

/* Size in bytes of a text such as 64K; false when it is invalid. */
bool options_size(const char *text, uint64_t *out);
/* Decimal digits alone, at most `max`. */
bool options_number(const char *text, uint64_t max, uint64_t *out);
/* Seconds of 90, 90s, 30m, 2h, 7d or 1w; false: it is neither, or more than 100 years. */
bool options_seconds(const char *text, uint64_t *out);

#endif /* OPTIONS_H_INCLUDED */
