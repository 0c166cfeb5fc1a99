/* nvme_bus.c - the NVMe controller's TLPs: completions, DMA, MSI-X
   SPDX-License-Identifier: MIT

   CONTENTS   1 Bytes   2 Completions   3 DMA to the host   4 DMA from the host   5 MSI-X */
#include "nvme_model.h"

/* ==== 1  Bytes ================================================================================ */

uint32_t nvme_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t nvme_le64(const uint8_t *p)
{
    return nvme_le32(p) | (uint64_t)nvme_le32(p + 4) << 32;
}

void nvme_put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

void nvme_put32(uint8_t *p, uint32_t v)
{
    nvme_put16(p, v);
    nvme_put16(p + 2, v >> 16);
}

void nvme_put64(uint8_t *p, uint64_t v)
{
    nvme_put32(p, (uint32_t)v);
    nvme_put32(p + 4, (uint32_t)(v >> 32));
}

/* ==== 2  Completions ========================================================================== */

enum { BUS_RCB_BYTES = 128 }; /* only a root complex may complete at 64 */

static void bus_emit(nvme *n, const dxpu_tlp *t)
{
    size_t len = 0;
    dxpu_bytes tlp = { n->out, 0 };
    int rc = dxpu_tlp_encode(t, n->out, sizeof n->out, &len);
    DXPU_ASSERT(rc == DXPU_OK);
    if (rc != DXPU_OK)
        return;
    tlp.len = len;
    n->port->emit(n->port->user, tlp);
}

void nvme_complete(nvme *n, const dxpu_tlp *req, uint8_t status, dxpu_bytes data)
{
    dxpu_tlp cpl;
    dxpu_tlp_completion(req, n->bdf, status, &cpl);
    cpl.payload = data;
    bus_emit(n, &cpl);
}

void nvme_complete_read(nvme *n, const dxpu_tlp *req, const uint8_t *data)
{
    dxpu_cpl_split split;
    dxpu_tlp cpl;
    uint64_t at;
    if (dxpu_cpl_split_start(&split, req, BUS_RCB_BYTES, nvme_config_mps(n)) != DXPU_OK) {
        nvme_unsupported(n, req);
        return;
    }
    dxpu_tlp_completion(req, n->bdf, DXPU_CPL_SC, &cpl);
    while (dxpu_cpl_split_next(&split, &cpl, &at)) {
        cpl.payload.ptr = data + (at - req->address);
        cpl.payload.len = cpl.length_dw * 4u;
        bus_emit(n, &cpl);
    }
}

void nvme_unsupported(nvme *n, const dxpu_tlp *req)
{
    dxpu_bytes none = { NULL, 0 };
    n->count.unsupported++;
    /* a non-posted request is an advisory error, which counts as correctable */
    nvme_config_status(n, 0, NVME_DEVICE_UNSUPPORTED | NVME_DEVICE_CORRECTABLE);
    nvme_complete(n, req, DXPU_CPL_UR, none);
}

/* ==== 3  DMA to the host ====================================================================== */

/* A memory request of this function without payload. */
static void bus_request(const nvme *n, dxpu_tlp *t, uint8_t type, uint64_t address, uint32_t bytes)
{
    int rc;
    memset(t, 0, sizeof *t);
    t->type = type;
    t->header_dw = address >> 32 ? 4 : 3;
    t->requester = n->bdf;
    t->address = address & ~(uint64_t)3;
    rc = dxpu_be_from_range(address, bytes, &t->first_be, &t->last_be, &t->length_dw);
    DXPU_ASSERT(rc == DXPU_OK);
    (void)rc;
}

uint64_t nvme_target_at(const nvme_target *t, uint32_t at)
{
    uint32_t first;
    if (!t->pages)
        return t->address + at;
    first = NVME_PAGE_BYTES - (uint32_t)(t->pages[0] & (NVME_PAGE_BYTES - 1));
    if (at < first)
        return t->pages[0] + at;
    at -= first;
    return t->pages[1 + at / NVME_PAGE_BYTES] + at % NVME_PAGE_BYTES;
}

uint32_t nvme_dma_write_one(nvme *n, uint64_t address, const uint8_t *from, uint32_t bytes)
{
    uint32_t part = dxpu_request_next(address, bytes, nvme_config_mps(n));
    dxpu_tlp t;
    bus_request(n, &t, DXPU_TLP_MWR, address, part);
    t.payload.ptr = from;
    t.payload.len = part;
    n->count.dma_writes++;
    n->count.dma_write_bytes += part;
    bus_emit(n, &t);
    return part;
}

