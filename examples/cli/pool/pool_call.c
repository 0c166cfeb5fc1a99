/* pool_call.c - questions to the manager, lists of many pages, what is said about failures
   SPDX-License-Identifier: MIT

   CONTENTS   1 Saying   2 Asking   3 Pages   4 Values   5 Signals and time */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    PAGE_ROWS = 500,
    PAGES_MAX = 2100, /* of a list: a manager that fills them has 1,048,576 slots at most */
    EVENT_PAGES_MAX = 1000,
    LAST_MAX = 1000,
    RETRY_MIN_MS = 100, /* doubling to RETRY_MAX_MS */
    RETRY_MAX_MS = 2000,
    RETRY_SEVERAL_MS = 400,  /* of several managers: the next leader serves within seconds */
    SOON_MS = 250,           /* where proxies are yet to register, or another manager leads */
    LIST_BYTES_MAX = 1 << 28 /* of its pages together: they are kept until the last one came */
};

/* ==== 1  Saying =============================================================================== */

int pool_fail(pool_call *r, int status, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(r->trouble, sizeof r->trouble, "%.500s", text);
    text_clean(r->trouble); /* cut within a character, perhaps */
    if (!r->quiet)
        log_error("%s", text);
    return status;
}

void pool_progress(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_info("%s", text);
}

int pool_failed(pool_call *r, pool_result result)
{
    if (result == POOL_WOKEN)
        return EXIT_WOKEN;
    if (r->json && result == POOL_REFUSED)
        (void)pool_print_answer(r);
    return pool_fail(r, result == POOL_REFUSED ? EXIT_REFUSED : EXIT_CONNECTION, "%s",
                     r->client.why);
}

int pool_misfit(pool_call *r, const char *what)
{
    return pool_fail(r, EXIT_CONNECTION, "%s: unexpected answer: %s", r->client.base, what);
}

int pool_print_answer(const pool_call *r)
{
    json_t *document = pool_client_document(&r->client);
    if (document)
        print_json(document, 0);
    return EXIT_ALL;
}

void pool_print_table(pool_table *t)
{
    pool_table_end(t, stdout, pool_terminal(stdout, NULL), pool_colors(stdout));
}

/* ==== 2  Asking =============================================================================== */

/* Between 0 and ms, so that clients that were refused together do not come back together. */
static unsigned jitter(unsigned ms)
{
    uint32_t random = 0;
    return getentropy(&random, sizeof random) ? 0 : random % (ms + 1);
}

/* What may be asked twice: a read, a lease with a key, and what certainly was not done. */
static bool may_ask_again(const pool_call *r, const char *method, const json_t *request)
{
    bool harmless = strcmp(method, "GET") == 0 || json_object_get(request, "key");
    return r->client.again == POOL_AGAIN_SAFE ||
           (r->client.again == POOL_AGAIN_UNKNOWN && harmless);
}

/* The answer; --retry: that of a later attempt. */
static pool_result ask_again(pool_call *r, const char *method, const char *path,
                             const json_t *request)
{
    uint64_t end_ms = pool_now_ms() + r->retry_s * 1000;
    unsigned pause_ms = RETRY_MIN_MS;
    unsigned most_ms = r->client.count > 1 ? RETRY_SEVERAL_MS : RETRY_MAX_MS;
    for (;;) {
        pool_result result = pool_client_ask(&r->client, method, path, request);
        unsigned wait_ms = r->client.soon ? SOON_MS : r->client.retry_after_s * 1000;
        if (result == POOL_DONE || result == POOL_WOKEN || r->quiet ||
            !may_ask_again(r, method, request))
            return result;
        wait_ms = wait_ms > pause_ms ? wait_ms : pause_ms;
        wait_ms += jitter(wait_ms);
        if (pool_now_ms() + wait_ms > end_ms)
            return result;
        if (pause_ms == RETRY_MIN_MS)
            pool_progress("%s; trying again", r->client.why);
        if (pool_sleep(r, wait_ms))
            return POOL_WOKEN;
        pause_ms = 2 * pause_ms < most_ms ? 2 * pause_ms : most_ms;
    }
}

