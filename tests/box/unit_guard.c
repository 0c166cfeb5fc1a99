/* unit_guard.c - what a hostile device may send: every illegal TLP beside the legal one
   SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dxpu_guard.h"
#include "guard.h"
#include "limit.h"
#include "refusal.h"
#include "windows.h"

enum { US = DXPU_BDF(5, 0, 0), THE_HOST = 0, EXPRESS_AT = 0x70 };
#define BASE UINT64_C(0x100000000) /* of 64 KB for both, then 64 KB to read, 64 KB to write */
#define SIZE UINT64_C(0x10000)

static dxpu_guard g;
static uint8_t page[4096];

/* ==== The host ================================================================================ */

static void event(uint8_t type, uint8_t flags, uint64_t base, uint64_t length)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = type;
    e.flags = flags;
    e.base = base;
    e.length = length;
    assert_int_equal(dxpu_guard_event(&g, &e), length != 0);
}

static void grant(uint64_t base, uint64_t length, uint8_t flags)
{
    event(DXPU_EVENT_DMA_GRANT, flags, base, length);
}

static dxpu_tlp config(uint8_t type, uint16_t function, uint16_t at, const uint8_t *data)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 15;
    t.requester = THE_HOST;
    t.tag = 1;
    t.target = function;
    t.register_bytes = at;
    t.payload.ptr = data;
    t.payload.len = data ? 4 : 0;
    return t;
}

static dxpu_bytes encoded(const dxpu_tlp *t)
{
    static uint8_t bytes[DXPU_TLP_MAX_BYTES];
    dxpu_bytes tlp = { bytes, 0 };
    assert_int_equal(dxpu_tlp_encode(t, bytes, sizeof bytes, &tlp.len), DXPU_OK);
    return tlp;
}

/* A configuration write, which the device completes. */
static void write_config(uint16_t function, uint16_t at, uint32_t value)
{
    uint8_t data[4];
    dxpu_tlp t, cpl;
    dxpu_put_le32(data, value);
    t = config(DXPU_TLP_CFGWR0, function, at, data);
    dxpu_guard_down(&g, &t);
    dxpu_tlp_completion(&t, function, DXPU_CPL_SC, &cpl);
    assert_int_equal(dxpu_guard_up(&g, encoded(&cpl)), DXPU_GUARD_PASS);
}

/* A configuration read of these bytes, and what the device says. */
static void read_config(uint16_t function, uint16_t at, uint8_t be, uint32_t value)
{
    uint8_t data[4];
    dxpu_tlp t, cpl;
    dxpu_put_le32(data, value);
    t = config(DXPU_TLP_CFGRD0, function, at, NULL);
    t.first_be = be;
    dxpu_guard_down(&g, &t);
    dxpu_tlp_completion(&t, function, DXPU_CPL_SC, &cpl);
    cpl.payload.ptr = data;
    cpl.payload.len = 4;
    assert_int_equal(dxpu_guard_up(&g, encoded(&cpl)), DXPU_GUARD_PASS);
}

static int setup(void **state)
{
    dxpu_guard_allowed none = { false, false };
    (void)state;
    guard_init(&g, &none);
    assert_int_equal(guard_begin(&g), 0);
    grant(BASE, SIZE, DXPU_EVENT_READ | DXPU_EVENT_WRITE);
    grant(BASE + SIZE, SIZE, DXPU_EVENT_READ);
    grant(BASE + 2 * SIZE, SIZE, DXPU_EVENT_WRITE);
    write_config(US, 4, 0x06);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    guard_end(&g);
    return 0;
}

/* ==== The device ============================================================================== */

/* A request for `bytes` bytes from any address on. */
static dxpu_tlp request(uint8_t type, uint64_t address, uint32_t bytes)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = address >> 32 ? 4 : 3;
    t.requester = US;
    t.address = address & ~UINT64_C(3);
    assert_int_equal(dxpu_be_from_range(address, bytes, &t.first_be, &t.last_be, &t.length_dw),
                     DXPU_OK);
    if (type == DXPU_TLP_MWR || type == DXPU_TLP_DMWR) {
        t.payload.ptr = page;
        t.payload.len = t.length_dw * 4u;
    }
    return t;
}

