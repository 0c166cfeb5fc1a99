/* unit_functions.c - a device of several functions and of virtual ones: registers of SR-IOV, and
   which function a TLP is for
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mkstemp() */
#endif
#include "dxpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "functions.h"
#include "nvme.h"
#include "pci.h"

enum {
    BUS = 5,
    VIRTUALS = 9,
    CONTROL = PCI_SRIOV * 4 + 0x08,
    NUMBER = PCI_SRIOV * 4 + 0x10,
    PAGES = PCI_SRIOV * 4 + 0x1c,
    PAGE = PCI_SRIOV * 4 + 0x20,
    VF_BAR = PCI_SRIOV * 4 + 0x24,
    ENABLE = 0x09, /* the functions, and their memory */
    CAP = 0x00,    /* of an NVMe controller's registers */
    CMBMSC = 0x50
};
#define BAR     0x20000000u
#define VF_AT   0x30000000u
#define ALL_CAP ((1024u - 1u) | 1u << 16 | 20u << 24)

static void *device;
static uint8_t status, answers;
static uint32_t answer;
static uint64_t seed, cmb_bytes;
static dxpu_tlp asked; /* the device's last read */
static unsigned asks, posted;
static const jobs *executor; /* NULL: the device's own */

/* device_port.emit */
static void emitted(void *user, dxpu_bytes tlp)
{
    dxpu_tlp t;
    (void)user;
    assert_int_equal(dxpu_tlp_receive(tlp, &t), DXPU_OK);
    if (t.type == DXPU_TLP_MRD) {
        asked = t;
        asks++;
    }
    posted += t.type == DXPU_TLP_MWR;
    if (t.type != DXPU_TLP_CPL && t.type != DXPU_TLP_CPLD)
        return;
    answers++;
    status = t.status;
    answer = t.payload.len >= 4 ? dxpu_get_le32(t.payload.ptr) : 0xffffffffu;
}

static const device_port port = { .emit = emitted };

static void open_device(uint64_t functions, uint64_t virtuals)
{
    device_settings s = { .memory_bytes = 1 << 20,
                          .mps_bytes = 512,
                          .timeout_ns = DXPU_NEVER,
                          .identity = 7,
                          .cmb_bytes = cmb_bytes,
                          .jobs = executor,
                          .function_count = functions,
                          .virtuals = virtuals };
    device = nvme_functions_kind.create(&s, &port);
    assert_non_null(device);
}

static void request(uint8_t type, uint64_t where, unsigned at, uint32_t value)
{
    uint8_t bytes[4];
    dxpu_bytes none = { NULL, 0 };
    dxpu_tlp t;
    bool writes = type == DXPU_TLP_CFGWR0 || type == DXPU_TLP_MWR;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.header_dw = 3;
    t.length_dw = 1;
    t.first_be = 0xf;
    t.target = (uint16_t)where;
    t.address = where;
    t.register_bytes = (uint16_t)at;
    dxpu_put_le32(bytes, value);
    t.payload.ptr = bytes;
    t.payload.len = writes ? 4 : 0;
    nvme_functions_kind.tlp(device, &t, none);
}

static uint32_t cfg(unsigned function, unsigned at)
{
    answers = 0;
    request(DXPU_TLP_CFGRD0, BUS << 8 | function, at, 0);
    assert_int_equal(answers, 1);
    return status == DXPU_CPL_SC ? answer : 0xffffffffu;
}

static void cfg_set(unsigned function, unsigned at, uint32_t value)
{
    request(DXPU_TLP_CFGWR0, BUS << 8 | function, at, value);
}

static uint32_t memory(uint64_t address)
{
    answers = 0;
    request(DXPU_TLP_MRD, address, 0, 0);
    assert_int_equal(answers, 1);
    return status == DXPU_CPL_SC ? answer : 0xffffffffu;
}

static void make(unsigned count)
{
    cfg_set(0, VF_BAR, VF_AT);
    cfg_set(0, VF_BAR + 4, 0);
    cfg_set(0, NUMBER, count);
    cfg_set(0, CONTROL, ENABLE);
}

static unsigned there(void)
{
    unsigned count = 0;
    for (unsigned i = 1; i < 256; i++)
        count += cfg(i, 0x08) != 0xffffffffu;
    return count;
}

