"""Native code of another process: the same values and errors, and nothing compiled."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core import event
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import numba_funcify
from pytensor.raise_op import Assert

import loopax
from loopax import jaxify
from loopax.cache.environment import environment
from loopax.numba_backend.cache import code_cache
from loopax.numba_backend.cache.content import content_key
from loopax.numba_backend.callable.program import compile_program

ROOT = Path(__file__).resolve().parents[3]
X = np.arange(1.0, 5.0)


class Forgetful(dict):
    def __setitem__(self, key, value):
        pass

    def setdefault(self, key, value):
        return value


@pytest.fixture
def place(tmp_path, monkeypatch):
    environment()  # what it keeps of packages is not counted below
    monkeypatch.setattr(code_cache, "_IN_PROCESS", Forgetful())  # as another process is
    monkeypatch.setenv("LOOPAX_CACHE_DIR", str(tmp_path / "native"))
    return tmp_path / "native"


class Doubled(Op):
    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = 2 * inputs[0]


class Tripled(Doubled):
    pass


@numba.njit
def tripled(x):
    return 3 * x


@numba_funcify.register(Tripled)
def _tripled(op, **kwargs):
    return tripled


def program(scale=2.0):
    x = pt.dvector("x")
    y = Assert("x is to be positive")(x, pt.all(x > 0))
    total, rows = loopax.scan(lambda s, r: (s + scale * r, pt.log(s + r)), 1.0, y)
    return [x], [total, rows, pt.linalg.cholesky(pt.outer(x, x) + 9 * pt.eye(x.shape[0]))]


def run(make, *args):
    """The results, and how often Numba compiled a function."""
    with event.install_recorder("numba:compile") as recorder:
        outs = make()(*args)
    return outs, len(recorder.buffer)


def assert_equal(outs, expected):
    for a, b in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def native(scale=2.0):
    return jaxify(*program(scale), backend="numba")


@pytest.mark.slow
def test_a_second_function_is_loaded(place):
    first, compiled = run(native, X)
    assert compiled and list(place.iterdir())
    second, compiled = run(native, X)
    assert not compiled
    assert_equal(second, first)


def test_what_other_native_code_calls_is_loaded(place):
    def made():
        return native().compiled

    first, compiled = run(made, X)
    assert compiled
    second, compiled = run(made, X)
    assert not compiled
    assert_equal(second, first)


@pytest.mark.slow
def test_what_is_loaded_raises_the_same_errors(place):
    for _ in range(2):
        with pytest.raises(AssertionError, match="^x is to be positive$"):
            native()(-X)
    assert_equal(native()(X), native()(X))


@pytest.mark.slow
def test_another_constant_is_another_program(place):
    first, _ = run(native, X)
    second, compiled = run(lambda: native(3.0), X)
    assert compiled
    assert second[0] == 1 + 3 * X.sum() and first[0] == 1 + 2 * X.sum()


def test_a_constant_array_counts_by_its_values(place):
    def with_constant(values):
        x = pt.dvector("x")
        y = x * pt.as_tensor(values)
        return jaxify([x], loopax.scan(lambda s, r: (s + r, None), 0.0, y)[0], backend="numba")

    ones = np.ones(300)
    assert with_constant(ones)(ones) == 300
    assert with_constant(2 * ones)(ones) == 600
    result, compiled = run(lambda: with_constant(2 * ones), ones)
    assert result == 600 and not compiled


@pytest.mark.slow
def test_damaged_code_is_compiled_anew(place):
    expected = native()(X)
    for path in place.iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    outs, compiled = run(native, X)
    assert compiled
    assert_equal(outs, expected)
    assert run(native, X)[1] == 0


def test_what_python_runs_is_not_kept(place):
    x = pt.dvector("x")
    with pytest.warns(UserWarning, match="run as Python"):
        f = jaxify([x], Doubled()(x) + 1, backend="numba")
    np.testing.assert_array_equal(f(X), 2 * X + 1)
    assert not place.exists() or not list(place.iterdir())


def test_a_users_own_conversion_is_not_kept(place):
    x = pt.dvector("x")
    f = jaxify([x], Tripled()(x) + 1, backend="numba")
    np.testing.assert_array_equal(f(X), 3 * X + 1)
    assert not place.exists() or not list(place.iterdir())


def key(out, *inputs):
    graph = pytensor.graph.FunctionGraph(list(inputs), [out], clone=True)
    return content_key(compile_program(graph).variants.find(()).py_func)


def test_keys_are_equal_where_the_code_is(place):
    x, y = pt.dvector("x"), pt.dvector("y")
    assert key(pt.exp(x), x) == key(pt.exp(y), y) is not None
    assert key(pt.exp(x), x) != key(pt.log(x), x)
    assert key(pt.gammainc(x, 2.0), x) == key(pt.gammainc(y, 2.0), y)


@pytest.mark.slow
def test_threads_on_a_cold_cache(place):
    barrier = threading.Barrier(16)

    def in_thread(_):
        barrier.wait()
        return native()(X)

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(in_thread, range(16)))
    for outs in results[1:]:
        assert_equal(outs, results[0])
    assert run(native, X)[1] == 0


IN_A_PROCESS = """
import numpy as np, jax
from numba.core import event
from loopax import jaxify
from tests.numba_backend.cache.test_code_cache import X, program

inputs, outputs = program()
f = jaxify(inputs, outputs[:2], loops="native", checks="raise")
with event.install_recorder("numba:compile") as recorder:
    total, rows = f(X)
    slope = jax.jit(jax.grad(lambda x: f(x)[0]))(X)
try:
    f(-X)
except AssertionError as error:
    assert str(error) == "x is to be positive"
else:
    raise SystemExit("no error")
np.testing.assert_allclose(total, 21.0)
np.testing.assert_allclose(slope, 2.0)
print(len(recorder.buffer))
"""


def processes(place, count):
    environment = os.environ | {"LOOPAX_CACHE_DIR": str(place), "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", IN_A_PROCESS],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    for process in started:
        out, said = process.communicate()
        assert process.returncode == 0, said
        yield int(out)


def native_code(place):
    """Its files. Lowered graphs lie beside them, but for those that are made as soon as read."""
    return sorted(path.name for path in place.iterdir() if "-" in path.name)


@pytest.mark.slow
def test_jax_in_a_second_process(place):
    assert next(processes(place, 1)) > 0
    entries = native_code(place)
    assert next(processes(place, 1)) == 0
    assert native_code(place) == entries


@pytest.mark.slow
def test_processes_on_a_cold_cache(place):
    assert all(processes(place, 8))
    entries = native_code(place)
    assert list(processes(place, 4)) == [0] * 4
    assert native_code(place) == entries
