/* shots.c - see shots.h
   SPDX-License-Identifier: MIT */
#include "shots.h"
#include "log.h"

#include "screenshot.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct shots {
    job job; /* first: that makes the PNG */
    box *b;
    int wake;
    struct event *woken, *turn;
    jobs_lane *lane;
    jobs jobs;
    jobs_queue done; /* where there are no threads */
    unsigned number; /* of the slot; 0: no picture is being made */
    unsigned row, width, height;
    unsigned code;
    uint8_t *rgb, *png;
    size_t png_bytes;
};

/* In the slot's loop: the next rows.  A picture that changes its size in between is discarded. */
static void copy_rows(void *arg)
{
    shots *s = arg;
    unsigned width = 0, height = 0, rows = SHOTS_PIXELS_PER_TURN / (s->width ? s->width : 1) + 1;
    if (rows > s->height - s->row)
        rows = s->height - s->row;
    s->code = slots_picture(s->b, s->number, NULL, 0, 0, &width, &height);
    if (!s->code && s->rgb && (width != s->width || height != s->height))
        s->code = DXPU_CONTROL_CODE_DARK;
    if (!s->code && s->rgb)
        s->code = slots_picture(s->b, s->number, s->rgb + (size_t)s->row * width * 3, s->row, rows,
                                &width, &height);
    s->row += s->rgb ? rows : 0;
    s->width = width;
    s->height = height;
}

static void end(shots *s, unsigned code)
{
    uint16_t number = (uint16_t)s->number;
    uint8_t *png = s->png;
    free(s->rgb);
    s->rgb = s->png = NULL;
    s->number = 0;
    requests_picture(s->b->requests, number, code, png, s->png_bytes);
}

/* job.run */
static void encode(job *j)
{
    shots *s = (shots *)j;
    s->png = screenshot_encode(s->rgb, s->width, s->height, &s->png_bytes);
}

static void take_back(shots *s)
{
    if (s->jobs.reap(s->jobs.user))
        end(s, s->png ? DXPU_CONTROL_CODE_NONE : DXPU_CONTROL_CODE_MEMORY);
}

static void on_wake(evutil_socket_t fd, short what, void *user)
{
    (void)what;
    jobs_woken(fd);
    take_back(user);
}

static void on_turn(evutil_socket_t fd, short what, void *user)
{
    static const struct timeval at_once = { 0, 0 };
    shots *s = user;
    (void)fd;
    (void)what;
    worker_call(slots_shard(s->b, s->number)->worker, copy_rows, s);
    if (s->code) {
        end(s, s->code);
    } else if (s->row < s->height) {
        if (event_add(s->turn, &at_once))
            end(s, DXPU_CONTROL_CODE_MEMORY);
    } else {
        s->jobs.submit(s->jobs.user, &s->job);
        take_back(s); /* where there are no threads, that was it */
    }
}

unsigned shots_begin(shots *s, unsigned number)
{
    static const struct timeval at_once = { 0, 0 };
    if (s->number)
        return DXPU_CONTROL_CODE_BUSY;
    s->number = number;
    s->row = s->width = s->height = 0;
    worker_call(slots_shard(s->b, number)->worker, copy_rows, s); /* the size */
    if (!s->code) {
        s->rgb = malloc((size_t)s->width * s->height * 3);
        if (!s->rgb || event_add(s->turn, &at_once))
            s->code = DXPU_CONTROL_CODE_MEMORY;
    }
    if (!s->code)
        return DXPU_CONTROL_CODE_NONE;
    free(s->rgb);
    s->rgb = NULL;
    s->number = 0;
    return s->code;
}

shots *shots_open(box *b)
{
    shots *s = calloc(1, sizeof *s);
    if (s) {
        s->b = b;
        s->job.run = encode;
        s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        s->turn = event_new(b->base, -1, 0, on_turn, s);
        jobs_here(&s->done, &s->jobs);
        if (b->pool && s->wake >= 0)
            s->lane = jobs_lane_new(b->pool, s->wake, &s->jobs);
        if (s->wake >= 0)
            s->woken = event_new(b->base, s->wake, EV_READ | EV_PERSIST, on_wake, s);
        if (s->turn && s->woken && (s->lane || !b->pool) && !event_add(s->woken, NULL))
            return s;
    }
    log_error("cannot create an eventfd or memory for screenshots: %s", strerror(errno));
    shots_close(s);
    return NULL;
}

void shots_close(shots *s)
{
    if (!s)
        return;
    s->jobs.settle(s->jobs.user);
    (void)s->jobs.reap(s->jobs.user);
    jobs_lane_free(s->lane);
    if (s->turn)
        event_free(s->turn);
    if (s->woken)
        event_free(s->woken);
    if (s->wake >= 0)
        (void)close(s->wake);
    free(s->rgb);
    free(s->png);
    free(s);
}
