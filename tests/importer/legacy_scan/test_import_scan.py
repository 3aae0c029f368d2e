"""`pytensor.scan`'s loops: every kind of sequence, state and output; and what becomes of them."""

from functools import partial

import chex
import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from loopax.ir import evaluate
from loopax.ir.windows import WIDEST_REGISTERS
from tests.support.compare import FAST_RUN, assert_agrees, imported, loops, primitives
from tests.support.marking import slow_where

scan = partial(pytensor.scan, return_updates=False)

X, Y = pt.dvector("x"), pt.dvector("y")
A = pt.dscalar("a")
M = pt.dmatrix("m")
N = pt.lscalar("n")
XS = np.array([0.3, -0.7, 1.1, 0.2, -0.4])
YS = np.array([0.5, 0.1, -0.9, 0.8, 0.6])
MS = np.array([[0.1, -0.2, 0.3], [0.4, 0.5, -0.6], [0.7, -0.8, 0.9], [-0.3, 0.2, 0.1]])


def only_loop(inputs, outputs):
    """The one `Scan` of a program's IR, bound."""
    (node,) = loops(imported(inputs, outputs).graph)
    return node


def is_one_scan(inputs, outputs, values):
    """Whether JAX runs a program as one `lax.scan`, and nothing in it as a `while`."""
    counts = primitives(jax.make_jaxpr(jaxify(inputs, outputs))(*values))
    return counts["scan"] == 1 and counts["while"] == 0


# -- sequences -------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("taps", [[0], [-1], [1], [-1, 0], [0, 1], [-2, 1], [-3, -1, 2]])
def test_sequence_taps(taps):
    out = scan(
        lambda *xs: pt.tanh(sum((k + 1) * x for k, x in enumerate(xs))),
        sequences=[{"input": X, "taps": taps}],
    )
    assert_agrees([X], out, [XS], grad_wrt=[X])
    counts = primitives(jax.make_jaxpr(jaxify([X], out))(XS))
    assert counts["scan"] == counts["while"] == 0  # nothing is carried: an operation on all rows


def test_sequences_of_different_lengths_give_the_shortest():
    out = scan(lambda x, y, s: s * x + y, sequences=[X, Y], outputs_info=[pt.ones(())])
    assert_agrees([X, Y], out, [XS, YS[:3]], grad_wrt=[X, Y])


def test_sequence_longer_than_n_steps():
    out = scan(lambda x, s: s * x, sequences=[X], outputs_info=[pt.ones(())], n_steps=3)
    assert_agrees([X], out, [XS], grad_wrt=[X], vmap=[0])
    assert jaxify([X], out)(XS).shape == (3,)


def test_rows_of_a_matrix():
    out = scan(lambda row, s: s + row**2, sequences=[M], outputs_info=[pt.zeros_like(M[0])])
    assert_agrees([M], out, [MS], grad_wrt=[M], vmap=[0])


def test_go_backwards_with_taps():
    out = scan(
        lambda x0, x1, s: 0.5 * s + x0 * x1,
        sequences=[{"input": X, "taps": [0, 1]}],
        outputs_info=[pt.zeros(())],
        go_backwards=True,
    )
    assert_agrees([X], out, [XS], grad_wrt=[X])


def test_index_as_a_sequence():
    out = scan(
        lambda i, s, x: s + i * x[i],
        sequences=[pt.arange(X.shape[0])],
        outputs_info=[pt.zeros(())],
        non_sequences=[X],
    )
    assert_agrees([X], out, [XS], grad_wrt=[X], vmap=[0])


