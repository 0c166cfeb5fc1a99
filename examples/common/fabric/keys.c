/* keys.c - see keys.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Lines   2 Tables   3 Settings   4 Opening   5 Questions   6 Adding */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* strdup, O_NOFOLLOW, flock, realpath */
#endif
#include "keys_internal.h"
#include "durable.h"
#include "log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BAD_SYSTEM = -1, BAD_USE = -2 }; /* what a message was about */
enum { KEY = DXPU_NOISE_KEY_BYTES, WHY_BYTES = 200, LINE_BYTES = 2048 };

/* ==== 1  Lines ================================================================================ */

/* Cut the next piece off *text at one of `ends`; NULL when there is none. */
static char *piece(char **text, const char *ends)
{
    char *at = *text + strspn(*text, ends);
    if (!*at)
        return NULL;
    *text = at + strcspn(at, ends);
    if (**text)
        *(*text)++ = '\0';
    return at;
}

/* Each of the following: NULL, or what is wrong and what to do. */

static const char *parse_name(const char *value, keys_peer *p)
{
    size_t len = strlen(value);
    for (const char *c = value; *c; c++) {
        if (*c <= ' ' || *c > '~')
            return "name=: must be printable ASCII characters";
    }
    if (!len || len > KEYS_NAME_MAX)
        return "name=: 1 to 31 characters";
    memcpy(p->name, value, len + 1);
    return NULL;
}

static unsigned may_bit(const char *word)
{
#define KEYS_WORD(name, bit, text)                                                                 \
    if (!strcmp(word, text))                                                                       \
        return bit;
    KEYS_MAY(KEYS_WORD)
#undef KEYS_WORD
    return 0;
}

static const char *parse_may(char *value, keys_peer *p)
{
#define KEYS_LIST(name, bit, text) " " text
    static const char wrong[] = "may=: words with commas between, of" KEYS_MAY(KEYS_LIST);
#undef KEYS_LIST
    char *word;
    p->may = 0;
    while ((word = piece(&value, ",")) != NULL) {
        if (!may_bit(word))
            return wrong;
        p->may |= may_bit(word);
    }
    return p->may ? NULL : wrong;
}

/* A slot's number at *text, which is moved behind it; 0: there is none. */
static uint16_t slot_number(char **text)
{
    char *end = *text;
    unsigned long v = isdigit((unsigned char)**text) ? strtoul(*text, &end, 10) : 0;
    *text = end;
    return v <= 0xffff ? (uint16_t)v : 0;
}

static const char *parse_slots(char *value, keys_peer *p)
{
    static const char wrong[] = "slots=: must be numbers and ranges, such as 1-4,7";
    char *word;
    while ((word = piece(&value, ",")) != NULL) {
        keys_range r;
        if (p->slots_count == KEYS_RANGES_MAX)
            return "slots=: at most 16 ranges";
        r.first = r.last = slot_number(&word);
        if (*word == '-') {
            word++;
            r.last = slot_number(&word);
        }
        if (*word || !r.first || r.last < r.first)
            return wrong;
        p->slots[p->slots_count++] = r;
    }
    return p->slots_count ? NULL : wrong;
}

static const char *parse_at(const char *value, keys_peer *p)
{
    static char text[WHY_BYTES]; /* files are read by one thread */
    const char *why = dxpu_udp_parse_list(value, p->at, DXPU_PATHS_MAX, &p->at_count);
    if (why)
        snprintf(text, sizeof text, "at=: %s", why);
    return why ? text : NULL;
}

static const char *parse_word(char *word, keys_peer *p)
{
    char *value = strchr(word, '=');
    if (!value)
        return "only name=, may=, at= and slots= may follow the key, separated by blanks";
    *value++ = '\0';
    if (!strcmp(word, "name"))
        return parse_name(value, p);
    if (!strcmp(word, "may"))
        return parse_may(value, p);
    if (!strcmp(word, "at"))
        return parse_at(value, p);
    if (!strcmp(word, "slots"))
        return parse_slots(value, p);
    return "no such word; there are name=, may=, at= and slots=";
}

