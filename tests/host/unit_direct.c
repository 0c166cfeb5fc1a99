/* unit_direct.c - a slot as a function of its own: what its client sees of a device that is slow,
   is lost, or is reset while it works
   SPDX-License-Identifier: MIT

   The slot and the vfio-user server are replaced: requests to the device are kept here until a test
   answers them, and what the client is given is counted. */
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "direct_internal.h"
#include "dxpu_libevent.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    SENT_MAX = 4096,
    POWER = 0x40,
    MSI_CAP = 0x48,
    EXPRESS = 0x60,
    TOKEN = 7,
    BAR_BYTES = 0x4000
};

/* ==== The slot ================================================================================ */

static struct {
    dxpu_tlp t;
    uint64_t user;
    uint8_t data[REQUEST_BYTES + 4];
    bool done;
} sent[SENT_MAX];
static unsigned sent_count, hot_resets, power_offs, power_ons;
static bool congested, takes;
static uint8_t image[SHADOW_BYTES];

int slot_init(guest_slot *s, unsigned number, const slot_host *host, const slot_line *line,
              uint64_t hold_ns)
{
    s->number = number;
    s->host = host;
    s->line = line;
    s->hold_ns = hold_ns;
    return 0;
}

bool slot_send(guest_slot *s, dxpu_tlp *t, uint64_t user, uint64_t now_ns)
{
    (void)s;
    (void)now_ns;
    assert_true(sent_count < SENT_MAX);
    if (!takes)
        return false;
    sent[sent_count].t = *t;
    sent[sent_count].user = user;
    sent[sent_count].done = false;
    if (t->payload.len)
        memcpy(sent[sent_count].data, t->payload.ptr, t->payload.len);
    sent_count++;
    return true;
}

void slot_event(guest_slot *s, uint8_t type, uint8_t flags)
{
    (void)s;
    hot_resets += type == DXPU_EVENT_HOT_RESET && flags;
    power_offs += type == DXPU_EVENT_SLOT_POWER && !flags;
    power_ons += type == DXPU_EVENT_SLOT_POWER && flags;
}

void slot_reach(guest_slot *s)
{
    (void)s;
}

bool slot_congested(const guest_slot *s)
{
    (void)s;
    return congested;
}

void guest_close(guest *g)
{
    free(g->slots);
    direct_form.close(g);
}

const char *guest_socket(const guest_settings *set, unsigned n, char out[GUEST_SOCKET_BYTES])
{
    snprintf(out, GUEST_SOCKET_BYTES, "%s.%u", set->socket, n + 1);
    return out;
}

/* ==== The server ============================================================================== */

static dxpu_vfu_callbacks cb;
static dxpu_vfu_counters counters;
static bool paused, shown, connected, level;
static unsigned writes_answered, reads_answered, levels_off;
static uint8_t last_read[SHADOW_BYTES];

void dxpu_vfu_config_default(dxpu_vfu_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
}

dxpu_vfu *dxpu_vfu_open(const dxpu_vfu_config *cfg, const dxpu_vfu_callbacks *given,
                        const char **why)
{
    (void)cfg;
    *why = NULL;
    cb = *given;
    return (dxpu_vfu *)(void *)&cb; /* none looks into it */
}

void dxpu_vfu_close(dxpu_vfu *s)
{
    (void)s;
}

int dxpu_vfu_fd(const dxpu_vfu *s)
{
    static int ends[2];
    (void)s;
    if (!ends[1])
        assert_int_equal(pipe(ends), 0);
    return ends[0];
}

int dxpu_vfu_process(dxpu_vfu *s)
{
    (void)s;
    return DXPU_OK;
}

void dxpu_vfu_pause(dxpu_vfu *s, bool pause)
{
    (void)s;
    paused = pause;
}

bool dxpu_vfu_is_connected(const dxpu_vfu *s)
{
    (void)s;
    return connected;
}

