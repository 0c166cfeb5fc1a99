/* dxpu-pingpong - the round trip of plain datagrams by UDP sockets or AF_XDP, to compare with
   SPDX-License-Identifier: MIT

   One side echoes, the other sends one datagram at a time and waits for the answer.  Datagrams
   begin with a number (u32) and the length of the answer in bytes (u32), in host byte order. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll */
#endif
#include "bypass.h"
#include "log.h"
#include "options.h"
#include "stats.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

enum { DATAGRAM_BYTES = 65536, HEADER_BYTES = 8, SPIN_NS = 50000, LOST_NS = 200000000 };

static struct {
    const char *listen, *to, *af_xdp;
    uint64_t size, reply, count;
    unsigned wait;
    bool json;
} set = { NULL, NULL, NULL, 64, 64, 10000, DXPU_UDP_ADAPTIVE, false };

static const option_row rows[] = {
    { "listen", "ADDR:PORT", "answer there", OPTION_TEXT, &set.listen, 0, 0 },
    { "to", "ADDR:PORT", "or measure to there", OPTION_TEXT, &set.to, 0, 0 },
    { "af-xdp", "IFNAME[,QUEUE]", "bypass the kernel's network stack on this interface" BYPASS_NOTE,
      OPTION_TEXT, &set.af_xdp, 0, 0 },
    { "size", "BYTES", "of a request datagram (64)", OPTION_NUMBER, &set.size, HEADER_BYTES,
      65000 },
    { "reply", "BYTES", "of its answer (64)", OPTION_NUMBER, &set.reply, HEADER_BYTES, 65000 },
    { "count", "N", "round trips (10000)", OPTION_NUMBER, &set.count, 1, UINT64_MAX },
    { "wait", "adaptive|block|busy", "as dxpu-host and dxpu-box wait (adaptive)", OPTION_CHOICE,
      &set.wait, 0, 0 },
    { "json", NULL, "results as one JSON object", OPTION_FLAG, &set.json, 0, 0 },
};

static volatile sig_atomic_t stopping;
static uint8_t buffer[DATAGRAM_BYTES];
static histogram rtt;
static uint64_t lost;
static dxpu_xdp *xdp; /* beside the socket, which holds the port; NULL without */

static void on_signal(int number)
{
    (void)number;
    stopping = 1;
}

typedef struct arrival {
    ssize_t len; /* -1: nothing yet */
    dxpu_udp_address *from;
} arrival;

static void on_datagram(void *user, uint8_t *buf, size_t len, unsigned socket,
                        const dxpu_xdp_address *from, unsigned flags)
{
    arrival *a = user;
    (void)socket;
    (void)flags;
    memcpy(buffer, buf, len);
    a->len = (ssize_t)len;
    a->from->len = from->any.sa_family == AF_INET6 ? sizeof from->v6 : sizeof from->v4;
    if (from->any.sa_family == AF_INET6)
        a->from->u.v6 = from->v6;
    else
        a->from->u.v4 = from->v4;
}

static ssize_t receive_now(int fd, dxpu_udp_address *from)
{
    static unsigned looks;
    arrival a = { -1, from };
    if (xdp) {
        (void)dxpu_xdp_receive(xdp, on_datagram, &a);
        if (a.len >= 0 || ++looks % 64) /* the socket has little, and asking it is a system call */
            return a.len;
    }
    from->len = sizeof from->u;
    return recvfrom(fd, buffer, sizeof buffer, MSG_DONTWAIT, &from->u.any, &from->len);
}

/* Lost here or later: who waits for the answer counts. */
static void send_now(int fd, const dxpu_udp_address *to, size_t len)
{
    uint8_t *room = xdp && len <= DXPU_XDP_DATAGRAM_MAX ? dxpu_xdp_room(xdp) : NULL;
    if (room) {
        dxpu_xdp_address address;
        bypass_address(to, &address);
        memcpy(room, buffer, len);
        if (dxpu_xdp_commit(xdp, 0, &address, len)) {
            dxpu_xdp_flush(xdp);
            return;
        }
    }
    (void)sendto(fd, buffer, len, 0, &to->u.any, to->len);
}

/* Wait for a datagram in the chosen mode, until `until` at most.  Bytes, or -1. */
static ssize_t receive(int fd, uint64_t until, dxpu_udp_address *from)
{
    uint64_t begin = dxpu_udp_now_ns(), now = begin;
    while (!stopping && now < until) {
        struct pollfd p[1 + DXPU_XDP_QUEUES_MAX] = { { .fd = fd, .events = POLLIN } };
        nfds_t fds = 1;
        struct timespec rest = { 0, (long)(until - now < LOST_NS ? until - now : LOST_NS) };
        ssize_t n = receive_now(fd, from);
        if (n >= 0)
            return n;
        now = dxpu_udp_now_ns();
        if (set.wait == DXPU_UDP_BLOCK ||
            (set.wait == DXPU_UDP_ADAPTIVE && now - begin >= SPIN_NS)) {
            for (unsigned i = 0; xdp && i < dxpu_xdp_queues(xdp); i++)
                p[fds++] = (struct pollfd){ .fd = dxpu_xdp_fd(xdp, i), .events = POLLIN };
            (void)ppoll(p, fds, &rest, NULL); /* a signal or the time ends it: seen above */
            now = dxpu_udp_now_ns();
        }
    }
    return -1;
}

