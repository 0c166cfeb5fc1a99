/* dxpu_pcap.c - see dxpu_pcap.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* u_char and friends, which pcap.h uses */
#endif
#include "dxpu_pcap.h"
#include "dxpu_bytes.h"

#include <errno.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    DATAGRAM_MAX_BYTES = 65000,
    SNAP_BYTES = 262144,
    PORT_MASK_3000 = 0xff00, /* 0x3000..0x30ff */
    PORT_4000 = 0x4000,
    PORT_MASK_4000 = 0xfff0 /* 0x4000..0x400f */
};

struct dxpu_pcap_reader {
    pcap_t *pcap;
    int link;
    dxpu_pcap_packet packet; /* the last one */
    dxpu_bytes rest;         /* of it, frames not yet returned */
    size_t rest_whole_bytes; /* as many on the wire */
};

struct dxpu_pcap_writer {
    pcap_t *pcap;
    pcap_dumper_t *dump;
    int error; /* errno of the first write that failed */
    uint16_t sequence;
    uint8_t packet[DXPU_BYTES_ETHERNET + DXPU_BYTES_IP6 + DXPU_BYTES_UDP + DXPU_PCAP_NETTLP_BYTES +
                   DATAGRAM_MAX_BYTES];
};

/* libpcap names the file in some of its messages only; ours never do. */
static void say_why(char why[DXPU_PCAP_WHY_BYTES], const char *file, const char *text)
{
    size_t n = strlen(file);
    if (!strncmp(text, file, n) && !strncmp(text + n, ": ", 2))
        text += n + 2;
    snprintf(why, DXPU_PCAP_WHY_BYTES, "%s", text);
}

/* ==== Reading ================================================================================= */

dxpu_pcap_reader *dxpu_pcap_open(const char *file, char why[DXPU_PCAP_WHY_BYTES])
{
    char text[PCAP_ERRBUF_SIZE] = "";
    dxpu_pcap_reader *r = calloc(1, sizeof *r);
    if (!r) {
        snprintf(why, DXPU_PCAP_WHY_BYTES, "out of memory");
        return NULL;
    }
    r->pcap = pcap_open_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, text);
    if (!r->pcap) {
        say_why(why, file, text);
        free(r);
        return NULL;
    }
    r->link = pcap_datalink(r->pcap);
    return r;
}

void dxpu_pcap_close(dxpu_pcap_reader *r)
{
    if (!r)
        return;
    pcap_close(r->pcap);
    free(r);
}

static void skip(dxpu_bytes *b, size_t n)
{
    b->ptr += n;
    b->len -= n;
}

/* Take the link header off *b; the EtherType of what follows, 0 when there is none. */
static unsigned link_header(int link, dxpu_bytes *b)
{
    unsigned type;
    size_t n;
    switch (link) {
    case DLT_EN10MB:
        n = DXPU_BYTES_ETHERNET;
        if (b->len < n)
            return 0;
        type = dxpu_get_be16(b->ptr + DXPU_BYTES_ETHERNET_TYPE);
        while ((type == 0x8100 || type == 0x88a8) && b->len >= n + 4) { /* VLAN tags */
            type = dxpu_get_be16(b->ptr + n + 2);
            n += 4;
        }
        break;
    case DLT_LINUX_SLL:
    case DLT_LINUX_SLL2:
        n = link == DLT_LINUX_SLL ? 16 : 20;
        if (b->len < n)
            return 0;
        type = dxpu_get_be16(b->ptr + (link == DLT_LINUX_SLL ? 14 : 0));
        break;
    case DLT_NULL: /* an address family that differs from system to system: IP says it itself */
    case DLT_LOOP:
    case DLT_RAW:
        n = link == DLT_RAW ? 0 : 4;
        if (b->len < n + 1)
            return 0;
        type = b->ptr[n] >> 4 == 6 ? DXPU_BYTES_TYPE_IP6 : DXPU_BYTES_TYPE_IP4;
        break;
    default:
        return 0;
    }
    skip(b, n);
    return type;
}

