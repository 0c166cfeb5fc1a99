/* dxpu_p2p.c - see dxpu_p2p.h
   SPDX-License-Identifier: MIT */
#include "dxpu_p2p.h"

enum {
    VENDOR_TYPE_1 = 0x7f, /* message code: a receiver that does not know it drops it */
    NO_VENDOR = 0xffff,
    KIND_LIST = 5
};
#define VENDOR_NAME 0x64787075u /* "dxpu" */

void dxpu_p2p_message(const dxpu_p2p_list *l, uint8_t payload[DXPU_P2P_BYTES_MAX], dxpu_tlp *out)
{
    uint8_t *p = payload + DXPU_P2P_HEAD_BYTES;
    payload[0] = KIND_LIST;
    payload[1] = l->slot;
    payload[2] = l->count;
    payload[3] = 0;
    memcpy(payload + 4, l->domain, sizeof l->domain);
    for (unsigned i = 0; i < l->count; i++, p += DXPU_P2P_WINDOW_BYTES) {
        p[0] = l->at[i].slot;
        p[1] = 0;
        dxpu_put_be16(p + 2, l->at[i].payload_bytes);
        dxpu_put_be64(p + 4, l->at[i].first);
        dxpu_put_be64(p + 12, l->at[i].last);
    }
    memset(out, 0, sizeof *out);
    out->type = DXPU_TLP_MSGD;
    out->header_dw = 4;
    out->message_code = VENDOR_TYPE_1;
    out->message_routing = DXPU_MSG_LOCAL;
    out->message_dw[0] = NO_VENDOR;
    out->message_dw[1] = VENDOR_NAME;
    out->payload.ptr = payload;
    out->payload.len = (size_t)(p - payload);
    out->length_dw = (uint16_t)(out->payload.len / 4);
}

static bool is_list(const dxpu_tlp *t)
{
    return t->type == DXPU_TLP_MSGD && t->message_code == VENDOR_TYPE_1 &&
           t->message_routing == DXPU_MSG_LOCAL && t->message_dw[0] == NO_VENDOR &&
           t->message_dw[1] == VENDOR_NAME && t->payload.len >= 4 && t->payload.ptr[0] == KIND_LIST;
}

static bool decode(const dxpu_tlp *t, dxpu_p2p_list *out)
{
    static const uint8_t none[DXPU_P2P_DOMAIN_BYTES];
    const uint8_t *p = t->payload.ptr;
    if (t->ep || t->payload.len < DXPU_P2P_HEAD_BYTES || p[1] == 0 || p[2] > DXPU_P2P_WINDOWS ||
        t->payload.len < DXPU_P2P_HEAD_BYTES + (size_t)p[2] * DXPU_P2P_WINDOW_BYTES ||
        memcmp(p + 4, none, sizeof none) == 0)
        return false;
    out->slot = p[1];
    out->count = p[2];
    memcpy(out->domain, p + 4, sizeof out->domain);
    p += DXPU_P2P_HEAD_BYTES;
    for (unsigned i = 0; i < out->count; i++, p += DXPU_P2P_WINDOW_BYTES) {
        dxpu_p2p_window *w = &out->at[i];
        w->slot = p[0];
        w->payload_bytes = dxpu_get_be16(p + 2);
        w->first = dxpu_get_be64(p + 4);
        w->last = dxpu_get_be64(p + 12);
        if (!w->slot || w->slot == out->slot || w->first > w->last)
            return false;
    }
    return true;
}

int dxpu_p2p_decode(const dxpu_tlp *t, dxpu_p2p_list *out)
{
    memset(out, 0, sizeof *out);
    if (!is_list(t))
        return 0;
    if (decode(t, out))
        return 1;
    memset(out, 0, sizeof *out);
    return DXPU_E_ARG;
}

unsigned dxpu_p2p_find(const dxpu_p2p_list *l, uint64_t address)
{
    unsigned i = 0;
    while (i < l->count && (address < l->at[i].first || address > l->at[i].last))
        i++;
    return i;
}
