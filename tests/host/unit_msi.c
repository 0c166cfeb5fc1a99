/* unit_msi.c - which interrupt messages pass: those that the guest programmed, and no others
   SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "msi.h"

enum {
    FUNCTION = DXPU_BDF(3, 0, 0),
    OTHER = DXPU_BDF(3, 0, 1),
    MSI_AT = 0x50,
    MSIX_AT = 0x70,
    EXPRESS_AT = 0x80,
    TABLE = 0x2000, /* in BAR 2, a 64-bit one */
    CAP_MSI = 0x05,
    CAP_MSIX = 0x11
};
#define BAR_AT   ((uint64_t)0x1180000000)
#define DOORBELL 0xfee01000u

static msi_filter all;
static uint8_t space[4096]; /* as the device reports it */
static uint16_t next_tag;

static dxpu_tlp config_tlp(uint8_t type, uint16_t bdf, unsigned at, uint8_t be)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = be;
    t.target = bdf;
    t.register_bytes = (uint16_t)at;
    t.tag = next_tag++ % 256;
    return t;
}

static void answer(const dxpu_tlp *t, uint8_t status, const uint8_t *data)
{
    dxpu_tlp cpl;
    dxpu_tlp_completion(t, t->target, status, &cpl);
    cpl.payload.ptr = data;
    cpl.payload.len = data ? 4 : 0;
    msi_answered(&all, &cpl);
}

/* The guest reads a register, or bytes of it, and is answered. */
static void read_bytes(uint16_t bdf, unsigned at, uint8_t be)
{
    dxpu_tlp t = config_tlp(DXPU_TLP_CFGRD0, bdf, at, be);
    msi_sent(&all, &t);
    answer(&t, DXPU_CPL_SC, space + at);
}

static void read_config(uint16_t bdf, unsigned at)
{
    read_bytes(bdf, at, 0xf);
}

/* The guest writes; the answer is the caller's to give. */
static dxpu_tlp post_config(uint16_t bdf, unsigned at, uint8_t be, uint32_t value)
{
    static uint8_t bytes[4];
    dxpu_tlp t = config_tlp(DXPU_TLP_CFGWR0, bdf, at, be);
    dxpu_put_le32(bytes, value);
    t.payload.ptr = bytes;
    t.payload.len = 4;
    msi_sent(&all, &t);
    return t;
}

static void write_config(uint16_t bdf, unsigned at, uint8_t be, uint32_t value)
{
    dxpu_tlp t = post_config(bdf, at, be, value);
    answer(&t, DXPU_CPL_SC, NULL);
}

static void write_memory(uint64_t address, uint8_t be, uint32_t value)
{
    uint8_t bytes[4];
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MWR;
    t.header_dw = 4;
    t.length_dw = 1;
    t.first_be = be;
    t.address = address;
    dxpu_put_le32(bytes, value);
    t.payload.ptr = bytes;
    t.payload.len = 4;
    msi_sent(&all, &t);
}

/* Whatever was sent before has reached the device. */
static void flush(void)
{
    read_config(FUNCTION, 0);
}

static bool fires(uint16_t bdf, uint64_t address, uint32_t data)
{
    uint8_t bytes[4];
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MWR;
    t.header_dw = address >> 32 ? 4 : 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.requester = bdf;
    t.address = address;
    dxpu_put_le32(bytes, data);
    t.payload.ptr = bytes;
    t.payload.len = 4;
    return msi_allowed(&all, &t);
}

/* The capabilities of the function are read, as by a system that looks for them. */
static int setup(void **state)
{
    (void)state;
    msi_clear(&all);
    memset(space, 0, sizeof space);
    space[0x18] = 0xc; /* BAR 2: 64-bit, prefetchable */
    space[0x34] = MSI_AT;
    dxpu_put_le32(space + MSI_AT, 0x01880005u | MSIX_AT << 8); /* 64-bit, masks, 16 messages */
    dxpu_put_le32(space + MSIX_AT, 0x00030011u | EXPRESS_AT << 8);
    dxpu_put_le32(space + MSIX_AT + 4, TABLE | 2);
    dxpu_put_le32(space + EXPRESS_AT, 0x00000010u);
    dxpu_put_le32(space + EXPRESS_AT + 4, 0x10008000u); /* function level reset */
    read_config(FUNCTION, 0x18);
    read_config(FUNCTION, 0x34);
    read_config(FUNCTION, MSI_AT);
    read_config(FUNCTION, MSIX_AT);
    read_config(FUNCTION, MSIX_AT + 4);
    read_config(FUNCTION, EXPRESS_AT);
    read_config(FUNCTION, EXPRESS_AT + 4);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    msi_clear(&all);
    return 0;
}

