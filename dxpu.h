/* dxpu.h - PCIe over datagrams: TLP codec, routing, tags, credits and the channel that carries them
   SPDX-License-Identifier: MIT          (text at the end of this file)

   PCIe devices stand in boxes, hosts have none, and a network lies between them.  A proxy on each
   side turns PCIe transaction layer packets (TLPs) into network frames and back, so that the pair
   looks to the host like one PCIe switch whose slots fill and empty at run time (DxPU, He et al.).
   This header is the protocol of that pair: pure C99, no allocation, no clock, no I/O, no globals.

   In exactly one source file:                       Everywhere else:
       #define DXPU_IMPLEMENTATION                       #include "dxpu.h"
       #include "dxpu.h"

   The smallest useful program reads one TLP header as a kernel log prints it:

       #define DXPU_IMPLEMENTATION
       #include "dxpu.h"
       #include <stdio.h>

       int main(void)
       {
           static const uint8_t log[16] = { 0x40, 0, 0, 1, 0, 0, 0, 0x0f, 0x95, 0xe7, 0xf0, 0 };
           dxpu_bytes in = { log, sizeof log };
           dxpu_tlp t;
           int rc = dxpu_tlp_decode_header(in, &t);
           if (rc != DXPU_OK) {
               fprintf(stderr, "not a TLP: %s\n", dxpu_error_text(rc));
               return 1;
           }
           printf("%s of %u dwords to 0x%llx\n", dxpu_tlp_type_name(t.type), t.length_dw,
                  (unsigned long long)t.address);
           return 0;
       }

   CONTENTS (search for "== N " for the interface, "== N'" for its implementation)
     1  Manual                          8  TLP codec
     2  Configuration                   9  Classifier and messages
     3  Version, includes, linkage     10  Routing tables
     4  Conventions                    11  Credits and tags
     5  Base types                     12  Wire: frames and records
     6  Errors and counters            13  Channel
     7  CRC-32                         14  Changes, licence
*/
#ifndef DXPU_H_INCLUDED
#define DXPU_H_INCLUDED

/* ==== 1  Manual ==================================================================================

   THE PARTS.  Sections 7 to 12 are free-standing tools: each can be used without the others' state.
   Section 13, the channel, puts them together: one dxpu_channel is one attachment, that is the
   functions of one box slot lent to one host slot, seen from one end.

   LIFE OF A TLP.  submit() copies the TLP into the queue of its class (posted, non-posted,
   completion) and computes its CRC.  emit() writes frames straight into the caller's buffer: it
   takes TLPs from the three queues as PCIe's ordering table and the peer's credits allow, and
   keeps them until they are acknowledged.  At the other end ingest() checks a frame, puts it in
   sequence, and copies its TLPs into three class queues; an acknowledgement means "stored there".
   peek() shows the next TLP of a class that PCIe's ordering table lets go now, take() removes it
   and gives its credits back to the sender.  Not taking one class never stops another.

   THE LOOP of a proxy, for one channel:

       for (;;) {
           while ((n = dxpu_channel_emit(ch, clock_ns(), out, sizeof out, &path)) > 0)
               tx(path, out, (size_t)n);
           if (n < 0) break;                                     fatal: dxpu_error_text(n) says why
           while ((d = dxpu_channel_peek(ch, cls)).tlp.len) {
               use(d.tlp);
               dxpu_channel_take(ch, cls);
           }
           if (wait_rx(dxpu_channel_next_ns(ch), pkt, &len))
               dxpu_channel_ingest(ch, clock_ns(), pkt, len, 0);
       }

   OWNERSHIP.  Every object is the caller's memory; init() fills it, nothing needs to be freed.
   Views (dxpu_bytes) point into memory of the caller or of an object; each comment says until when.

   THREADS.  An object belongs to one thread at a time; distinct objects share nothing.

   TIME is a parameter: nanoseconds of any monotonic clock.  No function reads a clock.

   FAILURE.  Bad input from the peer changes nothing, is counted under one name per reason, and is
   reported by a negative number of the peer band (section 6).  A channel fails only by time
   (`hold` without a valid frame), by the peer's word (reset, close), or when the peer, inside
   authentic frames, breaks a rule that no retransmission can heal; then every call says so until
   it is initialised again.

   MEMORY.  dxpu_channel_bytes() tells what one channel needs for a given configuration. */

/* ==== 2  Configuration ===========================================================================
   Each option is a value macro, used with #if, never #ifdef.  Define them before the include or in
   the file named by DXPU_CONFIG_HEADER; all translation units of a program must agree. */
#ifdef DXPU_CONFIG_HEADER
#include DXPU_CONFIG_HEADER
#endif

#ifndef DXPU_CRC_TABLES /* 0: 64 B of table, 1: 1 KB (twice as fast), 8: 8 KB (slicing by 8) */
#define DXPU_CRC_TABLES 1
#endif
#if DXPU_CRC_TABLES != 0 && DXPU_CRC_TABLES != 1 && DXPU_CRC_TABLES != 8
#error "DXPU_CRC_TABLES: 0, 1 or 8"
#endif

/* DXPU_CRC32(crc, ptr, len): replaces the built-in CRC-32 by one with zlib's meaning
   (bindings/zlib does so); undefined by default. */

#ifndef DXPU_PREFIXES_MAX /* TLP prefixes the codec keeps; 4 B of dxpu_tlp each */
#define DXPU_PREFIXES_MAX 8
#endif
#if DXPU_PREFIXES_MAX < 4 || DXPU_PREFIXES_MAX > 64
#error "DXPU_PREFIXES_MAX: 4..64 (PCIe allows four end-end prefixes)"
#endif

#ifndef DXPU_HOST_PENDING /* configuration writes to ports remembered until completed; 24 B each */
#define DXPU_HOST_PENDING 16
#endif
#if DXPU_HOST_PENDING < 1 || DXPU_HOST_PENDING > 4096
#error "DXPU_HOST_PENDING: 1..4096"
#endif

#ifndef DXPU_ASSERT /* caller bugs only; may be compiled out without changing any result */
#define DXPU_ASSERT(x) ((void)0)
#endif

/* ==== 3  Version, includes, linkage =========================================================== */
#define DXPU_VERSION      "0.1.0"
#define DXPU_VERSION_NUM  100 /* major * 10000 + minor * 100 + patch */
#define DXPU_WIRE_VERSION 1   /* the frame version this header speaks; section 12 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* DXPU_STATIC makes the whole library private to one translation unit, so that two of them, even
   of two protocol versions, live in one program. */
#ifndef DXPU_API
#ifdef DXPU_STATIC
#define DXPU_API static inline
#else
#define DXPU_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 4  Conventions =============================================================================
   NULL       no pointer argument may be NULL unless its comment says so.
   Views      dxpu_bytes.ptr may be NULL only when len is 0.
   Units      stand in names: _ns, _bytes, _dw (4-byte words).  Wire encodings end at the codec:
              length_dw is 1..1024, byte_count 1..4096, whatever the header's bits say.
   Bytes      network fields are big-endian, TLPs stand as PCIe sends them.  Host byte order and
              alignment never matter.
   BDF        a function is one uint16_t: bus << 8 | device << 3 | function.
   Results    int functions return DXPU_OK (0) or a negative error of section 6; on an error no
              output argument has been written.
   Tags       W-6, T-3, ... in comments name rules of spec/. */
#define DXPU_BDF(bus, dev, fn)                                                                     \
    ((uint16_t)((unsigned)(bus) << 8 | (unsigned)(dev) << 3 | (unsigned)(fn)))
#define DXPU_BDF_BUS(bdf) ((unsigned)(bdf) >> 8 & 0xffu)
#define DXPU_BDF_DEV(bdf) ((unsigned)(bdf) >> 3 & 0x1fu)
#define DXPU_BDF_FN(bdf)  ((unsigned)(bdf)&0x7u)

/* ==== 5  Base types =========================================================================== */

/* Bytes that belong to somebody else. */
typedef struct dxpu_bytes {
    const uint8_t *ptr;
    size_t len;
} dxpu_bytes;

/* PCIe's three flow-control classes (Base Spec 2.6.1).  DXPU_CLASSES counts them. */
enum { DXPU_POSTED = 0, DXPU_NONPOSTED = 1, DXPU_COMPLETION = 2, DXPU_CLASSES = 3 };

#define DXPU_NEVER UINT64_MAX /* a time that does not come */

/* ==== 6  Errors and counters =====================================================================
   The number tells whose fault it is, the text tells the remedy.
     -1..-47    the TLP or the log it came from          -80..-95    later: ask again
     -48..-79   the peer or the network                  -96..-111   the caller of this function
                                                         -112..-127  fatal for the object */
#define DXPU_ERRORS(X)                                                                             \
    X(E_TLP_SHORT, -1, "tlp: fewer bytes than its header says")                                    \
    X(E_TLP_LONG, -2, "tlp: more bytes than its header says")                                      \
    X(E_TLP_ALL_ONES, -3, "tlp: all ones, the device was gone when the log was read")              \
    X(E_TLP_ALL_ZERO, -4, "tlp: all zero, no header was logged")                                   \
    X(E_TLP_TYPE, -5, "tlp: a Fmt and Type pair that PCIe does not define")                        \
    X(E_TLP_RSVD, -6, "tlp: a reserved bit is set")                                                \
    X(E_TLP_LENGTH, -7, "tlp: Length is not one that this type allows")                            \
    X(E_TLP_BE, -8, "tlp: byte enables that PCIe forbids for this length and address")             \
    X(E_TLP_4K, -9, "tlp: the request crosses a 4 KB boundary")                                    \
    X(E_TLP_ADDR, -10, "tlp: an address that is misaligned or wider than its format")              \
    X(E_TLP_ADDR64, -11, "tlp: a 4-dword header for an address below 4 GB")                        \
    X(E_TLP_TC, -12, "tlp: this type must use traffic class 0")                                    \
    X(E_TLP_ATTR, -13, "tlp: this type must have clear attributes")                                \
    X(E_TLP_AT, -14, "tlp: an address type that is reserved here")                                 \
    X(E_TLP_TH, -15, "tlp: processing hints where PCIe forbids them")                              \
    X(E_TLP_TAG, -16, "tlp: a tag outside 10 bits")                                                \
    X(E_TLP_STATUS, -17, "tlp: a completion status that is reserved or comes with data")           \
    X(E_TLP_BYTE_COUNT, -18, "tlp: Byte Count, Length and Lower Address disagree")                 \
    X(E_TLP_RCB, -19, "tlp: a split completion that does not end on a 64-byte boundary")           \
    X(E_TLP_MSG_CODE, -20, "tlp: a message code that PCIe does not define")                        \
    X(E_TLP_MSG_ROUTE, -21, "tlp: a message whose routing or data does not fit its code")          \
    X(E_TLP_PREFIX, -22, "tlp: a prefix type that PCIe does not define")                           \
    X(E_TLP_PREFIX_ORDER, -23, "tlp: a local prefix after an end-end prefix")                      \
    X(E_TLP_PREFIX_COUNT, -24, "tlp: more prefixes than allowed")                                  \
    X(E_TLP_IDE, -25, "tlp: an IDE TLP, which only its own end points can read")                   \
    X(E_TLP_OPERAND, -26, "tlp: an atomic operand of a size or alignment PCIe does not have")      \
    X(E_TLP_ECRC, -27, "tlp: the ECRC does not match")                                             \
    X(E_TLP_REGISTER, -28, "tlp: a register number that is not dword aligned or above 4 KB")       \
    X(E_SHORT, -48, "peer: frame ends before its header says")                                     \
    X(E_MAGIC, -49, "peer: not a dxpu frame; another program sends to this port")                  \
    X(E_VERSION, -50, "peer: a frame version this program does not speak; upgrade one side")       \
    X(E_KIND, -51, "peer: a frame kind this version does not know")                                \
    X(E_LENGTH, -52, "peer: frame length and datagram length disagree")                            \
    X(E_RSVD, -53, "peer: a must-understand bit this version does not know")                       \
    X(E_CRC, -54, "peer: frame CRC or authentication tag does not match")                          \
    X(E_RECORD, -55, "peer: a record that is malformed or of an unknown must-understand type")     \
    X(E_TLP_CRC, -56, "peer: TLP CRC does not match, the bytes changed inside a proxy")            \
    X(E_CHANNEL, -57, "peer: frame for a channel id that is not ours (an old incarnation?)")       \
    X(E_REPLAY, -58, "peer: a packet number seen before or too old to tell")                       \
    X(E_WINDOW, -59, "peer: a frame beyond the receive window")                                    \
    X(E_ACK, -60, "peer: acknowledges what was never sent")                                        \
    X(E_STATE, -61, "peer: a frame that this state of the channel does not expect")                \
    X(E_EPOCH, -62, "peer: a lease epoch below the highest seen; it holds an old lease")           \
    X(E_OFFER, -63, "peer: an open or accept with a value outside its range")                      \
    X(E_CPL_UNEXPECTED, -64, "peer: a completion that no request in flight asked for")             \
    X(E_CPL_BYTES, -65, "peer: a completion with other bytes than its request still expects")      \
    X(E_AGAIN, -80, "later: no room in this queue; ask again after an acknowledgement")            \
    X(E_CREDIT, -81, "later: no credit of this class; ask again after one comes")                  \
    X(E_MORE, -82, "later: a part was placed, the frame is full; go on in the next")               \
    X(E_NO_TAG, -83, "later: all tags are in flight; ask again after a completion")                \
    X(E_ARG, -96, "caller: an argument outside the range its comment states")                      \
    X(E_ROOM, -97, "caller: the buffer given is too small")                                        \
    X(E_OVERLAP, -98, "caller: the range overlaps another entry's")                                \
    X(E_FULL, -99, "caller: the table has no free entry; size it larger")                          \
    X(E_NONE, -100, "caller: no such entry")                                                       \
    X(E_TAG_BUSY, -101, "caller: a request with this requester ID and tag is in flight")           \
    X(E_CLOSED, -112, "fatal: the channel was closed; open a new incarnation")                     \
    X(E_DEAD, -113, "fatal: no valid frame for the hold time; open a new incarnation")             \
    X(E_RESET, -114, "fatal: the peer reset the channel; its reason says why")                     \
    X(E_PROTO, -115, "fatal: the peer broke a rule inside authentic frames; see last_error")

#define DXPUI_ERROR_ENUM(name, value, text) DXPU_##name = (value),
enum { DXPU_OK = 0, DXPU_ERRORS(DXPUI_ERROR_ENUM) DXPU_ERRORS_END };
#undef DXPUI_ERROR_ENUM

/* The sentence of an error, "ok" for 0, "unknown error" for a number that is none.  Static text. */
DXPU_API const char *dxpu_error_text(int error);
/* Its name without the DXPU_ prefix ("E_TLP_BE"), "OK" for 0.  Static text. */
DXPU_API const char *dxpu_error_name(int error);

