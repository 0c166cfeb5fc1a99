/* probe.c - see probe.h
   SPDX-License-Identifier: MIT */
#include "probe.h"

/* of a function: who it is, what header it has, then four steps for each BAR */
enum { READ_ID, READ_HEADER, FIRST_BAR_STEP };
enum { READ_BEFORE, WRITE_ONES, READ_SIZED, WRITE_BACK, STEPS_PER_BAR };
enum { HEADER = 0x0c, CONFIG_BARS = 0x10, BRIDGE_BARS = 2 };
enum { CAPABILITIES = 0x34, CAPABILITY_MIN = 0x40, EXPRESS = 0x10, HOPS_MAX = 48 };

void probe_start(probe *p)
{
    memset(p, 0, sizeof *p);
    p->running = true;
}

/* Behind the last step of a function comes the next one. */
static void next_function(probe *p)
{
    p->function++;
    p->step = 0;
    p->bars = 0;
    p->hops = 0;
    p->capability = 0;
    p->express = false;
}

/* All BARs of the function are sized. */
static bool in_capabilities(const probe *p)
{
    return p->step >= FIRST_BAR_STEP && p->step == FIRST_BAR_STEP + STEPS_PER_BAR * p->bars;
}

/* What the step does, and with which BAR. */
static unsigned part_of(const probe *p, unsigned *bar)
{
    unsigned n = p->step - FIRST_BAR_STEP;
    *bar = 0;
    if (p->step < FIRST_BAR_STEP || in_capabilities(p))
        return READ_BEFORE;
    *bar = n / STEPS_PER_BAR;
    return n % STEPS_PER_BAR;
}

bool probe_request(probe *p, dxpu_tlp *t, uint8_t data[4])
{
    unsigned bar, part = part_of(p, &bar), at = CONFIG_BARS + 4 * bar;
    bool write = part == WRITE_ONES || part == WRITE_BACK;
    p->running =
        p->running && !p->failed && p->function < (p->many ? (unsigned)PROBE_FUNCTIONS : 1u);
    if (!p->running)
        return false;
    if (p->step < FIRST_BAR_STEP)
        at = p->step == READ_ID ? 0 : HEADER;
    else if (in_capabilities(p))
        at = !p->capability ? CAPABILITIES : p->express ? p->capability + 4u : p->capability;
    memset(t, 0, sizeof *t);
    t->type = write ? DXPU_TLP_CFGWR0 : DXPU_TLP_CFGRD0;
    t->header_dw = 3;
    t->length_dw = 1;
    t->first_be = 0xf;
    t->target = (uint16_t)DXPU_BDF(0, 0, p->function);
    t->register_bytes = (uint16_t)at;
    dxpu_put_le32(data, part == WRITE_ONES ? UINT32_MAX : p->before);
    t->payload.ptr = write ? data : NULL;
    t->payload.len = write ? 4 : 0;
    return true;
}

/* One step along the capabilities. */
static void take_capability(probe *p, uint32_t value)
{
    uint32_t next = !p->capability ? value & 0xfc : value >> 8 & 0xfc;
    if (p->express) {
        unsigned code = (value & 7) < 5 ? value & 7 : 5;
        if (!p->mps_code || code + 1 < p->mps_code)
            p->mps_code = code + 1;
        next_function(p);
    } else if (p->capability && (value & 0xff) == EXPRESS) {
        p->express = true;
    } else if (next < CAPABILITY_MIN || p->hops++ == HOPS_MAX) {
        next_function(p);
    } else {
        p->capability = (uint8_t)next;
    }
}

/* What a read brought. */
static void take(probe *p, uint32_t value)
{
    unsigned bar, part = part_of(p, &bar), type = value >> 16 & 0x7f;
    if (p->step == READ_HEADER) {
        p->bars = type == 0 ? (unsigned)PROBE_BARS : type == 1 ? (unsigned)BRIDGE_BARS : 0;
        if (p->function == 0)
            p->many = value >> 16 & 0x80;
    } else if (p->step >= FIRST_BAR_STEP) {
        if (part == READ_BEFORE)
            p->before = value;
        else
            p->sized[p->function][bar] = value;
    }
}

static bool nobody(const probe *p, const dxpu_tlp *cpl)
{
    return p->step == READ_ID &&
           (cpl->status == DXPU_CPL_UR ||
            (cpl->payload.len == 4 && dxpu_get_le32(cpl->payload.ptr) == UINT32_MAX));
}

void probe_answer(probe *p, const dxpu_tlp *cpl)
{
    unsigned bar, part = part_of(p, &bar);
    bool read = part == READ_BEFORE || part == READ_SIZED;
    p->sent = false;
    if (!p->running || p->again) {
        if (p->running)
            probe_start(p);
        return;
    }
    if (cpl && cpl->status == DXPU_CPL_CRS && p->retries++ < PROBE_RETRIES) {
        p->wait = true;
        return;
    }
    if (p->function > 0 && cpl && nobody(p, cpl)) {
        next_function(p);
        return;
    }
    p->failed =
        !cpl || cpl->status != DXPU_CPL_SC || cpl->payload.len != (read ? 4 : 0) || nobody(p, cpl);
    if (p->failed)
        return;
    if (in_capabilities(p)) {
        take_capability(p, dxpu_get_le32(cpl->payload.ptr));
        return;
    }
    if (read)
        take(p, dxpu_get_le32(cpl->payload.ptr));
    p->step++;
    if (in_capabilities(p) && !p->bars) /* of a header that is not known */
        next_function(p);
}

static unsigned function_bars(const uint32_t sized[PROBE_BARS], dxpu_vswitch_bar *out)
{
    bars_bar bar[BARS_COUNT];
    unsigned count = 0;
    bars_decode(sized, bar);
    for (unsigned i = 0; i < BARS_COUNT; i++) {
        if (!bar[i].bytes)
            continue;
        out[count].bytes = bar[i].bytes;
        out[count++].prefetchable = bar[i].prefetchable;
    }
    return count;
}

unsigned probe_bars(const probe *p, dxpu_vswitch_bar out[PROBE_BARS_MAX])
{
    unsigned count = 0;
    for (unsigned i = 0; i < PROBE_FUNCTIONS; i++)
        count += function_bars(p->sized[i], out + count);
    return count;
}

uint32_t probe_mps_bytes(const probe *p)
{
    return p->mps_code ? 128u << (p->mps_code - 1) : 0;
}