/* A line of the file; p->may stays 0 when it is empty. */
static const char *parse_line(char *line, keys_peer *p)
{
    static const char blanks[] = " \t\r\n";
    const char *why = NULL;
    char *word;
    memset(p, 0, sizeof *p);
    line[strcspn(line, "#")] = '\0'; /* no part of a line has one */
    word = piece(&line, blanks);
    if (!word)
        return NULL;
    if (!dxpu_sodium_key_parse(word, p->key))
        return "a line begins with a public key: 44 characters, as `dxpu pubkey` prints it";
    p->may = KEYS_FABRIC;
    while (!why && (word = piece(&line, blanks)) != NULL)
        why = parse_word(word, p);
    return why;
}

/* ==== 2  Tables =============================================================================== */

static int by_key(const void *a, const void *b)
{
    return memcmp(((const keys_peer *)a)->key, ((const keys_peer *)b)->key, KEY);
}

keys_peer *keys_table_find(const keys_table *t, const uint8_t key[KEY])
{
    keys_peer want;
    memcpy(want.key, key, KEY);
    return t->count ? bsearch(&want, t->rows, t->count, sizeof *t->rows, by_key) : NULL;
}

static const char no_memory[] = "out of memory";

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const keys_peer *const *)a)->name, (*(const keys_peer *const *)b)->name);
}

/* The peer whose line has this name; NULL: none. */
const keys_peer *keys_table_find_name(const keys_table *t, const char *name, size_t len)
{
    keys_peer want;
    const keys_peer *key = &want, **found;
    if (!len || len > KEYS_NAME_MAX || !t->named_count)
        return NULL;
    memcpy(want.name, name, len);
    want.name[len] = '\0';
    found = bsearch(&key, t->named, t->named_count, sizeof *t->named, by_name);
    return found ? *found : NULL;
}

void keys_table_clear(keys_table *t)
{
    free(t->rows);
    free(t->named);
    memset(t, 0, sizeof *t);
}

/* NULL, or why it cannot be added. */
static const char *add(keys_table *t, const keys_peer *p)
{
    if (t->count == KEYS_PEERS_MAX)
        return "too many public keys; 16384 at most";
    if (t->count == t->room) {
        unsigned room = t->room ? 2 * t->room : 16;
        keys_peer *rows = realloc(t->rows, room * sizeof *rows);
        if (!rows)
            return no_memory;
        t->rows = rows;
        t->room = room;
    }
    t->rows[t->count++] = *p;
    return NULL;
}

/* Sorted from here on; NULL, or what is there twice. */
const char *keys_table_sort(keys_table *t)
{
    static char text[WHY_BYTES];
    char key[DXPU_SODIUM_KEY_TEXT_BYTES];
    if (t->count)
        qsort(t->rows, t->count, sizeof *t->rows, by_key);
    for (unsigned i = 1; i < t->count; i++) {
        if (by_key(&t->rows[i - 1], &t->rows[i]))
            continue;
        snprintf(text, sizeof text, "%s is named twice; name each key once",
                 dxpu_sodium_key_print(t->rows[i].key, key));
        return text;
    }
    t->named = t->count ? calloc(t->count, sizeof *t->named) : NULL;
    if (t->count && !t->named)
        return no_memory;
    for (unsigned i = 0; i < t->count; i++) {
        if (t->rows[i].name[0])
            t->named[t->named_count++] = &t->rows[i];
    }
    if (t->named_count)
        qsort(t->named, t->named_count, sizeof *t->named, by_name);
    for (unsigned i = 1; i < t->named_count; i++) {
        if (by_name(&t->named[i - 1], &t->named[i]))
            continue;
        snprintf(text, sizeof text, "name=%s is given to two keys; give each its own",
                 t->named[i]->name);
        return text;
    }
    return NULL;
}

/* --peer: all of them may everything. */
static const char *add_listed(keys_table *t, const char *list)
{
    static const char wrong[] =
        "must be public keys of 44 characters, separated by commas; `dxpu pubkey FILE` prints "
        "one";
    keys_peer p;
    memset(&p, 0, sizeof p);
    p.may = KEYS_ALL;
    for (;;) {
        char text[DXPU_SODIUM_KEY_TEXT_BYTES];
        size_t len = strcspn(list, ",");
        const char *why;
        if (len != sizeof text - 1)
            return wrong;
        memcpy(text, list, len);
        text[len] = '\0';
        if (!dxpu_sodium_key_parse(text, p.key))
            return wrong;
        why = add(t, &p);
        if (why || !list[len])
            return why;
        list += len + 1;
    }
}

