/* vmd.c - see vmd.h
   SPDX-License-Identifier: MIT */
#include "vmd.h"
#include "dxpu.h"

#include <string.h>

enum {
    ID = 0x00,
    COMMAND = 0x04,
    CLASS = 0x08,
    BAR0 = 0x10,
    SUBSYSTEM = 0x2c,
    CAPABILITIES = 0x34,
    VMCAP = 0x40,
    VMCONFIG = 0x44,
    MSIX = 0x50,
    VMLOCK = 0x70,
    COMMAND_BITS = 0x0546, /* memory, master, parity, SERR, INTx disable */
    VMCONFIG_BYPASS = 0x2,
    BAR_64_PREFETCHABLE = 0xc
};

static uint32_t get(const vmd *v, unsigned at)
{
    return dxpu_get_le32(v->cfg + at);
}

static void put(vmd *v, unsigned at, uint32_t value)
{
    dxpu_put_le32(v->cfg + at, value);
}

void vmd_reset(vmd *v)
{
    memset(v->cfg, 0, sizeof v->cfg);
    put(v, ID, 0x28c08086);
    put(v, COMMAND, 0x00100000); /* capability list */
    put(v, CLASS, 0x01040000);   /* mass storage, RAID: what the driver's table asks for */
    put(v, BAR0, BAR_64_PREFETCHABLE);
    put(v, BAR0 + 16, BAR_64_PREFETCHABLE);
    put(v, SUBSYSTEM, 0x00008086);
    put(v, CAPABILITIES, MSIX);
    put(v, MSIX, (uint32_t)(VMD_VECTORS - 1) << 16 | 0x11);
    put(v, MSIX + 4, 4);          /* table: BAR4 + 0 */
    put(v, MSIX + 8, 0x1000 | 4); /* pending bits: BAR4 + 0x1000 */
}

void vmd_init(vmd *v, unsigned buses, uint64_t bar2_bytes, uint64_t bar4_bytes)
{
    uint64_t ecam = 1u << 20;
    memset(v, 0, sizeof *v);
    while (ecam < (uint64_t)buses << 20)
        ecam *= 2;
    v->bar_bytes[0] = ecam;
    v->bar_bytes[2] = bar2_bytes;
    v->bar_bytes[4] = bar4_bytes;
    vmd_reset(v);
}

void vmd_read(const vmd *v, unsigned offset, uint8_t *data, unsigned bytes)
{
    memcpy(data, v->cfg + offset, bytes);
}

/* Bits of the dword at `at` that a write changes. */
static uint32_t writable(const vmd *v, unsigned at)
{
    unsigned bar = (at - BAR0) / 4;
    switch (at) {
    case COMMAND:
        return COMMAND_BITS;
    case 0x3c:
        return 0xff;
    case VMCONFIG:
        return VMCONFIG_BYPASS;
    case MSIX:
        return 0xc0000000;
    default:
        break;
    }
    if (at < BAR0 || bar > 5 || bar == 3) /* BAR 2 has 32 bits */
        return 0;
    if (bar == 2)
        return ~(uint32_t)(v->bar_bytes[2] - 1);
    return (uint32_t)(~(v->bar_bytes[bar & 4] - 1) >> (bar % 2 ? 32 : 0));
}

void vmd_write(vmd *v, unsigned offset, const uint8_t *data, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        unsigned at = offset + i;
        uint8_t mask = (uint8_t)(writable(v, at & ~3u) >> 8 * (at & 3));
        v->cfg[at] = (uint8_t)((v->cfg[at] & ~mask) | (data[i] & mask));
    }
}

uint64_t vmd_bar(const vmd *v, unsigned bar)
{
    uint64_t low = get(v, BAR0 + 4 * bar) & ~(uint32_t)0xf;
    return bar == 2 ? low : low | (uint64_t)get(v, BAR0 + 4 * bar + 4) << 32;
}
