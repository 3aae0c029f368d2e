"""Foreign loops, graphs and conditionals inside the step of a loop of ours, and the other way round."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan as LegacyScan

import loopax
from loopax.base.upstream.pytensor import IfElse
from tests.support.compare import assert_agrees, imported, loops

X, A = pt.dvector("x"), pt.dscalar("a")
VALUES = [np.array([0.3, 0.8, -0.2]), np.array(0.7)]


def legacy_inside():
    def step(c, r):
        ys = pytensor.scan(
            lambda q, s: s * A + q, sequences=[X], outputs_info=[c], return_updates=False
        )
        return ys[-1] + r, c

    return loopax.scan(step, A, X)[0]


def legacy_outside():
    def step(q, s):
        return loopax.scan(lambda c, r: (c * s + r, None), q, X)[0]

    return pytensor.scan(step, sequences=[X], outputs_info=[A], return_updates=False)[-1]


def op_from_graph_inside():
    u = pt.dscalar()
    twice_sine = OpFromGraph([u], [pt.sin(u) * 2])
    return loopax.scan(lambda c, r: (twice_sine(c) + r, None), A, X)[0]


def if_else_inside():

    def step(c, r):
        return IfElse(1)(c > r, c * A, c + r), None

    return loopax.scan(step, A, X)[0]


def nested_twice():
    def step(c, r):
        inner, _ = loopax.scan(lambda d, q: (legacy_sum(d) + q, None), c, X)
        return inner + r, None

    return loopax.scan(step, A, X)[0]


def legacy_sum(start):
    return pytensor.scan(
        lambda q, s: s * 0.5 + q, sequences=[X], outputs_info=[start], return_updates=False
    )[-1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "build", [legacy_inside, legacy_outside, op_from_graph_inside, if_else_inside, nested_twice]
)
def test_inside_and_outside(build):
    assert_agrees([X, A], [build()], VALUES, grad_wrt=[X, A])


@pytest.mark.parametrize("build", [legacy_inside, op_from_graph_inside, nested_twice])
def test_nothing_foreign_is_left_in_a_body(build):
    graph = imported([X, A], [build()]).graph
    actual = [graph, *(node.op.fgraph for node in loops(graph))]
    ops = [v.owner.op for g in actual for v in ancestors(g.outputs) if v.owner is not None]
    assert not any(isinstance(op, LegacyScan | OpFromGraph) for op in ops)


def test_what_a_graph_is_given_is_not_copied():
    """Each instance made all that is before it anew: the program grew with the square of their number."""
    u = pt.dscalar()
    twice_sine = OpFromGraph([u], [pt.sin(u) * 2])
    nodes = []
    for count in (5, 10):
        out = pt.exp(A)
        for _ in range(count):
            out = twice_sine(out) + out
        nodes.append(len(imported([A], [out]).graph.apply_nodes))
    assert nodes == [1 + 3 * 5, 1 + 3 * 10]


def test_a_conditional_in_a_step_is_lazy():

    f = loopax.jaxify([X, A], [if_else_inside()])
    assert "cond" in str(jax.make_jaxpr(f)(*VALUES))
