/* api.h - the manager's users: HTTP and JSON, as spec/openapi.yaml describes them
   SPDX-License-Identifier: MIT

   Reads the core's tables and calls its requests; knows of proxies only what the core has and
   what api_report() is given.  All in the event base's thread; nothing here blocks.  What one
   client can make it keep is bounded: see api_settings. */
#ifndef API_H_INCLUDED
#define API_H_INCLUDED

#include "core.h"

enum { API_PORT = 4456, API_BODY_MAX_BYTES = 64 * 1024 };

struct event_base;

/* A request that was to change something, or that its client had no right to. */
typedef struct api_asked {
    const char *role, *tenant; /* "anonymous": without a token */
    const char *token;         /* its name; "" without one */
    const char *from;          /* address and port of the client, or of its reverse proxy */
    const char *method, *target;
    unsigned status;
    unsigned left_out; /* requests of the same caller that were not logged, since the last one */
} api_asked;

typedef struct api_settings {
    /* "127.0.0.1:4456", "[::1]:4456", "4456", "10.0.0.5", a name */
    const char *at;     /* [NULL: 127.0.0.1:4456] */
    const char *tokens; /* file; NULL: none, and then only a loopback address will do */
    /* Of clients with a token, at a time, streams included [512]; a quarter as many more, whose
       token is not known yet. */
    unsigned connections;
    unsigned waiting;    /* requests that wait for a lease [256] */
    unsigned streams;    /* of events [64] */
    unsigned request_ms; /* from the first byte of a request to its last [20,000] */
    bool shared_hosts;   /* tenants may name a host that has no owner, too [false] */
    void *user;
    /* A request is about to be read: call core_clock(). */
    void (*clock)(void *user);
    /* May another manager have changed the pool, so that nothing is known (M-147)?  NULL: never. */
    bool (*doubtful)(void *user);
    /* A request changed the core: there are orders to take, and core_next_ms() is another. */
    void (*changed)(void *user);
    /* A request was answered; or NULL.  Of requests that were refused a caller has a number logged
       in a minute, of requests without a token all have that together. */
    void (*asked)(void *user, const api_asked *what);
} api_settings;

void api_settings_default(api_settings *set);
/* Connections without a known token that there may be besides `connections`. */
unsigned api_lobby(unsigned connections);
/* What is wrong with an address to listen at, and stays so; NULL: nothing. */
const char *api_check(const char *at);

typedef struct api api;

/* Listen, and answer from the base's loop on.  NULL after a message on stderr; *wrong:
   the settings (tokens, or that there are none) are at fault, and will be the next time. */
api *api_open(struct event_base *base, core *c, const api_settings *set, bool *wrong);
/* Closes all connections; before core_close() and event_base_free().  NULL is allowed. */
void api_close(api *a);
/* Where it listens, with the port the kernel chose: "127.0.0.1:4456". */
const char *api_address(const api *a);
/* Read the file of tokens again.  False after a message on stderr: the old ones stay. */
bool api_reload(api *a);

struct store_seen;
/* From now on it is a standby's, which only answers reads, of the store's revision. */
void api_follow(api *a, const struct store_seen *seen);
/* Other tables take the place of those of api_open(). */
void api_set_core(api *a, core *c);

/* For core_settings.on_event: to the streams, and whoever waits. */
void api_event(api *a, const core_event *e);
/* A proxy's answer to ask: its slots' counters, for /metrics. */
void api_report(api *a, uint32_t node, const dxpu_control_status *st);

#endif /* API_H_INCLUDED */
