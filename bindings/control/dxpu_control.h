/* dxpu_control.h - what drives a proxy: attach, detach, status, plug, on a byte stream
   SPDX-License-Identifier: MIT

   A proxy carries TLPs over channels (dxpu.h).  Over a stream such as TCP, a command or a manager
   orders which device fills which slot, and the proxy reports its slots and devices to the manager.
   This header encodes and decodes those messages: no I/O, no allocation, no clock.  The rules, M-1
   ff., are in spec/control.md.

   In exactly one source file, after dxpu.h's own implementation or beside it:
       #define DXPU_CONTROL_IMPLEMENTATION
       #include "bindings/control/dxpu_control.h"

   Receiving: bytes arrive as the network cuts them, messages go out whole.

       static uint8_t room[DXPU_CONTROL_HEADER_BYTES + 4096];
       dxpu_control_stream s;
       dxpu_control_stream_init(&s, room, sizeof room);
       ...
       while ((rc = dxpu_control_take(&s, &bytes, &frame)) == DXPU_OK) {
           rc = dxpu_control_decode(&frame, &message);
           ...                                        answer, with an error when rc is not DXPU_OK
       }
       if (rc != DXPU_E_AGAIN) close the connection;  a stream cannot find its place again

   CONTENTS: 1 Configuration  2 Words  3 Messages  4 Streams  5 Encode, decode  6 Loads and stores
             7 Bodies  8 Frames
*/
#ifndef DXPU_CONTROL_H_INCLUDED
#define DXPU_CONTROL_H_INCLUDED

#include "dxpu.h"

/* ==== 1  Configuration ======================================================================== */

#define DXPU_CONTROL_VERSION 1 /* the message version this header speaks */

enum {
    DXPU_CONTROL_HEADER_BYTES = 16,
    DXPU_CONTROL_BODY_MAX = 65536, /* of any message; a receiver may have less room (M-4) */
    DXPU_CONTROL_TEXT_MAX = 255,
    DXPU_CONTROL_PICTURE_MAX = 1 << 26,  /* bytes of a whole picture (M-23) */
    DXPU_CONTROL_PIECE_MAX = 65536 - 16, /* of it in one message */
    DXPU_CONTROL_PATHS_MAX = 8,          /* addresses of a box in an attach or a register */
    DXPU_CONTROL_KEY_BYTES = 32,         /* a public key (security.md) */
    DXPU_CONTROL_SLOT_BYTES = 168,       /* of one slot in a status */
    DXPU_CONTROL_DEVICE_BYTES = 196,     /* of one slot in a register */
    DXPU_CONTROL_DEVICE_BYTES_MIN = 104  /* of a proxy that says no port_offset */
};

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 2  Words ================================================================================ */

/* Message types (M-10).  Those from REGISTER on are a manager's; DXPU_CONTROL_IGNORABLE is set in
   those that a receiver may drop when it does not know them. */
#define DXPU_CONTROL_TYPES(X)                                                                      \
    X(HELLO, 0x0001, "hello")                                                                      \
    X(ERROR, 0x0002, "error")                                                                      \
    X(DONE, 0x0003, "done")                                                                        \
    X(ATTACH, 0x0010, "attach")                                                                    \
    X(DETACH, 0x0011, "detach")                                                                    \
    X(ASK, 0x0012, "ask")                                                                          \
    X(STATUS, 0x0013, "status")                                                                    \
    X(SCREENSHOT, 0x0014, "screenshot")                                                            \
    X(PICTURE, 0x0015, "picture")                                                                  \
    X(PLUG, 0x0016, "plug")                                                                        \
    X(REGISTER, 0x0020, "register")                                                                \
    X(NODE, 0x0021, "node")                                                                        \
    X(BIND, 0x0022, "bind")                                                                        \
    X(UNBIND, 0x0023, "unbind")                                                                    \
    X(DRAIN, 0x0024, "drain")                                                                      \
    X(RESET, 0x0025, "reset")                                                                      \
    X(HEARTBEAT, 0x0026, "heartbeat")                                                              \
    X(ALARM, 0x0027, "alarm")                                                                      \
    X(DIRECT, 0x0028, "direct")
#define DXPUI_CTL_TYPE(name, value, text) DXPU_CONTROL_##name = (value),
enum { DXPU_CONTROL_TYPES(DXPUI_CTL_TYPE) DXPU_CONTROL_IGNORABLE = 0x8000 };
#undef DXPUI_CTL_TYPE

/* Header flags (M-5). */
enum { DXPU_CONTROL_FLAGS_MUST = 0xf0, DXPU_CONTROL_FLAGS_IGNORABLE = 0x0f };

/* The sender's role (hello).  Other values are allowed and mean nothing here. */
enum {
    DXPU_CONTROL_ROLE_HOST = 1,
    DXPU_CONTROL_ROLE_BOX = 2,
    DXPU_CONTROL_ROLE_MANAGER = 3,
    DXPU_CONTROL_ROLE_COMMAND = 4
};

/* State of a slot (M-20). */
#define DXPU_CONTROL_STATES(X)                                                                     \
    X(EMPTY, 0, "empty")     /* host: nothing attached; box: not lent */                           \
    X(DIALING, 1, "dialing") /* host: a box's slot is named, there is no channel yet */            \
    X(UP, 2, "up")           /* the channel carries TLPs */                                        \
    X(CLOSING, 3, "closing") /* detached, what was sent is still delivered */                      \
    X(HELD, 4, "held")       /* box: lent, but its host has no channel now */                      \
    X(WIPING, 5, "wiping")   /* box: the lease is over, its data are being wiped */                \
    X(WIPED, 6, "wiped")     /* box: not lent, and wiped since, verified */                        \
    X(KEPT, 7, "kept")       /* box: the lease is over, its data are kept */                       \
    X(UNWIPED, 8, "unwiped") /* box: the lease is over, the wipe failed or did not verify */
#define DXPUI_CTL_STATE(name, value, text) DXPU_CONTROL_SLOT_##name = (value),
enum { DXPU_CONTROL_STATES(DXPUI_CTL_STATE) DXPU_CONTROL_SLOT_END };
#undef DXPUI_CTL_STATE

/* Health of a slot's device (register, M-41). */
enum {
    DXPU_CONTROL_HEALTH_NONE = 0, /* there is none */
    DXPU_CONTROL_HEALTH_GOOD = 1,
    DXPU_CONTROL_HEALTH_BROKEN = 2
};

/* Does the device of a slot hold its data over a reset (M-90)?  A receiver treats UNKNOWN as
   PERSISTENT. */
enum {
    DXPU_CONTROL_DATA_UNKNOWN = 0,
    DXPU_CONTROL_DATA_NONE = 1,
    DXPU_CONTROL_DATA_PERSISTENT = 2
};

/* What a host that dials a box has of it (M-160). */
enum {
    DXPU_CONTROL_REACH_UNKNOWN = 0, /* it does not say, or does not dial */
    DXPU_CONTROL_REACH_TRYING = 1,  /* it has not been without an answer for long enough to say */
    DXPU_CONTROL_REACH_SILENT = 2,  /* two attempts in a row, or more, had no answer */
    DXPU_CONTROL_REACH_REFUSED = 3, /* the box answers, and refuses the channel */
    DXPU_CONTROL_REACH_UP = 4       /* the channel is up */
};

/* Kinds of alarms.  An unknown kind counts as OTHER (M-49). */
#define DXPU_CONTROL_ALARMS(X)                                                                     \
    X(DEVICE, 1, "device")   /* an error that the device reports */                                \
    X(STORAGE, 2, "storage") /* the medium of its data */                                          \
    X(FENCED, 3, "fenced")   /* an open under an old or foreign epoch */                           \
    X(OTHER, 4, "other")
#define DXPUI_CTL_ALARM(name, value, text) DXPU_CONTROL_ALARM_##name = (value),
enum { DXPU_CONTROL_ALARMS(DXPUI_CTL_ALARM) DXPU_CONTROL_ALARM_END };
#undef DXPUI_CTL_ALARM

/* Why a request was refused (error), or a slot cannot be shown (status).  The text names the
   remedy. */
#define DXPU_CONTROL_CODES(X)                                                                      \
    X(NONE, 0, "none", "no refusal")                                                               \
    X(VERSION, 1, "version", "no common version of control messages; upgrade one side")            \
    X(TYPE, 2, "type", "this proxy does not know this request")                                    \
    X(MALFORMED, 3, "malformed", "the message is short, too long, or has a value out of range")    \
    X(MUST, 4, "must-understand", "the message needs something this proxy does not know")          \
    X(ORDER, 5, "order", "hello must be the first message, and sent once")                         \
    X(NO_SLOT, 6, "no-such-slot", "there is no such slot; status shows how many there are")        \
    X(BUSY, 7, "busy",                                                                             \
      "the slot has another device, is changing, or has another tenant's data; see status")        \
    X(CLOSING, 8, "closing", "the slot's last channel is still closing; ask again soon")           \
    X(EMPTY, 9, "empty", "the slot is empty")                                                      \
    X(EPOCH, 10, "epoch", "another lease epoch is attached to this slot")                          \
    X(TWICE, 11, "twice", "another slot of this host has that slot of the box")                    \
    X(ROLE, 12, "role", "another kind of proxy does this, or does it for its manager alone")       \
    X(STOPPING, 13, "stopping", "the proxy is shutting down")                                      \
    X(ADDRESS, 14, "address", "the host has no local address of this kind; see its --listen")      \
    X(NO_ROOM, 15, "no-room", "the device does not fit; the slot's note says what it needs")       \
    X(MEMORY, 16, "memory", "the proxy is out of memory")                                          \
    X(NO_SCREEN, 17, "no-screen", "the device in this slot is not a display")                      \
    X(DARK, 18, "dark", "the display shows nothing; its host has set no mode that it can show")    \
    X(GONE, 19, "gone", "a later screenshot replaced this one; ask again")                         \
    X(UNREADABLE, 20, "unreadable", "the device does not report its BARs; see its box's messages") \
    X(DRAINED, 21, "drained",                                                                      \
      "the slot accepts no new lease; end the drain, or bind another slot")                        \
    X(STATE, 22, "state", "the box cannot write its --state file; make room on its disk")          \
    X(KEY, 23, "key", "the other proxy's public key is not known here; name it, or see --peers")   \
    X(LENT, 24, "lent",                                                                            \
      "the slot is lent, or keeps a tenant's data; release it first, or use --force")              \
    X(DEVICE, 25, "device", "the box cannot make this device; see the box's messages")             \
    X(FIXED, 26, "fixed", "the box was started without --hot-plug")
