/* dxpu.h - PCIe over datagrams: TLP codec, routing, tags, credits and the channel that carries them
   SPDX-License-Identifier: MIT          (text at the end of this file)

   PCIe devices are in boxes, hosts have none, and a network connects them.  A proxy on each
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
     1  Manual                         10  Routing tables
     2  Configuration                  11  Credits and tags
     3  Version, includes, linkage     12  Wire: frames and records
     4  Conventions                    13  Channel: life
     5  Base types                     14  Channel: paths
     6  Errors and counters            15  Channel: sending
     7  CRC-32                         16  Channel: receiving
     8  TLP codec                      17  Changes, licence
     9  Classifier and messages
*/
#ifndef DXPU_H_INCLUDED
#define DXPU_H_INCLUDED

/* ==== 1  Manual ==================================================================================

   THE PARTS.  Sections 7 to 12 are free-standing tools: each can be used without the others' state.
   Sections 13 to 16, the channel, put them together: one dxpu_channel is one attachment, that is
   the functions of one box slot lent to one host slot, seen from one end.

   LIFE OF A TLP (section 13' has it step by step).  submit() copies the TLP into the queue of its
   class (posted, non-posted, completion) and computes its CRC.  emit() writes frames straight into
   the caller's buffer: TLPs of the three queues as PCIe's ordering table and the peer's credits
   allow; they stay queued until acknowledged.  At the other end ingest() checks a frame, puts it in
   sequence, and copies its TLPs into three class queues; an acknowledgement means "stored there".
   peek() shows the next TLP of a class that the ordering table lets go now, take() removes it and
   returns its credits to the sender.  If not taken, only posted TLPs and events hold others back.

   THE LOOP of a proxy, for one channel:

       for (;;) {
           for (cls = 0; cls < DXPU_CLASSES; cls++)
               while ((d = dxpu_channel_peek(ch, cls)).tlp.len) {
                   use(d.tlp);             // non-posted: submit() a completion, if need be UR
                   dxpu_channel_take(ch, cls, clock_ns());
               }
           if (dxpu_channel_peek_event(ch, &event)) {
               handle(&event);
               dxpu_channel_take_event(ch);
               continue;                   // TLPs behind it may go now
           }
           while ((n = dxpu_channel_emit(ch, clock_ns(), out, sizeof out, &path)) > 0)
               tx(path, out, (size_t)n);
           if (n < 0) break;               // over: dxpu_error_text(n) says how
           if (wait_rx(dxpu_channel_next_ns(ch), pkt, &len))
               dxpu_channel_ingest(ch, clock_ns(), pkt, len, 0);
       }

   Take before you emit, so that what arrived with the peer's close is taken before emit() reports
   the end.  wait_rx() may ingest several datagrams, 64 say, before emit() acknowledges them.

   OPENING.  The host: config_default(), ids, epoch and places, init(), open().  The box, on a
   datagram of which dxpu_frame_peek() returns DXPU_KIND_OPEN, calls dxpu_frame_check_crc(),
   dxpu_frame_decode(pkt, DXPU_FRAME_CRC_BYTES, &frame) and dxpu_offer_decode(frame.body, &offer).
   It drops an open shorter than offer.frame_limit_bytes (P-3) or of a path that it does not have.
   Its tables decide whether offer.epoch may have offer.destination.  If so, it makes a channel with
   that epoch, local = offer.destination, remote = offer.source: init(), accept(); else it sends a
   reset frame.  A repeated open (channel, source, destination slot, epoch of an existing channel)
   goes to that channel's ingest(), every other datagram to the channel whose local_id peek()
   returned.  bindings/acceptor has these checks: dxpu_acceptor_open(), dxpu_acceptor_repeats().

   SOCKETS.  The caller keeps the address of each path.  The opener knows them.  An acceptor learns
   them: after a datagram for which accept() or ingest() returned DXPU_OK and status().newest is
   true, path status().path leads to its sender.  A refused or late datagram must not move an
   address.  To a new address it sends little until that has answered (P-27): bindings/acceptor.
   A frame that the socket refuses (EAGAIN, ENOBUFS, EMSGSIZE) may be dropped like one lost in the
   network; better, keep it and call emit() again once it has left.  emit_many() fills a buffer for
   one sendmsg() with UDP_SEGMENT (GSO).  Errors of a UDP socket, such as ECONNREFUSED, do not end a
   channel.  Waiting in milliseconds delays acknowledgements: use ppoll().

   THE END.  An end with no more to send calls close(), at any time after open() or accept().  What
   it submitted before is still delivered.  From then on its submit() returns E_CLOSED; its emit()
   does so once the peer has answered, and so has all of it.  At the peer the state is CLOSED as
   soon as the close arrives: status() and submit() report E_PEER_CLOSED.  Its emit() reports that
   after the closing period (hold; next_ns() is its end), in which it answers each close that is
   repeated because an answer was lost.  TLPs that the peer itself had submitted, and that were not
   acknowledged, are lost.  After other errors there is no closing period.

   PROGRAMS that do all this are in examples/embed, to be copied: tlp_dump.c, loopback.c,
   requests.c (reads, tags, timeouts), udp_pair.c, acceptor.c (many hosts, restarts, leases),
   sealed.cc (keys).

   REQUESTS.  With cfg.tags: dxpu_tags_alloc(); in a zeroed dxpu_tlp set type, header_dw (3 for an
   address below 4 GB, else 4), requester, tag, address (bits 1:0 zero), and with
   dxpu_be_from_range() byte enables and length; encode, submit() with a `user`, which tracks the
   request (never track() it).  Completions return `user`; dxpu_tlp_receive() of d.tlp their status.
   Waiting is the caller's: no longer than dxpu_tags_next_ns(), then call dxpu_tags_expire().

   OWNERSHIP.  Every object is the caller's memory; init() fills it, nothing needs to be freed.
   Views (dxpu_bytes) point into memory of the caller or of an object; each comment says until when.
   dxpu_channel_bytes() returns what one channel needs for a given configuration.
   THREADS.  An object belongs to one thread at a time; distinct objects share nothing.
   TIME is a parameter: nanoseconds of any monotonic clock, below DXPU_NEVER.
   No function reads a clock.
   COUNTERS.  dxpu_channel.count may be read at any time; dxpu_counter_name() names them.

   PATHS.  emit() returns the path on which a frame leaves; the frame itself names it to ingest().
   Set cfg.paths above 1 where two ends have several addresses: when a path stops carrying frames,
   the channel moves to one that does, and uses the first again when it answers.

   FAILURE.  Bad input from the peer changes nothing and is reported by a negative number of the
   peer band (section 6); ingest() also counts it, under one name per reason.  A channel fails only
   when no valid frame arrives for `hold`, when an end resets it, or when the peer breaks a rule
   inside authentic frames, which no retransmission can mend.  Every call then returns that error
   until init().  Call dxpu_channel_contain(), and answer the requests that it names. */

/* ==== 2  Configuration ===========================================================================
   Each option is a value macro, used with #if; DXPU_CONFIG_HEADER, DXPU_CRC32, DXPU_STATIC and
   DXPU_API take effect when defined.  Define options before the include or in the file named
   by DXPU_CONFIG_HEADER; all translation units of a program must agree. */
#ifdef DXPU_CONFIG_HEADER
#include DXPU_CONFIG_HEADER
#endif

#ifndef DXPU_CRC_TABLES /* 8: 8 KB of table (slicing by 8), 1: 1 KB and a fifth of the speed */
#define DXPU_CRC_TABLES 8
#endif
#if DXPU_CRC_TABLES != 1 && DXPU_CRC_TABLES != 8
#error "DXPU_CRC_TABLES: 1 or 8"
#endif

/* DXPU_CRC32(crc, ptr, len): replaces the built-in CRC-32 by one with zlib's meaning
   (bindings/zlib does so); undefined by default. */

#ifndef DXPU_PREFIXES_MAX /* TLP prefixes the codec keeps; 4 B of dxpu_tlp each */
#define DXPU_PREFIXES_MAX 8
#endif
#if DXPU_PREFIXES_MAX < 4 || DXPU_PREFIXES_MAX > 64
#error "DXPU_PREFIXES_MAX: 4..64 (PCIe allows four end-end prefixes)"
#endif

#ifndef DXPU_PATHS_MAX /* most paths of a channel; costs memory only for those that it has */
#define DXPU_PATHS_MAX 8
#endif
#if DXPU_PATHS_MAX < 1 || DXPU_PATHS_MAX > 64
#error "DXPU_PATHS_MAX: 1..64"
#endif

/* For users of the codec alone: all parts are 74 KB with tables (x86-64, gcc -O2; -Os: 57 KB). */
#ifndef DXPU_CHANNEL /* 0: no sections 13 to 16, 36 KB less (24 KB) */
#define DXPU_CHANNEL 1
#endif
#ifndef DXPU_TABLES /* 0: no routing tables, section 10, 4 KB less (3 KB) */
#define DXPU_TABLES 1
#endif

#ifndef DXPU_TRACE /* (const ch, event, number): DXPU_TRACE_SENT .. of section 13, as they happen */
#define DXPU_TRACE(ch, event, number) ((void)0)
#endif
#ifndef DXPU_ASSERT /* caller bugs only; may be compiled out without changing any result */
#define DXPU_ASSERT(x) ((void)0)
#endif

/* ==== 3  Version, includes, linkage =========================================================== */
#define DXPU_VERSION      "0.2.0"
#define DXPU_VERSION_NUM  200 /* major * 10000 + minor * 100 + patch */
#define DXPU_WIRE_VERSION 1   /* the frame version this header speaks; section 12 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* DXPU_STATIC makes the whole library private to one translation unit, so that one program can
   hold two of them, even of two protocol versions. */
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
   Units      are part of names: _ns, _bytes, _dw (4-byte words).  Wire encodings end at the codec:
              length_dw is 1..1024, byte_count 1..4096, whatever the header's bits say.
   Bytes      network fields are big-endian, TLPs are as PCIe sends them.  Host byte order and
              alignment never matter.
   BDF        a function is one uint16_t: bus << 8 | device << 3 | function.
   Results    int functions return DXPU_OK (0) or a negative error of section 6; on an error what
              output arguments point to has no meaning.
   Tags       W-6, ... name rules of spec/: wire, tlp, route, flow, deliver, paths by initials. */
#define DXPU_BDF(bus, dev, fn)                                                                     \
    ((uint16_t)((unsigned)(bus) << 8 | (unsigned)(dev) << 3 | (unsigned)(fn)))
#define DXPU_BDF_BUS(bdf) ((unsigned)(bdf) >> 8 & 0xffu)
#define DXPU_BDF_DEV(bdf) ((unsigned)(bdf) >> 3 & 0x1fu)
#define DXPU_BDF_FN(bdf)  ((unsigned)(bdf)&0x7u)

/* ==== 5  Base types =========================================================================== */
/* Bytes owned by another object or the caller. */
typedef struct dxpu_bytes {
    const uint8_t *ptr;
    size_t len;
} dxpu_bytes;

/* PCIe's three flow-control classes (Base Spec 2.6.1).  DXPU_CLASSES counts them. */
enum { DXPU_POSTED = 0, DXPU_NONPOSTED = 1, DXPU_COMPLETION = 2, DXPU_CLASSES = 3 };

#define DXPU_NEVER UINT64_MAX /* a time that does not come */

/* Numbers in memory, at any alignment: big-endian (be) as in PCIe headers and networks,
   little-endian (le) as in PCI registers and data.  dxpu_get_be16(p), be32, be64, le16, le32, le64
   read; dxpu_put_be16(p, v), ... write, here the low 16 bits of v.  high, low: places of the two
   halves.  put has the bytes side by side in an array first: compilers make one store of that. */
#define DXPUI_BYTE(v, i, last) (uint8_t)((v) >> 8 * ((last) > 0 ? (last) - (i) : (i)))
#define DXPUI_BYTES4(v, i, last)                                                                   \
    DXPUI_BYTE(v, i, last), DXPUI_BYTE(v, (i) + 1, last), DXPUI_BYTE(v, (i) + 2, last),            \
        DXPUI_BYTE(v, (i) + 3, last)
#define DXPUI_NUMBERS(order, high, low)                                                            \
    static inline uint16_t dxpu_get_##order##16(const uint8_t *p)                                  \
    {                                                                                              \
        return (uint16_t)((unsigned)p[high] << 8 | p[low]);                                        \
    }                                                                                              \
    static inline uint32_t dxpu_get_##order##32(const uint8_t *p)                                  \
    {                                                                                              \
        return (uint32_t)dxpu_get_##order##16(p + 2 * (high)) << 16 |                              \
               dxpu_get_##order##16(p + 2 * (low));                                                \
    }                                                                                              \
    static inline uint64_t dxpu_get_##order##64(const uint8_t *p)                                  \
    {                                                                                              \
        return (uint64_t)dxpu_get_##order##32(p + 4 * (high)) << 32 |                              \
               dxpu_get_##order##32(p + 4 * (low));                                                \
    }                                                                                              \
    static inline void dxpu_put_##order##16(uint8_t * p, uint32_t v)                               \
    {                                                                                              \
        p[high] = (uint8_t)(v >> 8);                                                               \
        p[low] = (uint8_t)v;                                                                       \
    }                                                                                              \
    static inline void dxpu_put_##order##32(uint8_t * p, uint32_t v)                               \
    {                                                                                              \
        const uint8_t b[4] = { DXPUI_BYTES4(v, 0, 3 * (low)) };                                    \
        memcpy(p, b, sizeof b);                                                                    \
    }                                                                                              \
    static inline void dxpu_put_##order##64(uint8_t * p, uint64_t v)                               \
    {                                                                                              \
        const uint8_t b[8] = { DXPUI_BYTES4(v, 0, 7 * (low)), DXPUI_BYTES4(v, 4, 7 * (low)) };     \
        memcpy(p, b, sizeof b);                                                                    \
    }
DXPUI_NUMBERS(be, 0, 1)
DXPUI_NUMBERS(le, 1, 0)

/* ==== 6  Errors and counters =====================================================================
   The number says where the fault is, the text names the remedy.
     -1..-47    the TLP or the log it came from          -80..-95    later: ask again
     -48..-79   the peer or the network                  -96..-111   the caller of this function
                                                         -112..-127  the channel is over */
#define DXPU_ERRORS(X)                                                                             \
    X(E_TLP_SHORT, -1, "tlp: fewer bytes than its header says")                                    \
    X(E_TLP_LONG, -2, "tlp: more bytes than its header says")                                      \
    X(E_TLP_ALL_ONES, -3, "tlp: all ones, the device was gone when the log was read")              \
    X(E_TLP_ALL_ZERO, -4, "tlp: all zero, no header was logged")                                   \
    X(E_TLP_TYPE, -5, "tlp: a Fmt and Type pair that PCIe does not define")                        \
    X(E_TLP_RSVD, -6, "tlp: a reserved bit is set")                                                \
    X(E_TLP_LENGTH, -7, "tlp: a Length that this type does not allow")                             \
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
    X(E_TLP_PREFIX, -22, "tlp: a prefix type that PCIe does not define, or not for this TLP")      \
    X(E_TLP_PREFIX_ORDER, -23, "tlp: a local prefix after an end-end prefix")                      \
    X(E_TLP_PREFIX_COUNT, -24, "tlp: more prefixes than allowed")                                  \
    X(E_TLP_IDE, -25, "tlp: an IDE TLP, which only its own end points can read")                   \
    X(E_TLP_OPERAND, -26, "tlp: an atomic operand of a size or alignment PCIe does not allow")     \
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
    X(E_REPLAY, -58, "peer: a packet number seen before or too old to check")                      \
    X(E_WINDOW, -59, "peer: a frame beyond the receive window")                                    \
    X(E_ACK, -60, "peer: acknowledges what was never sent")                                        \
    X(E_STATE, -61, "peer: a frame that this state of the channel does not expect")                \
    X(E_EPOCH, -62, "peer: a lease epoch below the highest seen; it holds an old lease")           \
    X(E_OFFER, -63, "peer: an open or accept with a value outside its range")                      \
    X(E_PATH, -66, "peer: an open or probe over a path that is not configured here")               \
    X(E_CPL_UNEXPECTED, -64, "peer: a completion that no request in flight asked for")             \
    X(E_CPL_BYTES, -65, "peer: a completion that does not match the bytes its request expects")    \
    X(E_AGAIN, -80, "later: no room; ask again after an acknowledgement or a completion")          \
    X(E_CREDIT, -81, "later: no credit of this class; ask again when one is granted")              \
    X(E_MORE, -82, "later: a part was placed, the frame is full; continue in the next")            \
    X(E_NO_TAG, -83, "later: all tags are in flight; ask again after a completion")                \
    X(E_ARG, -96, "caller: an argument outside the range its comment states")                      \
    X(E_ROOM, -97, "caller: the buffer given is too small")                                        \
    X(E_OVERLAP, -98, "caller: the range overlaps another entry's")                                \
    X(E_FULL, -99, "caller: the table has no free entry; size it larger")                          \
    X(E_NONE, -100, "caller: no such entry")                                                       \
    X(E_TAG_BUSY, -101, "caller: a request with this requester ID and tag is in flight")           \
    X(E_CLOSED, -112, "end: this end closed the channel; open a new incarnation to continue")      \
    X(E_PEER_CLOSED, -116, "end: the peer closed the channel; open a new incarnation to continue") \
    X(E_NO_ANSWER, -117, "fatal: no answer to open or accept; is the peer up? address and keys?")  \
    X(E_DEAD, -113, "fatal: the peer is lost, silent for the hold time; open a new incarnation")   \
    X(E_RESET, -114, "fatal: the channel was reset, here or by the peer; its reason says why")     \
    X(E_PROTO, -115, "fatal: the peer broke a rule inside authentic frames; see last_error")

#define DXPUI_ERROR_ENUM(name, value, text) DXPU_##name = (value),
enum { DXPU_OK = 0, DXPU_ERRORS(DXPUI_ERROR_ENUM) DXPU_ERRORS_END };

/* The sentence of an error, "ok" for 0, "unknown error" for another number.  Static text. */
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
    X(tx_tail_probes, "tail loss probes: frames sent again early")                                 \
    X(tx_timeouts, "retransmission timeouts")                                                      \
    X(tx_fast, "data frames found lost by acknowledgements of later ones")                         \
    X(tx_congestion, "congestion events: a path's window was reduced")                             \
    X(path_down, "times a path became unusable")                                                   \
    X(path_up, "times a path became usable")                                                       \
    X(tx_blocked, "times a class waited for credit longer than an RTO")                            \
    X(tx_local_prefixes, "local TLP prefixes terminated here")                                     \
    X(rx_frames, "valid frames received, all kinds")                                               \
    X(rx_bytes, "bytes of valid frames")                                                           \
    X(rx_tlps, "TLPs stored for the consumer")                                                     \
    X(rx_reordered, "data frames kept: an earlier one, or room for events, is missing")            \
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
    X(rx_path, "refused: open or probe over a path that is not configured")                        \
    X(rx_cpl_refused, "completions dropped: not requested, or not the bytes requested")            \
    X(rx_events_ignored, "link events of a type this version does not know")                       \
    X(contained, "requests that dxpu_channel_contain() named")                                     \
    X(contain_dropped, "TLPs and link events dropped with their channel")

#define DXPUI_COUNTER_FIELD(name, text) uint64_t name;
typedef struct dxpu_counters {
    DXPU_COUNTERS(DXPUI_COUNTER_FIELD)
} dxpu_counters;

/* Name of counter `index` (the order of DXPU_COUNTERS, which has the meanings), NULL past the last:
   loop from 0 to print them all; and its value in *c (which may be NULL). */
DXPU_API const char *dxpu_counter_name(unsigned index);
DXPU_API uint64_t dxpu_counter_value(const dxpu_counters *c, unsigned index);

/* ==== 7  CRC-32 ==================================================================================
   zlib's CRC-32 (polynomial 0x04c11db7 reflected), which is also that of PCIe's LCRC and ECRC. */

/* Continue `crc` (0 to begin) over len bytes.  ptr may be NULL when len is 0.  O(len). */
DXPU_API uint32_t dxpu_crc32(uint32_t crc, const void *ptr, size_t len);

/* ==== 8  TLP codec ============================================================== spec/tlp.md ====
   Non-flit TLPs of PCIe Base Specification 5.0 (chapter 2) and the deferrable write of 6.0. */

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

/* dxpu_tlp.attr, Attr[2:0]: No Snoop, Relaxed Ordering, ID-based Ordering */
enum { DXPU_ATTR_NS = 0x1, DXPU_ATTR_RO = 0x2, DXPU_ATTR_IDO = 0x4 };
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
    uint8_t first_be, last_be; /* 0..15; requests to memory (not atomics), I/O, configuration */
    uint64_t address;          /* bytes, dword aligned; memory, I/O, atomics, messages by address */
    uint16_t completer;        /* BDF; completions */
    uint8_t status;            /* DXPU_CPL_*; completions */
    bool bcm;                  /* Byte Count Modified; completions */
    uint16_t byte_count;       /* 1..4096; completions */
    uint8_t lower_addr;        /* 0..127; completions */
    uint16_t target;           /* BDF; configuration requests and messages by ID */
    uint16_t register_bytes;   /* configuration register offset, 0..4092 */
    uint8_t message_code;
    uint8_t message_routing; /* DXPU_MSG_* */
    /* Header bytes 8..15 of a message as two big-endian numbers.  encode() takes the target of a
       message by ID and the address of one by address from their own fields instead. */
    uint32_t message_dw[2];
    uint8_t prefix_count;
    uint32_t prefix[DXPU_PREFIXES_MAX]; /* in order; first byte in bits 31:24 */
    dxpu_bytes payload;                 /* into the decoded bytes, in the TLP's order */
    uint32_t digest;                    /* ECRC as a number; only with td */
} dxpu_tlp;

/* Decode exactly one TLP (prefixes, header, payload, digest) under every rule of spec/tlp.md (T-).
   DXPU_OK, then out->payload points into tlp, or E_TLP_*.  encode() of the result gives the same
   bytes.  For analysers and tests; a receiver calls dxpu_tlp_receive().  O(1). */
DXPU_API int dxpu_tlp_decode(dxpu_bytes tlp, dxpu_tlp *out);
/* Decode exactly one TLP as a PCIe receiver does (T-43): reserved bits and fields read as 0, a
   reserved completion status as UR, a 4-dword header for an address below 4 GB as one of 3.
   Returns as dxpu_tlp_decode; encode() of the result gives a TLP that it accepts.  O(1). */
DXPU_API int dxpu_tlp_receive(dxpu_bytes tlp, dxpu_tlp *out);
/* Decode what an AER log or a truncated capture holds: prefixes (if any) and header, at least 12
   bytes for a 3-dword header.  Only what cannot be read is refused (E_TLP_SHORT, E_TLP_TYPE,
   E_TLP_ALL_ONES, E_TLP_ALL_ZERO, E_TLP_PREFIX*); reserved bits and residue are ignored.  payload
   is the part that is there, maybe less than length_dw says; digest is 0. */
DXPU_API int dxpu_tlp_decode_header(dxpu_bytes tlp, dxpu_tlp *out);
/* Check a decoded TLP against the rules that do not need its bytes.  Returns as dxpu_tlp_decode. */
DXPU_API int dxpu_tlp_check(const dxpu_tlp *t);
/* Encode t into out.  t must pass dxpu_tlp_check() and payload.len must be what length_dw says.
   *out_len gets the bytes written; with td the digest is written as given: dxpu_tlp_ecrc().
   DXPU_OK, E_TLP_*, or E_ROOM.  O(payload). */
DXPU_API int dxpu_tlp_encode(const dxpu_tlp *t, uint8_t *out, size_t cap, size_t *out_len);
DXPU_API const char *dxpu_tlp_type_name(unsigned type); /* "MRd"; "?" when out of range */
/* Name of a prefix dword ("PASID", "TPH", "IDE", "MR-IOV", "VendPrefixL0"...), NULL when PCIe
   does not define it.  *local (may be NULL): true for a local prefix, false for an end-end one. */
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
   Spec 2.7.1), for dxpu_put_le32().  tlp may end without its digest.  0: short, or not a TLP. */
DXPU_API uint32_t dxpu_tlp_ecrc(dxpu_bytes tlp);
/* Compare the digest of a whole TLP.  DXPU_OK (also without one), E_TLP_ECRC, or as measure. */
DXPU_API int dxpu_tlp_ecrc_check(dxpu_bytes tlp);

/* Byte enables for `bytes` (0..4096) at byte address `address`; 0 asks for a zero-length request.
   first_be, last_be and length_dw are written.  DXPU_OK, or E_ARG when the range crosses 4 KB. */
DXPU_API int dxpu_be_from_range(uint64_t address, uint32_t bytes, uint8_t *first_be,
                                uint8_t *last_be, uint16_t *length_dw);
/* The other way: offset of the first enabled byte from the dword address (0..3, 0 for none) and
   the span from it to the last enabled byte, 0 for a zero-length request (Base Spec 2.2.5). */
DXPU_API void dxpu_be_to_range(uint8_t first_be, uint8_t last_be, uint16_t length_dw,
                               uint32_t *offset_bytes, uint32_t *span_bytes);
/* Bytes of a transfer's next request, within its 4 KB.  max_bytes is 2^n >= 4, left_bytes > 0. */
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
/* The next one: fills byte_count, lower_addr, length_dw of *cpl, which dxpu_tlp_completion() made
   once, and *address_dw, of its payload, dword-aligned.  False when all is completed.  O(1). */
DXPU_API bool dxpu_cpl_split_next(dxpu_cpl_split *s, dxpu_tlp *cpl, uint64_t *address_dw);

/* A completion for `req`: requester, tag, TC and attributes copied, Byte Count and Lower Address as
   the request's kind requires; a completion with data when status is SC and the request asked for
   any (payload then is the caller's to set; for a read that needs splitting use dxpu_cpl_split). */
DXPU_API void dxpu_tlp_completion(const dxpu_tlp *req, uint16_t completer, uint8_t status,
                                  dxpu_tlp *cpl);
/* True when t writes Initiate Function Level Reset of a function whose PCI Express capability is at
   byte `capability` of its configuration space (Base Spec 7.5.3.4); see dxpu_tags_reset(). */
DXPU_API bool dxpu_tlp_is_flr(const dxpu_tlp *t, uint16_t capability);

/* ==== 9  Classifier and messages =========================================== spec/route.md ==== */
/* how a TLP is routed */
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
    DXPU_MSG_FORWARD,   /* crosses the fabric unchanged */
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

DXPU_API const char *dxpu_message_name(unsigned code); /* NULL when PCIe has none */
DXPU_API int dxpu_message_code(const char *name);      /* or E_NONE */
/* What a proxy does with message t (Msg or MsgD) in a direction: DXPU_MSG_FORWARD..REFUSE.  Vendor
   messages with local routing terminate; unknown codes are refused. */
DXPU_API uint8_t dxpu_message_action(const dxpu_tlp *t, unsigned direction);

/* ==== 10  Routing tables ====================================================== spec/route.md ====
   The mapping tables of the paper (3.3.1, Tables 2 and 3) with function number and lease epoch. */

#define DXPU_FUNCTION_ALL 0xffffu /* the whole device of a slot */
#define DXPU_SLOT_HOST    0u      /* 'the host'; never a slot of a box */

/* A place in the fabric. */
typedef struct dxpu_place {
    uint32_t node;     /* proxy, numbered by the manager; any number without one */
    uint16_t slot;     /* 1.. at a box, DXPU_SLOT_HOST at a host */
    uint16_t function; /* 0..255, or DXPU_FUNCTION_ALL; of a host's own place not looked at */
} dxpu_place;

#if DXPU_TABLES
/* An address range, both ends included; empty while base > limit. */
typedef struct dxpu_range {
    uint64_t base;
    uint64_t limit;
} dxpu_range;

/* One row of Table 2: a downstream port of the virtual switch and what is behind it.  The first
   block is the caller's, given to add(); the second is learnt from configuration writes.  Bus span
   and windows are here only while they are in force. */
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
    uint8_t flags;           /* private: what is on but blocked, R-5 */
    dxpu_range memory;       /* Memory Base and Limit: non-prefetchable, below 4 GB */
    dxpu_range prefetchable; /* the same for the 64-bit prefetchable window */
    uint32_t reg[6];         /* type 1 registers 04h 18h 20h 24h 28h 2Ch, what is writable */
} dxpu_host_entry;

/* One window in the sorted list; visible so that you can allocate it. */
typedef struct dxpu_host_window {
    dxpu_range range;
    uint32_t entry;
} dxpu_host_window;

typedef struct dxpu_host_table {
    dxpu_host_entry *entries;
    dxpu_host_window *windows; /* sorted by address, never overlapping */
    uint32_t capacity, used, window_count;
    uint32_t blocked;     /* entries with a window or bus range that overlaps another's */
    uint16_t by_bus[256]; /* entry + 1, 0 for none */
    uint64_t count_learnt, count_overlap;
} dxpu_host_table;

/* Prepare an empty table.  entries[capacity] and windows[2 * capacity] stay the caller's memory and
   must outlive it.  capacity 1..65534.  DXPU_OK or E_ARG. */
DXPU_API int dxpu_host_init(dxpu_host_table *t, dxpu_host_entry *entries, dxpu_host_window *windows,
                            uint32_t capacity);
/* Add a row.  bus and bus_last, memory and prefetchable may be preset (else leave 0 or base >
   limit) and are then checked: windows on 1 MB boundaries, `memory` below 4 GB.  A preset window
   implies Memory Space Enable.  For a port in use already, learn() its registers after this call.
   Returns its index (>= 0) or E_FULL, E_OVERLAP, E_ARG.  O(capacity), rare. */
DXPU_API int dxpu_host_add(dxpu_host_table *t, const dxpu_host_entry *e);
/* Remove row `index`, as when a pool shrinks.  DXPU_OK or E_NONE.  O(capacity). */
DXPU_API int dxpu_host_remove(dxpu_host_table *t, uint32_t index);
/* Row whose window holds `address`; index or E_NONE.  O(log n).  Base Spec 7.5.1.3, R-2. */
DXPU_API int dxpu_host_by_address(const dxpu_host_table *t, uint64_t address);
/* Row behind which function `bdf` is; index or E_NONE.  O(1). */
DXPU_API int dxpu_host_by_bdf(const dxpu_host_table *t, uint16_t bdf);
/* Row for a decoded TLP that goes down: by address for memory, atomics and messages by address, by
   BDF for configuration, completions (their requester) and messages by ID; index, or E_NONE (answer
   Unsupported Request): for I/O, as ports have no I/O window (R-8), and for implicit routing. */
DXPU_API int dxpu_host_route(const dxpu_host_table *t, const dxpu_tlp *tlp);
/* Give row `index` another port BDF (its bus was renumbered).  DXPU_OK or E_NONE. */
DXPU_API int dxpu_host_set_port(dxpu_host_table *t, uint32_t index, uint16_t port);
/* Apply a configuration write that took effect at the port of row `index` (R-6): register offset,
   byte enables and the dword as a number (first byte in bits 7:0).  Registers other than those of
   `reg` do nothing.
   Returns DXPU_OK, E_NONE, or E_OVERLAP: a window or the bus span of the row is on but overlaps
   another row's; it stays off until it no longer does (R-5).  O(capacity * (1 + blocked rows)). */
DXPU_API int dxpu_host_learn(dxpu_host_table *t, uint32_t index, uint16_t register_bytes,
                             uint8_t be, uint32_t value);

/* One row of Table 3: a slot of a box. */
typedef struct dxpu_box_entry { /* 32 bytes: two in a cache line */
    uint64_t epoch;             /* of the lease in force; 0 while not used */
    uint64_t epoch_seen; /* highest ever: fencing.  The caller keeps it over restarts, with the host
                            fields, to which an equal epoch is tied */
    uint32_t host_node;  /* Host Node ID */
    uint32_t channel;    /* the caller's handle */
    uint16_t host_slot;  /* downstream port there */
    uint16_t slot;       /* 1..count */
    uint16_t function;
    uint8_t path;
    bool valid : 1; /* a device is in place */
    bool used : 1;  /* lent to a host */
} dxpu_box_entry;

typedef struct dxpu_box_table {
    dxpu_box_entry *entries; /* entries[slot - 1] */
    uint32_t count;
} dxpu_box_table;

/* entries[count] stay the caller's memory; all slots start without device.  DXPU_OK or E_ARG. */
DXPU_API int dxpu_box_init(dxpu_box_table *t, dxpu_box_entry *entries, uint32_t count);
/* Row of a slot, NULL when there is no such slot.  O(1).  The caller sets `valid`. */
DXPU_API dxpu_box_entry *dxpu_box_slot(const dxpu_box_table *t, uint16_t slot);
/* Lend a slot: DXPU_OK, E_NONE (no such slot or no device), or E_EPOCH (epoch 0, below the highest
   seen, or equal to it and first given to another host_node and host_slot: R-12, R-13).  The same
   host may bind again under the same epoch, also after release().  A higher epoch wins over a lease
   in force (R-14): the row then names the new host; `channel` (to be ended) and `function` stay. */
DXPU_API int dxpu_box_bind(dxpu_box_table *t, uint16_t slot, uint32_t host_node, uint16_t host_slot,
                           uint8_t path, uint64_t epoch);
/* End a lease.  The epoch seen and its host stay.  DXPU_OK, or E_NONE when the slot is not lent. */
DXPU_API int dxpu_box_release(dxpu_box_table *t, uint16_t slot);
#endif

/* ==== 11  Credits and tags ===================================================== spec/flow.md ====
   Flow control as PCIe's (Base Spec 2.6.1): per class, header units (one a TLP) and data units of
   16 payload bytes.  Counters are absolute and wrap; limits only rise in serial arithmetic. */

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

/* -- Tags: every non-posted request in flight, as its requester's side knows it (F-20 ff.). -- */
/* how many tags one requester may use, and which (Base Spec 2.2.6.2): 0..31, 0..255, or 256..1023,
   10-bit tags whose upper two bits are never 0 */
enum { DXPU_TAGS_32 = 32, DXPU_TAGS_256 = 256, DXPU_TAGS_768 = 768 };

typedef struct dxpu_tag_entry { /* visible so that you can allocate it; not API */
    uint64_t user, deadline_ns;
    uint32_t order; /* of the request in its channel */
    uint16_t requester, tag;
    uint16_t left_bytes;  /* expected in completions with data; 0: one without data */
    uint16_t asked_bytes; /* left_bytes at first */
    uint8_t lower_addr;   /* expected in the next one */
    uint8_t kind, state;
    uint8_t local;                 /* where the request is: DXPUI_TAG_GONE.. */
    uint16_t hash_head, hash_next; /* index + 1 */
    uint16_t prev, next;           /* index + 1, in the list of its state */
} dxpu_tag_entry;

/* What the table knows of one request. */
typedef struct dxpu_request {
    uint64_t user; /* as given */
    uint16_t requester, tag;
    uint16_t left_bytes;   /* of a read: bytes not yet completed */
    uint16_t offset_bytes; /* ... completed before these, or at all */
    uint16_t bytes;        /* what this completion brings of them */
    bool done;             /* no further completion will arrive from the peer */
} dxpu_request;

typedef struct dxpu_tags {
    dxpu_tag_entry *entries;
    uint32_t capacity, in_flight;
    uint64_t timeout_ns;
    uint16_t requester;        /* for alloc */
    uint16_t first_tag;        /* for alloc: tag of entries[0] */
    bool gives_tags;           /* alloc is used */
    uint16_t head[5], tail[5]; /* free (oldest first: a tag rests as long as it can), none, in
                                  flight (by deadline), resting (withheld for a timeout), expired
                                  before the peer had the request */
    uint32_t unsent;           /* requests that are over and that a channel's queue still has */
    uint32_t reserve_header, reserve_data; /* completions that may still arrive, in credit units */
    uint64_t count_unexpected, count_bytes, count_expired;
} dxpu_tags;

/* Prepare a table; entries[capacity] stay the caller's memory.  DXPU_OK or E_ARG.
   requester  BDF whose tags alloc() gives out; requests of others can be tracked as well
   mode       DXPU_TAGS_*: the most that capacity may be; 0: no alloc(), 1..32768
   timeout_ns from track() to expiry, > 0 (DXPU_NEVER: none) */
DXPU_API int dxpu_tags_init(dxpu_tags *t, dxpu_tag_entry *entries, uint32_t capacity,
                            uint16_t requester, unsigned mode, uint64_t timeout_ns);
