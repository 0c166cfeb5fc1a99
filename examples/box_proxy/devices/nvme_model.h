/* nvme_model.h - the NVMe controller's object, and what its parts offer one another
   SPDX-License-Identifier: MIT

   Names of registers and fields are those of the NVM Express Base Specification 1.4.

   CONTENTS   1 Sizes   2 Status codes   3 Store   4 Namespaces   5 Transfers and commands
              6 Queues   7 The controller   8 Parts */
#ifndef NVME_MODEL_H_INCLUDED
#define NVME_MODEL_H_INCLUDED

#include "function.h"
#include "nvme.h"

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

    NVME_NAMESPACES = 32,
    NVME_CONTROLLER = 1 /* its identifier: there is one in the subsystem */
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
    NVME_PRP_OFFSET = 0x013,
    NVME_LBA_RANGE = 0x080,
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
    NVME_MORE = 0x2000, /* the error log tells more */
    NVME_DNR = 0x4000,
    NVME_PENDING = 0xffff /* of a command function: it completes by itself later */
};

#define NVME_NO_NAME 0xffffffffu

enum { NVME_DPTR_PRP = 0, NVME_DPTR_RESERVED = 3 }; /* PSDT of dword 0; else SGLs */

enum { NVME_CSTS_RDY = 0x1, NVME_CSTS_CFS = 0x2 };

/* ==== 3  Store ================================================================================ */

typedef struct nvme_store {
    int fd;         /* -1: in memory */
    uint8_t *bytes; /* in memory */
    uint64_t size;
    uint64_t medium; /* of the file and its size; 0: in memory */
    bool pristine;   /* opened with nothing in it */
} nvme_store;

/* 0, or -1 after a message. */
int nvme_store_open(nvme_store *s, const char *path, uint64_t size);
void nvme_store_close(nvme_store *s);
/* The range lies within the store.  0 or -1. */
int nvme_store_read(nvme_store *s, uint64_t at, uint8_t *to, size_t len);
int nvme_store_write(nvme_store *s, uint64_t at, const uint8_t *from, size_t len);
/* deallocate: the space is given back, if the file system can; else it stays taken. */
int nvme_store_zero(nvme_store *s, uint64_t at, uint64_t len, bool deallocate);
/* A hint: the data may go, and read as 0 then.  What the file system cannot give back stays, and of
   memory what is more than *memory_bytes, which is made less by what went.  0 or -1. */
int nvme_store_deallocate(nvme_store *s, uint64_t at, uint64_t len, uint64_t *memory_bytes);
/* All that was written is durable when it returns 0. */
int nvme_store_sync(nvme_store *s);

/* ==== 4  Namespaces =========================================================================== */

typedef struct nvme_ns {
    nvme_store store;
    uint64_t bytes; /* of the store that the namespace has */
    uint32_t block_log2;
    uint32_t recovery;   /* the feature Error Recovery */
    uint32_t generation; /* of namespaces with its identifier */
    bool allocated, attached;
    bool changed; /* since the list of changed ones was read */
} nvme_ns;

/* ==== 5  Transfers and commands =============================================================== */

typedef struct nvme nvme;

typedef struct nvme_command nvme_command;
struct nvme_command {
    nvme_command *next; /* in one list at most */
    bool used;
    bool event;   /* waits for an asynchronous event */
    bool posting; /* waits for room in its completion queue */
    bool to_host; /* direction of its data */
    uint8_t opcode, dptr;
    uint16_t sqid, cqid, cid, status;
    uint32_t nsid, result;
    nvme_ns *ns; /* an I/O command's; NULL: of all namespaces */
    uint32_t dw[16];
    uint8_t *buffer;
    uint32_t bytes;  /* in buffer */
    uint64_t offset; /* in the store */
    fn_fetch fetch;
    void (*ready)(nvme *n, nvme_command *c); /* its data has been moved */
    fn_range *ranges;                        /* where its data is in the host ... */
    uint32_t range_count, range_room;
    uint32_t mapped;  /* ... for so many bytes yet */
    uint64_t segment; /* of its SGL: what is still to be read of it */
    uint32_t segment_left, descriptors;
    bool segment_last;
    uint8_t list[NVME_PAGE_BYTES]; /* of PRPs or of SGL descriptors */
};

typedef struct nvme_list {
    nvme_command *head, **tail;
} nvme_list;

/* ==== 6  Queues =============================================================================== */

typedef struct nvme_sq {
    bool valid, busy; /* busy: entries are being fetched */
    uint16_t cqid, head, tail, count;
    uint32_t size;
    uint64_t base;
    fn_fetch fetch;
    uint8_t entries[NVME_BATCH * NVME_SQE_BYTES];
} nvme_sq;

typedef struct nvme_cq {
    bool valid, interrupts;
    uint8_t phase;
    uint16_t vector, head, tail;
    uint32_t size, users; /* submission queues that complete here */
    uint64_t base;
    nvme_list posting;
} nvme_cq;

/* ==== 7  The controller ======================================================================= */

#define NVME_COUNTERS(X)                                                                           \
    X(register_reads)                                                                              \
    X(register_writes)                                                                             \
    X(commands)                                                                                    \
    X(commands_failed)                                                                             \
    X(sgl_commands)                                                                                \
    X(fatal)                                                                                       \
    X(controller_resets)                                                                           \
    X(function_resets)                                                                             \
    X(store_errors)

