/* attachment.c - see attachment.h
   SPDX-License-Identifier: MIT */
#include "attachment.h"

enum { RETRY_NS = 100000000 };

/* ==== The channel as a slot's line ============================================================ */

static int line_submit(void *user, dxpu_bytes tlp, uint64_t now, uint64_t request)
{
    attachment *a = user;
    return dxpu_channel_submit(&a->channel->ch, tlp, now, request);
}

static int line_submit_event(void *user, const dxpu_event *e)
{
    attachment *a = user;
    return dxpu_channel_submit_event(&a->channel->ch, e);
}

static dxpu_delivery line_peek(void *user, unsigned cls)
{
    attachment *a = user;
    return dxpu_channel_peek(&a->channel->ch, cls);
}

static void line_take(void *user, unsigned cls, uint64_t now)
{
    attachment *a = user;
    (void)dxpu_channel_take(&a->channel->ch, cls, now);
}

static bool line_take_event(void *user)
{
    attachment *a = user;
    dxpu_event e;
    return dxpu_channel_peek_event(&a->channel->ch, &e) &&
           dxpu_channel_take_event(&a->channel->ch) == DXPU_OK;
}

static bool line_contain(void *user, dxpu_request *out)
{
    attachment *a = user;
    return dxpu_channel_contain(&a->channel->ch, out);
}

static void line_close(void *user, uint8_t reason)
{
    attachment *a = user;
    (void)dxpu_channel_close(&a->channel->ch, reason); /* closing already: fine */
}

static void line_reset(void *user, uint8_t reason)
{
    attachment *a = user;
    dxpu_channel_reset(&a->channel->ch, reason);
}

void attachment_init(attachment *a, unsigned number, uint32_t node, fabric *f)
{
    const slot_line line = { a,         line_submit,     line_submit_event, line_peek,
                             line_take, line_take_event, line_contain,      line_close,
                             line_reset };
    memset(a, 0, sizeof *a);
    a->number = number;
    a->node = node;
    a->fabric = f;
    a->line = line;
    a->dial_ns = DXPU_NEVER;
}

/* ==== Whose box it is ========================================================================= */

/* The box's key, as it is known now; false, said unless `again`, when it is not. */
static bool find_key(attachment *a, const dxpu_udp_path *path, unsigned paths, bool again)
{
    dxpu_udp_address box[DXPU_PATHS_MAX];
    char text[DXPU_UDP_TEXT_BYTES];
    const char *why;
    if (a->keyed || keys_plain(a->fabric->keys))
        return true;
    for (unsigned i = 0; i < paths; i++)
        box[i] = path[i].remote;
    why = keys_box(a->fabric->keys, box, paths, a->key);
    if (why && !again)
        fprintf(stderr, "dxpu-host: slot %u: %s: %s\n", a->number, dxpu_udp_print(&box[0], text),
                why);
    return !why;
}

static void dial(attachment *a, uint64_t now)
{
    dxpu_channel_config cfg;
    a->dial_ns = DXPU_NEVER;
    if (!a->node) /* M-56: its manager has yet to give it one */
        return;
    if (!find_key(a, a->path, a->paths, a->attempts != 0)) { /* its key was taken off --peers */
        a->attempts++;
        a->dial_ns = now + RETRY_NS;
        return;
    }
    dxpu_channel_config_default(&cfg);
    cfg.epoch = a->epoch;
    cfg.local.node = a->node;
    cfg.local.slot = DXPU_SLOT_HOST;
    cfg.local.function = cfg.remote.function = DXPU_FUNCTION_ALL;
    cfg.remote.slot = a->box_slot;
    cfg.tags = a->tags;
    a->channel = fabric_dial(a->fabric, &cfg, keys_plain(a->fabric->keys) ? NULL : a->key, a->path,
                             a->paths, now);
    if (!a->channel)
        a->dial_ns = now + RETRY_NS;
}

static void name_box(attachment *a)
{
    size_t at = 0;
    for (unsigned i = 0; i < a->paths; i++) {
        char text[DXPU_UDP_TEXT_BYTES];
        at += (size_t)snprintf(a->box + at, sizeof a->box - at, "%s%s", i ? "," : "",
                               dxpu_udp_print(&a->path[i].remote, text));
    }
}

/* Is it to be dialed, and by which key? */
static int check_keys(attachment *a, const dxpu_udp_path *path, unsigned paths, const uint8_t *key)
{
    for (unsigned i = 0; i < paths; i++) {
        if (!keys_allow_address(a->fabric->keys, &path[i].remote))
            return ATTACHMENT_PLAIN;
    }
    a->keyed = key != NULL;
    if (key)
        memcpy(a->key, key, sizeof a->key);
    return find_key(a, path, paths, false) ? 0 : ATTACHMENT_NO_KEY;
}

bool attachment_has_key(const attachment *a, const uint8_t *key)
{
    return a->keyed == (key != NULL) && (!key || !memcmp(a->key, key, sizeof a->key));
}

bool attachment_allows(const attachment *a, const uint8_t key[DXPU_NOISE_KEY_BYTES])
{
    return a->keyed ? !memcmp(a->key, key, sizeof a->key)
                    : keys_allow(a->fabric->keys, key, KEYS_FABRIC, 0);
}

