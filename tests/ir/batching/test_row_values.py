"""What all rows of a batch share: found in the graph, right in every run, and no false claim."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.blockwise import Blockwise

from loopax.ir.batching.row_values import row_value, unbatch_row_values
from tests.support.compare import FAST_COMPILE

X, Y = pt.matrix("x"), pt.vector("y")
X_ROWS, Y_ROWS = pt.tensor3("x_rows"), pt.matrix("y_rows")
ROWS = {X: X_ROWS, Y: Y_ROWS}

_LENGTHS = st.sampled_from([X.shape[0], X.shape[1], Y.shape[0], Y[1:].shape[0], pt.constant(3)])
_EXPRESSIONS = st.recursive(
    _LENGTHS,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: pt.maximum(a, b) - 1, inner, inner),
        st.builds(lambda a, b: pt.switch(a > b, a * 2, b), inner, inner),
        st.builds(lambda a, b: pt.stack([a, b]).sum(), inner, inner),
        st.builds(lambda a, b: pt.stack([a, b])[1:].prod(), inner, inner),
        st.builds(lambda a, b: pt.zeros((2, 3), dtype="int64").sum() + a, inner, inner),
    ),
    max_leaves=5,
)


@pytest.mark.slow
@given(length=_EXPRESSIONS)
def test_an_expression_of_lengths_is_one_for_all_rows(length):
    batched = vectorize_graph(length, ROWS)
    actual = row_value(batched, batched.type.ndim)
    assert actual is not None
    assert (actual.type.ndim, actual.type.dtype) == (0, length.type.dtype)
    arrays = np.ones((2, 4, 3)), np.ones((2, 5))
    kept = {"mode": FAST_COMPILE, "on_unused_input": "ignore"}
    of_all = pytensor.function([X_ROWS, Y_ROWS], actual, **kept)
    of_one = pytensor.function([X, Y], length, **kept)
    for n in (0, 2):  # no rows share what one row would have
        assert of_all(*(a[:n] for a in arrays)) == of_one(*(a[0] for a in arrays))


@pytest.mark.parametrize(
    "out",
    [
        Y.sum(),
        Y.sum().astype("int64"),
        (Y > 0).sum() + Y.shape[0],
        pt.stack([Y.shape[0], Y.argmax()]),
    ],
    ids=["float", "integer", "a count", "stacked"],
)
def test_what_follows_from_values_is_not(out):
    assert row_value(vectorize_graph(out, ROWS), 1) is None


def test_a_constant_is_if_its_rows_are_equal():
    same, different = pt.constant([[1, 2], [1, 2]]), pt.constant([[1, 2], [1, 3]])
    assert row_value(same, 1).data.tolist() == [1, 2]
    assert row_value(different, 1) is None
    assert row_value(pt.constant(np.zeros((0, 2))), 1) is None  # nothing says
    assert row_value(pt.constant([[0.0], [-0.0]]), 1) is None  # 1 / x tells them apart
    assert np.isnan(row_value(pt.constant([[np.nan], [np.nan]]), 1).data)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AllocEmpty("float64")(Y.shape[0]) * 0,
        lambda: pt.zeros(Y.shape[0] + 1),
        lambda: pt.full(X.shape[0], Y[0]),
        lambda: Y[: X.shape[0]],
        lambda: pt.arange(Y.shape[0]),
        lambda: Y[pt.arange(X.shape[0])],
        lambda: pt.tile(Y, 2),
        lambda: Y.reshape((1, Y.size)),
    ],
    ids=["empty", "zeros", "full", "slice", "arange", "positions", "tile", "reshape"],
)
def test_a_shared_length_leaves_no_blockwise(make):
    core = make()
    batched = vectorize_graph(core, ROWS)
    inputs = [X_ROWS, Y_ROWS]
    graph = FunctionGraph(inputs, [batched], clone=True)
    unbatch_row_values(graph)
    assert not any(isinstance(node.op, Blockwise) for node in graph.apply_nodes)
    assert graph.outputs[0].type.ndim == core.type.ndim + 1
    after = pytensor.function(
        graph.inputs, graph.outputs[0], mode=FAST_COMPILE, on_unused_input="ignore"
    )
    before = pytensor.function(inputs, batched, mode=FAST_COMPILE, on_unused_input="ignore")
    x, y = np.ones((2, 3, 2)), np.arange(10.0).reshape(2, 5)
    np.testing.assert_allclose(np.nan_to_num(after(x, y)), np.nan_to_num(before(x, y)))
    assert after(x[:0], y[:0]).shape == (0, *before(x, y).shape[1:])


# The batches of two axes: what makes the length has both, or one of them, with the other of length 1.
SEVERAL = {
    "one axis less": ((2, 3), (3,), (None, None), (None,)),
    "each its own": ((2, 1), (1, 3), (2, 1), (1, 3)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("batches", SEVERAL)
@pytest.mark.parametrize(
    "make",
    [
        lambda: pt.alloc(Y[0], X.shape[0], 2),
        lambda: pt.repeat(Y, X.shape[0]),
        lambda: pt.alloc(Y, X.shape[0], Y.shape[0]).T,
        lambda: pytensor.grad(pt.repeat(Y, X.shape[0]).prod(), Y),
        lambda: pt.zeros(X.shape[0]) + Y[0],
        lambda: Y[: X.shape[0]],
    ],
    ids=["alloc", "repeat", "transposed", "gradient", "zeros", "slice"],
)
def test_batches_of_several_axes(make, batches):
    of_x, of_y, declared_x, declared_y = SEVERAL[batches]
    x_rows = pt.tensor("x_rows", shape=(*declared_x, None, None))
    y_rows = pt.tensor("y_rows", shape=(*declared_y, None))
    batched = vectorize_graph(make(), {X: x_rows, Y: y_rows})
    kept = {"mode": FAST_COMPILE, "on_unused_input": "ignore"}
    before = pytensor.function([x_rows, y_rows], batched, **kept)
    graph = FunctionGraph([x_rows, y_rows], [batched], clone=True)
    unbatch_row_values(graph)
    after = pytensor.function(graph.inputs, graph.outputs[0], **kept)
    args = np.ones((*of_x, 3, 2)), np.random.default_rng(0).normal(size=(*of_y, 5))
    np.testing.assert_allclose(after(*args), before(*args))


def test_a_long_chain_that_reads_each_number_twice():
    n = Y.shape[0]
    for _ in range(100):
        n = (n + n) // 2
    graph = FunctionGraph([Y_ROWS], [vectorize_graph(Y[:n], ROWS)], clone=True)
    unbatch_row_values(graph)
    assert len(graph.apply_nodes) < 500
