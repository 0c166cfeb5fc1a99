/* api.c - the HTTP server's table of routes, and who may use which
   SPDX-License-Identifier: MIT */
#include "api_internal.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char JSON[] = "application/json";

/* spec/openapi.yaml describes each; tests/net_api.py holds one against the other. */
static const api_route routes[] = {
    { HTTP_GET, "/v1/health", API_ANYBODY, API_BODY_NONE, JSON, api_get_health },
    { HTTP_GET, "/v1/openapi.yaml", API_ANYBODY, API_BODY_NONE, "application/yaml",
      api_get_openapi },
    { HTTP_GET, "/v1/pool", API_ALL, API_BODY_NONE, JSON, api_get_pool },
    { HTTP_GET, "/v1/nodes", API_READ | API_OPERATOR, API_BODY_NONE, JSON, api_get_nodes },
    { HTTP_GET, "/v1/boxes", API_READ | API_OPERATOR, API_BODY_NONE, JSON, api_get_boxes },
    { HTTP_GET, "/v1/hosts", API_READ | API_OPERATOR, API_BODY_NONE, JSON, api_get_hosts },
    { HTTP_GET, "/v1/nodes/{node}", API_READ | API_OPERATOR, API_BODY_NONE, JSON, api_get_node },
    { HTTP_DELETE, "/v1/nodes/{node}", API_OPERATOR, API_BODY_NONE, JSON, api_delete_node },
    { HTTP_PUT, "/v1/boxes/{node}/drain", API_OPERATOR, API_BODY_JSON, JSON, api_put_drain },
    { HTTP_GET, "/v1/slots", API_ALL, API_BODY_NONE, JSON, api_get_slots },
    { HTTP_GET, "/v1/slots/{slot}", API_ALL, API_BODY_NONE, JSON, api_get_slot },
    { HTTP_POST, "/v1/slots/{slot}/replace", API_OPERATOR, API_BODY_OPTIONAL, JSON,
      api_post_replace },
    { HTTP_POST, "/v1/slots/{slot}/break", API_OPERATOR, API_BODY_OPTIONAL, JSON, api_post_break },
    { HTTP_POST, "/v1/slots/{slot}/repair", API_OPERATOR, API_BODY_OPTIONAL, JSON,
      api_post_repair },
    { HTTP_POST, "/v1/slots/{slot}/reset", API_OPERATOR, API_BODY_OPTIONAL, JSON, api_post_reset },
    { HTTP_GET, "/v1/leases", API_ALL, API_BODY_NONE, JSON, api_get_leases },
    { HTTP_POST, "/v1/leases", API_TENANT | API_OPERATOR, API_BODY_JSON, JSON, api_post_lease },
    { HTTP_GET, "/v1/leases/{lease}", API_ALL, API_BODY_NONE, JSON, api_get_lease },
    { HTTP_PATCH, "/v1/leases/{lease}", API_TENANT | API_OPERATOR, API_BODY_JSON, JSON,
      api_patch_lease },
    { HTTP_DELETE, "/v1/leases/{lease}", API_TENANT | API_OPERATOR, API_BODY_NONE, JSON,
      api_delete_lease },
    { HTTP_POST, "/v1/leases/{lease}/attach", API_TENANT | API_OPERATOR, API_BODY_JSON, JSON,
      api_post_attach },
    { HTTP_GET, "/v1/tenants", API_ALL, API_BODY_NONE, JSON, api_get_tenants },
    { HTTP_PUT, "/v1/tenants/{tenant}", API_OPERATOR, API_BODY_JSON, JSON, api_put_tenant },
    { HTTP_PUT, "/v1/models/{model}/spares", API_OPERATOR, API_BODY_JSON, JSON, api_put_spares },
    { HTTP_GET, "/v1/events", API_ALL, API_BODY_NONE, JSON, api_get_events },
    { HTTP_GET, "/metrics", API_READ | API_OPERATOR, API_BODY_NONE, "text/plain", api_get_metrics },
};
enum { ROUTES = sizeof routes / sizeof routes[0] };
_Static_assert((int)ROUTES <= (int)API_ROUTES_MAX, "raise API_ROUTES_MAX");

