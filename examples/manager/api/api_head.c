/* api_head.c - see api_head.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api_head.h"
#include "store.h"

#include <arpa/inet.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

/* ==== 1  Characters =========================================================================== */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_token(const char *text)
{
    const char *p = text;
    while (*p && (is_alnum(*p) || strchr("!#$%&'*+-.^_`|~", *p)))
        p++;
    return p > text && !*p;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

const char *api_method_name(enum evhttp_cmd_type method)
{
    switch (method) {
    case EVHTTP_REQ_GET:
        return "GET";
    case EVHTTP_REQ_HEAD:
        return "HEAD";
    case EVHTTP_REQ_POST:
        return "POST";
    case EVHTTP_REQ_PUT:
        return "PUT";
    case EVHTTP_REQ_PATCH:
        return "PATCH";
    case EVHTTP_REQ_DELETE:
        return "DELETE";
    default:
        return "OPTIONS";
    }
}

/* ==== 2  Target =============================================================================== */

/* Characters of RFC 3986 but '#', and what is percent-encoded is printable ASCII: evhttp's decoder
   leaves a bad code as it is, and ends its text at %00. */
static bool is_target(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '%') {
            int high = hex_value(p[1]), low = high < 0 ? -1 : hex_value(p[2]);
            int c = high * 16 + low;
            if (low < 0 || c < ' ' || c > '~')
                return false;
            p += 2;
        } else if (!is_alnum(*p) && !strchr("-._~!$&'()*+,;=:@/?[]", *p)) {
            return false;
        }
    }
    return true;
}

/* A slash that is encoded is part of a name, and no name has one. */
static bool has_encoded_slash(const char *path)
{
    while ((path = strchr(path, '%')) != NULL) {
        if (path[1] == '2' && (path[2] == 'f' || path[2] == 'F'))
            return true;
        path++;
    }
    return false;
}

static unsigned read_target(api_head *h, const struct evhttp_request *q)
{
    const char *target = evhttp_request_get_uri(q);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(q);
    const char *scheme = evhttp_uri_get_scheme(uri), *path = evhttp_uri_get_path(uri);
    char *decoded;
    if (strlen(target) > API_TARGET_MAX_BYTES)
        return 414;
    if (!is_target(target))
        return 400;
    h->authority = evhttp_uri_get_host(uri);
    if (!strcmp(target, "*") && h->method == EVHTTP_REQ_OPTIONS)
        h->path = target;
    else if (scheme &&
             (strcasecmp(scheme, "http") != 0 || !h->authority || evhttp_uri_get_userinfo(uri)))
        return 400;
    else if (!scheme && *target != '/')
        return 400;
    else
        h->path = scheme && !*path ? "/" : path;
    if ((!scheme && h->authority) || has_encoded_slash(h->path))
        return 404; /* //host/path is a path here, and not one of ours */
    h->query = evhttp_uri_get_query(uri);
    decoded = evhttp_uridecode(h->path, 0, NULL);
    if (!decoded)
        return 503;
    memcpy(h->decoded, decoded, strlen(decoded) + 1);
    free(decoded);
    return 0;
}

/* ==== 3  Head ================================================================================= */

static bool is_value(const char *text)
{
    while (*text == '\t' || ((unsigned char)*text >= ' ' && *text != 0x7f))
        text++;
    return !*text;
}

static bool read_field(api_head *h, const char *name, const char *value)
{
    static const char *const names[] = {
#define API_FIELD_NAME(name, text) text,
        API_FIELDS(API_FIELD_NAME)
#undef API_FIELD_NAME
    };
    if (!is_token(name) || !is_value(value))
        return false;
    for (unsigned i = 0; i < API_FIELDS_END; i++) {
        if (strcasecmp(name, names[i]))
            continue;
        if (h->field[i])
            return false; /* who reads the first one and who the last? */
        h->field[i] = value;
    }
    return true;
}

/* Where the body ended for evhttp is where it ends for everybody. */
static unsigned check_framing(const api_head *h, const struct evhttp_request *q)
{
    const char *length = h->field[API_FIELD_CONTENT_LENGTH];
    const char *coding = h->field[API_FIELD_TRANSFER_ENCODING];
    bool bodyless = h->method == EVHTTP_REQ_HEAD; /* evhttp takes its body for the next request */
    if (coding && (length || !q->minor || bodyless))
        return 400;
    if (coding)
        return strcasecmp(coding, "chunked") ? 501 : 0;
    if (!length)
        return 0;
    if (!*length || length[strspn(length, "0123456789")])
        return 400;
    return bodyless && strspn(length, "0") != strlen(length) ? 400 : 0;
}

static unsigned check_host(const api_head *h, const struct evhttp_request *q)
{
    const char *host = h->field[API_FIELD_HOST];
    if (q->minor && !host)
        return 400;
    for (const char *p = host; p && *p; p++) {
        if (!is_alnum(*p) && !strchr("-._:[]", *p))
            return 400;
    }
    return 0;
}

