/* recorder.c - see recorder.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "recorder.h"
#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static void tell(recorder *r, int error)
{
    if (!r->told)
        log_error("%s %s: %s; the capture is not complete", r->option, r->file, strerror(error));
    r->told = true;
}

int recorder_open(recorder *r, const char *option, const char *file)
{
    char why[DXPU_PCAP_WHY_BYTES];
    struct stat st;
    mode_t usual;
    memset(r, 0, sizeof *r);
    r->option = option;
    r->file = file;
    if (!file)
        return 0;
    if (!strcmp(file, "-") || /* who reads from it slowly holds all up */
        (!stat(file, &st) && S_ISFIFO(st.st_mode))) {
        log_error("%s %s: is a pipe, or may be one; name a file", option, file);
        return -1;
    }
    (void)pthread_mutex_init(&r->lock, NULL); /* an ordinary one: cannot fail */
    usual = umask(077);                       /* it contains a guest's data */
    r->writer = dxpu_pcap_create(file, why);
    (void)umask(usual);
    if (!r->writer)
        log_error("%s %s: %s", option, file, why);
    return r->writer ? 0 : -1;
}

static uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* After a record was written under the lock. */
static void look(recorder *r)
{
    int error = dxpu_pcap_error(r->writer);
    if (error)
        tell(r, error);
    pthread_mutex_unlock(&r->lock);
}

void recorder_tlp(recorder *r, dxpu_bytes tlp)
{
    if (!r->writer)
        return;
    pthread_mutex_lock(&r->lock);
    (void)dxpu_pcap_write_tlp(r->writer, wall_ns(), tlp);
    look(r);
}

void recorder_frame(recorder *r, const struct sockaddr *from, const struct sockaddr *to,
                    dxpu_bytes frame)
{
    if (!r->writer)
        return;
    pthread_mutex_lock(&r->lock);
    (void)dxpu_pcap_write_frame(r->writer, wall_ns(), from, to, frame); /* too long: left out */
    look(r);
}

void recorder_flush(recorder *r)
{
    if (!r->writer)
        return;
    pthread_mutex_lock(&r->lock);
    if (dxpu_pcap_flush(r->writer))
        tell(r, errno);
    pthread_mutex_unlock(&r->lock);
}

int recorder_close(recorder *r)
{
    int rc = dxpu_pcap_finish(r->writer);
    if (r->writer)
        (void)pthread_mutex_destroy(&r->lock);
    if (rc)
        tell(r, errno);
    r->writer = NULL;
    return rc;
}
