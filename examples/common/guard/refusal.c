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
