"""What native loops compute of their rows by functions is computed before them, as vector code."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.scan import until

from loopax import jaxify, scan
from loopax.lowering.fission.functions_out import functions_out
from tests.support.compare import imported, loops
from tests.support.kept import rewritten

x, y, s, c = pt.dvector("x"), pt.dvector("y"), pt.dscalar("s"), pt.dscalar("c")
X = pt.dmatrix("X", shape=(None, 3))
W = pt.dmatrix("W")
GIVEN = [x, y, s, c, X, W]
N = 9
_rng = np.random.default_rng(0)
VALUES = [_rng.normal(size=shape) for shape in [(N,), (N,), (), (), (N, 3), (N, N)]]
NO_ROWS = [v[:0] if v.ndim else v for v in VALUES]


def without_functions(*outputs):
    """The graph after the pass, which has the same values as before it."""
    graph = FunctionGraph(GIVEN, list(outputs), clone=True)
    return rewritten(graph, functions_out, VALUES, NO_ROWS, rtol=1e-12, errors=(ValueError,))


def functions(graph):
    """How many exponentials and sines there are in the step of each loop, and outside."""
    each = [n.op.fgraph for n in loops(graph)]
    return [
        sum(str(getattr(n.op, "scalar_op", "")) in ("exp", "sin", "sigmoid") for n in g.toposort())
        for g in (*each, graph)
    ]


def decay(v, r):
    return v * pt.exp(c * r), v


@pytest.mark.parametrize(
    ("step", "start", "rows", "inside", "outside"),
    [
        (decay, s, x, 0, 1),
        (lambda v, r: (v * pt.sin(pt.exp(c * r) + 1), v), s, x, 0, 2),
        (lambda v, r: (v * pt.sin(r[0]) + pt.exp(r[1]), v), s, (x, y), 0, 2),
        (lambda v, r: (v + pt.exp(r), v), s * np.ones(3), X, 0, 1),  # numbers in locals
        (lambda v, r: (pt.exp(v * r), v), s, x, 1, 0),  # of a state
        (lambda v, r: (v * pt.sin(c), v), s, x, 1, 0),  # of no row
        (lambda v, r: (v * pt.exp(r).sum(), v), s, W, 1, 0),  # vector code as it is
        (lambda v, r: (v * (1 + c * r), v), s, x, 0, 0),
    ],
    ids=["one", "of one", "two rows", "few", "state", "constant", "long rows", "none"],
)
def test_what_leaves(step, start, rows, inside, outside):
    graph = without_functions(*scan(step, start, rows))
    assert functions(graph) == [inside, outside]


def test_the_index_is_a_row():
    final = scan(lambda v, i: (v + pt.exp(-i * c), None), s, pt.arange(x.shape[0]))[0]
    assert functions(without_functions(final)) == [0, 1]


def test_a_loop_of_few_steps_keeps_them():
    final = scan(lambda v, i: (v + pt.exp(-i * c), None), s, pt.arange(7))[0]
    assert functions(without_functions(final)) == [1, 0]


def test_a_loop_that_stops_keeps_them():
    stopping = pytensor.scan(
        lambda r, v: (v + pt.exp(r), until(v > 2)), [x], [s], return_updates=False
    )
    graph = imported([x, s], stopping).graph
    functions_out(graph)
    assert functions(graph) == [1, 0]


def test_the_loop_of_a_derivative_reads_the_same_rows():
    """The exponential, once for both loops, is a vector function; no step calls the C library's."""
    final = scan(decay, s, x)[0]
    f = jaxify([x, s, c], [final, *pytensor.grad(final, [s, c])], backend="numba")
    assert len(re.findall(r"= exp\(", f.source)) == 1
    assert "np.exp" not in f.source


def test_functions_outside_are_not_computed_in_the_loop_that_reads_them():
    total = scan(lambda v, r: (0.9 * v + r, None), s, pt.exp(x))[0]
    f = jaxify([x, s], total, backend="numba")
    assert "np.exp" not in f.source


def filtered(v, r):
    """A number that the step computes on its way to the next state, and its exponential."""
    middle = v * r + c
    return middle / (1 + v), pt.exp(-(middle**2)) * r


def fed_back(v, r):
    e = pt.exp(v)
    return v * e, (e, e + pt.sin(v))


@pytest.mark.parametrize(
    ("step", "start", "inside", "outside", "emitted"),
    [
        (lambda v, r: (v * r, pt.exp(v)), s, 0, 1, 1),
        (lambda v, r: (v * r, pt.exp(v * r)), s, 0, 1, 1),
        (filtered, s, 0, 1, 1),
        (lambda v, r: (v * r, (pt.exp(v), pt.sin(v))), s, 0, 2, 1),
        (lambda v, r: (v * r, (pt.exp(v), v)), s, 0, 1, 1),
        (fed_back, s, 1, 1, 2),
        (lambda v, r: (v * r, v + r), s, 0, 0, 1),
        (lambda v, r: (v * r, pt.exp(v)), s * np.ones(3), 0, 1, 1),
        (lambda v, r: (v * r, pt.exp(v.sum())), s * np.ones(3), 1, 0, 1),
    ],
    ids=[
        "of a state",
        "of the next state",
        "of what a state needs",
        "two of one",
        "of a trace",
        "a state needs one",
        "none",
        "few",
        "more numbers than functions",
    ],
)
def test_what_leaves_after_the_states(step, start, inside, outside, emitted):
    final, trace = scan(step, start, x)
    graph = without_functions(final, *(trace if isinstance(trace, tuple) else [trace]))
    assert functions(graph) == [inside, outside]
    (loop,) = loops(graph)
    assert (loop.op.n_states, loop.op.n_ys) == (1, emitted)


def added_up(term):
    (final, total), _ = scan(lambda v, r: ((v[0] * 0.5 + r, v[1] + term(*v, r)), None), (s, c), x)
    (loop,) = loops(graph := without_functions(final, total))
    return *functions(graph), loop.op.n_states, loop.op.n_ys


def test_sums_leave_where_they_are_of_functions():
    assert added_up(lambda v, total, r: pt.exp(v) * r) == (0, 1, 1, 1)
    assert added_up(lambda v, total, r: v * r) == (0, 0, 2, 0)
    assert added_up(lambda v, total, r: total * pt.exp(v)) == (1, 0, 2, 0)  # no sum
