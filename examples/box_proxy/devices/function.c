/* function.c - see function.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Bytes   2 Configuration space   3 Settings that software makes   4 Completions
              5 DMA to the host   6 DMA from the host   7 MSI and MSI-X   8 TLPs   9 Life */
#include "function.h"

/* ==== 1  Bytes ================================================================================ */

uint32_t fn_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void fn_put32(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

uint32_t fn_enabled_bits(uint8_t be)
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < 4; i++)
        bits |= be >> i & 1 ? 0xffu << 8 * i : 0;
    return bits;
}

/* ==== 2  Configuration space ==================================================================
   Dwords as numbers, byte 0 in bits 7:0. */

enum { /* dword indices */
       FCFG_ID = 0x00 / 4,
       FCFG_COMMAND = 0x04 / 4,
       FCFG_CLASS = 0x08 / 4,
       FCFG_CACHE_LINE = 0x0c / 4,
       FCFG_BAR0 = 0x10 / 4,
       FCFG_SUBSYSTEM = 0x2c / 4,
       FCFG_CAPABILITIES = 0x34 / 4,
       FCFG_INTERRUPT = 0x3c / 4,
       FCFG_PM = FN_CAP_PM / 4,
       FCFG_PM_CONTROL = FCFG_PM + 1,
       FCFG_MSIX = FN_CAP_MSIX / 4,
       FCFG_PCIE = FN_CAP_PCIE / 4,
       FCFG_DEVICE_CAP = FCFG_PCIE + 1,
       FCFG_DEVICE_CONTROL = FCFG_PCIE + 2,
       FCFG_LINK_CAP = FCFG_PCIE + 3,
       FCFG_LINK_CONTROL = FCFG_PCIE + 4,
       FCFG_DEVICE_CAP2 = FCFG_PCIE + 9,
       FCFG_DEVICE_CONTROL2 = FCFG_PCIE + 10,
       FCFG_LINK_CAP2 = FCFG_PCIE + 11,
       FCFG_LINK_CONTROL2 = FCFG_PCIE + 12,
       FCFG_MSI = FN_CAP_MSI / 4,
       FCFG_MSI_ADDRESS = FCFG_MSI + 1,
       FCFG_MSI_DATA = FCFG_MSI + 3,
       FCFG_MSI_MASK = FCFG_MSI + 4,
       FCFG_MSI_PENDING = FCFG_MSI + 5
};

#define FCFG_COMMAND_MEMORY       0x0002u
#define FCFG_COMMAND_MASTER       0x0004u
#define FCFG_COMMAND_MASK         0x0546u /* memory, master, parity, SERR#, INTx disable */
#define FCFG_STATUS_W1C           0xf900u
#define FCFG_DEVICE_CONTROL_MASK  0x79ffu /* no auxiliary power, no phantom functions */
#define FCFG_DEVICE_CONTROL_FLR   0x8000u
#define FCFG_DEVICE_STATUS_W1C    0x000fu
#define FCFG_DEVICE_PENDING       0x0020u
#define FCFG_DEVICE_EXTENDED_TAGS 0x0100u
#define FCFG_MSIX_ENABLE          0x80000000u
#define FCFG_MSIX_MASK            0x40000000u
#define FCFG_MSI_ENABLE           0x00010000u
#define FCFG_MSI_MULTIPLE         0x00700000u
#define FCFG_TIMEOUT_DISABLE      0x10u

enum { /* error bits of Status and Device Status */
       STATUS_TARGET_ABORT = 0x1000,
       STATUS_MASTER_ABORT = 0x2000,
       STATUS_PARITY = 0x8000,
       DEVICE_CORRECTABLE = 0x1,
       DEVICE_NONFATAL = 0x2,
       DEVICE_UNSUPPORTED = 0x8
};

static bool bar_is_upper(const fn *f, unsigned bar)
{
    return bar > 0 && f->set.bar[bar - 1].bytes && (f->set.bar[bar - 1].type & FN_BAR_64);
}

