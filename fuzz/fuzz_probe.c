/* Fuzz target: a device that answers what it likes when a host sizes its registers before a guest
   sees it, or places it as an operating system does.  Each request is one that PCIe allows, both
   end, and the sizes that were found are looked at by the switch.
   libFuzzer: -max_len=1024 */
#include "probe.h"
#include "enumerate.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ANSWERS_MAX = 3000, TLP_ROOM = 64 };

/* Its completion, in data's four bytes; false: none comes. */
static bool answer(input *in, const dxpu_tlp *request, uint8_t data[4], dxpu_tlp *cpl)
{
    static const uint8_t status[] = { DXPU_CPL_SC, DXPU_CPL_SC, DXPU_CPL_SC,  DXPU_CPL_SC,
                                      DXPU_CPL_SC, DXPU_CPL_UR, DXPU_CPL_CRS, DXPU_CPL_CA };
    uint8_t how = next(in), tlp[TLP_ROOM];
    size_t len = 0;
    bool read = request->type == DXPU_TLP_CFGRD0;
    must(dxpu_tlp_encode(request, tlp, sizeof tlp, &len) == DXPU_OK);
    dxpu_tlp_completion(request, request->target, status[how & 7], cpl);
    for (unsigned i = 0; i < 4; i++)
        data[i] = (how & 8) ? next(in) : (uint8_t)((how & 0x10) ? 0xff : 0);
    cpl->payload.ptr = read && cpl->status == DXPU_CPL_SC ? data : NULL;
    cpl->payload.len = cpl->payload.ptr ? 4 : 0;
    if (how & 0x20) { /* a liar */
        cpl->payload.ptr = how & 0x40 ? data : NULL;
        cpl->payload.len = how & 0x40 ? 4 : 0;
    }
    return !(how == 0xff && in->left);
}

static void size_it(input *in)
{
    static dxpu_vswitch vs;
    dxpu_vswitch_config cfg;
    dxpu_vswitch_bar bars[PROBE_BARS_MAX];
    uint8_t data[4], back[4];
    dxpu_tlp t, cpl;
    probe p;
    unsigned n = 0;
    probe_start(&p);
    while (probe_request(&p, &t, data)) {
        bool comes = answer(in, &t, back, &cpl);
        p.wait = false;
        p.again = comes && n == 40 && (back[0] & 1);
        probe_answer(&p, comes ? &cpl : NULL);
        must(++n < ANSWERS_MAX);
    }
    n = probe_bars(&p, bars);
    must(n <= PROBE_BARS_MAX);
    for (unsigned i = 0; i < n; i++)
        must(bars[i].bytes != 0);
    dxpu_vswitch_config_default(&cfg);
    must(dxpu_vswitch_init(&vs, &cfg) == DXPU_OK);
    (void)dxpu_vswitch_fits(&vs, 1, bars, n, NULL);
}

static void place_it(input *in)
{
    uint8_t data[4], back[4];
    dxpu_tlp t, cpl;
    enumerate e;
    unsigned n = 0;
    enumerate_start(&e, 0x40000000, 128u << next(in) % 6);
    while (enumerate_request(&e, &t, data)) {
        if (!answer(in, &t, back, &cpl))
            return;                                            /* its owner waits, and gives up */
        enumerate_answer(&e, &cpl, (uint64_t)n * 1000000000u); /* a second each */
        must(++n < ANSWERS_MAX);
    }
    must(enumerate_done(&e) != (e.why != NULL));
    must(!enumerate_done(&e) || (e.mps_bytes >= 128 && e.mps_bytes <= 4096));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    if (next(&in) & 1)
        place_it(&in);
    else
        size_it(&in);
    return 0;
}
