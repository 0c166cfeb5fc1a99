/* unit_guest.c - what accesses of the guest become: TLPs in order, writes combined; and status.
   The vfio-user server and the slots are played here.
   SPDX-License-Identifier: MIT */

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bridge_internal.h"
#include "dxpu_libevent.h"
#include "probe.h"

#include <errno.h>
#include <string.h>

enum { SENT_MAX = 64, SLOTS = 2, EVENTS_MAX = 8 };
#define BAR2  0x80000000u
#define BAR4  0x4000000000u
#define PREF  0x100000u /* offset of slot 1's prefetchable window in BAR4; slot 2's is behind it */
#define PLAIN 0x100000u /* of slot 1's other window in BAR2 */
#define MB    0x100000u

typedef struct sent_tlp {
    unsigned slot;
    dxpu_tlp t;
    uint8_t payload[DXPU_TLP_PAYLOAD_MAX_BYTES];
    uint64_t user;
} sent_tlp;

static bridge the;
static guest_settings settings;
static guest_slot the_slots[SLOTS];
static sent_tlp sent[SENT_MAX];
static unsigned count, replies, errors, interrupts;
static uint64_t last_token;
static uint8_t last_data[ACCESS_BYTES];
static bool refuse_all, no_way;
static uint8_t events[EVENTS_MAX]; /* of slot 1, with their flags */
static unsigned event_count;
static unsigned reached; /* times that a slot was made to notify its box */
static windows the_reach[SLOTS];
static dxpu_vfu_memory regions[2];
static uint32_t region_count, region_changes;
static void (*in_process)(void);

/* ==== The slots =============================================================================== */

bool slot_send(guest_slot *s, dxpu_tlp *t, uint64_t user, uint64_t now_ns)
{
    sent_tlp *o = &sent[count];
    (void)now_ns;
    assert_true(count < SENT_MAX);
    assert_int_equal(dxpu_tlp_check(t), DXPU_OK);
    if (refuse_all)
        return false;
    count++;
    o->slot = (unsigned)(s - the_slots) + 1;
    o->t = *t;
    o->user = user;
    if (t->payload.len)
        memcpy(o->payload, t->payload.ptr, t->payload.len);
    return true;
}

void slot_event(guest_slot *s, uint8_t type, uint8_t flags)
{
    if (s == the_slots && event_count < EVENTS_MAX)
        events[event_count++] = (uint8_t)(type | flags);
}

void slot_reach(guest_slot *s)
{
    reached++;
    windows_clear(&the_reach[s - the_slots]);
    bridge_on_reach(&the, (unsigned)(s - the_slots) + 1, &the_reach[s - the_slots]);
}

bool slot_congested(const guest_slot *s)
{
    (void)s;
    return false;
}

int slot_init(guest_slot *s, unsigned n, const slot_host *h, const slot_line *l, uint64_t ns)
{
    (void)s;
    (void)n;
    (void)h;
    (void)l;
    (void)ns;
    return 0;
}

void slot_free(guest_slot *s)
{
    (void)s;
}

void slot_begin(guest_slot *s)
{
    (void)s;
}

void slot_close(guest_slot *s, uint8_t reason)
{
    (void)s;
    (void)reason;
}

void slot_up(guest_slot *s, const char *whose, uint64_t now_ns)
{
    (void)s;
    (void)whose;
    (void)now_ns;
}

void slot_down(guest_slot *s)
{
    (void)s;
}

bool slot_work(guest_slot *s, uint64_t now_ns)
{
    (void)s;
    (void)now_ns;
    return false;
}

void slot_tick(guest_slot *s, uint64_t now_ns)
{
    (void)s;
    (void)now_ns;
}

uint64_t slot_next_ns(const guest_slot *s)
{
    (void)s;
    return DXPU_NEVER;
}

void slot_report(const guest_slot *s, report *r)
{
    (void)s;
    (void)r;
}

/* ==== The server ============================================================================== */

void dxpu_vfu_config_default(dxpu_vfu_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
}

dxpu_vfu *dxpu_vfu_open(const dxpu_vfu_config *cfg, const dxpu_vfu_callbacks *cb, const char **why)
{
    (void)cfg;
    (void)cb;
    *why = "not here";
    return NULL;
}

void dxpu_vfu_close(dxpu_vfu *s)
{
    (void)s;
}

int dxpu_vfu_fd(const dxpu_vfu *s)
{
    (void)s;
    return -1;
}

int dxpu_vfu_process(dxpu_vfu *s)
{
    (void)s;
    in_process();
    return DXPU_OK;
}