/* n: what snprintf() said about the path. */
static int ask(pool_call *r, const char *method, json_t *request, const char *path, int n)
{
    pool_result result;
    if (n < 0 || n >= POOL_PATH_MAX) {
        json_decref(request);
        return options_wrong("a name is too long");
    }
    result = ask_again(r, method, path, request);
    json_decref(request);
    if (result == POOL_DONE && r->client.standby)
        pool_progress("no manager leads; a standby answered from the store");
    if (result == POOL_DONE && !r->client.body && !r->client.raw && strcmp(method, "GET") == 0)
        return pool_misfit(r, "it is empty");
    return result == POOL_DONE ? 0 : pool_failed(r, result);
}

int pool_ask(pool_call *r, const char *method, json_t *request, const char *format, ...)
{
    char path[POOL_PATH_MAX];
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(path, sizeof path, format, args);
    va_end(args);
    return ask(r, method, request, path, n);
}

int pool_get(pool_call *r, const char *format, ...)
{
    char path[POOL_PATH_MAX];
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(path, sizeof path, format, args);
    va_end(args);
    return ask(r, "GET", NULL, path, n);
}

int pool_query(char path[POOL_PATH_MAX], const char *name, const char *value)
{
    char escaped[POOL_PATH_MAX];
    size_t len = strlen(path);
    int n;
    if (!value)
        return 0;
    if (!pool_text_escape(value, escaped, sizeof escaped))
        return options_wrong("'%.60s...' is too long", value);
    n = snprintf(path + len, POOL_PATH_MAX - len, "%s=%s&", name, escaped);
    if (n < 0 || (size_t)n >= POOL_PATH_MAX - len)
        return options_wrong("'%.60s...' is too long", value);
    return 0;
}

/* ==== 3  Pages ================================================================================ */

/* The last answer's list under `key`; NULL: there is none.  *document is the caller's. */
static json_t *page(pool_call *r, const char *key, json_t **document)
{
    size_t index;
    json_t *row, *list;
    *document = r->json ? pool_client_document(&r->client) : json_incref(r->client.body);
    list = json_object_get(*document, key);
    json_array_foreach(list, index, row)
    {
        if (!json_is_object(row))
            list = NULL;
    }
    if (json_is_array(list))
        return list;
    json_decref(*document);
    *document = NULL;
    return NULL;
}

/* Where the next page begins, as text for a query; false: there is none. */
static bool more(const json_t *document, char text[64])
{
    const json_t *next = json_object_get(document, "next");
    if (json_is_integer(next))
        snprintf(text, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(next));
    else if (json_is_string(next))
        snprintf(text, 64, "%.63s", json_string_value(next));
    return json_is_integer(next) || json_is_string(next);
}

/* How much of a list has come. */
typedef struct amount {
    unsigned pages;
    size_t bytes;
} amount;

/* With the last answer; false: it is too much, or more rows than were asked for. */
static bool add_page(amount *a, const pool_call *r, const json_t *list, unsigned pages_max)
{
    a->pages++;
    a->bytes += r->client.bytes;
    return json_array_size(list) <= PAGE_ROWS && a->pages <= pages_max &&
           a->bytes <= LIST_BYTES_MAX;
}

