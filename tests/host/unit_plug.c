/* unit_plug.c - which commands a virtual machine monitor gets, and when
   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plug.h"

#define SECOND 1000000000u
#define START  (100 * (uint64_t)SECOND)

static const char deleted[] =
    "{\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"dxpu-port2x\"}}";

static plug_settings set;
static plug p;
static char sent[4096];
static unsigned commands, removed, last_removed;
static uint64_t now;

static void on_send(void *user, const char *text)
{
    (void)user;
    commands++;
    snprintf(sent, sizeof sent, "%s", text);
}

static void on_removed(void *user, unsigned slot)
{
    (void)user;
    removed++;
    last_removed = slot;
}

static void hear(const char *text)
{
    assert_true(plug_hear(&p, text, strlen(text), now));
}

/* The answer to the last command. */
static void answer(const char *what)
{
    char text[256];
    const char *id = strstr(sent, "\"id\":");
    unsigned last = 0;
    for (; id; id = strstr(id + 5, "\"id\":")) /* that of the command is a number */
        if (id[5] != '"')
            last = (unsigned)strtoul(id + 5, NULL, 10);
    snprintf(text, sizeof text, "{%s, \"id\": %u}", what, last);
    hear(text);
}

static void look(unsigned slot, unsigned state, bool msix, bool leaving)
{
    const plug_view v = { (uint8_t)state, msix, leaving };
    plug_look(&p, slot, v, now);
}

static void wait_s(unsigned seconds)
{
    now += seconds * (uint64_t)SECOND;
    plug_tick(&p, now);
}

static bool was_sent(const char *text)
{
    return strstr(sent, text) != NULL;
}

static void greet_moving(const char *list, const char *status, const char *migration)
{
    char text[256];
    plug_open(&p);
    hear("{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 3, \"minor\": 1, \"major\": 11}, "
         "\"package\": \"\"}, \"capabilities\": [\"oob\"]}}");
    assert_non_null(strstr(sent, "qom-list"));
    snprintf(text, sizeof text, "\"return\": [%s]", list);
    answer(text);
    assert_non_null(strstr(sent, "query-status"));
    snprintf(text, sizeof text, "\"return\": {\"status\": \"%s\"}", status);
    answer(text);
    if (was_sent("query-migrate"))
        answer(migration);
}

static void greet(const char *list, const char *status)
{
    greet_moving(list, status, "\"return\": {}");
}

static int setup(void **state)
{
    (void)state;
    assert_null(plug_parse("/run/qmp,bus=port%ux", &set));
    plug_init(&p, &set, 4, "/run/vm");
    p.send = on_send;
    p.removed = on_removed;
    commands = removed = 0;
    now = START;
    sent[0] = '\0';
    return 0;
}

/* A function that is in use. */
static void plugged(bool msix)
{
    greet("", "running");
    look(2, PLUG_OFFERED, msix, false);
    assert_true(was_sent("device_add"));
    look(2, PLUG_USED, msix, false);
    answer("\"return\": {}");
    commands = 0;
}

static void test_v47_device_is_plugged_in(void **state)
{
    (void)state;
    greet("", "running");
    assert_int_equal(p.version, 110103);
    commands = 0;
    look(2, PLUG_NONE, false, false);
    assert_int_equal(commands, 0);
    look(2, PLUG_OFFERED, false, false);
    assert_int_equal(commands, 1);
    assert_true(was_sent("\"device_add\"") && was_sent("\"bus\":\"port2x\"") &&
                was_sent("\"id\":\"dxpu-port2x\"") && was_sent("\"path\":\"/run/vm.2\"") &&
                was_sent("\"driver\":\"vfio-user-pci\""));
    look(2, PLUG_USED, false, false);
    answer("\"return\": {}");
    wait_s(100);
    assert_int_equal(commands, 1);
    assert_true(plug_next_ns(&p) == UINT64_MAX);
}

