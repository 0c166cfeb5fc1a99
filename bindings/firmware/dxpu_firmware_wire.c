/* dxpu_firmware_wire.c - see dxpu_firmware_wire.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Offsets   2 ARP   3 Parsing   4 Building */
#include "dxpu_firmware_wire.h"
#include "dxpu_bytes.h"

/* ==== 1  Offsets ============================================================================== */

enum { /* offsets into an Ethernet frame; RFC 826 */
       ARP = DXPU_BYTES_ETHERNET,
       ARP_BYTES = 28,
       ARP_OPERATION = ARP + 6,
       ARP_FROM_MAC = ARP + 8,
       ARP_FROM_IP = ARP + 14,
       ARP_TO_MAC = ARP + 18,
       ARP_TO_IP = ARP + 24,
       IP = DXPU_BYTES_ETHERNET,
       IP_FROM = IP + DXPU_BYTES_IP4_FROM,
       UDP = IP + DXPU_BYTES_IP4,
       UDP_LENGTH = UDP + DXPU_BYTES_UDP_LENGTH
};

enum { MAC_BYTES = 6, ADDRESS_BYTES = 4, TYPE_ARP = 0x0806 };

/* ==== 2  ARP ========================================================================= RFC 826 */

static const uint8_t arp_head[] = {
    0, 1, DXPU_BYTES_TYPE_IP4 >> 8, DXPU_BYTES_TYPE_IP4 & 0xff, MAC_BYTES, ADDRESS_BYTES, 0
};

static bool arp_asks_for(const dxpu_fw_address *own, const uint8_t *frame, uint32_t bytes)
{
    return bytes >= ARP + ARP_BYTES && !memcmp(frame + ARP, arp_head, sizeof arp_head) &&
           frame[ARP_OPERATION + 1] == 1 && !memcmp(frame + ARP_TO_IP, own->ip, ADDRESS_BYTES);
}

uint32_t dxpu_fw_wire_arp(const dxpu_fw_address *own, const uint8_t *request, uint8_t *out)
{
    memset(out, 0, DXPU_FW_ETHERNET_MIN_BYTES);
    memcpy(out + DXPU_BYTES_ETHERNET_TO, request + ARP_FROM_MAC, MAC_BYTES);
    memcpy(out + DXPU_BYTES_ETHERNET_FROM, own->mac, MAC_BYTES);
    dxpu_put_be16(out + DXPU_BYTES_ETHERNET_TYPE, TYPE_ARP);
    memcpy(out + ARP, arp_head, sizeof arp_head);
    out[ARP_OPERATION + 1] = 2;
    memcpy(out + ARP_FROM_MAC, own->mac, MAC_BYTES);
    memcpy(out + ARP_FROM_IP, own->ip, ADDRESS_BYTES);
    memcpy(out + ARP_TO_MAC, request + ARP_FROM_MAC, MAC_BYTES + ADDRESS_BYTES);
    return DXPU_FW_ETHERNET_MIN_BYTES;
}

/* ==== 3  Parsing ==============================================================================
   Every length is compared with what is left before it is used. */

static bool is_for_us(const dxpu_fw_address *own, const uint8_t *frame)
{
    static const uint8_t all[MAC_BYTES] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
    return !memcmp(frame + DXPU_BYTES_ETHERNET_TO, own->mac, MAC_BYTES) ||
           !memcmp(frame + DXPU_BYTES_ETHERNET_TO, all, MAC_BYTES);
}

/* Whether an answer can reach it. */
static bool is_source(const uint8_t *frame)
{
    return !(frame[DXPU_BYTES_ETHERNET_FROM] & 1) && dxpu_bytes_source_4(frame + IP_FROM) &&
           dxpu_get_be16(frame + UDP + DXPU_BYTES_UDP_FROM);
}

/* Of a UDP datagram in its frame; 0: the sender made no checksum. */
static bool is_intact(const uint8_t *frame, uint32_t udp_bytes)
{
    uint64_t pseudo = dxpu_bytes_pseudo(frame + IP_FROM, (size_t)2 * ADDRESS_BYTES, udp_bytes);
    return !dxpu_get_be16(frame + UDP + DXPU_BYTES_UDP_CHECKSUM) ||
           dxpu_bytes_fold(dxpu_bytes_sum(pseudo, frame + UDP, udp_bytes)) == 0xffff;
}

