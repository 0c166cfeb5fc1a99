/* shadow.c - see shadow.h
   SPDX-License-Identifier: MIT */
#include "shadow.h"
#include "dxpu.h"

#include <string.h>

enum {
    VENDOR = 0x00,
    VENDOR_VIRTIO = 0x1af4,
    COMMAND = 0x04,
    COMMAND_IO = 0x1,
    COMMAND_MEMORY = 0x2,
    STATUS = 0x06,
    HAS_CAPABILITIES = 0x10,
    HEADER = 0x0e,
    MULTI_FUNCTION = 0x80,
    BAR0 = 0x10,
    ROM = 0x30,
    CAPABILITIES = 0x34,
    INTERRUPT_LINE = 0x3c,
    INTERRUPT_PIN = 0x3d,
    FIRST_CAPABILITY = 0x40,
    CONFIG_BYTES = 256, /* without extended capabilities */
    HOPS = 48,          /* capabilities that fit */
    EXTENDED_HOPS = 480,
    CAP_NULL = 0x00,
    CAP_POWER = 0x01,
    CAP_MSI = 0x05,
    CAP_EXPRESS = 0x10,
    CAP_MSIX = 0x11,
    MSI_ENABLE = 0x01,
    MSI_WIDE = 0x80,
    MSI_MASKS = 0x100,
    MSIX_ENABLE = 0x8000,
    MSIX_ENTRY = 16,
    MSIX_CAP_BYTES = 12,
    FLR_CAN = 0x10, /* in the upper byte of Device Capabilities */
    FLR = 0x80      /* in the upper byte of Device Control */
};

#define BAR64_BASE ((uint64_t)1 << 40)

/* Of extended capabilities: those that a function of a virtual machine's own cannot have. */
static const uint16_t hidden[] = { 0x0e /* ARI */,    0x0f /* ATS */,           0x10 /* SR-IOV */,
                                   0x11 /* MR-IOV */, 0x13 /* page requests */, 0x1b /* PASID */ };

/* Keep bytes here, which begin as `value` and change where `writable` has ones. */
static void keep(shadow *s, unsigned at, unsigned bytes, uint32_t value, uint32_t writable)
{
    for (unsigned i = 0; i < bytes; i++) {
        s->shown[at + i] = (uint8_t)(value >> 8 * i);
        s->writable[at + i] = (uint8_t)(writable >> 8 * i);
        s->own[at + i] = 0xff;
    }
}

/* ==== What a device has ======================================================================= */

static void keep_bars(shadow *s, const uint32_t sized[SHADOW_BARS])
{
    for (unsigned i = 0; i < SHADOW_BARS; i++) {
        uint32_t kind = sized[i] & 0xf, low = sized[i] - kind;
        unsigned at = BAR0 + 4 * i;
        bool wide = (kind & 7) == 4 && i + 1 < SHADOW_BARS;
        uint64_t mask = wide ? (uint64_t)sized[i + 1] << 32 | low : 0xffffffff00000000u | low;
        keep(s, at, 4, 0, 0);
        if ((kind & 1) || (wide ? !mask : !low)) /* I/O space is not offered */
            continue;
        s->bar[i].bytes = ~mask + 1;
        s->bar[i].prefetchable = wide && (kind & 8);
        keep(s, at, 4, kind, low);
        if (wide)
            keep(s, BAR0 + 4 * ++i, 4, 0, (uint32_t)(mask >> 32));
    }
}

/* The largest one that has no address yet; SHADOW_BARS: none is left. */
static unsigned largest_bar(const shadow *s, bool wide)
{
    unsigned best = SHADOW_BARS;
    for (unsigned i = 0; i < SHADOW_BARS; i++) {
        const shadow_bar *b = &s->bar[i];
        if (b->bytes && !b->address && wide == ((s->shown[BAR0 + 4 * i] & 6) == 4) &&
            (best == SHADOW_BARS || b->bytes > s->bar[best].bytes))
            best = i;
    }
    return best;
}

/* Addresses in the device, where nothing else is: sizes are powers of two, so in falling order they
   are aligned.  False: 32-bit ones of 4 GB and more. */
static bool place_bars(shadow *s)
{
    uint64_t low = (uint64_t)1 << 32, high = BAR64_BASE;
    unsigned i;
    while ((i = largest_bar(s, false)) < SHADOW_BARS) {
        if (s->bar[i].bytes >= low)
            return false;
        low -= s->bar[i].bytes;
        s->bar[i].address = low;
    }
    while ((i = largest_bar(s, true)) < SHADOW_BARS) {
        if (s->bar[i].bytes > high) /* larger than where these begin */
            high = s->bar[i].bytes;
        if (s->bar[i].bytes > UINT64_MAX - high)
            return false;
        s->bar[i].address = high;
        high += s->bar[i].bytes;
    }
    return true;
}

static unsigned log2_of(uint32_t messages)
{
    unsigned n = 0;
    while ((1u << n) < messages)
        n++;
    return n;
}

