/* api_http.c - see api_http.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api_http.h"

#include <string.h>
#include <strings.h>

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

/* ==== 2  Target =============================================================================== */

/* Append the decoded text; NULL when it is not printable ASCII or wrongly encoded. */
static const char *decode(const char *from, size_t len, char **at)
{
    const char *begin = *at;
    for (size_t i = 0; i < len; i++) {
        int c = from[i];
        if (c == '%') {
            int high = i + 2 < len ? hex_value(from[i + 1]) : -1;
            int low = i + 2 < len ? hex_value(from[i + 2]) : -1;
            if (high < 0 || low < 0)
                return NULL;
            c = high * 16 + low;
            i += 2;
        }
        if (c < ' ' || c > '~')
            return NULL;
        *(*at)++ = (char)c;
    }
    *(*at)++ = '\0';
    return begin;
}

static int read_path(http_request *q, char **at)
{
    for (const char *p = q->path; *p;) {
        size_t len = strcspn(++p, "/");
        const char *segment;
        if (q->segments >= HTTP_SEGMENTS_MAX) {
            q->segments = HTTP_SEGMENTS_MAX + 1;
            return 0;
        }
        segment = decode(p, len, at);
        if (!segment)
            return 400;
        q->segment[q->segments++] = segment;
        p += len;
    }
    return 0;
}

static int read_query(http_request *q, const char *query, char **at)
{
    while (query && *query) {
        size_t len = strcspn(query, "&"), name = strcspn(query, "=&");
        http_param *p = &q->param[q->params];
        if (!len || q->params == HTTP_PARAMS_MAX)
            return 400;
        p->name = decode(query, name, at);
        p->value = name < len ? decode(query + name + 1, len - name - 1, at) : "";
        if (!p->name || !p->value)
            return 400;
        for (unsigned i = 0; i < q->params; i++) {
            if (!strcmp(q->param[i].name, p->name))
                return 400;
        }
        q->params++;
        query += len + (query[len] == '&');
    }
    return 0;
}

/* http://host[:port]/path becomes host[:port] and /path.  There is room: the scheme goes. */
static char *take_authority(http_request *q, char *target)
{
    size_t len;
    if (strncasecmp(target, "http://", 7))
        return target;
    target += 7;
    len = strcspn(target, "/?");
    memmove(target - 1, target, len);
    target[len - 1] = '\0';
    q->authority = target - 1;
    return target + len;
}

static int read_target(http_request *q, char *target)
{
    char *at = q->decoded, *query;
    int rc;
    if (strlen(target) > HTTP_TARGET_MAX_BYTES)
        return 414;
    for (const char *p = target; *p; p++) {
        if (!is_alnum(*p) && !strchr("-._~%!$&'()*+,;=:@/?[]", *p))
            return 400;
    }
    if (!strcmp(target, "*") && q->method == HTTP_OPTIONS) {
        q->path = target;
        return 0;
    }
    target = take_authority(q, target);
    query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    q->path = *target || !q->authority ? target : "/";
    if (*q->path != '/')
        return 400;
    rc = read_path(q, &at);
    return rc ? rc : read_query(q, query, &at);
}

/* ==== 3  Head ================================================================================= */

const char *http_method_name(http_method m)
{
    static const char *const names[] = {
#define HTTP_METHOD_NAME(name) #name,
        HTTP_METHODS(HTTP_METHOD_NAME)
#undef HTTP_METHOD_NAME
    };
    return m < HTTP_METHODS_END ? names[m] : "?";
}

static int read_request_line(http_request *q, char *line)
{
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    unsigned m = 0;
    if (!version || strchr(version + 1, ' '))
        return 400;
    *target++ = '\0';
    *version++ = '\0';
    if (!is_token(line) || strlen(version) != 8 || strncmp(version, "HTTP/", 5) ||
        !is_digit(version[5]) || version[6] != '.' || !is_digit(version[7]))
        return 400;
    if (version[5] != '1')
        return 505;
    q->minor = version[7] == '0' ? 0 : 1;
    q->close = q->minor == 0;
    while (m < HTTP_METHODS_END && strcmp(line, http_method_name((http_method)m)))
        m++;
    q->method = (http_method)m;
    return m == HTTP_METHODS_END ? 501 : read_target(q, target);
}

static int read_field(http_request *q, char *line)
{
    static const char *const names[] = {
#define HTTP_FIELD_NAME(name, text) text,
        HTTP_FIELDS(HTTP_FIELD_NAME)
#undef HTTP_FIELD_NAME
    };
    char *value = strchr(line, ':'), *end;
    if (!value)
        return 400;
    *value++ = '\0';
    if (!is_token(line))
        return 400; /* a blank before the colon, a folded line */
    value += strspn(value, " \t");
    for (end = value + strlen(value); end > value && (end[-1] == ' ' || end[-1] == '\t');)
        *--end = '\0';
    for (unsigned i = 0; i < HTTP_FIELDS_END; i++) {
        if (strcasecmp(line, names[i]))
            continue;
        if (q->field[i])
            return 400; /* who reads the first one and who the last? */
        q->field[i] = value;
    }
    return 0;
}