static void program_msi(uint32_t address, uint32_t data, unsigned log2)
{
    write_config(FUNCTION, MSI_AT + 4, 0xf, address);
    write_config(FUNCTION, MSI_AT + 8, 0xf, 0);
    write_config(FUNCTION, MSI_AT + 12, 0x3, data);
    write_config(FUNCTION, MSI_AT, 0xc, (0x81u | log2 << 4) << 16);
}

static void program_vector(unsigned vector, uint32_t address, uint32_t data)
{
    uint64_t entry = BAR_AT + TABLE + vector * 16;
    write_memory(entry, 0xf, address);
    write_memory(entry + 4, 0xf, 0);
    write_memory(entry + 8, 0xf, data);
    write_memory(entry + 12, 0xf, 0);
}

static void program_msix(void)
{
    write_config(FUNCTION, 0x18, 0xf, (uint32_t)BAR_AT | 0xc);
    write_config(FUNCTION, 0x1c, 0xf, (uint32_t)(BAR_AT >> 32));
    write_config(FUNCTION, MSIX_AT, 0xc, 0xc0030000); /* enabled, all masked */
    for (unsigned i = 0; i < 4; i++)
        program_vector(i, DOORBELL, 0x40 + i);
    assert_false(fires(FUNCTION, DOORBELL, 0x40));
    write_config(FUNCTION, MSIX_AT, 0xc, 0x80030000);
    flush();
}

static void test_v15_programmed_msi_passes_alone(void **state)
{
    (void)state;
    assert_false(fires(FUNCTION, DOORBELL, 0x31));
    program_msi(DOORBELL, 0x31, 0);
    assert_true(fires(FUNCTION, DOORBELL, 0x31));
    assert_false(fires(FUNCTION, DOORBELL, 0x30));
    assert_false(fires(FUNCTION, DOORBELL + 0x1000, 0x31));
    assert_false(fires(FUNCTION, DOORBELL, 0x10031));
    assert_false(fires(FUNCTION, (uint64_t)1 << 32 | DOORBELL, 0x31));
    assert_false(fires(OTHER, DOORBELL, 0x31)); /* another function's */
}

/* V-15: a masked one of several is refused, but for what was on its way; the others are not. */
static void test_v15_mask_bits_of_msi(void **state)
{
    static const uint8_t second[4] = { 1u << 2 };
    dxpu_tlp t = config_tlp(DXPU_TLP_CFGWR0, FUNCTION, MSI_AT + 16, 0xf);
    (void)state;
    program_msi(0xfee01000, 0x40, 2);
    assert_true(fires(FUNCTION, 0xfee01000, 0x42));
    t.payload.ptr = second;
    t.payload.len = 4;
    msi_sent(&all, &t);
    assert_true(fires(FUNCTION, 0xfee01000, 0x42)); /* it may be on its way */
    answer(&t, DXPU_CPL_SC, NULL);
    assert_false(fires(FUNCTION, 0xfee01000, 0x42));
    assert_true(fires(FUNCTION, 0xfee01000, 0x41));
    write_config(FUNCTION, MSI_AT + 16, 0xf, 0);
    assert_true(fires(FUNCTION, 0xfee01000, 0x42));
}

static void test_v15_low_data_bits_vary(void **state)
{
    (void)state;
    program_msi(DOORBELL, 0x40, 2);
    for (unsigned i = 0; i < 4; i++)
        assert_true(fires(FUNCTION, DOORBELL, 0x40 + i));
    assert_false(fires(FUNCTION, DOORBELL, 0x44));
    program_msi(DOORBELL, 0x40, 7); /* reserved: as 32 */
    assert_true(fires(FUNCTION, DOORBELL, 0x5f));
    assert_false(fires(FUNCTION, DOORBELL, 0x60));
}

