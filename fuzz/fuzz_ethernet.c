/* Fuzz target: Ethernet frames at the two parsers that dxpu has for them, AF_XDP's and the
   firmware's, which share offsets, sums and builders (bindings/bytes), and at a third reader,
   below, which shares nothing with them.  The first byte says whether checksums are made right
   before.  All accept the same frames, with the same sender and the same bytes within the frame;
   what is built from one says the same to all.
   libFuzzer: -max_len=512 */
#include "dxpu_af_xdp.h"
#include "dxpu_firmware_wire.h"

#include <arpa/inet.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PORT = 4458, FRAME_ROOM = 2048, HEADERS_4 = 42, HEADERS_6 = 62 };

static const dxpu_fw_address own = { { 2, 0, 0, 0, 0, 1 }, { 10, 0, 0, 1 }, PORT };
static const uint8_t own_6[16] = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 };

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* ==== A reader of its own ================================ RFC 768, RFC 791, RFC 8200, RFC 1071 */

static unsigned add(unsigned sum, const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        sum += i % 2 ? p[i] : p[i] * 256u;
    return sum;
}

static unsigned carried(unsigned sum)
{
    return sum % 65535 || !sum ? sum % 65535 : 65535;
}

static unsigned add_udp(const uint8_t *f, size_t at, size_t len)
{
    size_t addresses = at == 34 ? 8 : 32;
    return add(add(17 + (unsigned)len, f + at - addresses, addresses), f + at, len);
}

/* at: of UDP's header in the frame; room: for it and the payload. */
static bool reads_udp(const uint8_t *f, size_t at, size_t room, size_t *payload)
{
    size_t len = dxpu_get_be16(f + at + 4);
    if (len < 8 || len > room || !dxpu_get_be16(f + at))
        return false;
    *payload = len - 8;
    if (!dxpu_get_be16(f + at + 6)) /* none was made, which IPv6 forbids */
        return at == 34;
    return carried(add_udp(f, at, len)) == 65535;
}

/* A datagram for this port, at its offset: the bytes of its headers, 0: it is not one. */
static size_t reads(const uint8_t *f, size_t len, size_t *payload)
{
    static const uint8_t none[15];
    unsigned total;
    if (len >= HEADERS_4 && f[12] == 8 && f[13] == 0 && f[14] == 0x45 && f[23] == 17) {
        total = dxpu_get_be16(f + 16);
        return total >= 28 && total + 14 <= len && !(f[20] & 0x3f) && !f[21] &&
                       !memcmp(f + 30, own.ip, 4) && dxpu_get_be16(f + 36) == PORT &&
                       carried(add(0, f + 14, 20)) == 65535 && f[26] && f[26] != 127 &&
                       f[26] < 224 && reads_udp(f, 34, total - 20, payload)
                   ? HEADERS_4
                   : 0;
    }
    if (len >= HEADERS_6 && f[12] == 0x86 && f[13] == 0xdd && f[14] / 16 == 6 && f[20] == 17) {
        total = dxpu_get_be16(f + 18);
        return total + 54 <= len && !memcmp(f + 38, own_6, 16) && dxpu_get_be16(f + 56) == PORT &&
                       f[22] != 255 && (memcmp(f + 22, none, 15) || f[37] > 1) &&
                       reads_udp(f, 54, total, payload)
                   ? HEADERS_6
                   : 0;
    }
    return 0;
}

/* Whether a congested queue has marked it. */
static bool is_marked(const uint8_t *f, size_t headers)
{
    return (headers == HEADERS_4 ? f[15] % 4 : f[15] / 16 % 4) == 3;
}

/* All checksums of a datagram, where lengths are such that there are any. */
static void make_right(uint8_t *f, size_t len)
{
    size_t at = len >= HEADERS_4 && f[12] == 8 ? 34u : len >= HEADERS_6 && f[12] == 0x86 ? 54u : 0u;
    unsigned udp;
    if (!at)
        return;
    if (at == 34) {
        dxpu_put_be16(f + 24, 0);
        dxpu_put_be16(f + 24, 65535 - carried(add(0, f + 14, 20)));
    }
    udp = dxpu_get_be16(f + at + 4);
    if (udp < 8 || udp > len - at || !dxpu_get_be16(f + at + 6))
        return;
    dxpu_put_be16(f + at + 6, 0);
    udp = 65535 - carried(add_udp(f, at, udp));
    dxpu_put_be16(f + at + 6, udp ? udp : 65535);
}

/* ==== The two parsers ========================================================================= */

