/* nvme_access.c - the NVMe controller's accesses of its medium, which are jobs
   SPDX-License-Identifier: MIT

   Many are in flight at once; what NVMe has of order is kept by the commands: a write is over when
   it was written, so that a Flush that comes later covers it.  An access takes its command's buffer
   with it, and gives it back.  When a reset takes the command, an access that has not begun goes
   too; one that is under way is `dropped`: it is not stopped, but the controller is not ready, and
   no wipe begins, before it is over (nvme.c, nvme_wipe.c).

   CONTENTS   1 In any thread   2 In the loop   3 Flush of all */
#include "nvme_model.h"

#include "durable.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* ==== 1  In any thread ======================================================================== */

enum {
    QUICK_BYTES = 16 << 10, /* read in the loop when that needs no disk, of quick_left in a call */
    STEP_BYTES = 1 << 20,   /* read by an access of a long command */
    HOLE_BYTES = 256 << 20  /* erased by one, where that makes holes */
};

/* Compare and Verify: 1 MB at most. */
static int run_look(const nvme_access *a)
{
    uint8_t *bytes = malloc((size_t)a->bytes);
    int error = 0;
    if (!bytes)
        return ENOMEM;
    if (block_store_read(a->store, a->at, bytes, (size_t)a->bytes))
        error = errno;
    else if (a->op == NVME_OP_COMPARE && memcmp(bytes, a->buffer, (size_t)a->bytes))
        error = NVME_DIFFERS;
    free(bytes);
    return error;
}

static int run_read(const nvme_access *a)
{
    if (a->sync && block_store_sync(a->store))
        return errno;
    return block_store_read(a->store, a->at, a->buffer, (size_t)a->bytes) ? errno : 0;
}

static int run_write(const nvme_access *a)
{
    if (block_store_write(a->store, a->at, a->buffer, (size_t)a->bytes))
        return errno;
    return a->sync && block_store_sync(a->store) ? errno : 0;
}

/* The new text, or the one before when it is not sure to be durable: a later start must find the
   layout that the host was left with. */
static int run_layout(nvme_access *a)
{
    const char *text = (const char *)a->buffer, *before = text + strlen(text) + 1;
    int rc = durable_replace(a->path, text, strlen(text)), error = errno;
    a->unsure = rc > 0 && durable_replace(a->path, before, strlen(before));
    return rc ? error : 0;
}

static int run_reservations(const nvme_access *a)
{
    const char *text = (const char *)a->buffer;
    return durable_replace(a->path, text, strlen(text)) ? errno : 0;
}

/* Of when the drive was a subsystem's: what is not there is not made durable, for it may be where
   nothing can be written. */
static int run_unreserve(const nvme_access *a)
{
    if (!a->sync && access(a->path, F_OK) && errno == ENOENT)
        return 0;
    if (unlink(a->path) && errno != ENOENT)
        return errno;
    return durable_name(a->path) ? errno : 0;
}

static int run_op(nvme_access *a)
{
    switch (a->op) {
    case NVME_OP_READ:
        return run_read(a);
    case NVME_OP_WRITE:
        return run_write(a);
    case NVME_OP_ZERO:
        return block_store_zero(a->store, a->at, a->bytes, a->sync, &a->bytes) ? errno : 0;
    case NVME_OP_DEALLOCATE:
        return block_store_deallocate(a->store, a->at, a->bytes, &a->memory_bytes) ? errno : 0;
    case NVME_OP_SYNC:
        return block_store_sync(a->store) ? errno : 0;
    case NVME_OP_FORGET:
        return block_store_forget_all(a->store) ? errno : 0;
    case NVME_OP_ALL_ZERO:
        return block_store_check_zero(a->store, a->at, (size_t)a->bytes);
    case NVME_OP_LAYOUT:
        return run_layout(a);
    case NVME_OP_RESERVATIONS:
        return run_reservations(a);
    case NVME_OP_UNRESERVE:
        return run_unreserve(a);
    default:
        return run_look(a);
    }
}

/* job.run */
static void run(job *j)
{
    nvme_access *a = (nvme_access *)j;
    a->error = run_op(a);
}

/* job.quick: of a short read what is in the page cache, for a thread's turn costs more. */
static bool quick(job *j)
{
    nvme_access *a = (nvme_access *)j;
    return block_store_read_now(a->store, a->at, a->buffer, (size_t)a->bytes) == (ssize_t)a->bytes;
}

/* ==== 2  In the loop ========================================================================== */

static bool uses_buffer(nvme_op op)
{
    return op == NVME_OP_READ || op == NVME_OP_WRITE || op == NVME_OP_COMPARE ||
           op == NVME_OP_LAYOUT || op == NVME_OP_RESERVATIONS;
}

/* Most bytes of one access of a kind that goes in steps. */
static uint64_t step_bytes(nvme_op op)
{
    switch (op) {
    case NVME_OP_VERIFY:
    case NVME_OP_ALL_ZERO:
        return STEP_BYTES;
    case NVME_OP_ZERO:
    case NVME_OP_DEALLOCATE:
        return HOLE_BYTES;
    default:
        return UINT64_MAX;
    }
}

static void take_buffer(nvme_command *c, nvme_access *a)
{
    a->buffer = c->buffer;
    a->buffer_bytes = c->bytes;
    c->buffer = NULL;
}

