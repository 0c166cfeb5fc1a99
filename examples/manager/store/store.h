/* store.h - where the manager keeps what it must not forget: records, changed together or not at
   all
   SPDX-License-Identifier: MIT

   A record is a key (`lease/17`) and a value.  The interface is this narrow so that a store of
   several managers can take the place of SQLite, which is for one. */
#ifndef STORE_H_INCLUDED
#define STORE_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stats.h"

enum { STORE_KEY_MAX_BYTES = 200, STORE_VALUE_MAX_BYTES = 1 << 20, STORE_CHANGES_MAX = 2048 };

typedef enum store_error {
    STORE_OK = 0,
    STORE_E_ARG,     /* a key, a value or a number of changes outside its range */
    STORE_E_FULL,    /* no room to write; nothing changed, it may be tried again */
    STORE_E_AWAY,    /* etcd cannot be reached; nothing changed, it may be tried again */
    STORE_E_LOCKED,  /* another program has the store open */
    STORE_E_CORRUPT, /* the file is damaged */
    STORE_E_FOREIGN, /* the file is another program's */
    STORE_E_NEWER,   /* written by a newer version of this program */
    STORE_E_IO,      /* reading or writing failed; see store_commit() */
    STORE_E_MEMORY   /* out of memory; for store_commit() as STORE_E_IO */
} store_error;

/* What went wrong, and what to do about it. */
typedef struct store_fault {
    store_error code;
    char text[512];
} store_fault;

typedef struct store_change {
    const char *key;   /* 1..STORE_KEY_MAX_BYTES printable ASCII characters without space */
    const void *value; /* NULL: delete the record, if there is one */
    size_t len;        /* 0..STORE_VALUE_MAX_BYTES */
} store_change;

/* key and value are good until it returns.  Anything but 0 ends the loading. */
typedef int (*store_each)(void *user, const char *key, const void *value, size_t len);

typedef struct store store;
typedef struct store_kind {
    store_error (*load)(store *s, const char *prefix, store_each each, void *user, store_fault *f);
    store_error (*commit)(store *s, const store_change *changes, unsigned count, store_fault *f);
    store_error (*check)(store *s, store_fault *f); /* or NULL */
    unsigned (*check_ms)(const store *s);           /* or NULL */
    bool (*sure)(const store *s);                   /* or NULL */
    void (*close)(store *s);
    unsigned share; /* changes of a commit up to which one costs less than two; 0: any number */
} store_kind;
struct store {
    const store_kind *kind;
    uint64_t changes;    /* of all commits */
    histogram commit_ns; /* how long they took */
};

/* Open the SQLite database `path`, made when it is not there; it is this program's alone until
   store_close().  A file of 0 bytes is STORE_E_CORRUPT, and stays as it is.  An older schema
   is brought up to date.  NULL after an error, with *f filled. */
store *store_open_sqlite(const char *path, store_fault *f);

/* The store below an address of etcd; see store_open_etcd(). */
typedef struct store_etcd_settings {
    const char *where;           /* etcd://HOST[:PORT][,HOST[:PORT]...][/PREFIX] */
    const char *ca, *cert, *key; /* files for TLS; ca NULL: none, and only on this machine */
    const char *name;            /* of this manager, for others that find the store in use, */
    const char *users;           /* and where its users are, a URL; NULL: not said */
    bool reader;                 /* loads alone, also while a manager leads */
    /* While another leads, or (NULL) etcd cannot be used, and why: false ends the waiting.  Not
       set: it is waited only for a lease that is not renewed. */
    bool (*waiting)(const char *leader, const char *why);
    unsigned request_ms; /* one attempt of a request [1,000] */
    unsigned commit_ms;  /* all attempts of a transaction of a commit [4,000] */
    unsigned load_ms;    /* all attempts of a page of a load [4,000] */
    unsigned ttl_s;      /* of the lease on the leader's key [3] */
    unsigned compact_ms; /* how much of etcd's history is kept [300,000] */
} store_etcd_settings;
void store_etcd_default(store_etcd_settings *set);
/* Is it an address of etcd, and not a file? */
bool store_etcd_is(const char *where);
/* NULL, or what is wrong with these settings. */
const char *store_etcd_check(const store_etcd_settings *set);

/* The records below the prefix, which are this program's alone: it has the leader's key, under a
   lease that it renews in store_check(), which must be called after store_check_ms().  A commit is
   made only while etcd has the same key, so that a program that lost it changes nothing any more.
   A program that ended without store_close() keeps others out for ttl_s; that long this waits.  A
   reader takes no key, and each of its loads has the records of one moment. */
store *store_open_etcd(const store_etcd_settings *set, store_fault *f);

enum { STORE_NAME_BYTES = 128, STORE_USERS_BYTES = 200 };

/* What a reader sees of the others. */
typedef struct store_seen {
    uint64_t revision;             /* of the last commit; 0: there is none */
    bool leads;                    /* some manager does, */
    char name[STORE_NAME_BYTES];   /* of this name, */
    char users[STORE_USERS_BYTES]; /* a URL, where its users are; "": it does not say */
} store_seen;

/* Of a reader in etcd.  From now on its loads have the records of that revision, all of them,
   as long as etcd's history has it: minutes. */
store_error store_etcd_see(store *s, store_seen *out, store_fault *f);

/* Every record whose key begins with `prefix`, in order of the keys.  Not from inside `each`: a
   commit.  *f is filled unless the result is STORE_OK; so it is below. */
store_error store_load(store *s, const char *prefix, store_each each, void *user, store_fault *f);

/* Make all the changes in their order, and return when they are on the disk (with etcd, of most
   members); or make none.  After STORE_E_IO it is unknown which (the disk may have kept what it
   said it lost): every further commit fails until the store is closed, opened and loaded again. */
store_error store_commit(store *s, const store_change *changes, unsigned count, store_fault *f);

/* How many changes it is worth to make in one commit, where they need not be one. */
unsigned store_share(const store *s);

/* Is it still where it was opened?  store_commit() asks by itself; between two commits somebody may
   remove the file.  STORE_E_IO then; what was in it is in a file beside it, where there is room.
   Of etcd: is this program still the leader?  STORE_E_IO: not, or that cannot be known. */
store_error store_check(store *s, store_fault *f);
/* After how many milliseconds it has to be called again, whatever else happens; UINT_MAX: it need
   not be. */
unsigned store_check_ms(const store *s);

/* Is it certain that no other program has changed the store by now?  Of etcd: not from the moment
   at which the lease may have ended, though it may be renewed yet. */
bool store_is_sure(const store *s);

/* Commits that were made since it was opened, how many changes they had, how long they took. */
void store_report(const store *s, report *r);

void store_close(store *s); /* NULL: nothing */

/* The database below a store in SQLite, which no other program can open meanwhile: for tests. */
struct sqlite3 *store_database(store *s);

#endif /* STORE_H_INCLUDED */