/* What a channel counts.  rx_ counters of the second block name the reason of each refusal. */
#define DXPU_COUNTERS(X)                                                                           \
    X(tx_frames, "frames emitted, all kinds")                                                      \
    X(tx_bytes, "bytes emitted, headers and trailers included")                                    \
    X(tx_tlps, "TLPs put into frames for the first time")                                          \
    X(tx_tlps_acked, "TLPs the peer has stored")                                                   \
    X(tx_retransmits, "data frames sent again")                                                    \
    X(tx_timeouts, "retransmission timeouts")                                                      \
    X(tx_fast, "data frames found lost by acknowledgements of later ones")                         \
    X(tx_blocked, "times a class waited for credit longer than an RTO")                            \
    X(tx_local_prefixes, "local TLP prefixes ended here")                                          \
    X(rx_frames, "valid frames received, all kinds")                                               \
    X(rx_bytes, "bytes of valid frames")                                                           \
    X(rx_tlps, "TLPs stored for the consumer")                                                     \
    X(rx_reordered, "data frames that came before an earlier one")                                 \
    X(rx_duplicate, "data frames stored before")                                                   \
    X(rx_ecn_ce, "frames marked Congestion Experienced")                                           \
    X(rx_short, "refused: shorter than their header or format")                                    \
    X(rx_magic, "refused: not dxpu frames")                                                        \
    X(rx_version, "refused: another frame version")                                                \
    X(rx_kind, "refused: unknown kind")                                                            \
    X(rx_length, "refused: length field and datagram disagree")                                    \
    X(rx_rsvd, "refused: unknown must-understand bit")                                             \
    X(rx_crc, "refused: frame CRC or tag")                                                         \
    X(rx_record, "refused: malformed record")                                                      \
    X(rx_tlp_crc, "refused: TLP CRC")                                                              \
    X(rx_channel, "refused: another channel id")                                                   \
    X(rx_replay, "refused: packet number seen before")                                             \
    X(rx_window, "refused: beyond the receive window")                                             \
    X(rx_ack, "refused: acknowledgement of what was not sent")                                     \
    X(rx_state, "refused: not expected in this state")                                             \
    X(rx_offer, "refused: open or accept out of range")                                            \
    X(rx_cpl_refused, "completions dropped: not asked for, or other bytes than asked")             \
    X(rx_events_ignored, "link events of a type this version does not know")

#define DXPUI_COUNTER_FIELD(name, text) uint64_t name;
typedef struct dxpu_counters {
    DXPU_COUNTERS(DXPUI_COUNTER_FIELD)
} dxpu_counters;
#undef DXPUI_COUNTER_FIELD

/* Name and meaning of counter `index` (the order of DXPU_COUNTERS), and its value in *c (which may
   be NULL).  Returns NULL past the last: loop from 0 to print them all. */
DXPU_API const char *dxpu_counter_name(unsigned index);
DXPU_API const char *dxpu_counter_text(unsigned index);
DXPU_API uint64_t dxpu_counter_value(const dxpu_counters *c, unsigned index);

/* ==== 7  CRC-32 ==================================================================================
   zlib's CRC-32 (polynomial 0x04c11db7 reflected), which is also PCIe's LCRC and ECRC polynomial. */

/* Continue `crc` (0 to begin) over len bytes.  ptr may be NULL when len is 0.  O(len). */
DXPU_API uint32_t dxpu_crc32(uint32_t crc, const void *ptr, size_t len);

/* ==== 8  TLP codec ============================================================== spec/tlp.md ====
   Non-flit TLPs of PCIe Base Specification 5.0 (chapter 2) with the deferrable memory write of 6.0. */

/* The TLP types.  The X-macro is the enum, the names and the codec's table: name, Fmt[0] may be set
   (4-dword header), has data, Type[4:0], class. */
#define DXPU_TLP_TYPES(X)                                                                          \
    X(MRD, "MRd", 1, 0, 0x00, DXPU_NONPOSTED)                                                      \
    X(MRDLK, "MRdLk", 1, 0, 0x01, DXPU_NONPOSTED)                                                  \
    X(MWR, "MWr", 1, 1, 0x00, DXPU_POSTED)                                                         \
    X(IORD, "IORd", 0, 0, 0x02, DXPU_NONPOSTED)                                                    \
    X(IOWR, "IOWr", 0, 1, 0x02, DXPU_NONPOSTED)                                                    \
    X(CFGRD0, "CfgRd0", 0, 0, 0x04, DXPU_NONPOSTED)                                                \
    X(CFGWR0, "CfgWr0", 0, 1, 0x04, DXPU_NONPOSTED)                                                \
    X(CFGRD1, "CfgRd1", 0, 0, 0x05, DXPU_NONPOSTED)                                                \
    X(CFGWR1, "CfgWr1", 0, 1, 0x05, DXPU_NONPOSTED)                                                \
    X(MSG, "Msg", 1, 0, 0x10, DXPU_POSTED)                                                         \
    X(MSGD, "MsgD", 1, 1, 0x10, DXPU_POSTED)                                                       \
    X(CPL, "Cpl", 0, 0, 0x0a, DXPU_COMPLETION)                                                     \
    X(CPLD, "CplD", 0, 1, 0x0a, DXPU_COMPLETION)                                                   \
    X(CPLLK, "CplLk", 0, 0, 0x0b, DXPU_COMPLETION)                                                 \
    X(CPLDLK, "CplDLk", 0, 1, 0x0b, DXPU_COMPLETION)                                               \
    X(FETCHADD, "FetchAdd", 1, 1, 0x0c, DXPU_NONPOSTED)                                            \
    X(SWAP, "Swap", 1, 1, 0x0d, DXPU_NONPOSTED)                                                    \
    X(CAS, "CAS", 1, 1, 0x0e, DXPU_NONPOSTED)                                                      \
    X(DMWR, "DMWr", 1, 1, 0x1b, DXPU_NONPOSTED)

#define DXPUI_TLP_ENUM(name, text, dw4, data, code, cls) DXPU_TLP_##name,
enum { DXPU_TLP_TYPES(DXPUI_TLP_ENUM) DXPU_TLP_TYPE_COUNT };
#undef DXPUI_TLP_ENUM

/* dxpu_tlp.attr, Attr[2:0] */
enum {
    DXPU_ATTR_NS = 0x1, /* No Snoop                 */
    DXPU_ATTR_RO = 0x2, /* Relaxed Ordering         */
    DXPU_ATTR_IDO = 0x4 /* ID-based Ordering        */
};
enum { DXPU_CPL_SC = 0, DXPU_CPL_UR = 1, DXPU_CPL_CRS = 2, DXPU_CPL_CA = 4 }; /* dxpu_tlp.status */
/* dxpu_tlp.message_routing, Type[2:0] of a message */
enum {
    DXPU_MSG_TO_ROOT = 0,
    DXPU_MSG_BY_ADDRESS = 1,
    DXPU_MSG_BY_ID = 2,
    DXPU_MSG_BROADCAST = 3,
    DXPU_MSG_LOCAL = 4,
    DXPU_MSG_GATHERED = 5
};

enum {
    DXPU_TLP_PAYLOAD_MAX_BYTES = 4096,
    DXPU_TLP_HEADER_MAX_BYTES = 16,
    /* the largest TLP that may cross: four end-end prefixes, header, payload, digest */
    DXPU_TLP_MAX_BYTES = 16 + 16 + 4096 + 4
};

/* One decoded TLP.  Fields that the type does not have are 0. */
typedef struct dxpu_tlp {
    uint8_t type;       /* DXPU_TLP_* */
    uint8_t header_dw;  /* 3 or 4 */
    uint8_t tc;         /* 0..7 */
    uint8_t attr;       /* DXPU_ATTR_* */
    uint8_t at;         /* 0 untranslated, 1 translation request, 2 translated */
    uint8_t ph;         /* processing hint, 0..3, with th; No Write, 0..1, with at 1; else 0 */
    uint8_t steering;   /* ST[7:0]; only with th */
    bool th;            /* processing hint present */
    bool td;            /* digest (ECRC) present */
    bool ep;            /* poisoned */
    uint16_t length_dw; /* 1..1024; 0 where Length is reserved (Msg, Cpl, CplLk) */
    uint16_t requester; /* BDF */
    uint16_t tag;       /* 0..1023 */
    uint8_t first_be;   /* 0..15; requests to memory (not atomics), I/O and configuration */
    uint8_t last_be;
    uint64_t address;        /* bytes, dword aligned; memory, I/O, atomics, messages by address */
    uint16_t completer;      /* BDF; completions */
    uint8_t status;          /* DXPU_CPL_*; completions */
    bool bcm;                /* Byte Count Modified; completions */
    uint16_t byte_count;     /* 1..4096; completions */
    uint8_t lower_addr;      /* 0..127; completions */
    uint16_t target;         /* BDF; configuration requests and messages by ID */
    uint16_t register_bytes; /* configuration register offset, 0..4092 */
    uint8_t message_code;
    uint8_t message_routing; /* DXPU_MSG_* */
    /* Header bytes 8..15 of a message as two big-endian numbers.  encode() takes the target of a
       message by ID and the address of one by address from their own fields instead. */
    uint32_t message_dw[2];
    uint8_t prefix_count;
    uint32_t prefix[DXPU_PREFIXES_MAX]; /* in order; first byte in bits 31:24 */
    dxpu_bytes payload;                 /* into the decoded bytes; as it stands in the TLP */
    uint32_t digest;                    /* ECRC as a number; only with td */
} dxpu_tlp;

/* Decode one complete TLP under every rule of spec/tlp.md (T-).
   tlp   exactly one TLP: prefixes, header, payload, digest
   out   written on DXPU_OK only; payload points into tlp
   Returns DXPU_OK or DXPU_E_TLP_*.  encode() of the result gives the same bytes.  O(1). */
DXPU_API int dxpu_tlp_decode(dxpu_bytes tlp, dxpu_tlp *out);

/* Decode what an AER log or a truncated capture holds: prefixes (if any) and header, at least 12
   bytes for a 3-dword header.  Only what cannot be told is refused (E_TLP_SHORT, E_TLP_TYPE,
   E_TLP_ALL_ONES, E_TLP_ALL_ZERO, E_TLP_PREFIX*); reserved bits and residue are ignored.  payload
   is what of it is there, maybe less than length_dw says; digest is 0. */
DXPU_API int dxpu_tlp_decode_header(dxpu_bytes tlp, dxpu_tlp *out);

/* Check a decoded TLP against the rules that do not need its bytes.  Returns as dxpu_tlp_decode. */
DXPU_API int dxpu_tlp_check(const dxpu_tlp *t);

/* Encode t into out.  t must pass dxpu_tlp_check() and payload.len must be what length_dw says.
   out_len  gets the bytes written; with td the digest field is written as it stands, see
            dxpu_tlp_ecrc()
   Returns DXPU_OK, DXPU_E_TLP_*, or DXPU_E_ROOM.  O(payload). */
DXPU_API int dxpu_tlp_encode(const dxpu_tlp *t, uint8_t *out, size_t cap, size_t *out_len);

/* The header name ("MRd"), "?" when out of range. */
DXPU_API const char *dxpu_tlp_type_name(unsigned type);

/* Name of a prefix dword ("PASID", "TPH", "IDE", "MR-IOV", "VendPrefixL0"...), NULL when PCIe has
   none of this type.  *local (may be NULL) tells a local prefix from an end-end one. */
DXPU_API const char *dxpu_tlp_prefix_name(uint32_t prefix, bool *local);

/* Where the parts of a TLP lie, from its first bytes alone; what the channel needs to carry it. */
typedef struct dxpu_tlp_shape {
    uint8_t type;           /* DXPU_TLP_* */
    uint8_t cls;            /* DXPU_POSTED.. */
    uint8_t local_dw;       /* local prefixes, which come first */
    uint8_t prefix_dw;      /* all prefixes */
    uint8_t header_dw;      /* 3 or 4 */
    uint8_t digest_bytes;   /* 0 or 4 */
    uint16_t head_bytes;    /* prefixes and header */
    uint16_t payload_bytes; /* 0..4096 */
    uint16_t total_bytes;   /* everything */
} dxpu_tlp_shape;

/* Measure a TLP.  tlp must hold its prefixes and header; it may hold less or more than the whole.
   Returns DXPU_OK or E_TLP_SHORT, E_TLP_TYPE, E_TLP_PREFIX*.  O(prefixes). */
DXPU_API int dxpu_tlp_measure(dxpu_bytes tlp, dxpu_tlp_shape *out);

/* ECRC of one TLP: over end-end prefixes, header and payload with Type[0] and EP taken as 1 (Base
   Spec 2.7.1).  tlp may end before or after its digest.  0 when it cannot be measured or is short. */
DXPU_API uint32_t dxpu_tlp_ecrc(dxpu_bytes tlp);
/* Compare the digest of a whole TLP.  DXPU_OK (also without one), E_TLP_ECRC, or as measure. */
DXPU_API int dxpu_tlp_ecrc_check(dxpu_bytes tlp);
/* LCRC of a TLP (digest included) under a data link sequence number 0..4095 (Base Spec 3.6.2). */
DXPU_API uint32_t dxpu_tlp_lcrc(uint16_t sequence, dxpu_bytes tlp);
/* A CRC as PCIe sends it, least significant byte first, and back. */
DXPU_API void dxpu_tlp_crc_store(uint32_t crc, uint8_t out[4]);
DXPU_API uint32_t dxpu_tlp_crc_load(const uint8_t in[4]);

/* Byte enables for `bytes` (0..4096) at byte address `address`; 0 asks for a zero-length request.
   first_be, last_be and length_dw are written.  DXPU_OK, or E_ARG when the range crosses 4 KB. */
DXPU_API int dxpu_be_from_range(uint64_t address, uint32_t bytes, uint8_t *first_be,
                                uint8_t *last_be, uint16_t *length_dw);
/* The other way: offset of the first enabled byte from the dword address (0..3, 0 for none) and
   the span from it to the last enabled byte, 0 for a zero-length request (Base Spec 2.2.5). */
DXPU_API void dxpu_be_to_range(uint8_t first_be, uint8_t last_be, uint16_t length_dw,
                               uint32_t *offset_bytes, uint32_t *span_bytes);
/* True when [address, address + bytes) touches two 4 KB pages. */
DXPU_API bool dxpu_crosses_4k(uint64_t address, uint32_t bytes);
/* Bytes of the next request of a transfer: at most max_bytes (a power of two >= 4) and what is left
   to the 4 KB boundary.  left_bytes > 0. */
DXPU_API uint32_t dxpu_request_next(uint64_t address, uint32_t left_bytes, uint32_t max_bytes);

/* The completions of one memory read, first to last (Base Spec 2.3.1.1). */
typedef struct dxpu_cpl_split {
    uint64_t address;    /* byte address of what comes next */
    uint32_t left_bytes; /* bytes still to complete */
    uint32_t rcb_bytes;  /* 64 or 128 */
    uint32_t mps_bytes;  /* 128..4096 */
    bool zero_length;    /* one completion of one dword, Byte Count 1 */
} dxpu_cpl_split;
/* Start for a decoded MRd or MRdLk.  DXPU_OK or E_ARG (another type, rcb or mps out of range). */
DXPU_API int dxpu_cpl_split_start(dxpu_cpl_split *s, const dxpu_tlp *read, uint32_t rcb_bytes,
                                  uint32_t mps_bytes);
/* The next one: fills byte_count, lower_addr, length_dw of *cpl and *address_dw, the dword-aligned
   address of its payload.  False when all bytes have been completed.  O(1). */
DXPU_API bool dxpu_cpl_split_next(dxpu_cpl_split *s, dxpu_tlp *cpl, uint64_t *address_dw);

/* A completion for `req`: requester, tag, TC and attributes copied, Byte Count and Lower Address as
   the request's kind wants them; a completion with data when status is SC and the request asked for
   any (payload then is the caller's to set; for a read that needs splitting use dxpu_cpl_split). */
DXPU_API void dxpu_tlp_completion(const dxpu_tlp *req, uint16_t completer, uint8_t status,
                                  dxpu_tlp *cpl);

/* ==== 9  Classifier and messages =========================================== spec/route.md ==== */

/* how a TLP finds its way */
enum {
    DXPU_ROUTE_ADDRESS,
    DXPU_ROUTE_ID,
    DXPU_ROUTE_TO_ROOT,
    DXPU_ROUTE_BROADCAST,
    DXPU_ROUTE_LOCAL,
    DXPU_ROUTE_GATHERED
};

DXPU_API uint8_t dxpu_tlp_class(const dxpu_tlp *t);   /* DXPU_POSTED.. */
DXPU_API uint8_t dxpu_tlp_routing(const dxpu_tlp *t); /* DXPU_ROUTE_*; reserved ones are local */
DXPU_API const char *dxpu_class_name(unsigned cls);   /* "posted", "non-posted", "completion" */
DXPU_API const char *dxpu_routing_name(unsigned routing); /* "address", "id", "to-root", ... */
DXPU_API const char *dxpu_status_name(unsigned status);   /* "SC", "UR", "CRS", "CA", else "?" */

