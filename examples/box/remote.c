/* remote.c - see remote.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Object   2 Presence   3 What the server describes   4 What software sets
              5 Windows   6 Resets   7 Accesses to BARs   8 The server's DMA
              9 The client's callbacks   10 Kind */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "remote.h"

#include "connector.h"
#include "dxpu_libevent.h"
#include "dxpu_vfio_user_client.h"
#include "function.h"
#include "log.h"
#include "maps.h"
#include "virtio.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ==== 1  Object =============================================================================== */

enum {
    REQUESTS = 1000,        /* messages unanswered at a time */
    READS = 64,             /* of the host at a time, each of up to four messages */
    PIECES_MAX = 4,         /* messages for one TLP: runs of enabled bytes, naturally aligned */
    FETCHES = 64,           /* DMA reads of the server at a time */
    TRANSFER_BYTES = 65536, /* of one DMA message */
    OUTPUT_BYTES = 1 << 20, /* beside what is set aside for answers to all of these */
    QUEUE_BYTES = OUTPUT_BYTES + FETCHES * (TRANSFER_BYTES + 32),
    RETRY_FIRST_MS = 50, /* between attempts to connect, doubled each time */
    RETRY_MOST_MS = 2000,
    LASTED_MS = 10000, /* present for this long: it is no server that only comes and goes */
    TURNS = 64,        /* of the client, in one tick */
    BURST = 16,        /* messages in one */
    TURNS_NS = 200000, /* all of them: a server sends as fast as it likes (S-161) */
    OWN_MAX = (FN_CAP_END - FN_CAP_MSI) / 4,
    CONFIG_BYTES = 256,
    NVME_CLASS = 0x010802,
    NVME_CMBMSC = 0x50,
    VIRTIO_CAP_COMMON = 1, /* cfg_type */
    VIRTIO_CAP_DW = 4
};

/* What an answer of the server is for: the upper bits of a request's tag. */
enum { TAG_NONE, TAG_READ, TAG_RESET, TAG_CONFIG, TAG_FLUSH, TAG_MAP };
#define TAG_KIND_SHIFT  56
#define TAG_ROUND_SHIFT 40
#define TAG_INDEX_SHIFT 16

#define REMOTE_COUNTERS(X)                                                                         \
    X(reads)                                                                                       \
    X(writes)                                                                                      \
    X(accesses_refused)                                                                            \
    X(dma_reads)                                                                                   \
    X(dma_writes)                                                                                  \
    X(dma_refused)                                                                                 \
    X(interrupts_dropped)                                                                          \
    X(maps_refused)                                                                                \
    X(connects)                                                                                    \
    X(lost)                                                                                        \
    X(resets)

/* A read of the host that waits for the server. */
typedef struct read_job {
    bool used, failed;
    unsigned pieces; /* that are not answered */
    dxpu_tlp t;
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
} read_job;

/* A DMA read of the server, on its way through the host's memory. */
typedef struct fetch_job {
    fn_fetch fetch;
    uint64_t token; /* 0: free */
    uint8_t data[TRANSFER_BYTES];
} fetch_job;

typedef enum remote_state { ABSENT, ASKING, RESETTING, PRESENT } remote_state;

typedef struct remote {
    fn fn;
    bool built; /* fn describes a device */
    const device_port *port;
    device_settings set;
    device_medium medium;
    char path[108];
    dxpu_vfuc *client;
    int epoll, timer, connector;
    remote_state state;
    uint64_t retry_ms, there_ns; /* there_ns: since when it is present */
    const char *explained;       /* why it is absent, as it was last reported */
    unsigned round;              /* answers of before a reset have another one */

    uint8_t config[CONFIG_BYTES]; /* the server's, as it was after its reset */
    unsigned msi_at, msix_at;     /* its capabilities, 0: none */
    fn_own own[OWN_MAX];
    uint16_t sent_command;                /* what the server has been sent */
    uint32_t sent_vectors[DXPU_VFU_IRQS]; /* of MSI and MSI-X */

    dxpu_windows windows; /* that are granted */
    maps maps;            /* and what the server knows of them */
    bool windows_differ, missed_window, missed_vectors;
    read_job *reads;
    fetch_job *fetches;

    uint64_t write_token; /* of a DMA write that is not through, while `write_left` */
    uint64_t write_at;
    uint32_t write_done, write_left;
    uint8_t write_data[TRANSFER_BYTES];
#define REMOTE_FIELD(name) uint64_t name;
    struct {
        REMOTE_COUNTERS(REMOTE_FIELD)
    } count;
#undef REMOTE_FIELD
} remote;

static uint64_t tag_of(const remote *r, unsigned kind, unsigned index, unsigned at)
{
    return (uint64_t)kind << TAG_KIND_SHIFT | (uint64_t)(r->round & 0xffff) << TAG_ROUND_SHIFT |
           (uint64_t)index << TAG_INDEX_SHIFT | at;
}

/* ==== 2  Presence ============================================================================= */

static void set_timer(const remote *r, uint64_t ms)
{
    struct itimerspec t;
    memset(&t, 0, sizeof t);
    t.it_value.tv_sec = (time_t)(ms / 1000);
    t.it_value.tv_nsec = (long)(ms % 1000) * 1000000 + 1;
    (void)timerfd_settime(r->timer, 0, &t, NULL);
}

static void report_presence(remote *r, bool there)
{
    if (r->port->present)
        r->port->present(r->port->user, there);
}

