/* audit.h - an append-only log of what matters later: leases, keys, refusals
   SPDX-License-Identifier: MIT

   A line is one JSON object.  It carries the hash of the line before it, so that a line that was
   changed, taken out or put in is seen by audit_check(), up to the last one, whose hash has to be
   kept elsewhere (statistics show it) to see that lines are missing at the end.  S-130 to S-133. */
#ifndef AUDIT_H_INCLUDED
#define AUDIT_H_INCLUDED

#include <stdbool.h>
#include <stdint.h>

#define AUDIT_OPTION(file)                                                                         \
    {                                                                                              \
        "audit", "FILE", "append leases, keys and refusals to it, as JSON lines", OPTION_TEXT,     \
            &(file), 0, 0                                                                          \
    }

typedef struct audit audit;

enum { AUDIT_HASH_BYTES = 32, AUDIT_HASH_TEXT_BYTES = 65 };

typedef struct audit_field { /* of a line; text NULL: number */
    const char *name, *text;
    uint64_t number;
} audit_field;

/* Open for appending; made with mode 600 when there is none.  Where the last line is not whole
   (the machine was lost), that is taken away.  One program at a time has it.  NULL after a
   message with the remedy. */
audit *audit_open(const char *program, const char *file);
void audit_close(audit *a); /* NULL is allowed */
/* Append a line: what happened ("lease.created"), and fields of other names than n, unix_ms,
   program, what and before.  Text is escaped.  A NULL audit ignores it.  What cannot be written
   is counted, reported once on stderr, and noted in the log when it can be written again. */
void audit_write(audit *a, const char *what, const audit_field *fields, unsigned count);
/* The file was moved away: begin a new one, whose first line follows the last of the old one.
   False after a message: the old one stays. */
bool audit_reopen(audit *a);
uint64_t audit_lines(const audit *a); /* written here */
uint64_t audit_lost(const audit *a);
/* Of the last line, as text. */
const char *audit_head(const audit *a, char out[AUDIT_HASH_TEXT_BYTES]);

/* Check a file.  The number of its lines, or -1 with what is wrong in why and the line in *line
   (0: the file cannot be read).  Each NULL when not wanted: begins, the number of the first line
   (0: none, or a wrong file); first, what that line says was before it; last, the last one's. */
int64_t audit_check(const char *file, uint64_t *line, char why[160], uint64_t *begins,
                    char first[AUDIT_HASH_TEXT_BYTES], char last[AUDIT_HASH_TEXT_BYTES]);

#endif /* AUDIT_H_INCLUDED */
