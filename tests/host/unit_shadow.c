/* unit_shadow.c - what a virtual machine is shown of a device, which may lie
   SPDX-License-Identifier: MIT */
#include "dxpu.h"

#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "shadow.h"

enum {
    POWER = 0x40,
    MSI = 0x48,
    EXPRESS = 0x60,
    MSIX = 0xa0,
    AER = 0x100,
    SERIAL = 0x148,
    TABLE = 0x2000,
    PBA = 0x3000,
    VECTORS = 33,
    NEVER = 0xee /* what a device says that changed its mind */
};

static uint8_t image[SHADOW_BYTES];
static uint32_t sized[SHADOW_BARS];
static shadow s;

static void link_cap(unsigned at, uint8_t id, unsigned next)
{
    image[at] = id;
    image[at + 1] = (uint8_t)next;
}

static void link_extended(unsigned at, unsigned id, unsigned next)
{
    dxpu_put_le32(image + at, next << 20 | 1u << 16 | id);
}

/* A device of 64-bit BAR 0 of 16 KB and 32-bit BAR 2 of 4 KB, with all that is usual. */
static int setup(void **state)
{
    (void)state;
    memset(image, 0, sizeof image);
    memset(sized, 0, sizeof sized);
    dxpu_put_le32(image, 0x12345678);
    image[0x06] = 0x10;
    image[0x34] = POWER;
    image[0x3d] = 1;
    sized[0] = 0xffffc004;
    sized[1] = 0xffffffff;
    sized[2] = 0xfffff000;
    link_cap(POWER, 0x01, MSI);
    link_cap(MSI, 0x05, EXPRESS);
    dxpu_put_le16(image + MSI + 2, 0x8a); /* 32 messages, 64 bits */
    link_cap(EXPRESS, 0x10, MSIX);
    image[EXPRESS + 7] = 0x10;
    link_cap(MSIX, 0x11, 0);
    dxpu_put_le16(image + MSIX + 2, VECTORS - 1);
    dxpu_put_le32(image + MSIX + 4, TABLE);
    dxpu_put_le32(image + MSIX + 8, PBA);
    link_extended(AER, 1, SERIAL);
    link_extended(SERIAL, 3, 0);
    return 0;
}

static const char *init(unsigned interrupts)
{
    return shadow_init(&s, image, sized, interrupts);
}

/* What the virtual machine reads there of a device that says something else by now. */
static uint32_t seen(unsigned at, unsigned bytes)
{
    uint8_t data[4] = { 0 };
    memset(data, NEVER, bytes);
    shadow_answer(&s, at, data, bytes);
    return dxpu_get_le32(data);
}

/* The capability in the list that is shown; 0: it is not there. */
static unsigned find(uint8_t id)
{
    unsigned at = seen(0x34, 1), hops = 0;
    for (; at; at = seen(at + 1, 1)) {
        assert_true(at >= 0x40 && at % 4 == 0 && ++hops < 49);
        assert_int_equal(seen(at, 1), s.shown[at]); /* none that changes */
        if (s.shown[at] == id)
            return at;
    }
    return 0;
}

/* Of extended ones. */
static unsigned find_extended(unsigned id)
{
    unsigned at = 0x100, hops = 0;
    for (; at; at = seen(at, 4) >> 20) {
        assert_true(at >= 0x100 && at % 4 == 0 && ++hops < 961);
        if ((seen(at, 4) & 0xffff) == id)
            return at;
    }
    return 0;
}

static void test_v42_usual_device(void **state)
{
    (void)state;
    assert_null(init(SHADOW_AUTO));
    assert_int_equal(s.bar[0].bytes, 0x4000);
    assert_int_equal(s.bar[2].bytes, 0x1000);
    assert_int_equal(find(0x01), POWER);
    assert_int_equal(find(0x05), MSI);
    assert_int_equal(find(0x10), EXPRESS);
    assert_int_equal(find(0x11), 0);
    assert_int_equal(find_extended(1), AER);
    assert_int_equal(find_extended(3), SERIAL);
    assert_int_equal(s.messages, 32);
    assert_int_equal(s.vectors, VECTORS);
    assert_true(s.pin && seen(0x3d, 1) == 1);
    assert_null(init(SHADOW_MSIX));
    assert_true(find(0x05) == MSI && find(0x11) == MSIX && s.msix_shown);
    image[MSI] = 0x09; /* vendor's: then MSI is shown in the place of MSI-X */
    assert_null(init(SHADOW_AUTO));
    assert_true(find(0x05) == MSIX && s.replaced && s.messages == 32);
}

