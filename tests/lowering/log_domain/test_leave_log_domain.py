"""States that are logarithms of probabilities are computed as probabilities."""

import jax
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify, native, scan, value_and_grad
from loopax.ir import Cond, Scan, evaluate
from loopax.lowering import NATIVE_PASSES, run_passes
from loopax.lowering.log_domain.leave_log_domain import leave_log_domain
from tests.frontend.from_jaxpr import importing
from tests.lowering import forward_algorithm
from tests.numba_backend.interpreted import InterpretedFunction
from tests.support.compare import loops
from tests.support.kept import rewritten
from tests.support.random_loops import RANDOM

N, STEPS = 4, 6
INF = np.inf


def forward(c, rows, axis=0):
    """The states of the forward algorithm in logarithms: the last ones, and all."""
    moved = (lambda a: a[:, None]) if axis == 0 else (lambda a: a[None, :])

    def step(a, r):
        return pt.logsumexp(moved(a) + c, axis=axis) + r, a

    return scan(step, rows[0], rows[1:])


def unguarded(c, rows):
    """As a user writes it: NaN where no state is reached."""

    def step(a, r):
        z = a[:, None] + c
        m = pt.max(z, axis=0)
        return m + pt.log(pt.exp(z - m).sum(axis=0)) + r, None

    return scan(step, rows[0], rows[1:])[0]


def variables(dtype="float64", n=N):
    return forward_algorithm.variables(n, dtype)


def numbers(seed=0, scale=1.0, n=N, steps=STEPS):
    return forward_algorithm.numbers(n, steps, seed, scale)


def changed(*change):
    return forward_algorithm.changed(numbers(), *change)


LEFT_RIGHT = changed(0, np.tril_indices(N, -1), -INF)
LEFT_RIGHT[1][0, 1:] = -INF

# Each with whether the probabilities serve.
CASES = {
    "close": (numbers(), True),
    "large": ((numbers()[0] + 1e4, numbers()[1] - 3e5), True),
    "from left to right": (LEFT_RIGHT, True),
    "no way into a state": (changed(0, (slice(None), 3), -INF), True),
    "no way out of a state": (changed(0, 3, -INF), True),
    "an impossible row entry": (changed(1, (3, 2), -INF), True),
    "one state to start from": (changed(1, (0, slice(1, None)), -INF), True),
    "no steps": ((numbers()[0], numbers()[1][:1]), True),
    "far apart": (numbers(scale=400.0), False),
    "an unlikely row entry": (changed(1, (3, 2), -400.0), False),
    "underflow": (changed(1, (3, 2), -1000.0), False),
    "no way at all": (changed(0, slice(None), -INF), False),
    "no state to start from": (changed(1, 0, -INF), False),
    "an impossible row": (changed(1, 3, -INF), False),
    "a certain way": (changed(0, (2, 3), INF), False),
    "a certain start": (changed(1, (0, 2), INF), False),
    "no number": (changed(0, (2, 3), np.nan), False),
    "no number to start from": (changed(1, (0, 2), np.nan), False),
}
VALUES = [values for values, _ in CASES.values()]


def before_the_pass(inputs, *outputs):
    return forward_algorithm.before(leave_log_domain, inputs, *outputs)


def chosen(graph):
    """The node that chooses between probabilities and logarithms."""
    (node,) = [n for n in graph.toposort() if isinstance(n.op, Cond) and n.op.is_likely]
    return node


def exponentials_of_states(loop):
    """The exponentials and logarithms in a step that depend on a state."""
    moving = {*loop.op.split_body_inputs(loop.op.fgraph.inputs).states}
    functions = []
    for node in loop.op.fgraph.toposort():
        if moving.intersection(node.inputs):
            moving.update(node.outputs)
            functions.append(type(getattr(node.op, "scalar_op", None)))
    return [f for f in functions if f in (ps.Exp, ps.Log)]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("n", [N, None])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_stay_and_no_step_has_an_exponential_of_a_state(dtype, n, axis):
    inputs = variables(dtype, n)
    graph = before_the_pass(inputs, *forward(*inputs, axis))
    (loop,) = loops(graph)
    assert exponentials_of_states(loop) == [ps.Exp, ps.Log]
    tolerance = {"float64": 1e-12, "float32": 1e-5}[dtype]
    cases = [[x.astype(dtype) for x in values] for values in VALUES]
    rewritten(graph, leave_log_domain, *cases, rtol=tolerance, atol=tolerance)
    new, *_ = loops(graph)
    assert exponentials_of_states(new) == [ps.Log]  # of the scale


