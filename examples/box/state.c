/* state.c - see state.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Reading   2 The text   3 Writing   4 Life */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* flock() */
#endif
#include "state_internal.h"
#include "log.h"

#include "durable.h"
#include "dxpu_control.h"
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_PATH_BYTES = 1024, LINE_BYTES = 256, MEDIUM_DIGITS = 16, LEASE_DIGITS = 16 };

#define KEY_WORD   " key="
#define LEASE_WORD " lease="

/* Of one loop. */
typedef struct state_writer {
    job job; /* first */
    state_file *owner;
    unsigned loop;
    jobs jobs;
    state_result result;
    void *user;
    bool away; /* the job is; the loop's own */
} state_writer;

/* ==== 1  Reading ============================================================================== */

static int complain(const char *what, const char *file)
{
    log_error("cannot %s --state %s: %s; name a file in a directory that exists and is "
              "writable, with room on its disk",
              what, file, strerror(errno));
    return PROGRAM_SYSTEM;
}

/* Of a slot that this run does not have.  What was wiped may be another slot's data meanwhile. */
static int keep_other(state_file *s, const state_lease *l)
{
    state_line *more = realloc(s->lines, (s->count + 1) * sizeof *more);
    if (!more)
        return -1;
    s->lines = more;
    memset(&more[s->count], 0, sizeof *more);
    more[s->count].kept = *l;
    if (l->phase == DXPU_CONTROL_SLOT_WIPED)
        more[s->count].kept.phase = DXPU_CONTROL_SLOT_EMPTY;
    s->count++;
    return 0;
}

/* What a later version may add to a line, ` word=value` each, or nothing; then the line ends. */
static bool read_over(const char *rest)
{
    while (*rest == ' ' && strncmp(rest, KEY_WORD, strlen(KEY_WORD)) != 0 &&
           strncmp(rest, LEASE_WORD, strlen(LEASE_WORD)) != 0) {
        size_t word = strspn(rest + 1, "abcdefghijklmnopqrstuvwxyz_");
        const char *value = rest + 1 + word + 1;
        if (!word || value[-1] != '=' || !strcspn(value, " \n"))
            return false;
        rest = value + strcspn(value, " \n");
    }
    return !*rest || !strcmp(rest, "\n");
}

/* A lease's number and tenant, 16 digits each, or nothing; then the line ends. */
static bool read_lease(const char *rest, state_key *key)
{
    const char *digits = rest + strlen(LEASE_WORD);
    if (!strncmp(rest, LEASE_WORD, strlen(LEASE_WORD))) {
        if (strspn(digits, "0123456789abcdef") != LEASE_DIGITS || digits[LEASE_DIGITS] != ':' ||
            strspn(digits + LEASE_DIGITS + 1, "0123456789abcdef") != LEASE_DIGITS)
            return false;
        key->lease = strtoull(digits, NULL, 16);
        key->tenant = strtoull(digits + LEASE_DIGITS + 1, NULL, 16);
        if (!key->lease)
            return false;
        rest = digits + 2 * LEASE_DIGITS + 1;
    }
    return read_over(rest);
}

/* A lease's key, or nothing, and the lease. */
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
    return read_lease(rest, key);
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

/* The state's word, "" is empty, and what follows it; false: it is invalid. */
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
static bool read_line(const char *text, state_lease *l)
{
    int end = -1;
    return sscanf(text, "%u %llu %u %u %n", &l->slot, &l->epoch, &l->node, &l->host_slot, &end) ==
               4 &&
           end >= 0 && read_phase(text + end, &l->phase, &l->medium, &l->key) &&
           !strchr(text, '-') && l->slot >= 1 && l->slot <= 0xffffu && l->host_slot <= 0xffffu;
}

static int take_line(state_file *s, const state_lease *l, const dxpu_box_table *t, uint8_t *phase,
                     uint64_t *medium, state_key *key)
{
    dxpu_box_entry *e = dxpu_box_slot(t, (uint16_t)l->slot);
    if (!e)
        return keep_other(s, l);
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
static int lock_file(state_file *s)
{
    const char *file = s->file;
    char path[STATE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s.lock", file) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return complain("lock", file);
    }
    s->only = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->only < 0)
        return complain("lock", file);
    if (!flock(s->only, LOCK_EX | LOCK_NB))
        return 0;
    if (errno != EWOULDBLOCK)
        return complain("lock", file);
    log_error("--state %s: another box uses it; give each box its own file", file);
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
        errno = EINVAL; /* is not a regular file */
    }
    return f;
}

