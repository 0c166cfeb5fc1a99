/* etcd_server.h - an etcd of one member for a test, and a relay before it that loses and holds
   requests and answers
   SPDX-License-Identifier: MIT

   The relay takes one request of a connection.  What it does with transactions, or with those of
   another path, is set in `relay`; all else passes. */
#ifndef ETCD_SERVER_H_INCLUDED
#define ETCD_SERVER_H_INCLUDED

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ==== The server ============================================================================== */

typedef struct etcd_server {
    pid_t pid;
    unsigned port; /* of clients */
    char folder[64];
} etcd_server;

/* A TCP port of 127.0.0.1; *fd listens there, or it is only free now (NULL). */
static inline unsigned loopback_port(int *fd)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 64) ||
        getsockname(s, (struct sockaddr *)&at, &len))
        return 0;
    if (fd)
        *fd = s;
    else
        close(s);
    return ntohs(at.sin_port);
}

static inline int loopback_connect(unsigned port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons((uint16_t)port) };
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && connect(s, (struct sockaddr *)&at, sizeof at) == 0)
        return s;
    if (s >= 0)
        close(s);
    return -1;
}

static inline bool etcd_is_installed(void)
{
    return system("etcd --version > /dev/null 2>&1") == 0;
}

static inline void etcd_exec(const etcd_server *e, unsigned peer, const char *quota)
{
    char data[96], log[96], clients[64], peers[64], cluster[80];
    snprintf(data, sizeof data, "%s/data", e->folder);
    snprintf(log, sizeof log, "%s/log", e->folder);
    snprintf(clients, sizeof clients, "http://127.0.0.1:%u", e->port);
    snprintf(peers, sizeof peers, "http://127.0.0.1:%u", peer);
    snprintf(cluster, sizeof cluster, "m=%s", peers);
    int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out, 1);
    dup2(out, 2);
    /* leases of 1 s are allowed where elections are quick */
    execlp("etcd", "etcd", "--name", "m", "--data-dir", data, "--unsafe-no-fsync",
           "--heartbeat-interval", "10", "--election-timeout", "100", "--listen-client-urls",
           clients, "--advertise-client-urls", clients, "--listen-peer-urls", peers,
           "--initial-advertise-peer-urls", peers, "--initial-cluster", cluster,
           "--quota-backend-bytes", quota, (char *)NULL);
    _exit(127);
}

/* quota: bytes of its database; "0": etcd's own. */
static inline bool etcd_server_start(etcd_server *e, const char *quota)
{
    unsigned peer = loopback_port(NULL);
    snprintf(e->folder, sizeof e->folder, "/tmp/dxpu-etcd-XXXXXX");
    e->port = loopback_port(NULL);
    if (!mkdtemp(e->folder))
        return false;
    e->pid = fork();
    if (e->pid == 0)
        etcd_exec(e, peer, quota);
    for (unsigned i = 0; e->pid > 0 && i < 2000; i++) { /* 20 s */
        int s = loopback_connect(e->port);
        if (s >= 0) {
            close(s);
            return true;
        }
        usleep(10000);
    }
    return false;
}

static inline void etcd_server_stop(etcd_server *e)
{
    char command[96];
    if (e->pid > 0) {
        kill(e->pid, SIGKILL);
        waitpid(e->pid, NULL, 0);
    }
    snprintf(command, sizeof command, "rm -rf '%s'", e->folder);
    if (e->folder[0] && system(command))
        fprintf(stderr, "%s is left\n", e->folder);
    e->pid = 0;
}

/* ==== The relay =============================================================================== */

typedef enum relay_mode {
    RELAY_PASS,
    RELAY_SLOW,          /* it passes, after RELAY_SLOW_MS */
    RELAY_NARROW,        /* it passes, and the answer at RELAY_NARROW_BYTES a second */
    RELAY_LOSE,          /* the request */
    RELAY_LOSE_ANSWER,   /* etcd has done it */
    RELAY_HOLD,          /* until relay.holds is cleared; then the answer is lost */
    RELAY_UNAVAILABLE,   /* 503, and etcd has done it */
    RELAY_GARBAGE,       /* in place of the answer */
    RELAY_ENDLESS,       /* more of an answer than anybody wants */
    RELAY_OLD,           /* revisions of the past */
    RELAY_OTHER_CLUSTER, /* its number is another one */
    RELAY_NO_RECORDS,    /* they are not in it, but their count is */
    RELAY_TEXT,          /* relay.text is the answer, and etcd has not got the request */
    RELAY_REFUSE,        /* the request is lost, and the answer is that there is no space */
    RELAY_DO_AND_REFUSE  /* the same answer, and etcd has done it */
} relay_mode;

enum { RELAY_SLOW_MS = 700, RELAY_NARROW_BYTES = 1000000 };

static struct {
    int listener;
    unsigned port, etcd;
    const char *path, *text;
    _Atomic relay_mode mode;
    atomic_uint skip, times; /* requests that pass before, and to which it is done then */
    atomic_bool holds;
    atomic_uint held; /* at present */
} relay;

static inline void relay_set_path(const char *path, relay_mode mode, unsigned skip, unsigned times)
{
    relay.path = path;
    relay.skip = skip;
    relay.times = times;
    relay.holds = true;
    relay.mode = mode;
}

static inline void relay_set(relay_mode mode, unsigned skip, unsigned times)
{
    relay_set_path("kv/txn", mode, skip, times);
}

