/* dxpu_sodium_enroll.c - how two proxies learn each other's public keys; see dxpu_sodium.h
   SPDX-License-Identifier: MIT */
#include "dxpu_sodium.h"

#include <sodium.h>

/* Types of the three messages of Noise XX, behind those of dxpu_secure.c (S-51). */
enum { TYPE_FIRST = 4, TYPE_LAST = 6, SECURITY_VERSION = 1, HEAD_BYTES = 8 };
enum { HEAD_TYPE = 0, HEAD_SECURITY = 1 };

/* All that a name may hold is shown to people. */
static bool name_valid(const uint8_t *name, size_t len)
{
    bool good = len <= DXPU_SODIUM_NAME_BYTES;
    for (size_t i = 0; i < len && good; i++)
        good = name[i] >= 0x20 && name[i] <= 0x7e;
    return good;
}

/* Our next message, into e->said.  The first one is in the clear: it holds no name. */
static int say(dxpu_sodium_enroll *e, unsigned type)
{
    uint8_t *body = e->said + DXPU_FRAME_BASE_BYTES;
    dxpu_bytes name = { (const uint8_t *)e->name, type == TYPE_FIRST ? 0 : strlen(e->name) };
    dxpu_frame f;
    size_t bytes = 0;
    memset(body, 0, HEAD_BYTES);
    body[HEAD_TYPE] = (uint8_t)type;
    body[HEAD_SECURITY] = SECURITY_VERSION;
    int rc = dxpu_noise_write(
        &e->noise, name, body + HEAD_BYTES,
        sizeof e->said - DXPU_FRAME_BASE_BYTES - HEAD_BYTES - DXPU_FRAME_CRC_BYTES, &bytes);
    if (rc != DXPU_OK)
        return rc;
    memset(&f, 0, sizeof f);
    f.kind = DXPU_KIND_HANDSHAKE;
    size_t head = dxpu_frame_encode_header(&f, HEAD_BYTES + bytes, DXPU_FRAME_CRC_BYTES, e->said);
    dxpu_frame_seal_crc(e->said, head + HEAD_BYTES + bytes);
    e->said_bytes = (uint16_t)(head + HEAD_BYTES + bytes + DXPU_FRAME_CRC_BYTES);
    return DXPU_OK;
}

int dxpu_sodium_enroll_begin(dxpu_sodium_enroll *e, const dxpu_noise_pair *own, bool initiator,
                             const char *name)
{
    static const char label[] = "dxpu enrol 1";
    const dxpu_bytes prologue = { (const uint8_t *)label, sizeof label - 1 };
    if (!name_valid((const uint8_t *)name, strlen(name)))
        return DXPU_E_ARG;
    memset(e, 0, sizeof *e);
    memcpy(e->name, name, strlen(name));
    (void)dxpu_noise_start(&e->noise, dxpu_sodium_primitives(), DXPU_NOISE_XX, initiator, own, NULL,
                           prologue);
    return initiator ? say(e, TYPE_FIRST) : DXPU_OK;
}

int dxpu_sodium_enroll_emit(dxpu_sodium_enroll *e, uint8_t *out, size_t cap)
{
    if (cap < e->said_bytes)
        return DXPU_E_ROOM;
    memcpy(out, e->said, e->said_bytes);
    return e->said_bytes;
}

/* Only the same message is answered again: who forges its type alone gets nothing (S-51). */
static void digest(dxpu_bytes body, uint8_t out[DXPU_SODIUM_HEARD_BYTES])
{
    (void)crypto_generichash(out, DXPU_SODIUM_HEARD_BYTES, body.ptr, body.len, NULL, 0);
}

/* The peer's message of this type, which is the next one, and our answer to it. */
static int hear(dxpu_sodium_enroll *e, unsigned type, dxpu_bytes message)
{
    uint8_t name[DXPU_SODIUM_NAME_BYTES];
    size_t len = 0;
    int rc = dxpu_noise_read(&e->noise, message, name, sizeof name, &len);
    if (rc != DXPU_OK)
        return rc;
    if (type != TYPE_FIRST) {
        memcpy(e->remote, dxpu_noise_remote(&e->noise), sizeof e->remote);
        len = name_valid(name, len) ? len : 0;
        memcpy(e->peer_name, name, len);
        e->peer_name[len] = 0;
    }
    e->said_bytes = 0; /* once the last has arrived, the initiator has all it needs */
    return type < TYPE_LAST ? say(e, type + 1) : DXPU_OK;
}

int dxpu_sodium_enroll_ingest(dxpu_sodium_enroll *e, dxpu_bytes datagram)
{
    dxpu_bytes body = { NULL, 0 };
    int rc = dxpu_secure_body(datagram, &body);
    if (rc != DXPU_OK)
        return rc;
    unsigned type = body.ptr[HEAD_TYPE];
    for (unsigned i = HEAD_SECURITY + 1; i < HEAD_BYTES; i++) {
        if (body.ptr[i])
            return DXPU_E_RSVD;
    }
    if (type < TYPE_FIRST || type > TYPE_LAST)
        return DXPU_E_KIND;
    uint8_t heard[DXPU_SODIUM_HEARD_BYTES];
    digest(body, heard);
    if (!memcmp(heard, e->heard, sizeof heard))
        return DXPU_E_REPLAY; /* ours was lost, or theirs came twice */
    if (dxpu_noise_done(&e->noise) || type != (unsigned)TYPE_FIRST + e->noise.next)
        return DXPU_E_STATE;
    dxpu_sodium_enroll work = *e; /* what cannot be answered changes nothing (S-2) */
    rc = hear(&work, type, (dxpu_bytes){ body.ptr + HEAD_BYTES, body.len - HEAD_BYTES });
    if (rc == DXPU_OK) {
        *e = work;
        memcpy(e->heard, heard, sizeof e->heard);
        e->done = dxpu_noise_done(&e->noise);
    }
    dxpu_sodium_enroll_wipe(&work);
    return rc;
}

bool dxpu_sodium_enroll_done(const dxpu_sodium_enroll *e)
{
    return e->done;
}

const char *dxpu_sodium_enroll_code(const dxpu_sodium_enroll *e,
                                    char text[DXPU_SODIUM_FINGERPRINT_BYTES])
{
    static const char label[] = "dxpu enrol code 1";
    uint8_t key[DXPU_NOISE_KEY_BYTES];
    text[0] = '\0';
    if (!e->done)
        return text;
    (void)crypto_generichash(key, sizeof key, e->noise.hash, sizeof e->noise.hash,
                             (const uint8_t *)label, sizeof label - 1);
    return dxpu_sodium_fingerprint(key, text);
}

void dxpu_sodium_enroll_wipe(dxpu_sodium_enroll *e)
{
    sodium_memzero(e, sizeof *e);
}
