/* nvme.c - see nvme.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Registers   2 Reset   3 TLPs   4 Kind */
#include "nvme_model.h"

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
#define REG_CC_EN     0x00000001u
#define REG_CC_LAYOUT 0x00003ff0u /* command set, page size, arbitration: only 0 of each */
#define REG_CC_SHN    0x0000c000u
#define REG_CC_MASK   0x00fffff1u
#define REG_CSTS_SHST 0x0000000cu
#define REG_CSTS_SHUT 0x00000008u /* shutdown complete */

/* 1024 entries, contiguous queues, ready within 10 s, the NVM command set, 4 KB pages */
#define REG_CAP_LOW  ((NVME_QUEUE_ENTRIES - 1u) | 1u << 16 | 20u << 24)
#define REG_CAP_HIGH (1u << 5)

static uint32_t reg_read(const nvme *n, uint32_t offset)
{
    switch (offset) {
    case REG_CAP:
        return REG_CAP_LOW;
    case REG_CAP + 4:
        return REG_CAP_HIGH;
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
    default: /* doorbells read as 0 */
        return offset >= NVME_TABLE ? nvme_msix_read(n, offset) : 0;
    }
}

/* As after a controller reset: what the admin queue's registers say stays. */
static void controller_reset(nvme *n)
{
    nvme_queues_clear(n);
    nvme_features_reset(n);
    n->cc = n->csts = n->intms = 0;
    n->count.controller_resets++;
}

static void controller_enable(nvme *n)
{
    uint32_t sq = (n->aqa & 0xfff) + 1, cq = (n->aqa >> 16 & 0xfff) + 1;
    n->csts = 0;
    if ((n->cc & REG_CC_LAYOUT) || sq < 2 || cq < 2) {
        n->csts |= NVME_CSTS_CFS;
        return;
    }
    nvme_cq_open(n, 0, n->acq, cq, 0, true);
    nvme_sq_open(n, 0, n->asq, sq, 0);
    n->csts |= NVME_CSTS_RDY;
}

static void reg_write_cc(nvme *n, uint32_t value)
{
    uint32_t before = n->cc;
    value &= REG_CC_MASK;
    n->cc = value;
    if ((before & REG_CC_EN) && !(value & REG_CC_EN))
        controller_reset(n);
    if ((value & REG_CC_SHN) && !(n->csts & REG_CSTS_SHST)) {
        if (nvme_store_sync(&n->store))
            n->count.store_errors++;
        n->csts |= REG_CSTS_SHUT;
    }
    if (!(before & REG_CC_EN) && (value & REG_CC_EN))
        controller_enable(n);
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
        nvme_msix_write(n, offset, value, enabled);
        return;
    }
    if (offset >= NVME_DOORBELLS) {
        if ((enabled & 0xffff) == 0xffff) /* half an index is none */
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
    default:
        break;
    }
}

/* ==== 2  Reset ================================================================================ */

/* Everything of the function but what identifies it on its bus. */
static void function_reset(nvme *n)
{
    nvme_queues_clear(n);
    nvme_features_reset(n);
    nvme_config_reset(n);
    nvme_msix_reset(n);
    n->cc = n->csts = n->intms = n->aqa = 0;
    n->asq = n->acq = 0;
    n->count.function_resets++;
}

/* The link was down: nothing that was in flight will be answered. */
static void conventional_reset(nvme *n)
{
    function_reset(n);
    nvme_fetch_forget(n);
    n->bdf = 0;
}

/* ==== 3  TLPs ================================================================================= */

static void config_request(nvme *n, const dxpu_tlp *t)
{
    unsigned dw = t->register_bytes / 4u;
    uint8_t bytes[4];
    dxpu_bytes data = { bytes, sizeof bytes }, none = { NULL, 0 };
    n->count.config++;
    if (DXPU_BDF_FN(t->target) != 0 || t->ep) { /* the only function is 0 */
        nvme_unsupported(n, t);
        return;
    }
    if (t->type == DXPU_TLP_CFGRD0) {
        nvme_put32(bytes, nvme_config_read(n, dw));
        nvme_complete(n, t, DXPU_CPL_SC, data);
        return;
    }
    n->bdf = t->target;
    if (nvme_config_write(n, dw, t->first_be, nvme_le32(t->payload.ptr)))
        function_reset(n);
    nvme_complete(n, t, DXPU_CPL_SC, none);
    nvme_msix_flush(n); /* a mask may be gone */
}

/* Offset of a request in the BAR; false when not all of it lies there. */
static bool locate(const nvme *n, const dxpu_tlp *t, uint32_t *offset)
{
    uint64_t base = nvme_config_bar(n), at = t->address - base;
    if (!nvme_config_decodes(n) || t->address < base || at >= NVME_BAR_BYTES ||
        t->length_dw * 4u > NVME_BAR_BYTES - at)
        return false;
    *offset = (uint32_t)at;
    return true;
}

