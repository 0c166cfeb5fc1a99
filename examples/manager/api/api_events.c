/* api_events.c - what happened: a list, or a stream (server-sent events)
   SPDX-License-Identifier: MIT

   A stream keeps no events: it remembers how far it is, and takes the next ones from the core when
   its reader has taken those before. */
#include "api_internal.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOME = 32, AHEAD_BYTES = 32 * 1024, EVENT_BYTES = 1024 };

void api_event(api *a, const core_event *e)
{
    if (!a)
        return;
    a->newest = e->number;
    if (e->type < CORE_EVENT_TYPES)
        a->events[e->type]++;
    event_active(a->news, EV_TIMEOUT, 0); /* not from here: the core is at work */
}

static bool is_selected(const api_conn *c, const api_selection *s, const core_event *e)
{
    if (c->caller.role == API_TENANT && strcmp(e->tenant, c->caller.tenant) != 0)
        return false;
    return (!s->lease || s->lease == e->lease) && (!s->node || s->node == e->node) &&
           (!s->slot || s->slot == ((uint64_t)e->node << 16 | e->slot)) &&
           !strncmp(core_event_name(e->type), s->type, strlen(s->type));
}

/* ==== 1  Stream =============================================================================== */

/* False: out of memory. */
static bool send_event(api_conn *c, const core_event *e)
{
    json_t *j = api_json_event(c->a, e);
    char *data = json_dumps(j, JSON_COMPACT), text[EVENT_BYTES];
    int n = -1;
    json_decref(j);
    if (data)
        n = snprintf(text, sizeof text, "id: %llu\nevent: %s\ndata: %s\n\n",
                     (unsigned long long)e->number, core_event_name(e->type), data);
    free(data);
    return n > 0 && (size_t)n < sizeof text && api_stream_send(c, text, (size_t)n);
}

void api_stream_pump(api_conn *c)
{
    core_event some[SOME];
    api_selection *s = &c->u.stream;
    while (s->after < c->a->newest && api_unsent(c) < AHEAD_BYTES) {
        unsigned n = core_events_after(c->a->core, s->after, some, SOME);
        if (!n)
            return;
        for (unsigned i = 0; i < n; i++) {
            s->after = some[i].number;
            if (is_selected(c, s, &some[i]) && !send_event(c, &some[i]))
                return;
        }
    }
}

static void stream(api_conn *c, const api_selection *s)
{
    if (!api_has_room(c, API_STREAMING, c->a->set.streams)) {
        api_problem(c, 503, "busy", "too many streams are open, %u at most", c->a->set.streams);
        return;
    }
    c->u.stream = *s;
    if (s->after > c->a->newest) /* of another store than this one, or none was named */
        c->u.stream.after = c->a->newest;
    api_stream_begin(c, "text/event-stream");
    if (api_stream_send(c, "retry: 1000\n\n", 13))
        api_stream_pump(c);
}

/* ==== 2  List ================================================================================= */

/* Behind which number the last `count` of them begin. */
static uint64_t before_last(const api_conn *c, const api_selection *s, uint64_t count)
{
    uint64_t before = c->a->newest + 1;
    core_event some[SOME];
    unsigned n;
    while (count && (n = core_events_before(c->a->core, before, some, SOME)) > 0) {
        for (unsigned i = 0; i < n && count; i++) {
            before = some[i].number;
            count -= is_selected(c, s, &some[i]);
        }
    }
    return before - 1;
}

/* At most that many behind *after; *after: how far that was. */
static json_t *events_after(const api_conn *c, const api_selection *s, uint64_t *after,
                            uint64_t limit)
{
    core_event some[SOME];
    json_t *out = json_array();
    unsigned n;
    while (json_array_size(out) < limit &&
           (n = core_events_after(c->a->core, *after, some, SOME)) > 0) {
        for (unsigned i = 0; i < n && json_array_size(out) < limit; i++) {
            *after = some[i].number;
            if (is_selected(c, s, &some[i]))
                (void)json_array_append_new(out, api_json_event(c->a, &some[i]));
        }
    }
    return out;
}

static void answer_list(api_conn *c, json_t *events, uint64_t next)
{
    api_answer_json(c, 200, json_pack("{s:o, s:I}", "events", events, "next", (json_int_t)next));
}

static void list(api_conn *c, const api_selection *s, uint64_t after, uint64_t limit)
{
    json_t *events = events_after(c, s, &after, limit);
    answer_list(c, events, after);
}

/* `next` is behind all there are, also those that were not asked for. */
static void list_last(api_conn *c, const api_selection *s, uint64_t count)
{
    uint64_t after = before_last(c, s, count);
    answer_list(c, events_after(c, s, &after, count), c->a->newest);
}

void api_get_events(api_conn *c)
{
    const api_head *h = &c->head;
    const char *accept = h->field[API_FIELD_ACCEPT], *id = h->field[API_FIELD_LAST_EVENT_ID];
    api_selection s = { UINT64_MAX, 0, 0, 0, "" };
    uint64_t limit = 100, last = UINT64_MAX;
    const api_param params[] = {
        { "after", API_NUMBER, &s.after, 0, INT64_MAX, NULL, false, false },
        { "limit", API_NUMBER, &limit, 1, 1000, NULL, false, false },
        { "lease", API_LEASE, &s.lease, 0, 0, NULL, false, false },
        { "type", API_NAME, s.type, 0, sizeof s.type - 1, NULL, false, false },
        { "node", API_NUMBER, &s.node, 1, UINT32_MAX, NULL, false, false },
        { "slot", API_SLOT, &s.slot, 0, 0, NULL, false, false },
        { "last", API_NUMBER, &last, 0, 1000, NULL, false, false },
    };
    if (!api_params(c, params, sizeof params / sizeof params[0]))
        return;
    if (api_accepts(accept, "text/event-stream") == 2 && h->method == EVHTTP_REQ_GET) {
        if (id && *id && !api_read_number(id, INT64_MAX, &s.after))
            api_problem(c, 400, NULL, "Last-Event-ID: a number");
        else if (last != UINT64_MAX)
            api_problem(c, 400, NULL, "last: of a list; a stream has after");
        else
            stream(c, &s);
    } else if (last != UINT64_MAX) {
        if (s.after != UINT64_MAX)
            api_problem(c, 400, NULL, "last: or after, not both");
        else
            list_last(c, &s, last);
    } else {
        list(c, &s, s.after == UINT64_MAX ? 0 : s.after, limit);
    }
}
