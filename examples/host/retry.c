/* retry.c - see retry.h
   SPDX-License-Identifier: MIT */
#include "retry.h"

void retry_clear(retry_list *l)
{
    memset(l, 0, sizeof *l);
}

static bool is_write(unsigned type)
{
    return type == DXPU_TLP_CFGWR0 || type == DXPU_TLP_CFGWR1;
}

static bool is_config(unsigned type)
{
    return is_write(type) || type == DXPU_TLP_CFGRD0 || type == DXPU_TLP_CFGRD1;
}

bool retry_takes(const dxpu_tlp *t)
{
    return is_config(t->type);
}

static retry_request note(retry_list *l, const dxpu_tlp *t, uint64_t user, uint64_t until_ns)
{
    retry_request r;
    memset(&r, 0, sizeof r);
    r.user = user;
    r.number = l->made++;
    r.until_ns = until_ns;
    r.target = t->target;
    r.register_bytes = t->register_bytes;
    r.type = t->type;
    r.be = t->first_be;
    if (t->payload.len == 4)
        memcpy(r.data, t->payload.ptr, 4);
    return r;
}

void retry_sent(retry_list *l, const dxpu_tlp *t, uint64_t user, uint64_t until_ns)
{
    if (dxpu_tlp_class(t) == DXPU_NONPOSTED)
        l->sent[t->tag % RETRY_TAGS] = note(l, t, user, until_ns);
}

/* In the order in which they were made. */
static bool insert(retry_list *l, const retry_request *r)
{
    unsigned at = l->count;
    if (l->count == RETRY_MAX)
        return false;
    for (; at > 0 && l->waiting[at - 1].number > r->number && !(at == 1 && l->busy); at--)
        l->waiting[at] = l->waiting[at - 1];
    l->waiting[at] = *r;
    l->count++;
    return true;
}

static void take_out(retry_list *l, unsigned at)
{
    l->count--;
    for (; at < l->count; at++)
        l->waiting[at] = l->waiting[at + 1];
}

bool retry_wait(retry_list *l, const dxpu_tlp *t, uint64_t user, uint64_t until_ns)
{
    retry_request r = note(l, t, user, until_ns);
    return insert(l, &r);
}

static void make(const retry_request *r, dxpu_tlp *t)
{
    memset(t, 0, sizeof *t);
    t->type = r->type;
    t->header_dw = 3;
    t->length_dw = 1;
    t->first_be = r->be;
    t->target = r->target;
    t->register_bytes = r->register_bytes;
    t->payload.ptr = is_write(r->type) ? r->data : NULL;
    t->payload.len = is_write(r->type) ? 4 : 0;
}

bool retry_is_config(const retry_list *l, bool again, uint16_t tag)
{
    return again || is_config(l->sent[tag % RETRY_TAGS].type);
}

void retry_request_of(const retry_list *l, bool again, uint16_t tag, dxpu_tlp *t)
{
    make(again ? &l->waiting[0] : &l->sent[tag % RETRY_TAGS], t);
    t->tag = tag;
}

void retry_reset(retry_list *l)
{
    l->cut = l->made;
}

/* When it must have its answer. */
static uint64_t due_ns(const retry_list *l, const retry_request *r)
{
    return r->number < l->cut ? 0 : r->until_ns;
}

bool retry_later(retry_list *l, bool again, uint16_t tag, uint64_t now_ns)
{
    const retry_request *r = again ? &l->waiting[0] : &l->sent[tag % RETRY_TAGS];
    if (now_ns >= due_ns(l, r) || (!again && !insert(l, r)))
        return false;
    if (again)
        l->busy = false;
    l->at_ns = now_ns + RETRY_PAUSE_NS;
    return true;
}

bool retry_next(retry_list *l, uint64_t now_ns, dxpu_tlp *t)
{
    if (!l->count || l->busy || now_ns < l->at_ns)
        return false;
    make(&l->waiting[0], t);
    l->busy = true;
    return true;
}

bool retry_done(retry_list *l, uint64_t *user)
{
    bool tell = !l->waiting[0].answered;
    *user = l->waiting[0].user;
    take_out(l, 0);
    l->busy = false;
    l->at_ns = 0;
    return tell;
}

bool retry_expire(retry_list *l, uint64_t now_ns, uint64_t *user)
{
    for (unsigned i = 0; i < l->count; i++) {
        retry_request *r = &l->waiting[i];
        if (r->answered || now_ns < due_ns(l, r))
            continue;
        *user = r->user;
        r->answered = true;
        if (i > 0 || !l->busy)
            take_out(l, i);
        return true;
    }
    return false;
}

uint64_t retry_next_ns(const retry_list *l)
{
    uint64_t next = DXPU_NEVER;
    if (l->count && !l->busy)
        next = l->at_ns;
    for (unsigned i = 0; i < l->count; i++) {
        uint64_t at = due_ns(l, &l->waiting[i]);
        if (!l->waiting[i].answered && at < next)
            next = at;
    }
    return next;
}
