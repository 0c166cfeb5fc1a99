/* server.c - see server.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Object   2 TLPs to the model   3 Configuration space   4 Resets   5 Regions
              6 What the model sends   7 The server's callbacks   8 Life */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "server.h"

#include "dxpu_libevent.h"
#include "dxpu_vfio_user.h"
#include "log.h"
#include "pci.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ==== 1  Object =============================================================================== */

enum {
    TAGS = 256,       /* of reads of BARs */
    MODEL_TAGS = 256, /* of the model's own */
    ACCESSES = 8,     /* unanswered at a time, each of up to 17 reads: fewer than there are tags */
    TRANSFER_BYTES = 65536, /* of one access */
    WAITING_MAX = 256,      /* TLPs of the model; with more it makes no further ones */
    TURNS = 8,              /* of the model in one of the loop's */
    CONFIG_BYTES = 4096,
    CONFIG_TAG = 255,
    MESSAGE_BYTES = 4
};

/* Where interrupts of the model go: no memory is there.  The vector is in the data. */
#define MSIX_ADDRESS 0xfffffff000000000u
#define MSI_ADDRESS  0xfffffff100000000u

/* Of PCI_COMMAND, and of the PCI Express capability's Device Control. */
#define COMMAND_MEMORY       0x0002u
#define DEVICE_CONTROL_FLR   0x8000u
#define DEVICE_CONTROL_TAGS  0x0100u
#define DEVICE_CONTROL_SIZES 0x70e0u

/* A TLP that the model sent. */
typedef struct sent_tlp {
    struct sent_tlp *next;
    dxpu_tlp t; /* of: */
    uint8_t bytes[];
} sent_tlp;

/* A read of a BAR, or one of configuration space that waits; token 0: free. */
typedef struct region_read {
    uint64_t token, config_at;
    bool config;
    uint32_t bytes;
    unsigned unanswered;
    bool failed;
    uint8_t data[TRANSFER_BYTES];
} region_read;

/* A request to the model that waits for completions. */
typedef struct asked {
    region_read *of; /* NULL: free */
    uint32_t at, left;
} asked;

/* A read of the model that waits for the client. */
typedef struct dma_read {
    bool used;
    dxpu_tlp t;
} dma_read;

struct server {
    server_settings set;
    dxpu_vfu *vfu;
    void *device;
    device_port port;
    jobs_pool *pool;
    jobs_lane *lane;
    jobs jobs;
    int epoll, wake; /* wake: jobs are over */
    bool broken;     /* the model lost a TLP for want of memory */
    bool held;       /* the model has no turn: its descriptor is not looked at */

    sent_tlp *head, **tail; /* in the order in which they were sent */
    unsigned waiting;
    bool draining, full;   /* full: so much waited, or was done, that the model stopped */
    uint32_t config_value; /* what the configuration read under way brought */

    uint64_t bar_at[PCI_BARS], bar_bytes[PCI_BARS];
    unsigned express_at, msi_at, msix_at; /* capabilities, 0: none */
    uint32_t msi_vectors, msix_vectors;
    uint32_t mps_code; /* largest Max_Payload_Size, as Device Capabilities says it */

    region_read reads[ACCESSES];
    asked asked[TAGS];
    unsigned next_tag;
    dma_read dma[MODEL_TAGS];
    uint64_t round; /* answers of before a reset have another one */
    uint64_t lost_dma;
};

/* ==== 2  TLPs to the model ==================================================================== */

static void give(server *v, const dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    dxpu_tlp received;
    if (dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len) == DXPU_OK &&
        dxpu_tlp_receive(tlp, &received) == DXPU_OK)
        v->set.kind->tlp(v->device, &received, tlp);
}

static void request(dxpu_tlp *t, uint8_t type, uint64_t address, uint32_t bytes, unsigned tag)
{
    memset(t, 0, sizeof *t);
    t->type = type;
    t->header_dw = address >> 32 ? 4 : 3;
    t->tag = (uint16_t)tag;
    t->address = address & ~(uint64_t)3;
    (void)dxpu_be_from_range(address, bytes, &t->first_be, &t->last_be, &t->length_dw);
}