/* A tag of the table's own requester that is neither in flight nor resting: 0..1023, or E_NO_TAG
   (always in mode 0).  It is yours until track(); if nothing is sent, call dxpu_tags_drop().
   Each tag has its entry: while a request of another requester is tracked, it occupies an entry,
   whose tag is withheld (F-27).  O(1 + own tags tracked that alloc() did not return). */
DXPU_API int dxpu_tags_alloc(dxpu_tags *t);
/* A decoded non-posted request leaves: track it.  Its completions return `user`.
   Arms the entry that alloc() reserved for this tag, else takes a free one.
   DXPU_OK, E_NO_TAG, E_TAG_BUSY (in flight or resting), E_ARG (not a non-posted request).  O(1). */
DXPU_API int dxpu_tags_track(dxpu_tags *t, const dxpu_tlp *req, uint64_t now_ns, uint64_t user);
/* A decoded completion arrives: match it on requester ID and tag, never on completer ID, and count
   its bytes down.  Header fields decide, the payload itself is not looked at.
   DXPU_OK and *out, or E_CPL_UNEXPECTED, E_CPL_BYTES; then nothing has changed but a counter, and
   the completion must be dropped.  E_ARG for anything but a completion.  O(1). */
DXPU_API int dxpu_tags_complete(dxpu_tags *t, const dxpu_tlp *cpl, dxpu_request *out);
/* Forget one request (not sent after all, or its function was reset), or give back a tag from
   alloc().  A request that its channel has not sent yet is not sent any more (F-34).  DXPU_OK, or
   E_NONE (also for a tag that rests).  O(1). */
DXPU_API int dxpu_tags_drop(dxpu_tags *t, uint16_t requester, uint16_t tag);
/* Forget all requests in flight of a function that was reset (D-61).  How many; O(capacity). */
DXPU_API uint32_t dxpu_tags_reset(dxpu_tags *t, uint16_t requester);
/* The next request whose deadline has passed: true and *out, to be answered as a completion
   timeout.  One that its channel has not sent yet is not sent any more.  Else its tag rests for one
   more timeout, once the peer has acknowledged the request, so that a late completion matches
   nothing (F-31, F-34).  Parts that a channel had stored may still be offered, under its
   `user`.  Frees tags that have rested long enough.  Call until false.  O(1) a request. */
DXPU_API bool dxpu_tags_expire(dxpu_tags *t, uint64_t now_ns, dxpu_request *out);
/* Remove the oldest request in flight, whatever its deadline: true, and it is in *out.  For
   containment: call until false, answer each with Unsupported Request.  The call that returns false
   also frees what rests: only tags from alloc() that were never sent remain.  O(1) a request. */
DXPU_API bool dxpu_tags_pop(dxpu_tags *t, dxpu_request *out);
/* When dxpu_tags_expire() has work next, a deadline or the end of a rest; DXPU_NEVER for none. */
DXPU_API uint64_t dxpu_tags_next_ns(const dxpu_tags *t);
/* The most completions, in credit units, that a read of `bytes` from an address with these lower
   bits can bring (split at 64 bytes, F-24).  0 bytes is the zero-length read, which brings one. */
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
    DXPU_FRAME_SEQUENCE = 20,   /* u32  delivery order (other kinds: the next, unread) D-1 */
    DXPU_FRAME_ACK = 24,        /* u32  next sequence expected                         D-2 */
    DXPU_FRAME_SACK = 28,       /* u64  bit i: ack + 1 + i has arrived                 D-3 */
    DXPU_FRAME_SEEN = 36,       /* u64  largest packet number of data, on all paths    D-4 */
    DXPU_FRAME_DELAY = 44,      /* u32  nanoseconds since its arrival                  D-4 */
    DXPU_FRAME_ECN_CE = 48,     /* u32  data frames received with CE                   D-5 */
    DXPU_FRAME_LIMITS = 52,     /* 6 x u32  P, NP, CPL header units; the same for data F-3 */
    DXPU_FRAME_FULL_BYTES = 76,
    DXPU_FRAME_CRC_BYTES = 4, /* trailer of the CRC suite */
    DXPU_FRAME_TAG_MAX_BYTES = 32,
    DXPU_FRAME_MIN_LIMIT_BYTES = 1232, /* 1,280 of IPv6 less its and UDP's header       W-10 */
    DXPU_FRAME_MAX_LIMIT_BYTES = 65507,
    DXPU_HANDSHAKE_MAX_BYTES = 1200,
    DXPU_PROBE_BYTES = 12, /* flags, 3 reserved, u64 cookie that the reply repeats; then padding */
    DXPU_PROBE_REPLY = 0x01, /* in its flags */
    DXPU_CLOSE_ANSWER = 0x01 /* in the flags of close, its second byte */
};
#define DXPU_MAGIC 0x4458u

#define DXPU_KINDS(X) /* name, number, text; only the first three carry sequence and ack fields */ \
    X(DATA, 1, "data")                                                                             \
    X(ACK, 2, "ack")                                                                               \
    X(BLOCKED, 3, "blocked") /* only credit is missing: the peer is to send its limits, F-12 */    \
    X(OPEN, 4, "open")                                                                             \
    X(ACCEPT, 5, "accept")                                                                         \
    X(RESET, 6, "reset")                                                                           \
    X(CLOSE, 7, "close")                                                                           \
    X(HANDSHAKE, 8, "handshake")                                                                   \
    X(PROBE, 9, "probe")
#define DXPUI_KIND_ENUM(name, value, text) DXPU_KIND_##name = (value),
enum { DXPU_KINDS(DXPUI_KIND_ENUM) DXPU_KIND_END };
DXPU_API const char *dxpu_kind_name(unsigned kind); /* "data"; "?" for none */

/* A decoded frame header.  The second block is 0 in kinds that end at DXPU_FRAME_BASE_BYTES. */
typedef struct dxpu_frame {
    uint8_t kind;
    uint8_t key_phase; /* 0..3 */
    uint8_t path;
    uint32_t channel;
    uint64_t packet;
    uint32_t sequence, ack;
    uint64_t sack, seen;
    uint32_t delay_ns, ecn_ce;
    dxpu_credits limits;
    dxpu_bytes body; /* records or the kind's own fields; into the decoded bytes */
} dxpu_frame;

/* Kind and channel id of a frame of our version, for demultiplexing before a channel is known.
   DXPU_OK, E_SHORT, E_MAGIC, E_LENGTH, E_VERSION.  Nothing is authenticated yet. */
DXPU_API int dxpu_frame_peek(dxpu_bytes datagram, uint8_t *kind, uint32_t *channel);
/* Decode the header.  trailer_bytes: 4 for the CRC suite, else the suite's tag.  Does not check the
   trailer.  DXPU_OK or a peer error. */
DXPU_API int dxpu_frame_decode(dxpu_bytes datagram, size_t trailer_bytes, dxpu_frame *out);
/* Write the header of f at out[0..]; the caller writes the body of body_bytes and the trailer after
   it.  Returns the header's bytes.  out holds DXPU_FRAME_FULL_BYTES at least. */
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
    uint16_t window_frames;     /* frames the sender can receive beyond its ack */
    uint32_t frame_limit_bytes; /* largest frame the sender takes */
    uint32_t hold_ms;
    uint32_t sequence;              /* first frame sequence the sender will use */
    bool completions_infinite;      /* completion credits are not limited */
    dxpu_credits limits;            /* first credit limits */
    uint64_t epoch;                 /* lease epoch */
    dxpu_place source, destination; /* of the sender; of the receiver */
} dxpu_offer;
enum { DXPU_SUITE_CRC = 1 }; /* others: the security binding */
enum { DXPU_OFFER_BYTES = 72 };

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
DXPU_API const char *dxpu_reason_text(unsigned reason); /* "unknown reason" for none */

/* -- Records -- */
enum { DXPU_RECORD_TLP = 1, DXPU_RECORD_PAYLOAD = 2, DXPU_RECORD_EVENT = 3 };
enum { DXPU_RECORD_PADDING = 0x80 }; /* W-45; skipped, as all from here on (W-31) */

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
/* dxpu_event.flags; a receiver ignores the others */
enum { DXPU_EVENT_ON = 0x80, DXPU_EVENT_READ = 0x40, DXPU_EVENT_WRITE = 0x20 };
enum { DXPU_EVENT_NOT_SUPPORTED = 0x01 };

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
    uint8_t cls, prefix_dw, header_dw;
    uint16_t data_bytes; /* payload and digest that follow in payload records */
    uint32_t tlp_crc;
    dxpu_bytes bytes; /* TLP: prefixes and header; PAYLOAD: data */
    dxpu_event event; /* EVENT */
} dxpu_record;

/* Take the next record off *body.  DXPU_OK; E_NONE at the end; E_RECORD.  Unknown records that may
   be ignored are skipped; an event of unknown type becomes type 0 of DXPU_RECORD_EVENT.  O(1). */
DXPU_API int dxpu_record_next(dxpu_bytes *body, dxpu_record *out);

#if DXPU_CHANNEL
/* ==== 13  Channel: life ===================================================== spec/deliver.md ====
   One attachment seen from one end: the reliable, ordered link with credits over datagrams. */

/* dxpu_status.state; rows of spec/deliver.md, in the order of a life */
enum {
    DXPU_STATE_IDLE,     /* initialised */
    DXPU_STATE_OPENING,  /* open sent, accept awaited */
    DXPU_STATE_ACCEPTED, /* accept sent, first sequenced frame awaited */
    DXPU_STATE_UP,
    DXPU_STATE_DRAINING, /* close asked for: what was submitted is still delivered */
    DXPU_STATE_CLOSING,  /* close sent, the peer's awaited */
    DXPU_STATE_CLOSED,   /* both sides agreed; emit() reports the end of the closing period */
    DXPU_STATE_FAILED    /* dxpu_status.error says why */
};
DXPU_API const char *dxpu_state_name(unsigned state); /* "idle", ... */

/* What DXPU_TRACE() is called with: qlog's events, and their numbers */
enum {
    DXPU_TRACE_STATE,    /* connection_state_updated: DXPU_STATE_* */
    DXPU_TRACE_SENT,     /* packet_sent: packet number */
    DXPU_TRACE_RECEIVED, /* packet_received: packet number, of one that is used */
    DXPU_TRACE_DROPPED,  /* packet_dropped: the error, negative */
    DXPU_TRACE_ACKED,    /* packets_acked: frame sequence of the oldest that is not */
    DXPU_TRACE_LOST,     /* packet_lost: frame sequence, which is sent again */
    DXPU_TRACE_TIMER,    /* loss_timer_updated: path whose timer has expired */
    DXPU_TRACE_WINDOW    /* metrics_updated: bytes of a path's window, reduced */
};

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

/* Fill it with dxpu_channel_config_default(), then set what differs. */
typedef struct dxpu_channel_config {
    uint32_t local_id; /* under which we receive; random, not 0, not used by another channel here */
    uint32_t sequence; /* first frame sequence we send; random, any */
    uint64_t epoch;    /* lease epoch, > 0 */
    dxpu_place local, remote;
    uint32_t window_frames;     /* frames in flight each way: a power of two, 4..16384 [32] */
    uint32_t frame_limit_bytes; /* largest frame we send or take, 1232..65507: MTU less IP and UDP
                                   headers; a path must carry it, or what open found [1452] */
    dxpu_credits rx;  /* stored here until taken; headers from 1, data from 256, 8, 256, a class's
                         ring (D-52) below 1 GiB [64/512, 32/64, 80/384] */
    dxpu_credits tx;  /* queued here until acknowledged; headers at most 32,768 in all [as rx] */
    uint32_t hold_ms; /* silence that ends the channel; at least 4 x each of these [1,000] */
    uint64_t rto_min_ns;     /* floor of the retransmission timeout, D-11; 1..hold/4 [1 ms] */
    uint64_t ack_delay_ns;   /* how long an acknowledgement waits for more, 0..hold/4 [25 us] */
    uint8_t paths;           /* opener: used; acceptor: the most followed; 1..DXPU_PATHS_MAX [1] */
    bool spread;             /* load on all usable paths, else on the first of them [false] */
    bool lossless;           /* a fabric that never drops: no congestion control [false] */
    dxpu_tags *tags;         /* requests we send and the completions we take; NULL: unmatched.
                                The caller's, initialised, for this channel alone */
    const dxpu_suite *suite; /* NULL: CRC-32 */
    void *suite_user;
} dxpu_channel_config;

/* A received TLP, as peek() shows it. */
typedef struct dxpu_delivery {
    dxpu_bytes tlp;        /* {NULL, 0}: nothing may go now.  Valid until taken, or ingest() */
    dxpu_bytes data;       /* its payload; with `tags`, of a read the bytes asked for alone */
    uint64_t user;         /* completions with `tags`: as given to submit() with the request */
    uint32_t offset_bytes; /* ... where in what that asked for `data` begins */
    bool last;             /* ... and no further completion of it will arrive; status: in `tlp` */
} dxpu_delivery;

/* -- private layouts, visible so that a channel can be a member of your struct.  Between calls a
   dxpu_channel may be moved, by memcpy: nothing points into it.  Its memory may not. -- */
typedef struct dxpui_item { /* one TLP of a queue */
    uint64_t user;          /* sender: a request's entry in `tags`; receiver: that of peek() */
    uint32_t order;         /* TLPs and events submitted (sender), arrived (receiver) before it */
    uint32_t crc; /* of its bytes; once checked 0, or of a completion offset and bytes it answers */
    uint32_t pos; /* of its bytes in the ring */
    uint16_t bytes, head_bytes, units; /* all; prefixes and header; credit for data */
    uint16_t id;                       /* requester; completer of a completion */
    uint8_t flags, last, prefix_dw;    /* DXPUI_MAY_PASS ff.; a request's last completion */
} dxpui_item;

typedef struct dxpui_queue { /* TLPs of one class: a ring of items, one of their bytes */
    dxpui_item *items;
    uint8_t *mem;
    uint32_t cap, end;         /* bytes; where the youngest TLP ends */
    uint32_t head, next, tail; /* items: oldest, next to offer, free */
    uint32_t count, waiting;   /* items from head, from next */
    uint32_t header_max, data_max, data_used;
    uint32_t id_changes; /* neighbours waiting whose requesters differ (IDO) */
    uint16_t tail_id;    /* requester of the youngest */
} dxpui_queue;

typedef struct dxpui_events { /* link events in order: a ring of DXPUI_EVENTS */
    dxpu_event *event;
    uint32_t *order;           /* their places among the TLPs */
    uint32_t head, next, tail; /* oldest, next to go (sender), free */
} dxpui_events;

/* The incarnation: handshake, keep-alive, close. */
typedef struct dxpui_link {
    uint8_t state, reason, tries, key_phase;
    bool close_asked;                /* before UP: it takes effect then (D-65) */
    bool lingers;                    /* the peer may repeat its close (D-66) */
    bool end_reported;               /* emit() has returned the error */
    bool send_reset, send_answer;    /* of a close */
    uint8_t close_path, answer_path; /* of the next close; of its answer */
    int error, last_error;
    uint32_t remote_id, trailer, frame_limit;
    uint64_t hold_ns;  /* the smaller of both ends' */
    uint64_t heard_ns; /* last valid frame; in CLOSING and CLOSED when that began (D-45, D-66) */
    uint64_t next_try_ns;
    uint64_t look_ns; /* at most dxpui_look_ns(): what makes that sooner lowers this, 0 will do */
    uint64_t packet;  /* next packet number */
} dxpui_link;

/* What was submitted, until it is acknowledged; dxpui_flight has of it only where frames begin. */
typedef struct dxpui_sender {
    dxpui_queue queue[DXPU_CLASSES];
    dxpui_events events;
    uint32_t *placed; /* what was put into frames, in order: class << 30 | index in its ring */
    uint32_t placed_mask, placed_head, placed_tail;
    uint32_t submitted;        /* how many, events too: the order of the next */
    uint32_t waiting;          /* of these not begun in a frame */
    uint16_t partial_bytes;    /* how far the youngest placed TLP is in frames, 0 when all is */
    bool completions_infinite; /* the peer takes any number */
    uint8_t blocked_tries;
    uint64_t blocked_at_ns;
    dxpu_credits limits, used; /* the peer's rx.granted; what was begun (F-3, F-7) */
} dxpui_sender;

typedef struct dxpui_sent { /* one data frame, found by its sequence; its newest transmission: */
    uint64_t sent_ns;
    uint32_t packet_lo; /* low bits of its packet number: counts all frames of all paths */
    uint32_t index;     /* counts the data frames of its path, those sent again too */
    /* first: index in dxpui_sender.placed of the TLP it begins with or continues; at_bytes: how far
       that had come before it; tries: up to 255 */
    unsigned first : 16, at_bytes : 13, padding_dw : 3;
    unsigned body_bytes : 16, path : 6, state : 2, tries : 8;
} dxpui_sent;

/* The frames from the newest ack on: una .. next - 1, at most `window`; a sack names the 64 behind
   its ack. */
typedef struct dxpui_flight {
    dxpui_sent *frame;  /* by the low bits of the sequence */
    uint32_t una, next; /* the peer's ack; the next new */
    uint32_t mask;      /* of `frame` */
    uint32_t window;    /* the smaller of both ends' */
    uint32_t overhead_bytes;
    uint32_t lost;      /* frames marked for retransmission */
    uint32_t lost_from; /* none before this one */
    uint8_t unstored;   /* una was seen, not acked (sacked perhaps): 1, once more each time */
} dxpui_flight;

typedef struct dxpui_path { /* times are 0 or DXPU_NEVER while they mean nothing */
    /* loss detection */
    uint64_t srtt_ns, rttvar_ns, sample_ns, rto_ns;
    uint64_t timer_ns;                   /* tail-loss probe, then RTO */
    uint64_t loss_ns;                    /* the oldest undecided transmission is lost then */
    uint16_t *log;                       /* transmissions: low bits of the sequence */
    uint32_t index, index_acked, judged; /* next, largest acknowledged, next to judge */
    uint8_t timeouts;                    /* in a row */
    bool progress;                       /* something on it was acknowledged just now */
    /* congestion control */
    bool recovering; /* some that left before index `recovery` are undecided */
    uint32_t recovery, limited_at, acked_bytes; /* two indexes; what counts to grow */
    uint32_t window, threshold, in_flight;      /* bytes */
    uint64_t pace_ns;                           /* the next data frame may leave */
    /* probes */
    uint64_t heard_ns, probe_ns, awaited_ns, reply_cookie;
    uint16_t reply_bytes;                    /* of the probe to answer; 0: none */
    uint8_t missed, answers, answers_needed; /* in a row */
    bool known, usable;                      /* the peer is there; it carries frames both ways */
    bool urgent, suspect, awaiting; /* one frame past window and pace; in doubt; probe unanswered */
    /* replay */
    uint64_t replay_top; /* one past the largest packet number seen */
    uint64_t *replay;    /* packet numbers seen, a window of bits */
} dxpui_path;

typedef struct dxpui_paths {
    dxpui_path *path;
    uint8_t count;
    uint8_t latest;        /* of the last valid frame */
    bool newest;           /* that frame was the newest of its path */
    uint8_t seen_path;     /* of the newest transmission of ours that the peer has seen */
    uint8_t fallback;      /* the one to try while none is usable */
    uint32_t replay_bits;  /* of each */
    uint32_t ecn_reported; /* the peer's count when we last looked */
} dxpui_paths;

/* What arrived: in order up to `next`, early frames behind it, and what the peer is to learn. */
typedef struct dxpui_receiver {
    dxpui_queue queue[DXPU_CLASSES];
    dxpui_events events;
    uint32_t next, arrived; /* frame sequence expected; TLPs and events so far */
    uint8_t *early_bodies;  /* frames that cannot be used yet: window x frame body */
    uint16_t *early_bytes;  /* 0: empty */
    uint32_t early;         /* how many wait */
    struct {                /* the TLP whose payload is still coming */
        uint8_t cls;
        bool active, skip; /* skip: a completion that finds no room and so has no item */
        uint16_t left_bytes;
    } partial;
    uint8_t malformed; /* refused transmissions of the frame expected next */
    bool ack_now;
    uint32_t unacked; /* data frames not yet acknowledged */
    uint32_t ecn_ce;
    uint64_t ack_at_ns, seen, seen_ns; /* largest packet number of data, when it arrived */
    dxpu_credits granted, advertised;  /* limits: now; as last sent */
} dxpui_receiver;

typedef struct dxpu_channel {
    dxpu_channel_config cfg;
    dxpui_link link;
    dxpui_paths paths;
    dxpui_sender tx;
    dxpui_flight flight;
    dxpui_receiver rx;
    uint8_t busy;
    dxpu_counters count;
} dxpu_channel;

/* Sensible values, in brackets above; ids, epoch and places are left 0 for the caller to set. */
DXPU_API void dxpu_channel_config_default(dxpu_channel_config *cfg);
/* Bytes of memory, 8-byte aligned, that a channel of this configuration needs; 0 when a value is
   out of range.  By default 127864, with sizeof(dxpu_channel) 129120 (64-bit machine); else:
       window_frames     16       64      256     1024
       1232 bytes    101912   158648   385688  1293848
       1452 bytes    105432   172728   442008  1519128
       8952 bytes    225432   652728  2362008  9199128
       least          65176   121912   348952  1257112   1232 bytes, rx and tx 8/256, 8/8, 8/256 */
DXPU_API size_t dxpu_channel_bytes(const dxpu_channel_config *cfg);
/* The first field of a configuration that is out of its range: *why gets its name and range, static
   text ("window_frames: a power of two, 4..16384"); why may be NULL.  DXPU_OK or E_ARG. */
DXPU_API int dxpu_channel_check(const dxpu_channel_config *cfg, const char **why);
/* Initialise or reuse ch (cfg may be &ch->cfg).  mem stays the caller's and must outlive the
   channel.  Layouts are checked: a program whose parts disagree on the options of section 2 gets
   E_ARG.  Time starts when it is opened or accepted.  DXPU_OK or E_ARG. */
#define dxpu_channel_init(ch, cfg, mem, mem_bytes)                                                 \
    dxpu_channel_init_sized((ch), sizeof *(ch), (cfg), (mem), (mem_bytes))
DXPU_API int dxpu_channel_init_sized(dxpu_channel *ch, size_t ch_bytes,
                                     const dxpu_channel_config *cfg, void *mem, size_t mem_bytes);

/* Begin as the side that opens (the host).  DXPU_OK or E_ARG when not idle. */
DXPU_API int dxpu_channel_open(dxpu_channel *ch, uint64_t now_ns);
/* Begin as the side that accepts: `open` is a whole open frame whose offer the caller has checked
   and allowed (slot, lease, epoch).  Fails with a peer error, such as E_VERSION, E_OFFER or E_EPOCH
   (not cfg's epoch), and then stays idle: answer with dxpu_reset_encode().  Keep the opener's old
   incarnation until this one is UP: an open that is a late duplicate never gets there. */
DXPU_API int dxpu_channel_accept(dxpu_channel *ch, uint64_t now_ns, uint8_t *open, size_t len);
/* Write a reset frame that refuses the open of id `channel` with `reason`.  Returns its bytes. */
DXPU_API size_t dxpu_reset_encode(uint32_t channel, uint8_t reason, uint8_t out[64]);

/* Close gracefully: what was submitted is delivered first, however long a reachable peer takes; to
   bound that time call dxpu_channel_reset().  Before the channel is UP the close is remembered.
   DXPU_OK, also when it is closing or over; E_ARG before it was opened. */
DXPU_API int dxpu_channel_close(dxpu_channel *ch, uint8_t reason);
/* End at once; a reset frame notifies the peer. */
DXPU_API void dxpu_channel_reset(dxpu_channel *ch, uint8_t reason);
/* Containment (D-60), once the channel is FAILED or CLOSED: puts into *out the next request of its
   tags that will never be completed.  Answer it with Unsupported Request.  Call until false; the
   queues are empty then.  O(1) a TLP. */
DXPU_API bool dxpu_channel_contain(dxpu_channel *ch, dxpu_request *out);
/* Seal from now on with keys of `phase`, 0..3; the suite holds the keys (W-5). */
DXPU_API void dxpu_channel_set_key_phase(dxpu_channel *ch, uint8_t phase);
typedef struct dxpu_status {
    uint8_t state;  /* DXPU_STATE_IDLE.. */
    uint8_t reason; /* DXPU_REASON_*, ours or theirs */
    uint8_t path;   /* of the last valid frame */
    bool newest;    /* ... which is the newest of its path: its sender's address is the path's */
    int error;      /* 0, or why it is FAILED or CLOSED.  E_CLOSED: our close was answered, the peer
                       has stored all that was submitted; E_PEER_CLOSED: it closed first, and what
                       it had not acknowledged is lost */
    int last_error; /* E_PROTO: the broken rule */
    uint64_t hold_ns; /* the smaller of both ends' cfg.hold_ms, once it is up */
} dxpu_status;
DXPU_API dxpu_status dxpu_channel_status(const dxpu_channel *ch);

/* ==== 14  Channel: paths ===================================================== spec/paths.md ====
   A path is a pair of addresses with the same number at both ends.  Each has its own round
   trip time, timers, and congestion window; the frame sequence orders what they reorder. */

typedef struct dxpu_path_info {
    bool known;  /* the opener's are; the acceptor's once a frame arrived on it */
    bool usable; /* carries frames of the limit both ways */
    bool active; /* data goes here (with cfg.spread also on the other usable ones) */
    uint64_t srtt_ns, rto_ns;
    uint32_t window_bytes, in_flight_bytes; /* of congestion control */
} dxpu_path_info;

/* DXPU_OK, or E_NONE for a path that is not configured. */
DXPU_API int dxpu_channel_path(const dxpu_channel *ch, unsigned path, dxpu_path_info *out);

/* ==== 15  Channel: sending =============================================== spec/deliver.md ==== */
/* Queue one whole TLP (prefixes, header, payload, digest) without its local prefixes.  It is copied
   unless it is where reserve() returned.
   user   returned with the completions of a non-posted request when the channel has tags
   DXPU_OK; E_AGAIN (the class's queue is full, or no room for its completions); E_NO_TAG;
   E_TAG_BUSY; E_TLP_*; E_CLOSED after close(), or how the channel ended; E_ARG before it was
   opened, and for a request whose completions could never be stored (cfg.rx).  O(len). */
DXPU_API int dxpu_channel_submit(dxpu_channel *ch, dxpu_bytes tlp, uint64_t now_ns, uint64_t user);
/* Returns where to write a TLP of at most tlp_bytes that submit() will queue without a copy; valid
   until the next submit() of class `cls`, whatever else is called.  NULL: E_AGAIN, out of range. */
DXPU_API uint8_t *dxpu_channel_reserve(const dxpu_channel *ch, unsigned cls, size_t tlp_bytes);
/* Queue an event behind all submitted before.  DXPU_OK, E_AGAIN, E_ARG, E_CLOSED, how it ended. */
DXPU_API int dxpu_channel_submit_event(dxpu_channel *ch, const dxpu_event *e);

/* Write the next frame that is due into out.  cap must be at least the frame limit.
   path   gets the path to send it on
   Returns its bytes (> 0), 0 when nothing is due, E_ROOM, E_ARG for a time of DXPU_NEVER, or how
   the channel ended: one that fails emits a reset first, one that the peer closed answers for the
   closing period.  Call until it returns no frame.  O(bytes). */
DXPU_API int dxpu_channel_emit(dxpu_channel *ch, uint64_t now_ns, uint8_t *out, size_t cap,
                               uint8_t *path);
/* Write frames into one buffer, the segments of one message (UDP_SEGMENT): all for one path, all of
   *segment bytes but the last, which may be shorter.  Full frames are padded to be as long as the
   others (W-45).  cap: room for 1 or more frames of the limit, the most that it writes.
   Returns the bytes of all, or as emit().  A frame of emit() and one of these may alternate. */
DXPU_API int dxpu_channel_emit_many(dxpu_channel *ch, uint64_t now_ns, uint8_t *out, size_t cap,
                                    uint8_t *path, size_t *segment);
/* When emit() next returns a frame or the end.  A time up to now, such as 0, means at once.
   DXPU_NEVER: nothing is armed; once emit() has returned the end, nothing ever will be. */
DXPU_API uint64_t dxpu_channel_next_ns(const dxpu_channel *ch);

/* ==== 16  Channel: receiving ============================================= spec/deliver.md ==== */
enum { DXPU_RX_ECN_CE = 1 }; /* flags of ingest: the datagram was marked Congestion Experienced */
/* Take one datagram from the network.
   pkt    0..65535 bytes; altered when a suite opens it in place; not kept
   Returns DXPU_OK, or a peer error after counting it (drop the datagram and go on), or the fatal
   error that it caused.  O(records), O(window) over the life of a loss. */
DXPU_API int dxpu_channel_ingest(dxpu_channel *ch, uint64_t now_ns, uint8_t *pkt, size_t len,
                                 unsigned flags);
/* The next TLP of a class that PCIe's ordering table lets go now (D-30 ff.).  O(1). */
DXPU_API dxpu_delivery dxpu_channel_peek(const dxpu_channel *ch, unsigned cls);
/* Remove what peek() showed; credits go back (with `tags` no completion's).  DXPU_OK or E_NONE. */
DXPU_API int dxpu_channel_take(dxpu_channel *ch, unsigned cls, uint64_t now_ns);
/* The next link event, if all TLPs before it have been taken.  True and *out. */
DXPU_API bool dxpu_channel_peek_event(const dxpu_channel *ch, dxpu_event *out);
/* Remove it.  DXPU_OK, E_NONE, or the fatal error of a frame that waited for its room (D-36). */
DXPU_API int dxpu_channel_take_event(dxpu_channel *ch);

/* what dxpu_channel_wants() answers, computed, never stored */
enum {
    DXPU_WANTS_EMIT = 1,        /* emit() would give a frame or the end now */
    DXPU_WANTS_TAKE_POSTED = 2, /* peek() would show one */
    DXPU_WANTS_TAKE_NONPOSTED = 4,
    DXPU_WANTS_TAKE_COMPLETION = 8,
    DXPU_WANTS_TAKE_EVENT = 16,
    DXPU_WANTS_ACK = 32,           /* something submitted is not yet acknowledged */
    DXPU_WANTS_SUBMIT_POSTED = 64, /* its queue has room for any TLP (of its answers: E_AGAIN) */
    DXPU_WANTS_SUBMIT_NONPOSTED = 128,
    DXPU_WANTS_SUBMIT_COMPLETION = 256
};
DXPU_API unsigned dxpu_channel_wants(const dxpu_channel *ch, uint64_t now_ns);
#endif

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

/* ==== 5'  Views, zero, serial numbers ========================================================= */
/* Hints where speed matters more than size.  INLINE: called for each TLP, field and record.
   APART: rare, so that its registers and stack cost the usual case nothing. */
#if defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#define DXPUI_INLINE static inline __attribute__((always_inline))
#define DXPUI_APART  static __attribute__((noinline))
#else
#define DXPUI_INLINE static inline
#define DXPUI_APART  static
#endif

/* Refuses to compile what breaks a promise of a comment. */
#define DXPUI_ASSURE(name, promise) typedef char dxpui_assure_##name[(promise) ? 1 : -1]

#define dxpui_zero(p, bytes) memset((p), 0, (bytes))

static inline dxpu_bytes dxpui_view(const uint8_t *ptr, size_t len)
{
    dxpu_bytes b;
    b.ptr = ptr;
    b.len = len;
    return b;
}