static void read_registers(nvme *n, const dxpu_tlp *t)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
    uint32_t offset;
    if (!locate(n, t, &offset)) {
        nvme_unsupported(n, t);
        return;
    }
    n->count.register_reads++;
    for (uint32_t i = 0; i < t->length_dw; i++)
        nvme_put32(data + (size_t)i * 4, reg_read(n, offset + i * 4));
    nvme_complete_read(n, t, data);
}

static void write_registers(nvme *n, const dxpu_tlp *t)
{
    uint32_t offset;
    if (!locate(n, t, &offset)) {
        n->count.posted_dropped++;
        nvme_config_status(n, 0, NVME_DEVICE_UNSUPPORTED | NVME_DEVICE_NONFATAL);
        return;
    }
    if (t->ep) {
        n->count.poisoned++;
        nvme_config_status(n, NVME_STATUS_PARITY, NVME_DEVICE_NONFATAL);
        return;
    }
    n->count.register_writes++;
    for (uint32_t i = 0; i < t->length_dw; i++) {
        uint8_t be = i == 0 ? t->first_be : i + 1u == t->length_dw ? t->last_be : 0xf;
        uint32_t enabled = 0;
        for (unsigned b = 0; b < 4; b++)
            enabled |= be >> b & 1 ? 0xffu << 8 * b : 0;
        if (enabled)
            reg_write(n, offset + i * 4, nvme_le32(t->payload.ptr + (size_t)i * 4), enabled);
    }
}

static void nvme_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    nvme *n = device;
    (void)bytes;
    switch (t->type) {
    case DXPU_TLP_MRD:
        read_registers(n, t);
        break;
    case DXPU_TLP_MWR:
        write_registers(n, t);
        break;
    case DXPU_TLP_CFGRD0:
    case DXPU_TLP_CFGWR0:
        config_request(n, t);
        break;
    case DXPU_TLP_CPL:
    case DXPU_TLP_CPLD:
        nvme_dma_completion(n, t);
        break;
    case DXPU_TLP_MSG:
    case DXPU_TLP_MSGD:
        n->count.messages++; /* power limits and the like mean nothing here */
        break;
    default:
        if (dxpu_tlp_class(t) == DXPU_NONPOSTED)
            nvme_unsupported(n, t);
        else
            n->count.completions_refused++;
        break;
    }
    nvme_pump(n);
}

/* ==== 4  Kind ================================================================================= */

static void nvme_tick(void *device, uint64_t now_ns)
{
    nvme *n = device;
    n->now_ns = now_ns;
    nvme_dma_expire(n);
    nvme_pump(n);
}

static void nvme_link_event(void *device, const dxpu_event *e)
{
    if (e->type == DXPU_EVENT_HOT_RESET && (e->flags & DXPU_EVENT_ON))
        conventional_reset(device);
}

static void nvme_reset(void *device)
{
    nvme *n = device;
    conventional_reset(n);
    nvme_log_reset(n);
    n->blocks_read = n->blocks_written = n->reads = n->writes = 0;
    n->power_cycles++;
}

static void nvme_destroy(void *device)
{
    nvme *n = device;
    nvme_queues_clear(n); /* gives the buffers back */
    nvme_store_close(&n->store);
    free(n->commands);
    free(n);
}

static void *nvme_create(const device_settings *s, const device_port *port)
{
    nvme *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->port = port;
    n->identity = s->identity;
    n->timeout_least_ns = s->timeout_ns;
    n->block_log2 = s->block_bytes == 4096 ? 12 : 9;
    n->fetch_tail = &n->fetch_head;
    (void)dxpu_tags_init(&n->tags, n->tag_entries, DXPU_TAGS_32, 0, DXPU_TAGS_32, DXPU_NEVER);
    while (128u << n->mps_code < s->mps_bytes && n->mps_code < 5)
        n->mps_code++;
    n->commands = calloc(NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS, sizeof *n->commands);
    if (!n->commands ||
        nvme_store_open(&n->store, s->file,
                        s->file_bytes || s->file ? s->file_bytes : s->memory_bytes)) {
        free(n->commands);
        free(n);
        return NULL;
    }
    nvme_reset(n);
    return n;
}

static void nvme_report(void *device, report *r)
{
    nvme *n = device;
#define NVME_PRINT(name) report_number(r, #name, n->count.name);
    NVME_COUNTERS(NVME_PRINT)
#undef NVME_PRINT
}

const device_kind nvme_kind = { "nvme",     nvme_create, nvme_destroy, nvme_tlp, nvme_link_event,
                                nvme_reset, nvme_report, nvme_tick,    NULL };
