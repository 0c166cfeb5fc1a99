/* msi.c - see msi.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 What is programmed   2 Writes of the guest   3 Answers of the device   4 Messages
              5 Windows */
#include "msi.h"

#include <stdlib.h>

enum {
    FIRST_BAR = 0x10,
    BARS = 6,
    COMMAND = 0x04,
    BUS_MASTER = 0x04, /* of Command */
    CAPABILITIES = 0x34,
    FIRST_CAPABILITY = 0x40,
    HOPS = 48, /* capabilities that fit */
    CAP_MSI = 0x05,
    CAP_EXPRESS = 0x10,
    CAP_MSIX = 0x11,
    /* Message Control */
    MSI_ENABLE = 0x0001,
    MSI_WIDE = 0x0080,         /* 64-bit address */
    MSI_MASKS = 0x0100,        /* a mask bit for each */
    MSI_EXTENDED_CAN = 0x0200, /* 32-bit data */
    MSI_EXTENDED = 0x0400,
    MSIX_MASK = 0x4000,
    MSIX_ENABLE = 0x8000,
    FLR_CAN = 0x10000000, /* Device Capabilities */
    ENTRY_BYTES = 16,
    EXTENDED = 0x100, /* where extended capabilities begin */
    CAP_SRIOV = 0x0010,
    SRIOV_CONTROL = 0x08,
    SRIOV_ENABLE = 0x01,
    SRIOV_FIRST = 0x14,
    SRIOV_BAR0 = 0x24
};

/* ==== 1  What is programmed =================================================================== */

static uint32_t get16(const uint8_t *config, unsigned at)
{
    return at + 1 < MSI_CONFIG_BYTES ? dxpu_get_le16(config + at) : 0;
}

static uint32_t get32(const uint8_t *config, unsigned at)
{
    return get16(config, at) | get16(config, at + 2) << 16;
}

static bool is_known(const msi_function *f, unsigned at)
{
    return at < MSI_CONFIG_BYTES && (f->known[at / 8] >> at % 8 & 1);
}

/* The function's MSI as it is programmed now; false while it is off. */
static bool msi_now(const msi_function *f, msi_message *out)
{
    uint32_t can = get16(f->told, f->msi + 2u), control = get16(f->written, f->msi + 2u);
    unsigned data = f->msi + (can & MSI_WIDE ? 12u : 8u), log2 = control >> 4 & 7;
    if (!f->msi || !(control & MSI_ENABLE))
        return false;
    out->requester = f->bdf;
    out->address = get32(f->written, f->msi + 4u) & ~(uint32_t)3;
    if (can & MSI_WIDE)
        out->address |= (uint64_t)get32(f->written, f->msi + 8u) << 32;
    out->data = get16(f->written, data);
    if ((can & MSI_EXTENDED_CAN) && (control & MSI_EXTENDED))
        out->data |= get16(f->written, data + 2) << 16;
    out->varies = (1u << (log2 < 5 ? log2 : 5)) - 1;
    out->mask = can & MSI_MASKS ? get32(f->written, data + 4) : 0;
    out->until = 0;
    return true;
}

static bool msix_now(const msi_function *f)
{
    return f->table && (get16(f->written, f->msix + 2u) & (MSIX_ENABLE | MSIX_MASK)) == MSIX_ENABLE;
}

/* One vector, unless it is masked. */
static bool vector_now(const msi_function *f, uint32_t vector, msi_message *out)
{
    const uint32_t *entry = f->table + (size_t)vector * 4;
    if (entry[3] & 1)
        return false;
    out->requester = f->bdf;
    out->address = (uint64_t)entry[1] << 32 | (entry[0] & ~(uint32_t)3);
    out->data = entry[2];
    out->varies = out->mask = 0;
    out->until = 0;
    return true;
}

static bool same(const msi_message *a, const msi_message *b)
{
    return a->address == b->address && a->data == b->data && a->varies == b->varies &&
           a->mask == b->mask;
}

static bool is_master(const msi_function *f)
{
    return f->written[COMMAND] & BUS_MASTER;
}