uint32_t dxpu_vfu_memory_changes(const dxpu_vfu *s)
{
    (void)s;
    return region_changes;
}

bool dxpu_vfu_memory_at(const dxpu_vfu *s, uint32_t i, dxpu_vfu_memory *out)
{
    (void)s;
    if (i >= region_count)
        return false;
    *out = regions[i];
    return true;
}

void dxpu_vfu_pause(dxpu_vfu *s, bool pause)
{
    (void)s;
    (void)pause;
}

int dxpu_vfu_reply_read(dxpu_vfu *s, uint64_t token, const void *data, size_t bytes)
{
    (void)s;
    if (data && bytes <= sizeof last_data)
        memcpy(last_data, data, bytes);
    last_token = token;
    replies++;
    return DXPU_OK;
}

int dxpu_vfu_reply_write(dxpu_vfu *s, uint64_t token)
{
    return dxpu_vfu_reply_read(s, token, NULL, 0);
}

int dxpu_vfu_reply_error(dxpu_vfu *s, uint64_t token, int error)
{
    (void)s;
    (void)token;
    (void)error;
    errors++;
    return DXPU_OK;
}

int dxpu_vfu_dma_read(dxpu_vfu *s, uint64_t address, void *data, size_t bytes)
{
    (void)s;
    (void)address;
    (void)data;
    (void)bytes;
    return DXPU_E_NONE;
}

int dxpu_vfu_dma_write(dxpu_vfu *s, uint64_t address, const void *data, size_t bytes)
{
    (void)s;
    (void)address;
    (void)data;
    (void)bytes;
    return DXPU_E_NONE;
}

int dxpu_vfu_msi(dxpu_vfu *s, uint64_t address, uint32_t data)
{
    (void)s;
    (void)address;
    (void)data;
    if (no_way)
        return DXPU_E_AGAIN;
    interrupts++;
    return DXPU_OK;
}

const dxpu_vfu_counters *dxpu_vfu_count(const dxpu_vfu *s)
{
    static dxpu_vfu_counters counters;
    (void)s;
    return &counters;
}

int dxpu_vfu_client(const dxpu_vfu *s)
{
    (void)s;
    return -1;
}

const char *dxpu_vfu_counter_name(unsigned index)
{
    (void)index;
    return NULL;
}

uint64_t dxpu_vfu_counter_value(const dxpu_vfu *s, unsigned index)
{
    (void)s;
    (void)index;
    return 0;
}

/* ==== The guest =============================================================================== */

static void write_at(uint32_t region, uint64_t offset, const void *data, uint32_t bytes)
{
    dxpu_vfu_access a = { 0, offset, region, bytes };
    bridge_on_write(&the, &a, data);
}

static void write32(uint32_t region, uint64_t offset, uint32_t value)
{
    uint8_t data[4];
    dxpu_put_le32(data, value);
    write_at(region, offset, data, 4);
}

static void write8(uint64_t offset, unsigned value)
{
    uint8_t byte = (uint8_t)value;
    write_at(4, offset, &byte, 1);
}

static void read_at(uint32_t region, uint64_t offset, uint32_t bytes)
{
    dxpu_vfu_access a = { 77, offset, region, bytes };
    bridge_on_read(&the, &a);
}

static uint64_t ecam(unsigned bus, unsigned device, unsigned at)
{
    return (uint64_t)bus << 20 | device << 15 | at;
}

/* The guest numbers the buses and gives each slot 1 MB prefetchable; slot 1 also 1 MB else. */
static void enumerate_buses(void)
{
    write32(DXPU_VFU_CONFIG, 0x18, BAR2);
    write32(DXPU_VFU_CONFIG, 0x20, (uint32_t)BAR4);
    write32(DXPU_VFU_CONFIG, 0x24, (uint32_t)(BAR4 >> 32));
    for (unsigned i = 0; i < SLOTS; i++) {
        uint32_t pref = (uint32_t)(BAR4 + PREF + i * MB) >> 16;
        write32(0, ecam(0, i + 1, 0x18), (i + 1) << 16 | (i + 1) << 8);
        write32(0, ecam(0, i + 1, 0x24), pref << 16 | pref);
        write32(0, ecam(0, i + 1, 0x28), (uint32_t)(BAR4 >> 32));
        write32(0, ecam(0, i + 1, 0x2c), (uint32_t)(BAR4 >> 32));
        if (i == 0)
            write32(0, ecam(0, 1, 0x20), (BAR2 + PLAIN) | (BAR2 + PLAIN) >> 16);
        write32(0, ecam(0, i + 1, 0x04), 0x6);
    }
    count = replies = errors = interrupts = 0;
}