/* *number: the line that is wrong, 0: none is. */
const char *keys_table_read(keys_table *t, FILE *f, unsigned *number)
{
    char line[LINE_BYTES];
    for (*number = 1; fgets(line, sizeof line, f); ++*number) {
        keys_peer p;
        const char *why =
            !strchr(line, '\n') && !feof(f) ? "the line is too long" : parse_line(line, &p);
        if (!why && p.may)
            why = add(t, &p);
        if (why == no_memory)
            *number = 0;
        if (why)
            return why;
    }
    *number = 0;
    return ferror(f) ? strerror(errno) : NULL;
}

/* A user with write access to the file can grant itself every right.  NULL, or what is wrong, with
   *rc BAD_USE where that is a matter of the file. */
static const char *file_problem(int fd, int *rc)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return strerror(errno);
    *rc = BAD_USE;
    if (!S_ISREG(st.st_mode))
        return "it is not a regular file";
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return "it belongs to another user; chown it";
    return st.st_mode & (S_IWGRP | S_IWOTH) ? "others may write it; chmod go-w it" : NULL;
}

/* 0, or BAD_ after a message. */
static int add_file(keys_table *t, const char *file)
{
    unsigned line = 0;
    const char *why;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc = BAD_SYSTEM;
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    why = !f && errno == EACCES ? "this user may not read it; chown it" : strerror(errno);
    if (f)
        why = file_problem(fd, &rc);
    if (f && !why) {
        why = keys_table_read(t, f, &line);
        rc = line && !(why && strstr(why, dxpu_udp_unresolved)) ? BAD_USE : BAD_SYSTEM;
    }
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    if (why && line)
        log_error("%s:%u: %s", file, line, why);
    else if (why)
        log_error("--peers %s: %s", file, why);
    return why ? rc : 0;
}

/* All that the settings name.  0, or BAD_ after a message, and t is empty. */
static int fill(keys_table *t, const keys_settings *s)
{
    const char *why = NULL, *twice;
    int rc = 0;
    memset(t, 0, sizeof *t);
    if (s->peer)
        why = add_listed(t, s->peer);
    if (why) {
        log_error("--peer: %s", why);
        rc = why == no_memory ? BAD_SYSTEM : BAD_USE;
    } else if (s->peers) {
        rc = add_file(t, s->peers);
    }
    twice = rc ? NULL : keys_table_sort(t);
    if (twice) {
        log_error("--peer, --peers: %s", twice);
        rc = twice == no_memory ? BAD_SYSTEM : BAD_USE;
    }
    if (rc)
        keys_table_clear(t);
    return rc;
}

/* ==== 3  Settings ============================================================================= */

const char *keys_check(const keys_settings *s)
{
    if (s->plain && (s->key || s->peer || s->peers))
        return "--plain cannot be used with --key, --peer and --peers";
    return s->plain_network && !s->plain ? "--plain-network requires --plain" : NULL;
}

bool keys_loopback(const dxpu_udp_address *a)
{
    const uint8_t *v4 = (const uint8_t *)&a->u.v4.sin_addr;
    const struct in6_addr *v6 = &a->u.v6.sin6_addr;
    if (a->u.any.sa_family == AF_INET)
        return v4[0] == 127;
    return a->u.any.sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127));
}

const char keys_plain_address[] = "--plain requires an address of this machine; give keys instead, "
                                  "or --plain-network on an isolated network";

const char *keys_check_addresses(const keys_settings *s, const dxpu_udp_address *at, unsigned count)
{
    for (unsigned i = 0; s->plain && !s->plain_network && i < count; i++) {
        if (!keys_loopback(&at[i]))
            return keys_plain_address;
    }
    return NULL;
}

/* ==== 4  Opening ============================================================================== */

static void say_key(const keys *k, bool made)
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    dxpu_sodium_key_print(k->own->public_key, text);
    if (!k->set.key)
        log_note("public key %s, for this run only; --key FILE keeps one", text);
    else
        log_note("public key %s%s%s", text, made ? ", new, in " : "", made ? k->set.key : "");
}

