/* dxpu_firmware_wire.h - what stands around a dxpu frame on raw Ethernet: ARP, IPv4, UDP
   SPDX-License-Identifier: MIT

   The same datagrams as those of a UDP socket, for a network port that takes and gives whole
   Ethernet frames without their check sequence.  No state, no clock, no I/O. */
#ifndef DXPU_FIRMWARE_WIRE_H_INCLUDED
#define DXPU_FIRMWARE_WIRE_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DXPU_FW_HEADERS_BYTES = 42, /* Ethernet, IPv4 without options, UDP */
    DXPU_FW_ETHERNET_MIN_BYTES = 60
};

/* One end of a datagram: on our link, on the network, in the machine. */
typedef struct dxpu_fw_address {
    uint8_t mac[6]; /* of the next hop, where it is not ours */
    uint8_t ip[4];
    uint16_t port;
} dxpu_fw_address;

/* What a node counts. */
#define DXPU_FW_COUNTERS(X)                                                                        \
    X(rx_datagrams, "datagrams for this node")                                                     \
    X(rx_arp, "ARP requests for this node")                                                        \
    X(rx_other, "Ethernet frames for another address, or of another protocol")                     \
    X(rx_length, "dropped: an Ethernet, IPv4 or UDP length that cannot be")                        \
    X(rx_fragment, "dropped: fragments, or IPv4 options")                                          \
    X(rx_checksum, "dropped: IPv4 or UDP checksum")                                                \
    X(rx_source, "dropped: invalid source address or port")                                        \
    X(rx_not_frames, "datagrams that are not dxpu frames")                                         \
    X(rx_unknown, "frames for a channel that is not there")                                        \
    X(rx_handshakes, "handshake frames, of hosts with keys; dropped by a node without")            \
    X(tx_frames, "Ethernet frames sent")                                                           \
    X(tx_full, "ARP answers and refusals dropped: the ring to the network was full")               \
    X(opens, "opens accepted")                                                                     \
    X(opens_repeated, "repeated opens")                                                            \
    X(opens_refused, "opens answered by a reset")                                                  \
    X(opens_unauthorized, "sealed opens dropped: the slot, its epoch or its owner forbids them")   \
    X(opens_bad, "opens dropped: malformed, or shorter than they may be")                          \
    X(ups, "channels that came up")                                                                \
    X(closed, "channels closed gracefully")                                                        \
    X(failed, "channels that ended in another way")                                                \
    X(revoked, "of these: their key may not have the slot any more")                               \
    X(device_lengths, "buffers of a device or the network with an impossible length")              \
    X(device_malformed, "TLPs of a device that cannot be sent")                                    \
    X(device_refused, "TLPs of a device that its lease does not allow")                            \
    X(device_dropped, "TLPs of a device without a channel, or from before its reset")              \
    X(host_malformed, "TLPs of a host that break a rule, or are longer than a buffer")             \
    X(rings_astray, "rings whose producer's count cannot be")

#define DXPU_FW_COUNTER_FIELD(name, text) uint64_t name;
typedef struct dxpu_fw_counters {
    DXPU_FW_COUNTERS(DXPU_FW_COUNTER_FIELD)
} dxpu_fw_counters;
#undef DXPU_FW_COUNTER_FIELD

/* What a received Ethernet frame is. */
enum { DXPU_FW_NOTHING, DXPU_FW_DATAGRAM, DXPU_FW_ARP };

typedef struct dxpu_fw_datagram {
    dxpu_fw_address from;
    uint8_t *payload; /* within the frame */
    uint32_t payload_bytes;
    unsigned flags; /* DXPU_RX_ECN_CE */
} dxpu_fw_datagram;

/* Look at an Ethernet frame: DXPU_FW_DATAGRAM and *out, DXPU_FW_ARP for a request that asks for
   `own`, or DXPU_FW_NOTHING after counting why.  O(bytes). */
unsigned dxpu_fw_wire_parse(const dxpu_fw_address *own, uint8_t *frame, uint32_t bytes,
                            dxpu_fw_datagram *out, dxpu_fw_counters *count);
/* The answer to an ARP request that parse() has found to be one.  Returns its bytes; `out` has
   room for DXPU_FW_ETHERNET_MIN_BYTES. */
uint32_t dxpu_fw_wire_arp(const dxpu_fw_address *own, const uint8_t *request, uint8_t *out);
/* Write the headers before the payload_bytes bytes at frame + DXPU_FW_HEADERS_BYTES, with both
   checksums.  ecn: the two bits of the IPv4 header.  Returns the bytes of it all. */
uint32_t dxpu_fw_wire_build(const dxpu_fw_address *from, const dxpu_fw_address *to, unsigned ecn,
                            uint8_t *frame, uint32_t payload_bytes);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_FIRMWARE_WIRE_H_INCLUDED */