static void config_reset_capabilities(fn *f)
{
    uint32_t *c = f->config;
    uint32_t after_pm = f->set.msix ? FN_CAP_MSIX : FN_CAP_PCIE;
    c[FCFG_PM] = 0x00030001u | after_pm << 8; /* version 3, D0 and D3 */
    c[FCFG_PM_CONTROL] = 0x00000008u;         /* registers outlive D3hot */
    if (f->set.msix) {
        c[FCFG_MSIX] = 0x00000011u | FN_CAP_PCIE << 8 | (f->set.msix - 1u) << 16;
        c[FCFG_MSIX + 1] = f->set.msix_table;
        c[FCFG_MSIX + 2] = f->set.msix_pba;
    }
    c[FCFG_PCIE] = 0x00020010u | (f->set.msi ? FN_CAP_MSI << 8 : 0); /* version 2, endpoint */
    c[FCFG_DEVICE_CAP] = 0x10008020u | f->mps_code; /* FLR, role-based errors, 8-bit tags */
    c[FCFG_DEVICE_CONTROL] = 0x2810u; /* read requests of 512 bytes, No Snoop, Relaxed Ordering */
    c[FCFG_LINK_CAP] = 0x00000043u;   /* 8 GT/s, 4 lanes */
    c[FCFG_LINK_CONTROL] = 0x0043u << 16;
    c[FCFG_DEVICE_CAP2] = 0x0000001fu;   /* completion timeout: all ranges, can be disabled */
    c[FCFG_LINK_CAP2] = 0x0000000eu;     /* 2.5, 5 and 8 GT/s */
    c[FCFG_LINK_CONTROL2] = 0x00000003u; /* target: 8 GT/s */
    if (f->set.msi)                      /* 64-bit addresses, a mask bit a vector */
        c[FCFG_MSI] = 0x00000005u | 0x01800000u | f->set.msi_log2 << 17;
}

static void config_reset(fn *f)
{
    uint32_t *c = f->config;
    memset(c, 0, sizeof f->config);
    c[FCFG_ID] = (uint32_t)f->set.device << 16 | f->set.vendor;
    c[FCFG_COMMAND] = 0x0010u << 16; /* a capability list */
    c[FCFG_CLASS] = f->set.class_revision;
    for (unsigned i = 0; i < FN_BARS; i++)
        c[FCFG_BAR0 + i] = f->set.bar[i].bytes ? f->set.bar[i].type : 0;
    c[FCFG_SUBSYSTEM] = c[FCFG_ID];
    c[FCFG_CAPABILITIES] = FN_CAP_PM;
    config_reset_capabilities(f);
}

static uint32_t writable_bar(const fn *f, unsigned bar)
{
    if (bar_is_upper(f, bar))
        return (uint32_t)(~(f->set.bar[bar - 1].bytes - 1) >> 32);
    return f->set.bar[bar].bytes ? (uint32_t) ~(f->set.bar[bar].bytes - 1) & ~(uint32_t)0xf : 0;
}

static uint32_t writable_msi(const fn *f, unsigned dw)
{
    uint64_t vectors = ((uint64_t)1 << (1u << f->set.msi_log2)) - 1;
    if (!f->set.msi)
        return 0;
    switch (dw) {
    case FCFG_MSI:
        return FCFG_MSI_ENABLE | FCFG_MSI_MULTIPLE;
    case FCFG_MSI_ADDRESS:
        return 0xfffffffcu;
    case FCFG_MSI_ADDRESS + 1:
        return 0xffffffffu;
    case FCFG_MSI_DATA:
        return 0x0000ffffu;
    case FCFG_MSI_MASK:
        return (uint32_t)vectors;
    default:
        return 0;
    }
}