/* Also where QEMU starts after the device is there, and where it has it already. */
static void test_v47_what_qemu_has_is_asked(void **state)
{
    (void)state;
    look(1, PLUG_OFFERED, false, false);
    look(2, PLUG_USED, false, false);
    assert_int_equal(commands, 0);
    greet("{\"name\": \"dxpu-port2x\", \"type\": \"child<vfio-user-pci>\"}, {\"name\": \"net0\"}",
          "running");
    assert_true(was_sent("device_add") && was_sent("port1x"));
    answer("\"return\": {}");
    commands = 0;
    look(1, PLUG_USED, false, false);
    wait_s(10);
    assert_int_equal(commands, 0);
}

static void test_v47_refused_device_is_tried_again(void **state)
{
    (void)state;
    greet("", "running");
    look(1, PLUG_OFFERED, false, false);
    commands = 0;
    answer("\"error\": {\"class\": \"GenericError\", \"desc\": \"Bus 'port1x' not found\"}");
    assert_int_equal(commands, 0);
    assert_true(plug_next_ns(&p) > now && plug_next_ns(&p) < now + 10 * (uint64_t)SECOND);
    now = plug_next_ns(&p);
    plug_tick(&p, now);
    assert_int_equal(commands, 1);
}

static void test_v47_guest_is_asked_before_the_device_is_taken(void **state)
{
    (void)state;
    plugged(false);
    look(2, PLUG_USED, false, true);
    assert_true(commands == 1 && was_sent("device_del") && was_sent("dxpu-port2x"));
    answer("\"return\": {}");
    assert_int_equal(removed, 0);
    look(2, PLUG_OFFERED, false, true); /* it disconnects: not plugged in again */
    hear("{\"event\": \"DEVICE_DELETED\", \"data\": {\"path\": "
         "\"/machine/peripheral/dxpu-port2x/x\"}}");
    assert_int_equal(removed, 0); /* of another object */
    hear("{\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"dxpu-port2x\", \"path\": "
         "\"x\"}}");
    assert_true(removed == 1 && last_removed == 2);
    wait_s(30);
    assert_true(removed == 1 && commands == 1);
    look(2, PLUG_NONE, false, false);
    look(2, PLUG_OFFERED, false, false); /* the next one */
    assert_true(was_sent("device_add"));
}

static void test_v47_guest_that_does_not_let_go(void **state)
{
    (void)state;
    plugged(false);
    look(2, PLUG_USED, false, true);
    answer("\"return\": {}");
    while (now < START + PLUG_WAIT_MS * 1000000ull) {
        assert_int_equal(removed, 0);
        assert_true(plug_next_ns(&p) > now);
        now = plug_next_ns(&p);
        plug_tick(&p, now);
        answer("\"error\": {\"class\": \"GenericError\", \"desc\": \"in the process of unplug\"}");
    }
    assert_true(removed == 1 && commands > 2);
    look(2, PLUG_LOST, false, false);
    wait_s(60);
    assert_int_equal(removed, 1);
    assert_true(was_sent("device_del"));
}

/* Its box is lost while the guest is asked; the next device is given the whole time. */
static void test_v47_leave_that_is_over(void **state)
{
    (void)state;
    plugged(false);
    look(2, PLUG_USED, false, true);
    answer("\"return\": {}");
    look(2, PLUG_LOST, false, false);
    wait_s(15);
    look(2, PLUG_USED, false, true);
    wait_s(19);
    assert_int_equal(removed, 0);
    wait_s(1);
    assert_int_equal(removed, 1);
    look(2, PLUG_NONE, false, false);
    wait_s(60);
    assert_int_equal(removed, 1);
}

/* The owner does not wait for QEMU that is not there, or has no such function. */
static void test_v47_leaving_without_a_function(void **state)
{
    (void)state;
    look(1, PLUG_USED, false, true);
    assert_int_equal(removed, 1);
    greet("", "running");
    look(3, PLUG_USED, false, true);
    assert_int_equal(removed, 2);
    look(3, PLUG_NONE, false, false);
    plugged(false);
    look(2, PLUG_USED, false, true);
    assert_int_equal(removed, 2);
    plug_lost(&p, now);
    assert_int_equal(removed, 3);
}

