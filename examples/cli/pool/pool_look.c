/* pool_look.c - dxpu pool, list, show: what the manager knows
   SPDX-License-Identifier: MIT

   CONTENTS   1 The pool   2 Lists   3 One node, slot or lease */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool.h"
#include "pool_print.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_EVENTS = 10 };

/* ==== 1  The pool ============================================================================= */

int pool_overview(pool_call *r)
{
    int rc = pool_get(r, "/v1/pool");
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    if (!pool_is_overview(r->client.body))
        return pool_misfit(r, "it is not an overview of a pool");
    pool_print_overview(r->client.body, stdout, pool_terminal(stdout, NULL), pool_colors(stdout));
    return EXIT_ALL;
}

/* ==== 2  Lists ================================================================================ */

typedef struct list_kind {
    const char *name, *key;
    unsigned options;
    const char *node; /* the query's name of --node */
    bool pages;
    const char *titles;
    void (*row)(pool_table *t, const json_t *o);
} list_kind;

static void tenant_row(pool_table *t, const json_t *o)
{
    const json_t *quota = json_object_get(o, "quota");
    pool_row(t, o, "tenant used");
    if (json_is_null(quota))
        pool_table_add(t, "none");
    else
        pool_table_json(t, quota);
}

static const list_kind kinds[] = {
    { "boxes", "nodes", POOL_STATE, NULL, true, POOL_BOX_TITLES, pool_box_row },
    { "hosts", "nodes", POOL_STATE, NULL, true, POOL_HOST_TITLES, pool_host_row },
    { "slots", "slots", POOL_STATE | POOL_MODEL | POOL_ATTRIBUTES | POOL_DEVICE | POOL_NODE, "node",
      true, POOL_SLOT_TITLES, pool_slot_row },
    { "leases", "leases", POOL_STATE | POOL_NODE | POOL_TENANT, "host", true, POOL_LEASE_TITLES,
      pool_lease_row },
    { "tenants", "tenants", 0, NULL, false, "tenant|+used|+quota", tenant_row },
};

static const list_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    }
    return NULL;
}

static void print_rows(const json_t *list, const list_kind *kind)
{
    pool_table t;
    size_t index;
    json_t *row;
    pool_table_begin(&t, kind->titles);
    json_array_foreach(list, index, row) kind->row(&t, row);
    pool_print_table(&t);
}

/* The slot with the first function of a slot's device; 0, or an exit status after saying why. */
static int find_device(pool_call *r, char id[24])
{
    int rc = pool_find_slot(r, r->device, id);
    if (!rc)
        rc = pool_get(r, "/v1/slots/%s", id);
    if (!rc && pool_is_slot(pool_string(r->client.body, "device")))
        snprintf(id, 24, "%.23s", pool_string(r->client.body, "device"));
    return rc;
}

/* The filters as a query; 0, or an exit status after saying why. */
static int filters(pool_call *r, const list_kind *kind, char path[POOL_PATH_MAX])
{
    char number[24], device[24];
    uint64_t node = 0;
    int rc = 0;
    if (r->given & ~kind->options)
        return options_wrong("%s cannot be chosen by %s", kind->name,
                             pool_option_name(r->given & ~kind->options));
    if (r->node) {
        rc = pool_find_node(r, strcmp(kind->node, "host") == 0 ? "hosts" : "boxes", r->node, &node);
        snprintf(number, sizeof number, "%" PRIu64, node);
    }
    snprintf(path, POOL_PATH_MAX, "/v1/%s?", kind->name);
    if (!rc && strcmp(kind->key, "nodes") != 0)
        rc = pool_query(path, "state", r->state);
    else if (!rc && r->state && strcmp(r->state, "connected") && strcmp(r->state, "disconnected"))
        rc = options_wrong("%s are connected or disconnected, not '%s'", kind->name, r->state);
    if (!rc)
        rc = pool_query(path, "model", r->model);
    if (!rc)
        rc = pool_query(path, "attributes", r->attributes);
    if (!rc && r->device)
        rc = find_device(r, device);
    if (!rc && r->device)
        rc = pool_query(path, "device", device);
    if (!rc)
        rc = pool_query(path, "tenant", r->tenant);
    if (!rc && r->node)
        rc = pool_query(path, kind->node, number);
    return rc;
}

