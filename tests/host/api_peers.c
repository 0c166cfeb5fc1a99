/* api_peers.c - requests of one slot's device to another one's memory, with two boxes in the fabric
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

#define DXPU_VSWITCH_IMPLEMENTATION /* for its registers */
#include "dxpu_vswitch.h"

#include "grants.h"
#include "msi.h"
#include "probe.h"
#include "queue.h"
#include "retry.h"
#include "slot.h"
#include "peer.h"
#include "slot_line.h"

enum { A = 0, B = 1, HOST_MEMORY = 0x1000 };
#define WINDOW_OF(box) (0x90000000u + (box)*0x1000000u)

static fabric net;
static dxpu_vswitch vs;
static guest_slot slots[2];
static direct_line lines[2];
static peer boxes[2];
static unsigned filled_slots, host_writes, host_reads, guest_answers, guest_losses;
/* what the boxes saw */
static unsigned reads, writes, answers, refusals, order_errors;
static uint16_t last_requester, last_tag;
static uint8_t last_status, write_byte;
static uint64_t last_address;
static bool keep_silent;

/* ==== The guest =============================================================================== */

static bool dma_read(void *user, uint64_t address, void *data, size_t bytes)
{
    (void)user;
    memset(data, 0x5a, bytes);
    host_reads++;
    return address < 0x10000;
}

static bool dma_write(void *user, uint64_t address, const void *data, size_t bytes)
{
    (void)user;
    (void)data;
    (void)bytes;
    host_writes++;
    return address < 0x10000;
}

static bool take_interrupt(void *user, uint64_t address, uint32_t data)
{
    (void)user;
    (void)address;
    (void)data;
    return true;
}

static int route(void *user, unsigned number, const dxpu_tlp *t)
{
    (void)user;
    return dxpu_vswitch_upstream(&vs, (uint8_t)number, t);
}

static guest_slot *other_slot(void *user, unsigned number)
{
    (void)user;
    return &slots[number - 1];
}

static void reach(void *user, unsigned number, windows *out)
{
    (void)user;
    (void)number;
    (void)out;
}

static bool message(void *user, unsigned number, const dxpu_tlp *t)
{
    (void)user;
    (void)number;
    (void)t;
    return false;
}

static bool not_ready(void *user, unsigned number, const dxpu_tlp *req, dxpu_tlp *cpl,
                      uint8_t data[4])
{
    (void)user;
    (void)number;
    (void)req;
    (void)cpl;
    (void)data;
    return false;
}

static uint32_t mps_bytes(void *user, unsigned number)
{
    (void)user;
    (void)number;
    return 256;
}

static void on_completion(void *user, const dxpu_tlp *cpl, uint64_t request, bool last)
{
    (void)user;
    (void)request;
    (void)last;
    guest_answers += cpl != NULL;
    guest_losses += !cpl;
}

static void on_filled(void *user, unsigned number, bool there)
{
    (void)user;
    (void)number;
    filled_slots += there;
}

static void lost(void *user, unsigned number, const dxpu_vswitch_values *values)
{
    (void)user;
    (void)number;
    (void)values;
}

static const slot_host the_host = { NULL,      dma_read,   dma_write, take_interrupt,
                                    route,     other_slot, reach,     NULL,
                                    message,   not_ready,  mps_bytes, on_completion,
                                    on_filled, lost };

/* ==== The fabric ============================================================================== */

static direct_line *of(const fabric_channel *c)
{
    return lines[A].channel == c ? &lines[A] : lines[B].channel == c ? &lines[B] : NULL;
}

static void up(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    direct_up(of(c), now);
}

static bool work(void *user, fabric_channel *c, uint64_t now)
{
    const direct_line *l = of(c);
    (void)user;
    return l && slot_work(l->slot, now);
}

static void down(void *user, fabric_channel *c, uint64_t now)
{
    direct_line *l = of(c);
    (void)user;
    if (l)
        direct_down(l, now);
}

static uint64_t next_ns(void *user)
{
    uint64_t a = direct_next_ns(&lines[A]), b = direct_next_ns(&lines[B]);
    (void)user;
    return a < b ? a : b;
}

static void tick(void *user, uint64_t now)
{
    (void)user;
    direct_tick(&lines[A], now);
    direct_tick(&lines[B], now);
}

