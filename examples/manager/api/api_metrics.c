/* api_metrics.c - the pool in numbers, for Prometheus (text format 0.0.4)
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long number;

static void about(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value: '\', '"' and line ends are escaped, and of proxies only ASCII is shown. */
static void put_label(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            fputc('\\', out);
        fputc(*value < ' ' || *value > '~' ? '?' : *value, out);
    }
    fputc('"', out);
}

/* ==== 1  What proxies report ================================================================== */

/* The node's entry; a new one takes the place of a node's that was forgotten. */
static api_reported *reported_by(api *a, uint32_t node)
{
    api_reported *more, *unused = NULL;
    for (unsigned i = 0; i < a->reporting; i++) {
        if (a->reported[i].node == node)
            return &a->reported[i];
        if (core_find_node(a->core, a->reported[i].node) == CORE_NONE)
            unused = &a->reported[i];
    }
    if (unused) {
        free(unused->slot);
    } else {
        more = realloc(a->reported, sizeof *more * (a->reporting + 1));
        if (!more)
            return NULL;
        a->reported = more;
        unused = &more[a->reporting++];
    }
    memset(unused, 0, sizeof *unused);
    unused->node = node;
    return unused;
}

static bool make_room(api_reported *r, unsigned slots)
{
    api_traffic *more;
    if (slots <= r->slots)
        return true;
    more = realloc(r->slot, sizeof *more * slots);
    if (!more)
        return false;
    memset(more + r->slots, 0, sizeof *more * (slots - r->slots));
    r->slot = more;
    r->slots = slots;
    return true;
}

/* Below 0: it is the first report, or its proxy restarted. */
static double per_second(const api_traffic *t, uint64_t before, uint64_t now)
{
    uint64_t at_ms = api_now_ms();
    if (!t->at_ms || now < before || at_ms <= t->at_ms)
        return -1;
    return (double)(now - before) * 1000.0 / (double)(at_ms - t->at_ms);
}

void api_report(api *a, uint32_t node, const dxpu_control_status *st)
{
    dxpu_bytes entries = st->entries;
    dxpu_control_slot s;
    api_reported *r;
    uint32_t count, index;
    if (!a || (index = core_find_node(a->core, node)) == CORE_NONE)
        return;
    r = reported_by(a, node);
    while (r && dxpu_control_slot_next(st, &entries, &s)) {
        unsigned total = core_nodes(a->core, &count)[index].total;
        api_traffic *t;
        if (!s.number || s.number > total || !make_room(r, total))
            continue;
        t = &r->slot[s.number - 1];
        t->to_per_s = per_second(t, t->to_device, s.to_device);
        t->from_per_s = per_second(t, t->from_device, s.from_device);
        t->to_device = s.to_device;
        t->from_device = s.from_device;
        t->dropped = s.dropped;
        t->incarnations = s.incarnations;
        t->at_ms = api_now_ms();
    }
}

const api_traffic *api_traffic_of(const api *a, const core_node *n, unsigned slot)
{
    for (unsigned i = 0; n->connected && i < a->reporting; i++) {
        const api_reported *r = &a->reported[i];
        if (r->node == n->number)
            return slot && slot <= r->slots && r->slot[slot - 1].at_ms ? &r->slot[slot - 1] : NULL;
    }
    return NULL;
}

static void put_traffic(const api *a, FILE *out, const char *name, const char *help,
                        const char *direction, size_t offset)
{
    if (help)
        about(out, name, "counter", help);
    for (unsigned i = 0; i < a->reporting; i++) {
        const api_reported *r = &a->reported[i];
        bool known = core_find_node(a->core, r->node) != CORE_NONE;
        for (unsigned s = 0; known && s < r->slots; s++) {
            uint64_t value;
            memcpy(&value, (const char *)&r->slot[s] + offset, sizeof value);
            fprintf(out, "%s{node=\"%u\",slot=\"%u\"%s%s%s} %llu\n", name, r->node, s + 1,
                    direction ? ",direction=\"" : "", direction ? direction : "",
                    direction ? "\"" : "", (number)value);
        }
    }
}

