/* pool.h - what the commands that go to the manager share: options, questions, output
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_POOL_H
#define DXPU_CLI_POOL_H

#include "command.h"
#include "log.h"
#include "options.h"
#include "pool_client.h"
#include "pool_table.h"
#include "pool_text.h"
#include "print_json.h"

#include <stdio.h>

enum { POOL_WORDS_MAX = 2, POOL_PATH_MAX = 1024, POOL_WAIT_S = 60 };
enum { EXIT_WOKEN = -1 }; /* a signal came: nothing is wrong, nothing more is done */

/* Options that were given, in `given`. */
enum {
    POOL_STATE = 1 << 0,
    POOL_MODEL = 1 << 1,
    POOL_NODE = 1 << 2,
    POOL_TENANT = 1 << 3,
    POOL_FOR = 1 << 4,
    POOL_NO_REPLACE = 1 << 5,
    POOL_WAIT = 1 << 6,
    POOL_KEEP = 1 << 7,
    POOL_NO_END = 1 << 8,
    POOL_MOVE = 1 << 9,
    POOL_OFF = 1 << 10,
    POOL_FOLLOW = 1 << 11,
    POOL_AFTER = 1 << 12,
    POOL_LAST = 1 << 13,
    POOL_FAILURES = 1 << 14,
    POOL_REPAIR = 1 << 15,
    POOL_RISK = 1 << 16,
    POOL_NO_OWNER = 1 << 17,
    POOL_YES = 1 << 18,
    POOL_REPLACE = 1 << 19,
    POOL_FORCE = 1 << 20,
    POOL_HOST = 1 << 21,
    POOL_QUOTA = 1 << 22,
    POOL_ALL = 1 << 23,
    POOL_DRY_RUN = 1 << 24,
    POOL_ATTRIBUTES = 1 << 25,
    POOL_DEVICE = 1 << 26,
    POOL_DIRECT = 1 << 27,
    POOL_NO_DIRECT = 1 << 28
};

typedef struct pool_call pool_call;

struct pool_call {
    const option_verb *verb;
    const char *word[POOL_WORDS_MAX];
    unsigned words, given; /* given: bits of options */
    bool json, confirmed;  /* confirmed: it may erase data */
    bool replace, no_replace, keep, no_end, move, off, follow, no_owner, yes, force, all, dry_run,
        exclusive, apart, direct, no_direct;
    pool_settings settings;
    const char *state, *model, *attributes, *device, *peer, *node, *tenant, *host, *need, *key,
        *quota, *lease, *type, *failures, *repair, *risk;
    uint64_t timeout_s, retry_s, count, for_s, after, last, every_s;
    uint64_t wait_s;   /* UINT64_MAX: no number was given */
    bool quiet;        /* standard error is not to be written to: it shows the screen */
    char trouble[512]; /* the last complaint */
    pool_client client;
};

/* ---- pool_command.c ---- */

/* A sentence on standard error (or in r->trouble alone) behind the command's name; returns
   status. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int pool_fail(pool_call *r, int status, const char *format, ...);
/* 0, or EXIT_USAGE after a message that names those of these options (bits) that were not given. */
int pool_need(const pool_call *r, unsigned options);
/* The name of an option among these bits. */
const char *pool_option_name(unsigned bits);
/* How far it is: a message that -q leaves out. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void pool_progress(const char *format, ...);
/* The exit status of an answer that is not POOL_DONE, after saying why; with --json what the
   manager said about it is printed. */
int pool_failed(pool_call *r, pool_result result);
/* An answer that does not fit the question: EXIT_CONNECTION. */
int pool_misfit(pool_call *r, const char *what);
/* 0 and r->client.body, or an exit status after saying why.  request is released. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
int pool_ask(pool_call *r, const char *method, json_t *request, const char *format, ...);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int pool_get(pool_call *r, const char *format, ...);
/* The last answer, as the manager said it; EXIT_ALL. */
int pool_print_answer(const pool_call *r);

/* All pages (limited; else it has but one) of a list under `key`; path ends with & or ?.
   0, and one document: with --json with nothing cleaned, else cleaned. */
int pool_pages(pool_call *r, const char *path, const char *key, bool limited, json_t **document);
/* The number of the node that `name` names, or is; role: "hosts", "boxes" or "nodes". */
int pool_find_node(pool_call *r, const char *role, const char *name, uint64_t *number);
/* "10.3" of what may be "shelf1.3": 0, or an exit status after saying why. */
int pool_find_slot(pool_call *r, const char *name, char id[24]);
/* name=value& of a query; value NULL: nothing.  EXIT_USAGE when it is too long. */
int pool_query(char path[POOL_PATH_MAX], const char *name, const char *value);
/* The last `count` events (POOL_ALL_EVENTS: all) behind *next that filter ("lease=c3&") lets
   through, oldest first, and the number behind which later ones come. */
#define POOL_ALL_EVENTS SIZE_MAX
int pool_last_events(pool_call *r, const char *filter, size_t count, json_t **events,
                     uint64_t *next);

/* "" when it is no string. */
const char *pool_string(const json_t *object, const char *key);
/* 0 when it is no integer above. */
uint64_t pool_integer(const json_t *object, const char *key);
bool pool_is_slot(const char *text);
bool pool_is_lease(const char *text);
/* Table to standard output. */
void pool_print_table(pool_table *t);
/* Add the keys of each object of a list as cells: "slot state model". */
void pool_row(pool_table *t, const json_t *object, const char *keys);
/* Wait that long, or until wake_fd is readable (true). */
bool pool_sleep(const pool_call *r, unsigned ms);
/* From now on Ctrl-C, SIGTERM and SIGHUP (screen: Ctrl-Z and a new window size as well) wake
   r->client.wake_fd. */
int pool_catch_signals(pool_call *r, bool screen);
/* Forget what woke it; the last signal but of the window's size, 0: none. */
int pool_signal(pool_call *r);

/* Show what a request ("request=replace&slot=10.3") would erase, and ask.  0: it may go on; else an
   exit status after saying why. */
int pool_confirm(pool_call *r, const char *query);
/* The query that says so to the manager, or "". */
const char *pool_erase(const pool_call *r);
/* The last answer is a lease: print it, after waiting until it is up when that is asked for. */
int pool_finish_lease(pool_call *r);

/* ---- the commands ---- */

int pool_overview(pool_call *r);
int pool_list(pool_call *r);
int pool_show(pool_call *r);
int pool_lease_create(pool_call *r);
int pool_lease_release(pool_call *r);
int pool_lease_extend(pool_call *r);
int pool_lease_recover(pool_call *r);
int pool_lease_discard(pool_call *r);
int pool_clock_confirm(pool_call *r);
int pool_adopt(pool_call *r);
int pool_backup(pool_call *r);
int pool_lease_attach(pool_call *r);
int pool_lease_park(pool_call *r);
int pool_drain(pool_call *r);
int pool_direct(pool_call *r);
int pool_slot(pool_call *r); /* replace, break, repair, reset */
int pool_forget(pool_call *r);
int pool_rekey(pool_call *r);
int pool_set_owner(pool_call *r);
int pool_set_tenant(pool_call *r);
int pool_set_spares(pool_call *r);
int pool_events(pool_call *r);
int pool_top(pool_call *r);

#endif
