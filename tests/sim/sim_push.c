/* Push rules over a network that loses, repeats, delays and reorders: a driver puts entries into a
   ring and rings a doorbell, a host pushes them or does not, a device takes them or reads, makes
   and withdraws its rule, and is reset.  What the device gets of an entry is what was in memory
   when the host forwarded the doorbell.  Controls break one rule each, and are noticed.
   DXPU_SEED=N runs one seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "dxpu_push.h"
#include "seeds.h"

enum {
    HOST,
    BOX,
    ENTRIES = 8,
    ENTRY = 16,
    BASE = 0x10000,
    DOORBELL = 0x1004,
    ENABLE = 0x2000,
    HEAD_AT = 0x20000, /* where the device says how far it is */
    WANTED = 300,      /* entries of a run */
    FLIGHTS = 512,
    QUEUE = 64
};

typedef enum fault {
    SOUND,
    EARLY,     /* the host reads before the driver's last stores (U-7) */
    BEHIND,    /* the data follow the doorbell, and the box takes what it did not expect (U-12) */
    UNTOUCHED, /* what the device reads itself stays pushed (U-13) */
    KEPT,      /* a reset drops nothing that was pushed (U-10) */
    FAULTS
} fault;

typedef struct flight {
    uint64_t at_ns;
    uint16_t len; /* 0: none */
    uint8_t to, bytes[1500];
} flight;

typedef struct post {
    size_t len;
    uint8_t bytes[128];
} post;

static struct {
    uint64_t random, now_ns;
    fault f;
    bool wrong;
    dxpu_channel ch[2];
    flight air[FLIGHTS];
    post queue[2][QUEUE]; /* posted TLPs, until the channel has room */
    unsigned first[2], last[2];
    /* the driver and its host */
    uint8_t memory[ENTRIES * ENTRY], before[ENTRIES * ENTRY];
    uint64_t serial;
    uint32_t tail, done, resets;
    dxpu_push_table table;
    uint8_t expected[ENTRIES][ENTRY]; /* as memory was when the doorbell was forwarded */
    /* the device */
    dxpu_push_store store;
    uint32_t dev_tail, dev_head, dev_resets, tag;
    uint32_t count, pushed; /* entries being fetched; of these, pushed */
    uint8_t got[ENTRIES * ENTRY];
    bool enabled, reads, has_rule;
    unsigned rule;
} w;

static struct {
    uint64_t entries, taken, read, rules, resets, skipped, dropped, stale;
} sum;

static void *room[2];
static dxpu_tags tags;
static dxpu_tag_entry tag_entries[DXPU_TAGS_32];

static uint32_t dice(uint32_t n)
{
    w.random = w.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w.random >> 33) % n;
}

/* ==== The network ============================================================================= */

static void fly(unsigned to, const uint8_t *bytes, int len)
{
    for (unsigned copies = dice(100) < 5 ? 0 : dice(100) < 5 ? 2 : 1; copies; copies--) {
        flight *f = &w.air[0];
        while (f < w.air + FLIGHTS && f->len)
            f++;
        if (f == w.air + FLIGHTS)
            return;
        f->at_ns = w.now_ns + 5000 + dice(dice(10) ? 5000 : 200000);
        f->len = (uint16_t)len;
        f->to = (uint8_t)to;
        memcpy(f->bytes, bytes, (size_t)len);
    }
}

static void emit_all(void)
{
    uint8_t frame[1500], path;
    int n;
    for (unsigned i = 0; i < 2; i++) {
        while ((n = dxpu_channel_emit(&w.ch[i], w.now_ns, frame, sizeof frame, &path)) > 0)
            fly(!i, frame, n);
        assert_true(n == 0); /* neither end is ever over */
    }
}

static uint64_t arrive(void)
{
    uint64_t next = DXPU_NEVER;
    for (flight *f = w.air; f < w.air + FLIGHTS; f++) {
        if (f->len && f->at_ns <= w.now_ns) {
            if (f->to == BOX && dxpu_channel_status(&w.ch[BOX]).state == DXPU_STATE_IDLE)
                (void)dxpu_channel_accept(&w.ch[BOX], w.now_ns, f->bytes, f->len);
            else
                (void)dxpu_channel_ingest(&w.ch[f->to], w.now_ns, f->bytes, f->len, 0);
            f->len = 0;
        } else if (f->len && f->at_ns < next) {
            next = f->at_ns;
        }
    }
    return next;
}

