/* api_pool.c - requests about nodes, slots, tenants and models
   SPDX-License-Identifier: MIT */
#include "api_internal.h"

#include <stdio.h>
#include <string.h>

/* ==== 1  Lists ================================================================================ */

enum { LIMIT_MAX = 1000 }; /* rows of a page */

/* {"name": [...], "next": key or null}: the first `limit` of the rows, which are indices of what is
   listed, in its order. */
static void answer_rows(api_conn *c, const char *name, const uint32_t *rows, uint32_t count,
                        uint64_t limit, json_t *(*one)(const api_conn *c, uint32_t row),
                        json_t *(*key)(const api_conn *c, uint32_t row))
{
    json_t *list = json_array(), *next = NULL;
    uint32_t n = count < limit ? count : (uint32_t)limit;
    for (uint32_t i = 0; i < n; i++)
        (void)json_array_append_new(list, one(c, rows[i]));
    if (n < count)
        next = key(c, rows[n - 1]);
    api_answer_json(c, 200, json_pack("{s:o, s:o}", name, list, "next", next ? next : json_null()));
}

/* ==== 2  Health, pool ========================================================================= */

/* Nodes that are connected and do not work. */
static json_t *suspects(const api *a)
{
    char why[CORE_TROUBLE_BYTES];
    json_t *out = json_array();
    uint64_t since_ms;
    uint32_t count;
    const core_node *n = core_nodes(a->core, &count);
    for (uint32_t i = 0; i < count; i++) {
        (void)core_suspect(a->core, i, &since_ms, why);
        if (*why)
            (void)json_array_append_new(out, json_pack("{s:I, s:o, s:s}", "node",
                                                       (json_int_t)n[i].number, "name",
                                                       api_json_text(n[i].name), "why", why));
    }
    return out;
}

void api_get_health(api_conn *c)
{
    char text[256];
    const char *status, *role;
    bool unknown;
    if (!api_params(c, NULL, 0))
        return;
    unknown = c->a->follows || api_is_in_doubt(c->a);
    role = unknown ? "standby" : "leader";
    status = core_store_failed(c->a->core, text) ? "down" : "up";
    if (!c->caller.role) {
        api_answer_json(c, 200, json_pack("{s:s}", "status", status));
        return;
    }
    api_answer_json(c, 200,
                    json_pack("{s:s, s:s, s:o, s:o, s:s, s:I}", "status", status, "role", role,
                              "suspect", unknown ? json_null() : suspects(c->a), "store",
                              api_json_text(api_store_text(c->a, &c->caller, text)), "version",
                              DXPU_VERSION, "uptime_s",
                              (json_int_t)((api_now_ms() - c->a->opened_ms) / 1000)));
}

void api_get_pool(api_conn *c)
{
    if (api_params(c, NULL, 0))
        api_answer_json(c, 200, api_json_pool(c->a, &c->caller));
}

/* ==== 3  Nodes ================================================================================ */

static json_t *row_node(const api_conn *c, uint32_t row)
{
    return api_json_node(c->a, row, &c->caller);
}

static json_t *key_node(const api_conn *c, uint32_t row)
{
    uint32_t count;
    return json_integer((json_int_t)core_nodes(c->a->core, &count)[row].number);
}

/* role: 0, or of those alone */
static void list_nodes(api_conn *c, unsigned role)
{
    static const unsigned roles[] = { DXPU_CONTROL_ROLE_BOX, DXPU_CONTROL_ROLE_HOST };
    uint64_t after = 0, limit = 100;
    unsigned choice = 2;
    const api_param params[] = {
        { "after", API_NUMBER, &after, 0, UINT32_MAX, NULL, false, false },
        { "limit", API_NUMBER, &limit, 1, LIMIT_MAX, NULL, false, false },
        { "role", API_CHOICE, &choice, 0, 0, "box|host", false, false },
    };
    uint32_t rows[LIMIT_MAX + 1], count, n = 0;
    const core_node *nodes = core_nodes(c->a->core, &count);
    if (!api_params(c, params, role ? 2 : 3))
        return;
    if (choice < 2)
        role = roles[choice];
    for (uint32_t i = 0; i < count && n <= limit; i++) /* in the order of their numbers */
        if (nodes[i].number > after && (!role || nodes[i].role == role) &&
            api_may_use(c->a, &c->caller, nodes[i].number))
            rows[n++] = i;
    answer_rows(c, "nodes", rows, n, limit, row_node, key_node);
}

void api_get_nodes(api_conn *c)
{
    list_nodes(c, 0);
}

