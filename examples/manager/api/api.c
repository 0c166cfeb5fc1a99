/* api.c - the HTTP server's table of routes, and the roles that each is for
   SPDX-License-Identifier: MIT */
#include "api_internal.h"
#include "log.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

static const char JSON[] = "application/json";

/* spec/openapi.yaml describes each; tests/manager/net_api.py holds one against the other. */
static const api_route routes[] = {
    { EVHTTP_REQ_GET, "/v1/health", API_ANYBODY, API_BODY_NONE, JSON, api_get_health },
    { EVHTTP_REQ_GET, "/v1/openapi.yaml", API_ANYBODY, API_BODY_NONE, "application/yaml",
      api_get_openapi },
    { EVHTTP_REQ_GET, "/v1/pool", API_ALL, API_BODY_NONE, JSON, api_get_pool },
    { EVHTTP_REQ_GET, "/v1/nodes", API_READ | API_OPERATOR, API_BODY_NONE, JSON, api_get_nodes },
    { EVHTTP_REQ_GET, "/v1/boxes", API_READ | API_OPERATOR, API_BODY_NONE, JSON, api_get_boxes },
    { EVHTTP_REQ_GET, "/v1/hosts", API_ALL, API_BODY_NONE, JSON, api_get_hosts },
    { EVHTTP_REQ_GET, "/v1/nodes/{node}", API_READ | API_OPERATOR, API_BODY_NONE, JSON,
      api_get_node },
    { EVHTTP_REQ_DELETE, "/v1/nodes/{node}", API_OPERATOR, API_BODY_NONE, JSON, api_delete_node },
    { EVHTTP_REQ_DELETE, "/v1/nodes/{node}/key", API_OPERATOR, API_BODY_NONE, JSON,
      api_delete_key },
    { EVHTTP_REQ_PUT, "/v1/boxes/{node}/drain", API_OPERATOR, API_BODY_JSON, JSON, api_put_drain },
    { EVHTTP_REQ_PUT, "/v1/boxes/{node}/direct", API_OPERATOR, API_BODY_JSON, JSON,
      api_put_direct },
    { EVHTTP_REQ_PUT, "/v1/hosts/{node}/owner", API_OPERATOR, API_BODY_JSON, JSON, api_put_owner },
    { EVHTTP_REQ_GET, "/v1/slots", API_ALL, API_BODY_NONE, JSON, api_get_slots },
    { EVHTTP_REQ_GET, "/v1/slots/{slot}", API_ALL, API_BODY_NONE, JSON, api_get_slot },
    { EVHTTP_REQ_POST, "/v1/slots/{slot}/replace", API_OPERATOR, API_BODY_OPTIONAL, JSON,
      api_post_replace },
    { EVHTTP_REQ_POST, "/v1/slots/{slot}/break", API_OPERATOR, API_BODY_OPTIONAL, JSON,
      api_post_break },
    { EVHTTP_REQ_POST, "/v1/slots/{slot}/repair", API_OPERATOR, API_BODY_OPTIONAL, JSON,
      api_post_repair },
    { EVHTTP_REQ_POST, "/v1/slots/{slot}/reset", API_OPERATOR, API_BODY_OPTIONAL, JSON,
      api_post_reset },
    { EVHTTP_REQ_GET, "/v1/leases", API_ALL, API_BODY_NONE, JSON, api_get_leases },
    { EVHTTP_REQ_POST, "/v1/leases", API_TENANT | API_OPERATOR, API_BODY_JSON, JSON,
      api_post_lease },
    { EVHTTP_REQ_GET, "/v1/leases/{lease}", API_ALL, API_BODY_NONE, JSON, api_get_lease },
    { EVHTTP_REQ_PATCH, "/v1/leases/{lease}", API_TENANT | API_OPERATOR, API_BODY_JSON, JSON,
      api_patch_lease },
    { EVHTTP_REQ_DELETE, "/v1/leases/{lease}", API_TENANT | API_OPERATOR, API_BODY_NONE, JSON,
      api_delete_lease },
    { EVHTTP_REQ_POST, "/v1/leases/{lease}/attach", API_TENANT | API_OPERATOR, API_BODY_JSON, JSON,
      api_post_attach },
    { EVHTTP_REQ_POST, "/v1/leases/{lease}/park", API_TENANT | API_OPERATOR, API_BODY_OPTIONAL,
      JSON, api_post_park },
    { EVHTTP_REQ_POST, "/v1/leases/{lease}/recover", API_TENANT | API_OPERATOR, API_BODY_OPTIONAL,
      JSON, api_post_recover },
    { EVHTTP_REQ_POST, "/v1/leases/{lease}/discard", API_TENANT | API_OPERATOR, API_BODY_OPTIONAL,
      JSON, api_post_discard },
    { EVHTTP_REQ_GET, "/v1/erasures", API_TENANT | API_OPERATOR, API_BODY_NONE, JSON,
      api_get_erasures },
    { EVHTTP_REQ_GET, "/v1/snapshot", API_OPERATOR, API_BODY_NONE, "text/plain", api_get_snapshot },
    { EVHTTP_REQ_POST, "/v1/adopt", API_OPERATOR, API_BODY_OPTIONAL, JSON, api_post_adopt },
    { EVHTTP_REQ_POST, "/v1/clock/confirm", API_OPERATOR, API_BODY_OPTIONAL, JSON, api_post_clock },
    { EVHTTP_REQ_GET, "/v1/tenants", API_ALL, API_BODY_NONE, JSON, api_get_tenants },
    { EVHTTP_REQ_PUT, "/v1/tenants/{tenant}", API_OPERATOR, API_BODY_JSON, JSON, api_put_tenant },
    { EVHTTP_REQ_PUT, "/v1/models/{model}/spares", API_OPERATOR, API_BODY_JSON, JSON,
      api_put_spares },
    { EVHTTP_REQ_GET, "/v1/events", API_ALL, API_BODY_NONE, JSON, api_get_events },
    { EVHTTP_REQ_GET, "/metrics", API_READ | API_OPERATOR, API_BODY_NONE, "text/plain",
      api_get_metrics },
};
enum { ROUTES = sizeof routes / sizeof routes[0] };
_Static_assert((int)ROUTES <= (int)API_ROUTES_MAX, "raise API_ROUTES_MAX");

