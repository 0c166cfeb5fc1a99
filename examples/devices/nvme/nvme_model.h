/* nvme_model.h - the NVMe controller's object, and what its parts offer one another
   SPDX-License-Identifier: MIT

   Names of registers and fields are those of the NVM Express Base Specification 1.4.

   CONTENTS   1 Sizes   2 Status codes   3 Namespaces   4 Commands and accesses   5 Queues
              6 The controller   7 Parts */
#ifndef NVME_MODEL_H_INCLUDED
#define NVME_MODEL_H_INCLUDED

#include "block_store.h"
#include "function.h"
#include "jobs.h"
#include "nvme.h"
#include "pages.h"

/* ==== 1  Sizes ================================================================================ */

enum {
    NVME_QUEUES = 65, /* the admin pair and 64 for I/O */
    NVME_VECTORS = NVME_QUEUES,
    NVME_QUEUE_ENTRIES = 1024,
    NVME_SQE_BYTES = 64,
    NVME_CQE_BYTES = 16,
    NVME_PAGE_BYTES = 4096,
    NVME_TRANSFER_LOG2 = 20, /* largest transfer of a command */
    NVME_TRANSFER_BYTES = 1 << NVME_TRANSFER_LOG2,
    NVME_PAGES = NVME_TRANSFER_BYTES / NVME_PAGE_BYTES + 1,
    NVME_RANGES = 16384,          /* pieces of host memory of a command: 64 bytes each, largest */
    NVME_BATCH = 16,              /* entries fetched at once */
    NVME_ADMIN_COMMANDS = 16,     /* taken and not completed, async events among them */
    NVME_IO_COMMANDS = 256,       /* the same for all I/O queues together */
    NVME_BUFFER_BYTES = 32 << 20, /* of all commands together */
    NVME_EVENT_COMMANDS = 4,      /* outstanding Asynchronous Event Requests */
    NVME_ERRORS = 64,             /* entries of the error log */

    NVME_BAR_BYTES = 0x4000,
    NVME_DOORBELLS = 0x1000,
    NVME_TABLE = 0x2000, /* MSI-X */
    NVME_PBA = 0x3000,
    NVME_CMB_BAR = 2,   /* the controller memory buffer is all of it */
    NVME_CMBLOC = 0x38, /* its registers */
    NVME_CMBSZ = 0x3c,
    NVME_CMBMSC = 0x50,
    NVME_CMBSTS = 0x58,
    NVME_TURN_ENTRIES = 256,         /* of submission queues, begun in one call of the device */
    NVME_TURN_QUICK_BYTES = 1 << 20, /* read in one, of what needs no disk; more is for threads */

    NVME_NAMESPACES = 32,
    NVME_CONTROLLER = 1,       /* the identifier of one that is alone in its subsystem */
    NVME_CONTROLLERS = 0xffef, /* the highest */
    NVME_REGISTRANTS = 128,    /* hosts, of a namespace */
    NVME_REGISTRANTS_EACH = 4, /* that came by one controller */
    NVME_NOTICES = 32,         /* of reservations, not read yet */
    NVME_DETACHED = 1024,      /* namespaces from controllers */
    NVME_HOST_BYTES = 16
};
#define NVME_NSID_ALL 0xffffffffu

/* ==== 2  Status codes ======================================================= NVMe 1.4, 4.6 ====
   Status code type in bits 10:8, status code below; NVME_DNR: another try is in vain. */
