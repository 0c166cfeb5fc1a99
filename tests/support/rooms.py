"""Where things are: importing this puts the tests' and the demo's directories on sys.path."""
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)

# Suites use parts of each other: the stream of one, the pool of another.
sys.path[:0] = [os.path.join(ROOT, "examples", "demo"), os.path.join(TESTS, "support"),
                os.path.join(TESTS, "support", "faults")] + [
    os.path.join(TESTS, room) for room in ("guest", "e2e", "host", "box", "manager", "cli")]


def c_test(name):
    """The source of a C test, in whichever room it is."""
    return next(os.path.join(TESTS, room, name + ".c") for room in sorted(os.listdir(TESTS))
                if os.path.exists(os.path.join(TESTS, room, name + ".c")))
