/* slot_line.h - a channel as a slot's line, in one process: for tests of slots
   SPDX-License-Identifier: MIT

   In dxpu-host the keeper's slot and the worker's channel are in two processes (crossing.h).  Here
   the slot has the channel itself, with the slot's tags. */
#ifndef SLOT_LINE_H_INCLUDED
#define SLOT_LINE_H_INCLUDED

#include "slot.h"
#include "fabric.h"

typedef struct direct_line {
    slot_line line;
    fabric_channel *channel;
    dxpu_udp_path path;
    uint64_t dial_ns, closing_ns;
    bool attached;
    int last_error;
    uint8_t last_reason;
    fabric *fabric;
    guest_slot *slot;
} direct_line;

static int direct_submit(void *user, dxpu_bytes tlp, uint64_t now, uint64_t request)
{
    direct_line *l = user;
    return dxpu_channel_submit(&l->channel->ch, tlp, now, request);
}

static int direct_submit_event(void *user, const dxpu_event *e)
{
    direct_line *l = user;
    return dxpu_channel_submit_event(&l->channel->ch, e);
}

static dxpu_delivery direct_peek(void *user, unsigned cls)
{
    direct_line *l = user;
    return dxpu_channel_peek(&l->channel->ch, cls);
}

static void direct_take(void *user, unsigned cls, uint64_t now)
{
    direct_line *l = user;
    (void)dxpu_channel_take(&l->channel->ch, cls, now);
}

static bool direct_take_event(void *user)
{
    direct_line *l = user;
    dxpu_event e;
    return dxpu_channel_peek_event(&l->channel->ch, &e) &&
           dxpu_channel_take_event(&l->channel->ch) == DXPU_OK;
}

static bool direct_contain(void *user, dxpu_request *out)
{
    direct_line *l = user;
    return dxpu_channel_contain(&l->channel->ch, out);
}

static void direct_close(void *user, uint8_t reason)
{
    direct_line *l = user;
    (void)dxpu_channel_close(&l->channel->ch, reason);
}

static void direct_reset(void *user, uint8_t reason)
{
    direct_line *l = user;
    dxpu_channel_reset(&l->channel->ch, reason);
}

static void direct_open(direct_line *l, guest_slot *s, fabric *f)
{
    const slot_line line = { l,           direct_submit,     direct_submit_event, direct_peek,
                             direct_take, direct_take_event, direct_contain,      direct_close,
                             direct_reset };
    memset(l, 0, sizeof *l);
    l->line = line;
    l->slot = s;
    l->fabric = f;
    l->dial_ns = DXPU_NEVER;
}

static void direct_dial(direct_line *l, uint64_t now)
{
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    cfg.epoch = 1;
    cfg.local.node = 1;
    cfg.local.slot = DXPU_SLOT_HOST;
    cfg.local.function = cfg.remote.function = DXPU_FUNCTION_ALL;
    cfg.remote.slot = 1;
    cfg.tags = &l->slot->tags;
    l->dial_ns = DXPU_NEVER;
    l->channel = fabric_dial(l->fabric, &cfg, NULL, &l->path, 1, now);
    assert_non_null(l->channel);
}

static void direct_attach(direct_line *l, const dxpu_udp_address *box, uint64_t now)
{
    assert_int_equal(fabric_route(l->fabric, box, 1, &l->path), DXPU_OK);
    l->attached = true;
    slot_begin(l->slot);
    direct_dial(l, now);
}

static inline void direct_detach(direct_line *l)
{
    l->attached = false;
    l->dial_ns = DXPU_NEVER;
    l->closing_ns = dxpu_udp_now_ns() + l->slot->hold_ns;
    slot_close(l->slot, DXPU_REASON_DETACH);
}

static void direct_up(direct_line *l, uint64_t now)
{
    slot_up(l->slot, "the box", now);
}

static void direct_down(direct_line *l, uint64_t now)
{
    const dxpu_channel *ch = &l->channel->ch;
    slot_down(l->slot);
    l->last_error = dxpu_channel_status(ch).error;
    l->last_reason = dxpu_channel_status(ch).reason;
    l->channel = NULL;
    l->closing_ns = 0;
    l->dial_ns = l->attached ? now + 100000000u : DXPU_NEVER;
}

static void direct_tick(direct_line *l, uint64_t now)
{
    slot_tick(l->slot, now);
    if (l->closing_ns && now >= l->closing_ns) {
        l->closing_ns = DXPU_NEVER;
        dxpu_channel_reset(&l->channel->ch, DXPU_REASON_DETACH);
    }
    if (now >= l->dial_ns)
        direct_dial(l, now);
}

static uint64_t direct_next_ns(const direct_line *l)
{
    uint64_t next = slot_next_ns(l->slot);
    next = l->closing_ns && l->closing_ns < next ? l->closing_ns : next;
    return l->dial_ns < next ? l->dial_ns : next;
}

#endif /* SLOT_LINE_H_INCLUDED */
