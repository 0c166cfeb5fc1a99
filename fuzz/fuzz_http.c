/* Fuzz target: a request to the manager, as evhttp leaves it to its user.  A byte for the method, a
   line with the target, lines of fields, an empty line, and the body.  What is not refused has a
   decoded path in printable ASCII, no field twice that is to come once, and a body that ends in one
   place for all who read it, as a look of the target's own at the lines has it; members and
   parameters that are taken are within their ranges, and identifiers are written in one way only.
   libFuzzer: -max_len=2200 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "api_head.h"
#include "api_requests.h"

#include <event2/http_struct.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINE_MAX_BYTES = 4096, FIELDS_MAX = 100, FIELDS_TAKEN = 64 };
enum { LENGTH, CODING, HOST, OTHERS = 6, SINGLE = HOST + 1 + OTHERS };

/* What the lines of fields say, by a look that shares nothing with api_head.c. */
static struct {
    unsigned fields, count[SINGLE];
    char value[SINGLE][LINE_MAX_BYTES]; /* the last one's */
    bool odd_name;
} seen;

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* The next line, without its end, as text; zeros end it. */
static bool line_of(const char **at, size_t *left, char out[LINE_MAX_BYTES])
{
    const char *end = *left ? memchr(*at, '\n', *left) : NULL;
    size_t bytes = end ? (size_t)(end - *at) : *left;
    size_t kept = bytes < LINE_MAX_BYTES - 1 ? bytes : LINE_MAX_BYTES - 1;
    if (!*left)
        return false;
    memcpy(out, *at, kept);
    out[kept] = '\0';
    *at += bytes + (end != NULL);
    *left -= bytes + (end != NULL);
    return true;
}

static void look_at_field(const char *name, const char *value)
{
    static const char *const single[SINGLE] = { "content-length", "transfer-encoding",
                                                "host",           "authorization",
                                                "content-type",   "accept",
                                                "origin",         "sec-fetch-site",
                                                "last-event-id" };
    seen.fields++;
    seen.odd_name |= !*name;
    for (const char *p = name; *p; p++)
        seen.odd_name |= *p <= ' ' || *p >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", *p);
    for (unsigned i = 0; i < SINGLE; i++) {
        if (strcasecmp(name, single[i]))
            continue;
        seen.count[i]++;
        memcpy(seen.value[i], value, strlen(value) + 1);
    }
}

/* RFC 9112, 6.1 to 6.3, and 3.2: what two readers would not read alike does not pass. */
static void check_fields(const api_head *h, const struct evhttp_request *q)
{
    bool head = q->type == EVHTTP_REQ_HEAD;
    must(!seen.odd_name && seen.fields <= FIELDS_TAKEN);
    for (unsigned i = 0; i < SINGLE; i++)
        must(seen.count[i] <= 1);
    must(seen.count[LENGTH] + seen.count[CODING] <= 1);
    must(seen.count[HOST] || q->minor == 0);
    if (seen.count[CODING])
        must(!strcasecmp(seen.value[CODING], "chunked") && q->minor == 1 && !head);
    for (const char *p = seen.value[LENGTH]; seen.count[LENGTH] && (p == seen.value[LENGTH] || *p);
         p++)
        must(*p == '0' || (*p >= '1' && *p <= '9' && !head));
    must(!h->field[API_FIELD_HOST] == !seen.count[HOST]);
    must(!seen.count[HOST] || !strcmp(h->field[API_FIELD_HOST], seen.value[HOST]));
}

static void check_head(struct evhttp_request *q)
{
    api_head h;
    unsigned status = api_head_read(&h, q);
    if (status) {
        must(status == 400 || status == 404 || status == 414 || status == 431 || status == 501 ||
             status == 505);
        return;
    }
    check_fields(&h, q);
    must(h.decoded[0] == '/' || strcmp(h.decoded, "*") == 0);
    must(strlen(h.decoded) <= API_TARGET_MAX_BYTES);
    for (const char *p = h.decoded; *p; p++)
        must(*p >= 0x20 && *p < 0x7f);
    must(api_method_name(h.method) != NULL);
    must(api_accepts(h.field[API_FIELD_ACCEPT], "application/json") <= 2);
    (void)api_is_type(h.field[API_FIELD_CONTENT_TYPE], "application/json");
    if (h.field[API_FIELD_HOST])
        (void)api_is_loopback(h.field[API_FIELD_HOST]);
}