const api_route *api_routes(unsigned *count)
{
    *count = ROUTES;
    return routes;
}

/* ==== 1  Routing ============================================================================== */

/* *arg: the segment that stands for the one in braces, if there is one. */
static bool matches(const char *path, const http_request *q, const char **arg)
{
    unsigned i = 0;
    const char *found = NULL;
    for (; *path && i < q->segments && i < HTTP_SEGMENTS_MAX; i++) {
        size_t len = strcspn(++path, "/");
        if (*path == '{')
            found = q->segment[i];
        else if (strlen(q->segment[i]) != len || memcmp(path, q->segment[i], len) != 0)
            return false;
        path += len;
    }
    if (*path || i != q->segments)
        return false;
    *arg = found;
    return true;
}

/* The route; NULL, and then which methods there are for this path: none, it is not known. */
static const api_route *find_route(api_conn *c, char methods[100])
{
    const http_request *q = &c->in.request;
    http_method wanted = q->method == HTTP_HEAD ? HTTP_GET : q->method;
    const api_route *found = NULL;
    methods[0] = '\0';
    for (unsigned i = 0; i < ROUTES; i++) {
        if (!matches(routes[i].path, q, &c->arg))
            continue;
        snprintf(methods + strlen(methods), 100 - strlen(methods), "%s%s%s",
                 http_method_name(routes[i].method), routes[i].method == HTTP_GET ? ", HEAD" : "",
                 ", ");
        if (routes[i].method == wanted)
            found = &routes[i];
    }
    if (methods[0])
        snprintf(methods + strlen(methods), 100 - strlen(methods), "OPTIONS");
    return found;
}

/* ==== 2  May they? ============================================================================ */

/* Without tokens, whoever reaches the loopback address is operator.  A page in a browser of this
   machine reaches it too: it names another host than this machine (its own, made to resolve to
   127.0.0.1), or the browser says where the request comes from. */
static bool from_a_page(const http_request *q)
{
    const char *host = q->field[HTTP_FIELD_HOST], *site = q->field[HTTP_FIELD_SEC_FETCH_SITE];
    return (host && !http_is_loopback(host)) || (q->authority && !http_is_loopback(q->authority)) ||
           q->field[HTTP_FIELD_ORIGIN] ||
           (site && strcmp(site, "none") != 0 && strcmp(site, "same-origin") != 0);
}

static bool know_caller(api_conn *c)
{
    const http_request *q = &c->in.request;
    memset(&c->caller, 0, sizeof c->caller);
    if (c->a->tokens) {
        c->caller = api_tokens_find(c->a->tokens, q->field[HTTP_FIELD_AUTHORIZATION]);
        return true;
    }
    if (from_a_page(q)) {
        api_problem(c, 403, "browser",
                    "without --tokens the Host is localhost or a loopback address, and there is no "
                    "Origin");
        return false;
    }
    c->caller.role = API_OPERATOR;
    return true;
}

static bool may(api_conn *c)
{
    const api_route *r = c->route;
    if (r && (r->roles & API_ANYBODY))
        return true;
    if (!c->caller.role) {
        snprintf(c->fields, sizeof c->fields, "WWW-Authenticate: Bearer realm=\"dxpu\"\r\n");
        api_problem(c, 401, NULL, "give Authorization: Bearer TOKEN with a token of --tokens");
        return false;
    }
    dxpu_tcp_touch(c->tcp); /* somebody known: others are closed first when places are short */
    if (r && !(r->roles & c->caller.role)) {
        api_problem(c, 403, NULL, "the role of this token does not allow this");
        return false;
    }
    return true;
}

/* ==== 3  Dispatch ============================================================================= */

static bool well_put(api_conn *c)
{
    const http_request *q = &c->in.request;
    const api_route *r = c->route;
    const char *accept = q->field[HTTP_FIELD_ACCEPT];
    if (q->body_bytes && r->body == API_BODY_NONE) {
        api_problem(c, 400, NULL, "this request has no body");
        return false;
    }
    if (q->body_bytes && !http_is_type(q->field[HTTP_FIELD_CONTENT_TYPE], JSON)) {
        api_problem(c, 415, NULL, "give Content-Type: application/json");
        return false;
    }
    if (!http_accepts(accept, r->type) &&
        !(r->handle == api_get_events && http_accepts(accept, "text/event-stream"))) {
        api_problem(c, 406, NULL, "this is told as %s only", r->type);
        return false;
    }
    return true;
}

