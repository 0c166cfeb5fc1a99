/* dxpu-relay - a UDP relay that loses, doubles, reorders, corrupts and delays, the same way for the
   same seed
   SPDX-License-Identifier: MIT

   A datagram from a client goes to the target from a socket of that client's own, and back.
   SIGUSR1 cuts the line: everything is lost until SIGUSR2 mends it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll */
#endif
#include "dxpu_libevent.h"
#include "log.h"
#include "options.h"
#include "stats.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLIENTS_MAX = 32, WAITING_MAX = 8192, DATAGRAM_BYTES = 65536, BUFFER_BYTES = 4 << 20 };

#define COUNTERS(X)                                                                                \
    X(received)                                                                                    \
    X(sent)                                                                                        \
    X(lost)                                                                                        \
    X(duplicated)                                                                                  \
    X(reordered)                                                                                   \
    X(corrupted)                                                                                   \
    X(overflowed)

typedef struct waiting {
    uint64_t due_ns;
    size_t len;
    int client;
    bool up; /* to the target */
    uint8_t *bytes;
} waiting;

static struct {
    const char *listen, *to;
    uint64_t loss, duplicate, reorder, corrupt, delay_us, reorder_us, seed;
    bool json;
} set = { "127.0.0.1:0", NULL, 0, 0, 0, 0, 0, 300, 1, false };

static const option_row rows[] = {
    { "listen", "ADDR:PORT", "where clients send (127.0.0.1:0)", OPTION_TEXT, &set.listen, 0, 0 },
    { "to", "ADDR:PORT", "the target", OPTION_TEXT, &set.to, 0, 0 },
    { "loss", "N", "datagrams lost, in 1/1000", OPTION_NUMBER, &set.loss, 0, 1000 },
    { "duplicate", "N", "datagrams sent twice, in 1/1000", OPTION_NUMBER, &set.duplicate, 0, 1000 },
    { "reorder", "N", "datagrams held back, in 1/1000", OPTION_NUMBER, &set.reorder, 0, 1000 },
    { "reorder-us", "US", "how long they are held back at most (300)", OPTION_NUMBER,
      &set.reorder_us, 1, 1000000 },
    { "corrupt", "N", "datagrams with a flipped bit or cut short, in 1/1000", OPTION_NUMBER,
      &set.corrupt, 0, 1000 },
    { "delay-us", "US", "delay of every datagram", OPTION_NUMBER, &set.delay_us, 0, 10000000 },
    { "seed", "N", "the same seed does the same to the same traffic (1)", OPTION_NUMBER, &set.seed,
      0, UINT64_MAX },
    { "json", NULL, "counts as one JSON object", OPTION_FLAG, &set.json, 0, 0 },
};

static volatile sig_atomic_t stopping, is_cut;
static int listener = -1;
static dxpu_udp_address target;
static struct {
    dxpu_udp_address address;
    int fd;
} clients[CLIENTS_MAX];
static int client_count;
static waiting queue[WAITING_MAX]; /* a heap by due_ns */
static unsigned queued;
#define FIELD(name) uint64_t name;
static struct {
    COUNTERS(FIELD)
} count;
#undef FIELD

static void on_signal(int number)
{
    if (number == SIGUSR1 || number == SIGUSR2)
        is_cut = number == SIGUSR1;
    else
        stopping = 1;
}