static unsigned up(const dxpu_tlp *t)
{
    uint64_t before = dxpu_guard_refused(&g);
    unsigned verdict = dxpu_guard_up(&g, encoded(t));
    assert_int_equal(dxpu_guard_refused(&g) - before, verdict < DXPU_GUARD_REASON_COUNT);
    return verdict;
}

static unsigned try(uint8_t type, uint64_t address, uint32_t bytes)
{
    dxpu_tlp t = request(type, address, bytes);
    return up(&t);
}

static void test_s100_inside_outside_straddling(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        uint8_t type = k ? DXPU_TLP_MWR : DXPU_TLP_MRD;
        assert_int_equal(try(type, BASE, 1), DXPU_GUARD_PASS);
        assert_int_equal(try(type, BASE + 3, 4093), DXPU_GUARD_PASS);
        assert_int_equal(try(type, BASE - 1, 1), DXPU_GUARD_window);
        assert_int_equal(try(type, BASE - 4096, 4096), DXPU_GUARD_window);
        assert_int_equal(try(type, 0, 4), DXPU_GUARD_window);
        assert_int_equal(try(type, BASE + 3 * SIZE - 1, 1),
                         k ? DXPU_GUARD_PASS : DXPU_GUARD_direction);
        assert_int_equal(try(type, BASE + 3 * SIZE, 1), DXPU_GUARD_window); /* one byte outside */
        assert_int_equal(try(type, UINT64_MAX - 3, 4), DXPU_GUARD_window);
        assert_int_equal(try(type, BASE & 0xffffffffu, 4),
                         DXPU_GUARD_window); /* a truncated address */
    }
    assert_int_equal(try(DXPU_TLP_MRD, BASE + SIZE, 64), DXPU_GUARD_PASS);
    assert_int_equal(try(DXPU_TLP_MWR, BASE + SIZE, 64), DXPU_GUARD_direction);
    assert_int_equal(try(DXPU_TLP_MRD, BASE + 2 * SIZE, 64), DXPU_GUARD_direction);
    assert_int_equal(try(DXPU_TLP_MWR, BASE + 2 * SIZE, 64), DXPU_GUARD_PASS);
}

/* A window's end within a dword, and within a page. */
static void test_s100_bytes_count(void **state)
{
    (void)state;
    grant(0x2001, 2, DXPU_EVENT_WRITE);
    assert_int_equal(try(DXPU_TLP_MWR, 0x2001, 2), DXPU_GUARD_PASS);
    assert_int_equal(try(DXPU_TLP_MWR, 0x2000, 2), DXPU_GUARD_window);
    assert_int_equal(try(DXPU_TLP_MWR, 0x2001, 3), DXPU_GUARD_window);
    dxpu_tlp t = request(DXPU_TLP_MWR, 0x2000, 4);
    t.first_be = 0; /* writes nothing, but where? */
    assert_int_equal(up(&t), DXPU_GUARD_window);
    t.address = BASE;
    t.header_dw = 4;
    assert_int_equal(up(&t), DXPU_GUARD_PASS);
    t.first_be = 9; /* the bytes between are not touched, and count */
    t.address = 0x2000;
    t.header_dw = 3;
    assert_int_equal(up(&t), DXPU_GUARD_window);
    grant(UINT64_MAX - 0xfff, 0x1000, DXPU_EVENT_READ);
    assert_int_equal(try(DXPU_TLP_MRD, UINT64_MAX - 0xfff, 4096), DXPU_GUARD_PASS);
    assert_int_equal(try(DXPU_TLP_MRD, UINT64_MAX - 0x1003, 4), DXPU_GUARD_window);
}

static dxpu_tlp atomic(uint8_t type, uint64_t address, uint16_t length_dw)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = address >> 32 ? 4 : 3;
    t.requester = US;
    t.address = address;
    t.length_dw = length_dw;
    t.payload.ptr = page;
    t.payload.len = length_dw * 4u;
    return t;
}

