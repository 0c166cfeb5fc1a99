/* push_host.h - for tests of devices: the host side of push rules, at a root complex
   SPDX-License-Identifier: MIT

   Include after root_complex.h. */
#ifndef PUSH_HOST_H_INCLUDED
#define PUSH_HOST_H_INCLUDED

#include "dxpu_push.h"

static dxpu_push_table pushes;
static unsigned push_rules_made, push_rules_ended;
static bool push_nothing, push_wrongly; /* the host does not push; or not what is there */

/* rc.message */
static inline void push_rule(rc *r, const dxpu_tlp *t)
{
    dxpu_push_rule rule;
    assert_int_equal(t->requester, r->bdf);
    assert_int_equal(dxpu_push_rule_decode(t, &rule), 1);
    assert_int_equal(dxpu_push_table_set(&pushes, &rule), DXPU_OK);
    push_rules_made += rule.bytes != 0;
    push_rules_ended += !rule.bytes;
}

/* rc.ahead: as a host does, what is in its memory now, then the write. */
static inline void push_ahead(rc *r, const dxpu_tlp *write)
{
    uint8_t payload[DXPU_PUSH_PAYLOAD_MAX];
    dxpu_push_part part[DXPU_PUSH_PARTS];
    const dxpu_push_rule *rule;
    unsigned parts = dxpu_push_table_match(&pushes, write, part, &rule);
    dxpu_tlp t;
    for (unsigned i = 0; i < parts && !push_nothing; i++) {
        memcpy(payload + DXPU_PUSH_HEAD_BYTES, rc_mem(r, part[i].address, part[i].bytes),
               part[i].bytes);
        if (push_wrongly)
            payload[DXPU_PUSH_HEAD_BYTES] = 0xff; /* no opcode of NVMe */
        dxpu_push_data_message(rule, part[i].address, part[i].bytes, payload, &t);
        rc_give(r, &t);
    }
}

/* A host that knows of rules, and offers none yet. */
static inline void push_begin(rc *r)
{
    push_rules_made = push_rules_ended = 0;
    push_nothing = push_wrongly = false;
    dxpu_push_table_init(&pushes, &(dxpu_push_offer){ 0, 0 });
    r->message = push_rule;
    r->ahead = push_ahead;
}

/* Rules of before are over. */
static inline void push_offer(rc *r, uint8_t rules)
{
    const dxpu_push_offer offer = { rules, DXPU_PUSH_BYTES };
    uint8_t payload[DXPU_PUSH_OFFER_BYTES];
    dxpu_tlp t;
    dxpu_push_table_init(&pushes, &offer);
    dxpu_push_offer_message(&offer, payload, &t);
    rc_give(r, &t);
}

#endif /* PUSH_HOST_H_INCLUDED */
