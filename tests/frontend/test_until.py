"""`pytensor.scan` with `until`: a `Scan` with ``stop``, in every mode's form of it.

Without JAX, but at the end: `evaluate` of the imported graph against PyTensor. What a mode has made of
a loop, its buffers cut to the rows that are read, is read back with `read_function`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from loopax import jaxify
from loopax.base.upstream.pytensor import IfElse
from loopax.frontend.programs.read import read_function
from loopax.importer.import_graph import import_graph
from loopax.ir import check, evaluate
from loopax.lowering import lower
from tests.support.compare import FAST_COMPILE, assert_trees_close, imported, loops, primitives
from tests.support.random_loops import RANDOM

scan = partial(pytensor.scan, return_updates=False)
# The rewrites of FAST_RUN, which shorten buffers; run in Python: compiling C takes longer than all else.
FAST_RUN = Mode(linker="vm", optimizer="fast_run").excluding("local_add_of_sparse_write")

X, Y = pt.dvector("x"), pt.dvector("y")
A, LIMIT = pt.dscalar("a"), pt.dscalar("limit")
M = pt.dmatrix("m")
N = pt.lscalar("n")
XS = np.array([0.3, 1.2, 0.7, 2.0, 0.1, 1.5])
MS = np.linspace(-0.5, 0.9, 18).reshape(6, 3)
FIRST, MIDDLE, NEVER = (
    -1e3,
    1.6,
    1e3,
)  # limits that XS' sums reach after 1 step, some steps, not at all


@pytest.fixture(autouse=True)
def python_all_the_way_down():
    """Without it the step of a loop is compiled to C, or by Numba."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        yield


def filtered(inputs, values):
    return [v.type.filter(x, allow_downcast=True) for v, x in zip(inputs, values, strict=True)]


def meaning(program, given):
    """The values of a program in the IR, which are the same before and after the passes."""
    actual = evaluate(program.graph, *given)
    lower(program.graph)
    check(program.graph)
    assert_trees_close(evaluate(program.graph, *given), actual)
    return actual


def assert_means(inputs, outputs, *points, modes=(FAST_COMPILE, FAST_RUN)):
    """Assert that the IR's meaning is PyTensor's at all ``points``: as written, and as modes leave it."""
    expected = []
    for k, mode in enumerate(modes):
        run = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
        # Copies: the memory of a scalar is written to again at the next call.
        values = [[np.array(x) for x in run(*point)] for point in points]
        if not k:
            expected = values
        for actual, wanted in zip(values, expected, strict=True):
            assert_trees_close(actual, wanted)
        compiled = read_function(run)
        import_graph(compiled.graph)
        check(compiled.graph)
        for point, wanted in zip(points, expected, strict=True):
            assert_trees_close(evaluate(compiled.graph, *filtered(inputs, point)), wanted)
    for point, wanted in zip(points, expected, strict=True):
        assert_trees_close(meaning(imported(inputs, outputs), filtered(inputs, point)), wanted)
    return expected


def only_loop(inputs, outputs):
    (node,) = loops(imported(inputs, outputs).graph)
    assert node.op.stops
    return node.op


def running_sum(**options):
    return scan(
        lambda x, s, limit: (s + x, until(s + x > limit)),
        sequences=[X],
        outputs_info=[A],
        non_sequences=[LIMIT],
        **options,
    )


# -- what is read -------------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("read", "n_ys"),
    [
        (lambda t: [t[-1]], 0),
        (lambda t: [t.shape[0]], 0),
        (lambda t: [t[-1], t.shape[0], pt.zeros_like(t)], 0),
        (lambda t: [t], 1),
        (lambda t: [t[1:], t[-1]], 1),
        (lambda t: [t[::-1], t.sum()], 1),
        (lambda t: [t[:2], t[-2:], t[-3:]], 1),
        (lambda t: [t[:-1]], 1),
    ],
    ids=["last", "length", "no_rows", "all", "tail", "reversed", "slices", "all_but_last"],
)
def test_what_is_read_of_a_trace(read, n_ys):
    outputs = read(running_sum())
    # At n_steps = 6: the slices of a buffer that FAST_RUN has cut would be wrong in PyTensor itself.
    points = [[XS, 0.1, limit] for limit in (MIDDLE, NEVER)]
    assert_means([X, A, LIMIT], outputs, *points)
    assert only_loop([X, A, LIMIT], outputs).n_ys == n_ys


