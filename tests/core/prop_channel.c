/* Properties of the sender and of the receiver of a channel, each by itself against a naive model
   of the other: a list of what was sent.  DXPU_SEED repeats one run, DXPU_SEEDS sets how many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include "channel_rig.h"
#include "seeds.h"

enum { TLPS = 60, FRAMES = 600, WINDOW = 16, STEPS = 1500, PENDING = 16 };
/* What a control breaks in the part, behind its back. */
enum { NOTHING, BYTES, CREDIT, EARLY };

typedef struct frame_copy {
    uint8_t body[1452];
    uint16_t bytes;
    uint32_t begun, whole, units; /* TLPs and data units in the frames up to this one */
    bool got;
} frame_copy;

static rig r;
static uint64_t random_state;
static uint8_t stream[TLPS * 2048]; /* the TLPs, one behind the other */
static uint32_t tlp_at[TLPS + 1], tlps;
static frame_copy frames[FRAMES];
static uint32_t made, in_order; /* frames known; the first that has not come */
static const char *wrong;       /* the first property that did not hold */
static uint64_t again, beyond;  /* frames sent again; put in beyond the window */

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

static bool chance(uint32_t one_in)
{
    return draw(one_in) == 0;
}

static void holds(bool truth, const char *property)
{
    if (!truth && !wrong)
        wrong = property;
}

static dxpu_bytes add_tlp(void)
{
    uint32_t bytes = chance(5) ? 4 + 4 * draw(500) : 4 + 4 * draw(40);
    dxpu_bytes tlp = rig_mwr((uint16_t)draw(65536), bytes, 0);
    memcpy(stream + tlp_at[tlps], tlp.ptr, tlp.len);
    tlp.ptr = stream + tlp_at[tlps];
    tlp_at[tlps + 1] = tlp_at[tlps] + (uint32_t)tlp.len;
    return tlp;
}

static void begin(uint64_t seed)
{
    random_state = seed;
    tlps = made = in_order = 0;
    tlp_at[0] = 0;
    wrong = NULL;
    memset(frames, 0, sizeof frames);
    rig_config(&r);
    r.cfg.window_frames = r.offer.window_frames = WINDOW;
    r.cfg.lossless = seed & 1;
    r.offer.limits.header[DXPU_POSTED] = 8;
    r.cfg.rx.header[DXPU_POSTED] = seed & 2 ? 12 : TLPS; /* what it waits for: credit, or room */
    rig_up(&r);
    r.say.limits.header[DXPU_POSTED] = 8;
}

/* ---- the sender ---- */

typedef struct ack_copy {
    uint8_t bytes[DXPU_FRAME_FULL_BYTES + DXPU_FRAME_CRC_BYTES];
    size_t len;
    uint32_t ack, limit;
} ack_copy;

static struct {
    uint32_t seq[PENDING], arriving; /* frames under way */
    uint64_t packet[PENDING];
    ack_copy ack[PENDING];
    uint32_t acks;          /* acknowledgements under way */
    uint32_t acked, limit;  /* the most that has reached it */
    uint32_t begun, parsed; /* TLPs begun in frames; bytes of the stream that came in order */
    uint64_t seen;
} peer;

/* The bytes of the TLPs in a frame, in order, are those of the stream; how many it begins. */
static uint32_t follow(const frame_copy *f)
{
    dxpu_bytes body = { f->body, f->bytes };
    dxpu_record rec;
    uint32_t begun = 0;
    int rc;
    while ((rc = dxpu_record_next(&body, &rec)) == DXPU_OK) {
        holds(peer.parsed + rec.bytes.len <= tlp_at[tlps] &&
                  !memcmp(stream + peer.parsed, rec.bytes.ptr, rec.bytes.len),
              "frames carry what was submitted, once and in order");
        if (wrong)
            return begun;
        peer.parsed += (uint32_t)rec.bytes.len;
        begun += rec.type == DXPU_RECORD_TLP;
        if (rec.type == DXPU_RECORD_TLP)
            r.say.limits.data[DXPU_POSTED] += dxpu_credit_units(rec.data_bytes);
    }
    holds(rc == DXPU_E_NONE, "records are whole");
    return begun;
}