/* Where the body ends. */
static int read_framing(http_reader *r)
{
    const char *length = r->request.field[HTTP_FIELD_CONTENT_LENGTH];
    const char *coding = r->request.field[HTTP_FIELD_TRANSFER_ENCODING];
    if (coding) {
        if (length || !r->request.minor)
            return 400;
        r->chunked = true;
        return strcasecmp(coding, "chunked") ? 501 : 0;
    }
    if (!length)
        return 0;
    if (!*length || length[strspn(length, "0123456789")])
        return 400;
    for (; *length; length++) {
        r->left = r->left * 10 + (uint64_t)(*length - '0');
        if (r->left > HTTP_BODY_MAX_BYTES)
            return 413;
    }
    return 0;
}

/* A list of words, one of them this. */
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    while (list && *list) {
        size_t n = strcspn(list, ", \t");
        if (n == len && !strncasecmp(list, word, len))
            return true;
        list += n;
        list += strspn(list, ", \t");
    }
    return false;
}

static int read_meaning(http_reader *r)
{
    http_request *q = &r->request;
    const char *host = q->field[HTTP_FIELD_HOST], *expect = q->field[HTTP_FIELD_EXPECT];
    int rc = read_framing(r);
    if (rc)
        return rc;
    if (q->minor && !host)
        return 400;
    for (const char *p = host; p && *p; p++) {
        if (!is_alnum(*p) && !strchr("-._:[]", *p))
            return 400;
    }
    if (expect && strcasecmp(expect, "100-continue"))
        return 417;
    q->expects = expect && q->minor && (r->left || r->chunked);
    q->close = q->minor ? has_word(q->field[HTTP_FIELD_CONNECTION], "close")
                        : !has_word(q->field[HTTP_FIELD_CONNECTION], "keep-alive");
    return 0;
}

static int read_head(http_reader *r)
{
    http_request *q = &r->request;
    char *line = r->room;
    unsigned fields = 0;
    int rc;
    for (;; fields++) {
        char *end = strchr(line, '\r'); /* scan_head() saw that there is one */
        *end = '\0';
        if (end == line)
            break;
        if (fields > HTTP_FIELDS_MAX)
            return 431;
        rc = fields ? read_field(q, line) : read_request_line(q, line);
        if (rc)
            return rc;
        line = end + 2;
    }
    return fields ? read_meaning(r) : 400;
}

/* Look for its end, and at each byte. */
static int scan_head(http_reader *r)
{
    while (r->scanned < r->len) {
        size_t i = r->scanned;
        unsigned char c = (unsigned char)r->room[i];
        unsigned char last = i ? (unsigned char)r->room[i - 1] : 0;
        if ((c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 0x7f)
            return 400;
        if ((c == '\n') != (last == '\r'))
            return 400;
        if (i >= HTTP_HEAD_MAX_BYTES)
            return memchr(r->room, '\n', i) ? 431 : 414;
        r->scanned++;
        if (c == '\n' && i == 1 && !r->blank) { /* one empty line ahead is borne (RFC 9112 2.2) */
            r->blank = true;
            r->scanned = 0;
            r->len -= 2;
            memmove(r->room, r->room + 2, r->len);
        } else if (c == '\n' && (i == 1 || (i >= 3 && r->room[i - 2] == '\n'))) {
            r->head = r->raw = r->scanned;
            return read_head(r);
        }
    }
    return HTTP_MORE;
}

/* ==== 4  Body ================================================================================= */

enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, CHUNK_TRAILER, CHUNK_DONE, CHUNK_LINE_MAX = 256 };

/* The line at r->raw, zero-terminated in its place and stepped over. */
static int chunk_line(http_reader *r, char **line)
{
    char *begin = r->room + r->raw;
    size_t have = r->len - r->raw;
    char *end = memchr(begin, '\n', have < CHUNK_LINE_MAX ? have : CHUNK_LINE_MAX);
    if (!end)
        return have < CHUNK_LINE_MAX ? HTTP_MORE : 400;
    if (end == begin || end[-1] != '\r' || memchr(begin, '\0', (size_t)(end - begin)))
        return 400;
    end[-1] = '\0';
    r->raw += (size_t)(end - begin) + 1;
    *line = begin;
    return HTTP_COMPLETE;
}