/* Whether it may be done in the loop: then it counts, since it is not known that it was not. */
static bool take_quick(nvme *n, const nvme_access *a)
{
    if (a->op != NVME_OP_READ || a->sync || a->bytes > QUICK_BYTES || a->bytes > n->quick_left)
        return false;
    n->quick_left -= (uint32_t)a->bytes;
    return true;
}

uint16_t nvme_access_begin(nvme *n, nvme_command *c, nvme_op op, nvme_ns *s, uint64_t at,
                           uint64_t bytes, bool sync, nvme_then *then)
{
    nvme_access *a = calloc(1, sizeof *a);
    uint64_t most = step_bytes(op);
    if (!a)
        return NVME_INTERNAL_ERROR;
    a->job.run = run;
    a->op = op;
    a->sync = sync;
    a->command = c;
    a->path =
        op == NVME_OP_RESERVATIONS || op == NVME_OP_UNRESERVE ? n->subsystem->path : n->layout.path;
    a->at = at;
    a->bytes = bytes < most ? bytes : most;
    a->memory_bytes = c->end;
    a->then = then;
    a->job.quick = take_quick(n, a) ? quick : NULL;
    if (uses_buffer(op))
        take_buffer(c, a);
    a->ns = s;
    if (s) {
        a->store = s->store;
        s->accesses++;
    }
    c->access = a;
    n->count.accesses++;
    n->under_way++;
    n->jobs.submit(n->jobs.user, &a->job);
    return NVME_PENDING;
}

bool nvme_access_failed(nvme *n, nvme_command *c, const nvme_access *a)
{
    if (a->error)
        c->over(n, c, a->error == NVME_DIFFERS ? NVME_COMPARE_FAILURE | NVME_DNR : c->fault);
    return a->error != 0;
}

void nvme_access_done(nvme *n, nvme_command *c, const nvme_access *a)
{
    if (!nvme_access_failed(n, c, a))
        c->over(n, c, NVME_SUCCESS);
}

/* The access is over; its buffer goes back, or with a command that is gone. */
static void end(nvme *n, nvme_access *a)
{
    n->under_way--;
    if (a->op == NVME_OP_RESERVATIONS)
        nvme_reserve_written(n, a);
    if (a->ns)
        a->ns->accesses--;
    if (a->command) {
        a->command->access = NULL;
        if (a->buffer)
            a->command->buffer = a->buffer;
    } else if (a->buffer) {
        n->buffer_bytes -= a->buffer_bytes;
        free(a->buffer);
    }
}

bool nvme_access_cancel(nvme *n, nvme_command *c)
{
    nvme_access *a = c->access;
    if (!a)
        return true;
    if (!n->jobs.cancel(n->jobs.user, &a->job))
        return false;
    a->error = ECANCELED;
    end(n, a);
    free(a);
    return true;
}

void nvme_access_drop(nvme *n, nvme_command *c)
{
    nvme_access *a = c->access;
    if (nvme_access_cancel(n, c))
        return;
    c->access = NULL;
    a->command = NULL; /* it has the buffer until it is over */
    n->dropped++;
    n->count.accesses_dropped++;
}

bool nvme_access_reap(nvme *n)
{
    job *j = n->jobs.reap(n->jobs.user);
    nvme_access *a = (nvme_access *)j;
    nvme_command *c;
    if (!j)
        return false;
    if (pages_given_back(j)) /* of the memory buffer */
        return true;
    c = a->command;
    end(n, a);
    if (a->error > 0) {
        n->count.store_errors++;
        block_health_failed(&n->health, n->fn.pci.port, a->error,
                            a->store ? block_store_lost(a->store) : 0);
    }
    if (a->unsure)
        nvme_layout_unsure(n);
    if (c && c->stop) {
        c->over(n, c, c->stop);
    } else if (c) {
        a->then(n, c, a);
    } else {
        n->dropped--;
        if (a->op == NVME_OP_LAYOUT && !a->error)
            nvme_layout_take(n); /* the file says so */
    }
    free(a);
    return true;
}

/* Where it has none it waits for none: one that could not be made is taken apart in a job, which
   would wait for itself. */
void nvme_access_settle(nvme *n)
{
    if (!n->under_way && !n->cmb.away)
        return;
    n->jobs.settle(n->jobs.user);
    while (nvme_access_reap(n))
        continue;
}

/* ==== 3  Flush of all ========================================================================= */

static void sync_next(nvme *n, nvme_command *c, const nvme_access *a);

/* The next namespace; c->stop is not looked at between them: it ends with what comes first. */
static uint16_t sync_from(nvme *n, nvme_command *c)
{
    while (c->index < n->ns_count && !n->ns[c->index].is.allocated)
        c->index++;
    if (c->index == n->ns_count)
        return c->end ? c->fault : NVME_SUCCESS;
    return nvme_access_begin(n, c, NVME_OP_SYNC, &n->ns[c->index++], 0, 0, false, sync_next);
}

static void sync_next(nvme *n, nvme_command *c, const nvme_access *a)
{
    uint16_t status;
    c->end |= a->error != 0; /* the others are flushed all the same */
    status = sync_from(n, c);
    if (status != NVME_PENDING)
        c->over(n, c, status);
}

uint16_t nvme_sync_all(nvme *n, nvme_command *c)
{
    c->index = 0;
    c->end = 0;
    return sync_from(n, c);
}