@pytest.mark.parametrize("name", CASES)
def test_where_probabilities_serve(name):
    inputs = variables()
    graph = before_the_pass(inputs, *forward(*inputs))
    leave_log_domain(graph)
    values, expected = CASES[name]
    condition = FunctionGraph(graph.inputs, [chosen(graph).inputs[0]], clone=False)
    assert bool(evaluate(condition, *values)[0]) == expected


def test_a_maximum_without_a_guard():
    inputs = variables()
    graph = before_the_pass(inputs, unguarded(*inputs))
    rewritten(graph, leave_log_domain, *VALUES, rtol=1e-12, atol=1e-12)
    chosen(graph)


@settings(RANDOM, max_examples=20)
@given(st.integers(0, 10**6), st.floats(1.0, 200.0), st.floats(0.0, 0.6))
def test_probabilities_of_any_size(seed, scale, share):
    """Random scales around the least probability that passes, and random zeros."""
    rng = np.random.default_rng(seed)
    c, rows = numbers(seed, scale, steps=12)
    rows = rows * scale
    for x in (c, rows):
        x[rng.random(x.shape) < share * rng.random()] = -INF
    inputs = variables()
    graph = before_the_pass(inputs, *forward(*inputs))
    rewritten(graph, leave_log_domain, [c, rows], rtol=1e-11, atol=1e-11, idempotent=False)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("of", ["last", "all"])
