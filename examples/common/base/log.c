/* log.c - see log.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* program_invocation_short_name */
#endif
#include "log.h"
#include "json.h"
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TIME_BYTES = 40, ESCAPED = 6 /* bytes of JSON that a byte may become */ };

static const char *name; /* NULL: as it was called */
static log_level shown = LOG_AT_INFO;
static log_format written_as = LOG_TEXT;
static atomic_ullong dropped; /* messages, since one was written */
static atomic_bool torn;      /* a part of a line was taken: the next begins with its end */

static const char *const levels[] = { "error", "warning", "note", "info", "debug" };
static const char priorities[] = { '3', '4', '5', '6', '7' }; /* of syslog(3) */

void log_name(const char *program)
{
    name = program;
}

/* Is standard error the stream that systemd connected to the journal? */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char text[64];
    struct stat st;
    if (!stream || fstat(STDERR_FILENO, &st))
        return false;
    snprintf(text, sizeof text, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return !strcmp(stream, text);
}

void log_set(log_level most, log_format format)
{
    shown = most;
    written_as = format != LOG_AUTO ? format : is_journal() ? LOG_JOURNAL : LOG_TEXT;
}

bool log_shows(log_level level)
{
    return level <= shown;
}

static void print_time(char out[TIME_BYTES])
{
    char seconds[24] = "";
    struct timespec t;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (gmtime_r(&t.tv_sec, &tm))
        (void)strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, TIME_BYTES, "%s.%03uZ", seconds, (unsigned)(t.tv_nsec / 1000000));
}

static size_t print_json(log_level level, const char *program, const char *text, char *line,
                         size_t room)
{
    json_writer w;
    char at[TIME_BYTES];
    print_time(at);
    json_to_text(&w, line, room);
    json_put_open(&w, NULL, '{');
    json_put_text(&w, "time", at);
    json_put_text(&w, "level", levels[level]);
    json_put_text(&w, "program", program);
    json_put_text(&w, "text", text);
    json_put_close(&w, '}');
    return w.len;
}

static size_t print_text(log_level level, const char *program, const char *text, char *line,
                         size_t room)
{
    char before[TIME_BYTES + 8] = "";
    if (written_as == LOG_JOURNAL) {
        snprintf(before, sizeof before, "<%c>", priorities[level]);
    } else if (written_as == LOG_TIME) {
        print_time(before);
        strcat(before, " ");
    }
    return (size_t)snprintf(line, room, "%s%s: %s", before, program, text);
}

/* One line, in one call; false: it was not taken, or not all of it. */
static bool put(log_level level, const char *text)
{
    char line[LOG_LINE_BYTES * ESCAPED + 256], *at = line;
    const char *program = name ? name : program_invocation_short_name;
    ssize_t n;
    size_t len;
    if (atomic_exchange(&torn, false))
        *at++ = '\n';
    len = (written_as == LOG_JSON ? print_json : print_text)(level, program, text, at,
                                                             sizeof line - 2);
    len = (len < sizeof line - 2 ? len : sizeof line - 3) + (size_t)(at - line);
    line[len++] = '\n';
    do
        n = write(STDERR_FILENO, line, len);
    while (n < 0 && errno == EINTR);
    atomic_store(&torn, n > 0 ? (size_t)n < len : at > line);
    return n == (ssize_t)len;
}

static void note_dropped(void)
{
    char text[120];
    unsigned long long lost = atomic_exchange(&dropped, 0);
    if (!lost)
        return;
    snprintf(text, sizeof text,
             "%llu messages before this one are lost: standard error accepted no more", lost);
    if (!put(LOG_AT_WARNING, text))
        (void)atomic_fetch_add(&dropped, lost);
}

__attribute__((format(printf, 2, 0))) static void message(log_level level, const char *format,
                                                          va_list args)
{
    char text[LOG_LINE_BYTES];
    int error = errno, len;
    if (!log_shows(level))
        return;
    len = vsnprintf(text, sizeof text, format, args);
    if (len < 0)
        snprintf(text, sizeof text, "%s", format);
    else if ((size_t)len >= sizeof text)
        memcpy(text + sizeof text - 4, "...", 4);
    text_clean(text);
    if (put(level, text))
        note_dropped();
    else
        (void)atomic_fetch_add(&dropped, 1);
    errno = error;
}

#define LOG_FUNCTION(function, level)                                                              \
    void function(const char *format, ...)                                                         \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, format);                                                                    \
        message(level, format, args);                                                              \
        va_end(args);                                                                              \
    }
LOG_FUNCTION(log_error, LOG_AT_ERROR)
LOG_FUNCTION(log_warning, LOG_AT_WARNING)
LOG_FUNCTION(log_note, LOG_AT_NOTE)
LOG_FUNCTION(log_info, LOG_AT_INFO)
LOG_FUNCTION(log_debug, LOG_AT_DEBUG)