int state_read(state_file *s, const dxpu_box_table *t, uint8_t *phase, uint64_t *medium,
               state_key *key)
{
    const char *file = s->file;
    char text[LINE_BYTES];
    state_lease l;
    int rc = 0;
    FILE *f = open_regular(file);
    if (!f)
        return errno == ENOENT ? 0 : complain("read", file);
    for (unsigned n = 1; !rc && fgets(text, sizeof text, f); n++) {
        if (!read_line(text, &l)) {
            log_error("--state %s line %u is not `slot epoch host-node host-slot` in numbers, "
                      "optionally with a state, its medium, a key and a lease; correct the line, "
                      "or remove "
                      "the file if all older leases are over",
                      file, n);
            rc = PROGRAM_DAMAGED;
        } else if (!phase && l.phase != DXPU_CONTROL_SLOT_EMPTY) {
            log_error("--state %s line %u is a manager's: give --manager, or another file if that "
                      "manager no longer has this box",
                      file, n);
            rc = PROGRAM_USAGE;
        } else if (take_line(s, &l, t, phase, medium, key)) {
            rc = complain("keep", file);
        }
    }
    if (!rc && ferror(f))
        rc = complain("read", file);
    fclose(f);
    return rc;
}

/* ==== 2  The text ============================================================================= */

void state_print(FILE *f, const state_lease *l)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    bool word = l->phase != DXPU_CONTROL_SLOT_EMPTY;
    fprintf(f, "%u %llu %u %u%s%s", l->slot, l->epoch, l->node, l->host_slot, word ? " " : "",
            word ? dxpu_control_state_name(l->phase) : "");
    if (word && l->medium)
        fprintf(f, " %016llx", (unsigned long long)l->medium);
    if (word && l->key.known)
        fprintf(f, KEY_WORD "%s", dxpu_sodium_key_print(l->key.key, text));
    if (word && l->key.lease)
        fprintf(f, LEASE_WORD "%016llx:%016llx", (unsigned long long)l->key.lease,
                (unsigned long long)l->key.tenant);
    fputc('\n', f);
}

/* The file as it is to be, with requested changes or without; NULL: out of memory.  The lock is
   held. */
static char *print_file(state_file *s, bool wanted, size_t *len)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, len);
    for (size_t i = 0; f && i < s->count; i++) {
        state_line *l = &s->lines[i];
        l->written = wanted && l->state == WANTED;
        state_print(f, l->written ? &l->wanted : &l->kept);
    }
    if (f && !fclose(f))
        return text;
    free(text);
    return NULL;
}

/* As durable_replace(). */
static int put_file(const state_file *s, char *text, size_t len)
{
    int rc = text ? durable_replace(s->file, text, len) : -1;
    free(text);
    return rc;
}

state_lease state_lease_of(const dxpu_box_entry *e, uint8_t phase, uint64_t medium,
                           const state_key *key)
{
    state_lease l = { e->slot, e->host_node, e->host_slot, e->epoch_seen, phase, medium, *key };
    return l;
}

/* ==== 3  Writing ============================================================================== */

/* Is anything wanted by this loop?  The lock is held. */
static bool any_wanted(const state_file *s, unsigned loop)
{
    bool any = false;
    for (size_t i = loop; i < s->slots; i += s->loops)
        any |= s->lines[i].state == WANTED;
    return any;
}

/* What the write that is over has made of the lines.  Of one that failed, other loops' lines are
   tried again by their own jobs.  The lock is held. */
static void settle(state_file *s, unsigned loop, bool kept)
{
    for (size_t i = 0; i < s->slots; i++) {
        state_line *l = &s->lines[i];
        if (!l->written || (!kept && i % s->loops != loop))
            continue;
        l->state = kept ? KEPT : REFUSED;
        if (kept)
            l->kept = l->wanted;
    }
}

/* job.run: write the requested changes, unless another loop's write took it. */
static void write_wanted(job *j)
{
    const state_writer *w = (const state_writer *)j;
    state_file *s = w->owner;
    char *text = NULL;
    size_t len = 0;
    bool any;
    int put = 0;
    pthread_mutex_lock(&s->writing);
    pthread_mutex_lock(&s->lock);
    any = any_wanted(s, w->loop);
    if (any)
        text = print_file(s, true, &len);
    pthread_mutex_unlock(&s->lock);
    if (any)
        put = put_file(s, text, len);
    if (put)
        (void)complain("write", s->file);
    pthread_mutex_lock(&s->lock);
    if (any)
        settle(s, w->loop, !put);
    if (put > 0)
        text = print_file(s, false, &len);
    pthread_mutex_unlock(&s->lock);
    if (put > 0)
        (void)put_file(s, text, len); /* a later start finds what was before, if this is durable */
    pthread_mutex_unlock(&s->writing);
}

static void begin_write(state_writer *w)
{
    w->away = true;
    w->jobs.submit(w->jobs.user, &w->job);
}

void state_want(state_file *s, const dxpu_box_entry *e, uint8_t phase, uint64_t medium,
                const state_key *key)
{
    state_line *l = &s->lines[e->slot - 1];
    state_writer *w = &s->writers[(e->slot - 1u) % s->loops];
    pthread_mutex_lock(&s->lock);
    l->wanted = state_lease_of(e, phase, medium, key);
    l->state = WANTED;
    l->written = false;
    pthread_mutex_unlock(&s->lock);
    if (!w->away)
        begin_write(w);
}

