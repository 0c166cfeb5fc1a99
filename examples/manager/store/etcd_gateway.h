/* etcd_gateway.h - requests to an etcd cluster, by the JSON gateway of its members
   SPDX-License-Identifier: MIT

   One request at a time, and one more in the background, which goes on while the first is waited
   for.  A member that does not answer well is left for the next one. */
#ifndef ETCD_GATEWAY_H_INCLUDED
#define ETCD_GATEWAY_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

enum {
    ETCD_MEMBERS_MAX = 9,
    ETCD_HOST_BYTES = 264, /* HOST:PORT */
    ETCD_PREFIX_BYTES = 65,
    ETCD_PORT = 2379,
    ETCD_ANSWER_MAX_BYTES = 64 << 20
};

/* etcd://HOST[:PORT][,HOST[:PORT]...][/PREFIX] */
typedef struct etcd_address {
    char member[ETCD_MEMBERS_MAX][ETCD_HOST_BYTES];
    unsigned members;
    char prefix[ETCD_PREFIX_BYTES]; /* "/dxpu": begins with a slash, and does not end with one */
} etcd_address;

bool etcd_address_is(const char *text); /* does it begin with etcd:// ? */
/* NULL, or what is wrong with it. */
const char *etcd_address_parse(const char *text, etcd_address *out);
/* Are all members addresses of this machine's loopback interface? */
bool etcd_address_is_local(const etcd_address *a);

/* What is known of a request that was made. */
typedef enum etcd_fate {
    ETCD_DONE,    /* answered */
    ETCD_REFUSED, /* answered: etcd did not do it, and never will; but a transaction of code 8, no
                     space, may have been done */
    ETCD_UNSENT,  /* no member got it */
    ETCD_UNKNOWN  /* it may have been done, or may be done later */
} etcd_fate;

typedef struct etcd_answer {
    etcd_fate fate;
    json_t *json;      /* ETCD_DONE: an object, the caller's; else NULL */
    uint64_t revision; /* of the cluster's data, as the member knows it; ETCD_DONE */
    unsigned code;     /* gRPC's, of ETCD_REFUSED; ETCD_UNKNOWN: the answer is too large, or 0 */
    unsigned member;   /* that was asked */
    bool other;        /* it is a member of another cluster than the others before */
    char text[200];    /* "10.0.0.1:2379: timed out"; not of ETCD_DONE */
} etcd_answer;

typedef struct etcd_tls {
    const char *ca, *cert, *key; /* files; ca NULL: without TLS; the others may be NULL */
} etcd_tls;

typedef struct etcd_gateway etcd_gateway;
etcd_gateway *etcd_gateway_open(const etcd_address *a, const etcd_tls *tls); /* NULL: no memory */
void etcd_gateway_close(etcd_gateway *g);

/* Makes one attempt at one member, of at most timeout_ms, at /v3/`path`.  Frees body.  After
   anything but ETCD_DONE and ETCD_REFUSED the next request goes to the next member. */
etcd_answer etcd_ask(etcd_gateway *g, const char *path, json_t *body, unsigned timeout_ms);
/* The same in the background.  False: there is one already, or no memory.  A new connection takes
   several steps, with TLS more: etcd_poll() is due every few tens of milliseconds. */
bool etcd_start(etcd_gateway *g, const char *path, json_t *body, unsigned timeout_ms);
/* Goes on with it without waiting.  True, once: it is over. */
bool etcd_poll(etcd_gateway *g, etcd_answer *out);
/* Is there one in the background whose end etcd_poll() has not reported? */
bool etcd_is_busy(const etcd_gateway *g);

uint64_t etcd_now_ms(void); /* never set, and goes on while the machine is suspended */
void etcd_sleep_ms(unsigned ms);

/* -- Members of requests and answers -- */

json_t *etcd_bytes(const void *bytes,
                   size_t len);       /* base64, as keys and values are; NULL: memory */
json_t *etcd_number(uint64_t number); /* 64-bit numbers are strings */
/* False: it is not a number.  One that is missing is 0. */
bool etcd_number_read(const json_t *object, const char *name, uint64_t *out);
/* The bytes of a member, with a 0 behind them; free() them.  NULL: it is not base64, or no memory.
   One that is missing has no bytes. */
char *etcd_bytes_read(const json_t *object, const char *name, size_t *len);

#endif /* ETCD_GATEWAY_H_INCLUDED */
