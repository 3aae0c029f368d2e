"""A warning where a program has a gradient that PyTensor makes wrong; none where it has none."""

import warnings

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import WrongGradientWarning, jaxify
from tests.support.both_backends import NATIVE

V, W, M, AT = pt.dvector("v"), pt.dvector("w"), pt.dmatrix("m"), pt.lvector("i")

pytestmark = pytest.mark.both_stacks

# An op that PyTensor differentiates wrongly, with the input, and what is wrong.
WRONG = {
    "set twice": (pt.set_subtensor(V[[0, 2, 0]], W), W, "index repeats"),
    "set elements twice": (pt.set_subtensor(M[[0, 1, 0], [1, 1, 1]], W), W, "index repeats"),
    "add the last": (pt.inc_subtensor(V[[0, 0]], W, ignore_duplicates=True), W, "index repeats"),
    "lu": (pt.linalg.lu(M, permute_l=True)[0], M, "rows had been exchanged"),
    "lu, both": (pt.add(*pt.linalg.lu(M, permute_l=True)), M, "rows had been exchanged"),
    "tridiagonal": (pt.linalg.solve(M, W, assume_a="tridiagonal"), M, "off the diagonals"),
}


def said(build):
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        build()
    return [str(w.message) for w in issued if issubclass(w.category, WrongGradientWarning)]


def slope(part, x):
    return pytensor.grad((pt.sin(part) * 2).sum(), x)  # the gradient


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_gradient_is_named_once(name):
    part, x, clause = WRONG[name]
    g = slope(part, x)
    (message,) = said(lambda: jaxify([V, W, M], g))
    assert clause in message
    assert "# the gradient" in message  # the line that takes it
    assert "loopax.grad(f)" in message


@pytest.mark.parametrize("name", WRONG)
def test_in_a_function_and_in_the_step_of_a_loop(name):
    part, x, clause = WRONG[name]
    inputs = [V, W, M]

    def f(*args):
        (inside,) = loopax.ir.replace.replaced([part], dict(zip(inputs, args, strict=True)))
        return slope(inside, args[inputs.index(x)])

    arguments = np.ones(3), np.ones(2 if "last" in name else 3), np.eye(3)
    (message,) = said(lambda: jax.eval_shape(jaxify(f), *arguments))
    assert clause in message
    (message,) = said(lambda: loopax.scan(lambda c, _: (c, f(*c)), (V, W, M), length=2))
    assert clause in message


@pytest.mark.parametrize("name", WRONG)
def test_gradients_of_loopax_and_plain_values_are_not_meant(name):
    part, x, _ = WRONG[name]
    of_x = {v: v for v in (V, W, M)}

    def cost(u):
        return loopax.ir.replace.replaced([pt.sin(part).sum()], {**of_x, x: u})[0]

    assert said(lambda: jaxify([V, W, M], [part, loopax.grad(cost)(x)])) == []
    assert said(lambda: loopax.grad(jaxify([V, W, M], pt.sin(part).sum(), backend=NATIVE))) == []


RIGHT = {
    "set once": (pt.set_subtensor(V[[0, 2, 1]], W), W),
    "set at indices that nobody knows": (pt.set_subtensor(V[AT], W), W),
    "set a mask": (pt.set_subtensor(V[V > 0], W), W),
    "add at an index twice": (pt.inc_subtensor(V[[0, 0]], W), W),
    "what is set into": (pt.set_subtensor(V[[0, 0]], W), V),
    "lu": (pt.linalg.lu(M)[1], M),
    "the upper factor": (pt.linalg.lu(M, permute_l=True)[1], M),
    "cho_solve of a factor": (pt.linalg.cho_solve((pt.linalg.cholesky(M), True), W), M),
    "the right side": (pt.linalg.cho_solve((M, True), W), W),
    "of a solve": (pt.linalg.solve(M, W, assume_a="sym", b_ndim=1), W),
    "of a symmetric matrix": (pt.linalg.solve(M, W, assume_a="pos", b_ndim=1), M),
    "of three diagonals": (
        pt.linalg.solve(pt.diag(V) + pt.diag(W, 1), V, assume_a="tridiagonal", b_ndim=1),
        W,
    ),
    "solve": (pt.linalg.solve(M, W, b_ndim=1), M),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_gradient_is_not_meant(name):
    assert said(lambda: jaxify([V, W, M, AT], slope(*RIGHT[name]))) == []


def test_what_a_user_writes_is_not_meant():
    """Reading at the indices of a write is what its gradient does, and that of another program."""
    z = pt.set_subtensor(V[[0, 0]], W)
    other = pytensor.grad((W**3).sum(), W)
    assert said(lambda: jaxify([V, W], [z, (z**2)[[0, 0]], other[[0, 0]]])) == []
