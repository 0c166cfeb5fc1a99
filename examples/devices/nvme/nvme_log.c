/* nvme_log.c - the NVMe controller's log pages, asynchronous events and features
   SPDX-License-Identifier: MIT

   CONTENTS   1 Error log   2 Log pages   3 Asynchronous events   4 Features */
#include "nvme_model.h"

enum { LOG_ERRORS = 1, LOG_HEALTH = 2, LOG_FIRMWARE = 3, LOG_CHANGED = 4, LOG_EFFECTS = 5 };
enum {
    FEATURE_ARBITRATION = 0x1,
    FEATURE_POWER = 0x2,
    FEATURE_TEMPERATURE = 0x4,
    FEATURE_RECOVERY = 0x5,
    FEATURE_CACHE = 0x6,
    FEATURE_QUEUES = 0x7,
    FEATURE_COALESCING = 0x8,
    FEATURE_VECTOR = 0x9,
    FEATURE_ATOMICITY = 0xa,
    FEATURE_EVENTS = 0xb
};

/* ==== 1  Error log ============================================================================ */

void nvme_log_reset(nvme *n)
{
    memset(n->errors, 0, sizeof n->errors);
    n->error_count = 0;
}

void nvme_log_error(nvme *n, const nvme_command *c)
{
    nvme_error *e = &n->errors[n->error_count % NVME_ERRORS];
    e->number = ++n->error_count;
    e->sqid = c->sqid;
    e->cid = c->cid;
    e->status = (uint16_t)(c->status << 1);
    e->parameter = 0xffff; /* of no particular field */
    e->nsid = c->nsid;
    e->lba = c->sqid ? c->dw[10] | (uint64_t)c->dw[11] << 32 : 0;
}

/* ==== 2  Log pages ============================================================================ */

enum { LOG_TEMPERATURE = 313 }; /* kelvin: nothing here gets warm */

static void log_errors(const nvme *n, uint8_t *page)
{
    for (uint64_t i = 0; i < NVME_ERRORS && i < n->error_count; i++) { /* the latest first */
        const nvme_error *e = &n->errors[(n->error_count - 1 - i) % NVME_ERRORS];
        uint8_t *p = page + i * 64;
        dxpu_put_le64(p, e->number);
        dxpu_put_le16(p + 8, e->sqid);
        dxpu_put_le16(p + 10, e->cid);
        dxpu_put_le16(p + 12, e->status);
        dxpu_put_le16(p + 14, e->parameter);
        dxpu_put_le64(p + 16, e->lba);
        dxpu_put_le32(p + 24, e->nsid);
    }
}

static bool log_too_warm(const nvme *n)
{
    return LOG_TEMPERATURE >= n->thresholds[0] || LOG_TEMPERATURE <= n->thresholds[1];
}

static void log_health(const nvme *n, uint8_t *page)
{
    page[0] = log_too_warm(n) ? 0x02 : 0;
    dxpu_put_le16(page + 1, LOG_TEMPERATURE);
    page[3] = 100; /* per cent of the spare capacity */
    page[4] = 10;
    dxpu_put_le64(page + 32, (n->blocks_read + 999) / 1000);
    dxpu_put_le64(page + 48, (n->blocks_written + 999) / 1000);
    dxpu_put_le64(page + 64, n->reads);
    dxpu_put_le64(page + 80, n->writes);
    dxpu_put_le64(page + 96, n->busy_ns / 60000000000u); /* minutes */
    dxpu_put_le64(page + 112, n->power_cycles);
    dxpu_put_le64(page + 128, (n->fn.now_ns - n->start_ns) / 3600000000000u); /* hours */
    dxpu_put_le64(page + 144, n->unsafe_shutdowns);
    dxpu_put_le64(page + 160, n->count.store_errors);
    dxpu_put_le64(page + 176, n->error_count);
}

static void log_changed(const nvme *n, uint8_t *page)
{
    for (uint32_t i = 0; i < n->ns_count; i++) {
        if (n->ns[i].changed) {
            dxpu_put_le32(page, i + 1);
            page += 4;
        }
    }
}

