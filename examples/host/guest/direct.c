/* direct.c - see direct.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Setting a device up   2 Accesses   3 What the client does   4 What the slot does
              5 The form */
#include "direct_internal.h"
#include "log.h"
#include "dxpu_libevent.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    CONFIG_DWORDS = SHADOW_BYTES / 4,
    IN_FLIGHT = 32,        /* most requests of a step that wait for an answer */
    SETUP_MARK = 0xff,     /* in a request's lowest byte, of those made here */
    TABLE_WRITE_BYTES = 8, /* software writes the MSI-X table in these units */
    ENTRY_WRITES = 2,      /* of an entry */
    TURN_EVENTS = 32,      /* sockets, a turn */
    RETRY_NS = 500000000,  /* until a device that was not ready is set up again */
    INTX_ASSERT = 0x20,    /* message codes: of pin A */
    INTX_DEASSERT = 0x24,
    INTX_LAST = 0x27
};

/* What is done with a device until it can be presented. */
enum {
    SETUP_DONE,
    SETUP_READ,  /* its configuration space */
    SETUP_PLACE, /* its BARs */
    SETUP_TABLE  /* its interrupts */
};

/* ==== 1  Setting a device up ================================================================== */

static uint64_t setup_request(const direct_function *f, unsigned index)
{
    return (uint64_t)f->setups << 32 | (uint64_t)index << 16 | SETUP_MARK;
}

static bool is_setup(uint64_t request)
{
    return (request & 0xffff) == SETUP_MARK; /* of an access, at most 3 */
}

static bool send_config(direct_function *f, const shadow_write *w, bool write, uint64_t request)
{
    uint8_t dword[4] = { 0 };
    dxpu_tlp t;
    access_config_tlp(write ? DXPU_TLP_CFGWR0 : DXPU_TLP_CFGRD0, DIRECT_DEVICE, w->at, w->bytes,
                      &t);
    for (unsigned i = 0; i < w->bytes; i++)
        dword[(w->at & 3) + i] = (uint8_t)(w->value >> 8 * i);
    if (write) {
        t.payload.ptr = dword;
        t.payload.len = 4;
    }
    return slot_send(f->slot, &t, request, dxpu_udp_now_ns());
}

/* access_table.send */
static bool send_memory(void *user, dxpu_tlp *t, uint64_t part)
{
    direct_function *f = user;
    return slot_send(f->slot, t, part, dxpu_udp_now_ns());
}

static void begin_setup(direct_function *f, unsigned step)
{
    f->setup = (uint8_t)step;
    f->setups++;
    f->next = f->asked = 0;
    f->retry_ns = 0;
}

static void set_intx(direct_function *f, bool on)
{
    (void)dxpu_vfu_irq_level(f->vfu, DXPU_VFU_INTX, 0, on);
}

/* Does the client reach the device? */
static bool is_reached(const direct_function *f)
{
    return f->live && !f->unready;
}

/* A reset of the client's, of a device that is there or not any more. */
static void answer_reset(direct_function *f)
{
    uint64_t token = f->reset_token;
    f->reset_token = 0;
    if (token)
        (void)dxpu_vfu_reply_write(f->vfu, token);
}

/* It is not shown, and a client that was shown it reads ones. */
static void stop_setup(direct_function *f, const char *why)
{
    f->setup = SETUP_DONE;
    f->unready = f->live;
    f->accesses.line.bytes = 0;
    answer_reset(f);
    set_intx(f, false);
    f->setups_failed++;
    if (f->there && !f->slot->closing && !f->slot->probe.failed)
        log_warning("slot %u: the device cannot be shown: %s", f->slot->number, why);
    f->slot->probe.failed = true; /* it is shown as that */
}

static void refuse_device(direct_function *f, const char *why)
{
    stop_setup(f, why);
    f->known = f->live = false;
}

/* It may need longer than requests wait, as some do after a reset: begin the step again later. */
static void retry_setup(direct_function *f, const char *why)
{
    stop_setup(f, why);
    f->retry_ns = dxpu_udp_now_ns() + RETRY_NS;
}

static bool send_read(direct_function *f)
{
    const shadow_write w = { f->next * 4, 4, 0 };
    return send_config(f, &w, false, setup_request(f, f->next));
}

