/* pool_client.c - see pool_client.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Where the manager is   2 The token   3 One exchange   4 What the answer is
              5 A stream of events */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool_client.h"
#include "command.h"
#include "dxpu.h"
#include "pool_text.h"
#include "text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ANSWER_MAX = 16 << 20,
    SNAPSHOT_MAX = 1 << 30,
    TOKEN_MAX = 512,
    CONNECT_MS = 5000,
    CONNECT_SOON_MS = 1500, /* where there are further managers */
    PROBE_S = 2,            /* for one of several managers to say that it is there, */
    SILENT_MS = 3000,       /* else it is left out for that long */
    STREAM_LINE_MAX = 1 << 16,
    KEEPALIVE_S =
        15 /* a stream says nothing for long: the system probes whether the peer is reachable */
};

typedef struct pool_stream {
    pool_on_event *on_event;
    void *user;
    bool over;
    char line[STREAM_LINE_MAX], data[STREAM_LINE_MAX], id[24];
    size_t line_bytes, data_bytes;
    bool return_seen; /* \r\n is one end of a line */
} pool_stream;

/* ==== 1  Where the manager is ================================================================= */

static bool is_loopback(const char *host)
{
    unsigned char v4[4];
    if (strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0)
        return true;
    return inet_pton(AF_INET, host, v4) == 1 && v4[0] == 127;
}

/* Is what goes there private on the way?  NULL, or why the URL cannot be used. */
static const char *look_at_url(const char *url, bool *safe)
{
    static const CURLUPart unwanted[] = { CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY,
                                          CURLUPART_FRAGMENT };
    CURLU *u = curl_url();
    char *part = NULL;
    const char *why = NULL;
    bool https = false;
    if (!u)
        out_of_memory();
    if (curl_url_set(u, CURLUPART_URL, url, 0))
        why = "is not a URL, such as " POOL_MANAGER;
    for (size_t i = 0; !why && i < sizeof unwanted / sizeof *unwanted; i++) {
        if (!curl_url_get(u, unwanted[i], &part, 0)) {
            why = "holds more than scheme, address, port and path; a token goes into DXPU_TOKEN";
            curl_free(part);
        }
    }
    if (!why && !curl_url_get(u, CURLUPART_SCHEME, &part, 0)) {
        https = strcmp(part, "https") == 0;
        if (!https && strcmp(part, "http") != 0)
            why = "begins with neither http:// nor https://";
        curl_free(part);
    }
    *safe = https;
    if (!why && !https && !curl_url_get(u, CURLUPART_HOST, &part, 0)) {
        *safe = is_loopback(part);
        curl_free(part);
    }
    curl_url_cleanup(u);
    return why;
}

/* The URL of one of them: URL, or ADDR[:PORT]. */
static const char *set_base(pool_client *c, const char *manager, bool *safe)
{
    const char *bracket, *colon, *why;
    size_t len;
    int n;
    bracket = strrchr(manager, ']');
    colon = strchr(bracket ? bracket : manager, ':');
    n = strstr(manager, "://")
            ? snprintf(c->base, sizeof c->base, "%s", manager)
            : snprintf(c->base, sizeof c->base, "http://%s%s", manager, colon ? "" : ":4456");
    if (n < 0 || (size_t)n >= sizeof c->base)
        why = "is too long";
    else if (!strstr(manager, "://") && strchr(manager, '/'))
        why = "has a path and no scheme; a URL reads " POOL_MANAGER;
    else
        why = look_at_url(c->base, safe);
    for (len = strlen(c->base); len && c->base[len - 1] == '/'; len--)
        c->base[len - 1] = '\0';
    if (why)
        snprintf(c->why, sizeof c->why, "the manager's address '%.200s' %s", manager, why);
    return why ? c->why : NULL;
}

/* The n-th manager of the list is asked from now on. */
static const char *use_manager(pool_client *c, unsigned n, bool *safe)
{
    char one[sizeof c->base];
    const char *at = c->managers;
    size_t len;
    c->manager = n;
    for (; n; n--)
        at += strcspn(at, ",") + 1;
    len = strcspn(at, ",");
    snprintf(one, sizeof one, "%.*s", (int)len, at);
    return set_base(c, one, safe);
}

