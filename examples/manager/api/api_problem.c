/* api_problem.c - refusals as problem details (RFC 9457)
   SPDX-License-Identifier: MIT */
#include "api_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    unsigned status;
    const char *text;
} reasons[] = {
    { 200, "OK" },
    { 201, "Created" },
    { 202, "Accepted" },
    { 204, "No Content" },
    { 307, "Temporary Redirect" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 403, "Forbidden" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 406, "Not Acceptable" },
    { 409, "Conflict" },
    { 414, "URI Too Long" },
    { 415, "Unsupported Media Type" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 500, "Internal Server Error" },
    { 501, "Not Implemented" },
    { 503, "Service Unavailable" },
    { 505, "HTTP Version Not Supported" },
};
_Static_assert(sizeof reasons / sizeof reasons[0] == API_STATUSES, "count them in api_internal.h");

const char *api_reason(unsigned status)
{
    for (unsigned i = 0; i < API_STATUSES; i++) {
        if (reasons[i].status == status)
            return reasons[i].text;
    }
    return "Unknown";
}

unsigned api_status(unsigned index)
{
    return index < API_STATUSES ? reasons[index].status : 0;
}

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
        { "host", "The host is not this tenant's" },
        { "wipe", "A slot could not be wiped" },
        { "rate", "Too many changes" },
        { "expired", "The token has expired" },
        { "starting", "The manager has just started" },
        { "leader", "Another manager leads" },
        { "erases", "It erases data, and is not confirmed" },
    };
    for (unsigned i = 0; kind && i < sizeof titles / sizeof titles[0]; i++) {
        if (!strcmp(kind, titles[i][0]))
            return titles[i][1];
    }
    return api_reason(status);
}

static json_t *problem_of(const api_conn *c, unsigned status, const char *kind, const char *detail)
{
    const char *path = c->head.path;
    char type[40];
    snprintf(type, sizeof type, kind ? "/problems/%s" : "about:blank", kind);
    return json_pack("{s:s, s:s, s:i, s:o, s:s}", "type", type, "title", title_of(status, kind),
                     "status", (int)status, "detail", api_json_text(detail), "instance",
                     path ? path : "/");
}

static void answer_problem(api_conn *c, unsigned status, json_t *j)
{
    char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    api_answer(c, status, "application/problem+json", text, text ? strlen(text) : 0);
}

void api_problem(api_conn *c, unsigned status, const char *kind, const char *format, ...)
{
    char detail[512];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    if (status == 503 || status == 429)
        api_add_field(c, "Retry-After", "1");
    answer_problem(c, status, problem_of(c, status, kind, detail));
}

void api_problem_quota(api_conn *c, const core_result *r, const char *tenant, unsigned asked)
{
    json_t *j = problem_of(c, 409, "quota", r->text);
    uint32_t used, limit;
    core_quota(c->a->core, tenant, &used, &limit);
    (void)json_object_set_new(j, "used", json_integer((json_int_t)used));
    (void)json_object_set_new(j, "limit", json_integer((json_int_t)limit));
    (void)json_object_set_new(j, "asked", json_integer((json_int_t)asked));
    answer_problem(c, 409, j);
}

void api_problem_erases(api_conn *c, json_t *erases, unsigned total)
{
    json_t *j = problem_of(c, 409, "erases",
                           "this erases the data in the slots that `erases` lists; nothing was "
                           "changed; to confirm it add erase=yes to the query");
    (void)json_object_set_new(j, "erases", erases);
    (void)json_object_set_new(j, "total", json_integer((json_int_t)total));
    answer_problem(c, 409, j);
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
        [CORE_E_AWAY] = { 409, "state" },
        [CORE_E_STORE] = { 503, "store" },
        [CORE_E_MEMORY] = { 503, "store" },
        [CORE_E_PACE] = { 503, "busy" },
    };
    unsigned i = (unsigned)r->code < sizeof of / sizeof of[0] ? (unsigned)r->code : 0;
    if ((r->code == CORE_E_CAPACITY || r->code == CORE_E_AWAY) && core_is_starting(c->a->core)) {
        /* M-150: a proxy that is yet to register may be what it is about */
        api_problem(c, 503, "starting",
                    "the manager has just started, and some boxes or hosts have not registered "
                    "yet; try again in a second (%s)",
                    r->text);
        return;
    }
    api_problem(c, of[i].status, of[i].kind, "%s", r->text);
}

void api_problem_head(api_conn *c, unsigned status)
{
    static const struct {
        unsigned status;
        const char *text;
    } texts[] = {
        { 400, "not an HTTP/1.1 request by RFC 9112" },
        { 404, "no such path; /v1/openapi.yaml has all of them" },
        { 414, "a target has at most 2,048 characters" },
        { 431, "a head has at most 64 fields" },
        { 501, "this transfer coding is not known here" },
        { 503, "out of memory" },
        { 505, "HTTP/1.1 and HTTP/1.0 are known here" },
    };
    const char *text = "";
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].status == status)
            text = texts[i].text;
    }
    api_add_field(c, "Connection", "close");
    api_problem(c, status, status == 404 ? "unknown" : NULL, "%s", text);
}
