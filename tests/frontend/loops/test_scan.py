"""`scan` and its variants: values against NumPy, `pytensor.scan` and `jax.lax`; what a step may be."""

import re
from collections import namedtuple
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import random_generator_type
from pytensor.typed_list import TypedListType, make_list

import loopax
from loopax import (
    DynamicShapeError,
    LoopaxError,
    LoopTypeError,
    MissingInputError,
    StatefulFunctionError,
    fori_loop,
    jaxify,
    scan,
    while_loop,
)
from loopax.ir import UNBOUNDED, Scan, TraceType, check, evaluate
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE, assert_agrees, loops, value

XS = np.array([0.5, -1.0, 2.0, 3.0])
x = pt.dvector("x")
a = pt.dscalar("a")


def the_loop(variable):
    """The Scan that a variable is an output of."""
    assert isinstance(variable.owner.op, Scan)
    check(FunctionGraph(outputs=[variable], clone=True))
    return variable.owner.op


# -- scan: values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_scan_is_lax_scan_and_pytensor_scan(n, reverse):
    def step(c, r):
        c = 0.5 * c + a * r
        return c, c**2

    final, ys = scan(step, 1.0, x, reverse=reverse)
    actual = assert_agrees([x, a], [final, ys], [XS[:n], 0.3])

    def lax_step(c, r):
        c = 0.5 * c + 0.3 * r
        return c, c**2

    expected = jax.lax.scan(lax_step, 1.0, jnp.asarray(XS[:n]), reverse=reverse)
    for f, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-12)
    if n:
        states = pytensor.scan(
            lambda r, c: 0.5 * c + a * r,
            sequences=[x],
            outputs_info=[pt.ones(())],
            go_backwards=reverse,
            return_updates=False,
        )
        states = value(states, [x, a], [XS[:n], 0.3])
        np.testing.assert_allclose(actual[0], states[-1], rtol=1e-12)
        np.testing.assert_allclose(actual[1], states[:: -1 if reverse else 1] ** 2, rtol=1e-12)


@pytest.mark.slow
def test_gradients_flow_through_carry_sequences_and_closures():
    b, start = a**2, a.exp()
    final, ys = scan(lambda c, r: (pt.tanh(c * b + r), c * r), start, x)
    assert_agrees([x, a], [final, ys], [XS, 0.3], grad_wrt=[x, a], vmap=[0])


def test_it_is_one_scan_in_jax():
    final, ys = scan(lambda c, r: (c + r, c), 0.0, x)
    assert "scan" in str(jax.make_jaxpr(jaxify([x], [final, ys]))(XS))
    assert [node.op.n_ys for node in loops(FunctionGraph([x], [final, ys]))] == [1]


def test_options_go_into_the_op():
    _, ys = scan(
        lambda c, r: (c + r, c),
        0.0,
        x,
        reverse=True,
        unroll=2,
        checkpoint="sqrt",
        truncate_gradient=3,
        name="sum",
    )
    options = the_loop(ys).options
    assert options[:-1] == ("sum", True, 2, "sqrt", 3, None)
    assert options.origin.labels == ("c", "y") and "test_scan.py" in options.origin.line
    assert str(the_loop(ys)) == "Scan{sum, reverse}"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"unroll": 0}, "unroll must be a number of steps from 1 on, got 0"),
        ({"unroll": True}, "unroll must be .*, got True"),
        ({"checkpoint": "cube"}, "checkpoint must be None, \"sqrt\", or a number .*, got 'cube'"),
        ({"checkpoint": 0}, "checkpoint must be .*, got 0"),
        ({"checkpoint": (2, 4)}, r"checkpoint must be .*, got \(2, 4\)"),
        ({"checkpoint": ()}, r"checkpoint must be .*, got \(\)"),
        ({"truncate_gradient": 0}, "truncate_gradient must be .*, got 0.*disconnected_grad"),
        ({"truncate_gradient": -2}, "truncate_gradient must be .*, got -2"),
    ],
)
def test_options_are_checked(options, match):
    with pytest.raises(ValueError, match=match):
        scan(lambda c, r: (c, c), 0.0, x, **options)


