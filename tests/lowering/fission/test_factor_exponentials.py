"""Exponentials of a matrix to which a loop adds a vector are products of few exponentials."""

import jax
import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify, native, scan, value_and_grad
from loopax.ir import Cond, evaluate
from loopax.lowering.fission.factor_exponentials import factor_exponentials
from loopax.lowering.log_domain.leave_log_domain import leave_log_domain
from loopax.lowering.redundancy.hoist_invariants import hoist_invariants
from tests.lowering import forward_algorithm
from tests.numba_backend.interpreted import InterpretedFunction
from tests.support.compare import loops
from tests.support.kept import rewritten

N, STEPS = 10, 4
INF = np.inf


def forward(c, rows, axis=0):
    """The last states of the forward algorithm in logarithms."""
    moved = (lambda a: a[:, None]) if axis == 0 else (lambda a: a[None, :])
    return scan(lambda a, r: (pt.logsumexp(moved(a) + c, axis=axis) + r, None), rows[0], rows[1:])[
        0
    ]


def variables(dtype="float64", n=N):
    return forward_algorithm.variables(n, dtype)


def numbers(seed=0, scale=1.0, n=N, steps=STEPS):
    return forward_algorithm.numbers(n, steps, seed, scale)


def changed(*change):
    return forward_algorithm.changed(numbers(), *change)


CASES = {
    "close": numbers(),
    "far apart": numbers(scale=400.0),
    "beyond": (numbers(scale=400.0)[0], numbers()[1] * 2000),
    "no way into a state": changed(0, (slice(None), 3), -INF),
    "no way out of a state": changed(0, 3, -INF),
    "no way at all": changed(0, slice(None), -INF),
    "one state to start from": changed(1, (0, slice(1, None)), -INF),
    "no state to start from": changed(1, 0, -INF),
    "a certain way": changed(0, (2, 3), INF),
    "a certain start": changed(1, (0, 2), INF),
    "no number": changed(0, (2, 3), np.nan),
    "no number to start from": changed(1, (0, 2), np.nan),
}


def before_the_pass(inputs, *outputs):
    """The graph as the pass receives it, with loops that `leave_log_domain` takes, too."""
    without = [leave_log_domain]
    return forward_algorithm.before(factor_exponentials, inputs, *outputs, without=without)


def in_step(graph):
    """The largest number of axes of an exponential in the step of each loop, outside of branches."""
    hoist_invariants(graph)
    return [
        max(
            sum(k != 1 for k in node.outputs[0].type.shape)
            for node in loop.op.fgraph.toposort()
            if isinstance(getattr(node.op, "scalar_op", None), ps.Exp)
        )
        for loop in loops(graph)
    ]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("n", [N, 3, None])
def test_values_stay_and_the_step_has_few_exponentials(axis, n):
    inputs = variables(n=n)
    graph = before_the_pass(inputs, forward(*inputs, axis))
    assert in_step(graph) == [2]
    cases = [[c[:n, :n], rows[:, :n]] for c, rows in CASES.values()]
    rewritten(graph, factor_exponentials, *cases, rtol=1e-12, atol=1e-12)
    assert in_step(graph) == [1]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_are_those_of_the_exponentials(dtype, axis):
    inputs = variables(dtype)
    total = (forward(*inputs, axis) * np.linspace(1, 2, N).astype(dtype)).sum()
    actual = value_and_grad(
        jaxify(inputs, total, backend=InterpretedFunction.backend_name), argnums=(0, 1)
    )
    expected = jax.jit(jax.value_and_grad(jaxify(inputs, total, loops="xla"), argnums=(0, 1)))
    tolerance = {"float32": 1e-4, "float64": 1e-10}[dtype]
    for values in CASES.values():
        typed = [x.astype(dtype) for x in values]
        pairs = zip(jax.tree.leaves(actual(*typed)), jax.tree.leaves(expected(*typed)), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("n", "axes"), [(N, [1, 1]), (3, [1, 2])])
def test_the_loops_of_a_gradient(n, axes):
    """Neither has exponentials of a matrix; a small one, which the weights read as well, keeps them."""
    inputs = variables(n=n)
    derive = value_and_grad(lambda c, rows: forward(c, rows).sum())
    graph = before_the_pass(inputs, *derive(*inputs))
    factor_exponentials(graph)
    assert in_step(graph) == axes


