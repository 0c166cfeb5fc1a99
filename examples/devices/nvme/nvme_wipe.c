/* nvme_wipe.c - erases the blocks of all namespaces, and reads them back
   SPDX-License-Identifier: MIT

   An access at a time.  It begins when none of before is under way, so that no old write comes
   after it.  What is erased is on the medium before it is read, and is read from there.  At last
   the layout is as the box's owner gave it. */
#include "nvme_model.h"
#include "log.h"

#include <errno.h>

static void wipe_next(nvme *n);

static void wipe_failed(nvme *n, const char *what, int error)
{
    log_error("nvme: namespace %u: wipe: %s at byte %llu: %s", (unsigned)n->wipe.ns + 1, what,
              (unsigned long long)n->wipe.at, error == NVME_DIFFERS ? "not zero" : strerror(error));
    n->wipe.how = DEVICE_UNWIPED;
}

static void wipe_erased(nvme *n, nvme_command *c, const nvme_access *a)
{
    (void)c;
    if (a->error) {
        wipe_failed(n, a->op == NVME_OP_ZERO ? "erase" : "sync", a->error);
        return;
    }
    n->wipe.at += a->bytes;
    if (a->op == NVME_OP_FORGET) {
        n->wipe.at = 0;
        n->wipe.erased = true;
    }
    wipe_next(n);
}

static void wipe_verified(nvme *n, nvme_command *c, const nvme_access *a)
{
    (void)c;
    if (a->error) {
        wipe_failed(n, a->error == NVME_DIFFERS ? "verify" : "read", a->error);
        return;
    }
    n->wipe.at += a->bytes;
    if (n->wipe.at == n->ns[n->wipe.ns].store->size) {
        n->wipe.ns++;
        n->wipe.at = 0;
        n->wipe.erased = false;
    }
    wipe_next(n);
}

static void wipe_over(nvme *n, nvme_command *c, const nvme_access *a)
{
    nvme_drop_buffer(n, c); /* the file's text */
    if (a && a->error) {
        wipe_failed(n, "layout", a->error);
        return;
    }
    nvme_layout_take(n);
    for (nvme *o = n->subsystem->first; o; o = o->sibling) { /* none is lent */
        o->layout.kept = o->layout.fits = true;
        o->health.broken = o->health.lost = false; /* all of it could be written and read */
        for (uint32_t i = 0; i < n->ns_count; i++) {
            o->ns[i].is = n->ns[i].is;
            o->ns[i].changed = false;
        }
    }
    if (nvme_reserve_kept(n, n->subsystem->version) == NVME_INTERNAL_ERROR)
        nvme_reserve_changed(n); /* there may be room now */
    n->wipe.how = DEVICE_WIPED;
}

static void wipe_layout(nvme *n, nvme_command *c, const nvme_access *a)
{
    n->subsystem->unsure = a && a->error;
    if (a && a->error) {
        wipe_failed(n, "file of reservations", a->error);
        return;
    }
    nvme_layout_factory(n, n->layout.next);
    nvme_layout_keep(n, c, wipe_over);
}

/* nvme_command.over: an access could not begin. */
static void wipe_no_memory(nvme *n, nvme_command *c, uint16_t status)
{
    (void)c;
    (void)status;
    wipe_failed(n, "begin", ENOMEM);
}

/* What a lease has left of when the drive was a subsystem's: in one, nvme_reserve_leave() does. */
static void wipe_reservations(nvme *n)
{
    if (nvme_is_shared(n) || !n->subsystem->path)
        wipe_layout(n, &n->wiper, NULL);
    else if (nvme_access_begin(n, &n->wiper, NVME_OP_UNRESERVE, NULL, 0, 0, n->subsystem->unsure,
                               wipe_layout) != NVME_PENDING)
        wipe_no_memory(n, &n->wiper, NVME_INTERNAL_ERROR);
}

static void wipe_next(nvme *n)
{
    nvme_ns *s = &n->ns[n->wipe.ns];
    uint64_t left;
    uint16_t status;
    if (n->wipe.ns == n->ns_count) {
        n->health.lost = false; /* each was written as a whole, and synced */
        wipe_reservations(n);
        return;
    }
    left = s->store->size - n->wipe.at;
    if (n->wipe.erased)
        status = nvme_access_begin(n, &n->wiper, NVME_OP_ALL_ZERO, s, n->wipe.at, left, false,
                                   wipe_verified);
    else
        status = nvme_access_begin(n, &n->wiper, left ? NVME_OP_ZERO : NVME_OP_FORGET, s,
                                   n->wipe.at, left, true, wipe_erased);
    if (status != NVME_PENDING)
        wipe_no_memory(n, &n->wiper, status);
}

/* Of a lease that left the file of reservations to be written up to a version. */
static int how_kept(const nvme *n, uint64_t version)
{
    uint16_t status = nvme_reserve_kept(n, version);
    if (status == NVME_PENDING)
        return DEVICE_WIPING;
    if (status == NVME_SUCCESS)
        return DEVICE_WIPED;
    log_error("nvme: %s: %s; a restart would restore registrations of the ended lease; "
              "repair the slot once the file can be written",
              n->subsystem->path, strerror(n->subsystem->error));
    return DEVICE_UNWIPED;
}

/* Several slots may be repaired at a time: two would write the same layout's file. */
static bool is_wiped_by_another(const nvme *n)
{
    bool is = false;
    for (const nvme *o = n->subsystem->first; o; o = o->sibling)
        is |= o != n && o->wiper.access;
    return is;
}

int nvme_wipe(void *device, bool begin)
{
    nvme *n = device;
    const nvme_access *own;
    if (begin) {
        nvme_access_drop(n, &n->wiper);
        nvme_drop_buffer(n, &n->wiper);
        memset(&n->wipe, 0, sizeof n->wipe);
        n->wiper.over = wipe_no_memory;
        n->wiper.stop = 0;
        n->wipe.how = DEVICE_WIPING;
        n->wipe.begins = true;
        nvme_reserve_leave(n, true);
    }
    own = n->wiper.access;
    while (nvme_access_reap(n) && n->wiper.access == own) /* a step at a call */
        continue;
    (void)nvme_reserve_work(n);
    if (n->wipe.begins && !is_wiped_by_another(n) && nvme_subsystem_quiet(n)) {
        n->wipe.begins = false;
        wipe_next(n);
    }
    return n->wipe.how == DEVICE_WIPED ? how_kept(n, n->subsystem->version) : n->wipe.how;
}

int nvme_leave(void *device, bool begin)
{
    nvme *n = device;
    if (begin) {
        nvme_reserve_leave(n, false);
        n->left = n->subsystem->version; /* others go on to change it */
    }
    while (nvme_access_reap(n))
        continue;
    (void)nvme_reserve_work(n);
    return n->dropped ? DEVICE_WIPING : how_kept(n, n->left);
}