@pytest.mark.parametrize("n", [0, 3])
def test_length_may_be_symbolic_or_an_array(n):
    steps = pt.iscalar("steps")
    _, ys = scan(lambda c, _: (2 * c, c), 1, length=steps)
    actual = assert_agrees([steps], ys, [np.int32(n)], static=[0])
    np.testing.assert_array_equal(actual, 2 ** np.arange(n))
    _, ys = scan(lambda c, _: (2 * c, c), 1, length=np.array(n))
    np.testing.assert_array_equal(value(ys), 2 ** np.arange(n))


def test_stops():
    final, ys, stopped = scan(lambda c, r: (c + r, {"c": c}, c + r > 1), 0.0, x)
    run = pytensor.function([x], [final, ys["c"], stopped], mode=FAST_COMPILE)
    for xs, expected in [
        (XS, (1.5, [0, 0.5, -0.5], True)),  # the step that stops is counted
        (XS[:2], (-0.5, [0, 0.5], False)),
        (XS[:0], (0.0, [], False)),
    ]:
        for actual, e in zip(run(xs), expected, strict=True):
            np.testing.assert_array_equal(actual, e)
        graph = FunctionGraph([x], [final, ys["c"], stopped], clone=True)
        for actual, e in zip(evaluate(graph, xs), expected, strict=True):
            np.testing.assert_array_equal(actual, e)
    f = jaxify([x], [final, stopped])
    assert [np.asarray(v).item() for v in f(XS)] == [1.5, True]


# -- trees -------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "first second")


@dataclass
class Plain:
    level: object
    slope: object = None


@jax.tree_util.register_dataclass
@dataclass
class Registered:
    level: object
    slope: object


@pytest.mark.parametrize(
    "make",
    [
        lambda p, q: (p, q),
        lambda p, q: [p, [q]],
        lambda p, q: {"p": p, "q": (None, q)},
        lambda p, q: Pair(p, q),
        lambda p, q: Plain(p, {"q": q}),
        lambda p, q: (Plain(p), Plain(None, q)),
        lambda p, q: Registered(p, q),
        lambda p, q: Plain(Registered(p, None), Pair(q, ())),
    ],
    ids=["tuple", "list", "dict", "named", "plain", "plains", "registered", "nested"],
)
def test_any_tree_is_a_carry_rows_and_output(make):
    seen = []

    def step(carry, row):
        assert type(carry) is type(row) is type(make(0, 0))
        (p, q), (r, s) = leaves_of(carry), leaves_of(row)
        seen.append((p, q))
        return make(p + r, q * s), make(p, p + q)

    final, ys = scan(step, make(0.0, np.ones(2)), make(x, pt.outer(x, x)[:, :2]))
    assert type(final) is type(ys) is type(make(0, 0))
    actual = value([*leaves_of(final), *leaves_of(ys)], [x], [XS])
    p = np.r_[0, np.cumsum(XS)]
    q = np.cumprod(np.r_[np.ones((1, 2)), np.outer(XS, XS)[:, :2]], axis=0)
    for f, e in zip(actual, [p[-1], q[-1], p[:-1], p[:-1, None] + q[:-1]], strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-12)


def leaves_of(tree):
    from loopax.frontend.loops.trees import flatten

    return flatten(tree)[0]


def test_nothing_is_a_tree():
    assert scan(lambda c, r: (c, None), None, x) == (None, None)
    final, ys = scan(lambda c, _: ((), c), (), length=3)
    assert final == () and ys == ()


# -- closures ----------------------------------------------------------------------------------------


