/* state.c - see state.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* flock() */
#endif
#include "state.h"
#include "log.h"

#include "durable.h"
#include "dxpu_control.h"
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_PATH_BYTES = 1024, LINE_BYTES = 160, MEDIUM_DIGITS = 16 };

#define KEY_WORD " key="

/* One line of the file. */
typedef struct lease {
    unsigned slot, node, host_slot;
    unsigned long long epoch;
    uint8_t phase;
    uint64_t medium; /* 0: none */
    state_key key;
} lease;

/* The whole file: the loops that change it do not look into each other's tables. */
static struct {
    pthread_mutex_t lock;
    const char *file;
    lease *lines; /* of the box's slots in their order, then those that this run does not have */
    size_t count;
    int only; /* of FILE.lock: the file itself is replaced, and a lock on it with it */
} kept = { PTHREAD_MUTEX_INITIALIZER, NULL, NULL, 0, -1 };

static int complain(const char *what, const char *file)
{
    log_error("cannot %s --state %s: %s; name a file in a directory that exists and is "
              "writable, with room on its disk",
              what, file, strerror(errno));
    return PROGRAM_SYSTEM;
}

static int keep_other(const lease *l)
{
    lease *more = realloc(kept.lines, (kept.count + 1) * sizeof *more);
    if (!more)
        return -1;
    kept.lines = more;
    more[kept.count++] = *l;
    return 0;
}

/* A lease's key, or nothing; then the line ends. */
static bool read_key(const char *rest, state_key *key)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES] = "";
    size_t len = strncmp(rest, KEY_WORD, strlen(KEY_WORD)) ? 0 : sizeof text - 1;
    if (len) {
        rest += strlen(KEY_WORD);
        snprintf(text, sizeof text, "%s", rest);
        key->known = dxpu_sodium_key_parse(text, key->key);
        if (!key->known)
            return false;
        rest += len;
    }
    return !*rest || !strcmp(rest, "\n");
}

/* A medium's number and a key, after a blank each, or neither; then the line ends. */
static bool read_rest(const char *rest, uint64_t *medium, state_key *key)
{
    size_t len = *rest == ' ' ? strspn(rest + 1, "0123456789abcdef") : 0;
    if (len == MEDIUM_DIGITS) {
        *medium = strtoull(rest + 1, NULL, 16);
        rest += 1 + len;
        if (!*medium)
            return false;
    }
    return read_key(rest, key);
}

/* The state's word, "" is empty, and what follows it; false: it is none. */
static bool read_phase(const char *word, uint8_t *phase, uint64_t *medium, state_key *key)
{
    size_t len = strcspn(word, " \n");
    *phase = DXPU_CONTROL_SLOT_EMPTY;
    *medium = 0;
    memset(key, 0, sizeof *key);
    if (!len)
        return !*word || !strcmp(word, "\n");
    for (uint8_t i = DXPU_CONTROL_SLOT_HELD; i <= DXPU_CONTROL_SLOT_UNWIPED; i++) {
        if (strlen(dxpu_control_state_name(i)) == len &&
            !strncmp(dxpu_control_state_name(i), word, len))
            *phase = i;
    }
    return *phase != DXPU_CONTROL_SLOT_EMPTY && read_rest(word + len, medium, key);
}

/* False when the line is not ours. */
static bool read_line(const char *line, lease *l)
{
    int end = -1;
    return sscanf(line, "%u %llu %u %u %n", &l->slot, &l->epoch, &l->node, &l->host_slot, &end) ==
               4 &&
           end >= 0 && read_phase(line + end, &l->phase, &l->medium, &l->key) &&
           !strchr(line, '-') && l->slot >= 1 && l->slot <= 0xffffu && l->host_slot <= 0xffffu;
}

static int take_line(const lease *l, const dxpu_box_table *t, uint8_t *phase, uint64_t *medium,
                     state_key *key)
{
    dxpu_box_entry *e = dxpu_box_slot(t, (uint16_t)l->slot);
    if (!e)
        return keep_other(l);
    e->epoch_seen = l->epoch;
    e->host_node = l->node; /* whose lease it is: no other has the same epoch */
    e->host_slot = (uint16_t)l->host_slot;
    if (phase) {
        phase[l->slot - 1] = l->phase;
        medium[l->slot - 1] = l->medium;
        key[l->slot - 1] = l->key;
    }
    return 0;
}

/* Two boxes that write one file would forget each other's leases. */
static int lock_file(const char *file)
{
    char path[STATE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s.lock", file) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return complain("lock", file);
    }
    kept.only = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (kept.only < 0)
        return complain("lock", file);
    if (!flock(kept.only, LOCK_EX | LOCK_NB))
        return 0;
    if (errno != EWOULDBLOCK)
        return complain("lock", file);
    log_error("--state %s: another box has it; give each box its own file", file);
    return PROGRAM_SYSTEM;
}

