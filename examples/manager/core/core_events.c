/* core_events.c - what happened, for people and programs that watch
   SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core_internal.h"

const char *core_event_name(unsigned type)
{
    static const char *const names[] = {
#define COREI_EVENT_NAME(name, text) text,
        CORE_EVENTS(COREI_EVENT_NAME)
#undef COREI_EVENT_NAME
    };
    return type < CORE_EVENT_TYPES ? names[type] : "?";
}

static core_event *event_begin(core *c, core_event_type type, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static core_event *event_begin(core *c, core_event_type type, const char *format, va_list args)
{
    core_event *e = c->tolds < COREI_TX_EVENTS ? &c->told[c->tolds++] : &c->spare;
    memset(e, 0, sizeof *e);
    e->number = c->history.last + c->tolds;
    e->unix_ms = c->unix_ms;
    e->type = (uint8_t)type;
    vsnprintf(e->text, sizeof e->text, format, args);
    for (char *p = e->text; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    return e;
}

static void event_lease(const core *c, core_event *e, uint64_t lease)
{
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    e->lease = lease;
    if (l)
        memcpy(e->tenant, c->t.tenant[l->tenant].name, sizeof e->tenant);
}

core_event *corei_event(core *c, core_event_type type, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    core_event *e = event_begin(c, type, format, args);
    va_end(args);
    return e;
}

void corei_event_node(core *c, core_event_type type, uint32_t node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    core_event *e = event_begin(c, type, format, args);
    va_end(args);
    e->node = c->t.node[node].number;
}

void corei_event_slot(core *c, core_event_type type, uint32_t slot, const char *format, ...)
{
    const pool_slot *s = &c->t.pool->slot[slot];
    va_list args;
    va_start(args, format);
    core_event *e = event_begin(c, type, format, args);
    va_end(args);
    e->node = c->t.node[c->t.slot[slot].node].number;
    e->slot = c->t.slot[slot].device.number;
    uint32_t lease = s->lease != POOL_NONE ? s->lease : s->owner;
    if (lease != POOL_NONE)
        event_lease(c, e, pool_lease_number(c->t.pool, lease));
}

void corei_event_lease(core *c, core_event_type type, uint64_t lease, const char *format, ...)
{
    const pool_lease *l = pool_find_lease(c->t.pool, lease);
    va_list args;
    va_start(args, format);
    core_event *e = event_begin(c, type, format, args);
    va_end(args);
    event_lease(c, e, lease);
    if (l && l->host != POOL_NONE)
        e->node = c->t.node[c->t.host_node[l->host]].number;
}

void corei_events_keep(core *c)
{
    for (unsigned i = 0; i < c->tolds; i++)
        corei_history_keep(c, &c->told[i]);
    unsigned tolds = c->tolds;
    c->tolds = 0;
    for (unsigned i = 0; c->set.on_event && i < tolds; i++)
        c->set.on_event(c->set.user, &c->told[i]);
}
