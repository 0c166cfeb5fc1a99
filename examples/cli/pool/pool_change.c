/* pool_change.c - dxpu lease, drain, replace, break, repair, reset, forget, tenant, spares
   SPDX-License-Identifier: MIT

   What a command waits for is durable at the manager before: an unreachable manager is asked again
   until the time is over.

   CONTENTS   1 Waiting   2 Leases   3 Boxes and slots   4 Settings */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool.h"
#include "pool_print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_MS = 200, SAID_MAX = 700, SLOTS_MAX = 64, BOX_PAGE = 500, BOX_PAGES_MAX = 132 };

/* ==== 1  Waiting ============================================================================== */

typedef struct waiting {
    pool_call *r;
    uint64_t end_ms; /* UINT64_MAX: any time */
    char said[SAID_MAX];
} waiting;

static void wait_begin(waiting *w, pool_call *r, uint64_t otherwise_s)
{
    uint64_t s = r->wait_s == UINT64_MAX ? otherwise_s : r->wait_s;
    memset(w, 0, sizeof *w);
    w->r = r;
    w->end_ms = s == UINT64_MAX ? s : pool_now_ms() + s * 1000;
}

/* Progress, once. */
static void wait_say(waiting *w, const char *text)
{
    if (strcmp(w->said, text) == 0)
        return;
    snprintf(w->said, sizeof w->said, "%s", text);
    pool_progress("%s", text);
}

/* Ask until the leader answers or the time is over: a standby does not know where slots are.  0, or
   an exit status after saying why. */
static int wait_get(waiting *w, const char *path)
{
    for (;;) {
        pool_result result = pool_client_ask(&w->r->client, "GET", path, NULL);
        if (result == POOL_DONE && w->r->client.standby) {
            result = POOL_NO_ANSWER;
            snprintf(w->r->client.why, sizeof w->r->client.why, "no manager leads now");
        }
        if (result == POOL_DONE && w->r->client.body)
            return 0;
        bool passes = result == POOL_NO_ANSWER ||
                      (result == POOL_REFUSED && w->r->client.again != POOL_AGAIN_NO);
        uint64_t now = pool_now_ms(), pause = POLL_MS + w->r->client.retry_after_s * 1000ull;
        if (!passes || now >= w->end_ms)
            return pool_failed(w->r, result);
        wait_say(w, w->r->client.why);
        (void)pool_sleep(w->r, (unsigned)(pause < w->end_ms - now ? pause : w->end_ms - now));
    }
}

/* Between two looks; false: the time is over. */
static bool wait_on(const waiting *w)
{
    if (pool_now_ms() >= w->end_ms)
        return false;
    (void)pool_sleep(w->r, POLL_MS);
    return true;
}

/* ==== 2  Leases =============================================================================== */

static int check_lease(const char *id)
{
    if (pool_is_lease(id))
        return 0;
    return options_wrong("'%s': a lease is a hex number, as in c00000003", id);
}

static void say_lease(waiting *w, const json_t *lease)
{
    char text[SAID_MAX];
    size_t index, at;
    json_t *slot;
    int n = snprintf(text, sizeof text, "lease %.16s: %.20s", pool_string(lease, "lease"),
                     pool_string(lease, "state"));
    at = n > 0 ? (size_t)n : 0;
    json_array_foreach(json_object_get(lease, "slots"), index, slot)
    {
        n = snprintf(text + at, sizeof text - at, ", slot %.16s %.20s%s", pool_string(slot, "slot"),
                     pool_string(slot, "state"), pool_print_away(slot));
        if (n < 0 || (size_t)n >= sizeof text - at)
            break;
        at += (size_t)n;
    }
    wait_say(w, text);
}

/* Is the box of one of its slots? */
static bool any_away(const json_t *lease)
{
    size_t index;
    json_t *slot;
    json_array_foreach(json_object_get(lease, "slots"), index, slot)
    {
        if (*pool_print_away(slot))
            return true;
    }
    return false;
}