/* A capability of MSI whose messages are kept here. */
static void keep_msi(shadow *s, unsigned at, uint32_t control)
{
    unsigned data = at + (control & MSI_WIDE ? 12u : 8u);
    keep(s, at, 1, CAP_MSI, 0);
    keep(s, at + 2, 2, control, 0x70 | MSI_ENABLE);
    keep(s, at + 4, 4, 0, ~(uint32_t)3);
    if (control & MSI_WIDE)
        keep(s, at + 8, 4, 0, ~(uint32_t)0);
    keep(s, data, 2, 0, 0xffff);
    if (control & MSI_MASKS)
        keep(s, data + 4, 4, 0, ~(uint32_t)0); /* the virtual machine monitor masks */
    s->messages = 1u << (control >> 1 & 7);
}

static void look_at_msi(shadow *s, unsigned at)
{
    uint32_t control = dxpu_get_le16(s->shown + at + 2) & (MSI_MASKS | MSI_WIDE | 0x0e);
    unsigned bytes = (control & MSI_WIDE ? 14u : 10u) + (control & MSI_MASKS ? 10u : 0u);
    if (s->msi || at + bytes > CONFIG_BYTES || (control >> 1 & 7) > 5)
        return;
    s->msi = at;
    keep_msi(s, at, control);
}

static void look_at_msix(shadow *s, unsigned at)
{
    uint32_t vectors, table;
    unsigned bar;
    if (s->msix || at + MSIX_CAP_BYTES > CONFIG_BYTES)
        return;
    vectors = (dxpu_get_le16(s->shown + at + 2) & 0x7ff) + 1;
    table = dxpu_get_le32(s->shown + at + 4);
    bar = table & 7;
    s->msix = at;
    if (bar >= SHADOW_BARS ||
        (table & ~(uint32_t)7) + (uint64_t)vectors * MSIX_ENTRY > s->bar[bar].bytes)
        return;
    s->vectors = vectors;
    s->table_bar = bar;
    s->table_at = table & ~(uint32_t)7;
}

static void look_at(shadow *s, unsigned at)
{
    switch (s->shown[at]) {
    case CAP_POWER:
        if (at + 8 <= CONFIG_BYTES) { /* the power state; enabling PME is the device's */
            s->shown[at + 4] &= 0xfc;
            s->own[at + 4] = s->writable[at + 4] = 3;
        }
        break;
    case CAP_EXPRESS:
        if (at + 12 <= CONFIG_BYTES)
            s->express = at;
        break;
    case CAP_MSI:
        look_at_msi(s, at);
        break;
    case CAP_MSIX:
        look_at_msix(s, at);
        break;
    default:
        break;
    }
}

/* Which of the device's interrupts are shown, and as what. */
static void choose_interrupts(shadow *s, unsigned interrupts)
{
    bool virtio = dxpu_get_le16(s->shown + VENDOR) == VENDOR_VIRTIO;
    if (!s->msix)
        return;
    if (s->vectors && (interrupts == SHADOW_MSIX || (interrupts == SHADOW_AUTO && virtio))) {
        s->msix_shown = true;
    } else if (s->vectors && !s->msi) {
        uint32_t most = s->vectors < SHADOW_MESSAGES_MAX ? s->vectors : SHADOW_MESSAGES_MAX;
        s->replaced = true;
        keep_msi(s, s->msix, log2_of(most) << 1);
        keep(s, s->msix + 10, 2, 0, 0);
    } else {
        keep(s, s->msix, 1, CAP_NULL, 0);
    }
}

static void hide_extended(shadow *s)
{
    unsigned at = CONFIG_BYTES;
    if (dxpu_get_le32(s->shown + at) == UINT32_MAX || dxpu_get_le32(s->shown + at) == 0) {
        memset(s->shown + at, 0, SHADOW_BYTES - CONFIG_BYTES);
        memset(s->own + at, 0xff, SHADOW_BYTES - CONFIG_BYTES);
        return;
    }
    for (unsigned n = 0; n < EXTENDED_HOPS && at >= CONFIG_BYTES && at + 4 <= SHADOW_BYTES; n++) {
        uint32_t head = dxpu_get_le32(s->shown + at);
        for (unsigned i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
            if ((head & 0xffff) == hidden[i])
                keep(s, at, 2, CAP_NULL, 0);
        }
        at = head >> 20 & ~3u;
    }
}

const char *shadow_init(shadow *s, const uint8_t image[SHADOW_BYTES],
                        const uint32_t sized[SHADOW_BARS], unsigned interrupts)
{
    unsigned at;
    memset(s, 0, sizeof *s);
    memcpy(s->shown, image, sizeof s->shown);
    if ((image[HEADER] & ~(unsigned)MULTI_FUNCTION) != 0)
        return "it is a bridge";
    keep(s, HEADER, 1, 0, 0);
    s->own[COMMAND] = COMMAND_MEMORY | COMMAND_IO;
    s->writable[COMMAND] = COMMAND_MEMORY;
    keep_bars(s, sized);
    keep(s, ROM, 4, 0, 0);
    keep(s, INTERRUPT_LINE, 1, 0, 0xff);
    s->pin = image[INTERRUPT_PIN] != 0;
    if (!place_bars(s))
        return "its BARs of 32 bits are too large";
    at = image[STATUS] & HAS_CAPABILITIES ? image[CAPABILITIES] & 0xfcu : 0;
    for (unsigned n = 0; n < HOPS && at >= FIRST_CAPABILITY; n++) {
        unsigned next = image[at + 1] & 0xfcu; /* of a multiple of 4 below 256 */
        look_at(s, at);
        at = next;
    }
    choose_interrupts(s, interrupts);
    hide_extended(s);
    shadow_reset(s);
    return NULL;
}

