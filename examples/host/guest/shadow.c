/* shadow.c - see shadow.h
   SPDX-License-Identifier: MIT */
#include "shadow.h"
#include "bars.h"
#include "dxpu.h"

#include <string.h>

enum {
    VENDOR = 0x00,
    VENDOR_VIRTIO = 0x1af4,
    DEVICE = 0x02,
    DEVICE_VIRTIO = 0x1000, /* and to the last one: the others of this vendor are not */
    DEVICE_VIRTIO_LAST = 0x107f,
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
    PIN_A = 1,
    FIRST_CAPABILITY = 0x40,
    CONFIG_BYTES = 256, /* without extended capabilities */
    LIST_MAX = (SHADOW_BYTES - CONFIG_BYTES) / 4,
    CAP_NULL = 0x00,
    CAP_POWER = 0x01,
    CAP_MSI = 0x05,
    CAP_EXPRESS = 0x10,
    CAP_MSIX = 0x11,
    CAP_FEATURES = 0x13,
    CAP_ALLOCATION = 0x14,
    POWER_BYTES = 8,
    POWER_STATE = 0x03,
    NO_SOFT_RESET = 0x08,
    EXPRESS_BYTES = 20, /* to the end of its link's registers */
    CAN_MPS = 4,        /* Device Capabilities: 128 << it */
    MPS_MASK = 7,
    MPS_MAX = 5,
    CONTROL = 8, /* Device Control: its lower byte has Max_Payload_Size */
    MPS_SHIFT = 5,
    RELAXED = 0x10,     /* set after a reset */
    EXTENDED_BYTES = 8, /* the least that software takes one to have */
    MSI_ENABLE = 0x01,
    MSI_WIDE = 0x80,
    MSI_MASKS = 0x100,
    MSIX_ENABLE = 0x8000,
    MSIX_COUNT = 0x7ff,
    MSIX_ENTRY = 16,
    MSIX_CAP_BYTES = 12,
    FLR_CAN = 0x10, /* in the upper byte of Device Capabilities */
    FLR = 0x80      /* in the upper byte of Device Control */
};

#define BAR64_BASE ((uint64_t)1 << 40)

/* Of extended capabilities: those that a function of a virtual machine's own cannot have, and those
   that would move or resize BARs behind the host's back. */
static const uint16_t hidden[] = {
    0x0e /* ARI */,           0x0f /* ATS */,
    0x10 /* SR-IOV */,        0x11 /* MR-IOV */,
    0x13 /* page requests */, 0x15 /* resizable BARs */,
    0x1b /* PASID */,         0x24 /* resizable BARs of virtual functions */
};

/* Where the capabilities of a device are, in the order of its list. */
typedef struct cap_list {
    uint16_t at[LIST_MAX];
    unsigned count;
    unsigned low, end; /* of what they lie in */
} cap_list;

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

static bool is_wide(const shadow *s, unsigned bar)
{
    return (s->shown[BAR0 + 4 * bar] & BARS_TYPE) == BARS_WIDE;
}

/* False: a size that is no power of two. */
static bool keep_bar(shadow *s, unsigned i, uint32_t sized, const bars_bar *b)
{
    uint32_t kind = (sized & BARS_PREFETCHABLE) | (b->wide ? (uint32_t)BARS_WIDE : 0);
    s->bar[i].bytes = b->bytes;
    s->bar[i].prefetchable = b->prefetchable;
    keep(s, BAR0 + 4 * i, 4, kind, (uint32_t)b->mask);
    if (b->wide)
        keep(s, BAR0 + 4 * i + 4, 4, 0, (uint32_t)(b->mask >> 32));
    return (b->bytes & (b->bytes - 1)) == 0;
}

static bool keep_bars(shadow *s, const uint32_t sized[SHADOW_BARS])
{
    bars_bar bar[BARS_COUNT];
    bars_decode(sized, bar);
    for (unsigned i = 0; i < SHADOW_BARS; i++)
        keep(s, BAR0 + 4 * i, 4, 0, 0);
    for (unsigned i = 0; i < SHADOW_BARS; i++) {
        if (bar[i].bytes && !keep_bar(s, i, sized[i], &bar[i]))
            return false;
    }
    return true;
}