static bool send_place(direct_function *f)
{
    shadow_write w[SHADOW_WRITES_MAX];
    (void)shadow_setup(&f->shadow, w);
    return send_config(f, &w[f->next], true, setup_request(f, f->next));
}

/* An address and zeros in the upper half of it; then the vector as data, unmasked. */
static bool send_table(direct_function *f)
{
    const shadow *s = &f->shadow;
    uint32_t vector = f->next / ENTRY_WRITES;
    uint64_t at =
        s->bar[s->table_bar].address + s->table_at + f->next * (uint64_t)TABLE_WRITE_BYTES;
    uint32_t value = f->next % ENTRY_WRITES ? vector : SHADOW_MSIX_ADDRESS;
    uint8_t data[TABLE_WRITE_BYTES] = { 0 };
    dxpu_put_le32(data, value);
    return access_request(&f->accesses, at, sizeof data, data, 0);
}

/* How many requests a step has. */
static unsigned step_requests(const direct_function *f)
{
    shadow_write w[SHADOW_WRITES_MAX];
    return f->setup == SETUP_READ    ? (unsigned)CONFIG_DWORDS
           : f->setup == SETUP_PLACE ? shadow_setup(&f->shadow, w)
                                     : f->shadow.vectors * ENTRY_WRITES;
}

static void present(direct_function *f)
{
    dxpu_vfu_region region[DXPU_VFU_REGIONS];
    uint32_t irqs[DXPU_VFU_IRQS] = { f->shadow.pin, f->shadow.messages, 0, 0, 0 };
    memset(region, 0, sizeof region);
    for (unsigned i = 0; i < SHADOW_BARS; i++)
        region[i].bytes = f->shadow.bar[i].bytes;
    region[DXPU_VFU_CONFIG].bytes = SHADOW_BYTES;
    for (unsigned i = 0; i < DXPU_VFU_REGIONS; i++)
        region[i].access = DXPU_VFU_READ | DXPU_VFU_WRITE;
    irqs[DXPU_VFU_MSIX] = f->shadow.msix_shown ? f->shadow.vectors : 0;
    f->msix = f->shadow.msix_shown;
    f->offered = true;
    if (dxpu_vfu_present(f->vfu, region, irqs) != DXPU_OK) {
        f->offered = false;
        refuse_device(f, "out of memory");
    }
}

/* Who connects waits. */
static void hide(direct_function *f)
{
    f->offered = false;
    (void)dxpu_vfu_present(f->vfu, NULL, NULL);
}

/* The last step was made. */
static void end_setup(direct_function *f)
{
    f->setup = SETUP_DONE;
    f->unready = false;
    f->slot->probe.failed = false;
    answer_reset(f);
    if (!dxpu_vfu_is_connected(f->vfu))
        present(f);
}

static void end_step(direct_function *f)
{
    const char *wrong = NULL;
    if (f->setup == SETUP_TABLE) {
        end_setup(f);
        return;
    }
    if (f->setup == SETUP_PLACE) /* messages from before the reset are behind us (V-43) */
        set_intx(f, false);
    if (f->setup == SETUP_READ)
        wrong = shadow_init(&f->shadow, f->image, f->slot->probe.sized[0], f->set->interrupts);
    if (wrong) {
        refuse_device(f, wrong);
        return;
    }
    f->known = true;
    begin_setup(f, f->setup + 1u);
}

/* As far as it goes now. */
static void go_on(direct_function *f)
{
    while (f->there && f->setup != SETUP_DONE) {
        unsigned count = step_requests(f);
        bool table = f->setup == SETUP_TABLE; /* posted: nothing comes back */
        while (f->next < count && f->asked < IN_FLIGHT && !slot_congested(f->slot)) {
            bool sent = f->setup == SETUP_READ ? send_read(f)
                        : table                ? send_table(f)
                                               : send_place(f);
            if (!sent) {
                retry_setup(f, "it takes no requests");
                return;
            }
            f->next++;
            f->asked += !table;
        }
        if (f->next < count || f->asked)
            return;
        end_step(f);
    }
}

