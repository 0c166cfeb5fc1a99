/* eptest.c - see eptest.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Interrupts   2 Transfers   3 Commands   4 BARs   5 Kind */
#include "eptest_model.h"

#include <stdlib.h>

static uint32_t get(const eptest *e, unsigned reg)
{
    return dxpu_get_le32(e->memory[0].bytes + reg);
}

static void set(eptest *e, unsigned reg, uint32_t value)
{
    pages_written(&e->memory[0], reg + 4);
    dxpu_put_le32(e->memory[0].bytes + reg, value);
}

static uint64_t get64(const eptest *e, unsigned reg)
{
    return dxpu_get_le64(e->memory[0].bytes + reg);
}

/* ==== 1  Interrupts =========================================================================== */

/* The driver looks for the bit when it is interrupted, so the bit is set first. */
static void raise_irq(eptest *e, uint32_t type, uint32_t number)
{
    uint32_t before = get(e, EPTEST_STATUS);
    bool raised = false;
    set(e, EPTEST_STATUS, before | EPTEST_IRQ_RAISED);
    if (type == EPTEST_IRQ_MSI && number > 0)
        raised = fn_msi_signal(&e->fn, number - 1);
    else if (type == EPTEST_IRQ_MSIX && number > 0)
        raised = fn_msix_signal(&e->fn, number - 1);
    if (!raised) { /* no such vector; INTx this function has not */
        set(e, EPTEST_STATUS, before);
        e->count.interrupts_impossible++;
    }
}

/* ==== 2  Transfers ============================================================================ */

/* Kernel and device both leave out the final inversion of CRC-32. */
static void job_checksum(transfer *j)
{
    j->crc = ~dxpu_crc32(~j->crc, j->chunk, j->filled);
}

static void job_over(eptest *e, bool success, uint32_t more)
{
    static const struct {
        uint32_t command, success, fail;
    } rows[] = { { EPTEST_READ, EPTEST_READ_SUCCESS, EPTEST_READ_FAIL },
                 { EPTEST_WRITE, EPTEST_WRITE_SUCCESS, EPTEST_WRITE_FAIL },
                 { EPTEST_COPY, EPTEST_COPY_SUCCESS, EPTEST_COPY_FAIL } };
    transfer *j = &e->job;
    for (unsigned i = 0; i < 3; i++) {
        if (rows[i].command == j->command)
            set(e, EPTEST_STATUS, more | (success ? rows[i].success : rows[i].fail));
    }
    e->count.commands_failed += !success;
    j->command = 0;
    raise_irq(e, j->irq_type, j->irq_number);
}

/* fn_fetch.done */
static void job_fetched(void *user, fn_fetch *x)
{
    eptest *e = user;
    transfer *j = &e->job;
    j->fetching = false;
    if (x->failed) {
        job_over(e, false, EPTEST_SOURCE_INVALID);
        return;
    }
    j->filled = x->bytes;
    j->sent = j->command == EPTEST_READ ? j->filled : 0;
    job_checksum(j);
}

static uint32_t job_next_chunk(transfer *j)
{
    uint32_t bytes = j->left < CHUNK_BYTES ? j->left : CHUNK_BYTES;
    j->left -= bytes;
    j->filled = j->sent = 0;
    return bytes;
}

static void job_fetch(eptest *e)
{
    transfer *j = &e->job;
    j->fetch.ranges = NULL;
    j->fetch.address = j->source;
    j->fetch.to = j->chunk;
    j->fetch.bytes = job_next_chunk(j);
    j->fetch.done = job_fetched;
    j->source += j->fetch.bytes;
    j->fetching = true;
    fn_fetch_start(&e->fn, &j->fetch);
}

static void job_invent(eptest *e)
{
    transfer *j = &e->job;
    j->filled = job_next_chunk(j);
    for (uint32_t i = 0; i < j->filled; i++) {
        e->random = e->random * 6364136223846793005u + 1442695040888963407u;
        j->chunk[i] = (uint8_t)(e->random >> 56);
    }
    job_checksum(j);
}

static bool job_send(eptest *e)
{
    transfer *j = &e->job;
    bool any = false;
    while (j->sent < j->filled && fn_room(&e->fn)) {
        uint32_t part =
            fn_write_one(&e->fn, j->destination, j->chunk + j->sent, j->filled - j->sent);
        j->sent += part;
        j->destination += part;
        any = true;
    }
    return any;
}

/* All bytes are through. */
static void job_done(eptest *e)
{
    transfer *j = &e->job;
    bool success = j->command != EPTEST_READ || get(e, EPTEST_CHECKSUM) == j->crc;
    if (j->command == EPTEST_WRITE)
        set(e, EPTEST_CHECKSUM, j->crc);
    job_over(e, success, 0);
}