/* 0, or BAD_ after a message. */
static int open_own(keys *k)
{
    const char *file = k->set.key, *why = "no memory for a key";
    struct stat st;
    int error;
    bool made = file && lstat(file, &st) && errno == ENOENT;
    errno = 0;
    k->own = !file  ? dxpu_sodium_key_new()
             : made ? dxpu_sodium_key_create(file, &why)
                    : dxpu_sodium_key_load(file, &why);
    if (k->own) {
        k->own_new = !file || made;
        say_key(k, made);
        return 0;
    }
    error = errno; /* none: the file was read, and is not as it should be */
    log_error("--key %s: %s%s%s", file ? file : "", why, error ? ": " : "",
              error ? strerror(error) : "");
    return !file || made || error ? BAD_SYSTEM : BAD_USE;
}

keys *keys_open(const keys_settings *s, bool *wrong)
{
    keys *k = calloc(1, sizeof *k);
    int rc;
    *wrong = false;
    if (!k || dxpu_sodium_init() != DXPU_OK || pthread_mutex_init(&k->mutex, NULL)) {
        log_error("cannot hold keys: out of memory, or libsodium does not start");
        free(k);
        return NULL;
    }
    k->set = *s;
    if (s->plain) {
        log_warning("WARNING: --plain: no keys; every peer that reaches its ports has full "
                    "access, and the network can read and alter the traffic");
        return k;
    }
    rc = open_own(k);
    if (!rc)
        rc = fill(&k->peers, s);
    if (rc) {
        *wrong = rc == BAD_USE;
        keys_close(k);
        return NULL;
    }
    return k;
}

keys *keys_none(void)
{
    static keys none = { .set = { .plain = true }, .mutex = PTHREAD_MUTEX_INITIALIZER };
    return &none;
}

void keys_abandon(keys *k)
{
    k->abandoned = true;
}

void keys_close(keys *k)
{
    if (!k || k->abandoned)
        return;
    dxpu_sodium_key_free(k->own);
    keys_table_clear(&k->peers);
    keys_table_clear(&k->next);
    free(k->stamps);
    (void)pthread_mutex_destroy(&k->mutex);
    free(k);
}

bool keys_plain(const keys *k)
{
    return k->set.plain;
}

bool keys_allow_address(const keys *k, const dxpu_udp_address *a)
{
    return !k->set.plain || k->set.plain_network || keys_loopback(a);
}

const dxpu_noise_pair *keys_own(const keys *k)
{
    return k->own;
}

bool keys_own_new(const keys *k)
{
    return k->own_new;
}

int keys_read(keys *k)
{
    if (!k->set.peers) {
        log_error("SIGHUP: there is no --peers FILE to reload");
        return -1;
    }
    keys_table_clear(&k->next);
    if (fill(&k->next, &k->set)) {
        log_warning("the public keys are unchanged");
        return -1;
    }
    return 0;
}

void keys_take(keys *k)
{
    const unsigned count = k->next.count;
    (void)pthread_mutex_lock(&k->mutex);
    keys_table_clear(&k->peers);
    k->peers = k->next;
    k->generation++;
    (void)pthread_mutex_unlock(&k->mutex);
    memset(&k->next, 0, sizeof k->next);
    log_note("--peers %s: reloaded, %u public key%s", k->set.peers, count, count == 1 ? "" : "s");
}

int keys_reload(keys *k)
{
    int rc = keys_read(k);
    if (!rc)
        keys_take(k);
    return rc;
}

/* ==== 5  Questions ============================================================================ */

/* The mutex is no part of what a caller sees change. */
static pthread_mutex_t *lock_of(const keys *k)
{
    pthread_mutex_t *m = (pthread_mutex_t *)&k->mutex;
    (void)pthread_mutex_lock(m);
    return m;
}

unsigned keys_generation(const keys *k)
{
    pthread_mutex_t *m = lock_of(k);
    unsigned generation = k->generation;
    (void)pthread_mutex_unlock(m);
    return generation;
}

bool keys_find(keys *k, const uint8_t key[KEY], keys_peer *out)
{
    pthread_mutex_t *m = lock_of(k);
    const keys_peer *p = keys_table_find(&k->peers, key);
    if (p)
        *out = *p;
    (void)pthread_mutex_unlock(m);
    return p != NULL;
}