int dxpu_vfu_present(dxpu_vfu *s, const dxpu_vfu_region *region, const uint32_t *irqs)
{
    (void)s;
    (void)irqs;
    shown = region != NULL;
    return DXPU_OK;
}

int dxpu_vfu_reply_read(dxpu_vfu *s, uint64_t token, const void *data, size_t bytes)
{
    (void)s;
    (void)token;
    reads_answered++;
    memcpy(last_read, data, bytes);
    return DXPU_OK;
}

int dxpu_vfu_reply_write(dxpu_vfu *s, uint64_t token)
{
    (void)s;
    (void)token;
    writes_answered++;
    return DXPU_OK;
}

int dxpu_vfu_reply_error(dxpu_vfu *s, uint64_t token, int error)
{
    (void)s;
    (void)token;
    (void)error;
    return DXPU_OK;
}

int dxpu_vfu_dma_read(dxpu_vfu *s, uint64_t address, void *data, size_t bytes)
{
    (void)s;
    (void)address;
    memset(data, 0, bytes);
    return DXPU_OK;
}

int dxpu_vfu_dma_write(dxpu_vfu *s, uint64_t address, const void *data, size_t bytes)
{
    (void)s;
    (void)address;
    (void)data;
    (void)bytes;
    return DXPU_OK;
}

bool dxpu_vfu_memory_at(const dxpu_vfu *s, uint32_t index, dxpu_vfu_memory *out)
{
    (void)s;
    (void)index;
    (void)out;
    return false;
}

uint32_t dxpu_vfu_memory_changes(const dxpu_vfu *s)
{
    (void)s;
    return 0;
}

int dxpu_vfu_irq_raise(dxpu_vfu *s, uint32_t irq, uint32_t vector)
{
    (void)s;
    (void)irq;
    (void)vector;
    return DXPU_OK;
}

int dxpu_vfu_irq_level(dxpu_vfu *s, uint32_t irq, uint32_t vector, bool on)
{
    (void)s;
    (void)irq;
    (void)vector;
    level = on;
    levels_off += !on;
    return DXPU_OK;
}

const dxpu_vfu_counters *dxpu_vfu_count(const dxpu_vfu *s)
{
    (void)s;
    return &counters;
}

/* ==== A device ================================================================================ */

static const guest_settings settings = { .socket = "vm", .slots = 1, .form = &direct_form };
static const slot_line no_line;
static guest *the;
static direct_function *f;

/* The device completes a request, or does not (status below 0). */
static void complete(unsigned i, int status)
{
    uint8_t data[REQUEST_BYTES];
    dxpu_tlp cpl;
    const dxpu_tlp *t = &sent[i].t;
    sent[i].done = true;
    if (t->type == DXPU_TLP_MWR)
        return;
    dxpu_tlp_completion(t, 0, (uint8_t)(status < 0 ? 0 : status), &cpl);
    memset(data, 0, sizeof data);
    if (t->type == DXPU_TLP_CFGRD0)
        memcpy(data, image + t->register_bytes, 4);
    if (t->type != DXPU_TLP_CFGWR0 && status == DXPU_CPL_SC) {
        cpl.payload.ptr = data;
        cpl.payload.len = t->length_dw * 4u;
        cpl.byte_count = t->length_dw * 4u;
    }
    f->host.completion(f->host.user, status < 0 ? NULL : &cpl, sent[i].user, true);
}

/* All that it was asked, and what follows of that. */
static void answer_all(int status)
{
    for (unsigned i = 0; i < sent_count; i++) {
        if (!sent[i].done)
            complete(i, status);
        direct_form.settle(the, 1);
    }
}

/* How often the device was asked to write there; the last value. */
static unsigned written(unsigned at, uint32_t *value)
{
    unsigned n = 0;
    for (unsigned i = 0; i < sent_count; i++) {
        if (sent[i].t.type == DXPU_TLP_CFGWR0 && sent[i].t.register_bytes == (at & ~3u)) {
            n++;
            *value = dxpu_get_le32(sent[i].data);
        }
    }
    return n;
}