/* The counter of what is wrong with an IPv4 packet; NULL: nothing. */
static uint64_t *packet_fault(const dxpu_fw_address *own, const uint8_t *f, uint32_t bytes,
                              dxpu_fw_counters *count)
{
    uint32_t total, udp;
    if (bytes < DXPU_FW_HEADERS_BYTES)
        return &count->rx_length;
    if (f[IP] >> 4 != 4 || f[IP + DXPU_BYTES_IP4_PROTOCOL] != DXPU_BYTES_PROTOCOL_UDP)
        return &count->rx_other;
    if (f[IP] != DXPU_BYTES_IP4_VERSION ||
        (dxpu_get_be16(f + IP + DXPU_BYTES_IP4_FRAGMENT) & DXPU_BYTES_FRAGMENT_MASK))
        return &count->rx_fragment;
    if (memcmp(f + IP + DXPU_BYTES_IP4_TO, own->ip, ADDRESS_BYTES) ||
        dxpu_get_be16(f + UDP + DXPU_BYTES_UDP_TO) != own->port)
        return &count->rx_other;
    total = dxpu_get_be16(f + IP + DXPU_BYTES_IP4_LENGTH);
    udp = dxpu_get_be16(f + UDP_LENGTH);
    if (total > bytes - IP || total < DXPU_BYTES_IP4 + DXPU_BYTES_UDP || udp < DXPU_BYTES_UDP ||
        udp > total - DXPU_BYTES_IP4)
        return &count->rx_length;
    if (dxpu_bytes_fold(dxpu_bytes_sum(0, f + IP, DXPU_BYTES_IP4)) != 0xffff || !is_intact(f, udp))
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
    if (is_for_us(own, frame) && dxpu_get_be16(frame + DXPU_BYTES_ETHERNET_TYPE) == TYPE_ARP &&
        arp_asks_for(own, frame, bytes)) {
        count->rx_arp++;
        return DXPU_FW_ARP;
    }
    if (is_for_us(own, frame) &&
        dxpu_get_be16(frame + DXPU_BYTES_ETHERNET_TYPE) == DXPU_BYTES_TYPE_IP4)
        fault = packet_fault(own, frame, bytes, count);
    if (fault) {
        (*fault)++;
        return DXPU_FW_NOTHING;
    }
    count->rx_datagrams++;
    memcpy(out->from.mac, frame + DXPU_BYTES_ETHERNET_FROM, MAC_BYTES);
    memcpy(out->from.ip, frame + IP_FROM, ADDRESS_BYTES);
    out->from.port = dxpu_get_be16(frame + UDP + DXPU_BYTES_UDP_FROM);
    out->payload = frame + DXPU_FW_HEADERS_BYTES;
    out->payload_bytes = dxpu_get_be16(frame + UDP_LENGTH) - (uint32_t)DXPU_BYTES_UDP;
    out->flags = (frame[IP + DXPU_BYTES_IP4_TOS] & DXPU_BYTES_ECN_CE) == DXPU_BYTES_ECN_CE
                     ? DXPU_RX_ECN_CE
                     : 0u;
    return DXPU_FW_DATAGRAM;
}

/* ==== 4  Building ============================================================================= */

uint32_t dxpu_fw_wire_build(const dxpu_fw_address *from, const dxpu_fw_address *to, unsigned ecn,
                            uint8_t *frame, uint32_t payload_bytes)
{
    memcpy(frame + DXPU_BYTES_ETHERNET_TO, to->mac, MAC_BYTES);
    memcpy(frame + DXPU_BYTES_ETHERNET_FROM, from->mac, MAC_BYTES);
    dxpu_put_be16(frame + DXPU_BYTES_ETHERNET_TYPE, DXPU_BYTES_TYPE_IP4);
    dxpu_bytes_put_ip4(frame + IP, ecn, from->ip, to->ip, DXPU_BYTES_UDP + payload_bytes);
    dxpu_bytes_put_udp(frame + UDP, from->port, to->port, payload_bytes);
    dxpu_bytes_seal_udp(frame + UDP, frame + IP_FROM, 2 * ADDRESS_BYTES);
    return DXPU_FW_HEADERS_BYTES + payload_bytes;
}
