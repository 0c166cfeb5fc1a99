/* sealing.c - see sealing.h
   SPDX-License-Identifier: MIT */
#include "fabric_internal.h"
#include "log.h"

#include <stdio.h>

enum { STRANGERS_TOLD = 8 };

/* ==== What is logged ==========================================================================
   Whoever knows the port's address can cause any number of refusals: of each kind one is logged,
   and all are counted. */

enum cause { WRONG_KEY, REPLAYED, LATE, PLAIN_PEER, PLAIN_HERE };

static bool first_of(sealing *z, enum cause cause)
{
    bool first = !(z->told & 1u << cause);
    z->told |= 1u << cause;
    return first;
}

static void tell_stranger(sealing *z, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    char text[DXPU_SODIUM_KEY_TEXT_BYTES];
    keys_peer p;
    if (z->strangers == STRANGERS_TOLD || (z->strangers && !memcmp(z->stranger, key, sizeof p.key)))
        return;
    z->strangers++;
    memcpy(z->stranger, key, sizeof z->stranger);
    dxpu_sodium_key_print(key, text);
    if (keys_find(z->keys, key, &p))
        log_warning("%s may open no channels; give it may=fabric in --peers", text);
    else
        log_warning(
            "%s asks for a channel and is not known; to authorize it, add it to --peers or --peer",
            text);
}

static void tell_wrong_key(sealing *z, const dxpu_udp_address *from)
{
    char at[DXPU_UDP_TEXT_BYTES], text[DXPU_SODIUM_KEY_TEXT_BYTES];
    if (first_of(z, WRONG_KEY))
        log_warning("%s expects another public key than this program's, which is %s",
                    dxpu_udp_print(from, at),
                    dxpu_sodium_key_print(keys_own(z->keys)->public_key, text));
}

static void tell_replayed(sealing *z, const dxpu_udp_address *from)
{
    char at[DXPU_UDP_TEXT_BYTES];
    if (first_of(z, REPLAYED))
        log_warning("%s sends a handshake that is older than the last one of its key; if that host "
                    "is refused for long, set its clock",
                    dxpu_udp_print(from, at));
}

/* An open that no session can read: say what it is, when that is known. */
static void not_mine(sealing *z, dxpu_bytes datagram, const dxpu_udp_address *from)
{
    char at[DXPU_UDP_TEXT_BYTES];
    if (dxpu_frame_check_crc(datagram) != DXPU_OK)
        return; /* sealed, by keys that are no longer in use */
    z->count.plain_opens++;
    if (first_of(z, PLAIN_PEER))
        log_warning("%s opens a channel without keys and is refused; start it with --key and "
                    "--peer, and without --plain",
                    dxpu_udp_print(from, at));
}

void sealing_plain_here(sealing *z, const dxpu_udp_address *from)
{
    char at[DXPU_UDP_TEXT_BYTES];
    z->count.plain_here++;
    if (first_of(z, PLAIN_HERE))
        log_warning("%s requires keys, and this program runs with --plain; start this one with "
                    "--key and --peer",
                    dxpu_udp_print(from, at));
}

/* ==== Clients ================================================================================= */

dxpu_sodium_peer *sealing_find(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    sealing *z = user;
    if (!keys_allow(z->keys, key, KEYS_FABRIC, 0) &&
        !(z->cb.known && z->cb.known(z->cb.user, key))) {
        tell_stranger(z, key);
        return NULL;
    }
    z->peer.newest = keys_newest(z->keys, key);
    return &z->peer;
}

/* False also when another port was faster (S-93). */
bool sealing_fresh(void *user, const uint8_t key[DXPU_NOISE_KEY_BYTES], uint64_t timestamp)
{
    const sealing *z = user;
    bool passing = !keys_allow(z->keys, key, KEYS_FABRIC, 0) && z->cb.known &&
                   z->cb.known(z->cb.user, key) == SEALING_PASSING;
    return passing ? keys_fresh_passing(z->keys, key, timestamp)
                   : keys_fresh(z->keys, key, timestamp);
}

static uint8_t authorize(void *user, dxpu_sodium_peer *peer,
                         const uint8_t key[DXPU_NOISE_KEY_BYTES],
                         const dxpu_sodium_request *request, uint32_t *channel)
{
    sealing *z = user;
    (void)peer;
    return z->cb.authorize(z->cb.user, key, request, channel);
}

/* Ports are free to take, and of IPv6 so are the lower 64 bits: they make no other address. */
bool sealing_spare(void *user, uint64_t now_ns, dxpu_bytes from)
{
    sealing *z = user;
    uint8_t hash[crypto_shorthash_BYTES];
    crypto_shorthash(hash, from.ptr, from.ptr[0] == AF_INET6 ? 9 : 5, z->hash_key);
    return dxpu_secure_spare(&z->budget, now_ns, hash[0]);
}

/* ==== Frames ================================================================================== */