/* Bits that software may change. */
static uint32_t writable(const fn *f, unsigned dw)
{
    switch (dw) {
    case FCFG_COMMAND:
        return FCFG_COMMAND_MASK;
    case FCFG_CACHE_LINE:
    case FCFG_INTERRUPT:
        return 0x000000ffu;
    case FCFG_PM_CONTROL:
        return 0x00000003u;
    case FCFG_MSIX:
        return f->set.msix ? FCFG_MSIX_ENABLE | FCFG_MSIX_MASK : 0;
    case FCFG_DEVICE_CONTROL:
        return FCFG_DEVICE_CONTROL_MASK;
    case FCFG_LINK_CONTROL:
        return 0x00cbu;
    case FCFG_DEVICE_CONTROL2:
        return 0x001fu;
    case FCFG_LINK_CONTROL2:
        return 0x000fu;
    default:
        if (dw >= FCFG_BAR0 && dw < FCFG_BAR0 + FN_BARS)
            return writable_bar(f, dw - FCFG_BAR0);
        return dw >= FCFG_MSI ? writable_msi(f, dw) : 0;
    }
}

static uint32_t config_read(const fn *f, unsigned dw)
{
    uint32_t v = dw < FN_CONFIG_DW ? f->config[dw] : 0; /* no extended capabilities */
    if (dw == FCFG_DEVICE_CONTROL && f->tags.in_flight)
        v |= FCFG_DEVICE_PENDING << 16;
    return v;
}

/* True when the function is to be reset. */
static bool config_write(fn *f, unsigned dw, uint8_t be, uint32_t value)
{
    uint32_t enabled = fn_enabled_bits(be), mask, w1c;
    if (dw >= FN_CONFIG_DW)
        return false;
    mask = writable(f, dw) & enabled;
    if (dw == FCFG_PM_CONTROL && ((value & 3) == 1 || (value & 3) == 2))
        mask = 0; /* a state that it does not have is not entered */
    w1c = dw == FCFG_COMMAND          ? FCFG_STATUS_W1C << 16
          : dw == FCFG_DEVICE_CONTROL ? FCFG_DEVICE_STATUS_W1C << 16
                                      : 0;
    f->config[dw] = (f->config[dw] & ~mask) | (value & mask);
    f->config[dw] &= ~(value & enabled & w1c);
    return dw == FCFG_DEVICE_CONTROL && (value & enabled & FCFG_DEVICE_CONTROL_FLR);
}

static void set_status(fn *f, uint32_t command, uint32_t device)
{
    f->config[FCFG_COMMAND] |= command << 16;
    f->config[FCFG_DEVICE_CONTROL] |= device << 16;
}

/* ==== 3  Settings that software makes ========================================================= */

static bool awake(const fn *f)
{
    return !(f->config[FCFG_PM_CONTROL] & 3);
}

bool fn_masters(const fn *f)
{
    return (f->config[FCFG_COMMAND] & FCFG_COMMAND_MASTER) && awake(f);
}

static uint32_t mps_bytes(const fn *f)
{
    uint32_t code = f->config[FCFG_DEVICE_CONTROL] >> 5 & 7;
    return 128u << (code < f->mps_code ? code : f->mps_code);
}

static uint32_t mrrs_bytes(const fn *f)
{
    uint32_t code = f->config[FCFG_DEVICE_CONTROL] >> 12 & 7;
    return 128u << (code < 5 ? code : 5);
}

static unsigned tags_mode(const fn *f)
{
    return f->config[FCFG_DEVICE_CONTROL] & FCFG_DEVICE_EXTENDED_TAGS ? DXPU_TAGS_256
                                                                      : DXPU_TAGS_32;
}