/* < 0: a before b.  Windows keep the ambiguous distance of 2^31 out of reach (D-7). */
static inline int32_t dxpui_seq_cmp(uint32_t a, uint32_t b)
{
    const uint32_t distance = a - b;
    int32_t order; /* two's complement, as C says of this type */
    memcpy(&order, &distance, sizeof order);
    return order;
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
static const char *dxpui_error(int error, bool name)
{
#define DXPUI_CASE(id, value, text)                                                                \
    case DXPU_##id:                                                                                \
        return name ? #id : text;
    switch (error) {
        DXPU_ERRORS(DXPUI_CASE)
    case DXPU_OK:
        return name ? "OK" : "ok";
    default:
        return name ? "E_UNKNOWN" : "unknown error";
    }
#undef DXPUI_CASE
}

DXPU_API const char *dxpu_error_text(int error)
{
    return dxpui_error(error, false);
}

DXPU_API const char *dxpu_error_name(int error)
{
    return dxpui_error(error, true);
}

/* A function that returns the name of a number: the table's entry, beyond it `other`. */
#define DXPUI_NAMES(function, table, other)                                                        \
    DXPU_API const char *function(unsigned i)                                                      \
    {                                                                                              \
        return i < sizeof(table) / sizeof *(table) ? (table)[i] : (other);                         \
    }
#define DXPUI_ROW(name, text) #name,
static const char *const dxpui_counters[] = { DXPU_COUNTERS(DXPUI_ROW) };
#undef DXPUI_ROW
enum { DXPUI_COUNTER_COUNT = sizeof dxpui_counters / sizeof dxpui_counters[0] };
DXPUI_ASSURE(counters, sizeof(dxpu_counters) == DXPUI_COUNTER_COUNT * sizeof(uint64_t));

DXPUI_NAMES(dxpu_counter_name, dxpui_counters, NULL)

DXPU_API uint64_t dxpu_counter_value(const dxpu_counters *c, unsigned index)
{
    uint64_t value = 0;
    if (c && index < DXPUI_COUNTER_COUNT)
        memcpy(&value, (const uint8_t *)c + index * sizeof value, sizeof value);
    return value;
}

/* ==== 7'  CRC-32 ============================================================================== */
#ifndef DXPU_CRC32
/* The CRC is linear: an entry is the sum of the entries of its bits, so a table is written as eight
   constants and the compiler computes the rest. */
#define DXPUI_CRC_ENTRY(i, a, b, c, d, e, f, g, h)                                                 \
    (((0u - ((i)&1u)) & (a)) ^ ((0u - ((i) >> 1 & 1u)) & (b)) ^ ((0u - ((i) >> 2 & 1u)) & (c)) ^   \
     ((0u - ((i) >> 3 & 1u)) & (d)) ^ ((0u - ((i) >> 4 & 1u)) & (e)) ^                             \
     ((0u - ((i) >> 5 & 1u)) & (f)) ^ ((0u - ((i) >> 6 & 1u)) & (g)) ^                             \
     ((0u - ((i) >> 7 & 1u)) & (h)))
#define DXPUI_CRC_R2(T, i)   T(i), T((i) + 1u)
#define DXPUI_CRC_R4(T, i)   DXPUI_CRC_R2(T, i), DXPUI_CRC_R2(T, (i) + 2u)
#define DXPUI_CRC_R8(T, i)   DXPUI_CRC_R4(T, i), DXPUI_CRC_R4(T, (i) + 4u)
#define DXPUI_CRC_R16(T, i)  DXPUI_CRC_R8(T, i), DXPUI_CRC_R8(T, (i) + 8u)
#define DXPUI_CRC_R32(T, i)  DXPUI_CRC_R16(T, i), DXPUI_CRC_R16(T, (i) + 16u)
#define DXPUI_CRC_R64(T, i)  DXPUI_CRC_R32(T, i), DXPUI_CRC_R32(T, (i) + 32u)
#define DXPUI_CRC_R128(T, i) DXPUI_CRC_R64(T, i), DXPUI_CRC_R64(T, (i) + 64u)
#define DXPUI_CRC_R256(T)                                                                          \
    {                                                                                              \
        DXPUI_CRC_R128(T, 0u), DXPUI_CRC_R128(T, 128u)                                             \
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
    DXPUI_CRC_R256(DXPUI_CRC_T0),
#if DXPU_CRC_TABLES == 8
    DXPUI_CRC_R256(DXPUI_CRC_T1), DXPUI_CRC_R256(DXPUI_CRC_T2), DXPUI_CRC_R256(DXPUI_CRC_T3),
    DXPUI_CRC_R256(DXPUI_CRC_T4), DXPUI_CRC_R256(DXPUI_CRC_T5), DXPUI_CRC_R256(DXPUI_CRC_T6),
    DXPUI_CRC_R256(DXPUI_CRC_T7),
#endif
};
#endif /* DXPU_CRC32 */

DXPU_API uint32_t dxpu_crc32(uint32_t crc, const void *ptr, size_t len)
{
#ifdef DXPU_CRC32
    return DXPU_CRC32(crc, ptr, len);
#else
    const uint8_t *p = (const uint8_t *)ptr;
    crc = ~crc;
#if DXPU_CRC_TABLES == 8
    for (; len >= 8; len -= 8, p += 8) {
        crc ^= dxpu_get_le32(p);
        crc = dxpui_crc_table[7][crc & 0xffu] ^ dxpui_crc_table[6][crc >> 8 & 0xffu] ^
              dxpui_crc_table[5][crc >> 16 & 0xffu] ^ dxpui_crc_table[4][crc >> 24] ^
              dxpui_crc_table[3][p[4]] ^ dxpui_crc_table[2][p[5]] ^ dxpui_crc_table[1][p[6]] ^
              dxpui_crc_table[0][p[7]];
    }
#endif
    for (; len; len--, p++)
        crc = crc >> 8 ^ dxpui_crc_table[0][(crc ^ *p) & 0xffu];
    return ~crc;
#endif
}

/* ==== 8'  TLP codec =========================================================================== */
/* what the types have in common: where their fields are */
enum { DXPUI_MEM, DXPUI_ATOMIC, DXPUI_IO, DXPUI_CFG, DXPUI_MSG, DXPUI_CPL };

typedef struct dxpui_tlp_row {
    const char *name;
    uint8_t dw4, data, code, cls, kind;
} dxpui_tlp_row;

#define DXPUI_KIND(code)                                                                           \
    ((code) >= 0x0c && (code) <= 0x0e ? DXPUI_ATOMIC                                               \
     : (code) == 0x10                 ? DXPUI_MSG                                                  \
     : (code) >> 1 == 5               ? DXPUI_CPL                                                  \
     : (code) >> 1 == 2               ? DXPUI_CFG                                                  \
     : (code) == 0x02                 ? DXPUI_IO                                                   \
                                      : DXPUI_MEM)
#define DXPUI_ROW(name, text, dw4, data, code, cls)                                                \
    { text, dw4, data, code, cls, DXPUI_KIND(code) },
static const dxpui_tlp_row dxpui_tlp_rows[] = { DXPU_TLP_TYPES(DXPUI_ROW) };
#undef DXPUI_ROW

#define dxpui_tlp_kind(type) dxpui_tlp_rows[type].kind

/* What a header's first byte says: type << 8, class << 6, DXPUI_HAS_DATA, header dwords; 0 for none
   (T-4).  A TLP record has class and header dwords in the same places.  The key is without the
   routing of messages.  Compilers make one table look-up of it. */
enum { DXPUI_HAS_DATA = 0x20, DXPUI_LAYOUT = 0xc7 /* class, header dwords */ };
static inline unsigned dxpui_tlp_first(unsigned byte0)
{
#define DXPUI_CASE(name, text, dw4, data, code, cls)                                               \
    case (data) << 6 | (code):                                                                     \
        first = (code) == 0x10 ? 0 : DXPU_TLP_##name << 8 | (cls) << 6 | (data) << 5 | 3;          \
        break;                                                                                     \
    case 0x20 | (data) << 6 | (code):                                                              \
        first = (dw4) ? DXPU_TLP_##name << 8 | (cls) << 6 | (data) << 5 | 4 : 0;                   \
        break;
    unsigned first = 0;
    switch (byte0 & ((byte0 & 0x18) == 0x10 ? 0xf8u : 0xffu)) {
        DXPU_TLP_TYPES(DXPUI_CASE)
    default:
        break;
    }
    return first;
#undef DXPUI_CASE
}

static inline bool dxpui_tlp_is_read(unsigned type)
{
    return type == DXPU_TLP_MRD || type == DXPU_TLP_MRDLK;
}

/* Length is reserved: Msg, Cpl, CplLk (T-7). */
static inline bool dxpui_tlp_no_length(unsigned type)
{
    return type == DXPU_TLP_MSG || type == DXPU_TLP_CPL || type == DXPU_TLP_CPLLK;
}

/* length_dw of Length, the low bits of the header's first dword. */
static inline uint16_t dxpui_tlp_length(unsigned type, uint32_t dw)
{
    return (uint16_t)(dxpui_tlp_no_length(type) ? 0 : dw & 0x3ffu ? dw & 0x3ffu : 1024);
}

DXPU_API const char *dxpu_tlp_type_name(unsigned type)
{
    return type < DXPU_TLP_TYPE_COUNT ? dxpui_tlp_rows[type].name : "?";
}

/* -- Prefixes (T-20 ff.) -- */
DXPU_API const char *dxpu_tlp_prefix_name(uint32_t prefix, bool *local)
{
    static const uint8_t byte0[] = { 0x80, 0x8e, 0x8f, 0x90, 0x91, 0x92, 0x9e, 0x9f };
    static const char *const names[] = { "MR-IOV", "VendPrefixL0", "VendPrefixL1", "TPH",
                                         "PASID",  "IDE",          "VendPrefixE0", "VendPrefixE1" };
    unsigned i = 0;
    if (local)
        *local = prefix >> 28 == 0x8;
    while (i < sizeof byte0 && byte0[i] != prefix >> 24)
        i++;
    return i < sizeof byte0 ? names[i] : NULL;
}

/* Count one more prefix whose first byte is byte0. */
static int dxpui_prefix_add(unsigned byte0, unsigned *local, unsigned *all)
{
    bool is_local = false, known = dxpu_tlp_prefix_name((uint32_t)byte0 << 24, &is_local) != NULL;
    if (!known || (is_local && *local != *all))
        return known ? DXPU_E_TLP_PREFIX_ORDER : DXPU_E_TLP_PREFIX;
    if (*all >= DXPU_PREFIXES_MAX || (!is_local && *all - *local >= 4))
        return DXPU_E_TLP_PREFIX_COUNT;
    *local += is_local;
    *all += 1;
    return DXPU_OK;
}

DXPUI_INLINE int dxpui_tlp_measure(dxpu_bytes tlp, dxpu_tlp_shape *out)
{
    unsigned local = 0, prefixes = 0, first, header_dw, length_dw;
    const uint8_t *h = tlp.ptr;
    size_t left = tlp.len;
    for (; left >= 4 && (h[0] & 0xe0) == 0x80; h += 4, left -= 4) {
        int rc = dxpui_prefix_add(h[0], &local, &prefixes);
        if (rc != DXPU_OK)
            return rc;
    }
    if (left < 4)
        return DXPU_E_TLP_SHORT;
    first = dxpui_tlp_first(h[0]);
    header_dw = first & 7;
    if (!header_dw || left < header_dw * 4)
        return header_dw ? DXPU_E_TLP_SHORT : DXPU_E_TLP_TYPE;
    length_dw = (h[2] & 0x3u) << 8 | h[3];
    out->type = (uint8_t)(first >> 8);
    out->cls = first >> 6 & 3;
    out->local_dw = (uint8_t)local;
    out->prefix_dw = (uint8_t)prefixes;
    out->header_dw = (uint8_t)header_dw;
    out->digest_bytes = h[2] & 0x80 ? 4 : 0;
    out->head_bytes = (uint16_t)((prefixes + header_dw) * 4);
    out->payload_bytes = 0;
    if (first & DXPUI_HAS_DATA)
        out->payload_bytes = (uint16_t)((length_dw ? length_dw : 1024) * 4);
    out->total_bytes = (uint16_t)(out->head_bytes + out->payload_bytes + out->digest_bytes);
    return DXPU_OK;
}

DXPU_API int dxpu_tlp_measure(dxpu_bytes tlp, dxpu_tlp_shape *out)
{
    return dxpui_tlp_measure(tlp, out);
}

/* -- The fields of a header, each described once for both ways.  dw[] holds the header as numbers,
   first byte in bits 31:24.  Fields go from there to *out; with `put` from *t to there, and *out
   is scratch.  Inlined, so that the compiler makes a function of each way: a third faster. -- */

/* `bits` bits of *dw from bit `low` on; v is what the struct has. */
DXPUI_INLINE uint32_t dxpui_field(uint32_t *dw, unsigned low, unsigned bits, uint32_t v, bool put)
{
    uint32_t mask = 0xffffffffu >> (32 - bits);
    if (put)
        *dw = (*dw & ~(mask << low)) | (v & mask) << low;
    return *dw >> low & mask;
}

/* Tag[7:0] are bits 15:8 of `low`.  Tag[9:8] exist where a completion follows; in posted
   requests they are reserved (T-9). */
DXPUI_INLINE uint16_t dxpui_field_tag(uint32_t *dw, uint32_t *low, const dxpu_tlp *t, bool put)
{
    uint32_t tag = dxpui_field(low, 8, 8, t->tag, put);
    if (dxpui_tlp_rows[t->type].cls != DXPU_POSTED) {
        tag |= dxpui_field(dw, 23, 1, (uint32_t)t->tag >> 9, put) << 9;
        tag |= dxpui_field(dw, 19, 1, (uint32_t)t->tag >> 8, put) << 8;
    }
    return (uint16_t)tag;
}

/* Bits 1:0 of the address: PH with TH, No Write in bit 0 of a translation request (T-13). */
static unsigned dxpui_ph_mask(unsigned kind, bool th, unsigned at)
{
    if (kind != DXPUI_MEM && kind != DXPUI_ATOMIC)
        return 0;
    return th ? 3u : at == 1 ? 1u : 0u;
}

DXPUI_INLINE void dxpui_fields_address(uint32_t *dw, const dxpu_tlp *t, dxpu_tlp *out, bool put)
{
    uint32_t *low = &dw[t->header_dw - 1], high = 0;
    if (t->header_dw == 4)
        high = dxpui_field(&dw[2], 0, 32, (uint32_t)(t->address >> 32), put);
    out->address = (uint64_t)high << 32;
    out->address |= dxpui_field(low, 2, 30, (uint32_t)t->address >> 2, put) << 2;
    out->ph = (uint8_t)(dxpui_field(low, 0, 2, t->ph, put) &
                        dxpui_ph_mask(dxpui_tlp_kind(t->type), out->th, out->at));
}

/* With TH the steering tag takes a posted write's tag or another request's byte enables, which then
   count as all enabled (T-12). */
DXPUI_INLINE void dxpui_fields_request(uint32_t *dw, const dxpu_tlp *t, dxpu_tlp *out, bool put)
{
    unsigned kind = dxpui_tlp_kind(t->type);
    bool in_tag = out->th && t->type == DXPU_TLP_MWR;
    bool in_be = out->th && !in_tag && (kind == DXPUI_MEM || kind == DXPUI_ATOMIC);
    out->requester = (uint16_t)dxpui_field(&dw[1], 16, 16, t->requester, put);
    if (in_tag)
        out->steering = (uint8_t)dxpui_field(&dw[1], 8, 8, t->steering, put);
    else
        out->tag = dxpui_field_tag(dw, &dw[1], t, put);
    if (in_be)
        out->steering = (uint8_t)dxpui_field(&dw[1], 0, 8, t->steering, put);
    if (in_be && kind == DXPUI_MEM) {
        out->first_be = 0xf;
        out->last_be = out->length_dw > 1 ? 0xf : 0;
    } else if (kind != DXPUI_ATOMIC) {
        out->first_be = (uint8_t)dxpui_field(&dw[1], 0, 4, t->first_be, put);
        out->last_be = (uint8_t)dxpui_field(&dw[1], 4, 4, t->last_be, put);
    }
    if (kind != DXPUI_CFG) {
        dxpui_fields_address(dw, t, out, put);
        return;
    }
    out->target = (uint16_t)dxpui_field(&dw[2], 16, 16, t->target, put);
    out->register_bytes = (uint16_t)(dxpui_field(&dw[2], 2, 10, t->register_bytes / 4u, put) * 4);
}

/* No message that passes the rules goes by address; a logged one may. */
DXPUI_INLINE void dxpui_fields_message(uint32_t *dw, const dxpu_tlp *t, dxpu_tlp *out, bool put)
{
    out->message_routing = (uint8_t)dxpui_field(&dw[0], 24, 3, t->message_routing, put);
    out->requester = (uint16_t)dxpui_field(&dw[1], 16, 16, t->requester, put);
    out->tag = dxpui_field_tag(dw, &dw[1], t, put);
    out->message_code = (uint8_t)dxpui_field(&dw[1], 0, 8, t->message_code, put);
    out->message_dw[0] = dxpui_field(&dw[2], 0, 32, t->message_dw[0], put);
    out->message_dw[1] = dxpui_field(&dw[3], 0, 32, t->message_dw[1], put);
    if (out->message_routing == DXPU_MSG_BY_ID)
        out->target = (uint16_t)dxpui_field(&dw[2], 16, 16, t->target, put);
    if (out->message_routing == DXPU_MSG_BY_ADDRESS)
        dxpui_fields_address(dw, t, out, put);
}

DXPUI_INLINE void dxpui_fields_completion(uint32_t *dw, const dxpu_tlp *t, dxpu_tlp *out, bool put)
{
    uint32_t count = dxpui_field(&dw[1], 0, 12, t->byte_count, put);
    out->completer = (uint16_t)dxpui_field(&dw[1], 16, 16, t->completer, put);
    out->status = (uint8_t)dxpui_field(&dw[1], 13, 3, t->status, put);
    out->bcm = dxpui_field(&dw[1], 12, 1, t->bcm, put) != 0;
    out->byte_count = (uint16_t)(count ? count : 4096);
    out->requester = (uint16_t)dxpui_field(&dw[2], 16, 16, t->requester, put);
    out->tag = dxpui_field_tag(dw, &dw[2], t, put);
    out->lower_addr = (uint8_t)dxpui_field(&dw[2], 0, 7, t->lower_addr, put);
}

DXPUI_INLINE void dxpui_fields(uint32_t *dw, const dxpu_tlp *t, dxpu_tlp *out, bool put)
{
    unsigned kind = dxpui_tlp_kind(t->type);
    uint32_t length = dxpui_field(&dw[0], 0, 10, t->length_dw, put);
    uint32_t attr2 = dxpui_field(&dw[0], 18, 1, (uint32_t)t->attr >> 2, put);
    out->tc = (uint8_t)dxpui_field(&dw[0], 20, 3, t->tc, put);
    out->attr = (uint8_t)(attr2 << 2 | dxpui_field(&dw[0], 12, 2, t->attr, put));
    out->th = dxpui_field(&dw[0], 16, 1, t->th, put) != 0;
    out->td = dxpui_field(&dw[0], 15, 1, t->td, put) != 0;
    out->ep = dxpui_field(&dw[0], 14, 1, t->ep, put) != 0;
    out->at = (uint8_t)dxpui_field(&dw[0], 10, 2, t->at, put);
    out->length_dw = dxpui_tlp_length(t->type, length);
    if (kind == DXPUI_CPL)
        dxpui_fields_completion(dw, t, out, put);
    else if (kind == DXPUI_MSG)
        dxpui_fields_message(dw, t, out, put);
    else
        dxpui_fields_request(dw, t, out, put);
}

/* The fields are in range. */
static void dxpui_put_header(const dxpu_tlp *t, uint8_t *h)
{
    const dxpui_tlp_row *row = &dxpui_tlp_rows[t->type];
    uint32_t format = (t->header_dw == 4 ? 1u : 0u) | (row->data ? 2u : 0u);
    uint32_t dw[4] = { format << 29 | (uint32_t)row->code << 24, 0, 0, 0 };
    dxpu_tlp scratch;
    dxpui_fields(dw, t, &scratch, true);
    for (unsigned i = 0; i < t->header_dw; i++)
        dxpu_put_be32(h + i * 4, dw[i]);
}

static int dxpui_decode_header(dxpu_bytes tlp, dxpu_tlp_shape *shape, dxpu_tlp *t)
{
    uint32_t dw[4] = { 0, 0, 0, 0 };
    if (tlp.len < 12)
        return DXPU_E_TLP_SHORT;
    /* an AER log that was never filled, or read from a device that is gone (T-41) */
    for (unsigned i = 0; i < 3; i++)
        dw[i] = dxpu_get_be32(tlp.ptr + i * 4);
    int rc = (dw[0] | dw[1] | dw[2]) == 0             ? DXPU_E_TLP_ALL_ZERO
             : (dw[0] & dw[1] & dw[2]) == 0xffffffffu ? DXPU_E_TLP_ALL_ONES
                                                      : dxpu_tlp_measure(tlp, shape);
    if (rc != DXPU_OK)
        return rc;
    dxpui_zero(t, sizeof *t);
    t->type = shape->type;
    t->header_dw = shape->header_dw;
    t->prefix_count = shape->prefix_dw;
    for (unsigned i = 0; i < shape->prefix_dw; i++)
        t->prefix[i] = dxpu_get_be32(tlp.ptr + i * 4);
    for (unsigned i = 0; i < shape->header_dw; i++)
        dw[i] = dxpu_get_be32(tlp.ptr + (shape->prefix_dw + i) * 4);
    dxpui_fields(dw, t, t, false);
    if (shape->payload_bytes && tlp.len > shape->head_bytes) {
        t->payload.ptr = tlp.ptr + shape->head_bytes;
        t->payload.len = (size_t)dxpui_min64(tlp.len - shape->head_bytes, shape->payload_bytes);
    }
    return DXPU_OK;
}

DXPU_API int dxpu_tlp_decode_header(dxpu_bytes tlp, dxpu_tlp *out)
{
    dxpu_tlp_shape shape;
    return dxpui_decode_header(tlp, &shape, out);
}

/* -- The rules (T-5 ff.), on the struct, for decode and encode.  The first broken one counts. -- */
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
    for (unsigned i = 0; i < DXPUI_MESSAGE_COUNT; i++)
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
        return routing <= DXPU_MSG_LOCAL && routing != DXPU_MSG_BY_ADDRESS;
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
    case 0x30: /* ERR_COR's subclass is here; its bits are not checked */
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
    /* TC0 for all but the messages of address translation and the vendors' (T-32) */
    bool tc = vendor || (t->message_code >= 0x01 && t->message_code < 0x10);
    return !m                                                     ? DXPU_E_TLP_MSG_CODE
           : !dxpui_message_routing_ok(m, t->message_routing)     ? DXPU_E_TLP_MSG_ROUTE
           : m->data != 2 && m->data != data                      ? DXPU_E_TLP_MSG_ROUTE
           : data && length && t->length_dw != length             ? DXPU_E_TLP_LENGTH
           : t->tc && !tc                                         ? DXPU_E_TLP_TC
           : (t->attr & (DXPU_ATTR_NS | DXPU_ATTR_RO)) && !vendor ? DXPU_E_TLP_ATTR
           : dw & ~dxpui_message_bits(t)                          ? DXPU_E_TLP_RSVD
                                                                  : DXPU_OK;
}

/* A reader of byte enables sees one run of bytes from first to last (T-16). */
static bool dxpui_be_ok(const dxpu_tlp *t)
{
    unsigned first = t->first_be, last = t->last_be;
    unsigned run = 0x10u - (first & (0u - first)); /* ones from the lowest enabled byte on */
    return first > 0xf || last > 0xf                ? false
           : t->length_dw == 1                      ? last == 0
           : !first || !last                        ? false
           : t->length_dw == 2 && !(t->address & 7) ? true
                                                    : first == run && (last & (last + 1)) == 0;
}

static int dxpui_check_address(const dxpu_tlp *t)
{
    if (t->address & 3 || (t->header_dw == 3 && t->address > 0xffffffffu))
        return DXPU_E_TLP_ADDR;
    return t->header_dw == 4 && t->address <= 0xffffffffu ? DXPU_E_TLP_ADDR64 : DXPU_OK;
}

/* True when [address, address + bytes) touches two 4 KB pages. */
static bool dxpui_crosses_4k(uint64_t address, uint32_t bytes)
{
    return (address & 0xfff) + bytes > 4096;
}

/* The last four rules are for translation requests: two dwords make an answer (T-14). */
static int dxpui_check_memory(const dxpu_tlp *t)
{
    /* with TH a request that waits for a completion has no byte enables on the wire (T-12) */
    bool be_implied = t->first_be == 0xf && t->last_be == (t->length_dw > 1 ? 0xf : 0);
    bool crosses = dxpui_crosses_4k(t->address, t->length_dw * 4u);
    int rc = dxpui_check_address(t);
    return rc != DXPU_OK                                     ? rc
           : t->type == DXPU_TLP_DMWR && t->length_dw > 32   ? DXPU_E_TLP_LENGTH
           : !dxpui_be_ok(t)                                 ? DXPU_E_TLP_BE
           : t->th && t->type != DXPU_TLP_MWR && !be_implied ? DXPU_E_TLP_BE
           : t->at != 1                                      ? (crosses ? DXPU_E_TLP_4K : DXPU_OK)
           : t->type != DXPU_TLP_MRD                         ? DXPU_E_TLP_AT
           : t->th                                           ? DXPU_E_TLP_TH
           : t->attr & (DXPU_ATTR_NS | DXPU_ATTR_IDO)        ? DXPU_E_TLP_ATTR
           : t->length_dw % 2                                ? DXPU_E_TLP_LENGTH
                                                             : DXPU_OK;
}

/* Bytes of an atomic's operand, or of what another request reads: CAS carries two (T-18). */
static unsigned dxpui_operand_bytes(const dxpu_tlp *t)
{
    return t->length_dw * (t->type == DXPU_TLP_CAS ? 2u : 4u);
}

static int dxpui_check_atomic(const dxpu_tlp *t)
{
    unsigned bytes = dxpui_operand_bytes(t);
    bool wide = bytes == 16 && t->type == DXPU_TLP_CAS;
    int rc = dxpui_check_address(t);
    return rc != DXPU_OK                       ? rc
           : t->at == 1                        ? DXPU_E_TLP_AT
           : bytes != 4 && bytes != 8 && !wide ? DXPU_E_TLP_OPERAND
           : t->address & (bytes - 1)          ? DXPU_E_TLP_OPERAND
                                               : DXPU_OK;
}

/* I/O and configuration requests (T-19). */
static int dxpui_check_single(const dxpu_tlp *t)
{
    return t->tc                                               ? DXPU_E_TLP_TC
           : t->attr                                           ? DXPU_E_TLP_ATTR
           : t->length_dw != 1                                 ? DXPU_E_TLP_LENGTH
           : t->first_be > 0xf || t->last_be                   ? DXPU_E_TLP_BE
           : dxpui_tlp_kind(t->type) == DXPUI_IO               ? dxpui_check_address(t)
           : t->register_bytes & 3 || t->register_bytes > 4092 ? DXPU_E_TLP_REGISTER
                                                               : DXPU_OK;
}

static bool dxpui_status_reserved(unsigned status)
{
    return status > DXPU_CPL_CA || status == 3;
}

static int dxpui_check_completion(const dxpu_tlp *t)
{
    unsigned need_dw = ((t->lower_addr & 3u) + t->byte_count + 3u) / 4;
    unsigned end = (t->lower_addr & ~3u) + t->length_dw * 4u;
    bool data = dxpui_tlp_rows[t->type].data != 0;
    return dxpui_status_reserved(t->status)            ? DXPU_E_TLP_STATUS
           : data && t->status != DXPU_CPL_SC          ? DXPU_E_TLP_STATUS
           : t->byte_count < 1 || t->byte_count > 4096 ? DXPU_E_TLP_BYTE_COUNT
           : t->lower_addr > 127                       ? DXPU_E_TLP_BYTE_COUNT
           : !data                                     ? DXPU_OK
           : need_dw > 1024 || t->length_dw > need_dw  ? DXPU_E_TLP_BYTE_COUNT
           : t->length_dw < need_dw && end % 64        ? DXPU_E_TLP_RCB
                                                       : DXPU_OK;
}

/* Reserved bits of a PASID or TPH prefix (T-24, T-25). */
static uint32_t dxpui_prefix_reserved(const dxpu_tlp *t, uint32_t prefix)
{
    unsigned name = prefix >> 24;
    return name == 0x91 ? 0xc00000u : name != 0x90 ? 0 : t->at == 2 ? 0xfffu : 0xefffu;
}

/* One prefix in its place; `pasids` counts (T-23 to T-25). */
static int dxpui_check_prefix(const dxpu_tlp *t, uint32_t prefix, unsigned *pasids)
{
    unsigned kind = dxpui_tlp_kind(t->type), name = prefix >> 24;
    bool memory = kind == DXPUI_MEM || kind == DXPUI_ATOMIC, pasid = name == 0x91;
    bool translation = kind == DXPUI_MSG && t->message_code >= 0x01 && t->message_code <= 0x05;
    return name == 0x92                                                  ? DXPU_E_TLP_IDE
           : pasid && (*pasids)++                                        ? DXPU_E_TLP_PREFIX_COUNT
           : pasid && !memory && !translation                            ? DXPU_E_TLP_PREFIX
           : name == 0x90 && (!memory || (!t->th && !(prefix & 0x1000))) ? DXPU_E_TLP_TH
           : prefix & dxpui_prefix_reserved(t, prefix)                   ? DXPU_E_TLP_RSVD
                                                                         : DXPU_OK;
}

static int dxpui_check_prefixes(const dxpu_tlp *t)
{
    unsigned local = 0, all = 0, pasids = 0;
    int rc = t->prefix_count > DXPU_PREFIXES_MAX ? DXPU_E_TLP_PREFIX_COUNT : DXPU_OK;
    for (unsigned i = 0; rc == DXPU_OK && i < t->prefix_count; i++) {
        rc = dxpui_prefix_add(t->prefix[i] >> 24, &local, &all);
        if (rc == DXPU_OK)
            rc = dxpui_check_prefix(t, t->prefix[i], &pasids);
    }
    return rc;
}

/* What every TLP has: ranges, and the hints that only memory requests may carry (T-5 ff.). */
static int dxpui_check_common(const dxpu_tlp *t, unsigned kind)
{
    bool memory = kind == DXPUI_MEM || kind == DXPUI_ATOMIC;
    const dxpui_tlp_row *row = &dxpui_tlp_rows[t->type];
    unsigned most_dw = dxpui_tlp_no_length(t->type) ? 0 : 1024;
    return t->tag > (row->cls == DXPU_POSTED ? 255 : 1023)             ? DXPU_E_TLP_TAG
           : t->tc > 7                                                 ? DXPU_E_TLP_TC
           : t->attr > 7                                               ? DXPU_E_TLP_ATTR
           : t->th && !memory                                          ? DXPU_E_TLP_TH
           : t->at > 2 || (t->at && !memory)                           ? DXPU_E_TLP_AT
           : t->ph > 3 || (t->ph & ~dxpui_ph_mask(kind, t->th, t->at)) ? DXPU_E_TLP_TH
           : t->ep && !row->data                                       ? DXPU_E_TLP_RSVD
           : t->length_dw > most_dw || (most_dw && !t->length_dw)      ? DXPU_E_TLP_LENGTH
                                                                       : DXPU_OK;
}

DXPU_API int dxpu_tlp_check(const dxpu_tlp *t)
{
    if (t->type >= DXPU_TLP_TYPE_COUNT || t->header_dw < 3 || t->header_dw > 4 ||
        !(t->header_dw == 4 ? dxpui_tlp_rows[t->type].dw4 : dxpui_tlp_rows[t->type].code != 0x10))
        return DXPU_E_TLP_TYPE; /* T-4 */
    unsigned kind = dxpui_tlp_kind(t->type);
    int rc = dxpui_check_prefixes(t);
    if (rc == DXPU_OK)
        rc = dxpui_check_common(t, kind);
    return rc != DXPU_OK          ? rc
           : kind == DXPUI_MEM    ? dxpui_check_memory(t)
           : kind == DXPUI_ATOMIC ? dxpui_check_atomic(t)
           : kind == DXPUI_MSG    ? dxpui_check_message(t)
           : kind == DXPUI_CPL    ? dxpui_check_completion(t)
                                  : dxpui_check_single(t);
}

/* What a receiver does not look at reads as 0 (T-43). */
static void dxpui_ignore_reserved(dxpu_tlp *t)
{
    unsigned kind = dxpui_tlp_kind(t->type);
    bool memory = kind == DXPUI_MEM || kind == DXPUI_ATOMIC;
    if (!memory) {
        t->th = false;
        t->at = 0;
    } else if (t->address <= 0xffffffffu) {
        t->header_dw = 3;
    }
    t->ep = t->ep && dxpui_tlp_rows[t->type].data;
    if (kind == DXPUI_IO || kind == DXPUI_CFG)
        t->attr &= DXPU_ATTR_NS | DXPU_ATTR_RO;
    if (kind == DXPUI_MSG) {
        uint64_t bits = dxpui_message_bits(t);
        t->message_dw[0] &= (uint32_t)(bits >> 32);
        t->message_dw[1] &= (uint32_t)bits;
        if (!dxpui_message_vendor(t->message_code))
            t->attr &= DXPU_ATTR_IDO;
    }
    if (kind == DXPUI_CPL && dxpui_status_reserved(t->status))
        t->status = DXPU_CPL_UR;
    for (unsigned i = 0; i < t->prefix_count; i++)
        t->prefix[i] &= ~dxpui_prefix_reserved(t, t->prefix[i]);
}

/* True when a bit of the header h is set that no field of a valid TLP has: a reserved one (T-6). */
static bool dxpui_reserved_set(const dxpu_tlp *t, const uint8_t *h)
{
    static const uint16_t last[] = { 3, 3, 3, 0xf003, 0, 0x80 }; /* in that dword, by kind */
    unsigned kind = dxpui_tlp_kind(t->type);
    uint32_t dw0 =
        dxpui_tlp_rows[t->type].cls == DXPU_POSTED ? 0x8a0000u : 0x20000u; /* tags: T-9 */
    uint32_t dw1 = kind == DXPUI_ATOMIC && !t->th ? 0xffu : 0;
    dw0 |= dxpui_tlp_no_length(t->type) ? 0x3ffu : 0;
    return ((dxpu_get_be32(h) & dw0) | (dxpu_get_be32(h + 4) & dw1) |
            (dxpu_get_be32(h + 4 * (t->header_dw - 1u)) & last[kind] &
             ~dxpui_ph_mask(kind, t->th, t->at))) != 0;
}

static int dxpui_tlp_decode(dxpu_bytes tlp, dxpu_tlp *out, bool strict)
{
    dxpu_tlp_shape shape;
    dxpu_tlp t;
    int rc = dxpui_decode_header(tlp, &shape, &t);
    if (rc == DXPU_OK && tlp.len != shape.total_bytes)
        rc = tlp.len < shape.total_bytes ? DXPU_E_TLP_SHORT : DXPU_E_TLP_LONG;
    if (rc == DXPU_OK && !strict)
        dxpui_ignore_reserved(&t);
    if (rc == DXPU_OK)
        rc = dxpu_tlp_check(&t);
    if (rc == DXPU_OK && strict && t.tc && (t.type == DXPU_TLP_MRDLK || t.type == DXPU_TLP_CPLDLK))
        rc = DXPU_E_TLP_TC; /* they use TC0 only (Base Spec 6.5.2; T-44) */
    if (rc == DXPU_OK && strict && dxpui_reserved_set(&t, tlp.ptr + shape.prefix_dw * 4))
        rc = DXPU_E_TLP_RSVD;
    if (rc != DXPU_OK)
        return rc;
    if (t.td)
        t.digest = dxpu_get_le32(tlp.ptr + shape.total_bytes - 4);
    *out = t;
    return DXPU_OK;
}

DXPU_API int dxpu_tlp_decode(dxpu_bytes tlp, dxpu_tlp *out)
{
    return dxpui_tlp_decode(tlp, out, true);
}

DXPU_API int dxpu_tlp_receive(dxpu_bytes tlp, dxpu_tlp *out)
{
    return dxpui_tlp_decode(tlp, out, false);
}

DXPU_API int dxpu_tlp_encode(const dxpu_tlp *t, uint8_t *out, size_t cap, size_t *out_len)
{
    uint8_t *p = out;
    int rc = dxpu_tlp_check(t);
    if (rc != DXPU_OK)
        return rc;
    size_t payload = dxpui_tlp_rows[t->type].data ? t->length_dw * (size_t)4 : 0;
    if (t->payload.len != payload)
        return t->payload.len < payload ? DXPU_E_TLP_SHORT : DXPU_E_TLP_LONG;
    size_t total = (t->prefix_count + (size_t)t->header_dw) * 4 + payload + (t->td ? 4 : 0);
    if (total > cap)
        return DXPU_E_ROOM;
    for (unsigned i = 0; i < t->prefix_count; i++, p += 4)
        dxpu_put_be32(p, t->prefix[i]);
    dxpui_put_header(t, p);
    p += t->header_dw * 4;
    if (payload)
        memcpy(p, t->payload.ptr, payload);
    if (t->td)
        dxpu_put_le32(p + payload, t->digest);
    *out_len = total;
    return DXPU_OK;
}

/* -- CRCs (T-60 ff.) -- */
DXPU_API uint32_t dxpu_tlp_ecrc(dxpu_bytes tlp)
{
    dxpu_tlp_shape s;
    uint8_t dw0[4];
    if (dxpu_tlp_measure(tlp, &s) != DXPU_OK || tlp.len < (size_t)s.head_bytes + s.payload_bytes)
        return 0;
    const uint8_t *h = tlp.ptr + s.prefix_dw * 4;
    dxpu_put_be32(dw0, dxpu_get_be32(h) | 0x01004000u);
    uint32_t crc = dxpu_crc32(0, tlp.ptr + s.local_dw * 4, (s.prefix_dw - s.local_dw) * (size_t)4);
    crc = dxpu_crc32(crc, dw0, 4);
    return dxpu_crc32(crc, h + 4, s.header_dw * (size_t)4 - 4 + s.payload_bytes);
}

DXPU_API int dxpu_tlp_ecrc_check(dxpu_bytes tlp)
{
    dxpu_tlp_shape s;
    int rc = dxpu_tlp_measure(tlp, &s);
    if (rc != DXPU_OK || tlp.len < s.total_bytes)
        return rc != DXPU_OK ? rc : DXPU_E_TLP_SHORT;
    if (!s.digest_bytes || dxpu_tlp_ecrc(tlp) == dxpu_get_le32(tlp.ptr + s.total_bytes - 4))
        return DXPU_OK;
    return DXPU_E_TLP_ECRC;
}

/* -- Byte enables, requests, completions (T-50 ff.) -- */
DXPU_API int dxpu_be_from_range(uint64_t address, uint32_t bytes, uint8_t *first_be,
                                uint8_t *last_be, uint16_t *length_dw)
{
    unsigned offset = (unsigned)(address & 3), end = (offset + bytes) & 3;
    unsigned first = 0xfu << offset & 0xfu, last = end ? (1u << end) - 1 : 0xfu;
    if (bytes > 4096 || dxpui_crosses_4k(address, bytes))
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
    if (!dxpui_tlp_is_read(read->type) || (rcb_bytes != 64 && rcb_bytes != 128) ||
        mps_bytes < 128 || mps_bytes > 4096 || (mps_bytes & (mps_bytes - 1)))
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
    /* only the last may end off the RCB (T-52); end may wrap to 0, so it is not compared */
    if (s->left_bytes > s->mps_bytes - (uint32_t)(s->address - start))
        end = (start + s->mps_bytes) & ~(uint64_t)(s->rcb_bytes - 1);
    cpl->byte_count = (uint16_t)s->left_bytes;
    cpl->lower_addr = (uint8_t)(s->address & 0x7f);
    cpl->length_dw = (uint16_t)((end - start + 3) / 4);
    *address_dw = start;
    s->left_bytes -= (uint32_t)(end - s->address);
    s->address = end;
    return true;
}

DXPU_API void dxpu_tlp_completion(const dxpu_tlp *req, uint16_t completer, uint8_t status,
                                  dxpu_tlp *cpl)
{
    bool atomic = dxpui_tlp_kind(req->type) == DXPUI_ATOMIC, locked = req->type == DXPU_TLP_MRDLK;
    bool data = status == DXPU_CPL_SC && (atomic || !dxpui_tlp_rows[req->type].data);
    uint32_t offset, span;
    dxpui_zero(cpl, sizeof *cpl);
    cpl->type = data ? DXPU_TLP_CPLD : DXPU_TLP_CPL;
    if (locked)
        cpl->type = data ? DXPU_TLP_CPLDLK : DXPU_TLP_CPLLK;
    cpl->header_dw = 3;
    cpl->tc = req->tc;
    cpl->attr = req->attr;
    cpl->requester = req->requester;
    cpl->tag = req->tag;
    cpl->completer = completer;
    cpl->status = status;
    /* Byte Count and Lower Address (T-53) */
    cpl->byte_count = atomic ? (uint16_t)dxpui_operand_bytes(req) : 4;
    if (dxpui_tlp_is_read(req->type)) {
        dxpu_be_to_range(req->first_be, req->last_be, req->length_dw, &offset, &span);
        cpl->byte_count = (uint16_t)(span ? span : 1);
        cpl->lower_addr = (uint8_t)((req->address + offset) & 0x7f);
    }
    if (data)
        cpl->length_dw = atomic ? (uint16_t)(cpl->byte_count / 4) : req->length_dw;
}

