/* declare.c - see declare.h
   SPDX-License-Identifier: MIT */
#include "declare.h"
#include "dxpu_bytes_message.h"

enum { KIND_VALUES = 1 };

dxpu_bytes declare_encode(const device_value *values, unsigned count, uint8_t out[DECLARE_BYTES])
{
    uint8_t payload[DECLARE_HEAD_BYTES + DEVICE_VALUES_MAX * DECLARE_VALUE_BYTES];
    uint8_t *p = payload + DECLARE_HEAD_BYTES;
    dxpu_bytes message = { out, 0 };
    dxpu_tlp t;
    int rc;
    memset(payload, 0, sizeof payload);
    payload[0] = KIND_VALUES;
    payload[1] = (uint8_t)count;
    for (unsigned i = 0; i < count; i++, p += DECLARE_VALUE_BYTES) {
        const device_value *v = &values[i];
        p[0] = v->function;
        p[1] = v->bar;
        dxpu_put_be16(p + 2, v->bytes);
        memcpy(p + 4, v->value, sizeof v->value);
        dxpu_put_be64(p + 8, v->offset);
    }
    dxpu_bytes_message(&t, DXPU_MSG_TO_ROOT, payload, (size_t)(p - payload));
    rc = dxpu_tlp_encode(&t, out, DECLARE_BYTES, &message.len);
    DXPU_ASSERT(rc == DXPU_OK);
    (void)rc;
    return message;
}