enum {
    NVME_SUCCESS = 0x000,
    NVME_INVALID_OPCODE = 0x001,
    NVME_INVALID_FIELD = 0x002,
    NVME_CID_CONFLICT = 0x003,
    NVME_TRANSFER_ERROR = 0x004,
    NVME_INTERNAL_ERROR = 0x006,
    NVME_ABORTED = 0x007,
    NVME_SQ_DELETED = 0x008,
    NVME_INVALID_NAMESPACE = 0x00b,
    NVME_SEQUENCE_ERROR = 0x00c,
    NVME_SGL_SEGMENT = 0x00d,
    NVME_SGL_COUNT = 0x00e,
    NVME_SGL_LENGTH = 0x00f,
    NVME_SGL_TYPE = 0x011,
    NVME_INVALID_CMB = 0x012,
    NVME_PRP_OFFSET = 0x013,
    NVME_DENIED = 0x015,
    NVME_HOST_FORMAT = 0x018,
    NVME_PREEMPTED = 0x01b,
    NVME_LBA_RANGE = 0x080,
    NVME_RESERVATION_CONFLICT = 0x083,
    NVME_FORMAT_IN_PROGRESS = 0x084,
    NVME_CQ_INVALID = 0x100,
    NVME_INVALID_QUEUE = 0x101,
    NVME_QUEUE_SIZE = 0x102,
    NVME_EVENT_LIMIT = 0x105,
    NVME_INVALID_VECTOR = 0x108,
    NVME_INVALID_LOG = 0x109,
    NVME_INVALID_FORMAT = 0x10a,
    NVME_QUEUE_DELETION = 0x10c,
    NVME_NOT_SAVEABLE = 0x10d,
    NVME_NOT_CHANGEABLE = 0x10e,
    NVME_NOT_PER_NAMESPACE = 0x10f,
    NVME_NO_CAPACITY = 0x115,
    NVME_NO_NSID = 0x116,
    NVME_ALREADY_ATTACHED = 0x118,
    NVME_NOT_ATTACHED = 0x11a,
    NVME_NO_THIN_PROVISIONING = 0x11b,
    NVME_CONTROLLER_LIST = 0x11c,
    NVME_WRITE_FAULT = 0x280,
    NVME_READ_ERROR = 0x281,
    NVME_COMPARE_FAILURE = 0x285,
    NVME_MORE = 0x2000, /* the error log has more */
    NVME_DNR = 0x4000,
    NVME_PENDING = 0xffff /* of a command function: it completes by itself later */
};

#define NVME_NO_NAME 0xffffffffu

enum { NVME_DPTR_PRP = 0, NVME_DPTR_RESERVED = 3 }; /* PSDT of dword 0; else SGLs */

enum { NVME_CSTS_RDY = 0x1, NVME_CSTS_CFS = 0x2 };
#define NVME_CC_EN 0x00000001u

enum { NVME_LOG_RESERVATION = 0x80 }; /* log page of notices */

/* ==== 3  Namespaces =========================================================================== */

/* What a host makes of a store: kept beside the medium (nvme_layout.c). */
typedef struct nvme_layout {
    uint64_t bytes; /* of the store that the namespace has */
    uint32_t block_log2;
    uint32_t generation; /* of namespaces with its identifier */
    bool allocated, attached;
} nvme_layout;

typedef struct nvme_ns {
    block_store *store; /* the subsystem's */
    nvme_layout is;
    uint32_t recovery; /* the feature Error Recovery */
    uint32_t accesses; /* of its store that are not over */
    uint32_t erased;   /* times that its blocks went: an access of before is not for it */
    bool erasing;      /* no other access now */
    bool changed;      /* since the list of changed ones was read */
    uint8_t mask;      /* notices of its reservation that the host does not want */
} nvme_ns;

/* Whom a controller serves.  A host without an identifier is another one for each controller. */
typedef struct nvme_host {
    uint8_t id[NVME_HOST_BYTES];
    uint16_t alone; /* its controller, when the identifier is 0 */
} nvme_host;

typedef struct nvme_registrant {
    nvme_host host;
    uint64_t key;
    uint16_t by; /* the controller that it came by */
} nvme_registrant;

/* Of a namespace. */
typedef struct nvme_reservation {
    uint32_t generation;
    uint8_t type;    /* 0: none is held */
    bool persists;   /* over the end of the process */
    uint32_t holder; /* index of its registrant, unless all hold it */
    uint32_t count;
    nvme_registrant of[NVME_REGISTRANTS];
} nvme_reservation;

