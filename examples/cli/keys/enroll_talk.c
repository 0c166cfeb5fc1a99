/* enroll_talk.c - see enroll_talk.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "console.h"
#include "enroll_internal.h"

#include <errno.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

enum { AGAIN_NS = 200000000, LINGER_MS = 2000 };

/* ==== 1  Messages ============================================================================= */

static void stop(enroll_talk *t, enroll_end end)
{
    t->end = end;
    dxpu_udp_stop(t->udp);
}

static void say_to(enroll_talk *t, enroll_one *to)
{
    int n = dxpu_sodium_enroll_emit(&to->e, dxpu_udp_room(t->udp), DXPU_SODIUM_FRAME_BYTES);
    if (n > 0)
        dxpu_udp_commit(t->udp, &to->path, (size_t)n);
}

enroll_one *enroll_find(const enroll_talk *t, const dxpu_udp_path *from)
{
    for (unsigned i = 0; i < ENROLL_TALKS; i++) {
        if (t->talks[i].begun_ns && dxpu_udp_same(&t->talks[i].path.remote, &from->remote))
            return &t->talks[i];
    }
    return NULL;
}

/* Cheap checks first: noise uses up no peer's turn to begin. */
static bool begins(dxpu_bytes datagram)
{
    enum { FIRST = 4 };
    dxpu_frame f;
    return dxpu_frame_decode(datagram, DXPU_FRAME_CRC_BYTES, &f) == DXPU_OK &&
           dxpu_frame_check_crc(datagram) == DXPU_OK && f.kind == DXPU_KIND_HANDSHAKE &&
           f.body.len && f.body.ptr[0] == FIRST;
}

/* Each costs Diffie-Hellmans, and takes the place of another one. */
bool enroll_may_begin(enroll_talk *t, uint64_t now)
{
    if (t->paid_ns > now + ENROLL_BEGIN_AHEAD_NS) {
        t->count.limited++;
        return false;
    }
    t->paid_ns = (t->paid_ns > now ? t->paid_ns : now) + ENROLL_BEGIN_NS;
    return true;
}

/* The place of the oldest, which the new one takes when its first message is one. */
static void begin(enroll_talk *t, dxpu_bytes datagram, const dxpu_udp_path *from)
{
    uint64_t now = dxpu_udp_now_ns();
    enroll_one *place = &t->talks[0];
    dxpu_sodium_enroll *fresh = &t->talks[ENROLL_TALKS].e; /* one more than there are */
    if (!begins(datagram)) {
        t->count.refused++;
        return;
    }
    if (!enroll_may_begin(t, now))
        return;
    for (unsigned i = 1; i < ENROLL_TALKS && place->begun_ns; i++)
        place = t->talks[i].begun_ns < place->begun_ns ? &t->talks[i] : place;
    if (dxpu_sodium_enroll_begin(fresh, t->own, false, t->name) == DXPU_OK &&
        dxpu_sodium_enroll_ingest(fresh, datagram) == DXPU_OK) {
        t->count.begun++;
        t->count.displaced += place->begun_ns != 0;
        place->e = *fresh;
        place->path = *from;
        place->begun_ns = now;
        say_to(t, place);
    } else {
        t->count.refused++;
    }
    dxpu_sodium_enroll_wipe(fresh); /* its keys are in one place, which enroll_forget() wipes */
}

void enroll_on_datagram(void *user, uint8_t *buf, size_t len, const dxpu_udp_path *from,
                        unsigned flags)
{
    enroll_talk *t = user;
    dxpu_bytes datagram = { buf, len };
    enroll_one *of = t->listen ? enroll_find(t, from) : &t->talks[0];
    int rc;
    (void)flags;
    t->count.datagrams++;
    if (t->peer && of != t->peer) {
        t->count.late++;
        return;
    }
    if (!of) {
        begin(t, datagram, from);
        return;
    }
    rc = dxpu_sodium_enroll_ingest(&of->e, datagram);
    t->count.repeated += rc == DXPU_E_REPLAY;
    t->count.refused += rc != DXPU_OK && rc != DXPU_E_REPLAY;
    if (rc == DXPU_OK || rc == DXPU_E_REPLAY)
        say_to(t, of);
    if (rc == DXPU_OK && dxpu_sodium_enroll_done(&of->e)) {
        t->peer = of;
        of->path.remote = from->remote;
        stop(t, ENROLL_MET);
    }
}

/* ==== 2  Waiting ============================================================================== */

static uint64_t next_ns(void *user)
{
    const enroll_talk *t = user;
    return !t->listen && t->again_ns < t->until_ns ? t->again_ns : t->until_ns;
}

static void run(void *user, uint64_t now_ns)
{
    enroll_talk *t = user;
    if (now_ns >= t->until_ns) {
        stop(t, ENROLL_LATE);
    } else if (!t->listen && now_ns >= t->again_ns) {
        say_to(t, &t->talks[0]);
        t->again_ns = now_ns + AGAIN_NS;
    }
}

static enroll_end wait_until(enroll_talk *t, uint64_t until_ns)
{
    dxpu_udp_callbacks cb = { t, enroll_on_datagram, next_ns, run };
    t->until_ns = until_ns;
    t->end = ENROLL_BROKEN;
    return dxpu_udp_loop(t->udp, &cb) == DXPU_OK ? t->end : ENROLL_BROKEN;
}

enroll_end enroll_meet(enroll_talk *t)
{
    return wait_until(t, t->deadline_ns);
}

