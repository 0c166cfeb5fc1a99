/* Proofs of section 11: every call leaves the table of tags sound.  Each starts from any sound
   table and makes one call, so that no sequence of calls does otherwise. */
#include "proof.h"

enum { TAGS = 2, KEYS = 3 };

static dxpu_tag_entry entry[TAGS];
static dxpu_tags table;

/* No list is walked: with two entries each place in it is named. */
static bool list_sound(uint8_t state)
{
    bool a = entry[0].state == state, b = entry[1].state == state;
    uint16_t first = table.head[state], last = table.tail[state];
    if (!a && !b)
        return first == 0 && last == 0;
    if (a && b && !((first == 1 && last == 2) || (first == 2 && last == 1)))
        return false;
    if (!(a && b) && (first != (a ? 1 : 2) || last != first))
        return false;
    if (entry[first - 1].prev != 0 || entry[last - 1].next != 0)
        return false;
    return first == last || (entry[first - 1].next == last && entry[last - 1].prev == first);
}

/* The chain that begins at an entry has just the entries in use whose tags belong there. */
static bool chain_sound(unsigned chain)
{
    bool on[TAGS];
    uint16_t first = entry[chain].hash_head;
    for (unsigned i = 0; i < TAGS; i++)
        on[i] =
            entry[i].state != DXPUI_TAG_FREE &&
            dxpui_tag_chain(&table, entry[i].requester, entry[i].tag) == &entry[chain].hash_head;
    if (!on[0] && !on[1])
        return first == 0;
    if (!on[0] || !on[1])
        return first == (on[0] ? 1 : 2) && entry[first - 1].hash_next == 0;
    return (first == 1 || first == 2) && entry[first - 1].hash_next == 3 - first &&
           entry[2 - first].hash_next == 0;
}

/* Lists, chains and ledgers say what the states of the entries say; no tag is in use twice. */
static bool sound(void)
{
    uint32_t in_flight = 0, header = 0, data = 0, h, d;
    for (unsigned i = 0; i < TAGS; i++) {
        dxpui_tag_reserve(&entry[i], &h, &d);
        if (entry[i].state >= DXPUI_TAG_STATES)
            return false;
        if (entry[i].local && entry[i].state != DXPUI_TAG_IN_FLIGHT &&
            entry[i].state != DXPUI_TAG_EXPIRED)
            return false; /* a channel's queue names it by its place */
        if (entry[i].state != DXPUI_TAG_IN_FLIGHT)
            continue;
        in_flight++;
        header += h;
        data += d;
    }
    if (entry[0].state != DXPUI_TAG_FREE && entry[1].state != DXPUI_TAG_FREE &&
        entry[0].requester == entry[1].requester && entry[0].tag == entry[1].tag)
        return false;
    return table.in_flight == in_flight && table.reserve_header == header &&
           table.reserve_data == data && list_sound(DXPUI_TAG_FREE) &&
           list_sound(DXPUI_TAG_IN_FLIGHT) && list_sound(DXPUI_TAG_RESTING) &&
           list_sound(DXPUI_TAG_EXPIRED) && table.head[DXPUI_TAG_ALLOCATED] == 0 &&
           table.tail[DXPUI_TAG_ALLOCATED] == 0 && chain_sound(0) && chain_sound(1);
}

static uint16_t any_key(void)
{
    return nondet_u16() & KEYS;
}

static void any_table(void)
{
    __CPROVER_havoc_object(entry);
    table.entries = entry;
    table.capacity = TAGS;
    table.gives_tags = nondet_bool();
    table.requester = any_key();
    table.timeout_ns = nondet_u64();
    table.in_flight = nondet_u32();
    table.reserve_header = nondet_u32();
    table.reserve_data = nondet_u32();
    for (unsigned state = 0; state < DXPUI_TAG_STATES; state++) {
        table.head[state] = nondet_u16();
        table.tail[state] = nondet_u16();
    }
    for (unsigned i = 0; i < TAGS; i++) {
        entry[i].requester = any_key();
        entry[i].tag = any_key();
        given(entry[i].kind < DXPU_TLP_TYPE_COUNT);
    }
    given(sound());
}

