/* store_sqlite.c - records in an SQLite database
   SPDX-License-Identifier: MIT

   Write-ahead log and synchronous=FULL: a commit returns after fsync.  The lock is held as long as
   the store is open, so that two managers cannot both believe that the pool is theirs. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "store_internal.h"
#include "durable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

/* In the header of the file, where file(1) looks for whose it is. */
enum {
    APPLICATION_ID = 0x64785055,
    SHARE = 512 /* changes: then writing them takes longer than waiting for the disk */
};

/* Behind its path: what was in a store that was removed while it was open. */
#define SAVED "-saved"

/* What leads from schema n to n + 1; what once stood here stays. */
static const char *const migrations[] = {
    "CREATE TABLE record (key TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL) WITHOUT ROWID",
};
enum { SCHEMA = sizeof migrations / sizeof migrations[0] };

/* Which file it is, whatever its name. */
typedef struct file_id {
    dev_t device;
    ino_t number; /* 0: none yet */
} file_id;

typedef struct sqlite_store {
    store base;
    sqlite3 *db;
    sqlite3_stmt *put, *del, *list;
    file_id file, log; /* of the open database, of its write-ahead log */
    bool failed;       /* what is on the disk is no longer known */
    char path[];
} sqlite_store;

static bool no_room(int system)
{
    return system == ENOSPC || system == EDQUOT || system == EFBIG;
}

/* The last errno of the database's file, or else of its log; 0: none is known. */
static int file_error(sqlite_store *s)
{
    sqlite3_file *log = NULL;
    int system = 0;
    (void)sqlite3_file_control(s->db, "main", SQLITE_FCNTL_LAST_ERRNO, &system);
    if (!system &&
        sqlite3_file_control(s->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK &&
        log && log->pMethods)
        log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &system);
    return system;
}

/* The errno behind the last result, of the log where a commit failed; 0: none is known. */
static int system_error(sqlite_store *s)
{
    int system = sqlite3_system_errno(s->db);
    return system || !s->db ? system : file_error(s);
}

static store_error unreadable(const sqlite_store *s, int system, store_fault *f)
{
    return storei_fault(f, STORE_E_IO, "%s cannot be read: %s; look at the disk, then start again",
                        s->path, strerror(system));
}

/* What SQLite's last result means to the manager. */
static store_error sqlite_fault(sqlite_store *s, store_fault *f)
{
    int code = sqlite3_extended_errcode(s->db), system = system_error(s);
    const char *text = sqlite3_errmsg(s->db);
    if ((code & 0xff) == SQLITE_FULL || (code == SQLITE_IOERR_WRITE && no_room(system)))
        return storei_fault(f, STORE_E_FULL, "%s: no room to write (%s); make room, then try again",
                            s->path, text);
    if (code == SQLITE_IOERR_NOMEM || (code & 0xff) == SQLITE_NOMEM)
        return storei_fault(f, STORE_E_MEMORY, "%s: out of memory; make room, then start again",
                            s->path);
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return storei_fault(f, STORE_E_LOCKED,
                            "%s is in use by another program; end that one first", s->path);
    case SQLITE_NOTADB:
        return storei_fault(
            f, STORE_E_CORRUPT,
            "%s is not a store of a manager (%s); name another file, or if it was one, "
            "put a backup in its place",
            s->path, text);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return storei_fault(
            f, STORE_E_IO,
            "%s: %s; the file, its directory and the file system must be writable for the "
            "manager's user",
            s->path, text);
    case SQLITE_CORRUPT: /* as which a read that failed is reported, too */
        if (system)
            return unreadable(s, system, f);
        return storei_fault(f, STORE_E_CORRUPT, "%s is damaged (%s); put a backup in its place",
                            s->path, text);
    default:
        return storei_fault(f, STORE_E_IO,
                            "%s: %s%s%s; look at the disk and the permissions, then start "
                            "again",
                            s->path, text, system ? ": " : "", system ? strerror(system) : "");
    }
}

static store_error run(sqlite_store *s, const char *sql, store_fault *f)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? STORE_OK : sqlite_fault(s, f);
}

