/* nvme_admin.c - the NVMe controller's admin commands
   SPDX-License-Identifier: MIT

   NVMe 1.4, section 5.

   CONTENTS   1 Identify   2 Queues   3 Logs and formatting   4 Commands */
#include "nvme_model.h"

enum {
    ADMIN_DELETE_SQ = 0x00,
    ADMIN_CREATE_SQ = 0x01,
    ADMIN_GET_LOG = 0x02,
    ADMIN_DELETE_CQ = 0x04,
    ADMIN_CREATE_CQ = 0x05,
    ADMIN_IDENTIFY = 0x06,
    ADMIN_ABORT = 0x08,
    ADMIN_SET_FEATURES = 0x09,
    ADMIN_GET_FEATURES = 0x0a,
    ADMIN_EVENT = 0x0c,
    ADMIN_FORMAT = 0x80
};

static void admin_done(nvme *n, nvme_command *c)
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

/* A UUID (version 8: ours to define) from the identity, so that it is the same at every start. */
static void identify_uuid(const nvme *n, uint8_t uuid[16])
{
    uint64_t x = n->identity;
    for (unsigned half = 0; half < 2; half++) {
        x += 0x9e3779b97f4a7c15u; /* a mixer whose every step can be undone: no two ids meet */
        uint64_t z = x;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        nvme_put64(uuid + (size_t)half * 8, z ^ z >> 31);
    }
    uuid[6] = (uint8_t)(0x80 | (uuid[6] & 0x0f));
    uuid[8] = (uint8_t)(0x80 | (uuid[8] & 0x3f));
}