# -- states ----------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "taps",
    slow_where(lambda taps: min(taps) < -2, [[-1], [-1, -2], [-2], [-1, -3], [-2, -5], [-1, -12]]),
)
def test_state_taps(taps):
    size, rank = -min(taps), len(taps) - 1
    init = pt.tensor("init", dtype="float64", shape=(None,) * (1 + rank))
    out = scan(
        lambda x, *args: pt.tanh(x + args[-1] * sum((k + 1) * s for k, s in enumerate(args[:-1]))),
        sequences=[X],
        outputs_info=[{"initial": init if size > 1 else init[0], "taps": taps}],
        non_sequences=[A],
    )
    rng = np.random.default_rng(3)
    values = [XS, rng.normal(size=(size, 2)[: 1 + rank]), 0.4]
    assert_agrees([X, init, A], out, values, grad_wrt=[X, init, A], vmap=[0, 1, 2])
    assert is_one_scan([X, init, A], out, values)


@pytest.mark.parametrize(
    ("size", "n_states"), [(WIDEST_REGISTERS, WIDEST_REGISTERS), (WIDEST_REGISTERS + 1, 1)]
)
def test_a_wide_window_is_a_ring(size, n_states):
    out = scan(
        lambda s1, sk: s1 + sk,
        outputs_info=[{"initial": X[:size], "taps": [-1, -size]}],
        n_steps=20,
    )
    node = only_loop([X], out)
    assert node.op.n_states == n_states
    assert_agrees([X], out, [np.linspace(0.1, 0.5, 12)])


@pytest.mark.slow
def test_several_states_and_outputs_in_any_order():
    def step(x, s1, s2, t, v, a):
        new_s = 0.5 * s1 - s2 * x
        return x * t, new_s, pt.tanh(t + a), new_s + v, s1 * v

    out = scan(
        step,
        sequences=[X],
        outputs_info=[
            None,
            {"initial": Y[:2], "taps": [-1, -2]},
            A,
            {"initial": M[0], "taps": [-1]},
            None,
        ],
        non_sequences=[A],
    )
    assert_agrees([X, Y, A, M], out, [XS, YS, 0.3, MS], grad_wrt=[X, Y, A, M], vmap=[0, 2])
    node = only_loop([X, Y, A, M], out)
    # out: t[-1] and so on are not read, so every output needs its trace, and nothing else
    assert (node.op.n_states, node.op.n_ys, node.op.n_seqs) == (4, 5, 1)


def test_only_mapped_outputs():
    out = scan(lambda x, y: [x * y, x + y], sequences=[X, Y])
    assert_agrees([X, Y], out, [XS, YS], grad_wrt=[X, Y], vmap=[0, 1])
    assert only_loop([X, Y], out).op.n_states == 0


def test_untraced_state_is_a_state():
    out = scan(lambda x, s: (s + x, s * x), sequences=[X], outputs_info=[pt.zeros(()), None])
    # The untraced kind is what `shared` updates and generators become; here made by hand.
    assert_agrees([X], out, [XS])


@pytest.mark.filterwarnings("ignore:Scan return signature:DeprecationWarning")
def test_updates_of_a_shared_variable_are_untraced_states():
    counter = pytensor.shared(np.float64(2.0), name="counter")
    trace, updates = pytensor.scan(
        lambda x: (x * counter, {counter: counter + x}), sequences=[X], return_updates=True
    )
    outputs = [trace, updates[counter]]
    f = jaxify([X], outputs)
    expected = pytensor.function([X], outputs, mode="FAST_COMPILE")(XS)
    chex.assert_trees_all_close(f(XS), expected, rtol=1e-12)
    (node,) = loops(imported([X], outputs).graph)
    assert (node.op.n_states, node.op.n_ys) == (1, 1)
    assert_agrees([X], outputs, [XS])


def test_integer_and_bool_states():
    out = scan(
        lambda i, k, flag, s: (k * 3 - i, ~flag, s + pt.cast(k, "float64")),
        sequences=[pt.arange(4)],
        outputs_info=[pt.lscalar("k0"), pt.constant(True, dtype="bool"), pt.zeros(())],
    )
    k0 = [v for v in pytensor.graph.traversal.graph_inputs(out) if v.name == "k0"]
    actual = assert_agrees(k0, out, [np.int64(2)])
    assert [x.dtype for x in actual] == ["int64", "bool", "float64"]


