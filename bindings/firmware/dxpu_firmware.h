/* dxpu_firmware.h - dxpu.h without an operating system: a box of slots in firmware
   SPDX-License-Identifier: MIT

   A node is one network port and the slots behind it, each with a device.  Descriptor rings join it
   to the hardware: one to and one from the network, one to and one from each device.  An interrupt
   handler, a DMA engine or another core fills and empties their other ends.  The node
   does the rest: ARP, IPv4, UDP, opens and leases, one dxpu_channel a host, resets between hosts.

       static uint64_t memory[MEMORY_BYTES / 8];      // dxpu_fw_bytes() returns how much

       dxpu_fw_config_default(&cfg);                  // then addresses, rings, hooks
       dxpu_fw_init(&fw, &cfg, slots, SLOTS, memory, sizeof memory);
       for (;;) {
           uint64_t now = dxpu_fw_clock_ns(&clock, timer_counter());
           dxpu_fw_poll(&fw, now);
           interrupts_off();
           if (dxpu_fw_next_ns(&fw) > now)            // else: at once again
               sleep_at_most(dxpu_fw_clock_ticks(&clock, dxpu_fw_next_ns(&fw) - now));
           interrupts_on();                           // WFI wakes although they are off
       }

   Keys: dxpu_firmware_keys.h.  A guard of what a device sends: dxpu_fw_slot.guard.

   C99, no allocation, no library but mem*.  Everything but the rings' two ends belongs to the one
   thread that calls poll().

   CONTENTS   1 Rings   2 Time   3 Hooks   4 Slots   5 Node */
#ifndef DXPU_FIRMWARE_H_INCLUDED
#define DXPU_FIRMWARE_H_INCLUDED

#include "dxpu_acceptor.h"
#include "dxpu_firmware_wire.h"
#include "dxpu_guard.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  Rings ================================================================================
   One producer, one consumer, a power of two of buffers of one size.  put and taken count buffers
   for ever and wrap; each is written by one side only, so that no lock is needed.  What the other
   side of the node's rings writes, put and lengths, is not trusted: an impossible length drops that
   buffer, an impossible count drops all buffers in the ring. */

#ifndef DXPU_FW_BARRIER /* between a buffer's bytes and the count that publishes them */
#if defined(__GNUC__)
#define DXPU_FW_BARRIER() __sync_synchronize()
#else
#error "DXPU_FW_BARRIER: define it as your compiler's and processor's memory barrier"
#endif
#endif

enum { DXPU_FW_RING_MAX = 256 }; /* buffers */

typedef struct dxpu_fw_ring {
    uint8_t *buffers;           /* count x buffer_bytes, one behind the other */
    volatile uint32_t *lengths; /* count: the descriptors; bytes in each buffer */
    uint32_t count;             /* 2..DXPU_FW_RING_MAX */
    uint32_t buffer_bytes;      /* a multiple of 4 */
    volatile uint32_t put;      /* buffers filled; the producer's */
    volatile uint32_t taken;    /* buffers emptied; the consumer's */
} dxpu_fw_ring;

/* An empty ring over memory of the caller.  DXPU_OK or E_ARG. */
int dxpu_fw_ring_init(dxpu_fw_ring *r, uint8_t *buffers, volatile uint32_t *lengths, uint32_t count,
                      uint32_t buffer_bytes);
/* Buffers filled and not yet emptied; more than r->count when the producer's count is invalid. */
uint32_t dxpu_fw_ring_used(const dxpu_fw_ring *r);
/* Producer: the buffer to fill next, NULL while the ring is full; then say that it is. */
uint8_t *dxpu_fw_ring_room(const dxpu_fw_ring *r);
void dxpu_fw_ring_put(dxpu_fw_ring *r, uint32_t bytes);
/* Consumer: the oldest filled buffer, NULL when there is none; *bytes is at most buffer_bytes, and
   0 for a length that cannot be.  Then give it back. */
uint8_t *dxpu_fw_ring_peek(const dxpu_fw_ring *r, uint32_t *bytes);
void dxpu_fw_ring_take(dxpu_fw_ring *r);
/* Consumer: give all of them back unseen. */
void dxpu_fw_ring_drop(dxpu_fw_ring *r);

