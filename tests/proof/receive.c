/* Proofs of sections 13 to 16: the replay window, acknowledgements, records of TLPs. */
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
   control  - *word |= mask;
            + (void)word; */
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

/* PROOF record_fits
   claim    dxpui_record_fits(), which looks a header up once, passes a record exactly when
            dxpu_tlp_measure() finds in its bytes a TLP without local prefixes, of the class,
            prefixes, header and data that the record says, so that these are in range; it reads
            only its bytes and the CRC behind them
   bounds   at most two prefixes, six dwords; any header, class and number of data bytes
   stubs    none
   open     three and four prefixes
   unwind   10
   control  - if (first == 0 || (first & DXPUI_LAYOUT) != ((unsigned)r->cls << 6 | r->header_dw))
            + if (first == 0 || (first & 7) != r->header_dw) */
void proof_record_fits(void)
{
    uint8_t bytes[28];
    dxpu_record r;
    dxpu_tlp_shape s;
    r.prefix_dw = nondet_u8();
    r.header_dw = nondet_u8();
    r.cls = nondet_u8();
    r.data_bytes = nondet_u16();
    /* as dxpui_record_tlp() leaves it: no check of ranges, at least three dwords, a CRC behind */
    given(r.prefix_dw <= 2 && r.header_dw <= 7 && r.cls <= 3);
    given(r.prefix_dw + r.header_dw >= 3 && r.prefix_dw + r.header_dw <= 6);
    r.bytes.len = 4 * ((size_t)r.prefix_dw + r.header_dw);
    r.bytes.ptr = bytes + sizeof bytes - 4 - r.bytes.len; /* one byte after the CRC is a fault */
    bool good = dxpu_tlp_measure(r.bytes, &s) == DXPU_OK && s.local_dw == 0 &&
                s.prefix_dw == r.prefix_dw && s.header_dw == r.header_dw && s.cls == r.cls &&
                s.payload_bytes + s.digest_bytes == r.data_bytes;
    must(dxpui_record_fits(&r) == good);
}

/* PROOF acked
   claim    an acknowledgement takes a frame out of what its path has in flight, or of what is
            lost, once: a second one for it changes neither; the largest number acknowledged does
            not go back (D-14)
   bounds   a window of 4 frames, 2 paths; any frame and numbers
   stubs    none
   open     what the round trip time becomes
   unwind   4
   control  - if (s->state == DXPUI_ACKED)
            + if (s->state == DXPUI_LOST) */
void proof_acked(void)
{
    static dxpu_channel ch;
    static dxpui_sent frames[4];
    static dxpui_path paths[2];
    dxpu_frame f;
    uint32_t seq = nondet_u32(), bytes;
    unsigned path = nondet_bool();
    __CPROVER_havoc_object(frames);
    ch.flight.frame = frames;
    ch.flight.mask = 3;
    ch.flight.overhead_bytes = 80;
    ch.flight.lost = nondet_u32();
    ch.cfg.paths = 2;
    ch.paths.path = paths;
    dxpui_path *p = &paths[path];
    dxpui_sent *s = &frames[seq & 3];
    s->path = path & 63u;
    given(s->state == 0 || s->state == DXPUI_ACKED || s->state == DXPUI_LOST);
    unsigned was = s->state;
    bytes = s->body_bytes + 80u;
    p->in_flight = nondet_u32();
    p->index_acked = nondet_u32();
    p->recovering = nondet_bool();
    given(was == DXPUI_LOST ? ch.flight.lost > 0 : true);
    given(was == 0 ? p->in_flight >= bytes : true);
    uint32_t in_flight = p->in_flight, lost = ch.flight.lost, index = p->index_acked;
    for (unsigned twice = 0; twice < 2; twice++) {
        dxpui_acked(&ch, seq, &f, nondet_u64());
        must(s->state == DXPUI_ACKED);
        must(p->in_flight == in_flight - (was == 0 ? bytes : 0));
        must(ch.flight.lost == lost - (was == DXPUI_LOST));
        must(dxpui_seq_cmp(p->index_acked, index) >= 0);
    }
}

/* PROOF check_record
   claim    one step of dxpui_check_body(): of any body, and whatever payload is due, it reads only
            the body, and takes at least four bytes off it, so that a loop of steps reads only the
            body and ends.  What passes is what dxpui_rx_body() takes it for without a look: its
            length leads to the next record; a TLP has a class of three, a header of three or four
            dwords that says what the record says, and no other payload due; payload is never more
            than is due, an event or a TLP never where some is
   bounds   a record of at most 40 bytes, not one to skip: proof record_skip
   stubs    none
   open     longer headers, with three and four prefixes
   unwind   11
   flags    --unwindset dxpui_record_next.0:2
   control  - if (r.bytes.len > c->due)
            + if (r.bytes.len > c->due + 1) */
