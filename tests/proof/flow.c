/* Proofs of section 11: credits and tags. */
#include "proof.h"

/* PROOF credits
   claim    credits are conserved: what fits is used once and leaves a limit's room smaller by just
            that, and what is used never passes the limit; a limit only rises, whatever is offered;
            a unit is 16 bytes, rounded up
   bounds   limits at most 2^30 - 1 beyond what is used, as W-26 has them
   stubs    none
   open     nothing
   unwind   4
   when     check
   control  - c->data[cls] += data_units;
            + c->data[cls] += data_units - 1; */
void proof_credits(void)
{
    dxpu_credits limit, used, before, offer;
    unsigned cls = nondet_u32(), i = nondet_u32();
    uint32_t units = nondet_u32(), bytes = nondet_u32();
    given(cls < DXPU_CLASSES && i < DXPU_CLASSES && units <= 256);
    given(limit.header[cls] - used.header[cls] <= 0x3fffffff);
    given(limit.data[cls] - used.data[cls] <= 0x3fffffff);
    before = used;
    if (dxpu_credit_fits(&limit, &used, cls, units)) {
        dxpu_credit_add(&used, cls, units);
        must(limit.header[cls] - used.header[cls] == limit.header[cls] - before.header[cls] - 1);
        must(limit.data[cls] - used.data[cls] == limit.data[cls] - before.data[cls] - units);
        must(limit.header[cls] - used.header[cls] <= 0x3fffffff);
        must(limit.data[cls] - used.data[cls] <= 0x3fffffff);
        must(i == cls || (used.header[i] == before.header[i] && used.data[i] == before.data[i]));
    } else {
        must(limit.header[cls] == used.header[cls] || limit.data[cls] - used.data[cls] < units);
    }
    before = limit;
    bool rose = dxpu_credit_raise(&limit, &offer);
    must(limit.header[i] - before.header[i] <= 0x80000000u);
    must(limit.data[i] - before.data[i] <= 0x80000000u);
    must(rose || (limit.header[i] == before.header[i] && limit.data[i] == before.data[i]));
    must(limit.header[i] == before.header[i] || limit.header[i] == offer.header[i]);
    must(dxpu_credit_units(bytes) == ((uint64_t)bytes + 15) / 16);
}

/* PROOF tag_reserve
   claim    what is reserved for a read covers its completions, however they are split: each part
            that dxpu_tags_complete() takes costs no more header and data units than the reserve
            shrinks by (F-24, F-25)
   bounds   none: any read in flight, any completion
   stubs    none
   open     nothing
   unwind   40
   when     long
   control  - uint32_t pieces = wanted / 64 + (wanted % 64 + (lower_addr & 63u) + 63) / 64;
            + uint32_t pieces = wanted / 64 + (wanted % 64 + 63) / 64; */
void proof_tag_reserve(void)
{
    dxpu_tag_entry e;
    dxpu_tlp cpl = any_tlp();
    uint32_t header, data, header_after = 0, data_after = 0;
    given(e.kind == DXPU_TLP_MRD || e.kind == DXPU_TLP_MRDLK);
    given(e.left_bytes >= 1 && e.left_bytes <= 4096 && e.lower_addr <= 127);
    given(cpl.type >= DXPU_TLP_CPL && cpl.type <= DXPU_TLP_CPLDLK && cpl.prefix_count == 0);
    given(dxpu_tlp_check(&cpl) == DXPU_OK);
    dxpui_tag_reserve(&e, &header, &data);
    int part = dxpui_tag_part(&e, &cpl);
    must(part <= e.left_bytes);
    if (part <= 0)
        return;
    e.left_bytes = (uint16_t)(e.left_bytes - part);
    e.lower_addr = (uint8_t)((e.lower_addr + part) & 0x7f);
    if (e.left_bytes)
        dxpui_tag_reserve(&e, &header_after, &data_after);
    must(header >= header_after + 1);
    must(data >= data_after + dxpu_credit_units(cpl.length_dw * 4u));
}

enum { TAGS = 2, STEPS = 3 };