def test_float32_stays_float32():
    x = pt.fvector("x")
    out = scan(
        lambda x, s: s * np.float32(0.5) + x, sequences=[x], outputs_info=[pt.zeros((), "float32")]
    )
    actual = assert_agrees([x], out, [XS.astype("float32")], rtol=1e-6, grad_wrt=[x])
    assert actual.dtype == "float32"


@pytest.mark.slow
def test_states_of_rank_two():
    out = scan(
        lambda x, s, w: pt.tanh(s @ w + x),
        sequences=[X],
        outputs_info=[pt.eye(3)],
        non_sequences=[M[:3]],
    )
    assert_agrees([X, M], out, [XS, MS], grad_wrt=[X, M], vmap=[0])


# -- what a body may use ---------------------------------------------------------------------------


def test_a_body_closes_over_outer_variables():
    scale = pt.exp(A)
    out = scan(lambda x, s: s * scale + x * Y.sum(), sequences=[X], outputs_info=[pt.zeros(())])
    assert_agrees([X, Y, A], out, [XS, YS, 0.2], grad_wrt=[X, Y, A], vmap=[2])


def test_a_body_reads_shared_variables():
    w = pytensor.shared(np.array([0.5, -0.5]), name="w")
    out = scan(lambda x, s: pt.tanh(s * w + x), sequences=[X], outputs_info=[pt.zeros((2,))])
    assert_agrees([X], out, [XS], grad_wrt=[X], vmap=[0])
    f = jaxify([X], out)
    before = f(XS)
    w.set_value(np.array([2.0, 3.0]))
    assert not np.allclose(f(XS), before)
    expected = pytensor.function([X], out, mode="FAST_COMPILE")(XS)
    chex.assert_trees_all_close(np.asarray(f(XS)), expected, rtol=1e-12)


def test_one_output_twice_and_an_echoed_input():
    def step(x, s, a):
        new = s + a * x
        return new, new, x, s, a

    out = scan(
        step, sequences=[X], outputs_info=[pt.zeros(()), None, None, None, None], non_sequences=[A]
    )
    assert_agrees([X, A], out, [XS, 0.3], grad_wrt=[X, A], vmap=[0, 1])


def test_constants_as_outputs_and_next_states():
    out = scan(
        lambda x, s: (pt.constant(1.5, dtype="float64"), pt.constant(2.5), s),
        sequences=[X],
        outputs_info=[pt.zeros(()), None, None],
    )
    assert_agrees([X], out, [XS])


@pytest.mark.slow
def test_nested_scans():
    def outer(row, s, a):
        inner = scan(lambda x, t: pt.tanh(t * a + x), sequences=[row], outputs_info=[s])
        return inner[-1], inner.sum()

    out = scan(outer, sequences=[M], outputs_info=[pt.zeros(()), None], non_sequences=[A])
    assert_agrees([M, A], out, [MS, 0.4], grad_wrt=[M, A], vmap=[0, 1])
    first, second = loops(imported([M, A], out).graph)
    assert (first.op.n_ys, second.op.n_ys) == (2, 1)
    counts = primitives(jax.make_jaxpr(jaxify([M, A], out))(MS, 0.4))
    assert counts["scan"] == 2 and counts["while"] == 0


def test_a_loop_over_the_trace_of_a_loop():
    first = scan(lambda x, s: s + x, sequences=[X], outputs_info=[pt.zeros(())])
    second = scan(lambda x, s: s * 0.5 + x**2, sequences=[first], outputs_info=[pt.ones(())])
    assert_agrees([X], [first, second], [XS], grad_wrt=[X], vmap=[0])