def test_captured_is_what_was_there_before_the_step():
    far = pt.exp(a) + 1
    shared = pytensor.shared(np.array(2.0), name="s")

    def step(c, r):
        # `far * shared` hangs on nothing that changes. It is made here all the same, and stays.
        return c + r * (far * shared) + np.arange(3.0).sum() * pt.constant(2.0), None

    final, _ = scan(step, 0.0, x)
    op = the_loop(final)
    assert {*op.split_inputs(final.owner.inputs).consts} == {far, shared}
    assert "exp" not in str(op.fgraph.toposort())
    actual = assert_agrees([x, a], final, [XS, 0.3], grad_wrt=[a])
    np.testing.assert_allclose(actual, XS.sum() * (np.exp(0.3) + 1) * 2 + 4 * 6.0)
    shared.set_value(np.array(0.0))
    np.testing.assert_allclose(jaxify([x, a], final)(XS, 0.3), 24.0)


def test_an_output_may_be_captured_or_constant_or_a_number():
    _, ys = scan(lambda c, r: (c, (a, pt.constant(2.0), 3, True, 0.5, r)), None, x)
    assert [y.type.dtype for y in ys] == [
        "float64",
        "float32",
        "int64",
        "bool",
        "float64",
        "float64",
    ]
    actual = assert_agrees([x, a], list(ys), [XS, 0.3])
    np.testing.assert_array_equal(actual[0], [0.3] * 4)
    np.testing.assert_array_equal(actual[3], [True] * 4)


def test_a_step_does_not_see_behind_the_initial_state():
    behind = []

    def step(c, r):
        behind.append({v.name for v in ancestors([c])})
        assert {x} < {*ancestors([r])}  # a row is one of a sequence
        return c + r, c

    scan(step, a**2, x)
    assert behind and all(names == {"carry"} for names in behind)
    with pytest.raises(MissingInputError):  # and a dummy that gets out is an unknown variable
        leaked = []
        scan(lambda c, r: (leaked.append(c), c + r, c)[1:], a, x)
        jaxify([x, a], leaked[-1] + 1)


@pytest.mark.slow
def test_nested_loops_capture_the_outer_step():
    def outer(c, r):
        inner, rows = scan(lambda s, v: (s + v * c * r, s * r), c, x)
        return inner, rows.sum()

    final, ys = scan(outer, a, x)
    actual = assert_agrees([x, a], [final, ys], [XS, 0.3], grad_wrt=[x, a])
    c, sums = 0.3, []
    for r in XS:
        s = c + np.r_[0, np.cumsum(XS)] * c * r
        c, total = s[-1], (s[:-1] * r).sum()
        sums.append(total)
    np.testing.assert_allclose(actual[0], c)
    np.testing.assert_allclose(actual[1], sums)


def test_jacobian_of_the_gradient_tutorial():
    # With pytensor.scan it needs non_sequences=[y, x].
    y = x**2 * x.sum()
    jacobian = loopax.map(lambda i: pytensor.grad(y[i], x), pt.arange(y.shape[0]))
    actual = assert_agrees([x], jacobian, [XS])
    np.testing.assert_allclose(actual, jax.jacobian(lambda x: x**2 * x.sum())(XS), rtol=1e-12)
    legacy = pytensor.scan(
        lambda i, y, x: pytensor.grad(y[i], x),
        sequences=pt.arange(y.shape[0]),
        non_sequences=[y, x],
        return_updates=False,
    )
    np.testing.assert_allclose(actual, value(legacy, [x], [XS]), rtol=1e-12)


def test_strict_refuses_captures():
    kept = scan(lambda c, r: (c + 2 * r, c), 0.0, x, strict=True)
    assert isinstance(kept[0].owner.op, Scan)
    with pytest.raises(
        LoopaxError, match=r"step of scan has strict=True(.|\n)*- 'a' of type Scalar(.|\n)*xs"
    ):
        scan(lambda c, r: (c + a * r, c), 0.0, x, strict=True)
    # What the loop itself needs is not the step's.
    n = pt.lscalar("n")
    fori_loop(n, 2 * n, lambda i, c: c + i, 0, strict=True)
    scan(lambda c, _: (c[0], None), loopax.lag(x, [1, 12]), length=n, reverse=True, strict=True)


