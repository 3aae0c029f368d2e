"""Batched loops and branches: one loop over batched states, each row as if it were alone."""

import functools
import itertools

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.type import TensorType

from loopax import cond, fori_loop, scan, while_loop
from loopax.ir import BodyArgs, BodyOuts, Cond, KeepRows, Scan, ScanArgs, ScanOptions, check
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from tests.support.assorted_loops import CASES, PLAIN, X, a, s, x
from tests.support.bare_loops import While
from tests.support.compare import loops
from tests.support.marking import slow_where

RNG = np.random.default_rng(3)


def compile_(inputs, outs):
    return pytensor.function(inputs, outs, mode=PLAIN, on_unused_input="ignore")


def batched(inputs, outs, at, lengths=(None,)):
    """The outputs of a batch: the inputs at positions ``at`` have axes of these lengths in front."""
    new = {
        inputs[k]: TensorType(inputs[k].type.dtype, (*lengths, *inputs[k].type.shape))() for k in at
    }
    actual = vectorize_graph(list(outs), new)
    given = [new.get(v, v) for v in inputs]
    graph = FunctionGraph(given, actual, clone=True)
    check(graph)
    no_loop_over_the_batch(graph)
    return given, actual


def no_loop_over_the_batch(graph):
    for node in graph.toposort():
        if isinstance(node.op, InnerGraphOp):
            no_loop_over_the_batch(node.op.fgraph)
        elif isinstance(node.op, Blockwise):
            assert not isinstance(node.op.core_op, InnerGraphOp), node


def as_rows(f, inputs, outs, values, at, actual, shape, last=False):
    """Each row of the batch is what ``f`` gives for it alone, zeros behind it (before it, if ``last``)."""
    for row in np.ndindex(*shape):
        alone = f(*[v[row] if k in at else v for k, v in enumerate(values)])
        for out, b, expected in zip(outs, actual, alone, strict=True):
            one = b[row] if b.ndim > out.type.ndim else b
            if out.type.ndim and len(one) > len(expected):
                n = len(expected)
                rest, one = (one[:-n], one[len(one) - n :]) if last else (one[n:], one[:n])
                assert not rest.any()
            np.testing.assert_allclose(one, expected, rtol=1e-11, atol=1e-13)
            assert one.dtype == expected.dtype


def assert_rows(inputs, outs, values, at=None, f=None, last=False):
    """``values`` have the batch's axis where it is in ``at``."""
    at = range(len(inputs)) if at is None else at
    given, actual = batched(inputs, outs, at)
    n = len(values[at[0]])
    actual = compile_(given, actual)(*values)
    as_rows(f or compile_(inputs, outs), inputs, outs, values, at, actual, (n,), last)
    return actual


# -- assorted loops ----------------------------------------------------------------------------------


@functools.cache
def case_of(name):
    case = CASES[name]()
    return case, compile_(case.inputs, list(case.outs))


def near(value, shape):
    """Values like ``value``, in an array of this shape."""
    size = (*shape, *np.shape(value))
    return np.asarray(value) * (1 + 0.3 * RNG.normal(size=size))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name",
    slow_where(("every 3", "stopping, sqrt", "stopping, reverse", "branching").__contains__, CASES),
)
def test_any_of_the_inputs_may_be_batched(name):
    case, f = case_of(name)
    rows = [near(value, (3,)) for value in case.values]
    n = len(case.inputs)
    graph = FunctionGraph(case.inputs, case.outs, clone=True)
    for at in [at for k in range(1, n + 1) for at in itertools.combinations(range(n), k)]:
        given, outs = batched(case.inputs, case.outs, at)
        assert len(loops(FunctionGraph(given, outs, clone=True))) == len(loops(graph))
        values = [r if k in at else r[0] for k, r in enumerate(rows)]
        g = compile_(given, outs)
        as_rows(f, case.inputs, case.outs, values, at, g(*values), (3,), "reverse" in name)
        if "lags" in name:
            continue  # PyTensor's Blockwise of an Assert takes no empty batch
        for out, actual in zip(
            case.outs, g(*[r[:0] if k in at else r[0] for k, r in enumerate(rows)]), strict=True
        ):
            assert actual.ndim == out.type.ndim or actual.shape[0] == 0


