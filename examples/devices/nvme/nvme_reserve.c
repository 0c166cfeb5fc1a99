/* nvme_reserve.c - reservations of namespaces that several controllers have
   SPDX-License-Identifier: MIT

   NVMe 1.4, 6.10 to 6.13 and 8.8.  A registration is a host's, by its identifier, whichever of its
   controllers it came by.  A host without an identifier is known by its controller alone, until
   that is reset.

   All controllers of a subsystem are in one loop: what one does is what all see at once.  What is
   to persist is in the file before the command is over.

   CONTENTS   1 Hosts   2 Access   3 Notices   4 Changes   5 Commands   6 Report   7 Features
              8 Ends   9 The file */
#include "nvme_model.h"

#include <errno.h>
#include <stdlib.h>

enum {
    WRITE_EXCLUSIVE = 1,
    EXCLUSIVE_ACCESS,
    WRITE_REGISTRANTS,
    ACCESS_REGISTRANTS,
    WRITE_ALL,
    ACCESS_ALL
};
enum { NOTICE_REGISTRATION = 1, NOTICE_RELEASED = 2, NOTICE_RESERVATION = 3 };
enum { EVENT_TYPE = 6 }; /* I/O command set specific */
#define IGNORE_KEY 0x8u

/* ==== 1  Hosts ================================================================================ */

static bool same_host(const nvme_host *x, const nvme_host *y)
{
    return x->alone == y->alone && !memcmp(x->id, y->id, sizeof x->id);
}

/* The index of its registration; r->count: it has none. */
static uint32_t find(const nvme_reservation *r, const nvme_host *host)
{
    uint32_t i = 0;
    while (i < r->count && !same_host(&r->of[i].host, host))
        i++;
    return i;
}

static bool holds(const nvme_reservation *r, uint32_t i)
{
    return r->type && i < r->count && (nvme_all_hold(r->type) || r->holder == i);
}

static nvme_reservation *of_command(const nvme *n, const nvme_command *c)
{
    return &n->subsystem->reservation[c->ns - n->ns];
}

/* ==== 2  Access =============================================================================== */

/* Of admin commands, Namespace Attachment alone. */
static bool writes(const nvme_command *c)
{
    return !c->sqid || c->opcode == 0x00 || c->opcode == 0x01 || c->opcode == 0x08 ||
           c->opcode == 0x09;
}

static bool reads(const nvme_command *c)
{
    return c->sqid && (c->opcode == 0x02 || c->opcode == 0x05 || c->opcode == 0x0c);
}

static bool conflicts(const nvme *n, const nvme_command *c, const nvme_reservation *r)
{
    uint32_t i = find(r, &n->host);
    bool is_registered = i < r->count;
    switch (r->type) {
    case WRITE_EXCLUSIVE:
        return writes(c) && !holds(r, i);
    case EXCLUSIVE_ACCESS:
        return (writes(c) || reads(c)) && !holds(r, i);
    case WRITE_REGISTRANTS:
    case WRITE_ALL:
        return writes(c) && !is_registered;
    case ACCESS_REGISTRANTS:
    case ACCESS_ALL:
        return (writes(c) || reads(c)) && !is_registered;
    default:
        return false;
    }
}

uint16_t nvme_reserve_check(const nvme *n, const nvme_command *c)
{
    bool any = false;
    if (!n->subsystem->reservation)
        return NVME_SUCCESS;
    for (uint32_t i = 0; i < n->ns_count; i++) {
        if (c->ns ? c->ns == &n->ns[i] : n->ns[i].is.attached) /* NULL: Flush of all */
            any |= conflicts(n, c, &n->subsystem->reservation[i]);
    }
    return any ? NVME_RESERVATION_CONFLICT | NVME_DNR : NVME_SUCCESS;
}

/* ==== 3  Notices ============================================================================== */

/* Its next tick delivers them. */
static void notify(nvme *n, uint32_t i, unsigned type)
{
    if (!n->ns[i].is.attached || (n->ns[i].mask >> type & 1))
        return;
    n->notices_made++;
    if (n->notice_count == NVME_NOTICES) /* the page's counter shows that some are missing */
        return;
    n->notices[n->notice_count].type = (uint8_t)type;
    n->notices[n->notice_count].nsid = i + 1;
    n->notices[n->notice_count++].number = n->notices_made;
    nvme_event(n, EVENT_TYPE, 0, NVME_LOG_RESERVATION);
}