static void run_until(bool (*done)(void))
{
    peer_run(&net, done);
}

static bool a_while(void)
{
    return peer_polls >= 50;
}

/* ==== The switch ============================================================================== */

static void port_write(unsigned port, unsigned at, uint32_t value)
{
    uint8_t bytes[4], data[4], slot;
    dxpu_tlp t, cpl;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_CFGWR0;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.target = DXPU_BDF(0, port, 0);
    t.register_bytes = (uint16_t)at;
    dxpu_put_le32(bytes, value);
    t.payload.ptr = bytes;
    t.payload.len = 4;
    assert_int_equal(dxpu_vswitch_config_request(&vs, &t, &cpl, data, &slot),
                     DXPU_VSWITCH_ANSWERED);
}

static void acs(unsigned box, unsigned bits)
{
    port_write(box + 1, DXPUI_VS_ACS + 4, bits << 16);
}

static void open_switch(void)
{
    dxpu_vswitch_config cfg;
    dxpu_vswitch_config_default(&cfg);
    cfg.slots = 2;
    assert_int_equal(dxpu_vswitch_init(&vs, &cfg), DXPU_OK);
    for (unsigned box = 0; box < 2; box++) {
        uint32_t base = WINDOW_OF(box) >> 16;
        assert_int_equal(dxpu_vswitch_insert(&vs, (uint8_t)(box + 1), 4, 16), DXPU_OK);
        port_write(box + 1, DXPUI_VS_BUSES, (box + 1) << 16 | (box + 1) << 8);
        port_write(box + 1, DXPUI_VS_MEMORY, (base + 0xf0) << 16 | base);
        port_write(box + 1, DXPUI_VS_COMMAND, DXPUI_VS_MEM_SPACE | DXPUI_VS_MASTER);
    }
}

/* ==== The boxes =============================================================================== */

/* A device with 64 KB of memory: byte n of it is n; its BARs cannot be sized. */
static unsigned part_bytes = 256;

static uint8_t posted[64]; /* the last one that a box was sent */
static size_t posted_bytes;
static const peer *posted_at;
static unsigned write_dwords, first_enables, single_enables; /* of writes in sequence */
static uint32_t next_address;

static void box_step(peer *p, uint64_t now)
{
    static uint8_t data[4096];
    dxpu_delivery d;
    dxpu_tlp t, cpl;
    dxpu_cpl_split split;
    uint64_t at;
    (void)now;
    while (p->open && (d = dxpu_channel_peek(&p->ch, DXPU_POSTED)).tlp.len) {
        assert_int_equal(dxpu_tlp_receive(d.tlp, &t), DXPU_OK);
        writes++;
        last_requester = t.requester;
        last_address = t.address;
        assert_true(t.payload.len <= 256);
        if (t.address == next_address) {
            next_address += t.length_dw * 4u;
            write_dwords += t.length_dw;
        }
        first_enables = writes == 1 ? t.first_be : first_enables;
        single_enables = t.length_dw == 1 ? t.first_be : single_enables;
        write_byte = t.payload.ptr[t.payload.len - 1];
        posted_bytes = d.tlp.len < sizeof posted ? d.tlp.len : sizeof posted;
        memcpy(posted, d.tlp.ptr, posted_bytes);
        posted_at = p;
        assert_int_equal(dxpu_channel_take(&p->ch, DXPU_POSTED, now), DXPU_OK);
    }
    while (p->open && peer_take(p, DXPU_NONPOSTED, &t)) {
        if (t.type != DXPU_TLP_MRD) {
            dxpu_tlp_completion(&t, 0, DXPU_CPL_UR, &cpl);
            (void)peer_submit(p, &cpl);
            continue;
        }
        reads++;
        last_requester = t.requester;
        last_tag = t.tag;
        if (keep_silent)
            continue;
        for (unsigned i = 0; i < sizeof data; i++)
            data[i] = (uint8_t)(t.address + i);
        assert_int_equal(dxpu_cpl_split_start(&split, &t, 64, part_bytes), DXPU_OK);
        dxpu_tlp_completion(&t, DXPU_BDF(2, 0, 0), DXPU_CPL_SC, &cpl);
        while (dxpu_cpl_split_next(&split, &cpl, &at)) {
            cpl.payload.ptr = data + (at - t.address);
            cpl.payload.len = cpl.length_dw * 4u;
            assert_int_equal(peer_submit(p, &cpl), DXPU_OK);
        }
    }
    while (p->open && (d = dxpu_channel_peek(&p->ch, DXPU_COMPLETION)).tlp.len) {
        assert_int_equal(dxpu_tlp_decode(d.tlp, &t), DXPU_OK);
        last_status = t.status;
        last_requester = t.requester;
        last_tag = t.tag;
        answers += t.status == DXPU_CPL_SC;
        refusals += t.status != DXPU_CPL_SC;
        for (unsigned i = 0; i < t.payload.len && t.payload.ptr[0] != 0x5a; i++)
            order_errors += ((t.payload.ptr[i] ^ (t.lower_addr + i)) & 0x7f) != 0;
        assert_int_equal(dxpu_channel_take(&p->ch, DXPU_COMPLETION, now), DXPU_OK);
    }
}

