/* peer.h: the other end of a proxy under test: one bare channel over a socket of its own, in
   the proxy's event loop, so that a test decides about every frame and every TLP.
   SPDX-License-Identifier: MIT */
#ifndef TESTS_PEER_H
#define TESTS_PEER_H

#include "fabric.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct peer {
    int fd;
    struct sockaddr_storage to; /* where its frames go: given, or the sender of the open */
    socklen_t to_len;
    dxpu_channel_config cfg;
    dxpu_channel ch;
    void *mem;
    bool open;       /* initialised: dialed, or accepted */
    bool deaf, mute; /* what arrives is lost; what it says is */
    void (*step)(struct peer *p, uint64_t now);
    struct event *timer;
} peer;

static uint32_t peer_next_id = 0x1000;

static void peer_begin(peer *p)
{
    size_t bytes = dxpu_channel_bytes(&p->cfg);
    free(p->mem);
    p->mem = malloc(bytes);
    p->cfg.local_id = p->cfg.sequence = ++peer_next_id;
    assert_int_equal(dxpu_channel_init(&p->ch, &p->cfg, p->mem, bytes), DXPU_OK);
    p->open = true;
}

static void peer_accept(peer *p, uint8_t *buf, size_t len, uint64_t now)
{
    dxpu_bytes datagram = { buf, len };
    dxpu_frame frame;
    dxpu_offer offer;
    assert_int_equal(dxpu_frame_decode(datagram, DXPU_FRAME_CRC_BYTES, &frame), DXPU_OK);
    assert_int_equal(dxpu_offer_decode(frame.body, &offer), DXPU_OK);
    p->cfg.epoch = offer.epoch;
    p->cfg.local = offer.destination;
    p->cfg.remote = offer.source;
    peer_begin(p);
    assert_int_equal(dxpu_channel_accept(&p->ch, now, buf, len), DXPU_OK);
}

static void peer_receive(peer *p, uint64_t now)
{
    uint8_t buf[2048], kind = 0;
    struct sockaddr_storage from;
    socklen_t from_len = sizeof from;
    ssize_t n;
    while ((n = recvfrom(p->fd, buf, sizeof buf, MSG_DONTWAIT, (struct sockaddr *)&from,
                         &from_len)) > 0) {
        dxpu_bytes datagram = { buf, (size_t)n };
        uint32_t id;
        if (p->deaf || dxpu_frame_peek(datagram, &kind, &id) != DXPU_OK)
            continue;
        if (kind != DXPU_KIND_OPEN) {
            if (p->open)
                (void)dxpu_channel_ingest(&p->ch, now, buf, (size_t)n, 0);
        } else if (!p->open) {
            p->to = from;
            p->to_len = from_len;
            peer_accept(p, buf, (size_t)n, now);
        }
    }
}

/* Send one frame as it is, from this peer's address or another socket. */
static void peer_send(const peer *p, int fd, const uint8_t *frame, size_t len)
{
    assert_int_equal(sendto(fd, frame, len, 0, (const struct sockaddr *)&p->to, p->to_len), len);
}

/* Datagrams that are not frames: a proxy looks for twice as many each time that it found what it
   looked for, so that the eight behind these are read in one go. */
static inline void peer_noise(const peer *p)
{
    static const uint8_t none[1];
    for (unsigned i = 0; i < 1 + 2 + 4; i++)
        peer_send(p, p->fd, none, sizeof none);
}

static void peer_poll(evutil_socket_t fd, short what, void *user)
{
    peer *p = user;
    uint64_t now = dxpu_udp_now_ns();
    uint8_t frame[2048], path;
    int n;
    (void)fd;
    (void)what;
    peer_receive(p, now);
    if (p->step)
        p->step(p, now);
    while (p->open && (n = dxpu_channel_emit(&p->ch, now, frame, sizeof frame, &path)) > 0) {
        if (!p->mute)
            peer_send(p, p->fd, frame, (size_t)n);
    }
}