static int teardown(void **state)
{
    (void)state;
    if (device)
        nvme_functions_kind.destroy(device);
    device = NULL;
    cmb_bytes = 0;
    executor = NULL;
    return 0;
}

/* jobs.settle, in a job: it waits for itself. */
static void never(void *user)
{
    (void)user;
    fail_msg("waits for its own end");
}

/* A function that cannot be made takes those before it with it, also in a job of their executor, as
   where a device is plugged in. */
static void test_s251_one_that_cannot_be_made(void **state)
{
    char path[] = "/tmp/functions-XXXXXX", files[64];
    int fd = mkstemp(path);
    jobs_queue done;
    jobs all;
    device_settings s = { .memory_bytes = 1 << 20,
                          .mps_bytes = 512,
                          .timeout_ns = DXPU_NEVER,
                          .function_count = 2,
                          .cmb_bytes = 1 << 20,
                          .jobs = &all,
                          .file = files };
    (void)state;
    jobs_here(&done, &all);
    all.settle = never;
    s.file_bytes = 1 << 20;
    assert_true(fd >= 0);
    (void)close(fd);
    snprintf(files, sizeof files, "%s,/dev/null/none", path);
    assert_null(nvme_functions_kind.create(&s, &port));
    (void)unlink(path);
}

/* An executor whose jobs are over when the test says so, the last one first. */
static job *held, *over;

static void hold(void *user, job *j)
{
    (void)user;
    j->next = held;
    held = j;
}

static job *take_back(void *user)
{
    job *j = over;
    (void)user;
    if (j)
        over = j->next;
    return j;
}

static bool has_begun(void *user, job *j)
{
    (void)user;
    (void)j;
    return false;
}

static void run_all(void *user)
{
    job **last = &over;
    (void)user;
    while (*last)
        last = &(*last)->next;
    *last = held;
    for (job *j = held; j; j = j->next)
        j->run(j);
    held = NULL;
}

/* After each request a function takes back what is over: before the second one. */
static uint32_t status_of(unsigned function)
{
    (void)memory(BAR + function * 0x10000 + 0x1c);
    return memory(BAR + function * 0x10000 + 0x1c);
}

/* Three functions, each with a flush under way, as at a shutdown. */
static void begin_flushes(void)
{
    for (unsigned i = 0; i < 3; i++) {
        cfg_set(i, 0x10, BAR + i * 0x10000);
        cfg_set(i, 0x04, 2);
        request(DXPU_TLP_MWR, BAR + i * 0x10000 + 0x14, 0, 0x4000);
        assert_int_equal(status_of(i), 0x4);
    }
}

/* Whichever function takes jobs back, each is its own function's, also of one that was reset, and
   where the device ends first. */
static void test_s251_jobs_of_several_functions(void **state)
{
    const jobs held_back = { NULL, hold, take_back, has_begun, run_all };
    (void)state;
    executor = &held_back;
    open_device(3, 0);
    begin_flushes();
    run_all(NULL);
    assert_int_equal(status_of(0), 0x8); /* it took all of them */
    assert_null(over);
    nvme_functions_kind.tick(device, 1);
    assert_int_equal(status_of(1) | status_of(2), 0x8);
    nvme_functions_kind.reset(device);
    begin_flushes();
    run_all(NULL);
    assert_int_equal(status_of(0), 0x8);
    cfg_set(1, 0x68, 0x8000); /* a reset of one whose job is over, and not its own yet */
    cfg_set(1, 0x10, BAR + 0x10000);
    cfg_set(1, 0x04, 2);
    nvme_functions_kind.tick(device, 2);
    assert_int_equal(status_of(1), 0);
    assert_int_equal(status_of(2), 0x8);
    nvme_functions_kind.reset(device);
    begin_flushes();
    nvme_functions_kind.destroy(device); /* while they are under way */
    assert_true(!held && !over);
    open_device(3, 0);
    begin_flushes();
    run_all(NULL);
    assert_int_equal(status_of(2), 0x8);
    (void)teardown(NULL); /* the others' wait for them */
    assert_null(over);
}