static void test_v15_narrow_and_extended(void **state)
{
    (void)state;
    msi_clear(&all);
    dxpu_put_le32(space + MSI_AT, 0x02000005); /* 32-bit address, extended data */
    read_config(FUNCTION, 0x34);
    read_config(FUNCTION, MSI_AT);
    write_config(FUNCTION, MSI_AT + 4, 0xf, DOORBELL);
    write_config(FUNCTION, MSI_AT + 8, 0xf, 0x12340031);
    write_config(FUNCTION, MSI_AT, 0xc, 0x00010000);
    flush();
    assert_true(fires(FUNCTION, DOORBELL, 0x31));
    assert_false(fires(FUNCTION, DOORBELL, 0x12340031));
    write_config(FUNCTION, MSI_AT, 0xc, 0x04010000);
    flush();
    assert_true(fires(FUNCTION, DOORBELL, 0x12340031));
    assert_false(fires(FUNCTION, DOORBELL, 0x31));
}

static void test_v15_msix_vectors(void **state)
{
    (void)state;
    program_msix();
    for (unsigned i = 0; i < 4; i++)
        assert_true(fires(FUNCTION, DOORBELL, 0x40 + i));
    assert_false(fires(FUNCTION, DOORBELL, 0x44));
    program_vector(4, DOORBELL, 0x44); /* behind the table */
    assert_false(fires(FUNCTION, DOORBELL, 0x44));
    write_memory(BAR_AT + TABLE + 16 + 12, 0xf, 1); /* vector 1 is masked */
    flush();
    assert_false(fires(FUNCTION, DOORBELL, 0x41));
    assert_true(fires(FUNCTION, DOORBELL, 0x42));
    write_memory(BAR_AT + TABLE + 32 + 8, 0x1, 0x99); /* one byte of vector 2 */
    flush();
    assert_true(fires(FUNCTION, DOORBELL, 0x99));
    assert_false(fires(FUNCTION, DOORBELL, 0x42));
}

/* A message that is on its way while the guest changes it must not be lost. */
static void test_v15_replaced_until_the_device_answers(void **state)
{
    dxpu_tlp t;
    (void)state;
    program_msix();
    write_memory(BAR_AT + TABLE + 12, 0xf, 1);
    program_vector(0, DOORBELL + 0x1000, 0x77);
    assert_true(fires(FUNCTION, DOORBELL + 0x1000, 0x77));
    assert_true(fires(FUNCTION, DOORBELL, 0x40)); /* sent before the device saw the change */
    flush();
    assert_false(fires(FUNCTION, DOORBELL, 0x40));
    assert_true(fires(FUNCTION, DOORBELL + 0x1000, 0x77));
    t = post_config(FUNCTION, MSIX_AT, 0xc, 0x00030000);
    assert_true(fires(FUNCTION, DOORBELL, 0x41));
    answer(&t, DXPU_CPL_SC, NULL);
    assert_false(fires(FUNCTION, DOORBELL, 0x41));

    program_msi(DOORBELL, 0x31, 0);
    t = post_config(FUNCTION, MSI_AT, 0xc, 0);
    assert_true(fires(FUNCTION, DOORBELL, 0x31));
    answer(&t, DXPU_CPL_SC, NULL);
    assert_false(fires(FUNCTION, DOORBELL, 0x31));
}

