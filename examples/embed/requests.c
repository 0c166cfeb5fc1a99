/* requests.c - a host reads the memory of a device in a box: tags, completions, a timeout
   SPDX-License-Identifier: MIT

       ./requests [PERCENT]      percentage of frames to lose (30)

   Two ends in memory, as in loopback.c, with simulated time.  The device answers a read of 200
   bytes by several completions, and never answers a read of another address.  Not here: sockets
   (udp_pair.c), keys (sealed.cc). */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include <stdio.h>
#include <stdlib.h>
enum { HOST, BOX, BDF_HOST = 0x0000, BDF_DEVICE = 0x0100, TIMEOUT_NS = 50000000 };
static dxpu_channel ch[2];
static dxpu_tags tags;
static dxpu_tag_entry entries[DXPU_TAGS_32];
static uint64_t now_ns;
static uint8_t device[4096], result[256]; /* memory of the device; what the host has read */
static unsigned loss = 30, completions;

static void fail(const char *what, int error)
{
    fprintf(stderr, "%s: %s\n", what, dxpu_error_text(error));
    exit(1);
}

static void carry(int from, int to)
{
    static uint8_t frame[DXPU_FRAME_MAX_LIMIT_BYTES];
    uint8_t path;
    int n;
    while ((n = dxpu_channel_emit(&ch[from], now_ns, frame, sizeof frame, &path)) > 0) {
        if ((unsigned)rand() % 100 < loss)
            continue;
        if (dxpu_channel_status(&ch[to]).state == DXPU_STATE_IDLE)
            dxpu_channel_accept(&ch[to], now_ns, frame, (size_t)n);
        else
            dxpu_channel_ingest(&ch[to], now_ns, frame, (size_t)n, 0);
    }
}

static void submit(int end, const dxpu_tlp *t, uint64_t user)
{
    /* encoded in the queue; submit() also accepts bytes from elsewhere, and copies them */
    size_t len, most = DXPU_TLP_HEADER_MAX_BYTES + t->payload.len;
    uint8_t *bytes = dxpu_channel_reserve(&ch[end], dxpu_tlp_class(t), most);
    int rc = bytes ? dxpu_tlp_encode(t, bytes, most, &len) : DXPU_E_AGAIN;
    if (rc == DXPU_OK)
        rc = dxpu_channel_submit(&ch[end], (dxpu_bytes){ bytes, len }, now_ns, user);
    if (rc != DXPU_OK) /* on E_AGAIN (no room now) a product keeps the TLP and submits it later */
        fail("submit", rc);
}

/* A read within 4 KB.  The channel tracks the request and returns `user` with its completions. */
static void read_device(uint64_t address, uint32_t bytes, uint64_t user)
{
    dxpu_tlp t = { .type = DXPU_TLP_MRD, .header_dw = 3, .requester = BDF_HOST };
    int tag = dxpu_tags_alloc(&tags);
    if (tag < 0 || dxpu_be_from_range(address, bytes, &t.first_be, &t.last_be, &t.length_dw))
        fail("read", tag < 0 ? tag : DXPU_E_ARG);
    t.tag = (uint16_t)tag;
    t.address = address & ~3ull;
    submit(HOST, &t, user);
}

/* The device: a read below 4 KB is completed in parts of 128 bytes; others get no answer. */
static void device_answers(const dxpu_tlp *read)
{
    dxpu_cpl_split split;
    dxpu_tlp cpl;
    uint64_t at;
    if (read->address >= sizeof device || dxpu_cpl_split_start(&split, read, 64, 128) != DXPU_OK)
        return;
    dxpu_tlp_completion(read, BDF_DEVICE, DXPU_CPL_SC, &cpl);
    while (dxpu_cpl_split_next(&split, &cpl, &at)) {
        cpl.payload = (dxpu_bytes){ device + at, 4u * cpl.length_dw };
        submit(BOX, &cpl, 0);
    }
}

static bool take(int end, unsigned cls)
{
    dxpu_delivery d = dxpu_channel_peek(&ch[end], cls);
    dxpu_tlp t;
    if (!d.tlp.len)
        return false;
    if (dxpu_tlp_receive(d.tlp, &t) == DXPU_OK && end == BOX) {
        device_answers(&t);
    } else if (end == HOST && t.status == DXPU_CPL_SC) {
        memcpy(result + d.offset_bytes, d.data.ptr, d.data.len); /* only the bytes requested */
        completions++;
        if (d.last)
            printf("read %u: %u bytes in %u completions\n", (unsigned)d.user,
                   (unsigned)(d.offset_bytes + d.data.len), completions);
    }
    dxpu_channel_take(&ch[end], cls, now_ns);
    return true;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int main(int argc, char **argv)
{
    dxpu_channel_config cfg;
    dxpu_request late;
    uint64_t next_ns;
    loss = argc > 1 ? (unsigned)atoi(argv[1]) : loss;
    for (unsigned i = 0; i < sizeof device; i++)
        device[i] = (uint8_t)(i * 7);
    dxpu_tags_init(&tags, entries, DXPU_TAGS_32, BDF_HOST, DXPU_TAGS_32, TIMEOUT_NS);
    dxpu_channel_config_default(&cfg);
    for (int i = HOST; i <= BOX; i++) {
        cfg.local_id = 100u + (unsigned)i;
        cfg.epoch = 1;
        cfg.tags = i == HOST ? &tags : NULL; /* only the end that sends requests has them */
        if (dxpu_channel_init(&ch[i], &cfg, malloc(dxpu_channel_bytes(&cfg)),
                              dxpu_channel_bytes(&cfg)) != DXPU_OK)
            return 1;
    }
    dxpu_channel_open(&ch[HOST], now_ns);
    read_device(0x103, 200, 1); /* not aligned */
    read_device(0x10000, 64, 2);
    for (bool expired = false; !expired;) {
        while (take(BOX, DXPU_NONPOSTED) || take(HOST, DXPU_COMPLETION))
            ;
        carry(HOST, BOX);
        carry(BOX, HOST);
        while (dxpu_tags_expire(&tags, now_ns, &late)) { /* PCIe's completion timeout */
            printf("read %u: no completion in %u ms\n", (unsigned)late.user, TIMEOUT_NS / 1000000);
            expired = true;
        }
        next_ns = earlier(dxpu_channel_next_ns(&ch[HOST]), dxpu_channel_next_ns(&ch[BOX]));
        next_ns = earlier(next_ns, dxpu_tags_next_ns(&tags));
        now_ns = next_ns > now_ns && next_ns != DXPU_NEVER ? next_ns : now_ns;
    }
    return memcmp(result, device + 0x103, 200) != 0;
}
