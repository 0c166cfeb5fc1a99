/* nvme_queue.c - the NVMe controller's queues, and the life of a command
   SPDX-License-Identifier: MIT

   An entry is fetched from its submission queue, becomes a command, moves its data
   (nvme_transfer.c, nvme_access.c) and waits in its completion queue until there is room.  Nothing
   blocks: each step is taken by nvme_pump() when it can be.

   CONTENTS   1 Lists and commands   2 Completion queues   3 Submission queues
              4 Making and deleting   5 Doorbells   6 The pump */
#include "nvme_model.h"

#include <stdlib.h>

/* ==== 1  Lists and commands =================================================================== */

void nvme_list_clear(nvme_list *l)
{
    l->head = NULL;
    l->tail = &l->head;
}

void nvme_list_append(nvme_list *l, nvme_command *c)
{
    c->next = NULL;
    *l->tail = c;
    l->tail = &c->next;
}

nvme_command *nvme_list_take(nvme_list *l)
{
    nvme_command *c = l->head;
    if (!c)
        return NULL;
    l->head = c->next;
    if (!l->head)
        l->tail = &l->head;
    c->next = NULL;
    return c;
}

bool nvme_list_remove(nvme_list *l, nvme_command *c)
{
    for (nvme_command **at = &l->head; *at; at = &(*at)->next) {
        if (*at != c)
            continue;
        *at = c->next;
        if (!*at)
            l->tail = at;
        c->next = NULL;
        return true;
    }
    return false;
}

static unsigned command_pool(unsigned sqid)
{
    return sqid != 0;
}

void nvme_drop_buffer(nvme *n, nvme_command *c)
{
    if (!c->buffer)
        return;
    n->buffer_bytes -= c->bytes;
    free(c->buffer);
    c->buffer = NULL;
}

static void command_release(nvme *n, nvme_command *c)
{
    unsigned pool = command_pool(c->sqid);
    nvme_drop_buffer(n, c);
    if (c->range_room > NVME_PAGES) { /* long lists are rare: their memory is not kept */
        free(c->ranges);
        c->ranges = NULL;
        c->range_room = 0;
    }
    c->used = c->posting = c->event = false;
    n->names[c - n->commands] = NVME_NO_NAME;
    nvme_list_append(&n->free[pool], c);
    n->free_count[pool]++;
}

/* Take a command out of whatever it waits for, but for its access. */
static void command_stop(nvme *n, nvme_command *c)
{
    fn_fetch_cancel(&n->fn, &c->fetch);
    (void)nvme_list_remove(&n->sending, c);
    (void)nvme_list_remove(&n->starving, c);
    (void)nvme_list_remove(&n->reserving, c);
    if (nvme_list_remove(&n->event_commands, c))
        n->event_commands_count--;
    c->event = false;
    nvme_layout_leave(n, c);
}

static bool command_buffer(nvme *n, nvme_command *c, uint32_t bytes, uint8_t *buffer)
{
    c->buffer = buffer;
    if (!buffer)
        return false;
    c->bytes = bytes;
    n->buffer_bytes += bytes;
    return true;
}

bool nvme_buffer(nvme *n, nvme_command *c, uint32_t bytes)
{
    return command_buffer(n, c, bytes, calloc(1, bytes));
}

bool nvme_io_buffer(nvme *n, nvme_command *c, uint32_t bytes)
{
    if (bytes > NVME_PAGE_BYTES && n->buffer_bytes && n->buffer_bytes + bytes > NVME_BUFFER_BYTES)
        return false;
    return command_buffer(n, c, bytes, malloc(bytes));
}

uint16_t nvme_io_starve(nvme *n, nvme_command *c)
{
    if (!n->buffer_bytes)
        return NVME_INTERNAL_ERROR; /* none will be given back */
    nvme_list_append(&n->starving, c);
    return NVME_PENDING;
}

void nvme_finish(nvme *n, nvme_command *c, uint16_t status)
{
    nvme_cq *cq = &n->cq[c->cqid];
    nvme_drop_buffer(n, c);
    c->status = status;
    n->count.commands++;
    if (status != NVME_SUCCESS) {
        n->count.commands_failed++;
        if (status != NVME_HOST_FORMAT) { /* Linux knows only this value, without other bits */
            c->status |= NVME_MORE;
            nvme_log_error(n, c);
        }
    }
    if (!cq->valid) {
        command_release(n, c);
        return;
    }
    c->posting = true;
    nvme_list_append(&cq->posting, c);
    nvme_subsystem_wake(n); /* another controller's command may have ended it */
}

