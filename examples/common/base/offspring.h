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

#endif /* OFFSPRING_H_INCLUDED */
