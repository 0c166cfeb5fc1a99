#!/usr/bin/env python3
"""The test runner itself: it must see a failure, a crash, silence, a hang and an empty suite; and
what picks cases of one test must see that there is none."""
import os
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
C_SUITE = r"""
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <cmocka.h>
static void test_good(void **s) { (void)s; printf("ok not_a_script_line\n"); assert_true(1); }
static void test_bad(void **s) { (void)s; assert_int_equal(1, 2); }
static void test_skip(void **s) { (void)s; skip(); }
static void test_abort(void **s) { (void)s; _Exit(3); }
static void test_signal(void **s) { (void)s; abort(); }
int main(void)
{
    const struct CMUnitTest good[] = { cmocka_unit_test(test_good), cmocka_unit_test(test_skip) };
    const struct CMUnitTest bad[] = { cmocka_unit_test(test_good), cmocka_unit_test(test_bad) };
    const struct CMUnitTest dies[] = { cmocka_unit_test(test_good), cmocka_unit_test(test_abort) };
    const struct CMUnitTest kill[] = { cmocka_unit_test(test_good), cmocka_unit_test(test_signal) };
    (void)good, (void)bad, (void)dies, (void)kill;
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return WHICH;
}
"""
# Its process has this niceness, and its session that one where sessions have any: sched(7).
NICE = r"""
import os
import time
time.sleep(0.2)
print("ok" if os.nice(0) == %d else "not ok", "process")
group = "/proc/self/autogroup"
text = open(group).read() if os.path.exists(group) else "nice %d\n"
print("ok" if text.endswith("nice %d\n") else "not ok", "session")
"""
failed = 0


def check(name, truth, shown=""):
    global failed
    failed += not truth
    print(("ok " if truth else "not ok ") + name)
    if not truth:
        print(shown)


