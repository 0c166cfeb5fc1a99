/* functions.c - see functions.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Jobs   2 TLPs   3 What concerns all functions   4 Data   5 Life */
#include "functions.h"
#include "block_store.h"
#include "log.h"
#include "nvme.h"
#include "pci.h"

#include <stdlib.h>

enum { FUNCTIONS_MAX = 1 + PCI_VIRTUAL_MAX };

typedef struct functions functions;

typedef struct one_function {
    functions *all;
    void *device;
    jobs_queue over; /* its jobs that another function took back from the executor */
} one_function;

struct functions {
    const device_kind *kind; /* of each function */
    unsigned count;
    unsigned physicals; /* of these; the others are virtual functions of the first one */
    one_function of[FUNCTIONS_MAX];
    jobs jobs;       /* of all; unused where each runs its own */
    unsigned wiping; /* the function that is wiped now */
};

/* ==== 1  Jobs ================================================================================= */

/* All functions share one executor, and each takes back only what is its own. */

static void function_submit(void *user, job *j)
{
    one_function *o = user;
    j->owner = o;
    o->all->jobs.submit(o->all->jobs.user, j);
}

static job *function_reap(void *user)
{
    one_function *o = user;
    job *j = o->over.head;
    if (j) {
        o->over.head = j->next;
        if (!o->over.head)
            o->over.tail = &o->over.head;
        return j;
    }
    while ((j = o->all->jobs.reap(o->all->jobs.user)) != NULL && j->owner != o) {
        one_function *other = j->owner;
        j->next = NULL;
        *other->over.tail = j;
        other->over.tail = &j->next;
    }
    return j;
}

static bool function_cancel(void *user, job *j)
{
    const one_function *o = user;
    return o->all->jobs.cancel(o->all->jobs.user, j);
}

static void function_settle(void *user)
{
    const one_function *o = user;
    o->all->jobs.settle(o->all->jobs.user);
}

/* ==== 2  TLPs ================================================================================= */

/* Functions that there are now. */
static unsigned functions_now(const functions *f)
{
    return f->physicals + pci_virtuals(f->kind->pci(f->of[0].device));
}

/* With virtual functions the device number, which is 0 below a link, is a part of the number. */
static unsigned number_of(const functions *f, uint16_t bdf)
{
    return f->count > f->physicals ? bdf & 0xffu : DXPU_BDF_FN(bdf);
}

/* Where a request is for no function, function 0 says so. */
static one_function *function_of(functions *f, const dxpu_tlp *t)
{
    unsigned number = 0, count = functions_now(f);
    switch (t->type) {
    case DXPU_TLP_CFGRD0:
    case DXPU_TLP_CFGWR0:
        number = number_of(f, t->target);
        break;
    case DXPU_TLP_CPL:
    case DXPU_TLP_CPLD:
        number = number_of(f, t->requester);
        count = f->count; /* also to a virtual function that has ended */
        break;
    case DXPU_TLP_MRD:
    case DXPU_TLP_MWR:
        while (number < count && !pci_claims(f->kind->pci(f->of[number].device), t->address))
            number++;
        break;
    default: /* messages to the device, and what no function does */
        break;
    }
    return &f->of[number < count ? number : 0];
}

/* A virtual function that is there no more leaves nothing for the one that has its number next. */
static void functions_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    functions *f = device;
    unsigned before = functions_now(f);
    bool is_answer = t->type == DXPU_TLP_CPL || t->type == DXPU_TLP_CPLD;
    if (is_answer && number_of(f, t->requester) >= f->count)
        return;
    f->kind->tlp(function_of(f, t)->device, t, bytes);
    for (unsigned i = functions_now(f); i < before; i++)
        f->kind->end(f->of[i].device);
}

/* ==== 3  What concerns all functions ========================================================== */

/* A hot reset ends virtual functions: the next of that number has another driver. */
static void functions_event(void *device, const dxpu_event *e)
{
    functions *f = device;
    bool resets = e->type == DXPU_EVENT_HOT_RESET && (e->flags & DXPU_EVENT_ON);
    for (unsigned i = 0; i < f->count; i++) {
        if (resets && i >= f->physicals)
            f->kind->reset(f->of[i].device);
        else
            f->kind->event(f->of[i].device, e);
    }
}

static void functions_reset(void *device)
{
    functions *f = device;
    for (unsigned i = 0; i < f->count; i++)
        f->kind->reset(f->of[i].device);
}

static void functions_restart(void *device)
{
    functions *f = device;
    for (unsigned i = 0; i < f->count; i++)
        (i < f->physicals ? f->kind->restart : f->kind->reset)(f->of[i].device);
}

static void functions_tick(void *device, uint64_t now_ns)
{
    functions *f = device;
    for (unsigned i = 0; i < f->count; i++)
        f->kind->tick(f->of[i].device, now_ns);
}

static bool functions_unfinished(const void *device)
{
    const functions *f = device;
    bool is = false;
    for (unsigned i = 0; i < f->count; i++)
        is |= f->kind->unfinished(f->of[i].device);
    return is;
}

static void functions_report(void *device, report *r)
{
    functions *f = device;
    char name[24];
    for (unsigned i = 0; i < f->count; i++) {
        snprintf(name, sizeof name, "function_%u", i);
        report_open(r, name);
        f->kind->report(f->of[i].device, r);
        report_close(r);
    }
}

