/* dxpu_vfio_user_descriptors.h - descriptors that the other end sent
   SPDX-License-Identifier: MIT

   A file may be one of FUSE, whose server is the client, or a socket that lingers: to ask for its
   size, or to close it, can wait for ever.  Nothing here waits. */
#ifndef DXPU_VFIO_USER_DESCRIPTORS_H_INCLUDED
#define DXPU_VFIO_USER_DESCRIPTORS_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum {
    VFU_FDS_MAX = 253, /* of one message of a UNIX socket (SCM_MAX_FD) */
    VFU_CLOSING = 16   /* nothing more is received while this number waits to be closed */
};

/* Is this a file of tmpfs or hugetlbfs, a memfd included?  Its size and file system can be asked
   for, and it can be mapped and closed, without waiting for a disk or another process. */
bool vfu_is_memory(int fd);
bool vfu_is_eventfd(int fd);
/* Is this a socket or a pipe, which can never be memory? */
bool vfu_is_stream(int fd);

/* Adds 1 to an eventfd, also when its counter is full and its owner has made it blocking.  `ready`:
   an eventfd of ours that is never full.  False when asynchronous I/O is missing. */
bool vfu_signal(int ready, int eventfd);

/* A thread that closes what may wait, made when there is such a descriptor. */
typedef struct vfu_closer vfu_closer;
/* `wake`: an eventfd, written to when there is room again.  NULL: no memory or no descriptor. */
vfu_closer *vfu_closer_new(int wake);
/* The thread goes on by itself until all is closed.  NULL is allowed. */
void vfu_closer_free(vfu_closer *c);
/* May a message be received?  If not, `wake` says when to ask again. */
bool vfu_closer_has_room(vfu_closer *c);
/* Closes the descriptor, here when that cannot wait. */
void vfu_closer_close(vfu_closer *c, int fd);
/* As recvmsg() without waiting: all descriptors that arrive, at most VFU_FDS_MAX, are in fds[].
   *lost: there was no room for some. */
ssize_t vfu_receive(int socket, void *p, size_t bytes, int fds[VFU_FDS_MAX], unsigned *count,
                    bool *lost);
/* Shuts the socket down, reads what is left and closes it: a client whose server closes with bytes
   unread gets a reset of the connection instead of its end, on which QEMU aborts. */
void vfu_closer_hang_up(vfu_closer *c, int socket);

#endif /* DXPU_VFIO_USER_DESCRIPTORS_H_INCLUDED */
