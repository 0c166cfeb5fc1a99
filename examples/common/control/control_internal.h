/* control_internal.h - the control port and its requests: of control.c, requests.c and their fuzz
   target
   SPDX-License-Identifier: MIT */
#ifndef CONTROL_INTERNAL_H_INCLUDED
#define CONTROL_INTERNAL_H_INCLUDED

#include "control.h"

struct control {
    requests *requests;
    secure_listener *listener;
};

enum { REQUESTS_BODY_MAX = 1024 /* longest body of a request */ };

/* Slots in one answer: as many as a body holds. */
enum { REQUESTS_SLOTS_MAX = (DXPU_CONTROL_BODY_MAX - 16) / DXPU_CONTROL_SLOT_BYTES };

#define REQUESTS_COUNTERS(X)                                                                       \
    X(requests, "messages understood")                                                             \
    X(refused, "of them answered with an error")                                                   \
    X(bad, "messages not understood")                                                              \
    X(ignored, "messages of an ignorable type")
#define REQUESTS_FIELD(name, text) uint64_t name;

/* Who waits for an answer about a slot. */
typedef struct requests_waiting {
    const requests_peer *peer; /* NULL: none, or its connection is over */
    secure_conn *conn;
    uint32_t request;
} requests_waiting;

struct requests {
    control_proxy proxy;
    requests_waiting *waiting; /* of each slot */
    char name[64];
    struct {
        REQUESTS_COUNTERS(REQUESTS_FIELD)
    } count;
    /* The picture that is being fetched, in pieces, by the connection that asked last. */
    const requests_peer *viewer; /* NULL: none */
    secure_conn *viewer_conn;    /* its connection, */
    uint32_t png_request;        /* and what it waits for an answer to while png is NULL */
    uint16_t png_slot;
    uint8_t *png;
    size_t png_bytes;
    uint8_t entries[REQUESTS_SLOTS_MAX * DXPU_CONTROL_SLOT_BYTES];
    uint8_t out[DXPU_CONTROL_HEADER_BYTES + DXPU_CONTROL_BODY_MAX];
};

struct requests_peer {
    requests *owner;
    requests_answer answer; /* NULL: no manager */
    void *user;
    bool greeted;
    dxpu_control_stream stream;
    uint8_t room[DXPU_CONTROL_HEADER_BYTES + REQUESTS_BODY_MAX];
};

/* Of secure_callbacks; a connection's context is a requests_peer. */
void control_on_bytes(void *context, secure_conn *conn, dxpu_bytes in);
void control_on_closed(void *context, secure_conn *conn, const char *why);

#endif /* CONTROL_INTERNAL_H_INCLUDED */
