/* What dxpu.h promises at the ends of a channel's life, from outside: two ends over a lossy network
   in virtual time, each of them the loop of the manual. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "dxpu.h"
#include <cmocka.h>

enum { HOST, BOX, ENDS, FLYING = 64, PACKET_BYTES = 1500, TAGS = 8, READ_BYTES = 4 };
#define MS       1000000u
#define DELAY_NS 20000u
#define HOLD_NS  (1000ull * MS)

typedef struct packet {
    uint64_t at_ns; /* arrives; DXPU_NEVER: none */
    size_t len;
    uint8_t bytes[PACKET_BYTES];
} packet;

typedef struct end {
    dxpu_channel ch;
    void *mem;
    packet flying[FLYING]; /* to this end */
    unsigned tlps, frames[DXPU_KIND_END];
    uint8_t last[DXPU_TLP_MAX_BYTES]; /* the newest TLP taken */
    uint64_t user;                    /* of it */
    int over;                         /* what emit() ended with */
    uint64_t over_ns;
    bool idle; /* takes nothing */
} end;

static end ends[ENDS];
static uint64_t now_ns;
static uint32_t seed, loss_percent;
/* true: this frame is lost as well; it may be altered */
static bool (*lose)(int from, uint8_t *frame, size_t len);

/* sees each TLP that is taken; NULL: none */
static void (*taken)(int at);

static const uint8_t mwr[16] = { 0x40, 0, 0, 1, 0, 0, 0, 15, 0xfe, 0xe0, 0, 0 };
static const dxpu_bytes write_tlp = { mwr, sizeof mwr };

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static void begin(dxpu_tags *tags, const dxpu_credits *box_rx)
{
    now_ns = 5 * MS;
    loss_percent = 0;
    lose = NULL;
    taken = NULL;
    memset(ends, 0, sizeof ends);
    for (int e = 0; e < ENDS; e++) {
        dxpu_channel_config cfg;
        dxpu_channel_config_default(&cfg);
        cfg.local_id = 10u + (unsigned)e;
        cfg.epoch = 3;
        cfg.tags = e == HOST ? tags : NULL;
        if (e == BOX && box_rx)
            cfg.rx = *box_rx;
        ends[e].mem = malloc(dxpu_channel_bytes(&cfg));
        assert_non_null(ends[e].mem);
        assert_int_equal(
            dxpu_channel_init(&ends[e].ch, &cfg, ends[e].mem, dxpu_channel_bytes(&cfg)), DXPU_OK);
        for (unsigned i = 0; i < FLYING; i++)
            ends[e].flying[i].at_ns = DXPU_NEVER;
    }
    assert_int_equal(dxpu_channel_open(&ends[HOST].ch, now_ns), DXPU_OK);
}

static void finish(void)
{
    for (int e = 0; e < ENDS; e++)
        free(ends[e].mem);
}

static void tx(int from, uint8_t *frame, int len)
{
    packet *p = ends[!from].flying;
    ends[from].frames[frame[DXPU_FRAME_KIND]]++;
    if (draw(100) < loss_percent || (lose && lose(from, frame, (size_t)len)))
        return;
    while (p->at_ns != DXPU_NEVER)
        assert_true(++p < ends[!from].flying + FLYING);
    p->at_ns = now_ns + DELAY_NS;
    p->len = (size_t)len;
    memcpy(p->bytes, frame, p->len);
}

static void take(end *e)
{
    for (unsigned cls = 0; cls < DXPU_CLASSES && !e->idle; cls++) {
        dxpu_delivery d;
        for (; (d = dxpu_channel_peek(&e->ch, cls)).tlp.len; e->tlps++) {
            memcpy(e->last, d.tlp.ptr, d.tlp.len);
            e->user = d.user;
            assert_int_equal(dxpu_channel_take(&e->ch, cls, now_ns), DXPU_OK);
            if (taken)
                taken((int)(e - ends));
        }
    }
}

