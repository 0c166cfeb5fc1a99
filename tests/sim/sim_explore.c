/* Exhaustive exploration of two real channels with the smallest windows: from the open on, every
   way of delivering, losing or doubling each frame in flight, taking at either end, and letting
   the next timer fire, up to a depth; and, once each, of one path of two going dead, of a close
   by either end, and of both ends restarting under the next epoch while frames of the old one
   are in flight.
   In every state: each TLP once, unaltered, of its own epoch, in an order that PCIe allows, and no
   more taken into use than was granted; and when from then on nothing goes wrong, everything
   arrives and comes to rest.

   A state is known again by a hash that leaves out times (but not whether a timer runs), congestion
   windows (nothing here fills one), packet numbers, counters, the bytes of the rings, and those of
   data and the cookies of probes in flight: two states that differ in these alone count as one.
   DXPU_DEPTH=n: another depth; one to three less where it has what happens once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "arithmetic.h"
#include "dxpu.h"
#include "seeds.h"

enum {
    DEPTH = 7,
    FRAMES = 5, /* in the network; one more is lost */
    TLPS = 3,   /* of the host: write, read, write; the box answers and writes once */
    WINDOW = 4,
    LIMIT = 1232,
    EPOCH = 7,
    REST_STEPS = 400
};

typedef struct packet {
    uint16_t len;
    uint8_t to;
    uint8_t bytes[LIMIT];
} packet;

typedef struct model { /* what was submitted by an end, and how much of it came out */
    uint8_t order[DXPU_CLASSES][4], sent[DXPU_CLASSES], seen[DXPU_CLASSES];
    uint8_t next;
} model;

/* All of a state: copied as a whole, always back to the same place, so that pointers stay good. */
static struct world {
    dxpu_channel ch[2];
    dxpu_tags tags[2];
    dxpu_tag_entry entries[2][4];
    model m[2];
    packet net[FRAMES];
    uint32_t packets;
    uint64_t now_ns;
    uint8_t paths, epoch;
    uint8_t dead;          /* path 0: bit 0 to end 1, bit 1 to end 0 */
    uint8_t closing;       /* who has closed: bit 0 end 0, bit 1 end 1 */
    uint64_t mem[2][8192]; /* the last, of which a part is used */
} w;

static struct world stack[32];
static const char *broken;
enum from { OPEN, UP, REST }; /* where exploration begins; REST: all that was sent has come */
static uint64_t states, transitions, ended, rests;
static uint64_t *visited; /* hash with the depth that was left in its low bits */
static size_t visited_room;
static unsigned depth_max;
static bool sabotage;
static bool once; /* what happens once is explored, too */
static size_t mem_bytes;

static void breaks(const char *what)
{
    if (!broken)
        broken = what;
}

/* ---- the world ---- */

static dxpu_bytes tlp_of(unsigned cls, unsigned number, uint8_t *out)
{
    static uint8_t payload[128];
    dxpu_tlp t;
    dxpu_bytes v = { out, 0 };
    memset(&t, 0, sizeof t);
    memset(payload, (int)(number + 1 + 16u * w.epoch), sizeof payload);
    t.header_dw = 3;
    t.requester = 8;
    t.tag = (uint16_t)(cls == DXPU_POSTED ? 0 : number);
    t.address = 0x1000;
    t.first_be = t.last_be = 0xf;
    t.length_dw = 32;
    t.type = cls == DXPU_POSTED      ? DXPU_TLP_MWR
             : cls == DXPU_NONPOSTED ? DXPU_TLP_MRD
                                     : DXPU_TLP_CPLD;
    if (cls == DXPU_COMPLETION) {
        t.first_be = t.last_be = 0;
        t.address = 0;
        t.byte_count = 128;
    }
    if (cls != DXPU_NONPOSTED) {
        t.payload.ptr = payload;
        t.payload.len = sizeof payload;
    }
    if (dxpu_tlp_encode(&t, out, DXPU_TLP_MAX_BYTES, &v.len) != DXPU_OK)
        abort();
    return v;
}