/* Of completions: the upper end of the range that is programmed (7.5.3.16). */
static uint64_t timeout_ns(const fn *f)
{
    static const struct {
        uint32_t code, ms_10; /* in tenths of a millisecond */
    } rows[] = { { 0x1, 1 },    { 0x2, 100 },   { 0x5, 550 },    { 0x6, 2100 },
                 { 0x9, 9000 }, { 0xa, 35000 }, { 0xd, 130000 }, { 0xe, 640000 } };
    uint32_t control = f->config[FCFG_DEVICE_CONTROL2];
    uint64_t ns = 50000000;
    if (control & FCFG_TIMEOUT_DISABLE)
        return DXPU_NEVER;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if ((control & 0xf) == rows[i].code)
            ns = rows[i].ms_10 * (uint64_t)100000;
    }
    return ns > f->set.timeout_ns ? ns : f->set.timeout_ns;
}

int fn_locate(const fn *f, const dxpu_tlp *t, uint64_t *offset)
{
    if (!(f->config[FCFG_COMMAND] & FCFG_COMMAND_MEMORY) || !awake(f))
        return -1;
    for (unsigned i = 0; i < FN_BARS; i++) {
        uint64_t bytes = f->set.bar[i].bytes, base = f->config[FCFG_BAR0 + i] & ~(uint32_t)0xf;
        if (bytes && (f->set.bar[i].type & FN_BAR_64))
            base |= (uint64_t)f->config[FCFG_BAR0 + i + 1] << 32;
        if (t->address >= base && t->address - base < bytes &&
            t->length_dw * 4u <= bytes - (t->address - base)) {
            *offset = t->address - base;
            return (int)i;
        }
    }
    return -1;
}

/* ==== 4  Completions ========================================================================== */

enum { FN_RCB_BYTES = 128 }; /* only a root complex may complete at 64 */

static void emit(fn *f, const dxpu_tlp *t)
{
    size_t len = 0;
    dxpu_bytes tlp = { f->out, 0 };
    int rc = dxpu_tlp_encode(t, f->out, sizeof f->out, &len);
    DXPU_ASSERT(rc == DXPU_OK);
    if (rc != DXPU_OK)
        return;
    tlp.len = len;
    f->port->emit(f->port->user, tlp);
}

void fn_complete(fn *f, const dxpu_tlp *req, uint8_t status, dxpu_bytes data)
{
    dxpu_tlp cpl;
    dxpu_tlp_completion(req, f->bdf, status, &cpl);
    cpl.payload = data;
    emit(f, &cpl);
}

void fn_unsupported(fn *f, const dxpu_tlp *req)
{
    dxpu_bytes none = { NULL, 0 };
    f->count.unsupported++;
    /* a non-posted request is an advisory error, which counts as correctable */
    set_status(f, 0, DEVICE_UNSUPPORTED | DEVICE_CORRECTABLE);
    fn_complete(f, req, DXPU_CPL_UR, none);
}

void fn_complete_read(fn *f, const dxpu_tlp *req, const uint8_t *data)
{
    dxpu_cpl_split split;
    dxpu_tlp cpl;
    uint64_t at;
    if (dxpu_cpl_split_start(&split, req, FN_RCB_BYTES, mps_bytes(f)) != DXPU_OK) {
        fn_unsupported(f, req);
        return;
    }
    dxpu_tlp_completion(req, f->bdf, DXPU_CPL_SC, &cpl);
    while (dxpu_cpl_split_next(&split, &cpl, &at)) {
        cpl.payload.ptr = data + (at - req->address);
        cpl.payload.len = cpl.length_dw * 4u;
        emit(f, &cpl);
    }
}

bool fn_refuse_write(fn *f, const dxpu_tlp *t, int bar)
{
    if (bar < 0) {
        f->count.posted_dropped++;
        set_status(f, 0, DEVICE_UNSUPPORTED | DEVICE_NONFATAL);
        return true;
    }
    if (t->ep) {
        f->count.poisoned++;
        set_status(f, STATUS_PARITY, DEVICE_NONFATAL);
        return true;
    }
    return false;
}

void fn_store(uint8_t *to, const dxpu_tlp *t)
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

/* ==== 5  DMA to the host ====================================================================== */