/* All controllers of a host. */
static void notify_host(const nvme *n, uint32_t i, const nvme_host *host, unsigned type)
{
    for (nvme *o = n->subsystem->first; o; o = o->sibling) {
        if (same_host(&o->host, host))
            notify(o, i, type);
    }
}

static void notify_others(const nvme *n, uint32_t i, unsigned type)
{
    const nvme_reservation *r = &n->subsystem->reservation[i];
    for (uint32_t k = 0; k < r->count; k++) {
        if (!same_host(&r->of[k].host, &n->host))
            notify_host(n, i, &r->of[k].host, type);
    }
}

void nvme_reserve_log(const nvme *n, uint8_t *page)
{
    if (!n->notice_count)
        return;
    dxpu_put_le64(page, n->notices[0].number);
    page[8] = n->notices[0].type;
    page[9] = (uint8_t)(n->notice_count - 1);
    dxpu_put_le32(page + 12, n->notices[0].nsid);
}

void nvme_reserve_log_read(nvme *n)
{
    if (!n->notice_count)
        return;
    n->notice_count--;
    memmove(n->notices, n->notices + 1, n->notice_count * sizeof n->notices[0]);
    if (n->notice_count)
        nvme_event(n, EVENT_TYPE, 0, NVME_LOG_RESERVATION);
}

/* ==== 4  Changes ============================================================================== */

void nvme_reserve_changed(const nvme *n)
{
    n->subsystem->version++;
}

/* The type is over; registrants that were let in by it learn so.  i: of the namespace. */
static void release(const nvme *n, uint32_t i)
{
    nvme_reservation *r = &n->subsystem->reservation[i];
    bool is_told = r->type >= WRITE_REGISTRANTS;
    r->type = 0;
    if (is_told)
        notify_others(n, i, NOTICE_RELEASED);
}

/* Registration k goes, and what its host holds. */
static void unregister(const nvme *n, uint32_t i, uint32_t k)
{
    nvme_reservation *r = &n->subsystem->reservation[i];
    bool ends = nvme_all_hold(r->type) ? r->count == 1 : holds(r, k);
    r->count--;
    memmove(&r->of[k], &r->of[k + 1], (r->count - k) * sizeof r->of[0]);
    if (ends)
        release(n, i);
    else if (r->holder > k)
        r->holder--;
}

/* Commands of a host that lost its registration. */
static void abort_all(const nvme *n, uint32_t i, const nvme_host *host)
{
    for (nvme *o = n->subsystem->first; o; o = o->sibling) {
        if (o != n && same_host(&o->host, host))
            nvme_preempt(o, &o->ns[i]);
    }
}

/* Those with this key, or, any_key, all; not the own one, if `others`.  How many. */
static uint32_t preempt_all(nvme *n, const nvme_command *c, uint64_t key, bool any_key, bool others)
{
    uint32_t i = (uint32_t)(c->ns - n->ns), count = 0;
    nvme_reservation *r = of_command(n, c);
    for (uint32_t k = r->count; k-- > 0;) {
        nvme_host host = r->of[k].host;
        bool is_own = same_host(&host, &n->host);
        if ((!any_key && r->of[k].key != key) || (is_own && others))
            continue;
        unregister(n, i, k);
        count++;
        if (is_own)
            continue;
        notify_host(n, i, &host, NOTICE_REGISTRATION);
        if ((c->dw[10] & 7) == 2)
            abort_all(n, i, &host);
    }
    return count;
}

/* ==== 5  Commands ============================================================================= */

enum { STAGE_ABORTS = 1, STAGE_FILE = 2 }; /* of a command that waits */

void nvme_reserve_settle(nvme *n, nvme_command *c, uint16_t status)
{
    if (status != NVME_SUCCESS) {
        nvme_finish(n, c, status);
        return;
    }
    c->at = n->subsystem->version;
    c->index = c->sqid && c->opcode == 0x11 && (c->dw[10] & 7) == 2 ? STAGE_ABORTS : STAGE_FILE;
    nvme_drop_buffer(n, c);
    nvme_list_append(&n->reserving, c);
}

