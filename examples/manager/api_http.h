/* api_http.h - HTTP/1.1 requests out of bytes (RFC 9112), strictly, and nothing else
   SPDX-License-Identifier: MIT

   No I/O.  What is not exactly as the RFC has it is refused with a status, and then the connection
   is to be closed: nobody guesses where the next request begins.  Everything is bounded. */
#ifndef API_HTTP_H_INCLUDED
#define API_HTTP_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_HEAD_MAX_BYTES = 16 * 1024,
    HTTP_BODY_MAX_BYTES = 64 * 1024,
    HTTP_ROOM_BYTES = 96 * 1024, /* of a reader: head, body, and what goes around chunks */
    HTTP_TARGET_MAX_BYTES = 2048,
    HTTP_FIELDS_MAX = 64,
    HTTP_SEGMENTS_MAX = 6,
    HTTP_PARAMS_MAX = 8,
    HTTP_STATUSES = 20 /* that are answered */
};

#define HTTP_METHODS(X) X(GET) X(HEAD) X(POST) X(PUT) X(PATCH) X(DELETE) X(OPTIONS) X(TRACE)
typedef enum http_method {
#define HTTP_METHOD_ENUM(name) HTTP_##name,
    HTTP_METHODS(HTTP_METHOD_ENUM)
#undef HTTP_METHOD_ENUM
        HTTP_METHODS_END
} http_method;
const char *http_method_name(http_method m);

/* Fields that mean something here; each at most once in a request. */
#define HTTP_FIELDS(X)                                                                             \
    X(HOST, "host")                                                                                \
    X(CONTENT_LENGTH, "content-length")                                                            \
    X(TRANSFER_ENCODING, "transfer-encoding")                                                      \
    X(CONNECTION, "connection")                                                                    \
    X(EXPECT, "expect")                                                                            \
    X(AUTHORIZATION, "authorization")                                                              \
    X(CONTENT_TYPE, "content-type")                                                                \
    X(ACCEPT, "accept")                                                                            \
    X(ORIGIN, "origin")                                                                            \
    X(SEC_FETCH_SITE, "sec-fetch-site")                                                            \
    X(LAST_EVENT_ID, "last-event-id")
typedef enum http_field {
#define HTTP_FIELD_ENUM(name, text) HTTP_FIELD_##name,
    HTTP_FIELDS(HTTP_FIELD_ENUM)
#undef HTTP_FIELD_ENUM
        HTTP_FIELDS_END
} http_field;

typedef struct http_param {
    const char *name, *value;
} http_param;

/* Texts are zero-terminated and live until http_next(). */
typedef struct http_request {
    http_method method;
    unsigned minor;                     /* HTTP/1.minor */
    bool close;                         /* no further request on this connection */
    bool expects;                       /* it waits for 100 before it sends the body */
    const char *field[HTTP_FIELDS_END]; /* NULL: not there */
    const char *authority;              /* of an absolute target; NULL: origin form */
    const char *path;                   /* as it came */
    /* Decoded: printable ASCII.  segments above the maximum: there are more. */
    unsigned segments, params;
    const char *segment[HTTP_SEGMENTS_MAX];
    http_param param[HTTP_PARAMS_MAX];
    const char *body;
    size_t body_bytes;
    char decoded[HTTP_TARGET_MAX_BYTES + HTTP_SEGMENTS_MAX + 2 * HTTP_PARAMS_MAX];
} http_request;

typedef struct http_reader {
    char *room; /* HTTP_ROOM_BYTES */
    size_t len; /* bytes there */
    size_t scanned, head;
    size_t raw;    /* where the rest of the body is read */
    uint64_t left; /* of the body, or of the chunk */
    bool chunked, blank;
    unsigned phase; /* of chunks */
    http_request request;
} http_reader;

enum { HTTP_MORE = 0, HTTP_COMPLETE = 1 }; /* else a status, 400.. */

void http_begin(http_reader *r, char *room);
/* False when there is no room: the request is too large. */
bool http_put(http_reader *r, const void *bytes, size_t len);
/* Read what is there.  HTTP_MORE, HTTP_COMPLETE (again and again until http_next()), or the status
   of the refusal. */
int http_read(http_reader *r);
/* Forget the request; bytes behind it are the next one's. */
void http_next(http_reader *r);
/* The head is complete, the body is not. */
bool http_has_head(const http_reader *r);

const char *http_reason(unsigned status);
unsigned http_status(unsigned index); /* 0..HTTP_STATUSES - 1 */
/* A media type of an Accept field: 0 refused, 1 taken by a wildcard, 2 named.  NULL takes all. */
unsigned http_accepts(const char *accept, const char *type);
/* Content-Type is this type, with or without parameters. */
bool http_is_type(const char *content_type, const char *type);
/* Host field or authority of this machine alone: localhost, 127.0.0.0/8, [::1]; any port. */
bool http_is_loopback(const char *host);

#endif /* API_HTTP_H_INCLUDED */
