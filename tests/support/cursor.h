/* cursor.h - a whole TLP on its way into frames, for tests that make bodies by hand
   SPDX-License-Identifier: MIT */
#ifndef CURSOR_H_INCLUDED
#define CURSOR_H_INCLUDED

#include "dxpu.h"

/* DXPU_OK, E_TLP_* (also E_TLP_PREFIX for local prefixes, which never cross: W-33). */
static inline int cursor_start(dxpu_tlp_cursor *c, dxpu_bytes tlp)
{
    dxpu_tlp_shape s;
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

#endif /* CURSOR_H_INCLUDED */
