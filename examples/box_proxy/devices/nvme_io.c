/* nvme_io.c - the NVMe controller's I/O commands
   SPDX-License-Identifier: MIT

   NVMe 1.4, section 6. */
#include "nvme_model.h"

#include <errno.h>

enum { IO_FLUSH = 0x00, IO_WRITE = 0x01, IO_READ = 0x02 };
#define IO_FUA           0x40000000u /* dword 12 */
#define IO_PROTECTION    0x3c000000u
#define IO_MAY_FREE      0x02000000u /* of Write Zeroes */
#define IO_DEALLOCATE    0x04        /* dword 11 of Dataset Management */
#define IO_RANGE_BYTES   16u
#define IO_CLEARED_BYTES (64u << 20) /* of memory by one hint: others have their turn */

static uint64_t io_lba(const nvme_command *c)
{
    return c->dw[10] | (uint64_t)c->dw[11] << 32;
}

static uint32_t io_blocks(const nvme_command *c)
{
    return (c->dw[12] & 0xffff) + 1;
}

static bool io_in_range(const nvme_command *c, uint64_t lba, uint64_t blocks)
{
    uint64_t all = nvme_blocks(c->ns);
    return blocks <= all && lba <= all - blocks;
}

static uint16_t io_failed(nvme *n, uint16_t status)
{
    nvme_failed(n, errno);
    return status;
}

/* What must be durable before the command completes: with FUA, or when the cache is off. */
static uint16_t io_settle(nvme *n, const nvme_command *c)
{
    if (!(c->dw[12] & IO_FUA) && (n->features[6] & 1))
        return NVME_SUCCESS;
    return nvme_store_sync(&c->ns->store) ? io_failed(n, NVME_WRITE_FAULT) : NVME_SUCCESS;
}

static void io_read_ready(nvme *n, nvme_command *c)
{
    n->reads++;
    n->blocks_read += c->bytes >> 9; /* of 512 bytes, as the health log counts */
    nvme_finish(n, c, NVME_SUCCESS);
}

static void io_write_ready(nvme *n, nvme_command *c)
{
    uint16_t status = NVME_SUCCESS;
    n->writes++;
    n->blocks_written += c->bytes >> 9; /* of 512 bytes, as the health log counts */
    if (nvme_store_write(&c->ns->store, c->offset, c->buffer, c->bytes))
        status = io_failed(n, NVME_WRITE_FAULT);
    else
        status = io_settle(n, c);
    nvme_finish(n, c, status);
}

static void io_compare_ready(nvme *n, nvme_command *c)
{
    uint8_t part[NVME_PAGE_BYTES];
    uint32_t at = 0;
    uint16_t status = NVME_SUCCESS;
    n->reads++;
    n->blocks_read += c->bytes >> 9;
    while (at < c->bytes && status == NVME_SUCCESS) {
        uint32_t len = c->bytes - at < sizeof part ? c->bytes - at : (uint32_t)sizeof part;
        if (nvme_store_read(&c->ns->store, c->offset + at, part, len))
            status = io_failed(n, NVME_READ_ERROR);
        else if (memcmp(part, c->buffer + at, len))
            status = NVME_COMPARE_FAILURE | NVME_DNR;
        at += len;
    }
    nvme_finish(n, c, status);
}

/* What Read, Write, Compare, Write Zeroes and Verify have in common. */
static uint16_t io_check(const nvme_command *c)
{
    if (c->dw[12] & IO_PROTECTION) /* the format has none */
        return NVME_INVALID_FIELD | NVME_DNR;
    return io_in_range(c, io_lba(c), io_blocks(c)) ? NVME_SUCCESS : NVME_LBA_RANGE | NVME_DNR;
}

/* Read, Write, Compare. */
static uint16_t io_move(nvme *n, nvme_command *c)
{
    uint64_t bytes = (uint64_t)io_blocks(c) << c->ns->block_log2;
    uint16_t status = io_check(c);
    bool to_host = c->opcode == IO_READ;
    if (status != NVME_SUCCESS)
        return status;
    if (bytes > NVME_TRANSFER_BYTES)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (!nvme_buffer(n, c, (uint32_t)bytes)) {
        if (!n->buffer_bytes)
            return NVME_INTERNAL_ERROR; /* nobody will give any back */
        nvme_list_append(&n->starving, c);
        return NVME_PENDING;
    }
    c->offset = io_lba(c) << c->ns->block_log2;
    if (!to_host)
        return nvme_transfer(n, c, false, (uint32_t)bytes,
                             c->opcode == IO_WRITE ? io_write_ready : io_compare_ready);
    if ((c->dw[12] & IO_FUA) && nvme_store_sync(&c->ns->store))
        return io_failed(n, NVME_READ_ERROR);
    if (nvme_store_read(&c->ns->store, c->offset, c->buffer, (size_t)bytes))
        return io_failed(n, NVME_READ_ERROR);
    return nvme_transfer(n, c, true, (uint32_t)bytes, io_read_ready);
}