/* The access is perhaps not the command's last one. */
static bool goes_in_steps(const nvme_access *a)
{
    return a->op == NVME_OP_VERIFY || a->op == NVME_OP_ZERO || a->op == NVME_OP_DEALLOCATE;
}

/* It is over when the last command of that queue is, and its queue points to it meanwhile. */
static bool deletes_a_queue(const nvme *n, const nvme_command *c)
{
    for (unsigned i = 1; i < n->queue_limit; i++) {
        if (n->sq[i].deleter == c)
            return true;
    }
    return false;
}

bool nvme_abort(nvme *n, const nvme_command *self, unsigned sqid, unsigned cid)
{
    for (unsigned i = 0; i < NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS; i++) {
        nvme_command *c = &n->commands[i];
        if (!c->used || c->posting || c == self || c->sqid != sqid || c->cid != cid)
            continue;
        if (deletes_a_queue(n, c))
            return false;
        if (!nvme_access_cancel(n, c)) {
            if (goes_in_steps(c->access)) /* a deferred abort: not yet, but before its end */
                c->stop = NVME_ABORTED;
            return false;
        }
        command_stop(n, c);
        nvme_finish(n, c, NVME_ABORTED);
        return true;
    }
    return false;
}

/* An access that is under way is not stopped: its command ends with it. */
void nvme_preempt(nvme *n, const nvme_ns *s)
{
    for (unsigned i = NVME_ADMIN_COMMANDS;
         n->commands && i < NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS; i++) {
        nvme_command *c = &n->commands[i];
        if (!c->used || c->posting || c->ns != s)
            continue;
        c->stop = NVME_PREEMPTED; /* unless its host gives it up meanwhile */
        c->preempted = true;
        if (!nvme_access_cancel(n, c))
            continue;
        command_stop(n, c);
        nvme_finish(n, c, NVME_PREEMPTED);
    }
}

bool nvme_is_serving(const nvme *n)
{
    bool any = false;
    for (unsigned i = NVME_ADMIN_COMMANDS;
         n->commands && i < NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS; i++)
        any |= n->commands[i].used && !n->commands[i].posting;
    return any;
}

bool nvme_is_preempting(const nvme *n)
{
    for (unsigned i = NVME_ADMIN_COMMANDS;
         n->commands && i < NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS; i++) {
        const nvme_command *c = &n->commands[i];
        if (c->used && !c->posting && c->access && c->preempted)
            return true;
    }
    return false;
}

/* ==== 2  Completion queues ==================================================================== */

static bool cq_full(const nvme_cq *cq)
{
    return (cq->tail + 1u) % cq->size == cq->head;
}

static void cq_post(nvme *n, nvme_cq *cq, nvme_command *c)
{
    uint8_t e[NVME_CQE_BYTES];
    dxpu_put_le32(e, c->result);
    dxpu_put_le32(e + 4, 0);
    dxpu_put_le16(e + 8, n->sq[c->sqid].head);
    dxpu_put_le16(e + 10, c->sqid);
    dxpu_put_le16(e + 12, c->cid);
    dxpu_put_le16(e + 14, (uint32_t)c->status << 1 | cq->phase);
    fn_write(&n->fn, cq->base + (uint64_t)cq->tail * NVME_CQE_BYTES, e, sizeof e);
    cq->tail = (uint16_t)((cq->tail + 1u) % cq->size);
    if (cq->tail == 0)
        cq->phase ^= 1;
    command_release(n, c);
}

static bool cq_post_all(nvme *n)
{
    bool any = false;
    for (unsigned i = 0; i < n->queue_limit; i++) {
        nvme_cq *cq = &n->cq[i];
        bool posted = false;
        while (cq->valid && cq->posting.head && !cq_full(cq)) {
            cq_post(n, cq, nvme_list_take(&cq->posting));
            posted = true;
        }
        if (posted && cq->interrupts)
            (void)fn_msix_signal(&n->fn, cq->vector);
        any |= posted;
    }
    return any;
}

/* ==== 3  Submission queues ==================================================================== */

static bool sq_cid_in_use(const nvme *n, uint32_t name)
{
    for (unsigned i = 0; i < NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS; i++) {
        if (n->names[i] == name)
            return true;
    }
    return false;
}

