/* control.h - the control port of a proxy: attach, detach, status and screenshot over TCP
   SPDX-License-Identifier: MIT

   Answers are true when they are given: attach when the slot dials, status as it is now.  Nothing
   here waits, and a client that misbehaves loses its own connection, no more. */
#ifndef CONTROL_H_INCLUDED
#define CONTROL_H_INCLUDED

#include "dxpu_control.h"
#include "dxpu_tcp.h"
#include "stats.h"

/* What the proxy does.  The functions are called from its own loop. */
typedef struct control_proxy {
    void *user;
    const char *name; /* "dxpu-host": in messages, and with the version in hello */
    uint8_t role;     /* DXPU_CONTROL_ROLE_* */
    uint32_t node;
    uint16_t slots;
    /* DXPU_CONTROL_CODE_NONE, or why not; slots are in range.  Both NULL where there is none. */
    unsigned (*attach)(void *user, const dxpu_control_attach *m);
    unsigned (*detach)(void *user, const dxpu_control_detach *m);
    /* What a slot's device shows, a PNG that the caller frees; the result as above.  NULL where
       there is none. */
    unsigned (*screenshot)(void *user, unsigned number, uint8_t **png, size_t *bytes);
    /* Fill in what is known of a slot; *out is zero and has its number. */
    void (*slot)(void *user, unsigned number, dxpu_control_slot *out);
} control_proxy;

typedef struct control control;

/* Listen at an address of dxpu_tcp_parse().  NULL after a message on stderr; says where it is. */
control *control_open(struct event_base *base, const char *at, const control_proxy *proxy);
void control_close(control *c);                   /* NULL is allowed */
void control_report(const control *c, report *r); /* NULL: nothing */

/* The addresses of a box in an attach; out has room for DXPU_CONTROL_PATHS_MAX.  Their number. */
unsigned control_box_from(const dxpu_control_attach *m, dxpu_udp_address *out);
/* The two ways to write an address. */
void control_address_from(const dxpu_udp_address *a, dxpu_control_address *out);
void control_address_to(const dxpu_control_address *a, dxpu_udp_address *out);

#endif /* CONTROL_H_INCLUDED */
