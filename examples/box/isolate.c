/* isolate.c - see isolate.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* flock() */
#endif
#include "isolate.h"
#include "kinds.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOCK_WAIT_MS = 10000, LOCK_STEP_MS = 50 };

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
    if (kind == &nvme_kind) {
        add_number(w, "--cmb", s->cmb_bytes);
        add_number(w, "--namespaces", s->namespaces);
        add_text(w, "--layout", s->layout);
    }
    if (kind == &virtio_blk_kind && s->read_only)
        add(w, "--read-only");
}

/* The name of the first of several files.  False: it is too long. */
static bool first_name(const char *files, char *name, size_t size)
{
    int put = snprintf(name, size, "%.*s", (int)strcspn(files, ","), files);
    return put > 0 && put < (int)size;
}

/* Processes of a box that was killed a moment ago may still have it. */
static void wait_for_lock(const char *name)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    for (unsigned ms = 0;
         fd >= 0 && ms < LOCK_WAIT_MS && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
         ms += LOCK_STEP_MS)
        (void)poll(NULL, 0, LOCK_STEP_MS);
    if (fd >= 0)
        (void)close(fd);
}

static void no_emit(void *user, dxpu_bytes tlp)
{
    (void)user;
    (void)tlp;
}

/* As a model in this process would find its disk, which is made if there is none: which one it is
   is then the same at every start, whoever serves it.  0, or -1 after a message. */
static int look_at_disk(const device_kind *kind, const device_settings *s, isolated *out)
{
    const device_port port = { .emit = no_emit };
    char name[4096];
    void *device;
    for (const char *at = s->file; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (first_name(at, name, sizeof name))
            wait_for_lock(name);
    }
    device = kind->create(s, &port);
    if (!device)
        return -1;
    out->medium.number = kind->medium(device, &out->medium.pristine);
    out->medium.shown = kind->shown ? kind->shown(device) : 0;
    out->fits = !kind->fits || kind->fits(device);
    kind->destroy(device);
    return 0;
}

/* Without --state, what a host makes of the namespaces of a disk lasts as long as the box, not only
   as long as a process. */
static void place_layout(unsigned slot, device_settings *s, isolated *out)
{
    char name[4096];
    struct stat st;
    if (s->layout || !s->file || !first_name(s->file, name, sizeof name) || stat(name, &st) ||
        !S_ISBLK(st.st_mode))
        return;
    starter_layout(slot, out->layout);
    s->layout = out->layout;
}

int isolate(int starter, unsigned slot, const device_kind *kind, unsigned disk_threads,
            device_settings *s, isolated *out)
{
    static words w;
    bool disk = kind == &nvme_kind || kind == &virtio_blk_kind;
    w.at = 0;
    w.full = false;
    out->medium.number = out->medium.shown = 0; /* nothing lasts */
    out->medium.pristine = out->fits = true;
    if (disk && s->file && look_at_disk(kind, s, out))
        return -1;
    if (kind == &nvme_kind)
        place_layout(slot, s, out);
    starter_socket(slot, out->socket);
    add(&w, kind->name);
    add_text(&w, "--socket", out->socket);
    add_number(&w, "--memory", s->memory_bytes);
    add_number(&w, "--mps", s->mps_bytes);
    add_number(&w, "--mrrs", s->mrrs_bytes);
    if (disk)
        add_disk(&w, kind, disk_threads, s);
    if (kind == &eptest_kind)
        add_number(&w, "--bar", s->bar_bytes);
    if (kind == &virtio_net_kind) {
        add_text(&w, "--tap", s->tap);
        add_number(&w, "--identity", s->identity);
    }
    if (kind == &virtio_gpu_kind) {
        add_text(&w, "--render-node", s->render_node);
        if (s->render)
            add(&w, "--render");
    }
    if (s->subsystem || s->functions || s->function_count > 1 || s->virtuals) {
        log_error("slot %u: %s cannot be used with --isolate", slot,
                  s->subsystem ? "subsystem" : "several functions");
        return -1;
    }
    if (s->descriptor) {
        log_error("slot %u: --isolate: fd is for a slot of the box's own process; use tap=NAME",
                  slot);
        return -1;
    }
    /* none is started that could not serve its disk */
    if (w.full || (out->fits && starter_add(starter, slot, w.text, w.at))) {
        log_error("slot %u: its device cannot be started in a process of its own", slot);
        return -1;
    }
    s->socket = out->socket;
    s->stateless = !kind->wipe || s->read_only;
    s->medium = &out->medium;
    return 0;
}
