"""The ops of the IR under ``pytensor.function(..., mode="NUMBA")``, beside their meaning.

Numba compiles for seconds: one function for each thing to show.
"""

import subprocess
import sys
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.random.type import random_generator_type
from pytensor.typed_list import getitem, length

import loopax
from loopax.base.errors import UnsupportedOpError
from loopax.ir import (
    BodyArgs,
    BodyOuts,
    Call,
    Cond,
    FitRows,
    KeepRows,
    Scan,
    ScanArgs,
    ScanOptions,
    Stack,
    Unstack,
    evaluate,
)
from tests.support.bare_loops import While

i = pt.lscalar("i")


@pytest.fixture(autouse=True)
def no_cache():
    # What is tested is that it compiles, not that it did once; and workers would share the cache.
    with pytensor.config.change_flags(numba__cache=False):
        yield


def assert_agrees(inputs: list[Any], outputs: list[Any], *cases: list[Any]) -> None:
    """Numba mode gives what `evaluate` does, for each list of values; no op runs as an object."""
    graph = FunctionGraph(inputs, outputs, clone=True)
    run = pytensor.function(inputs, outputs, mode="NUMBA", on_unused_input="ignore")
    for values in cases:
        values = [
            v.type.filter(x, allow_downcast=True) for v, x in zip(inputs, values, strict=True)
        ]
        kept = [np.array(x) for x in values if isinstance(x, np.ndarray)]
        expected = evaluate(graph, *values)
        actual = run(*values)
        for a, b in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, strict=True)
        arrays = [x for x in values if isinstance(x, np.ndarray)]
        for a, b in zip(arrays, kept, strict=True):
            np.testing.assert_array_equal(a, b)


def sums(stops: bool = False, **options: Any) -> tuple[list[Any], list[Any]]:
    """Scalars: a float state, an integer and a bool; traces of all of them and of the index."""
    x, s, n, b = pt.dscalar("x"), pt.dscalar("s"), pt.iscalar("n"), pt.scalar("b", dtype="bool")
    scan = Scan.from_body(
        BodyArgs(i, [x], [s, n, b], []),
        BodyOuts([s + x, n + 1, pt.invert(b)], [s + x, n, b, i], s > 3 if stops else None),
        ScanOptions(**options),
    )
    xs, s0, n0, b0 = pt.dvector("xs"), s.type("s0"), n.type("n0"), b.type("b0")
    return [xs, s0, n0, b0], scan.bind(ScanArgs(xs.shape[0], [xs], [s0, n0, b0], []))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stops", "reverse"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_scalars(stops, reverse):
    inputs, outputs = sums(stops, reverse=reverse)
    lengths = (0, 1, 6, 40)
    assert_agrees(inputs, outputs, *[[np.arange(n) / 5, 0.5, 3, True] for n in lengths])


@pytest.mark.slow
def test_matrices_and_constants():
    P, A, v = pt.dmatrix("P"), pt.dmatrix("A"), pt.dvector("v")
    scan = Scan.from_body(
        # No product of matrices: Numba compiles one for ten seconds.
        BodyArgs(i, [v], [P], [A]),
        BodyOuts([A * P.T + v[:, None] * v], [P[0] * v, P, v * i]),
    )
    steps, vs, P0, A0 = pt.iscalar("n"), pt.dmatrix("vs"), pt.dmatrix("P0"), pt.dmatrix("A0")
    outputs = scan.bind(ScanArgs(steps, [vs], [P0], [A0]))
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(3, 3))
    values = [[n, rng.normal(size=(n, 3)), np.eye(3), matrix] for n in (0, 1, 4)]
    # Another layout: what comes in as a transpose is no C array.
    values.append([4, rng.normal(size=(3, 4)).T, np.eye(3), matrix.T])
    assert_agrees([steps, vs, P0, A0], outputs, *values)


@pytest.mark.slow
def test_rows_of_a_shape_not_known_before():
    m = pt.lscalar("m")
    scan = Scan.from_body(BodyArgs(i, [], [m], []), BodyOuts([m], [pt.arange(m) + i]))
    n, m0 = pt.lscalar("n"), pt.lscalar("m0")
    outputs = scan.bind(ScanArgs(n, [], [m0], []))
    assert_agrees([n, m0], outputs, [2, 3])
    # Of no steps nobody has computed a row: its length is what it would be, where the passes see that.
    run = pytensor.function([n, m0], outputs, mode="NUMBA")
    assert [x.shape for x in run(0, 3)] == [(), (0, 3)]


@pytest.mark.slow
def test_a_loop_in_a_branch_in_a_loop():
    j, t, s = pt.lscalar("j"), pt.dvector("t"), pt.dvector("s")
    deep = Scan.from_body(BodyArgs(j, [], [t], []), BodyOuts([t * 0.5 + j], [t.sum()]))
    operand = s.type()
    final, trace = deep.bind(ScanArgs(pt.constant(3, dtype="int64"), [], [operand], []))
    cond = Cond.from_branches([operand], [final, trace.sum()], [operand, operand.sum()])
    following, y = cond.bind(pt.lt(s.sum(), 4), [s])
    outer = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([following + i], [y]))
    n, s0 = pt.lscalar("n"), pt.dvector("s0")
    outputs = outer.bind(ScanArgs(n, [], [s0], []))
    assert_agrees([n, s0], outputs, [0, [1.0, 2.0]], [5, [1.0, 2.0]])


