/* Fuzz target: datagrams of NetTLP and RawUDP.  Steps of the input: a kind, a length, that many
   bytes.  What is read lies in the datagram, a TLP that was put together has the bytes that its
   header says, and what is understood is made again as it was.
   libFuzzer: -max_len=8192 */
#include "dxpu_foreign.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void nettlp(dxpu_bytes d)
{
    uint8_t head[DXPU_NETTLP_HEAD_BYTES];
    dxpu_nettlp n;
    if (dxpu_nettlp_decode(d, &n) != DXPU_OK)
        return;
    must(n.tlp.ptr == d.ptr + sizeof head && n.tlp.len == d.len - sizeof head);
    must(n.tlp.len <= DXPU_TLP_MAX_BYTES);
    dxpu_nettlp_head(head, n.sequence, n.stamp);
    must(!memcmp(head, d.ptr, sizeof head));
}

static void question(dxpu_bytes d)
{
    uint8_t again[DXPU_NETTLP_QUESTION_BYTES];
    bool big;
    int what = dxpu_nettlp_question_decode(d, &big);
    if (what < 0)
        return;
    dxpu_nettlp_question(again, (unsigned)what, big);
    must(d.len == sizeof again && !memcmp(again, d.ptr, d.len));
}

static void answer(dxpu_bytes d, unsigned what, bool big)
{
    uint8_t again[DXPU_NETTLP_ANSWER_MAX];
    dxpu_nettlp_answer a;
    memset(&a, 0, sizeof a);
    if (dxpu_nettlp_answer_decode(d, what, big, &a) != DXPU_OK)
        return;
    must(dxpu_nettlp_answer_encode(again, &a, big) == d.len && !memcmp(again, d.ptr, d.len));
}

static void raw(dxpu_rawtlp_reader *r, dxpu_bytes d)
{
    uint64_t before = r->count.tlps, count = 0;
    dxpu_tlp_shape s;
    dxpu_bytes tlp;
    dxpu_rawtlp_arrived(r, d);
    while (dxpu_rawtlp_next(r, &tlp)) {
        count++;
        must(dxpu_tlp_measure(tlp, &s) == DXPU_OK && s.total_bytes == tlp.len);
    }
    must(r->count.tlps == before + count && count * 12 <= d.len + sizeof r->tlp);
    must(r->bytes <= sizeof r->tlp && (r->open || !r->bytes));
}

static void to_card(dxpu_bytes tlp)
{
    uint8_t out[DXPU_RAWTLP_SEND_MAX];
    size_t bytes = dxpu_rawtlp_encode(out, tlp);
    must(bytes == 0 || (bytes == tlp.len * 2 && tlp.len <= DXPU_RAWTLP_TLP_MAX));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static dxpu_rawtlp_reader r[2];
    input in = { data, size };
    dxpu_rawtlp_reader_init(&r[0], false);
    dxpu_rawtlp_reader_init(&r[1], true);
    while (in.left) {
        uint8_t kind = next(&in);
        size_t bytes = next(&in) * (size_t)(kind & 0x80 ? 32 : 4);
        dxpu_bytes d;
        d.ptr = next_piece(&in, &bytes);
        d.len = bytes;
        switch (kind & 7) {
        case 0:
            nettlp(d);
            break;
        case 1:
            question(d);
            break;
        case 2:
            answer(d, kind >> 3 & 3, (kind & 0x20) != 0);
            break;
        case 3:
            to_card(d);
            break;
        default:
            raw(&r[kind & 1], d);
            break;
        }
    }
    return 0;
}
