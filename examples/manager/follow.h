/* follow.h - answers reads while another manager leads
   SPDX-License-Identifier: MIT

   A standby waits for its lead in one place, and must notice at once when it has it, however long
   the tables take to load.  So those who read are served by a child process, which has tables of
   its own and looks at the store twice a second; it is killed before its parent opens its ports. */
#ifndef FOLLOW_H_INCLUDED
#define FOLLOW_H_INCLUDED

#include "api.h"
#include "core.h"
#include "store.h"

typedef struct follow_settings {
    store_etcd_settings etcd; /* as the parent's */
    core_settings tables;
    api_settings users;
} follow_settings;

/* Start the child where there is none, or it has ended a second ago or more. */
void follow_start(const follow_settings *set);
/* It is gone when this returns; nothing without one. */
void follow_stop(void);

#endif /* FOLLOW_H_INCLUDED */