#define DXPUI_CTL_CODE(name, value, word, text) DXPU_CONTROL_CODE_##name = (value),
enum { DXPU_CONTROL_CODES(DXPUI_CTL_CODE) DXPU_CONTROL_CODE_END };
#undef DXPUI_CTL_CODE

/* Names for people; "unknown" for a number that has none. */
DXPU_API const char *dxpu_control_type_name(unsigned type);
DXPU_API const char *dxpu_control_role_name(unsigned role);
DXPU_API const char *dxpu_control_state_name(unsigned state);
DXPU_API const char *dxpu_control_alarm_name(unsigned kind);
DXPU_API const char *dxpu_control_code_name(unsigned code); /* "busy": a word */
DXPU_API const char *dxpu_control_code_text(unsigned code); /* a sentence */

/* ==== 3  Messages ============================================================================= */

/* An address and port; family 0: none. */
typedef struct dxpu_control_address {
    uint8_t family; /* 0, 4 or 6 */
    uint16_t port;
    uint8_t ip[16]; /* as in the packet; IPv4 has 4 of them, the rest is 0 */
} dxpu_control_address;

/* The first message of each side. */
typedef struct dxpu_control_hello {
    uint8_t role;
    uint8_t version_min, version_max; /* 1 <= min <= max */
    uint32_t node;                    /* 0: none */
    uint16_t slots;                   /* 0: none */
    dxpu_bytes name;                  /* program and version, printable ASCII, up to 255 */
} dxpu_control_hello;

/* Attach a box's slot to a host's slot.  Answered by done or error. */
typedef struct dxpu_control_attach {
    uint16_t slot;     /* the host's, 1.. */
    uint16_t box_slot; /* 1.. */
    uint64_t epoch;    /* of the lease, 1.. */
    dxpu_control_address box;
    uint8_t more; /* further addresses of the box, each a path of the channel */
    dxpu_control_address path[DXPU_CONTROL_PATHS_MAX - 1];
    bool keyed;                          /* key is there (M-80) */
    uint8_t key[DXPU_CONTROL_KEY_BYTES]; /* the box's public one, not all 0 */
} dxpu_control_attach;

/* Detach the device of a host's slot.  Answered by done or error. */
typedef struct dxpu_control_detach {
    uint16_t slot;
    uint8_t reason; /* DXPU_REASON_*: sent to the box */
    uint64_t epoch; /* only if this lease is attached; 0: whichever is */
} dxpu_control_detach;

/* The request was accepted; the slot is in this state now. */
typedef struct dxpu_control_done {
    uint16_t slot;
    uint8_t state;
    uint64_t epoch; /* attached now; 0: none */
} dxpu_control_done;

/* Ask for the status of slots. */
typedef struct dxpu_control_ask {
    uint16_t first; /* 1.. */
    uint16_t count; /* 0: as many as the answer holds */
} dxpu_control_ask;

typedef struct dxpu_control_status {
    uint8_t role;
    uint32_t node;
    uint16_t total; /* slots there are */
    uint16_t first; /* of the first one below */
    uint16_t count; /* slots below */
    uint16_t
        entry_bytes; /* of each, at least DXPU_CONTROL_SLOT_BYTES; a later version's are longer */
    dxpu_bytes entries; /* count * entry_bytes, for dxpu_control_slot_next() */
} dxpu_control_status;

/* Ask for what a box's display shows, a PNG, piece by piece (M-22). */
typedef struct dxpu_control_screenshot {
    uint16_t slot;   /* 1.. */
    uint32_t offset; /* 0: as it is now; else the rest of what the first piece began */
} dxpu_control_screenshot;

/* A piece of it. */
typedef struct dxpu_control_picture {
    uint16_t slot;
    uint32_t total;  /* bytes of the whole PNG, 1..DXPU_CONTROL_PICTURE_MAX */
    uint32_t offset; /* of this piece */
    dxpu_bytes png;  /* 1..DXPU_CONTROL_PIECE_MAX bytes */
} dxpu_control_picture;

/* What a plug does with the device of a box's slot. */
enum { DXPU_CONTROL_INSERT = 1, DXPU_CONTROL_REMOVE = 2, DXPU_CONTROL_REPLACE = 3 };

/* Put a device into a box's slot, or pull it out.  Answered by done or error. */
typedef struct dxpu_control_plug {
    uint16_t slot;     /* 1.. */
    uint8_t how;       /* DXPU_CONTROL_INSERT to _REPLACE */
    bool force;        /* also out of a slot that is lent */
    dxpu_bytes device; /* the new one, KIND[,KEY=VALUE]..., up to 255; of remove none */
} dxpu_control_plug;

/* A proxy reports to a manager what it is and has, slot by slot.  Answered by node or error. */
typedef struct dxpu_control_register {
    uint8_t role;          /* DXPU_CONTROL_ROLE_HOST or _BOX */
    uint16_t total;        /* slots there are */
    uint16_t first, count; /* of them below; more in further messages (M-40) */
    uint16_t entry_bytes;  /* of each, at least DXPU_CONTROL_DEVICE_BYTES_MIN */
    uint32_t node;         /* its number until now; 0: none */
    uint64_t instance;     /* 1.., chosen at random at each start of the proxy */
    uint8_t identity[16];  /* of the proxy, kept over restarts; not all 0 */
    dxpu_bytes entries;    /* count * entry_bytes, for dxpu_control_device_next() */
    uint8_t paths;         /* of a box: where hosts reach it */
    dxpu_control_address path[DXPU_CONTROL_PATHS_MAX];
    dxpu_bytes name; /* for people, printable ASCII, up to 255 */
} dxpu_control_register;

/* Which node it is from now on. */
typedef struct dxpu_control_node {
    uint32_t node;         /* 1.. */
    uint32_t heartbeat_ms; /* 1..: heartbeat interval */
    uint64_t term;         /* of the manager: higher than its predecessors' (M-144); 0: unknown */
    bool directs;          /* it orders which slots' devices may reach others directly (M-180) */
} dxpu_control_node;

/* A box's slot is lent.  Answered by done or error; so are the next three. */
typedef struct dxpu_control_bind {
    uint16_t slot;                       /* the box's, 1.. */
    uint16_t host_slot;                  /* 1.. */
    uint32_t host_node;                  /* 1.. */
    uint64_t epoch;                      /* of the lease, 1.. */
    bool keyed;                          /* key is there (M-80) */
    uint8_t key[DXPU_CONTROL_KEY_BYTES]; /* the host's public one, not all 0 */
    uint64_t lease, tenant;              /* which lease, and whose (M-174); lease 0: not said */
} dxpu_control_bind;

typedef struct dxpu_control_unbind {
    uint16_t slot;  /* the box's, 1.. */
    bool keep;      /* the data stay for the tenant; else they are wiped */
    uint64_t epoch; /* of the lease that ends, 1.. */
} dxpu_control_unbind;

/* Take a slot out of service (no new lease), or return it. */
typedef struct dxpu_control_drain {
    uint16_t slot; /* 0: all */
    bool on;
} dxpu_control_drain;

/* Requests of a slot's device for others of its host pass by the host (spec/p2p.md), or not. */
typedef struct dxpu_control_direct {
    uint16_t slot; /* 1.. */
    bool on;
} dxpu_control_direct;

/* Reset the device of a box's slot. */
typedef struct dxpu_control_reset {
    uint16_t slot;  /* 1.. */
    uint64_t epoch; /* only while it is lent under this epoch; 0: only while not lent */
} dxpu_control_reset;

/* A proxy is running.  The manager answers with the same. */
typedef struct dxpu_control_heartbeat {
    uint64_t instance; /* 1.., as registered */
    uint32_t changes;  /* grows when what was registered has changed */
} dxpu_control_heartbeat;

/* A proxy reports what an operator should look at.  Answered by done or error. */
typedef struct dxpu_control_alarm {
    uint16_t slot;   /* 0: about no slot */
    uint8_t kind;    /* DXPU_CONTROL_ALARM_*, 1.. */
    uint64_t epoch;  /* of the lease that it happened in; 0: none */
    dxpu_bytes text; /* as an error's */
} dxpu_control_alarm;

