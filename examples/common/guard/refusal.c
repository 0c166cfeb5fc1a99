/* refusal.c - see refusal.h
   SPDX-License-Identifier: MIT */
#include "refusal.h"

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

dxpu_bytes refusal_of_tracked(const dxpu_request *r, uint8_t out[REFUSAL_BYTES])
{
    dxpu_bytes answer = { out, 0 };
    dxpu_tlp cpl;
    memset(&cpl, 0, sizeof cpl);
    cpl.type = DXPU_TLP_CPL;
    cpl.header_dw = 3;
    cpl.requester = r->requester;
    cpl.tag = r->tag;
    cpl.status = DXPU_CPL_UR;
    cpl.byte_count = r->left_bytes ? r->left_bytes : 4;
    (void)dxpu_tlp_encode(&cpl, out, REFUSAL_BYTES, &answer.len); /* always in range */
    return answer;
}
