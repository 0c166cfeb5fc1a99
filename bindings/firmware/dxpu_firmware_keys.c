/* dxpu_firmware_keys.c - see dxpu_firmware_keys.h
   SPDX-License-Identifier: MIT */
#include "dxpu_firmware_keys.h"

#define DEBT_NS ((uint64_t)10000000000) /* on a slow part a handshake takes more than a second */
enum { OPEN_BYTES = 1472 }; /* of an Ethernet of 1,500 bytes: no rx buffer holds a longer one */

/* ==== Who has access ========================================================================= */

static dxpu_fw_peer *peer_of(const dxpu_fw_keys *k, const uint8_t key[DXPU_KEY_BYTES])
{
    unsigned i;
    for (i = 0; i < k->cfg.peer_count; i++) {
        if (!memcmp(k->cfg.peers[i].key, key, DXPU_KEY_BYTES)) /* public */
            return &k->cfg.peers[i];
    }
    return NULL;
}

static dxpu_secure_peer *keys_find(void *user, const uint8_t key[DXPU_KEY_BYTES])
{
    dxpu_fw_peer *p = peer_of(user, key);
    return p ? &p->seen : NULL;
}

static bool keys_allowed(void *user, uint16_t slot, const uint8_t owner[DXPU_FW_OWNER_BYTES])
{
    const dxpu_fw_peer *p = peer_of(user, owner);
    if (!p || !slot)
        return false;
    return p->slots == DXPU_FW_ALL_SLOTS || (slot <= 64 && (p->slots >> (slot - 1) & 1u));
}

static uint8_t keys_authorize(void *user, dxpu_secure_peer *peer, const uint8_t key[DXPU_KEY_BYTES],
                              const dxpu_secure_request *request, uint32_t *channel)
{
    dxpu_fw_keys *k = user;
    uint8_t id[4] = { 0 };
    (void)peer;
    k->cfg.with->random(k->cfg.with->user, id, sizeof id);
    *channel = dxpu_get_le32(id);
    return dxpu_fw_authorize(k->fw, &request->source, request->destination.slot, request->epoch,
                             key);
}

/* ==== Bounds ================================================================================== */

/* Ports are free to take: they make no other address. */
static bool keys_spare(void *user, uint64_t now_ns, dxpu_bytes from)
{
    dxpu_fw_keys *k = user;
    dxpu_bytes key, ip;
    uint8_t hash[1];
    key.ptr = k->hash_key;
    key.len = sizeof k->hash_key;
    ip.ptr = from.ptr;
    ip.len = 4;
    k->cfg.with->hash(hash, sizeof hash, key, &ip, 1);
    return dxpu_secure_spare(&k->budget, now_ns, hash[0]);
}

/* May a handshake frame or an open be looked at?  False: they have had their share. */
static bool may_take(dxpu_fw_keys *k, uint64_t now_ns, bool busy)
{
    bool may = !busy || dxpu_secure_has_time(&k->budget, now_ns);
    k->late += !may;
    return may;
}

/* It was looked at; begun_ns: when that began. */
static void spend(dxpu_fw_keys *k, uint64_t begun_ns, bool busy)
{
    if (busy)
        dxpu_secure_spend(&k->budget, k->cfg.clock_ns(k->cfg.user) - begun_ns);
}

/* ==== Hooks of the node ======================================================================= */

static size_t keys_handshake(void *user, uint64_t now_ns, dxpu_bytes frame,
                             const dxpu_fw_address *from, uint8_t *out, size_t cap)
{
    dxpu_fw_keys *k = user;
    bool busy = !dxpu_fw_idle(k->fw);
    uint8_t at[6];
    dxpu_bytes address;
    dxpu_secure_session *done;
    uint64_t begun_ns;
    size_t bytes = 0;
    if (!may_take(k, now_ns, busy))
        return 0;
    memcpy(at, from->ip, 4);
    dxpu_put_be16(at + 4, from->port);
    address.ptr = at;
    address.len = sizeof at;
    begun_ns = k->cfg.clock_ns(k->cfg.user);
    if (dxpu_secure_ingest(k->end, now_ns, frame, address, out, cap, &bytes, &done) != DXPU_OK)
        bytes = 0;
    spend(k, begun_ns, busy);
    return bytes;
}

