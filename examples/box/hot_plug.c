/* hot_plug.c - see hot_plug.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 No device   2 A device leaves   3 A device comes   4 Requests */
#include "hot_plug.h"
#include "leases.h"
#include "log.h"
#include "shards.h"

#include <stdlib.h>

/* ==== 1  No device ============================================================================ */

static char nothing; /* what stands for its device */

static void *create(const device_settings *s, const device_port *port)
{
    (void)s;
    (void)port;
    return &nothing;
}

static void destroy(void *device)
{
    (void)device;
}

static void take_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    (void)device;
    (void)t;
    (void)bytes;
}

static void take_event(void *device, const dxpu_event *e)
{
    (void)device;
    (void)e;
}

static void report_nothing(void *device, report *r)
{
    (void)device;
    (void)r;
}

const device_kind no_device_kind = { .name = "none",
                                     .create = create,
                                     .destroy = destroy,
                                     .tlp = take_tlp,
                                     .event = take_event,
                                     .reset = destroy,
                                     .report = report_nothing };

/* ==== 2  A device leaves ====================================================================== */

struct arrival {
    job job; /* first: that makes the device */
    slot *slot;
    enum { NOTHING, FORGETS, LEAVES, MAKES, WRITES } step; /* that is under way */
    bool comes;
    unsigned code; /* why it did not come; 0: it did */
    slot_plan plan;
    slot_device device;
};

static void end(slot *s, unsigned code)
{
    code = code ? code : s->arrival->code;
    plan_clear(&s->arrival->plan);
    free(s->arrival);
    s->arrival = NULL;
    s->shard->plugs--;
    shards_answer(s->shard->box, slots_number(s), code);
    manager_changed(s->shard->box->manager, slots_number(s));
}

/* Its host loses it as one that was pulled out. */
static void begin_leaving(slot *s)
{
    s->absent = s->missing = true;
    (void)event_del(s->waits);
    s->shard->box->entries[slots_number(s) - 1].valid = false;
    slots_end(s, DXPU_REASON_NO_SLOT);
    leases_unplugged(s->shard->box, slots_number(s));
    s->arrival->step = LEAVES;
}

static void leave(slot *s)
{
    slot_device none = { .kind = &no_device_kind, .device = &nothing, .model = "none" };
    if (s->kind->tick)
        s->kind->tick(s->device, dxpu_udp_now_ns());
    if (s->lane && !jobs_lane_idle(s->lane)) /* one without any left is destroyed at once */
        return;
    log_info("slot %u: its device is unplugged", slots_number(s));
    if (s->ready)
        event_free(s->ready);
    s->ready = NULL;
    s->kind->destroy(s->device);
    (void)slots_install(s, &none); /* without attributes and descriptor nothing can fail */
    s->ids = (device_ids){ 0, 0, 0 };
    s->arrival->step = NOTHING;
}

/* ==== 3  A device comes ======================================================================= */

/* job.run */
static void make(job *j)
{
    struct arrival *a = (struct arrival *)j;
    slot *s = a->slot;
    if (!slots_prepare(s->shard->box, slots_number(s) - 1, &a->plan, NULL, NULL, &a->device))
        slots_create(s, &a->device);
}

static void begin_making(slot *s)
{
    s->arrival->step = MAKES;
    s->arrival->job.run = make;
    s->arrival->job.quick = NULL;
    if (s->lane)
        s->jobs.submit(s->jobs.user, &s->arrival->job);
    else
        make(&s->arrival->job);
}

/* It was made, or could not be. */
static void arrive(slot *s)
{
    struct arrival *a = s->arrival;
    const device_kind *kind;
    box *b = s->shard->box;
    if (s->lane && !s->jobs.reap(s->jobs.user))
        return;
    kind = a->device.kind; /* until here the job, in its thread, may write it */
    if (!a->device.device) {
        log_error("slot %u: cannot make the device; the slot stays empty", slots_number(s));
        end(s, DXPU_CONTROL_CODE_DEVICE);
        return;
    }
    if (leases_promised(b, slots_number(s), kind, a->device.device)) {
        log_error("slot %u: device refused: its disk has the data of another slot's tenant; plug "
                  "it into that slot, or end that lease and wipe the data",
                  slots_number(s));
        kind->destroy(a->device.device);
        end(s, DXPU_CONTROL_CODE_BUSY);
        return;
    }
    if (slots_install(s, &a->device)) {
        kind->destroy(a->device.device);
        end(s, DXPU_CONTROL_CODE_DEVICE);
        return;
    }
    s->ids = (device_ids){ kind->vendor, kind->device, kind->class_code };
    s->keeps = kind->wipe != NULL;
    s->broken = false;
    a->step = WRITES;
    if (!b->managed || !leases_plugged(b, slots_number(s)))
        plug_written(s, true);
}

