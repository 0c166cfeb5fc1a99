/* virtio.c - see virtio.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Capabilities   2 Status and features   3 Common configuration   4 Registers
              5 Configuration access   6 Reset   7 TLPs   8 Values of what is gone   9 Life */
#include "virtio.h"

#include <stdlib.h>

/* ==== 1  Capabilities ============================================= Virtual I/O 1.2, 4.1.4 === */

enum { /* cfg_type */
       CAP_COMMON = 1,
       CAP_NOTIFY = 2,
       CAP_ISR = 3,
       CAP_DEVICE = 4,
       CAP_ACCESS = 5,

       CAP_DW = 4,      /* of a capability; with what follows its length: */
       CAP_LONG_DW = 5, /* the notification multiplier, or the window for accesses */
       NOTIFY_STRIDE = 4,
       ACCESS_DW = FN_CAP_MSI / 4 + 4 * CAP_DW + 2 /* the last capability's BAR, in the header */
};

/* Appends one; the last leads on to PCI Express. */
static void add_capability(virtio *v, unsigned *at, unsigned type, uint32_t offset, uint32_t bytes)
{
    fn_own *c = v->capabilities + *at;
    unsigned dw = type == CAP_NOTIFY || type == CAP_ACCESS ? CAP_LONG_DW : CAP_DW;
    unsigned next = type == CAP_ACCESS ? (unsigned)FN_CAP_PCIE : FN_CAP_MSI + (*at + dw) * 4;
    c[0].value = 0x09u | next << 8 | dw * 4u << 16 | type << 24;
    c[2].value = offset;
    c[3].value = bytes;
    *at += dw;
}

static unsigned make_capabilities(virtio *v)
{
    unsigned at = 0;
    add_capability(v, &at, CAP_COMMON, VIRTIO_COMMON, VIRTIO_COMMON_BYTES);
    add_capability(v, &at, CAP_ISR, VIRTIO_ISR, 1);
    add_capability(v, &at, CAP_DEVICE, VIRTIO_CONFIG, v->set.config_bytes);
    add_capability(v, &at, CAP_NOTIFY, VIRTIO_NOTIFY, NOTIFY_STRIDE * v->set.queues);
    v->capabilities[at - 1].value = NOTIFY_STRIDE;
    add_capability(v, &at, CAP_ACCESS, 0, 0);
    v->capabilities[at - 4].writable = 0x000000ff; /* BAR, offset, length, data */
    for (unsigned i = 1; i <= 3; i++)
        v->capabilities[at - i].writable = 0xffffffff;
    return at;
}

/* ==== 2  Status and features ================================================================== */

/* Requests, queues and what was negotiated are gone. */
static void device_reset(virtio *v)
{
    for (unsigned i = 0; i < v->set.queues; i++) {
        virtio_queue_drop(v, &v->queue[i]);
        virtio_queue_default(&v->queue[i]);
    }
    v->accepted = 0;
    v->device_select = v->driver_select = 0;
    v->status = v->isr = 0;
    v->config_vector = 0xffff;
    v->queue_select = 0;
    if (v->type->reset)
        v->type->reset(v);
}

static bool features_fit(const virtio *v)
{
    return (v->accepted & VIRTIO_F_VERSION_1) && !(v->accepted & ~v->offered) &&
           (!v->type->fits || v->type->fits(v->accepted));
}

/* A driver sets bits; only a reset clears them. */
static void status_write(virtio *v, uint8_t value)
{
    if (!value) {
        v->count.device_resets++;
        device_reset(v);
        return;
    }
    if (!(v->status & VIRTIO_FEATURES_OK) && !features_fit(v))
        value &= (uint8_t)~VIRTIO_FEATURES_OK;
    value |= v->status;
    if (!(value & VIRTIO_FEATURES_OK))
        value &= (uint8_t)~VIRTIO_DRIVER_OK;
    v->status = (uint8_t)((value & ~VIRTIO_NEEDS_RESET) | (v->status & VIRTIO_NEEDS_RESET));
}

static uint32_t feature_word(uint64_t features, uint32_t select)
{
    return select < 2 ? (uint32_t)(features >> 32 * select) : 0;
}

static void features_write(virtio *v, uint32_t value, uint32_t enabled)
{
    unsigned shift = v->driver_select ? 32 : 0;
    if (v->driver_select > 1 || (v->status & VIRTIO_FEATURES_OK))
        return;
    v->accepted &= ~((uint64_t)enabled << shift);
    v->accepted |= (uint64_t)(value & enabled) << shift;
}

/* ==== 3  Common configuration =============================================== 1.2, 4.1.4.3 ==== */