@pytest.mark.filterwarnings("ignore:Setting default_update is deprecated:DeprecationWarning")
def test_a_hidden_draw_is_refused():
    def draw():
        """As RandomStream makes it, which is deprecated."""
        rng = pytensor.shared(np.random.default_rng(1))
        rng.default_update, draw = rng.normal()
        return draw

    for step in [
        lambda c, r: (c, r + draw()),
        lambda c, r: (c, draw()),  # hangs on nothing of the step
        lambda c, r: (c, loopax.cond(r > 0, lambda: draw(), lambda: pt.zeros(()))),
        lambda c, r: (c, loopax.map(lambda v: v + draw(), x)),
    ]:
        with pytest.raises(StatefulFunctionError, match=r"same draw(.|\n)*return rng, x \+ eps"):
            scan(step, 0.0, x)
    # A draw from outside is one number, the same at each step, and that is what is written.
    eps = draw()
    _, ys = scan(lambda c, r: (c, r - r + eps), 0.0, x)
    actual = value(ys, [x], [XS])
    assert len({*actual}) == 1


def draw(**options):
    """A draw from a generator that this call creates."""
    return pt.random.normal(**options, return_next_rng=True)[1]


@pytest.mark.filterwarnings(
    "ignore:Calling a RandomVariable without an explicit rng:DeprecationWarning"
)
@pytest.mark.parametrize(
    "step",
    [
        lambda c, r: (c, draw()),
        lambda c, r: (c + r * draw(size=2).sum(), None),
        lambda c, r: (c, loopax.map(lambda v: v + r, draw(size=3))),
        lambda c, r: (c, loopax.cond(r > 0, lambda: draw(), lambda: pt.zeros(()))),
    ],
)
def test_a_draw_without_a_generator_is_refused(step):
    with pytest.raises(StatefulFunctionError, match=r"passes no rng=(.|\n)*same draw"):
        scan(step, 0.0, x)


def test_a_carried_generator_draws_anew():
    # The program of the message above.
    rng = pytensor.shared(np.random.default_rng(1))

    def step(rng, r):
        rng, eps = pt.random.normal(rng=rng, return_next_rng=True)
        return rng, (r + eps, rng)

    rng_after, (ys, rngs) = scan(step, rng, x)
    assert rngs.type == TraceType(rng.type)
    after, actual, states = value([rng_after, ys, rngs], [x], [XS])
    reference = np.random.default_rng(1)
    np.testing.assert_array_equal(actual, XS + [reference.normal() for _ in XS])
    assert after.bit_generator.state == states[-1].bit_generator.state
    assert after.bit_generator.state == reference.bit_generator.state
    as_input = random_generator_type("rng")
    _, (ys, _) = scan(step, as_input, x)
    np.testing.assert_array_equal(value(ys, [as_input, x], [np.random.default_rng(1), XS]), actual)


def test_typed_lists_are_sequences_and_carries():
    rows = TypedListType(pt.dvector().type)("rows")
    seen, sums = scan(lambda c, r: (pytensor.typed_list.append(c, r), r.sum()), rows, rows)
    values = [np.ones(2), np.arange(3.0)]
    actual = value([seen, sums], [rows], [values])
    assert [len(v) for v in actual[0]] == [2, 3, 2, 3]
    np.testing.assert_array_equal(actual[1], [2.0, 3.0])
    made = make_list([x, 2 * x, x])
    _, sums = scan(lambda c, r: (c, r.sum()), None, made, strict=True)
    np.testing.assert_array_equal(value(sums, [x], [XS]), [4.5, 9.0, 4.5])
    _, sums = scan(
        lambda c, r: (c, r[1].sum() - c), x.sum(), loopax.lead(made, [0, 1]), reverse=True
    )
    np.testing.assert_array_equal(value(sums, [x], [XS]), [4.5, 0.0])
    _, sums = scan(lambda c, r: (c, r[1].sum() + r[0]), None, (x, made))
    with pytest.raises(AssertionError, match=r"xs\[1\] of scan must have one row for each step"):
        value(sums, [x], [XS])
    np.testing.assert_array_equal(value(sums, [x], [XS[:3]]), [2.0, 2.0, 3.5])
    # A list of what is no tensor is sliced like a tensor.
    rng = random_generator_type("rng")
    _, rngs = scan(lambda r, _: (r.normal()[0], r), rng, length=3)
    _, draws = scan(lambda c, r: (c, r.normal()[1]), None, rngs)
    reference = np.random.default_rng(0)
    expected = [reference.normal() for _ in range(3)]
    np.testing.assert_array_equal(value(draws, [rng], [np.random.default_rng(0)]), expected)


