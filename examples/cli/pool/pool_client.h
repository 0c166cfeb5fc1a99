/* pool_client.h - one request to dxpu-manager over HTTP, and its answer
   SPDX-License-Identifier: MIT

   What answers is not trusted: an answer has a largest size, redirects are not followed (a token
   would go with them), no proxy of the environment is used, and text for people is cleaned. */
#ifndef DXPU_CLI_POOL_CLIENT_H
#define DXPU_CLI_POOL_CLIENT_H

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define POOL_MANAGER "http://127.0.0.1:4456"

typedef struct pool_settings {
    const char *manager;    /* URL, or ADDR[:PORT], or several with commas between them, of which
                               one leads; NULL: DXPU_MANAGER, else POOL_MANAGER */
    const char *token_file; /* NULL: DXPU_TOKEN, else no token */
    bool insecure;          /* a token may go over plain HTTP to another machine */
    unsigned timeout_s;     /* for one answer */
} pool_settings;

typedef enum pool_result {
    POOL_DONE,
    POOL_REFUSED,   /* the manager says no: why is its sentence and what to do */
    POOL_NO_ANSWER, /* none, or not a manager's */
    POOL_WOKEN      /* wake_fd became readable meanwhile */
} pool_result;

/* May the same be asked again? */
typedef enum pool_again {
    POOL_AGAIN_NO,     /* the answer would be the same */
    POOL_AGAIN_SAFE,   /* yes: nothing was done */
    POOL_AGAIN_UNKNOWN /* yes, if asking twice does no harm: it is unknown whether it was done */
} pool_again;

enum { POOL_SILENT_MAX = 16 };

typedef struct pool_client {
    CURL *curl;
    CURLM *multi;
    struct curl_slist *headers;
    char managers[2048];                 /* as they were given */
    unsigned count, manager;             /* how many; the one that is asked: */
    uint64_t silent_ms[POOL_SILENT_MAX]; /* when one that did not answer is asked again */
    bool found;                          /* it has answered, and leads */
    bool standby;                        /* it is one, and answers from the store; none leads */
    char base[512];                      /* "http://127.0.0.1:4456", without a / at its end */
    char *bearer;                        /* a header, or NULL */
    unsigned timeout_s;
    int wake_fd; /* -1: none */
    /* the last answer */
    long status;
    char *text; /* as it came */
    size_t bytes, room;
    bool raw;     /* it is a file, and no JSON: that of /v1/snapshot */
    json_t *body; /* an object, its strings cleaned; NULL: none came */
    char why[600];
    pool_again again;
    bool soon;              /* that may pass in less than a second: proxies are yet to register,
                               or another manager leads */
    unsigned retry_after_s; /* as the manager asks for; 0: it does not */
    char error[CURL_ERROR_SIZE];
    struct pool_stream *stream;
} pool_client;

/* NULL, or what is wrong with the settings. */
const char *pool_client_open(pool_client *c, const pool_settings *set);
void pool_client_close(pool_client *c);

/* path begins with /; request may be NULL and is not kept. */
pool_result pool_client_ask(pool_client *c, const char *method, const char *path,
                            const json_t *request);
/* The last answer with nothing cleaned; NULL: none.  The caller's to release. */
json_t *pool_client_document(const pool_client *c);

/* A server-sent event: data is what came; false: no more. */
typedef bool pool_on_event(void *user, const char *id, const char *data);
/* Until the connection ends (POOL_NO_ANSWER) or on_event or wake_fd says so (POOL_WOKEN).
   after: the last event that is known.  *answered: the manager took the request. */
pool_result pool_client_stream(pool_client *c, const char *path, uint64_t after,
                               pool_on_event *on_event, void *user, bool *answered);

uint64_t pool_now_ms(void); /* never jumps */

#endif