static bool both_up(void)
{
    return slots[A].up && !slots[A].probe.running && slots[B].up && !slots[B].probe.running;
}

/* As if the guest had set Bus Master Enable. */
static void let_master(unsigned box)
{
    static uint8_t command[4] = { 0x04 };
    dxpu_tlp t = peer_request(DXPU_TLP_CFGWR0, 0);
    t.target = (uint16_t)DXPU_BDF(box + 1, 0, 0);
    t.register_bytes = 4;
    t.payload.ptr = command;
    t.payload.len = sizeof command;
    msi_sent(&slots[box].msi, &t);
}

static void start(uint64_t hold_ms)
{
    fabric_settings s = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { NULL, NULL, up, work, down, next_ns, tick, NULL, NULL };
    reads = writes = answers = refusals = order_errors = 0;
    host_writes = host_reads = guest_answers = guest_losses = 0;
    keep_silent = false;
    s.hold_ms = hold_ms;
    s.keys = keys_none();
    open_switch();
    assert_int_equal(fabric_open(&net, &s, 8, &cb), 0);
    for (unsigned i = 0; i < 2; i++) {
        dxpu_udp_address here;
        direct_open(&lines[i], &slots[i], &net);
        assert_int_equal(slot_init(&slots[i], i + 1, &the_host, &lines[i].line, hold_ms * 1000000u),
                         0);
        peer_start(&boxes[i], dxpu_udp_base(net.udp));
        boxes[i].cfg.hold_ms = 60000;
        boxes[i].cfg.tx.header[DXPU_NONPOSTED] = 64; /* requests of a test at once */
        boxes[i].cfg.tx.data[DXPU_NONPOSTED] = 64;
        boxes[i].step = box_step;
        here.len = sizeof here.u;
        assert_int_equal(getsockname(boxes[i].fd, &here.u.any, &here.len), 0);
        direct_attach(&lines[i], &here, dxpu_udp_now_ns());
    }
    run_until(both_up);
    let_master(A);
    let_master(B);
}

static int teardown(void **state)
{
    int rc;
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        peer_stop(&boxes[i]);
    rc = fabric_close(&net);
    for (unsigned i = 0; i < 2; i++)
        slot_free(&slots[i]);
    return rc;
}

/* A memory request of box's device. */
static dxpu_tlp request(unsigned box, uint8_t type, uint16_t tag, uint32_t address, unsigned dw)
{
    static uint8_t payload[4096];
    dxpu_tlp t = peer_request(type, tag);
    memset(payload, tag, sizeof payload);
    t.requester = (uint16_t)DXPU_BDF(box + 1, 0, 0);
    t.address = address;
    t.length_dw = (uint16_t)dw;
    t.last_be = dw > 1 ? 0xf : 0;
    if (type == DXPU_TLP_MWR) {
        t.payload.ptr = payload;
        t.payload.len = dw * 4u;
    }
    return t;
}

static void ask(unsigned box, uint8_t type, uint16_t tag, uint32_t address, unsigned dw)
{
    dxpu_tlp t = request(box, type, tag, address, dw);
    assert_int_equal(peer_submit(&boxes[box], &t), DXPU_OK);
}

/* ==== Tests =================================================================================== */

static bool one_write(void)
{
    return writes == 1;
}

