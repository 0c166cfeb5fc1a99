/* offspring.h - what a process does first that a program made for its own use
   SPDX-License-Identifier: MIT */
#ifndef OFFSPRING_H_INCLUDED
#define OFFSPRING_H_INCLUDED

/* For a process that ends with its program, not before: signals that users send to the program, or
   to all processes of its name, end it no more; it has no core file, and none but root reads it. */
void offspring_outlive(void);
/* In a child of it that becomes another program: those signals act again. */
void offspring_obey(void);
/* What the program has open is not this process's: all but standard streams and `own` is closed. */
void offspring_keep_one(int own);
/* Runs serve(its end of a socket of packets, what) in a process that outlives, keeps only that
   socket, and ends when serve() returns.  Its parent ends at once: behind its filter the caller
   cannot wait for it.  The other end, or -1 and errno. */
int offspring_start(void (*serve)(int from, const void *what), const void *what);

#endif /* OFFSPRING_H_INCLUDED */