static void test_s100_atomics_need_both(void **state)
{
    static const uint8_t types[] = { DXPU_TLP_FETCHADD, DXPU_TLP_SWAP, DXPU_TLP_CAS };
    (void)state;
    for (unsigned i = 0; i < sizeof types; i++) {
        uint16_t dw = types[i] == DXPU_TLP_CAS ? 2 : 1;
        dxpu_tlp t = atomic(types[i], BASE + 8, dw);
        assert_int_equal(up(&t), DXPU_GUARD_PASS);
        t = atomic(types[i], BASE + SIZE + 8, dw);
        assert_int_equal(up(&t), DXPU_GUARD_direction);
        t = atomic(types[i], BASE + 2 * SIZE + 8, dw);
        assert_int_equal(up(&t), DXPU_GUARD_direction);
        t = atomic(types[i], BASE - 8, dw);
        assert_int_equal(up(&t), DXPU_GUARD_window);
        t = atomic(types[i], BASE + SIZE - 4, dw); /* it touches the last dword, and no more */
        assert_int_equal(up(&t), DXPU_GUARD_PASS);
    }
    assert_int_equal(try(DXPU_TLP_DMWR, BASE + 2 * SIZE, 64), DXPU_GUARD_PASS);
    assert_int_equal(try(DXPU_TLP_DMWR, BASE + SIZE, 64), DXPU_GUARD_direction);
}

static void test_s101_grants_come_and_go(void **state)
{
    (void)state;
    event(DXPU_EVENT_DMA_REVOKE, DXPU_EVENT_WRITE, BASE + 0x1000, 0x1000);
    assert_int_equal(try(DXPU_TLP_MWR, BASE + 0xfff, 1), DXPU_GUARD_PASS);
    assert_int_equal(try(DXPU_TLP_MWR, BASE + 0x1000, 1), DXPU_GUARD_direction);
    assert_int_equal(try(DXPU_TLP_MRD, BASE + 0x1000, 4096), DXPU_GUARD_PASS);
    assert_int_equal(try(DXPU_TLP_MWR, BASE + 0x2000, 1), DXPU_GUARD_PASS);
    assert_int_equal(g.no_room, 0);
    grant(UINT64_MAX, 2, DXPU_EVENT_WRITE); /* no range */
    assert_int_equal(g.no_room, 1);
    assert_int_equal(try(DXPU_TLP_MWR, UINT64_MAX, 1), DXPU_GUARD_window);
}

static void test_s104_requester_and_bus_master(void **state)
{
    dxpu_tlp t = request(DXPU_TLP_MWR, BASE, 4);
    (void)state;
    assert_int_equal(up(&t), DXPU_GUARD_PASS);
    t.requester = DXPU_BDF(5, 0, 1); /* a function that was not configured */
    assert_int_equal(up(&t), DXPU_GUARD_requester);
    t.requester = DXPU_BDF(6, 0, 0); /* a neighbour's */
    assert_int_equal(up(&t), DXPU_GUARD_requester);
    t.requester = 0;
    assert_int_equal(up(&t), DXPU_GUARD_requester);
    write_config(DXPU_BDF(5, 0, 1), 4, 0x02);
    t.requester = DXPU_BDF(5, 0, 1);
    assert_int_equal(up(&t), DXPU_GUARD_master);
    write_config(DXPU_BDF(5, 0, 1), 4, 0x04);
    assert_int_equal(up(&t), DXPU_GUARD_PASS);
    write_config(US, 4, 0x02);
    t.requester = US;
    assert_int_equal(up(&t), DXPU_GUARD_master);
    write_config(DXPU_BDF(7, 0, 0), 4, 0x04); /* the bus is another number now */
    assert_int_equal(up(&t), DXPU_GUARD_requester);
    t.requester = DXPU_BDF(7, 0, 0);
    assert_int_equal(up(&t), DXPU_GUARD_PASS);
}