static void connect_client(void)
{
    connected = true;
    cb.connected(cb.user);
}

static int setup(void **state)
{
    const slot_line *lines[] = { &no_line };
    (void)state;
    memset(image, 0, sizeof image);
    dxpu_put_le32(image, 0x12345678);
    image[0x06] = 0x10;
    image[0x34] = POWER;
    image[0x3d] = 1;
    dxpu_put_le32(image + POWER, 0x01 | MSI_CAP << 8);
    dxpu_put_le32(image + MSI_CAP, 0x800005u | EXPRESS << 8);
    dxpu_put_le32(image + EXPRESS, 0x20010);
    image[EXPRESS + 7] = 0x10;
    congested = paused = shown = connected = level = false;
    takes = true;
    sent_count = hot_resets = power_offs = power_ons = writes_answered = reads_answered =
        levels_off = 0;
    the = direct_form.open(&settings, lines, 1000000000);
    assert_non_null(the);
    f = &((direct *)the)->functions[0];
    f->slot->probe.sized[0][0] = ~(uint32_t)(BAR_BYTES - 1);
    f->host.filled(f->host.user, 1, true);
    direct_form.settle(the, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    guest_close(the);
    return 0;
}

static dxpu_vfu_access access_at(uint32_t region, uint64_t at, uint32_t bytes)
{
    dxpu_vfu_access a;
    memset(&a, 0, sizeof a);
    a.token = TOKEN;
    a.region = region;
    a.offset = at;
    a.bytes = bytes;
    return a;
}

static void write_to(uint32_t region, uint64_t at, uint32_t value, uint32_t bytes)
{
    const dxpu_vfu_access a = access_at(region, at, bytes);
    uint8_t data[4];
    dxpu_put_le32(data, value);
    cb.write(cb.user, &a, data);
}

static void read_from(uint32_t region, uint64_t at, uint32_t bytes)
{
    const dxpu_vfu_access a = access_at(region, at, bytes);
    cb.read(cb.user, &a);
}

static void connected_device(void)
{
    answer_all(DXPU_CPL_SC);
    assert_true(shown && f->known);
    connect_client();
    sent_count = 0;
}

/* The next try is due. */
static void retry_now(void)
{
    assert_true(f->retry_ns != 0 && direct_form.next_ns(the) <= f->retry_ns);
    direct_form.tick(the, f->retry_ns);
}

/* ==== Cases =================================================================================== */

static void test_v44_resets_pause_the_client(void **state)
{
    (void)state;
    connected_device();
    cb.reset(cb.user, TOKEN);
    assert_true(paused && hot_resets == 1 && writes_answered == 0);
    cb.reset(cb.user, TOKEN + 1); /* in the same burst: both are answered */
    assert_int_equal(writes_answered, 1);
    answer_all(DXPU_CPL_SC);
    assert_int_equal(writes_answered, 2);
    assert_false(paused);
    write_to(DXPU_VFU_CONFIG, EXPRESS + 8, 0x8000, 2); /* FLR */
    assert_true(paused && hot_resets == 2);
    answer_all(DXPU_CPL_SC);
    assert_false(paused);
}

/* The machine has gone, and its driver with it: only then the device is to know of it. */
static void test_v44_the_end_of_a_machine_is_a_loss_of_power(void **state)
{
    (void)state;
    connected_device();
    cb.reset(cb.user, TOKEN);
    answer_all(DXPU_CPL_SC);
    assert_true(hot_resets == 1 && power_offs == 0 && power_ons == 0); /* control */
    connected = false;
    cb.disconnected(cb.user, "it ended");
    assert_true(hot_resets == 2 && power_offs == 1 && power_ons == 1);
}

/* What is behind the reset in one write would reach a device without BARs. */
static void test_v44_write_ends_with_the_reset(void **state)
{
    const dxpu_vfu_access a = access_at(DXPU_VFU_CONFIG, EXPRESS + 8, 8);
    const uint8_t data[8] = { 0, 0x80, 0, 0, 0xaa, 0xaa, 0xaa, 0xaa };
    uint32_t value = 0;
    (void)state;
    connected_device();
    cb.write(cb.user, &a, data);
    answer_all(DXPU_CPL_SC);
    assert_int_equal(written(EXPRESS + 8, &value), 2); /* by the guest, and after the reset */
    assert_int_equal(value, 0x10);
    assert_int_equal(written(EXPRESS + 12, &value), 0);
    assert_int_equal(writes_answered, 1);
}

/* Of many writes in one message none is taken that the slot has no room for. */
static void test_v17_writes_wait_for_a_slow_device(void **state)
{
    (void)state;
    connected_device();
    write_to(0, 0, 1, 4);
    assert_false(paused);
    congested = true;
    write_to(0, 4, 1, 4);
    assert_true(paused);
    congested = false;
    direct_form.settle(the, 1);
    assert_false(paused);
}

/* Also of what the host keeps: a driver takes ones for a device that is gone. */
static void test_v45_reads_at_the_loss_are_ones(void **state)
{
    static const int ends[] = { -1, DXPU_CPL_UR };
    (void)state;
    connected_device();
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned at = 4; at <= POWER + 4; at += POWER) {
            read_from(DXPU_VFU_CONFIG, at, 4);
            answer_all(ends[i]);
            assert_int_equal(dxpu_get_le32(last_read), UINT32_MAX);
        }
    }
    read_from(DXPU_VFU_CONFIG, 4, 2);
    direct_form.tick(the, dxpu_udp_now_ns() + 2000000000u); /* its time is up */
    assert_int_equal(dxpu_get_le16(last_read), 0xffff);
    takes = false;
    read_from(DXPU_VFU_CONFIG, 4, 2);
    assert_int_equal(dxpu_get_le16(last_read), 0xffff);
    takes = true;
    read_from(DXPU_VFU_CONFIG, 4, 2); /* control */
    answer_all(DXPU_CPL_SC);
    assert_int_equal(dxpu_get_le16(last_read), 0);
    assert_int_equal(reads_answered, 7);
}