@pytest.mark.slow
def test_loop_and_call():
    s, k, c = pt.dvector("s"), pt.lscalar("k"), pt.dscalar("c")
    loop = While.from_body([s, k], [c], [s * c, k + 1], pt.lt(k, 3))
    body = FunctionGraph([s, c], [s, s + c], clone=True).freeze()
    go, s0, c0 = pt.scalar("go", dtype="bool"), pt.dvector("s0"), pt.dscalar("c0")
    final, count = loop.bind(go, [s0, pt.constant(0, dtype="int64")], [c0])
    outputs = [final, count, *Call(body).make_node(final, c0).outputs]
    assert_agrees([go, s0, c0], outputs, [True, [1.0, 2.0], 2.0], [False, [1.0, 2.0], 2.0])


@pytest.mark.slow
def test_gradient_of_a_loop_that_stops():
    s0, a = pt.dscalar("s0"), pt.dscalar("a")
    end = loopax.while_loop(lambda s: pt.lt(s, 9), lambda s: s * a + 1, s0, max_steps=30)
    outputs = [end, *pytensor.grad(end, [s0, a])]
    assert_agrees([s0, a], outputs, [0.9, 1.3], [10.0, 1.3])


def test_a_result_is_not_an_input():
    # One state that no step changes, one branch and one call that return an operand.
    s = pt.dvector("s")
    scan = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([s], []))
    cond = Cond.from_branches([s], [s], [s + 1])
    s0 = pt.dvector("s0")
    (final,) = scan.bind(ScanArgs(pt.constant(2, dtype="int64"), [], [s0], []))
    outputs = [final, *cond.bind(pt.gt(s0[0], 0), [s0])]
    run = pytensor.function([s0], outputs, mode="NUMBA")
    value = np.array([1.0, 2.0])
    assert not any(np.shares_memory(value, out) for out in run(value))


@pytest.mark.slow
def test_rows():
    xs, n = pt.dmatrix("xs"), pt.lscalar("n")
    rows = Unstack()(xs)
    outputs = [FitRows()(xs, n), Stack()(rows, xs.shape[1]), getitem(rows, 1), length(rows)]
    outputs += [Stack()(Unstack()(xs[0])), KeepRows()(xs, n, 4), KeepRows(last=True)(xs, n, 4)]
    assert_agrees([xs, n], outputs, *[[np.arange(6.0).reshape(3, 2), k] for k in (0, 2, 5)])


@pytest.mark.slow
def test_a_trace_of_generators():
    rng = random_generator_type("rng")
    after, draw = pt.random.normal(rng=rng, return_next_rng=True)
    make = Scan.from_body(BodyArgs(i, [], [rng], []), BodyOuts([after], [rng]))
    use = Scan.from_body(BodyArgs(i, [rng], [], []), BodyOuts([], [draw]))
    start, n = random_generator_type("start"), pt.lscalar("n")
    _, rngs = make.bind(ScanArgs(n, [], [start], []))
    (draws,) = use.bind(ScanArgs(n, [rngs], [], []))
    run = pytensor.function([start, n], [draws, length(rngs)], mode="NUMBA")
    for steps in (0, 3):
        actual, count = run(np.random.default_rng(1), steps)
        np.testing.assert_array_equal(actual, np.random.default_rng(1).normal(size=steps))
        assert count == steps


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("steps", "message"), [(-1, "negative number of steps"), (2, "one row for each step")]
)
def test_errors(steps, message):
    x = pt.dscalar("x")
    scan = Scan.from_body(BodyArgs(i, [x], [], []), BodyOuts([], [x]))
    xs, n = pt.dvector("xs"), pt.lscalar("n")
    run = pytensor.function([xs, n], scan.bind(ScanArgs(n, [xs], [], [])), mode="NUMBA")
    with pytest.raises(ValueError, match=message):
        run(np.arange(3.0), steps)


def test_rows_that_differ_are_an_error():
    s = pt.dvector("s")
    scan = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([s[:1]], [s]))
    s0 = pt.dvector("s0")
    trace = scan.bind(ScanArgs(pt.constant(2, dtype="int64"), [], [s0], []))[1]
    run = pytensor.function([s0], trace, mode="NUMBA")
    with pytest.raises(AssertionError, match="SpecifyShape"):
        run(np.arange(3.0))


class Doubled(Op):
    """Nothing native is known for it."""

    itypes, otypes = [pt.dvector], [pt.dvector]

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] * 2


def test_an_op_that_runs_as_python_is_named():
    x = pt.dvector("x")
    final = loopax.fori_loop(0, 3, lambda _, s: Doubled()(s) + 1, x)
    with pytest.warns(UserWarning, match="(?s)run as Python.*Doubled"):
        run = pytensor.function([x], final, mode="NUMBA")
    np.testing.assert_array_equal(run(np.array([0.0, 1.0])), [7.0, 15.0])


def test_a_type_that_native_code_does_not_know_is_refused():
    x = pt.vector("x", dtype="float16")
    final = loopax.fori_loop(0, 3, lambda _, s: -s, x)
    with pytest.raises(UnsupportedOpError, match="float16"):
        pytensor.function([x], final, mode="NUMBA")


@pytest.mark.usefixtures("as_users_have_it")
def test_the_default_mode():
    inputs, outputs = sums()
    run = pytensor.function(inputs, outputs[0], mode=get_mode(None), on_unused_input="ignore")
    assert "Numba" in type(run.maker.linker).__name__
    assert run(np.arange(4.0), 0.5, 3, True) == 6.5


@pytest.mark.slow
def test_importing_loopax_does_not_import_numba():
    code = "import loopax, sys; assert 'numba' not in sys.modules, 'numba is there'"
    subprocess.run([sys.executable, "-c", code], check=True)