static void log_effects(const nvme *n, uint8_t *page)
{
    size_t count;
    const nvme_operation *o = nvme_admin_operations(n, &count);
    for (size_t i = 0; i < count; i++)
        dxpu_put_le32(page + o[i].opcode * 4u, o[i].effects);
    o = nvme_io_operations(n, &count);
    for (size_t i = 0; i < count; i++)
        dxpu_put_le32(page + 1024 + o[i].opcode * 4u, o[i].effects);
}

void nvme_log_page(nvme *n, unsigned id, uint8_t *page, uint32_t *size)
{
    memset(page, 0, NVME_PAGE_BYTES);
    switch (id) {
    case LOG_ERRORS:
        log_errors(n, page);
        *size = NVME_ERRORS * 64;
        break;
    case LOG_HEALTH:
        log_health(n, page);
        *size = 512;
        break;
    case LOG_FIRMWARE:
        page[0] = 1; /* slot 1 is active */
        memcpy(page + 8, "1.0     ", 8);
        *size = 512;
        break;
    case LOG_CHANGED:
        log_changed(n, page);
        *size = NVME_PAGE_BYTES;
        break;
    case LOG_EFFECTS:
        log_effects(n, page);
        *size = NVME_PAGE_BYTES;
        break;
    case NVME_LOG_RESERVATION:
        nvme_reserve_log(n, page);
        *size = nvme_is_shared(n) ? 64 : 0;
        break;
    default:
        *size = 0;
        break;
    }
}

/* ==== 3  Asynchronous events ================================================= NVMe 1.4, 5.2 ====
   One event of a type is reported, then none of it until its log page is read. */

static void event_deliver(nvme *n)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < n->event_count; i++) {
        uint32_t e = n->events[i];
        nvme_command *c = n->event_commands.head;
        if (!c || (n->events_masked >> (e & 7) & 1)) {
            n->events[kept++] = e;
            continue;
        }
        (void)nvme_list_remove(&n->event_commands, c);
        n->event_commands_count--;
        n->events_masked |= (uint8_t)(1u << (e & 7));
        c->event = false;
        c->result = e;
        nvme_finish(n, c, NVME_SUCCESS);
    }
    n->event_count = kept;
}

void nvme_event(nvme *n, unsigned type, unsigned info, unsigned page)
{
    uint32_t e = type | info << 8 | page << 16;
    for (unsigned i = 0; i < n->event_count; i++) {
        if (n->events[i] == e)
            return;
    }
    if (n->event_count < NVME_EVENTS)
        n->events[n->event_count++] = e;
    event_deliver(n);
}

void nvme_namespace_changed(nvme *n, nvme_ns *s)
{
    s->changed = true;
    if (n->features[FEATURE_EVENTS] & 0x100)
        nvme_event(n, 2, 0, LOG_CHANGED); /* a notice */
}

void nvme_event_read(nvme *n, unsigned page)
{
    if (page == LOG_ERRORS)
        n->events_masked &= (uint8_t)~1u;
    if (page == LOG_HEALTH)
        n->events_masked &= (uint8_t)~2u;
    if (page == LOG_CHANGED) {
        n->events_masked &= (uint8_t)~4u;
        for (uint32_t i = 0; i < n->ns_count; i++)
            n->ns[i].changed = false;
    }
    if (page == NVME_LOG_RESERVATION && nvme_is_shared(n)) {
        n->events_masked &= (uint8_t)~0x40u;
        nvme_reserve_log_read(n);
    }
    event_deliver(n);
}

uint16_t nvme_event_request(nvme *n, nvme_command *c)
{
    if (n->event_commands_count >= NVME_EVENT_COMMANDS)
        return NVME_EVENT_LIMIT | NVME_DNR;
    c->event = true;
    n->event_commands_count++;
    nvme_list_append(&n->event_commands, c);
    event_deliver(n);
    return NVME_PENDING;
}

/* ==== 4  Features ======================================================= NVMe 1.4, 5.21.1 ==== */

