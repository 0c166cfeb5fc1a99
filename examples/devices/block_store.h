/* block_store.h - where the blocks of a disk are: a file, a block device or memory
   SPDX-License-Identifier: MIT */
#ifndef BLOCK_STORE_H_INCLUDED
#define BLOCK_STORE_H_INCLUDED

#include "device.h"

#include <pthread.h>
#include <sys/types.h>

enum {
    BLOCK_STORE_LEAST_BYTES = 4096,
    BLOCK_STORE_DIFFERS = -1 /* from what was looked for */
};

typedef struct block_store {
    const char *who; /* the device model, for messages */
    int fd;          /* -1: in memory */
    uint8_t *bytes;  /* in memory */
    uint64_t size;
    uint64_t medium; /* of the file and its size; 0: in memory */
    bool pristine;   /* opened with nothing in it */
    struct {         /* of a file; any thread's */
        pthread_mutex_t lock;
        pthread_cond_t over;
        uint64_t begun, ended; /* one at a time */
        int lost;              /* errno of the first that failed; 0: none */
    } sync;
    struct { /* that are accessed now: as many as there are threads */
        pthread_mutex_t lock;
        pthread_cond_t left;
        struct block_range *head;
    } ranges;
} block_store;

/* path NULL: in memory.  size 0: the file's.  read_only: a file that exists, which others may
   share.  0, or -1 after a message. */
int block_store_open(block_store *s, const char *who, const char *path, uint64_t size,
                     bool read_only);
void block_store_close(block_store *s);
/* A number of the disk, or its partition, that this directory of sysfs describes: of its WWID, UUID
   or serial number; 0: it has none. */
uint64_t block_store_disk(const char *dir);
/* A number of the disks of these names, separated by commas; 0: one is not a disk, or has none. */
uint64_t block_store_disks(const char *names);
/* All of these may wait for the disk, and run in any thread: several at once for one store.  The
   range lies within it, and of accesses that overlap a write is alone: no block is seen half
   written.  0 or -1 with errno. */
int block_store_read(block_store *s, uint64_t at, uint8_t *to, size_t len);
/* As much of it as can be had without waiting, also for a write that overlaps; -1: none. */
ssize_t block_store_read_now(block_store *s, uint64_t at, uint8_t *to, size_t len);
int block_store_write(block_store *s, uint64_t at, const uint8_t *from, size_t len);
/* "size=64M,block=512", of a disk of this size: device_kind.attributes.  block_bytes 0: without. */
void block_store_attributes(uint64_t size, unsigned block_bytes, char out[DEVICE_ATTRIBUTES_BYTES]);
/* The first part of it, *done bytes: all of it where the file system can, else some MB.
   deallocate: the space is given back, if it can; else it stays taken. */
int block_store_zero(block_store *s, uint64_t at, uint64_t len, bool deallocate, uint64_t *done);
/* A hint: the data may go, and read as 0 then.  What the file system cannot give back stays, and of
   memory what is more than *memory_bytes, which is made less by what went. */
int block_store_deallocate(block_store *s, uint64_t at, uint64_t len, uint64_t *memory_bytes);
/* All that was written is durable when it returns 0.  After one that failed, all fail: the system
   reports an error of writing once, and may have marked what it lost as written. */
int block_store_sync(block_store *s);
/* The same, when all of the store was written since: what was lost before is lost no longer. */
int block_store_sync_rewritten(block_store *s);
/* errno of the sync that failed first, after which what was written may not be on the medium; 0:
   none has failed. */
int block_store_lost(block_store *s);
/* What is cached of it may go; other readers need the memory more. */
void block_store_forget(const block_store *s, uint64_t at, uint64_t len);
/* For who erases all of it: what was written is durable, as block_store_sync_rewritten() says, and
   is no longer cached.  0 or -1 with errno. */
int block_store_forget_all(block_store *s);
/* Is it all 0?  0, BLOCK_STORE_DIFFERS, or what could not be done: an errno.  It is not cached
   after. */
int block_store_check_zero(block_store *s, uint64_t at, size_t len);

/* What has become of the media of a device, of which it may have several. */
typedef struct block_health {
    bool broken; /* a medium failed, and nothing has shown since that it does not */
    bool lost;   /* a sync failed: what was written may not be on the medium */
} block_health;

/* A store failed with this errno.  Reported when it is the medium that fails, and when a sync has
   failed (`lost`, its errno): each once, until a wipe has written all of it again. */
void block_health_failed(block_health *h, const device_port *port, int error, int lost);

/* A mixer whose every step can be undone: no two numbers become one. */
uint64_t block_store_mix(uint64_t z);

#endif /* BLOCK_STORE_H_INCLUDED */
