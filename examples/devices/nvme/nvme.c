/* nvme.c - see nvme.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Registers   2 Reset   3 TLPs   4 Kind */
#include "nvme_model.h"
#include "log.h"

#include <stdlib.h>

/* ==== 1  Registers ========================================================= NVMe 1.4, 3.1 ==== */

enum { /* byte offsets */
       REG_CAP = 0x00,
       REG_VS = 0x08,
       REG_INTMS = 0x0c,
       REG_INTMC = 0x10,
       REG_CC = 0x14,
       REG_CSTS = 0x1c,
       REG_AQA = 0x24,
       REG_ASQ = 0x28,
       REG_ACQ = 0x30
};
#define REG_CC_LAYOUT  0x00003ff0u /* command set, page size, arbitration: only 0 of each */
#define REG_CC_SHN     0x0000c000u
#define REG_CC_MASK    0x00fffff1u
#define REG_CSTS_SHST  0x0000000cu
#define REG_CSTS_SHUTS 0x00000004u /* shutdown is under way */
#define REG_CSTS_SHUT  0x00000008u /* shutdown complete */

/* 1024 entries, contiguous queues, ready within 10 s, the NVM command set, 4 KB pages */
#define REG_CAP_LOW  ((NVME_QUEUE_ENTRIES - 1u) | 1u << 16 | 20u << 24)
#define REG_CAP_HIGH (1u << 5)
#define REG_CAP_CMBS (1u << 25)

static uint32_t reg_read(const nvme *n, uint32_t offset)
{
    uint32_t v = 0;
    switch (offset) {
    case REG_CAP:
        return REG_CAP_LOW;
    case REG_CAP + 4:
        return REG_CAP_HIGH | (n->cmb.size ? REG_CAP_CMBS : 0);
    case REG_VS:
        return 0x00010400;
    case REG_INTMS:
    case REG_INTMC:
        return n->intms;
    case REG_CC:
        return n->cc;
    case REG_CSTS:
        return n->csts;
    case REG_AQA:
        return n->aqa;
    case REG_ASQ:
        return (uint32_t)n->asq;
    case REG_ASQ + 4:
        return (uint32_t)(n->asq >> 32);
    case REG_ACQ:
        return (uint32_t)n->acq;
    case REG_ACQ + 4:
        return (uint32_t)(n->acq >> 32);
    case NVME_CMBLOC:
    case NVME_CMBSZ:
    case NVME_CMBMSC:
    case NVME_CMBMSC + 4:
    case NVME_CMBSTS:
        return nvme_cmb_register(n, offset);
    default: /* doorbells read as 0 */
        (void)fn_msix_read(&n->fn, 0, offset, &v);
        return v;
    }
}

/* As after a controller reset: what the admin queue's registers say stays.  It is over, and the
   driver sees it so, when no access of before is under way: the data that the driver writes next
   stay. */
static void controller_reset(nvme *n)
{
    uint32_t ready = n->csts & NVME_CSTS_RDY;
    nvme_queues_clear(n);
    nvme_features_reset(n);
    nvme_reserve_reset(n);
    n->cc = n->intms = 0;
    n->resetting = n->dropped && ready;
    n->csts = n->resetting ? NVME_CSTS_RDY : 0;
    n->count.controller_resets++;
}

static void controller_enable(nvme *n)
{
    uint32_t sq = (n->aqa & 0xfff) + 1, cq = (n->aqa >> 16 & 0xfff) + 1;
    n->csts = 0;
    if ((n->cc & REG_CC_LAYOUT) || sq < 2 || cq < 2 ||
        nvme_cmb_has(n, n->acq, (uint64_t)cq * NVME_CQE_BYTES) || nvme_commands_open(n)) {
        n->csts |= NVME_CSTS_CFS;
        return;
    }
    nvme_cq_open(n, 0, n->acq, cq, 0, true);
    n->csts |= nvme_sq_open(n, 0, n->asq, sq, 0) ? NVME_CSTS_CFS : NVME_CSTS_RDY;
}

void nvme_become_ready(nvme *n)
{
    if (n->dropped)
        return;
    if (n->resetting)
        n->csts &= ~(uint32_t)NVME_CSTS_RDY;
    n->resetting = false;
    if (!(n->cc & NVME_CC_EN) || (n->csts & (NVME_CSTS_RDY | NVME_CSTS_CFS)))
        return;
    nvme_access_drop(n, &n->shutter); /* its end would say that this controller is shut down */
    if (!n->dropped)
        controller_enable(n);
}