/* Said once for each reason. */
static void explain(remote *r, const char *why)
{
    if (r->explained != why)
        log_warning("%s: %s; trying again", r->path, why);
    r->explained = why;
}

/* The server is answered, if it is there: an open command would keep its place in the client. */
static void forget_work(remote *r)
{
    for (unsigned i = 0; i < READS; i++)
        r->reads[i].used = false;
    for (unsigned i = 0; i < FETCHES; i++) {
        if (r->fetches[i].token)
            (void)dxpu_vfuc_dma_reply_error(r->client, r->fetches[i].token, ECANCELED);
        r->fetches[i].token = 0;
    }
    if (r->write_token)
        (void)dxpu_vfuc_dma_reply_error(r->client, r->write_token, ECANCELED);
    r->write_token = 0;
    r->write_left = 0;
    r->round++;
}

/* Later each time, also when it is the connection that does not last. */
static void try_later(remote *r, const char *why)
{
    explain(r, why);
    set_timer(r, r->retry_ms);
    r->retry_ms = r->retry_ms * 2 < RETRY_MOST_MS ? r->retry_ms * 2 : RETRY_MOST_MS;
}

static void try_to_connect(remote *r)
{
    if (dxpu_vfuc_is_connected(r->client))
        return;
    r->count.connects++;
    if (connector_ask(r->connector))
        try_later(r, "the process that connects is gone: restart the box");
}

static void take_connection(remote *r)
{
    int fd = connector_take(r->connector);
    if (fd >= 0 && dxpu_vfuc_adopt(r->client, fd) == DXPU_OK) {
        r->state = ASKING;
        return;
    }
    if (fd >= 0) {
        (void)close(fd);
        try_later(r, "the connection cannot be used");
    } else if (errno == EPIPE) {
        (void)epoll_ctl(r->epoll, EPOLL_CTL_DEL, r->connector, NULL);
        try_later(r, "the process that connects is gone: restart the box");
    } else if (errno != EAGAIN) {
        try_later(r, errno == EACCES  ? "no permission to connect"
                     : errno == EBUSY ? "the server accepts no connection now"
                                      : "no server listens there");
    }
}

/* The server described nothing that can be lent. */
static void part(remote *r, const char *why)
{
    dxpu_vfuc_disconnect(r->client, why);
}

/* dxpu_vfuc_callbacks.gone */
static void on_gone(void *user, const char *why)
{
    remote *r = user;
    bool was_present = r->state == PRESENT || r->state == RESETTING;
    if (was_present && dxpu_udp_now_ns() - r->there_ns >= LASTED_MS * 1000000ull) {
        r->retry_ms = RETRY_FIRST_MS;
        r->explained = NULL;
    }
    r->state = ABSENT;
    r->count.lost++;
    forget_work(r);
    maps_clear(&r->maps);
    r->windows_differ = true;
    r->missed_window = false;
    memset(r->sent_vectors, 0, sizeof r->sent_vectors);
    dxpu_vfuc_pause(r->client, false);
    try_later(r, why);
    if (was_present && r->built)
        report_presence(r, false);
}

/* ==== 3  What the server describes ============================================================ */

static uint32_t config_dword(const remote *r, unsigned at)
{
    return dxpu_get_le32(r->config + at);
}

/* NULL, or why this BAR cannot be lent.  An I/O BAR, which no guest behind VMD can reach, is left
   out. */
static const char *describe_bar(const remote *r, const dxpu_vfuc_info *d, unsigned i, fn_setup *s)
{
    uint32_t flags = config_dword(r, PCI_BAR0 * 4 + i * 4) & 0xf;
    uint64_t bytes = 16;
    if (d->region[i].bytes == 0 || (flags & 1))
        return NULL;
    while (bytes < d->region[i].bytes && bytes < (uint64_t)1 << 62)
        bytes *= 2;
    if (d->region[i].bytes > bytes || (!(flags & PCI_BAR_64) && bytes > (uint64_t)1 << 31) ||
        ((flags & PCI_BAR_64) && i == PCI_BARS - 1))
        return "the server's device has a BAR of an impossible size";
    s->bar[i].bytes = bytes;
    s->bar[i].flags = flags & (PCI_BAR_64 | PCI_BAR_PREFETCHABLE);
    return NULL;
}

/* `count` entries of `each` bytes lie in the BAR that the low bits of `place` name. */
static bool lies_in_bar(const fn_setup *s, uint32_t place, uint32_t count, uint32_t each)
{
    uint32_t bar = place & 7;
    return bar < PCI_BARS && s->bar[bar].bytes >= (uint64_t)count * each &&
           (place & ~(uint32_t)7) <= s->bar[bar].bytes - (uint64_t)count * each;
}

static void describe_msix(remote *r, const dxpu_vfuc_info *d, unsigned at, fn_setup *s)
{
    uint32_t count = (config_dword(r, at) >> 16 & 0x7ff) + 1;
    if (at + 12 > CONFIG_BYTES)
        return;
    count = count < FN_MSIX_MAX ? count : FN_MSIX_MAX;
    count = count < d->irqs[DXPU_VFU_MSIX] ? count : d->irqs[DXPU_VFU_MSIX];
    s->msix_table = config_dword(r, at + 4);
    s->msix_pba = config_dword(r, at + 8);
    if (!count || !lies_in_bar(s, s->msix_table, count, 16) ||
        !lies_in_bar(s, s->msix_pba, (count + 63) / 64, 8))
        return;
    s->msix = count;
    r->msix_at = at;
}

