/* dxpu_firmware_keys.h - the keys of a box in firmware: slots of clients, handshakes in time
   SPDX-License-Identifier: MIT

   Between dxpu_firmware.h, which has the slots, and bindings/secure, which has the handshake: a
   list of hosts' public keys with the slots of each, the bounds of S-98, and the hooks of
   dxpu_fw_security.

       cfg.security = &dxpu_fw_keys_security;
       cfg.security_user = &keys;
       dxpu_fw_keys_init(&keys, &keys_cfg, &fw, memory, sizeof memory);   // before dxpu_fw_init()

   Secrets are in the caller's memory alone. */
#ifndef DXPU_FIRMWARE_KEYS_H_INCLUDED
#define DXPU_FIRMWARE_KEYS_H_INCLUDED

#include "dxpu_firmware.h"
#include "dxpu_secure.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A host that may connect. */
typedef struct dxpu_fw_peer {
    uint8_t key[DXPU_KEY_BYTES];
    uint64_t slots;        /* bit n: slot n + 1; DXPU_FW_ALL_SLOTS: all, beyond 64 as well */
    dxpu_secure_peer seen; /* 0 at first */
} dxpu_fw_peer;

#define DXPU_FW_ALL_SLOTS UINT64_MAX

typedef struct dxpu_fw_keys_config {
    const dxpu_primitives *with;     /* stays the caller's */
    const dxpu_noise_pair *identity; /* copied */
    dxpu_fw_peer *peers;             /* stays the caller's: change it, then dxpu_fw_recheck() */
    unsigned peer_count;
    unsigned sessions; /* keyed ones and pending ones together, 2 for each slot at least */
    unsigned pending;  /* of them: 1 at least; S-14 wants 16 where there is room */
    /* The time now: a handshake takes long, and what it took is counted (S-98). */
    uint64_t (*clock_ns)(void *user);
    void *user; /* of clock_ns() */
} dxpu_fw_keys_config;

typedef struct dxpu_fw_keys { /* private, but for `late` */
    dxpu_fw_keys_config cfg;
    dxpu_fw *fw;
    dxpu_secure *end;
    dxpu_secure_budget budget; /* of handshakes beside channels (S-98) */
    uint8_t hash_key[16];      /* of addresses */
    uint64_t late; /* handshake frames and opens dropped: they had their share of the time */
} dxpu_fw_keys;

/* Bytes of memory, aligned to 16, that init() needs; 0 for a configuration that cannot be. */
size_t dxpu_fw_keys_bytes(const dxpu_fw_keys_config *cfg);
/* Begin; what is in the memory is wiped.  DXPU_OK, E_ARG, or E_ROOM: the memory is too small. */
int dxpu_fw_keys_init(dxpu_fw_keys *k, const dxpu_fw_keys_config *cfg, dxpu_fw *fw, void *memory,
                      size_t memory_bytes);
/* Handshakes so far, by outcome. */
const dxpu_secure_counters *dxpu_fw_keys_count(const dxpu_fw_keys *k);

/* For dxpu_fw_config.security, with the dxpu_fw_keys as security_user. */
extern const dxpu_fw_security dxpu_fw_keys_security;

#ifdef __cplusplus
}
#endif
#endif /* DXPU_FIRMWARE_KEYS_H_INCLUDED */