/* A memory request of this function without payload. */
static void own_request(const fn *f, dxpu_tlp *t, uint8_t type, uint64_t address, uint32_t bytes)
{
    int rc;
    memset(t, 0, sizeof *t);
    t->type = type;
    t->header_dw = address >> 32 ? 4 : 3;
    t->requester = f->bdf;
    t->address = address & ~(uint64_t)3;
    rc = dxpu_be_from_range(address, bytes, &t->first_be, &t->last_be, &t->length_dw);
    DXPU_ASSERT(rc == DXPU_OK);
    (void)rc;
}

bool fn_room(const fn *f)
{
    return !f->port->waiting || f->port->waiting(f->port->user) < 256;
}

uint32_t fn_write_one(fn *f, uint64_t address, const uint8_t *from, uint32_t bytes)
{
    uint8_t padded[DXPU_TLP_PAYLOAD_MAX_BYTES];
    uint32_t part = dxpu_request_next(address, bytes, mps_bytes(f)), skip = (uint32_t)(address & 3);
    dxpu_tlp t;
    own_request(f, &t, DXPU_TLP_MWR, address, part);
    t.payload.ptr = from;
    t.payload.len = t.length_dw * 4u;
    if (skip || (part & 3)) {
        padded[t.payload.len - 1] = padded[t.payload.len - 2] = padded[t.payload.len - 3] = 0;
        memset(padded, 0, 4);
        memcpy(padded + skip, from, part);
        t.payload.ptr = padded;
    }
    f->count.dma_writes++;
    f->count.dma_write_bytes += part;
    emit(f, &t);
    return part;
}

/* ==== 6  DMA from the host ==================================================================== */

static void fetch_append(fn *f, fn_fetch *x)
{
    x->next = NULL;
    x->queued = true;
    *f->fetch_tail = x;
    f->fetch_tail = &x->next;
}

static void fetch_unlink(fn *f, fn_fetch *x)
{
    fn_fetch **at = &f->fetch_head;
    while (x->queued && *at) {
        if (*at == x) {
            *at = x->next;
            if (!*at)
                f->fetch_tail = at;
            break;
        }
        at = &(*at)->next;
    }
    x->queued = false;
}

void fn_fetch_start(fn *f, fn_fetch *x)
{
    x->asked = 0;
    x->in_flight = 0;
    x->failed = false;
    fetch_append(f, x);
}

void fn_fetch_cancel(fn *f, fn_fetch *x)
{
    fetch_unlink(f, x);
    for (unsigned i = 0; i < FN_TAGS && x->in_flight; i++) {
        if (f->request[i].owner == x) {
            f->request[i].owner = NULL; /* its completions may still come */
            x->in_flight--;
        }
    }
}

/* All of them, with what is in flight. */
static void fetch_forget(fn *f)
{
    dxpu_request r;
    while (dxpu_tags_pop(&f->tags, &r)) {
    }
    for (fn_fetch *x = f->fetch_head; x; x = x->next)
        x->queued = false;
    memset(f->request, 0, sizeof f->request);
    f->fetch_head = NULL;
    f->fetch_tail = &f->fetch_head;
}

static uint64_t fetch_address(const fn_fetch *x, uint32_t at)
{
    uint32_t first;
    if (!x->pages)
        return x->address + at;
    first = FN_PAGE_BYTES - (uint32_t)(x->pages[0] & (FN_PAGE_BYTES - 1));
    if (at < first)
        return x->pages[0] + at;
    at -= first;
    return x->pages[1 + at / FN_PAGE_BYTES] + at % FN_PAGE_BYTES;
}

/* Requester ID, number of tags and timeout may be changed by configuration writes.  What is in
   flight keeps the old ones: the table changes when it is empty. */