/* The first reason that the manager gives: ": why", or "". */
static const char *first_why(const json_t *lease, char out[256])
{
    size_t index;
    json_t *slot;
    *out = '\0';
    json_array_foreach(json_object_get(lease, "slots"), index, slot)
    {
        const char *why = pool_string(slot, "why");
        if (*why && !*out)
            snprintf(out, 256, ": slot %.16s: %.200s", pool_string(slot, "slot"), why);
    }
    return out;
}

/* The last answer is the lease; until all its slots are up, when that is asked for. */
int pool_finish_lease(pool_call *r)
{
    waiting w;
    char id[24], path[64], why[256];
    int rc = 0;
    snprintf(id, sizeof id, "%.17s", pool_string(r->client.body, "lease"));
    if (!pool_is_lease(id))
        return pool_misfit(r, "it is not a lease");
    snprintf(path, sizeof path, "/v1/leases/%s", id);
    wait_begin(&w, r, POOL_WAIT_S);
    while (r->given & POOL_WAIT && !rc &&
           strcmp(pool_string(r->client.body, "state"), "parked") != 0 && /* it has no host */
           strcmp(pool_string(r->client.body, "state"), "active") != 0) {
        say_lease(&w, r->client.body);
        if (!wait_on(&w)) {
            if (r->json)
                (void)pool_print_answer(r);
            return pool_fail(r, EXIT_REFUSED,
                             "lease %s is not up in time%s; it stays: 'dxpu show lease %s' "
                             "shows it, 'dxpu lease release %s' ends it",
                             id,
                             json_is_false(json_object_get(r->client.body, "host_connected"))
                                 ? ": its host is disconnected"
                             : any_away(r->client.body) ? ": a box of it is disconnected"
                                                        : first_why(r->client.body, why),
                             id, id);
        }
        rc = wait_get(&w, path);
    }
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    pool_print_lease_slots(r->client.body, stdout);
    return EXIT_ALL;
}

static void set(json_t *o, const char *key, json_t *value)
{
    if (json_object_set_new(o, key, value))
        out_of_memory();
}

/* Of text that came from the command line. */
static json_t *text_of(const char *text)
{
    json_t *j = json_string(text);
    return j ? j : json_string("?"); /* no UTF-8: the manager says that there is none */
}

static json_t *number_of(uint64_t n)
{
    return json_integer((json_int_t)n);
}

int pool_lease_create(pool_call *r)
{
    static const char *const needs[][2] = { { "any", "any" },
                                            { "same-box", "same_box" },
                                            { "same-group", "same_group" },
                                            { "spread", "spread" } };
    static const char *const devices[] = { "any", "whole", "function" };
    const char *need = r->need ? NULL : "any";
    bool known = !r->device;
    json_t *o;
    uint64_t host;
    int rc;
    for (size_t i = 0; !need && i < sizeof needs / sizeof *needs; i++) {
        if (strcmp(needs[i][0], r->need) == 0)
            need = needs[i][1];
    }
    if (!need)
        return options_wrong("--need is any, same-box, same-group or spread, not '%s'", r->need);
    for (size_t i = 0; !known && i < sizeof devices / sizeof *devices; i++)
        known = strcmp(devices[i], r->device) == 0;
    if (!known)
        return options_wrong("--device is any, whole or function, not '%s'", r->device);
    if (r->peer && !pool_is_lease(r->peer))
        return options_wrong("--peer '%s': a lease is a hex number, as in c00000003", r->peer);
    if (r->given & POOL_REPLACE && r->given & POOL_NO_REPLACE)
        return options_wrong("either --replace or --no-replace");
    rc = pool_need(r, POOL_HOST | POOL_MODEL);
    if (!rc)
        rc = pool_find_node(r, "hosts", r->host, &host);
    if (rc)
        return rc;
    o = json_object();
    set(o, "host", number_of(host));
    set(o, "model", text_of(r->model));
    if (r->attributes)
        set(o, "attributes", text_of(r->attributes));
    set(o, "count", number_of(r->count));
    set(o, "need", json_string(need));
    if (r->device) /* an earlier manager does not know these members */
        set(o, "device", text_of(r->device));
    if (r->exclusive)
        set(o, "exclusive", json_true());
    if (r->apart)
        set(o, "apart", json_true());
    if (r->peer)
        set(o, "peer", text_of(r->peer));
    if (r->tenant)
        set(o, "tenant", text_of(r->tenant));
    if (r->given & POOL_FOR)
        set(o, "seconds", number_of(r->for_s));
    if (r->given & (POOL_REPLACE | POOL_NO_REPLACE))
        set(o, "replace", json_boolean((r->given & POOL_REPLACE) != 0));
    if (r->key)
        set(o, "key", text_of(r->key));
    rc = pool_ask(r, "POST", o, "/v1/leases");
    return rc ? rc : pool_finish_lease(r);
}