const api_route *api_routes(unsigned *count)
{
    *count = ROUTES;
    return routes;
}

/* ==== 1  Routing ============================================================================== */

/* arg: what stands for the segment in braces, if there is one. */
static bool matches(const char *route, const char *path, char arg[API_TARGET_MAX_BYTES + 1])
{
    const char *found = "";
    size_t found_bytes = 0;
    while (*route && *path) { /* both at a slash */
        size_t r = 1 + strcspn(route + 1, "/"), p = 1 + strcspn(path + 1, "/");
        if (route[1] == '{') {
            found = path + 1;
            found_bytes = p - 1;
        } else if (r != p || memcmp(route, path, r) != 0) {
            return false;
        }
        route += r;
        path += p;
    }
    if (*route || *path)
        return false;
    memcpy(arg, found, found_bytes);
    arg[found_bytes] = '\0';
    return true;
}

/* The route; NULL, and then which methods there are for this path: none, it is not known. */
static const api_route *find_route(api_conn *c, char methods[100])
{
    enum evhttp_cmd_type wanted =
        c->head.method == EVHTTP_REQ_HEAD ? EVHTTP_REQ_GET : c->head.method;
    const api_route *found = NULL;
    methods[0] = '\0';
    for (unsigned i = 0; i < ROUTES; i++) {
        if (!matches(routes[i].path, c->head.decoded, c->arg))
            continue;
        snprintf(methods + strlen(methods), 100 - strlen(methods), "%s%s%s",
                 api_method_name(routes[i].method),
                 routes[i].method == EVHTTP_REQ_GET ? ", HEAD" : "", ", ");
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
static bool from_a_page(const api_head *h)
{
    const char *host = h->field[API_FIELD_HOST], *site = h->field[API_FIELD_SEC_FETCH_SITE];
    return (host && !api_is_loopback(host)) || (h->authority && !api_is_loopback(h->authority)) ||
           h->field[API_FIELD_ORIGIN] ||
           (site && strcmp(site, "none") != 0 && strcmp(site, "same-origin") != 0);
}

static bool know_caller(api_conn *c)
{
    memset(&c->caller, 0, sizeof c->caller);
    if (c->a->tokens) {
        c->caller = api_tokens_find(c->a->tokens, c->head.field[API_FIELD_AUTHORIZATION],
                                    (uint64_t)time(NULL));
        return true;
    }
    if (from_a_page(&c->head)) {
        api_problem(c, 403, "browser",
                    "without --tokens the Host is localhost or a loopback address, and there is no "
                    "Origin");
        return false;
    }
    c->caller.role = API_OPERATOR;
    return true;
}

static void refuse_unknown(api_conn *c)
{
    time_t at = (time_t)c->caller.expires_unix_s;
    struct tm tm;
    char when[40] = "?";
    api_add_field(c, "WWW-Authenticate", "Bearer realm=\"dxpu\"");
    if (c->caller.token[0] && gmtime_r(&at, &tm)) {
        (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
        api_problem(c, 401, "expired",
                    "the token %s expired at %s; ask the operator for a new one (dxpu-manager(1), "
                    "TOKENS)",
                    c->caller.token, when);
        return;
    }
    api_problem(c, 401, NULL, "%s",
                c->head.field[API_FIELD_AUTHORIZATION]
                    ? "the token is not in the manager's --tokens"
                    : "give Authorization: Bearer TOKEN with a token of --tokens");
}

static bool may(api_conn *c)
{
    const api_route *r = c->route;
    if (r && (r->roles & API_ANYBODY))
        return true;
    if (!c->caller.role) {
        refuse_unknown(c);
        return false;
    }
    if (!api_conn_known(c)) {
        api_add_field(c, "Connection", "close");
        api_problem(c, 503, "busy",
                    "as many connections as may are in use, of %u in all; try again in a second",
                    c->a->set.connections);
        return false;
    }
    if (r && !(r->roles & c->caller.role)) {
        api_problem(c, 403, NULL, "the role of this token does not allow this");
        return false;
    }
    return true;
}

/* ==== 3  Dispatch ============================================================================= */

static bool well_put(api_conn *c)
{
    const api_route *r = c->route;
    const char *accept = c->head.field[API_FIELD_ACCEPT];
    bool body = evbuffer_get_length(evhttp_request_get_input_buffer(c->request)) > 0;
    if (body && r->body == API_BODY_NONE) {
        api_problem(c, 400, NULL, "this request has no body");
        return false;
    }
    if (body && !api_is_type(c->head.field[API_FIELD_CONTENT_TYPE], JSON)) {
        api_problem(c, 415, NULL, "give Content-Type: application/json");
        return false;
    }
    if (!api_accepts(accept, r->type) &&
        !(r->handle == api_get_events && api_accepts(accept, "text/event-stream"))) {
        api_problem(c, 406, NULL, "only %s is available", r->type);
        return false;
    }
    return true;
}

/* What the store has alone, a standby knows, too. */
static bool is_stored(const api_conn *c)
{
    void (*const stored[])(api_conn *) = { api_get_health, api_get_openapi, api_get_pool,
                                           api_get_nodes,  api_get_boxes,   api_get_hosts,
                                           api_get_node,   api_get_slots,   api_get_slot,
                                           api_get_leases, api_get_lease,   api_get_tenants };
    for (unsigned i = 0; i < sizeof stored / sizeof stored[0]; i++)
        if (c->route->handle == stored[i])
            return true;
    return false;
}

/* The rest is the leader's to answer.  Numbers of one machine are not fetched from another. */
void api_redirect(api_conn *c)
{
    char at[API_TARGET_MAX_BYTES + STORE_USERS_BYTES + 16];
    const api_head *h = &c->head;
    if (!c->a->users[0] || c->route->handle == api_get_metrics) {
        api_problem(c, 503, "leader", "this manager is a standby; %s%s",
                    c->a->leader[0] ? "ask the leader, "
                                    : "no manager leads at present; try again in a second",
                    c->a->leader);
        return;
    }
    snprintf(at, sizeof at, "%s%s%s%s", c->a->users, h->path, h->query ? "?" : "",
             h->query ? h->query : "");
    api_add_field(c, "Location", at);
    api_problem(c, 307, "leader", "this manager is a standby; the leader, %s, is at %s",
                c->a->leader, c->a->users);
}

bool api_is_in_doubt(const api *a)
{
    return a->set.doubtful && a->set.doubtful(a->set.user);
}

/* M-147: of what another manager may have changed nothing is said. */
static bool refuse_in_doubt(api_conn *c)
{
    bool same = c->route->handle == api_get_health || c->route->handle == api_get_openapi;
    if (same || !api_is_in_doubt(c->a))
        return false;
    api_problem(c, 503, "leader", "%s; try again in a second",
                c->a->follows
                    ? "this manager, a standby, was stopped and has not read the store since"
                    : "this manager has not renewed its lease, so another one may lead");
    return true;
}

/* Was the request answered?  A standby says of what moment its answers are. */
static bool follow(api_conn *c)
{
    char revision[24];
    if (!c->a->follows)
        return false;
    if (!is_stored(c)) {
        api_redirect(c);
        return true;
    }
    snprintf(revision, sizeof revision, "%llu", (unsigned long long)c->a->revision);
    api_add_field(c, "Dxpu-Revision", revision);
    return false;
}

void api_dispatch(api_conn *c)
{
    bool star = !strcmp(c->head.path, "*"), options = c->head.method == EVHTTP_REQ_OPTIONS;
    char methods[100];
    c->route = find_route(c, methods);
    if (!know_caller(c) || (!options && !may(c)))
        return;
    if (options && (star || methods[0])) {
        api_add_field(c, "Allow", star ? "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" : methods);
        api_answer(c, 204, NULL, NULL, 0);
    } else if (!methods[0]) {
        api_problem(c, 404, "unknown", "no such path; /v1/openapi.yaml has all of them");
    } else if (!c->route) {
        api_add_field(c, "Allow", methods);
        api_problem(c, 405, NULL, "there are %s", methods);
    } else if (well_put(c) && (c->route->method == EVHTTP_REQ_GET || api_may_change(c))) {
        if (c->a->set.clock)
            c->a->set.clock(c->a->set.user);
        if (!follow(c) && !refuse_in_doubt(c))
            c->route->handle(c);
    }
}

/* ==== 4  Requests ============================================================================= */

bool api_params(api_conn *c, const api_param *params, unsigned count)
{
    char why[API_WHY_BYTES] = "the query: name=value, and & between two";
    struct evkeyvalq list;
    const struct evkeyval *p;
    bool good = !c->head.query || !*c->head.query;
    if (good)
        return true;
    good = !evhttp_parse_query_str(c->head.query, &list);
    TAILQ_FOREACH(p, &list, next)
    {
        if (good && evhttp_find_header(&list, p->key) != p->value) {
            snprintf(why, sizeof why, "%.40s: once is enough", p->key);
            good = false;
        }
        good = good && api_param_read(p->key, p->value, params, count, why);
    }
    evhttp_clear_headers(&list);
    if (!good)
        api_problem(c, 400, NULL, "%s", why);
    return good;
}

bool api_members(api_conn *c, const api_member *members, unsigned count)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(c->request);
    size_t bytes = evbuffer_get_length(body);
    const char *text = bytes ? (const char *)evbuffer_pullup(body, -1) : "";
    char why[API_WHY_BYTES] = "the body: out of memory";
    if (text && api_request_read(text, bytes, members, count, why))
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
    if (!wait_s || api_has_room(c, API_WAITING, c->a->set.waiting))
        return true;
    api_problem(c, 503, "busy", "too many requests wait, %u at most; ask without wait",
                c->a->set.waiting);
    return false;
}

/* ==== 5  Opening ============================================================================== */

void api_settings_default(api_settings *set)
{
    memset(set, 0, sizeof *set);
    set->connections = 512;
    set->waiting = 256;
    set->streams = 64;
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

api *api_open(struct event_base *base, core *c, const api_settings *set, bool *wrong)
{
    api *a = calloc(1, sizeof *a);
    bool system = false;
    *wrong = false;
    if (!a) {
        log_error("HTTP: out of memory");
        return NULL;
    }
    a->base = base;
    a->core = c;
    a->set = *set;
    a->opened_ms = api_now_ms();
    a->newest = newest_event(c);
    if (set->tokens)
        a->tokens = api_tokens_read(set->tokens, &system);
    *wrong = set->tokens && !a->tokens && !system;
    if ((set->tokens && !a->tokens) || !api_listen(a, wrong)) {
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
    free(a->budget);
    free(a);
}

void api_follow(api *a, const store_seen *seen)
{
    a->follows = true;
    a->revision = seen->revision;
    snprintf(a->leader, sizeof a->leader, "%s", seen->leads ? seen->name : "");
    snprintf(a->users, sizeof a->users, "%s", seen->leads ? seen->users : "");
    if (api_check_users_at(a->users)) /* M-146, whatever program wrote it */
        a->users[0] = '\0';
}

void api_set_core(api *a, core *c)
{
    a->core = c;
}

const char *api_address(const api *a)
{
    return a->address;
}

bool api_reload(api *a)
{
    bool system;
    api_tokens *now = a->set.tokens ? api_tokens_read(a->set.tokens, &system) : NULL;
    if (!now)
        return !a->set.tokens;
    api_tokens_free(a->tokens);
    a->tokens = now;
    api_end_streams(a); /* whoever's token is gone */
    return true;
}