enum { /* byte offsets of dwords */
       REG_DEVICE_SELECT = 0x00,
       REG_DEVICE_FEATURE = 0x04,
       REG_DRIVER_SELECT = 0x08,
       REG_DRIVER_FEATURE = 0x0c,
       REG_VECTOR = 0x10, /* and the number of queues */
       REG_STATUS = 0x14, /* config_generation, and the queue that is selected */
       REG_SIZE = 0x18,   /* and the queue's vector */
       REG_ENABLE = 0x1c, /* and where its notifications go */
       REG_DESC = 0x20,
       REG_AVAIL = 0x28,
       REG_USED = 0x30,
       REG_QUEUE_RESET = 0x38 /* above queue_notify_data, which is not used */
};

static virtio_queue *selected(virtio *v)
{
    return v->queue_select < v->set.queues ? &v->queue[v->queue_select] : NULL;
}

static uint64_t *queue_address(virtio_queue *q, uint32_t offset)
{
    return offset < REG_AVAIL ? &q->desc : offset < REG_USED ? &q->avail : &q->used;
}

static uint32_t queue_read(virtio *v, uint32_t offset)
{
    virtio_queue *q = selected(v);
    if (!q)
        return offset == REG_SIZE ? 0xffff0000u : 0;
    switch (offset) {
    case REG_SIZE:
        return q->size | (uint32_t)q->vector << 16;
    case REG_ENABLE:
        return q->enabled | (uint32_t)v->queue_select << 16;
    case REG_QUEUE_RESET:
        return 0; /* what was asked for is done */
    default:
        return (uint32_t)(*queue_address(q, offset) >> (offset & 4 ? 32 : 0));
    }
}

static uint32_t common_read(virtio *v, uint32_t offset)
{
    switch (offset) {
    case REG_DEVICE_SELECT:
        return v->device_select;
    case REG_DEVICE_FEATURE:
        return feature_word(v->offered, v->device_select);
    case REG_DRIVER_SELECT:
        return v->driver_select;
    case REG_DRIVER_FEATURE:
        return feature_word(v->accepted, v->driver_select);
    case REG_VECTOR:
        return v->config_vector | v->set.queues << 16;
    case REG_STATUS:
        return v->status | (uint32_t)v->queue_select << 16;
    default:
        return queue_read(v, offset);
    }
}

/* All 16 bits of one half of a dword are written. */
static bool is_half(uint32_t enabled, unsigned shift)
{
    return (enabled >> shift & 0xffff) == 0xffff;
}

static uint16_t vector_of(const virtio *v, uint32_t value)
{
    return (uint16_t)(value < v->fn.set.msix ? value : 0xffff);
}

static void queue_reset(virtio *v, virtio_queue *q)
{
    if (!(v->accepted & VIRTIO_F_RING_RESET))
        return;
    virtio_queue_drop(v, q);
    virtio_queue_default(q);
    v->count.queue_resets++;
}

static void queue_write(virtio *v, uint32_t offset, uint32_t value, uint32_t enabled)
{
    virtio_queue *q = selected(v);
    uint64_t *address;
    unsigned shift = offset & 4 ? 32 : 0;
    if (!q)
        return;
    if (offset == REG_QUEUE_RESET) {
        if (is_half(enabled, 16) && value >> 16 == 1)
            queue_reset(v, q);
        return;
    }
    if (offset == REG_SIZE && is_half(enabled, 16))
        q->vector = vector_of(v, value >> 16);
    if (q->enabled) /* a queue that runs stays as it is */
        return;
    if (offset == REG_SIZE && is_half(enabled, 0))
        q->size = (value & 0xffff) <= VIRTIO_SIZE_MAX ? (uint16_t)value : 0;
    if (offset == REG_ENABLE && is_half(enabled, 0) && (value & 0xffff) == 1)
        virtio_queue_enable(v, q);
    if (offset < REG_DESC)
        return;
    address = queue_address(q, offset);
    *address &= ~((uint64_t)enabled << shift);
    *address |= (uint64_t)(value & enabled) << shift;
}

static void common_write(virtio *v, uint32_t offset, uint32_t value, uint32_t enabled)
{
    switch (offset) {
    case REG_DEVICE_SELECT:
        v->device_select = (v->device_select & ~enabled) | (value & enabled);
        break;
    case REG_DEVICE_FEATURE:
        break;
    case REG_DRIVER_SELECT:
        v->driver_select = (v->driver_select & ~enabled) | (value & enabled);
        break;
    case REG_DRIVER_FEATURE:
        features_write(v, value, enabled);
        break;
    case REG_VECTOR:
        if (is_half(enabled, 0))
            v->config_vector = vector_of(v, value & 0xffff);
        break;
    case REG_STATUS:
        if (enabled & 0xff)
            status_write(v, (uint8_t)value);
        if (is_half(enabled, 16))
            v->queue_select = (uint16_t)(value >> 16);
        break;
    default:
        queue_write(v, offset, value, enabled);
        break;
    }
}

/* ==== 4  Registers ============================================================================ */

