/* enumerate.c - see enumerate.h
   SPDX-License-Identifier: MIT */
#include "enumerate.h"

enum { /* steps, in order */
       READ_ID,
       SIZE_LOW,
       READ_LOW,
       SIZE_HIGH,
       READ_HIGH,
       PLACE_LOW,
       PLACE_HIGH,
       READ_LIST,
       READ_CAPABILITY,
       READ_DEVICE,
       SET_DEVICE,
       ENABLE,
       DONE
};

enum { CAPABILITY_PCIE = 0x10, CAPABILITIES_MAX = 48, MRRS_4096 = 5 << 12, MEMORY_AND_MASTER = 6 };

/* As long as Linux waits for a device after a reset. */
#define READY_NS 60000000000u

void enumerate_start(enumerate *e, uint64_t address, uint32_t mps_wish)
{
    memset(e, 0, sizeof *e);
    e->address = address;
    e->mps_wish = mps_wish;
}

/* Device Control: Max_Payload_Size as found, Max_Read_Request_Size as large as it goes. */
static uint32_t device_control(const enumerate *e)
{
    uint32_t code = 0;
    while (128u << code < e->mps_bytes)
        code++;
    return code << 5 | (uint32_t)MRRS_4096;
}

static const struct {
    bool write;
    uint8_t be;
    uint16_t offset; /* of the capability looked at, from READ_CAPABILITY to SET_DEVICE */
} steps[] = { { false, 15, 0x00 }, { true, 15, 0x10 },  { false, 15, 0x10 }, { true, 15, 0x14 },
              { false, 15, 0x14 }, { true, 15, 0x10 },  { true, 15, 0x14 },  { false, 15, 0x34 },
              { false, 15, 0 },    { false, 15, 0x04 }, { true, 3, 0x08 },   { true, 3, 0x04 } };

bool enumerate_request(enumerate *e, dxpu_tlp *out, uint8_t payload[4])
{
    uint32_t value = 0xffffffffu;
    if (e->why || e->step >= DONE)
        return false;
    memset(out, 0, sizeof *out);
    out->type = steps[e->step].write ? DXPU_TLP_CFGWR0 : DXPU_TLP_CFGRD0;
    out->header_dw = 3;
    out->length_dw = 1;
    out->target = ENUMERATE_BDF;
    out->first_be = steps[e->step].be;
    out->register_bytes = steps[e->step].offset;
    if (e->step >= READ_CAPABILITY && e->step <= SET_DEVICE)
        out->register_bytes = (uint16_t)(out->register_bytes + e->capability);
    if (e->step == PLACE_LOW)
        value = (uint32_t)e->address;
    else if (e->step == PLACE_HIGH)
        value = (uint32_t)(e->address >> 32);
    else if (e->step == SET_DEVICE)
        value = device_control(e);
    else if (e->step == ENABLE)
        value = MEMORY_AND_MASTER;
    dxpu_put_le32(payload, value);
    if (steps[e->step].write) {
        out->payload.ptr = payload;
        out->payload.len = 4;
    }
    return true;
}

bool enumerate_done(const enumerate *e)
{
    return e->step == DONE && !e->why;
}

static void size_bar(enumerate *e, uint32_t high)
{
    uint64_t mask = (uint64_t)high << 32 | (e->low & 0xfffffff0u);
    e->high = high;
    if ((e->low & 7u) != 4u || !mask)
        e->why = "its first BAR is not 64-bit memory";
    e->bar_bytes = ~mask + 1;
}

/* A capability header: go on to Device Capabilities, to the next one, or give up. */
static void capability(enumerate *e, uint32_t value)
{
    if ((value & 0xffu) == CAPABILITY_PCIE) {
        e->step = READ_DEVICE;
        return;
    }
    e->capability = (uint8_t)(value >> 8 & 0xfcu);
    if (!e->capability || ++e->hops > CAPABILITIES_MAX)
        e->why = "it has no PCI Express capability";
}

static void read_answer(enumerate *e, uint32_t value)
{
    switch (e->step) {
    case READ_ID:
        e->id = value;
        break;
    case READ_LOW:
        e->low = value;
        break;
    case READ_HIGH:
        size_bar(e, value);
        break;
    case READ_LIST:
        e->capability = (uint8_t)(value & 0xfcu);
        break;
    case READ_CAPABILITY:
        capability(e, value);
        return;
    default: /* READ_DEVICE */
        e->mps_bytes = 128u << ((value & 7u) < 5 ? value & 7u : 5);
        if (e->mps_bytes > e->mps_wish)
            e->mps_bytes = e->mps_wish;
        break;
    }
    e->step++;
}

/* Ask again, but not for ever. */
static void unready(enumerate *e, const dxpu_tlp *cpl, uint64_t now_ns)
{
    if (!e->unready_ns)
        e->unready_ns = now_ns;
    else if (now_ns - e->unready_ns >= READY_NS)
        e->why = cpl ? "it is still not ready after 60 s (CRS)"
                     : "it has not answered configuration requests for 60 s";
}

void enumerate_answer(enumerate *e, const dxpu_tlp *cpl, uint64_t now_ns)
{
    if (e->step >= DONE)
        return;
    if (!cpl || cpl->status == DXPU_CPL_CRS) {
        unready(e, cpl, now_ns);
        return;
    }
    e->unready_ns = 0;
    if (cpl->status != DXPU_CPL_SC || cpl->payload.len != (steps[e->step].write ? 0 : 4)) {
        e->why = cpl->status != DXPU_CPL_SC ? "it answers configuration requests with an error"
                                            : "it answers reads without data, or writes with some";
        return;
    }
    if (cpl->payload.len)
        read_answer(e, dxpu_get_le32(cpl->payload.ptr));
    else
        e->step++;
}
