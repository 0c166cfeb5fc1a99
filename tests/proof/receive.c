/* Proofs of sections 13 to 16: the byte ring, the replay window, acknowledgements. */
#include "proof.h"

enum { BITS = 64, JUMP = 6 };

/* PROOF replay
   claim    the window of packet numbers says "new" at most once for each, whatever comes between;
            one larger than all before is new; the bits are touched only within the window
   bounds   a window of 64 bits, any content; numbers at most 6 beyond it; one number between
   stubs    none
   open     more than one number between; larger windows; longer jumps
   unwind   14
   when     long
   control  - } else if (ch->replay_top - packet > size) {
            + } else if (ch->replay_top - packet > size + 1) { */
void proof_replay(void)
{
    static dxpu_channel ch;
    uint64_t bits[BITS / 64], packet = nondet_u64(), other = nondet_u64();
    ch.replay = bits;
    ch.replay_bits = BITS;
    ch.replay_top = nondet_u64();
    given(ch.replay_top < UINT64_MAX - 2 * JUMP);
    given(packet < ch.replay_top + JUMP || packet == UINT64_MAX);
    given(other < ch.replay_top + 2 * JUMP);
    bool ahead = packet >= ch.replay_top && packet != UINT64_MAX;
    bool first = dxpui_replay_mark(&ch, packet);
    must(!ahead || first);
    (void)dxpui_replay_mark(&ch, other);
    must(packet != UINT64_MAX || !first);
    must(!dxpui_replay_mark(&ch, packet));
}

/* PROOF ack_valid
   claim    an acknowledgement that passes names only frames that were sent: `ack` is not beyond the
            next, and every bit of `sack` stands for a frame before it
   bounds   at most 2^30 frames in flight
   stubs    none
   open     nothing
   unwind   2
   when     check
   control  - return bits >= 64 || (f->sack >> bits) == 0;
            + return bits >= 64 || (f->sack >> bits) <= 1; */
void proof_ack_valid(void)
{
    static dxpu_channel ch;
    dxpu_frame f;
    unsigned bit = nondet_u32();
    ch.nxt = nondet_u32();
    given(bit < 64);
    if (!dxpui_ack_valid(&ch, &f))
        return;
    must(dxpui_seq_cmp(f.ack, ch.nxt) <= 0);
    /* at half the number space before and after are the same */
    given(ch.nxt - f.ack <= 0x40000000u);
    must(!(f.sack >> bit & 1) || dxpui_seq_cmp(f.ack + 1 + bit, ch.nxt) < 0);
}

enum { HEADERS = 2, UNITS = 256, RING_STEPS = 4 };

/* PROOF ring
   claim    D-52: a TLP that the credits admit finds room in the byte ring, wherever the ring wraps,
            within the ring and apart from every other in it; they come out in the order in which
            they went in
   bounds   credits for 2 TLPs and 256 units; any 4 steps of putting one in (12 to 4,132 bytes) and
            taking the oldest out
   stubs    none
   open     more TLPs at once, longer runs
   unwind   8
   when     long
   control  - if ((f->count == 0 || f->tail > f->head) && size > f->cap - f->tail) {
            + if ((f->count == 0 || f->tail >= f->head) && size >= f->cap - f->tail + 8) { */
void proof_ring(void)
{
    static uint8_t mem[2 * (sizeof(dxpui_item) + 40) + UNITS * 16 + DXPUI_ITEM_MAX];
    dxpui_fifo f;
    uint32_t start[HEADERS], size[HEADERS], oldest = 0, id = 0;
    dxpui_zero(&f, sizeof f);
    f.mem = mem;
    f.cap = (uint32_t)dxpui_fifo_bytes(HEADERS, UNITS);
    must(f.cap <= sizeof mem);
    f.header_max = HEADERS;
    f.data_max = UNITS;
    for (unsigned i = 0; i < RING_STEPS; i++) {
        if (nondet_bool()) {
            dxpui_item it;
            uint16_t payload = nondet_u16(), head = nondet_u16();
            given(payload <= 4096 && payload % 4 == 0 && head >= 12 && head <= 36 && head % 4 == 0);
            dxpui_zero(&it, sizeof it);
            it.bytes = (uint16_t)(head + payload);
            it.units = (uint16_t)dxpu_credit_units(payload);
            it.order = id;
            if (!dxpui_fifo_fits(&f, it.units))
                continue;
            uint32_t pos = dxpui_fifo_place(&f, it.bytes), bytes = dxpui_item_size(it.bytes);
            must(pos <= f.cap && bytes <= f.cap - pos);
            if (f.count == 1) {
                unsigned o = oldest % HEADERS;
                must(pos >= start[o] + size[o] || pos + bytes <= start[o]);
            }
            start[id % HEADERS] = pos;
            size[id % HEADERS] = bytes;
            dxpui_fifo_commit(&f, pos, &it);
            id++;
        } else if (f.count) {
            must(f.head == start[oldest % HEADERS]);
            if (f.waiting == f.count)
                dxpui_fifo_advance(&f);
            must(dxpui_fifo_free(&f).order == oldest);
            oldest++;
        }
        must(f.count == id - oldest && f.header_used == f.count);
    }
}
