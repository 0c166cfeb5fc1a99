/* Fuzz target: any bytes as a capture file. Every packet lies within what libpcap gave, packets
   are numbered from 1, and a file that ends or is damaged ends the reading; the TLPs and frames
   in it go through the decoders.
   libFuzzer: -max_len=1024 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu_pcap.h"
#include "input_path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PACKETS_MAX = 5000 };

static void look_at(const dxpu_pcap_packet *p)
{
    uint32_t sum = 0;
    dxpu_tlp t;
    dxpu_frame f;
    for (size_t i = 0; i < p->bytes.len; i++) /* the sanitizer sees what is beyond */
        sum += p->bytes.ptr[i];
    must(p->kind <= DXPU_PCAP_FRAME);
    if (p->kind == DXPU_PCAP_OTHER)
        return;
    must(p->bytes.len <= p->whole_bytes && p->whole_bytes <= 65535);
    if (p->kind == DXPU_PCAP_TLP)
        (void)dxpu_tlp_decode_header(p->bytes, &t);
    else
        (void)dxpu_frame_decode(p->bytes, DXPU_FRAME_CRC_BYTES, &f);
    must(sum != 0xffffffffu);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[DXPU_PCAP_WHY_BYTES] = "";
    dxpu_pcap_reader *r;
    dxpu_pcap_packet p;
    uint64_t n = 0;
    int rc = 1;
    r = dxpu_pcap_open(input_path(data, size), why);
    must(r || why[0] != '\0');
    while (r && n < PACKETS_MAX && (rc = dxpu_pcap_next(r, &p, why)) == 1) {
        must(p.index == ++n);
        look_at(&p);
    }
    must(rc != -1 || why[0] != '\0');
    dxpu_pcap_close(r);
    return 0;
}