/* what a proxy does with a message, R-20 ff. */
enum {
    DXPU_MSG_FORWARD,   /* crosses the fabric as it is */
    DXPU_MSG_TERMINATE, /* ends here; its meaning is used or ignored, nothing crosses */
    DXPU_MSG_EVENT,     /* ends here and crosses as link event or virtual-wire state */
    DXPU_MSG_GATHER,    /* answers are collected here, one goes on */
    DXPU_MSG_REFUSE     /* not legal in this direction: Unsupported Request, counted */
};
enum { DXPU_DOWNSTREAM = 0, DXPU_UPSTREAM = 1 }; /* away from the host's root complex; towards it */

/* The messages that PCIe names: code, name, routing, has data (2: either), action downwards and
   upwards.  Rows are spec/route.md's table, one to one. */
#define DXPU_MESSAGES(X)                                                                           \
    X(0x00, "Unlock", BROADCAST, 0, FORWARD, REFUSE)                                               \
    X(0x01, "Invalidate_Request", BY_ID, 1, FORWARD, REFUSE)                                       \
    X(0x02, "Invalidate_Completion", BY_ID, 0, REFUSE, FORWARD)                                    \
    X(0x04, "Page_Request", TO_ROOT, 0, REFUSE, FORWARD)                                           \
    X(0x05, "PRG_Response", BY_ID, 0, FORWARD, REFUSE)                                             \
    X(0x10, "LTR", LOCAL, 0, REFUSE, TERMINATE)                                                    \
    X(0x12, "OBFF", LOCAL, 0, TERMINATE, REFUSE)                                                   \
    X(0x14, "PM_Active_State_Nak", LOCAL, 0, TERMINATE, REFUSE)                                    \
    X(0x18, "PM_PME", TO_ROOT, 0, REFUSE, FORWARD)                                                 \
    X(0x19, "PME_Turn_Off", BROADCAST, 0, FORWARD, REFUSE)                                         \
    X(0x1b, "PME_TO_Ack", GATHERED, 0, REFUSE, GATHER)                                             \
    X(0x20, "Assert_INTA", LOCAL, 0, REFUSE, EVENT)                                                \
    X(0x21, "Assert_INTB", LOCAL, 0, REFUSE, EVENT)                                                \
    X(0x22, "Assert_INTC", LOCAL, 0, REFUSE, EVENT)                                                \
    X(0x23, "Assert_INTD", LOCAL, 0, REFUSE, EVENT)                                                \
    X(0x24, "Deassert_INTA", LOCAL, 0, REFUSE, EVENT)                                              \
    X(0x25, "Deassert_INTB", LOCAL, 0, REFUSE, EVENT)                                              \
    X(0x26, "Deassert_INTC", LOCAL, 0, REFUSE, EVENT)                                              \
    X(0x27, "Deassert_INTD", LOCAL, 0, REFUSE, EVENT)                                              \
    X(0x30, "ERR_COR", TO_ROOT, 0, REFUSE, FORWARD)                                                \
    X(0x31, "ERR_NONFATAL", TO_ROOT, 0, REFUSE, FORWARD)                                           \
    X(0x33, "ERR_FATAL", TO_ROOT, 0, REFUSE, FORWARD)                                              \
    X(0x40, "Attention_Indicator_Off", LOCAL, 0, TERMINATE, REFUSE)                                \
    X(0x41, "Attention_Indicator_On", LOCAL, 0, TERMINATE, REFUSE)                                 \
    X(0x43, "Attention_Indicator_Blink", LOCAL, 0, TERMINATE, REFUSE)                              \
    X(0x44, "Power_Indicator_Off", LOCAL, 0, TERMINATE, REFUSE)                                    \
    X(0x45, "Power_Indicator_On", LOCAL, 0, TERMINATE, REFUSE)                                     \
    X(0x47, "Power_Indicator_Blink", LOCAL, 0, TERMINATE, REFUSE)                                  \
    X(0x48, "Attention_Button_Pressed", LOCAL, 0, REFUSE, TERMINATE)                               \
    X(0x50, "Set_Slot_Power_Limit", LOCAL, 1, EVENT, REFUSE)                                       \
    X(0x52, "PTM_Request", LOCAL, 0, REFUSE, TERMINATE)                                            \
    X(0x53, "PTM_Response", LOCAL, 2, TERMINATE, REFUSE)                                           \
    X(0x7e, "Vendor_Defined_Type_0", BY_ID, 2, FORWARD, FORWARD)                                   \
    X(0x7f, "Vendor_Defined_Type_1", BY_ID, 2, FORWARD, FORWARD)

/* Name of a message code, NULL when PCIe has none. */
DXPU_API const char *dxpu_message_name(unsigned code);
/* Code of a name, -1 when there is none. */
DXPU_API int dxpu_message_code(const char *name);
/* What a proxy does with message t (type Msg or MsgD) that travels DXPU_DOWNSTREAM or DXPU_UPSTREAM:
   DXPU_MSG_FORWARD..REFUSE.  Vendor messages with local routing terminate; unknown codes are refused. */
DXPU_API uint8_t dxpu_message_action(const dxpu_tlp *t, unsigned direction);

/* ==== 10  Routing tables ====================================================== spec/route.md ====
   The mapping tables of the paper (3.3.1, Tables 2 and 3) with function number and lease epoch. */

#define DXPU_FUNCTION_ALL 0xffffu /* the whole device of a slot */
#define DXPU_SLOT_HOST    0u      /* 'the host'; never a slot of a box */

/* A place in the fabric. */
typedef struct dxpu_place {
    uint32_t node;     /* proxy, numbered by the manager */
    uint16_t slot;     /* 1.. at a box, DXPU_SLOT_HOST at a host */
    uint16_t function; /* 0..255, or DXPU_FUNCTION_ALL */
} dxpu_place;

/* An address range, both ends included; empty while base > limit. */
typedef struct dxpu_range {
    uint64_t base;
    uint64_t limit;
} dxpu_range;

/* One row of Table 2: a downstream port of the virtual switch and what stands behind it.  The first
   block is the caller's, given to add(); the second is learnt from configuration writes. */
typedef struct dxpu_host_entry {
    dxpu_place box;   /* GPU Box ID, Slot ID (and function) */
    uint8_t path;     /* Path ID */
    uint64_t epoch;   /* lease epoch */
    uint32_t channel; /* the caller's handle of the channel that leads there */
    uint16_t port;    /* BDF of the downstream port itself */
    /* learnt */
    bool used;
    uint8_t bus;             /* Bus ID: first bus behind the port; 0 while not assigned */
    uint8_t bus_last;        /* subordinate bus */
    uint8_t flags;           /* private */
    dxpu_range memory;       /* Memory Base and Limit: non-prefetchable, below 4 GB */
    dxpu_range prefetchable; /* the same for the 64-bit prefetchable window */
    uint32_t reg[6];         /* type 1 registers 04h 18h 20h 24h 28h 2Ch as written */
} dxpu_host_entry;

/* One window in the sorted list; visible so that you can allocate it. */
typedef struct dxpu_host_window {
    dxpu_range range;
    uint32_t entry;
} dxpu_host_window;

typedef struct dxpu_host_table {
    dxpu_host_entry *entries;
    dxpu_host_window *windows; /* sorted by address, never overlapping */
    uint32_t capacity;
    uint32_t used;
    uint32_t window_count;
    uint32_t blocked;     /* entries with a window or bus range that overlaps another's */
    uint16_t by_bus[256]; /* entry + 1, 0 for none */
    struct {
        uint16_t requester, tag, port, register_bytes;
        uint8_t be, used;
        uint32_t value, entry;
    } pending[DXPU_HOST_PENDING];
    uint64_t count_learnt, count_overlap, count_pending_lost;
} dxpu_host_table;

/* Prepare an empty table.  entries[capacity] and windows[2 * capacity] stay the caller's memory and
   must outlive it.  capacity 1..65534.  DXPU_OK or E_ARG. */
DXPU_API int dxpu_host_init(dxpu_host_table *t, dxpu_host_entry *entries, dxpu_host_window *windows,
                            uint32_t capacity);
/* Add a row.  bus, memory and prefetchable may be preset (else leave 0 / base > limit) and are then
   checked.  Returns its index (>= 0) or E_FULL, E_OVERLAP, E_ARG.  O(capacity), rare. */
DXPU_API int dxpu_host_add(dxpu_host_table *t, const dxpu_host_entry *e);
/* Remove row `index`.  DXPU_OK or E_NONE.  O(capacity). */
DXPU_API int dxpu_host_remove(dxpu_host_table *t, uint32_t index);
/* Row whose window holds `address`; index or E_NONE.  O(log n).  Base Spec 7.5.1.3, R-2. */
DXPU_API int dxpu_host_by_address(const dxpu_host_table *t, uint64_t address);
/* Row behind which function `bdf` stands; index or E_NONE.  O(1). */
DXPU_API int dxpu_host_by_bdf(const dxpu_host_table *t, uint16_t bdf);
/* Row for a decoded TLP that goes down: by address for memory, I/O and atomics, by BDF for
   configuration, completions and messages by ID; index, or E_NONE (answer Unsupported Request;
   also what is routed implicitly: see dxpu_tlp_routing). */
DXPU_API int dxpu_host_route(const dxpu_host_table *t, const dxpu_tlp *tlp);
/* Row index was given another port BDF (its bus was renumbered).  DXPU_OK or E_NONE. */
DXPU_API int dxpu_host_set_port(dxpu_host_table *t, uint32_t index, uint16_t port);
/* Apply one configuration write to the port of row `index`: register offset, byte enables and the
   dword as a number (first byte in bits 7:0).  Registers other than those of `reg` do nothing.
   Returns DXPU_OK, E_NONE, or E_OVERLAP: the window stays off until it no longer overlaps. */
DXPU_API int dxpu_host_learn(dxpu_host_table *t, uint32_t index, uint16_t register_bytes,
                             uint8_t be, uint32_t value);
/* Show the table every configuration write on its way down and every completion on its way up: it
   learns from a write to one of its ports when the completion passes with status SC (R-6).  O(rows)
   for configuration writes, O(DXPU_HOST_PENDING) for completions. */
DXPU_API void dxpu_host_observe(dxpu_host_table *t, const dxpu_tlp *tlp);

/* One row of Table 3: a slot of a box. */
typedef struct dxpu_box_entry {
    bool valid;         /* a device is in place */
    bool used;          /* lent to a host */
    uint16_t slot;      /* 1..count */
    uint32_t host_node; /* Host Node ID */
    uint16_t host_slot; /* downstream port there */
    uint16_t function;
    uint8_t path;
    uint64_t epoch;      /* of the lease in force; 0 while not used */
    uint64_t epoch_seen; /* highest ever: fencing.  The caller keeps it over restarts */
    uint32_t channel;    /* the caller's handle */
} dxpu_box_entry;

typedef struct dxpu_box_table {
    dxpu_box_entry *entries; /* entries[slot - 1] */
    uint32_t count;
} dxpu_box_table;

/* entries[count] stay the caller's memory; all slots start without device.  DXPU_OK or E_ARG. */
DXPU_API int dxpu_box_init(dxpu_box_table *t, dxpu_box_entry *entries, uint32_t count);
/* Row of a slot, NULL when there is no such slot.  O(1).  The caller sets `valid`. */
DXPU_API dxpu_box_entry *dxpu_box_slot(const dxpu_box_table *t, uint16_t slot);
/* Lend a slot: DXPU_OK, E_NONE (no such slot or no device), E_EPOCH (epoch 0 or below the highest
   seen, or equal to it and held by another host), E_OVERLAP (lent to another host under an epoch as
   high). */
DXPU_API int dxpu_box_bind(dxpu_box_table *t, uint16_t slot, uint32_t host_node, uint16_t host_slot,
                           uint8_t path, uint64_t epoch);
/* End a lease.  The epoch seen stays.  DXPU_OK or E_NONE. */
DXPU_API int dxpu_box_release(dxpu_box_table *t, uint16_t slot);

/* ==== 11  Credits and tags ===================================================== spec/flow.md ====
   Flow control as PCIe's (Base Spec 2.6.1): per class, header units (one a TLP) and data units of 16
   payload bytes.  Counters are absolute and wrap; limits only rise in serial arithmetic. */

typedef struct dxpu_credits {
    uint32_t header[DXPU_CLASSES];
    uint32_t data[DXPU_CLASSES]; /* units of 16 bytes */
} dxpu_credits;

/* Data units that `payload_bytes` cost. */
DXPU_API uint32_t dxpu_credit_units(uint32_t payload_bytes);
/* True when one more TLP of `cls` with `data_units` keeps `used` within `limit`. */
DXPU_API bool dxpu_credit_fits(const dxpu_credits *limit, const dxpu_credits *used, unsigned cls,
                               uint32_t data_units);
/* Count one TLP in `c`. */
DXPU_API void dxpu_credit_add(dxpu_credits *c, unsigned cls, uint32_t data_units);
/* Raise each field of `limit` to `offered` where that is further on.  True if any rose. */
DXPU_API bool dxpu_credit_raise(dxpu_credits *limit, const dxpu_credits *offered);

/* -- Tags: every non-posted request in flight, as its requester's side knows it (F-20 ff.). -- */

/* how many tags one requester may use, and which (Base Spec 2.2.6.2) */
enum {
    DXPU_TAGS_32 = 32,   /* 0..31 */
    DXPU_TAGS_256 = 256, /* 0..255 */
    DXPU_TAGS_768 = 768  /* 256..1023: 10-bit tags whose upper two bits are never 0 */
};

typedef struct dxpu_tag_entry { /* visible so that you can allocate it; not API */
    uint64_t user;
    uint64_t deadline_ns;
    uint16_t requester;
    uint16_t tag;
    uint16_t left_bytes; /* to come in completions with data; 0: one without */
    uint8_t lower_addr;  /* expected in the next one */
    uint8_t kind;
    uint8_t state;
    uint16_t hash_head, hash_next; /* index + 1 */
    uint16_t prev, next;           /* index + 1, in order of deadline, or the free list */
} dxpu_tag_entry;

/* What the table tells of one request. */
typedef struct dxpu_request {
    uint64_t user; /* as given */
    uint16_t requester;
    uint16_t tag;
    uint16_t left_bytes; /* of a read: bytes not yet completed */
    bool done;           /* no further completion will come */
} dxpu_request;

typedef struct dxpu_tags {
    dxpu_tag_entry *entries;
    uint32_t capacity;
    uint32_t in_flight;
    uint64_t timeout_ns;
    uint16_t requester;            /* for alloc */
    uint16_t first_tag;            /* for alloc: tag of entries[0] */
    uint16_t free_head, free_tail; /* oldest freed first: a tag rests as long as it can */
    uint16_t live_head, live_tail; /* by deadline */
    uint16_t rest_head, rest_tail; /* timed out: withheld for one more timeout */
    uint32_t reserve_header;       /* completions that may still come, in credit units */
    uint32_t reserve_data;
    uint64_t count_unexpected, count_bytes, count_expired;
} dxpu_tags;

/* Prepare a table.
   entries    the caller's, capacity of them, 1..32768
   requester  BDF whose tags alloc() gives out; requests of others can be tracked as well
   mode       DXPU_TAGS_*, 0 when alloc() is not used; otherwise capacity must not exceed it
   timeout_ns from track() to expiry, > 0 (DXPU_NEVER: none)
   DXPU_OK or E_ARG. */
DXPU_API int dxpu_tags_init(dxpu_tags *t, dxpu_tag_entry *entries, uint32_t capacity,
                            uint16_t requester, unsigned mode, uint64_t timeout_ns);
/* A tag of the table's own requester that is not in flight: 0..1023, or E_NO_TAG.  Give it back by
   letting the request run, or with dxpu_tags_drop() when it is not sent.  O(1). */
