/* front.h - a source whose requests a card in a real machine's slot sends, over NetTLP or RawUDP
   SPDX-License-Identifier: MIT

   The card is the front of the device in the box: an access of its machine to the card's BAR is one
   to BAR 0 of the device, and what the device requests of memory the card requests of its machine.
   The card keeps its own configuration space; the device's is set up here, as an operating system
   would, with the vectors of the card's MSI-X table where it says them.  See spec/foreign.md, N-20
   ff.

   The device reaches those parts of the machine's memory that the operator names, and the vectors;
   the box is granted no more.  Whoever can send from the card's address is the card. */
#ifndef FRONT_H_INCLUDED
#define FRONT_H_INCLUDED

#include "card_wire.h"
#include "dxpu_windows.h"
#include "link.h"

enum { FRONT_WINDOWS = 16, FRONT_TEXT_BYTES = 64 };

typedef struct front_settings {
    bool raw, spans;
    char peer[FRONT_TEXT_BYTES], local[FRONT_TEXT_BYTES]; /* local "": any */
    unsigned tags;                                        /* of the device's reads; 0: 16 */
    uint32_t mps;       /* NetTLP: of the card's machine; 0: 128 */
    uint64_t answer_ms; /* how long a completion of the card is waited for; 0: 500 */
    uint64_t bar;       /* RawUDP: the address of the card's BAR */
    uint64_t id;        /* RawUDP: its requester ID */
    bool has_bar, has_id;
    dxpu_window memory[FRONT_WINDOWS]; /* of the card's machine, that the device may reach */
    unsigned windows;
} front_settings;

typedef struct front front;

/* What KIND,KEY=VALUE... says, into *s, which is all 0.  NULL, or what is wrong: valid until the
   next call. */
const char *front_read(front_settings *s, const char *text);
/* NULL after a message. */
front *front_open(host_link *link, const front_settings *s);
/* The link's port is open: begin to listen.  0, or -1 after a message. */
int front_listen(front *f);
void front_close(front *f);
source front_source(front *f);

#endif /* FRONT_H_INCLUDED */