/* device_port.emit: nothing is called from here, so the model is never entered again. */
static void on_emit(void *user, dxpu_bytes tlp)
{
    server *v = user;
    sent_tlp *s = malloc(sizeof *s + tlp.len);
    if (!s) { /* a lost completion would be a silent fault */
        v->broken = true;
        return;
    }
    memcpy(s->bytes, tlp.ptr, tlp.len);
    tlp.ptr = s->bytes;
    if (dxpu_tlp_receive(tlp, &s->t) != DXPU_OK) {
        free(s);
        return;
    }
    if (dxpu_tlp_class(&s->t) == DXPU_COMPLETION && s->t.tag == CONFIG_TAG) {
        if (s->t.status == DXPU_CPL_SC && s->t.payload.len == 4)
            v->config_value = dxpu_get_le32(s->t.payload.ptr);
        free(s);
        return;
    }
    s->next = NULL;
    *v->tail = s;
    v->tail = &s->next;
    v->waiting++;
    v->full |= v->waiting >= WAITING_MAX;
}

static unsigned on_waiting(void *user)
{
    return ((const server *)user)->waiting;
}

static void on_fault(void *user, const char *what)
{
    (void)user;
    log_error("%s", what);
}

/* ==== 3  Configuration space ================================================================== */

static dxpu_tlp config_request(uint8_t type, unsigned at, uint8_t be)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = be;
    t.tag = CONFIG_TAG;
    t.register_bytes = (uint16_t)(at & 0xffcu);
    return t;
}

/* All ones where the model refuses. */
static uint32_t config_read(server *v, unsigned at)
{
    dxpu_tlp t = config_request(DXPU_TLP_CFGRD0, at, 0xf);
    v->config_value = 0xffffffffu;
    give(v, &t);
    return v->config_value;
}

static void config_write(server *v, unsigned at, uint32_t value, uint8_t be)
{
    dxpu_tlp t = config_request(DXPU_TLP_CFGWR0, at, be);
    uint8_t data[4];
    dxpu_put_le32(data, value);
    t.payload.ptr = data;
    t.payload.len = sizeof data;
    give(v, &t);
}

/* Where a capability is, 0: nowhere. */
static unsigned find_capability(server *v, uint8_t id)
{
    unsigned at = config_read(v, PCI_CAPABILITIES * 4) & 0xfc;
    for (unsigned n = 0; at >= 0x40 && n < 48; n++) {
        uint32_t head = config_read(v, at);
        if ((head & 0xff) == id)
            return at;
        at = head >> 8 & 0xfc;
    }
    return 0;
}

/* The size of a BAR, by ones in every bit, as software finds it; 0: there is none.  The lower half
   of one of 4 GB or more has flags alone. */
static uint64_t measure_bar(server *v, unsigned bar, bool *wide)
{
    unsigned at = (PCI_BAR0 + bar) * 4;
    uint64_t mask;
    config_write(v, at, 0xffffffffu, 0xf);
    mask = config_read(v, at);
    *wide = (mask & PCI_BAR_64) != 0;
    mask &= ~(uint64_t)0xf;
    if (*wide) {
        config_write(v, at + 4, 0xffffffffu, 0xf);
        mask |= (uint64_t)config_read(v, at + 4) << 32;
    } else if (mask) {
        mask |= 0xffffffff00000000u;
    }
    return mask ? ~mask + 1 : 0;
}

static void measure_bars(server *v)
{
    for (unsigned i = 0; i < PCI_BARS; i++) {
        bool wide;
        v->bar_bytes[i] = measure_bar(v, i, &wide);
        i += wide;
    }
}

/* Addresses of its own: those that do not fit below 4 GB are above. */
static void place_bars(server *v)
{
    uint64_t low = 0x10000000u, high = (uint64_t)1 << 45;
    for (unsigned i = 0; i < PCI_BARS; i++) {
        bool wide = (config_read(v, (PCI_BAR0 + i) * 4) & PCI_BAR_64) != 0;
        uint64_t *next = wide ? &high : &low, bytes = v->bar_bytes[i];
        if (!bytes)
            continue;
        *next = (*next + bytes - 1) & ~(bytes - 1);
        v->bar_at[i] = *next;
        *next += bytes;
        config_write(v, (PCI_BAR0 + i) * 4, (uint32_t)v->bar_at[i], 0xf);
        if (wide)
            config_write(v, (PCI_BAR0 + i) * 4 + 4, (uint32_t)(v->bar_at[i] >> 32), 0xf);
    }
}

