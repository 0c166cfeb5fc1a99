/* api_internal.h - what the files of the HTTP server share
   SPDX-License-Identifier: MIT

   api_server.c has libevent's server, connections and time, api_head.c reads what heads mean,
   api.c says which request is whose to answer, and the others answer it.  A handler answers at
   once, or leaves the connection in a wait or a stream. */
#ifndef API_INTERNAL_H_INCLUDED
#define API_INTERNAL_H_INCLUDED

#include "api.h"
#include "api_head.h"
#include "api_requests.h"
#include "dxpu_tcp.h"

#include <jansson.h>

typedef struct api_conn api_conn;

/* ==== 1  Clients ============================================================================== */

enum { API_READ = 1, API_TENANT = 2, API_OPERATOR = 4, API_ALL = 7, API_ANYBODY = 8 };

enum { API_TOKEN_NAME_BYTES = 33 };

typedef struct api_caller {
    unsigned role; /* one of them; 0: unknown */
    char tenant[CORE_NAME_BYTES];
    char token[API_TOKEN_NAME_BYTES]; /* name of the token; "" without one */
    uint64_t expires_unix_s;          /* of the token; 0: never */
} api_caller;

const char *api_role_name(unsigned role); /* "operator"; "anonymous" for 0 */

typedef struct api_tokens api_tokens;
/* NULL after a message on stderr with the remedy; *system: it was no matter of usage. */
api_tokens *api_tokens_read(const char *file, bool *system);
void api_tokens_free(api_tokens *t); /* NULL: nothing */
/* Takes as long for a wrong token as for a right one.  authorization may be NULL.  Of a token that
   has expired the caller has no role, but its name. */
api_caller api_tokens_find(const api_tokens *t, const char *authorization, uint64_t unix_s);

/* ==== 2  What is asked ======================================================================== */

typedef struct api_route {
    enum evhttp_cmd_type method; /* GET is HEAD too */
    const char *path;            /* "/v1/leases/{lease}": a segment in braces is c->arg */
    unsigned roles;
    unsigned body; /* API_BODY_* */
    const char *type;
    void (*handle)(api_conn *c);
} api_route;

enum { API_BODY_NONE, API_BODY_OPTIONAL, API_BODY_JSON };
enum { API_ROUTES_MAX = 48, API_STATUSES = 20 };

const api_route *api_routes(unsigned *count);
void api_dispatch(api_conn *c);

/* ==== 3  Connections ========================================================================== */

typedef enum api_state {
    API_READING,  /* or between requests */
    API_HANDLING, /* a handler runs */
    API_SENDING,
    API_WAITING, /* for a lease, or the end of one */
    API_STREAMING,
    API_LOST /* there was no memory for the answer: the connection is to be closed */
} api_state;

/* A slot of a lease that ends, by numbers: indices change with the tables. */
typedef struct api_ending {
    uint32_t box, host; /* nodes; host 0: none */
    uint16_t slot, port;
    uint64_t epoch;
} api_ending;

typedef struct api_wait {
    uint64_t until_ms, lease;
    unsigned status; /* of the answer */
    bool asked;      /* for a wait, and to distinguish its end */
    enum { API_WAIT_UP, API_WAIT_WIPED, API_WAIT_GIVEN_UP } what;
    unsigned count;
    api_ending slot[POOL_COUNT_MAX];
} api_wait;

typedef struct api_selection { /* of events */
    uint64_t after, lease;
    uint64_t node, slot; /* 0: any; slot: node << 16 | slot */
    char type[32];       /* beginning; "": all */
} api_selection;

struct api_conn {
    api *a;
    api_conn *next, **link;
    struct bufferevent *bev;
    struct evhttp_connection *http; /* NULL: only just accepted */
    struct evhttp_request *request; /* NULL: none, or not yet whole */
    api_head head;                  /* its head */
    api_state state;
    uint64_t since_ms; /* of the state, or of the request's first byte; 0: none arrived */
    uint64_t heard_ms; /* the last byte that arrived, or went to its stream */
    unsigned accepted_tick;
    char from[DXPU_UDP_TEXT_BYTES]; /* address and port of its client */
    api_caller known;               /* whose it is: the last good token; role 0: none was */
    const api_route *route;         /* NULL: none */
    api_caller caller;
    char arg[API_TARGET_MAX_BYTES + 1]; /* of the route */
    union {
        api_wait wait;
        api_selection stream;
    } u;
};

typedef struct api_traffic { /* of one slot of a node */
    uint64_t to_device, from_device, dropped, incarnations;
    uint64_t at_ms;              /* when it was reported; 0: never */
    double to_per_s, from_per_s; /* since the report before; below 0: not known */
} api_traffic;

typedef struct api_reported { /* of one node */
    uint32_t node;
    unsigned slots;
    api_traffic *slot; /* by slot number - 1 */
} api_reported;

