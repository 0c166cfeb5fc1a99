/* virtio.h - what every virtio device has: the modern PCI transport, split rings, requests
   SPDX-License-Identifier: MIT

   Names are those of Virtual I/O Device 1.2.  A device type embeds a `virtio` as its first member
   and gives it a `virtio_type`; it is called with one request at a time, whose memory it moves with
   virtio_read() and virtio_write(), whose jobs it starts with virtio_submit(), and which it ends
   with virtio_finish().  Parts:
     virtio.c        registers, features, reset, TLPs
     virtio_queue.c  rings, descriptors, requests, interrupts
   A driver that breaks the rules of a ring finds DEVICE_NEEDS_RESET in the device's status, and
   nothing more happens before it resets the device.

   CONTENTS   1 Sizes   2 Requests   3 Queues   4 The device   5 For device types
              6 Between parts */
#ifndef VIRTIO_H_INCLUDED
#define VIRTIO_H_INCLUDED

#include "function.h"
#include "jobs.h"

/* ==== 1  Sizes ================================================================================ */

enum {
    VIRTIO_VENDOR = 0x1af4,
    VIRTIO_DEVICE = 0x1040, /* plus the type of the device */

    VIRTIO_QUEUES = 16,    /* most of a device */
    VIRTIO_SIZE_MAX = 128, /* entries of a queue, and of a table of indirect descriptors */
    VIRTIO_DESCRIPTOR_BYTES = 16,
    VIRTIO_BATCH = 32, /* entries of the avail ring read at once */
    VIRTIO_CONFIG_BYTES = 64,

    VIRTIO_BAR_BYTES = 0x8000, /* of BAR 0; where its parts begin: */
    VIRTIO_COMMON = 0x0000,
    VIRTIO_ISR = 0x1000,
    VIRTIO_CONFIG = 0x2000,
    VIRTIO_NOTIFY = 0x3000, /* 4 bytes for each queue */
    VIRTIO_TABLE = 0x4000,  /* MSI-X */
    VIRTIO_PBA = 0x5000,
    VIRTIO_COMMON_BYTES = 0x40
};

enum { /* device_status */
       VIRTIO_ACKNOWLEDGE = 0x01,
       VIRTIO_DRIVER = 0x02,
       VIRTIO_DRIVER_OK = 0x04,
       VIRTIO_FEATURES_OK = 0x08,
       VIRTIO_NEEDS_RESET = 0x40,
       VIRTIO_FAILED = 0x80
};

#define VIRTIO_F_INDIRECT_DESC     ((uint64_t)1 << 28)
#define VIRTIO_F_EVENT_IDX         ((uint64_t)1 << 29)
#define VIRTIO_F_VERSION_1         ((uint64_t)1 << 32)
#define VIRTIO_F_ACCESS_PLATFORM   ((uint64_t)1 << 33)
#define VIRTIO_F_NOTIFICATION_DATA ((uint64_t)1 << 38)
#define VIRTIO_F_RING_RESET        ((uint64_t)1 << 40)

/* ==== 2  Requests ============================================================================= */

typedef struct virtio virtio;
typedef struct virtio_queue virtio_queue;
typedef struct virtio_request virtio_request;
typedef void virtio_then(virtio *v, virtio_request *r);

/* A chain of descriptors that the driver made available. */
struct virtio_request {
    job job; /* first */
    virtio_request *next;
    virtio_queue *queue; /* NULL: the device's own */
    bool used;
    bool whole;   /* of an ordered device: all its descriptors are there */
    bool busy;    /* its job is not over */
    bool dropped; /* a reset took it away meanwhile */
    bool failed;  /* its last virtio_read() */
    uint16_t head;
    bool has_status;
    uint8_t status;
    uint64_t status_at;
    uint32_t written;  /* bytes of its memory, from the first that may be written on */
    virtio_then *then; /* what follows its transfer or job */
    uint64_t readable_bytes, writable_bytes; /* not yet moved */
    uint16_t count, readable;                /* pieces of its memory; the first may be read */
    uint16_t next_readable, next_writable;
    fn_fetch fetch;
    fn_range piece[VIRTIO_SIZE_MAX];
    uint16_t table_count; /* indirect descriptors */
    uint8_t table[VIRTIO_SIZE_MAX * VIRTIO_DESCRIPTOR_BYTES];
};

typedef struct virtio_list {
    virtio_request *head, **tail;
} virtio_list;

void virtio_list_clear(virtio_list *l);
void virtio_list_append(virtio_list *l, virtio_request *r);
virtio_request *virtio_list_take(virtio_list *l);           /* NULL: it is empty */
void virtio_list_remove(virtio_list *l, virtio_request *r); /* if it is there */

/* ==== 3  Queues =============================================================================== */

enum { VIRTIO_LOOK_RANGES = 5 }; /* avail index, used_event, two parts of a ring, descriptors */

struct virtio_queue {
    uint16_t size, vector;
    bool enabled;
    uint64_t desc, avail, used;   /* addresses */
    uint16_t known;               /* the driver has made all before this index available */
    uint16_t taken;               /* the next one to become a request */
    uint16_t window;              /* descriptors that are read ahead */
    uint16_t armed;               /* the avail_event that was written last */
    uint16_t used_index, decided; /* entries of the used ring; those whose interrupt is decided */
    uint16_t flags, used_event;   /* the driver's, as last seen */
    virtio_list done;
    virtio_list arriving; /* of an ordered device: taken, and not yet given to its type */
    struct {              /* one read of what the driver wrote */
        bool wanted, under_way;
        uint16_t count, window, used_index; /* entries, descriptors, and used_index at its begin */
        fn_fetch fetch;
        fn_range ranges[VIRTIO_LOOK_RANGES];
        uint8_t bytes[6 + VIRTIO_BATCH * 2 + VIRTIO_SIZE_MAX * VIRTIO_DESCRIPTOR_BYTES];
    } look;
};