/* Its reads are as large as --mrrs says, whatever the client sets: they become messages. */
static void set_device_control(server *v)
{
    uint64_t most = v->set.device.mrrs_bytes ? v->set.device.mrrs_bytes : 4096;
    uint32_t value, code = 0;
    while (128u << code < most)
        code++;
    if (!v->express_at)
        return;
    value = config_read(v, v->express_at + PCIE_DEVICE_CONTROL * 4) & 0xffffu;
    value = (value & ~DEVICE_CONTROL_SIZES) | code << 12 | DEVICE_CONTROL_TAGS | v->mps_code << 5;
    config_write(v, v->express_at + PCIE_DEVICE_CONTROL * 4, value, 0x3);
}

static uint32_t model_mps(const server *v)
{
    return 128u << v->mps_code;
}

/* Every vector writes its number to an address that only it has, and is unmasked: masks are the
   client's. */
static void set_vectors(server *v)
{
    if (v->msix_at) {
        uint32_t place = config_read(v, v->msix_at + 4);
        uint64_t table = v->bar_at[place & 7] + (place & ~(uint32_t)7);
        for (uint32_t i = 0; i < v->msix_vectors; i++) {
            uint8_t entry[16];
            dxpu_tlp t;
            dxpu_put_le64(entry, MSIX_ADDRESS);
            dxpu_put_le32(entry + 8, i);
            dxpu_put_le32(entry + 12, 0);
            request(&t, DXPU_TLP_MWR, table + i * 16, sizeof entry, 0);
            t.payload.ptr = entry;
            t.payload.len = sizeof entry;
            give(v, &t);
        }
    }
    if (v->msi_at) {
        config_write(v, v->msi_at + 4, (uint32_t)MSI_ADDRESS, 0xf);
        config_write(v, v->msi_at + 8, (uint32_t)(MSI_ADDRESS >> 32), 0xf);
        config_write(v, v->msi_at + 12, 0, 0x3);
    }
}

/* What software does behind a reset, and a client does not. */
static void set_up(server *v)
{
    place_bars(v);
    config_write(v, PCI_COMMAND * 4, COMMAND_MEMORY, 0x3);
    set_device_control(v);
    set_vectors(v);
}

/* Registers that are not the client's. */
static bool is_ours(const server *v, unsigned dword)
{
    return (dword >= PCI_BAR0 * 4 && dword < PCI_BAR0 * 4 + PCI_BARS * 4) ||
           (v->msi_at && dword > v->msi_at && dword <= v->msi_at + 12);
}

static void client_writes(server *v, unsigned dword, uint32_t value, uint8_t be)
{
    unsigned control = v->express_at + PCIE_DEVICE_CONTROL * 4;
    if (is_ours(v, dword))
        return;
    if (dword == PCI_COMMAND * 4)
        value |= COMMAND_MEMORY;
    config_write(v, dword, value, be);
    if (!v->express_at || dword != control)
        return;
    if ((be & 2) && (value & DEVICE_CONTROL_FLR))
        set_up(v);
    else
        set_device_control(v);
}

/* ==== 4  Resets =============================================================================== */

static void forget_sent(server *v)
{
    while (v->head) {
        sent_tlp *s = v->head;
        v->head = s->next;
        free(s);
    }
    v->tail = &v->head;
    v->waiting = 0;
}

static void forget_all(server *v)
{
    forget_sent(v);
    v->full = false;
    memset(v->asked, 0, sizeof v->asked);
    memset(v->dma, 0, sizeof v->dma);
    for (unsigned i = 0; i < ACCESSES; i++) {
        if (v->reads[i].token)
            (void)dxpu_vfu_reply_error(v->vfu, v->reads[i].token, EIO);
        v->reads[i].token = 0;
    }
    v->round++;
}

/* restart: a driver may go on. */
static void reset(server *v, bool restart)
{
    forget_all(v);
    if (restart && v->set.kind->restart)
        v->set.kind->restart(v->device);
    else
        v->set.kind->reset(v->device);
    set_up(v);
    forget_all(v); /* answers to what set_up() did, if any */
}

/* ==== 5  Regions ============================================================================== */

