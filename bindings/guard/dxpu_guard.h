/* dxpu_guard.h - what a device may send: no TLP leaves the slot that the lease does not allow
   SPDX-License-Identifier: MIT

   No device is trusted.  The guard sees all TLPs to the device, and so knows which functions it
   has, which of them are bus masters, and which requests they have to answer; the host grants the
   addresses that they may reach (DMA_GRANT, DMA_REVOKE).  Everything else is refused and counted.
   The slot gives the guard each TLP and does what it returns.  No operating system, no allocation,
   no library but mem*. */
#ifndef DXPU_GUARD_H_INCLUDED
#define DXPU_GUARD_H_INCLUDED

#include "dxpu_windows.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DXPU_GUARD_FUNCTIONS = 256 };

#define DXPU_GUARD_REASONS(X)                                                                      \
    X(malformed, "breaks a rule of its format")                                                    \
    X(kind, "is of a type that no endpoint sends")                                                 \
    X(requester, "has a requester ID that is not the device's")                                    \
    X(master, "is of a function without Bus Master Enable")                                        \
    X(translated, "has a translated address or asks for one")                                      \
    X(pasid, "has a PASID")                                                                        \
    X(window, "goes to addresses that the host did not grant")                                     \
    X(direction, "goes to addresses granted for the other direction alone")                        \
    X(completion, "completes no pending request, or returns more than was requested")
#define DXPU_GUARD_ENUM(name, text) DXPU_GUARD_##name,
enum {
    DXPU_GUARD_REASONS(DXPU_GUARD_ENUM) DXPU_GUARD_REASON_COUNT,
    DXPU_GUARD_PASS,
    DXPU_GUARD_ENDS
};
#undef DXPU_GUARD_ENUM

typedef struct dxpu_guard_allowed { /* besides what every device may */
    bool translated;                /* AT other than 0, and the messages of ATS and PRI */
    bool pasid;
} dxpu_guard_allowed;

typedef struct dxpu_guard {
    dxpu_guard_allowed allowed;
    dxpu_windows windows;
    dxpu_tags asked; /* by hosts and other devices, not yet answered */
    dxpu_tag_entry *entries;
    uint32_t capacity; /* of entries */
    uint8_t bus;       /* of the last CfgWr0; functions are the lower bits of a BDF */
    uint8_t known[DXPU_GUARD_FUNCTIONS / 8], master[DXPU_GUARD_FUNCTIONS / 8];
    uint8_t next[DXPU_GUARD_FUNCTIONS]; /* the capability that a walk comes to next, 0: no walk */
    uint8_t express[DXPU_GUARD_FUNCTIONS]; /* PCI Express capability, 0: not known */
    uint64_t refused[DXPU_GUARD_REASON_COUNT];
    uint64_t ended;   /* messages that end at the proxy, as they should */
    uint64_t no_room; /* grants and revocations for which there was no place */
} dxpu_guard;

/* Begin; all memory stays the caller's.
   entries  `requests` of them, 1..32768: at least as many as are in flight to the device; if there
            are more, answers to the oldest are refused
   windows  an empty table, copied
   DXPU_OK, or E_ARG. */
int dxpu_guard_init(dxpu_guard *g, const dxpu_guard_allowed *allowed, dxpu_tag_entry *entries,
                    uint32_t requests, const dxpu_windows *windows);
/* Prepare for another channel: forget grants, functions and requests.  Counters stay. */
void dxpu_guard_clear(dxpu_guard *g);

/* Call it for each link event to the device.  True: a DMA window, for the guard alone; false: give
   it to the device, too. */
bool dxpu_guard_event(dxpu_guard *g, const dxpu_event *e);
/* Call it for each TLP to the device. */
void dxpu_guard_down(dxpu_guard *g, const dxpu_tlp *t);
/* A whole TLP from the device: DXPU_GUARD_PASS; DXPU_GUARD_ENDS: a message that is not for the
   host; or the reason to refuse it, counted. */
unsigned dxpu_guard_up(dxpu_guard *g, dxpu_bytes tlp);
/* Check a TLP that passed again, before it leaves after a wait: DXPU_GUARD_PASS, or the reason to
   refuse it, counted.  Windows or Bus Master Enable may have been revoked meanwhile. */
unsigned dxpu_guard_waited(dxpu_guard *g, dxpu_bytes tlp);

/* True when a request names a process address space: it has a PASID prefix. */
bool dxpu_guard_pasid(const dxpu_tlp *t);
const char *dxpu_guard_name(unsigned reason);     /* "window" */
const char *dxpu_guard_text(unsigned reason);     /* "goes to addresses that ..." */
uint64_t dxpu_guard_refused(const dxpu_guard *g); /* of all reasons */

#ifdef __cplusplus
}
#endif
#endif /* DXPU_GUARD_H_INCLUDED */
