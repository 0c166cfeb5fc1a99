/* pool_print.c - see pool_print.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool_print.h"
#include "pool.h"

#include <inttypes.h>
#include <string.h>

static void node_state(pool_table *t, const json_t *o)
{
    const json_t *connected = json_object_get(o, "connected");
    bool draining = json_is_true(json_object_get(o, "draining"));
    bool suspect = json_is_object(json_object_get(o, "suspect"));
    const char *state = json_is_null(connected)    ? "unknown" /* to a standby */
                        : !json_is_true(connected) ? "disconnected"
                        : suspect && draining      ? "suspect, draining"
                        : suspect                  ? "suspect"
                        : draining                 ? "draining"
                                                   : "connected";
    pool_table_add(t, "%s", state);
}

/* Short texts in one cell. */
static void joined(pool_table *t, const json_t *list)
{
    char text[400] = "";
    size_t index, at = 0;
    json_t *value;
    json_array_foreach(list, index, value)
    {
        const char *one = json_string_value(value);
        int n = snprintf(text + at, sizeof text - at, "%s%.64s", index ? " " : "", one ? one : "?");
        if (n < 0 || (size_t)n >= sizeof text - at)
            break;
        at += (size_t)n;
    }
    pool_table_add(t, "%s", text);
}

/* "4.1-16 3.2": slots in a row, of one box, are printed as one. */
void pool_slots_cell(pool_table *t, const json_t *slots)
{
    char text[400] = "";
    size_t index, at = 0;
    uint64_t box = 0, number = 0, node, n;
    bool run = false;
    json_t *slot;
    json_array_foreach(slots, index, slot)
    {
        const char *id = pool_string(slot, "slot"), *dot = strchr(id, '.');
        char part[24];
        bool known = pool_is_slot(id) && dot && options_number(dot + 1, UINT16_MAX, &n);
        snprintf(part, sizeof part, "%.*s", dot ? (int)(dot - id) : 0, id);
        known = known && options_number(part, UINT32_MAX, &node);
        bool next = known && index && node == box && n == number + 1;
        if (run && next && at > 0)
            at -= strlen(strrchr(text, '-'));
        int len =
            next ? snprintf(text + at, sizeof text - at, "-%" PRIu64, n)
                 : snprintf(text + at, sizeof text - at, "%s%.20s", at ? " " : "", *id ? id : "?");
        if (len < 0 || (size_t)len >= sizeof text - at)
            break;
        at += (size_t)len;
        run = next;
        box = known ? node : 0;
        number = known ? n : 0;
    }
    pool_table_add(t, "%s", text);
}

void pool_host_row(pool_table *t, const json_t *o)
{
    pool_row(t, o, "node name");
    node_state(t, o);
    pool_row(t, o, "slots free leased owner since program");
}

void pool_box_row(pool_table *t, const json_t *o)
{
    pool_row(t, o, "node name");
    node_state(t, o);
    pool_row(t, o, "slots free leased broken since");
    joined(t, json_object_get(o, "addresses"));
    pool_row(t, o, "program");
}

void pool_slot_row(pool_table *t, const json_t *o)
{
    pool_row(t, o, "slot model state");
    pool_row(t, o, *pool_string(o, "retained_for") ? "retained_for" : "lease");
    pool_row(t, o, "reason health");
    pool_table_add(t, "%s",
                   json_is_false(json_object_get(o, "connected")) ? "disconnected"
                                                                  : pool_string(o, "box_state"));
    pool_row(t, o, "node_name group epoch serial attributes");
}

void pool_host_cell(pool_table *t, const json_t *o)
{
    const char *name = pool_string(o, "host_name");
    uint64_t host = pool_integer(o, "host");
    if (host && *name)
        pool_table_add(t, "%" PRIu64 " %s%s", host, name,
                       json_is_false(json_object_get(o, "host_connected")) ? " (disconnected)"
                                                                           : "");
    else
        pool_table_json(t, json_object_get(o, "host"));
}

void pool_lease_row(pool_table *t, const json_t *o)
{
    pool_row(t, o, "lease state");
    pool_host_cell(t, o);
    pool_row(t, o, "model");
    pool_slots_cell(t, json_object_get(o, "slots"));
    pool_row(t, o, "tenant expires_at");
    pool_table_add(t, "%s%s%s%s", pool_string(o, "need"),
                   json_is_true(json_object_get(o, "apart")) ? ", apart" : "",
                   json_is_true(json_object_get(o, "exclusive")) ? ", exclusive" : "",
                   json_is_false(json_object_get(o, "need_kept")) ? " (not met)" : "");
    pool_row(t, o, "key data");
}