static bool tags_ready(fn *f)
{
    unsigned mode = tags_mode(f);
    uint64_t timeout = timeout_ns(f);
    int rc;
    if (f->tags.capacity == mode && f->tags.requester == f->bdf && f->tags.timeout_ns == timeout)
        return true;
    if (f->tags.in_flight)
        return false;
    if (f->tags.requester == f->bdf && dxpu_tags_next_ns(&f->tags) != DXPU_NEVER)
        return false; /* a tag rests because a late completion could still come */
    rc = dxpu_tags_init(&f->tags, f->tag_entries, mode, f->bdf, mode, timeout);
    DXPU_ASSERT(rc == DXPU_OK);
    return rc == DXPU_OK;
}

/* Send one read request of x; false when no tag is free. */
static bool fetch_ask_one(fn *f, fn_fetch *x)
{
    uint64_t address = fetch_address(x, x->asked);
    uint32_t part = dxpu_request_next(address, x->bytes - x->asked, mrrs_bytes(f));
    int tag = dxpu_tags_alloc(&f->tags);
    dxpu_tlp t;
    if (tag < 0)
        return false;
    own_request(f, &t, DXPU_TLP_MRD, address, part);
    t.tag = (uint16_t)tag;
    if (dxpu_tags_track(&f->tags, &t, f->now_ns, (uint64_t)tag) != DXPU_OK)
        return false;
    f->request[tag].owner = x;
    f->request[tag].to = x->to + x->asked;
    x->asked += part;
    x->in_flight++;
    f->count.dma_reads++;
    f->count.dma_read_bytes += part;
    emit(f, &t);
    return true;
}

/* One request of each in turn, so that a long transfer does not hold up the short ones. */
bool fn_fetch_ask(fn *f)
{
    bool any = false;
    while (f->fetch_head && fn_masters(f) && tags_ready(f)) {
        fn_fetch *x = f->fetch_head;
        if (!fetch_ask_one(f, x))
            break;
        any = true;
        fetch_unlink(f, x);
        if (x->asked < x->bytes)
            fetch_append(f, x);
    }
    return any;
}

/* One request of x is over. */
static void fetch_step(fn *f, fn_fetch *x, bool failed)
{
    x->in_flight--;
    if (failed) {
        x->failed = true;
        fetch_unlink(f, x);
    }
    if (!x->in_flight && !x->queued)
        x->done(f->user, x);
}

/* A completion's bytes to their place: those that the request's byte enables ask for. */
static void fetch_fill(fn *f, const dxpu_tlp *cpl)
{
    uint32_t skip = cpl->lower_addr & 3u, bytes = (uint32_t)cpl->payload.len - skip;
    if (bytes > cpl->byte_count)
        bytes = cpl->byte_count;
    memcpy(f->request[cpl->tag].to, cpl->payload.ptr + skip, bytes);
    f->request[cpl->tag].to += bytes;
}

static void completion(fn *f, const dxpu_tlp *cpl)
{
    dxpu_request r;
    fn_fetch *x;
    bool bad = cpl->status != DXPU_CPL_SC || cpl->ep;
    if (dxpu_tags_complete(&f->tags, cpl, &r) != DXPU_OK) {
        f->count.completions_refused++;
        return;
    }
    if (cpl->status == DXPU_CPL_UR)
        set_status(f, STATUS_MASTER_ABORT, 0);
    else if (cpl->status == DXPU_CPL_CA)
        set_status(f, STATUS_TARGET_ABORT, 0);
    if (cpl->ep)
        set_status(f, STATUS_PARITY, DEVICE_NONFATAL);
    if (bad)
        f->count.completions_failed++;
    x = f->request[cpl->tag].owner;
    if (!x) {
        f->count.completions_late++;
        return;
    }
    if (bad)
        x->failed = true;
    else
        fetch_fill(f, cpl);
    if (r.done) {
        f->request[cpl->tag].owner = NULL;
        fetch_step(f, x, x->failed);
    }
}

