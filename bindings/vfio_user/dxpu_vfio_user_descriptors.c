/* dxpu_vfio_user_descriptors.c - see dxpu_vfio_user_descriptors.h
   SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "dxpu_vfio_user_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ==== what it is: none of these calls reaches a file system's own code ======================== */

bool vfu_is_memory(int fd)
{
    return fcntl(fd, F_GET_SEALS) >= 0;
}

bool vfu_is_eventfd(int fd)
{
    char name[40], link[40];
    ssize_t n;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    n = readlink(name, link, sizeof link - 1);
    if (n < 0)
        return false;
    link[n] = 0;
    return strcmp(link, "anon_inode:[eventfd]") == 0;
}

bool vfu_is_stream(int fd)
{
    int type;
    socklen_t len = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 || fcntl(fd, F_GETPIPE_SZ) >= 0;
}

/* ==== eventfds ================================================================================ */

static aio_context_t aio; /* 0: there is none */

static void start_aio(void)
{
    if (syscall(SYS_io_setup, 64, &aio) != 0)
        aio = 0;
}

/* write() waits when the counter is full, unless O_NONBLOCK is set, which the client can clear at
   any instant: the flag belongs to the file that both have.  The kernel itself never waits when it
   signals that an asynchronous operation is done.  Here this is the question whether `ready` can be
   written to, which is so at once. */
bool vfu_signal(int ready, int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct iocb cb, *list = &cb;
    struct io_event done;
    struct timespec at_once = { 0, 0 };
    (void)pthread_once(&once, start_aio);
    memset(&cb, 0, sizeof cb);
    cb.aio_lio_opcode = IOCB_CMD_POLL;
    cb.aio_fildes = (uint32_t)ready;
    cb.aio_buf = POLLOUT;
    cb.aio_flags = IOCB_FLAG_RESFD;
    cb.aio_resfd = (uint32_t)fd;
    if (!aio || syscall(SYS_io_submit, aio, 1, &list) != 1)
        return false;
    /* one for each submitted: another thread's may be this one's, and the other way round */
    (void)syscall(SYS_io_getevents, aio, 1, 1, &done, &at_once);
    return true;
}

/* ==== closing ================================================================================= */

enum { QUEUE = 512 }; /* VFU_CLOSING, one message's, and those that a server keeps itself */

struct vfu_closer {
    pthread_mutex_t lock;
    pthread_cond_t more;
    int fds[QUEUE]; /* to be closed; the first is being closed now */
    unsigned count;
    int wake;
    bool running, asked, freed; /* asked: somebody waits for room */
};

vfu_closer *vfu_closer_new(int wake)
{
    vfu_closer *c = (vfu_closer *)calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->wake = fcntl(wake, F_DUPFD_CLOEXEC, 0);
    if (c->wake < 0) {
        free(c);
        return NULL;
    }
    (void)pthread_mutex_init(&c->lock, NULL); /* ordinary ones: cannot fail */
    (void)pthread_cond_init(&c->more, NULL);
    return c;
}

static void destroy(vfu_closer *c)
{
    (void)pthread_mutex_destroy(&c->lock);
    (void)pthread_cond_destroy(&c->more);
    close(c->wake);
    free(c);
}

static void *body(void *arg)
{
    vfu_closer *c = (vfu_closer *)arg;
    uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    while (c->count > 0 || !c->freed) {
        if (c->count == 0) {
            pthread_cond_wait(&c->more, &c->lock);
            continue;
        }
        int fd = c->fds[0];
        pthread_mutex_unlock(&c->lock);
        close(fd);
        pthread_mutex_lock(&c->lock);
        memmove(c->fds, c->fds + 1, --c->count * sizeof c->fds[0]);
        if (c->asked && c->count < VFU_CLOSING) {
            c->asked = false;
            (void)!write(c->wake, &one, sizeof one);
        }
    }
    pthread_mutex_unlock(&c->lock);
    destroy(c);
    return NULL;
}

