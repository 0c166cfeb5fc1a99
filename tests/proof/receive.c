/* Proofs of sections 13 to 16: the replay window, acknowledgements. */
#include "proof.h"

enum { BITS = 64, JUMP = 6 };

/* PROOF replay
   claim    the window of packet numbers says "new" at most once for each, whatever comes
            between; one larger than all before is new; the bits are touched only within the
            window
   bounds   a window of 64 bits, any content; numbers at most 6 beyond it; one number between
   stubs    none
   open     more than one number between; larger windows; longer jumps
   unwind   14
   when     long
   control  - ch->replay[bit / 64] |= mask;
            + (void)mask; */
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
   claim    an acknowledgement that passes names only frames that were sent: `ack` is not beyond
            the next, and every bit of `sack` stands for a frame before it
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