static int peer_socket(void)
{
    struct sockaddr_in here;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    memset(&here, 0, sizeof here);
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof here) == 0);
    return fd;
}

static void peer_init(peer *p)
{
    memset(p, 0, sizeof *p);
    p->fd = peer_socket();
    dxpu_channel_config_default(&p->cfg);
}

static void peer_start(peer *p, struct event_base *base)
{
    static const struct timeval ms = { 0, 1000 };
    if (!p->cfg.window_frames)
        peer_init(p);
    p->timer = event_new(base, -1, EV_PERSIST, peer_poll, p);
    assert_non_null(p->timer);
    assert_int_equal(event_add(p->timer, &ms), 0);
}

/* Open a channel from this node to a slot of the box at `to`. */
static inline void peer_dial_as(peer *p, const dxpu_udp_address *to, uint16_t box_slot,
                                uint32_t node, uint64_t epoch)
{
    memcpy(&p->to, &to->u, to->len);
    p->to_len = to->len;
    p->cfg.epoch = epoch;
    p->cfg.local.node = node;
    p->cfg.local.slot = DXPU_SLOT_HOST;
    p->cfg.local.function = p->cfg.remote.function = DXPU_FUNCTION_ALL;
    p->cfg.remote.slot = box_slot;
    peer_begin(p);
    assert_int_equal(dxpu_channel_open(&p->ch, dxpu_udp_now_ns()), DXPU_OK);
}

static inline void peer_dial(peer *p, const dxpu_udp_address *to, uint16_t box_slot)
{
    peer_dial_as(p, to, box_slot, 1, 1);
}

static void peer_stop(peer *p)
{
    if (p->timer)
        event_free(p->timer);
    close(p->fd);
    free(p->mem);
    memset(p, 0, sizeof *p);
}

/* Encode and submit; what dxpu_channel_submit() says. */
static int peer_submit(peer *p, const dxpu_tlp *t)
{
    uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    return dxpu_channel_submit(&p->ch, tlp, dxpu_udp_now_ns(), 0);
}

/* The next TLP of a class, decoded; false when there is none. */
static bool peer_take(peer *p, unsigned cls, dxpu_tlp *t)
{
    dxpu_delivery d = dxpu_channel_peek(&p->ch, cls);
    if (!d.tlp.len)
        return false;
    assert_int_equal(dxpu_tlp_decode(d.tlp, t), DXPU_OK);
    t->payload.ptr = NULL; /* not valid any more */
    assert_int_equal(dxpu_channel_take(&p->ch, cls, dxpu_udp_now_ns()), DXPU_OK);
    return true;
}

/* A memory request of one dword with `tag`; a write's payload is the tag. */
static dxpu_tlp peer_request(uint8_t type, uint16_t tag)
{
    static uint8_t payload[4];
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 15;
    t.address = 0x1000u + tag * 4u;
    t.tag = type == DXPU_TLP_MWR ? 0 : tag;
    if (type == DXPU_TLP_MWR) {
        t.payload.ptr = payload;
        t.payload.len = sizeof payload;
    }
    return t;
}

enum { PEER_POLLS_MAX = 20000 };

static unsigned peer_polls; /* milliseconds of the loop, or more, since peer_run() */
static bool (*peer_until)(void);

static inline void peer_look(evutil_socket_t fd, short what, void *net)
{
    (void)fd;
    (void)what;
    if (peer_until() || ++peer_polls >= PEER_POLLS_MAX)
        fabric_stop(net);
}

/* Run the proxy's loop, and the peers in it, until `done` says so. */
static inline void peer_run(fabric *net, bool (*done)(void))
{
    static const struct timeval ms = { 0, 1000 };
    struct event *timer = event_new(dxpu_udp_base(net->udp), -1, EV_PERSIST, peer_look, net);
    assert_non_null(timer);
    peer_until = done;
    peer_polls = 0;
    assert_int_equal(event_add(timer, &ms), 0);
    assert_int_equal(fabric_run(net), 0);
    event_free(timer);
    assert_true(peer_polls < PEER_POLLS_MAX);
}

#endif