void plug_written(slot *s, bool kept)
{
    struct arrival *a = s->arrival;
    bool was_there = a->step == FORGETS;
    a->step = NOTHING;
    if (was_there && !kept) {
        end(s, DXPU_CONTROL_CODE_STATE); /* it stays */
    } else if (was_there) {
        begin_leaving(s);
    } else if (!kept) { /* it is not served by a record that does not speak of it */
        a->code = DXPU_CONTROL_CODE_STATE;
        a->comes = false;
        begin_leaving(s);
    } else {
        s->absent = s->missing = false;
        log_info("slot %u: %s is plugged in", slots_number(s), s->model);
        end(s, DXPU_CONTROL_CODE_NONE);
    }
}

static void go_on(slot *s)
{
    struct arrival *a = s->arrival;
    if (a->step == LEAVES)
        leave(s);
    if (a->step == NOTHING && !a->comes) {
        end(s, DXPU_CONTROL_CODE_NONE);
        return;
    }
    if (a->step == NOTHING)
        begin_making(s);
    if (a->step == MAKES)
        arrive(s);
}

void plug_work(shard *sh)
{
    const box *b = sh->box;
    for (unsigned i = sh->index; sh->plugs && i < b->count; i += b->shard_count) {
        if (b->slots[i].arrival)
            go_on(&b->slots[i]);
    }
}

void plug_close(slot *s)
{
    struct arrival *a = s->arrival;
    if (!a)
        return;
    if (a->step == MAKES && s->lane) {
        s->jobs.settle(s->jobs.user);
        (void)s->jobs.reap(s->jobs.user);
    }
    if (a->step == MAKES && a->device.device)
        a->device.kind->destroy(a->device.device);
    plan_clear(&a->plan);
    free(a);
    s->arrival = NULL;
}

/* ==== 4  Requests ============================================================================= */

/* A host has it, or a tenant's data are on it. */
static bool is_lent(const box *b, unsigned number)
{
    switch (b->phase[number - 1]) {
    case DXPU_CONTROL_SLOT_HELD:
    case DXPU_CONTROL_SLOT_KEPT:
    case DXPU_CONTROL_SLOT_WIPING: /* once its manager says so */
    case DXPU_CONTROL_SLOT_UNWIPED:
        return true;
    default:
        return b->entries[number - 1].used || b->slots[number - 1].active;
    }
}

static unsigned check(const box *b, const dxpu_control_plug *m)
{
    const slot *s = &b->slots[m->slot - 1];
    bool is_empty = s->kind == &no_device_kind;
    if (s->arrival || s->opening.channel || s->change.by != CHANGE_NONE ||
        (b->phase[m->slot - 1] == DXPU_CONTROL_SLOT_WIPING && !s->wipe_waits))
        return DXPU_CONTROL_CODE_BUSY;
    if (is_empty)
        return m->how == DXPU_CONTROL_REMOVE ? DXPU_CONTROL_CODE_EMPTY : DXPU_CONTROL_CODE_NONE;
    if (m->how == DXPU_CONTROL_INSERT)
        return DXPU_CONTROL_CODE_BUSY;
    return is_lent(b, m->slot) && !m->force ? DXPU_CONTROL_CODE_LENT : DXPU_CONTROL_CODE_NONE;
}

unsigned plug_begin(box *b, const dxpu_control_plug *m, slot_plan *plan)
{
    slot *s = &b->slots[m->slot - 1];
    unsigned code = check(b, m);
    if (code)
        return code;
    s->arrival = calloc(1, sizeof *s->arrival);
    if (!s->arrival)
        return DXPU_CONTROL_CODE_MEMORY;
    s->arrival->slot = s;
    if (plan) {
        s->arrival->plan = *plan;
        s->arrival->comes = true;
        memset(plan, 0, sizeof *plan);
    }
    s->shard->plugs++;
    if (s->kind != &no_device_kind) {
        if (b->managed && leases_forget(b, m->slot))
            s->arrival->step = FORGETS;
        else
            begin_leaving(s);
    }
    go_on(s); /* most often that is all */
    return REQUESTS_LATER;
}
