/* dxpu_foreign.c - see dxpu_foreign.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 NetTLP: TLPs   2 NetTLP: messages   3 RawUDP */
#include "dxpu_foreign.h"

/* ==== 1  NetTLP: TLPs ========================================================================= */

enum { TLP_MIN = 12 }; /* a header of three dwords */

void dxpu_nettlp_head(uint8_t out[DXPU_NETTLP_HEAD_BYTES], uint16_t sequence, uint32_t stamp)
{
    dxpu_put_be16(out, sequence);
    dxpu_put_be32(out + 2, stamp);
}

int dxpu_nettlp_decode(dxpu_bytes datagram, dxpu_nettlp *out)
{
    if (datagram.len < DXPU_NETTLP_HEAD_BYTES + TLP_MIN)
        return DXPU_E_SHORT;
    if (datagram.len > DXPU_NETTLP_DATAGRAM_MAX)
        return DXPU_E_ARG;
    out->sequence = dxpu_get_be16(datagram.ptr);
    out->stamp = dxpu_get_be32(datagram.ptr + 2);
    out->tlp.ptr = datagram.ptr + DXPU_NETTLP_HEAD_BYTES;
    out->tlp.len = datagram.len - DXPU_NETTLP_HEAD_BYTES;
    return DXPU_OK;
}

/* ==== 2  NetTLP: messages ===================================================================== */

enum { VECTOR_BYTES = 12 };

static void nettlp_put32(uint8_t *p, uint32_t v, bool big)
{
    if (big)
        dxpu_put_be32(p, v);
    else
        dxpu_put_le32(p, v);
}

static uint32_t nettlp_get32(const uint8_t *p, bool big)
{
    return big ? dxpu_get_be32(p) : dxpu_get_le32(p);
}

static void nettlp_put64(uint8_t *p, uint64_t v, bool big)
{
    if (big)
        dxpu_put_be64(p, v);
    else
        dxpu_put_le64(p, v);
}

static uint64_t nettlp_get64(const uint8_t *p, bool big)
{
    return big ? dxpu_get_be64(p) : dxpu_get_le64(p);
}

void dxpu_nettlp_question(uint8_t out[DXPU_NETTLP_QUESTION_BYTES], unsigned what, bool big)
{
    nettlp_put32(out, what, big);
}

int dxpu_nettlp_question_decode(dxpu_bytes datagram, bool *big)
{
    uint32_t what;
    if (datagram.len != DXPU_NETTLP_QUESTION_BYTES)
        return DXPU_E_ARG;
    what = dxpu_get_le32(datagram.ptr);
    *big = what > 0xffff; /* all that may be asked for are small numbers */
    if (*big)
        what = dxpu_get_be32(datagram.ptr);
    return what >= DXPU_NETTLP_BAR4 && what <= DXPU_NETTLP_TABLE ? (int)what : DXPU_E_ARG;
}

size_t dxpu_nettlp_answer_encode(uint8_t out[DXPU_NETTLP_ANSWER_MAX], const dxpu_nettlp_answer *a,
                                 bool big)
{
    if (a->what == DXPU_NETTLP_BAR4) {
        nettlp_put64(out, a->bar4, big);
        return 8;
    }
    if (a->what == DXPU_NETTLP_DEVICE) {
        if (big)
            dxpu_put_be16(out, a->device);
        else
            dxpu_put_le16(out, a->device);
        return 2;
    }
    for (unsigned i = 0; i < DXPU_NETTLP_VECTORS; i++) {
        nettlp_put64(out + (size_t)i * VECTOR_BYTES, a->table[i].address, big);
        nettlp_put32(out + (size_t)i * VECTOR_BYTES + 8, a->table[i].data, big);
    }
    return DXPU_NETTLP_ANSWER_MAX;
}

int dxpu_nettlp_answer_decode(dxpu_bytes datagram, unsigned what, bool big, dxpu_nettlp_answer *a)
{
    const uint8_t *p = datagram.ptr;
    size_t bytes = what == DXPU_NETTLP_BAR4     ? 8
                   : what == DXPU_NETTLP_DEVICE ? 2
                   : what == DXPU_NETTLP_TABLE  ? DXPU_NETTLP_ANSWER_MAX
                                                : 0;
    if (!bytes || datagram.len != bytes)
        return DXPU_E_ARG;
    a->what = what;
    if (what == DXPU_NETTLP_BAR4)
        a->bar4 = nettlp_get64(p, big);
    else if (what == DXPU_NETTLP_DEVICE)
        a->device = big ? dxpu_get_be16(p) : dxpu_get_le16(p);
    for (unsigned i = 0; what == DXPU_NETTLP_TABLE && i < DXPU_NETTLP_VECTORS; i++) {
        a->table[i].address = nettlp_get64(p + (size_t)i * VECTOR_BYTES, big);
        a->table[i].data = nettlp_get32(p + (size_t)i * VECTOR_BYTES + 8, big);
    }
    return DXPU_OK;
}