static int setup(void **state)
{
    (void)state;
    memset(&the, 0, sizeof the);
    memset(the_slots, 0, sizeof the_slots);
    memset(&settings, 0, sizeof settings);
    settings.slots = SLOTS;
    settings.form = &bridge_form;
    settings.bar2_bytes = 64 * MB;
    settings.bar4_bytes = 64 * MB;
    the.guest.set = &settings;
    the.accesses.deadline_ns = DXPU_NEVER;
    the.accesses.send = bridge_send_memory;
    the.accesses.unread = bridge_on_unread;
    the.accesses.user = &the;
    the.guest.hold_ns = the.accesses.hold_ns = 1000000000u;
    assert_int_equal(bridge_open_switch(&the), 0);
    the.guest.slots = the_slots;
    for (unsigned i = 0; i < SLOTS; i++) {
        the_slots[i].number = i + 1;
        assert_int_equal(dxpu_vswitch_insert(&the.vs, (uint8_t)(i + 1), 4, 16), DXPU_OK);
    }
    enumerate_buses();
    refuse_all = no_way = false;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    region_count = 0;
    windows_free(&the.memory);
    for (unsigned i = 0; i < SLOTS; i++)
        windows_free(&the_reach[i]);
    return 0;
}

static void check_write(unsigned at, unsigned slot, uint64_t address, unsigned dw, unsigned first,
                        unsigned last)
{
    assert_true(at < count);
    assert_int_equal(sent[at].slot, slot);
    assert_int_equal(sent[at].t.type, DXPU_TLP_MWR);
    assert_true(sent[at].t.address == address);
    assert_int_equal(sent[at].t.length_dw, dw);
    assert_int_equal(sent[at].t.first_be, first);
    assert_int_equal(sent[at].t.last_be, last);
}

/* ==== Tests =================================================================================== */

static void test_bytes_become_one_line(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(count, 0);
        write8(PREF + i, i);
    }
    assert_int_equal(count, 1); /* nothing more can follow within the line */
    check_write(0, 1, BAR4 + PREF, 16, 0xf, 0xf);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(sent[0].payload[i], i);
    assert_int_equal(the.accesses.line.combined, 63);
    assert_int_equal(the.memory_writes, 64);
    write32(2, PLAIN, 1); /* the control: elsewhere each write is one TLP, at once */
    write32(2, PLAIN + 4, 2);
    assert_int_equal(count, 3);
    check_write(1, 1, BAR2 + PLAIN, 1, 0xf, 0);
    check_write(2, 1, BAR2 + PLAIN + 4, 1, 0xf, 0);
}

static void test_byte_enables_of_a_part(void **state)
{
    (void)state;
    for (unsigned i = 3; i < 10; i++)
        write8(PREF + i, i);
    assert_int_equal(count, 0);
    write8(PREF + 11, 11); /* leaves one out */
    assert_int_equal(count, 1);
    check_write(0, 1, BAR4 + PREF, 3, 0x8, 0x3);
    for (unsigned i = 3; i < 10; i++)
        assert_int_equal(sent[0].payload[i], i);
    access_flush(&the.accesses);
    check_write(1, 1, BAR4 + PREF + 8, 1, 0x8, 0);
    access_flush(&the.accesses);
    assert_int_equal(count, 2);
}

static void test_order_among_writes(void **state)
{
    (void)state;
    write8(PREF, 1);
    write32(2, PLAIN, 2); /* a doorbell must not pass what it is about */
    assert_int_equal(count, 2);
    check_write(0, 1, BAR4 + PREF, 1, 0x1, 0);
    check_write(1, 1, BAR2 + PLAIN, 1, 0xf, 0);
    write8(PREF + 4, 3);
    write8(PREF + MB, 4); /* another slot's */
    assert_int_equal(count, 3);
    write8(PREF + MB, 5); /* the same byte again */
    assert_int_equal(count, 4);
    access_flush(&the.accesses);
    check_write(2, 1, BAR4 + PREF + 4, 1, 0x1, 0);
    check_write(3, 2, BAR4 + PREF + MB, 1, 0x1, 0);
    check_write(4, 2, BAR4 + PREF + MB, 1, 0x1, 0);
    assert_int_equal(sent[3].payload[0], 4);
    assert_int_equal(sent[4].payload[0], 5);
}