static void test_s104_bytes_of_the_command_register(void **state)
{
    static const uint8_t none[4] = { 0 }, ones[4] = { 0x04 };
    dxpu_tlp t = config(DXPU_TLP_CFGWR0, US, 4, none);
    (void)state;
    t.first_be = 0xc; /* Status alone */
    dxpu_guard_down(&g, &t);
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_PASS);
    t.first_be = 0xf;
    t.ep = true; /* poisoned: discarded */
    dxpu_guard_down(&g, &t);
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_PASS);
    t.ep = false;
    dxpu_guard_down(&g, &t);
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_master);
    t = config(DXPU_TLP_CFGWR0, US, 8, ones); /* another register */
    dxpu_guard_down(&g, &t);
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_master);
    t = config(DXPU_TLP_CFGRD0, US, 4, NULL);
    dxpu_guard_down(&g, &t);
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_master);
}

static void test_s104_resets_clear_bus_master(void **state)
{
    (void)state;
    event(DXPU_EVENT_HOT_RESET, DXPU_EVENT_ON, 0, 0);
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_master);
    write_config(US, 4, 0x04);
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_PASS);
    write_config(US, EXPRESS_AT + 8, 0x8000); /* no capability was found there yet */
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_PASS);
    read_config(US, 0x34, 0x1, 0x40);
    read_config(US, EXPRESS_AT, 0x3, 0x0010); /* read, but not come to */
    write_config(US, EXPRESS_AT + 8, 0x8000);
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_PASS);
    read_config(US, 0x40, 0x3, EXPRESS_AT << 8 | 0x05);
    read_config(US, EXPRESS_AT, 0x1, 0x0010);
    write_config(US, EXPRESS_AT + 8, 0x0010); /* the control: no reset */
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_PASS);
    write_config(US, EXPRESS_AT + 8, 0x8000);
    assert_int_equal(try(DXPU_TLP_MWR, BASE, 4), DXPU_GUARD_master);
}

static void test_s105_translation_and_pasid(void **state)
{
    dxpu_guard_allowed both = { true, true };
    dxpu_tlp t = request(DXPU_TLP_MRD, BASE, 4), p = t, m;
    (void)state;
    memset(&m, 0, sizeof m);
    m.type = DXPU_TLP_MSG;
    m.header_dw = 4;
    m.requester = US;
    m.message_code = 0x04; /* Page_Request */
    m.message_routing = DXPU_MSG_TO_ROOT;
    p.prefix_count = 1;
    p.prefix[0] = 0x91000007u;
    for (uint8_t at = 1; at < 3; at++) {
        t.at = at;
        t.length_dw = 2; /* a translation request is of whole entries */
        t.last_be = 15;
        assert_int_equal(up(&t), DXPU_GUARD_translated);
    }
    assert_int_equal(up(&p), DXPU_GUARD_pasid);
    assert_int_equal(up(&m), DXPU_GUARD_translated);
    g.allowed = both;
    assert_int_equal(up(&t), DXPU_GUARD_PASS);
    assert_int_equal(up(&p), DXPU_GUARD_PASS);
    assert_int_equal(up(&m), DXPU_GUARD_PASS);
    t.address = BASE - 8; /* in the windows all the same */
    t.header_dw = 3;
    assert_int_equal(up(&t), DXPU_GUARD_window);
}

static void test_s106_only_what_an_endpoint_sends(void **state)
{
    dxpu_tlp t = config(DXPU_TLP_CFGRD0, US, 0, NULL);
    (void)state;
    t.requester = US;
    assert_int_equal(up(&t), DXPU_GUARD_kind);
    t = config(DXPU_TLP_CFGWR1, DXPU_BDF(9, 0, 0), 4, page);
    t.requester = US;
    assert_int_equal(up(&t), DXPU_GUARD_kind);
    t = request(DXPU_TLP_MRDLK, BASE, 4);
    assert_int_equal(up(&t), DXPU_GUARD_kind);
    t = request(DXPU_TLP_IORD, 0x1000, 4);
    assert_int_equal(up(&t), DXPU_GUARD_kind);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSG;
    t.header_dw = 4;
    t.requester = US;
    t.message_code = 0x31; /* ERR_NONFATAL */
    assert_int_equal(up(&t), DXPU_GUARD_PASS);
    t.requester = DXPU_BDF(6, 0, 0); /* learned of a neighbor */
    assert_int_equal(up(&t), DXPU_GUARD_requester);
    t.message_code = 0x19; /* PME_Turn_Off is the root's */
    t.message_routing = DXPU_MSG_BROADCAST;
    assert_int_equal(up(&t), DXPU_GUARD_kind);
    t.message_code = 0x10; /* LTR ends at the proxy, and is not a breach */
    t.message_routing = DXPU_MSG_LOCAL;
    assert_int_equal(up(&t), DXPU_GUARD_ENDS);
    assert_int_equal(g.ended, 1);
}

