"""Constants that are read one row a step become sequences, and the same errors are raised."""

from typing import Any

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph

from loopax import cond, fori_loop, jaxify, scan, while_loop
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions, check, evaluate
from loopax.ir.ops.checked import Checked
from loopax.lowering.canonical.promote_sequences import promote_sequences
from loopax.lowering.redundancy.remove_unused import remove_unused
from tests.support.assorted_loops import m, s, x
from tests.support.compare import imported, loops, primitives
from tests.support.kept import rewritten
from tests.support.random_loops import RANDOM

n = pt.lscalar("n")
c = pt.dvector("c")
C = np.array([0.4, -0.9, 0.7, 0.2, 1.5])
X = np.array([0.3, 0.8, -0.6, 0.5, 0.1])
LENGTH = c.shape[0]


def left(outputs: Any, given: Any, at: Any) -> FunctionGraph:
    """The graph after the pass, with the values of the one before, and nothing left to do."""
    return run(FunctionGraph(list(given), list(outputs), clone=True), at)


def run(graph: FunctionGraph, *values: Any) -> FunctionGraph:
    return rewritten(graph, promote_sequences, *values)


def ports(graph: Any) -> list[tuple[int, int]]:
    """Of each loop: sequences and constants."""
    return [(node.op.n_seqs, node.op.n_consts) for node in loops(graph)]


def checks(graph: Any) -> int:
    return sum(isinstance(node.op, Checked) for node in graph.toposort())


def reads(step: Any, n_steps: Any = LENGTH, **options: Any) -> Any:
    """The state behind a loop that multiplies by ``step(i)``, and its trace."""
    i, k, of, size = pt.lscalar("i"), pt.dscalar(), c.type(), pt.lscalar()
    new = k * step(i, of, size) + 0 * size
    op = Scan.from_body(
        BodyArgs(i, [], [k], [of, size]), BodyOuts([new], [k]), ScanOptions(**options)
    )
    return op.bind(ScanArgs(n_steps, [], [s], [c, pt.as_tensor(n_steps).astype("int64")]))


def left_of(step: Any, n_steps: Any = LENGTH, **options: Any) -> FunctionGraph:
    """With rows, with few, and with none."""
    graph = FunctionGraph([c, s], reads(step, n_steps, **options), clone=True)
    return run(graph, *([C[:k], 0.6] for k in (5, 2, 1, 0)))


# -- indices -------------------------------------------------------------------------------------------


