"""Traces of sparse matrices: one stack, as JAX has them, and no program for each row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse
from jax.experimental.sparse import BCOO
from pytensor.typed_list import TypedListType

from loopax import StackedList, jaxify, scan

MATRIX = scipy.sparse.random(4, 5, 0.4, format="csr", random_state=0)
A, X = pytensor.sparse.csr_matrix("a", dtype="float64"), pt.dvector("x")
_, SCALED = scan(lambda total, r: (total + r, A * (total + r)), 0.0, X)
ROWS = np.array([1.0, -0.5, 2.0])


def dense(factors):
    return factors[:, None, None] * MATRIX.toarray()


@pytest.mark.slow
@pytest.mark.parametrize("form", [lambda f: f, jax.jit])
def test_a_trace_is_one_batch(form):
    f = jaxify([A, X], SCALED)
    trace = form(f)(BCOO.from_scipy_sparse(MATRIX), ROWS)
    assert isinstance(trace, StackedList) and isinstance(trace.data, BCOO)
    assert trace.data.shape == (3, 4, 5) and trace.data.n_batch == 1 and len(trace) == 3
    np.testing.assert_allclose(np.asarray(trace), dense(np.cumsum(ROWS)))
    np.testing.assert_allclose(trace[-1].todense(), dense(np.cumsum(ROWS))[-1])
    np.testing.assert_allclose(np.asarray(trace[1:]), dense(np.cumsum(ROWS))[1:])
    assert [row.shape for row in trace] == [(4, 5)] * 3
    np.testing.assert_allclose(trace.data @ jnp.ones(5), dense(np.cumsum(ROWS)).sum(-1), rtol=1e-12)


@pytest.mark.parametrize("count", [0, 1])
def test_few_steps(count):
    trace = jaxify([A, X], SCALED)(MATRIX, ROWS[:count])
    assert trace.data.shape == (count, 4, 5) and len(list(trace)) == count


def test_the_program_does_not_grow_with_the_steps():
    f = jaxify([A, X], SCALED)
    given = BCOO.from_scipy_sparse(MATRIX)
    sizes = {len(str(jax.make_jaxpr(f)(given, np.ones(n)))) // 100 for n in (20, 90)}
    assert len(sizes) == 1


def test_derivatives_and_batches():
    f = jaxify([A, X], SCALED)
    slopes = jax.grad(lambda x: f(MATRIX, x).data.data.sum())(ROWS)
    np.testing.assert_allclose(slopes, MATRIX.sum() * np.array([3.0, 2.0, 1.0]))
    many = jax.vmap(lambda x: f(MATRIX, x))(np.stack([ROWS, 2 * ROWS]))
    assert many.data.shape == (2, 3, 4, 5)
    np.testing.assert_allclose(many.data.todense()[1], dense(np.cumsum(2 * ROWS)))
    np.testing.assert_allclose(many[1].todense(), dense(np.cumsum(2 * ROWS)))


def test_a_batch_is_an_argument():
    """It comes back as it is, whatever made it; rows of unequal numbers of entries stay a list."""
    rows = TypedListType(A.type)("rows")
    f = jaxify([rows], [rows, pytensor.sparse.dense_from_sparse(rows[1])])
    batch, second = f([MATRIX, 2 * MATRIX])
    np.testing.assert_allclose(second, 2 * MATRIX.toarray())
    for given in (batch, batch.data):
        again, same = f(given)
        np.testing.assert_allclose(np.asarray(again), np.asarray(batch))
        np.testing.assert_allclose(same, second)
    unequal, _ = f([MATRIX, scipy.sparse.eye(4, 5, format="csr")])
    assert isinstance(unequal, list) and [row.nse for row in unequal] == [MATRIX.nnz, 4]
