/* dxpu_p2p.c - see dxpu_p2p.h
   SPDX-License-Identifier: MIT */
#include "dxpu_p2p.h"
#include "dxpu_bytes_message.h"

enum { KIND_LIST = 5, KIND_HELLO = 6 };

static bool is_domain(const uint8_t *p)
{
    static const uint8_t none[DXPU_P2P_DOMAIN_BYTES];
    return memcmp(p, none, sizeof none) != 0;
}

static void put_place(uint8_t *p, const dxpu_p2p_place *x)
{
    p[0] = x->slot;
    p[1] = x->family;
    dxpu_put_be16(p + 2, x->box_slot);
    dxpu_put_be64(p + 4, x->epoch);
    p[12] = x->bus;
    p[13] = x->last_bus;
    dxpu_put_be16(p + 14, x->port);
    memcpy(p + 16, x->address, sizeof x->address);
    memcpy(p + 32, x->key, sizeof x->key);
}

static bool get_place(const uint8_t *p, const dxpu_p2p_list *l, dxpu_p2p_place *out)
{
    out->slot = p[0];
    out->family = p[1];
    out->box_slot = dxpu_get_be16(p + 2);
    out->epoch = dxpu_get_be64(p + 4);
    out->bus = p[12];
    out->last_bus = p[13];
    out->port = dxpu_get_be16(p + 14);
    memcpy(out->address, p + 16, sizeof out->address);
    memcpy(out->key, p + 32, sizeof out->key);
    return out->slot && out->slot != l->slot && out->box_slot && out->epoch &&
           (out->family == 4 || out->family == 6) && out->bus <= out->last_bus;
}

void dxpu_p2p_message(const dxpu_p2p_list *l, uint8_t payload[DXPU_P2P_BYTES_MAX], dxpu_tlp *out)
{
    uint8_t *p = payload + DXPU_P2P_HEAD_BYTES;
    payload[0] = KIND_LIST;
    payload[1] = l->slot;
    payload[2] = l->count;
    payload[3] = l->places;
    memcpy(payload + 4, l->domain, sizeof l->domain);
    for (unsigned i = 0; i < l->count; i++, p += DXPU_P2P_WINDOW_BYTES) {
        p[0] = l->at[i].slot;
        p[1] = l->at[i].own;
        dxpu_put_be16(p + 2, l->at[i].payload_bytes);
        dxpu_put_be64(p + 4, l->at[i].first);
        dxpu_put_be64(p + 12, l->at[i].last);
    }
    for (unsigned i = 0; i < l->places; i++, p += DXPU_P2P_PLACE_BYTES)
        put_place(p, &l->place[i]);
    dxpu_bytes_message(out, DXPU_MSG_LOCAL, payload, (size_t)(p - payload));
}

static bool decode(const dxpu_tlp *t, dxpu_p2p_list *out)
{
    const uint8_t *p = t->payload.ptr;
    if (t->ep || t->payload.len < DXPU_P2P_HEAD_BYTES || p[1] == 0 || p[2] > DXPU_P2P_WINDOWS ||
        p[3] > DXPU_P2P_PLACES || !is_domain(p + 4) ||
        t->payload.len < DXPU_P2P_HEAD_BYTES + (size_t)p[2] * DXPU_P2P_WINDOW_BYTES +
                             (size_t)p[3] * DXPU_P2P_PLACE_BYTES)
        return false;
    out->slot = p[1];
    out->count = p[2];
    out->places = p[3];
    memcpy(out->domain, p + 4, sizeof out->domain);
    p += DXPU_P2P_HEAD_BYTES;
    for (unsigned i = 0; i < out->count; i++, p += DXPU_P2P_WINDOW_BYTES) {
        dxpu_p2p_window *w = &out->at[i];
        w->slot = p[0];
        w->own = p[1] != 0;
        w->payload_bytes = dxpu_get_be16(p + 2);
        w->first = dxpu_get_be64(p + 4);
        w->last = dxpu_get_be64(p + 12);
        if (p[1] > 1 || !w->slot || w->slot == out->slot || w->first > w->last)
            return false;
    }
    for (unsigned i = 0; i < out->places; i++, p += DXPU_P2P_PLACE_BYTES) {
        if (!get_place(p, out, &out->place[i]) ||
            dxpu_p2p_place_of(out, p[0]) != &out->place[i]) /* one of each */
            return false;
    }
    return true;
}

int dxpu_p2p_decode(const dxpu_tlp *t, dxpu_p2p_list *out)
{
    memset(out, 0, sizeof *out);
    if (!dxpu_bytes_is_message(t, DXPU_MSG_LOCAL, KIND_LIST))
        return 0;
    if (decode(t, out))
        return 1;
    memset(out, 0, sizeof *out);
    return DXPU_E_ARG;
}

void dxpu_p2p_hello_message(const dxpu_p2p_hello *h, uint8_t payload[DXPU_P2P_HELLO_BYTES],
                            dxpu_tlp *out)
{
    payload[0] = KIND_HELLO;
    payload[1] = h->from;
    payload[2] = h->to;
    payload[3] = 0;
    memcpy(payload + 4, h->domain, sizeof h->domain);
    dxpu_bytes_message(out, DXPU_MSG_LOCAL, payload, DXPU_P2P_HELLO_BYTES);
}

int dxpu_p2p_hello_decode(const dxpu_tlp *t, dxpu_p2p_hello *out)
{
    const uint8_t *p = t->payload.ptr;
    memset(out, 0, sizeof *out);
    if (!dxpu_bytes_is_message(t, DXPU_MSG_LOCAL, KIND_HELLO))
        return 0;
    if (t->ep || t->payload.len < DXPU_P2P_HELLO_BYTES || !is_domain(p + 4))
        return DXPU_E_ARG;
    out->from = p[1];
    out->to = p[2];
    memcpy(out->domain, p + 4, sizeof out->domain);
    return 1;
}

const dxpu_p2p_place *dxpu_p2p_place_of(const dxpu_p2p_list *l, unsigned slot)
{
    for (unsigned i = 0; i < l->places; i++) {
        if (l->place[i].slot == slot)
            return &l->place[i];
    }
    return NULL;
}

unsigned dxpu_p2p_find(const dxpu_p2p_list *l, uint64_t address)
{
    unsigned i = 0;
    while (i < l->count && (l->at[i].own || address < l->at[i].first || address > l->at[i].last))
        i++;
    return i;
}

bool dxpu_p2p_opens(const dxpu_p2p_list *l, unsigned slot, const dxpu_tlp *t)
{
    for (unsigned i = 0; i < l->count; i++) {
        const dxpu_p2p_window *w = &l->at[i];
        if (w->own && w->slot == slot && t->address >= w->first && t->address <= w->last &&
            t->payload.len <= w->payload_bytes)
            return true;
    }
    return false;
}