def test_stopping_in_the_first_step_in_the_middle_and_never():
    t = running_sum()
    points = [[XS, 0.1, limit] for limit in (FIRST, MIDDLE, NEVER)]
    actual = assert_means([X, A, LIMIT], [t, t[-1]], *points)
    assert [len(t) for t, _ in actual] == [1, 3, 6]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("taps", [[-1, -2], [-2], [-1, -3], [-2, -12]], ids=str)
def test_taps(taps):
    size = -min(taps)
    init = pt.concatenate([X, 0.5 * X])[:size]
    t = scan(
        lambda *args: (
            (s := pt.tanh(sum((k + 1) * s for k, s in enumerate(args[:-1]))) + 0.3),
            until(s > args[-1]),
        ),
        outputs_info=[{"initial": init, "taps": taps}],
        non_sequences=[LIMIT],
        n_steps=N,
    )
    points = [[XS, limit, n] for limit in (0.9, NEVER) for n in (4, 20)]
    last = [t[-k] for k in range(1, min(size, 3) + 1)]
    assert_means([X, LIMIT, N], last, *points)
    assert_means([X, LIMIT, N], [t, t[-1]], *points)
    assert only_loop([X, LIMIT, N], last).n_ys == 0


def test_several_sequence_taps_states_mapped_outputs_and_a_generous_sequence():
    def step(x0, x1, row, s1, s2, v, a):
        new = 0.5 * s1 - s2 * x0 + x1
        return [new, v + row * a, new * row, x0], until(new > 1.0)

    s, v, mapped, other = scan(
        step,
        sequences=[{"input": X, "taps": [0, 1]}, M],
        outputs_info=[{"initial": Y[:2], "taps": [-1, -2]}, pt.zeros((3,)), None, None],
        non_sequences=[A],
    )
    inputs, point = [X, Y, M, A], [XS, XS[::-1], MS, 0.4]
    actual = assert_means(inputs, [s, v, mapped, other], point)
    assert actual[0][2].shape[0] < 5 and actual[0][2].shape[1] == 3
    finals = [s[-1], s[-2], v[-1]]
    assert_means(inputs, finals, point)
    assert only_loop(inputs, finals).n_ys == 0
    assert_means(inputs, [mapped[-1], other.sum(), v[-1], mapped.shape[0]], point)


def test_mapped_outputs_and_no_state():
    t = scan(lambda x, a: (x * a, until(x > 1.9)), sequences=[X], non_sequences=[A])
    (actual,) = assert_means([X, A], [t, t[-1], t.shape[0]], [XS, 0.5])
    assert actual[0].shape == (4,)
    op = only_loop([X, A], t)
    assert (op.n_states, op.n_ys, op.n_seqs) == (0, 1, 1)
    assert only_loop([X, A], t.shape[0]).n_ys == 0


@pytest.mark.filterwarnings("ignore:Scan return signature:DeprecationWarning")
def test_untraced_states_and_generators():
    counter = pytensor.shared(np.float64(2.0), name="counter")
    t, updates = pytensor.scan(
        lambda x: (x * counter, {counter: counter + x}, until(counter > 4.0)),
        sequences=[X],
        return_updates=True,
    )
    outputs = [t, updates[counter]]
    expected = pytensor.function([X], outputs, mode=FAST_COMPILE)(XS)
    program = imported([X], outputs)
    assert_trees_close(evaluate(program.graph, XS, *[s.value for s in program.shared]), expected)
    assert len(expected[0]) == 4

    rng = pytensor.shared(np.random.default_rng(7))
    draws, after = pytensor.scan(
        lambda: (
            (d := pt.random.uniform(rng=rng, return_next_rng=True))[1],
            {rng: d[0]},
            until(d[1] > 0.8),
        ),
        n_steps=50,
        return_updates=True,
    )
    expected = pytensor.function([], [draws, draws[-1]], mode=FAST_COMPILE)()
    program = imported([], [draws, draws[-1]])
    actual = evaluate(program.graph, *[s.value for s in program.shared])
    assert_trees_close(actual, expected)
    assert actual[1] > 0.8 and (actual[0][:-1] <= 0.8).all()
    assert next(iter(after)) is rng


@pytest.mark.parametrize("dtype", ["bool", "int8", "float64"])
def test_any_type_of_condition(dtype):
    def step(x, s):
        holds = pt.cast(s + x > MIDDLE, dtype)
        return s + x, until(holds if dtype == "bool" else holds * 2)

    assert_means([X], [scan(step, X, outputs_info=[pt.zeros(())])], [XS])