/* The slots that the last answer names. */
static unsigned slots_of(const json_t *lease, char ids[SLOTS_MAX][24])
{
    unsigned count = 0;
    size_t index;
    json_t *slot;
    json_array_foreach(json_object_get(lease, "slots"), index, slot)
    {
        const char *id = pool_string(slot, "slot");
        if (pool_is_slot(id) && count < SLOTS_MAX)
            snprintf(ids[count++], 24, "%.23s", id);
    }
    return count;
}

typedef enum fate { WAITS, IS_OVER, HAS_FAILED, IS_HIDDEN } fate;

/* Has the slot come to rest after its lease: wiped, or given up with its data (keeps)? */
static fate fate_of(const pool_call *r, const json_t *slot, bool keeps)
{
    const char *state = pool_string(slot, "state"), *box = pool_string(slot, "box_state");
    const char *reason = pool_string(slot, "reason");
    bool away = json_is_false(json_object_get(slot, "connected"));
    if (!*box) /* another tenant's now, or the manager was restarted meanwhile */
        return IS_HIDDEN;
    if (keeps)
        return strcmp(box, "kept") == 0 || away || strcmp(state, "broken") == 0 ||
                       strcmp(state, "quarantined") == 0
                   ? IS_OVER
                   : WAITS;
    if (strcmp(state, "quarantined") == 0)
        return HAS_FAILED;
    if (strcmp(state, "broken") == 0 && json_is_true(json_object_get(slot, "dirty")))
        return strcmp(reason, "box") == 0 || strcmp(reason, "absent") == 0 ? WAITS : HAS_FAILED;
    return strcmp(state, "wiping") != 0 && strcmp(pool_string(slot, "lease"), r->word[0]) != 0
               ? IS_OVER
               : WAITS;
}

static int not_wiped(pool_call *r, const char *id, const json_t *slot)
{
    return pool_fail(
        r, EXIT_REFUSED,
        "slot %s could not be wiped: it is %s (%s), and not lent; when it works again, "
        "run 'dxpu repair %s'",
        id, pool_string(slot, "state"), pool_string(slot, "reason"), id);
}

