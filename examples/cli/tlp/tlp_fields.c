/* tlp_fields.c - which fields the header of a TLP type has, and texts of single fields
   SPDX-License-Identifier: MIT */
#include "tlp_fields.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct type_row {
    const char *name;
    bool dw4; /* the header may be 4 dwords long */
    bool data;
    uint8_t code;
} type_row;

#define ROW(name, text, dw4, data, code, cls) { text, dw4, data, code },
static const type_row types[] = { DXPU_TLP_TYPES(ROW) };
#undef ROW

static unsigned memory_fields(const dxpu_tlp *t)
{
    unsigned has = TLP_HAS_LENGTH | TLP_HAS_TAG | TLP_HAS_BE | TLP_HAS_ADDRESS;
    if (t->at == 1)
        has |= TLP_HAS_HINT;
    if (!t->th)
        return has;
    /* The steering tag takes the place of a posted write's tag, else that of the byte enables. */
    has &= t->type == DXPU_TLP_MWR ? ~(unsigned)TLP_HAS_TAG : ~(unsigned)TLP_HAS_BE;
    return has | TLP_HAS_HINT | TLP_HAS_STEERING;
}

static unsigned message_fields(const dxpu_tlp *t)
{
    unsigned has = TLP_HAS_TAG | TLP_HAS_MESSAGE;
    if (t->message_routing == DXPU_MSG_BY_ADDRESS)
        has |= TLP_HAS_ADDRESS;
    if (t->message_routing == DXPU_MSG_BY_ID)
        has |= TLP_HAS_TARGET;
    return t->type == DXPU_TLP_MSGD ? has | TLP_HAS_LENGTH : has;
}

static unsigned header_fields(const dxpu_tlp *t)
{
    switch (t->type) {
    case DXPU_TLP_MSG:
    case DXPU_TLP_MSGD:
        return message_fields(t);
    case DXPU_TLP_CPL:
    case DXPU_TLP_CPLLK:
        return TLP_HAS_TAG | TLP_HAS_COMPLETER;
    case DXPU_TLP_CPLD:
    case DXPU_TLP_CPLDLK:
        return TLP_HAS_LENGTH | TLP_HAS_TAG | TLP_HAS_COMPLETER;
    case DXPU_TLP_IORD:
    case DXPU_TLP_IOWR:
        return TLP_HAS_LENGTH | TLP_HAS_TAG | TLP_HAS_BE | TLP_HAS_ADDRESS;
    case DXPU_TLP_CFGRD0:
    case DXPU_TLP_CFGWR0:
    case DXPU_TLP_CFGRD1:
    case DXPU_TLP_CFGWR1:
        return TLP_HAS_LENGTH | TLP_HAS_TAG | TLP_HAS_BE | TLP_HAS_TARGET | TLP_HAS_REGISTER;
    case DXPU_TLP_FETCHADD:
    case DXPU_TLP_SWAP:
    case DXPU_TLP_CAS:
        return memory_fields(t) & ~(unsigned)TLP_HAS_BE;
    default:
        return memory_fields(t);
    }
}

unsigned tlp_fields(const dxpu_tlp *t)
{
    return header_fields(t) | (types[t->type].data ? TLP_HAS_DATA : 0u);
}

int tlp_type_of(const char *name)
{
    for (int i = 0; i < DXPU_TLP_TYPE_COUNT; i++)
        if (strcmp(types[i].name, name) == 0)
            return i;
    return -1;
}

bool tlp_type_dw(unsigned type, unsigned header_dw)
{
    bool message = types[type].code == 0x10;
    return header_dw == 4 ? types[type].dw4 : header_dw == 3 && !message;
}

tlp_bdf_text tlp_bdf(uint16_t bdf)
{
    tlp_bdf_text out;
    snprintf(out.text, sizeof out.text, "%02x:%02x.%x", DXPU_BDF_BUS(bdf) & 0xffu,
             DXPU_BDF_DEV(bdf) & 0x1fu, DXPU_BDF_FN(bdf) & 7u);
    return out;
}

long tlp_bdf_of(const char *text)
{
    unsigned bus, dev, fn;
    int used = 0;
    if (strlen(text) == 12 && text[4] == ':' && strspn(text, "0123456789abcdefABCDEF") == 4)
        text += 5;
    if (strlen(text) != 7 || !isxdigit((unsigned char)text[0]) || text[2] != ':')
        return -1;
    if (sscanf(text, "%2x:%2x.%1x%n", &bus, &dev, &fn, &used) != 3 || used != 7)
        return -1;
    return dev > 31 || fn > 7 ? -1 : DXPU_BDF(bus, dev, fn);
}

tlp_error_name tlp_error(int error)
{
    static const char prefix[] = "E_TLP_";
    const char *name = dxpu_error_name(error);
    tlp_error_name out;
    size_t i = 0;
    if (strncmp(name, prefix, sizeof prefix - 1) == 0)
        name += sizeof prefix - 1;
    for (; name[i] && i < sizeof out.text - 1; i++)
        out.text[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    out.text[i] = '\0';
    return out;
}