static void keep_old(msi_filter *m, const msi_message *before, uint64_t until)
{
    msi_message *o = &m->old[m->next_old++ % MSI_OLD];
    *o = *before;
    o->until = until;
}

/* Registers as after a reset: off, and every vector masked. */
static void function_reset(msi_function *f)
{
    memset(f->written, 0, sizeof f->written);
    f->until = 0;
    for (uint32_t i = 0; i < f->vectors; i++) {
        uint32_t *entry = f->table + (size_t)i * 4;
        entry[0] = entry[1] = entry[2] = 0;
        entry[3] = 1;
    }
}

/* Which virtual function of function 0 it is, from 0; -1: none. */
static int virtual_index(const msi_virtual *v, uint16_t bdf)
{
    int behind = (int)bdf - v->physical - v->first;
    if (!v->at || !v->first || behind < 0 || (behind && !v->step))
        return -1;
    return !behind ? 0 : behind % v->step ? -1 : behind / v->step;
}

/* Virtual functions end with a reset of the physical one, too. */
static void end_virtuals(msi_filter *m)
{
    m->virtuals.enabled = false;
    for (unsigned i = 0; i < m->count; i++) {
        if (virtual_index(&m->virtuals, m->functions[i].bdf) >= 0)
            function_reset(&m->functions[i]);
    }
    m->moved = true;
}

static void reset_virtuals(msi_filter *m)
{
    end_virtuals(m);
    memset(m->virtuals.written, 0, sizeof m->virtuals.written);
}

void msi_reset(msi_filter *m)
{
    for (unsigned i = 0; i < m->count; i++)
        function_reset(&m->functions[i]);
    reset_virtuals(m);
    memset(m->old, 0, sizeof m->old);
    m->moved = true;
}

void msi_clear(msi_filter *m)
{
    for (unsigned i = 0; i < m->count; i++)
        free(m->functions[i].table);
    free(m->functions);
    memset(m, 0, sizeof *m);
}

static msi_function *find(const msi_filter *m, uint16_t bdf)
{
    for (unsigned i = 0; i < m->count; i++) {
        if (m->functions[i].bdf == bdf)
            return &m->functions[i];
    }
    return NULL;
}

/* NULL: out of memory; its interrupts are then refused. */
static msi_function *find_or_add(msi_filter *m, uint16_t bdf)
{
    msi_function *f = find(m, bdf);
    if (f)
        return f;
    if (m->count < MSI_FUNCTIONS) {
        f = realloc(m->functions, (m->count + 1) * sizeof *f);
        if (!f)
            return NULL;
        m->functions = f;
        f += m->count++;
    } else {
        f = &m->functions[m->next++ % MSI_FUNCTIONS];
        free(f->table);
    }
    memset(f, 0, sizeof *f);
    f->bdf = bdf;
    return f;
}

/* ==== 2  Writes of the guest ================================================================== */

/* To the physical function's SR-IOV. */
static void virtual_write(msi_filter *m, const dxpu_tlp *t)
{
    msi_virtual *v = &m->virtuals;
    unsigned at = t->register_bytes - (unsigned)v->at, bar = (at - SRIOV_BAR0) / 4;
    if (!v->at || t->target != v->physical || t->ep)
        return;
    if (at == SRIOV_CONTROL && (t->first_be & 1)) {
        if (v->enabled && !(t->payload.ptr[0] & SRIOV_ENABLE))
            end_virtuals(m);
        v->enabled = t->payload.ptr[0] & SRIOV_ENABLE;
    }
    for (unsigned i = 0; bar < BARS && i < 4; i++) {
        if (t->first_be >> i & 1)
            v->written[bar] = (v->written[bar] & ~((uint32_t)0xff << 8 * i)) |
                              (uint32_t)t->payload.ptr[i] << 8 * i;
    }
}

