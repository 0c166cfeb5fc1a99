/* recorder.h - a capture that a proxy writes while it runs; a full disk is reported at once
   SPDX-License-Identifier: MIT */
#ifndef RECORDER_H_INCLUDED
#define RECORDER_H_INCLUDED

#include "dxpu_pcap.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct recorder {
    dxpu_pcap_writer *writer; /* NULL: nothing is recorded */
    const char *option, *file;
    bool told;            /* that it cannot be written */
    pthread_mutex_t lock; /* several loops may write to one capture */
} recorder;

/* file NULL: nothing will be recorded.  program and option ("--record") are for messages.  0, or -1
   after one. */
int recorder_open(recorder *r, const char *option, const char *file);
/* One TLP, or one frame, at the time it is now.  From any thread, as recorder_flush(). */
void recorder_tlp(recorder *r, dxpu_bytes tlp);
void recorder_frame(recorder *r, const struct sockaddr *from, const struct sockaddr *to,
                    dxpu_bytes frame);
/* Hand what was recorded to the operating system. */
void recorder_flush(recorder *r);
/* 0, or -1 when not all could be written; there was a message. */
int recorder_close(recorder *r);

#endif /* RECORDER_H_INCLUDED */
