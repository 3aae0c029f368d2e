"""Masks that JAX traces, in each place of an index: what is read and written there has NumPy's order."""

from functools import cache

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import DynamicShapeError, PaddedArray, jaxify
from tests.jax_backend.interpreted import interpreted
from tests.support.compare import FAST_COMPILE

SHAPE = (3, 4, 2)
X, J = pt.dtensor3("x"), pt.lscalar("j")
A, B, C = (pt.vector(name, dtype="bool") for name in "abc")  # along each of the axes
AB, BC = (pt.matrix(name, dtype="bool") for name in ("ab", "bc"))
ABC = pt.tensor3("abc", dtype="bool")
INPUTS = [X, J, A, B, C, AB, BC, ABC]
TWO, ALL = np.array([0, -1]), slice(None)

READS = {
    "first": (A,),
    "second": (ALL, B),
    "third": (ALL, ALL, C),
    "third, ellipsis": (..., C),
    "first two": (AB,),
    "last two": (ALL, BC),
    "all": (ABC,),
    "beside a slice": (A, slice(1, None)),
    "behind a slice": (slice(1, None), B),
    "backwards behind it": (slice(None, None, -1), B, slice(None, None, -1)),
    "behind a number": (0, B),
    "behind a traced number": (J, B),
    "before a number": (A, -1),
    "a slice between it and a number": (0, ALL, C),
    "a slice between a mask and a traced number": (A, ALL, J),
    "two of one number of places": (A, A[::-1].nonzero()[0] + 1),
    "beside a new axis": (A, None),
    "behind a new axis": (None, A, None),
    "places": (ALL, B.nonzero()[0]),
    "beside a column of places": (TWO[:, None], B),
    "two behind a number": (-1, BC),
    "two before a number": (AB, 0),
    "two before a slice": (AB, slice(None, None, -1)),
}


def writes():
    """Numbers, one row for all places, a row for each of them, and what stands there."""
    for name, index in READS.items():
        if "new axis" in name:
            continue
        part = X[index]
        yield f"set a number: {name}", pt.set_subtensor(part, 2.5)
        yield f"add a number: {name}", pt.inc_subtensor(part, 2.5)
        yield f"set what is there: {name}", pt.set_subtensor(part, pt.sqr(part))
        yield f"add what is there: {name}", pt.inc_subtensor(part, pt.cumsum(part, axis=0))


@cache
def programs():
    return {f"read: {name}": X[index] for name, index in READS.items()} | dict(writes())


def values(kind):
    rng = np.random.default_rng(4)
    share = {"none": 0.0, "some": 0.5, "all": 1.0}[kind]
    shapes = [SHAPE[:1], SHAPE[1:2], SHAPE[2:], SHAPE[:2], SHAPE[1:], SHAPE]
    some = [rng.random(shape) < share for shape in shapes]
    some[0] = np.array([False, True, False]) if kind == "some" else some[0]
    return [rng.normal(size=SHAPE), 1, *some]


def as_pytensor(outputs, given):
    f = pytensor.function(INPUTS, outputs, mode=FAST_COMPILE, on_unused_input="ignore")
    return f(*given)


def is_broken(name, kind):
    """Whether NumPy refuses it: places that are not as many, or beyond the end."""
    return name.endswith("two of one number of places") and kind == "all"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "some", "all"])
def test_values(kind):
    outputs = {k: v for k, v in programs().items() if not is_broken(k, kind)}
    given = values(kind)
    actual = interpreted(jaxify(INPUTS, outputs, loops="xla"))(*given)
    expected = as_pytensor(list(outputs.values()), given)
    for name, e in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(np.asarray(actual[name]), e, rtol=1e-12, err_msg=name)


@cache
def numbers():
    return {k: (pt.sqr(v) * pt.cos(v.sum(0, keepdims=True))).sum() for k, v in programs().items()}


@pytest.mark.parametrize(
    ("kind", "every"),
    [("some", 12), *(pytest.param(k, 1, marks=pytest.mark.slow) for k in ("some", "all"))],
)
def test_derivatives(kind, every):
    """Of what JAX computes, against those of the same program where the masks are known."""
    names = [k for k in numbers() if not is_broken(k, kind)][::every]
    outputs = {k: numbers()[k] for k in names}
    x, *masks = values(kind)
    f = jaxify(INPUTS, outputs, loops="xla")
    actual = interpreted(jax.jacrev(f))(x, *masks)
    expected = interpreted(jax.jacrev(lambda x: f(x, *masks)))(x)
    for name in outputs:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-10, err_msg=name)


@pytest.mark.slow
def test_pytensors_gradients_transpiled():
    given = values("some")
    gradients = {k: pytensor.grad(v, X) for k, v in numbers().items()}
    actual = interpreted(jaxify(INPUTS, gradients, loops="xla"))(*given)
    expected = as_pytensor(list(gradients.values()), given)
    for name, e in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(np.asarray(actual[name]), e, rtol=1e-10, err_msg=name)


def test_batches():
    """Each member has masks of its own."""
    names = [
        "read: second",
        "read: first two",
        "read: behind a slice",
        "add what is there: last two",
    ]
    outputs = [programs()[k] for k in names]
    batch = [values(kind) for kind in ("none", "some", "all")]
    given = [np.stack(column) for column in zip(*batch, strict=True)]
    actual = jax.jit(jax.vmap(jaxify(INPUTS, outputs, loops="xla")))(*given)
    for k, member in enumerate(batch):
        for x, e in zip(actual, as_pytensor(outputs, member), strict=True):
            x = x.member(k) if isinstance(x, PaddedArray) else x[k]
            np.testing.assert_allclose(np.asarray(x), e, rtol=1e-12)


def test_a_flat_position_is_that_of_the_array():
    """Compiled by XLA; of columns, so that the room lies between the rows."""
    z = X[0][:, C].T
    k = pt.argmax(z)
    outputs = [
        z,
        k,
        pt.argmin(z),
        pt.stack(pt.unravel_index(k, z.shape)),
        z.ravel()[k],
        z[k // z.shape[1]],
    ]
    given = values("some")
    given[4] = np.array([False, True])
    f = jax.jit(jaxify(INPUTS, outputs, loops="xla"))
    for x, e in zip(f(*given), as_pytensor(outputs, given), strict=True):
        np.testing.assert_allclose(np.asarray(x), e, rtol=1e-12)


def test_two_lengths_are_refused():
    with pytest.raises(DynamicShapeError, match="how many rows there are"):
        jax.jit(jaxify(INPUTS, X[A][:, B], loops="xla"))(*values("some"))


@pytest.mark.parametrize("shape", [(2,), (4,)])
def test_a_mask_of_another_length_is_refused(shape):
    given = values("some")
    given[2] = np.ones(shape, bool)
    with pytest.raises(IndexError, match="mask of shape"):
        jax.jit(jaxify(INPUTS, X[A, 1:], loops="xla"))(*given)