static uint16_t set_persistence(nvme *n, nvme_reservation *r, bool persists)
{
    if (persists && !n->subsystem->keeps)
        return NVME_INVALID_FIELD | NVME_DNR;
    r->persists = persists;
    return NVME_SUCCESS;
}

/* A host may not fill the table of all. */
static bool brings_more(const nvme *n, const nvme_reservation *r)
{
    uint32_t own = 0;
    for (uint32_t k = 0; k < r->count; k++)
        own += r->of[k].by == n->id;
    return own < NVME_REGISTRANTS_EACH;
}

static uint16_t add(nvme *n, nvme_reservation *r, uint32_t me, uint64_t key)
{
    if (me < r->count)
        return r->of[me].key == key ? NVME_SUCCESS : NVME_RESERVATION_CONFLICT | NVME_DNR;
    if (r->count == NVME_REGISTRANTS || !brings_more(n, r))
        return NVME_INTERNAL_ERROR;
    r->of[me].host = n->host;
    r->of[me].key = key;
    r->of[me].by = n->id;
    r->count++;
    return NVME_SUCCESS;
}

static void registered(nvme *n, nvme_command *c)
{
    nvme_reservation *r = of_command(n, c);
    uint64_t current = dxpu_get_le64(c->buffer), next = dxpu_get_le64(c->buffer + 8);
    uint32_t me = find(r, &n->host), action = c->dw[10] & 7;
    bool matches = me < r->count && ((c->dw[10] & IGNORE_KEY) || r->of[me].key == current);
    uint16_t status = NVME_SUCCESS;
    if (c->dw[10] >> 31 && (c->dw[10] >> 30 & 1) && !n->subsystem->keeps)
        status = NVME_INVALID_FIELD | NVME_DNR;
    else if (action == 0)
        status = add(n, r, me, next);
    else if (!matches)
        status = NVME_RESERVATION_CONFLICT | NVME_DNR;
    else if (action == 1)
        unregister(n, (uint32_t)(c->ns - n->ns), me);
    else
        r->of[me].key = next;
    if (status == NVME_SUCCESS) {
        if (c->dw[10] >> 31)
            (void)set_persistence(n, r, c->dw[10] >> 30 & 1);
        r->generation++;
        nvme_reserve_changed(n);
    }
    nvme_reserve_settle(n, c, status);
}

uint16_t nvme_reserve_register(nvme *n, nvme_command *c)
{
    if ((c->dw[10] & 7) > 2 || c->dw[10] >> 30 == 1)
        return NVME_INVALID_FIELD | NVME_DNR;
    return nvme_transfer(n, c, false, 16, registered);
}

/* Base Spec 8.8.7 */
static uint16_t preempt(nvme *n, nvme_command *c, uint8_t type)
{
    nvme_reservation *r = of_command(n, c);
    uint32_t i = (uint32_t)(c->ns - n->ns), holder = r->holder;
    uint64_t key = dxpu_get_le64(c->buffer + 8);
    uint8_t before = r->type;
    bool takes = before && (nvme_all_hold(r->type) ? key == 0 : key == r->of[holder].key);
    if (before && !takes && !key && !nvme_all_hold(r->type))
        return NVME_INVALID_FIELD | NVME_DNR;
    if (!takes)
        return preempt_all(n, c, key, false, false) ? NVME_SUCCESS
                                                    : NVME_RESERVATION_CONFLICT | NVME_DNR;
    r->type = 0; /* not by the loss of a registration: it has a new holder at once */
    (void)preempt_all(n, c, key, nvme_all_hold(before), true);
    r->type = type;
    r->holder = find(r, &n->host);
    if (before != type && before >= WRITE_REGISTRANTS)
        notify_others(n, i, NOTICE_RELEASED);
    return NVME_SUCCESS;
}

