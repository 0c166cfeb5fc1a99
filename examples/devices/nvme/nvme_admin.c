/* nvme_admin.c - the NVMe controller's admin commands
   SPDX-License-Identifier: MIT

   NVMe 1.4, section 5.

   CONTENTS   1 Identify   2 Queues   3 Logs   4 Commands */
#include "nvme_model.h"

void nvme_admin_done(nvme *n, nvme_command *c)
{
    nvme_finish(n, c, NVME_SUCCESS);
}

/* ==== 1  Identify ============================================================================= */

/* Text in a field padded with blanks. */
static void identify_text(uint8_t *to, size_t size, const char *text)
{
    size_t len = strlen(text);
    memset(to, ' ', size);
    memcpy(to, text, len < size ? len : size);
}

static void identify_nqn(const nvme *n, uint8_t *to)
{
    static const char prefix[] = "nqn.2014-08.org.nvmexpress:uuid:";
    uint8_t uuid[16];
    char *p = (char *)to;
    nvme_uuid(n, 0, uuid);
    memcpy(p, prefix, sizeof prefix - 1);
    p += sizeof prefix - 1;
    for (unsigned i = 0; i < 16; i++)
        p += snprintf(p, 4, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* OACS: Format NVM, Namespace Management.  Functions whose namespaces are each its own number them
   alike, which goes without the latter (NVMe 1.4, 6.1). */
static uint16_t optional_commands(const nvme *n)
{
    return nvme_is_shared(n) ? 0x0008 : n->functions ? 0x0002 : 0x000a;
}

static void identify_controller(const nvme *n, uint8_t *p)
{
    uint64_t all = 0, unused = 0;
    for (uint32_t i = 0; i < n->ns_count; i++) {
        all += n->ns[i].store->size;
        unused += n->ns[i].is.allocated ? 0 : n->ns[i].store->size;
    }
    dxpu_put_le16(p + 0, NVME_VENDOR);
    dxpu_put_le16(p + 2, NVME_VENDOR);
    identify_text(p + 4, 20, n->serial);
    identify_text(p + 24, 40, "dxpu NVMe");
    identify_text(p + 64, 8, "1.0");
    p[72] = 4; /* recommended arbitration burst: 16 */
    if (nvme_is_shared(n) || n->functions)
        p[76] = 0x02; /* CMIC: several controllers */
    if (n->fn.set.physical)
        p[76] |= 0x04;               /* this one is a virtual function's */
    p[77] = NVME_TRANSFER_LOG2 - 12; /* MDTS, in pages of 4 KB */
    dxpu_put_le16(p + 78, n->id);
    dxpu_put_le32(p + 80, 0x00010400);        /* version 1.4 */
    dxpu_put_le32(p + 84, 1000000);           /* resume: microseconds at most */
    dxpu_put_le32(p + 88, 5000000);           /* shutdown */
    dxpu_put_le32(p + 92, 0x100);             /* events: namespaces change */
    dxpu_put_le32(p + 96, nvme_is_shared(n)); /* host identifiers of 128 bits */
    p[111] = 1;                               /* an I/O controller */
    dxpu_put_le16(p + 256, optional_commands(n));
    p[258] = 3; /* aborts at once, less one */
    p[259] = NVME_EVENT_COMMANDS - 1;
    p[260] = 0x03; /* one firmware slot, read-only */
    p[261] = 0x06; /* effects log; long offsets in logs */
    p[262] = NVME_ERRORS - 1;
    dxpu_put_le16(p + 266, 343); /* kelvin: warning, critical */
    dxpu_put_le16(p + 268, 353);
    dxpu_put_le64(p + 280, all);
    dxpu_put_le64(p + 296, unused);
    p[512] = 0x66; /* submission entries of 64 bytes */
    p[513] = 0x44; /* completion entries of 16 bytes */
    dxpu_put_le32(p + 516, n->ns_count);
    /* Compare, DSM, Write Zeroes, Select in features, Verify; reservations */
    dxpu_put_le16(p + 520, 0x009d | (nvme_is_shared(n) ? 0x0020 : 0));
    p[525] = 0x07;                      /* a volatile cache; Flush of all namespaces */
    dxpu_put_le32(p + 536, 0x00050001); /* SGLs: no alignment, bit buckets, longer than the data */
    identify_nqn(n, p + 768);
    dxpu_put_le16(p + 2048, 500); /* power state 0: 5 W */
}

static uint16_t admin_identify(nvme *n, nvme_command *c)
{
    uint16_t status = NVME_SUCCESS;
    if (!nvme_buffer(n, c, NVME_PAGE_BYTES))
        return NVME_INTERNAL_ERROR;
    if ((c->dw[10] & 0xff) == 1)
        identify_controller(n, c->buffer);
    else
        status = nvme_identify_namespaces(n, c, c->buffer);
    return status == NVME_SUCCESS ? nvme_transfer(n, c, true, NVME_PAGE_BYTES, nvme_admin_done)
                                  : status;
}

/* ==== 2  Queues =============================================================================== */

/* What both kinds of queue have: identifier, size, contiguity, base. */
static uint16_t queue_check(const nvme_command *c, bool exists)
{
    uint32_t id = c->dw[10] & 0xffff, size = (c->dw[10] >> 16) + 1;
    if (id == 0 || id >= NVME_QUEUES || exists)
        return NVME_INVALID_QUEUE | NVME_DNR;
    if (size < 2 || size > NVME_QUEUE_ENTRIES)
        return NVME_QUEUE_SIZE | NVME_DNR;
    if (!(c->dw[11] & 1)) /* CAP.CQR: contiguous ones only */
        return NVME_INVALID_FIELD | NVME_DNR;
    return c->dw[6] & (NVME_PAGE_BYTES - 1) ? NVME_PRP_OFFSET | NVME_DNR : NVME_SUCCESS;
}

static uint64_t queue_base(const nvme_command *c)
{
    return c->dw[6] | (uint64_t)c->dw[7] << 32;
}

static uint16_t admin_create_cq(nvme *n, nvme_command *c)
{
    uint32_t id = c->dw[10] & 0xffff, size = (c->dw[10] >> 16) + 1, vector = c->dw[11] >> 16;
    uint16_t status = queue_check(c, id < NVME_QUEUES && n->cq[id].valid);
    if (status != NVME_SUCCESS)
        return status;
    if ((n->cc >> 20 & 0xf) != 4) /* CC.IOCQES: entries of 16 bytes */
        return NVME_QUEUE_SIZE | NVME_DNR;
    if (vector >= NVME_VECTORS)
        return NVME_INVALID_VECTOR | NVME_DNR;
    if (nvme_cmb_has(n, queue_base(c), size * (uint64_t)NVME_CQE_BYTES)) /* CMBSZ.CQS */
        return NVME_INVALID_CMB | NVME_DNR;
    nvme_cq_open(n, id, queue_base(c), size, vector, (c->dw[11] & 2) != 0);
    return NVME_SUCCESS;
}

static uint16_t admin_create_sq(nvme *n, nvme_command *c)
{
    uint32_t id = c->dw[10] & 0xffff, cqid = c->dw[11] >> 16;
    uint16_t status = queue_check(c, id < NVME_QUEUES && (n->sq[id].valid || n->sq[id].deleter));
    if (status != NVME_SUCCESS)
        return status;
    if ((n->cc >> 16 & 0xf) != 6) /* CC.IOSQES: entries of 64 bytes */
        return NVME_QUEUE_SIZE | NVME_DNR;
    if (cqid == 0 || cqid >= NVME_QUEUES)
        return NVME_INVALID_QUEUE | NVME_DNR;
    if (!n->cq[cqid].valid)
        return NVME_CQ_INVALID | NVME_DNR;
    return nvme_sq_open(n, id, queue_base(c), (c->dw[10] >> 16) + 1, cqid) ? NVME_INTERNAL_ERROR
                                                                           : NVME_SUCCESS;
}

static uint16_t admin_delete_sq(nvme *n, nvme_command *c)
{
    uint32_t id = c->dw[10] & 0xffff;
    if (id == 0 || id >= NVME_QUEUES || !n->sq[id].valid)
        return NVME_INVALID_QUEUE | NVME_DNR;
    nvme_sq_delete(n, id, c);
    return NVME_PENDING;
}

static uint16_t admin_delete_cq(nvme *n, nvme_command *c)
{
    uint32_t id = c->dw[10] & 0xffff;
    if (id == 0 || id >= NVME_QUEUES || !n->cq[id].valid)
        return NVME_INVALID_QUEUE | NVME_DNR;
    if (n->cq[id].users)
        return NVME_QUEUE_DELETION | NVME_DNR;
    nvme_cq_delete(n, id);
    return NVME_SUCCESS;
}

/* ==== 3  Logs ================================================================================= */

static uint16_t admin_get_log(nvme *n, nvme_command *c)
{
    uint8_t page[NVME_PAGE_BYTES];
    unsigned id = c->dw[10] & 0xff;
    uint64_t bytes = 4 * ((c->dw[10] >> 16 | (uint64_t)(c->dw[11] & 0xffff) << 16) + 1);
    uint64_t offset = c->dw[12] | (uint64_t)c->dw[13] << 32;
    uint32_t size, part;
    nvme_log_page(n, id, page, &size);
    if (!size)
        return NVME_INVALID_LOG | NVME_DNR;
    if ((offset & 3) || offset > size || bytes > NVME_TRANSFER_BYTES ||
        (c->nsid != 0 && c->nsid != NVME_NSID_ALL)) /* logs are the controller's */
        return NVME_INVALID_FIELD | NVME_DNR;
    if (!nvme_buffer(n, c, (uint32_t)bytes))
        return NVME_INTERNAL_ERROR;
    part = size - (uint32_t)offset;
    memcpy(c->buffer, page + offset, part < bytes ? part : (size_t)bytes);
    if (!(c->dw[10] >> 15 & 1)) /* Retain Asynchronous Event */
        nvme_event_read(n, id);
    return nvme_transfer(n, c, true, (uint32_t)bytes, nvme_admin_done);
}

/* ==== 4  Commands ============================================================================= */

static uint16_t admin_abort(nvme *n, nvme_command *c)
{
    c->result = nvme_abort(n, c, c->dw[10] & 0xffff, c->dw[10] >> 16) ? 0 : 1;
    return NVME_SUCCESS;
}

/* Effects: bit 0: supported; 1: changes blocks; 2: and a namespace; 3: which namespaces there are;
   bits 18:16 = 2: nothing else may run. */
static const nvme_operation admin_operations[] = {
    { 0x80, 0x20007, nvme_format }, /* firmware, keep alive, security, sanitize: none */
    { 0x00, 0x00001, admin_delete_sq },   { 0x01, 0x00001, admin_create_sq },
    { 0x02, 0x00001, admin_get_log },     { 0x04, 0x00001, admin_delete_cq },
    { 0x05, 0x00001, admin_create_cq },   { 0x06, 0x00001, admin_identify },
    { 0x08, 0x00001, admin_abort },       { 0x09, 0x00001, nvme_set_features },
    { 0x0a, 0x00001, nvme_get_features }, { 0x0c, 0x00001, nvme_event_request },
    { 0x0d, 0x0000b, nvme_management },   { 0x15, 0x00009, nvme_attachment },
};

/* Of these, without the first where others use the namespaces, too, and without Namespace
   Management, the last two, where others have some of the same numbers. */
const nvme_operation *nvme_admin_operations(const nvme *n, size_t *count)
{
    unsigned first = nvme_is_shared(n) ? 1 : 0, without = n->functions ? 2 : 0;
    *count = sizeof admin_operations / sizeof admin_operations[0] - first - without;
    return admin_operations + first;
}

uint16_t nvme_admin_command(nvme *n, nvme_command *c)
{
    size_t count;
    const nvme_operation *o = nvme_admin_operations(n, &count);
    for (size_t i = 0; i < count; i++) {
        if (o[i].opcode == c->opcode)
            return o[i].run(n, c);
    }
    return NVME_INVALID_OPCODE | NVME_DNR;
}