static void finish(server *v, region_read *r)
{
    if (r->unanswered)
        return;
    if (r->failed)
        (void)dxpu_vfu_reply_error(v->vfu, r->token, EIO);
    else
        (void)dxpu_vfu_reply_read(v->vfu, r->token, r->data, r->bytes);
    r->token = 0;
}

static unsigned free_tag(server *v)
{
    while (v->asked[v->next_tag % CONFIG_TAG].of) /* there are more than all accesses need */
        v->next_tag++;
    return v->next_tag++ % CONFIG_TAG;
}

static void read_bar(server *v, region_read *r, uint64_t address)
{
    uint32_t at = 0;
    r->unanswered = 1; /* until all is asked for */
    while (at < r->bytes) {
        uint32_t part = dxpu_request_next(address + at, r->bytes - at, 4096);
        unsigned tag = free_tag(v);
        dxpu_tlp t;
        request(&t, DXPU_TLP_MRD, address + at, part, tag);
        v->asked[tag].of = r;
        v->asked[tag].at = at;
        v->asked[tag].left = part;
        r->unanswered++;
        give(v, &t);
        at += part;
    }
    r->unanswered--;
    finish(v, r);
}

static void write_bar(server *v, uint64_t address, const uint8_t *data, uint32_t bytes)
{
    uint32_t at = 0, most = model_mps(v);
    while (at < bytes) {
        uint8_t padded[DXPU_TLP_PAYLOAD_MAX_BYTES];
        uint32_t part = dxpu_request_next(address + at, bytes - at, most);
        dxpu_tlp t;
        request(&t, DXPU_TLP_MWR, address + at, part, 0);
        memset(padded, 0, t.length_dw * 4u);
        memcpy(padded + ((address + at) & 3), data + at, part);
        t.payload.ptr = padded;
        t.payload.len = t.length_dw * 4u;
        give(v, &t);
        at += part;
    }
}

/* ==== 6  What the model sends ================================================================= */

static void take_completion(server *v, const dxpu_tlp *t)
{
    asked *a = &v->asked[t->tag % TAGS];
    region_read *r = a->of;
    uint32_t skip = t->lower_addr & 3u, bytes;
    if (!r)
        return;
    if (t->status != DXPU_CPL_SC || t->payload.len <= skip) {
        r->failed = true;
        bytes = a->left;
    } else {
        bytes = (uint32_t)t->payload.len - skip;
        bytes = bytes < a->left ? bytes : a->left;
        memcpy(r->data + a->at, t->payload.ptr + skip, bytes);
    }
    a->at += bytes;
    a->left -= bytes;
    if (a->left)
        return;
    a->of = NULL;
    r->unanswered--;
    finish(v, r);
}

/* Completions of a read of the model, as a root complex cuts them. */
static void complete(server *v, const dxpu_tlp *read, const uint8_t *data)
{
    dxpu_cpl_split split;
    dxpu_tlp cpl;
    uint64_t at;
    if (!data) {
        dxpu_tlp_completion(read, 0, DXPU_CPL_UR, &cpl);
        give(v, &cpl);
        return;
    }
    if (dxpu_cpl_split_start(&split, read, 64, model_mps(v)) != DXPU_OK)
        return;
    dxpu_tlp_completion(read, 0, DXPU_CPL_SC, &cpl);
    while (dxpu_cpl_split_next(&split, &cpl, &at)) {
        cpl.payload.ptr = data + (at - read->address);
        cpl.payload.len = cpl.length_dw * 4u;
        give(v, &cpl);
    }
}

/* False: not now. */
static bool do_read(server *v, const dxpu_tlp *t)
{
    uint8_t data[DXPU_TLP_PAYLOAD_MAX_BYTES + 4];
    dma_read *d = &v->dma[t->tag % MODEL_TAGS];
    uint32_t skip, bytes;
    uint64_t at;
    int how, rc;
    dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &skip, &bytes);
    at = t->address + skip;
    memset(data, 0, t->length_dw * 4u);
    how = bytes ? dxpu_vfu_dma_probe(v->vfu, at, bytes, DXPU_VFU_READ) : DXPU_VFU_DMA_VOID;
    if (how == DXPU_VFU_DMA_MESSAGE) {
        rc = dxpu_vfu_dma_send_read(v->vfu, at, bytes, v->round << 16 | (t->tag % MODEL_TAGS));
        if (rc == DXPU_E_AGAIN)
            return false;
        d->used = rc == DXPU_OK;
        d->t = *t;
        if (d->used)
            return true;
    }
    if (how == DXPU_VFU_DMA_DIRECT && dxpu_vfu_dma_read(v->vfu, at, data + skip, bytes) != DXPU_OK)
        how = DXPU_VFU_DMA_NONE;
    v->lost_dma += how != DXPU_VFU_DMA_DIRECT && bytes != 0;
    complete(v, t, how == DXPU_VFU_DMA_DIRECT || !bytes ? data : NULL);
    return true;
}