/* One slot in a register. */
typedef struct dxpu_control_device {
    uint16_t number;            /* 1.. */
    uint8_t state;              /* DXPU_CONTROL_SLOT_* */
    uint8_t health;             /* DXPU_CONTROL_HEALTH_* */
    uint16_t vendor, device;    /* PCI IDs; 0 when there is no device */
    uint32_t class_code;        /* 24 bits */
    uint32_t group;             /* NVLink or PCIe group within the box; 0: none */
    uint64_t epoch, epoch_seen; /* of the lease now, 0: none; the highest ever */
    uint32_t peer_node;         /* the other end's, 0: none */
    uint16_t peer_slot;
    uint16_t code; /* DXPU_CONTROL_CODE_*: why an up device is not shown to its guest */
    char model[32], serial[32]; /* zero-terminated, printable */
    uint16_t port_offset; /* of a box: added to the port of each path of the register (M-73) */
    uint8_t data;         /* DXPU_CONTROL_DATA_* (M-90) */
    uint8_t reach;        /* of a host: DXPU_CONTROL_REACH_* (M-160) */
    uint64_t medium;      /* of a box: on which medium the data are (M-104); 0: unknown */
    char attributes[64];  /* of a box: what distinguishes it within its model (M-155) */
    uint64_t lease;       /* of a box: as the bind of its lease said (M-174); 0: unknown */
    uint64_t tenant;
} dxpu_control_device;

/* A request was refused, or the connection is about to be closed. */
typedef struct dxpu_control_error {
    uint16_t code; /* DXPU_CONTROL_CODE_* */
    uint16_t slot; /* 0: about no slot */
    dxpu_bytes text;
} dxpu_control_error;

/* One slot in a status.  Counters are those of all its incarnations. */
typedef struct dxpu_control_slot {
    uint16_t number;
    uint8_t state;
    uint8_t reason; /* DXPU_REASON_* of the last end or refused attempt */
    int16_t error;  /* DXPU_E_* of it, 0: none yet */
    uint16_t code;  /* DXPU_CONTROL_CODE_*: why an up slot is not shown */
    uint16_t peer_slot;
    uint32_t peer_node; /* 0: not known */
    dxpu_control_address peer;
    uint64_t epoch;                           /* attached or lent now; 0: none */
    uint64_t epoch_seen;                      /* box: highest ever */
    uint32_t attempts;                        /* host: incarnations in a row that did not come up */
    uint32_t incarnations;                    /* that did, ever */
    uint32_t msis_refused;                    /* host: interrupts its guest did not program */
    uint64_t to_device, from_device, dropped; /* TLPs */
    char device[16];                          /* box: what it is; zero-terminated, printable */
    char note[64];                            /* a remark for people, as device */
} dxpu_control_slot;

/* Any of them.  Views point into what was decoded, and are valid as long as that. */
typedef struct dxpu_control {
    uint16_t type;    /* DXPU_CONTROL_HELLO.. */
    uint32_t request; /* of a request chosen by its sender, the answer repeats it */
    union {
        dxpu_control_hello hello;
        dxpu_control_attach attach;
        dxpu_control_detach detach;
        dxpu_control_done done;
        dxpu_control_ask ask;
        dxpu_control_status status;
        dxpu_control_screenshot screenshot;
        dxpu_control_picture picture;
        dxpu_control_plug plug;
        dxpu_control_register reg;
        dxpu_control_node node;
        dxpu_control_bind bind;
        dxpu_control_unbind unbind;
        dxpu_control_drain drain;
        dxpu_control_reset reset;
        dxpu_control_direct direct;
        dxpu_control_heartbeat heartbeat;
        dxpu_control_alarm alarm;
        dxpu_control_error error;
    } u;
} dxpu_control;

/* ==== 4  Streams ============================================================================== */

/* A message cut out of the stream, its body not yet looked at. */
typedef struct dxpu_control_frame {
    uint8_t version, flags;
    uint16_t type;
    uint32_t request;
    dxpu_bytes body;
} dxpu_control_frame;

/* The receiving end of one connection; not API but for allocating it. */
typedef struct dxpu_control_stream {
    uint8_t *room;
    size_t cap, len;
    int error; /* what ended it; sticky */
    bool taken;
} dxpu_control_stream;

/* room[cap] stays the caller's; cap is DXPU_CONTROL_HEADER_BYTES and the longest body to be
   accepted.  DXPU_OK or E_ARG (cap below the header's). */
DXPU_API int dxpu_control_stream_init(dxpu_control_stream *s, uint8_t *room, size_t cap);
/* Take bytes from *in, which is advanced, until a message is complete.
   out  its body points into room and is valid until the next call
   DXPU_OK; E_AGAIN: all of *in was taken and more is needed; or the stream is over, now and in
   every later call: E_MAGIC (another protocol), E_VERSION, E_LENGTH (longer than room).  For the
   last two *out has what the header says and no body, so that they can be answered.  Cost: one copy
   of the bytes. */
DXPU_API int dxpu_control_take(dxpu_control_stream *s, dxpu_bytes *in, dxpu_control_frame *out);

/* ==== 5  Encode, decode ======================================================================= */

/* Read a frame's body.  DXPU_OK; E_KIND (a type not known here: answer with an error, or drop it
   when DXPU_CONTROL_IGNORABLE is set); E_RSVD (a must-understand flag); E_SHORT (the body ends
   early); E_RECORD (a value out of range).  What a body has beyond its fields is ignored (M-6). */
DXPU_API int dxpu_control_decode(const dxpu_control_frame *f, dxpu_control *out);
/* Write a message, header included.  DXPU_OK and *len; E_ARG (a value that decode would refuse, or
   a type not known) or E_ROOM (cap is too small), out then holds anything. */
DXPU_API int dxpu_control_encode(const dxpu_control *m, uint8_t *out, size_t cap, size_t *len);

/* The next slot of a status: *entries begins as a copy of its field and is advanced.  False after
   the last. */
DXPU_API bool dxpu_control_slot_next(const dxpu_control_status *st, dxpu_bytes *entries,
                                     dxpu_control_slot *out);
/* Write one entry; entries side by side are the `entries` of a status. */
DXPU_API void dxpu_control_slot_encode(const dxpu_control_slot *s,
                                       uint8_t out[DXPU_CONTROL_SLOT_BYTES]);

/* The same for the slots of a register. */
DXPU_API bool dxpu_control_device_next(const dxpu_control_register *r, dxpu_bytes *entries,
                                       dxpu_control_device *out);
DXPU_API void dxpu_control_device_encode(const dxpu_control_device *d,
                                         uint8_t out[DXPU_CONTROL_DEVICE_BYTES]);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_CONTROL_H_INCLUDED */

#if defined(DXPU_CONTROL_IMPLEMENTATION) && !defined(DXPU_CONTROL_IMPLEMENTED)
#define DXPU_CONTROL_IMPLEMENTED

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 6  Loads and stores ===================================================================== */

enum { /* header, M-1; bytes from the start of the message */
       DXPUI_CTL_VERSION = 4,
       DXPUI_CTL_FLAGS = 5,
       DXPUI_CTL_TYPE_AT = 6,
       DXPUI_CTL_LENGTH = 8,
       DXPUI_CTL_REQUEST = 12
};
enum { /* fixed part of each body */
       DXPUI_CTL_HELLO_BYTES = 13,
       DXPUI_CTL_ERROR_BYTES = 5,
       DXPUI_CTL_DONE_BYTES = 12,
       DXPUI_CTL_ATTACH_BYTES = 32,
       DXPUI_CTL_DETACH_BYTES = 12,
       DXPUI_CTL_ASK_BYTES = 4,
       DXPUI_CTL_STATUS_BYTES = 16,
       DXPUI_CTL_SCREENSHOT_BYTES = 8,
       DXPUI_CTL_PICTURE_BYTES = 16,
       DXPUI_CTL_PLUG_BYTES = 5,
       DXPUI_CTL_REGISTER_BYTES = 40,
       DXPUI_CTL_NODE_BYTES = 8,
       DXPUI_CTL_TERM_BYTES = 8,
       DXPUI_CTL_DIRECTS_BYTES = 1,
       DXPUI_CTL_BIND_BYTES = 16,
       DXPUI_CTL_LEASE_BYTES = 16,
       DXPUI_CTL_UNBIND_BYTES = 12,
       DXPUI_CTL_DRAIN_BYTES = 4,
       DXPUI_CTL_DIRECT_BYTES = 4,
       DXPUI_CTL_RESET_BYTES = 12,
       DXPUI_CTL_HEARTBEAT_BYTES = 12,
       DXPUI_CTL_ALARM_BYTES = 13
};

static const uint8_t dxpui_ctl_magic[4] = { 0x44, 0x58, 0x43, 0x54 }; /* "DXCT" */

static bool dxpui_ctl_printable(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] < 0x20 || p[i] > 0x7e)
            return false;
    }
    return true;
}

/* A text of n bytes at most, ended by a zero, what is not printable replaced (M-8). */
static void dxpui_ctl_get_word(const uint8_t *p, size_t n, char *out)
{
    bool over = false;
    for (size_t i = 0; i < n; i++) {
        over = over || p[i] == 0 || i + 1 == n;
        out[i] = over ? '\0' : dxpui_ctl_printable(p + i, 1) ? (char)p[i] : '?';
    }
}

static void dxpui_ctl_put_word(uint8_t *p, size_t n, const char *text)
{
    bool over = false;
    for (size_t i = 0; i < n; i++) {
        over = over || text[i] == '\0' || i + 1 == n;
        p[i] = over ? 0 : (uint8_t)text[i];
    }
}

/* family (8), 0 (8), port (16), ip (128) */
enum { DXPUI_CTL_ADDRESS_BYTES = 20 };

static void dxpui_ctl_get_address(const uint8_t *p, dxpu_control_address *a)
{
    memset(a, 0, sizeof *a);
    a->family = p[0];
    if (a->family == 0)
        return;
    a->port = dxpu_get_be16(p + 2);
    memcpy(a->ip, p + 4, a->family == 4 ? 4 : 16);
}

