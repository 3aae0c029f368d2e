"""Gradients of writes at repeated indices in PyTensor's own modes, whose rewrites would get them wrong."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.fg import FunctionGraph

import loopax
from loopax.lowering.derivatives.copy_writes import copy_writes

REPEATED = np.array([0, 0, 1])
X = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "LOOPAX_NUMBA"])
def test_an_element_that_is_overwritten_has_no_gradient(mode, is_constant):
    x, index = pt.dvector("x"), pt.lvector("index")
    at = pt.constant(REPEATED) if is_constant else index

    def cost(x):
        return (pt.set_subtensor(pt.zeros(3)[at], x) * [1.0, 2.0, 3.0]).sum()

    options = {"mode": mode, "on_unused_input": "ignore"}
    slope = pytensor.function([x, index], loopax.grad(cost)(x), **options)
    np.testing.assert_array_equal(slope(X, REPEATED), [0, 1, 2])


@pytest.mark.parametrize(("index", "copies"), [([0, 0, 1], 1), ([2, 0, 1], 0), ([0, -3, 1], 1)])
def test_reads_of_writes_that_may_repeat(index, copies):
    x, index = pt.dvector("x"), pt.constant(np.array(index))
    read = pt.set_subtensor(pt.zeros(3)[index], x)[index]
    graph = FunctionGraph([x], [read], clone=False)
    copy_writes(graph, users={read.owner})
    assert not any(isinstance(node.op, DeepCopyOp) for node in graph.apply_nodes)
    copy_writes(graph, users=())
    assert sum(isinstance(node.op, DeepCopyOp) for node in graph.apply_nodes) == copies