/* An address as bytes, of which a cookie is made. */
dxpu_bytes sealing_address_bytes(const dxpu_udp_address *a, uint8_t out[DXPU_SODIUM_FROM_BYTES])
{
    dxpu_bytes bytes = { out, 1 };
    out[0] = (uint8_t)a->u.any.sa_family;
    if (a->u.any.sa_family == AF_INET6) {
        memcpy(out + 1, &a->u.v6.sin6_addr, 16);
        memcpy(out + 17, &a->u.v6.sin6_port, 2);
        memcpy(out + 19, &a->u.v6.sin6_scope_id, 4);
        bytes.len = 23;
    } else {
        memcpy(out + 1, &a->u.v4.sin_addr, 4);
        memcpy(out + 5, &a->u.v4.sin_port, 2);
        bytes.len = 7;
    }
    return bytes;
}

/* False: handshakes have had their share of the time, and the frame is dropped. */
static bool may_take(sealing *z, uint64_t now_ns, bool busy)
{
    if (!busy || dxpu_secure_has_time(&z->budget, now_ns))
        return true;
    z->count.late++;
    if (first_of(z, LATE))
        log_warning("more handshakes than its channels leave time for: some are not answered");
    return false;
}

dxpu_sodium_session *sealing_opener(sealing *z, uint64_t now_ns, dxpu_bytes datagram,
                                    const dxpu_udp_address *from, bool busy, dxpu_offer *offer)
{
    dxpu_sodium_session *x;
    if (!may_take(z, now_ns, busy))
        return NULL;
    x = dxpu_sodium_opener(z->end, now_ns, datagram, offer);
    if (!x)
        not_mine(z, datagram, from);
    if (busy)
        dxpu_secure_spend(&z->budget, dxpu_udp_now_ns() - now_ns);
    return x;
}

int sealing_ingest(sealing *z, uint64_t now_ns, dxpu_bytes datagram, const dxpu_udp_address *from,
                   bool busy, uint8_t *answer, size_t cap, size_t *bytes,
                   dxpu_sodium_session **session)
{
    const dxpu_sodium_counters *c = dxpu_sodium_count(z->end);
    uint64_t bad_mac = c->bad_mac, replayed = c->replayed;
    uint8_t at[DXPU_SODIUM_FROM_BYTES];
    int rc;
    *bytes = 0;
    *session = NULL;
    if (!may_take(z, now_ns, busy))
        return DXPU_E_AGAIN;
    rc = dxpu_sodium_ingest(z->end, now_ns, datagram, sealing_address_bytes(from, at), answer, cap,
                            bytes, session);
    if (c->bad_mac != bad_mac)
        tell_wrong_key(z, from);
    if (c->replayed != replayed)
        tell_replayed(z, from);
    if (busy)
        dxpu_secure_spend(&z->budget, dxpu_udp_now_ns() - now_ns);
    return rc;
}

/* ==== Life ==================================================================================== */

int sealing_open(sealing *z, keys *k, unsigned sessions, unsigned pending, uint64_t rekey_ns,
                 const sealing_callbacks *cb)
{
    dxpu_sodium_config cfg;
    memset(z, 0, sizeof *z);
    z->keys = k;
    z->cb = *cb;
    z->budget.debt_ns = SEALING_DEBT_NS;
    if (keys_plain(k))
        return 0;
    crypto_shorthash_keygen(z->hash_key);
    dxpu_sodium_config_default(&cfg);
    cfg.identity = keys_own(k);
    cfg.sessions = sessions;
    cfg.pending = pending;
    cfg.rekey_ns = rekey_ns;
    if (cb->authorize) {
        cfg.cb.user = z;
        cfg.cb.find = sealing_find;
        cfg.cb.fresh = sealing_fresh;
        cfg.cb.authorize = authorize;
        cfg.cb.spare = sealing_spare;
    }
    z->end = dxpu_sodium_create(&cfg);
    if (!z->end) {
        log_error("out of memory for the keys of %u channels", sessions);
        return -1;
    }
    if (!dxpu_sodium_locked(z->end))
        log_warning("the keys of its channels may reach a swap; raise the limit of locked memory "
                    "(ulimit -l, LimitMEMLOCK=)");
    return 0;
}

uint64_t sealing_next_ns(const sealing *z)
{
    return z->end ? dxpu_sodium_pending_ns(z->end) : DXPU_NEVER;
}

void sealing_work(sealing *z, uint64_t now_ns)
{
    if (z->end)
        dxpu_sodium_expire(z->end, now_ns);
}

void sealing_close(sealing *z)
{
    dxpu_sodium_destroy(z->end);
    z->end = NULL;
}

void sealing_report(const sealing *z, report *r)
{
    const char *name;
    report_open(r, "keys");
    report_number(r, "sealed", z->end != NULL);
#define SEALING_PRINT(field, text) report_number(r, #field, z->count.field);
    SEALING_COUNTERS(SEALING_PRINT)
#undef SEALING_PRINT
    for (unsigned i = 0; z->end && (name = dxpu_sodium_counter_name(i)) != NULL; i++)
        report_number(r, name, dxpu_sodium_counter_value(z->end, i));
    report_close(r);
}
