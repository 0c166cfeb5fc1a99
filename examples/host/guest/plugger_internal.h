/* plugger_internal.h - the process that speaks QMP, step by step: of plugger.c and its test
   SPDX-License-Identifier: MIT */
#ifndef PLUGGER_INTERNAL_H_INCLUDED
#define PLUGGER_INTERNAL_H_INCLUDED

#include "plugger.h"

enum {
    PLUGGER_LINE_BYTES = 1 << 20, /* of QMP; what is longer ends the connection */
    PLUGGER_OUT_BYTES = 1 << 16,  /* commands that QEMU does not read */
};

typedef struct plugger {
    plug_settings set;
    plug plug;
    char path[PLUG_PATH_BYTES]; /* of the functions' sockets */
    int keeper, parent;
    int qmp;          /* -1: not connected */
    bool greeted;     /* QEMU has said something */
    int last_error;   /* of connecting, which is said once */
    uint64_t dial_ns; /* when to connect; else when a greeting is overdue */
    size_t in, out;   /* bytes of: */
    char line[PLUGGER_LINE_BYTES];
    char waiting[PLUGGER_OUT_BYTES];
    bool lost; /* a command had no room there: what it was for is not known any more */
    bool over;
} plugger;

/* plug.send and plug.removed; user is the plugger. */
void plugger_on_send(void *user, const char *text);
void plugger_on_removed(void *user, unsigned slot);
/* QMP is readable. */
void plugger_hear_qmp(plugger *p);
/* Wait for something, and do what it takes. */
void plugger_step(plugger *p);

#endif /* PLUGGER_INTERNAL_H_INCLUDED */
