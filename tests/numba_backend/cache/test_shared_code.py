"""Equal programs of a process share their native code; what is dropped leaves nothing else."""

import gc
import weakref

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from numba.core import event

import loopax
from loopax import jaxify
from loopax.ir import Scan
from loopax.numba_backend.cache import code_cache

X = np.arange(1.0, 5.0)


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch):
    monkeypatch.setattr(code_cache, "_IN_PROCESS", {})


def program(scale):
    x = pt.dvector("x")
    total, rows = loopax.scan(lambda s, r: (s + scale * r, pt.tanh(s + r)), 1.0, x)
    return [x], total + rows.sum()


def compilations(run):
    with event.install_recorder("numba:compile") as recorder:
        run()
    return len(recorder.buffer)


def test_equal_functions_are_compiled_once():
    first, second = (jaxify(*program(2.0), backend="numba") for _ in range(2))
    assert compilations(lambda: first(X))
    assert not compilations(lambda: second(X))
    np.testing.assert_array_equal(first(X), second(X))
    of_first, of_second = loopax.grad(first), loopax.grad(second)
    assert compilations(lambda: of_first(X))
    assert not compilations(lambda: of_second(X))
    np.testing.assert_array_equal(of_first(X), of_second(X))
    libraries = {id(kept.library) for kept in code_cache._IN_PROCESS.values()}
    assert len(libraries) == len(code_cache._IN_PROCESS)


def test_other_types_and_other_programs_have_code_of_their_own():
    def vector(dtype, scale=2.0):
        x = pt.vector("x", dtype=dtype)
        return jaxify([x], (x * np.asarray(scale, dtype)).sum(), backend="numba")

    first = vector("float64")
    assert first(X) == 2 * X.sum()
    for other, expected in (vector("float32"), 2 * X.sum()), (vector("float64", 3.0), 3 * X.sum()):
        assert compilations(lambda f=other: f(X.astype(f.program.graph.inputs[0].type.dtype)))
        assert other(X.astype(other.program.graph.inputs[0].type.dtype)) == expected


@pytest.mark.slow
def test_the_code_outlives_the_function_that_it_was_compiled_for():
    first = jaxify(*program(2.0), backend="numba")
    expected = first(X)
    second = jaxify(*program(2.0), backend="numba")
    second(X)
    del first
    gc.collect()
    assert second(X) == expected
    third = jaxify(*program(2.0), backend="numba")
    assert not compilations(lambda: third(X))
    assert third(X) == expected


@pytest.mark.slow
@pytest.mark.both_stacks
@pytest.mark.parametrize("options", [{"backend": "numba"}, {"loops": "xla"}], ids=str)
def test_a_function_that_is_dropped_is_freed(options):
    """Itself, its program, and its loops with their steps, which PyTensor's rewriters remember."""
    derive = loopax.grad if "backend" in options else jax.grad
    warm = jaxify(*program(1.0), **options)
    derive(warm)(X)
    gc.collect()
    before = {id(o) for o in gc.get_objects() if type(o) is Scan}
    f = jaxify(*program(3.0), **options)
    f(X)
    parts = [weakref.ref(o) for o in (f, f.program, f.program.graph)]
    parts += [weakref.ref(o) for o in gc.get_objects() if type(o) is Scan and id(o) not in before]
    assert len(parts) > 3
    del f
    gc.collect()
    assert [part() for part in parts if part() is not None] == []