static void dxpui_ctl_put_address(uint8_t *p, const dxpu_control_address *a)
{
    memset(p, 0, DXPUI_CTL_ADDRESS_BYTES);
    p[0] = a->family;
    if (a->family == 0)
        return;
    dxpu_put_be16(p + 2, a->port);
    memcpy(p + 4, a->ip, a->family == 4 ? 4 : 16);
}

static bool dxpui_ctl_family_known(unsigned family)
{
    return family == 0 || family == 4 || family == 6;
}

/* ==== 7  Bodies ================================================================================
   Each pair in the order of the types; get() is given at least the fixed part. */

/* A length byte and as many characters. */
static int dxpui_ctl_get_text(dxpu_bytes rest, dxpu_bytes *out)
{
    if (rest.len < 1 || rest.ptr[0] > rest.len - 1)
        return DXPU_E_SHORT; /* M-7 */
    if (!dxpui_ctl_printable(rest.ptr + 1, rest.ptr[0]))
        return DXPU_E_RECORD; /* M-8 */
    out->ptr = rest.ptr + 1;
    out->len = rest.ptr[0];
    return DXPU_OK;
}

static void dxpui_ctl_put_text(uint8_t *p, dxpu_bytes text)
{
    p[0] = (uint8_t)text.len;
    if (text.len)
        memcpy(p + 1, text.ptr, text.len);
}

static dxpu_bytes dxpui_ctl_from(dxpu_bytes b, size_t at)
{
    b.ptr += at;
    b.len -= at;
    return b;
}

static int dxpui_ctl_get_hello(dxpu_bytes b, dxpu_control_hello *m)
{
    m->role = b.ptr[0];
    m->version_min = b.ptr[1];
    m->version_max = b.ptr[2];
    m->node = dxpu_get_be32(b.ptr + 4);
    m->slots = dxpu_get_be16(b.ptr + 8);
    if (m->version_min < 1 || m->version_min > m->version_max)
        return DXPU_E_RECORD; /* M-11 */
    return dxpui_ctl_get_text(dxpui_ctl_from(b, 12), &m->name);
}

static void dxpui_ctl_put_hello(uint8_t *p, const dxpu_control_hello *m)
{
    p[0] = m->role;
    p[1] = m->version_min;
    p[2] = m->version_max;
    dxpu_put_be32(p + 4, m->node);
    dxpu_put_be16(p + 8, m->slots);
    dxpui_ctl_put_text(p + 12, m->name);
}

static int dxpui_ctl_get_error(dxpu_bytes b, dxpu_control_error *m)
{
    m->code = dxpu_get_be16(b.ptr);
    m->slot = dxpu_get_be16(b.ptr + 2);
    return dxpui_ctl_get_text(dxpui_ctl_from(b, 4), &m->text);
}

static void dxpui_ctl_put_error(uint8_t *p, const dxpu_control_error *m)
{
    dxpu_put_be16(p, m->code);
    dxpu_put_be16(p + 2, m->slot);
    dxpui_ctl_put_text(p + 4, m->text);
}

static int dxpui_ctl_get_done(dxpu_bytes b, dxpu_control_done *m)
{
    m->slot = dxpu_get_be16(b.ptr);
    m->state = b.ptr[2];
    m->epoch = dxpu_get_be64(b.ptr + 4);
    return DXPU_OK;
}

static void dxpui_ctl_put_done(uint8_t *p, const dxpu_control_done *m)
{
    dxpu_put_be16(p, m->slot);
    p[2] = m->state;
    dxpu_put_be64(p + 4, m->epoch);
}

/* M-13 */
static bool dxpui_ctl_is_box(const dxpu_control_address *a)
{
    return a->port && (a->family == 4 || a->family == 6);
}

enum { DXPUI_CTL_PATHS_BYTES = 4 }; /* of a list's head: count (8), 0 (24) */

/* A list of addresses, max at most.  DXPU_OK and *b behind it. */
static int dxpui_ctl_get_paths(dxpu_bytes *b, unsigned max, dxpu_control_address *path,
                               uint8_t *count)
{
    *count = b->ptr[0];
    if (*count > max)
        return DXPU_E_RECORD;
    *b = dxpui_ctl_from(*b, DXPUI_CTL_PATHS_BYTES);
    if (b->len < *count * (size_t)DXPUI_CTL_ADDRESS_BYTES)
        return DXPU_E_SHORT;
    for (unsigned i = 0; i < *count; i++) {
        dxpui_ctl_get_address(b->ptr, &path[i]);
        if (!dxpui_ctl_is_box(&path[i]))
            return DXPU_E_RECORD;
        *b = dxpui_ctl_from(*b, DXPUI_CTL_ADDRESS_BYTES);
    }
    return DXPU_OK;
}

/* Where the list ends. */
static uint8_t *dxpui_ctl_put_paths(uint8_t *p, const dxpu_control_address *path, unsigned count)
{
    dxpu_put_be32(p, (uint32_t)count << 24);
    p += DXPUI_CTL_PATHS_BYTES;
    for (unsigned i = 0; i < count; i++, p += DXPUI_CTL_ADDRESS_BYTES)
        dxpui_ctl_put_address(p, &path[i]);
    return p;
}

static size_t dxpui_ctl_paths_bytes(unsigned count)
{
    return DXPUI_CTL_PATHS_BYTES + count * (size_t)DXPUI_CTL_ADDRESS_BYTES;
}

/* M-80: a key behind all that was there before it. */
static int dxpui_ctl_get_key(dxpu_bytes b, bool *keyed, uint8_t key[DXPU_CONTROL_KEY_BYTES])
{
    uint8_t any = 0;
    *keyed = b.len >= DXPU_CONTROL_KEY_BYTES;
    if (!*keyed)
        return DXPU_OK;
    memcpy(key, b.ptr, DXPU_CONTROL_KEY_BYTES);
    for (unsigned i = 0; i < DXPU_CONTROL_KEY_BYTES; i++)
        any |= key[i];
    return any ? DXPU_OK : DXPU_E_RECORD;
}

static size_t dxpui_ctl_key_bytes(bool keyed)
{
    return keyed ? (size_t)DXPU_CONTROL_KEY_BYTES : 0;
}

/* Bytes of an attach behind its fixed ones. */
static size_t dxpui_ctl_attach_end(const dxpu_control_attach *m)
{
    return (m->more || m->keyed ? dxpui_ctl_paths_bytes(m->more) : 0) +
           dxpui_ctl_key_bytes(m->keyed);
}

static int dxpui_ctl_get_attach(dxpu_bytes b, dxpu_control_attach *m)
{
    int rc;
    m->slot = dxpu_get_be16(b.ptr);
    m->box_slot = dxpu_get_be16(b.ptr + 2);
    m->epoch = dxpu_get_be64(b.ptr + 4);
    dxpui_ctl_get_address(b.ptr + 12, &m->box);
    /* M-13: a malformed request is an error here, not a refusal by the proxy */
    if (!m->slot || !m->box_slot || !m->epoch || !dxpui_ctl_is_box(&m->box))
        return DXPU_E_RECORD;
    b = dxpui_ctl_from(b, DXPUI_CTL_ATTACH_BYTES);
    /* M-19: behind the fields that were there first; left out there are none */
    if (b.len < DXPUI_CTL_PATHS_BYTES)
        return DXPU_OK;
    rc = dxpui_ctl_get_paths(&b, DXPU_CONTROL_PATHS_MAX - 1, m->path, &m->more);
    return rc == DXPU_OK ? dxpui_ctl_get_key(b, &m->keyed, m->key) : rc;
}

static void dxpui_ctl_put_attach(uint8_t *p, const dxpu_control_attach *m)
{
    dxpu_put_be16(p, m->slot);
    dxpu_put_be16(p + 2, m->box_slot);
    dxpu_put_be64(p + 4, m->epoch);
    dxpui_ctl_put_address(p + 12, &m->box);
    p += DXPUI_CTL_ATTACH_BYTES;
    if (m->more || m->keyed)
        p = dxpui_ctl_put_paths(p, m->path, m->more);
    if (m->keyed)
        memcpy(p, m->key, DXPU_CONTROL_KEY_BYTES);
}

static int dxpui_ctl_get_detach(dxpu_bytes b, dxpu_control_detach *m)
{
    m->slot = dxpu_get_be16(b.ptr);
    m->reason = b.ptr[2];
    m->epoch = dxpu_get_be64(b.ptr + 4);
    return m->slot ? DXPU_OK : DXPU_E_RECORD; /* M-14 */
}

static void dxpui_ctl_put_detach(uint8_t *p, const dxpu_control_detach *m)
{
    dxpu_put_be16(p, m->slot);
    p[2] = m->reason;
    dxpu_put_be64(p + 4, m->epoch);
}

static int dxpui_ctl_get_ask(dxpu_bytes b, dxpu_control_ask *m)
{
    m->first = dxpu_get_be16(b.ptr);
    m->count = dxpu_get_be16(b.ptr + 2);
    return m->first ? DXPU_OK : DXPU_E_RECORD; /* M-15 */
}

static void dxpui_ctl_put_ask(uint8_t *p, const dxpu_control_ask *m)
{
    dxpu_put_be16(p, m->first);
    dxpu_put_be16(p + 2, m->count);
}

/* M-16, M-40: slots and lengths agree. */
static int dxpui_ctl_check_entries(unsigned total, unsigned first, unsigned count, size_t each,
                                   size_t each_min, size_t there)
{
    if (each < each_min || first < 1 || first > total + 1u || count > total + 1u - first)
        return DXPU_E_RECORD;
    return count * each > there ? DXPU_E_SHORT : DXPU_OK;
}

static int dxpui_ctl_check_status(const dxpu_control_status *m, size_t there)
{
    return dxpui_ctl_check_entries(m->total, m->first, m->count, m->entry_bytes,
                                   DXPU_CONTROL_SLOT_BYTES, there);
}