/* Headers rebuilt around the same datagram are accepted, with the same sender. */
static void check_built(const dxpu_xdp_receiver *r, const uint8_t *f, const dxpu_xdp_datagram *d)
{
    uint8_t again[FRAME_ROOM + DXPU_XDP_HEADERS_6] = { 0 };
    dxpu_xdp_way way;
    dxpu_xdp_datagram back;
    size_t payload = 0;
    memset(&way, 0, sizeof way);
    way.from = d->from;
    way.to = r->local[d->socket].at;
    way.ecn = d->flags ? 3 : 0;
    memcpy(again + d->offset, f + d->offset, d->len);
    dxpu_xdp_build(again, &way, d->len);
    must(reads(again, d->offset + d->len, &payload) == d->offset && payload == d->len);
    must(is_marked(again, d->offset) == (d->flags != 0));
    must(dxpu_xdp_parse(r, again, d->offset + d->len, &back) == DXPU_XDP_GOOD);
    must(back.len == d->len && back.offset == d->offset && back.flags == d->flags);
    must(memcmp(&back.from, &d->from, sizeof d->from) == 0 && !back.partial);
}

static void check_built_by_firmware(const dxpu_fw_datagram *d)
{
    uint8_t again[FRAME_ROOM + HEADERS_4] = { 0 };
    size_t payload = 0, headers = HEADERS_4;
    memcpy(again + headers, d->payload, d->payload_bytes);
    must(dxpu_fw_wire_build(&d->from, &own, d->flags ? 3 : 0, again, d->payload_bytes) ==
         headers + d->payload_bytes);
    must(reads(again, headers + d->payload_bytes, &payload) == headers);
    must(payload == d->payload_bytes && is_marked(again, headers) == (d->flags != 0));
    must(!memcmp(again, own.mac, 6) && !memcmp(again + 6, d->from.mac, 6));
    must(!memcmp(again + 26, d->from.ip, 4) && dxpu_get_be16(again + 34) == d->from.port);
}

/* It looks at Ethernet's addresses besides, and knows no IPv6. */
static void check_firmware(uint8_t *f, size_t len, size_t headers, size_t payload)
{
    static const uint8_t all[6] = { 255, 255, 255, 255, 255, 255 };
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
    must((kind == DXPU_FW_DATAGRAM) ==
         (headers == HEADERS_4 && f[6] % 2 == 0 && (!memcmp(f, own.mac, 6) || !memcmp(f, all, 6))));
    if (kind != DXPU_FW_DATAGRAM)
        return;
    must(out.payload == f + headers && out.payload_bytes == payload);
    must((out.flags != 0) == is_marked(f, headers));
    must(out.from.port == dxpu_get_be16(f + 34) && !memcmp(out.from.ip, f + 26, 4));
    check_built_by_firmware(&out);
}

static void check_xdp(dxpu_xdp_receiver *r, const uint8_t *f, size_t len, size_t headers,
                      size_t payload)
{
    dxpu_xdp_datagram d;
    bool good = dxpu_xdp_parse(r, f, len, &d) == DXPU_XDP_GOOD;
    must(good == (headers != 0));
    if (good) {
        must(!d.partial && d.offset == headers && d.len == payload);
        must((d.flags != 0) == is_marked(f, headers));
        if (headers == HEADERS_4)
            must(!memcmp(&d.from.v4.sin_addr, f + 26, 4) &&
                 !memcmp(&d.from.v4.sin_port, f + 34, 2));
        else
            must(!memcmp(&d.from.v6.sin6_addr, f + 22, 16) &&
                 !memcmp(&d.from.v6.sin6_port, f + 54, 2));
        check_built(r, f, &d);
    }
    r->partial_ok = true;
    must(!good || dxpu_xdp_parse(r, f, len, &d) == DXPU_XDP_GOOD);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dxpu_xdp_local local[2];
    dxpu_xdp_receiver r = { local, 2, 7, false };
    size_t headers, payload = 0;
    uint8_t *f;
    if (size < 1 || size > FRAME_ROOM)
        return 0;
    memset(local, 0, sizeof local);
    local[0].at.v4.sin_family = AF_INET;
    local[0].at.v4.sin_port = htons(PORT);
    memcpy(&local[0].at.v4.sin_addr, own.ip, 4);
    local[1].at.v6.sin6_family = AF_INET6;
    local[1].at.v6.sin6_port = htons(PORT);
    memcpy(&local[1].at.v6.sin6_addr, own_6, 16);
    local[1].socket = 1;
    f = malloc(size); /* exactly: the sanitizer sees one byte beyond */
    must(f != NULL);
    memcpy(f, data + 1, size - 1);
    if (data[0] & 1)
        make_right(f, size - 1);
    headers = reads(f, size - 1, &payload);
    check_firmware(f, size - 1, headers, payload);
    check_xdp(&r, f, size - 1, headers, payload);
    free(f);
    return 0;
}
