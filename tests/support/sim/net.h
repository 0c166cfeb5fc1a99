/* Random numbers, the queue of events, and the network: for each path and direction a link that
   loses, doubles, alters, delays and marks frames, perhaps behind a bottleneck shared by others.
   Part of tests/support/sim/sim.h. */
#ifndef SIM_NET_H
#define SIM_NET_H

typedef struct sim_rng {
    uint64_t s;
} sim_rng;

static inline uint64_t sim_next(sim_rng *r) /* splitmix64 */
{
    uint64_t z = r->s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint32_t sim_below(sim_rng *r, uint32_t n)
{
    return (uint32_t)(sim_next(r) % n);
}

static inline bool sim_chance(sim_rng *r, uint32_t per_mille)
{
    return sim_below(r, 1000) < per_mille;
}

static inline void *sim_grow(void *p, size_t bytes)
{
    p = realloc(p, bytes);
    if (!p)
        abort();
    return p;
}

/* ---- events ---- */

enum { SIM_EV_FRAME, SIM_EV_WAKE, SIM_EV_APP, SIM_EV_OPEN, SIM_EV_FAULT, SIM_EV_FAULT_END };

typedef struct sim_event {
    uint64_t at_ns, serial;
    void *what;     /* the pair of a frame, else the connection, end or fault */
    uint8_t *bytes; /* of a frame */
    uint32_t len;
    uint8_t kind; /* SIM_EV_* */
    uint8_t to;   /* SIM_HOST or SIM_BOX */
    uint8_t ecn;  /* marked Congestion Experienced */
} sim_event;

typedef struct sim_events { /* a heap */
    sim_event *heap;
    size_t len, cap;
    uint64_t serial;
} sim_events;

static inline bool sim_earlier(const sim_event *a, const sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->serial < b->serial;
}

static inline void sim_push(sim_events *q, sim_event e)
{
    if (q->len == q->cap) {
        q->cap = q->cap ? 2 * q->cap : 64;
        q->heap = (sim_event *)sim_grow(q->heap, q->cap * sizeof *q->heap);
    }
    e.serial = q->serial++;
    size_t i = q->len++;
    for (; i && sim_earlier(&e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = e;
}

static inline sim_event sim_pop(sim_events *q)
{
    sim_event top = q->heap[0], last = q->heap[--q->len];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= q->len)
            break;
        if (c + 1 < q->len && sim_earlier(&q->heap[c + 1], &q->heap[c]))
            c++;
        if (!sim_earlier(&q->heap[c], &last))
            break;
        q->heap[i] = q->heap[c];
        i = c;
    }
    q->heap[i] = last;
    return top;
}

/* ---- links ---- */

/* A bottleneck: frames leave one after the other at a rate; what does not fit is dropped. */
typedef struct sim_queue {
    uint64_t ps_per_byte; /* 80 is 100 Gbit/s */
    uint64_t buffer_bytes;
    uint64_t mark_bytes; /* backlog from which frames are marked; 0: never */
    uint64_t free_ps;    /* when the last byte will have left */
    uint64_t passed_bytes, dropped, marked;
} sim_queue;

/* One direction of one path.  Chances are per mille of the frames. */
typedef struct sim_link {
    uint32_t loss, dup, corrupt;
    uint32_t burst, burst_frames; /* chance that a loss of that many frames begins */
    uint32_t spike;               /* chance of spike_ns more on the way */
    uint64_t spike_ns;
    uint64_t delay_ns, jitter_ns; /* one way; jitter reorders ... */
    bool fifo;                    /* ... unless this is set */
    uint32_t mtu_bytes;           /* longer frames vanish; 0: any length passes */
    uint64_t lose_data;           /* bit i: the i-th data frame from now on is lost */
    uint32_t dead;                /* reasons for which nothing gets through */
    sim_queue *queue;             /* NULL: no limit */
    uint32_t in_burst;
    uint64_t last_ns; /* when the last frame arrives */
} sim_link;

typedef struct sim_net_count {
    uint64_t carried, lost, doubled, corrupted, marked, too_long;
} sim_net_count;

/* Why a frame does not get through, or NULL. */
static const char *sim_link_loses(sim_link *l, sim_rng *rng, const uint8_t *bytes, size_t len,
                                  sim_net_count *count)
{
    bool scripted = false;
    if (bytes[DXPU_FRAME_KIND] == DXPU_KIND_DATA) {
        scripted = l->lose_data & 1;
        l->lose_data >>= 1;
    }
    if (l->dead)
        return "dead path";
    if (l->mtu_bytes && len > l->mtu_bytes) {
        count->too_long++;
        return "too long";
    }
    if (scripted)
        return "lost";
    if (l->in_burst) {
        l->in_burst--;
        return "lost in a burst";
    }
    if (l->burst && sim_chance(rng, l->burst)) {
        l->in_burst = sim_below(rng, l->burst_frames + 1);
        return "lost in a burst";
    }
    return l->loss && sim_chance(rng, l->loss) ? "lost" : NULL;
}

/* When a frame that arrives now leaves the bottleneck; DXPU_NEVER when there is no room. */
static inline uint64_t sim_queue_pass(sim_queue *q, uint64_t now_ns, size_t len, uint8_t *ecn)
{
    uint64_t now_ps = now_ns * 1000, free_ps = max64(q->free_ps, now_ps);
    uint64_t backlog = (free_ps - now_ps) / q->ps_per_byte;
    if (backlog + len > q->buffer_bytes) {
        q->dropped++;
        return DXPU_NEVER;
    }
    if (q->mark_bytes && backlog > q->mark_bytes) {
        *ecn = 1;
        q->marked++;
    }
    q->passed_bytes += len;
    q->free_ps = free_ps + len * q->ps_per_byte;
    return q->free_ps / 1000;
}

/* Put one copy of a frame on its way; false when the bottleneck had no room. */
static inline bool sim_link_carry(sim_link *l, sim_events *q, sim_rng *rng, uint64_t now_ns,
                                  sim_event e, const uint8_t *bytes, sim_net_count *count)
{
    e.kind = SIM_EV_FRAME;
    e.at_ns = now_ns;
    e.ecn = 0;
    if (l->queue)
        e.at_ns = sim_queue_pass(l->queue, now_ns, e.len, &e.ecn);
    if (e.at_ns == DXPU_NEVER)
        return false;
    e.at_ns += l->delay_ns + (l->jitter_ns ? sim_below(rng, (uint32_t)l->jitter_ns + 1) : 0);
    if (l->spike && sim_chance(rng, l->spike))
        e.at_ns += l->spike_ns;
    if (l->fifo)
        e.at_ns = max64(e.at_ns, l->last_ns);
    l->last_ns = e.at_ns;
    e.bytes = (uint8_t *)sim_grow(NULL, e.len);
    memcpy(e.bytes, bytes, e.len);
    if (l->corrupt && sim_chance(rng, l->corrupt)) {
        e.bytes[sim_below(rng, e.len)] ^= (uint8_t)(1u << sim_below(rng, 8));
        if (sim_chance(rng, 200)) { /* cut short as well */
            e.len = 1 + sim_below(rng, e.len - 1);
            e.bytes = (uint8_t *)sim_grow(e.bytes, e.len);
        }
        count->corrupted++;
    }
    count->carried++;
    count->marked += e.ecn;
    sim_push(q, e);
    return true;
}

#endif