/* ==== 2  Time =================================================================================
   A hardware counter of up to 32 bits that wraps, as nanoseconds of 64 bits that do not.  It has to
   be read once in each of its periods; dxpu_fw_clock_ticks() never returns a longer sleep. */

typedef struct dxpu_fw_clock {
    uint64_t ns, ns_per_tick, ticks_per_ns; /* the last two with 32 bits behind the point */
    uint32_t fraction, last, mask;
} dxpu_fw_clock;

/* Begin at 0 ns.  The divisions are the compiler's as long as hz is a constant.
   hz     of the counter, 1,000..4,000,000,000
   bits   of the counter, 8..32 */
#define dxpu_fw_clock_init(clock, hz, bits, counter)                                               \
    dxpu_fw_clock_begin((clock), ((uint64_t)1000000000 << 32) / (hz),                              \
                        ((uint64_t)(hz) << 32) / 1000000000, (bits), (counter))
void dxpu_fw_clock_begin(dxpu_fw_clock *c, uint64_t ns_per_tick, uint64_t ticks_per_ns,
                         unsigned bits, uint32_t counter);
/* The time, from the counter's present value. */
uint64_t dxpu_fw_clock_ns(dxpu_fw_clock *c, uint32_t counter);
/* Ticks in a duration, at least 1 and at most half the counter's period: for a wake-up timer. */
uint32_t dxpu_fw_clock_ticks(const dxpu_fw_clock *c, uint64_t ns);

/* ==== 3  Hooks ================================================================================
   All return at once.  They may call the rings' functions, handshake() also dxpu_fw_authorize(),
   and nothing else of the node. */
enum { DXPU_FW_OWNER_BYTES = 32 };

/* What of a slot's lease has to outlive a power cut. */
typedef struct dxpu_fw_kept {
    uint64_t epoch; /* highest ever seen; 0: no lease yet */
    uint32_t host_node;
    uint16_t host_slot;
    uint8_t owner[DXPU_FW_OWNER_BYTES]; /* the key that opened it; all 0: none */
} dxpu_fw_kept;

typedef struct dxpu_fw_hooks {
    /* An unpredictable number of the hardware's: channel ids come from it, and a peer that guesses
       them can forge frames of a channel without a suite. */
    uint32_t (*random)(void *user);
    /* Reset the device as at power-up: nothing of its last user is left, `to_device` is dropped by
       its consumer (dxpu_fw_ring_drop() here, where the same thread empties it), what enters
       `from_device` later is of after the reset, and nonposted_limit counts from 0 again.  False
       while it goes on: asked again within a millisecond.  Called at the start, and when a channel
       ends or is replaced; not again while no host had the device and it sent nothing. */
    bool (*reset)(void *user, uint16_t slot);
    /* A link event of the slot (dxpu_event), after the device has taken every TLP before it.  When
       it returns from a hot reset or a change of power, what the device puts into `from_device` is
       of after it: what stands there is dropped, but for completions (S-175).  NULL: they are
       ignored. */
    void (*event)(void *user, uint16_t slot, const dxpu_event *e);
    /* A lease with a higher epoch, or of another owner, begins: keep it where it outlives a power
       cut, and return true; false refuses the lease.  Without it (NULL) a box that was restarted
       takes a host of a lease that has ended for the present one. */
    bool (*keep)(void *user, uint16_t slot, const dxpu_fw_kept *lease);
} dxpu_fw_hooks;

/* A sealed open that some session's keys read. */
typedef struct dxpu_fw_opening {
    dxpu_offer offer;
    uint32_t local_id; /* that the handshake gave us */
    const dxpu_suite *suite;
    void *suite_user;                   /* of the suite, and of work() and end() */
    uint8_t owner[DXPU_FW_OWNER_BYTES]; /* the host's public key, as the handshake proved it */
} dxpu_fw_opening;

/* Sealed channels (spec/security.md): dxpu_fw_keys_security, or a product's own.  Without it frames
   carry a CRC and no key.  user is cfg.security_user. */