DXPU_API bool dxpu_tlp_is_flr(const dxpu_tlp *t, uint16_t capability)
{
    return (t->type == DXPU_TLP_CFGWR0 || t->type == DXPU_TLP_CFGWR1) && (t->first_be & 2) &&
           t->register_bytes == capability + 8u && t->payload.len > 1 && (t->payload.ptr[1] & 0x80);
}

/* ==== 9'  Classifier and messages ============================================================= */
DXPU_API uint8_t dxpu_tlp_class(const dxpu_tlp *t)
{
    return dxpui_tlp_rows[t->type].cls;
}

DXPU_API uint8_t dxpu_tlp_routing(const dxpu_tlp *t)
{
    static const uint8_t routes[] = {
        DXPU_ROUTE_TO_ROOT,   DXPU_ROUTE_ADDRESS, DXPU_ROUTE_ID,
        DXPU_ROUTE_BROADCAST, DXPU_ROUTE_LOCAL,   DXPU_ROUTE_GATHERED
    };
    unsigned kind = dxpui_tlp_kind(t->type);
    if (kind != DXPUI_MSG)
        return kind == DXPUI_CFG || kind == DXPUI_CPL ? DXPU_ROUTE_ID : DXPU_ROUTE_ADDRESS;
    return t->message_routing <= DXPU_MSG_GATHERED ? routes[t->message_routing]
                                                   : (uint8_t)DXPU_ROUTE_LOCAL;
}

static const char *const dxpui_class_names[] = { "posted", "non-posted", "completion" };
static const char *const dxpui_routing_names[] = { "address",   "id",    "to-root",
                                                   "broadcast", "local", "gathered" };
static const char *const dxpui_status_names[] = { "SC", "UR", "CRS", "?", "CA" };
DXPUI_NAMES(dxpu_class_name, dxpui_class_names, "?")
DXPUI_NAMES(dxpu_routing_name, dxpui_routing_names, "?")
DXPUI_NAMES(dxpu_status_name, dxpui_status_names, "?")

DXPU_API const char *dxpu_message_name(unsigned code)
{
    const dxpui_message_row *m = dxpui_message_find(code);
    return m ? m->name : NULL;
}

DXPU_API int dxpu_message_code(const char *name)
{
    for (unsigned i = 0; i < DXPUI_MESSAGE_COUNT; i++) {
        const char *a = name, *b = dxpui_message_rows[i].name;
        for (; *a && *a == *b; a++) /* strcmp(), which not every freestanding target has */
            b++;
        if (*a == *b)
            return dxpui_message_rows[i].code;
    }
    return DXPU_E_NONE;
}

DXPU_API uint8_t dxpu_message_action(const dxpu_tlp *t, unsigned direction)
{
    const dxpui_message_row *m = dxpui_message_find(t->message_code);
    bool up = direction == DXPU_UPSTREAM;
    if (!m || !dxpui_message_routing_ok(m, t->message_routing))
        return DXPU_MSG_REFUSE;
    if (!dxpui_message_vendor(m->code))
        return up ? m->up : m->down;
    /* where their routing leads: none to the root from above, no broadcast from below (R-24) */
    return t->message_routing == DXPU_MSG_LOCAL                                 ? DXPU_MSG_TERMINATE
           : t->message_routing == (up ? DXPU_MSG_BROADCAST : DXPU_MSG_TO_ROOT) ? DXPU_MSG_REFUSE
                                                                                : DXPU_MSG_FORWARD;
}

#if DXPU_TABLES
/* ==== 10'  Routing tables ===================================================================== */
/* dxpu_host_entry.reg: which register each holds, and the bits of it that software can write (the
   type bits of the windows are read-only: 64-bit prefetchable, R-4). */
enum { DXPUI_REG_COMMAND, DXPUI_REG_BUS, DXPUI_REG_MEM, DXPUI_REG_PF, DXPUI_REG_PF_BASE };
enum { DXPUI_REG_PF_LIMIT = 5, DXPUI_REGS = 6, DXPUI_COMMAND_MEMORY = 0x2 };
static const uint8_t dxpui_host_regs[DXPUI_REGS] = { 0x04, 0x18, 0x20, 0x24, 0x28, 0x2c };
static const uint32_t dxpui_host_masks[DXPUI_REGS] = { 0x0000ffffu, 0x00ffffffu, 0xfff0fff0u,
                                                       0xfff0fff0u, 0xffffffffu, 0xffffffffu };

/* dxpu_host_entry.flags: what is on but overlaps another row's (R-5). */
enum { DXPUI_BLOCKED_BUS = 1, DXPUI_BLOCKED_WINDOW = 2 };

static const dxpu_range dxpui_range_none = { 1, 0 };

/* The window that a row's registers describe; `pf` has upper halves (Base Spec 7.5.1.3). */
static dxpu_range dxpui_host_window(const dxpu_host_entry *e, bool pf)
{
    uint32_t reg = e->reg[pf ? DXPUI_REG_PF : DXPUI_REG_MEM];
    dxpu_range r;
    r.base = (reg & 0xfff0u) << 16;
    r.limit = (reg & 0xfff00000u) | 0xfffffu;
    if (pf) {
        r.base |= (uint64_t)e->reg[DXPUI_REG_PF_BASE] << 32;
        r.limit |= (uint64_t)e->reg[DXPUI_REG_PF_LIMIT] << 32;
    }
    return r;
}

/* First window that ends at or after `address`; the windows are sorted and apart. */
static uint32_t dxpui_host_search(const dxpu_host_table *t, uint64_t address)
{
    uint32_t low = 0, left = t->window_count;
    while (left) { /* without a branch on what is compared, which none could foretell */
        uint32_t half = (left + 1) / 2;
        low += half * (t->windows[low + half - 1].range.limit < address);
        left -= half;
    }
    return low;
}

/* Row that has a part of r; index or E_NONE. */
static int dxpui_host_holder(const dxpu_host_table *t, dxpu_range r)
{
    uint32_t at = dxpui_host_search(t, r.base);
    if (at == t->window_count || t->windows[at].range.base > r.limit)
        return DXPU_E_NONE;
    return (int)t->windows[at].entry;
}

static void dxpui_host_insert(dxpu_host_table *t, uint32_t index, dxpu_range r)
{
    uint32_t at = dxpui_host_search(t, r.base);
    if (r.base > r.limit)
        return;
    memmove(t->windows + at + 1, t->windows + at, (t->window_count - at) * sizeof *t->windows);
    t->windows[at].range = r;
    t->windows[at].entry = index;
    t->window_count++;
}

/* Take everything of a row out of force. */
static void dxpui_host_lift(dxpu_host_table *t, uint32_t index)
{
    dxpu_host_entry *e = &t->entries[index];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->window_count; i++) {
        if (t->windows[i].entry != index)
            t->windows[kept++] = t->windows[i];
    }
    t->window_count = kept;
    if (e->bus) {
        for (unsigned bus = e->bus; bus <= e->bus_last; bus++)
            t->by_bus[bus] = 0;
    }
    if (e->flags)
        t->blocked--;
    e->bus = 0;
    e->bus_last = 0;
    e->memory = e->prefetchable = dxpui_range_none;
    e->flags = 0;
}

static void dxpui_host_place_bus(dxpu_host_table *t, uint32_t index)
{
    dxpu_host_entry *e = &t->entries[index];
    unsigned first = e->reg[DXPUI_REG_BUS] >> 8 & 0xffu;
    unsigned last = e->reg[DXPUI_REG_BUS] >> 16 & 0xffu;
    if (first == 0 || first > last) /* not assigned yet */
        return;
    for (unsigned bus = first; bus <= last; bus++) {
        if (t->by_bus[bus]) {
            e->flags |= DXPUI_BLOCKED_BUS;
            return;
        }
    }
    for (unsigned bus = first; bus <= last; bus++)
        t->by_bus[bus] = (uint16_t)(index + 1);
    e->bus = (uint8_t)first;
    e->bus_last = (uint8_t)last;
}

static void dxpui_host_place_windows(dxpu_host_table *t, uint32_t index)
{
    dxpu_host_entry *e = &t->entries[index];
    dxpu_range *in_force[2] = { &e->memory, &e->prefetchable };
    if (!(e->reg[DXPUI_REG_COMMAND] & DXPUI_COMMAND_MEMORY))
        return;
    for (unsigned i = 0; i < 2; i++) {
        dxpu_range r = dxpui_host_window(e, i != 0);
        if (r.base <= r.limit && dxpui_host_holder(t, r) >= 0)
            e->flags |= DXPUI_BLOCKED_WINDOW;
        else if (r.base <= r.limit)
            *in_force[i] = r;
    }
    dxpu_range mem = e->memory, pf = e->prefetchable;
    if (mem.base <= pf.limit && pf.base <= mem.limit) {
        /* a row's own windows may overlap; the list's never do */
        mem.base = dxpui_min64(mem.base, pf.base);
        mem.limit = dxpui_max64(mem.limit, pf.limit);
        pf = dxpui_range_none;
    }
    dxpui_host_insert(t, index, mem);
    dxpui_host_insert(t, index, pf);
}

/* Put in force what the row's registers say, except what overlaps another row's. */
static void dxpui_host_place(dxpu_host_table *t, uint32_t index)
{
    dxpui_host_lift(t, index);
    dxpui_host_place_bus(t, index);
    dxpui_host_place_windows(t, index);
    if (t->entries[index].flags)
        t->blocked++;
}

/* A row changed or was removed: what it blocked may now be in force (R-5). */
static void dxpui_host_retry(dxpu_host_table *t)
{
    if (!t->blocked)
        return;
    for (uint32_t i = 0; i < t->capacity; i++) {
        if (t->entries[i].flags)
            dxpui_host_place(t, i);
    }
}

DXPU_API int dxpu_host_init(dxpu_host_table *t, dxpu_host_entry *entries, dxpu_host_window *windows,
                            uint32_t capacity)
{
    if (capacity < 1 || capacity > 65534)
        return DXPU_E_ARG;
    dxpui_zero(t, sizeof *t);
    dxpui_zero(entries, capacity * sizeof *entries);
    t->entries = entries;
    t->windows = windows;
    t->capacity = capacity;
    return DXPU_OK;
}

/* Fill the registers of a new row from its presets; {0, 0} is not a window, nor is base > limit.
   DXPU_OK, or E_ARG for what registers cannot hold. */
static int dxpui_host_presets(dxpu_host_entry *e)
{
    if (e->bus > e->bus_last)
        return DXPU_E_ARG;
    dxpui_zero(e->reg, sizeof e->reg);
    e->reg[DXPUI_REG_BUS] = (uint32_t)e->bus << 8 | (uint32_t)e->bus_last << 16;
    e->reg[DXPUI_REG_MEM] = e->reg[DXPUI_REG_PF] = 0x0000fff0u;
    for (unsigned pf = 0; pf < 2; pf++) {
        dxpu_range want = pf ? e->prefetchable : e->memory, got;
        if (want.base > want.limit || want.limit == 0)
            continue;
        e->reg[DXPUI_REG_COMMAND] = DXPUI_COMMAND_MEMORY;
        e->reg[DXPUI_REG_MEM + pf] =
            (uint32_t)(want.base >> 16 & 0xfff0u) | (uint32_t)(want.limit & 0xfff00000u);
        e->reg[DXPUI_REG_PF_BASE] = pf ? (uint32_t)(want.base >> 32) : 0;
        e->reg[DXPUI_REG_PF_LIMIT] = pf ? (uint32_t)(want.limit >> 32) : 0;
        got = dxpui_host_window(e, pf != 0);
        if (got.base != want.base || got.limit != want.limit)
            return DXPU_E_ARG;
    }
    e->bus = 0;
    e->flags = 0;
    return DXPU_OK;
}

DXPU_API int dxpu_host_add(dxpu_host_table *t, const dxpu_host_entry *e)
{
    dxpu_host_entry row = *e;
    uint32_t index = 0;
    if (dxpui_host_presets(&row) != DXPU_OK)
        return DXPU_E_ARG;
    while (index < t->capacity && t->entries[index].used)
        index++;
    if (index == t->capacity)
        return DXPU_E_FULL;
    row.used = true;
    t->entries[index] = row;
    dxpui_host_place(t, index);
    if (t->entries[index].flags) {
        dxpui_host_lift(t, index);
        dxpui_zero(&t->entries[index], sizeof t->entries[index]);
        return DXPU_E_OVERLAP;
    }
    t->used++;
    return (int)index;
}

static bool dxpui_host_has(const dxpu_host_table *t, uint32_t index)
{
    return index < t->capacity && t->entries[index].used;
}

DXPU_API int dxpu_host_remove(dxpu_host_table *t, uint32_t index)
{
    if (!dxpui_host_has(t, index))
        return DXPU_E_NONE;
    dxpui_host_lift(t, index);
    dxpui_zero(&t->entries[index], sizeof t->entries[index]);
    t->used--;
    dxpui_host_retry(t);
    return DXPU_OK;
}

DXPU_API int dxpu_host_by_address(const dxpu_host_table *t, uint64_t address)
{
    dxpu_range one = { address, address };
    return dxpui_host_holder(t, one);
}

DXPU_API int dxpu_host_by_bdf(const dxpu_host_table *t, uint16_t bdf)
{
    uint16_t at = t->by_bus[DXPU_BDF_BUS(bdf)];
    return at ? at - 1 : DXPU_E_NONE;
}

DXPU_API int dxpu_host_route(const dxpu_host_table *t, const dxpu_tlp *tlp)
{
    uint8_t routing = dxpu_tlp_routing(tlp);
    bool io = tlp->type == DXPU_TLP_IORD || tlp->type == DXPU_TLP_IOWR;
    if (routing == DXPU_ROUTE_ADDRESS && !io) /* I/O is another space, without windows (R-8) */
        return dxpu_host_by_address(t, tlp->address);
    if (routing != DXPU_ROUTE_ID)
        return DXPU_E_NONE;
    return dxpu_host_by_bdf(t,
                            dxpu_tlp_class(tlp) == DXPU_COMPLETION ? tlp->requester : tlp->target);
}

DXPU_API int dxpu_host_set_port(dxpu_host_table *t, uint32_t index, uint16_t port)
{
    if (!dxpui_host_has(t, index))
        return DXPU_E_NONE;
    t->entries[index].port = port;
    return DXPU_OK;
}

DXPU_API int dxpu_host_learn(dxpu_host_table *t, uint32_t index, uint16_t register_bytes,
                             uint8_t be, uint32_t value)
{
    unsigned r = 0;
    uint32_t mask = 0;
    if (!dxpui_host_has(t, index))
        return DXPU_E_NONE;
    while (r < DXPUI_REGS && dxpui_host_regs[r] != register_bytes)
        r++;
    for (unsigned i = 0; i < 4; i++)
        mask |= be >> i & 1 ? 0xffu << 8 * i : 0;
    if (r == DXPUI_REGS || mask == 0)
        return DXPU_OK;
    dxpu_host_entry *e = &t->entries[index];
    mask &= dxpui_host_masks[r];
    e->reg[r] = (e->reg[r] & ~mask) | (value & mask);
    dxpui_host_place(t, index);
    t->count_learnt++;
    bool blocked = e->flags != 0;
    t->count_overlap += blocked;
    dxpui_host_retry(t);
    return blocked ? DXPU_E_OVERLAP : DXPU_OK;
}

DXPUI_ASSURE(box_entry, sizeof(dxpu_box_entry) == 32);

DXPU_API int dxpu_box_init(dxpu_box_table *t, dxpu_box_entry *entries, uint32_t count)
{
    if (count < 1 || count > 65535)
        return DXPU_E_ARG;
    dxpui_zero(entries, count * sizeof *entries);
    for (uint32_t i = 0; i < count; i++) {
        entries[i].slot = (uint16_t)(i + 1);
        entries[i].function = DXPU_FUNCTION_ALL;
    }
    t->entries = entries;
    t->count = count;
    return DXPU_OK;
}

DXPU_API dxpu_box_entry *dxpu_box_slot(const dxpu_box_table *t, uint16_t slot)
{
    return slot == DXPU_SLOT_HOST || slot > t->count ? NULL : &t->entries[slot - 1];
}

DXPU_API int dxpu_box_bind(dxpu_box_table *t, uint16_t slot, uint32_t host_node, uint16_t host_slot,
                           uint8_t path, uint64_t epoch)
{
    dxpu_box_entry *e = dxpu_box_slot(t, slot);
    if (!e || !e->valid)
        return DXPU_E_NONE;
    bool same = e->host_node == host_node && e->host_slot == host_slot;
    if (epoch == 0 || epoch < e->epoch_seen || (epoch == e->epoch_seen && !same))
        return DXPU_E_EPOCH; /* R-12; R-13: an epoch names one lease of one host */
    e->used = true;
    e->host_node = host_node;
    e->host_slot = host_slot;
    e->path = path;
    e->epoch = epoch;
    e->epoch_seen = epoch;
    return DXPU_OK;
}

DXPU_API int dxpu_box_release(dxpu_box_table *t, uint16_t slot)
{
    dxpu_box_entry *e = dxpu_box_slot(t, slot);
    if (!e || !e->used)
        return DXPU_E_NONE;
    e->used = false;
    e->epoch = 0;
    return DXPU_OK;
}
#endif

/* ==== 11'  Credits and tags =================================================================== */
DXPU_API uint32_t dxpu_credit_units(uint32_t payload_bytes)
{
    return payload_bytes / 16 + (payload_bytes % 16 != 0);
}

/* What a limit still allows: 0 when it is reached or exceeded (F-4). */
static uint32_t dxpui_credit_left(uint32_t limit, uint32_t used)
{
    return dxpui_seq_cmp(limit, used) > 0 ? limit - used : 0;
}

DXPU_API bool dxpu_credit_fits(const dxpu_credits *limit, const dxpu_credits *used, unsigned cls,
                               uint32_t data_units)
{
    DXPU_ASSERT(cls < DXPU_CLASSES);
    return dxpui_credit_left(limit->header[cls], used->header[cls]) >= 1 &&
           dxpui_credit_left(limit->data[cls], used->data[cls]) >= data_units; /* F-6 */
}

DXPU_API void dxpu_credit_add(dxpu_credits *c, unsigned cls, uint32_t data_units)
{
    DXPU_ASSERT(cls < DXPU_CLASSES);
    c->header[cls]++;
    c->data[cls] += data_units;
}

/* Limits that are behind, of a late frame, change nothing (F-4). */
static inline void dxpui_credits_raise(dxpu_credits *limit, const dxpu_credits *offered)
{
    if (memcmp(limit, offered, sizeof *limit) == 0) /* as a rule */
        return;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        limit->header[cls] += dxpui_credit_left(offered->header[cls], limit->header[cls]);
        limit->data[cls] += dxpui_credit_left(offered->data[cls], limit->data[cls]);
    }
}

/* States of an entry; the table of spec/flow.md, F-21. */
enum {
    DXPUI_TAG_FREE,
    DXPUI_TAG_ALLOCATED,
    DXPUI_TAG_IN_FLIGHT,
    DXPUI_TAG_RESTING,
    DXPUI_TAG_EXPIRED, /* before the peer had the request: rests from then on, or is never sent */
    DXPUI_TAG_STATES
};
DXPUI_ASSURE(tag_entry, sizeof(dxpu_tag_entry) == 40);
/* dxpu_tag_entry.local: the peer has the request, or there is no channel; it waits in the channel's
   queue; it was sent and is not acknowledged. */
enum { DXPUI_TAG_GONE, DXPUI_TAG_QUEUED, DXPUI_TAG_SENT };

/* Entries are named by index + 1 throughout, 0: none. */
static dxpu_tag_entry *dxpui_tag_at(const dxpu_tags *t, uint16_t at)
{
    return &t->entries[at - 1];
}

/* Move an entry to the end of another state's list; allocated entries are in no list. */
static void dxpui_tag_move(dxpu_tags *t, uint16_t at, uint8_t state)
{
    dxpu_tag_entry *e = dxpui_tag_at(t, at);
    if (e->state != DXPUI_TAG_ALLOCATED) {
        *(e->prev ? &dxpui_tag_at(t, e->prev)->next : &t->head[e->state]) = e->next;
        *(e->next ? &dxpui_tag_at(t, e->next)->prev : &t->tail[e->state]) = e->prev;
    }
    e->state = state;
    if (state != DXPUI_TAG_ALLOCATED) {
        e->prev = t->tail[state];
        e->next = 0;
        *(e->prev ? &dxpui_tag_at(t, e->prev)->next : &t->head[state]) = at;
        t->tail[state] = at;
    }
}

/* Chain of (requester, tag).  The multiplier is 2^32 over the golden ratio: neighbouring tags,
   which is what requesters use, spread evenly. */
static uint16_t *dxpui_tag_chain(const dxpu_tags *t, uint16_t requester, uint16_t tag)
{
    uint32_t key = ((uint32_t)requester << 16 | tag) * 0x9e3779b1u;
    return &t->entries[(size_t)((uint64_t)key * t->capacity >> 32)].hash_head;
}

static uint16_t dxpui_tag_find(const dxpu_tags *t, uint16_t requester, uint16_t tag)
{
    uint16_t at = *dxpui_tag_chain(t, requester, tag);
    while (at) {
        const dxpu_tag_entry *e = dxpui_tag_at(t, at);
        if (e->requester == requester && e->tag == tag)
            break;
        at = e->hash_next;
    }
    return at;
}

/* Free to allocated: into the hash. */
static void dxpui_tag_claim(dxpu_tags *t, uint16_t at, uint16_t requester, uint16_t tag)
{
    dxpu_tag_entry *e = dxpui_tag_at(t, at);
    uint16_t *chain = dxpui_tag_chain(t, requester, tag);
    dxpui_tag_move(t, at, DXPUI_TAG_ALLOCATED);
    e->requester = requester;
    e->tag = tag;
    e->hash_next = *chain;
    *chain = at;
}

/* To free: out of the hash. */
static void dxpui_tag_free(dxpu_tags *t, uint16_t at)
{
    dxpu_tag_entry *e = dxpui_tag_at(t, at);
    uint16_t *link = dxpui_tag_chain(t, e->requester, e->tag);
    while (*link != at)
        link = &dxpui_tag_at(t, *link)->hash_next;
    *link = e->hash_next;
    dxpui_tag_at(t, at)->local = DXPUI_TAG_GONE; /* a channel's queue may still name it */
    dxpui_tag_move(t, at, DXPUI_TAG_FREE);
}

DXPU_API void dxpu_tags_worst(uint8_t lower_addr, uint32_t bytes, uint32_t *header, uint32_t *data)
{
    uint32_t wanted = bytes ? bytes : 1; /* a zero-length read brings one dword */
    uint32_t pieces = wanted / 64 + (wanted % 64 + (lower_addr & 63u) + 63) / 64;
    *header = pieces;
    *data = pieces * 4;
}

/* Completions that may still arrive for an entry in flight, in credit units (F-25). */
static void dxpui_tag_reserve(const dxpu_tag_entry *e, uint32_t *header, uint32_t *data)
{
    *header = 1;
    *data = dxpu_credit_units(e->left_bytes);
    if (dxpui_tlp_is_read(e->kind))
        dxpu_tags_worst(e->lower_addr, e->left_bytes, header, data);
}

static void dxpui_tag_book(dxpu_tags *t, const dxpu_tag_entry *e, bool add)
{
    uint32_t header, data;
    dxpui_tag_reserve(e, &header, &data);
    t->reserve_header += add ? header : 0u - header;
    t->reserve_data += add ? data : 0u - data;
}

/* Take an entry out of flight and off the counters.  If it waits in a queue, it will not leave. */
static void dxpui_tag_land(dxpu_tags *t, uint16_t at)
{
    const dxpu_tag_entry *e = dxpui_tag_at(t, at);
    dxpui_tag_book(t, e, false);
    t->in_flight--;
    t->unsent += e->local == DXPUI_TAG_QUEUED;
}

static void dxpui_tag_tell(const dxpu_tag_entry *e, bool done, dxpu_request *out)
{
    out->user = e->user;
    out->requester = e->requester;
    out->tag = e->tag;
    out->left_bytes = e->left_bytes;
    out->offset_bytes = (uint16_t)(e->asked_bytes - e->left_bytes);
    out->bytes = 0;
    out->done = done;
}

/* First in the list of a state, if its time has come; else 0. */
static uint16_t dxpui_tag_due(const dxpu_tags *t, unsigned state, uint64_t now_ns)
{
    uint16_t at = t->head[state];
    uint64_t deadline_ns = at ? dxpui_tag_at(t, at)->deadline_ns : DXPU_NEVER;
    return deadline_ns != DXPU_NEVER && deadline_ns <= now_ns ? at : 0;
}

/* True when the entry `at` still has its channel's request of `order`, which has not left here. */
static bool dxpui_tag_here(const dxpu_tags *t, uint16_t at, uint32_t order)
{
    return dxpui_tag_at(t, at)->order == order && dxpui_tag_at(t, at)->local;
}

/* The request is next to leave the channel's queue.  False when it must not, because it has expired
   or was dropped or answered (F-34).  An expired one is free again then. */
static inline bool dxpui_tag_may_leave(dxpu_tags *t, uint16_t at, uint32_t order)
{
    bool here = dxpui_tag_here(t, at, order);
    if (here && dxpui_tag_at(t, at)->state == DXPUI_TAG_IN_FLIGHT)
        return true;
    if (here)
        dxpui_tag_free(t, at);
    t->unsent--;
    return false;
}

/* The peer has a request; if it expired before that, its tag begins to rest. */
static inline void dxpui_tag_arrived(dxpu_tags *t, uint16_t at, uint32_t order, uint64_t now_ns)
{
    if (!dxpui_tag_here(t, at, order))
        return;
    dxpu_tag_entry *e = dxpui_tag_at(t, at);
    e->local = DXPUI_TAG_GONE;
    if (e->state != DXPUI_TAG_EXPIRED)
        return;
    dxpui_tag_move(t, at, DXPUI_TAG_RESTING);
    e->deadline_ns = dxpui_later(now_ns, t->timeout_ns);
}

/* Resting to free, where the time has come (F-31). */
static void dxpui_tag_wake(dxpu_tags *t, uint64_t now_ns)
{
    uint16_t at;
    while ((at = dxpui_tag_due(t, DXPUI_TAG_RESTING, now_ns)) != 0)
        dxpui_tag_free(t, at);
}

DXPU_API int dxpu_tags_init(dxpu_tags *t, dxpu_tag_entry *entries, uint32_t capacity,
                            uint16_t requester, unsigned mode, uint64_t timeout_ns)
{
    if (mode != 0 && mode != DXPU_TAGS_32 && mode != DXPU_TAGS_256 && mode != DXPU_TAGS_768)
        return DXPU_E_ARG;
    if (capacity < 1 || capacity > (mode ? mode : 32768) || timeout_ns == 0)
        return DXPU_E_ARG;
    dxpui_zero(t, sizeof *t);
    dxpui_zero(entries, capacity * sizeof *entries);
    t->entries = entries;
    t->capacity = capacity;
    t->timeout_ns = timeout_ns;
    t->requester = requester;
    t->first_tag = mode == DXPU_TAGS_768 ? 256 : 0;
    t->gives_tags = mode != 0;
    for (uint32_t i = 0; i < capacity; i++) {
        entries[i].prev = (uint16_t)i;
        entries[i].next = (uint16_t)(i + 1 < capacity ? i + 2 : 0);
    }
    t->head[DXPUI_TAG_FREE] = 1;
    t->tail[DXPUI_TAG_FREE] = (uint16_t)capacity;
    return DXPU_OK;
}

DXPU_API int dxpu_tags_alloc(dxpu_tags *t)
{
    uint16_t at = t->gives_tags ? t->head[DXPUI_TAG_FREE] : 0;
    while (at) {
        uint16_t tag = (uint16_t)(t->first_tag + at - 1);
        if (!dxpui_tag_find(t, t->requester, tag)) { /* else tracked without alloc: F-27 */
            dxpui_tag_claim(t, at, t->requester, tag);
            return tag;
        }
        at = dxpui_tag_at(t, at)->next;
    }
    return DXPU_E_NO_TAG;
}

/* What the completions of a request must bring (F-22): bytes and lower address. */
static void dxpui_tag_expect(dxpu_tag_entry *e, const dxpu_tlp *req)
{
    uint32_t offset = 0, bytes = 0; /* a write: a completion without data */
    if (dxpui_tlp_is_read(req->type)) {
        dxpu_be_to_range(req->first_be, req->last_be, req->length_dw, &offset, &bytes);
        bytes = bytes ? bytes : 1; /* zero-length: one dword comes, Byte Count 1 (F-23) */
    } else if (dxpui_tlp_kind(req->type) == DXPUI_ATOMIC || !dxpui_tlp_rows[req->type].data) {
        bytes = dxpui_operand_bytes(req);
    }
    e->kind = req->type;
    e->left_bytes = e->asked_bytes = (uint16_t)bytes;
    e->lower_addr = (uint8_t)((req->address + offset) & 0x7f);
}

/* order, local: of a channel's request; *where gets its entry. */
static int dxpui_tag_track(dxpu_tags *t, const dxpu_tlp *req, uint64_t now_ns, uint64_t user,
                           uint32_t order, uint8_t local, uint16_t *where)
{
    if (dxpu_tlp_class(req) != DXPU_NONPOSTED)
        return DXPU_E_ARG;
    dxpui_tag_wake(t, now_ns);
    uint16_t at = dxpui_tag_find(t, req->requester, req->tag), free = t->head[DXPUI_TAG_FREE];
    if (at && dxpui_tag_at(t, at)->state != DXPUI_TAG_ALLOCATED)
        return DXPU_E_TAG_BUSY;
    if (!at && !free)
        return DXPU_E_NO_TAG;
    if (!at)
        dxpui_tag_claim(t, at = free, req->requester, req->tag);
    dxpu_tag_entry *e = dxpui_tag_at(t, at);
    dxpui_tag_expect(e, req);
    dxpui_tag_move(t, at, DXPUI_TAG_IN_FLIGHT);
    e->user = user;
    e->order = order;
    e->local = local;
    *where = at;
    e->deadline_ns = dxpui_later(now_ns, t->timeout_ns);
    dxpui_tag_book(t, e, true);
    t->in_flight++;
    return DXPU_OK;
}

DXPU_API int dxpu_tags_track(dxpu_tags *t, const dxpu_tlp *req, uint64_t now_ns, uint64_t user)
{
    uint16_t where;
    return dxpui_tag_track(t, req, now_ns, user, 0, DXPUI_TAG_GONE, &where);
}

/* Bytes of a request that the completion brings: none without data; else all, or a part of a read
   that ends on a 64-byte boundary; -1 when it does not fit the request (F-23, F-26). */
static int dxpui_tag_part(const dxpu_tag_entry *e, const dxpu_tlp *cpl)
{
    bool locked = e->kind == DXPU_TLP_MRDLK, sc = cpl->status == DXPU_CPL_SC;
    int need_dw = ((e->lower_addr & 3) + e->left_bytes + 3) / 4;
    int end = (e->lower_addr & ~3) + cpl->length_dw * 4;
    if (cpl->type == DXPU_TLP_CPL || (cpl->type == DXPU_TLP_CPLLK && locked))
        return e->left_bytes && sc ? -1 : 0;
    if (cpl->type != (locked ? DXPU_TLP_CPLDLK : DXPU_TLP_CPLD) || !sc || cpl->length_dw == 0 ||
        cpl->byte_count != e->left_bytes)
        return -1;
    if (!dxpui_tlp_is_read(e->kind)) /* Lower Address is reserved here */
        return cpl->length_dw * 4 == e->left_bytes ? e->left_bytes : -1;
    if (cpl->lower_addr != e->lower_addr || cpl->length_dw > need_dw)
        return -1;
    if (cpl->length_dw == need_dw)
        return e->left_bytes;
    return end % 64 == 0 ? end - e->lower_addr : -1;
}

DXPU_API int dxpu_tags_complete(dxpu_tags *t, const dxpu_tlp *cpl, dxpu_request *out)
{
    if (dxpu_tlp_class(cpl) != DXPU_COMPLETION)
        return DXPU_E_ARG;
    uint16_t at = dxpui_tag_find(t, cpl->requester, cpl->tag);
    if (!at || dxpui_tag_at(t, at)->state != DXPUI_TAG_IN_FLIGHT) {
        t->count_unexpected++;
        return DXPU_E_CPL_UNEXPECTED;
    }
    dxpu_tag_entry *e = dxpui_tag_at(t, at);
    int part = dxpui_tag_part(e, cpl);
    if (part < 0) {
        t->count_bytes++;
        return DXPU_E_CPL_BYTES;
    }
    dxpui_tag_book(t, e, false);
    e->left_bytes = (uint16_t)(e->left_bytes - part);
    e->lower_addr = (uint8_t)((e->lower_addr + part) & 0x7f);
    dxpui_tag_book(t, e, true);
    bool done = part == 0 || e->left_bytes == 0;
    dxpui_tag_tell(e, done, out);
    out->bytes = (uint16_t)part;
    out->offset_bytes = (uint16_t)(out->offset_bytes - part);
    if (done) {
        dxpui_tag_land(t, at); /* if the request has not left, it was a guess */
        dxpui_tag_free(t, at);
    }
    return DXPU_OK;
}

DXPU_API int dxpu_tags_drop(dxpu_tags *t, uint16_t requester, uint16_t tag)
{
    uint16_t at = dxpui_tag_find(t, requester, tag);
    const dxpu_tag_entry *e = at ? dxpui_tag_at(t, at) : NULL;
    if (!e || e->state >= DXPUI_TAG_RESTING)
        return DXPU_E_NONE;
    if (e->state == DXPUI_TAG_IN_FLIGHT)
        dxpui_tag_land(t, at);
    dxpui_tag_free(t, at);
    return DXPU_OK;
}

DXPU_API uint32_t dxpu_tags_reset(dxpu_tags *t, uint16_t requester)
{
    uint32_t before = t->in_flight;
    for (uint32_t i = 0; i < t->capacity; i++) {
        const dxpu_tag_entry *e = &t->entries[i];
        if (e->state == DXPUI_TAG_IN_FLIGHT && e->requester == requester)
            dxpu_tags_drop(t, requester, e->tag);
    }
    return before - t->in_flight;
}

DXPU_API bool dxpu_tags_expire(dxpu_tags *t, uint64_t now_ns, dxpu_request *out)
{
    uint16_t at = dxpui_tag_due(t, DXPUI_TAG_IN_FLIGHT, now_ns);
    dxpui_tag_wake(t, now_ns);
    if (!at)
        return false;
    dxpu_tag_entry *e = dxpui_tag_at(t, at);
    dxpui_tag_tell(e, true, out);
    dxpui_tag_land(t, at);
    dxpui_tag_move(t, at, e->local ? DXPUI_TAG_EXPIRED : DXPUI_TAG_RESTING);
    e->deadline_ns = dxpui_later(now_ns, t->timeout_ns);
    t->count_expired++;
    return true;
}

DXPU_API bool dxpu_tags_pop(dxpu_tags *t, dxpu_request *out)
{
    uint16_t at = t->head[DXPUI_TAG_IN_FLIGHT];
    if (!at) { /* contained: what rested has nothing to wait for (F-33) */
        for (unsigned state = DXPUI_TAG_RESTING; state < DXPUI_TAG_STATES; state++) {
            while (t->head[state])
                dxpui_tag_free(t, t->head[state]);
        }
        return false;
    }
    dxpui_tag_tell(dxpui_tag_at(t, at), true, out);
    dxpui_tag_land(t, at);
    dxpui_tag_free(t, at);
    return true;
}

DXPU_API uint64_t dxpu_tags_next_ns(const dxpu_tags *t)
{
    uint16_t live = t->head[DXPUI_TAG_IN_FLIGHT], rest = t->head[DXPUI_TAG_RESTING];
    return dxpui_min64(live ? dxpui_tag_at(t, live)->deadline_ns : DXPU_NEVER,
                       rest ? dxpui_tag_at(t, rest)->deadline_ns : DXPU_NEVER);
}