/* Without extended configuration space a device refuses to be asked for it. */
static void setup_answered(direct_function *f, const dxpu_tlp *cpl, uint64_t request)
{
    unsigned index = request >> 16 & 0xffff;
    bool good = cpl && cpl->status == DXPU_CPL_SC;
    if (f->setup == SETUP_DONE || (uint16_t)(request >> 32) != f->setups || !f->asked)
        return;
    f->asked--;
    if (f->setup == SETUP_READ && index < CONFIG_DWORDS && good && cpl->payload.len == 4)
        memcpy(f->image + index * 4u, cpl->payload.ptr, 4);
    else if (f->setup == SETUP_READ && index >= 64 && cpl)
        memset(f->image + index * 4u, 0, 4);
    else if (f->setup == SETUP_READ || !good)
        retry_setup(f, "it does not answer as one does");
}

/* It lost its BARs and interrupts. */
static void after_reset(direct_function *f)
{
    set_intx(f, false);
    if (!f->known)
        return; /* it is being read, or will be */
    shadow_reset(&f->shadow);
    begin_setup(f, SETUP_PLACE);
}

static void reset_device(direct_function *f)
{
    f->resets++;
    f->unready = false; /* it is waited for again */
    slot_event(f->slot, DXPU_EVENT_HOT_RESET, DXPU_EVENT_ON);
    slot_event(f->slot, DXPU_EVENT_HOT_RESET, 0);
    after_reset(f);
}

/* ==== 2  Accesses ============================================================================= */

/* What the device may reach has changed: notify its box, ahead of what the guest does next. */
static void tell_reach(direct_function *f)
{
    if (access_memory(f->vfu, &f->memory_changes, &f->memory))
        slot_reach(f->slot);
}

static void read_config(direct_function *f, const dxpu_vfu_access *v, guest_access *a)
{
    for (uint32_t i = 0, n; i < v->bytes; i += n) {
        shadow_write w = { (uint32_t)v->offset + i, 0, 0 };
        n = w.bytes = dxpu_request_next(w.at, v->bytes - i, 4);
        if (shadow_is_own(&f->shadow, w.at, n))
            continue;
        if (send_config(f, &w, false, access_part(&f->accesses, a, i, n, w.at & 3)))
            a->tlps++;
        else
            a->missing = true;
    }
}

/* To the device; the bytes of the part only say that something is to come back. */
static void write_device(direct_function *f, const shadow_write *w, guest_access *a)
{
    if (send_config(f, w, true, access_part(&f->accesses, a, 0, 4, 0)) && a)
        a->tlps++;
}

/* Of a dword the bytes that are not all the host's. */
static void forward(direct_function *f, uint32_t at, const uint8_t *data, uint32_t bytes,
                    guest_access *a)
{
    for (uint32_t i = 0, n; i < bytes; i += n) {
        bool own = shadow_is_own(&f->shadow, at + i, 1);
        shadow_write w = { at + i, 0, 0 };
        for (n = 0; i + n < bytes && shadow_is_own(&f->shadow, at + i + n, 1) == own; n++)
            w.value |= (uint32_t)data[i + n] << 8 * n;
        w.bytes = n;
        if (!own)
            write_device(f, &w, a);
    }
}

/* One dword's part of a write; `a` is NULL when there is nothing to answer. */
static void write_dword(direct_function *f, uint32_t at, const uint8_t *data, uint32_t bytes,
                        guest_access *a)
{
    uint8_t given[4] = { 0 };
    shadow_write w[SHADOW_WRITES_MAX];
    shadow_effect e;
    memcpy(given, data, bytes);
    e = shadow_take(&f->shadow, at, given, bytes);
    if (e.forward)
        forward(f, at, given, bytes, a);
    if (e.interrupts) { /* behind the guest's own, which they correct */
        unsigned count = shadow_interrupts(&f->shadow, w);
        for (unsigned i = 0; i < count; i++)
            write_device(f, &w[i], a);
    }
    if (e.flr)
        after_reset(f);
}

static void write_config(direct_function *f, const dxpu_vfu_access *v, const uint8_t *data,
                         guest_access *a)
{
    for (uint32_t i = 0, n; i < v->bytes && f->setup == SETUP_DONE; i += n) { /* until an FLR */
        uint32_t at = (uint32_t)v->offset + i;
        n = dxpu_request_next(at, v->bytes - i, 4);
        write_dword(f, at, data + i, n, a);
    }
}

