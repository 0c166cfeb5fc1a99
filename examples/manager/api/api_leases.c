/* api_leases.c - requests about leases, and those that wait for one
   SPDX-License-Identifier: MIT */
#include "api_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MAX_S = 300, SECONDS_MAX = 1 << 30 };

#define WAIT_PARAM(target)                                                                         \
    {                                                                                              \
        "wait", API_NUMBER, target, 0, WAIT_MAX_S, NULL, false, false                              \
    }

/* ==== 1  Waiting ============================================================================== */

void api_answer_lease(api_conn *c, unsigned status, uint64_t lease)
{
    json_t *j = api_json_lease(c->a, lease);
    if (j)
        api_answer_json(c, status, j);
    else
        api_problem(c, 409, "state", "lease %llx ended meanwhile", (unsigned long long)lease);
}

/* What became of a slot since its lease ended. */
typedef enum fate {
    FATE_DONE,   /* wiped, or kept: its host has given it up, and its box says so */
    FATE_WAITS,  /* not yet */
    FATE_FAILED, /* and nothing but an operator mends that */
} fate;

/* A disconnected box wipes when it is back. */
static fate wipe_of(const api *a, const api_ending *e)
{
    uint32_t slot = core_find_slot(a->core, e->box, e->slot);
    const pool_slot *s = slot == CORE_NONE ? NULL : &core_pool(a->core)->slot[slot];
    if (!s) /* its box was forgotten */
        return FATE_FAILED;
    /* also under an epoch of its box's own: nothing was wiped */
    if (s->state == POOL_QUARANTINED && (s->epoch == e->epoch || s->reason == POOL_WHY_FOREIGN))
        return FATE_FAILED;
    if (s->epoch != e->epoch) /* it was lent again, so it was wiped */
        return FATE_DONE;
    if (s->state == POOL_BROKEN && s->dirty)
        return s->reason == POOL_WHY_BOX || s->reason == POOL_WHY_ABSENT ? FATE_WAITS : FATE_FAILED;
    return s->state == POOL_WIPING ? FATE_WAITS : FATE_DONE;
}

static fate keep_of(const api *a, const api_ending *e)
{
    uint32_t count, slot = core_find_slot(a->core, e->box, e->slot);
    uint32_t host = core_find_node(a->core, e->host);
    const core_slot *s = core_slots(a->core, &count);
    const core_port *ports = core_ports(a->core, &count);
    const core_node *n = core_nodes(a->core, &count);
    if (host != CORE_NONE && n[host].connected && e->port && e->port <= n[host].total &&
        ports[n[host].first + e->port - 1].device.epoch == e->epoch)
        return FATE_WAITS;
    if (slot == CORE_NONE)
        return FATE_FAILED;
    return s[slot].reported && s[slot].device.epoch != e->epoch ? FATE_DONE : FATE_WAITS;
}

static fate fate_of(const api *a, const api_wait *w, unsigned i)
{
    return w->what == API_WAIT_WIPED ? wipe_of(a, &w->slot[i]) : keep_of(a, &w->slot[i]);
}

static bool any_is(const api *a, const api_wait *w, fate f)
{
    for (unsigned i = 0; i < w->count; i++) {
        if (fate_of(a, w, i) == f)
            return true;
    }
    return false;
}

/* A lease that was parked, or ended, was attached or released before all was given up. */
static bool is_other(const api *a, const api_wait *w)
{
    const pool_lease *l = pool_find_lease(core_pool(a->core), w->lease);
    return w->what == API_WAIT_GIVEN_UP && (!l || l->host != POOL_NONE);
}

static bool is_over(const api *a, const api_wait *w)
{
    if (w->what == API_WAIT_UP)
        return !pool_find_lease(core_pool(a->core), w->lease) ||
               core_lease_now(a->core, w->lease) == CORE_LEASE_ACTIVE;
    return is_other(a, w) || !any_is(a, w, FATE_WAITS);
}