/* ==== 4  The device =========================================================================== */

#define VIRTIO_COUNTERS(X)                                                                         \
    X(register_reads)                                                                              \
    X(register_writes)                                                                             \
    X(notifications)                                                                               \
    X(looks)                                                                                       \
    X(requests)                                                                                    \
    X(indirect_requests)                                                                           \
    X(broken)                                                                                      \
    X(device_resets)                                                                               \
    X(function_resets)                                                                             \
    X(queue_resets)                                                                                \
    X(accesses_dropped)

typedef struct virtio_type {
    virtio_then *request; /* a new one */
    virtio_then *release; /* it is over, or was taken away: free what it has */
    virtio_then *ended;   /* a job is over, also one whose request was taken away; NULL: no need */
    void (*reset)(virtio *v); /* the device is reset, its requests are gone; NULL: no need */
    /* Go on with what waited for others to be released.  True when anything was done. */
    bool (*work)(virtio *v);
    bool (*fits)(uint64_t features); /* those of its type go together; NULL: any do */
} virtio_type;

typedef struct virtio_setup {
    uint16_t type; /* 2: block device */
    uint32_t class_code;
    unsigned queues;
    uint64_t features;    /* of its type; those of the transport are added */
    unsigned requests;    /* taken and not finished, of all queues together */
    size_t request_bytes; /* of a request with what the type adds to it */
    unsigned config_bytes;
    bool ordered; /* requests of a queue are given to the type as the driver made them available */
} virtio_setup;

struct virtio {
    fn fn;
    const virtio_type *type;
    virtio_setup set;
    uint8_t config[VIRTIO_CONFIG_BYTES]; /* of the type, which fills it */
    fn_own capabilities[(FN_CAP_END - FN_CAP_MSI) / 4];

    /* registers */
    uint64_t offered, accepted;
    uint32_t device_select, driver_select;
    uint8_t status, isr;
    uint16_t config_vector, queue_select;

    virtio_queue queue[VIRTIO_QUEUES];
    uint8_t *pool;  /* of requests */
    unsigned fresh; /* of the pool, from here on: never used, and without memory yet */
    virtio_list free, sending;
    unsigned dropped; /* jobs of requests that are gone: nothing begins before they are over */
    jobs jobs;
    jobs_queue done; /* of those run here */

#define VIRTIO_FIELD(name) uint64_t name;
    struct {
        VIRTIO_COUNTERS(VIRTIO_FIELD)
    } count;
#undef VIRTIO_FIELD
};

/* ==== 5  For device types ===================================================================== */

/* *v is zeroed.  0, or -1: no memory; virtio_close() is called in both cases. */
int virtio_open(virtio *v, const virtio_setup *set, const virtio_type *type,
                const device_settings *s, const device_port *port);
void virtio_close(virtio *v); /* waits for its jobs */

/* Functions of a device_kind, whose device begins with a `virtio`. */
void virtio_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes);
void virtio_event(void *device, const dxpu_event *e);
void virtio_reset(void *device);
void virtio_tick(void *device, uint64_t now_ns);
void virtio_report(const virtio *v, report *r);
unsigned virtio_values(const void *device, device_value out[DEVICE_VALUES_MAX]);

/* The same of any virtio device whose common configuration is there, as far as that goes: it ends
   earlier in older versions.  How many. */
unsigned virtio_values_at(unsigned bar, uint64_t common, uint32_t common_bytes,
                          device_value out[DEVICE_VALUES_MAX]);

/* Move the next bytes, at least one and as many as there are at most, then call then(): r->failed
   when the driver's memory could not be read. */
void virtio_read(virtio *v, virtio_request *r, uint8_t *to, uint32_t bytes, virtio_then *then);
void virtio_write(virtio *v, virtio_request *r, uint8_t *from, uint32_t bytes, virtio_then *then);
/* The last byte of what may be written, of at least one, is for its status. */
void virtio_has_status(virtio_request *r);
/* Run its job, then call then(). */
void virtio_submit(virtio *v, virtio_request *r, virtio_then *then);
/* It goes to the used ring; status: for the last byte, if it has one. */
void virtio_finish(virtio_request *r, uint8_t status);
void virtio_break(virtio *v); /* the driver broke a rule */
/* A job that is over, to its request; false: there is none. */
bool virtio_reap(virtio *v);

/* ==== 6  Between parts ======================================================================== */

virtio_request *virtio_pooled(virtio *v, unsigned i);
void virtio_queue_default(virtio_queue *q); /* as after a reset */
void virtio_queue_enable(virtio *v, virtio_queue *q);
void virtio_queue_drop(virtio *v, virtio_queue *q); /* its requests are gone */
/* data: the notification has the next index of the avail ring, as the driver says. */
void virtio_notified(virtio *v, virtio_queue *q, const uint16_t *index);
bool virtio_running(const virtio *v);
void virtio_pump(virtio *v); /* do all that can be done now */

#endif /* VIRTIO_H_INCLUDED */