void api_get_boxes(api_conn *c)
{
    list_nodes(c, DXPU_CONTROL_ROLE_BOX);
}

void api_get_hosts(api_conn *c)
{
    list_nodes(c, DXPU_CONTROL_ROLE_HOST);
}

/* The path's; CORE_NONE after 404. */
static uint32_t node_of(api_conn *c)
{
    uint64_t number;
    uint32_t node = CORE_NONE;
    if (api_read_number(c->arg, UINT32_MAX, &number))
        node = core_find_node(c->a->core, (uint32_t)number);
    if (node == CORE_NONE)
        api_problem(c, 404, "unknown", "no node has the number %s", c->arg);
    return node;
}

void api_get_node(api_conn *c)
{
    uint32_t node;
    if (api_params(c, NULL, 0) && (node = node_of(c)) != CORE_NONE)
        api_answer_json(c, 200, api_json_node(c->a, node, &c->caller));
}

void api_delete_node(api_conn *c)
{
    uint32_t node, count, number;
    if (!api_params(c, NULL, 0) || (node = node_of(c)) == CORE_NONE)
        return;
    number = core_nodes(c->a->core, &count)[node].number;
    if (api_done(c, core_forget(c->a->core, number)))
        api_answer_json(c, 200,
                        json_pack("{s:I, s:b}", "node", (json_int_t)number, "forgotten", 1));
}

void api_delete_key(api_conn *c)
{
    uint32_t node, count, number;
    if (!api_params(c, NULL, 0) || (node = node_of(c)) == CORE_NONE)
        return;
    number = core_nodes(c->a->core, &count)[node].number;
    if (api_done(c, core_forget_key(c->a->core, number)) && (node = node_of(c)) != CORE_NONE)
        api_answer_json(c, 200, api_json_node(c->a, node, &c->caller));
}

void api_put_owner(api_conn *c)
{
    char owner[CORE_NAME_BYTES] = "";
    uint32_t node, count, number;
    const api_member members[] = {
        { "owner", API_NAME, owner, 0, CORE_NAME_BYTES - 1, NULL, true, true },
    };
    if (!api_params(c, NULL, 0) || (node = node_of(c)) == CORE_NONE || !api_members(c, members, 1))
        return;
    number = core_nodes(c->a->core, &count)[node].number;
    /* found again: the core may have rebuilt its tables */
    if (api_done(c, core_set_owner(c->a->core, number, owner)) && (node = node_of(c)) != CORE_NONE)
        api_answer_json(c, 200, api_json_node(c->a, node, &c->caller));
}

void api_put_direct(api_conn *c)
{
    bool on = false;
    uint32_t node, count, number;
    const api_member members[] = {
        { "on", API_FLAG, &on, 0, 0, NULL, true, false },
    };
    if (!api_params(c, NULL, 0) || (node = node_of(c)) == CORE_NONE || !api_members(c, members, 1))
        return;
    number = core_nodes(c->a->core, &count)[node].number;
    if (api_done(c, core_set_direct(c->a->core, number, on)) && (node = node_of(c)) != CORE_NONE)
        api_answer_json(c, 200, api_json_node(c->a, node, &c->caller));
}

void api_put_drain(api_conn *c)
{
    bool on = false, move = false;
    unsigned left = 0, erase = 0;
    const api_param params[] = { API_ERASE_PARAM(&erase) };
    uint32_t node, count, number;
    const api_member members[] = {
        { "on", API_FLAG, &on, 0, 0, NULL, true, false },
        { "move", API_FLAG, &move, 0, 0, NULL, false, false },
    };
    if (!api_params(c, params, 1) || (node = node_of(c)) == CORE_NONE ||
        !api_members(c, members, 2))
        return;
    number = core_nodes(c->a->core, &count)[node].number;
    if (on && move && !api_may_erase(c, erase, CORE_DEED_DRAIN, number))
        return;
    if (api_done(c, core_drain(c->a->core, number, on, move, &left)))
        api_answer_json(c, 200,
                        json_pack("{s:I, s:b, s:i}", "node", (json_int_t)number, "draining", on,
                                  "left", (int)left));
}

/* ==== 4  Slots ================================================================================ */

static json_t *row_slot(const api_conn *c, uint32_t row)
{
    return api_json_slot(c->a, row, &c->caller);
}

static json_t *key_slot(const api_conn *c, uint32_t row)
{
    char name[24];
    api_slot_name(c->a, row, name);
    return json_string(name);
}

