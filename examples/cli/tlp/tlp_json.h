/* tlp_json.h - TLPs as JSON objects, both directions; dxpu(1) lists the keys
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_TLP_JSON_H
#define DXPU_CLI_TLP_JSON_H

#include "dxpu.h"

#include <jansson.h>

/* The object of a decoded TLP.  whole: it was decoded strictly, so that its digest is known.
   The caller owns the result; NULL when memory is short. */
json_t *tlp_json_from(const dxpu_tlp *t, bool whole);
/* The object of a refused one: error, reason, input. */
json_t *tlp_json_refusal(const char *error, const char *reason, const char *input);

/* A TLP to be encoded. */
typedef struct tlp_json {
    dxpu_tlp tlp; /* payload points to `payload` */
    uint8_t payload[DXPU_TLP_PAYLOAD_MAX_BYTES];
    bool digest_given;
    json_t *object;
    char why[256]; /* the key that is wrong, and the remedy */
} tlp_json;

/* Read an object.  False: `why` says why.  What only PCIe's rules decide is left to the encoder. */
bool tlp_json_to(json_t *object, tlp_json *out);

#endif