static uint16_t io_write_zeroes(nvme *n, nvme_command *c)
{
    uint64_t bytes = (uint64_t)io_blocks(c) << c->ns->block_log2;
    uint16_t status = io_check(c);
    if (status != NVME_SUCCESS)
        return status;
    if (nvme_store_zero(&c->ns->store, io_lba(c) << c->ns->block_log2, bytes,
                        (c->dw[12] & IO_MAY_FREE) != 0))
        return io_failed(n, NVME_WRITE_FAULT);
    return io_settle(n, c);
}

/* Can the blocks be read?  Nobody is given them. */
static uint16_t io_verify(nvme *n, nvme_command *c)
{
    uint8_t part[65536];
    uint64_t at = io_lba(c) << c->ns->block_log2;
    uint64_t end = at + ((uint64_t)io_blocks(c) << c->ns->block_log2);
    uint16_t status = io_check(c);
    while (status == NVME_SUCCESS && at < end) {
        size_t len = end - at < sizeof part ? (size_t)(end - at) : sizeof part;
        if (nvme_store_read(&c->ns->store, at, part, len))
            status = io_failed(n, NVME_READ_ERROR);
        at += len;
    }
    return status;
}

static void io_dataset_ready(nvme *n, nvme_command *c)
{
    uint16_t status = NVME_SUCCESS;
    uint32_t count = c->bytes / IO_RANGE_BYTES;
    uint64_t memory_bytes = IO_CLEARED_BYTES;
    for (uint32_t i = 0; i < count; i++) { /* all are looked at before anything is done */
        const uint8_t *r = c->buffer + (size_t)i * IO_RANGE_BYTES;
        if (!io_in_range(c, nvme_le64(r + 8), pci_load32(r + 4)))
            status = NVME_LBA_RANGE | NVME_DNR;
    }
    for (uint32_t i = 0; i < count && status == NVME_SUCCESS && (c->dw[11] & IO_DEALLOCATE); i++) {
        const uint8_t *r = c->buffer + (size_t)i * IO_RANGE_BYTES;
        uint64_t bytes = (uint64_t)pci_load32(r + 4) << c->ns->block_log2;
        if (bytes && nvme_store_deallocate(&c->ns->store, nvme_le64(r + 8) << c->ns->block_log2,
                                           bytes, &memory_bytes))
            status = io_failed(n, NVME_WRITE_FAULT);
    }
    if (status == NVME_SUCCESS)
        status = io_settle(n, c);
    nvme_finish(n, c, status);
}

static uint16_t io_dataset(nvme *n, nvme_command *c)
{
    uint32_t ranges = (c->dw[10] & 0xff) + 1;
    return nvme_transfer(n, c, false, ranges * IO_RANGE_BYTES, io_dataset_ready);
}

static uint16_t io_flush(nvme *n, nvme_command *c)
{
    int rc = c->ns ? nvme_store_sync(&c->ns->store) : nvme_sync(n);
    return rc ? io_failed(n, NVME_WRITE_FAULT) : NVME_SUCCESS;
}

static const nvme_operation io_operations[] = { /* effects as those of admin commands */
                                                { IO_FLUSH, 1, io_flush },
                                                { IO_WRITE, 3, io_move },
                                                { IO_READ, 1, io_move },
                                                { 0x05, 1, io_move }, /* Compare */
                                                { 0x08, 3, io_write_zeroes },
                                                { 0x09, 3, io_dataset },
                                                { 0x0c, 1, io_verify }
};

const nvme_operation *nvme_io_operations(size_t *count)
{
    *count = sizeof io_operations / sizeof io_operations[0];
    return io_operations;
}

uint16_t nvme_io_command(nvme *n, nvme_command *c)
{
    bool all = c->opcode == IO_FLUSH && c->nsid == NVME_NSID_ALL;
    for (size_t i = 0; i < sizeof io_operations / sizeof io_operations[0]; i++) {
        if (io_operations[i].opcode != c->opcode)
            continue;
        c->ns = nvme_active(n, c->nsid);
        return c->ns || all ? io_operations[i].run(n, c) : nvme_inactive(n, c->nsid);
    }
    return NVME_INVALID_OPCODE | NVME_DNR;
}