static int dxpui_ctl_get_status(dxpu_bytes b, dxpu_control_status *m)
{
    m->role = b.ptr[0];
    m->node = dxpu_get_be32(b.ptr + 4);
    m->total = dxpu_get_be16(b.ptr + 8);
    m->first = dxpu_get_be16(b.ptr + 10);
    m->count = dxpu_get_be16(b.ptr + 12);
    m->entry_bytes = dxpu_get_be16(b.ptr + 14);
    m->entries = dxpui_ctl_from(b, DXPUI_CTL_STATUS_BYTES);
    int rc = dxpui_ctl_check_status(m, m->entries.len);
    m->entries.len = rc == DXPU_OK ? (size_t)m->count * m->entry_bytes : 0;
    return rc;
}

static void dxpui_ctl_put_status(uint8_t *p, const dxpu_control_status *m)
{
    p[0] = m->role;
    dxpu_put_be32(p + 4, m->node);
    dxpu_put_be16(p + 8, m->total);
    dxpu_put_be16(p + 10, m->first);
    dxpu_put_be16(p + 12, m->count);
    dxpu_put_be16(p + 14, m->entry_bytes);
    if (m->entries.len)
        memcpy(p + DXPUI_CTL_STATUS_BYTES, m->entries.ptr, m->entries.len);
}

static int dxpui_ctl_get_screenshot(dxpu_bytes b, dxpu_control_screenshot *m)
{
    m->slot = dxpu_get_be16(b.ptr);
    m->offset = dxpu_get_be32(b.ptr + 4);
    return m->slot && m->offset < DXPU_CONTROL_PICTURE_MAX ? DXPU_OK : DXPU_E_RECORD; /* M-22 */
}

static void dxpui_ctl_put_screenshot(uint8_t *p, const dxpu_control_screenshot *m)
{
    dxpu_put_be16(p, m->slot);
    dxpu_put_be32(p + 4, m->offset);
}

static int dxpui_ctl_get_picture(dxpu_bytes b, dxpu_control_picture *m)
{
    uint32_t bytes = dxpu_get_be32(b.ptr + 12);
    m->slot = dxpu_get_be16(b.ptr);
    m->total = dxpu_get_be32(b.ptr + 4);
    m->offset = dxpu_get_be32(b.ptr + 8);
    m->png = dxpui_ctl_from(b, DXPUI_CTL_PICTURE_BYTES);
    /* M-23 */
    if (!m->slot || m->total > DXPU_CONTROL_PICTURE_MAX || m->offset >= m->total || !bytes ||
        bytes > m->total - m->offset)
        return DXPU_E_RECORD;
    if (bytes > m->png.len)
        return DXPU_E_SHORT;
    m->png.len = bytes;
    return DXPU_OK;
}

static void dxpui_ctl_put_picture(uint8_t *p, const dxpu_control_picture *m)
{
    dxpu_put_be16(p, m->slot);
    dxpu_put_be32(p + 4, m->total);
    dxpu_put_be32(p + 8, m->offset);
    dxpu_put_be32(p + 12, (uint32_t)m->png.len);
    if (m->png.len)
        memcpy(p + DXPUI_CTL_PICTURE_BYTES, m->png.ptr, m->png.len);
}

static int dxpui_ctl_get_plug(dxpu_bytes b, dxpu_control_plug *m)
{
    int rc;
    m->slot = dxpu_get_be16(b.ptr);
    m->how = b.ptr[2];
    m->force = b.ptr[3] != 0;
    if (!m->slot || m->how < DXPU_CONTROL_INSERT || m->how > DXPU_CONTROL_REPLACE || b.ptr[3] > 1)
        return DXPU_E_RECORD; /* M-24 */
    rc = dxpui_ctl_get_text(dxpui_ctl_from(b, 4), &m->device);
    if (rc == DXPU_OK && (m->device.len == 0) != (m->how == DXPU_CONTROL_REMOVE))
        rc = DXPU_E_RECORD;
    return rc;
}

static void dxpui_ctl_put_plug(uint8_t *p, const dxpu_control_plug *m)
{
    dxpu_put_be16(p, m->slot);
    p[2] = m->how;
    p[3] = m->force;
    dxpui_ctl_put_text(p + 4, m->device);
}

static int dxpui_ctl_check_register(const dxpu_control_register *m, size_t there)
{
    return dxpui_ctl_check_entries(m->total, m->first, m->count, m->entry_bytes,
                                   DXPU_CONTROL_DEVICE_BYTES_MIN, there);
}

/* M-48: what stands behind the slots; left out there is none. */
static int dxpui_ctl_get_register_end(dxpu_bytes b, dxpu_control_register *m)
{
    int rc;
    if (b.len < DXPUI_CTL_PATHS_BYTES)
        return DXPU_OK;
    rc = dxpui_ctl_get_paths(&b, DXPU_CONTROL_PATHS_MAX, m->path, &m->paths);
    return rc == DXPU_OK ? dxpui_ctl_get_text(b, &m->name) : rc;
}

static int dxpui_ctl_get_register(dxpu_bytes b, dxpu_control_register *m)
{
    static const uint8_t nobody[sizeof m->identity] = { 0 };
    dxpu_bytes end;
    int rc;
    m->role = b.ptr[0];
    m->total = dxpu_get_be16(b.ptr + 2);
    m->first = dxpu_get_be16(b.ptr + 4);
    m->count = dxpu_get_be16(b.ptr + 6);
    m->entry_bytes = dxpu_get_be16(b.ptr + 8);
    m->node = dxpu_get_be32(b.ptr + 12);
    m->instance = dxpu_get_be64(b.ptr + 16);
    memcpy(m->identity, b.ptr + 24, sizeof m->identity);
    m->entries = dxpui_ctl_from(b, DXPUI_CTL_REGISTER_BYTES);
    rc = dxpui_ctl_check_register(m, m->entries.len);
    end = m->entries;
    m->entries.len = rc == DXPU_OK ? (size_t)m->count * m->entry_bytes : 0;
    if ((m->role != DXPU_CONTROL_ROLE_HOST && m->role != DXPU_CONTROL_ROLE_BOX) || !m->instance ||
        memcmp(m->identity, nobody, sizeof nobody) == 0)
        return DXPU_E_RECORD; /* M-40 */
    return rc == DXPU_OK ? dxpui_ctl_get_register_end(dxpui_ctl_from(end, m->entries.len), m) : rc;
}

static bool dxpui_ctl_has_register_end(const dxpu_control_register *m)
{
    return m->paths || m->name.len;
}

static void dxpui_ctl_put_register(uint8_t *p, const dxpu_control_register *m)
{
    p[0] = m->role;
    dxpu_put_be16(p + 2, m->total);
    dxpu_put_be16(p + 4, m->first);
    dxpu_put_be16(p + 6, m->count);
    dxpu_put_be16(p + 8, m->entry_bytes);
    dxpu_put_be32(p + 12, m->node);
    dxpu_put_be64(p + 16, m->instance);
    memcpy(p + 24, m->identity, sizeof m->identity);
    p += DXPUI_CTL_REGISTER_BYTES;
    if (m->entries.len)
        memcpy(p, m->entries.ptr, m->entries.len);
    p += m->entries.len;
    if (dxpui_ctl_has_register_end(m))
        dxpui_ctl_put_text(dxpui_ctl_put_paths(p, m->path, m->paths), m->name);
}

static int dxpui_ctl_get_node(dxpu_bytes b, dxpu_control_node *m)
{
    m->node = dxpu_get_be32(b.ptr);
    m->heartbeat_ms = dxpu_get_be32(b.ptr + 4);
    m->term = 0;
    if (b.len >= DXPUI_CTL_NODE_BYTES + DXPUI_CTL_TERM_BYTES)
        m->term = dxpu_get_be64(b.ptr + DXPUI_CTL_NODE_BYTES);
    m->directs = b.len > DXPUI_CTL_NODE_BYTES + DXPUI_CTL_TERM_BYTES &&
                 b.ptr[DXPUI_CTL_NODE_BYTES + DXPUI_CTL_TERM_BYTES] & 1;
    return m->node && m->heartbeat_ms ? DXPU_OK : DXPU_E_RECORD; /* M-42 */
}

static void dxpui_ctl_put_node(uint8_t *p, const dxpu_control_node *m)
{
    dxpu_put_be32(p, m->node);
    dxpu_put_be32(p + 4, m->heartbeat_ms);
    if (m->term || m->directs)
        dxpu_put_be64(p + DXPUI_CTL_NODE_BYTES, m->term);
    if (m->directs)
        p[DXPUI_CTL_NODE_BYTES + DXPUI_CTL_TERM_BYTES] = 1;
}

/* M-174: fewer bytes than a key has are not a key. */
static int dxpui_ctl_get_bind(dxpu_bytes b, dxpu_control_bind *m)
{
    int rc;
    m->slot = dxpu_get_be16(b.ptr);
    m->host_slot = dxpu_get_be16(b.ptr + 2);
    m->host_node = dxpu_get_be32(b.ptr + 4);
    m->epoch = dxpu_get_be64(b.ptr + 8);
    if (!m->slot || !m->host_slot || !m->host_node || !m->epoch)
        return DXPU_E_RECORD; /* M-43 */
    b = dxpui_ctl_from(b, DXPUI_CTL_BIND_BYTES);
    rc = dxpui_ctl_get_key(b, &m->keyed, m->key);
    b = dxpui_ctl_from(b, dxpui_ctl_key_bytes(m->keyed));
    m->lease = b.len >= DXPUI_CTL_LEASE_BYTES ? dxpu_get_be64(b.ptr) : 0;
    m->tenant = m->lease ? dxpu_get_be64(b.ptr + 8) : 0;
    return rc;
}