# -- n_steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 4])
def test_symbolic_n_steps(n):
    out = scan(lambda s, a: s * a + 1, outputs_info=[A], non_sequences=[A], n_steps=N)
    assert_agrees([A, N], out, [0.7, np.int64(n)], static=[1])


def test_symbolic_n_steps_of_a_final_state_may_be_traced():
    final = scan(lambda s, a: s * a + 1, outputs_info=[A], non_sequences=[A], n_steps=N)[-1]
    f = jax.jit(jaxify([A, N], final))
    for n in (1, 3, 6):
        expected = pytensor.function([A, N], final, mode="FAST_COMPILE")(0.7, n)
        assert float(f(0.7, n)) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("rank", [0, 1])
def test_zero_steps_have_empty_traces_of_the_right_shape(rank):
    init = pt.zeros(()) if rank == 0 else Y
    state, mapped = scan(
        lambda x, s: (s + x, pt.stack([s, s * x])), sequences=[X], outputs_info=[init, None]
    )
    assert assert_agrees([X, Y], state, [XS[:0], YS]).shape == (0, *(5,) * rank)
    # PyTensor's own has 0 along every axis: it does not know the shape of what it did not compute.
    assert jaxify([X, Y], mapped)(XS[:0], YS).shape == (0, 2, *(5,) * rank)
    (actual,) = evaluate(imported([X, Y], mapped).graph, XS[:0], YS)
    assert (actual.shape, actual.dtype) == ((0, 2, *(5,) * rank), "float64")


def test_zero_steps_with_two_taps():
    out = scan(
        lambda s1, s2, a: s1 + a * s2,
        outputs_info=[{"initial": X, "taps": [-1, -2]}],
        non_sequences=[A],
        n_steps=N,
    )
    actual = assert_agrees([X, A, N], out, [XS[:2], 0.5, np.int64(0)], static=[2])
    assert actual.shape == (0,)


def test_one_step():
    out = scan(lambda x, s: s + x, sequences=[X], outputs_info=[A])
    actual = assert_agrees([X, A], out, [XS[:1], 0.5], grad_wrt=[X, A], vmap=[0, 1])
    assert actual.shape == (1,)


# -- what is read of a trace -----------------------------------------------------------------------


def cumulative():
    return scan(lambda x, s: s * 0.5 + x, sequences=[X], outputs_info=[A])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("read", "n_ys"),
    [
        (lambda out: out[-1], 0),
        (lambda out: out, 1),
        (lambda out: out[1:], 1),
        (lambda out: out[-2], 1),
        (lambda out: out[0], 1),
        (lambda out: out[::-1], 1),
        (lambda out: out[-3:], 1),
        (lambda out: (out[-1], out.sum()), 1),
        (lambda out: out.shape[0], None),
    ],
    ids=["last", "all", "tail", "last_but_one", "first", "reversed", "slice", "both", "length"],
)
def test_a_loop_makes_only_the_trace_that_is_read(read, n_ys):
    out = read(cumulative())
    outputs = list(out) if isinstance(out, tuple) else out
    assert_agrees([X, A], outputs, [XS, 0.3], grad_wrt=[] if n_ys is None else [X, A], vmap=[0])
    if n_ys is not None:
        assert only_loop([X, A], outputs).op.n_ys == n_ys


@pytest.mark.slow
def test_the_last_two_rows_of_two_taps_need_no_trace():
    out = scan(
        lambda x, s1, s2: s1 - 0.5 * s2 + x,
        sequences=[X],
        outputs_info=[{"initial": Y[:2], "taps": [-1, -2]}],
    )
    outputs = [out[-1], out[-2]]
    assert_agrees([X, Y], outputs, [XS, YS], grad_wrt=[X, Y])
    assert only_loop([X, Y], outputs).op.n_ys == 0