/* What a device says its registers hold programs nothing. */
static void test_v15_device_cannot_program(void **state)
{
    (void)state;
    dxpu_put_le32(space + MSI_AT, 0x00810005u);
    dxpu_put_le32(space + MSI_AT + 4, DOORBELL);
    dxpu_put_le32(space + MSI_AT + 12, 0x31);
    for (unsigned at = MSI_AT; at < MSI_AT + 16; at += 4)
        read_config(FUNCTION, at);
    assert_false(fires(FUNCTION, DOORBELL, 0x31));
    program_msi(DOORBELL, 0x31, 0);
    assert_true(fires(FUNCTION, DOORBELL, 0x31));
    space[0x34] = 0xa0; /* nor does it move a capability to where the guest wrote something */
    dxpu_put_le32(space + 0xa0, 0x00800005);
    read_config(FUNCTION, 0x34);
    read_config(FUNCTION, 0xa0);
    write_config(FUNCTION, 0xa4, 0xf, DOORBELL);
    write_config(FUNCTION, 0xac, 0x3, 0x55);
    write_config(FUNCTION, 0xa0, 0xc, 0x00810000);
    assert_false(fires(FUNCTION, DOORBELL, 0x55));
}

static void test_v15_resets_forget(void **state)
{
    (void)state;
    program_msix();
    msi_reset(&all);
    assert_false(fires(FUNCTION, DOORBELL, 0x40));
    program_msix(); /* the capabilities are still known */
    assert_true(fires(FUNCTION, DOORBELL, 0x40));
    write_config(FUNCTION, EXPRESS_AT + 8, 0x3, 0x2810); /* no function level reset */
    assert_true(fires(FUNCTION, DOORBELL, 0x40));
    write_config(FUNCTION, EXPRESS_AT + 8, 0x3, 0xa810);
    flush();
    assert_false(fires(FUNCTION, DOORBELL, 0x40));
}

static void test_v15_only_whole_dwords(void **state)
{
    uint8_t bytes[8] = { 0x31 };
    dxpu_tlp t;
    (void)state;
    program_msi(DOORBELL, 0x31, 0);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MWR;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.requester = FUNCTION;
    t.address = DOORBELL;
    t.payload.ptr = bytes;
    t.payload.len = 4;
    assert_true(msi_is(&t) && msi_allowed(&all, &t)); /* the control */
    t.first_be = 0x3;
    assert_true(msi_is(&t) && !msi_allowed(&all, &t));
    t.first_be = 0xf;
    t.ep = true;
    assert_false(msi_allowed(&all, &t));
    t.ep = false;
    t.length_dw = 2;
    t.last_be = 0xf;
    t.payload.len = 8;
    assert_true(msi_is(&t) && !msi_allowed(&all, &t));
    t.address = 0xfedffffc; /* runs into the range from below */
    assert_true(msi_is(&t));
    t.address = 0xfedffff8;
    assert_false(msi_is(&t));
    t.address = 0xfeefffff & ~3u;
    assert_true(msi_is(&t));
    t.address = 0xfef00000;
    assert_false(msi_is(&t));
}

/* Many functions: the oldest makes room, and answers that name no register do no harm. */
static void test_v15_bounds(void **state)
{
    dxpu_tlp t;
    (void)state;
    program_msi(DOORBELL, 0x31, 0);
    for (unsigned i = 0; i < MSI_FUNCTIONS - 1; i++)
        write_config((uint16_t)(0x1000 + i), 0xfc, 0xf, 0xffffffff);
    assert_true(fires(FUNCTION, DOORBELL, 0x31));
    write_config(0x2000, 0xfc, 0xf, 0xffffffff);
    assert_false(fires(FUNCTION, DOORBELL, 0x31));
    assert_int_equal(all.count, MSI_FUNCTIONS);
    write_config(FUNCTION, 0x100, 0xf, 0xffffffff);
    t = config_tlp(DXPU_TLP_CFGRD0, FUNCTION, 0xffc, 0xf);
    msi_sent(&all, &t);
    answer(&t, DXPU_CPL_SC, space);
    t = config_tlp(DXPU_TLP_CFGRD0, FUNCTION, 0x34, 0xf);
    msi_sent(&all, &t);
    answer(&t, DXPU_CPL_UR, NULL);
}

