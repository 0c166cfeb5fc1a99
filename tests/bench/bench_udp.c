/* The floor of a stream: datagrams of one size through the loopback, from one process to another,
   32 a system call, as plain messages or as segments that the kernel cuts and joins (GSO, GRO).
   The receiver counts what arrives; nothing is retransmitted.  Then what a datagram costs in
   processor time: sending one and receiving one.

   usage: bench_udp ROUNDS MILLISECONDS BYTES... */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sendmmsg, sched_setaffinity */
#endif
#include "dxpu.h"

#include "bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BATCH = 32,
    SEGMENTED_BYTES = 65000,
    SEGMENTS_MAX = 64,
    BUFFER_BYTES = 4 << 20,
    LAST_BYTES = 1
};

static uint8_t memory[BATCH][65536];

/* The n-th core that we have. */
static void keep_to(int n)
{
    cpu_set_t have, one;
    int seen = 0, count;
    if (sched_getaffinity(0, sizeof have, &have))
        return;
    count = CPU_COUNT(&have);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &have) && seen++ == n % count) {
            CPU_ZERO(&one);
            CPU_SET(i, &one);
            (void)sched_setaffinity(0, sizeof one, &one); /* without it the figure is only worse */
        }
    }
}

static double wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void headers(struct mmsghdr *m, struct iovec *v, size_t bytes)
{
    memset(m, 0, BATCH * sizeof *m);
    for (unsigned i = 0; i < BATCH; i++) {
        v[i].iov_base = memory[i];
        v[i].iov_len = bytes;
        m[i].msg_hdr.msg_iov = &v[i];
        m[i].msg_hdr.msg_iovlen = 1;
    }
}

static double cpu_ns(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e9 +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e3;
}

/* Processor time of a datagram. */
static double send_for(int fd, size_t bytes, bool segmented, double ns)
{
    double sent = 0, begin = cpu_ns(), cost;
    struct mmsghdr m[BATCH];
    struct iovec v[BATCH];
    double end = wall_ns() + ns;
    int size = (int)bytes;
    size_t segments = SEGMENTED_BYTES / bytes;
    segments = segments < SEGMENTS_MAX ? segments : SEGMENTS_MAX;
    headers(m, v, segmented ? segments * bytes : bytes);
    if (segmented)
        bench_must(!setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size), "UDP_SEGMENT");
    while (wall_ns() < end) {
        int n = sendmmsg(fd, m, segmented ? 1 : BATCH, 0); /* what is not taken is lost */
        sent += n > 0 ? n * (double)(v[0].iov_len / bytes) : 0;
    }
    cost = sent > 0 ? (cpu_ns() - begin) / sent : 0;
    size = 0;
    (void)setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
    for (unsigned i = 0; i < 100; i++) { /* one of them arrives */
        (void)send(fd, memory[0], LAST_BYTES, 0);
        usleep(1000);
    }
    return cost;
}

/* Megabytes a second between the first and the last datagram; *cost grows by the processor time
   of one. */
static double receive_all(int fd, size_t size, double *cost)
{
    double begin = cpu_ns();
    struct mmsghdr m[BATCH];
    struct iovec v[BATCH];
    double first = 0, last = 0, bytes = 0;
    headers(m, v, sizeof memory[0]);
    for (;;) {
        int n = recvmmsg(fd, m, BATCH, MSG_WAITFORONE, NULL);
        for (int i = 0; i < n; i++) {
            if (m[i].msg_len == LAST_BYTES) {
                *cost += bytes > 0 ? (cpu_ns() - begin) * (double)size / bytes : 0;
                return last > first ? bytes * 1e3 / (last - first) : 0;
            }
            bytes += m[i].msg_len;
        }
        if (n > 0) {
            last = wall_ns();
            if (first == 0) {
                first = last;
                bytes = 0;
            }
        }
    }
}

static double measure(size_t bytes, bool segmented, double ns, double *cost)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    int yes = 1, size = BUFFER_BYTES, rx = socket(AF_INET, SOCK_DGRAM, 0);
    int tx = socket(AF_INET, SOCK_DGRAM, 0);
    double rate;
    double *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                          -1, 0); /* the child's report */
    pid_t child;
    bench_must(shared != MAP_FAILED, "memory");
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(rx, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    (void)setsockopt(tx, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    bench_must(rx >= 0 && tx >= 0 && !bind(rx, (struct sockaddr *)&at, len) &&
                   !getsockname(rx, (struct sockaddr *)&at, &len) &&
                   !connect(tx, (struct sockaddr *)&at, len),
               "UDP sockets");
    if (segmented)
        bench_must(!setsockopt(rx, IPPROTO_UDP, UDP_GRO, &yes, sizeof yes), "UDP_GRO");
    child = fork();
    bench_must(child >= 0, "fork");
    if (!child) {
        keep_to(1);
        *shared = send_for(tx, bytes, segmented, ns);
        _exit(0);
    }
    keep_to(0);
    alarm((unsigned)(ns / 1e9) + 20); /* should all the last ones be lost */
    *cost = 0;
    rate = receive_all(rx, bytes, cost);
    alarm(0);
    (void)waitpid(child, NULL, 0);
    *cost += *shared;
    munmap(shared, sizeof *shared);
    close(rx);
    close(tx);
    return rate;
}

int main(int argc, char **argv)
{
    bench_args a = bench_parse(argc, argv);
    for (unsigned r = 0; r < a.rounds; r++) {
        for (int i = 3; i < argc; i++) {
            unsigned long bytes = strtoul(argv[i], NULL, 10);
            char row[64];
            double plain, segmented, plain_ns, segmented_ns;
            bench_must(bytes > LAST_BYTES && bytes < SEGMENTED_BYTES, "a size");
            plain = measure(bytes, false, (double)a.count * 1e6, &plain_ns);
            segmented = measure(bytes, true, (double)a.count * 1e6, &segmented_ns);
            snprintf(row, sizeof row, "udp %lu B", bytes);
            bench_result(row, plain, segmented);
            snprintf(row, sizeof row, "udp %lu B, processor", bytes);
            bench_result(row, plain_ns, segmented_ns);
            fflush(stdout);
        }
    }
    return 0;
}
