/* The things of a simulation: pairs of ends, the connections (incarnations) each end has had, and
   the options that all of it follows from.  Part of tests/support/sim/sim.h. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

enum { SIM_HOST, SIM_BOX };
enum {
    SIM_TAGS = 64,
    SIM_PATHS = 8,
    SIM_CONNS = 64, /* at one end in one run, late opens included */
    SIM_FAULTS = 8,
    SIM_CLASS_EVENT = 3 /* link events stand behind the three classes */
};

enum { /* controls: the checker must see each of these */
       SIM_HONEST,
       SIM_DROP,    /* a delivered TLP is not looked at */
       SIM_DOUBLE,  /* one is looked at twice */
       SIM_ALTER,   /* one byte of one is changed */
       SIM_REORDER, /* two of one class change places */
       SIM_PASS,    /* a request is taken though a posted one before it waits */
       SIM_OWN,     /* one with IDO passes a posted one of its own requester */
       SIM_LEDGER,  /* one credit is not given back */
       SIM_OLD,     /* a TLP of the incarnation before is delivered */
       SIM_FORGET,  /* containment forgets a request */
       SIM_AGAIN,   /* containment names a request twice */
       SIM_STALL,   /* an end stops sending without a word */
       SIM_GIVE_UP  /* a channel fails though frames arrive */
};

/* Something that goes wrong at a time; sim/faults.h has the kinds. */
typedef struct sim_fault {
    uint64_t at_ns, for_ns;
    uint64_t value;
    uint8_t kind; /* SIM_FAULT_* */
    uint8_t end;  /* SIM_HOST or SIM_BOX: where, or towards which */
    uint8_t path;
} sim_fault;

/* What a run is made of.  sim_options_default() gives a good network and a small load;
   sim_from_seed() all kinds of trouble. */
typedef struct sim_options {
    uint64_t seed;
    uint32_t pairs;
    uint32_t tlps; /* that each end submits in each incarnation */
    uint8_t paths;
    bool spread, lossless;
    sim_link link[2][SIM_PATHS]; /* towards each end */
    uint32_t window[2], frame_limit[2];
    uint32_t sequence[2]; /* first frame sequence of each end */
    uint32_t hold_ms;
    uint32_t header_credits, data_credits; /* of each class; 0: the default */
    bool tags;                             /* requests are tracked, completion credits infinite */
    bool refuse;                           /* consumers leave one class alone for a while */
    bool stop;                             /* ... or everything, for long */
    bool suite;                            /* frames are sealed by a toy cipher */
    bool many;                             /* frames are emitted several at a time */
    bool close;                            /* in the end the channel is closed */
    bool eager;                            /* the application acts at every frame */
    uint32_t bulk_bytes;    /* instead of random TLPs the host writes that many, numbered */
    uint64_t bulk_every_ns; /* ... one at a time; 0: as fast as they are taken */
    uint32_t reads;         /* ... after that many reads */
    uint64_t until_ns;      /* the least time of the run */
    sim_fault fault[SIM_FAULTS];
    uint32_t faults;
    int sabotage; /* SIM_*: what a control breaks */
} sim_options;

typedef struct sim_sent { /* what was submitted, to compare with what comes out */
    uint32_t order;
    uint16_t len;
    uint16_t id;   /* requester; completer of a completion */
    bool may_pass; /* by RO */
    bool by_id;    /* by IDO, what has another id */
    uint8_t *bytes;
} sim_sent;

typedef struct sim_owed { /* a completion that waits for room */
    uint8_t *bytes;
    size_t len;
} sim_owed;

