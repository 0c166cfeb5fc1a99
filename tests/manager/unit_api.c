/* unit_api.c - the manager's HTTP server without its sockets: what heads say, members out of JSON,
   tokens out of a file
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api_head.h"
#include <event2/http_struct.h>
#include "api_requests.h"
#include "api_tokens.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t chance(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ==== Heads =================================================================================== */

static struct evhttp_request *request;
static api_head head;

/* As evhttp leaves it: fields is "Name: value|Name: value". */
static unsigned read_head(enum evhttp_cmd_type method, const char *target, int minor,
                          const char *fields)
{
    if (request)
        evhttp_request_free(request);
    request = evhttp_request_new(NULL, NULL);
    assert_non_null(request);
    request->type = method;
    request->major = 1;
    request->minor = (char)minor;
    request->uri = strdup(target);
    request->uri_elems = evhttp_uri_parse_with_flags(target, EVHTTP_URI_NONCONFORMANT);
    assert_non_null(request->uri_elems);
    while (*fields) {
        char name[64], value[64];
        size_t len = strcspn(fields, "|"), n = strcspn(fields, ":");
        snprintf(name, sizeof name, "%.*s", (int)n, fields);
        snprintf(value, sizeof value, "%.*s", (int)(len - n - 2), fields + n + 2);
        assert_int_equal(evhttp_add_header(request->input_headers, name, value), 0);
        fields += len + (fields[len] == '|');
    }
    return api_head_read(&head, request);
}

static int forget(void **state)
{
    (void)state;
    if (request)
        evhttp_request_free(request);
    request = NULL;
    return 0;
}

static void test_head_is_read(void **state)
{
    (void)state;
    assert_int_equal(read_head(EVHTTP_REQ_GET, "/v1/%73lots?state=a%20b", 1,
                               "hOsT: localhost|X-Other: 1|Accept: */*"),
                     0);
    assert_string_equal(head.path, "/v1/%73lots");
    assert_string_equal(head.decoded, "/v1/slots");
    assert_string_equal(head.query, "state=a%20b");
    assert_string_equal(head.field[API_FIELD_HOST], "localhost");
    assert_string_equal(head.field[API_FIELD_ACCEPT], "*/*");
    assert_null(head.field[API_FIELD_ORIGIN]);
    assert_null(head.authority);
    assert_int_equal(read_head(EVHTTP_REQ_GET, "http://a:1/b?c=d", 0, ""), 0);
    assert_string_equal(head.authority, "a");
    assert_string_equal(head.decoded, "/b");
    assert_int_equal(read_head(EVHTTP_REQ_GET, "http://[::1]:1?c=d", 0, ""), 0);
    assert_string_equal(head.authority, "[::1]");
    assert_string_equal(head.decoded, "/");
    assert_string_equal(head.query, "c=d");
    assert_int_equal(read_head(EVHTTP_REQ_OPTIONS, "*", 1, "Host: a"), 0);
    assert_string_equal(head.path, "*");
    assert_int_equal(read_head(EVHTTP_REQ_PUT, "/", 1, "Host: a|Transfer-Encoding: Chunked"), 0);
    assert_int_equal(read_head(EVHTTP_REQ_HEAD, "/", 1, "Host: a|Content-Length: 0"), 0);
}

static void test_targets_are_refused(void **state)
{
    static const struct {
        unsigned status;
        const char *target;
    } cases[] = {
        { 400, "/%4" },      { 400, "/%" },        { 400, "/%zz" },        { 400, "/%00" },
        { 400, "/%0a" },     { 400, "/%7f" },      { 400, "/%ff" },        { 400, "/a b" },
        { 400, "/a#b" },     { 400, "/\x80" },     { 400, "/?a=%00" },     { 400, "a" },
        { 400, "*" },        { 400, "http:/a" },   { 400, "https://a/b" }, { 400, "http://u@a/b" },
        { 404, "//a/v1/b" }, { 404, "/v1/a%2fb" }, { 404, "/v1/a%2Fb" },   { 404, "///v1" },
    };
    char much[API_TARGET_MAX_BYTES + 2];
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (read_head(EVHTTP_REQ_GET, cases[i].target, 1, "Host: a") != cases[i].status)
            fail_msg("%s is not %u", cases[i].target, cases[i].status);
    }
    memset(much, 'x', sizeof much);
    much[0] = '/';
    much[API_TARGET_MAX_BYTES + 1] = '\0';
    assert_int_equal(read_head(EVHTTP_REQ_GET, much, 1, "Host: a"), 414);
    much[API_TARGET_MAX_BYTES] = '\0';
    assert_int_equal(read_head(EVHTTP_REQ_GET, much, 1, "Host: a"), 0);
    assert_string_equal(head.decoded, much);
}

