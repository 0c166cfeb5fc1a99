/* replay.h - a source that submits the TLPs of a capture in their order
   SPDX-License-Identifier: MIT */
#ifndef REPLAY_H_INCLUDED
#define REPLAY_H_INCLUDED

#include "link.h"

enum { REPLAY_ERRORS = 48 }; /* DXPU_E_TLP_* are -1..-47 */

typedef struct replay_item {
    size_t at;
    uint32_t len;
} replay_item;

typedef struct replay {
    host_link *link;
    uint8_t *bytes; /* all complete TLPs, one after the other */
    size_t used, cap;
    replay_item *items;
    uint64_t count, item_cap;
    uint64_t repeat;
    uint64_t next; /* submitted so far, over all rounds */
    uint64_t packets, others, filled;
    uint64_t frames;                 /* of others */
    uint64_t refused[REPLAY_ERRORS]; /* by error */
    uint64_t broken[REPLAY_ERRORS];  /* sent although they break a rule, by error */
    uint64_t refused_total, broken_total, unsubmitted;
    int last_error; /* of an unsubmitted one */
    uint64_t answered, unanswered, unsuccessful;
    uint64_t begin_ns, end_ns;
} replay;

/* Read the whole capture; TLPs that are cut are refused, counted and said, with `fill` cut payloads
   are completed with zeros; those that break a rule are counted, said and sent.  0; 1 when nothing
   is left to send, -1 when it cannot be read, both after a message. */
int replay_open(replay *r, host_link *link, const char *file, bool fill, uint64_t repeat);
void replay_close(replay *r);
source replay_source(replay *r);

#endif /* REPLAY_H_INCLUDED */