/* The manual's loop, once. */
static void turn(int at)
{
    static uint8_t out[DXPU_FRAME_MAX_LIMIT_BYTES];
    end *e = &ends[at];
    uint8_t path;
    int n;
    if (e->over || dxpu_channel_status(&e->ch).state == DXPU_STATE_IDLE)
        return;
    take(e);
    while ((n = dxpu_channel_emit(&e->ch, now_ns, out, sizeof out, &path)) > 0)
        tx(at, out, n);
    if (n < 0) {
        e->over = n;
        e->over_ns = now_ns;
    }
}

/* All that has arrived by now: one batch. */
static void rx(int at)
{
    end *e = &ends[at];
    for (packet *p = e->flying; p < e->flying + FLYING; p++) {
        if (p->at_ns > now_ns)
            continue;
        p->at_ns = DXPU_NEVER;
        if (e->over)
            continue; /* no one is left */
        if (dxpu_channel_status(&e->ch).state == DXPU_STATE_IDLE)
            (void)dxpu_channel_accept(&e->ch, now_ns, p->bytes, p->len);
        else
            (void)dxpu_channel_ingest(&e->ch, now_ns, p->bytes, p->len, 0);
    }
}

/* When something happens next, by next_ns() and the network alone. */
static uint64_t next_ns(void)
{
    uint64_t next = DXPU_NEVER;
    for (int e = 0; e < ENDS; e++) {
        uint64_t due = ends[e].over ? DXPU_NEVER : dxpu_channel_next_ns(&ends[e].ch);
        next = due < next ? due : next;
        for (unsigned i = 0; i < FLYING; i++)
            next = ends[e].flying[i].at_ns < next ? ends[e].flying[i].at_ns : next;
    }
    return next;
}

/* Both loops until then, or until both are over: DXPU_NEVER stands for as long as it takes. */
static void run_until(uint64_t until_ns)
{
    for (unsigned turns = 0;; turns++) {
        assert_true(turns < 1000000);
        turn(HOST);
        turn(BOX);
        if (ends[HOST].over && ends[BOX].over)
            return;
        uint64_t next = next_ns();
        if (next > until_ns || (next == DXPU_NEVER && until_ns != DXPU_NEVER)) {
            now_ns = until_ns;
            return;
        }
        assert_true(next != DXPU_NEVER); /* else a loop would never learn of its end */
        now_ns = next > now_ns ? next : now_ns;
        rx(HOST);
        rx(BOX);
    }
}

static void up(void)
{
    run_until(now_ns + MS);
    assert_int_equal(dxpu_channel_status(&ends[HOST].ch).state, DXPU_STATE_UP);
    assert_int_equal(dxpu_channel_status(&ends[BOX].ch).state, DXPU_STATE_UP);
}

static int submit(int at, dxpu_bytes tlp)
{
    return dxpu_channel_submit(&ends[at].ch, tlp, now_ns, 0);
}

/* ---- Initialising ---- */

static void test_init_takes_its_own_configuration(void **state)
{
    (void)state;
    begin(NULL, NULL);
    dxpu_channel *ch = &ends[HOST].ch;
    assert_int_equal(dxpu_channel_init(ch, &ch->cfg, ends[HOST].mem, dxpu_channel_bytes(&ch->cfg)),
                     DXPU_OK);
    assert_int_equal(ch->cfg.local_id, 10);
    assert_int_equal(ch->cfg.window_frames, 32);
    assert_int_equal(dxpu_channel_open(ch, now_ns), DXPU_OK);
    up();
    finish();
}

/* ---- A frame that is always malformed ---- */

static unsigned spoilt; /* data frames of the host still to be made malformed, under a good CRC */

static bool spoil(int from, uint8_t *frame, size_t len)
{
    if (from == HOST && frame[DXPU_FRAME_KIND] == DXPU_KIND_DATA && spoilt && spoilt--) {
        frame[DXPU_FRAME_FULL_BYTES] = 0x7f; /* no type of a record */
        dxpu_frame_seal_crc(frame, len - DXPU_FRAME_CRC_BYTES);
    }
    return false;
}