/* Its state in the pool, and why. */
static json_t *ending_json(const api *a, const api_wait *w, unsigned i)
{
    const api_ending *e = &w->slot[i];
    uint32_t slot = core_find_slot(a->core, e->box, e->slot);
    const pool_slot *s = slot == CORE_NONE ? NULL : &core_pool(a->core)->slot[slot];
    fate f = fate_of(a, w, i);
    bool wipe = w->what == API_WAIT_WIPED;
    const char *state = !wipe ? "held" : s ? pool_state_name(s->state) : "unknown";
    char name[24];
    snprintf(name, sizeof name, "%u.%u", e->box, e->slot);
    if (f == FATE_DONE)
        state = wipe ? "wiped" : "kept";
    return json_pack("{s:s, s:s, s:s}", "slot", name, "state", state, "reason",
                     pool_reason_name(wipe && s && f != FATE_DONE ? s->reason : POOL_WHY_NONE));
}

/* Which of them have this fate: "10.3 quarantined (wipe)". */
static void name_slots(const api *a, const api_wait *w, fate f, char *out, size_t room)
{
    size_t at = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < w->count && at < room - 1; i++) {
        json_t *j = fate_of(a, w, i) == f ? ending_json(a, w, i) : NULL;
        if (!j)
            continue;
        (void)snprintf(out + at, room - at, "%s%s %s (%s)", at ? ", " : "",
                       json_string_value(json_object_get(j, "slot")),
                       json_string_value(json_object_get(j, "state")),
                       json_string_value(json_object_get(j, "reason")));
        at += strlen(out + at);
        json_decref(j);
    }
}

/* "released", "ended" or "parked". */
static const char *end_name(const api *a, const api_wait *w)
{
    return w->what == API_WAIT_WIPED ? "released"
                                     : core_lease_state_name(core_lease_now(a->core, w->lease));
}

/* The lease is over, has ended or is parked: as it is with each of its slots. */
static void answer_end(api_conn *c, const api_wait *w)
{
    bool wipe = w->what == API_WAIT_WIPED, waits = any_is(c->a, w, FATE_WAITS);
    char id[24], slots[300];
    json_t *list;
    if (is_other(c->a, w)) {
        api_problem(c, 409, "state", "lease %llx was attached or released meanwhile",
                    (unsigned long long)w->lease);
        return;
    }
    if (w->asked && any_is(c->a, w, FATE_FAILED)) {
        name_slots(c->a, w, FATE_FAILED, slots, sizeof slots);
        api_problem(c, 409, "wipe",
                    "the lease has ended, but is not wiped: %s; these slots are not lent until an "
                    "operator repairs them",
                    slots);
        return;
    }
    list = json_array();
    for (unsigned i = 0; i < w->count; i++)
        (void)json_array_append_new(list, ending_json(c->a, w, i));
    snprintf(id, sizeof id, "%llx", (unsigned long long)w->lease);
    api_answer_json(c, w->asked && waits ? 202 : w->status,
                    json_pack("{s:s, s:s, s:o}", "lease", id, "state",
                              !w->asked || !waits ? end_name(c->a, w)
                              : wipe              ? "wiping"
                                                  : "closing",
                              "slots", list));
}

void api_wait_look(api_conn *c)
{
    api_wait w = c->u.wait;
    /* M-147; without a wait it is the store's answer just now that shows who leads */
    bool doubtful = w.asked && api_is_in_doubt(c->a);
    if (api_now_ms() < w.until_ms && (doubtful || !is_over(c->a, &w)))
        return;
    c->state = API_HANDLING;
    if (doubtful) {
        api_problem(c, 503, "store",
                    "the change is stored, but this manager may have lost the lead and cannot "
                    "report the outcome; see 'dxpu list leases'");
        return;
    }
    if (w.what == API_WAIT_UP)
        api_answer_lease(c, w.status, w.lease);
    else
        answer_end(c, &w);
}

static void wait_for(api_conn *c, const api_wait *w, uint64_t wait_s)
{
    c->u.wait = *w;
    c->u.wait.asked = wait_s > 0;
    c->u.wait.until_ms = api_now_ms() + wait_s * 1000;
    c->state = API_WAITING;
    api_wait_look(c);
}

/* ==== 2  Lists ================================================================================ */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

