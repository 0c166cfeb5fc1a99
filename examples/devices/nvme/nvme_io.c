/* nvme_io.c - the NVMe controller's I/O commands
   SPDX-License-Identifier: MIT

   NVMe 1.4, section 6.  Data go between the host and a buffer (nvme_transfer.c), and between that
   and the medium (nvme_access.c).  What may be long goes in steps. */
#include "nvme_model.h"

enum { IO_FLUSH = 0x00, IO_WRITE = 0x01, IO_READ = 0x02 };
#define IO_FUA           0x40000000u /* dword 12 */
#define IO_PROTECTION    0x3c000000u
#define IO_MAY_FREE      0x02000000u /* of Write Zeroes */
#define IO_DEALLOCATE    0x04        /* dword 11 of Dataset Management */
#define IO_RANGE_BYTES   16u
#define IO_CLEARED_BYTES (64u << 20) /* of memory by one hint: it costs time, and frees nothing */

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

/* May an access of the command's blocks begin now?  A format, or the deletion of its namespace, may
   have come since it was checked. */
static uint16_t io_undisturbed(const nvme_command *c)
{
    return c->ns->erasing || c->erased != c->ns->erased ? NVME_FORMAT_IN_PROGRESS : NVME_SUCCESS;
}

static uint16_t io_access(nvme *n, nvme_command *c, nvme_op op, uint64_t at, uint64_t bytes,
                          bool sync, nvme_then *then)
{
    uint16_t status = io_undisturbed(c);
    return status == NVME_SUCCESS ? nvme_access_begin(n, c, op, c->ns, at, bytes, sync, then)
                                  : status;
}

/* From nvme_transfer() and then(): the command is over unless something is under way. */
static void io_go_on(nvme *n, nvme_command *c, uint16_t status)
{
    if (status != NVME_PENDING)
        nvme_finish(n, c, status);
}

/* It is to be durable before the command completes: with FUA, or when the cache is off. */
static bool io_durable(const nvme *n, const nvme_command *c)
{
    return (c->dw[12] & IO_FUA) || !(n->features[6] & 1);
}

/* What is done is to be durable, if it has to be. */
static uint16_t io_settle(nvme *n, nvme_command *c)
{
    if (!io_durable(n, c))
        return NVME_SUCCESS;
    return nvme_access_begin(n, c, NVME_OP_SYNC, c->ns, 0, 0, false, nvme_access_done);
}

static void io_read_ready(nvme *n, nvme_command *c)
{
    n->reads++;
    n->blocks_read += c->bytes >> 9; /* of 512 bytes, as the health log counts */
    nvme_finish(n, c, NVME_SUCCESS);
}

static void io_was_read(nvme *n, nvme_command *c, const nvme_access *a)
{
    if (!nvme_access_failed(n, c, a))
        io_go_on(n, c, nvme_transfer(n, c, true, c->bytes, io_read_ready));
}

/* The cache may have been turned off meanwhile, by a command whose flush missed these data. */
static void io_was_written(nvme *n, nvme_command *c, const nvme_access *a)
{
    if (!nvme_access_failed(n, c, a))
        io_go_on(n, c, a->sync ? NVME_SUCCESS : io_settle(n, c));
}

static void io_write_ready(nvme *n, nvme_command *c)
{
    n->writes++;
    n->blocks_written += c->bytes >> 9; /* of 512 bytes, as the health log counts */
    io_go_on(n, c,
             io_access(n, c, NVME_OP_WRITE, c->at, c->bytes, io_durable(n, c), io_was_written));
}

static void io_compare_ready(nvme *n, nvme_command *c)
{
    n->reads++;
    n->blocks_read += c->bytes >> 9;
    io_go_on(n, c, io_access(n, c, NVME_OP_COMPARE, c->at, c->bytes, false, nvme_access_done));
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
    uint64_t bytes = (uint64_t)io_blocks(c) << c->ns->is.block_log2;
    uint16_t status = io_check(c);
    if (status != NVME_SUCCESS)
        return status;
    if (bytes > NVME_TRANSFER_BYTES)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (!nvme_io_buffer(n, c, (uint32_t)bytes))
        return nvme_io_starve(n, c);
    c->at = io_lba(c) << c->ns->is.block_log2;
    c->fault = c->opcode == IO_WRITE ? NVME_WRITE_FAULT : NVME_READ_ERROR;
    if (c->opcode == IO_READ)
        return io_access(n, c, NVME_OP_READ, c->at, bytes, (c->dw[12] & IO_FUA) != 0, io_was_read);
    return nvme_transfer(n, c, false, (uint32_t)bytes,
                         c->opcode == IO_WRITE ? io_write_ready : io_compare_ready);
}

/* The range of Write Zeroes and Verify. */
static uint16_t io_begin(nvme_command *c, uint16_t fault)
{
    c->at = io_lba(c) << c->ns->is.block_log2;
    c->end = c->at + ((uint64_t)io_blocks(c) << c->ns->is.block_log2);
    c->fault = fault;
    return io_check(c);
}

static void io_zeroed(nvme *n, nvme_command *c, const nvme_access *a);

static uint16_t io_zero_rest(nvme *n, nvme_command *c)
{
    return c->at == c->end ? io_settle(n, c)
                           : io_access(n, c, NVME_OP_ZERO, c->at, c->end - c->at,
                                       (c->dw[12] & IO_MAY_FREE) != 0, io_zeroed);
}

static void io_zeroed(nvme *n, nvme_command *c, const nvme_access *a)
{
    c->at += a->bytes;
    if (!nvme_access_failed(n, c, a))
        io_go_on(n, c, io_zero_rest(n, c));
}