static void lose(unsigned number, unsigned bar)
{
    const dxpu_vswitch_values v = {
        1, { { .function = (uint8_t)number, .bar = (uint8_t)bar, .offset = 0x14, .bytes = 1 } }
    };
    f->host.lost(f->host.user, 1, &v);
}

static uint32_t reads(uint32_t region, uint64_t at, uint32_t bytes)
{
    memset(last_read, 0x55, sizeof last_read);
    read_from(region, at, bytes);
    return dxpu_get_le32(last_read);
}

/* Those in flight, and all others until the client has gone. */
static void test_v51_reads_of_a_lost_device(void **state)
{
    unsigned before;
    (void)state;
    connected_device();
    read_from(0, 0x14, 4);
    lose(0, 0);
    answer_all(-1);
    assert_int_equal(dxpu_get_le32(last_read), 0xffffff00);
    f->host.filled(f->host.user, 1, false);
    assert_int_equal(reads(0, 0x14, 4), 0xffffff00);
    assert_int_equal(reads(0, 0x14, 1), 0x55555500);
    assert_int_equal(reads(0, 0x12, 4), 0xff00ffff);
    assert_int_equal(reads(0, 0x10, 8), UINT32_MAX);
    assert_int_equal(last_read[4], 0);
    assert_int_equal(reads(1, 0x14, 4), UINT32_MAX);
    assert_int_equal(reads(DXPU_VFU_CONFIG, 0x14, 4), UINT32_MAX);
    (void)reads(0, 0, 256); /* as no processor does */
    assert_true(last_read[0x13] == 0xff && last_read[0x14] == 0 && last_read[0x15] == 0xff);
    f->host.filled(f->host.user, 1, true); /* the next one, which this client is not shown */
    direct_form.settle(the, 1);
    answer_all(DXPU_CPL_SC);
    assert_int_equal(reads(0, 0x14, 4), 0xffffff00);
    lose(0, 1); /* nor what that one declared */
    f->host.filled(f->host.user, 1, false);
    assert_int_equal(reads(0, 0x14, 4), 0xffffff00);
    connected = false;
    cb.disconnected(cb.user, "it ended");
    f->host.filled(f->host.user, 1, true);
    direct_form.settle(the, 1);
    answer_all(DXPU_CPL_SC);
    connect_client();
    before = reads_answered;
    read_from(0, 0x14, 4);
    assert_int_equal(reads_answered, before); /* it is asked */
    answer_all(-1);
    assert_int_equal(dxpu_get_le32(last_read), UINT32_MAX);
}