/* ==== 4  Data ================================================================================= */

/* One function after the other. */
static int functions_wipe(void *device, bool begin)
{
    functions *f = device;
    if (begin)
        f->wiping = 0;
    while (f->wiping < f->count) {
        int how = f->kind->wipe(f->of[f->wiping].device, begin);
        if (how != DEVICE_WIPED)
            return how;
        f->wiping++;
        begin = true;
    }
    return DEVICE_WIPED;
}

static uint64_t functions_medium(void *device, bool *pristine)
{
    const functions *f = device;
    uint64_t all = 0;
    *pristine = true;
    for (unsigned i = 0; i < f->count; i++) {
        bool is_pristine;
        uint64_t medium = f->kind->medium(f->of[i].device, &is_pristine);
        *pristine &= is_pristine;
        if (medium)
            all = block_store_mix(all + medium); /* their order counts, too */
    }
    return all;
}

static bool functions_fits(void *device)
{
    const functions *f = device;
    bool fits = true;
    for (unsigned i = 0; i < f->count; i++)
        fits &= f->kind->fits(f->of[i].device);
    return fits;
}

/* ==== 5  Life ================================================================================= */

/* The part of all files that function `number` has: as many as each other one.  0, or -1 after a
   message. */
static int files_of_function(const char *files, unsigned number, unsigned count, char *out,
                             size_t size)
{
    unsigned all = 1, each, skip;
    for (const char *c = files; *c; c++)
        all += *c == ',';
    each = all / count;
    if (all % count) {
        log_error("nvme: %u files for %u functions: must be the same number for each", all, count);
        return -1;
    }
    for (skip = number * each; skip; skip--)
        files = strchr(files, ',') + 1;
    for (const char *c = files; each; c++) {
        if (*c && *c != ',')
            continue;
        if (!--each && (size_t)(c - files) < size) {
            memcpy(out, files, (size_t)(c - files));
            out[c - files] = '\0';
            return 0;
        }
    }
    log_error("nvme: file names of a function are too long");
    return -1;
}

static int open_function(functions *f, unsigned number, const device_settings *s,
                         const device_port *port)
{
    one_function *o = &f->of[number];
    const jobs own = { o, function_submit, function_reap, function_cancel, function_settle };
    char files[8192], layout[4096];
    device_settings set = *s;
    set.functions = true;
    set.function = number;
    set.controller = number + 1;
    if (number >= f->physicals) {
        set.virtuals = 0;
        set.physical = f->kind->pci(f->of[0].device);
    }
    set.no_push = true; /* a host keeps the rules of a slot, not of a function */
    set.turn_share = f->count;
    set.jobs = s->jobs ? &own : NULL;
    if (s->file) {
        if (files_of_function(s->file, number, f->count, files, sizeof files))
            return -1;
        set.file = files;
    }
    if (s->layout) {
        if (snprintf(layout, sizeof layout, "%s.%u", s->layout, number) >= (int)sizeof layout) {
            log_error("nvme: %s: file name is too long", s->layout);
            return -1;
        }
        set.layout = layout;
    }
    o->all = f;
    o->over.tail = &o->over.head;
    o->device = f->kind->create(&set, port);
    return o->device ? 0 : -1;
}

/* Virtual functions before their physical one, whose registers are theirs. */
static void functions_destroy(void *device)
{
    functions *f = device;
    for (unsigned i = f->count; i-- > 0;) {
        if (f->of[i].device)
            f->kind->destroy(f->of[i].device);
    }
    free(f);
}

static void *functions_create(const device_kind *kind, const device_settings *s,
                              const device_port *port)
{
    functions *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->kind = kind;
    f->physicals = s->function_count ? (unsigned)s->function_count : 1;
    f->count = f->physicals + (unsigned)s->virtuals;
    if (s->jobs)
        f->jobs = *s->jobs;
    for (unsigned i = 0; i < f->count; i++) {
        if (open_function(f, i, s, port)) {
            functions_destroy(f);
            return NULL;
        }
    }
    return f;
}

static void *nvme_functions_create(const device_settings *s, const device_port *port)
{
    return functions_create(&nvme_kind, s, port);
}

/* How many there are, and what distinguishes the first one. */
static void functions_attributes(const void *device, char out[DEVICE_ATTRIBUTES_BYTES])
{
    const functions *f = device;
    char first[DEVICE_ATTRIBUTES_BYTES] = "";
    f->kind->attributes(f->of[0].device, first);
    snprintf(out, DEVICE_ATTRIBUTES_BYTES, "%s=%u,%.40s",
             f->count > f->physicals ? "virtual-functions" : "functions",
             f->count > f->physicals ? f->count - f->physicals : f->count, first);
}

const device_kind nvme_functions_kind = { .name = "nvme",
                                          .vendor = NVME_VENDOR,
                                          .device = NVME_DEVICE,
                                          .class_code = 0x010802,
                                          .create = nvme_functions_create,
                                          .destroy = functions_destroy,
                                          .tlp = functions_tlp,
                                          .event = functions_event,
                                          .reset = functions_reset,
                                          .restart = functions_restart,
                                          .report = functions_report,
                                          .tick = functions_tick,
                                          .unfinished = functions_unfinished,
                                          .wipe = functions_wipe,
                                          .medium = functions_medium,
                                          .fits = functions_fits,
                                          .attributes = functions_attributes };