static void dxpui_ctl_put_bind(uint8_t *p, const dxpu_control_bind *m)
{
    dxpu_put_be16(p, m->slot);
    dxpu_put_be16(p + 2, m->host_slot);
    dxpu_put_be32(p + 4, m->host_node);
    dxpu_put_be64(p + 8, m->epoch);
    p += DXPUI_CTL_BIND_BYTES;
    if (m->keyed)
        memcpy(p, m->key, DXPU_CONTROL_KEY_BYTES);
    p += dxpui_ctl_key_bytes(m->keyed);
    if (m->lease) {
        dxpu_put_be64(p, m->lease);
        dxpu_put_be64(p + 8, m->tenant);
    }
}

static int dxpui_ctl_get_unbind(dxpu_bytes b, dxpu_control_unbind *m)
{
    m->slot = dxpu_get_be16(b.ptr);
    m->keep = b.ptr[2] == 1;
    m->epoch = dxpu_get_be64(b.ptr + 4);
    return m->slot && b.ptr[2] <= 1 && m->epoch ? DXPU_OK : DXPU_E_RECORD; /* M-44 */
}

static void dxpui_ctl_put_unbind(uint8_t *p, const dxpu_control_unbind *m)
{
    dxpu_put_be16(p, m->slot);
    p[2] = m->keep;
    dxpu_put_be64(p + 4, m->epoch);
}

static int dxpui_ctl_get_drain(dxpu_bytes b, dxpu_control_drain *m)
{
    m->slot = dxpu_get_be16(b.ptr);
    m->on = b.ptr[2] == 1;
    return b.ptr[2] <= 1 ? DXPU_OK : DXPU_E_RECORD; /* M-45 */
}

static void dxpui_ctl_put_drain(uint8_t *p, const dxpu_control_drain *m)
{
    dxpu_put_be16(p, m->slot);
    p[2] = m->on;
}

static int dxpui_ctl_get_direct(dxpu_bytes b, dxpu_control_direct *m)
{
    m->slot = dxpu_get_be16(b.ptr);
    m->on = b.ptr[2] == 1;
    return m->slot && b.ptr[2] <= 1 ? DXPU_OK : DXPU_E_RECORD; /* M-181 */
}

static void dxpui_ctl_put_direct(uint8_t *p, const dxpu_control_direct *m)
{
    dxpu_put_be16(p, m->slot);
    p[2] = m->on;
}

static int dxpui_ctl_get_reset(dxpu_bytes b, dxpu_control_reset *m)
{
    m->slot = dxpu_get_be16(b.ptr);
    m->epoch = dxpu_get_be64(b.ptr + 4);
    return m->slot ? DXPU_OK : DXPU_E_RECORD; /* M-46 */
}

static void dxpui_ctl_put_reset(uint8_t *p, const dxpu_control_reset *m)
{
    dxpu_put_be16(p, m->slot);
    dxpu_put_be64(p + 4, m->epoch);
}

static int dxpui_ctl_get_heartbeat(dxpu_bytes b, dxpu_control_heartbeat *m)
{
    m->instance = dxpu_get_be64(b.ptr);
    m->changes = dxpu_get_be32(b.ptr + 8);
    return m->instance ? DXPU_OK : DXPU_E_RECORD; /* M-47 */
}

static void dxpui_ctl_put_heartbeat(uint8_t *p, const dxpu_control_heartbeat *m)
{
    dxpu_put_be64(p, m->instance);
    dxpu_put_be32(p + 8, m->changes);
}

static int dxpui_ctl_get_alarm(dxpu_bytes b, dxpu_control_alarm *m)
{
    m->slot = dxpu_get_be16(b.ptr);
    m->kind = b.ptr[2];
    m->epoch = dxpu_get_be64(b.ptr + 4);
    return m->kind ? dxpui_ctl_get_text(dxpui_ctl_from(b, 12), &m->text) : DXPU_E_RECORD; /* M-49 */
}

static void dxpui_ctl_put_alarm(uint8_t *p, const dxpu_control_alarm *m)
{
    dxpu_put_be16(p, m->slot);
    p[2] = m->kind;
    dxpu_put_be64(p + 4, m->epoch);
    dxpui_ctl_put_text(p + 12, m->text);
}

/* One slot of a register: offsets as in spec/control.md, section 7. */
DXPU_API void dxpu_control_device_encode(const dxpu_control_device *d,
                                         uint8_t out[DXPU_CONTROL_DEVICE_BYTES])
{
    memset(out, 0, DXPU_CONTROL_DEVICE_BYTES);
    dxpu_put_be16(out, d->number);
    out[2] = d->state;
    out[3] = d->health;
    dxpu_put_be16(out + 4, d->vendor);
    dxpu_put_be16(out + 6, d->device);
    dxpu_put_be32(out + 8, d->class_code & 0xffffffu);
    dxpu_put_be32(out + 12, d->group);
    dxpu_put_be64(out + 16, d->epoch);
    dxpu_put_be64(out + 24, d->epoch_seen);
    dxpu_put_be32(out + 32, d->peer_node);
    dxpu_put_be16(out + 36, d->peer_slot);
    dxpu_put_be16(out + 38, d->code);
    dxpui_ctl_put_word(out + 40, sizeof d->model, d->model);
    dxpui_ctl_put_word(out + 72, sizeof d->serial, d->serial);
    dxpu_put_be16(out + 104, d->port_offset);
    out[106] = d->data;
    out[107] = d->reach;
    dxpu_put_be64(out + 108, d->medium);
    dxpui_ctl_put_word(out + 116, sizeof d->attributes, d->attributes);
    dxpu_put_be64(out + 180, d->lease);
    dxpu_put_be64(out + 188, d->lease ? d->tenant : 0);
}

DXPU_API bool dxpu_control_device_next(const dxpu_control_register *r, dxpu_bytes *entries,
                                       dxpu_control_device *out)
{
    const uint8_t *p = entries->ptr;
    if (r->entry_bytes < DXPU_CONTROL_DEVICE_BYTES_MIN || entries->len < r->entry_bytes)
        return false;
    memset(out, 0, sizeof *out);
    out->number = dxpu_get_be16(p);
    out->state = p[2];
    out->health = p[3];
    out->vendor = dxpu_get_be16(p + 4);
    out->device = dxpu_get_be16(p + 6);
    out->class_code = dxpu_get_be32(p + 8) & 0xffffffu;
    out->group = dxpu_get_be32(p + 12);
    out->epoch = dxpu_get_be64(p + 16);
    out->epoch_seen = dxpu_get_be64(p + 24);
    out->peer_node = dxpu_get_be32(p + 32);
    out->peer_slot = dxpu_get_be16(p + 36);
    out->code = dxpu_get_be16(p + 38);
    dxpui_ctl_get_word(p + 40, sizeof out->model, out->model);
    dxpui_ctl_get_word(p + 72, sizeof out->serial, out->serial);
    if (r->entry_bytes >= 108) {
        out->port_offset = dxpu_get_be16(p + 104);
        out->data = DXPU_CONTROL_DATA_UNKNOWN;
        if (p[106] <= DXPU_CONTROL_DATA_PERSISTENT)
            out->data = p[106];
        out->reach = DXPU_CONTROL_REACH_UNKNOWN;
        if (p[107] <= DXPU_CONTROL_REACH_UP)
            out->reach = p[107];
    }
    if (r->entry_bytes >= 116)
        out->medium = dxpu_get_be64(p + 108);
    if (r->entry_bytes >= 180)
        dxpui_ctl_get_word(p + 116, sizeof out->attributes, out->attributes);
    if (r->entry_bytes >= 196) {
        out->lease = dxpu_get_be64(p + 180);
        out->tenant = out->lease ? dxpu_get_be64(p + 188) : 0;
    }
    *entries = dxpui_ctl_from(*entries, r->entry_bytes);
    return true;
}

/* One slot: offsets as in spec/control.md, section 5. */
DXPU_API void dxpu_control_slot_encode(const dxpu_control_slot *s,
                                       uint8_t out[DXPU_CONTROL_SLOT_BYTES])
{
    memset(out, 0, DXPU_CONTROL_SLOT_BYTES);
    dxpu_put_be16(out, s->number);
    out[2] = s->state;
    out[3] = s->reason;
    dxpu_put_be16(out + 4, (unsigned)-s->error & 0xffffu);
    dxpu_put_be16(out + 6, s->code);
    dxpu_put_be16(out + 8, s->peer_slot);
    dxpu_put_be32(out + 12, s->peer_node);
    dxpui_ctl_put_address(out + 16, &s->peer);
    dxpu_put_be32(out + 36, s->msis_refused);
    dxpu_put_be64(out + 40, s->epoch);
    dxpu_put_be64(out + 48, s->epoch_seen);
    dxpu_put_be32(out + 56, s->attempts);
    dxpu_put_be32(out + 60, s->incarnations);
    dxpu_put_be64(out + 64, s->to_device);
    dxpu_put_be64(out + 72, s->from_device);
    dxpu_put_be64(out + 80, s->dropped);
    dxpui_ctl_put_word(out + 88, sizeof s->device, s->device);
    dxpui_ctl_put_word(out + 104, sizeof s->note, s->note);
}

