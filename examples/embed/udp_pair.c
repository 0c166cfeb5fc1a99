/* udp_pair.c - a host and a box in two processes: UDP, ppoll(), lost frames, a graceful close
   SPDX-License-Identifier: MIT

       ./udp_pair box 127.0.0.1 4458 20 &      receives the writes of one host, then exits
       ./udp_pair host 127.0.0.1 4458 20       writes 1,000 words, each once and in order

   The third argument is the percentage of datagrams to lose.  Not here: keys (sealed.cc), requests
   and their tags (requests.c), many hosts and addresses that change (acceptor.c). */
#define _GNU_SOURCE /* ppoll(): milliseconds are too coarse for acknowledgements */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
enum { HOLD_MS = 1000, LOSS = 0, WORDS, SLOT, NODE, EPOCH, OPTIONS };
static uint32_t option[OPTIONS] = { 0, 1000, 1, 1, 1 };
static dxpu_channel ch;
static struct pollfd udp = { -1, POLLIN, 0 };
static bool host;
static uint32_t count; /* words written, or received */

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void init(uint64_t epoch, dxpu_place local, dxpu_place remote)
{
    static void *memory;
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    if (getrandom(&cfg.local_id, 4, 0) != 4 || getrandom(&cfg.sequence, 4, 0) != 4)
        err(1, "getrandom");
    srand(cfg.sequence);
    cfg.local_id |= 1; /* never 0 */
    cfg.epoch = epoch;
    cfg.local = local;
    cfg.remote = remote;
    cfg.hold_ms = HOLD_MS;
    if (!memory && !(memory = malloc(dxpu_channel_bytes(&cfg))))
        err(1, "malloc");
    if (dxpu_channel_init(&ch, &cfg, memory, dxpu_channel_bytes(&cfg)) != DXPU_OK)
        errx(1, "invalid epoch: must be at least 1");
}

/* The box: the first open begins the channel, which keeps its sender's address to the end. */
static void on_open(uint8_t *pkt, size_t len, const struct sockaddr_in *from)
{
    dxpu_bytes view = { pkt, len };
    dxpu_frame f;
    dxpu_offer o;
    if (dxpu_frame_decode(view, DXPU_FRAME_CRC_BYTES, &f) != DXPU_OK || f.kind != DXPU_KIND_OPEN ||
        dxpu_frame_check_crc(view) != DXPU_OK || dxpu_offer_decode(f.body, &o) != DXPU_OK ||
        len < o.frame_limit_bytes) /* P-3: an answer is never longer than the open */
        return;
    init(o.epoch, o.destination, o.source);
    if (dxpu_channel_accept(&ch, clock_ns(), pkt, len) == DXPU_OK &&
        connect(udp.fd, (const struct sockaddr *)from, sizeof *from) < 0)
        err(1, "connect");
}

/* Waits for datagrams, until until_ns at most, and ingests those that have arrived. */
static void wait_rx(uint64_t until_ns)
{
    static uint8_t pkt[65535];
    uint64_t now = clock_ns(), ns = until_ns > now ? until_ns - now : 0;
    struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
    if (ppoll(&udp, 1, until_ns == DXPU_NEVER ? NULL : &t, NULL) < 0 && errno != EINTR)
        err(1, "ppoll");
    for (int i = 0; i < 64; i++) { /* no more: acknowledgements must leave */
        struct sockaddr_in from;
        socklen_t bytes = sizeof from;
        ssize_t n =
            recvfrom(udp.fd, pkt, sizeof pkt, MSG_DONTWAIT, (struct sockaddr *)&from, &bytes);
        if (n < 0)
            return; /* EAGAIN: no more.  ECONNREFUSED does not end a channel, only time does */
        if (dxpu_channel_status(&ch).state == DXPU_STATE_IDLE)
            on_open(pkt, (size_t)n, &from);
        else
            (void)dxpu_channel_ingest(&ch, clock_ns(), pkt, (size_t)n, 0); /* counts bad ones */
    }
}

/* Sends what is due.  A frame that the socket refuses (EAGAIN, ENOBUFS) counts as lost. */
static int send_due(void)
{
    static uint8_t frame[DXPU_FRAME_MAX_LIMIT_BYTES];
    uint8_t path;
    int n;
    while ((n = dxpu_channel_emit(&ch, clock_ns(), frame, sizeof frame, &path)) > 0)
        if ((unsigned)rand() % 100 >= option[LOSS])
            (void)send(udp.fd, frame, (size_t)n, MSG_DONTWAIT);
    return n;
}

static void work(void)
{
    uint8_t mwr[16] = { 0x40, 0, 0, 1, 0, 0, 0, 15, 0xfe, 0xe0, 0, 0 };
    dxpu_bytes tlp = { mwr, sizeof mwr };
    for (; host && count < option[WORDS]; count++) {
        memcpy(mwr + 12, &count, 4);
        if (dxpu_channel_submit(&ch, tlp, clock_ns(), 0) != DXPU_OK)
            return; /* E_AGAIN: after an acknowledgement */
    }
    for (; (tlp = dxpu_channel_peek(&ch, DXPU_POSTED).tlp).len; count++) {
        if (tlp.len != sizeof mwr || memcmp(tlp.ptr + 12, &count, 4) != 0)
            errx(1, "word %u was lost, doubled or reordered", count);
        (void)dxpu_channel_take(&ch, DXPU_POSTED, clock_ns());
    }
    if (host)
        (void)dxpu_channel_close(&ch, DXPU_REASON_SHUTDOWN); /* all words arrive before it */
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    int n;
    host = argc > 1 && strcmp(argv[1], "host") == 0;
    if (argc < 4 || (!host && strcmp(argv[1], "box")) || !inet_aton(argv[2], &at.sin_addr))
        errx(2, "usage: udp_pair host|box ADDRESS PORT [LOSS [WORDS [SLOT [NODE [EPOCH]]]]]");
    at.sin_port = htons((uint16_t)atoi(argv[3]));
    for (int i = 4; i < argc && i < 4 + OPTIONS; i++)
        option[i - 4] = (uint32_t)strtoul(argv[i], NULL, 0);
    udp.fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (udp.fd < 0 || (host ? connect(udp.fd, (struct sockaddr *)&at, sizeof at)
                            : bind(udp.fd, (struct sockaddr *)&at, sizeof at)) < 0)
        err(1, "socket");
    if (host) {
        init(option[EPOCH], (dxpu_place){ option[NODE], 0, DXPU_FUNCTION_ALL },
             (dxpu_place){ 0, (uint16_t)option[SLOT], DXPU_FUNCTION_ALL });
        (void)dxpu_channel_open(&ch, clock_ns());
    }
    while (dxpu_channel_status(&ch).state == DXPU_STATE_IDLE)
        wait_rx(DXPU_NEVER);
    for (work(); (n = send_due()) == 0; work()) /* takes what arrived before the end first */
        wait_rx(dxpu_channel_next_ns(&ch));
    printf("%s: %u words, %s: %s\n", argv[1], count,
           dxpu_state_name(dxpu_channel_status(&ch).state),
           n == DXPU_E_NO_ANSWER ? dxpu_error_text(n)
                                 : dxpu_reason_text(dxpu_channel_status(&ch).reason));
    return n != (host ? DXPU_E_CLOSED : DXPU_E_PEER_CLOSED);
}