/* Types 5 and 6: each registrant holds it. */
static inline bool nvme_all_hold(uint8_t type)
{
    return type >= 5;
}

/* What controllers share: all of one subsystem are in one loop. */
typedef struct nvme_subsystem nvme_subsystem;
struct nvme_subsystem {
    nvme_subsystem *next; /* of those with a name */
    char *name;           /* NULL: it has one controller, and no reservations */
    char *files;          /* NULL: it is in memory */
    uint64_t bytes;       /* asked for, of each store; 0: as its file is */
    struct nvme *first;   /* of its controllers, by nvme.sibling */
    block_store store[NVME_NAMESPACES];
    uint32_t stores;
    struct {
        uint32_t nsid;
        uint16_t id; /* the controller's */
    } detached[NVME_DETACHED];
    uint32_t detached_count;
    bool extended; /* hosts have identifiers of 128 bits, those that have any */

    nvme_reservation *reservation; /* of each store; NULL: there are none */
    char *path;                    /* where those that persist are; NULL: nowhere */
    char *kept;                    /* what is in that file; NULL: not known */
    bool keeps;                    /* they can persist */
    bool unsure;                   /* a crash may bring that file back */
    uint64_t version, written,
        failed;          /* of what is to be in the file, what is, what could not be */
    int error;           /* why that could not be */
    struct nvme *writer; /* who writes it now, or NULL */
};

/* ==== 4  Commands and accesses ================================================================ */

typedef struct nvme nvme;

typedef struct nvme_access nvme_access;
typedef struct nvme_command nvme_command;
struct nvme_command {
    nvme_command *next; /* in one list at most */
    bool used;
    bool event;     /* waits for an asynchronous event */
    bool posting;   /* waits for room in its completion queue */
    bool waiting;   /* for its turn to change the layout */
    bool preempted; /* a reservation's new holder waits for its access */
    bool to_host;   /* direction of its data */
    uint8_t opcode, dptr;
    uint16_t sqid, cqid, cid, status;
    uint32_t nsid, result;
    nvme_ns *ns; /* an I/O command's, or an attachment's; NULL: of all namespaces */
    uint32_t dw[16];
    uint8_t *buffer;
    uint32_t bytes; /* in buffer */

    nvme_access *access; /* of the medium, not over yet */
    uint64_t at, end;    /* what is still to be done, in the store, or from range `index` on */
    uint32_t index;      /* of a range or namespace, where there are several */
    uint32_t erased;     /* of its namespace, when it began */
    uint16_t fault;      /* its status when the medium fails */
    uint16_t stop;       /* it ends with this after its access; 0: it does not */
    void (*over)(nvme *n, nvme_command *c, uint16_t status); /* nvme_finish(), but for our own */

    fn_fetch fetch;
    void (*ready)(nvme *n, nvme_command *c); /* its data has been moved */
    fn_range *ranges;                        /* where its data is in the host ... */
    uint32_t range_count, range_room;
    uint32_t mapped;  /* ... for that many bytes yet */
    uint64_t segment; /* of its SGL: what is still to be read of it */
    uint32_t segment_left, descriptors;
    bool segment_last;
    uint8_t *list; /* a page of PRPs or of SGL descriptors; NULL before the first */
};

typedef struct nvme_list {
    nvme_command *head, **tail;
} nvme_list;

