/* Proofs of sections 8 and 9: TLP codec, byte enables, completions. */
#include "proof.h"

/* PROOF tlp_decode
   claim    dxpu_tlp_decode() of any bytes reads only them, ends, and refuses with an error of
            the TLP band without writing a byte of *out, or the payload lies within the bytes
   bounds   at most 28 bytes: prefixes, header, and payload; DXPU_PREFIXES_MAX 8
   stubs    none
   open     longer TLPs (no loop runs over a payload)
   unwind   40
   control  - if (left < 4)
            - return DXPU_E_TLP_SHORT;
            - first = dxpui_tlp_first(h[0]);
            + first = dxpui_tlp_first(h[0]); */
void proof_tlp_decode(void)
{
    dxpu_bytes in = any_bytes_alone(28);
    dxpu_tlp t, before = t;
    int rc = dxpu_tlp_decode(in, &t);
    must(rc <= DXPU_OK && rc >= -47);
    if (rc != DXPU_OK) {
        must(same_bytes((const uint8_t *)&t, (const uint8_t *)&before, sizeof t));
        return;
    }
    must(t.payload.len <= in.len);
    must(t.payload.len == 0 || t.payload.ptr >= in.ptr);
    must(t.payload.len == 0 || t.payload.ptr + t.payload.len <= in.ptr + in.len);
}

/* PROOF tlp_reencode
   claim    encode(decode(b)) = b for every b that decode accepts
   bounds   at most 48 bytes
   stubs    none
   open     longer TLPs
   unwind   52
   control  - if (rc == DXPU_OK && strict && dxpui_reserved_set(&t, tlp.ptr + shape.prefix_dw * 4))
            + if (false) */
void proof_tlp_reencode(void)
{
    uint8_t bytes[48], out[48];
    dxpu_bytes in = dxpui_view(bytes, nondet_size());
    size_t len = 0;
    dxpu_tlp t;
    given(in.len <= sizeof bytes);
    if (dxpu_tlp_decode(in, &t) != DXPU_OK)
        return;
    must(dxpu_tlp_encode(&t, out, sizeof out, &len) == DXPU_OK);
    must(len == in.len);
    must(same_bytes(out, bytes, len));
}

/* PROOF tlp_receive
   claim    what dxpu_tlp_receive() accepts passes dxpu_tlp_check() and has its payload within the
            bytes; it accepts all that dxpu_tlp_decode() does, and refuses nothing for a reserved
            bit; a refusal leaves *out as it was
   bounds   at most 28 bytes
   stubs    none
   open     longer TLPs (no loop runs over a payload)
   unwind   40
   control  - t->ep = t->ep && dxpui_tlp_rows[t->type].data; */
void proof_tlp_receive(void)
{
    dxpu_bytes in = any_bytes_alone(28);
    dxpu_tlp t, before = t, strict;
    int rc = dxpu_tlp_receive(in, &t);
    must(rc == DXPU_OK || dxpu_tlp_decode(in, &strict) != DXPU_OK);
    must(rc != DXPU_E_TLP_RSVD && rc != DXPU_E_TLP_ADDR64);
    if (rc != DXPU_OK) {
        must(same_bytes((const uint8_t *)&t, (const uint8_t *)&before, sizeof t));
        return;
    }
    must(dxpu_tlp_check(&t) == DXPU_OK);
    must(t.payload.len <= in.len);
    must(t.payload.len == 0 || t.payload.ptr >= in.ptr);
    must(t.payload.len == 0 || t.payload.ptr + t.payload.len <= in.ptr + in.len);
}

/* Fields that a TLP of this type has; the others are not on the wire. */
static bool same_request(const dxpu_tlp *a, const dxpu_tlp *b, unsigned kind)
{
    bool st_for_tag = a->th && a->type == DXPU_TLP_MWR;
    if (a->requester != b->requester || (!st_for_tag && a->tag != b->tag))
        return false;
    if (kind == DXPUI_MSG)
        return a->message_code == b->message_code && a->message_routing == b->message_routing &&
               (a->message_routing == DXPU_MSG_BY_ID ? a->target == b->target
                                                     : a->message_dw[0] == b->message_dw[0]) &&
               a->message_dw[1] == b->message_dw[1];
    if (kind == DXPUI_CFG)
        return a->target == b->target && a->register_bytes == b->register_bytes &&
               a->first_be == b->first_be;
    return a->address == b->address && (!a->th || a->steering == b->steering) && a->ph == b->ph &&
           (kind == DXPUI_ATOMIC || (a->first_be == b->first_be && a->last_be == b->last_be));
}