static void echo(int fd)
{
    while (!stopping) {
        dxpu_udp_address from;
        uint32_t reply;
        ssize_t n = receive(fd, dxpu_udp_now_ns() + LOST_NS, &from);
        if (n < HEADER_BYTES)
            continue;
        memcpy(&reply, buffer + 4, sizeof reply);
        if (reply >= HEADER_BYTES && reply <= sizeof buffer)
            send_now(fd, &from, reply);
    }
}

static void measure(int fd, const dxpu_udp_address *to)
{
    for (uint64_t i = 0; i < set.count && !stopping; i++) {
        uint32_t number = (uint32_t)i, reply = (uint32_t)set.reply;
        uint64_t begin;
        dxpu_udp_address from;
        ssize_t n;
        memcpy(buffer, &number, sizeof number);
        memcpy(buffer + 4, &reply, sizeof reply);
        begin = dxpu_udp_now_ns();
        send_now(fd, to, set.size);
        do {
            n = receive(fd, begin + LOST_NS, &from);
            if (n >= HEADER_BYTES)
                memcpy(&number, buffer, sizeof number);
        } while (n >= 0 && (n < HEADER_BYTES || number != i));
        if (n < 0)
            lost++;
        else
            histogram_add(&rtt, dxpu_udp_now_ns() - begin);
    }
}

static int open_socket(const char *text)
{
    dxpu_udp_address local;
    const char *why = dxpu_udp_parse(text, &local);
    int fd;
    if (why) {
        log_error("%s: %s", text, why);
        return -1;
    }
    fd = socket(local.u.any.sa_family, SOCK_DGRAM, 0);
    if (fd >= 0 && bind(fd, &local.u.any, local.len)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        log_error("%s: %s", text, strerror(errno));
    return fd;
}

/* 0, or -1 after a message. */
static int open_xdp(int fd)
{
    dxpu_xdp_config cfg;
    const char *why;
    socklen_t len = sizeof cfg.local[0];
    dxpu_xdp_config_default(&cfg);
    why = dxpu_xdp_parse_option(set.af_xdp, &cfg);
    cfg.sockets = 1;
    cfg.batch = 1; /* the buffer holds one, and only one is under way */
    if (!why && !getsockname(fd, &cfg.local[0].any, &len))
        xdp = dxpu_xdp_open(&cfg, &why);
    if (!xdp)
        log_error("--af-xdp %s: %s", set.af_xdp, why ? why : "no socket");
    return xdp ? 0 : -1;
}

static int run(void)
{
    dxpu_udp_address to;
    report r;
    const char *why = dxpu_udp_parse(set.to ? set.to : set.listen, &to);
    int fd;
    if (why) {
        log_error("%s: %s", set.to ? "--to" : "--listen", why);
        return 2;
    }
    fd = open_socket(set.listen                       ? set.listen
                     : to.u.any.sa_family == AF_INET6 ? "[::]:0"
                                                      : "0.0.0.0:0");
    if (fd < 0 || (set.af_xdp && open_xdp(fd)))
        return 3;
    if (set.listen) {
        char text[DXPU_UDP_TEXT_BYTES];
        to.len = sizeof to.u;
        if (!getsockname(fd, &to.u.any, &to.len))
            log_note("at %s", dxpu_udp_print(&to, text));
        echo(fd);
        dxpu_xdp_close(xdp);
        return 0;
    }
    measure(fd, &to);
    report_begin(&r, stdout, set.json);
    report_number(&r, "size", set.size);
    report_number(&r, "reply", set.reply);
    report_number(&r, "lost", lost);
    report_histogram(&r, "rtt_us", &rtt);
    report_end(&r);
    dxpu_xdp_close(xdp);
    return rtt.count ? 0 : 4;
}

int main(int argc, char **argv)
{
    option_program program = { "dxpu-pingpong",
                               "the round trip of plain datagrams",
                               DXPU_VERSION,
                               rows,
                               sizeof rows / sizeof rows[0],
                               "exit status: 0 measured or stopped, 2 usage, 3 system error, "
                               "4 no answer at all\n",
                               NULL,
                               0,
                               NULL };
    struct sigaction stop = { .sa_handler = on_signal };
    int rc = options_parse(&program, argc, argv, NULL);
    if (rc != OPTIONS_GO)
        return options_status(rc);
    if (!set.to == !set.listen)
        return options_wrong("give --listen or --to");
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    return run();
}