/* Their drivers use no MSI. */
static void test_v42_virtio_keeps_msix(void **state)
{
    static const uint32_t virtio[] = { 0x10001af4, 0x10421af4, 0x107f1af4 },
                          others[] = { 0x10801af4, 0x10f11af4, 0x10421af5, 0x0fff1af4 };
    (void)state;
    image[MSI] = 0x09;
    for (unsigned i = 0; i < sizeof virtio / sizeof virtio[0]; i++) {
        dxpu_put_le32(image, virtio[i]);
        assert_null(init(SHADOW_AUTO));
        assert_true(s.msix_shown && find(0x11) == MSIX);
        assert_null(init(SHADOW_MSI));
        assert_true(s.replaced);
    }
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        dxpu_put_le32(image, others[i]);
        assert_null(init(SHADOW_AUTO));
        assert_true(s.replaced && find(0x05) == MSIX);
    }
}

static void test_v46_lists_with_loops(void **state)
{
    (void)state;
    link_cap(MSIX, 0x11, POWER);
    assert_non_null(init(SHADOW_AUTO));
    link_cap(MSIX, 0x11, MSIX);
    assert_non_null(init(SHADOW_AUTO));
    link_cap(MSIX, 0x11, 0);
    assert_null(init(SHADOW_AUTO)); /* control */
    link_extended(SERIAL, 3, AER);
    assert_non_null(init(SHADOW_AUTO));
    link_extended(SERIAL, 3, SERIAL);
    assert_non_null(init(SHADOW_AUTO));
}

/* They end there, for the virtual machine as well. */
static void test_v46_lists_that_lead_elsewhere(void **state)
{
    (void)state;
    link_cap(EXPRESS, 0x10, 0x3f); /* into the header */
    link_extended(AER, 1, 0x44);   /* and out of their part */
    assert_null(init(SHADOW_AUTO));
    assert_int_equal(seen(EXPRESS + 1, 1), 0);
    assert_int_equal(seen(AER, 4) >> 20, 0);
    setup(state);
    link_cap(EXPRESS, 0x10, MSIX + 3); /* reserved bits */
    assert_null(init(SHADOW_MSIX));
    assert_int_equal(find(0x11), MSIX);
    setup(state);
    image[0x34] = 0;
    assert_null(init(SHADOW_AUTO));
    assert_int_equal(seen(0x06, 1) & 0x10, 0); /* no list */
}

static void test_v46_bars_of_impossible_sizes(void **state)
{
    static const uint32_t wrong[] = { 0xa0000000, 0xfffef000, 0x00001000 };
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        sized[2] = wrong[i];
        assert_non_null(init(SHADOW_AUTO));
    }
    setup(state);
    sized[1] = 0xa0000000;
    assert_non_null(init(SHADOW_AUTO));
    sized[1] = 0;
    assert_non_null(init(SHADOW_AUTO));
    sized[1] = 0xfffffff0;
    sized[0] = 0x100c;
    assert_non_null(init(SHADOW_AUTO));
    sized[0] = 0xc;
    assert_null(init(SHADOW_AUTO)); /* control */
    assert_true(s.bar[0].bytes == (uint64_t)1 << 36);
}

/* A type that there is not is one of 32 bits, and the last BAR has no upper half. */
static void test_v46_bars_of_unknown_types(void **state)
{
    (void)state;
    sized[3] = 0xfffff006;
    sized[5] = 0xfffff00c;
    assert_null(init(SHADOW_AUTO));
    assert_int_equal(seen(0x1c, 4), 0);
    assert_int_equal(seen(0x24, 4), 8);
    assert_true(s.bar[3].bytes == 0x1000 && s.bar[5].bytes == 0x1000);
    assert_false(s.bar[5].prefetchable);
}

static void test_v46_impossible_msi(void **state)
{
    (void)state;
    for (unsigned messages = 6; messages < 8; messages++) {
        setup(state);
        dxpu_put_le16(image + MSI + 2, (uint16_t)(0x80 | messages << 1));
        assert_null(init(SHADOW_MSIX));
        assert_int_equal(find(0x05), 0);
        assert_int_equal(find(0x11), MSIX);
    }
    setup(state);
    link_cap(MSI, 0x05, MSI + 16);
    link_cap(MSI + 16, 0x09, EXPRESS);
    assert_null(init(SHADOW_AUTO));
    assert_int_equal(find(0x05), MSI);     /* control */
    dxpu_put_le16(image + MSI + 2, 0x18a); /* with masks it reaches into the next one */
    assert_null(init(SHADOW_AUTO));
    assert_int_equal(find(0x05), MSIX);
}