/* Do what can be done now; true when anything was. */
static bool job_step(eptest *e)
{
    transfer *j = &e->job;
    if (!j->command)
        return false;
    if (!fn_masters(&e->fn)) { /* nothing may leave */
        fn_fetch_cancel(&e->fn, &j->fetch);
        j->fetching = false;
        job_over(e, false,
                 j->command == EPTEST_WRITE ? EPTEST_DESTINATION_INVALID : EPTEST_SOURCE_INVALID);
        return true;
    }
    if (j->fetching)
        return fn_fetch_ask(&e->fn);
    if (j->sent < j->filled)
        return job_send(e);
    if (!j->left)
        job_done(e);
    else if (j->command == EPTEST_WRITE)
        job_invent(e);
    else
        job_fetch(e);
    return true;
}

static void job_stop(eptest *e)
{
    fn_fetch_cancel(&e->fn, &e->job.fetch);
    e->job.fetching = false;
    e->job.command = 0;
}

/* ==== 3  Commands ============================================================================= */

/* The driver fills the source before it writes a command, and leaves it alone until that is over
   (U-11).  One that uses the same memory again has it sent along. */
static void push_source(eptest *e)
{
    const transfer *j = &e->job;
    uint32_t bytes = j->left < DXPU_PUSH_BYTES ? j->left : DXPU_PUSH_BYTES;
    dxpu_push_rule r;
    if (fn_push_stands(&e->fn, e->push, j->source, bytes))
        return;
    fn_push_end(&e->fn, e->push);
    memset(&r, 0, sizeof r);
    r.mode = DXPU_PUSH_AT;
    r.width = 4;
    r.base = j->source;
    r.entries = 1;
    r.bytes = (uint16_t)bytes;
    e->push = fn_push_begin(&e->fn, 0, EPTEST_COMMAND, &r);
}

static void begin(eptest *e, uint32_t command)
{
    transfer *j = &e->job;
    j->command = command;
    j->irq_type = get(e, EPTEST_IRQ_TYPE);
    j->irq_number = get(e, EPTEST_IRQ_NUMBER);
    j->source = get64(e, EPTEST_SOURCE);
    j->destination = get64(e, EPTEST_DESTINATION);
    j->left = get(e, EPTEST_SIZE);
    j->filled = j->sent = 0;
    j->crc = 0xffffffffu;
    if (command != EPTEST_WRITE)
        push_source(e);
}

/* Take the command from the register; one is done at a time. */
static bool take_command(eptest *e)
{
    uint32_t command = get(e, EPTEST_COMMAND);
    if (!command || e->job.command)
        return false;
    set(e, EPTEST_COMMAND, 0);
    set(e, EPTEST_STATUS, 0);
    e->count.commands++;
    switch (command) {
    case EPTEST_RAISE_INTX:
        raise_irq(e, EPTEST_IRQ_INTX, 0);
        break;
    case EPTEST_RAISE_MSI:
        raise_irq(e, EPTEST_IRQ_MSI, get(e, EPTEST_IRQ_NUMBER));
        break;
    case EPTEST_RAISE_MSIX:
        raise_irq(e, EPTEST_IRQ_MSIX, get(e, EPTEST_IRQ_NUMBER));
        break;
    case EPTEST_READ:
    case EPTEST_WRITE:
    case EPTEST_COPY:
        begin(e, command);
        break;
    default:
        e->count.commands_unknown++;
        break;
    }
    return true;
}

static void pump(eptest *e)
{
    while (take_command(e) || job_step(e)) {
    }
}

/* ==== 4  BARs ================================================================================= */

static void read_bar(eptest *e, const dxpu_tlp *t)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
    uint64_t offset;
    int bar = fn_locate(&e->fn, t, &offset);
    if (bar < 0) {
        fn_unsupported(&e->fn, t);
        return;
    }
    e->count.bar_reads++;
    memcpy(data, e->memory[bar].bytes + offset, t->length_dw * 4u);
    for (uint32_t i = 0; bar == 0 && i < t->length_dw; i++) {
        uint32_t value;
        if (fn_msix_read(&e->fn, bar, offset + i * 4, &value))
            dxpu_put_le32(data + (size_t)i * 4, value);
    }
    pci_complete_read(&e->fn.pci, t, data);
}