/* Is it one of those that something is done to? */
static inline bool relay_picks(const char *request)
{
    size_t len = strlen(relay.path);
    if (strncmp(request, "POST /v3/", 9) != 0 || strncmp(request + 9, relay.path, len) != 0 ||
        request[9 + len] != ' ')
        return false;
    if (relay.skip) {
        relay.skip--;
        return false;
    }
    if (!relay.times)
        return false;
    relay.times--;
    return true;
}

/* Up to 8 MiB, into memory that grows: large blocks are dear with sanitizers. */
static inline size_t relay_read(int fd, char **out, bool request)
{
    size_t len = 0, want = 8 << 20, room = 1 << 14;
    ssize_t n;
    *out = (char *)malloc(room + 1);
    if (*out)
        **out = 0;
    while (*out && len < want &&
           (n = read(fd, *out + len, (want < room ? want : room) - len)) > 0) {
        len += (size_t)n;
        (*out)[len] = 0;
        const char *end = request ? strstr(*out, "\r\n\r\n") : NULL;
        const char *size = end ? strstr(*out, "Content-Length: ") : NULL;
        if (size)
            want = (size_t)(end + 4 - *out) + strtoul(size + 16, NULL, 10);
        if (len == room)
            *out = (char *)realloc(*out, (room *= 4) + 1);
    }
    return *out ? len : 0;
}

static inline void relay_write(int fd, const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        bytes += n;
        len -= (size_t)n;
    }
}

static inline void relay_text(int fd, const char *text)
{
    relay_write(fd, text, strlen(text));
}

/* etcd's answer; its length, 0: none. */
static inline size_t relay_ask(const char *request, char **answer)
{
    char head[256], path[64];
    const char *body = strstr(request, "\r\n\r\n");
    int fd = loopback_connect(relay.etcd);
    if (fd < 0 || !body || sscanf(request, "POST %63s", path) != 1) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    body += 4;
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\nConnection: close\r\n\r\n",
             path, strlen(body));
    relay_text(fd, head);
    relay_text(fd, body);
    size_t len = relay_read(fd, answer, false);
    close(fd);
    return len;
}

/* All digits of the number behind `name` become this one. */
static inline void relay_number(char *answer, const char *name, char digit)
{
    for (char *at = answer; at && (at = strstr(at, name));) {
        at += strlen(name);
        for (; *at >= '0' && *at <= '9'; at++)
            *at = digit;
    }
}

/* Members of this name get another one. */
static inline void relay_rename(char *answer, const char *name)
{
    for (char *at = answer; at && (at = strstr(at, name));)
        at[1] = '_';
}

static inline void relay_endless(int fd)
{
    static const char spaces[65536] = { ' ' };
    relay_text(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{");
    for (unsigned i = 0; i < 80 * 16; i++)
        relay_write(fd, spaces, sizeof spaces);
}

static inline void relay_deal(int fd, relay_mode mode, const char *request)
{
    char *answer = NULL;
    if (mode == RELAY_HOLD) {
        relay.held++;
        while (relay.holds)
            usleep(1000);
    }
    if (mode == RELAY_SLOW)
        usleep(RELAY_SLOW_MS * 1000);
    size_t len = mode == RELAY_LOSE || mode == RELAY_REFUSE || mode == RELAY_TEXT
                     ? 0
                     : relay_ask(request, &answer);
    switch (mode) {
    case RELAY_LOSE:
    case RELAY_LOSE_ANSWER:
        break;
    case RELAY_HOLD:
        relay.held--;
        break;
    case RELAY_UNAVAILABLE:
        relay_text(fd, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n"
                       "{\"message\":\"etcdserver: request timed out\",\"code\":14}");
        break;
    case RELAY_TEXT:
        relay_text(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        relay_text(fd, relay.text);
        break;
    case RELAY_REFUSE:
    case RELAY_DO_AND_REFUSE:
        relay_text(fd, "HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n\r\n"
                       "{\"message\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}");
        break;
    case RELAY_GARBAGE:
        relay_text(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"header\":[7],\"succ");
        break;
    case RELAY_ENDLESS:
        relay_endless(fd);
        break;
    case RELAY_OLD:
        relay_number(answer, "revision\":\"", '0');
        relay_write(fd, answer, len);
        break;
    case RELAY_NO_RECORDS:
        relay_rename(answer, "\"kvs\"");
        relay_write(fd, answer, len);
        break;
    case RELAY_OTHER_CLUSTER:
        relay_number(answer, "cluster_id\":\"", '7');
        relay_write(fd, answer, len);
        break;
    case RELAY_NARROW:
        usleep((useconds_t)(len * 1000000 / RELAY_NARROW_BYTES));
        relay_write(fd, answer, len);
        break;
    default:
        relay_write(fd, answer, len);
    }
    free(answer);
}

static inline void *relay_serve(void *user)
{
    int fd = *(int *)user;
    char *request;
    free(user);
    if (relay_read(fd, &request, true))
        relay_deal(fd, relay_picks(request) ? relay.mode : RELAY_PASS, request);
    close(fd);
    free(request);
    return NULL;
}

static inline void *relay_accept(void *user)
{
    (void)user;
    for (;;) {
        pthread_t thread;
        int *fd = malloc(sizeof *fd);
        *fd = accept(relay.listener, NULL, NULL);
        if (*fd < 0 || pthread_create(&thread, NULL, relay_serve, fd)) {
            free(fd);
            return NULL;
        }
        pthread_detach(thread);
    }
}

static inline bool relay_start(unsigned etcd)
{
    pthread_t thread;
    relay.etcd = etcd;
    relay.port = loopback_port(&relay.listener);
    return relay.port && pthread_create(&thread, NULL, relay_accept, NULL) == 0 &&
           pthread_detach(thread) == 0;
}

#endif /* ETCD_SERVER_H_INCLUDED */