# -- what a step may return -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (
            lambda c, r: c + r,
            r"step of scan returns one variable.*\(carry, y\) or \(carry, y, stop\)",
        ),
        (lambda c, r: [c, r], "returns .* of type list"),
        (lambda c, r: (c,), "returns a tuple of 1"),
        (lambda c, r: (c, r, c > 0, c), "returns a tuple of 4"),
        (lambda c, r: None, "returns None of type NoneType"),
        (lambda c, r: (c, r, c), r"stop flag of scan is Scalar\(float64.*bool scalar.*compare"),
        (lambda c, r: (c, r, 1), "stop flag of scan is 1 of type int"),
        (lambda c, r: (c, r, None), "stop flag of scan is None of type NoneType"),
        (lambda c, r: (c, r, x > 0), r"stop flag of scan is Vector\(bool.*any\(\)"),
        (
            lambda c, r: (c, {"z": "text"}),
            r"y\['z'\] is 'text' of type str, but a leaf must be a PyTensor",
        ),
        (lambda c, r: (c, np.array(["b"])), "y is an array of dtype <U1"),
        (
            lambda c, r: (c, 2**63),
            "y is the number 9223372036854775808, which does not fit into int64",
        ),
        (lambda c, r: (np.random.default_rng(), r), "carry is a NumPy generator.*shared"),
    ],
)
def test_what_a_step_returns_is_checked(step, match):
    with pytest.raises(LoopTypeError, match=f"(?s){match}"):
        scan(step, 0.0, x)


def test_the_name_of_a_loop_is_in_its_messages():
    with pytest.raises(LoopTypeError, match="step of scan 'prices' returns one variable"):
        scan(lambda c, r: c, 0.0, x, name="prices")


def test_exceptions_of_a_step_pass_through():
    class Mine(Exception):
        pass

    def step(c, r):
        raise Mine

    with pytest.raises(Mine):
        scan(step, 0.0, x)


@pytest.mark.parametrize(
    ("xs", "length", "match"),
    [
        (None, None, r"scan has neither xs nor length.*Pass xs.*or length"),
        ((), None, "scan has neither xs nor length"),
        (
            {"p": np.zeros(3), "q": np.zeros(4)},
            None,
            r"- xs\['p'\]: 3\n  - xs\['q'\]: 4\n.*xs\[:n\]",
        ),
        (np.zeros(3), 2, r"- length: 2\n  - xs: 3"),
        (x, 2.0, "length of scan must be an integer from 0 on.*, got 2.0"),
        (x, True, "length of scan must be .*, got True"),
        (x, -1, "length of scan must be .*, got -1"),
        (x, a, "length of scan must be .*, got 'a' of type Scalar"),
        (x, x, "length of scan must be .*, got 'x' of type Vector"),
        (a, None, r"xs is 'a' of type Scalar.*leading axis.*captures it automatically"),
        ([1, 2], None, r"xs\[0\] is .*np.array\(...\) of it is one sequence"),
    ],
)
def test_lengths_are_checked(xs, length, match):
    with pytest.raises(LoopTypeError, match=f"(?s){match}"):
        scan(lambda c, r: (c, c), 0.0, xs, length)


