/* nvme_transfer.c - the NVMe controller's data transfers: where they go, by PRP or by SGL
   SPDX-License-Identifier: MIT

   NVMe 1.4, 4.3 and 4.4.  Both ways of naming host memory become a list of ranges, which the reads
   of function.h and the writes here follow.

   CONTENTS   1 Ranges   2 PRPs   3 SGLs   4 Transfers */
#include "nvme_model.h"

#include <stdlib.h>

/* ==== 1  Ranges =============================================================================== */

/* The next bytes of the transfer, as many of them as it still needs.  A status. */
static uint16_t range_add(nvme_command *c, uint64_t address, uint32_t bytes, bool nowhere)
{
    fn_range *r = c->range_count ? &c->ranges[c->range_count - 1] : NULL;
    if (bytes > c->bytes - c->mapped)
        bytes = c->bytes - c->mapped;
    if (!bytes)
        return NVME_SUCCESS;
    c->mapped += bytes;
    if (r && r->nowhere == nowhere && (nowhere || r->address + r->bytes == address)) {
        r->bytes += bytes;
        return NVME_SUCCESS;
    }
    if (c->range_count == NVME_RANGES)
        return NVME_SGL_COUNT | NVME_DNR;
    if (c->range_count == c->range_room) {
        uint32_t room = c->range_room ? c->range_room * 2 : 8;
        fn_range *more = realloc(c->ranges, room * sizeof *more);
        if (!more)
            return NVME_INTERNAL_ERROR;
        c->ranges = more;
        c->range_room = room;
    }
    r = &c->ranges[c->range_count++];
    r->address = address;
    r->bytes = bytes;
    r->nowhere = nowhere;
    return NVME_SUCCESS;
}

static void transfer_fetched(void *user, fn_fetch *f)
{
    nvme *n = user;
    nvme_command *c = f->owner;
    if (f->failed)
        nvme_finish(n, c, NVME_TRANSFER_ERROR);
    else
        c->ready(n, c);
}

/* All ranges are known. */
static void transfer_start(nvme *n, nvme_command *c)
{
    c->fetch.ranges = c->ranges;
    c->fetch.to = c->buffer;
    c->fetch.bytes = c->bytes;
    c->fetch.done = transfer_fetched;
    if (!c->to_host) {
        fn_fetch_start(&n->fn, &c->fetch);
        return;
    }
    c->fetch.asked = c->fetch.range = c->fetch.at = 0; /* nvme_transfer_send() advances them */
    nvme_list_append(&n->sending, c);
}

/* Read a part of the list or segment at `address`, then call done(). */
static void list_fetch(nvme *n, nvme_command *c, uint64_t address, uint32_t bytes,
                       void (*done)(void *user, fn_fetch *f))
{
    if (!c->list)
        c->list = malloc(NVME_PAGE_BYTES);
    if (!c->list) {
        nvme_finish(n, c, NVME_INTERNAL_ERROR);
        return;
    }
    c->fetch.ranges = NULL;
    c->fetch.address = address;
    c->fetch.to = c->list;
    c->fetch.bytes = bytes;
    c->fetch.done = done;
    fn_fetch_start(&n->fn, &c->fetch);
}

/* ==== 2  PRPs ================================================================================= */

/* Entries that are needed beside those that came. */
static uint32_t prp_left(const nvme_command *c)
{
    return (c->bytes - c->mapped + NVME_PAGE_BYTES - 1) / NVME_PAGE_BYTES;
}

static uint16_t prp_add(nvme_command *c, uint64_t prp)
{
    return range_add(c, prp, NVME_PAGE_BYTES - (uint32_t)(prp & (NVME_PAGE_BYTES - 1)), false);
}

static void prp_list_fetched(void *user, fn_fetch *f);

/* Read the PRP list at `address`, as much of it as lies in its page and is needed. */
static void prp_list(nvme *n, nvme_command *c, uint64_t address)
{
    uint32_t room = NVME_PAGE_BYTES - (uint32_t)(address & (NVME_PAGE_BYTES - 1));
    uint32_t need = 8 * prp_left(c);
    list_fetch(n, c, address, need < room ? need : room, prp_list_fetched);
}

