/* fd_message.h - messages of one byte and descriptors, between the processes of one program
   SPDX-License-Identifier: MIT

   Over a UNIX socket that keeps messages apart (SOCK_SEQPACKET). */
#ifndef FD_MESSAGE_H_INCLUDED
#define FD_MESSAGE_H_INCLUDED

#include <sys/types.h>

enum { FD_MESSAGE_MAX = 8 }; /* descriptors of a message */

/* Sends `word` with fds[count], which stay the caller's; fds may be NULL when count is 0.  0, or -1
   with errno.  Waits while the socket has no room, unless it is non-blocking. */
int fd_message_send(int socket, unsigned char word, const int *fds, unsigned count);

/* Receives a message without waiting.  Of the descriptors that arrive the first *count, at most
   FD_MESSAGE_MAX, are the caller's, close-on-exec; *count becomes their number, the others are
   closed.  1; 0 when the other end is closed; -1 with errno, EAGAIN when there is no message. */
ssize_t fd_message_receive(int socket, unsigned char *word, int *fds, unsigned *count);

#endif /* FD_MESSAGE_H_INCLUDED */
