"""Estimate of the share of each node in the time of a program, from its graph alone.

    time of a node  =  entries of its largest output  x  nanoseconds for each
    time of a loop  =  steps  x  time of its body

The nanoseconds are measurements from `loopax.facts`. A length that is unknown counts as
`UNKNOWN_LENGTH`; in a body, lengths come from the operands of the loop.

Known shortcomings: the estimate ignores fusion by XLA or Numba and the cost of memory, so shares are
right to a factor of two or so. A loop that may stop counts with its largest number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from loopax.facts.costs import ARRAY, COPY, UNKNOWN_LENGTH, WRITE, lapack_cost_of, product
from loopax.facts.elementwise import scalar_op_of
from loopax.facts.scalars import nanoseconds
from loopax.ir import Cond, Scan
from loopax.ir.ops.inner_graph_op import core_of
from loopax.ir.sizes import Clipped, DimExpr, Dims, Length
from loopax.lowering.bodies import with_body

if TYPE_CHECKING:
    from loopax.ir.sizes.dim_expr import DimVariable

_READS = (DimShuffle, Reshape, Subtensor, Shape, Shape_i)  # arithmetic on positions
_PRODUCTS = (Dot, BatchedDot)

LengthOf = Callable[[Any], float]  # of a dimension variable


def expected_times(graph: AbstractFunctionGraph) -> dict[Apply, float]:
    """Estimate the nanoseconds of each node of ``graph``."""
    return _times(graph, lambda variable: float(UNKNOWN_LENGTH))


def _times(graph: AbstractFunctionGraph, length_of: LengthOf) -> dict[Apply, float]:
    dims = Dims()

    def number(expr: DimExpr) -> float:
        """The value of ``expr``, at least 1, so that an empty loop keeps a share."""
        terms = (k * value(variable) for variable, k in expr.terms)
        return max(1.0, expr.offset + sum(terms))

    def value(variable: DimVariable) -> float:
        if isinstance(variable, Clipped):
            choose = max if variable.largest else min
            return choose(number(variable.a), number(variable.b))
        return length_of(variable)

    def shape(v: Variable) -> list[float]:
        return [number(dims.length(v, axis)) for axis in range(getattr(v.type, "ndim", 0))]

    def time(node: Apply) -> float:
        body = with_body(node.op)
        if body is None:
            return _time_of_op(node, shape)
        inner = body.fgraph
        if isinstance(body, Scan):
            n_steps = node.inputs[0]  # a vector in a batch of loops
            steps = UNKNOWN_LENGTH if n_steps.type.ndim else number(dims.value(n_steps))
            return steps * _total(inner, _in_step(body, node, shape))
        shapes = zip(inner.inputs, map(shape, node.inputs[-len(inner.inputs) :]), strict=False)
        return _total(inner, _from(dict(shapes))) / (
            2 if isinstance(body, Cond) else 1
        )  # one branch

    return {node: time(node) for node in graph.toposort()}


def _total(graph: AbstractFunctionGraph, length_of: LengthOf) -> float:
    return sum(_times(graph, length_of).values())


def _in_step(op: Scan, node: Apply, shape: Callable[[Any], list[float]]) -> LengthOf:
    """The lengths of the inputs of a step: rows of sequences, and whole states and constants."""
    outer = op.split_inputs(node.inputs)
    rows = [shape(x)[1:] for x in outer.sequences]
    whole = [shape(x) for x in (*outer.states, *outer.consts)]
    return _from(dict(zip(op.fgraph.inputs[1:], [*rows, *whole], strict=True)))


def _from(shapes: dict[Variable, list[float]]) -> LengthOf:
    def length_of(variable: Length) -> float:
        if isinstance(variable, Length) and len(shapes.get(variable.of, ())) > variable.axis:
            return shapes[variable.of][variable.axis]
        return float(UNKNOWN_LENGTH)

    return length_of


def _time_of_op(node: Apply, shape: Callable[[Any], list[float]]) -> float:
    """Nanoseconds of an op without a body."""
    op: Any = node.op
    core = core_of(op)
    sizes = [math.prod(shape(v)) for v in node.outputs]
    entries = max(sizes, default=1.0)
    if isinstance(op, _READS):
        return 0.0
    if (function := scalar_op_of(op)) is not None:
        return ARRAY + entries * nanoseconds(function)
    shapes = [shape(v) for v in node.inputs]
    if isinstance(core, _PRODUCTS):
        return product(entries, (shapes[0][-1:] or [1.0])[0])
    if (lapack := lapack_cost_of(core)) is not None:
        return lapack.for_arrays(shapes)
    if isinstance(op, CAReduce):
        return ARRAY + COPY * math.prod(shapes[0])
    return ARRAY + WRITE * entries
