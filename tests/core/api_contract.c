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
    if (e->over || dxpu_channel_state(&e->ch) == DXPU_STATE_IDLE)
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
        if (dxpu_channel_state(&e->ch) == DXPU_STATE_IDLE)
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
    for (unsigned turns = 0; !(ends[HOST].over && ends[BOX].over); turns++) {
        assert_true(turns < 1000000);
        turn(HOST);
        turn(BOX);
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
    assert_int_equal(dxpu_channel_state(&ends[HOST].ch), DXPU_STATE_UP);
    assert_int_equal(dxpu_channel_state(&ends[BOX].ch), DXPU_STATE_UP);
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
    assert_int_equal(ch->cfg.window_frames, 64);
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
    assert_int_equal(dxpu_channel_last_error(&ends[BOX].ch), DXPU_E_RECORD);
    assert_int_equal(ends[HOST].over, DXPU_E_RESET);
    assert_int_equal(dxpu_channel_reason(&ends[HOST].ch), DXPU_REASON_PROTOCOL);
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
    assert_int_equal(dxpu_channel_state(&ends[BOX].ch), DXPU_STATE_UP);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_takes_its_own_configuration),
        cmocka_unit_test(test_d64_a_frame_that_is_always_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