DXPU_API bool dxpu_control_slot_next(const dxpu_control_status *st, dxpu_bytes *entries,
                                     dxpu_control_slot *out)
{
    const uint8_t *p = entries->ptr;
    uint16_t error;
    if (st->entry_bytes < DXPU_CONTROL_SLOT_BYTES || entries->len < st->entry_bytes)
        return false;
    memset(out, 0, sizeof *out);
    out->number = dxpu_get_be16(p);
    out->state = p[2];
    out->reason = p[3];
    error = dxpu_get_be16(p + 4);
    out->error = (int16_t)(error <= 0x7fff ? -(int)error : 0);
    out->code = dxpu_get_be16(p + 6);
    out->peer_slot = dxpu_get_be16(p + 8);
    out->peer_node = dxpu_get_be32(p + 12);
    if (dxpui_ctl_family_known(p[16])) /* M-21: else as if there were none */
        dxpui_ctl_get_address(p + 16, &out->peer);
    out->msis_refused = dxpu_get_be32(p + 36);
    out->epoch = dxpu_get_be64(p + 40);
    out->epoch_seen = dxpu_get_be64(p + 48);
    out->attempts = dxpu_get_be32(p + 56);
    out->incarnations = dxpu_get_be32(p + 60);
    out->to_device = dxpu_get_be64(p + 64);
    out->from_device = dxpu_get_be64(p + 72);
    out->dropped = dxpu_get_be64(p + 80);
    dxpui_ctl_get_word(p + 88, sizeof out->device, out->device);
    dxpui_ctl_get_word(p + 104, sizeof out->note, out->note);
    *entries = dxpui_ctl_from(*entries, st->entry_bytes);
    return true;
}

/* ==== 8  Frames =============================================================================== */

#define DXPUI_CTL_NAME(name, value, text)                                                          \
    case (value):                                                                                  \
        return text;
#define DXPUI_CTL_CODE_NAME(name, value, word, text)                                               \
    case (value):                                                                                  \
        return word;
#define DXPUI_CTL_CODE_TEXT(name, value, word, text)                                               \
    case (value):                                                                                  \
        return text;

DXPU_API const char *dxpu_control_type_name(unsigned type)
{
    switch (type) {
        DXPU_CONTROL_TYPES(DXPUI_CTL_NAME)
    default:
        return "unknown";
    }
}

DXPU_API const char *dxpu_control_role_name(unsigned role)
{
    switch (role) {
    case DXPU_CONTROL_ROLE_HOST:
        return "host";
    case DXPU_CONTROL_ROLE_BOX:
        return "box";
    case DXPU_CONTROL_ROLE_MANAGER:
        return "manager";
    case DXPU_CONTROL_ROLE_COMMAND:
        return "command";
    default:
        return "unknown";
    }
}

DXPU_API const char *dxpu_control_state_name(unsigned state)
{
    switch (state) {
        DXPU_CONTROL_STATES(DXPUI_CTL_NAME)
    default:
        return "unknown";
    }
}

DXPU_API const char *dxpu_control_alarm_name(unsigned kind)
{
    switch (kind) {
        DXPU_CONTROL_ALARMS(DXPUI_CTL_NAME)
    default:
        return "unknown";
    }
}

DXPU_API const char *dxpu_control_code_name(unsigned code)
{
    switch (code) {
        DXPU_CONTROL_CODES(DXPUI_CTL_CODE_NAME)
    default:
        return "unknown";
    }
}

DXPU_API const char *dxpu_control_code_text(unsigned code)
{
    switch (code) {
        DXPU_CONTROL_CODES(DXPUI_CTL_CODE_TEXT)
    default:
        return "a reason this program does not know";
    }
}
#undef DXPUI_CTL_NAME
#undef DXPUI_CTL_CODE_NAME
#undef DXPUI_CTL_CODE_TEXT

DXPU_API int dxpu_control_stream_init(dxpu_control_stream *s, uint8_t *room, size_t cap)
{
    if (cap < DXPU_CONTROL_HEADER_BYTES)
        return DXPU_E_ARG;
    memset(s, 0, sizeof *s);
    s->room = room;
    s->cap = cap;
    return DXPU_OK;
}

/* Fill room up to `want`; true when that many are there. */
static bool dxpui_ctl_fill(dxpu_control_stream *s, dxpu_bytes *in, size_t want)
{
    size_t n = want - s->len;
    if (n > in->len)
        n = in->len;
    if (n) {
        memcpy(s->room + s->len, in->ptr, n);
        *in = dxpui_ctl_from(*in, n);
    }
    s->len += n;
    return s->len == want;
}

/* M-2 to M-4: is this a message that can be taken?  *body is its length. */
static int dxpui_ctl_check_header(const dxpu_control_stream *s, uint32_t *body)
{
    *body = dxpu_get_be32(s->room + DXPUI_CTL_LENGTH);
    if (s->room[DXPUI_CTL_VERSION] != DXPU_CONTROL_VERSION)
        return DXPU_E_VERSION;
    return *body > DXPU_CONTROL_BODY_MAX || *body > s->cap - DXPU_CONTROL_HEADER_BYTES
               ? DXPU_E_LENGTH
               : DXPU_OK;
}

DXPU_API int dxpu_control_take(dxpu_control_stream *s, dxpu_bytes *in, dxpu_control_frame *out)
{
    uint32_t body;
    if (s->error)
        return s->error;
    if (s->taken)
        s->len = 0;
    s->taken = false;
    if (s->len < DXPU_CONTROL_HEADER_BYTES) {
        bool whole = dxpui_ctl_fill(s, in, DXPU_CONTROL_HEADER_BYTES);
        /* M-2, as early as it can be known */
        if (memcmp(s->room, dxpui_ctl_magic, s->len < 4 ? s->len : 4) != 0)
            return s->error = DXPU_E_MAGIC;
        if (!whole)
            return DXPU_E_AGAIN;
    }
    s->error = dxpui_ctl_check_header(s, &body);
    if (s->error == DXPU_OK && !dxpui_ctl_fill(s, in, DXPU_CONTROL_HEADER_BYTES + body))
        return DXPU_E_AGAIN;
    out->version = s->room[DXPUI_CTL_VERSION];
    out->flags = s->room[DXPUI_CTL_FLAGS];
    out->type = dxpu_get_be16(s->room + DXPUI_CTL_TYPE_AT);
    out->request = dxpu_get_be32(s->room + DXPUI_CTL_REQUEST);
    out->body.ptr = s->room + DXPU_CONTROL_HEADER_BYTES;
    out->body.len = s->error ? 0 : body;
    s->taken = true;
    return s->error;
}

/* Bytes of a type's body that are always there, 0 for a type not known. */
static size_t dxpui_ctl_fixed(unsigned type)
{
    switch (type) {
    case DXPU_CONTROL_HELLO:
        return DXPUI_CTL_HELLO_BYTES;
    case DXPU_CONTROL_ERROR:
        return DXPUI_CTL_ERROR_BYTES;
    case DXPU_CONTROL_DONE:
        return DXPUI_CTL_DONE_BYTES;
    case DXPU_CONTROL_ATTACH:
        return DXPUI_CTL_ATTACH_BYTES;
    case DXPU_CONTROL_DETACH:
        return DXPUI_CTL_DETACH_BYTES;
    case DXPU_CONTROL_ASK:
        return DXPUI_CTL_ASK_BYTES;
    case DXPU_CONTROL_STATUS:
        return DXPUI_CTL_STATUS_BYTES;
    case DXPU_CONTROL_SCREENSHOT:
        return DXPUI_CTL_SCREENSHOT_BYTES;
    case DXPU_CONTROL_PICTURE:
        return DXPUI_CTL_PICTURE_BYTES;
    case DXPU_CONTROL_PLUG:
        return DXPUI_CTL_PLUG_BYTES;
    case DXPU_CONTROL_REGISTER:
        return DXPUI_CTL_REGISTER_BYTES;
    case DXPU_CONTROL_NODE:
        return DXPUI_CTL_NODE_BYTES;
    case DXPU_CONTROL_BIND:
        return DXPUI_CTL_BIND_BYTES;
    case DXPU_CONTROL_UNBIND:
        return DXPUI_CTL_UNBIND_BYTES;
    case DXPU_CONTROL_DRAIN:
        return DXPUI_CTL_DRAIN_BYTES;
    case DXPU_CONTROL_RESET:
        return DXPUI_CTL_RESET_BYTES;
    case DXPU_CONTROL_DIRECT:
        return DXPUI_CTL_DIRECT_BYTES;
    case DXPU_CONTROL_HEARTBEAT:
        return DXPUI_CTL_HEARTBEAT_BYTES;
    case DXPU_CONTROL_ALARM:
        return DXPUI_CTL_ALARM_BYTES;
    default:
        return 0;
    }
}

static int dxpui_ctl_get(dxpu_bytes b, dxpu_control *m)
{
    switch (m->type) {
    case DXPU_CONTROL_HELLO:
        return dxpui_ctl_get_hello(b, &m->u.hello);
    case DXPU_CONTROL_ERROR:
        return dxpui_ctl_get_error(b, &m->u.error);
    case DXPU_CONTROL_DONE:
        return dxpui_ctl_get_done(b, &m->u.done);
    case DXPU_CONTROL_ATTACH:
        return dxpui_ctl_get_attach(b, &m->u.attach);
    case DXPU_CONTROL_DETACH:
        return dxpui_ctl_get_detach(b, &m->u.detach);
    case DXPU_CONTROL_ASK:
        return dxpui_ctl_get_ask(b, &m->u.ask);
    case DXPU_CONTROL_SCREENSHOT:
        return dxpui_ctl_get_screenshot(b, &m->u.screenshot);
    case DXPU_CONTROL_PICTURE:
        return dxpui_ctl_get_picture(b, &m->u.picture);
    case DXPU_CONTROL_PLUG:
        return dxpui_ctl_get_plug(b, &m->u.plug);
    case DXPU_CONTROL_REGISTER:
        return dxpui_ctl_get_register(b, &m->u.reg);
    case DXPU_CONTROL_NODE:
        return dxpui_ctl_get_node(b, &m->u.node);
    case DXPU_CONTROL_BIND:
        return dxpui_ctl_get_bind(b, &m->u.bind);
    case DXPU_CONTROL_UNBIND:
        return dxpui_ctl_get_unbind(b, &m->u.unbind);
    case DXPU_CONTROL_DRAIN:
        return dxpui_ctl_get_drain(b, &m->u.drain);
    case DXPU_CONTROL_RESET:
        return dxpui_ctl_get_reset(b, &m->u.reset);
    case DXPU_CONTROL_DIRECT:
        return dxpui_ctl_get_direct(b, &m->u.direct);
    case DXPU_CONTROL_HEARTBEAT:
        return dxpui_ctl_get_heartbeat(b, &m->u.heartbeat);
    case DXPU_CONTROL_ALARM:
        return dxpui_ctl_get_alarm(b, &m->u.alarm);
    default:
        return dxpui_ctl_get_status(b, &m->u.status);
    }
}

