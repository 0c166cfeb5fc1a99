/* dxpu_bytes.h - headers of IPv4, IPv6 and UDP, and their checksums: for bindings that make or read
   whole packets
   SPDX-License-Identifier: MIT

   Offsets count from the beginning of each header, and no header has options or extensions.  The
   caller has compared all lengths with what is there. */
#ifndef DXPU_BYTES_H_INCLUDED
#define DXPU_BYTES_H_INCLUDED

#include "dxpu.h"

enum { /* RFC 894, RFC 791, RFC 8200, RFC 768 */
       DXPU_BYTES_ETHERNET_TO = 0,
       DXPU_BYTES_ETHERNET_FROM = 6,
       DXPU_BYTES_ETHERNET_TYPE = 12,
       DXPU_BYTES_ETHERNET = 14, /* of the whole header */
       DXPU_BYTES_IP4_TOS = 1,
       DXPU_BYTES_IP4_LENGTH = 2,
       DXPU_BYTES_IP4_FRAGMENT = 6, /* flags and offset */
       DXPU_BYTES_IP4_HOPS = 8,
       DXPU_BYTES_IP4_PROTOCOL = 9,
       DXPU_BYTES_IP4_CHECKSUM = 10,
       DXPU_BYTES_IP4_FROM = 12,
       DXPU_BYTES_IP4_TO = 16,
       DXPU_BYTES_IP4 = 20,
       DXPU_BYTES_IP6_LENGTH = 4,
       DXPU_BYTES_IP6_PROTOCOL = 6,
       DXPU_BYTES_IP6_HOPS = 7,
       DXPU_BYTES_IP6_FROM = 8,
       DXPU_BYTES_IP6_TO = 24,
       DXPU_BYTES_IP6 = 40,
       DXPU_BYTES_UDP_FROM = 0,
       DXPU_BYTES_UDP_TO = 2,
       DXPU_BYTES_UDP_LENGTH = 4,
       DXPU_BYTES_UDP_CHECKSUM = 6,
       DXPU_BYTES_UDP = 8
};

enum {
    DXPU_BYTES_TYPE_IP4 = 0x0800,
    DXPU_BYTES_TYPE_IP6 = 0x86dd,
    DXPU_BYTES_PROTOCOL_UDP = 17,
    DXPU_BYTES_IP4_VERSION = 0x45, /* and five words of header */
    DXPU_BYTES_DONT_FRAGMENT = 0x4000,
    DXPU_BYTES_FRAGMENT_MASK = 0x3fff, /* more fragments, or an offset */
    DXPU_BYTES_HOPS = 64,
    DXPU_BYTES_ECN_CE = 3 /* also the mask of the two bits */
};

/* The ones' complement sum is independent of byte order (RFC 1071): its words, and its folded
   value, are in the order of memory.  A first part has an even number of bytes. */
static inline uint64_t dxpu_bytes_sum(uint64_t sum, const uint8_t *p, size_t bytes)
{
    uint64_t words = 0, carries = 0, word;
    uint32_t part = 0;
    uint16_t half = 0;
    for (; bytes >= sizeof word; p += sizeof word, bytes -= sizeof word) {
        memcpy(&word, p, sizeof word);
        words += word;
        carries += words < word; /* each is worth one, as in any sum of this kind */
    }
    sum += (words & 0xffffffffu) + (words >> 32) + carries;
    if (bytes >= sizeof part) {
        memcpy(&part, p, sizeof part);
        sum += part;
        p += sizeof part;
        bytes -= sizeof part;
    }
    if (bytes >= sizeof half) {
        memcpy(&half, p, sizeof half);
        sum += half;
        p += sizeof half;
        bytes -= sizeof half;
        half = 0;
    }
    if (bytes) {
        memcpy(&half, p, 1);
        sum += half;
    }
    return sum;
}

/* 0xffff of a part that has its checksum in it, and is intact. */
static inline uint16_t dxpu_bytes_fold(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Of what UDP's checksum covers beside the datagram: both addresses, which are side by side (8 or
   32 bytes), the protocol and the length. */