static void test_d64_a_frame_that_is_always_malformed(void **state)
{
    (void)state;
    begin(NULL, NULL);
    up();
    lose = spoil;
    spoilt = 1000000;
    assert_int_equal(submit(HOST, write_tlp), DXPU_OK);
    run_until(now_ns + 10 * HOLD_NS);
    assert_int_equal(ends[BOX].over, DXPU_E_PROTO);
    assert_int_equal(dxpu_channel_status(&ends[BOX].ch).last_error, DXPU_E_RECORD);
    assert_int_equal(ends[HOST].over, DXPU_E_RESET);
    assert_int_equal(dxpu_channel_status(&ends[HOST].ch).reason, DXPU_REASON_PROTOCOL);
    assert_int_equal(ends[BOX].tlps, 0);
    finish();
    begin(NULL, NULL); /* control: the eighth transmission is good; then seven of the next frame */
    up();
    lose = spoil;
    for (unsigned tlps = 1; tlps <= 2; tlps++) {
        spoilt = 7;
        assert_int_equal(submit(HOST, write_tlp), DXPU_OK);
        run_until(now_ns + 10 * HOLD_NS);
        assert_int_equal(ends[BOX].ch.count.rx_record, 7 * tlps);
        assert_int_equal(ends[BOX].tlps, tlps);
    }
    assert_int_equal(dxpu_channel_status(&ends[BOX].ch).state, DXPU_STATE_UP);
    finish();
}

/* ---- Closing ---- */

static int close_end(int at)
{
    return dxpu_channel_close(&ends[at].ch, DXPU_REASON_SHUTDOWN);
}

/* Both loops ended: the end that closed with its answer, the other one after the closing period. */
static void ended(int closer, unsigned tlps)
{
    assert_int_equal(ends[closer].over, DXPU_E_CLOSED);
    assert_int_equal(ends[!closer].over, DXPU_E_PEER_CLOSED);
    assert_int_equal(ends[!closer].tlps, tlps);
    assert_int_equal(dxpu_channel_status(&ends[!closer].ch).reason, DXPU_REASON_SHUTDOWN);
}

/* Either end submits and closes before the channel is UP: what it submitted arrives. */
static void test_d65_close_before_up(void **state)
{
    (void)state;
    for (int closer = HOST; closer <= BOX; closer++) {
        begin(NULL, NULL);
        assert_int_equal(submit(HOST, write_tlp), DXPU_OK);
        if (closer == BOX) {
            turn(HOST);
            now_ns += DELAY_NS;
            rx(BOX);
            assert_int_equal(dxpu_channel_status(&ends[BOX].ch).state, DXPU_STATE_ACCEPTED);
            assert_int_equal(submit(BOX, write_tlp), DXPU_OK);
        }
        assert_int_equal(close_end(closer), DXPU_OK);
        assert_int_equal(dxpu_channel_close(&ends[closer].ch, 1),
                         DXPU_OK); /* the first one counts */
        assert_int_equal(submit(closer, write_tlp), DXPU_E_CLOSED);
        run_until(DXPU_NEVER);
        ended(closer, 1);
        finish();
    }
}

/* A close cannot end what never began, and a reset drops what was submitted. */
static void test_d65_an_open_that_fails(void **state)
{
    (void)state;
    begin(NULL, NULL);
    loss_percent = 100;
    assert_int_equal(close_end(HOST), DXPU_OK);
    ends[BOX].over = DXPU_E_NO_ANSWER; /* there is no box */
    run_until(DXPU_NEVER);
    assert_int_equal(ends[HOST].over, DXPU_E_NO_ANSWER);
    assert_int_equal(ends[HOST].over_ns, 5 * MS + HOLD_NS);
    finish();
    begin(NULL, NULL);
    dxpu_channel_reset(&ends[HOST].ch, DXPU_REASON_DETACH);
    turn(HOST);
    assert_int_equal(ends[HOST].over, DXPU_E_RESET);
    finish();
    begin(NULL, NULL); /* control: silence of a channel that was up has another name */
    up();
    loss_percent = 100;
    run_until(DXPU_NEVER);
    assert_int_equal(ends[HOST].over, DXPU_E_DEAD);
    assert_int_equal(ends[BOX].over, DXPU_E_DEAD);
    finish();
}

static unsigned answers_to_lose;

