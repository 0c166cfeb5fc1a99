/* Fuzz target: Ethernet frames at the two parsers that dxpu has for them, AF_XDP's and the
   firmware's; the first byte says whether checksums are made right before.  What one takes, the
   other takes too, with the same sender and the same bytes within the frame; and what is built from
   it says the same.
   libFuzzer: -max_len=512 */
#include "dxpu_af_xdp_wire.c" /* not linked: reaches fold() and others */

/* Two implementations, each with its own names of the same fields. */
/* Not linked: reaches is_for_us(). */
#define fold          fw_fold
#define UDP_BYTES     FW_UDP_BYTES
#define UDP_FROM      FW_UDP_FROM
#define UDP_TO        FW_UDP_TO
#define UDP_CHECKSUM  FW_UDP_CHECKSUM
#define IP4_BYTES     FW_IP4_BYTES
#define TYPE_IP4      FW_TYPE_IP4
#define DONT_FRAGMENT FW_DONT_FRAGMENT
#define FRAGMENT_MASK FW_FRAGMENT_MASK
#define HOPS          FW_HOPS
#undef IP_TOS /* of <netinet/in.h> */
#undef IP_TTL
#undef IP_CHECKSUM
#define ECN_CE FW_ECN_CE
#include "dxpu_firmware_wire.c"
#undef fold
#undef UDP_BYTES
#undef UDP_FROM
#undef UDP_TO
#undef UDP_CHECKSUM
#undef IP4_BYTES
#undef TYPE_IP4

#include <arpa/inet.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PORT = 4458, FRAME_ROOM = 2048 };

static const dxpu_fw_address own = { { 2, 0, 0, 0, 0, 1 }, { 10, 0, 0, 1 }, PORT };

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* Both checksums of an IPv4 datagram, where lengths are such that there are any. */
static void make_right(uint8_t *f, size_t len)
{
    uint16_t check;
    size_t udp;
    if (len < DXPU_XDP_HEADERS_4 || dxpu_get_be16(f + ETH_TYPE) != TYPE_IP4)
        return;
    dxpu_put_be16(f + IP4_CHECKSUM, 0);
    check = (uint16_t)~fold(sum(0, f + IP4, IP4_BYTES));
    memcpy(f + IP4_CHECKSUM, &check, sizeof check);
    udp = dxpu_get_be16(f + UDP4 + UDP_LEN);
    if (udp < UDP_BYTES || udp > len - UDP4 || !dxpu_get_be16(f + UDP4 + UDP_CHECKSUM))
        return;
    dxpu_put_be16(f + UDP4 + UDP_CHECKSUM, 0);
    check = (uint16_t)~fold(sum(pseudo_sum(f + IP4_FROM, 8, udp), f + UDP4, udp));
    memcpy(f + UDP4 + UDP_CHECKSUM, &check, sizeof check);
}

/* Headers rebuilt around the same datagram are accepted, with the same sender. */
static void check_built(const dxpu_xdp_receiver *r, const uint8_t *f, const dxpu_xdp_datagram *d)
{
    uint8_t again[FRAME_ROOM + DXPU_XDP_HEADERS_6] = { 0 };
    dxpu_xdp_way way;
    dxpu_xdp_datagram back;
    memset(&way, 0, sizeof way);
    way.from = d->from;
    way.to = r->local[d->socket].at;
    way.ecn = d->flags ? 3 : 0;
    memcpy(again + d->offset, f + d->offset, d->len);
    dxpu_xdp_build(again, &way, d->len);
    must(dxpu_xdp_parse(r, again, d->offset + d->len, &back) == DXPU_XDP_GOOD);
    must(back.len == d->len && back.offset == d->offset && back.flags == d->flags);
    must(memcmp(&back.from, &d->from, sizeof d->from) == 0 && !back.partial);
}

static void check_firmware(uint8_t *f, size_t len, bool good, const dxpu_xdp_datagram *d)
{
    dxpu_fw_datagram out;
    dxpu_fw_counters count;
    uint8_t answer[DXPU_FW_ETHERNET_MIN_BYTES];
    unsigned kind;
    memset(&count, 0, sizeof count);
    kind = dxpu_fw_wire_parse(&own, f, (uint32_t)len, &out, &count);
    must(count.rx_datagrams + count.rx_arp + count.rx_other + count.rx_length + count.rx_fragment +
             count.rx_checksum + count.rx_source ==
         1);
    if (kind == DXPU_FW_ARP)
        must(dxpu_fw_wire_arp(&own, f, answer) == sizeof answer);
    if (kind == DXPU_FW_DATAGRAM) {
        must(good && d->from.any.sa_family == AF_INET);
        must(out.payload == f + d->offset && out.payload_bytes == d->len && out.flags == d->flags);
        must(out.from.port == ntohs(d->from.v4.sin_port));
        must(memcmp(out.from.ip, &d->from.v4.sin_addr, 4) == 0);
    } else { /* it looks at Ethernet's addresses besides, and knows no IPv6 */
        must(!good || d->from.any.sa_family == AF_INET6 || !is_for_us(&own, f) ||
             (f[ETHERNET_FROM] & 1));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dxpu_xdp_local local[2];
    dxpu_xdp_receiver r = { local, 2, 7, false };
    dxpu_xdp_datagram d;
    uint8_t *f;
    bool good;
    if (size < 1 || size > FRAME_ROOM)
        return 0;
    memset(local, 0, sizeof local);
    local[0].at.v4.sin_family = AF_INET;
    local[0].at.v4.sin_port = htons(PORT);
    memcpy(&local[0].at.v4.sin_addr, own.ip, 4);
    local[1].at.v6.sin6_family = AF_INET6;
    local[1].at.v6.sin6_port = htons(PORT);
    local[1].at.v6.sin6_addr.s6_addr[0] = 0xfe;
    local[1].at.v6.sin6_addr.s6_addr[1] = 0x80;
    local[1].at.v6.sin6_addr.s6_addr[15] = 1;
    local[1].socket = 1;
    f = malloc(size); /* exactly: the sanitizer sees one byte beyond */
    must(f != NULL);
    memcpy(f, data + 1, size - 1);
    if (data[0] & 1)
        make_right(f, size - 1);
    good = dxpu_xdp_parse(&r, f, size - 1, &d) == DXPU_XDP_GOOD;
    must(!good || (!d.partial && d.offset + d.len <= size - 1));
    if (good)
        check_built(&r, f, &d);
    check_firmware(f, size - 1, good, &d);
    r.partial_ok = true;
    must(!good || dxpu_xdp_parse(&r, f, size - 1, &d) == DXPU_XDP_GOOD);
    free(f);
    return 0;
}