static dxpu_tlp any_keyed_tlp(void)
{
    dxpu_tlp t = any_tlp();
    given(t.type < DXPU_TLP_TYPE_COUNT);
    t.requester = any_key();
    t.tag = any_key();
    return t;
}

/* PROOF tags_init
   claim    dxpu_tags_init() makes a sound table, or refuses
   bounds   2 entries, requesters 0 to 3, any mode and timeout
   stubs    none
   open     larger tables
   unwind   5
   control  - t->tail[DXPUI_TAG_FREE] = (uint16_t)capacity;
            + t->tail[DXPUI_TAG_FREE] = 1; */
void proof_tags_init(void)
{
    __CPROVER_havoc_object(entry);
    int rc = dxpu_tags_init(&table, entry, TAGS, any_key(), nondet_u32(), nondet_u64());
    must(rc == DXPU_OK || rc == DXPU_E_ARG);
    must(rc != DXPU_OK || sound());
}

/* PROOF tags_alloc
   claim    dxpu_tags_alloc() leaves a sound table sound (lists, chains and ledgers say what the
            entries' states say, no tag is in use twice), reads and writes only it, and ends
   bounds   2 entries; requesters and tags 0 to 3, as the hash multiplies them
   stubs    none
   open     larger tables; tags of 16 bits
   unwind   6
   control  - *chain = at;
            + (void)chain; */
void proof_tags_alloc(void)
{
    any_table();
    int tag = dxpu_tags_alloc(&table);
    must(sound());
    must(tag == DXPU_E_NO_TAG || (tag >= 0 && tag < TAGS && table.gives_tags));
}

/* PROOF tags_track
   claim    dxpu_tags_track() leaves a sound table sound, reads and writes only it, and ends; a
            request that it takes is one more in flight
   bounds   2 entries; requesters and tags 0 to 3; any request, its other fields of any value
   stubs    none
   open     larger tables; tags of 16 bits; the order by deadline
   unwind   6
   control  - t->in_flight++;
            + (void)t; */
void proof_tags_track(void)
{
    dxpu_tlp req = any_keyed_tlp();
    any_table();
    uint32_t before = table.in_flight;
    int rc = dxpu_tags_track(&table, &req, nondet_u64(), nondet_u64());
    must(sound());
    must(table.in_flight == before + (rc == DXPU_OK));
}

/* PROOF tags_complete
   claim    dxpu_tags_complete() leaves a sound table sound, reads and writes only it, and ends;
            a request that is done is one less in flight, and nothing else is
   bounds   2 entries; requesters and tags 0 to 3; any completion, its other fields of any value
   stubs    none
   open     larger tables; tags of 16 bits
   unwind   6
   control  - dxpui_tag_book(t, e, false);
            - e->left_bytes = (uint16_t)(e->left_bytes - part);
            + e->left_bytes = (uint16_t)(e->left_bytes - part); */
void proof_tags_complete(void)
{
    dxpu_tlp cpl = any_keyed_tlp();
    dxpu_request out;
    any_table();
    uint32_t before = table.in_flight;
    int rc = dxpu_tags_complete(&table, &cpl, &out);
    must(sound());
    must(table.in_flight == before - (rc == DXPU_OK && out.done));
}

/* PROOF tags_drop
   claim    dxpu_tags_drop() leaves a sound table sound, reads and writes only it, and ends
   bounds   2 entries; requesters and tags 0 to 3
   stubs    none
   open     larger tables; tags of 16 bits
   unwind   6
   control  - *link = e->hash_next;
            + (void)link; */
void proof_tags_drop(void)
{
    any_table();
    (void)dxpu_tags_drop(&table, any_key(), any_key());
    must(sound());
}