/* ==== 12'  Wire: frames and records =========================================================== */
/* The lists of section 12 have no gaps; kinds and events begin at 1, reasons at 0. */
#define DXPUI_TEXT(name, value, text)   text,
#define DXPUI_NAME(name, value, bytes)  #name,
#define DXPUI_BYTES(name, value, bytes) bytes,
static const char *const dxpui_kind_names[] = { "?", DXPU_KINDS(DXPUI_TEXT) };
static const char *const dxpui_reason_texts[] = { DXPU_REASONS(DXPUI_TEXT) };
static const char *const dxpui_event_names[] = { "?", DXPU_EVENTS(DXPUI_NAME) };
static const uint8_t dxpui_event_bytes[] = { DXPU_EVENTS(DXPUI_BYTES) };
#undef DXPUI_TEXT
#undef DXPUI_NAME
#undef DXPUI_BYTES
DXPUI_NAMES(dxpu_kind_name, dxpui_kind_names, "?")
DXPUI_NAMES(dxpu_reason_text, dxpui_reason_texts, "unknown reason")
DXPUI_NAMES(dxpu_event_name, dxpui_event_names, "?")

static size_t dxpui_frame_header_bytes(unsigned kind)
{
    return kind <= DXPU_KIND_BLOCKED ? DXPU_FRAME_FULL_BYTES : DXPU_FRAME_BASE_BYTES;
}

static inline int dxpui_frame_check(dxpu_bytes datagram)
{
    const uint8_t *p = datagram.ptr;
    return datagram.len < DXPU_FRAME_FLAGS                        ? DXPU_E_SHORT   /* W-1 */
           : dxpu_get_be16(p + DXPU_FRAME_MAGIC) != DXPU_MAGIC    ? DXPU_E_MAGIC   /* W-1 */
           : dxpu_get_be16(p + DXPU_FRAME_LENGTH) != datagram.len ? DXPU_E_LENGTH  /* W-4 */
           : p[DXPU_FRAME_VERSION] != DXPU_WIRE_VERSION           ? DXPU_E_VERSION /* W-2 */
           : datagram.len < DXPU_FRAME_BASE_BYTES                 ? DXPU_E_SHORT
                                                                  : DXPU_OK;
}

DXPU_API int dxpu_frame_peek(dxpu_bytes datagram, uint8_t *kind, uint32_t *channel)
{
    int rc = dxpui_frame_check(datagram);
    if (rc == DXPU_OK) {
        *kind = datagram.ptr[DXPU_FRAME_KIND];
        *channel = dxpu_get_be32(datagram.ptr + DXPU_FRAME_CHANNEL);
    }
    return rc;
}

static inline void dxpui_limits_load(const uint8_t *p, dxpu_credits *c)
{
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        c->header[i] = dxpu_get_be32(p + 4 * i);
        c->data[i] = dxpu_get_be32(p + 12 + 4 * i);
    }
}

static inline void dxpui_limits_store(uint8_t *p, const dxpu_credits *c)
{
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        dxpu_put_be32(p + 4 * i, c->header[i]);
        dxpu_put_be32(p + 12 + 4 * i, c->data[i]);
    }
}

DXPU_API int dxpu_frame_decode(dxpu_bytes datagram, size_t trailer_bytes, dxpu_frame *out)
{
    const uint8_t *p = datagram.ptr;
    int rc = dxpui_frame_check(datagram);
    if (rc != DXPU_OK)
        return rc;
    out->kind = p[DXPU_FRAME_KIND];
    if (out->kind < DXPU_KIND_DATA || out->kind >= DXPU_KIND_END)
        return DXPU_E_KIND; /* W-3 */
    if (p[DXPU_FRAME_FLAGS] & 0x30)
        return DXPU_E_RSVD; /* W-5 */
    size_t header = dxpui_frame_header_bytes(out->kind);
    if (datagram.len < header || datagram.len - header < trailer_bytes)
        return DXPU_E_SHORT; /* W-4 */
    out->key_phase = p[DXPU_FRAME_FLAGS] >> 6;
    out->path = p[DXPU_FRAME_PATH];
    out->channel = dxpu_get_be32(p + DXPU_FRAME_CHANNEL);
    out->packet = dxpu_get_be64(p + DXPU_FRAME_PACKET);
    out->body = dxpui_view(p + header, datagram.len - header - trailer_bytes);
    if (header == DXPU_FRAME_FULL_BYTES) {
        out->sequence = dxpu_get_be32(p + DXPU_FRAME_SEQUENCE);
        out->ack = dxpu_get_be32(p + DXPU_FRAME_ACK);
        out->sack = dxpu_get_be64(p + DXPU_FRAME_SACK);
        out->seen = dxpu_get_be64(p + DXPU_FRAME_SEEN);
        out->delay_ns = dxpu_get_be32(p + DXPU_FRAME_DELAY);
        out->ecn_ce = dxpu_get_be32(p + DXPU_FRAME_ECN_CE);
        dxpui_limits_load(p + DXPU_FRAME_LIMITS, &out->limits);
    } else {
        out->sequence = out->ack = out->delay_ns = out->ecn_ce = 0;
        out->sack = out->seen = 0;
        dxpui_zero(&out->limits, sizeof out->limits);
    }
    return DXPU_OK;
}

/* The header of a frame: all kinds' part, and what those with a sequence have beside it. */
static inline void dxpui_base_store(uint8_t *out, uint8_t kind, uint8_t key_phase, uint8_t path,
                                    uint32_t channel, uint64_t packet, size_t frame_bytes)
{
    dxpu_put_be16(out + DXPU_FRAME_MAGIC, DXPU_MAGIC);
    out[DXPU_FRAME_VERSION] = DXPU_WIRE_VERSION;
    out[DXPU_FRAME_KIND] = kind;
    dxpu_put_be16(out + DXPU_FRAME_LENGTH, (uint16_t)frame_bytes);
    out[DXPU_FRAME_FLAGS] = (uint8_t)(key_phase << 6);
    out[DXPU_FRAME_PATH] = path;
    dxpu_put_be32(out + DXPU_FRAME_CHANNEL, channel);
    dxpu_put_be64(out + DXPU_FRAME_PACKET, packet);
}

static inline void dxpui_full_store(uint8_t *out, uint32_t sequence, uint32_t ack, uint64_t sack,
                                    uint64_t seen, uint32_t delay_ns, uint32_t ecn_ce,
                                    const dxpu_credits *limits)
{
    dxpu_put_be32(out + DXPU_FRAME_SEQUENCE, sequence);
    dxpu_put_be32(out + DXPU_FRAME_ACK, ack);
    dxpu_put_be64(out + DXPU_FRAME_SACK, sack);
    dxpu_put_be64(out + DXPU_FRAME_SEEN, seen);
    dxpu_put_be32(out + DXPU_FRAME_DELAY, delay_ns);
    dxpu_put_be32(out + DXPU_FRAME_ECN_CE, ecn_ce);
    dxpui_limits_store(out + DXPU_FRAME_LIMITS, limits);
}

DXPU_API size_t dxpu_frame_encode_header(const dxpu_frame *f, size_t body_bytes,
                                         size_t trailer_bytes, uint8_t *out)
{
    size_t header = dxpui_frame_header_bytes(f->kind);
    dxpui_base_store(out, f->kind, f->key_phase, f->path, f->channel, f->packet,
                     header + body_bytes + trailer_bytes);
    if (header == DXPU_FRAME_FULL_BYTES)
        dxpui_full_store(out, f->sequence, f->ack, f->sack, f->seen, f->delay_ns, f->ecn_ce,
                         &f->limits);
    return header;
}

DXPU_API void dxpu_frame_seal_crc(uint8_t *frame, size_t used)
{
    dxpu_put_be32(frame + used, dxpu_crc32(0, frame, used));
}

DXPU_API int dxpu_frame_check_crc(dxpu_bytes datagram)
{
    if (datagram.len < DXPU_FRAME_CRC_BYTES)
        return DXPU_E_SHORT;
    size_t used = datagram.len - DXPU_FRAME_CRC_BYTES;
    return dxpu_crc32(0, datagram.ptr, used) == dxpu_get_be32(datagram.ptr + used) ? DXPU_OK
                                                                                   : DXPU_E_CRC;
}

/* Offsets in the body of open and accept, W-20. */
enum { DXPUI_OFFER_CHANNEL = 0, DXPUI_OFFER_VERSIONS = 4, DXPUI_OFFER_SUITES = 6 };
enum { DXPUI_OFFER_FORMATS = 8, DXPUI_OFFER_WINDOW = 10, DXPUI_OFFER_FLAGS = 12 };
enum { DXPUI_OFFER_LIMIT = 14, DXPUI_OFFER_HOLD = 16, DXPUI_OFFER_SEQUENCE = 20 };
enum { DXPUI_OFFER_CREDITS = 24, DXPUI_OFFER_EPOCH = 48, DXPUI_OFFER_SOURCE = 56 };
enum { DXPUI_OFFER_DESTINATION = 64, DXPUI_OFFER_INFINITE = 0x80 /* in FLAGS */ };
DXPUI_ASSURE(full_header, (int)DXPU_FRAME_LIMITS + 24 == (int)DXPU_FRAME_FULL_BYTES);
DXPUI_ASSURE(offer, (int)DXPUI_OFFER_DESTINATION + 8 == (int)DXPU_OFFER_BYTES);

static void dxpui_place_store(uint8_t *p, const dxpu_place *place)
{
    dxpu_put_be32(p, place->node);
    dxpu_put_be16(p + 4, place->slot);
    dxpu_put_be16(p + 6, place->function);
}

static void dxpui_place_load(const uint8_t *p, dxpu_place *place)
{
    place->node = dxpu_get_be32(p);
    place->slot = dxpu_get_be16(p + 4);
    place->function = dxpu_get_be16(p + 6);
}

DXPU_API void dxpu_offer_encode(const dxpu_offer *o, uint8_t out[DXPU_OFFER_BYTES])
{
    dxpui_zero(out, DXPU_OFFER_BYTES);
    dxpu_put_be32(out + DXPUI_OFFER_CHANNEL, o->channel);
    out[DXPUI_OFFER_VERSIONS] = o->version_min;
    out[DXPUI_OFFER_VERSIONS + 1] = o->version_max;
    dxpu_put_be16(out + DXPUI_OFFER_SUITES, o->suites);
    dxpu_put_be16(out + DXPUI_OFFER_FORMATS, o->tlp_formats);
    dxpu_put_be16(out + DXPUI_OFFER_WINDOW, o->window_frames);
    out[DXPUI_OFFER_FLAGS] = o->completions_infinite ? DXPUI_OFFER_INFINITE : 0;
    dxpu_put_be16(out + DXPUI_OFFER_LIMIT, (uint16_t)o->frame_limit_bytes);
    dxpu_put_be32(out + DXPUI_OFFER_HOLD, o->hold_ms);
    dxpu_put_be32(out + DXPUI_OFFER_SEQUENCE, o->sequence);
    dxpui_limits_store(out + DXPUI_OFFER_CREDITS, &o->limits);
    dxpu_put_be64(out + DXPUI_OFFER_EPOCH, o->epoch);
    dxpui_place_store(out + DXPUI_OFFER_SOURCE, &o->source);
    dxpui_place_store(out + DXPUI_OFFER_DESTINATION, &o->destination);
}

/* Data units of the largest TLP of each class: 4,096 bytes, 128 for a DMWr (W-26). */
static const uint16_t dxpui_units_max[DXPU_CLASSES] = { 256, 8, 256 };

static bool dxpui_credits_usable(const dxpu_credits *c, bool completions_infinite)
{
    for (unsigned i = 0; i < (completions_infinite ? DXPU_COMPLETION : DXPU_CLASSES); i++) {
        if (c->header[i] < 1 || c->header[i] > 0x3fffffffu || c->data[i] < dxpui_units_max[i] ||
            c->data[i] > 0x3fffffffu)
            return false;
    }
    return true;
}

static bool dxpui_offer_valid(const dxpu_offer *o)
{
    return o->channel != 0 && o->version_min >= 1 && o->version_min <= o->version_max &&
           o->suites != 0 && (o->tlp_formats & 1) && o->window_frames >= 1 &&
           o->frame_limit_bytes >= DXPU_FRAME_MIN_LIMIT_BYTES &&
           o->frame_limit_bytes <= DXPU_FRAME_MAX_LIMIT_BYTES && o->hold_ms >= 1 && o->epoch >= 1 &&
           dxpui_credits_usable(&o->limits, o->completions_infinite);
}

DXPU_API int dxpu_offer_decode(dxpu_bytes body, dxpu_offer *out)
{
    const uint8_t *p = body.ptr;
    if (body.len < DXPU_OFFER_BYTES)
        return DXPU_E_SHORT; /* W-20; longer ones carry what later versions add */
    if (p[DXPUI_OFFER_FLAGS] & 0x70)
        return DXPU_E_RSVD; /* W-27 */
    out->channel = dxpu_get_be32(p + DXPUI_OFFER_CHANNEL);
    out->version_min = p[DXPUI_OFFER_VERSIONS];
    out->version_max = p[DXPUI_OFFER_VERSIONS + 1];
    out->suites = dxpu_get_be16(p + DXPUI_OFFER_SUITES);
    out->tlp_formats = dxpu_get_be16(p + DXPUI_OFFER_FORMATS);
    out->window_frames = dxpu_get_be16(p + DXPUI_OFFER_WINDOW);
    out->completions_infinite = (p[DXPUI_OFFER_FLAGS] & DXPUI_OFFER_INFINITE) != 0;
    out->frame_limit_bytes = dxpu_get_be16(p + DXPUI_OFFER_LIMIT);
    out->hold_ms = dxpu_get_be32(p + DXPUI_OFFER_HOLD);
    out->sequence = dxpu_get_be32(p + DXPUI_OFFER_SEQUENCE);
    dxpui_limits_load(p + DXPUI_OFFER_CREDITS, &out->limits);
    out->epoch = dxpu_get_be64(p + DXPUI_OFFER_EPOCH);
    dxpui_place_load(p + DXPUI_OFFER_SOURCE, &out->source);
    dxpui_place_load(p + DXPUI_OFFER_DESTINATION, &out->destination);
    if (!dxpui_offer_valid(out))
        return DXPU_E_OFFER; /* W-21..W-26 */
    return DXPU_OK;
}

/* Record headers, W-30: type, flags (high nibble must-understand), u16 length of what follows. */
enum {
    DXPUI_RECORD_HEADER = 4,
    DXPUI_RECORD_TLP_FIXED = 4, /* format and VC, class and lengths, u16 data bytes */
    DXPUI_RECORD_TLP_CRC = 4,
    DXPUI_RECORD_EVENT_FIXED = 4, /* type, flags, reserved u16 */
    DXPUI_TLP_DATA_MAX = DXPU_TLP_PAYLOAD_MAX_BYTES + 4
};

/* ranges: false where dxpui_record_fits() follows, which is stricter */
DXPUI_INLINE int dxpui_record_tlp(dxpu_bytes body, dxpu_record *r, bool ranges)
{
    const uint8_t *p = body.ptr;
    if (body.len < DXPUI_RECORD_TLP_FIXED + DXPUI_RECORD_TLP_CRC + 12 || p[0] != 0)
        return DXPU_E_RECORD; /* W-32; W-34: format 0, VC 0 */
    r->cls = p[1] >> 6;
    r->prefix_dw = p[1] >> 3 & 7;
    r->header_dw = p[1] & 7;
    r->data_bytes = dxpu_get_be16(p + 2);
    size_t head = 4u * ((size_t)r->prefix_dw + r->header_dw);
    if (ranges && (r->cls >= DXPU_CLASSES || (r->header_dw != 3 && r->header_dw != 4) ||
                   r->prefix_dw > 4 || r->data_bytes > DXPUI_TLP_DATA_MAX))
        return DXPU_E_RECORD; /* W-35, W-36 */
    if (body.len != DXPUI_RECORD_TLP_FIXED + head + DXPUI_RECORD_TLP_CRC)
        return DXPU_E_RECORD; /* W-32 */
    r->bytes = dxpui_view(p + DXPUI_RECORD_TLP_FIXED, head);
    r->tlp_crc = dxpu_get_be32(p + DXPUI_RECORD_TLP_FIXED + head);
    return DXPU_OK;
}

DXPUI_APART int dxpui_record_event(dxpu_bytes body, dxpu_event *e)
{
    const uint8_t *p = body.ptr;
    dxpui_zero(e, sizeof *e);
    if (body.len < DXPUI_RECORD_EVENT_FIXED)
        return DXPU_E_RECORD; /* W-50 */
    if (p[0] == 0 || p[0] >= DXPU_EVENT_END)
        return DXPU_OK; /* W-52: type stays 0 */
    size_t bytes = dxpui_event_bytes[p[0] - 1];
    if (body.len != DXPUI_RECORD_EVENT_FIXED + bytes)
        return DXPU_E_RECORD; /* W-51 */
    e->type = p[0];
    e->flags = p[1];
    p += DXPUI_RECORD_EVENT_FIXED;
    if (e->type == DXPU_EVENT_LINK) {
        e->speed = p[0];
        e->width = p[1];
    } else if (bytes == 4) {
        e->value = dxpu_get_be32(p);
    } else if (bytes == 16) {
        e->base = dxpu_get_be64(p);
        e->length = dxpu_get_be64(p + 8);
    }
    return DXPU_OK;
}

/* dxpu_record_next(), which writes of *r only the type and what records of that type have, and an
   event where the caller wants it: *r then can be in registers. */
DXPUI_INLINE int dxpui_record_next(dxpu_bytes *body, dxpu_record *r, dxpu_event *event, bool ranges)
{
    do {
        dxpu_bytes inner;
        int rc = DXPU_OK;
        if (body->len < DXPUI_RECORD_HEADER)
            return body->len ? DXPU_E_RECORD : DXPU_E_NONE; /* W-30 */
        inner = dxpui_view(body->ptr + DXPUI_RECORD_HEADER, dxpu_get_be16(body->ptr + 2));
        if (inner.len > body->len - DXPUI_RECORD_HEADER || (body->ptr[1] & 0xf0))
            return DXPU_E_RECORD; /* W-30, W-31 */
        r->type = body->ptr[0];
        if (r->type == DXPU_RECORD_TLP)
            rc = dxpui_record_tlp(inner, r, ranges);
        else if (r->type == DXPU_RECORD_PAYLOAD && inner.len)
            r->bytes = inner;
        else if (r->type == DXPU_RECORD_EVENT)
            rc = dxpui_record_event(inner, event);
        else if (!(r->type & 0x80))
            rc = DXPU_E_RECORD; /* W-31, W-40 */
        if (rc != DXPU_OK)
            return rc;
        body->ptr = inner.ptr + inner.len;
        body->len -= DXPUI_RECORD_HEADER + inner.len;
    } while (r->type & 0x80); /* W-31: ignorable */
    return DXPU_OK;
}

DXPU_API int dxpu_record_next(dxpu_bytes *body, dxpu_record *out)
{
    dxpui_zero(out, sizeof *out);
    return dxpui_record_next(body, out, &out->event, true);
}

#if DXPU_CHANNEL
/* -- The builder packs TLPs and events into the body of one frame. -- */
typedef struct dxpui_builder {
    uint8_t *out;
    size_t cap, used;
} dxpui_builder;

/* Open a record of body_bytes; the caller has checked the room.  Returns where its body goes. */
static uint8_t *dxpui_record_open(dxpui_builder *b, uint8_t type, size_t body_bytes)
{
    uint8_t *p = b->out + b->used;
    p[0] = type;
    p[1] = 0;
    dxpu_put_be16(p + 2, (uint16_t)body_bytes);
    b->used += DXPUI_RECORD_HEADER + body_bytes;
    return p + DXPUI_RECORD_HEADER;
}

/* Copy prefixes and header of a TLP; most have none and four dwords. */
DXPUI_INLINE void dxpui_copy_head(uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (bytes == 16)
        memcpy(to, from, 16);
    else
        memcpy(to, from, bytes);
}

/* Place what fits of a TLP from byte *at on: 0, or one behind its header.  DXPU_OK: all, *at is 0;
   E_MORE: up to *at, the frame is full; E_ROOM: nothing.  A TLP is begun only if its header record
   fits and split only by a full frame. */
DXPUI_INLINE int dxpui_builder_tlp(dxpui_builder *b, const uint8_t *tlp, const dxpui_item *it,
                                   unsigned cls, uint16_t *at)
{
    size_t before = b->used, head = it->head_bytes, from = *at;
    size_t record = DXPUI_RECORD_TLP_FIXED + head + DXPUI_RECORD_TLP_CRC;
    if (from == 0) {
        if (b->cap - b->used < DXPUI_RECORD_HEADER + record)
            return DXPU_E_ROOM;
        uint8_t *p = dxpui_record_open(b, DXPU_RECORD_TLP, record);
        p[0] = 0; /* format 0, VC 0 */
        p[1] = (uint8_t)(cls << 6 | (unsigned)it->prefix_dw << 3 | (head / 4 - it->prefix_dw));
        dxpu_put_be16(p + 2, (uint16_t)(it->bytes - head));
        dxpui_copy_head(p + DXPUI_RECORD_TLP_FIXED, tlp, head);
        dxpu_put_be32(p + DXPUI_RECORD_TLP_FIXED + head, it->crc);
        from = head;
    }
    size_t left = it->bytes - from, room = b->cap - b->used;
    room = room > DXPUI_RECORD_HEADER ? room - DXPUI_RECORD_HEADER : 0;
    if (room < left)
        room &= ~(size_t)3; /* W-41: only the last part may end off a dword */
    size_t part = left < room ? left : room;
    if (part)
        memcpy(dxpui_record_open(b, DXPU_RECORD_PAYLOAD, part), tlp + from, part);
    *at = part == left ? 0 : (uint16_t)(from + part);
    if (part == left)
        return DXPU_OK;
    return b->used > before ? DXPU_E_MORE : DXPU_E_ROOM;
}

static int dxpui_builder_event(dxpui_builder *b, const dxpu_event *e)
{
    size_t bytes = dxpui_event_bytes[e->type - 1];
    if (b->cap - b->used < DXPUI_RECORD_HEADER + DXPUI_RECORD_EVENT_FIXED + bytes)
        return DXPU_E_ROOM;
    uint8_t *p = dxpui_record_open(b, DXPU_RECORD_EVENT, DXPUI_RECORD_EVENT_FIXED + bytes);
    dxpui_zero(p, DXPUI_RECORD_EVENT_FIXED + bytes);
    p[0] = e->type;
    p[1] = e->flags;
    p += DXPUI_RECORD_EVENT_FIXED;
    if (e->type == DXPU_EVENT_LINK) {
        p[0] = e->speed;
        p[1] = e->width;
    } else if (bytes == 4) {
        dxpu_put_be32(p, e->value);
    } else if (bytes == 16) {
        dxpu_put_be64(p, e->base);
        dxpu_put_be64(p + 8, e->length);
    }
    return DXPU_OK;
}

/* ==== 13'  Channel: life ======================================================================
   A TLP's way, loss included.  At the sender (15'; losses in 14', acks in 16'):
     submit()     into tx.queue[class]: its bytes, an item at `tail`
     emit()       within tx.limits, dxpui_fill(): past `next`, into tx.used, tx.placed and a frame,
                  of which flight.frame has only where in tx.placed it began: dxpui_refill() makes
                  the same body again
     an ack       dxpui_on_ack(): raises tx.limits; dxpui_acked() for each frame that it or its sack
                  names; una moves: dxpui_free_acked() frees past `head`
     no ack       dxpui_detect_loss(): later transmissions were acknowledged, dxpui_path_timeout():
                  nothing was (dxpui_timers() calls both); dxpui_mark_lost(), and emit() sends lost
                  frames first: the same sequence, a new packet number and index (dxpui_sent)
   At the receiver (16'), ingest(): dxpui_on_sequenced() checks a frame, then uses its ack, then its
   body: in order by dxpui_rx_body() into rx.queue[class]; else into rx.early_bodies, until
   dxpui_early_use().  take() moves `next` and `head` together and raises rx.granted.  rx.ack_now
   and ack_at_ns say when dxpui_emit_full() must report all that, in a data frame or alone. */
enum {
    DXPUI_EVENTS = 16, /* link events on their way, each direction; a power of two */
    DXPUI_BACKOFF_MAX = 16,
    DXPUI_ACCEPTS = 3,       /* for one open, which may be forged (D-41) */
    DXPUI_WINDOW_FIRST = 10, /* frames: the initial congestion window, and a burst (P-20, P-26) */
    DXPUI_ACK_FRAMES = 8,    /* an acknowledgement at least so often (section 2 of deliver.md) */
    DXPUI_MALFORMED = 8,     /* refused transmissions of one frame: no further heals it (D-64) */
    DXPUI_WINDOW_MAX = 16384,
    DXPUI_TX_HEADERS_MAX = 32768, /* of all classes */
    DXPUI_PLACED_EVENT = 3,       /* class of an element of tx.placed that is an event */
    DXPUI_ACKED = 1,              /* dxpui_sent.state: 0, in flight, or one of these */
    DXPUI_LOST = 2,
    DXPUI_MAY_PASS = 1,  /* dxpui_item.flags: may pass posted by Relaxed Ordering */
    DXPUI_BY_ID = 2,     /* ... by ID-based Ordering */
    DXPUI_ID_CHANGE = 4, /* its neighbour before it has another requester */
    DXPUI_UNSENT = 8     /* in no frame: its requester waits no longer (F-34) */
};

static const char *const dxpui_state_names[] = { "idle",     "opening", "accepted", "up",
                                                 "draining", "closing", "closed",   "failed" };
DXPUI_NAMES(dxpu_state_name, dxpui_state_names, "?")

/* What the comments, the bit fields and the 16-bit numbers of this section count on. */
DXPUI_ASSURE(sizes, sizeof(dxpui_item) == 32 && sizeof(dxpui_sent) == 24);
DXPUI_ASSURE(events_mask, (DXPUI_EVENTS & (DXPUI_EVENTS - 1)) == 0);
DXPUI_ASSURE(log_holds, 2 * DXPUI_WINDOW_MAX <= 0x10000);                  /* dxpui_path.log */
DXPUI_ASSURE(first_holds, DXPUI_TX_HEADERS_MAX + DXPUI_EVENTS <= 0x10000); /* dxpui_sent.first */
DXPUI_ASSURE(body_holds, DXPU_FRAME_MAX_LIMIT_BYTES <= 0xffff); /* dxpui_sent.body_bytes */
DXPUI_ASSURE(at_holds, DXPU_TLP_MAX_BYTES < 0x2000);            /* dxpui_sent.at_bytes */
DXPUI_ASSURE(element_holds, (int)DXPUI_PLACED_EVENT == (int)DXPU_CLASSES); /* two bits */

/* ---- The queue of one class ----
   items   head <= next <= tail around a ring of header_max: what lies before `next` is in frames
           (at the receiver nothing lies there), the rest waits
   mem     their bytes in the same order, each TLP in one piece: `pos` of an item is a multiple
           of 8, and where a TLP does not fit before the ring's end it is at its start */
enum { DXPUI_TLP_ROOM = (DXPU_TLP_MAX_BYTES + 7) & ~7 };
DXPUI_ASSURE(tlp_room, DXPUI_TLP_ROOM == 4136); /* D-52 */

static uint32_t dxpui_tlp_room(uint32_t tlp_bytes)
{
    return (tlp_bytes + 7u) & ~7u;
}

/* Bytes that hold any TLPs within these credits, wherever the ring wraps: spec/deliver.md, D-52. */
static uint64_t dxpui_queue_bytes(uint32_t headers, uint32_t units)
{
    return (uint64_t)headers * 40u + (uint64_t)units * 16u + DXPUI_TLP_ROOM;
}

static dxpu_bytes dxpui_item_tlp(const dxpui_queue *q, const dxpui_item *it)
{
    return dxpui_view(q->mem + it->pos, it->bytes);
}

static bool dxpui_queue_fits(const dxpui_queue *q, uint32_t units)
{
    return q->count < q->header_max && units <= q->data_max - q->data_used;
}

/* The free item, with room for tlp_bytes; always succeeds when they fit the credits.  It
   counts from dxpui_queue_commit() on. */
DXPUI_INLINE dxpui_item *dxpui_queue_reserve(const dxpui_queue *q, uint32_t tlp_bytes)
{
    dxpui_item *it = &q->items[q->tail];
    uint32_t size = dxpui_tlp_room(tlp_bytes), head = q->items[q->head].pos;
    it->pos = q->count ? q->end : 0;
    if (q->count && q->end > head && size > q->cap - q->end)
        it->pos = 0;
    DXPU_ASSERT(size <= (q->count && it->pos <= head ? head : q->cap) - it->pos);
    return it;
}

static uint32_t dxpui_queue_after(const dxpui_queue *q, uint32_t item)
{
    return item + 1 == q->header_max ? 0 : item + 1;
}

DXPUI_INLINE void dxpui_queue_commit(dxpui_queue *q)
{
    dxpui_item *it = &q->items[q->tail];
    if (q->waiting && it->id != q->tail_id) {
        it->flags |= DXPUI_ID_CHANGE;
        q->id_changes++;
    }
    q->tail_id = it->id;
    q->end = it->pos + dxpui_tlp_room(it->bytes);
    q->tail = dxpui_queue_after(q, q->tail);
    q->count++;
    q->waiting++;
    q->data_used += it->units;
}

/* The item at `next` leaves; it stays in the ring until it is freed. */
DXPUI_INLINE void dxpui_queue_advance(dxpui_queue *q)
{
    q->next = dxpui_queue_after(q, q->next);
    q->waiting--;
    if (q->waiting && (q->items[q->next].flags & DXPUI_ID_CHANGE))
        q->id_changes--;
}

/* The oldest item, whose place is free now. */
static const dxpui_item *dxpui_queue_free(dxpui_queue *q)
{
    const dxpui_item *it = &q->items[q->head];
    q->head = dxpui_queue_after(q, q->head);
    q->count--;
    q->data_used -= it->units;
    return it;
}

/* Empty it; returns how many TLPs it held. */
static uint32_t dxpui_queue_clear(dxpui_queue *q)
{
    uint32_t count = q->count;
    q->head = q->next = q->tail;
    q->count = q->waiting = q->data_used = q->id_changes = 0;
    return count;
}

/* ---- Link events ---- */
static bool dxpui_events_fit(const dxpui_events *e, unsigned more)
{
    return e->tail - e->head + more <= DXPUI_EVENTS;
}

static void dxpui_events_push(dxpui_events *e, const dxpu_event *event, uint32_t order)
{
    unsigned at = e->tail++ & (DXPUI_EVENTS - 1);
    e->event[at] = *event;
    e->order[at] = order;
}

static uint32_t dxpui_events_order(const dxpui_events *e, uint32_t at)
{
    return e->order[at & (DXPUI_EVENTS - 1)];
}

/* ---- PCIe's ordering table, for both ends (D-30 ff.) ---- */
/* Describe a TLP of the ring: its header h, its class, and its data units. */
DXPUI_INLINE void dxpui_item_describe(dxpui_item *it, unsigned cls, const uint8_t *h,
                                      uint32_t units)
{
    bool reads = cls == DXPU_NONPOSTED && units == 0;
    it->units = (uint16_t)units;
    it->id = dxpu_get_be16(h + 4);
    it->user = 0;
    it->flags = it->last = 0;
    if ((h[2] & 0x20) && cls != DXPU_POSTED && !reads)
        it->flags |= DXPUI_MAY_PASS; /* D-33 */
    if (h[1] & 0x04)
        it->flags |= DXPUI_BY_ID; /* D-34 */
}

/* True when the next of class cls may go before every posted TLP that waits: only they hold others
   back (D-31, D-32).  By ID (D-34) it may if these all have one requester, which is another. */
DXPUI_INLINE bool dxpui_may_go(const dxpui_queue *queues, unsigned cls)
{
    const dxpui_queue *posted = &queues[DXPU_POSTED];
    if (cls == DXPU_POSTED || posted->waiting == 0)
        return true;
    const dxpui_item *it = &queues[cls].items[queues[cls].next];
    if ((it->flags & DXPUI_MAY_PASS) ||
        dxpui_seq_cmp(it->order, posted->items[posted->next].order) < 0)
        return true;
    return (it->flags & DXPUI_BY_ID) && posted->id_changes == 0 && posted->tail_id != it->id;
}

/* ---- Memory ---- */
static uint64_t dxpui_ns(uint32_t ms)
{
    return (uint64_t)ms * 1000000;
}

/* What is wrong with the values that decide about memory and time; NULL for nothing. */
static const char *dxpui_config_fault(const dxpu_channel_config *c)
{
#define DXPUI_RULE(holds, text)                                                                    \
    if (!(holds))                                                                                  \
        return text;
    const dxpu_suite *suite = c->suite;
    uint64_t headers = 0, rx = 0, tx = 0; /* bytes of the largest rings */
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        headers += c->tx.header[i];
        tx = dxpui_max64(tx, dxpui_queue_bytes(c->tx.header[i], c->tx.data[i]));
        rx = dxpui_max64(rx, dxpui_queue_bytes(c->rx.header[i], c->rx.data[i]));
    }
    DXPUI_RULE(c->window_frames >= 4 && c->window_frames <= DXPUI_WINDOW_MAX &&
                   (c->window_frames & (c->window_frames - 1)) == 0,
               "window_frames: a power of two, 4..16384")
    DXPUI_RULE(c->frame_limit_bytes >= DXPU_FRAME_MIN_LIMIT_BYTES &&
                   c->frame_limit_bytes <= DXPU_FRAME_MAX_LIMIT_BYTES,
               "frame_limit_bytes: 1232..65507")
    DXPUI_RULE(dxpui_credits_usable(&c->rx, false), "rx: headers from 1, data from 256, 8, 256")
    DXPUI_RULE(dxpui_credits_usable(&c->tx, false), "tx: headers from 1, data from 256, 8, 256")
    DXPUI_RULE(headers <= DXPUI_TX_HEADERS_MAX, "tx.header: at most 32768 in all")
    DXPUI_RULE(rx < 0x40000000u, "rx: the ring of each class below 1 GiB")
    DXPUI_RULE(tx < 0x40000000u, "tx: the ring of each class below 1 GiB")
    DXPUI_RULE(c->hold_ms >= 1, "hold_ms: from 1")
    DXPUI_RULE(c->rto_min_ns >= 1 && c->rto_min_ns <= dxpui_ns(c->hold_ms) / 4,
               "rto_min_ns: 1..hold/4")
    DXPUI_RULE(c->ack_delay_ns <= dxpui_ns(c->hold_ms) / 4, "ack_delay_ns: 0..hold/4")
    DXPUI_RULE(c->paths >= 1 && c->paths <= DXPU_PATHS_MAX, "paths: 1..DXPU_PATHS_MAX")
    DXPUI_RULE(!suite || (suite->id != 0 && suite->tag_bytes >= 1 &&
                          suite->tag_bytes <= DXPU_FRAME_TAG_MAX_BYTES),
               "suite: its id is not 0, its tag_bytes 1..32")
    return NULL;
}

DXPU_API int dxpu_channel_check(const dxpu_channel_config *cfg, const char **why)
{
    const char *fault = dxpui_config_fault(cfg);
    if (!fault && cfg->local_id == 0)
        fault = "local_id: not 0";
    if (!fault && cfg->epoch == 0)
        fault = "epoch: from 1";
    if (why)
        *why = fault;
    return fault ? DXPU_E_ARG : DXPU_OK;
}

/* Hands out aligned pieces of one block; with base NULL it only measures. */
typedef struct dxpui_arena {
    uint8_t *base;
    uint64_t used;
} dxpui_arena;

static void *dxpui_arena_take(dxpui_arena *a, uint64_t bytes)
{
    uint8_t *p = a->base ? a->base + a->used : NULL;
    a->used += (bytes + 7u) & ~(uint64_t)7u;
    return p;
}

static void dxpui_queue_layout(dxpui_queue *q, dxpui_arena *a, uint32_t headers, uint32_t units)
{
    q->cap = (uint32_t)dxpui_queue_bytes(headers, units);
    q->items = (dxpui_item *)dxpui_arena_take(a, (uint64_t)headers * sizeof *q->items);
    q->mem = (uint8_t *)dxpui_arena_take(a, q->cap);
    q->header_max = headers;
    q->data_max = units;
}