void api_get_slots(api_conn *c)
{
    uint64_t after = 0, limit = 100, node = 0, device = 0;
    unsigned state = POOL_STATES;
    char model[CORE_MODEL_BYTES] = "", attributes[CORE_ATTRIBUTES_BYTES] = "";
    const api_param params[] = {
        { "after", API_SLOT, &after, 0, 0, NULL, false, false },
        { "limit", API_NUMBER, &limit, 1, LIMIT_MAX, NULL, false, false },
        { "state", API_CHOICE, &state, 0, 0,
          "free|spare|leased|wiping|drained|broken|quarantined|retained", false, false },
        { "model", API_TEXT, model, 0, CORE_MODEL_BYTES - 1, NULL, false, false },
        { "node", API_NUMBER, &node, 1, UINT32_MAX, NULL, false, false },
        { "attributes", API_TEXT, attributes, 0, CORE_ATTRIBUTES_BYTES - 1, NULL, false, false },
        { "device", API_SLOT, &device, 0, 0, NULL, false, false },
    };
    uint32_t rows[LIMIT_MAX + 1], count, nodes, n = 0;
    const core_slot *slots = core_slots(c->a->core, &count);
    const core_node *of = core_nodes(c->a->core, &nodes);
    if (!api_params(c, params, sizeof params / sizeof params[0]))
        return;
    /* By nodes, which are in the order of their numbers: a box that registered in several messages
       may have its slots behind those of a later one. */
    for (uint32_t j = 0; j < nodes && n <= limit; j++) {
        const core_node *o = &of[j];
        if (o->role != DXPU_CONTROL_ROLE_BOX || o->number < after >> 16 ||
            (node && node != o->number) || (device && device >> 16 != o->number))
            continue;
        for (uint32_t i = o->first; i < o->first + o->total && n <= limit; i++) {
            if (((uint64_t)o->number << 16 | slots[i].device.number) <= after)
                continue;
            const char *seen = api_slot_state(c->a, &c->caller, i);
            if ((state != POOL_STATES && (!seen || strcmp(seen, pool_state_name(state)) != 0)) ||
                (model[0] && strcmp(core_model_name(model), slots[i].device.model) != 0) ||
                !core_has_attributes(slots[i].device.attributes, attributes) ||
                (device && core_function_of(c->a->core, i).device != (device & 0xffff)))
                continue;
            rows[n++] = i;
        }
    }
    answer_rows(c, "slots", rows, n, limit, row_slot, key_slot);
}

static uint32_t slot_of(api_conn *c)
{
    uint32_t node, number, slot = CORE_NONE;
    if (api_read_slot(c->arg, &node, &number))
        slot = core_find_slot(c->a->core, node, number);
    if (slot == CORE_NONE)
        api_problem(c, 404, "unknown", "there is no slot %s (NODE.SLOT, such as 10.3)", c->arg);
    return slot;
}

void api_get_slot(api_conn *c)
{
    uint32_t slot;
    if (api_params(c, NULL, 0) && (slot = slot_of(c)) != CORE_NONE)
        api_answer_json(c, 200, api_json_slot(c->a, slot, &c->caller));
}

static bool said_so(api_conn *c, uint32_t *slot)
{
    return api_params(c, NULL, 0) && (*slot = slot_of(c)) != CORE_NONE && api_members(c, NULL, 0);
}

static void answer_slot(api_conn *c, core_result r)
{
    uint32_t slot;
    /* found again: the core may have rebuilt its tables */
    if (api_done(c, r) && (slot = slot_of(c)) != CORE_NONE)
        api_answer_json(c, 200, api_json_slot(c->a, slot, &c->caller));
}

void api_post_replace(api_conn *c)
{
    uint32_t slot;
    unsigned erase = 0, force = 0;
    const api_param params[] = { API_ERASE_PARAM(&erase),
                                 { "force", API_CHOICE, &force, 0, 0, "no|yes", false, false } };
    if (api_params(c, params, 2) && (slot = slot_of(c)) != CORE_NONE && api_members(c, NULL, 0) &&
        api_may_erase(c, erase, CORE_DEED_REPLACE, slot))
        answer_slot(c, core_replace(c->a->core, slot, POOL_WHY_OPERATOR, force));
}

void api_post_break(api_conn *c)
{
    uint32_t slot;
    unsigned device = 0;
    const api_param params[] = { { "device", API_CHOICE, &device, 0, 0, "no|yes", false, false } };
    if (!api_params(c, params, 1) || (slot = slot_of(c)) == CORE_NONE || !api_members(c, NULL, 0))
        return;
    answer_slot(c, device ? core_break_device(c->a->core, slot, POOL_WHY_OPERATOR)
                          : core_break(c->a->core, slot, POOL_WHY_OPERATOR));
}