static uint32_t begins(const frame_copy *f)
{
    dxpu_bytes body = { f->body, f->bytes };
    dxpu_record rec;
    uint32_t begun = 0;
    while (dxpu_record_next(&body, &rec) == DXPU_OK)
        begun += rec.type == DXPU_RECORD_TLP;
    return begun;
}

static void sent(bool lossy)
{
    uint32_t at = r.f.sequence - RIG_SEQ;
    holds(at <= made && at < FRAMES, "a new frame has the next sequence");
    holds(at >= peer.acked, "no frame leaves again that was acknowledged");
    holds(at < peer.acked + WINDOW, "no frame beyond the window");
    if (wrong)
        return;
    frame_copy *f = &frames[at];
    if (at == made) {
        memcpy(f->body, r.f.body.ptr, r.f.body.len);
        f->bytes = (uint16_t)r.f.body.len;
        made++;
        peer.begun += begins(f);
        holds(peer.begun <= peer.limit, "no TLP without credit");
    } else {
        again++;
    }
    holds(f->bytes == r.f.body.len && !memcmp(f->body, r.f.body.ptr, f->bytes),
          "a frame that leaves again is the same");
    if (peer.arriving < PENDING && !(lossy && chance(4))) {
        peer.seq[peer.arriving] = at;
        peer.packet[peer.arriving++] = r.f.packet;
    }
}

/* One frame, or a message of frames of one length but for the last. */
static void emits(bool lossy)
{
    uint8_t out[4 * 1452], path;
    size_t segment, left;
    if (chance(2)) {
        if (rig_emit(&r) > 0 && r.f.kind == DXPU_KIND_DATA)
            sent(lossy);
        return;
    }
    int n = dxpu_channel_emit_many(&r.ch, r.now_ns, out, (1 + draw(4)) * 1452, &path, &segment);
    for (left = n > 0 ? (size_t)n : 0; left && !wrong; left -= segment) {
        dxpu_bytes frame = { out + (size_t)n - left, left < segment ? left : segment };
        segment = frame.len;
        holds(dxpu_frame_check_crc(frame) == DXPU_OK &&
                  dxpu_frame_decode(frame, DXPU_FRAME_CRC_BYTES, &r.f) == DXPU_OK,
              "each segment is a frame");
        if (!wrong && r.f.kind == DXPU_KIND_DATA)
            sent(lossy);
    }
}

static void arrives(void)
{
    uint32_t i = draw(peer.arriving);
    frames[peer.seq[i]].got = true;
    peer.seen = peer.packet[i] > peer.seen ? peer.packet[i] : peer.seen;
    peer.seq[i] = peer.seq[--peer.arriving];
    peer.packet[i] = peer.packet[peer.arriving];
    while (in_order < made && frames[in_order].got)
        r.say.limits.header[DXPU_POSTED] += follow(&frames[in_order++]);
}

static void acknowledges(void)
{
    ack_copy *a = &peer.ack[peer.acks++];
    r.say.kind = DXPU_KIND_ACK;
    r.say.ack = RIG_SEQ + in_order;
    r.say.seen = peer.seen;
    r.say.sack = 0;
    for (uint32_t i = 0; i < WINDOW; i++)
        if (in_order + 1 + i < made && frames[in_order + 1 + i].got)
            r.say.sack |= (uint64_t)1 << i;
    a->len = rig_seal(&r.say, NULL, 0, a->bytes);
    r.say.packet++;
    a->ack = in_order;
    a->limit = r.say.limits.header[DXPU_POSTED];
}

static void acknowledgement_arrives(bool lossy)
{
    uint32_t i = draw(peer.acks);
    ack_copy a = peer.ack[i];
    peer.ack[i] = peer.ack[--peer.acks];
    if (lossy && chance(4))
        return;
    holds(dxpu_channel_ingest(&r.ch, r.now_ns, a.bytes, a.len, 0) == DXPU_OK,
          "an acknowledgement is accepted, late or not");
    peer.acked = a.ack > peer.acked ? a.ack : peer.acked;
    peer.limit = a.limit > peer.limit ? a.limit : peer.limit;
}

static void passes_time(void)
{
    uint64_t due = dxpu_channel_next_ns(&r.ch), most = r.now_ns + draw(8) * RIG_MS;
    if (due > r.now_ns)
        r.now_ns = due < most ? due : most;
}