@pytest.mark.parametrize("name", ["recurrent network", "nested", "branching", "stopping"])
def test_two_axes(name):
    """Some inputs with both, one with the second only, and lengths of 1 that are broadcast."""
    case, f = case_of(name)
    inputs, outs = case.inputs, list(case.outs)
    new = [
        TensorType("float64", (None, None, *inputs[0].type.shape))(),
        TensorType("float64", (None, *inputs[1].type.shape))(),
        TensorType("float64", (None, 1, *inputs[2].type.shape))(),
        *inputs[3:],
    ]
    actual = vectorize_graph(outs, dict(zip(inputs[:3], new, strict=False)))
    assert len(loops(FunctionGraph(new, actual, clone=True))) == len(
        loops(FunctionGraph(inputs, outs))
    )
    values = [near(v, n) for v, n in zip(case.values, [(2, 3), (3,), (2, 1), ()], strict=False)]
    full = [
        np.broadcast_to(v, (2, 3, *np.shape(c)))
        for v, c in zip(values[:3], case.values, strict=False)
    ]
    as_rows(f, inputs, outs, [*full, *values[3:]], range(3), compile_(new, actual)(*values), (2, 3))


@pytest.mark.parametrize(
    "name",
    slow_where(
        "recurrence".__ne__, ["recurrence", "every 3", "stopping", "stopping, finals", "nested"]
    ),
)
def test_gradients(name):
    """Of a batch: the rows' gradients; and the batch of gradients is the gradient of the batch."""
    case, _ = case_of(name)
    inputs, n = case.inputs, len(case.inputs)
    gradient = pytensor.grad(case.cost, inputs)
    values = [near(value, (3,)) for value in case.values]
    each = compile_(inputs, gradient)
    expected = [
        np.stack(g) for g in zip(*[each(*row) for row in zip(*values, strict=True)], strict=True)
    ]
    given, costs = batched(inputs, [case.cost], range(n))
    of_batch = pytensor.grad(costs[0].sum(), given)
    again, batch_of = batched(inputs, gradient, range(n))
    for inp, outs in ((given, of_batch), (again, batch_of)):
        for g, e in zip(compile_(inp, outs)(*values), expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-13)


# -- states that are no floats -----------------------------------------------------------------------


def test_integers_and_flags():
    """A state is batched where anything that it follows from is, and only there."""

    def step(c, r):
        n, m, seen, last = c
        seen = seen | (r > 0.5)
        return (n + 1, m + (r > 0).astype("int64"), seen, r > 0), (n, m, seen)

    (n, m, seen, last), ys = scan(step, (0, 0, False, False), x)
    actual = assert_rows([x], [n, m, seen, last, *ys], [near(X, (3,))])
    assert actual[0].ndim == 0 and actual[1].ndim == 1
    assert [y.ndim for y in actual[4:]] == [1, 2, 2]


def test_a_generator_is_one_for_all_rows():
    rng = random_generator_type("rng")

    def step(c, _):
        state, z = c
        state, noise = pt.random.normal(rng=state, return_next_rng=True)
        return (state, z + noise), None

    (_, z), _ = scan(step, (rng, s), length=3)
    starts = pt.dvector("starts")
    (rows,) = vectorize_graph([z], {s: starts})
    f = pytensor.function([rng, starts], rows, mode=PLAIN)
    actual = f(np.random.default_rng(1), np.arange(3.0))
    np.testing.assert_allclose(np.diff(actual), 1.0, rtol=1e-12)  # all have the same noise


def test_lists_of_rows():
    """A trace that is a typed list, of what does not differ between the rows."""
    rng = random_generator_type("rng")

    def step(c, r):
        state, z = c
        following, _ = pt.random.normal(rng=state, return_next_rng=True)
        return (following, z * r), state

    (_, z), states = scan(step, (rng, s), x)
    z_rows, _ = vectorize_graph([z, states], {s: pt.dvector("starts")})
    assert z_rows.owner.outputs[2].type == states.type


# -- numbers of steps --------------------------------------------------------------------------------


