/* guests.c - see guests.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "guests.h"
#include "log.h"
#include "plugger.h"
#include "program.h"
#include "worker.h"

#include <stdlib.h>

/* One of them: its part of the settings. */
typedef struct member {
    host_settings set; /* .guest: of guests_part() */
    manager_settings manager;
    char *attach, *identity;
    host *host;
    worker *worker;
} member;

struct guests {
    member *member;
    unsigned count;
    struct event_base *base; /* of several; NULL: that of the only one */
};

/* ==== Parts of the settings =================================================================== */

static unsigned parts(const char *list, char separator)
{
    unsigned n = 1;
    for (const char *c = list; *c; c++)
        n += *c == separator;
    return n;
}

unsigned guests_count(const char *sockets)
{
    return parts(sockets, ',');
}

/* A copy of the nth part; empty when there are less.  NULL: out of memory. */
static char *part(const char *list, char separator, unsigned n)
{
    const char *end;
    for (; n && list; n--) {
        list = strchr(list, separator);
        list += list != NULL;
    }
    if (!list)
        return strdup("");
    end = strchr(list, separator);
    return end ? strndup(list, (size_t)(end - list)) : strdup(list);
}

/* FILE, FILE.2, and so on; as dxpu-box names the files of its slots. */
static char *numbered(const char *file, unsigned n)
{
    size_t size = strlen(file) + 16;
    char *name = malloc(size);
    if (name)
        snprintf(name, size, n ? "%s.%u" : "%s", file, n + 1);
    return name;
}

int guests_part(const host_settings *all, unsigned n, guest_settings *out)
{
    char *socket = part(all->guest.socket, ',', n);
    char *qmp = all->guest.qmp ? part(all->guest.qmp, ';', n) : NULL;
    bool good = socket && (qmp || !all->guest.qmp);
    *out = all->guest;
    out->socket = socket;
    out->qmp = qmp;
    if (qmp && !*qmp) { /* this one is plugged by others */
        free(qmp);
        out->qmp = NULL;
    }
    return good ? 0 : -1;
}

void guests_part_free(guest_settings *g)
{
    free((void *)(uintptr_t)g->socket); /* guests_part() made it */
    free((void *)(uintptr_t)g->qmp);
    g->socket = g->qmp = NULL;
}

/* The settings of the nth; false: out of memory. */
static bool take_part(const host_settings *all, unsigned n, member *m)
{
    m->set = *all;
    m->set.number = n;
    m->set.node = all->node ? all->node + n : 0;
    if (all->attach) {
        m->attach = part(all->attach, ';', n);
        m->set.attach = m->attach && (*m->attach || !*all->attach) ? m->attach : NULL;
    }
    if (all->manager) {
        m->manager = *all->manager;
        m->manager.number = n;
        m->identity = numbered(all->manager->identity, n);
        m->manager.identity = m->identity;
        m->set.manager = &m->manager;
    }
    return guests_part(all, n, &m->set.guest) == 0 && (!all->attach || m->attach) &&
           (!all->manager || m->identity);
}

static void free_part(member *m)
{
    guests_part_free(&m->set.guest);
    free(m->attach);
    free(m->identity);
}

static const char *check_qmp(const guest_settings *set)
{
    static char text[200];
    char path[PLUG_PATH_BYTES];
    plug_settings out;
    const char *wrong = plug_parse(set->qmp, &out);
    if (!wrong && plugger_path(set, path))
        return NULL;
    if (wrong)
        snprintf(text, sizeof text, "--qmp %.80s: %s", set->qmp, wrong);
    else
        snprintf(text, sizeof text,
                 "--qmp: QEMU needs the whole path of %.60s.N, which is too long; use a shorter "
                 "one, of at most 104 bytes",
                 set->socket);
    return text;
}

static const char *check_part(const host_settings *set, const fabric_settings *net, unsigned n)
{
    member m = { 0 };
    const char *wrong = "out of memory";
    if (take_part(set, n, &m))
        wrong =
            *m.set.guest.socket ? host_check(&m.set, net->listen) : "--vfio-user: an empty name";
    if (!wrong && m.set.guest.qmp)
        wrong = check_qmp(&m.set.guest);
    free_part(&m);
    return wrong;
}

