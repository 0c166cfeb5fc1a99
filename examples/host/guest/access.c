/* access.c - see access.h
   SPDX-License-Identifier: MIT */
#include "access.h"
#include "dxpu_libevent.h"

/* ==== Answers ================================================================================= */

/* What a completion needs to know, in the 64 bits that come back with it. */
typedef struct request {
    uint8_t access;
    uint16_t generation; /* of the access */
    uint8_t at;          /* place of the request's first byte in access.data */
    uint8_t bytes;       /* of the access that it covers; 0 for a write */
    uint8_t skip;        /* configuration: bytes of the dword before them */
} request;

static uint64_t pack(request r)
{
    return (uint64_t)r.access << 48 | (uint64_t)r.generation << 32 | (uint64_t)r.at << 16 |
           (uint64_t)r.bytes << 8 | r.skip;
}

static request unpack(uint64_t v)
{
    request r = { (uint8_t)(v >> 48), (uint16_t)(v >> 32), (uint8_t)(v >> 16), (uint8_t)(v >> 8),
                  (uint8_t)v };
    return r;
}

uint64_t access_part(const access_table *t, const guest_access *a, uint32_t at, uint32_t bytes,
                     uint32_t skip)
{
    request r = { 0 };
    if (a) {
        r.access = (uint8_t)(a - t->entry);
        r.generation = a->generation;
        r.at = (uint8_t)at;
        r.bytes = (uint8_t)bytes;
        r.skip = (uint8_t)skip;
    }
    return pack(r);
}

void access_init(access_table *t, uint64_t hold_ns)
{
    t->hold_ns = hold_ns;
    t->deadline_ns = DXPU_NEVER;
}

/* All ones is what a processor reads where no device answers. */
guest_access *access_new(access_table *t, const dxpu_vfu_access *v)
{
    for (unsigned i = 0; v->bytes <= ACCESS_BYTES && i < ACCESSES; i++) {
        guest_access *a = &t->entry[t->next++ % ACCESSES];
        if (a->token == 0) {
            a->token = v->token;
            a->region = v->region;
            a->offset = v->offset;
            a->bytes = v->bytes;
            a->write = a->missing = false;
            a->tlps = 0;
            a->generation++;
            memset(a->data, 0xff, sizeof a->data);
            return a;
        }
    }
    return NULL;
}

guest_access *access_new_write(access_table *t, const dxpu_vfu_access *v)
{
    guest_access *a = access_new(t, v);
    if (a)
        a->write = true;
    return a;
}

static void answer(access_table *t, guest_access *a)
{
    if (t->answers && !a->write && !a->missing)
        t->answers(t->user, a);
    if (a->write)
        (void)dxpu_vfu_reply_write(t->vfu, a->token); /* a client gone: counted */
    else
        (void)dxpu_vfu_reply_read(t->vfu, a->token, a->data, a->bytes);
    a->token = 0;
    a->tlps = 0;
}

void access_sent(access_table *t, guest_access *a)
{
    if (a->tlps == 0) {
        answer(t, a);
        return;
    }
    a->until_ns = dxpu_udp_now_ns() + t->hold_ns + ACCESS_MARGIN_NS;
    if (a->until_ns < t->deadline_ns)
        t->deadline_ns = a->until_ns;
}

void access_expire(access_table *t, uint64_t now)
{
    if (now < t->deadline_ns)
        return;
    t->deadline_ns = DXPU_NEVER;
    for (unsigned i = 0; i < ACCESSES; i++) {
        guest_access *a = &t->entry[i];
        if (!a->token)
            continue;
        if (now >= a->until_ns) {
            t->timeouts++;
            a->missing = true;
            answer(t, a);
        } else if (a->until_ns < t->deadline_ns) {
            t->deadline_ns = a->until_ns;
        }
    }
}

void access_forget(access_table *t)
{
    for (unsigned i = 0; i < ACCESSES; i++)
        t->entry[i].token = t->entry[i].tlps = 0;
}

static void unread(access_table *t, guest_access *a, uint32_t at, uint32_t bytes)
{
    if (t->unread && !a->write && at < sizeof a->data && bytes <= sizeof a->data - at)
        t->unread(t->user, a, at, bytes);
}

void access_fill(guest_access *a, uint64_t part, const dxpu_tlp *cpl)
{
    request r = unpack(part);
    uint32_t from = r.skip, to = r.at, bytes = r.bytes;
    if (cpl->status != DXPU_CPL_SC || !cpl->payload.len)
        return;
    if (r.skip == 0 && cpl->byte_count <= bytes) { /* memory: a part of the bytes asked for */
        from = cpl->lower_addr & 3u;
        to += bytes - cpl->byte_count;
        bytes = cpl->byte_count;
    }
    if (from >= cpl->payload.len)
        return;
    if (bytes > cpl->payload.len - from)
        bytes = (uint32_t)(cpl->payload.len - from);
    if (to < sizeof a->data && bytes <= sizeof a->data - to)
        memcpy(a->data + to, cpl->payload.ptr + from, bytes);
}

