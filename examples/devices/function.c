/* function.c - see function.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Configuration space   2 Settings that software makes   3 Memory requests
              4 DMA to the host   5 DMA from the host   6 MSI and MSI-X   7 TLPs   8 Life */
#include "function.h"

/* ==== 1  Configuration space ================================================================== */

enum { /* dword indices */
       FCFG_PM = FN_CAP_PM / 4,
       FCFG_PM_CONTROL = FCFG_PM + 1,
       FCFG_MSIX = FN_CAP_MSIX / 4,
       FCFG_PCIE = FN_CAP_PCIE / 4,
       FCFG_DEVICE_CONTROL = FCFG_PCIE + PCIE_DEVICE_CONTROL,
       FCFG_DEVICE_CONTROL2 = FCFG_PCIE + PCIE_DEVICE_CONTROL2,
       FCFG_MSI = FN_CAP_MSI / 4,
       FCFG_MSI_ADDRESS = FCFG_MSI + 1,
       FCFG_MSI_DATA = FCFG_MSI + 3,
       FCFG_MSI_MASK = FCFG_MSI + 4,
       FCFG_MSI_PENDING = FCFG_MSI + 5
};

#define FCFG_MASTER         0x00000004u /* of Command */
#define FCFG_TARGET_ABORT   0x10000000u /* of Status: received */
#define FCFG_MASTER_ABORT   0x20000000u
#define FCFG_PENDING        0x00200000u /* of Device Status */
#define FCFG_EXTENDED_TAGS  0x00000100u /* of Device Control */
#define FCFG_READ_SIZE      0x00007000u
#define FCFG_MSIX_ENABLE    0x80000000u
#define FCFG_MSIX_MASK      0x40000000u
#define FCFG_MSI_ENABLE     0x00010000u
#define FCFG_MSI_MULTIPLE   0x00700000u
#define FCFG_NEVER_TIME_OUT 0x00000010u /* of Device Control 2 */

/* The capabilities form a list from 0x34 on: PM, MSI, MSI-X, the owner's, and PCI Express at
   its end. */
static void reset_capabilities(fn *f)
{
    pci_function *p = &f->pci;
    uint32_t next = FN_CAP_PCIE;
    if (f->set.own) {
        for (unsigned i = 0; i < f->set.own_count; i++)
            pci_register(p, FCFG_MSI + i, f->set.own[i].value, f->set.own[i].writable);
        next = FN_CAP_MSI;
    }
    if (f->set.msix) {
        pci_register(p, FCFG_MSIX, 0x00000011u | next << 8 | (f->set.msix - 1u) << 16,
                     FCFG_MSIX_ENABLE | FCFG_MSIX_MASK);
        pci_register(p, FCFG_MSIX + 1, f->set.msix_table, 0);
        pci_register(p, FCFG_MSIX + 2, f->set.msix_pba, 0);
        next = FN_CAP_MSIX;
    }
    if (f->set.msi) { /* 64-bit addresses, a mask bit a vector */
        uint64_t vectors = ((uint64_t)1 << (1u << f->set.msi_log2)) - 1;
        pci_register(p, FCFG_MSI, 0x01800005u | next << 8 | f->set.msi_log2 << 17,
                     FCFG_MSI_ENABLE | FCFG_MSI_MULTIPLE);
        pci_register(p, FCFG_MSI_ADDRESS, 0, 0xfffffffcu);
        pci_register(p, FCFG_MSI_ADDRESS + 1, 0, 0xffffffffu);
        pci_register(p, FCFG_MSI_DATA, 0, 0x0000ffffu);
        pci_register(p, FCFG_MSI_MASK, 0, (uint32_t)vectors);
        next = FN_CAP_MSI;
    }
    pci_register(p, FCFG_PM, 0x00030001u | next << 8, 0);       /* version 3, D0 and D3 */
    pci_register(p, FCFG_PM_CONTROL, 0x00000008u, 0x00000003u); /* registers outlive D3hot */
    pci_register(p, PCI_CAPABILITIES, FN_CAP_PM, 0);
    /* completion timeout: all ranges, can be disabled */
    pci_register(p, FCFG_PCIE + PCIE_DEVICE_CAP2, 0x0000001fu, 0);
}