unsigned api_head_read(api_head *h, struct evhttp_request *q)
{
    const struct evkeyval *f;
    unsigned fields = 0, rc;
    memset(h, 0, sizeof *h);
    h->method = evhttp_request_get_command(q);
    if (q->major != 1 || q->minor < 0 || q->minor > 1) {
        q->major = q->minor = 1; /* of the answer */
        return 505;
    }
    TAILQ_FOREACH(f, evhttp_request_get_input_headers(q), next)
    {
        if (++fields > API_FIELDS_MAX)
            return 431;
        if (!read_field(h, f->key, f->value))
            return 400;
    }
    rc = check_framing(h, q);
    if (!rc)
        rc = check_host(h, q);
    return rc ? rc : read_target(h, q);
}

/* ==== 4  Values =============================================================================== */

/* One range of an Accept field with its parameters: 0, 1 or 2 as api_accepts(). */
static unsigned range_takes(const char *range, size_t len, const char *type)
{
    size_t name = 0, major = strcspn(type, "/");
    const char *q;
    while (name < len && range[name] != ';' && range[name] != ' ' && range[name] != '\t')
        name++;
    for (q = range + name; q + 3 < range + len; q++) {
        /* q=0, q=0.0 and the like: not this */
        if ((*q == ';' || *q == ' ') && (q[1] == 'q' || q[1] == 'Q') && q[2] == '=' &&
            q[3] == '0') {
            const char *digit = q + 4;
            while (digit < range + len && (*digit == '.' || *digit == '0'))
                digit++;
            if (digit == range + len || !is_digit(*digit))
                return 0;
        }
    }
    if (name == strlen(type) && !strncasecmp(range, type, name))
        return 2;
    if (name == 3 && !strncmp(range, "*/*", 3))
        return 1;
    return name == major + 2 && !strncasecmp(range, type, major + 1) && range[major + 1] == '*';
}

unsigned api_accepts(const char *accept, const char *type)
{
    unsigned best = 0;
    if (!accept || !*accept)
        return 1;
    while (*accept) {
        size_t len = strcspn(accept, ",");
        unsigned takes = range_takes(accept, len, type);
        if (takes > best)
            best = takes;
        accept += len;
        accept += strspn(accept, ", \t");
    }
    return best;
}

bool api_is_type(const char *content_type, const char *type)
{
    size_t len = strlen(type);
    return content_type && !strncasecmp(content_type, type, len) &&
           (!content_type[len] || strchr("; \t", content_type[len]));
}

bool api_is_loopback(const char *host)
{
    size_t name = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    unsigned dots = 0;
    if (name > strlen(host) || (host[name] && host[name] != ':'))
        return false;
    if (host[name] && host[name + 1 + strspn(host + name + 1, "0123456789")])
        return false;
    if ((name == 9 && !strncasecmp(host, "localhost", 9)) ||
        (name == 5 && !strncmp(host, "[::1]", 5)))
        return true;
    if (strncmp(host, "127.", 4) || strspn(host, "0123456789.") != name)
        return false;
    for (size_t i = 0; i < name; i++)
        dots += host[i] == '.';
    return dots == 3;
}

/* Of a URL: a name or address that other machines can reach. */
static bool is_elsewhere(const char *host)
{
    unsigned char ip[16];
    const char *last = strrchr(host, '.');
    size_t len = strlen(host);
    last = last ? last + 1 : host;
    if (*host == '[') {
        char inner[64];
        snprintf(inner, sizeof inner, "%.*s", (int)(len - 2), host + 1);
        static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
        if (host[len - 1] != ']' || inet_pton(AF_INET6, inner, ip) != 1)
            return false;
        if (!memcmp(ip, mapped, sizeof mapped))
            return ip[12] && ip[12] != 127;
        return !IN6_IS_ADDR_LOOPBACK((struct in6_addr *)(void *)ip) &&
               !IN6_IS_ADDR_UNSPECIFIED((struct in6_addr *)(void *)ip);
    }
    if (inet_pton(AF_INET, host, ip) == 1)
        return ip[0] && ip[0] != 127;
    if (!*last || last[strspn(last, "0123456789")] == '\0' || !strncasecmp(last, "0x", 2))
        return false; /* 127.1, 0x7f000001 */
    return strcasecmp(last, "localhost") != 0 &&
           strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == len;
}

const char *api_check_users_at(const char *url)
{
    static const char wrong[] = "--users-at: must be https://HOST[:PORT], or http://HOST[:PORT] "
                                "without TLS, of fewer than 200 characters";
    size_t scheme = !strncmp(url, "https://", 8) ? 8 : !strncmp(url, "http://", 7) ? 7 : 0;
    const char *at = url + scheme, *colon = at + (*at == '[' ? strcspn(at, "]") : 0);
    char host[STORE_USERS_BYTES], *end = NULL;
    colon += strcspn(colon, ":");
    if (!scheme || strlen(url) >= STORE_USERS_BYTES || colon == at)
        return wrong;
    if (*colon && (!is_digit(colon[1]) || strtoul(colon + 1, &end, 10) - 1 >= 65535 || *end))
        return wrong;
    snprintf(host, sizeof host, "%.*s", (int)(colon - at), at);
    return is_elsewhere(host) ? NULL
                              : "--users-at: must be an address that other machines can reach, "
                                "such as https://pool-a.example";
}