/* a: of a read, else data. */
static void access_bar(direct_function *f, const dxpu_vfu_access *v, const uint8_t *data,
                       guest_access *a)
{
    const shadow_bar *bar = &f->shadow.bar[v->region];
    uint64_t address = bar->address + v->offset;
    if (a)
        f->memory_reads++;
    else
        f->memory_writes++;
    if (shadow_is_table(&f->shadow, v->region, v->offset, v->bytes)) {
        f->dropped += !a; /* it is the host's; the virtual machine monitor has one of its own */
        return;
    }
    if (!a && (access_append(&f->accesses, address, data, v->bytes) ||
               (bar->prefetchable && access_begin(&f->accesses, address, data, v->bytes))))
        return;
    access_transfer(&f->accesses, address, v->bytes, data, a);
}

/* access_table.unread.  Of a device that is there none: what it does not answer is not over. */
static void on_unread(void *user, guest_access *a, uint32_t at, uint32_t bytes)
{
    const direct_function *f = user;
    if (a->region < SHADOW_BARS)
        dxpu_vswitch_values_read(&f->lost, 0, a->region, a->offset + at, a->data + at, bytes);
}

/* access_table.answers */
static void on_answer(void *user, guest_access *a)
{
    const direct_function *f = user;
    if (a->region == DXPU_VFU_CONFIG && is_reached(f))
        shadow_answer(&f->shadow, (uint32_t)a->offset, a->data, a->bytes);
}

/* ==== 3  What the client does ================================================================= */

/* Is the client not to be read: the device is being set up for it, or takes too little. */
static void update_pause(direct_function *f)
{
    dxpu_vfu_pause(f->vfu, is_reached(f) && (f->setup != SETUP_DONE || slot_congested(f->slot)));
}

/* More than a processor reads at once: the virtual machine monitor looks at all there is. */
static void read_all(direct_function *f, const dxpu_vfu_access *v)
{
    uint8_t ones[SHADOW_BYTES];
    if (v->region == DXPU_VFU_CONFIG && is_reached(f)) {
        (void)dxpu_vfu_reply_read(f->vfu, v->token, f->shadow.shown + v->offset, v->bytes);
    } else if (v->bytes <= sizeof ones) {
        memset(ones, 0xff, sizeof ones);
        if (v->region < SHADOW_BARS)
            dxpu_vswitch_values_read(&f->lost, 0, v->region, v->offset, ones, v->bytes);
        (void)dxpu_vfu_reply_read(f->vfu, v->token, ones, v->bytes);
    } else {
        (void)dxpu_vfu_reply_error(f->vfu, v->token, EINVAL);
    }
}

static void on_read(void *user, const dxpu_vfu_access *v)
{
    direct_function *f = user;
    guest_access *a;
    if (v->bytes > ACCESS_BYTES) {
        read_all(f, v);
        return;
    }
    a = access_new(&f->accesses, v);
    if (!a) {
        (void)dxpu_vfu_reply_error(f->vfu, v->token, EBUSY);
        return;
    }
    tell_reach(f);
    access_flush(&f->accesses);
    if (is_reached(f) && v->region == DXPU_VFU_CONFIG) {
        f->config_reads++;
        read_config(f, v, a);
    } else if (is_reached(f) && v->region < SHADOW_BARS) {
        access_bar(f, v, NULL, a);
    } else {
        on_unread(f, a, 0, a->bytes);
    }
    access_sent(&f->accesses, a);
}

/* A configuration write is answered when the device has completed it: what a processor writes to
   memory behind it must not pass it. */
static void on_write(void *user, const dxpu_vfu_access *v, const uint8_t *data)
{
    direct_function *f = user;
    bool config = v->region == DXPU_VFU_CONFIG;
    guest_access *a = config && v->token ? access_new_write(&f->accesses, v) : NULL;
    tell_reach(f);
    if (config)
        access_flush(&f->accesses);
    f->dropped += !is_reached(f);
    if (is_reached(f) && config) {
        f->config_writes++;
        write_config(f, v, data, a);
    } else if (is_reached(f) && v->region < SHADOW_BARS) {
        access_bar(f, v, data, NULL);
    }
    if (a)
        access_sent(&f->accesses, a);
    else if (v->token)
        (void)dxpu_vfu_reply_write(f->vfu, v->token);
    update_pause(f);
}

