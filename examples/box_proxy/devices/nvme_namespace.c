/* nvme_namespace.c - the NVMe controller's namespaces: identify, create, attach, format
   SPDX-License-Identifier: MIT

   Each has a store of the box, and as identifier the store's number.  What a host creates, deletes
   or detaches lasts while its channel does: the next one, also of the same lease, finds what the
   box's owner gave.

   CONTENTS   1 Which there are   2 Identify   3 Management   4 Format */
#include "nvme_model.h"

#include <errno.h>

/* ==== 1  Which there are ====================================================================== */

static nvme_ns *allocated(nvme *n, uint32_t nsid)
{
    bool there = nsid >= 1 && nsid <= n->ns_count && n->ns[nsid - 1].allocated;
    return there ? &n->ns[nsid - 1] : NULL;
}

nvme_ns *nvme_active(nvme *n, uint32_t nsid)
{
    nvme_ns *s = allocated(n, nsid);
    return s && s->attached ? s : NULL;
}

/* An identifier that may become active one day is another mistake than one that never will. */
uint16_t nvme_inactive(const nvme *n, uint32_t nsid)
{
    bool valid = nsid >= 1 && nsid <= n->ns_count;
    return (valid ? NVME_INVALID_FIELD : NVME_INVALID_NAMESPACE) | NVME_DNR;
}

uint64_t nvme_blocks(const nvme_ns *s)
{
    return s->bytes >> s->block_log2;
}

void nvme_namespaces_reset(nvme *n)
{
    for (uint32_t i = 0; i < n->ns_count; i++) {
        n->ns[i].bytes = n->ns[i].store.size;
        n->ns[i].generation = 0;
        n->ns[i].allocated = n->ns[i].attached = true;
        n->ns[i].changed = false;
    }
}

int nvme_sync(nvme *n)
{
    int rc = 0;
    for (uint32_t i = 0; i < n->ns_count; i++) {
        if (n->ns[i].allocated && nvme_store_sync(&n->ns[i].store))
            rc = -1;
    }
    return rc;
}

/* ==== 2  Identify ========================================================= NVMe 1.4, 5.15 ==== */

/* A UUID (version 8: ours to define) from the identity, so that it is the same at every start. */
void nvme_uuid(const nvme *n, uint64_t index, uint8_t uuid[16])
{
    uint64_t x = n->identity + index * 0xd1b54a32d192ed03u;
    for (unsigned half = 0; half < 2; half++) {
        x += 0x9e3779b97f4a7c15u;
        nvme_put64(uuid + (size_t)half * 8, nvme_mix(x));
    }
    uuid[6] = (uint8_t)(0x80 | (uuid[6] & 0x0f));
    uuid[8] = (uint8_t)(0x80 | (uuid[8] & 0x3f));
}

/* s NULL: what all namespaces have in common. */
static void identify_namespace(const nvme_ns *s, uint8_t *p)
{
    p[25] = 1;    /* formats, less one */
    p[33] = 0x09; /* deallocated blocks read as zero; Write Zeroes may deallocate */
    pci_store32(p + 128, 9u << 16);
    pci_store32(p + 132, 12u << 16);
    if (!s)
        return;
    nvme_put64(p + 0, nvme_blocks(s));
    nvme_put64(p + 8, nvme_blocks(s));
    nvme_put64(p + 16, nvme_blocks(s));
    p[26] = s->block_log2 == 12; /* which format */
    nvme_put64(p + 48, s->bytes);
}

static void identify_list(nvme *n, uint32_t after, bool attached_only, uint8_t *p)
{
    for (uint32_t nsid = 1; nsid <= n->ns_count; nsid++) {
        if (nsid > after && (attached_only ? nvme_active(n, nsid) : allocated(n, nsid))) {
            pci_store32(p, nsid);
            p += 4;
        }
    }
}

static void identify_descriptors(nvme *n, uint32_t nsid, uint8_t *p)
{
    p[0] = 3; /* a UUID */
    p[1] = 16;
    nvme_uuid(n, nsid | (uint64_t)n->ns[nsid - 1].generation << 32, p + 4);
}