static bool four_answers(void)
{
    return answers == 4;
}

static bool cut_writes(void)
{
    return writes == 6;
}

/* Posted: nothing reports a refusal to whoever wrote.  1,028 bytes at a port of 256, without the
   first byte and the last one; then a write that fits. */
static void test_v16_a_write_that_is_too_large_is_cut(void **state)
{
    dxpu_tlp t;
    (void)state;
    start(60000);
    write_dwords = 0;
    next_address = WINDOW_OF(B);
    t = request(A, DXPU_TLP_MWR, 0x77, WINDOW_OF(B), 257);
    t.first_be = 0xe;
    t.last_be = 0x7;
    assert_int_equal(peer_submit(&boxes[A], &t), DXPU_OK);
    ask(A, DXPU_TLP_MWR, 0x78, WINDOW_OF(B) + 1028, 64);
    run_until(cut_writes);
    run_until(a_while);
    assert_int_equal(writes, 6);
    assert_int_equal(write_dwords, 257 + 64);
    assert_int_equal(next_address, WINDOW_OF(B) + 1028 + 256); /* each behind the one before */
    assert_int_equal(first_enables, 0xe);
    assert_int_equal(single_enables, 0x7); /* the part of one dword */
    assert_int_equal(slots[A].refused, 0);
    assert_int_equal(slots[B].peers_waiting[DXPU_POSTED], 0);
}

static bool answered_or_refused(void)
{
    return answers + refusals > 0;
}

static bool one_refused(void)
{
    return refusals == 1;
}

static bool one_read(void)
{
    return reads == 1;
}

/* An answer in parts that the requester's port may not pass is one refusal (V-16). */
static void test_v16_an_answer_in_too_large_parts(void **state)
{
    (void)state;
    start(60000);
    part_bytes = 512;
    ask(A, DXPU_TLP_MRD, 0x2a1, WINDOW_OF(B), 1024); /* eight parts */
    run_until(one_refused);
    part_bytes = 256;
    run_until(a_while);
    assert_int_equal(refusals, 1);
    assert_int_equal(answers, 0);
    assert_int_equal(last_tag, 0x2a1);
    assert_int_equal(slots[B].refused_why[SLOT_REFUSED_kind], 1);
    assert_int_equal(slots[A].owed_reserved, 0);
    assert_int_equal(slots[B].peer_requests, 0);
    ask(A, DXPU_TLP_MRD, 0x2a1, WINDOW_OF(B), 256); /* control: the tag can be used again */
    run_until(four_answers);
    assert_int_equal(refusals, 1);
}

static bool one_refused_by_a(void)
{
    return slots[A].refused == 1;
}

/* Of A's device, with bits set that PCIe reserves, to a function by its ID. */
static void send_message(uint8_t code, uint16_t target, uint8_t out[20])
{
    uint8_t bytes[20] = { 0x72, 0x73, 0x30, 1, 0x01, 0, 0, code, 0, 0,
                          0x12, 0x34, 0,    1, 2,    3, 4, 5,    6, 7 };
    dxpu_bytes tlp = { bytes, sizeof bytes };
    dxpu_put_be16(bytes + 8, target);
    memcpy(out, bytes, sizeof bytes);
    assert_int_equal(dxpu_channel_submit(&boxes[A].ch, tlp, dxpu_udp_now_ns(), 0), DXPU_OK);
}

/* Vendors' messages that none here knows go from device to device as they are. */
static void test_r24_v41_message_by_id_reaches_the_other_slot(void **state)
{
    uint8_t sent[20];
    (void)state;
    start(60000);
    for (uint8_t code = 0x7e; code <= 0x7f; code++) {
        writes = 0;
        send_message(code, DXPU_BDF(2, 0, 0), sent);
        run_until(one_write);
        assert_ptr_equal(posted_at, &boxes[B]);
        assert_int_equal(posted_bytes, sizeof sent);
        assert_memory_equal(posted, sent, sizeof sent);
    }
    assert_int_equal(slots[A].peer_tlps, 2);
    assert_int_equal(slots[A].refused, 0);
    writes = 0;
    send_message(0x7f, DXPU_BDF(9, 0, 0), sent); /* none there: it ends at the host */
    send_message(0x7e, DXPU_BDF(9, 0, 0), sent);
    run_until(one_refused_by_a);
    assert_int_equal(slots[A].refused_why[SLOT_REFUSED_kind], 1);
    slots[A].refused = 0;
    send_message(0x7f, DXPU_BDF(1, 0, 0), sent); /* where it came from */
    run_until(one_refused_by_a);
    assert_int_equal(slots[A].refused_why[SLOT_REFUSED_route], 1);
    assert_int_equal(writes, 0);
}

