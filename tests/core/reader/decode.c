/* Lines "tlp HEX" or "frame HEX" on standard input: for each, what dxpu.h makes of it: the name of
   the error, or OK and fields as NAME=VALUE.  For test_corpora.py. */
#define DXPU_IMPLEMENTATION
#include "dxpu.h"

#include <stdio.h>

enum { BYTES_MAX = 1 << 16 };

static void show_tlp(dxpu_bytes in)
{
    dxpu_tlp t;
    uint8_t clean[BYTES_MAX];
    size_t len = 0;
    int strict = dxpu_tlp_decode(in, &t), receive = dxpu_tlp_receive(in, &t);
    if (receive == DXPU_OK && dxpu_tlp_encode(&t, clean, sizeof clean, &len) != DXPU_OK)
        len = 0; /* never: the reader then sees other bytes than its own */
    int header = dxpu_tlp_decode_header(in, &t);
    printf("strict=%s header=%s receive=%s", dxpu_error_name(strict), dxpu_error_name(header),
           dxpu_error_name(receive));
    if (receive == DXPU_OK)
        printf(" clean=%08x", dxpu_crc32(0, clean, len));
    if (header == DXPU_OK) {
        bool completion = dxpu_tlp_class(&t) == DXPU_COMPLETION;
        printf(" dw=%u class=%u tc=%u th=%u td=%u ep=%u at=%u requester=%u tag=%u payload=%zu",
               t.header_dw, dxpu_tlp_class(&t), t.tc, t.th, t.td, t.ep, t.at, t.requester, t.tag,
               t.payload.len);
        if (completion)
            printf(" byte_count=%u lower_addr=%u completer=%u bcm=%u", t.byte_count, t.lower_addr,
                   t.completer, t.bcm);
    }
    putchar('\n');
}

static void show_frame(dxpu_bytes in)
{
    dxpu_frame f;
    dxpu_offer o;
    int rc = dxpu_frame_decode(in, DXPU_FRAME_CRC_BYTES, &f);
    if (rc == DXPU_OK && f.kind == DXPU_KIND_OPEN && f.channel)
        rc = DXPU_E_CHANNEL; /* what the channel asks besides: W-7, a data frame has records */
    if (rc == DXPU_OK)
        rc = dxpu_frame_check_crc(in);
    if (rc == DXPU_OK && (f.kind == DXPU_KIND_OPEN || f.kind == DXPU_KIND_ACCEPT))
        rc = dxpu_offer_decode(f.body, &o);
    if (rc == DXPU_OK && f.kind == DXPU_KIND_ACCEPT &&
        (o.version_min != o.version_max || (o.suites & (o.suites - 1))))
        rc = DXPU_E_OFFER; /* W-22, W-23: so asks the channel */
    if (rc == DXPU_OK && f.kind == DXPU_KIND_DATA)
        rc = f.body.len && dxpui_check_body(f.body) >= 0 ? DXPU_OK : DXPU_E_RECORD;
    printf("frame=%s", dxpu_error_name(rc));
    if (rc == DXPU_OK) {
        printf(" kind=%u channel=%u packet=%llu", f.kind, f.channel, (unsigned long long)f.packet);
        if (f.kind <= DXPU_KIND_BLOCKED)
            printf(" sequence=%u ack=%u sack=%llu header=%u data=%u", f.sequence, f.ack,
                   (unsigned long long)f.sack, f.limits.header[0], f.limits.data[2]);
    }
    putchar('\n');
}

int main(void)
{
    static uint8_t bytes[BYTES_MAX];
    char what[8];
    int c;
    while (scanf("%7s", what) == 1) {
        dxpu_bytes in = { bytes, 0 };
        unsigned v;
        while ((c = getchar()) == ' ') {
        }
        for (; c != '\n' && c != EOF && in.len < BYTES_MAX; c = getchar()) {
            char pair[3] = { (char)c, (char)getchar(), 0 };
            if (sscanf(pair, "%2x", &v) != 1)
                return 1;
            bytes[in.len++] = (uint8_t)v;
        }
        if (what[0] == 't')
            show_tlp(in);
        else
            show_frame(in);
    }
    return 0;
}
