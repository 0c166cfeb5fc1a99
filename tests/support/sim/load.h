/* What the ends of a channel submit: random requests of all kinds and the completions of a
   completer; and the toy cipher under which frames may travel.  Part of tests/support/sim/sim.h. */
#ifndef SIM_LOAD_H
#define SIM_LOAD_H

static inline void sim_fill(sim_rng *r, uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i += 8) {
        uint64_t v = sim_next(r);
        memcpy(p + i, &v, len - i < 8 ? len - i : 8);
    }
}

/* A request of `rid` or the function after it: writes and reads of all sizes, configuration,
   messages, atomics.  payload[4096] is the caller's. */
static inline void sim_random_tlp(sim_rng *r, uint16_t rid, uint16_t tag, dxpu_tlp *t,
                                  uint8_t *payload)
{
    static const uint16_t sizes[] = { 1, 1, 1, 2, 2, 4, 8, 16, 32, 64, 128, 512 };
    memset(t, 0, sizeof *t);
    t->header_dw = sim_chance(r, 500) ? 4 : 3;
    t->requester = (uint16_t)(rid + sim_below(r, 2));
    t->attr = (uint8_t)(sim_chance(r, 200) ? DXPU_ATTR_RO : 0);
    t->attr |= (uint8_t)(sim_chance(r, 400) ? DXPU_ATTR_IDO : 0);
    t->length_dw = sim_chance(r, 10) ? 1024 : sizes[sim_below(r, sizeof sizes / sizeof sizes[0])];
    t->first_be = 0xf;
    t->last_be = t->length_dw > 1 ? 0xf : 0;
    t->address = (sim_next(r) & 0x7ffff000u) | (t->header_dw == 4 ? 0x500000000u : 0);
    switch (sim_below(r, 8)) {
    case 0:
    case 1:
    case 2:
        t->type = DXPU_TLP_MWR;
        break;
    case 3:
    case 4:
        t->type = DXPU_TLP_MRD;
        break;
    case 5:
        t->type = DXPU_TLP_CFGWR0;
        t->header_dw = 3;
        t->length_dw = 1;
        t->last_be = 0;
        t->address = 0;
        t->attr = 0;
        t->target = DXPU_BDF(3, 0, 0);
        t->register_bytes = 0x10;
        break;
    case 6:
        t->type = DXPU_TLP_FETCHADD;
        t->length_dw = 2;
        t->first_be = t->last_be = 0;
        break;
    default:
        t->type = DXPU_TLP_MSG;
        t->header_dw = 4;
        t->length_dw = 0;
        t->first_be = t->last_be = 0;
        t->address = 0;
        t->attr = 0;
        t->message_code = 0x7e;
        t->message_routing = DXPU_MSG_BY_ID;
        t->target = DXPU_BDF(3, 0, 0);
        break;
    }
    if (dxpu_tlp_class(t) == DXPU_NONPOSTED)
        t->tag = tag;
    if (t->type == DXPU_TLP_MWR || t->type == DXPU_TLP_CFGWR0 || t->type == DXPU_TLP_FETCHADD) {
        t->payload.ptr = payload;
        t->payload.len = t->length_dw * 4u;
        sim_fill(r, payload, t->payload.len);
    }
}

/* A memory write of `bytes` whose payload begins with a number. */
static inline size_t sim_numbered_write(uint16_t rid, uint32_t bytes, uint64_t number, uint8_t *out)
{
    static const uint8_t zeros[4096];
    dxpu_tlp t;
    size_t len = 0;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MWR;
    t.header_dw = 3;
    t.requester = rid;
    t.length_dw = (uint16_t)(bytes / 4);
    t.first_be = 0xf;
    t.last_be = bytes > 4 ? 0xf : 0;
    t.address = 0x10000;
    t.payload.ptr = zeros;
    t.payload.len = bytes;
    if (dxpu_tlp_encode(&t, out, DXPU_TLP_MAX_BYTES, &len) != DXPU_OK)
        abort();
    memcpy(out + 12, &number, bytes < 8 ? bytes : 8);
    return len;
}

/* ---- a toy cipher: XOR by key phase and packet number, and a keyed CRC for the tag ---- */

enum { SIM_TAG_BYTES = 16 };

static inline uint64_t sim_suite_key(uint8_t key_phase, uint64_t nonce)
{
    sim_rng r = { nonce ^ (uint64_t)(key_phase + 1) << 56 };
    return sim_next(&r);
}

static inline uint32_t sim_suite_tag(uint64_t key, dxpu_bytes header, const uint8_t *body,
                                     size_t bytes)
{
    return dxpu_crc32(dxpu_crc32((uint32_t)key, header.ptr, header.len), body, bytes);
}

static inline void sim_suite_xor(uint64_t key, uint8_t *body, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        body[i] ^= (uint8_t)(key >> 8 * (i & 7));
}

static inline bool sim_suite_seal(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                                  uint8_t *body, size_t bytes)
{
    uint64_t key = sim_suite_key(key_phase, nonce);
    (void)user;
    sim_suite_xor(key, body, bytes);
    memset(body + bytes, 0, SIM_TAG_BYTES);
    dxpu_put_be32(body + bytes + 12, sim_suite_tag(key, header, body, bytes));
    return true;
}

static inline bool sim_suite_open(void *user, uint8_t key_phase, uint64_t nonce, dxpu_bytes header,
                                  uint8_t *body, size_t bytes)
{
    static const uint8_t zeros[12];
    uint64_t key = sim_suite_key(key_phase, nonce);
    (void)user;
    if (memcmp(body + bytes, zeros, sizeof zeros) != 0 ||
        dxpu_get_be32(body + bytes + 12) != sim_suite_tag(key, header, body, bytes))
        return false;
    sim_suite_xor(key, body, bytes);
    return true;
}

static const dxpu_suite sim_suite = { 2, SIM_TAG_BYTES, sim_suite_seal, sim_suite_open };

#endif
