/* dxpu_portable.c - see dxpu_portable.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Bytes   2 X25519   3 BLAKE2b   4 ChaCha20   5 Poly1305   6 The AEAD   7 The table */
#include "dxpu_portable.h"

enum { KEY = DXPU_KEY_BYTES, NONCE = 12, TAG = 16 };

#ifndef DXPU_PORTABLE_KNOWN /* notifies a test that marks secrets: this is no secret any more */
#define DXPU_PORTABLE_KNOWN(truth) (truth)
#endif

/* ==== 1  Bytes ================================================================================ */

/* All bytes are looked at, whatever they are. */
static bool equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    uint32_t differ = 0;
    for (size_t i = 0; i < bytes; i++)
        differ |= (uint32_t)(a[i] ^ b[i]);
    return DXPU_PORTABLE_KNOWN((differ - 1) >> 31);
}

/* Through a volatile pointer: no compiler takes these writes for needless. */
static void wipe(void *p, size_t bytes)
{
    volatile uint8_t *at = p;
    while (bytes--)
        *at++ = 0;
}

#if defined(__GNUC__)
#define APART __attribute__((noinline)) /* else its array would lie in the caller's own frame */
#else
#define APART
#endif
static APART void wipe_stack(void)
{
    volatile uint8_t below[DXPU_PORTABLE_STACK_BYTES];
    for (size_t i = 0; i < sizeof below; i++)
        below[i] = 0;
}

/* ==== 2  X25519 ===============================================================================
   A number modulo 2^255 - 19 is ten signed limbs of 26 and 25 bits in turn, so that products are
   of 32 by 32 bits.  mul() takes limbs of up to 1.65 * 2^26 and 2^25: sums and differences of two
   of its results; its own are at most 1.01 * 2^25 and 2^24. */

enum { LIMBS = 10 };
typedef int32_t fe[LIMBS];

static unsigned limb_bits(unsigned i)
{
    return i & 1 ? 25 : 26;
}

/* Limbs whose sums have grown to 64 bits, as small as they go. */
static void fe_carry(fe out, int64_t h[LIMBS])
{
    int64_t carry = 0;
    for (unsigned i = 0; i < LIMBS; i += 2) {
        h[i] += carry;
        carry = (h[i] + (1 << 25)) >> 26;
        h[i] -= carry * (1 << 26);
        h[i + 1] += carry;
        carry = (h[i + 1] + (1 << 24)) >> 25;
        h[i + 1] -= carry * (1 << 25);
    }
    h[0] += carry * 19; /* 2^255 is 19 */
    carry = (h[0] + (1 << 25)) >> 26;
    h[0] -= carry * (1 << 26);
    h[1] += carry;
    for (unsigned i = 0; i < LIMBS; i++)
        out[i] = (int32_t)h[i];
}

static void fe_mul(fe out, const fe f, const fe g)
{
    int64_t h[LIMBS] = { 0 };
    int32_t g19[LIMBS];
    for (unsigned i = 0; i < LIMBS; i++)
        g19[i] = 19 * g[i];
    for (unsigned i = 0; i < LIMBS; i++) {
        int32_t one = f[i], two = i & 1 ? 2 * one : one; /* two halves of a bit, of odd limbs */
        for (unsigned j = 0; j < LIMBS - i; j++)
            h[i + j] += (int64_t)(j & 1 ? two : one) * g[j];
        for (unsigned j = LIMBS - i; j < LIMBS; j++)
            h[i + j - LIMBS] += (int64_t)(j & 1 ? two : one) * g19[j];
    }
    fe_carry(out, h);
}

static void fe_mul_small(fe out, const fe f, int32_t n)
{
    int64_t h[LIMBS];
    for (unsigned i = 0; i < LIMBS; i++)
        h[i] = (int64_t)f[i] * n;
    fe_carry(out, h);
}

static void fe_add(fe out, const fe f, const fe g)
{
    for (unsigned i = 0; i < LIMBS; i++)
        out[i] = f[i] + g[i];
}

static void fe_sub(fe out, const fe f, const fe g)
{
    for (unsigned i = 0; i < LIMBS; i++)
        out[i] = f[i] - g[i];
}

/* Swap them where `swap` is 1, and not where it is 0. */
static void fe_swap(fe f, fe g, uint32_t swap)
{
    uint32_t mask = 0u - swap;
    for (unsigned i = 0; i < LIMBS; i++) {
        uint32_t x = ((uint32_t)f[i] ^ (uint32_t)g[i]) & mask;
        f[i] = (int32_t)((uint32_t)f[i] ^ x);
        g[i] = (int32_t)((uint32_t)g[i] ^ x);
    }
}