static bool lose_answers(int from, uint8_t *frame, size_t len)
{
    (void)from;
    (void)len;
    return frame[DXPU_FRAME_KIND] == DXPU_KIND_CLOSE &&
           (frame[DXPU_FRAME_BASE_BYTES + 1] & DXPU_CLOSE_ANSWER) && answers_to_lose &&
           answers_to_lose--;
}

/* The closing period: it begins with the first close, lasts for hold, and answers each close. */
static void test_d66_closing_period(void **state)
{
    (void)state;
    begin(NULL, NULL);
    up();
    lose = lose_answers;
    answers_to_lose = 5;
    assert_int_equal(submit(HOST, write_tlp), DXPU_OK);
    assert_int_equal(close_end(HOST), DXPU_OK);
    while (dxpu_channel_status(&ends[BOX].ch).state != DXPU_STATE_CLOSED)
        run_until(now_ns + DELAY_NS / 2);
    uint64_t began_ns = now_ns;
    assert_int_equal(dxpu_channel_status(&ends[BOX].ch).error, DXPU_E_PEER_CLOSED);
    assert_int_equal(submit(BOX, write_tlp), DXPU_E_PEER_CLOSED);
    run_until(began_ns + HOLD_NS - MS);
    assert_int_equal(ends[HOST].over, DXPU_E_CLOSED);
    assert_int_equal(ends[HOST].frames[DXPU_KIND_CLOSE], 6);
    assert_int_equal(ends[BOX].frames[DXPU_KIND_CLOSE], 6);
    assert_int_equal(ends[BOX].over, 0);
    assert_true(dxpu_channel_next_ns(&ends[BOX].ch) > began_ns + HOLD_NS - MS);
    assert_true(dxpu_channel_next_ns(&ends[BOX].ch) <= began_ns + HOLD_NS);
    run_until(DXPU_NEVER);
    ended(HOST, 1);
    assert_true(ends[BOX].over_ns <= began_ns + HOLD_NS);
    assert_true(dxpu_channel_next_ns(&ends[BOX].ch) == DXPU_NEVER); /* no loop spins on it */
    finish();
}

/* Of two that close at once each knows by the other's answer that it need not stay. */
static void test_d66_both_close(void **state)
{
    (void)state;
    for (unsigned lost = 0; lost < 2; lost++) {
        begin(NULL, NULL);
        up();
        lose = lose_answers;
        answers_to_lose = 2 * lost;
        uint64_t from_ns = now_ns;
        assert_int_equal(close_end(HOST), DXPU_OK);
        assert_int_equal(close_end(BOX), DXPU_OK);
        run_until(DXPU_NEVER);
        for (int e = HOST; e < ENDS; e++) {
            assert_int_equal(ends[e].over, DXPU_E_CLOSED);
            assert_true((ends[e].over_ns - from_ns < MS) == (lost == 0));
            assert_true(ends[e].over_ns - from_ns <= HOLD_NS + MS);
        }
        finish();
    }
}

/* At both ends TLPs arrive with the frame that ends the channel, in one batch. */
static void test_d46_tlps_and_the_close_in_one_batch(void **state)
{
    (void)state;
    begin(NULL, NULL);
    up();
    assert_int_equal(submit(HOST, write_tlp), DXPU_OK);
    turn(HOST);
    run_until(now_ns + 3 * DELAY_NS);
    ends[BOX].idle = true; /* as if all of it were still in the socket */
    assert_int_equal(submit(HOST, write_tlp), DXPU_OK);
    assert_int_equal(close_end(HOST), DXPU_OK);
    run_until(now_ns + 20 * MS);
    assert_int_equal(ends[HOST].over, DXPU_E_CLOSED);
    assert_int_equal(ends[BOX].tlps, 1);
    ends[BOX].idle = false;
    run_until(DXPU_NEVER);
    ended(HOST, 2);
    finish();
    begin(NULL, NULL); /* the answer ends the closer at once: what came before it is taken first */
    up();
    assert_int_equal(close_end(HOST), DXPU_OK);
    assert_int_equal(submit(BOX, write_tlp), DXPU_OK);
    turn(HOST);
    turn(BOX);
    now_ns += DELAY_NS;
    rx(BOX);
    turn(BOX);
    now_ns += DELAY_NS;
    rx(HOST);
    turn(HOST);
    assert_int_equal(ends[HOST].over, DXPU_E_CLOSED);
    assert_int_equal(ends[HOST].tlps, 1);
    finish();
}

