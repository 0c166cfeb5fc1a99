/* cursor.h - a whole TLP on its way into frames, for tests that make bodies by hand; after dxpu.h
   with its implementation
   SPDX-License-Identifier: MIT */
#ifndef CURSOR_H_INCLUDED
#define CURSOR_H_INCLUDED

typedef struct cursor {
    dxpu_bytes tlp;                /* end-end prefixes, header, payload, digest */
    uint32_t crc;                  /* of all of it */
    uint16_t head_bytes, at_bytes; /* placed so far: 0, then head_bytes .. tlp.len */
    uint8_t cls, prefix_dw;
} cursor;

static inline void builder_start(dxpui_builder *b, uint8_t *body, size_t cap)
{
    b->out = body;
    b->cap = cap;
    b->used = 0;
}

/* DXPU_OK, E_TLP_* (also E_TLP_PREFIX for local prefixes, which never cross: W-33). */
static inline int cursor_start(cursor *c, dxpu_bytes tlp)
{
    dxpu_tlp_shape s;
    memset(c, 0, sizeof *c);
    int rc = dxpu_tlp_measure(tlp, &s);
    if (rc != DXPU_OK || s.local_dw)
        return rc != DXPU_OK ? rc : DXPU_E_TLP_PREFIX;
    if (tlp.len != s.total_bytes)
        return tlp.len < s.total_bytes ? DXPU_E_TLP_SHORT : DXPU_E_TLP_LONG;
    c->tlp = tlp;
    c->crc = dxpu_crc32(0, tlp.ptr, tlp.len);
    c->head_bytes = s.head_bytes;
    c->at_bytes = 0;
    c->cls = s.cls;
    c->prefix_dw = s.prefix_dw;
    return DXPU_OK;
}

/* As dxpui_builder_tlp(). */
static inline int cursor_place(dxpui_builder *b, cursor *c)
{
    dxpui_item it;
    memset(&it, 0, sizeof it);
    it.crc = c->crc;
    it.bytes = (uint16_t)c->tlp.len;
    it.head_bytes = c->head_bytes;
    it.prefix_dw = c->prefix_dw;
    int rc = dxpui_builder_tlp(b, c->tlp.ptr, &it, c->cls, &c->at_bytes);
    if (rc == DXPU_OK)
        c->at_bytes = (uint16_t)c->tlp.len;
    return rc;
}

#endif /* CURSOR_H_INCLUDED */
