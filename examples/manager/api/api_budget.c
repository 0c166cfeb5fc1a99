/* api_budget.c - how much one caller may change, and have written to the audit log
   SPDX-License-Identifier: MIT

   A tenant's token must not fill the audit log, the history of events, or the store's time: changes
   have a rate, and refusals have a number of lines a minute.  What changed something is always
   logged (S-130). */
#include "api_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHANGE_MS = 100,       /* a tenant changes something so often, */
    CHANGES_AT_ONCE = 100, /* and so much after quiet */
    MINUTE_MS = 60000,
    LINES_NOBODY = 30, /* in a minute, of all requests without a token */
    LINES_REFUSED = 60 /* in a minute, of a caller's requests that were refused */
};

/* The caller's; NULL: out of memory. */
static api_budget *budget_of(api *a, const api_caller *who)
{
    api_budget *more;
    for (unsigned i = 0; i < a->budgets; i++) {
        if (a->budget[i].role == who->role && !strcmp(a->budget[i].tenant, who->tenant))
            return &a->budget[i];
    }
    more =
        realloc(a->budget, (a->budgets + 1) * sizeof *more); /* one for each tenant with tokens */
    if (!more)
        return NULL;
    a->budget = more;
    more += a->budgets++;
    memset(more, 0, sizeof *more);
    more->role = who->role;
    memcpy(more->tenant, who->tenant, sizeof more->tenant);
    return more;
}

bool api_may_change(api_conn *c)
{
    uint64_t now = api_now_ms();
    api_budget *b = c->caller.role == API_TENANT ? budget_of(c->a, &c->caller) : NULL;
    if (c->caller.role != API_TENANT)
        return true;
    if (b && b->changes_paid_ms < now)
        b->changes_paid_ms = now;
    if (b && b->changes_paid_ms - now <= (uint64_t)CHANGE_MS * (CHANGES_AT_ONCE - 1)) {
        b->changes_paid_ms += CHANGE_MS;
        return true;
    }
    api_problem(c, 429, "rate", "tenant %s changes the pool too often: %u times a second at most",
                c->caller.tenant, 1000u / CHANGE_MS);
    return false;
}

/* Has the caller a line left in this minute? */
static bool has_line(api_budget *b, unsigned most)
{
    uint64_t now = api_now_ms();
    if (now - b->minute_ms >= MINUTE_MS) {
        b->minute_ms = now;
        b->lines = 0;
    }
    if (b->lines == most) {
        b->left_out++;
        return false;
    }
    b->lines++;
    return true;
}

void api_tell_asked(const api_conn *c, unsigned status)
{
    const api_settings *set = &c->a->set;
    const api_caller *who = &c->caller;
    bool looks = c->head.method == EVHTTP_REQ_GET || c->head.method == EVHTTP_REQ_HEAD ||
                 c->head.method == EVHTTP_REQ_OPTIONS;
    api_asked what = { api_role_name(who->role),        who->tenant,     who->token, c->from,
                       api_method_name(c->head.method), c->head.decoded, status,     0 };
    api_budget *b;
    if (!set->asked || !c->head.path || (looks && status != 401 && status != 403))
        return;
    b = budget_of(c->a, who);
    if (b && who->role != API_OPERATOR && status >= 400 &&
        !has_line(b, who->role ? LINES_REFUSED : LINES_NOBODY))
        return;
    what.left_out = b ? b->left_out : 0;
    if (b)
        b->left_out = 0;
    set->asked(set->user, &what);
}
