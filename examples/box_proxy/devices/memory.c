/* memory.c - see memory.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Object   2 Configuration space   3 Completions   4 Memory   5 Atomics   6 Kind */
#include "memory.h"

#include <stdlib.h>

/* ==== 1  Object =============================================================================== */

enum { CONFIG_DW = 64, RCB_BYTES = 128 }; /* only a root complex may complete at 64 */

#define MEMORY_COUNTERS(X)                                                                         \
    X(reads)                                                                                       \
    X(writes)                                                                                      \
    X(atomics)                                                                                     \
    X(config)                                                                                      \
    X(messages)                                                                                    \
    X(completions_ignored)                                                                         \
    X(unsupported)                                                                                 \
    X(writes_dropped)                                                                              \
    X(poisoned)                                                                                    \
    X(resets)                                                                                      \
    X(events)

typedef struct memory {
    const device_port *port;
    uint8_t *bytes;
    uint64_t size;
    uint64_t dirty;    /* bytes from the start that may not be 0 any more */
    uint32_t mps_code; /* largest supported, as Device Capabilities says it */
    uint16_t bdf;      /* captured from configuration writes; 00:00.0 before the first */
    uint32_t config[CONFIG_DW];
    uint8_t out[DXPU_TLP_MAX_BYTES];
#define MEMORY_FIELD(name) uint64_t name;
    struct {
        MEMORY_COUNTERS(MEMORY_FIELD)
    } count;
#undef MEMORY_FIELD
} memory;

/* ==== 2  Configuration space ==================================================================
   Dwords as numbers, byte 0 in bits 7:0. */

enum { /* dword indices */
       CFG_ID = 0x00 / 4,
       CFG_COMMAND = 0x04 / 4,
       CFG_CLASS = 0x08 / 4,
       CFG_CACHE_LINE = 0x0c / 4,
       CFG_BAR0 = 0x10 / 4,
       CFG_BAR1 = 0x14 / 4,
       CFG_SUBSYSTEM = 0x2c / 4,
       CFG_CAPABILITIES = 0x34 / 4,
       CFG_INTERRUPT = 0x3c / 4,
       CFG_PCIE = MEMORY_CAP_PCIE / 4,
       CFG_DEVICE_CAP = CFG_PCIE + 1,
       CFG_DEVICE_CONTROL = CFG_PCIE + 2,
       CFG_LINK_CAP = CFG_PCIE + 3,
       CFG_LINK_CONTROL = CFG_PCIE + 4,
       CFG_DEVICE_CAP2 = CFG_PCIE + 9,
       CFG_DEVICE_CONTROL2 = CFG_PCIE + 10
};

enum {
    COMMAND_MEMORY = 0x0002,
    COMMAND_MASK = 0x0547, /* I/O, memory, master, parity, SERR#, INTx disable */
    DEVICE_CONTROL_MASK = 0x79ff,
    DEVICE_CONTROL_FLR = 0x8000,
    DEVICE_CONTROL_RESET = 0x2810, /* MRRS 512, No Snoop and Relaxed Ordering enabled */
    LINK_CONTROL_MASK = 0x00cb,
    DEVICE_CONTROL2_MASK = 0x001f
};

/* Configuration space as after reset (Base Spec 7.5). */
static void config_reset(memory *m)
{
    uint32_t *c = m->config;
    memset(c, 0, sizeof m->config);
    c[CFG_ID] = (uint32_t)MEMORY_DEVICE << 16 | MEMORY_VENDOR;
    c[CFG_COMMAND] = 0x0010u << 16; /* a capability list */
    c[CFG_CLASS] = 0x05000001u;     /* RAM controller, revision 1 */
    c[CFG_BAR0] = 0x0000000cu;      /* 64-bit, prefetchable */
    c[CFG_SUBSYSTEM] = c[CFG_ID];
    c[CFG_CAPABILITIES] = MEMORY_CAP_PCIE;
    c[CFG_PCIE] = 0x00020010u;                     /* PCI Express, last, version 2, endpoint */
    c[CFG_DEVICE_CAP] = 0x10008020u | m->mps_code; /* FLR, role-based errors, 8-bit tags */
    c[CFG_DEVICE_CONTROL] = DEVICE_CONTROL_RESET;
    c[CFG_LINK_CAP] = 0x00000103u; /* 8 GT/s, 16 lanes */
    c[CFG_LINK_CONTROL] = 0x0103u << 16;
    c[CFG_DEVICE_CAP2] = 0x00000380u; /* completes 32-, 64- and 128-bit atomics */
}

