"""Arrays whose length a run tells, and those of which the graph shows that it does not."""

import itertools

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert
from pytensor.scan.utils import until

import loopax
from loopax import PaddedArray, jaxify
from tests.support.both_backends import NATIVE, in_both

X = np.array([0.5, 1.0, 2.0, 3.0])
x = pt.dvector("x")
a, b = pt.dscalars("a", "b")
n = pt.lscalar("n")


def stopping(truncate=-1):
    """Of X, 0.5 and 1.0 three steps."""
    return pytensor.scan(
        lambda r, s, a, b: (s * a + r * b, until(s * a + r * b > 2)),
        sequences=[x],
        outputs_info=[pt.zeros(())],
        non_sequences=[a, b],
        truncate_gradient=truncate,
        return_updates=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda s: s[-1], [0.25, 0.5, 1.0, 0.0]),
        (lambda s: s.sum(), [1.75, 1.5, 1.0, 0.0]),
        (lambda s: (s**2).sum(), [3.5625, 5.125, 5.25, 0.0]),
    ],
    ids=["last", "sum", "squares"],
)
def test_the_gradient_by_a_sequence_is_an_array_of_its_length(read, expected):
    cost = read(stopping())
    # What PyTensor 3.0 makes of such a scan is wrong, and transpiled as it is.
    actual = in_both([x, a, b], pytensor.grad(cost, x), [X, 0.5, 1.0])
    assert isinstance(actual, jax.Array) and actual.shape == (4,)
    slope = jax.grad(jaxify([x, a, b], cost))(X, 0.5, 1.0)
    np.testing.assert_allclose(slope, expected)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("order", [*itertools.permutations(range(3))], ids=str)
def test_truncated_gradients_in_any_order(order):
    wrt = [[x, a, b][k] for k in order]
    actual = jaxify([x, a, b], pytensor.grad(stopping(2)[-1], wrt))(X, 0.5, 1.0)
    in_order = jaxify([x, a, b], pytensor.grad(stopping(2)[-1], [x, a, b]), backend=NATIVE)
    expected = in_order(X, 0.5, 1.0)
    for g, k in zip(actual, order, strict=True):
        assert isinstance(g, jax.Array)
        np.testing.assert_allclose(g, expected[k])


def test_what_has_the_length_of_an_array_is_an_array():
    s = stopping()
    rows = pt.concatenate([s, pt.zeros(x.shape[0] - s.shape[0])])
    actual = jax.jit(jaxify([x, a, b], [s, rows, rows * x, rows[1:]]))(X, 0.5, 1.0)
    assert isinstance(actual[0], PaddedArray)
    np.testing.assert_allclose(actual[1], [0.5, 1.25, 2.625, 0.0])
    np.testing.assert_allclose(actual[2], actual[1] * X)
    np.testing.assert_allclose(actual[3], actual[1][1:])


# -- a number of steps that JAX traces ---------------------------------------------------------------


COUNTED = {
    "index": lambda: loopax.scan(lambda c, i: (c + x[i], None), 0.0, pt.arange(n))[0],
    "rows": lambda: loopax.scan(lambda c, r: (c + r, None), 0.0, x[:n])[0],
    "legacy": lambda: pytensor.scan(
        lambda i, s: s + x[i],
        sequences=[pt.arange(n)],
        outputs_info=[pt.zeros(())],
        return_updates=False,
    )[-1],
    "two": lambda: loopax.scan(lambda c, i: (c + x[i] * x[i + 1], None), 0.0, pt.arange(n))[0],
    "no loop": lambda: (x[:n] ** 2).sum(),
    "checked": lambda: Assert("a")(x[:n], a > 0).sum(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_steps_whose_number_is_traced(name):
    out = COUNTED[name]()
    f = jaxify([x, n, a], out, checks="ignore")
    for k in (1, 3):
        expected = in_both([x, n, a], out, [X, k, 1.0])
        np.testing.assert_allclose(jax.jit(f)(X, k, 1.0), expected)
        slope = jax.grad(f)(X, k, 1.0)
        np.testing.assert_allclose(jax.jit(jax.grad(f))(X, k, 1.0), slope)
    counts = np.array([1, 3, 2])
    each = [f(X, int(k), 1.0) for k in counts]
    np.testing.assert_allclose(jax.vmap(f, in_axes=(None, 0, None))(X, counts, 1.0), each)


def test_rows_that_are_not_there_are_no_numbers():
    f = jaxify([x, n], loopax.scan(lambda c, i: (c + x[i], None), 0.0, pt.arange(n))[0])
    with pytest.warns(UserWarning, match="reads a row past the last one"):
        assert np.isnan(jax.jit(f)(X, 5))
    with pytest.raises(IndexError):
        f(X, 5)


def test_slices_of_known_length_stay_arrays():
    i = pt.lscalar("i")
    f = jax.jit(jaxify([x, i], [x[i : i + 2], pt.set_subtensor(x[i : i + 2], 7.0)]))
    part, written = f(X, 1)
    np.testing.assert_array_equal(part, X[1:3])
    np.testing.assert_array_equal(written, [0.5, 7.0, 7.0, 3.0])
    np.testing.assert_array_equal(f(X, 9)[1], X)  # one value ends where the array does


@pytest.mark.sampled(2)
@pytest.mark.parametrize("by", [0, 1, 4, -1, -7, 100])
def test_an_array_that_is_rolled_has_its_length(by):
    rows = pt.dmatrix("rows")
    matrix = np.arange(12.0).reshape(3, 4)
    for axis in (0, 1, None):
        f = jax.jit(jaxify([rows, n], pt.roll(rows, n, axis=axis)))
        np.testing.assert_array_equal(f(matrix, by), np.roll(matrix, by, axis))
    state = jaxify([x, n], loopax.fori_loop(0, 3, lambda i, s: pt.roll(s, n) + s * i, x))
    expected = X
    for i in range(3):
        expected = np.roll(expected, by) + expected * i
    np.testing.assert_allclose(jax.jit(state)(X, by), expected)
    slopes = jax.vmap(
        jax.grad(lambda v, k: (jaxify([x, n], pt.roll(x, n))(v, k) * X).sum()), (None, 0)
    )
    np.testing.assert_array_equal(slopes(X, np.array([by, 0])), [np.roll(X, -by), X])