static void on_reset(void *user, uint64_t token)
{
    direct_function *f = user;
    access_flush(&f->accesses);
    if (!f->live) {
        (void)dxpu_vfu_reply_write(f->vfu, token);
        return;
    }
    answer_reset(f); /* an earlier one, of which this makes another */
    f->reset_token = token;
    reset_device(f);
    go_on(f);
    update_pause(f); /* what comes behind it in the same burst waits, too (V-44) */
}

static void on_connected(void *user)
{
    direct_function *f = user;
    f->live = f->known;
    f->unready = false;
    log_note("slot %u: a guest is connected", f->slot->number);
}

static void on_disconnected(void *user, const char *why)
{
    direct_function *f = user;
    log_note("slot %u: the guest is gone: %s", f->slot->number, why);
    access_forget(&f->accesses);
    f->accesses.line.bytes = 0;
    f->reset_token = 0;
    hide(f); /* until the device is as after power-up */
    if (f->live || (f->there && f->setup == SETUP_DONE)) {
        slot_power_cycle(f->slot);
        reset_device(f);
    }
    f->live = f->unready = false;
    f->lost.count = 0;
    tell_reach(f);
    go_on(f);
}

/* ==== 4  What the slot does =================================================================== */

static bool on_dma_read(void *user, uint64_t address, void *data, size_t bytes)
{
    direct_function *f = user;
    return f->live && dxpu_vfu_dma_read(f->vfu, address, data, bytes) == DXPU_OK;
}

static bool on_dma_write(void *user, uint64_t address, const void *data, size_t bytes)
{
    direct_function *f = user;
    return f->live && dxpu_vfu_dma_write(f->vfu, address, data, bytes) == DXPU_OK;
}

/* One of the messages that were programmed here (S-103): it becomes an eventfd's. */
static bool on_msi(void *user, uint64_t address, uint32_t data)
{
    direct_function *f = user;
    uint32_t vector;
    bool msix;
    if (f->live && shadow_vector(&f->shadow, address, data, &msix, &vector))
        (void)dxpu_vfu_irq_raise(f->vfu, msix ? DXPU_VFU_MSIX : DXPU_VFU_MSI, vector);
    return true; /* what the client has not asked for is not received */
}

static int on_route(void *user, unsigned slot, const dxpu_tlp *t)
{
    (void)user;
    (void)slot;
    (void)t;
    return 0; /* to memory: a function of its own has no neighbor */
}

static guest_slot *on_peer(void *user, unsigned slot)
{
    direct_function *f = user;
    (void)slot;
    return f->slot;
}

static void on_reach(void *user, unsigned slot, windows *out)
{
    direct_function *f = user;
    (void)slot;
    (void)access_memory(f->vfu, &f->memory_changes, &f->memory);
    (void)windows_copy(out, &f->memory);
}

/* INTx; errors and PMEs have no root port here that reports them. */
static bool on_message(void *user, unsigned slot, const dxpu_tlp *t)
{
    direct_function *f = user;
    (void)slot;
    if (t->requester != DIRECT_DEVICE || dxpu_message_action(t, DXPU_UPSTREAM) == DXPU_MSG_REFUSE)
        return false;
    if (t->message_code >= INTX_ASSERT && t->message_code <= INTX_LAST) {
        if (t->message_code != INTX_ASSERT && t->message_code != INTX_DEASSERT)
            return false;
        if (f->live)
            set_intx(f, t->message_code == INTX_ASSERT);
    }
    return true;
}

static bool on_crs(void *user, unsigned slot, const dxpu_tlp *req, dxpu_tlp *cpl, uint8_t data[4])
{
    (void)user;
    (void)slot;
    (void)req;
    (void)cpl;
    (void)data;
    return false;
}

static uint32_t on_mps(void *user, unsigned slot)
{
    const direct_function *f = user;
    (void)slot;
    return 128u << f->shadow.mps;
}

static void on_completion(void *user, const dxpu_tlp *cpl, uint64_t part, bool last)
{
    direct_function *f = user;
    if (!is_setup(part))
        access_completed(&f->accesses, cpl, part, last);
    else if (last)
        setup_answered(f, cpl, part);
}