static void submit(int end, unsigned cls)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    model *m = &w.m[end];
    int rc = dxpu_channel_submit(&w.ch[end], tlp_of(cls, m->sent[cls], bytes), w.now_ns, 0);
    if ((rc == DXPU_E_CLOSED || rc == DXPU_E_PEER_CLOSED) && w.closing)
        return;
    if (rc != DXPU_OK)
        abort();
    m->order[cls][m->sent[cls]++] = m->next++;
}

/* By hold: what no frame of the peer has kept up, or has answered. */
static bool silent(int end)
{
    int error = dxpu_channel_status(&w.ch[end]).error;
    return error == DXPU_E_DEAD || error == DXPU_E_NO_ANSWER;
}

/* Our close is answered if we asked for one; the peer's ends ours as well. */
static bool closed(int end)
{
    int error = dxpu_channel_status(&w.ch[end]).error;
    return (error == DXPU_E_CLOSED && (w.closing >> end & 1)) ||
           (error == DXPU_E_PEER_CLOSED && (w.closing >> (1 - end) & 1));
}

static void emit_all(void)
{
    for (int end = 0; end < 2; end++) {
        uint8_t out[LIMIT], path;
        int n;
        while ((n = dxpu_channel_emit(&w.ch[end], w.now_ns, out, sizeof out, &path)) > 0) {
            if (w.packets == FRAMES || (w.dead >> end & 1 && path == 0))
                continue; /* lost */
            packet *p = &w.net[w.packets++];
            p->len = (uint16_t)n;
            p->to = (uint8_t)(1 - end);
            memcpy(p->bytes, out, (size_t)n);
        }
        if (dxpu_channel_status(&w.ch[end]).error != DXPU_OK && !silent(end) && !closed(end))
            breaks(dxpu_error_text(dxpu_channel_status(&w.ch[end]).error));
    }
}

/* Both ends as at first, under an epoch; what is in flight stays. */
static void begin(uint8_t epoch)
{
    memset(w.ch, 0, sizeof w.ch);
    memset(w.tags, 0, sizeof w.tags);
    memset(w.m, 0, sizeof w.m);
    w.epoch = epoch;
    for (uint32_t end = 0; end < 2; end++) {
        dxpu_channel_config cfg;
        dxpu_channel_config_default(&cfg);
        cfg.local_id = 2u * epoch + end;
        cfg.epoch = epoch;
        cfg.paths = w.paths;
        cfg.sequence = 0xfffffffe;
        cfg.window_frames = WINDOW;
        cfg.frame_limit_bytes = LIMIT;
        cfg.hold_ms = 10000;
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
            cfg.rx.header[cls] = 1; /* the least: the second write waits for the first's credit */
            cfg.tx.header[cls] = 2;
            cfg.rx.data[cls] = cfg.tx.data[cls] = 256;
        }
        cfg.rx.header[DXPU_COMPLETION] = 4;
        dxpu_tags_init(&w.tags[end], w.entries[end], 4, 8, 0, DXPU_NEVER);
        cfg.tags = &w.tags[end];
        size_t need = dxpu_channel_bytes(&cfg);
        if (need > sizeof w.mem[end] ||
            dxpu_channel_init(&w.ch[end], &cfg, w.mem[end], sizeof w.mem[end]) != DXPU_OK)
            abort();
        mem_bytes = need;
    }
    dxpu_channel_open(&w.ch[0], w.now_ns);
    submit(0, DXPU_POSTED);
    submit(0, DXPU_NONPOSTED);
    submit(0, DXPU_POSTED);
    emit_all();
}

static void start(unsigned paths)
{
    memset(&w, 0, sizeof w);
    w.now_ns = 1000000000;
    w.paths = (uint8_t)paths;
    begin(EPOCH);
}

