/* retry.h - configuration requests that a device asked to make again: the root's part of CRS (V-10)
   SPDX-License-Identifier: MIT

   A request that was completed with Configuration Request Retry Status is made again until the
   device is ready, the request's time is up, or the device is reset.  Those that come meanwhile
   wait behind it, so that none passes another.  Pure: the owner sends, waits and answers. */
#ifndef RETRY_H_INCLUDED
#define RETRY_H_INCLUDED

#include "dxpu.h"

enum { RETRY_MAX = 64, RETRY_TAGS = 256, RETRY_PAUSE_NS = 10000000 };

typedef struct retry_request {
    uint64_t user;
    uint64_t number;   /* order in which they were made */
    uint64_t until_ns; /* must be answered */
    uint16_t target, register_bytes;
    uint8_t type, be;
    uint8_t data[4];
    bool answered; /* its time was up while it was on its way */
} retry_request;

typedef struct retry_list {
    retry_request sent[RETRY_TAGS]; /* by tag: those on their way for the first time */
    retry_request waiting[RETRY_MAX];
    unsigned count;
    bool busy;      /* the first of `waiting` is on its way */
    uint64_t at_ns; /* not before then */
    uint64_t made;
    uint64_t cut; /* those with a smaller number are not made again */
} retry_list;

void retry_clear(retry_list *l);
/* A configuration request: the only kind that waits here. */
bool retry_takes(const dxpu_tlp *t);
/* A request, of whatever kind, is sent for the first time, its tag set. */
void retry_sent(retry_list *l, const dxpu_tlp *t, uint64_t user, uint64_t until_ns);
/* ... or has to wait behind others; false: too many. */
bool retry_wait(retry_list *l, const dxpu_tlp *t, uint64_t user, uint64_t until_ns);
/* A completion answers a configuration request of `tag`, or (again) the first that waits. */
bool retry_is_config(const retry_list *l, bool again, uint16_t tag);
/* The request that a completion answers: of `tag`, or (again) the first that waits.  payload of *t
   is the list's. */
void retry_request_of(const retry_list *l, bool again, uint16_t tag, dxpu_tlp *t);
/* It was answered with CRS: make it again later.  False when its time is up, or there is no place:
   the completion is its answer. */
bool retry_later(retry_list *l, bool again, uint16_t tag, uint64_t now_ns);
/* The device is reset: the time of all that was made before is up. */
void retry_reset(retry_list *l);
/* The request to send now, without its tag; then busy.  False for none. */
bool retry_next(retry_list *l, uint64_t now_ns, dxpu_tlp *t);
/* The first that waits has its answer.  True and *user unless it was reported before. */
bool retry_done(retry_list *l, uint64_t *user);
/* One whose time is up: true and *user. */
bool retry_expire(retry_list *l, uint64_t now_ns, uint64_t *user);
/* When next() or expire() have work. */
uint64_t retry_next_ns(const retry_list *l);

#endif /* RETRY_H_INCLUDED */