/* Signals are for the program's own threads.  Without a thread the next descriptor tries again. */
static void start_thread(vfu_closer *c)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    if (pthread_attr_init(&attr))
        return;
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, 256 * 1024);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    c->running = pthread_create(&thread, &attr, body, c) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attr);
}

void vfu_closer_free(vfu_closer *c)
{
    bool alone;
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->freed = true;
    if (c->count > 0 && !c->running)
        start_thread(c);
    alone = !c->running;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
    if (alone) /* no thread can be had: what is left stays open */
        destroy(c);
}

bool vfu_closer_has_room(vfu_closer *c)
{
    bool room;
    pthread_mutex_lock(&c->lock);
    room = c->count < VFU_CLOSING;
    c->asked = !room;
    pthread_mutex_unlock(&c->lock);
    return room;
}

void vfu_closer_close(vfu_closer *c, int fd)
{
    if (vfu_is_memory(fd) || vfu_is_eventfd(fd)) {
        close(fd);
        return;
    }
    pthread_mutex_lock(&c->lock);
    if (c->count < QUEUE) /* always, when vfu_closer_has_room() was asked before each message */
        c->fds[c->count++] = fd;
    if (!c->running)
        start_thread(c);
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}

/* ==== sockets ================================================================================= */

enum {
    PIDFD = 4,    /* SCM_PIDFD, Linux 6.5 */
    OTHERS = 4096 /* bytes of credentials, a label, a pidfd: what options of the socket ask for */
};

/* A server that made our end of a pair sets options of it whenever it likes, and each read then has
   what they ask for: a pidfd is made for us, and no one else closes it. */
static void drop_other(const struct cmsghdr *c)
{
    int fd;
    if (c->cmsg_type != PIDFD || c->cmsg_len < CMSG_LEN(sizeof fd))
        return;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (fd >= 0)
        close(fd);
}

ssize_t vfu_receive(int socket, void *p, size_t bytes, int fds[VFU_FDS_MAX], unsigned *count,
                    bool *lost)
{
    /* room for all: those that find none the kernel would close in this thread */
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * VFU_FDS_MAX) + OTHERS];
    } control;
    struct msghdr h;
    struct cmsghdr *c;
    struct iovec iov;
    ssize_t n;
    *count = 0;
    *lost = false;
    iov.iov_base = p;
    iov.iov_len = bytes;
    memset(&h, 0, sizeof h);
    h.msg_iov = &iov;
    h.msg_iovlen = 1;
    h.msg_control = control.bytes;
    h.msg_controllen = sizeof control.bytes;
    do
        n = recvmsg(socket, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return n;
    *lost = (h.msg_flags & MSG_CTRUNC) != 0;
    for (c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
        size_t many = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type != SCM_RIGHTS) {
            drop_other(c);
            continue;
        }
        memcpy(fds + *count, CMSG_DATA(c), many * sizeof(int));
        *count += (unsigned)many;
    }
    return n;
}

void vfu_closer_hang_up(vfu_closer *c, int socket)
{
    static const size_t piece = 4096;
    uint8_t rest[4096];
    int fds[VFU_FDS_MAX];
    unsigned i, count, resets = 0;
    bool lost;
    ssize_t n = 1;
    (void)shutdown(socket, SHUT_RDWR); /* from now on nothing more is queued */
    while (n > 0 && vfu_closer_has_room(c)) {
        n = vfu_receive(socket, rest, piece, fds, &count, &lost);
        for (i = 0; i < count; i++)
            vfu_closer_close(c, fds[i]);
        if (n < 0 && errno == ECONNRESET && resets++ == 0) /* reported once, then the end */
            n = 1;
    }
    /* what is left may hold descriptors, which are closed with it; so may the connections that wait
       at a socket which is not connected but listens */
    if (n == 0)
        close(socket);
    else
        vfu_closer_close(c, socket);
}
