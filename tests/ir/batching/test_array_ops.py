"""Array ops over a batch stay one op, also where some of their inputs have no batch axes."""

from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import toposort
from pytensor.tensor.blockwise import Blockwise

import loopax
from loopax.ir.batching.batch import vectorized
from tests.support.compare import FAST_COMPILE

x, X, ROWS = pt.dvector("x"), pt.dmatrix("X"), pt.dmatrix("rows")
K = pt.lscalar("k")
VALUES: dict[Any, Any] = {
    X: np.arange(6.0).reshape(2, 3),
    K: np.asarray(1),
    ROWS: np.random.default_rng(0).normal(size=(4, 3)),
}

OPS = {
    "length": lambda: x * x.shape[0],
    "filled": lambda: pt.alloc(x, 2, x.shape[0]),
    "joined": lambda: pt.concatenate([x, X[0], x[:1]]),
    "joined, axis 1": lambda: pt.concatenate([X, x[None].repeat(2, 0)], axis=1),
    "stacked": lambda: pt.stack([x[0], X[0, 1], pt.constant(2.0)]),
    "written to an array": lambda: pt.set_subtensor(X[K], x),
    "written to all rows of an array": lambda: pt.inc_subtensor(X[:], x),
    "written": lambda: pt.inc_subtensor(x[K:], X[0, 1:]),
    "written, one number": lambda: pt.set_subtensor(x[:2], x.sum()),
    "reshaped": lambda: x[None].reshape((-1, 1)),
    "constant": lambda: x + pt.constant([1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("n_rows", [4, 1, 0])
def test_one_op_for_all_rows(name, n_rows):
    row = OPS[name]()
    (batched,) = vectorized([row], {x: ROWS})
    assert not any(isinstance(node.op, Blockwise) for node in toposort([batched]))
    of_row = pytensor.function([x, X, K], row, mode=FAST_COMPILE, on_unused_input="ignore")
    of_all = pytensor.function([ROWS, X, K], batched, mode=FAST_COMPILE, on_unused_input="ignore")
    rows = VALUES[ROWS][:n_rows]
    actual = of_all(rows, VALUES[X], VALUES[K])
    shape = of_row(VALUES[ROWS][0], VALUES[X], VALUES[K]).shape
    expected = [of_row(r, VALUES[X], VALUES[K]) for r in rows]
    np.testing.assert_array_equal(actual, np.reshape(expected, (n_rows, *shape)))


@pytest.mark.parametrize("shape", [(0,), X[:, :0].shape[1:]], ids=["numbers", "of another array"])
@pytest.mark.parametrize("n_rows", [4, None])
def test_an_empty_reshape_keeps_the_length_of_the_batch(shape, n_rows):
    row, rows = pt.dvector(shape=(3,)), pt.dmatrix(shape=(n_rows, 3))
    (batched,) = vectorized([row[:0].reshape(shape, ndim=1)], {row: rows})
    assert batched.type.shape[0] in (n_rows, None)
    of_all = pytensor.function([rows, X], batched, mode=FAST_COMPILE, on_unused_input="ignore")
    assert of_all(VALUES[ROWS], VALUES[X]).shape == (4, 0)


def test_a_hessian_with_an_empty_part():
    v = pt.dvector("v", shape=(3,))
    f = loopax.jaxify([v], (v[:0].reshape((0,)) ** 2).sum() + (v**3).sum(), backend="numba")
    np.testing.assert_allclose(loopax.hessian(f)(np.arange(3.0)), np.diag([0.0, 6.0, 12.0]))


def test_a_batch_of_two_axes():
    rows = pt.dtensor3("rows")
    row = pt.set_subtensor(pt.concatenate([x, X[0]])[0], x.shape[0])
    (batched,) = vectorized([row], {x: rows})
    assert not any(isinstance(node.op, Blockwise) for node in toposort([batched]))
    values = np.random.default_rng(0).normal(size=(2, 4, 3))
    of_all = pytensor.function([rows, X], batched, mode=FAST_COMPILE)
    of_row = pytensor.function([x, X], row, mode=FAST_COMPILE)
    expected = [[of_row(r, VALUES[X]) for r in part] for part in values]
    np.testing.assert_array_equal(of_all(values, VALUES[X]), expected)


def test_functions_of_numbers():
    number = pt.scalar_from_tensor(x[0])
    row = pt.tensor_from_scalar(ps.exp(ps.add(number, ps.constant(1.0))))
    (batched,) = vectorized([row], {x: ROWS})
    of_all = pytensor.function([ROWS], batched, mode=FAST_COMPILE)
    np.testing.assert_allclose(of_all(VALUES[ROWS]), np.exp(VALUES[ROWS][:, 0] + 1))


def test_what_all_rows_share_has_no_batch_axes():
    shared = x.shape[0] + 1
    assert vectorized([shared, x.sum()], {x: ROWS})[0].type.ndim == 0
    assert vectorized([X], {x: ROWS}) == [X]
