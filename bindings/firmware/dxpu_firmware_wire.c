/* dxpu_firmware_wire.c - see dxpu_firmware_wire.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Bytes   2 ARP   3 Parsing   4 Building */
#include "dxpu_firmware_wire.h"

/* ==== 1  Bytes ================================================================================ */

enum { /* offsets into an Ethernet frame */
       ETHERNET_TO = 0,
       ETHERNET_FROM = 6,
       ETHERNET_TYPE = 12,
       ARP = 14,
       ARP_BYTES = 28,
       ARP_OPERATION = ARP + 6,
       ARP_FROM_MAC = ARP + 8,
       ARP_FROM_IP = ARP + 14,
       ARP_TO_MAC = ARP + 18,
       ARP_TO_IP = ARP + 24,
       IP = 14,
       IP_BYTES = 20,
       IP_TOS = IP + 1,
       IP_LENGTH = IP + 2,
       IP_FRAGMENT = IP + 6,
       IP_TTL = IP + 8,
       IP_PROTOCOL = IP + 9,
       IP_CHECKSUM = IP + 10,
       IP_FROM = IP + 12,
       IP_TO = IP + 16,
       UDP = IP + IP_BYTES,
       UDP_BYTES = 8,
       UDP_FROM = UDP,
       UDP_TO = UDP + 2,
       UDP_LENGTH = UDP + 4,
       UDP_CHECKSUM = UDP + 6
};

enum {
    MAC_BYTES = 6,
    IP4_BYTES = 4,
    TYPE_IP4 = 0x0800,
    TYPE_ARP = 0x0806,
    PROTOCOL_UDP = 17,
    VERSION_AND_LENGTH = 0x45,
    DONT_FRAGMENT = 0x4000,
    FRAGMENT_MASK = 0x3fff, /* more fragments, or an offset */
    HOPS = 64,
    ECN_CE = 3
};

/* The ones' complement sum of RFC 1071, of at most 64 KB: it cannot overflow. */
static uint32_t sum16(uint32_t sum, const uint8_t *p, uint32_t bytes)
{
    for (; bytes >= 2; p += 2, bytes -= 2)
        sum += dxpu_get_be16(p);
    return bytes ? sum + ((uint32_t)p[0] << 8) : sum;
}

static uint32_t fold(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffffu) + (sum >> 16);
    return sum;
}

/* Of a UDP datagram in its frame, the checksum as it stands there included. */
static uint32_t udp_sum(const uint8_t *frame, uint32_t udp_bytes)
{
    return fold(sum16(sum16(PROTOCOL_UDP + udp_bytes, frame + IP_FROM, 2 * IP4_BYTES), frame + UDP,
                      udp_bytes));
}

/* ==== 2  ARP ========================================================================= RFC 826 */

static const uint8_t arp_head[] = { 0, 1, TYPE_IP4 >> 8, TYPE_IP4 & 0xff, MAC_BYTES, IP4_BYTES, 0 };

static bool arp_asks_for(const dxpu_fw_address *own, const uint8_t *frame, uint32_t bytes)
{
    return bytes >= ARP + ARP_BYTES && !memcmp(frame + ARP, arp_head, sizeof arp_head) &&
           frame[ARP_OPERATION + 1] == 1 && !memcmp(frame + ARP_TO_IP, own->ip, IP4_BYTES);
}

uint32_t dxpu_fw_wire_arp(const dxpu_fw_address *own, const uint8_t *request, uint8_t *out)
{
    memset(out, 0, DXPU_FW_ETHERNET_MIN_BYTES);
    memcpy(out + ETHERNET_TO, request + ARP_FROM_MAC, MAC_BYTES);
    memcpy(out + ETHERNET_FROM, own->mac, MAC_BYTES);
    dxpu_put_be16(out + ETHERNET_TYPE, TYPE_ARP);
    memcpy(out + ARP, arp_head, sizeof arp_head);
    out[ARP_OPERATION + 1] = 2;
    memcpy(out + ARP_FROM_MAC, own->mac, MAC_BYTES);
    memcpy(out + ARP_FROM_IP, own->ip, IP4_BYTES);
    memcpy(out + ARP_TO_MAC, request + ARP_FROM_MAC, MAC_BYTES + IP4_BYTES);
    return DXPU_FW_ETHERNET_MIN_BYTES;
}

/* ==== 3  Parsing ==============================================================================
   Every length is compared with what is left before it is used. */

static bool is_for_us(const dxpu_fw_address *own, const uint8_t *frame)
{
    static const uint8_t all[MAC_BYTES] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
    return !memcmp(frame + ETHERNET_TO, own->mac, MAC_BYTES) ||
           !memcmp(frame + ETHERNET_TO, all, MAC_BYTES);
}

/* Could somebody answer there?  Not 0/8, loopback, multicast, broadcast. */
static bool is_source(const uint8_t *frame)
{
    const uint8_t *ip = frame + IP_FROM;
    return !(frame[ETHERNET_FROM] & 1) && ip[0] != 0 && ip[0] != 127 && ip[0] < 224 &&
           dxpu_get_be16(frame + UDP_FROM);
}