static void test_s252_number_and_enable(void **state)
{
    (void)state;
    open_device(0, VIRTUALS);
    assert_int_equal(there(), 0);
    cfg_set(0, CONTROL, ENABLE); /* of none */
    assert_int_equal(there(), 0);
    cfg_set(0, CONTROL, 0);
    make(3);
    assert_int_equal(there(), 3);
    cfg_set(0, NUMBER, 5);
    assert_int_equal(there(), 3);
    cfg_set(0, CONTROL, 0);
    assert_int_equal(there(), 0);
    make(0xffff); /* more than there can be */
    assert_int_equal(there(), VIRTUALS);
    nvme_functions_kind.reset(device);
    assert_int_equal(there(), 0);
    assert_int_equal(cfg(0, CONTROL) | cfg(0, NUMBER) | cfg(0, VF_BAR + 4), 0);
    assert_int_equal(cfg(0, VF_BAR), PCI_BAR_64);
}

static void test_s252_memory_of_virtual_functions(void **state)
{
    (void)state;
    open_device(0, VIRTUALS);
    make(2);
    assert_int_equal(memory(VF_AT + CAP), ALL_CAP);
    assert_int_equal(memory(VF_AT + 0x4000 + CAP), ALL_CAP);
    assert_int_equal(memory(VF_AT + 0x8000 + CAP), 0xffffffffu); /* of the third */
    request(DXPU_TLP_MWR, VF_AT + 0x4000 + 0x24, 0, 0x00070007);
    assert_int_equal(memory(VF_AT + 0x24), 0);
    assert_int_equal(memory(VF_AT + 0x4000 + 0x24), 0x00070007);
    cfg_set(0, CONTROL, 0x01); /* without memory */
    assert_int_equal(memory(VF_AT + CAP), 0xffffffffu);
    cfg_set(0, CONTROL, ENABLE);
    assert_int_equal(memory(VF_AT + 0x4000 + 0x24), 0x00070007);
    cfg_set(0, CONTROL, 0);
    cfg_set(0, CONTROL, ENABLE);
    assert_int_equal(memory(VF_AT + 0x4000 + 0x24), 0); /* it is another one */
}

static void set_cmb(uint64_t address)
{
    request(DXPU_TLP_MWR, address + CMBMSC, 0, 1);
    request(DXPU_TLP_MWR, address + CMBMSC, 0, 0x40000003);
    assert_int_equal(memory(address + CMBMSC), 0x40000003);
}

/* What outlives a hot reset of a physical function does not outlive one of a virtual function,
   which is another's then. */
static void test_s252_a_hot_reset_ends_virtual_functions(void **state)
{
    const dxpu_event e = { .type = DXPU_EVENT_HOT_RESET, .flags = DXPU_EVENT_ON };
    (void)state;
    for (unsigned restart = 0; restart < 2; restart++) {
        cmb_bytes = 64 << 10;
        open_device(0, VIRTUALS);
        make(1);
        cfg_set(0, 0x10, BAR);
        cfg_set(0, 0x04, 2);
        set_cmb(BAR);
        set_cmb(VF_AT);
        if (restart)
            nvme_functions_kind.restart(device);
        else
            nvme_functions_kind.event(device, &e);
        assert_int_equal(there(), 0);
        make(1);
        cfg_set(0, 0x10, BAR);
        cfg_set(0, 0x04, 2);
        assert_int_equal(memory(BAR + CMBMSC), 0x40000003); /* a control */
        assert_int_equal(memory(VF_AT + CMBMSC), 0);
        (void)teardown(NULL);
    }
}

/* Virtual function 1 asks for its first command. */
static dxpu_tlp ask(void)
{
    unsigned before = asks;
    cfg_set(1, 0x04, 4);
    request(DXPU_TLP_MWR, VF_AT + 0x24, 0, 0x00070007);
    request(DXPU_TLP_MWR, VF_AT + 0x28, 0, 0x10000);
    request(DXPU_TLP_MWR, VF_AT + 0x30, 0, 0x20000);
    request(DXPU_TLP_MWR, VF_AT + 0x14, 0, 0x00460001);
    request(DXPU_TLP_MWR, VF_AT + 0x1000, 0, 1);
    assert_int_equal(asks, before + 1);
    return asked;
}

