/* memory.c - see memory.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Function   2 Memory   3 Atomics   4 Kind */
#include "memory_model.h"

#include <stdlib.h>

/* ==== 1  Function ============================================================================= */

static const pci_identity memory_identity = { MEMORY_VENDOR, MEMORY_DEVICE,
                                              0x05000001u, /* RAM controller, revision 1 */
                                              MEMORY_CAP_PCIE, 16 };

static void function_reset(memory *m)
{
    pci_reset(&m->f, &memory_identity);
    pci_bar(&m->f, 0, m->store.size, PCI_BAR_64 | PCI_BAR_PREFETCHABLE);
    /* completes 32-, 64- and 128-bit atomics */
    pci_register(&m->f, MEMORY_CAP_PCIE / 4 + PCIE_DEVICE_CAP2, 0x00000380u, 0);
}

static void unsupported(memory *m, const dxpu_tlp *req)
{
    m->count.unsupported++;
    pci_unsupported(&m->f, req);
}

/* ==== 2  Memory =============================================================================== */

/* Where the first `bytes` bytes of a request lie, NULL when not all of them are ours. */
static uint8_t *locate(memory *m, const dxpu_tlp *t, uint32_t bytes)
{
    uint64_t offset;
    if (!pci_locate(&m->f, 0, t, bytes, &offset))
        return NULL;
    if (t->type != DXPU_TLP_MRD)
        pages_written(&m->store, offset + bytes);
    return m->store.bytes + offset;
}

static void read_memory(memory *m, const dxpu_tlp *t)
{
    const uint8_t *from = locate(m, t, t->length_dw * 4u);
    if (!from) {
        unsupported(m, t);
        return;
    }
    m->count.reads++;
    pci_complete_read(&m->f, t, from);
}

static void write_memory(memory *m, const dxpu_tlp *t)
{
    uint8_t *to = locate(m, t, t->length_dw * 4u);
    if (!to) {
        m->count.writes_dropped++;
        pci_unsupported(&m->f, t);
    } else if (t->ep) {
        m->count.poisoned++;
        pci_poisoned(&m->f);
    } else {
        m->count.writes++;
        pci_store(to, t);
    }
}

static void deferrable_write(memory *m, const dxpu_tlp *t)
{
    uint8_t *to = locate(m, t, t->length_dw * 4u);
    dxpu_bytes none = { NULL, 0 };
    if (!to || t->ep) {
        unsupported(m, t);
        return;
    }
    m->count.writes++;
    pci_store(to, t);
    pci_complete(&m->f, t, DXPU_CPL_SC, none);
}

/* ==== 3  Atomics ==============================================================================
   Operands are in memory order, least significant byte first. */

static void add(uint8_t *to, const uint8_t *operand, uint32_t len)
{
    unsigned carry = 0;
    for (uint32_t i = 0; i < len; i++) {
        carry += (unsigned)to[i] + operand[i];
        to[i] = (uint8_t)carry;
        carry >>= 8;
    }
}

static void atomic(memory *m, const dxpu_tlp *t)
{
    uint32_t len = t->length_dw * 4u;
    uint8_t *to, before[16];
    dxpu_bytes data = { before, 0 };
    if (t->type == DXPU_TLP_CAS)
        len /= 2; /* compare and swap carry two operands */
    to = locate(m, t, len);
    if (!to || t->ep) {
        unsupported(m, t);
        return;
    }
    m->count.atomics++;
    memcpy(before, to, len);
    data.len = len;
    if (t->type == DXPU_TLP_FETCHADD)
        add(to, t->payload.ptr, len);
    else if (t->type == DXPU_TLP_SWAP)
        memcpy(to, t->payload.ptr, len);
    else if (!memcmp(to, t->payload.ptr, len))
        memcpy(to, t->payload.ptr + len, len);
    pci_complete(&m->f, t, DXPU_CPL_SC, data);
}

/* ==== 4  Kind ================================================================================= */

static void memory_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    memory *m = device;
    (void)bytes;
    switch (t->type) {
    case DXPU_TLP_MRD:
        read_memory(m, t);
        break;
    case DXPU_TLP_MWR:
        write_memory(m, t);
        break;
    case DXPU_TLP_DMWR:
        deferrable_write(m, t);
        break;
    case DXPU_TLP_FETCHADD:
    case DXPU_TLP_SWAP:
    case DXPU_TLP_CAS:
        atomic(m, t);
        break;
    case DXPU_TLP_CFGRD0:
    case DXPU_TLP_CFGWR0:
        m->count.config++;
        if (pci_config_request(&m->f, t)) {
            function_reset(m);
            m->count.resets++;
        }
        break;
    case DXPU_TLP_MSG:
    case DXPU_TLP_MSGD:
        m->count.messages++; /* none of them means anything to memory */
        break;
    default:
        if (dxpu_tlp_class(t) == DXPU_NONPOSTED)
            unsupported(m, t);
        else
            m->count.completions_ignored++; /* it never asks for any */
        break;
    }
}

static void memory_event(void *device, const dxpu_event *e)
{
    memory *m = device;
    m->count.events++;
    if (e->type == DXPU_EVENT_HOT_RESET && (e->flags & DXPU_EVENT_ON))
        function_reset(m);
}

static void memory_reset(void *device)
{
    memory *m = device;
    pages_clear(&m->store);
    m->f.bdf = 0;
    function_reset(m);
    m->count.resets++;
}

static void memory_tick(void *device, uint64_t now_ns)
{
    (void)now_ns;
    pages_reap(&((memory *)device)->store);
}

static void memory_destroy(void *device)
{
    memory *m = device;
    pages_close(&m->store);
    free(m);
}

static void *memory_create(const device_settings *s, const device_port *port)
{
    memory *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    pci_init(&m->f, port, s->mps_bytes);
    if (pages_open(&m->store, s->memory_bytes, false, s)) {
        free(m);
        return NULL;
    }
    function_reset(m);
    return m;
}

static void memory_report(void *device, report *r)
{
    memory *m = device;
#define MEMORY_PRINT(name) report_number(r, #name, m->count.name);
    MEMORY_COUNTERS(MEMORY_PRINT)
#undef MEMORY_PRINT
}

const device_kind memory_kind = { .name = "memory",
                                  .vendor = MEMORY_VENDOR,
                                  .device = MEMORY_DEVICE,
                                  .class_code = 0x050000,
                                  .create = memory_create,
                                  .destroy = memory_destroy,
                                  .tlp = memory_tlp,
                                  .event = memory_event,
                                  .reset = memory_reset,
                                  .tick = memory_tick,
                                  .report = memory_report };
