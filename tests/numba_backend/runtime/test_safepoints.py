"""Ctrl-C and `loopax.time_limit` end native loops; what is called next is right.

Signals are sent in processes of their own, by a thread that waits until the main thread asks for them:
native code has been entered then, and no test looks at a clock. A loop that is not stopped never ends.
"""

import os
import subprocess
import sys
import threading

import pytensor.tensor as pt
import pytest

import loopax
from loopax.base.time_limits import ASKED, WORDS

X = pt.dscalar("x")

# `f` never ends for 0.5, and takes 0 steps for -1.
BEGIN = """
import ctypes, os, signal, sys, threading, time, warnings
import numpy as np, pytensor, pytensor.tensor as pt, jax, loopax
from loopax.base.time_limits import LAST, WORDS

warnings.simplefilter("ignore")
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have background jobs ignore it
x = pt.dscalar("x")
endless = loopax.while_loop(lambda s: s > 0, pt.cos, x)

def stopped(f, given, kind=KeyboardInterrupt):
    f(-given)  # compiled
    main = threading.get_native_id()

    def interrupt():
        before = WORDS[LAST]
        while WORDS[LAST] == before:  # until a loop has asked whether it is to stop
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        f(given)
    except kind as error:
        print(type(error).__name__, *error.args, np.asarray(f(-given)).sum())

"""

PROGRAMS = {
    "direct": "stopped(loopax.jaxify([x], endless, backend='numba'), 0.5)",
    "jit": "stopped(jax.jit(loopax.jaxify([x], endless, loops='native')), 0.5)",
    "vmap": """
f = jax.jit(jax.vmap(loopax.jaxify([x], endless, loops='native')))
stopped(lambda x: f(np.full(1, x)), 0.5)""",
    "nested": """
around = loopax.while_loop(lambda s: s > 0, lambda s: loopax.fori_loop(0, 7, lambda i, r: pt.cos(r), s), x)
stopped(loopax.jaxify([x], around, backend='numba'), 0.5)""",
    "LOOPAX_NUMBA": "stopped(pytensor.function([x], endless, mode='LOOPAX_NUMBA'), 0.5)",
}

OWN_HANDLER = """
def handler(*given):
    raise TimeoutError("by the user")
signal.signal(signal.SIGINT, handler)
f = loopax.jaxify([x], endless, backend='numba')
stopped(f, 0.5, TimeoutError)
"""


def run(program):
    environment = {**os.environ, "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0"}
    command = [sys.executable, "-W", "ignore", "-c", BEGIN + program]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_an_interrupt_ends_a_loop(program):
    actual = run(program)
    assert actual.stdout == "KeyboardInterrupt -0.5\n", actual.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_what_a_handler_raises_is_raised():
    actual = run(OWN_HANDLER)
    assert actual.stdout == "TimeoutError by the user -0.5\n", actual.stderr


# Without safepoints: the signal is handled when the function returns.
BETWEEN = """
trace = loopax.scan(lambda s, _: (pt.cos(s), s), x, length=3000)[1]
f = loopax.jaxify([x], [x + 1, trace], backend='numba')
f(0.5)
kinds = set()
ended = threading.Event()

def interrupt():
    while not ended.is_set():
        time.sleep(0.0001)
        signal.raise_signal(signal.SIGINT)

class Signal(Exception):
    pass

def handler(number, frame):
    global is_called
    if is_called:  # once a call, so that nothing is raised outside of it
        is_called = False
        raise Signal

is_called, n_caught = False, 0
signal.signal(signal.SIGINT, handler)
thread = threading.Thread(target=interrupt)
thread.start()
while n_caught < 100:
    try:
        is_called = True
        f(0.5)
        is_called = False
    except BaseException as error:
        n_caught += 1
        kinds.add(type(error).__name__)
ended.set()
thread.join()
print(kinds)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_a_signal_is_no_system_error():
    actual = run(BETWEEN)
    assert actual.stdout == "{'Signal'}\n", actual.stderr


@pytest.fixture(scope="module")
def endless():
    return loopax.jaxify([X], loopax.while_loop(lambda s: s > 0, pt.cos, X), backend="numba")


def test_a_time_limit_ends_a_loop(endless):
    with pytest.raises(loopax.TimeLimitExceeded, match="ran out"):
        with loopax.time_limit(0.01):
            endless(0.5)
    assert endless(-0.5) == -0.5 and not WORDS[ASKED]


def test_of_limits_in_one_another_the_earlier_one_counts(endless):
    for outer, inner in ((0.01, 1e6), (1e6, 0.01)):
        with pytest.raises(loopax.TimeLimitExceeded):
            with loopax.time_limit(outer), loopax.time_limit(inner):
                endless(0.5)
    assert not WORDS[ASKED]


def test_a_block_that_is_late_says_so_at_its_end():
    late = threading.Event()
    with pytest.raises(loopax.TimeLimitExceeded):
        with loopax.time_limit(0):
            late.set()
    assert late.is_set()


def test_an_error_of_the_block_is_its_own():
    with pytest.raises(ZeroDivisionError):
        with loopax.time_limit(0):
            raise ZeroDivisionError
    assert issubclass(loopax.TimeLimitExceeded, TimeoutError)


def test_a_limit_is_of_its_thread(endless):
    """Another thread goes on with its loop until it is told to end: here by a limit of its own."""
    begun, ended, actual = threading.Event(), threading.Event(), []

    def other():
        begun.set()
        try:
            with loopax.time_limit(1e6):
                actual.append(steps(10**7))
        except loopax.TimeLimitExceeded:
            actual.append("stopped")
        ended.set()

    n = pt.lscalar("n")
    steps = loopax.jaxify(
        [n], loopax.fori_loop(0, n, lambda i, s: pt.cos(s), pt.constant(0.5)), backend="numba"
    )
    steps(1)
    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    with pytest.raises(loopax.TimeLimitExceeded):
        with loopax.time_limit(0.01):
            endless(0.5)
    thread.join()
    assert ended.is_set() and actual == [pytest.approx(0.7390851332)]


def test_loops_that_look():
    """Those over steps, and those around another one, but not where a program is of so few steps."""

    def source(out, *inputs):
        return loopax.jaxify([*inputs], out, backend="numba").source

    x, n = pt.dvector("x"), pt.lscalar("n")
    assert "safepoint" not in source(pt.exp(x).sum(), x)
    assert "safepoint(i0, 4096)" in source(loopax.fori_loop(0, n, lambda i, s: pt.sin(s), X), X, n)
    assert "safepoint" not in source(loopax.fori_loop(0, 100, lambda i, s: pt.sin(s), X), X)
    around = loopax.fori_loop(0, n, lambda i, s: s + pt.exp(x * s).sum(), X)
    assert "safepoint(i0, 16)" in source(around, X, x, n)