INDICES = {
    "i": (lambda i, k: i, LENGTH),
    "i + 1": (lambda i, k: i + 1, pt.maximum(LENGTH - 1, 0)),
    "2 + i": (lambda i, k: 2 + i, pt.maximum(LENGTH - 2, 0)),
    "i + 2 - 1": (lambda i, k: i + 2 - 1, pt.maximum(LENGTH - 3, 0)),
    "reversed": (lambda i, k: k - 1 - i, LENGTH),
    "reversed from before the end": (lambda i, k: k - i, pt.maximum(LENGTH - 1, 0)),
    "from the end": (lambda i, k: -1 - i, LENGTH),
    "from the end, forwards": (lambda i, k: i - k, LENGTH),
    "cast": (lambda i, k: (i + 1).astype("int32") - 1, LENGTH),
    "half of it": (lambda i, k: i, pt.minimum(LENGTH, 2)),
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_in_order(name, reverse):
    index, n_steps = INDICES[name]
    graph = left_of(lambda i, of, k: of[index(i, k)], n_steps, reverse=reverse)
    assert ports(graph) == [(1, 1)]
    assert checks(graph) == 0


@pytest.mark.parametrize(
    ("index", "n_steps"),
    [
        (lambda i, k: 2 * i, LENGTH // 2),
        (lambda i, k: i - 1, LENGTH),  # the last row comes first
        (lambda i, k: i * i, pt.minimum(LENGTH, 1)),
        (lambda i, k: pt.minimum(i, 2), pt.minimum(LENGTH, 1)),
        (lambda i, k: i % 1, LENGTH),
    ],
)
def test_rows_in_another_order(index, n_steps):
    graph = FunctionGraph([c, s], reads(lambda i, of, k: of[index(i, k)], n_steps), clone=True)
    graph = run(graph, *([C[:k], 0.6] for k in (5, 3)))
    assert ports(graph) == [(0, 2)]


def test_reads_of_one_row_share_a_sequence():
    graph = left_of(lambda i, of, k: of[i] * of[i + 0] + of[k - 1 - i] * of[k - i - 1])
    assert ports(graph) == [(2, 1)]


def test_a_constant_that_is_read_in_other_ways_stays():
    graph = left_of(lambda i, of, k: of[i] * of.sum())
    assert ports(graph) == [(1, 2)]


def test_further_indices():
    i, k, of, j = pt.lscalar(), pt.dscalar(), m.type(), pt.lvector()
    step = of[i, 1] * of[i, ::-1].sum() + of[i, j[i]] + of[i].sum()
    op = Scan.from_body(BodyArgs(i, [], [k], [of, j]), BodyOuts([k * step], [step]))
    columns = pt.lvector()
    n_steps = pt.minimum(m.shape[0], columns.shape[0])
    outs = op.bind(ScanArgs(n_steps, [], [s], [m, columns]))
    values = np.arange(6.0).reshape(3, 2)
    graph = left(outs, [m, s, columns], [values, 0.6, [1, 0, 1]])
    assert ports(graph) == [(2, 0)]


ROWS = {
    "arange": (pt.arange(LENGTH), True),
    "of a dtype": (pt.arange(LENGTH, dtype="int32"), True),
    "from 1": (pt.arange(1, LENGTH), True),
    "from the last": (pt.arange(LENGTH)[::-1], True),
    "a part": (pt.arange(LENGTH)[1:-1], True),
    "a constant": (pt.constant([1, 2, 3]), True),
    "a constant, down": (pt.constant([2, 1, 0]), True),
    "other numbers": (pt.constant([2, 1, 2]), False),
    "every second": (pt.arange(0, LENGTH, 2), False),
    "a variable": (pt.lvector("rows"), False),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_count(name):
    """As `pytensor.scan` over an arange is written."""
    rows, promoted = ROWS[name]
    known = pt.specify_shape(c, (5,)) if "constant" in name or "numbers" in name else c
    final, ys = scan(lambda k, t: (k * known[t] + t, k), s, rows)
    given = [c, s, *([rows] if rows.owner is None and name == "a variable" else [])]
    at = [C, 0.6, *([np.array([1, 0, 4])] if len(given) == 3 else [])]
    graph = left([final, ys], given, at)
    assert ports(graph) == [(2, 0)] if promoted else [(1, 1)]


# -- errors ----------------------------------------------------------------------------------------------


def outcome(graph: Any, *at: Any) -> Any:
    try:
        return [np.asarray(v).tolist() for v in evaluate(graph, *map(np.asarray, at))]
    except (IndexError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("down", [False, True])
def test_an_index_that_is_too_large(offset, down):
    """With any number of rows and of steps: the values, or the error that there was."""

    def index(i, k):
        return k - 1 + offset - i if down else i + offset

    outs = reads(lambda i, of, k: of[index(i, k)], n)
    before, after = [FunctionGraph([c, s, n], outs, clone=True) for _ in "12"]
    promote_sequences(after)
    assert (ports(after), checks(after)) == ([(1, 1)], 1)
    actual = [outcome(before, C[:rows], 0.6, k) for rows in range(5) for k in range(-2, 6)]
    assert actual == [outcome(after, C[:rows], 0.6, k) for rows in range(5) for k in range(-2, 6)]
    assert {IndexError, ValueError} <= {error for error in actual if not isinstance(error, list)}


def test_other_errors_come_first():
    """A sequence that is too long or too short; an op of the step that raises at an earlier one."""

    def left_with(rows, step, at, n_steps=n):
        final, _ = scan(lambda k, r: (step(k, r), None), s, rows, length=n_steps)
        graph = FunctionGraph([c, x, s, n], [final], clone=True)
        before = outcome(graph, *at)
        promote_sequences(graph)
        assert outcome(graph, *at) is before is ValueError
        return ports(graph)

    short = [C[:1], X, 0.6, 3]
    assert left_with((pt.arange(n), x), lambda k, r: k * c[r[0]] * r[1], short) == [(2, 1)]
    raises = Checked(ValueError, "too large")

    def step(k, r):
        return raises(k * c[r[0]], k < 0.5) * r[1]

    assert left_with((pt.arange(n), x[:n]), step, short) == [(2, 1)]
    # Where no index can be too large the error of the step comes when it came.
    assert left_with((pt.arange(LENGTH), c), step, [C, X, 0.6, 5], LENGTH) == [(3, 0)]


# -- loops that stay -------------------------------------------------------------------------------------


def test_loops_that_stop():
    def loop(bound):
        return scan(lambda k, t: (k + c[t], k, k > 0.5), s, pt.arange(bound), length=bound)

    final, ys, stopped = loop(LENGTH)
    assert ports(left([final, ys, stopped], [c, s], [C, 0.0])) == [(2, 0)]
    final, ys, stopped = loop(100)  # it stops before there is no row left
    assert ports(left([final, ys, stopped], [c, s], [C, 0.2])) == [(1, 1)]
    last = while_loop(lambda k: c[k] < 0.6, lambda k: k + 1, 0)
    assert ports(left([last], [c], [C])) == [(0, 1)]


def test_what_may_not_be_read():
    final = fori_loop(0, LENGTH, lambda i, k: cond(k < 1, lambda: k + c[i], lambda: k), s)
    assert ports(left([final], [c, s], [C, 0.6])) == [(0, 1)]
    final = fori_loop(0, LENGTH, lambda i, k: c[i] + cond(k < 1, lambda: k + c[i], lambda: k), s)
    assert ports(left([final], [c, s], [C, 0.6])) == [(1, 1)]


def test_a_number_of_steps_that_is_only_a_value():
    """JAX runs it for a number that is not known before: nothing there can be sliced."""
    final = fori_loop(0, n, lambda i, k: k * c[i] + i, s)
    assert ports(left([final], [c, s, n], [C, 0.6, 3])) == [(0, 1)]
    f = jaxify([c, s, n], final)
    np.testing.assert_allclose(
        jax.jit(f)(C, 0.6, 3), (((0.6 * C[0]) * C[1] + 1) * C[2] + 2), rtol=1e-12
    )


def test_a_start_that_may_be_negative():
    final = fori_loop(n, LENGTH, lambda i, k: k * c[i] + i, s)
    assert ports(left([final], [c, s, n], [C, 0.6, -2])) == [(0, 2)]


# -- bodies, derivatives -----------------------------------------------------------------------------------


def test_loops_in_loops():
    known = pt.specify_shape(c, (5,))

    def outer(k, r):
        return fori_loop(0, 4, lambda i, e: pt.sin(e * known[i + 1]) + r, k), None

    final, _ = scan(outer, s, x)
    graph = left([final], [c, s, x], [C, 0.6, X])
    assert ports(graph)[1] == (1, 1)
    # The rows of the outer one, read by the outer index.
    final = fori_loop(
        0, m.shape[0], lambda i, k: fori_loop(0, m.shape[1], lambda j, e: pt.sin(e + m[i][j]), k), s
    )
    graph = left([final], [m, s], [np.arange(6.0).reshape(3, 2), 0.6])
    assert ports(graph)[0][0] == 1


@pytest.mark.parametrize("shift", [0, 1, -1])
def test_an_inner_loop_reads_the_row_that_the_loop_around_has(shift):
    steps = m.shape[0] - shift if shift > 0 else m.shape[0]
    final = fori_loop(
        0,
        steps,
        lambda i, k: fori_loop(0, m.shape[1], lambda j, e: pt.sin(e + m[i + shift, j]), k),
        s,
    )
    graph = left([final], [m, s], [np.arange(6.0).reshape(3, 2), 0.6])
    # Row -1 is the last one; where i - 1 begins there, no slice has the rows.
    # The matrix stays for its shape.
    assert ports(graph) == ([(1, 1), (1, 0)] if shift >= 0 else [(0, 1), (0, 2)])


def test_an_inner_loop_that_takes_no_step_reads_no_row():
    # Three steps of the outer loop, and m may have fewer rows: only a step of the inner loop would tell.
    final = fori_loop(
        0, 3, lambda i, k: fori_loop(0, m.shape[1], lambda j, e: pt.sin(e + m[i, j]), k), s
    )
    graph = left([final], [m, s], [np.ones((2, 0)), 0.6])
    assert ports(graph)[0] == (0, 2)  # no sequence; the matrix, and how many columns it has


def test_loops_in_loops_in_loops():
    t = pt.dtensor3("t")

    def row(i, j):
        return lambda k, e: pt.sin(e + t[i, j, k])

    final = fori_loop(
        0,
        t.shape[0],
        lambda i, d: fori_loop(
            0, t.shape[1], lambda j, e: fori_loop(0, t.shape[2], row(i, j), e), d
        ),
        s,
    )
    graph = left([final], [t, s], [np.arange(12.0).reshape(2, 3, 2), 0.6])
    # That a row is as long as the rows of t is not known in the step.
    assert ports(graph) == [(1, 1), (0, 2), (0, 2)]


@pytest.mark.parametrize("truncate", [-1, 2])
def test_derivatives(truncate):
    """Those of JAX, of the program before and after; none of them scatters."""
    ys = pytensor.scan(
        lambda t, k, of: pt.tanh(k * of[t] + of[t]),
        [pt.arange(LENGTH)],
        [s],
        [c],
        truncate_gradient=truncate,
        return_updates=False,
    )
    cost = (ys**2).sum()
    expected = pytensor.function([c, s], pytensor.grad(cost, c), mode="FAST_COMPILE")(C, 0.6)
    graph = run(imported([c, s], cost).graph, [C, 0.6])
    remove_unused(graph)
    assert ports(graph) == [(1, 0)]
    gradient = jax.grad(jaxify(graph.inputs, graph.outputs[0]))
    np.testing.assert_allclose(gradient(C, 0.6), expected, rtol=1e-12)
    counts = primitives(jax.make_jaxpr(gradient)(C, 0.6))
    assert not any("scatter" in name for name in counts)


# -- programs ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@seed(1)
@RANDOM
@given(
    st.integers(-3, 3), st.sampled_from([1, -1]), st.integers(-2, 5), st.booleans(), st.booleans()
)
def test_random_indices(k, sign, steps, reverse, known):
    """Of constants of any length, known or not."""
    bound = steps if known else n
    outs = reads(lambda i, of, size: of[sign * i + k], bound, reverse=reverse)
    before, after = [FunctionGraph([c, s, n], outs, clone=True) for _ in "12"]
    promote_sequences(after)
    check(after)
    for rows in range(5):
        at = C[:rows], 0.6, steps
        assert outcome(before, *at) == outcome(after, *at)
