"""Arrays of indices that are known: `loopax.jax_backend.ops.indexing.static_scatter`."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from tests.support.compare import primitives

X = np.arange(60.0).reshape(5, 3, 4)
ROWS = np.array([0, -1, 3, 3, -5])
MASK = X[..., 0] % 2 == 0
INDICES = [
    (ROWS,),
    (-1, np.array([0, -2])),
    (slice(None, None, -2), np.array([-1, 0], dtype="int8")),
    (np.array([[0], [-1]]), np.array([2, -2], dtype="int16")),
    (ROWS, None, slice(1, 3)),
    (MASK,),
    (slice(None), np.array([True, False, True]), -4),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_nothing_is_computed_of_them(index):
    """Neither in the read, nor in its derivative, nor in a write, which chooses between elements."""
    x, shape = pt.dtensor3("x"), X[index].shape
    y = np.arange(float(np.prod(shape))).reshape(shape)
    written, added = X.copy(), X.copy()
    np.add.at(added, index, y)
    programs = {"read": (x[index], X[index]), "added": (x[index].inc(y), added)}
    if len(np.unique(np.arange(60).reshape(X.shape)[index])) == y.size:
        written[index] = y
        programs["written"] = x[index].set(y), written
    if any(entry is None for entry in index):  # PyTensor returns what it wrote to with that axis
        programs = {"read": programs["read"]}
    for name, (variable, expected) in programs.items():
        f = jaxify([x], variable)
        np.testing.assert_array_equal(f(X), expected)
        refused = {"lt", "clamp"} | ({"select_n"} if name == "read" else set())
        assert not primitives(jax.make_jaxpr(f)(X)).keys() & refused
    read = jaxify([x], x[index])
    gradient = jax.grad(lambda x: (read(x) * y).sum())
    np.testing.assert_array_equal(gradient(X), added - X)
    assert not primitives(jax.make_jaxpr(gradient)(X)).keys() & {"lt", "clamp"}


@pytest.mark.parametrize(
    "index", [(MASK,), (slice(1, 3),), (slice(None), slice(None, None, 2))], ids=str
)
@pytest.mark.parametrize("rank", [0, 3], ids=["number", "array"])
def test_an_element_that_nothing_is_added_to_keeps_the_sign_of_its_zero(index, rank):
    x, zeros = pt.dtensor3("x"), np.full(X.shape, -0.0)
    y = 1.0 if rank == 0 else np.ones(X[index].shape)
    expected = zeros.copy()
    expected[index] += 1.0
    result = jaxify([x], x[index].inc(y), loops="xla")(zeros)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))
