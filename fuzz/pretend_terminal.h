/* pretend_terminal.h - a terminal, a clock and signals of its own, for parts of `dxpu`
   SPDX-License-Identifier: MIT

   Include before the parts that use them.  What they print is kept; waiting costs no time; Ctrl-C
   comes when pretend_enough() says so, and whoever is still waiting long after has not heard it. */
#ifndef PRETEND_TERMINAL_H_INCLUDED
#define PRETEND_TERMINAL_H_INCLUDED

#include "input.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { PRETEND_PIPE = 1000, PRETEND_FILE, PRETEND_POLLS_MAX = 400 };

static struct pretended {
    FILE *out[2]; /* standard output and error */
    char *text[2];
    size_t bytes[2];
    bool terminal, color;
    unsigned short rows, columns;
    uint64_t now_ns;
    unsigned polls, signals;
    void (*on_signal)(int number);
} pretended;

/* The target's: is it time for Ctrl-C? */
static inline bool pretend_enough(void);

static inline void pretend_begin(void)
{
    memset(&pretended, 0, sizeof pretended);
    pretended.now_ns = 1000000000;
    for (unsigned i = 0; i < 2; i++) {
        pretended.out[i] = open_memstream(&pretended.text[i], &pretended.bytes[i]);
        must(pretended.out[i] != NULL);
    }
}

/* From here on what was printed is in text. */
static inline void pretend_closed(void)
{
    for (unsigned i = 0; i < 2; i++)
        must(fclose(pretended.out[i]) == 0);
}

static inline void pretend_end(void)
{
    for (unsigned i = 0; i < 2; i++)
        free(pretended.text[i]);
}

/* First Ctrl-Z, where it is caught, then Ctrl-C. */
static inline void pretend_signals(void)
{
    if (!pretended.on_signal || !pretend_enough())
        return;
    pretended.on_signal(pretended.signals++ ? SIGINT : SIGTSTP);
}

static inline int pretend_poll(struct pollfd *p, nfds_t count, int ms)
{
    must(++pretended.polls <= PRETEND_POLLS_MAX);
    pretended.now_ns += (uint64_t)(ms > 0 ? ms : 1) * 1000000u;
    pretend_signals();
    if (count == 2 && pretended.polls % 3 == 0) {
        p[1].revents = POLLIN; /* somebody presses a key */
        return 1;
    }
    return 0;
}

static inline int pretend_clock(struct timespec *now)
{
    now->tv_sec = (time_t)(pretended.now_ns / 1000000000u);
    now->tv_nsec = (long)(pretended.now_ns % 1000000000u);
    return 0;
}

static inline ssize_t pretend_write(int fd, const void *bytes, size_t len)
{
    if (fd == STDOUT_FILENO)
        must(fwrite(bytes, 1, len, pretended.out[0]) == len);
    return (ssize_t)len;
}

static inline ssize_t pretend_read(int fd, void *bytes, size_t len)
{
    if (fd != STDIN_FILENO || !len)
        return -1;
    memset(bytes, 'x', 1);
    return 1;
}

static inline int pretend_pipe(int ends[2])
{
    ends[0] = ends[1] = PRETEND_PIPE;
    return 0;
}

static inline int pretend_sigaction(int number, const struct sigaction *action)
{
    (void)number;
    pretended.on_signal = action->sa_handler;
    return 0;
}

static inline int pretend_window(struct winsize *size)
{
    size->ws_row = pretended.rows;
    size->ws_col = pretended.columns;
    return 0;
}

static inline const char *pretend_getenv(const char *name)
{
    if (strcmp(name, "NO_COLOR") == 0)
        return pretended.color ? NULL : "1";
    return strcmp(name, "TERM") == 0 ? "xterm" : NULL;
}

#undef stdout
#undef stderr
#define stdout                      pretended.out[0]
#define stderr                      pretended.out[1]
#define printf(...)                 fprintf(stdout, __VA_ARGS__)
#define puts(text)                  fprintf(stdout, "%s\n", text)
#define putchar(c)                  fputc(c, stdout)
#define isatty(fd)                  ((void)(fd), pretended.terminal)
#define ioctl(fd, what, size)       ((void)(fd), pretend_window(size))
#define getenv(name)                pretend_getenv(name)
#define poll(p, count, ms)          pretend_poll(p, count, ms)
#define clock_gettime(clock, now)   pretend_clock(now)
#define time(now)                   ((time_t)1767323045)
#define write(fd, bytes, len)       pretend_write(fd, bytes, len)
#define read(fd, bytes, len)        pretend_read(fd, bytes, len)
#define pipe(ends)                  pretend_pipe(ends)
#define fcntl(...)                  (0)
#define sigaction(number, new, old) pretend_sigaction(number, new)
#define raise(number)               (0)
#define atexit(function)            ((void)(function), 0)
#define tcgetattr(fd, now)          (memset(now, 0, sizeof *(now)), 0)
#define tcsetattr(fd, when, now)    ((void)(now), 0)

#endif /* PRETEND_TERMINAL_H_INCLUDED */
