/* Fuzz target: any bytes through the TLP decoders.
   What strict decoding accepts encodes to the same bytes, decodes header-only to the same fields,
   and measures to its whole length; what it refuses for its length alone is measured so.  What a
   receiver reads encodes to a TLP that is read the same.
   libFuzzer: -max_len=4200 */
#include "dxpu.h"
#include <stdlib.h>

#include "mutate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static bool same(dxpu_tlp a, dxpu_tlp b)
{
    uint8_t x[DXPU_PREFIXES_MAX * 4 + DXPU_TLP_MAX_BYTES], y[sizeof x];
    size_t nx = 0, ny = 0;
    if (dxpu_tlp_encode(&a, x, sizeof x, &nx) != DXPU_OK)
        return false;
    if (dxpu_tlp_encode(&b, y, sizeof y, &ny) != DXPU_OK)
        return false;
    return nx == ny && memcmp(x, y, nx) == 0;
}

/* A decoded request: its completion and the pieces of it are legal. */
static void check_completions(const dxpu_tlp *t)
{
    dxpu_tlp cpl;
    dxpu_cpl_split s;
    uint64_t at, bytes = 0;
    if (dxpu_tlp_class(t) != DXPU_NONPOSTED)
        return;
    dxpu_tlp_completion(t, 0x0100, DXPU_CPL_UR, &cpl);
    must(dxpu_tlp_check(&cpl) == DXPU_OK);
    dxpu_tlp_completion(t, 0x0100, DXPU_CPL_SC, &cpl);
    if (dxpu_cpl_split_start(&s, t, 64, 128) != DXPU_OK) {
        must(dxpu_tlp_check(&cpl) == DXPU_OK);
        return;
    }
    while (dxpu_cpl_split_next(&s, &cpl, &at)) {
        must(dxpu_tlp_check(&cpl) == DXPU_OK);
        bytes += cpl.length_dw * 4u;
    }
    must(t->at == 1 || bytes == t->length_dw * 4u);
}

static void check_accepted(dxpu_bytes in, const dxpu_tlp *t, const dxpu_tlp *header)
{
    uint8_t out[DXPU_PREFIXES_MAX * 4 + DXPU_TLP_MAX_BYTES];
    dxpu_tlp again, filled = *header;
    size_t len = 0;
    must(dxpu_tlp_encode(t, out, sizeof out, &len) == DXPU_OK);
    must(len == in.len && memcmp(out, in.ptr, len) == 0);
    in.ptr = out;
    must(dxpu_tlp_decode(in, &again) == DXPU_OK);
    must(same(*t, again));
    filled.digest = t->digest;
    must(same(*t, filled));
    check_completions(t);
}

/* strict: what the analyser says of the same bytes. */
static void check_received(const dxpu_tlp *t, int strict)
{
    uint8_t out[DXPU_PREFIXES_MAX * 4 + DXPU_TLP_MAX_BYTES];
    dxpu_bytes in = { out, 0 };
    dxpu_tlp again;
    must(dxpu_tlp_encode(t, out, sizeof out, &in.len) == DXPU_OK);
    must(dxpu_tlp_receive(in, &again) == DXPU_OK && same(*t, again));
    if (strict != DXPU_OK)
        check_completions(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dxpu_bytes in = { data, size };
    dxpu_tlp strict, header, received;
    dxpu_tlp_shape shape;
    int rs = dxpu_tlp_decode(in, &strict);
    int rh = dxpu_tlp_decode_header(in, &header);
    int rm = dxpu_tlp_measure(in, &shape);
    int rr = dxpu_tlp_receive(in, &received);
    if (rh == DXPU_OK) {
        must(rm == DXPU_OK && shape.head_bytes <= size);
        must(shape.type == header.type && shape.header_dw == header.header_dw);
        must(header.payload.len <= size - shape.head_bytes);
        must((rs == DXPU_E_TLP_SHORT) == (size < shape.total_bytes));
        must((rs == DXPU_E_TLP_LONG) == (size > shape.total_bytes));
        (void)dxpu_message_action(&header, size & 1);
        (void)dxpu_tlp_routing(&header);
    } else {
        must(rs == rh);
    }
    must(dxpu_tlp_ecrc_check(in) != DXPU_OK || rm == DXPU_OK);
    must(rs != DXPU_OK || rr == DXPU_OK);
    if (rr == DXPU_OK)
        check_received(&received, rs);
    if (rs == DXPU_OK) {
        must(size == shape.total_bytes);
        check_accepted(in, &strict, &header);
    }
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    return mutate_chance(&seed) % 2 ? mutate_tlp(data, size, max_size, &seed)
                                    : mutate_bytes(data, size, max_size, &seed);
}
