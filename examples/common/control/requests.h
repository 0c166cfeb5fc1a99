/* requests.h - what a proxy does with the messages of a control connection, whoever opened it
   SPDX-License-Identifier: MIT

   Answers are true when they are given: attach when the slot dials, status as it is now.  Nothing
   here waits; a picture is sent when it is there, done when a lease is on disk.  The control port
   (control.h) and the connection to the manager (manager_link.h) of a proxy share one `requests`,
   so both do the same. */
#ifndef REQUESTS_H_INCLUDED
#define REQUESTS_H_INCLUDED

#include "dxpu_control.h"
#include "secure_stream.h"
#include "stats.h"

/* What the proxy does.  The functions are called from its own loop. */
typedef struct control_proxy {
    void *user;
    const char *name; /* "dxpu-host": in messages, and with the version in hello */
    uint8_t role;     /* DXPU_CONTROL_ROLE_* */
    uint32_t node;
    uint16_t slots;
    /* All of these: DXPU_CONTROL_CODE_NONE, or why not; slots are in range.  NULL where there is
       none. */
    unsigned (*attach)(void *user, const dxpu_control_attach *m);
    unsigned (*detach)(void *user, const dxpu_control_detach *m);
    /* Begin a picture of what a slot's device shows: requests_picture() follows. */
    unsigned (*screenshot)(void *user, unsigned number);
    /* These five from the manager alone (M-51); the slot of drain may be 0.  bind and unbind may
       return REQUESTS_LATER: requests_settled() follows, and until then they return it only for
       the same again, of that slot. */
    unsigned (*bind)(void *user, const dxpu_control_bind *m);
    unsigned (*unbind)(void *user, const dxpu_control_unbind *m);
    unsigned (*reset)(void *user, const dxpu_control_reset *m);
    unsigned (*drain)(void *user, const dxpu_control_drain *m);
    unsigned (*direct)(void *user, const dxpu_control_direct *m);
    /* Never from the manager.  REQUESTS_LATER as above. */
    unsigned (*plug)(void *user, const dxpu_control_plug *m);
    /* Fill in what is known of a slot; *out is zero and has its number. */
    void (*slot)(void *user, unsigned number, dxpu_control_slot *out);
} control_proxy;

enum { REQUESTS_LATER = 0x10000 }; /* no code of a message: those have 16 bits */

typedef struct requests requests;

/* One connection; the owner of the connection has it. */
typedef struct requests_peer requests_peer;
/* Where the answers of a manager go: false ends the connection.  Views live until it returns. */
typedef bool (*requests_answer)(void *user, const dxpu_control *m);

/* NULL: out of memory. */
requests *requests_open(const control_proxy *proxy);
void requests_close(requests *r); /* NULL is allowed; its peers are gone */
const control_proxy *requests_proxy(const requests *r);
/* Which node the proxy is from now on. */
void requests_set_node(requests *r, uint32_t node);
void requests_report(const requests *r, report *to);

/* The other side of a connection that was accepted here (answer NULL), or of the one to the
   manager: that one needs no hello, and what are its answers goes to answer().  NULL: out of
   memory. */
requests_peer *requests_peer_new(requests *r, requests_answer answer, void *user);
void requests_peer_free(requests_peer *p);
/* Bytes arrived: act on them and answer on conn.  False: the connection is ending. */
bool requests_bytes(requests_peer *p, secure_conn *conn, dxpu_bytes in);
/* The hello of this side. */
void requests_greet(requests *r, secure_conn *conn, uint32_t request);
/* Send a message; false when it cannot be made, or the connection is over. */
bool requests_send(requests *r, secure_conn *conn, const dxpu_control *m);

/* The addresses of a box in an attach; out has room for DXPU_CONTROL_PATHS_MAX.  Their number. */
unsigned control_box_from(const dxpu_control_attach *m, dxpu_udp_address *out);
/* The two ways to write an address. */
void control_address_from(const dxpu_udp_address *a, dxpu_control_address *out);
void control_address_to(const dxpu_control_address *a, dxpu_udp_address *out);

/* What was to be answered later about a slot: DXPU_CONTROL_CODE_NONE, or why not. */
void requests_settled(requests *r, unsigned slot, unsigned code);
/* A picture is there: a PNG, which is taken over, or why there is none. */
void requests_picture(requests *r, uint16_t slot, unsigned code, uint8_t *png, size_t bytes);

/* The slot that a request is about; 0 for what is about none, or for all. */
uint16_t requests_slot(const dxpu_control *m);

#endif /* REQUESTS_H_INCLUDED */