def test_a_number_of_steps_that_follows_from_a_shape():
    y = pt.dvector("y")
    final, ys = scan(lambda c, r: (c * r, c), s, y[1:] * 2)
    more = fori_loop(0, y.shape[0] * 2, lambda i, c: c + i * y[0], s)
    assert_rows([y, s], [final, ys, more], [near(X, (3,)), near(0.6, (3,))])


def counting(n, start, reverse=False, stop=None):
    """A loop without sequences whose step reads its index."""
    i, c, limit = pt.lscalar(), pt.dscalar(), pt.dscalar()
    new = c * 0.5 + i
    flag = None if stop is None else new > limit
    loop = Scan.from_body(
        BodyArgs(i, [], [c], [limit]),
        BodyOuts([new], [new * 2], flag),
        ScanOptions(reverse=reverse),
    )
    return loop.bind(ScanArgs(n, [], [start], [pt.zeros(()) if stop is None else stop]))


@pytest.mark.parametrize(
    ("reverse", "at"),
    [
        (False, (0,)),
        (True, (0,)),
        (False, (0, 1)),
        pytest.param(True, (0, 1), marks=pytest.mark.slow),
    ],
)
def test_each_row_has_a_number_of_steps(reverse, at):
    n = pt.lscalar("n")
    outs = counting(n, s, reverse)
    values = [np.array([2, 0, 5]), near(0.6, (3,)) if 1 in at else 0.6]
    assert_rows([n, s], outs, values, at, last=reverse)
    given, actual = batched([n, s], outs, at)
    for out in compile_(given, actual)(values[0][:0], values[1][:0] if 1 in at else 0.6):
        assert out.shape[0] == 0


@pytest.mark.parametrize("reverse", [False, True])
def test_each_row_has_a_number_of_steps_and_stops(reverse):
    n, limit = pt.lscalar("n"), pt.dscalar("limit")
    outs = counting(n, s, reverse, limit)
    values = [np.array([4, 0, 5, 3]), near(0.6, (4,)), np.array([1.2, 0.0, 1.2, 99.0])]
    actual = assert_rows([n, s, limit], outs, values, last=reverse)
    assert actual[2].shape == actual[3].shape == (4,)


def test_sequences_have_one_length_in_all_rows():
    n = pt.lscalar("n")
    final, _ = scan(lambda c, r: (c * r, None), s, x, length=n)
    given, actual = batched([x, s, n], [final], (1, 2))
    f = compile_(given, actual)
    np.testing.assert_allclose(f(X, [1.0, 2.0], [4, 4]), [[X.prod(), 2 * X.prod()]])
    with pytest.raises((AssertionError, ValueError), match="as many steps|length"):
        f(X, [1.0, 2.0], [4, 3])


# -- rows that stop on their own ---------------------------------------------------------------------


def test_each_row_stops_on_its_own():
    def step(c, r):
        c = c + r
        return c, (c, r), c > 1

    final, ys, stopped = scan(step, s, x)
    outs = [final, *ys, stopped, final.owner.outputs[-2]]
    values = [np.array([[0.2, 0.3, 0.9, 5.0], [2.0, 1.0, 1.0, 1.0], [0.1] * 4]), np.zeros(3)]
    actual = assert_rows([x, s], outs, values)
    np.testing.assert_array_equal(actual[4], [3, 1, 4])
    np.testing.assert_array_equal(actual[3], [True, True, False])
    assert actual[1].shape == (3, 4)
    # In a batch whose rows all stop early a trace is as long as the longest of them.
    assert compile_([x, s], outs)(values[0][0], 0.0)[1].shape == (3,)
    given, batch = batched([x, s], outs, (0, 1))
    assert compile_(given, batch)(values[0][:2], values[1][:2])[1].shape == (2, 3)


def test_a_stop_that_is_one_for_all_rows():
    i, c, k = pt.lscalar(), pt.dscalar(), pt.lscalar()
    op = Scan.from_body(BodyArgs(i, [], [c], [k]), BodyOuts([c * 2], [c], i + 1 >= k))
    k = pt.lscalar("k")
    outs = op.bind(ScanArgs(9, [], [s], [k]))
    actual = assert_rows([s, k], outs, [np.arange(3.0), 4], (0,))
    assert [f.ndim for f in actual] == [1, 2, 0, 0]