def test_the_body_is_traced_once():
    calls = []

    class Counted(pytensor.graph.op.Op):
        itypes = [pt.dscalar]
        otypes = [pt.dscalar]

        def perform(self, node, inputs, outputs):
            outputs[0][0] = np.asarray(inputs[0] + 1)

    from pytensor.link.jax.dispatch import jax_funcify

    @jax_funcify.register(Counted)
    def convert(op, **kwargs):
        def counted(x):
            calls.append(1)
            return x + 1

        return counted

    out = scan(lambda x, s: Counted()(s) * x, sequences=[X], outputs_info=[pt.zeros(())])
    f = jaxify([X], out)
    f(XS)
    f(XS + 1)
    assert len(calls) == 1


# -- gradients, cut ---------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("steps", [1, 2, 3, -1])
@pytest.mark.parametrize("cost", ["last", "sum"])
def test_truncate_gradient(steps, cost):
    out = scan(
        lambda x, s, a: pt.tanh(s * a + x),
        sequences=[X],
        outputs_info=[pt.zeros(())],
        non_sequences=[A],
        truncate_gradient=steps,
    )
    cost = out[-1] if cost == "last" else out.sum()
    gradients = pytensor.grad(cost, [X, A])
    assert_agrees([X, A], gradients, [XS, 0.6])


def test_truncated_gradient_of_two_taps():
    out = scan(
        lambda x, s1, s2, a: pt.tanh(s1 * a + s2 + x),
        sequences=[X],
        outputs_info=[{"initial": Y[:2], "taps": [-1, -2]}],
        non_sequences=[A],
        truncate_gradient=2,
    )
    gradients = pytensor.grad(out[-1], [X, A])
    assert_agrees([X, Y, A], gradients, [XS, YS, 0.6])


# -- buffers that a mode's rewrites have truncated ---------------------------------------------------


@pytest.mark.sampled(8)
@pytest.mark.parametrize("taps", [[-1], [-1, -2], [-1, -3], [-1, -12]], ids=str)
@pytest.mark.parametrize(
    "read",
    [
        lambda out: out[-1],
        lambda out: out[-2:],
        lambda out: out[2:],
        lambda out: [out[-1], out[-3]],
        lambda out: out.sum(),
    ],
    ids=["last", "last_two", "from_two", "two_rows", "sum"],
)
def test_truncated_buffers(taps, read):
    size = -min(taps)
    init = X[:size] if size > 1 else X[0]
    out = scan(
        lambda *s: pt.tanh(sum((k + 1) * x for k, x in enumerate(s)) + 0.1),
        outputs_info=[{"initial": init, "taps": taps}],
        n_steps=N,
    )
    values = [np.linspace(-0.3, 0.4, 12), 4]
    compiled = pytensor.function([X, N], read(out), mode=FAST_RUN)
    expected = compiled(*values)
    chex.assert_trees_all_close(jaxify(compiled)(*values), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 5])
def test_truncated_buffers_of_several_outputs(n):
    def step(x, s, t1, t2):
        return s + x, t1 * t2 + x, s * t1

    outs = scan(step, sequences=[X], outputs_info=[A, {"initial": Y[:2], "taps": [-1, -2]}, None])
    compiled = pytensor.function([X, Y, A], [o[-1] for o in outs], mode=FAST_RUN)
    values = [XS[:n], YS, 0.4]
    chex.assert_trees_all_close(
        [np.asarray(x) for x in jaxify(compiled)(*values)], compiled(*values), rtol=1e-12
    )


def test_a_slice_of_the_shape_of_a_trace():
    """It is no length of the trace, and no row of it."""
    x = pt.dmatrix("x")
    trace = pytensor.scan(lambda s: 2 * s, outputs_info=[x], n_steps=3, return_updates=False)
    f = jaxify([x], [trace.shape[1:], trace.shape[0], trace[-1]])
    shape, length, last = f(np.ones((2, 1)))
    assert tuple(shape) == (2, 1) and length == 3
    np.testing.assert_array_equal(last, np.full((2, 1), 8.0))