/* PROOF tags_reset
   claim    dxpu_tags_reset() leaves a sound table sound, reads and writes only it, and ends; it
            returns how many requests less are in flight, and none of the function is
   bounds   2 entries; requesters and tags 0 to 3
   stubs    none
   open     larger tables; tags of 16 bits
   unwind   6
   control  - if (e->state == DXPUI_TAG_IN_FLIGHT && e->requester == requester)
            + if (e->state == DXPUI_TAG_RESTING && e->requester == requester) */
void proof_tags_reset(void)
{
    uint16_t requester = any_key();
    any_table();
    uint32_t before = table.in_flight;
    uint32_t gone = dxpu_tags_reset(&table, requester);
    must(sound());
    must(table.in_flight == before - gone);
    for (unsigned i = 0; i < TAGS; i++)
        must(entry[i].state != DXPUI_TAG_IN_FLIGHT || entry[i].requester != requester);
}

/* PROOF tags_expire
   claim    dxpu_tags_expire() leaves a sound table sound, reads and writes only it, and ends; a
            request that it reports is one less in flight
   bounds   2 entries; requesters and tags 0 to 3; any time
   stubs    none
   open     larger tables; tags of 16 bits; the order by deadline
   unwind   6
   control  - dxpui_tag_move(t, at, e->local ? DXPUI_TAG_EXPIRED : DXPUI_TAG_RESTING);
            + e->state = e->local ? DXPUI_TAG_EXPIRED : DXPUI_TAG_RESTING; */
void proof_tags_expire(void)
{
    dxpu_request out;
    any_table();
    uint32_t before = table.in_flight;
    bool told = dxpu_tags_expire(&table, nondet_u64(), &out);
    must(sound());
    must(table.in_flight == before - told);
}

/* PROOF tags_pop
   claim    dxpu_tags_pop() leaves a sound table sound, reads and writes only it, and ends; when
            it returns false nothing is in flight and nothing rests
   bounds   2 entries; requesters and tags 0 to 3
   stubs    none
   open     larger tables; tags of 16 bits
   unwind   6
   control  - dxpui_tag_tell(dxpui_tag_at(t, at), true, out);
            - dxpui_tag_land(t, at);
            + dxpui_tag_tell(dxpui_tag_at(t, at), true, out); */
void proof_tags_pop(void)
{
    dxpu_request out;
    any_table();
    bool told = dxpu_tags_pop(&table, &out);
    must(sound());
    must(told || (table.in_flight == 0 && table.head[DXPUI_TAG_RESTING] == 0 &&
                  table.head[DXPUI_TAG_EXPIRED] == 0));
}

/* PROOF tags_local
   claim    what a channel reports to the table of a request (it would leave its queue, leaves, has
            arrived) leaves a sound table sound, reads and writes only it, and ends; nothing else is
            in flight then, and only a request that is may leave
   bounds   2 entries, of which it names one; requesters and tags 0 to 3; any order and time
   stubs    none
   open     larger tables; tags of 16 bits
   unwind   6
   control  - if (here && dxpui_tag_at(t, at)->state == DXPUI_TAG_IN_FLIGHT)
            + if (here && dxpui_tag_at(t, at)->state == DXPUI_TAG_EXPIRED) */
void proof_tags_local(void)
{
    uint16_t at = nondet_bool() ? 1 : 2;
    uint32_t order = nondet_u32();
    any_table();
    uint32_t before = table.in_flight;
    if (nondet_bool()) {
        bool may = dxpui_tag_may_leave(&table, at, order);
        must(!may || before > 0);
    } else if (nondet_bool() && dxpui_tag_here(&table, at, order)) {
        dxpui_tag_at(&table, at)->local = DXPUI_TAG_SENT;
    } else {
        dxpui_tag_arrived(&table, at, order, nondet_u64());
    }
    must(sound());
    must(table.in_flight == before);
}
