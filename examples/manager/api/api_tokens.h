/* api_tokens.h - the table of tokens; part of api_tokens.c
   SPDX-License-Identifier: MIT */
#ifndef API_TOKENS_H_INCLUDED
#define API_TOKENS_H_INCLUDED

#include "api_internal.h"

#include <sodium.h>
#include <stdio.h>

enum {
    API_TOKENS_MAX = 1024,
    API_TOKEN_MIN = 16,
    API_TOKEN_MAX = 256,
    API_TOKEN_HASH_BYTES = 32,
    API_TOKEN_LINE_BYTES = 512
};

typedef struct token {
    uint8_t hash[API_TOKEN_HASH_BYTES];
    api_caller caller;
} token;

struct api_tokens {
    uint8_t key[crypto_generichash_KEYBYTES];
    unsigned count;
    token token[API_TOKENS_MAX];
};

/* The lines of a file, which messages call `file`.  False after a message. */
bool api_tokens_lines(api_tokens *t, FILE *in, const char *file);

#endif /* API_TOKENS_H_INCLUDED */
