"""The cases of a script of tests: functions marked @case, run one after the other.  A case that
returns a reason was skipped, one that raises has failed; each prints its line for tests/run.py.
Arguments of the script name the cases to run, and one that names none is an error; DXPU_TIMES
prints what each took."""
import os
import sys
import time
import traceback

cases = []


def case(function):
    cases.append(function)
    return function


def check(truth, *shown):
    if not truth:
        raise AssertionError(" ".join(str(s) for s in shown) or "a check failed")


def until(truth, what, seconds=20.0, pause=0.02):
    """What truth() gives, once that is something; pause: longer, where it starts programs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = truth()
        if found:
            return found
        time.sleep(pause)
    raise AssertionError("in vain: " + what)


def sanitized():
    """Have `lab` start programs with sanitizers, where they were built; called before it is
    imported."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "san")
    if os.path.exists(os.path.join(folder, "dxpu-manager")):
        os.environ.setdefault("DXPU_BIN", folder)


def known(wanted, names):
    """Ends the script when someone wants a case that it does not have."""
    strange = sorted(set(wanted) - set(names))
    if strange:
        sys.exit("%s has no case %s; it has: %s" % (os.path.basename(sys.argv[0]),
                                                    " ".join(strange), " ".join(names)))


def main(why_not=None, must_run=False):
    """The exit status.  why_not: a reason to skip all of them; must_run: a skip is a failure."""
    failed = 0
    wanted = sys.argv[1:]
    own = [f for f in cases if f.__module__ == "__main__"]  # a script may import another one
    known(wanted, [f.__name__ for f in own])
    for function in own:
        name = function.__name__
        if wanted and name not in wanted:
            continue
        begin = time.monotonic()
        try:
            reason = why_not or function()
            failed += bool(reason and must_run)
            skip = "not ok %s was not run: %s" if must_run else "skip %s %s"
            print(skip % (name, reason) if reason else "ok " + name, flush=True)
        except Exception:  # whatever it is, the next case is another one
            failed += 1
            print("not ok " + name, flush=True)
            traceback.print_exc(file=sys.stdout)
        if os.environ.get("DXPU_TIMES"):
            print("# %.1f s" % (time.monotonic() - begin), flush=True)
    return 1 if failed else 0