/* nvme_command.over: what was written is durable, or the host is not to think that all is safe. */
static void shut_down(nvme *n, nvme_command *c, uint16_t status)
{
    (void)c;
    n->csts &= ~REG_CSTS_SHST;
    n->csts |= status == NVME_SUCCESS ? REG_CSTS_SHUT : NVME_CSTS_CFS;
}

static void begin_shutdown(nvme *n)
{
    nvme_command *c = &n->shutter;
    uint16_t status;
    n->csts |= REG_CSTS_SHUTS;
    c->over = shut_down;
    c->fault = NVME_INTERNAL_ERROR;
    status = nvme_sync_all(n, c);
    if (status != NVME_PENDING)
        shut_down(n, c, status);
}

static void reg_write_cc(nvme *n, uint32_t value)
{
    uint32_t before = n->cc;
    value &= REG_CC_MASK;
    n->cc = value;
    if ((before & NVME_CC_EN) && !(value & NVME_CC_EN))
        controller_reset(n);
    if ((value & REG_CC_SHN) && !(n->csts & REG_CSTS_SHST))
        begin_shutdown(n);
}

static void reg_write64(uint64_t *reg, uint32_t offset, uint32_t value, uint32_t enabled)
{
    unsigned shift = offset & 4 ? 32 : 0;
    *reg = (*reg & ~((uint64_t)enabled << shift)) | (uint64_t)(value & enabled) << shift;
    *reg &= ~(uint64_t)(NVME_PAGE_BYTES - 1);
}

/* enabled: the bits whose bytes are written */
static void reg_write(nvme *n, uint32_t offset, uint32_t value, uint32_t enabled)
{
    if (offset >= NVME_TABLE) {
        (void)fn_msix_write(&n->fn, 0, offset, value, enabled);
        return;
    }
    if (offset >= NVME_DOORBELLS) {
        if ((enabled & 0xffff) == 0xffff) /* half an index is invalid */
            nvme_doorbell(n, offset, value & enabled);
        return;
    }
    switch (offset) {
    case REG_INTMS:
        n->intms |= value & enabled;
        break;
    case REG_INTMC:
        n->intms &= ~(value & enabled);
        break;
    case REG_CC:
        reg_write_cc(n, (n->cc & ~enabled) | (value & enabled));
        break;
    case REG_AQA:
        n->aqa = ((n->aqa & ~enabled) | (value & enabled)) & 0x0fff0fffu;
        break;
    case REG_ASQ:
    case REG_ASQ + 4:
        reg_write64(&n->asq, offset, value, enabled);
        break;
    case REG_ACQ:
    case REG_ACQ + 4:
        reg_write64(&n->acq, offset, value, enabled);
        break;
    case NVME_CMBMSC:
    case NVME_CMBMSC + 4:
        nvme_cmb_control(n, offset, value, enabled);
        break;
    default:
        break;
    }
}

/* ==== 2  Reset ================================================================================ */

/* Everything of the function but what identifies it on its bus, and CMBMSC, which outlives an FLR
   (7.3.2). */
static void function_reset(void *user)
{
    nvme *n = user;
    nvme_queues_clear(n); /* the host learns that their push rules end */
    nvme_features_reset(n);
    nvme_reserve_reset(n);
    fn_reset(&n->fn);
    nvme_cmb_clear(n);
    n->resetting = false; /* but it is not ready before accesses of before are over */
    n->cc = n->csts = n->intms = n->aqa = 0;
    n->asq = n->acq = 0;
    n->count.function_resets++;
}

/* The link was down: nothing that was in flight will be answered. */
static void conventional_reset(nvme *n)
{
    function_reset(n);
    fn_link_reset(&n->fn);
}

/* ==== 3  TLPs ================================================================================= */

static void read_memory(nvme *n, const dxpu_tlp *t)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
    uint64_t offset;
    int bar = fn_locate(&n->fn, t, &offset);
    if (bar < 0) {
        fn_unsupported(&n->fn, t);
        return;
    }
    if (bar == NVME_CMB_BAR) {
        nvme_cmb_read(n, t, offset);
        return;
    }
    n->count.register_reads++;
    for (uint32_t i = 0; i < t->length_dw; i++)
        dxpu_put_le32(data + (size_t)i * 4, reg_read(n, (uint32_t)offset + i * 4));
    pci_complete_read(&n->fn.pci, t, data);
}

