/* unit_plugger.c - the connection to a virtual machine monitor that does not read
   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "dxpu_libevent.h"
#include "plugger_internal.h"

static plugger the;
static int monitor;

static void connect_it(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    the.qmp = pair[0];
    monitor = pair[1];
    the.greeted = true;
    plug_open(&the.plug);
}

static void say(const char *text)
{
    assert_int_equal(send(monitor, text, strlen(text), 0), (ssize_t)strlen(text));
    plugger_hear_qmp(&the);
}

static int setup(void **state)
{
    (void)state;
    memset(&the, 0, sizeof the);
    assert_null(plug_parse("/nowhere/qmp", &the.set));
    plug_init(&the.plug, &the.set, 2, "/vm");
    the.plug.user = &the;
    the.plug.send = plugger_on_send;
    the.plug.removed = plugger_on_removed;
    the.keeper = the.parent = -1;
    connect_it();
    say("{\"return\": [], \"id\": 512}\n");  /* qom-list */
    say("{\"return\": {}, \"id\": 1792}\n"); /* query-migrate */
    assert_true(the.plug.ready);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (the.qmp >= 0)
        close(the.qmp);
    close(monitor);
    return 0;
}

/* Else its slot would wait for the answer to a command that was never sent. */
static void test_v47_command_without_room_ends_the_connection(void **state)
{
    const plug_view offered = { PLUG_OFFERED, false, false };
    (void)state;
    the.out = sizeof the.waiting - 20;
    plug_look(&the.plug, 1, offered, dxpu_udp_now_ns());
    assert_true(the.lost && the.qmp >= 0);
    plugger_step(&the);
    assert_true(the.qmp < 0 && !the.lost && !the.plug.ready && the.out == 0);
    close(monitor);
    connect_it();
    say("{\"return\": [], \"id\": 512}\n{\"return\": {}, \"id\": 1792}\n");
    assert_non_null(strstr(the.waiting, "device_add"));
    plugger_step(&the);
    assert_true(the.qmp >= 0 && the.out == 0);
}

static void test_commands_wait_until_they_are_read(void **state)
{
    const plug_view offered = { PLUG_OFFERED, false, false };
    static char text[PLUGGER_OUT_BYTES];
    size_t before = the.out;
    (void)state;
    plug_look(&the.plug, 1, offered, dxpu_udp_now_ns());
    assert_true(the.out > before && !the.lost);
    plugger_step(&the);
    assert_true(the.qmp >= 0 && the.out == 0);
    assert_true(recv(monitor, text, sizeof text - 1, 0) > 0);
    assert_non_null(strstr(text, "/vm.1"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_v47_command_without_room_ends_the_connection),
        CASE(test_commands_wait_until_they_are_read),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
