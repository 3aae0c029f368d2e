"""What a long program repeats is a function that is compiled once: instances of one graph above all."""

import re
from itertools import pairwise

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.raise_op import Assert

from loopax import grad, jaxify
from loopax.lowering.bodies import map_bodies
from loopax.numba_backend.callable.program import emitted
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import call, expr, literal, local
from loopax.numba_backend.emit.statements import Assign, Block, For, Function, If, Return
from loopax.numba_backend.emit.tree_passes import repeats
from loopax.numba_backend.emit.tree_passes.repeats import share_repeats
from tests.numba_backend.agreement import assert_agrees
from tests.numba_backend.interpreted import interpreted, lowered

x, p = pt.dvector("x"), pt.dvector("p")
RNG = np.random.default_rng(0)


def smoother(*checks):
    """A function with a loop in it, of a vector and a number, and a few operations besides."""
    r, a = pt.dvector("r"), pt.dscalar("a")

    def step(r, s):
        return 0.9 * s + pt.tanh(a * r) + pt.exp(-(s**2))

    s = pytensor.scan(step, r, pt.zeros(()), return_updates=False)
    if checks:
        s = Assert("negative")(s, pt.all(a > -1))
    return OpFromGraph([r, a], [s / (1 + pt.max(s)), s[-1]], name="smoother")


def chained(op, n):
    total, row = 0.0, x
    for k in range(n):
        row, last = op(row, p[k])
        total = total + pt.sin(last) * (k + 0.5)
    return total + row.sum()


def length(n):
    """The program of ``n`` instances, its functions and its lines."""
    emit = emitted(lowered([x, p], [chained(smoother(), n)]), {}, True)
    return len(emit.functions), emit.n_lines


@pytest.mark.slow
def test_instances_of_a_graph_are_calls():
    (few_functions, few), (many_functions, many) = length(20), length(40)
    assert few_functions == many_functions < 5
    assert (
        many - few < 8 * 20
    )  # of each instance the calls, and what differs: it takes thirty lines
    functions, lines = length(2)
    assert not functions and lines > 40


@pytest.mark.slow
def test_values_and_gradients_of_instances(monkeypatch):
    monkeypatch.setattr(repeats, "_LONG", 60)
    out = chained(smoother(), 6)
    values = [RNG.normal(size=5), RNG.normal(size=6)]
    native = jaxify([x, p], out, backend="numba")
    assert "part0(" in native.source
    wanted = pytensor.function([x, p], [out, *pytensor.grad(out, [x, p])], mode="CVM")(*values)
    np.testing.assert_allclose(native(*values), wanted[0], rtol=1e-12)
    for actual, g in zip(grad(native, argnums=(0, 1))(*values), wanted[1:], strict=True):
        np.testing.assert_allclose(actual, g, rtol=1e-10)


def test_an_error_in_one_instance_is_raised(monkeypatch):
    monkeypatch.setattr(repeats, "_LONG", 60)
    run = interpreted(lowered([x, p], [chained(smoother("checked"), 8)]))
    assert "part0(" in run.source
    run(np.ones(4), np.ones(8))
    with pytest.raises(AssertionError, match="negative"):
        run(np.ones(4), np.array([1.0] * 7 + [-2.0]))


def test_constants_and_lengths_of_each_instance(monkeypatch):
    """Floats, data, axes of static and of unknown length, and an output that only some of them read."""
    monkeypatch.setattr(repeats, "_LONG", 60)
    op, fixed = smoother(), pt.vector("fixed", shape=(3,), dtype="float64")
    outs = []
    for k in range(4):
        outs += [op(x[k:], 0.1 * k)[1], op(pt.constant(RNG.normal(size=4)), p[k])[0].sum()]
        outs += op(fixed + k, p[k])
    run = assert_agrees(
        [x, p, fixed], outs, [RNG.normal(size=n) for n in (6, 4, 3)], rtol=1e-10, native=False
    )
    assert "part0(" in run.source


@pytest.mark.slow
def test_instances_in_a_step_and_inside_of_each_other(monkeypatch):
    monkeypatch.setattr(repeats, "_LONG", 60)
    one = smoother()
    r, a = pt.dvector("r"), pt.dscalar("a")
    two = OpFromGraph([r, a], one(one(r, a)[0], 2 * a))

    def step(a, row):
        for k in range(4):
            row = two(row, a + k)[0]
        return row

    outs = pytensor.scan(step, p, x, return_updates=False)
    run = assert_agrees(
        [x, p], [outs], [RNG.normal(size=n) for n in (3, 4)], rtol=1e-8, native=False
    )
    assert "part0(" in run.source


@pytest.mark.slow
def test_draws_of_each_instance(monkeypatch):
    monkeypatch.setattr(repeats, "_LONG", 0)
    rng, outs = pytensor.shared(np.random.default_rng(1)), []
    for k in range(12):
        rng, draws = pt.random.normal(p[k], 1.0, size=(3,), rng=rng, return_next_rng=True)
        outs.append(pt.exp(draws).sum() * p[k])
    assert_agrees([p], outs, [RNG.normal(size=12)])