/* Of "web7-2" the 4; 0 when it is not the name of a further guest. */
static size_t guest_base(const char *name)
{
    enum { GUESTS_MAX = 64 };
    const char *dash = strrchr(name, '-');
    size_t digits = dash ? strspn(dash + 1, "0123456789") : 0;
    unsigned number =
        digits && digits < 3 && !dash[1 + digits] && dash[1] != '0' ? (unsigned)atoi(dash + 1) : 0;
    return number > 1 && number <= GUESTS_MAX ? (size_t)(dash - name) : 0;
}

unsigned keys_name(keys *k, const uint8_t key[KEY], const char *name, char own[KEYS_NAME_MAX + 1])
{
    pthread_mutex_t *m = lock_of(k);
    const keys_peer *p = keys_table_find(&k->peers, key);
    const keys_peer *owner = keys_table_find_name(&k->peers, name, strlen(name));
    unsigned whose;
    if (!owner)
        owner = keys_table_find_name(&k->peers, name, guest_base(name));
    snprintf(own, KEYS_NAME_MAX + 1, "%s", p ? p->name : "");
    if (*own)
        whose = owner == p ? KEYS_NAME_OWN : KEYS_NAME_WRONG;
    else
        whose = owner ? KEYS_NAME_OTHER : KEYS_NAME_FREE;
    (void)pthread_mutex_unlock(m);
    return whose;
}

bool keys_has_slot(const keys_peer *p, uint16_t slot)
{
    bool has = !slot || !p->slots_count;
    for (unsigned i = 0; i < p->slots_count; i++)
        has |= slot >= p->slots[i].first && slot <= p->slots[i].last;
    return has;
}

bool keys_allow(keys *k, const uint8_t key[KEY], unsigned may, uint16_t slot)
{
    pthread_mutex_t *m = lock_of(k);
    const keys_peer *p = keys_table_find(&k->peers, key);
    bool allowed = p && (p->may & may) == may && keys_has_slot(p, slot);
    (void)pthread_mutex_unlock(m);
    return allowed;
}

unsigned keys_count(keys *k, unsigned may)
{
    pthread_mutex_t *m = lock_of(k);
    unsigned count = 0;
    for (unsigned i = 0; i < k->peers.count; i++)
        count += (k->peers.rows[i].may & may) == may;
    (void)pthread_mutex_unlock(m);
    return count;
}

/* Note whose these slots are.  The first that another has already, or 0. */
static unsigned own_slots(const keys_peer **owner, const keys_peer *p, keys_range r, unsigned slots)
{
    for (unsigned slot = r.first; slot <= r.last && slot <= slots; slot++) {
        if (owner[slot - 1] && owner[slot - 1] != p)
            return slot;
        owner[slot - 1] = p;
    }
    return 0;
}

unsigned keys_shared_slot(keys *k, unsigned slots)
{
    static const keys_range all = { 1, 0xffff };
    const keys_peer **owner = calloc(slots, sizeof *owner);
    pthread_mutex_t *m = lock_of(k);
    unsigned shared = 0;
    for (unsigned i = 0; owner && !shared && i < k->peers.count; i++) {
        const keys_peer *p = &k->peers.rows[i];
        if (!(p->may & KEYS_FABRIC))
            continue;
        if (!p->slots_count)
            shared = own_slots(owner, p, all, slots);
        for (unsigned n = 0; !shared && n < p->slots_count; n++)
            shared = own_slots(owner, p, p->slots[n], slots);
    }
    (void)pthread_mutex_unlock(m);
    free(owner);
    return shared;
}