typedef enum nvme_op {
    NVME_OP_READ,       /* to the buffer; with `sync`, what was written is durable before */
    NVME_OP_WRITE,      /* from the buffer; with `sync`, durable after */
    NVME_OP_COMPARE,    /* with the buffer */
    NVME_OP_VERIFY,     /* can it be read? */
    NVME_OP_ZERO,       /* the first `bytes` of it, set when it is over */
    NVME_OP_DEALLOCATE, /* the same, as a hint */
    NVME_OP_SYNC,
    NVME_OP_FORGET,       /* sync of a store that was written as a whole, and no longer cached */
    NVME_OP_ALL_ZERO,     /* is it? */
    NVME_OP_LAYOUT,       /* the buffer has the file's text, a zero, and the text before */
    NVME_OP_RESERVATIONS, /* the buffer has the text of version `at`, and a zero */
    NVME_OP_UNRESERVE     /* that file goes; with `sync`, it may have gone, but not durably */
} nvme_op;

/* One access of the medium, by whoever runs jobs: it touches nothing but this and the store.  It
   outlives the command that a reset takes away. */
struct nvme_access {
    job job; /* first: the job is the access */
    nvme_op op;
    bool sync;
    nvme_command *command; /* NULL: its status is not reported */
    nvme_ns *ns;           /* NULL: of none */
    block_store *store;    /* its own; of it a thread uses no more than the functions above */
    const char *path;      /* of the layout's file */
    uint8_t *buffer;       /* the command's, meanwhile */
    uint32_t buffer_bytes;
    uint64_t at, bytes;
    uint64_t memory_bytes; /* what a hint may still clear of memory */
    int error;             /* errno, NVME_DIFFERS, or 0 */
    bool unsure;           /* which layout the file has after a crash */
    void (*then)(nvme *n, nvme_command *c, const nvme_access *a);
};

enum { NVME_DIFFERS = BLOCK_STORE_DIFFERS }; /* what was compared, or is not all 0 */

/* ==== 5  Queues =============================================================================== */

typedef struct nvme_sq {
    bool valid, busy; /* busy: entries are being fetched */
    uint16_t cqid, head, tail, count;
    uint32_t size;
    uint64_t base;
    nvme_command *deleter; /* the command that deletes it, until its last command is over */
    fn_fetch fetch;
    uint32_t push;    /* fn_push_begin(): its entries come with the doorbell */
    uint8_t *entries; /* NVME_BATCH of them, as long as it is there */
} nvme_sq;

typedef struct nvme_cq {
    bool valid, interrupts;
    uint8_t phase;
    uint16_t vector, head, tail;
    uint32_t size, users; /* submission queues that complete here */
    uint64_t base;
    nvme_list posting;
} nvme_cq;

/* ==== 6  The controller ======================================================================= */

#define NVME_COUNTERS(X)                                                                           \
    X(register_reads)                                                                              \
    X(register_writes)                                                                             \
    X(commands)                                                                                    \
    X(commands_failed)                                                                             \
    X(sgl_commands)                                                                                \
    X(fatal)                                                                                       \
    X(accesses)                                                                                    \
    X(accesses_dropped)                                                                            \
    X(controller_resets)                                                                           \
    X(function_resets)                                                                             \
    X(store_errors)                                                                                \
    X(cmb_reads)                                                                                   \
    X(cmb_writes)

typedef struct nvme_error { /* one entry of the error log */
    uint64_t number, lba;
    uint16_t sqid, cid, status, parameter;
    uint32_t nsid;
} nvme_error;

enum { /* indexes of features[]; the identifiers below 0x10 */
       NVME_FEATURES = 0x10,
       NVME_EVENTS = 8 /* reported later, when a request for them comes */
};

struct nvme {
    fn fn;
    uint64_t identity;
    char serial[21];
    nvme_subsystem *subsystem;
    nvme *sibling;               /* the next controller of it */
    uint16_t id;                 /* there */
    bool functions;              /* others of its device have namespaces of their own */
    unsigned turn_share;         /* with how many it shares a call's work; 1: none */
    uint32_t factory_log2;       /* block of a namespace as the box's owner gave it */
    nvme_ns ns[NVME_NAMESPACES]; /* the first has identifier 1 */
    uint32_t ns_count;

