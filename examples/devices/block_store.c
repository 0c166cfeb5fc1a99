/* block_store.c - see block_store.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate(), preadv2() */
#endif
#include "block_store.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ZERO_STEP_BYTES = 4 << 20 }; /* written by one call */

/* Blocks are atomic (NVMe 1.4, 6.4.1: AWUN = 0), which neither memory nor every file system is for
   who reads beside a write. */
typedef struct block_range {
    uint64_t at, end;
    bool writes;
    struct block_range *next;
} block_range;

static bool is_free(const block_store *s, const block_range *r)
{
    for (const block_range *x = s->ranges.head; x; x = x->next) {
        if (x->at < r->end && r->at < x->end && (x->writes || r->writes))
            return false;
    }
    return true;
}

/* False: it would have to wait, and is not to. */
static bool range_enter(block_store *s, block_range *r, bool waits)
{
    bool free_now;
    pthread_mutex_lock(&s->ranges.lock);
    while (!(free_now = is_free(s, r)) && waits)
        pthread_cond_wait(&s->ranges.left, &s->ranges.lock);
    if (free_now) {
        r->next = s->ranges.head;
        s->ranges.head = r;
    }
    pthread_mutex_unlock(&s->ranges.lock);
    return free_now;
}

static void range_leave(block_store *s, const block_range *r)
{
    block_range **at = &s->ranges.head;
    pthread_mutex_lock(&s->ranges.lock);
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    pthread_cond_broadcast(&s->ranges.left);
    pthread_mutex_unlock(&s->ranges.lock);
}

static int store_fails(block_store *s, const char *path, const char *what)
{
    log_error("%s: %s: %s: %s", s->who, path, what, strerror(errno));
    block_store_close(s);
    return -1;
}

/* The hash of a line of sysfs; 0: there is none, or it is blank. */
static uint64_t hash_attribute(const char *dir, const char *name)
{
    char path[128], text[256];
    uint64_t hash = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text);
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < n; i++)
        if (text[i] > ' ')
            hash = block_store_mix(hash + (uint8_t)text[i] + 1);
    return hash;
}

uint64_t block_store_disk(const char *dir)
{
    static const char *const names[] = { "wwid",    "device/wwid", "dm/uuid",
                                         "md/uuid", "serial",      "device/serial" };
    char whole[96];
    uint64_t partition = hash_attribute(dir, "partition"), id = 0;
    snprintf(whole, sizeof whole, "%s%s", dir, partition ? "/.." : "");
    for (unsigned i = 0; i < sizeof names / sizeof names[0] && !id; i++)
        id = hash_attribute(whole, names[i]);
    return id ? block_store_mix(id + partition) : 0;
}

static uint64_t disk_of(dev_t number)
{
    char dir[64];
    snprintf(dir, sizeof dir, "/sys/dev/block/%u:%u", major(number), minor(number));
    return block_store_disk(dir);
}

uint64_t block_store_disks(const char *names)
{
    uint64_t all = 0, disk;
    for (const char *at = names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char path[4096];
        struct stat st;
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, ","), at);
        disk = !stat(path, &st) && S_ISBLK(st.st_mode) ? disk_of(st.st_rdev) : 0;
        if (!disk)
            return 0;
        all = block_store_mix(all + disk);
    }
    return all;
}

/* Device numbers are given in the order in which disks are found, which another start of the
   machine may change.  A disk that has no name of its own is another one at each start. */
static int find_disk(const char *who, const char *path, dev_t number, uint64_t *id)
{
    *id = disk_of(number);
    if (*id)
        return 0;
    log_warning("%s: %s: the kernel knows no WWID, UUID or serial number of it: a lease does not "
                "outlive the box's process",
                who, path);
    return getrandom(id, sizeof *id, 0) == sizeof *id ? 0 : -1;
}

/* Which file system a file is in: its own number, which outlives a mount; else the device's. */
static uint64_t file_system(int fd, dev_t device)
{
    struct statfs fs;
    uint64_t id = 0;
    _Static_assert(sizeof fs.f_fsid == sizeof id, "both are 64 bits");
    if (!fstatfs(fd, &fs))
        memcpy(&id, &fs.f_fsid, sizeof id);
    return id ? id : (uint64_t)device;
}

