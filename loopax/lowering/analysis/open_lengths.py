"""Arrays whose lengths are known only when a program runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.traversal import walk
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import discrete_dtypes

from loopax.facts import Work, facts_of
from loopax.facts.elementwise import scalar_op_of
from loopax.ir import Scan
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.sizes import DimExpr, Length, masks_of


def has_open_lengths(graph: AbstractFunctionGraph) -> bool:
    """Whether an array may have a length that is known only when the program runs.

    Such lengths come from the trace of a loop that stops, from the number of True entries of a mask, or
    are computed and have a bound. In JAX such an array is padded, only a few ops accept it, and what does
    not fit becomes NaN: nothing can raise then.
    """
    for node in graph.apply_nodes:
        op: Any = node.op
        scalar_op = scalar_op_of(op)
        if masks_of(node) or (isinstance(op, Scan) and op.stops):
            return True
        if isinstance(scalar_op, ps.ScalarMinimum | ps.Clip | ps.Switch):
            v: Any = node.outputs[0]
            if not v.type.ndim and v.type.dtype in discrete_dtypes and not _follows_from_shapes(v):
                return True
        elif isinstance(op, InnerGraphOp) and has_open_lengths(op.fgraph):
            return True
    return False


def _follows_from_shapes(v: Variable) -> bool:
    """Whether the integer ``v`` is computed from array lengths alone."""

    def inputs(v: Variable) -> list[Any]:
        if v.owner is None or isinstance(v.owner.op, Shape | Shape_i):
            return []
        return [u for u in v.owner.inputs if not isinstance(u, Constant)]

    read = walk([v], inputs)
    return all(
        u.owner is not None
        and (facts_of(u.owner.op).work < Work.ARRAY or isinstance(u.owner.op, CheckAndRaise))
        for u in read
    )


class KnownLengths(NamedTuple):
    """The lengths that a backend knows: all, or only those derived from the program's ``inputs``."""

    all: bool
    inputs: frozenset[Variable]

    @classmethod
    def at(cls, graph: FunctionGraph) -> KnownLengths:
        """The lengths that a backend knows in the program ``graph``."""
        return cls(not has_open_lengths(graph), frozenset(graph.inputs))

    def inside(self) -> KnownLengths:
        """The lengths known inside a body, whose inputs are not inputs of the program."""
        return self._replace(inputs=frozenset())

    def covers(self, expr: DimExpr) -> bool:
        roots = [
            variable.of if isinstance(variable, Length) else variable for variable, _ in expr.terms
        ]
        return self.all or all(isinstance(v, Variable) and v in self.inputs for v in roots)