    /* registers */
    uint32_t intms, cc, csts, aqa;
    uint64_t asq, acq, cmbmsc;
    pages cmb; /* size 0: there is none */

    /* queues and commands */
    nvme_sq sq[NVME_QUEUES];
    nvme_cq cq[NVME_QUEUES];
    unsigned next_sq, queue_limit; /* all queues that exist have lower ids */
    unsigned entries_left;         /* of NVME_TURN_ENTRIES */
    uint32_t quick_left;           /* of NVME_TURN_QUICK_BYTES */
    nvme_command *commands;        /* admin ones first; NULL before nvme_commands_open() */
    nvme_list free[2];             /* admin, I/O */
    unsigned free_count[2];
    uint32_t names[NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS]; /* sqid and cid of each in use */
    nvme_list sending;                                      /* data goes to the host */
    nvme_list starving;                                     /* no buffer yet */
    uint64_t buffer_bytes;

    /* the medium */
    jobs jobs;
    jobs_queue done;             /* of those run here, if no other jobs were given */
    unsigned under_way;          /* accesses that are not over, or not taken back */
    unsigned dropped;            /* of these, those whose commands are gone */
    bool resetting;              /* by the driver, and it waits for them */
    nvme_command shutter, wiper; /* what no host queued: the flush of a shutdown, a wipe */
    struct {
        char *path;          /* NULL: it is not kept */
        bool kept;           /* there is a file */
        bool fits;           /* it says what is here */
        nvme_command *owner; /* who changes it, or NULL */
        nvme_list waiting;   /* who will */
        nvme_layout next[NVME_NAMESPACES];
    } layout;

    /* features, log, events */
    uint32_t features[NVME_FEATURES];
    uint32_t thresholds[2];         /* of temperature: over, under */
    uint32_t vectors[NVME_VECTORS]; /* interrupt vector configuration */
    nvme_error errors[NVME_ERRORS];
    uint64_t error_count;
    nvme_list event_commands;
    unsigned event_commands_count, event_count;
    uint32_t events[NVME_EVENTS];
    uint8_t events_masked; /* types, until their log page is read */
    uint64_t blocks_read, blocks_written, reads, writes;
    uint64_t power_cycles, unsafe_shutdowns, start_ns, busy_ns;

    /* reservations */
    nvme_host host;
    nvme_list reserving; /* commands that wait for what they have done to be over, and kept */
    nvme_command keeper; /* which no host queued: it writes the file */
    uint64_t left;       /* the version by which its lease is over */
    struct {
        uint8_t type;
        uint32_t nsid;
        uint64_t number;
    } notices[NVME_NOTICES];
    unsigned notice_count;
    uint64_t notices_made;

    block_health health;
    struct {
        uint32_t ns; /* index of the namespace */
        uint64_t at; /* in its store */
        bool erased; /* it is being read back */
        bool begins; /* when no access of before is under way */
        int how;     /* DEVICE_WIPING.. */
    } wipe;

#define NVME_FIELD(name) uint64_t name;
    struct {
        NVME_COUNTERS(NVME_FIELD)
    } count;
#undef NVME_FIELD
};

/* ==== 7  Parts ================================================================================ */

/* nvme_queue.c */
void nvme_list_clear(nvme_list *l);
void nvme_list_append(nvme_list *l, nvme_command *c);
nvme_command *nvme_list_take(nvme_list *l); /* NULL: it is empty */
bool nvme_list_remove(nvme_list *l, nvme_command *c);
void nvme_queues_clear(nvme *n); /* nothing runs, no queue exists */
/* Memory of commands, 80 KB, and 4 KB for each that has had a list: for a driver that enables the
   controller, until the device is reset.  0, or -1: none. */