/* An eventfd would overtake what waits for the socket.  False: not now. */
static bool raise_vector(server *v, const dxpu_tlp *t)
{
    bool msix = t->address == MSIX_ADDRESS;
    if (dxpu_vfu_waiting_bytes(v->vfu))
        return false;
    (void)dxpu_vfu_irq_raise(v->vfu, msix ? DXPU_VFU_MSIX : DXPU_VFU_MSI,
                             dxpu_get_le32(t->payload.ptr));
    return true;
}

static bool do_write(server *v, const dxpu_tlp *t)
{
    uint32_t skip, bytes;
    uint64_t at;
    int how, rc = DXPU_E_NONE;
    if ((t->address == MSIX_ADDRESS || t->address == MSI_ADDRESS) &&
        t->payload.len == MESSAGE_BYTES)
        return raise_vector(v, t);
    dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &skip, &bytes);
    at = t->address + skip;
    if (!bytes)
        return true;
    how = dxpu_vfu_dma_probe(v->vfu, at, bytes, DXPU_VFU_WRITE);
    if (how == DXPU_VFU_DMA_DIRECT)
        rc = dxpu_vfu_dma_write(v->vfu, at, t->payload.ptr + skip, bytes);
    else if (how == DXPU_VFU_DMA_MESSAGE)
        rc = dxpu_vfu_dma_send_write(v->vfu, at, t->payload.ptr + skip, bytes, true, 0);
    v->lost_dma += rc != DXPU_OK && rc != DXPU_E_AGAIN;
    return rc != DXPU_E_AGAIN;
}

/* False: it stays the first. */
static bool handle(server *v, const dxpu_tlp *t)
{
    if (t->type == DXPU_TLP_MRD)
        return do_read(v, t);
    if (t->type == DXPU_TLP_MWR)
        return do_write(v, t);
    if (dxpu_tlp_class(t) == DXPU_COMPLETION)
        take_completion(v, t);
    return true; /* messages of errors have no way to a client */
}

static void config_reply(server *v, uint64_t token, uint64_t at, uint32_t bytes)
{
    uint8_t data[CONFIG_BYTES + 8];
    uint64_t first = at & ~(uint64_t)3;
    for (uint64_t dword = first; dword < at + bytes; dword += 4)
        dxpu_put_le32(data + (dword - first), config_read(v, (unsigned)dword));
    (void)dxpu_vfu_reply_read(v->vfu, token, data + (at - first), bytes);
}

/* Those that were asked while TLPs of the model waited. */
static void config_replies(server *v)
{
    for (unsigned i = 0; i < ACCESSES; i++) {
        region_read *r = &v->reads[i];
        if (!r->token || !r->config)
            continue;
        config_reply(v, r->token, r->config_at, r->bytes);
        r->token = 0;
    }
}

/* In the order of the model, each behind what it sent before. */
static void drain(server *v)
{
    uint64_t round = v->round;
    if (v->draining)
        return;
    v->draining = true;
    while (v->head) {
        sent_tlp *s = v->head;
        if (!handle(v, &s->t) || v->round != round)
            break;
        v->head = s->next;
        if (!v->head)
            v->tail = &v->head;
        v->waiting--;
        free(s);
    }
    v->draining = false;
    if (!v->head)
        config_replies(v);
}

/* ==== 7  The server's callbacks =============================================================== */

static void on_read(void *user, const dxpu_vfu_access *a)
{
    server *v = user;
    region_read *r = v->reads;
    while (r->token) /* there are as many as accesses can be unanswered */
        r++;
    r->token = a->token;
    r->bytes = a->bytes;
    r->failed = false;
    r->config = a->region == DXPU_VFU_CONFIG;
    r->config_at = a->offset;
    if (!r->config)
        read_bar(v, r, v->bar_at[a->region] + a->offset);
    drain(v);
}

