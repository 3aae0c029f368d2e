"""Writes at positions that are known: no scatter, in their derivatives neither."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopax import jaxify
from tests.support.compare import primitives

X = np.arange(1.0, 13.0).reshape(3, 4)
SCATTERS = {"scatter", "scatter-add", "scatter_add"}
INDICES = [
    (np.array([2, -3]),),
    (np.array([0, 2]), np.array([-1, 0])),
    (slice(None), np.array([3, 1])),
    (X % 2 == 0,),
    (np.array([[0], [1]]), np.array([1, 2])),
]


def graph(index, sets, shape):
    x, y = pt.dmatrix("x"), pt.tensor("y", dtype="float64", shape=shape)
    part = x[index]
    out = part.set(y) if sets else part.inc(y)
    return [x, y], out


def expected(index, sets, y):
    out = X.copy()
    if sets:
        out[index] = y
    else:
        np.add.at(out, index, y)
    return out


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sets", [True, False])
@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("broadcast", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_values_and_derivatives_have_no_scatter(index, sets, broadcast):
    shape = () if broadcast else X[index].shape
    y = np.random.default_rng(0).normal(size=shape)
    inputs, out = graph(index, sets, shape)
    f = jaxify(inputs, out)
    np.testing.assert_array_equal(f(X, y), expected(index, sets, y))
    weights = np.cos(X)
    inner = jax.grad(lambda x, y: (f(x, y) ** 2 * weights).sum(), argnums=(0, 1))
    outer = jax.grad(lambda x, y: sum((g**2).sum() for g in inner(x, y)), argnums=(0, 1))
    for function in (f, inner, outer):
        assert not primitives(jax.make_jaxpr(function)(X, y)).keys() & SCATTERS
    by_pytensor = pytensor.grad((out**2 * weights).sum(), inputs)
    for ours, theirs in zip(inner(X, y), jaxify(inputs, by_pytensor)(X, y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    second = pytensor.grad(sum((g**2).sum() for g in by_pytensor), inputs)
    for ours, theirs in zip(outer(X, y), jaxify(inputs, second)(X, y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    batch = jax.vmap(f, in_axes=(None, 0))(X, np.stack([y, 2 * y]))
    np.testing.assert_array_equal(batch[1], expected(index, sets, 2 * y))
    np.testing.assert_allclose(
        jax.jvp(f, (X, y), (X, y))[1], expected(index, sets, y) if not sets else f(X, y), rtol=1e-13
    )


@given(st.lists(st.integers(-7, 6), min_size=1, max_size=9), st.booleans())
@settings(max_examples=8, derandomize=True)
def test_some_positions_more_than_once(index, sets):
    """The last value that is set counts, all that are added do; the others have no derivative."""
    index = np.array(index)
    x, y = pt.dvector("x"), pt.dvector("y")
    out = x[index].set(y) if sets else x[index].inc(y)
    f = jaxify([x, y], out)
    values, new = np.linspace(0.0, 1.0, 7), np.arange(1.0, len(index) + 1)
    wanted = values.copy()
    if sets:
        wanted[index] = new
    else:
        np.add.at(wanted, index, new)
    np.testing.assert_array_equal(f(values, new), wanted)
    weights = np.cos(np.arange(7))
    by_x, by_y = jax.grad(lambda x, y: f(x, y) @ weights, argnums=(0, 1))(values, new)
    written = np.isin(np.arange(7), index % 7)
    np.testing.assert_array_equal(by_x, np.where(written & sets, 0, weights))
    last = [k % 7 not in index[n + 1 :] % 7 for n, k in enumerate(index)]
    np.testing.assert_array_equal(by_y, np.where(np.array(last) | (not sets), weights[index], 0))


def test_reads_without_repetition_have_no_scatter_in_their_derivative():
    x = pt.dvector("x")
    order = np.array([3, 0, -1])
    read = jaxify([x], x[order])
    gradient = jax.grad(lambda x: (read(x) ** 2).sum())
    np.testing.assert_array_equal(gradient(np.arange(5.0)), [0.0, 0.0, 0.0, 6.0, 8.0])
    assert not primitives(jax.make_jaxpr(gradient)(np.arange(5.0))).keys() & SCATTERS
    twice = jaxify([x], x[np.array([1, 1, 4])])
    np.testing.assert_array_equal(
        jax.grad(lambda x: twice(x).sum())(np.arange(5.0)), [0, 2, 0, 0, 1]
    )


def test_few_of_many_are_a_scatter():
    x = pt.dvector("x")
    f = jaxify([x], x[np.array([5])].set(1.0))
    assert primitives(jax.make_jaxpr(f)(np.zeros(1000))).keys() & SCATTERS