static void acquired(nvme *n, nvme_command *c)
{
    nvme_reservation *r = of_command(n, c);
    uint32_t me = find(r, &n->host);
    uint8_t type = (uint8_t)(c->dw[10] >> 8);
    uint16_t status = NVME_SUCCESS;
    if (me == r->count || r->of[me].key != dxpu_get_le64(c->buffer)) {
        status = NVME_RESERVATION_CONFLICT | NVME_DNR;
    } else if (c->dw[10] & 7) {
        status = preempt(n, c, type);
        r->generation += status == NVME_SUCCESS;
    } else if (r->type) {
        if (!holds(r, me) || r->type != type)
            status = NVME_RESERVATION_CONFLICT | NVME_DNR;
    } else {
        r->type = type;
        r->holder = me;
    }
    if (status == NVME_SUCCESS)
        nvme_reserve_changed(n);
    nvme_reserve_settle(n, c, status);
}

uint16_t nvme_reserve_acquire(nvme *n, nvme_command *c)
{
    uint32_t type = c->dw[10] >> 8 & 0xff;
    if ((c->dw[10] & 7) > 2 || (c->dw[10] & IGNORE_KEY) || type < WRITE_EXCLUSIVE ||
        type > ACCESS_ALL)
        return NVME_INVALID_FIELD | NVME_DNR;
    return nvme_transfer(n, c, false, 16, acquired);
}

static void released(nvme *n, nvme_command *c)
{
    nvme_reservation *r = of_command(n, c);
    uint32_t i = (uint32_t)(c->ns - n->ns), me = find(r, &n->host);
    uint8_t type = (uint8_t)(c->dw[10] >> 8);
    uint16_t status = NVME_SUCCESS;
    if (me == r->count || r->of[me].key != dxpu_get_le64(c->buffer)) {
        status = NVME_RESERVATION_CONFLICT | NVME_DNR;
    } else if (c->dw[10] & 7) { /* clear */
        notify_others(n, i, NOTICE_RESERVATION);
        r->type = 0;
        r->count = 0;
        r->generation++;
        nvme_reserve_changed(n);
    } else if (holds(r, me)) {
        if (r->type != type)
            status = NVME_INVALID_FIELD | NVME_DNR;
        else
            release(n, i);
        nvme_reserve_changed(n);
    }
    nvme_reserve_settle(n, c, status);
}

uint16_t nvme_reserve_release(nvme *n, nvme_command *c)
{
    if ((c->dw[10] & 7) > 1 || (c->dw[10] & IGNORE_KEY))
        return NVME_INVALID_FIELD | NVME_DNR;
    return nvme_transfer(n, c, false, 8, released);
}

/* ==== 6  Report =============================================================================== */

typedef struct report_page {
    uint8_t *at, *end;
    uint32_t count;
    bool extended;
} report_page;

static void report_one(report_page *p, uint16_t id, const nvme_registrant *of, bool is_holder)
{
    uint32_t bytes = p->extended ? 64 : 24;
    p->count++;
    if (p->end - p->at < (ptrdiff_t)bytes) {
        p->at = p->end; /* no later one in its place */
        return;
    }
    dxpu_put_le16(p->at, id);
    p->at[2] = is_holder;
    dxpu_put_le64(p->at + (p->extended ? 8 : 16), of->key);
    memcpy(p->at + (p->extended ? 16 : 8), of->host.id, p->extended ? 16 : 8);
    p->at += bytes;
}

/* Each controller of the host; one that none serves now is of no particular controller. */
static void report_host(const nvme *n, const nvme_reservation *r, uint32_t k, report_page *p)
{
    bool any = false;
    for (const nvme *o = n->subsystem->first; o; o = o->sibling) {
        if (!same_host(&o->host, &r->of[k].host))
            continue;
        report_one(p, o->id, &r->of[k], holds(r, k));
        any = true;
    }
    if (!any)
        report_one(p, 0xffff, &r->of[k], holds(r, k));
}

/* Some host has an identifier: a registered one, or that of a controller other than `besides`. */
static bool any_identifier(const nvme *n, const nvme *besides)
{
    const nvme_subsystem *b = n->subsystem;
    bool any = false;
    for (const nvme *o = b->first; o; o = o->sibling)
        any |= o != besides && !o->host.alone;
    for (uint32_t i = 0; i < b->stores; i++) {
        for (uint32_t k = 0; k < b->reservation[i].count; k++)
            any |= !b->reservation[i].of[k].host.alone;
    }
    return any;
}