static void test_fields_are_refused(void **state)
{
    static const struct {
        unsigned status;
        enum evhttp_cmd_type method;
        int minor;
        const char *fields;
    } cases[] = {
        { 400, EVHTTP_REQ_GET, 1, "" },
        { 400, EVHTTP_REQ_GET, 1, "Host: a b" },
        { 400, EVHTTP_REQ_GET, 1, "Host: a|Host: a" },
        { 400, EVHTTP_REQ_GET, 1, "Host: a|X : y" },
        { 400, EVHTTP_REQ_GET, 1, "Host: a|: y" },
        { 400, EVHTTP_REQ_GET, 1, "Host: a|X: \x7f" },
        { 400, EVHTTP_REQ_PUT, 1, "Host: a|Content-Length: +1" },
        { 400, EVHTTP_REQ_PUT, 1, "Host: a|Content-Length: 1, 1" },
        { 400, EVHTTP_REQ_PUT, 1, "Host: a|Content-Length: 1|Content-Length: 1" },
        { 400, EVHTTP_REQ_PUT, 1, "Host: a|Content-Length: 1|Transfer-Encoding: chunked" },
        { 400, EVHTTP_REQ_PUT, 0, "Transfer-Encoding: chunked" },
        { 400, EVHTTP_REQ_HEAD, 1, "Host: a|Transfer-Encoding: chunked" },
        { 400, EVHTTP_REQ_HEAD, 1, "Host: a|Content-Length: 1" },
        { 501, EVHTTP_REQ_PUT, 1, "Host: a|Transfer-Encoding: gzip, chunked" },
        { 505, EVHTTP_REQ_GET, 2, "Host: a" },
    };
    char many[800] = "Host: a";
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (read_head(cases[i].method, "/", cases[i].minor, cases[i].fields) != cases[i].status)
            fail_msg("%s is not %u", cases[i].fields, cases[i].status);
    }
    for (unsigned i = 1; i < API_FIELDS_MAX; i++)
        strcat(many, "|X: y");
    assert_int_equal(read_head(EVHTTP_REQ_GET, "/", 1, many), 0);
    strcat(many, "|X: y");
    assert_int_equal(read_head(EVHTTP_REQ_GET, "/", 1, many), 431);
}

static void spoil(char *text, size_t *len, size_t cap, uint64_t *s)
{
    static const char some[] = "\r\n :%&=?;,/*\0\x80zF0";
    size_t at = chance(s) % *len, n = 1 + chance(s) % 8;
    switch (chance(s) % 4) {
    case 0:
        text[at] = (char)(text[at] ^ (1 << chance(s) % 8));
        break;
    case 1:
        text[at] = some[chance(s) % (sizeof some - 1)];
        break;
    case 2:
        n = n > *len - at ? *len - at : n;
        memmove(text + at, text + at + n, *len - at - n);
        *len -= n;
        break;
    default:
        n = n > *len - at ? *len - at : n;
        if (*len + n <= cap) {
            memmove(text + at + n, text + at, *len - at);
            *len += n;
        }
    }
    if (!*len)
        *len = 1;
}

/* Whom a standby sends its users to: never to their own machine, nor in the clear unless that is
   said. */