static bool same_tlp(const dxpu_tlp *a, const dxpu_tlp *b)
{
    unsigned kind = dxpui_tlp_kind(a->type);
    if (a->type != b->type || a->header_dw != b->header_dw || a->tc != b->tc ||
        a->attr != b->attr || a->at != b->at || a->th != b->th || a->td != b->td ||
        a->ep != b->ep || a->length_dw != b->length_dw || a->prefix_count != b->prefix_count ||
        a->payload.len != b->payload.len || (a->td && a->digest != b->digest))
        return false;
    if (kind != DXPUI_CPL)
        return same_request(a, b, kind);
    return a->completer == b->completer && a->status == b->status && a->bcm == b->bcm &&
           a->byte_count == b->byte_count && a->requester == b->requester && a->tag == b->tag &&
           a->lower_addr == b->lower_addr;
}

/* PROOF tlp_redecode
   claim    receive(encode(x)) = x, in every field that x's type has, for every x that
            dxpu_tlp_check() passes and whose payload is as long as its type says; encode() refuses
            no such x
   bounds   payload at most 2 dwords, at most 2 prefixes
   stubs    none
   open     fields that the type does not have, which encode() does not look at; longer payloads
   unwind   40
   control  - out->lower_addr = (uint8_t)dxpui_field(&dw[2], 0, 7, t->lower_addr, put);
            + out->lower_addr = (uint8_t)dxpui_field(&dw[2], 0, 6, t->lower_addr, put); */
void proof_tlp_redecode(void)
{
    uint8_t payload[8], out[40];
    dxpu_tlp t = any_tlp(), again;
    size_t len = 0, i = nondet_size();
    bool good;
    given(t.payload.len <= 8 && t.prefix_count <= 2);
    given(t.header_dw == 3 || t.header_dw == 4);
    t.payload.ptr = payload;
    good = dxpu_tlp_check(&t) == DXPU_OK &&
           t.payload.len == (dxpui_tlp_rows[t.type].data ? t.length_dw * 4u : 0);
    must((dxpu_tlp_encode(&t, out, sizeof out, &len) == DXPU_OK) == good);
    if (!good)
        return;
    must(dxpu_tlp_receive(dxpui_view(out, len), &again) == DXPU_OK);
    must(same_tlp(&t, &again));
    must(i >= t.prefix_count || t.prefix[i] == again.prefix[i]);
    must(same_bytes(payload, again.payload.ptr, again.payload.len));
}

/* PROOF tlp_header
   claim    dxpu_tlp_decode_header(), dxpu_tlp_measure(), dxpu_tlp_ecrc() and
            dxpu_tlp_ecrc_check() of any bytes read only them and end; what is measured has its
            header within the bytes, and its parts add up
   bounds   at most 56 bytes
   stubs    CRC-32: any number, of bytes that are there
   open     longer TLPs
   unwind   40
   control  - if (!header_dw || left < header_dw * 4)
            + if (!header_dw) */
void proof_tlp_header(void)
{
    dxpu_bytes in = any_bytes_alone(56);
    dxpu_tlp_shape s;
    dxpu_tlp t;
    proof_crc = nondet_u32();
    if (dxpu_tlp_decode_header(in, &t) == DXPU_OK)
        must(t.payload.len == 0 || t.payload.ptr + t.payload.len <= in.ptr + in.len);
    if (dxpu_tlp_measure(in, &s) == DXPU_OK) {
        must(s.head_bytes <= in.len && s.local_dw <= s.prefix_dw);
        must(s.head_bytes == (s.prefix_dw + s.header_dw) * 4);
        must(s.total_bytes == s.head_bytes + s.payload_bytes + s.digest_bytes);
        must(s.total_bytes <= DXPU_PREFIXES_MAX * 4 + 16 + 4096 + 4);
    }
    (void)dxpu_tlp_ecrc(in);
    (void)dxpu_tlp_ecrc_check(in);
}

/* PROOF tlp_prefixes
   claim    the walk over prefixes ends, counts at most DXPU_PREFIXES_MAX, of which at most four
            end-end ones, and local ones stand first
   bounds   at most 56 bytes
   stubs    none
   open     nothing
   unwind   15
   control  - if (*all >= DXPU_PREFIXES_MAX || (!is_local && *all - *local >= 4))
            + if (*all >= DXPU_PREFIXES_MAX || (!is_local && *all - *local >= 5)) */
void proof_tlp_prefixes(void)
{
    dxpu_bytes in = any_bytes_alone(56);
    dxpu_tlp_shape s;
    size_t i = nondet_size();
    if (dxpu_tlp_measure(in, &s) != DXPU_OK)
        return;
    must(s.prefix_dw <= DXPU_PREFIXES_MAX && s.prefix_dw - s.local_dw <= 4);
    must(i >= s.prefix_dw || (in.ptr[4 * i] >> 4 == 8) == (i < s.local_dw));
}

