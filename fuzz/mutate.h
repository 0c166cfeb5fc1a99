/* mutate.h - mutations that keep the structure of TLPs and frames, for LLVMFuzzerCustomMutator
   SPDX-License-Identifier: MIT

   Include after dxpu.h's implementation.  A mutation of bytes alone seldom gets past a CRC or a
   length field; these change a field or a record and make lengths and CRCs right again. */
#ifndef FUZZ_MUTATE_H_INCLUDED
#define FUZZ_MUTATE_H_INCLUDED

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
/* libFuzzer's own; there is none in a replay. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

static inline uint32_t mutate_chance(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Any bytes become others. */
static inline size_t mutate_bytes(uint8_t *data, size_t size, size_t max_size, unsigned *seed)
{
    if (LLVMFuzzerMutate)
        return LLVMFuzzerMutate(data, size, max_size);
    if (size)
        data[mutate_chance(seed) % size] ^= (uint8_t)(1u << mutate_chance(seed) % 8);
    return size;
}

/* A TLP: another type, length, byte enables or prefix; then it is as long as its header says, when
   there is room. */
static inline size_t mutate_tlp(uint8_t *data, size_t size, size_t max_size, unsigned *seed)
{
    static const uint8_t first[] = { 0x00, 0x20, 0x01, 0x21, 0x40, 0x60, 0x02, 0x42, 0x04, 0x44,
                                     0x05, 0x45, 0x0a, 0x4a, 0x0b, 0x4b, 0x4c, 0x6c, 0x4d, 0x6d,
                                     0x4e, 0x6e, 0x5b, 0x7b, 0x30, 0x32, 0x34, 0x70, 0x74 };
    dxpu_tlp_shape shape;
    dxpu_bytes b = { data, size };
    uint32_t what = mutate_chance(seed) % 8;
    size_t at = 0;
    if (dxpu_tlp_measure(b, &shape) == DXPU_OK)
        at = shape.head_bytes - shape.header_dw * 4u;
    if (size < at + 12)
        return mutate_bytes(data, size, max_size, seed);
    if (what == 0) {
        data[at] = first[mutate_chance(seed) % sizeof first];
    } else if (what == 1) {
        data[at + 2] = (uint8_t)((data[at + 2] & 0xfc) | (mutate_chance(seed) % 16 == 0 ? 1 : 0));
        data[at + 3] = (uint8_t)(mutate_chance(seed) % 34);
    } else if (what == 2) {
        data[at + 2] ^=
            (uint8_t)(0x80u >> mutate_chance(seed) % 6); /* digest, poison, attributes */
    } else if (what == 3) {
        data[at + 7] = (uint8_t)mutate_chance(seed); /* byte enables, or a byte count */
    } else if (what == 4 && size + 4 <= max_size) {
        memmove(data + 4, data, size);
        memset(data, 0, 4);
        data[0] = (uint8_t)(0x80 | (mutate_chance(seed) & 0x1f));
        size += 4;
    } else if (what == 5) {
        data[at + 1] ^= (uint8_t)(1u << mutate_chance(seed) % 8); /* class, tag bits, TH, IDO */
    } else {
        size = mutate_bytes(data, size, max_size, seed);
    }
    b.len = size;
    if (dxpu_tlp_measure(b, &shape) == DXPU_OK && shape.total_bytes <= max_size) {
        if (shape.total_bytes > size)
            memset(data + size, 0x11, shape.total_bytes - size);
        size = shape.total_bytes;
    }
    return size;
}

/* A body of records: one goes, or comes twice, or its content changes. */
static inline size_t mutate_records(uint8_t *body, size_t size, size_t max_size, unsigned *seed)
{
    uint32_t wanted = mutate_chance(seed) % 4, what = mutate_chance(seed) % 4;
    dxpu_bytes rest = { body, size };
    size_t from = 0, to = 0;
    dxpu_record r;
    for (uint32_t n = 0; n <= wanted && dxpu_record_next(&rest, &r) == DXPU_OK; n++) {
        from = to;
        to = size - rest.len;
    }
    if (what == 0 && to > from) {
        memmove(body + from, body + to, size - to);
        return size - (to - from);
    }
    if (what == 1 && to > from && size + (to - from) <= max_size) {
        memmove(body + to + (to - from), body + to, size - to);
        memcpy(body + to, body + from, to - from);
        return size + (to - from);
    }
    return mutate_bytes(body, size, max_size, seed);
}

/* A frame under the CRC suite: a field or the body changes; lengths and the CRC are right. */
static inline size_t mutate_frame(uint8_t *data, size_t size, size_t max_size, unsigned *seed)
{
    static uint8_t body[DXPU_FRAME_MAX_LIMIT_BYTES];
    dxpu_bytes all = { data, size };
    uint32_t what = mutate_chance(seed) % 10, value = mutate_chance(seed);
    size_t bytes, room, head;
    dxpu_frame f;
    if (max_size < DXPU_FRAME_FULL_BYTES + DXPU_FRAME_CRC_BYTES ||
        dxpu_frame_decode(all, DXPU_FRAME_CRC_BYTES, &f) != DXPU_OK)
        return mutate_bytes(data, size, max_size, seed);
    room = max_size - DXPU_FRAME_FULL_BYTES - DXPU_FRAME_CRC_BYTES;
    room = room < sizeof body ? room : sizeof body;
    bytes = f.body.len < room ? f.body.len : room;
    if (bytes)
        memcpy(body, f.body.ptr, bytes);
    if (what == 0)
        f.channel = value;
    else if (what == 1)
        f.packet = value;
    else if (what == 2)
        f.sequence += value % 16 - 8;
    else if (what == 3)
        f.ack += value & 16 ? value << 8 : value % 16 - 8;
    else if (what == 4)
        f.sack = (uint64_t)value << value % 40;
    else if (what == 5)
        f.limits.header[value % DXPU_CLASSES] = value >> 2;
    else
        bytes = mutate_records(body, bytes, room, seed);
    head = dxpu_frame_encode_header(&f, bytes, DXPU_FRAME_CRC_BYTES, data);
    if (bytes)
        memcpy(data + head, body, bytes);
    dxpu_frame_seal_crc(data, head + bytes);
    all.len = head + bytes + DXPU_FRAME_CRC_BYTES;
    if (dxpu_frame_check_crc(all) != DXPU_OK)
        abort();
    return all.len;
}

#endif /* FUZZ_MUTATE_H_INCLUDED */
