"""`FitRows`: the last rows, or zero rows behind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import infer_shape
from pytensor.gradient import DisconnectedInputError, verify_grad

from loopax import jaxify
from loopax.ir import FitRows
from loopax.ir.ops.rows import KeepRows
from tests.support.compare import FAST_COMPILE, MODES, assert_agrees

ROWS = np.arange(1.0, 7.0).reshape(3, 2)
FITTED = {
    0: np.zeros((0, 2)),
    1: ROWS[2:],
    2: ROWS[1:],
    3: ROWS,
    5: np.concatenate([ROWS, np.zeros((2, 2))]),
}


@pytest.mark.parametrize("length", FITTED)
def test_the_last_rows_or_zero_rows_behind(length):
    x, n = pt.dmatrix("x"), pt.lscalar("n")
    (actual,) = assert_agrees([x, n], [FitRows()(x, n)], [ROWS, length], static=[1], direct=False)
    np.testing.assert_array_equal(actual, FITTED[length])


@pytest.mark.parametrize("dtype", ["int8", "bool", "float32"])
def test_the_dtype_stays(dtype):
    x = pt.tensor("x", dtype=dtype, shape=(None,))
    f = pytensor.function([x], FitRows()(x, 3), mode=FAST_COMPILE)
    actual = f(np.ones(2, dtype=dtype))
    assert actual.dtype == dtype and actual.tolist() == [1, 1, 0]


def test_the_type_forgets_the_number_of_rows_only():
    x = pt.dtensor3("x", shape=(4, None, 1))
    assert FitRows()(x, 2).type.shape == (None, None, 1)


def test_its_shape_is_known_without_its_value():
    x, n = pt.dmatrix("x"), pt.bscalar("n")
    y = FitRows()(x, n)
    (shape,) = infer_shape([y], [x, n], [(pt.lscalar(), pt.lscalar()), ()])
    assert len(shape) == 2
    f = pytensor.function([x, n], y.shape, mode=MODES[1])
    assert f(ROWS, 7).tolist() == [7, 2]
    assert not any(isinstance(node.op, FitRows) for node in f.maker.fgraph.toposort())


@pytest.mark.parametrize("length", FITTED)
def test_its_pullback_agrees_with_finite_differences(length):
    rng = np.random.default_rng(1)
    verify_grad(lambda x: FitRows()(x * x, length), [ROWS], rng=rng, mode=FAST_COMPILE)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("length", FITTED)
def test_its_pullback_in_jax(length):
    x = pt.dmatrix("x")
    y = FitRows()(x, length)
    cost = (y**2).sum() + y[:1].sum() if length else (y**2).sum()
    expected = np.zeros_like(ROWS)
    if length:
        kept = slice(max(3 - length, 0), None)
        expected[kept] = 2 * ROWS[kept]
        expected[kept.start] += 1
    by_jax = jax.grad(jaxify([x], cost))(jnp.asarray(ROWS))
    by_pytensor = pytensor.function([x], pytensor.grad(cost, x), mode=FAST_COMPILE)(ROWS)
    transpiled = jaxify([x], pytensor.grad(cost, x))(ROWS)
    for actual in (by_jax, by_pytensor, transpiled):
        np.testing.assert_array_equal(actual, expected)


def test_rows_of_length_one_keep_it_in_the_gradient():
    x = pt.dmatrix("x", shape=(None, 1))
    g = pytensor.grad(FitRows()(x, 2).sum(), x)
    assert g.type.ndim == 2
    np.testing.assert_array_equal(g.eval({x: np.ones((3, 1))}, mode=FAST_COMPILE), [[0], [1], [1]])


def test_second_derivatives():
    x = pt.dvector("x")
    cost = (FitRows()(x, 2) ** 3).sum()
    g = pytensor.grad(pytensor.grad(cost, x).sum(), x)
    np.testing.assert_allclose(g.eval({x: [1.0, 2.0, 3.0]}, mode=FAST_COMPILE), [0, 12, 18])


def test_there_is_no_derivative_by_the_length():
    x, n = pt.dvector("x"), pt.dscalar("n")
    y = FitRows()(x, n.astype("int64")).sum()
    with pytest.raises(DisconnectedInputError):
        pytensor.grad(y, n)


def test_the_cotangent_of_integer_rows_is_of_floats():
    x = pt.lmatrix("x")
    kept = KeepRows()(x, 1, 2)
    (actual, *_) = KeepRows().pullback(
        [x, *kept.owner.inputs[1:]], [kept], [pt.ones_like(kept, "float64")]
    )
    assert actual.type.dtype == "float64"
    np.testing.assert_array_equal(
        actual.eval({x: np.ones((3, 2), int)}, mode=FAST_COMPILE), [[1, 1], [0, 0], [0, 0]]
    )


def test_equal_ones_merge():
    assert FitRows() == FitRows() and hash(FitRows()) == hash(FitRows())