/* PROOF byte_enables
   claim    dxpu_be_to_range(dxpu_be_from_range(r)) = r for every range within 4 KB, with byte
            enables that dxpu_tlp_check() passes; every other range is refused
   bounds   none: all addresses and lengths
   stubs    none
   open     nothing
   unwind   6
   control  - unsigned first = 0xfu << offset & 0xfu, last = end ? (1u << end) - 1 : 0xfu;
            + unsigned first = 0xfu << offset & 0xfu, last = end ? (1u << end) - 1 : 0x7u; */
void proof_byte_enables(void)
{
    uint64_t address = nondet_u64();
    uint32_t bytes = nondet_u32(), offset, span;
    dxpu_tlp t;
    bool inside = bytes <= 4096 && (address & 0xfff) + bytes <= 4096;
    int rc = dxpu_be_from_range(address, bytes, &t.first_be, &t.last_be, &t.length_dw);
    must((rc == DXPU_OK) == inside);
    if (rc != DXPU_OK)
        return;
    t.address = address & ~(uint64_t)3;
    dxpu_be_to_range(t.first_be, t.last_be, t.length_dw, &offset, &span);
    must(span == bytes && (bytes == 0 || offset == (address & 3)));
    must(t.length_dw >= 1 && t.length_dw <= 1024 && dxpui_be_ok(&t));
}

/* PROOF request_next
   claim    each piece of a transfer is not empty, is within what is left, does not cross 4 KB,
            and has at most max_bytes of whole dwords; dxpu_be_from_range() takes it
   bounds   none: all addresses, lengths, and limits 4, 8 .. 4096
   stubs    none
   open     nothing; that the pieces end follows, since each takes something away
   unwind   6
   control  - room = room < page ? room : page;
            + room = room < page ? page : room; */
void proof_request_next(void)
{
    uint64_t address = nondet_u64();
    uint32_t left = nondet_u32(), most = nondet_u32(), bytes;
    uint8_t first, last;
    uint16_t dw;
    given(left > 0 && most >= 4 && most <= 4096 && (most & (most - 1)) == 0);
    bytes = dxpu_request_next(address, left, most);
    must(bytes >= 1 && bytes <= left);
    must(dxpu_be_from_range(address, bytes, &first, &last, &dw) == DXPU_OK);
    must(dw * 4u <= most);
}

static bool split_fits(const dxpu_cpl_split *s)
{
    return (s->rcb_bytes == 64 || s->rcb_bytes == 128) && s->mps_bytes >= 128 &&
           s->mps_bytes <= 4096 && (s->mps_bytes & (s->mps_bytes - 1)) == 0 &&
           (s->left_bytes == 0 || (s->address & 0xfff) + s->left_bytes <= 4096);
}

/* PROOF completion_start
   claim    dxpu_cpl_split_start() takes every valid read with the RCBs and Max_Payload_Sizes that
            PCIe has, and nothing else; what is to be completed is then the bytes that
            dxpu_be_to_range() gives for the request, or one for a read of none
   bounds   none: any valid request, any RCB and size; requests without prefixes
   stubs    none
   open     translation requests, whose answer is not memory and may cross 4 KB
   unwind   40
   control  - s->left_bytes = span ? span : 1;
            + s->left_bytes = 1; */
void proof_completion_start(void)
{
    dxpu_cpl_split s;
    dxpu_tlp req = any_tlp();
    uint32_t rcb = nondet_u32(), mps = nondet_u32(), offset, span;
    bool sizes = (rcb == 64 || rcb == 128) && (mps == 128 || mps == 256 || mps == 512 ||
                                               mps == 1024 || mps == 2048 || mps == 4096);
    given(req.prefix_count == 0 && req.at != 1 && dxpu_tlp_check(&req) == DXPU_OK);
    bool read = req.type == DXPU_TLP_MRD || req.type == DXPU_TLP_MRDLK;
    int rc = dxpu_cpl_split_start(&s, &req, rcb, mps);
    must(rc == (read && sizes ? DXPU_OK : DXPU_E_ARG));
    if (rc != DXPU_OK)
        return;
    dxpu_be_to_range(req.first_be, req.last_be, req.length_dw, &offset, &span);
    must(s.address == req.address + offset && s.left_bytes == (span ? span : 1));
    must(s.zero_length == (span == 0) && s.rcb_bytes == rcb && s.mps_bytes == mps);
    must(split_fits(&s) && s.left_bytes >= 1);
}

