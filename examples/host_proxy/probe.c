/* probe.c - see probe.h
   SPDX-License-Identifier: MIT */
#include "probe.h"

enum { READ_BEFORE, WRITE_ONES, READ_SIZED, WRITE_BACK, STEPS_PER_BAR };
enum { STEPS = STEPS_PER_BAR * PROBE_BARS, CONFIG_BARS = 0x10 };

void probe_start(probe *p)
{
    memset(p, 0, sizeof *p);
    p->running = true;
}

bool probe_request(probe *p, dxpu_tlp *t, uint8_t data[4])
{
    unsigned bar = p->step / STEPS_PER_BAR, part = p->step % STEPS_PER_BAR;
    bool write = part == WRITE_ONES || part == WRITE_BACK;
    p->running = p->running && !p->failed && p->step < STEPS;
    if (!p->running)
        return false;
    memset(t, 0, sizeof *t);
    t->type = write ? DXPU_TLP_CFGWR0 : DXPU_TLP_CFGRD0;
    t->header_dw = 3;
    t->length_dw = 1;
    t->first_be = 0xf;
    t->register_bytes = (uint16_t)(CONFIG_BARS + 4 * bar);
    for (unsigned i = 0; i < 4; i++)
        data[i] = (uint8_t)(part == WRITE_ONES ? 0xff : p->before[bar] >> 8 * i);
    t->payload.ptr = write ? data : NULL;
    t->payload.len = write ? 4 : 0;
    return true;
}

static uint32_t value_of(const dxpu_tlp *cpl)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < 4; i++)
        v |= (uint32_t)cpl->payload.ptr[i] << 8 * i;
    return v;
}

void probe_answer(probe *p, const dxpu_tlp *cpl)
{
    unsigned bar = p->step / STEPS_PER_BAR, part = p->step % STEPS_PER_BAR;
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
    if (!cpl || cpl->status != DXPU_CPL_SC || cpl->payload.len != (read ? 4 : 0)) {
        p->failed = true;
        return;
    }
    if (part == READ_BEFORE)
        p->before[bar] = value_of(cpl);
    else if (part == READ_SIZED)
        p->sized[bar] = value_of(cpl);
    p->step++;
}

unsigned probe_bars(const probe *p, dxpu_vswitch_bar out[PROBE_BARS])
{
    unsigned count = 0;
    for (unsigned i = 0; i < PROBE_BARS; i++) {
        uint32_t low = p->sized[i];
        uint64_t mask = 0xffffffff00000000u | (low & ~(uint32_t)0xf);
        bool wide = (low & 0x6) == 0x4;
        if (low == 0 || (low & 1)) /* none; I/O space, for which there is no window */
            continue;
        if (wide && i + 1 < PROBE_BARS)
            mask = (uint64_t)p->sized[++i] << 32 | (low & ~(uint32_t)0xf);
        out[count].bytes = ~mask + 1;
        out[count].prefetchable = wide && (low & 0x8);
        if (out[count].bytes)
            count++;
    }
    return count;
}