/* next_ns() names the end also of a channel that its peer, or this end, has reset. */
static void test_d47_a_reset_is_due(void **state)
{
    (void)state;
    begin(NULL, NULL);
    up();
    dxpu_channel_reset(&ends[HOST].ch, DXPU_REASON_DETACH);
    turn(HOST);
    now_ns += DELAY_NS;
    rx(BOX);
    assert_true(dxpu_channel_next_ns(&ends[BOX].ch) == 0);
    turn(BOX);
    for (int e = HOST; e < ENDS; e++) {
        assert_int_equal(ends[e].over, DXPU_E_RESET);
        assert_true(dxpu_channel_next_ns(&ends[e].ch) == DXPU_NEVER);
    }
    finish();
}

/* A loop that takes next_ns() for the time, as a simulation may. */
static void test_never_is_not_a_time(void **state)
{
    uint8_t out[PACKET_BYTES], path;
    (void)state;
    begin(NULL, NULL);
    up();
    assert_int_equal(dxpu_channel_emit(&ends[HOST].ch, DXPU_NEVER, out, sizeof out, &path),
                     DXPU_E_ARG);
    assert_int_equal(dxpu_channel_status(&ends[HOST].ch).state, DXPU_STATE_UP);
    assert_int_equal(dxpu_channel_emit(&ends[HOST].ch, now_ns, out, sizeof out, &path), 0);
    finish();
}

/* Hosts that close at once, and after some work, over a network that loses much: all end as they
   should, and nothing is lost. */
static void test_d65_d66_seeds(void **state)
{
    const char *text = getenv("DXPU_SEEDS");
    unsigned seeds = text ? (unsigned)atoi(text) / 20 + 1 : 500;
    (void)state;
    for (unsigned i = 0; i < seeds; i++) {
        unsigned tlps = 1;
        begin(NULL, NULL);
        seed = i;
        loss_percent = i % 2 ? 5 : 30;
        assert_int_equal(submit(HOST, write_tlp), DXPU_OK);
        if (i % 4 >= 2) {
            run_until(now_ns + draw(200) * MS);
            for (; tlps < 40; tlps++)
                assert_int_equal(submit(HOST, write_tlp), DXPU_OK);
        }
        assert_int_equal(close_end(HOST), DXPU_OK);
        run_until(DXPU_NEVER);
        if (ends[HOST].over != DXPU_E_CLOSED)
            print_error("seed %u: %s\n", i, dxpu_error_name(ends[HOST].over));
        ended(HOST, tlps);
        finish();
    }
}

/* ---- Requests that time out before they have left ---- */

#define TIMEOUT_NS (10ull * MS)
static dxpu_tags tags;
static dxpu_tag_entry entries[TAGS];

/* A read of one dword. */
static int submit_read(uint16_t tag, uint32_t address, uint64_t user)
{
    uint8_t raw[16];
    dxpu_bytes tlp = { raw, 0 };
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.header_dw = 3;
    t.tag = tag;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.address = address;
    assert_int_equal(dxpu_tlp_encode(&t, raw, sizeof raw, &tlp.len), DXPU_OK);
    return dxpu_channel_submit(&ends[HOST].ch, tlp, now_ns, user);
}

/* The box answers the read that it took last with its address as the data. */
static void answer(void)
{
    uint8_t raw[16];
    dxpu_bytes tlp = { ends[BOX].last, 12 };
    dxpu_tlp req, cpl;
    assert_int_equal(dxpu_tlp_decode(tlp, &req), DXPU_OK);
    dxpu_tlp_completion(&req, DXPU_BDF(1, 0, 0), DXPU_CPL_SC, &cpl);
    cpl.payload.ptr = ends[BOX].last + 8;
    cpl.payload.len = READ_BYTES;
    tlp.ptr = raw;
    assert_int_equal(dxpu_tlp_encode(&cpl, raw, sizeof raw, &tlp.len), DXPU_OK);
    assert_int_equal(submit(BOX, tlp), DXPU_OK);
}

