/* Pairs of channels over a bad network, in virtual time: everything follows from a seed.
   Included by the simulation suites (sim_*.c) after the implementation and cmocka.

       sim_options o;                     sim/net.h     random numbers, events, links, bottlenecks
       sim_from_seed(&o, seed);           sim/load.h    TLPs, a toy cipher
       sim_run(&s, &o);                   sim/world.h   options, pairs, ends, incarnations
       if (s.why[0]) ...                  sim/trace.h   a run as text and as a capture
       sim_teardown(&s);                  sim/check.h   what must hold
                                          sim/proxy.h   who opens, takes, contains
                                          sim/faults.h  what goes wrong: add yours there */
#ifndef SIM_H
#define SIM_H

#include <stdio.h>
#include <stdlib.h>

#include "arithmetic.h"
#include "net.h"
#include "load.h"
#include "world.h"
#include "trace.h"
#include "check.h"
#include "proxy.h"
#include "faults.h"

/* All that was submitted has come out, and nothing is under way. */
static inline bool sim_pair_rests(const sim *s, const sim_pair *p)
{
    for (int i = 0; i < 2; i++) {
        const sim_conn *c = p->end[i].live, *peer = p->end[1 - i].live;
        if (!sim_is_up(c) || !peer || sim_peer(c) != peer)
            return false;
        if (c->to_submit || c->events_due || c->reads_due || c->owed_head != c->owed_tail ||
            c->bulk_next != peer->bulk_expected || !sim_quiet(s, c))
            return false;
        for (unsigned cls = 0; cls < 4; cls++) {
            if (c->seen[cls] < c->logged[cls])
                return false;
        }
    }
    return p->under_way == 0 && s->faults_left == 0 && s->now_ns >= s->o.until_ns;
}

/* At rest: look at the books, then close or be done. */
static inline void sim_pair_settle(sim *s, sim_pair *p)
{
    bool closed = p->closing && !p->end[0].live && !p->end[1].live;
    if (p->done || (!closed && (p->closing || !sim_pair_rests(s, p))))
        return;
    if (!closed)
        sim_check_books(s, p);
    if (s->o.close && !closed && !s->why[0]) {
        sim_conn *c = p->end[sim_below(&s->rng, 2)].live;
        p->closing = true;
        dxpu_channel_close(&c->ch, DXPU_REASON_DETACH);
        sim_service(s, c);
        return;
    }
    p->done = true;
    s->undone--;
}

static inline void sim_moods(sim *s, sim_conn *c)
{
    if (s->o.refuse && sim_chance(&s->rng, 20)) {
        c->refused = sim_below(&s->rng, 3);
        c->refuse_until_ns = s->now_ns + sim_below(&s->rng, 20000000);
        sim_arm_app(s, c, c->refuse_until_ns - s->now_ns);
        s->count.refused_classes++;
    }
    if (s->o.stop && sim_chance(&s->rng, 10)) {
        c->stop_until_ns = s->now_ns + sim_below(&s->rng, 300000000);
        sim_arm_app(s, c, c->stop_until_ns - s->now_ns);
    }
}

static inline void sim_app(sim *s, sim_conn *c)
{
    sim_end *e = sim_end_of(c);
    if (!sim_is_up(c) || e->live != c || c->pair->done)
        return;
    sim_moods(s, c);
    if (!e->away && s->now_ns >= c->stop_until_ns)
        sim_consume(s, c);
    sim_submit_some(s, c);
    if (c->to_submit && s->o.bulk_every_ns)
        sim_arm_app(s, c, s->o.bulk_every_ns);
    else if (!s->o.bulk_bytes && !c->blocked && (c->to_submit || c->events_due))
        sim_arm_app(s, c, 1000 + sim_below(&s->rng, 20000));
    else if (s->now_ns < c->refuse_until_ns || s->now_ns < c->stop_until_ns || e->away)
        sim_arm_app(s, c, 500000);
    sim_service(s, c);
}

