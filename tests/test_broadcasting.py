"""One rule for both backends: an axis is broadcast where its type declares length 1, and nowhere else."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type

from loopax import LoopTypeError, jaxify
from tests.support.both_backends import NATIVE

X, M = np.array([0.5, 1.0, 2.0, 3.0]), np.ones((3, 4))
MASK = np.array([True, False, True, True])
x, y = pt.dvectors("x", "y")
m, w = pt.dmatrices("m", "w")
k = pt.lvector("k")
mask = pt.tensor("mask", dtype="bool", shape=(None,))
rng = random_generator_type("rng")

VECTOR, ROW, COLUMN = np.array([1.5]), np.full((1, 4), 1.5), np.full((3, 1), 1.5)
WRITES = {
    "part": (x, lambda x, y: x[1:], y, VECTOR),
    "all": (x, lambda x, y: x[:], y, VECTOR),
    "rows": (m, lambda m, w: m[1:], w, ROW),
    "a row": (m, lambda m, y: m[0], y, VECTOR),
    "all columns of rows": (m, lambda m, y: m[1:], y, VECTOR),
    "indices": (x, lambda x, y: x[k], y, VECTOR),
    "known indices": (x, lambda x, y: x[np.array([0, 1])], y, VECTOR),
    "rows at indices": (m, lambda m, w: m[k], w, ROW),
    "columns at indices": (m, lambda m, w: m[:, k], w, COLUMN),
    "pairs": (m, lambda m, y: m[k, k], y, VECTOR),
    "mask": (x, lambda x, y: x[mask], y, VECTOR),
    "columns at a mask": (m, lambda m, w: m[:, mask], w, COLUMN),
    "mask of all": (m, lambda m, y: m[m > 0], y, VECTOR),
}


def outcomes(inputs, out, values):
    """What each backend gives, or raises."""
    return [jaxify(inputs, out, backend=name)(*values) for name in ("jax", NATIVE)]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("write", [pt.set_subtensor, pt.inc_subtensor], ids=["set", "inc"])
@pytest.mark.parametrize("name", WRITES)
def test_what_is_written(name, write):
    array, part, what, value = WRITES[name]
    values = [X if array is x else M, np.array([0, 1]), MASK]

    inputs, out = [array, k, mask, what], write(part(array, what), what)
    for backend in ("jax", NATIVE):
        with pytest.raises(
            ValueError, match=r"not say that it is broadcastable|dimension mismatch"
        ):
            jaxify(inputs, out, backend=backend)(*values, value)
    declared = pt.tensor(dtype="float64", shape=[1 if n == 1 else None for n in value.shape])
    inputs, out = [array, k, mask, declared], write(part(array, declared), declared)
    expected = pytensor.function(inputs, out, mode="FAST_COMPILE", on_unused_input="ignore")
    for actual in outcomes(inputs, out, [*values, value]):
        np.testing.assert_allclose(actual, expected(*values, value))


def test_a_mask_that_jax_traces():
    f = jax.jit(jaxify([x, mask, y], pt.set_subtensor(x[mask], y)))
    assert np.isnan(f(X, MASK, VECTOR)).all()  # nothing raises while a program runs
    one = np.array([False, True, False, False])
    np.testing.assert_allclose(f(X, one, VECTOR), [0.5, 1.5, 2.0, 3.0])
    scalar = pt.dscalar("scalar")
    g = jax.jit(jaxify([x, mask, scalar], pt.set_subtensor(x[mask], scalar)))
    np.testing.assert_allclose(g(X, MASK, 1.5), np.where(MASK, 1.5, X))


EYE, ONES = np.eye(2), np.ones((1, 2))
t3 = pt.dtensor3("t3")
DRAWS = {
    "normal": (lambda a: pt.random.normal(x, a, rng=rng, return_next_rng=True)[1], VECTOR),
    "normal with a size": (
        lambda a: pt.random.normal(a, 1.0, size=(4,), rng=rng, return_next_rng=True)[1],
        VECTOR,
    ),
    "gamma": (lambda a: pt.random.gamma(x, scale=a, rng=rng, return_next_rng=True)[1], VECTOR),
    "poisson": (
        lambda a: pt.random.poisson(a, size=(2, 4), rng=rng, return_next_rng=True)[1],
        VECTOR,
    ),
    "a mean": (
        lambda a: pt.random.multivariate_normal(a, EYE, size=(3,), rng=rng, return_next_rng=True)[
            1
        ],
        0 * ONES,
    ),
    "dirichlet": (
        lambda a: pt.random.dirichlet(a, size=(3,), rng=rng, return_next_rng=True)[1],
        ONES,
    ),
    "multinomial": (
        lambda a: pt.random.multinomial(k, a, rng=rng, return_next_rng=True)[1],
        ONES / 2,
    ),
    "categorical": (
        lambda a: pt.random.categorical(a, size=(3,), rng=rng, return_next_rng=True)[1],
        ONES / 2,
    ),
    "a covariance": (
        lambda a: pt.random.multivariate_normal(w, a, rng=rng, return_next_rng=True)[1],
        EYE[None],
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", DRAWS)
def test_parameters_of_draws(name):
    draw, value = DRAWS[name]
    values = [X, np.array([3, 4, 5]), np.zeros((3, 2)), np.random.default_rng(1)]
    for declared in (False, True):
        a = pt.tensor(
            dtype="float64", shape=[1 if declared and n == 1 else None for n in value.shape]
        )
        inputs, out = [x, k, w, rng, a], draw(a)
        for backend in ("jax", NATIVE):
            f = jaxify(inputs, out, backend=backend)
            if declared:
                assert f(*values, value).shape[0] in (2, 3, 4)
            else:
                with pytest.raises((LoopTypeError, ValueError), match="broadcastable|mismatch"):
                    f(*values, value)


@pytest.mark.parametrize("backend", ["jax", NATIVE])
def test_the_broadcasting_of_numpy(backend):
    """Whatever a rewrite makes of types: without the lengths, that of ``x + y`` is ``x``'s."""
    out = {
        "length": (x + y).shape[0],
        "sum": x + y,
        "written": pt.set_subtensor(m[1:], w * y),
        "drawn": pt.random.normal(x, y, rng=rng, return_next_rng=True)[1].shape,
    }
    f = jaxify([x, y, m, w, rng], out, backend=backend, broadcasting="numpy")
    key = np.random.default_rng(1)
    for u, v in ((X, VECTOR), (X[:1], X), (X, X + 1.0)):
        actual = f(u, v, m=M, w=ROW, rng=key)
        assert actual["length"] == 4 and tuple(actual["drawn"]) == (4,)
        np.testing.assert_allclose(actual["sum"], u + v)
        np.testing.assert_allclose(actual["written"], [M[0], *[1.5 * v * np.ones(4)] * 2])
    with pytest.raises(ValueError, match=r"lengths \[2, 4\]|differ|dimension|shape"):
        f(X, X[:2], M, ROW, key)