static void begin_with_tags(uint32_t box_reads)
{
    dxpu_credits rx = { { 64, box_reads, 64 }, { 1024, 8, 1024 } };
    assert_int_equal(dxpu_tags_init(&tags, entries, TAGS, 0, 0, TIMEOUT_NS), DXPU_OK);
    begin(&tags, &rx);
    up();
}

/* The host's loop also calls dxpu_tags_expire(): how many expired until then. */
static unsigned run_and_expire(uint64_t until_ns)
{
    unsigned expired = 0;
    dxpu_request r;
    for (uint64_t next; now_ns < until_ns;) {
        next = dxpu_tags_next_ns(&tags);
        run_until(next > now_ns && next < until_ns ? next : until_ns);
        while (dxpu_tags_expire(&tags, now_ns, &r))
            expired++;
    }
    return expired;
}

/* The last completion that the host took is that of the read of this address. */
static void host_has(uint32_t address, uint64_t user)
{
    const uint8_t *d = ends[HOST].last + 12;
    assert_int_equal(ends[HOST].user, user);
    assert_int_equal(dxpu_get_be32(d), address);
}

/* A read waits for credit, expires, and its tag is used again: the first one never leaves. */
static void test_f34_expired_in_the_queue(void **state)
{
    (void)state;
    for (unsigned expire = 0; expire < 2; expire++) {
        begin_with_tags(1);
        ends[BOX].idle = true;
        assert_int_equal(submit_read(1, 0x1000, 1), DXPU_OK); /* has the only credit */
        assert_int_equal(submit_read(2, 0x2000, 2), DXPU_OK);
        assert_int_equal(submit_read(3, 0x3000, 3), DXPU_OK);
        unsigned expired = run_and_expire(now_ns + (expire ? 60 : 5) * MS);
        assert_int_equal(expired, expire ? 3 : 0);
        assert_int_equal(tags.in_flight, expire ? 0 : 3);
        if (expire) { /* rested long enough, and what never left need not rest */
            assert_int_equal(submit_read(2, 0x4000, 4), DXPU_OK);
            assert_int_equal(submit_read(3, 0x5000, 5), DXPU_OK);
        }
        ends[BOX].idle = false;
        (void)run_and_expire(now_ns + 4 * MS);
        assert_int_equal(ends[BOX].tlps, 3); /* control: without expiry all three */
        answer();
        (void)run_and_expire(now_ns + MS);
        assert_int_equal(ends[HOST].tlps, 1);
        host_has(expire ? 0x5000 : 0x3000, expire ? 5 : 3);
        finish();
    }
}

/* All that waits has expired: the queue is empty, nothing is begun for it, and a close can end. */
static void test_f34_nothing_left_to_send(void **state)
{
    (void)state;
    begin_with_tags(1);
    ends[BOX].idle = true;
    for (uint16_t tag = 1; tag <= 4; tag++)
        assert_int_equal(submit_read(tag, 0x1000, tag), DXPU_OK);
    assert_int_equal(run_and_expire(now_ns + 60 * MS), 4);
    /* nothing waits for anybody; there is room */
    assert_int_equal(dxpu_channel_wants(&ends[HOST].ch, now_ns) % DXPU_WANTS_SUBMIT_POSTED, 0);
    assert_int_equal(tags.unsent, 0);
    assert_int_equal(close_end(HOST), DXPU_OK);
    run_until(DXPU_NEVER);
    ended(HOST, 0);
    finish();
}

static bool dark;

static bool lose_all(int from, uint8_t *frame, size_t len)
{
    (void)from;
    (void)frame;
    (void)len;
    return dark;
}

/* A read has left, but its frames are lost for longer than its timeout and its rest: its tag is
   withheld until it has arrived and a timeout more, so that its answer meets no other read. */