uint16_t nvme_reserve_report(nvme *n, nvme_command *c)
{
    const nvme_reservation *r = of_command(n, c);
    uint64_t bytes = ((uint64_t)c->dw[10] + 1) * 4;
    report_page p = { .extended = c->dw[11] & 1 };
    uint8_t head[24] = { 0 };
    if (bytes > NVME_TRANSFER_BYTES)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (p.extended != n->subsystem->extended && any_identifier(n, NULL))
        return NVME_HOST_FORMAT; /* Linux's driver then asks for 64 bits; not after DNR */
    if (!nvme_io_buffer(n, c, (uint32_t)bytes))
        return nvme_io_starve(n, c);
    memset(c->buffer, 0, bytes);
    p.end = c->buffer + bytes;
    p.at = bytes > (p.extended ? 64u : 24u) ? c->buffer + (p.extended ? 64 : 24) : p.end;
    for (uint32_t k = 0; k < r->count; k++)
        report_host(n, r, k, &p);
    dxpu_put_le32(head, r->generation);
    head[4] = r->type;
    dxpu_put_le16(head + 5, p.count);
    head[9] = r->persists;
    memcpy(c->buffer, head, bytes < sizeof head ? (size_t)bytes : sizeof head);
    return nvme_transfer(n, c, true, (uint32_t)bytes, nvme_admin_done);
}

/* ==== 7  Features ============================================================================= */

enum { FEATURE_HOST = 0x81, FEATURE_MASK = 0x82, FEATURE_PERSISTENCE = 0x83 };

bool nvme_reserve_is_feature(const nvme *n, unsigned id)
{
    return nvme_is_shared(n) && id >= FEATURE_HOST && id <= FEATURE_PERSISTENCE;
}

/* From now on it serves another host.  All hosts of a subsystem that have an identifier have one of
   the same format. */
static void set_identifier(nvme *n, nvme_command *c)
{
    nvme_host host = { .alone = n->id };
    bool is_extended = c->bytes == NVME_HOST_BYTES;
    memcpy(host.id, c->buffer, c->bytes);
    for (unsigned i = 0; i < NVME_HOST_BYTES; i++)
        host.alone = host.id[i] ? 0 : host.alone;
    if (!host.alone && n->subsystem->extended != is_extended && any_identifier(n, n)) {
        nvme_finish(n, c, NVME_HOST_FORMAT | NVME_DNR);
        return;
    }
    if (!same_host(&host, &n->host)) {
        if (nvme_is_serving(n)) { /* who preempts the host would not find them */
            nvme_finish(n, c, NVME_SEQUENCE_ERROR | NVME_DNR);
            return;
        }
        nvme_reserve_reset(n);
        n->host = host;
    }
    if (!host.alone)
        n->subsystem->extended = is_extended;
    nvme_finish(n, c, NVME_SUCCESS);
}

/* Of one namespace, or of all.  NULL after the last; *i is where it goes on. */
static nvme_ns *next_meant(nvme *n, const nvme_command *c, uint32_t *i)
{
    for (; *i < n->ns_count; ++*i) {
        if (c->nsid == NVME_NSID_ALL || c->nsid == *i + 1)
            return &n->ns[(*i)++];
    }
    return NULL;
}

static uint16_t set_of_namespaces(nvme *n, nvme_command *c, unsigned id)
{
    uint32_t i = 0;
    uint16_t status = NVME_SUCCESS;
    if (c->nsid != NVME_NSID_ALL && !nvme_active(n, c->nsid))
        return nvme_inactive(n, c->nsid);
    if (c->dw[11] & (id == FEATURE_MASK ? ~0xeu : ~1u))
        return NVME_INVALID_FIELD | NVME_DNR;
    for (nvme_ns *s; status == NVME_SUCCESS && (s = next_meant(n, c, &i));) {
        if (id == FEATURE_MASK)
            s->mask = (uint8_t)c->dw[11];
        else
            status = set_persistence(n, &n->subsystem->reservation[s - n->ns], c->dw[11] & 1);
    }
    if (id == FEATURE_MASK || status != NVME_SUCCESS)
        return status;
    nvme_reserve_changed(n);
    nvme_reserve_settle(n, c, NVME_SUCCESS);
    return NVME_PENDING;
}