static void test_v11_request_reaches_the_other_slot(void **state)
{
    (void)state;
    start(60000);
    ask(A, DXPU_TLP_MWR, 0x77, WINDOW_OF(B) + 0x40, 32); /* 128 bytes */
    run_until(one_write);
    assert_int_equal(last_requester, DXPU_BDF(1, 0, 0));
    assert_true(last_address == WINDOW_OF(B) + 0x40);
    assert_int_equal(write_byte, 0x77);
    ask(A, DXPU_TLP_MRD, 0x2a1, WINDOW_OF(B), 256); /* a 10-bit tag, four completions */
    run_until(four_answers);
    assert_int_equal(reads, 1);
    assert_int_equal(order_errors, 0);
    assert_int_equal(last_requester, DXPU_BDF(1, 0, 0));
    assert_int_equal(last_tag, 0x2a1);
    assert_int_equal(slots[A].owed_reserved, 0);
    assert_int_equal(slots[B].peer_requests, 0);
    assert_int_equal(slots[A].peer_tlps, 2);
    assert_int_equal(guest_answers, 0);
    assert_int_equal(host_reads + host_writes, 0);
    ask(A, DXPU_TLP_MWR, 1, HOST_MEMORY, 1); /* the control: all else is the guest's */
    ask(A, DXPU_TLP_MRD, 5, HOST_MEMORY, 1);
    answers = 3;
    run_until(four_answers);
    assert_int_equal(host_reads, 1);
    assert_int_equal(host_writes, 1);
    assert_int_equal(writes, 1);
}

/* The two directions at once, and tags that are also the guest's. */
static bool all_crossed(void)
{
    return answers == 2 * 64 && guest_answers == 32;
}

static void test_v11_both_directions_and_the_guest(void **state)
{
    (void)state;
    start(60000);
    for (unsigned i = 0; i < 64; i++) {
        ask(A, DXPU_TLP_MRD, (uint16_t)i, WINDOW_OF(B) + i * 4, 1);
        ask(B, DXPU_TLP_MRD, (uint16_t)i, WINDOW_OF(A) + i * 4, 1);
        if (i < 32) {
            dxpu_tlp t = peer_request(DXPU_TLP_MRD, 0);
            t.address = WINDOW_OF(B);
            assert_true(slot_send(&slots[B], &t, i, dxpu_udp_now_ns()));
        }
    }
    run_until(all_crossed);
    assert_int_equal(order_errors, 0);
    assert_int_equal(refusals, 0);
    assert_int_equal(slots[A].owed_reserved + slots[B].owed_reserved, 0);
}

static void test_v11_acs_bits_are_obeyed(void **state)
{
    (void)state;
    start(60000);
    acs(A, DXPUI_VS_ACS_RR); /* redirected to the root, which finds no memory there */
    ask(A, DXPU_TLP_MRD, 1, WINDOW_OF(B), 1);
    run_until(one_refused);
    assert_int_equal(last_status, DXPU_CPL_UR);
    assert_int_equal(reads, 0);
    acs(A, DXPUI_VS_ACS_SV);
    dxpu_tlp t = request(A, DXPU_TLP_MRD, 2, WINDOW_OF(B), 1);
    t.requester = DXPU_BDF(2, 0, 0); /* pretends to be the other one */
    assert_int_equal(peer_submit(&boxes[A], &t), DXPU_OK);
    refusals = 0;
    run_until(one_refused);
    assert_int_equal(last_status, DXPU_CPL_CA);
    acs(A, DXPUI_VS_ACS_TB);
    t = request(A, DXPU_TLP_MRD, 3, WINDOW_OF(B), 1);
    t.at = 2;
    assert_int_equal(peer_submit(&boxes[A], &t), DXPU_OK);
    refusals = 0;
    run_until(one_refused);
    assert_int_equal(last_status, DXPU_CPL_CA);
    assert_int_equal(reads, 0);
    acs(A, DXPUI_VS_ACS_SV | DXPUI_VS_ACS_TB); /* the control */
    ask(A, DXPU_TLP_MRD, 4, WINDOW_OF(B), 1);
    run_until(one_read);
}