/* Posted TLPs leave in order, when there is room. */
static void put(unsigned end, const dxpu_tlp *t)
{
    post *p = &w.queue[end][w.last[end]++ % QUEUE];
    assert_true(w.last[end] - w.first[end] <= QUEUE);
    assert_int_equal(dxpu_tlp_encode(t, p->bytes, sizeof p->bytes, &p->len), DXPU_OK);
}

static void submit_all(void)
{
    for (unsigned end = 0; end < 2; end++) {
        while (w.first[end] != w.last[end]) {
            const post *p = &w.queue[end][w.first[end] % QUEUE];
            dxpu_bytes tlp = { p->bytes, p->len };
            if (dxpu_channel_submit(&w.ch[end], tlp, w.now_ns, 0) != DXPU_OK)
                break;
            w.first[end]++;
        }
    }
}

static void put_write(unsigned end, uint64_t address, uint32_t value)
{
    uint8_t data[4];
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    dxpu_put_le32(data, value);
    t.type = DXPU_TLP_MWR;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.address = address;
    t.payload.ptr = data;
    t.payload.len = 4;
    put(end, &t);
}

/* ==== The driver and its host ================================================================= */

static void store_entry(uint32_t index)
{
    w.serial++;
    dxpu_put_le64(w.memory + index * ENTRY, w.serial);
    dxpu_put_le64(w.memory + index * ENTRY + 8, ~w.serial);
}

static void push(const dxpu_push_rule *r, const dxpu_push_part *p)
{
    uint8_t payload[DXPU_PUSH_PAYLOAD_MAX];
    const uint8_t *from = w.f == EARLY ? w.before : w.memory;
    dxpu_tlp t;
    assert_true(p->address - BASE + p->bytes <= sizeof w.memory);
    memcpy(payload + DXPU_PUSH_HEAD_BYTES, from + (p->address - BASE), p->bytes);
    dxpu_push_data_message(r, p->address, p->bytes, payload, &t);
    put(HOST, &t);
}

/* What the host does with the driver's write. */
static void forward(uint32_t value)
{
    uint8_t data[4];
    dxpu_push_part part[DXPU_PUSH_PARTS];
    const dxpu_push_rule *r = NULL;
    unsigned parts;
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    dxpu_put_le32(data, value);
    t.type = DXPU_TLP_MWR;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.address = DOORBELL;
    t.payload.ptr = data;
    t.payload.len = 4;
    parts = dxpu_push_table_match(&w.table, &t, part, &r);
    if (parts && !dice(8)) { /* U-9 */
        sum.skipped++;
        parts = parts > 1 && dice(2) ? 1 : 0;
    }
    if (w.f == BEHIND)
        put(HOST, &t);
    for (unsigned i = 0; i < parts; i++)
        push(r, &part[i]);
    if (w.f != BEHIND)
        put(HOST, &t);
}

static void drive(void)
{
    uint32_t in_use = (w.tail + ENTRIES - w.done) % ENTRIES;
    uint32_t n = dice(4);
    if (w.last[HOST] - w.first[HOST] > QUEUE - 4 || !n || in_use + n >= ENTRIES)
        return;
    memcpy(w.before, w.memory, sizeof w.before);
    for (; n; n--) {
        store_entry(w.tail);
        memcpy(w.expected[w.tail], w.memory + w.tail * ENTRY, ENTRY);
        w.tail = (w.tail + 1) % ENTRIES;
    }
    forward(w.tail);
}

/* The device has consumed entries: the driver uses them at once for something else. */
static void consumed(uint32_t head)
{
    for (; w.done != head; w.done = (w.done + 1) % ENTRIES)
        store_entry(w.done);
}