uint16_t nvme_reserve_set(nvme *n, nvme_command *c)
{
    unsigned id = c->dw[10] & 0xff;
    if (c->dw[10] >> 31)
        return NVME_NOT_SAVEABLE | NVME_DNR;
    if (id != FEATURE_HOST)
        return set_of_namespaces(n, c, id);
    if (c->nsid != 0 && c->nsid != NVME_NSID_ALL)
        return NVME_NOT_PER_NAMESPACE | NVME_DNR;
    if (c->dw[11] & ~1u)
        return NVME_INVALID_FIELD | NVME_DNR;
    return nvme_transfer(n, c, false, c->dw[11] & 1 ? NVME_HOST_BYTES : 8, set_identifier);
}

uint16_t nvme_reserve_get(nvme *n, nvme_command *c)
{
    unsigned id = c->dw[10] & 0xff, select = c->dw[10] >> 8 & 7;
    uint32_t bytes = c->dw[11] & 1 ? NVME_HOST_BYTES : 8;
    if (select > 3)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (select == 3) { /* changeable; of a namespace */
        c->result = id == FEATURE_HOST ? 4 : 6;
        return NVME_SUCCESS;
    }
    if (id != FEATURE_HOST && !nvme_active(n, c->nsid))
        return nvme_inactive(n, c->nsid);
    if (id == FEATURE_MASK)
        c->result = select ? 0 : n->ns[c->nsid - 1].mask;
    if (id == FEATURE_PERSISTENCE)
        c->result = !select && n->subsystem->reservation[c->nsid - 1].persists;
    if (id != FEATURE_HOST)
        return NVME_SUCCESS;
    if (!n->host.alone && (c->dw[11] & 1) != n->subsystem->extended)
        return NVME_HOST_FORMAT | NVME_DNR;
    if (!nvme_buffer(n, c, bytes))
        return NVME_INTERNAL_ERROR;
    if (!select)
        memcpy(c->buffer, n->host.id, bytes);
    return nvme_transfer(n, c, true, bytes, nvme_admin_done);
}

/* ==== 8  Ends ================================================================================= */

/* Registrations k of namespace i that are meant, of all namespaces, go. */
static void drop(nvme *n, bool (*is_meant)(const nvme *n, const nvme_registrant *of))
{
    for (uint32_t i = 0; i < n->subsystem->stores; i++) {
        nvme_reservation *r = &n->subsystem->reservation[i];
        for (uint32_t k = r->count; k-- > 0;) {
            if (is_meant(n, &r->of[k])) {
                unregister(n, i, k);
                nvme_reserve_changed(n);
            }
        }
    }
}

static bool is_alone(const nvme *n, const nvme_registrant *of)
{
    return of->host.alone == n->id;
}

void nvme_reserve_reset(nvme *n)
{
    if (!nvme_is_shared(n))
        return;
    drop(n, is_alone);
    memset(&n->host, 0, sizeof n->host);
    n->host.alone = n->id;
    n->notice_count = 0;
    for (uint32_t i = 0; i < n->ns_count; i++)
        n->ns[i].mask = 0;
}

/* And no other controller, which has no room for it, serves its host. */
static bool came_by(const nvme *n, const nvme_registrant *of)
{
    bool is = of->by == n->id;
    for (const nvme *o = n->subsystem->first; o; o = o->sibling)
        is &= o == n || !same_host(&o->host, &of->host);
    return is;
}

/* Whose hosts another controller serves: from now on they came by that one, whose lease ends
   them, if it has room. */
static void hand_on(const nvme *n, nvme_reservation *r)
{
    for (uint32_t k = 0; k < r->count; k++) {
        for (nvme *o = n->subsystem->first; o && r->of[k].by == n->id; o = o->sibling) {
            if (o == n || !same_host(&o->host, &r->of[k].host) || !brings_more(o, r))
                continue;
            r->of[k].by = o->id;
            nvme_reserve_changed(n);
        }
    }
}

static bool any_one(const nvme *n, const nvme_registrant *of)
{
    (void)n;
    (void)of;
    return true;
}