/* Take the IP header off *b; true when a UDP datagram, or its beginning, follows. */
static bool ip_header(unsigned type, dxpu_bytes *b)
{
    size_t n = DXPU_BYTES_IP6;
    if (type == DXPU_BYTES_TYPE_IP4) {
        if (b->len < DXPU_BYTES_IP4 || b->ptr[0] >> 4 != 4)
            return false;
        n = (size_t)(b->ptr[0] & 15) * 4;
        if (n < DXPU_BYTES_IP4 || b->len < n ||
            b->ptr[DXPU_BYTES_IP4_PROTOCOL] != DXPU_BYTES_PROTOCOL_UDP ||
            (dxpu_get_be16(b->ptr + DXPU_BYTES_IP4_FRAGMENT) & DXPU_BYTES_FRAGMENT_MASK) != 0)
            return false;
    } else if (type != DXPU_BYTES_TYPE_IP6 || b->len < n || b->ptr[0] >> 4 != 6 ||
               b->ptr[DXPU_BYTES_IP6_PROTOCOL] != DXPU_BYTES_PROTOCOL_UDP) {
        return false;
    }
    skip(b, n);
    return true;
}

static bool nettlp_port(unsigned port)
{
    return (port & PORT_MASK_3000) == 0x3000u || (port & PORT_MASK_4000) == PORT_4000;
}

/* Does a dxpu frame begin here?  On NetTLP's ports a sequence number may look like the magic. */
static bool is_frame(dxpu_bytes b, bool nettlp)
{
    if (b.len < 2 || dxpu_get_be16(b.ptr) != DXPU_MAGIC)
        return false;
    return !nettlp || (b.len >= DXPU_FRAME_BASE_BYTES && b.ptr[2] == DXPU_WIRE_VERSION &&
                       b.ptr[3] && b.ptr[3] < DXPU_KIND_END);
}

/* Behind NetTLP's header: a TLP of this length?  What the capture cut short may be one. */
static bool fits_nettlp(dxpu_bytes tlp, size_t whole_bytes)
{
    dxpu_tlp_shape s;
    int rc = dxpu_tlp_measure(tlp, &s);
    return rc == DXPU_OK ? s.total_bytes == whole_bytes
                         : rc == DXPU_E_TLP_SHORT && tlp.len < whole_bytes;
}

/* The first frame of what is left of a datagram, when another one follows it; else all of it. */
static void first_frame(dxpu_pcap_reader *r, dxpu_pcap_packet *out)
{
    size_t length = r->rest.len >= 6 ? dxpu_get_be16(r->rest.ptr + 4) : 0;
    dxpu_bytes next = r->rest;
    out->bytes = r->rest;
    out->whole_bytes = r->rest_whole_bytes;
    r->rest.len = 0;
    if (length < DXPU_FRAME_BASE_BYTES || length > next.len)
        return;
    skip(&next, length);
    if (!is_frame(next, false))
        return;
    r->rest = next;
    r->rest_whole_bytes -= length;
    out->bytes.len = out->whole_bytes = length;
}

/* What a packet holds. */
static void classify(dxpu_pcap_reader *r, dxpu_bytes b, dxpu_pcap_packet *out)
{
    unsigned length;
    bool nettlp;
    if (!ip_header(link_header(r->link, &b), &b) || b.len < DXPU_BYTES_UDP)
        return;
    length = dxpu_get_be16(b.ptr + DXPU_BYTES_UDP_LENGTH);
    if (length < DXPU_BYTES_UDP)
        return;
    length -= DXPU_BYTES_UDP;
    out->port = (uint16_t)dxpu_get_be16(b.ptr + DXPU_BYTES_UDP_TO);
    skip(&b, DXPU_BYTES_UDP);
    if (b.len > length) /* Ethernet's padding */
        b.len = length;
    nettlp = nettlp_port(out->port);
    if (is_frame(b, nettlp)) {
        out->kind = DXPU_PCAP_FRAME;
        r->rest = b;
        r->rest_whole_bytes = length;
        first_frame(r, out);
        return;
    }
    if (!nettlp || b.len < DXPU_PCAP_NETTLP_BYTES)
        return;
    out->sequence = (uint16_t)dxpu_get_be16(b.ptr);
    out->timestamp = dxpu_get_be32(b.ptr + 2);
    skip(&b, DXPU_PCAP_NETTLP_BYTES);
    length -= DXPU_PCAP_NETTLP_BYTES;
    if ((out->port & PORT_MASK_4000) == PORT_4000 && !fits_nettlp(b, length))
        return;
    out->kind = DXPU_PCAP_TLP;
    out->bytes = b;
    out->whole_bytes = length;
}