typedef struct selection {
    uint64_t after, limit, host;
    uint32_t pool_host; /* of `host` */
    unsigned state;
    char tenant[CORE_NAME_BYTES];
} selection;

static bool is_selected(const api_conn *c, const selection *s, uint64_t lease)
{
    const core *k = c->a->core;
    const pool_lease *l = pool_find_lease(core_pool(k), lease);
    uint32_t count;
    if (!l || lease <= s->after || !api_sees_lease(c->a, &c->caller, lease))
        return false;
    if (s->tenant[0] && strcmp(s->tenant, core_tenants(k, &count)[l->tenant].name) != 0)
        return false;
    if (s->state < CORE_LEASE_STATES && core_lease_now(k, lease) != s->state)
        return false;
    return !s->host || (s->pool_host != POOL_NONE && s->pool_host == l->host);
}

static uint32_t pool_host_of(const core *k, uint64_t number)
{
    uint32_t count, node = core_find_node(k, (uint32_t)number);
    const core_node *n = core_nodes(k, &count);
    return node != CORE_NONE && n[node].role == DXPU_CONTROL_ROLE_HOST ? n[node].pool_index
                                                                       : POOL_NONE;
}

void api_get_leases(api_conn *c)
{
    selection s = { 0, 100, 0, POOL_NONE, CORE_LEASE_STATES, "" };
    const api_param params[] = {
        { "after", API_LEASE, &s.after, 0, 0, NULL, false, false },
        { "limit", API_NUMBER, &s.limit, 1, 1000, NULL, false, false },
        { "state", API_CHOICE, &s.state, 0, 0, "pending|active|degraded|parked|ended", false,
          false },
        { "tenant", API_NAME, s.tenant, 0, CORE_NAME_BYTES - 1, NULL, false, false },
        { "host", API_NUMBER, &s.host, 1, UINT32_MAX, NULL, false, false },
    };
    const pool *p = core_pool(c->a->core);
    uint64_t *found;
    uint32_t n = 0;
    json_t *list, *next;
    char id[24];
    if (!api_params(c, params, 5))
        return;
    if (s.state < CORE_LEASE_STATES && !api_knows_state(c->a, s.state)) {
        api_redirect(c);
        return;
    }
    s.pool_host = pool_host_of(c->a->core, s.host);
    found = malloc(sizeof *found * ((size_t)p->leases + 1));
    if (!found) {
        api_answer(c, 503, NULL, NULL, 0);
        return;
    }
    for (uint32_t i = 0; i < p->limits.leases && n < p->leases; i++) {
        uint64_t lease = pool_lease_number(p, i);
        if (lease && is_selected(c, &s, lease))
            found[n++] = lease;
    }
    qsort(found, n, sizeof *found, by_number);
    list = json_array();
    for (uint32_t i = 0; i < n && i < s.limit; i++)
        (void)json_array_append_new(list, api_json_lease(c->a, found[i]));
    snprintf(id, sizeof id, "%llx",
             n ? (unsigned long long)found[(n < s.limit ? n : s.limit) - 1] : 0);
    next = n > s.limit ? json_string(id) : json_null();
    free(found);
    api_answer_json(c, 200, json_pack("{s:o, s:o}", "leases", list, "next", next));
}

/* ==== 3  One lease ============================================================================ */

uint64_t api_lease_of(api_conn *c)
{
    uint64_t lease;
    if (api_read_lease(c->arg, &lease) && api_sees_lease(c->a, &c->caller, lease))
        return lease;
    api_problem(c, 404, "unknown", "there is no lease %s", c->arg);
    return 0;
}

void api_get_lease(api_conn *c)
{
    uint64_t lease;
    if (api_params(c, NULL, 0) && (lease = api_lease_of(c)) != 0)
        api_answer_lease(c, 200, lease);
}

/* The tenant's own, or the one that is named. */
static bool choose_tenant(api_conn *c, core_request *r)
{
    if (c->caller.role == API_TENANT) {
        if (r->tenant[0] && strcmp(r->tenant, c->caller.tenant) != 0) {
            api_problem(c, 403, NULL, "tenant: this token is for the tenant %s", c->caller.tenant);
            return false;
        }
        memcpy(r->tenant, c->caller.tenant, sizeof r->tenant);
    } else if (!r->tenant[0]) {
        memcpy(r->tenant, "default", sizeof "default");
    }
    return true;
}