static void deliver(uint32_t i, bool keep)
{
    packet p = w.net[i];
    if (!keep)
        memmove(&w.net[i], &w.net[i + 1], (--w.packets - i) * sizeof w.net[0]);
    dxpu_channel *ch = &w.ch[p.to];
    if (dxpu_channel_status(ch).state == DXPU_STATE_IDLE) {
        if (dxpu_channel_accept(ch, w.now_ns, p.bytes, p.len) == DXPU_OK)
            submit(p.to, DXPU_POSTED);
    } else {
        dxpu_channel_ingest(ch, w.now_ns, p.bytes, p.len, 0);
    }
}

static bool take(int end, unsigned cls)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_delivery d = dxpu_channel_peek(&w.ch[end], cls);
    model *from = &w.m[1 - end];
    if (d.tlp.len == 0)
        return false;
    unsigned i = from->seen[cls]++;
    dxpu_bytes wanted = tlp_of(cls, i, bytes);
    if (i >= from->sent[cls])
        breaks("delivered more than was sent");
    else if (wanted.len != d.tlp.len || memcmp(wanted.ptr, d.tlp.ptr, wanted.len) != 0)
        breaks("altered, lost or out of order");
    unsigned posted = from->seen[DXPU_POSTED];
    if (cls != DXPU_POSTED && posted < from->sent[DXPU_POSTED] && i < 4 &&
        from->order[DXPU_POSTED][posted] < from->order[cls][i])
        breaks("passed a posted TLP");
    if (dxpu_channel_take(&w.ch[end], cls, w.now_ns) != DXPU_OK)
        breaks("take refused what peek showed");
    if (cls == DXPU_NONPOSTED)
        submit(end, DXPU_COMPLETION);
    return true;
}

/* Time passes to the next timer of one end. */
static bool tick(int end)
{
    uint64_t next = dxpu_channel_next_ns(&w.ch[end]);
    if (next == DXPU_NEVER)
        return false;
    w.now_ns = max64(w.now_ns, next);
    return true;
}

/* ---- knowing a state again ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash_queue(uint64_t h, const dxpui_queue *f)
{
    h = mix(h, (uint64_t)f->head << 32 | f->next);
    return mix(h, (uint64_t)f->tail << 32 | f->count << 16 | f->waiting);
}

static uint64_t hash_path(uint64_t h, const dxpui_path *p)
{
    h = mix(h, (uint64_t)(p->index - p->index_acked) << 32 | (p->index - p->judged));
    h = mix(h, (uint64_t)p->in_flight << 32 | (uint64_t)p->answers << 24 |
                   (uint64_t)p->answers_needed << 16 | (uint64_t)p->missed << 8 | p->timeouts);
    h = mix(h, (uint64_t)p->known << 4 | (uint64_t)p->usable << 3 | (uint64_t)p->suspect << 2 |
                   (uint64_t)p->awaiting << 1 | (uint64_t)p->urgent);
    return mix(h, (uint64_t)(p->timer_ns != DXPU_NEVER) << 3 |
                      (uint64_t)(p->loss_ns != DXPU_NEVER) << 2 |
                      (uint64_t)(p->reply_bytes != 0) << 1 | (p->srtt_ns != 0));
}

static uint64_t hash_channel(uint64_t h, const dxpu_channel *c)
{
    h = mix(h, (uint64_t)c->link.state << 32 | (uint64_t)c->rx.ack_now << 1 |
                   (c->rx.ack_at_ns != DXPU_NEVER));
    h = mix(h, (uint64_t)(c->flight.next - c->flight.una) << 32 | c->flight.una);
    h = mix(h, (uint64_t)c->flight.lost << 32 | (c->flight.lost_from - c->flight.una));
    h = mix(h, (uint64_t)c->rx.next << 32 | c->rx.early << 8 | c->link.tries);
    h = mix(h, (uint64_t)c->tx.partial_bytes << 32 | c->tx.placed_tail << 16 | c->tx.placed_head);
    h = mix(h, (uint64_t)c->paths.latest << 24 | (uint64_t)c->paths.seen_path << 16 |
                   (uint64_t)c->paths.fallback << 8 | (c->tx.blocked_at_ns != DXPU_NEVER));
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        h = hash_queue(hash_queue(h, &c->tx.queue[i]), &c->rx.queue[i]);
        h = mix(h, (uint64_t)c->tx.limits.header[i] << 32 | c->rx.granted.header[i]);
        h = mix(h, (uint64_t)c->tx.used.header[i] << 32 | c->rx.advertised.header[i]);
    }
    for (unsigned i = 0; i < WINDOW; i++) {
        const dxpui_sent *s = &c->flight.frame[i];
        h = mix(h, (uint64_t)(c->paths.path[s->path].index - s->index) << 32 |
                       (uint64_t)s->path << 16 | (uint64_t)s->state << 8 |
                       (uint64_t)(s->tries < 5));
        h = mix(h, c->rx.early_bytes[i]);
    }
    for (unsigned i = 0; i < c->cfg.paths; i++)
        h = hash_path(h, &c->paths.path[i]);
    return h;
}

static uint64_t hash_packet(uint64_t h, const packet *p)
{
    dxpu_bytes d = { p->bytes, p->len };
    dxpu_frame f;
    if (dxpu_frame_decode(d, DXPU_FRAME_CRC_BYTES, &f) != DXPU_OK)
        abort();
    h = mix(h, (uint64_t)f.kind << 40 | (uint64_t)p->to << 32 | f.sequence);
    h = mix(h, (uint64_t)f.channel << 8 | f.path);
    h = mix(h, (uint64_t)f.ack << 32 ^ f.sack);
    h = mix(h, (uint64_t)f.limits.header[0] << 32 | f.limits.header[1]);
    if (f.kind == DXPU_KIND_CLOSE || f.kind == DXPU_KIND_PROBE)
        h = mix(h, dxpu_get_le16(f.body.ptr)); /* asked or answered */
    return mix(h, p->len);
}

