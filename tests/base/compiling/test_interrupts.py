"""Ctrl-C, and forks, while native code is compiled: what comes after them runs."""

import os
import signal
import subprocess
import sys
import threading
from importlib import import_module

import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax.base.uninterrupted import import_uninterrupted, uninterrupted

X, S = pt.dvector("x"), pt.dscalar("s")


@pytest.fixture
def interrupting():
    """A function that has the main thread interrupted, as Ctrl-C does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_work_goes_on_when_who_waits_is_interrupted(interrupting):
    begun, interrupted, done = threading.Event(), threading.Event(), threading.Event()

    def work():
        begun.set()
        interrupting()
        interrupted.wait()
        done.set()

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert begun.is_set() and not done.is_set()
    interrupted.set()
    done.wait()


def test_results_and_errors_are_those_of_the_work():
    assert uninterrupted(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: 1 / 0)
    assert import_uninterrupted("json") is import_module("json")
    inside = []
    thread = threading.Thread(target=lambda: inside.append(uninterrupted(threading.get_ident)))
    thread.start()
    thread.join()
    assert inside == [thread.ident]  # only the main thread is interrupted


def loop(k):
    total, _ = loopax.scan(lambda c, x: (k * c + pt.sin(x), None), S, X)
    return loopax.jaxify([S, X], total, backend="numba")


def test_compilation_is_not_cut_off(interrupting, monkeypatch):
    """The interrupt comes in the middle of Numba's work, and the next call finds it done."""
    pipeline = import_module("numba.core.compiler_machinery").PassManager
    run, once = pipeline.run, iter([True])

    def run_and_interrupt(*args):
        if next(once, False):
            interrupting()
        return run(*args)

    f = loop(0.3)
    monkeypatch.setattr(pipeline, "run", run_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        f(1.0, np.ones(3))
    assert f(1.0, np.zeros(3)) == pytest.approx(0.027)
    assert loop(0.5)(1.0, np.zeros(3)) == pytest.approx(0.125)


FIRST_CALL = """
import signal, sys, warnings
import numpy as np, pytensor.tensor as pt, loopax

def first():
    s, x = pt.dscalar("s"), pt.dvector("x")
    total, _ = loopax.scan(lambda c, e: (c * 0.5 + pt.sin(e), None), s, x)
    return float(loopax.jaxify([s, x], total, backend="numba")(1.0, np.zeros(3)))

signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
try:
    first()
except KeyboardInterrupt:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
print(first())
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.02, 0.1, 0.2, 0.4, 0.5, 0.7, 1.0, 2.0])
def test_the_first_call_of_a_process(delay):
    """Where it is interrupted, in the import of Numba say, the second one runs."""
    environment = {**os.environ, "LOOPAX_CACHE_DIR": ""}
    command = [sys.executable, "-W", "ignore", "-c", FIRST_CALL, str(delay)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.stdout == "0.125\n", run.stderr


HELD = """
import os, threading
from loopax.base.lock import TRACING

held = threading.Event()

def hold():
    with TRACING:
        held.set()
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    os._exit(not TRACING.acquire(blocking=False))
print(os.waitpid(child, 0)[1], flush=True)
os._exit(0)
"""

COMPILING = """
import os, threading
import numpy as np, pytensor.tensor as pt, loopax
from numba.core.compiler_machinery import PassManager

def run_loop(k):
    s, x = pt.dscalar("s"), pt.dvector("x")
    total, _ = loopax.scan(lambda c, e: (c * k + pt.sin(e), None), s, x)
    return float(loopax.jaxify([s, x], total, backend="numba")(1.0, np.zeros(3)))

begun, depth, run = threading.Event(), [0], PassManager.run

def counted(*args):
    depth[0] += 1
    begun.set()
    try:
        return run(*args)
    finally:
        depth[0] -= 1

PassManager.run = counted
thread = threading.Thread(target=run_loop, args=(0.4,))
thread.start()
begun.wait()
child = os.fork()
if not child:
    os._exit(depth[0] != 0 or run_loop(0.5) != 0.125)
print(os.waitpid(child, 0)[1])
thread.join()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no forks")
@pytest.mark.parametrize("program", [HELD, COMPILING], ids=["held", "compiling"])
def test_a_forked_child(program):
    """It takes loopax's lock. A fork waits for a running compilation: its copy of LLVM is whole."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    environment = {**os.environ, "LOOPAX_CACHE_DIR": ""}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.stdout == "0\n", run.stderr
