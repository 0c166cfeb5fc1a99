/* status.h - exit statuses of the programs
   SPDX-License-Identifier: MIT */
#ifndef STATUS_H_INCLUDED
#define STATUS_H_INCLUDED

enum {
    PROGRAM_GO = -1, /* none yet */
    PROGRAM_GOOD = 0,
    PROGRAM_USAGE = 2,
    PROGRAM_SYSTEM = 3,
    PROGRAM_STORE = 4,  /* dxpu-manager's: it may pass, a full disk or a lock */
    PROGRAM_DAMAGED = 5 /* what a file says cannot be used, and will not by itself */
};

#endif /* STATUS_H_INCLUDED */
