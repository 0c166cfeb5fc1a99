/* api_head.h - what the head of a request says, as far as libevent's evhttp leaves it to its user
   SPDX-License-Identifier: MIT

   evhttp has read the request, and is lenient: it takes fields twice, blanks in their names, and
   lengths that others read in another way.  Such a request is refused, and its connection ends, so
   that no one can mean by it another request than this one. */
#ifndef API_HEAD_H_INCLUDED
#define API_HEAD_H_INCLUDED

#include <event2/http.h>
#include <stdbool.h>
#include <stddef.h>

enum { API_TARGET_MAX_BYTES = 2048, API_FIELDS_MAX = 64 };

/* Fields that mean something here; each at most once in a request. */
#define API_FIELDS(X)                                                                              \
    X(HOST, "host")                                                                                \
    X(CONTENT_LENGTH, "content-length")                                                            \
    X(TRANSFER_ENCODING, "transfer-encoding")                                                      \
    X(AUTHORIZATION, "authorization")                                                              \
    X(CONTENT_TYPE, "content-type")                                                                \
    X(ACCEPT, "accept")                                                                            \
    X(ORIGIN, "origin")                                                                            \
    X(SEC_FETCH_SITE, "sec-fetch-site")                                                            \
    X(LAST_EVENT_ID, "last-event-id")
typedef enum api_field {
#define API_FIELD_ENUM(name, text) API_FIELD_##name,
    API_FIELDS(API_FIELD_ENUM)
#undef API_FIELD_ENUM
        API_FIELDS_END
} api_field;

typedef struct api_head {
    enum evhttp_cmd_type method;
    const char *field[API_FIELDS_END];      /* NULL: not there */
    const char *authority;                  /* host of an absolute target; NULL: origin form */
    const char *path, *query;               /* as they came; NULL: not read, no query */
    char decoded[API_TARGET_MAX_BYTES + 1]; /* the path: printable ASCII */
} api_head;

/* 0, or the status of the refusal: 400, 404, 414, 431, 501, 505.  The texts live as long as q. */
unsigned api_head_read(api_head *h, struct evhttp_request *q);

const char *api_method_name(enum evhttp_cmd_type method);
/* A media type of an Accept field: 0 refused, 1 taken by a wildcard, 2 named.  NULL takes all. */
unsigned api_accepts(const char *accept, const char *type);
/* Content-Type is this type, with or without parameters. */
bool api_is_type(const char *content_type, const char *type);
/* A host of this machine alone: localhost, 127.0.0.0/8, [::1]; any port. */
bool api_is_loopback(const char *host);
/* May others be sent to this URL?  NULL, or what is wrong with it. */
const char *api_check_users_at(const char *url);

#endif /* API_HEAD_H_INCLUDED */