/* Which file or disk it is, and how much of it is used: 0, or -1. */
static int find_medium(block_store *s, const char *path)
{
    struct stat st;
    long generation = 0; /* of the inode's number, which a later file may have again */
    uint64_t parts[4] = { 0 };
    if (fstat(s->fd, &st))
        return -1;
    if (!S_ISREG(st.st_mode) || ioctl(s->fd, FS_IOC_GETVERSION, &generation))
        generation = 0; /* not every file system reports it */
    if (S_ISBLK(st.st_mode) && find_disk(s->who, path, st.st_rdev, &parts[0]))
        return -1;
    if (!S_ISBLK(st.st_mode)) {
        parts[0] = file_system(s->fd, st.st_dev);
        parts[1] = (uint64_t)st.st_ino;
    }
    parts[2] = (uint64_t)generation;
    parts[3] = s->size;
    s->medium = 1; /* so that zeros are not nothing */
    for (unsigned i = 0; i < 4; i++)
        s->medium = block_store_mix(s->medium + parts[i] + 0x9e3779b97f4a7c15u);
    return 0;
}

/* No lock keeps two names of a disk apart, as it is and as a partition, nor from a file system that
   is mounted.  The kernel does, where that is asked for. */
static int open_flags(const char *path, uint64_t size, bool read_only)
{
    struct stat st;
    if (read_only)
        return O_RDONLY | O_CLOEXEC;
    if (!stat(path, &st) && S_ISBLK(st.st_mode))
        return O_RDWR | O_EXCL | O_CLOEXEC;
    /* without a size it is one that exists, not a name with a slip in it */
    return O_RDWR | O_CLOEXEC | (size ? O_CREAT : 0);
}

static int store_open_file(block_store *s, const char *path, uint64_t size, bool read_only)
{
    off_t end;
    s->fd = open(path, open_flags(path, size, read_only), 0600);
    if (s->fd < 0 && errno == EBUSY)
        return store_fails(s, path, "a disk that is mounted or otherwise in use");
    if (s->fd < 0)
        return store_fails(
            s, path, read_only || size || errno != ENOENT ? "open" : "give --size to create it");
    /* two controllers on one file would spoil it */
    if (flock(s->fd, (read_only ? LOCK_SH : LOCK_EX) | LOCK_NB))
        return store_fails(s, path, "in use");
    end = lseek(s->fd, 0, SEEK_END); /* of a block device as well */
    if (end < 0)
        return store_fails(s, path, "size");
    if (size && (uint64_t)end < size && (read_only || ftruncate(s->fd, (off_t)size)))
        return store_fails(s, path, "grow");
    s->size = size ? size : (uint64_t)end;
    s->pristine = end == 0;
    return find_medium(s, path) ? store_fails(s, path, "look at") : 0;
}

int block_store_open(block_store *s, const char *who, const char *path, uint64_t size,
                     bool read_only)
{
    s->who = who;
    s->fd = -1;
    s->bytes = NULL;
    s->size = size;
    s->medium = 0;
    s->pristine = true;
    memset(&s->sync, 0, sizeof s->sync);
    pthread_mutex_init(&s->sync.lock, NULL);
    pthread_cond_init(&s->sync.over, NULL);
    memset(&s->ranges, 0, sizeof s->ranges);
    pthread_mutex_init(&s->ranges.lock, NULL);
    pthread_cond_init(&s->ranges.left, NULL);
    if (path && store_open_file(s, path, size, read_only))
        return -1;
    if (s->size < BLOCK_STORE_LEAST_BYTES || s->size > INT64_MAX ||
        (s->size != (size_t)s->size && !path)) {
        log_error("%s: %llu bytes of blocks; at least %d are needed", who,
                  (unsigned long long)s->size, BLOCK_STORE_LEAST_BYTES);
        block_store_close(s);
        return -1;
    }
    if (!path) {
        s->bytes = calloc(1, (size_t)size);
        if (!s->bytes)
            return store_fails(s, "memory", "allocate");
    }
    return 0;
}