void api_dispatch(api_conn *c)
{
    const http_request *q = &c->in.request;
    char methods[100];
    bool star = !strcmp(q->path, "*");
    c->route = find_route(c, methods);
    if (!know_caller(c) || (q->method != HTTP_OPTIONS && !may(c)))
        return;
    if (q->method == HTTP_OPTIONS && (star || methods[0])) {
        snprintf(c->fields, sizeof c->fields, "Allow: %s\r\n",
                 star ? "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" : methods);
        api_answer(c, 204, NULL, NULL, 0);
    } else if (!methods[0]) {
        api_problem(c, 404, "unknown", "no such path; /v1/openapi.yaml has all of them");
    } else if (!c->route) {
        snprintf(c->fields, sizeof c->fields, "Allow: %s\r\n", methods);
        api_problem(c, 405, NULL, "there are %s", methods);
    } else if (well_put(c)) {
        if (c->a->set.clock)
            c->a->set.clock(c->a->set.user);
        c->route->handle(c);
    }
}

/* ==== 4  Requests ============================================================================= */

bool api_params(api_conn *c, const api_param *params, unsigned count)
{
    const http_request *q = &c->in.request;
    char why[API_WHY_BYTES];
    for (unsigned i = 0; i < q->params; i++) {
        if (!api_param_read(q->param[i].name, q->param[i].value, params, count, why)) {
            api_problem(c, 400, NULL, "%s", why);
            return false;
        }
    }
    return true;
}

bool api_members(api_conn *c, const api_member *members, unsigned count)
{
    const http_request *q = &c->in.request;
    char why[API_WHY_BYTES];
    if (api_request_read(q->body, q->body_bytes, members, count, why))
        return true;
    api_problem(c, 400, NULL, "%s", why);
    return false;
}

bool api_done(api_conn *c, core_result r)
{
    if (c->a->set.changed)
        c->a->set.changed(c->a->set.user);
    if (r.code == CORE_OK)
        return true;
    api_problem_core(c, &r);
    return false;
}

bool api_may_wait(api_conn *c, uint64_t wait_s)
{
    if (!wait_s || api_count_in(c->a, API_WAITING) < c->a->set.waiting)
        return true;
    api_problem(c, 503, "busy", "%u requests wait already; ask without wait", c->a->set.waiting);
    return false;
}

/* ==== 5  Opening ============================================================================== */

void api_settings_default(api_settings *set)
{
    memset(set, 0, sizeof *set);
    set->connections = 64;
    set->waiting = 32;
    set->streams = 16;
    set->request_ms = 20000;
}

static uint64_t newest_event(const core *c)
{
    core_event some[16];
    uint64_t newest = 0;
    unsigned n;
    while ((n = core_events_after(c, newest, some, 16)) > 0)
        newest = some[n - 1].number;
    return newest;
}

api *api_open(struct event_base *base, core *c, const api_settings *set)
{
    api *a = calloc(1, sizeof *a);
    if (!a) {
        fprintf(stderr, "HTTP: out of memory\n");
        return NULL;
    }
    a->base = base;
    a->core = c;
    a->set = *set;
    a->opened_ms = api_now_ms();
    a->newest = newest_event(c);
    if (set->tokens)
        a->tokens = api_tokens_read(set->tokens);
    if ((set->tokens && !a->tokens) || !api_listen(a)) {
        api_close(a);
        return NULL;
    }
    return a;
}

void api_close(api *a)
{
    if (!a)
        return;
    api_unlisten(a);
    api_tokens_free(a->tokens);
    for (unsigned i = 0; i < a->reporting; i++)
        free(a->reported[i].slot);
    free(a->reported);
    free(a);
}

const char *api_address(const api *a)
{
    return a->address;
}

bool api_reload(api *a)
{
    api_tokens *now = a->set.tokens ? api_tokens_read(a->set.tokens) : NULL;
    if (!now)
        return !a->set.tokens;
    api_tokens_free(a->tokens);
    a->tokens = now;
    return true;
}
