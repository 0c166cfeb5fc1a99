/* api_problem.c - refusals as problem details (RFC 9457)
   SPDX-License-Identifier: MIT */
#include "api_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *title_of(unsigned status, const char *kind)
{
    static const char *const titles[][2] = {
        { "quota", "The tenant's quota is used up" },
        { "capacity", "The pool has no such slots to give" },
        { "state", "Not in this state" },
        { "unknown", "There is no such thing" },
        { "store", "The store cannot be written" },
        { "busy", "Too many requests wait" },
        { "browser", "Not for web pages" },
    };
    for (unsigned i = 0; kind && i < sizeof titles / sizeof titles[0]; i++) {
        if (!strcmp(kind, titles[i][0]))
            return titles[i][1];
    }
    return http_reason(status);
}

void api_problem(api_conn *c, unsigned status, const char *kind, const char *format, ...)
{
    const char *path = c->in.request.path;
    char detail[512], type[40];
    va_list args;
    json_t *j;
    char *text;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    snprintf(type, sizeof type, kind ? "/problems/%s" : "about:blank", kind);
    if (status == 503)
        snprintf(c->fields + strlen(c->fields), sizeof c->fields - strlen(c->fields),
                 "Retry-After: 1\r\n");
    j = json_pack("{s:s, s:s, s:i, s:o, s:s}", "type", type, "title", title_of(status, kind),
                  "status", (int)status, "detail", api_json_text(detail), "instance",
                  path ? path : "/");
    text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    api_answer(c, status, "application/problem+json", text, text ? strlen(text) : 0);
}

void api_problem_core(api_conn *c, const core_result *r)
{
    static const struct {
        unsigned status;
        const char *kind;
    } of[] = {
        [CORE_OK] = { 500, NULL },
        [CORE_E_ARG] = { 400, NULL },
        [CORE_E_UNKNOWN] = { 404, "unknown" },
        [CORE_E_QUOTA] = { 409, "quota" },
        [CORE_E_CAPACITY] = { 409, "capacity" },
        [CORE_E_STATE] = { 409, "state" },
        [CORE_E_STORE] = { 503, "store" },
    };
    unsigned i = (unsigned)r->code < sizeof of / sizeof of[0] ? (unsigned)r->code : 0;
    api_problem(c, of[i].status, of[i].kind, "%s", r->text);
}

void api_problem_http(api_conn *c, unsigned status)
{
    static const struct {
        unsigned status;
        const char *text;
    } texts[] = {
        { 400, "this is no HTTP/1.1 request as RFC 9112 has it" },
        { 408, "the request did not end in time" },
        { 413, "a body has at most 64 KiB" },
        { 414, "a target has at most 2,048 characters" },
        { 417, "the only expectation known here is 100-continue" },
        { 431, "a head has at most 16 KiB and 64 fields" },
        { 501, "this method, or this transfer coding, is not known here" },
        { 505, "HTTP/1.1 and HTTP/1.0 are known here" },
    };
    const char *text = "";
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].status == status)
            text = texts[i].text;
    }
    c->in.request.close = true;
    c->in.request.method = HTTP_GET; /* an answer with a body, whatever it was */
    c->in.request.path = NULL;
    api_problem(c, status, NULL, "%s", text);
}