static void put_reported(const api *a, FILE *out)
{
    put_traffic(a, out, "dxpu_slot_tlps_total", "TLPs of a slot, as its proxy counts them.",
                "to_device", offsetof(api_traffic, to_device));
    put_traffic(a, out, "dxpu_slot_tlps_total", NULL, "from_device",
                offsetof(api_traffic, from_device));
    put_traffic(a, out, "dxpu_slot_tlps_dropped_total", "TLPs that a slot dropped.", NULL,
                offsetof(api_traffic, dropped));
    put_traffic(a, out, "dxpu_slot_incarnations_total", "Channels of a slot that came up.", NULL,
                offsetof(api_traffic, incarnations));
}

/* ==== 2  The pool ============================================================================= */

static void put_nodes(const api *a, FILE *out)
{
    static const char *const states[] = { "false", "true" };
    uint32_t count;
    const core_node *n = core_nodes(a->core, &count);
    number nodes[2][2] = { { 0 } }, draining = 0;
    for (uint32_t i = 0; i < count; i++) {
        nodes[n[i].role == DXPU_CONTROL_ROLE_BOX][n[i].connected]++;
        draining += n[i].draining;
    }
    about(out, "dxpu_nodes", "gauge", "Proxies that registered.");
    for (unsigned role = 0; role < 2; role++) {
        for (unsigned on = 0; on < 2; on++)
            fprintf(out, "dxpu_nodes{role=\"%s\",connected=\"%s\"} %llu\n", role ? "box" : "host",
                    states[on], nodes[role][on]);
    }
    about(out, "dxpu_boxes_draining", "gauge", "Boxes that are being taken out of service.");
    fprintf(out, "dxpu_boxes_draining %llu\n", draining);
}

static void put_slots(const api *a, FILE *out)
{
    const pool *p = core_pool(a->core);
    uint32_t models;
    const core_model *m = core_models(a->core, &models);
    uint32_t(*count)[POOL_STATES] = calloc(models + 1, sizeof *count);
    if (count)
        core_count_slots(a->core, count);
    about(out, "dxpu_slots", "gauge", "Slots of boxes.");
    for (uint32_t i = 0; count && i < models; i++) {
        for (unsigned s = 0; s < POOL_STATES; s++) {
            fputs("dxpu_slots{", out);
            put_label(out, "model", m[i].name);
            fprintf(out, ",state=\"%s\"} %llu\n", pool_state_name(s), (number)count[i][s]);
        }
    }
    free(count);
    about(out, "dxpu_spares_wanted", "gauge", "Slots to be kept back as spares.");
    for (uint32_t i = 0; i < models; i++) {
        fputs("dxpu_spares_wanted{", out);
        put_label(out, "model", m[i].name);
        fprintf(out, "} %llu\n", (number)p->model[i].spares_wanted);
    }
}

static void put_leases(const api *a, FILE *out)
{
    const pool *p = core_pool(a->core);
    number count[CORE_LEASE_STATES] = { 0 };
    uint32_t seen = 0;
    for (uint32_t i = 0; i < p->limits.leases && seen < p->leases; i++) {
        uint64_t lease = pool_lease_number(p, i);
        seen += lease != 0;
        if (lease)
            count[core_lease_now(a->core, lease)]++;
    }
    about(out, "dxpu_leases", "gauge", "Leases.");
    for (unsigned s = 0; s < CORE_LEASE_STATES; s++)
        fprintf(out, "dxpu_leases{state=\"%s\"} %llu\n", core_lease_state_name(s), count[s]);
    about(out, "dxpu_lease_pending_seconds", "gauge",
          "Age of the lease that has waited longest for its slots; 0: none waits.");
    fprintf(out, "dxpu_lease_pending_seconds %.3f\n", (double)core_pending_ms(a->core) / 1000);
}

