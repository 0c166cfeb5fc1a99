/* vga.c - see vga.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Registers   2 Picture   3 Reset   4 TLPs   5 Kind */
#include "vga_model.h"

#include <stdlib.h>

/* ==== 1  Registers ============================================================================
   The window by dwords.  Where nothing is, reads return 0 and writes are dropped. */

enum { WINDOW_REGS = 0x500, WINDOW_EXTENSION = 0x600, EXTENSION_BYTES = 8 };
#define VGA_ENABLED 0x0001u
#define VGA_UNIT    65536u
#define VGA_LEAST   64u /* width and height of a mode */

static uint32_t window_read(const vga *v, uint32_t at)
{
    uint32_t i = (at - WINDOW_REGS) / 2;
    if (at < EDID_BYTES)
        return dxpu_get_le32(v->edid + at);
    if (at >= WINDOW_REGS && i < REGS)
        return v->reg[i] | (i + 1 < REGS ? (uint32_t)v->reg[i + 1] << 16 : 0);
    if (at == WINDOW_EXTENSION)
        return EXTENSION_BYTES;
    if (at == WINDOW_EXTENSION + 4)
        return v->big_endian ? VGA_BYTES_BIG : VGA_BYTES_LITTLE;
    return 0;
}

/* enabled: the bits whose bytes are written */
static void window_write(vga *v, uint32_t at, uint32_t value, uint32_t enabled)
{
    uint32_t i = (at - WINDOW_REGS) / 2;
    uint32_t now = (window_read(v, at) & ~enabled) | (value & enabled);
    if (at == WINDOW_EXTENSION + 4 && (now == VGA_BYTES_BIG || now == VGA_BYTES_LITTLE))
        v->big_endian = now == VGA_BYTES_BIG;
    if (at < WINDOW_REGS || i >= REGS)
        return;
    for (unsigned half = 0; half < 2; half++, now >>= 16) {
        if (i + half != REG_ID && i + half < REG_MEMORY) /* these two are read-only */
            v->reg[i + half] = (uint16_t)now;
    }
}

/* ==== 2  Picture ============================================================================== */

/* One pixel as 0xrrggbb. */
static uint32_t pixel(const vga *v, const uint8_t *p)
{
    uint32_t c, r, g, b;
    if (v->reg[REG_BITS] == 32) {
        c = dxpu_get_le32(p);
        if (v->big_endian)
            c = (c >> 8 & 0xff00) | (c >> 24) | (c << 8 & 0xff0000);
        return c & 0xffffff;
    }
    c = v->big_endian ? dxpu_get_be16(p) : dxpu_get_le16(p);
    r = c >> 11;
    g = c >> 5 & 0x3f;
    b = c & 0x1f;
    return (r << 3 | r >> 2) << 16 | (g << 2 | g >> 4) << 8 | (b << 3 | b >> 2);
}

/* device_kind.picture */
static bool vga_picture(void *device, uint8_t *rgb, unsigned row, unsigned rows, unsigned *width,
                        unsigned *height)
{
    vga *v = device;
    uint32_t w = v->reg[REG_WIDTH], h = v->reg[REG_HEIGHT], bytes = v->reg[REG_BITS] / 8u;
    uint64_t line = (uint64_t)(v->reg[REG_LINE] > w ? v->reg[REG_LINE] : w) * bytes;
    uint64_t start = v->reg[REG_LEFT] * (uint64_t)bytes + v->reg[REG_TOP] * line;
    if (!(v->reg[REG_ENABLE] & VGA_ENABLED) || w < VGA_LEAST || h < VGA_LEAST ||
        (v->reg[REG_BITS] != 16 && v->reg[REG_BITS] != 32) || start + line * h > VGA_FRAME_BYTES)
        return false;
    *width = w;
    *height = h;
    for (uint32_t y = row; rgb && y < row + rows && y < h; y++) {
        const uint8_t *from = v->frame.bytes + start + y * line;
        for (uint32_t x = 0; x < w; x++, from += bytes, rgb += 3) {
            uint32_t c = pixel(v, from);
            rgb[0] = (uint8_t)(c >> 16);
            rgb[1] = (uint8_t)(c >> 8);
            rgb[2] = (uint8_t)c;
        }
        v->count.pictures += y + 1 == h; /* the last row of one */
    }
    return true;
}

/* ==== 3  Reset ================================================================================ */

static const pci_identity vga_identity = { VGA_VENDOR, VGA_DEVICE,
                                           0x03800002u, /* a display that is not a VGA; revision 2
                                                           says that the extension is there */
                                           VGA_CAP_PCIE, 4 };