DXPU_API int dxpu_tags_alloc(dxpu_tags *t);
/* A decoded non-posted request leaves: remember it.  `user` comes back with its completions.
   DXPU_OK, E_NO_TAG, E_TAG_BUSY, or E_ARG (not a non-posted request).  O(1). */
DXPU_API int dxpu_tags_track(dxpu_tags *t, const dxpu_tlp *req, uint64_t now_ns, uint64_t user);
/* A decoded completion arrives: match it on requester ID and tag, never on completer ID, and count
   its bytes down.  DXPU_OK and *out, or E_CPL_UNEXPECTED, E_CPL_BYTES; then nothing has changed but
   a counter, and the completion must be dropped.  O(1). */
DXPU_API int dxpu_tags_complete(dxpu_tags *t, const dxpu_tlp *cpl, dxpu_request *out);
/* Forget one request (not sent after all, or its function was reset).  DXPU_OK or E_NONE.  O(1). */
DXPU_API int dxpu_tags_drop(dxpu_tags *t, uint16_t requester, uint16_t tag);
/* The next request whose deadline has passed: true and *out, to be answered as a completion
   timeout; its tag rests for one more timeout so that a late completion meets nobody.  Call until
   false.  O(1). */
DXPU_API bool dxpu_tags_expire(dxpu_tags *t, uint64_t now_ns, dxpu_request *out);
/* The oldest request in flight, whatever its deadline: true and *out, and it is forgotten.  For
   containment: call until false, answer each with Unsupported Request.  O(1). */
DXPU_API bool dxpu_tags_pop(dxpu_tags *t, dxpu_request *out);
/* When dxpu_tags_expire() has work next, DXPU_NEVER when nothing is in flight. */
DXPU_API uint64_t dxpu_tags_next_ns(const dxpu_tags *t);
/* The most completions, in credit units, that a read of `bytes` from an address with these lower
   bits can bring (split at 64 bytes, F-24); for the room that its requester reserves. */
DXPU_API void dxpu_tags_worst(uint8_t lower_addr, uint32_t bytes, uint32_t *header, uint32_t *data);

/* ==== 12  Wire: frames and records ============================================= spec/wire.md ====
   One datagram is one frame: header, records, trailer.  Offsets in bytes from its start. */
enum {
    DXPU_FRAME_MAGIC = 0,       /* u16  0x4458, "DX"                         invariant, W-1 */
    DXPU_FRAME_VERSION = 2,     /* u8   DXPU_WIRE_VERSION                    invariant, W-2 */
    DXPU_FRAME_KIND = 3,        /* u8   DXPU_KIND_*                          invariant, W-3 */
    DXPU_FRAME_LENGTH = 4,      /* u16  bytes of the whole frame             invariant, W-4 */
    DXPU_FRAME_FLAGS = 6,       /* u8   0xc0 key phase, 0x30 must-understand, 0x0f ignorable  W-5 */
    DXPU_FRAME_PATH = 7,        /* u8   path it was sent on                             W-6 */
    DXPU_FRAME_CHANNEL = 8,     /* u32  receiver's channel id, 0 in open                W-7 */
    DXPU_FRAME_PACKET = 12,     /* u64  packet number                                   W-8 */
    DXPU_FRAME_BASE_BYTES = 20, /* kinds without sequence end here */
    DXPU_FRAME_SEQUENCE = 20,   /* u32  delivery order (data), next to be sent (ack)   D-1 */
    DXPU_FRAME_ACK = 24,        /* u32  next sequence expected                         D-2 */
    DXPU_FRAME_SACK = 28,       /* u64  bit i: ack + 1 + i has been stored             D-3 */
    DXPU_FRAME_SEEN = 36,       /* u64  largest packet number of a data frame seen     D-4 */
    DXPU_FRAME_DELAY = 44,      /* u32  nanoseconds since it came                      D-4 */
    DXPU_FRAME_ECN_CE = 48,     /* u32  data frames received with CE                   D-5 */
    DXPU_FRAME_LIMITS = 52,     /* 6 x u32  P, NP, CPL header units; the same for data F-3 */
    DXPU_FRAME_FULL_BYTES = 76,
    DXPU_FRAME_CRC_BYTES = 4, /* trailer of the CRC suite */
    DXPU_FRAME_TAG_MAX_BYTES = 32,
    DXPU_FRAME_MIN_LIMIT_BYTES = 1232, /* 1,280 of IPv6 less its and UDP's header       W-10 */
    DXPU_FRAME_MAX_LIMIT_BYTES = 65507,
    DXPU_HANDSHAKE_MAX_BYTES = 1200
};
#define DXPU_MAGIC 0x4458u

#define DXPU_KINDS(X) /* name, number, text; only the first three carry sequence and ack fields */ \
    X(DATA, 1, "data")                                                                             \
    X(ACK, 2, "ack")                                                                               \
    X(BLOCKED, 3, "blocked")                                                                       \
    X(OPEN, 4, "open")                                                                             \
    X(ACCEPT, 5, "accept")                                                                         \
    X(RESET, 6, "reset")                                                                           \
    X(CLOSE, 7, "close")                                                                           \
    X(HANDSHAKE, 8, "handshake")                                                                   \
    X(PROBE, 9, "probe")
#define DXPUI_KIND_ENUM(name, value, text) DXPU_KIND_##name = (value),
enum { DXPU_KINDS(DXPUI_KIND_ENUM) DXPU_KIND_END };
#undef DXPUI_KIND_ENUM
DXPU_API const char *dxpu_kind_name(unsigned kind); /* "data"; "?" for none */

/* A decoded frame header.  The second block is 0 in kinds that end at DXPU_FRAME_BASE_BYTES. */
typedef struct dxpu_frame {
    uint8_t kind;
    uint8_t key_phase; /* 0..3 */
    uint8_t path;
    uint32_t channel;
    uint64_t packet;
    uint32_t sequence;
    uint32_t ack;
    uint64_t sack;
    uint64_t seen;
    uint32_t delay_ns;
    uint32_t ecn_ce;
    dxpu_credits limits;
    dxpu_bytes body; /* records or the kind's own fields; into the decoded bytes */
} dxpu_frame;

/* The invariant part, of any version: kind, and channel id (0 when this version is not ours, *kind
   then is still what the byte says).  For demultiplexing before a channel is known.
   DXPU_OK, E_SHORT, E_MAGIC, E_VERSION, E_LENGTH.  Nothing is authenticated yet. */
DXPU_API int dxpu_frame_peek(dxpu_bytes datagram, uint8_t *kind, uint32_t *channel);
/* Decode the header.  trailer_bytes: 4 for the CRC suite, else the suite's tag.  Does not check the
   trailer.  DXPU_OK or a peer error. */
DXPU_API int dxpu_frame_decode(dxpu_bytes datagram, size_t trailer_bytes, dxpu_frame *out);
/* Write the header of f at out[0..]; the body of body_bytes and the trailer follow it by other
   hands.  Returns the header's bytes. out holds DXPU_FRAME_FULL_BYTES at least. */
DXPU_API size_t dxpu_frame_encode_header(const dxpu_frame *f, size_t body_bytes,
                                         size_t trailer_bytes, uint8_t *out);
/* CRC trailer: write it after `used` bytes; check it.  check: DXPU_OK, E_SHORT or E_CRC. */
DXPU_API void dxpu_frame_seal_crc(uint8_t *frame, size_t used);
DXPU_API int dxpu_frame_check_crc(dxpu_bytes datagram);

/* What open and accept say (W-20 ff.).  In an accept, versions and suites hold the one chosen. */
typedef struct dxpu_offer {
    uint32_t channel; /* id under which the sender receives; not 0 */
    uint8_t version_min, version_max;
    uint16_t suites;            /* bit set, DXPU_SUITE_* */
    uint16_t tlp_formats;       /* bit 0: non-flit */
    uint16_t window_frames;     /* the sender can receive so many beyond its ack */
    uint32_t frame_limit_bytes; /* largest frame the sender takes */
    uint32_t hold_ms;
    uint32_t sequence;              /* first frame sequence the sender will use */
    bool completions_infinite;      /* completion credits are not limited */
    dxpu_credits limits;            /* first credit limits */
    uint64_t epoch;                 /* lease epoch */
    dxpu_place source, destination; /* of the sender; of the receiver */
} dxpu_offer;
enum { DXPU_SUITE_CRC = 1 }; /* others: the security binding */
enum { DXPU_OFFER_BYTES = 84 };

DXPU_API void dxpu_offer_encode(const dxpu_offer *o, uint8_t out[DXPU_OFFER_BYTES]);
/* DXPU_OK, E_SHORT, E_RSVD, or E_OFFER. */
DXPU_API int dxpu_offer_decode(dxpu_bytes body, dxpu_offer *out);

#define DXPU_REASONS(X) /* why a channel was reset or closed */                                    \
    X(NONE, 0, "no reason given")                                                                  \
    X(DETACH, 1, "the device was detached")                                                        \
    X(SHUTDOWN, 2, "the proxy shuts down")                                                         \
    X(NO_SLOT, 3, "no such slot, or no device in it")                                              \
    X(BUSY, 4, "the slot is lent to another host")                                                 \
    X(EPOCH, 5, "the lease epoch is old")                                                          \
    X(VERSION, 6, "no common frame version, suite or TLP format")                                  \
    X(OFFER, 7, "a value in open or accept is out of range")                                       \
    X(PROTOCOL, 8, "a rule was broken inside valid frames")                                        \
    X(CREDIT, 9, "more was sent than credits allowed")                                             \
    X(REPLACED, 10, "a newer incarnation took over")                                               \
    X(HOLD, 11, "no valid frame for the hold time")
#define DXPUI_REASON_ENUM(name, value, text) DXPU_REASON_##name = (value),
enum { DXPU_REASONS(DXPUI_REASON_ENUM) DXPU_REASON_END };
#undef DXPUI_REASON_ENUM
DXPU_API const char *dxpu_reason_text(unsigned reason); /* "unknown reason" for none */

/* -- Records -- */
enum { DXPU_RECORD_TLP = 1, DXPU_RECORD_PAYLOAD = 2, DXPU_RECORD_EVENT = 3 };

#define DXPU_EVENTS(X)    /* name, number, body bytes after the event header */                    \
    X(HOT_RESET, 1, 0)    /* ON: asserted, else released                      */                   \
    X(LINK, 2, 4)         /* ON: up, with speed and width; else down          */                   \
    X(SLOT_POWER, 3, 0)   /* ON: powered                                      */                   \
    X(POWER_LIMIT, 4, 4)  /* value: milliwatts                                */                   \
    X(DEVICE_READY, 5, 0) /* ON: answers configuration requests               */                   \
    X(CONTAIN, 6, 4)      /* value: DXPU_REASON_*                             */                   \
    X(DMA_GRANT, 7, 16)   /* READ, WRITE: what is allowed in [base, base+length) */                \
    X(DMA_REVOKE, 8, 16)                                                                           \
    X(QUIESCE, 9, 0)                                                                               \
    X(DRAINED, 10, 0) /* value in flags: NOT_SUPPORTED                    */                       \
    X(RESUME, 11, 0)                                                                               \
    X(INTX, 12, 4) /* value: wires asserted, bit 0 INTA .. bit 3 INTD  */
#define DXPUI_EVENT_ENUM(name, value, bytes) DXPU_EVENT_##name = (value),
enum { DXPU_EVENTS(DXPUI_EVENT_ENUM) DXPU_EVENT_END };
#undef DXPUI_EVENT_ENUM
/* dxpu_event.flags; the high nibble is must-understand */
enum {
    DXPU_EVENT_ON = 0x80,
    DXPU_EVENT_READ = 0x40,
    DXPU_EVENT_WRITE = 0x20,
    DXPU_EVENT_NOT_SUPPORTED = 0x01
};

/* A link event: sequenced with the TLPs and a barrier between them (W-50 ff.). */
typedef struct dxpu_event {
    uint8_t type;  /* DXPU_EVENT_* */
    uint8_t flags; /* DXPU_EVENT_ON.. */
    uint8_t speed; /* LINK: as Current Link Speed, 1 = 2.5 GT/s .. 6 */
    uint8_t width; /* LINK: lanes, 1..32 */
    uint32_t value;
    uint64_t base, length; /* DMA windows, bytes */
} dxpu_event;

DXPU_API const char *dxpu_event_name(unsigned type); /* "LINK"; "?" for none */

/* One record of a frame body. */
typedef struct dxpu_record {
    uint8_t type; /* DXPU_RECORD_* */
    /* TLP: */
    uint8_t cls;
    uint8_t prefix_dw, header_dw;
    uint16_t data_bytes; /* payload and digest that follow in payload records */
    uint32_t tlp_crc;
    dxpu_bytes bytes; /* TLP: prefixes and header; PAYLOAD: data */
    dxpu_event event; /* EVENT */
} dxpu_record;

/* Take the next record off *body.  DXPU_OK; E_NONE at the end; E_RECORD.  Unknown records that may
   be ignored are skipped; an event of unknown type comes as type 0 of DXPU_RECORD_EVENT.  O(1). */
DXPU_API int dxpu_record_next(dxpu_bytes *body, dxpu_record *out);

/* The incremental builder: packs TLPs and events into the body of one frame. */
typedef struct dxpu_builder {
    uint8_t *out;
    size_t cap;
    size_t used;
} dxpu_builder;

/* A TLP on its way into frames: the caller's bytes and how far it has come. */
typedef struct dxpu_tlp_cursor {
    dxpu_bytes tlp;      /* prefixes (end-end only), header, payload, digest */
    uint32_t crc;        /* dxpu_crc32 over all of it */
    uint16_t head_bytes; /* prefixes and header */
    uint16_t at_bytes;   /* placed so far: 0, then head_bytes .. tlp.len */
    uint8_t cls;
    uint8_t prefix_dw;
} dxpu_tlp_cursor;

DXPU_API void dxpu_builder_init(dxpu_builder *b, uint8_t *body, size_t cap);
/* Start a cursor on a whole TLP: measures it and computes its CRC.  DXPU_OK, E_TLP_* (also
   E_TLP_PREFIX for local prefixes, which never cross: W-33), O(len). */
DXPU_API int dxpu_tlp_cursor_start(dxpu_tlp_cursor *c, dxpu_bytes tlp);
/* Place what fits.  DXPU_OK: all of it is placed; E_MORE: a part, the frame is full; E_ROOM:
   nothing fitted.  A TLP is begun only if its header record fits, and split only when the frame is
   full.  O(bytes placed). */
DXPU_API int dxpu_builder_tlp(dxpu_builder *b, dxpu_tlp_cursor *c);
/* DXPU_OK, E_ROOM, or E_ARG for a type that does not exist. */
DXPU_API int dxpu_builder_event(dxpu_builder *b, const dxpu_event *e);

/* ==== 13  Channel =========================================================== spec/deliver.md ====
   One attachment seen from one end: the reliable, ordered, credit-controlled link over datagrams. */

/* dxpu_channel_state(); rows of spec/deliver.md */
enum {
    DXPU_STATE_IDLE,     /* initialised */
    DXPU_STATE_OPENING,  /* open sent, accept awaited */
    DXPU_STATE_ACCEPTED, /* accept sent, first sequenced frame awaited */
    DXPU_STATE_UP,
    DXPU_STATE_DRAINING, /* close asked for: what was submitted is still delivered */
    DXPU_STATE_CLOSING,  /* close sent, the peer's awaited */
    DXPU_STATE_CLOSED,   /* both sides agreed */
    DXPU_STATE_FAILED    /* dxpu_channel_error() says why */
};
DXPU_API const char *dxpu_state_name(unsigned state); /* "idle", ... */

/* A transport suite that seals frames (AEAD).  All functions return at once.
   seal   encrypt body[body_bytes] in place and write the tag after it; header is authenticated
   open   the reverse: true when authentic
   nonce  is the packet number, unique for a key phase and direction */