/* Reading the interrupt status clears it. */
static uint32_t isr_read(virtio *v, uint32_t enabled)
{
    uint8_t isr = v->isr;
    if (enabled & 0xff)
        v->isr = 0;
    return isr;
}

/* A dword of BAR 0, of which the enabled bits are read. */
static uint32_t reg_read(virtio *v, uint32_t offset, uint32_t enabled)
{
    uint32_t value = 0;
    if (offset < VIRTIO_COMMON + VIRTIO_COMMON_BYTES)
        return common_read(v, offset);
    if (offset == VIRTIO_ISR)
        return isr_read(v, enabled);
    if (offset >= VIRTIO_CONFIG && offset - VIRTIO_CONFIG < v->set.config_bytes)
        return dxpu_get_le32(v->config + (offset - VIRTIO_CONFIG));
    (void)fn_msix_read(&v->fn, 0, offset, &value);
    return value;
}

/* The queue is the place that is written; with NOTIFICATION_DATA its index comes along. */
static void notify_write(virtio *v, uint32_t offset, uint32_t value, uint32_t enabled)
{
    uint32_t queue = (offset - VIRTIO_NOTIFY) / NOTIFY_STRIDE;
    uint16_t index = (uint16_t)(value >> 16);
    bool told = (v->accepted & VIRTIO_F_NOTIFICATION_DATA) && is_half(enabled, 16);
    if (queue < v->set.queues && (v->status & VIRTIO_DRIVER_OK))
        virtio_notified(v, &v->queue[queue], told ? &index : NULL);
}

static void reg_write(virtio *v, uint32_t offset, uint32_t value, uint32_t enabled)
{
    if (offset < VIRTIO_COMMON + VIRTIO_COMMON_BYTES)
        common_write(v, offset, value, enabled);
    else if (offset >= VIRTIO_NOTIFY && offset < VIRTIO_TABLE)
        notify_write(v, offset, value, enabled);
    else
        (void)fn_msix_write(&v->fn, 0, offset, value, enabled);
}

/* ==== 5  Configuration access =============================================== 1.2, 4.1.4.9 ==== */

/* Where the window of the last capability leads: the dword, how far its bytes are shifted in it,
   and their mask.  False: nowhere. */
static bool access_place(const virtio *v, uint32_t *offset, unsigned *shift, uint32_t *mask)
{
    const uint32_t *c = &v->fn.pci.config[ACCESS_DW];
    uint32_t bytes = c[2], at = c[1];
    if ((c[0] & 0xff) || (bytes != 1 && bytes != 2 && bytes != 4) || at % bytes ||
        at >= VIRTIO_BAR_BYTES)
        return false;
    *offset = at & ~(uint32_t)3;
    *shift = (at & 3) * 8;
    *mask = bytes == 4 ? 0xffffffffu : (1u << bytes * 8) - 1;
    return true;
}

static bool is_access(const dxpu_tlp *t, uint8_t type)
{
    return t->type == type && t->register_bytes / 4u == ACCESS_DW + 3 &&
           DXPU_BDF_FN(t->target) == 0 && t->first_be && !t->ep;
}

static void access_read(virtio *v)
{
    uint32_t offset, mask;
    unsigned shift;
    if (access_place(v, &offset, &shift, &mask))
        v->fn.pci.config[ACCESS_DW + 3] = reg_read(v, offset, mask << shift) >> shift & mask;
}

static void access_write(virtio *v)
{
    uint32_t offset, mask, value = v->fn.pci.config[ACCESS_DW + 3];
    unsigned shift;
    if (access_place(v, &offset, &shift, &mask))
        reg_write(v, offset, (value & mask) << shift, mask << shift);
}

/* ==== 6  Reset ================================================================================ */

/* fn.flr */
static void function_reset(void *user)
{
    virtio *v = user;
    v->count.function_resets++;
    device_reset(v);
    fn_reset(&v->fn);
}

void virtio_reset(void *device)
{
    virtio *v = device;
    device_reset(v);
    fn_link_reset(&v->fn);
    fn_power_on(&v->fn);
}

void virtio_event(void *device, const dxpu_event *e)
{
    virtio *v = device;
    if (e->type != DXPU_EVENT_HOT_RESET || !(e->flags & DXPU_EVENT_ON))
        return;
    device_reset(v);
    fn_link_reset(&v->fn);
}

/* ==== 7  TLPs ================================================================================= */

static void read_registers(virtio *v, const dxpu_tlp *t)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
    uint64_t offset;
    if (fn_locate(&v->fn, t, &offset) < 0) {
        fn_unsupported(&v->fn, t);
        return;
    }
    v->count.register_reads++;
    for (uint32_t i = 0; i < t->length_dw; i++)
        dxpu_put_le32(data + (size_t)i * 4,
                      reg_read(v, (uint32_t)offset + i * 4, pci_enabled(t, i)));
    pci_complete_read(&v->fn.pci, t, data);
}