const char *guests_check(const host_settings *set, const fabric_settings *net)
{
    unsigned count = guests_count(set->guest.socket);
    const char *wrong = NULL;
    if (count > GUESTS_MAX)
        return "--vfio-user: at most 64 guests";
    if (set->attach && parts(set->attach, ';') > count)
        return "--attach: more lists, with ; in between, than there are guests";
    if (set->guest.qmp && parts(set->guest.qmp, ';') > count)
        return "--qmp: more of them, with ; in between, than there are guests";
    if (set->node && set->node > UINT32_MAX - (count - 1))
        return "--node: each guest's is one higher, and the last one's no number of 32 bits";
    for (unsigned n = 0; !wrong && n < count; n++)
        wrong = check_part(set, net, n);
    return wrong;
}

/* ==== Life ==================================================================================== */

static int run_one(void *user)
{
    return host_run(user);
}

static int open_one(guests *g, unsigned n, const host_settings *set, const fabric_settings *net,
                    const guests_links *links, int *status)
{
    member *m = &g->member[n];
    fabric_settings own = *net;
    own.shard = n;
    own.beside = n ? host_fabric(g->member[0].host) : NULL;
    if (!take_part(set, n, m)) {
        log_error("out of memory");
        return -1;
    }
    m->host = host_open(&m->set, &own, &links->fds[n], links->again, links->key, status);
    if (!m->host)
        return -1;
    m->worker = worker_new(host_base(m->host), run_one, m->host);
    return m->worker ? 0 : -1;
}

guests *guests_open(const host_settings *set, const fabric_settings *net, const guests_links *links,
                    int *status)
{
    guests *g = calloc(1, sizeof *g);
    unsigned count = guests_count(set->guest.socket);
    if (g && count > 1)
        g->base = event_base_new();
    if (g)
        g->member = calloc(count, sizeof *g->member);
    *status = PROGRAM_SYSTEM;
    if (!g || !g->member || (count > 1 && !g->base)) {
        log_error("out of memory");
        (void)guests_close(g);
        return NULL;
    }
    for (; g->count < count; g->count++) {
        if (open_one(g, g->count, set, net, links, status)) {
            g->count++; /* what there is of it */
            (void)guests_close(g);
            return NULL;
        }
    }
    return g;
}

/* The first one last: captured frames are its. */
int guests_close(guests *g)
{
    int rc = 0;
    if (!g)
        return 0;
    while (g->count-- > 0) {
        member *m = &g->member[g->count];
        worker_free(m->worker);
        if (m->host && host_close(m->host))
            rc = -1;
        free_part(m);
    }
    if (g->base)
        event_base_free(g->base);
    free(g->member);
    free(g);
    return rc;
}

struct event_base *guests_base(guests *g)
{
    return g->base ? g->base : host_base(g->member[0].host);
}

static void stop_one(void *arg)
{
    host_stop(arg);
}

void guests_stop(guests *g)
{
    for (unsigned n = 0; n < g->count; n++)
        worker_call(g->member[n].worker, stop_one, g->member[n].host);
}

static void abandon_one(void *arg)
{
    host_abandon(arg);
}

void guests_abandon(guests *g, unsigned n)
{
    if (n < g->count)
        worker_call(g->member[n].worker, abandon_one, g->member[n].host);
}

static void keys_changed_one(void *arg)
{
    host_keys_changed(arg);
}

void guests_keys_changed(guests *g)
{
    for (unsigned n = 0; n < g->count; n++)
        worker_call(g->member[n].worker, keys_changed_one, g->member[n].host);
}

/* A thread or the first loop failed. */
static void stop_at_once(void *arg)
{
    guests_stop(arg);
    guests_stop(arg);
}

int guests_run(guests *g)
{
    worker *list[GUESTS_MAX];
    workers all = { guests_base(g), list, g->count, false, stop_at_once, g };
    for (unsigned n = 0; n < g->count; n++)
        list[n] = g->member[n].worker;
    return workers_run(&all);
}

typedef struct one_report {
    host *host;
    report *r;
} one_report;

static void report_one(void *arg)
{
    const one_report *o = arg;
    host_report(o->host, o->r);
}

void guests_report(guests *g, report *r)
{
    for (unsigned n = 0; n < g->count; n++) {
        one_report o = { g->member[n].host, r };
        char name[20];
        snprintf(name, sizeof name, "guest_%u", n + 1);
        if (g->count > 1)
            report_open(r, name);
        worker_call(g->member[n].worker, report_one, &o);
        if (g->count > 1)
            report_close(r);
    }
}