/* The manager has no such filter. */
static void keep_nodes(json_t *nodes, bool connected)
{
    for (size_t i = json_array_size(nodes); i-- > 0;) {
        const json_t *node = json_array_get(nodes, i);
        if (!json_equal(json_object_get(node, "connected"), connected ? json_true() : json_false()))
            (void)json_array_remove(nodes, i);
    }
}

int pool_list(pool_call *r)
{
    char path[POOL_PATH_MAX];
    const list_kind *kind = find_kind(r->word[0]);
    json_t *document;
    int rc;
    if (!kind)
        return options_wrong("no list of '%s'; there are %s", r->word[0], r->verb->words);
    rc = filters(r, kind, path);
    if (!rc)
        rc = pool_pages(r, path, kind->key, kind->pages, &document);
    if (rc)
        return rc;
    if (r->state && strcmp(kind->key, "nodes") == 0)
        keep_nodes(json_object_get(document, "nodes"), strcmp(r->state, "connected") == 0);
    if (r->json) {
        print_json(document, 0);
        return EXIT_ALL;
    }
    print_rows(json_object_get(document, kind->key), kind);
    json_decref(document);
    return EXIT_ALL;
}

/* ==== 3  One node, slot or lease ============================================================== */

/* Everything that an object says, a line each; lists are shown by themselves. */
static void print_members(json_t *o)
{
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value)
    {
        char name[24], time[32];
        snprintf(name, sizeof name, "%.23s", key);
        text_clean(name);
        if (json_is_array(value) || json_is_object(value))
            continue;
        printf("%-14s  ", name);
        if (json_is_false(value) && strcmp(key, "need_kept") == 0)
            puts("not met by its slots");
        else if (json_is_false(value) && strcmp(key, "host_connected") == 0)
            puts("host disconnected");
        else if (strcmp(key, "data") == 0 && json_is_string(value))
            puts(strcmp(json_string_value(value), "none") == 0
                     ? "none: nothing is kept over a reset"
                     : "persistent: wiped at the end of a lease, or kept");
        else if (json_is_string(value))
            puts(!*json_string_value(value) ? "-"
                 : pool_text_time(json_string_value(value), time) &&
                         strlen(json_string_value(value)) == 24
                     ? time
                     : json_string_value(value));
        else if (json_is_integer(value))
            printf("%" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
        else if (json_is_real(value))
            printf("%.1f\n", json_real_value(value));
        else
            puts(json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-");
    }
}

static void print_peers(const json_t *lease)
{
    size_t index;
    json_t *peer;
    json_array_foreach(json_object_get(lease, "peers"), index, peer)
    {
        const char *way = pool_string(peer, "way");
        printf("%-14s  lease %s: %s\n", index ? "" : "peers", pool_string(peer, "lease"),
               strcmp(way, "box") == 0     ? "inside one box, where the host asks for it"
               : strcmp(way, "boxes") == 0 ? "from box to box, where the host asks for it"
                                           : "through the host");
    }
}

static void print_retained(const json_t *lease)
{
    size_t index;
    json_t *slot;
    json_array_foreach(json_object_get(lease, "retained"), index, slot)
        printf("%-14s  slot %s keeps its data: 'dxpu lease recover' takes it back\n", "retained",
               json_is_string(slot) ? json_string_value(slot) : "?");
}

static void print_addresses(const json_t *o)
{
    size_t index;
    json_t *address;
    json_array_foreach(json_object_get(o, "addresses"), index, address)
        printf("%-14s  %s\n", index ? "" : "addresses",
               json_is_string(address) ? json_string_value(address) : "?");
}

/* Of a node that is connected and does not work as it should. */
static void print_suspect(const json_t *o)
{
    const json_t *suspect = json_object_get(o, "suspect");
    const char *lent = pool_string(suspect, "lent");
    size_t index;
    json_t *host;
    if (json_is_object(suspect))
        printf("%-14s  %s%s\n", "suspect", pool_string(suspect, "why"),
               strcmp(lent, "no") == 0     ? "; it is not lent"
               : strcmp(lent, "last") == 0 ? "; it is lent last"
                                           : "; its leases are not moved");
    json_array_foreach(json_object_get(o, "unreached_by"), index, host)
        printf("%-14s  host %" PRIu64 "\n", index ? "" : "unreached by",
               (uint64_t)json_integer_value(host));
}

static int print_events(pool_call *r, const char *filter)
{
    pool_table t;
    json_t *events, *event;
    size_t index;
    uint64_t next = 0;
    int rc = pool_last_events(r, filter, LAST_EVENTS, &events, &next);
    if (rc)
        return rc;
    if (json_array_size(events)) {
        pool_table_begin(&t, POOL_EVENT_TITLES);
        json_array_foreach(events, index, event) pool_event_row(&t, event);
        putchar('\n');
        pool_print_table(&t);
    }
    json_decref(events);
    return EXIT_ALL;
}

/* Those of a node: a box's slots, a host's leases. */
static int print_list_of(pool_call *r, const char *what, uint64_t node)
{
    const list_kind *kind = find_kind(what);
    char path[POOL_PATH_MAX];
    json_t *document;
    int rc;
    snprintf(path, sizeof path, "/v1/%s?%s=%" PRIu64 "&", kind->name, kind->node, node);
    rc = pool_pages(r, path, kind->key, true, &document);
    if (rc)
        return rc;
    if (json_array_size(json_object_get(document, kind->key))) {
        putchar('\n');
        print_rows(json_object_get(document, kind->key), kind);
    }
    json_decref(document);
    return 0;
}

static int show_node(pool_call *r)
{
    char filter[40];
    uint64_t node;
    bool box;
    int rc = pool_find_node(r, "nodes", r->word[1], &node);
    if (!rc)
        rc = pool_get(r, "/v1/nodes/%" PRIu64, node);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    box = strcmp(pool_string(r->client.body, "role"), "box") == 0;
    if (!box && strcmp(pool_string(r->client.body, "role"), "host") != 0)
        return pool_misfit(r, "it is not a node");
    print_members(r->client.body);
    print_addresses(r->client.body);
    print_suspect(r->client.body);
    rc = print_list_of(r, box ? "slots" : "leases", node);
    snprintf(filter, sizeof filter, "node=%" PRIu64 "&", node);
    return rc ? rc : print_events(r, filter);
}

static int show_slot(pool_call *r)
{
    char id[24], filter[40];
    int rc = pool_find_slot(r, r->word[1], id);
    if (!rc)
        rc = pool_get(r, "/v1/slots/%s", id);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    print_members(r->client.body);
    snprintf(filter, sizeof filter, "slot=%s&", id);
    return print_events(r, filter);
}

static int show_lease(pool_call *r)
{
    char filter[64];
    int rc;
    if (!pool_is_lease(r->word[1]))
        return options_wrong("'%s': a lease is a hex number, as in c00000003", r->word[1]);
    rc = pool_get(r, "/v1/leases/%s", r->word[1]);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    print_members(r->client.body);
    print_retained(r->client.body);
    print_peers(r->client.body);
    putchar('\n');
    pool_print_lease_slots(r->client.body, stdout);
    snprintf(filter, sizeof filter, "lease=%s&", r->word[1]);
    return print_events(r, filter);
}

int pool_show(pool_call *r)
{
    if (strcmp(r->word[0], "node") == 0)
        return show_node(r);
    if (strcmp(r->word[0], "slot") == 0)
        return show_slot(r);
    if (strcmp(r->word[0], "lease") == 0)
        return show_lease(r);
    return options_wrong("nothing is called '%s'; there are %s", r->word[0], r->verb->words);
}