/* The first column of the first row, as text; "" when there is none. */
static store_error ask(sqlite_store *s, const char *sql, char *out, size_t room, store_fault *f)
{
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(s->db, sql, -1, &query, NULL) != SQLITE_OK)
        return sqlite_fault(s, f);
    int rc = sqlite3_step(query);
    const unsigned char *text = rc == SQLITE_ROW ? sqlite3_column_text(query, 0) : NULL;
    snprintf(out, room, "%s", text ? (const char *)text : "");
    store_error result = rc == SQLITE_ROW || rc == SQLITE_DONE ? STORE_OK : sqlite_fault(s, f);
    sqlite3_finalize(query);
    return result;
}

static store_error ask_number(sqlite_store *s, const char *sql, long *out, store_fault *f)
{
    char text[32];
    store_error rc = ask(s, sql, text, sizeof text, f);
    if (rc == STORE_OK)
        *out = strtol(text, NULL, 10);
    return rc;
}

/* Is it ours, sound, and not from the future?  Looked at before anything in it is changed. */
static store_error inspect(sqlite_store *s, long *version, store_fault *f)
{
    long id = 0, tables = 0;
    char text[200];
    int system;
    store_error rc = run(s, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA cell_size_check=ON", f);
    if (rc == STORE_OK)
        rc = ask_number(s, "SELECT count(*) FROM sqlite_schema", &tables, f);
    if (rc == STORE_OK)
        rc = ask_number(s, "PRAGMA application_id", &id, f);
    if (rc == STORE_OK)
        rc = ask_number(s, "PRAGMA user_version", version, f);
    if (rc != STORE_OK)
        return rc;
    if (id != APPLICATION_ID && (id || tables || *version))
        return storei_fault(f, STORE_E_FOREIGN,
                            "%s is another program's database; name another file", s->path);
    if (*version < 0 || *version > SCHEMA)
        return storei_fault(
            f, STORE_E_NEWER,
            "%s has schema %ld, this program knows up to %d; run the version that wrote it",
            s->path, *version, (int)SCHEMA);
    rc = ask(s, "PRAGMA quick_check(1)", text, sizeof text, f);
    if (rc != STORE_OK || strcmp(text, "ok") == 0)
        return rc;
    system = file_error(s);
    if (system) /* the check takes a page that cannot be read for a damaged one */
        return unreadable(s, system, f);
    return storei_fault(f, STORE_E_CORRUPT, "%s is damaged (%s); put a backup in its place",
                        s->path, text);
}

/* All steps in one transaction: an interrupted migration leaves the old schema. */
static store_error migrate(sqlite_store *s, long version, store_fault *f)
{
    char sql[80];
    if (version == SCHEMA)
        return STORE_OK;
    store_error rc = run(s, "BEGIN EXCLUSIVE", f);
    for (; rc == STORE_OK && version < SCHEMA; version++)
        rc = run(s, migrations[version], f);
    snprintf(sql, sizeof sql, "PRAGMA application_id=%d; PRAGMA user_version=%d",
             (int)APPLICATION_ID, (int)SCHEMA);
    if (rc == STORE_OK)
        rc = run(s, sql, f);
    if (rc == STORE_OK)
        rc = run(s, "COMMIT", f);
    return rc;
}

static store_error prepare(sqlite_store *s, store_fault *f)
{
    static const char put[] = "INSERT INTO record VALUES (?1, ?2) "
                              "ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    static const char list[] = "SELECT key, value FROM record "
                               "WHERE key >= ?1 AND key < ?1 || char(127) ORDER BY key";
    bool good = sqlite3_prepare_v2(s->db, put, -1, &s->put, NULL) == SQLITE_OK &&
                sqlite3_prepare_v2(s->db, "DELETE FROM record WHERE key = ?1", -1, &s->del, NULL) ==
                    SQLITE_OK &&
                sqlite3_prepare_v2(s->db, list, -1, &s->list, NULL) == SQLITE_OK;
    return good ? STORE_OK : sqlite_fault(s, f);
}

static store_error set_up(sqlite_store *s, store_fault *f)
{
    char mode[16];
    long version = 0;
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    store_error rc = inspect(s, &version, f);
    if (rc == STORE_OK)
        rc = ask(s, "PRAGMA journal_mode=WAL", mode, sizeof mode, f);
    if (rc == STORE_OK && strcmp(mode, "wal") != 0)
        rc =
            storei_fault(f, STORE_E_IO,
                         "%s: no write-ahead log on this file system; name another place", s->path);
    if (rc == STORE_OK)
        rc = run(s, "PRAGMA synchronous=FULL", f);
    if (rc == STORE_OK)
        rc = migrate(s, version, f);
    return rc == STORE_OK ? prepare(s, f) : rc;
}

/* -- Removed -- */

/* Which file stands there: 0 for none.  False: it could not be looked at, which says nothing. */
static bool file_of(const char *path, const char *end, file_id *id)
{
    struct stat found;
    char name[4096];
    int len = snprintf(name, sizeof name, "%s%s", path, end);
    *id = (file_id){ 0, 0 };
    if (len <= 0 || (size_t)len >= sizeof name)
        return true;
    if (stat(name, &found))
        return errno == ENOENT || errno == ENOTDIR;
    *id = (file_id){ found.st_dev, found.st_ino };
    return true;
}

static bool is_same(file_id a, file_id b)
{
    return a.number == b.number && a.device == b.device;
}

static int open_file(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, flags, 0600);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* All that is known, beside the file that is gone: a store that is new would know of no lease. */
static bool save(sqlite_store *s)
{
    sqlite3_stmt *copy;
    char name[4096];
    int len = snprintf(name, sizeof name, "%s%s", s->path, SAVED);
    bool good = len > 0 && (size_t)len < sizeof name &&
                sqlite3_prepare_v2(s->db, "VACUUM INTO ?1", -1, &copy, NULL) == SQLITE_OK;
    if (!good)
        return false;
    good = sqlite3_bind_text(copy, 1, name, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_step(copy) == SQLITE_DONE;
    sqlite3_finalize(copy);
    int fd = good ? open_file(name, O_RDONLY | O_CLOEXEC) : -1;
    good = fd >= 0 && !fsync(fd) && !durable_name(name);
    if (fd >= 0)
        close(fd);
    return good;
}

/* A file without a name takes what is written, and keeps nothing. */
static store_error sqlite_check(store *base, store_fault *f)
{
    sqlite_store *s = (sqlite_store *)base;
    char log[4096];
    if (s->failed)
        return storei_fault(f, STORE_E_IO, "%s failed before; start again", s->path);
    file_id file, wal;
    if (!file_of(s->path, "", &file) || !file_of(s->path, "-wal", &wal))
        return STORE_OK; /* as far as anybody knows: it is looked at again */
    if (!s->log.number)  /* it may begin with the first commit */
        s->log = wal;
    bool there = is_same(s->file, file), log_there = is_same(s->log, wal);
    if (there && log_there)
        return STORE_OK;
    s->failed = true;
    if (there) {
        (void)sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_FULL, NULL, NULL);
        return storei_fault(f, STORE_E_IO, "%s-wal was removed or replaced; start again", s->path);
    }
    bool saved = save(s);
    snprintf(log, sizeof log, "%s-wal", s->path);
    if (log_there) /* or it would be taken for that of the file which is put there */
        unlink(log);
    if (saved)
        return storei_fault(
            f, STORE_E_IO,
            "%s was removed or replaced; its contents are in %s%s: move that file there, "
            "then start again",
            s->path, s->path, SAVED);
    return storei_fault(f, STORE_E_IO,
                        "%s was removed or replaced; put a backup in its place, then start again",
                        s->path);
}

/* -- The interface -- */

static store_error sqlite_load(store *base, const char *prefix, store_each each, void *user,
                               store_fault *f)
{
    sqlite_store *s = (sqlite_store *)base;
    int rc = sqlite3_bind_text(s->list, 1, prefix, -1, SQLITE_STATIC);
    bool go = rc == SQLITE_OK;
    while (go && (rc = sqlite3_step(s->list)) == SQLITE_ROW) {
        const void *value = sqlite3_column_blob(s->list, 1);
        go = !each(user, (const char *)sqlite3_column_text(s->list, 0), value ? value : "",
                   (size_t)sqlite3_column_bytes(s->list, 1));
    }
    store_error result = !go || rc == SQLITE_DONE ? STORE_OK : sqlite_fault(s, f);
    sqlite3_reset(s->list);
    return result;
}

static store_error apply(sqlite_store *s, const store_change *c, store_fault *f)
{
    sqlite3_stmt *change = c->value ? s->put : s->del;
    bool good = sqlite3_bind_text(change, 1, c->key, -1, SQLITE_STATIC) == SQLITE_OK;
    if (good && c->value)
        good = sqlite3_bind_blob(change, 2, c->len ? c->value : "", (int)c->len, SQLITE_STATIC) ==
               SQLITE_OK;
    good = good && sqlite3_step(change) == SQLITE_DONE;
    store_error rc = good ? STORE_OK : sqlite_fault(s, f);
    sqlite3_reset(change);
    sqlite3_clear_bindings(change);
    return rc;
}

static store_error sqlite_commit(store *base, const store_change *changes, unsigned count,
                                 store_fault *f)
{
    sqlite_store *s = (sqlite_store *)base;
    if (s->failed)
        return storei_fault(f, STORE_E_IO, "%s failed before; start again", s->path);
    store_error rc = storei_check(changes, count, f);
    if (rc != STORE_OK)
        return rc;
    rc = run(s, "BEGIN IMMEDIATE", f);
    for (unsigned i = 0; rc == STORE_OK && i < count; i++)
        rc = apply(s, &changes[i], f);
    if (rc == STORE_OK)
        rc = run(s, "COMMIT", f);
    if (rc == STORE_OK)
        return sqlite_check(base, f);
    /* Some errors have ended the transaction already.  Where it cannot be undone, and where an
       fsync failed, the disk's contents are unknown. */
    if (rc != STORE_OK && !sqlite3_get_autocommit(s->db) &&
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK)
        rc = storei_fault(f, STORE_E_IO, "%s: a change could not be undone; start again", s->path);
    s->failed = rc == STORE_E_IO || rc == STORE_E_CORRUPT || rc == STORE_E_MEMORY;
    return rc;
}

static void sqlite_close(store *base)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite3_finalize(s->put);
    sqlite3_finalize(s->del);
    sqlite3_finalize(s->list);
    sqlite3_close(s->db);
    free(s);
}

