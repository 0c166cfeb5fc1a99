/* crossing.c - see crossing.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, pipe2 */
#endif
#include "crossing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* ==== Opening ================================================================================= */

int crossing_create(crossing_fds *out)
{
    out->keeper[0] = out->keeper[1] = out->worker[0] = out->worker[1] = -1;
    out->memory = memfd_create("dxpu-crossing", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* neither end can take away memory that the other one reads */
    if (out->memory >= 0 && pipe2(out->keeper, O_NONBLOCK | O_CLOEXEC) == 0 &&
        pipe2(out->worker, O_NONBLOCK | O_CLOEXEC) == 0 &&
        ftruncate(out->memory, sizeof(crossing_memory)) == 0 &&
        fcntl(out->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return 0;
    crossing_close_fds(out);
    return -1;
}

void crossing_close_fds(crossing_fds *fds)
{
    int *const all[CROSSING_FDS] = { &fds->memory, &fds->keeper[0], &fds->keeper[1],
                                     &fds->worker[0], &fds->worker[1] };
    int error = errno;
    for (unsigned i = 0; i < CROSSING_FDS; i++) {
        if (*all[i] >= 0)
            close(*all[i]);
        *all[i] = -1;
    }
    errno = error;
}

int crossing_open(crossing *c, const crossing_fds *fds, bool is_keeper)
{
    crossing_fds own = *fds;
    void *mem =
        mmap(NULL, sizeof(crossing_memory), PROT_READ | PROT_WRITE, MAP_SHARED, fds->memory, 0);
    memset(c, 0, sizeof *c);
    if (mem == MAP_FAILED) {
        crossing_close_fds(&own);
        return -1;
    }
    c->mem = mem;
    c->mine = is_keeper ? &c->mem->keeper : &c->mem->worker;
    c->other = is_keeper ? &c->mem->worker : &c->mem->keeper;
    c->wake = is_keeper ? own.keeper[0] : own.worker[0];
    c->wake_other = is_keeper ? own.worker[1] : own.keeper[1];
    if (is_keeper)
        own.keeper[0] = own.worker[1] = -1;
    else
        own.worker[0] = own.keeper[1] = -1;
    crossing_close_fds(&own); /* the mapping holds the memory; the rest is the other end's */
    return 0;
}

void crossing_close(crossing *c)
{
    if (!c->mem)
        return;
    (void)munmap(c->mem, sizeof *c->mem);
    close(c->wake);
    close(c->wake_other);
    memset(c, 0, sizeof *c);
}

/* ==== Waking ================================================================================== */

void crossing_nudge(crossing *c)
{
    const char byte = 0;
    atomic_thread_fence(memory_order_seq_cst); /* what was written is seen before it sleeps */
    if (!atomic_load_explicit(&c->other->asleep, memory_order_relaxed) ||
        !atomic_exchange(&c->other->asleep, 0))
        return;
    while (write(c->wake_other, &byte, 1) < 0 && errno == EINTR)
        ; /* full: it is notified already */
}

void crossing_woken(crossing *c)
{
    char bytes[64];
    ssize_t n;
    do {
        n = read(c->wake, bytes, sizeof bytes);
    } while (n < 0 && errno == EINTR);
    c->deaf |= n == 0;
}

bool crossing_news(crossing *c, bool about_to_block)
{
    uint32_t returned;
    bool news;
    atomic_store_explicit(&c->mine->asleep, about_to_block, memory_order_relaxed);
    if (about_to_block)
        atomic_thread_fence(memory_order_seq_cst); /* sleep, then look: as crossing_nudge() */
    returned = atomic_load_explicit(&c->other->returned, memory_order_acquire);
    news = (!c->broken && atomic_load_explicit(&c->other->head, memory_order_acquire) != c->tail) ||
           returned != c->returned;
    if (returned != c->returned) /* all that waits for room is tried again, and says so again */
        atomic_store_explicit(&c->mine->hungry, 0, memory_order_relaxed);
    c->returned = returned;
    if (news && about_to_block)
        atomic_store_explicit(&c->mine->asleep, 0, memory_order_relaxed);
    return news;
}

/* ==== Credits ================================================================================= */

/* Wake an end that waits for room. */
static void feed(crossing *c)
{
    atomic_thread_fence(memory_order_seq_cst); /* room, then look whether it is asked for */
    if (!atomic_load_explicit(&c->other->hungry, memory_order_relaxed))
        return;
    atomic_fetch_add_explicit(&c->mine->returned, 1, memory_order_release);
    crossing_nudge(c);
}

static bool has_room(crossing *c, unsigned slot, unsigned cls)
{
    uint32_t most = cls == CROSSING_EVENTS ? CROSSING_EVENTS_MAX : CROSSING_TLPS;
    uint32_t out = c->sent[slot - 1][cls] -
                   atomic_load_explicit(&c->other->taken[slot - 1][cls], memory_order_acquire);
    uint64_t unread = crossing_unread(c);
    if (out > most || unread > CROSSING_RING_BYTES) /* more given back than was taken */
        c->broken = true;
    return !c->broken && out < most && unread < CROSSING_RING_BYTES - CROSSING_RESERVE;
}

bool crossing_room(crossing *c, unsigned slot, unsigned cls)
{
    if (has_room(c, slot, cls))
        return true;
    /* say so, then look again */
    return !atomic_exchange(&c->mine->hungry, 1) && has_room(c, slot, cls);
}

void crossing_return(crossing *c, unsigned slot, unsigned cls)
{
    uint32_t n = ++c->taken[slot - 1][cls];
    atomic_store_explicit(&c->mine->taken[slot - 1][cls], n, memory_order_release);
    feed(c);
}

/* ==== Rings =================================================================================== */

/* Copy to or from the ring at a position that runs on. */
static void copy_in(uint8_t *ring, uint64_t at, const void *data, size_t bytes)
{
    size_t from = (size_t)(at % CROSSING_RING_BYTES), first = CROSSING_RING_BYTES - from;
    if (!bytes)
        return;
    first = bytes < first ? bytes : first;
    memcpy(ring + from, data, first);
    memcpy(ring, (const uint8_t *)data + first, bytes - first);
}

static void copy_out(const uint8_t *ring, uint64_t at, void *data, size_t bytes)
{
    size_t from = (size_t)(at % CROSSING_RING_BYTES), first = CROSSING_RING_BYTES - from;
    first = bytes < first ? bytes : first;
    memcpy(data, ring + from, first);
    memcpy((uint8_t *)data + first, ring, bytes - first);
}

uint64_t crossing_unread(const crossing *c)
{
    return c->head - atomic_load_explicit(&c->other->tail, memory_order_acquire);
}

static bool has_credit(const crossing_record *r, unsigned *cls)
{
    *cls = r->kind == CROSSING_EVENT ? (unsigned)CROSSING_EVENTS : r->arg;
    return r->kind == CROSSING_TLP || r->kind == CROSSING_EVENT;
}

bool crossing_put(crossing *c, const crossing_record *r, const void *payload)
{
    uint64_t bytes = crossing_record_bytes(r->bytes), unread = crossing_unread(c);
    unsigned cls;
    if (unread > CROSSING_RING_BYTES) /* it took more than there was */
        c->broken = true;
    if (c->broken || bytes > CROSSING_RING_BYTES - unread)
        return false;
    copy_in(c->mine->ring, c->head, r, sizeof *r);
    copy_in(c->mine->ring, c->head + sizeof *r, payload, r->bytes);
    if (has_credit(r, &cls))
        c->sent[r->slot - 1][cls]++;
    c->head += bytes;
    atomic_store_explicit(&c->mine->head, c->head, memory_order_release);
    crossing_nudge(c);
    return true;
}

/* May it stand here, and had it a credit?  S-181 */
static bool is_sound(crossing *c, const crossing_record *r, uint64_t there)
{
    uint32_t most = r->kind == CROSSING_EVENT ? CROSSING_EVENTS_MAX : CROSSING_TLPS;
    unsigned cls;
    if (r->kind >= CROSSING_KINDS || r->zero || r->slot > DXPU_VSWITCH_SLOTS_MAX ||
        r->bytes > CROSSING_PAYLOAD_MAX || crossing_record_bytes(r->bytes) > there)
        return false;
    if (!has_credit(r, &cls))
        return true;
    return r->slot && (r->kind == CROSSING_EVENT || cls < DXPU_CLASSES) &&
           c->got[r->slot - 1][cls]++ - c->taken[r->slot - 1][cls] < most;
}

bool crossing_get(crossing *c, crossing_record *out)
{
    uint64_t there = atomic_load_explicit(&c->other->head, memory_order_acquire) - c->tail;
    if (c->broken || !there)
        return false;
    if (there > CROSSING_RING_BYTES || there < sizeof *out)
        c->broken = true;
    if (!c->broken) {
        copy_out(c->other->ring, c->tail, out, sizeof *out);
        c->broken = !is_sound(c, out, there);
    }
    if (c->broken)
        return false;
    copy_out(c->other->ring, c->tail + sizeof *out, c->payload, out->bytes);
    c->tail += crossing_record_bytes(out->bytes);
    atomic_store_explicit(&c->mine->tail, c->tail, memory_order_release);
    feed(c);
    return true;
}