static void test_before_reads_and_configuration(void **state)
{
    (void)state;
    write8(PREF, 1);
    read_at(4, PREF + 8, 4);
    assert_int_equal(count, 2);
    check_write(0, 1, BAR4 + PREF, 1, 0x1, 0);
    assert_int_equal(sent[1].t.type, DXPU_TLP_MRD);
    write8(PREF, 2);
    read_at(2, PLAIN, 4); /* whatever it reads */
    assert_int_equal(count, 4);
    check_write(2, 1, BAR4 + PREF, 1, 0x1, 0);
    write8(PREF, 3);
    read_at(0, ecam(1, 0, 0), 4);
    assert_int_equal(count, 6);
    assert_int_equal(sent[5].t.type, DXPU_TLP_CFGRD0);
    write8(PREF, 4);
    write32(0, ecam(1, 0, 4), 0x6);
    assert_int_equal(count, 8);
    assert_int_equal(sent[6].t.type, DXPU_TLP_MWR);
    assert_int_equal(sent[7].t.type, DXPU_TLP_CFGWR0);
    write8(PREF, 5);
    write32(DXPU_VFU_CONFIG, 0x20, (uint32_t)BAR4); /* the BAR itself may move */
    assert_int_equal(count, 9);
    write8(PREF, 6);
    write32(0, ecam(0, 1, 4), 0); /* so may the window: sent while it is still there */
    assert_int_equal(count, 10);
    check_write(9, 1, BAR4 + PREF, 1, 0x1, 0);
}

static void write_some(void)
{
    write8(PREF, 1);
    write8(PREF + 1, 2);
    assert_int_equal(count, 0);
}

static void test_nothing_is_held_back_when_idle(void **state)
{
    (void)state;
    in_process = write_some;
    assert_int_equal(guest_process(&the.guest), 0);
    assert_int_equal(count, 1);
    check_write(0, 1, BAR4 + PREF, 1, 0x3, 0);
    write8(PREF, 1);
    bridge_machine_reset(&the);
    assert_int_equal(count, 2);
}

/* No driver goes on, which a hot reset does not say; a slot without a device is left alone. */
static void test_v5_a_machine_reset_is_a_loss_of_power(void **state)
{
    static const uint8_t wanted[] = { DXPU_EVENT_SLOT_POWER, DXPU_EVENT_SLOT_POWER | DXPU_EVENT_ON,
                                      DXPU_EVENT_HOT_RESET | DXPU_EVENT_ON, DXPU_EVENT_HOT_RESET };
    (void)state;
    event_count = 0;
    bridge_machine_reset(&the);
    assert_int_equal(event_count, sizeof wanted);
    assert_memory_equal(events, wanted, sizeof wanted);
    (void)dxpu_vswitch_remove(&the.vs, 1);
    event_count = 0;
    bridge_machine_reset(&the);
    assert_int_equal(event_count, 0);
}

/* A write that no line can hold is not combined, and cut into parts of 64 bytes. */
static void test_long_writes_are_cut(void **state)
{
    uint8_t data[100];
    (void)state;
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    write8(PREF + 31, 0xee);
    write_at(4, PREF + 32, data, sizeof data);
    assert_int_equal(count, 3);
    check_write(0, 1, BAR4 + PREF + 28, 1, 0x8, 0);
    check_write(1, 1, BAR4 + PREF + 32, 16, 0xf, 0xf);
    check_write(2, 1, BAR4 + PREF + 96, 9, 0xf, 0xf);
    assert_int_equal(sent[2].payload[35], 99);
    assert_int_equal(the.accesses.line.combined, 0);
}

static void test_where_no_device_is(void **state)
{
    (void)state;
    write32(4, PREF + 8 * MB, 1);
    assert_int_equal(count, 0);
    assert_int_equal(the.unclaimed, 1);
    read_at(4, PREF + 8 * MB, 4); /* all ones, at once */
    assert_int_equal(replies, 1);
    assert_int_equal(last_token, 77);
    write32(4, 0x100, 1); /* its own MSI-X table */
    assert_int_equal(the.unclaimed, 2);
    refuse_all = true;
    read_at(4, PREF, 4);
    assert_int_equal(replies, 2);
    read_at(4, PREF, ACCESS_BYTES + 1);
    assert_int_equal(errors, 1);
}