/* A pipe or a terminal would hold the box up.  NULL after an error. */
static FILE *open_regular(const char *file)
{
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    FILE *f = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !f) {
        (void)close(fd);
        errno = EINVAL; /* is no regular file */
    }
    return f;
}

static int read_file(const char *file, const dxpu_box_table *t, uint8_t *phase, uint64_t *medium,
                     state_key *key)
{
    char line[LINE_BYTES];
    lease l;
    int rc = 0;
    FILE *f = open_regular(file);
    if (!f)
        return errno == ENOENT ? 0 : complain("read", file);
    for (unsigned n = 1; !rc && fgets(line, sizeof line, f); n++) {
        if (!read_line(line, &l)) {
            log_error(
                "--state %s line %u is not `slot epoch host-node host-slot` in "
                "numbers, and perhaps a state, its medium and a key; mend the line, or remove the "
                "file when every "
                "older lease is over",
                file, n);
            rc = PROGRAM_DAMAGED;
        } else if (!phase && l.phase != DXPU_CONTROL_SLOT_EMPTY) {
            log_error("--state %s line %u is a manager's: give --manager, or another file "
                      "when that one is to know nothing of this box any more",
                      file, n);
            rc = PROGRAM_USAGE;
        } else if (take_line(&l, t, phase, medium, key)) {
            rc = complain("keep", file);
        }
    }
    if (!rc && ferror(f))
        rc = complain("read", file);
    fclose(f);
    return rc;
}

static void print_line(FILE *f, const lease *l)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    bool word = l->phase != DXPU_CONTROL_SLOT_EMPTY;
    fprintf(f, "%u %llu %u %u%s%s", l->slot, l->epoch, l->node, l->host_slot, word ? " " : "",
            word ? dxpu_control_state_name(l->phase) : "");
    if (word && l->medium)
        fprintf(f, " %016llx", (unsigned long long)l->medium);
    if (word && l->key.known)
        fprintf(f, KEY_WORD "%s", dxpu_sodium_key_print(l->key.key, text));
    fputc('\n', f);
}

/* As durable_replace(). */
static int put_file(void)
{
    char *text = NULL;
    size_t len = 0;
    int rc = -1;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return -1;
    for (size_t i = 0; i < kept.count; i++)
        print_line(f, &kept.lines[i]);
    if (!fclose(f))
        rc = durable_replace(kept.file, text, len);
    free(text);
    return rc;
}

static lease line_of(const dxpu_box_entry *e, uint8_t phase, uint64_t medium, const state_key *key)
{
    lease l = { e->slot, e->host_node, e->host_slot, e->epoch_seen, phase, medium, *key };
    return l;
}

int state_open(const char *file, const dxpu_box_table *t, uint8_t *phase, uint64_t *medium,
               state_key *key)
{
    static const state_key none;
    int rc;
    kept.file = file;
    kept.lines = calloc(t->count, sizeof *kept.lines);
    if (!kept.lines)
        return complain("keep", file);
    kept.count = t->count;
    rc = lock_file(file);
    if (!rc)
        rc = read_file(file, t, phase, medium, key);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < t->count; i++)
        kept.lines[i] = line_of(&t->entries[i], phase ? phase[i] : DXPU_CONTROL_SLOT_EMPTY,
                                phase ? medium[i] : 0, phase ? &key[i] : &none);
    return 0;
}

void state_note(const dxpu_box_entry *e, uint8_t phase, uint64_t medium, const state_key *key)
{
    kept.lines[e->slot - 1] = line_of(e, phase, medium, key);
}

int state_begin(void)
{
    return put_file() ? complain("write", kept.file) : 0;
}

int state_keep(const dxpu_box_entry *e, uint8_t phase, uint64_t medium, const state_key *key)
{
    lease *line = &kept.lines[e->slot - 1], was;
    int put, rc = 0;
    pthread_mutex_lock(&kept.lock);
    was = *line;
    *line = line_of(e, phase, medium, key);
    put = put_file();
    if (put) {
        rc = complain("write", kept.file);
        *line = was;
    }
    if (put > 0)
        (void)put_file(); /* a later start finds what was before, if this time it is durable */
    pthread_mutex_unlock(&kept.lock);
    return rc;
}

void state_close(void)
{
    free(kept.lines);
    kept.lines = NULL;
    kept.count = 0;
    if (kept.only >= 0)
        (void)close(kept.only);
    kept.only = -1;
}
