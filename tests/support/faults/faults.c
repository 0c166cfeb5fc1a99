/* faults.c - makes calls of the system fail and the time of day jump: preloaded (LD_PRELOAD) by
   net_faults.py and net_soak*.py
   SPDX-License-Identifier: MIT

   DXPU_FAULTS names a file of 64-bit words that the test made and both map.  The test may change
   the schedule while the program runs, and reads the counts even after a crash:

     0  one call in that many thousand fails, chosen by the generator in word 2; 0: none at random
     1  which functions fail at random, a bit each
     2  state of the generator; the test writes a seed
     3  the function, its index plus one, of which the n-th call fails; 0: none
     4  n, from 1 on
     5  how it fails: index into its ways
     6  1: allocations of libraries fail too, 0: those of the program only
     7  nanoseconds (signed) that the time of day is ahead; clocks that only run are as they are
     126  nanoseconds that each access of the file whose inode word 127 has takes: of its data; of
          a directory, each fsync
     127  that inode; 0: none is slow
     8 + 2 i, 9 + 2 i  calls of function i that could have failed, and those that did

   read and write fail to the program only: libevent wakes itself through a pair of sockets with
   them, which the system does not let fail.  A function's ways are values of errno, and SHORT: less
   is moved than asked for.  The way KILL (99) of any of them ends the program before the call. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT, recvmmsg */
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    RATE,
    MASK,
    STATE,
    CHOSEN,
    NTH,
    WAY,
    LIBRARIES,
    AHEAD,
    COUNTS = 8,
    SLOW_NS = 126,
    SLOW_INODE = 127,
    WORDS = 128
};
enum { SHORT = -1, WAYS_MAX = 6, KILL = 99 };

#define FUNCTIONS(X)                                                                               \
    X(socket, EMFILE, ENOBUFS, EACCES)                                                             \
    X(bind, EADDRINUSE, EACCES, EADDRNOTAVAIL)                                                     \
    X(listen, EADDRINUSE, EOPNOTSUPP)                                                              \
    X(accept4, EMFILE, ECONNABORTED, EINTR, ENOBUFS)                                               \
    X(connect, ENETUNREACH, ECONNREFUSED, EADDRNOTAVAIL)                                           \
    X(send, EINTR, ENOBUFS, EPIPE, ECONNRESET, SHORT)                                              \
    X(sendto, EINTR, ENOBUFS, EPERM, EHOSTUNREACH)                                                 \
    X(sendmsg, EINTR, ENOBUFS, EPERM, EHOSTUNREACH, ECONNREFUSED)                                  \
    X(sendmmsg, EINTR, ENOBUFS, EPERM, EHOSTUNREACH, ECONNREFUSED, SHORT)                          \
    X(recv, EINTR, ENOMEM, ECONNRESET, SHORT)                                                      \
    X(recvfrom, EINTR, ENOMEM, EAGAIN)                                                             \
    X(recvmsg, EINTR, ENOMEM, EAGAIN)                                                              \
    X(recvmmsg, EINTR, ENOMEM, EAGAIN, ECONNREFUSED)                                               \
    X(read, EINTR, EIO, SHORT)                                                                     \
    X(write, EINTR, ENOSPC, EIO, SHORT)                                                            \
    X(readv, EINTR, ECONNRESET, EAGAIN)                                                            \
    X(writev, EINTR, EPIPE, EAGAIN)                                                                \
    X(pread, EINTR, EIO, SHORT)                                                                    \
    X(pwrite, EINTR, EIO, ENOSPC, SHORT)                                                           \
    X(open, EMFILE, EACCES, ENOSPC, EINTR)                                                         \
    X(fopen, EMFILE, EACCES, ENOSPC)                                                               \
    X(fflush, ENOSPC, EIO)                                                                         \
    X(fsync, EIO, ENOSPC)                                                                          \
    X(fdatasync, EIO, ENOSPC)                                                                      \
    X(rename, ENOSPC, EIO)                                                                         \
    X(ftruncate, ENOSPC, EIO)                                                                      \
    X(mmap, ENOMEM, EACCES)                                                                        \
    X(epoll_create1, EMFILE, ENOMEM)                                                               \
    X(epoll_ctl, ENOMEM, ENOSPC)                                                                   \
    X(epoll_wait, EINTR)                                                                           \
    X(timerfd_create, EMFILE, ENOMEM)                                                              \
    X(timerfd_settime, ECANCELED)                                                                  \
    X(eventfd, EMFILE, ENOMEM)                                                                     \
    X(poll, EINTR, ENOMEM)                                                                         \
    X(ioctl, EPERM, ENODEV)                                                                        \
    X(setsockopt, EPERM, ENOBUFS, ENOPROTOOPT)                                                     \
    X(getsockopt, ENOBUFS, ENOPROTOOPT)                                                            \
    X(bpf, EPERM, ENOMEM, EINVAL, EBUSY)                                                           \
    X(flock, EINTR, ENOLCK)                                                                        \
    X(fstat, EIO, EOVERFLOW)                                                                       \
    X(fchmod, EPERM, EIO)                                                                          \
    X(unlink, EACCES, EIO)                                                                         \
    X(readlink, ENOENT, EACCES)                                                                    \
    X(fclose, ENOSPC, EIO)                                                                         \
    X(malloc, ENOMEM)                                                                              \
    X(calloc, ENOMEM)                                                                              \
    X(realloc, ENOMEM)