/* PROOF completion_split
   claim    the completions of a read, by induction: each is one that dxpu_tlp_check() passes,
            at most Max_Payload_Size long, on from where the last one ended, holds the dwords up
            to where the next one begins, and takes something from what is left; all but the last
            end on the RCB; what is left is 0 after the last
   bounds   none: one step from any state that proof completion_start or a step leaves; a CplD
            whose other fields (TC, attributes, EP, completer), which are the caller's, are 0
   stubs    none
   open     translation requests, whose answer is not memory and may cross 4 KB
   unwind   40
   control  - end = (start + s->mps_bytes) & ~(uint64_t)(s->rcb_bytes - 1);
            + end = start + s->mps_bytes; */
void proof_completion_split(void)
{
    dxpu_cpl_split s, before;
    dxpu_tlp cpl;
    uint64_t at;
    dxpui_zero(&cpl, sizeof cpl);
    cpl.type = DXPU_TLP_CPLD;
    cpl.header_dw = 3;
    given(split_fits(&s));
    before = s;
    if (!dxpu_cpl_split_next(&s, &cpl, &at)) {
        must(before.left_bytes == 0);
        return;
    }
    must(dxpu_tlp_check(&cpl) == DXPU_OK);
    must(cpl.byte_count == before.left_bytes && cpl.length_dw * 4u <= s.mps_bytes);
    must(at == (before.address & ~(uint64_t)3) && cpl.lower_addr == (before.address & 0x7f));
    must(s.left_bytes < before.left_bytes);
    must(s.address - before.address == before.left_bytes - s.left_bytes);
    must(cpl.length_dw * 4u - (s.address - at) <= 3);
    must(s.left_bytes == 0 || s.address % s.rcb_bytes == 0);
    must(split_fits(&s));
}

/* PROOF completion
   claim    the completion that dxpu_tlp_completion() makes for any valid request with a status
            other than SC passes dxpu_tlp_check() and answers its requester and tag
   bounds   requests without prefixes
   stubs    none
   open     completions with data, whose payload is the caller's
   unwind   40
   control  - cpl->byte_count = (uint16_t)(span ? span : 1);
            + cpl->byte_count = (uint16_t)span; */
void proof_completion(void)
{
    dxpu_tlp req = any_tlp(), cpl;
    uint8_t status = nondet_u8();
    given(status == DXPU_CPL_UR || status == DXPU_CPL_CRS || status == DXPU_CPL_CA);
    given(req.prefix_count == 0 && dxpu_tlp_check(&req) == DXPU_OK);
    given(dxpu_tlp_class(&req) == DXPU_NONPOSTED);
    dxpu_tlp_completion(&req, nondet_u16(), status, &cpl);
    must(dxpu_tlp_check(&cpl) == DXPU_OK);
    must(cpl.requester == req.requester && cpl.tag == req.tag && cpl.status == status);
}

/* PROOF names
   claim    every function that turns a number from outside into a name or an action takes any
            number, reads only its tables, and ends
   bounds   none: all numbers; of TLPs those of a type, as decode() leaves them
   stubs    none
   open     dxpu_message_code(), whose input is a caller's string
   unwind   60
   control  - return i < sizeof(table) / sizeof *(table) ? (table)[i] : (other);
            + return i <= sizeof(table) / sizeof *(table) ? (table)[i] : (other); */
void proof_names(void)
{
    dxpu_tlp t;
    bool local;
    must(dxpu_error_text((int)nondet_u32()) != NULL && dxpu_error_name((int)nondet_u32()) != NULL);
    (void)dxpu_counter_name(nondet_u32());
    must(dxpu_reason_text(nondet_u32()) != NULL);
    must(dxpu_kind_name(nondet_u32()) != NULL);
    must(dxpu_event_name(nondet_u32()) != NULL);
    must(dxpu_state_name(nondet_u32()) != NULL);
    must(dxpu_tlp_type_name(nondet_u32()) != NULL);
    must(dxpu_class_name(nondet_u32()) != NULL);
    must(dxpu_routing_name(nondet_u32()) != NULL);
    must(dxpu_status_name(nondet_u32()) != NULL);
    (void)dxpu_tlp_prefix_name(nondet_u32(), &local);
    (void)dxpu_message_name(nondet_u32());
    given(t.type < DXPU_TLP_TYPE_COUNT);
    must(dxpu_tlp_routing(&t) <= DXPU_ROUTE_GATHERED);
    must(dxpu_tlp_class(&t) < DXPU_CLASSES);
    must(dxpu_message_action(&t, nondet_u32()) <= DXPU_MSG_REFUSE);
}