static void test_s106_malformed(void **state)
{
    uint8_t bytes[16] = { 0x20, 0, 0, 2, 0x05, 0, 0, 0xff, 0, 0, 0, 1, 0, 0, 0x0f, 0xf8 };
    dxpu_bytes tlp = { bytes, sizeof bytes };
    (void)state;
    assert_int_equal(dxpu_guard_up(&g, tlp),
                     DXPU_GUARD_PASS); /* the control: the last bytes of a page */
    bytes[3] = 3;                      /* over its end */
    assert_int_equal(dxpu_guard_up(&g, tlp), DXPU_GUARD_malformed);
    bytes[3] = 2;
    tlp.len = 12;
    assert_int_equal(dxpu_guard_up(&g, tlp), DXPU_GUARD_malformed);
    tlp.len = 0;
    assert_int_equal(dxpu_guard_up(&g, tlp), DXPU_GUARD_malformed);
}

static unsigned up_bytes(const uint8_t *bytes, size_t len)
{
    dxpu_bytes tlp = { bytes, len };
    return dxpu_guard_up(&g, tlp);
}

/* Reserved bits are nothing that isolation needs (T-43); a window is, in whatever form. */
static void test_s106_reserved_bits_pass(void **state)
{
    uint8_t read[16] = { 0x20, 0, 0, 1, 0x05, 0, 0, 0x0f, 0, 0, 0, 1, 0, 0, 0, 0 };
    uint8_t write[20] = { 0x60, 0, 0, 1, 0x05, 0, 0, 0x0f, 0, 0, 0, 1, 0, 0, 0, 0 };
    uint8_t low[16] = { 0x20, 0, 0, 1, 0x05, 0, 0, 0x0f, 0, 0, 0, 0, 0x80, 0, 0, 0 };
    (void)state;
    read[1] = 0x02;  /* LN */
    read[2] = 0x40;  /* EP without data */
    read[15] = 0x03; /* PH without TH */
    assert_int_equal(up_bytes(read, sizeof read), DXPU_GUARD_PASS);
    read[12] = 0xff; /* the control: outside every window */
    assert_int_equal(up_bytes(read, sizeof read), DXPU_GUARD_window);
    write[1] = 0x8a; /* T9, T8, LN */
    assert_int_equal(up_bytes(write, sizeof write), DXPU_GUARD_PASS);
    write[2] = 0x08; /* AT says something here */
    assert_int_equal(up_bytes(write, sizeof write), DXPU_GUARD_translated);
    assert_int_equal(up_bytes(low, sizeof low), DXPU_GUARD_window); /* 4 DW, below 4 GB */
    grant(0x80000000u, SIZE, DXPU_EVENT_READ);
    assert_int_equal(up_bytes(low, sizeof low), DXPU_GUARD_PASS);
}

static void test_s106_completions_with_reserved_bits_pass(void **state)
{
    uint8_t bytes[12];
    dxpu_tlp t = config(DXPU_TLP_CFGRD0, US, 0x40, NULL), cpl;
    (void)state;
    dxpu_guard_down(&g, &t);
    dxpu_tlp_completion(&t, US, DXPU_CPL_UR, &cpl);
    memcpy(bytes, encoded(&cpl).ptr, sizeof bytes);
    bytes[1] |= 0x03;                /* LN, TH */
    bytes[3] = 1;                    /* Length */
    bytes[6] = bytes[6] | 0x7u << 5; /* a reserved status: UR */
    bytes[11] |= 0x80;
    assert_int_equal(up_bytes(bytes, sizeof bytes), DXPU_GUARD_PASS);
    assert_int_equal(up_bytes(bytes, sizeof bytes), DXPU_GUARD_completion); /* answered */
}

