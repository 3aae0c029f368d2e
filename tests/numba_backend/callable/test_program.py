"""A graph as one native function: what it computes, what it is made of, what it refuses.

Numba compiles for seconds: the programs are small, and each is compiled once.
"""

import re
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings

import loopax
from benchmarks.programs import ar2_graph, garch_graph, kalman_graph
from loopax.base.errors import UnsupportedOpError
from loopax.base.upstream.numba import numba_config
from loopax.ir import BodyArgs, BodyOuts, Cond, FitRows, KeepRows, Scan, ScanArgs, ScanOptions
from loopax.numba_backend.callable.program import compile_program
from tests.numba_backend.agreement import assert_agrees
from tests.numba_backend.interpreted import lowered
from tests.programs import models, reference, scan_bodies, scans, zero_steps
from tests.support.bare_loops import While
from tests.test_properties import program, recipes

i = pt.lscalar("i")


# -- loops -----------------------------------------------------------------------------------------


def assert_one_loop_each(run: Any, loops: int) -> None:
    """Each loop of the graph is one in the source, in which nothing is allocated and nothing called."""
    blocks = re.split(r"\n    (?=\S)", run.source)  # the statements of the function itself
    actual = [
        b for b in blocks if b.startswith(("for ", "while ")) and re.search(r"\n        s\d+ = ", b)
    ]
    assert len(actual) == loops
    assert not [b for b in actual if "empty(" in b or "np.array" in b or ".shape" in b]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("graph", "n_wrt", "shapes", "native"),
    [(garch_graph, 4, [(), (), (), (), (9,)], True), (ar2_graph, 2, [(), (), (2,), (9,)], False)],
)
def test_gradients_of_scalar_loops(graph, n_wrt, shapes, native):
    inputs, out = graph()
    rng = np.random.default_rng(0)
    values = [rng.uniform(0.1, 0.5, size=shape) for shape in shapes]
    outputs = [out, *pytensor.grad(out, inputs[:n_wrt])]
    run = assert_agrees(inputs, outputs, values, rtol=1e-10, native=native)
    assert_one_loop_each(run, 2)


@pytest.mark.slow
@pytest.mark.parametrize("native", [False, True])
def test_gradient_of_a_kalman_filter(native):
    """Matrices of static shape are written out, element by element."""
    rng = np.random.default_rng(1)
    sizes = {"T": (2, 2), "Q": (2, 2), "P_0": (2, 2), "Z": (2,), "a_0": (2,), "y": (5,), "H": ()}
    values = [0.5 * np.eye(2) if len(s) == 2 else rng.normal(size=s) ** 2 for s in sizes.values()]
    by_name = dict(zip(sizes, values, strict=True))
    inputs, out = kalman_graph(2)
    outputs = [out, *pytensor.grad(out, inputs[:4])]
    case = [by_name[v.name] for v in inputs]
    run = assert_agrees(inputs, outputs, case, rtol=1e-10, native=native)
    assert_one_loop_each(run, 2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("stops", "reverse"), [(False, False), (True, True)])
def test_every_kind_of_scalar(stops, reverse):
    x, s, n, b = pt.dscalar("x"), pt.fscalar("s"), pt.scalar("n", dtype="int8"), pt.bscalar("b")
    flag = pt.scalar("flag", dtype="bool")
    scan = Scan.from_body(
        BodyArgs(i, [x], [s, n, b, flag], []),
        BodyOuts(
            [(s + x).astype("float32"), n * 3, b + 100, pt.invert(flag)],
            [s, n, flag, i, pt.switch(flag, x, -x)],
            pt.gt(s, 3) if stops else None,
        ),
        ScanOptions(reverse=reverse),
    )
    xs = pt.dvector("xs")
    start = [s.type("s0"), n.type("n0"), b.type("b0"), flag.type("f0")]
    outputs = scan.bind(ScanArgs(xs.shape[0], [xs], start, []))
    # 3 ** 6 and 7 * 100 do not fit into int8: they wrap, as in PyTensor.
    cases = [[np.arange(m) / 2.0, 0.5, 1, 0, True] for m in (0, 1, 8)]
    assert_agrees([xs, *start], outputs, *cases)


def test_states_that_are_long_vectors():
    """Arrays of a length that is not known now: a state, a row, a buffer that is read and written."""
    v, s, ring = pt.dvector("v"), pt.dvector("s"), pt.dvector("ring")
    scan = Scan.from_body(
        BodyArgs(i, [v], [s, ring], []),
        BodyOuts([s * ring[i % 3] + v, pt.set_subtensor(ring[i % 3], s.sum())], [s, v[::-1] * 2]),
    )
    vs, s0, r0 = pt.dmatrix("vs"), pt.dvector("s0"), pt.dvector("r0")
    outputs = scan.bind(ScanArgs(vs.shape[0], [vs], [s0, r0], []))
    rng = np.random.default_rng(0)
    cases = [[rng.normal(size=(n, 4)), rng.normal(size=4), np.ones(3)] for n in (0, 5)]
    # Neither the order of an input's axes nor its strides matter.
    cases.append([rng.normal(size=(4, 5)).T, rng.normal(size=8)[::2], np.ones(3)[::-1]])
    assert_agrees([vs, s0, r0], outputs, *cases)


