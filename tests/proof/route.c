/* Proofs of section 10: routing tables. */
#include <stddef.h>
#include <string.h>

/* The stub for memmove(), which CBMC takes for millions of bits where its length varies. */
static void proof_move(void *to, const void *from, size_t bytes);
#define memmove(to, from, bytes) proof_move(to, from, bytes)
#include "proof.h"

enum { WINDOWS = 4, ROWS = 2, MB = 1 << 20 };

static dxpu_host_entry rows[ROWS];
static dxpu_host_window windows[2 * ROWS];
static dxpu_host_table table;

static void proof_move(void *to, const void *from, size_t bytes)
{
    const char *first = (const char *)to, *end = first + bytes;
    must(bytes == 0 || (__CPROVER_w_ok(to, bytes) && __CPROVER_r_ok(from, bytes)));
    must(__CPROVER_same_object(to, windows) && (const dxpu_host_window *)from + 1 == to);
    for (unsigned i = 2 * ROWS - 1; i > 0; i--) {
        if ((const char *)&windows[i] >= first && (const char *)&windows[i] < end)
            windows[i] = windows[i - 1];
    }
}

/* PROOF window_search
   claim    dxpu_host_by_address() finds the row whose window holds the address, and none when
            no window does; the search ends
   bounds   any table of at most 4 windows, sorted and apart
   stubs    none
   open     larger tables
   unwind   6
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

static bool some(dxpu_range r)
{
    return r.base <= r.limit;
}

static bool meet(dxpu_range a, dxpu_range b)
{
    return some(a) && some(b) && a.base <= b.limit && b.base <= a.limit;
}

static bool same(dxpu_range a, dxpu_range b)
{
    return a.base == b.base && a.limit == b.limit;
}

static bool within(dxpu_range r, uint64_t address)
{
    return r.base <= address && address <= r.limit;
}

/* The list has just the windows in force of the rows, sorted and apart; a row's own two that
   overlap are one. */
static bool list_sound(void)
{
    dxpu_range of[ROWS][2];
    unsigned count = 0;
    for (unsigned i = 0; i < ROWS; i++) {
        dxpu_range a = rows[i].memory, b = rows[i].prefetchable;
        if (meet(a, b)) {
            a.base = a.base < b.base ? a.base : b.base;
            a.limit = a.limit > b.limit ? a.limit : b.limit;
            b = dxpui_range_none;
        }
        of[i][0] = a;
        of[i][1] = b;
        count += (some(a) ? 1u : 0u) + (some(b) ? 1u : 0u);
    }
    bool good = table.window_count == count;
    for (unsigned k = 0; k < 2 * ROWS; k++) {
        const dxpu_host_window *w = &windows[k];
        bool held = false;
        for (unsigned i = 0; i < ROWS; i++)
            held =
                held || (w->entry == i && (same(w->range, of[i][0]) || same(w->range, of[i][1])));
        good = good && (k >= count || (held && some(w->range)));
        good = good && (k >= count || k == 0 || windows[k - 1].range.limit < w->range.base);
    }
    return good;
}

static bool blocked_sound(void)
{
    return table.blocked == (rows[0].flags ? 1u : 0u) + (rows[1].flags ? 1u : 0u);
}

/* Whole MBs of the first eight, or empty. */
static dxpu_range any_window(void)
{
    dxpu_range r = { (nondet_u8() & 7u) * (uint64_t)MB,
                     (nondet_u8() & 7u) * (uint64_t)MB + MB - 1 };
    return r;
}

static void any_windows(void)
{
    __CPROVER_havoc_object(rows);
    table.entries = rows;
    table.windows = windows;
    table.capacity = ROWS;
    table.blocked = nondet_u32();
    table.window_count = nondet_u32();
    for (unsigned i = 0; i < ROWS; i++) {
        rows[i].bus = rows[i].bus_last = 0;
        rows[i].memory = any_window();
        rows[i].prefetchable = any_window();
        windows[2 * i].range = any_window();
        windows[2 * i].entry = nondet_u32();
        windows[2 * i + 1].range = any_window();
        windows[2 * i + 1].entry = nondet_u32();
        rows[i].reg[DXPUI_REG_BUS] = 0;
        rows[i].reg[DXPUI_REG_MEM] &= 0x00700070;
        rows[i].reg[DXPUI_REG_PF] &= 0x00700070;
        rows[i].reg[DXPUI_REG_PF_BASE] = rows[i].reg[DXPUI_REG_PF_LIMIT] = 0;
    }
    given(list_sound() && blocked_sound());
}

