/* Two ends of a channel in memory: a host writes to a device in a box, and frames are lost. */
#define DXPU_IMPLEMENTATION /* in exactly one file of a program */
#include "dxpu.h"
#include <stdio.h>
#include <stdlib.h>

enum { HOST, BOX };
static dxpu_channel ch[2];
static uint64_t now_ns; /* time is a parameter; here it is simulated */
static unsigned sent;

static int carry(int from, int to) /* carries the frames that are due; every third is lost */
{
    static uint8_t frame[DXPU_FRAME_MAX_LIMIT_BYTES];
    uint8_t path;
    int n;
    while ((n = dxpu_channel_emit(&ch[from], now_ns, frame, sizeof frame, &path)) > 0) {
        if (++sent % 3 == 0)
            continue;
        if (dxpu_channel_status(&ch[to]).state == DXPU_STATE_IDLE)
            dxpu_channel_accept(&ch[to], now_ns, frame, (size_t)n);
        else
            dxpu_channel_ingest(&ch[to], now_ns, frame, (size_t)n, 0);
    }
    return n; /* 0: nothing is due; below 0: the channel has ended */
}

int main(void)
{
    static const uint8_t mwr[] = {
        0x40, 0, 0, 1, 0, 0, 0, 15, 0xfe, 0xe0, 0, 0, 'd', 'x', 'p', 'u'
    };
    dxpu_bytes tlp = { mwr, sizeof mwr };
    dxpu_channel_config cfg;
    dxpu_tlp t;
    int i;

    dxpu_channel_config_default(&cfg);
    for (i = HOST; i <= BOX; i++) {
        size_t size = dxpu_channel_bytes(&cfg);
        cfg.local_id = 100u + (unsigned)i; /* random in a product, like cfg.sequence */
        cfg.epoch = 1;                     /* of the lease; the pool's manager assigns it */
        if (dxpu_channel_init(&ch[i], &cfg, malloc(size), size) != DXPU_OK)
            return 1;
    }
    dxpu_channel_open(&ch[HOST], now_ns);
    dxpu_channel_submit(&ch[HOST], tlp, now_ns, 0);
    while (carry(HOST, BOX) == 0) { /* until the host's channel has ended */
        uint64_t next_ns, box_ns;
        tlp = dxpu_channel_peek(&ch[BOX], DXPU_POSTED).tlp;
        if (tlp.len && dxpu_tlp_receive(tlp, &t) == DXPU_OK) {
            printf("%s to 0x%llx: %.4s\n", dxpu_tlp_type_name(t.type),
                   (unsigned long long)t.address, (const char *)t.payload.ptr);
            dxpu_channel_take(&ch[BOX], DXPU_POSTED, now_ns);
            dxpu_channel_close(&ch[HOST], DXPU_REASON_SHUTDOWN);
        }
        carry(BOX, HOST);
        next_ns = dxpu_channel_next_ns(&ch[HOST]);
        box_ns = dxpu_channel_next_ns(&ch[BOX]);
        next_ns = box_ns < next_ns ? box_ns : next_ns;
        if (next_ns > now_ns && next_ns != DXPU_NEVER)
            now_ns = next_ns; /* nothing is due before */
    }
    printf("%u frames, %u of them lost: %s\n", sent, sent / 3,
           dxpu_state_name(dxpu_channel_status(&ch[HOST]).state));
    return dxpu_channel_status(&ch[HOST]).error != DXPU_E_CLOSED;
}