def test_lengths_are_checked_at_run_time():
    y, n = pt.dvector("y"), pt.lscalar("n")
    _, both = scan(lambda c, r: (c, r[0] + r[1]), 0.0, (x, y))
    _, some = scan(lambda c, r: (c, r), 0.0, x, n)
    with pytest.raises(ValueError, match="takes 4 steps, but its sequence 1 has 3 rows"):
        value(both, [x, y], [XS, XS[:3]])
    with pytest.raises(ValueError, match="takes 2 steps, but its sequence 0 has 4 rows"):
        value(some, [x, n], [XS, 2])
    with pytest.raises(ValueError, match="Sequence 1 of .* does not have one row for each step"):
        jaxify([x, y], both)(XS, XS[:3])


# -- the variants --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 4])
def test_map(n):
    out = loopax.map(lambda r: {"sq": r[0] ** 2, "xy": r[0] * r[1]}, (x, pt.outer(x, x[:2])))
    actual = assert_agrees([x, a], [out["sq"], out["xy"][:, :1]], [XS[:n] if n else XS[:0], 0.3])
    np.testing.assert_allclose(actual[0], XS[:n] ** 2)
    expected = jax.lax.map(lambda r: r**2, jnp.asarray(XS[:n]))
    np.testing.assert_allclose(actual[0], expected)
    assert actual[1].shape == (n, min(n, 1))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 4])
def test_reduce(n, reverse):
    out = loopax.reduce(lambda c, r: c * 0.5 + r, a, x, reverse=reverse)
    actual = assert_agrees([x, a], out, [XS[:n], 0.3], grad_wrt=[x, a])
    expected = 0.3
    for r in XS[:n][:: -1 if reverse else 1]:
        expected = expected * 0.5 + r
    np.testing.assert_allclose(actual, expected)


def test_filter():
    out = loopax.filter(lambda r: r["v"] > a, {"v": x, "w": pt.outer(x, x)})
    v, w = value([out["v"], out["w"]], [x, a], [XS, 0.6])
    np.testing.assert_array_equal(v, XS[XS > 0.6])
    np.testing.assert_array_equal(w, np.outer(XS, XS)[XS > 0.6])
    v, w = value([out["v"], out["w"]], [x, a], [XS[:0], 0.6])
    assert v.shape == (0,) and w.shape == (0, 0)
    gradient = pytensor.grad((out["v"] ** 2).sum(), x)
    np.testing.assert_array_equal(value(gradient, [x, a], [XS, 0.6]), 2 * XS * (XS > 0.6))
    # In JAX the number of rows must be known while it traces, or it is left open.
    known = loopax.filter(lambda i: pt.eq(i % 2, 0), pt.arange(x.shape[0]))
    np.testing.assert_array_equal(jax.jit(jaxify([x], x[known]))(XS), XS[::2])
    f = jaxify([x, a], out["v"])
    np.testing.assert_array_equal(f(XS, 0.6), XS[XS > 0.6])
    np.testing.assert_array_equal(np.asarray(jax.jit(f)(XS, 0.6)), XS[XS > 0.6])


def test_filter_of_a_list():
    rows = make_list([x, 2 * x, -x])
    out = loopax.filter(lambda r: r.sum() > 0, rows)
    actual = value(out, [x], [XS])
    assert len(actual) == 2
    np.testing.assert_array_equal(actual[1], 2 * XS)


@pytest.mark.parametrize(
    ("pred", "xs", "match"),
    [
        (lambda r: r, x, r"predicate of filter returns is Scalar\(float64"),
        (lambda r: r[0] > 0, loopax.lead(x, [0, 1]), "xs is a lead, but filter returns rows of xs"),
        (lambda r: r > 0, None, "filter has neither xs nor length"),
    ],
)
def test_filter_is_checked(pred, xs, match):
    with pytest.raises(LoopTypeError, match=match):
        loopax.filter(pred, xs)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("lo", "hi"), [(0, 4), (2, 5), (-2, 1), (3, 1)])
