/* Proofs of section 11: credits and tags. */
#include "proof.h"

/* Credit units that a limit still leaves: none when it is half the circle ahead or more (F-4). */
static uint32_t room(uint32_t limit, uint32_t used)
{
    return limit - used <= 0x7fffffffu ? limit - used : 0;
}

/* PROOF credits
   claim    credits are conserved: what fits is exactly what the limits leave, is used once, and
            leaves a limit's room smaller by just that, so that what is used never passes the
            limit; a limit moves to what is offered when that is ahead, and never otherwise; a
            unit is 16 bytes, rounded up
   bounds   none: any limits, also those that W-26 and F-4 forbid; half the circle ahead or more
            leaves no room
   stubs    none
   open     nothing
   unwind   26
   control  - c->data[cls] += data_units;
            + c->data[cls] += data_units - 1; */
void proof_credits(void)
{
    dxpu_credits limit, used, before, offer;
    unsigned cls = nondet_u32(), i = nondet_u32();
    uint32_t units = nondet_u32(), bytes = nondet_u32();
    given(cls < DXPU_CLASSES && i < DXPU_CLASSES);
    before = used;
    uint32_t headers = room(limit.header[cls], used.header[cls]);
    uint32_t data = room(limit.data[cls], used.data[cls]);
    bool fits = dxpu_credit_fits(&limit, &used, cls, units);
    must(fits == (headers >= 1 && data >= units));
    if (fits) {
        dxpu_credit_add(&used, cls, units);
        must(room(limit.header[cls], used.header[cls]) == headers - 1);
        must(room(limit.data[cls], used.data[cls]) == data - units);
        must(used.header[cls] - before.header[cls] == 1);
        must(used.data[cls] - before.data[cls] == units);
        must(i == cls || (used.header[i] == before.header[i] && used.data[i] == before.data[i]));
    }
    before = limit;
    dxpui_credits_raise(&limit, &offer);
    uint32_t header_ahead = room(offer.header[i], before.header[i]);
    uint32_t data_ahead = room(offer.data[i], before.data[i]);
    must(limit.header[i] - before.header[i] == header_ahead);
    must(limit.data[i] - before.data[i] == data_ahead);
    must(dxpu_credit_units(bytes) == ((uint64_t)bytes + 15) / 16);
}

/* PROOF tag_reserve
   claim    what is reserved for a read covers its completions, however they are split: each
            part that dxpu_tags_complete() takes costs no more header and data units than the
            reserve shrinks by (F-24, F-25)
   bounds   any read in flight, any completion without prefixes
   stubs    none
   open     nothing
   unwind   40
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

enum { TAGS = 2 };

/* Lists end, hold entries of their state, and nothing else is left out; chains end at the entry. */
static bool tags_sound(const dxpu_tags *t)
{
    unsigned listed = 0, allocated = 0;
    for (unsigned i = 0; i < TAGS; i++) {
        const dxpu_tag_entry *e = &t->entries[i];
        if (e->prev > TAGS || e->next > TAGS || e->hash_next > TAGS || e->hash_head > TAGS ||
            e->state > DXPUI_TAG_RESTING || e->hash_next == i + 1)
            return false;
        allocated += e->state == DXPUI_TAG_ALLOCATED;
    }
    if (t->entries[0].hash_next && t->entries[1].hash_next)
        return false;
    for (unsigned i = 0; i < TAGS; i++) {
        const dxpu_tag_entry *e = &t->entries[i];
        if (e->state != DXPUI_TAG_FREE && dxpui_tag_find(t, e->requester, e->tag) != i + 1)
            return false;
    }
    for (unsigned state = 0; state < 4; state++) {
        uint16_t at = t->head[state], before = 0;
        for (unsigned n = 0; at && n <= TAGS; n++) {
            if (at > TAGS || t->entries[at - 1].state != state || t->entries[at - 1].prev != before)
                return false;
            listed++;
            before = at;
            at = t->entries[at - 1].next;
        }
        if (state == DXPUI_TAG_FREE && t->tail[state] != before)
            return false;
    }
    return listed + allocated == TAGS;
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

/* PROOF tag_alloc
   claim    dxpu_tags_alloc() never gives out a tag that is live (in flight, resting, or given
            out before), one of its own range, and ends
   bounds   any sound table of 2 entries: each in the list of its state, and found by its tag; the
            first tag 0
   stubs    none
   open     the first tag 256 of DXPU_TAGS_768; that it gives a tag whenever it can
            (unit_flow.c); larger tables; that every call leaves a sound table: proofs tags_*
   unwind   6
   control  - if (!dxpui_tag_find(t, t->requester, tag)) {
            + if (true) { */
void proof_tag_alloc(void)
{
    dxpu_tag_entry entries[TAGS], before[TAGS];
    dxpu_tags t, was;
    dxpui_zero(&t, sizeof t);
    t.entries = entries;
    t.capacity = TAGS;
    t.gives_tags = true;
    t.requester = nondet_u16();
    t.head[DXPUI_TAG_FREE] = nondet_u16();
    t.head[DXPUI_TAG_IN_FLIGHT] = nondet_u16();
    t.head[DXPUI_TAG_RESTING] = nondet_u16();
    t.tail[DXPUI_TAG_FREE] = nondet_u16();
    given(tags_sound(&t));
    was = t;
    was.entries = before;
    memcpy(before, entries, sizeof before);
    int tag = dxpu_tags_alloc(&t);
    must(tag == DXPU_E_NO_TAG || (tag >= 0 && tag < TAGS));
    must(tag < 0 || !live(&was, t.requester, (uint16_t)tag));
}