bool dxpu_pcap_more(const dxpu_pcap_reader *r)
{
    return r->rest.len != 0;
}

int dxpu_pcap_next(dxpu_pcap_reader *r, dxpu_pcap_packet *out, char why[DXPU_PCAP_WHY_BYTES])
{
    struct pcap_pkthdr *h;
    const u_char *data;
    int rc;
    if (dxpu_pcap_more(r)) {
        first_frame(r, &r->packet);
        *out = r->packet;
        return 1;
    }
    rc = pcap_next_ex(r->pcap, &h, &data);
    if (rc == PCAP_ERROR_BREAK)
        return 0;
    if (rc != 1) {
        snprintf(why, DXPU_PCAP_WHY_BYTES, "packet %llu: %s",
                 (unsigned long long)(r->packet.index + 1), pcap_geterr(r->pcap));
        return -1;
    }
    memset(out, 0, sizeof *out);
    out->index = r->packet.index + 1;
    out->time_ns = (uint64_t)h->ts.tv_sec * 1000000000u + (uint64_t)h->ts.tv_usec;
    out->bytes.ptr = data;
    out->bytes.len = h->caplen;
    out->whole_bytes = h->len;
    classify(r, out->bytes, out);
    r->packet = *out;
    return 1;
}

/* ==== Writing ================================================================================= */

dxpu_pcap_writer *dxpu_pcap_create(const char *file, char why[DXPU_PCAP_WHY_BYTES])
{
    dxpu_pcap_writer *w = calloc(1, sizeof *w);
    if (!w) {
        snprintf(why, DXPU_PCAP_WHY_BYTES, "out of memory");
        return NULL;
    }
    w->pcap =
        pcap_open_dead_with_tstamp_precision(DLT_EN10MB, SNAP_BYTES, PCAP_TSTAMP_PRECISION_NANO);
    w->dump = w->pcap ? pcap_dump_open(w->pcap, file) : NULL;
    if (!w->dump) {
        say_why(why, file, w->pcap ? pcap_geterr(w->pcap) : "out of memory");
        if (w->pcap)
            pcap_close(w->pcap);
        free(w);
        return NULL;
    }
    return w;
}

/* Keep the errno of the first failure: later calls change it, and stdio keeps only a flag. */
static void note_error(dxpu_pcap_writer *w, bool failed)
{
    if ((failed || ferror(pcap_dump_file(w->dump))) && !w->error)
        w->error = errno ? errno : EIO;
}

int dxpu_pcap_error(const dxpu_pcap_writer *w)
{
    return w->error;
}

int dxpu_pcap_flush(dxpu_pcap_writer *w)
{
    errno = 0;
    note_error(w, pcap_dump_flush(w->dump) != 0);
    errno = w->error;
    return w->error ? -1 : 0;
}

int dxpu_pcap_finish(dxpu_pcap_writer *w)
{
    int error;
    if (!w)
        return 0;
    (void)dxpu_pcap_flush(w); /* it keeps the error */
    error = w->error;
    pcap_dump_close(w->dump);
    pcap_close(w->pcap);
    free(w);
    errno = error;
    return error ? -1 : 0;
}

/* Unassigned locally administered addresses: TLPs have no Ethernet of their own. */
static void put_ether(uint8_t *p, unsigned type)
{
    static const uint8_t addresses[12] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1 };
    memcpy(p, addresses, sizeof addresses);
    dxpu_put_be16(p + DXPU_BYTES_ETHERNET_TYPE, type);
}

static void dump(dxpu_pcap_writer *w, uint64_t time_ns, size_t len)
{
    struct pcap_pkthdr h;
    memset(&h, 0, sizeof h);
    h.ts.tv_sec = (time_t)(time_ns / 1000000000u);
    h.ts.tv_usec = (suseconds_t)(time_ns % 1000000000u);
    h.caplen = h.len = (bpf_u_int32)len;
    errno = 0;
    pcap_dump((u_char *)w->dump, &h, w->packet);
    note_error(w, false);
}

