/* dxpu_push.c - see dxpu_push.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Messages   2 Rules   3 The host's table   4 The box's store */
#include "dxpu_push.h"
#include "dxpu_bytes_message.h"

/* ==== 1  Messages ============================================================================= */

enum { KIND_OFFER = 2, KIND_RULE = 3, KIND_DATA = 4 };
#define UNKNOWN UINT32_MAX /* dxpu_push_kept.next: no push is expected */

/* 1, 0 or E_ARG as the decoders return; the payload has `least` bytes when 1. */
static int is_message(const dxpu_tlp *t, uint8_t routing, uint8_t kind, size_t least)
{
    if (!dxpu_bytes_is_message(t, routing, kind))
        return 0;
    return t->ep || t->payload.len < least ? DXPU_E_ARG : 1;
}

void dxpu_push_offer_message(const dxpu_push_offer *o, uint8_t payload[DXPU_PUSH_OFFER_BYTES],
                             dxpu_tlp *out)
{
    memset(payload, 0, DXPU_PUSH_OFFER_BYTES);
    payload[0] = KIND_OFFER;
    payload[1] = o->rules;
    dxpu_put_be16(payload + 2, o->bytes);
    dxpu_bytes_message(out, DXPU_MSG_LOCAL, payload, DXPU_PUSH_OFFER_BYTES);
}

int dxpu_push_offer_decode(const dxpu_tlp *t, dxpu_push_offer *out)
{
    int rc = is_message(t, DXPU_MSG_LOCAL, KIND_OFFER, DXPU_PUSH_OFFER_BYTES);
    memset(out, 0, sizeof *out);
    if (rc != 1)
        return rc;
    out->rules = t->payload.ptr[1];
    out->bytes = dxpu_get_be16(t->payload.ptr + 2);
    return 1;
}

void dxpu_push_rule_message(const dxpu_push_rule *r, uint8_t payload[DXPU_PUSH_RULE_BYTES],
                            dxpu_tlp *out)
{
    payload[0] = KIND_RULE;
    payload[1] = r->rule;
    payload[2] = r->width;
    payload[3] = r->mode;
    dxpu_put_be32(payload + 4, r->generation);
    dxpu_put_be64(payload + 8, r->doorbell);
    dxpu_put_be64(payload + 16, r->base);
    dxpu_put_be32(payload + 24, r->entries);
    dxpu_put_be32(payload + 28, r->start);
    dxpu_put_be16(payload + 32, r->stride);
    dxpu_put_be16(payload + 34, r->bytes);
    dxpu_bytes_message(out, DXPU_MSG_TO_ROOT, payload, DXPU_PUSH_RULE_BYTES);
    out->requester = r->requester;
}

int dxpu_push_rule_decode(const dxpu_tlp *t, dxpu_push_rule *out)
{
    int rc = is_message(t, DXPU_MSG_TO_ROOT, KIND_RULE, DXPU_PUSH_RULE_BYTES);
    const uint8_t *p = t->payload.ptr;
    memset(out, 0, sizeof *out);
    if (rc != 1)
        return rc;
    out->rule = p[1];
    out->width = p[2];
    out->mode = p[3];
    out->requester = t->requester;
    out->generation = dxpu_get_be32(p + 4);
    out->doorbell = dxpu_get_be64(p + 8);
    out->base = dxpu_get_be64(p + 16);
    out->entries = dxpu_get_be32(p + 24);
    out->start = dxpu_get_be32(p + 28);
    out->stride = dxpu_get_be16(p + 32);
    out->bytes = dxpu_get_be16(p + 34);
    return 1;
}

void dxpu_push_data_message(const dxpu_push_rule *r, uint64_t address, uint16_t bytes,
                            uint8_t payload[DXPU_PUSH_PAYLOAD_MAX], dxpu_tlp *out)
{
    size_t end = DXPU_PUSH_HEAD_BYTES + (size_t)bytes, padded = (end + 3) & ~(size_t)3;
    payload[0] = KIND_DATA;
    payload[1] = r->rule;
    dxpu_put_be16(payload + 2, bytes);
    dxpu_put_be32(payload + 4, r->generation);
    dxpu_put_be64(payload + 8, address);
    memset(payload + end, 0, padded - end);
    dxpu_bytes_message(out, DXPU_MSG_LOCAL, payload, padded);
}