#define X_INDEX(name, ...) F_##name,
enum { FUNCTIONS(X_INDEX) FUNCTION_COUNT };
#define X_WAYS(name, ...) { __VA_ARGS__ },
static const int ways[FUNCTION_COUNT][WAYS_MAX] = { FUNCTIONS(X_WAYS) };
/* Nothing is interposed before the first of these is known: see real(). */
#define X_NAME(name, ...) #name,
static const char *const names[FUNCTION_COUNT] = { FUNCTIONS(X_NAME) };
static void *next[FUNCTION_COUNT];
static uint64_t *words; /* NULL: none fails */
static uintptr_t program_from, program_end;

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t each);
extern void *__libc_realloc(void *p, size_t n);

static void *real(int f)
{
    if (!next[f])
        next[f] = dlsym(RTLD_NEXT, names[f]);
    return next[f];
}

/* The program itself is the first object. */
static int find_program(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    program_from = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        program_from = at < program_from ? at : program_from;
        if (at + info->dlpi_phdr[i].p_memsz > program_end)
            program_end = at + info->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

__attribute__((constructor)) static void begin(void)
{
    const char *file = getenv("DXPU_FAULTS");
    void *at;
    int fd;
    for (int f = 0; f < FUNCTION_COUNT; f++)
        real(f); /* none of bpf: see syscall() */
    if (!file)
        return;
    dl_iterate_phdr(find_program, NULL);
    fd = open(file, O_RDWR | O_CLOEXEC);
    at = fd < 0 ? MAP_FAILED
                : mmap(NULL, WORDS * sizeof *words, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        fprintf(stderr, "faults: %s cannot be mapped\n", file);
        abort();
    }
    close(fd);
    words = at;
}

static uint64_t load(int word)
{
    return __atomic_load_n(&words[word], __ATOMIC_RELAXED);
}

/* splitmix64; threads share it, so that only one thread repeats itself */
static uint64_t draw(void)
{
    uint64_t x = __atomic_add_fetch(&words[STATE], 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* How this call of f fails: errno, SHORT, or 0 when it does not. */
static int fate(int f)
{
    uint64_t call, way, x;
    int count = 0;
    if (!words)
        return 0;
    call = __atomic_add_fetch(&words[COUNTS + 2 * f], 1, __ATOMIC_RELAXED);
    while (count < WAYS_MAX && ways[f][count])
        count++;
    if (load(CHOSEN) == (uint64_t)f + 1 && load(NTH) == call) {
        way = load(WAY);
        if (way == KILL)
            (void)kill(getpid(), SIGKILL);
    } else {
        if (!load(RATE) || !(load(MASK) >> f & 1))
            return 0;
        x = draw();
        if (x % 1000 >= load(RATE))
            return 0;
        way = x >> 32;
    }
    __atomic_add_fetch(&words[COUNTS + 2 * f + 1], 1, __ATOMIC_RELAXED);
    return ways[f][way % (uint64_t)count];
}

static bool in_program(const void *caller)
{
    return (uintptr_t)caller >= program_from && (uintptr_t)caller < program_end;
}

/* Of allocations those of the program; libraries' own only when asked for. */
static int fate_of_memory(int f, const void *caller)
{
    return words && (load(LIBRARIES) || in_program(caller)) ? fate(f) : 0;
}

#define CALL(name) ((__typeof__(&name))(uintptr_t)real(F_##name))
/* The call that fails: -1 and errno; SHORT is for the callers that know what to shorten. */
#define FAIL(name)                                                                                 \
    int how = fate(F_##name);                                                                      \
    if (how > 0) {                                                                                 \
        errno = how;                                                                               \
        return -1;                                                                                 \
    }
#define SIMPLE(type, name, parameters, arguments)                                                  \
    type name parameters                                                                           \
    {                                                                                              \
        FAIL(name)                                                                                 \
        return CALL(name) arguments;                                                               \
    }
/* a count of bytes or messages that may be moved in part */
#define PARTIAL(type, name, count, parameters, arguments)                                          \
    type name parameters                                                                           \
    {                                                                                              \
        FAIL(name)                                                                                 \
        if (how == SHORT && count > 1)                                                             \
            count /= 2;                                                                            \
        return CALL(name) arguments;                                                               \
    }

SIMPLE(int, socket, (int d, int t, int p), (d, t, p))
SIMPLE(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
SIMPLE(int, listen, (int fd, int n), (fd, n))
SIMPLE(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags), (fd, a, n, flags))
SIMPLE(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
PARTIAL(ssize_t, send, n, (int fd, const void *b, size_t n, int flags), (fd, b, n, flags))
SIMPLE(ssize_t, sendto,
       (int fd, const void *b, size_t n, int flags, const struct sockaddr *a, socklen_t len),
       (fd, b, n, flags, a, len))
SIMPLE(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
PARTIAL(int, sendmmsg, n, (int fd, struct mmsghdr *m, unsigned n, int flags), (fd, m, n, flags))
PARTIAL(ssize_t, recv, n, (int fd, void *b, size_t n, int flags), (fd, b, n, flags))
SIMPLE(ssize_t, recvfrom,
       (int fd, void *restrict b, size_t n, int flags, struct sockaddr *restrict a,
        socklen_t *restrict len),
       (fd, b, n, flags, a, len))
SIMPLE(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
SIMPLE(int, recvmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *t),
       (fd, m, n, flags, t))
ssize_t read(int fd, void *b, size_t n)
{
    int how = in_program(__builtin_return_address(0)) ? fate(F_read) : 0;
    if (how > 0) {
        errno = how;
        return -1;
    }
    return CALL(read)(fd, b, how == SHORT && n > 1 ? n / 2 : n);
}

ssize_t write(int fd, const void *b, size_t n)
{
    /* a message that is not written is lost, and tests wait for messages */
    int how = fd != 2 && in_program(__builtin_return_address(0)) ? fate(F_write) : 0;
    if (how > 0) {
        errno = how;
        return -1;
    }
    return CALL(write)(fd, b, how == SHORT && n > 1 ? n / 2 : n);
}

SIMPLE(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n))
SIMPLE(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n))

/* ---- A slow disk ---- */

static bool is_slow(int fd)
{
    struct stat st;
    return words && load(SLOW_INODE) && !CALL(fstat)(fd, &st) && st.st_ino == load(SLOW_INODE);
}

static void be_slow(int fd)
{
    uint64_t ns = words ? load(SLOW_NS) : 0;
    struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
    if (is_slow(fd))
        (void)nanosleep(&t, NULL);
}

ssize_t pread(int fd, void *b, size_t n, off_t at)
{
    FAIL(pread)
    be_slow(fd);
    return CALL(pread)(fd, b, how == SHORT && n > 1 ? n / 2 : n, at);
}

ssize_t pwrite(int fd, const void *b, size_t n, off_t at)
{
    FAIL(pwrite)
    be_slow(fd);
    return CALL(pwrite)(fd, b, how == SHORT && n > 1 ? n / 2 : n, at);
}

int fdatasync(int fd)
{
    FAIL(fdatasync)
    be_slow(fd);
    return CALL(fdatasync)(fd);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    be_slow(fd);
    return (int)syscall(SYS_fallocate, fd, mode, at, n);
}

/* Nothing of a slow disk is in the page cache. */
ssize_t preadv2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
    static ssize_t (*real_one)(int, const struct iovec *, int, off_t, int);
    if (is_slow(fd) && flags & RWF_NOWAIT) {
        errno = EAGAIN;
        return -1;
    }
    if (!real_one)
        real_one = (__typeof__(real_one))(uintptr_t)dlsym(RTLD_NEXT, "preadv2");
    return real_one(fd, v, n, at, flags);
}

int fsync(int fd)
{
    FAIL(fsync)
    be_slow(fd);
    return CALL(fsync)(fd);
}

SIMPLE(int, rename, (const char *from, const char *to), (from, to))
SIMPLE(int, ftruncate, (int fd, off_t n), (fd, n))
SIMPLE(int, epoll_create1, (int flags), (flags))
SIMPLE(int, epoll_ctl, (int fd, int op, int other, struct epoll_event *e), (fd, op, other, e))
SIMPLE(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms))
SIMPLE(int, timerfd_create, (int clock, int flags), (clock, flags))
SIMPLE(int, timerfd_settime,
       (int fd, int flags, const struct itimerspec *value, struct itimerspec *old),
       (fd, flags, value, old))
SIMPLE(int, eventfd, (unsigned value, int flags), (value, flags))
SIMPLE(int, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
SIMPLE(int, setsockopt, (int fd, int level, int name, const void *v, socklen_t n),
       (fd, level, name, v, n))
SIMPLE(int, getsockopt, (int fd, int level, int name, void *restrict v, socklen_t *restrict n),
       (fd, level, name, v, n))
SIMPLE(int, flock, (int fd, int what), (fd, what))
SIMPLE(int, fstat, (int fd, struct stat *s), (fd, s))
SIMPLE(int, fchmod, (int fd, mode_t mode), (fd, mode))
SIMPLE(int, unlink, (const char *path), (path))
SIMPLE(ssize_t, readlink, (const char *restrict path, char *restrict to, size_t n), (path, to, n))
/* the names that programs with 64-bit offsets, and sqlite, use */
ssize_t pread64(int fd, void *b, size_t n, off_t at)
{
    return pread(fd, b, n, at);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off_t at)
{
    return pwrite(fd, b, n, at);
}
int ftruncate64(int fd, off_t n)
{
    return ftruncate(fd, n);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode;
    FAIL(open)
    va_start(rest, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return CALL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode;
    va_start(rest, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open(path, flags, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    int how = fate(F_fopen);
    if (how) {
        errno = how;
        return NULL;
    }
    return CALL(fopen)(path, mode);
}

int fflush(FILE *f)
{
    FAIL(fflush)
    return CALL(fflush)(f);
}

int fclose(FILE *f)
{
    int how = fate(F_fclose), rc = CALL(fclose)(f); /* what is closed stays so */
    if (how) {
        errno = how;
        rc = EOF;
    }
    return rc;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    void *argument;
    FAIL(ioctl)
    va_start(rest, request);
    argument = va_arg(rest, void *);
    va_end(rest);
    return CALL(ioctl)(fd, request, argument);
}

/* libbpf has no other way to bpf(); all others go on as they are */
long syscall(long number, ...)
{
    static long (*real_one)(long, ...);
    va_list rest;
    long a[6];
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (!real_one)
        real_one = (__typeof__(real_one))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_bpf) {
        int how = fate(F_bpf);
        if (how > 0) {
            errno = how;
            return -1;
        }
    }
    return real_one(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    int how = fate_of_memory(F_mmap, __builtin_return_address(0));
    if (how) {
        errno = how;
        return MAP_FAILED;
    }
    return CALL(mmap)(at, n, prot, flags, fd, offset);
}

void *malloc(size_t n)
{
    if (fate_of_memory(F_malloc, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t each)
{
    if (fate_of_memory(F_calloc, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(n, each);
}

void *realloc(void *p, size_t n)
{
    if (n && fate_of_memory(F_realloc, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(p, n);
}

/* ---- Time of day: another one than the machine's, as after a step of its clock ---- */

int clock_gettime(clockid_t clock, struct timespec *t)
{
    enum { NS_PER_S = 1000000000 };
    static int (*real_one)(clockid_t, struct timespec *);
    int64_t ns;
    int rc;
    if (!real_one)
        real_one = (__typeof__(real_one))(uintptr_t)dlsym(RTLD_NEXT, "clock_gettime");
    rc = real_one(clock, t);
    if (rc || !words || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return rc;
    ns = (int64_t)t->tv_sec * NS_PER_S + t->tv_nsec + (int64_t)load(AHEAD);
    t->tv_sec = (time_t)(ns / NS_PER_S);
    t->tv_nsec = (long)(ns % NS_PER_S);
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &t))
        return -1;
    at->tv_sec = t.tv_sec;
    at->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec t;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &t))
        return (time_t)-1;
    if (at)
        *at = t.tv_sec;
    return t.tv_sec;
}