void api_post_repair(api_conn *c)
{
    uint32_t slot;
    unsigned erase = 0, keep = 0;
    const api_param params[] = { API_ERASE_PARAM(&erase),
                                 { "data", API_CHOICE, &keep, 0, 0, "wipe|keep", false, false } };
    if (!api_params(c, params, 2) || (slot = slot_of(c)) == CORE_NONE || !api_members(c, NULL, 0))
        return;
    if (keep)
        answer_slot(c, core_keep(c->a->core, slot));
    else if (api_may_erase(c, erase, CORE_DEED_REPAIR, slot))
        answer_slot(c, core_repair(c->a->core, slot));
}

void api_post_reset(api_conn *c)
{
    uint32_t slot;
    if (said_so(c, &slot))
        answer_slot(c, core_reset(c->a->core, slot));
}

/* ==== 5  Tenants, models ====================================================================== */

void api_get_tenants(api_conn *c)
{
    uint32_t count;
    const core_tenant *t = core_tenants(c->a->core, &count);
    json_t *list;
    if (!api_params(c, NULL, 0))
        return;
    list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        if (c->caller.role != API_TENANT || !strcmp(t[i].name, c->caller.tenant))
            (void)json_array_append_new(list, api_json_tenant(c->a, i));
    }
    api_answer_json(c, 200, json_pack("{s:o}", "tenants", list));
}

void api_put_tenant(api_conn *c)
{
    uint64_t quota = UINT64_MAX - 1;
    unsigned direct = 0; /* 1: yes, 2: no */
    /* null is -1: as a uint32_t POOL_NONE, no limit */
    const api_member members[] = {
        { "quota", API_NUMBER, &quota, 0, UINT32_MAX - 1, NULL, false, true },
        { "direct", API_SWITCH, &direct, 0, 0, NULL, false, false },
    };
    uint32_t tenant, slots;
    bool on, given;
    if (!api_params(c, NULL, 0) || !api_members(c, members, 2))
        return;
    given = quota != UINT64_MAX - 1;
    slots = (uint32_t)quota;
    on = direct == 1;
    if (!given && !direct) {
        api_problem(c, 400, NULL, "quota: is missing, and so is direct");
        return;
    }
    if (!api_is_name(c->arg, CORE_NAME_BYTES - 1)) {
        api_problem(c, 400, NULL, "a tenant's name is 1 to 64 letters, digits, '.', '_', '-'");
    } else if (api_done(c, core_change_tenant(c->a->core, c->arg, given ? &slots : NULL,
                                              direct ? &on : NULL))) {
        tenant = core_find_tenant(c->a->core, c->arg);
        api_answer_json(c, 200, tenant == CORE_NONE ? NULL : api_json_tenant(c->a, tenant));
    }
}

void api_put_spares(api_conn *c)
{
    const pool *p = core_pool(c->a->core);
    uint32_t model = core_find_model(c->a->core, c->arg);
    uint64_t count = UINT64_MAX, slots = 0;
    double failures = 0, repair = 0, risk = 0;
    const api_member members[] = {
        { "count", API_NUMBER, &count, 0, UINT32_MAX - 1, NULL, false, false },
        { "failures_per_year", API_REAL, &failures, 0, 1000, NULL, false, false },
        { "repair_days", API_REAL, &repair, 0, 3650, NULL, false, false },
        { "risk", API_REAL, &risk, 0, 1, NULL, false, false },
    };
    bool given, rates;
    if (!api_params(c, NULL, 0) || !api_members(c, members, sizeof members / sizeof members[0]))
        return;
    given = count != UINT64_MAX;
    rates = failures > 0 && repair > 0 && risk > 0;
    for (unsigned s = 0; model != CORE_NONE && s < POOL_STATES; s++)
        slots += p->model[model].count[s];
    if (rates && !given)
        count = pool_spares_for((uint32_t)slots, failures, repair, risk);
    if (given ? failures + repair + risk > 0 : !rates)
        api_problem(c, 400, NULL, "either count, or failures_per_year, repair_days and risk");
    else if (model == CORE_NONE)
        api_problem(c, 404, "unknown", "no slot ever had the model %s", c->arg);
    else if (api_done(c, core_set_spares(c->a->core, c->arg, (uint32_t)count)))
        api_answer_json(
            c, 200,
            json_pack("{s:o, s:I}", "model", api_json_text(c->arg), "count", (json_int_t)count));
}