int pool_pages(pool_call *r, const char *path, const char *key, bool limited, json_t **document)
{
    char after[64], at[POOL_PATH_MAX];
    json_t *whole = NULL, *one, *all = NULL, *list;
    amount got = { 0, 0 };
    bool go = true;
    int rc;
    snprintf(at, sizeof at, "%s", path);
    while (go) {
        rc = limited ? pool_get(r, "%slimit=%d", at, PAGE_ROWS) : pool_get(r, "%s", path);
        list = rc ? NULL : page(r, key, &one);
        if (!list) {
            json_decref(whole);
            return rc ? rc : pool_misfit(r, "it has no list");
        }
        go = limited && more(one, after);
        if (!whole) {
            whole = json_incref(one);
            all = list;
        } else if (json_array_extend(all, list)) {
            out_of_memory();
        }
        snprintf(at, sizeof at, "%s", path);
        rc = go ? pool_query(at, "after", after) : 0;
        if (!rc && limited &&
            (!add_page(&got, r, list, PAGES_MAX) || (go && !json_array_size(list))))
            rc = pool_misfit(r, "the list does not end");
        json_decref(one);
        if (rc) {
            json_decref(whole);
            return rc;
        }
    }
    if (json_object_get(whole, "next"))
        json_object_set_new(whole, "next", json_null()); /* as in the last page */
    *document = whole;
    return 0;
}

int pool_find_node(pool_call *r, const char *role, const char *name, uint64_t *number)
{
    char path[64];
    json_t *document, *node;
    size_t index;
    unsigned found = 0;
    int rc;
    if (options_number(name, UINT32_MAX, number))
        return 0;
    snprintf(path, sizeof path, "/v1/%s?", role);
    rc = pool_pages(r, path, "nodes", true, &document);
    if (rc == EXIT_REFUSED && r->client.status == 403)
        return pool_fail(r, rc, "names are for tokens that may list %s; name it by its number",
                         role);
    if (rc)
        return rc;
    json_array_foreach(json_object_get(document, "nodes"), index, node)
    {
        if (strcmp(pool_string(node, "name"), name) == 0) {
            *number = pool_integer(node, "node");
            found++;
        }
    }
    json_decref(document);
    if (found == 1)
        return 0;
    return pool_fail(r, EXIT_REFUSED, "%s of the %s %s called '%.64s'; 'dxpu list %s' shows %s",
                     found ? "several" : "none", role, found ? "are" : "is", name, role,
                     found ? "the number of each" : "those that you may name");
}

int pool_find_slot(pool_call *r, const char *name, char id[24])
{
    const char *dot = strrchr(name, '.');
    char node[80];
    uint64_t number, slot;
    int rc;
    if (pool_is_slot(name)) {
        snprintf(id, 24, "%s", name);
        return 0;
    }
    if (!dot || dot == name || (size_t)(dot - name) >= sizeof node ||
        !options_number(dot + 1, 65535, &slot) || strchr(name, '/'))
        return options_wrong("'%s': a slot is NODE.SLOT, as in 10.3 or shelf1.3", name);
    snprintf(node, sizeof node, "%.*s", (int)(dot - name), name);
    rc = pool_find_node(r, "boxes", node, &number);
    if (!rc)
        snprintf(id, 24, "%" PRIu64 ".%" PRIu64, number, slot);
    return rc;
}

/* Take over a page of events; *next stays after the last one.  0, or an exit status after saying
   why. */
static int take_events(pool_call *r, size_t count, json_t *events, uint64_t *next, amount *got)
{
    json_t *one, *list = page(r, "events", &one);
    uint64_t further = list ? pool_integer(one, "next") : 0;
    bool go = json_array_size(list) != 0;
    if (!list || (go && further <= *next) || !add_page(got, r, list, EVENT_PAGES_MAX)) {
        json_decref(one);
        return pool_misfit(r, "malformed or endless event list");
    }
    if (json_array_extend(events, list))
        out_of_memory();
    while (json_array_size(events) > count)
        json_array_remove(events, 0);
    if (go)
        *next = further;
    json_decref(one);
    return 0;
}

