"""Native functions called by XLA: every dtype and rank, batches, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numba import njit

from loopax.numba_backend.ffi.handler import ArrayType, handler

DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64"]
DTYPES += ["complex64", "complex128"]

_KEPT = []


def registered(function, inputs, outputs, mapped=()):
    """A name by which XLA knows ``function``."""
    made = handler(function, inputs, outputs, mapped)
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


def test_a_batch_runs_over_the_inputs_that_have_its_axes(backwards):
    ranks = [ArrayType("float64", ndim) for ndim in (0, 1, 2)]
    mapped = [(True, False, True), (False, True, True)]  # axes of 2 and of 4
    name = registered(backwards, ranks, ranks, mapped)
    rng = np.random.default_rng(3)
    numbers, rows, tables = rng.random(2), rng.random((4, 5)), rng.random((2, 4, 3, 2))
    outputs = [((2, 4), "float64"), ((2, 4, 5), "float64"), ((2, 4, 3, 2), "float64")]
    number, new, same = call(name, outputs, numbers, rows, tables)
    np.testing.assert_array_equal(number, np.broadcast_to(numbers[:, None], (2, 4)))
    np.testing.assert_array_equal(new, np.broadcast_to(rows[:, ::-1], (2, 4, 5)))
    np.testing.assert_array_equal(same, tables)


@pytest.mark.parametrize("n", [0, 1])
def test_arrays_without_elements(n, backwards):
    ranks = [ArrayType("float64", ndim) for ndim in (0, 1, 2)]
    name = registered(backwards, ranks, ranks, [(True, True, True)])
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
        return (np.full(3, x),)

    return program


def test_an_exception_is_an_error_of_xla_with_its_message(refusing):
    one, row = [ArrayType("float64", 0)], [ArrayType("float64", 1)]
    name = registered(refusing, one, row)
    with pytest.raises(Exception, match="ValueError: x is negative"):
        jax.block_until_ready(call(name, [((3,), "float64")], -1.0))
    np.testing.assert_array_equal(call(name, [((3,), "float64")], 1.0)[0], np.ones(3))


def test_a_failing_row_ends_the_batch(refusing):
    one, row = [ArrayType("float64", 0)], [ArrayType("float64", 1)]
    name = registered(refusing, one, row, [(True,)])
    with pytest.raises(Exception, match="x is negative"):
        jax.block_until_ready(call(name, [((3, 3), "float64")], jnp.array([1.0, -1.0, -2.0])))


def test_a_result_of_another_shape_is_refused(refusing):
    one, row = [ArrayType("float64", 0)], [ArrayType("float64", 1)]
    name = registered(refusing, one, row)
    with pytest.raises(Exception, match="another shape"):
        jax.block_until_ready(call(name, [((4,), "float64")], 1.0))