void fn_tick(fn *f, uint64_t now_ns)
{
    dxpu_request r;
    f->now_ns = now_ns;
    while (dxpu_tags_expire(&f->tags, now_ns, &r)) {
        fn_fetch *x = f->request[r.tag].owner;
        f->count.completion_timeouts++;
        set_status(f, 0, DEVICE_NONFATAL);
        f->request[r.tag].owner = NULL;
        if (x)
            fetch_step(f, x, true);
    }
}

/* ==== 7  MSI and MSI-X ======================================================================== */

static void msix_reset(fn *f)
{
    memset(f->table, 0, sizeof f->table);
    memset(f->pending, 0, sizeof f->pending);
    for (unsigned i = 0; i < FN_MSIX_MAX; i++)
        f->table[4 * i + 3] = 1; /* masked */
}

static void send_message(fn *f, uint64_t address, uint32_t data)
{
    uint8_t bytes[4];
    fn_put32(bytes, data);
    f->count.interrupts++;
    (void)fn_write_one(f, address, bytes, sizeof bytes);
}

static bool msix_send(fn *f, unsigned vector)
{
    const uint32_t *e = f->table + (size_t)vector * 4;
    if (!fn_masters(f) || (f->config[FCFG_MSIX] & FCFG_MSIX_MASK) || (e[3] & 1))
        return false;
    send_message(f, (uint64_t)e[1] << 32 | e[0], e[2]);
    return true;
}

static bool msi_send(fn *f, unsigned vector)
{
    const uint32_t *c = f->config;
    if (!fn_masters(f) || (c[FCFG_MSI_MASK] >> vector & 1))
        return false;
    /* of several vectors each has a number in the low bits of the data (7.7.1.5) */
    send_message(f, (uint64_t)c[FCFG_MSI_ADDRESS + 1] << 32 | c[FCFG_MSI_ADDRESS],
                 (c[FCFG_MSI_DATA] & ~(fn_msi_vectors(f) - 1)) | vector);
    return true;
}

unsigned fn_msi_vectors(const fn *f)
{
    unsigned log2 = (f->config[FCFG_MSI] & FCFG_MSI_MULTIPLE) >> 20;
    if (!f->set.msi || !(f->config[FCFG_MSI] & FCFG_MSI_ENABLE))
        return 0;
    return 1u << (log2 < f->set.msi_log2 ? log2 : f->set.msi_log2);
}

unsigned fn_msix_vectors(const fn *f)
{
    return f->config[FCFG_MSIX] & FCFG_MSIX_ENABLE ? f->set.msix : 0;
}

bool fn_msi_signal(fn *f, unsigned vector)
{
    if (vector >= fn_msi_vectors(f))
        return false;
    if (!msi_send(f, vector))
        f->config[FCFG_MSI_PENDING] |= 1u << vector;
    return true;
}

bool fn_msix_signal(fn *f, unsigned vector)
{
    if (vector >= fn_msix_vectors(f))
        return false;
    if (!msix_send(f, vector))
        f->pending[vector / 32] |= 1u << vector % 32;
    return true;
}

/* Send what is pending and masked no more. */
static void flush_interrupts(fn *f)
{
    for (unsigned i = 0; i < fn_msix_vectors(f); i++) {
        if ((f->pending[i / 32] >> i % 32 & 1) && msix_send(f, i))
            f->pending[i / 32] &= ~(1u << i % 32);
    }
    for (unsigned i = 0; i < fn_msi_vectors(f); i++) {
        if ((f->config[FCFG_MSI_PENDING] >> i & 1) && msi_send(f, i))
            f->config[FCFG_MSI_PENDING] &= ~(1u << i);
    }
}

/* Dword `offset` of BAR `bar` within a structure of `bytes` at `place`: its index, or -1. */
static int msix_index(uint32_t place, uint32_t bytes, int bar, uint64_t offset)
{
    uint32_t start = place & ~(uint32_t)7;
    if ((place & 7) != (uint32_t)bar || offset < start || offset - start >= bytes)
        return -1;
    return (int)((offset - start) / 4);
}