typedef struct dxpu_fw_security {
    /* A handshake frame (kind 8): write the frame that answers it to out.  Its bytes; 0: none.
       cap is at least 1,232, the smallest limit of frames; an answer is no longer than what it
       answers (S-19).  What dxpu_fw_authorize() says belongs into it; S-98 bounds its time. */
    size_t (*handshake)(void *user, uint64_t now_ns, dxpu_bytes frame, const dxpu_fw_address *from,
                        uint8_t *out, size_t cap);
    /* An open: try the keys of the pending sessions on a copy (S-31).  True when one reads it, and
       all of *o, which is 0, is filled in. */
    bool (*open)(void *user, uint64_t now_ns, dxpu_bytes frame, dxpu_fw_opening *o);
    /* May the owner of this key have a channel to the slot, by the list of keys as it is (S-95)?
       When the list changes: dxpu_fw_recheck(). */
    bool (*allowed)(void *user, uint16_t slot, const uint8_t owner[DXPU_FW_OWNER_BYTES]);
    /* After each look at a channel: to begin a key phase when it is time (S-43, S-44), and to know
       that it is up.  Returns when to be called again at the latest. */
    uint64_t (*work)(void *user, void *suite_user, dxpu_channel *ch, uint64_t now_ns);
    /* The channel of this suite_user is over, or never came to be: wipe its keys. */
    void (*end)(void *user, void *suite_user);
    /* After each poll(): forget pending sessions whose time is over (S-14).  Returns when to be
       called again at the latest.  NULL: not called. */
    uint64_t (*tick)(void *user, uint64_t now_ns);
} dxpu_fw_security;

/* ==== 4  Slots ================================================================================ */

enum { DXPU_FW_LINKS = 2 }; /* channels of a slot: the one in force, and one that is not yet */

typedef struct dxpu_fw_path {     /* private */
    dxpu_fw_address at, valid_at; /* valid_at: the last one that was valid */
    dxpu_validation validation;   /* of at */
} dxpu_fw_path;

enum { /* dxpu_fw_link.state; private */
       DXPU_FW_LINK_FREE,
       DXPU_FW_LINK_OPENING,
       DXPU_FW_LINK_UP,
       DXPU_FW_LINK_OVER /* it may still have a reset to send, or closes to answer */
};

typedef struct dxpu_fw_link { /* private */
    dxpu_channel ch;
    void *memory;
    uint8_t state;
    uint32_t opener; /* the id that the host chose */
    uint8_t owner[DXPU_FW_OWNER_BYTES];
    uint64_t born_ns, work_ns;
    dxpu_fw_path path[DXPU_PATHS_MAX];
} dxpu_fw_link;

typedef struct dxpu_fw_slot {
    /* the caller's, before dxpu_fw_init() */
    dxpu_fw_ring *to_device;   /* whole TLPs as PCIe sends them, without sequence number and LCRC */
    dxpu_fw_ring *from_device; /* the same; more buffers than the device has tags, see README.md */
    bool counts_nonposted;     /* the device takes non-posted requests only up to the limit below */
    volatile uint32_t nonposted_limit; /* ... as flow control credits: how many, ever; wraps */
    /* What the device may send (S-100 to S-108), begun by dxpu_guard_init(); NULL: all, and what
       is behind the rings isolates it.  Link events about windows end there.  guard_room: twice the
       buffer_bytes of from_device, which the device cannot reach. */
    dxpu_guard *guard;
    uint8_t *guard_room;
    /* private */
    dxpu_fw_link link[DXPU_FW_LINKS];
    dxpu_fw_link *active;               /* NULL: no host */
    uint8_t owner[DXPU_FW_OWNER_BYTES]; /* the key that opened the lease; all 0: none */
    bool resetting, untouched;          /* untouched: still as the last reset left it */
    uint64_t retry_ns;
    uint32_t held_bytes; /* of a completion that the guard let pass, and that waits for credit */
    uint32_t nonposted;  /* given to the device, ever */
    uint32_t seen_put, seen_taken, seen_limit;
    uint32_t done[DXPU_FW_RING_MAX / 32]; /* buffers of from_device that left before an older one */
} dxpu_fw_slot;

/* ==== 5  Node ================================================================================= */