void pool_event_row(pool_table *t, const json_t *event)
{
    const json_t *slot = json_object_get(event, "slot");
    const char *name = pool_string(event, "node_name");
    pool_row(t, event, "event at type lease");
    if (!json_is_string(slot) && *name)
        pool_table_add(t, "%" PRIu64 " %s", pool_integer(event, "node"), name);
    else
        pool_table_json(t, json_is_string(slot) ? slot : json_object_get(event, "node"));
    pool_row(t, event, "text");
}

bool pool_is_overview(const json_t *o)
{
    size_t index;
    json_t *model, *models = json_object_get(o, "models");
    json_array_foreach(models, index, model)
    {
        if (!json_is_object(model))
            return false;
    }
    return json_is_array(models);
}

/* "leases  4: 1 pending, 3 active"; "?": a standby does not know how many. */
static void counts(const json_t *o, FILE *out, const char *what, const char *whose,
                   const char *keys)
{
    const json_t *part = json_object_get(o, what);
    const char *before = ": ";
    fprintf(out, "%-6s  %" PRIu64, what, pool_integer(part, "total"));
    if (*whose)
        fprintf(out, " of tenant %s", whose);
    while (*keys) {
        char key[32];
        size_t len = strcspn(keys, " ");
        snprintf(key, sizeof key, "%.*s", (int)len, keys);
        if (json_is_null(json_object_get(part, key)))
            fprintf(out, "%s? %s", before, key);
        else
            fprintf(out, "%s%" PRIu64 " %s", before, pool_integer(part, key), key);
        before = ", ";
        keys += len + (keys[len] == ' ');
    }
    fputc('\n', out);
}

void pool_print_overview(const json_t *o, FILE *out, unsigned width, bool color)
{
    pool_table t;
    size_t index;
    json_t *model;
    const char *store = pool_string(o, "store");
    if (*store && strcmp(store, "ok") != 0)
        fprintf(out, "store   %.*s\n", width ? (int)pool_text_cut(store, width - 8) : -1, store);
    counts(o, out, "boxes", "", "connected draining");
    counts(o, out, "hosts", "", "connected");
    counts(o, out, "leases", pool_string(o, "leases_of"), "pending active degraded parked ended");
    counts(o, out, "slots", "", "free spare leased wiping drained broken quarantined retained");
    if (json_is_true(json_object_get(o, "clock_held")))
        fputs("clock   stepped: no lease expires until 'dxpu clock confirm'\n", out);
    fputc('\n', out);
    pool_table_begin(
        &t, "model|+total|+free|+spare|+leased|+wiping|+drained|+broken|+quarantined|+retained|"
            "+spares wanted|+room in box|+in group");
    json_array_foreach(json_object_get(o, "models"), index, model)
        pool_row(&t, model,
                 "model total free spare leased wiping drained broken quarantined retained "
                 "spares_wanted room_box room_group");
    pool_table_end(&t, out, width, color);
}

const char *pool_print_away(const json_t *slot)
{
    return json_is_false(json_object_get(slot, "box_connected")) ? " (its box is disconnected)"
                                                                 : "";
}

/* What keeps a slot from being up: ": why", or "". */
static const char *slot_why(const json_t *slot, char out[256])
{
    const char *why = pool_string(slot, "why");
    *out = '\0';
    if (*why)
        snprintf(out, 256, ": %.200s", why);
    return out;
}

void pool_print_lease_slots(const json_t *lease, FILE *out)
{
    const char *id = pool_string(lease, "lease"), *name = pool_string(lease, "host_name"), *state;
    char of[400], why[256];
    uint64_t host = pool_integer(lease, "host");
    size_t index;
    json_t *slot, *slots = json_object_get(lease, "slots");
    if (*name)
        snprintf(of, sizeof of, "host %.350s (%" PRIu64 ")", name, host);
    else
        snprintf(of, sizeof of, "host %" PRIu64, host);
    if (!json_array_size(slots))
        fprintf(out, "lease %s: %s\n", id, pool_string(lease, "state"));
    json_array_foreach(slots, index, slot)
    {
        state = pool_string(slot, "state");
        fprintf(out, "lease %s: slot %s ", id, pool_string(slot, "slot"));
        if (!host)
            fprintf(out, "is %s, without a host%s\n",
                    strcmp(pool_string(lease, "state"), "ended") == 0 ? "retained" : "kept",
                    pool_print_away(slot));
        else if (strcmp(state, "up") == 0)
            fprintf(out, "is slot %" PRIu64 " of %s%s\n", pool_integer(slot, "host_slot"), of,
                    pool_print_away(slot));
        else
            fprintf(out, "for slot %" PRIu64 " of %s: %s%s%s\n", pool_integer(slot, "host_slot"),
                    of, *state ? state : "unknown", pool_print_away(slot), slot_why(slot, why));
    }
    if (*pool_string(lease, "moved_from"))
        fprintf(out, "lease %s: slot %s was exchanged: %s\n", id, pool_string(lease, "moved_from"),
                pool_string(lease, "moved_why"));
}
