"""Native functions release the interpreter's lock: several threads may be inside of one."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from tests.support.ops import SameType

X = pt.dvector("x")


class Told(SameType):
    """Its argument; an event is set when it is reached, which it is in Python."""

    def __init__(self, event):
        self.event = event

    def perform(self, node, inputs, outputs):
        self.event.set()
        outputs[0][0] = np.array(inputs[0])


@pytest.mark.slow
def test_results_are_those_of_calls_one_after_the_other():
    rng = pt.random.type.random_generator_type("rng")
    next_rng, noise = pt.random.normal(size=(100,), rng=rng, return_next_rng=True)

    def step(s, x_e):
        x, e = x_e
        new = pt.sin(s) + x * e
        return new, new

    last, rows = loopax.scan(step, pt.dot(X, X), (X, noise))
    solved = pt.linalg.solve(pt.outer(rows, rows) + pt.eye(100), X)
    f = loopax.jaxify([X, rng], (last, rows, solved, rows.sort(), next_rng), backend="numba")
    inputs = [(np.linspace(0, k, 100), np.random.default_rng(k)) for k in range(4)]
    expected = [f(*given) for given in inputs]
    barrier = threading.Barrier(4)

    def many(given):
        barrier.wait()
        return [f(*given) for _ in range(200)]

    with ThreadPoolExecutor(4) as pool:
        for runs, one in zip(pool.map(many, inputs), expected, strict=True):
            for run in runs:
                for got, wanted in zip(run[:-1], one[:-1], strict=True):
                    np.testing.assert_array_equal(got, wanted)
                assert run[-1].bit_generator.state == one[-1].bit_generator.state


def test_a_live_function_takes_one_call_at_a_time():
    n = pytensor.shared(np.int64(0), name="n")
    count = loopax.jaxify([], n, updates={n: n + 1}, backend="numba").stateful(live=True)
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda _: int(count()), range(1000)))
    assert sorted(actual) == list(range(1000)) and n.get_value() == 1000


@pytest.mark.filterwarnings("ignore:These ops have no conversion")
def test_what_runs_as_python_takes_the_lock():
    f = loopax.jaxify([X], Told(threading.Event())(X * 2) + 1, backend="numba")
    barrier = threading.Barrier(4)

    def many(k):
        barrier.wait()
        return all((f(np.full(3, float(k))) == 2 * k + 1).all() for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, range(4)))


def test_the_lock_is_released_by_what_python_calls():
    f = loopax.jaxify([X], X.sum(), backend="numba")
    assert f.compiled.targetoptions["nogil"]
    assert f._native.variants.find(()).targetoptions["nogil"]
