/* dxpu_af_xdp_wire.c - headers of UDP/IPv4 and IPv6, and the XDP program; see dxpu_af_xdp.h
   SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu_af_xdp.h"
#include "dxpu_bytes.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <stddef.h>

enum { /* offsets into a frame */
       IP = DXPU_BYTES_ETHERNET,
       UDP4 = IP + DXPU_BYTES_IP4,
       UDP6 = IP + DXPU_BYTES_IP6
};

/* ==== Building ================================================================================ */

size_t dxpu_xdp_header_bytes(int family)
{
    return family == AF_INET6 ? DXPU_XDP_HEADERS_6 : DXPU_XDP_HEADERS_4;
}

void dxpu_xdp_build(uint8_t *frame, const dxpu_xdp_way *way, size_t len)
{
    const struct sockaddr_in *from = &way->from.v4, *to = &way->to.v4;
    const struct sockaddr_in6 *from6 = &way->from.v6, *to6 = &way->to.v6;
    bool six = way->to.any.sa_family == AF_INET6;
    uint8_t *ip = frame + IP;
    memcpy(frame + DXPU_BYTES_ETHERNET_TO, way->to_mac, DXPU_XDP_MAC_BYTES);
    memcpy(frame + DXPU_BYTES_ETHERNET_FROM, way->from_mac, DXPU_XDP_MAC_BYTES);
    dxpu_put_be16(frame + DXPU_BYTES_ETHERNET_TYPE,
                  six ? DXPU_BYTES_TYPE_IP6 : DXPU_BYTES_TYPE_IP4);
    if (six) {
        dxpu_bytes_put_ip6(ip, way->ecn, &from6->sin6_addr, &to6->sin6_addr, DXPU_BYTES_UDP + len);
        dxpu_bytes_put_udp(frame + UDP6, ntohs(from6->sin6_port), ntohs(to6->sin6_port), len);
        dxpu_bytes_seal_udp(frame + UDP6, ip + DXPU_BYTES_IP6_FROM, 32);
    } else {
        dxpu_bytes_put_ip4(ip, way->ecn, &from->sin_addr, &to->sin_addr, DXPU_BYTES_UDP + len);
        dxpu_bytes_put_udp(frame + UDP4, ntohs(from->sin_port), ntohs(to->sin_port), len);
        dxpu_bytes_seal_udp(frame + UDP4, ip + DXPU_BYTES_IP4_FROM, 8);
    }
}

/* ==== Parsing =================================================================================
   Every length is compared with what is left before it is used. */

/* The UDP part: the IP payload has `room` bytes, the frame at least DXPU_BYTES_UDP there. */
static int parse_udp(const dxpu_xdp_receiver *r, const uint8_t *udp, size_t room, bool optional,
                     const uint8_t *addresses, size_t address_bytes, dxpu_xdp_datagram *d)
{
    size_t len = dxpu_get_be16(udp + DXPU_BYTES_UDP_LENGTH);
    uint16_t field;
    uint64_t pseudo;
    if (len < DXPU_BYTES_UDP || len > room)
        return DXPU_XDP_LENGTH;
    memcpy(&field, udp + DXPU_BYTES_UDP_CHECKSUM, sizeof field);
    pseudo = dxpu_bytes_pseudo(addresses, address_bytes, len);
    d->partial = false;
    if (!field && !optional)
        return DXPU_XDP_CHECKSUM;
    if (field && dxpu_bytes_fold(dxpu_bytes_sum(pseudo, udp, len)) != 0xffff) {
        d->partial = r->partial_ok && field == dxpu_bytes_fold(pseudo);
        if (!d->partial)
            return DXPU_XDP_CHECKSUM;
    }
    d->len = len - DXPU_BYTES_UDP;
    return DXPU_XDP_GOOD;
}

static bool is_local(const dxpu_xdp_receiver *r, int family, const uint8_t *to, const uint8_t *port,
                     unsigned *socket)
{
    for (unsigned i = 0; i < r->locals; i++) {
        const dxpu_xdp_address *a = &r->local[i].at;
        if (a->any.sa_family != family)
            continue;
        if (family == AF_INET
                ? memcmp(&a->v4.sin_port, port, 2) || memcmp(&a->v4.sin_addr, to, 4)
                : memcmp(&a->v6.sin6_port, port, 2) || memcmp(&a->v6.sin6_addr, to, 16))
            continue;
        *socket = r->local[i].socket;
        return true;
    }
    return false;
}

/* Could a neighbour have it?  Not loopback, multicast. */
static bool source_6(const uint8_t *a, const uint8_t *port)
{
    static const uint8_t zero[15]; /* :: and ::1 begin so */
    return a[0] != 0xff && dxpu_get_be16(port) && (memcmp(a, zero, sizeof zero) || a[15] > 1);
}