static void answer_read(const dxpu_tlp *req)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp cpl;
    dxpu_tlp_completion(req, 0, DXPU_CPL_SC, &cpl);
    assert_true(req->address - BASE + req->length_dw * 4u <= sizeof w.memory);
    cpl.payload.ptr = w.memory + (req->address - BASE);
    cpl.payload.len = req->length_dw * 4u;
    assert_int_equal(dxpu_tlp_encode(&cpl, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    assert_int_equal(dxpu_channel_submit(&w.ch[HOST], tlp, w.now_ns, 0), DXPU_OK);
}

static void reset_device(void)
{
    const dxpu_push_offer offer = w.table.offer;
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_HOT_RESET;
    e.flags = DXPU_EVENT_ON;
    if (w.first[HOST] != w.last[HOST] || dxpu_channel_submit_event(&w.ch[HOST], &e) != DXPU_OK)
        return;
    dxpu_push_table_init(&w.table, &offer); /* U-10 */
    w.tail = w.done = 0;
    w.resets++;
    sum.resets++;
    for (uint32_t i = 0; i < ENTRIES; i++)
        store_entry(i);
    put_write(HOST, ENABLE, 1);
}

static void host_step(void)
{
    dxpu_push_rule r;
    dxpu_delivery d;
    dxpu_tlp t;
    while ((d = dxpu_channel_peek(&w.ch[HOST], DXPU_POSTED)).tlp.len) {
        assert_int_equal(dxpu_tlp_receive(d.tlp, &t), DXPU_OK);
        if (dxpu_push_rule_decode(&t, &r) == 1)
            assert_int_equal(dxpu_push_table_set(&w.table, &r), DXPU_OK);
        else if (dxpu_get_le32(t.payload.ptr) >> 8 == (w.resets & 0xffffff))
            consumed(dxpu_get_le32(t.payload.ptr) & 0xff);
        (void)dxpu_channel_take(&w.ch[HOST], DXPU_POSTED, w.now_ns);
    }
    d = dxpu_channel_peek(&w.ch[HOST], DXPU_NONPOSTED);
    if (d.tlp.len) {
        assert_int_equal(dxpu_tlp_receive(d.tlp, &t), DXPU_OK);
        answer_read(&t);
        (void)dxpu_channel_take(&w.ch[HOST], DXPU_NONPOSTED, w.now_ns);
    }
    if (dxpu_channel_status(&w.ch[HOST]).state != DXPU_STATE_UP)
        return;
    drive();
    if (!dice(400))
        reset_device();
}

/* ==== The device ============================================================================== */

static void send_rule(const dxpu_push_rule *r)
{
    uint8_t payload[DXPU_PUSH_RULE_BYTES];
    dxpu_tlp t;
    dxpu_push_rule_message(r, payload, &t);
    put(BOX, &t);
}

static void change_rule(void)
{
    dxpu_push_rule r;
    memset(&r, 0, sizeof r);
    if (w.has_rule) {
        assert_true(dxpu_push_store_remove(&w.store, w.rule, &r));
        send_rule(&r);
        w.has_rule = false;
        return;
    }
    r.mode = DXPU_PUSH_SINCE;
    r.width = 4;
    r.doorbell = DOORBELL;
    r.base = BASE;
    r.entries = ENTRIES;
    r.start = w.dev_tail;
    r.stride = ENTRY;
    r.bytes = (uint16_t)((1 + dice(4)) * ENTRY);
    w.rule = (unsigned)dxpu_push_store_add(&w.store, &r);
    assert_true(w.rule < DXPU_PUSH_RULES);
    send_rule(&r);
    w.has_rule = true;
    sum.rules++;
}

/* All that it has fetched, against what the driver had put there; and the driver hears of it. */
static void finish(void)
{
    for (uint32_t i = 0; i < w.count; i++) {
        /* the driver that has reset it uses its memory again before the reset arrives */
        if (w.dev_resets == w.resets && memcmp(w.got + i * ENTRY, w.expected[w.dev_head], ENTRY))
            w.wrong = true;
        w.dev_head = (w.dev_head + 1) % ENTRIES;
    }
    sum.entries += w.count;
    sum.taken += w.pushed;
    sum.read += w.count - w.pushed;
    w.count = 0;
    put_write(BOX, HEAD_AT, w.dev_resets << 8 | w.dev_head);
}

static void fetch(void)
{
    uint8_t bytes[64];
    dxpu_bytes tlp = { bytes, 0 };
    uint64_t address = BASE + w.dev_head * ENTRY;
    uint32_t left, got;
    dxpu_tlp t;
    int tag;
    if (w.count || w.dev_head == w.dev_tail || !w.enabled || !dice(3))
        return;
    left = (w.dev_tail > w.dev_head ? w.dev_tail : ENTRIES) - w.dev_head;
    w.count = 1 + dice(left);
    left = w.count * ENTRY;
    got = dxpu_push_store_take(&w.store, address, left, w.got);
    w.pushed = got / ENTRY;
    if (got == left) {
        finish();
        return;
    }
    if (w.f != UNTOUCHED)
        dxpu_push_store_touch(&w.store, address + got, left - got);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MRD;
    t.header_dw = 3;
    t.address = address + got;
    (void)dxpu_be_from_range(address + got, left - got, &t.first_be, &t.last_be, &t.length_dw);
    tag = dxpu_tags_alloc(&tags);
    if (tag >= 0) {
        t.tag = (uint16_t)tag;
        assert_int_equal(dxpu_tlp_encode(&t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    }
    if (tag < 0 || dxpu_channel_submit(&w.ch[BOX], tlp, w.now_ns, 0) != DXPU_OK) {
        if (tag >= 0)
            (void)dxpu_tags_drop(&tags, 0, (uint16_t)tag);
        w.count = got / ENTRY; /* what was pushed is consumed all the same */
        if (got)
            finish();
        return;
    }
    w.tag = (uint32_t)tag;
    w.reads = true;
}

static void take_data(const dxpu_push_data *d)
{
    dxpu_push_kept *k = &w.store.kept[d->rule % DXPU_PUSH_RULES];
    if (w.f == BEHIND) { /* whatever comes */
        k->next = (uint32_t)((d->address - BASE) / ENTRY);
        k->room = DXPU_PUSH_BYTES;
    }
    (void)dxpu_push_store_arrived(&w.store, d);
}

static void take_posted(const dxpu_tlp *t)
{
    dxpu_push_data d;
    if (dxpu_push_data_decode(t, &d) == 1) {
        take_data(&d);
        return;
    }
    if (t->address == ENABLE) {
        w.enabled = true;
        return;
    }
    dxpu_push_store_rang(&w.store, t);
    w.dev_tail = dxpu_get_le32(t->payload.ptr);
}

/* A reset forgets what was sent and what is in flight, and withdraws the rule (U-10). */
static void take_reset(void)
{
    dxpu_push_chunk before[DXPU_PUSH_CHUNKS];
    unsigned held = w.store.held;
    memcpy(before, w.store.chunk, sizeof before);
    w.first[BOX] = w.last[BOX];
    if (w.has_rule)
        change_rule();
    dxpu_push_store_clear(&w.store);
    if (w.f == KEPT) {
        memcpy(w.store.chunk, before, sizeof before);
        w.store.held = held;
    }
    w.dev_head = w.dev_tail = w.count = 0;
    w.enabled = w.reads = false;
    w.dev_resets++;
}

static void box_step(void)
{
    dxpu_delivery d;
    dxpu_event e;
    dxpu_tlp t;
    while (dxpu_channel_peek_event(&w.ch[BOX], &e)) {
        take_reset();
        (void)dxpu_channel_take_event(&w.ch[BOX]);
    }
    while ((d = dxpu_channel_peek(&w.ch[BOX], DXPU_POSTED)).tlp.len && dice(4)) {
        assert_int_equal(dxpu_tlp_receive(d.tlp, &t), DXPU_OK);
        take_posted(&t);
        (void)dxpu_channel_take(&w.ch[BOX], DXPU_POSTED, w.now_ns);
    }
    while ((d = dxpu_channel_peek(&w.ch[BOX], DXPU_COMPLETION)).tlp.len) {
        assert_int_equal(dxpu_tlp_receive(d.tlp, &t), DXPU_OK);
        assert_true(t.status == DXPU_CPL_SC && d.last);
        if (w.reads && t.tag == w.tag) { /* else it is of before a reset */
            memcpy(w.got + w.pushed * ENTRY, t.payload.ptr, t.payload.len);
            w.reads = false;
            finish();
        }
        (void)dxpu_channel_take(&w.ch[BOX], DXPU_COMPLETION, w.now_ns);
    }
    if (w.last[BOX] - w.first[BOX] > QUEUE - 4 || !w.enabled)
        return;
    fetch();
    if (!dice(100))
        change_rule();
}

/* ==== Runs ==================================================================================== */

static void open_end(unsigned end)
{
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    cfg.local_id = 100 + end;
    cfg.epoch = 1;
    cfg.hold_ms = 60000;
    cfg.tags = end == BOX ? &tags : NULL;
    if (!room[end])
        room[end] = malloc(dxpu_channel_bytes(&cfg));
    assert_non_null(room[end]);
    assert_int_equal(dxpu_channel_init(&w.ch[end], &cfg, room[end], dxpu_channel_bytes(&cfg)),
                     DXPU_OK);
}

static void begin(uint64_t seed, fault f)
{
    const dxpu_push_offer offer = { 4, DXPU_PUSH_BYTES };
    memset(&w, 0, sizeof w);
    w.random = seed * 0x9e3779b97f4a7c15u + 1;
    w.f = f;
    assert_int_equal(dxpu_tags_init(&tags, tag_entries, DXPU_TAGS_32, 0, DXPU_TAGS_32, DXPU_NEVER),
                     DXPU_OK);
    open_end(HOST);
    open_end(BOX);
    assert_int_equal(dxpu_channel_open(&w.ch[HOST], w.now_ns), DXPU_OK);
    dxpu_push_table_init(&w.table, &offer);
    dxpu_push_store_init(&w.store);
    dxpu_push_store_offer(&w.store, &offer);
    w.enabled = true;
}

/* False: the device got something else than what was there. */
static bool run(uint64_t seed, fault f)
{
    uint64_t end = sum.entries + WANTED;
    begin(seed, f);
    while (!w.wrong && sum.entries < end) {
        uint64_t next = arrive(), wait = w.now_ns + 500 + dice(20000);
        host_step();
        box_step();
        submit_all();
        emit_all();
        w.now_ns = next < wait && next > w.now_ns ? next : wait;
        assert_true(w.now_ns < 100000000000u); /* it does not stop */
    }
    sum.dropped += w.store.count.dropped;
    sum.stale += w.store.count.stale;
    return !w.wrong;
}

static void test_u13_pushed_entries_are_those_of_the_doorbell(void **state)
{
    const char *one = getenv("DXPU_SEED");
    uint64_t seeds = one ? 1 : seeds_wanted(400), first = one ? strtoull(one, NULL, 10) : 1;
    (void)state;
    memset(&sum, 0, sizeof sum);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        if (!run(seed, SOUND))
            fail_msg("DXPU_SEED=%llu: an entry is not what was there", (unsigned long long)seed);
    }
    print_message("  %llu entries, %llu pushed, %llu read; %llu rules, %llu resets, %llu doorbells "
                  "alone; %llu pushes and %llu bytes dropped\n",
                  (unsigned long long)sum.entries, (unsigned long long)sum.taken,
                  (unsigned long long)sum.read, (unsigned long long)sum.rules,
                  (unsigned long long)sum.resets, (unsigned long long)sum.skipped,
                  (unsigned long long)sum.dropped, (unsigned long long)sum.stale);
    if (one)
        return;
    assert_true(sum.taken > sum.entries / 10 && sum.read > sum.entries / 10);
    assert_true(sum.rules > seeds && sum.resets > seeds / 4 && sum.skipped > seeds);
    assert_true(sum.dropped > seeds && sum.stale > seeds);
}

static void test_controls_are_noticed(void **state)
{
    static const char *const names[FAULTS] = { "sound", "early", "behind", "untouched", "kept" };
    (void)state;
    for (fault f = EARLY; f < FAULTS; f++) {
        unsigned noticed = 0;
        for (uint64_t seed = 1; seed <= 60; seed++)
            noticed += !run(seed, f);
        print_message("  %s: noticed in %u of 60 runs\n", names[f], noticed);
        assert_true(noticed >= 3);
    }
    free(room[HOST]);
    free(room[BOX]);
    room[HOST] = room[BOX] = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_u13_pushed_entries_are_those_of_the_doorbell),
        cmocka_unit_test(test_controls_are_noticed),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