typedef struct dxpu_suite {
    uint16_t id;       /* one DXPU_SUITE_* bit */
    uint8_t tag_bytes; /* 1..DXPU_FRAME_TAG_MAX_BYTES */
    bool (*seal)(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
                 size_t body_bytes);
    bool (*open)(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
                 size_t body_bytes);
} dxpu_suite;

/* Zero it with dxpu_channel_config_default(), then set what differs. */
typedef struct dxpu_channel_config {
    uint32_t local_id; /* under which we receive; random, not 0, not used by another channel here */
    uint32_t sequence; /* first frame sequence we send; random */
    uint64_t epoch;    /* lease epoch, > 0 */
    dxpu_place local, remote;
    uint32_t window_frames; /* frames in flight each way: a power of two, 4..16384 [64] */
    uint32_t
        frame_limit_bytes;   /* largest frame we send or take: MTU less IP and UDP headers [1452] */
    dxpu_credits rx;         /* what we store per class until it is taken [64 / 512 each] */
    dxpu_credits tx;         /* what we queue per class until acknowledged [64 / 512 each] */
    uint64_t hold_ns;        /* silence that ends the channel [1 s] */
    uint64_t rto_min_ns;     /* [1 ms] */
    uint64_t ack_delay_ns;   /* an acknowledgement waits so long for company [25 us] */
    dxpu_tags *tags;         /* requests we send and the completions we take; NULL: unmatched.
                                   Must have room: the caller's, of this channel alone */
    const dxpu_suite *suite; /* NULL: CRC-32 */
    void *suite_user;
} dxpu_channel_config;

/* What a consumer is offered. */
typedef struct dxpu_delivery {
    dxpu_bytes tlp; /* {NULL, 0}: nothing may go now.  Valid until taken */
    uint64_t user;  /* completions with `tags`: as given to submit() with the request */
    bool last;      /* ... and no further completion of it will come */
} dxpu_delivery;

/* -- private layouts, visible so that a channel can be a member of your struct -- */
typedef struct dxpui_fifo { /* TLPs of one class in a byte ring, and their credit units */
    uint8_t *mem;
    uint32_t cap;
    uint32_t head, next, tail; /* byte positions: oldest, next to offer, free */
    uint32_t count, waiting;   /* entries from head, from next */
    uint32_t header_max, data_max;
    uint32_t header_used, data_used;
    uint32_t id_changes; /* neighbours waiting whose requesters differ (IDO) */
    uint16_t tail_id;    /* requester of the youngest */
} dxpui_fifo;

typedef struct dxpui_sent { /* one data frame in flight */
    uint64_t sent_ns;
    uint32_t packet_lo;
    uint32_t tx_index; /* order of transmission */
    uint16_t first;    /* place in the sent list of the item it begins with or continues */
    uint16_t at_bytes; /* how far that item had come before it */
    uint16_t body_bytes;
    uint16_t state;
} dxpui_sent;

typedef struct dxpu_channel {
    /* what it is */
    dxpu_channel_config cfg;
    uint8_t state;
    uint8_t reason;
    uint8_t busy;
    bool completions_infinite; /* the peer takes any number */
    int error;
    int last_error;
    uint32_t remote_id;
    uint32_t frame_limit; /* of this incarnation */
    uint32_t tx_window;   /* frames */
    uint32_t trailer;
    /* handshake, keep-alive, close */
    uint64_t started_ns, heard_ns, next_try_ns, probe_ns;
    uint64_t probe_cookie;
    uint8_t tries, send_accept, send_close, send_reset, send_probe, send_echo;
    /* sending */
    dxpui_fifo tx[DXPU_CLASSES];
    dxpui_sent *sent;
    uint32_t *list; /* what was put into frames, in order: class and byte position */
    dxpu_event *tx_events;
    uint16_t *log; /* transmissions in order: low bits of the sequence */
    uint32_t list_mask, list_head, list_tail;
    uint32_t event_head, event_next, event_tail;
    uint32_t order;         /* of submission */
    dxpu_tlp_cursor cursor; /* the TLP that is only partly in frames */
    uint64_t packet;        /* next packet number */
    uint32_t una, nxt;      /* frame sequences: oldest unacknowledged, next new */
    uint32_t lost;          /* frames marked for retransmission */
    uint32_t lost_from;     /* none before this one */
    uint32_t tx_index, log_scan, tx_index_acked;
    bool any_acked;
    dxpu_credits limits, used;
    uint64_t srtt_ns, rttvar_ns, rto_ns, rto_at_ns;
    uint8_t backoff;
    uint8_t blocked_tries;
    uint64_t blocked_at_ns;
    /* receiving */
    dxpui_fifo rx[DXPU_CLASSES];
    uint64_t *replay; /* packet numbers seen, a window of bits */
    uint32_t replay_bits;
    uint64_t replay_top;     /* one past the largest */
    uint8_t *reorder;        /* window x frame body */
    uint16_t *reorder_bytes; /* 0: empty */
    dxpu_event *rx_events;
    uint32_t *rx_event_order;
    uint32_t rx_next;
    uint32_t rx_held; /* frames waiting for an earlier one */
    uint32_t rx_order;
    uint32_t rx_event_head, rx_event_tail;
    struct { /* the TLP whose payload is still coming */
        uint8_t cls, active;
        uint16_t at_bytes, total_bytes;
        uint32_t pos, crc;
    } part;
    dxpu_credits granted, told;
    uint64_t seen, seen_ns;
    uint32_t ecn_ce;
    uint32_t unacked; /* data frames not yet acknowledged */
    uint64_t ack_at_ns;
    bool ack_now;
    dxpu_counters count;
} dxpu_channel;

/* Sensible values, in brackets above; ids, epoch and places are left 0 for the caller to set. */
DXPU_API void dxpu_channel_config_default(dxpu_channel_config *cfg);
/* Bytes of memory, 8-byte aligned, that a channel of this configuration needs; 0 when a value is
   out of range. */
DXPU_API size_t dxpu_channel_bytes(const dxpu_channel_config *cfg);
/* Initialise.  mem stays the caller's and must outlive the channel.  Layouts are checked: a program
   whose parts disagree on the options of section 2 gets E_ARG.
   DXPU_OK or E_ARG.  Time starts when it is opened or accepted. */
#define dxpu_channel_init(ch, cfg, mem, mem_bytes)                                                 \
    dxpu_channel_init_sized((ch), sizeof *(ch), (cfg), (mem), (mem_bytes))
DXPU_API int dxpu_channel_init_sized(dxpu_channel *ch, size_t ch_bytes,
                                     const dxpu_channel_config *cfg, void *mem, size_t mem_bytes);

/* Begin as the side that opens (the host).  DXPU_OK or E_ARG when not idle. */
DXPU_API int dxpu_channel_open(dxpu_channel *ch, uint64_t now_ns);
/* Begin as the side that accepts: `open` is a whole open frame whose offer the caller has looked at
   and found welcome (slot, lease, epoch).  Fails with E_VERSION, E_OFFER or E_EPOCH (another epoch
   than cfg's) and then stays idle: answer with dxpu_reset_encode().  The opener's old incarnation,
   if any, must live on until this one is UP: a late duplicate of an old open never gets that far. */
DXPU_API int dxpu_channel_accept(dxpu_channel *ch, uint64_t now_ns, const uint8_t *open,
                                 size_t len);
/* A reset frame that refuses an open: to the opener's id, for a `reason`.  Returns its bytes;
   out[64]. */
DXPU_API size_t dxpu_reset_encode(uint32_t channel, uint8_t reason, uint8_t out[64]);

enum { DXPU_RX_ECN_CE = 1 }; /* flags of ingest */
/* Take one datagram from the network.
   pkt    1..65535 bytes; altered when a suite opens it in place; not kept
   Returns DXPU_OK, or a peer error after counting it (drop the datagram and go on), or the fatal
   error that it caused.  O(records), O(window) over the life of a loss. */
DXPU_API int dxpu_channel_ingest(dxpu_channel *ch, uint64_t now_ns, uint8_t *pkt, size_t len,
                                 unsigned flags);
/* Write the next frame that wants to leave into out.  cap must be at least the frame limit.
   path   gets the path to send it on
   Returns its bytes (> 0), 0 when nothing is due, or a fatal error; a channel that fails still
   emits one reset first.  Call until 0.  O(bytes). */
DXPU_API int dxpu_channel_emit(dxpu_channel *ch, uint64_t now_ns, uint8_t *out, size_t cap,
                               uint8_t *path);
/* When emit() has something next: 0 now, DXPU_NEVER nothing armed. */
DXPU_API uint64_t dxpu_channel_next_ns(const dxpu_channel *ch);

/* Queue one whole TLP (prefixes, header, payload, digest); copied, local prefixes are left out.
   user   comes back with the completions of a non-posted request when the channel has tags
   DXPU_OK; E_AGAIN (the class's queue is full, or no room for its completions); E_NO_TAG;
   E_TAG_BUSY; E_TLP_*; E_CLOSED and other fatal ones; E_ARG before it was opened.  O(len). */
DXPU_API int dxpu_channel_submit(dxpu_channel *ch, dxpu_bytes tlp, uint64_t now_ns, uint64_t user);
/* Queue a link event behind everything submitted before.  DXPU_OK, E_AGAIN, E_ARG, fatal. */
DXPU_API int dxpu_channel_submit_event(dxpu_channel *ch, const dxpu_event *e);

/* The next TLP of a class that PCIe's ordering table lets go now (D-30 ff.).  O(1). */
DXPU_API dxpu_delivery dxpu_channel_peek(const dxpu_channel *ch, unsigned cls);
/* Remove what peek() showed; its credits go back to the sender.  DXPU_OK or E_NONE. */
DXPU_API int dxpu_channel_take(dxpu_channel *ch, unsigned cls, uint64_t now_ns);
/* The next link event, if all TLPs before it have been taken.  True and *out. */
DXPU_API bool dxpu_channel_peek_event(const dxpu_channel *ch, dxpu_event *out);
DXPU_API int dxpu_channel_take_event(dxpu_channel *ch);

/* Close in order: what was submitted is delivered first.  E_ARG before it was opened. */
DXPU_API int dxpu_channel_close(dxpu_channel *ch, uint64_t now_ns, uint8_t reason);
/* End at once; the peer is told by a reset frame. */
DXPU_API void dxpu_channel_reset(dxpu_channel *ch, uint8_t reason);

DXPU_API unsigned dxpu_channel_state(const dxpu_channel *ch); /* DXPU_STATE_IDLE.. */
DXPU_API int dxpu_channel_error(const dxpu_channel *ch);      /* 0, or why it is FAILED or CLOSED */
DXPU_API uint8_t
dxpu_channel_reason(const dxpu_channel *ch); /* DXPU_REASON_*, ours or the peer's */
/* what dxpu_channel_wants() answers, computed, never stored */
enum {
    DXPU_WANTS_EMIT = 1,        /* emit() would give a frame now */
    DXPU_WANTS_TAKE_POSTED = 2, /* peek() would show one */
    DXPU_WANTS_TAKE_NONPOSTED = 4,
    DXPU_WANTS_TAKE_COMPLETION = 8,
    DXPU_WANTS_TAKE_EVENT = 16,
    DXPU_WANTS_ACK = 32 /* something submitted is not yet acknowledged */
};
DXPU_API unsigned dxpu_channel_wants(const dxpu_channel *ch, uint64_t now_ns);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_H_INCLUDED */

/* ################################################################################################
   IMPLEMENTATION.  A section calls only sections of lower number, so it reads downwards. */
#if defined(DXPU_IMPLEMENTATION) && !defined(DXPU_IMPLEMENTED)
#define DXPU_IMPLEMENTED

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 5'  Loads, stores, zero, serial numbers ================================================= */

static inline uint16_t dxpui_load16(const uint8_t *p)
{
    return (uint16_t)((unsigned)p[0] << 8 | p[1]);
}

static inline uint32_t dxpui_load32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t dxpui_load64(const uint8_t *p)
{
    return (uint64_t)dxpui_load32(p) << 32 | dxpui_load32(p + 4);
}

static inline void dxpui_store16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void dxpui_store32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static inline void dxpui_store64(uint8_t *p, uint64_t v)
{
    dxpui_store32(p, (uint32_t)(v >> 32));
    dxpui_store32(p + 4, (uint32_t)v);
}

static inline void dxpui_zero(void *p, size_t bytes)
{
    memset(p, 0, bytes);
}

/* memcpy for lengths that may be 0 with a NULL source. */
static inline void dxpui_copy(void *to, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
}

/* < 0: a before b.  Windows keep the ambiguous distance of 2^31 out of reach (D-7). */
static inline int32_t dxpui_seq_cmp(uint32_t a, uint32_t b)
{
    uint32_t d = a - b;
    return d == 0 ? 0 : (d & 0x80000000u) ? -1 : 1;
}

static inline uint64_t dxpui_min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t dxpui_max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* a + b, DXPU_NEVER instead of wrapping. */
static inline uint64_t dxpui_later(uint64_t a, uint64_t b)
{
    return a > DXPU_NEVER - b ? DXPU_NEVER : a + b;
}

/* ==== 6'  Error and counter names ============================================================= */

DXPU_API const char *dxpu_error_text(int error)
{
#define DXPUI_CASE(name, value, text)                                                              \
    case DXPU_##name:                                                                              \
        return text;
    switch (error) {
    case DXPU_OK:
        return "ok";
        DXPU_ERRORS(DXPUI_CASE)
    default:
        return "unknown error";
    }
#undef DXPUI_CASE
}

DXPU_API const char *dxpu_error_name(int error)
{
#define DXPUI_CASE(name, value, text)                                                              \
    case DXPU_##name:                                                                              \
        return #name;
    switch (error) {
    case DXPU_OK:
        return "OK";
        DXPU_ERRORS(DXPUI_CASE)
    default:
        return "E_UNKNOWN";
    }
#undef DXPUI_CASE
}

#define DXPUI_NAME(name, text) #name,
#define DXPUI_TEXT(name, text) text,
static const char *const dxpui_counter_names[] = { DXPU_COUNTERS(DXPUI_NAME) };
static const char *const dxpui_counter_texts[] = { DXPU_COUNTERS(DXPUI_TEXT) };
#undef DXPUI_NAME
#undef DXPUI_TEXT
enum { DXPUI_COUNTER_COUNT = sizeof dxpui_counter_names / sizeof dxpui_counter_names[0] };

DXPU_API const char *dxpu_counter_name(unsigned index)
{
    return index < DXPUI_COUNTER_COUNT ? dxpui_counter_names[index] : NULL;
}

DXPU_API const char *dxpu_counter_text(unsigned index)
{
    return index < DXPUI_COUNTER_COUNT ? dxpui_counter_texts[index] : NULL;
}

DXPU_API uint64_t dxpu_counter_value(const dxpu_counters *c, unsigned index)
{
    uint64_t value = 0;
    if (c && index < DXPUI_COUNTER_COUNT)
        memcpy(&value, (const uint8_t *)c + index * sizeof value, sizeof value);
    return value;
}

/* ==== 7'  CRC-32 ============================================================================== */

/* The CRC is linear: an entry is the sum of the entries of its bits, so a table is written as eight
   constants and the compiler computes the rest. */
#define DXPUI_CRC_ENTRY(i, a, b, c, d, e, f, g, h)                                                 \
    (((0u - ((i)&1u)) & (a)) ^ ((0u - ((i) >> 1 & 1u)) & (b)) ^ ((0u - ((i) >> 2 & 1u)) & (c)) ^   \
     ((0u - ((i) >> 3 & 1u)) & (d)) ^ ((0u - ((i) >> 4 & 1u)) & (e)) ^                             \
     ((0u - ((i) >> 5 & 1u)) & (f)) ^ ((0u - ((i) >> 6 & 1u)) & (g)) ^                             \
     ((0u - ((i) >> 7 & 1u)) & (h)))