/* One URL, or several with commas between them. */
static const char *set_managers(pool_client *c, const char *managers, bool *safe)
{
    const char *why = NULL;
    if (!managers)
        managers = getenv("DXPU_MANAGER");
    if (!managers || !*managers)
        managers = POOL_MANAGER;
    if (strlen(managers) >= sizeof c->managers) {
        snprintf(c->why, sizeof c->why, "the manager's address '%.200s' is too long", managers);
        return c->why;
    }
    strcpy(c->managers, managers);
    c->count = 1;
    for (const char *m = managers; *m; m++)
        c->count += *m == ',';
    *safe = true;
    for (unsigned n = c->count; n-- && !why;) { /* the first one is asked first */
        bool one = false;
        why = use_manager(c, n, &one);
        *safe = *safe && one;
    }
    return why;
}

/* Of several managers one leads; another one leads when it does not answer. */
static void next_manager(pool_client *c)
{
    bool safe;
    c->found = false;
    if (c->count > 1)
        (void)use_manager(c, (c->manager + 1) % c->count, &safe);
}

/* ==== 2  The token ============================================================================ */

/* Only its owner may read the file.  NULL and the descriptor, or why not. */
static const char *open_token(const char *path, int *fd)
{
    struct stat st;
    const char *why = NULL;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (*fd < 0)
        return strerror(errno);
    if (fstat(*fd, &st))
        why = strerror(errno);
    else if (S_ISDIR(st.st_mode))
        why = "is a directory";
    else if (S_ISREG(st.st_mode) && (st.st_mode & 077))
        why = "others may read it; chmod 600 it, and get a new token if they have";
    else if (S_ISREG(st.st_mode) && st.st_uid != geteuid() && st.st_uid != 0)
        why = "belongs to another user";
    if (why)
        close(*fd);
    return why;
}