static int parse_4(const dxpu_xdp_receiver *r, const uint8_t *f, size_t len, dxpu_xdp_datagram *d)
{
    size_t total;
    int rc;
    if (len < DXPU_XDP_HEADERS_4)
        return DXPU_XDP_LENGTH;
    if (f[IP] != DXPU_BYTES_IP4_VERSION || f[IP + DXPU_BYTES_IP4_PROTOCOL] != IPPROTO_UDP)
        return DXPU_XDP_NOT_OURS;
    total = dxpu_get_be16(f + IP + DXPU_BYTES_IP4_LENGTH);
    if (total < DXPU_BYTES_IP4 + DXPU_BYTES_UDP || total > len - DXPU_BYTES_ETHERNET)
        return DXPU_XDP_LENGTH;
    if (dxpu_get_be16(f + IP + DXPU_BYTES_IP4_FRAGMENT) & DXPU_BYTES_FRAGMENT_MASK)
        return DXPU_XDP_FRAGMENT;
    if (!is_local(r, AF_INET, f + IP + DXPU_BYTES_IP4_TO, f + UDP4 + DXPU_BYTES_UDP_TO, &d->socket))
        return DXPU_XDP_NOT_OURS;
    if (dxpu_bytes_fold(dxpu_bytes_sum(0, f + IP, DXPU_BYTES_IP4)) != 0xffff)
        return DXPU_XDP_CHECKSUM;
    if (!dxpu_bytes_source_4(f + IP + DXPU_BYTES_IP4_FROM) ||
        !dxpu_get_be16(f + UDP4 + DXPU_BYTES_UDP_FROM))
        return DXPU_XDP_SOURCE;
    rc = parse_udp(r, f + UDP4, total - DXPU_BYTES_IP4, true, f + IP + DXPU_BYTES_IP4_FROM, 8, d);
    if (rc != DXPU_XDP_GOOD)
        return rc;
    d->offset = DXPU_XDP_HEADERS_4;
    d->flags =
        (f[IP + DXPU_BYTES_IP4_TOS] & DXPU_BYTES_ECN_CE) == DXPU_BYTES_ECN_CE ? DXPU_RX_ECN_CE : 0u;
    memset(&d->from, 0, sizeof d->from);
    d->from.v4.sin_family = AF_INET;
    memcpy(&d->from.v4.sin_addr, f + IP + DXPU_BYTES_IP4_FROM, sizeof d->from.v4.sin_addr);
    memcpy(&d->from.v4.sin_port, f + UDP4 + DXPU_BYTES_UDP_FROM, sizeof d->from.v4.sin_port);
    return DXPU_XDP_GOOD;
}

static int parse_6(const dxpu_xdp_receiver *r, const uint8_t *f, size_t len, dxpu_xdp_datagram *d)
{
    size_t payload;
    int rc;
    if (len < DXPU_XDP_HEADERS_6)
        return DXPU_XDP_LENGTH;
    if (f[IP] >> 4 != 6 ||
        f[IP + DXPU_BYTES_IP6_PROTOCOL] != IPPROTO_UDP) /* extension headers: fragments, too */
        return DXPU_XDP_NOT_OURS;
    payload = dxpu_get_be16(f + IP + DXPU_BYTES_IP6_LENGTH);
    if (payload > len - UDP6) /* too short for UDP is seen by parse_udp() */
        return DXPU_XDP_LENGTH;
    if (!is_local(r, AF_INET6, f + IP + DXPU_BYTES_IP6_TO, f + UDP6 + DXPU_BYTES_UDP_TO,
                  &d->socket))
        return DXPU_XDP_NOT_OURS;
    if (!source_6(f + IP + DXPU_BYTES_IP6_FROM, f + UDP6 + DXPU_BYTES_UDP_FROM))
        return DXPU_XDP_SOURCE;
    rc = parse_udp(r, f + UDP6, payload, false, f + IP + DXPU_BYTES_IP6_FROM, 32, d);
    if (rc != DXPU_XDP_GOOD)
        return rc;
    d->offset = DXPU_XDP_HEADERS_6;
    d->flags = (f[IP + 1] >> 4 & DXPU_BYTES_ECN_CE) == DXPU_BYTES_ECN_CE ? DXPU_RX_ECN_CE : 0u;
    memset(&d->from, 0, sizeof d->from);
    d->from.v6.sin6_family = AF_INET6;
    memcpy(&d->from.v6.sin6_addr, f + IP + DXPU_BYTES_IP6_FROM, sizeof d->from.v6.sin6_addr);
    memcpy(&d->from.v6.sin6_port, f + UDP6 + DXPU_BYTES_UDP_FROM, sizeof d->from.v6.sin6_port);
    if (IN6_IS_ADDR_LINKLOCAL(&d->from.v6.sin6_addr))
        d->from.v6.sin6_scope_id = r->scope;
    return DXPU_XDP_GOOD;
}

