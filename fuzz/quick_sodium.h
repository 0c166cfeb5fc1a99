/* quick_sodium.h - libsodium for targets: the same input does the same, and quickly
   SPDX-License-Identifier: MIT

   Its functions are linked in place of libsodium's.  Random numbers come from a seed.  Keys agree
   modulo 2^61 - 1, which any fool can break and no fuzzer does, at a hundredth of X25519's time; as
   there, keys that agree on nothing are refused.  Memory comes from malloc(), where the sanitizer
   sees one byte beyond. */
#ifndef QUICK_SODIUM_H_INCLUDED
#define QUICK_SODIUM_H_INCLUDED

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static uint32_t chance; /* the seed */

static const char *fixed_name(void)
{
    return "fixed";
}

static uint32_t fixed_word(void)
{
    return chance = chance * 1664525u + 1013904223u;
}

static void fixed_bytes(void *const out, const size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)out)[i] = (uint8_t)(fixed_word() >> 24);
}

static randombytes_implementation fixed = { fixed_name, fixed_word, NULL, NULL, fixed_bytes, NULL };

#define QUICK_PRIME (((uint64_t)1 << 61) - 1)

/* For factors below 2^61. */
static uint64_t quick_times(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    uint64_t sum = (uint64_t)(product & QUICK_PRIME) + (uint64_t)(product >> 61);
    return sum >= QUICK_PRIME ? sum - QUICK_PRIME : sum;
}

static int quick_scalarmult(uint8_t out[32], const uint8_t secret[32], const uint8_t point[32])
{
    uint64_t power = 1, base, exponent;
    memcpy(&base, point, sizeof base);
    memcpy(&exponent, secret, sizeof exponent);
    base %= QUICK_PRIME;
    exponent |= 1;
    for (; exponent; exponent >>= 1, base = quick_times(base, base)) {
        if (exponent & 1)
            power = quick_times(power, base);
    }
    memset(out, 0, 32);
    memcpy(out, &power, sizeof power);
    return power ? 0 : -1;
}

static unsigned quick_agreements; /* Diffie-Hellmans so far */

int crypto_scalarmult(unsigned char *q, const unsigned char *n, const unsigned char *p)
{
    quick_agreements++;
    return quick_scalarmult(q, n, p);
}

int crypto_scalarmult_base(unsigned char *q, const unsigned char *n)
{
    static const uint8_t generator[32] = { 37 };
    return quick_scalarmult(q, n, generator);
}

void *sodium_malloc(const size_t size)
{
    return malloc(size);
}

void *sodium_allocarray(size_t count, size_t size)
{
    return calloc(count, size);
}

void sodium_free(void *ptr)
{
    free(ptr);
}

int sodium_mlock(void *const addr, const size_t len)
{
    (void)addr;
    (void)len;
    return 0;
}

/* Before each input. */
static void quick_begin(void)
{
    chance = 1;
    randombytes_set_implementation(&fixed);
    if (sodium_init() < 0)
        abort();
}

#endif /* QUICK_SODIUM_H_INCLUDED */
