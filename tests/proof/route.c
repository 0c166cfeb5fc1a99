/* Proofs of section 10: routing tables. */
#include "proof.h"

enum { ROWS = 2, WINDOWS = 2 * ROWS, LAST_BUS = 3 };

/* PROOF window_search
   claim    dxpu_host_by_address() finds the row whose window holds the address, and none when no
            window does; the search ends
   bounds   any table of at most 4 windows, sorted and apart
   stubs    none
   open     larger tables
   unwind   6
   when     check
   control  - if (at == t->window_count || t->windows[at].range.base > r.limit)
            + if (at == t->window_count || t->windows[at].range.base >= r.limit) */
void proof_window_search(void)
{
    dxpu_host_window w[WINDOWS];
    static dxpu_host_table t;
    uint64_t address = nondet_u64();
    int expected = DXPU_E_NONE;
    t.windows = w;
    t.window_count = nondet_u32();
    given(t.window_count <= WINDOWS);
    for (unsigned i = 0; i < WINDOWS; i++) {
        given(w[i].range.base <= w[i].range.limit && w[i].entry < 65534);
        given(i == 0 || w[i - 1].range.limit < w[i].range.base);
        if (i < t.window_count && w[i].range.base <= address && address <= w[i].range.limit)
            expected = (int)w[i].entry;
    }
    must(dxpu_host_by_address(&t, address) == expected);
}

/* The list of windows is sorted and apart; the buses, windows and rows agree. */
static void table_sound(const dxpu_host_table *t)
{
    unsigned bus = nondet_u32(), i = nondet_u32(), blocked = 0;
    must(t->window_count <= WINDOWS);
    if (i < t->window_count) {
        must(t->windows[i].range.base <= t->windows[i].range.limit);
        must(t->windows[i].entry < ROWS && t->entries[t->windows[i].entry].used);
        must(i == 0 || t->windows[i - 1].range.limit < t->windows[i].range.base);
    }
    given(bus < 256);
    uint16_t row = t->by_bus[bus];
    must(row <= ROWS);
    if (row)
        must(t->entries[row - 1].used && t->entries[row - 1].bus <= bus &&
             bus <= t->entries[row - 1].bus_last);
    for (i = 0; i < ROWS; i++)
        blocked += t->entries[i].flags != 0;
    must(blocked == t->blocked);
}

/* PROOF host_learn
   claim    whatever a host writes to the registers of its ports, and whichever rows come and go: the
            windows in force are sorted and never overlap between rows, each belongs to a row, each
            bus leads to one row whose span holds it, and no index leaves its table; loops end
   bounds   2 rows; any 2 calls of learn with any register, byte enables and value, or remove,
            whose bus numbers are at most 3
   stubs    none
   open     larger tables, longer runs, larger bus numbers
   unwind   7
   when     long
   control  - if (r.base <= r.limit && dxpui_host_holder(t, r) >= 0)
            + if (r.base > r.limit && dxpui_host_holder(t, r) >= 0) */
void proof_host_learn(void)
{
    dxpu_host_entry rows[ROWS], e;
    dxpu_host_window windows[WINDOWS];
    dxpu_host_table t;
    must(dxpu_host_init(&t, rows, windows, ROWS) == DXPU_OK);
    dxpui_zero(&e, sizeof e);
    must(dxpu_host_add(&t, &e) == 0);
    must(dxpu_host_add(&t, &e) == 1);
    for (unsigned step = 0; step < 2; step++) {
        uint32_t row = nondet_u32(), value = nondet_u32();
        uint16_t reg = nondet_u16();
        given(reg != 0x18 || ((value >> 8 & 0xff) <= LAST_BUS && (value >> 16 & 0xff) <= LAST_BUS));
        if (nondet_bool())
            (void)dxpu_host_learn(&t, row, reg, nondet_u8(), value);
        else
            (void)dxpu_host_remove(&t, row);
        table_sound(&t);
    }
}

/* PROOF host_observe
   claim    a table that is shown any requests and completions remembers at most DXPU_HOST_PENDING
            writes, each to a row, and learns only from one whose completion came with status SC
   bounds   2 rows; any 3 TLPs; DXPU_HOST_PENDING 2; writes to the command register only
   stubs    none
   open     more TLPs; what is learnt: proof host_learn
   unwind   8
   flags    -DDXPU_HOST_PENDING=2
   when     long
   control  - if (t->pending_count == DXPU_HOST_PENDING) {
            + if (t->pending_count > DXPU_HOST_PENDING) { */
void proof_host_observe(void)
{
    dxpu_host_entry rows[ROWS], e;
    dxpu_host_window windows[WINDOWS];
    dxpu_host_table t;
    uint8_t payload[4];
    must(dxpu_host_init(&t, rows, windows, ROWS) == DXPU_OK);
    dxpui_zero(&e, sizeof e);
    e.port = nondet_u16();
    must(dxpu_host_add(&t, &e) == 0);
    for (unsigned step = 0; step < 3; step++) {
        dxpu_tlp tlp = any_tlp();
        uint64_t learnt = t.count_learnt;
        given(tlp.type < DXPU_TLP_TYPE_COUNT && tlp.payload.len <= 4);
        given(tlp.register_bytes == 0x04);
        tlp.payload.ptr = payload;
        dxpu_host_observe(&t, &tlp);
        must(t.pending_count <= DXPU_HOST_PENDING);
        must(t.count_learnt == learnt || (tlp.type == DXPU_TLP_CPL && tlp.status == DXPU_CPL_SC));
        for (unsigned i = 0; i < t.pending_count; i++)
            must(t.pending[i].entry < ROWS && t.entries[t.pending[i].entry].used);
    }
}

/* PROOF fencing
   claim    the epoch seen by a slot never falls, a lease in force has just that epoch, and two hosts
            never get a slot under the same epoch
   bounds   one slot in any sound state; any two calls of bind, with release between them or not
   stubs    none
   open     nothing: the state that the calls leave is again any sound one
   unwind   3
   when     check
   control  - if (epoch == 0 || epoch < e->epoch_seen || (epoch == e->epoch_seen && !same))
            + if (epoch == 0 || epoch < e->epoch_seen) */
void proof_fencing(void)
{
    dxpu_box_entry e;
    dxpu_box_table t = { &e, 1 };
    uint32_t node_a = nondet_u32(), node_b = nondet_u32();
    uint16_t slot_a = nondet_u16(), slot_b = nondet_u16();
    uint64_t first = nondet_u64(), second = nondet_u64(), seen = e.epoch_seen;
    given(!e.used || e.epoch == e.epoch_seen);
    int a = dxpu_box_bind(&t, 1, node_a, slot_a, nondet_u8(), first);
    must(a != DXPU_OK || (first >= seen && first > 0 && e.used && e.epoch == first));
    must(a == DXPU_OK || e.epoch_seen == seen);
    if (nondet_bool())
        (void)dxpu_box_release(&t, 1);
    int b = dxpu_box_bind(&t, 1, node_b, slot_b, nondet_u8(), second);
    must(e.epoch_seen >= seen && (!e.used || e.epoch == e.epoch_seen));
    must(a != DXPU_OK || b != DXPU_OK || second >= first);
    must(a != DXPU_OK || b != DXPU_OK || first != second || (node_a == node_b && slot_a == slot_b));
    must(dxpu_box_bind(&t, nondet_u16() | 2u, 0, 0, 0, UINT64_MAX) == DXPU_E_NONE);
}
