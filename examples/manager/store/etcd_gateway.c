/* etcd_gateway.c - see etcd_gateway.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "etcd_gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <curl/curl.h>

#define SCHEME "etcd://"

/* gRPC's codes of requests that etcd refused before or while it carried them out: nothing was
   done, but by a transaction for which there was no space (CODE_EXHAUSTED).  Others (unavailable,
   deadline exceeded, unknown, internal) say nothing. */
enum {
    CODE_INVALID = 3,
    CODE_NOT_FOUND = 5,
    CODE_PERMISSION = 7,
    CODE_EXHAUSTED = 8,
    CODE_PRECONDITION = 9,
    CODE_RANGE = 11,
    CODE_UNAUTHENTICATED = 16
};

typedef struct exchange {
    CURL *curl;
    char *body, *got; /* sent; received */
    size_t len, room;
    unsigned member;
    bool busy, over, too_large;
    CURLcode rc;
    char error[CURL_ERROR_SIZE];
} exchange;

struct etcd_gateway {
    etcd_address at;
    etcd_tls tls;
    CURLM *multi;
    struct curl_slist *headers;
    exchange front, back;
    unsigned member;     /* that the next request goes to */
    uint64_t cluster_id; /* 0: not known yet */
};

uint64_t etcd_now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

void etcd_sleep_ms(unsigned ms)
{
    struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };
    (void)nanosleep(&t, NULL);
}

/* ==== Address ================================================================================= */

bool etcd_address_is(const char *text)
{
    return strncmp(text, SCHEME, strlen(SCHEME)) == 0;
}

/* The port behind the host, which is a name, an IPv4 address or an IPv6 address in brackets; NULL:
   there is none. */
static const char *port_of(const char *host)
{
    const char *end = *host == '[' ? strchr(host, ']') : host;
    const char *colon = end ? strchr(end, ':') : NULL;
    return colon ? colon + 1 : NULL;
}

static bool member_parse(const char *text, size_t len, char out[ETCD_HOST_BYTES])
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
                               ":[]";
    if (!len || len > ETCD_HOST_BYTES - 8 || *text == ':')
        return false;
    memcpy(out, text, len);
    out[len] = 0;
    const char *port = port_of(out);
    if (strspn(out, good) != len || (*out == '[' && !strchr(out, ']')))
        return false;
    if (port && (!*port || strlen(port) > 5 || strspn(port, "0123456789") != strlen(port)))
        return false;
    if (!port)
        snprintf(out + len, ETCD_HOST_BYTES - len, ":%d", (int)ETCD_PORT);
    return true;
}

const char *etcd_address_parse(const char *text, etcd_address *out)
{
    memset(out, 0, sizeof *out);
    if (!etcd_address_is(text))
        return "an address of etcd begins with etcd://";
    text += strlen(SCHEME);
    const char *slash = strchr(text, '/'), *end = slash ? slash : text + strlen(text);
    while (text <= end) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        size_t len = (size_t)((comma ? comma : end) - text);
        if (out->members == ETCD_MEMBERS_MAX)
            return "etcd:// with more than 9 members";
        if (!member_parse(text, len, out->member[out->members++]))
            return "etcd:// must be followed by HOST[:PORT][,HOST[:PORT]...][/PREFIX]";
        text += len + 1;
    }
    size_t len = slash ? strlen(slash) : 0;
    while (len && slash[len - 1] == '/')
        len--;
    if (len >= ETCD_PREFIX_BYTES)
        return "etcd:// with a prefix of more than 64 characters";
    snprintf(out->prefix, sizeof out->prefix, "%.*s", len ? (int)len : 5, len ? slash : "/dxpu");
    for (const char *c = out->prefix; *c; c++)
        if (*c <= ' ' || *c > '~')
            return "etcd:// with a prefix that is not printable ASCII without spaces";
    return NULL;
}

bool etcd_address_is_local(const etcd_address *a)
{
    bool local = true;
    for (unsigned i = 0; i < a->members; i++) {
        const char *m = a->member[i];
        local = local && (strncmp(m, "127.", 4) == 0 || strncmp(m, "[::1]:", 6) == 0 ||
                          strncmp(m, "localhost:", 10) == 0);
        if (local && strncmp(m, "127.", 4) == 0) /* not a name that begins so */
            local = strspn(m, "0123456789.") == strcspn(m, ":");
    }
    return local;
}

/* ==== Members of requests and answers ========================================================= */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