static void test_m20_no_room_is_reported(void **state)
{
    guest_view out;
    char text[120];
    guest_slot *s = &the_slots[0];
    (void)state;
    (void)dxpu_vswitch_remove(&the.vs, 1);
    s->up = true;
    s->probe.sized[0][0] = 0xc; /* 1 TB, prefetchable */
    s->probe.sized[0][1] = 0xffffff00;
    s->probe.running = true;
    out = guest_look(&the.guest, 1);
    assert_int_equal(out.state, GUEST_LOOKS);
    s->probe.running = false;
    bridge_on_filled(&the, 1, true);
    out = guest_look(&the.guest, 1);
    assert_int_equal(out.state, GUEST_NO_ROOM);
    assert_string_equal(out.note, "larger --bar2 or --bar4");
    settings.topology = the.vs.cfg.topology = DXPU_VSWITCH_SWITCH;
    bridge_remedy(&the, (uint64_t)1 << 32, text, sizeof text);
    assert_string_equal(text, "guest parameter pci=hpmmioprefsize=8G and --bar4 32G");
    for (unsigned bit = 40; bit < 64; bit++) { /* no --bar4 helps, whatever size a box reports */
        bridge_remedy(&the, (uint64_t)1 << bit, text, sizeof text);
        assert_string_equal(text, "");
    }
    settings.topology = the.vs.cfg.topology = DXPU_VSWITCH_ROOT_PORTS;
    s->probe.sized[0][0] = 0xffff000c; /* 64 KB */
    s->probe.sized[0][1] = 0xffffffff;
    bridge_on_filled(&the, 1, true);
    out = guest_look(&the.guest, 1);
    assert_int_equal(out.state, GUEST_SHOWN);
    assert_string_equal(out.note, "");
    s->probe.failed = true; /* one whose BARs could not be read */
    out = guest_look(&the.guest, 1);
    assert_int_equal(out.state, GUEST_UNREADABLE);
}

static const dxpu_vswitch_values nothing;

/* The device of slot 1 is gone, which declared these. */
static void lose(const dxpu_vswitch_values *values)
{
    bridge_on_lost(&the, 1, values);
    bridge_on_filled(&the, 1, false);
}

static uint32_t read32(uint64_t offset)
{
    read_at(0, offset, 4);
    return dxpu_get_le32(last_data);
}

/* Messages of the device in slot 1 end in its root port's registers, with an interrupt. */
static void test_v12_errors_reach_the_root_port(void **state)
{
    enum { BRIDGE = 0x3c, MSI = 0x80, ENABLE = 0x12c, STATUS = 0x130, SOURCE = 0x134 };
    dxpu_tlp t;
    (void)state;
    write32(0, ecam(0, 1, BRIDGE), 0x00020000); /* SERR Enable */
    write32(0, ecam(0, 1, MSI + 4), 0xfee01000);
    write32(0, ecam(0, 1, MSI), 0x00010000);
    write32(0, ecam(0, 1, ENABLE), 0x7);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSG;
    t.header_dw = 4;
    t.message_code = 0x31; /* ERR_NONFATAL */
    t.requester = DXPU_BDF(2, 0, 0);
    assert_false(bridge_on_message(&the, 1, &t)); /* in the name of slot 2's device */
    assert_int_equal(read32(ecam(0, 1, STATUS)) & 0x7f, 0);
    assert_int_equal(read32(ecam(0, 2, STATUS)) & 0x7f, 0);
    assert_int_equal(interrupts, 0);
    t.requester = DXPU_BDF(1, 0, 3);
    assert_true(bridge_on_message(&the, 1, &t));
    assert_int_equal(read32(ecam(0, 1, STATUS)) & 0x7f, 0x24);
    assert_int_equal(read32(ecam(0, 1, SOURCE)) >> 16, DXPU_BDF(1, 0, 3));
    assert_int_equal(interrupts, 1);
}

static void do_nothing(void)
{
}

/* An interrupt of a port for which there is no room is sent when there is, and once. */
static void test_v7_interrupts_wait_for_room(void **state)
{
    (void)state;
    write32(0, ecam(0, 1, 0x84), 0xfee01000); /* MSI, then hot-plug interrupts for presence */
    write32(0, ecam(0, 1, 0x80), 0x00010000);
    write32(0, ecam(0, 1, 0x58), 0x01091028);
    interrupts = 0;
    no_way = true;
    lose(&nothing);
    write32(0, ecam(0, 1, 0x58), 0x01091028); /* seen, and there it is again */
    bridge_on_filled(&the, 1, true);
    in_process = do_nothing;
    assert_int_equal(guest_process(&the.guest), 0);
    assert_int_equal(interrupts, 0);
    no_way = false;
    assert_int_equal(guest_process(&the.guest), 0);
    assert_int_equal(interrupts, 1);
    assert_int_equal(guest_process(&the.guest), 0);
    assert_int_equal(interrupts, 1);
}