/* ==== Resets ================================================================================== */

void shadow_reset(shadow *s)
{
    for (unsigned i = 0; i < SHADOW_BYTES; i++)
        s->shown[i] &= (uint8_t) ~(s->own[i] & s->writable[i]);
    s->mps = 0;
}

static void add(shadow_write *out, unsigned *count, uint32_t at, uint32_t bytes, uint32_t value)
{
    shadow_write w = { at, bytes, value };
    out[(*count)++] = w;
}

unsigned shadow_setup(const shadow *s, shadow_write out[SHADOW_WRITES_MAX])
{
    unsigned n = 0;
    for (unsigned i = 0; i < SHADOW_BARS; i++) {
        const shadow_bar *b = &s->bar[i];
        if (!b->bytes)
            continue;
        add(out, &n, BAR0 + 4 * i, 4, (uint32_t)b->address);
        if ((s->shown[BAR0 + 4 * i] & 6) == 4)
            add(out, &n, BAR0 + 4 * i + 4, 4, (uint32_t)(b->address >> 32));
    }
    add(out, &n, COMMAND, 2, COMMAND_MEMORY);
    return n;
}

unsigned shadow_interrupts(const shadow *s, shadow_write out[SHADOW_WRITES_MAX])
{
    unsigned at = s->replaced ? s->msix : s->msi, n = 0;
    uint32_t control = dxpu_get_le16(s->shown + at + 2);
    if (s->replaced) {
        add(out, &n, at + 2, 2, control & MSI_ENABLE ? MSIX_ENABLE : 0);
    } else if (s->msi) {
        bool wide = control & MSI_WIDE;
        add(out, &n, at + 4, 4, SHADOW_MSI_ADDRESS);
        if (wide)
            add(out, &n, at + 8, 4, 0);
        add(out, &n, at + (wide ? 12u : 8u), 2, 0);
        add(out, &n, at + 2, 2, control);
    }
    return n;
}

/* ==== Accesses ================================================================================ */

bool shadow_is_own(const shadow *s, uint32_t at, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        if (s->own[at + i] != 0xff)
            return false;
    }
    return true;
}

void shadow_answer(const shadow *s, uint32_t at, uint8_t *data, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        uint8_t own = s->own[at + i];
        data[i] = (uint8_t)((data[i] & ~own) | (s->shown[at + i] & own));
    }
}

static bool touches(uint32_t at, uint32_t bytes, uint32_t what)
{
    return what - at < bytes; /* below: huge */
}

shadow_effect shadow_take(shadow *s, uint32_t at, uint8_t *data, uint32_t bytes)
{
    shadow_effect e = { .forward = !shadow_is_own(s, at, bytes) };
    unsigned msi = s->replaced ? s->msix : s->msi;
    for (uint32_t i = 0; i < bytes; i++) {
        uint8_t *shown = &s->shown[at + i], can = s->writable[at + i], own = s->own[at + i];
        uint8_t device = at + i == COMMAND ? COMMAND_MEMORY : 0; /* its part of what is kept */
        *shown = (uint8_t)((*shown & ~can) | (data[i] & can));
        data[i] = (uint8_t)((data[i] & ~own) | (device & own));
    }
    e.interrupts = msi && touches(at, bytes, msi + 2);
    if (s->express && touches(at, bytes, s->express + 8u))
        s->mps = data[s->express + 8u - at] >> 5 & 7;
    if (s->express && touches(at, bytes, s->express + 9u))
        e.flr = (data[s->express + 9u - at] & FLR) && (s->shown[s->express + 7] & FLR_CAN);
    return e;
}

bool shadow_vector(const shadow *s, uint64_t address, uint32_t data, bool *msix, uint32_t *vector)
{
    unsigned at = s->replaced ? s->msix : s->msi;
    uint32_t given = 1u << (s->shown[at + 2] >> 4 & 7);
    *msix = s->msix_shown && address == SHADOW_MSIX_ADDRESS;
    *vector = data;
    if (*msix)
        return data < s->vectors;
    if (!s->messages || address != (s->replaced ? SHADOW_MSIX_ADDRESS : SHADOW_MSI_ADDRESS))
        return false;
    *vector = data % (given < s->messages ? given : s->messages); /* both powers of two */
    return true;
}

bool shadow_is_table(const shadow *s, unsigned bar, uint64_t at, uint64_t bytes)
{
    uint64_t end = s->table_at + (uint64_t)s->vectors * MSIX_ENTRY;
    return s->vectors && bar == s->table_bar && at < end && at + bytes > s->table_at;
}