static void identify_nqn(const nvme *n, uint8_t *to)
{
    static const char prefix[] = "nqn.2014-08.org.nvmexpress:uuid:";
    uint8_t uuid[16];
    char *p = (char *)to;
    identify_uuid(n, uuid);
    memcpy(p, prefix, sizeof prefix - 1);
    p += sizeof prefix - 1;
    for (unsigned i = 0; i < 16; i++)
        p += snprintf(p, 4, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static void identify_controller(const nvme *n, uint8_t *p)
{
    char serial[24];
    snprintf(serial, sizeof serial, "DXPU%016llx", (unsigned long long)n->identity);
    nvme_put16(p + 0, NVME_VENDOR);
    nvme_put16(p + 2, NVME_VENDOR);
    identify_text(p + 4, 20, serial);
    identify_text(p + 24, 40, "dxpu NVMe");
    identify_text(p + 64, 8, "1.0");
    p[72] = 4;                       /* recommended arbitration burst: 16 */
    p[77] = NVME_TRANSFER_LOG2 - 12; /* MDTS, in pages of 4 KB */
    pci_store32(p + 80, 0x00010400); /* version 1.4 */
    pci_store32(p + 84, 1000000);    /* resume: microseconds at most */
    pci_store32(p + 88, 5000000);    /* shutdown */
    p[111] = 1;                      /* an I/O controller */
    nvme_put16(p + 256, 0x0002);     /* Format NVM */
    p[258] = 3;                      /* aborts at once, less one */
    p[259] = NVME_EVENT_COMMANDS - 1;
    p[260] = 0x03; /* one firmware slot, read-only */
    p[261] = 0x06; /* effects log; long offsets in logs */
    p[262] = NVME_ERRORS - 1;
    nvme_put16(p + 266, 343); /* kelvin: warning, critical */
    nvme_put16(p + 268, 353);
    nvme_put64(p + 280, n->store.size); /* capacity, all of it allocated */
    p[512] = 0x66;                      /* submission entries of 64 bytes */
    p[513] = 0x44;                      /* completion entries of 16 bytes */
    pci_store32(p + 516, 1);            /* namespaces */
    nvme_put16(p + 520, 0x001d);        /* Compare, DSM, Write Zeroes, Select in features */
    p[524] = 0x01;                      /* formatting concerns all namespaces */
    p[525] = 0x07;                      /* a volatile cache; Flush of all namespaces */
    pci_store32(p + 536, 0x00050001);   /* SGLs: no alignment, bit buckets, longer than the data */
    identify_nqn(n, p + 768);
    nvme_put16(p + 2048, 500); /* power state 0: 5 W */
}

static void identify_namespace(const nvme *n, uint8_t *p)
{
    uint64_t blocks = n->store.size >> n->block_log2;
    nvme_put64(p + 0, blocks);
    nvme_put64(p + 8, blocks);
    nvme_put64(p + 16, blocks);
    p[25] = 1;                   /* formats, less one */
    p[26] = n->block_log2 == 12; /* which of them */
    p[33] = 0x09;                /* deallocated blocks read as zero */
    nvme_put64(p + 48, n->store.size);
    pci_store32(p + 128, 9u << 16);
    pci_store32(p + 132, 12u << 16);
}

static uint16_t admin_identify(nvme *n, nvme_command *c)
{
    unsigned what = c->dw[10] & 0xff;
    bool ours = c->nsid == NVME_NSID;
    if (what > 3)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (((what == 0 || what == 3) && !ours) || (what == 2 && c->nsid >= 0xfffffffeu))
        return NVME_INVALID_NAMESPACE | NVME_DNR;
    if (!nvme_buffer(n, c, NVME_PAGE_BYTES))
        return NVME_INTERNAL_ERROR;
    if (what == 0) {
        identify_namespace(n, c->buffer);
    } else if (what == 1) {
        identify_controller(n, c->buffer);
    } else if (what == 2) {
        if (c->nsid < NVME_NSID)
            pci_store32(c->buffer, NVME_NSID);
    } else {
        c->buffer[0] = 3; /* a UUID */
        c->buffer[1] = 16;
        identify_uuid(n, c->buffer + 4);
    }
    return nvme_transfer(n, c, true, NVME_PAGE_BYTES, admin_done);
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

static uint16_t admin_create_cq(nvme *n, const nvme_command *c)
{
    uint32_t id = c->dw[10] & 0xffff, vector = c->dw[11] >> 16;
    uint16_t status = queue_check(c, id < NVME_QUEUES && n->cq[id].valid);
    if (status != NVME_SUCCESS)
        return status;
    if ((n->cc >> 20 & 0xf) != 4) /* CC.IOCQES: entries of 16 bytes */
        return NVME_QUEUE_SIZE | NVME_DNR;
    if (vector >= NVME_VECTORS)
        return NVME_INVALID_VECTOR | NVME_DNR;
    nvme_cq_open(n, id, queue_base(c), (c->dw[10] >> 16) + 1, vector, (c->dw[11] & 2) != 0);
    return NVME_SUCCESS;
}

static uint16_t admin_create_sq(nvme *n, const nvme_command *c)
{
    uint32_t id = c->dw[10] & 0xffff, cqid = c->dw[11] >> 16;
    uint16_t status = queue_check(c, id < NVME_QUEUES && n->sq[id].valid);
    if (status != NVME_SUCCESS)
        return status;
    if ((n->cc >> 16 & 0xf) != 6) /* CC.IOSQES: entries of 64 bytes */
        return NVME_QUEUE_SIZE | NVME_DNR;
    if (cqid == 0 || cqid >= NVME_QUEUES)
        return NVME_INVALID_QUEUE | NVME_DNR;
    if (!n->cq[cqid].valid)
        return NVME_CQ_INVALID | NVME_DNR;
    nvme_sq_open(n, id, queue_base(c), (c->dw[10] >> 16) + 1, cqid);
    return NVME_SUCCESS;
}

static uint16_t admin_delete_sq(nvme *n, const nvme_command *c)
{
    uint32_t id = c->dw[10] & 0xffff;
    if (id == 0 || id >= NVME_QUEUES || !n->sq[id].valid)
        return NVME_INVALID_QUEUE | NVME_DNR;
    nvme_sq_delete(n, id);
    return NVME_SUCCESS;
}

static uint16_t admin_delete_cq(nvme *n, const nvme_command *c)
{
    uint32_t id = c->dw[10] & 0xffff;
    if (id == 0 || id >= NVME_QUEUES || !n->cq[id].valid)
        return NVME_INVALID_QUEUE | NVME_DNR;
    if (n->cq[id].users)
        return NVME_QUEUE_DELETION | NVME_DNR;
    nvme_cq_delete(n, id);
    return NVME_SUCCESS;
}

/* ==== 3  Logs and formatting ================================================================== */

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
        (c->nsid != 0 && c->nsid != (uint32_t)NVME_NSID_ALL)) /* logs are the controller's */
        return NVME_INVALID_FIELD | NVME_DNR;
    if (!nvme_buffer(n, c, (uint32_t)bytes))
        return NVME_INTERNAL_ERROR;
    part = size - (uint32_t)offset;
    memcpy(c->buffer, page + offset, part < bytes ? part : (size_t)bytes);
    if (!(c->dw[10] >> 15 & 1)) /* Retain Asynchronous Event */
        nvme_event_read(n, id);
    return nvme_transfer(n, c, true, (uint32_t)bytes, admin_done);
}

static uint16_t admin_format(nvme *n, const nvme_command *c)
{
    uint32_t format = c->dw[10] & 0xf, erase = c->dw[10] >> 9 & 7;
    if (c->nsid != NVME_NSID && c->nsid != (uint32_t)NVME_NSID_ALL)
        return NVME_INVALID_NAMESPACE | NVME_DNR;
    if (format > 1 || (c->dw[10] & 0x1f0)) /* neither metadata nor protection */
        return NVME_INVALID_FORMAT | NVME_DNR;
    if (erase > 1) /* there is no key to forget */
        return NVME_INVALID_FIELD | NVME_DNR;
    if (nvme_store_zero(&n->store, 0, n->store.size) || nvme_store_sync(&n->store)) {
        n->count.store_errors++;
        return NVME_INTERNAL_ERROR;
    }
    n->block_log2 = format ? 12 : 9;
    return NVME_SUCCESS;
}

/* ==== 4  Commands ============================================================================= */

uint16_t nvme_admin_command(nvme *n, nvme_command *c)
{
    switch (c->opcode) {
    case ADMIN_DELETE_SQ:
        return admin_delete_sq(n, c);
    case ADMIN_CREATE_SQ:
        return admin_create_sq(n, c);
    case ADMIN_GET_LOG:
        return admin_get_log(n, c);
    case ADMIN_DELETE_CQ:
        return admin_delete_cq(n, c);
    case ADMIN_CREATE_CQ:
        return admin_create_cq(n, c);
    case ADMIN_IDENTIFY:
        return admin_identify(n, c);
    case ADMIN_ABORT:
        c->result = nvme_abort(n, c, c->dw[10] & 0xffff, c->dw[10] >> 16) ? 0 : 1;
        return NVME_SUCCESS;
    case ADMIN_SET_FEATURES:
        return nvme_set_features(n, c);
    case ADMIN_GET_FEATURES:
        return nvme_get_features(n, c);
    case ADMIN_EVENT:
        return nvme_event_request(n, c);
    case ADMIN_FORMAT:
        return admin_format(n, c);
    default: /* firmware, namespace management, keep alive, security: none */
        return NVME_INVALID_OPCODE | NVME_DNR;
    }
}