static void config_reset(fn *f)
{
    pci_identity id = { 0, 0, 0, FN_CAP_PCIE, 4 };
    id.vendor = f->set.vendor;
    id.device = f->set.device;
    id.class_revision = f->set.class_revision;
    pci_reset(&f->pci, &id);
    if (f->set.mrrs_bytes && !f->set.physical) {
        uint32_t *control = &f->pci.config[FCFG_DEVICE_CONTROL], code = 0;
        while (code < 5 && 128u << code < f->set.mrrs_bytes)
            code++;
        *control = (*control & ~FCFG_READ_SIZE) | code << 12;
    }
    if (f->set.has_subsystem)
        f->pci.config[PCI_SUBSYSTEM] = f->set.subsystem;
    for (unsigned i = 0; i < PCI_BARS; i++) {
        if (f->set.bar[i].bytes)
            pci_bar(&f->pci, i, f->set.bar[i].bytes, f->set.bar[i].flags);
    }
    reset_capabilities(f);
}

/* ==== 2  Settings that software makes ========================================================= */

static bool awake(const fn *f)
{
    return !(f->pci.config[FCFG_PM_CONTROL] & 3);
}

bool fn_masters(const fn *f)
{
    return (f->pci.config[PCI_COMMAND] & FCFG_MASTER) && awake(f);
}

static uint32_t mrrs_bytes(const fn *f)
{
    uint32_t code = pci_settings(&f->pci)->config[FCFG_DEVICE_CONTROL] >> 12 & 7;
    return 128u << (code < 5 ? code : 5);
}

static unsigned tags_mode(const fn *f)
{
    return pci_settings(&f->pci)->config[FCFG_DEVICE_CONTROL] & FCFG_EXTENDED_TAGS ? DXPU_TAGS_256
                                                                                   : DXPU_TAGS_32;
}

/* Of completions: the upper end of the range that is programmed (7.5.3.16). */
uint64_t fn_timeout_ns(const fn *f)
{
    static const struct {
        uint32_t code, ms_10; /* in tenths of a millisecond */
    } rows[] = { { 0x1, 1 },    { 0x2, 100 },   { 0x5, 550 },    { 0x6, 2100 },
                 { 0x9, 9000 }, { 0xa, 35000 }, { 0xd, 130000 }, { 0xe, 640000 } };
    uint32_t control = pci_settings(&f->pci)->config[FCFG_DEVICE_CONTROL2];
    uint64_t ns = 50000000;
    if (control & FCFG_NEVER_TIME_OUT)
        return DXPU_NEVER;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if ((control & 0xf) == rows[i].code)
            ns = rows[i].ms_10 * (uint64_t)100000;
    }
    return ns > f->set.timeout_ns ? ns : f->set.timeout_ns;
}

/* ==== 3  Memory requests ====================================================================== */

int fn_locate(const fn *f, const dxpu_tlp *t, uint64_t *offset)
{
    for (unsigned i = 0; awake(f) && i < PCI_BARS; i++) {
        if (f->set.bar[i].bytes && pci_locate(&f->pci, i, t, t->length_dw * 4u, offset))
            return (int)i;
    }
    return -1;
}

void fn_unsupported(fn *f, const dxpu_tlp *req)
{
    f->count.unsupported++;
    pci_unsupported(&f->pci, req);
}

/* A TLP with more payload than software allowed. */
static bool malformed(fn *f, const dxpu_tlp *t)
{
    if (t->payload.len <= pci_mps(&f->pci))
        return false;
    f->count.malformed++;
    pci_error(&f->pci, PCI_MALFORMED, false, t);
    return true;
}

bool fn_refuse_write(fn *f, const dxpu_tlp *t, int bar)
{
    if (malformed(f, t))
        return true;
    if (bar < 0) {
        f->count.posted_dropped++;
        pci_unsupported(&f->pci, t);
        return true;
    }
    if (t->ep) {
        f->count.poisoned++;
        pci_error(&f->pci, PCI_POISONED, false, t);
        return true;
    }
    fn_push_write(f, t);
    return false;
}

/* ==== 4  DMA to the host ====================================================================== */