static void identify_controllers(uint32_t from, bool any, uint8_t *p)
{
    if (any && from <= NVME_CONTROLLER) {
        nvme_put16(p, 1);
        nvme_put16(p + 2, NVME_CONTROLLER);
    }
}

uint16_t nvme_identify_namespaces(nvme *n, const nvme_command *c, uint8_t *page)
{
    uint32_t cns = c->dw[10] & 0xff, controller = c->dw[10] >> 16;
    bool all = c->nsid == NVME_NSID_ALL, valid = c->nsid >= 1 && c->nsid <= n->ns_count;
    nvme_ns *active = nvme_active(n, c->nsid), *there = allocated(n, c->nsid);
    switch (cns) {
    case 0x00:
    case 0x11: /* the same for those that are not attached */
        if (!valid && (cns == 0x11 || !all))
            return NVME_INVALID_NAMESPACE | NVME_DNR;
        if (all || (cns == 0x11 ? there : active))
            identify_namespace(there, page);
        return NVME_SUCCESS; /* of an inactive one all is 0 */
    case 0x02:
    case 0x10:
        if (c->nsid >= 0xfffffffeu)
            return NVME_INVALID_NAMESPACE | NVME_DNR;
        identify_list(n, c->nsid, cns == 0x02, page);
        return NVME_SUCCESS;
    case 0x03:
        if (!active)
            return nvme_inactive(n, c->nsid);
        identify_descriptors(n, c->nsid, page);
        return NVME_SUCCESS;
    case 0x12:
        if (!valid)
            return NVME_INVALID_NAMESPACE | NVME_DNR;
        identify_controllers(controller, active != NULL, page);
        return NVME_SUCCESS;
    case 0x13:
        identify_controllers(controller, true, page);
        return NVME_SUCCESS;
    default:
        return NVME_INVALID_FIELD | NVME_DNR;
    }
}

/* ==== 3  Management ============================================== NVMe 1.4, 5.19 and 5.20 ==== */

/* The free store that fits best, NULL after *status. */
static nvme_ns *free_store(nvme *n, uint64_t bytes, uint16_t *status)
{
    nvme_ns *best = NULL;
    *status = NVME_NO_NSID | NVME_DNR;
    for (uint32_t i = 0; i < n->ns_count; i++) {
        nvme_ns *s = &n->ns[i];
        if (s->allocated)
            continue;
        *status = NVME_NO_CAPACITY | NVME_DNR;
        if (s->store.size >= bytes && (!best || s->store.size < best->store.size))
            best = s;
    }
    return best;
}

static uint16_t create(nvme *n, nvme_command *c)
{
    const uint8_t *p = c->buffer;
    uint64_t blocks = nvme_le64(p);
    uint32_t log2 = p[26] & 0xf ? 12 : 9;
    uint16_t status;
    nvme_ns *s;
    if (p[26] > 1)
        return NVME_INVALID_FORMAT | NVME_DNR;
    if (p[29] || !blocks || nvme_le64(p + 8) > blocks) /* protection; capacity beyond the size */
        return NVME_INVALID_FIELD | NVME_DNR;
    if (nvme_le64(p + 8) < blocks)
        return NVME_NO_THIN_PROVISIONING | NVME_DNR;
    s = blocks <= UINT64_MAX >> log2 ? free_store(n, blocks << log2, &status) : NULL;
    if (!s)
        return blocks <= UINT64_MAX >> log2 ? status : NVME_NO_CAPACITY | NVME_DNR;
    s->bytes = blocks << log2;
    s->block_log2 = log2;
    s->recovery = 0;
    s->generation++;
    s->allocated = true;
    c->result = (uint32_t)(s - n->ns) + 1;
    return NVME_SUCCESS;
}

static void create_ready(nvme *n, nvme_command *c)
{
    nvme_finish(n, c, create(n, c));
}