static uint64_t next_random(void)
{
    uint64_t x = set.seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static bool happens(uint64_t per_mille)
{
    return next_random() % 1000 < per_mille;
}

static int open_socket(const dxpu_udp_address *local)
{
    int size = BUFFER_BYTES;
    int fd = socket(local->u.any.sa_family, SOCK_DGRAM, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size); /* as much as we are given */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (bind(fd, &local->u.any, local->len)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ==== Waiting datagrams ======================================================================= */

static void swap(unsigned a, unsigned b)
{
    waiting w = queue[a];
    queue[a] = queue[b];
    queue[b] = w;
}

static void push(const uint8_t *bytes, size_t len, int client, bool up, uint64_t due_ns)
{
    unsigned i = queued;
    uint8_t *copy = queued < WAITING_MAX ? malloc(len ? len : 1) : NULL;
    if (!copy) {
        count.overflowed++;
        return;
    }
    memcpy(copy, bytes, len);
    queue[i].due_ns = due_ns;
    queue[i].len = len;
    queue[i].client = client;
    queue[i].up = up;
    queue[i].bytes = copy;
    queued++;
    for (; i && queue[(i - 1) / 2].due_ns > queue[i].due_ns; i = (i - 1) / 2)
        swap(i, (i - 1) / 2);
}

static waiting pop(void)
{
    waiting first = queue[0];
    unsigned i = 0;
    queue[0] = queue[--queued];
    for (;;) {
        unsigned least = i;
        for (unsigned child = 2 * i + 1; child <= 2 * i + 2 && child < queued; child++) {
            if (queue[child].due_ns < queue[least].due_ns)
                least = child;
        }
        if (least == i)
            return first;
        swap(i, least);
        i = least;
    }
}

static void send_one(const uint8_t *bytes, size_t len, int client, bool up)
{
    ssize_t n = up ? sendto(clients[client].fd, bytes, len, 0, &target.u.any, target.len)
                   : sendto(listener, bytes, len, 0, &clients[client].address.u.any,
                            clients[client].address.len);
    if (n < 0)
        count.overflowed++;
    else
        count.sent++;
}

static void send_due(uint64_t now)
{
    while (queued && queue[0].due_ns <= now) {
        waiting w = pop();
        send_one(w.bytes, w.len, w.client, w.up);
        free(w.bytes);
    }
}

/* ==== Faults ================================================================================== */

static size_t corrupt(uint8_t *bytes, size_t len)
{
    uint64_t r = next_random();
    count.corrupted++;
    if (len > 1 && r % 4 == 0)
        return 1 + (r >> 8) % (len - 1);
    if (len)
        bytes[(r >> 8) % len] ^= (uint8_t)(1u << (r >> 4 & 7));
    return len;
}

static void pass(uint8_t *bytes, size_t len, int client, bool up, uint64_t now)
{
    uint64_t due = now + set.delay_us * 1000;
    int copies = 1;
    count.received++;
    if (happens(set.loss) || is_cut) {
        count.lost++;
        return;
    }
    if (happens(set.duplicate)) {
        count.duplicated++;
        copies = 2;
    }
    if (happens(set.corrupt))
        len = corrupt(bytes, len);
    while (copies--) {
        uint64_t at = due;
        if (happens(set.reorder)) {
            count.reordered++;
            at += 1000 * (1 + next_random() % set.reorder_us);
        }
        if (at == now)
            send_one(bytes, len, client, up);
        else
            push(bytes, len, client, up, at);
    }
}

/* ==== Sockets ================================================================================= */

/* The client of this address, a new one if there is room, else -1. */
static int client_of(const dxpu_udp_address *from)
{
    dxpu_udp_address any;
    for (int i = 0; i < client_count; i++) {
        if (dxpu_udp_same(&clients[i].address, from))
            return i;
    }
    if (client_count == CLIENTS_MAX ||
        dxpu_udp_parse(target.u.any.sa_family == AF_INET6 ? "[::]:0" : "0.0.0.0:0", &any))
        return -1;
    clients[client_count].address = *from;
    clients[client_count].fd = open_socket(&any);
    return clients[client_count].fd < 0 ? -1 : client_count++;
}

static void receive(int fd, int client)
{
    static uint8_t bytes[DATAGRAM_BYTES];
    for (int i = 0; i < 64; i++) {
        dxpu_udp_address from;
        ssize_t n;
        int c = client;
        from.len = sizeof from.u;
        n = recvfrom(fd, bytes, sizeof bytes, MSG_DONTWAIT, &from.u.any, &from.len);
        if (n < 0)
            return;
        if (c < 0)
            c = client_of(&from);
        if (c < 0)
            count.overflowed++;
        else
            pass(bytes, (size_t)n, c, client < 0, dxpu_udp_now_ns());
    }
}

/* Say when the line was cut and when it was mended. */
static void tell(void)
{
    static bool was_cut;
    if (was_cut == (is_cut != 0))
        return;
    was_cut = !was_cut;
    log_note("%s, %llu datagrams lost so far", was_cut ? "cut" : "mended",
             (unsigned long long)count.lost);
}

static void run(void)
{
    struct pollfd fds[CLIENTS_MAX + 1];
    while (!stopping) {
        uint64_t now = dxpu_udp_now_ns();
        struct timespec wait = { 0, 100000000 };
        int known = client_count;
        if (queued) {
            uint64_t left = queue[0].due_ns > now ? queue[0].due_ns - now : 0;
            wait.tv_nsec = left < 100000000 ? (long)left : 100000000;
        }
        fds[0].fd = listener;
        fds[0].events = POLLIN;
        for (int i = 0; i < known; i++) {
            fds[i + 1].fd = clients[i].fd;
            fds[i + 1].events = POLLIN;
        }
        if (ppoll(fds, (nfds_t)known + 1, &wait, NULL) > 0) {
            if (fds[0].revents)
                receive(listener, -1);
            for (int i = 0; i < known; i++) {
                if (fds[i + 1].revents)
                    receive(clients[i].fd, i);
            }
        }
        send_due(dxpu_udp_now_ns());
        tell();
    }
}

static void print_counts(void)
{
    report r;
    report_begin(&r, stdout, set.json);
#define PRINT(name) report_number(&r, #name, count.name);
    COUNTERS(PRINT)
#undef PRINT
    report_end(&r);
}

static int open_relay(void)
{
    dxpu_udp_address local;
    char text[DXPU_UDP_TEXT_BYTES];
    const char *why = dxpu_udp_parse(set.listen, &local);
    if (!why)
        why = dxpu_udp_parse(set.to, &target);
    if (why) {
        log_error("%s", why);
        return 2;
    }
    listener = open_socket(&local);
    local.len = sizeof local.u;
    if (listener < 0 || getsockname(listener, &local.u.any, &local.len)) {
        log_error("--listen %s: %s", set.listen, strerror(errno));
        return 3;
    }
    log_note("at %s", dxpu_udp_print(&local, text));
    return 0;
}

int main(int argc, char **argv)
{
    option_program program = {
        "dxpu-relay",
        "a UDP relay with faults",
        DXPU_VERSION,
        rows,
        sizeof rows / sizeof rows[0],
        "Ctrl-C stops it and prints what it did.\nSIGUSR1 cuts the line, SIGUSR2 mends it.\nexit "
        "status: 0 stopped as asked, 2 usage, 3 system error\n",
        NULL,
        0,
        NULL
    };
    struct sigaction stop = { .sa_handler = on_signal };
    int rc = options_parse(&program, argc, argv, NULL);
    if (rc != OPTIONS_GO)
        return options_status(rc);
    if (!set.to)
        return options_wrong("--to ADDR:PORT is required");
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGUSR1, &stop, NULL);
    sigaction(SIGUSR2, &stop, NULL);
    rc = open_relay();
    if (rc)
        return rc;
    run();
    while (queued)
        free(pop().bytes);
    print_counts();
    return 0;
}