def test_fori_loop(lo, hi):
    low, high = pt.iscalar("low"), pt.lscalar("high")
    fixed = fori_loop(lo, hi, lambda i, c: c * a + i, 1.0)
    symbolic = fori_loop(low, high, lambda i, c: c * a + i, 1.0)
    actual = assert_agrees(
        [low, high, a], [fixed, symbolic], [np.int32(lo), hi, 0.5], grad_wrt=[a], static=[0, 1]
    )
    expected = jax.lax.fori_loop(lo, hi, lambda i, c: c * 0.5 + i, 1.0)
    np.testing.assert_allclose(actual, [expected, expected])


def test_the_index_of_a_fori_loop_is_an_int64():
    kinds = []
    fori_loop(np.int32(0), pt.iscalar("hi"), lambda i, c: (kinds.append(i.type), c + i)[1], 0)
    assert {*kinds} == {pt.lscalar().type}
    for bad in (0.5, True, a, np.zeros(2, int)):
        with pytest.raises(LoopTypeError, match="hi of fori_loop must be an integer"):
            fori_loop(0, bad, lambda i, c: c, 0)


@pytest.mark.parametrize("start", [0.5, 3.0, 100.0])
def test_while_loop(start):
    out = while_loop(
        lambda c: c["v"] < 50, lambda c: {"n": c["n"] + 1, "v": c["v"] * 2}, {"n": 0, "v": a}
    )
    actual = assert_agrees([a], [out["n"], out["v"]], [start])
    expected = jax.lax.while_loop(
        lambda c: c["v"] < 50, lambda c: {"n": c["n"] + 1, "v": c["v"] * 2}, {"n": 0, "v": start}
    )
    np.testing.assert_allclose(actual, [expected["n"], expected["v"]])


def test_a_while_loop_may_have_a_bound():
    n = pt.lscalar("n")
    out = while_loop(lambda c: c < 50, lambda c: 2 * c, 1, max_steps=n)
    run = pytensor.function([n], out, mode=FAST_COMPILE)
    assert [run(k).item() for k in (0, 3, 6, 100)] == [1, 8, 64, 64]
    fixed = while_loop(lambda c: c < 50, lambda c: 2 * c, 1, max_steps=3)
    assert value(fixed).item() == 8
    with pytest.raises(LoopTypeError, match="max_steps of while_loop must be .*, got -1"):
        while_loop(lambda c: c < 50, lambda c: 2 * c, 1, max_steps=-1)
    with pytest.raises(LoopTypeError, match="max_steps of while_loop must be"):
        while_loop(lambda c: c < 50, lambda c: 2 * c, 1, max_steps=2.0)


def test_a_while_loop_without_a_bound_says_so():
    out = while_loop(lambda c: c < 50, lambda c: 2 * c, 1)
    n_steps = out.owner.inputs[0]
    assert UNBOUNDED in [getattr(v, "data", None) for v in n_steps.owner.inputs]


def test_the_condition_of_a_while_loop_sees_dummies_only():
    seen = []

    def going(c):
        seen.append({v.name for v in ancestors([c])})
        return c < a

    out = while_loop(going, lambda c: c * 2 + 1, a**2)
    assert seen == [{"carry"}]
    assert_agrees([a], out, [3.0])
    with pytest.raises(LoopTypeError, match="condition of while_loop is Scalar"):
        while_loop(lambda c: c, lambda c: 2 * c, a)


def test_a_condition_that_is_false_is_no_step():
    # The carry has settled on another type than its initial value has.
    out = while_loop(lambda c: c > 5, lambda c: c + a, 0)
    assert value(out, [a], [2.0]).item() == 0 and out.type.dtype == "float64"


