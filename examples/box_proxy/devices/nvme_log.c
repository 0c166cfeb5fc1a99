/* nvme_log.c - the NVMe controller's log pages, asynchronous events and features
   SPDX-License-Identifier: MIT

   CONTENTS   1 Error log   2 Log pages   3 Asynchronous events   4 Features */
#include "nvme_model.h"

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

enum { LOG_ERRORS = 1, LOG_HEALTH = 2, LOG_FIRMWARE = 3, LOG_EFFECTS = 5 };
enum { LOG_TEMPERATURE = 313 }; /* kelvin: nothing here gets warm */

static void log_errors(const nvme *n, uint8_t *page)
{
    for (uint64_t i = 0; i < NVME_ERRORS && i < n->error_count; i++) { /* the latest first */
        const nvme_error *e = &n->errors[(n->error_count - 1 - i) % NVME_ERRORS];
        uint8_t *p = page + i * 64;
        nvme_put64(p, e->number);
        nvme_put16(p + 8, e->sqid);
        nvme_put16(p + 10, e->cid);
        nvme_put16(p + 12, e->status);
        nvme_put16(p + 14, e->parameter);
        nvme_put64(p + 16, e->lba);
        pci_store32(p + 24, e->nsid);
    }
}

static bool log_too_warm(const nvme *n)
{
    return LOG_TEMPERATURE >= n->thresholds[0][0] || LOG_TEMPERATURE <= n->thresholds[1][0];
}

static void log_health(const nvme *n, uint8_t *page)
{
    page[0] = log_too_warm(n) ? 0x02 : 0;
    nvme_put16(page + 1, LOG_TEMPERATURE);
    page[3] = 100; /* per cent of the spare capacity */
    page[4] = 10;
    nvme_put64(page + 32, (n->blocks_read + 999) / 1000);
    nvme_put64(page + 48, (n->blocks_written + 999) / 1000);
    nvme_put64(page + 64, n->reads);
    nvme_put64(page + 80, n->writes);
    nvme_put64(page + 112, n->power_cycles);
    nvme_put64(page + 160, n->count.store_errors);
    nvme_put64(page + 176, n->error_count);
}

/* Commands supported: bit 0; bit 1: it changes blocks; bit 2: it changes the namespace's format;
   bits 18:16 = 2: alone in the controller. */