int dxpu_xdp_parse(const dxpu_xdp_receiver *r, const uint8_t *frame, size_t len,
                   dxpu_xdp_datagram *out)
{
    dxpu_xdp_datagram d;
    int rc = DXPU_XDP_NOT_OURS;
    if (len < DXPU_BYTES_ETHERNET)
        return DXPU_XDP_LENGTH;
    if (dxpu_get_be16(frame + DXPU_BYTES_ETHERNET_TYPE) == DXPU_BYTES_TYPE_IP4)
        rc = parse_4(r, frame, len, &d);
    else if (dxpu_get_be16(frame + DXPU_BYTES_ETHERNET_TYPE) == DXPU_BYTES_TYPE_IP6)
        rc = parse_6(r, frame, len, &d);
    if (rc == DXPU_XDP_GOOD)
        *out = d;
    return rc;
}

/* ==== The XDP program =========================================================================
   Written as instructions, so that no compiler for BPF is needed.  A jump that is not resolved yet
   has one of the labels as its offset; land() resolves it. */

enum { TO_PASS = -1, TO_REDIRECT = -2, TO_NEXT = -3, TO_IP6 = -4 };
enum { FRAME_MAX = DXPU_BYTES_ETHERNET + DXPU_XDP_PACKET_MAX };

typedef struct program {
    struct bpf_insn *insn;
    unsigned count;
} program;

static void put(program *p, unsigned code, unsigned dst, unsigned src, int off, int32_t imm)
{
    struct bpf_insn *i = &p->insn[p->count++];
    i->code = (uint8_t)code;
    i->dst_reg = (uint8_t)(dst & 0xf);
    i->src_reg = (uint8_t)(src & 0xf);
    i->off = (int16_t)off;
    i->imm = imm;
}

static void load(program *p, unsigned size, unsigned dst, unsigned src, int off)
{
    put(p, BPF_LDX | BPF_MEM | size, dst, src, off, 0);
}

/* 32 bits are compared: an immediate of 64 would be extended by its sign. */
static void jump_if(program *p, unsigned condition, unsigned reg, int32_t value, int label)
{
    put(p, BPF_JMP32 | condition | BPF_K, reg, 0, label, value);
}

static void land(program *p, int label)
{
    for (unsigned i = 0; i < p->count; i++) {
        if (p->insn[i].off == label)
            p->insn[i].off = (int16_t)(p->count - i - 1);
    }
}

/* To the kernel unless r2 + bytes <= r3, the end of the packet. */
static void want_bytes(program *p, int bytes)
{
    put(p, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_4, BPF_REG_2, 0, 0);
    put(p, BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_4, 0, 0, bytes);
    put(p, BPF_JMP | BPF_JGT | BPF_X, BPF_REG_4, BPF_REG_3, TO_PASS, 0);
}

/* Two or four bytes of a packet as a load of the program sees them. */
static int32_t seen(const void *bytes, size_t n)
{
    uint16_t half;
    int32_t word;
    if (n == sizeof half) {
        memcpy(&half, bytes, sizeof half);
        return half;
    }
    memcpy(&word, bytes, sizeof word);
    return word;
}

static void filter_4(program *p, const dxpu_xdp_local *local, unsigned locals, unsigned queues)
{
    const uint8_t fragment[2] = { DXPU_BYTES_FRAGMENT_MASK >> 8, DXPU_BYTES_FRAGMENT_MASK & 0xff };
    load(p, BPF_B, BPF_REG_5, BPF_REG_2, IP);
    jump_if(p, BPF_JNE, BPF_REG_5, DXPU_BYTES_IP4_VERSION, TO_PASS);
    load(p, BPF_B, BPF_REG_5, BPF_REG_2, IP + DXPU_BYTES_IP4_PROTOCOL);
    jump_if(p, BPF_JNE, BPF_REG_5, IPPROTO_UDP, TO_PASS);
    load(p, BPF_H, BPF_REG_5, BPF_REG_2, IP + DXPU_BYTES_IP4_FRAGMENT);
    put(p, BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_5, 0, 0, seen(fragment, 2));
    jump_if(p, BPF_JNE, BPF_REG_5, 0, TO_PASS);
    load(p, BPF_W, BPF_REG_5, BPF_REG_2, IP + DXPU_BYTES_IP4_TO);
    load(p, BPF_H, BPF_REG_7, BPF_REG_2, UDP4 + DXPU_BYTES_UDP_TO);
    for (unsigned i = 0; i < locals; i++) {
        const struct sockaddr_in *a = &local[i].at.v4;
        if (a->sin_family != AF_INET)
            continue;
        jump_if(p, BPF_JNE, BPF_REG_5, seen(&a->sin_addr, 4), TO_NEXT);
        put(p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_8, 0, 0, (int)(local[i].loop * queues));
        jump_if(p, BPF_JEQ, BPF_REG_7, seen(&a->sin_port, 2), TO_REDIRECT);
        land(p, TO_NEXT);
    }
    put(p, BPF_JMP | BPF_JA, 0, 0, TO_PASS, 0);
}