static const char *read_token(const char *path, char token[TOKEN_MAX])
{
    size_t len = 0;
    ssize_t n;
    int fd;
    const char *why = open_token(path, &fd);
    if (why)
        return why;
    while (len < TOKEN_MAX - 1 && (n = read(fd, token + len, TOKEN_MAX - 1 - len)) != 0) {
        if (n < 0 && errno != EINTR)
            why = strerror(errno);
        if (n < 0 && why)
            break;
        len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    token[len] = '\0';
    token[strcspn(token, "\r\n")] = '\0';
    return why;
}

static const char *set_token(pool_client *c, const pool_settings *set, bool safe)
{
    char token[TOKEN_MAX] = "";
    const char *from = "DXPU_TOKEN", *why = NULL, *value = getenv(from);
    size_t size;
    if (set->token_file) {
        from = set->token_file;
        why = read_token(from, token);
        if (!why && !*token)
            why = "holds no token";
    } else if (value && strlen(value) >= sizeof token) {
        why = "is too long for a token";
    } else if (value) {
        snprintf(token, sizeof token, "%s", value);
    }
    if (!why) {
        for (const char *p = token; *p; p++) {
            if (*p < '!' || *p > '~')
                why = "holds what no token has: blanks, control characters or other letters";
        }
    }
    if (!why && *token && !safe && !set->insecure) {
        snprintf(c->why, sizeof c->why,
                 "a token is not sent to %.200s in the clear; use https:// (or --insecure, on a "
                 "trusted network)",
                 c->base);
        return c->why;
    }
    if (why) {
        snprintf(c->why, sizeof c->why, "token: %.200s: %s", from, why);
        return c->why;
    }
    if (!*token)
        return NULL;
    size = strlen(token) + sizeof "Authorization: Bearer ";
    c->bearer = malloc(size);
    if (!c->bearer)
        out_of_memory();
    snprintf(c->bearer, size, "Authorization: Bearer %s", token);
    return NULL;
}

/* ==== 3  One exchange ========================================================================= */

static bool keep(pool_client *c, const char *data, size_t bytes)
{
    if (bytes > (c->raw ? SNAPSHOT_MAX : ANSWER_MAX) - c->bytes)
        return false;
    if (c->bytes + bytes + 1 > c->room) {
        size_t room = 2 * (c->bytes + bytes) + 1;
        char *text = realloc(c->text, room);
        if (!text)
            out_of_memory();
        c->text = text;
        c->room = room;
    }
    memcpy(c->text + c->bytes, data, bytes);
    c->bytes += bytes;
    c->text[c->bytes] = '\0';
    return true;
}

static bool stream_bytes(pool_client *c, const char *data, size_t bytes);

static size_t on_bytes(char *data, size_t one, size_t count, void *user)
{
    pool_client *c = user;
    size_t bytes = one * count;
    return (c->stream ? stream_bytes(c, data, bytes) : keep(c, data, bytes)) ? bytes : 0;
}

/* A transfer that is set up, until it ends.  false: wake_fd was readable first. */
static bool transfer(pool_client *c, CURLcode *result)
{
    int running = 0, left;
    bool woken = false;
    CURLMsg *m;
    *result = CURLE_OUT_OF_MEMORY;
    if (curl_multi_add_handle(c->multi, c->curl))
        return true;
    do {
        struct curl_waitfd wake = { 0, CURL_WAIT_POLLIN, 0 };
        if (curl_multi_perform(c->multi, &running))
            break;
        wake.fd = c->wake_fd;
        if (running && curl_multi_poll(c->multi, &wake, c->wake_fd >= 0, 1000, NULL))
            break;
        woken = wake.revents != 0;
    } while (running && !woken);
    while ((m = curl_multi_info_read(c->multi, &left))) {
        if (m->msg == CURLMSG_DONE)
            *result = m->data.result;
    }
    curl_multi_remove_handle(c->multi, c->curl);
    return !woken;
}

static void add_header(pool_client *c, const char *line)
{
    struct curl_slist *more = curl_slist_append(c->headers, line);
    if (!more)
        out_of_memory();
    c->headers = more;
}

/* Forget the last answer; what all requests have in common. */
static void prepare(pool_client *c, const char *path, const char *accept, long timeout_ms)
{
    char url[2048];
    json_decref(c->body);
    c->body = NULL;
    c->bytes = 0;
    c->status = 0;
    c->again = POOL_AGAIN_NO;
    c->soon = false;
    c->retry_after_s = 0;
    c->why[0] = c->error[0] = '\0';
    curl_slist_free_all(c->headers);
    c->headers = NULL;
    curl_easy_reset(c->curl); /* connections live on */
    snprintf(url, sizeof url, "%s%s", c->base, path);
    curl_easy_setopt(c->curl, CURLOPT_URL, url);
    curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(c->curl, CURLOPT_PATH_AS_IS, 1L); /* a tenant may be called ".." */
    curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->curl, CURLOPT_USERAGENT, "dxpu/" DXPU_VERSION);
    curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(c->count > 1 ? CONNECT_SOON_MS : CONNECT_MS));
    curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, timeout_ms);
    curl_easy_setopt(c->curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c->curl, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_S);
    curl_easy_setopt(c->curl, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_S / 3);
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->error);
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
    add_header(c, accept);
    if (c->bearer)
        add_header(c, c->bearer);
}

/* ==== 4  What the answer is =================================================================== */

static pool_result no_answer(pool_client *c, CURLcode rc)
{
    const char *what = c->error[0] ? c->error : curl_easy_strerror(rc);
    char all[232] = "";
    text_clean(c->error);
    if (c->count > 1)
        snprintf(all, sizeof all, " (tried last of %.200s)", c->managers);
    if (rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST)
        snprintf(c->why, sizeof c->why, "%.150s%s: %.150s; is dxpu-manager running?", c->base, all,
                 what);
    else if (rc == CURLE_WRITE_ERROR)
        snprintf(c->why, sizeof c->why, "%.200s: its answer is longer than a manager's", c->base);
    else
        snprintf(c->why, sizeof c->why, "%.200s: %.200s", c->base, what);
    return POOL_NO_ANSWER;
}

/* A manager that restarts accepts no connection, or breaks one off before it answers. */
static pool_again again_after(const pool_client *c, CURLcode rc)
{
    if (rc == CURLE_COULDNT_CONNECT)
        return POOL_AGAIN_SAFE;
    return !c->status && (rc == CURLE_GOT_NOTHING || rc == CURLE_SEND_ERROR ||
                          rc == CURLE_RECV_ERROR || rc == CURLE_OPERATION_TIMEDOUT)
               ? POOL_AGAIN_UNKNOWN
               : POOL_AGAIN_NO;
}