static void test_v46_second_ones_are_hidden(void **state)
{
    static const uint8_t twice[] = { 0x01, 0x05, 0x10, 0x11 };
    (void)state;
    for (unsigned i = 0; i < sizeof twice; i++) {
        unsigned first, count = 0;
        setup(state);
        image[MSIX + 1] = 0xc0;
        memcpy(image + 0xc0,
               image + (twice[i] == 0x11   ? MSIX
                        : twice[i] == 0x10 ? EXPRESS
                        : twice[i] == 0x05 ? MSI
                                           : POWER),
               0x18);
        image[0xc1] = 0;
        assert_null(init(SHADOW_MSIX));
        first = find(twice[i]);
        for (unsigned at = seen(0x34, 1); at; at = seen(at + 1, 1))
            count += s.shown[at] == twice[i];
        assert_true(first && first != 0xc0 && count == 1);
    }
}

static void test_v46_msix_outside_of_bars(void **state)
{
    static const uint32_t wrong[] = { 6, 7, 1, 3, 0x4000, 0x3ff8, 0xfffffff8 };
    (void)state;
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        for (unsigned which = 4; which <= 8; which += 4) {
            setup(state);
            dxpu_put_le32(image + MSIX + which, wrong[i]);
            assert_null(init(SHADOW_MSIX));
            if (wrong[i] == 0x3ff8 && which == 8) /* as far as it goes: 8 bytes */
                assert_int_equal(find(0x11), MSIX);
            else
                assert_true(find(0x11) == 0 && s.vectors == 0);
            assert_false(shadow_is_table(&s, 0, TABLE, 4) && !s.vectors);
        }
    }
    setup(state);
    image[MSIX + 1] = 0;
    link_cap(EXPRESS, 0x10, 0xf8); /* at the end, where it has no room */
    link_cap(0xf8, 0x11, 0);
    assert_null(init(SHADOW_MSIX));
    assert_int_equal(find(0x11), 0);
}

static void test_v46_what_is_read_again_is_the_same(void **state)
{
    (void)state;
    assert_null(init(SHADOW_MSIX));
    assert_int_equal(seen(MSIX + 2, 2) & 0x7ff, VECTORS - 1);
    assert_int_equal(seen(MSIX + 2, 2) & 0xc000, (NEVER << 8 | NEVER) & 0xc000); /* control */
    assert_int_equal(seen(MSIX + 4, 4), TABLE);
    assert_int_equal(seen(MSIX + 8, 4), PBA);
    assert_int_equal(seen(MSI + 2, 2), 0x8a);
    assert_int_equal(seen(AER, 4), SERIAL << 20 | 0x10001);
    assert_int_equal(seen(0x3d, 1), 1);
    assert_int_equal(seen(0x06, 1) & 0x10, 0x10);
}

static void test_v46_interrupt_pins(void **state)
{
    (void)state;
    for (unsigned pin = 0; pin < 256; pin++) {
        image[0x3d] = (uint8_t)pin;
        assert_null(init(SHADOW_AUTO));
        assert_int_equal(s.pin, pin == 1);
        assert_int_equal(seen(0x3d, 1), pin == 1);
    }
}

static void test_v46_extended_ones_without_room(void **state)
{
    (void)state;
    link_extended(SERIAL, 3, SERIAL + 4);
    link_extended(SERIAL + 4, 0x0b, 0xffc);
    link_extended(0xffc, 0x0b, 0);
    assert_null(init(SHADOW_AUTO));
    assert_int_equal(find_extended(3), 0);
    assert_int_equal(find_extended(0x0b), SERIAL + 4);
    assert_int_equal(seen(0xffc, 4), 0);
}

static void test_v42_what_cannot_be_followed_is_hidden(void **state)
{
    static const uint16_t extended[] = { 0x0e, 0x0f, 0x10, 0x11, 0x13, 0x15, 0x1b, 0x24 };
    (void)state;
    for (unsigned i = 0; i < sizeof extended / sizeof extended[0]; i++) {
        setup(state);
        link_extended(SERIAL, extended[i], 0x200);
        link_extended(0x200, 0x0b, 0);
        assert_null(init(SHADOW_AUTO));
        assert_int_equal(find_extended(extended[i]), 0);
        assert_int_equal(find_extended(0x0b), 0x200);
    }
    for (uint8_t id = 0x13; id <= 0x14; id++) {
        setup(state);
        link_cap(POWER, id, MSI);
        assert_null(init(SHADOW_AUTO));
        assert_int_equal(find(id), 0);
        assert_int_equal(find(0x05), MSI);
    }
}

