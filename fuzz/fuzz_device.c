/* Fuzz target: a hostile device and a hostile host at the guard of a slot.  The input is steps: an
   operation, a length in dwords, and that many dwords: a TLP to the device or of the device, or a
   link event (flags, base, length) that grants or revokes.  A naive oracle remembers all that
   the host said; whatever passes must be allowed by it, byte by byte.
   libFuzzer: -max_len=1024 */
#include <stdlib.h>
#include "dxpu.h"

#include "dxpu_guard.h"
#include "refusal.h"
#include "dxpu_windows.h"
#include "guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EVENTS = 200, ASKED = 200 };
enum { OP_DOWN, OP_UP, OP_GRANT, OP_REVOKE, OP_RESET, OP_CLEAR, OPS };

static struct {
    dxpu_event events[EVENTS];
    unsigned event_count;
    struct {
        uint16_t requester, tag;
        uint32_t left_dw;
        bool data;
    } asked[ASKED];
    unsigned asked_count;
    bool known[256], master[256];
    uint8_t bus;
} oracle;

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* What the last events that name an address say about it. */
static unsigned allowed_at(uint64_t address)
{
    unsigned access = 0;
    for (unsigned i = 0; i < oracle.event_count; i++) {
        const dxpu_event *e = &oracle.events[i];
        unsigned bits = (e->flags & DXPU_EVENT_READ ? DXPU_WINDOW_READ : 0u) |
                        (e->flags & DXPU_EVENT_WRITE ? DXPU_WINDOW_WRITE : 0u);
        if (address < e->base || address - e->base >= e->length)
            continue;
        access = e->type == DXPU_EVENT_DMA_GRANT ? access | bits : access & ~bits;
    }
    return access;
}

/* Every byte: what is allowed changes at the ends of ranges alone. */
static bool allowed(uint64_t first, uint64_t bytes, unsigned access)
{
    uint64_t last = first + (bytes - 1);
    bool all = last >= first && (allowed_at(first) & access) == access &&
               (allowed_at(last) & access) == access;
    for (unsigned i = 0; i < oracle.event_count && all; i++) {
        uint64_t ends[2] = { oracle.events[i].base,
                             oracle.events[i].base + oracle.events[i].length };
        for (unsigned k = 0; k < 2; k++) {
            if (ends[k] > first && ends[k] <= last)
                all = all && (allowed_at(ends[k]) & access) == access &&
                      (allowed_at(ends[k] - 1) & access) == access;
        }
    }
    return all;
}

static void remember(const dxpu_tlp *t)
{
    unsigned i = 0, function = t->target & 0xff;
    if (t->type == DXPU_TLP_CFGWR0) {
        oracle.bus = DXPU_BDF_BUS(t->target);
        oracle.known[function] = true;
        if (t->register_bytes == 4 && (t->first_be & 1) && !t->ep)
            oracle.master[function] = t->payload.ptr[0] & 4;
    }
    while (i < oracle.asked_count &&
           (oracle.asked[i].requester != t->requester || oracle.asked[i].tag != t->tag))
        i++;
    if (i == ASKED)
        return;
    oracle.asked_count += i == oracle.asked_count;
    oracle.asked[i].requester = t->requester;
    oracle.asked[i].tag = t->tag;
    oracle.asked[i].left_dw = t->length_dw;
    oracle.asked[i].data = true;
}

static void check_completion(const dxpu_tlp *t)
{
    for (unsigned i = 0; i < oracle.asked_count; i++) {
        if (oracle.asked[i].requester != t->requester || oracle.asked[i].tag != t->tag)
            continue;
        must(t->payload.len / 4 <= oracle.asked[i].left_dw && oracle.asked[i].data);
        oracle.asked[i].left_dw -= (uint32_t)(t->payload.len / 4);
        oracle.asked[i].data = t->type == DXPU_TLP_CPLD || t->type == DXPU_TLP_CPLDLK;
        return;
    }
    must(oracle.asked_count == ASKED); /* no such request */
}