static pool_result no_manager(pool_client *c, const char *what)
{
    snprintf(c->why, sizeof c->why, "%.200s: not a dxpu-manager (HTTP %ld): %.150s", c->base,
             c->status, what);
    return POOL_NO_ANSWER;
}

/* What shows the things that there are, of the kind that the path names. */
static const char *list_of(const char *path)
{
    static const char *const lists[][2] = {
        { "/v1/slots", "; 'dxpu list slots' lists the slots" },
        { "/v1/leases", "; 'dxpu list leases' lists the leases" },
        { "/v1/boxes", "; 'dxpu list boxes' lists the boxes" },
        { "/v1/hosts", "; 'dxpu list hosts' lists the hosts" },
        { "/v1/nodes", "; 'dxpu list boxes' and 'dxpu list hosts' list the nodes" },
        { "/v1/tenants", "; 'dxpu list tenants' lists the tenants" },
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (!strncmp(path, lists[i][0], strlen(lists[i][0])))
            return lists[i][1];
    }
    return "";
}

/* What one can do about it, where the manager's own sentence may leave that open. */
static const char *remedy(long status, const char *path)
{
    switch (status) {
    case 401:
        return "; DXPU_TOKEN or --token-file gives a token";
    case 403:
        return "; another token may be allowed to";
    case 404:
        return list_of(path);
    case 503:
        return "; try again in a second";
    default:
        return "";
    }
}

static bool is_problem(const pool_client *c, const char *kind)
{
    const char *type = json_string_value(json_object_get(c->body, "type"));
    return type && strcmp(type, kind) == 0;
}

/* Is this refusal one that passes?  The first three, and 429, are made before anything is done. */
static pool_again passes(const pool_client *c)
{
    if (c->status == 429 || (c->status == 503 && (is_problem(c, "/problems/busy") ||
                                                  is_problem(c, "/problems/leader") ||
                                                  is_problem(c, "/problems/starting"))))
        return POOL_AGAIN_SAFE;
    return c->status == 503 ? POOL_AGAIN_UNKNOWN : POOL_AGAIN_NO;
}

static pool_result refused(pool_client *c, const char *path)
{
    const char *text = json_string_value(json_object_get(c->body, "detail"));
    if (!text || !*text)
        text = json_string_value(json_object_get(c->body, "title"));
    if (!text || !*text)
        return no_manager(c, "it refuses without a reason");
    curl_off_t after = 0;
    (void)curl_easy_getinfo(c->curl, CURLINFO_RETRY_AFTER, &after);
    c->again = passes(c);
    c->soon = is_problem(c, "/problems/starting");
    if (c->count > 1 && (is_problem(c, "/problems/store") || is_problem(c, "/problems/leader"))) {
        c->soon = true; /* it may have lost its lead, or has */
        c->found = false;
    }
    c->retry_after_s = after > 0 && after < 3600 ? (unsigned)after : 0;
    snprintf(c->why, sizeof c->why, "refused: %.*s%s", (int)pool_text_cut(text, 400), text,
             strchr(text, ';') ? "" : remedy(c->status, path)); /* with a ; it has a remedy */
    return POOL_REFUSED;
}

/* A standby redirects to who leads; it may be late, so all are asked who does. */
static pool_result redirected(pool_client *c)
{
    char *to = NULL;
    char where[200];
    c->again = c->count > 1 ? POOL_AGAIN_SAFE : POOL_AGAIN_NO;
    curl_easy_getinfo(c->curl, CURLINFO_REDIRECT_URL, &to);
    snprintf(where, sizeof where, "%.199s", to ? to : "elsewhere");
    text_clean(where);
    snprintf(c->why, sizeof c->why,
             "%.200s: it redirects to %s, which is not followed; --manager takes the manager's own "
             "address",
             c->base, where);
    return POOL_NO_ANSWER;
}

