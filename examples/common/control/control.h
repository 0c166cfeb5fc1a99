/* control.h - the control port of a proxy: attach, detach, plug, status, screenshot over TCP, for
   whose key may
   SPDX-License-Identifier: MIT

   A client that misbehaves loses its own connection, no more. */
#ifndef CONTROL_H_INCLUDED
#define CONTROL_H_INCLUDED

#include "requests.h"

typedef struct control control;

/* What is wrong with an address of dxpu_tcp_parse() where to listen, `further` ports on from the
   one there (0 is any, for all); NULL: nothing, also with none. */
const char *control_check(const char *at, unsigned further, const keys_settings *k);
/* Listen at such an address.  k and r stay the caller's.  NULL after a message on stderr; says
   where it is. */
control *control_open(struct event_base *base, const char *at, unsigned further, keys *k,
                      requests *r);
void control_close(control *c); /* NULL is allowed, also below */
/* The keys were read again: peers without access any more are disconnected. */
void control_recheck(control *c);
/* With the counts of all clients' requests.  Either may be NULL. */
void control_report(const control *c, const requests *q, report *r);

#endif /* CONTROL_H_INCLUDED */
