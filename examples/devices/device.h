/* device.h - the model in a slot: takes and emits TLPs, gets link events, can be reset
   SPDX-License-Identifier: MIT

   A model is a `device_kind` and an object that its create() makes.  The box calls it from one
   thread and never from inside emit().  Other slots wait for each call: it does a bounded amount of
   work and never waits for a disk.  Work that may block or take long becomes a job (jobs.h),
   whose results the next tick() handles. */
#ifndef DEVICE_H_INCLUDED
#define DEVICE_H_INCLUDED

#include "dxpu.h"
#include "jobs.h"
#include "stats.h"

/* How a device sends to its host.  emit() copies the TLP and never fails: a TLP that cannot leave
   at once is queued, and while many wait the device gets no further non-posted request. */
typedef struct device_port {
    void *user;
    void (*emit)(void *user, dxpu_bytes tlp);
    /* Returns how many TLPs wait because they cannot leave now; a device with much to send then
       continues at its next tick.  NULL: not counted. */
    unsigned (*waiting)(void *user);
    /* Report that the device's medium fails, in a sentence; once, until a wipe has
       succeeded.  NULL: not reported. */
    void (*fault)(void *user, const char *what);
    /* Report that the device is absent or present from now on.  While it is absent, its host sees a
       surprise removal and no other host gets it.  At first it is present.  NULL: not reported. */
    void (*present)(void *user, bool there);
    /* Report that another slot's device has given it work, so that its tick is due.  NULL: not
       needed, it has one in time. */
    void (*wake)(void *user);
} device_port;

typedef struct device_ids {
    uint16_t vendor, device; /* PCI IDs */
    uint32_t class_code;
} device_ids;

/* Functions of a device in one slot: their numbers have three bits. */
enum { DEVICE_FUNCTIONS_MAX = 8 };

/* What a device keeps its data on: see device_kind.medium and device_kind.shown. */
typedef struct device_medium {
    uint64_t number, shown;
    bool pristine;
} device_medium;

typedef struct device_settings {
    uint64_t memory_bytes; /* size of the model's memory, a power of two */
    uint64_t mps_bytes;    /* largest Max_Payload_Size it supports */
    uint64_t mrrs_bytes;   /* its Max_Read_Request_Size after a reset; 0: 512, as PCIe has it */
    const char *file; /* nvme, virtio-blk: where its blocks are, commas between namespaces; NULL: in
                         memory */
    uint64_t file_bytes;   /* nvme, virtio-blk: size of each; 0: its file's, or memory_bytes */
    uint64_t namespaces;   /* nvme: how many in memory; 0: 1 */
    uint64_t cmb_bytes;    /* nvme: its controller memory buffer, a power of two; 0: none */
    uint64_t block_bytes;  /* nvme, virtio-blk: 512 or 4096; 0: 512 */
    uint64_t identity;     /* unique in the fabric; makes serial number and UUIDs */
    const char *serial;    /* nvme, virtio-blk: its serial number, 20 characters at most; NULL: from
                             identity */
    const char *subsystem; /* nvme: name of the subsystem that controllers share; NULL: none */
    uint64_t controller;   /* nvme: its identifier there; 0: 1 */
    bool functions; /* nvme: it is one of several functions of a device, by `controller`, each with
                       namespaces of its own */
    uint64_t function_count; /* nvme: how many of them are lent as a whole; 0: 1 */
    uint64_t function;       /* its number among those; 0 where it is alone in its slot */
    uint64_t virtuals;   /* nvme: virtual functions that its host can make; 0: none, no SR-IOV */
    uint64_t turn_share; /* nvme: a call does at most 1 / turn_share of its usual work; 0: all */
    const struct pci_function *physical; /* of a virtual function: its physical one; else NULL */
    uint64_t timeout_ns;                 /* least time to wait for a completion of the host */
    const jobs *jobs;                    /* threads for its disk accesses; NULL: it waits itself */
    const char *layout;  /* nvme: file that keeps its layout; NULL: beside the first of `file` */
    bool no_push;        /* it makes no push rules, whatever its host offers (U-2) */
    bool read_only;      /* virtio-blk: its file is never changed */
    uint64_t bar_bytes;  /* eptest: size of its 64-bit prefetchable BAR; 0: 64 KB */
    const char *peer;    /* nettlp, rawtlp: the address of the device, */
    const char *local;   /* and the one by which the box reaches it; NULL: any */
    uint64_t wire_tags;  /* nettlp: tags of the device that have a port; 0: 16 */
    uint64_t answer_ms;  /* nettlp, rawtlp: how long a completion of the device is waited for; 0:
                              500 ms */
    uint64_t card_id;    /* nettlp, rawtlp: vendor and device, in the upper and lower 16 bits; 0:
                              the model's */
    uint64_t card_class; /* nettlp, rawtlp: its class code; 0: the model's */
    bool spans;          /* rawtlp: TLPs of the card may continue in its next datagram */
    bool raw_wire;       /* rawtlp, set by the device itself */
    const char *socket;  /* vfio-user: where its server listens */
    int connector;       /* vfio-user: of connector_start() for `socket`, which the device closes;
                             0: it starts one */
    bool stateless;      /* vfio-user, nettlp, rawtlp: no data of a tenant outlive its lease */
    const device_medium *medium; /* vfio-user: its server's, as the box has seen it; NULL: not
                                    known */
    int renderer; /* virtio-gpu: of render_start(), which the device closes; 0: it has no 3D */
    bool render;  /* virtio-gpu, for the program, which makes it `renderer`: 3D, in software or */
    const char *render_node; /* on the GPU of this DRM node */
    const char *tap;         /* virtio-net: the interface that its frames go to */
    uint64_t descriptor; /* virtio-net: instead of tap: an inherited one, which the device closes */
} device_settings;

