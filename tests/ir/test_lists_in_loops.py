"""Typed lists that a loop reads or carries: no gradient in PyTensor, said aloud; batches around them."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.gradient import NullTypeGradError
from pytensor.typed_list import append, make_list
from pytensor.typed_list.type import TypedListType

import loopax

X = np.array([0.5, -1.0, 2.0])


def read(v):
    return loopax.reduce(lambda c, r: c + r.sum(), 0.0, make_list([v, v * 2]))


def made_by_a_loop(v):
    rows = loopax.scan(lambda c, r: (append(c, r * v[0]), None), make_list([v[0]]), v)[0]
    return loopax.reduce(lambda c, r: c + r, 0.0, rows)


def carried_beside_a_number(v):
    def step(c, r):
        return (append(c[0], r * v[0]), c[1] + c[0][-1]), None

    return loopax.scan(step, (make_list([v[0]]), 0.0), v)[0][1]


@pytest.mark.parametrize("f", [read, made_by_a_loop, carried_beside_a_number])
def test_a_gradient_through_a_list_is_refused_not_zero(f):
    x = pt.dvector("x")
    with pytest.raises(NullTypeGradError, match=r"Typed lists have no gradient.*pt\.stack"):
        loopax.grad(f, lazy=False)(x)
    with pytest.raises(NullTypeGradError, match=r"Typed lists have no gradient.*pt\.stack"):
        loopax.jaxify([x], loopax.grad(f)(x))


def test_jax_differentiates_through_a_list():
    x = pt.dvector("x")
    np.testing.assert_allclose(jax.grad(loopax.jaxify([x], read(x)))(X), np.full(3, 3.0))


def test_a_captured_list_does_not_hinder_a_batch():
    x, rows = pt.dvector("x"), TypedListType(pt.dvector().type)("rows")
    out = loopax.vmap(lambda s: loopax.reduce(lambda c, r: c + r.sum() * s, 0.0, rows))(x)
    actual = out.eval({x: X, rows: [X, 2 * X]}, mode="FAST_COMPILE")
    np.testing.assert_allclose(actual, 3 * X.sum() * X)


def test_a_list_of_batched_rows_is_a_loop_over_them():
    m = pt.dmatrix("m")
    values = np.arange(6.0).reshape(2, 3)
    actual = loopax.vmap(read)(m).eval({m: values}, mode="FAST_COMPILE")
    np.testing.assert_allclose(actual, 3 * values.sum(axis=1))