void nvme_dma_write(nvme *n, uint64_t address, const uint8_t *from, uint32_t bytes)
{
    while (bytes) {
        uint32_t part = nvme_dma_write_one(n, address, from, bytes);
        address += part;
        from += part;
        bytes -= part;
    }
}

/* ==== 4  DMA from the host ==================================================================== */

static void fetch_append(nvme *n, nvme_fetch *f)
{
    f->next = NULL;
    f->queued = true;
    *n->fetch_tail = f;
    n->fetch_tail = &f->next;
}

static void fetch_unlink(nvme *n, nvme_fetch *f)
{
    nvme_fetch **at = &n->fetch_head;
    while (f->queued && *at) {
        if (*at == f) {
            *at = f->next;
            if (!*at)
                n->fetch_tail = at;
            break;
        }
        at = &(*at)->next;
    }
    f->queued = false;
}

void nvme_fetch_start(nvme *n, nvme_fetch *f)
{
    f->asked = 0;
    f->in_flight = 0;
    f->failed = false;
    fetch_append(n, f);
}

void nvme_fetch_cancel(nvme *n, nvme_fetch *f)
{
    fetch_unlink(n, f);
    for (unsigned i = 0; i < NVME_TAGS && f->in_flight; i++) {
        if (n->request[i].owner == f) {
            n->request[i].owner = NULL; /* its completions may still come */
            f->in_flight--;
        }
    }
}

void nvme_fetch_forget(nvme *n)
{
    dxpu_request r;
    while (dxpu_tags_pop(&n->tags, &r)) {
    }
    memset(n->request, 0, sizeof n->request);
    n->fetch_head = NULL;
    n->fetch_tail = &n->fetch_head;
}

/* Requester ID, number of tags and timeout may be changed by configuration writes.  What is in
   flight keeps the old ones: the table changes when it is empty. */
static bool fetch_tags_ready(nvme *n)
{
    unsigned mode = nvme_config_tags(n);
    uint64_t timeout = nvme_config_timeout_ns(n);
    int rc;
    if (n->tags.capacity == mode && n->tags.requester == n->bdf && n->tags.timeout_ns == timeout)
        return true;
    if (n->tags.in_flight)
        return false;
    if (n->tags.requester == n->bdf && dxpu_tags_next_ns(&n->tags) != DXPU_NEVER)
        return false; /* a tag rests because a late completion could still come */
    rc = dxpu_tags_init(&n->tags, n->tag_entries, mode, n->bdf, mode, timeout);
    DXPU_ASSERT(rc == DXPU_OK);
    return rc == DXPU_OK;
}

/* Send one read request of f; false when no tag is free. */
static bool fetch_ask_one(nvme *n, nvme_fetch *f)
{
    uint64_t address = nvme_target_at(&f->from, f->asked);
    uint32_t part = dxpu_request_next(address, f->bytes - f->asked, nvme_config_mrrs(n));
    int tag = dxpu_tags_alloc(&n->tags);
    dxpu_tlp t;
    if (tag < 0)
        return false;
    bus_request(n, &t, DXPU_TLP_MRD, address, part);
    t.tag = (uint16_t)tag;
    if (dxpu_tags_track(&n->tags, &t, n->now_ns, (uint64_t)tag) != DXPU_OK)
        return false;
    n->request[tag].owner = f;
    n->request[tag].to = f->to + f->asked;
    f->asked += part;
    f->in_flight++;
    n->count.dma_reads++;
    n->count.dma_read_bytes += part;
    bus_emit(n, &t);
    return true;
}

/* One request of each in turn, so that a long transfer does not hold up the short ones. */
bool nvme_fetch_ask(nvme *n)
{
    bool any = false;
    while (n->fetch_head && fetch_tags_ready(n)) {
        nvme_fetch *f = n->fetch_head;
        if (!fetch_ask_one(n, f))
            break;
        any = true;
        fetch_unlink(n, f);
        if (f->asked < f->bytes)
            fetch_append(n, f);
    }
    return any;
}

/* One request of f is over. */
static void fetch_step(nvme *n, nvme_fetch *f, bool failed)
{
    f->in_flight--;
    if (failed) {
        f->failed = true;
        fetch_unlink(n, f);
    }
    if (!f->in_flight && !f->queued)
        f->done(n, f);
}

