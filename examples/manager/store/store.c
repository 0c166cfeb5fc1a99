/* store.c - what the stores have in common
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "dxpu_libevent.h"
#include "store_internal.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

store_error storei_fault(store_fault *f, store_error code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    f->code = code;
    return code;
}

static bool in_range(const store_change *c)
{
    size_t len = strnlen(c->key, STORE_KEY_MAX_BYTES + 1);
    bool good = len && len <= STORE_KEY_MAX_BYTES && c->len <= STORE_VALUE_MAX_BYTES;
    for (size_t i = 0; good && i < len; i++)
        good = c->key[i] > ' ' && c->key[i] < 127;
    return good;
}

store_error storei_check(const store_change *changes, unsigned count, store_fault *f)
{
    if (!count || count > STORE_CHANGES_MAX)
        return storei_fault(f, STORE_E_ARG, "between 1 and %d changes", STORE_CHANGES_MAX);
    for (unsigned i = 0; i < count; i++)
        if (!in_range(&changes[i]))
            return storei_fault(f, STORE_E_ARG, "a key or value of a record is out of range");
    return STORE_OK;
}

store_error store_load(store *s, const char *prefix, store_each each, void *user, store_fault *f)
{
    return s->kind->load(s, prefix, each, user, f);
}

store_error store_commit(store *s, const store_change *changes, unsigned count, store_fault *f)
{
    uint64_t begin_ns = dxpu_udp_now_ns();
    store_error rc = s->kind->commit(s, changes, count, f);
    if (rc == STORE_OK && count) { /* not a look whether it can be written again */
        histogram_add(&s->commit_ns, dxpu_udp_now_ns() - begin_ns);
        s->changes += count;
    }
    return rc;
}

unsigned store_share(const store *s)
{
    return s->kind->share ? s->kind->share : STORE_CHANGES_MAX;
}

store_error store_check(store *s, store_fault *f)
{
    return s->kind->check ? s->kind->check(s, f) : STORE_OK;
}

unsigned store_check_ms(const store *s)
{
    return s->kind->check_ms ? s->kind->check_ms(s) : UINT_MAX;
}

bool store_is_sure(const store *s)
{
    return !s->kind->sure || s->kind->sure(s);
}

void store_report(const store *s, report *r)
{
    report_open(r, "store");
    report_number(r, "commits", s->commit_ns.count);
    report_number(r, "changes", s->changes);
    report_histogram(r, "commit_us", &s->commit_ns);
    report_close(r);
}

void store_close(store *s)
{
    if (s)
        s->kind->close(s);
}