/* A device of several functions is shown as its first one. */
static void test_v51_of_another_function(void **state)
{
    (void)state;
    connected_device();
    lose(1, 0);
    f->host.filled(f->host.user, 1, false);
    assert_int_equal(reads(0, 0x14, 4), UINT32_MAX);
}

/* It is there, and may still write to memory. */
static void test_v52_device_that_is_not_lost(void **state)
{
    (void)state;
    connected_device();
    read_from(0, 0x14, 4);
    direct_form.tick(the, dxpu_udp_now_ns() + 2000000000u); /* its time is up */
    assert_int_equal(dxpu_get_le32(last_read), UINT32_MAX);
    takes = false;
    assert_int_equal(reads(0, 0x14, 4), UINT32_MAX);
    takes = true;
    cb.reset(cb.user, TOKEN);
    answer_all(-1); /* it is not ready */
    assert_int_equal(reads(0, 0x14, 4), UINT32_MAX);
    lose(0, 0);
    f->host.filled(f->host.user, 1, false);
    assert_int_equal(reads(0, 0x14, 4), 0xffffff00);
}

/* A device may need longer than a request waits: its client reads ones until it is there. */
static void test_v44_device_that_is_slow_after_a_reset(void **state)
{
    (void)state;
    connected_device();
    cb.reset(cb.user, TOKEN);
    for (unsigned i = 0; i < 3; i++) {
        answer_all(-1);
        assert_true(!paused && writes_answered == 1 && f->slot->probe.failed);
        read_from(DXPU_VFU_CONFIG, 0, 4);
        assert_int_equal(dxpu_get_le32(last_read), UINT32_MAX);
        sent_count = 0;
        write_to(0, 0, 1, 4);
        assert_int_equal(sent_count, 0);
        writes_answered = 1;
        retry_now();
        assert_true(sent_count > 0);
    }
    answer_all(DXPU_CPL_SC);
    assert_false(f->slot->probe.failed || f->retry_ns);
    read_from(DXPU_VFU_CONFIG, 0, 4);
    answer_all(DXPU_CPL_SC);
    assert_int_equal(dxpu_get_le32(last_read), 0x12345678);
    assert_int_equal(f->setups_failed, 3);
}

static void test_v45_slow_device_returns_to_the_next_client(void **state)
{
    (void)state;
    answer_all(-1); /* from the beginning */
    assert_false(shown);
    retry_now();
    connected_device();
    connected = false;
    cb.disconnected(cb.user, "it ended");
    assert_false(shown);
    answer_all(-1);
    retry_now();
    answer_all(DXPU_CPL_SC);
    assert_true(shown);
}