static void put_events(const api *a, FILE *out)
{
    char text[256];
    about(out, "dxpu_events_total", "counter", "Events since this program runs.");
    for (unsigned t = 0; t < CORE_EVENT_TYPES; t++)
        fprintf(out, "dxpu_events_total{type=\"%s\"} %llu\n", core_event_name(t),
                (number)a->events[t]);
    about(out, "dxpu_orders_refused_total", "counter",
          "Orders that a proxy refused; counted once for each slot until it succeeds.");
    fprintf(out, "dxpu_orders_refused_total %llu\n", (number)a->events[CORE_EVENT_ORDER_REFUSED]);
    about(out, "dxpu_store_ok", "gauge", "1: the store can be written.");
    fprintf(out, "dxpu_store_ok %d\n", !core_store_failed(a->core, text));
    about(out, "dxpu_pool_epoch", "counter", "The highest lease epoch that was given.");
    fprintf(out, "dxpu_pool_epoch %llu\n", (number)core_pool(a->core)->epoch);
}

/* ==== 3  Boxes, hosts, tenants ================================================================ */

/* Whoever reaches the proxies' port can register nodes, and an operator's token can name tenants:
   no more of each get lines of their own. */
enum { NAMED_MAX = 2000 };

static void put_node(FILE *out, const char *metric, const core_node *n)
{
    fprintf(out, "%s{node=\"%u\",", metric, n->number);
    put_label(out, "name", n->name);
}

static void put_connected(const core_node *n, uint32_t count, FILE *out)
{
    about(out, "dxpu_node_connected", "gauge", "1: the proxy is registered now.");
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        put_node(out, "dxpu_node_connected", &n[i]);
        fprintf(out, ",role=\"%s\"} %d\n", dxpu_control_role_name(n[i].role), n[i].connected);
    }
}

static void put_suspect(const core *k, const core_node *n, uint32_t count, FILE *out)
{
    char why[CORE_TROUBLE_BYTES];
    uint64_t since_ms;
    about(out, "dxpu_box_suspect", "gauge",
          "Whether the box is in doubt. 1: it is lent last, 2: it is not lent.");
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        if (n[i].role != DXPU_CONTROL_ROLE_BOX)
            continue;
        put_node(out, "dxpu_box_suspect", &n[i]);
        fprintf(out, "} %u\n", core_suspect(k, i, &since_ms, why));
    }
    about(out, "dxpu_box_unreached_hosts", "gauge",
          "Hosts that had no channel to the box for a lease lately.");
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        if (n[i].role != DXPU_CONTROL_ROLE_BOX)
            continue;
        put_node(out, "dxpu_box_unreached_hosts", &n[i]);
        fprintf(out, "} %u\n", core_unreached_by(k, i, NULL, 0));
    }
}

static void put_box_slots(const core *k, const core_node *n, FILE *out)
{
    number of[POOL_STATES] = { 0 };
    for (uint32_t i = n->first; i < n->first + n->total; i++)
        of[core_slot_state(k, i)]++;
    for (unsigned s = 0; s < POOL_STATES; s++) {
        put_node(out, "dxpu_box_slots", n);
        fprintf(out, ",state=\"%s\"} %llu\n", pool_state_name(s), of[s]);
    }
}

static void put_host_slots(const api *a, const core_node *n, FILE *out)
{
    uint32_t count;
    const core_port *ports = core_ports(a->core, &count);
    number leased = 0;
    for (uint32_t i = n->first; i < n->first + n->total; i++)
        leased += ports[i].slot != CORE_NONE;
    put_node(out, "dxpu_host_slots", n);
    fprintf(out, ",state=\"leased\"} %llu\n", leased);
    put_node(out, "dxpu_host_slots", n);
    fprintf(out, ",state=\"free\"} %llu\n", n->total - leased);
}

static void put_each_node(const api *a, FILE *out)
{
    uint32_t count;
    const core_node *n = core_nodes(a->core, &count);
    put_connected(n, count, out);
    put_suspect(a->core, n, count, out);
    about(out, "dxpu_box_slots", "gauge", "Slots of each box.");
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        if (n[i].role == DXPU_CONTROL_ROLE_BOX)
            put_box_slots(a->core, &n[i], out);
    }
    about(out, "dxpu_host_slots", "gauge", "Slots of each host.");
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        if (n[i].role == DXPU_CONTROL_ROLE_HOST)
            put_host_slots(a, &n[i], out);
    }
}