bool fn_msix_read(const fn *f, int bar, uint64_t offset, uint32_t *value)
{
    int i = msix_index(f->set.msix_table, f->set.msix * 16, bar, offset);
    if (i >= 0) {
        *value = f->table[i];
        return true;
    }
    i = msix_index(f->set.msix_pba, (f->set.msix + 63) / 64 * 8, bar, offset);
    if (i >= 0)
        *value = f->pending[i];
    return i >= 0;
}

bool fn_msix_write(fn *f, int bar, uint64_t offset, uint32_t value, uint32_t enabled)
{
    static const uint32_t mask[4] = { 0xfffffffcu, 0xffffffffu, 0xffffffffu, 0x00000001u };
    int i = msix_index(f->set.msix_table, f->set.msix * 16, bar, offset);
    if (i < 0) /* pending bits are read-only */
        return msix_index(f->set.msix_pba, (f->set.msix + 63) / 64 * 8, bar, offset) >= 0;
    enabled &= mask[i % 4];
    f->table[i] = (f->table[i] & ~enabled) | (value & enabled);
    flush_interrupts(f);
    return true;
}

/* ==== 8  TLPs ================================================================================= */

static void config_request(fn *f, const dxpu_tlp *t)
{
    unsigned dw = t->register_bytes / 4u;
    uint8_t bytes[4];
    dxpu_bytes data = { bytes, sizeof bytes }, none = { NULL, 0 };
    f->count.config++;
    if (DXPU_BDF_FN(t->target) != 0 || t->ep) { /* the only function is 0 */
        fn_unsupported(f, t);
        return;
    }
    if (t->type == DXPU_TLP_CFGRD0) {
        fn_put32(bytes, config_read(f, dw));
        fn_complete(f, t, DXPU_CPL_SC, data);
        return;
    }
    f->bdf = t->target;
    if (config_write(f, dw, t->first_be, fn_le32(t->payload.ptr)))
        f->flr(f->user);
    fn_complete(f, t, DXPU_CPL_SC, none);
    flush_interrupts(f); /* a mask may be gone */
}

bool fn_tlp(fn *f, const dxpu_tlp *t)
{
    switch (t->type) {
    case DXPU_TLP_MRD:
    case DXPU_TLP_MWR:
        return false;
    case DXPU_TLP_CFGRD0:
    case DXPU_TLP_CFGWR0:
        config_request(f, t);
        break;
    case DXPU_TLP_CPL:
    case DXPU_TLP_CPLD:
        completion(f, t);
        break;
    case DXPU_TLP_MSG:
    case DXPU_TLP_MSGD:
        f->count.messages++; /* power limits and the like mean nothing here */
        break;
    default:
        if (dxpu_tlp_class(t) == DXPU_NONPOSTED)
            fn_unsupported(f, t);
        else
            f->count.completions_refused++;
        break;
    }
    return true;
}

/* ==== 9  Life ================================================================================= */

void fn_reset(fn *f)
{
    config_reset(f);
    msix_reset(f);
}

void fn_link_reset(fn *f)
{
    fn_reset(f);
    fetch_forget(f);
    f->bdf = 0;
}

void fn_init(fn *f, const fn_setup *s, const device_port *port, void *user, void (*flr)(void *user))
{
    memset(f, 0, sizeof *f);
    f->port = port;
    f->user = user;
    f->flr = flr;
    f->set = *s;
    while (128u << f->mps_code < s->mps_bytes && f->mps_code < 5)
        f->mps_code++;
    (void)dxpu_tags_init(&f->tags, f->tag_entries, DXPU_TAGS_32, 0, DXPU_TAGS_32, DXPU_NEVER);
    fn_link_reset(f);
}

void fn_report(const fn *f, report *r)
{
#define FN_PRINT(name) report_number(r, #name, f->count.name);
    FN_COUNTERS(FN_PRINT)
#undef FN_PRINT
}
