/* acceptor.c - a box that serves many hosts over one UDP socket, each while its lease lasts
   SPDX-License-Identifier: MIT
       ./acceptor 127.0.0.1 4458 &                      accepts writes to slots 1 to 4
       ./udp_pair host 127.0.0.1 4458 20 1000 3 7 1     to slot 3, from node 7, in lease epoch 1

   Not here: keys (sealed.cc), leases[] that survive a restart, answers to refused opens. */
#define _GNU_SOURCE /* ppoll() */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include "dxpu_acceptor.h"
#include <arpa/inet.h>
#include <err.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
enum { SLOTS = 4, ENTRIES = 2 * SLOTS }; /* two a slot: the one served, the newest opened */
typedef struct entry {
    dxpu_channel ch;
    dxpu_channel_config cfg;
    void *memory;
    bool used, over;       /* over: closed, kept until emit() returns the end */
    uint32_t opener;       /* id of the host's end: a new incarnation has a new one */
    struct sockaddr_in at; /* the address that path 0 leads to ... */
    dxpu_validation proof; /* ... and whether the host receives what is sent there (P-27) */
    uint32_t up, words;    /* whether it was ever served; writes received */
} entry;
static entry table[ENTRIES], *serving[SLOTS + 1];
static dxpu_box_entry leases[SLOTS];
static dxpu_box_table box;
static struct pollfd udp = { -1, POLLIN, 0 };
static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Begins a channel in the entry that is not being served: the open may be a late copy. */
static int accept_open(entry *e, const dxpu_offer *o, uint8_t *pkt, size_t len)
{
    dxpu_channel_config *c = &e->cfg;
    if (getrandom(&c->local_id, 4, 0) != 4 || getrandom(&c->sequence, 4, 0) != 4)
        err(1, "getrandom");
    c->local_id = (c->local_id / ENTRIES | 1) * ENTRIES + (uint32_t)(e - table); /* not 0 */
    c->epoch = o->epoch;
    c->local = o->destination;
    c->remote = o->source;
    e->opener = o->channel;
    e->up = e->words = 0;
    e->over = e->proof.known = false;
    int rc = dxpu_channel_init(&e->ch, c, e->memory, dxpu_channel_bytes(c));
    e->used = rc == DXPU_OK && (rc = dxpu_channel_accept(&e->ch, clock_ns(), pkt, len)) == DXPU_OK;
    return rc;
}

static void on_datagram(uint8_t *pkt, size_t len, const struct sockaddr_in *from)
{
    dxpu_bytes view = { pkt, len };
    dxpu_frame f;
    dxpu_offer o = { 0 };
    if (dxpu_frame_decode(view, DXPU_FRAME_CRC_BYTES, &f) != DXPU_OK)
        return;
    entry *e = &table[f.channel % ENTRIES];
    if (f.kind != DXPU_KIND_OPEN && (!e->used || e->cfg.local_id != f.channel))
        return; /* of an incarnation that has ended */
    if (f.kind == DXPU_KIND_OPEN) {
        if (dxpu_acceptor_open(view, 1, &o) != DXPU_OK || !dxpu_box_slot(&box, o.destination.slot))
            return;
        e = &table[2 * (o.destination.slot - 1)];
        if ((e[1].used && e[1].opener == o.channel) ||
            (serving[o.destination.slot] == e && e->opener != o.channel))
            e++; /* the one that is not served, unless this open is a repeated one */
    }
    if (o.channel && !(e->used && e->opener == o.channel)
            ? accept_open(e, &o, pkt, len)
            : dxpu_channel_ingest(&e->ch, clock_ns(), pkt, len, 0))
        return;
    bool same = !memcmp(&e->at, from, sizeof *from), newest = dxpu_channel_status(&e->ch).newest;
    if (f.path == 0 && /* the peer names the path (W-6); this box has path 0 alone */
        dxpu_validation_arrived(&e->proof, view, newest, same, false, clock_ns()) &
            DXPU_VALIDATION_MOVED)
        e->at = *from; /* a refused or late datagram does not move it */
}

