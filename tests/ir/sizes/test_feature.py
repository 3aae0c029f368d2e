"""What is kept of a graph's dimensions is, after any change, what an analysis made anew says."""

import pickle
import random
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax import scan
from loopax.ir import Scan
from loopax.ir.sizes import (
    Dims,
    body_dims,
    dims_of,
    loop_facts,
    unconditional_dims_of,
    without_dims,
)
from loopax.lowering.order import NATIVE_PASSES, PASSES
from tests.random_programs.in_ir import program
from tests.support.random_loops import RANDOM

PROGRAMS = settings(RANDOM, max_examples=10)


def answers(graph: FunctionGraph, dims: Dims) -> dict[Any, Any]:
    """All that can be asked of the variables of ``graph``, in the order of its nodes."""
    actual: dict[Any, Any] = {}
    for v in [*graph.inputs, *(out for node in graph.toposort() for out in node.outputs)]:
        if not isinstance(v.type, DenseTensorType):
            continue
        if not v.type.ndim and v.type.dtype.startswith(("int", "uint")):
            actual[v] = dims.value(v), dims.at_least(dims.value(v))
        for axis in range(v.type.ndim):
            length = dims.length(v, axis)
            actual[v, axis] = length, dims.at_least(length, 1)
    return actual


def given_loops(graph: FunctionGraph) -> Dims:
    return Dims(loop_facts(graph, Dims()))


def assert_current(graph: FunctionGraph) -> None:
    assert answers(graph, dims_of(graph)) == answers(graph, given_loops(graph))
    assert answers(graph, unconditional_dims_of(graph)) == answers(graph, Dims())


@pytest.mark.slow
@seed(1)
@PROGRAMS
@given(st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("passes", [PASSES, NATIVE_PASSES])
def test_after_every_pass(passes, which):
    made = program(which)
    graph = FunctionGraph(list(made.inputs), list(made.outputs), clone=True)
    assert_current(graph)
    for run in passes:
        run(graph)
        assert_current(graph)


@pytest.mark.slow
@seed(2)
@settings(RANDOM, max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_after_changes_that_keep_no_value(number):
    """No pass changes a graph like this: what is kept too long has another value, and not another name."""
    rng = random.Random(number)
    made = program(rng.randrange(2**32))
    graph = FunctionGraph(list(made.inputs), list(made.outputs), clone=True)
    for _ in range(4):
        assert_current(graph)
        order = graph.toposort()
        places = [(k, at, v) for k, node in enumerate(order) for at, v in enumerate(node.inputs)]
        for _ in range(20):
            k, at, old = rng.choice(places)
            earlier = [*graph.inputs, *(out for node in order[:k] for out in node.outputs)]
            alike = [v for v in earlier if v.type == old.type and v is not old]
            if alike and not isinstance(old, Constant) and order[k] in graph.apply_nodes:
                graph.change_node_input(order[k], at, rng.choice(alike), import_missing=True)
                break


x, n = pt.dvector("x"), pt.lscalar("n")


def test_a_change_far_up_is_seen_through_what_a_rule_looks_through():
    a, b = pt.lscalar("a"), pt.lscalar("b")
    entries = pt.stack([a, b])
    chosen = pt.switch(pt.lt(a, b + 3), entries[0], entries[1])
    filled = pt.alloc(0.0, pt.switch(pt.lt(x.shape[0], 0), a, entries[1]))
    graph = FunctionGraph([a, b, x], [chosen, filled], clone=False)
    assert dims_of(graph).length(filled) == dims_of(graph).value(b)
    graph.change_node_input(entries.owner, 1, a)
    assert dims_of(graph).length(filled) == dims_of(graph).value(a)


def test_a_change_far_up_of_the_number_of_steps_of_a_loop():
    a, b = pt.lscalar("a"), pt.lscalar("b")
    entries = pt.stack([a, b])
    final, _ = scan(lambda c, _: (c * 2, None), pt.constant(1.0), length=entries[0] + 1)
    graph = FunctionGraph([a, b], [final], clone=False)
    assert [dims_of(graph).at_least(dims_of(graph).value(v), -1) for v in (a, b)] == [True, False]
    graph.change_node_input(entries.owner, 0, b)
    assert [dims_of(graph).at_least(dims_of(graph).value(v), -1) for v in (a, b)] == [False, True]


def test_the_steps_of_a_loop_are_counted_only_while_it_is_there():
    final, _ = scan(lambda c, _: (c * 2, None), pt.constant(1.0), length=n)
    graph = FunctionGraph([n, x], [final, x[:n]], clone=False)
    assert dims_of(graph).at_least(dims_of(graph).value(n))
    assert not unconditional_dims_of(graph).at_least(unconditional_dims_of(graph).value(n))
    graph.replace(final, pt.constant(1.0))
    assert not dims_of(graph).at_least(dims_of(graph).value(n))


def test_passes_that_change_nothing_share_one_analysis():
    graph = FunctionGraph([x], [x * 2], clone=False)
    dims = dims_of(graph)
    assert dims_of(graph) is dims and unconditional_dims_of(graph) is not dims
    rows = dims.length(x)
    assert dims.variable(rows + 1) is dims_of(graph).variable(rows + 1)


def test_copies_begin_anew_and_nothing_is_left_after_the_passes():
    graph = FunctionGraph([x], [x[1:]], clone=False)
    dims = dims_of(graph)
    copy = graph.clone()
    assert dims_of(copy) is not dims and dims_of(copy).length(copy.outputs[0]).terms
    again = pickle.loads(pickle.dumps(graph))
    assert dims_of(again).length(again.inputs[0]).constant is None
    without_dims(graph)
    assert not hasattr(graph, "dim_feature") and dims_of(graph) is not dims


def test_equal_bodies_share_one_summary():
    def loop(steps: Any) -> Any:
        final, ys = scan(lambda c, r: (c * r, c[1:]), pt.ones(3) * x[0], x, length=steps)
        return ys

    one, two = loop(x.shape[0]).owner.op, loop(n).owner.op
    assert isinstance(one, Scan) and one is not two and body_dims(one) is body_dims(two)


@pytest.mark.parametrize(
    ("step", "keeps"),
    [
        (lambda s, c: s * c, True),
        (lambda s, c: pt.set_subtensor(s[0], 1.0), True),
        (lambda s, c: s[1:], False),
        (lambda s, c: c * 2, None),
        (lambda s, c: pt.concatenate([s, c]), False),
    ],
)
def test_whether_a_state_keeps_its_length(step, keeps):
    s, c = pt.dvector("s"), pt.dvector("c")
    final, _ = scan(lambda s, _: (step(s, c), None), s, length=n)
    assert body_dims(final.owner.op).keeps(0, 0) is keeps


def test_lengths_after_a_loop():
    s, y = pt.dvector("s"), pt.dmatrix("y")
    final, ys = scan(lambda c, r: (c + 1, pt.concatenate([c, r])), s, y)
    graph = FunctionGraph([s, y], [final, ys], clone=False)
    dims = dims_of(graph)
    assert dims.length(final) == dims.length(s) and dims.length(ys) == dims.length(y)
    assert dims.length(ys, 1) == dims.length(s) + dims.length(y, 1)
    assert np.shape(ys.eval({s: np.ones(2), y: np.ones((4, 3))})) == (4, 5)