/* A memory request of this function without payload. */
static void own_request(const fn *f, dxpu_tlp *t, uint8_t type, uint64_t address, uint32_t bytes)
{
    int rc;
    memset(t, 0, sizeof *t);
    t->type = type;
    t->header_dw = address >> 32 ? 4 : 3;
    t->requester = f->pci.bdf;
    t->address = address & ~(uint64_t)3;
    rc = dxpu_be_from_range(address, bytes, &t->first_be, &t->last_be, &t->length_dw);
    DXPU_ASSERT(rc == DXPU_OK);
    (void)rc;
}

void fn_turn(fn *f, unsigned share)
{
    f->local_left = FN_LOCAL_TURN / share;
}

/* How many of `bytes` bytes from `address` on lie in one page; *at: where the owner has them. */
static uint32_t local_part(const fn *f, uint64_t address, uint32_t bytes, bool write, uint8_t **at)
{
    uint32_t part = dxpu_request_next(address, bytes, FN_PAGE_BYTES);
    *at = f->set.local ? f->set.local(f->user, address, part, write) : NULL;
    return part;
}

bool fn_room(const fn *f)
{
    if (f->set.local && !f->local_left)
        return false;
    return !f->pci.port->waiting || f->pci.port->waiting(f->pci.port->user) < 256;
}

uint32_t fn_write_one(fn *f, uint64_t address, const uint8_t *from, uint32_t bytes)
{
    uint8_t padded[DXPU_TLP_PAYLOAD_MAX_BYTES], *local;
    uint32_t part = local_part(f, address, bytes, true, &local), skip = (uint32_t)(address & 3);
    dxpu_tlp t;
    if (local) {
        f->local_left -= f->local_left > 0;
        f->local_accesses++;
        memcpy(local, from, part);
        return part;
    }
    part = dxpu_request_next(address, bytes, pci_mps(&f->pci));
    if (f->push)
        dxpu_push_store_touch(f->push, address, part);
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
    pci_emit(&f->pci, &t);
    return part;
}

void fn_write(fn *f, uint64_t address, const uint8_t *from, uint32_t bytes)
{
    while (bytes) {
        uint32_t part = fn_write_one(f, address, from, bytes);
        address += part;
        from += part;
        bytes -= part;
    }
}

/* ==== 5  DMA from the host ==================================================================== */

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

void fn_fetch_start_at(fn *f, fn_fetch *x, uint32_t range, uint32_t at)
{
    x->asked = x->in_flight = 0;
    x->range = range;
    x->at = at;
    x->failed = false;
    fetch_append(f, x);
}

void fn_fetch_start(fn *f, fn_fetch *x)
{
    fn_fetch_start_at(f, x, 0, 0);
}

