/* vectors.c - see vectors.h
   SPDX-License-Identifier: MIT */
#include "vectors.h"

enum { READ_LIST, READ_CAPABILITY, READ_TABLE, READ_BAR, PLACE_LOW, PLACE_HIGH, ENABLE, DONE };
enum {
    CAPABILITIES = 0x34,
    BAR0 = 0x10,
    BARS = 6,
    MSIX = 0x11,
    MSIX_LAST = 256 - 12,
    HOPS_MAX = 48
};
#define MSIX_ENABLE 0x80000000u
#define PLACE_32    0x80000000u
#define READY_NS    60000000000u

void vectors_start(vectors *v, uint64_t bar0, uint64_t other)
{
    memset(v, 0, sizeof *v);
    v->bar0 = bar0;
    v->other = other;
}

static unsigned bar_of(const vectors *v)
{
    return v->table & 7;
}

bool vectors_request(const vectors *v, uint16_t target, dxpu_tlp *out, uint8_t payload[4])
{
    unsigned bar = BAR0 + bar_of(v) * 4;
    const struct {
        bool write;
        uint8_t be;
        unsigned offset;
        uint32_t value;
    } steps[] = { { false, 15, CAPABILITIES, 0 },
                  { false, 15, v->at, 0 },
                  { false, 15, v->at + 4u, 0 },
                  { false, 15, bar, 0 },
                  { true, 15, bar, v->wide ? (uint32_t)v->other : PLACE_32 },
                  { true, 15, bar + 4, (uint32_t)(v->other >> 32) },
                  { true, 12, v->at, MSIX_ENABLE } };
    if (v->step >= DONE)
        return false;
    memset(out, 0, sizeof *out);
    out->type = steps[v->step].write ? DXPU_TLP_CFGWR0 : DXPU_TLP_CFGRD0;
    out->header_dw = 3;
    out->length_dw = 1;
    out->target = target;
    out->first_be = steps[v->step].be;
    out->register_bytes = (uint16_t)steps[v->step].offset;
    dxpu_put_le32(payload, steps[v->step].value);
    if (steps[v->step].write) {
        out->payload.ptr = payload;
        out->payload.len = 4;
    }
    return true;
}

static void give_up(vectors *v)
{
    v->count = 0;
    v->step = DONE;
}

static void look_at(vectors *v, uint32_t at)
{
    v->at = (uint8_t)(at & 0xfc);
    v->step = READ_CAPABILITY;
    if (v->at < 0x40 || v->hops++ == HOPS_MAX)
        give_up(v);
}

static void take_table(vectors *v, uint32_t value)
{
    v->table = value;
    v->step = READ_BAR;
    if (bar_of(v) == 0) {
        v->address = v->bar0 + (value & ~(uint32_t)7);
        v->step = ENABLE;
    } else if (bar_of(v) == 1 || bar_of(v) >= BARS) {
        give_up(v); /* BAR 0 has 64 bits */
    }
}

static void take_bar(vectors *v, uint32_t value)
{
    v->wide = (value & 7) == 4;
    v->address = (v->wide ? v->other : PLACE_32) + (v->table & ~(uint32_t)7);
    v->step = PLACE_LOW;
    if ((value & 7) != 0 && !(v->wide && bar_of(v) < BARS - 1))
        give_up(v);
}

static void take(vectors *v, uint32_t value)
{
    switch (v->step) {
    case READ_LIST:
        look_at(v, value);
        break;
    case READ_CAPABILITY:
        v->count = (value >> 16 & 0x7ff) + 1;
        if ((value & 0xff) != MSIX)
            look_at(v, value >> 8);
        else if (v->at <= MSIX_LAST)
            v->step = READ_TABLE;
        else
            give_up(v);
        break;
    case READ_TABLE:
        take_table(v, value);
        break;
    default: /* READ_BAR */
        take_bar(v, value);
        break;
    }
}

static void fail(vectors *v, const char *why)
{
    v->why = why;
    give_up(v);
}

/* As in enumerate.c. */
static void unready(vectors *v, const dxpu_tlp *cpl, uint64_t now_ns)
{
    if (!v->unready_ns)
        v->unready_ns = now_ns;
    else if (now_ns - v->unready_ns >= READY_NS)
        fail(v, cpl ? "it is not ready for 60 s (CRS)"
                    : "it has not answered configuration requests for 60 s");
}

void vectors_answer(vectors *v, const dxpu_tlp *cpl, uint64_t now_ns)
{
    bool write = v->step >= PLACE_LOW;
    if (v->step >= DONE)
        return;
    if (!cpl || cpl->status == DXPU_CPL_CRS) {
        unready(v, cpl, now_ns);
        return;
    }
    v->unready_ns = 0;
    if (cpl->status != DXPU_CPL_SC || cpl->payload.len != (write ? 0 : 4))
        fail(v, "it answers configuration requests with an error");
    else if (!write)
        take(v, dxpu_get_le32(cpl->payload.ptr));
    else if (v->step == PLACE_LOW)
        v->step = v->wide ? PLACE_HIGH : ENABLE;
    else
        v->step++;
}
