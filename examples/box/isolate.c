/* isolate.c - see isolate.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "isolate.h"
#include "kinds.h"
#include "log.h"

/* Arguments, each with its NUL. */
typedef struct words {
    char text[STARTER_ARGUMENTS_BYTES];
    size_t at;
    bool full;
} words;

static void add(words *w, const char *text)
{
    size_t bytes = strlen(text) + 1;
    if (bytes > sizeof w->text - w->at) {
        w->full = true;
        return;
    }
    memcpy(w->text + w->at, text, bytes);
    w->at += bytes;
}

static void add_text(words *w, const char *option, const char *value)
{
    if (!value)
        return;
    add(w, option);
    add(w, value);
}

/* 0: it is not given. */
static void add_number(words *w, const char *option, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    add_text(w, option, value ? text : NULL);
}

static void add_disk(words *w, const device_kind *kind, unsigned disk_threads,
                     const device_settings *s)
{
    char threads[12];
    add_text(w, "--file", s->file);
    add_number(w, "--size", s->file_bytes);
    add_number(w, "--block", s->block_bytes);
    add_text(w, "--serial", s->serial);
    add_number(w, "--identity", s->identity);
    snprintf(threads, sizeof threads, "%u", disk_threads);
    add_text(w, "--disk-threads", threads);
    if (kind == &nvme_kind)
        add_number(w, "--namespaces", s->namespaces);
    if (kind == &virtio_blk_kind && s->read_only)
        add(w, "--read-only");
}

int isolate(int starter, unsigned slot, const device_kind *kind, unsigned disk_threads,
            device_settings *s, char socket[STARTER_PATH_BYTES])
{
    static words w;
    w.at = 0;
    w.full = false;
    starter_socket(slot, socket);
    add(&w, kind->name);
    add_text(&w, "--socket", socket);
    add_number(&w, "--memory", s->memory_bytes);
    add_number(&w, "--mps", s->mps_bytes);
    if (kind == &nvme_kind || kind == &virtio_blk_kind)
        add_disk(&w, kind, disk_threads, s);
    if (kind == &eptest_kind)
        add_number(&w, "--bar", s->bar_bytes);
    if (w.full || starter_add(starter, slot, w.text, w.at)) {
        log_error("slot %u: its device cannot be started in a process of its own", slot);
        return -1;
    }
    s->socket = socket;
    s->stateless = !kind->wipe;
    return 0;
}