/* Until all of them are at rest; 0, or an exit status after saying why. */
static int wait_over(pool_call *r, char ids[SLOTS_MAX][24], unsigned count, bool keeps)
{
    waiting w;
    char text[SAID_MAX], path[64];
    int status = 0;
    wait_begin(&w, r, POOL_WAIT_S);
    for (unsigned i = 0; i < count;) {
        const json_t *slot = NULL;
        fate now;
        int rc;
        snprintf(path, sizeof path, "/v1/slots/%s", ids[i]);
        rc = wait_get(&w, path);
        if (rc)
            return rc;
        slot = r->client.body;
        snprintf(text, sizeof text, "slot %s: %.30s (at its box: %.30s)", ids[i],
                 pool_string(slot, "state"),
                 json_is_false(json_object_get(slot, "connected"))
                     ? "disconnected"
                     : pool_string(slot, "box_state"));
        wait_say(&w, text);
        now = fate_of(r, slot, keeps);
        if (now == HAS_FAILED)
            status = not_wiped(r, ids[i], slot);
        if (now == IS_HIDDEN)
            status = pool_fail(r, EXIT_REFUSED,
                               "slot %s is another tenant's by now, or the manager was restarted: "
                               "whether it was wiped is shown to operators (dxpu show slot %s)",
                               ids[i], ids[i]);
        if (now != WAITS)
            i++;
        else if (!wait_on(&w))
            return pool_fail(
                r, EXIT_REFUSED, "slot %s is not done in time%s; it goes on by itself", ids[i],
                json_is_false(json_object_get(slot, "connected")) ? ": its box is disconnected"
                                                                  : "");
    }
    return status;
}

/* The slots of word[0] before it ends, when they are to be waited for; their number in *count. */
static int slots_before(pool_call *r, char ids[SLOTS_MAX][24], unsigned *count)
{
    int rc = r->given & POOL_WAIT ? pool_get(r, "/v1/leases/%s", r->word[0]) : 0;
    *count = rc || !(r->given & POOL_WAIT) ? 0 : slots_of(r->client.body, ids);
    return rc;
}

/* The last answer says how the lease ended. */
static int finish_end(pool_call *r, char ids[SLOTS_MAX][24], unsigned count)
{
    char state[16];
    json_t *answer = pool_client_document(&r->client);
    snprintf(state, sizeof state, "%.15s", pool_string(r->client.body, "state"));
    int rc = wait_over(r, ids, count, strcmp(state, "released") != 0);
    if (r->json && answer) {
        print_json(answer, 0);
        return rc;
    }
    json_decref(answer);
    if (!rc)
        printf("lease %s: %s%s\n", r->word[0], state,
               strcmp(state, "ended") == 0    ? "; its data are retained: 'dxpu lease recover'"
               : strcmp(state, "parked") == 0 ? "; it keeps its data: 'dxpu lease attach'"
                                              : "");
    return rc;
}

int pool_lease_release(pool_call *r)
{
    char ids[SLOTS_MAX][24], query[64];
    unsigned count;
    bool keep = (r->given & POOL_KEEP) != 0;
    int rc = check_lease(r->word[0]);
    snprintf(query, sizeof query, "request=release&lease=%.17s", r->word[0]);
    if (!rc && !keep)
        rc = pool_confirm(r, query);
    if (!rc)
        rc = slots_before(r, ids, &count);
    if (!rc)
        rc = pool_ask(r, "DELETE", NULL, "/v1/leases/%s%s", r->word[0],
                      keep ? "?data=keep" : pool_erase(r));
    return rc ? rc : finish_end(r, ids, count);
}

int pool_lease_park(pool_call *r)
{
    char ids[SLOTS_MAX][24];
    unsigned count;
    int rc = check_lease(r->word[0]);
    if (!rc)
        rc = slots_before(r, ids, &count);
    if (!rc)
        rc = pool_ask(r, "POST", NULL, "/v1/leases/%s/park", r->word[0]);
    return rc ? rc : finish_end(r, ids, count);
}

int pool_lease_extend(pool_call *r)
{
    char time[32];
    const char *ends;
    json_t *o;
    int rc = check_lease(r->word[0]);
    if (rc)
        return rc;
    if (!(r->given & POOL_FOR) == !(r->given & POOL_NO_END))
        return options_wrong("either --for TIME or --no-end is required");
    o = json_object();
    set(o, "seconds", r->given & POOL_FOR ? number_of(r->for_s) : json_null());
    rc = pool_ask(r, "PATCH", o, "/v1/leases/%s", r->word[0]);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    ends = pool_string(r->client.body, "expires_at");
    printf("lease %s: %s%s\n", r->word[0], *ends ? "ends at " : "ends when it is released",
           pool_text_time(ends, time));
    return EXIT_ALL;
}