/* A list that runs in a circle, and capabilities at the very end. */
static void test_v15_strange_capabilities(void **state)
{
    (void)state;
    msi_clear(&all);
    space[0x34] = 0xfc;
    dxpu_put_le32(space + 0xfc, 0x00810000u | 0xfcu << 8 | CAP_MSI);
    read_config(FUNCTION, 0x34);
    read_config(FUNCTION, 0xfc);
    write_config(FUNCTION, 0xfc, 0xc, 0x00810000);
    assert_false(fires(FUNCTION, DOORBELL, 0));
    msi_clear(&all);
    dxpu_put_le32(space + 0xfc, 0x07ff0000u | 0xfcu << 8 | CAP_MSIX);
    read_config(FUNCTION, 0x34);
    read_config(FUNCTION, 0xfc);
    write_config(FUNCTION, 0xfc, 0xc, 0x80000000);
    assert_false(fires(FUNCTION, DOORBELL, 0));
}

enum {
    VIRTUAL = DXPU_BDF(3, 0, 2), /* the second of them */
    AER_AT = 0x100,
    SRIOV_AT = 0x180,
    VF_BAR_AT = SRIOV_AT + 0x24 + 8 /* BAR 2 */
};
#define VF_BYTES 0x4000u

static void size_virtual(unsigned at, uint32_t says)
{
    write_config(FUNCTION, at, 0xf, 0xffffffff);
    dxpu_put_le32(space + at, says);
    read_config(FUNCTION, at);
}

static void enable_virtual(bool on)
{
    write_config(FUNCTION, VF_BAR_AT, 0xf, (uint32_t)BAR_AT);
    write_config(FUNCTION, VF_BAR_AT + 4, 0xf, (uint32_t)(BAR_AT >> 32));
    write_config(FUNCTION, SRIOV_AT + 8, 0x3, on ? 0x19 : 0);
}

/* SR-IOV is found and two virtual functions are made, of which the second is driven. */
static void set_up_virtual(void)
{
    dxpu_put_le32(space + AER_AT, 0x00020001u | (uint32_t)SRIOV_AT << 20);
    dxpu_put_le32(space + SRIOV_AT, 0x00010010u);
    dxpu_put_le32(space + SRIOV_AT + 0x14, 0x00010001u); /* offset and stride of 1 */
    read_config(FUNCTION, AER_AT);
    read_config(FUNCTION, SRIOV_AT);
    size_virtual(VF_BAR_AT, (~(VF_BYTES - 1)) | 0xc);
    size_virtual(VF_BAR_AT + 4, 0xffffffff);
    read_bytes(FUNCTION, SRIOV_AT + 0x14, 0x3); /* as Linux does */
    read_bytes(FUNCTION, SRIOV_AT + 0x14, 0xc);
    for (unsigned at = 0x34; at < EXPRESS_AT + 8; at += 4)
        read_config(VIRTUAL, at);
    enable_virtual(true);
}

static void program_virtual(uint64_t bar, uint32_t data)
{
    for (unsigned i = 0; i < 4; i++) {
        const uint32_t entry[] = { DOORBELL, 0, data, 0 };
        write_memory(bar + TABLE + i * 4, 0xf, entry[i]);
    }
    write_config(VIRTUAL, MSIX_AT, 0xc, 0x80030000);
    flush();
}

static void test_v15_virtual_functions(void **state)
{
    (void)state;
    set_up_virtual();
    program_virtual(BAR_AT, 0x50); /* the first one's table */
    assert_false(fires(VIRTUAL, DOORBELL, 0x50));
    program_virtual(BAR_AT + VF_BYTES, 0x51);
    assert_true(fires(VIRTUAL, DOORBELL, 0x51));
    assert_false(fires(VIRTUAL, DOORBELL, 0x50));
    assert_false(fires(FUNCTION, DOORBELL, 0x51));
    assert_false(fires(DXPU_BDF(3, 0, 1), DOORBELL, 0x51));
    enable_virtual(true); /* nothing changes */
    assert_true(fires(VIRTUAL, DOORBELL, 0x51));
    enable_virtual(false);
    assert_false(fires(VIRTUAL, DOORBELL, 0x51));
    program_virtual(BAR_AT + VF_BYTES, 0x51); /* they are not there */
    assert_false(fires(VIRTUAL, DOORBELL, 0x51));
    enable_virtual(true);
    assert_false(fires(VIRTUAL, DOORBELL, 0x51));
    program_virtual(BAR_AT + VF_BYTES, 0x52);
    assert_true(fires(VIRTUAL, DOORBELL, 0x52));
    write_config(VIRTUAL, EXPRESS_AT + 8, 0x3, 0x8000); /* a reset of its own */
    assert_false(fires(VIRTUAL, DOORBELL, 0x52));
    program_virtual(BAR_AT + VF_BYTES, 0x53);
    assert_true(fires(VIRTUAL, DOORBELL, 0x53));
    write_config(FUNCTION, EXPRESS_AT + 8, 0x3, 0x8000); /* of the physical function */
    assert_false(fires(VIRTUAL, DOORBELL, 0x53));
    program_virtual(BAR_AT + VF_BYTES, 0x53);
    assert_false(fires(VIRTUAL, DOORBELL, 0x53));
}