/* What the client that was shown the device reads of it from now on. */
static void on_lost(void *user, unsigned slot, const dxpu_vswitch_values *values)
{
    direct_function *f = user;
    (void)slot;
    if (f->live)
        f->lost = *values;
}

static void on_filled(void *user, unsigned slot, bool filled)
{
    direct_function *f = user;
    (void)slot;
    f->there = filled;
    f->known = f->live = f->unready = false;
    answer_reset(f);
    begin_setup(f, filled ? SETUP_READ : SETUP_DONE);
    set_intx(f, false);
    if (!dxpu_vfu_is_connected(f->vfu))
        hide(f);
}

/* ==== 5  The form ============================================================================= */

static direct *direct_of(guest *g)
{
    return (direct *)(void *)g;
}

static const direct *direct_seen(const guest *g)
{
    return (const direct *)(const void *)g;
}

static int open_socket(direct *d, unsigned n)
{
    direct_function *f = &d->functions[n];
    const dxpu_vfu_callbacks cb = { .user = f,
                                    .read = on_read,
                                    .write = on_write,
                                    .reset = on_reset,
                                    .connected = on_connected,
                                    .disconnected = on_disconnected };
    struct epoll_event e = { .events = EPOLLIN, .data.u32 = n };
    char path[GUEST_SOCKET_BYTES];
    dxpu_vfu_config cfg;
    const char *why;
    dxpu_vfu_config_default(&cfg);
    cfg.path = guest_socket(f->set, n, path);
    cfg.mode = f->set->socket_mode == GUEST_SOCKET_GROUP ? 0660 : 0600;
    cfg.hidden = true;
    f->vfu = dxpu_vfu_open(&cfg, &cb, &why);
    if (!f->vfu || epoll_ctl(d->epoll, EPOLL_CTL_ADD, dxpu_vfu_fd(f->vfu), &e)) {
        log_error("--vfio-user %s: %s (%s)", path, f->vfu ? "epoll" : why, strerror(errno));
        return -1;
    }
    f->accesses.vfu = f->vfu;
    return 0;
}

static int open_function(direct *d, unsigned n, const slot_line *line)
{
    direct_function *f = &d->functions[n];
    slot_host host = { f,    on_dma_read, on_dma_write, on_msi, on_route,      on_peer,   on_reach,
                       NULL, on_message,  on_crs,       on_mps, on_completion, on_filled, on_lost };
    f->slot = &d->guest.slots[n];
    f->set = d->guest.set;
    f->host = host;
    access_init(&f->accesses, d->guest.hold_ns);
    f->accesses.answers = on_answer;
    f->accesses.send = send_memory;
    f->accesses.unread = on_unread;
    f->accesses.user = f;
    if (slot_init(f->slot, n + 1, &f->host, line, d->guest.hold_ns))
        return -1;
    f->slot->push.offered = f->set->push;
    return open_socket(d, n);
}

static void direct_close(guest *g)
{
    direct *d = direct_of(g);
    for (unsigned i = 0; d->functions && i < g->set->slots; i++) {
        dxpu_vfu_close(d->functions[i].vfu);
        windows_free(&d->functions[i].memory);
    }
    if (d->epoll >= 0)
        close(d->epoll);
    free(d->functions);
    free(d);
}

static guest *direct_open(const guest_settings *set, const slot_line *const *lines,
                          uint64_t hold_ns)
{
    direct *d = calloc(1, sizeof *d);
    int rc;
    if (!d)
        return NULL;
    d->guest.set = set;
    d->guest.hold_ns = hold_ns;
    d->guest.slots = calloc(set->slots, sizeof *d->guest.slots);
    d->functions = calloc(set->slots, sizeof *d->functions);
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    rc = d->guest.slots && d->functions && d->epoll >= 0 ? 0 : -1;
    if (rc)
        log_error("--direct: %s", strerror(errno));
    for (unsigned i = 0; !rc && i < set->slots; i++)
        rc = open_function(d, i, lines[i]);
    if (!rc)
        return &d->guest;
    guest_close(&d->guest);
    return NULL;
}

static int direct_fd(const guest *g)
{
    return direct_seen(g)->epoll;
}