int pool_lease_attach(pool_call *r)
{
    uint64_t host;
    json_t *o;
    int rc = pool_need(r, POOL_HOST);
    if (!rc)
        rc = check_lease(r->word[0]);
    if (!rc)
        rc = pool_find_node(r, "hosts", r->host, &host);
    if (rc)
        return rc;
    o = json_object();
    set(o, "host", number_of(host));
    rc = pool_ask(r, "POST", o, "/v1/leases/%s/attach", r->word[0]);
    return rc ? rc : pool_finish_lease(r);
}

/* ==== 3  Boxes and slots ====================================================================== */

/* What of a box is not at rest yet. */
typedef struct rest {
    unsigned slots, leased, wiping, held;
    char first[200]; /* which, as far as there is room */
} rest;

static void add_to_rest(rest *l, const json_t *slot)
{
    static const char *const busy[] = { "up", "held", "closing", "wiping" };
    const char *state = pool_string(slot, "state"), *box = pool_string(slot, "box_state");
    const char *what = NULL;
    size_t at = strlen(l->first);
    bool leased = *pool_string(slot, "lease") || strcmp(state, "leased") == 0;
    l->slots++;
    for (size_t i = 0; i < sizeof busy / sizeof *busy; i++) {
        if (strcmp(box, busy[i]) == 0)
            what = busy[i];
    }
    if (leased)
        l->leased++;
    else if (strcmp(state, "wiping") == 0)
        l->wiping++;
    else if (what)
        l->held++;
    else
        return;
    if (sizeof l->first - at > 100)
        snprintf(l->first + at, sizeof l->first - at, "%s%.16s %.20s%s", at ? ", " : "",
                 pool_string(slot, "slot"),
                 leased ? "leased"
                 : what ? what
                        : state,
                 json_is_false(json_object_get(slot, "connected")) ? " (its box is disconnected)"
                                                                   : "");
}

/* All slots of a box, page by page.  0, or an exit status after saying why. */
static int look_for_rest(waiting *w, uint64_t box, rest *l)
{
    char path[100], after[24] = "";
    bool go = true;
    memset(l, 0, sizeof *l);
    for (unsigned pages = 1; go; pages++) {
        const char *next;
        json_t *slots, *slot;
        size_t index;
        int rc;
        snprintf(path, sizeof path, "/v1/slots?node=%" PRIu64 "&limit=%d%s%s", box, BOX_PAGE,
                 *after ? "&after=" : "", after);
        rc = wait_get(w, path);
        if (rc)
            return rc;
        slots = json_object_get(w->r->client.body, "slots");
        if (!json_is_array(slots))
            return pool_misfit(w->r, "no list is in it");
        json_array_foreach(slots, index, slot) add_to_rest(l, slot);
        next = pool_string(w->r->client.body, "next");
        go = pool_is_slot(next);
        if (go && (!json_array_size(slots) || pages == BOX_PAGES_MAX || l->slots > UINT16_MAX))
            return pool_misfit(w->r, "the list does not end");
        snprintf(after, sizeof after, "%.23s", next);
    }
    return 0;
}

/* A lease that was not moved: why, as the manager's last event about its first slot here has it. */
static int tell_stay(pool_call *r, const char *lease, const char *slot)
{
    static const char begin[] = "its lease stays: ";
    const char *why;
    int rc = pool_get(r, "/v1/events?type=node.drain&slot=%s&last=1", slot);
    if (rc)
        return rc;
    why = pool_string(json_array_get(json_object_get(r->client.body, "events"), 0), "text");
    if (strncmp(why, begin, sizeof begin - 1) == 0)
        why += sizeof begin - 1;
    pool_progress("lease %s stays (slot %s)%s%s", lease, slot, *why ? ": " : "", why);
    return 0;
}

