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

/* How a device speaks to its host.  emit() copies the TLP and never fails: what cannot leave at
   once is queued, and while many wait no further non-posted request is given to the device. */
typedef struct device_port {
    void *user;
    void (*emit)(void *user, dxpu_bytes tlp);
    /* How many TLPs wait at the moment because they cannot leave; a device with much to send goes
       on at its next tick.  NULL: not counted. */
    unsigned (*waiting)(void *user);
    /* The device's medium fails: a sentence, once, until a wipe has shown that it
       does not.  NULL: not reported. */
    void (*fault)(void *user, const char *what);
    /* The device is absent from now on, or it is there: absent, its host loses it as one that was
       pulled out, and no other gets it.  Before the first call it is there.  NULL: not reported. */
    void (*present)(void *user, bool there);
    /* Another slot's device has given it work: its next tick is due.  NULL: it has one in time. */
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
    uint64_t identity;     /* no other device of the fabric has it: serial number, UUIDs */
    const char *serial;    /* nvme, virtio-blk: its serial number, 20 characters at most; NULL: of
                             identity */
    const char *subsystem; /* nvme: its name, when controllers share it; NULL: it is alone */
    uint64_t controller;   /* nvme: its identifier there; 0: 1 */
    bool functions; /* nvme: it is one of several functions of a device, by `controller`, each with
                       namespaces of its own */
    uint64_t function_count; /* nvme: how many of them are lent as a whole; 0: 1 */
    uint64_t function;       /* its number among those; 0 where it is alone in its slot */
    uint64_t virtuals;   /* nvme: virtual functions that its host can make; 0: none, no SR-IOV */
    uint64_t turn_share; /* nvme: of the work of a call it does one part of this many; 0: all */
    const struct pci_function *physical; /* it is one of these; NULL: it is not */
    uint64_t timeout_ns;                 /* least time to wait for a completion of the host */
    const jobs *jobs;                    /* wait for disks in its place; NULL: it waits itself */
    const char *layout;  /* nvme: file that keeps its layout; NULL: beside the first of `file` */
    bool no_push;        /* it asks no host for push rules (U-2) */
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
    bool spans;          /* rawtlp: TLPs of the card may go on in its next datagram */
    bool raw_wire;       /* rawtlp, set by the device itself */
    const char *socket;  /* vfio-user: where its server listens */
    int connector;       /* vfio-user: of connector_start() for `socket`, which the device closes;
                             0: it starts one */
    bool stateless; /* vfio-user, nettlp, rawtlp: nothing of a tenant's data outlives its lease */
    const device_medium *medium; /* vfio-user: its server's, as its owner has seen it; NULL: it is
                                    not known */
    int renderer; /* virtio-gpu: of render_start(), which the device closes; 0: it has no 3D */
    bool render;  /* virtio-gpu, for the program, which makes it `renderer`: 3D, in software or */
    const char *render_node; /* on the GPU of this DRM node */
    const char *tap;         /* virtio-net: the interface that its frames go to */
    uint64_t descriptor; /* virtio-net: in its place, one that was inherited; it is the device's */
} device_settings;

/* What a range of a BAR reads once the device is lost, where its driver would wait for ever on all
   ones (V-49). */
typedef struct device_value {
    uint8_t function, bar;
    uint16_t bytes;   /* of the range */
    uint8_t value[4]; /* what it reads from its first byte on, over and over */
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
    /* Fundamental reset: as after power-up, and nothing of the last user's memory or registers is
       left.  Blocks that a model stores for good (nvme, virtio-blk) stay: wipe() erases them. */
    void (*reset)(void *device);
    /* The same, but for what outlives a reset that a driver survives, an FLR or a hot reset.  NULL:
       nothing does, and reset() is it. */
    void (*restart)(void *device);
    /* The same as reset() for a virtual function that its host ends: its link stays, so that what
       it had asked for may still be answered, to none.  NULL: it can be no virtual function. */
    void (*end)(void *device);
    void (*report)(void *device, report *r);
    /* The monotonic time, and a chance to send more: every 10 ms or so, when TLPs of the device
       have left, and when its jobs are over.  NULL: not wanted. */
    void (*tick)(void *device, uint64_t now_ns);
    /* It stopped only because a call has a limit: call tick() again soon, nothing else will have it
       called.  NULL: false. */
    bool (*unfinished)(const void *device);
    /* What it shows: `rows` rows from `row` on, counted from the top, which it has, three bytes a
       pixel: red, green, blue; rgb NULL: its size alone.  False: nothing is shown.  The function is
       NULL for what has no screen. */
    bool (*picture)(void *device, uint8_t *rgb, unsigned row, unsigned rows, unsigned *width,
                    unsigned *height);
    /* Erase for good what reset() leaves, and read all of it back, by jobs, from the beginning when
       `begin`.  DEVICE_WIPING: call again when jobs are over; _WIPED: that was the last of it, all
       is 0; _UNWIPED: it cannot be erased, after a message.  The device is unused meanwhile.
       NULL: reset() leaves nothing. */
    int (*wipe)(void *device, bool begin);
    /* The same where others go on to use the data: they stay, and what is only of this tenant goes.
       _UNWIPED: not all of that.
       NULL: its data are its own. */
    int (*leave)(void *device, bool begin);
    /* A number of what it keeps its data on over its own end: another file or disk has another one,
       0: nothing lasts.  *pristine: nothing has been kept there before create().  NULL: 0, and
       pristine. */
    uint64_t (*medium)(void *device, bool *pristine);
    /* The number that medium() would give if it did not leave what is there as it is for every
       host; 0: it changes it.  NULL: 0. */
    uint64_t (*shown)(const void *device);
    /* False, after create() has said why: what is kept about its data is damaged or of other data.
       It is not to be used before a wipe.  NULL: true. */
    bool (*fits)(void *device);
    /* Readable when tick() has work, also while no host has the device.  NULL: never. */
    int (*descriptor)(const void *device);
    /* True: give it no further request for now, and, posted: no further write either, only
       completions.  NULL: false. */
    bool (*busy)(const void *device, bool posted);
    /* IDs of a device that has other ones than its kind.  False: they are not known now.  NULL: it
       has its kind's. */
    bool (*ids)(const void *device, device_ids *out);
    /* The ranges whose values its host is to know: how many.  Asked for when a host gets it.  NULL:
       none, all reads as ones. */
    unsigned (*values)(const void *device, device_value out[DEVICE_VALUES_MAX]);
    /* Its registers, for the device of which it is one function.  NULL: it can be none. */
    struct pci_function *(*pci)(void *device);
    /* Its attributes, KEY=VALUE with commas between them.  NULL: none. */
    void (*attributes)(const void *device, char out[DEVICE_ATTRIBUTES_BYTES]);
} device_kind;

#endif /* DEVICE_H_INCLUDED */
