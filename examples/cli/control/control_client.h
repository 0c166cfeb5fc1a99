/* control_client.h - one connection to a proxy's control port: ask, and wait for the answer
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_CONTROL_CLIENT_H
#define DXPU_CLI_CONTROL_CLIENT_H

#include "dxpu_control.h"
#include "key_options.h"
#include "secure_stream.h"

typedef struct control_client {
    struct event_base *base;
    secure_conn *conn;
    dxpu_control_stream stream;
    struct evbuffer *pending; /* received, not yet looked at */
    bool plain, open, over, answered;
    const char *why; /* it is over */
    uint32_t request;
    unsigned timeout_ms;      /* of one answer */
    dxpu_control_hello hello; /* the proxy's; its name is in the next line */
    char name[DXPU_CONTROL_TEXT_MAX + 1];
    dxpu_control answer; /* the last one; its views live until the next question */
    uint8_t room[DXPU_CONTROL_HEADER_BYTES + DXPU_CONTROL_BODY_MAX];
} control_client;

/* Connect and exchange hellos.  NULL, or why there is no connection.  k has been opened. */
const char *control_client_open(control_client *c, const dxpu_udp_address *to, const key_options *k,
                                unsigned timeout_ms);
/* Ask; m's request number is filled in.  NULL and c->answer, or why none came. */
const char *control_client_ask(control_client *c, dxpu_control *m);
void control_client_pause(control_client *c, unsigned ms);
void control_client_close(control_client *c);

#endif
