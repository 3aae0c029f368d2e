"""A row of what is computed of each row of a trace is computed of one row, and the trace is not made."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.math import Dot

from loopax import jaxify, scan
from loopax.ir import pformat
from loopax.lowering.storage.read_early import read_early
from loopax.lowering.storage.read_last import read_last
from loopax.lowering.storage.read_rows import read_rows
from tests.support.both_backends import in_both
from tests.support.compare import imported, loops
from tests.support.kept import rewritten

x, v, a = pt.dvector("x"), pt.dvector("v"), pt.dscalar("a")
m = pt.dmatrix("m")
X, V, M = np.linspace(-1.0, 1.0, 12), np.array([0.4, -0.8]), np.array([[0.3, 0.7], [-0.2, 0.9]])


def trace(stops=False, of=v):
    def step(c, r):
        new = pt.tanh(c * a + r)
        return (new, 2 * new, new.sum() > 100) if stops else (new, 2 * new)

    return scan(step, of, x)[1]


OF_ROWS = {
    "square": lambda t: (t**2)[-1],
    "several": lambda t: (t * 2 + pt.exp(t))[-1],
    "two rows": lambda t: (t**2)[-1] - (t + 1)[-2],
    "of one function": lambda t: (t**2)[-1] - (t**2)[-2],
    "with a captured number": lambda t: (t * a)[-1],
    "with a vector": lambda t: (t + v)[-1],
    "an entry": lambda t: pt.exp(t)[-1, 1],
    "a slice": lambda t: (t**2)[-3:],
    "a slice of columns": lambda t: (t**2)[-2:, 1:],
    "sum of rows": lambda t: t.sum(axis=1)[-1],
    "sums of some rows": lambda t: pt.sqrt((t**2).sum(axis=1))[-2:],
    "a product": lambda t: Dot()(t, m)[-1],
    "products": lambda t: Dot()(t, pt.constant(M))[-2:],
    "cast": lambda t: t.astype("float32")[-1],
}


@pytest.mark.parametrize("stops", [False, True], ids=["for", "while"])
@pytest.mark.parametrize("name", OF_ROWS)
def test_no_trace_is_made(name, stops):
    graph = FunctionGraph([x, v, a, m], [OF_ROWS[name](trace(stops))], clone=True)
    cases = [[X, V, 0.5, M], [X[:1], V, 0.5, M], [X[:0], V, 0.5, M]]
    rewritten(graph, [read_early, read_last, read_rows], *cases, rtol=1e-12, errors=(IndexError,))
    assert [node.op.n_ys for node in loops(graph)] == [0]


def test_what_is_read_elsewhere_is_computed_once():
    for read in (
        lambda t: (u := t**2).sum() + u[-1],
        lambda t: pt.diff(t**2, axis=0),
        lambda t: pt.cumsum(t, axis=0)[-1],
        lambda t: t.sum(axis=0)[-1],
        lambda t: (t + x[::2, None][: t.shape[0]])[-1],  # another length, as far as anyone knows
        lambda t: pt.alloc(t, x.shape[0], 2)[-2:],  # the length is that of all rows
        lambda t: pt.alloc(t, x.shape[0], 2)[-1:],
    ):
        graph = FunctionGraph([x, v, a], [read(trace())], clone=True)
        before = pformat(graph)
        read_early(graph)
        assert pformat(graph) == before


def test_both_backends():
    out = [(trace() ** 2)[-1], pt.exp(trace(stops=True)).sum(axis=1)[-2]]
    in_both([x, v, a], out, [X, V, 0.5])
    with pytest.raises(IndexError):
        jaxify([x, v, a], out[0])(X[:0], V, 0.5)
    for node in loops(imported([x, v, a], out).graph):
        assert node.op.n_ys == 1  # as it is written