static void log_effects(uint8_t *page)
{
    static const uint8_t admin[] = { 0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c };
    static const uint8_t plain[] = { 0x00, 0x02, 0x05 }, changing[] = { 0x01, 0x08, 0x09 };
    for (unsigned i = 0; i < sizeof admin; i++)
        pci_store32(page + admin[i] * 4u, 1);
    pci_store32(page + 0x80 * 4u, 0x20007);
    for (unsigned i = 0; i < sizeof plain; i++)
        pci_store32(page + 1024 + plain[i] * 4u, 1);
    for (unsigned i = 0; i < sizeof changing; i++)
        pci_store32(page + 1024 + changing[i] * 4u, 3);
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
    case LOG_EFFECTS:
        log_effects(page);
        *size = NVME_PAGE_BYTES;
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

void nvme_event_read(nvme *n, unsigned page)
{
    if (page == LOG_ERRORS)
        n->events_masked &= (uint8_t)~1u;
    if (page == LOG_HEALTH)
        n->events_masked &= (uint8_t)~2u;
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

/* ==== 4  Features ============================================================================= */

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
enum { FEATURE_CHANGEABLE = 4, FEATURE_PER_NAMESPACE = 2 };

static bool feature_known(unsigned id)
{
    return id >= FEATURE_ARBITRATION && id <= FEATURE_EVENTS && id != 0x3;
}

static uint32_t feature_default(unsigned id)
{
    switch (id) {
    case FEATURE_ARBITRATION:
        return 7; /* no limit but the batch */
    case FEATURE_CACHE:
        return 1;
    case FEATURE_QUEUES:
        return (NVME_QUEUES - 2u) << 16 | (NVME_QUEUES - 2u);
    default:
        return 0;
    }
}

void nvme_features_reset(nvme *n)
{
    for (unsigned i = 0; i < NVME_FEATURES; i++)
        n->features[i] = feature_default(i);
    for (unsigned i = 0; i < 9; i++) {
        n->thresholds[0][i] = i ? 0xffff : 343;
        n->thresholds[1][i] = 0;
    }
    for (unsigned i = 0; i < NVME_VECTORS; i++)
        n->vectors[i] = i;
    n->event_count = 0;
    n->events_masked = 0;
}

/* The namespace that a feature command names. */
static uint16_t feature_scope(const nvme_command *c, unsigned id, bool set)
{
    bool all = c->nsid == (uint32_t)NVME_NSID_ALL;
    if (id == FEATURE_RECOVERY)
        return c->nsid == NVME_NSID || (all && set) ? NVME_SUCCESS
                                                    : NVME_INVALID_NAMESPACE | NVME_DNR;
    if (set && c->nsid != 0 && !all)
        return NVME_NOT_PER_NAMESPACE | NVME_DNR;
    return NVME_SUCCESS;
}

/* Threshold that dword 11 selects, NULL when there is none. */
static uint32_t *feature_threshold(nvme *n, uint32_t dw11)
{
    unsigned sensor = dw11 >> 16 & 0xf, under = dw11 >> 20 & 3;
    return sensor == 0 && under < 2 ? &n->thresholds[under][0] : NULL;
}

uint16_t nvme_get_features(nvme *n, nvme_command *c)
{
    unsigned id = c->dw[10] & 0xff, select = c->dw[10] >> 8 & 7;
    uint32_t *threshold = feature_threshold(n, c->dw[11]), vector = c->dw[11] & 0xffff;
    uint16_t scope;
    if (!feature_known(id) || select > 3)
        return NVME_INVALID_FIELD | NVME_DNR;
    scope = feature_scope(c, id, false);
    if (scope != NVME_SUCCESS)
        return scope;
    if (select == 3) {
        c->result = FEATURE_CHANGEABLE | (id == FEATURE_RECOVERY ? FEATURE_PER_NAMESPACE : 0u);
        return NVME_SUCCESS;
    }
    c->result = select ? feature_default(id) : n->features[id];
    if (id == FEATURE_TEMPERATURE) {
        if (!threshold)
            return NVME_INVALID_FIELD | NVME_DNR;
        c->result = !select ? *threshold : c->dw[11] >> 20 & 3 ? 0 : 343;
    }
    if (id == FEATURE_VECTOR) {
        if (vector >= NVME_VECTORS)
            return NVME_INVALID_FIELD | NVME_DNR;
        c->result = select ? vector : n->vectors[vector];
    }
    return NVME_SUCCESS;
}

static bool feature_io_queues(const nvme *n)
{
    for (unsigned i = 1; i < NVME_QUEUES; i++) {
        if (n->cq[i].valid || n->sq[i].valid)
            return true;
    }
    return false;
}

static uint16_t feature_set_threshold(nvme *n, uint32_t dw11)
{
    uint32_t *threshold = feature_threshold(n, dw11);
    bool before = log_too_warm(n);
    if (!threshold)
        return NVME_INVALID_FIELD | NVME_DNR;
    *threshold = dw11 & 0xffff;
    if (!before && log_too_warm(n) && (n->features[FEATURE_EVENTS] & 2))
        nvme_event(n, 1, 1, LOG_HEALTH);
    return NVME_SUCCESS;
}

static uint16_t feature_set_queues(nvme *n, nvme_command *c)
{
    if ((c->dw[11] & 0xffff) == 0xffff || c->dw[11] >> 16 == 0xffff)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (feature_io_queues(n))
        return NVME_SEQUENCE_ERROR | NVME_DNR;
    c->result = n->features[FEATURE_QUEUES];
    return NVME_SUCCESS;
}

uint16_t nvme_set_features(nvme *n, nvme_command *c)
{
    unsigned id = c->dw[10] & 0xff;
    uint32_t value = c->dw[11], vector = value & 0xffff;
    uint16_t scope;
    if (!feature_known(id))
        return NVME_INVALID_FIELD | NVME_DNR;
    if (c->dw[10] >> 31)
        return NVME_NOT_SAVEABLE | NVME_DNR;
    scope = feature_scope(c, id, true);
    if (scope != NVME_SUCCESS)
        return scope;
    switch (id) {
    case FEATURE_TEMPERATURE:
        return feature_set_threshold(n, value);
    case FEATURE_QUEUES:
        return feature_set_queues(n, c);
    case FEATURE_VECTOR:
        if (vector >= NVME_VECTORS)
            return NVME_INVALID_FIELD | NVME_DNR;
        n->vectors[vector] = value & 0x1ffff;
        return NVME_SUCCESS;
    case FEATURE_POWER:
        if (value & 0x1f) /* there is one state */
            return NVME_INVALID_FIELD | NVME_DNR;
        break;
    case FEATURE_CACHE:
        value &= 1;
        if (!value && nvme_store_sync(&n->store)) /* what is cached has to leave */
            return NVME_INTERNAL_ERROR;
        break;
    default:
        break;
    }
    n->features[id] = value;
    return NVME_SUCCESS;
}