/* All leases that a drain left in the box. */
static int tell_stays(pool_call *r, uint64_t box)
{
    json_t *document, *slots, *slot, *told;
    char path[64];
    size_t index;
    int rc;
    snprintf(path, sizeof path, "/v1/slots?node=%" PRIu64 "&", box);
    rc = pool_pages(r, path, "slots", true, &document);
    if (rc)
        return rc;
    slots = json_object_get(document, "slots");
    if (json_array_size(slots) > UINT16_MAX)
        rc = pool_misfit(r, "more slots than a box can have");
    told = json_object(); /* the leases */
    json_array_foreach(slots, index, slot)
    {
        const char *lease = pool_string(slot, "lease"), *id = pool_string(slot, "slot");
        if (rc || !pool_is_lease(lease) || !pool_is_slot(id) || json_object_get(told, lease))
            continue;
        set(told, lease, json_true());
        rc = tell_stay(r, lease, id);
    }
    json_decref(told);
    json_decref(document);
    return rc;
}

/* The box of that number, until none of its slots is leased, held by a host or being wiped.  What
   --move has left there is not waited for. */
static int wait_drained(pool_call *r, uint64_t box)
{
    waiting w;
    rest left;
    char text[SAID_MAX];
    wait_begin(&w, r, UINT64_MAX);
    for (;;) {
        int rc = look_for_rest(&w, box, &left);
        if (rc)
            return rc;
        snprintf(text, sizeof text,
                 "box %" PRIu64 ": %u slots leased, %u wiping, %u held at the box", box,
                 left.leased, left.wiping, left.held);
        wait_say(&w, text);
        if (!left.leased && !left.wiping && !left.held)
            return 0;
        if (r->given & POOL_MOVE && !left.wiping && !left.held)
            return pool_fail(r, EXIT_REFUSED,
                             "box %" PRIu64
                             ": %u leased slots stay (%s), as reported above; the box "
                             "is out of service, and empty when those leases have ended or moved",
                             box, left.leased, left.first);
        if (!wait_on(&w))
            return pool_fail(r, EXIT_REFUSED,
                             "%s (%s): not drained in time; it stays out of service, and 'dxpu "
                             "list slots --node %" PRIu64 "' lists them",
                             text, left.first, box);
    }
}

int pool_direct(pool_call *r)
{
    bool on = !(r->given & POOL_OFF);
    uint64_t box;
    json_t *o;
    int rc = pool_find_node(r, "boxes", r->word[0], &box);
    if (rc)
        return rc;
    o = json_object();
    set(o, "on", json_boolean(on));
    rc = pool_ask(r, "PUT", o, "/v1/boxes/%" PRIu64 "/direct", box);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    printf("box %" PRIu64 ": its devices %s\n", box,
           on ? "may reach others directly" : "reach others through their hosts alone");
    return EXIT_ALL;
}

int pool_drain(pool_call *r)
{
    bool on = !(r->given & POOL_OFF);
    uint64_t box, left;
    json_t *o, *answer;
    int rc;
    if (!on && r->given & (POOL_MOVE | POOL_WAIT))
        return options_wrong("--off allows no other option");
    rc = pool_find_node(r, "boxes", r->word[0], &box);
    if (!rc && r->given & POOL_MOVE) {
        char query[64];
        snprintf(query, sizeof query, "request=drain&node=%" PRIu64, box);
        rc = pool_confirm(r, query);
    }
    if (rc)
        return rc;
    o = json_object();
    set(o, "on", json_boolean(on));
    set(o, "move", json_boolean((r->given & POOL_MOVE) != 0));
    rc = pool_ask(r, "PUT", o, "/v1/boxes/%" PRIu64 "/drain%s", box, pool_erase(r));
    if (rc)
        return rc;
    left = pool_integer(r->client.body, "left");
    answer = pool_client_document(&r->client);
    if (r->given & POOL_MOVE && left) {
        pool_progress("box %" PRIu64 ": %" PRIu64 " leased slots stay", box, left);
        rc = tell_stays(r, box);
    }
    if (!rc && r->given & POOL_WAIT)
        rc = wait_drained(r, box);
    if (r->json && answer) {
        print_json(answer, 0);
        return rc;
    }
    json_decref(answer);
    if (!rc && !on)
        printf("box %" PRIu64 ": back in service\n", box);
    else if (!rc && r->given & POOL_WAIT)
        printf("box %" PRIu64 ": drained, no slot is leased, held or being wiped\n", box);
    else if (!rc)
        printf("box %" PRIu64 ": draining, %" PRIu64 " slots are leased\n", box, left);
    return rc;
}

