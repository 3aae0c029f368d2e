"""An op that makes a length, all of which is said here: its conversion, and its rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify

from loopax import jaxify, scan
from loopax.facts import OpFacts, Structure, register
from loopax.ir import Scan
from loopax.ir.sizes import DimExpr, Dims, length_rule
from loopax.jax_backend.staging.registry import trace_rule
from loopax.jax_backend.values.padded_array import PaddedArray
from loopax.lowering import lower

ROOM = 8


class Ramp(Op):
    """``n -> [0, 1/2, 1, ...]``, ``n`` numbers."""

    __props__ = ()

    def make_node(self, n):
        return Apply(self, [pt.as_tensor(n)], [pt.dvector()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.arange(max(inputs[0], 0)) / 2


@length_rule.register(Ramp)
def _length(op, dims, node, x, axis):
    return dims.clipped(True, dims.value(node.inputs[0]), DimExpr())


register(Ramp, OpFacts(structure=Structure.MAKES, lengths=lambda node: node.inputs))


@jax_funcify.register(Ramp)
def _ramp(op, **kwargs):
    return lambda n: jnp.arange(int(n)) / 2


@trace_rule(Ramp)
def _open_ramp(site, n):
    return PaddedArray(jnp.arange(ROOM) / 2, jnp.maximum(n, 0)).repeated()


x, n = pt.dvector("x"), pt.lscalar("n")


def test_its_length_is_known_to_the_analysis():
    dims = Dims()
    assert dims.length(Ramp()(x.shape[0] + 1)) == dims.length(x) + 1
    assert dims.length(Ramp()(n)) != dims.value(n)  # which may be negative


def test_loops_over_it_and_over_what_is_as_long_are_one():
    _, ones = scan(lambda c, r: (c + r, c * r), pt.constant(0.0), x)
    _, twos = scan(lambda c, r: (c * r + 1, c - r), pt.constant(1.0), Ramp()(x.shape[0]))
    outputs = [ones, twos]
    graph = FunctionGraph([x], outputs, clone=True)
    lower(graph)
    assert len([node for node in graph.apply_nodes if isinstance(node.op, Scan)]) == 1
    f = jaxify([x], outputs)
    values = np.asarray([1.0, -2.0, 3.0])
    c, d, wanted = 0.0, 1.0, ([], [])
    for r, q in zip(values, np.arange(3) / 2, strict=True):
        wanted[0].append(c * r)
        wanted[1].append(d - q)
        c, d = c + r, d * q + 1
    np.testing.assert_allclose(f(values), wanted)


def test_a_length_that_is_traced_is_left_open():
    f = jaxify([n], Ramp()(pt.minimum(n, ROOM)).sum())
    for k in (0, 3, 10):
        assert jax.jit(f)(k) == np.sum(np.arange(min(k, ROOM)) / 2)