static bool uses(const state_lease *l, uint64_t medium)
{
    return l->medium == medium &&
           (l->phase == DXPU_CONTROL_SLOT_HELD || l->phase == DXPU_CONTROL_SLOT_KEPT);
}

static bool promises(const state_lease *l, uint64_t medium)
{
    return l->medium == medium && l->phase != DXPU_CONTROL_SLOT_EMPTY &&
           l->phase != DXPU_CONTROL_SLOT_WIPED;
}

static bool any_other(state_file *s, unsigned number, uint64_t medium,
                      bool (*is_such)(const state_lease *l, uint64_t medium))
{
    bool any = false;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; !any && i < s->count; i++) {
        const state_line *l = &s->lines[i];
        any = i + 1 != number &&
              (is_such(&l->kept, medium) || (l->state == WANTED && is_such(&l->wanted, medium)));
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}

bool state_promises(state_file *s, unsigned number, uint64_t medium)
{
    return any_other(s, number, medium, promises);
}

bool state_uses(state_file *s, unsigned number, uint64_t medium)
{
    return any_other(s, number, medium, uses);
}

/* IDLE, WANTED: there is nothing to report of the slot; else there was. */
static uint8_t take_result(state_file *s, size_t i)
{
    uint8_t was;
    pthread_mutex_lock(&s->lock);
    was = s->lines[i].state;
    if (was == KEPT || was == REFUSED)
        s->lines[i].state = IDLE;
    pthread_mutex_unlock(&s->lock);
    return was;
}

void state_work(state_file *s, unsigned loop)
{
    state_writer *w = &s->writers[loop];
    bool more = false;
    if (!w->away || !w->jobs.reap(w->jobs.user))
        return;
    w->away = false;
    for (size_t i = loop; i < s->slots; i += s->loops) {
        uint8_t now = take_result(s, i);
        more |= now == WANTED;
        if (now == KEPT || now == REFUSED)
            w->result(w->user, (unsigned)i + 1, now == KEPT);
    }
    if (more && !w->away)
        begin_write(w);
}

bool state_writes(const state_file *s, unsigned loop)
{
    return s->writers[loop].away;
}

/* ==== 4  Life ================================================================================= */

static int open_lines(state_file *s, const dxpu_box_table *t, uint8_t *phase, uint64_t *medium,
                      state_key *key)
{
    static const state_key none;
    int rc = lock_file(s);
    if (!rc)
        rc = state_read(s, t, phase, medium, key);
    for (uint32_t i = 0; !rc && i < t->count; i++)
        s->lines[i].kept =
            state_lease_of(&t->entries[i], phase ? phase[i] : DXPU_CONTROL_SLOT_EMPTY,
                           phase ? medium[i] : 0, phase ? &key[i] : &none);
    return rc;
}

state_file *state_open(const char *file, unsigned loops, const dxpu_box_table *t, uint8_t *phase,
                       uint64_t *medium, state_key *key, int *status)
{
    state_file *s = calloc(1, sizeof *s);
    state_line *lines = calloc(t->count, sizeof *lines);
    state_writer *writers = calloc(loops, sizeof *writers);
    if (!s || !lines || !writers) {
        free(s);
        free(lines);
        free(writers);
        *status = complain("keep", file);
        return NULL;
    }
    (void)pthread_mutex_init(&s->writing, NULL); /* ordinary ones: cannot fail */
    (void)pthread_mutex_init(&s->lock, NULL);
    s->file = file;
    s->lines = lines;
    s->count = s->slots = t->count;
    s->writers = writers;
    s->loops = loops;
    s->only = -1;
    *status = open_lines(s, t, phase, medium, key);
    if (!*status)
        return s;
    state_close(s);
    return NULL;
}

void state_note(state_file *s, const dxpu_box_entry *e, uint8_t phase, uint64_t medium,
                const state_key *key)
{
    s->lines[e->slot - 1].kept = state_lease_of(e, phase, medium, key);
}

int state_begin(state_file *s)
{
    size_t len = 0;
    char *text = print_file(s, false, &len);
    return put_file(s, text, len) ? complain("write", s->file) : 0;
}

void state_serve(state_file *s, unsigned loop, const jobs *j, state_result result, void *user)
{
    state_writer *w = &s->writers[loop];
    w->job.run = write_wanted;
    w->owner = s;
    w->loop = loop;
    w->jobs = *j;
    w->result = result;
    w->user = user;
}

/* A job that is over may have left behind what was wanted after it began. */
static void finish(state_writer *w)
{
    if (!w->away)
        return;
    w->jobs.settle(w->jobs.user);
    (void)w->jobs.reap(w->jobs.user);
    w->away = false;
    write_wanted(&w->job);
}

void state_close(state_file *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < s->loops; i++)
        finish(&s->writers[i]);
    if (s->only >= 0)
        (void)close(s->only);
    (void)pthread_mutex_destroy(&s->writing);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->writers);
    free(s->lines);
    free(s);
}