static void test_v47_lost_device_is_unplugged(void **state)
{
    (void)state;
    plugged(false);
    look(2, PLUG_LOST, false, false);
    assert_true(commands == 1 && was_sent("device_del"));
    answer("\"return\": {}");
    hear(deleted);
    assert_int_equal(removed, 0);
    look(2, PLUG_OFFERED, false, false); /* it came back meanwhile */
    assert_true(was_sent("device_add"));
}

/* A function whose connection was lost while QEMU went on does nothing any more. */
static void test_v47_dead_function_is_replaced(void **state)
{
    (void)state;
    plugged(false);
    wait_s(60);
    look(2, PLUG_OFFERED, false, false);
    assert_int_equal(commands, 0); /* it may be about to say that it was deleted */
    assert_true(plug_next_ns(&p) > now);
    now = plug_next_ns(&p);
    plug_tick(&p, now);
    assert_true(commands == 1 && was_sent("device_del"));
    hear(deleted);
    assert_true(was_sent("device_add"));
}

static void test_v47_what_others_remove_stays_out(void **state)
{
    (void)state;
    plugged(false);
    hear(deleted);
    look(2, PLUG_OFFERED, false, false);
    wait_s(60);
    assert_int_equal(commands, 0);
    look(2, PLUG_NONE, false, false); /* detached, and attached again */
    look(2, PLUG_OFFERED, false, false);
    assert_int_equal(commands, 1);
}

/* Whichever is first: that it is removed, or that its connection ends, after which the device is
   reset. */
static void test_v47_what_others_remove_is_set_up_again(void **state)
{
    (void)state;
    for (unsigned view_first = 0; view_first < 2; view_first++) {
        setup(state);
        plugged(false);
        if (view_first)
            look(2, PLUG_SETUP, false, false);
        hear(deleted);
        look(2, PLUG_SETUP, false, false);
        look(2, PLUG_OFFERED, false, false);
        wait_s(60);
        assert_int_equal(commands, 0);
        look(2, PLUG_NONE, false, false);
        look(2, PLUG_OFFERED, false, false);
        assert_int_equal(commands, 1);
    }
}

/* A machine that is started again, or asked again, has no memory of it. */
static void test_v47_removal_is_forgotten_with_the_connection(void **state)
{
    (void)state;
    plugged(false);
    hear(deleted);
    look(2, PLUG_OFFERED, false, false);
    assert_int_equal(commands, 0);
    plug_lost(&p, now);
    greet("", "running");
    assert_true(was_sent("device_add"));
}

static void test_v48_function_with_msix_stays(void **state)
{
    (void)state;
    plugged(true);
    look(2, PLUG_USED, true, true);
    assert_true(commands == 0 && removed == 1); /* taken without asking */
    look(2, PLUG_LOST, true, false);
    wait_s(60);
    assert_int_equal(commands, 0);
    assert_true(plug_next_ns(&p) == UINT64_MAX);
    look(2, PLUG_NONE, true, false); /* QEMU let go of it by itself */
    wait_s(60);
    assert_int_equal(commands, 0);
    set.unplugs_msix = true;
    plug_tick(&p, now);
    assert_true(commands == 1 && was_sent("device_del"));
}

static void test_v48_migration_is_cancelled(void **state)
{
    static const char event[] = "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"setup\"}}";
    (void)state;
    greet("", "running");
    commands = 0;
    hear(event); /* nothing is in its way */
    assert_int_equal(commands, 0);
    plugged(false);
    hear(event);
    assert_true(commands == 1 && was_sent("migrate_cancel"));
}