static void write_registers(virtio *v, const dxpu_tlp *t)
{
    uint64_t offset = 0;
    int bar = fn_locate(&v->fn, t, &offset);
    if (fn_refuse_write(&v->fn, t, bar))
        return;
    v->count.register_writes++;
    for (uint32_t i = 0; i < t->length_dw; i++) {
        uint32_t enabled = pci_enabled(t, i);
        if (enabled)
            reg_write(v, (uint32_t)offset + i * 4, dxpu_get_le32(t->payload.ptr + (size_t)i * 4),
                      enabled);
    }
}

void virtio_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    virtio *v = device;
    (void)bytes;
    if (t->type == DXPU_TLP_MRD) {
        read_registers(v, t);
    } else if (t->type == DXPU_TLP_MWR) {
        write_registers(v, t);
    } else {
        if (is_access(t, DXPU_TLP_CFGRD0))
            access_read(v);
        (void)fn_tlp(&v->fn, t);
        if (is_access(t, DXPU_TLP_CFGWR0))
            access_write(v);
    }
    virtio_pump(v);
}

/* ==== 8  Values of what is gone ============================================== 1.2, 4.1.4.3 === */

/* Drivers wait without limit until these read 0: device_status after a reset of the device,
   queue_reset and queue_enable after one of a queue. */
unsigned virtio_values_at(unsigned bar, uint64_t common, uint32_t common_bytes,
                          device_value out[DEVICE_VALUES_MAX])
{
    static const struct {
        uint8_t offset, bytes;
    } awaited[] = { { REG_STATUS, 1 }, { REG_ENABLE, 2 }, { REG_QUEUE_RESET + 2, 2 } };
    unsigned count = 0;
    for (unsigned i = 0; i < sizeof awaited / sizeof awaited[0]; i++) {
        if ((uint32_t)awaited[i].offset + awaited[i].bytes > common_bytes)
            continue;
        out[count] = (device_value){ .bar = (uint8_t)bar, .bytes = awaited[i].bytes };
        out[count++].offset = common + awaited[i].offset;
    }
    return count;
}

/* device_kind.values */
unsigned virtio_values(const void *device, device_value out[DEVICE_VALUES_MAX])
{
    (void)device;
    return virtio_values_at(0, VIRTIO_COMMON, VIRTIO_COMMON_BYTES, out);
}

/* ==== 9  Life ================================================================================= */

void virtio_tick(void *device, uint64_t now_ns)
{
    virtio *v = device;
    fn_tick(&v->fn, now_ns);
    virtio_pump(v);
}

int virtio_open(virtio *v, const virtio_setup *set, const virtio_type *type,
                const device_settings *s, const device_port *port)
{
    fn_setup f = { .vendor = VIRTIO_VENDOR,
                   .bar = { { VIRTIO_BAR_BYTES, PCI_BAR_64 } }, /* reading may have effects */
                   .msix_table = VIRTIO_TABLE,
                   .msix_pba = VIRTIO_PBA,
                   .errors = true };
    v->set = *set;
    v->type = type;
    v->offered = set->features | VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX | VIRTIO_F_VERSION_1 |
                 VIRTIO_F_ACCESS_PLATFORM | VIRTIO_F_NOTIFICATION_DATA | VIRTIO_F_RING_RESET;
    f.device = (uint16_t)(VIRTIO_DEVICE + set->type);
    f.class_revision = set->class_code << 8 | 1; /* revision 1: no legacy interface */
    f.msix = set->queues + 1;
    f.mps_bytes = s->mps_bytes;
    f.mrrs_bytes = s->mrrs_bytes;
    f.timeout_ns = s->timeout_ns;
    f.serial = s->identity;
    f.own = v->capabilities;
    f.own_count = make_capabilities(v);
    jobs_here(&v->done, &v->jobs);
    if (s->jobs)
        v->jobs = *s->jobs;
    virtio_list_clear(&v->free);
    virtio_list_clear(&v->sending);
    fn_init(&v->fn, &f, port, v, function_reset);
    v->pool = calloc(set->requests, set->request_bytes);
    if (!v->pool)
        return -1;
    device_reset(v);
    return 0;
}

void virtio_close(virtio *v)
{
    if (!v->pool) /* it could not be made, in a job: it would wait for itself */
        return;
    device_reset(v);
    v->jobs.settle(v->jobs.user);
    while (virtio_reap(v))
        continue;
    free(v->pool);
}

void virtio_report(const virtio *v, report *r)
{
#define VIRTIO_PRINT(name) report_number(r, #name, v->count.name);
    VIRTIO_COUNTERS(VIRTIO_PRINT)
#undef VIRTIO_PRINT
    fn_report(&v->fn, r);
}