static void describe_msi(remote *r, const dxpu_vfuc_info *d, unsigned at, fn_setup *s)
{
    uint32_t log2 = config_dword(r, at) >> 17 & 7;
    while (log2 > 0 && (log2 > 5 || (1u << log2) > d->irqs[DXPU_VFU_MSI]))
        log2--;
    if (!d->irqs[DXPU_VFU_MSI])
        return;
    s->msi = true;
    s->msi_log2 = log2;
    r->msi_at = at;
}

static void link_own(fn_own *head, unsigned next)
{
    head->value = (head->value & 0xffff00ffu) | next << 8;
}

/* A vendor-specific capability goes behind those before it, of which **last is the last; that one
   goes on to PCI Express.  Virtio's window into BARs through configuration space, which would have
   to be alive, is left out: drivers do without. */
static void describe_own(remote *r, unsigned at, fn_setup *s, fn_own **last)
{
    unsigned bytes = r->config[at + 2], dwords = (bytes + 3) / 4;
    bool window = dxpu_get_le32(r->config) % 0x10000 == 0x1af4 && r->config[at + 3] == 5;
    fn_own *head = r->own + s->own_count;
    if (window || bytes < 3 || at + dwords * 4 > CONFIG_BYTES || s->own_count + dwords > OWN_MAX)
        return;
    for (unsigned i = 0; i < dwords; i++) {
        head[i].value = config_dword(r, at + i * 4);
        head[i].writable = 0;
    }
    if (*last)
        link_own(*last, FN_CAP_MSI + s->own_count * 4);
    link_own(head, FN_CAP_PCIE);
    *last = head;
    s->own_count += dwords;
}

static void describe_capabilities(remote *r, const dxpu_vfuc_info *d, fn_setup *s)
{
    unsigned at = r->config[PCI_CAPABILITIES * 4] & 0xfc;
    bool listed = config_dword(r, PCI_COMMAND * 4) >> 16 & 0x10;
    fn_own *last = NULL;
    r->msi_at = r->msix_at = 0;
    for (unsigned n = 0; listed && at >= 0x40 && at + 4 <= CONFIG_BYTES && n < 48; n++) {
        if (r->config[at] == 0x11 && !s->msix)
            describe_msix(r, d, at, s);
        else if (r->config[at] == 0x05 && !s->msi)
            describe_msi(r, d, at, s);
        else if (r->config[at] == 0x09)
            describe_own(r, at, s, &last);
        at = r->config[at + 1] & 0xfc;
    }
    if (s->msi && !s->msix) /* both have the same place */
        s->own_count = 0;
    s->own = s->own_count ? r->own : NULL;
    s->msi = s->msi && !s->own;
}

static void function_level_reset(void *user);
static void forget_buffer(remote *r);

/* NULL, or why it cannot be lent. */
static const char *build(remote *r)
{
    const dxpu_vfuc_info *d = dxpu_vfuc_device(r->client);
    fn_setup s;
    memset(&s, 0, sizeof s);
    s.vendor = (uint16_t)config_dword(r, 0);
    s.device = (uint16_t)(config_dword(r, 0) >> 16);
    if (s.vendor == 0xffff || s.vendor == 0 || (r->config[0x0e] & 0x7f) != 0)
        return "the server's configuration space is not of an endpoint";
    s.class_revision = config_dword(r, PCI_CLASS * 4);
    s.subsystem = config_dword(r, PCI_SUBSYSTEM * 4);
    s.has_subsystem = true;
    for (unsigned i = 0; i < PCI_BARS; i++) {
        const char *wrong = describe_bar(r, d, i, &s);
        if (wrong)
            return wrong;
        i += (s.bar[i].flags & PCI_BAR_64) != 0;
    }
    describe_capabilities(r, d, &s);
    s.mps_bytes = r->set.mps_bytes;
    s.mrrs_bytes = r->set.mrrs_bytes;
    s.timeout_ns = r->set.timeout_ns;
    s.errors = true;
    s.serial = r->set.identity;
    fn_init(&r->fn, &s, r->port, r, function_level_reset);
    r->built = true;
    return NULL;
}

/* device_kind.values.  A server has no way to say what it reads when it is gone; of a virtio device
   it is known where its common configuration is (Virtual I/O 1.2, 4.1.4). */
static unsigned remote_values(const void *device, device_value out[DEVICE_VALUES_MAX])
{
    const remote *r = device;
    bool known = r->built && r->fn.set.vendor == VIRTIO_VENDOR;
    for (unsigned i = 0; known && i + VIRTIO_CAP_DW <= r->fn.set.own_count;) {
        uint32_t head = r->own[i].value, bar = r->own[i + 1].value & 0xff;
        if (head >> 24 == VIRTIO_CAP_COMMON && bar < PCI_BARS)
            return virtio_values_at(bar, r->own[i + 2].value, r->own[i + 3].value, out);
        i += ((head >> 16 & 0xff) + 3) / 4;
    }
    return 0;
}

/* ==== 4  What software sets =================================================================== */

static bool send_config(remote *r, uint64_t at, uint16_t value)
{
    uint8_t bytes[2];
    dxpu_put_le16(bytes, value);
    return dxpu_vfuc_write(r->client, DXPU_VFU_CONFIG, at, bytes, 2, false,
                           tag_of(r, TAG_CONFIG, 0, 0)) == DXPU_OK;
}