static void dxpui_events_layout(dxpui_events *e, dxpui_arena *a)
{
    e->event = (dxpu_event *)dxpui_arena_take(a, DXPUI_EVENTS * sizeof *e->event);
    e->order = (uint32_t *)dxpui_arena_take(a, DXPUI_EVENTS * sizeof *e->order);
}

/* Begin a channel of this configuration, maybe its own, in a block at base; returns its bytes. */
static uint64_t dxpui_layout(dxpu_channel *ch, const dxpu_channel_config *cfg, void *base)
{
    dxpui_arena a = { (uint8_t *)base, 0 };
    const dxpu_channel_config copy = *cfg, *c = &copy;
    uint32_t list = DXPUI_EVENTS, window = c->window_frames, log_size = 2 * window;
    dxpui_zero(ch, sizeof *ch);
    ch->cfg = copy;
    ch->link.trailer = c->suite ? c->suite->tag_bytes : (uint32_t)DXPU_FRAME_CRC_BYTES;
    ch->flight.overhead_bytes = (uint32_t)DXPU_FRAME_FULL_BYTES + ch->link.trailer;
    ch->flight.mask = window - 1;
    for (unsigned i = 0; i < DXPU_CLASSES; i++)
        list += c->tx.header[i];
    while (ch->tx.placed_mask < list - 1)
        ch->tx.placed_mask = 2 * ch->tx.placed_mask + 1;
    ch->tx.placed =
        (uint32_t *)dxpui_arena_take(&a, (ch->tx.placed_mask + 1u) * sizeof *ch->tx.placed);
    ch->flight.frame = (dxpui_sent *)dxpui_arena_take(&a, window * sizeof *ch->flight.frame);
    ch->paths.count = c->paths;
    ch->paths.path = (dxpui_path *)dxpui_arena_take(&a, c->paths * sizeof *ch->paths.path);
    uint16_t *log = (uint16_t *)dxpui_arena_take(&a, (uint64_t)c->paths * log_size * sizeof *log);
    dxpui_events_layout(&ch->tx.events, &a);
    dxpui_events_layout(&ch->rx.events, &a);
    ch->paths.replay_bits = 4 * window < 256 ? 256 : 4 * window;
    uint64_t *replay = (uint64_t *)dxpui_arena_take(&a, c->paths * (ch->paths.replay_bits / 8));
    ch->rx.early_bytes = (uint16_t *)dxpui_arena_take(&a, window * sizeof *ch->rx.early_bytes);
    if (base)
        dxpui_zero(base, (size_t)a.used); /* the queues and bodies behind it are written first */
    for (unsigned i = 0; base && i < c->paths; i++) {
        ch->paths.path[i].log = log + (size_t)i * log_size;
        ch->paths.path[i].replay = replay + (size_t)i * (ch->paths.replay_bits / 64);
    }
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        dxpui_queue_layout(&ch->tx.queue[i], &a, c->tx.header[i], c->tx.data[i]);
        dxpui_queue_layout(&ch->rx.queue[i], &a, c->rx.header[i], c->rx.data[i]);
    }
    ch->rx.early_bodies = (uint8_t *)dxpui_arena_take(
        &a, (uint64_t)window * (c->frame_limit_bytes - ch->flight.overhead_bytes));
    return a.used;
}

DXPU_API void dxpu_channel_config_default(dxpu_channel_config *cfg)
{
    static const uint16_t headers[DXPU_CLASSES] = { 64, 32, 80 }; /* 65: a read of 4 KB */
    static const uint16_t units[DXPU_CLASSES] = { 512, 64, 384 };
    dxpui_zero(cfg, sizeof *cfg);
    cfg->window_frames = 32;
    cfg->frame_limit_bytes = 1452;
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        cfg->rx.header[i] = cfg->tx.header[i] = headers[i];
        cfg->rx.data[i] = cfg->tx.data[i] = units[i];
    }
    cfg->hold_ms = 1000;
    cfg->rto_min_ns = 1000000;
    cfg->ack_delay_ns = 25000;
    cfg->paths = 1;
}

DXPU_API size_t dxpu_channel_bytes(const dxpu_channel_config *cfg)
{
    dxpu_channel ch;
    uint64_t bytes = dxpui_config_fault(cfg) ? 0 : dxpui_layout(&ch, cfg, NULL);
    return bytes <= SIZE_MAX ? (size_t)bytes : 0;
}

DXPU_API int dxpu_channel_init_sized(dxpu_channel *ch, size_t ch_bytes,
                                     const dxpu_channel_config *cfg, void *mem, size_t mem_bytes)
{
    size_t need = dxpu_channel_bytes(cfg);
    if (ch_bytes != sizeof *ch || need == 0 || dxpu_channel_check(cfg, NULL) != DXPU_OK ||
        mem_bytes < need || ((uintptr_t)mem & 7u) != 0)
        return DXPU_E_ARG;
    dxpui_layout(ch, cfg, mem);
    ch->link.hold_ns = dxpui_ns(cfg->hold_ms);
    ch->flight.una = ch->flight.next = ch->flight.lost_from = cfg->sequence;
    ch->rx.granted = ch->rx.advertised = cfg->rx;
    ch->link.frame_limit = cfg->frame_limit_bytes;
    for (unsigned i = 0; i < cfg->paths; i++) {
        dxpui_path *p = &ch->paths.path[i];
        p->rto_ns = cfg->rto_min_ns * 4; /* before the first sample (D-11) */
        p->timer_ns = p->loss_ns = DXPU_NEVER;
        p->index = p->judged = p->answers_needed = 1;
    }
    ch->rx.ack_at_ns = ch->tx.blocked_at_ns = ch->link.next_try_ns = DXPU_NEVER;
    return DXPU_OK;
}

/* ---- States: rows of spec/deliver.md's table; those of D-47 and D-65 in dxpui_go() ---- */
enum { DXPUI_EV_OPEN, DXPUI_EV_ACCEPT, DXPUI_EV_RX_ACCEPT, DXPUI_EV_RX_SEQUENCED };
enum { DXPUI_EV_CLOSE = 4, DXPUI_EV_DRAINED, DXPUI_EV_RX_CLOSE, DXPUI_EV_FAIL };

/* The only place that changes the state.  True when it did. */
static bool dxpui_go(dxpui_link *l, unsigned ev)
{
    static const uint8_t rows[][3] = {
        { DXPUI_EV_OPEN, DXPU_STATE_IDLE, DXPU_STATE_OPENING },        /* D-40 */
        { DXPUI_EV_ACCEPT, DXPU_STATE_IDLE, DXPU_STATE_ACCEPTED },     /* D-41 */
        { DXPUI_EV_RX_ACCEPT, DXPU_STATE_OPENING, DXPU_STATE_UP },     /* D-42 */
        { DXPUI_EV_RX_SEQUENCED, DXPU_STATE_ACCEPTED, DXPU_STATE_UP }, /* D-43 */
        { DXPUI_EV_CLOSE, DXPU_STATE_UP, DXPU_STATE_DRAINING },        /* D-44 */
        { DXPUI_EV_DRAINED, DXPU_STATE_DRAINING, DXPU_STATE_CLOSING }, /* D-45 */
        { DXPUI_EV_RX_CLOSE, DXPU_STATE_ACCEPTED, DXPU_STATE_CLOSED }, /* D-46 */
        { DXPUI_EV_RX_CLOSE, DXPU_STATE_UP, DXPU_STATE_CLOSED },       /* D-46 */
        { DXPUI_EV_RX_CLOSE, DXPU_STATE_DRAINING, DXPU_STATE_CLOSED }, /* D-46 */
        { DXPUI_EV_RX_CLOSE, DXPU_STATE_CLOSING, DXPU_STATE_CLOSED },  /* D-46 */
    };
    uint8_t from = l->state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i][0] == ev && rows[i][1] == from)
            l->state = rows[i][2];
    }
    if (l->state == DXPU_STATE_UP && l->close_asked)
        l->state = DXPU_STATE_DRAINING; /* D-65 */
    if (ev == DXPUI_EV_FAIL && from != DXPU_STATE_CLOSED)
        l->state = DXPU_STATE_FAILED; /* D-47 */
    l->look_ns = 0;
    if (l->state != from)
        DXPU_TRACE((const dxpu_channel *)((const char *)l - offsetof(dxpu_channel, link)),
                   DXPU_TRACE_STATE, l->state);
    return l->state != from; /* every other pair: no change */
}

static int dxpui_fail(dxpui_link *l, int error, uint8_t reason, bool tell)
{
    if (dxpui_go(l, DXPUI_EV_FAIL)) {
        l->error = error;
        l->reason = reason;
        l->send_reset = tell;
    }
    return l->error;
}

/* The peer broke a rule inside an authentic frame. */
static int dxpui_broken(dxpui_link *l, int error, uint8_t reason)
{
    l->last_error = error;
    return dxpui_fail(l, DXPU_E_PROTO, reason, true);
}

/* True from open or accept until the channel has ended. */
static bool dxpui_alive(const dxpui_link *l)
{
    return l->state >= DXPU_STATE_OPENING && l->state <= DXPU_STATE_CLOSING;
}

static bool dxpui_sequenced(const dxpui_link *l)
{
    return l->state >= DXPU_STATE_UP && l->state <= DXPU_STATE_CLOSING;
}

/* Send the frame of this state at once, and forget its back-off. */
static void dxpui_try_now(dxpui_link *l, uint64_t now_ns)
{
    l->next_try_ns = now_ns;
    l->tries = 0;
}

/* ---- Handshake ---- */
/* The first congestion window (P-20), as far as the frame window ever lets one grow (P-22). */
static uint32_t dxpui_window_first(const dxpu_channel *ch)
{
    uint64_t frames = dxpui_min64(DXPUI_WINDOW_FIRST, 2 * ch->cfg.window_frames);
    return (uint32_t)frames * ch->link.frame_limit;
}

/* The frame limit of the incarnation is known; no data has left yet. */
static void dxpui_set_limit(dxpu_channel *ch, uint32_t ours, uint32_t theirs)
{
    ch->link.frame_limit = ours < theirs ? ours : theirs;
    for (unsigned i = 0; i < ch->cfg.paths; i++) {
        ch->paths.path[i].window = dxpui_window_first(ch);
        ch->paths.path[i].threshold = UINT32_MAX;
    }
}

/* Take over what the peer offers.  DXPU_OK, E_VERSION, E_EPOCH. */
static int dxpui_establish(dxpu_channel *ch, const dxpu_offer *o, uint8_t path, uint64_t now_ns)
{
    uint16_t suite = ch->cfg.suite ? ch->cfg.suite->id : (uint16_t)DXPU_SUITE_CRC;
    unsigned above = DXPU_WIRE_VERSION - (unsigned)o->version_min; /* huge when it is below */
    if (above > (unsigned)o->version_max - o->version_min || !(o->suites & suite))
        return DXPU_E_VERSION; /* W-22, W-23 */
    if (o->epoch != ch->cfg.epoch)
        return DXPU_E_EPOCH;
    ch->link.remote_id = o->channel;
    ch->flight.window = (uint32_t)dxpui_min64(ch->cfg.window_frames, o->window_frames);
    dxpui_set_limit(ch, ch->cfg.frame_limit_bytes, o->frame_limit_bytes);
    ch->paths.latest = path < ch->cfg.paths ? path : 0; /* W-6, of an accept */
    ch->paths.path[ch->paths.latest].known = ch->paths.path[ch->paths.latest].usable = true;
    ch->paths.path[ch->paths.latest].heard_ns = now_ns;
    ch->link.hold_ns = dxpui_min64(ch->link.hold_ns, dxpui_ns(o->hold_ms));
    ch->tx.limits = o->limits;
    ch->tx.completions_infinite = o->completions_infinite;
    ch->rx.next = o->sequence;
    ch->link.heard_ns = now_ns;
    return DXPU_OK;
}

DXPU_API int dxpu_channel_open(dxpu_channel *ch, uint64_t now_ns)
{
    if (!dxpui_go(&ch->link, DXPUI_EV_OPEN))
        return DXPU_E_ARG;
    ch->link.heard_ns = ch->link.next_try_ns = now_ns;
    for (unsigned i = 0; i < ch->cfg.paths; i++)
        ch->paths.path[i].known = true;
    return DXPU_OK;
}

/* Seen packet numbers: a window of bits below replay_top, for each path, since one is late against
   another by any number of packets.  The path is a part of what is authentic, so that a copy is
   looked for where the original was (D-63).  True when `packet` is new. */
DXPUI_INLINE bool dxpui_replay_mark(dxpu_channel *ch, const dxpu_frame *f)
{
    dxpui_path *p = &ch->paths.path[f->path < ch->cfg.paths ? f->path : 0];
    uint64_t size = ch->paths.replay_bits, packet = f->packet, bit = packet & (size - 1);
    uint64_t *word = &p->replay[bit / 64], mask = (uint64_t)1 << (bit & 63);
    bool fresh = packet >= p->replay_top || !(*word & mask);
    if (packet == UINT64_MAX)
        return false; /* nothing could come after it */
    if (packet >= p->replay_top) {
        uint64_t skipped = dxpui_min64(packet - p->replay_top, size);
        for (uint64_t i = 1; i <= skipped; i++) {
            uint64_t before = (packet - i) & (size - 1);
            p->replay[before / 64] &= ~((uint64_t)1 << (before & 63));
        }
        p->replay_top = packet + 1;
    } else if (p->replay_top - packet > size) {
        return false; /* too old to be checked */
    }
    *word |= mask;
    return fresh;
}

static int dxpui_authentic(dxpu_channel *ch, const dxpu_frame *f, uint8_t *pkt, size_t len)
{
    if (!ch->cfg.suite)
        return dxpu_frame_check_crc(dxpui_view(pkt, len));
    dxpu_bytes head = dxpui_view(pkt, (size_t)(f->body.ptr - pkt));
    ch->busy = 1;
    bool ok = ch->cfg.suite->open(ch->cfg.suite_user, f->key_phase, f->packet, head, pkt + head.len,
                                  f->body.len);
    ch->busy = 0;
    return ok ? DXPU_OK : DXPU_E_CRC;
}

/* Everything before the frame may change anything. */
DXPUI_INLINE int dxpui_admit(dxpu_channel *ch, uint8_t *pkt, size_t len, dxpu_frame *f)
{
    int rc = dxpu_frame_decode(dxpui_view(pkt, len), ch->link.trailer, f);
    if (rc != DXPU_OK)
        return rc;
    if (f->channel != (f->kind == DXPU_KIND_OPEN ? 0 : ch->cfg.local_id))
        return DXPU_E_CHANNEL; /* W-7 */
    if (len > ch->cfg.frame_limit_bytes && f->kind != DXPU_KIND_OPEN)
        return DXPU_E_LENGTH; /* W-10; an open is padded to what its sender takes: P-3 */
    rc = dxpui_authentic(ch, f, pkt, len);
    if (rc != DXPU_OK)
        return rc;
    if (f->kind == DXPU_KIND_OPEN && ch->link.state != DXPU_STATE_IDLE &&
        (f->body.len < DXPU_OFFER_BYTES || dxpu_get_be32(f->body.ptr) != ch->link.remote_id))
        return DXPU_E_STATE; /* another incarnation's; its packet numbers are not ours: D-49 */
    if (f->kind == DXPU_KIND_OPEN && f->path >= ch->cfg.paths)
        return DXPU_E_PATH; /* P-4: it could not be answered there */
    return f->kind == DXPU_KIND_RESET || dxpui_replay_mark(ch, f) ? DXPU_OK : DXPU_E_REPLAY;
}

DXPU_API int dxpu_channel_accept(dxpu_channel *ch, uint64_t now_ns, uint8_t *open, size_t len)
{
    dxpu_frame f;
    dxpu_offer o;
    if (ch->link.state != DXPU_STATE_IDLE)
        return DXPU_E_ARG;
    int rc = dxpui_admit(ch, open, len, &f);
    if (rc == DXPU_OK)
        rc = f.kind == DXPU_KIND_OPEN ? dxpu_offer_decode(f.body, &o) : DXPU_E_STATE;
    if (rc == DXPU_OK)
        rc = dxpui_establish(ch, &o, f.path, now_ns);
    if (rc != DXPU_OK) {
        DXPU_TRACE(ch, DXPU_TRACE_DROPPED, rc);
        for (unsigned i = 0; i < ch->cfg.paths; i++)
            ch->paths.path[i].replay_top = 0; /* the next open may be another opener's */
        return rc;
    }
    dxpui_go(&ch->link, DXPUI_EV_ACCEPT);
    ch->paths.newest = true;
    DXPU_TRACE(ch, DXPU_TRACE_RECEIVED, f.packet);
    ch->count.rx_frames++;
    ch->count.rx_bytes += len;
    ch->link.next_try_ns = now_ns;
    return DXPU_OK;
}

/* A base frame of no channel: the CRC suite, packet number 0. */
DXPU_API size_t dxpu_reset_encode(uint32_t channel, uint8_t reason, uint8_t out[64])
{
    dxpu_frame f;
    dxpui_zero(&f, sizeof f);
    f.kind = DXPU_KIND_RESET;
    f.channel = channel;
    size_t used = dxpu_frame_encode_header(&f, 4, DXPU_FRAME_CRC_BYTES, out);
    out[used] = reason;
    out[used + 1] = out[used + 2] = DXPU_WIRE_VERSION;
    out[used + 3] = 0;
    dxpu_frame_seal_crc(out, used + 4);
    return used + 4 + DXPU_FRAME_CRC_BYTES;
}

/* ---- The end, and questions ---- */
DXPU_API int dxpu_channel_close(dxpu_channel *ch, uint8_t reason)
{
    if (ch->link.state == DXPU_STATE_IDLE)
        return DXPU_E_ARG;
    bool early = ch->link.state < DXPU_STATE_UP && !ch->link.close_asked;
    ch->link.close_asked = ch->link.close_asked || early;
    if (early || dxpui_go(&ch->link, DXPUI_EV_CLOSE))
        ch->link.reason = reason;
    return DXPU_OK;
}

DXPU_API void dxpu_channel_reset(dxpu_channel *ch, uint8_t reason)
{
    dxpui_fail(&ch->link, DXPU_E_RESET, reason, ch->link.remote_id != 0);
}

DXPU_API bool dxpu_channel_contain(dxpu_channel *ch, dxpu_request *out)
{
    dxpui_queue *q = &ch->rx.queue[DXPU_COMPLETION];
    bool found = false;
    if (ch->link.state < DXPU_STATE_CLOSED)
        return false;
    while (ch->cfg.tags && q->waiting && !found) { /* not taken in time: its tag is free already */
        dxpui_queue_advance(q);
        const dxpui_item *it = dxpui_queue_free(q);
        ch->count.contain_dropped++;
        found = it->last;
        out->user = it->user;
        const uint8_t *h = q->mem + it->pos + 4u * it->prefix_dw;
        out->requester = dxpu_get_be16(h + 8);
        out->tag = (uint16_t)((h[1] & 0x80) << 2 | (h[1] & 0x08) << 5 | h[10]);
        out->left_bytes = out->bytes = 0;
        out->offset_bytes = (uint16_t)it->crc;
        out->done = true;
    }
    if (!found) {
        uint32_t events =
            ch->tx.events.tail - ch->tx.events.head + ch->rx.events.tail - ch->rx.events.head;
        ch->tx.events.head = ch->tx.events.next = ch->tx.events.tail;
        ch->tx.waiting = 0;
        ch->rx.events.head = ch->rx.events.tail;
        ch->count.contain_dropped += events;
        for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
            ch->count.contain_dropped +=
                dxpui_queue_clear(&ch->tx.queue[cls]) + dxpui_queue_clear(&ch->rx.queue[cls]);
        found = ch->cfg.tags && dxpu_tags_pop(ch->cfg.tags, out);
        if (ch->cfg.tags)
            ch->cfg.tags->unsent = 0;
    }
    ch->count.contained += found;
    return found;
}

DXPU_API void dxpu_channel_set_key_phase(dxpu_channel *ch, uint8_t phase)
{
    ch->link.key_phase = phase & 3;
}

DXPU_API dxpu_status dxpu_channel_status(const dxpu_channel *ch)
{
    const dxpui_link *l = &ch->link;
    dxpu_status s = { l->state, l->reason,     ch->paths.latest, ch->paths.newest,
                      l->error, l->last_error, l->hold_ns };
    return s;
}

/* ==== 14'  Channel: paths ===================================================================== */
enum {
    DXPUI_REORDER = 3,     /* one is lost when one this much later was acknowledged (D-14) */
    DXPUI_SACK_REACH = 64, /* no sack names a frame further from its ack (D-3) */
    DXPUI_TIMEOUTS = 4,    /* in a row: a tail-loss probe and three RTOs (P-24) */
    DXPUI_LEAVE = 2,       /* ... and one RTO, when another path is usable (P-10) */
    DXPUI_MISSED = 3,      /* probes unanswered in a row (P-11) */
    DXPUI_SUSPECT = 4,     /* transmissions of one frame: does the path still carry it? (P-12) */
    DXPUI_RETURN = 3,      /* probes answered in a row (P-13) */
    DXPUI_PACE_NS = 50000, /* no process wakes more often (P-26) */
    DXPUI_RTT_MAX_S = 60
};

/* The first usable path without timeouts, else the first usable one, else one to try. */
static unsigned dxpui_active(const dxpui_paths *ps)
{
    unsigned usable = ps->count;
    for (unsigned i = 0; i < ps->count; i++) {
        const dxpui_path *p = &ps->path[i];
        if (p->usable && p->timeouts == 0)
            return i;
        if (p->usable && usable == ps->count)
            usable = i;
    }
    return usable < ps->count ? usable : ps->fallback;
}

DXPU_API int dxpu_channel_path(const dxpu_channel *ch, unsigned path, dxpu_path_info *out)
{
    if (path >= ch->cfg.paths)
        return DXPU_E_NONE;
    const dxpui_path *p = &ch->paths.path[path];
    out->known = p->known;
    out->usable = p->usable;
    out->active = p->usable && path == dxpui_active(&ch->paths);
    out->srtt_ns = p->srtt_ns;
    out->rto_ns = p->rto_ns;
    out->window_bytes = p->window;
    out->in_flight_bytes = p->in_flight;
    return DXPU_OK;
}

/* ---- Time ---- */
/* When an acknowledgement is overdue, the peer's delay of it included (D-11, D-17). */
static uint64_t dxpui_path_tail(const dxpu_channel *ch, const dxpui_path *p)
{
    uint64_t delay = ch->cfg.ack_delay_ns;
    return p->srtt_ns + dxpui_max64(4 * p->rttvar_ns, delay) + delay;
}

/* RFC 6298 with a floor of rto_min (D-11). */
static void dxpui_rtt_sample(dxpu_channel *ch, dxpui_path *p, uint64_t rtt)
{
    uint64_t before_ns = p->rto_ns;
    rtt = dxpui_max64(1, dxpui_min64(rtt, DXPUI_RTT_MAX_S * (uint64_t)1000000000));
    p->sample_ns = rtt;
    if (p->srtt_ns == 0) {
        p->srtt_ns = rtt;
        p->rttvar_ns = rtt / 2;
    } else {
        uint64_t diff = rtt > p->srtt_ns ? rtt - p->srtt_ns : p->srtt_ns - rtt;
        p->rttvar_ns = p->rttvar_ns - p->rttvar_ns / 4 + diff / 4;
        p->srtt_ns = p->srtt_ns - p->srtt_ns / 8 + rtt / 8;
    }
    p->rto_ns = dxpui_max64(ch->cfg.rto_min_ns, dxpui_path_tail(ch, p));
    if (p->rto_ns < before_ns && before_ns > ch->link.hold_ns / 64)
        ch->link.look_ns = 0; /* a probe may be due before: dxpui_probe_due() */
}

/* Open and accept, or accept and what follows, each sent once, give a round trip (D-10). */
static void dxpui_rtt_of_open(dxpu_channel *ch, uint64_t rtt)
{
    if (ch->link.tries == 1 && rtt)
        dxpui_rtt_sample(ch, &ch->paths.path[ch->paths.latest], rtt);
    ch->link.next_try_ns = DXPU_NEVER;
    ch->link.tries = 0;
}

/* RTO of a path, doubled `times` times (D-12). */
static uint64_t dxpui_backed_off(const dxpui_link *l, const dxpui_path *p, unsigned times)
{
    uint64_t ceiling = l->hold_ns / 4, wait = p->rto_ns;
    for (; times && wait < ceiling; times--)
        wait *= 2;
    return dxpui_min64(wait, ceiling);
}

/* How long to wait for an acknowledgement on p: at first only for a tail-loss probe (D-17). */
static uint64_t dxpui_path_wait(const dxpu_channel *ch, const dxpui_path *p)
{
    uint64_t rto = dxpui_backed_off(&ch->link, p, p->timeouts ? p->timeouts - 1u : 0);
    return p->timeouts || p->srtt_ns == 0 ? rto : dxpui_min64(rto, dxpui_path_tail(ch, p));
}

/* ---- Congestion: RFC 9002's NewReno, see spec/paths.md ---- */
/* Transmission `index` was lost, or acknowledged as marked: once for all sent before we knew. */
static void dxpui_congestion(dxpu_channel *ch, dxpui_path *p, uint32_t index)
{
    if (ch->cfg.lossless || (p->recovering && dxpui_seq_cmp(index, p->recovery) < 0))
        return;
    p->recovering = true;
    p->recovery = p->index;
    p->acked_bytes = 0;
    p->threshold = p->window / 2;
    p->window = p->threshold > 2 * ch->link.frame_limit ? p->threshold : 2 * ch->link.frame_limit;
    ch->count.tx_congestion++;
    DXPU_TRACE(ch, DXPU_TRACE_WINDOW, p->window);
}

/* Transmission `index` was acknowledged; `bytes` is 0 where it was found lost.  It counts for the
   window when half of that was in use, and when it left after the last reduction (P-22). */
static void dxpui_window_count(dxpui_path *p, uint32_t index, uint32_t bytes)
{
    bool before = p->recovering && dxpui_seq_cmp(index, p->recovery) < 0;
    if (!before && dxpui_seq_cmp(index, p->limited_at) <= 0)
        p->acked_bytes += bytes;
}

/* An acknowledgement has been worked through, its losses too: grow by what counted (P-21), later by
   one frame for each window of it (P-22).  Recovery ends when all that left before is decided: what
   of that is found lost after the first later acknowledgement does not halve again (P-23). */
static void dxpui_window_grow(const dxpu_channel *ch, dxpui_path *p)
{
    uint32_t most = 2 * ch->cfg.window_frames * ch->link.frame_limit, more = p->acked_bytes;
    p->recovering = p->recovering && dxpui_seq_cmp(p->judged, p->recovery) < 0;
    if (p->window >= p->threshold) {
        more = p->acked_bytes >= p->window ? ch->link.frame_limit : 0;
        p->acked_bytes -= more ? p->window : 0;
    } else {
        p->acked_bytes = 0;
    }
    p->window = most - p->window > more ? p->window + more : most;
}

/* How long `bytes` take at the pace of p (P-26).  32-bit divisions: others need a library. */
static uint64_t dxpui_pace(const dxpui_path *p, uint32_t bytes)
{
    uint32_t rate = p->window + (p->window < p->threshold ? p->window : p->window / 4);
    return p->srtt_ns * ((bytes << 16) / rate) >> 16;
}

/* A data frame leaves on p: count it, and set when the next may. */
static void dxpui_path_sent(dxpu_channel *ch, dxpui_path *p, uint32_t bytes, uint64_t now_ns)
{
    p->urgent = false;
    p->in_flight += bytes;
    if (p->in_flight >= p->window / 2)
        p->limited_at = p->index;
    else /* never half-way round the numbers behind (D-7) */
        p->limited_at += p->index - p->limited_at >= 0x40000000u;
    if (p->timer_ns == DXPU_NEVER)
        p->timer_ns = now_ns + dxpui_path_wait(ch, p);
    ch->link.look_ns = dxpui_min64(ch->link.look_ns, p->timer_ns);
    p->index++;
    if (ch->cfg.lossless)
        return;
    if (p->pace_ns < now_ns && now_ns - p->pace_ns > DXPUI_PACE_NS) {
        uint64_t burst = DXPUI_WINDOW_FIRST * dxpui_pace(p, ch->link.frame_limit);
        burst = dxpui_max64(burst, DXPUI_PACE_NS);
        if (now_ns - p->pace_ns > burst)
            p->pace_ns = now_ns - burst;
    }
    p->pace_ns += dxpui_pace(p, bytes);
}

/* ---- Which path ---- */
/* When p may carry a data frame: 0 at once, DXPU_NEVER not before an acknowledgement. */
static uint64_t dxpui_path_when(const dxpu_channel *ch, const dxpui_path *p)
{
    if (ch->cfg.lossless || p->urgent || p->in_flight == 0)
        return 0;
    return p->in_flight + ch->link.frame_limit > p->window ? DXPU_NEVER : p->pace_ns;
}

/* The path for the next data frame and when it may leave: the active one, or with `spread` the one
   that lets it go first, then the one of the shortest round trip. */
DXPUI_INLINE unsigned dxpui_path_pick(const dxpu_channel *ch, uint64_t *when_ns)
{
    unsigned best = dxpui_active(&ch->paths);
    *when_ns = dxpui_path_when(ch, &ch->paths.path[best]);
    for (unsigned i = 0; ch->cfg.spread && i < ch->cfg.paths; i++) {
        const dxpui_path *p = &ch->paths.path[i];
        uint64_t when = dxpui_path_when(ch, p);
        if (p->usable && p->timeouts == 0 &&
            (when < *when_ns || (when == *when_ns && p->srtt_ns < ch->paths.path[best].srtt_ns))) {
            best = i;
            *when_ns = when;
        }
    }
    return best;
}

/* Where an acknowledgement goes: back to where the last frame came from, which works. */
static uint8_t dxpui_ack_path(const dxpui_paths *ps)
{
    return ps->path[ps->latest].usable ? ps->latest : (uint8_t)dxpui_active(ps);
}

/* ---- Loss ---- */
/* What we know of the data frame `seq`, one of the window. */
static dxpui_sent *dxpui_frame_of(const dxpui_flight *fl, uint32_t seq)
{
    return &fl->frame[seq & fl->mask];
}

static uint32_t dxpui_frame_bytes(const dxpui_flight *fl, const dxpui_sent *s)
{
    return s->body_bytes + fl->overhead_bytes;
}

/* `seq` is to leave again: found lost, left behind with its path, or a timer's choice (D-15). */
static void dxpui_mark_lost(dxpu_channel *ch, uint32_t seq)
{
    dxpui_sent *s = dxpui_frame_of(&ch->flight, seq);
    if (s->state == DXPUI_LOST)
        return;
    if (s->state == 0)
        ch->paths.path[s->path].in_flight -= dxpui_frame_bytes(&ch->flight, s);
    s->state = DXPUI_LOST;
    DXPU_TRACE(ch, DXPU_TRACE_LOST, seq);
    if (ch->flight.lost == 0 || dxpui_seq_cmp(seq, ch->flight.lost_from) < 0)
        ch->flight.lost_from = seq;
    ch->flight.lost++;
}

/* Transmissions on a path are lost when one DXPUI_REORDER later was acknowledged, or any later and
   they are 9/8 of a round trip old (D-14, D-18).  Each is judged once. */
static void dxpui_detect_loss(dxpu_channel *ch, uint8_t path, uint64_t now_ns)
{
    dxpui_flight *fl = &ch->flight;
    dxpui_path *p = &ch->paths.path[path];
    uint32_t window = ch->cfg.window_frames;
    uint64_t rtt = dxpui_max64(p->srtt_ns, p->sample_ns);
    uint64_t wait = rtt ? dxpui_max64(rtt + rtt / 8, ch->cfg.ack_delay_ns) : p->rto_ns;
    p->loss_ns = DXPU_NEVER;
    if (p->index - p->judged > 2 * window)
        p->judged = p->index - 2 * window;
    for (; dxpui_seq_cmp(p->judged, p->index_acked) < 0; p->judged++) {
        uint16_t low = p->log[p->judged & (2 * window - 1)];
        uint32_t seq = fl->una + (uint16_t)(low - (uint16_t)fl->una);
        const dxpui_sent *s = dxpui_frame_of(fl, seq);
        if (dxpui_seq_cmp(seq, fl->next) >= 0 || s->path != path || s->index != p->judged ||
            s->state)
            continue;
        if (seq - fl->una > DXPUI_SACK_REACH)
            return; /* no sack could have named it yet */
        if (dxpui_seq_cmp(p->judged + DXPUI_REORDER, p->index_acked) > 0 &&
            now_ns < dxpui_later(s->sent_ns, wait)) {
            p->loss_ns = dxpui_later(s->sent_ns, wait);
            return;
        }
        dxpui_mark_lost(ch, seq);
        dxpui_congestion(ch, p, p->judged);
        ch->count.tx_fast++;
    }
}

/* ---- Leaving a path, and coming back ---- */
/* The next known path after one that is known, itself when there is no other. */
static uint8_t dxpui_path_after(const dxpui_paths *ps, uint8_t path)
{
    unsigned i = path;
    DXPU_ASSERT(ps->path[path].known); /* which ends the loop */
    do
        i = (i + 1) % ps->count;
    while (!ps->path[i].known);
    return (uint8_t)i;
}

/* Leave a path: what it carried goes out again on another (P-10). */
static void dxpui_path_leave(dxpu_channel *ch, uint8_t path, uint64_t now_ns)
{
    dxpui_path *p = &ch->paths.path[path];
    for (uint32_t seq = ch->flight.una; seq != ch->flight.next; seq++) {
        const dxpui_sent *s = dxpui_frame_of(&ch->flight, seq);
        if (s->path == path && (s->state == 0 || seq == ch->flight.una))
            dxpui_mark_lost(ch, seq); /* una: see dxpui_path_waits() */
    }
    ch->count.path_down += p->usable;
    ch->paths.fallback = dxpui_path_after(&ch->paths, path);
    p->usable = p->urgent = p->suspect = p->recovering = false;
    p->timeouts = p->missed = p->answers = 0;
    p->answers_needed = DXPUI_RETURN;
    p->timer_ns = p->loss_ns = DXPU_NEVER;
    p->probe_ns = now_ns;
    p->acked_bytes = 0;
    p->window = dxpui_window_first(ch);
    p->threshold = UINT32_MAX;
}

/* True when something on `path` is not acknowledged.  The oldest frame counts even if it was,
   selectively: the receiver may have no room for its link events yet (D-36). */
static bool dxpui_path_waits(const dxpu_channel *ch, uint8_t path)
{
    const dxpui_sent *s = dxpui_frame_of(&ch->flight, ch->flight.una);
    return ch->paths.path[path].in_flight != 0 ||
           (ch->flight.una != ch->flight.next && s->path == path && s->state != DXPUI_LOST);
}

/* The oldest frame of which dxpui_path_waits() says that it is not acknowledged. */
static uint32_t dxpui_path_oldest(const dxpui_flight *fl, uint8_t path)
{
    uint32_t seq = fl->una;
    const dxpui_sent *s = dxpui_frame_of(fl, seq);
    if (s->path == path && s->state != DXPUI_LOST)
        return seq; /* una even if selectively acknowledged */
    do
        s = dxpui_frame_of(fl, ++seq);
    while (s->path != path || s->state);
    return seq;
}

/* A path counts as silent: leave it, or slow down (P-10, P-24). */
static void dxpui_path_silent(dxpu_channel *ch, uint8_t path, uint64_t now_ns)
{
    dxpui_path *p = &ch->paths.path[path];
    unsigned other = dxpui_active(&ch->paths);
    bool better = other != path && ch->paths.path[other].usable;
    ch->paths.path[other].urgent = true;
    if (better)
        p->suspect = true;
    if (p->timeouts < (better ? DXPUI_LEAVE : DXPUI_TIMEOUTS))
        return;
    if (dxpui_path_after(&ch->paths, path) != path) {
        dxpui_path_leave(ch, path, now_ns);
    } else if (p->timeouts == DXPUI_TIMEOUTS) { /* persistent congestion (P-24) */
        dxpui_congestion(ch, p, p->index);
        p->window = 2 * ch->link.frame_limit;
    }
}

/* The timer of a path with frames in flight: send its oldest again, or what is lost already; the
   acknowledgement shows what became of the others (D-15, D-17).  If no sack could have named it
   yet, it waits for an older one on another path: the next acknowledgement restarts this (D-14). */