def test_a_loop_in_a_branch_in_a_loop():
    j, t, s, k = pt.lscalar("j"), pt.dscalar("t"), pt.dscalar("s"), pt.lscalar("k")
    deep = Scan.from_body(BodyArgs(j, [], [t], []), BodyOuts([t * 0.5 + j], [t]))
    steps, x = pt.lscalar("steps"), pt.dscalar("x")
    final, trace = deep.bind(ScanArgs(steps, [], [x], []))
    cond = Cond.from_branches([x, steps], [final, trace], [x, pt.zeros(1) + x])
    y, row = cond.bind(pt.lt(s, 4), [s, i % 3])
    outer = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([y + i], [row.sum()]))
    n, s0 = pt.lscalar("n"), pt.dscalar("s0")
    outputs = outer.bind(ScanArgs(n, [], [s0], []))
    halve = While.from_body([k], [], [k // 2], pt.gt(k, 3))
    outputs = [*outputs, *halve.bind(pt.gt(n, 0), [n])]
    assert_agrees([n, s0], outputs, [0, 1.0], [7, 1.0])


@pytest.mark.slow
def test_gradients_of_loops_of_ours():
    """With checkpoints (loops in loops, traces of rows of unknown length), a stop, a branch."""
    x, a, s0 = pt.dvector("x"), pt.dscalar("a"), pt.dscalar("s0")
    final, ys = loopax.scan(lambda s, row: (pt.tanh(a * s) + row, s * row), s0, x, checkpoint=2)
    end = loopax.while_loop(lambda s: pt.lt(s, 9), lambda s: s * a + 1, s0, max_steps=30)
    root = loopax.cond(pt.gt(a, 1), lambda v: pt.sqrt(a) * v.sum(), lambda v: v.sum(), x)
    cost = final + (ys**2).sum() + end + root
    outputs = [cost, *pytensor.grad(cost, [x, a, s0])]
    cases = [[np.arange(n) / 5, c, 0.9] for n, c in ((0, 1.3), (5, 1.3), (6, 0.9))]
    assert_agrees([x, a, s0], outputs, *cases, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_a_trace_that_grows(reverse):
    """A bound that may be any number, and rows of a length that is the value of a state."""
    s, m = pt.dscalar("s"), pt.lscalar("m")
    scan = Scan.from_body(
        BodyArgs(i, [], [s, m], []),
        BodyOuts([s / 2, m], [s, pt.arange(m) * s], pt.lt(s, 0.3)),
        ScanOptions(reverse=reverse),
    )
    bound, m0 = pt.lscalar("bound"), pt.lscalar("m0")
    outputs = scan.bind(ScanArgs(bound, [], [pt.constant(9.0, dtype="float64"), m0], []))
    run = assert_agrees([bound, m0], outputs, [1, 2], [20, 3])
    assert [x.shape for x in run(0, 2)[2:4]] == [(0,), (0, 2)]
    assert run(2**62, 3)[2].shape == (6,)
    # Nothing of the size of the bound is ever allocated, and each step does not copy what there is.
    assert run.source.count(".copy()") == 2 + 2 * reverse


@pytest.mark.slow
def test_a_state_that_takes_over_one_that_changes_its_length():
    """Each step is as long as the start of the state before it, and one step later as another start."""
    states = x, y, z = pt.dvectors("xyz")
    run = loopax.jaxify(
        list(states),
        list(loopax.fori_loop(0, 3, lambda i, c: (2 * c[0], c[0], c[1]), (x, y, z))),
        backend="numba",
    )
    for lengths in ((3, 2, 2), (2, 2, 2), (1, 2, 3), (0, 2, 2)):
        actual = run(*map(np.ones, lengths))
        for scale, value in zip((8, 4, 2), actual, strict=True):
            np.testing.assert_array_equal(value, np.full(lengths[0], scale), strict=False)


def test_what_is_read_again_is_not_written_to():
    """Each of these writes is the only reader of its array in its graph, and yet must copy."""
    s, c = pt.dscalar("s"), pt.dvector("c")
    scan = Scan.from_body(
        BodyArgs(i, [], [s], [c]), BodyOuts([s + pt.inc_subtensor(c[i], 1.0).sum()], [])
    )
    x, n = pt.dvector("x"), pt.lscalar("n")
    twice = x * 2
    (total,) = scan.bind(ScanArgs(n, [], [pt.zeros(())], [twice]))
    y = pt.exp(x)
    outputs = [total, pt.inc_subtensor(y[::-1], y), twice]
    assert_agrees([x, n], outputs, [np.arange(3.0), 3])


RANDOM = settings(
    max_examples=20,  # each takes seconds to compile
    derandomize=True,
)


@pytest.mark.slow
@RANDOM
@given(recipes())
def test_random_loops(recipe):
    inputs, outputs, values = program(recipe)
    assert_agrees(inputs, outputs, values, rtol=1e-10)


# -- everything else -------------------------------------------------------------------------------


@pytest.mark.slow
def test_around_the_loops():
    """Slices, axes, joins, sums, products, writes: on arrays, and written out where they are small."""
    x, m, k = pt.dvector("x"), pt.dmatrix("m"), pt.lscalar("k")
    t = pt.matrix("t", shape=(2, 3), dtype="float64")
    outputs = [
        x[::-1][1:-1],
        x[k:],
        x[-2::-2] * 2,
        pt.concatenate([x[:1], x, t[0]]),
        pt.set_subtensor(x[1:k], x[0]),
        pt.inc_subtensor(m[:, 0], m[:, 1]),
        pt.inc_subtensor(t[1, ::2], 1.0) @ t.T,
        (m[:, None, :] * x[:, None]).sum(axis=(0, 2)),
        m.T @ x,
        m.max(axis=1),
        pt.prod(t, axis=0),
        pt.any(pt.gt(x, 0)),
        pt.arange(k) + pt.zeros((2, 1), dtype="int64"),
        t.reshape((3, 2)).T,
        pt.stack([k, x.shape[0]]),
        FitRows()(x, k),
        FitRows()(x, 6),
        KeepRows(last=True)(x, k, 5),
        pt.sigmoid(x),
        pt.log(pt.sum(pt.exp(m), axis=0)),
        pt.diff(x, n=1),
        x,
        x,
    ]
    rng = np.random.default_rng(0)
    assert_agrees(
        [x, m, k, t],
        outputs,
        *[
            [rng.normal(size=4), rng.normal(size=(4, 4)), n, rng.normal(size=(2, 3))]
            for n in (2, 3)
        ],
    )


# Among them: taps far apart (a ring), several loops, an Assert in a loop, no step at all, integers.
CORPUS = [
    models.hidden_markov_forward,
    scans.one_far_tap,
    scans.mask_after_any_of_three,
    zero_steps.inner_loop_of_no_steps,
    scan_bodies.state_with_an_axis_of_one,
]


@pytest.mark.slow
@pytest.mark.parametrize("reported", CORPUS, ids=str)
def test_programs_that_users_reported(reported):
    inputs, outputs, _ = reference.parts(reported)
    leaves = outputs if isinstance(outputs, list) else [outputs]
    assert_agrees(inputs, leaves, reported.arguments(inputs), rtol=1e-9)


# -- errors ----------------------------------------------------------------------------------------


def test_bad_values_raise():
    x, y, k = pt.dvector("x"), pt.dvector("y"), pt.lscalar("k")
    run = compile_program(lowered([x, y, k], [x + y, x[k]]))
    good = run(np.arange(3.0), np.arange(3.0), -1)
    assert good[1] == 2
    with pytest.raises(ValueError, match="dimension mismatch"):
        run(np.arange(3.0), np.arange(1.0), 0)
    with pytest.raises(IndexError, match="out of bounds"):
        run(np.arange(3.0), np.arange(3.0), 3)
    with pytest.raises(TypeError, match="takes 3 inputs, got 1"):
        run(np.arange(3.0))


def test_a_static_shape_is_checked():
    x = pt.vector("x", shape=(3,), dtype="float64")
    run = compile_program(lowered([x], [x.sum()]))
    assert run(np.arange(3)) == [3.0]
    with pytest.raises(TypeError, match="shape"):
        run(np.arange(4.0))


# -- without a compiler ------------------------------------------------------------------------------


def test_numba_that_compiles_nothing(monkeypatch):
    """NUMBA_DISABLE_JIT is for debugging: JAX's operations do without native code."""
    monkeypatch.setattr(numba_config, "DISABLE_JIT", 1)
    x = pt.dvector("x")
    final, _ = loopax.scan(lambda s, r: (pt.tanh(s + r), None), pt.zeros(()), x)
    with pytest.raises(UnsupportedOpError, match="NUMBA_DISABLE_JIT"):
        compile_program(lowered([x], final))
    f = loopax.jaxify([x], final, loops="native")
    np.testing.assert_allclose(f(np.ones(3)), np.tanh(np.tanh(np.tanh(1.0) + 1.0) + 1.0))
    assert any("NUMBA_DISABLE_JIT" in remark for remark in f.remarks)
