"""What each pass did is recorded, and nothing else."""

import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blockwise import Blockwise

from loopax import cond, scan
from loopax.base.upstream.pytensor import thaw
from loopax.ir import Call, pformat
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.lowering import NATIVE_PASSES, lower, order
from loopax.lowering.record import counts, stages
from tests.support.assorted_loops import CASES, a, s, x
from tests.support.compare import imported


def read(name):
    case = CASES[name]()
    return imported(case.inputs, [*case.outs, pt.grad(case.cost, case.inputs[-1])]).graph


def nodes(graph):
    """All nodes, those in bodies included."""
    return sum(
        1 + (nodes(node.op.fgraph) if isinstance(node.op, InnerGraphOp) else 0)
        for node in graph.apply_nodes
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["nested", "branching", "stopping, reverse"])
def test_it_does_what_lower_does(name):
    graph = read(name)
    expected, text = thaw(graph), pformat(graph)
    lower(expected)
    actual = list(stages(graph))
    assert graph.freeze() == expected.freeze()
    assert len(actual) > 1
    # Each stage begins with what the one before left, and none is of a graph that changes later.
    assert pformat(actual[0].before) == text
    for one, following in zip(actual, actual[1:], strict=False):
        assert one.after is following.before
    assert pformat(actual[-1].after) == pformat(graph)
    names = [run.__name__ for run in order.PASSES]
    assert [n for n in names if n in {one.name for one in actual}][0] == actual[0].name
    for one in actual:
        assert one.name in names and one.counts == counts(one.after)
        assert pformat(one.before) != pformat(one.after)


def test_a_pass_that_changes_nothing_is_left_out():
    graph = FunctionGraph([x], [pt.sin(x)], clone=True)

    def nothing(graph):
        pass

    def doubled(graph):
        graph.replace(graph.outputs[0], 2 * graph.outputs[0])

    actual = list(stages(graph, [nothing, doubled, nothing]))
    assert [(one.name, *one.counts) for one in actual] == [("doubled", 0, 3, 0)]
    assert pformat(actual[0].before).count("sin") == 1 and "mul" not in pformat(actual[0].before)


def test_equal_nodes_that_become_one_are_a_change():
    graph = FunctionGraph([x], [pt.sin(x) + pt.sin(x)], clone=True)

    def merged(graph):
        first, second = graph.outputs[0].owner.inputs
        graph.replace(second, first)

    (actual,) = stages(graph, [merged])
    assert counts(actual.before).outside == 3 and actual.counts.outside == 2


def test_names_of_inputs_are_kept():
    graph = FunctionGraph([x], [x * 1.0 + 0.0], clone=True)
    (actual, *_) = stages(graph)
    assert [v.name for v in (*actual.before.inputs, *actual.after.inputs)] == ["x", "x"]


# -- counts ------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["nested", "branching", "stopping", "far lags"])
def test_every_node_is_counted_once(name):
    graph = read(name)
    for run in [None, *NATIVE_PASSES]:
        if run is not None:
            run(graph)
        assert sum(counts(graph)) == nodes(graph)


def test_what_is_inside_and_outside():
    def inner(c, r):
        return c * r, None  # one op

    def outer(c, r):
        return scan(inner, c, pt.exp(x))[0] + r, None  # beside the loop: its length, exp, add

    final, _ = scan(outer, s, x)
    graph = FunctionGraph([x, s], [final, pt.sin(s)], clone=True)
    actual = counts(graph)
    assert actual.loops == 2
    loop = next(node.op for node in graph.apply_nodes if isinstance(node.op, InnerGraphOp))
    within = [node.op for node in loop.fgraph.apply_nodes if isinstance(node.op, InnerGraphOp)]
    assert len(within) == 1 and len(within[0].fgraph.apply_nodes) == 1
    assert actual.inside == len(loop.fgraph.apply_nodes) - 1 + 1
    assert actual.outside == len(graph.apply_nodes) - 1


def test_a_branch_outside_of_loops_is_outside():
    out = cond(a > 0, lambda: pt.sin(a), lambda: pt.cos(a) * 2)
    graph = FunctionGraph([a], [out], clone=True)
    assert counts(graph) == (0, 5, 0)  # the comparison, the Cond, three ops in its branches


def test_a_batch_of_calls_has_what_is_in_them():
    step = scan(lambda c, _: (pt.sin(c), None), s, length=3)[0]
    call = Call(FunctionGraph([s], [step + 1.0], clone=True).freeze())
    graph = FunctionGraph([x], [Blockwise(call, signature="()->()")(x)], clone=True)
    assert counts(graph) == (1, 2, 1)
