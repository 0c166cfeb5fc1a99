/* dxpu_guard.c - see dxpu_guard.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Life   2 What goes to the device   3 What the device sends   4 Names */
#include "dxpu_guard.h"

enum {
    COMMAND = 0x04,
    BUS_MASTER = 0x04, /* of Command */
    CAPABILITIES = 0x34,
    FIRST_CAPABILITY = 0x40,
    CAP_EXPRESS = 0x10,
    INVALIDATE_COMPLETION = 0x02,
    PAGE_REQUEST = 0x04,
    PREFIX_PASID = 0x91 /* its first byte: end-end, type 1 (Base Spec 2.2.10.2) */
};

/* ==== 1  Life ================================================================================= */

int dxpu_guard_init(dxpu_guard *g, const dxpu_guard_allowed *allowed, dxpu_tag_entry *entries,
                    uint32_t requests, const dxpu_windows *windows)
{
    memset(g, 0, sizeof *g);
    g->allowed = *allowed;
    g->windows = *windows;
    g->entries = entries;
    g->capacity = requests;
    return dxpu_tags_init(&g->asked, entries, requests, 0, 0, DXPU_NEVER);
}

void dxpu_guard_clear(dxpu_guard *g)
{
    dxpu_windows_clear(&g->windows);
    (void)dxpu_tags_init(&g->asked, g->entries, g->capacity, 0, 0, DXPU_NEVER); /* as before */
    memset(g->known, 0, sizeof g->known);
    memset(g->master, 0, sizeof g->master);
    memset(g->next, 0, sizeof g->next);
    memset(g->express, 0, sizeof g->express);
}

/* ==== 2  What goes to the device ============================================================== */

static bool has(const uint8_t *set, unsigned function)
{
    return set[function / 8] >> function % 8 & 1;
}

static void put(uint8_t *set, unsigned function, bool on)
{
    uint8_t bit = (uint8_t)(1u << function % 8);
    set[function / 8] = (uint8_t)(on ? set[function / 8] | bit : set[function / 8] & ~bit);
}

bool dxpu_guard_event(dxpu_guard *g, const dxpu_event *e)
{
    if (e->type == DXPU_EVENT_HOT_RESET || e->type == DXPU_EVENT_SLOT_POWER)
        memset(g->master, 0, sizeof g->master); /* all functions are reset */
    if (e->type != DXPU_EVENT_DMA_GRANT && e->type != DXPU_EVENT_DMA_REVOKE)
        return false;
    g->no_room += !dxpu_windows_event(&g->windows, e);
    return true;
}

/* A device takes its bus number from every CfgWr0 (Base Spec 2.2.9), and so does the guard. */
static void config_write(dxpu_guard *g, const dxpu_tlp *t)
{
    unsigned function = t->target & 0xff;
    g->bus = DXPU_BDF_BUS(t->target);
    put(g->known, function, true);
    if (t->ep || !t->payload.len) /* a poisoned one changes nothing */
        return;
    if (t->register_bytes == COMMAND && (t->first_be & 1))
        put(g->master, function, t->payload.ptr[0] & BUS_MASTER);
    if (g->express[function] && dxpu_tlp_is_flr(t, g->express[function]))
        put(g->master, function, false);
}

/* What a configuration read was about, to come back with its completion; 0: something else. */
static uint64_t about(const dxpu_tlp *t)
{
    return t->type == DXPU_TLP_CFGRD0 ? (uint64_t)1 << 32 | (uint64_t)t->target << 16 |
                                            (uint64_t)t->register_bytes << 4 | t->first_be
                                      : 0;
}

void dxpu_guard_down(dxpu_guard *g, const dxpu_tlp *t)
{
    dxpu_request oldest;
    if (dxpu_tlp_class(t) != DXPU_NONPOSTED)
        return;
    if (t->type == DXPU_TLP_CFGWR0)
        config_write(g, t);
    /* a tag that is used again: the earlier answer is no longer awaited */
    (void)dxpu_tags_drop(&g->asked, t->requester, t->tag);
    if (g->asked.in_flight == g->capacity)
        (void)dxpu_tags_pop(&g->asked, &oldest);
    (void)dxpu_tags_track(&g->asked, t, 0, about(t)); /* there is room, and the tag is free */
}

/* ==== 3  What the device sends ================================================================ */

/* Where the PCI Express capability is, from what software reads on its way to it.  A device that
   lies about it lies to software too, which then resets nothing by it. */
static void learn(dxpu_guard *g, uint64_t user, const dxpu_tlp *cpl)
{
    unsigned function = user >> 16 & 0xff, at = user >> 4 & 0xfff, be = user & 15;
    const uint8_t *p = cpl->payload.ptr;
    if (!user || cpl->status != DXPU_CPL_SC || cpl->payload.len != 4)
        return;
    if (at == CAPABILITIES && (be & 1)) {
        g->next[function] = p[0] & 0xfc;
        return;
    }
    if (at < FIRST_CAPABILITY || at != g->next[function])
        return;
    if ((be & 1) && p[0] == CAP_EXPRESS && !g->express[function])
        g->express[function] = (uint8_t)at;
    if (be & 2)
        g->next[function] = p[1] & 0xfc;
}

static unsigned completion(dxpu_guard *g, const dxpu_tlp *t)
{
    dxpu_request r;
    if (dxpu_tags_complete(&g->asked, t, &r) != DXPU_OK)
        return DXPU_GUARD_completion;
    learn(g, r.user, t);
    return DXPU_GUARD_PASS;
}