void proof_check_record(void)
{
    dxpui_checked c;
    dxpu_bytes in = any_bytes(40);
    c.rest = in;
    c.due = nondet_u32();
    c.events = 0;
    given(c.due <= DXPUI_TLP_DATA_MAX || /* or unknown, and what a frame may have taken off */
          (c.due <= DXPUI_DUE_UNKNOWN &&
           c.due >= DXPUI_DUE_UNKNOWN - DXPU_FRAME_MAX_LIMIT_BYTES + 40));
    given(in.len == 0 || !(in.ptr[0] & 0x80));
    bool known = c.due <= DXPUI_TLP_DATA_MAX;
    uint32_t due = c.due;
    int rc = dxpui_check_record(&c);
    must(rc == DXPU_OK || rc == DXPU_E_NONE || rc == DXPU_E_RECORD);
    must(rc != DXPU_E_NONE || in.len == 0);
    if (rc != DXPU_OK)
        return;
    const uint8_t *p = in.ptr + 4;
    uint32_t bytes = dxpu_get_be16(in.ptr + 2);
    must(in.len >= 4 + bytes && c.rest.ptr == p + bytes && c.rest.len == in.len - 4 - bytes);
    if (in.ptr[0] == DXPU_RECORD_PAYLOAD) {
        must(bytes > 0 && c.due == due - bytes && (!known || bytes <= due));
        return;
    }
    must(!known || due == 0);
    if (in.ptr[0] == DXPU_RECORD_EVENT) {
        must(c.due == 0 && c.events <= 1);
        return;
    }
    uint32_t header_dw = p[1] & 7, prefix_dw = p[1] >> 3 & 7;
    must(in.ptr[0] == DXPU_RECORD_TLP && p[1] >> 6 < DXPU_CLASSES && prefix_dw <= 4);
    must((header_dw == 3 || header_dw == 4) && bytes == 8 + 4 * (prefix_dw + header_dw));
    must(c.due == dxpu_get_be16(p + 2) && c.due <= DXPUI_TLP_DATA_MAX);
    must(c.due >= (p[4 + 4 * prefix_dw + 2] & 0x80 ? 4u : 0u)); /* the digest */
}

/* PROOF detect_loss
   claim    dxpui_detect_loss() takes a transmission for lost only if it is one of the path's, not
            acknowledged and not lost before, and has been overtaken: by three acknowledged ones,
            or by one and is 9/8 of a round trip old (D-14, D-18); then it is out of flight and
            counted as lost, once.  What it leaves undecided has its time, which is to come.  It
            touches nothing else, judges each once, and ends
   bounds   2 frames, a log of 4 transmissions, one path; any numbers, times below 2^16
   stubs    none
   open     larger windows; what the congestion window becomes
   unwind   6
   control  - if (dxpui_seq_cmp(p->judged + DXPUI_REORDER, p->index_acked) > 0 &&
            + if (dxpui_seq_cmp(p->judged + DXPUI_REORDER, p->index_acked) > 1 && */
void proof_detect_loss(void)
{
    static dxpu_channel ch;
    static dxpui_sent frames[2];
    static dxpui_path paths[1];
    static uint16_t log[4];
    dxpui_path *p = &paths[0];
    uint64_t now_ns = nondet_u64();
    __CPROVER_havoc_object(frames);
    __CPROVER_havoc_object(paths);
    __CPROVER_havoc_object(log);
    ch.cfg.window_frames = 2;
    ch.cfg.paths = 1;
    ch.cfg.lossless = true;
    ch.cfg.ack_delay_ns = nondet_u64();
    ch.paths.path = paths;
    ch.flight.frame = frames;
    ch.flight.mask = 1;
    ch.flight.overhead_bytes = 80;
    ch.flight.una = ch.flight.lost_from = nondet_u32();
    ch.flight.next = ch.flight.una + (nondet_u8() & 1u);
    p->log = log;
    p->srtt_ns &= 0x7fff;
    p->sample_ns &= 0x7fff;
    p->rto_ns &= 0xffff;
    ch.cfg.ack_delay_ns &= 0xffff;
    now_ns &= 0xffff;
    given(p->index - p->index_acked - 1 < 0x3fffffffu && p->index - p->judged <= 4); /* D-7 */
    given(dxpui_seq_cmp(p->judged, p->index) <= 0);
    uint32_t in_flight = 0;
    for (unsigned i = 0; i < 2; i++) {
        dxpui_sent *s = &frames[i];
        given(s->state == 0 || s->state == DXPUI_ACKED || s->state == DXPUI_LOST);
        s->path = 0;
        s->sent_ns &= 0xffff;
        in_flight += s->state == 0 ? s->body_bytes + 80u : 0;
    }
    given(p->in_flight == in_flight);
    dxpui_sent before[2];
    memcpy(before, frames, sizeof before);
    uint32_t judged = p->judged, acked = p->index_acked, lost = 0;
    uint64_t rtt = p->srtt_ns > p->sample_ns ? p->srtt_ns : p->sample_ns;
    uint64_t wait = !rtt ? p->rto_ns : dxpui_max64(rtt + rtt / 8, ch.cfg.ack_delay_ns);
    dxpui_detect_loss(&ch, 0, now_ns);
    must(dxpui_seq_cmp(p->judged, judged) >= 0 && p->index_acked == acked);
    must(p->loss_ns == DXPU_NEVER || p->loss_ns > now_ns);
    for (unsigned i = 0; i < 2; i++) {
        const dxpui_sent *s = &frames[i], *was = &before[i];
        bool now_lost = s->state != was->state;
        must(s->index == was->index && s->sent_ns == was->sent_ns && s->tries == was->tries);
        if (!now_lost)
            continue;
        must(was->state == 0 && s->state == DXPUI_LOST);
        must(dxpui_seq_cmp(was->index, judged) >= 0 && dxpui_seq_cmp(was->index, acked) < 0);
        must(acked - was->index >= DXPUI_REORDER || now_ns >= dxpui_later(was->sent_ns, wait));
        in_flight -= was->body_bytes + 80u;
        lost++;
    }
    must(p->in_flight == in_flight && ch.flight.lost == lost && ch.count.tx_fast == lost);
}