def test_conditions_that_read_a_constant_the_row_before_and_nothing():
    for condition in (
        lambda x, s: pt.constant(True),
        lambda x, s: pt.constant(False),
        lambda x, s: s > 1.0,
        lambda x, s: A > x,
    ):
        t = scan(lambda x, s, c=condition: (s + x, until(c(x, s))), X, outputs_info=[pt.zeros(())])
        assert_means([X, A], [t, t[-1]], [XS, 0.5], modes=(FAST_COMPILE,))


def test_no_steps():
    t = scan(
        lambda s, limit: (s * 2, until(s > limit)),
        outputs_info=[A],
        non_sequences=[LIMIT],
        n_steps=N,
    )
    mapped = scan(lambda x: (pt.stack([x, x]), until(x > 1)), X)
    assert_means([A, LIMIT, N], [t, t.shape[0]], [0.5, 3.0, 0], [0.5, 3.0, 1], [0.5, 3.0, 9])
    (actual,) = evaluate(imported([X], mapped).graph, XS[:0])
    assert actual.shape == (0, 2)


# -- loops in loops, graphs in graphs -----------------------------------------------------------------


def test_nested_in_a_plain_loop():
    def row_step(row, total):
        t = scan(lambda x, s: (s + x, until(s + x > 0.5)), row, outputs_info=[pt.zeros(())])
        return total + t[-1], t[-1], t.sum(), t.shape[0]

    outs = scan(row_step, M, outputs_info=[pt.zeros(()), None, None, None])
    assert_means([M], outs, [MS])
    outer, inner = loops(imported([M], outs).graph)
    assert not outer.op.stops and inner.op.stops


def test_a_plain_loop_and_a_stopping_one_nested_in_one_that_stops():
    def row_step(row, total, a):
        plain = scan(lambda x, s: s * a + x, row, outputs_info=[total])
        stopping = scan(lambda x, s: (s + x, until(s + x > 0.9)), row, outputs_info=[plain[-1]])
        return (stopping[-1], plain.sum()), until(stopping[-1] > 1.2)

    outs = scan(row_step, M, outputs_info=[A, None], non_sequences=[A])
    (actual,) = assert_means([M, A], outs, [MS, 0.4])
    assert 1 < len(actual[0]) < 6
    assert [n.op.stops for n in loops(imported([M, A], outs).graph)].count(True) == 2


def test_inside_other_graphs():
    inside = OpFromGraph([X, A, LIMIT], [running_sum()[-1], running_sum().sum()])
    assert_means([X, A, LIMIT], list(inside(X, A, LIMIT)), [XS, 0.1, MIDDLE])
    chosen = IfElse(1)(A > 0, running_sum().sum(), 2 * A)
    assert_means([X, A, LIMIT], [chosen], [XS, 0.1, MIDDLE], [XS, -0.1, MIDDLE])


def test_a_loop_over_the_trace_of_a_loop_that_stops():
    first = running_sum()
    second = scan(lambda x, s: s * 0.5 + x**2, first, outputs_info=[pt.ones(())])
    assert_means([X, A, LIMIT], [second, second[-1]], [XS, 0.1, MIDDLE])
    first, second = loops(imported([X, A, LIMIT], second[-1]).graph)
    # It runs over all rows of the trace: nothing is sliced.
    assert second.inputs[1] is first.outputs[1]
    assert second.inputs[0] is first.outputs[2]


# -- gradients ----------------------------------------------------------------------------------------


def newton():
    def step(x, a):
        new = 0.5 * (x + a / x)
        return new, until(pt.abs(new - x) < 1e-10)

    return scan(step, outputs_info=[A], non_sequences=[A], n_steps=50)[-1]


@pytest.mark.slow
def test_gradients_of_a_root_to_third_order():
    root = newton()
    outputs = [root]
    for _ in range(3):
        outputs.append(pytensor.grad(outputs[-1], A))
    assert_means([A], outputs[:3], [2.0])
    actual = meaning(imported([A], outputs), [np.asarray(2.0)])
    np.testing.assert_allclose(actual, [2**0.5, 2**-0.5 / 2, -(2**-1.5) / 4, 3 * 2**-2.5 / 8], 1e-9)