/* A slot that a tenant gave up. */
typedef struct api_left {
    uint32_t box; /* node; 0: this entry is empty */
    uint16_t slot;
    uint64_t epoch; /* of the lease that ended */
    char tenant[CORE_NAME_BYTES];
} api_left;
enum { API_LEFT = 1024 };

/* What one caller has used: a tenant, all tokens of a role, or all without a token. */
typedef struct api_budget {
    unsigned role;
    char tenant[CORE_NAME_BYTES];
    uint64_t changes_paid_ms; /* its changes are paid for until then, at their rate */
    uint64_t minute_ms;       /* when the minute of its audit lines began, */
    unsigned lines, left_out; /* those in it, and those since the last one */
} api_budget;

struct api {
    struct event_base *base;
    core *core;
    api_settings set;
    char address[DXPU_UDP_TEXT_BYTES];
    bool follows; /* another manager leads, */
    uint64_t revision;
    char leader[STORE_NAME_BYTES]; /* of this name, "": none, */
    char users[STORE_USERS_BYTES]; /* whose users are at this URL; "": unknown */
    bool loopback;
    struct evhttp *http;
    struct event *tick, *news;
    api_tokens *tokens;
    api_conn *conns, *fresh; /* fresh: evhttp is about to make its half of it */
    unsigned count;
    struct evconnlistener *listener; /* evhttp's; disabled while `paused` */
    bool paused;                     /* the system queues further connections */
    unsigned ticks;
    uint64_t accepted, displaced;
    uint64_t displaced_told_ms;                          /* when the next one is logged again */
    uint64_t opened_ms, newest;                          /* newest: event */
    uint64_t requests[API_ROUTES_MAX + 1][API_STATUSES]; /* [API_ROUTES_MAX]: no route */
    uint64_t events[CORE_EVENT_TYPES];
    api_reported *reported;
    unsigned reporting;
    api_budget *budget;
    unsigned budgets;
    api_left left[API_LEFT]; /* a ring */
    unsigned next_left;
};

uint64_t api_now_ms(void);
bool api_listen(api *a, bool *wrong); /* *wrong: as of api_open() */
void api_unlisten(api *a);
unsigned api_count_in(const api *a, api_state state);
/* The caller's token is good: the connection is its, and counts for its share of all.  When that is
   used up, one that is idle is closed for it, of the same caller or of those who have no more
   rights.  False: there is none. */
bool api_conn_known(api_conn *c);
/* Is there room for one more of the caller's connections in this state, of which there may be
   `most`?  Operators may have all of them, others a quarter each and three together. */
bool api_has_room(const api_conn *c, api_state state, unsigned most);
/* One more of the answer's, before it. */
void api_add_field(api_conn *c, const char *name, const char *value);
/* Answer; text is malloc()ed and taken, NULL: 503.  The request is evhttp's afterwards. */
void api_answer(api_conn *c, unsigned status, const char *type, char *text, size_t bytes);
void api_answer_json(api_conn *c, unsigned status, json_t *j); /* j is taken; NULL: 503 */
/* Head of an answer without end. */
void api_stream_begin(api_conn *c, const char *type);
/* More of it.  False: out of memory. */
bool api_stream_send(api_conn *c, const char *text, size_t bytes);
size_t api_unsent(const api_conn *c);
/* All of them, soon: clients with access reconnect, with the number of the last event. */
void api_end_streams(api *a);

/* May the caller change something now?  False after 429.  Operators may always. */
bool api_may_change(api_conn *c);
/* Report the request to set.asked(), unless the caller has had its lines for this minute. */
void api_tell_asked(const api_conn *c, unsigned status);

/* ==== 4  Problems (RFC 9457) ================================================================== */

