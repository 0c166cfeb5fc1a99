/* nvme_layout.c - what a host made of the stores, in a file beside the first of them
   SPDX-License-Identifier: MIT

   Lines of text: the version, then for each namespace its number, the bytes of its store, its own
   bytes, its block, its generation and its state, at last the CRC-32 of all before.  The file is
   replaced as a whole, durably, before a command that changes the layout is over: after a crash it
   is the old one or the new one.  No file: the layout is as the box's owner gave it, and is written
   at once: a later start with another --block changes nothing before a wipe.

   CONTENTS   1 Text   2 The file   3 Changes */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* strdup() */
#endif
#include "nvme_model.h"
#include "log.h"

#include "durable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYOUT_TITLE "dxpu nvme layout 1\n"
#define LAYOUT_CRC   "crc32 "
enum { TEXT_BYTES = 4096, STATE_BYTES = 16 }; /* 32 namespaces have place */

static const char *const states[] = { "free", "detached", "attached" };

void nvme_layout_factory(const nvme *n, nvme_layout *to)
{
    for (uint32_t i = 0; i < n->ns_count; i++) {
        nvme_layout whole = { n->ns[i].store->size, n->factory_log2, 0, true, true };
        to[i] = whole;
    }
}

/* ==== 1  Text ================================================================================= */

/* What the file says of this layout of stores of these sizes; its length. */
static size_t print_sized(const nvme *n, const uint64_t *store_bytes, const nvme_layout *l,
                          char text[TEXT_BYTES])
{
    size_t at = (size_t)snprintf(text, TEXT_BYTES, "%s", LAYOUT_TITLE);
    for (uint32_t i = 0; i < n->ns_count; i++)
        at += (size_t)snprintf(text + at, TEXT_BYTES - at,
                               "%" PRIu32 " %" PRIu64 " %" PRIu64 " %u %" PRIu32 " %s\n", i + 1,
                               store_bytes[i], l[i].bytes, 1u << l[i].block_log2, l[i].generation,
                               states[l[i].allocated + l[i].attached]);
    at += (size_t)snprintf(text + at, TEXT_BYTES - at, LAYOUT_CRC "%08" PRIx32 "\n",
                           dxpu_crc32(0, text, at));
    return at;
}

/* The same for the stores as they are. */
static size_t print(const nvme *n, const nvme_layout *l, char text[TEXT_BYTES])
{
    uint64_t store_bytes[NVME_NAMESPACES];
    for (uint32_t i = 0; i < n->ns_count; i++)
        store_bytes[i] = n->ns[i].store->size;
    return print_sized(n, store_bytes, l, text);
}

/* The line of a namespace; false: it is not one of this store. */
static bool scan(const char *line, uint32_t number, uint64_t store_bytes, nvme_layout *l)
{
    char state[STATE_BYTES];
    uint32_t is, block;
    uint64_t of;
    if (sscanf(line, "%" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu32 " %" SCNu32 " %15s", &is, &of,
               &l->bytes, &block, &l->generation, state) != 6 ||
        is != number || of != store_bytes || l->bytes > of || !l->bytes ||
        (block != 512 && block != 4096))
        return false;
    l->block_log2 = block == 4096 ? 12 : 9;
    l->attached = !strcmp(state, states[2]);
    l->allocated = l->attached || !strcmp(state, states[1]);
    return true;
}

/* NULL, or what is wrong with the text, which ends with a zero. */
static const char *parse(const nvme *n, const char *text, nvme_layout *l)
{
    char again[TEXT_BYTES];
    const char *line = text;
    for (uint32_t i = 0; i < n->ns_count; i++) {
        line = strchr(line, '\n');
        if (!line || !scan(++line, i + 1, n->ns[i].store->size, &l[i]))
            break;
        if (i + 1 < n->ns_count)
            continue;
        (void)print(n, l, again);
        if (!strcmp(text, again)) /* there is one way to write it: so the CRC is right, too */
            return NULL;
    }
    return "is damaged, or of other files or sizes";
}

/* Whether each namespace is the whole of its store, as the box's owner gave it, whatever the sizes
   were: such files may grow and shrink.  Fills the same for the stores as they are. */
static bool untouched(const nvme *n, const char *text, nvme_layout *l)
{
    char again[TEXT_BYTES];
    uint64_t store_bytes[NVME_NAMESPACES];
    const char *line = text;
    for (uint32_t i = 0; i < n->ns_count; i++) {
        line = strchr(line, '\n');
        if (!line || sscanf(++line, "%*s %" SCNu64, &store_bytes[i]) != 1 ||
            !scan(line, i + 1, store_bytes[i], &l[i]) || l[i].bytes != store_bytes[i] ||
            l[i].generation || !l[i].attached)
            return false;
    }
    (void)print_sized(n, store_bytes, l, again);
    for (uint32_t i = 0; i < n->ns_count; i++)
        l[i].bytes = n->ns[i].store->size;
    return !strcmp(text, again);
}

/* ==== 2  The file ============================================================================= */

int nvme_read_text(const char *path, char *text, size_t room)
{
    struct stat st;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -1;
    errno = EINVAL; /* of what is not to be read; a directory has an error of its own */
    got = !fstat(fd, &st) && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) ? read(fd, text, room - 1)
                                                                          : -1;
    (void)close(fd);
    if (got < 0)
        return -1;
    text[got] = '\0';
    return 0;
}

static int write_layout(const nvme *n, const nvme_layout *l)
{
    char text[TEXT_BYTES];
    return durable_replace(n->layout.path, text, print(n, l, text));
}