static void on_config_write(server *v, const dxpu_vfu_access *a, const uint8_t *data)
{
    uint64_t end = a->offset + a->bytes;
    for (uint64_t at = a->offset & ~(uint64_t)3; at < end; at += 4) {
        uint8_t bytes[4] = { 0 }, be = 0;
        for (unsigned i = 0; i < 4; i++) {
            if (at + i >= a->offset && at + i < end) {
                bytes[i] = data[at + i - a->offset];
                be |= (uint8_t)(1u << i);
            }
        }
        client_writes(v, (unsigned)at, dxpu_get_le32(bytes), be);
    }
}

static void on_write(void *user, const dxpu_vfu_access *a, const uint8_t *data)
{
    server *v = user;
    if (a->region == DXPU_VFU_CONFIG)
        on_config_write(v, a, data);
    else
        write_bar(v, v->bar_at[a->region] + a->offset, data, a->bytes);
    if (a->token)
        (void)dxpu_vfu_reply_write(v->vfu, a->token);
    drain(v);
}

/* It stands for an FLR as well as for a hot reset of the client's. */
static void on_reset(void *user, uint64_t token)
{
    server *v = user;
    reset(v, true);
    if (token)
        (void)dxpu_vfu_reply_write(v->vfu, token);
}

/* Its memory is gone: nothing of it goes on. */
static void on_disconnected(void *user, const char *why)
{
    log_info("%s", why);
    reset(user, false);
}

static void on_connected(void *user)
{
    (void)user;
    log_info("a client is connected");
}

static void on_dma_done(void *user, uint64_t tag, int error, dxpu_bytes data)
{
    server *v = user;
    uint8_t bytes[DXPU_TLP_PAYLOAD_MAX_BYTES + 4];
    dma_read *d = &v->dma[tag % MODEL_TAGS];
    uint32_t skip, span;
    if (tag >> 16 != v->round || !d->used)
        return;
    d->used = false;
    dxpu_be_to_range(d->t.first_be, d->t.last_be, d->t.length_dw, &skip, &span);
    memset(bytes, 0, d->t.length_dw * 4u);
    if (!error && data.len == span)
        memcpy(bytes + skip, data.ptr, span);
    v->lost_dma += error != 0;
    complete(v, &d->t, error ? NULL : bytes);
    drain(v);
}

/* ==== 8  Life ================================================================================= */

static bool open_model(server *v)
{
    device_settings own = v->set.device;
    v->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (v->wake < 0)
        return false;
    if (v->set.disk_threads) {
        v->pool = jobs_pool_new(v->set.disk_threads);
        v->lane = v->pool ? jobs_lane_new(v->pool, v->wake, &v->jobs) : NULL;
        own.jobs = &v->jobs;
        if (!v->lane)
            return false;
    }
    own.timeout_ns =
        DXPU_NEVER; /* a client that does not answer is disconnected by whoever runs it */
    v->port.user = v;
    v->port.emit = on_emit;
    v->port.waiting = on_waiting;
    v->port.fault = on_fault;
    v->device = v->set.kind->create(&own, &v->port);
    return v->device && !(v->set.kind->fits && !v->set.kind->fits(v->device));
}

static void look_at_model(server *v)
{
    v->set.kind->reset(v->device);
    measure_bars(v);
    v->express_at = find_capability(v, 0x10);
    v->msi_at = find_capability(v, 0x05);
    v->msix_at = find_capability(v, 0x11);
    if (v->express_at)
        v->mps_code = config_read(v, v->express_at + PCIE_DEVICE_CAP * 4) & 7;
    if (v->msi_at)
        v->msi_vectors = 1u << (config_read(v, v->msi_at) >> 17 & 7);
    if (v->msix_at)
        v->msix_vectors = (config_read(v, v->msix_at) >> 16 & 0x7ff) + 1;
    reset(v, false);
}