static void write_memory(nvme *n, const dxpu_tlp *t)
{
    uint64_t offset = 0;
    int bar = fn_locate(&n->fn, t, &offset);
    if (fn_refuse_write(&n->fn, t, bar))
        return;
    if (bar == NVME_CMB_BAR) {
        nvme_cmb_write(n, t, offset);
        return;
    }
    n->count.register_writes++;
    for (uint32_t i = 0; i < t->length_dw; i++) {
        uint32_t enabled = pci_enabled(t, i);
        if (enabled)
            reg_write(n, (uint32_t)offset + i * 4, dxpu_get_le32(t->payload.ptr + (size_t)i * 4),
                      enabled);
    }
}

/* What a host that needs no answer can make the controller do in one call has a limit. */
static void begin_turn(nvme *n)
{
    fn_turn(&n->fn, n->turn_share);
    n->entries_left = NVME_TURN_ENTRIES / n->turn_share;
    n->quick_left = NVME_TURN_QUICK_BYTES / n->turn_share;
}

static void nvme_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    nvme *n = device;
    (void)bytes;
    begin_turn(n);
    if (t->type == DXPU_TLP_MRD)
        read_memory(n, t);
    else if (t->type == DXPU_TLP_MWR)
        write_memory(n, t);
    else
        (void)fn_tlp(&n->fn, t);
    nvme_pump(n);
}

/* ==== 4  Kind ================================================================================= */

/* device_kind.unfinished.  A call that begins finds both limits as they are at first. */
static bool nvme_unfinished(const void *device)
{
    const nvme *n = device;
    return (n->cc & NVME_CC_EN) && (!n->entries_left || (n->cmb.size && !n->fn.local_left));
}

static void nvme_tick(void *device, uint64_t now_ns)
{
    nvme *n = device;
    begin_turn(n);
    if (!n->fn.now_ns)
        n->start_ns = now_ns;
    else if (n->commands && n->free_count[1] < NVME_IO_COMMANDS)
        n->busy_ns += now_ns - n->fn.now_ns;
    fn_tick(&n->fn, now_ns);
    nvme_pump(n);
}

/* A hot reset keeps CMBMSC, since Linux's driver writes it once and survives one.  No driver
   goes on where the power was off, and the next one may have no buffer: its memory may be at
   that place. */
static void nvme_link_event(void *device, const dxpu_event *e)
{
    nvme *n = device;
    if (e->type == DXPU_EVENT_SLOT_POWER && !(e->flags & DXPU_EVENT_ON))
        n->cmbmsc = 0;
    if (e->type == DXPU_EVENT_HOT_RESET && (e->flags & DXPU_EVENT_ON))
        conventional_reset(device);
}

/* As after power-up, with a reset of the link or of the function alone. */
static void become_new(nvme *n, void (*reset)(nvme *n))
{
    if ((n->cc & NVME_CC_EN) && !(n->csts & REG_CSTS_SHST))
        n->unsafe_shutdowns++;
    fn_push_forget(&n->fn);
    reset(n);
    nvme_commands_close(n);
    n->cmbmsc = 0;
    fn_power_on(&n->fn);
    nvme_log_reset(n);
    n->blocks_read = n->blocks_written = n->reads = n->writes = 0;
    n->power_cycles++;
}

static void nvme_reset(void *device)
{
    become_new(device, conventional_reset);
}

static void reset_alone(nvme *n)
{
    function_reset(n);
}

/* device_kind.end */
static void nvme_end(void *device)
{
    become_new(device, reset_alone);
}

/* device_kind.restart */
static void nvme_restart(void *device)
{
    nvme *n = device;
    uint64_t cmbmsc = n->cmbmsc;
    nvme_reset(n);
    n->cmbmsc = cmbmsc;
}

/* What create() has made so far. */
static void nvme_close(nvme *n)
{
    nvme_subsystem_part(n);
    pages_close(&n->cmb);
    free(n->layout.path);
    free(n);
}

static void nvme_destroy(void *device)
{
    nvme *n = device;
    fn_push_forget(&n->fn);
    nvme_queues_clear(n); /* gives the buffers back */
    nvme_access_drop(n, &n->wiper);
    nvme_drop_buffer(n, &n->wiper);
    nvme_access_settle(n); /* the last write of the reservations, too */
    nvme_drop_buffer(n, &n->keeper);
    nvme_commands_close(n);
    nvme_close(n);
}