/* A request with this AT and ACS control; true: it reached the other slot. */
static bool translated_reaches(uint8_t at, uint16_t control)
{
    dxpu_tlp t = request(A, DXPU_TLP_MRD, 5, WINDOW_OF(B), 2);
    const unsigned before = reads;
    t.at = at;
    refusals = answers = 0;
    acs(A, control);
    assert_int_equal(peer_submit(&boxes[A], &t), DXPU_OK);
    run_until(answered_or_refused);
    assert_int_equal(refusals, reads == before);
    return reads > before;
}

/* Without a translation agent no device may ask for a translation, nor has one for host memory. */
static void test_s109_translated_requests(void **state)
{
    (void)state;
    start(60000);
    assert_true(translated_reaches(2, DXPUI_VS_ACS_RR | DXPUI_VS_ACS_DT));
    assert_true(translated_reaches(2, 0));
    assert_false(translated_reaches(2, DXPUI_VS_ACS_RR));
    assert_false(translated_reaches(1, DXPUI_VS_ACS_RR | DXPUI_VS_ACS_DT));
    assert_false(translated_reaches(1, 0));
    assert_int_equal(slots[A].refused_why[SLOT_REFUSED_translated], 3);
    assert_false(translated_reaches(0, DXPUI_VS_ACS_RR | DXPUI_VS_ACS_DT)); /* controls */
    assert_true(translated_reaches(0, 0));
}

/* Its own window, and a slot that is gone: Unsupported Request. */
static void test_v11_no_device_there(void **state)
{
    (void)state;
    start(60000);
    ask(A, DXPU_TLP_MRD, 1, WINDOW_OF(A), 1);
    run_until(one_refused);
    assert_int_equal(last_status, DXPU_CPL_UR);
    dxpu_channel_reset(&boxes[B].ch, DXPU_REASON_SHUTDOWN);
    run_until(a_while);
    assert_false(slots[B].up);
    ask(A, DXPU_TLP_MWR, 1, WINDOW_OF(B), 1);
    ask(A, DXPU_TLP_MRD, 2, WINDOW_OF(B), 1);
    refusals = 0;
    run_until(one_refused);
    assert_int_equal(slots[A].refused, 3);
    assert_int_equal(reads + writes, 0);
}

/* The other box dies with the request in flight: the device is answered. */
static void test_v16_requests_are_contained(void **state)
{
    (void)state;
    start(60000);
    keep_silent = true;
    ask(A, DXPU_TLP_MRD, 9, WINDOW_OF(B), 8);
    run_until(one_read);
    assert_int_equal(refusals, 0);
    dxpu_channel_reset(&boxes[B].ch, DXPU_REASON_SHUTDOWN);
    run_until(one_refused);
    assert_int_equal(last_status, DXPU_CPL_UR);
    assert_int_equal(last_tag, 9);
    assert_int_equal(slots[A].owed_reserved, 0);
    assert_true(slots[A].up);
}

/* The asking box dies: its answers go nowhere, also not to who comes next. */
static void test_v16_answers_for_a_device_that_is_gone(void **state)
{
    (void)state;
    start(60000);
    keep_silent = true;
    ask(A, DXPU_TLP_MRD, 9, WINDOW_OF(B), 1);
    run_until(one_read);
    dxpu_channel_reset(&boxes[A].ch, DXPU_REASON_SHUTDOWN);
    run_until(a_while);
    assert_false(slots[A].up);
    boxes[A].open = false; /* takes the next dial */
    run_until(both_up);
    assert_int_equal(slots[A].incarnations, 2);
    let_master(A);
    dxpu_tlp t = request(A, DXPU_TLP_MRD, 9, WINDOW_OF(B), 1), cpl;
    dxpu_tlp_completion(&t, 0, DXPU_CPL_UR, &cpl);
    assert_int_equal(peer_submit(&boxes[B], &cpl), DXPU_OK);
    answers = refusals = 0;
    run_until(a_while);
    assert_int_equal(answers + refusals, 0);
    assert_int_equal(slots[B].peer_requests, 0);
    keep_silent = false; /* the control */
    ask(A, DXPU_TLP_MRD, 9, WINDOW_OF(B), 1);
    answers = 3;
    run_until(four_answers);
}