/* Where a key's stamp is, or would be. */
static unsigned stamp_place(const keys *k, const uint8_t key[KEY])
{
    unsigned low = 0, high = k->stamps_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (memcmp(k->stamps[middle].key, key, KEY) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static keys_stamp *stamp_of(const keys *k, const uint8_t key[KEY])
{
    unsigned at = stamp_place(k, key);
    return at < k->stamps_count && !memcmp(k->stamps[at].key, key, KEY) ? &k->stamps[at] : NULL;
}

/* How many there are, all or those of keys that others name, and the one that is the oldest. */
static unsigned stamps_of(const keys *k, bool passing, unsigned *oldest)
{
    unsigned count = 0;
    for (unsigned i = 0; i < k->stamps_count; i++) {
        if (passing && !k->stamps[i].passing)
            continue;
        if (count++ == 0 || k->stamps[i].newest < k->stamps[*oldest].newest)
            *oldest = i;
    }
    return count;
}

/* One more; with too many of them, the one whose last word is the oldest goes (S-13 allows it). */
static keys_stamp *stamp_add(keys *k, const uint8_t key[KEY], bool passing)
{
    unsigned oldest = 0, at;
    bool full;
    if (!k->stamps)
        k->stamps = calloc(KEYS_PEERS_MAX, sizeof *k->stamps);
    if (!k->stamps)
        return NULL;
    full = passing && stamps_of(k, true, &oldest) >= KEYS_PASSING_MAX;
    if (!full && k->stamps_count == KEYS_PEERS_MAX) {
        full = true;
        if (!stamps_of(k, true, &oldest))
            (void)stamps_of(k, false, &oldest);
    }
    if (full)
        memmove(&k->stamps[oldest], &k->stamps[oldest + 1],
                (--k->stamps_count - oldest) * sizeof *k->stamps);
    at = stamp_place(k, key);
    memmove(&k->stamps[at + 1], &k->stamps[at], (k->stamps_count++ - at) * sizeof *k->stamps);
    memcpy(k->stamps[at].key, key, KEY);
    k->stamps[at].newest = 0;
    k->stamps[at].passing = passing;
    return &k->stamps[at];
}

uint64_t keys_newest(keys *k, const uint8_t key[KEY])
{
    pthread_mutex_t *m = lock_of(k);
    const keys_stamp *s = stamp_of(k, key);
    uint64_t newest = s ? s->newest : 0;
    (void)pthread_mutex_unlock(m);
    return newest;
}

static bool take_stamp(keys *k, const uint8_t key[KEY], uint64_t timestamp, bool passing)
{
    pthread_mutex_t *m = lock_of(k);
    keys_stamp *s = stamp_of(k, key);
    bool fresh;
    if (!s)
        s = stamp_add(k, key, passing);
    fresh = s && timestamp > s->newest;
    if (fresh)
        s->newest = timestamp;
    if (s && !passing)
        s->passing = false;
    (void)pthread_mutex_unlock(m);
    return fresh;
}

bool keys_fresh(keys *k, const uint8_t key[KEY], uint64_t timestamp)
{
    return take_stamp(k, key, timestamp, false);
}

bool keys_fresh_passing(keys *k, const uint8_t key[KEY], uint64_t timestamp)
{
    return take_stamp(k, key, timestamp, true);
}

bool keys_is_at(const keys_peer *p, const dxpu_udp_address *a)
{
    for (unsigned i = 0; i < p->at_count; i++) {
        dxpu_udp_address at = p->at[i];
        if (at.u.any.sa_family == AF_INET && !at.u.v4.sin_port)
            at.u.v4.sin_port = a->u.v4.sin_port;
        else if (at.u.any.sa_family == AF_INET6 && !at.u.v6.sin6_port)
            at.u.v6.sin6_port = a->u.v6.sin6_port;
        if (dxpu_udp_same(&at, a))
            return true;
    }
    return false;
}

const char *keys_box(keys *k, const dxpu_udp_address *box, unsigned count, uint8_t out[KEY])
{
    pthread_mutex_t *m = lock_of(k);
    const keys_peer *there = NULL, *anywhere = NULL;
    unsigned there_count = 0, anywhere_count = 0;
    for (unsigned i = 0; i < k->peers.count; i++) {
        const keys_peer *p = &k->peers.rows[i];
        bool at = false;
        if (!(p->may & KEYS_FABRIC))
            continue;
        for (unsigned a = 0; a < count; a++)
            at |= keys_is_at(p, &box[a]);
        there = at ? p : there;
        there_count += at;
        anywhere = p->at_count ? anywhere : p;
        anywhere_count += !p->at_count;
    }
    if (!there && anywhere_count == 1)
        there = anywhere;
    if (there)
        memcpy(out, there->key, KEY);
    (void)pthread_mutex_unlock(m);
    if (there_count > 1)
        return "several public keys in --peers are at= this address; leave one of them";
    if (there)
        return NULL;
    return anywhere_count ? "the public key of this box is not known; name it with at= in --peers"
                          : "the box's public key is not known; give it with --peer KEY, or with "
                            "at= in --peers";
}

const char *keys_silence(const keys *k)
{
    return k->set.plain
               ? "possible: nothing listens there, UDP is blocked, or the box requires keys (give "
                 "both --key and --peer); the box's log says which"
               : "possible: nothing listens there, UDP is blocked, or a key does not match "
                 "(--peer here, --peers there, --plain at one end); the box's log says which";
}

uint64_t keys_wall_ns(keys *k)
{
    struct timespec t = { 0, 0 };
    uint64_t now;
    pthread_mutex_t *m;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    m = lock_of(k);
    now = k->wall_ns = now > k->wall_ns ? now : k->wall_ns + 1;
    (void)pthread_mutex_unlock(m);
    return now;
}

const char *keys_text(keys *k, const uint8_t key[KEY], char out[KEYS_TEXT_BYTES])
{
    enum { SHOWN = 12 };
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    keys_peer p;
    if (keys_find(k, key, &p) && p.name[0])
        snprintf(out, KEYS_TEXT_BYTES, "%s", p.name);
    else
        snprintf(out, KEYS_TEXT_BYTES, "%.*s...", SHOWN, dxpu_sodium_key_print(key, text));
    return out;
}

/* ==== 6  Adding =============================================================================== */

enum { FILE_BYTES_MAX = 4 << 20, TRIES = 50, TRY_MS = 100 };

const char *keys_parse_may(const char *words, unsigned *may)
{
    char copy[64];
    keys_peer p;
    const char *why;
    snprintf(copy, sizeof copy, "%s", strlen(words) < sizeof copy ? words : "?");
    why = parse_may(copy, &p);
    *may = p.may;
    return why;
}

bool keys_line(const keys_peer *p, char out[KEYS_LINE_BYTES])
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES], words[64] = "", copy[KEYS_LINE_BYTES];
    keys_peer again;
#define KEYS_ADD_WORD(name, bit, word)                                                             \
    if (p->may & (bit))                                                                            \
        strcat(words, "," word);
    KEYS_MAY(KEYS_ADD_WORD)
#undef KEYS_ADD_WORD
    snprintf(out, KEYS_LINE_BYTES, "%s%s%s may=%s", dxpu_sodium_key_print(p->key, text),
             p->name[0] ? " name=" : "", p->name, words + (words[0] == ','));
    memcpy(copy, out, sizeof copy);
    return !parse_line(copy, &again) && !strcmp(again.name, p->name) && again.may == p->may;
}