@pytest.mark.parametrize(
    "step",
    [
        lambda a, c, r: pt.logsumexp(a[:, None] * c, axis=0),  # no sum
        lambda a, c, r: pt.logsumexp(a[:, None] + c * r, axis=0),  # it changes in each step
        lambda a, c, r: pt.exp(a[:, None] + c).sum(axis=0),  # no maximum
        lambda a, c, r: pt.logsumexp(a[:, None] + pt.outer(a, a) + c, axis=0),  # all vary
        lambda a, c, r: pt.logsumexp(a[:4, None] + c[:4, :4], axis=0).sum() + a,  # few
    ],
    ids=["product", "other rows", "no maximum", "matrices", "few"],
)
def test_what_stays(step):
    c, rows = variables()
    last = scan(lambda a, r: (step(a, c, r), None), rows[0], rows[1:])[0]
    graph = before_the_pass([c, rows], last)
    before = in_step(graph)
    factor_exponentials(graph)
    assert in_step(graph) == before
    assert not any(
        isinstance(n.op, Cond) for loop in loops(graph) for n in loop.op.fgraph.toposort()
    )


@pytest.mark.parametrize(
    ("case", "expected"),
    [("close", True), ("no way into a state", True), ("no number", False), ("beyond", False)],
)
def test_where_the_factors_are_used(case, expected):
    """A state that nothing leads to, such as the first one, does not need the other branch in each step."""
    inputs = variables()
    graph = before_the_pass(inputs, forward(*inputs))
    factor_exponentials(graph)
    (loop,) = loops(graph)
    body = loop.op.unfrozen()
    (branch,) = [node for node in body.toposort() if isinstance(node.op, Cond)]
    c, rows = CASES[case]
    values = [0, rows[1], rows[0], c]
    assert bool(evaluate(FunctionGraph(body.inputs, branch.inputs[:1]), *values)[0]) == expected


READERS = {
    "sum": lambda e, w: e.sum(axis=0),
    "logarithm of a part": lambda e, w: pt.log((e * w[:, None]).sum(axis=0)),
    "weights": lambda e, w: (e * (1e250 * w[None])).sum(axis=0),
    "sum along the other axis": lambda e, w: (e * w[None]).sum(axis=1),
    "exponentials": lambda e, w: e.sum(axis=0) + pt.log(e + e.T).sum(axis=0),
}
C, ROWS = np.zeros((N, N)), np.zeros((3, N))
C[:, 0], C[1, 0], ROWS[0, 1] = -760.0, 0.0, -290.0  # underflows in the first factor alone
D, SMALL = np.zeros((N, N)), np.ones((3, N))
D[1:], SMALL[:, 0] = -700.0, -280.0  # the last factor is exp(280)
NOTHING = np.zeros((N, N))
NOTHING[:, 0] = -INF
EXTREMES = [(C, ROWS), (D, SMALL), (NOTHING, SMALL), *CASES.values()]


@pytest.mark.parametrize("name", READERS)
def test_whatever_reads_the_exponentials(name):
    """Also of a maximum without a guard, which is -inf and makes them NaN."""
    c, rows = variables()
    w = (np.arange(N) > 2) + 0.0

    def step(a, r):
        y = a[:, None] + c
        return r, READERS[name](pt.exp(y - pt.max(y, axis=0, keepdims=True)), w)

    graph = before_the_pass([c, rows], scan(step, rows[0], rows[1:])[1])
    rewritten(graph, factor_exponentials, *EXTREMES, rtol=1e-11, atol=1e-300)


def test_two_in_one_step():
    c, rows = variables()

    def step(a, r):
        return pt.logsumexp(pt.logsumexp(a[:, None] + c, axis=0)[None] + c, axis=1) + r, None

    graph = before_the_pass([c, rows], scan(step, rows[0], rows[1:])[0])
    rewritten(graph, factor_exponentials, *CASES.values(), rtol=1e-12, atol=1e-12)
    assert in_step(graph) == [1]


def test_a_jax_function_has_them_too():
    """`jax.nn.logsumexp` takes its maximum with an initial value."""

    def f(c, rows):
        def step(a, r):
            return jax.nn.logsumexp(a[:, None] + c, axis=0) + r, None

        return jax.lax.scan(step, rows[0], rows[1:])[0]

    fast = native(f, loops="native")
    for values in CASES.values():
        np.testing.assert_allclose(
            jax.jit(fast)(*values), jax.jit(f)(*values), rtol=1e-12, atol=1e-12
        )