/* One that waits when MSI is disabled, or the machine reset, does not go to the old address. */
static void test_v7_interrupts_that_wait_may_be_over(void **state)
{
    (void)state;
    in_process = do_nothing;
    for (unsigned reset = 0; reset < 2; reset++) {
        write32(0, ecam(0, 1, 0x84), 0xfee01000);
        write32(0, ecam(0, 1, 0x80), 0x00010000);
        write32(0, ecam(0, 1, 0x58), 0x01091028);
        no_way = true;
        lose(&nothing);
        interrupts = 0;
        assert_true(the.owed);
        if (reset)
            bridge_on_reset(&the, 0);
        else
            write32(0, ecam(0, 1, 0x80), 0);
        no_way = false;
        assert_int_equal(guest_process(&the.guest), 0);
        assert_int_equal(interrupts, 0);
        assert_false(the.owed);
        bridge_on_filled(&the, 1, true);
    }
}

/* A completion with this dword for a request that went down. */
static void complete(uint64_t user, uint8_t value)
{
    uint8_t data[4] = { value, value, value, value };
    dxpu_tlp cpl;
    memset(&cpl, 0, sizeof cpl);
    cpl.type = DXPU_TLP_CPLD;
    cpl.length_dw = 1;
    cpl.byte_count = 4;
    cpl.payload.ptr = data;
    cpl.payload.len = 4;
    bridge_on_completion(&the, &cpl, user, true);
}

/* Its 64-bit BAR is where slot 1's prefetchable window begins; it declares a byte of it. */
static dxpu_vswitch_values place_device(void)
{
    static uint32_t sized[PROBE_FUNCTIONS][PROBE_BARS] = { { 0xffff000c, UINT32_MAX } };
    dxpu_vswitch_values v = { 1, { { .offset = 0x14, .bytes = 1 } } };
    write32(0, ecam(1, 0, 0x10), (uint32_t)(BAR4 + PREF) | 0xc);
    write32(0, ecam(1, 0, 0x14), (uint32_t)(BAR4 >> 32));
    write32(0, ecam(1, 0, 0x04), 6);
    assert_int_equal(dxpu_vswitch_values_fit(&v, sized), 0);
    count = 0;
    return v;
}

/* Those that are in flight then, and those that follow; of any width. */
static void test_v51_reads_of_a_lost_device(void **state)
{
    static const uint32_t widths[] = { 1, 2, 4, 8, 12, 40 };
    dxpu_vswitch_values v = place_device();
    (void)state;
    read_at(4, PREF + 0x14, 1);
    assert_int_equal(count, 1);
    bridge_on_lost(&the, 1, &v);
    bridge_on_completion(&the, NULL, sent[0].user, true);
    assert_int_equal(replies, 1);
    assert_int_equal(last_data[0], 0);
    bridge_on_filled(&the, 1, false);
    for (unsigned i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        read_at(4, PREF + 0x14, widths[i]);
        assert_int_equal(replies, i + 2);
        for (unsigned at = 0; at < widths[i]; at++)
            assert_int_equal(last_data[at], at ? 0xff : 0);
    }
    read_at(4, PREF + 8, 32); /* within it */
    for (unsigned at = 0; at < 32; at++)
        assert_int_equal(last_data[at], at == 12 ? 0 : 0xff);
    read_at(4, PREF + MB + 0x14, 4); /* of the next slot */
    assert_int_equal(count, 2);
    assert_int_equal(read32(ecam(1, 0, 0)), UINT32_MAX);
    write8(PREF + 0x14, 1);
    assert_int_equal(count, 2); /* it goes nowhere */
}

/* What does not answer may still write to the guest's memory. */
static void test_v52_device_that_is_not_lost(void **state)
{
    dxpu_tlp cpl;
    (void)state;
    (void)place_device();
    read_at(4, PREF + 0x14, 4);
    read_at(4, PREF + 0x14, 4);
    memset(&cpl, 0, sizeof cpl);
    cpl.type = DXPU_TLP_CPL;
    cpl.status = DXPU_CPL_UR;
    bridge_on_completion(&the, &cpl, sent[0].user, true);
    assert_int_equal(replies, 1);
    assert_int_equal(dxpu_get_le32(last_data), UINT32_MAX);
    memset(last_data, 0, sizeof last_data);
    access_expire(&the.accesses, the.accesses.deadline_ns + 1000000000u);
    assert_int_equal(replies, 2);
    assert_int_equal(dxpu_get_le32(last_data), UINT32_MAX);
    refuse_all = true; /* no room */
    memset(last_data, 0, sizeof last_data);
    read_at(4, PREF + 0x14, 4);
    assert_int_equal(dxpu_get_le32(last_data), UINT32_MAX);
}

