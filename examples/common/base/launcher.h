/* launcher.h - starts one program repeatedly for a process that starts none itself
   SPDX-License-Identifier: MIT

   Behind the filter of system calls a program starts nothing (S-122).  The launcher is a process
   made before that.  When it is asked, it ends the program that it started last, if that still
   runs, and starts it again, always with the same arguments.  The new one has one end of a pair of
   sockets that keep messages apart as descriptor 3 and a memory of a fixed size as descriptor 4,
   both inherited, and /dev/null as its standard streams.  The asker gets the other end and the same
   memory, which neither can resize.  The end of the asker ends both processes. */
#ifndef LAUNCHER_H_INCLUDED
#define LAUNCHER_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>

enum { LAUNCHER_SOCKET = 3, LAUNCHER_MEMORY = 4 };
enum { LAUNCHER_START = 0, LAUNCHER_END = 1 }; /* messages to that process, of one byte */

/* Where a program of this name is: beside the one that calls.  False: it cannot be run there. */
bool launcher_beside(const char *name, char *path, size_t size);
/* Runs argv, ended by NULL, and waits for its end; its status, or -1 and errno: not even that. */
int launcher_try(const char *const *argv);
/* Before there is a filter, a thread, or a secret.  A descriptor that is readable when there is an
   answer, and whose closing ends that process and what it started; -1 and errno. */
int launcher_start(const char *const *argv, size_t memory_bytes);
/* Ask once; launcher_take() follows.  0, or -1: that process is gone. */
int launcher_ask(int launcher);
/* End what was started last, without an answer; its memory and processor are free soon after. */
void launcher_end(int launcher);
/* The socket and the memory, the caller's, close-on-exec.  0; 1: there is no answer yet; -1 and
   errno: EPIPE that process is gone, else why nothing was started. */
int launcher_take(int launcher, int *socket, int *memory);
/* That process has ended: its descriptor stays readable, so it is to be closed. */
bool launcher_gone(int launcher);

#endif /* LAUNCHER_H_INCLUDED */