static void *nvme_create(const device_settings *s, const device_port *port)
{
    nvme *n = calloc(1, sizeof *n);
    fn_setup f = { .vendor = NVME_VENDOR,
                   .device = NVME_DEVICE,
                   .class_revision = 0x01080201u,             /* mass storage, NVMe; revision 1 */
                   .bar = { { NVME_BAR_BYTES, PCI_BAR_64 } }, /* reading may have effects */
                   .msix = NVME_VECTORS,
                   .msix_table = NVME_TABLE,
                   .msix_pba = NVME_PBA,
                   .local = nvme_cmb_local,
                   .errors = true };
    if (!n)
        return NULL;
    jobs_here(&n->done, &n->jobs);
    if (s->jobs)
        n->jobs = *s->jobs;
    if (nvme_cmb_open(n, s->cmb_bytes)) {
        free(n);
        return NULL;
    }
    f.bar[NVME_CMB_BAR].bytes = s->cmb_bytes;
    f.bar[NVME_CMB_BAR].flags = PCI_BAR_64 | PCI_BAR_PREFETCHABLE;
    f.mps_bytes = s->mps_bytes;
    f.mrrs_bytes = s->mrrs_bytes;
    f.timeout_ns = s->timeout_ns;
    f.no_push = s->no_push;
    f.several = s->function_count > 1;
    f.virtuals = (uint16_t)s->virtuals;
    f.physical = s->physical;
    f.number = (uint8_t)s->function;
    f.serial = s->subsystem ? block_store_mix(s->identity + s->controller) : s->identity;
    fn_init(&n->fn, &f, port, n, function_reset);
    n->identity = s->identity;
    if (s->serial)
        snprintf(n->serial, sizeof n->serial, "%s", s->serial);
    else
        snprintf(n->serial, sizeof n->serial, "DXPU%016llx", (unsigned long long)n->identity);
    n->factory_log2 = s->block_bytes == 4096 ? 12 : 9;
    nvme_list_clear(&n->layout.waiting);
    nvme_list_clear(&n->reserving);
    n->id = s->controller ? (uint16_t)s->controller : NVME_CONTROLLER;
    n->functions = s->functions;
    n->turn_share = s->turn_share ? (unsigned)s->turn_share : 1;
    if (nvme_subsystem_join(n, s) || nvme_layout_open(n, s)) {
        nvme_close(n);
        return NULL;
    }
    nvme_subsystem_attachments(n);
    nvme_reset(n);
    return n;
}

/* device_kind.medium */
static uint64_t nvme_medium(void *device, bool *pristine)
{
    const nvme *n = device;
    uint64_t all = 0;
    *pristine = nvme_subsystem_is_pristine(n->subsystem);
    for (uint32_t i = 0; i < n->ns_count; i++) {
        if (n->ns[i].store->medium)
            all = block_store_mix(all + n->ns[i].store->medium); /* which comes first counts, too */
    }
    return all;
}

/* device_kind.pci */
static struct pci_function *nvme_pci(void *device)
{
    return &((nvme *)device)->fn.pci;
}

/* device_kind.fits */
static bool nvme_fits(void *device)
{
    return ((const nvme *)device)->layout.fits;
}

static void nvme_report(void *device, report *r)
{
    nvme *n = device;
#define NVME_PRINT(name) report_number(r, #name, n->count.name);
    NVME_COUNTERS(NVME_PRINT)
#undef NVME_PRINT
    report_number(r, "cmb_accesses", n->fn.local_accesses);
    fn_report(&n->fn, r);
}

/* Of all namespaces: tenants divide it as they like. */
static void nvme_attributes(const void *device, char out[DEVICE_ATTRIBUTES_BYTES])
{
    const nvme *n = device;
    uint64_t size = 0;
    for (unsigned i = 0; i < n->ns_count; i++)
        size += n->ns[i].store->size;
    block_store_attributes(size, 0, out);
}

const device_kind nvme_kind = { .name = "nvme",
                                .vendor = NVME_VENDOR,
                                .device = NVME_DEVICE,
                                .class_code = 0x010802,
                                .create = nvme_create,
                                .destroy = nvme_destroy,
                                .tlp = nvme_tlp,
                                .event = nvme_link_event,
                                .reset = nvme_reset,
                                .restart = nvme_restart,
                                .end = nvme_end,
                                .report = nvme_report,
                                .tick = nvme_tick,
                                .unfinished = nvme_unfinished,
                                .wipe = nvme_wipe,
                                .leave = nvme_leave,
                                .medium = nvme_medium,
                                .fits = nvme_fits,
                                .pci = nvme_pci,
                                .attributes = nvme_attributes };