int dxpu_push_data_decode(const dxpu_tlp *t, dxpu_push_data *out)
{
    int rc = is_message(t, DXPU_MSG_LOCAL, KIND_DATA, DXPU_PUSH_HEAD_BYTES);
    const uint8_t *p = t->payload.ptr;
    memset(out, 0, sizeof *out);
    if (rc != 1)
        return rc;
    out->rule = p[1];
    out->data.len = dxpu_get_be16(p + 2);
    out->generation = dxpu_get_be32(p + 4);
    out->address = dxpu_get_be64(p + 8);
    out->data.ptr = p + DXPU_PUSH_HEAD_BYTES;
    if (out->data.len && out->data.len <= DXPU_PUSH_BYTES &&
        out->data.len <= t->payload.len - DXPU_PUSH_HEAD_BYTES)
        return 1;
    memset(out, 0, sizeof *out);
    return DXPU_E_ARG;
}

/* ==== 2  Rules ================================================================================ */

static dxpu_push_offer bounded(const dxpu_push_offer *o)
{
    dxpu_push_offer out = *o;
    out.rules = o->rules < DXPU_PUSH_RULES ? o->rules : (uint8_t)DXPU_PUSH_RULES;
    out.bytes = o->bytes < DXPU_PUSH_BYTES ? o->bytes : (uint16_t)DXPU_PUSH_BYTES;
    return out;
}

/* U-5 */
static bool is_valid(const dxpu_push_rule *r, const dxpu_push_offer *o)
{
    uint64_t span = (uint64_t)r->stride * (r->entries - 1u);
    bool at = r->mode == DXPU_PUSH_AT;
    if (r->rule >= o->rules || !r->bytes || r->bytes > o->bytes || !r->entries ||
        (!at && r->mode != DXPU_PUSH_SINCE))
        return false;
    if (r->width != 1 && r->width != 2 && r->width != 4 && r->width != 8)
        return false;
    if (r->doorbell & (r->width - 1u))
        return false;
    if (!at && (!r->stride || r->bytes < r->stride || r->start >= r->entries))
        return false;
    span += at ? r->bytes : r->stride;
    return span - 1 <= UINT64_MAX - r->base;
}

/* A write changes some of the doorbell, or might. */
static bool is_near(const dxpu_push_rule *r, const dxpu_tlp *t)
{
    return t->type == DXPU_TLP_MWR &&
           (t->address > r->doorbell ? t->address - r->doorbell < r->width
                                     : r->doorbell - t->address < t->length_dw * 4u);
}

/* The value that a write has for exactly this doorbell. */
static bool is_doorbell(const dxpu_push_rule *r, const dxpu_tlp *t, uint64_t *value)
{
    uint8_t first_be, last_be;
    uint16_t length_dw;
    unsigned offset = (unsigned)(r->doorbell & 3);
    if (t->type != DXPU_TLP_MWR || t->ep || t->address != r->doorbell - offset ||
        dxpu_be_from_range(r->doorbell, r->width, &first_be, &last_be, &length_dw) != DXPU_OK ||
        t->first_be != first_be || t->last_be != last_be || t->length_dw != length_dw ||
        t->payload.len < offset + r->width)
        return false;
    *value = 0;
    for (unsigned i = r->width; i-- > 0;)
        *value = *value << 8 | t->payload.ptr[offset + i];
    return true;
}

static uint64_t entry_at(const dxpu_push_rule *r, uint64_t index)
{
    return r->base + index * r->stride;
}

/* ==== 3  The host's table ===================================================================== */

void dxpu_push_table_init(dxpu_push_table *t, const dxpu_push_offer *offer)
{
    memset(t, 0, sizeof *t);
    t->offer = bounded(offer);
}

int dxpu_push_table_set(dxpu_push_table *t, const dxpu_push_rule *r)
{
    dxpu_push_entry *e;
    if (r->rule >= t->offer.rules)
        return DXPU_E_ARG;
    e = &t->entry[r->rule];
    t->count -= e->rule.bytes != 0;
    memset(e, 0, sizeof *e);
    if (!r->bytes)
        return DXPU_OK;
    if (!is_valid(r, &t->offer))
        return DXPU_E_ARG;
    e->rule = *r;
    e->next = r->start;
    t->count++;
    return DXPU_OK;
}

