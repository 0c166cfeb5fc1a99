/* api_data.c - requests about data that are kept for a lease, what would erase them,
   adoption, backup
   SPDX-License-Identifier: MIT */
#include "api_internal.h"

#include <stdio.h>
#include <string.h>

enum { ERASED_MAX = 256 }; /* that are listed */

/* ==== 1  What would be erased ================================================================= */

/* Appends what this would erase to the list, which has ERASED_MAX at most; their number. */
static unsigned list_erased(const api *a, json_t *list, core_deed deed, uint64_t of)
{
    core_erased erased[ERASED_MAX];
    unsigned total = core_would_erase(a->core, deed, of, erased, ERASED_MAX);
    for (unsigned i = 0; i < total && json_array_size(list) < ERASED_MAX; i++) {
        char name[24];
        api_slot_name(a, erased[i].slot, name);
        (void)json_array_append_new(
            list, json_pack("{s:s, s:o, s:o}", "slot", name, "lease",
                            api_json_lease_id(erased[i].lease), "tenant",
                            erased[i].tenant[0] ? api_json_text(erased[i].tenant) : json_null()));
    }
    return total;
}

/* Answers with the list unless there is nothing in it. */
static bool nothing_erased(api_conn *c, json_t *list, unsigned total)
{
    if (total)
        api_problem_erases(c, list, total);
    else
        json_decref(list);
    return !total;
}

bool api_may_erase(api_conn *c, unsigned confirmed, core_deed deed, uint64_t of)
{
    json_t *list = confirmed ? NULL : json_array();
    return confirmed || nothing_erased(c, list, list_erased(c->a, list, deed, of));
}

/* ==== 2  Retained slots ======================================================================= */

json_t *api_json_retained(const api *a, uint64_t lease)
{
    json_t *out = json_array();
    uint32_t slot[POOL_COUNT_MAX];
    unsigned count = pool_lease_retained(core_pool(a->core), lease, slot);
    char name[24];
    for (unsigned i = 0; i < count; i++) {
        api_slot_name(a, slot[i], name);
        (void)json_array_append_new(out, json_string(name));
    }
    return out;
}

static bool has_ended(const core *c, uint64_t lease)
{
    return core_lease_now(c, lease) == CORE_LEASE_ENDED;
}

/* A slot as requests name it: a change of the pool may move it in the tables. */
typedef struct slot_name {
    uint32_t node, number;
} slot_name;

static uint32_t find_named(const core *c, slot_name name, uint64_t lease)
{
    uint32_t slot = core_find_slot(c, name.node, name.number);
    return slot != CORE_NONE && core_slot_owner(c, slot) == lease ? slot : CORE_NONE;
}

/* The slot that the body names: node << 16 | number, 0: none; false after a problem. */
static bool read_slot(api_conn *c, uint64_t *named)
{
    const api_member members[] = { { "slot", API_SLOT, named, 0, 0, NULL, false, false } };
    *named = 0;
    return api_members(c, members, 1);
}

/* The one slot that was named, or all; how many, 0 after a problem. */
static unsigned find_names(api_conn *c, uint64_t lease, uint64_t named,
                           slot_name name[POOL_COUNT_MAX])
{
    uint32_t slot[POOL_COUNT_MAX], nodes, slots;
    unsigned count = named ? 1 : pool_lease_retained(core_pool(c->a->core), lease, slot);
    for (unsigned i = 0; !named && i < count; i++) {
        const core_slot *s = &core_slots(c->a->core, &slots)[slot[i]];
        name[i].node = core_nodes(c->a->core, &nodes)[s->node].number;
        name[i].number = s->device.number;
    }
    if (named)
        name[0] = (slot_name){ (uint32_t)(named >> 16), (uint32_t)named & 0xffff };
    if (count && find_named(c->a->core, name[0], lease) != CORE_NONE)
        return count;
    api_problem(c, 409, "state", "%s is retained for lease %llx",
                named ? "that slot is not what" : "nothing", (unsigned long long)lease);
    return 0;
}

/* Confirmed, or none of the slots that are meant has data that would be erased. */
static bool may_discard(api_conn *c, unsigned confirmed, uint64_t lease, const slot_name *name,
                        unsigned count)
{
    json_t *list;
    unsigned total = 0;
    if (confirmed)
        return true;
    list = json_array();
    for (unsigned i = 0; i < count; i++) {
        uint32_t slot = find_named(c->a->core, name[i], lease);
        total += slot != CORE_NONE ? list_erased(c->a, list, CORE_DEED_DISCARD, slot) : 0;
    }
    return nothing_erased(c, list, total);
}

