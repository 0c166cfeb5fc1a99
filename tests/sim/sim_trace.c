/* Small scripted runs as text, compared byte for byte with data/trace/NAME.txt.  Where a change of
   behaviour is meant, DXPU_UPDATE=1 rewrites the files, and the diff shows what changed.
   DXPU_TRACES names another directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dxpu.h"
#include "sim.h"

static sim one;

static char *slurp(const char *path)
{
    size_t room = 1 << 20;
    char *text = (char *)sim_grow(NULL, room);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, room - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    return text;
}

/* Print the first line that differs. */
static void show_difference(const char *path, const char *wanted, const char *got)
{
    unsigned line = 1;
    while (*wanted && *wanted == *got) {
        line += *wanted == '\n';
        wanted++;
        got++;
    }
    print_error("%s:%u differs from here:\n  file: %.*s\n  run:  %.*s\n", path, line,
                (int)strcspn(wanted, "\n"), wanted, (int)strcspn(got, "\n"), got);
    print_error("if this is meant: DXPU_UPDATE=1 build/san/tests/sim/sim_trace\n");
}

/* Run, and compare the trace with the file of this name. */
static void expect_trace(const sim_options *o, const char *name)
{
    char path[256];
    sim_trace trace;
    const char *folder = getenv("DXPU_TRACES");
    sim_trace_from_environment(&trace);
    trace.text_wanted = true;
    trace.text = (char *)calloc(1, 1);
    assert_non_null(trace.text);
    sim_start(&one, o);
    one.trace = &trace;
    while (sim_step(&one))
        ;
    assert_string_equal(one.why, "");
    snprintf(path, sizeof path, "%s/%s.txt", folder ? folder : "tests/data/trace", name);
    if (getenv("DXPU_UPDATE")) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(trace.text, 1, trace.len, f), trace.len);
        assert_int_equal(fclose(f), 0);
    }
    char *wanted = slurp(path);
    bool alike = strcmp(wanted, trace.text) == 0;
    if (!alike)
        show_difference(path, wanted, trace.text);
    free(wanted);
    sim_trace_end(&trace);
    sim_teardown(&one);
    assert_true(alike);
}

/* Writes of 1 KB from the host, over a path of 2 us. */
static void writes(sim_options *o, uint32_t count)
{
    sim_options_default(o);
    o->eager = o->tags = true;
    o->bulk_bytes = 1024;
    o->tlps = count;
}

static void test_trace_open_and_close(void **state)
{
    sim_options o;
    (void)state;
    writes(&o, 1);
    o.reads = 2;
    o.close = true;
    expect_trace(&o, "open-and-close");
}

/* D-14: the third frame is lost once; those behind it show it. */
static void test_trace_single_loss(void **state)
{
    sim_options o;
    (void)state;
    writes(&o, 8);
    o.link[SIM_BOX][0].lose_data = 1 << 2;
    expect_trace(&o, "single-loss");
}

/* D-17: the last frame is lost; nothing behind it could show it. */
static void test_trace_tail_loss(void **state)
{
    sim_options o;
    (void)state;
    writes(&o, 4);
    o.link[SIM_BOX][0].lose_data = 1 << 3;
    expect_trace(&o, "tail-loss");
}

/* P-10, P-13: path 0 dies under load and comes back. */
static void test_trace_failover(void **state)
{
    sim_options o;
    (void)state;
    writes(&o, 16);
    o.paths = 2;
    o.hold_ms = 100;
    o.faults = 1;
    o.fault[0].kind = SIM_FAULT_PATH;
    o.fault[0].at_ns = 9000;
    o.fault[0].for_ns = 10000000;
    o.until_ns = 20000000;
    expect_trace(&o, "failover");
}

/* D-48, D-60: nothing gets through for longer than hold while reads are out. */
static void test_trace_containment(void **state)
{
    sim_options o;
    (void)state;
    writes(&o, 1);
    o.reads = 3; /* the device does not answer */
    o.hold_ms = 40;
    o.faults = 2;
    o.fault[0].kind = SIM_FAULT_STOP;
    o.fault[0].end = SIM_BOX;
    o.fault[0].for_ns = 45000000;
    o.fault[1].kind = SIM_FAULT_DARK;
    o.fault[1].at_ns = 100000;
    o.fault[1].for_ns = 45000000;
    expect_trace(&o, "containment");
}

/* The control: a run that goes another way has another trace. */
static void test_trace_differs(void **state)
{
    sim_options o;
    sim_trace trace[2];
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        writes(&o, 4);
        o.link[SIM_BOX][0].lose_data = i;
        memset(&trace[i], 0, sizeof trace[i]);
        trace[i].text_wanted = true;
        trace[i].text = (char *)calloc(1, 1);
        assert_non_null(trace[i].text);
        sim_start(&one, &o);
        one.trace = &trace[i];
        while (sim_step(&one))
            ;
        sim_teardown(&one);
    }
    assert_string_not_equal(trace[0].text, trace[1].text);
    assert_null(strstr(trace[0].text, "-- lost"));
    assert_non_null(strstr(trace[1].text, "-- lost"));
    sim_trace_end(&trace[0]);
    sim_trace_end(&trace[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_open_and_close), cmocka_unit_test(test_trace_single_loss),
        cmocka_unit_test(test_trace_tail_loss),      cmocka_unit_test(test_trace_failover),
        cmocka_unit_test(test_trace_containment),    cmocka_unit_test(test_trace_differs),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST")); /* a pattern; none: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