static void test_f34_expired_on_the_way(void **state)
{
    (void)state;
    begin_with_tags(8);
    lose = lose_all;
    dark = true;
    assert_int_equal(submit_read(1, 0x1000, 1), DXPU_OK);
    assert_int_equal(run_and_expire(now_ns + 200 * MS), 1);
    assert_int_equal(submit_read(1, 0x2000, 2), DXPU_E_TAG_BUSY);
    dark = false;
    while (!ends[BOX].tlps)
        (void)run_and_expire(now_ns + MS);
    assert_int_equal(submit_read(1, 0x2000, 2), DXPU_E_TAG_BUSY); /* it rests */
    (void)run_and_expire(now_ns + MS);
    answer();
    (void)run_and_expire(now_ns + MS);
    assert_int_equal(ends[HOST].tlps, 0);
    assert_int_equal(tags.count_unexpected, 1);
    (void)run_and_expire(now_ns + TIMEOUT_NS);
    assert_int_equal(submit_read(1, 0x2000, 2), DXPU_OK); /* control */
    (void)run_and_expire(now_ns + MS);
    answer();
    (void)run_and_expire(now_ns + MS);
    assert_int_equal(ends[HOST].tlps, 1);
    host_has(0x2000, 2);
    finish();
}

/* A request that its requester dropped while it waited does not leave either. */
static void test_f34_dropped_in_the_queue(void **state)
{
    (void)state;
    begin_with_tags(1);
    ends[BOX].idle = true;
    assert_int_equal(submit_read(1, 0x1000, 1), DXPU_OK);
    assert_int_equal(submit_read(2, 0x2000, 2), DXPU_OK);
    assert_int_equal(submit_read(3, 0x3000, 3), DXPU_OK);
    run_until(now_ns + MS);
    assert_int_equal(dxpu_tags_drop(&tags, 0, 2), DXPU_OK);
    assert_int_equal(submit_read(2, 0x4000, 4), DXPU_OK); /* the same tag at once */
    ends[BOX].idle = false;
    run_until(now_ns + 4 * MS);
    assert_int_equal(ends[BOX].tlps, 3);
    answer();
    run_until(now_ns + MS);
    host_has(0x4000, 4);
    finish();
}

static bool lose_once(int from, uint8_t *frame, size_t len)
{
    bool lost = dark && from == HOST && frame[DXPU_FRAME_KIND] == DXPU_KIND_DATA;
    (void)len;
    dark = dark && !lost;
    return lost;
}

/* The one that does not leave stands between others of one frame, which is lost and sent again. */
static void test_f34_dropped_between_others(void **state)
{
    (void)state;
    begin_with_tags(2);
    ends[BOX].idle = true;
    for (uint16_t tag = 1; tag <= 5; tag++)
        assert_int_equal(submit_read(tag, 0x1000u * tag, tag), DXPU_OK);
    run_until(now_ns + MS);
    assert_int_equal(dxpu_tags_drop(&tags, 0, 4), DXPU_OK);
    run_until(now_ns + MS); /* 3 waits for credit, before the one that was dropped */
    lose = lose_once;
    dark = true;
    ends[BOX].idle = false;
    run_until(now_ns + 4 * MS);
    assert_false(dark);
    assert_int_equal(ends[BOX].tlps, 4);
    answer();
    run_until(now_ns + MS);
    host_has(0x5000, 5);
    finish();
}

/* The requester drops a read that has left, and sends one with its tag by another way: that the
   first has arrived means nothing for the second. */
static void test_f34_a_tag_of_another_way(void **state)
{
    dxpu_request r;
    dxpu_tlp t;
    (void)state;
    begin_with_tags(8);
    assert_int_equal(submit_read(1, 0x1000, 1), DXPU_OK);
    turn(HOST);
    assert_int_equal(dxpu_tags_drop(&tags, 0, 1), DXPU_OK);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.tag = 1;
    t.length_dw = 1;
    t.first_be = 0xf;
    assert_int_equal(dxpu_tags_track(&tags, &t, now_ns, 2), DXPU_OK);
    run_until(now_ns + MS);
    assert_int_equal(ends[BOX].tlps, 1);
    assert_true(dxpu_tags_expire(&tags, now_ns + TIMEOUT_NS, &r));
    assert_int_equal(r.user, 2);
    finish();
}