/* A device that is set up again is the one that was there: another one is not known at first. */
static void test_v47_the_same_device_is_set_up_again(void **state)
{
    (void)state;
    assert_int_equal(direct_form.plug(the, 1).state, PLUG_NONE);
    connected_device();
    assert_int_equal(direct_form.plug(the, 1).state, PLUG_USED);
    connected = false;
    cb.disconnected(cb.user, "it ended");
    assert_int_equal(direct_form.plug(the, 1).state, PLUG_SETUP);
    answer_all(-1); /* it is slow */
    assert_int_equal(direct_form.plug(the, 1).state, PLUG_SETUP);
    retry_now();
    answer_all(DXPU_CPL_SC);
    assert_int_equal(direct_form.plug(the, 1).state, PLUG_OFFERED);
    f->host.filled(f->host.user, 1, false); /* and at once the next one */
    f->host.filled(f->host.user, 1, true);
    direct_form.settle(the, 1);
    assert_int_equal(direct_form.plug(the, 1).state, PLUG_NONE);
    answer_all(DXPU_CPL_SC);
    assert_int_equal(direct_form.plug(the, 1).state, PLUG_OFFERED);
}

/* Only what makes no sense is not looked at again. */
static void test_v46_device_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    dxpu_put_le32(image + MSI_CAP, 0x800005u | POWER << 8);
    answer_all(DXPU_CPL_SC);
    assert_true(!shown && !f->retry_ns && f->slot->probe.failed);
}

static void test_v43_dword_that_enables_msi(void **state)
{
    uint32_t value = 0;
    (void)state;
    connected_device();
    write_to(DXPU_VFU_CONFIG, MSI_CAP, 0x810005u | EXPRESS << 8, 4);
    assert_int_equal(written(MSI_CAP, &value), 1);
    assert_int_equal(value >> 16 & 1, 1);
}

/* Of a dword that is in part the host's the device gets the rest, ahead of the host's own. */
static void test_v43_bytes_of_the_host_are_not_forwarded(void **state)
{
    (void)state;
    dxpu_put_le32(image + MSI_CAP, 0x000005u | EXPRESS << 8); /* 32 bits: 2 bytes of data */
    connected_device();
    write_to(DXPU_VFU_CONFIG, MSI_CAP + 8, 0xaaaa5555, 4);
    assert_int_equal(sent_count, 1);
    assert_int_equal(sent[0].t.first_be, 0xc);
    assert_int_equal(dxpu_get_le32(sent[0].data), 0xaaaa0000);
}

static void intx(bool on)
{
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSG;
    t.requester = DIRECT_DEVICE;
    t.message_code = on ? 0x20 : 0x24;
    t.message_routing = DXPU_MSG_LOCAL;
    assert_true(f->host.message(f->host.user, 1, &t));
}

static void test_v43_intx_is_a_level(void **state)
{
    (void)state;
    connected_device();
    intx(true);
    assert_true(level);
    intx(false);
    assert_false(level);
    cb.reset(cb.user, TOKEN);
    intx(true); /* from before the reset */
    assert_true(level);
    answer_all(DXPU_CPL_SC);
    assert_false(level);
    intx(true);
    cb.reset(cb.user, TOKEN);
    intx(true);
    answer_all(-1); /* and where it is not set up again */
    assert_false(level);
    f->host.filled(f->host.user, 1, false);
    assert_false(level);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_v44_resets_pause_the_client),
        CASE(test_v44_the_end_of_a_machine_is_a_loss_of_power),
        CASE(test_v44_write_ends_with_the_reset),
        CASE(test_v17_writes_wait_for_a_slow_device),
        CASE(test_v45_reads_at_the_loss_are_ones),
        CASE(test_v51_reads_of_a_lost_device),
        CASE(test_v51_of_another_function),
        CASE(test_v52_device_that_is_not_lost),
        CASE(test_v44_device_that_is_slow_after_a_reset),
        CASE(test_v45_slow_device_returns_to_the_next_client),
        CASE(test_v47_the_same_device_is_set_up_again),
        CASE(test_v46_device_that_makes_no_sense_is_refused),
        CASE(test_v43_dword_that_enables_msi),
        CASE(test_v43_bytes_of_the_host_are_not_forwarded),
        CASE(test_v43_intx_is_a_level),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