/* Takes writes, sends what is due, frees an ended channel.  Returns when to do it again. */
static uint64_t service(entry *e)
{
    static uint8_t frame[DXPU_FRAME_MAX_LIMIT_BYTES];
    const dxpu_place *host = &e->cfg.remote;
    uint16_t slot = e->cfg.local.slot, state = dxpu_channel_status(&e->ch).state;
    uint8_t path;
    int n;
    if (!e->up && state >= DXPU_STATE_UP && state <= DXPU_STATE_CLOSED) {
        e->up = 1; /* the opener has answered: its open was not a late copy */
        bool lent = !dxpu_box_bind(&box, slot, host->node, host->slot, 0, e->cfg.epoch);
        if (!lent || serving[slot])
            dxpu_channel_reset(lent ? &serving[slot]->ch : &e->ch,
                               lent ? DXPU_REASON_REPLACED : DXPU_REASON_EPOCH);
        if (lent)
            serving[slot] = e; /* a product resets the device here */
    }
    for (; serving[slot] == e && dxpu_channel_peek(&e->ch, DXPU_POSTED).tlp.len; e->words++)
        (void)dxpu_channel_take(&e->ch, DXPU_POSTED, clock_ns());
    while ((n = dxpu_channel_emit(&e->ch, clock_ns(), frame, sizeof frame, &path)) > 0)
        if (dxpu_validation_may_send(&e->proof, (dxpu_bytes){ frame, (size_t)n }))
            (void)sendto(udp.fd, frame, (size_t)n, MSG_DONTWAIT, (void *)&e->at, sizeof e->at);
    if (!e->over && dxpu_channel_status(&e->ch).state >= DXPU_STATE_CLOSED) {
        e->over = true;
        warnx("slot %u: node %u, %u words: %s", slot, host->node, e->words,
              dxpu_reason_text(dxpu_channel_status(&e->ch).reason));
    }
    if (n == 0) /* also in the closing period, which answers repeated closes */
        return dxpu_channel_next_ns(&e->ch);
    e->used = false;
    if (serving[slot] == e)
        serving[slot] = NULL;
    return DXPU_NEVER;
}

int main(int argc, char **argv)
{
    static uint8_t pkt[65535];
    struct sockaddr_in at = { .sin_family = AF_INET };
    if (argc != 3 || !inet_aton(argv[1], &at.sin_addr))
        errx(2, "usage: acceptor ADDRESS PORT");
    at.sin_port = htons((uint16_t)atoi(argv[2]));
    udp.fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (udp.fd < 0 || bind(udp.fd, (struct sockaddr *)&at, sizeof at) < 0)
        err(1, "socket");
    (void)dxpu_box_init(&box, leases, SLOTS);
    for (int i = 0; i < ENTRIES; i++) {
        leases[i / 2].valid = true; /* a device is in each slot */
        dxpu_channel_config_default(&table[i].cfg);
        if (!(table[i].memory = malloc(dxpu_channel_bytes(&table[i].cfg))))
            err(1, "malloc");
    }
    for (;;) {
        uint64_t now = clock_ns(), next_ns = now + 999999999, due_ns;
        for (entry *e = table; e < table + ENTRIES; e++)
            if (e->used && (due_ns = service(e)) < next_ns)
                next_ns = due_ns;
        struct timespec t = { 0, next_ns > now ? (long)(next_ns - now) : 0 };
        if (ppoll(&udp, 1, &t, NULL) < 0)
            err(1, "ppoll");
        socklen_t bytes = sizeof at;
        ssize_t n = recvfrom(udp.fd, pkt, sizeof pkt, MSG_DONTWAIT, (struct sockaddr *)&at, &bytes);
        on_datagram(pkt, n > 0 ? (size_t)n : 0, &at); /* 0 bytes, as after a timer: not a frame */
    }
}