DXPU_API int dxpu_control_decode(const dxpu_control_frame *f, dxpu_control *out)
{
    dxpu_control m;
    size_t fixed = dxpui_ctl_fixed(f->type);
    int rc;
    if (f->flags & DXPU_CONTROL_FLAGS_MUST)
        return DXPU_E_RSVD; /* M-5 */
    if (!fixed)
        return DXPU_E_KIND; /* M-10 */
    if (f->body.len < fixed)
        return DXPU_E_SHORT; /* M-6 */
    memset(&m, 0, sizeof m);
    m.type = f->type;
    m.request = f->request;
    rc = dxpui_ctl_get(f->body, &m);
    if (rc == DXPU_OK)
        *out = m;
    return rc;
}

static void dxpui_ctl_put(uint8_t *p, const dxpu_control *m)
{
    switch (m->type) {
    case DXPU_CONTROL_HELLO:
        dxpui_ctl_put_hello(p, &m->u.hello);
        break;
    case DXPU_CONTROL_ERROR:
        dxpui_ctl_put_error(p, &m->u.error);
        break;
    case DXPU_CONTROL_DONE:
        dxpui_ctl_put_done(p, &m->u.done);
        break;
    case DXPU_CONTROL_ATTACH:
        dxpui_ctl_put_attach(p, &m->u.attach);
        break;
    case DXPU_CONTROL_DETACH:
        dxpui_ctl_put_detach(p, &m->u.detach);
        break;
    case DXPU_CONTROL_ASK:
        dxpui_ctl_put_ask(p, &m->u.ask);
        break;
    case DXPU_CONTROL_SCREENSHOT:
        dxpui_ctl_put_screenshot(p, &m->u.screenshot);
        break;
    case DXPU_CONTROL_PICTURE:
        dxpui_ctl_put_picture(p, &m->u.picture);
        break;
    case DXPU_CONTROL_PLUG:
        dxpui_ctl_put_plug(p, &m->u.plug);
        break;
    case DXPU_CONTROL_REGISTER:
        dxpui_ctl_put_register(p, &m->u.reg);
        break;
    case DXPU_CONTROL_NODE:
        dxpui_ctl_put_node(p, &m->u.node);
        break;
    case DXPU_CONTROL_BIND:
        dxpui_ctl_put_bind(p, &m->u.bind);
        break;
    case DXPU_CONTROL_UNBIND:
        dxpui_ctl_put_unbind(p, &m->u.unbind);
        break;
    case DXPU_CONTROL_DRAIN:
        dxpui_ctl_put_drain(p, &m->u.drain);
        break;
    case DXPU_CONTROL_RESET:
        dxpui_ctl_put_reset(p, &m->u.reset);
        break;
    case DXPU_CONTROL_DIRECT:
        dxpui_ctl_put_direct(p, &m->u.direct);
        break;
    case DXPU_CONTROL_HEARTBEAT:
        dxpui_ctl_put_heartbeat(p, &m->u.heartbeat);
        break;
    case DXPU_CONTROL_ALARM:
        dxpui_ctl_put_alarm(p, &m->u.alarm);
        break;
    default:
        dxpui_ctl_put_status(p, &m->u.status);
    }
}

/* What is not of fixed size, before anything is written; E_ARG when it cannot be right. */
static int dxpui_ctl_entries(size_t there, size_t count, size_t each, int checked, size_t fixed,
                             size_t *bytes)
{
    *bytes = there;
    return checked == DXPU_OK && there == count * each && there + fixed <= DXPU_CONTROL_BODY_MAX
               ? DXPU_OK
               : DXPU_E_ARG;
}

static int dxpui_ctl_texts(dxpu_bytes text, size_t *bytes)
{
    *bytes = text.len;
    return text.len > DXPU_CONTROL_TEXT_MAX ? DXPU_E_ARG : DXPU_OK;
}

static int dxpui_ctl_register_bytes(const dxpu_control_register *m, size_t *bytes)
{
    size_t end = 0, name = 0;
    if (m->paths > DXPU_CONTROL_PATHS_MAX || dxpui_ctl_texts(m->name, &name) != DXPU_OK)
        return DXPU_E_ARG;
    if (dxpui_ctl_has_register_end(m))
        end = dxpui_ctl_paths_bytes(m->paths) + 1 + name;
    if (dxpui_ctl_entries(m->entries.len, m->count, m->entry_bytes,
                          dxpui_ctl_check_register(m, m->entries.len),
                          DXPUI_CTL_REGISTER_BYTES + end, bytes) != DXPU_OK)
        return DXPU_E_ARG;
    *bytes += end;
    return DXPU_OK;
}

static int dxpui_ctl_variable(const dxpu_control *m, size_t *bytes)
{
    switch (m->type) {
    case DXPU_CONTROL_HELLO:
        return dxpui_ctl_texts(m->u.hello.name, bytes);
    case DXPU_CONTROL_ERROR:
        return dxpui_ctl_texts(m->u.error.text, bytes);
    case DXPU_CONTROL_ALARM:
        return dxpui_ctl_texts(m->u.alarm.text, bytes);
    case DXPU_CONTROL_PLUG:
        return dxpui_ctl_texts(m->u.plug.device, bytes);
    case DXPU_CONTROL_STATUS:
        return dxpui_ctl_entries(m->u.status.entries.len, m->u.status.count,
                                 m->u.status.entry_bytes,
                                 dxpui_ctl_check_status(&m->u.status, m->u.status.entries.len),
                                 DXPUI_CTL_STATUS_BYTES, bytes);
    case DXPU_CONTROL_REGISTER:
        return dxpui_ctl_register_bytes(&m->u.reg, bytes);
    case DXPU_CONTROL_PICTURE:
        *bytes = m->u.picture.png.len;
        return *bytes > DXPU_CONTROL_PIECE_MAX ? DXPU_E_ARG : DXPU_OK;
    case DXPU_CONTROL_ATTACH:
        *bytes = m->u.attach.more < DXPU_CONTROL_PATHS_MAX ? dxpui_ctl_attach_end(&m->u.attach) : 0;
        return m->u.attach.more < DXPU_CONTROL_PATHS_MAX ? DXPU_OK : DXPU_E_ARG;
    case DXPU_CONTROL_BIND:
        *bytes = dxpui_ctl_key_bytes(m->u.bind.keyed) +
                 (m->u.bind.lease ? (size_t)DXPUI_CTL_LEASE_BYTES : 0);
        return DXPU_OK;
    case DXPU_CONTROL_NODE:
        *bytes = m->u.node.directs ? DXPUI_CTL_TERM_BYTES + DXPUI_CTL_DIRECTS_BYTES
                 : m->u.node.term  ? DXPUI_CTL_TERM_BYTES
                                   : 0;
        return DXPU_OK;
    default:
        *bytes = 0;
        return DXPU_OK;
    }
}

DXPU_API int dxpu_control_encode(const dxpu_control *m, uint8_t *out, size_t cap, size_t *len)
{
    size_t body = dxpui_ctl_fixed(m->type), more = 0;
    dxpu_control_frame f;
    dxpu_control back;
    if (!body || dxpui_ctl_variable(m, &more) != DXPU_OK)
        return DXPU_E_ARG;
    if (cap < DXPU_CONTROL_HEADER_BYTES || cap - DXPU_CONTROL_HEADER_BYTES < body + more)
        return DXPU_E_ROOM;
    memset(out, 0, DXPU_CONTROL_HEADER_BYTES + body);
    body += more;
    memcpy(out, dxpui_ctl_magic, sizeof dxpui_ctl_magic);
    out[DXPUI_CTL_VERSION] = DXPU_CONTROL_VERSION;
    dxpu_put_be16(out + DXPUI_CTL_TYPE_AT, m->type);
    dxpu_put_be32(out + DXPUI_CTL_LENGTH, (uint32_t)body);
    dxpu_put_be32(out + DXPUI_CTL_REQUEST, m->request);
    dxpui_ctl_put(out + DXPU_CONTROL_HEADER_BYTES, m);
    memset(&f, 0, sizeof f);
    f.type = m->type;
    f.body.ptr = out + DXPU_CONTROL_HEADER_BYTES;
    f.body.len = body;
    if (dxpu_control_decode(&f, &back) != DXPU_OK) /* the ranges are checked in one place */
        return DXPU_E_ARG;
    *len = DXPU_CONTROL_HEADER_BYTES + body;
    return DXPU_OK;
}

#ifdef __cplusplus
}
#endif
#endif /* DXPU_CONTROL_IMPLEMENTATION */