/* One that is not there has no table, not even at the ends of memory. */
static void test_v15_table_of_none(void **state)
{
    (void)state;
    set_up_virtual();
    enable_virtual(false);
    for (unsigned i = 0; i < 4; i++) {
        const uint32_t entry[] = { DOORBELL, 0, 0x54, 0 };
        write_memory(i * 4, 0xf, entry[i]);
    }
    enable_virtual(true);
    write_config(VIRTUAL, MSIX_AT, 0xc, 0x80030000);
    flush();
    assert_false(fires(VIRTUAL, DOORBELL, 0x54));
    program_virtual(BAR_AT + VF_BYTES, 0x54); /* a control */
    assert_true(fires(VIRTUAL, DOORBELL, 0x54));
}

/* Lists and numbers that make no sense lead nowhere. */
static void test_v15_strange_virtual_functions(void **state)
{
    (void)state;
    set_up_virtual();
    dxpu_put_le32(space + SRIOV_AT + 0x14, 0x00010000u); /* no offset */
    read_config(FUNCTION, SRIOV_AT + 0x14);
    program_virtual(BAR_AT + VF_BYTES, 0x51);
    assert_false(fires(VIRTUAL, DOORBELL, 0x51));
    dxpu_put_le32(space + SRIOV_AT + 0x14, 0x00000001u); /* no stride: there is one of them */
    read_config(FUNCTION, SRIOV_AT + 0x14);
    program_virtual(BAR_AT + VF_BYTES, 0x51);
    assert_false(fires(VIRTUAL, DOORBELL, 0x51));
    dxpu_put_le32(space + SRIOV_AT + 0x14, 0x00010001u);
    read_config(FUNCTION, SRIOV_AT + 0x14);
    program_virtual(BAR_AT + VF_BYTES, 0x51); /* a control */
    assert_true(fires(VIRTUAL, DOORBELL, 0x51));
    dxpu_put_le32(space + MSIX_AT + 4, TABLE | 7); /* in a BAR that there is not */
    msi_clear(&all);
    set_up_virtual();
    program_virtual(BAR_AT + VF_BYTES, 0x51);
    assert_false(fires(VIRTUAL, DOORBELL, 0x51));
    msi_clear(&all);
    dxpu_put_le32(space + AER_AT, 0x00020001u | (uint32_t)AER_AT << 20); /* a circle */
    for (unsigned i = 0; i < 3; i++)
        read_config(FUNCTION, AER_AT);
    read_config(FUNCTION, SRIOV_AT);
    assert_int_equal(all.virtuals.at, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_v15_programmed_msi_passes_alone),
        CASE(test_v15_low_data_bits_vary),
        CASE(test_v15_mask_bits_of_msi),
        CASE(test_v15_narrow_and_extended),
        CASE(test_v15_msix_vectors),
        CASE(test_v15_replaced_until_the_device_answers),
        CASE(test_v15_device_cannot_program),
        CASE(test_v15_resets_forget),
        CASE(test_v15_only_whole_dwords),
        CASE(test_v15_bounds),
        CASE(test_v15_strange_capabilities),
        CASE(test_v15_virtual_functions),
        CASE(test_v15_table_of_none),
        CASE(test_v15_strange_virtual_functions),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
