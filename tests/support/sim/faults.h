/* Faults: what begins at a time and ends after a while.  To add one: a name in the enum, a begin
   and perhaps an end function, a row in sim_fault_kinds, and sim_from_seed() uses it by itself.
   Part of tests/support/sim/sim.h. */
#ifndef SIM_FAULTS_H
#define SIM_FAULTS_H

enum {
    SIM_FAULT_DARK,    /* nothing gets through, either way */
    SIM_FAULT_PATH,    /* a path dies */
    SIM_FAULT_ONE_WAY, /* ... towards one end only */
    SIM_FAULT_MTU,     /* a path carries frames up to `value` bytes only, towards one end */
    SIM_FAULT_SLOW,    /* a path takes `value` nanoseconds more */
    SIM_FAULT_STOP,    /* the application of one end takes nothing */
    SIM_FAULT_CRASH,   /* a proxy crashes and is started again: it knows nothing any more */
    SIM_FAULT_RESET,   /* an end resets its channel */
    SIM_FAULT_CLOCK,   /* the clock of one end jumps forward by `value` nanoseconds */
    SIM_FAULT_KINDS
};

static inline void sim_add_dead(sim_pair *p, int to, unsigned path, uint32_t by)
{
    p->link[to][path].dead += by;
}

static inline void sim_dark(sim_pair *p, uint32_t by)
{
    for (unsigned i = 0; i < 2 * SIM_PATHS; i++)
        sim_add_dead(p, i & 1, i / 2, by);
}

static inline void sim_dark_begin(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    (void)f;
    sim_dark(p, 1);
}

static inline void sim_dark_end(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    (void)f;
    sim_dark(p, (uint32_t)-1);
}

static inline void sim_path_begin(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    sim_add_dead(p, 0, f->path, 1);
    sim_add_dead(p, 1, f->path, 1);
}

static inline void sim_path_end(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    sim_add_dead(p, 0, f->path, (uint32_t)-1);
    sim_add_dead(p, 1, f->path, (uint32_t)-1);
}

static inline void sim_one_way_begin(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    sim_add_dead(p, f->end, f->path, 1);
}

static inline void sim_one_way_end(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    sim_add_dead(p, f->end, f->path, (uint32_t)-1);
}

static inline void sim_mtu_begin(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    p->link[f->end][f->path].mtu_bytes = (uint32_t)f->value;
}

static inline void sim_mtu_end(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    p->link[f->end][f->path].mtu_bytes = 0;
}

static inline void sim_slow_begin(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    p->link[f->end][f->path].delay_ns += f->value;
}

static inline void sim_slow_end(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    p->link[f->end][f->path].delay_ns -= f->value;
}

static inline void sim_stop_begin(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    p->end[f->end].away++;
}

static inline void sim_stop_end(sim *s, sim_pair *p, const sim_fault *f)
{
    (void)s;
    p->end[f->end].away--;
}

static inline void sim_crash_begin(sim *s, sim_pair *p, const sim_fault *f)
{
    sim_end *e = &p->end[f->end];
    for (uint32_t i = 0; i < e->conns; i++)
        e->conn[i]->gone = true;
    e->live = NULL;
    if (f->end == SIM_HOST)
        sim_schedule(s, SIM_EV_OPEN, s->now_ns + f->for_ns, p);
}

static inline void sim_reset_begin(sim *s, sim_pair *p, const sim_fault *f)
{
    sim_conn *c = p->end[f->end].live;
    if (!c)
        return;
    p->reset_sent = true;
    dxpu_channel_reset(&c->ch, DXPU_REASON_DETACH);
    sim_service(s, c);
}

static inline void sim_clock_begin(sim *s, sim_pair *p, const sim_fault *f)
{
    sim_end *e = &p->end[f->end];
    e->skew_ns += f->value;
    p->clock_jumped = true;
    for (uint32_t i = 0; i < e->conns; i++)
        sim_service(s, e->conn[i]);
}

static const struct {
    const char *name;
    void (*begin)(sim *, sim_pair *, const sim_fault *);
    void (*end)(sim *, sim_pair *, const sim_fault *);
} sim_fault_kinds[SIM_FAULT_KINDS] = {
    [SIM_FAULT_DARK] = { "darkness", sim_dark_begin, sim_dark_end },
    [SIM_FAULT_PATH] = { "a dead path", sim_path_begin, sim_path_end },
    [SIM_FAULT_ONE_WAY] = { "a path dead one way", sim_one_way_begin, sim_one_way_end },
    [SIM_FAULT_MTU] = { "a path for short frames only", sim_mtu_begin, sim_mtu_end },
    [SIM_FAULT_SLOW] = { "a slow path", sim_slow_begin, sim_slow_end },
    [SIM_FAULT_STOP] = { "nobody takes", sim_stop_begin, sim_stop_end },
    [SIM_FAULT_CRASH] = { "a crash", sim_crash_begin, NULL },
    [SIM_FAULT_RESET] = { "a reset", sim_reset_begin, NULL },
    [SIM_FAULT_CLOCK] = { "a clock that jumps", sim_clock_begin, NULL },
};

static inline void sim_fault_begins(sim *s, sim_fault *f)
{
    sim_say(s, "net", "%s begins: path %u, %s", sim_fault_kinds[f->kind].name, f->path,
            sim_end_names[f->end]);
    s->count.faults++;
    for (uint32_t i = 0; i < s->o.pairs; i++)
        sim_fault_kinds[f->kind].begin(s, &s->pair[i], f);
    if (sim_fault_kinds[f->kind].end)
        sim_schedule(s, SIM_EV_FAULT_END, s->now_ns + f->for_ns, f);
    else
        s->faults_left--;
}

static inline void sim_fault_ends(sim *s, sim_fault *f)
{
    sim_say(s, "net", "%s ends", sim_fault_kinds[f->kind].name);
    for (uint32_t i = 0; i < s->o.pairs; i++)
        sim_fault_kinds[f->kind].end(s, &s->pair[i], f);
    s->faults_left--;
}

#endif