static void config_write(msi_filter *m, const dxpu_tlp *t)
{
    msi_function *f = find_or_add(m, t->target);
    msi_message before, after;
    if (t->register_bytes >= EXTENDED && t->payload.len >= 4)
        virtual_write(m, t);
    if (!f || t->payload.len < 4 || t->register_bytes > MSI_CONFIG_BYTES - 4)
        return;
    bool was = msi_now(f, &before), vectors_were = msix_now(f), mastered = is_master(f);
    for (unsigned i = 0; i < 4; i++) {
        if (t->first_be >> i & 1)
            f->written[t->register_bytes + i] = t->payload.ptr[i];
    }
    if (f->msi && t->register_bytes >= f->msi && t->register_bytes < f->msi + 12u)
        m->moved = true;
    if (f->express && dxpu_tlp_is_flr(t, f->express) &&
        (get32(f->told, f->express + 4u) & FLR_CAN)) {
        function_reset(f); /* what it asked for itself it drops itself (D-61) */
        if (t->target == m->virtuals.physical)
            reset_virtuals(m);
        m->moved = true;
    }
    if (was && (!msi_now(f, &after) || !same(&before, &after)))
        keep_old(m, &before, m->sent);
    if (vectors_were && !msix_now(f))
        f->until = m->sent;
    if (mastered && !is_master(f))
        f->master_until = m->sent;
}

/* Where the part of virtual function `index` is in a VF BAR that was sized; UINT64_MAX: nowhere. */
static uint64_t virtual_address(const msi_virtual *v, unsigned bar, unsigned index)
{
    bool wide = bar < BARS && (v->sized[bar] & 6) == 4 && bar + 1 < BARS;
    uint64_t mask, base;
    if (bar >= BARS || !v->enabled || !v->sized[bar] || (wide && !v->sized[bar + 1]))
        return UINT64_MAX;
    mask = (wide ? (uint64_t)v->sized[bar + 1] << 32 : UINT64_MAX << 32) |
           (v->sized[bar] & ~(uint32_t)0xf);
    base = (wide ? (uint64_t)v->written[bar + 1] << 32 : 0) | (v->written[bar] & ~(uint32_t)0xf);
    return (base & mask) + (~mask + 1) * index;
}

/* Where the guest put the table, in memory; UINT64_MAX: nowhere. */
static uint64_t table_address(const msi_filter *m, const msi_function *f)
{
    uint32_t place = get32(f->told, f->msix + 4u);
    unsigned at = FIRST_BAR + 4 * (place & 7);
    uint64_t base = get32(f->written, at) & ~(uint32_t)0xf;
    int index = virtual_index(&m->virtuals, f->bdf);
    if ((f->told[at] & 6) == 4)
        base |= (uint64_t)get32(f->written, at + 4) << 32;
    if (index >= 0)
        base = virtual_address(&m->virtuals, place & 7, (unsigned)index);
    return base == UINT64_MAX ? base : base + (place & ~(uint32_t)7);
}

static void vector_write(msi_filter *m, msi_function *f, uint64_t at, unsigned be,
                         const uint8_t *data)
{
    uint32_t *word = &f->table[at / 4];
    uint32_t vector = (uint32_t)(at / ENTRY_BYTES), value = *word;
    msi_message before, after;
    bool was = msix_now(f) && vector_now(f, vector, &before);
    for (unsigned i = 0; i < 4; i++) {
        if (be >> i & 1)
            value = (value & ~((uint32_t)0xff << 8 * i)) | (uint32_t)data[i] << 8 * i;
    }
    m->moved = m->moved || (value != *word && at % ENTRY_BYTES < 8);
    *word = value;
    if (was && (!vector_now(f, vector, &after) || !same(&before, &after)))
        keep_old(m, &before, m->sent + 1);
}

static void memory_write(msi_filter *m, const dxpu_tlp *t)
{
    for (unsigned n = 0; n < m->count; n++) {
        msi_function *f = &m->functions[n];
        uint64_t table = f->table ? table_address(m, f) : UINT64_MAX;
        uint64_t bytes = (uint64_t)f->vectors * ENTRY_BYTES;
        if (table == UINT64_MAX)
            continue;
        for (unsigned i = 0; i < t->length_dw && i * 4 + 4 <= t->payload.len; i++) {
            uint64_t at = t->address + i * 4 - table; /* below the table: huge */
            unsigned be = i == 0 ? t->first_be : i + 1u == t->length_dw ? t->last_be : 0xfu;
            if (at < bytes)
                vector_write(m, f, at, be, t->payload.ptr + i * 4);
        }
    }
}