static uint64_t hash_world(void)
{
    uint64_t h = hash_channel(hash_channel(1, &w.ch[0]), &w.ch[1]);
    h = mix(h, (uint64_t)w.epoch << 8 | (uint64_t)w.dead << 2 | (uint64_t)w.closing);
    for (int end = 0; end < 2; end++) {
        for (unsigned i = 0; i < DXPU_CLASSES; i++)
            h = mix(h, (uint64_t)w.m[end].sent[i] << 8 | w.m[end].seen[i]);
        h = mix(h, w.tags[end].in_flight);
    }
    for (uint32_t i = 0; i < w.packets; i++)
        h = hash_packet(h, &w.net[i]);
    return h & ~(uint64_t)31;
}

/* True when this state was seen with as much depth left. */
static bool known(uint64_t h, unsigned left)
{
    size_t i = (size_t)(h >> 16) & (visited_room - 1);
    for (; visited[i]; i = (i + 1) & (visited_room - 1)) {
        if ((visited[i] & ~(uint64_t)31) != h)
            continue;
        if ((visited[i] & 31) >= left)
            return true;
        visited[i] = h | left;
        return false;
    }
    states++;
    visited[i] = h | left;
    if (states > visited_room / 2)
        breaks("more states than the table holds: DXPU_DEPTH lower");
    return false;
}

/* ---- every way on ---- */

/* Half of all time goes into this. */
static void copy_world(struct world *to, const struct world *from)
{
    memcpy(to, from, offsetof(struct world, mem));
    for (unsigned end = 0; end < 2; end++)
        memcpy(to->mem[end], from->mem[end], mem_bytes);
}

/* Credits are conserved: what is used was granted by the other end. */
static void check_credits(void)
{
    for (int end = 0; end < 2; end++) {
        const dxpu_channel *from = &w.ch[end], *to = &w.ch[1 - end];
        if (from->link.state != DXPU_STATE_UP || to->link.state != DXPU_STATE_UP)
            continue;
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
            if (ahead32(from->tx.used.header[cls], to->rx.granted.header[cls]) ||
                ahead32(from->tx.used.data[cls], to->rx.granted.data[cls]))
                breaks("more credit used than granted");
        }
    }
}

