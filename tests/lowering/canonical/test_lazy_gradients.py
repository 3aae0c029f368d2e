"""A gradient of loopax.grad computes the branch of an ifelse that is taken, and not the other."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

import loopax
from loopax import jaxify
from loopax.base.upstream.pytensor import IfElse
from loopax.lowering.canonical.if_else_to_cond import with_conds
from tests.support.both_backends import NATIVE

X = np.array([0.5, 1.0, 2.0])
a, x = pt.dscalar("a"), pt.dvector("x")


def ifelse(condition, then, otherwise):
    return IfElse(1)(condition, then, otherwise)


def branched(a, x):
    refused = Assert("the other branch")(x.sum(), x.sum() < 0)
    return ifelse(a > 0, (x**2).sum(), refused)


def test_of_native_code():
    f = jaxify([a, x], branched(a, x), backend=NATIVE)
    value, slope = loopax.value_and_grad(f, argnums=1)(1.0, X)
    assert value == (X**2).sum()
    np.testing.assert_allclose(slope, 2 * X)
    with pytest.raises(AssertionError, match="the other branch"):
        loopax.value_and_grad(f, argnums=1)(-1.0, X)
    np.testing.assert_allclose(loopax.grad(f, argnums=1)(-1.0, -X), np.ones(3))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["jax", NATIVE])
def test_of_a_function_of_variables(backend):
    options = {"checks": "raise"} if backend == "jax" else {}
    g = jaxify([a, x], loopax.grad(branched, argnums=1)(a, x), backend=backend, **options)
    np.testing.assert_allclose(g(1.0, X), 2 * X)
    np.testing.assert_allclose(g(-1.0, -X), np.ones(3))
    # A second derivative, which goes through the gradient's Cond.
    total = loopax.grad(lambda v: (loopax.grad(branched, argnums=1)(a, v) ** 2).sum())(x)
    np.testing.assert_allclose(jaxify([a, x], total, backend=backend, **options)(1.0, X), 8 * X)


def test_values_and_graphs_stay_as_they_are():
    out = branched(a, x)
    before = pytensor.dprint(out, file="str")
    (lazy,) = with_conds([out])
    assert pytensor.dprint(out, file="str") == before
    f = pytensor.function([a, x], lazy, mode="FAST_COMPILE")
    assert f(1.0, X) == (X**2).sum() and f(-1.0, -X) == -X.sum()
    plain = (x**2).sum()
    assert with_conds([plain, x]) == [plain, x]


def test_shared_variables_stay_shared():
    w = pytensor.shared(np.ones(3), name="w")
    f = jaxify([a], ifelse(a > 0, (w * a).sum(), -a), backend=NATIVE)
    slope = loopax.grad(f)
    assert slope(1.0) == 3.0
    w.set_value(2 * np.ones(3))
    assert slope(1.0) == 6.0 and slope(-1.0) == -1.0