void enroll_linger(enroll_talk *t)
{
    if (!t->listen)
        (void)wait_until(t, dxpu_udp_now_ns() + LINGER_MS * 1000000ull);
}

void enroll_forget(enroll_talk *t)
{
    dxpu_sodium_enroll_wipe(&t->peer->e);
    t->peer->begun_ns = 0;
    t->peer = NULL;
}

const dxpu_sodium_enroll *enroll_peer(const enroll_talk *t, const dxpu_udp_address **from)
{
    *from = &t->peer->path.remote;
    return &t->peer->e;
}

/* ==== 3  The question ========================================================================= */

static bool is_answer(const enroll_talk *t, const char *word)
{
    return t->answer_bytes == strlen(word) && memcmp(t->answer, word, t->answer_bytes) == 0;
}

/* A line of the terminal: both words are written out, for what follows is trust. */
static void take_answer(enroll_talk *t)
{
    if (is_answer(t, "yes"))
        stop(t, ENROLL_YES);
    else if (is_answer(t, "no"))
        stop(t, ENROLL_NO);
    else
        console_say("yes or no, please; %s", t->question);
    t->answer_bytes = 0;
}

static void on_input(evutil_socket_t fd, short what, void *user)
{
    enroll_talk *t = user;
    char some[256];
    ssize_t n = read(fd, some, sizeof some);
    (void)what;
    if (n <= 0 && !(n < 0 && (errno == EINTR || errno == EAGAIN)))
        stop(t, ENROLL_NO); /* the terminal is gone */
    for (ssize_t i = 0; i < n; i++) {
        if (some[i] == '\n')
            take_answer(t);
        else if (t->answer_bytes < ENROLL_ANSWER_BYTES)
            t->answer[t->answer_bytes++] = some[i];
    }
}

enroll_end enroll_ask(enroll_talk *t, const char *question)
{
    enroll_end end;
    t->question = question;
    t->input = event_new(dxpu_udp_base(t->udp), STDIN_FILENO, EV_READ | EV_PERSIST, on_input, t);
    if (!t->input || event_add(t->input, NULL))
        return ENROLL_BROKEN;
    (void)tcflush(STDIN_FILENO, TCIFLUSH); /* what was typed before was no answer to this */
    console_say("%s", question);
    end = wait_until(t, t->deadline_ns);
    event_free(t->input);
    t->input = NULL;
    return end;
}

/* ==== 4  Opening ============================================================================== */

static void on_signal(evutil_socket_t number, short what, void *user)
{
    (void)number;
    (void)what;
    stop(user, ENROLL_STOPPED);
}

static bool catch_signals(enroll_talk *t)
{
    static const int caught[ENROLL_SIGNALS] = { SIGINT, SIGTERM, SIGHUP };
    for (unsigned i = 0; i < ENROLL_SIGNALS; i++) {
        t->signals[i] = evsignal_new(dxpu_udp_base(t->udp), caught[i], on_signal, t);
        if (!t->signals[i] || event_add(t->signals[i], NULL))
            return false;
    }
    return true;
}

/* Any of this machine's, of the other's family. */
static dxpu_udp_address any_address(const dxpu_udp_address *like)
{
    dxpu_udp_address any;
    memset(&any, 0, sizeof any);
    any.u.any.sa_family = like->u.any.sa_family;
    any.len = like->len;
    return any;
}

static const char *open_udp(enroll_talk *t, const dxpu_udp_address *at)
{
    dxpu_udp_config cfg;
    const char *why = NULL;
    dxpu_udp_config_default(&cfg);
    cfg.sockets = 1;
    cfg.wait = DXPU_UDP_BLOCK;
    cfg.local[0] = t->listen ? *at : any_address(at);
    t->udp = dxpu_udp_open(&cfg, &why);
    if (!t->udp)
        return why;
    errno = 0;
    return catch_signals(t) ? NULL : "out of memory";
}

enroll_talk *enroll_open(const dxpu_noise_pair *own, const char *name, const dxpu_udp_address *at,
                         bool listen, unsigned seconds, const char **why)
{
    enroll_talk *t = calloc(1, sizeof *t);
    *why = "out of memory";
    errno = 0;
    if (!t)
        return NULL;
    t->own = own;
    t->name = name;
    t->listen = listen;
    t->deadline_ns = dxpu_udp_now_ns() + seconds * 1000000000ull;
    t->talks = sodium_allocarray(ENROLL_TALKS + 1, sizeof *t->talks);
    if (t->talks) {
        memset(t->talks, 0, (ENROLL_TALKS + 1) * sizeof *t->talks);
        *why = open_udp(t, at);
    }
    if (!*why && !listen && dxpu_sodium_enroll_begin(&t->talks[0].e, own, true, name) != DXPU_OK)
        *why = "--name: 32 characters at most, printable ASCII";
    if (*why) {
        int error = errno;
        enroll_close(t);
        errno = error;
        return NULL;
    }
    t->talks[0].path.remote = *at;
    return t;
}

void enroll_close(enroll_talk *t)
{
    if (!t)
        return;
    for (unsigned i = 0; i < ENROLL_SIGNALS; i++) {
        if (t->signals[i])
            event_free(t->signals[i]);
    }
    dxpu_udp_close(t->udp);
    sodium_free(t->talks); /* which wipes it */
    free(t);
}

const dxpu_udp_address *enroll_local(const enroll_talk *t)
{
    return dxpu_udp_local(t->udp, 0);
}

const enroll_counters *enroll_count(const enroll_talk *t)
{
    return &t->count;
}
