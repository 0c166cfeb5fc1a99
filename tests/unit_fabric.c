/* The order in which a port serves its channels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "examples/proxy/fabric.c"

enum { CAPACITY = 7, CHANNELS = 3 };

static fabric port;
static fabric_channel *channels[CHANNELS];
static unsigned order[CHANNELS], served;

static bool on_work(void *user, fabric_channel *c, uint64_t now)
{
    (void)user;
    (void)now;
    for (unsigned i = 0; i < CHANNELS; i++) {
        if (channels[i] == c)
            order[served++] = i;
    }
    return false;
}

static void dial(unsigned i, const dxpu_udp_path *path)
{
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    cfg.epoch = 1;
    cfg.remote.slot = (uint16_t)(i + 1);
    channels[i] = fabric_dial(&port, &cfg, NULL, path, 1, dxpu_udp_now_ns());
    assert_non_null(channels[i]);
    channels[i]->up = true; /* as if the box had answered: it is asked for work */
}

static void test_each_channel_is_first_by_turns(void **state)
{
    fabric_settings set = FABRIC_SETTINGS_DEFAULT("127.0.0.1:0");
    fabric_callbacks cb = { 0 };
    dxpu_udp_address self;
    dxpu_udp_path path;
    (void)state;
    cb.work = on_work;
    set.keys = keys_none();
    assert_int_equal(fabric_open(&port, "test", &set, CAPACITY, &cb), 0);
    self = *dxpu_udp_local(port.udp, 0); /* nobody reads there */
    assert_int_equal(fabric_route(&port, &self, 1, &path), DXPU_OK);
    for (unsigned i = 0; i < CHANNELS; i++)
        dial(i, &path);
    for (unsigned turn = 1; turn <= 2 * CHANNELS; turn++) {
        served = 0;
        run(&port, dxpu_udp_now_ns());
        assert_int_equal(served, CHANNELS); /* all of them, once each, beginning with the next */
        for (unsigned i = 0; i < CHANNELS; i++)
            assert_int_equal(order[i], (turn + i) % CHANNELS);
    }
    for (unsigned i = 0; i < CHANNELS; i++)
        channel_free(&port, channels[i]);
    served = 0;
    run(&port, dxpu_udp_now_ns()); /* none at all: the search ends */
    assert_int_equal(served, 0);
    assert_int_equal(fabric_close(&port), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_channel_is_first_by_turns),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