static uint16_t sq_execute(nvme *n, nvme_command *c)
{
    uint32_t flags = c->dw[0] >> 8 & 0xff, name = (uint32_t)c->sqid << 16 | c->cid;
    if (sq_cid_in_use(n, name))
        return NVME_CID_CONFLICT | NVME_DNR;
    n->names[c - n->commands] = name;
    if ((flags & 3) || c->dptr == NVME_DPTR_RESERVED || (!c->sqid && c->dptr != NVME_DPTR_PRP))
        return NVME_INVALID_FIELD | NVME_DNR; /* fused; admin commands have no SGLs (4.2) */
    n->count.sgl_commands += c->dptr != NVME_DPTR_PRP;
    return c->sqid ? nvme_io_command(n, c) : nvme_admin_command(n, c);
}

static void sq_start(nvme *n, unsigned sqid, const uint8_t *entry)
{
    nvme_command *c = nvme_list_take(&n->free[command_pool(sqid)]);
    uint16_t status;
    DXPU_ASSERT(c); /* sq_take() has reserved it */
    c->used = true;
    c->posting = c->event = c->preempted = false;
    for (unsigned i = 0; i < 16; i++)
        c->dw[i] = dxpu_get_le32(entry + (size_t)i * 4);
    c->opcode = (uint8_t)c->dw[0];
    c->cid = (uint16_t)(c->dw[0] >> 16);
    c->dptr = (uint8_t)(c->dw[0] >> 14 & 3);
    c->nsid = c->dw[1];
    c->sqid = (uint16_t)sqid;
    c->cqid = n->sq[sqid].cqid;
    c->result = 0;
    c->bytes = 0;
    c->stop = 0;
    c->ns = NULL;
    c->fault = NVME_INTERNAL_ERROR;
    c->over = nvme_finish;
    c->fetch.owner = c;
    status = sq_execute(n, c);
    if (status != NVME_PENDING)
        nvme_finish(n, c, status);
}

static void sq_fetched(void *user, fn_fetch *f)
{
    nvme *n = user;
    nvme_sq *sq = f->owner;
    unsigned sqid = (unsigned)(sq - n->sq);
    sq->busy = false;
    if (f->failed) { /* what the host wanted cannot be known */
        nvme_fatal(n);
        return;
    }
    for (unsigned i = 0; i < sq->count; i++) {
        sq->head = (uint16_t)((sq->head + 1u) % sq->size);
        sq_start(n, sqid, sq->entries + (size_t)i * NVME_SQE_BYTES);
    }
}

/* Begin to fetch new entries of one queue. */
static bool sq_take(nvme *n, unsigned sqid)
{
    nvme_sq *sq = &n->sq[sqid];
    unsigned pool = command_pool(sqid), burst = 1u << (n->features[1] & 7);
    uint32_t count;
    if (!sq->valid || sq->busy || sq->head == sq->tail)
        return false;
    count = sq->tail > sq->head ? (uint32_t)sq->tail - sq->head : sq->size - sq->head;
    count = count < NVME_BATCH ? count : NVME_BATCH;
    count = count < burst ? count : burst;
    count = count < n->free_count[pool] ? count : n->free_count[pool];
    count = count < n->entries_left ? count : n->entries_left;
    if (!count)
        return false;
    n->entries_left -= count;
    n->free_count[pool] -= count;
    sq->busy = true;
    sq->count = (uint16_t)count;
    sq->fetch.ranges = NULL;
    sq->fetch.address = sq->base + (uint64_t)sq->head * NVME_SQE_BYTES;
    sq->fetch.to = sq->entries;
    sq->fetch.bytes = count * NVME_SQE_BYTES;
    sq->fetch.done = sq_fetched;
    sq->fetch.owner = sq;
    fn_fetch_start(&n->fn, &sq->fetch);
    return true;
}

/* Round robin: the queue after the last that was served comes first. */
static bool sq_take_all(nvme *n)
{
    unsigned first = n->next_sq;
    bool any = false;
    for (unsigned i = 0; i < n->queue_limit; i++) {
        unsigned sqid = (first + i) % n->queue_limit;
        if (sq_take(n, sqid)) {
            n->next_sq = sqid + 1;
            any = true;
        }
    }
    return any;
}

/* ==== 4  Making and deleting ================================================================== */

void nvme_cq_open(nvme *n, unsigned id, uint64_t base, uint32_t size, unsigned vector, bool ints)
{
    nvme_cq *cq = &n->cq[id];
    memset(cq, 0, sizeof *cq);
    nvme_list_clear(&cq->posting);
    cq->valid = true;
    cq->interrupts = ints;
    cq->phase = 1;
    cq->vector = (uint16_t)vector;
    cq->size = size;
    cq->base = base;
    if (n->queue_limit <= id)
        n->queue_limit = id + 1;
}