def started(name, *args):
    done = subprocess.run([sys.executable, os.path.join(HERE, "..", name), *args],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def runner(*args):
    status, out = started("run.py", *args)
    return status, out, out.splitlines()[-1]


def picks(name, test, wanted, code, *words):
    """What `make test T=TEST K=WANTED` prints."""
    status, out = started("pick.py", test, *wanted)
    check(name, status == code and all(word in out for word in words), out)


def expect(name, args, code, last, word=""):
    status, out, line = runner(*args)
    check(name, status == code and line == last and word in out, out)


with tempfile.TemporaryDirectory() as folder:
    def script(name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def program(name, which):
        path = os.path.join(folder, name)
        source = script(name + ".c", C_SUITE)
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-DWHICH=" + which, "-o", path,
                        source, "-lcmocka"], check=True)
        return path

    good = script("good.sh", "echo ok a; echo 'ok b'; echo 'skip c no hardware'\n")
    expect("runner_adds_up", [good, good], 0, "4 passed, 0 failed, 2 skipped", "no hardware")
    expect("runner_sees_failure", [good, script("bad.sh", "echo ok a; echo not ok b; exit 1\n")],
           1, "3 passed, 1 failed, 1 skipped", "not ok b")
    expect("runner_sees_failure_with_status_0", [script("bad0.sh", "echo not ok b\n")],
           1, "0 passed, 1 failed, 0 skipped", "exit status 0")
    expect("runner_sees_exit_status", [script("exit.py", "print('ok a')\nraise SystemExit(4)\n")],
           1, "1 passed, 1 failed, 0 skipped", "exit status 4")
    expect("runner_sees_crash", [script("crash.sh", "echo ok a; kill -SEGV $$\n")],
           1, "1 passed, 1 failed, 0 skipped", "SIGSEGV")
    expect("runner_sees_empty_suite", [script("empty.sh", "echo hello\n")],
           1, "0 passed, 1 failed, 0 skipped", "ran no test")
    expect("runner_sees_hang", ["--timeout", "0.5", script("hang.sh", "echo ok a; sleep 60\n")],
           1, "1 passed, 1 failed, 0 skipped", "timed out")
    slow = script("slow.sh", "# run.py: --timeout 60\necho ok a; sleep 2\n")
    expect("runner_gives_a_suite_its_time", ["--timeout", "0.5", slow], 0,
           "1 passed, 0 failed, 0 skipped")
    expect("runner_sees_missing_suite", [os.path.join(folder, "nowhere")],
           1, "0 passed, 1 failed, 0 skipped", "could not be started")
    expect("runner_refuses_no_suites", [], 1, "0 passed, 1 failed, 0 skipped")
    net = script("net_a.sh", "echo ok net\n")
    expect("runner_runs_net_suites", ["--jobs", "2", net, good], 0,
           "3 passed, 0 failed, 1 skipped", "net_a.sh")
    wait = "cd %s; touch %%s; until test -e %%s; do sleep 0.05; done; echo ok met\n" % folder
    meet = [script("net_guest.sh", wait % ("guest", "loop")),
            script("net_loop.sh", wait % ("loop", "guest"))]
    expect("runner_runs_guests_beside_loopback", ["--timeout", "30", *meet], 0,
           "2 passed, 0 failed, 0 skipped")
    ring = [script("net_%s.sh" % a, wait % (a, b))
            for a, b in (("one", "two"), ("two", "three"), ("three", "one"))]
    expect("runner_runs_net_suites_three_at_a_time", ["--timeout", "30", *ring], 0,
           "3 passed, 0 failed, 0 skipped")
    pair = [script(name, wait % way) for name, way in (
        ("cli_one.sh", ("program1", "program2")), ("cli_two.sh", ("program2", "program1")))]
    visit = script("net_guest_first.sh", "echo ok guest\n")
    expect("runner_runs_others_where_guests_are_over",
           ["--jobs", "2", "--timeout", "30", *pair, visit], 0, "3 passed, 0 failed, 0 skipped")
    room = ("cd %s; for n in %s; do if mkdir %s$n; then sleep 0.2; rmdir %s$n; echo ok room; "
            "exit; fi; done; exit 1\n")
    guests = [script("net_guest_%s.sh" % name, room % (folder, "1", "visit", "visit"))
              for name in "abc"]
    more = [script("net_more_%d.sh" % n, "sleep 0.6; echo ok net\n") for n in range(9)]
    expect("runner_runs_guests_one_at_a_time", ["--jobs", "3", *guests, *more], 0,
           "12 passed, 0 failed, 0 skipped")
    both = [script("net_guest_%s.sh" % a, wait % (a, b)) for a, b in (("x", "y"), ("y", "x"))]
    expect("runner_runs_two_guests_when_network_suites_are_over", ["--timeout", "30", *both], 0,
           "2 passed, 0 failed, 0 skipped")
    three = [script("net_guest_%s.sh" % name, room % (folder, "1 2", "guest", "guest"))
             for name in "def"]
    expect("runner_runs_no_three_guests", ["--jobs", "3", *three], 0,
           "3 passed, 0 failed, 0 skipped")
    four = [script("net_%s.sh" % name, room % (folder, "1 2 3", "busy", "busy"))
            for name in "bcdk"]
    expect("runner_runs_no_four_net_suites", ["--jobs", "3", *four], 0,
           "4 passed, 0 failed, 0 skipped")

    for kind, by in (("cli", 10), ("net", 0)):
        suite = script(kind + "_nice.py", NICE % (min(19, os.nice(0) + by), by, by))
        expect("runner_runs_%s_suites_with_niceness_%d" % (kind, by), [suite],
               0, "2 passed, 0 failed, 0 skipped")

    # Fails while the mark is not there, and sets it: a machine that is slow once.
    once = "test -e %s && echo ok b || { touch %s; echo ok a; echo not ok b; exit 1; }\n"
    def slow_once(name):
        mark = os.path.join(folder, name + ".mark")
        return script(name, once % (mark, mark))
    expect("runner_runs_again_a_net_suite_that_failed", ["--again", net, slow_once("net_e.sh")], 0,
           "2 passed, 0 failed, 0 skipped", "passed only when run again, alone: net_e.sh")
    counted = script("net_counted.sh", "echo '# 7 apples'; echo ok it_counts\n")
    expect("runner_prints_figures", ["--long", counted], 0, "1 passed, 0 failed, 0 skipped",
           "# 7 apples\n")
    alone = script("net_alone.sh", "# run.py: --alone\necho ok it_waits\n")
    slow = script("net_slow.sh", "sleep 0.3; echo ok it_takes_long\n")
    out = runner("--long", alone, slow)[1]
    check("runner_runs_alone_what_says_so",
          out.index("net_slow.sh") < out.index("network suites")
          < out.index("net_alone.sh"), out)
    check("runner_prints_no_figures_unasked", "apples" not in runner(counted)[1])
    expect("runner_runs_none_again_unasked", [net, slow_once("net_f.sh")], 1,
           "2 passed, 1 failed, 0 skipped", "not ok b")
    expect("runner_runs_no_other_suite_again", ["--again", net, slow_once("unit_g.sh")], 1,
           "2 passed, 1 failed, 0 skipped", "not ok b")
    always = script("net_h.sh", "echo ok a; echo not ok b; exit 1\n")
    expect("runner_counts_a_net_suite_that_fails_twice", ["--again", net, always], 1,
           "2 passed, 1 failed, 0 skipped", "not ok b")
    mark = os.path.join(folder, "skips.mark")
    skips = script("net_i.sh", "test -e %s && echo 'skip a no guest' || { touch %s; echo ok a; "
                   "echo not ok b; exit 1; }\n" % (mark, mark))
    expect("runner_counts_a_net_suite_that_then_skips", ["--again", net, skips], 1,
           "2 passed, 1 failed, 0 skipped", "not ok b")
    many = [slow_once("net_many_%d.sh" % i) for i in range(9)]
    expect("runner_runs_none_again_when_many_fail", ["--again", *many], 1,
           "9 passed, 9 failed, 0 skipped", "too many")

    GROUP = "cmocka_run_group_tests(%s, NULL, NULL)"
    expect("runner_reads_cmocka", [program("c_good", GROUP % "good")],
           0, "1 passed, 0 failed, 1 skipped")
    expect("runner_sees_cmocka_failure", [program("c_bad", GROUP % "bad")],
           1, "1 passed, 1 failed, 0 skipped", "test_bad")
    expect("runner_sees_cmocka_exit", [program("c_dies", GROUP % "dies")],
           1, "0 passed, 1 failed, 0 skipped", "exit status 3")
    expect("runner_sees_cmocka_abort", [program("c_kill", GROUP % "kill")],
           1, "0 passed, 1 failed, 0 skipped", "SIGABRT")
    expect("runner_sees_cmocka_empty", [program("c_none", "0")],
           1, "0 passed, 1 failed, 0 skipped", "ran no test")
    two = "%s + %s" % (GROUP % "good", GROUP % "bad")
    both = program("c_two", two)
    expect("runner_adds_two_groups", [both], 1, "2 passed, 1 failed, 1 skipped")

    picks("pick_refuses_what_no_test_matches", both, ["test_goo"], 1, "no test matches test_goo\n")
    picks("pick_runs_a_test_of_the_second_group", both, ["*bad"], 1, " test_bad\n", "1 test(s) run")
    picks("pick_runs_what_matches", both, ["test_g*"], 0, "[       OK ] test_good\n")
    picks("pick_runs_all", both, [], 1, "2 test(s) run.", "[       OK ] test_good\n")
    cases = script("cases.py", "import sys\nsys.path.insert(0, %r)\n"
                   "from cases import case, main\n\n\n@case\ndef one():\n    pass\n\n\n@case\n"
                   "def two():\n    assert False\n\n\nsys.exit(main())\n"
                   % os.path.join(HERE, "..", "support"))
    picks("pick_refuses_no_case", cases, ["one three"], 1, "no case three; it has: one two\n")
    picks("pick_runs_a_case", cases, ["one"], 0, "ok one\n")
    picks("pick_runs_all_cases", cases, [""], 1, "ok one\nnot ok two\n")
    whole = script("whole.py", "print('ok whole')\n")
    picks("pick_refuses_a_script_without_cases", whole, ["one"], 1, "has no cases to choose from")
    picks("pick_runs_a_script_without_cases", whole, [""], 0, "ok whole\n")

sys.exit(1 if failed else 0)