json_t *pool_client_document(const pool_client *c)
{
    return c->bytes ? json_loadb(c->text, c->bytes, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

static pool_result judge(pool_client *c, const char *path)
{
    if (c->status >= 300 && c->status < 400)
        return redirected(c);
    if (c->raw && c->status == 200)
        return POOL_DONE;
    c->body = pool_client_document(c);
    if (c->bytes && !json_is_object(c->body))
        return no_manager(c, "its answer is not a JSON object");
    if (c->body)
        pool_text_clean_json(c->body);
    if (c->status >= 200 && c->status < 300)
        return POOL_DONE;
    if (c->status < 400 || !c->body)
        return no_manager(c, "it says nothing");
    return refused(c, path);
}

static pool_result ask_once(pool_client *c, const char *method, const char *path,
                            const json_t *request)
{
    CURLcode rc;
    char *text = request ? json_dumps(request, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    bool changes = strcmp(method, "GET") != 0;
    if (request && !text)
        out_of_memory();
    c->raw = strcmp(path, "/v1/snapshot") == 0;
    prepare(c, path,
            c->raw ? "Accept: text/plain, application/problem+json"
                   : "Accept: application/json, application/problem+json",
            (long)c->timeout_s * 1000);
    if (changes) {
        curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, method);
        /* libcurl says it once more when a connection that it used before breaks off */
        curl_easy_setopt(c->curl, CURLOPT_FRESH_CONNECT, 1L);
    }
    if (changes && strcmp(method, "DELETE") != 0)
        curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, text ? text : "");
    add_header(c, text ? "Content-Type: application/json" : "Content-Type:");
    add_header(c, "Expect:");
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
    if (!transfer(c, &rc)) {
        free(text);
        return POOL_WOKEN;
    }
    free(text);
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &c->status);
    if (rc == CURLE_OK)
        return judge(c, path);
    (void)no_answer(c, rc);
    c->again = again_after(c, rc);
    if (changes && rc != CURLE_COULDNT_CONNECT && rc != CURLE_COULDNT_RESOLVE_HOST) {
        size_t at = strlen(c->why);
        snprintf(c->why + at, sizeof c->why - at,
                 "; it is unknown whether it was done: see 'dxpu list leases' "
                 "and 'dxpu events'");
    }
    return POOL_NO_ANSWER;
}

uint64_t pool_now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static uint64_t *silent_of(pool_client *c)
{
    return &c->silent_ms[c->manager % POOL_SILENT_MAX];
}

/* One that is frozen accepts a connection and answers nothing: none is given a request, which may
   take long, before it answered a small one.  A standby only where none leads. */
static void find_manager(pool_client *c)
{
    unsigned timeout_s = c->timeout_s, standby = c->count;
    bool safe;
    c->timeout_s = PROBE_S;
    for (unsigned tries = 0; c->count > 1 && !c->found && tries < c->count; tries++) {
        uint64_t began_ms = pool_now_ms();
        if (began_ms < *silent_of(c)) {
            next_manager(c);
            continue;
        }
        pool_result result = ask_once(c, "GET", "/v1/health", NULL);
        if (result == POOL_NO_ANSWER && pool_now_ms() - began_ms >= PROBE_S * 500)
            *silent_of(c) = pool_now_ms() + SILENT_MS;
        const char *role = json_string_value(json_object_get(c->body, "role"));
        c->standby = result == POOL_DONE && role && strcmp(role, "standby") == 0;
        c->found = result != POOL_NO_ANSWER && !c->standby;
        if (c->standby)
            standby = c->manager;
        if (!c->found)
            next_manager(c);
    }
    if (!c->found && standby < c->count) {
        (void)use_manager(c, standby, &safe);
        c->standby = true;
    }
    c->timeout_s = timeout_s;
}

pool_result pool_client_ask(pool_client *c, const char *method, const char *path,
                            const json_t *request)
{
    pool_result result;
    unsigned tries = 0;
    do {
        find_manager(c);
        result = ask_once(c, method, path, request);
        if (result == POOL_NO_ANSWER)
            next_manager(c);
    } while (result == POOL_NO_ANSWER && c->again == POOL_AGAIN_SAFE && !c->standby &&
             ++tries < c->count);
    return result;
}

/* ==== 5  A stream of events =================================================================== */

static bool stream_field(pool_stream *s, const char *name, size_t bytes, const char *value)
{
    size_t len = strlen(value);
    if (bytes == 2 && memcmp(name, "id", 2) == 0) {
        snprintf(s->id, sizeof s->id, "%.23s", value);
    } else if (bytes == 4 && memcmp(name, "data", 4) == 0) {
        if (len + 1 >= sizeof s->data - s->data_bytes)
            return false;
        if (s->data_bytes)
            s->data[s->data_bytes++] = '\n';
        memcpy(s->data + s->data_bytes, value, len + 1);
        s->data_bytes += len;
    }
    return true; /* other fields: ignored, as the format wants it */
}