static void sender_step(bool lossy)
{
    uint32_t what = draw(5);
    if (what == 0 && tlps < TLPS)
        tlps += rig_submit(&r, add_tlp()) == DXPU_OK;
    else if (what == 1)
        emits(lossy);
    else if (what == 2 && peer.arriving)
        arrives();
    else if (what == 3 && peer.acks < PENDING)
        acknowledges();
    else if (what == 4 && peer.acks)
        acknowledgement_arrives(lossy);
    else
        passes_time();
    rig_answer(&r);
}

static const char *run_sender(uint64_t seed, unsigned broken)
{
    begin(seed);
    memset(&peer, 0, sizeof peer);
    peer.limit = 8;
    for (uint32_t i = 0; i < 40 * STEPS && !wrong; i++) {
        bool lossy = i < STEPS;
        sender_step(lossy);
        if (broken == BYTES && lossy)
            r.ch.tx.queue[DXPU_POSTED].mem[draw(r.ch.tx.queue[DXPU_POSTED].cap / 16)] ^= 1;
        r.ch.tx.limits.header[DXPU_POSTED] += broken == CREDIT;
        if (!lossy && tlps == TLPS && peer.parsed == tlp_at[TLPS] && peer.acked == made)
            break;
    }
    holds(peer.parsed == tlp_at[TLPS] && peer.acked == made, "all of it arrives");
    rig_free(&r);
    return wrong;
}

/* ---- the receiver ---- */

/* All TLPs into frames: some full, some with what there was. */
static void make_frames(void)
{
    rig_body body;
    cursor c = { 0 };
    uint32_t whole = 0, begun = 0, units = 0;
    while (tlps < TLPS) {
        (void)add_tlp();
        tlps++;
    }
    while (whole < TLPS) {
        frame_copy *f = &frames[made++];
        int rc = DXPU_OK;
        rig_begin(&body);
        uint32_t most = begun + 6; /* a sender has credit for no more than that at once */
        while (rc == DXPU_OK && whole < TLPS && whole < most && !(body.b.used && chance(3))) {
            if (begun == whole) {
                dxpu_bytes tlp = { stream + tlp_at[whole], tlp_at[whole + 1] - tlp_at[whole] };
                assert_int_equal(cursor_start(&c, tlp), DXPU_OK);
            }
            rc = cursor_place(&body.b, &c);
            if (rc != DXPU_E_ROOM && begun == whole) {
                begun++;
                units += dxpu_credit_units((uint32_t)(c.tlp.len - c.head_bytes));
            }
            whole += rc == DXPU_OK;
        }
        memcpy(f->body, body.bytes, body.b.used);
        f->bytes = (uint16_t)body.b.used;
        f->begun = begun;
        f->whole = whole;
        f->units = units;
    }
}

static struct {
    uint32_t header, data; /* limits that the receiver has advertised */
    uint32_t taken;
} source;

static void puts_frame(uint32_t at)
{
    uint8_t pkt[DXPU_FRAME_MAX_LIMIT_BYTES];
    frame_copy *f = &frames[at];
    if (f->begun > source.header || f->units > source.data)
        return;
    r.say.kind = DXPU_KIND_DATA;
    r.say.sequence = RIG_PEER_SEQ + at;
    size_t n = rig_seal(&r.say, f->body, f->bytes, pkt);
    if (chance(8)) {
        uint32_t bit = draw((uint32_t)n * 8);
        pkt[bit / 8] ^= (uint8_t)(1 << bit % 8);
        holds(dxpu_channel_ingest(&r.ch, r.now_ns, pkt, n, 0) < 0, "a changed frame is refused");
        return;
    }
    int rc = dxpu_channel_ingest(&r.ch, r.now_ns, pkt, n, 0);
    r.say.packet++;
    if (at >= in_order + WINDOW) {
        holds(rc == DXPU_E_WINDOW, "a frame beyond the window is refused");
        beyond++;
        return;
    }
    holds(rc == DXPU_OK, "a frame within the window is accepted, again or early");
    f->got = true;
    while (in_order < made && frames[in_order].got)
        in_order++;
    if (chance(8))
        holds(dxpu_channel_ingest(&r.ch, r.now_ns, pkt, n, 0) == DXPU_E_REPLAY,
              "a repeated datagram is refused");
}