def test_a_state_that_a_finished_row_must_not_reach():
    """The step would divide by zero, or not end, on a row that is done: its result is not kept."""

    def body(c):
        p, q = c
        inner = while_loop(lambda z: z < q, lambda z: z + p, pt.zeros(()), max_steps=50)
        return p - 1, inner / p

    p, q = while_loop(lambda c: c[0] > 0.5, body, (s, a))
    actual = assert_rows([s, a], [p, q], [np.array([1.0, 3.0, 0.0]), np.array([2.0, 5.0, 7.0])])
    assert np.isfinite(actual[1]).all()


def test_rows_that_take_no_step():
    q = while_loop(lambda c: c < 1, lambda c: c * 2, s)
    assert_rows([s], [q], [np.array([0.3, 1.5, 0.9])])
    assert_rows([s], [q], [np.array([2.0, 1.5])])


# -- Cond --------------------------------------------------------------------------------------------


def choosing(flag, y):
    return cond(
        flag > 0,
        lambda: (pt.sin(y), y.sum(), scan(lambda c, r: (c * r + a, c), 0.5, y)[1]),
        lambda: (y[::-1], a, y * 2),
    )


@pytest.mark.parametrize("at", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_branches(at):
    flag, y = pt.dscalar("flag"), pt.dvector("y")
    outs = choosing(flag, y)
    values = [
        np.array([1.0, -1.0, 2.0]) if 0 in at else 1.0,
        near(X, (3,)) if 1 in at else X,
        near(0.7, (3,)) if 2 in at else 0.7,
    ]
    assert_rows([flag, y, a], outs, values, at)
    if 0 not in at:
        values[0] = -1.0
        assert_rows([flag, y, a], outs, values, at)
        # One condition for all rows: only the branch that it chooses is computed.
        _, actual = batched([flag, y, a], outs, at)
        (op,) = {out.owner.op for out in actual if isinstance(out.owner.op, Cond)}
        assert op.n_outs == 3


def test_gradients_of_branches():
    flag, y = pt.dscalar("flag"), pt.dvector("y")
    cost = sum((out**2).sum() for out in choosing(flag, y))
    gradient = pytensor.grad(cost, [y, a])
    assert_rows([flag, y, a], gradient, [np.array([1.0, -1.0]), near(X, (2,)), near(0.7, (2,))])


def test_a_condition_for_each_row_chooses_between_what_has_rows():
    one, other, flag = (random_generator_type("one"), random_generator_type("other"), pt.bscalar())
    chosen = Cond.from_branches([one, other], [one], [other]).bind(flag > 0, [one, other])
    with pytest.raises(NotImplementedError, match="which have no rows"):
        vectorize_graph(chosen, {flag: pt.bvector("flags")})


# -- bare loops and KeepRows -------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [(0,), (1,), (2,), (0, 1, 2)])
def test_bare_loops(at):
    c, y, top = pt.dscalar(), pt.dvector(), pt.dscalar()
    op = While.from_body([c, y], [top], [2 * c, y + c], 2 * c < top)
    y0 = pt.dvector("y0")
    outs = op.bind(s < a, [s, y0], [a])
    values = [
        np.array([0.3, 9.0, 1.0]) if 0 in at else 0.3,
        near(X, (3,)) if 1 in at else X,
        np.array([5.0, 8.0, 20.0]) if 2 in at else 5.0,
    ]
    assert_rows([s, y0, a], outs, values, at)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("at", [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)])
def test_keep_rows(last, at):
    rows, count, length = pt.dmatrix("rows"), pt.lscalar("count"), pt.lscalar("length")
    out = KeepRows(last=last)(rows, count, length)
    one = np.arange(1.0, 9.0).reshape(4, 2)
    values = [
        np.stack([one, -one, one + 1]) if 0 in at else one,
        np.array([3, 0, 4]) if 1 in at else 3,
        np.array([4, 2, 4]) if 2 in at else 4,
    ]
    assert_rows([rows, count, length], [out], values, at, last=last)