/* A line is whole; an empty one ends an event. */
static bool stream_line(pool_stream *s)
{
    size_t name;
    const char *value;
    s->line[s->line_bytes] = '\0';
    if (!s->line_bytes) {
        bool had = s->data_bytes != 0;
        s->data_bytes = 0;
        if (had && !s->on_event(s->user, s->id, s->data))
            s->over = true;
        return !s->over;
    }
    name = strcspn(s->line, ":");
    value = s->line + name + (s->line[name] == ':');
    s->line_bytes = 0;
    return stream_field(s, s->line, name, value + (*value == ' '));
}

static bool stream_started(pool_client *c)
{
    char *type = NULL;
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &c->status);
    curl_easy_getinfo(c->curl, CURLINFO_CONTENT_TYPE, &type);
    return c->status == 200 && type && strncasecmp(type, "text/event-stream", 17) == 0;
}

static bool stream_bytes(pool_client *c, const char *data, size_t bytes)
{
    pool_stream *s = c->stream;
    if (!stream_started(c)) /* a refusal, or no manager */
        return keep(c, data, bytes);
    for (size_t i = 0; i < bytes; i++) {
        bool end = data[i] == '\n' || data[i] == '\r', skip = data[i] == '\n' && s->return_seen;
        s->return_seen = data[i] == '\r';
        if (skip)
            continue;
        if (end ? !stream_line(s) : s->line_bytes + 1 >= sizeof s->line)
            return false;
        if (!end)
            s->line[s->line_bytes++] = data[i];
    }
    return true;
}

static pool_result stream_once(pool_client *c, const char *path, uint64_t after,
                               pool_on_event *on_event, void *user, bool *answered)
{
    pool_stream *s = calloc(1, sizeof *s); /* large */
    char last[64];
    CURLcode rc;
    pool_result result = POOL_WOKEN;
    *answered = false;
    if (!s)
        out_of_memory();
    s->on_event = on_event;
    s->user = user;
    c->stream = s;
    prepare(c, path, "Accept: text/event-stream", 0);
    snprintf(last, sizeof last, "Last-Event-ID: %" PRIu64, after);
    add_header(c, last);
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
    if (transfer(c, &rc) && !s->over) {
        *answered = stream_started(c);
        if (rc == CURLE_OK && !*answered)
            result = judge(c, path);
        else
            result = no_answer(c, rc == CURLE_OK ? CURLE_GOT_NOTHING : rc);
        if (result == POOL_NO_ANSWER)
            c->again = again_after(c, rc);
        if (result == POOL_DONE)
            result = no_manager(c, "it streams no events");
    }
    c->stream = NULL;
    free(s);
    return result;
}

pool_result pool_client_stream(pool_client *c, const char *path, uint64_t after,
                               pool_on_event *on_event, void *user, bool *answered)
{
    pool_result result;
    unsigned tries = 0;
    do {
        find_manager(c);
        result = stream_once(c, path, after, on_event, user, answered);
        if (result == POOL_NO_ANSWER)
            next_manager(c);
    } while (result == POOL_NO_ANSWER && !*answered && c->again == POOL_AGAIN_SAFE &&
             ++tries < c->count);
    return result;
}

/* ---- its life ---- */

const char *pool_client_open(pool_client *c, const pool_settings *set)
{
    bool safe = false;
    const char *why;
    memset(c, 0, sizeof *c);
    c->wake_fd = -1;
    c->timeout_s = set->timeout_s;
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        out_of_memory();
    c->curl = curl_easy_init();
    c->multi = curl_multi_init();
    if (!c->curl || !c->multi)
        out_of_memory();
    why = set_managers(c, set->manager, &safe);
    return why ? why : set_token(c, set, safe);
}

void pool_client_close(pool_client *c)
{
    json_decref(c->body);
    free(c->text);
    free(c->bearer);
    curl_slist_free_all(c->headers);
    curl_easy_cleanup(c->curl);
    curl_multi_cleanup(c->multi);
    curl_global_cleanup();
    memset(c, 0, sizeof *c);
}
