"""Writes of values that read the array written to, behind a reshape: XLA would do them in place."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from tests.support.compare import FAST_COMPILE, primitives

pytestmark = pytest.mark.both_stacks  # jaxlib 0.10 and 0.12 fuse differently

X, K = pt.dvector("x"), pt.lscalar("k")
E = pt.cos(X).reshape((3, 3))
F = pt.cos(X.reshape((3, 3)) + X[0])
COLUMN = pt.cos(X)[:, None]
WRITES = {
    "rows": pt.set_subtensor(E[1:], 2 * E[:-1]),
    "rows, elementwise after the reshape": pt.set_subtensor(F[1:], 2 * F[:-1]),
    "rows of what is reshaped": pt.set_subtensor(E[1:], 2 * pt.cos(X)[:6].reshape((2, 3))),
    "rows of an argument": pt.set_subtensor(X.reshape((3, 3))[1:], 2 * X.reshape((3, 3))[:-1]),
    "a column": pt.set_subtensor(COLUMN[1:], 2 * COLUMN[:-1]),
    "every second row": pt.set_subtensor(COLUMN[1::2], 2 * COLUMN[:8:2]),
    "a row, rolled": pt.set_subtensor(E[1], pt.concatenate([E[1, -1:], E[1, :-1]])),
    "a row": pt.set_subtensor(E[1], 2 * E.ravel()[2:5]),
    "a row at an index": pt.set_subtensor(E[K], 2 * E.ravel()[2:5]),
    "rows, added": pt.inc_subtensor(E[1:], E[:-1]),
    "a few rows, added": pt.inc_subtensor(COLUMN[1:3], COLUMN[:2]),
    "a row elsewhere": pt.set_subtensor(E[0], 2 * E[2]),
    "rows elsewhere and here": pt.set_subtensor(E[:2], E[2:] + E[1:0:-1]),
    "rows where a flag is set": pt.set_subtensor(E[1:], pt.switch(E[1:] > 0, E[:-1], 1.0)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", WRITES)
def test_each_value_is_read_before_anything_is_written(name, as_users_have_it):
    x, k = np.arange(9.0), np.array(1)
    inputs = [X, K]
    out = WRITES[name] + 0 * K
    f = jaxify(inputs, out, loops="xla")
    (expected,) = pytensor.function(inputs, [out], mode=FAST_COMPILE)(x, k)
    np.testing.assert_allclose(f(x, k), expected, rtol=1e-13)
    np.testing.assert_allclose(jax.jit(f)(x, k), expected, rtol=1e-13)
    weights = np.cos(3 * expected)
    cost = (pt.sin(out) * weights).sum()
    slopes = pytensor.function(inputs, [pytensor.grad(cost, X)], mode=FAST_COMPILE)(x, k)
    by_jax = jax.jit(jax.grad(jaxify(inputs, cost, loops="xla")))(x, k)
    np.testing.assert_allclose(by_jax, slopes[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("write", [pt.set_subtensor, pt.inc_subtensor])
def test_an_index_that_is_a_constant_of_the_caller(write, as_users_have_it):
    i = pt.lvector("i")
    out = write(E[i[:1]], 2 * E.ravel()[2:5][None])
    x, at = np.arange(9.0), np.array([1, 2])
    (expected,) = pytensor.function([X, i], [out], mode=FAST_COMPILE)(x, at)
    f = jaxify([X, i], out, loops="xla")
    np.testing.assert_allclose(jax.jit(lambda x: f(x, at))(x), expected, rtol=1e-13)


def test_an_argument_that_the_caller_reshapes():
    m = pt.dmatrix("m")
    f = jaxify([m], pt.set_subtensor(m[1:], 2 * m[:-1]), loops="xla")
    x = np.arange(9.0)
    expected = x.reshape(3, 3)
    expected = np.concatenate([expected[:1], 2 * expected[:-1]])
    np.testing.assert_array_equal(jax.jit(lambda x: f(x.reshape(3, 3)))(x), expected)


@pytest.mark.parametrize(
    ("read", "in_place"),
    [(E[1], True), (E[-1], True), (E[1:].sum(0), True), (E[0], False), (E[::2].sum(0), False)],
    ids=str,
)
def test_a_row_that_reads_other_rows_is_written_in_place(read, in_place):
    f = jaxify([X], pt.set_subtensor(E[0], 2 * read), loops="xla")
    counts = primitives(jax.make_jaxpr(f)(np.arange(9.0)))
    assert (counts["dynamic_update_slice"] == 1) == in_place
    assert (counts["select_n"] == 0) == in_place