/* PROOF host_place
   claim    whatever a row's registers have become, dxpui_host_place() leaves the list of windows
            sound (just those in force, sorted, apart); of the row those are in force that its
            registers describe and that meet none of another row, the others blocked;
            the other row keeps its own; dxpu_host_by_address() then finds just the row in force
   bounds   2 rows with any windows of whole MBs below 8 MB, no buses
   stubs    memmove() of windows by one place: window by window, of memory that is there
   open     more rows; addresses beyond 8 MB; that what was blocked is tried again
   unwind   6
   flags    --unwindset dxpui_host_lift.1:2,dxpui_host_place_bus.0:2,dxpui_host_place_bus.1:2
   control  - if (r.base <= r.limit && dxpui_host_holder(t, r) >= 0)
            + if (r.base > r.limit) */
void proof_host_place(void)
{
    uint64_t address = nondet_u64();
    unsigned i = nondet_bool() ? 1 : 0, other = 1 - i;
    any_windows();
    dxpu_host_entry was = rows[other], *e = &rows[i];
    bool on = (e->reg[DXPUI_REG_COMMAND] & 2) != 0, blocked = false;
    dxpui_host_place(&table, i);
    must(list_sound() && blocked_sound());
    for (unsigned pf = 0; pf < 2; pf++) {
        uint64_t base = (uint64_t)(e->reg[DXPUI_REG_MEM + pf] & 0xfff0u) << 16;
        dxpu_range want = { base, (e->reg[DXPUI_REG_MEM + pf] & 0xfff00000u) | 0xfffffu };
        dxpu_range got = pf ? e->prefetchable : e->memory;
        bool meets = meet(want, was.memory) || meet(want, was.prefetchable);
        must(on && some(want) && !meets ? same(got, want) : !some(got));
        blocked = blocked || (on && some(want) && meets);
    }
    must((e->flags != 0) == blocked);
    must(same(rows[other].memory, was.memory) && rows[other].flags == was.flags);
    must(same(rows[other].prefetchable, was.prefetchable));
    int found = dxpu_host_by_address(&table, address);
    bool mine = within(e->memory, address) || within(e->prefetchable, address);
    bool others = within(was.memory, address) || within(was.prefetchable, address);
    must(found == (mine ? (int)i : others ? (int)other : DXPU_E_NONE));
}

/* PROOF host_learn
   claim    dxpu_host_learn() changes of a row's registers just the bits that R-4 keeps, within
            the bytes that the byte enables name; another register, no byte or no such row changes
            nothing; then dxpu_host_by_bdf() finds the row just for the buses of its span,
            and nothing is blocked
   bounds   a table of one row, without windows, bus numbers 0 to 3
   stubs    none
   open     more rows: proof host_place; other buses
   unwind   8
   control  - mask &= dxpui_host_masks[r];
            + mask &= 0xffffffffu; */
void proof_host_learn(void)
{
    uint32_t index = nondet_u32(), value = nondet_u32(), mask = 0, kept = 0;
    uint16_t at = nondet_u16(), bdf = nondet_u16();
    uint8_t be = nondet_u8();
    unsigned k = nondet_u8();
    given(k < DXPUI_REGS);
    __CPROVER_havoc_object(rows);
    dxpu_host_entry *e = &rows[0];
    e->used = nondet_bool();
    e->flags = 0;
    e->reg[DXPUI_REG_COMMAND] = 0;
    e->reg[DXPUI_REG_BUS] &= 0x000303ff;
    unsigned first = e->reg[1] >> 8 & 0xff, last = e->reg[1] >> 16 & 0xff, bus = bdf >> 8;
    bool on = e->used && first && first <= last;
    e->bus = (uint8_t)(on ? first : 0);
    e->bus_last = (uint8_t)(on ? last : 0);
    for (unsigned b = 1; b <= 3; b++)
        table.by_bus[b] = on && first <= b && b <= last;
    table.entries = rows;
    table.windows = windows;
    table.capacity = 1;
    value &= at == 0x18 ? 0xff0303ff : at == 0x04 ? 0xfffffffd : 0xffffffff;
    for (unsigned byte = 0; byte < 4; byte++)
        mask |= be >> byte & 1 ? 0xffu << 8 * byte : 0;
    kept = k == 0 ? 0xffff : k == 1 ? 0xffffff : k < 4 ? 0xfff0fff0 : 0xffffffff;
    uint32_t was = e->reg[k];
    bool learns = e->used && index == 0 && at == (k == 0 ? 0x04 : k == 1 ? 0x18 : 0x18 + 4 * k);
    int rc = dxpu_host_learn(&table, index, at, be, value);
    must(rc == (e->used && index == 0 ? DXPU_OK : DXPU_E_NONE));
    must(e->reg[k] == (learns ? (was & ~(mask & kept)) | (value & mask & kept) : was));
    must(table.blocked == 0 && table.window_count == 0);
    first = e->reg[1] >> 8 & 0xff;
    last = e->reg[1] >> 16 & 0xff;
    on = e->used && first && first <= bus && bus <= last;
    must(dxpu_host_by_bdf(&table, bdf) == (on ? 0 : DXPU_E_NONE));
}
