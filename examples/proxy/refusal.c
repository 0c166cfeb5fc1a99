/* refusal.c - see refusal.h
   SPDX-License-Identifier: MIT */
#include "refusal.h"

enum { PREFIX_PASID = 0x91 }; /* its first byte: end-end, type 1 (Base Spec 2.2.10.2) */

dxpu_bytes refusal_encode(dxpu_bytes request, uint8_t status, uint8_t out[REFUSAL_BYTES])
{
    dxpu_bytes answer = { out, 0 };
    dxpu_tlp req, cpl;
    if (dxpu_tlp_decode_header(request, &req) != DXPU_OK || dxpu_tlp_class(&req) != DXPU_NONPOSTED)
        return answer;
    dxpu_tlp_completion(&req, 0, status, &cpl);
    if (dxpu_tlp_encode(&cpl, out, REFUSAL_BYTES, &answer.len) != DXPU_OK)
        answer.len = 0;
    return answer;
}

bool refusal_pasid(const dxpu_tlp *t)
{
    for (unsigned i = 0; i < t->prefix_count; i++) {
        if (t->prefix[i] >> 24 == PREFIX_PASID)
            return true;
    }
    return false;
}