def program(*statements):
    emit = Emitter(Function("program", [local("x0"), local("x1")]), 9)
    for statement in statements:
        emit.source.body.add(statement)
    return emit


def segment(k, given):
    """Ten statements, each of the one before it, and what the last one assigns."""
    names = [given, *(local(f"t{k}_{j}") for j in range(10))]
    return [
        Assign((b,), expr("np.sin({}) * {} + {}", a, j, literal(0.5)))
        for j, (a, b) in enumerate(pairwise(names))
    ], names[-1]


@pytest.fixture
def searched(monkeypatch):
    monkeypatch.setattr(repeats, "_LONG", 0)


def sources(emit):
    share_repeats(emit)
    return [str(f) for f in emit.functions], str(emit.source)


def test_floats_that_differ_are_arguments(searched):
    statements, outs = [], []
    for k in range(5):
        part, out = segment(k, local("x0"))
        statements += [
            *part[:-1],
            Assign(part[-1].targets, expr("{} + {}", part[-2].targets[0], literal(k / 8))),
        ]
        outs.append(out)
    (function,), text = sources(program(*statements, Return(call("sum", *outs))))
    assert re.search(r"def part0\(x0, c0\):", function) and "0.5" in function
    assert "t3_9 = part0(x0, 0.375)" in text


def test_what_is_read_elsewhere_is_a_result_of_all(searched):
    statements = []
    for k in range(4):
        part, out = segment(k, local("x0"))
        statements += part
    middle = local("t1_4")
    (function,), text = sources(program(*statements, Return(call("sum", middle, out))))
    assert function.splitlines()[-1].strip() == "return (t0_4, t0_9)"
    assert "t1_4, t1_9 = part0(x0)" in text


def test_what_may_not_be_there_is_no_argument(searched, monkeypatch):
    """Each branch assigns the same local, which is not there before."""
    monkeypatch.setattr(repeats, "_FUNCTION", 0)
    y, branches = local("y0"), []
    for k in range(2):
        part, out = segment(k, local("x1"))
        branches.append(Block([*part, Assign((y,), out)]))
    (function,), text = sources(program(If(local("x0"), *branches), Return(y)))
    assert function.startswith("def part0(x1):") and function.endswith("return y0")
    assert text.count("y0 = part0(x1)") == 2


def test_what_only_one_way_assigns_is_an_argument_where_it_is_there(searched, monkeypatch):
    monkeypatch.setattr(repeats, "_FUNCTION", 0)
    statements, outs = [], []
    for k in range(3):
        part, out = segment(k, local("x1"))
        y = local(f"y{k}")
        outs.append(y)
        statements += [Assign((y,), local("x1"))] * (k < 2)  # the third has no value but by one way
        statements += [Assign((local(f"z{k}"),), expr("{} ** {}", local("x1"), k))]  # differs
        statements += [*part, If(local("x0"), Block([Assign((y,), out)]))]
    (function,), text = sources(program(*statements, Return(call("sum", *outs))))
    assert re.match(r"def part0\((x1, x0, y0|x1, y0, x0)\):", function)
    assert text.count("part0(") == 2 and "y2 = part" not in text


def test_states_of_a_loop_go_in_and_come_out(searched):
    states, statements = [], []
    for k in range(4):
        s, i, t = local(f"s{k}"), local(f"i{k}"), local(f"t{k}")
        steps = [Assign((t,), expr("{} * {}", s, local("x0")))]
        steps += [Assign((t,), expr("{} + {}", t, literal(j / 4))) for j in range(8)]
        loop = For(i, local("x1"), Block([*steps, Assign((s,), t)]), is_steps=True)
        statements += [Assign((s,), call("np.float64", literal(0.0))), loop]
        states.append(s)
    emit = program(*statements, Return(call("sum", *states)))
    (function,), text = sources(emit)
    assert "s2 = part0(" in text and "for " not in text and "for " in function


def test_a_short_program_stays_as_it_is():
    emit = program(*segment(0, local("x0"))[0], *segment(1, local("x0"))[0])
    assert sources(emit)[0] == []


def test_equal_bodies_are_rewritten_once():
    seen = []
    graph = lowered([x, p], [chained(smoother(), 3)])
    map_bodies(graph, seen.append, where=lambda body: True)
    bodies = {node.op.fgraph for node in graph.toposort() if hasattr(node.op, "fgraph")}
    assert len(seen) == len(bodies)


def test_a_loop_that_llvm_vectorizes_has_no_calls(searched):
    """The loop over elements is shared as a whole; one that differs in a statement is not shared."""

    def elements(k, last):
        i = local(f"i{k}")
        part, out = segment(k, i)
        return For(i, 9, Block([*part, Assign((local(f"y{k}"),), expr(last, out))]))

    loops = [elements(k, "{} + 1.0") for k in range(3)]
    others = [elements(k, f"{{}} * {k}") for k in range(3, 6)]
    functions, text = sources(program(*loops, *others, Return(local("x0"))))
    (function,) = functions
    assert "for i0 in range(9):" in function
    assert text.count("part0(") == 3 and text.count("for ") == 3
