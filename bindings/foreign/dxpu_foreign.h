/* dxpu_foreign.h - TLPs on the wires of other projects: NetTLP and PCILeech's RawUDP
   SPDX-License-Identifier: MIT

   Both put TLPs into UDP datagrams and send nothing again.  These functions make and read the
   datagrams: they know no socket, no time and no peer.  What the datagrams mean, which ports they
   use and what this project does where they lose: spec/foreign.md.  No operating system, no
   allocation, no library but mem*.

   CONTENTS   1 NetTLP: TLPs   2 NetTLP: messages   3 RawUDP */
#ifndef DXPU_FOREIGN_H_INCLUDED
#define DXPU_FOREIGN_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== 1  NetTLP: TLPs ========================================================================= */

enum {
    DXPU_NETTLP_MESSAGES_PORT = 0x2fff,
    DXPU_NETTLP_SOFTWARE_PORT = 0x3000, /* plus the tag: what the software requests, and answers */
    DXPU_NETTLP_ADAPTER_PORT = 0x4000,  /* plus the tag modulo 16: likewise of the adapter */
    DXPU_NETTLP_SOFTWARE_PORTS = 256,
    DXPU_NETTLP_ADAPTER_PORTS = 16,
    DXPU_NETTLP_HEAD_BYTES = 6,
    DXPU_NETTLP_DATAGRAM_MAX = DXPU_NETTLP_HEAD_BYTES + DXPU_TLP_MAX_BYTES
};

typedef struct dxpu_nettlp {
    uint16_t sequence; /* as its sender counts */
    uint32_t stamp;    /* its sender's clock */
    dxpu_bytes tlp;    /* into the datagram; not looked at */
} dxpu_nettlp;

/* The head, ahead of a TLP that the caller puts behind it. */
void dxpu_nettlp_head(uint8_t out[DXPU_NETTLP_HEAD_BYTES], uint16_t sequence, uint32_t stamp);
/* DXPU_OK; E_SHORT: no room for the shortest TLP; E_ARG: more than the longest. */
int dxpu_nettlp_decode(dxpu_bytes datagram, dxpu_nettlp *out);

/* ==== 2  NetTLP: messages ===================================================================== */

enum {
    DXPU_NETTLP_VECTORS = 16,
    DXPU_NETTLP_QUESTION_BYTES = 4,
    DXPU_NETTLP_ANSWER_MAX = DXPU_NETTLP_VECTORS * 12
};

enum {                       /* what is asked for, as in the question */
       DXPU_NETTLP_BAR4 = 1, /* the address of the adapter's BAR 4 */
       DXPU_NETTLP_DEVICE,   /* the adapter's requester ID */
       DXPU_NETTLP_TABLE     /* its MSI-X table */
};

typedef struct dxpu_nettlp_vector {
    uint64_t address;
    uint32_t data;
} dxpu_nettlp_vector;

typedef struct dxpu_nettlp_answer {
    unsigned what; /* DXPU_NETTLP_BAR4.. */
    uint64_t bar4;
    uint16_t device;
    dxpu_nettlp_vector table[DXPU_NETTLP_VECTORS];
} dxpu_nettlp_answer;

/* Numbers are in the order of the machine that asks: *big as the question has them. */
void dxpu_nettlp_question(uint8_t out[DXPU_NETTLP_QUESTION_BYTES], unsigned what, bool big);
/* DXPU_NETTLP_BAR4.., or DXPU_E_ARG. */
int dxpu_nettlp_question_decode(dxpu_bytes datagram, bool *big);
/* The answer that a->what names: its bytes. */
size_t dxpu_nettlp_answer_encode(uint8_t out[DXPU_NETTLP_ANSWER_MAX], const dxpu_nettlp_answer *a,
                                 bool big);
/* The answer to a question for `what` into that field of *a; DXPU_OK, or E_ARG: another length. */
int dxpu_nettlp_answer_decode(dxpu_bytes datagram, unsigned what, bool big, dxpu_nettlp_answer *a);

/* ==== 3  RawUDP =============================================================================== */

enum {
    DXPU_RAWTLP_PORT = 28474,
    DXPU_RAWTLP_TLP_MAX = 144, /* of one to the card: a payload of 128 bytes */
    DXPU_RAWTLP_SEND_MAX = DXPU_RAWTLP_TLP_MAX * 2,
    DXPU_RAWTLP_GREETING_BYTES = 8,
    DXPU_RAWTLP_BLOCK_BYTES = 32
};

/* A TLP to the card.  Returns the bytes of the datagram; 0: the TLP is not one of whole dwords, or
   is too long for the card. */
size_t dxpu_rawtlp_encode(uint8_t out[DXPU_RAWTLP_SEND_MAX], dxpu_bytes tlp);

/* What the card sends back and does nothing with: it learns where to send what it has. */
void dxpu_rawtlp_greeting(uint8_t out[DXPU_RAWTLP_GREETING_BYTES]);

#define DXPU_RAWTLP_COUNTERS(X)                                                                    \
    X(tlps, "that were put together")                                                              \
    X(torn, "TLPs without their beginning or end: a datagram was lost")                            \
    X(blocks_cut, "blocks that did not fit into their datagram")

/* What arrives from one card.  A TLP begins at a dword that the card marks as the first one, so
   that what follows a lost datagram is not taken for what was lost. */
typedef struct dxpu_rawtlp_reader {
    bool spans;      /* TLPs may go on in the next datagram: see spec/foreign.md */
    dxpu_bytes in;   /* the datagram's rest */
    uint32_t status; /* of the block at hand, its nibbles shifted down */
    unsigned left;   /* dwords of it that were not looked at */
    bool open;       /* `tlp` has the beginning of one */
    uint32_t bytes;  /* of it */
    uint8_t tlp[DXPU_TLP_MAX_BYTES];
#define DXPU_RAWTLP_FIELD(name, text) uint64_t name;
    struct {
        DXPU_RAWTLP_COUNTERS(DXPU_RAWTLP_FIELD)
    } count;
#undef DXPU_RAWTLP_FIELD
} dxpu_rawtlp_reader;

void dxpu_rawtlp_reader_init(dxpu_rawtlp_reader *r, bool spans);
/* A datagram, which stays the caller's until dxpu_rawtlp_next() has returned false. */
void dxpu_rawtlp_arrived(dxpu_rawtlp_reader *r, dxpu_bytes datagram);
/* The next whole TLP, valid until the next call; its bytes are not looked at but for their number,
   which is what its header says.  False: there is no further one. */
bool dxpu_rawtlp_next(dxpu_rawtlp_reader *r, dxpu_bytes *tlp);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_FOREIGN_H_INCLUDED */
