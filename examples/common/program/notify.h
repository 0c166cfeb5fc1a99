/* notify.h - reports readiness and state to the service manager that started the program
   SPDX-License-Identifier: MIT

   The protocol of sd_notify(3): datagrams of lines to the socket that $NOTIFY_SOCKET names, as
   systemd expects them from units with Type=notify.  Its authors keep it stable and advise to
   write these lines oneself where they are all that is needed of libsystemd.  Without the variable
   nothing is sent.  One process reports: that which the service manager started. */
#ifndef NOTIFY_H_INCLUDED
#define NOTIFY_H_INCLUDED

/* Connects, and takes $NOTIFY_SOCKET out of the environment.  Before sandbox_start(): afterwards
   the socket may be out of reach.  A socket that cannot be connected is reported on stderr. */
void notify_start(void);
/* READY=1: all sockets are bound, all files and devices open, and the next step is the loop.  The
   text is the STATUS= of `systemctl status`.  Only the first call is READY=1. */
__attribute__((format(printf, 1, 2))) void notify_ready(const char *format, ...);
/* STATUS= alone. */
__attribute__((format(printf, 1, 2))) void notify_status(const char *format, ...);
/* STOPPING=1: it was asked to end. */
void notify_stopping(void);
/* Closes the socket: in a process that another one speaks for. */
void notify_leave(void);

#endif /* NOTIFY_H_INCLUDED */