/* A vendor's messages go to the root and to other functions, whatever is in them. */
static void test_s106_vendor_messages_pass(void **state)
{
    static const uint8_t codes[] = { 0x7e, 0x7f }, ways[] = { DXPU_MSG_BY_ID, DXPU_MSG_TO_ROOT };
    uint8_t bytes[20] = { 0x70, 0x73, 0x30, 1, 0x05, 0, 0, 0, 0xab, 0xcd, 0x12, 0x34 };
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        bytes[0] = 0x70 | ways[i / 2];
        bytes[7] = codes[i % 2];
        assert_int_equal(up_bytes(bytes, sizeof bytes), DXPU_GUARD_PASS);
    }
    bytes[0] = 0x73; /* broadcasts come from the root */
    assert_int_equal(up_bytes(bytes, sizeof bytes), DXPU_GUARD_kind);
    bytes[0] = 0x70;
    bytes[7] = 0x7d; /* none that PCIe has */
    assert_int_equal(up_bytes(bytes, sizeof bytes), DXPU_GUARD_malformed);
}

/* A host's read of `bytes` bytes, and the one completion that answers it. */
static dxpu_tlp asked(uint16_t requester, uint16_t tag, uint32_t bytes)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, 0x90000000u, bytes), cpl;
    t.requester = requester;
    t.tag = tag;
    dxpu_guard_down(&g, &t);
    dxpu_tlp_completion(&t, US, DXPU_CPL_SC, &cpl);
    cpl.byte_count = (uint16_t)bytes;
    cpl.length_dw = (uint16_t)((bytes + 3) / 4);
    cpl.payload.ptr = page;
    cpl.payload.len = cpl.length_dw * 4u;
    return cpl;
}

static void test_s107_completions(void **state)
{
    dxpu_tlp cpl = asked(THE_HOST, 9, 256), other = cpl;
    (void)state;
    other.tag = 10;
    assert_int_equal(up(&other), DXPU_GUARD_completion);
    other.tag = 9;
    other.requester = DXPU_BDF(3, 0, 0);
    assert_int_equal(up(&other), DXPU_GUARD_completion);
    other = cpl;
    other.byte_count = 512;
    assert_int_equal(up(&other), DXPU_GUARD_completion);
    other.length_dw = 128; /* more than is left */
    other.payload.len = 512;
    assert_int_equal(up(&other), DXPU_GUARD_completion);
    assert_int_equal(up(&cpl), DXPU_GUARD_PASS);       /* the forged ones changed nothing */
    assert_int_equal(up(&cpl), DXPU_GUARD_completion); /* twice */
    assert_int_equal(g.refused[DXPU_GUARD_completion], 5);
    cpl = asked(DXPU_BDF(3, 0, 0), 9, 4); /* another device's request */
    assert_int_equal(up(&cpl), DXPU_GUARD_PASS);
    cpl = asked(THE_HOST, 9, 4);
    cpl = asked(THE_HOST, 9, 8); /* the tag again: the first is forgotten */
    assert_int_equal(up(&cpl), DXPU_GUARD_PASS);
    assert_int_equal(g.asked.in_flight, 0);
}

/* However much is asked and not answered, the youngest are known. */
static void test_s107_requests_are_bounded(void **state)
{
    dxpu_tlp cpl = asked(THE_HOST, 0, 4), first = cpl;
    (void)state;
    for (unsigned i = 1; i < 3 * GUARD_REQUESTS; i++)
        cpl = asked((uint16_t)(i / 512), (uint16_t)(i % 512), 4);
    assert_int_equal(g.asked.in_flight, GUARD_REQUESTS);
    assert_int_equal(up(&cpl), DXPU_GUARD_PASS);
    assert_int_equal(up(&first), DXPU_GUARD_completion);
}