static int process(direct_function *f)
{
    uint64_t before = dxpu_vfu_count(f->vfu)->messages;
    char path[GUEST_SOCKET_BYTES];
    int rc = dxpu_vfu_process(f->vfu);
    access_flush(&f->accesses); /* nothing is kept between calls */
    tell_reach(f);
    go_on(f);
    update_pause(f);
    if (rc == DXPU_OK)
        return (int)(dxpu_vfu_count(f->vfu)->messages - before);
    log_error("slot %u: %s: %s", f->slot->number, guest_socket(f->set, f->slot->number - 1, path),
              strerror(errno));
    return -1;
}

static int direct_process(guest *g)
{
    direct *d = direct_of(g);
    struct epoll_event e[TURN_EVENTS];
    int n = epoll_wait(d->epoll, e, TURN_EVENTS, 0), all = 0;
    for (int i = 0; i < n; i++) {
        int rc = process(&d->functions[e[i].data.u32]);
        if (rc < 0)
            return rc;
        all += rc;
    }
    return all;
}

static const dxpu_vfu *direct_server(const guest *g, unsigned n)
{
    return direct_seen(g)->functions[n].vfu;
}

static void direct_settle(guest *g, unsigned slot)
{
    direct_function *f = &direct_of(g)->functions[slot - 1];
    go_on(f);
    update_pause(f);
}

static void direct_tick(guest *g, uint64_t now)
{
    for (unsigned i = 0; i < g->set->slots; i++) {
        direct_function *f = &direct_of(g)->functions[i];
        access_expire(&f->accesses, now);
        if (f->retry_ns && now >= f->retry_ns)
            begin_setup(f, f->known ? SETUP_PLACE : SETUP_READ);
        go_on(f);
        update_pause(f);
    }
}

static uint64_t direct_next_ns(const guest *g)
{
    uint64_t next = DXPU_NEVER;
    for (unsigned i = 0; i < g->set->slots; i++) {
        const direct_function *f = &direct_seen(g)->functions[i];
        next = f->accesses.deadline_ns < next ? f->accesses.deadline_ns : next;
        next = f->retry_ns && f->retry_ns < next ? f->retry_ns : next;
    }
    return next;
}

static bool direct_looks(const guest *g, unsigned slot)
{
    const direct_function *f = &direct_seen(g)->functions[slot - 1];
    return f->there && f->setup == SETUP_READ && !f->slot->probe.failed;
}

static plug_view direct_plug(const guest *g, unsigned slot)
{
    const direct_function *f = &direct_seen(g)->functions[slot - 1];
    bool connected = dxpu_vfu_is_connected(f->vfu);
    const plug_view v = { connected    ? f->live ? PLUG_USED : PLUG_LOST
                          : f->offered ? PLUG_OFFERED
                          : f->known   ? PLUG_SETUP
                                       : PLUG_NONE,
                          f->msix, false };
    return v;
}

static void report_function(const direct_function *f, report *r)
{
    report_number(r, "live", f->live);
    report_number(r, "config_reads", f->config_reads);
    report_number(r, "config_writes", f->config_writes);
    report_number(r, "memory_reads", f->memory_reads);
    report_number(r, "memory_writes", f->memory_writes);
    report_number(r, "memory_writes_combined", f->accesses.line.combined);
    report_number(r, "dropped", f->dropped);
    report_number(r, "resets", f->resets);
    report_number(r, "setups_failed", f->setups_failed);
    report_number(r, "timeouts", f->accesses.timeouts);
}

static void direct_report(const guest *g, report *r)
{
    for (unsigned i = 0; i < g->set->slots; i++) {
        char name[20];
        snprintf(name, sizeof name, "function_%u", i + 1);
        report_open(r, name);
        report_function(&direct_seen(g)->functions[i], r);
        report_close(r);
    }
}

const guest_form direct_form = { .numbered = true,
                                 .open = direct_open,
                                 .close = direct_close,
                                 .fd = direct_fd,
                                 .process = direct_process,
                                 .server = direct_server,
                                 .settle = direct_settle,
                                 .tick = direct_tick,
                                 .next_ns = direct_next_ns,
                                 .looks = direct_looks,
                                 .plug = direct_plug,
                                 .report = direct_report };