static void dxpui_path_timeout(dxpu_channel *ch, uint8_t path, uint64_t now_ns)
{
    dxpui_flight *fl = &ch->flight;
    dxpui_path *p = &ch->paths.path[path];
    p->timer_ns = DXPU_NEVER;
    DXPU_TRACE(ch, DXPU_TRACE_TIMER, path);
    if (!dxpui_path_waits(ch, path))
        return;
    uint32_t oldest = dxpui_path_oldest(fl, path);
    if (oldest - fl->una > DXPUI_SACK_REACH) {
        if (fl->lost) { /* what it waits for has yet to leave, whatever is in flight here */
            ch->paths.path[dxpui_active(&ch->paths)].urgent = true;
            p->timer_ns = now_ns + dxpui_path_wait(ch, p);
        }
        return;
    }
    if (fl->lost == 0) /* else another loss goes first */
        dxpui_mark_lost(ch, oldest);
    if (oldest == fl->una && fl->unstored) { /* the peer has no room for its events (D-62) */
        fl->unstored = (uint8_t)(fl->unstored + (fl->unstored < DXPUI_BACKOFF_MAX));
        p->timer_ns = now_ns + dxpui_backed_off(&ch->link, p, fl->unstored);
        ch->paths.path[dxpui_active(&ch->paths)].urgent = true;
        return;
    }
    if (p->timeouts == 0 && p->srtt_ns) {
        ch->count.tx_tail_probes++;
    } else {
        ch->count.tx_timeouts++;
        if (p->timeouts == 0)
            p->timeouts = 1;
    }
    if (p->timeouts < DXPUI_BACKOFF_MAX)
        p->timeouts++;
    p->timer_ns = now_ns + dxpui_path_wait(ch, p);
    dxpui_path_silent(ch, path, now_ns);
}

/* ---- Probes: is a path up, how far is the peer, does it carry the frame limit (P-1 ff.) ---- */
/* When a probe, or the answer to one, wants to leave on p. */
static uint64_t dxpui_probe_due(const dxpu_channel *ch, const dxpui_path *p)
{
    if (p->reply_bytes)
        return 0;
    if (!dxpui_sequenced(&ch->link) || !p->known)
        return DXPU_NEVER;
    uint64_t gap_ns = ch->link.hold_ns / 64;
    if (p->usable) /* in doubt: a probe has an RTO to be answered (P-11) */
        gap_ns = dxpui_max64(gap_ns, dxpui_backed_off(&ch->link, p, 0));
    if (!p->usable || p->suspect) /* the first now */
        return p->probe_ns || p->awaiting ? dxpui_later(p->probe_ns, gap_ns) : 0;
    return dxpui_max64(
        dxpui_later(p->heard_ns, ch->link.hold_ns / 4),
        dxpui_later(p->probe_ns, dxpui_max64(gap_ns, ch->link.hold_ns / 8))); /* D-13 */
}

/* A probe leaves on `path`, and the one before it has had its time. */
static void dxpui_probe_next(dxpu_channel *ch, uint8_t path, uint64_t now_ns)
{
    dxpui_path *p = &ch->paths.path[path];
    if (p->awaiting) {
        p->answers = 0;
        if (p->usable && ++p->missed >= DXPUI_MISSED && dxpui_path_after(&ch->paths, path) != path)
            dxpui_path_leave(ch, path, now_ns);
    }
    if (!p->awaiting)
        p->awaited_ns = now_ns;
    p->awaiting = true;
    p->probe_ns = now_ns;
}

static void dxpui_probe_answered(dxpu_channel *ch, dxpui_path *p, uint64_t sent_ns, uint64_t now_ns)
{
    p->awaiting = p->suspect = false;
    p->missed = p->timeouts = 0; /* ends the back-off, as an acknowledgement does */
    dxpui_rtt_sample(ch, p, now_ns - sent_ns);
    if (p->timer_ns != DXPU_NEVER)
        p->timer_ns = dxpui_min64(p->timer_ns, now_ns + dxpui_path_wait(ch, p));
    if (!p->usable && ++p->answers >= p->answers_needed) {
        p->usable = true;
        ch->count.path_up++;
    }
}

/* A valid frame arrived over the path: it is up, unless frames of the limit are in doubt. */
static void dxpui_path_heard(dxpu_channel *ch, const dxpu_frame *f, uint64_t now_ns)
{
    dxpui_path *p = &ch->paths.path[f->path];
    if (!p->known)
        ch->link.look_ns = 0; /* it may be probed now */
    p->known = true;
    p->heard_ns = now_ns;
    ch->paths.latest = f->path;
    ch->paths.newest = f->packet + 1 == p->replay_top;
    if (p->usable && !p->suspect) {
        p->awaiting = false;
        p->missed = 0;
    }
}

/* When each known path will have left a probe unanswered for hold (D-48). */
static uint64_t dxpui_all_silent_ns(const dxpu_channel *ch)
{
    uint64_t t = 0;
    for (unsigned i = 0; i < ch->cfg.paths; i++) {
        const dxpui_path *p = &ch->paths.path[i];
        if (p->known)
            t = p->awaiting ? dxpui_max64(t, dxpui_later(p->awaited_ns, ch->link.hold_ns))
                            : DXPU_NEVER;
        if (t == DXPU_NEVER)
            break;
    }
    return t;
}

/* ==== 15'  Channel: sending =================================================================== */
/* ---- Queues ---- */
static int dxpui_may_submit(const dxpui_link *l)
{
    if (l->state == DXPU_STATE_IDLE)
        return DXPU_E_ARG;
    if (l->state <= DXPU_STATE_UP && !l->close_asked)
        return DXPU_OK;
    return l->error ? l->error : DXPU_E_CLOSED;
}

/* A request may leave only when there is room for all its completions (F-10). */
static int dxpui_track(dxpu_channel *ch, dxpu_bytes tlp, uint64_t now_ns, uint64_t user,
                       uint16_t *where)
{
    dxpu_tags *tags = ch->cfg.tags;
    const dxpui_queue *q = &ch->rx.queue[DXPU_COMPLETION];
    dxpu_tag_entry e;
    dxpu_tlp t;
    uint32_t header, data;
    int rc = dxpu_tlp_decode_header(tlp, &t);
    if (rc != DXPU_OK)
        return rc;
    dxpui_tag_expect(&e, &t);
    dxpui_tag_reserve(&e, &header, &data);
    if (header > q->header_max || data > q->data_max)
        return DXPU_E_ARG;
    if (tags->reserve_header + q->count + header > q->header_max ||
        tags->reserve_data + q->data_used + data > q->data_max)
        return DXPU_E_AGAIN;
    return dxpui_tag_track(tags, &t, now_ns, user, ch->tx.submitted, DXPUI_TAG_QUEUED, where);
}

DXPU_API int dxpu_channel_submit(dxpu_channel *ch, dxpu_bytes tlp, uint64_t now_ns, uint64_t user)
{
    dxpu_tlp_shape s;
    int rc = dxpui_may_submit(&ch->link);
    if (rc == DXPU_OK)
        rc = dxpui_tlp_measure(tlp, &s);
    if (rc != DXPU_OK)
        return rc;
    if (tlp.len != s.total_bytes)
        return tlp.len < s.total_bytes ? DXPU_E_TLP_SHORT : DXPU_E_TLP_LONG;
    uint16_t local = (uint16_t)(4u * s.local_dw), tracked = 0; /* W-33: they end here */
    tlp.ptr += local;
    tlp.len -= local;
    dxpui_queue *q = &ch->tx.queue[s.cls];
    uint32_t units = dxpu_credit_units(s.payload_bytes);
    if (units > dxpui_units_max[s.cls])
        return DXPU_E_TLP_LENGTH; /* no credit might ever let it go */
    if (!dxpui_queue_fits(q, units))
        return DXPU_E_AGAIN;
    if (s.cls == DXPU_NONPOSTED && ch->cfg.tags)
        rc = dxpui_track(ch, tlp, now_ns, user, &tracked);
    if (rc != DXPU_OK)
        return rc;
    dxpui_item *it = dxpui_queue_reserve(q, (uint32_t)tlp.len);
    it->bytes = (uint16_t)tlp.len;
    it->head_bytes = (uint16_t)(s.head_bytes - local);
    it->prefix_dw = (uint8_t)(s.prefix_dw - s.local_dw);
    DXPU_ASSERT(it->prefix_dw <= 4);
    dxpui_item_describe(it, s.cls, tlp.ptr + 4u * it->prefix_dw, units);
    it->user = tracked;
    uint8_t *to = q->mem + it->pos;
    if (to != tlp.ptr)
        memmove(to, tlp.ptr, tlp.len); /* what was reserved for a longer one can overlap */
    it->crc = dxpu_crc32(0, to, tlp.len);
    it->order = ch->tx.submitted++;
    ch->tx.waiting++;
    dxpui_queue_commit(q);
    ch->count.tx_local_prefixes += s.local_dw;
    return DXPU_OK;
}

DXPU_API uint8_t *dxpu_channel_reserve(const dxpu_channel *ch, unsigned cls, size_t tlp_bytes)
{
    enum { LEAST = DXPU_TLP_MAX_BYTES - DXPU_TLP_PAYLOAD_MAX_BYTES };
    const dxpui_queue *q = &ch->tx.queue[cls < DXPU_CLASSES ? cls : 0];
    uint32_t units = tlp_bytes > LEAST ? dxpu_credit_units((uint32_t)tlp_bytes - LEAST) : 0;
    if (cls >= DXPU_CLASSES || tlp_bytes > DXPU_TLP_MAX_BYTES || !dxpui_queue_fits(q, units))
        return NULL;
    return q->mem + dxpui_queue_reserve(q, (uint32_t)tlp_bytes)->pos; /* there is room: D-52 */
}

DXPU_API int dxpu_channel_submit_event(dxpu_channel *ch, const dxpu_event *e)
{
    int rc = dxpui_may_submit(&ch->link);
    if (rc != DXPU_OK)
        return rc;
    if (e->type == 0 || e->type >= DXPU_EVENT_END)
        return DXPU_E_ARG;
    if (!dxpui_events_fit(&ch->tx.events, 1))
        return DXPU_E_AGAIN;
    dxpui_events_push(&ch->tx.events, e, ch->tx.submitted++);
    ch->tx.waiting++;
    return DXPU_OK;
}

/* Free what lies wholly before the oldest frame in flight. */
static void dxpui_free_acked(dxpu_channel *ch, uint64_t now_ns)
{
    dxpui_sender *tx = &ch->tx;
    uint32_t until = tx->placed_tail - (tx->partial_bytes ? 1u : 0u);
    if (ch->flight.una != ch->flight.next) {
        uint16_t first = dxpui_frame_of(&ch->flight, ch->flight.una)->first;
        until = tx->placed_head + (uint16_t)(first - (uint16_t)tx->placed_head);
    }
    while (tx->placed_head != until) {
        uint32_t element = tx->placed[tx->placed_head++ & tx->placed_mask];
        unsigned cls = element >> 30;
        if (cls == DXPUI_PLACED_EVENT) {
            tx->events.head++;
            continue;
        }
        const dxpui_item *it = dxpui_queue_free(&tx->queue[cls]);
        if (cls == DXPU_NONPOSTED && ch->cfg.tags)
            dxpui_tag_arrived(ch->cfg.tags, (uint16_t)it->user, it->order, now_ns);
        ch->count.tx_tlps_acked += !(it->flags & DXPUI_UNSENT);
    }
}

/* Requests whose requester waits no longer do not leave (F-34): they pass into
   tx.placed, so that their places are freed in turn, but into no frame.  True if there were any. */
DXPUI_INLINE bool dxpui_discard(dxpui_sender *tx, dxpu_tags *tags)
{
    dxpui_queue *q = &tx->queue[DXPU_NONPOSTED];
    uint32_t waiting = q->waiting;
    if (!tags || !tags->unsent)
        return false; /* as a rule */
    while (q->waiting && tags->unsent) {
        dxpui_item *it = &q->items[q->next];
        if (dxpui_tag_may_leave(tags, (uint16_t)it->user, it->order))
            break;
        it->flags |= DXPUI_UNSENT;
        tx->placed[tx->placed_tail++ & tx->placed_mask] = (uint32_t)DXPU_NONPOSTED << 30 | q->next;
        dxpui_queue_advance(q);
    }
    tx->waiting -= waiting - q->waiting;
    return q->waiting != waiting;
}

DXPUI_INLINE bool dxpui_has_credit(const dxpui_sender *tx, unsigned cls)
{
    const dxpui_queue *q = &tx->queue[cls];
    return (cls == DXPU_COMPLETION && tx->completions_infinite) ||
           dxpu_credit_fits(&tx->limits, &tx->used, cls, q->items[q->next].units);
}

/* The oldest of several classes and events that order and credits let go. */
DXPUI_APART int dxpui_pick_oldest(const dxpui_sender *tx, bool *starved)
{
    int best = -1;
    bool event = tx->events.next != tx->events.tail, event_first = event;
    uint32_t best_order = 0, barrier = dxpui_events_order(&tx->events, tx->events.next);
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        const dxpui_queue *q = &tx->queue[cls];
        if (q->waiting == 0)
            continue;
        uint32_t order = q->items[q->next].order;
        if (event && dxpui_seq_cmp(order, barrier) > 0)
            continue; /* D-35 */
        event_first = false;
        if (!dxpui_may_go(tx->queue, cls))
            continue;
        if (!dxpui_has_credit(tx, cls)) {
            *starved = true;
        } else if (best < 0 || dxpui_seq_cmp(order, best_order) < 0) {
            best = (int)cls;
            best_order = order;
        }
    }
    return event_first ? DXPUI_PLACED_EVENT : best;
}

/* What goes into a frame next: a class, DXPUI_PLACED_EVENT, or -1 for nothing.
   *starved: something waits only for credit */
DXPUI_INLINE int dxpui_pick(const dxpui_sender *tx, bool *starved)
{
    unsigned cls = tx->queue[DXPU_POSTED].waiting      ? DXPU_POSTED
                   : tx->queue[DXPU_NONPOSTED].waiting ? DXPU_NONPOSTED
                                                       : DXPU_COMPLETION;
    *starved = false;
    if (tx->waiting == 0)
        return -1;
    if (tx->waiting != tx->queue[cls].waiting)
        return dxpui_pick_oldest(tx, starved);
    *starved = !dxpui_has_credit(tx, cls); /* as a rule one class waits, which order lets go */
    return *starved ? -1 : (int)cls;
}

/* ---- Frames ---- */
/* Put an element of tx.placed into a frame, a TLP from byte *at on; what came of that. */
DXPUI_INLINE int dxpui_place_element(const dxpui_sender *tx, dxpui_builder *b, uint32_t element,
                                     uint16_t *at)
{
    unsigned cls = element >> 30;
    uint32_t index = element & 0x3fffffffu;
    if (cls == DXPUI_PLACED_EVENT)
        return dxpui_builder_event(b, &tx->events.event[index]);
    const dxpui_item *it = &tx->queue[cls].items[index];
    if (it->flags & DXPUI_UNSENT)
        return DXPU_OK;
    return dxpui_builder_tlp(b, tx->queue[cls].mem + it->pos, it, cls, at);
}

/* End a body with padding, at least its header (W-45). */
static void dxpui_pad(dxpui_builder *b, uint32_t dw)
{
    if (dw)
        dxpui_zero(dxpui_record_open(b, DXPU_RECORD_PADDING, 4 * dw - DXPUI_RECORD_HEADER),
                   4 * dw - DXPUI_RECORD_HEADER);
}

/* Rebuild a frame that was sent before, byte for byte (D-16): its elements again, in room that ends
   where its body did: what was whole fits again, and what was split is split there. */
static void dxpui_refill(const dxpui_sender *tx, const dxpui_sent *s, dxpui_builder *b)
{
    uint32_t index = s->first;
    uint16_t at = s->at_bytes;
    b->cap = s->body_bytes - 4u * s->padding_dw;
    while (b->used < b->cap) {
        int rc = dxpui_place_element(tx, b, tx->placed[index & tx->placed_mask], &at);
        DXPU_ASSERT(b->used > 0 && rc != DXPU_E_ROOM);
        if (rc != DXPU_OK)
            break;
        index++;
    }
    DXPU_ASSERT(b->used == b->cap);
    dxpui_pad(b, s->padding_dw);
}

/* The picked thing goes past `next` of its queue, takes its credits, and is put into tx.placed. */
static void dxpui_element_begin(dxpu_channel *ch, int pick, uint32_t element)
{
    if (pick == DXPUI_PLACED_EVENT) {
        ch->tx.events.next++;
    } else {
        dxpui_queue *q = &ch->tx.queue[pick];
        const dxpui_item *it = &q->items[q->next];
        dxpu_credit_add(&ch->tx.used, (unsigned)pick, it->units);
        if (pick == DXPU_NONPOSTED && ch->cfg.tags) {
            DXPU_ASSERT(dxpui_tag_here(ch->cfg.tags, (uint16_t)it->user, it->order)); /* F-34 */
            dxpui_tag_at(ch->cfg.tags, (uint16_t)it->user)->local = DXPUI_TAG_SENT;
        }
        dxpui_queue_advance(q);
        ch->count.tx_tlps++;
    }
    ch->tx.waiting--;
    ch->tx.placed[ch->tx.placed_tail++ & ch->tx.placed_mask] = element;
}

/* Fill a new frame: first the rest of the TLP that the last one could not hold, then what was
   picked, then what else may go.  pad: when no more fits, unless what is left is more than the
   header record of a TLP without prefixes needs. */
static void dxpui_fill(dxpu_channel *ch, dxpui_sent *s, dxpui_builder *b, int pick, bool pad)
{
    dxpui_sender *tx = &ch->tx;
    bool starved, rest = tx->partial_bytes != 0;
    int rc = DXPU_OK;
    s->first = (tx->placed_tail - rest) & 0xffffu;
    s->at_bytes = tx->partial_bytes & 0x1fffu;
    while (rest || pick >= 0) {
        uint32_t element = tx->placed[(tx->placed_tail - 1) & tx->placed_mask];
        if (!rest)
            element = (uint32_t)pick << 30 |
                      (pick == DXPUI_PLACED_EVENT ? tx->events.next & (DXPUI_EVENTS - 1)
                                                  : tx->queue[pick].next);
        rc = dxpui_place_element(tx, b, element, &tx->partial_bytes);
        if (!rest && rc != DXPU_E_ROOM)
            dxpui_element_begin(ch, pick, element);
        rest = false;
        if (rc == DXPU_OK)
            dxpui_discard(tx, ch->cfg.tags);
        pick = rc == DXPU_OK ? dxpui_pick(tx, &starved) : -1;
    }
    uint32_t left_dw = pad && rc != DXPU_OK ? (uint32_t)(b->cap - b->used) / 4 : 0;
    s->padding_dw = left_dw < 8 ? left_dw & 7u : 0;
    dxpui_pad(b, s->padding_dw);
    s->body_bytes = b->used & 0xffffu;
}

/* Frames received early: bit i is frame next + 1 + i. */
DXPUI_APART uint64_t dxpui_sack_early(const dxpui_receiver *rx, uint32_t mask)
{
    uint64_t sack = 0;
    for (uint32_t i = 0, left = rx->early; left && i < 64 && i + 1 <= mask; i++) {
        bool there = rx->early_bytes[(rx->next + 1 + i) & mask] != 0;
        sack |= (uint64_t)there << i;
        left -= there;
    }
    return sack;
}

/* Seal and count the frame whose body stands at its place in out. */
DXPUI_INLINE int dxpui_finish(dxpu_channel *ch, uint8_t kind, uint8_t path, uint8_t *out,
                              size_t body_bytes)
{
    dxpui_link *l = &ch->link;
    size_t header = dxpui_frame_header_bytes(kind), used = header + body_bytes;
    uint64_t packet = l->packet++;
    uint8_t phase = l->key_phase;
    dxpui_base_store(out, kind, phase, path, kind == DXPU_KIND_OPEN ? 0 : l->remote_id, packet,
                     used + l->trailer);
    if (ch->cfg.suite) {
        ch->busy = 1;
        bool sealed = ch->cfg.suite->seal(ch->cfg.suite_user, phase, packet,
                                          dxpui_view(out, header), out + header, body_bytes);
        ch->busy = 0;
        if (!sealed)
            return dxpui_fail(l, DXPU_E_PROTO, DXPU_REASON_PROTOCOL, false);
    } else {
        dxpu_frame_seal_crc(out, used);
    }
    DXPU_TRACE(ch, DXPU_TRACE_SENT, packet);
    ch->count.tx_frames++;
    ch->count.tx_bytes += used + l->trailer;
    return (int)(used + l->trailer);
}

/* A frame with a sequence, its body at its place in out; it reports what we have received. */
DXPUI_INLINE int dxpui_emit_full(dxpu_channel *ch, uint64_t now_ns, uint8_t kind, uint8_t path,
                                 uint32_t seq, uint8_t *out, size_t body_bytes)
{
    dxpui_receiver *rx = &ch->rx;
    uint64_t sack = rx->early ? dxpui_sack_early(rx, ch->cfg.window_frames - 1) : 0;
    dxpui_full_store(out, seq, rx->next, sack, rx->seen,
                     (uint32_t)dxpui_min64(now_ns - rx->seen_ns, UINT32_MAX), rx->ecn_ce,
                     &rx->granted);
    rx->advertised = rx->granted;
    rx->unacked = 0;
    rx->ack_now = false;
    rx->ack_at_ns = DXPU_NEVER;
    return dxpui_finish(ch, kind, path, out, body_bytes);
}

/* The body of the data frame `seq`: a lost one, or a new one that begins with what was picked.
   Returns its bytes; the frame counts as sent. */
DXPUI_INLINE size_t dxpui_send_data(dxpu_channel *ch, uint64_t now_ns, uint8_t path, uint32_t seq,
                                    int pick, bool pad, uint8_t *out)
{
    dxpui_sent *s = dxpui_frame_of(&ch->flight, seq);
    dxpui_path *p = &ch->paths.path[path];
    dxpui_builder b;
    b.out = out + DXPU_FRAME_FULL_BYTES;
    b.cap = ch->link.frame_limit - ch->flight.overhead_bytes;
    b.used = 0;
    if (seq == ch->flight.next) {
        dxpui_fill(ch, s, &b, pick, pad);
        s->tries = 0;
        ch->flight.next++;
        ch->tx.blocked_at_ns = DXPU_NEVER; /* not only credit is missing: F-12 starts over */
        ch->tx.blocked_tries = 0;
    } else {
        dxpui_refill(&ch->tx, s, &b);
        ch->flight.lost--;
        ch->flight.lost_from = seq + 1;
        ch->count.tx_retransmits++;
    }
    s->state = 0;
    s->sent_ns = now_ns;
    s->packet_lo = (uint32_t)ch->link.packet;
    s->path = path & 63u;
    s->index = p->index;
    s->tries = (uint8_t)(s->tries + (s->tries < UINT8_MAX));
    if (s->tries >= DXPUI_SUSPECT) {
        p->suspect = true;
        ch->link.look_ns = 0;
    }
    p->log[p->index & (2 * ch->cfg.window_frames - 1)] = (uint16_t)seq;
    dxpui_path_sent(ch, p, dxpui_frame_bytes(&ch->flight, s), now_ns);
    return b.used;
}

/* A frame without sequence; `bytes` of body, the first `given` of them from the caller. */
static int dxpui_emit_base(dxpu_channel *ch, uint8_t kind, uint8_t path, const uint8_t *body,
                           size_t given, size_t bytes, uint8_t *out)
{
    dxpui_zero(out + DXPU_FRAME_BASE_BYTES, bytes);
    memcpy(out + DXPU_FRAME_BASE_BYTES, body, given);
    return dxpui_finish(ch, kind, path, out, bytes);
}

/* Padded to the frame limit, so that it arrives only where frames of that size do (P-3). */
static int dxpui_emit_offer(dxpu_channel *ch, uint8_t kind, uint8_t path, uint8_t *out)
{
    const dxpu_channel_config *c = &ch->cfg;
    dxpu_offer o;
    uint8_t body[DXPU_OFFER_BYTES];
    dxpui_zero(&o, sizeof o);
    o.channel = c->local_id;
    o.version_min = o.version_max = DXPU_WIRE_VERSION;
    o.suites = c->suite ? c->suite->id : (uint16_t)DXPU_SUITE_CRC;
    o.tlp_formats = 1;
    o.window_frames = (uint16_t)c->window_frames;
    o.frame_limit_bytes = ch->link.frame_limit;
    o.hold_ms = c->hold_ms;
    o.sequence = c->sequence;
    o.completions_infinite = c->tags != NULL;
    o.limits = c->rx;
    o.epoch = c->epoch;
    o.source = c->local;
    o.destination = c->remote;
    dxpu_offer_encode(&o, body);
    return dxpui_emit_base(ch, kind, path, body, sizeof body,
                           ch->link.frame_limit - DXPU_FRAME_BASE_BYTES - ch->link.trailer, out);
}

static int dxpui_emit_probe(dxpu_channel *ch, uint8_t path, uint64_t now_ns, uint8_t *out)
{
    dxpui_path *p = &ch->paths.path[path];
    size_t bytes = p->reply_bytes ? p->reply_bytes
                                  : ch->link.frame_limit - DXPU_FRAME_BASE_BYTES - ch->link.trailer;
    uint8_t body[DXPU_PROBE_BYTES];
    dxpui_zero(body, sizeof body);
    body[0] = p->reply_bytes ? DXPU_PROBE_REPLY : 0;
    if (!p->reply_bytes)
        dxpui_probe_next(ch, path, now_ns);
    dxpu_put_be64(body + 4, p->reply_bytes ? p->reply_cookie : p->probe_ns);
    p->reply_bytes = 0;
    return dxpui_emit_base(ch, DXPU_KIND_PROBE, path, body, sizeof body, bytes, out);
}

/* Close and reset: four bytes, the reason first. */
static int dxpui_emit_reason(dxpu_channel *ch, uint8_t kind, uint8_t path, uint8_t b1, uint8_t b2,
                             uint8_t *out)
{
    uint8_t body[4] = { ch->link.reason, b1, b2, 0 };
    return dxpui_emit_base(ch, kind, path, body, sizeof body, sizeof body, out);
}

/* ---- Timers ---- */
/* What time alone brings about.  DXPU_OK or how the channel ended. */
DXPUI_APART int dxpui_timers(dxpu_channel *ch, uint64_t now_ns)
{
    dxpui_link *l = &ch->link;
    bool hold = now_ns - l->heard_ns >= l->hold_ns;
    if (!dxpui_alive(l))
        return l->lingers && !hold ? DXPU_OK : l->error; /* D-66 */
    if (hold || now_ns >= dxpui_all_silent_ns(ch))       /* D-48 */
        return dxpui_fail(l, l->state < DXPU_STATE_UP ? DXPU_E_NO_ANSWER : DXPU_E_DEAD,
                          DXPU_REASON_HOLD, l->remote_id != 0);
    for (uint8_t i = 0; i < ch->cfg.paths; i++) {
        if (now_ns >= ch->paths.path[i].loss_ns)
            dxpui_detect_loss(ch, i, now_ns);
        if (now_ns >= ch->paths.path[i].timer_ns)
            dxpui_path_timeout(ch, i, now_ns);
    }
    return DXPU_OK;
}

/* When something is due that has nothing to do with what was submitted: timers, the frames of
   dxpui_emit_control().  0: at once. */
static uint64_t dxpui_look_ns(const dxpu_channel *ch)
{
    const dxpui_link *l = &ch->link;
    uint64_t t = l->send_reset || l->send_answer ? 0 : DXPU_NEVER;
    for (unsigned i = 0; i < ch->cfg.paths; i++)
        t = dxpui_min64(t, dxpui_probe_due(ch, &ch->paths.path[i])); /* answers after the end too */
    if (!dxpui_alive(l)) {
        uint64_t end_ns = l->lingers ? dxpui_later(l->heard_ns, l->hold_ns) : 0;
        return l->error && !l->end_reported ? dxpui_min64(t, end_ns) : t;
    }
    for (unsigned i = 0; i < ch->cfg.paths; i++)
        t = dxpui_min64(t, dxpui_min64(ch->paths.path[i].timer_ns, ch->paths.path[i].loss_ns));
    t = dxpui_min64(t, dxpui_min64(l->next_try_ns, dxpui_all_silent_ns(ch)));
    return dxpui_min64(t, dxpui_later(l->heard_ns, l->hold_ns));
}

/* True when something new waits only for a path; *pick: what goes first, or after a TLP's rest. */
DXPUI_INLINE bool dxpui_can_send(const dxpu_channel *ch, int *pick, bool *starved)
{
    *pick = dxpui_pick(&ch->tx, starved);
    bool sending = ch->link.state == DXPU_STATE_UP || ch->link.state == DXPU_STATE_DRAINING;
    return sending && (ch->tx.partial_bytes || *pick >= 0) &&
           ch->flight.next - ch->flight.una < ch->flight.window;
}

static bool dxpui_drained(const dxpu_channel *ch)
{
    return ch->flight.una == ch->flight.next && ch->tx.partial_bytes == 0 && ch->tx.waiting == 0;
}

/* ---- emit ---- */
/* Frames of the handshake and the end, repeated with back-off until the peer has answered. */
DXPUI_APART int dxpui_emit_control(dxpu_channel *ch, uint64_t now_ns, uint8_t *out)
{
    dxpui_link *l = &ch->link;
    if (l->send_reset) {
        l->send_reset = false;
        return dxpui_emit_reason(ch, DXPU_KIND_RESET, dxpui_ack_path(&ch->paths), DXPU_WIRE_VERSION,
                                 DXPU_WIRE_VERSION, out);
    }
    if (l->send_answer) {
        l->send_answer = false;
        return dxpui_emit_reason(ch, DXPU_KIND_CLOSE, l->answer_path, DXPU_CLOSE_ANSWER, 0, out);
    }
    if (now_ns >= l->next_try_ns && ch->paths.count) { /* no path: a zeroed channel */
        l->tries = (uint8_t)(l->tries < DXPUI_BACKOFF_MAX ? l->tries + 1 : l->tries - 3);
        uint64_t wait_ns = dxpui_backed_off(l, &ch->paths.path[0], l->tries - 1u);
        l->next_try_ns = now_ns + dxpui_min64(wait_ns, l->hold_ns / 16); /* D-67 */
        if (l->state == DXPU_STATE_OPENING) {
            l->frame_limit = ch->cfg.frame_limit_bytes;
            if (l->tries % 4 == 0) /* in case no path carries more: P-3 */
                l->frame_limit = DXPU_FRAME_MIN_LIMIT_BYTES;
            unsigned turn = l->tries - 1u, n = ch->cfg.paths;
            if (n % 2 == 0) /* else the small ones are all of the same paths */
                turn += turn / (n < 4 ? 4 : n);
            uint8_t path = (uint8_t)(turn % n);
            return dxpui_emit_offer(ch, DXPU_KIND_OPEN, path, out);
        }
        if (l->state == DXPU_STATE_ACCEPTED) {
            if (l->tries >= DXPUI_ACCEPTS)
                l->next_try_ns = DXPU_NEVER; /* until the opener is heard again: D-41 */
            return dxpui_emit_offer(ch, DXPU_KIND_ACCEPT, ch->paths.latest, out);
        }
        if (l->state == DXPU_STATE_CLOSING) {
            uint8_t path = l->close_path; /* in turn: only an answer shows that it arrives, P-6 */
            l->close_path = dxpui_path_after(&ch->paths, path);
            return dxpui_emit_reason(ch, DXPU_KIND_CLOSE, path, 0, 0, out);
        }
    }
    for (uint8_t i = 0; i < ch->cfg.paths; i++) {
        if (now_ns >= dxpui_probe_due(ch, &ch->paths.path[i]))
            return dxpui_emit_probe(ch, i, now_ns, out);
    }
    return 0;
}

/* True when a class that waits for nothing but credit is to say so, at RTO with back-off (F-12). */
DXPUI_APART bool dxpui_blocked(dxpu_channel *ch, uint64_t now_ns)
{
    dxpui_sender *tx = &ch->tx;
    const dxpui_path *p = &ch->paths.path[dxpui_active(&ch->paths)];
    if (tx->blocked_at_ns == DXPU_NEVER)
        tx->blocked_at_ns = now_ns + dxpui_backed_off(&ch->link, p, 0);
    if (now_ns < tx->blocked_at_ns)
        return false;
    if (tx->blocked_tries < DXPUI_BACKOFF_MAX)
        tx->blocked_tries++;
    tx->blocked_at_ns = now_ns + dxpui_backed_off(&ch->link, p, tx->blocked_tries);
    ch->count.tx_blocked++;
    return true;
}

static uint32_t dxpui_first_lost(dxpui_flight *fl)
{
    while (dxpui_frame_of(fl, fl->lost_from)->state != DXPUI_LOST)
        fl->lost_from++; /* kept, as the frame that is found may have to wait */
    return fl->lost_from;
}

/* True when the frame `seq` may leave on a path as a segment behind `lead`: a new one, which may
   be of any size, only behind a full one. */
static bool dxpui_follows(const dxpu_channel *ch, const uint8_t *lead, uint8_t path, uint32_t seq)
{
    uint32_t bytes = dxpu_get_be16(lead + DXPU_FRAME_LENGTH);
    uint32_t least = dxpui_frame_bytes(&ch->flight, dxpui_frame_of(&ch->flight, seq));
    if (seq == ch->flight.next)
        least = ch->link.frame_limit - 3;
    return path == lead[DXPU_FRAME_PATH] && bytes >= least;
}

/* Data, a retransmission first; else a blocked frame or an acknowledgement.  Bytes, 0 for nothing.
   lead   the first of the segments that this frame is to be one of; NULL: it leaves by itself */
static int dxpui_emit_sequenced(dxpu_channel *ch, uint64_t now_ns, const uint8_t *lead,
                                uint8_t *out)
{
    dxpui_flight *fl = &ch->flight;
    bool starved, fresh, behind = lead && lead != out;
    uint8_t kind = 0, path = 0;
    uint32_t seq = fl->next;
    size_t body_bytes = 0;
    int pick;
    /* not while the youngest in tx.placed is in frames only in part */
    if (!ch->tx.partial_bytes && dxpui_discard(&ch->tx, ch->cfg.tags))
        dxpui_free_acked(ch, now_ns);
    fresh = dxpui_can_send(ch, &pick, &starved);
    if (fl->lost || fresh) {
        uint64_t when_ns;
        path = (uint8_t)dxpui_path_pick(ch, &when_ns);
        seq = fl->lost ? dxpui_first_lost(fl) : seq;
        if (now_ns >= when_ns && (!behind || dxpui_follows(ch, lead, path, seq))) {
            kind = DXPU_KIND_DATA;
            body_bytes = dxpui_send_data(ch, now_ns, path, seq, pick, lead != NULL, out);
        }
    }
    if (kind == 0) {
        bool last = ch->link.state == DXPU_STATE_DRAINING && dxpui_drained(ch);
        if (behind)
            return 0;
        seq = fl->next;
        path = dxpui_ack_path(&ch->paths);
        starved = starved && !fresh && !fl->lost;
        if (!starved) {
            ch->tx.blocked_at_ns = DXPU_NEVER;
            ch->tx.blocked_tries = 0;
        }
        if (starved && dxpui_blocked(ch, now_ns))
            kind = DXPU_KIND_BLOCKED;
        else if (ch->rx.ack_now || (last && ch->rx.unacked)) /* a close ends the peer's waiting */
            kind = DXPU_KIND_ACK;
        if (kind == 0 && last) {
            dxpui_go(&ch->link, DXPUI_EV_DRAINED);
            ch->link.heard_ns = now_ns;
            ch->link.close_path = path;
            dxpui_try_now(&ch->link, now_ns);
            return dxpui_emit_control(ch, now_ns, out);
        }
    }
    return kind ? dxpui_emit_full(ch, now_ns, kind, path, seq, out, body_bytes) : 0;
}

/* True when emit() has nothing to do, which is the answer to every second call of a loop. */
static inline bool dxpui_rests(const dxpu_channel *ch, uint64_t now_ns)
{
    return now_ns < ch->link.look_ns && now_ns < ch->rx.ack_at_ns &&
           ch->link.state == DXPU_STATE_UP &&
           (ch->tx.waiting | ch->rx.ack_now | ch->flight.lost | ch->tx.partial_bytes) == 0;
}

