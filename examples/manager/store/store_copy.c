/* store_copy.c - see store_copy.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "store_copy.h"
#include "durable.h"
#include "dxpu.h"
#include "store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* A record that is there as long as an import is not finished. */
#define UNFINISHED "import"

enum { COPY_VERSION = 1, BATCH_CHANGES = 100, BATCH_BYTES = 1 << 20 };

typedef struct text {
    char *bytes;
    size_t len, room;
} text;

static bool text_add(text *t, const void *bytes, size_t len)
{
    if (t->len + len > t->room) {
        size_t room = 2 * (t->len + len);
        char *more = realloc(t->bytes, room);
        if (!more)
            return false;
        t->bytes = more;
        t->room = room;
    }
    memcpy(t->bytes + t->len, bytes, len);
    t->len += len;
    return true;
}

/* One line.  Frees it. */
static bool text_add_json(text *t, json_t *j)
{
    char *line = j ? json_dumps(j, JSON_COMPACT) : NULL;
    bool good = line && text_add(t, line, strlen(line)) && text_add(t, "\n", 1);
    free(line);
    json_decref(j);
    return good;
}

static store_error unfinished_fault(store_fault *f)
{
    return storei_fault(f, STORE_E_CORRUPT,
                        "an import into the store was not finished; import the file again");
}

/* ==== Export ================================================================================== */

typedef struct exporting {
    text out;
    uint64_t records;
    store_error rc;
    store_fault *f;
} exporting;

static int export_one(void *user, const char *key, const void *value, size_t len)
{
    exporting *e = user;
    if (strcmp(key, UNFINISHED) == 0) {
        e->rc = unfinished_fault(e->f);
        return 1;
    }
    json_t *words = json_stringn(value, len);
    if (!words)
        e->rc = storei_fault(e->f, STORE_E_CORRUPT, "record %s is not text; restore a backup", key);
    else if (!text_add_json(&e->out, json_pack("{s:s, s:o}", "key", key, "value", words)))
        e->rc = storei_fault(e->f, STORE_E_MEMORY, "out of memory");
    else
        e->records++;
    return e->rc != STORE_OK;
}

store_error store_export_text(store *s, char **out, size_t *bytes, uint64_t *records,
                              store_fault *f)
{
    exporting e = { { NULL, 0, 0 }, 0, STORE_OK, f };
    char crc[9];
    bool good = text_add_json(&e.out, json_pack("{s:i}", "dxpu-export", (int)COPY_VERSION));
    store_error rc = good ? store_load(s, "", export_one, &e, f) : STORE_OK;
    if (rc == STORE_OK && e.rc != STORE_OK)
        rc = e.rc;
    snprintf(crc, sizeof crc, "%08x", good ? dxpu_crc32(0, e.out.bytes, e.out.len) : 0);
    good = good && text_add_json(&e.out, json_pack("{s:I, s:s}", "records", (json_int_t)e.records,
                                                   "crc", crc));
    if (rc == STORE_OK && !good)
        rc = storei_fault(f, STORE_E_MEMORY, "out of memory");
    *out = e.out.bytes;
    *bytes = e.out.len;
    *records = e.records;
    return rc;
}

store_error store_export(store *s, const char *file, uint64_t *records, store_fault *f)
{
    char *copy = NULL;
    size_t bytes = 0;
    store_error rc = store_export_text(s, &copy, &bytes, records, f);
    if (rc == STORE_OK && durable_replace(file, copy, bytes))
        rc = storei_fault(f, STORE_E_IO, "cannot write %s: %s", file, strerror(errno));
    free(copy);
    return rc;
}

/* ==== Import ================================================================================== */

static store_error damaged(const char *file, const char *what, store_fault *f)
{
    return storei_fault(f, STORE_E_CORRUPT, "%s is not a whole export of a pool (%s)", file, what);
}

