/* reload.c - see reload.h
   SPDX-License-Identifier: MIT */
#include "reload.h"
#include "jobs.h"
#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct reload {
    job job; /* first: that reads the file */
    keys *k;
    void (*changed)(void *user);
    void *user;
    int wake;
    struct event *woken;
    jobs_pool *pool;
    jobs_lane *lane;
    jobs jobs;
    int rc; /* of keys_read(); the job's while it runs */
    bool running, again;
};

/* job.run */
static void read_file(job *j)
{
    reload *r = (reload *)j;
    r->rc = keys_read(r->k);
}

static void on_wake(evutil_socket_t fd, short what, void *user)
{
    reload *r = user;
    (void)what;
    jobs_woken(fd);
    if (!r->jobs.reap(r->jobs.user))
        return;
    r->running = false;
    if (!r->rc) {
        keys_take(r->k);
        r->changed(r->user);
    }
    if (r->again)
        reload_start(r);
}

reload *reload_new(struct event_base *base, keys *k, void (*changed)(void *user), void *user)
{
    reload *r = calloc(1, sizeof *r);
    if (r) {
        r->job.run = read_file;
        r->k = k;
        r->changed = changed;
        r->user = user;
        r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        r->pool = jobs_pool_new(1);
        if (r->pool)
            r->lane = jobs_lane_new(r->pool, r->wake, &r->jobs);
        if (r->wake >= 0)
            r->woken = event_new(base, r->wake, EV_READ | EV_PERSIST, on_wake, r);
        if (r->lane && r->woken && !event_add(r->woken, NULL))
            return r;
    }
    log_error("SIGHUP: no memory or no eventfd to reload --peers: %s", strerror(errno));
    reload_free(r);
    return NULL;
}

void reload_start(reload *r)
{
    r->again = r->running;
    if (r->running)
        return;
    r->running = true;
    r->jobs.submit(r->jobs.user, &r->job);
}

void reload_free(reload *r)
{
    if (!r)
        return;
    if (r->woken)
        event_free(r->woken);
    if (r->running) { /* to free the pool is to wait for the job */
        keys_abandon(r->k);
        return;
    }
    jobs_lane_free(r->lane);
    jobs_pool_free(r->pool);
    if (r->wake >= 0)
        close(r->wake);
    free(r);
}