/* A lease that has ended is taken back as a whole, and waits for attach. */
void api_post_recover(api_conn *c)
{
    uint64_t lease, named;
    slot_name name[POOL_COUNT_MAX];
    if (!api_params(c, NULL, 0) || (lease = api_lease_of(c)) == 0 || !read_slot(c, &named))
        return;
    if (!named && has_ended(c->a->core, lease)) {
        if (api_done(c, core_extend(c->a->core, lease, 0)))
            api_answer_lease(c, 200, lease);
        return;
    }
    if (named && !find_names(c, lease, named, name))
        return;
    if (api_done(c, named ? core_recover(c->a->core, find_named(c->a->core, name[0], lease))
                          : core_recover_all(c->a->core, lease)))
        api_answer_lease(c, 200, lease);
}

/* What is kept for a lease that has ended is given up as a whole. */
void api_post_discard(api_conn *c)
{
    uint64_t lease, named;
    unsigned count, erase = 0;
    slot_name name[POOL_COUNT_MAX];
    const api_param params[] = { API_ERASE_PARAM(&erase) };
    if (!api_params(c, params, 1) || (lease = api_lease_of(c)) == 0 || !read_slot(c, &named))
        return;
    if (!named && has_ended(c->a->core, lease)) {
        if (api_may_erase(c, erase, CORE_DEED_RELEASE, lease))
            api_end_lease(c, lease, false, 202, 0);
        return;
    }
    count = find_names(c, lease, named, name);
    if (!count || !may_discard(c, erase, lease, name, count))
        return;
    for (unsigned i = 0; i < count; i++) {
        uint32_t slot = find_named(c->a->core, name[i], lease);
        if (slot != CORE_NONE && !api_done(c, core_discard(c->a->core, slot)))
            return;
    }
    api_answer_lease(c, 200, lease);
}

/* ==== 3  What a request would erase =========================================================== */

/* What it would be about: a node's number, a slot's index or a lease; false after a problem. */
static bool read_deed(api_conn *c, core_deed *deed, uint64_t *of)
{
    static const core_deed deeds[] = { CORE_DEED_DRAIN, CORE_DEED_REPLACE, CORE_DEED_REPAIR,
                                       CORE_DEED_DISCARD, CORE_DEED_RELEASE };
    unsigned request = 5;
    uint64_t node = 0, slot = 0, lease = 0;
    uint32_t index;
    const api_param params[] = {
        { "request", API_CHOICE, &request, 0, 0, "drain|replace|repair|discard|release", true,
          false },
        { "node", API_NUMBER, &node, 1, UINT32_MAX, NULL, false, false },
        { "slot", API_SLOT, &slot, 0, 0, NULL, false, false },
        { "lease", API_LEASE, &lease, 0, 0, NULL, false, false },
    };
    if (!api_params(c, params, sizeof params / sizeof params[0]))
        return false;
    if (request == 5 || !(request == 0 ? node : request == 4 ? lease : slot)) {
        api_problem(c, 400, NULL,
                    "request: drain with node, release with lease, and replace, repair or discard "
                    "with slot");
        return false;
    }
    index = core_find_slot(c->a->core, (uint32_t)(slot >> 16), (uint32_t)slot & 0xffff);
    if (slot && index == CORE_NONE) {
        api_problem(c, 404, "unknown", "no such slot");
        return false;
    }
    if (c->caller.role == API_TENANT &&
        !api_sees_lease(c->a, &c->caller,
                        request == 4   ? lease
                        : request == 3 ? core_slot_owner(c->a->core, index)
                                       : 0)) {
        api_problem(c, 404, "unknown", "no such lease, or not this tenant's");
        return false;
    }
    *deed = deeds[request];
    *of = request == 0 ? node : request == 4 ? lease : index;
    return true;
}

void api_get_erasures(api_conn *c)
{
    core_deed deed;
    uint64_t of;
    unsigned total;
    json_t *list;
    if (!read_deed(c, &deed, &of))
        return;
    list = json_array();
    total = list_erased(c->a, list, deed, of);
    api_answer_json(c, 200, json_pack("{s:o, s:i}", "erases", list, "total", (int)total));
}

/* ==== 4  The clock ============================================================================ */

void api_post_clock(api_conn *c)
{
    int64_t step_ms;
    if (!api_params(c, NULL, 0) || !api_members(c, NULL, 0))
        return;
    if (api_done(c, core_confirm_clock(c->a->core)))
        api_answer_json(c, 200, json_pack("{s:b}", "held", core_clock_held(c->a->core, &step_ms)));
}

/* ==== 5  Adoption ============================================================================= */

