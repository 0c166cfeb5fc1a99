/* connector.h - connects to one UNIX socket for a process that makes no sockets any more
   SPDX-License-Identifier: MIT

   The filter of system calls lets a box make no UNIX sockets, which would reach whoever starts
   programs for others (S-122).  A process of its own, made before the filter, connects to the one
   path that the operator named, when it is asked, and hands the connection over. */
#ifndef CONNECTOR_H_INCLUDED
#define CONNECTOR_H_INCLUDED

/* For a process that ends with the box, not before: signals that users send to the box, or to all
   processes of its name, end it no more; it has no core file, and none but root reads it. */
void connector_outlive(void);
/* In a child of it that becomes another program: those signals act again. */
void connector_obey(void);
/* Before there is a filter, a thread, or a secret.  A descriptor that is readable when there is an
   answer, and whose closing ends that process; -1 and errno. */
int connector_start(const char *path);
/* Ask once; connector_take() follows.  0, or -1: that process is gone. */
int connector_ask(int connector);
/* The connection; -1 and errno: EAGAIN there is no answer yet, EPIPE that process is gone, else why
   there is no connection. */
int connector_take(int connector);

#endif /* CONNECTOR_H_INCLUDED */