static store_error read_file(const char *file, text *t, store_fault *f)
{
    static char part[65536];
    size_t len;
    store_error rc = STORE_OK;
    FILE *in = fopen(file, "rb");
    if (!in)
        return storei_fault(f, STORE_E_IO, "cannot open %s: %s", file, strerror(errno));
    while (rc == STORE_OK && (len = fread(part, 1, sizeof part, in)) > 0)
        if (!text_add(t, part, len))
            rc = storei_fault(f, STORE_E_MEMORY, "out of memory");
    if (rc == STORE_OK && ferror(in))
        rc = storei_fault(f, STORE_E_IO, "cannot read %s: %s", file, strerror(errno));
    fclose(in);
    return rc;
}

/* Where the last line begins, of a text that ends with one. */
static size_t last_line(const text *t)
{
    size_t at = t->len ? t->len - 1 : 0;
    while (at && t->bytes[at - 1] != '\n')
        at--;
    return at;
}

static json_t *line_at(const text *t, size_t at, size_t *next)
{
    const char *end = memchr(t->bytes + at, '\n', t->len - at);
    if (!end)
        return NULL;
    *next = (size_t)(end - t->bytes) + 1;
    return json_loadb(t->bytes + at, *next - at, JSON_ALLOW_NUL, NULL);
}

/* First and last line; *first and *end: where the records are. */
static store_error inspect(const char *file, const text *t, size_t *first, size_t *end,
                           json_int_t *records, store_fault *f)
{
    size_t next;
    int version = 0;
    const char *crc = "";
    char want[9];
    json_t *j = line_at(t, 0, first);
    int rc = json_unpack(j, "{s:i}", "dxpu-export", &version);
    json_decref(j);
    if (rc)
        return damaged(file, "its first line is another one", f);
    if (version != COPY_VERSION)
        return storei_fault(f, STORE_E_NEWER, "%s has version %d, this program knows %d", file,
                            version, (int)COPY_VERSION);
    *end = last_line(t);
    snprintf(want, sizeof want, "%08x", dxpu_crc32(0, t->bytes, *end));
    j = line_at(t, *end, &next);
    bool good = *end >= *first &&
                json_unpack(j, "{s:I, s:s}", "records", records, "crc", &crc) == 0 &&
                strcmp(crc, want) == 0;
    json_decref(j);
    return good ? STORE_OK : damaged(file, "its end is missing, or it was changed", f);
}

/* Changes that are committed together; they hold references to what they have. */
typedef struct batch {
    store *s;
    store_change change[BATCH_CHANGES];
    json_t *held[BATCH_CHANGES];
    char *key[BATCH_CHANGES];
    unsigned count;
    size_t bytes;
} batch;

static void batch_drop(batch *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        json_decref(b->held[i]);
        free(b->key[i]);
    }
    b->count = 0;
    b->bytes = 0;
}

static store_error batch_flush(batch *b, store_fault *f)
{
    store_error rc = b->count ? store_commit(b->s, b->change, b->count, f) : STORE_OK;
    batch_drop(b);
    return rc;
}

static store_error batch_add(batch *b, store_change c, json_t *held, char *key, store_fault *f)
{
    store_error rc = STORE_OK;
    if (b->count == BATCH_CHANGES || b->bytes + c.len > BATCH_BYTES)
        rc = batch_flush(b, f);
    b->held[b->count] = held;
    b->key[b->count] = key;
    b->change[b->count++] = c;
    b->bytes += c.len;
    return rc;
}

typedef struct listing {
    char **key;
    size_t count, room;
    bool unfinished, failed;
} listing;

static int list_one(void *user, const char *key, const void *value, size_t len)
{
    listing *l = user;
    (void)value;
    (void)len;
    if (strcmp(key, UNFINISHED) == 0) {
        l->unfinished = true;
        return 0;
    }
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 256;
        char **more = realloc(l->key, room * sizeof *more);
        if (more) {
            l->key = more;
            l->room = room;
        }
    }
    char *copy = l->count < l->room ? strdup(key) : NULL;
    l->failed = !copy;
    if (copy)
        l->key[l->count++] = copy;
    return l->failed;
}