static const char *open_socket(server *v)
{
    dxpu_vfu_callbacks cb = { v,          on_read,      on_write,
                              on_reset,   on_connected, on_disconnected,
                              on_dma_done };
    dxpu_vfu_config cfg;
    const char *why = NULL;
    dxpu_vfu_config_default(&cfg);
    cfg.path = v->set.socket;
    cfg.mode = v->set.mode;
    cfg.transfer_bytes = TRANSFER_BYTES;
    cfg.requests = ACCESSES;
    cfg.dma_messages = MODEL_TAGS * 2;
    for (unsigned i = 0; i < PCI_BARS; i++) {
        cfg.region[i].bytes = v->bar_bytes[i];
        cfg.region[i].access = DXPU_VFU_READ | DXPU_VFU_WRITE;
    }
    cfg.region[DXPU_VFU_CONFIG].bytes = CONFIG_BYTES;
    cfg.irqs[DXPU_VFU_MSI] = v->msi_vectors;
    cfg.irqs[DXPU_VFU_MSIX] = v->msix_vectors;
    v->vfu = dxpu_vfu_open(&cfg, &cb, &why);
    return why;
}

static bool control(const server *v, int operation, int fd, uint32_t events)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = events;
    e.data.fd = fd;
    return epoll_ctl(v->epoll, operation, fd, &e) == 0;
}

static bool watch(const server *v, int fd)
{
    return control(v, EPOLL_CTL_ADD, fd, EPOLLIN);
}

/* Only a turn of the model takes what makes its descriptor readable. */
static void watch_model(server *v)
{
    bool hold = v->waiting >= WAITING_MAX;
    if (v->set.kind->descriptor && hold != v->held &&
        control(v, EPOLL_CTL_MOD, v->set.kind->descriptor(v->device), hold ? 0 : EPOLLIN))
        v->held = hold;
}

server *server_open(const server_settings *s)
{
    server *v = calloc(1, sizeof *v);
    const char *why = NULL;
    if (!v) {
        log_error("out of memory");
        return NULL;
    }
    v->set = *s;
    v->wake = v->epoll = -1;
    v->tail = &v->head;
    if (!open_model(v)) {
        log_error("no device; if nothing else is said, lower --memory");
        server_close(v);
        return NULL;
    }
    v->epoll = epoll_create1(EPOLL_CLOEXEC);
    look_at_model(v);
    why = open_socket(v);
    if (why || v->epoll < 0 || !watch(v, v->wake) || !watch(v, dxpu_vfu_fd(v->vfu)) ||
        (s->kind->descriptor && !watch(v, s->kind->descriptor(v->device)))) {
        log_error("%s: %s%s%s", s->socket, why ? why : "no file descriptor left", why ? ": " : "",
                  why ? strerror(errno) : "");
        server_close(v);
        return NULL;
    }
    return v;
}

void server_close(server *v)
{
    if (!v)
        return;
    dxpu_vfu_close(v->vfu);
    v->vfu = NULL;
    forget_sent(v);
    if (v->device)
        v->set.kind->destroy(v->device);
    jobs_lane_free(v->lane);
    jobs_pool_free(v->pool);
    if (v->wake >= 0)
        (void)close(v->wake);
    if (v->epoll >= 0)
        (void)close(v->epoll);
    free(v);
}

int server_descriptor(const server *v)
{
    return v->epoll;
}

static void wake(const server *v)
{
    uint64_t one = 1;
    (void)!write(v->wake, &one, sizeof one);
}

int server_work(server *v)
{
    jobs_woken(v->wake);
    if (dxpu_vfu_process(v->vfu) != DXPU_OK) {
        log_error("cannot wait for events: %s", strerror(errno));
        return -1;
    }
    drain(v);
    for (unsigned n = 0; n < TURNS && v->waiting < WAITING_MAX; n++) {
        v->full = false;
        if (v->set.kind->tick)
            v->set.kind->tick(v->device, dxpu_udp_now_ns());
        v->full |= v->set.kind->unfinished && v->set.kind->unfinished(v->device);
        drain(v);
        if (!v->full)
            break;
    }
    if (v->full && !v->head) /* all of it has left, and nothing comes back for it */
        wake(v);
    watch_model(v);
    if (v->broken)
        log_error("out of memory for a TLP of the device");
    return v->broken ? -1 : 0;
}

void server_report(server *v, report *r)
{
    report_number(r, "dma_lost", v->lost_dma);
    for (unsigned i = 0; dxpu_vfu_counter_name(i); i++)
        report_number(r, dxpu_vfu_counter_name(i), dxpu_vfu_counter_value(v->vfu, i));
    report_open(r, v->set.kind->name);
    v->set.kind->report(v->device, r);
    report_close(r);
}