/* What the slot's lease has now. */
static int print_lease_of(pool_call *r, const char *lease)
{
    int rc = *lease ? pool_get(r, "/v1/leases/%s", lease) : 0;
    if (!rc && *lease)
        pool_print_lease_slots(r->client.body, stdout);
    return rc;
}

int pool_slot(pool_call *r)
{
    char id[24], lease[24] = "";
    bool wiped = strcmp(r->verb->name, "replace") == 0, keep = (r->given & POOL_KEEP) != 0;
    int rc = pool_find_slot(r, r->word[0], id);
    if (!rc && !keep && (wiped || strcmp(r->verb->name, "repair") == 0)) {
        char query[64];
        snprintf(query, sizeof query, "request=%s&slot=%s", r->verb->name, id);
        rc = pool_confirm(r, query);
    }
    if (!rc && !r->json) { /* people want to know which slot its lease gets */
        rc = pool_get(r, "/v1/slots/%s", id);
        if (!rc)
            snprintf(lease, sizeof lease, "%.17s", pool_string(r->client.body, "lease"));
    }
    if (!rc)
        rc = pool_ask(r, "POST", NULL, "/v1/slots/%s/%s%s%s", id, r->verb->name,
                      keep                  ? "?data=keep"
                      : r->given & POOL_ALL ? "?device=yes"
                                            : pool_erase(r),
                      !(r->given & POOL_FORCE) ? ""
                      : r->confirmed           ? "&force=yes"
                                               : "?force=yes");
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    printf("slot %s: %s%s\n", id, pool_string(r->client.body, "state"),
           wiped ? "; what its lease had there is wiped" : "");
    return print_lease_of(r, pool_is_lease(lease) ? lease : "");
}

int pool_set_owner(pool_call *r)
{
    bool no_owner = (r->given & POOL_NO_OWNER) != 0;
    const char *now;
    uint64_t host;
    json_t *o;
    int rc;
    if (no_owner != (r->words == 1))
        return options_wrong("either a tenant or --no-owner is required");
    rc = pool_find_node(r, "hosts", r->word[0], &host);
    if (rc)
        return rc;
    o = json_object();
    set(o, "owner", no_owner ? json_null() : text_of(r->word[1]));
    rc = pool_ask(r, "PUT", o, "/v1/hosts/%" PRIu64 "/owner", host);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    now = pool_string(r->client.body, "owner");
    printf("host %" PRIu64 ": %s%s\n", host, *now ? "tenant " : "no owner", now);
    return EXIT_ALL;
}

int pool_rekey(pool_call *r)
{
    uint64_t node;
    int rc = pool_find_node(r, "nodes", r->word[0], &node);
    if (!rc)
        rc = pool_ask(r, "DELETE", NULL, "/v1/nodes/%" PRIu64 "/key", node);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    printf("node %" PRIu64 ": its next key is its key\n", node);
    return EXIT_ALL;
}

int pool_forget(pool_call *r)
{
    uint64_t node;
    int rc = pool_find_node(r, "nodes", r->word[0], &node);
    if (!rc)
        rc = pool_ask(r, "DELETE", NULL, "/v1/nodes/%" PRIu64, node);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    printf("node %" PRIu64 ": forgotten\n", node);
    return EXIT_ALL;
}