/* The entries since the last doorbell, up to the ring's end and from its beginning on. */
static unsigned since(dxpu_push_entry *e, uint32_t value, dxpu_push_part out[DXPU_PUSH_PARTS])
{
    const dxpu_push_rule *r = &e->rule;
    uint32_t first = e->next, left = r->bytes / r->stride, n;
    unsigned parts = 0;
    e->next = value;
    while (first != value && left) {
        n = (value > first ? value : r->entries) - first;
        n = n < left ? n : left;
        out[parts].address = entry_at(r, first);
        out[parts++].bytes = (uint16_t)(n * r->stride);
        left -= n;
        first += n;
        first = first == r->entries ? 0 : first;
    }
    return parts;
}

unsigned dxpu_push_table_match(dxpu_push_table *t, const dxpu_tlp *write,
                               dxpu_push_part out[DXPU_PUSH_PARTS], const dxpu_push_rule **rule)
{
    uint64_t value;
    for (unsigned i = 0, left = t->count; left; i++) {
        dxpu_push_entry *e = &t->entry[i];
        if (!e->rule.bytes)
            continue;
        left--;
        if (!is_doorbell(&e->rule, write, &value))
            continue;
        *rule = &e->rule;
        if (e->rule.mode == DXPU_PUSH_SINCE)
            return value < e->rule.entries ? since(e, (uint32_t)value, out) : 0;
        out[0].address = entry_at(&e->rule, value % e->rule.entries);
        out[0].bytes = e->rule.bytes;
        return 1;
    }
    return 0;
}

/* ==== 4  The box's store ====================================================================== */

void dxpu_push_store_init(dxpu_push_store *s)
{
    memset(s, 0, sizeof *s);
}

static void drop(dxpu_push_store *s, dxpu_push_chunk *c)
{
    s->held -= c->left != 0;
    s->count.stale += c->left;
    c->left = 0;
}

static void drop_of(dxpu_push_store *s, unsigned number)
{
    for (unsigned i = 0; s->held && i < DXPU_PUSH_CHUNKS; i++) {
        if (s->chunk[i].rule == number)
            drop(s, &s->chunk[i]);
    }
}

void dxpu_push_store_clear(dxpu_push_store *s)
{
    for (unsigned i = 0; i < DXPU_PUSH_RULES; i++) {
        drop_of(s, i);
        memset(&s->kept[i], 0, sizeof s->kept[i]);
    }
    s->rules = 0;
}

void dxpu_push_store_offer(dxpu_push_store *s, const dxpu_push_offer *offer)
{
    dxpu_push_store_clear(s);
    s->offer = bounded(offer);
}

int dxpu_push_store_add(dxpu_push_store *s, dxpu_push_rule *r)
{
    unsigned i = 0;
    while (i < s->offer.rules && s->kept[i].rule.bytes)
        i++;
    r->rule = (uint8_t)i;
    r->generation = s->generation + 1;
    if (!is_valid(r, &s->offer))
        return DXPU_E_ARG;
    s->generation++;
    memset(&s->kept[i], 0, sizeof s->kept[i]);
    s->kept[i].rule = *r;
    s->kept[i].next = r->start;
    s->kept[i].room = r->bytes;
    s->rules++;
    return (int)i;
}

bool dxpu_push_store_remove(dxpu_push_store *s, unsigned number, dxpu_push_rule *out)
{
    if (number >= DXPU_PUSH_RULES || !s->kept[number].rule.bytes)
        return false;
    *out = s->kept[number].rule;
    out->bytes = 0;
    drop_of(s, number);
    memset(&s->kept[number], 0, sizeof s->kept[number]);
    s->rules--;
    return true;
}

/* Whole entries from the one on that comes next; or one place of the ring, all of it.  U-12 */
static bool is_expected(const dxpu_push_kept *k, const dxpu_push_data *d)
{
    const dxpu_push_rule *r = &k->rule;
    uint64_t from = d->address - r->base;
    if (!d->data.len || d->data.len > k->room)
        return false;
    if (r->mode == DXPU_PUSH_SINCE)
        return k->next != UNKNOWN && d->address == entry_at(r, k->next) &&
               d->data.len % r->stride == 0 && d->data.len / r->stride <= r->entries - k->next;
    if (d->data.len != r->bytes)
        return false;
    return r->stride ? from % r->stride == 0 && from / r->stride < r->entries : from == 0;
}