/* All that this end submitted came out at the other one. */
static bool all_seen(int end)
{
    bool done = true;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        done = done && w.m[end].seen[cls] == w.m[end].sent[cls];
    return done;
}

/* Both ends agreed, and what the one that closed had submitted came out before (D-44); of two that
   closed, what one of them had: its close ends the other's draining (D-46). */
static bool all_closed(void)
{
    return dxpu_channel_status(&w.ch[0]).state == DXPU_STATE_CLOSED &&
           dxpu_channel_status(&w.ch[1]).state == DXPU_STATE_CLOSED &&
           (((w.closing & 1) && all_seen(0)) || ((w.closing & 2) && all_seen(1)));
}

static bool all_done(void)
{
    if (w.closing)
        return all_closed();
    for (int end = 0; end < 2; end++) {
        if (!all_seen(end) || (dxpu_channel_wants(&w.ch[end], w.now_ns) & DXPU_WANTS_ACK))
            return false;
    }
    return w.m[1].sent[DXPU_COMPLETION] == 1 && w.m[1].sent[DXPU_POSTED] == 1;
}

/* From here on nothing goes wrong: does everything arrive? */
static void must_come_to_rest(void)
{
    rests++;
    for (unsigned n = 0; n < REST_STEPS && !broken; n++) {
        while (w.packets && !broken) {
            deliver(0, false);
            emit_all();
        }
        for (unsigned i = 0; i < 6; i++)
            take((int)(i & 1), i / 2);
        emit_all();
        if (w.packets)
            continue;
        if (all_done() &&
            (w.closing || (w.tags[0].in_flight == 0 && w.ch[0].paths.path[0].in_flight == 0 &&
                           w.ch[1].paths.path[0].in_flight == 0)))
            return;
        uint64_t a = dxpu_channel_next_ns(&w.ch[0]), b = dxpu_channel_next_ns(&w.ch[1]);
        tick(a < b ? 0 : 1);
        emit_all();
    }
    breaks("no way on: what is under way does not arrive though nothing is lost any more");
}

/* What happens at most once on a way: a close of either end, a path that dies, a new epoch. */
static bool act_once(unsigned a, bool *happened)
{
    bool up = w.ch[0].link.state == DXPU_STATE_UP && w.ch[1].link.state == DXPU_STATE_UP;
    if (a < 2) {
        *happened = !(w.closing >> a & 1) && w.ch[a].link.state <= DXPU_STATE_UP &&
                    dxpu_channel_close(&w.ch[a], 1) == DXPU_OK; /* also before it is UP: D-65 */
        w.closing |= (uint8_t)(*happened << a);
    } else if (a < 5) { /* one way, the other, or both */
        *happened = w.paths > 1 && !w.dead && up;
        w.dead = *happened ? (uint8_t)(a - 1) : w.dead;
    } else {
        *happened = w.epoch == EPOCH && !w.closing;
        if (*happened)
            begin(EPOCH + 1);
    }
    return true;
}

/* Action `a` of this state; false when that number does not exist. */
static bool act(unsigned a, bool *happened)
{
    *happened = true;
    if (a < 3 * FRAMES) {
        uint32_t i = a / 3;
        *happened = i < w.packets;
        if (!*happened)
            return true;
        if (a % 3 == 0)
            deliver(i, false);
        else if (a % 3 == 1)
            memmove(&w.net[i], &w.net[i + 1], (--w.packets - i) * sizeof w.net[0]);
        else
            deliver(i, true);
        if (a % 3 == 2 && sabotage) /* the control: a doubled frame gives a second delivery */
            w.m[1].seen[DXPU_POSTED] = (uint8_t)(w.m[1].seen[DXPU_POSTED] + 1);
        return true;
    }
    a -= 3 * FRAMES;
    if (a < 6) {
        *happened = take((int)(a & 1), a / 2);
        return true;
    }
    if (a < 8) {
        *happened = tick((int)a - 6);
        return true;
    }
    return once && a < 14 && act_once(a - 8, happened);
}