void nvme_reserve_leave(nvme *n, bool all)
{
    if (!nvme_is_shared(n))
        return;
    for (uint32_t i = 0; !all && i < n->subsystem->stores; i++)
        hand_on(n, &n->subsystem->reservation[i]);
    drop(n, all ? any_one : came_by);
    for (nvme *o = all ? n->subsystem->first : n; o; o = all ? o->sibling : NULL)
        nvme_subsystem_attach_all(o);
    for (uint32_t i = 0; all && i < n->subsystem->stores; i++)
        memset(&n->subsystem->reservation[i], 0, sizeof n->subsystem->reservation[i]);
    if (all || n->subsystem->written < n->subsystem->version) /* what could not be is tried again */
        nvme_reserve_changed(n);
}

/* ==== 9  The file ============================================================================= */

void nvme_reserve_written(nvme *n, const nvme_access *a)
{
    nvme_subsystem *b = n->subsystem;
    b->writer = NULL;
    free(b->kept);
    b->kept = NULL;
    if (!a->error) {
        b->written = a->at;
        b->kept = malloc(a->buffer_bytes);
        if (b->kept)
            memcpy(b->kept, a->buffer, a->buffer_bytes);
    } else if (a->error != ECANCELED) {
        b->failed = a->at;
        b->error = a->error;
    }
}

uint16_t nvme_reserve_kept(const nvme *n, uint64_t version)
{
    const nvme_subsystem *b = n->subsystem;
    if (!b->path || !b->reservation || b->written >= version)
        return NVME_SUCCESS;
    return b->failed >= version ? NVME_INTERNAL_ERROR : NVME_PENDING;
}

/* nvme_then: the command is not a host's. */
static void wrote(nvme *n, nvme_command *c, const nvme_access *a)
{
    (void)a;
    nvme_drop_buffer(n, c);
}

static void over(nvme *n, nvme_command *c, uint16_t status)
{
    (void)status;
    nvme_drop_buffer(n, c);
}

/* One write at a time, by whichever controller comes first: it takes all there is by then. */
static bool begin_write(nvme *n)
{
    nvme_subsystem *b = n->subsystem;
    char *text;
    size_t len;
    if (nvme_reserve_kept(n, b->version) != NVME_PENDING || b->writer || n->keeper.access)
        return false;
    text = nvme_subsystem_text(b);
    if (text && b->kept && !strcmp(text, b->kept)) { /* what changed does not persist */
        b->written = b->version;
        free(text);
        return true;
    }
    len = text ? strlen(text) + 1 : 0;
    n->keeper.over = over;
    if (text && nvme_buffer(n, &n->keeper, (uint32_t)len)) {
        memcpy(n->keeper.buffer, text, len);
        b->writer = n;
        if (nvme_access_begin(n, &n->keeper, NVME_OP_RESERVATIONS, NULL, b->version, 0, false,
                              wrote) != NVME_PENDING) {
            b->writer = NULL;
            nvme_drop_buffer(n, &n->keeper);
        }
    }
    if (!b->writer && b->written < b->version && !n->keeper.access) {
        b->failed = b->version;
        b->error = ENOMEM;
    }
    free(text);
    return b->writer == n;
}

/* Nothing of what was preempted is under way, nor of a host that was lost before. */
static bool aborts_are_over(nvme *n)
{
    bool is_over = nvme_subsystem_quiet(n);
    for (const nvme *o = n->subsystem->first; o; o = o->sibling)
        is_over &= !nvme_is_preempting(o);
    return is_over;
}

/* NVME_PENDING, or how it ends. */
static uint16_t go_on(nvme *n, nvme_command *c)
{
    if (c->index == STAGE_ABORTS && !aborts_are_over(n))
        return NVME_PENDING;
    c->index = STAGE_FILE;
    return nvme_reserve_kept(n, c->at);
}

bool nvme_reserve_work(nvme *n)
{
    nvme_subsystem *b = n->subsystem;
    nvme_command *next;
    bool any;
    if (!b->reservation)
        return false;
    while (b->writer && b->writer != n && nvme_subsystem_reap(b->writer)) /* it may have no host */
        continue;
    any = begin_write(n);
    for (nvme_command *c = n->reserving.head; c; c = next) {
        uint16_t status = go_on(n, c);
        next = c->next;
        if (status == NVME_PENDING)
            continue;
        (void)nvme_list_remove(&n->reserving, c);
        nvme_finish(n, c, status);
        any = true;
    }
    return any;
}
