"""Batches of what has no axis to batch: a loop over rows, with the values of each row alone."""

import numpy as np
import pytensor
import pytensor.sparse as sparse
import pytensor.tensor as pt
import pytest
from pytensor import typed_list
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until
from pytensor.tensor.blockwise import Blockwise

from loopax import grad, jaxify, scan, vmap, while_loop
from tests.numba_backend.interpreted import InterpretedFunction
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE, loops

V = pt.vector("v")
ROWS = np.array([[1.0, 2.0, -1.0], [3.0, 0.0, -2.0], [-1.0, -1.0, 5.0]])
OF_VALUES = {
    "mask": lambda v: v[v > 0].sum(),
    "rows of a mask": lambda v: pt.outer(v, v)[v > 0].sum(axis=0),
    "positions": lambda v: pt.nonzero(v)[0].sum(),
    "slice": lambda v: v[: pt.argmax(v)].sum(),
    "count": lambda v: pt.arange(pt.argmax(v)).sum(),
    "zeros": lambda v: pt.alloc(v[0], pt.argmax(v)).sum(),
    "repeats": lambda v: pt.repeat(v, pt.cast(v > 0, "int64")).sum(),
    "unique": lambda v: pt.unique(v).sum(),
    "written": lambda v: pt.set_subtensor(v[v > 0], v[v > 0] * 2).sum(),
    "of equal lengths": lambda v: pt.roll(v, pt.argmax(v)),
    "mask in a loop": lambda v: scan(lambda c, x: (c + v[v > x].sum(), None), 0.0, v)[0],
    "mask in a stopping loop": lambda v: while_loop(
        lambda c: c[v > 0].sum() < 3, lambda c: c + 1, v
    ),
    "list": lambda v: typed_list.make_list([v, v * 2])[1],
    "sparse": lambda v: sparse.dense_from_sparse(
        sparse.transpose(sparse.csr_from_dense(v[None]))
    ).sum(axis=1),
}


# Of the others only the graph is new, and what is written for it.
COMPILED = "mask in a stopping loop", "list", "sparse"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OF_VALUES)
def test_each_row_is_the_program_of_that_row(name):
    f = OF_VALUES[name]
    one = pytensor.function([V], f(V), mode=FAST_COMPILE)
    backend = "numba" if name in COMPILED else InterpretedFunction.backend_name
    batched = vmap(jaxify([V], f(V), backend=backend))
    np.testing.assert_allclose(batched(ROWS), np.stack([one(x) for x in ROWS]))


def until_it_stops(v):
    return scan(lambda c, x: (c, 2 * x + 10, x > 2), 0.0, v)[1]


OF_A_TRACE = {
    "length": lambda rows: rows.shape[0],
    "last": lambda rows: rows[-1],
    "product": lambda rows: rows.prod(),
    "least": lambda rows: rows.min(),
    "loop": lambda rows: scan(lambda c, x: (0.5 * c + x, None), 0.0, rows)[0],
    "legacy loop": lambda rows: pytensor.scan(
        lambda x, c: 0.5 * c + x,
        sequences=[rows],
        outputs_info=[pt.zeros((), dtype="float64")],
        return_updates=False,
    )[-1],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OF_A_TRACE)
def test_what_reads_a_trace_reads_its_own_rows(name):
    """They stopped after 3, 1 and 3 steps; the zeros behind the one were read as rows."""
    f = OF_A_TRACE[name]
    rows = until_it_stops(V)
    batched = vmap(jaxify([V], [f(rows), rows], backend=InterpretedFunction.backend_name))
    traces = [2 * x + 10 for x in (ROWS[0], ROWS[1, :1], ROWS[2])]
    x = pt.vector()
    one = pytensor.function([x], f(x), mode=FAST_COMPILE)
    actual, padded = batched(ROWS)
    np.testing.assert_allclose(actual, [one(rows) for rows in traces])
    np.testing.assert_allclose(padded[1], [16, 0, 0])


STEPS_OF_VALUES = {
    "mask": lambda c, x: c[c > x].sum(),
    "write": lambda c, x: pt.set_subtensor(c[c > x], 2 * c[c > x]),
    "count": lambda c, x: pt.arange(pt.argmax(c + x)).sum(),
    "inner loop": lambda c, x: until_it_stops(c + x).prod(),
    "rows of its own": lambda c, x: x * pt.nonzero(V)[0].sum(),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STEPS_OF_VALUES)