/* The next device is there, and refuses what the driver of the lost one reads. */
static void test_v51_driver_that_reads_the_next_device(void **state)
{
    dxpu_vswitch_values v = place_device();
    dxpu_tlp cpl;
    (void)state;
    lose(&v);
    bridge_on_filled(&the, 1, true);
    count = 0;
    memset(&cpl, 0, sizeof cpl);
    cpl.type = DXPU_TLP_CPL;
    cpl.status = DXPU_CPL_UR;
    for (unsigned enabled = 0; enabled < 2; enabled++) {
        read_at(4, PREF + 0x14, 1);
        bridge_on_completion(&the, &cpl, sent[count - 1].user, true);
        assert_int_equal(last_data[0], enabled ? 0xff : 0);
        write32(0, ecam(1, 0, 0x04), 6);
    }
}

/* Read until the place of the first access is repeated; what that one was given for its request. */
static uint64_t read_round(void)
{
    uint64_t first;
    count = 0;
    read_at(4, PREF, 4);
    first = sent[0].user;
    for (unsigned i = 1; i < ACCESSES; i++) {
        count = 0;
        read_at(4, PREF, 4);
        complete(sent[0].user, 1);
    }
    count = 0;
    return first;
}

/* Wherever a request waits, its access is answered in time, and once. */
static void test_v17_accesses_are_answered_in_time_and_once(void **state)
{
    uint64_t first = read_round();
    (void)state;
    assert_int_equal(replies, ACCESSES - 1);
    assert_int_equal(last_data[0], 1);
    assert_true(guest_next_ns(&the.guest) != DXPU_NEVER);
    access_expire(&the.accesses, the.accesses.deadline_ns - 1);
    assert_int_equal(replies, ACCESSES - 1);
    access_expire(&the.accesses, the.accesses.deadline_ns);
    assert_int_equal(replies, ACCESSES);
    assert_int_equal(last_data[0], 0xff);
    assert_int_equal(the.accesses.timeouts, 1);
    assert_true(guest_next_ns(&the.guest) == DXPU_NEVER);
    complete(first, 2); /* late */
    assert_int_equal(replies, ACCESSES);
    read_at(4, PREF, 4); /* in its place */
    complete(first, 2);
    assert_int_equal(replies, ACCESSES);
    complete(sent[0].user, 3);
    assert_int_equal(replies, ACCESSES + 1);
    assert_int_equal(last_data[0], 3);
}

/* What a guest that is gone asked for is not shown to the next one. */
static void test_answers_for_another_guest_are_dropped(void **state)
{
    uint64_t first = read_round();
    (void)state;
    bridge_on_disconnected(&the, "test");
    enumerate_buses();
    assert_int_equal(replies, 0);
    read_at(4, PREF, 4);
    complete(first, 2);
    assert_int_equal(replies, 0);
    complete(sent[0].user, 3);
    assert_int_equal(replies, 1);
    assert_int_equal(last_data[0], 3);
}

static void give_memory(uint64_t address, uint64_t bytes, unsigned access, bool direct)
{
    dxpu_vfu_memory *m = &regions[region_count++];
    m->address = address;
    m->bytes = bytes;
    m->access = access;
    m->direct = direct;
    region_changes++;
}

/* Guest memory as the client maps it, reported before the guest's next access goes anywhere. */
static void test_s103_devices_reach_what_the_client_mapped(void **state)
{
    (void)state;
    write8(PREF, 0);
    reached = 0;
    write8(PREF + 1, 0);
    assert_int_equal(reached, 0); /* the control: nothing new, nothing reported */
    give_memory(0, 0xa0000, DXPU_VFU_READ | DXPU_VFU_WRITE, true);
    give_memory(0xc0000, 0x1000, DXPU_VFU_READ, true);
    write8(PREF + 2, 0);
    assert_int_equal(reached, SLOTS);
    assert_true(windows_allow(&the_reach[0], 0x9f000, 0x1000, WINDOW_READ | WINDOW_WRITE));
    assert_false(windows_allow(&the_reach[0], 0xa0000, 1, WINDOW_READ));
    assert_true(windows_allow(&the_reach[1], 0xc0000, 0x1000, WINDOW_READ));
    assert_false(windows_allow(&the_reach[1], 0xc0000, 1, WINDOW_WRITE));
    regions[0].direct = false; /* behind the client: a device would have to wait for it */
    region_changes++;
    write8(PREF + 3, 0);
    assert_false(windows_allow(&the_reach[0], 0x9f000, 1, WINDOW_READ));
    region_count = 0;
    region_changes++;
    write8(PREF + 4, 0);
    assert_false(windows_allow(&the_reach[1], 0xc0000, 1, WINDOW_READ));
}

