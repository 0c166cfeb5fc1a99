/* nvme_subsystem.c - what controllers of one NVM subsystem share: stores, and what persists of
   attachments and reservations
   SPDX-License-Identifier: MIT

   A controller without settings for it has a subsystem of its own.  Those of one name are in one
   loop, and name the same files.  The file of reservations is text as the layout's: a title, a
   line for each namespace that is detached from a controller, for each namespace whose
   reservation persists a line with its number, generation, type, holder's index and count of
   registrants, for each of these a line with identifier, key and controller, at last the CRC-32
   of all before.

   CONTENTS   1 Stores   2 Joining   3 Attachments   4 The file */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* strdup() */
#endif
#include "nvme_model.h"
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Controllers of other subsystems come and go in other loops. */
static pthread_mutex_t names = PTHREAD_MUTEX_INITIALIZER;
static nvme_subsystem *named;

bool nvme_is_shared(const nvme *n)
{
    return n->subsystem->name != NULL;
}

/* ==== 1  Stores =============================================================================== */

static int open_store(nvme_subsystem *b, const char *file, uint64_t bytes)
{
    if (b->stores == NVME_NAMESPACES) {
        log_error("nvme: more than %d namespaces", NVME_NAMESPACES);
        return -1;
    }
    if (block_store_open(&b->store[b->stores], "nvme", file, bytes, false))
        return -1;
    b->stores++;
    return 0;
}

static uint64_t asked_bytes(const device_settings *s)
{
    return s->file_bytes || s->file ? s->file_bytes : s->memory_bytes;
}

static uint64_t asked_stores(const device_settings *s)
{
    return s->namespaces ? s->namespaces : 1;
}

/* One for each file; without files they are in memory. */
static int open_stores(nvme_subsystem *b, const device_settings *s)
{
    const char *rest = s->file;
    b->bytes = asked_bytes(s);
    while (rest) {
        const char *comma = strchr(rest, ',');
        size_t len = comma ? (size_t)(comma - rest) : strlen(rest);
        char name[4096];
        if (len == 0 || len >= sizeof name) {
            log_error("nvme: %s: a name is empty or too long", s->file);
            return -1;
        }
        memcpy(name, rest, len);
        name[len] = '\0';
        if (open_store(b, name, b->bytes))
            return -1;
        rest = comma ? comma + 1 : NULL;
    }
    for (uint64_t i = 0; !s->file && i < asked_stores(s); i++) {
        if (open_store(b, NULL, b->bytes))
            return -1;
    }
    return 0;
}

bool nvme_subsystem_is_pristine(const nvme_subsystem *b)
{
    bool is = true;
    for (uint32_t i = 0; i < b->stores; i++)
        is &= b->store[i].pristine;
    return is;
}

/* ==== 2  Joining ============================================================================== */

