/* pool_top.c - dxpu top: the pool, its leases and events, redrawn each second
   SPDX-License-Identifier: MIT

   CONTENTS   1 What is shown   2 The picture   3 The terminal   4 The loop */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "pool.h"
#include "pool_print.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum {
    EVERY_MS = 1000,
    LEASES_MAX = 200,
    EVENTS_MAX = 100,
    SNAPSHOT_EVENTS = 10,
    EVENTS_LEAST = 5 /* rows that events keep when there are many leases */
};

/* ==== 1  What is shown ======================================================================== */

typedef struct view {
    pool_call *r;
    json_t *pool, *leases, *events; /* of the last time that the manager answered; NULL: never */
    uint64_t next;                  /* events behind this one are new */
    char at[16];                    /* when that was */
} view;

static void keep_view(json_t **into, json_t *value)
{
    json_decref(*into);
    *into = value;
}

static int fetch_events(view *v)
{
    json_t *news;
    int rc = pool_last_events(v->r, "", EVENTS_MAX, &news, &v->next);
    if (rc)
        return rc;
    if (!v->events)
        v->events = json_array();
    if (!v->events || json_array_extend(v->events, news))
        out_of_memory();
    json_decref(news);
    while (json_array_size(v->events) > EVENTS_MAX)
        json_array_remove(v->events, 0);
    return 0;
}

/* 0, or an exit status; v->r->trouble says why. */
static int fetch(view *v)
{
    pool_call *r = v->r;
    time_t now = time(NULL);
    struct tm tm;
    int rc = pool_get(r, "/v1/pool");
    if (!rc && !pool_is_overview(r->client.body))
        rc = pool_misfit(r, "it is not an overview of a pool");
    if (!rc) {
        keep_view(&v->pool,
                  r->json ? pool_client_document(&r->client) : json_incref(r->client.body));
        rc = pool_get(r, "/v1/leases?limit=%d", LEASES_MAX);
    }
    if (!rc && !json_is_array(json_object_get(r->client.body, "leases")))
        rc = pool_misfit(r, "it is not a list of leases");
    if (rc)
        return rc;
    keep_view(&v->leases, r->json ? pool_client_document(&r->client) : json_incref(r->client.body));
    rc = fetch_events(v);
    if (rc || !gmtime_r(&now, &tm))
        return rc;
    strftime(v->at, sizeof v->at, "%H:%M:%SZ", &tm);
    r->trouble[0] = '\0';
    return 0;
}

/* ==== 2  The picture ========================================================================== */

/* TLPs a second of all slots of a lease that report them, as its host counts them. */
static void rate_cell(pool_table *t, const json_t *lease, const char *key)
{
    double sum = -1;
    size_t index;
    json_t *slot;
    json_array_foreach(json_object_get(lease, "slots"), index, slot)
    {
        const json_t *rate = json_object_get(slot, key);
        if (json_is_number(rate))
            sum = (sum < 0 ? 0 : sum) + json_number_value(rate);
    }
    if (sum < 0)
        pool_table_add(t, "-");
    else
        pool_table_add(t, "%.*f", sum < 10 && sum > 0 ? 1 : 0, sum);
}

static void print_leases(const view *v, FILE *out, unsigned width, bool color, size_t most)
{
    pool_table t;
    size_t index, shown = 0, count;
    uint64_t total = pool_integer(json_object_get(v->pool, "leases"), "total");
    json_t *lease, *leases = json_object_get(v->leases, "leases");
    count = json_array_size(leases);
    pool_table_begin(&t, "#lease|!state|host|model|slots|+to dev/s|+from dev/s|tenant|ends");
    json_array_foreach(leases, index, lease)
    {
        if (shown < most) {
            pool_row(&t, lease, "lease state");
            pool_host_cell(&t, lease);
            pool_row(&t, lease, "model");
            pool_slots_cell(&t, json_object_get(lease, "slots"));
            rate_cell(&t, lease, "to_device_per_s");
            rate_cell(&t, lease, "from_device_per_s");
            pool_row(&t, lease, "tenant expires_at");
            shown++;
        }
    }
    fputc('\n', out);
    pool_table_end(&t, out, width, color);
    if (total > shown && count)
        fprintf(out, "and %" PRIu64 " more\n", total - shown);
}

static void print_view_events(const view *v, FILE *out, unsigned width, bool color, size_t most)
{
    pool_table t;
    size_t count = json_array_size(v->events), from = count > most ? count - most : 0;
    pool_table_begin(&t, POOL_EVENT_TITLES);
    for (size_t i = from; i < count; i++)
        pool_event_row(&t, json_array_get(v->events, i));
    fputc('\n', out);
    pool_table_end(&t, out, width, color);
}