/* The windows of the other slot, as its port has them and ACS allows. */
static void test_s103_devices_reach_each_other_as_the_switch_lets_them(void **state)
{
    enum { REDIRECT = 0x4 << 16, ACS = 0x148, CONTROL = ACS + 4 };
    (void)state;
    write32(0, ecam(0, 1, 4), 0x6);
    write8(PREF, 0);
    assert_true(windows_allow(&the_reach[1], BAR4 + PREF, MB, WINDOW_READ | WINDOW_WRITE));
    assert_true(windows_allow(&the_reach[1], BAR2 + PLAIN, MB, WINDOW_READ | WINDOW_WRITE));
    assert_false(windows_allow(&the_reach[0], BAR4 + PREF, 1, WINDOW_READ)); /* its own */
    assert_true(windows_allow(&the_reach[0], BAR4 + PREF + MB, MB, WINDOW_READ));
    write32(0, ecam(0, 2, CONTROL), REDIRECT);
    write8(PREF, 0);
    assert_int_equal(windows_at(&the_reach[1], BAR4 + PREF), 0);
    assert_true(windows_allow(&the_reach[0], BAR4 + PREF + MB, MB, WINDOW_READ));
    write32(0, ecam(0, 2, CONTROL), 0);
    write32(0, ecam(0, 1, 4), 0x4); /* its windows are off */
    write8(PREF, 0);
    assert_int_equal(windows_at(&the_reach[1], BAR4 + PREF), 0);
    assert_int_equal(windows_at(&the_reach[1], BAR2 + PLAIN), 0);
}

static void test_buses_for_twice_what_the_slots_need(void **state)
{
    static const struct {
        unsigned topology, slots, buses;
    } want[] = { { DXPU_VSWITCH_ROOT_PORTS, 1, 16 },  { DXPU_VSWITCH_ROOT_PORTS, 8, 32 },
                 { DXPU_VSWITCH_ROOT_PORTS, 28, 32 }, { DXPU_VSWITCH_SWITCH, 1, 16 },
                 { DXPU_VSWITCH_SWITCH, 5, 16 },      { DXPU_VSWITCH_SWITCH, 28, 32 } };
    (void)state;
    for (unsigned i = 0; i < sizeof want / sizeof *want; i++) {
        settings.topology = want[i].topology;
        settings.slots = want[i].slots;
        assert_int_equal(bridge_open_switch(&the), 0);
        assert_int_equal(the.vs.cfg.buses, want[i].buses);
        assert_int_equal(the.vmd.bar_bytes[0] / MB, want[i].buses);
    }
    settings.slots = 29;
    assert_int_equal(bridge_open_switch(&the), -1);
    settings.slots = SLOTS;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_bytes_become_one_line),
        CASE(test_byte_enables_of_a_part),
        CASE(test_order_among_writes),
        CASE(test_before_reads_and_configuration),
        CASE(test_nothing_is_held_back_when_idle),
        CASE(test_v5_a_machine_reset_is_a_loss_of_power),
        CASE(test_long_writes_are_cut),
        CASE(test_where_no_device_is),
        CASE(test_m20_no_room_is_reported),
        CASE(test_v12_errors_reach_the_root_port),
        CASE(test_v7_interrupts_wait_for_room),
        CASE(test_v7_interrupts_that_wait_may_be_over),
        CASE(test_v17_accesses_are_answered_in_time_and_once),
        CASE(test_v51_reads_of_a_lost_device),
        CASE(test_v52_device_that_is_not_lost),
        CASE(test_v51_driver_that_reads_the_next_device),
        CASE(test_answers_for_another_guest_are_dropped),
        CASE(test_s103_devices_reach_what_the_client_mapped),
        CASE(test_s103_devices_reach_each_other_as_the_switch_lets_them),
        CASE(test_buses_for_twice_what_the_slots_need),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