/* The functions of an earlier process are known by their ids alone. */
static void test_v48_earlier_process_had_msix(void **state)
{
    (void)state;
    greet("{\"name\": \"dxpu-port1x\"}, {\"name\": \"dxpu-port2xx\"}", "running");
    commands = 0;
    look(2, PLUG_NONE, false, false); /* none is attached yet */
    wait_s(60);
    assert_true(commands == 1 && was_sent("device_del") && was_sent("\"dxpu-port1x\""));
    look(2, PLUG_OFFERED, false, false); /* the same one, after a change to --interrupts msi */
    wait_s(60);
    look(2, PLUG_OFFERED, false, true);
    wait_s(60);
    assert_true(was_sent("\"dxpu-port1x\"") && removed == 1);
    look(2, PLUG_OFFERED, false, false);
    hear(deleted);
    assert_false(was_sent("device_add")); /* of a function that it has not got */
    set.unplugs_msix = true;
    wait_s(60);
    assert_true(was_sent("device_del") && was_sent("\"dxpu-port2xx\""));
}

/* And an MSI function is replaced, whatever is shown next. */
static void test_v48_msi_function_before_one_with_msix(void **state)
{
    (void)state;
    greet("{\"name\": \"dxpu-port2x\"}", "running");
    look(2, PLUG_OFFERED, true, false);
    wait_s(60);
    assert_true(was_sent("device_del") && was_sent("\"dxpu-port2x\""));
    hear(deleted);
    assert_true(was_sent("device_add") && was_sent("\"dxpu-port2xx\""));
}

/* Its connection broke, and another device is shown in the slot. */
static void test_v48_device_behind_one_with_msix(void **state)
{
    (void)state;
    plugged(true);
    look(2, PLUG_OFFERED, false, false);
    assert_true(plug_next_ns(&p) < now + 10 * (uint64_t)SECOND); /* it says why, once */
    wait_s(60);
    assert_true(plug_next_ns(&p) == UINT64_MAX);
    look(2, PLUG_LOST, false, false);
    wait_s(60);
    assert_int_equal(commands, 0);
}

/* The device is another one when QEMU connects than it was when QEMU was asked to. */
static void test_v48_device_changes_before_qemu_connects(void **state)
{
    (void)state;
    greet("", "running");
    look(2, PLUG_OFFERED, false, false);
    look(2, PLUG_USED, true, false);
    answer("\"return\": {}");
    commands = 0;
    look(2, PLUG_NONE, false, false);
    wait_s(60);
    assert_int_equal(commands, 0);
    set.unplugs_msix = true;
    wait_s(60);
    assert_true(was_sent("\"dxpu-port2x\""));
}

/* It began before QMP was connected, or before it was known what the machine has. */
static void test_v48_migration_under_way_is_cancelled(void **state)
{
    static const char list[] = "{\"name\": \"dxpu-port2x\"}";
    static const char *const under_way[] = { "setup", "active", "device" };
    static const char *const over[] = { "\"return\": {\"status\": \"completed\"}",
                                        "\"return\": {\"status\": \"failed\"}",
                                        "\"return\": {\"status\": 3}", "\"return\": {}",
                                        "\"error\": {\"class\": \"CommandNotFound\"}" };
    (void)state;
    look(2, PLUG_USED, false, false);
    for (unsigned i = 0; i < sizeof under_way / sizeof under_way[0]; i++) {
        char text[100];
        snprintf(text, sizeof text, "\"return\": {\"status\": \"%s\"}", under_way[i]);
        greet_moving(list, "running", text);
        assert_true(was_sent("migrate_cancel"));
        greet_moving("", "running", text); /* without functions */
        assert_false(was_sent("migrate_cancel"));
        plug_lost(&p, now);
    }
    for (unsigned i = 0; i < sizeof over / sizeof over[0]; i++) {
        greet_moving(list, "running", over[i]);
        assert_false(was_sent("migrate_cancel"));
        look(2, PLUG_LOST, false, false); /* and it goes on */
        assert_true(was_sent("device_del"));
        plug_lost(&p, now);
    }
}