static void prp_list_fetched(void *user, fn_fetch *f)
{
    nvme *n = user;
    nvme_command *c = f->owner;
    uint32_t got = f->bytes / 8;
    /* when more pages are needed than entries came, the last entry points to the next list */
    bool chained = prp_left(c) > got;
    uint16_t status = f->failed ? NVME_TRANSFER_ERROR : NVME_SUCCESS;
    for (uint32_t i = 0; i < got && status == NVME_SUCCESS; i++) {
        uint64_t entry = dxpu_get_le64(c->list + (size_t)i * 8);
        if (entry & (NVME_PAGE_BYTES - 1)) {
            status = NVME_PRP_OFFSET | NVME_DNR;
        } else if (chained && i + 1 == got) {
            prp_list(n, c, entry);
            return;
        } else {
            status = prp_add(c, entry);
        }
    }
    if (status == NVME_SUCCESS)
        transfer_start(n, c);
    else
        nvme_finish(n, c, status);
}

static uint16_t prp_begin(nvme *n, nvme_command *c)
{
    uint64_t prp1 = c->dw[6] | (uint64_t)c->dw[7] << 32;
    uint64_t prp2 = c->dw[8] | (uint64_t)c->dw[9] << 32;
    uint16_t status = prp1 & 3 ? NVME_PRP_OFFSET | NVME_DNR : prp_add(c, prp1);
    uint32_t left = prp_left(c);
    if (status != NVME_SUCCESS)
        return status;
    if (prp2 & (left == 1 ? NVME_PAGE_BYTES - 1 : left > 1 ? 7 : 0))
        return NVME_PRP_OFFSET | NVME_DNR;
    if (left > 1) {
        prp_list(n, c, prp2);
        return NVME_PENDING;
    }
    if (left == 1)
        status = prp_add(c, prp2);
    if (status != NVME_SUCCESS)
        return status;
    transfer_start(n, c);
    return NVME_PENDING;
}

/* ==== 3  SGLs ================================================================================= */

enum { SGL_DATA = 0x00, SGL_BIT_BUCKET = 0x10, SGL_SEGMENT = 0x20, SGL_LAST_SEGMENT = 0x30 };
enum { SGL_BYTES = 16, SGL_DESCRIPTORS_MAX = 65536 };

static bool sgl_leads_on(const uint8_t *d)
{
    return d[15] == SGL_SEGMENT || d[15] == SGL_LAST_SEGMENT;
}

/* A descriptor of data.  Of what is read, bit buckets are as if they were not there. */
static uint16_t sgl_data(nvme_command *c, const uint8_t *d)
{
    uint64_t address = dxpu_get_le64(d);
    uint32_t bytes = dxpu_get_le32(d + 8);
    bool bucket = d[15] == SGL_BIT_BUCKET;
    if (!bucket && d[15] != SGL_DATA)
        return NVME_SGL_TYPE | NVME_DNR; /* keyed, of a transport, or with an offset */
    if (bucket && !c->to_host)
        return NVME_SUCCESS;
    if (!bucket && bytes && address + (bytes - 1) < address)
        return NVME_SGL_LENGTH | NVME_DNR;
    return range_add(c, address, bytes, bucket);
}

static void sgl_fetched(void *user, fn_fetch *f);

/* Read on in the segment, a page of descriptors at once. */
static void sgl_fetch(nvme *n, nvme_command *c)
{
    uint32_t part = c->segment_left < NVME_PAGE_BYTES ? c->segment_left : NVME_PAGE_BYTES;
    uint64_t address = c->segment;
    c->segment += part;
    c->segment_left -= part;
    list_fetch(n, c, address, part, sgl_fetched);
}

static uint16_t sgl_segment(nvme *n, nvme_command *c, const uint8_t *d)
{
    c->segment = dxpu_get_le64(d);
    c->segment_left = dxpu_get_le32(d + 8);
    c->segment_last = d[15] == SGL_LAST_SEGMENT;
    if (!c->segment_left || c->segment_left % SGL_BYTES || (c->segment & 7) ||
        c->segment + c->segment_left < c->segment)
        return NVME_SGL_SEGMENT | NVME_DNR;
    sgl_fetch(n, c);
    return NVME_PENDING;
}