/* What a file is to become. */
typedef struct addition {
    const char *file; /* as its user names it */
    char path[PATH_MAX], folder[PATH_MAX];
    int folder_fd;  /* locked */
    bool there;     /* the file is */
    struct stat st; /* of it */
    char *text;
    size_t bytes;
} addition;

static int cannot(const addition *a, const char *why)
{
    log_error("--peers %s: %s", a->file, why);
    return -1;
}

static int cannot_write(const addition *a)
{
    char why[WHY_BYTES];
    snprintf(why, sizeof why, "cannot be written: %s; name a file in a directory of this user",
             strerror(errno));
    return cannot(a, why);
}

/* The file itself, if it is there, not a link to it; and its directory, where two writers take
   turns.  It waits a few seconds: anyone who can read the directory could hold it. */
static int open_folder(addition *a)
{
    char copy[PATH_MAX];
    const struct timespec pause = { 0, TRY_MS * 1000000 };
    a->there = realpath(a->file, a->path) != NULL;
    if (!a->there && (errno != ENOENT || strlen(a->file) >= sizeof a->path - 8))
        return cannot_write(a);
    if (!a->there)
        memcpy(a->path, a->file, strlen(a->file) + 1);
    memcpy(copy, a->path, sizeof copy);
    snprintf(a->folder, sizeof a->folder, "%s", dirname(copy));
    a->folder_fd = open(a->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->folder_fd < 0 || faccessat(AT_FDCWD, a->folder, W_OK | X_OK, AT_EACCESS))
        return cannot_write(a);
    for (unsigned i = 0; flock(a->folder_fd, LOCK_EX | LOCK_NB); i++) {
        if (errno != EWOULDBLOCK || i == TRIES)
            return cannot_write(a);
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

static int read_text(addition *a)
{
    const char *why;
    ssize_t n = 1;
    int fd = open(a->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;
    a->text = malloc(FILE_BYTES_MAX + KEYS_LINE_BYTES + 2);
    a->there = fd >= 0;
    if (!a->text || (fd < 0 && errno != ENOENT)) {
        if (fd >= 0)
            (void)close(fd);
        return cannot_write(a);
    }
    if (fd < 0)
        return 0;
    why = file_problem(fd, &rc);
    (void)fstat(fd, &a->st);
    while (!why && n > 0 && a->bytes <= FILE_BYTES_MAX) {
        n = read(fd, a->text + a->bytes, FILE_BYTES_MAX + 1 - a->bytes);
        a->bytes += n > 0 ? (size_t)n : 0;
    }
    (void)close(fd);
    if (why)
        return cannot(a, why);
    if (n < 0 || faccessat(AT_FDCWD, a->path, W_OK, AT_EACCESS))
        return cannot_write(a);
    return a->bytes > FILE_BYTES_MAX ? cannot(a, "it is too long") : 0;
}

/* Read the text as programs will.  0, and t is to be cleared; -1 after a message. */
static int parse_text(addition *a, keys_table *t)
{
    unsigned line = 0;
    const char *why = NULL;
    FILE *f = a->bytes ? fmemopen(a->text, a->bytes, "r") : NULL;
    memset(t, 0, sizeof *t);
    if (f) {
        why = keys_table_read(t, f, &line);
        fclose(f);
    } else if (a->bytes) {
        why = no_memory;
    }
    if (why && line)
        log_error("%s:%u: %s", a->file, line, why);
    else if (why || (why = keys_table_sort(t)) != NULL)
        (void)cannot(a, why);
    if (why)
        keys_table_clear(t);
    return why ? -1 : 0;
}

/* 0, 1: it is there, -1 after a message. */
static int add_line(addition *a, const keys_peer *p)
{
    char line[KEYS_LINE_BYTES];
    keys_table t;
    bool there;
    if (parse_text(a, &t))
        return -1;
    there = p && keys_table_find(&t, p->key);
    keys_table_clear(&t);
    if (there || !p)
        return there;
    if (!keys_line(p, line))
        return cannot(a, "such a name has no place in a line");
    if (a->bytes && a->text[a->bytes - 1] != '\n')
        a->text[a->bytes++] = '\n';
    a->bytes += (size_t)snprintf(a->text + a->bytes, sizeof line + 1, "%s\n", line);
    if (parse_text(a, &t))
        return -1;
    keys_table_clear(&t);
    return 0;
}

static int not_durable(const addition *a)
{
    char why[WHY_BYTES];
    snprintf(why, sizeof why, "is written, but a crash may undo it: its directory: %s; try again",
             strerror(errno));
    return cannot(a, why);
}

/* With the owner, group and mode that the file has. */
static int write_text(addition *a)
{
    mode_t mask = umask(0), mode = a->there ? a->st.st_mode & 07777 : 0644 & ~mask;
    uid_t owner = a->there ? a->st.st_uid : (uid_t)-1;
    gid_t group = a->there ? a->st.st_gid : (gid_t)-1;
    int rc;
    (void)umask(mask);
    rc = durable_replace_as(a->path, a->text, a->bytes, mode, owner, group);
    if (rc < 0)
        return cannot_write(a);
    return rc ? not_durable(a) : 0;
}

int keys_add(const char *file, const keys_peer *p)
{
    addition a;
    int rc;
    memset(&a, 0, sizeof a);
    a.file = file;
    a.folder_fd = -1;
    rc = open_folder(&a);
    if (!rc)
        rc = read_text(&a);
    if (!rc)
        rc = add_line(&a, p);
    if (!rc && p)
        rc = write_text(&a);
    else if (rc > 0 && durable_name(a.path)) /* it was written a moment ago, perhaps */
        rc = not_durable(&a);
    free(a.text);
    if (a.folder_fd >= 0)
        (void)close(a.folder_fd);
    return rc;
}