void fn_fetch_cancel(fn *f, fn_fetch *x)
{
    fetch_unlink(f, x);
    for (unsigned i = 0; i < FN_TAGS && x->in_flight; i++) {
        if (f->request[i].owner == x) {
            f->request[i].owner = NULL; /* its completions may still arrive */
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

uint64_t fn_fetch_at(const fn_fetch *x, uint32_t *bytes)
{
    const fn_range *r;
    *bytes = x->bytes - x->asked;
    if (!x->ranges)
        return x->address + x->asked;
    r = &x->ranges[x->range];
    if (*bytes > r->bytes - x->at)
        *bytes = r->bytes - x->at;
    return r->address + x->at;
}

void fn_fetch_advance(fn_fetch *x, uint32_t bytes)
{
    x->asked += bytes;
    x->at += bytes;
    if (x->ranges && x->at == x->ranges[x->range].bytes) {
        x->range++;
        x->at = 0;
    }
}

/* Requester ID, number of tags and timeout may be changed by configuration writes.  What is in
   flight keeps the old ones: the table changes when it is empty. */
static bool tags_ready(fn *f)
{
    unsigned mode = tags_mode(f);
    uint64_t timeout = fn_timeout_ns(f);
    int rc;
    if (f->tags.capacity == mode && f->tags.requester == f->pci.bdf &&
        f->tags.timeout_ns == timeout)
        return true;
    if (f->tags.in_flight)
        return false;
    if (f->tags.requester == f->pci.bdf && dxpu_tags_next_ns(&f->tags) != DXPU_NEVER)
        return false; /* a tag rests because a late completion could still arrive */
    rc = dxpu_tags_init(&f->tags, f->tag_entries, mode, f->pci.bdf, mode, timeout);
    DXPU_ASSERT(rc == DXPU_OK);
    return rc == DXPU_OK;
}

/* Read one piece of x where the owner has it.  0: it is the host's; -1: not in this turn. */
static int fetch_local(fn *f, fn_fetch *x, uint64_t address, uint32_t there)
{
    uint8_t *local;
    uint32_t part = local_part(f, address, there, false, &local);
    if (!local)
        return 0;
    if (!f->local_left)
        return -1;
    f->local_left--;
    f->local_accesses++;
    memcpy(x->to + x->asked, local, part);
    fn_fetch_advance(x, part);
    return 1;
}

/* The same of what the host has pushed already. */
static bool fetch_pushed(fn *f, fn_fetch *x, uint64_t address, uint32_t there)
{
    uint32_t n = f->push ? dxpu_push_store_take(f->push, address, there, x->to + x->asked) : 0;
    if (n)
        fn_fetch_advance(x, n);
    return n != 0;
}

/* Send one read request of x; false when no tag is free. */
static bool fetch_ask_one(fn *f, fn_fetch *x)
{
    uint32_t there;
    uint64_t address = fn_fetch_at(x, &there);
    uint32_t part = dxpu_request_next(address, there, mrrs_bytes(f));
    int tag, local = fetch_local(f, x, address, there);
    dxpu_tlp t;
    if (local)
        return local > 0;
    if (fetch_pushed(f, x, address, there))
        return true;
    tag = dxpu_tags_alloc(&f->tags);
    if (tag < 0)
        return false;
    if (f->push)
        dxpu_push_store_touch(f->push, address, part);
    own_request(f, &t, DXPU_TLP_MRD, address, part);
    t.tag = (uint16_t)tag;
    if (dxpu_tags_track(&f->tags, &t, f->now_ns, (uint64_t)tag) != DXPU_OK)
        return false;
    f->request[tag].owner = x;
    f->request[tag].to = x->to + x->asked;
    fn_fetch_advance(x, part);
    x->in_flight++;
    f->count.dma_reads++;
    f->count.dma_read_bytes += part;
    pci_emit(&f->pci, &t);
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
        else if (!x->in_flight) /* all of it was the owner's own, or pushed */
            x->done(f->user, x);
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

/* A virtual function that has ended only takes its tags back. */
static bool is_there(const fn *f)
{
    return !f->pci.physical || f->pci.number <= pci_virtuals(f->pci.physical);
}

static void completion(fn *f, const dxpu_tlp *cpl)
{
    dxpu_request r;
    fn_fetch *x;
    bool bad = cpl->status != DXPU_CPL_SC || cpl->ep;
    if (dxpu_tags_complete(&f->tags, cpl, &r) != DXPU_OK) {
        f->count.completions_refused++;
        if (is_there(f))
            pci_error(&f->pci, PCI_UNEXPECTED_COMPLETION, true, cpl);
        return;
    }
    x = f->request[cpl->tag].owner;
    if (!x) { /* a reset took it away */
        f->count.completions_late++;
        return;
    }
    if (cpl->status == DXPU_CPL_UR)
        f->pci.config[PCI_COMMAND] |= FCFG_MASTER_ABORT;
    else if (cpl->status == DXPU_CPL_CA)
        f->pci.config[PCI_COMMAND] |= FCFG_TARGET_ABORT;
    if (cpl->ep) /* advisory: what wanted the data fails and says so */
        pci_error(&f->pci, PCI_POISONED, true, cpl);
    if (malformed(f, cpl))
        bad = true;
    if (bad) {
        f->count.completions_failed++;
        x->failed = true;
    } else {
        fetch_fill(f, cpl);
    }
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
        pci_error(&f->pci, PCI_COMPLETION_TIMEOUT, false, NULL);
        f->request[r.tag].owner = NULL;
        if (x)
            fetch_step(f, x, true);
    }
}

/* ==== 6  MSI and MSI-X ======================================================================== */

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
    dxpu_put_le32(bytes, data);
    f->count.interrupts++;
    (void)fn_write_one(f, address, bytes, sizeof bytes);
}

static bool msix_send(fn *f, unsigned vector)
{
    const uint32_t *e = f->table + (size_t)vector * 4;
    if (!fn_masters(f) || (f->pci.config[FCFG_MSIX] & FCFG_MSIX_MASK) || (e[3] & 1))
        return false;
    send_message(f, (uint64_t)e[1] << 32 | e[0], e[2]);
    return true;
}

static bool msi_send(fn *f, unsigned vector)
{
    const uint32_t *c = f->pci.config;
    if (!fn_masters(f) || (c[FCFG_MSI_MASK] >> vector & 1))
        return false;
    /* of several vectors each has a number in the low bits of the data (7.7.1.5) */
    send_message(f, (uint64_t)c[FCFG_MSI_ADDRESS + 1] << 32 | c[FCFG_MSI_ADDRESS],
                 (c[FCFG_MSI_DATA] & ~(fn_msi_vectors(f) - 1)) | vector);
    return true;
}

unsigned fn_msi_vectors(const fn *f)
{
    unsigned log2 = (f->pci.config[FCFG_MSI] & FCFG_MSI_MULTIPLE) >> 20;
    if (!f->set.msi || !(f->pci.config[FCFG_MSI] & FCFG_MSI_ENABLE))
        return 0;
    return 1u << (log2 < f->set.msi_log2 ? log2 : f->set.msi_log2);
}

unsigned fn_msix_vectors(const fn *f)
{
    return f->pci.config[FCFG_MSIX] & FCFG_MSIX_ENABLE ? f->set.msix : 0;
}

bool fn_msi_signal(fn *f, unsigned vector)
{
    if (vector >= fn_msi_vectors(f))
        return false;
    if (!msi_send(f, vector))
        f->pci.config[FCFG_MSI_PENDING] |= 1u << vector;
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
        if ((f->pci.config[FCFG_MSI_PENDING] >> i & 1) && msi_send(f, i))
            f->pci.config[FCFG_MSI_PENDING] &= ~(1u << i);
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

/* ==== 7  TLPs ================================================================================= */

static void config_request(fn *f, const dxpu_tlp *t)
{
    uint32_t *c = f->pci.config, power = c[FCFG_PM_CONTROL];
    f->count.config++;
    c[FCFG_DEVICE_CONTROL] &= ~FCFG_PENDING;
    if (f->tags.in_flight)
        c[FCFG_DEVICE_CONTROL] |= FCFG_PENDING;
    if (pci_config_request(&f->pci, t))
        f->flr(f->user);
    fn_push_configured(f, t);
    if ((c[FCFG_PM_CONTROL] & 3) == 1 || (c[FCFG_PM_CONTROL] & 3) == 2)
        c[FCFG_PM_CONTROL] = power; /* a state that it does not have is not entered */
    flush_interrupts(f);            /* a mask may be gone */
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
        fn_push_message(f, t);
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

/* ==== 8  Life ================================================================================= */

void fn_reset(fn *f)
{
    config_reset(f);
    msix_reset(f);
}

void fn_power_on(fn *f)
{
    if (f->set.errors)
        pci_extended(&f->pci, f->set.serial);
}

void fn_link_reset(fn *f)
{
    fn_push_clear(f);
    fn_reset(f);
    fetch_forget(f);
    f->pci.bdf = f->pci.number; /* it knows no more of where it is */
}

void fn_init(fn *f, const fn_setup *s, const device_port *port, void *user, void (*flr)(void *user))
{
    memset(f, 0, sizeof *f);
    pci_init(&f->pci, port, s->mps_bytes);
    f->pci.several = s->several;
    f->pci.number = s->number;
    f->pci.physical = s->physical;
    f->pci.virtuals = s->virtuals;
    for (unsigned i = 0; s->virtuals && i < PCI_BARS; i++)
        pci_virtual_bar(&f->pci, i, s->bar[i].bytes, s->bar[i].flags);
    f->user = user;
    f->flr = flr;
    f->set = *s;
    (void)dxpu_tags_init(&f->tags, f->tag_entries, DXPU_TAGS_32, 0, DXPU_TAGS_32, DXPU_NEVER);
    fn_link_reset(f);
    fn_power_on(f);
}

void fn_report(const fn *f, report *r)
{
#define FN_PRINT(name) report_number(r, #name, f->count.name);
    FN_COUNTERS(FN_PRINT)
#undef FN_PRINT
}