/* 1/f, as f to the power of 2^255 - 21; 0 for 0. */
static void fe_invert(fe out, const fe f)
{
    fe power;
    memcpy(power, f, sizeof power);
    for (unsigned bit = 254; bit-- > 0;) {
        fe_mul(power, power, power);
        if (bit != 2 && bit != 4)
            fe_mul(power, power, f);
    }
    memcpy(out, power, sizeof power);
    wipe(power, sizeof power);
}

/* The highest bit is not looked at. */
static void fe_read(fe out, const uint8_t in[KEY])
{
    int64_t h[LIMBS];
    uint64_t bits = 0;
    unsigned have = 0, at = 0;
    for (unsigned i = 0; i < LIMBS; i++) {
        for (; have < limb_bits(i); have += 8)
            bits |= (uint64_t)in[at++] << have;
        h[i] = (int64_t)(bits & (((uint64_t)1 << limb_bits(i)) - 1));
        bits >>= limb_bits(i);
        have -= limb_bits(i);
    }
    fe_carry(out, h);
}

/* The one way to write it: less than 2^255 - 19.  f is a result of mul(). */
static void fe_write(uint8_t out[KEY], const fe f)
{
    int32_t h[LIMBS], carry = (19 * f[LIMBS - 1] + (1 << 24)) >> 25;
    uint64_t bits = 0;
    unsigned have = 0, at = 0;
    for (unsigned i = 0; i < LIMBS; i++) /* how often 2^255 - 19 goes into it: -1, 0 or 1 */
        carry = (f[i] + carry) >> limb_bits(i);
    carry *= 19;
    for (unsigned i = 0; i < LIMBS; i++) { /* what is carried out of the last limb falls away */
        h[i] = f[i] + carry;
        carry = h[i] >> limb_bits(i);
        h[i] -= carry * (1 << limb_bits(i));
    }
    for (unsigned i = 0; i < LIMBS; i++) {
        bits |= (uint64_t)(uint32_t)h[i] << have;
        for (have += limb_bits(i); have >= 8; have -= 8, bits >>= 8)
            out[at++] = (uint8_t)bits;
    }
    out[at] = (uint8_t)bits;
    wipe(h, sizeof h);
}

typedef struct ladder {
    fe x1, x2, z2, x3, z3, a, b, c, d, e;
} ladder;

/* One bit of the Montgomery ladder (RFC 7748, section 5). */
static void ladder_step(ladder *l)
{
    fe_add(l->a, l->x2, l->z2);
    fe_sub(l->b, l->x2, l->z2);
    fe_add(l->c, l->x3, l->z3);
    fe_sub(l->d, l->x3, l->z3);
    fe_mul(l->d, l->d, l->a); /* DA */
    fe_mul(l->c, l->c, l->b); /* CB */
    fe_mul(l->a, l->a, l->a); /* AA */
    fe_mul(l->b, l->b, l->b); /* BB */
    fe_add(l->x3, l->d, l->c);
    fe_mul(l->x3, l->x3, l->x3);
    fe_sub(l->z3, l->d, l->c);
    fe_mul(l->z3, l->z3, l->z3);
    fe_mul(l->z3, l->z3, l->x1);
    fe_mul(l->x2, l->a, l->b);
    fe_sub(l->e, l->a, l->b);
    fe_mul_small(l->z2, l->e, 121665);
    fe_add(l->z2, l->z2, l->a);
    fe_mul(l->z2, l->z2, l->e);
}

static void x25519(uint8_t out[KEY], const uint8_t secret[KEY], const uint8_t point[KEY])
{
    uint8_t scalar[KEY];
    uint32_t swapped = 0;
    ladder l;
    memcpy(scalar, secret, KEY);
    scalar[0] &= 248;
    scalar[31] = (uint8_t)((scalar[31] & 127) | 64);
    memset(&l, 0, sizeof l);
    fe_read(l.x1, point);
    memcpy(l.x3, l.x1, sizeof l.x3);
    l.x2[0] = l.z3[0] = 1;
    for (unsigned bit = 255; bit-- > 0;) {
        uint32_t one = (uint32_t)scalar[bit / 8] >> bit % 8 & 1u;
        fe_swap(l.x2, l.x3, swapped ^ one);
        fe_swap(l.z2, l.z3, swapped ^ one);
        swapped = one;
        ladder_step(&l);
    }
    fe_swap(l.x2, l.x3, swapped);
    fe_swap(l.z2, l.z3, swapped);
    fe_invert(l.z2, l.z2);
    fe_mul(l.x2, l.x2, l.z2);
    fe_write(out, l.x2);
    wipe(scalar, sizeof scalar);
    wipe(&l, sizeof l);
}