def test_steps_with_lengths_by_value_in_loops_that_stop_by_row(name):
    """No row has the trace of another, so the loop over the batch computes its step row by row."""
    step = STEPS_OF_VALUES[name]

    def until_negative(v):
        return scan(lambda c, x: (c[::-1], step(c, x), x < 0), v[:2], v)[1]

    f = jaxify([V], until_negative(V), backend=InterpretedFunction.backend_name)
    one = pytensor.function([V], until_negative(V), mode=FAST_COMPILE)
    padded = vmap(f)(ROWS)
    for row, x in zip(padded, ROWS, strict=True):
        expected = one(x)
        np.testing.assert_allclose(row[: len(expected)], expected)
        assert not row[len(expected) :].any()


def test_gradients_of_a_batch():
    f = jaxify([V], (V[V > 0] ** 2).sum(), backend="numba")
    np.testing.assert_allclose(vmap(grad(f))(ROWS), 2 * np.maximum(ROWS, 0))
    summed = grad(lambda m: (vmap(lambda v: (v[v > 0] ** 2).sum())(m) ** 2).sum())
    expected = 2 * np.sum(np.maximum(ROWS, 0) ** 2, axis=1, keepdims=True) * 2 * np.maximum(ROWS, 0)
    m = pt.matrix("m")
    np.testing.assert_allclose(jaxify([m], summed(m), backend="numba")(ROWS), expected)


def test_what_is_the_same_for_all_rows_is_outside():
    m = pt.matrix("m")
    masked, shared = vmap(lambda v: (v[v > 0].sum(), pt.cumsum(V)))(m)
    graph = FunctionGraph([m, V], [masked, shared], clone=True)
    assert len(loops(graph)) == 1
    values = jaxify([m, V], [masked, shared], backend="numba")(ROWS, ROWS[0])
    np.testing.assert_allclose(values[0], [3, 3, 5])
    np.testing.assert_allclose(values[1], np.tile(np.cumsum(ROWS[0]), (3, 1)))


def test_an_argument_without_an_axis_is_the_same_in_every_step():
    k = pt.lscalar("k")
    f = jaxify([V, k], V[V > k].sum(), backend="numba")
    np.testing.assert_allclose(vmap(f, in_axes=(0, None))(ROWS, 1), [2, 3, 5])


def test_no_loop_where_every_row_has_one_length():
    """A window at a place, rows by number, and a constant mask stay operations on whole arrays."""
    m = pt.matrix("m")
    for f in (
        lambda v: v[:2],
        lambda v: v[np.array([True, False, True])],
        lambda v: v[pt.argsort(v)],
        lambda v: pt.outer(v, v)[pt.argmax(v)],
        lambda v: pt.zeros(v.shape),
    ):
        assert not loops(FunctionGraph([m], [vmap(f)(m)], clone=True))
    inside = vmap(lambda v: scan(lambda i, _: (i + 1, v[i : i + 1].sum()), 0, length=2)[1])(m)
    (loop,) = loops(FunctionGraph([m], [inside], clone=True))
    assert not any(isinstance(node.op, Blockwise) for node in loop.op.fgraph.apply_nodes)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_rows_of_another_dtype_are_cast_as_the_loop_casts_them(backend, stops):
    """pymc-marketing's BG/BB model writes its loop for counts, and gives it rows of floats."""
    counts, m = pt.lvector("counts"), pt.matrix("m")
    (total,) = pytensor.scan(
        lambda n, c: (c + 3 * n, until(c > 10**6)) if stops else c + 3 * n,
        sequences=[counts],
        outputs_info=[pt.zeros((), dtype="int64")],
        return_updates=False,
        return_list=True,
    )
    batched = vectorize_graph(total[-1], {counts: m})
    rows = ROWS + 0.7
    # PyTensor refuses fractions where it has a C compiler, and adds them up as they are in Python.
    one = pytensor.function([counts], total[-1], mode=FAST_COMPILE)
    expected = np.stack([one(row.astype("int64")) for row in rows])
    actual = np.asarray(jaxify([m], batched, backend=backend)(rows))
    assert actual.dtype == expected.dtype == "int64"
    np.testing.assert_array_equal(actual, expected)


def test_rows_of_several_lengths_are_no_array():
    batched = vmap(jaxify([V], V[V > 0], backend="numba"))
    with pytest.raises(ValueError, match="shape"):
        batched(ROWS[:2])


def test_a_native_batch_of_sparse_matrices_scaled_by_columns():
    """No sparse op has a batch: the rows are computed one by one."""
    m, v = pt.dmatrix("m"), pt.dvector("v")
    scaled = sparse.dense_from_sparse(sparse.col_scale(sparse.csc_from_dense(m), v))
    values = np.arange(12.0).reshape(2, 2, 3), np.arange(6.0).reshape(2, 3)
    actual = vmap(jaxify([m, v], scaled, backend=NATIVE))(*values)
    np.testing.assert_allclose(actual, values[0] * values[1][:, None])