typedef struct dxpu_fw_config {
    dxpu_fw_address own; /* ours: MAC, IPv4 address, UDP port */
    uint32_t node;       /* our number in the fabric: any; hosts learn it when they open */
    dxpu_fw_ring *rx;    /* Ethernet frames from the network, without check sequence */
    dxpu_fw_ring *tx;    /* ... and to it; buffers of DXPU_FW_HEADERS_BYTES and the frame limit */
    bool ecn;            /* mark frames ECN-capable: the network's switches do mark */
    unsigned turn;       /* frames, and TLPs of a slot and class, that one poll() takes [16] */
    dxpu_channel_config channel; /* sizes and times of every channel; ids and places are set here */
    const dxpu_fw_hooks *hooks;
    const dxpu_fw_security *security; /* NULL: none */
    void *security_user;              /* of these */
    void *user;                       /* of the hooks */
} dxpu_fw_config;

typedef struct dxpu_fw {
    dxpu_fw_config cfg;
    dxpu_fw_slot *slots;
    uint16_t count;
    bool more; /* the last poll() left something to do at once */
    size_t link_bytes;
    uint64_t security_ns; /* when the security's tick() is due */
    dxpu_box_table table;
    dxpu_fw_counters counters;
} dxpu_fw;

/* Port 4458, and channels for an Ethernet of 1,500 bytes and little memory: 16 frames in flight, 16
   TLPs a class, of any size.  The rest is 0 for the caller to set. */
void dxpu_fw_config_default(dxpu_fw_config *cfg);
/* Bytes of memory, 8-byte aligned, for `slots` slots; 0 when cfg->channel is out of range. */
size_t dxpu_fw_bytes(const dxpu_fw_config *cfg, uint16_t slots);
/* Begin: no host has a slot, a device is in each (`valid`, in its lease, is set), and is reset at
   the first poll().  slots[0] is slot 1; slots and memory stay the caller's.  Then give what
   hooks.keep() was given before the restart to dxpu_fw_restore().  Layouts are checked: parts of a
   program that disagree on dxpu.h's options get E_ARG.  DXPU_OK, E_ARG, or E_ROOM: memory is too
   small. */
#define dxpu_fw_init(fw, cfg, slots, count, memory, memory_bytes)                                  \
    dxpu_fw_init_sized((fw), sizeof *(fw) + sizeof(dxpu_tlp), (cfg), (slots), sizeof *(slots),     \
                       (count), (memory), (memory_bytes))
int dxpu_fw_init_sized(dxpu_fw *fw, size_t fw_bytes, const dxpu_fw_config *cfg, dxpu_fw_slot *slots,
                       size_t slot_bytes, uint16_t count, void *memory, size_t memory_bytes);
/* After init, before the first poll(): the slot's lease as it was kept.  DXPU_OK or E_ARG. */
int dxpu_fw_restore(dxpu_fw *fw, uint16_t slot, const dxpu_fw_kept *lease);
/* The lease of a slot; NULL when there is no such slot.  `valid` may be cleared and set: whether a
   device is in it.  The rest is to be read. */
dxpu_box_entry *dxpu_fw_lease(dxpu_fw *fw, uint16_t slot);
/* Would this host get the slot now?  DXPU_REASON_NONE, or the reason to send it.  An open is
   checked in the same way again, and so is a channel that comes up.
   owner  its key; NULL: there are no keys here */
uint8_t dxpu_fw_authorize(const dxpu_fw *fw, const dxpu_place *host, uint16_t slot, uint64_t epoch,
                          const uint8_t *owner);
/* The list of keys has changed: end the channels that security.allowed() does not allow any more.
   S-96 gives a second for it. */
void dxpu_fw_recheck(dxpu_fw *fw);
/* Do what is to be done, within cfg.turn frames and TLPs. */
void dxpu_fw_poll(dxpu_fw *fw, uint64_t now_ns);
/* When poll() has something to do: at once if not after now (as 0), which it also is when a ring
   has changed since the last poll(). */
uint64_t dxpu_fw_next_ns(const dxpu_fw *fw);
/* Ask the host of every slot to let go (DXPU_REASON_*); poll until dxpu_fw_idle(). */
void dxpu_fw_close(dxpu_fw *fw, uint8_t reason);
bool dxpu_fw_idle(const dxpu_fw *fw);
/* Name of counter `index` of DXPU_FW_COUNTERS, NULL past the last; its value. */
const char *dxpu_fw_counter_name(unsigned index);
uint64_t dxpu_fw_counter_value(const dxpu_fw_counters *c, unsigned index);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_FIRMWARE_H_INCLUDED */