int nvme_commands_open(nvme *n);
void nvme_commands_close(nvme *n); /* after nvme_queues_clear() */
void nvme_cq_open(nvme *n, unsigned id, uint64_t base, uint32_t size, unsigned vector, bool ints);
/* 0, or -1: no memory. */
int nvme_sq_open(nvme *n, unsigned id, uint64_t base, uint32_t size, unsigned cqid);
/* The deleter's completion is sent when no command of the queue is left. */
void nvme_sq_delete(nvme *n, unsigned id, nvme_command *deleter);
void nvme_cq_delete(nvme *n, unsigned id);
void nvme_doorbell(nvme *n, uint32_t offset, uint32_t value);
void nvme_finish(nvme *n, nvme_command *c, uint16_t status);
/* Abort a command of another; false: there is none that could be. */
bool nvme_abort(nvme *n, const nvme_command *self, unsigned sqid, unsigned cid);
/* Abort all of a namespace that are under way, as far as they can be. */
void nvme_preempt(nvme *n, const nvme_ns *s);
/* I/O commands are under way. */
bool nvme_is_serving(const nvme *n);
/* Some of those aborted are not over. */
bool nvme_is_preempting(const nvme *n);
void nvme_drop_buffer(nvme *n, nvme_command *c); /* if it has one */
/* A zeroed one; false: none. */
bool nvme_buffer(nvme *n, nvme_command *c, uint32_t bytes);
/* The same for what is about to be filled, of an I/O command: false when it has to wait. */
bool nvme_io_buffer(nvme *n, nvme_command *c, uint32_t bytes);
/* Then the command begins again when there is place: its status meanwhile. */
uint16_t nvme_io_starve(nvme *n, nvme_command *c);
void nvme_fatal(nvme *n);
void nvme_pump(nvme *n); /* do all that can be done now */

/* nvme_access.c */
/* Begin one, of `bytes` bytes at `at`, or of the first of them for what goes in steps; with the
   command's buffer where the kind has one.  Then then() is called in the loop, unless the command
   is taken away.  NVME_PENDING, or NVME_INTERNAL_ERROR. */
typedef void nvme_then(nvme *n, nvme_command *c, const nvme_access *a);
uint16_t nvme_access_begin(nvme *n, nvme_command *c, nvme_op op, nvme_ns *s, uint64_t at,
                           uint64_t bytes, bool sync, nvme_then *then);
/* For then(): true when it failed, and the command is over. */
bool nvme_access_failed(nvme *n, nvme_command *c, const nvme_access *a);
/* For then(), when nothing is left to do. */
void nvme_access_done(nvme *n, nvme_command *c, const nvme_access *a);
/* Take away the command's access: true when it never was, or has not begun and never will. */
bool nvme_access_cancel(nvme *n, nvme_command *c);
/* The same, whatever is under way: its end then changes nothing but the medium. */
void nvme_access_drop(nvme *n, nvme_command *c);
/* One that is over, to its command; false: there is none. */
bool nvme_access_reap(nvme *n);
/* None is in flight any more. */
void nvme_access_settle(nvme *n);
/* Make durable what was written to any namespace; then the command is over, with c->fault when
   one failed. */
uint16_t nvme_sync_all(nvme *n, nvme_command *c);

/* nvme_transfer.c */
/* Move `bytes` between the command's buffer and the host, then call ready().  Without a buffer one
   is made, zeroed.  Status of the command function: NVME_PENDING or an error. */
uint16_t nvme_transfer(nvme *n, nvme_command *c, bool to_host, uint32_t bytes,
                       void (*ready)(nvme *n, nvme_command *c));
/* Send data of commands to the host, a page of each in turn.  True when any was sent. */
bool nvme_transfer_send(nvme *n);