/* Requests that accesses to BARs may need are not left. */
static bool has_no_room(const remote *r)
{
    return dxpu_vfuc_unanswered(r->client) > REQUESTS / 2 ||
           dxpu_vfuc_waiting_bytes(r->client) > OUTPUT_BYTES / 4;
}

/* Eventfds first, as a virtual machine monitor does, and then the server's own enable bit. */
static void send_vectors(remote *r, unsigned irq, unsigned at, uint16_t enable, uint32_t count)
{
    int rc;
    if (!at || r->sent_vectors[irq] == count)
        return;
    rc = dxpu_vfuc_enable_irqs(r->client, irq, count, tag_of(r, TAG_CONFIG, 0, 0));
    if (rc == DXPU_E_AGAIN && !has_no_room(r) && !r->missed_vectors) {
        log_warning("%s: no file descriptor is left for its interrupts; raise the limit (ulimit "
                    "-n)",
                    r->path);
        r->missed_vectors = true;
    }
    if (rc == DXPU_OK && send_config(r, at + 2, count ? enable : 0))
        r->sent_vectors[irq] = count;
}

static uint16_t msi_control(const remote *r, uint32_t count)
{
    uint32_t log2 = 0;
    while (1u << log2 < count)
        log2++;
    return (uint16_t)(1u | log2 << 4 | (config_dword(r, r->msi_at) >> 16 & 0xff8e));
}

/* Send the server what software has set: what could not be sent is tried again. */
static void send_settings(remote *r)
{
    uint16_t command = r->fn.pci.config[PCI_COMMAND] & 0x0406; /* memory, master, INTx disable */
    uint32_t msi = fn_msi_vectors(&r->fn);
    if (r->state != PRESENT)
        return;
    if (command != r->sent_command && send_config(r, PCI_COMMAND * 4, command))
        r->sent_command = command;
    send_vectors(r, DXPU_VFU_MSIX, r->msix_at, 0x8000, fn_msix_vectors(&r->fn));
    if (r->msi_at)
        send_vectors(r, DXPU_VFU_MSI, r->msi_at, msi_control(r, msi), msi);
}

/* ==== 5  Windows ============================================================================== */

/* Of all addresses: two halves, since a length of 2^64 cannot be said. */
static int map(remote *r, const dxpu_window *w, bool add)
{
    uint64_t bytes = w->last - w->first + 1, tag = tag_of(r, TAG_MAP, 0, 0);
    int rc = DXPU_OK;
    for (unsigned half = 0; half < (bytes ? 1u : 2u) && rc == DXPU_OK; half++) {
        uint64_t first = w->first + ((uint64_t)half << 63), n = bytes ? bytes : (uint64_t)1 << 63;
        rc = add ? dxpu_vfuc_dma_map(r->client, first, n, w->access, tag)
                 : dxpu_vfuc_dma_unmap(r->client, first, n, tag);
    }
    return rc;
}

/* Its accesses there fail: it has reached a limit of its own, or there is no memory. */
static void miss_window(remote *r, const char *why)
{
    r->count.maps_refused++;
    if (!r->missed_window)
        log_warning("%s: %s: its accesses to a window of the host's memory fail", r->path, why);
    r->missed_window = true;
}

/* Bring what the server knows up to what is granted, at once, so that a grant is there before the
   doorbell behind it; as far as there is room for messages: then the next tick goes on.  It asks
   for each access, which is checked when it leaves, so what it knows too much does no harm. */
static void send_windows(remote *r)
{
    maps_step step;
    uint64_t from = 0;
    if (!r->windows_differ || r->state != PRESENT)
        return;
    while (maps_next(&r->maps, &r->windows, &from, &step)) {
        if (has_no_room(r))
            return;
        if (!maps_did(&r->maps, &step, &from)) {
            miss_window(r, "out of memory");
            break;
        }
        if (map(r, &step.window, step.add) != DXPU_OK) {
            part(r, "the server takes no window of memory");
            return;
        }
    }
    r->windows_differ = false;
}

static void change_windows(remote *r, const dxpu_event *e)
{
    (void)dxpu_windows_event(&r->windows, e);
    r->windows_differ = true;
    send_windows(r);
}

/* ==== 6  Resets =============================================================================== */

/* Until the server has answered, what it sends is of the time before. */
static void reset_server(remote *r)
{
    if (r->state != PRESENT)
        return;
    r->count.resets++;
    r->state = RESETTING;
    forget_work(r);
    dxpu_vfuc_pause(r->client, false);
    memset(r->sent_vectors, 0, sizeof r->sent_vectors);
    r->sent_command = 0;
    if ((r->msix_at && dxpu_vfuc_enable_irqs(r->client, DXPU_VFU_MSIX, 0,
                                             tag_of(r, TAG_CONFIG, 0, 0)) != DXPU_OK) ||
        (r->msi_at && dxpu_vfuc_enable_irqs(r->client, DXPU_VFU_MSI, 0,
                                            tag_of(r, TAG_CONFIG, 0, 0)) != DXPU_OK) ||
        dxpu_vfuc_reset(r->client, tag_of(r, TAG_RESET, 0, 0)) != DXPU_OK ||
        !send_config(r, PCI_COMMAND * 4, 0))
        part(r, "the server cannot be reset now");
}