static uint16_t erase(nvme *n, nvme_ns *s)
{
    if (!nvme_store_zero(&s->store, 0, s->store.size, true) && !nvme_store_sync(&s->store))
        return NVME_SUCCESS;
    nvme_failed(n, errno);
    return NVME_INTERNAL_ERROR;
}

/* Do it to one namespace, or to all that are `there`.  A status. */
static uint16_t each(nvme *n, uint32_t nsid, nvme_ns *(*there)(nvme *n, uint32_t nsid),
                     uint16_t (*act)(nvme *n, nvme_ns *s, uint32_t value), uint32_t value)
{
    uint16_t status = NVME_SUCCESS;
    nvme_ns *s;
    if (nsid != NVME_NSID_ALL) {
        s = there(n, nsid);
        return s ? act(n, s, value) : nvme_inactive(n, nsid);
    }
    for (nsid = 1; nsid <= n->ns_count && status == NVME_SUCCESS; nsid++) {
        s = there(n, nsid);
        if (s)
            status = act(n, s, value);
    }
    return status;
}

static uint16_t delete_one(nvme *n, nvme_ns *s, uint32_t value)
{
    uint16_t status = erase(n, s);
    (void)value;
    if (status != NVME_SUCCESS)
        return status;
    if (s->attached)
        nvme_namespace_changed(n, s);
    s->allocated = s->attached = false;
    return NVME_SUCCESS;
}

uint16_t nvme_management(nvme *n, nvme_command *c)
{
    switch (c->dw[10] & 0xf) {
    case 0:
        return nvme_transfer(n, c, false, NVME_PAGE_BYTES, create_ready);
    case 1:
        return each(n, c->nsid, allocated, delete_one, 0);
    default:
        return NVME_INVALID_FIELD | NVME_DNR;
    }
}

static uint16_t attach(nvme *n, const nvme_command *c)
{
    bool attached = (c->dw[10] & 0xf) == 0;
    nvme_ns *s = allocated(n, c->nsid);
    uint32_t first = pci_load32(c->buffer);
    if ((first & 0xffff) != 1 || first >> 16 != NVME_CONTROLLER)
        return NVME_CONTROLLER_LIST | NVME_DNR;
    if (s->attached == attached)
        return (attached ? NVME_ALREADY_ATTACHED : NVME_NOT_ATTACHED) | NVME_DNR;
    s->attached = attached;
    nvme_namespace_changed(n, s);
    return NVME_SUCCESS;
}

static void attach_ready(nvme *n, nvme_command *c)
{
    bool there = allocated(n, c->nsid) != NULL; /* a deletion may have come between */
    nvme_finish(n, c, there ? attach(n, c) : nvme_inactive(n, c->nsid));
}

uint16_t nvme_attachment(nvme *n, nvme_command *c)
{
    if ((c->dw[10] & 0xf) > 1)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (!allocated(n, c->nsid))
        return nvme_inactive(n, c->nsid);
    return nvme_transfer(n, c, false, NVME_PAGE_BYTES, attach_ready);
}

/* ==== 4  Format =========================================================== NVMe 1.4, 5.23 ==== */

static uint16_t format_one(nvme *n, nvme_ns *s, uint32_t format)
{
    uint16_t status = erase(n, s);
    if (status != NVME_SUCCESS)
        return status;
    s->block_log2 = format ? 12 : 9;
    nvme_namespace_changed(n, s);
    return NVME_SUCCESS;
}

/* Whether user data is to be erased or not, it is. */
uint16_t nvme_format(nvme *n, nvme_command *c)
{
    uint32_t format = c->dw[10] & 0xf, secure = c->dw[10] >> 9 & 7;
    if (c->nsid != NVME_NSID_ALL && !nvme_active(n, c->nsid))
        return nvme_inactive(n, c->nsid);
    if (format > 1 || (c->dw[10] & 0x1f0)) /* neither metadata nor protection */
        return NVME_INVALID_FORMAT | NVME_DNR;
    if (secure > 1) /* there is no key to forget */
        return NVME_INVALID_FIELD | NVME_DNR;
    return each(n, c->nsid, nvme_active, format_one, format);
}
