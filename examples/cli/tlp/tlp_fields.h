/* tlp_fields.h - which fields the header of a TLP type has, and texts of single fields
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_TLP_FIELDS_H
#define DXPU_CLI_TLP_FIELDS_H

#include "dxpu.h"

/* The fields that not every type has. */
enum {
    TLP_HAS_LENGTH = 0x001,
    TLP_HAS_TAG = 0x002,
    TLP_HAS_BE = 0x004,
    TLP_HAS_ADDRESS = 0x008,
    TLP_HAS_COMPLETER = 0x010, /* and status, byte count, lower address, BCM */
    TLP_HAS_TARGET = 0x020,
    TLP_HAS_REGISTER = 0x040,
    TLP_HAS_MESSAGE = 0x080,
    TLP_HAS_HINT =
        0x100, /* address bits 1:0: processing hint, or No Write of a translation request */
    TLP_HAS_STEERING = 0x200,
    TLP_HAS_DATA = 0x400
};

/* The set of them that `t` has; type, th, at and message_routing decide. */
unsigned tlp_fields(const dxpu_tlp *t);
/* DXPU_TLP_* of a name, -1 for none. */
int tlp_type_of(const char *name);
/* May the type have a header of that many dwords? */
bool tlp_type_dw(unsigned type, unsigned header_dw);

/* "bb:dd.f", the way lspci writes a function. */
typedef struct tlp_bdf_text {
    char text[8];
} tlp_bdf_text;
tlp_bdf_text tlp_bdf(uint16_t bdf);
/* The other way; a domain ("0000:") may stand before it.  -1 when it is invalid. */
long tlp_bdf_of(const char *text);

/* An error of the TLP band as users see it: E_TLP_ALL_ONES is "all-ones". */
typedef struct tlp_error_name {
    char text[24];
} tlp_error_name;
tlp_error_name tlp_error(int error);

#endif