/* A store that lost its contents must not become a new pool, which would know of no lease. */
static bool is_empty(const char *path, store_fault *f)
{
    struct stat found;
    if (stat(path, &found) || !S_ISREG(found.st_mode) || found.st_size)
        return false;
    storei_fault(
        f, STORE_E_CORRUPT,
        "%s has 0 bytes, so it is not a store; put a backup in its place, or remove it to begin "
        "with an empty pool",
        path);
    return true;
}

store *store_open_sqlite(const char *path, store_fault *f)
{
    static const store_kind kind = { .load = sqlite_load,
                                     .commit = sqlite_commit,
                                     .check = sqlite_check,
                                     .close = sqlite_close,
                                     .share = SHARE };
    size_t len = strlen(path) + 1;
    file_id file, saved;
    if (file_of(path, "", &file) && !file.number && file_of(path, SAVED, &saved) && saved.number) {
        storei_fault(
            f, STORE_E_IO,
            "%s is not there, and %s%s was saved when it was removed: move that one there, or "
            "elsewhere to begin with none",
            path, path, SAVED);
        return NULL;
    }
    /* Made here, since SQLite would let everybody read it.  One that is there is not touched:
       closing it would drop the locks that this process may have on it. */
    int fd = open_file(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC);
    if (fd < 0 && errno != EEXIST) {
        storei_fault(f, no_room(errno) ? STORE_E_FULL : STORE_E_IO, "cannot open %s: %s", path,
                     strerror(errno));
        return NULL;
    }
    bool made = fd >= 0;
    if (made)
        close(fd);
    else if (access(path, R_OK | W_OK)) { /* SQLite would only say that a descriptor is bad */
        storei_fault(f, STORE_E_IO,
                     "cannot write %s: %s; it must be writable to the manager's user", path,
                     strerror(errno));
        return NULL;
    } else if (is_empty(path, f)) {
        return NULL;
    }
    sqlite_store *s = calloc(1, sizeof *s + len);
    if (!s) {
        storei_fault(f, STORE_E_MEMORY, "out of memory");
        return NULL;
    }
    s->base.kind = &kind;
    memcpy(s->path, path, len);
    int rc = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE, NULL);
    if (rc == SQLITE_OK && set_up(s, f) == STORE_OK) {
        if (file_of(path, "", &s->file) && file_of(path, "-wal", &s->log))
            return &s->base;
        storei_fault(f, STORE_E_IO, "cannot look at %s: %s", path, strerror(errno));
    }
    if (rc != SQLITE_OK)
        sqlite_fault(s, f);
    sqlite_close(&s->base);
    store_fault empty;
    if (made && is_empty(path, &empty)) /* nothing was written: the next start makes it */
        unlink(path);
    return NULL;
}

struct sqlite3 *store_database(store *s)
{
    return ((sqlite_store *)s)->db;
}
