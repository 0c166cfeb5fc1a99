/* options.h - one table of options serves the command line, the configuration file and --help
   SPDX-License-Identifier: MIT */
#ifndef OPTIONS_H_INCLUDED
#define OPTIONS_H_INCLUDED

#include <stdbool.h>
#include <stdint.h>

/* what a value is, and the type its target points to */
enum {
    OPTION_FLAG,   /* bool         given: true; in a file: yes or no */
    OPTION_NUMBER, /* uint64_t     min..max */
    OPTION_SIZE,   /* uint64_t     min..max bytes; K, M, G may follow */
    OPTION_TEXT,   /* const char * */
    OPTION_CHOICE  /* unsigned     index into `value`, which reads "one|two|three" */
};

typedef struct option_row {
    const char *name;  /* "box": --box on the command line, "box = ..." in a file */
    const char *value; /* "ADDR:PORT", NULL for a flag */
    const char *help;
    unsigned kind;
    void *target;
    uint64_t min, max;
} option_row;

typedef struct option_program {
    const char *name;    /* "dxpu-host" */
    const char *purpose; /* a sentence */
    const char *version; /* what --version prints */
    const option_row *rows;
    unsigned count;
    const char *tail; /* printed below the options by --help */
} option_program;

enum { OPTIONS_GO = 0, OPTIONS_SHOWN = 1, OPTIONS_WRONG = -1, OPTIONS_MEMORY = -2 };

/* Fill the targets.  --help, --version and --config FILE are understood beside the rows; the
   command line goes before the file.  OPTIONS_GO, OPTIONS_SHOWN (help or version was printed: exit
   0), or after saying so on stderr OPTIONS_WRONG (exit 2) or OPTIONS_MEMORY (there is none: exit
   3). */
int options_parse(const option_program *p, int argc, char **argv);

/* Size in bytes of a text such as 64K; false when it is none. */
bool options_size(const char *text, uint64_t *out);

#endif /* OPTIONS_H_INCLUDED */