/* One incarnation as one end has it. */
typedef struct sim_conn {
    dxpu_channel ch;
    void *mem;
    dxpu_tags tags;
    dxpu_tag_entry tag_entries[SIM_TAGS];
    struct sim_pair *pair;
    uint8_t end;
    uint8_t number;                /* at this end, from 0 */
    uint32_t id;                   /* under which it receives */
    unsigned state;                /* as last seen */
    unsigned active;               /* path of new data, as last seen; SIM_PATHS: none */
    uint64_t left_ns, returned_ns; /* when data last went to a worse, a better path */
    bool mute;                     /* a control: what it sends is not sent */
    bool gone;                     /* its proxy crashed: it sends and hears nothing */
    bool over;                     /* closed or failed, and contained */
    bool blocked;                  /* what it wants to submit was not taken */
    uint64_t wake_ns, app_ns;      /* the timers that count */
    /* what it submitted, by class, and how much of it the other end has taken */
    sim_sent *log[4];
    uint32_t logged[4], log_room[4], seen[4];
    uint32_t order, to_submit, events_due, reads_due;
    uint8_t draft[DXPU_TLP_MAX_BYTES]; /* the next request */
    size_t draft_len;
    sim_owed *owed;
    uint32_t owed_head, owed_tail, owed_room;
    uint8_t *answers; /* of each request with tags: how often it was answered */
    uint32_t requests, answered, answers_room;
    uint16_t rid; /* of two requesters: this one and the next */
    uint16_t next_tag;
    uint64_t bulk_next, bulk_expected, bulk_taken_bytes, bulk_due_ns;
    /* the consumer's moods */
    uint64_t refuse_until_ns, stop_until_ns;
    unsigned refused;
    /* to judge a death by hold */
    uint64_t heard_ns;   /* by its own clock */
    uint64_t asked_ns;   /* the first probe that is unanswered; 0: none */
    uint64_t closing_ns; /* its first close; 0: none */
    uint32_t sent;
    uint32_t peer_sent; /* when it was last heard */
} sim_conn;

typedef struct sim_end {
    sim_conn *conn[SIM_CONNS];
    uint32_t conns;
    sim_conn *live; /* the host's only one; the box's newest that is up */
    uint64_t epoch; /* of the host's next; the highest the box has seen */
    uint64_t skew_ns;
    uint32_t away; /* faults that keep its consumer away */
} sim_end;

typedef struct sim_pair {
    uint32_t index;
    sim_link link[2][SIM_PATHS]; /* towards each end */
    sim_end end[2];
    uint32_t under_way; /* frames in the network */
    bool done, closing;
    bool reset_sent;   /* by anybody, ever: E_RESET has a cause */
    bool clock_jumped; /* silence is shorter than it looks */
} sim_pair;

typedef struct sim_count {
    uint64_t tlps, by_id, refused_classes;
    uint64_t incarnations, deaths, resets, replaced, late_opens, old_frames;
    uint64_t contained; /* requests answered by containment */
    uint64_t segments;  /* frames emitted behind others */
    uint64_t faults;
} sim_count;

typedef struct sim {
    sim_options o;
    sim_rng rng;
    sim_events events;
    uint64_t now_ns;
    uint64_t give_up_ns;
    sim_pair *pair;
    uint32_t undone;      /* pairs */
    uint32_t faults_left; /* not yet ended */
    sim_net_count net;
    sim_count count;
    struct sim_trace *trace; /* NULL: none */
    uint32_t sabotage_in;    /* chances until the control acts */
    bool sabotaged;
    char why[256]; /* the first broken property, "" when all hold */
} sim;

static inline void sim_fail(sim *s, const char *what, uint64_t a, uint64_t b)
{
    if (!s->why[0])
        snprintf(s->why, sizeof s->why, "%s (%llu, %llu) at %llu ns", what, (unsigned long long)a,
                 (unsigned long long)b, (unsigned long long)s->now_ns);
}

static inline bool sim_sabotage_due(sim *s, int kind)
{
    if (s->o.sabotage != kind || s->sabotaged || s->sabotage_in-- > 0)
        return false;
    s->sabotage_in = 0;
    return s->sabotaged = true;
}

static inline sim_end *sim_end_of(const sim_conn *c)
{
    return &c->pair->end[c->end];
}

/* Each end has a clock of its own. */
static inline uint64_t sim_clock(const sim *s, const sim_conn *c)
{
    return s->now_ns + sim_end_of(c)->skew_ns;
}

static inline sim_conn *sim_find(const sim_end *e, uint32_t id)
{
    for (uint32_t i = e->conns; i; i--) {
        if (e->conn[i - 1]->id == id)
            return e->conn[i - 1];
    }
    return NULL;
}

/* The same incarnation at the other end; NULL before it is known. */
static inline sim_conn *sim_peer(const sim_conn *c)
{
    return sim_find(&c->pair->end[1 - c->end], c->ch.link.remote_id);
}

static inline bool sim_is_up(const sim_conn *c)
{
    return c && !c->gone && !c->over && c->state == DXPU_STATE_UP;
}

/* Where a run is going: any time that is earlier than what is armed. */
static inline void sim_schedule(sim *s, uint8_t kind, uint64_t at_ns, void *what)
{
    sim_event e;
    memset(&e, 0, sizeof e);
    e.kind = kind;
    e.at_ns = max64(at_ns, s->now_ns);
    e.what = what;
    sim_push(&s->events, e);
}

#endif
