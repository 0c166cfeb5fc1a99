/* dxpu_bytes_message.h - messages between the proxies' ends of a slot, for bindings that have some
   SPDX-License-Identifier: MIT

   Vendor-defined messages of Type 1 with data: a receiver that does not know one drops it.
   The first byte of the payload says which one it is. */
#ifndef DXPU_BYTES_MESSAGE_H_INCLUDED
#define DXPU_BYTES_MESSAGE_H_INCLUDED

#include "dxpu.h"

enum { DXPU_BYTES_VENDOR_TYPE_1 = 0x7f, DXPU_BYTES_NO_VENDOR = 0xffff };
#define DXPU_BYTES_VENDOR_NAME 0x64787075u /* "dxpu" */

/* The payload, whole dwords, stays the caller's memory. */
static inline void dxpu_bytes_message(dxpu_tlp *out, uint8_t routing, const uint8_t *payload,
                                      size_t bytes)
{
    memset(out, 0, sizeof *out);
    out->type = DXPU_TLP_MSGD;
    out->header_dw = 4;
    out->message_code = DXPU_BYTES_VENDOR_TYPE_1;
    out->message_routing = routing;
    out->message_dw[0] = DXPU_BYTES_NO_VENDOR;
    out->message_dw[1] = DXPU_BYTES_VENDOR_NAME;
    out->payload.ptr = payload;
    out->payload.len = bytes;
    out->length_dw = (uint16_t)(bytes / 4);
}

/* A message of this kind, which has a dword of payload at least. */
static inline bool dxpu_bytes_is_message(const dxpu_tlp *t, uint8_t routing, uint8_t kind)
{
    return t->type == DXPU_TLP_MSGD && t->message_code == DXPU_BYTES_VENDOR_TYPE_1 &&
           t->message_routing == routing && t->message_dw[0] == DXPU_BYTES_NO_VENDOR &&
           t->message_dw[1] == DXPU_BYTES_VENDOR_NAME && t->payload.len >= 4 &&
           t->payload.ptr[0] == kind;
}

#endif /* DXPU_BYTES_MESSAGE_H_INCLUDED */