def test_a_gradient_takes_the_steps_that_were_taken():
    graph = imported([A], pytensor.grad(newton(), A)).graph
    lower(graph)
    forward, backward = loops(graph)
    assert backward.inputs[0] is forward.outputs[-2]
    assert (forward.op.n_ys, backward.op.n_ys) == (1, 0)
    # Of the forward trace it sees the states before each step, in reverse, and no more than that.
    assert backward.op.options.reverse
    assert backward.inputs[1] is forward.outputs[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", [MIDDLE, 2.5])
@pytest.mark.parametrize(
    "cost",
    [lambda t: t[-1] ** 2, lambda t: (t**2).sum(), lambda t: t[-1] * t[0] + t[1:].prod()],
    ids=["last", "sum", "both"],
)
def test_gradients(cost, limit):
    t = scan(
        lambda x, s, a, limit: (pt.sin(s) * a + x**2, until(s + x > limit)),
        sequences=[X],
        outputs_info=[A],
        non_sequences=[A, LIMIT],
    )
    gradients = pytensor.grad(cost(t), [X, A])
    assert_means([X, A, LIMIT], gradients, [XS, 0.3, limit])


def test_gradient_of_two_initial_rows_is_read_of_the_last_states():
    t = scan(
        lambda s1, s2, a: ((s := pt.sin(s1) * a + s2), until(s > 1.0)),
        outputs_info=[{"initial": pt.stack([A, A**2]), "taps": [-1, -2]}],
        non_sequences=[A],
        n_steps=9,
    )
    gradient = pytensor.grad(t[-1] + (t**2).sum(), A)
    assert_means([A], [gradient], [0.7])
    graph = imported([A], gradient).graph
    lower(graph)
    forward, backward = loops(graph)
    assert backward.op.n_ys == 0 and backward.inputs[0] is forward.outputs[-2]


@pytest.mark.slow
def test_second_derivatives_of_a_vector_loop():
    # Without sequences: PyTensor 3.0 cannot differentiate the gradient of a loop that has some.
    t = scan(
        lambda s, a: (pt.tanh(s * a) + 0.2 * s[::-1], until(s.sum() > 1.0)),
        outputs_info=[Y],
        non_sequences=[A],
        n_steps=9,
    )
    cost = (t[-1] ** 2).sum() + t[:, 0].sum()
    gradients = pytensor.grad(cost, [Y, A])
    second = pytensor.grad(gradients[0].sum() * gradients[1], [Y, A])
    points = [[np.array(start), 0.9] for start in ([0.1, 0.2], [0.9, 0.8])]
    assert_means([Y, A], second, *points, modes=(FAST_COMPILE,))
    assert_means([Y, A], gradients, *points)


def test_gradients_of_two_taps_and_mapped_outputs():
    s, m = scan(
        lambda x, s1, s2, a: ([pt.sin(s1) * a + s2 * x, s1 * x], until(s1 + x > 2.0)),
        sequences=[X],
        outputs_info=[{"initial": Y[:2], "taps": [-1, -2]}, None],
        non_sequences=[A],
    )
    gradients = pytensor.grad((s**2).sum() * m.sum() + s[-1] + m[-1], [X, Y, A])
    assert_means([X, Y, A], gradients, [XS, XS[::-1] / 2, 0.3])
    mapped = scan(lambda x, a: (pt.sin(x * a), until(x > 1.0)), X, non_sequences=[A])
    assert_means([X, A], pytensor.grad((mapped**2).sum(), [X, A]), [XS, 0.3])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("steps", [1, 2, -1])
def test_truncate_gradient(steps):
    t = scan(
        lambda s, a: (pt.tanh(s * a) + 0.2, until(s > 0.5)),
        outputs_info=[A],
        non_sequences=[A],
        n_steps=9,
        truncate_gradient=steps,
    )
    assert_means([A], [pytensor.grad(t[-1], A)], [0.9])
    assert only_loop([A], t[-1]).options.truncate_gradient == steps


# -- in JAX, where no trace is needed -----------------------------------------------------------------


def test_finals_run_as_a_while_loop():
    last = running_sum()[-1]
    f = jaxify([X, A, LIMIT], last)
    counts = primitives(jax.make_jaxpr(f)(XS, 0.1, MIDDLE))
    assert counts["while"] == 1 and counts["scan"] == 0
    limits = [FIRST, MIDDLE, 2.5, NEVER]
    run = pytensor.function([X, A, LIMIT], last, mode=FAST_COMPILE)
    expected = [run(XS, 0.1, limit) for limit in limits]
    np.testing.assert_allclose([jax.jit(f)(XS, 0.1, limit) for limit in limits], expected, 1e-12)
    batched = jax.vmap(f, in_axes=(None, None, 0))(XS, 0.1, jnp.array(limits))
    np.testing.assert_allclose(batched, expected, 1e-12)


def test_a_wide_window_of_a_loop_that_stops():
    t = scan(
        lambda s1, s12: ((s := s1 + 0.1 * s12), until(s > 2.0)),
        outputs_info=[{"initial": pt.concatenate([X, X]), "taps": [-1, -12]}],
        n_steps=30,
    )
    outputs = [t[-1], t[-2], t[-12]]
    (expected,) = assert_means([X], outputs, [XS])
    assert only_loop([X], outputs).n_ys == 0
    assert_trees_close(jax.jit(jaxify([X], outputs))(XS), expected)


def test_rows_of_a_batch_stop_after_different_numbers_of_steps():
    t = scan(
        lambda s, r: (0.5 * (s + r / s), until(pt.abs(s - 0.5 * (s + r / s)) < 1e-9)),
        outputs_info=[A],
        non_sequences=[A],
        n_steps=40,
    )
    count = scan(lambda s: (2 * s, until(s > 3)), outputs_info=[A], n_steps=20)
    several = vectorize_graph([t[-1], t[-1] + count[-1]], {A: X})
    inputs = np.array([0.5, 2.0, 9.0])
    expected = [np.sqrt(inputs), np.sqrt(inputs) + [8, 8, 18]]
    assert_trees_close(meaning(imported([X], several), [inputs]), expected)
    assert_trees_close(jax.jit(jaxify([X], several))(inputs), expected)
    # Where all of a trace is wanted the rows of the batch do not stack.
    whole = vectorize_graph(count, {A: X})
    np.testing.assert_array_equal(
        meaning(imported([X], whole), [np.array([1.0, 1.5])]), [[[2, 4, 8], [3, 6, 12]]]
    )
    np.testing.assert_array_equal(
        meaning(imported([X], whole[1:, -1]), [np.array([1.0, 1.5])]), [[12]]
    )
    with pytest.raises(ValueError):
        meaning(imported([X], whole), [inputs])


# -- random loops -------------------------------------------------------------------------------------


@st.composite
def recipes(draw):
    """Taps of a state and of a sequence, a state beside it, a mapped output, a condition, a bound."""
    return {
        "taps": draw(st.lists(st.integers(-4, -1), min_size=1, max_size=3, unique=True)),
        "ahead": draw(st.lists(st.integers(-1, 1), min_size=1, max_size=2, unique=True)),
        "second": draw(st.booleans()),
        "mapped": draw(st.booleans()),
        "limit": draw(st.sampled_from([FIRST, 0.4, 0.8, 1.1, NEVER])),
        "watched": draw(st.sampled_from(["state", "row", "mapped"])),
        "n_steps": draw(st.one_of(st.none(), st.integers(1, 4))),
        "reads": draw(
            st.lists(st.sampled_from(sorted(READS)), min_size=1, max_size=3, unique=True)
        ),
    }


READS = {
    "all": lambda t: t,
    "last": lambda t: t[-1],
    "sum": lambda t: t.sum(),
    "reversed": lambda t: t[::-1],
    "length": lambda t: t.shape[0],
    "first": lambda t: t[0],
}


def random_loop(recipe):
    """Its outputs, and a scalar to differentiate."""
    size, n = -min(recipe["taps"]), len(recipe["taps"])
    ahead = recipe["ahead"]

    def step(*args):
        rows, states, rest = (
            args[: len(ahead)],
            args[len(ahead) : len(ahead) + n],
            args[len(ahead) + n :],
        )
        rest, a = rest[:-1], rest[-1]
        new = pt.tanh(sum((k + 1) * s for k, s in enumerate(states)) * a + sum(rows))
        other = [rest[0] * 0.5 + new] if recipe["second"] else []
        y = new * rows[0] + (other[0] if other else 0)
        watched = {"state": new, "row": rows[-1], "mapped": y}[recipe["watched"]]
        return [new, *other, *([y] if recipe["mapped"] else [])], until(watched > recipe["limit"])

    traces = scan(
        step,
        sequences=[{"input": X, "taps": ahead}],
        outputs_info=[{"initial": Y[:size] if size > 1 else Y[0], "taps": recipe["taps"]}]
        + [A] * recipe["second"]
        + [None] * recipe["mapped"],
        non_sequences=[A],
        n_steps=recipe["n_steps"],
    )
    traces = traces if isinstance(traces, list) else [traces]
    outputs = [READS[name](t) for t in traces for name in recipe["reads"]]
    return outputs, sum((t**2).sum() + t[-1] for t in traces)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_random_loops(number):
    def agree(recipe):
        print(recipe)
        outputs, cost = random_loop(recipe)
        point = [XS - 0.6, XS, 0.4]
        assert_means([X, Y, A], outputs, point)
        gradients = pytensor.grad(cost, [Y, A], disconnected_inputs="ignore")
        assert_means([X, Y, A], gradients, point)

    seed(number)(RANDOM(given(recipes())(agree)))()
