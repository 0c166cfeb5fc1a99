/* pool_events.c - dxpu events: what happened, and what happens
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool.h"
#include "pool_print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_EVENTS = 10, RECONNECT_MIN_MS = 100, RECONNECT_MAX_MS = 5000 };

/* One line; columns stay where they are while events arrive one by one. */
static void print_event(pool_call *r, json_t *event)
{
    const char *where = pool_string(event, "slot");
    char time[32], node[24];
    if (r->json) {
        print_json(json_incref(event), 0);
        return;
    }
    snprintf(node, sizeof node, "%" PRIu64, pool_integer(event, "node"));
    printf("%6" PRIu64 "  %-20s  %-16s  %-9s  %-8s  %s\n", pool_integer(event, "event"),
           pool_text_time(pool_string(event, "at"), time), pool_string(event, "type"),
           *pool_string(event, "lease") ? pool_string(event, "lease") : "-",
           !*where && strcmp(node, "0") != 0 ? node
           : *where                          ? where
                                             : "-",
           pool_string(event, "text"));
}

/* An event of the stream; what is not an event ends it. */
static bool on_event(void *user, const char *id, const char *data)
{
    pool_call *r = user;
    uint64_t number;
    json_t *event = json_loads(data, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(event)) {
        json_decref(event);
        pool_progress("an event that is not a JSON object is omitted");
        return true;
    }
    number = pool_integer(event, "event");
    if (number == 0)
        (void)options_number(id, INT64_MAX, &number);
    if (!r->json)
        pool_text_clean_json(event);
    print_event(r, event);
    if (number) /* also when it is lower: a manager whose store came out of a backup */
        r->after = number;
    json_decref(event);
    return fflush(stdout) == 0; /* the reader has gone */
}

static int follow(pool_call *r, const char *filter)
{
    char path[POOL_PATH_MAX + 64];
    unsigned retry_ms = RECONNECT_MIN_MS;
    bool said = false;
    while (!pool_signal(r)) {
        bool answered;
        pool_result result;
        snprintf(path, sizeof path, "/v1/events?%safter=%" PRIu64, filter, r->after);
        result = pool_client_stream(&r->client, path, r->after, on_event, r, &answered);
        if (ferror(stdout))
            break;
        if (result == POOL_WOKEN)
            continue;
        if (result == POOL_REFUSED && r->client.status < 500)
            return pool_failed(r, result);
        if (answered) {
            retry_ms = RECONNECT_MIN_MS;
            said = false;
        }
        if (!said)
            pool_progress("%s; trying again", r->client.why);
        said = true;
        (void)pool_sleep(r, retry_ms);
        retry_ms = retry_ms * 2 < RECONNECT_MAX_MS ? retry_ms * 2 : RECONNECT_MAX_MS;
    }
    return EXIT_ALL;
}

static void print_all(json_t *events)
{
    pool_table t;
    size_t index;
    json_t *event;
    pool_table_begin(&t, POOL_EVENT_TITLES);
    json_array_foreach(events, index, event) pool_event_row(&t, event);
    pool_print_table(&t);
}

/* What was before: all, or when others follow the last ones. */
static int before(pool_call *r, const char *filter)
{
    bool follows = (r->given & POOL_FOLLOW) != 0;
    size_t index, count = follows && !(r->given & POOL_AFTER) ? FIRST_EVENTS : POOL_ALL_EVENTS;
    json_t *events, *event, *o;
    int rc =
        pool_last_events(r, filter, r->given & POOL_LAST ? r->last : count, &events, &r->after);
    if (rc)
        return rc;
    if (follows) {
        json_array_foreach(events, index, event) print_event(r, event);
    } else if (r->json) {
        o = json_object();
        if (json_object_set(o, "events", events) ||
            json_object_set_new(o, "next", json_integer((json_int_t)r->after)))
            out_of_memory();
        print_json(o, 0);
    } else {
        print_all(events);
    }
    json_decref(events);
    return 0;
}

int pool_events(pool_call *r)
{
    char filter[POOL_PATH_MAX] = "", number[24];
    uint64_t node;
    int rc;
    if (r->lease && !pool_is_lease(r->lease))
        return options_wrong("'%s': a lease is a hex number, as in c00000003", r->lease);
    rc = pool_query(filter, "lease", r->lease);
    if (!rc)
        rc = pool_query(filter, "type", r->type);
    if (!rc && r->node) {
        rc = pool_find_node(r, "nodes", r->node, &node);
        snprintf(number, sizeof number, "%" PRIu64, rc ? 0 : node);
        rc = rc ? rc : pool_query(filter, "node", number);
    }
    if (!rc && r->given & POOL_FOLLOW)
        rc = pool_catch_signals(r, false);
    if (!rc)
        rc = before(r, filter);
    return rc || !(r->given & POOL_FOLLOW) ? rc : follow(r, filter);
}
