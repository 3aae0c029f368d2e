"""What is made of a program after its import is in the IR too: derivatives, of every maker and order."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan as LegacyScan

import loopax
from loopax.importer.import_graph import import_graph
from loopax.ir import Grad, Pushforward, check
from loopax.ir.derivatives.pullback import PullbackRule
from loopax.ir.ops.inner_graph_op import core_of, nodes_within
from loopax.kernels import derivative_graphs
from loopax.lowering.derivatives.take_derivatives import take_derivatives
from tests.support.compare import assert_agrees
from tests.support.ops import SameType

X, A = pt.dvector("x"), pt.dscalar("a")
VALUES = [np.array([0.3, 0.8, -0.2]), np.array(0.7)]


def foreign(graph):
    """The ops that hold graphs of their own and are none of the IR, in bodies too."""
    check(graph)
    ops = [core_of(node.op) for node in nodes_within(graph.inputs, graph.outputs)]
    return [op for op in ops if isinstance(op, OpFromGraph | LegacyScan)]


def cholesky_in_a_step():
    """PyTensor writes the derivative of a factor with a diagonal, an op with a graph of its own."""

    def step(c, r):
        factor = pt.linalg.cholesky(pt.eye(2) * (2.0 + c**2) + A**2)
        return pt.tanh(factor.sum()) + r, None

    return loopax.scan(step, A, X)[0]


@pytest.fixture
def graph():
    graph = FunctionGraph([X, A], [cholesky_in_a_step()], clone=True)
    import_graph(graph)
    return graph


@pytest.mark.slow
def test_derivatives_of_native_code_in_jax(graph):
    wrt = (0, 1)
    first = derivative_graphs.with_gradient(graph.inputs, graph.outputs, 0, wrt)
    assert not foreign(first)
    assert not foreign(derivative_graphs.with_pushforward(graph.inputs, graph.outputs, (0,), wrt))
    for derive in derivative_graphs.pushforward, derivative_graphs.pullback:
        assert not foreign(derive(first.inputs, first.outputs, (1, 2), wrt))


def test_derivatives_that_were_left_in_a_graph(graph):
    roots = list(graph.inputs)
    slopes = Grad.of(roots, roots, roots, graph.outputs)
    tangents = [v.type() for v in roots]
    moved = Pushforward.of(roots, roots, roots, slopes[1:], tangents)
    later = FunctionGraph([*roots, *tangents], [*slopes, *moved], clone=True)
    take_derivatives(later)
    assert not foreign(later)


class LoopsBack(SameType):
    """Twice its input; its pullback is a loop of PyTensor's."""

    def perform(self, node, inputs, outputs):
        outputs[0][0] = 2 * inputs[0]

    def pullback(self, inputs, outputs, cotangents):
        sums = pytensor.scan(
            lambda g, s: 2 * g + 0 * s,  # with a state, so that no pass makes it plain arithmetic
            sequences=[cotangents[0]],
            outputs_info=[pt.zeros(())],
            return_updates=False,
        )
        return [sums]


def test_the_pullback_that_an_op_brings_along():
    assert not foreign(PullbackRule(LoopsBack(), [X.type], import_graph).graph)
    f = loopax.jaxify([X], (LoopsBack()(X) ** 2).sum())
    with pytest.warns(UserWarning, match="no JAX conversion"):
        np.testing.assert_allclose(jax.grad(f)(np.ones(3)), [8.0, 8.0, 8.0])


@pytest.mark.slow
def test_values_and_derivatives():
    assert_agrees([X, A], [cholesky_in_a_step()], VALUES, grad_wrt=[X, A])