/* nvme_cmb.c */
int nvme_cmb_open(nvme *n, uint64_t bytes); /* 0, or -1 after a message */
void nvme_cmb_clear(nvme *n);               /* its contents */
/* fn_setup.local */
uint8_t *nvme_cmb_local(void *user, uint64_t address, uint32_t bytes, bool write);
/* Some of these bytes lie in it, as the host sees it. */
bool nvme_cmb_has(const nvme *n, uint64_t address, uint64_t bytes);
uint32_t nvme_cmb_register(const nvme *n, uint32_t offset); /* CMBLOC to CMBSTS */
void nvme_cmb_control(nvme *n, uint32_t offset, uint32_t value, uint32_t enabled); /* CMBMSC */
/* The host's accesses of its BAR. */
void nvme_cmb_write(nvme *n, const dxpu_tlp *t, uint64_t offset);
void nvme_cmb_read(nvme *n, const dxpu_tlp *t, uint64_t offset);

/* nvme.c */
/* End a reset, or begin to run, once no access of before is under way. */
void nvme_become_ready(nvme *n);

/* nvme_wipe.c: device_kind.wipe, .leave */
int nvme_wipe(void *device, bool begin);
int nvme_leave(void *device, bool begin);

/* nvme_subsystem.c */
/* Join the subsystem that the settings name, or one of its own.  0, or -1 after a message. */
int nvme_subsystem_join(nvme *n, const device_settings *s);
void nvme_subsystem_part(nvme *n);
/* Several controllers may have it: its namespaces. */
bool nvme_is_shared(const nvme *n);
/* Nothing had been kept in any of its stores. */
bool nvme_subsystem_is_pristine(const nvme_subsystem *b);
/* A controller, where it is one of several, has work of another one's turn. */
void nvme_subsystem_wake(const nvme *n);
/* nvme_access_reap() of another controller. */
bool nvme_subsystem_reap(nvme *o);
/* Accesses of before, of any of its controllers, that are not over. */
bool nvme_subsystem_quiet(nvme *n);
/* A controller of it; NULL: there is none. */
nvme *nvme_subsystem_find(const nvme *n, uint32_t id);
/* A namespace is, or is not, attached to a controller of the subsystem. */
void nvme_subsystem_attach(nvme *n, uint32_t nsid, bool attached);
/* It can be detached from `count` more of them. */
bool nvme_subsystem_has_place(const nvme *n, uint32_t count);
/* Attached as by the box's owner: what was detached from this controller. */
void nvme_subsystem_attach_all(nvme *n);
/* As they are kept: once the layout is known. */
void nvme_subsystem_attachments(nvme *n);
/* What of the reservations persists: read at the start, and its text.  0, or -1 after a message. */
int nvme_subsystem_read(nvme_subsystem *b);
char *nvme_subsystem_text(const nvme_subsystem *b); /* NULL: no memory; freed by the caller */

/* nvme_reserve.c */
/* The status of an I/O command, or of an attachment, that a reservation forbids its host; else
   NVME_SUCCESS. */
uint16_t nvme_reserve_check(const nvme *n, const nvme_command *c);
uint16_t nvme_reserve_register(nvme *n, nvme_command *c);
uint16_t nvme_reserve_report(nvme *n, nvme_command *c);
uint16_t nvme_reserve_acquire(nvme *n, nvme_command *c);
uint16_t nvme_reserve_release(nvme *n, nvme_command *c);
/* The command changed what is kept: it is over once that is. */
void nvme_reserve_settle(nvme *n, nvme_command *c, uint16_t status);
/* The subsystem has changed. */
void nvme_reserve_changed(const nvme *n);
/* Features 81h to 83h. */
bool nvme_reserve_is_feature(const nvme *n, unsigned id);
uint16_t nvme_reserve_get(nvme *n, nvme_command *c);
uint16_t nvme_reserve_set(nvme *n, nvme_command *c);
/* Log page 80h. */
void nvme_reserve_log(const nvme *n, uint8_t *page);
void nvme_reserve_log_read(nvme *n);
/* A reset of the controller: it serves a host without an identifier, another one than before. */
void nvme_reserve_reset(nvme *n);
/* The lease is over: registrations that came by this controller alone go; all: every one. */
void nvme_reserve_leave(nvme *n, bool all);
/* Go on with what waits; true when something was done. */
bool nvme_reserve_work(nvme *n);
/* What was changed up to this version is in the file: NVME_SUCCESS; not yet: NVME_PENDING; it could
   not be: NVME_INTERNAL_ERROR. */