void block_store_close(block_store *s)
{
    if (s->fd >= 0)
        close(s->fd);
    free(s->bytes);
    pthread_cond_destroy(&s->ranges.left);
    pthread_mutex_destroy(&s->ranges.lock);
    pthread_cond_destroy(&s->sync.over);
    pthread_mutex_destroy(&s->sync.lock);
    s->fd = -1;
    s->bytes = NULL;
}

static int read_all(const block_store *s, uint64_t at, uint8_t *to, size_t len)
{
    if (s->bytes) {
        memcpy(to, s->bytes + at, len);
        return 0;
    }
    while (len) {
        ssize_t got = pread(s->fd, to, len, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0) /* somebody has cut the file: as a disk that has lost blocks */
            errno = EIO;
        if (got <= 0)
            return -1;
        to += got;
        at += (uint64_t)got;
        len -= (size_t)got;
    }
    return 0;
}

int block_store_read(block_store *s, uint64_t at, uint8_t *to, size_t len)
{
    block_range r = { at, at + len, false, NULL };
    int rc;
    (void)range_enter(s, &r, true);
    rc = read_all(s, at, to, len);
    range_leave(s, &r);
    return rc;
}

static int write_all(const block_store *s, uint64_t at, const uint8_t *from, size_t len)
{
    if (s->bytes) {
        memcpy(s->bytes + at, from, len);
        return 0;
    }
    while (len) {
        ssize_t put = pwrite(s->fd, from, len, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return -1;
        from += put;
        at += (uint64_t)put;
        len -= (size_t)put;
    }
    return 0;
}

int block_store_write(block_store *s, uint64_t at, const uint8_t *from, size_t len)
{
    block_range r = { at, at + len, true, NULL };
    int rc;
    (void)range_enter(s, &r, true);
    rc = write_all(s, at, from, len);
    range_leave(s, &r);
    return rc;
}

ssize_t block_store_read_now(block_store *s, uint64_t at, uint8_t *to, size_t len)
{
    block_range r = { at, at + len, false, NULL };
    struct iovec where = { to, len };
    ssize_t got = (ssize_t)len;
    if (!range_enter(s, &r, false))
        return -1;
    if (s->bytes)
        memcpy(to, s->bytes + at, len);
    else
        got = preadv2(s->fd, &where, 1, (off_t)at, RWF_NOWAIT);
    range_leave(s, &r);
    return got;
}

/* fallocate(), alone in its range. */
static int allocate(block_store *s, int mode, uint64_t at, uint64_t len)
{
    block_range r = { at, at + len, true, NULL };
    int rc;
    (void)range_enter(s, &r, true);
    rc = fallocate(s->fd, mode, (off_t)at, (off_t)len);
    range_leave(s, &r);
    return rc;
}

int block_store_zero(block_store *s, uint64_t at, uint64_t len, bool deallocate, uint64_t *done)
{
    static const uint8_t zeros[65536];
    int mode = FALLOC_FL_KEEP_SIZE | (deallocate ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE);
    *done = len;
    if (!s->bytes && !allocate(s, mode, at, len))
        return 0; /* else the file system cannot; write zeros */
    *done = len = len < ZERO_STEP_BYTES ? len : ZERO_STEP_BYTES;
    while (len) {
        size_t part = len < sizeof zeros ? (size_t)len : sizeof zeros;
        if (block_store_write(s, at, zeros, part))
            return -1;
        at += part;
        len -= part;
    }
    return 0;
}

int block_store_deallocate(block_store *s, uint64_t at, uint64_t len, uint64_t *memory_bytes)
{
    if (s->bytes) {
        block_range r = { at, at + len, true, NULL };
        if (len > *memory_bytes)
            return 0;
        (void)range_enter(s, &r, true);
        memset(s->bytes + at, 0, (size_t)len);
        range_leave(s, &r);
        *memory_bytes -= len;
        return 0;
    }
    if (!allocate(s, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, at, len))
        return 0;
    return errno == EIO || errno == ENOSPC || errno == EDQUOT ? -1 : 0;
}

/* What is cached and never reached the disk must not be read as if it had. */
static int sync_now(const block_store *s)
{
    int error;
    do {
        error = fdatasync(s->fd) ? errno : 0;
    } while (error == EINTR);
    if (error)
        block_store_forget(s, 0, s->size);
    return error;
}

/* The system reports an error to one of the syncs that are under way.  So there is one at a time,
   and it is the answer for all that began before it. */
int block_store_sync(block_store *s)
{
    uint64_t mine;
    int error;
    if (s->bytes)
        return 0;
    pthread_mutex_lock(&s->sync.lock);
    mine = s->sync.begun + 1; /* one that is under way may not cover what was written meanwhile */
    while (s->sync.ended < mine && s->sync.begun > s->sync.ended)
        pthread_cond_wait(&s->sync.over, &s->sync.lock);
    if (s->sync.ended < mine) {
        s->sync.begun++;
        pthread_mutex_unlock(&s->sync.lock);
        error = sync_now(s);
        pthread_mutex_lock(&s->sync.lock);
        s->sync.ended++;
        if (!s->sync.lost)
            s->sync.lost = error;
        pthread_cond_broadcast(&s->sync.over);
    }
    error = s->sync.lost;
    pthread_mutex_unlock(&s->sync.lock);
    errno = error ? error : errno;
    return error ? -1 : 0;
}

int block_store_sync_rewritten(block_store *s)
{
    pthread_mutex_lock(&s->sync.lock);
    s->sync.lost = 0;
    pthread_mutex_unlock(&s->sync.lock);
    return block_store_sync(s);
}

int block_store_lost(block_store *s)
{
    int lost;
    pthread_mutex_lock(&s->sync.lock);
    lost = s->sync.lost;
    pthread_mutex_unlock(&s->sync.lock);
    return lost;
}

void block_store_forget(const block_store *s, uint64_t at, uint64_t len)
{
    if (!s->bytes)
        (void)posix_fadvise(s->fd, (off_t)at, (off_t)len, POSIX_FADV_DONTNEED);
}

int block_store_forget_all(block_store *s)
{
    if (block_store_sync_rewritten(s))
        return -1;
    block_store_forget(s, 0, s->size);
    return 0;
}

int block_store_check_zero(block_store *s, uint64_t at, size_t len)
{
    uint8_t *bytes = malloc(len);
    int error = 0;
    if (!bytes)
        return ENOMEM;
    if (block_store_read(s, at, bytes, len))
        error = errno;
    else if (bytes[0] || memcmp(bytes, bytes + 1, len - 1))
        error = BLOCK_STORE_DIFFERS;
    block_store_forget(s, at, len);
    free(bytes);
    return error;
}

/* Full is no fault of the medium, and a larger disk helps. */
static bool of_the_medium(int error)
{
    return error == EIO || error == ENXIO || error == ENODEV || error == ESTALE;
}

static void report_fault(const device_port *port, const char *what, int error)
{
    char text[160];
    snprintf(text, sizeof text, "%s: %s", what, strerror(error));
    if (port->fault)
        port->fault(port->user, text);
}

void block_health_failed(block_health *h, const device_port *port, int error, int lost)
{
    if (lost && !h->lost)
        report_fault(
            port, "data written to its medium may be lost, and all flushes fail from now on", lost);
    else if (!lost && !h->broken && of_the_medium(error))
        report_fault(port, "the medium of its data fails", error);
    h->lost |= lost != 0;
    h->broken |= lost || of_the_medium(error);
}

uint64_t block_store_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* ==== Attributes ============================================================================== */

void block_store_attributes(uint64_t size, unsigned block_bytes, char out[DEVICE_ATTRIBUTES_BYTES])
{
    static const char units[] = "\0KMGT";
    unsigned unit = 0;
    int used;
    for (; unit < 4 && size && size % 1024 == 0; unit++)
        size /= 1024;
    used = snprintf(out, DEVICE_ATTRIBUTES_BYTES, "size=%llu%.1s", (unsigned long long)size,
                    &units[unit]);
    if (block_bytes)
        snprintf(out + used, DEVICE_ATTRIBUTES_BYTES - (size_t)used, ",block=%u", block_bytes);
}