/* The counter of what is wrong with an IPv4 packet; NULL: nothing. */
static uint64_t *packet_fault(const dxpu_fw_address *own, const uint8_t *f, uint32_t bytes,
                              dxpu_fw_counters *count)
{
    uint32_t total, udp;
    if (bytes < DXPU_FW_HEADERS_BYTES)
        return &count->rx_length;
    if (f[IP] >> 4 != 4 || f[IP_PROTOCOL] != PROTOCOL_UDP)
        return &count->rx_other;
    if (f[IP] != VERSION_AND_LENGTH || (dxpu_get_be16(f + IP_FRAGMENT) & FRAGMENT_MASK))
        return &count->rx_fragment;
    if (memcmp(f + IP_TO, own->ip, IP4_BYTES) || dxpu_get_be16(f + UDP_TO) != own->port)
        return &count->rx_other;
    total = dxpu_get_be16(f + IP_LENGTH);
    udp = dxpu_get_be16(f + UDP_LENGTH);
    if (total > bytes - IP || total < IP_BYTES + UDP_BYTES || udp < UDP_BYTES ||
        udp > total - IP_BYTES)
        return &count->rx_length;
    if (fold(sum16(0, f + IP, IP_BYTES)) != 0xffff ||
        (dxpu_get_be16(f + UDP_CHECKSUM) &&
         udp_sum(f, udp) != 0xffff)) /* 0: the sender made none */
        return &count->rx_checksum;
    return is_source(f) ? NULL : &count->rx_source;
}

unsigned dxpu_fw_wire_parse(const dxpu_fw_address *own, uint8_t *frame, uint32_t bytes,
                            dxpu_fw_datagram *out, dxpu_fw_counters *count)
{
    uint64_t *fault = &count->rx_other;
    if (bytes < IP) {
        count->rx_length++;
        return DXPU_FW_NOTHING;
    }
    if (is_for_us(own, frame) && dxpu_get_be16(frame + ETHERNET_TYPE) == TYPE_ARP &&
        arp_asks_for(own, frame, bytes)) {
        count->rx_arp++;
        return DXPU_FW_ARP;
    }
    if (is_for_us(own, frame) && dxpu_get_be16(frame + ETHERNET_TYPE) == TYPE_IP4)
        fault = packet_fault(own, frame, bytes, count);
    if (fault) {
        (*fault)++;
        return DXPU_FW_NOTHING;
    }
    count->rx_datagrams++;
    memcpy(out->from.mac, frame + ETHERNET_FROM, MAC_BYTES);
    memcpy(out->from.ip, frame + IP_FROM, IP4_BYTES);
    out->from.port = dxpu_get_be16(frame + UDP_FROM);
    out->payload = frame + DXPU_FW_HEADERS_BYTES;
    out->payload_bytes = dxpu_get_be16(frame + UDP_LENGTH) - (uint32_t)UDP_BYTES;
    out->flags = (frame[IP_TOS] & ECN_CE) == ECN_CE ? DXPU_RX_ECN_CE : 0u;
    return DXPU_FW_DATAGRAM;
}

/* ==== 4  Building ============================================================================= */

uint32_t dxpu_fw_wire_build(const dxpu_fw_address *from, const dxpu_fw_address *to, unsigned ecn,
                            uint8_t *frame, uint32_t payload_bytes)
{
    uint32_t udp_bytes = UDP_BYTES + payload_bytes, check;
    memset(frame, 0, DXPU_FW_HEADERS_BYTES);
    memcpy(frame + ETHERNET_TO, to->mac, MAC_BYTES);
    memcpy(frame + ETHERNET_FROM, from->mac, MAC_BYTES);
    dxpu_put_be16(frame + ETHERNET_TYPE, TYPE_IP4);
    frame[IP] = VERSION_AND_LENGTH;
    frame[IP_TOS] = (uint8_t)ecn;
    dxpu_put_be16(frame + IP_LENGTH, IP_BYTES + udp_bytes);
    dxpu_put_be16(frame + IP_FRAGMENT, DONT_FRAGMENT);
    frame[IP_TTL] = HOPS;
    frame[IP_PROTOCOL] = PROTOCOL_UDP;
    memcpy(frame + IP_FROM, from->ip, IP4_BYTES);
    memcpy(frame + IP_TO, to->ip, IP4_BYTES);
    dxpu_put_be16(frame + IP_CHECKSUM, ~fold(sum16(0, frame + IP, IP_BYTES)));
    dxpu_put_be16(frame + UDP_FROM, from->port);
    dxpu_put_be16(frame + UDP_TO, to->port);
    dxpu_put_be16(frame + UDP_LENGTH, udp_bytes);
    check = ~udp_sum(frame, udp_bytes) & 0xffffu;
    dxpu_put_be16(frame + UDP_CHECKSUM, check ? check : 0xffffu); /* 0 says that there is none */
    return DXPU_FW_HEADERS_BYTES + payload_bytes;
}
