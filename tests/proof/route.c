/* Proofs of section 10: routing tables. */
#include "proof.h"

enum { WINDOWS = 4 };

/* PROOF window_search
   claim    dxpu_host_by_address() finds the row whose window holds the address, and none when
            no window does; the search ends
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

/* PROOF fencing
   claim    the epoch seen by a slot never falls, a lease in force has just that epoch, and two
            hosts never get a slot under the same epoch
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