static void write_bar(eptest *e, const dxpu_tlp *t)
{
    uint64_t offset = 0;
    int bar = fn_locate(&e->fn, t, &offset);
    if (fn_refuse_write(&e->fn, t, bar))
        return;
    e->count.bar_writes++;
    for (uint32_t i = 0; bar == 0 && i < t->length_dw; i++) {
        (void)fn_msix_write(&e->fn, bar, offset + i * 4,
                            dxpu_get_le32(t->payload.ptr + (size_t)i * 4), pci_enabled(t, i));
    }
    pages_written(&e->memory[bar], offset + t->length_dw * 4u);
    pci_store(e->memory[bar].bytes + offset, t);
    set(e, EPTEST_CAPS, EPTEST_CAPS_VALUE); /* read-only */
}

/* ==== 5  Kind ================================================================================= */

static void clear(eptest *e)
{
    job_stop(e);
    fn_push_end(&e->fn, e->push);
    for (unsigned i = 0; i < PCI_BARS; i++) {
        if (e->memory[i].bytes)
            pages_clear(&e->memory[i]);
    }
    set(e, EPTEST_CAPS, EPTEST_CAPS_VALUE);
    e->count.resets++;
}

static void function_level_reset(void *user)
{
    eptest *e = user;
    clear(e);
    fn_reset(&e->fn);
}

static void eptest_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    eptest *e = device;
    (void)bytes;
    if (t->type == DXPU_TLP_MRD)
        read_bar(e, t);
    else if (t->type == DXPU_TLP_MWR)
        write_bar(e, t);
    else
        (void)fn_tlp(&e->fn, t);
    pump(e);
}

static void eptest_tick(void *device, uint64_t now_ns)
{
    eptest *e = device;
    for (unsigned i = 0; i < PCI_BARS; i++)
        pages_reap(&e->memory[i]);
    fn_tick(&e->fn, now_ns);
    pump(e);
}

static void link_reset(eptest *e)
{
    clear(e);
    fn_link_reset(&e->fn);
}

static void eptest_reset(void *device)
{
    eptest *e = device;
    fn_push_forget(&e->fn);
    link_reset(e);
}

static void eptest_event(void *device, const dxpu_event *ev)
{
    if (ev->type == DXPU_EVENT_HOT_RESET && (ev->flags & DXPU_EVENT_ON))
        link_reset(device);
}

static void eptest_destroy(void *device)
{
    eptest *e = device;
    fn_push_forget(&e->fn);
    for (unsigned i = 0; i < PCI_BARS; i++)
        pages_close(&e->memory[i]);
    free(e);
}

static void *eptest_create(const device_settings *s, const device_port *port)
{
    eptest *e = calloc(1, sizeof *e);
    fn_setup f = { .vendor = EPTEST_VENDOR,
                   .device = EPTEST_DEVICE,
                   .class_revision = 0xff000001u, /* of no class */
                   .bar = { { EPTEST_BAR0_BYTES, 0 },
                            { EPTEST_BAR1_BYTES, 0 },
                            { EPTEST_BAR2_BYTES, 0 },
                            { EPTEST_BAR3_BYTES, 0 },
                            { EPTEST_BAR4_BYTES, PCI_BAR_64 | PCI_BAR_PREFETCHABLE } },
                   .msi = true,
                   .msi_log2 = EPTEST_MSI_LOG2,
                   .msix = EPTEST_MSIX,
                   .msix_table = EPTEST_TABLE,
                   .msix_pba = EPTEST_PBA,
                   .mps_bytes = s->mps_bytes,
                   .mrrs_bytes = s->mrrs_bytes,
                   .timeout_ns = s->timeout_ns,
                   .no_push = s->no_push };
    if (!e)
        return NULL;
    if (s->bar_bytes)
        f.bar[4].bytes = s->bar_bytes;
    fn_init(&e->fn, &f, port, e, function_level_reset);
    e->random = s->identity;
    for (unsigned i = 0; i < PCI_BARS; i++) {
        if (f.bar[i].bytes && pages_open(&e->memory[i], f.bar[i].bytes, true, s)) {
            eptest_destroy(e);
            return NULL;
        }
    }
    eptest_reset(e);
    return e;
}

static void eptest_report(void *device, report *r)
{
    eptest *e = device;
#define EPTEST_PRINT(name) report_number(r, #name, e->count.name);
    EPTEST_COUNTERS(EPTEST_PRINT)
#undef EPTEST_PRINT
    fn_report(&e->fn, r);
}

const device_kind eptest_kind = { .name = "eptest",
                                  .vendor = EPTEST_VENDOR,
                                  .device = EPTEST_DEVICE,
                                  .class_code = 0xff0000,
                                  .create = eptest_create,
                                  .destroy = eptest_destroy,
                                  .tlp = eptest_tlp,
                                  .event = eptest_event,
                                  .reset = eptest_reset,
                                  .report = eptest_report,
                                  .tick = eptest_tick };