void msi_sent(msi_filter *m, const dxpu_tlp *t)
{
    bool read = t->type == DXPU_TLP_CFGRD0 || t->type == DXPU_TLP_CFGRD1;
    if (dxpu_tlp_class(t) == DXPU_NONPOSTED) {
        msi_request *r = &m->requests[t->tag % MSI_TAGS];
        r->number = ++m->sent;
        r->target = t->target;
        r->register_bytes = t->register_bytes;
        r->be = read ? t->first_be : 0;
    }
    if (t->type == DXPU_TLP_CFGWR0 || t->type == DXPU_TLP_CFGWR1)
        config_write(m, t);
    else if (t->type == DXPU_TLP_MWR)
        memory_write(m, t);
}

/* ==== 3  Answers of the device ================================================================ */

static void add_table(msi_function *f)
{
    unsigned at = f->msix;
    if (f->table || !is_known(f, at + 3) || !is_known(f, at + 7))
        return;
    f->vectors = (get16(f->told, at + 2) & 0x7ff) + 1;
    f->table = calloc(f->vectors, ENTRY_BYTES);
    if (!f->table) { /* no memory: again when the guest next reads where it is */
        f->vectors = 0;
        f->known[(at + 7) / 8] &= (uint8_t) ~(1u << (at + 7) % 8);
    }
    for (uint32_t i = 0; i < f->vectors; i++)
        f->table[(size_t)i * 4 + 3] = 1;
}

/* Walk the capabilities as far as the guest has. */
static void walk(msi_function *f)
{
    unsigned at = is_known(f, CAPABILITIES) ? f->told[CAPABILITIES] & 0xfcu : 0;
    for (unsigned n = 0; n < HOPS && at >= FIRST_CAPABILITY && is_known(f, at); n++) {
        if (f->told[at] == CAP_MSI && !f->msi)
            f->msi = (uint8_t)at;
        else if (f->told[at] == CAP_MSIX && !f->msix)
            f->msix = (uint8_t)at;
        else if (f->told[at] == CAP_EXPRESS && !f->express)
            f->express = (uint8_t)at;
        at = is_known(f, at + 1) ? f->told[at + 1] & 0xfcu : 0;
    }
    if (f->msix)
        add_table(f);
}

/* Follows the list of extended capabilities as far as the guest has, to SR-IOV. */
static void virtual_learn(msi_filter *m, const msi_request *r, uint32_t value)
{
    msi_virtual *v = &m->virtuals;
    unsigned at = r->register_bytes - (unsigned)v->at, bar = (at - SRIOV_BAR0) / 4;
    if ((r->target & 0xff) != 0)
        return;
    if (v->physical != r->target) { /* its bus has another number now */
        memset(v, 0, sizeof *v);
        v->physical = r->target;
        v->next = EXTENDED;
    }
    if (v->at && at == SRIOV_FIRST && (r->be & 0x3) == 0x3)
        v->first = (uint16_t)value;
    if (v->at && at == SRIOV_FIRST && (r->be & 0xc) == 0xc)
        v->step = (uint16_t)(value >> 16);
    if (r->be != 0xf)
        return;
    if (v->at && bar < BARS && v->written[bar] == 0xffffffffu)
        v->sized[bar] = value;
    if (!v->at && r->register_bytes == v->next) {
        v->at = (value & 0xffff) == CAP_SRIOV ? v->next : 0;
        v->next = value >> 20 >= EXTENDED ? (uint16_t)(value >> 20 & 0xffc) : 0;
    }
}