static inline void sim_handle(sim *s, sim_event *e)
{
    sim_conn *c = (sim_conn *)e->what;
    switch (e->kind) {
    case SIM_EV_FRAME:
        sim_arrive(s, e);
        sim_pair_settle(s, (sim_pair *)e->what);
        break;
    case SIM_EV_WAKE:
        if (c->wake_ns != e->at_ns)
            break; /* an older timer */
        c->wake_ns = DXPU_NEVER;
        sim_service(s, c);
        sim_pair_settle(s, c->pair);
        break;
    case SIM_EV_APP:
        if (c->app_ns != e->at_ns)
            break;
        c->app_ns = DXPU_NEVER;
        sim_app(s, c);
        sim_pair_settle(s, c->pair);
        break;
    case SIM_EV_OPEN:
        sim_open(s, (sim_pair *)e->what);
        break;
    case SIM_EV_FAULT:
        sim_fault_begins(s, (sim_fault *)e->what);
        break;
    default:
        sim_fault_ends(s, (sim_fault *)e->what);
        for (uint32_t i = 0; i < s->o.pairs; i++)
            sim_pair_settle(s, &s->pair[i]);
        break;
    }
}

/* Lay everything out; time begins at 1 ms. */
static inline void sim_start(sim *s, const sim_options *o)
{
    memset(s, 0, sizeof *s);
    s->o = *o;
    s->rng.s = o->seed;
    s->now_ns = 1000000;
    s->give_up_ns = 200000000000u;
    if (o->sabotage != SIM_REORDER && o->sabotage != SIM_PASS && o->sabotage != SIM_OWN &&
        o->sabotage != SIM_FORGET && o->sabotage != SIM_AGAIN) /* few chances */
        s->sabotage_in = 20 + sim_below(&s->rng, 20);
    s->pair = (sim_pair *)calloc(o->pairs, sizeof *s->pair);
    if (!s->pair)
        abort();
    s->undone = o->pairs;
    s->faults_left = o->faults;
    for (uint32_t i = 0; i < o->pairs; i++) {
        sim_pair *p = &s->pair[i];
        p->index = i;
        memcpy(p->link, o->link, sizeof p->link);
        p->end[SIM_HOST].epoch = 7;
        sim_schedule(s, SIM_EV_OPEN, s->now_ns, p);
    }
    for (uint32_t i = 0; i < o->faults; i++)
        sim_schedule(s, SIM_EV_FAULT, s->now_ns + o->fault[i].at_ns, &s->o.fault[i]);
}

/* One thing happens.  False when nothing more will, or something is wrong. */
static inline bool sim_step(sim *s)
{
    if (s->why[0] || s->undone == 0)
        return false;
    if (s->events.len == 0 || s->now_ns > s->give_up_ns) {
        sim_fail(s, "no progress", s->undone, s->events.len);
        return false;
    }
    sim_event e = sim_pop(&s->events);
    s->now_ns = e.at_ns;
    sim_handle(s, &e);
    return true;
}

/* Run to the end; s->why is the first broken property.  Call sim_teardown() after. */
static inline void sim_run(sim *s, const sim_options *o)
{
    sim_start(s, o);
    while (sim_step(s))
        ;
}

static inline void sim_teardown(sim *s)
{
    while (s->events.len) {
        sim_event e = sim_pop(&s->events);
        free(e.bytes);
    }
    free(s->events.heap);
    for (uint32_t i = 0; i < s->o.pairs; i++) {
        for (unsigned k = 0; k < 2; k++) {
            for (uint32_t n = 0; n < s->pair[i].end[k].conns; n++)
                sim_free_conn(s->pair[i].end[k].conn[n]);
        }
    }
    free(s->pair);
}

/* A good network of one path: 2 us each way, nothing goes wrong. */
static inline void sim_options_default(sim_options *o)
{
    memset(o, 0, sizeof *o);
    o->seed = 1;
    o->pairs = 1;
    o->tlps = 100;
    o->paths = 1;
    o->hold_ms = 1000;
    for (unsigned i = 0; i < 2; i++) {
        o->window[i] = 64;
        o->frame_limit[i] = 1452;
        for (unsigned path = 0; path < SIM_PATHS; path++)
            o->link[i][path].delay_ns = 2000;
    }
}