static void close_subsystem(nvme_subsystem *b)
{
    (void)pthread_mutex_lock(&names);
    for (nvme_subsystem **at = &named; *at; at = &(*at)->next) {
        if (*at == b) {
            *at = b->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&names);
    for (uint32_t i = 0; i < b->stores; i++)
        block_store_close(&b->store[i]);
    free(b->name);
    free(b->files);
    free(b->path);
    free(b->kept);
    free(b->reservation);
    free(b);
}

/* Beside the layout; in memory nothing outlives the data, and that is not much. */
static int find_path(nvme_subsystem *b, const device_settings *s)
{
    static const char suffix[] = ".reservations";
    size_t len = strcspn(s->file ? s->file : "", ",");
    const char *beside = s->layout ? s->layout : s->file;
    struct stat st;
    b->keeps = true;
    if (!s->file)
        return 0;
    if (!s->layout && !fstat(b->store[0].fd, &st) && S_ISBLK(st.st_mode)) {
        b->keeps = false;
        return 0;
    }
    len = s->layout ? strlen(s->layout) : len;
    b->path = malloc(len + sizeof suffix);
    if (!b->path)
        return -1;
    memcpy(b->path, beside, len);
    memcpy(b->path + len, suffix, sizeof suffix);
    return 0;
}

static int open_named(nvme_subsystem *b, const device_settings *s)
{
    b->name = strdup(s->subsystem);
    b->files = s->file ? strdup(s->file) : NULL;
    b->reservation = calloc(b->stores, sizeof *b->reservation);
    if (!b->name || (s->file && !b->files) || !b->reservation || find_path(b, s)) {
        log_error("nvme: out of memory");
        return -1;
    }
    (void)pthread_mutex_lock(&names);
    b->next = named;
    named = b;
    (void)pthread_mutex_unlock(&names);
    return nvme_subsystem_read(b);
}

/* It has no reservations: the file is of when the drive was a subsystem's, and is for a wipe. */
static int open_alone(nvme_subsystem *b, const device_settings *s)
{
    if (find_path(b, s)) {
        log_error("nvme: out of memory");
        return -1;
    }
    if (b->path && nvme_subsystem_is_pristine(b))
        (void)unlink(b->path); /* it is of others, which were there before */
    return 0;
}

static nvme_subsystem *new_subsystem(const device_settings *s)
{
    nvme_subsystem *b = calloc(1, sizeof *b);
    if (b && !open_stores(b, s) && !(s->subsystem ? open_named(b, s) : open_alone(b, s)))
        return b;
    if (b)
        close_subsystem(b);
    return NULL;
}

static bool same_files(const char *x, const char *y)
{
    return x && y ? !strcmp(x, y) : x == y;
}

/* What controllers of one subsystem differ in, and may not; NULL: nothing. */
static const char *differs(const nvme_subsystem *b, const nvme *n, const device_settings *s)
{
    const nvme *o = b->first;
    if (!same_files(b->files, s->file))
        return "files";
    if (b->bytes != asked_bytes(s) || (!s->file && b->stores != asked_stores(s)))
        return "size and namespaces";
    if (o->factory_log2 != n->factory_log2)
        return "block size";
    return o->identity != n->identity || strcmp(o->serial, n->serial) != 0 ? "serial number" : NULL;
}

/* NULL after a message; *found: it is there. */
static nvme_subsystem *find_subsystem(const nvme *n, const device_settings *s, bool *found)
{
    nvme_subsystem *b;
    const char *what;
    (void)pthread_mutex_lock(&names);
    b = named;
    while (b && strcmp(b->name, s->subsystem) != 0)
        b = b->next;
    (void)pthread_mutex_unlock(&names);
    *found = b != NULL;
    what = b ? differs(b, n, s) : NULL;
    if (what)
        log_error("nvme: subsystem %s: all of its controllers must have the same %s", b->name,
                  what);
    return what ? NULL : b;
}

/* In the order of their identifiers. */
static int add_controller(nvme_subsystem *b, nvme *n)
{
    nvme **at = &b->first;
    while (*at && (*at)->id < n->id)
        at = &(*at)->sibling;
    if (*at && (*at)->id == n->id) {
        log_error("nvme: subsystem %s has two controllers with identifier %u", b->name, n->id);
        return -1;
    }
    n->sibling = *at;
    *at = n;
    return 0;
}

int nvme_subsystem_join(nvme *n, const device_settings *s)
{
    bool found = false;
    nvme_subsystem *b = s->subsystem ? find_subsystem(n, s, &found) : NULL;
    if (!b && !found)
        b = new_subsystem(s);
    if (!b)
        return -1;
    if (add_controller(b, n)) {
        if (!b->first)
            close_subsystem(b);
        return -1;
    }
    n->subsystem = b;
    n->ns_count = b->stores;
    for (uint32_t i = 0; i < b->stores; i++)
        n->ns[i].store = &b->store[i];
    return 0;
}

void nvme_subsystem_part(nvme *n)
{
    nvme_subsystem *b = n->subsystem;
    if (!b)
        return;
    for (nvme **at = &b->first; *at; at = &(*at)->sibling) {
        if (*at == n) {
            *at = n->sibling;
            break;
        }
    }
    n->subsystem = NULL;
    if (!b->first)
        close_subsystem(b);
}

void nvme_subsystem_wake(const nvme *n)
{
    const device_port *port = n->fn.pci.port;
    if (nvme_is_shared(n) && port->wake)
        port->wake(port->user);
}

bool nvme_subsystem_reap(nvme *o)
{
    if (!nvme_access_reap(o))
        return false;
    nvme_subsystem_wake(o); /* what that lets go on is for its own turn */
    return true;
}

bool nvme_subsystem_quiet(nvme *n)
{
    bool is_quiet = true;
    for (nvme *o = n->subsystem->first; o; o = o->sibling) {
        while (o != n && nvme_subsystem_reap(o)) /* without a host nothing else does */
            continue;
        is_quiet &= !o->dropped;
    }
    return is_quiet;
}

/* ==== 3  Attachments ========================================================================== */

nvme *nvme_subsystem_find(const nvme *n, uint32_t id)
{
    nvme *o = n->subsystem->first;
    while (o && o->id != id)
        o = o->sibling;
    return o;
}

static void forget_detached(nvme_subsystem *b, uint32_t nsid, uint32_t id)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->detached_count; i++) {
        if (b->detached[i].id != id || (nsid && b->detached[i].nsid != nsid))
            b->detached[kept++] = b->detached[i];
    }
    b->detached_count = kept;
}