static inline uint64_t dxpu_bytes_pseudo(const uint8_t *addresses, size_t bytes, size_t udp_bytes)
{
    uint8_t rest[4] = { 0, DXPU_BYTES_PROTOCOL_UDP, 0, 0 };
    dxpu_put_be16(rest + 2, (uint32_t)udp_bytes);
    return dxpu_bytes_sum(dxpu_bytes_sum(0, addresses, bytes), rest, sizeof rest);
}

/* A whole header before `bytes` bytes of payload; from, to: 4 bytes each. */
static inline void dxpu_bytes_put_ip4(uint8_t *ip, unsigned tos, const void *from, const void *to,
                                      size_t bytes)
{
    uint16_t check;
    memset(ip, 0, DXPU_BYTES_IP4);
    ip[0] = DXPU_BYTES_IP4_VERSION;
    ip[DXPU_BYTES_IP4_TOS] = (uint8_t)tos;
    dxpu_put_be16(ip + DXPU_BYTES_IP4_LENGTH, (uint32_t)(DXPU_BYTES_IP4 + bytes));
    dxpu_put_be16(ip + DXPU_BYTES_IP4_FRAGMENT, DXPU_BYTES_DONT_FRAGMENT);
    ip[DXPU_BYTES_IP4_HOPS] = DXPU_BYTES_HOPS;
    ip[DXPU_BYTES_IP4_PROTOCOL] = DXPU_BYTES_PROTOCOL_UDP;
    memcpy(ip + DXPU_BYTES_IP4_FROM, from, 4);
    memcpy(ip + DXPU_BYTES_IP4_TO, to, 4);
    check = (uint16_t)~dxpu_bytes_fold(dxpu_bytes_sum(0, ip, DXPU_BYTES_IP4));
    memcpy(ip + DXPU_BYTES_IP4_CHECKSUM, &check, sizeof check);
}

/* The same; from, to: 16 bytes each. */
static inline void dxpu_bytes_put_ip6(uint8_t *ip, unsigned tos, const void *from, const void *to,
                                      size_t bytes)
{
    memset(ip, 0, DXPU_BYTES_IP6);
    dxpu_put_be16(ip, 0x6000u | tos << 4);
    dxpu_put_be16(ip + DXPU_BYTES_IP6_LENGTH, (uint32_t)bytes);
    ip[DXPU_BYTES_IP6_PROTOCOL] = DXPU_BYTES_PROTOCOL_UDP;
    ip[DXPU_BYTES_IP6_HOPS] = DXPU_BYTES_HOPS;
    memcpy(ip + DXPU_BYTES_IP6_FROM, from, 16);
    memcpy(ip + DXPU_BYTES_IP6_TO, to, 16);
}

/* A header without a checksum, which 0 says, before `bytes` bytes of payload. */
static inline void dxpu_bytes_put_udp(uint8_t *udp, unsigned from, unsigned to, size_t bytes)
{
    dxpu_put_be16(udp + DXPU_BYTES_UDP_FROM, from);
    dxpu_put_be16(udp + DXPU_BYTES_UDP_TO, to);
    dxpu_put_be16(udp + DXPU_BYTES_UDP_LENGTH, (uint32_t)(DXPU_BYTES_UDP + bytes));
    dxpu_put_be16(udp + DXPU_BYTES_UDP_CHECKSUM, 0);
}

/* Then, with the payload behind it, its checksum.  addresses: as dxpu_bytes_pseudo(). */
static inline void dxpu_bytes_seal_udp(uint8_t *udp, const uint8_t *addresses, size_t bytes)
{
    size_t len = dxpu_get_be16(udp + DXPU_BYTES_UDP_LENGTH);
    uint64_t sum = dxpu_bytes_sum(dxpu_bytes_pseudo(addresses, bytes, len), udp, len);
    uint16_t check = (uint16_t)~dxpu_bytes_fold(sum);
    if (!check)
        check = 0xffff; /* 0 says that there is no checksum */
    memcpy(udp + DXPU_BYTES_UDP_CHECKSUM, &check, sizeof check);
}

/* Whether an IPv4 address can be a neighbour's: not 0/8, loopback, multicast, broadcast. */
static inline bool dxpu_bytes_source_4(const uint8_t *address)
{
    return address[0] != 0 && address[0] != 127 && address[0] < 224;
}

#endif /* DXPU_BYTES_H_INCLUDED */