/* The tag of a request or completion, 0 if there is none or it is unknown. */
static unsigned tag_of(dxpu_bytes tlp)
{
    dxpu_tlp t;
    return dxpu_tlp_decode_header(tlp, &t) == DXPU_OK ? t.tag : 0u;
}

int dxpu_pcap_write_tlp(dxpu_pcap_writer *w, uint64_t time_ns, dxpu_bytes tlp)
{
    static const uint8_t from[4] = { 10, 0, 0, 1 }, to[4] = { 10, 0, 0, 2 };
    enum { HEADERS = DXPU_BYTES_ETHERNET + DXPU_BYTES_IP4 + DXPU_BYTES_UDP };
    uint8_t *p = w->packet;
    size_t len = DXPU_PCAP_NETTLP_BYTES + tlp.len;
    unsigned port = DXPU_PCAP_NETTLP_PORT + (tag_of(tlp) & 0xffu);
    if (tlp.len < 1 || tlp.len > DATAGRAM_MAX_BYTES)
        return DXPU_E_ARG;
    put_ether(p, DXPU_BYTES_TYPE_IP4);
    dxpu_bytes_put_ip4(p + DXPU_BYTES_ETHERNET, 0, from, to, DXPU_BYTES_UDP + len);
    dxpu_bytes_put_udp(p + DXPU_BYTES_ETHERNET + DXPU_BYTES_IP4, port, port, len);
    dxpu_put_be16(p + HEADERS, w->sequence++);
    dxpu_put_be32(p + HEADERS + 2, (uint32_t)time_ns);
    memcpy(p + HEADERS + DXPU_PCAP_NETTLP_BYTES, tlp.ptr, tlp.len);
    dump(w, time_ns, HEADERS + len);
    return DXPU_OK;
}

int dxpu_pcap_write_frame(dxpu_pcap_writer *w, uint64_t time_ns, const struct sockaddr *from,
                          const struct sockaddr *to, dxpu_bytes frame)
{
    uint8_t *p = w->packet, *ip = p + DXPU_BYTES_ETHERNET;
    size_t headers = DXPU_BYTES_ETHERNET + DXPU_BYTES_UDP;
    if (frame.len < 1 || frame.len > DATAGRAM_MAX_BYTES || from->sa_family != to->sa_family)
        return DXPU_E_ARG;
    if (from->sa_family == AF_INET) {
        struct sockaddr_in a, b;
        memcpy(&a, from, sizeof a);
        memcpy(&b, to, sizeof b);
        headers += DXPU_BYTES_IP4;
        put_ether(p, DXPU_BYTES_TYPE_IP4);
        memcpy(p + headers, frame.ptr, frame.len);
        dxpu_bytes_put_ip4(ip, 0, &a.sin_addr, &b.sin_addr, DXPU_BYTES_UDP + frame.len);
        dxpu_bytes_put_udp(ip + DXPU_BYTES_IP4, ntohs(a.sin_port), ntohs(b.sin_port), frame.len);
    } else if (from->sa_family == AF_INET6) {
        struct sockaddr_in6 a, b;
        memcpy(&a, from, sizeof a);
        memcpy(&b, to, sizeof b);
        headers += DXPU_BYTES_IP6;
        put_ether(p, DXPU_BYTES_TYPE_IP6);
        memcpy(p + headers, frame.ptr, frame.len);
        dxpu_bytes_put_ip6(ip, 0, &a.sin6_addr, &b.sin6_addr, DXPU_BYTES_UDP + frame.len);
        dxpu_bytes_put_udp(ip + DXPU_BYTES_IP6, ntohs(a.sin6_port), ntohs(b.sin6_port), frame.len);
        /* which may not be left out there */
        dxpu_bytes_seal_udp(ip + DXPU_BYTES_IP6, ip + DXPU_BYTES_IP6_FROM, 32);
    } else {
        return DXPU_E_ARG;
    }
    dump(w, time_ns, headers + frame.len);
    return DXPU_OK;
}