static bool is_ours(const dxpu_guard *g, uint16_t requester)
{
    return DXPU_BDF_BUS(requester) == g->bus && has(g->known, requester & 0xff);
}

bool dxpu_guard_pasid(const dxpu_tlp *t)
{
    for (unsigned i = 0; i < t->prefix_count; i++) {
        if (t->prefix[i] >> 24 == PREFIX_PASID)
            return true;
    }
    return false;
}

static unsigned message(dxpu_guard *g, const dxpu_tlp *t)
{
    unsigned action = dxpu_message_action(t, DXPU_UPSTREAM);
    if (action == DXPU_MSG_TERMINATE || action == DXPU_MSG_EVENT) {
        g->ended++;
        return DXPU_GUARD_ENDS;
    }
    if (action == DXPU_MSG_REFUSE)
        return DXPU_GUARD_kind;
    if (!is_ours(g, t->requester))
        return DXPU_GUARD_requester;
    if ((t->message_code == INVALIDATE_COMPLETION || t->message_code == PAGE_REQUEST) &&
        !g->allowed.translated)
        return DXPU_GUARD_translated;
    return dxpu_guard_pasid(t) && !g->allowed.pasid ? DXPU_GUARD_pasid : DXPU_GUARD_PASS;
}

/* What a request wants with memory; 0: an endpoint makes no such request. */
static unsigned wanted(const dxpu_tlp *t)
{
    switch (t->type) {
    case DXPU_TLP_MRD:
        return DXPU_WINDOW_READ;
    case DXPU_TLP_MWR:
    case DXPU_TLP_DMWR:
        return DXPU_WINDOW_WRITE;
    case DXPU_TLP_FETCHADD:
    case DXPU_TLP_SWAP:
    case DXPU_TLP_CAS:
        return DXPU_WINDOW_READ | DXPU_WINDOW_WRITE;
    default:
        return 0;
    }
}

/* The bytes that it touches; a request of no bytes counts as its first one. */
static void touched(const dxpu_tlp *t, uint64_t *address, uint32_t *bytes)
{
    uint32_t offset = 0;
    *bytes = t->length_dw * 4u;
    if (t->type == DXPU_TLP_MRD || t->type == DXPU_TLP_MWR || t->type == DXPU_TLP_DMWR)
        dxpu_be_to_range(t->first_be, t->last_be, t->length_dw, &offset, bytes);
    if (t->type == DXPU_TLP_CAS) /* the operands are two, the place one */
        *bytes /= 2;
    *address = t->address + offset;
    *bytes = *bytes ? *bytes : 1;
}

static unsigned memory(const dxpu_guard *g, const dxpu_tlp *t)
{
    unsigned access = wanted(t);
    uint64_t address;
    uint32_t bytes;
    if (!access)
        return DXPU_GUARD_kind;
    if (!is_ours(g, t->requester))
        return DXPU_GUARD_requester;
    if (!has(g->master, t->requester & 0xff))
        return DXPU_GUARD_master;
    if (t->at && !g->allowed.translated)
        return DXPU_GUARD_translated;
    if (dxpu_guard_pasid(t) && !g->allowed.pasid)
        return DXPU_GUARD_pasid;
    touched(t, &address, &bytes);
    if (dxpu_windows_allow(&g->windows, address, bytes, access))
        return DXPU_GUARD_PASS;
    return dxpu_windows_allow(&g->windows, address, bytes, 0) ? DXPU_GUARD_direction
                                                              : DXPU_GUARD_window;
}

unsigned dxpu_guard_up(dxpu_guard *g, dxpu_bytes tlp)
{
    dxpu_tlp t;
    unsigned verdict;
    if (dxpu_tlp_receive(tlp, &t) != DXPU_OK)
        verdict = DXPU_GUARD_malformed;
    else if (dxpu_tlp_class(&t) == DXPU_COMPLETION)
        verdict = completion(g, &t);
    else if (t.type == DXPU_TLP_MSG || t.type == DXPU_TLP_MSGD)
        verdict = message(g, &t);
    else
        verdict = memory(g, &t);
    if (verdict < DXPU_GUARD_REASON_COUNT)
        g->refused[verdict]++;
    return verdict;
}

unsigned dxpu_guard_waited(dxpu_guard *g, dxpu_bytes tlp)
{
    dxpu_tlp t;
    unsigned verdict;
    if (dxpu_tlp_receive(tlp, &t) != DXPU_OK || !wanted(&t))
        return DXPU_GUARD_PASS;
    verdict = memory(g, &t);
    if (verdict < DXPU_GUARD_REASON_COUNT)
        g->refused[verdict]++;
    return verdict;
}

/* ==== 4  Names ================================================================================ */

#define DXPU_GUARD_NAME(name, text)     #name,
#define DXPU_GUARD_SENTENCE(name, text) text,

const char *dxpu_guard_name(unsigned reason)
{
    static const char *const names[] = { DXPU_GUARD_REASONS(DXPU_GUARD_NAME) };
    return names[reason];
}

const char *dxpu_guard_text(unsigned reason)
{
    static const char *const texts[] = { DXPU_GUARD_REASONS(DXPU_GUARD_SENTENCE) };
    return texts[reason];
}

uint64_t dxpu_guard_refused(const dxpu_guard *g)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < DXPU_GUARD_REASON_COUNT; i++)
        sum += g->refused[i];
    return sum;
}