static inline void sim_links_from_seed(sim_options *o, sim_rng *r)
{
    uint32_t loss = sim_chance(r, 750) ? sim_below(r, 150) : 0;
    uint32_t dup = sim_chance(r, 500) ? sim_below(r, 100) : 0;
    uint32_t corrupt = sim_chance(r, 500) ? sim_below(r, 50) : 0;
    uint32_t burst = sim_chance(r, 200) ? sim_below(r, 30) : 0;
    uint64_t delay_ns = 1000 + sim_below(r, sim_chance(r, 100) ? 5000000 : 50000);
    uint64_t jitter_ns = sim_chance(r, 500) ? sim_below(r, 100000) : 0;
    for (unsigned i = 0; i < 2 * SIM_PATHS; i++) {
        sim_link *l = &o->link[i & 1][i / 2];
        l->loss = loss;
        l->dup = dup;
        l->corrupt = corrupt;
        l->burst = burst;
        l->burst_frames = 10;
        l->delay_ns = delay_ns + (i > 1 ? sim_below(r, 100000) : 0);
        l->jitter_ns = jitter_ns;
        l->spike = burst ? 5 : 0;
        l->spike_ns = 3000000;
    }
}

static inline void sim_faults_from_seed(sim_options *o, sim_rng *r)
{
    uint64_t hold_ns = o->hold_ms * 1000000ull;
    o->faults = sim_chance(r, 500) ? 1 + sim_below(r, 3) : 0;
    for (uint32_t i = 0; i < o->faults; i++) {
        sim_fault *f = &o->fault[i];
        f->kind = (uint8_t)sim_below(r, SIM_FAULT_KINDS);
        f->end = (uint8_t)sim_below(r, 2);
        f->path = (uint8_t)sim_below(r, o->paths);
        f->at_ns = sim_below(r, 3000000);
        f->for_ns = sim_chance(r, 700) ? sim_below(r, 20000000) : sim_next(r) % (2 * hold_ns);
        if (f->kind == SIM_FAULT_CRASH)
            f->for_ns = sim_below(r, 3000000);
        f->value = f->kind == SIM_FAULT_MTU     ? 1000 + sim_below(r, 600)
                   : f->kind == SIM_FAULT_CLOCK ? sim_next(r) % (hold_ns / 2)
                                                : sim_below(r, 5000000);
    }
}

/* The options that a seed stands for. */
static inline void sim_from_seed(sim_options *o, uint64_t seed)
{
    static const uint32_t windows[] = { 4, 16, 64, 256 };
    static const uint32_t limits[] = { 1232, 1233, 1235, 1452, 1452, 4096, 8972 };
    sim_rng r = { seed * 0x2545f4914f6cdd1du + 1 };
    sim_options_default(o);
    o->seed = seed;
    o->tlps = 60 + sim_below(&r, 150);
    o->paths = (uint8_t)(sim_chance(&r, 500) ? 1 : 2 + sim_below(&r, 2));
    o->spread = sim_chance(&r, 500);
    o->lossless = sim_chance(&r, 300);
    sim_links_from_seed(o, &r);
    bool alike = sim_chance(&r, 700);
    for (unsigned i = 0; i < 2; i++) {
        o->window[i] = i && alike ? o->window[0] : windows[sim_below(&r, 4)];
        o->frame_limit[i] = i && alike ? o->frame_limit[0] : limits[sim_below(&r, 7)];
        if (sim_chance(&r, 20))
            o->frame_limit[i] = 65507;
        if (o->frame_limit[i] > 10000 && o->window[i] > 16)
            o->window[i] = 16; /* 1 MB of reorder buffer is enough */
        o->sequence[i] = sim_chance(&r, 500) ? 0u - sim_below(&r, 40) : (uint32_t)sim_next(&r);
    }
    if (sim_chance(&r, 500)) { /* tight credits */
        o->header_credits = 2 + sim_below(&r, 6);
        o->data_credits = 256 + sim_below(&r, 64);
    }
    o->tags = sim_chance(&r, 700);
    o->refuse = sim_chance(&r, 500);
    o->hold_ms = sim_chance(&r, 500) ? 10000 : 1000;
    o->stop = sim_chance(&r, 200);
    o->suite = sim_chance(&r, 300);
    o->many = seed & 1;
    o->close = sim_chance(&r, 500);
    sim_faults_from_seed(o, &r);
}

#endif