static void public_key(uint8_t out[KEY], const uint8_t secret[KEY])
{
    static const uint8_t base[KEY] = { 9 };
    x25519(out, secret, base);
}

static bool agree(uint8_t out[KEY], const uint8_t secret[KEY], const uint8_t remote[KEY])
{
    static const uint8_t zero[KEY];
    x25519(out, secret, remote);
    return !equal(out, zero, KEY);
}

/* ==== 3  BLAKE2b ============================================================================== */

enum { BLOCK = 128, WORDS = 16, ROUNDS = 12 };

typedef struct blake {
    uint64_t h[8], bytes;
    uint8_t block[BLOCK];
    size_t used; /* of the block */
} blake;

static const uint64_t blake_iv[8] = { 0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                      0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                      0x1f83d9abfb41bd6b, 0x5be0cd19137e2179 };

static uint64_t right64(uint64_t x, unsigned bits)
{
    return x >> bits | x << (64 - bits);
}

static void blake_mix(uint64_t v[WORDS], unsigned a, unsigned b, unsigned c, unsigned d, uint64_t x,
                      uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = right64(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = right64(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = right64(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = right64(v[b] ^ v[c], 63);
}

static void blake_compress(blake *s, bool last)
{
    static const uint8_t sigma[10][WORDS] = {
        { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
        { 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
        { 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
        { 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
        { 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
        { 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
        { 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
        { 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
        { 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
        { 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
    };
    uint64_t v[WORDS];
    memcpy(v, s->h, sizeof s->h);
    memcpy(v + 8, blake_iv, sizeof blake_iv);
    v[12] ^= s->bytes;
    v[14] ^= last ? UINT64_MAX : 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const uint8_t *order = sigma[round % 10];
        for (unsigned i = 0; i < 8; i++) { /* four columns, then four diagonals */
            unsigned turn = i / 4, k = i % 4;
            blake_mix(v, k, 4 + (k + turn) % 4, 8 + (k + 2 * turn) % 4, 12 + (k + 3 * turn) % 4,
                      dxpu_get_le64(s->block + (size_t)8 * order[2 * i]),
                      dxpu_get_le64(s->block + (size_t)8 * order[2 * i + 1]));
        }
    }
    for (unsigned i = 0; i < 8; i++)
        s->h[i] ^= v[i] ^ v[i + 8];
    wipe(v, sizeof v);
}

/* A full block waits: it may be the last one, which is another's compression. */
static void blake_add(blake *s, const uint8_t *data, size_t len)
{
    while (len) {
        size_t part;
        if (s->used == BLOCK) {
            s->bytes += BLOCK;
            blake_compress(s, false);
            s->used = 0;
        }
        part = len < BLOCK - s->used ? len : BLOCK - s->used;
        memcpy(s->block + s->used, data, part);
        s->used += part;
        data += part;
        len -= part;
    }
}

static void hash(uint8_t *out, size_t out_bytes, dxpu_bytes key, const dxpu_bytes *parts,
                 unsigned count)
{
    static const uint8_t zeros[BLOCK];
    uint8_t whole[64];
    blake s;
    memcpy(s.h, blake_iv, sizeof s.h);
    s.h[0] ^= 0x01010000 ^ (uint64_t)key.len << 8 ^ out_bytes;
    s.bytes = s.used = 0;
    if (key.len) {
        blake_add(&s, key.ptr, key.len);
        blake_add(&s, zeros, BLOCK - key.len);
    }
    for (unsigned i = 0; i < count; i++)
        blake_add(&s, parts[i].ptr, parts[i].len);
    s.bytes += s.used;
    memset(s.block + s.used, 0, BLOCK - s.used);
    blake_compress(&s, true);
    for (unsigned i = 0; i < 8; i++)
        dxpu_put_le64(whole + (size_t)8 * i, s.h[i]);
    memcpy(out, whole, out_bytes);
    wipe(&s, sizeof s);
    wipe(whole, sizeof whole);
}

/* ==== 4  ChaCha20 ============================================================================= */

enum { CHACHA_BYTES = 64 };

static uint32_t left32(uint32_t x, unsigned bits)
{
    return x << bits | x >> (32 - bits);
}

static void quarter(uint32_t v[WORDS], unsigned a, unsigned b, unsigned c, unsigned d)
{
    v[a] += v[b];
    v[d] = left32(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = left32(v[b] ^ v[c], 12);
    v[a] += v[b];
    v[d] = left32(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = left32(v[b] ^ v[c], 7);
}

/* The constant, a key, and 16 bytes: counter and nonce. */
static void chacha_begin(uint32_t v[WORDS], const uint8_t key[KEY], const uint8_t last[16])
{
    static const uint8_t sigma[] = "expand 32-byte k";
    for (unsigned i = 0; i < 4; i++) {
        v[i] = dxpu_get_le32(sigma + (size_t)4 * i);
        v[12 + i] = dxpu_get_le32(last + (size_t)4 * i);
    }
    for (unsigned i = 0; i < 8; i++)
        v[4 + i] = dxpu_get_le32(key + (size_t)4 * i);
}

static void chacha_rounds(uint32_t v[WORDS])
{
    for (unsigned i = 0; i < 80; i++) { /* ten times four columns, four diagonals */
        unsigned turn = i / 4 % 2, k = i % 4;
        quarter(v, k, 4 + (k + turn) % 4, 8 + (k + 2 * turn) % 4, 12 + (k + 3 * turn) % 4);
    }
}

static void hchacha20(uint8_t out[KEY], const uint8_t in[16], const uint8_t key[KEY])
{
    uint32_t v[WORDS];
    chacha_begin(v, key, in);
    chacha_rounds(v);
    for (unsigned i = 0; i < 4; i++) {
        dxpu_put_le32(out + (size_t)4 * i, v[i]);
        dxpu_put_le32(out + 16 + (size_t)4 * i, v[12 + i]);
    }
    wipe(v, sizeof v);
}

static void chacha_block(uint8_t out[CHACHA_BYTES], const uint8_t key[KEY],
                         const uint8_t nonce[NONCE], uint32_t counter)
{
    uint32_t begin[WORDS], v[WORDS];
    uint8_t last[16];
    dxpu_put_le32(last, counter);
    memcpy(last + 4, nonce, NONCE);
    chacha_begin(begin, key, last);
    memcpy(v, begin, sizeof v);
    chacha_rounds(v);
    for (unsigned i = 0; i < WORDS; i++)
        dxpu_put_le32(out + (size_t)4 * i, v[i] + begin[i]);
    wipe(begin, sizeof begin);
    wipe(v, sizeof v);
}

/* From the second block on: the first one is Poly1305's key. */
static void chacha_xor(uint8_t *data, size_t len, const uint8_t key[KEY],
                       const uint8_t nonce[NONCE])
{
    uint8_t stream[CHACHA_BYTES];
    for (size_t at = 0; at < len; at++) {
        if (at % CHACHA_BYTES == 0)
            chacha_block(stream, key, nonce, (uint32_t)(at / CHACHA_BYTES) + 1);
        data[at] ^= stream[at % CHACHA_BYTES];
    }
    wipe(stream, sizeof stream);
}

/* ==== 5  Poly1305 =============================================================================
   A number modulo 2^130 - 5 is five limbs of 26 bits. */

enum { PARTS = 5, PART_BITS = 26, PART_MASK = (1 << PART_BITS) - 1 };

typedef struct poly {
    uint32_t r[PARTS], h[PARTS];
    uint8_t pad[16];
} poly;

/* 16 bytes in limbs. */
static void poly_read(uint32_t out[PARTS], const uint8_t in[16])
{
    for (unsigned i = 0; i < PARTS - 1; i++)
        out[i] = dxpu_get_le32(in + (size_t)3 * i) >> 2 * i & PART_MASK;
    out[PARTS - 1] = dxpu_get_le32(in + 12) >> 8;
}

static void poly_begin(poly *p, const uint8_t key[KEY])
{
    static const uint32_t clamp[PARTS] = { 0x3ffffff, 0x3ffff03, 0x3ffc0ff, 0x3f03fff, 0x00fffff };
    poly_read(p->r, key);
    for (unsigned i = 0; i < PARTS; i++)
        p->r[i] &= clamp[i];
    memset(p->h, 0, sizeof p->h);
    memcpy(p->pad, key + 16, sizeof p->pad);
}

static void poly_block(poly *p, const uint8_t in[16])
{
    uint32_t m[PARTS];
    uint64_t sum[PARTS], carry = 0;
    poly_read(m, in);
    m[PARTS - 1] |= 1 << 24; /* 2^128: every block of an AEAD is whole */
    for (unsigned i = 0; i < PARTS; i++)
        p->h[i] += m[i];
    for (unsigned i = 0; i < PARTS; i++) {
        sum[i] = 0;
        for (unsigned j = 0; j < PARTS; j++)
            sum[i] += (uint64_t)p->h[j] * (j <= i ? p->r[i - j] : 5 * p->r[PARTS + i - j]);
    }
    for (unsigned i = 0; i < PARTS; i++) {
        sum[i] += carry;
        p->h[i] = (uint32_t)sum[i] & PART_MASK;
        carry = sum[i] >> PART_BITS;
    }
    p->h[0] += (uint32_t)carry * 5;
    p->h[1] += p->h[0] >> PART_BITS;
    p->h[0] &= PART_MASK;
    wipe(m, sizeof m);
    wipe(sum, sizeof sum);
}

/* Bytes, and zeros up to a whole block. */
static void poly_add(poly *p, const uint8_t *data, size_t len)
{
    uint8_t block[16];
    for (; len >= sizeof block; data += sizeof block, len -= sizeof block)
        poly_block(p, data);
    if (!len)
        return;
    memset(block, 0, sizeof block);
    memcpy(block, data, len);
    poly_block(p, block);
}

static void poly_carry(uint32_t h[PARTS])
{
    for (unsigned i = 0; i < PARTS - 1; i++) {
        h[i + 1] += h[i] >> PART_BITS;
        h[i] &= PART_MASK;
    }
}

static void poly_end(poly *p, uint8_t tag[TAG])
{
    uint32_t less[PARTS], mask;
    uint64_t sum = 0;
    poly_carry(p->h);
    p->h[0] += 5 * (p->h[PARTS - 1] >> PART_BITS);
    p->h[PARTS - 1] &= PART_MASK;
    poly_carry(p->h);
    memcpy(less, p->h, sizeof less);
    less[0] += 5; /* less 2^130 - 5, where that is not negative */
    poly_carry(less);
    mask = 0u - (less[PARTS - 1] >> PART_BITS);
    less[PARTS - 1] &= PART_MASK;
    for (unsigned i = 0; i < PARTS; i++)
        p->h[i] = (p->h[i] & ~mask) | (less[i] & mask);
    for (unsigned i = 0; i < 4; i++) { /* 32 bits each, of a limb and the next one */
        sum += (uint32_t)(p->h[i] >> 6 * i | p->h[i + 1] << (PART_BITS - 6 * i));
        sum += dxpu_get_le32(p->pad + (size_t)4 * i);
        dxpu_put_le32(tag + (size_t)4 * i, (uint32_t)sum);
        sum >>= 32;
    }
    wipe(less, sizeof less);
    wipe(p, sizeof *p);
}

/* ==== 6  The AEAD ============================================================================= */

static void expand(void *state, const uint8_t key[KEY])
{
    memcpy(state, key, KEY);
}

static void authenticate(const uint8_t *key, const uint8_t *nonce, dxpu_bytes header,
                         const uint8_t *body, size_t body_bytes, uint8_t tag[TAG])
{
    uint8_t first[CHACHA_BYTES], lengths[16];
    poly p;
    chacha_block(first, key, nonce, 0);
    poly_begin(&p, first);
    poly_add(&p, header.ptr, header.len);
    poly_add(&p, body, body_bytes);
    dxpu_put_le64(lengths, header.len);
    dxpu_put_le64(lengths + 8, body_bytes);
    poly_add(&p, lengths, sizeof lengths);
    poly_end(&p, tag);
    wipe(first, sizeof first);
}

static void encrypt(const void *state, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                    size_t body_bytes, uint8_t *tag)
{
    chacha_xor(body, body_bytes, state, nonce);
    authenticate(state, nonce, header, body, body_bytes, tag);
}

static bool decrypt(const void *state, const uint8_t *nonce, dxpu_bytes header, uint8_t *body,
                    size_t body_bytes, const uint8_t *tag)
{
    uint8_t want[TAG];
    bool good;
    authenticate(state, nonce, header, body, body_bytes, want);
    good = equal(want, tag, TAG);
    wipe(want, sizeof want);
    if (good)
        chacha_xor(body, body_bytes, state, nonce);
    return good;
}

/* ==== 7  The table ============================================================================ */

static const dxpu_aead chacha20_poly1305 = { 0x0002, TAG, NONCE, KEY, expand, encrypt, decrypt };

void dxpu_portable_init(dxpu_primitives *table,
                        void (*random)(void *user, uint8_t *out, size_t bytes), void *user)
{
    table->random = random;
    table->user = user;
    table->public_key = public_key;
    table->agree = agree;
    table->hash = hash;
    table->hchacha20 = hchacha20;
    table->equal = equal;
    table->wipe = wipe;
    table->wipe_stack = wipe_stack;
    table->aeads = &chacha20_poly1305;
    table->aead_count = 1;
}