void access_completed(access_table *t, const dxpu_tlp *cpl, uint64_t part, bool last)
{
    request r = unpack(part);
    guest_access *a = &t->entry[r.access % ACCESSES];
    if (r.bytes == 0 || !a->tlps || r.generation != a->generation) /* a write, or none waits */
        return;
    if (!cpl || cpl->status != DXPU_CPL_SC) {
        a->missing = true;
        unread(t, a, r.at, r.bytes);
    }
    if (cpl)
        access_fill(a, part, cpl);
    if (last && --a->tlps == 0)
        answer(t, a);
}

bool access_memory(const dxpu_vfu *vfu, uint32_t *changes, windows *out)
{
    dxpu_vfu_memory m;
    if (*changes == dxpu_vfu_memory_changes(vfu))
        return false;
    *changes = dxpu_vfu_memory_changes(vfu);
    windows_clear(out);
    for (uint32_t i = 0; dxpu_vfu_memory_at(vfu, i, &m); i++) {
        if (m.direct) /* its access bits are the windows' */
            (void)windows_grant(out, m.address, m.address + (m.bytes - 1), m.access);
    }
    return true;
}

/* ==== TLPs ==================================================================================== */

void access_config_tlp(uint8_t type, uint16_t target, uint32_t offset, unsigned bytes, dxpu_tlp *t)
{
    memset(t, 0, sizeof *t);
    t->type = type;
    t->header_dw = 3;
    t->length_dw = 1;
    t->target = target;
    t->register_bytes = (uint16_t)(offset & 0xffc);
    t->first_be = (uint8_t)(((1u << bytes) - 1) << (offset & 3));
}

/* ==== Write combining ========================================================================= */

static int taken(const write_line *l)
{
    return (l->address + l->bytes) % REQUEST_BYTES == 0 ? LINE_FULL : LINE_TAKEN;
}

int line_append(write_line *l, uint64_t address, const uint8_t *data, uint32_t bytes)
{
    uint32_t room = REQUEST_BYTES - (uint32_t)(address % REQUEST_BYTES);
    if (!l->bytes || address != l->address + l->bytes || address % REQUEST_BYTES == 0 ||
        bytes > room)
        return LINE_OTHER;
    memcpy(l->data + l->bytes, data, bytes);
    l->bytes += bytes;
    l->combined++;
    return taken(l);
}

int line_begin(write_line *l, uint64_t address, const uint8_t *data, uint32_t bytes)
{
    if (bytes > REQUEST_BYTES - (uint32_t)(address % REQUEST_BYTES))
        return LINE_OTHER;
    l->address = address;
    l->bytes = bytes;
    memcpy(l->data, data, bytes);
    return taken(l);
}

/* ==== Memory ================================================================================== */

bool access_request(access_table *t, uint64_t address, uint32_t bytes, const uint8_t *data,
                    uint64_t part)
{
    uint8_t payload[REQUEST_BYTES + 4] = { 0 };
    dxpu_tlp tlp;
    memset(&tlp, 0, sizeof tlp);
    tlp.type = data ? DXPU_TLP_MWR : DXPU_TLP_MRD;
    tlp.header_dw = address >> 32 ? 4 : 3;
    tlp.address = address & ~(uint64_t)3;
    (void)dxpu_be_from_range(address, bytes, &tlp.first_be, &tlp.last_be, &tlp.length_dw);
    if (data) {
        memcpy(payload + (address & 3), data, bytes);
        tlp.payload.ptr = payload;
        tlp.payload.len = tlp.length_dw * 4u;
    }
    return t->send(t->user, &tlp, part);
}

void access_transfer(access_table *t, uint64_t address, uint32_t bytes, const uint8_t *data,
                     guest_access *a)
{
    for (uint32_t at = 0, n; at < bytes; at += n) {
        uint64_t part;
        n = dxpu_request_next(address + at, bytes - at, REQUEST_BYTES);
        part = access_part(t, a, at, n, 0);
        bool sent = access_request(t, address + at, n, a ? NULL : data + at, part);
        if (a && sent)
            a->tlps++;
        else if (a)
            unread(t, a, at, n);
    }
}

void access_flush(access_table *t)
{
    uint32_t bytes = t->line.bytes;
    t->line.bytes = 0;
    if (bytes)
        (void)access_request(t, t->line.address, bytes, t->line.data, 0);
}

static bool is_combined(access_table *t, int line)
{
    if (line != LINE_TAKEN)
        access_flush(t);
    return line != LINE_OTHER;
}

bool access_append(access_table *t, uint64_t address, const uint8_t *data, uint32_t bytes)
{
    return is_combined(t, line_append(&t->line, address, data, bytes));
}

bool access_begin(access_table *t, uint64_t address, const uint8_t *data, uint32_t bytes)
{
    return is_combined(t, line_begin(&t->line, address, data, bytes));
}