/* fn.flr */
static void function_level_reset(void *user)
{
    remote *r = user;
    for (unsigned i = 0; i < FETCHES; i++) {
        if (r->fetches[i].token)
            fn_fetch_cancel(&r->fn, &r->fetches[i].fetch);
    }
    reset_server(r);
    fn_reset(&r->fn);
}

/* What an NVMe controller keeps over each reset that its server knows (NVMe 1.4, 7.3.2): where its
   memory buffer is.  No driver goes on now.  Without a buffer the register is reserved. */
static void forget_buffer(remote *r)
{
    static const uint8_t zeros[8];
    int rc = DXPU_OK;
    if (r->built && (r->state == PRESENT || r->state == RESETTING) &&
        r->fn.set.class_revision >> 8 == NVME_CLASS)
        rc = dxpu_vfuc_write(r->client, 0, NVME_CMBMSC, zeros, sizeof zeros, true, 0);
    if (rc == DXPU_E_AGAIN) /* the end of the connection is the end of it, too */
        part(r, "the server has stopped reading");
}

static void link_reset(remote *r)
{
    if (!r->built)
        return;
    reset_server(r);
    fn_link_reset(&r->fn);
}

/* ==== 7  Accesses to BARs ===================================================================== */

/* Bytes from `at` on that are one message: up to 8 naturally aligned, as a processor would, more as
   they are. */
static uint32_t piece_bytes(uint64_t at, uint32_t left)
{
    uint32_t bytes = 8;
    if (left > 8)
        return left;
    while (bytes > left || at % bytes)
        bytes /= 2;
    return bytes;
}

typedef struct piece {
    uint32_t skip, bytes; /* from the first dword of the request on */
} piece;

static bool byte_enabled(const dxpu_tlp *t, uint32_t at)
{
    return pci_enabled(t, at / 4) >> at % 4 * 8 & 1;
}

/* The runs of enabled bytes, in pieces.  Returns how many there are: only requests of one or two
   dwords have gaps. */
static unsigned cut(const dxpu_tlp *t, uint64_t offset, piece out[PIECES_MAX * 2])
{
    uint32_t at = 0, end = t->length_dw * 4u, run;
    unsigned count = 0;
    while (at < end && count < PIECES_MAX * 2) {
        if (!byte_enabled(t, at)) {
            at++;
            continue;
        }
        for (run = at; run < end && byte_enabled(t, run); run++)
            continue;
        out[count].skip = at;
        out[count].bytes = piece_bytes(offset + at, run - at);
        at += out[count++].bytes;
    }
    return count;
}

static void finish_read(remote *r, read_job *j)
{
    j->used = false;
    if (j->failed)
        fn_unsupported(&r->fn, &j->t);
    else
        pci_complete_read(&r->fn.pci, &j->t, j->data);
}

/* MSI-X, which is here.  False: the request is for the server. */
static bool read_msix(remote *r, const dxpu_tlp *t, int bar, uint64_t offset)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES];
    bool any = false;
    for (uint32_t i = 0; i < t->length_dw; i++) {
        uint32_t value = 0;
        any |= fn_msix_read(&r->fn, bar, offset + i * 4, &value);
        dxpu_put_le32(data + (size_t)i * 4, value);
    }
    if (any)
        pci_complete_read(&r->fn.pci, t, data);
    return any;
}

static read_job *free_read(const remote *r)
{
    for (unsigned i = 0; i < READS; i++) {
        if (!r->reads[i].used)
            return &r->reads[i];
    }
    return NULL;
}

/* A read of no byte brings nothing, and comes back when all that was written before is done. */
static int ask_pieces(remote *r, read_job *j, int bar, uint64_t offset)
{
    piece p[PIECES_MAX * 2];
    unsigned index = (unsigned)(j - r->reads), count = cut(&j->t, offset, p);
    int rc = DXPU_OK;
    if (!count) {
        j->pieces = 1;
        return dxpu_vfuc_read(r->client, DXPU_VFU_CONFIG, 0, 4, tag_of(r, TAG_FLUSH, index, 0));
    }
    for (unsigned i = 0; i < count && rc == DXPU_OK; i++) {
        rc = dxpu_vfuc_read(r->client, (uint32_t)bar, offset + p[i].skip, p[i].bytes,
                            tag_of(r, TAG_READ, index, p[i].skip));
        j->pieces += rc == DXPU_OK;
    }
    return rc;
}

static void read_bar(remote *r, const dxpu_tlp *t)
{
    uint64_t offset;
    int bar = fn_locate(&r->fn, t, &offset);
    read_job *j = free_read(r);
    if (bar < 0 || r->state != PRESENT || !j) {
        fn_unsupported(&r->fn, t);
        return;
    }
    if (read_msix(r, t, bar, offset))
        return;
    r->count.reads++;
    memset(j->data, 0, t->length_dw * 4u);
    j->t = *t;
    j->t.payload.ptr = NULL;
    j->t.payload.len = 0;
    j->used = true;
    j->pieces = 0;
    j->failed = ask_pieces(r, j, bar, offset) != DXPU_OK;
    r->count.accesses_refused += j->failed;
    if (!j->pieces)
        finish_read(r, j);
}

static bool write_msix(remote *r, const dxpu_tlp *t, int bar, uint64_t offset)
{
    bool any = false;
    for (uint32_t i = 0; i < t->length_dw; i++)
        any |= fn_msix_write(&r->fn, bar, offset + i * 4,
                             dxpu_get_le32(t->payload.ptr + (size_t)i * 4), pci_enabled(t, i));
    return any;
}