static void learn(msi_filter *m, const msi_request *r, const dxpu_tlp *cpl)
{
    if (r->register_bytes >= EXTENDED) {
        virtual_learn(m, r, dxpu_get_le32(cpl->payload.ptr));
        return;
    }
    msi_function *f = r->register_bytes <= MSI_CONFIG_BYTES - 4 ? find_or_add(m, r->target) : NULL;
    bool news = false;
    for (unsigned i = 0; f && i < 4; i++) {
        unsigned at = r->register_bytes + i;
        if ((r->be >> i & 1) && !is_known(f, at)) {
            f->told[at] = cpl->payload.ptr[i];
            f->known[at / 8] |= (uint8_t)(1u << at % 8);
            news = true;
        }
    }
    if (news)
        walk(f);
}

void msi_answered(msi_filter *m, const dxpu_tlp *cpl)
{
    const msi_request *r = &m->requests[cpl->tag % MSI_TAGS];
    if (r->be && cpl->status == DXPU_CPL_SC && cpl->payload.len == 4)
        learn(m, r, cpl);
    if (r->number > m->seen)
        m->seen = r->number;
}

/* ==== 4  Messages ============================================================================= */

bool msi_is(const dxpu_tlp *t)
{
    uint64_t last = t->address + (t->length_dw ? t->length_dw * 4u - 1 : 0);
    return t->type == DXPU_TLP_MWR && last >= 0xfee00000u && t->address <= 0xfeefffffu;
}

static bool is_this(const msi_message *m, const dxpu_tlp *t, uint32_t data)
{
    return m->address == t->address && m->requester == t->requester &&
           ((m->data ^ data) & ~m->varies) == 0 && !(m->mask >> (data & m->varies) & 1);
}

bool msi_allowed(const msi_filter *m, const dxpu_tlp *t)
{
    const msi_function *f = find(m, t->requester);
    msi_message now;
    if (!f || t->length_dw != 1 || t->first_be != 0xf || t->ep || t->payload.len != 4)
        return false;
    uint32_t data = dxpu_get_le32(t->payload.ptr);
    if (msi_now(f, &now) && is_this(&now, t, data))
        return true;
    bool vectors = msix_now(f) || f->until > m->seen;
    for (uint32_t i = 0; vectors && i < f->vectors; i++) {
        if (vector_now(f, i, &now) && is_this(&now, t, data))
            return true;
    }
    for (unsigned i = 0; i < MSI_OLD; i++) {
        if (m->old[i].until > m->seen && is_this(&m->old[i], t, data))
            return true;
    }
    return false;
}

/* ==== 5  Windows ============================================================================== */

int msi_master(const msi_filter *m, uint16_t requester)
{
    const msi_function *f = find(m, requester);
    if (!f)
        return MSI_STRANGER;
    return is_master(f) || f->master_until > m->seen ? MSI_MASTER : MSI_NO_MASTER;
}

bool msi_leaving(const msi_filter *m)
{
    for (unsigned i = 0; i < MSI_OLD; i++) {
        if (m->old[i].until > m->seen)
            return true;
    }
    return false;
}

static void grant(windows *out, uint64_t address)
{
    if (address >= 0xfee00000u && address <= 0xfeefffffu) /* elsewhere it is memory like other */
        (void)windows_grant(out, address, address + 3, WINDOW_WRITE);
}

/* Enabled or not, masked or not: which messages are good, msi_allowed() says. */
void msi_windows(const msi_filter *m, windows *out)
{
    for (unsigned n = 0; n < m->count; n++) {
        const msi_function *f = &m->functions[n];
        uint64_t low = f->msi ? get32(f->written, f->msi + 4u) & ~(uint32_t)3 : 0;
        bool wide = f->msi && (get16(f->told, f->msi + 2u) & MSI_WIDE);
        grant(out, (wide ? (uint64_t)get32(f->written, f->msi + 8u) << 32 : 0) | low);
        for (uint32_t i = 0; i < f->vectors; i++)
            grant(out, (uint64_t)f->table[(size_t)i * 4 + 1] << 32 |
                           (f->table[(size_t)i * 4] & ~(uint32_t)3));
    }
    for (unsigned i = 0; i < MSI_OLD; i++) {
        if (m->old[i].until > m->seen)
            grant(out, m->old[i].address);
    }
}