/* Bits of a register that software may change. */
static uint32_t config_mask(const memory *m, unsigned dw)
{
    switch (dw) {
    case CFG_COMMAND:
        return COMMAND_MASK;
    case CFG_CACHE_LINE:
        return 0x000000ffu;
    case CFG_BAR0:
        return (uint32_t) ~(m->size - 1) & ~(uint32_t)0xf;
    case CFG_BAR1:
        return (uint32_t)(~(m->size - 1) >> 32);
    case CFG_INTERRUPT:
        return 0x000000ffu;
    case CFG_DEVICE_CONTROL:
        return DEVICE_CONTROL_MASK;
    case CFG_LINK_CONTROL:
        return LINK_CONTROL_MASK;
    case CFG_DEVICE_CONTROL2:
        return DEVICE_CONTROL2_MASK;
    default:
        return 0;
    }
}

static void config_write(memory *m, unsigned dw, uint8_t be, uint32_t value)
{
    uint32_t enabled = 0, mask;
    for (unsigned i = 0; i < 4; i++) {
        if (be >> i & 1)
            enabled |= 0xffu << 8 * i;
    }
    mask = config_mask(m, dw) & enabled;
    m->config[dw] = (m->config[dw] & ~mask) | (value & mask);
    if (dw == CFG_DEVICE_CONTROL && (value & enabled & DEVICE_CONTROL_FLR)) {
        config_reset(m);
        m->count.resets++;
    }
}

static uint64_t bar(const memory *m)
{
    return (uint64_t)m->config[CFG_BAR1] << 32 | (m->config[CFG_BAR0] & ~(uint32_t)0xf);
}

static uint32_t mps_bytes(const memory *m)
{
    uint32_t code = m->config[CFG_DEVICE_CONTROL] >> 5 & 7;
    return 128u << (code < m->mps_code ? code : m->mps_code);
}

/* ==== 3  Completions ========================================================================== */

static void emit(memory *m, const dxpu_tlp *t)
{
    size_t len = 0;
    dxpu_bytes tlp = { m->out, 0 };
    int rc = dxpu_tlp_encode(t, m->out, sizeof m->out, &len);
    DXPU_ASSERT(rc == DXPU_OK);
    if (rc != DXPU_OK)
        return;
    tlp.len = len;
    m->port->emit(m->port->user, tlp);
}

/* One completion, with data when data.len is not 0. */
static void complete(memory *m, const dxpu_tlp *req, uint8_t status, dxpu_bytes data)
{
    dxpu_tlp cpl;
    dxpu_tlp_completion(req, m->bdf, status, &cpl);
    cpl.payload = data;
    emit(m, &cpl);
}

static void unsupported(memory *m, const dxpu_tlp *req)
{
    dxpu_bytes none = { NULL, 0 };
    m->count.unsupported++;
    complete(m, req, DXPU_CPL_UR, none);
}