/* rows: 0 is any. */
static void print_view(const view *v, FILE *out, unsigned width, unsigned rows, bool color)
{
    size_t models = json_array_size(json_object_get(v->pool, "models"));
    size_t leases = json_array_size(json_object_get(v->leases, "leases"));
    size_t head = 1 + 4 + 2 + models, titles = 2 + 2 + 1, left, events = SNAPSHOT_EVENTS;
    fprintf(out, "dxpu top - %s  %s%s%s\n", v->r->client.base, v->at, v->r->trouble[0] ? "  " : "",
            v->r->trouble);
    if (!v->pool || !v->leases)
        return;
    pool_print_overview(v->pool, out, width, color);
    if (rows) {
        left = rows > head + titles ? rows - head - titles : 0;
        if (leases > left - (left < EVENTS_LEAST ? left : EVENTS_LEAST))
            leases = left - (left < EVENTS_LEAST ? left : EVENTS_LEAST);
        events = left - leases;
    }
    print_leases(v, out, width, color, leases);
    print_view_events(v, out, width, color, events);
}

/* ==== 3  The terminal ========================================================================= */

/* Another screen, as editors have, without a cursor; and keys without Enter. */
#define SCREEN_ENTER "\033[?1049h\033[?25l\033[H\033[2J"
#define SCREEN_LEAVE "\033[?25h\033[?1049l"

static struct termios termios_before;
static bool screen_on, termios_changed;

static bool put(const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(STDOUT_FILENO, text, bytes);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static void leave_screen(void)
{
    if (!screen_on)
        return;
    screen_on = false;
    (void)put(SCREEN_LEAVE, sizeof SCREEN_LEAVE - 1);
    if (termios_changed)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &termios_before);
    termios_changed = false;
}

static void enter_screen(void)
{
    struct termios keys;
    screen_on = true;
    if (isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &termios_before)) {
        keys = termios_before;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        termios_changed = !tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
    }
    (void)put(SCREEN_ENTER, sizeof SCREEN_ENTER - 1);
}

/* Line by line over what was there, so that nothing flickers. */
static bool draw(const view *v)
{
    char *text = NULL, *whole = NULL;
    size_t bytes = 0, whole_bytes = 0;
    unsigned rows = 24, width = pool_terminal(stdout, &rows), row = 0;
    FILE *out = open_memstream(&text, &bytes), *to = open_memstream(&whole, &whole_bytes);
    bool good;
    if (!out || !to)
        out_of_memory();
    print_view(v, out, width, rows, pool_colors(stdout));
    if (fclose(out))
        out_of_memory();
    fputs("\033[H", to);
    for (char *line = text, *end; *line && row < rows; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        /* a table with colors fits; other lines are cut */
        fprintf(to, "%s%.*s\033[K", row ? "\r\n" : "",
                (int)(strchr(line, '\033') ? strlen(line) : pool_text_cut(line, width)), line);
        row++;
    }
    fputs("\033[J", to);
    if (fclose(to))
        out_of_memory();
    good = put(whole, whole_bytes);
    free(text);
    free(whole);
    return good;
}

/* ==== 4  The loop ============================================================================= */

/* Wait for the next second, a key or a signal; false: it is over. */
static bool wait_key(const pool_call *r, uint64_t until_ms, bool *keys)
{
    struct pollfd p[2] = { { 0, POLLIN, 0 }, { STDIN_FILENO, POLLIN, 0 } };
    uint64_t now = pool_now_ms();
    char key = 0;
    p[0].fd = r->client.wake_fd;
    if (now >= until_ms || poll(p, *keys ? 2 : 1, (int)(until_ms - now)) <= 0 || !*keys)
        return true;
    if (p[1].revents)
        *keys = read(STDIN_FILENO, &key, 1) == 1;
    return key != 'q' && key != 'Q';
}

static void stop_and_go_on(void)
{
    leave_screen();
    (void)raise(SIGSTOP);
    enter_screen();
}

static int loop(view *v)
{
    bool keys = isatty(STDIN_FILENO), go = true;
    uint64_t next = pool_now_ms() + EVERY_MS;
    int rc = fetch(v);
    if (rc) /* while there is nothing to show yet, the shell's screen is the place to say why */
        return rc;
    v->r->quiet = true;
    enter_screen();
    (void)atexit(leave_screen);
    while (go) {
        int caught = pool_signal(v->r);
        if (caught == SIGTSTP)
            stop_and_go_on();
        else if (caught)
            break;
        if (pool_now_ms() >= next) {
            next = pool_now_ms() + EVERY_MS;
            (void)fetch(v); /* the picture says what is wrong */
        }
        go = draw(v) && wait_key(v->r, next, &keys);
    }
    leave_screen();
    return EXIT_ALL;
}

static int snapshot(view *v)
{
    json_t *o;
    int rc = fetch(v);
    if (rc)
        return rc;
    if (!v->r->json) {
        print_view(v, stdout, 0, 0, false);
        return EXIT_ALL;
    }
    o = json_object();
    if (json_object_set(o, "pool", v->pool) ||
        json_object_set(o, "leases", json_object_get(v->leases, "leases")) ||
        json_object_set(o, "events", v->events))
        out_of_memory();
    print_json(o, 0);
    return EXIT_ALL;
}

int pool_top(pool_call *r)
{
    view v;
    int rc;
    memset(&v, 0, sizeof v);
    v.r = r;
    if (r->json || !isatty(STDOUT_FILENO)) {
        rc = snapshot(&v);
    } else {
        rc = pool_catch_signals(r, true);
        if (!rc)
            rc = loop(&v);
    }
    json_decref(v.pool);
    json_decref(v.leases);
    json_decref(v.events);
    return rc;
}
