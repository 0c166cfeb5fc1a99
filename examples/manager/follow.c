/* follow.c - answers reads while another manager leads
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "follow.h"

#include "api_head.h"
#include "etcd_gateway.h"
#include "fabric.h"
#include "log.h"
#include "sandbox.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 500,
    LOAD_SHARE = 10,      /* of the time at most goes into loading: a tenth */
    LATE_MS = 1000,       /* a look that is later than that is missed: the program was stopped */
    AGAIN_MS = 1000,      /* until the next one is started; twice as long after each */
    AGAIN_MAX_MS = 32000, /* that ended at once */
    TOLD_BYTES = API_TARGET_MAX_BYTES + 1024
};

/* What the child notifies its parent of, which has the audit log. */
typedef struct refusal {
    unsigned status, left_out;
    char text[TOLD_BYTES]; /* role, tenant, token, from, method and target, each with its end */
} refusal;
enum { TOLD_TEXTS = 6 };

/* ==== The child =============================================================================== */

typedef struct follower {
    const follow_settings *set;
    struct event_base *base;
    struct event *due;
    store *store;
    core *core;
    api *api;
    store_seen seen;
    uint64_t look_ms; /* when to look at the store again, */
    uint64_t good_ms; /* and until when what was seen is served, by etcd_now_ms() */
    int parent;
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

static bool on_doubt(void *user)
{
    const follower *f = user;
    return etcd_now_ms() > f->good_ms;
}

/* The request is answered when its line is on the way. */
static void on_asked(void *user, const api_asked *what)
{
    const follower *f = user;
    const char *const text[TOLD_TEXTS] = { what->role, what->tenant, what->token,
                                           what->from, what->method, what->target };
    refusal t = { .status = what->status, .left_out = what->left_out };
    size_t at = 0;
    for (unsigned i = 0; i < TOLD_TEXTS; i++) {
        size_t room = sizeof t.text - at - (TOLD_TEXTS - i), len = strlen(text[i]);
        len = len < room ? len : room;
        memcpy(t.text + at, text[i], len);
        at += len + 1;
    }
    while (write(f->parent, &t, offsetof(refusal, text) + at) < 0 && errno == EINTR)
        ;
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
    uint64_t began = mono_ms(), began_boot = etcd_now_ms();
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
        api_follow(f->api, &f->seen);
    if (changed)
        f->look_ms = mono_ms() + LOOK_MS + (mono_ms() - began) * LOAD_SHARE;
    f->good_ms = began_boot + (f->look_ms - began) + LATE_MS;
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

static int follow(const follow_settings *set, int parent)
{
    follower f = { .set = set, .parent = parent };
    store_fault fault;
    api_settings users = set->users;
    struct timeval soon = { 0, LOOK_MS * 1000 };
    bool wrong;
    users.clock = on_clock;
    users.doubtful = on_doubt;
    users.asked = set->users.asked ? on_asked : NULL;
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
    api_follow(f.api, &f.seen);
    log_note("standby: answering reads at http://%s", api_address(f.api));
    if (!sandbox_enter())
        (void)event_base_dispatch(f.base);
    return 1;
}

/* ==== The parent ============================================================================== */

static struct {
    pid_t child;
    int refusals;        /* of the child, for the audit log, arrive here */
    uint64_t started_ms; /* when it was started, */
    uint64_t again_ms;   /* when the next one may be, */
    uint64_t wait_ms;    /* how long that was put off */
    void (*asked)(void *user, const api_asked *what);
} the;

static void hear(void)
{
    refusal t;
    ssize_t bytes;
    memset(&t, 0, sizeof t);
    while (the.asked && (bytes = recv(the.refusals, &t, sizeof t - 1, MSG_DONTWAIT)) > 0) {
        const char *text[TOLD_TEXTS], *at = t.text;
        ((char *)&t)[bytes] = '\0';
        for (unsigned i = 0; i < TOLD_TEXTS; i++) {
            text[i] = at;
            at += strlen(at);
            at += at < (char *)&t + bytes;
        }
        const api_asked what = { text[0], text[1], text[2],  text[3],
                                 text[4], text[5], t.status, t.left_out };
        the.asked(NULL, &what);
    }
}

static void forget(void)
{
    hear();
    (void)close(the.refusals);
    the.child = 0;
}

static bool goes_on(void)
{
    if (!the.child)
        return false;
    if (waitpid(the.child, NULL, WNOHANG) == 0) {
        hear();
        return true;
    }
    uint64_t now = mono_ms();
    bool at_once = now - the.started_ms < AGAIN_MS && the.wait_ms;
    the.wait_ms = !at_once                         ? AGAIN_MS
                  : the.wait_ms < AGAIN_MAX_MS / 2 ? the.wait_ms * 2
                                                   : AGAIN_MAX_MS;
    the.again_ms = now + the.wait_ms;
    forget();
    return false;
}

/* Of the child, as it is born. */
static _Noreturn void live(const follow_settings *set, pid_t parent, int to)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
    for (unsigned i = 0; i < sizeof signals / sizeof signals[0]; i++)
        (void)signal(signals[i], SIG_IGN); /* the parent's to act on */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent ? follow(set, to) : 1);
}

void follow_start(const follow_settings *set)
{
    pid_t parent = getpid();
    int pair[2];
    if (goes_on() || mono_ms() < the.again_ms)
        return;
    the.asked = set->users.asked;
    the.started_ms = mono_ms();
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, as it may be inherited, it would hide an end */
    bool paired = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0;
    the.child = paired ? fork() : -1;
    if (the.child == 0) {
        (void)close(pair[0]);
        live(set, parent, pair[1]);
    }
    if (the.child < 0) {
        log_warning("cannot answer reads: fork: %s", strerror(errno));
        if (paired)
            (void)close(pair[0]);
        the.child = 0;
        the.again_ms = mono_ms() + AGAIN_MS;
    } else {
        the.refusals = pair[0];
    }
    if (paired)
        (void)close(pair[1]);
}

void follow_stop(void)
{
    the.again_ms = the.wait_ms = 0;
    if (!the.child)
        return;
    (void)kill(the.child, SIGKILL);
    (void)waitpid(the.child, NULL, 0);
    forget();
}