/* Of all that there are, in one answer. */
static int newest_events(pool_call *r, const char *filter, size_t count, json_t *events,
                         uint64_t *next)
{
    json_t *one, *list;
    int rc = pool_get(r, "/v1/events?%slast=%zu", filter, count);
    if (rc)
        return rc;
    list = page(r, "events", &one);
    *next = list ? pool_integer(one, "next") : 0;
    if (!list || json_array_size(list) > count)
        rc = pool_misfit(r, "no list, or more entries than requested");
    else if (json_array_extend(events, list))
        out_of_memory();
    json_decref(one);
    return rc;
}

static int later_events(pool_call *r, const char *filter, size_t count, json_t *events,
                        uint64_t *next)
{
    amount got = { 0, 0 };
    uint64_t before;
    int rc;
    do {
        before = *next;
        rc = pool_get(r, "/v1/events?%safter=%" PRIu64 "&limit=%d", filter, before, PAGE_ROWS);
        if (!rc)
            rc = take_events(r, count, events, next, &got);
    } while (!rc && *next != before);
    return rc;
}

int pool_last_events(pool_call *r, const char *filter, size_t count, json_t **events,
                     uint64_t *next)
{
    json_t *all = json_array();
    int rc;
    if (!all)
        out_of_memory();
    rc = count <= LAST_MAX && !*next ? newest_events(r, filter, count, all, next)
                                     : later_events(r, filter, count, all, next);
    if (rc)
        json_decref(all);
    else
        *events = all;
    return rc;
}

/* ==== 4  Values =============================================================================== */

const char *pool_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

uint64_t pool_integer(const json_t *object, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(object, key));
    return v > 0 ? (uint64_t)v : 0;
}

bool pool_is_slot(const char *text)
{
    char part[16];
    uint64_t v;
    size_t len = strcspn(text, ".");
    if (text[len] != '.' || len >= sizeof part)
        return false;
    snprintf(part, sizeof part, "%.*s", (int)len, text);
    return options_number(part, UINT32_MAX, &v) && options_number(text + len + 1, 65535, &v);
}

bool pool_is_lease(const char *text)
{
    size_t len = strlen(text);
    return len && len <= 16 && strspn(text, "0123456789abcdef") == len;
}

void pool_row(pool_table *t, const json_t *object, const char *keys)
{
    while (*keys) {
        char key[32];
        size_t len = strcspn(keys, " ");
        snprintf(key, sizeof key, "%.*s", (int)len, keys);
        pool_table_json(t, json_object_get(object, key));
        keys += len + (keys[len] == ' ');
    }
}

/* ==== 5  Signals and time ===================================================================== */

static int wake_pipe[2] = { -1, -1 };
static volatile sig_atomic_t last_signal;

static void on_signal(int number)
{
    int error = errno;
    if (number != SIGWINCH)
        last_signal = number;
    if (write(wake_pipe[1], "", 1) < 0) { /* it is full: awake it is */
    }
    errno = error;
}

int pool_catch_signals(pool_call *r, bool screen)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP };
    struct sigaction action;
    if (pipe(wake_pipe))
        return pool_fail(r, EXIT_USAGE, "%s", strerror(errno));
    for (unsigned i = 0; i < 2; i++) {
        (void)fcntl(wake_pipe[i], F_SETFL, O_NONBLOCK);
        (void)fcntl(wake_pipe[i], F_SETFD, FD_CLOEXEC);
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < (screen ? 5u : 3u); i++)
        (void)sigaction(signals[i], &action, NULL);
    r->client.wake_fd = wake_pipe[0];
    return 0;
}

int pool_signal(pool_call *r)
{
    char bytes[64];
    int caught;
    while (read(r->client.wake_fd, bytes, sizeof bytes) > 0)
        continue;
    caught = last_signal; /* two at once: the last one counts */
    last_signal = 0;
    return caught;
}

bool pool_sleep(const pool_call *r, unsigned ms)
{
    struct pollfd p = { 0, POLLIN, 0 };
    p.fd = r->client.wake_fd;
    return poll(&p, 1, (int)ms) > 0;
}