static int chunk_size(http_reader *r, const char *line)
{
    size_t digits = strspn(line, "0123456789abcdefABCDEF");
    if (!digits || digits > 8 || (line[digits] && line[digits] != ';'))
        return 400;
    r->left = 0;
    for (size_t i = 0; i < digits; i++)
        r->left = r->left * 16 + (uint64_t)hex_value(line[i]);
    r->phase = r->left ? CHUNK_DATA : CHUNK_TRAILER;
    return r->left > HTTP_BODY_MAX_BYTES - r->request.body_bytes ? 413 : 0;
}

/* What is there of the data moves to the end of the body. */
static void chunk_data(http_reader *r)
{
    size_t have = r->len - r->raw, n = have < r->left ? have : (size_t)r->left;
    memmove(r->room + r->head + r->request.body_bytes, r->room + r->raw, n);
    r->request.body_bytes += n;
    r->raw += n;
    r->left -= n;
    if (!r->left)
        r->phase = CHUNK_END;
}

static int read_chunks(http_reader *r)
{
    while (r->phase != CHUNK_DONE) {
        char *line = NULL;
        int rc;
        if (r->phase == CHUNK_DATA) {
            chunk_data(r);
            if (r->left)
                return HTTP_MORE;
            continue;
        }
        rc = chunk_line(r, &line);
        if (rc != HTTP_COMPLETE)
            return rc;
        if (r->phase == CHUNK_SIZE) {
            rc = chunk_size(r, line);
            if (rc)
                return rc;
        } else if (r->phase == CHUNK_END) {
            if (*line)
                return 400;
            r->phase = CHUNK_SIZE;
        } else if (!*line) { /* else: fields behind the body mean nothing here */
            r->phase = CHUNK_DONE;
        }
    }
    return HTTP_COMPLETE;
}

static int read_body(http_reader *r)
{
    if (!r->chunked) {
        if (r->len - r->head < r->left)
            return HTTP_MORE;
        r->request.body_bytes = (size_t)r->left;
        r->raw = r->head + (size_t)r->left;
    } else {
        int rc = read_chunks(r);
        if (rc != HTTP_COMPLETE)
            return rc;
    }
    r->request.body = r->room + r->head;
    return HTTP_COMPLETE;
}

/* ==== 5  Reader =============================================================================== */

static void clear(http_reader *r)
{
    r->scanned = r->head = r->raw = 0;
    r->left = 0;
    r->chunked = r->blank = false;
    r->phase = CHUNK_SIZE;
    memset(&r->request, 0, offsetof(http_request, decoded));
}

void http_begin(http_reader *r, char *room)
{
    r->room = room;
    r->len = 0;
    clear(r);
}

bool http_put(http_reader *r, const void *bytes, size_t len)
{
    if (len > HTTP_ROOM_BYTES - r->len)
        return false;
    memcpy(r->room + r->len, bytes, len);
    r->len += len;
    return true;
}

int http_read(http_reader *r)
{
    if (!r->head) {
        int rc = scan_head(r);
        if (rc || !r->head)
            return rc;
    }
    return read_body(r);
}

void http_next(http_reader *r)
{
    r->len -= r->raw;
    memmove(r->room, r->room + r->raw, r->len);
    clear(r);
}

bool http_has_head(const http_reader *r)
{
    return r->head > 0;
}

/* ==== 6  Words ================================================================================ */

static const struct {
    unsigned status;
    const char *text;
} reasons[] = {
    { 200, "OK" },
    { 201, "Created" },
    { 204, "No Content" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 403, "Forbidden" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 406, "Not Acceptable" },
    { 408, "Request Timeout" },
    { 409, "Conflict" },
    { 413, "Content Too Large" },
    { 414, "URI Too Long" },
    { 415, "Unsupported Media Type" },
    { 417, "Expectation Failed" },
    { 431, "Request Header Fields Too Large" },
    { 500, "Internal Server Error" },
    { 501, "Not Implemented" },
    { 503, "Service Unavailable" },
    { 505, "HTTP Version Not Supported" },
};
_Static_assert(sizeof reasons / sizeof reasons[0] == HTTP_STATUSES, "count them in api_http.h");

const char *http_reason(unsigned status)
{
    for (unsigned i = 0; i < HTTP_STATUSES; i++) {
        if (reasons[i].status == status)
            return reasons[i].text;
    }
    return "Unknown";
}

unsigned http_status(unsigned index)
{
    return index < HTTP_STATUSES ? reasons[index].status : 0;
}

/* One range of an Accept field with its parameters: 0, 1 or 2 as http_accepts(). */
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

unsigned http_accepts(const char *accept, const char *type)
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

bool http_is_type(const char *content_type, const char *type)
{
    size_t len = strlen(type);
    return content_type && !strncasecmp(content_type, type, len) &&
           (!content_type[len] || strchr("; \t", content_type[len]));
}

bool http_is_loopback(const char *host)
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
