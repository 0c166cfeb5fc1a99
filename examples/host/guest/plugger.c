/* plugger.c - see plugger.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 The keeper's part   2 QMP's connection   3 The loop */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SOCK_CLOEXEC */
#endif
#include "plugger_internal.h"
#include "dxpu_libevent.h"
#include "log.h"
#include "program.h"
#include "sandbox.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DIAL_NS  1000000000u /* until QMP's socket is tried again */
#define GREET_NS 5000000000u /* that QEMU has to say who it is */

enum { MSIX = 0x40, LEAVING = 0x80 };

/* ==== 1  The keeper's part ==================================================================== */

bool plugger_tell(int fd, unsigned slot, plug_view view)
{
    const uint8_t message[2] = { (uint8_t)slot, (uint8_t)(view.state | (view.msix ? MSIX : 0) |
                                                          (view.leaving ? LEAVING : 0)) };
    return send(fd, message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof message;
}

int plugger_hear(int fd)
{
    uint8_t slot = 0;
    ssize_t n = recv(fd, &slot, 1, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    return n == 1 && slot ? slot : -1;
}

static void hear_keeper(plugger *p)
{
    uint8_t m[2];
    ssize_t n;
    while ((n = recv(p->keeper, m, sizeof m, MSG_DONTWAIT)) == sizeof m) {
        const plug_view view = { m[1] & (MSIX - 1), m[1] & MSIX, m[1] & LEAVING };
        plug_look(&p->plug, m[0], view, dxpu_udp_now_ns());
    }
    p->over |= n >= 0 || (errno != EAGAIN && errno != EINTR);
}

void plugger_on_removed(void *user, unsigned slot)
{
    const plugger *p = user;
    const uint8_t m = (uint8_t)slot;
    (void)send(p->keeper, &m, 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* else it waits for its own time */
}

/* ==== 2  QMP's connection ===================================================================== */

static void hang_up(plugger *p, const char *why)
{
    uint64_t now = dxpu_udp_now_ns();
    if (p->qmp >= 0)
        close(p->qmp);
    p->qmp = -1;
    p->in = p->out = 0;
    p->lost = false;
    p->dial_ns = now + DIAL_NS;
    plug_lost(&p->plug, now);
    if (why)
        log_note("QMP at %s: %s", p->set.socket, why);
}

static void flush(plugger *p)
{
    while (p->qmp >= 0 && p->out) {
        ssize_t n = send(p->qmp, p->waiting, p->out, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0) /* the end is read */
            return;
        p->out -= (size_t)n;
        memmove(p->waiting, p->waiting + n, p->out);
    }
}

void plugger_on_send(void *user, const char *text)
{
    plugger *p = user;
    size_t len = strlen(text);
    if (p->qmp < 0 || p->lost)
        return;
    if (len + 1 > sizeof p->waiting - p->out) {
        p->lost = true;
        return;
    }
    memcpy(p->waiting + p->out, text, len);
    p->waiting[p->out + len] = '\n';
    p->out += len + 1;
}

static void dial(plugger *p)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    memcpy(at.sun_path, p->set.socket, sizeof at.sun_path);
    p->qmp = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->qmp < 0 || connect(p->qmp, (const struct sockaddr *)&at, sizeof at)) {
        int error = errno;
        if (error != p->last_error && error != ENOENT && error != ECONNREFUSED)
            log_warning("QMP at %s: %s", p->set.socket, strerror(error));
        p->last_error = error;
        hang_up(p, NULL);
        return;
    }
    p->last_error = 0;
    p->greeted = false;
    p->dial_ns = dxpu_udp_now_ns() + GREET_NS;
    plug_open(&p->plug);
}

/* Whole lines; what is left waits for its end. */
static void take_lines(plugger *p)
{
    char *end, *at = p->line;
    while (p->qmp >= 0 && (end = memchr(at, '\n', p->in - (size_t)(at - p->line))) != NULL) {
        bool good = plug_hear(&p->plug, at, (size_t)(end - at), dxpu_udp_now_ns());
        at = end + 1;
        p->greeted = true;
        if (!good)
            hang_up(p, "it is not QMP");
    }
    if (p->qmp < 0)
        return;
    p->in -= (size_t)(at - p->line);
    memmove(p->line, at, p->in);
    if (p->in == sizeof p->line)
        hang_up(p, "a message is too long");
}

void plugger_hear_qmp(plugger *p)
{
    ssize_t n = recv(p->qmp, p->line + p->in, sizeof p->line - p->in, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        hang_up(p, n ? strerror(errno) : "the virtual machine has ended");
        return;
    }
    p->in += (size_t)n;
    take_lines(p);
}

/* ==== 3  The loop ============================================================================= */

static void wait_for_all(plugger *p)
{
    uint64_t now = dxpu_udp_now_ns(), next = plug_next_ns(&p->plug);
    struct pollfd fds[3] = { { p->parent, POLLIN, 0 },
                             { p->keeper, POLLIN, 0 },
                             { p->qmp, (short)(POLLIN | (p->out ? POLLOUT : 0)), 0 } };
    int ms = -1;
    if ((p->qmp < 0 || !p->greeted) && p->dial_ns < next)
        next = p->dial_ns;
    if (next != UINT64_MAX)
        ms = next <= now ? 0 : (int)((next - now) / 1000000u + 1);
    if (poll(fds, 3, ms) < 0 && errno != EINTR)
        p->over = true;
    p->over |= fds[0].revents != 0;
    if (fds[1].revents)
        hear_keeper(p);
    if (p->qmp >= 0 && fds[2].revents & (POLLIN | POLLHUP | POLLERR))
        plugger_hear_qmp(p);
}

void plugger_step(plugger *p)
{
    uint64_t now = dxpu_udp_now_ns();
    if (now >= p->dial_ns && p->qmp < 0) {
        dial(p);
    } else if (now >= p->dial_ns && !p->greeted) {
        hang_up(p, "no greeting: does another program have it?");
    }
    if (p->lost) /* the next connection asks for what QEMU has */
        hang_up(p, "QEMU takes no commands");
    plug_tick(&p->plug, now);
    flush(p);
}

bool plugger_path(const guest_settings *set, char out[PLUG_PATH_BYTES])
{
    char here[PLUG_PATH_BYTES] = "";
    int number = snprintf(NULL, 0, ".%u", (unsigned)set->slots);
    if (*set->socket != '/' && !getcwd(here, sizeof here))
        return false;
    return snprintf(out, PLUG_PATH_BYTES, "%s%s%s", here, *here ? "/" : "", set->socket) + number <
           PLUG_PATH_BYTES;
}

int plugger_run(const guest_settings *set, int keeper, int parent)
{
    plugger *p = calloc(1, sizeof *p);
    const char *wrong = p ? plug_parse(set->qmp, &p->set) : "out of memory";
    if (!wrong && !plugger_path(set, p->path))
        wrong = "the path of --vfio-user is too long";
    if (wrong || sandbox_enter_as(SANDBOX_MONITOR)) {
        if (wrong)
            log_error("--qmp: %s", wrong);
        free(p);
        return PROGRAM_SYSTEM;
    }
    plug_init(&p->plug, &p->set, (unsigned)set->slots, p->path);
    p->plug.user = p;
    p->plug.send = plugger_on_send;
    p->plug.removed = plugger_on_removed;
    p->keeper = keeper;
    p->parent = parent;
    p->qmp = -1;
    while (!p->over) {
        plugger_step(p);
        wait_for_all(p);
    }
    if (p->qmp >= 0)
        close(p->qmp);
    free(p);
    return PROGRAM_GOOD;
}