typedef struct nvme_error { /* one entry of the error log */
    uint64_t number, lba;
    uint16_t sqid, cid, status, parameter;
    uint32_t nsid;
} nvme_error;

enum { /* what stands in features[]; the identifiers below 0x10 */
       NVME_FEATURES = 0x10,
       NVME_EVENTS = 8 /* reported later, when a request for them comes */
};

struct nvme {
    fn fn;
    uint64_t identity;
    char serial[21];
    nvme_ns ns[NVME_NAMESPACES]; /* the first has identifier 1 */
    uint32_t ns_count;

    /* registers */
    uint32_t intms, cc, csts, aqa;
    uint64_t asq, acq;

    /* queues and commands */
    nvme_sq sq[NVME_QUEUES];
    nvme_cq cq[NVME_QUEUES];
    unsigned next_sq, queue_limit; /* all queues that exist have lower ids */
    nvme_command *commands;        /* admin ones first */
    nvme_list free[2];             /* admin, I/O */
    unsigned free_count[2];
    uint32_t names[NVME_ADMIN_COMMANDS + NVME_IO_COMMANDS]; /* sqid and cid of each in use */
    nvme_list sending;                                      /* data goes to the host */
    nvme_list starving;                                     /* no buffer yet */
    uint64_t buffer_bytes;

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

    bool broken; /* the medium of a store failed, and nothing has shown since that it does not */
    struct {
        uint32_t ns; /* index of the namespace */
        uint64_t at; /* in its store */
        bool erased; /* it is being read back */
    } wipe;

#define NVME_FIELD(name) uint64_t name;
    struct {
        NVME_COUNTERS(NVME_FIELD)
    } count;
#undef NVME_FIELD
};

/* ==== 8  Parts ================================================================================ */

uint64_t nvme_le64(const uint8_t *p);
void nvme_put16(uint8_t *p, uint32_t v);
/* A mixer whose every step can be undone: no two numbers become one. */
uint64_t nvme_mix(uint64_t z);
void nvme_put64(uint8_t *p, uint64_t v);

/* nvme_queue.c */
void nvme_list_clear(nvme_list *l);
void nvme_list_append(nvme_list *l, nvme_command *c);
nvme_command *nvme_list_take(nvme_list *l); /* NULL: it is empty */
bool nvme_list_remove(nvme_list *l, nvme_command *c);
void nvme_queues_clear(nvme *n); /* nothing runs, no queue exists */
void nvme_cq_open(nvme *n, unsigned id, uint64_t base, uint32_t size, unsigned vector, bool ints);
void nvme_sq_open(nvme *n, unsigned id, uint64_t base, uint32_t size, unsigned cqid);
void nvme_sq_delete(nvme *n, unsigned id);
void nvme_cq_delete(nvme *n, unsigned id);
void nvme_doorbell(nvme *n, uint32_t offset, uint32_t value);
void nvme_finish(nvme *n, nvme_command *c, uint16_t status);
/* Abort a command of another; false: there is none that could be. */
bool nvme_abort(nvme *n, const nvme_command *self, unsigned sqid, unsigned cid);
bool nvme_buffer(nvme *n, nvme_command *c, uint32_t bytes); /* false: none */
void nvme_fatal(nvme *n);
void nvme_pump(nvme *n); /* do all that can be done now */

/* nvme_transfer.c */
/* Move `bytes` between the command's buffer and the host, then call ready().  Without a buffer one
   is made, zeroed.  Status of the command function: NVME_PENDING or an error. */
uint16_t nvme_transfer(nvme *n, nvme_command *c, bool to_host, uint32_t bytes,
                       void (*ready)(nvme *n, nvme_command *c));
/* Send data of commands to the host, a page of each in turn.  True when any was sent. */
bool nvme_transfer_send(nvme *n);

/* nvme.c: a store failed with this errno.  Counted, and told when it is the medium that fails. */
void nvme_failed(nvme *n, int error);

/* nvme_wipe.c: device_kind.wipe */
int nvme_wipe(void *device, bool begin);

/* nvme_namespace.c */
void nvme_namespaces_reset(nvme *n); /* all that the box has are there, whole, and attached */
nvme_ns *nvme_active(nvme *n, uint32_t nsid);         /* NULL: it is not attached, or not there */
uint16_t nvme_inactive(const nvme *n, uint32_t nsid); /* the status of a command that names it */
uint64_t nvme_blocks(const nvme_ns *s);
void nvme_uuid(const nvme *n, uint64_t index, uint8_t uuid[16]);
/* Of all attached namespaces.  0 or -1. */
int nvme_sync(nvme *n);
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
const nvme_operation *nvme_admin_operations(size_t *count);
const nvme_operation *nvme_io_operations(size_t *count);
uint16_t nvme_admin_command(nvme *n, nvme_command *c);
uint16_t nvme_io_command(nvme *n, nvme_command *c);
void nvme_admin_done(nvme *n, nvme_command *c); /* nvme_transfer()'s ready: success */

#endif /* NVME_MODEL_H_INCLUDED */