/* What a range of a BAR reads once the device is lost, for a driver that would wait without end if
   it read all ones (V-49). */
typedef struct device_value {
    uint8_t function, bar;
    uint16_t bytes;   /* of the range */
    uint8_t value[4]; /* what it reads from its first byte on, repeated */
    uint64_t offset;  /* in the BAR */
} device_value;
enum { DEVICE_VALUES_MAX = 7 };

/* How far a wipe is. */
enum { DEVICE_WIPING, DEVICE_WIPED, DEVICE_UNWIPED };

/* What distinguishes a device from others of its model, for its users: "size=64M,block=512" */
enum { DEVICE_ATTRIBUTES_BYTES = 64 };

typedef struct device_kind {
    const char *name;
    const char *model;       /* its name in a pool; NULL: `name` */
    uint16_t vendor, device; /* PCI IDs */
    uint32_t class_code;
    /* NULL: out of memory.  port outlives the object. */
    void *(*create)(const device_settings *s, const device_port *port);
    void (*destroy)(void *device);
    /* One TLP for the device: decoded strictly, and its bytes; both valid until it returns. */
    void (*tlp)(void *device, const dxpu_tlp *t, dxpu_bytes bytes);
    /* A link event of the slot.  Power that goes off or on is SLOT_POWER, and behind it a HOT_RESET
       that begins or ends. */
    void (*event)(void *device, const dxpu_event *e);
    /* Fundamental reset: the state at power-up, with nothing left of the last user's memory and
       registers.  Blocks that a model stores (nvme, virtio-blk) stay: wipe() erases them. */
    void (*reset)(void *device);
    /* FLR or hot reset: like reset(), but keeps what outlives a reset that a driver survives.
       NULL: nothing does, and reset() is called instead. */
    void (*restart)(void *device);
    /* Like reset(), for a virtual function that its host ends.  Its link stays, so completions of
       its requests may still arrive; they are dropped.  NULL: it cannot be a virtual function. */
    void (*end)(void *device);
    void (*report)(void *device, report *r);
    /* Called with the monotonic time every 10 ms or so, when TLPs of the device have left, and when
       its jobs are done: a chance to send more.  NULL: not needed. */
    void (*tick)(void *device, uint64_t now_ns);
    /* True: it stopped only because a call has a limit.  Call tick() again soon, since nothing else
       will cause a call.  NULL: false. */
    bool (*unfinished)(const void *device);
    /* Copies `rows` rows of its picture from `row` on, counted from the top, three bytes a pixel:
       red, green, blue.  The rows exist.  rgb NULL: the size alone.  False: nothing is shown.
       NULL: it has no screen. */
    bool (*picture)(void *device, uint8_t *rgb, unsigned row, unsigned rows, unsigned *width,
                    unsigned *height);
    /* Erase what reset() leaves, and read all of it back, by jobs; start over when `begin`.
       DEVICE_WIPING: call again when jobs are done; _WIPED: all of it is erased and verified;
       _UNWIPED: it cannot be erased, after a message.  The device is unused meanwhile.
       NULL: reset() leaves nothing. */
    int (*wipe)(void *device, bool begin);
    /* The same while others continue to use the data: the data stay, and what belongs to this
       tenant alone is erased.  _UNWIPED: not all of that was.
       NULL: it shares no data. */
    int (*leave)(void *device, bool begin);
    /* A number for the file or disk that keeps its data after its own end; another one has another
       number, 0: nothing is kept.  *pristine: nothing was kept there before create().  NULL: 0,
       and pristine. */
    uint64_t (*medium)(void *device, bool *pristine);
    /* For a device that never changes its medium (read-only): the number that medium() would give
       otherwise.  0: it changes its medium.  NULL: 0. */
    uint64_t (*shown)(const void *device);
    /* False, after create() has said why: its layout is damaged or belongs to other data, and the
       device must be wiped before use.  NULL: true. */
    bool (*fits)(void *device);
    /* Readable when tick() has work, also while no host has the device.  NULL: never. */
    int (*descriptor)(const void *device);
    /* True: give it no further non-posted request for now; with `posted`: no further write either,
       only completions.  NULL: false. */
    bool (*busy)(const void *device, bool posted);
    /* IDs of a device that differ from its kind's.  False: they are not known now.  NULL: they are
       its kind's. */
    bool (*ids)(const void *device, device_ids *out);
    /* Fills the ranges to declare to its host (V-49), when a host gets it; returns how many.  NULL:
       none, a lost device reads as all ones. */
    unsigned (*values)(const void *device, device_value out[DEVICE_VALUES_MAX]);
    /* Its registers, for a device of several functions.  NULL: it cannot be one of them. */
    struct pci_function *(*pci)(void *device);
    /* Its attributes, KEY=VALUE with commas between them.  NULL: none. */
    void (*attributes)(const void *device, char out[DEVICE_ATTRIBUTES_BYTES]);
} device_kind;

#endif /* DEVICE_H_INCLUDED */