#if DXPU_CRC_TABLES > 0
#define DXPUI_CRC_R4(T, i) T((i)), T((i) + 1u), T((i) + 2u), T((i) + 3u)
#define DXPUI_CRC_R16(T, i)                                                                        \
    DXPUI_CRC_R4(T, i), DXPUI_CRC_R4(T, (i) + 4u), DXPUI_CRC_R4(T, (i) + 8u),                      \
        DXPUI_CRC_R4(T, (i) + 12u)
#define DXPUI_CRC_R64(T, i)                                                                        \
    DXPUI_CRC_R16(T, i), DXPUI_CRC_R16(T, (i) + 16u), DXPUI_CRC_R16(T, (i) + 32u),                 \
        DXPUI_CRC_R16(T, (i) + 48u)
#define DXPUI_CRC_ALL(T)                                                                           \
    {                                                                                              \
        DXPUI_CRC_R64(T, 0u), DXPUI_CRC_R64(T, 64u), DXPUI_CRC_R64(T, 128u),                       \
            DXPUI_CRC_R64(T, 192u)                                                                 \
    }
#define DXPUI_CRC_T0(i)                                                                            \
    DXPUI_CRC_ENTRY(i, 0x77073096u, 0xee0e612cu, 0x076dc419u, 0x0edb8832u, 0x1db71064u,            \
                    0x3b6e20c8u, 0x76dc4190u, 0xedb88320u)
#if DXPU_CRC_TABLES == 8
#define DXPUI_CRC_T1(i)                                                                            \
    DXPUI_CRC_ENTRY(i, 0x191b3141u, 0x32366282u, 0x646cc504u, 0xc8d98a08u, 0x4ac21251u,            \
                    0x958424a2u, 0xf0794f05u, 0x3b83984bu)
#define DXPUI_CRC_T2(i)                                                                            \
    DXPUI_CRC_ENTRY(i, 0x01c26a37u, 0x0384d46eu, 0x0709a8dcu, 0x0e1351b8u, 0x1c26a370u,            \
                    0x384d46e0u, 0x709a8dc0u, 0xe1351b80u)
#define DXPUI_CRC_T3(i)                                                                            \
    DXPUI_CRC_ENTRY(i, 0xb8bc6765u, 0xaa09c88bu, 0x8f629757u, 0xc5b428efu, 0x5019579fu,            \
                    0xa032af3eu, 0x9b14583du, 0xed59b63bu)
#define DXPUI_CRC_T4(i)                                                                            \
    DXPUI_CRC_ENTRY(i, 0x3d6029b0u, 0x7ac05360u, 0xf580a6c0u, 0x30704bc1u, 0x60e09782u,            \
                    0xc1c12f04u, 0x58f35849u, 0xb1e6b092u)
#define DXPUI_CRC_T5(i)                                                                            \
    DXPUI_CRC_ENTRY(i, 0xcb5cd3a5u, 0x4dc8a10bu, 0x9b914216u, 0xec53826du, 0x03d6029bu,            \
                    0x07ac0536u, 0x0f580a6cu, 0x1eb014d8u)
#define DXPUI_CRC_T6(i)                                                                            \
    DXPUI_CRC_ENTRY(i, 0xa6770bb4u, 0x979f1129u, 0xf44f2413u, 0x33ef4e67u, 0x67de9cceu,            \
                    0xcfbd399cu, 0x440b7579u, 0x8816eaf2u)
#define DXPUI_CRC_T7(i)                                                                            \
    DXPUI_CRC_ENTRY(i, 0xccaa009eu, 0x4225077du, 0x844a0efau, 0xd3e51bb5u, 0x7cbb312bu,            \
                    0xf9766256u, 0x299dc2edu, 0x533b85dau)
#endif
static const uint32_t dxpui_crc_table[DXPU_CRC_TABLES][256] = {
    DXPUI_CRC_ALL(DXPUI_CRC_T0),
#if DXPU_CRC_TABLES == 8
    DXPUI_CRC_ALL(DXPUI_CRC_T1), DXPUI_CRC_ALL(DXPUI_CRC_T2), DXPUI_CRC_ALL(DXPUI_CRC_T3),
    DXPUI_CRC_ALL(DXPUI_CRC_T4), DXPUI_CRC_ALL(DXPUI_CRC_T5), DXPUI_CRC_ALL(DXPUI_CRC_T6),
    DXPUI_CRC_ALL(DXPUI_CRC_T7),
#endif
};
#else
static const uint32_t dxpui_crc_nibble[16] = { 0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu,
                                               0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
                                               0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
                                               0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu };
#endif

DXPU_API uint32_t dxpu_crc32(uint32_t crc, const void *ptr, size_t len)
{
#ifdef DXPU_CRC32
    return DXPU_CRC32(crc, ptr, len);
#else
    const uint8_t *p = (const uint8_t *)ptr;
    crc = ~crc;
#if DXPU_CRC_TABLES == 8
    for (; len >= 8; len -= 8, p += 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = dxpui_crc_table[7][crc & 0xffu] ^ dxpui_crc_table[6][crc >> 8 & 0xffu] ^
              dxpui_crc_table[5][crc >> 16 & 0xffu] ^ dxpui_crc_table[4][crc >> 24] ^
              dxpui_crc_table[3][p[4]] ^ dxpui_crc_table[2][p[5]] ^ dxpui_crc_table[1][p[6]] ^
              dxpui_crc_table[0][p[7]];
    }
#endif
    for (; len; len--, p++) {
#if DXPU_CRC_TABLES > 0
        crc = crc >> 8 ^ dxpui_crc_table[0][(crc ^ *p) & 0xffu];
#else
        crc ^= *p;
        crc = crc >> 4 ^ dxpui_crc_nibble[crc & 0xfu];
        crc = crc >> 4 ^ dxpui_crc_nibble[crc & 0xfu];
#endif
    }
    return ~crc;
#endif
}

/* ==== 8'  TLP codec =========================================================================== */

/* what the types have in common: where their fields stand */
enum { DXPUI_MEM, DXPUI_ATOMIC, DXPUI_IO, DXPUI_CFG, DXPUI_MSG, DXPUI_CPL };

typedef struct dxpui_tlp_row {
    const char *name;
    uint8_t dw4, data, code, cls;
} dxpui_tlp_row;

#define DXPUI_ROW(name, text, dw4, data, code, cls) { text, dw4, data, code, cls },
static const dxpui_tlp_row dxpui_tlp_rows[] = { DXPU_TLP_TYPES(DXPUI_ROW) };
#undef DXPUI_ROW

static inline unsigned dxpui_tlp_kind(unsigned type)
{
    switch (dxpui_tlp_rows[type].code) {
    case 0x02:
        return DXPUI_IO;
    case 0x04:
    case 0x05:
        return DXPUI_CFG;
    case 0x0a:
    case 0x0b:
        return DXPUI_CPL;
    case 0x0c:
    case 0x0d:
    case 0x0e:
        return DXPUI_ATOMIC;
    case 0x10:
        return DXPUI_MSG;
    default:
        return DXPUI_MEM;
    }
}

/* Header dwords that a type's Fmt[0] gives, 0 when the type has no such format (T-4). */
static inline unsigned dxpui_tlp_header_dw(unsigned type, bool fmt0)
{
    if (fmt0)
        return dxpui_tlp_rows[type].dw4 ? 4 : 0;
    return type == DXPU_TLP_MSG || type == DXPU_TLP_MSGD ? 0 : 3;
}

/* Type of a header's first byte, DXPU_TLP_TYPE_COUNT for none.  Fmt[0] is left out of the key, and so
   is the routing of messages.  Compilers make one table look-up of it. */
static inline unsigned dxpui_tlp_type(unsigned byte0)
{
#define DXPUI_CASE(name, text, dw4, data, code, cls)                                               \
    case (data) << 6 | (code):                                                                     \
        type = DXPU_TLP_##name;                                                                    \
        break;
    unsigned type = DXPU_TLP_TYPE_COUNT;
    switch (byte0 & ((byte0 & 0x18) == 0x10 ? 0xd8u : 0xdfu)) {
        DXPU_TLP_TYPES(DXPUI_CASE)
    default:
        break;
    }
    return type;
#undef DXPUI_CASE
}

/* Length is reserved: Msg, Cpl, CplLk (T-7). */
static inline bool dxpui_tlp_no_length(unsigned type)
{
    return type == DXPU_TLP_MSG || type == DXPU_TLP_CPL || type == DXPU_TLP_CPLLK;
}

static inline unsigned dxpui_tlp_length(unsigned type, const uint8_t *h)
{
    unsigned length = (h[2] & 0x3u) << 8 | h[3];
    if (dxpui_tlp_no_length(type))
        return 0;
    return length ? length : 1024;
}

DXPU_API const char *dxpu_tlp_type_name(unsigned type)
{
    return type < DXPU_TLP_TYPE_COUNT ? dxpui_tlp_rows[type].name : "?";
}

/* -- Prefixes (T-20 ff.) -- */

DXPU_API const char *dxpu_tlp_prefix_name(uint32_t prefix, bool *local)
{
    if (local)
        *local = (prefix >> 28) == 0x8u;
    switch (prefix >> 24) {
    case 0x80:
        return "MR-IOV";
    case 0x8e:
        return "VendPrefixL0";
    case 0x8f:
        return "VendPrefixL1";
    case 0x90:
        return "TPH";
    case 0x91:
        return "PASID";
    case 0x92:
        return "IDE";
    case 0x9e:
        return "VendPrefixE0";
    case 0x9f:
        return "VendPrefixE1";
    default:
        return NULL;
    }
}

/* Count one more prefix whose first byte is byte0. */
static int dxpui_prefix_add(unsigned byte0, unsigned *local, unsigned *all)
{
    bool is_local = false;
    if (!dxpu_tlp_prefix_name((uint32_t)byte0 << 24, &is_local))
        return DXPU_E_TLP_PREFIX;
    if (is_local && *local != *all)
        return DXPU_E_TLP_PREFIX_ORDER;
    if (*all >= DXPU_PREFIXES_MAX || (!is_local && *all - *local >= 4))
        return DXPU_E_TLP_PREFIX_COUNT;
    *local += is_local;
    *all += 1;
    return DXPU_OK;
}

DXPU_API int dxpu_tlp_measure(dxpu_bytes tlp, dxpu_tlp_shape *out)
{
    unsigned local = 0, prefixes = 0, type, header_dw, head_bytes, payload_bytes, digest_bytes;
    const uint8_t *h = tlp.ptr;
    size_t left = tlp.len;
    for (; left >= 4 && (h[0] & 0xe0) == 0x80; h += 4, left -= 4) {
        int rc = dxpui_prefix_add(h[0], &local, &prefixes);
        if (rc != DXPU_OK)
            return rc;
    }
    if (left < 4)
        return DXPU_E_TLP_SHORT;
    type = dxpui_tlp_type(h[0]);
    header_dw = type < DXPU_TLP_TYPE_COUNT ? dxpui_tlp_header_dw(type, (h[0] & 0x20) != 0) : 0;
    if (!header_dw)
        return DXPU_E_TLP_TYPE;
    if (left < header_dw * 4)
        return DXPU_E_TLP_SHORT;
    head_bytes = (prefixes + header_dw) * 4;
    payload_bytes = dxpui_tlp_rows[type].data ? dxpui_tlp_length(type, h) * 4 : 0;
    digest_bytes = h[2] & 0x80 ? 4 : 0;
    out->type = (uint8_t)type;
    out->cls = dxpui_tlp_rows[type].cls;
    out->local_dw = (uint8_t)local;
    out->prefix_dw = (uint8_t)prefixes;
    out->header_dw = (uint8_t)header_dw;
    out->digest_bytes = (uint8_t)digest_bytes;
    out->head_bytes = (uint16_t)head_bytes;
    out->payload_bytes = (uint16_t)payload_bytes;
    out->total_bytes = (uint16_t)(head_bytes + payload_bytes + digest_bytes);
    return DXPU_OK;
}

/* -- Header to struct.  h has header_dw dwords, t is zero but for type and header_dw. -- */

static void dxpui_get_common(const uint8_t *h, dxpu_tlp *t)
{
    t->tc = h[1] >> 4 & 0x7;
    t->attr = (uint8_t)((h[1] & 0x4) | (h[2] >> 4 & 0x3));
    t->th = (h[1] & 0x1) != 0;
    t->td = (h[2] & 0x80) != 0;
    t->ep = (h[2] & 0x40) != 0;
    t->at = h[2] >> 2 & 0x3;
    t->length_dw = (uint16_t)dxpui_tlp_length(t->type, h);
}

/* Tag[9:8] exist where a completion follows; in posted requests they are reserved (T-9). */
static uint16_t dxpui_get_tag(const uint8_t *h, uint8_t low, unsigned type)
{
    if (dxpui_tlp_rows[type].cls == DXPU_POSTED)
        return low;
    return (uint16_t)((h[1] & 0x80u) << 2 | (h[1] & 0x08u) << 5 | low);
}

/* With TH the steering tag takes a posted write's tag or another request's byte enables, which then
   count as all enabled (T-12). */
static void dxpui_get_request(const uint8_t *h, dxpu_tlp *t)
{
    unsigned kind = dxpui_tlp_kind(t->type);
    bool in_tag = t->th && t->type == DXPU_TLP_MWR;
    bool in_be = t->th && !in_tag && (kind == DXPUI_MEM || kind == DXPUI_ATOMIC);
    t->requester = dxpui_load16(h + 4);
    if (in_tag)
        t->steering = h[6];
    else
        t->tag = dxpui_get_tag(h, h[6], t->type);
    if (in_be)
        t->steering = h[7];
    if (kind == DXPUI_ATOMIC)
        return;
    t->first_be = in_be ? 0xf : h[7] & 0xf;
    t->last_be = in_be ? t->length_dw > 1 ? 0xf : 0 : h[7] >> 4;
}

/* Bits 1:0 of the address: PH with TH, No Write in bit 0 of a translation request (T-13). */
static unsigned dxpui_ph_mask(const dxpu_tlp *t)
{
    unsigned kind = dxpui_tlp_kind(t->type);
    if (kind != DXPUI_MEM && kind != DXPUI_ATOMIC)
        return 0;
    return t->th ? 3u : t->at == 1 ? 1u : 0u;
}

static void dxpui_get_address(const uint8_t *h, dxpu_tlp *t)
{
    uint64_t a = t->header_dw == 4 ? dxpui_load64(h + 8) : dxpui_load32(h + 8);
    t->address = a & ~(uint64_t)3;
    t->ph = (uint8_t)(a & dxpui_ph_mask(t));
}

static void dxpui_get_config(const uint8_t *h, dxpu_tlp *t)
{
    t->target = dxpui_load16(h + 8);
    t->register_bytes = (uint16_t)((h[10] & 0xfu) << 8 | (h[11] & 0xfcu));
}

static void dxpui_get_message(const uint8_t *h, dxpu_tlp *t)
{
    t->requester = dxpui_load16(h + 4);
    t->tag = h[6];
    t->message_code = h[7];
    t->message_routing = h[0] & 0x7;
    t->message_dw[0] = dxpui_load32(h + 8);
    t->message_dw[1] = dxpui_load32(h + 12);
    if (t->message_routing == DXPU_MSG_BY_ID)
        t->target = dxpui_load16(h + 8);
    if (t->message_routing == DXPU_MSG_BY_ADDRESS)
        dxpui_get_address(h, t);
}

static void dxpui_get_completion(const uint8_t *h, dxpu_tlp *t)
{
    unsigned count = (h[6] & 0xfu) << 8 | h[7];
    t->completer = dxpui_load16(h + 4);
    t->status = h[6] >> 5;
    t->bcm = (h[6] & 0x10) != 0;
    t->byte_count = (uint16_t)(count ? count : 4096);
    t->requester = dxpui_load16(h + 8);
    t->tag = dxpui_get_tag(h, h[10], t->type);
    t->lower_addr = h[11] & 0x7f;
}