json_t *etcd_bytes(const void *bytes, size_t len)
{
    const unsigned char *in = bytes;
    char *text = malloc((len + 2) / 3 * 4 + 1), *out = text;
    if (!text)
        return NULL;
    for (; len >= 3; len -= 3, in += 3) {
        *out++ = digits[in[0] >> 2];
        *out++ = digits[(in[0] & 3) << 4 | in[1] >> 4];
        *out++ = digits[(in[1] & 15) << 2 | in[2] >> 6];
        *out++ = digits[in[2] & 63];
    }
    if (len) {
        unsigned second = len == 2 ? in[1] : 0;
        *out++ = digits[in[0] >> 2];
        *out++ = digits[(in[0] & 3u) << 4 | second >> 4];
        *out++ = len == 2 ? digits[(second & 15) << 2] : '=';
        *out++ = '=';
    }
    json_t *j = json_stringn_nocheck(text, (size_t)(out - text));
    free(text);
    return j;
}

json_t *etcd_number(uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return json_string(text);
}

bool etcd_number_read(const json_t *object, const char *name, uint64_t *out)
{
    const json_t *j = json_object_get(object, name);
    const char *text = json_string_value(j);
    *out = 0;
    if (!j)
        return true;
    if (json_is_integer(j) && json_integer_value(j) >= 0) {
        *out = (uint64_t)json_integer_value(j);
        return true;
    }
    if (!text || !*text || strlen(text) > 19 || strspn(text, "0123456789") != strlen(text))
        return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

static unsigned digit_value(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (unsigned)(at - digits) : 64;
}

char *etcd_bytes_read(const json_t *object, const char *name, size_t *len)
{
    const json_t *j = json_object_get(object, name);
    const char *text = j ? json_string_value(j) : "";
    size_t chars = text ? strlen(text) : 1;
    *len = 0;
    while (chars && text && text[chars - 1] == '=')
        chars--;
    char *out = text && chars % 4 != 1 ? malloc(chars / 4 * 3 + 3) : NULL;
    uint32_t bits = 0;
    for (size_t i = 0; out && i < chars; i++) {
        unsigned value = digit_value(text[i]);
        if (value == 64) {
            free(out);
            return NULL;
        }
        bits = bits << 6 | value;
        if (i % 4)
            out[(*len)++] = (char)(bits >> (6 - i % 4 * 2) & 0xff);
    }
    if (out)
        out[*len] = 0;
    return out;
}

/* ==== Requests ================================================================================ */

static size_t on_bytes(char *bytes, size_t one, size_t count, void *user)
{
    exchange *x = user;
    size_t len = one * count;
    if (len > ETCD_ANSWER_MAX_BYTES - x->len) {
        x->too_large = true;
        return 0;
    }
    if (x->len + len > x->room) {
        size_t room = 2 * (x->len + len);
        char *more = realloc(x->got, room);
        if (!more)
            return 0;
        x->got = more;
        x->room = room;
    }
    memcpy(x->got + x->len, bytes, len);
    x->len += len;
    return len;
}

/* False: libcurl cannot do what was asked for.  Whoever the system trusts does not vouch for
   members of etcd: only `ca` does. */
static bool set_tls(CURL *c, const etcd_tls *tls)
{
    CURLcode rc = curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, tls->ca ? "https" : "http");
    if (!rc && tls->ca)
        rc = curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (!rc && tls->ca)
        rc = curl_easy_setopt(c, CURLOPT_CAINFO, tls->ca);
    if (!rc && tls->ca) {
        rc = curl_easy_setopt(c, CURLOPT_CAPATH, NULL);
        if (rc == CURLE_NOT_BUILT_IN) /* a TLS library that has no such directory */
            rc = CURLE_OK;
    }
    if (!rc && tls->cert)
        rc = curl_easy_setopt(c, CURLOPT_SSLCERT, tls->cert);
    if (!rc && tls->key)
        rc = curl_easy_setopt(c, CURLOPT_SSLKEY, tls->key);
    return rc == CURLE_OK;
}