enum { ADOPTED_MAX = 256, ADOPT_LISTED_MAX = 1000 }; /* changes in a request; slots in its answer */

typedef struct adopting {
    bool dry, more; /* more: of what could be adopted something is left for another request */
    bool named;     /* the client named one slot */
    char tenant[CORE_NAME_BYTES];
    unsigned adopted, freed, left;
    json_t *list;
} adopting;

static json_t *number_or_null(uint64_t n)
{
    return n ? json_integer((json_int_t)n) : json_null();
}

static void list_adoption(const api *a, adopting *w, uint32_t slot, const core_adoption *of)
{
    static const char *const what[] = { "left", "lease", "back", "free", "back" };
    char name[24];
    w->left += of->what == CORE_ADOPT_NOT;
    w->freed += of->what == CORE_ADOPT_FREE;
    w->adopted += of->what != CORE_ADOPT_NOT && of->what != CORE_ADOPT_FREE;
    if (json_array_size(w->list) == ADOPT_LISTED_MAX)
        return;
    api_slot_name(a, slot, name);
    (void)json_array_append_new(
        w->list, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "slot", name, "what",
                           what[of->what], "lease", api_json_lease_id(of->lease), "tenant",
                           of->tenant[0] ? api_json_text(of->tenant) : json_null(), "epoch",
                           number_or_null(of->epoch), "known_epoch",
                           number_or_null(of->known_epoch), "host", number_or_null(of->host),
                           "host_slot", number_or_null(of->host ? of->host_slot : 0), "why",
                           of->why[0] ? api_json_text(of->why) : json_null()));
}

/* False after a problem: nothing can be changed now. */
static bool adopt_slot(api_conn *c, adopting *w, uint32_t slot)
{
    core_adoption of;
    if (!core_may_adopt(c->a->core, slot, w->named, w->tenant, &of))
        return true;
    if (w->dry || of.what == CORE_ADOPT_NOT) {
        list_adoption(c->a, w, slot, &of);
        return true;
    }
    w->more = w->more || w->adopted + w->freed == ADOPTED_MAX;
    if (w->more)
        return true;
    core_result r = core_adopt(c->a->core, slot, w->named, w->tenant, &of);
    w->more = r.code == CORE_E_PACE && w->adopted + w->freed;
    if (w->more)
        return true;
    if (r.code == CORE_E_STORE || r.code == CORE_E_MEMORY || r.code == CORE_E_PACE)
        return api_done(c, r);
    if (r.code != CORE_OK) {
        of.what = CORE_ADOPT_NOT;
        snprintf(of.why, sizeof of.why, "%s", r.text);
    }
    list_adoption(c->a, w, slot, &of);
    return true;
}

/* All quarantined slots, or one; nothing of it is wiped, so there is nothing to confirm. */
void api_post_adopt(api_conn *c)
{
    unsigned dry = 0;
    uint64_t named = 0;
    adopting w = { 0 };
    uint32_t slots, slot;
    const api_param params[] = {
        { "dry_run", API_CHOICE, &dry, 0, 0, "no|yes", false, false },
        { "slot", API_SLOT, &named, 0, 0, NULL, false, false },
    };
    const api_member members[] = {
        { "tenant", API_NAME, w.tenant, 0, CORE_NAME_BYTES - 1, NULL, false, false },
    };
    if (!api_params(c, params, 2) || !api_members(c, members, 1))
        return;
    slot = core_find_slot(c->a->core, (uint32_t)(named >> 16), (uint32_t)named & 0xffff);
    if (named && slot == CORE_NONE) {
        api_problem(c, 404, "unknown", "no such slot");
        return;
    }
    w.dry = dry;
    w.named = named != 0;
    w.list = json_array();
    (void)core_slots(c->a->core, &slots);
    bool good = true;
    for (uint32_t i = named ? slot : 0; good && i < (named ? slot + 1 : slots); i++)
        good = adopt_slot(c, &w, i);
    if (good)
        api_answer_json(c, 200,
                        json_pack("{s:b, s:i, s:i, s:i, s:b, s:o}", "dry_run", w.dry, "adopted",
                                  (int)w.adopted, "freed", (int)w.freed, "left", (int)w.left,
                                  "more", w.more, "slots", w.list));
    else
        json_decref(w.list);
}

/* ==== 6  Backup =============================================================================== */

void api_get_snapshot(api_conn *c)
{
    char *text;
    size_t bytes;
    if (api_params(c, NULL, 0) && api_done(c, core_snapshot(c->a->core, &text, &bytes)))
        api_answer(c, 200, "text/plain; charset=utf-8", text, bytes);
}