/* Where it goes: behind what was pushed for the entries before, or into a chunk of its own. */
static dxpu_push_chunk *place(dxpu_push_store *s, const dxpu_push_data *d)
{
    dxpu_push_chunk *free_one = NULL;
    for (unsigned i = 0; i < DXPU_PUSH_CHUNKS; i++) {
        dxpu_push_chunk *c = &s->chunk[i];
        size_t end = (size_t)c->at + c->left;
        if (!c->left)
            free_one = c;
        else if (c->rule == d->rule && c->address + c->left == d->address &&
                 d->data.len <= sizeof c->data - end)
            return c;
    }
    if (free_one) {
        s->held++;
        free_one->rule = d->rule;
        free_one->address = d->address;
        free_one->at = 0;
    }
    return free_one;
}

bool dxpu_push_store_arrived(dxpu_push_store *s, const dxpu_push_data *d)
{
    dxpu_push_kept *k = d->rule < DXPU_PUSH_RULES ? &s->kept[d->rule] : NULL;
    dxpu_push_chunk *c = NULL;
    if (k && k->rule.bytes && k->rule.generation == d->generation && is_expected(k, d)) {
        if (k->rule.mode == DXPU_PUSH_AT)
            drop_of(s, d->rule);
        dxpu_push_store_touch(s, d->address, (uint32_t)d->data.len); /* the newer one counts */
        c = place(s, d);
        k->room = (uint16_t)(k->room - d->data.len);
        k->fresh = c != NULL;
        if (k->rule.mode == DXPU_PUSH_SINCE) /* also without a place: what follows is in order */
            k->next = (uint32_t)((k->next + d->data.len / k->rule.stride) % k->rule.entries);
    }
    s->count.pushes += c != NULL;
    s->count.dropped += c == NULL;
    if (!c)
        return false;
    memcpy(c->data + c->at + c->left, d->data.ptr, d->data.len);
    c->left = (uint16_t)(c->left + d->data.len);
    return true;
}

/* What was pushed by an AT rule is of this doorbell, or it is gone. */
static void rang_at(dxpu_push_store *s, dxpu_push_kept *k, unsigned number, uint64_t value)
{
    uint64_t address = entry_at(&k->rule, value % k->rule.entries);
    for (unsigned i = 0; s->held && i < DXPU_PUSH_CHUNKS; i++) {
        dxpu_push_chunk *c = &s->chunk[i];
        if (c->left && c->rule == number && (!k->fresh || c->address != address))
            drop(s, c);
    }
    k->fresh = false;
}

void dxpu_push_store_rang(dxpu_push_store *s, const dxpu_tlp *write)
{
    uint64_t value;
    for (unsigned i = 0, left = s->rules; left; i++) {
        dxpu_push_kept *k = &s->kept[i];
        bool exact;
        if (!k->rule.bytes)
            continue;
        left--;
        exact = is_doorbell(&k->rule, write, &value);
        if (!exact && !is_near(&k->rule, write))
            continue;
        k->room = k->rule.bytes;
        if (exact && k->rule.mode == DXPU_PUSH_SINCE && value < k->rule.entries)
            k->next = (uint32_t)value;
        else if (k->rule.mode == DXPU_PUSH_SINCE) /* what the device makes of it is its own */
            k->next = UNKNOWN;
        else if (exact)
            rang_at(s, k, i, value);
        else
            drop_of(s, i);
    }
}

static bool overlaps(const dxpu_push_chunk *c, uint64_t address, uint32_t bytes)
{
    return c->left &&
           (address >= c->address ? address - c->address < c->left : c->address - address < bytes);
}

uint32_t dxpu_push_store_take(dxpu_push_store *s, uint64_t address, uint32_t bytes, uint8_t *to)
{
    for (unsigned i = 0; s->held && i < DXPU_PUSH_CHUNKS; i++) {
        dxpu_push_chunk *c = &s->chunk[i];
        uint32_t n = bytes < c->left ? bytes : c->left;
        if (!n || c->address != address)
            continue;
        memcpy(to, c->data + c->at, n);
        c->address += n;
        c->at = (uint16_t)(c->at + n);
        c->left = (uint16_t)(c->left - n);
        s->held -= !c->left;
        s->count.taken += n;
        return n;
    }
    return 0;
}

void dxpu_push_store_touch(dxpu_push_store *s, uint64_t address, uint32_t bytes)
{
    for (unsigned i = 0; s->held && i < DXPU_PUSH_CHUNKS; i++) {
        if (overlaps(&s->chunk[i], address, bytes))
            drop(s, &s->chunk[i]);
    }
}