/* Entries by state, walked by their lists, which must agree with the entries themselves. */
static bool tags_sound(const dxpu_tags *t)
{
    uint32_t header = 0, data = 0, flying = 0, listed = 0, allocated = 0;
    for (unsigned i = 0; i < TAGS; i++) {
        uint32_t h, d;
        const dxpu_tag_entry *e = &t->entries[i];
        allocated += e->state == DXPUI_TAG_ALLOCATED;
        if (e->state != DXPUI_TAG_FREE && dxpui_tag_find(t, e->requester, e->tag) != i + 1)
            return false;
        if (e->state != DXPUI_TAG_IN_FLIGHT)
            continue;
        dxpui_tag_reserve(e, &h, &d);
        header += h;
        data += d;
        flying++;
    }
    for (unsigned state = 0; state < 4; state++) {
        uint16_t at = t->head[state];
        for (unsigned n = 0; at && n <= TAGS; n++) {
            if (t->entries[at - 1].state != state)
                return false;
            listed++;
            at = t->entries[at - 1].next;
        }
    }
    return listed + allocated == TAGS && flying == t->in_flight && header == t->reserve_header &&
           data == t->reserve_data;
}

/* Is there a request of this requester and tag that is in flight, rests, or has been given out? */
static bool live(const dxpu_tags *t, uint16_t requester, uint16_t tag)
{
    for (unsigned i = 0; i < TAGS; i++) {
        const dxpu_tag_entry *e = &t->entries[i];
        if (e->state != DXPUI_TAG_FREE && e->requester == requester && e->tag == tag)
            return true;
    }
    return false;
}

static void step(dxpu_tags *t)
{
    dxpu_tlp tlp = any_tlp();
    dxpu_request out;
    uint64_t now_ns = nondet_u64();
    unsigned what = nondet_u32();
    given(tlp.type < DXPU_TLP_TYPE_COUNT && tlp.length_dw <= 1024 && tlp.tag <= 3);
    given(tlp.requester <= 1);
    given(tlp.first_be <= 15 && tlp.last_be <= 15);
    if (what == 0) {
        dxpu_tags before = *t;
        dxpu_tag_entry copy[TAGS];
        memcpy(copy, t->entries, sizeof copy);
        before.entries = copy;
        int tag = dxpu_tags_alloc(t);
        must(tag == DXPU_E_NO_TAG || (tag >= 0 && tag < TAGS));
        must(tag < 0 || !live(&before, t->requester, (uint16_t)tag));
        must(tag < 0 || live(t, t->requester, (uint16_t)tag));
    } else if (what == 1) {
        (void)dxpu_tags_track(t, &tlp, now_ns, nondet_u64());
    } else if (what == 2) {
        (void)dxpu_tags_complete(t, &tlp, &out);
    } else if (what == 3) {
        (void)dxpu_tags_drop(t, tlp.requester, tlp.tag);
    } else if (what == 4) {
        (void)dxpu_tags_expire(t, now_ns, &out);
    } else {
        (void)dxpu_tags_pop(t, &out);
    }
}

/* PROOF tags
   claim    after any calls with any requests and completions: alloc() never gives out a tag that is
            live (in flight, resting, or given out before); every entry is in the list of its state
            or given out, and found by its requester and tag; what is in flight and what is reserved
            is the sum over the entries; every loop ends
   bounds   2 entries; any 3 calls in a row of alloc, track, complete, drop, expire, pop, at any
            times, from an empty table; tags 0 to 3 of 2 requesters
   stubs    none
   open     larger tables, longer runs; dxpu_tags_reset(), which calls drop() for each
   unwind   6
   when     long
   control  - if (!dxpui_tag_find(t, t->requester, tag)) {
            + if (true) { */
void proof_tags(void)
{
    dxpu_tag_entry entries[TAGS];
    dxpu_tags t;
    uint64_t timeout_ns = nondet_u64();
    uint16_t requester = nondet_u16();
    given(timeout_ns > 0 && requester <= 1);
    must(dxpu_tags_init(&t, entries, TAGS, requester, 32, timeout_ns) == DXPU_OK);
    for (unsigned i = 0; i < STEPS; i++) {
        step(&t);
        must(tags_sound(&t));
    }
}