bool nvme_subsystem_has_place(const nvme *n, uint32_t count)
{
    return count <= NVME_DETACHED - n->subsystem->detached_count;
}

void nvme_subsystem_attach(nvme *n, uint32_t nsid, bool attached)
{
    nvme_subsystem *b = n->subsystem;
    if (attached) {
        forget_detached(b, nsid, n->id);
    } else {
        DXPU_ASSERT(b->detached_count < NVME_DETACHED);
        b->detached[b->detached_count].nsid = nsid;
        b->detached[b->detached_count++].id = n->id;
    }
    n->ns[nsid - 1].is.attached = attached;
    nvme_namespace_changed(n, &n->ns[nsid - 1]);
}

void nvme_subsystem_attach_all(nvme *n)
{
    uint32_t before = n->subsystem->detached_count;
    forget_detached(n->subsystem, 0, n->id);
    for (uint32_t i = 0; i < n->ns_count; i++)
        n->ns[i].is.attached = n->ns[i].is.allocated;
    if (before != n->subsystem->detached_count)
        nvme_reserve_changed(n);
}

void nvme_subsystem_attachments(nvme *n)
{
    const nvme_subsystem *b = n->subsystem;
    for (uint32_t i = 0; b->name && i < n->ns_count; i++) /* of when the drive was alone */
        n->ns[i].is.attached = n->ns[i].is.allocated;
    for (uint32_t i = 0; i < b->detached_count; i++) {
        if (b->detached[i].id == n->id)
            n->ns[b->detached[i].nsid - 1].is.attached = false;
    }
}

/* ==== 4  The file ============================================================================= */

#define TITLE    "dxpu nvme reservations 1\n"
#define CRC      "crc32 "
#define DETACHED "detached "
enum { LINE_BYTES = 96, HEX_BYTES = 2 * NVME_HOST_BYTES + 1 };

static const uint8_t no_host[NVME_HOST_BYTES];

/* What of it outlives a loss of power: a host without an identifier is not known after it. */
static uint32_t persistent(const nvme_reservation *r, uint32_t *holder)
{
    uint32_t count = 0;
    *holder = NVME_REGISTRANTS;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->of[i].host.alone)
            continue;
        if (r->type && i == r->holder)
            *holder = count;
        count++;
    }
    return count;
}

static size_t print_registrant(const nvme_registrant *of, char *text, size_t room)
{
    char id[HEX_BYTES];
    for (unsigned i = 0; i < NVME_HOST_BYTES; i++)
        (void)snprintf(id + 2 * (size_t)i, 3, "%02x", of->host.id[i]);
    return (size_t)snprintf(text, room, "%s %016" PRIx64 " %u\n", id, of->key, of->by);
}

static size_t print_reservation(uint32_t nsid, const nvme_reservation *r, char *text, size_t room)
{
    uint32_t holder, count = persistent(r, &holder);
    uint8_t type = nvme_all_hold(r->type) ? (count ? r->type : 0) : holder < count ? r->type : 0;
    size_t at = (size_t)snprintf(text, room, "%" PRIu32 " %" PRIu32 " %u %" PRIu32 " %" PRIu32 "\n",
                                 nsid, r->generation, type, holder, count);
    for (uint32_t i = 0; i < r->count; i++) {
        if (!r->of[i].host.alone)
            at += print_registrant(&r->of[i], text + at, room - at);
    }
    return at;
}

char *nvme_subsystem_text(const nvme_subsystem *b)
{
    size_t room = 2 * LINE_BYTES, at;
    char *text;
    for (uint32_t i = 0; i < b->stores; i++)
        room += (1 + (size_t)b->reservation[i].count) * LINE_BYTES;
    room += b->detached_count * (size_t)LINE_BYTES;
    text = malloc(room);
    if (!text)
        return NULL;
    at = (size_t)snprintf(text, room, "%s", TITLE);
    for (uint32_t i = 0; i < b->detached_count; i++)
        at += (size_t)snprintf(text + at, room - at, DETACHED "%" PRIu32 " %u\n",
                               b->detached[i].nsid, b->detached[i].id);
    for (uint32_t i = 0; i < b->stores; i++) {
        if (b->reservation[i].persists)
            at += print_reservation(i + 1, &b->reservation[i], text + at, room - at);
    }
    (void)snprintf(text + at, room - at, CRC "%08" PRIx32 "\n", dxpu_crc32(0, text, at));
    return text;
}