static void write_bar(remote *r, const dxpu_tlp *t)
{
    piece p[PIECES_MAX * 2];
    uint64_t offset = 0;
    int bar = fn_locate(&r->fn, t, &offset);
    unsigned count;
    if (fn_refuse_write(&r->fn, t, bar) || r->state != PRESENT || write_msix(r, t, bar, offset))
        return;
    r->count.writes++;
    count = cut(t, offset, p);
    for (unsigned i = 0; i < count; i++) {
        int rc = dxpu_vfuc_write(r->client, (uint32_t)bar, offset + p[i].skip,
                                 t->payload.ptr + p[i].skip, p[i].bytes, true, 0);
        r->count.accesses_refused += rc == DXPU_E_ARG;
        if (rc == DXPU_E_AGAIN) /* busy() is asked before each TLP */
            part(r, "the server has stopped reading");
    }
}

/* ==== 8  The server's DMA ===================================================================== */

static bool may_dma(const remote *r)
{
    return r->state == PRESENT && fn_masters(&r->fn);
}

/* fn_fetch.done */
static void fetched(void *user, fn_fetch *x)
{
    remote *r = user;
    fetch_job *j = x->owner;
    if (x->failed)
        (void)dxpu_vfuc_dma_reply_error(r->client, j->token, EFAULT);
    else
        (void)dxpu_vfuc_dma_reply_read(r->client, j->token, j->data, x->bytes);
    j->token = 0;
}

/* dxpu_vfuc_callbacks.dma_read */
static void on_dma_read(void *user, uint64_t token, uint64_t address, uint32_t bytes)
{
    remote *r = user;
    fetch_job *j = NULL;
    for (unsigned i = 0; i < FETCHES && !j; i++)
        j = r->fetches[i].token ? NULL : &r->fetches[i];
    if (!may_dma(r) || !j || bytes > TRANSFER_BYTES) {
        r->count.dma_refused++;
        (void)dxpu_vfuc_dma_reply_error(r->client, token, EPERM);
        return;
    }
    r->count.dma_reads++;
    memset(&j->fetch, 0, sizeof j->fetch);
    j->token = token;
    j->fetch.address = address;
    j->fetch.to = j->data;
    j->fetch.bytes = bytes;
    j->fetch.done = fetched;
    j->fetch.owner = j;
    fn_fetch_start(&r->fn, &j->fetch);
    (void)fn_fetch_ask(&r->fn);
}

/* Go on with a DMA write while there is room; the client is paused until it is through. */
static void go_on_writing(remote *r)
{
    while (r->write_left && may_dma(r) && fn_room(&r->fn)) {
        uint32_t part_bytes =
            fn_write_one(&r->fn, r->write_at, r->write_data + r->write_done, r->write_left);
        r->write_at += part_bytes;
        r->write_done += part_bytes;
        r->write_left -= part_bytes;
    }
    if (r->write_left && may_dma(r)) {
        dxpu_vfuc_pause(r->client, true);
        return;
    }
    if (r->write_token && r->write_left) /* software took Bus Master Enable away meanwhile */
        (void)dxpu_vfuc_dma_reply_error(r->client, r->write_token, EPERM);
    else if (r->write_token)
        (void)dxpu_vfuc_dma_reply_write(r->client, r->write_token);
    r->write_token = 0;
    r->write_left = 0;
    dxpu_vfuc_pause(r->client, false);
}

/* dxpu_vfuc_callbacks.dma_write */
static void on_dma_write(void *user, uint64_t token, uint64_t address, dxpu_bytes data)
{
    remote *r = user;
    if (!may_dma(r) || data.len > TRANSFER_BYTES) {
        r->count.dma_refused++;
        if (token)
            (void)dxpu_vfuc_dma_reply_error(r->client, token, EPERM);
        return;
    }
    r->count.dma_writes++;
    memcpy(r->write_data, data.ptr, data.len);
    r->write_token = token;
    r->write_at = address;
    r->write_done = 0;
    r->write_left = (uint32_t)data.len;
    go_on_writing(r);
}

/* dxpu_vfuc_callbacks.interrupt */
static void on_interrupt(void *user, uint32_t irq, uint32_t vector)
{
    remote *r = user;
    bool raised = r->state == PRESENT && (irq == DXPU_VFU_MSIX ? fn_msix_signal(&r->fn, vector)
                                                               : fn_msi_signal(&r->fn, vector));
    r->count.interrupts_dropped += !raised;
}

/* ==== 9  The client's callbacks =============================================================== */

/* dxpu_vfuc_callbacks.ready: the device is reset, then looked at. */
static void on_ready(void *user)
{
    remote *r = user;
    const dxpu_vfuc_info *d = dxpu_vfuc_device(r->client);
    if (!d->can_reset) {
        part(r, "the server's device cannot be reset, so it cannot be lent");
        return;
    }
    if (d->region[DXPU_VFU_CONFIG].bytes < CONFIG_BYTES ||
        dxpu_vfuc_reset(r->client, tag_of(r, TAG_RESET, 0, 0)) != DXPU_OK ||
        dxpu_vfuc_read(r->client, DXPU_VFU_CONFIG, 0, CONFIG_BYTES, tag_of(r, TAG_CONFIG, 1, 0)) !=
            DXPU_OK)
        part(r, "the server's device has no configuration space");
}