static bool read_request(api_conn *c, core_request *r)
{
    uint64_t host = 0, count = 1, seconds = 0;
    unsigned need = POOL_ANY;
    unsigned device = POOL_DEVICE_ANY;
    unsigned replace = CORE_REPLACE_DEFAULT;
    const api_member members[] = {
        { "host", API_NUMBER, &host, 1, UINT32_MAX, NULL, true, false },
        { "model", API_TEXT, r->model, 0, CORE_MODEL_BYTES - 1, NULL, true, false },
        { "attributes", API_TEXT, r->attributes, 0, CORE_ATTRIBUTES_BYTES - 1, NULL, false, false },
        { "count", API_NUMBER, &count, 1, POOL_COUNT_MAX, NULL, false, false },
        { "need", API_CHOICE, &need, 0, 0, "any|same_box|same_group|spread", false, false },
        { "device", API_CHOICE, &device, 0, 0, "any|whole|function", false, false },
        { "exclusive", API_FLAG, &r->exclusive, 0, 0, NULL, false, false },
        { "apart", API_FLAG, &r->apart, 0, 0, NULL, false, false },
        { "peer", API_LEASE, &r->peer, 0, 0, NULL, false, false },
        { "tenant", API_NAME, r->tenant, 0, CORE_NAME_BYTES - 1, NULL, false, false },
        { "seconds", API_NUMBER, &seconds, 1, SECONDS_MAX, NULL, false, true },
        { "replace", API_SWITCH, &replace, 0, 0, NULL, false, false },
        { "key", API_TEXT, r->key, 0, CORE_NAME_BYTES - 1, NULL, false, false },
    };
    if (!api_members(c, members, sizeof members / sizeof members[0]) || !choose_tenant(c, r))
        return false;
    r->host = (uint32_t)host;
    r->count = (uint8_t)count;
    r->need = (uint8_t)need;
    r->device = (uint8_t)device;
    r->replace = (uint8_t)replace; /* as core_replacing has them */
    r->seconds = seconds;
    return true;
}

/* Answered alike: a host that does not exist, and another tenant's. */
static bool may_use(api_conn *c, uint64_t host)
{
    if (api_may_use(c->a, &c->caller, host))
        return true;
    api_problem(c, 403, "host",
                "host: %llu is not a host of tenant %s; /v1/hosts lists those, and an operator "
                "sets the owner of a host (dxpu owner)",
                (unsigned long long)host, c->caller.tenant);
    return false;
}

static void answer_created(api_conn *c, uint64_t lease, bool existed, uint64_t wait_s)
{
    char at[40];
    api_wait w = { .lease = lease, .status = existed ? 200 : 201, .what = API_WAIT_UP };
    snprintf(at, sizeof at, "/v1/leases/%llx", (unsigned long long)lease);
    if (!existed)
        api_add_field(c, "Location", at);
    wait_for(c, &w, wait_s);
}

void api_post_lease(api_conn *c)
{
    core_request r;
    uint64_t lease = 0, wait_s = 0;
    bool existed = false;
    const api_param params[] = { WAIT_PARAM(&wait_s) };
    memset(&r, 0, sizeof r);
    if (!api_params(c, params, 1) || !api_may_wait(c, wait_s) || !read_request(c, &r) ||
        !may_use(c, r.host))
        return;
    core_result result = core_create(c->a->core, &r, &lease, &existed);
    if (result.code == CORE_E_QUOTA)
        api_problem_quota(c, &result, r.tenant, r.count);
    else if (api_done(c, result))
        answer_created(c, lease, existed, wait_s);
}

void api_patch_lease(api_conn *c)
{
    uint64_t lease, seconds = 0;
    const api_member members[] = {
        { "seconds", API_NUMBER, &seconds, 1, SECONDS_MAX, NULL, true, true },
    };
    if (api_params(c, NULL, 0) && (lease = api_lease_of(c)) != 0 && api_members(c, members, 1) &&
        api_done(c, core_extend(c->a->core, lease, seconds)))
        api_answer_lease(c, 200, lease);
}