static void dxpui_get_header(const uint8_t *h, dxpu_tlp *t)
{
    unsigned kind = dxpui_tlp_kind(t->type);
    dxpui_get_common(h, t);
    if (kind == DXPUI_CPL) {
        dxpui_get_completion(h, t);
    } else if (kind == DXPUI_MSG) {
        dxpui_get_message(h, t);
    } else {
        dxpui_get_request(h, t);
        if (kind == DXPUI_CFG)
            dxpui_get_config(h, t);
        else
            dxpui_get_address(h, t);
    }
}

/* An AER log that was never filled, or read from a device that is gone (T-41). */
static int dxpui_log_empty(const uint8_t *p)
{
    uint32_t a = dxpui_load32(p), b = dxpui_load32(p + 4), c = dxpui_load32(p + 8);
    if ((a | b | c) == 0)
        return DXPU_E_TLP_ALL_ZERO;
    return (a & b & c) == 0xffffffffu ? DXPU_E_TLP_ALL_ONES : DXPU_OK;
}

static int dxpui_decode_header(dxpu_bytes tlp, dxpu_tlp_shape *shape, dxpu_tlp *t)
{
    unsigned i;
    int rc = tlp.len < 12 ? DXPU_E_TLP_SHORT : dxpui_log_empty(tlp.ptr);
    if (rc == DXPU_OK)
        rc = dxpu_tlp_measure(tlp, shape);
    if (rc != DXPU_OK)
        return rc;
    dxpui_zero(t, sizeof *t);
    t->type = shape->type;
    t->header_dw = shape->header_dw;
    t->prefix_count = shape->prefix_dw;
    for (i = 0; i < shape->prefix_dw; i++)
        t->prefix[i] = dxpui_load32(tlp.ptr + i * 4);
    dxpui_get_header(tlp.ptr + shape->prefix_dw * 4, t);
    if (shape->payload_bytes && tlp.len > shape->head_bytes) {
        t->payload.ptr = tlp.ptr + shape->head_bytes;
        t->payload.len = (size_t)dxpui_min64(tlp.len - shape->head_bytes, shape->payload_bytes);
    }
    return DXPU_OK;
}

DXPU_API int dxpu_tlp_decode_header(dxpu_bytes tlp, dxpu_tlp *out)
{
    dxpu_tlp_shape shape;
    dxpu_tlp t;
    int rc = dxpui_decode_header(tlp, &shape, &t);
    if (rc == DXPU_OK)
        *out = t;
    return rc;
}

/* -- The rules (T-5 ff.), on the struct: decode and encode share them. -- */

typedef struct dxpui_message_row {
    const char *name;
    uint8_t code, routing, data, down, up;
} dxpui_message_row;

