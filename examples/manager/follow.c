/* follow.c - answers reads while another manager leads
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "follow.h"

#include "fabric.h"
#include "log.h"
#include "sandbox.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 500,
    LOAD_SHARE = 10, /* of the time at most goes into loading: a tenth */
    AGAIN_MS = 1000  /* until the next one is started */
};

/* ==== The child =============================================================================== */

typedef struct follower {
    const follow_settings *set;
    struct event_base *base;
    struct event *due;
    store *store;
    core *core;
    api *api;
    store_seen seen;
    uint64_t look_ms; /* when to look at the store again */
} follower;

static uint64_t unix_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static uint64_t mono_ms(void)
{
    return dxpu_udp_now_ns() / 1000000u;
}

static void on_clock(void *user)
{
    const follower *f = user;
    core_clock(f->core, unix_ms(), mono_ms());
}

/* The tables as the store has them now take the place of those before.  False: there are none. */
static bool load(follower *f)
{
    core_result why;
    core *now = core_open(f->store, &f->set->tables, unix_ms(), mono_ms(), &why);
    if (!now) {
        log_error("%s", why.text);
        return false;
    }
    if (f->api)
        api_set_core(f->api, now);
    core_close(f->core);
    f->core = now;
    return true;
}

/* Whose tables are too old to be served ends. */
static bool look(follower *f)
{
    store_fault fault;
    store_seen now;
    uint64_t began = mono_ms();
    f->look_ms = began + LOOK_MS;
    if (store_etcd_see(f->store, &now, &fault) != STORE_OK) {
        log_warning("%s", fault.text);
        return false;
    }
    bool changed = !f->core || now.revision != f->seen.revision;
    f->seen = now;
    if (changed && !load(f))
        return false;
    if (f->api)
        api_follow(f->api, f->seen.revision, f->seen.leads ? f->seen.users : "");
    if (changed)
        f->look_ms = mono_ms() + LOOK_MS + (mono_ms() - began) * LOAD_SHARE;
    return true;
}

static void on_due(evutil_socket_t fd, short what, void *user)
{
    follower *f = user;
    uint64_t now;
    (void)fd;
    (void)what;
    if (!look(f)) {
        (void)event_base_loopbreak(f->base);
        return;
    }
    now = mono_ms();
    uint64_t wait = f->look_ms > now ? f->look_ms - now : 1;
    struct timeval tv = { (time_t)(wait / 1000), (suseconds_t)(wait % 1000 * 1000) };
    (void)event_add(f->due, &tv);
}

static int follow(const follow_settings *set)
{
    follower f = { .set = set };
    store_fault fault;
    api_settings users = set->users;
    struct timeval soon = { 0, LOOK_MS * 1000 };
    bool wrong;
    users.clock = on_clock;
    users.user = &f;
    f.store = store_open_etcd(&set->etcd, &fault);
    if (!f.store) {
        log_warning("%s", fault.text);
        return 1;
    }
    f.base = event_base_new();
    f.due = f.base ? evtimer_new(f.base, on_due, &f) : NULL;
    if (!f.due || event_add(f.due, &soon) || !look(&f))
        return 1;
    f.api = api_open(f.base, f.core, &users, &wrong);
    if (!f.api)
        return 1;
    api_follow(f.api, f.seen.revision, f.seen.leads ? f.seen.users : "");
    log_note("standby: readers at http://%s", api_address(f.api));
    if (!sandbox_enter())
        (void)event_base_dispatch(f.base);
    return 1;
}

/* ==== The parent ============================================================================== */

static struct {
    pid_t child;
    uint64_t again_ms; /* when the next may be started */
} the;

static bool goes_on(void)
{
    if (!the.child || waitpid(the.child, NULL, WNOHANG) != the.child)
        return the.child != 0;
    the.child = 0;
    the.again_ms = mono_ms() + AGAIN_MS;
    return false;
}

void follow_start(const follow_settings *set)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
    pid_t parent = getpid();
    if (goes_on() || mono_ms() < the.again_ms)
        return;
    the.child = fork();
    if (the.child > 0)
        return;
    if (the.child < 0) {
        log_warning("no reads are answered: fork: %s", strerror(errno));
        the.child = 0;
        the.again_ms = mono_ms() + AGAIN_MS;
        return;
    }
    for (unsigned i = 0; i < sizeof signals / sizeof signals[0]; i++)
        (void)signal(signals[i], SIG_IGN); /* the parent's to act on */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent ? follow(set) : 1);
}

void follow_stop(void)
{
    if (!the.child)
        return;
    (void)kill(the.child, SIGKILL);
    (void)waitpid(the.child, NULL, 0);
    the.child = 0;
}