void nvme_dma_completion(nvme *n, const dxpu_tlp *cpl)
{
    dxpu_request r;
    nvme_fetch *f;
    uint16_t tag = cpl->tag;
    bool bad = cpl->status != DXPU_CPL_SC || cpl->ep;
    if (dxpu_tags_complete(&n->tags, cpl, &r) != DXPU_OK) {
        n->count.completions_refused++;
        return;
    }
    if (cpl->status == DXPU_CPL_UR)
        nvme_config_status(n, NVME_STATUS_MASTER_ABORT, 0);
    else if (cpl->status == DXPU_CPL_CA)
        nvme_config_status(n, NVME_STATUS_TARGET_ABORT, 0);
    if (cpl->ep)
        nvme_config_status(n, NVME_STATUS_PARITY, NVME_DEVICE_NONFATAL);
    if (bad)
        n->count.completions_failed++;
    f = n->request[tag].owner;
    if (!f) {
        n->count.completions_late++;
        return;
    }
    if (bad) {
        f->failed = true;
    } else {
        memcpy(n->request[tag].to, cpl->payload.ptr, cpl->payload.len);
        n->request[tag].to += cpl->payload.len;
    }
    if (r.done) {
        n->request[tag].owner = NULL;
        fetch_step(n, f, f->failed);
    }
}

void nvme_dma_expire(nvme *n)
{
    dxpu_request r;
    while (dxpu_tags_expire(&n->tags, n->now_ns, &r)) {
        nvme_fetch *f = n->request[r.tag].owner;
        n->count.completion_timeouts++;
        nvme_config_status(n, 0, NVME_DEVICE_NONFATAL);
        n->request[r.tag].owner = NULL;
        if (f)
            fetch_step(n, f, true);
    }
}

/* ==== 5  MSI-X ================================================================================ */

void nvme_msix_reset(nvme *n)
{
    memset(n->table, 0, sizeof n->table);
    memset(n->pending, 0, sizeof n->pending);
    for (unsigned i = 0; i < NVME_VECTORS; i++)
        n->table[4 * i + 3] = 1; /* masked */
}

/* offset is a dword of the table or of the pending bits */
uint32_t nvme_msix_read(const nvme *n, uint32_t offset)
{
    if (offset >= NVME_TABLE && (offset - NVME_TABLE) / 16 < NVME_VECTORS)
        return n->table[(offset - NVME_TABLE) / 4];
    if (offset >= NVME_PBA && (offset - NVME_PBA) / 4 < sizeof n->pending / sizeof n->pending[0])
        return n->pending[(offset - NVME_PBA) / 4];
    return 0;
}

void nvme_msix_write(nvme *n, uint32_t offset, uint32_t value, uint32_t enabled)
{
    uint32_t at = (offset - NVME_TABLE) / 4;
    static const uint32_t writable[4] = { 0xfffffffcu, 0xffffffffu, 0xffffffffu, 0x00000001u };
    if (offset < NVME_TABLE || at / 4 >= NVME_VECTORS)
        return; /* pending bits are read-only */
    enabled &= writable[at % 4];
    n->table[at] = (n->table[at] & ~enabled) | (value & enabled);
    nvme_msix_flush(n);
}

static bool msix_send(nvme *n, unsigned vector)
{
    const uint32_t *e = n->table + (size_t)vector * 4;
    uint8_t data[4];
    if (!nvme_config_masters(n) || nvme_config_msix_mask(n) || (e[3] & 1))
        return false;
    nvme_put32(data, e[2]);
    n->count.interrupts++;
    nvme_dma_write(n, (uint64_t)e[1] << 32 | e[0], data, sizeof data);
    return true;
}

void nvme_msix_signal(nvme *n, unsigned vector)
{
    if (!nvme_config_msix(n) || vector >= NVME_VECTORS)
        return; /* there is no other kind of interrupt */
    if (!msix_send(n, vector))
        n->pending[vector / 32] |= 1u << vector % 32;
}

void nvme_msix_flush(nvme *n)
{
    if (!nvme_config_msix(n))
        return;
    for (unsigned w = 0; w < sizeof n->pending / sizeof n->pending[0]; w++) {
        for (unsigned i = 0; n->pending[w] >> i; i++) {
            if ((n->pending[w] >> i & 1) && msix_send(n, w * 32 + i))
                n->pending[w] &= ~(1u << i);
            if (i == 31)
                break;
        }
    }
}