/* Any mix of writes, many frames long, and reads that expire in the queue, on the way, or not, as
   nothing reaches the box for a while: each write arrives once and in order, and no read has
   another's data.  The box answers at once, and the answers are not lost: how late they are is not
   up to the host. */
enum { MIXED = 300, READS = 2000 };
static uint32_t next_write, read_address[READS];
static unsigned answered;

static void take_mixed(int at)
{
    const uint8_t *tlp = ends[at].last;
    if (at == HOST) {
        host_has(read_address[ends[HOST].user], ends[HOST].user);
        answered++;
    } else if (tlp[0] == 0x40) {
        uint32_t number;
        memcpy(&number, tlp + 12, 4);
        assert_int_equal(number, next_write);
        next_write++;
    } else {
        answer();
    }
}

static bool lose_of_host(int from, uint8_t *frame, size_t len)
{
    (void)frame;
    (void)len;
    return from == HOST && (dark || draw(10) == 0);
}

static void mixed(unsigned steps, unsigned *expired)
{
    uint8_t big[12 + 4096] = { 0x40, 0, 0, 1, 0, 0, 0, 15, 0xfe, 0xe0, 0, 0 };
    uint32_t writes = 0, reads = 0;
    for (unsigned i = 0; i < steps; i++) {
        uint32_t dw = 1 + draw(1024);
        dxpu_bytes tlp = { big, 12 + 4 * (size_t)dw };
        big[2] = (uint8_t)(dw >> 8 & 3);
        big[3] = (uint8_t)dw;
        big[7] = dw > 1 ? 0xff : 0x0f;
        big[10] = 0;
        memcpy(big + 12, &writes, 4);
        writes += draw(3) == 0 && submit(HOST, tlp) == DXPU_OK;
        read_address[reads] = 0x1000 + 128 * reads; /* Lower Address is the same in all */
        reads += submit_read((uint16_t)draw(TAGS), read_address[reads], reads) == DXPU_OK;
        dark = i / 40 % 2; /* long enough for tags to rest and to be used again */
        *expired += run_and_expire(now_ns + draw(4) * MS);
    }
    dark = false;
    assert_int_equal(close_end(HOST), DXPU_OK);
    run_until(DXPU_NEVER);
    assert_int_equal(ends[HOST].over, DXPU_E_CLOSED);
    assert_int_equal(next_write, writes);
}

static void test_f34_seeds(void **state)
{
    const char *text = getenv("DXPU_SEEDS");
    unsigned seeds = text ? (unsigned)atoi(text) / 200 + 1 : 20, expired = 0;
    (void)state;
    answered = 0;
    for (unsigned i = 0; i < seeds; i++) {
        begin_with_tags(2);
        seed = i;
        lose = lose_of_host;
        next_write = 0;
        taken = take_mixed;
        mixed(MIXED, &expired);
        finish();
    }
    assert_true(answered > seeds * 10 && expired > seeds * 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_takes_its_own_configuration),
        cmocka_unit_test(test_d64_a_frame_that_is_always_malformed),
        cmocka_unit_test(test_d65_close_before_up),
        cmocka_unit_test(test_d65_an_open_that_fails),
        cmocka_unit_test(test_d66_closing_period),
        cmocka_unit_test(test_d66_both_close),
        cmocka_unit_test(test_d46_tlps_and_the_close_in_one_batch),
        cmocka_unit_test(test_d47_a_reset_is_due),
        cmocka_unit_test(test_never_is_not_a_time),
        cmocka_unit_test(test_d65_d66_seeds),
        cmocka_unit_test(test_f34_expired_in_the_queue),
        cmocka_unit_test(test_f34_nothing_left_to_send),
        cmocka_unit_test(test_f34_expired_on_the_way),
        cmocka_unit_test(test_f34_dropped_in_the_queue),
        cmocka_unit_test(test_f34_dropped_between_others),
        cmocka_unit_test(test_f34_a_tag_of_another_way),
        cmocka_unit_test(test_f34_seeds),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