/* One descriptor of a segment; last: nothing follows it there. */
static uint16_t sgl_take(nvme *n, nvme_command *c, const uint8_t *d, bool last)
{
    if (++c->descriptors > SGL_DESCRIPTORS_MAX) /* chains may have no end */
        return NVME_SGL_COUNT | NVME_DNR;
    if (sgl_leads_on(d)) {
        if (c->segment_last)
            return NVME_SGL_SEGMENT | NVME_DNR;
        return last ? sgl_segment(n, c, d) : NVME_SGL_COUNT | NVME_DNR;
    }
    if (last && !c->segment_last) /* only a last segment may end like this */
        return NVME_SGL_SEGMENT | NVME_DNR;
    return sgl_data(c, d);
}

/* NVME_PENDING, or why not. */
static uint16_t sgl_end(nvme *n, nvme_command *c)
{
    if (c->mapped < c->bytes)
        return NVME_SGL_LENGTH | NVME_DNR;
    transfer_start(n, c);
    return NVME_PENDING;
}

static void sgl_fetched(void *user, fn_fetch *f)
{
    nvme *n = user;
    nvme_command *c = f->owner;
    uint16_t status = f->failed ? NVME_TRANSFER_ERROR : NVME_SUCCESS;
    uint32_t bytes = f->bytes; /* f is reused when a descriptor leads on */
    for (uint32_t at = 0; at < bytes && status == NVME_SUCCESS && c->mapped < c->bytes;
         at += SGL_BYTES) /* what is beyond the data is ignored */
        status = sgl_take(n, c, c->list + at, !c->segment_left && at + SGL_BYTES == bytes);
    if (status == NVME_SUCCESS && c->segment_left && c->mapped < c->bytes) {
        sgl_fetch(n, c);
        return;
    }
    if (status == NVME_SUCCESS)
        status = sgl_end(n, c);
    if (status != NVME_PENDING)
        nvme_finish(n, c, status);
}

static uint16_t sgl_begin(nvme *n, nvme_command *c)
{
    uint8_t d[SGL_BYTES];
    uint16_t status;
    for (unsigned i = 0; i < 4; i++)
        dxpu_put_le32(d + (size_t)i * 4, c->dw[6 + i]);
    c->descriptors = 0;
    if (sgl_leads_on(d))
        return sgl_segment(n, c, d);
    status = sgl_data(c, d);
    return status == NVME_SUCCESS ? sgl_end(n, c) : status;
}

/* ==== 4  Transfers ============================================================================ */

uint16_t nvme_transfer(nvme *n, nvme_command *c, bool to_host, uint32_t bytes,
                       void (*ready)(nvme *n, nvme_command *c))
{
    if (bytes > NVME_TRANSFER_BYTES)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (!c->buffer && !nvme_buffer(n, c, bytes))
        return NVME_INTERNAL_ERROR;
    c->to_host = to_host;
    c->ready = ready;
    c->mapped = c->range_count = 0;
    return c->dptr == NVME_DPTR_PRP ? prp_begin(n, c) : sgl_begin(n, c);
}

/* One TLP of the command's data, or a piece to be discarded. */
static void transfer_send_one(nvme *n, nvme_command *c, uint32_t most)
{
    uint32_t bytes;
    uint64_t to = fn_fetch_at(&c->fetch, &bytes);
    if (!c->ranges[c->fetch.range].nowhere)
        bytes = fn_write_one(&n->fn, to, c->buffer + c->fetch.asked, bytes < most ? bytes : most);
    fn_fetch_advance(&c->fetch, bytes);
}

bool nvme_transfer_send(nvme *n)
{
    bool any = false;
    while (n->sending.head && fn_room(&n->fn)) {
        nvme_command *c = nvme_list_take(&n->sending);
        uint32_t stop = c->bytes - c->fetch.asked;
        stop = c->fetch.asked + (stop < NVME_PAGE_BYTES ? stop : NVME_PAGE_BYTES);
        while (c->fetch.asked < stop)
            transfer_send_one(n, c, stop - c->fetch.asked);
        any = true;
        if (c->fetch.asked < c->bytes)
            nvme_list_append(&n->sending, c);
        else
            c->ready(n, c);
    }
    return any;
}