static void take_config(remote *r, int error, dxpu_bytes data)
{
    const char *wrong = "the server's configuration space cannot be read";
    if (!error && data.len == CONFIG_BYTES) {
        memcpy(r->config, data.ptr, CONFIG_BYTES);
        wrong = build(r);
    }
    if (wrong) {
        r->built = false;
        part(r, wrong);
        return;
    }
    r->state = PRESENT;
    r->there_ns = dxpu_udp_now_ns();
    r->sent_command = 0xffff;
    forget_buffer(r);
    log_info("%s: %04x:%04x is there", r->path, r->fn.set.vendor, r->fn.set.device);
    report_presence(r, true);
}

static void take_read(remote *r, uint64_t tag, int error, dxpu_bytes data)
{
    read_job *j = &r->reads[(tag >> TAG_INDEX_SHIFT) % READS];
    bool flush = tag >> TAG_KIND_SHIFT == TAG_FLUSH;
    if (!j->used)
        return;
    if (error)
        j->failed = true;
    else if (!flush)
        memcpy(j->data + (tag & 0xffff), data.ptr, data.len); /* as much as was asked for */
    if (--j->pieces == 0)
        finish_read(r, j);
}

static void take_reset(remote *r, int error)
{
    if (error)
        part(r, "the server's device was not reset");
    else if (r->state == RESETTING)
        r->state = PRESENT;
}

/* dxpu_vfuc_callbacks.done */
static void on_done(void *user, uint64_t tag, int error, dxpu_bytes data)
{
    remote *r = user;
    unsigned kind = (unsigned)(tag >> TAG_KIND_SHIFT), index = tag >> TAG_INDEX_SHIFT & 0xffff;
    if ((tag >> TAG_ROUND_SHIFT & 0xffff) != (r->round & 0xffff))
        return; /* of before a reset */
    if (kind == TAG_READ || kind == TAG_FLUSH)
        take_read(r, tag, error, data);
    else if (kind == TAG_RESET)
        take_reset(r, error);
    else if (kind == TAG_CONFIG && index == 1)
        take_config(r, error, data);
    else if (kind == TAG_MAP && error)
        miss_window(r, "the server refuses it");
}

/* ==== 10  Kind ================================================================================ */

static bool is_config(const dxpu_tlp *t)
{
    return t->type == DXPU_TLP_CFGRD0 || t->type == DXPU_TLP_CFGWR0;
}

static void remote_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    remote *r = device;
    dxpu_bytes none = { NULL, 0 };
    (void)bytes;
    if (!r->built) /* no host has a channel then */
        return;
    if (is_config(t) && r->state == RESETTING)
        pci_complete(&r->fn.pci, t, DXPU_CPL_CRS, none);
    else if (t->type == DXPU_TLP_MRD)
        read_bar(r, t);
    else if (t->type == DXPU_TLP_MWR)
        write_bar(r, t);
    else
        (void)fn_tlp(&r->fn, t);
    send_settings(r);
    (void)fn_fetch_ask(&r->fn);
}

static void run_client(remote *r)
{
    struct epoll_event e[3];
    uint64_t end_ns = dxpu_udp_now_ns() + TURNS_NS;
    for (unsigned i = 0; i < TURNS && (!i || dxpu_udp_now_ns() < end_ns); i++) {
        int n = epoll_wait(r->epoll, e, 3, 0);
        bool client = false;
        for (int k = 0; k < n; k++) {
            uint64_t many;
            if (e[k].data.fd == r->timer) {
                (void)!read(r->timer, &many, sizeof many);
                try_to_connect(r);
            } else if (e[k].data.fd == r->connector) {
                take_connection(r);
            } else {
                client = true;
            }
        }
        if (!client)
            return;
        if (dxpu_vfuc_process(r->client) != DXPU_OK)
            log_error("%s: cannot wait for events: %s", r->path, strerror(errno));
    }
}

static void remote_tick(void *device, uint64_t now_ns)
{
    remote *r = device;
    if (r->built)
        fn_tick(&r->fn, now_ns);
    if (r->write_left)
        go_on_writing(r);
    run_client(r);
    if (!r->built)
        return;
    send_settings(r);
    send_windows(r);
    (void)fn_fetch_ask(&r->fn);
}

static void remote_event(void *device, const dxpu_event *e)
{
    remote *r = device;
    if (e->type == DXPU_EVENT_DMA_GRANT || e->type == DXPU_EVENT_DMA_REVOKE)
        change_windows(r, e);
    else if (e->type == DXPU_EVENT_SLOT_POWER && !(e->flags & DXPU_EVENT_ON))
        forget_buffer(r);
    else if (e->type == DXPU_EVENT_HOT_RESET && (e->flags & DXPU_EVENT_ON))
        link_reset(r);
}

static void remote_reset(void *device)
{
    remote *r = device;
    dxpu_windows_clear(&r->windows); /* the server forgets them at the next tick */
    r->windows_differ = true;
    forget_buffer(r);
    link_reset(r);
    if (r->built)
        fn_power_on(&r->fn); /* errors of this tenant's, and what it made of them */
}

static void remote_destroy(void *device)
{
    remote *r = device;
    dxpu_vfuc_close(r->client);
    if (r->timer >= 0)
        (void)close(r->timer);
    if (r->connector >= 0)
        (void)close(r->connector);
    if (r->epoll >= 0)
        (void)close(r->epoll);
    free(r->windows.at);
    maps_free(&r->maps);
    free(r->reads);
    free(r->fetches);
    free(r);
}

