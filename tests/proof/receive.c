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
   control  - p->replay[bit / 64] |= mask;
            + (void)mask; */
void proof_replay(void)
{
    static dxpu_channel ch;
    static dxpui_path paths[2];
    uint64_t bits[BITS / 64], packet = nondet_u64(), other = nondet_u64();
    dxpui_path *p = &paths[1];
    dxpu_frame f;
    ch.cfg.paths = 2;
    ch.paths.path = paths;
    f.path = 1;
    f.packet = packet;
    p->replay = bits;
    ch.paths.replay_bits = BITS;
    p->replay_top = nondet_u64();
    given(p->replay_top < UINT64_MAX - 2 * JUMP);
    given(packet < p->replay_top + JUMP || packet == UINT64_MAX);
    given(other < p->replay_top + 2 * JUMP);
    bool ahead = packet >= p->replay_top && packet != UINT64_MAX;
    bool first = dxpui_replay_mark(&ch, &f);
    must(!ahead || first);
    f.packet = other;
    (void)dxpui_replay_mark(&ch, &f);
    f.packet = packet;
    must(packet != UINT64_MAX || !first);
    must(!dxpui_replay_mark(&ch, &f));
}

/* PROOF ack_valid
   claim    dxpui_ack_valid() passes an acknowledgement exactly when it names only frames that
            were sent: nxt - ack < 2^31, and every bit of `sack` is a frame before nxt; of what
            passes, `ack` is at most nxt - una beyond una or lies before it, and a bit is a frame
            from una to before nxt or lies before una
   bounds   none: any ack and sack, any una and nxt with at most 16,384 frames between
   stubs    none
   open     nothing
   unwind   65
   when     check
   control  - if (beyond > INT32_MAX)
            + if (dxpui_seq_cmp(f->ack, fl->next) > 0) */
void proof_ack_valid(void)
{
    static dxpu_channel ch;
    dxpu_frame f;
    unsigned bit = nondet_u32();
    ch.flight.next = nondet_u32();
    ch.flight.una = nondet_u32();
    const dxpui_flight *fl = &ch.flight;
    uint32_t in_flight = fl->next - fl->una, from_ack = fl->next - f.ack, seq = f.ack + 1 + bit;
    bool sent = from_ack < 0x80000000u;
    given(bit < 64 && in_flight <= 16384);
    for (unsigned i = 0; i < 64; i++)
        sent = sent && (!(f.sack >> i & 1) || i + 1 < from_ack);
    must(dxpui_ack_valid(&ch.flight, &f) == sent);
    if (!sent)
        return;
    /* what dxpui_on_ack() goes through: its comparisons, and how far they can lead */
    must(dxpui_seq_cmp(ch.flight.una, f.ack) >= 0 || f.ack - ch.flight.una <= in_flight);
    must(!(f.sack >> bit & 1) || dxpui_seq_cmp(seq, fl->una) < 0 || seq - fl->una < in_flight);
}
