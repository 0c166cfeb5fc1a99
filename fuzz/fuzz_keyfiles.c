/* Fuzz target: any bytes as a key file, as a public key, or as a proxy's file of identity, as the
   first byte says.  Each is written in one way only: what is taken, printed, is what was read.
   libFuzzer: -max_len=128 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "quick_sodium.h"

#include "dxpu_sodium_key.c" /* not linked: reaches parse_file() */
#include "identity_file.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_public(const char *text)
{
    char again[DXPU_SODIUM_KEY_TEXT_BYTES], print[DXPU_SODIUM_FINGERPRINT_BYTES];
    uint8_t key[DXPU_NOISE_KEY_BYTES];
    if (!dxpu_sodium_key_parse(text, key))
        return;
    must(strcmp(dxpu_sodium_key_print(key, again), text) == 0);
    must(strlen(dxpu_sodium_fingerprint(key, print)) == DXPU_SODIUM_FINGERPRINT_BYTES - 1);
}

static void check_secret(const uint8_t *data, size_t size)
{
    char text[FILE_BYTES + 1] = "", again[DXPU_SODIUM_KEY_TEXT_BYTES];
    dxpu_noise_pair pair;
    if (size != FILE_BYTES) /* file_problem() */
        return;
    memcpy(text, data, FILE_BYTES);
    if (!parse_file(text, &pair))
        return;
    must(memcmp(data, header, HEADER_BYTES) == 0 && data[FILE_BYTES - 1] == '\n');
    dxpu_sodium_key_print(pair.secret, again);
    must(memcmp(data + HEADER_BYTES, again, sizeof again - 1) == 0);
}

static void check_identity(const uint8_t *data, size_t size)
{
    char text[IDENTITY_TEXT_BYTES + 1] = "", again[2 * IDENTITY_BYTES + 2];
    uint8_t identity[IDENTITY_BYTES];
    size_t len = size < sizeof text ? size : sizeof text; /* what is read of a longer one */
    memcpy(text, data, len);
    if (!identity_file_parse(text, len, identity))
        return;
    for (unsigned i = 0; i < IDENTITY_BYTES; i++)
        snprintf(again + (size_t)2 * i, 4, "%02x\n", identity[i]);
    must(len == IDENTITY_TEXT_BYTES && memcmp(data, again, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    quick_begin();
    if (data[0] % 3 == 0) {
        char *text = malloc(size); /* with a zero for the first byte, and exactly as long */
        must(text != NULL);
        memcpy(text, data + 1, size - 1);
        text[size - 1] = '\0';
        check_public(text);
        free(text);
    } else if (data[0] % 3 == 1) {
        check_secret(data + 1, size - 1);
    } else {
        check_identity(data + 1, size - 1);
    }
    return 0;
}
