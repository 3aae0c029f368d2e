"""What is kept stays as it was when a call is interrupted, and a forked process can call."""

import multiprocessing
import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

from loopax import jaxify, scan
from tests.support.ops import SameType

BACKENDS = ["jax", "numba"]
x = pt.dscalar("x")


class Interrupted(SameType):
    """Its input, unless that is negative: then the user presses Ctrl-C."""

    def perform(self, node, inputs, outputs):
        if inputs[0] < 0:
            raise KeyboardInterrupt
        outputs[0][0] = np.array(inputs[0])


def program(check, backend):
    """Two shared variables with updates, one of which comes from behind ``check``."""
    total = pytensor.shared(np.float64(0.0), name="total")
    rows = pytensor.shared(np.zeros(2), name="rows")
    checked = check(x)
    final, _ = scan(lambda c, r: (c * checked + r, None), total, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an op without a conversion says so
        f = jaxify([x], final, updates={total: total + 1, rows: rows + checked}, backend=backend)
        f.stateful()(1.0)
    return f, (total, rows)


def values(context):
    return [np.asarray(context[name]).tolist() for name in ("total", "rows")]


@pytest.mark.parametrize("live", [False, True])
def test_an_exception_in_a_native_program_leaves_the_state(live):
    f, shared = program(lambda x: Assert("x is negative")(x, x >= 0), "numba")
    g = f.stateful(live=live)
    before = f.init_context()
    g(2.0)
    kept = values(g.context) if not live else [s.get_value().tolist() for s in shared]
    assert kept == [1.0, [2.0, 2.0]]
    with pytest.raises(AssertionError, match="x is negative"):
        g(-1.0)
    with pytest.raises(AssertionError, match="x is negative"):
        f.apply(before, -1.0)
    assert kept == (values(g.context) if not live else [s.get_value().tolist() for s in shared])
    assert values(before) == [0.0, [0.0, 0.0]]
    expected = [1.0, [2.0, 2.0]] if live else [0.0, [0.0, 0.0]]
    assert [s.get_value().tolist() for s in shared] == expected
    g(2.0)  # and goes on from there
    after = values(g.context) if not live else [s.get_value().tolist() for s in shared]
    assert after == [2.0, [4.0, 4.0]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interrupt_leaves_the_state(backend):
    f, shared = program(Interrupted(), backend)
    g = f.stateful()
    g(2.0)
    with pytest.raises((KeyboardInterrupt, RuntimeError, ValueError)) as raised:  # XLA wraps it
        g(-1.0)
        np.asarray(g.context["total"])
    assert "KeyboardInterrupt" in repr(raised.value) + str(raised.value)
    assert values(g.context) == [1.0, [2.0, 2.0]]
    assert [s.get_value().tolist() for s in shared] == [0.0, [0.0, 0.0]]
    g(2.0)
    assert values(g.context) == [2.0, [4.0, 4.0]]


def _call(f, connection):
    connection.send(np.asarray(f(3.0)).tolist())


def test_a_forked_process_can_call_a_native_function():
    """Also where JAX, whose threads do not survive a fork, has compiled something before."""
    final, ys = scan(lambda c, _: (c * x, c), 1.0, length=3)
    assert jaxify([x], final)(2.0) == 8
    native = jaxify([x], ys, backend="numba")
    assert native(2.0).tolist() == [1, 2, 4]
    ours, theirs = multiprocessing.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a process with threads is forked: JAX's and Python's
        child = multiprocessing.get_context("fork").Process(target=_call, args=(native, theirs))
        child.start()
    theirs.close()  # a child that dies is then an end of the pipe
    try:
        assert ours.recv() == [1, 3, 9]
        child.join()
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()