enum { FEATURE_CHANGEABLE = 4, FEATURE_PER_NAMESPACE = 2 }; /* none can be saved */
enum { TEMPERATURE_WARNING = 343, QUEUES_FOR_IO = NVME_QUEUES - 2 };

typedef struct feature_row {
    uint32_t initial, valid; /* after a reset; the bits of dword 11 that mean something */
    bool known;
    /* What more there is to it than a value: NULL for what has no more. */
    uint16_t (*get)(nvme *n, nvme_command *c, bool initial);
    uint16_t (*set)(nvme *n, nvme_command *c);
} feature_row;

/* Threshold that dword 11 selects, NULL when there is none. */
static uint32_t *feature_threshold(nvme *n, uint32_t dw11)
{
    unsigned sensor = dw11 >> 16 & 0xf, under = dw11 >> 20 & 3;
    return sensor == 0 && under < 2 ? &n->thresholds[under] : NULL;
}

static uint16_t get_temperature(nvme *n, nvme_command *c, bool initial)
{
    uint32_t *threshold = feature_threshold(n, c->dw[11]);
    if (!threshold)
        return NVME_INVALID_FIELD | NVME_DNR;
    c->result = !initial ? *threshold : c->dw[11] >> 20 & 3 ? 0 : TEMPERATURE_WARNING;
    return NVME_SUCCESS;
}

static uint16_t set_temperature(nvme *n, nvme_command *c)
{
    uint32_t *threshold = feature_threshold(n, c->dw[11]);
    bool before = log_too_warm(n);
    if (!threshold && (c->dw[11] >> 16 & 0xf) == 0xf && !(c->dw[11] >> 21 & 1))
        threshold = &n->thresholds[c->dw[11] >> 20 & 1]; /* of all sensors: there is one */
    if (!threshold)
        return NVME_INVALID_FIELD | NVME_DNR;
    *threshold = c->dw[11] & 0xffff;
    if (!before && log_too_warm(n) && (n->features[FEATURE_EVENTS] & 2))
        nvme_event(n, 1, 1, LOG_HEALTH);
    return NVME_SUCCESS;
}

static uint16_t get_recovery(nvme *n, nvme_command *c, bool initial)
{
    nvme_ns *s = nvme_active(n, c->nsid);
    if (!s)
        return nvme_inactive(n, c->nsid);
    c->result = initial ? 0 : s->recovery;
    return NVME_SUCCESS;
}

static uint16_t set_recovery(nvme *n, nvme_command *c)
{
    bool all = c->nsid == NVME_NSID_ALL;
    if (!all && !nvme_active(n, c->nsid))
        return nvme_inactive(n, c->nsid);
    for (uint32_t nsid = 1; nsid <= n->ns_count; nsid++) {
        if ((all || nsid == c->nsid) && nvme_active(n, nsid))
            n->ns[nsid - 1].recovery = c->dw[11];
    }
    return NVME_SUCCESS;
}

static uint16_t set_cache(nvme *n, nvme_command *c)
{
    n->features[FEATURE_CACHE] = c->dw[11];
    return c->dw[11] & 1 ? NVME_SUCCESS : nvme_sync_all(n, c); /* what is cached has to leave */
}

static uint16_t set_queues(nvme *n, nvme_command *c)
{
    if ((c->dw[11] & 0xffff) == 0xffff || c->dw[11] >> 16 == 0xffff)
        return NVME_INVALID_FIELD | NVME_DNR;
    for (unsigned i = 1; i < NVME_QUEUES; i++) {
        if (n->cq[i].valid || n->sq[i].valid)
            return NVME_SEQUENCE_ERROR | NVME_DNR;
    }
    c->result = n->features[FEATURE_QUEUES]; /* as many as there are, whatever it wants */
    return NVME_SUCCESS;
}

static uint16_t get_vector(nvme *n, nvme_command *c, bool initial)
{
    uint32_t vector = c->dw[11] & 0xffff;
    if (vector >= NVME_VECTORS)
        return NVME_INVALID_FIELD | NVME_DNR;
    c->result = initial ? vector : n->vectors[vector];
    return NVME_SUCCESS;
}