void api_post_attach(api_conn *c)
{
    uint64_t lease, host = 0, wait_s = 0;
    const api_param params[] = { WAIT_PARAM(&wait_s) };
    const api_member members[] = {
        { "host", API_NUMBER, &host, 1, UINT32_MAX, NULL, true, false },
    };
    if (!api_params(c, params, 1) || (lease = api_lease_of(c)) == 0 || !api_may_wait(c, wait_s) ||
        !api_members(c, members, 1) || !may_use(c, host) ||
        !api_done(c, core_attach(c->a->core, lease, (uint32_t)host)))
        return;
    api_wait w = { .lease = lease, .status = 200, .what = API_WAIT_UP };
    wait_for(c, &w, wait_s);
}

/* ==== 4  The end of one ======================================================================= */

/* What is to be looked at when the lease is no more. */
static void remember(const api_conn *c, api_wait *w)
{
    const core *k = c->a->core;
    const pool *p = core_pool(k);
    uint32_t slots[POOL_COUNT_MAX], count, ports;
    const core_slot *of = core_slots(k, &count);
    const core_node *nodes = core_nodes(k, &count);
    const core_port *port = core_ports(k, &ports);
    w->count = pool_lease_slots(p, w->lease, slots);
    for (unsigned i = 0; i < w->count; i++) {
        api_ending *e = &w->slot[i];
        uint32_t at = 0;
        e->box = nodes[of[slots[i]].node].number;
        e->slot = of[slots[i]].device.number;
        e->epoch = p->slot[slots[i]].epoch;
        while (at < ports && port[at].slot != slots[i])
            at++;
        if (at < ports) {
            e->host = nodes[port[at].node].number;
            e->port = port[at].device.number;
        }
    }
}

/* The tenant may still look at the slots of a lease that it ends, to see that they are wiped. */
static void leave(api_conn *c, const api_wait *w)
{
    for (unsigned i = 0; c->caller.role == API_TENANT && i < w->count; i++) {
        api_left *l = &c->a->left[c->a->next_left++ % API_LEFT];
        l->box = w->slot[i].box;
        l->slot = w->slot[i].slot;
        l->epoch = w->slot[i].epoch;
        memcpy(l->tenant, c->caller.tenant, sizeof l->tenant);
    }
}

void api_end_lease(api_conn *c, uint64_t lease, bool keep, unsigned status, uint64_t wait_s)
{
    api_wait w = { .lease = lease, .status = status, .what = API_WAIT_WIPED };
    remember(c, &w);
    if (!api_done(c, core_release(c->a->core, lease, keep)))
        return;
    if (pool_find_lease(core_pool(c->a->core), lease)) /* it has data that are kept */
        w.what = API_WAIT_GIVEN_UP;
    else
        leave(c, &w);
    wait_for(c, &w, wait_s);
}

void api_delete_lease(api_conn *c)
{
    uint64_t lease, wait_s = 0;
    unsigned data = 0, erase = 0;
    const api_param params[] = {
        WAIT_PARAM(&wait_s),
        { "data", API_CHOICE, &data, 0, 0, "wipe|keep", false, false },
        API_ERASE_PARAM(&erase),
    };
    if (!api_params(c, params, 3) || (lease = api_lease_of(c)) == 0 || !api_may_wait(c, wait_s))
        return;
    if (data || api_may_erase(c, erase, CORE_DEED_RELEASE, lease))
        api_end_lease(c, lease, data, 200, wait_s);
}

void api_post_park(api_conn *c)
{
    uint64_t lease, wait_s = 0;
    const api_param params[] = { WAIT_PARAM(&wait_s) };
    if (!api_params(c, params, 1) || (lease = api_lease_of(c)) == 0 || !api_may_wait(c, wait_s) ||
        !api_members(c, NULL, 0))
        return;
    api_wait w = { .lease = lease, .status = 200, .what = API_WAIT_GIVEN_UP };
    remember(c, &w);
    if (api_done(c, core_park(c->a->core, lease)))
        wait_for(c, &w, wait_s);
}
