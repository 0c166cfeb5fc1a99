/* access.h - accesses of a virtual machine that TLPs were made of, until they are answered
   SPDX-License-Identifier: MIT

   An access of a function's configuration space or memory becomes one or more TLPs; their
   completions fill in its answer, which is all ones where none arrives.  Each is answered once and
   in time, whatever a device does (V-17).  Writes to prefetchable memory are combined. */
#ifndef ACCESS_H_INCLUDED
#define ACCESS_H_INCLUDED

#include "dxpu_vfio_user.h"
#include "windows.h"

enum {
    ACCESSES = 256,     /* unanswered at a time */
    ACCESS_BYTES = 64,  /* the largest that a processor makes */
    REQUEST_BYTES = 64, /* of one TLP made from it; PCIe's smallest Read Completion Boundary */
    ACCESS_MARGIN_NS = 100000000
};

/* ==== Write combining =========================================================================
   As a processor does it: writes to prefetchable memory that follow one another within a line of
   REQUEST_BYTES leave as one TLP, before anything else of the guest does.  Without it a copy of
   bytes would be a TLP for each byte. */

typedef struct write_line {
    uint64_t address; /* of the first byte in line */
    uint32_t bytes;   /* written and not yet sent; 0: none */
    uint8_t data[REQUEST_BYTES];
    uint64_t combined; /* writes that another one took along */
} write_line;

enum { LINE_OTHER, LINE_TAKEN, LINE_FULL }; /* FULL: taken, and no more can follow */
/* A write behind the last one of the line. */
int line_append(write_line *l, uint64_t address, const uint8_t *data, uint32_t bytes);
/* The first one of an empty line. */
int line_begin(write_line *l, uint64_t address, const uint8_t *data, uint32_t bytes);

/* ==== Answers ================================================================================= */

typedef struct guest_access {
    uint64_t token;    /* 0 while the place is free */
    uint64_t until_ns; /* QEMU breaks off after 5 s, wherever its request waits */
    uint64_t offset;   /* in the region */
    uint32_t region, bytes;
    bool write;
    bool missing;        /* a part got no data: the answer is all the device's, which is gone */
    uint32_t tlps;       /* not yet completed */
    uint16_t generation; /* of this place: an answer to an earlier access is dropped */
    uint8_t data[ACCESS_BYTES];
} guest_access;

typedef struct access_table {
    dxpu_vfu *vfu; /* where answers go */
    uint64_t hold_ns;
    /* The answer to a read is complete, none of it missing, and may be altered before it goes; may
       be NULL. */
    void (*answers)(void *user, guest_access *a);
    /* `bytes` of a read, from its byte `at` on, got no data: they are all ones, but for what a lost
       device's registers read (V-51), which is put into a->data; may be NULL. */
    void (*unread)(void *user, guest_access *a, uint32_t at, uint32_t bytes);
    /* Sends a memory request to the device at its address; false: it is not sent. */
    bool (*send)(void *user, dxpu_tlp *t, uint64_t part);
    void *user;
    write_line line;
    unsigned next;
    uint64_t deadline_ns; /* no access is due before */
    uint64_t timeouts;
    guest_access entry[ACCESSES];
} access_table;

/* hold_ns: how long an access may wait.  Of a zeroed object. */
void access_init(access_table *t, uint64_t hold_ns);
/* An access that will be answered with all ones where nothing else arrives.  NULL: too many wait,
   or it is too large. */
guest_access *access_new(access_table *t, const dxpu_vfu_access *v);
/* The same for a write. */
guest_access *access_new_write(access_table *t, const dxpu_vfu_access *v);
/* All its TLPs are sent. */
void access_sent(access_table *t, guest_access *a);
/* A completion for what access_part() made; cpl is NULL when none will come. */
void access_completed(access_table *t, const dxpu_tlp *cpl, uint64_t part, bool last);
/* Answer what has waited for long enough, for the device, for room or for another slot. */
void access_expire(access_table *t, uint64_t now_ns);
/* The client that asked is gone. */
void access_forget(access_table *t);

/* `bytes` of an access, from its byte `at` on, which a TLP asks for; skip: bytes of a configuration
   dword before them.  Of a write (a is NULL), 0: nothing comes back. */
uint64_t access_part(const access_table *t, const guest_access *a, uint32_t at, uint32_t bytes,
                     uint32_t skip);
/* A completion's bytes to their place.  Everything the completer chose is bounded here. */
void access_fill(guest_access *a, uint64_t part, const dxpu_tlp *cpl);

/* Guest memory that can be reached without asking the client.  False: it is what it was when
   *changes was set. */
bool access_memory(const dxpu_vfu *vfu, uint32_t *changes, windows *out);

/* ==== TLPs ==================================================================================== */

/* A configuration access within one dword; type: DXPU_TLP_CFGRD0 and the like. */
void access_config_tlp(uint8_t type, uint16_t target, uint32_t offset, unsigned bytes, dxpu_tlp *t);

/* ==== Memory ================================================================================== */

/* A request within a line of REQUEST_BYTES; data is NULL for a read.  False: it is not sent. */
bool access_request(access_table *t, uint64_t address, uint32_t bytes, const uint8_t *data,
                    uint64_t part);
/* An access as such requests; a: of a read, else data. */
void access_transfer(access_table *t, uint64_t address, uint32_t bytes, const uint8_t *data,
                     guest_access *a);
/* Combine a write with those before it, which are sent when it does not continue them.  False: it
   is still to be sent; to prefetchable memory it may be the first of others. */
bool access_append(access_table *t, uint64_t address, const uint8_t *data, uint32_t bytes);
bool access_begin(access_table *t, uint64_t address, const uint8_t *data, uint32_t bytes);
/* Send what was combined. */
void access_flush(access_table *t);

#endif /* ACCESS_H_INCLUDED */