static void test_s112_nothing_is_left_for_the_next(void **state)
{
    dxpu_tlp cpl = asked(THE_HOST, 9, 4), t = request(DXPU_TLP_MWR, BASE, 4);
    (void)state;
    assert_int_equal(up(&t), DXPU_GUARD_PASS);
    guard_end(&g);
    guard_end(&g); /* a slot ends as often as somebody says so */
    assert_int_equal(guard_begin(&g), 0);
    assert_int_equal(up(&cpl), DXPU_GUARD_completion);
    assert_int_equal(up(&t), DXPU_GUARD_requester);
    write_config(US, 4, 0);
    assert_int_equal(up(&t), DXPU_GUARD_master);
    write_config(US, 4, 4);
    assert_int_equal(up(&t), DXPU_GUARD_window);
    assert_int_equal(g.windows.count, 0);
}

/* ==== Limits ================================================================================== */

/* How many leave in a second, looked at each 10 us. */
static unsigned in_a_second(limit *l, uint64_t *now, const dxpu_tlp *t)
{
    unsigned count = 0;
    for (uint64_t end = *now + 1000000000; *now < end; *now += 10000) {
        while (limit_next_ns(l, *now) <= *now && count < 2000000) {
            limit_take(l, encoded(t));
            count++;
        }
    }
    return count;
}

static void test_s111_rates(void **state)
{
    dxpu_tlp small = request(DXPU_TLP_MWR, BASE, 4), large = request(DXPU_TLP_MRD, BASE, 4096);
    uint64_t now = 1000000000;
    limit l;
    (void)state;
    limit_init(&l, 0, 0, now);
    assert_false(limit_is_on(&l));
    limit_take(&l, encoded(&large));
    assert_true(limit_next_ns(&l, now) == now);
    limit_init(&l, 10000, 0, now);
    assert_in_range(in_a_second(&l, &now, &small), 10000, 10102); /* and one bucket at first */
    assert_in_range(in_a_second(&l, &now, &large), 9990, 10010);
    limit_init(&l, 0, 4096 * 1000, now);
    assert_in_range(in_a_second(&l, &now, &large), 1000, 1012); /* reads count by what they ask */
    assert_in_range(in_a_second(&l, &now, &small), 1023000, 1025000);
    now += UINT64_C(1000000000000); /* what was not used is not saved up */
    assert_in_range(in_a_second(&l, &now, &large), 1000, 1012);
    limit_init(&l, LIMIT_RATE_MAX, LIMIT_RATE_MAX, now);
    now += UINT64_MAX / 4;
    assert_true(limit_next_ns(&l, now) == now);
}

/* Of a device that always has more: not a wake-up for each TLP. */
static void test_s111_few_waits(void **state)
{
    dxpu_tlp t = request(DXPU_TLP_MRD, BASE, 512);
    uint64_t now = 1000000000, end = 2000000000, bytes = 0, waits = 0;
    limit l;
    (void)state;
    limit_init(&l, 0, 16 << 20, now);
    while (now < end) {
        uint64_t next = limit_next_ns(&l, now);
        if (next == now) {
            limit_take(&l, encoded(&t));
            bytes += 512;
        } else {
            waits++;
            now = next;
        }
    }
    assert_in_range(bytes, 16 << 20, (16 << 20) / 100 * 102);
    assert_in_range(waits, 900, 1000);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_s100_inside_outside_straddling),
        CASE(test_s100_bytes_count),
        CASE(test_s100_atomics_need_both),
        CASE(test_s101_grants_come_and_go),
        CASE(test_s104_requester_and_bus_master),
        CASE(test_s104_bytes_of_the_command_register),
        CASE(test_s104_resets_clear_bus_master),
        CASE(test_s105_translation_and_pasid),
        CASE(test_s106_only_what_an_endpoint_sends),
        CASE(test_s106_malformed),
        CASE(test_s106_reserved_bits_pass),
        CASE(test_s106_completions_with_reserved_bits_pass),
        CASE(test_s106_vendor_messages_pass),
        CASE(test_s107_completions),
        CASE(test_s107_requests_are_bounded),
        CASE(test_s111_rates),
        CASE(test_s111_few_waits),
        CASE(test_s112_nothing_is_left_for_the_next),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