/* kind: NULL, or the last word of its type: "quota". */
void api_problem(api_conn *c, unsigned status, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void api_problem_core(api_conn *c, const core_result *r);
/* 409: what the tenant uses, its limit, and what it asked for. */
void api_problem_quota(api_conn *c, const core_result *r, const char *tenant, unsigned asked);
/* 409 with the list, which is taken, of slots whose data an unconfirmed request would erase. */
void api_problem_erases(api_conn *c, json_t *erases, unsigned total);
/* What api_head.h refused: the connection closes behind it. */
void api_problem_head(api_conn *c, unsigned status);
const char *api_reason(unsigned status);
unsigned api_status(unsigned index); /* of those that are answered, 0..API_STATUSES - 1 */

/* ==== 5  Requests ============================================================================= */

/* The confirmation that data may be erased, 0 or 1. */
#define API_ERASE_PARAM(to)                                                                        \
    {                                                                                              \
        "erase", API_CHOICE, (to), 0, 0, "no|yes", false, false                                    \
    }
/* The query's parameters; false after 400. */
bool api_params(api_conn *c, const api_param *params, unsigned count);
/* The body's members; false after 400. */
bool api_members(api_conn *c, const api_member *members, unsigned count);
/* A request of the core is done: false after its problem. */
bool api_done(api_conn *c, core_result r);
/* Room for one more that waits; false after 503. */
bool api_may_wait(api_conn *c, uint64_t wait_s);

/* ==== 6  Tables =============================================================================== */

json_t *api_json_text(const char *text);   /* never but ASCII */
json_t *api_json_time(uint64_t unix_ms);   /* 0: null */
json_t *api_json_lease_id(uint64_t lease); /* 0: null */
/* Names of the slots that the lease left and whose data are kept for it. */
json_t *api_json_retained(const api *a, uint64_t lease);
/* M-103: is the request confirmed, or erases nothing?  false after 409. */
bool api_may_erase(api_conn *c, unsigned confirmed, core_deed deed, uint64_t of);
json_t *api_json_node(const api *a, uint32_t node, const api_caller *caller);
json_t *api_json_slot(const api *a, uint32_t slot, const api_caller *caller);
json_t *api_json_lease(const api *a, uint64_t lease);
json_t *api_json_event(const api *a, const core_event *e);
/* "ok", or what the caller learns of the store; text has room for it. */
const char *api_store_text(const api *a, const api_caller *caller, char text[256]);
json_t *api_json_pool(const api *a, const api_caller *caller);
json_t *api_json_tenant(const api *a, uint32_t tenant);
void api_slot_name(const api *a, uint32_t slot, char out[24]);
/* Is the slot the caller's to look at?  A tenant's own are, and those it gave up since this program
   runs, until they are lent again; of others it sees that they are there, and which are free. */
bool api_sees_slot(const api *a, const api_caller *caller, uint32_t slot);
/* Its state as the caller sees it: NULL, not at all. */
const char *api_slot_state(const api *a, const api_caller *caller, uint32_t slot);
/* The lease, or 409 when it is no more. */
void api_answer_lease(api_conn *c, unsigned status, uint64_t lease);
/* The lease ends, with its data or (keep) for the retention time without; the answer has this
   status. */
void api_end_lease(api_conn *c, uint64_t lease, bool keep, unsigned status, uint64_t wait_s);
/* The lease of the path; 0 after 404, which another tenant's is too. */
uint64_t api_lease_of(api_conn *c);
/* The tenant's, when the caller is one. */
bool api_sees_lease(const api *a, const api_caller *caller, uint64_t lease);
/* May it give leases to this node?  A tenant names its own hosts. */
bool api_may_use(const api *a, const api_caller *caller, uint64_t node);
/* What a node said last of one of its slots; NULL: nothing, or it is not connected. */
const api_traffic *api_traffic_of(const api *a, const core_node *n, unsigned slot);

/* ==== 7  Handlers ============================================================================= */

void api_get_health(api_conn *c);
void api_get_pool(api_conn *c);
void api_get_nodes(api_conn *c);
void api_get_boxes(api_conn *c);
void api_get_hosts(api_conn *c);
void api_get_node(api_conn *c);
void api_delete_node(api_conn *c);
void api_delete_key(api_conn *c);
void api_get_slots(api_conn *c);
void api_get_slot(api_conn *c);
void api_post_replace(api_conn *c);
void api_post_break(api_conn *c);
void api_post_repair(api_conn *c);
void api_post_reset(api_conn *c);
void api_put_drain(api_conn *c);
void api_put_owner(api_conn *c);
void api_put_direct(api_conn *c);
void api_get_tenants(api_conn *c);
void api_put_tenant(api_conn *c);
void api_put_spares(api_conn *c);
void api_get_leases(api_conn *c);
void api_post_lease(api_conn *c);
void api_get_lease(api_conn *c);
void api_patch_lease(api_conn *c);
void api_delete_lease(api_conn *c);
void api_post_attach(api_conn *c);
void api_post_park(api_conn *c);
void api_post_recover(api_conn *c);
void api_post_discard(api_conn *c);
void api_get_erasures(api_conn *c);
void api_post_clock(api_conn *c);
void api_post_adopt(api_conn *c);
void api_get_snapshot(api_conn *c);
void api_get_events(api_conn *c);
void api_get_metrics(api_conn *c);
void api_get_openapi(api_conn *c);

/* Is it in the store, which of these states a lease has? */
bool api_knows_state(const api *a, unsigned state);
/* It is answered: by the leader. */
void api_redirect(api_conn *c);
/* Is what the connection waits for there, or its time over?  Then it is answered. */
void api_wait_look(api_conn *c);
/* May another manager have changed the pool since the tables were read, or changed? */
bool api_is_in_doubt(const api *a);
/* Send a stream what there is and its reader takes. */
void api_stream_pump(api_conn *c);

#endif /* API_INTERNAL_H_INCLUDED */