int attachment_begin(attachment *a, const dxpu_udp_address *box, unsigned paths, uint16_t box_slot,
                     const uint8_t *key, uint64_t epoch, uint64_t now)
{
    dxpu_udp_path path[DXPU_PATHS_MAX];
    int rc;
    if (a->attached || a->channel)
        return a->attached ? ATTACHMENT_BUSY : ATTACHMENT_CLOSING;
    rc = fabric_route(a->fabric, box, paths, path);
    if (rc != DXPU_OK)
        return rc == DXPU_E_NONE ? ATTACHMENT_FAMILY : ATTACHMENT_ALIKE;
    rc = check_keys(a, path, paths, key);
    if (rc)
        return rc;
    a->attached = true;
    a->last_error = DXPU_OK;
    a->last_reason = DXPU_REASON_NONE;
    a->attempts = 0;
    memcpy(a->path, path, sizeof a->path);
    memset(&a->past, 0, sizeof a->past);
    a->paths = paths;
    name_box(a);
    a->box_slot = box_slot;
    a->epoch = epoch;
    dial(a, now);
    return 0;
}

bool attachment_is_at(const attachment *a, const dxpu_udp_address *box, unsigned paths)
{
    bool same = paths == a->paths;
    for (unsigned i = 0; same && i < paths; i++)
        same = dxpu_udp_same(&a->path[i].remote, &box[i]);
    return same;
}

/* A box without that key does not answer there, whoever named its address: M-32. */
static bool is_key(const attachment *a, const dxpu_udp_address *box, unsigned paths,
                   const uint8_t *key)
{
    uint8_t found[DXPU_NOISE_KEY_BYTES];
    if (keys_plain(a->fabric->keys))
        return true;
    if (!key && !keys_box(a->fabric->keys, box, paths, found))
        key = found;
    return key && !memcmp(a->key, key, sizeof a->key);
}

bool attachment_reaches(const attachment *a, const dxpu_udp_address *box, unsigned paths,
                        const uint8_t *key)
{
    if (!is_key(a, box, paths, key))
        return false;
    for (unsigned i = 0; i < a->paths; i++) {
        for (unsigned j = 0; j < paths; j++) {
            if (dxpu_udp_same(&a->path[i].remote, &box[j]))
                return true;
        }
    }
    return false;
}

/* ==== Life of the channel ===================================================================== */

void attachment_end(attachment *a, uint8_t reason)
{
    a->attached = false;
    a->dial_ns = DXPU_NEVER;
    if (!a->channel)
        return;
    a->close_reason = reason;
    a->closing_ns = dxpu_udp_now_ns() + a->fabric->base.hold_ms * 1000000ull;
    if (dxpu_channel_state(&a->channel->ch) == DXPU_STATE_IDLE)
        dxpu_channel_reset(&a->channel->ch, reason); /* it still asks for keys: nobody to tell */
    else if (!a->up)
        (void)dxpu_channel_close(&a->channel->ch, reason);
}

void attachment_up(attachment *a, char whose[SLOT_WHOSE_BYTES])
{
    a->up = true;
    a->incarnations++;
    a->attempts = 0;
    fprintf(stderr, "dxpu-host: slot %u: slot %u of %s is attached, epoch %llu\n", a->number,
            a->box_slot, a->box, (unsigned long long)a->epoch);
    snprintf(whose, SLOT_WHOSE_BYTES, "slot %u of %s, epoch %llu", a->box_slot, a->box,
             (unsigned long long)a->epoch);
}

void attachment_down(attachment *a, uint64_t now)
{
    fabric_channel *c = a->channel;
    int error = dxpu_channel_error(&c->ch);
    uint8_t reason = dxpu_channel_reason(&c->ch);
    char end[FABRIC_END_BYTES];
    bool was_up = a->up;
    a->up = false;
    fabric_end_text(c, end);
    fabric_paths_keep(&a->past, c);
    a->channel = NULL;
    a->closing_ns = 0;
    a->last_error = error;
    a->last_reason = reason;
    a->attempts += !was_up;
    if (was_up)
        fprintf(stderr, "dxpu-host: slot %u: slot %u of %s: channel %s: %s%s\n", a->number,
                a->box_slot, a->box, error == DXPU_E_CLOSED ? "closed" : "lost", end,
                !a->attached                     ? ""
                : reason == DXPU_REASON_REPLACED ? "; to take it back, use a higher epoch"
                                                 : "; dialing again");
    else if (a->attached && a->attempts == 1 && error == DXPU_E_DEAD) /* S-92 */
        fprintf(stderr, "dxpu-host: slot %u: no answer from %s for %llu ms: %s\n", a->number,
                a->box, (unsigned long long)a->fabric->base.hold_ms, keys_silence(a->fabric->keys));
    if (a->attached)
        a->dial_ns = now + RETRY_NS;
}

void attachment_tick(attachment *a, uint64_t now)
{
    if (a->closing_ns && now >= a->closing_ns) { /* a box that takes nothing would never be left */
        a->closing_ns = DXPU_NEVER;
        dxpu_channel_reset(&a->channel->ch, a->close_reason);
    }
    if (now >= a->dial_ns)
        dial(a, now);
}

uint64_t attachment_next_ns(const attachment *a)
{
    return a->closing_ns && a->closing_ns < a->dial_ns ? a->closing_ns : a->dial_ns;
}

void attachment_report(const attachment *a, report *r)
{
    report_number(r, "attached", a->attached);
    report_number(r, "incarnations", a->incarnations);
    fabric_report_paths(&a->past, a->channel, r);
}