static void test_m146_users_at(void **state)
{
    static const char *const good[] = { "https://pool-a.example", "https://pool-a.example:443",
                                        "http://10.0.0.1:4456",   "https://[fd00::1]:4456",
                                        "https://pool1",          "http://[fd00::1]" };
    static const char *const wrong[] = {
        "10.0.0.1:4456",
        "pool-a.example:443",
        "ftp://pool-a.example",
        "http://",
        "https://:443",
        "http://http://x:1",
        "https://pool-a.example/",
        "https://pool-a.example:",
        "https://pool-a.example:0",
        "https://pool-a.example:65536",
        "https://pool-a.example:44x",
        "https://user@pool-a.example",
        "https://pool a.example",
        "https://a\r\nSet-Cookie: x",
        "http://127.0.0.1:4456",
        "https://127.9.9.9",
        "http://127.1",
        "http://2130706433",
        "http://0x7f000001",
        "http://0.0.0.0:4456",
        "https://localhost",
        "https://LOCALHOST:4456",
        "https://a.localhost",
        "http://[::1]:4456",
        "http://[0:0::0:1]",
        "http://[::]",
        "http://[::ffff:127.0.0.1]",
        "http://[fd00::1",
        "http://[]",
    };
    char text[220] = "https://";
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (api_check_users_at(good[i]))
            fail_msg("%s: %s", good[i], api_check_users_at(good[i]));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (!api_check_users_at(wrong[i]))
            fail_msg("%s is taken", wrong[i]);
    memset(text + 8, 'a', 191);
    assert_null(api_check_users_at(text));
    text[199] = 'a'; /* it would be cut in the store */
    assert_non_null(api_check_users_at(text));
}

/* What is accepted is printable. */
static void test_random_targets(void **state)
{
    static const char *const seeds[] = { "/v1/slots?state=free&model=a%20b", "/v1/%70ool",
                                         "http://[::1]:80/?a=b", "/v1/leases/c00000001/attach" };
    uint64_t s = 0x9e3779b97f4a7c15u;
    unsigned taken = 0, refused = 0;
    (void)state;
    for (unsigned round = 0; round < 100000; round++) {
        char text[256];
        const char *seed = seeds[chance(&s) % 4];
        size_t len = strlen(seed);
        struct evhttp_uri *uri;
        memcpy(text, seed, len);
        for (uint64_t n = chance(&s) % 4; n; n--)
            spoil(text, &len, sizeof text - 1, &s);
        text[len] = '\0';
        uri = evhttp_uri_parse_with_flags(text, EVHTTP_URI_NONCONFORMANT);
        if (!uri)
            continue; /* evhttp answers it */
        evhttp_uri_free(uri);
        if (read_head(EVHTTP_REQ_GET, text, 1, "Host: a")) {
            refused++;
            continue;
        }
        assert_int_equal(head.decoded[0], '/');
        for (const char *p = head.decoded; *p; p++)
            assert_true(*p >= ' ' && *p <= '~');
        taken++;
    }
    assert_true(taken > 1000 && refused > 1000);
}

static void test_accept(void **state)
{
    static const char type[] = "application/json";
    (void)state;
    assert_int_equal(api_accepts(NULL, type), 1);
    assert_int_equal(api_accepts("*/*", type), 1);
    assert_int_equal(api_accepts("text/html, application/*;q=0.2", type), 1);
    assert_int_equal(api_accepts("Application/JSON", type), 2);
    assert_int_equal(api_accepts("application/json;q=0.000", type), 0);
    assert_int_equal(api_accepts("application/json; q=0", type), 0);
    assert_int_equal(api_accepts("application/json;q=0.001", type), 2);
    assert_int_equal(api_accepts("application/jsonx", type), 0);
    assert_int_equal(api_accepts("text/*", type), 0);
    assert_true(api_is_type("application/JSON ; charset=x", type));
    assert_false(api_is_type("application/jsonx", type));
    assert_false(api_is_type(NULL, type));
    assert_true(api_is_loopback("localhost:1") && api_is_loopback("127.1.2.3") &&
                api_is_loopback("[::1]:80"));
    assert_false(api_is_loopback("127.0.0.1.example") || api_is_loopback("::1") ||
                 api_is_loopback("localhost:1:2") || api_is_loopback(""));
}