/* Leaves the store with nothing but the mark of an import. */
static store_error prepare(batch *b, store_fault *f)
{
    listing l = { NULL, 0, 0, false, false };
    const store_change mark = { UNFINISHED, "{}", 2 };
    store_error rc = store_load(b->s, "", list_one, &l, f);
    if (rc == STORE_OK && l.failed)
        rc = storei_fault(f, STORE_E_MEMORY, "out of memory");
    if (rc == STORE_OK && l.count && !l.unfinished)
        rc = storei_fault(f, STORE_E_ARG,
                          "the store has %zu records; import into one that has none", l.count);
    size_t i = 0;
    if (rc == STORE_OK)
        rc = store_commit(b->s, &mark, 1, f);
    for (; rc == STORE_OK && i < l.count; i++)
        rc = batch_add(b, (store_change){ l.key[i], NULL, 0 }, NULL, l.key[i], f);
    for (; i < l.count; i++)
        free(l.key[i]);
    free(l.key);
    return rc;
}

/* Leases were extended and recovered since the copy was made: a manager that starts with it ends
   none before an operator has confirmed the clock (M-96). */
static bool hold_expiries(json_t *line, const char *value, size_t len)
{
    json_t *meta = json_loadb(value, len, 0, NULL);
    char *words = json_is_object(meta) && !json_object_set_new(meta, "held", json_true())
                      ? json_dumps(meta, JSON_COMPACT)
                      : NULL;
    bool good = words && !json_object_set_new(line, "value", json_string(words));
    free(words);
    json_decref(meta);
    return good;
}

static store_error import_line(batch *b, const char *file, json_t *j, store_fault *f)
{
    const char *key, *value;
    size_t len;
    if (json_unpack(j, "{s:s, s:s%}", "key", &key, "value", &value, &len) == 0 &&
        strcmp(key, "meta") == 0 && !hold_expiries(j, value, len))
        return damaged(file, "its record meta is invalid", f);
    if (json_unpack(j, "{s:s, s:s%}", "key", &key, "value", &value, &len) != 0)
        return damaged(file, "a line is not a record", f);
    return batch_add(b, (store_change){ key, value, len }, json_incref(j), NULL, f);
}

static store_error import_text(batch *b, const char *file, const text *t, uint64_t *records,
                               store_fault *f)
{
    size_t at = 0, end = 0, next;
    json_int_t wanted = 0;
    store_error rc = inspect(file, t, &at, &end, &wanted, f);
    if (rc == STORE_OK)
        rc = prepare(b, f);
    for (; rc == STORE_OK && at < end; at = next) {
        json_t *j = line_at(t, at, &next);
        rc = import_line(b, file, j, f);
        json_decref(j);
        ++*records;
    }
    if (rc == STORE_OK && *records != (uint64_t)wanted)
        rc = damaged(file, "records are missing", f);
    if (rc == STORE_OK)
        rc = batch_add(b, (store_change){ UNFINISHED, NULL, 0 }, NULL, NULL, f);
    if (rc == STORE_OK)
        rc = batch_flush(b, f);
    batch_drop(b);
    return rc;
}

store_error store_import(store *s, const char *file, uint64_t *records, store_fault *f)
{
    text t = { NULL, 0, 0 };
    batch *b = calloc(1, sizeof *b);
    store_error rc = b ? read_file(file, &t, f) : storei_fault(f, STORE_E_MEMORY, "out of memory");
    *records = 0;
    if (rc == STORE_OK && !t.len)
        rc = damaged(file, "it is empty", f);
    if (rc == STORE_OK) {
        b->s = s;
        rc = import_text(b, file, &t, records, f);
    }
    free(b);
    free(t.bytes);
    return rc;
}

static int see_one(void *user, const char *key, const void *value, size_t len)
{
    (void)value;
    (void)len;
    if (strcmp(key, UNFINISHED) == 0)
        *(bool *)user = true;
    return 0;
}

store_error store_check_import(store *s, store_fault *f)
{
    bool unfinished = false;
    store_error rc = store_load(s, UNFINISHED, see_one, &unfinished, f);
    if (rc != STORE_OK || !unfinished)
        return rc;
    return unfinished_fault(f);
}