static void test_v42_power_states_reset_nothing(void **state)
{
    uint8_t d3[4] = { 0x03, 0x81, 0, 0 };
    (void)state;
    assert_null(init(SHADOW_AUTO));
    assert_int_equal(seen(POWER + 4, 1) & 0xb, 8); /* No_Soft_Reset */
    assert_true(shadow_take(&s, POWER + 4, d3, 4).forward);
    assert_int_equal(d3[0], 0); /* the device stays in D0, */
    assert_int_equal(d3[1], 0x81);
    assert_int_equal(seen(POWER + 4, 1) & 0xb, 0xb); /* and seems to be in D3hot */
    shadow_reset(&s);
    assert_int_equal(seen(POWER + 4, 1) & 0xb, 8);
}

/* The device has the largest payload, whatever the virtual machine sets for its own bus. */
static void test_v42_largest_payload(void **state)
{
    shadow_write w[SHADOW_WRITES_MAX];
    uint8_t control[2] = { 0x5f, 0x29 };
    unsigned n;
    (void)state;
    image[EXPRESS + 4] = 5;
    assert_null(init(SHADOW_AUTO));
    n = shadow_setup(&s, w);
    assert_int_equal(w[n - 2].at, EXPRESS + 8);
    assert_int_equal(w[n - 2].bytes, 1);
    assert_int_equal(w[n - 2].value, 0xb0);
    assert_int_equal(seen(EXPRESS + 8, 1) & 0xe0, 0);
    assert_true(shadow_take(&s, EXPRESS + 8, control, 2).forward);
    assert_int_equal(control[0], 0xbf);
    assert_int_equal(control[1], 0x29);
    assert_int_equal(seen(EXPRESS + 8, 1) & 0xe0, 0x40);
    shadow_reset(&s);
    assert_int_equal(seen(EXPRESS + 8, 1) & 0xe0, 0);
    assert_int_equal(s.mps, 5);
    image[EXPRESS + 4] = 7; /* reserved */
    assert_null(init(SHADOW_AUTO));
    assert_int_equal(s.mps, 5);
}

/* A write of the whole dword: nothing of it is the device's. */
static void test_v43_msi_enabled_by_a_dword(void **state)
{
    shadow_write w[SHADOW_WRITES_MAX];
    uint8_t enable[4] = { 0x05, EXPRESS, 0x8b, 0 };
    (void)state;
    for (unsigned replaced = 0; replaced < 2; replaced++) {
        unsigned at = replaced ? MSIX : MSI, n;
        shadow_effect e;
        setup(state);
        image[MSI] = replaced ? 0x09 : 0x05;
        assert_null(init(SHADOW_AUTO));
        e = shadow_take(&s, at, enable, 4);
        assert_true(e.interrupts && !e.forward);
        n = shadow_interrupts(&s, w);
        assert_int_equal(w[n - 1].at, at + 2);
        assert_int_equal(w[n - 1].value & (replaced ? 0x8000 : 1), replaced ? 0x8000 : 1);
        dxpu_put_le32(enable, 0x8b0005u | (uint32_t)EXPRESS << 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_v42_usual_device, setup),
        cmocka_unit_test_setup(test_v42_virtio_keeps_msix, setup),
        cmocka_unit_test_setup(test_v46_lists_with_loops, setup),
        cmocka_unit_test_setup(test_v46_lists_that_lead_elsewhere, setup),
        cmocka_unit_test_setup(test_v46_bars_of_impossible_sizes, setup),
        cmocka_unit_test_setup(test_v46_bars_of_unknown_types, setup),
        cmocka_unit_test_setup(test_v46_impossible_msi, setup),
        cmocka_unit_test_setup(test_v46_second_ones_are_hidden, setup),
        cmocka_unit_test_setup(test_v46_msix_outside_of_bars, setup),
        cmocka_unit_test_setup(test_v46_what_is_read_again_is_the_same, setup),
        cmocka_unit_test_setup(test_v46_interrupt_pins, setup),
        cmocka_unit_test_setup(test_v46_extended_ones_without_room, setup),
        cmocka_unit_test_setup(test_v42_what_cannot_be_followed_is_hidden, setup),
        cmocka_unit_test_setup(test_v42_power_states_reset_nothing, setup),
        cmocka_unit_test_setup(test_v42_largest_payload, setup),
        cmocka_unit_test_setup(test_v43_msi_enabled_by_a_dword, setup),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