/* ==== Members ================================================================================= */

typedef struct body {
    uint64_t number, seconds;
    bool flag;
    char name[9], text[9];
    unsigned choice;
} body;

static body got;
static char why[API_WHY_BYTES];
static const api_member members[] = {
    { "number", API_NUMBER, &got.number, 2, 300, NULL, true, false },
    { "seconds", API_NUMBER, &got.seconds, 1, 1000, NULL, false, true },
    { "flag", API_FLAG, &got.flag, 0, 0, NULL, false, false },
    { "name", API_NAME, got.name, 0, 8, NULL, false, false },
    { "text", API_TEXT, got.text, 0, 8, NULL, false, false },
    { "choice", API_CHOICE, &got.choice, 0, 0, "one|two|twotwo", false, false },
};

static bool read_body_of(const char *text)
{
    memset(&got, 0, sizeof got);
    got.seconds = 77;
    memset(why, 0, sizeof why);
    return api_request_read(text, strlen(text), members, 6, why);
}

static void test_members(void **state)
{
    static const char *const bad[][2] = {
        { "{\"number\":1}", "number:" },
        { "{\"number\":301}", "number:" },
        { "{\"number\":\"5\"}", "number:" },
        { "{\"number\":null}", "number:" },
        { "{\"flag\":true}", "number: is missing" },
        { "", "number: is missing" },
        { "{\"number\":5,\"flag\":1}", "flag:" },
        { "{\"number\":5,\"name\":\"a b\"}", "name:" },
        { "{\"number\":5,\"name\":\"\"}", "name:" },
        { "{\"number\":5,\"name\":\"123456789\"}", "name:" },
        { "{\"number\":5,\"text\":\"a b\"}", "text:" },
        { "{\"number\":5,\"choice\":\"\"}", "choice:" },
        { "{\"number\":5,\"choice\":\"tw\"}", "choice:" },
        { "{\"number\":5,\"seconds\":0}", "seconds:" },
        { "{\"number\":5,\"more\":0}", "more:" },
        { "{\"number\":5,\"number\":5}", "the body:" },
        { "[5]", "the body:" },
        { "{\"number\":5}}", "the body:" },
        { "{\"number\":18446744073709551617}", "the body:" },
        { "{\"number\":5,\"\\n\":5}", "a member with a strange name" },
    };
    (void)state;
    assert_true(read_body_of("{\"number\":300,\"seconds\":null,\"flag\":true,\"name\":\"a.B_9-\","
                             "\"text\":\"!~\",\"choice\":\"twotwo\"}"));
    assert_true(got.number == 300 && got.seconds == 0 && got.flag && got.choice == 2);
    assert_string_equal(got.name, "a.B_9-");
    assert_string_equal(got.text, "!~");
    assert_true(read_body_of(" { \"number\" : 2 } "));
    assert_true(got.seconds == 77); /* as it was */
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (read_body_of(bad[i][0]) || strncmp(why, bad[i][1], strlen(bad[i][1])) != 0)
            fail_msg("%s: %s", bad[i][0], why);
    }
}

static void test_random_members(void **state)
{
    static const char seed[] =
        "{\"number\":299,\"seconds\":null,\"flag\":true,\"name\":\"a.B\",\"text\":\"\\u0041\","
        "\"choice\":\"two\"}";
    uint64_t s = 0x2545f4914f6cdd1du;
    unsigned taken = 0, refused = 0;
    (void)state;
    for (unsigned round = 0; round < 100000; round++) {
        char text[512];
        size_t len = sizeof seed - 1;
        memcpy(text, seed, len);
        for (uint64_t n = chance(&s) % 5; n; n--)
            spoil(text, &len, sizeof text, &s);
        memset(&got, 0, sizeof got);
        why[0] = '\0';
        if (api_request_read(text, len, members, 6, why)) {
            assert_true(got.number >= 2 && got.number <= 300 && got.choice <= 2);
            assert_true(got.seconds <= 1000 && strlen(got.name) <= 8 && strlen(got.text) <= 8);
            taken++;
        } else {
            assert_true(why[0] && strlen(why) < sizeof why);
            refused++;
        }
    }
    assert_true(taken > 1000 && refused > 1000);
}