/* A machine that waits for its state must not have more than its source had. */
static void test_v48_incoming_machine_waits(void **state)
{
    (void)state;
    look(1, PLUG_OFFERED, false, false);
    greet("", "inmigrate");
    wait_s(10);
    assert_false(was_sent("device_add"));
    hear("{\"event\": \"RESUME\"}");
    answer("\"return\": {\"status\": \"running\"}");
    answer("\"return\": {\"status\": \"completed\"}");
    assert_true(was_sent("device_add"));
}

static void test_what_is_not_qmp(void **state)
{
    static const char *wrong[] = { "", "{", "[]", "3", "{}", "{\"id\": 1}", "\"return\"" };
    static const char *odd[] = { "{\"return\": 1, \"id\": \"x\"}",
                                 "{\"return\": {}, \"id\": -1}",
                                 "{\"return\": {}, \"id\": 1279}",
                                 "{\"error\": 3, \"id\": 1025}",
                                 "{\"event\": \"MIGRATION\"}",
                                 "{\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": 3}}",
                                 "{\"QMP\": 3}",
                                 "{\"QMP\": {\"version\": {\"qemu\": {\"major\": 2147483647, "
                                 "\"minor\": 2147483647, \"micro\": -1}}}}",
                                 "{\"return\": [3], \"id\": 512}" };
    (void)state;
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(plug_hear(&p, wrong[i], strlen(wrong[i]), now));
    for (unsigned i = 0; i < sizeof odd / sizeof odd[0]; i++)
        assert_true(plug_hear(&p, odd[i], strlen(odd[i]), now));
    assert_int_equal(p.version, 0);
}

/* A keeper that was taken over says anything. */
static void test_v48_slot_that_does_not_exist(void **state)
{
    static const plug_view all_set = { PLUG_LOST, true, true };
    const plug before = p;
    (void)state;
    plug_look(&p, 0, all_set, now);
    plug_look(&p, 5, all_set, now);
    plug_look(&p, 255, all_set, now);
    look(1, PLUG_LOST + 1, true, true);
    assert_true(removed == 0 && commands == 0);
    assert_memory_equal(&p, &before, sizeof p);
}

static void test_settings(void **state)
{
    static const char *wrong[] = {
        "",           ",bus=rp%u",
        "q,bus=",     "q,bus=rp",
        "q,bus=rp%d", "q,bus=%u%u",
        "q,bus=%u%",  "q,port=1",
        "q,",         "q,bus=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%u"
    };
    plug_settings s;
    (void)state;
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_non_null(plug_parse(wrong[i], &s));
    assert_null(plug_parse("q", &s));
    assert_true(!strcmp(s.socket, "q") && !strcmp(s.bus, "rp%u") && !s.unplugs_msix);
    assert_null(plug_parse("q,unplug-msix,bus=%u", &s));
    assert_true(!strcmp(s.bus, "%u") && s.unplugs_msix);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        CASE(test_v47_device_is_plugged_in),
        CASE(test_v47_what_qemu_has_is_asked),
        CASE(test_v47_refused_device_is_tried_again),
        CASE(test_v47_guest_is_asked_before_the_device_is_taken),
        CASE(test_v47_guest_that_does_not_let_go),
        CASE(test_v47_leave_that_is_over),
        CASE(test_v47_leaving_without_a_function),
        CASE(test_v47_lost_device_is_unplugged),
        CASE(test_v47_dead_function_is_replaced),
        CASE(test_v47_what_others_remove_stays_out),
        CASE(test_v47_what_others_remove_is_set_up_again),
        CASE(test_v47_removal_is_forgotten_with_the_connection),
        CASE(test_v48_function_with_msix_stays),
        CASE(test_v48_earlier_process_had_msix),
        CASE(test_v48_msi_function_before_one_with_msix),
        CASE(test_v48_device_behind_one_with_msix),
        CASE(test_v48_device_changes_before_qemu_connects),
        CASE(test_v48_migration_is_cancelled),
        CASE(test_v48_migration_under_way_is_cancelled),
        CASE(test_v48_incoming_machine_waits),
        CASE(test_v48_slot_that_does_not_exist),
        CASE(test_what_is_not_qmp),
        CASE(test_settings),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