static bool keys_open(void *user, uint64_t now_ns, dxpu_bytes frame, dxpu_fw_opening *o)
{
    dxpu_fw_keys *k = user;
    bool busy = !dxpu_fw_idle(k->fw);
    dxpu_secure_session *x;
    uint64_t begun_ns;
    if (!may_take(k, now_ns, busy))
        return false;
    begun_ns = k->cfg.clock_ns(k->cfg.user);
    x = dxpu_secure_opener(k->end, now_ns, frame, &o->offer);
    spend(k, begun_ns, busy);
    if (!x)
        return false;
    o->local_id = dxpu_secure_local_id(x);
    o->suite = dxpu_secure_suite(x);
    o->suite_user = x;
    memcpy(o->owner, dxpu_secure_peer_key(x), sizeof o->owner);
    return true;
}

static uint64_t keys_work(void *user, void *suite_user, dxpu_channel *ch, uint64_t now_ns)
{
    dxpu_secure_session *x = suite_user;
    (void)user;
    if (dxpu_channel_status(ch).state >= DXPU_STATE_UP) /* it may be closing, or closed, by now */
        dxpu_secure_settle(x);
    dxpu_secure_work(x, ch, now_ns);
    return dxpu_secure_next_ns(x);
}

static void keys_end(void *user, void *suite_user)
{
    (void)user;
    dxpu_secure_end(suite_user);
}

static uint64_t keys_tick(void *user, uint64_t now_ns)
{
    dxpu_fw_keys *k = user;
    dxpu_secure_expire(k->end, now_ns);
    return dxpu_secure_pending_ns(k->end);
}

const dxpu_fw_security dxpu_fw_keys_security = { keys_handshake, keys_open, keys_allowed,
                                                 keys_work,      keys_end,  keys_tick };

/* ==== Life ==================================================================================== */

static void secure_config(const dxpu_fw_keys_config *cfg, dxpu_secure_config *out)
{
    dxpu_secure_config_default(out);
    out->identity = cfg->identity;
    out->sessions = cfg->sessions;
    out->pending = cfg->pending;
    out->open_bytes = OPEN_BYTES;
    out->cb.find = keys_find;
    out->cb.authorize = keys_authorize;
    out->cb.spare = keys_spare;
}

size_t dxpu_fw_keys_bytes(const dxpu_fw_keys_config *cfg)
{
    dxpu_secure_config secure;
    secure_config(cfg, &secure);
    return dxpu_secure_bytes(&secure);
}

int dxpu_fw_keys_init(dxpu_fw_keys *k, const dxpu_fw_keys_config *cfg, dxpu_fw *fw, void *memory,
                      size_t memory_bytes)
{
    dxpu_secure_config secure;
    size_t bytes = dxpu_fw_keys_bytes(cfg);
    if (!bytes || !cfg->with || !cfg->clock_ns || (!cfg->peers && cfg->peer_count))
        return DXPU_E_ARG;
    if (memory_bytes < bytes)
        return DXPU_E_ROOM;
    memset(k, 0, sizeof *k);
    k->cfg = *cfg;
    k->cfg.identity = NULL;
    k->budget.debt_ns = DEBT_NS;
    k->fw = fw;
    cfg->with->random(cfg->with->user, k->hash_key, sizeof k->hash_key);
    secure_config(cfg, &secure);
    secure.cb.user = k;
    cfg->with->wipe(memory, memory_bytes); /* keys of before a restart */
    k->end = dxpu_secure_init(memory, memory_bytes, &secure, cfg->with);
    return k->end ? DXPU_OK : DXPU_E_ARG;
}

const dxpu_secure_counters *dxpu_fw_keys_count(const dxpu_fw_keys *k)
{
    return dxpu_secure_count(k->end);
}