static void give(const dxpu_tlp *read, uint8_t how)
{
    static const uint8_t entry[64] = { 0x7f }; /* no such command */
    dxpu_bytes none = { NULL, 0 };
    dxpu_tlp t;
    dxpu_tlp_completion(read, 0, how, &t);
    if (how == DXPU_CPL_SC) {
        t.type = DXPU_TLP_CPLD;
        t.length_dw = sizeof entry / 4;
        t.payload.ptr = entry;
        t.payload.len = sizeof entry;
    }
    nvme_functions_kind.tlp(device, &t, none);
}

/* What one had asked for that its host has ended is nothing to the next of its number. */
static void test_s252_answers_to_one_that_has_ended(void **state)
{
    dxpu_tlp first, second, third;
    (void)state;
    posted = 0;
    open_device(0, VIRTUALS);
    make(1);
    first = ask();
    cfg_set(0, CONTROL, 0);
    make(1);
    second = ask();
    assert_int_not_equal(first.tag, second.tag);
    give(&first, DXPU_CPL_SC);
    assert_int_equal(posted, 0);
    assert_int_equal(cfg(1, 0x110), 0);
    cfg_set(0, CONTROL, 0);
    give(&second, DXPU_CPL_UR); /* while there is none */
    give(&second, DXPU_CPL_UR);
    make(1);
    assert_int_equal((cfg(1, 0x04) >> 16 & 0xf900) | cfg(1, 0x104) | cfg(1, 0x110), 0);
    third = ask();
    give(&third, DXPU_CPL_SC); /* a control */
    assert_int_equal(posted, 1);
    give(&third, DXPU_CPL_SC);
    assert_int_not_equal(cfg(1, 0x110), 0);
}

/* S-162: what was under way of one that has ended is over before the next of its number is
   ready. */
static void test_s162_s252_accesses_of_one_that_has_ended(void **state)
{
    const jobs held_back = { NULL, hold, take_back, has_begun, run_all };
    (void)state;
    executor = &held_back;
    open_device(0, VIRTUALS);
    for (unsigned by_physical = 0; by_physical < 2; by_physical++) {
        make(1);
        request(DXPU_TLP_MWR, VF_AT + 0x14, 0, 0x4000); /* a flush of all */
        assert_int_equal(memory(VF_AT + 0x1c), 0x4);
        if (by_physical)
            cfg_set(0, 0x68, 0x8000);
        else
            cfg_set(0, CONTROL, 0);
        make(1);
        request(DXPU_TLP_MWR, VF_AT + 0x24, 0, 0x00070007);
        request(DXPU_TLP_MWR, VF_AT + 0x14, 0, 0x00460001);
        nvme_functions_kind.tick(device, 1);
        assert_int_equal(memory(VF_AT + 0x1c), 0);
        run_all(NULL);
        nvme_functions_kind.tick(device, 2);
        assert_int_equal(memory(VF_AT + 0x1c), 1);
        cfg_set(0, CONTROL, 0);
    }
}

/* A part of a VF BAR is a page of the system at least. */
static void test_s252_pages_of_the_system(void **state)
{
    (void)state;
    open_device(0, VIRTUALS);
    assert_int_equal(cfg(0, PAGES), 0x553);
    assert_int_equal(cfg(0, PAGE), 1);
    cfg_set(0, PAGE, 0x11); /* two sizes */
    assert_int_equal(cfg(0, PAGE), 1);
    cfg_set(0, PAGE, 0);
    assert_int_equal(cfg(0, PAGE), 1);
    cfg_set(0, PAGE, 0x10); /* 64 KB */
    cfg_set(0, VF_BAR, 0xffffffff);
    assert_int_equal(cfg(0, VF_BAR), 0xffff0000u | PCI_BAR_64);
    make(2);
    cfg_set(0, PAGE, 1);
    assert_int_equal(cfg(0, PAGE), 0x10);
    assert_int_equal(memory(VF_AT + 0x10000 + CAP), ALL_CAP);
    assert_int_equal(memory(VF_AT + 0x4000 + CAP), 0xffffffffu);
}

