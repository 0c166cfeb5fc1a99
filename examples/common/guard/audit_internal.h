/* audit_internal.h - the log and its lines: of audit.c and its fuzz target
   SPDX-License-Identifier: MIT */
#ifndef AUDIT_INTERNAL_H_INCLUDED
#define AUDIT_INTERNAL_H_INCLUDED

#include "audit.h"

#include <stdio.h>
#include <sys/types.h>

enum { AUDIT_LINE_BYTES = 8192 };

struct audit {
    const char *program, *file;
    int fd;
    uint64_t number; /* of the last line */
    off_t end;       /* of the file, as it was left */
    size_t last;     /* bytes of its last line, with the end of line; 0: the file is empty */
    uint64_t written, lost, told_lost;
    bool failing;
    uint8_t head[AUDIT_HASH_BYTES]; /* of the last line, which may be another file's */
};

/* Of a line without its end. */
void audit_hash(const char *line, size_t bytes, uint8_t out[AUDIT_HASH_BYTES]);
/* Read all lines.  NULL, or what is wrong with *line.  *whole: where the last whole line ends, of
   *last bytes; *torn: something without an end follows. */
const char *audit_follow(FILE *f, uint64_t *line, uint8_t first[AUDIT_HASH_BYTES],
                         uint8_t head[AUDIT_HASH_BYTES], uint64_t *number, off_t *whole,
                         size_t *last, bool *torn);
/* A line without its end; how many bytes. */
size_t audit_compose(const audit *a, const char *what, const audit_field *fields, unsigned count,
                     char line[AUDIT_LINE_BYTES]);

#endif /* AUDIT_INTERNAL_H_INCLUDED */
