"""Typed lists have no derivative: forward mode says so, and `jax` differentiates JAX's operations."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.gradient import NullTypeGradError
from pytensor.tensor.type_other import make_slice
from pytensor.typed_list import make_list

import loopax
from loopax.ir.derivatives.traversal import push_forward
from tests.jax_backend.interpreted import interpreted

X, FACTORS = pt.dvectors("x", "factors")


def test_a_tangent_in_a_list_is_unknown():
    y = make_list([X, 2 * X])[1].sum()
    with pytest.raises(NullTypeGradError, match="Typed lists have no gradient"):
        push_forward([X], [y], [pt.ones_like(X)])


@pytest.mark.parametrize("loops", ["native", "xla"])
def test_a_slice_of_a_list_in_a_loop(loops):
    """It was 0 in native code, which had no code for a constant slice that a loop reads."""

    def step(total, factor):
        rows = make_list([X, factor * X, X**2])[make_slice(1, 3, None)]
        return total + (rows[0] * rows[1]).sum(), None

    total, _ = loopax.scan(step, pt.zeros(()), FACTORS)
    f = loopax.jaxify([X, FACTORS], total, loops=loops)
    x, factors = np.array([1.0, 2.0]), np.array([0.5, 2.0])

    def derivatives(x):
        def of_x(x):
            return f(x, factors)

        return of_x(x), jax.grad(of_x)(x), jax.jvp(of_x, (x,), (np.ones(2),))[1]

    value, gradient, tangent = interpreted(derivatives)(x)
    np.testing.assert_allclose(value, 2.5 * (x**3).sum())
    np.testing.assert_allclose(gradient, 7.5 * x**2)
    np.testing.assert_allclose(tangent, 7.5 * (x**2).sum())
