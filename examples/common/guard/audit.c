/* audit.c - see audit.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "audit_internal.h"
#include "json.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void audit_hash(const char *line, size_t bytes, uint8_t out[AUDIT_HASH_BYTES])
{
    (void)crypto_generichash(out, AUDIT_HASH_BYTES, (const uint8_t *)line, bytes, NULL, 0);
}

static const char *hash_text(const uint8_t h[AUDIT_HASH_BYTES], char out[AUDIT_HASH_TEXT_BYTES])
{
    return sodium_bin2hex(out, AUDIT_HASH_TEXT_BYTES, h, AUDIT_HASH_BYTES);
}

static bool hash_of_text(const char *text, uint8_t out[AUDIT_HASH_BYTES])
{
    size_t bytes;
    return text && !sodium_hex2bin(out, AUDIT_HASH_BYTES, text, strlen(text), NULL, &bytes, NULL) &&
           bytes == AUDIT_HASH_BYTES;
}

/* ==== Reading ================================================================================= */

/* The next line without its end; -1: no more, -2: longer than any of ours, -3: no end. */
static long next_line(FILE *f, char line[AUDIT_LINE_BYTES])
{
    size_t bytes;
    if (!fgets(line, AUDIT_LINE_BYTES, f))
        return -1;
    bytes = strlen(line);
    if (!bytes || line[bytes - 1] != '\n')
        return feof(f) ? -3 : -2;
    line[--bytes] = 0;
    return (long)bytes;
}

/* What a line says of itself; false: it is not ours. */
static bool read_line(const char *line, uint64_t *number, uint8_t before[AUDIT_HASH_BYTES])
{
    json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    const json_t *n = json_object_get(j, "n");
    bool good = json_is_integer(n) && json_integer_value(n) > 0 &&
                hash_of_text(json_string_value(json_object_get(j, "before")), before);
    *number = good ? (uint64_t)json_integer_value(n) : 0;
    json_decref(j);
    return good;
}

const char *audit_follow(FILE *f, uint64_t *line, uint8_t first[AUDIT_HASH_BYTES],
                         uint8_t head[AUDIT_HASH_BYTES], uint64_t *number, off_t *whole,
                         size_t *last, bool *torn)
{
    char text[AUDIT_LINE_BYTES];
    uint8_t before[AUDIT_HASH_BYTES];
    long bytes;
    *whole = 0;
    *last = 0;
    for (*line = 0; (bytes = next_line(f, text)) != -1; *whole = ftello(f)) {
        uint64_t n;
        ++*line;
        if (bytes == -3) {
            *torn = true;
            --*line;
            return NULL;
        }
        if (bytes < 0 || !read_line(text, &n, before))
            return "is not a line of this log";
        if (*line == 1)
            memcpy(first, before, AUDIT_HASH_BYTES);
        else if (n != *number + 1)
            return "is not the next number: lines are missing, or were put in";
        else if (sodium_memcmp(before, head, AUDIT_HASH_BYTES))
            return "does not follow the line before it: that one was changed";
        *number = n;
        *last = (size_t)bytes + 1;
        audit_hash(text, (size_t)bytes, head);
    }
    return ferror(f) ? "cannot be read" : NULL;
}

int64_t audit_check(const char *file, uint64_t *line, char why[160], uint64_t *begins,
                    char first[AUDIT_HASH_TEXT_BYTES], char last[AUDIT_HASH_TEXT_BYTES])
{
    uint8_t begin[AUDIT_HASH_BYTES] = { 0 }, head[AUDIT_HASH_BYTES] = { 0 };
    uint64_t number = 0;
    bool torn = false;
    off_t whole;
    size_t bytes;
    const char *wrong;
    FILE *f = fopen(file, "re");
    *line = 0;
    if (!f) {
        snprintf(why, 160, "%s", strerror(errno));
        return -1;
    }
    wrong = audit_follow(f, line, begin, head, &number, &whole, &bytes, &torn);
    fclose(f);
    if (!wrong && torn) {
        ++*line;
        wrong = "is incomplete: the program was interrupted while writing";
    }
    snprintf(why, 160, "%s", wrong ? wrong : "");
    if (begins)
        *begins = wrong || !*line ? 0 : number - *line + 1;
    if (first)
        hash_text(begin, first);
    if (last)
        hash_text(head, last);
    return wrong ? -1 : (int64_t)*line;
}