static void not_served(nvme *n, const char *why)
{
    n->layout.fits = false;
    log_error("nvme: %s: %s; the device is not served: put the right file there, or have the slot "
              "wiped (dxpu repair); without a manager, remove the file if no host has changed the "
              "namespaces",
              n->layout.path, why);
}

/* Where it is kept: as said, or beside the first file, unless that is a device. */
static int find_path(nvme *n, const device_settings *s)
{
    static const char suffix[] = ".layout";
    size_t len = s->file ? strcspn(s->file, ",") : 0;
    struct stat st;
    if (!s->file)
        return 0;
    if (!s->layout && !fstat(n->ns[0].store->fd, &st) && S_ISBLK(st.st_mode)) {
        log_warning(
            "nvme: %.*s is a device: with --state what a host makes of its namespaces lasts "
            "over the end of the box, and without it does not",
            (int)len, s->file);
        return 0;
    }
    n->layout.path = s->layout ? strdup(s->layout) : malloc(len + sizeof suffix);
    if (!n->layout.path)
        return -1;
    if (!s->layout) {
        memcpy(n->layout.path, s->file, len);
        memcpy(n->layout.path + len, suffix, sizeof suffix);
    }
    return 0;
}

int nvme_layout_open(nvme *n, const device_settings *s)
{
    nvme_layout found[NVME_NAMESPACES];
    char text[TEXT_BYTES];
    const char *why;
    bool pristine = nvme_subsystem_is_pristine(n->subsystem);
    n->layout.fits = true;
    nvme_layout_factory(n, found);
    for (uint32_t i = 0; i < n->ns_count; i++)
        n->ns[i].is = found[i];
    if (find_path(n, s))
        return -1;
    if (!n->layout.path)
        return 0;
    n->layout.kept = !nvme_read_text(n->layout.path, text, sizeof text);
    if (!n->layout.kept && errno == ENOENT) { /* from now on that is what the host has seen */
        n->layout.kept = !write_layout(n, found);
        if (!n->layout.kept)
            log_error("nvme: %s: %s; start with the same --block as long as the device keeps data",
                      n->layout.path, strerror(errno));
        return 0;
    }
    if (pristine) /* the file is of others, which were there before */
        why = write_layout(n, found) ? strerror(errno) : NULL;
    else
        why = n->layout.kept ? parse(n, text, found) : strerror(errno);
    if (why && n->layout.kept && untouched(n, text, found))
        why = write_layout(n, found) ? strerror(errno) : NULL;
    n->layout.kept = true;
    if (why)
        not_served(n, why);
    for (uint32_t i = 0; i < n->ns_count && !why && !pristine; i++)
        n->ns[i].is = found[i];
    return 0;
}

/* ==== 3  Changes ============================================================================== */

/* A layout has no bytes between its fields that count. */
static bool same(const nvme_layout *a, const nvme_layout *b)
{
    return a->bytes == b->bytes && a->block_log2 == b->block_log2 &&
           a->generation == b->generation && a->allocated == b->allocated &&
           a->attached == b->attached;
}

static bool nothing_new(const nvme *n)
{
    for (uint32_t i = 0; i < n->ns_count; i++) {
        if (!same(&n->ns[i].is, &n->layout.next[i]))
            return false;
    }
    return n->layout.fits;
}

/* The text of what is to be, and that of what is. */
static size_t print_both(const nvme *n, char text[2 * TEXT_BYTES])
{
    nvme_layout is[NVME_NAMESPACES];
    size_t len = print(n, n->layout.next, text) + 1;
    for (uint32_t i = 0; i < n->ns_count; i++)
        is[i] = n->ns[i].is;
    return len + print(n, is, text + len) + 1;
}

void nvme_layout_keep(nvme *n, nvme_command *c, nvme_then *then)
{
    char text[2 * TEXT_BYTES];
    size_t len;
    if (n->health.lost) { /* what was flushed before it is to stay as it is, for who looks at it */
        c->over(n, c, NVME_INTERNAL_ERROR);
        return;
    }
    if (!n->layout.path || nothing_new(n)) {
        then(n, c, NULL);
        return;
    }
    len = print_both(n, text);
    nvme_drop_buffer(n, c);
    if (!nvme_buffer(n, c, (uint32_t)len)) {
        c->over(n, c, NVME_INTERNAL_ERROR);
        return;
    }
    memcpy(c->buffer, text, len);
    if (nvme_access_begin(n, c, NVME_OP_LAYOUT, NULL, 0, 0, false, then) != NVME_PENDING)
        c->over(n, c, NVME_INTERNAL_ERROR);
}

void nvme_layout_unsure(nvme *n)
{
    const device_port *port = n->fn.pci.port;
    n->layout.fits = false;
    log_warning("nvme: %s: it cannot be made durable: after a crash it may have a layout that "
                "the host was refused",
                n->layout.path);
    if (port->fault)
        port->fault(port->user, "the file of its layout cannot be made durable");
}

void nvme_layout_take(nvme *n)
{
    n->layout.kept = n->layout.fits = true;
    for (uint32_t i = 0; i < n->ns_count; i++) {
        nvme_ns *s = &n->ns[i];
        bool seen = s->is.attached || n->layout.next[i].attached;
        if (same(&s->is, &n->layout.next[i]))
            continue;
        s->is = n->layout.next[i];
        if (seen)
            nvme_namespace_changed(n, s);
    }
}
