/* unit_api.c - the manager's HTTP server without its sockets: requests out of bytes, members out of
   JSON, tokens out of a file
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "examples/manager/api_http.c"
#include "examples/manager/api_requests.c"
#include "examples/manager/api_tokens.c"

static char room[HTTP_ROOM_BYTES];
static http_reader reader;

static uint64_t chance(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* All bytes at once. */
static int read_all(const char *text, size_t len)
{
    http_begin(&reader, room);
    assert_true(http_put(&reader, text, len));
    return http_read(&reader);
}

static int read_text(const char *text)
{
    return read_all(text, strlen(text));
}

/* ==== HTTP ==================================================================================== */

static const char PLAIN[] = "GET /v1/slots?state=free&model=a%20b HTTP/1.1\r\nhOsT:  localhost \r\n"
                            "X-Other: 1\r\nAccept: */*\r\n\r\n";
static const char SIZED[] = "PUT /v1/tenants/x HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n"
                            "{\"quota\":1}";
static const char CHUNKED[] = "PUT /v1/tenants/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked"
                              "\r\n\r\n3;x=\"y\"\r\n{\"q\r\n8\r\nuota\":1}\r\n000\r\nX: y\r\n\r\n";

static void test_request_is_taken_apart(void **state)
{
    const http_request *q = &reader.request;
    (void)state;
    assert_int_equal(read_text(PLAIN), HTTP_COMPLETE);
    assert_int_equal(q->method, HTTP_GET);
    assert_string_equal(q->path, "/v1/slots");
    assert_int_equal(q->segments, 2);
    assert_string_equal(q->segment[1], "slots");
    assert_int_equal(q->params, 2);
    assert_string_equal(q->param[1].name, "model");
    assert_string_equal(q->param[1].value, "a b");
    assert_string_equal(q->field[HTTP_FIELD_HOST], "localhost");
    assert_string_equal(q->field[HTTP_FIELD_ACCEPT], "*/*");
    assert_null(q->field[HTTP_FIELD_ORIGIN]);
    assert_int_equal(q->body_bytes, 0);
    assert_false(q->close);
    assert_int_equal(read_text("GET http://a:1/b?c=d HTTP/1.0\r\n\r\n"), HTTP_COMPLETE);
    assert_string_equal(q->authority, "a:1");
    assert_string_equal(q->path, "/b");
    assert_string_equal(q->param[0].value, "d");
    assert_true(q->close);
    assert_int_equal(read_text("GET http://a?c=d HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
                     HTTP_COMPLETE);
    assert_string_equal(q->path, "/");
    assert_false(q->close);
}

/* However the bytes arrive: the same requests, one behind the other. */
static void test_any_pieces_are_the_same(void **state)
{
    char all[1024];
    size_t len = (size_t)snprintf(all, sizeof all, "%s%s%s", SIZED, CHUNKED, PLAIN);
    (void)state;
    for (size_t piece = 1; piece <= len; piece++) {
        unsigned complete = 0;
        http_begin(&reader, room);
        for (size_t at = 0; at < len; at += piece) {
            int rc;
            assert_true(http_put(&reader, all + at, len - at < piece ? len - at : piece));
            while ((rc = http_read(&reader)) == HTTP_COMPLETE) {
                const http_request *q = &reader.request;
                assert_int_equal(http_read(&reader), HTTP_COMPLETE);
                assert_int_equal(q->method, complete == 2 ? HTTP_GET : HTTP_PUT);
                assert_int_equal(q->body_bytes, complete == 2 ? 0 : 11);
                assert_memory_equal(q->body, "{\"quota\":1}", q->body_bytes);
                complete++;
                http_next(&reader);
                if (!reader.len)
                    break;
            }
            assert_true(rc == HTTP_MORE || rc == HTTP_COMPLETE);
        }
        assert_int_equal(complete, 3);
        assert_int_equal(reader.len, 0);
    }
}

static void test_refusals(void **state)
{
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        { 400, "GET / HTTP/1.1\r\n\r\n" },
        { 400, "GET / HTTP/1.1\nHost: a\n\n" },
        { 400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n" },
        { 400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n" },
        { 400, "GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n" },
        { 400, "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n" },
        { 400, "GET /?a=1&a=2 HTTP/1.1\r\nHost: a\r\n\r\n" },
        { 400, "GET a HTTP/1.1\r\nHost: a\r\n\r\n" },
        { 400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n" },
        { 400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n" },
        { 400, "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n" },
        { 400, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n" },
        { 400, "PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" },
        { 413, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\n\r\n" },
        { 417, "PUT / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 1\r\n\r\n" },
        { 501, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n" },
        { 501, "FETCH / HTTP/1.1\r\nHost: a\r\n\r\n" },
        { 505, "GET / HTTP/3.0\r\nHost: a\r\n\r\n" },
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (read_text(cases[i].text) != cases[i].status)
            fail_msg("%s is not %d", cases[i].text, cases[i].status);
    }
    assert_int_equal(read_text("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), HTTP_COMPLETE);
    assert_int_equal(read_text("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 65536\r\n\r\n"),
                     HTTP_MORE);
    assert_true(http_has_head(&reader));
}

static void test_room_is_bounded(void **state)
{
    static char much[HTTP_ROOM_BYTES + 1];
    (void)state;
    memset(much, 'x', sizeof much);
    http_begin(&reader, room);
    assert_false(http_put(&reader, much, sizeof much));
    assert_true(http_put(&reader, much, sizeof much - 1));
    assert_int_equal(http_read(&reader), 414);
    assert_false(http_put(&reader, much, 1));
}

/* What is accepted obeys its bounds, and means nothing outside the room. */
static void look_at(const http_request *q, const http_reader *r)
{
    size_t sum = 0;
    assert_true(q->method < HTTP_METHODS_END);
    assert_true(q->body_bytes <= HTTP_BODY_MAX_BYTES && r->raw <= r->len);
    assert_true(q->params <= HTTP_PARAMS_MAX && q->segments <= HTTP_SEGMENTS_MAX + 1);
    for (unsigned i = 0; i < q->segments && i < HTTP_SEGMENTS_MAX; i++)
        sum += strlen(q->segment[i]) + 1;
    for (unsigned i = 0; i < q->params; i++)
        sum += strlen(q->param[i].name) + strlen(q->param[i].value) + 1;
    assert_true(sum <= sizeof q->decoded);
    for (unsigned i = 0; i < HTTP_FIELDS_END; i++)
        assert_true(!q->field[i] || strlen(q->field[i]) <= HTTP_HEAD_MAX_BYTES);
    if (q->field[HTTP_FIELD_HOST])
        (void)http_is_loopback(q->field[HTTP_FIELD_HOST]);
    (void)http_accepts(q->field[HTTP_FIELD_ACCEPT], "application/json");
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

static void test_random_bytes(void **state)
{
    static const char *const seeds[] = { PLAIN, SIZED, CHUNKED,
                                         "GET http://[::1]:80/?a=b HTTP/1.1\r\nHost: [::1]\r\n"
                                         "Accept: text/html;q=0, application/*;q=0.5\r\n\r\n" };
    uint64_t s = 0x9e3779b97f4a7c15u;
    unsigned complete = 0, refused = 0;
    (void)state;
    for (unsigned round = 0; round < 200000; round++) {
        char text[1024];
        const char *seed = seeds[chance(&s) % 4];
        size_t len = strlen(seed), at = 0;
        int rc = HTTP_MORE;
        memcpy(text, seed, len);
        for (uint64_t n = chance(&s) % 5; n; n--)
            spoil(text, &len, sizeof text, &s);
        http_begin(&reader, room);
        while (at < len && rc == HTTP_MORE) {
            size_t n = 1 + chance(&s) % 200;
            n = n > len - at ? len - at : n;
            assert_true(http_put(&reader, text + at, n));
            at += n;
            rc = http_read(&reader);
        }
        if (rc == HTTP_COMPLETE) {
            look_at(&reader.request, &reader);
            http_next(&reader);
            complete++;
        } else if (rc != HTTP_MORE) {
            assert_true(rc >= 400 && strcmp(http_reason((unsigned)rc), "Unknown") != 0);
            refused++;
        }
    }
    assert_true(complete > 1000 && refused > 1000);
}

static void test_accept(void **state)
{
    static const char type[] = "application/json";
    (void)state;
    assert_int_equal(http_accepts(NULL, type), 1);
    assert_int_equal(http_accepts("*/*", type), 1);
    assert_int_equal(http_accepts("text/html, application/*;q=0.2", type), 1);
    assert_int_equal(http_accepts("Application/JSON", type), 2);
    assert_int_equal(http_accepts("application/json;q=0.000", type), 0);
    assert_int_equal(http_accepts("application/json; q=0", type), 0);
    assert_int_equal(http_accepts("application/json;q=0.001", type), 2);
    assert_int_equal(http_accepts("application/jsonx", type), 0);
    assert_int_equal(http_accepts("text/*", type), 0);
    assert_true(http_is_type("application/JSON ; charset=x", type));
    assert_false(http_is_type("application/jsonx", type));
    assert_false(http_is_type(NULL, type));
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
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(fchmod(fd, refused[i]), 0);
        assert_null(api_tokens_read(path));
    }
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++) {
        api_tokens *t;
        assert_int_equal(fchmod(fd, good[i]), 0);
        t = api_tokens_read(path);
        assert_int_equal(t != NULL, !(good[i] & 040) || !geteuid());
        api_tokens_free(t);
    }
    if (geteuid() || fchown(fd, 65534, 65534))
        return;
    assert_null(api_tokens_read(path)); /* another user's */
}

static void test_tokens(void **state)
{
    static const char good[] = "0123456789abcdef", other[] = "0123456789abcdeg";
    char path[] = "/tmp/dxpu-tokens-XXXXXX", text[400];
    int fd = mkstemp(path);
    api_tokens *t;
    (void)state;
    assert_true(fd >= 0);
    snprintf(text, sizeof text, "\n# a comment\nread - %s\r\n tenant\tt.1 %s\noperator - %s%s",
             good, other, good, good);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    t = api_tokens_read(path);
    assert_non_null(t);
    assert_int_equal(api_tokens_find(t, "Bearer 0123456789abcdef").role, API_READ);
    assert_int_equal(api_tokens_find(t, "bearer  0123456789abcdef").role, API_READ);
    assert_string_equal(api_tokens_find(t, "Bearer 0123456789abcdeg").tenant, "t.1");
    assert_int_equal(api_tokens_find(t, "Bearer 0123456789abcdef0123456789abcdef").role,
                     API_OPERATOR);
    assert_int_equal(api_tokens_find(t, "Bearer 0123456789abcde").role, 0);
    assert_int_equal(api_tokens_find(t, "Bearer 0123456789abcdef0").role, 0);
    assert_int_equal(api_tokens_find(t, "Bearer ").role, 0);
    assert_int_equal(api_tokens_find(t, "0123456789abcdef").role, 0);
    assert_int_equal(api_tokens_find(t, NULL).role, 0);
    for (size_t i = 0; i + 16 <= sizeof *t; i++) /* no token stays in memory */
        assert_memory_not_equal((const char *)t + i, good, 16);
    api_tokens_free(t);
    test_token_modes(path, fd);
    (void)close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_is_taken_apart),
        cmocka_unit_test(test_any_pieces_are_the_same),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_room_is_bounded),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_accept),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_random_members),
        cmocka_unit_test(test_identifiers),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