static void put_tenants(const api *a, FILE *out)
{
    const pool *p = core_pool(a->core);
    uint32_t count;
    const core_tenant *t = core_tenants(a->core, &count);
    number others = 0;
    about(out, "dxpu_tenant_slots", "gauge",
          "Slots that each tenant has leased; without a name: all beyond the first 2,000 tenants.");
    for (uint32_t i = 0; i < count; i++) {
        if (i >= NAMED_MAX) {
            others += p->tenant[i].used;
            continue;
        }
        fputs("dxpu_tenant_slots{", out);
        put_label(out, "tenant", t[i].name);
        fprintf(out, "} %llu\n", (number)p->tenant[i].used);
    }
    if (count > NAMED_MAX)
        fprintf(out, "dxpu_tenant_slots %llu\n", others);
    about(out, "dxpu_tenant_quota_slots", "gauge", "Quotas, of tenants that have one.");
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        if (p->tenant[i].quota == POOL_NONE)
            continue;
        fputs("dxpu_tenant_quota_slots{", out);
        put_label(out, "tenant", t[i].name);
        fprintf(out, "} %llu\n", (number)p->tenant[i].quota);
    }
}

/* ==== 4  This server ========================================================================== */

static void put_requests(const api *a, FILE *out)
{
    int64_t step_ms;
    unsigned count;
    const api_route *r = api_routes(&count);
    about(out, "dxpu_http_requests_total", "counter", "HTTP requests that were answered.");
    for (unsigned i = 0; i <= API_ROUTES_MAX; i++) {
        for (unsigned s = 0; s < API_STATUSES; s++) {
            if (!a->requests[i][s])
                continue;
            fprintf(out,
                    "dxpu_http_requests_total{method=\"%s\",route=\"%s\",status=\"%u\"} %llu\n",
                    i < count ? api_method_name(r[i].method) : "", i < count ? r[i].path : "",
                    api_status(s), (number)a->requests[i][s]);
        }
    }
    about(out, "dxpu_http_waiting", "gauge", "HTTP requests that wait for a lease.");
    fprintf(out, "dxpu_http_waiting %u\n", api_count_in(a, API_WAITING));
    about(out, "dxpu_http_streams", "gauge", "Streams of events.");
    fprintf(out, "dxpu_http_streams %u\n", api_count_in(a, API_STREAMING));
    about(out, "dxpu_http_connections_total", "counter", "HTTP connections that were accepted.");
    fprintf(out, "dxpu_http_connections_total %llu\n", (number)a->accepted);
    about(out, "dxpu_http_connections_displaced_total", "counter",
          "HTTP connections closed to let another one in.");
    fprintf(out, "dxpu_http_connections_displaced_total %llu\n", (number)a->displaced);
    about(out, "dxpu_clock_held", "gauge",
          "1: the clock stepped, and no lease expires until it is confirmed.");
    fprintf(out, "dxpu_clock_held %d\n", core_clock_held(a->core, &step_ms));
    about(out, "dxpu_uptime_seconds", "gauge", "Since this program runs.");
    fprintf(out, "dxpu_uptime_seconds %llu\n", (number)((api_now_ms() - a->opened_ms) / 1000));
    about(out, "dxpu_build_info", "gauge", "The version of this program.");
    fprintf(out, "dxpu_build_info{version=\"%s\"} 1\n", DXPU_VERSION);
}

void api_get_metrics(api_conn *c)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out;
    if (!api_params(c, NULL, 0))
        return;
    out = open_memstream(&text, &bytes);
    if (out) {
        put_nodes(c->a, out);
        put_slots(c->a, out);
        put_leases(c->a, out);
        put_each_node(c->a, out);
        put_tenants(c->a, out);
        put_events(c->a, out);
        put_requests(c->a, out);
        put_reported(c->a, out);
        if (fclose(out)) {
            free(text);
            text = NULL;
        }
    }
    api_answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", text, bytes);
}