/* ==== Writing ================================================================================= */

/* Where a file that is there goes on; a line that was cut off as it was written goes. */
static int resume(audit *a, int fd)
{
    uint8_t first[AUDIT_HASH_BYTES];
    uint64_t line = 0;
    bool torn = false;
    const char *wrong;
    FILE *f = fdopen(fd, "re");
    if (!f) {
        close(fd);
        return -1;
    }
    wrong = audit_follow(f, &line, first, a->head, &a->number, &a->end, &a->last, &torn);
    fclose(f);
    if (!wrong && torn && ftruncate(a->fd, a->end))
        wrong = "is followed by an incomplete one, which cannot be removed";
    if (!wrong)
        return 0;
    log_error("--audit %s: line %llu %s; nothing is appended to such a file: keep it, and name "
              "another",
              a->file, (unsigned long long)line, wrong);
    return -1;
}

/* To append, and to look at the last line.  A pipe or a terminal would hold the program up. */
static int open_file(audit *a)
{
    const int how = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct stat is;
    int fd = open(a->file, how, 0600);
    if (fd < 0 || fstat(fd, &is)) {
        log_error("--audit %s: %s", a->file, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (!S_ISREG(is.st_mode)) {
        log_error("--audit %s: is not a regular file", a->file);
        close(fd);
        return -1;
    }
    return fd;
}

/* Two that append, each behind what it has written itself, would break the chain.  The lock ends
   with the descriptor, so with the program in any case. */
static bool lock(const audit *a, int fd)
{
    if (!flock(fd, LOCK_EX | LOCK_NB))
        return true;
    log_error("--audit %s: %s", a->file,
              errno == EWOULDBLOCK ? "another program writes to it; name another file, or end that"
                                   : strerror(errno));
    return false;
}

audit *audit_open(const char *program, const char *file)
{
    audit *a = calloc(1, sizeof *a);
    int old;
    if (!a || sodium_init() < 0) {
        free(a);
        log_error("--audit: out of memory");
        return NULL;
    }
    a->program = program;
    a->file = file;
    a->fd = open_file(a);
    old = a->fd >= 0 ? open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (old < 0 && a->fd >= 0)
        log_error("--audit %s: %s", file, strerror(errno));
    if (old >= 0 && !lock(a, a->fd)) {
        close(old);
        old = -1;
    }
    if (old < 0 || resume(a, old)) {
        audit_close(a);
        return NULL;
    }
    return a;
}

void audit_close(audit *a)
{
    if (a && a->fd >= 0)
        close(a->fd);
    free(a);
}

bool audit_reopen(audit *a)
{
    int fd = a ? open_file(a) : -1;
    struct stat old, is;
    if (!a || fd < 0)
        return !a;
    if (!fstat(a->fd, &old) && !fstat(fd, &is) && old.st_dev == is.st_dev &&
        old.st_ino == is.st_ino) {
        close(fd); /* it was not moved */
        return true;
    }
    if (!lock(a, fd)) {
        close(fd);
        return false;
    }
    if (fstat(fd, &is) || is.st_size) {
        log_error("--audit %s: is another file, and not empty: the old one stays in use", a->file);
        close(fd);
        return false;
    }
    close(a->fd);
    a->fd = fd;
    a->end = 0;
    a->last = 0;
    return true;
}

/* The length of the line; what is longer than `line` has room for is cut, and must not be used. */
size_t audit_compose(const audit *a, const char *what, const audit_field *fields, unsigned count,
                     char line[AUDIT_LINE_BYTES])
{
    char before[AUDIT_HASH_TEXT_BYTES];
    struct timespec t;
    json_writer w;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    json_to_text(&w, line, AUDIT_LINE_BYTES);
    json_put_open(&w, NULL, '{');
    json_put_number(&w, "n", a->number + 1);
    json_put_number(&w, "unix_ms", (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
    json_put_text(&w, "program", a->program);
    json_put_text(&w, "what", what);
    for (unsigned i = 0; i < count; i++) {
        if (fields[i].text)
            json_put_text(&w, fields[i].name, fields[i].text);
        else
            json_put_number(&w, fields[i].name, fields[i].number);
    }
    json_put_text(&w, "before", hash_text(a->head, before));
    json_put_close(&w, '}');
    return w.len;
}

/* S-132: does the file end with the last line, as it was written?  NULL, or what is wrong. */
static const char *look_at_end(const audit *a)
{
    static const char other[] =
        "its end was changed; nothing is appended to such a file: move it away, and send SIGHUP";
    char line[AUDIT_LINE_BYTES];
    uint8_t is[AUDIT_HASH_BYTES];
    struct stat st;
    if (fstat(a->fd, &st))
        return strerror(errno);
    if (st.st_size != a->end)
        return other;
    if (!a->last)
        return NULL;
    if (pread(a->fd, line, a->last, a->end - (off_t)a->last) != (ssize_t)a->last)
        return "its last line cannot be read";
    audit_hash(line, a->last - 1, is);
    return line[a->last - 1] != '\n' || sodium_memcmp(is, a->head, sizeof is) ? other : NULL;
}

/* One line with its end, whole or not at all.  What a failed write left and could not be removed
   is an incomplete end: see look_at_end().  NULL, or what is wrong. */
static const char *append(audit *a, char line[AUDIT_LINE_BYTES], size_t bytes)
{
    const char *wrong = look_at_end(a);
    ssize_t did;
    if (wrong || bytes + 1 >= AUDIT_LINE_BYTES)
        return wrong ? wrong : strerror(EMSGSIZE);
    line[bytes++] = '\n';
    do {
        did = write(a->fd, line, bytes);
    } while (did < 0 && errno == EINTR);
    if (did == (ssize_t)bytes) {
        a->end += did;
        a->last = bytes;
        return NULL;
    }
    wrong = strerror(did < 0 ? errno : ENOSPC);
    if (did > 0 && ftruncate(a->fd, a->end))
        wrong = "a partly written line cannot be removed";
    return wrong;
}

static const char *put(audit *a, const char *what, const audit_field *fields, unsigned count)
{
    char line[AUDIT_LINE_BYTES];
    size_t bytes = audit_compose(a, what, fields, count, line);
    const char *wrong = append(a, line, bytes);
    if (!wrong) {
        audit_hash(line, bytes, a->head);
        a->number++;
        a->written++;
    }
    return wrong;
}

void audit_write(audit *a, const char *what, const audit_field *fields, unsigned count)
{
    const char *wrong = NULL;
    if (!a)
        return;
    if (a->lost > a->told_lost) {
        audit_field lines = { "lines", NULL, a->lost - a->told_lost };
        wrong = put(a, "audit.lost", &lines, 1);
        a->told_lost = wrong ? a->told_lost : a->lost;
    }
    if (!wrong)
        wrong = put(a, what, fields, count);
    a->lost += wrong != NULL;
    if (wrong && !a->failing)
        log_error("--audit %s: %s: lines are lost until it can be written", a->file, wrong);
    a->failing = wrong != NULL;
}

uint64_t audit_lines(const audit *a)
{
    return a ? a->written : 0;
}

uint64_t audit_lost(const audit *a)
{
    return a ? a->lost : 0;
}

const char *audit_head(const audit *a, char out[AUDIT_HASH_TEXT_BYTES])
{
    return hash_text(a->head, out);
}
