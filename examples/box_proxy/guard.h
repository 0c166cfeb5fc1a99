/* guard.h - what a device may send: no TLP leaves the slot that the lease does not allow
   SPDX-License-Identifier: MIT

   A device is not trusted, whatever stands in the slot.  The guard sees what goes to it, and so
   knows which functions it has, which of them may master the bus and what they were asked; the host
   tells which addresses they may reach (DMA_GRANT, DMA_REVOKE).  Everything else is refused and
   counted.  Pure: the slot shows it TLPs and does what it says. */
#ifndef GUARD_H_INCLUDED
#define GUARD_H_INCLUDED

#include "windows.h"

enum { GUARD_FUNCTIONS = 256, GUARD_REQUESTS = 1024 };

#define GUARD_REASONS(X)                                                                           \
    X(malformed, "breaks a rule of its format")                                                    \
    X(kind, "no endpoint sends this")                                                              \
    X(requester, "is of a requester that the device is not")                                       \
    X(master, "is of a function without Bus Master Enable")                                        \
    X(translated, "has a translated address or asks for one")                                      \
    X(pasid, "has a PASID")                                                                        \
    X(window, "goes to addresses that the host did not grant")                                     \
    X(direction, "goes to addresses granted for the other direction alone")                        \
    X(completion, "answers what nobody asked, or with more than was asked")
#define GUARD_ENUM(name, text) GUARD_##name,
enum { GUARD_REASONS(GUARD_ENUM) GUARD_REASON_COUNT, GUARD_PASS, GUARD_ENDS };
#undef GUARD_ENUM

typedef struct guard_allowed { /* besides what every device may */
    bool translated;           /* AT other than 0, and the messages of ATS and PRI */
    bool pasid;
} guard_allowed;

typedef struct guard {
    guard_allowed allowed;
    windows windows;
    dxpu_tags asked; /* by hosts and other devices, not yet answered */
    dxpu_tag_entry *entries;
    uint8_t bus; /* of the last CfgWr0; functions are the lower bits of a BDF */
    uint8_t known[GUARD_FUNCTIONS / 8], master[GUARD_FUNCTIONS / 8];
    uint8_t next[GUARD_FUNCTIONS];    /* the capability that a walk comes to next, 0: no walk */
    uint8_t express[GUARD_FUNCTIONS]; /* PCI Express capability, 0: not known */
    uint64_t refused[GUARD_REASON_COUNT];
    uint64_t ended;   /* messages that end at the proxy, as they should */
    uint64_t no_room; /* grants and revocations for which there was no place */
} guard;

/* 0, or -1 out of memory. */
int guard_init(guard *g, const guard_allowed *allowed);
void guard_free(guard *g);
/* Another channel: nothing is granted, known or asked.  Counters stay. */
void guard_clear(guard *g);

/* A link event: DMA windows are the guard's alone (true), others the device's too. */
bool guard_event(guard *g, const dxpu_event *e);
/* A TLP goes to the device. */
void guard_down(guard *g, const dxpu_tlp *t);
/* A TLP of the device, in whole: GUARD_PASS; GUARD_ENDS: a message that is not for the host; or the
   reason to refuse it, counted. */
unsigned guard_up(guard *g, dxpu_bytes tlp);
/* One that passed and waits since: GUARD_PASS, or the reason that it must not leave now, counted.
   Windows and Bus Master Enable may be gone meanwhile. */
unsigned guard_waited(guard *g, dxpu_bytes tlp);

const char *guard_name(unsigned reason); /* "window" */
const char *guard_text(unsigned reason); /* "goes to addresses that ..." */
uint64_t guard_refused(const guard *g);  /* of all reasons */

#endif /* GUARD_H_INCLUDED */