static void explore(unsigned depth)
{
    bool happened;
    if (broken || known(hash_world(), depth_max - depth))
        return;
    if (depth == depth_max) { /* who called puts its own state back */
        must_come_to_rest();
        return;
    }
    copy_world(&stack[depth], &w);
    must_come_to_rest();
    copy_world(&w, &stack[depth]);
    for (unsigned a = 0; !broken; a++) {
        if (!act(a, &happened))
            break;
        if (!happened)
            continue;
        transitions++;
        emit_all();
        check_credits();
        if (silent(0) || silent(1))
            ended++; /* by hold */
        else
            explore(depth + 1);
        copy_world(&w, &stack[depth]);
    }
}

static void run(unsigned depth, enum from from, unsigned paths)
{
    broken = NULL;
    states = transitions = ended = rests = 0;
    depth_max = depth;
    visited_room = (size_t)1 << 24;
    visited = (uint64_t *)calloc(visited_room, sizeof *visited);
    assert_non_null(visited);
    start(paths);
    while (from != OPEN &&
           (w.ch[0].link.state != DXPU_STATE_UP || w.ch[1].link.state != DXPU_STATE_UP)) {
        deliver(0, false);
        emit_all();
    }
    if (from == REST)
        must_come_to_rest();
    explore(0);
    free(visited);
}

static void every_way(enum from from, unsigned paths, bool with_once)
{
    static const char *const words[] = { "the open", "up", "rest" };
    const char *wanted = getenv("DXPU_DEPTH");
    unsigned usual = seeds_wanted(1000) < 1000 ? DEPTH - 2 : DEPTH;
    sabotage = false;
    unsigned depth = wanted ? (unsigned)strtoul(wanted, NULL, 10) % 31 : usual;
    once = with_once; /* more ways lead on then: less deep */
    run(once ? depth - (from == REST ? 1 : paths + (from == UP)) : depth, from, paths);
    print_message("  depth %u from %s, %u paths: %llu states, %llu transitions, %llu of them end "
                  "by hold, %llu "
                  "runs to rest\n",
                  depth_max, words[from], paths, (unsigned long long)states,
                  (unsigned long long)transitions, (unsigned long long)ended,
                  (unsigned long long)rests);
    if (broken)
        print_error("%s\n", broken);
    assert_null(broken);
    assert_true(states > 100);
}

static void test_d40_every_way_from_open(void **state)
{
    (void)state;
    every_way(OPEN, 1, false);
}

static void test_d1_every_way_from_up(void **state)
{
    (void)state;
    every_way(UP, 1, false);
}

static void test_d44_every_way_with_an_end_from_open(void **state)
{
    (void)state;
    every_way(OPEN, 1, true);
}

static void test_d44_every_way_with_an_end_from_up(void **state)
{
    (void)state;
    every_way(UP, 1, true);
}

static void test_d1_every_way_with_two_paths(void **state)
{
    (void)state;
    every_way(UP, 2, true);
}

static void test_d44_every_way_with_an_end_from_rest(void **state)
{
    (void)state;
    every_way(REST, 2, true);
}

static void test_control(void **state)
{
    (void)state;
    sabotage = true;
    run(4, UP, 1);
    assert_non_null(broken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_d40_every_way_from_open),
        cmocka_unit_test(test_d1_every_way_from_up),
        cmocka_unit_test(test_d44_every_way_with_an_end_from_open),
        cmocka_unit_test(test_d44_every_way_with_an_end_from_up),
        cmocka_unit_test(test_d1_every_way_with_two_paths),
        cmocka_unit_test(test_d44_every_way_with_an_end_from_rest),
        cmocka_unit_test(test_control),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