/* Between head and tail the entries are the controller's, which does not write them (U-11). */
static uint32_t sq_push(nvme *n, unsigned id, uint64_t base, uint32_t size)
{
    dxpu_push_rule r;
    if (nvme_cmb_has(n, base, (uint64_t)size * NVME_SQE_BYTES)) /* it is no memory of the host */
        return 0;
    memset(&r, 0, sizeof r);
    r.mode = DXPU_PUSH_SINCE;
    r.width = 4;
    r.base = base;
    r.entries = size;
    r.stride = NVME_SQE_BYTES;
    r.bytes = NVME_BATCH * NVME_SQE_BYTES;
    return fn_push_begin(&n->fn, 0, NVME_DOORBELLS + (uint64_t)id * 8, &r);
}

int nvme_sq_open(nvme *n, unsigned id, uint64_t base, uint32_t size, unsigned cqid)
{
    nvme_sq *sq = &n->sq[id];
    sq->entries = malloc((size_t)NVME_BATCH * NVME_SQE_BYTES);
    if (!sq->entries)
        return -1;
    sq->valid = true;
    sq->cqid = (uint16_t)cqid;
    sq->size = size;
    sq->base = base;
    n->cq[cqid].users++;
    sq->push = sq_push(n, id, base, size);
    if (n->queue_limit <= id)
        n->queue_limit = id + 1;
    return 0;
}

static void sq_clear(nvme_sq *sq)
{
    free(sq->entries);
    memset(sq, 0, sizeof *sq);
}

/* Its last command is over. */
static void sq_deleted(nvme *n, nvme_sq *sq)
{
    nvme_command *deleter = sq->deleter;
    n->cq[sq->cqid].users--;
    sq_clear(sq);
    nvme_finish(n, deleter, NVME_SUCCESS);
}

/* No command of this queue is left but those that wait for their completion queue. */
static bool sq_is_over(const nvme *n, unsigned id)
{
    for (unsigned i = 0; i < NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS; i++) {
        const nvme_command *c = &n->commands[i];
        if (c->used && !c->posting && c->sqid == id)
            return false;
    }
    return true;
}

/* Queues whose deletion waited for accesses of their commands.  True when one is over. */
static bool sq_delete_all(nvme *n)
{
    bool any = false;
    for (unsigned i = 1; i < n->queue_limit; i++) {
        if (!n->sq[i].deleter || !sq_is_over(n, i))
            continue;
        sq_deleted(n, &n->sq[i]);
        any = true;
    }
    return any;
}

void nvme_sq_delete(nvme *n, unsigned id, nvme_command *deleter)
{
    nvme_sq *sq = &n->sq[id];
    if (sq->busy) {
        fn_fetch_cancel(&n->fn, &sq->fetch);
        n->free_count[command_pool(id)] += sq->count;
        sq->busy = false;
    }
    fn_push_end(&n->fn, sq->push);
    sq->valid = false;
    sq->deleter = deleter;
    for (unsigned i = 0; i < NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS; i++) {
        nvme_command *c = &n->commands[i];
        if (!c->used || c->posting || c->sqid != id)
            continue;
        c->stop = NVME_SQ_DELETED;
        if (!nvme_access_cancel(n, c))
            continue; /* with the end of its access */
        command_stop(n, c);
        nvme_finish(n, c, NVME_SQ_DELETED);
    }
}

void nvme_cq_delete(nvme *n, unsigned id)
{
    nvme_command *c;
    while ((c = nvme_list_take(&n->cq[id].posting)) != NULL)
        command_release(n, c);
    n->cq[id].valid = false;
}

/* All of them are free. */
static void commands_clear(nvme *n)
{
    for (unsigned pool = 0; pool < 2; pool++) {
        nvme_list_clear(&n->free[pool]);
        n->free_count[pool] = 0;
    }
    for (unsigned i = 0; n->commands && i < NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS; i++) {
        nvme_command *c = &n->commands[i];
        if (c->used)
            fn_fetch_cancel(&n->fn, &c->fetch);
        nvme_access_drop(n, c);
        c->waiting = false;
        c->sqid = i >= NVME_ADMIN_COMMANDS; /* of which pool it is */
        command_release(n, c);
    }
}