def test_gradients(dtype, of):
    inputs = variables(dtype)
    last, trace = forward(*inputs)
    total = trace.clip(-1e6, 1e6).sum() if of == "all" else last[:3].sum()
    actual = value_and_grad(
        jaxify(inputs, total, backend=InterpretedFunction.backend_name), argnums=(0, 1)
    )
    expected = jax.jit(jax.value_and_grad(jaxify(inputs, total, loops="xla"), argnums=(0, 1)))
    tolerance = {"float32": 2e-4, "float64": 1e-9}[dtype]
    for name, (values, _) in CASES.items():
        if (name, dtype) == ("large", "float32"):
            continue  # logarithms of 3e5 have two decimals
        typed = [x.astype(dtype) for x in values]
        pairs = zip(jax.tree.leaves(actual(*typed)), jax.tree.leaves(expected(*typed)), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_the_loops_of_a_gradient():
    """Backwards, the exponentials are those of a row and of the matrix."""
    inputs = variables()
    derive = value_and_grad(lambda c, rows: forward(c, rows)[0].sum())
    graph = before_the_pass(inputs, *derive(*inputs))
    leave_log_domain(graph)
    steps = [loop for loop in graph.toposort() if isinstance(loop.op, Scan)]
    shapes = [
        node.outputs[0].type.shape
        for loop in steps
        for node in loop.op.fgraph.toposort()
        if isinstance(getattr(node.op, "scalar_op", None), ps.Exp)
        and not set(node.inputs[0].owner.inputs) <= set(loop.op.args.consts)
    ]
    assert len(steps) == 2
    assert all(len(s) < 2 or s == (N, N) for s in shapes)
    assert not any(ps.Exp in exponentials_of_states(loop) for loop in steps)


READERS = {
    "a sum of likelihoods": lambda a, r, s: (s + pt.logsumexp(a), s),
    "weights": lambda a, r, s: (s + pt.exp(a - pt.logsumexp(a)) @ r, pt.exp(a - pt.max(a))),
    "the state itself": lambda a, r, s: (s * 0.5 + a[0] * r[1], a * r),
    "a product": lambda a, r, s: (s, 2.0 * pt.exp(a - pt.max(a)) * r),
    "a quotient": lambda a, r, s: (s, r / pt.exp(a - pt.max(a))),
}


@pytest.mark.parametrize("name", READERS)
def test_whatever_else_a_step_computes(name):
    c, rows = variables()

    def step(carry, r):
        a, s = carry
        new, y = READERS[name](a, r, s)
        return (pt.logsumexp(a[:, None] + c, axis=0) + r, new), y

    (a, s), ys = scan(step, (rows[0], pt.zeros(())), rows[1:])
    graph = before_the_pass([c, rows], a, s, ys)
    # The logarithms, of up to 1e6, have 10 decimals.
    rewritten(graph, leave_log_domain, *VALUES, rtol=1e-8, atol=1e-8)
    chosen(graph)


def test_a_filter_that_normalizes_each_step():
    """The state has no scale of its own; the likelihood adds up beside it."""
    c, rows = variables()

    def step(carry, r):
        a, total = carry
        joint = a + r
        likelihood = pt.logsumexp(joint)
        filtered = joint - likelihood
        return (pt.logsumexp(filtered[:, None] + c, axis=0), total + likelihood), filtered

    (a, total), filtered = scan(step, (rows[0], pt.zeros(())), rows[1:])
    graph = before_the_pass([c, rows], a, total, filtered)
    # Of logarithms of up to 1e6, with 10 decimals, the differences are taken.
    rewritten(graph, leave_log_domain, *VALUES, rtol=1e-9, atol=1e-9)
    assert ps.Exp not in exponentials_of_states(loops(graph)[0])


def safe_log_sum(x, axis):
    """With derivatives of 0 where all of ``x`` is minus infinity, as `loopax.hmm_forward` has them."""
    m = pt.max(x, axis=axis, keepdims=True)
    m = pt.switch(m > -np.inf, m, 0.0)
    s = pt.exp(x - m).sum(axis=axis)
    safe = pt.switch(s > 0, s, 1.0)
    return pt.switch(s > 0, pt.log(safe) + pt.squeeze(m, axis=axis), -np.inf)


@pytest.mark.parametrize("of", ["value", "gradient"])
def test_a_sum_that_is_safe_to_differentiate(of):
    c, rows = variables()

    def last(c, rows):
        step = lambda a, r: (safe_log_sum(a[:, None] + c, 0) + r, None)  # noqa: E731
        return scan(step, rows[0], rows[1:])[0]

    outputs = [last(c, rows)] if of == "value" else value_and_grad(lambda c: last(c, rows)[0])(c)
    graph = before_the_pass([c, rows], *outputs)
    rewritten(graph, leave_log_domain, *VALUES, rtol=1e-9, atol=1e-9)
    steps = [node for node in graph.toposort() if isinstance(node.op, Scan)]
    assert not any(ps.Exp in exponentials_of_states(loop) for loop in steps)


@pytest.mark.parametrize("total", [safe_log_sum, pt.logsumexp], ids=["safe", "logsumexp"])
def test_forwards_and_backwards(total):
    """The loops of a smoother: each step normalizes, and one loop reads the rows of the other."""
    c, rows = variables()

    def before(after, r):
        x = total(c + (r + after)[None, :], 1)
        return (x - total(x, 0),) * 2

    def filtered(a, r):
        x = total(a[:, None] + c, 0) + r
        return (x - total(x, 0),) * 2

    _, early = scan(filtered, rows[0], rows[1:])
    _, late = scan(before, pt.zeros_like(rows[0]), rows[1:], reverse=True)

    def smoothed(s, x):
        both = total(x[0][:, None] + c, 0) + x[1]
        return s + both, both - total(both, 0)

    outputs = scan(smoothed, pt.zeros_like(rows[0]), (early, late))
    slope = pytensor.grad(early.clip(-1e6, 1e6).sum(), c)
    graph = before_the_pass([c, rows], *outputs, slope)
    rewritten(graph, leave_log_domain, *VALUES, rtol=1e-8, atol=1e-8)


def test_sequences_of_other_lengths():
    """A step after the end of a sequence changes nothing: a choice between two logarithms."""
    c, rows = variables()
    is_row = pt.vector("is_row", dtype="bool")

    def step(a, row):
        r, is_in = row
        return pt.switch(is_in, pt.logsumexp(a[:, None] + c, axis=0) + r, a), None

    last = scan(step, rows[0], (rows[1:], is_row))[0]
    graph = before_the_pass([c, rows, is_row], last)
    flags = np.array([True, True, False, True, False])
    cases = [[*values, flags[: len(values[1]) - 1]] for values in VALUES]
    rewritten(graph, leave_log_domain, *cases, rtol=1e-12, atol=1e-12)
    assert ps.Exp not in exponentials_of_states(loops(graph)[0])


lse = pt.logsumexp
C, ROWS = pt.tensor("c", shape=(2, 2)), pt.tensor("r", shape=(None, 2))
ZEROS = np.zeros((2, 2)), np.zeros((3, 2))


def outer_normalizer(a, x):
    """What cancels, the probabilities, alone varies along the other axis."""
    new = lse(a[:, None] + C, axis=0) + x
    j = new[:, None] + x[None, :]
    return new, pt.exp(j - pt.max(j, axis=1, keepdims=True)).sum()


def another_test(a, x):
    z = a[:, None] + C
    return lse(z, axis=0) + x, pt.switch(pt.max(z, axis=1) > -INF, a, -INF)


def a_quotient_of_zeros(a, x):
    s = lse(a[:, None] + C, axis=0)
    return s + x, pt.switch(s > -INF, s - a, -INF)


def a_scalar_term(a, x):
    return lse(a[:, None] + C, axis=0) + x[0], pt.exp(a - lse(a))


def an_unguarded_maximum(a, x):
    z = a[:, None] + C
    m = z.max(0)
    return m + pt.log(pt.exp(z - m).sum(0)) + x[0], None


def fixed(a, x):
    return a * 0.9 + lse(x[:, None] + C), None


def two_quotients(a, x):
    return lse(a[:, None] + C, axis=0) - x - 2.0 * x + x, None


START = [0.0, -800.0]
EYE = np.array([[0.0, -INF], [-INF, 0.0]])
BEYOND = [
    (outer_normalizer, ROWS[0], numbers(n=2)),
    (another_test, ROWS[0], (np.array([[0.0, 1.0], [-INF, -INF]]), ZEROS[1])),
    (a_quotient_of_zeros, ROWS[0], (np.array([[0.0, -INF], [0.0, -INF]]), ZEROS[1])),
    *(
        (a_scalar_term, pt.zeros(2), (ZEROS[0], ZEROS[1] + [[0], [x], [0]]))
        for x in (INF, -INF, np.nan)
    ),
    *(
        (an_unguarded_maximum, pt.zeros(2), (ZEROS[0], ZEROS[1] + [[x], [0], [0]]))
        for x in (INF, -INF)
    ),
    (fixed, ROWS[0], numbers(n=2)),
    *((two_quotients, pt.zeros(2), (ZEROS[0], np.tile([0.0, 340.0], (n, 1)))) for n in (2, 3, 4)),
    (lambda a, x: (lse(a[:, None] + C, axis=0) + x, None), pt.constant(START), (EYE, ZEROS[1])),
    (lambda a, x: (lse(a[:, None] + C, axis=0) + x, None), pt.constant(START), (EYE, ZEROS[1][:1])),
]


@pytest.mark.parametrize("k", range(len(BEYOND)))
def test_beyond_the_range(k):
    """Found by random steps: underflow of the start, what is not finite, and axes that cancel."""
    step, start, values = BEYOND[k]
    outputs = [v for v in scan(step, start, ROWS[1:]) if v is not None]
    graph = before_the_pass([C, ROWS], *outputs)
    rewritten(graph, leave_log_domain, values, rtol=1e-11, atol=1e-11)


def test_exponentials_of_a_matrix_for_each_step_stay():
    """As many would have to be computed for the factors."""
    weights, rows = pt.tensor("w", shape=(N, N)), pt.tensor("r", shape=(None, N))

    def step(a, x):
        c = pt.special.log_softmax(weights + x[None, :], axis=1)
        return pt.logsumexp(a[:, None] + c, axis=0), None

    graph = before_the_pass([weights, rows], scan(step, rows[0], rows[1:])[0])
    before = graph.toposort()
    leave_log_domain(graph)
    assert graph.toposort() == before


def test_each_row_of_a_batch_has_a_scale():
    """The likelihoods of the rows drift apart, far beyond the range of probabilities."""
    c = pt.tensor("c", dtype="float64", shape=(N, N))
    rows = pt.tensor("r", dtype="float64", shape=(None, 3, N))
    last = scan(
        lambda a, r: (pt.logsumexp(a[:, :, None] + c, axis=1) + r, None), rows[0], rows[1:]
    )[0]
    graph = before_the_pass([c, rows], last)
    values = numbers()[0], np.random.default_rng(1).normal(size=(STEPS, 3, N))
    values[1][:, 1] -= 500.0
    rewritten(graph, leave_log_domain, values, rtol=1e-12, atol=1e-12)
    condition = FunctionGraph(graph.inputs, [chosen(graph).inputs[0]], clone=False)
    assert evaluate(condition, *values)[0]


@pytest.mark.parametrize(
    "step",
    [
        lambda a, c, r: pt.logsumexp(a[:, None] * c, axis=0),  # no sum
        lambda a, c, r: pt.logsumexp(a[:, None] + a[None] * c, axis=0),  # a term of the state
        lambda a, c, r: pt.exp(a[:, None] + c).sum(axis=0),  # no logarithm
        lambda a, c, r: pt.logsumexp(2.0 * a[:, None] + c, axis=0),  # the scale would be squared
        lambda a, c, r: pt.max(a[:, None] + c, axis=0) + r,  # no exponential: Viterbi
        lambda a, c, r: pt.logsumexp(a[::-1][:, None] + c, axis=0),  # no rule
    ],
    ids=["product", "own term", "no logarithm", "square", "viterbi", "reversed"],
)
def test_what_stays(step):
    c, rows = variables()
    last = scan(lambda a, r: (step(a, c, r), None), rows[0], rows[1:])[0]
    graph = before_the_pass([c, rows], last)
    before = graph.toposort()
    leave_log_domain(graph)
    assert graph.toposort() == before


def test_a_jax_function_leaves_it_too():
    """`jax.nn.logsumexp` takes its maximum with an initial value, and tests it by other operations."""

    def f(c, rows):
        def step(a, r):
            return jax.nn.logsumexp(a[:, None] + c, axis=0) + r, None

        return jax.lax.scan(step, rows[0], rows[1:])[0]

    fast = jax.jit(native(f, loops="native"))
    for values in VALUES:
        np.testing.assert_allclose(fast(*values), jax.jit(f)(*values), rtol=1e-12, atol=1e-12)
    for g in (f, jax.grad(lambda c, rows: f(c, rows).sum())):
        graph = importing.imported(g, *numbers())
        run_passes(graph, NATIVE_PASSES[: 1 + NATIVE_PASSES.index(leave_log_domain)])
        steps = [node for node in graph.toposort() if isinstance(node.op, Scan)]
        assert not any(ps.Exp in exponentials_of_states(loop) for loop in steps)
        chosen(graph)


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_a_jax_function(order):
    def f(c, rows):
        def step(a, r):
            return jax.nn.logsumexp(a[:, None] + c, axis=0) + r, None

        return jax.nn.logsumexp(jax.lax.scan(step, rows[0], rows[1:])[0])

    derive = (lambda g: jax.grad(g, (0, 1))) if order == 1 else jax.hessian
    fast = jax.jit(derive(native(f, loops="native")))
    for name in ("close", "large", "far apart"):
        values, _ = CASES[name]
        for a, b in zip(
            jax.tree.leaves(fast(*values)),
            jax.tree.leaves(jax.jit(derive(f))(*values)),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