static bool exchange_begin(etcd_gateway *g, exchange *x, const char *path, json_t *body,
                           unsigned connect_ms, unsigned timeout_ms)
{
    char url[ETCD_HOST_BYTES + 64];
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    free(x->body);
    x->body = text;
    x->len = 0;
    x->over = x->too_large = false;
    x->member = g->member;
    x->error[0] = 0;
    if (!text)
        return false;
    snprintf(url, sizeof url, "http%s://%s/v3/%s", g->tls.ca ? "s" : "", g->at.member[x->member],
             path);
    curl_easy_reset(x->curl); /* connections stay */
    curl_easy_setopt(x->curl, CURLOPT_URL, url);
    if (!set_tls(x->curl, &g->tls))
        return false;
    curl_easy_setopt(x->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(x->curl, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700 /* else it waits for a name server that does not answer */
    curl_easy_setopt(x->curl, CURLOPT_QUICK_EXIT, 1L);
#endif
    curl_easy_setopt(x->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
    curl_easy_setopt(x->curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(x->curl, CURLOPT_HTTPHEADER, g->headers);
    curl_easy_setopt(x->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(text));
    curl_easy_setopt(x->curl, CURLOPT_POSTFIELDS, text);
    curl_easy_setopt(x->curl, CURLOPT_ERRORBUFFER, x->error);
    curl_easy_setopt(x->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(x->curl, CURLOPT_WRITEDATA, x);
    x->busy = curl_multi_add_handle(g->multi, x->curl) == CURLM_OK;
    return x->busy;
}

static void exchange_end(etcd_gateway *g, exchange *x)
{
    if (x->busy)
        curl_multi_remove_handle(g->multi, x->curl);
    x->busy = false;
}

/* Both exchanges go on. */
static bool step(etcd_gateway *g)
{
    int running, left;
    const CURLMsg *m;
    if (curl_multi_perform(g->multi, &running))
        return false;
    while ((m = curl_multi_info_read(g->multi, &left))) {
        exchange *x = m->easy_handle == g->front.curl ? &g->front : &g->back;
        if (m->msg == CURLMSG_DONE) {
            x->over = true;
            x->rc = m->data.result;
        }
    }
    return true;
}

/* ==== Answers ================================================================================= */

static etcd_answer fail(const etcd_gateway *g, const exchange *x, etcd_fate fate, const char *text)
{
    etcd_answer a = { .fate = fate, .member = x->member };
    snprintf(a.text, sizeof a.text, "%.80s: %.110s", g->at.member[x->member], text);
    return a;
}

/* libcurl made no connection over which the request could have gone.  One that it used before and
   that broke off may have taken it before: then it was sent twice. */
static bool is_unsent(const exchange *x)
{
    long sent = 0;
    curl_easy_getinfo(x->curl, CURLINFO_REQUEST_SIZE, &sent);
    if (sent)
        return false;
    switch (x->rc) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        return true;
    default:
        return false;
    }
}

static bool is_refusal(unsigned code)
{
    return code == CODE_INVALID || code == CODE_NOT_FOUND || code == CODE_PERMISSION ||
           code == CODE_EXHAUSTED || code == CODE_PRECONDITION || code == CODE_RANGE ||
           code == CODE_UNAUTHENTICATED;
}

/* {"error":"etcdserver: mvcc: database space exceeded","message":...,"code":8} */
static etcd_answer error_answer(const etcd_gateway *g, const exchange *x, json_t *j, long status)
{
    char text[32];
    const char *why = json_string_value(json_object_get(j, "message"));
    const json_t *code = json_object_get(j, "code");
    long long number = json_is_integer(code) ? json_integer_value(code) : -1;
    bool known = status >= 400 && number >= 0 && number <= 16;
    snprintf(text, sizeof text, "HTTP status %ld", status);
    if (!why)
        why = json_string_value(json_object_get(j, "error"));
    bool refused = known && is_refusal((unsigned)number);
    etcd_answer a = fail(g, x, refused ? ETCD_REFUSED : ETCD_UNKNOWN, why ? why : text);
    a.code = refused ? (unsigned)number : 0;
    return a;
}

/* Answers of streams are in `result`. */
static etcd_answer good_answer(etcd_gateway *g, const exchange *x, json_t *j)
{
    uint64_t cluster;
    json_t *result = json_object_get(j, "result");
    if (json_is_object(result)) {
        json_incref(result);
        json_decref(j);
        j = result;
    }
    etcd_answer a = { .fate = ETCD_DONE, .json = j, .member = x->member };
    json_t *header = json_object_get(j, "header");
    bool good = json_is_object(header) && etcd_number_read(header, "revision", &a.revision) &&
                json_is_string(json_object_get(header, "cluster_id"));
    if (good) { /* of 64 bits: it only has to be the same */
        cluster = strtoull(json_string_value(json_object_get(header, "cluster_id")), NULL, 10);
        if (!g->cluster_id)
            g->cluster_id = cluster;
        if (g->cluster_id == cluster)
            return a;
    }
    json_decref(j);
    a = fail(g, x, ETCD_UNKNOWN,
             good ? "it is a member of another cluster than the others" : "no answer of etcd");
    a.other = good;
    return a;
}

static etcd_answer read_answer(etcd_gateway *g, const exchange *x)
{
    long status = 0;
    if (x->rc != CURLE_OK) {
        const char *why = x->too_large  ? "the answer is too large"
                          : x->error[0] ? x->error
                                        : curl_easy_strerror(x->rc);
        etcd_answer a = fail(g, x, is_unsent(x) ? ETCD_UNSENT : ETCD_UNKNOWN, why);
        a.code = x->too_large ? CODE_EXHAUSTED : 0;
        return a;
    }
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    json_t *j = json_loadb(x->got ? x->got : "", x->len, 0, NULL);
    if (json_is_object(j) && status == 200 && !json_object_get(j, "error"))
        return good_answer(g, x, j);
    etcd_answer a = error_answer(g, x, j, status);
    json_decref(j);
    return a;
}

/* The answer of an exchange that is over; after a bad one the next member is asked. */
static etcd_answer finish(etcd_gateway *g, exchange *x)
{
    etcd_answer a = read_answer(g, x);
    exchange_end(g, x);
    if (a.fate != ETCD_DONE && a.fate != ETCD_REFUSED && g->member == x->member)
        g->member = (g->member + 1) % g->at.members;
    return a;
}

etcd_answer etcd_ask(etcd_gateway *g, const char *path, json_t *body, unsigned timeout_ms)
{
    exchange *x = &g->front;
    uint64_t end_ms = etcd_now_ms() + timeout_ms + 1000; /* libcurl ends it before */
    bool good = exchange_begin(g, x, path, body, (timeout_ms + 1) / 2, timeout_ms);
    if (!good)
        return fail(g, x, ETCD_UNSENT, "no memory, or libcurl lacks TLS");
    while ((good = step(g)) && !x->over && etcd_now_ms() < end_ms)
        if (curl_multi_poll(g->multi, NULL, 0, 100, NULL))
            break;
    if (x->over)
        return finish(g, x);
    exchange_end(g, x);
    g->member = (g->member + 1) % g->at.members;
    return fail(g, x, ETCD_UNKNOWN, "no answer");
}

bool etcd_start(etcd_gateway *g, const char *path, json_t *body, unsigned timeout_ms)
{
    if (g->back.busy) {
        json_decref(body);
        return false;
    }
    if (!exchange_begin(g, &g->back, path, body, timeout_ms, timeout_ms))
        return false;
    (void)step(g); /* on a connection that is there it is sent at once */
    return true;
}

bool etcd_is_busy(const etcd_gateway *g)
{
    return g->back.busy;
}

bool etcd_poll(etcd_gateway *g, etcd_answer *out)
{
    if (!g->back.busy)
        return false;
    (void)step(g);
    if (!g->back.over)
        return false;
    *out = finish(g, &g->back);
    return true;
}

/* ==== Opening ================================================================================= */

etcd_gateway *etcd_gateway_open(const etcd_address *a, const etcd_tls *tls)
{
    etcd_gateway *g = calloc(1, sizeof *g);
    if (!g || curl_global_init(CURL_GLOBAL_DEFAULT)) {
        free(g);
        return NULL;
    }
    g->at = *a;
    g->tls = *tls;
    g->multi = curl_multi_init();
    g->front.curl = curl_easy_init();
    g->back.curl = curl_easy_init();
    g->headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *more = g->headers ? curl_slist_append(g->headers, "Expect:") : NULL;
    if (more && g->multi && g->front.curl && g->back.curl)
        return g;
    etcd_gateway_close(g);
    return NULL;
}

static void exchange_free(etcd_gateway *g, exchange *x)
{
    exchange_end(g, x);
    if (x->curl)
        curl_easy_cleanup(x->curl);
    free(x->body);
    free(x->got);
}

void etcd_gateway_close(etcd_gateway *g)
{
    if (!g)
        return;
    exchange_free(g, &g->front);
    exchange_free(g, &g->back);
    if (g->multi)
        curl_multi_cleanup(g->multi);
    curl_slist_free_all(g->headers);
    curl_global_cleanup();
    free(g);
}