static void test_identifiers(void **state)
{
    uint64_t n, lease;
    uint32_t node, slot;
    (void)state;
    assert_true(api_read_number("0", 5, &n) && n == 0);
    assert_true(api_read_number("18446744073709551615", UINT64_MAX, &n) && n == UINT64_MAX);
    assert_false(api_read_number("18446744073709551616", UINT64_MAX, &n));
    assert_true(api_read_number("5", 5, &n) && !api_read_number("6", 5, &n));
    assert_false(api_read_number("05", 9, &n) || api_read_number("", 9, &n) ||
                 api_read_number("+5", 9, &n) || api_read_number("5 ", 9, &n));
    assert_true(api_read_lease("c00000003", &lease) && lease == 0xc00000003);
    assert_true(api_read_lease("ffffffffffffffff", &lease) && lease == UINT64_MAX);
    assert_false(api_read_lease("0c", &lease) || api_read_lease("C", &lease) ||
                 api_read_lease("", &lease) || api_read_lease("0", &lease) ||
                 api_read_lease("10000000000000000", &lease) || api_read_lease("0xc", &lease));
    assert_true(api_read_slot("10.3", &node, &slot) && node == 10 && slot == 3);
    assert_true(api_read_slot("4294967295.65535", &node, &slot) && node == UINT32_MAX);
    assert_false(api_read_slot("10", &node, &slot) || api_read_slot("10.", &node, &slot) ||
                 api_read_slot(".3", &node, &slot) || api_read_slot("10.0", &node, &slot) ||
                 api_read_slot("0.3", &node, &slot) || api_read_slot("10.65536", &node, &slot) ||
                 api_read_slot("4294967296.1", &node, &slot) ||
                 api_read_slot("10.3.1", &node, &slot));
}

/* ==== Tokens ================================================================================== */

/* Only root's may be read by a group: so a service is handed its credentials. */
static void test_token_modes(const char *path, int fd)
{
    static const mode_t refused[] = { 0604, 0602, 0601, 0620, 0660, 0644, 0610, 0444 };
    static const mode_t good[] = { 0400, 0600, 0440, 0640 };
    bool passes = true;
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(fchmod(fd, refused[i]), 0);
        assert_null(api_tokens_read(path, &passes));
        assert_false(passes); /* for each client, again */
    }
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++) {
        api_tokens *t;
        assert_int_equal(fchmod(fd, good[i]), 0);
        t = api_tokens_read(path, &passes);
        assert_int_equal(t != NULL, !(good[i] & 040) || !geteuid());
        api_tokens_free(t);
    }
    if (geteuid() || fchown(fd, 65534, 65534))
        return;
    assert_null(api_tokens_read(path, &passes)); /* another user's */
}

static void test_tokens(void **state)
{
    static const char good[] = "0123456789abcdef", other[] = "0123456789abcdeg";
    char path[] = "/tmp/dxpu-tokens-XXXXXX", text[400];
    int fd = mkstemp(path);
    bool passes;
    api_tokens *t;
    (void)state;
    assert_true(fd >= 0);
    snprintf(text, sizeof text, "\n# a comment\nread - %s\r\n tenant\tt.1 %s\noperator - %s%s",
             good, other, good, good);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    t = api_tokens_read(path, &passes);
    assert_non_null(t);
    assert_int_equal(api_tokens_find(t, "Bearer 0123456789abcdef", 0).role, API_READ);
    assert_int_equal(api_tokens_find(t, "bearer  0123456789abcdef", 0).role, API_READ);
    assert_string_equal(api_tokens_find(t, "Bearer 0123456789abcdeg", 0).tenant, "t.1");
    assert_int_equal(api_tokens_find(t, "Bearer 0123456789abcdef0123456789abcdef", 0).role,
                     API_OPERATOR);
    assert_int_equal(api_tokens_find(t, "Bearer 0123456789abcde", 0).role, 0);
    assert_int_equal(api_tokens_find(t, "Bearer 0123456789abcdef0", 0).role, 0);
    assert_int_equal(api_tokens_find(t, "Bearer ", 0).role, 0);
    assert_int_equal(api_tokens_find(t, "0123456789abcdef", 0).role, 0);
    assert_int_equal(api_tokens_find(t, NULL, 0).role, 0);
    for (size_t i = 0; i + 16 <= sizeof *t; i++) /* no token stays in memory */
        assert_memory_not_equal((const char *)t + i, good, 16);
    api_tokens_free(t);
    test_token_modes(path, fd);
    (void)close(fd);
    (void)unlink(path);
}