static bool watch(const remote *r, int fd)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = EPOLLIN;
    e.data.fd = fd;
    return epoll_ctl(r->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

static bool open_client(remote *r)
{
    dxpu_vfuc_callbacks cb = { r,           on_ready,     on_gone,     on_done,
                               on_dma_read, on_dma_write, on_interrupt };
    dxpu_vfuc_config cfg;
    const char *why;
    dxpu_vfuc_config_default(&cfg);
    cfg.transfer_bytes = TRANSFER_BYTES;
    cfg.queue_bytes = QUEUE_BYTES;
    cfg.requests = REQUESTS;
    cfg.dma_commands = FETCHES;
    cfg.burst = BURST;
    r->client = dxpu_vfuc_open(&cfg, &cb, &why);
    if (!r->client)
        log_error("%s: %s", r->path, why);
    return r->client != NULL;
}

/* One that is not known goes by the socket's path: something may be kept there. */
device_medium remote_medium_of(const char *name, bool stateless)
{
    device_medium m = { 0xcbf29ce484222325u, 0, false };
    for (const char *c = name; *c; c++)
        m.number = (m.number ^ (uint8_t)*c) * 0x100000001b3u;
    m.number = stateless ? 0 : m.number | 1;
    m.pristine = stateless;
    return m;
}

static void *remote_create(const device_settings *s, const device_port *port)
{
    remote *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->set = *s;
    r->medium = s->medium ? *s->medium : remote_medium_of(s->socket, s->stateless);
    r->port = port;
    r->retry_ms = RETRY_FIRST_MS;
    r->epoll = r->timer = r->connector = -1;
    (void)snprintf(r->path, sizeof r->path, "%s", s->socket);
    dxpu_windows_init(&r->windows, NULL, 0, realloc);
    maps_init(&r->maps);
    r->reads = calloc(READS, sizeof *r->reads);
    r->fetches = calloc(FETCHES, sizeof *r->fetches);
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    r->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    r->connector = s->connector ? s->connector : connector_start(r->path);
    if (r->connector < 0)
        log_error("%s: cannot start a process that connects: %s", r->path, strerror(errno));
    if (r->connector < 0 || !r->reads || !r->fetches || r->epoll < 0 || r->timer < 0 ||
        !open_client(r) || !watch(r, r->timer) || !watch(r, r->connector) ||
        !watch(r, dxpu_vfuc_fd(r->client))) {
        remote_destroy(r);
        return NULL;
    }
    report_presence(r, false);
    set_timer(r, 0);
    return r;
}

static void remote_report(void *device, report *out)
{
    const remote *r = device;
    report_number(out, "present", r->state == PRESENT);
#define REMOTE_PRINT(name) report_number(out, #name, r->count.name);
    REMOTE_COUNTERS(REMOTE_PRINT)
#undef REMOTE_PRINT
    if (r->built)
        fn_report(&r->fn, out);
}

static int remote_descriptor(const void *device)
{
    return ((const remote *)device)->epoll;
}

/* Reads that wait for the server hold up no write, which may be what they wait for. */
static bool remote_busy(const void *device, bool posted)
{
    const remote *r = device;
    bool full = r->windows_differ || dxpu_vfuc_waiting_bytes(r->client) > OUTPUT_BYTES / 2;
    if (r->state != PRESENT)
        return false;
    return full || (!posted && (!free_read(r) || dxpu_vfuc_unanswered(r->client) >
                                                     REQUESTS - 2 * PIECES_MAX - FN_MSIX_MAX));
}

static bool remote_ids(const void *device, device_ids *out)
{
    const remote *r = device;
    if (!r->built)
        return false;
    out->vendor = r->fn.set.vendor;
    out->device = r->fn.set.device;
    out->class_code = r->fn.set.class_revision >> 8;
    return true;
}

/* What a server keeps is its own: only its operator can say that nothing outlives a lease. */
static int remote_wipe(void *device, bool begin)
{
    const remote *r = device;
    (void)begin;
    if (r->set.stateless)
        return DEVICE_WIPED;
    log_warning(r->set.medium ? "%s: the box cannot erase the disk of a model in a process of its "
                                "own; start the box without --isolate to have it erased"
                              : "%s: the box cannot erase what this server keeps; give the slot "
                                "`stateless` if nothing of a tenant's outlives its lease",
                r->path);
    return DEVICE_UNWIPED;
}

static uint64_t remote_medium(void *device, bool *pristine)
{
    const remote *r = device;
    *pristine = r->medium.pristine;
    return r->medium.number;
}

static uint64_t remote_shown(const void *device)
{
    const remote *r = device;
    return r->medium.shown;
}

const device_kind vfio_user_kind = { .name = "vfio-user",
                                     .create = remote_create,
                                     .destroy = remote_destroy,
                                     .tlp = remote_tlp,
                                     .event = remote_event,
                                     .reset = remote_reset,
                                     .report = remote_report,
                                     .tick = remote_tick,
                                     .wipe = remote_wipe,
                                     .medium = remote_medium,
                                     .shown = remote_shown,
                                     .descriptor = remote_descriptor,
                                     .busy = remote_busy,
                                     .ids = remote_ids,
                                     .values = remote_values };