static void check_passed(dxpu_bytes tlp)
{
    dxpu_tlp t;
    uint32_t offset = 0, bytes;
    unsigned access;
    must(dxpu_tlp_receive(tlp, &t) == DXPU_OK);
    if (dxpu_tlp_class(&t) == DXPU_COMPLETION) {
        check_completion(&t);
        return;
    }
    must(DXPU_BDF_BUS(t.requester) == oracle.bus && oracle.known[t.requester & 0xff]);
    must(t.at == 0 && (t.prefix_count == 0 || t.prefix[0] >> 24 != 0x91));
    if (t.type == DXPU_TLP_MSG || t.type == DXPU_TLP_MSGD) {
        unsigned action = dxpu_message_action(&t, DXPU_UPSTREAM);
        must(action == DXPU_MSG_FORWARD || action == DXPU_MSG_GATHER);
        return;
    }
    must(oracle.master[t.requester & 0xff]);
    bytes = t.length_dw * (t.type == DXPU_TLP_CAS ? 2u : 4u); /* of two operands, one place */
    access = t.type == DXPU_TLP_MRD ? DXPU_WINDOW_READ : DXPU_WINDOW_WRITE;
    if (t.type == DXPU_TLP_FETCHADD || t.type == DXPU_TLP_SWAP || t.type == DXPU_TLP_CAS)
        access = DXPU_WINDOW_READ | DXPU_WINDOW_WRITE;
    else
        dxpu_be_to_range(t.first_be, t.last_be, t.length_dw, &offset, &bytes);
    must(t.type == DXPU_TLP_MRD || t.payload.len == t.length_dw * 4u);
    must(allowed(t.address + offset, bytes ? bytes : 1, access));
}

static void change_windows(dxpu_guard *g, unsigned op, const uint8_t *p, size_t len)
{
    dxpu_event e;
    if (len < 20 || oracle.event_count == EVENTS)
        return;
    memset(&e, 0, sizeof e);
    e.type = op == OP_GRANT ? DXPU_EVENT_DMA_GRANT : DXPU_EVENT_DMA_REVOKE;
    e.flags = p[0];
    e.base = dxpu_get_be64(p + 4);
    e.length = dxpu_get_be64(p + 12);
    must(dxpu_guard_event(g, &e));
    if (e.length && e.base + (e.length - 1) >= e.base) /* others name no range */
        oracle.events[oracle.event_count++] = e;
}

static void step(dxpu_guard *g, unsigned op, dxpu_bytes b)
{
    dxpu_event reset = { DXPU_EVENT_HOT_RESET, DXPU_EVENT_ON, 0, 0, 0, 0, 0 };
    dxpu_tlp t;
    if (op == OP_DOWN && dxpu_tlp_receive(b, &t) == DXPU_OK) {
        dxpu_guard_down(g, &t);
        if (dxpu_tlp_class(&t) == DXPU_NONPOSTED)
            remember(&t);
    } else if (op == OP_UP) {
        uint64_t before = dxpu_guard_refused(g);
        unsigned verdict = dxpu_guard_up(g, b);
        must(verdict == DXPU_GUARD_PASS || verdict == DXPU_GUARD_ENDS ||
             verdict < DXPU_GUARD_REASON_COUNT);
        must(dxpu_guard_refused(g) == before + (verdict < DXPU_GUARD_REASON_COUNT));
        if (verdict == DXPU_GUARD_PASS)
            check_passed(b);
    } else if (op == OP_GRANT || op == OP_REVOKE) {
        change_windows(g, op, b.ptr, b.len);
    } else if (op == OP_RESET) {
        must(!dxpu_guard_event(g, &reset));
        memset(oracle.master, 0, sizeof oracle.master);
    } else if (op == OP_CLEAR) {
        dxpu_guard_clear(g);
        memset(&oracle, 0, sizeof oracle);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const dxpu_guard_allowed none = { false, false };
    dxpu_guard g;
    memset(&oracle, 0, sizeof oracle);
    guard_init(&g, &none);
    must(guard_begin(&g) == 0);
    while (size >= 2) {
        size_t len = (size_t)data[1] * 4 < size - 2 ? (size_t)data[1] * 4 : size - 2;
        uint8_t *copy = (uint8_t *)malloc(len ? len : 1); /* of its own: what is beyond is seen */
        dxpu_bytes b = { copy, len };
        must(copy != NULL);
        memcpy(copy, data + 2, len);
        step(&g, data[0] % OPS, b);
        free(copy);
        data += 2 + len;
        size -= 2 + len;
    }
    for (uint32_t i = 0; i < g.windows.count; i++)
        must(g.windows.at[i].first <= g.windows.at[i].last &&
             (i == 0 || g.windows.at[i - 1].last < g.windows.at[i].first));
    guard_end(&g);
    return 0;
}