/* A silent device is timed out at its own channel, and the requester gets an answer. */
static void test_v16_silent_peer_is_timed_out(void **state)
{
    (void)state;
    start(500);
    keep_silent = true;
    ask(A, DXPU_TLP_MRD, 9, WINDOW_OF(B), 1);
    run_until(one_refused);
    assert_int_equal(slots[B].timeouts, 1);
    assert_true(slots[A].up && slots[B].up);
}

static unsigned sent_writes;

static void flood(peer *p, uint64_t now)
{
    box_step(p, now);
    while (sent_writes < 3 * SLOT_QUEUE) {
        dxpu_tlp t = request(A, DXPU_TLP_MWR, (uint16_t)sent_writes, WINDOW_OF(B), 64);
        if (peer_submit(p, &t) != DXPU_OK)
            return;
        sent_writes++;
    }
}

static void not_posted(peer *p, uint64_t now)
{
    (void)p;
    (void)now;
}

static bool many_waiting(void)
{
    return queue_used(&slots[B].queue, DXPU_POSTED) >= SLOT_QUEUE_PEERS;
}

static bool guest_read_done(void)
{
    return guest_answers + guest_losses == 1;
}

static bool all_written(void)
{
    return writes == 3 * SLOT_QUEUE;
}

/* A box that takes nothing for a while: the writes wait, and none is lost; the guest's requests to
   the slot that waits are served. */
static void test_v16_congested_peer_is_waited_for(void **state)
{
    (void)state;
    start(60000);
    sent_writes = 0;
    boxes[B].step = not_posted;
    boxes[A].step = flood;
    run_until(many_waiting);
    run_until(a_while);
    assert_int_equal(queue_used(&slots[B].queue, DXPU_POSTED), SLOT_QUEUE_PEERS);
    assert_int_equal(slots[A].refused, 0);
    assert_false(slot_congested(&slots[B])); /* that is no reason to let the guest wait */
    boxes[B].step = box_step;
    run_until(all_written);
    assert_int_equal(slots[A].refused, 0);
    assert_int_equal(slots[A].peer_tlps, 3 * SLOT_QUEUE);
}

static bool all_given_up(void)
{
    return slots[A].refused + slots[A].peer_tlps == 3 * SLOT_QUEUE;
}

/* One that takes nothing at all costs the other no more than one hold time. */
static void test_v16_clogged_peer_is_given_up(void **state)
{
    (void)state;
    start(300);
    sent_writes = 0;
    boxes[B].step = not_posted; /* alive, but takes nothing */
    boxes[A].step = flood;
    run_until(all_given_up);
    assert_true(slots[A].up && slots[B].up);
    assert_in_range(slots[A].refused, 1, 3 * SLOT_QUEUE - SLOT_QUEUE_PEERS);
    dxpu_tlp t = peer_request(DXPU_TLP_MRD, 0);
    assert_true(slot_send(&slots[A], &t, 1, dxpu_udp_now_ns()));
    run_until(guest_read_done);
    assert_int_equal(guest_answers, 1);
    boxes[B].step = box_step;
    run_until(a_while);
    writes = 0;
    ask(A, DXPU_TLP_MWR, 1, WINDOW_OF(B), 1); /* the control: it takes again, and is served */
    run_until(one_write);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_v11_request_reaches_the_other_slot),
        CASE(test_r24_v41_message_by_id_reaches_the_other_slot),
        CASE(test_v16_an_answer_in_too_large_parts),
        CASE(test_v16_a_write_that_is_too_large_is_cut),
        CASE(test_v11_both_directions_and_the_guest),
        CASE(test_v11_acs_bits_are_obeyed),
        CASE(test_s109_translated_requests),
        CASE(test_v11_no_device_there),
        CASE(test_v16_requests_are_contained),
        CASE(test_v16_answers_for_a_device_that_is_gone),
        CASE(test_v16_silent_peer_is_timed_out),
        CASE(test_v16_congested_peer_is_waited_for),
        CASE(test_v16_clogged_peer_is_given_up),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