uint16_t nvme_reserve_kept(const nvme *n, uint64_t version);
/* A write of the file is over, or never began. */
void nvme_reserve_written(nvme *n, const nvme_access *a);

/* nvme_layout.c */
/* What a file says, up to room - 1 bytes of it, and a zero.  0, or -1 with errno; ENOENT: there is
   none. */
int nvme_read_text(const char *path, char *text, size_t room);
/* What is kept beside the medium, or as the box's owner gave it.  0, or -1: no memory. */
int nvme_layout_open(nvme *n, const device_settings *s);
/* As the box's owner gave it: all are there, whole, and attached. */
void nvme_layout_factory(const nvme *n, nvme_layout *to);
/* Make layout.next the layout, durably; then then() is called, without an access when nothing had
   to be written. */
void nvme_layout_keep(nvme *n, nvme_command *c, nvme_then *then);
/* It is durable. */
void nvme_layout_take(nvme *n);
/* It may be durable, or the one before: reported, and written again by the next change. */
void nvme_layout_unsure(nvme *n);

/* nvme_namespace.c */
/* Its turn to change the layout is over, or never came. */
void nvme_layout_leave(nvme *n, nvme_command *c);
/* Whose turn it is can go on: what it has to itself is quiet.  True when something was done. */
bool nvme_layout_work(nvme *n);
nvme_ns *nvme_active(nvme *n, uint32_t nsid);         /* NULL: it is not attached, or not there */
uint16_t nvme_inactive(const nvme *n, uint32_t nsid); /* the status of a command that names it */
uint64_t nvme_blocks(const nvme_ns *s);
void nvme_uuid(const nvme *n, uint64_t index, uint8_t uuid[16]);
/* The CNS values that concern namespaces.  NVME_SUCCESS: the page is filled. */
uint16_t nvme_identify_namespaces(nvme *n, const nvme_command *c, uint8_t *page);
uint16_t nvme_management(nvme *n, nvme_command *c);
uint16_t nvme_attachment(nvme *n, nvme_command *c);
uint16_t nvme_format(nvme *n, nvme_command *c);

/* nvme_log.c */
void nvme_log_reset(nvme *n);
void nvme_log_error(nvme *n, const nvme_command *c);
void nvme_log_page(nvme *n, unsigned id, uint8_t *page, uint32_t *size); /* size 0: no such page */
void nvme_event(nvme *n, unsigned type, unsigned info, unsigned page);
void nvme_event_read(nvme *n, unsigned page); /* its log page was read */
void nvme_namespace_changed(nvme *n, nvme_ns *s);
uint16_t nvme_event_request(nvme *n, nvme_command *c);
uint16_t nvme_get_features(nvme *n, nvme_command *c);
uint16_t nvme_set_features(nvme *n, nvme_command *c);
void nvme_features_reset(nvme *n);

/* nvme_admin.c, nvme_io.c */
typedef struct nvme_operation {
    uint8_t opcode;
    uint32_t effects; /* as the log page of supported commands has them */
    /* NVME_PENDING, or the status with which the command is over */
    uint16_t (*run)(nvme *n, nvme_command *c);
} nvme_operation;
const nvme_operation *nvme_admin_operations(const nvme *n, size_t *count);
const nvme_operation *nvme_io_operations(const nvme *n, size_t *count);
uint16_t nvme_admin_command(nvme *n, nvme_command *c);
uint16_t nvme_io_command(nvme *n, nvme_command *c);
void nvme_admin_done(nvme *n, nvme_command *c); /* nvme_transfer()'s ready: success */

#endif /* NVME_MODEL_H_INCLUDED */