/* The largest one that has no address yet; SHADOW_BARS: none is left. */
static unsigned largest_bar(const shadow *s, bool wide)
{
    unsigned best = SHADOW_BARS;
    for (unsigned i = 0; i < SHADOW_BARS; i++) {
        const shadow_bar *b = &s->bar[i];
        if (b->bytes && !b->address && wide == is_wide(s, i) &&
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

/* The MSI capability that is shown; 0: none. */
static unsigned shown_msi(const shadow *s)
{
    return s->replaced ? s->msix : s->msi;
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

/* What is false of these is not shown: where it breaks a rule of its own, or there is a second one.
   Software that lets a function into a virtual machine relies on that; some was written for
   functions that a kernel has looked at before. */
static bool look_at_msi(shadow *s, unsigned at, unsigned room)
{
    uint32_t control = dxpu_get_le16(s->shown + at + 2) & (MSI_MASKS | MSI_WIDE | 0x0e);
    unsigned bytes = (control & MSI_WIDE ? 14u : 10u) + (control & MSI_MASKS ? 10u : 0u);
    if (s->msi || bytes > room || (control >> 1 & 7) > 5)
        return false;
    s->msi = at;
    keep_msi(s, at, control);
    return true;
}

/* Is it in a BAR? */
static bool is_inside(const shadow *s, uint32_t where, uint64_t bytes)
{
    unsigned bar = where & 7;
    return bar < SHADOW_BARS && (where & ~(uint32_t)7) + bytes <= s->bar[bar].bytes;
}

static bool look_at_msix(shadow *s, unsigned at, unsigned room)
{
    uint32_t vectors, table;
    if (s->msix || room < MSIX_CAP_BYTES)
        return false;
    vectors = (dxpu_get_le16(s->shown + at + 2) & MSIX_COUNT) + 1;
    table = dxpu_get_le32(s->shown + at + 4);
    if (!is_inside(s, table, vectors * (uint64_t)MSIX_ENTRY) ||
        !is_inside(s, dxpu_get_le32(s->shown + at + 8), (vectors + 63) / 64 * (uint64_t)8))
        return false;
    s->msix = at;
    s->vectors = vectors;
    s->table_bar = table & 7;
    s->table_at = table & ~(uint32_t)7;
    return true;
}

/* It stays in D0, and would keep its state in D3hot: there is no reset by way of that. */
static bool look_at_power(shadow *s, unsigned at, unsigned room)
{
    if (s->power || room < POWER_BYTES)
        return false;
    s->power = at;
    s->shown[at + 4] = (uint8_t)((s->shown[at + 4] & ~(unsigned)POWER_STATE) | NO_SOFT_RESET);
    s->own[at + 4] = POWER_STATE | NO_SOFT_RESET;
    s->writable[at + 4] = POWER_STATE;
    return true;
}

static bool look_at_express(shadow *s, unsigned at, unsigned room)
{
    if (s->express || room < EXPRESS_BYTES)
        return false;
    s->express = at;
    s->mps = s->shown[at + CAN_MPS] & MPS_MASK;
    if (s->mps > MPS_MAX)
        s->mps = MPS_MAX;
    s->own[at + CONTROL] = s->writable[at + CONTROL] = MPS_MASK << MPS_SHIFT;
    return true;
}

/* Is it to be shown?  room: until the next one. */
static bool look_at(shadow *s, unsigned at, unsigned room)
{
    switch (s->shown[at]) {
    case CAP_POWER:
        return look_at_power(s, at, room);
    case CAP_EXPRESS:
        return look_at_express(s, at, room);
    case CAP_MSI:
        return look_at_msi(s, at, room);
    case CAP_MSIX:
        return look_at_msix(s, at, room);
    case CAP_NULL:
    case CAP_FEATURES: /* its reset would take the BARs away */
    case CAP_ALLOCATION:
        return false;
    default:
        return true;
    }
}

/* Which of the device's interrupts are shown, and as what. */
static void choose_interrupts(shadow *s, unsigned interrupts)
{
    uint16_t device = dxpu_get_le16(s->shown + DEVICE);
    bool virtio = dxpu_get_le16(s->shown + VENDOR) == VENDOR_VIRTIO && device >= DEVICE_VIRTIO &&
                  device <= DEVICE_VIRTIO_LAST;
    if (!s->msix)
        return;
    if (interrupts == SHADOW_MSIX || (interrupts == SHADOW_AUTO && virtio)) {
        s->msix_shown = true;
        keep(s, s->msix, 1, CAP_MSIX, 0);
        s->own[s->msix + 2] = 0xff;
        s->own[s->msix + 3] = MSIX_COUNT >> 8;
        for (unsigned i = 4; i < MSIX_CAP_BYTES; i++)
            s->own[s->msix + i] = 0xff;
    } else if (!s->msi) {
        uint32_t most = s->vectors < SHADOW_MESSAGES_MAX ? s->vectors : SHADOW_MESSAGES_MAX;
        s->replaced = true;
        keep_msi(s, s->msix, log2_of(most) << 1);
        keep(s, s->msix + 10, 2, 0, 0);
    }
}

/* Follow a list of capabilities.  False: it has a loop. */
static bool list_caps(const uint8_t *image, unsigned at, bool extended, cap_list *out)
{
    bool seen[SHADOW_BYTES / 4] = { false };
    out->count = 0;
    out->low = extended ? CONFIG_BYTES : FIRST_CAPABILITY;
    out->end = extended ? SHADOW_BYTES : CONFIG_BYTES;
    while (at >= out->low) { /* a byte, or 12 bits: below the end */
        if (seen[at / 4])
            return false;
        seen[at / 4] = true;
        out->at[out->count++] = (uint16_t)at;
        at = extended ? dxpu_get_le32(image + at) >> 20 & 0xffc : image[at + 1] & 0xfcu;
    }
    return true;
}

/* Bytes from there to the next one, in the order of addresses. */
static unsigned room_of(const cap_list *l, unsigned at)
{
    unsigned end = l->end;
    for (unsigned i = 0; i < l->count; i++) {
        if (l->at[i] > at && l->at[i] < end)
            end = l->at[i];
    }
    return end - at;
}

/* The list is written again, of those that are shown: the device's own may change at any time. */
static const char *show_caps(shadow *s, const uint8_t *image, unsigned interrupts)
{
    unsigned at = image[STATUS] & HAS_CAPABILITIES ? image[CAPABILITIES] & 0xfcu : 0;
    unsigned link = CAPABILITIES;
    bool shown[LIST_MAX];
    cap_list l;
    if (!list_caps(image, at, false, &l))
        return "its list of capabilities has a loop";
    keep(s, CAPABILITIES, 1, 0, 0);
    for (unsigned i = 0; i < l.count; i++)
        shown[i] = look_at(s, l.at[i], room_of(&l, l.at[i]));
    choose_interrupts(s, interrupts);
    for (unsigned i = 0; i < l.count; i++) {
        if (!shown[i] || (l.at[i] == s->msix && !s->msix_shown && !s->replaced))
            continue;
        keep(s, l.at[i], 2, s->shown[l.at[i]], 0);
        keep(s, link, 1, l.at[i], 0);
        link = l.at[i] + 1u;
    }
    s->own[STATUS] |= HAS_CAPABILITIES;
    s->shown[STATUS] = (uint8_t)((s->shown[STATUS] & ~(unsigned)HAS_CAPABILITIES) |
                                 (link != CAPABILITIES ? HAS_CAPABILITIES : 0u));
    return NULL;
}

static bool is_hidden(uint32_t head)
{
    bool found = false;
    for (unsigned i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        found |= (head & 0xffff) == hidden[i];
    return found;
}

/* Those that are not shown stay in the list as one of no kind: the first one cannot be left out. */
static const char *show_extended(shadow *s, const uint8_t *image)
{
    uint32_t first = dxpu_get_le32(image + CONFIG_BYTES);
    cap_list l;
    if (first == UINT32_MAX || first == 0) {
        memset(s->shown + CONFIG_BYTES, 0, SHADOW_BYTES - CONFIG_BYTES);
        memset(s->own + CONFIG_BYTES, 0xff, SHADOW_BYTES - CONFIG_BYTES);
        return NULL;
    }
    if (!list_caps(image, CONFIG_BYTES, true, &l))
        return "its list of extended capabilities has a loop";
    for (unsigned i = 0; i < l.count; i++) {
        uint32_t head = dxpu_get_le32(image + l.at[i]) & 0xfffff;
        uint32_t next = i + 1 < l.count ? l.at[i + 1] : 0u;
        if (is_hidden(head) || room_of(&l, l.at[i]) < EXTENDED_BYTES)
            head = CAP_NULL;
        keep(s, l.at[i], 4, next << 20 | head, 0);
    }
    return NULL;
}

const char *shadow_init(shadow *s, const uint8_t image[SHADOW_BYTES],
                        const uint32_t sized[SHADOW_BARS], unsigned interrupts)
{
    const char *wrong;
    memset(s, 0, sizeof *s);
    memcpy(s->shown, image, sizeof s->shown);
    if ((image[HEADER] & ~(unsigned)MULTI_FUNCTION) != 0)
        return "it is a bridge";
    keep(s, HEADER, 1, 0, 0);
    s->own[COMMAND] = COMMAND_MEMORY | COMMAND_IO;
    s->writable[COMMAND] = COMMAND_MEMORY;
    if (!keep_bars(s, sized))
        return "the size of a BAR is not a power of two";
    keep(s, ROM, 4, 0, 0);
    keep(s, INTERRUPT_LINE, 1, 0, 0xff);
    s->pin = image[INTERRUPT_PIN] == PIN_A; /* what a device of a single function has */
    keep(s, INTERRUPT_PIN, 1, s->pin ? PIN_A : 0, 0);
    if (!place_bars(s))
        return "its BARs are too large";
    wrong = show_caps(s, image, interrupts);
    if (!wrong)
        wrong = show_extended(s, image);
    shadow_reset(s);
    return wrong;
}

/* ==== Resets ================================================================================== */

void shadow_reset(shadow *s)
{
    for (unsigned i = 0; i < SHADOW_BYTES; i++)
        s->shown[i] &= (uint8_t) ~(s->own[i] & s->writable[i]);
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
        if (is_wide(s, i))
            add(out, &n, BAR0 + 4 * i + 4, 4, (uint32_t)(b->address >> 32));
    }
    if (s->express)
        add(out, &n, s->express + CONTROL, 1, s->mps << MPS_SHIFT | RELAXED);
    add(out, &n, COMMAND, 2, COMMAND_MEMORY);
    return n;
}

unsigned shadow_interrupts(const shadow *s, shadow_write out[SHADOW_WRITES_MAX])
{
    unsigned at = shown_msi(s), n = 0;
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

/* The device's part of what is kept here. */
static uint8_t of_device(const shadow *s, uint32_t at)
{
    if (at == COMMAND)
        return COMMAND_MEMORY;
    return s->express && at == s->express + CONTROL ? (uint8_t)(s->mps << MPS_SHIFT) : 0;
}

static bool touches(uint32_t at, uint32_t bytes, uint32_t what)
{
    return what - at < bytes; /* below: huge */
}

shadow_effect shadow_take(shadow *s, uint32_t at, uint8_t *data, uint32_t bytes)
{
    shadow_effect e = { .forward = !shadow_is_own(s, at, bytes) };
    unsigned msi = shown_msi(s);
    for (uint32_t i = 0; i < bytes; i++) {
        uint8_t *shown = &s->shown[at + i], can = s->writable[at + i], own = s->own[at + i];
        *shown = (uint8_t)((*shown & ~can) | (data[i] & can));
        data[i] = (uint8_t)((data[i] & ~own) | (of_device(s, at + i) & own));
    }
    e.interrupts = msi && touches(at, bytes, msi + 2);
    if (s->express && touches(at, bytes, s->express + 9u))
        e.flr = (data[s->express + 9u - at] & FLR) && (s->shown[s->express + 7] & FLR_CAN);
    return e;
}

bool shadow_vector(const shadow *s, uint64_t address, uint32_t data, bool *msix, uint32_t *vector)
{
    uint32_t given = 1u << (s->shown[shown_msi(s) + 2] >> 4 & 7);
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