static void config_request(memory *m, const dxpu_tlp *t)
{
    unsigned dw = t->register_bytes / 4u;
    uint8_t bytes[4];
    dxpu_bytes data = { bytes, sizeof bytes };
    dxpu_bytes none = { NULL, 0 };
    uint32_t value = 0;
    m->count.config++;
    if (DXPU_BDF_FN(t->target) != 0 || t->ep) { /* the only function is 0 */
        unsupported(m, t);
        return;
    }
    if (t->type == DXPU_TLP_CFGWR0) {
        m->bdf = t->target;
        for (unsigned i = 0; i < 4; i++)
            value |= (uint32_t)t->payload.ptr[i] << 8 * i;
        if (dw < CONFIG_DW)
            config_write(m, dw, t->first_be, value);
        complete(m, t, DXPU_CPL_SC, none);
        return;
    }
    value = dw < CONFIG_DW ? m->config[dw] : 0; /* no extended capabilities */
    for (unsigned i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    complete(m, t, DXPU_CPL_SC, data);
}

/* ==== 4  Memory =============================================================================== */

/* Where a request's dwords lie, NULL when not all of them are ours. */
static uint8_t *locate(memory *m, uint64_t address, uint32_t len)
{
    uint64_t base = bar(m), offset = address - base;
    if (!(m->config[CFG_COMMAND] & COMMAND_MEMORY) || address < base || offset >= m->size ||
        len > m->size - offset)
        return NULL;
    if (offset + len > m->dirty)
        m->dirty = offset + len;
    return m->bytes + offset;
}

static void read_memory(memory *m, const dxpu_tlp *t)
{
    const uint8_t *from = locate(m, t->address, t->length_dw * 4u);
    dxpu_cpl_split split;
    dxpu_tlp cpl;
    uint64_t at;
    if (!from || dxpu_cpl_split_start(&split, t, RCB_BYTES, mps_bytes(m)) != DXPU_OK) {
        unsupported(m, t);
        return;
    }
    m->count.reads++;
    dxpu_tlp_completion(t, m->bdf, DXPU_CPL_SC, &cpl);
    while (dxpu_cpl_split_next(&split, &cpl, &at)) {
        cpl.payload.ptr = from + (at - t->address);
        cpl.payload.len = cpl.length_dw * 4u;
        emit(m, &cpl);
    }
}

/* Store with byte enables: those of the first and last dword, all between. */
static void store(uint8_t *to, const dxpu_tlp *t)
{
    uint32_t len = t->length_dw * 4u;
    for (unsigned i = 0; i < 4; i++) {
        if (t->first_be >> i & 1)
            to[i] = t->payload.ptr[i];
        if (len > 4 && (t->last_be >> i & 1))
            to[len - 4 + i] = t->payload.ptr[len - 4 + i];
    }
    if (len > 8)
        memcpy(to + 4, t->payload.ptr + 4, len - 8);
}

static void write_memory(memory *m, const dxpu_tlp *t)
{
    uint8_t *to = locate(m, t->address, t->length_dw * 4u);
    if (!to) {
        m->count.writes_dropped++;
    } else if (t->ep) {
        m->count.poisoned++;
    } else {
        m->count.writes++;
        store(to, t);
    }
}

static void deferrable_write(memory *m, const dxpu_tlp *t)
{
    uint8_t *to = locate(m, t->address, t->length_dw * 4u);
    dxpu_bytes none = { NULL, 0 };
    if (!to || t->ep) {
        unsupported(m, t);
        return;
    }
    m->count.writes++;
    store(to, t);
    complete(m, t, DXPU_CPL_SC, none);
}

/* ==== 5  Atomics ==============================================================================
   Operands stand in memory order, least significant byte first. */

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
    to = locate(m, t->address, len);
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
    complete(m, t, DXPU_CPL_SC, data);
}

/* ==== 6  Kind ================================================================================= */

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
        config_request(m, t);
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
        config_reset(m);
}

static void memory_reset(void *device)
{
    memory *m = device;
    memset(m->bytes, 0, (size_t)m->dirty);
    m->dirty = 0;
    m->bdf = 0;
    config_reset(m);
    m->count.resets++;
}

static void memory_destroy(void *device)
{
    memory *m = device;
    free(m->bytes);
    free(m);
}

static void *memory_create(const device_settings *s, const device_port *port)
{
    memory *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->port = port;
    m->size = s->memory_bytes;
    m->bytes = calloc(1, (size_t)m->size);
    if (!m->bytes) {
        free(m);
        return NULL;
    }
    for (m->mps_code = 0; 128u << m->mps_code < s->mps_bytes && m->mps_code < 5;)
        m->mps_code++;
    config_reset(m);
    return m;
}

static void memory_report(void *device, report *r)
{
    memory *m = device;
#define MEMORY_PRINT(name) report_number(r, #name, m->count.name);
    MEMORY_COUNTERS(MEMORY_PRINT)
#undef MEMORY_PRINT
}

const device_kind memory_kind = { "memory",     memory_create, memory_destroy, memory_tlp,
                                  memory_event, memory_reset,  memory_report,  NULL };
