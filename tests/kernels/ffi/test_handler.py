"""Native functions called by XLA: every dtype and rank, batches, errors."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numba import njit

from loopax.kernels.ffi.handler import handler
from loopax.kernels.ffi.row import ArrayType

pytestmark = pytest.mark.one_stack

DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64"]
DTYPES += ["complex64", "complex128"]

_KEPT = []


def registered(function, inputs, outputs, mapped=(), threads=False):
    """A name by which XLA knows ``function``."""
    made = handler(function, inputs, outputs, mapped, threads=threads)
    name = f"test_{id(made)}"
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(made.address), platform="cpu")
    _KEPT.append(made)
    return name


def call(name, outputs, *args):
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in outputs]
    return jax.jit(lambda *a: jax.ffi.ffi_call(name, shapes)(*a))(*args)


def values_of(dtype, n):
    rng = np.random.default_rng(7)
    if dtype == "bool":
        return rng.random(n) > 0.5
    large = np.array([200, 3, 100, 7, 120, 9], dtype="float64")[:n]
    return large.astype(dtype) * (np.array(1 + 2j, dtype) if dtype.startswith("c") else 1)


@pytest.fixture(scope="module")
def backwards():
    @njit(error_model="numpy")
    def program(number, row, table):
        new = np.empty_like(row)
        for k in range(row.shape[0]):
            new[k] = row[row.shape[0] - 1 - k]
        return number, new, table.copy()

    return program


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_and_arrays_of_every_dtype_go_in_and_out(dtype, backwards):
    ranks = [ArrayType(dtype, ndim) for ndim in (0, 1, 2)]
    name = registered(backwards, ranks, ranks)
    row = values_of(dtype, 6)
    table = row.reshape(2, 3)
    number, new, same = call(
        name, [((), dtype), ((6,), dtype), ((2, 3), dtype)], row[1], row, table
    )
    assert number.dtype == new.dtype == same.dtype == dtype
    np.testing.assert_array_equal(number, row[1])
    np.testing.assert_array_equal(new, row[::-1])
    np.testing.assert_array_equal(same, table)


THREADS = pytest.mark.parametrize("threads", [False, True], ids=["one thread", "threads"])


@THREADS
def test_a_batch_runs_over_the_inputs_that_have_its_axes(threads, backwards):
    ranks = [ArrayType("float64", ndim) for ndim in (0, 1, 2)]
    mapped = [(True, False, True), (False, True, True)]  # axes of 2 and of 4
    name = registered(backwards, ranks, ranks, mapped, threads)
    rng = np.random.default_rng(3)
    numbers, rows, tables = rng.random(2), rng.random((4, 5)), rng.random((2, 4, 3, 2))
    outputs = [((2, 4), "float64"), ((2, 4, 5), "float64"), ((2, 4, 3, 2), "float64")]
    number, new, same = call(name, outputs, numbers, rows, tables)
    np.testing.assert_array_equal(number, np.broadcast_to(numbers[:, None], (2, 4)))
    np.testing.assert_array_equal(new, np.broadcast_to(rows[:, ::-1], (2, 4, 5)))
    np.testing.assert_array_equal(same, tables)


@THREADS
@pytest.mark.parametrize("n", [0, 1])
def test_arrays_without_elements(n, threads, backwards):
    ranks = [ArrayType("float64", ndim) for ndim in (0, 1, 2)]
    name = registered(backwards, ranks, ranks, [(True, True, True)], threads)
    outputs = [((n,), "float64"), ((n, 0), "float64"), ((n, 2, 0), "float64")]
    args = [np.zeros(shape) for shape, _ in outputs]
    for x, arg in zip(call(name, outputs, *args), args, strict=True):
        np.testing.assert_array_equal(x, arg)


@pytest.fixture(scope="module")
def refusing():
    @njit(error_model="numpy")
    def program(x):
        if x < 0:
            raise ValueError("x is negative")
        if x > 1000:
            raise OverflowError("x is large")
        return (np.full(3, x),)

    return program


def test_an_exception_is_an_error_of_xla_with_its_message(refusing):
    one, row = [ArrayType("float64", 0)], [ArrayType("float64", 1)]
    name = registered(refusing, one, row)
    with pytest.raises(Exception, match="ValueError: x is negative"):
        jax.block_until_ready(call(name, [((3,), "float64")], -1.0))
    np.testing.assert_array_equal(call(name, [((3,), "float64")], 1.0)[0], np.ones(3))


@pytest.mark.sampled(1)
@THREADS
def test_the_error_is_that_of_the_first_row_that_fails(threads, refusing):
    one, row = [ArrayType("float64", 0)], [ArrayType("float64", 1)]
    name = registered(refusing, one, row, [(True,)], threads)
    rng = np.random.default_rng(5)
    for _ in range(20):
        rows = rng.normal(size=50) ** 2
        k, others = rng.integers(50), rng.integers(50, size=5)
        rows[others[others > k]] = 1e6
        rows[k] = -1.0
        with pytest.raises(Exception, match="x is negative"):
            jax.block_until_ready(call(name, [((50, 3), "float64")], jnp.array(rows)))
    np.testing.assert_array_equal(
        call(name, [((2, 3), "float64")], jnp.ones(2))[0], np.ones((2, 3))
    )


@pytest.mark.slow
@pytest.mark.skipif(
    os.name != "posix" or os.cpu_count() == 1, reason="XLA has one thread, or no name for it"
)
def test_rows_run_on_several_threads():
    this_thread = ctypes.CDLL(None).pthread_self
    this_thread.argtypes, this_thread.restype = (), ctypes.c_uint64

    @njit(error_model="numpy")
    def slow(x):
        for k in range(100_000):
            x += np.sin(x + k)
        return x, np.uint64(this_thread())

    number, word = ArrayType("float64", 0), ArrayType("uint64", 0)
    outputs = [((32,), "float64"), ((32,), "uint64")]
    for threads in (False, True):
        name = registered(slow, [number], [number, word], [(True,)], threads)
        ran_on = [{*np.asarray(call(name, outputs, jnp.ones(32))[1])} for _ in range(10)]
        assert (max(map(len, ran_on)) > 1) == threads


@pytest.mark.slow
def test_many_threads_share_one_pool(backwards):
    """Rows are divided by programs that run at once: nobody waits for a task that has not begun."""
    ranks = [ArrayType("float64", ndim) for ndim in (0, 1, 2)]
    name = registered(backwards, ranks, ranks, [(False, True, False)], threads=True)
    rows = np.random.default_rng(4).random((200, 5))
    outputs = [((200,), "float64"), ((200, 5), "float64"), ((200, 2, 2), "float64")]

    def same(_):
        return np.array_equal(call(name, outputs, 1.0, rows, np.ones((2, 2)))[1], rows[:, ::-1])

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(same, range(160)))


def test_a_result_of_another_shape_is_refused(refusing):
    one, row = [ArrayType("float64", 0)], [ArrayType("float64", 1)]
    name = registered(refusing, one, row)
    with pytest.raises(Exception, match="another shape"):
        jax.block_until_ready(call(name, [((4,), "float64")], 1.0))