/* ==== 4  Settings ============================================================================= */

int pool_set_tenant(pool_call *r)
{
    char name[POOL_PATH_MAX / 2];
    bool none = r->quota && strcmp(r->quota, "none") == 0;
    uint64_t quota = 0;
    json_t *o;
    bool both = r->given & POOL_DIRECT && r->given & POOL_NO_DIRECT;
    int rc = r->given & (POOL_DIRECT | POOL_NO_DIRECT) ? 0 : pool_need(r, POOL_QUOTA);
    if (rc || both)
        return rc ? rc : options_wrong("either --direct or --no-direct");
    if (r->quota && !none && !options_number(r->quota, UINT32_MAX - 1, &quota))
        return options_wrong("--quota is a number of slots or none, not '%s'", r->quota);
    if (!*r->word[0] || !pool_text_escape(r->word[0], name, sizeof name))
        return options_wrong("which tenant?");
    o = json_object();
    if (r->quota)
        set(o, "quota", none ? json_null() : number_of(quota));
    if (r->given & (POOL_DIRECT | POOL_NO_DIRECT))
        set(o, "direct", json_boolean((r->given & POOL_DIRECT) != 0));
    rc = pool_ask(r, "PUT", o, "/v1/tenants/%s", name);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    if (r->quota)
        printf("tenant %s: quota %s\n", r->word[0], r->quota);
    if (r->given & (POOL_DIRECT | POOL_NO_DIRECT))
        printf("tenant %s: its devices %s\n", r->word[0],
               r->given & POOL_DIRECT ? "may reach one another directly"
                                      : "reach one another through hosts alone");
    return EXIT_ALL;
}

static int spares_of_count(const pool_call *r, json_t *o)
{
    uint64_t count;
    if (r->given & (POOL_FAILURES | POOL_REPAIR | POOL_RISK))
        return options_wrong("either a number of slots, or --failures-per-year and "
                             "--repair-days");
    if (!options_number(r->word[1], UINT32_MAX - 1, &count))
        return options_wrong("'%s' is not a number of slots", r->word[1]);
    set(o, "count", number_of(count));
    return 0;
}

/* As many as the manager finds that it takes. */
static int spares_of_risk(const pool_call *r, json_t *o)
{
    const char *const keys[] = { "failures_per_year", "repair_days", "risk" };
    const char *const texts[] = { r->failures, r->repair, r->risk ? r->risk : "0.001" };
    for (unsigned i = 0; i < 3; i++) {
        char *end;
        double v;
        if (!texts[i])
            return options_wrong("a number of slots is required, or --failures-per-year "
                                 "and --repair-days");
        v = strtod(texts[i], &end);
        if (strspn(texts[i], "0123456789.") != strlen(texts[i]) || *end || !(v > 0) || v > 1e9)
            return options_wrong("'%s' is not a number above 0, such as 0.05", texts[i]);
        set(o, keys[i], json_real(v));
    }
    return 0;
}

int pool_set_spares(pool_call *r)
{
    char name[POOL_PATH_MAX / 2];
    json_t *o;
    int rc;
    if (!*r->word[0] || !pool_text_escape(r->word[0], name, sizeof name))
        return options_wrong("which model?");
    o = json_object();
    rc = r->word[1] ? spares_of_count(r, o) : spares_of_risk(r, o);
    if (rc) {
        json_decref(o);
        return rc;
    }
    rc = pool_ask(r, "PUT", o, "/v1/models/%s/spares", name);
    if (rc)
        return rc;
    if (r->json)
        return pool_print_answer(r);
    printf("model %s: %" PRIu64 " spares wanted\n", r->word[0],
           pool_integer(r->client.body, "count"));
    return EXIT_ALL;
}