static void says(void)
{
    uint64_t sack = 0;
    if (rig_emit(&r) <= 0 || r.f.kind != DXPU_KIND_ACK)
        return;
    for (uint32_t i = 0; i < WINDOW; i++)
        if (in_order + 1 + i < made && frames[in_order + 1 + i].got)
            sack |= (uint64_t)1 << i;
    holds(r.f.ack == RIG_PEER_SEQ + in_order, "it acknowledges what came in order");
    holds(r.f.sack == sack, "its sack names what came early");
    holds(r.f.limits.header[DXPU_POSTED] <= source.taken + r.cfg.rx.header[DXPU_POSTED],
          "it grants no more than there is room for");
    source.header = r.f.limits.header[DXPU_POSTED];
    source.data = r.f.limits.data[DXPU_POSTED];
}

static void takes(void)
{
    dxpu_bytes tlp = dxpu_channel_peek(&r.ch, DXPU_POSTED).tlp;
    bool due = in_order && source.taken < frames[in_order - 1].whole;
    holds(due == (tlp.len != 0), "what came whole and in order is offered, and nothing else");
    if (!due || wrong)
        return;
    uint32_t at = tlp_at[source.taken], bytes = tlp_at[source.taken + 1] - at;
    holds(tlp.len == bytes && !memcmp(stream + at, tlp.ptr, bytes), "it is what was sent");
    holds(dxpu_channel_take(&r.ch, DXPU_POSTED, r.now_ns) == DXPU_OK, "it can be taken");
    source.taken++;
}

static void forget_early(void)
{
    for (uint32_t i = 0; i < WINDOW; i++)
        if (r.ch.rx.early_bytes[i]) {
            r.ch.rx.early_bytes[i] = 0;
            r.ch.rx.early--;
            return;
        }
}

static const char *run_receiver(uint64_t seed, unsigned broken)
{
    begin(seed);
    make_frames();
    memset(&source, 0, sizeof source);
    source.header = r.cfg.rx.header[DXPU_POSTED];
    source.data = r.cfg.rx.data[DXPU_POSTED];
    for (uint32_t i = 0; i < 40 * STEPS && source.taken < TLPS && !wrong; i++) {
        uint32_t what = draw(4), from = in_order > 3 ? in_order - 3 : 0;
        if (what == 0)
            puts_frame((from + draw(WINDOW + 8)) % made);
        else if (what == 1)
            says();
        else if (what == 2)
            takes();
        else
            passes_time();
        if (broken == BYTES)
            r.ch.rx.queue[DXPU_POSTED].mem[draw(r.ch.rx.queue[DXPU_POSTED].cap)] ^= 1;
        if (broken == EARLY)
            forget_early();
    }
    holds(source.taken == TLPS, "all of it is delivered");
    rig_free(&r);
    return wrong;
}

/* ---- */

static void many(const char *(*run)(uint64_t, unsigned), const char *name)
{
    const char *one = getenv("DXPU_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1, count = one ? 1 : seeds_wanted(6000);
    for (uint64_t seed = first; seed < first + count; seed++)
        if (run(seed, NOTHING))
            fail_msg("%s, DXPU_SEED=%llu: not true: %s", name, (unsigned long long)seed, wrong);
}

static void test_sender(void **state)
{
    (void)state;
    again = 0;
    many(run_sender, "sender");
    assert_true(again > 0 || getenv("DXPU_SEED"));
}

static void test_receiver(void **state)
{
    (void)state;
    beyond = 0;
    many(run_receiver, "receiver");
    assert_true(beyond > 0 || getenv("DXPU_SEED"));
}

/* What breaks a part is seen, with every seed. */
static void test_control(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        assert_non_null(run_sender(seed, BYTES));
        assert_non_null(run_sender(seed, CREDIT));
        assert_string_equal(wrong, "no TLP without credit");
        assert_non_null(run_receiver(seed, BYTES));
        assert_non_null(run_receiver(seed, EARLY));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sender),
        cmocka_unit_test(test_receiver),
        cmocka_unit_test(test_control),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