def test_derivatives_and_batches_with_the_broadcasting_of_numpy():
    f = jaxify([x, y], ((x * y) ** 2).sum(), broadcasting="numpy")
    np.testing.assert_allclose(jax.grad(f, argnums=1)(X, VECTOR), [3.0 * (X**2).sum()])
    np.testing.assert_allclose(jax.vmap(f, (None, 0))(X, np.ones((2, 1))), [(X**2).sum()] * 2)
    assert float(f([1.0, 2.0], [3.0])) == 45.0
    with pytest.raises(LoopTypeError, match="has 1 axes"):
        f(M, VECTOR)
    with pytest.raises(LoopTypeError, match="of complex128, and converting it"):
        f(X * 1j, VECTOR)


def test_what_goes_with_the_broadcasting_of_numpy():
    rows = pytensor.scan(lambda r, y: r * y, [x], non_sequences=[y], return_updates=False)
    f = jaxify([x, y], rows, broadcasting="numpy")
    assert f(X, X).shape == (4, 4)
    with pytest.raises(LoopTypeError, match="The step of a loop has its own types"):
        f(X, VECTOR)
    with pytest.raises(ValueError, match="broadcasting must be one of"):
        jaxify([x], x, broadcasting="loose")
    with pytest.raises(TypeError, match="works only with inputs and outputs"):
        jaxify(pytensor.function([x], x * 2, mode="FAST_COMPILE"), broadcasting="numpy")


def test_lengths_that_are_equal_need_no_declaration():
    values = [X[:1], VECTOR, np.random.default_rng(1)]
    out = [
        pt.set_subtensor(x[:], y),
        x + y,
        pt.random.normal(x, y, size=(1,), rng=rng, return_next_rng=True)[1],
    ]
    for actual in outcomes([x, y, rng], out, values):
        assert [v.shape for v in actual] == [(1,)] * 3
        np.testing.assert_allclose(actual[0], VECTOR)