/* Any reset clears the picture: the next user may be another. */
static void function_reset(vga *v)
{
    pci_reset(&v->f, &vga_identity);
    pci_bar(&v->f, BAR_FRAME, VGA_FRAME_BYTES, PCI_BAR_64 | PCI_BAR_PREFETCHABLE);
    pci_bar(&v->f, BAR_WINDOW, VGA_WINDOW_BYTES, 0);
    pages_clear(&v->frame);
    memset(v->reg, 0, sizeof v->reg);
    v->reg[REG_ID] = VGA_ID;
    v->reg[REG_MEMORY] = VGA_FRAME_BYTES / VGA_UNIT;
    v->big_endian = false;
    v->count.resets++;
}

/* ==== 4  TLPs ================================================================================= */

static void read_request(vga *v, const dxpu_tlp *t)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
    uint64_t at;
    if (pci_locate(&v->f, BAR_FRAME, t, t->length_dw * 4u, &at)) {
        v->count.frame_reads++;
        pci_complete_read(&v->f, t, v->frame.bytes + at);
    } else if (pci_locate(&v->f, BAR_WINDOW, t, t->length_dw * 4u, &at)) {
        v->count.register_reads++;
        for (uint32_t i = 0; i < t->length_dw; i++)
            dxpu_put_le32(data + (size_t)i * 4, window_read(v, (uint32_t)at + i * 4));
        pci_complete_read(&v->f, t, data);
    } else {
        v->count.unsupported++;
        pci_unsupported(&v->f, t);
    }
}

static void write_frame(vga *v, const dxpu_tlp *t, uint64_t at)
{
    uint32_t bytes = t->length_dw * 4u;
    v->count.frame_writes++;
    v->count.frame_write_bytes += bytes;
    pages_written(&v->frame, at + bytes);
    pci_store(v->frame.bytes + at, t);
}

static void write_request(vga *v, const dxpu_tlp *t)
{
    uint64_t at;
    bool frame = pci_locate(&v->f, BAR_FRAME, t, t->length_dw * 4u, &at);
    if (!frame && !pci_locate(&v->f, BAR_WINDOW, t, t->length_dw * 4u, &at)) {
        v->count.unsupported++;
        pci_unsupported(&v->f, t);
    } else if (t->ep) {
        v->count.poisoned++;
        pci_poisoned(&v->f);
    } else if (frame) {
        write_frame(v, t, at);
    } else {
        v->count.register_writes++;
        for (uint32_t i = 0; i < t->length_dw; i++)
            window_write(v, (uint32_t)at + i * 4, dxpu_get_le32(t->payload.ptr + (size_t)i * 4),
                         pci_enabled(t, i));
    }
}

static void vga_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    vga *v = device;
    (void)bytes;
    switch (t->type) {
    case DXPU_TLP_MRD:
        read_request(v, t);
        break;
    case DXPU_TLP_MWR:
        write_request(v, t);
        break;
    case DXPU_TLP_CFGRD0:
    case DXPU_TLP_CFGWR0:
        v->count.config++;
        if (pci_config_request(&v->f, t))
            function_reset(v);
        break;
    case DXPU_TLP_MSG:
    case DXPU_TLP_MSGD:
        v->count.messages++; /* none of them means anything to a display */
        break;
    default:
        if (dxpu_tlp_class(t) == DXPU_NONPOSTED) {
            v->count.unsupported++;
            pci_unsupported(&v->f, t);
        } else {
            v->count.completions_ignored++; /* it never asks for any */
        }
        break;
    }
}

/* ==== 5  Kind ================================================================================= */

static void vga_event(void *device, const dxpu_event *e)
{
    vga *v = device;
    if (e->type == DXPU_EVENT_HOT_RESET && (e->flags & DXPU_EVENT_ON)) {
        function_reset(v);
        v->f.bdf = 0;
    }
}

static void vga_reset(void *device)
{
    vga *v = device;
    function_reset(v);
    v->f.bdf = 0;
}

static void vga_tick(void *device, uint64_t now_ns)
{
    (void)now_ns;
    pages_reap(&((vga *)device)->frame);
}

static void vga_destroy(void *device)
{
    vga *v = device;
    pages_close(&v->frame);
    free(v);
}

static void *vga_create(const device_settings *s, const device_port *port)
{
    vga *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    if (pages_open(&v->frame, VGA_FRAME_BYTES, false, s)) {
        free(v);
        return NULL;
    }
    pci_init(&v->f, port, s->mps_bytes);
    edid_make(v->edid, s->identity);
    function_reset(v);
    return v;
}

static void vga_report(void *device, report *r)
{
    vga *v = device;
#define VGA_PRINT(name) report_number(r, #name, v->count.name);
    VGA_COUNTERS(VGA_PRINT)
#undef VGA_PRINT
}

const device_kind vga_kind = { .name = "vga",
                               .vendor = VGA_VENDOR,
                               .device = VGA_DEVICE,
                               .class_code = 0x038000,
                               .create = vga_create,
                               .destroy = vga_destroy,
                               .tlp = vga_tlp,
                               .event = vga_event,
                               .reset = vga_reset,
                               .tick = vga_tick,
                               .report = vga_report,
                               .picture = vga_picture };