/* The tokens of a file with these lines; NULL: they are refused. */
static api_tokens *read_text(const char *text)
{
    char path[] = "/tmp/dxpu-tokens-XXXXXX";
    int fd = mkstemp(path);
    bool system;
    api_tokens *t;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    t = api_tokens_read(path, &system);
    (void)close(fd);
    (void)unlink(path);
    return t;
}

/* S-150: a name, or one of the line; from the second of its expiry on it is no token. */
static void test_s150_names_and_expiry(void **state)
{
    static const struct {
        const char *when;
        uint64_t unix_s;
    } times[] = {
        { "1970-01-02", 86400 },
        { "2000-02-29", 951782400 },
        { "2027-01-31", 1801353600 },
        { "2027-01-31T12:34:56Z", 1801398896 },
        { "9999-12-31T23:59:59Z", 253402300799 },
    };
    static const char *const wrong[] = {
        "2027-02-29",           "2100-02-29",          "2027-13-01", "2027-00-01", "2027-04-31",
        "2027-01-31T24:00:00Z", "2027-01-31 12:00:00", "27-01-31",   "tomorrow",   "",
        "2027-01-31T12:00:00",  "1969-12-31",          "2027-1-031",
    };
    char text[200];
    api_caller c;
    api_tokens *t;
    (void)state;
    for (unsigned i = 0; i < sizeof times / sizeof *times; i++) {
        snprintf(text, sizeof text, "\ntenant a 0123456789abcdef expires=%s name=ci\n",
                 times[i].when);
        t = read_text(text);
        assert_non_null(t);
        c = api_tokens_find(t, "Bearer 0123456789abcdef", times[i].unix_s - 1);
        assert_int_equal(c.role, API_TENANT); /* the control */
        c = api_tokens_find(t, "Bearer 0123456789abcdef", times[i].unix_s);
        assert_int_equal(c.role, 0);
        assert_string_equal(c.token, "ci"); /* so that it can be said which */
        assert_string_equal(c.tenant, "");
        api_tokens_free(t);
    }
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "read - 0123456789abcdef expires=%s\n", wrong[i]);
        assert_null(read_text(text));
    }
    t = read_text("# old lines\nread - 0123456789abcdef\n");
    assert_non_null(t);
    c = api_tokens_find(t, "Bearer 0123456789abcdef", UINT64_MAX);
    assert_int_equal(c.role, API_READ);
    assert_string_equal(c.token, "line-2");
    api_tokens_free(t);
    assert_null(read_text("read - 0123456789abcdef name=a\nread - 0123456789abcdeg name=a\n"));
    assert_null(read_text("read - 0123456789abcdef name=a/b\n"));
    assert_null(read_text("read - 0123456789abcdef what=ever\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s150_names_and_expiry),
        cmocka_unit_test(test_head_is_read),
        cmocka_unit_test(test_targets_are_refused),
        cmocka_unit_test(test_fields_are_refused),
        cmocka_unit_test(test_m146_users_at),
        cmocka_unit_test(test_random_targets),
        cmocka_unit_test(test_accept),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_random_members),
        cmocka_unit_test(test_identifiers),
        cmocka_unit_test(test_tokens),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, forget);
}