static void filter_6(program *p, const dxpu_xdp_local *local, unsigned locals, unsigned queues)
{
    static const unsigned word[4] = { BPF_REG_0, BPF_REG_4, BPF_REG_5, BPF_REG_7 };
    want_bytes(p, DXPU_XDP_HEADERS_6);
    load(p, BPF_B, BPF_REG_5, BPF_REG_2, IP);
    put(p, BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_5, 0, 0, 0xf0);
    jump_if(p, BPF_JNE, BPF_REG_5, 0x60, TO_PASS);
    load(p, BPF_B, BPF_REG_5, BPF_REG_2, IP + DXPU_BYTES_IP6_PROTOCOL);
    jump_if(p, BPF_JNE, BPF_REG_5, IPPROTO_UDP, TO_PASS);
    for (int w = 0; w < 4; w++)
        load(p, BPF_W, word[w], BPF_REG_2, IP + DXPU_BYTES_IP6_TO + 4 * w);
    load(p, BPF_H, BPF_REG_9, BPF_REG_2, UDP6 + DXPU_BYTES_UDP_TO);
    for (unsigned i = 0; i < locals; i++) {
        const struct sockaddr_in6 *a = &local[i].at.v6;
        if (a->sin6_family != AF_INET6)
            continue;
        for (size_t w = 0; w < 4; w++)
            jump_if(p, BPF_JNE, word[w], seen(a->sin6_addr.s6_addr + 4 * w, 4), TO_NEXT);
        put(p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_8, 0, 0, (int)(local[i].loop * queues));
        jump_if(p, BPF_JEQ, BPF_REG_9, seen(&a->sin6_port, 2), TO_REDIRECT);
        land(p, TO_NEXT);
    }
    put(p, BPF_JMP | BPF_JA, 0, 0, TO_PASS, 0);
}

unsigned dxpu_xdp_filter(const dxpu_xdp_local *local, unsigned locals, unsigned queues, int map_fd,
                         struct bpf_insn *out)
{
    static const uint8_t type_4[2] = { DXPU_BYTES_TYPE_IP4 >> 8, DXPU_BYTES_TYPE_IP4 & 0xff };
    static const uint8_t type_6[2] = { DXPU_BYTES_TYPE_IP6 >> 8, DXPU_BYTES_TYPE_IP6 & 0xff };
    program p = { out, 0 };
    put(&p, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_6, BPF_REG_1, 0, 0);
    load(&p, BPF_W, BPF_REG_2, BPF_REG_1, offsetof(struct xdp_md, data));
    load(&p, BPF_W, BPF_REG_3, BPF_REG_1, offsetof(struct xdp_md, data_end));
    /* longer than a buffer: the kernel's socket can take it */
    put(&p, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_4, BPF_REG_2, 0, 0);
    put(&p, BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_4, 0, 0, FRAME_MAX);
    put(&p, BPF_JMP | BPF_JGT | BPF_X, BPF_REG_3, BPF_REG_4, TO_PASS, 0);
    want_bytes(&p, DXPU_XDP_HEADERS_4);
    load(&p, BPF_H, BPF_REG_5, BPF_REG_2, DXPU_BYTES_ETHERNET_TYPE);
    jump_if(&p, BPF_JNE, BPF_REG_5, seen(type_4, 2), TO_IP6);
    filter_4(&p, local, locals, queues);
    land(&p, TO_IP6);
    jump_if(&p, BPF_JNE, BPF_REG_5, seen(type_6, 2), TO_PASS);
    filter_6(&p, local, locals, queues);
    land(&p, TO_REDIRECT);
    load(&p, BPF_W, BPF_REG_2, BPF_REG_6, offsetof(struct xdp_md, rx_queue_index));
    jump_if(&p, BPF_JGE, BPF_REG_2, (int32_t)queues, TO_PASS);
    put(&p, BPF_ALU64 | BPF_ADD | BPF_X, BPF_REG_2, BPF_REG_8, 0, 0);
    put(&p, BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map_fd);
    put(&p, 0, 0, 0, 0, 0);                                          /* upper half */
    put(&p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS); /* no socket on that queue */
    put(&p, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map);
    put(&p, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    land(&p, TO_PASS);
    put(&p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, XDP_PASS);
    put(&p, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    return p.count;
}