static bool scan_registrant(const char *line, nvme_registrant *of)
{
    char id[HEX_BYTES];
    unsigned by, byte;
    if (sscanf(line, "%32s %" SCNx64 " %u", id, &of->key, &by) != 3 ||
        strlen(id) != HEX_BYTES - 1 || by > NVME_CONTROLLERS)
        return false;
    for (unsigned i = 0; i < NVME_HOST_BYTES; i++) {
        if (sscanf(id + 2 * (size_t)i, "%2x", &byte) != 1)
            return false;
        of->host.id[i] = (uint8_t)byte;
    }
    of->by = (uint16_t)by;
    return memcmp(of->host.id, no_host, sizeof no_host) != 0;
}

/* The reservation whose line is at *line, which becomes the one behind it. */
static bool scan_reservation(nvme_subsystem *b, const char **line)
{
    uint32_t nsid, generation, holder, count;
    unsigned type;
    nvme_reservation *r;
    if (sscanf(*line, "%" SCNu32 " %" SCNu32 " %u %" SCNu32 " %" SCNu32, &nsid, &generation, &type,
               &holder, &count) != 5 ||
        nsid < 1 || nsid > b->stores || type > 6 || count > NVME_REGISTRANTS ||
        (type && !nvme_all_hold((uint8_t)type) && holder >= count))
        return false;
    r = &b->reservation[nsid - 1];
    r->generation = generation;
    r->type = (uint8_t)type;
    r->holder = holder;
    r->persists = true;
    for (r->count = 0; r->count < count; r->count++) {
        *line = strchr(*line, '\n');
        if (!*line || !scan_registrant(++*line, &r->of[r->count]))
            return false;
    }
    *line = strchr(*line, '\n');
    return *line && *++*line;
}

/* The same of the lines of what is detached. */
static bool scan_detached(nvme_subsystem *b, const char **line)
{
    while (!strncmp(*line, DETACHED, sizeof DETACHED - 1)) {
        uint32_t nsid, id;
        if (b->detached_count == NVME_DETACHED ||
            sscanf(*line + sizeof DETACHED - 1, "%" SCNu32 " %" SCNu32, &nsid, &id) != 2 ||
            nsid < 1 || nsid > b->stores || id > NVME_CONTROLLERS)
            return false;
        b->detached[b->detached_count].nsid = nsid;
        b->detached[b->detached_count++].id = (uint16_t)id;
        *line = strchr(*line, '\n');
        if (!*line)
            return false;
        ++*line;
    }
    return true;
}

static bool parse(nvme_subsystem *b, const char *text)
{
    const char *line = text + sizeof TITLE - 1;
    char *again;
    bool is_same;
    if (strncmp(text, TITLE, sizeof TITLE - 1) != 0)
        return false;
    if (!scan_detached(b, &line))
        return false;
    while (strncmp(line, CRC, sizeof CRC - 1) != 0) {
        if (!scan_reservation(b, &line))
            return false;
    }
    again = nvme_subsystem_text(b); /* there is one way to write it: so the CRC is right, too */
    is_same = again && !strcmp(text, again);
    free(again);
    return is_same;
}

/* NULL with errno; ENOENT: there is none. */
static char *read_text(const nvme_subsystem *b)
{
    size_t room = ((size_t)b->stores * (1 + NVME_REGISTRANTS) + NVME_DETACHED + 2) * LINE_BYTES;
    char *text = malloc(room);
    int error;
    if (text && !nvme_read_text(b->path, text, room))
        return text;
    error = errno;
    free(text);
    errno = error;
    return NULL;
}

/* Identifiers of 64 bits have zeros behind. */
static bool is_extended(const nvme_subsystem *b)
{
    for (uint32_t i = 0; i < b->stores; i++) {
        for (uint32_t k = 0; k < b->reservation[i].count; k++) {
            if (memcmp(b->reservation[i].of[k].host.id + 8, no_host, 8) != 0)
                return true;
        }
    }
    return false;
}

int nvme_subsystem_read(nvme_subsystem *b)
{
    char *text;
    if (b->path && nvme_subsystem_is_pristine(b))
        (void)unlink(b->path); /* it is of others, which were there before */
    text = b->path ? read_text(b) : NULL;
    if (!b->path)
        return 0;
    if (!text && errno == ENOENT) {
        b->kept = nvme_subsystem_text(b); /* as if it said that there is nothing */
        return 0;
    }
    if (text && parse(b, text)) {
        b->kept = text;
        b->extended = is_extended(b);
        return 0;
    }
    log_error("nvme: %s: %s; put the right file there, or remove it if no host holds a reservation",
              b->path, text ? "it is damaged, or of another subsystem" : strerror(errno));
    free(text);
    return -1;
}