#define DXPUI_ROW(code, text, routing, data, down, up)                                             \
    { text, code, DXPU_MSG_##routing, data, DXPU_MSG_##down, DXPU_MSG_##up },
static const dxpui_message_row dxpui_message_rows[] = { DXPU_MESSAGES(DXPUI_ROW) };
#undef DXPUI_ROW
enum { DXPUI_MESSAGE_COUNT = sizeof dxpui_message_rows / sizeof dxpui_message_rows[0] };

static const dxpui_message_row *dxpui_message_find(unsigned code)
{
    unsigned i;
    for (i = 0; i < DXPUI_MESSAGE_COUNT; i++)
        if (dxpui_message_rows[i].code == code)
            return &dxpui_message_rows[i];
    return NULL;
}

static inline bool dxpui_message_vendor(unsigned code)
{
    return code == 0x7e || code == 0x7f;
}

/* Vendor messages choose their routing among four, the others have one (T-31). */
static bool dxpui_message_routing_ok(const dxpui_message_row *m, unsigned routing)
{
    if (dxpui_message_vendor(m->code))
        return routing == DXPU_MSG_TO_ROOT || routing == DXPU_MSG_BY_ID ||
               routing == DXPU_MSG_BROADCAST || routing == DXPU_MSG_LOCAL;
    return routing == m->routing;
}

/* Bits of header bytes 8..15 that a message uses; the rest is reserved (T-34). */
static uint64_t dxpui_message_bits(const dxpu_tlp *t)
{
    switch (t->message_code) {
    case 0x01: /* target */
        return 0xffff000000000000u;
    case 0x02: /* target, completion count, tag vector */
        return 0xffff0007ffffffffu;
    case 0x05: /* target, response code, group index */
        return 0xfffff1ff00000000u;
    case 0x10: /* two latencies; their bits 14:13 are reserved */
        return 0x000000009fff9fffu;
    case 0x12: /* OBFF code */
        return 0x000000000000000fu;
    case 0x53: /* master time, with data only */
        return t->type == DXPU_TLP_MSGD ? 0xffffffffffffffffu : 0;
    case 0x04: /* page address and flags */
    case 0x30: /* ERR_COR's subclass stands here; which bits is not checked */
        return 0xffffffffffffffffu;
    case 0x7e:
    case 0x7f: /* target of one by ID, vendor ID, vendor's own */
        return t->message_routing == DXPU_MSG_BY_ID ? 0xffffffffffffffffu : 0x0000ffffffffffffu;
    default:
        return 0;
    }
}

/* Payload dwords of a message with data; 0 for any (T-33). */
static unsigned dxpui_message_length(unsigned code)
{
    return code == 0x01 ? 2 : code == 0x50 || code == 0x53 ? 1 : 0;
}

static int dxpui_check_message(const dxpu_tlp *t)
{
    const dxpui_message_row *m = dxpui_message_find(t->message_code);
    uint64_t dw = (uint64_t)t->message_dw[0] << 32 | t->message_dw[1];
    unsigned length = dxpui_message_length(t->message_code), data = t->type == DXPU_TLP_MSGD;
    bool vendor = dxpui_message_vendor(t->message_code);
    if (!m)
        return DXPU_E_TLP_MSG_CODE;
    if (!dxpui_message_routing_ok(m, t->message_routing) || (m->data != 2 && m->data != data))
        return DXPU_E_TLP_MSG_ROUTE;
    if (data && length && t->length_dw != length)
        return DXPU_E_TLP_LENGTH;
    /* TC0 for all but the messages of address translation and the vendors' (T-32) */
    if (t->tc && (t->message_code == 0 || t->message_code >= 0x10) && !vendor)
        return DXPU_E_TLP_TC;
    if ((t->attr & (DXPU_ATTR_NS | DXPU_ATTR_RO)) && !vendor)
        return DXPU_E_TLP_ATTR;
    return dw & ~dxpui_message_bits(t) ? DXPU_E_TLP_RSVD : DXPU_OK;
}

/* A reader of byte enables sees one run of bytes from first to last (T-16). */
static bool dxpui_be_ok(const dxpu_tlp *t)
{
    unsigned first = t->first_be, last = t->last_be, gap;
    if (first > 0xf || last > 0xf)
        return false;
    if (t->length_dw == 1)
        return last == 0;
    if (!first || !last)
        return false;
    if (t->length_dw == 2 && !(t->address & 7))
        return true;
    gap = 0x10u - (first & (0u - first)); /* all ones from the lowest enabled byte on */
    return first == gap && (last & (last + 1)) == 0;
}

static int dxpui_check_address(const dxpu_tlp *t)
{
    if (t->address & 3 || (t->header_dw == 3 && t->address > 0xffffffffu))
        return DXPU_E_TLP_ADDR;
    return t->header_dw == 4 && t->address <= 0xffffffffu ? DXPU_E_TLP_ADDR64 : DXPU_OK;
}

/* With TH a request that waits for a completion has no byte enables on the wire (T-12). */
static bool dxpui_be_implied(const dxpu_tlp *t)
{
    return t->first_be == 0xf && t->last_be == (t->length_dw > 1 ? 0xf : 0);
}

/* A translation request: the address names a page, each translation is two dwords (T-14). */
static int dxpui_check_translation(const dxpu_tlp *t)
{
    if (t->type != DXPU_TLP_MRD)
        return DXPU_E_TLP_AT;
    if (t->th)
        return DXPU_E_TLP_TH;
    if (t->attr & (DXPU_ATTR_NS | DXPU_ATTR_IDO))
        return DXPU_E_TLP_ATTR;
    return t->length_dw % 2 ? DXPU_E_TLP_LENGTH : DXPU_OK;
}

static int dxpui_check_memory(const dxpu_tlp *t)
{
    int rc = dxpui_check_address(t);
    if (rc != DXPU_OK)
        return rc;
    if (t->type == DXPU_TLP_DMWR && t->length_dw > 32)
        return DXPU_E_TLP_LENGTH;
    if (!dxpui_be_ok(t) || (t->th && t->type != DXPU_TLP_MWR && !dxpui_be_implied(t)))
        return DXPU_E_TLP_BE;
    if (t->at == 1)
        return dxpui_check_translation(t);
    return dxpu_crosses_4k(t->address, t->length_dw * 4u) ? DXPU_E_TLP_4K : DXPU_OK;
}

/* Bytes of an atomic's operand: CAS carries two (T-18). */
static unsigned dxpui_operand_bytes(const dxpu_tlp *t)
{
    return t->length_dw * (t->type == DXPU_TLP_CAS ? 2u : 4u);
}

static int dxpui_check_atomic(const dxpu_tlp *t)
{
    unsigned bytes = dxpui_operand_bytes(t);
    int rc = dxpui_check_address(t);
    if (rc != DXPU_OK)
        return rc;
    if (t->at == 1)
        return DXPU_E_TLP_AT;
    if (bytes != 4 && bytes != 8 && !(bytes == 16 && t->type == DXPU_TLP_CAS))
        return DXPU_E_TLP_OPERAND;
    return t->address & (bytes - 1) ? DXPU_E_TLP_OPERAND : DXPU_OK;
}

/* I/O and configuration requests (T-19). */
static int dxpui_check_single(const dxpu_tlp *t)
{
    if (t->tc)
        return DXPU_E_TLP_TC;
    if (t->attr)
        return DXPU_E_TLP_ATTR;
    if (t->length_dw != 1)
        return DXPU_E_TLP_LENGTH;
    if (t->first_be > 0xf || t->last_be)
        return DXPU_E_TLP_BE;
    if (dxpui_tlp_kind(t->type) == DXPUI_IO)
        return dxpui_check_address(t);
    return t->register_bytes & 3 || t->register_bytes > 4092 ? DXPU_E_TLP_REGISTER : DXPU_OK;
}

static int dxpui_check_completion(const dxpu_tlp *t)
{
    unsigned need_dw = ((t->lower_addr & 3u) + t->byte_count + 3u) / 4;
    bool data = dxpui_tlp_rows[t->type].data != 0;
    if (t->status > DXPU_CPL_CA || t->status == 3 || (data && t->status != DXPU_CPL_SC))
        return DXPU_E_TLP_STATUS;
    if (t->byte_count < 1 || t->byte_count > 4096 || t->lower_addr > 127)
        return DXPU_E_TLP_BYTE_COUNT;
    if (!data)
        return DXPU_OK;
    if (need_dw > 1024 || t->length_dw > need_dw)
        return DXPU_E_TLP_BYTE_COUNT;
    if (t->length_dw < need_dw && ((t->lower_addr & ~3u) + t->length_dw * 4u) % 64)
        return DXPU_E_TLP_RCB;
    return DXPU_OK;
}

static int dxpui_check_prefixes(const dxpu_tlp *t)
{
    unsigned i, local = 0, all = 0;
    if (t->prefix_count > DXPU_PREFIXES_MAX)
        return DXPU_E_TLP_PREFIX_COUNT;
    for (i = 0; i < t->prefix_count; i++) {
        int rc = dxpui_prefix_add(t->prefix[i] >> 24, &local, &all);
        if (rc != DXPU_OK)
            return rc;
        if (t->prefix[i] >> 24 == 0x92)
            return DXPU_E_TLP_IDE;
    }
    return DXPU_OK;
}

/* What every TLP has: ranges, and the hints that only memory requests may carry (T-5 ff.). */
static int dxpui_check_common(const dxpu_tlp *t, unsigned kind)
{
    bool memory = kind == DXPUI_MEM || kind == DXPUI_ATOMIC;
    const dxpui_tlp_row *row = &dxpui_tlp_rows[t->type];
    if (t->tag > (row->cls == DXPU_POSTED ? 255 : 1023))
        return DXPU_E_TLP_TAG;
    if (t->tc > 7)
        return DXPU_E_TLP_TC;
    if (t->attr > 7)
        return DXPU_E_TLP_ATTR;
    if (t->th && !memory)
        return DXPU_E_TLP_TH;
    if (t->at > 2 || (t->at && !memory))
        return DXPU_E_TLP_AT;
    if (t->ph > 3 || (t->ph & ~dxpui_ph_mask(t)))
        return DXPU_E_TLP_TH;
    if (t->ep && !row->data)
        return DXPU_E_TLP_RSVD;
    if (dxpui_tlp_no_length(t->type) ? t->length_dw != 0 : t->length_dw < 1 || t->length_dw > 1024)
        return DXPU_E_TLP_LENGTH;
    return DXPU_OK;
}

DXPU_API int dxpu_tlp_check(const dxpu_tlp *t)
{
    unsigned kind;
    int rc;
    if (t->type >= DXPU_TLP_TYPE_COUNT || t->header_dw < 3 || t->header_dw > 4 ||
        !dxpui_tlp_header_dw(t->type, t->header_dw == 4))
        return DXPU_E_TLP_TYPE;
    kind = dxpui_tlp_kind(t->type);
    rc = dxpui_check_prefixes(t);
    if (rc == DXPU_OK)
        rc = dxpui_check_common(t, kind);
    if (rc != DXPU_OK)
        return rc;
    switch (kind) {
    case DXPUI_MEM:
        return dxpui_check_memory(t);
    case DXPUI_ATOMIC:
        return dxpui_check_atomic(t);
    case DXPUI_MSG:
        return dxpui_check_message(t);
    case DXPUI_CPL:
        return dxpui_check_completion(t);
    default:
        return dxpui_check_single(t);
    }
}

/* -- Struct to header.  The fields are in range; h gets header_dw dwords. -- */

static void dxpui_put_common(const dxpu_tlp *t, uint8_t *h)
{
    const dxpui_tlp_row *row = &dxpui_tlp_rows[t->type];
    unsigned tag = row->cls == DXPU_POSTED ? 0 : t->tag;
    h[0] = (uint8_t)((t->header_dw == 4 ? 0x20u : 0u) | (unsigned)row->data << 6 | row->code);
    h[1] = (uint8_t)((tag & 0x200u) >> 2 | (unsigned)t->tc << 4 | (tag & 0x100u) >> 5 |
                     (t->attr & 0x4u) | (t->th ? 0x1u : 0u));
    h[2] = (uint8_t)((t->td ? 0x80u : 0u) | (t->ep ? 0x40u : 0u) | (t->attr & 0x3u) << 4 |
                     (unsigned)t->at << 2 | (t->length_dw >> 8 & 0x3u));
    h[3] = (uint8_t)t->length_dw;
}

static void dxpui_put_request(const dxpu_tlp *t, uint8_t *h)
{
    unsigned be = (unsigned)t->last_be << 4 | t->first_be;
    dxpui_store16(h + 4, t->requester);
    h[6] = t->th && t->type == DXPU_TLP_MWR ? t->steering : (uint8_t)t->tag;
    if (dxpui_tlp_kind(t->type) == DXPUI_ATOMIC)
        be = 0;
    h[7] = t->th && t->type != DXPU_TLP_MWR ? t->steering : (uint8_t)be;
}

static void dxpui_put_address(const dxpu_tlp *t, uint8_t *h)
{
    uint64_t a = t->address | (t->ph & dxpui_ph_mask(t));
    if (t->header_dw == 4)
        dxpui_store64(h + 8, a);
    else
        dxpui_store32(h + 8, (uint32_t)a);
}

static void dxpui_put_config(const dxpu_tlp *t, uint8_t *h)
{
    dxpui_store16(h + 8, t->target);
    dxpui_store16(h + 10, t->register_bytes);
}

/* No message that passes the rules goes by address, so the target is the only field of its own. */
static void dxpui_put_message(const dxpu_tlp *t, uint8_t *h)
{
    h[0] = (uint8_t)(h[0] | t->message_routing);
    dxpui_store16(h + 4, t->requester);
    h[6] = (uint8_t)t->tag;
    h[7] = t->message_code;
    dxpui_store32(h + 8, t->message_dw[0]);
    dxpui_store32(h + 12, t->message_dw[1]);
    if (t->message_routing == DXPU_MSG_BY_ID)
        dxpui_store16(h + 8, t->target);
}

static void dxpui_put_completion(const dxpu_tlp *t, uint8_t *h)
{
    dxpui_store16(h + 4, t->completer);
    h[6] =
        (uint8_t)((unsigned)t->status << 5 | (t->bcm ? 0x10u : 0u) | (t->byte_count >> 8 & 0xfu));
    h[7] = (uint8_t)t->byte_count;
    dxpui_store16(h + 8, t->requester);
    h[10] = (uint8_t)t->tag;
    h[11] = t->lower_addr;
}

static void dxpui_put_header(const dxpu_tlp *t, uint8_t *h)
{
    unsigned kind = dxpui_tlp_kind(t->type);
    dxpui_put_common(t, h);
    if (kind == DXPUI_CPL) {
        dxpui_put_completion(t, h);
    } else if (kind == DXPUI_MSG) {
        dxpui_put_message(t, h);
    } else {
        dxpui_put_request(t, h);
        if (kind == DXPUI_CFG)
            dxpui_put_config(t, h);
        else
            dxpui_put_address(t, h);
    }
}

DXPU_API int dxpu_tlp_decode(dxpu_bytes tlp, dxpu_tlp *out)
{
    uint8_t again[DXPU_TLP_HEADER_MAX_BYTES];
    dxpu_tlp_shape shape;
    dxpu_tlp t;
    int rc = dxpui_decode_header(tlp, &shape, &t);
    if (rc != DXPU_OK)
        return rc;
    if (tlp.len != shape.total_bytes)
        return tlp.len < shape.total_bytes ? DXPU_E_TLP_SHORT : DXPU_E_TLP_LONG;
    rc = dxpu_tlp_check(&t);
    if (rc != DXPU_OK)
        return rc;
    /* a bit that the struct does not hold is a reserved one (T-6) */
    dxpui_put_header(&t, again);
    if (memcmp(again, tlp.ptr + shape.prefix_dw * 4, t.header_dw * 4u) != 0)
        return DXPU_E_TLP_RSVD;
    if (t.td)
        t.digest = dxpu_tlp_crc_load(tlp.ptr + shape.total_bytes - 4);
    *out = t;
    return DXPU_OK;
}

DXPU_API int dxpu_tlp_encode(const dxpu_tlp *t, uint8_t *out, size_t cap, size_t *out_len)
{
    size_t payload, total;
    uint8_t *p = out;
    unsigned i;
    int rc = dxpu_tlp_check(t);
    if (rc != DXPU_OK)
        return rc;
    payload = dxpui_tlp_rows[t->type].data ? t->length_dw * (size_t)4 : 0;
    if (t->payload.len != payload)
        return t->payload.len < payload ? DXPU_E_TLP_SHORT : DXPU_E_TLP_LONG;
    total = (t->prefix_count + (size_t)t->header_dw) * 4 + payload + (t->td ? 4 : 0);
    if (total > cap)
        return DXPU_E_ROOM;
    for (i = 0; i < t->prefix_count; i++, p += 4)
        dxpui_store32(p, t->prefix[i]);
    dxpui_put_header(t, p);
    p += t->header_dw * 4;
    dxpui_copy(p, t->payload.ptr, payload);
    if (t->td)
        dxpu_tlp_crc_store(t->digest, p + payload);
    *out_len = total;
    return DXPU_OK;
}

/* -- CRCs (T-60 ff.) -- */

DXPU_API void dxpu_tlp_crc_store(uint32_t crc, uint8_t out[4])
{
    out[0] = (uint8_t)crc;
    out[1] = (uint8_t)(crc >> 8);
    out[2] = (uint8_t)(crc >> 16);
    out[3] = (uint8_t)(crc >> 24);
}

DXPU_API uint32_t dxpu_tlp_crc_load(const uint8_t in[4])
{
    return (uint32_t)in[3] << 24 | (uint32_t)in[2] << 16 | (uint32_t)in[1] << 8 | in[0];
}

DXPU_API uint32_t dxpu_tlp_ecrc(dxpu_bytes tlp)
{
    dxpu_tlp_shape s;
    uint8_t dw0[4];
    const uint8_t *h;
    uint32_t crc;
    if (dxpu_tlp_measure(tlp, &s) != DXPU_OK || tlp.len < (size_t)s.head_bytes + s.payload_bytes)
        return 0;
    h = tlp.ptr + s.prefix_dw * 4;
    dw0[0] = h[0] | 0x01;
    dw0[1] = h[1];
    dw0[2] = h[2] | 0x40;
    dw0[3] = h[3];
    crc = dxpu_crc32(0, tlp.ptr + s.local_dw * 4, (s.prefix_dw - s.local_dw) * (size_t)4);
    crc = dxpu_crc32(crc, dw0, 4);
    return dxpu_crc32(crc, h + 4, s.header_dw * (size_t)4 - 4 + s.payload_bytes);
}

DXPU_API int dxpu_tlp_ecrc_check(dxpu_bytes tlp)
{
    dxpu_tlp_shape s;
    int rc = dxpu_tlp_measure(tlp, &s);
    if (rc != DXPU_OK)
        return rc;
    if (tlp.len < s.total_bytes)
        return DXPU_E_TLP_SHORT;
    if (s.digest_bytes &&
        dxpu_tlp_ecrc(tlp) != dxpu_tlp_crc_load(tlp.ptr + s.head_bytes + s.payload_bytes))
        return DXPU_E_TLP_ECRC;
    return DXPU_OK;
}

DXPU_API uint32_t dxpu_tlp_lcrc(uint16_t sequence, dxpu_bytes tlp)
{
    uint8_t number[2];
    dxpui_store16(number, sequence & 0xfffu);
    return dxpu_crc32(dxpu_crc32(0, number, 2), tlp.ptr, tlp.len);
}

/* -- Byte enables, requests, completions (T-50 ff.) -- */

DXPU_API bool dxpu_crosses_4k(uint64_t address, uint32_t bytes)
{
    return (address & 0xfff) + bytes > 4096;
}

DXPU_API int dxpu_be_from_range(uint64_t address, uint32_t bytes, uint8_t *first_be,
                                uint8_t *last_be, uint16_t *length_dw)
{
    unsigned offset = (unsigned)(address & 3), end = (offset + bytes) & 3;
    unsigned first = 0xfu << offset & 0xfu, last = end ? (1u << end) - 1 : 0xfu;
    if (bytes > 4096 || dxpu_crosses_4k(address, bytes))
        return DXPU_E_ARG;
    *length_dw = (uint16_t)(bytes ? (offset + bytes + 3) / 4 : 1);
    if (*length_dw == 1) {
        first = bytes ? first & last : 0;
        last = 0;
    }
    *first_be = (uint8_t)first;
    *last_be = (uint8_t)last;
    return DXPU_OK;
}

DXPU_API void dxpu_be_to_range(uint8_t first_be, uint8_t last_be, uint16_t length_dw,
                               uint32_t *offset_bytes, uint32_t *span_bytes)
{
    unsigned be = length_dw > 1 ? last_be : first_be, offset = 0, end = 4;
    if (first_be && !(first_be & 1))
        offset = first_be & 2 ? 1 : first_be & 4 ? 2 : 3;
    while (end && !(be >> (end - 1) & 1))
        end--;
    *offset_bytes = offset;
    *span_bytes = first_be ? (length_dw > 1 ? (length_dw - 1u) * 4 : 0) + end - offset : 0;
}

DXPU_API uint32_t dxpu_request_next(uint64_t address, uint32_t left_bytes, uint32_t max_bytes)
{
    /* the limit counts whole dwords, so the unused bytes of the first one count as well */
    uint32_t room = max_bytes - (uint32_t)(address & 3);
    uint32_t page = 4096 - (uint32_t)(address & 0xfff);
    room = room < page ? room : page;
    return left_bytes < room ? left_bytes : room;
}

DXPU_API int dxpu_cpl_split_start(dxpu_cpl_split *s, const dxpu_tlp *read, uint32_t rcb_bytes,
                                  uint32_t mps_bytes)
{
    uint32_t offset, span;
    if ((read->type != DXPU_TLP_MRD && read->type != DXPU_TLP_MRDLK) ||
        (rcb_bytes != 64 && rcb_bytes != 128) || mps_bytes < 128 || mps_bytes > 4096 ||
        (mps_bytes & (mps_bytes - 1)))
        return DXPU_E_ARG;
    dxpu_be_to_range(read->first_be, read->last_be, read->length_dw, &offset, &span);
    s->address = read->address + offset;
    s->left_bytes = span ? span : 1;
    s->rcb_bytes = rcb_bytes;
    s->mps_bytes = mps_bytes;
    s->zero_length = span == 0;
    return DXPU_OK;
}

DXPU_API bool dxpu_cpl_split_next(dxpu_cpl_split *s, dxpu_tlp *cpl, uint64_t *address_dw)
{
    uint64_t start = s->address & ~(uint64_t)3, end = s->address + s->left_bytes;
    if (!s->left_bytes)
        return false;
    /* only the last completion may end off the RCB (T-52) */
    if (end > start + s->mps_bytes)
        end = (start + s->mps_bytes) & ~(uint64_t)(s->rcb_bytes - 1);
    cpl->byte_count = (uint16_t)s->left_bytes;
    cpl->lower_addr = (uint8_t)(s->address & 0x7f);
    cpl->length_dw = (uint16_t)((end - start + 3) / 4);
    *address_dw = start;
    s->left_bytes -= (uint32_t)(end - s->address);
    s->address = end;
    return true;
}

/* Byte Count and Lower Address of a request's first completion (T-53). */
static void dxpui_completion_counts(const dxpu_tlp *req, dxpu_tlp *cpl)
{
    uint32_t offset, span;
    cpl->byte_count = 4;
    if (dxpui_tlp_kind(req->type) == DXPUI_ATOMIC)
        cpl->byte_count = (uint16_t)dxpui_operand_bytes(req);
    if (req->type != DXPU_TLP_MRD && req->type != DXPU_TLP_MRDLK)
        return;
    dxpu_be_to_range(req->first_be, req->last_be, req->length_dw, &offset, &span);
    cpl->byte_count = (uint16_t)(span ? span : 1);
    cpl->lower_addr = (uint8_t)((req->address + offset) & 0x7f);
}

DXPU_API void dxpu_tlp_completion(const dxpu_tlp *req, uint16_t completer, uint8_t status,
                                  dxpu_tlp *cpl)
{
    bool atomic = dxpui_tlp_kind(req->type) == DXPUI_ATOMIC;
    bool data = status == DXPU_CPL_SC && (atomic || !dxpui_tlp_rows[req->type].data);
    dxpui_zero(cpl, sizeof *cpl);
    if (req->type == DXPU_TLP_MRDLK)
        cpl->type = data ? DXPU_TLP_CPLDLK : DXPU_TLP_CPLLK;
    else
        cpl->type = data ? DXPU_TLP_CPLD : DXPU_TLP_CPL;
    cpl->header_dw = 3;
    cpl->tc = req->tc;
    cpl->attr = req->attr;
    cpl->requester = req->requester;
    cpl->tag = req->tag;
    cpl->completer = completer;
    cpl->status = status;
    dxpui_completion_counts(req, cpl);
    if (data)
        cpl->length_dw = atomic ? (uint16_t)(cpl->byte_count / 4) : req->length_dw;
}

/* ==== 9'  Classifier and messages ============================================================= */

DXPU_API uint8_t dxpu_tlp_class(const dxpu_tlp *t)
{
    return dxpui_tlp_rows[t->type].cls;
}

static uint8_t dxpui_message_route(unsigned routing)
{
    switch (routing) {
    case DXPU_MSG_TO_ROOT:
        return DXPU_ROUTE_TO_ROOT;
    case DXPU_MSG_BY_ADDRESS:
        return DXPU_ROUTE_ADDRESS;
    case DXPU_MSG_BY_ID:
        return DXPU_ROUTE_ID;
    case DXPU_MSG_BROADCAST:
        return DXPU_ROUTE_BROADCAST;
    case DXPU_MSG_GATHERED:
        return DXPU_ROUTE_GATHERED;
    default:
        return DXPU_ROUTE_LOCAL;
    }
}

DXPU_API uint8_t dxpu_tlp_routing(const dxpu_tlp *t)
{
    switch (dxpui_tlp_kind(t->type)) {
    case DXPUI_CFG:
    case DXPUI_CPL:
        return DXPU_ROUTE_ID;
    case DXPUI_MSG:
        return dxpui_message_route(t->message_routing);
    default:
        return DXPU_ROUTE_ADDRESS;
    }
}

DXPU_API const char *dxpu_class_name(unsigned cls)
{
    static const char *const names[] = { "posted", "non-posted", "completion" };
    return cls < DXPU_CLASSES ? names[cls] : "?";
}

DXPU_API const char *dxpu_routing_name(unsigned routing)
{
    static const char *const names[] = { "address",   "id",    "to-root",
                                         "broadcast", "local", "gathered" };
    return routing <= DXPU_ROUTE_GATHERED ? names[routing] : "?";
}

DXPU_API const char *dxpu_status_name(unsigned status)
{
    static const char *const names[] = { "SC", "UR", "CRS", "?", "CA" };
    return status <= DXPU_CPL_CA ? names[status] : "?";
}

DXPU_API const char *dxpu_message_name(unsigned code)
{
    const dxpui_message_row *m = dxpui_message_find(code);
    return m ? m->name : NULL;
}

/* strcmp() == 0; not every freestanding target has strcmp. */
static bool dxpui_same_text(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

DXPU_API int dxpu_message_code(const char *name)
{
    unsigned i;
    for (i = 0; i < DXPUI_MESSAGE_COUNT; i++)
        if (dxpui_same_text(name, dxpui_message_rows[i].name))
            return dxpui_message_rows[i].code;
    return -1;
}

/* Vendor messages go where their routing leads: none to the root from above, no broadcast from
   below (R-24). */
static uint8_t dxpui_vendor_action(unsigned routing, bool up)
{
    if (routing == DXPU_MSG_LOCAL)
        return DXPU_MSG_TERMINATE;
    if (routing == (up ? DXPU_MSG_BROADCAST : DXPU_MSG_TO_ROOT))
        return DXPU_MSG_REFUSE;
    return DXPU_MSG_FORWARD;
}

DXPU_API uint8_t dxpu_message_action(const dxpu_tlp *t, unsigned direction)
{
    const dxpui_message_row *m = dxpui_message_find(t->message_code);
    bool up = direction == DXPU_UPSTREAM;
    if (!m || !dxpui_message_routing_ok(m, t->message_routing))
        return DXPU_MSG_REFUSE;
    if (dxpui_message_vendor(m->code))
        return dxpui_vendor_action(t->message_routing, up);
    return up ? m->up : m->down;
}

/* ==== 10'  Routing tables ==== */

/* ==== 11'  Credits and tags ==== */

/* ==== 12'  Wire: frames and records ==== */

/* ==== 13'  Channel ==== */

#ifdef __cplusplus
}
#endif
#endif /* DXPU_IMPLEMENTATION */

/* ==== 14  Changes, licence =======================================================================
   0.1.0  first: codec, classifier, routing tables, tags, credits, wire version 1, channel.

   MIT License

   Copyright (c) 2026 the dxpu authors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all copies or
   substantial portions of the Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
   NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT.  IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT
   OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