/* ==== 3  RawUDP =============================================================================== */

#define TO_CARD          0x77000000u
#define TO_CARD_LAST     0x77040000u
#define TO_CARD_LOOPBACK 0x77020000u
#define STATUS_MASK      0xf0000000u
#define STATUS_MARK      0xe0000000u
#define INACTIVE_STATUS  0xeffffff3u
#define INACTIVE_FOLLOWS 0xdeceffffu

enum { BLOCK_DWORDS = 7, NO_TLP = 3, LAST = 4, FIRST = 8 }; /* bits of a nibble */

size_t dxpu_rawtlp_encode(uint8_t out[DXPU_RAWTLP_SEND_MAX], dxpu_bytes tlp)
{
    if (tlp.len < TLP_MIN || tlp.len % 4 || tlp.len > DXPU_RAWTLP_TLP_MAX)
        return 0;
    for (size_t at = 0; at < tlp.len; at += 4) {
        memcpy(out + at * 2, tlp.ptr + at, 4);
        dxpu_put_le32(out + at * 2 + 4, at + 4 == tlp.len ? TO_CARD_LAST : TO_CARD);
    }
    return tlp.len * 2;
}

void dxpu_rawtlp_greeting(uint8_t out[DXPU_RAWTLP_GREETING_BYTES])
{
    memset(out, 0, 4);
    dxpu_put_le32(out + 4, TO_CARD_LOOPBACK);
}

/* What there is of a TLP is of no use. */
static void tear(dxpu_rawtlp_reader *r)
{
    r->count.torn += r->open;
    r->open = false;
    r->bytes = 0;
}

void dxpu_rawtlp_reader_init(dxpu_rawtlp_reader *r, bool spans)
{
    memset(r, 0, sizeof *r);
    r->spans = spans;
}

void dxpu_rawtlp_arrived(dxpu_rawtlp_reader *r, dxpu_bytes datagram)
{
    if (!r->spans)
        tear(r);
    r->in = datagram;
    r->left = 0;
}

static void reader_skip(dxpu_rawtlp_reader *r, size_t bytes)
{
    r->in.ptr += bytes;
    r->in.len -= bytes;
}

/* The next block of the datagram, whatever is between two.  False: there is no further one. */
static bool find_block(dxpu_rawtlp_reader *r)
{
    while (r->in.len >= 4) {
        r->status = dxpu_get_le32(r->in.ptr);
        if (r->status == INACTIVE_STATUS && r->in.len >= 8 &&
            dxpu_get_le32(r->in.ptr + 4) == INACTIVE_FOLLOWS) {
            reader_skip(r, 8);
        } else if ((r->status & STATUS_MASK) != STATUS_MARK) {
            reader_skip(r, 4); /* filler */
        } else if (r->in.len < DXPU_RAWTLP_BLOCK_BYTES) {
            r->count.blocks_cut++;
            tear(r);
            return false;
        } else {
            reader_skip(r, 4);
            r->left = BLOCK_DWORDS;
            return true;
        }
    }
    return false;
}

/* The last dword is here: is it a whole TLP? */
static bool is_whole(const dxpu_rawtlp_reader *r)
{
    dxpu_bytes all = { r->tlp, r->bytes };
    dxpu_tlp_shape s;
    return dxpu_tlp_measure(all, &s) == DXPU_OK && s.total_bytes == r->bytes;
}

/* One dword of a block.  True: it ends a TLP. */
static bool add_dword(dxpu_rawtlp_reader *r, unsigned flags, const uint8_t *dword)
{
    if (flags & NO_TLP)
        return false;
    if (flags & FIRST) {
        tear(r);
        r->open = true;
    } else if (!r->open) {
        r->count.torn += (flags & LAST) != 0;
        return false;
    }
    if (r->bytes + 4 > sizeof r->tlp) {
        tear(r);
        return false;
    }
    memcpy(r->tlp + r->bytes, dword, 4);
    r->bytes += 4;
    if (!(flags & LAST))
        return false;
    if (!is_whole(r)) {
        tear(r);
        return false;
    }
    r->open = false;
    return true;
}

bool dxpu_rawtlp_next(dxpu_rawtlp_reader *r, dxpu_bytes *tlp)
{
    while (r->left || find_block(r)) {
        unsigned flags = r->status & 0xf;
        const uint8_t *dword = r->in.ptr;
        r->status >>= 4;
        r->left--;
        reader_skip(r, 4);
        if (add_dword(r, flags, dword)) {
            tlp->ptr = r->tlp;
            tlp->len = r->bytes;
            r->bytes = 0;
            r->count.tlps++;
            return true;
        }
    }
    return false;
}
