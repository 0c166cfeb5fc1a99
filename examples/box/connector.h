/* connector.h - connects to one UNIX socket for a process that makes no sockets any more
   SPDX-License-Identifier: MIT

   The filter of system calls lets a box make no UNIX sockets, which would reach whoever starts
   programs for others (S-122).  A process of its own, made before the filter, connects to the one
   path that the operator named, when it is asked, and hands the connection over. */
#ifndef CONNECTOR_H_INCLUDED
#define CONNECTOR_H_INCLUDED

/* Before there is a filter, a thread, or a secret.  A descriptor that is readable when there is an
   answer, and whose closing ends that process; -1 and errno. */
int connector_start(const char *path);
/* Ask once; connector_take() follows.  0, or -1: that process is gone. */
int connector_ask(int connector);
/* The connection; -1 and errno: EAGAIN there is no answer yet, EPIPE that process is gone, else why
   there is no connection. */
int connector_take(int connector);

#endif /* CONNECTOR_H_INCLUDED */
