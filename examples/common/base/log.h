/* log.h - messages of the programs, a line each on standard error
   SPDX-License-Identifier: MIT

   A message says what failed and why, then the remedy: log_error("cannot open %s: %s", ...) prints
   `dxpu-box: cannot open disk.img: Permission denied`.  It has no end of line.  It is cleaned
   (text.h), so whatever a peer or a guest had printed is one line and commands no terminal.

   Each line is one write(2) that is never repeated: what is not read is dropped, and the number of
   messages that were is noted with the next one that is taken.  errno stays.  Any thread may log;
   what log_name() and log_set() change is set before there are threads. */
#ifndef LOG_H_INCLUDED
#define LOG_H_INCLUDED

#include <stdbool.h>

typedef enum log_level {
    LOG_AT_ERROR,   /* something that was asked for is not done */
    LOG_AT_WARNING, /* it goes on, and somebody should look */
    LOG_AT_NOTE,    /* once in a run: keys, ports, what was read again */
    LOG_AT_INFO,    /* each lease, each event; the least that is shown without -q */
    LOG_AT_DEBUG    /* -v */
} log_level;

typedef enum log_format {
    LOG_AUTO, /* journal where standard error is the journal's, else text */
    LOG_TEXT,
    LOG_TIME,   /* text behind the time in UTC */
    LOG_JSON,   /* {"time":"...","level":"error","program":"dxpu-box","text":"..."} */
    LOG_JOURNAL /* text behind <3> to <7>: sd-daemon(3) */
} log_format;
#define LOG_FORMATS "auto|text|time|json|journal"

enum { LOG_LINE_BYTES = 4096 }; /* a longer line is cut, and ends with "..." */

/* What each message begins with; kept, not copied.  NULL: as the program was called. */
void log_name(const char *program);
void log_set(log_level most, log_format format);
bool log_shows(log_level level);

/* A document such as statistics is printed whatever level is shown: under LOG_JSON one JSON object,
   as the member `name` of a line that has this name as its text, too; else lines, which for the
   journal have the priority of LOG_AT_INFO.  One write(2), as of a message. */
bool log_is_json(void); /* which of the two log_document() must be given */
void log_document(const char *name, const char *document);

#if defined(__GNUC__)
#define LOG_PRINTF __attribute__((format(printf, 1, 2)))
#else
#define LOG_PRINTF
#endif
LOG_PRINTF void log_error(const char *format, ...);
LOG_PRINTF void log_warning(const char *format, ...);
LOG_PRINTF void log_note(const char *format, ...);
LOG_PRINTF void log_info(const char *format, ...);
LOG_PRINTF void log_debug(const char *format, ...);

#endif /* LOG_H_INCLUDED */