static void check_identifiers(const char *text)
{
    char again[64];
    uint64_t v;
    uint32_t node, slot;
    if (api_read_number(text, UINT64_MAX, &v)) {
        snprintf(again, sizeof again, "%" PRIu64, v);
        must(strcmp(text, again) == 0);
    }
    if (api_read_slot(text, &node, &slot)) {
        snprintf(again, sizeof again, "%" PRIu32 ".%" PRIu32, node, slot);
        must(strcmp(text, again) == 0);
    }
    if (api_read_lease(text, &v)) {
        snprintf(again, sizeof again, "%" PRIx64, v);
        must(strcmp(text, again) == 0);
    }
}

static void check_values(const char *body, size_t bytes, bool as_parameter)
{
    uint64_t number = 3, lease = 0, slot = 0;
    double real = 1;
    bool flag = false;
    char name[9] = "", text[17] = "", why[API_WHY_BYTES] = "";
    unsigned pick = 0;
    const api_member members[] = {
        { "number", API_NUMBER, &number, 3, 1000, NULL, false, true },
        { "real", API_REAL, &real, 0, 50, NULL, false, false },
        { "flag", API_FLAG, &flag, 0, 0, NULL, false, false },
        { "name", API_NAME, name, 0, sizeof name - 1, NULL, false, true },
        { "text", API_TEXT, text, 0, sizeof text - 1, NULL, false, false },
        { "choice", API_CHOICE, &pick, 0, 0, "one|two", false, false },
        { "lease", API_LEASE, &lease, 0, 0, NULL, false, false },
        { "slot", API_SLOT, &slot, 0, 0, NULL, false, false },
    };
    enum { COUNT = sizeof members / sizeof *members };
    bool good;
    if (as_parameter) {
        char line[LINE_MAX_BYTES], *equals;
        line_of(&body, &bytes, line);
        equals = strchr(line, '=');
        if (!equals)
            return;
        *equals = '\0';
        check_identifiers(equals + 1);
        good = api_param_read(line, equals + 1, members, COUNT, why);
    } else {
        good = api_request_read(body, bytes, members, COUNT, why);
    }
    must(good || why[0]);
    if (!good)
        return;
    must(number >= 2 && number <= 1000 && real > 0 && real <= 50 && pick < 2);
    must(strlen(name) < sizeof name && strlen(text) < sizeof text);
    must(!name[0] || api_is_name(name, sizeof name - 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum evhttp_cmd_type methods[] = { EVHTTP_REQ_GET,    EVHTTP_REQ_POST,
                                                    EVHTTP_REQ_HEAD,   EVHTTP_REQ_PUT,
                                                    EVHTTP_REQ_DELETE, EVHTTP_REQ_PATCH };
    struct evhttp_request *q;
    const char *at = (const char *)data + 1;
    char line[LINE_MAX_BYTES];
    size_t left = size - 1;
    if (size < 2 || (q = evhttp_request_new(NULL, NULL)) == NULL)
        return 0;
    q->type = methods[data[0] % 6];
    q->major = 1;
    q->minor = (char)(data[0] >> 7);
    line_of(&at, &left, line);
    q->uri = strdup(line);
    q->uri_elems = evhttp_uri_parse_with_flags(line, EVHTTP_URI_NONCONFORMANT);
    memset(&seen, 0, sizeof seen);
    for (unsigned n = 0; n < FIELDS_MAX && line_of(&at, &left, line) && line[0]; n++) {
        char *colon = strchr(line, ':');
        if (!colon)
            continue;
        *colon = '\0';
        colon += 1 + (colon[1] == ' ');
        if (evhttp_add_header(q->input_headers, line, colon) == 0)
            look_at_field(line, colon);
    }
    if (q->uri && q->uri_elems) /* others do not come this far */
        check_head(q);
    evhttp_request_free(q);
    if (left)
        check_values(at, left, data[0] & 0x40);
    return 0;
}