/* What is due; bytes of a frame, 0, or how the channel ended. */
DXPUI_APART int dxpui_emit(dxpu_channel *ch, uint64_t now_ns, const uint8_t *lead, uint8_t *out,
                           uint8_t *path)
{
    int rc = DXPU_OK, n = 0;
    if (now_ns >= ch->link.look_ns) {
        rc = dxpui_timers(ch, now_ns);
        n = dxpui_emit_control(ch, now_ns, out);
        ch->link.end_reported = n == 0 && rc != DXPU_OK;
        if (n == 0 && dxpui_alive(&ch->link))
            ch->link.look_ns = dxpui_look_ns(ch);
    }
    ch->rx.ack_now = ch->rx.ack_now || now_ns >= ch->rx.ack_at_ns;
    if (n == 0 && rc == DXPU_OK && dxpui_sequenced(&ch->link))
        n = dxpui_emit_sequenced(ch, now_ns, lead, out);
    if (n > 0)
        *path = out[DXPU_FRAME_PATH];
    return n != 0 ? n : rc;
}

DXPUI_INLINE int dxpui_emit_one(dxpu_channel *ch, uint64_t now_ns, const uint8_t *lead,
                                uint8_t *out, size_t cap, uint8_t *path)
{
    DXPU_ASSERT(!ch->busy);
    DXPU_ASSERT(now_ns >= ch->link.look_ns || now_ns < dxpui_look_ns(ch));
    DXPU_ASSERT(ch->tx.blocked_at_ns == DXPU_NEVER || !dxpui_rests(ch, now_ns));
    if (now_ns == DXPU_NEVER)
        return DXPU_E_ARG; /* every timer that is not armed would be due */
    if (cap < ch->cfg.frame_limit_bytes)
        return DXPU_E_ROOM;
    *path = 0;
    return dxpui_rests(ch, now_ns) ? 0 : dxpui_emit(ch, now_ns, lead, out, path);
}

DXPU_API int dxpu_channel_emit(dxpu_channel *ch, uint64_t now_ns, uint8_t *out, size_t cap,
                               uint8_t *path)
{
    return dxpui_emit_one(ch, now_ns, NULL, out, cap, path);
}

DXPU_API int dxpu_channel_emit_many(dxpu_channel *ch, uint64_t now_ns, uint8_t *out, size_t cap,
                                    uint8_t *path, size_t *segment)
{
    const uint8_t *lead = cap / 2 < ch->cfg.frame_limit_bytes ? NULL : out; /* no others follow */
    int n = dxpui_emit_one(ch, now_ns, lead, out, cap, path), all = n;
    bool data = n > 0 && out[DXPU_FRAME_KIND] == DXPU_KIND_DATA; /* others are alone */
    *segment = n > 0 ? (size_t)n : 0;
    for (size_t left = data ? cap / ch->cfg.frame_limit_bytes : 0;
         left > 1 && now_ns < ch->link.look_ns && n == (int)*segment; left--) {
        n = dxpui_emit(ch, now_ns, out, out + all, path);
        all += n > 0 ? n : 0;
    }
    return all;
}

/* When a data or blocked frame may leave. */
static uint64_t dxpui_data_due(const dxpu_channel *ch)
{
    int pick;
    bool starved, fresh = dxpui_can_send(ch, &pick, &starved);
    uint64_t when_ns = DXPU_NEVER;
    if (!dxpui_sequenced(&ch->link))
        return DXPU_NEVER;
    if (ch->flight.lost || fresh)
        dxpui_path_pick(ch, &when_ns);
    else if (starved)
        when_ns = ch->tx.blocked_at_ns == DXPU_NEVER ? 0 : ch->tx.blocked_at_ns;
    return when_ns;
}

DXPU_API uint64_t dxpu_channel_next_ns(const dxpu_channel *ch)
{
    bool last = ch->link.state == DXPU_STATE_DRAINING && dxpui_drained(ch);
    if ((dxpui_sequenced(&ch->link) && ch->rx.ack_now) || last)
        return 0;
    return dxpui_min64(dxpui_min64(dxpui_look_ns(ch), dxpui_data_due(ch)),
                       dxpui_alive(&ch->link) ? ch->rx.ack_at_ns : DXPU_NEVER);
}

/* ==== 16'  Channel: receiving ================================================================= */
/* ---- Acknowledgements ---- */
static void dxpui_acked(dxpu_channel *ch, uint32_t seq, const dxpu_frame *f, uint64_t now_ns)
{
    dxpui_sent *s = dxpui_frame_of(&ch->flight, seq);
    dxpui_path *p = &ch->paths.path[s->path];
    uint32_t flew = s->state ? 0 : dxpui_frame_bytes(&ch->flight, s);
    if (s->state == DXPUI_ACKED)
        return;
    ch->flight.lost -= s->state == DXPUI_LOST;
    p->in_flight -= flew;
    s->state = DXPUI_ACKED;
    p->progress = true;
    if (s->tries == 1 || dxpui_seq_cmp((uint32_t)f->seen, s->packet_lo) >= 0) { /* D-19: this one */
        p->timeouts = 0;
        if (dxpui_seq_cmp(s->index, p->index_acked) > 0)
            p->index_acked = s->index;
        dxpui_window_count(p, s->index, flew);
    }
    if (s->packet_lo == (uint32_t)f->seen && now_ns - s->sent_ns >= f->delay_ns) {
        dxpui_rtt_sample(ch, p, now_ns - s->sent_ns - f->delay_ns); /* D-10 */
        ch->paths.seen_path = s->path;
    }
}

/* True when ack and sack name only frames that were sent.  What is half-way round the numbers is
   neither before nor after (D-7), so that the peer could mean either: it was not sent. */
static bool dxpui_ack_valid(const dxpui_flight *fl, const dxpu_frame *f)
{
    uint32_t beyond = fl->next - f->ack; /* frames from ack on: bit i is frame ack + 1 + i */
    if (beyond > INT32_MAX)
        return false;
    uint32_t bits = beyond ? beyond - 1 : 0;
    return bits >= 64 || (f->sack >> bits) == 0;
}

/* The transmission that the peer saw last is the oldest frame, which it does not acknowledge: it
   has no room for its link events.  Its path is as good as one that acknowledges (D-62). */
static void dxpui_on_unstored(dxpu_channel *ch, const dxpu_frame *f)
{
    dxpui_flight *fl = &ch->flight;
    const dxpui_sent *s = dxpui_frame_of(fl, fl->una);
    if (fl->una == fl->next || s->packet_lo != (uint32_t)f->seen || f->ack != fl->una ||
        s->state == DXPUI_LOST)
        return;
    fl->unstored = fl->unstored ? fl->unstored : 1;
    ch->paths.path[s->path].timeouts = 0;
}

static void dxpui_on_ack(dxpu_channel *ch, const dxpu_frame *f, uint64_t now_ns)
{
    dxpui_flight *fl = &ch->flight;
    uint32_t before = fl->una;
    dxpui_credits_raise(&ch->tx.limits, &f->limits);
    for (uint32_t seq = fl->una; dxpui_seq_cmp(seq, f->ack) < 0; seq++)
        dxpui_acked(ch, seq, f, now_ns);
    if (dxpui_seq_cmp(f->ack, fl->una) > 0)
        fl->una = f->ack;
    uint64_t sack = f->sack;
    for (uint32_t seq = f->ack + 1; sack; seq++, sack >>= 1) {
        if ((sack & 1) && dxpui_seq_cmp(seq, fl->una) >= 0)
            dxpui_acked(ch, seq, f, now_ns);
    }
    if (fl->una != before) {
        fl->unstored = 0;
        DXPU_TRACE(ch, DXPU_TRACE_ACKED, fl->una);
        if (dxpui_seq_cmp(fl->lost_from, fl->una) < 0)
            fl->lost_from = fl->una;
        dxpui_free_acked(ch, now_ns);
    }
    if (dxpui_seq_cmp(f->ecn_ce, ch->paths.ecn_reported) > 0) { /* P-25 */
        ch->paths.ecn_reported = f->ecn_ce;
        dxpui_congestion(ch, &ch->paths.path[ch->paths.seen_path],
                         ch->paths.path[ch->paths.seen_path].index_acked);
    }
    if (before == fl->next)
        return; /* nothing was in flight */
    dxpui_on_unstored(ch, f);
    for (uint8_t i = 0; i < ch->cfg.paths; i++) {
        dxpui_path *p = &ch->paths.path[i];
        if (p->progress) {
            p->progress = false;
            dxpui_detect_loss(ch, i, now_ns);
            dxpui_window_grow(ch, p);
            p->timer_ns = DXPU_NEVER;
        }
        if (p->timer_ns == DXPU_NEVER && dxpui_path_waits(ch, i))
            p->timer_ns = now_ns + dxpui_path_wait(ch, p); /* una may be its, by another's ack */
        ch->link.look_ns = dxpui_min64(ch->link.look_ns, dxpui_min64(p->timer_ns, p->loss_ns));
    }
}

/* ---- Records ---- */
/* True when a TLP's header is what its record says, and so in range (W-34 ff.). */
DXPUI_INLINE bool dxpui_record_fits(const dxpu_record *r)
{
    const uint8_t *h = r->bytes.ptr + 4u * r->prefix_dw;
    unsigned first = dxpui_tlp_first(h[0]), length_dw = (h[2] & 3u) << 8 | h[3];
    dxpu_tlp_shape s;
    if (r->prefix_dw &&
        (dxpu_tlp_measure(r->bytes, &s) != DXPU_OK || s.local_dw || s.prefix_dw != r->prefix_dw))
        return false; /* W-37 */
    if (first == 0 || (first & DXPUI_LAYOUT) != ((unsigned)r->cls << 6 | r->header_dw))
        return false; /* W-35 */
    unsigned payload = first & DXPUI_HAS_DATA ? 4 * (length_dw ? length_dw : 1024) : 0;
    return payload + (h[2] & 0x80 ? 4 : 0) == r->data_bytes; /* W-36 */
}

/* How far a body was checked: what is left of it, payload bytes that are due, events. */
typedef struct dxpui_checked {
    dxpu_bytes rest;
    uint32_t due; /* counts down; above DXPUI_TLP_DATA_MAX: unknown, it may start inside a TLP */
    int events;   /* that need room */
} dxpui_checked;
enum { DXPUI_DUE_UNKNOWN = 0x80000000 - DXPU_FRAME_MAX_LIMIT_BYTES }; /* a frame leaves it so */

/* Check the next record.  DXPU_OK, E_NONE at the end, E_RECORD. */
DXPUI_INLINE int dxpui_check_record(dxpui_checked *c)
{
    dxpu_event event;
    dxpu_record r;
    r.prefix_dw = r.header_dw = r.cls = 0; /* gcc does not see that a TLP has these */
    r.data_bytes = 0;
    int rc = dxpui_record_next(&c->rest, &r, &event, false);
    if (rc != DXPU_OK)
        return rc;
    if (r.type == DXPU_RECORD_PAYLOAD) {
        if (r.bytes.len > c->due)
            return DXPU_E_RECORD; /* W-42 */
        c->due -= (uint32_t)r.bytes.len;
    } else if (c->due != 0 && c->due <= DXPUI_TLP_DATA_MAX) {
        return DXPU_E_RECORD; /* W-43 */
    } else if (r.type == DXPU_RECORD_EVENT) {
        c->due = 0;
        c->events += event.type != 0; /* unknown ones need no room: W-52 */
    } else {
        c->due = r.data_bytes;
        return dxpui_record_fits(&r) ? DXPU_OK : DXPU_E_RECORD;
    }
    return DXPU_OK;
}

/* Check a body without using it: every record well formed, every TLP header what its record says,
   payload only where it is due.  How many events it brings that need room, or E_RECORD. */
static int dxpui_check_body(dxpu_bytes body)
{
    dxpui_checked c = { body, DXPUI_DUE_UNKNOWN, 0 };
    int rc;
    while ((rc = dxpui_check_record(&c)) == DXPU_OK)
        ;
    return rc == DXPU_E_NONE && c.events <= DXPUI_EVENTS ? c.events : DXPU_E_RECORD; /* D-36 */
}

/* Match the completion `it` with its request; false when there is none. */
DXPUI_APART bool dxpui_rx_match(dxpu_channel *ch, dxpui_item *it, dxpu_bytes bytes)
{
    const uint8_t *h = bytes.ptr + 4u * it->prefix_dw;
    uint32_t dw[3] = { dxpu_get_be32(h), dxpu_get_be32(h + 4), dxpu_get_be32(h + 8) };
    dxpu_tlp t; /* of its fields those that count */
    dxpu_request req;
    dxpui_zero(&t, sizeof t);
    t.type = (uint8_t)(dxpui_tlp_first(h[0]) >> 8);
    t.length_dw = dxpui_tlp_length(t.type, dw[0]);
    dxpui_fields_completion(dw, &t, &t, false);
    int rc = dxpu_tags_complete(ch->cfg.tags, &t, &req);
    ch->count.rx_cpl_refused += rc != DXPU_OK; /* F-26 */
    if (rc != DXPU_OK)
        return false;
    it->user = req.user;
    it->last = req.done;
    it->crc = req.offset_bytes | (uint32_t)req.bytes << 16;
    return true;
}

/* The TLP in `partial` is complete: check its CRC in the ring, match it, offer it. */
DXPUI_INLINE int dxpui_rx_complete(dxpu_channel *ch)
{
    dxpui_queue *q = &ch->rx.queue[ch->rx.partial.cls];
    dxpui_item *it = &q->items[q->tail];
    ch->rx.partial.active = 0;
    if (ch->rx.partial.skip)
        return DXPU_OK; /* a completion that had no room: not asked for */
    dxpu_bytes tlp = dxpui_item_tlp(q, it);
    if (dxpu_crc32(0, tlp.ptr, tlp.len) != it->crc) {
        ch->count.rx_tlp_crc++;
        return dxpui_broken(&ch->link, DXPU_E_TLP_CRC, DXPU_REASON_PROTOCOL); /* W-38 */
    }
    it->crc = 0;
    if (ch->rx.partial.cls == DXPU_COMPLETION && ch->cfg.tags && !dxpui_rx_match(ch, it, tlp))
        return DXPU_OK;
    it->order = ch->rx.arrived++;
    dxpui_queue_commit(q);
    ch->count.rx_tlps++;
    return DXPU_OK;
}

/* The body of a TLP record, which was checked. */
DXPUI_INLINE int dxpui_rx_tlp(dxpu_channel *ch, const uint8_t *record, uint32_t bytes)
{
    uint32_t head = bytes - DXPUI_RECORD_TLP_FIXED - DXPUI_RECORD_TLP_CRC;
    uint32_t data = dxpu_get_be16(record + 2);
    unsigned cls = record[1] >> 6, prefix_dw = record[1] >> 3 & 7;
    dxpui_queue *q = &ch->rx.queue[cls];
    record += DXPUI_RECORD_TLP_FIXED;
    const uint8_t *h = record + 4u * prefix_dw;
    uint32_t units = dxpu_credit_units(data - ((h[2] & 0x80) ? 4u : 0u)); /* digest */
    ch->rx.partial.active = 1;
    ch->rx.partial.cls = (uint8_t)cls;
    ch->rx.partial.left_bytes = (uint16_t)data;
    ch->rx.partial.skip = !dxpui_queue_fits(q, units);
    if (!ch->rx.partial.skip) {
        dxpui_item *it = dxpui_queue_reserve(q, head + data);
        it->bytes = (uint16_t)(head + data);
        it->head_bytes = (uint16_t)head;
        it->prefix_dw = (uint8_t)prefix_dw;
        it->crc = dxpu_get_be32(record + head);
        dxpui_item_describe(it, cls, h, units);
        dxpui_copy_head(q->mem + it->pos, record, head);
    } else if (cls == DXPU_COMPLETION && ch->cfg.tags) {
        ch->count.rx_cpl_refused++; /* room was reserved for all that we asked for: F-10 */
    } else {
        return dxpui_broken(&ch->link, DXPU_E_CREDIT, DXPU_REASON_CREDIT); /* F-5 */
    }
    return DXPU_OK;
}

DXPUI_INLINE int dxpui_rx_payload(dxpu_channel *ch, const uint8_t *data, uint32_t bytes)
{
    const dxpui_queue *q = &ch->rx.queue[ch->rx.partial.cls];
    const dxpui_item *it = &q->items[q->tail];
    if (!ch->rx.partial.active || bytes > ch->rx.partial.left_bytes)
        return dxpui_broken(&ch->link, DXPU_E_RECORD, DXPU_REASON_PROTOCOL); /* W-42 */
    if (!ch->rx.partial.skip)
        memcpy(q->mem + it->pos + it->bytes - ch->rx.partial.left_bytes, data, bytes);
    ch->rx.partial.left_bytes = (uint16_t)(ch->rx.partial.left_bytes - bytes);
    return DXPU_OK;
}

/* Use a body that is next in sequence; it was checked, so that its records end where it does. */
static int dxpui_rx_body(dxpu_channel *ch, dxpu_bytes body)
{
    const uint8_t *p = body.ptr, *end = p + body.len;
    dxpu_event event;
    int rc = DXPU_OK;
    while (rc == DXPU_OK && p != end) {
        uint32_t type = p[0], bytes = dxpu_get_be16(p + 2);
        p += DXPUI_RECORD_HEADER;
        if (type == DXPU_RECORD_PAYLOAD)
            rc = dxpui_rx_payload(ch, p, bytes);
        else if (type >= DXPU_RECORD_PADDING)
            ; /* W-31 */
        else if (ch->rx.partial.active)
            rc = dxpui_broken(&ch->link, DXPU_E_RECORD, DXPU_REASON_PROTOCOL); /* W-43 */
        else if (type == DXPU_RECORD_TLP)
            rc = dxpui_rx_tlp(ch, p, bytes);
        else if (dxpui_record_event(dxpui_view(p, bytes), &event), event.type)
            dxpui_events_push(&ch->rx.events, &event, ch->rx.arrived++);
        else
            ch->count.rx_events_ignored++; /* W-52 */
        if (rc == DXPU_OK && ch->rx.partial.active && ch->rx.partial.left_bytes == 0)
            rc = dxpui_rx_complete(ch);
        p += bytes;
    }
    ch->rx.next++;
    ch->rx.malformed = 0;
    return rc;
}

/* Where the body of a frame received too early waits. */
static uint8_t *dxpui_early_body(const dxpu_channel *ch, uint32_t slot)
{
    return ch->rx.early_bodies +
           (size_t)slot * (ch->cfg.frame_limit_bytes - ch->flight.overhead_bytes);
}

/* Use the frames that waited, as far as they follow and their events fit. */
static int dxpui_early_use(dxpu_channel *ch)
{
    int rc = DXPU_OK;
    while (rc == DXPU_OK && ch->rx.early) {
        uint32_t slot = ch->rx.next & (ch->cfg.window_frames - 1);
        dxpu_bytes body = dxpui_view(dxpui_early_body(ch, slot), ch->rx.early_bytes[slot]);
        if (body.len == 0)
            break;
        int events = dxpui_check_body(body);
        DXPU_ASSERT(events >= 0);
        if (!dxpui_events_fit(&ch->rx.events, (unsigned)events))
            break; /* D-36: goes on when an event is taken */
        ch->rx.early_bytes[slot] = 0;
        ch->rx.early--;
        ch->rx.ack_now = true;
        rc = dxpui_rx_body(ch, body);
    }
    return rc;
}

/* Keep a frame received before an earlier one, or for whose events there is no room yet. */
static int dxpui_early_keep(dxpu_channel *ch, const dxpu_frame *f)
{
    uint32_t slot = f->sequence & (ch->cfg.window_frames - 1);
    ch->rx.ack_now = true;
    if (ch->rx.early_bytes[slot]) {
        ch->count.rx_duplicate++;
        return DXPU_OK;
    }
    memcpy(dxpui_early_body(ch, slot), f->body.ptr, f->body.len);
    ch->rx.early_bytes[slot] = (uint16_t)f->body.len;
    ch->rx.early++;
    ch->count.rx_reordered++;
    return DXPU_OK;
}

static int dxpui_on_data(dxpu_channel *ch, const dxpu_frame *f, unsigned events, uint64_t now_ns,
                         unsigned flags)
{
    dxpui_receiver *rx = &ch->rx;
    if (flags & DXPU_RX_ECN_CE)
        rx->ecn_ce++;
    if (f->packet >= rx->seen) {
        rx->seen = f->packet;
        rx->seen_ns = now_ns;
    }
    if (dxpui_seq_cmp(f->sequence, rx->next) < 0) {
        ch->count.rx_duplicate++;
        rx->ack_now = true; /* our acknowledgement was lost: D-8 */
        return DXPU_OK;
    }
    if (f->sequence != rx->next || rx->early_bytes[f->sequence & (ch->cfg.window_frames - 1)] ||
        !dxpui_events_fit(&rx->events, events)) /* D-36 */
        return dxpui_early_keep(ch, f);
    bool gap = rx->early != 0;
    int rc = dxpui_rx_body(ch, f->body);
    if (rc == DXPU_OK && gap)
        rc = dxpui_early_use(ch);
    if (gap || ++rx->unacked >= dxpui_min64(ch->flight.window / 8 + 1, DXPUI_ACK_FRAMES))
        rx->ack_now = true;
    rx->ack_at_ns = dxpui_min64(rx->ack_at_ns, now_ns + ch->cfg.ack_delay_ns);
    return rc;
}

/* ---- Frames of each kind ---- */
static int dxpui_on_offer(dxpu_channel *ch, const dxpu_frame *f, uint64_t now_ns)
{
    dxpui_link *l = &ch->link;
    dxpu_offer o;
    int rc = dxpu_offer_decode(f->body, &o);
    if (rc != DXPU_OK)
        return rc;
    if (f->kind == DXPU_KIND_OPEN) { /* again: our accept was lost, or it is late */
        if (l->state != DXPU_STATE_ACCEPTED)
            return DXPU_E_STATE;
        dxpui_set_limit(ch, l->frame_limit, o.frame_limit_bytes); /* the opener went lower: P-3 */
        dxpui_try_now(l, now_ns);
        return DXPU_OK;
    }
    if (o.version_min != o.version_max || (o.suites & (o.suites - 1)))
        return DXPU_E_OFFER; /* W-22, W-23: an accept names one */
    if (l->state == DXPU_STATE_UP && o.channel == l->remote_id) {
        ch->rx.ack_now = true; /* our first sequenced frame was lost: D-43 */
        return DXPU_OK;
    }
    if (l->state != DXPU_STATE_OPENING)
        return DXPU_E_STATE;
    uint64_t since_ns = l->heard_ns;
    rc = dxpui_establish(ch, &o, f->path, now_ns);
    if (rc != DXPU_OK) {
        l->remote_id = o.channel;
        return dxpui_broken(l, rc, rc == DXPU_E_EPOCH ? DXPU_REASON_EPOCH : DXPU_REASON_VERSION);
    }
    dxpui_go(l, DXPUI_EV_RX_ACCEPT);
    dxpui_rtt_of_open(ch, now_ns - since_ns);
    ch->rx.ack_now = true; /* the peer waits for a sequenced frame */
    return DXPU_OK;
}

static int dxpui_on_close(dxpu_channel *ch, const dxpu_frame *f, uint64_t now_ns)
{
    dxpui_link *l = &ch->link;
    if (f->body.len < 4)
        return DXPU_E_SHORT;
    if (l->state == DXPU_STATE_OPENING)
        return DXPU_E_STATE;
    bool answer = f->body.ptr[1] & DXPU_CLOSE_ANSWER;
    if (!answer) {
        l->send_answer = true;
        l->answer_path = f->path < ch->cfg.paths ? f->path : dxpui_ack_path(&ch->paths);
    }
    if (l->state == DXPU_STATE_UP || l->state == DXPU_STATE_ACCEPTED)
        l->reason = f->body.ptr[0];
    bool ours = l->state == DXPU_STATE_CLOSING; /* the peer has all that was submitted */
    if (dxpui_go(l, DXPUI_EV_RX_CLOSE)) {
        l->error = ours ? DXPU_E_CLOSED : DXPU_E_PEER_CLOSED;
        l->heard_ns = now_ns;
        l->lingers = true;
    }
    if (answer) /* the peer has had our close: it repeats none of its own */
        l->lingers = false;
    return DXPU_OK;
}

static int dxpui_on_probe(dxpu_channel *ch, const dxpu_frame *f, uint64_t now_ns)
{
    if (f->body.len < DXPU_PROBE_BYTES)
        return DXPU_E_SHORT;
    if (ch->link.state == DXPU_STATE_OPENING)
        return DXPU_E_STATE; /* whom to answer is not known yet */
    if (ch->link.state == DXPU_STATE_ACCEPTED)
        dxpui_try_now(&ch->link, now_ns); /* the opener is there; our accept may be lost: D-41 */
    if (f->path >= ch->cfg.paths)
        return DXPU_E_PATH; /* P-4 */
    dxpui_path *p = &ch->paths.path[f->path];
    p->known = true;
    uint64_t cookie = dxpu_get_be64(f->body.ptr + 4);
    if (!(f->body.ptr[0] & DXPU_PROBE_REPLY)) {
        p->reply_cookie = cookie;
        p->reply_bytes = (uint16_t)f->body.len;
    } else if (p->awaiting && cookie <= p->probe_ns) {
        dxpui_probe_answered(ch, p, cookie, now_ns);
    }
    return DXPU_OK;
}

/* A frame is refused for its body.  A data frame is sent again until it is accepted, so nothing
   could ever follow one that is malformed in each transmission (D-64). */
static int dxpui_on_malformed(dxpu_channel *ch, const dxpu_frame *f)
{
    bool next = f->kind == DXPU_KIND_DATA && f->sequence == ch->rx.next;
    return next && ++ch->rx.malformed >= DXPUI_MALFORMED
               ? dxpui_broken(&ch->link, DXPU_E_RECORD, DXPU_REASON_PROTOCOL)
               : DXPU_E_RECORD;
}

/* What is refused has no effect (D-64 apart).  What only its turn shows dxpui_rx_body() finds. */
static int dxpui_on_sequenced(dxpu_channel *ch, const dxpu_frame *f, uint64_t now_ns,
                              unsigned flags)
{
    bool data = f->kind == DXPU_KIND_DATA;
    int events = 0;
    if (ch->link.state == DXPU_STATE_OPENING || ch->link.state == DXPU_STATE_CLOSED)
        return DXPU_E_STATE; /* before the accept, which is repeated, or after the end */
    if (!dxpui_ack_valid(&ch->flight, f))
        return DXPU_E_ACK; /* D-6 */
    if (data == (f->body.len == 0) || (data && (events = dxpui_check_body(f->body)) < 0))
        return dxpui_on_malformed(ch, f); /* W-11, W-30 ff. */
    if (data && dxpui_seq_cmp(f->sequence, ch->rx.next) >= 0 &&
        f->sequence - ch->rx.next >= ch->cfg.window_frames)
        return DXPU_E_WINDOW; /* D-9 */
    dxpui_on_ack(ch, f, now_ns);
    if (ch->link.state == DXPU_STATE_ACCEPTED) {
        dxpui_go(&ch->link, DXPUI_EV_RX_SEQUENCED);
        dxpui_rtt_of_open(ch, now_ns - ch->link.heard_ns);
    }
    if (data)
        return dxpui_on_data(ch, f, (unsigned)events, now_ns, flags);
    if (f->kind == DXPU_KIND_BLOCKED)
        ch->rx.ack_now = true; /* F-13 */
    return DXPU_OK;
}

static int dxpui_dispatch(dxpu_channel *ch, const dxpu_frame *f, uint64_t now_ns, unsigned flags)
{
    if (f->kind <= DXPU_KIND_BLOCKED)
        return dxpui_on_sequenced(ch, f, now_ns, flags);
    ch->link.look_ns = 0;
    switch (f->kind) {
    case DXPU_KIND_OPEN:
    case DXPU_KIND_ACCEPT:
        return dxpui_on_offer(ch, f, now_ns);
    case DXPU_KIND_RESET:
        if (f->body.len < 4)
            return DXPU_E_SHORT;
        return dxpui_fail(&ch->link, DXPU_E_RESET, f->body.ptr[0], false);
    case DXPU_KIND_CLOSE:
        return dxpui_on_close(ch, f, now_ns);
    case DXPU_KIND_PROBE:
        return dxpui_on_probe(ch, f, now_ns);
    default: /* handshake: the security binding's, refused without it */
        return DXPU_E_STATE;
    }
}

/* One counter per reason; a fatal error is not a refused frame. */
static void dxpui_count_refusal(dxpu_counters *c, int error)
{
    static const int errors[] = { DXPU_E_SHORT,   DXPU_E_MAGIC,  DXPU_E_VERSION, DXPU_E_KIND,
                                  DXPU_E_LENGTH,  DXPU_E_RSVD,   DXPU_E_CRC,     DXPU_E_RECORD,
                                  DXPU_E_CHANNEL, DXPU_E_REPLAY, DXPU_E_WINDOW,  DXPU_E_ACK,
                                  DXPU_E_STATE,   DXPU_E_OFFER,  DXPU_E_PATH };
    uint64_t *const counters[] = { &c->rx_short,   &c->rx_magic,  &c->rx_version, &c->rx_kind,
                                   &c->rx_length,  &c->rx_rsvd,   &c->rx_crc,     &c->rx_record,
                                   &c->rx_channel, &c->rx_replay, &c->rx_window,  &c->rx_ack,
                                   &c->rx_state,   &c->rx_offer,  &c->rx_path };
    for (unsigned i = 0; i < sizeof errors / sizeof errors[0]; i++)
        *counters[i] += errors[i] == error;
}

DXPU_API int dxpu_channel_ingest(dxpu_channel *ch, uint64_t now_ns, uint8_t *pkt, size_t len,
                                 unsigned flags)
{
    dxpu_frame f;
    DXPU_ASSERT(!ch->busy);
    if (ch->link.state == DXPU_STATE_IDLE)
        return DXPU_E_ARG;
    if (ch->link.state == DXPU_STATE_FAILED) {
        DXPU_TRACE(ch, DXPU_TRACE_DROPPED, ch->link.error);
        return ch->link.error;
    }
    int rc = dxpui_admit(ch, pkt, len, &f);
    if (rc == DXPU_OK)
        rc = dxpui_dispatch(ch, &f, now_ns, flags);
    if (rc == DXPU_OK || ch->link.state == DXPU_STATE_FAILED) { /* refused: no sign of life */
        DXPU_TRACE(ch, DXPU_TRACE_RECEIVED, f.packet);
        ch->count.rx_frames++;
        ch->count.rx_bytes += len;
        ch->count.rx_ecn_ce += flags & DXPU_RX_ECN_CE;
        if (ch->link.state < DXPU_STATE_CLOSING)
            ch->link.heard_ns = now_ns;
        ch->paths.newest = false;
        if (f.path < ch->cfg.paths)
            dxpui_path_heard(ch, &f, now_ns);
    } else {
        DXPU_TRACE(ch, DXPU_TRACE_DROPPED, rc);
        dxpui_count_refusal(&ch->count, rc);
    }
    return rc;
}

/* ---- The consumer ---- */
/* The item that is offered of a class; NULL for none. */
DXPUI_INLINE const dxpui_item *dxpui_rx_offered(const dxpu_channel *ch, unsigned cls)
{
    const dxpui_queue *q = &ch->rx.queue[cls];
    if (q->waiting == 0 || ch->link.state == DXPU_STATE_FAILED)
        return NULL;
    const dxpui_item *it = &q->items[q->next];
    const dxpui_events *e = &ch->rx.events;
    if (e->head != e->tail && dxpui_seq_cmp(it->order, dxpui_events_order(e, e->head)) > 0)
        return NULL; /* D-35 */
    return dxpui_may_go(ch->rx.queue, cls) ? it : NULL;
}

DXPU_API dxpu_delivery dxpu_channel_peek(const dxpu_channel *ch, unsigned cls)
{
    dxpu_delivery d;
    const dxpui_item *it = cls < DXPU_CLASSES ? dxpui_rx_offered(ch, cls) : NULL;
    if (!it) {
        dxpui_zero(&d, sizeof d);
        return d;
    }
    const uint8_t *tlp = ch->rx.queue[cls].mem + it->pos, *h = tlp + 4u * it->prefix_dw;
    d.tlp = dxpui_view(tlp, it->bytes);
    d.data = dxpui_view(tlp + it->head_bytes, it->bytes - it->head_bytes - (h[2] & 0x80 ? 4u : 0));
    d.user = it->user;
    d.offset_bytes = it->crc & 0xffffu;
    d.last = it->last;
    if (cls == DXPU_COMPLETION && ch->cfg.tags) { /* of its dwords the bytes asked for */
        uint32_t skip = it->crc >> 16 < d.data.len ? h[11] & 3u : 0;
        d.data = dxpui_view(d.data.ptr + skip, it->crc >> 16);
    }
    return d;
}

DXPU_API int dxpu_channel_take(dxpu_channel *ch, unsigned cls, uint64_t now_ns)
{
    DXPU_ASSERT(!ch->busy);
    if (cls >= DXPU_CLASSES || !dxpui_rx_offered(ch, cls))
        return DXPU_E_NONE;
    dxpui_queue_advance(&ch->rx.queue[cls]);
    const dxpui_item *it = dxpui_queue_free(&ch->rx.queue[cls]);
    if (cls == DXPU_COMPLETION && ch->cfg.tags)
        return DXPU_OK;
    dxpu_credit_add(&ch->rx.granted, cls, it->units);
    if (ch->rx.granted.header[cls] - ch->rx.advertised.header[cls] >=
            ch->rx.queue[cls].header_max / 2 ||
        ch->rx.granted.data[cls] - ch->rx.advertised.data[cls] >= ch->rx.queue[cls].data_max / 2)
        ch->rx.ack_now = true; /* half a class is back, unsaid: the peer may wait for it (F-8) */
    ch->rx.ack_at_ns = dxpui_min64(ch->rx.ack_at_ns, now_ns + ch->cfg.ack_delay_ns);
    return DXPU_OK;
}

DXPU_API bool dxpu_channel_peek_event(const dxpu_channel *ch, dxpu_event *out)
{
    const dxpui_events *e = &ch->rx.events;
    if (e->head == e->tail || ch->link.state == DXPU_STATE_FAILED)
        return false;
    uint32_t order = dxpui_events_order(e, e->head);
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        const dxpui_queue *q = &ch->rx.queue[cls];
        if (q->waiting && dxpui_seq_cmp(q->items[q->next].order, order) < 0)
            return false; /* D-35 */
    }
    *out = e->event[e->head & (DXPUI_EVENTS - 1)];
    return true;
}

DXPU_API int dxpu_channel_take_event(dxpu_channel *ch)
{
    dxpu_event e;
    if (!dxpu_channel_peek_event(ch, &e))
        return DXPU_E_NONE;
    ch->rx.events.head++;
    return dxpui_early_use(ch);
}

DXPU_API unsigned dxpu_channel_wants(const dxpu_channel *ch, uint64_t now_ns)
{
    unsigned wants = 0;
    bool open = dxpui_may_submit(&ch->link) == DXPU_OK;
    dxpu_event e;
    if (dxpu_channel_next_ns(ch) <= now_ns)
        wants |= DXPU_WANTS_EMIT;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        if (dxpu_channel_peek(ch, cls).tlp.len)
            wants |= (unsigned)DXPU_WANTS_TAKE_POSTED << cls;
        if (open && dxpui_queue_fits(&ch->tx.queue[cls], dxpui_units_max[cls]))
            wants |= (unsigned)DXPU_WANTS_SUBMIT_POSTED << cls;
    }
    if (dxpu_channel_peek_event(ch, &e))
        wants |= DXPU_WANTS_TAKE_EVENT;
    if (!dxpui_drained(ch))
        wants |= DXPU_WANTS_ACK;
    return wants;
}
#endif

#ifdef __cplusplus
}
#endif
#endif /* DXPU_IMPLEMENTATION */

/* ==== 17  Changes, licence =======================================================================
   0.2.0  receiving as PCIe says, path validation, a closing period, dxpu_channel_status() and
          _check(), defaults of 126 KB: spec/changes.md has all, with what callers change.
   0.1.0  first: codec, classifier, routing tables, tags, credits, wire version 1, channel.

   MIT License, Copyright (c) 2026 the dxpu authors

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
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