static uint16_t io_write_zeroes(nvme *n, nvme_command *c)
{
    uint16_t status = io_begin(c, NVME_WRITE_FAULT);
    return status == NVME_SUCCESS ? io_zero_rest(n, c) : status;
}

static void io_verified(nvme *n, nvme_command *c, const nvme_access *a);

static uint16_t io_verify_rest(nvme *n, nvme_command *c)
{
    return c->at == c->end
               ? NVME_SUCCESS
               : io_access(n, c, NVME_OP_VERIFY, c->at, c->end - c->at, false, io_verified);
}

static void io_verified(nvme *n, nvme_command *c, const nvme_access *a)
{
    c->at += a->bytes;
    if (!nvme_access_failed(n, c, a))
        io_go_on(n, c, io_verify_rest(n, c));
}

/* Returns whether the blocks can be read; they are not transferred. */
static uint16_t io_verify(nvme *n, nvme_command *c)
{
    uint16_t status = io_begin(c, NVME_READ_ERROR);
    return status == NVME_SUCCESS ? io_verify_rest(n, c) : status;
}

/* Range `i` of Dataset Management, in bytes of the store when it is in range. */
static void io_range(const nvme_command *c, uint32_t i, uint64_t *lba, uint64_t *blocks)
{
    const uint8_t *r = c->buffer + (size_t)i * IO_RANGE_BYTES;
    *lba = dxpu_get_le64(r + 8);
    *blocks = dxpu_get_le32(r + 4);
}

static void io_deallocated(nvme *n, nvme_command *c, const nvme_access *a);

/* From byte `at` of range `index` on; `end` is what the hint may still clear of memory. */
static uint16_t io_deallocate_rest(nvme *n, nvme_command *c)
{
    uint64_t lba, blocks;
    for (; c->index < c->bytes / IO_RANGE_BYTES; c->index++, c->at = 0) {
        io_range(c, c->index, &lba, &blocks);
        blocks <<= c->ns->is.block_log2;
        if (c->at < blocks)
            return io_access(n, c, NVME_OP_DEALLOCATE, (lba << c->ns->is.block_log2) + c->at,
                             blocks - c->at, false, io_deallocated);
    }
    return io_settle(n, c);
}

static void io_deallocated(nvme *n, nvme_command *c, const nvme_access *a)
{
    c->at += a->bytes;
    c->end = a->memory_bytes;
    if (!nvme_access_failed(n, c, a))
        io_go_on(n, c, io_deallocate_rest(n, c));
}

static void io_dataset_ready(nvme *n, nvme_command *c)
{
    uint16_t status = NVME_SUCCESS;
    uint64_t lba, blocks;
    c->fault = NVME_WRITE_FAULT;
    c->at = c->index = 0;
    c->end = IO_CLEARED_BYTES;
    for (uint32_t i = 0; i < c->bytes / IO_RANGE_BYTES; i++) { /* before anything is done */
        io_range(c, i, &lba, &blocks);
        if (!io_in_range(c, lba, blocks))
            status = NVME_LBA_RANGE | NVME_DNR;
    }
    if (status == NVME_SUCCESS)
        status = c->dw[11] & IO_DEALLOCATE ? io_deallocate_rest(n, c) : io_settle(n, c);
    io_go_on(n, c, status);
}

static uint16_t io_dataset(nvme *n, nvme_command *c)
{
    uint32_t ranges = (c->dw[10] & 0xff) + 1;
    return nvme_transfer(n, c, false, ranges * IO_RANGE_BYTES, io_dataset_ready);
}

static uint16_t io_flush(nvme *n, nvme_command *c)
{
    c->fault = NVME_WRITE_FAULT;
    return c->ns ? nvme_access_begin(n, c, NVME_OP_SYNC, c->ns, 0, 0, false, nvme_access_done)
                 : nvme_sync_all(n, c);
}

static const nvme_operation io_operations[] = { /* effects as those of admin commands */
                                                { IO_FLUSH, 1, io_flush },
                                                { IO_WRITE, 3, io_move },
                                                { IO_READ, 1, io_move },
                                                { 0x05, 1, io_move }, /* Compare */
                                                { 0x08, 3, io_write_zeroes },
                                                { 0x09, 3, io_dataset },
                                                { 0x0c, 1, io_verify },
                                                { 0x0d, 1, nvme_reserve_register },
                                                { 0x0e, 1, nvme_reserve_report },
                                                { 0x11, 1, nvme_reserve_acquire },
                                                { 0x15, 1, nvme_reserve_release }
};

enum { IO_ALONE = 7 }; /* of these, where there are no reservations */

const nvme_operation *nvme_io_operations(const nvme *n, size_t *count)
{
    *count = nvme_is_shared(n) ? sizeof io_operations / sizeof io_operations[0] : IO_ALONE;
    return io_operations;
}

uint16_t nvme_io_command(nvme *n, nvme_command *c)
{
    bool all = c->opcode == IO_FLUSH && c->nsid == NVME_NSID_ALL;
    size_t count;
    const nvme_operation *o = nvme_io_operations(n, &count);
    for (size_t i = 0; i < count; i++) {
        uint16_t status;
        if (o[i].opcode != c->opcode)
            continue;
        c->ns = nvme_active(n, c->nsid);
        c->erased = c->ns ? c->ns->erased : 0;
        if (!c->ns && !all)
            return nvme_inactive(n, c->nsid);
        status = nvme_reserve_check(n, c);
        return status == NVME_SUCCESS ? o[i].run(n, c) : status;
    }
    return NVME_INVALID_OPCODE | NVME_DNR;
}
