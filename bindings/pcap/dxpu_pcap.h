/* dxpu_pcap.h - captures of TLPs and of dxpu frames, read and written with libpcap
   SPDX-License-Identifier: MIT

   TLPs are in captures as the NetTLP project puts them: Ethernet (VLAN tags may occur), IPv4 or
   IPv6, UDP port 0x3000 + tag or 0x4000 + (tag & 15), a header of 6 bytes (sequence u16, timestamp
   u32, big-endian), then the TLP in PCIe order.  Our own frames are plain UDP datagrams, known by
   their magic on any port; a packet that the kernel captured before it was cut into segments, or
   after it joined them (UDP_SEGMENT, GRO), holds several, each as long as its length field says.
   RTP also uses the ports from 0x4000: there a TLP must be as long as its header says.
   Files are written with nanosecond times; both magics are read. */
#ifndef DXPU_PCAP_H_INCLUDED
#define DXPU_PCAP_H_INCLUDED

#include "dxpu.h"

#include <netinet/in.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DXPU_PCAP_OTHER, /* neither; bytes is the whole packet */
    DXPU_PCAP_TLP,   /* bytes is the TLP as far as it was captured */
    DXPU_PCAP_FRAME  /* bytes is one datagram that begins as a dxpu frame */
};

enum { DXPU_PCAP_NETTLP_PORT = 0x3000, DXPU_PCAP_NETTLP_BYTES = 6 };

/* One packet of a capture, or one frame of a packet that holds several. */
typedef struct dxpu_pcap_packet {
    uint8_t kind;       /* DXPU_PCAP_* */
    uint64_t index;     /* 1 for the first packet of the file, as other tools number them */
    uint64_t time_ns;   /* since 1970 */
    dxpu_bytes bytes;   /* valid until the next read */
    size_t whole_bytes; /* how many there were on the wire: more than bytes.len when cut */
    uint16_t sequence;  /* of the NetTLP header */
    uint32_t timestamp; /* of the NetTLP header */
    uint16_t port;      /* UDP destination port */
} dxpu_pcap_packet;

typedef struct dxpu_pcap_reader dxpu_pcap_reader;
/* What went wrong, without the file's name. */
enum { DXPU_PCAP_WHY_BYTES = 320 };

/* Open a file ("-": standard input).  NULL on failure, and why is filled. */
dxpu_pcap_reader *dxpu_pcap_open(const char *file, char why[DXPU_PCAP_WHY_BYTES]);
/* The next packet, or the next frame of the same one.  1 and *out; 0 at the end; -1 when the file
   is damaged, and why is filled. */
int dxpu_pcap_next(dxpu_pcap_reader *r, dxpu_pcap_packet *out, char why[DXPU_PCAP_WHY_BYTES]);
/* True when the last packet holds another frame: it comes next, under the same index. */
bool dxpu_pcap_more(const dxpu_pcap_reader *r);
void dxpu_pcap_close(dxpu_pcap_reader *r); /* NULL is allowed */

typedef struct dxpu_pcap_writer dxpu_pcap_writer;

/* Create a file ("-": standard output).  NULL on failure, and why is filled. */
dxpu_pcap_writer *dxpu_pcap_create(const char *file, char why[DXPU_PCAP_WHY_BYTES]);
/* Append one TLP in NetTLP's encapsulation, 1..65000 bytes.  The UDP port comes from its tag, when
   it has one; the NetTLP sequence counts up.  DXPU_OK or E_ARG. */
int dxpu_pcap_write_tlp(dxpu_pcap_writer *w, uint64_t time_ns, dxpu_bytes tlp);
/* Append one frame as the datagram it was, 1..65000 bytes, between two IPv4 or two IPv6 addresses
   with ports.  DXPU_OK or E_ARG. */
int dxpu_pcap_write_frame(dxpu_pcap_writer *w, uint64_t time_ns, const struct sockaddr *from,
                          const struct sockaddr *to, dxpu_bytes frame);
/* errno of the first write that failed, 0 while all is well.  Writes are collected, so that a full
   disk shows some packets later. */
int dxpu_pcap_error(const dxpu_pcap_writer *w);
/* Hand what was written to the operating system.  0, or -1 with errno (disk full, ...). */
int dxpu_pcap_flush(dxpu_pcap_writer *w);
/* Flush and close; NULL is allowed.  0, or -1 with errno. */
int dxpu_pcap_finish(dxpu_pcap_writer *w);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_PCAP_H_INCLUDED */