static uint16_t set_vector(nvme *n, nvme_command *c)
{
    uint32_t vector = c->dw[11] & 0xffff;
    if (vector >= NVME_VECTORS)
        return NVME_INVALID_FIELD | NVME_DNR;
    n->vectors[vector] = c->dw[11];
    return NVME_SUCCESS;
}

static const feature_row feature_rows[NVME_FEATURES] = {
    [FEATURE_ARBITRATION] = { 7, 0xffffff07u, true, NULL, NULL }, /* no limit but the batch */
    [FEATURE_POWER] = { 0, 0x000000e0u, true, NULL, NULL },       /* one state, any workload */
    [FEATURE_TEMPERATURE] = { 0, 0x003fffffu, true, get_temperature, set_temperature },
    [FEATURE_RECOVERY] = { 0, 0x0000ffffu, true, get_recovery, set_recovery },
    [FEATURE_CACHE] = { 1, 0x00000001u, true, NULL, set_cache },
    [FEATURE_QUEUES] = { (uint32_t)QUEUES_FOR_IO << 16 | QUEUES_FOR_IO, 0xffffffffu, true, NULL,
                         set_queues },
    [FEATURE_COALESCING] = { 0, 0x0000ffffu, true, NULL, NULL },
    [FEATURE_VECTOR] = { 0, 0x0001ffffu, true, get_vector, set_vector },
    [FEATURE_ATOMICITY] = { 0, 0x00000001u, true, NULL, NULL },
    [FEATURE_EVENTS] = { 0, 0x0000011fu, true, NULL, NULL }, /* health, namespaces */
};

void nvme_features_reset(nvme *n)
{
    for (unsigned i = 0; i < NVME_FEATURES; i++)
        n->features[i] = feature_rows[i].initial;
    n->thresholds[0] = TEMPERATURE_WARNING;
    n->thresholds[1] = 0;
    for (unsigned i = 0; i < NVME_VECTORS; i++)
        n->vectors[i] = i;
    for (unsigned i = 0; i < NVME_NAMESPACES; i++)
        n->ns[i].recovery = 0;
    n->event_count = 0;
    n->events_masked = 0;
}

/* NULL: there is no such feature. */
static const feature_row *feature_find(const nvme_command *c)
{
    unsigned id = c->dw[10] & 0xff;
    return id < NVME_FEATURES && feature_rows[id].known ? &feature_rows[id] : NULL;
}

uint16_t nvme_get_features(nvme *n, nvme_command *c)
{
    unsigned id = c->dw[10] & 0xff, select = c->dw[10] >> 8 & 7; /* current, default, saved, what */
    const feature_row *row = feature_find(c);
    if (nvme_reserve_is_feature(n, id))
        return nvme_reserve_get(n, c);
    if (!row || select > 3)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (select == 3) {
        c->result = FEATURE_CHANGEABLE | (id == FEATURE_RECOVERY ? FEATURE_PER_NAMESPACE : 0u);
        return NVME_SUCCESS;
    }
    if (row->get)
        return row->get(n, c, select != 0);
    c->result = select ? row->initial : n->features[id];
    return NVME_SUCCESS;
}

uint16_t nvme_set_features(nvme *n, nvme_command *c)
{
    unsigned id = c->dw[10] & 0xff;
    const feature_row *row = feature_find(c);
    if (nvme_reserve_is_feature(n, id))
        return nvme_reserve_set(n, c);
    if (!row)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (c->dw[10] >> 31)
        return NVME_NOT_SAVEABLE | NVME_DNR;
    if (id != FEATURE_RECOVERY && c->nsid != 0 && c->nsid != NVME_NSID_ALL)
        return NVME_NOT_PER_NAMESPACE | NVME_DNR;
    if (c->dw[11] & ~row->valid)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (row->set)
        return row->set(n, c);
    n->features[id] = c->dw[11];
    return NVME_SUCCESS;
}