int nvme_commands_open(nvme *n)
{
    if (n->commands)
        return 0;
    n->commands = calloc(NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS, sizeof *n->commands);
    commands_clear(n);
    return n->commands ? 0 : -1;
}

void nvme_commands_close(nvme *n)
{
    for (unsigned i = 0; n->commands && i < NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS; i++) {
        free(n->commands[i].ranges);
        free(n->commands[i].list);
    }
    free(n->commands);
    n->commands = NULL;
    commands_clear(n);
}

void nvme_queues_clear(nvme *n)
{
    for (unsigned i = 0; i < n->queue_limit; i++) {
        if (n->sq[i].busy)
            fn_fetch_cancel(&n->fn, &n->sq[i].fetch);
        fn_push_end(&n->fn, n->sq[i].push);
        sq_clear(&n->sq[i]);
        memset(&n->cq[i], 0, sizeof n->cq[i]);
        nvme_list_clear(&n->cq[i].posting);
    }
    commands_clear(n);
    nvme_access_drop(n, &n->shutter);
    nvme_list_clear(&n->sending);
    nvme_list_clear(&n->starving);
    nvme_list_clear(&n->reserving);
    nvme_list_clear(&n->event_commands);
    nvme_list_clear(&n->layout.waiting);
    if (n->layout.owner)
        nvme_layout_leave(n, n->layout.owner);
    n->event_commands_count = 0;
    n->next_sq = n->queue_limit = 0;
}

void nvme_fatal(nvme *n)
{
    n->count.fatal++;
    n->csts |= NVME_CSTS_CFS;
    nvme_queues_clear(n);
}

/* ==== 5  Doorbells ============================================================================ */

/* Ready, and not on the way to a reset. */
static bool is_running(const nvme *n)
{
    return !n->resetting && (n->csts & (NVME_CSTS_RDY | NVME_CSTS_CFS)) == NVME_CSTS_RDY;
}

static bool doorbell_sq(nvme_sq *sq, uint32_t value)
{
    if (value >= sq->size)
        return false;
    sq->tail = (uint16_t)value;
    return true;
}

static bool doorbell_cq(nvme_cq *cq, uint32_t value)
{
    uint32_t posted = (cq->tail + cq->size - cq->head) % cq->size;
    if (value >= cq->size || (value + cq->size - cq->head) % cq->size > posted)
        return false; /* it cannot have consumed what was not there */
    cq->head = (uint16_t)value;
    return true;
}

void nvme_doorbell(nvme *n, uint32_t offset, uint32_t value)
{
    uint32_t id = (offset - NVME_DOORBELLS) / 8;
    bool of_cq = (offset & 4) != 0, there;
    if (!is_running(n))
        return;
    there = id < NVME_QUEUES && (of_cq ? n->cq[id].valid : n->sq[id].valid);
    value &= 0xffff;
    if (!there)
        nvme_event(n, 0, 0, 1); /* error: invalid doorbell register */
    else if (!(of_cq ? doorbell_cq(&n->cq[id], value) : doorbell_sq(&n->sq[id], value)))
        nvme_event(n, 0, 1, 1); /* error: invalid doorbell value */
}

/* ==== 6  The pump ============================================================================= */

/* Commands that had no buffer, once others have given theirs back. */
static bool feed_starving(nvme *n)
{
    nvme_command *c = n->starving.head;
    uint16_t status;
    if (!c || n->buffer_bytes > NVME_BUFFER_BYTES - NVME_TRANSFER_BYTES)
        return false;
    c = nvme_list_take(&n->starving);
    status = nvme_io_command(n, c);
    if (status == NVME_PENDING)
        return c->buffer != NULL; /* else it starves again: the system has no memory */
    nvme_finish(n, c, status);
    return true;
}

/* What is over of the medium, and what that lets go on; also for a controller that does not run. */
static bool pump_medium(nvme *n)
{
    bool any = false;
    while (nvme_access_reap(n))
        any = true;
    any |= nvme_layout_work(n);
    any |= nvme_reserve_work(n);
    any |= sq_delete_all(n);
    return any;
}

void nvme_pump(nvme *n)
{
    bool any = true;
    while (any) {
        any = pump_medium(n);
        nvme_become_ready(n);
        if (!is_running(n) || !fn_masters(&n->fn))
            continue;
        any |= nvme_transfer_send(n);
        any |= cq_post_all(n);
        any |= feed_starving(n);
        any |= sq_take_all(n);
        any |= fn_fetch_ask(&n->fn);
    }
}
