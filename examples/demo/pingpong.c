/* dxpu-pingpong - the round trip of plain UDP datagrams, to compare with
   SPDX-License-Identifier: MIT

   One side echoes, the other sends one datagram at a time and waits for the answer.  Datagrams
   begin with a number (u32) and the bytes that the answer shall have (u32), in host byte order. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll */
#endif
#include "dxpu_libevent.h"
#include "options.h"
#include "stats.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

enum { DATAGRAM_BYTES = 65536, HEADER_BYTES = 8, SPIN_NS = 50000, LOST_NS = 200000000 };

static struct {
    const char *listen, *to;
    uint64_t size, reply, count;
    unsigned wait;
    bool json;
} set = { NULL, NULL, 64, 64, 10000, DXPU_UDP_ADAPTIVE, false };

static const option_row rows[] = {
    { "listen", "ADDR:PORT", "answer there", OPTION_TEXT, &set.listen, 0, 0 },
    { "to", "ADDR:PORT", "or measure to there", OPTION_TEXT, &set.to, 0, 0 },
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

static void on_signal(int number)
{
    (void)number;
    stopping = 1;
}

/* Wait for a datagram in the chosen mode, until `until` at most.  Bytes, or -1. */
static ssize_t receive(int fd, uint64_t until, dxpu_udp_address *from)
{
    uint64_t begin = dxpu_udp_now_ns(), now = begin;
    while (!stopping && now < until) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        struct timespec rest = { 0, (long)(until - now < LOST_NS ? until - now : LOST_NS) };
        ssize_t n;
        from->len = sizeof from->u;
        n = recvfrom(fd, buffer, sizeof buffer, MSG_DONTWAIT, &from->u.any, &from->len);
        if (n >= 0)
            return n;
        now = dxpu_udp_now_ns();
        if (set.wait == DXPU_UDP_BLOCK ||
            (set.wait == DXPU_UDP_ADAPTIVE && now - begin >= SPIN_NS)) {
            (void)ppoll(&p, 1, &rest, NULL); /* a signal or the time ends it: seen above */
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
            (void)sendto(fd, buffer, reply, 0, &from.u.any, from.len); /* lost: the peer counts */
    }
}

static void measure(int fd, const dxpu_udp_address *to)
{
    for (uint32_t i = 0; i < set.count && !stopping; i++) {
        uint32_t number = i, reply = (uint32_t)set.reply;
        uint64_t begin;
        dxpu_udp_address from;
        ssize_t n;
        memcpy(buffer, &number, sizeof number);
        memcpy(buffer + 4, &reply, sizeof reply);
        begin = dxpu_udp_now_ns();
        (void)sendto(fd, buffer, set.size, 0, &to->u.any, to->len); /* counted below as lost */
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
        fprintf(stderr, "dxpu-pingpong: %s: %s\n", text, why);
        return -1;
    }
    fd = socket(local.u.any.sa_family, SOCK_DGRAM, 0);
    if (fd >= 0 && bind(fd, &local.u.any, local.len)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        fprintf(stderr, "dxpu-pingpong: %s: %s\n", text, strerror(errno));
    return fd;
}

static int run(void)
{
    dxpu_udp_address to;
    report r;
    const char *why = set.to ? dxpu_udp_parse(set.to, &to) : NULL;
    int fd;
    if (why) {
        fprintf(stderr, "dxpu-pingpong: --to: %s\n", why);
        return 2;
    }
    fd = open_socket(set.listen                       ? set.listen
                     : to.u.any.sa_family == AF_INET6 ? "[::]:0"
                                                      : "0.0.0.0:0");
    if (fd < 0)
        return 3;
    if (set.listen) {
        char text[DXPU_UDP_TEXT_BYTES];
        to.len = sizeof to.u;
        if (!getsockname(fd, &to.u.any, &to.len))
            fprintf(stderr, "dxpu-pingpong: at %s\n", dxpu_udp_print(&to, text));
        echo(fd);
        return 0;
    }
    measure(fd, &to);
    report_begin(&r, stdout, set.json);
    report_number(&r, "size", set.size);
    report_number(&r, "reply", set.reply);
    report_number(&r, "lost", lost);
    report_histogram(&r, "rtt_us", &rtt);
    report_end(&r);
    return rtt.count ? 0 : 4;
}

int main(int argc, char **argv)
{
    option_program program = { "dxpu-pingpong",
                               "the round trip of plain UDP datagrams",
                               DXPU_VERSION,
                               rows,
                               sizeof rows / sizeof rows[0],
                               "exit status: 0 measured or stopped, 2 usage, 3 system error, "
                               "4 no answer at all\n" };
    struct sigaction stop = { .sa_handler = on_signal };
    int rc = options_parse(&program, argc, argv);
    if (rc != OPTIONS_GO)
        return rc == OPTIONS_SHOWN ? 0 : 2;
    if (!set.to == !set.listen) {
        fprintf(stderr, "dxpu-pingpong: give --listen or --to; see dxpu-pingpong --help\n");
        return 2;
    }
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    return run();
}