# -- zero steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 2])
def test_traces_of_no_steps_have_their_trailing_shapes(n):
    steps, w = pt.lscalar("steps"), pt.dmatrix("w")

    def step(c, _):
        return pt.tanh(c @ w), (c, pt.outer(c, c), c[None, :, None], c.sum())

    final, ys = scan(step, pt.zeros(w.shape[0]), length=steps)
    actual = assert_agrees([steps, w], [final, *ys], [n, np.eye(3)], static=[0])
    assert [f.shape for f in actual] == [(3,), (n, 3), (n, 3, 3), (n, 1, 3, 1), (n,)]


def test_the_message_of_a_shared_trace_of_unknown_type():
    # A row of a type that PyTensor cannot stack is a list, also of no steps.
    rng = random_generator_type("rng")
    _, rngs = scan(lambda r, _: (r, r), rng, length=0)
    assert value(rngs, [rng], [np.random.default_rng(0)]) == []


def test_messages_name_no_internals():
    with pytest.raises(LoopTypeError) as error:
        scan(lambda c, r: c, 0.0, x)
    assert not re.search(r"Emitted|Slot|Traced", str(error.value))


@pytest.mark.parametrize(
    "build",
    [
        lambda x: loopax.filter(lambda r: r == 1, x),
        lambda x: loopax.while_loop(lambda c: c != 3, lambda c: c + 1, 0),
        lambda x: loopax.scan(lambda c, r: (c + r, c, c == 3), 0.0, x),
    ],
)
def test_a_flag_from_comparing_objects_is_refused(build):
    with pytest.raises(LoopTypeError, match=r"Python bool .*pt\.eq"):
        build(pt.dvector("x"))


@pytest.mark.parametrize("mode", [FAST_COMPILE, "CVM"])
def test_a_sequence_that_no_step_reads_has_as_many_rows_all_the_same(mode):
    kept = loopax.filter(lambda r: r[0] > 0, (x[1:], x))
    run = pytensor.function([x], [*kept], mode=mode)
    with pytest.raises(ValueError, match="does not have as many rows"):
        run(XS)
    with pytest.raises(ValueError, match="does not have as many rows"):
        jaxify([x], loopax.map(lambda r: r[0], (x[1:], x)))(XS)


def test_an_integer_constant_three_loops_deep_becomes_a_float():
    def inner(d, r):
        return fori_loop(0, 2, lambda j, e: e + r, d)

    out = loopax.reduce(lambda c, r: fori_loop(0, 2, lambda i, d: inner(d, r), c), 0, x)
    np.testing.assert_allclose(value(out, [x], [XS]), 4 * XS.sum())


def test_rows_of_unequal_shapes_cannot_be_stacked():
    n = pt.lscalar("n")
    rows = loopax.map(lambda i: pt.arange(i), pt.arange(n))
    with pytest.raises(LoopTypeError, match="Pad them to one length"):
        pytensor.function([n], rows, mode=FAST_COMPILE)(3)


@pytest.mark.usefixtures("as_users_have_it")
def test_debug_mode():
    out = loopax.scan(lambda c, r: (c + r, c), 0.0, x)
    run = pytensor.function([x], list(out), mode="DebugMode")
    np.testing.assert_allclose(run(XS)[0], XS.sum())


def test_a_step_that_stops_needs_no_length():
    final, ys, stopped = scan(lambda c, _: (2 * c, c, c > 30), a)
    actual = jaxify([a], [final, stopped, ys[-1]])(3.0)
    assert [float(v) for v in actual] == [96.0, 1.0, 48.0]
    np.testing.assert_allclose(jaxify([a], ys, backend=NATIVE)(3.0), 3.0 * 2.0 ** np.arange(5))
    with pytest.raises(DynamicShapeError, match="has no bound on its steps, and its trace"):
        jaxify([a], ys)(3.0)
    for step, options in (
        (lambda c, _: (c, c), {}),
        (lambda c, _: (c, c, c > 1), {"reverse": True}),
    ):
        with pytest.raises(LoopTypeError, match="neither xs nor length"):
            scan(step, a, **options)
