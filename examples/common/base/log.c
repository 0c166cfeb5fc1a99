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

static const char *caller(void)
{
    return name ? name : program_invocation_short_name;
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

/* An object that stays open. */
static void begin_json(json_writer *w, log_level level, const char *program, const char *text)
{
    char at[TIME_BYTES];
    print_time(at);
    json_put_open(w, NULL, '{');
    json_put_text(w, "time", at);
    json_put_text(w, "level", levels[level]);
    json_put_text(w, "program", program);
    json_put_text(w, "text", text);
}

static size_t print_json(log_level level, const char *program, const char *text, char *line,
                         size_t room)
{
    json_writer w;
    json_to_text(&w, line, room);
    begin_json(&w, level, program, text);
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

/* In one call; line[0] is the end of a line before it, or left out.  false: it was not taken, or
   not all of it. */
static bool put(const char *line, size_t len)
{
    bool before = atomic_exchange(&torn, false);
    ssize_t n;
    line += !before;
    len -= !before;
    do
        n = write(STDERR_FILENO, line, len);
    while (n < 0 && errno == EINTR);
    atomic_store(&torn, n > 0 ? (size_t)n < len : before);
    return n == (ssize_t)len;
}

/* One line. */
static bool put_message(log_level level, const char *text)
{
    char line[LOG_LINE_BYTES * ESCAPED + 256];
    size_t len = (written_as == LOG_JSON ? print_json : print_text)(level, caller(), text, line + 1,
                                                                    sizeof line - 2);
    line[0] = '\n';
    len = 1 + (len < sizeof line - 2 ? len : sizeof line - 3);
    line[len++] = '\n';
    return put(line, len);
}

static void note_dropped(void)
{
    char text[120];
    unsigned long long lost = atomic_exchange(&dropped, 0);
    if (!lost)
        return;
    snprintf(text, sizeof text,
             "%llu messages before this one are lost: standard error accepted no more", lost);
    if (!put_message(LOG_AT_WARNING, text))
        (void)atomic_fetch_add(&dropped, lost);
}

static void count(bool taken)
{
    if (taken)
        note_dropped();
    else
        (void)atomic_fetch_add(&dropped, 1);
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
    count(put_message(level, text));
    errno = error;
}

bool log_is_json(void)
{
    return written_as == LOG_JSON;
}

static void print_document(FILE *out, const char *title, const char *document)
{
    json_writer w;
    if (written_as == LOG_JSON) {
        json_to_file(&w, out);
        begin_json(&w, LOG_AT_INFO, caller(), title);
        json_put_raw(&w, title, document, strcspn(document, "\n"));
        json_put_close(&w, '}');
        fputc('\n', out);
        return;
    }
    while (*document) {
        size_t len = strcspn(document, "\n");
        if (written_as == LOG_JOURNAL)
            fprintf(out, "<%c>", priorities[LOG_AT_INFO]);
        fprintf(out, "%.*s\n", (int)len, document);
        document += len + (document[len] != '\0');
    }
}

void log_document(const char *title, const char *document)
{
    char *text = NULL;
    size_t len = 0;
    int error = errno;
    FILE *out = open_memstream(&text, &len);
    if (out) {
        fputc('\n', out);
        print_document(out, title, document);
    }
    if (out && !fclose(out))
        count(put(text, len));
    else
        log_error("cannot print %s: out of memory", title);
    free(text);
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