/* The physical function's settings are not theirs to change. */
static void test_s252_registers_of_virtual_functions(void **state)
{
    (void)state;
    open_device(0, VIRTUALS);
    make(1);
    assert_int_equal(cfg(1, 0x00), 0xffffffff);
    for (unsigned at = 0x04; at < 0x40; at += 4) {
        uint32_t before = cfg(1, at);
        cfg_set(1, at, 0xffffffff);
        assert_int_equal(cfg(1, at) ^ before, at == 0x04 ? 0x04 : 0);
    }
    assert_int_equal(cfg(1, 0x68) & 0xffff, 0);
    cfg_set(1, 0x68, 0x7fff);
    cfg_set(1, 0x70, 0xffff);
    cfg_set(1, 0x88, 0xffff);
    assert_int_equal((cfg(1, 0x68) | cfg(1, 0x70) | cfg(1, 0x88)) & 0xffff, 0);
    assert_int_equal(cfg(0, 0x04) & 4, 0);
}

/* Each of several physical functions has its header, BAR and number. */
static void test_s251_each_function_by_its_number(void **state)
{
    (void)state;
    open_device(3, 0);
    assert_int_equal(there(), 2 + 31 * 3); /* device numbers do not count here */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(cfg(i, 0x0c) >> 16 & 0xff, 0x80);
        cfg_set(i, 0x10, BAR + i * 0x10000);
        cfg_set(i, 0x04, 2);
        request(DXPU_TLP_MWR, BAR + i * 0x10000 + 0x24, 0, 0x00010001 * (i + 1));
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(memory(BAR + i * 0x10000 + 0x24), 0x00010001 * (i + 1));
    cfg_set(1, 0x68, 0x8000); /* a reset of function 1 */
    cfg_set(1, 0x10, BAR + 0x10000);
    cfg_set(1, 0x04, 2);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(memory(BAR + i * 0x10000 + 0x24), i == 1 ? 0 : 0x00010001 * (i + 1));
}

static uint32_t rnd(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static void random_step(void)
{
    static const unsigned registers[] = { 0x04,    0x10,   0x14, 0x50,   0x68,      CONTROL,
                                          CONTROL, NUMBER, PAGE, VF_BAR, VF_BAR + 4 };
    static const uint32_t values[] = { 0, 1, 2, 3, 6, 9, 0x19, 0x8000, 0xffffffffu, BAR, VF_AT };
    unsigned at = rnd(4) ? registers[rnd(sizeof registers / sizeof registers[0])]
                         : rnd(PCI_CONFIG_DW + 4) * 4;
    uint32_t value = rnd(4) ? values[rnd(sizeof values / sizeof values[0])] : rnd(0x80000000u);
    unsigned function = rnd(3) ? rnd(VIRTUALS + 2) : 0;
    dxpu_event e = { .type = DXPU_EVENT_HOT_RESET, .flags = rnd(2) ? DXPU_EVENT_ON : 0 };
    uint64_t address = (rnd(2) ? BAR : VF_AT) + rnd(0x40000) / 4 * 4u;
    switch (rnd(40)) {
    case 0:
        nvme_functions_kind.event(device, &e);
        break;
    case 1:
        nvme_functions_kind.reset(device);
        break;
    case 2:
        nvme_functions_kind.tick(device, seed >> 20);
        break;
    default:
        if (rnd(2))
            cfg_set(function, at, value);
        else if (rnd(2))
            request(DXPU_TLP_MWR, address, 0, value);
        else if (rnd(2))
            (void)memory(address); /* one answer, whatever is there */
        else
            (void)cfg(function, at);
    }
}

static void test_s252_random_requests(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        seed = round;
        open_device(0, VIRTUALS);
        for (unsigned i = 0; i < 5000; i++)
            random_step();
        (void)teardown(NULL);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_s162_s252_accesses_of_one_that_has_ended),
        CASE(test_s251_one_that_cannot_be_made),
        CASE(test_s251_jobs_of_several_functions),
        CASE(test_s251_each_function_by_its_number),
        CASE(test_s252_number_and_enable),
        CASE(test_s252_memory_of_virtual_functions),
        CASE(test_s252_pages_of_the_system),
        CASE(test_s252_registers_of_virtual_functions),
        CASE(test_s252_answers_to_one_that_has_ended),
        CASE(test_s252_random_requests),
        CASE(test_s252_a_hot_reset_ends_virtual_functions),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
