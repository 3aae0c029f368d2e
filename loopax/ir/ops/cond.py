"""``Cond``: a lazy conditional.

Grammar, with ``p`` operands and ``n`` outputs::

    inputs   condition (a bool scalar), p operands
    body     [p operands] -> [n outputs where it is true, n outputs where it is false]
    outputs  n

Only the chosen branch is computed. The two branches are the halves of one inner graph, so that
rewriting, hashing and printing of inner graphs cover both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.tensor.type import TensorType

from loopax.base.upstream.pytensor import freeze
from loopax.ir.derivatives.inner_gradients import (
    connections,
    is_connected,
    is_float,
    is_null,
    pytensor_cotangents,
    zeros_for,
)
from loopax.ir.derivatives.traversal import pull_back, push_forward
from loopax.ir.evaluation.evaluate import own
from loopax.ir.evaluation.inner import CompiledBodies
from loopax.ir.ops.calling_convention import FLAG_TYPE
from loopax.ir.ops.inner_graph_op import Step
from loopax.ir.sequences import with_items


class Cond(CompiledBodies):
    """One of two branches.

    Parameters
    ----------
    body
        The frozen branches; see the grammar at the top of the file. The two halves have the same
        types, except for static shapes.
    name
        A name for printing, part of neither equality nor the hash.
    is_likely
        Whether nearly every call takes the first branch: native code keeps the other one short.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax.ir import Cond
    >>> x = pt.dscalar("x")
    >>> safe_log = Cond.from_branches([x], [pt.log(x)], [pt.zeros(())])
    >>> y = pt.dscalar("y")
    >>> safe_log.bind(y > 0, [y])[0].eval({y: -1.0})
    array(0.)
    """

    def __init__(
        self, body: FrozenFunctionGraph, name: str | None = None, is_likely: bool = False
    ) -> None:
        self.fgraph, self.name, self.is_likely = body, name, is_likely

    @classmethod
    def from_branches(
        cls,
        operands: Sequence[Variable],
        then: Sequence[Variable],
        otherwise: Sequence[Variable],
        name: str | None = None,
        is_likely: bool = False,
    ) -> Cond:
        """Build the Cond that computes ``then`` or ``otherwise`` from root variables ``operands``."""
        assert len(then) == len(otherwise), (then, otherwise)
        graph = FunctionGraph(list(operands), [*then, *otherwise], clone=True)
        cond = cls(freeze(graph), name, is_likely)
        cond.written = graph
        return cond

    def with_body(self, body: FrozenFunctionGraph) -> Cond:
        return type(self)(body, self.name, self.is_likely)

    def with_branches(
        self, operands: Sequence[Variable], then: Sequence[Variable], otherwise: Sequence[Variable]
    ) -> Cond:
        """Build a Cond as by `from_branches` that is otherwise like this one."""
        return self.from_branches(operands, then, otherwise, self.name, self.is_likely)

    def _key(self) -> tuple[Any, ...]:
        return (self.fgraph, self.is_likely)

    def __str__(self) -> str:
        return f"Cond{{{self.name or 'cond'}}}"

    @property
    def n_outs(self) -> int:
        return len(self.fgraph.outputs) // 2

    @cached_property
    def branches(self) -> tuple[FunctionGraph, FunctionGraph]:
        """The branch for True and the one for False, each ``[*operands] -> [*outputs]``."""
        body, n = self.unfrozen(), self.n_outs
        then, otherwise = body.outputs[:n], body.outputs[n:]
        branches = (FunctionGraph(body.inputs, outs, clone=True) for outs in (then, otherwise))
        return tuple(branches)  # type: ignore[return-value]

    def bind(self, condition: Variable, operands: Sequence[Variable]) -> list[Variable]:
        """Apply the Cond; return its outputs as a list."""
        return list(self.make_node(condition, *operands).outputs)

    def make_node(self, condition: Variable, *operands: Variable) -> Apply:
        inner = self.fgraph.inputs
        if len(operands) != len(inner):
            raise TypeError(f"{self} takes {len(inner)} operands, got {len(operands)}")
        typed_operands = [v.type.filter_variable(x) for v, x in zip(inner, operands, strict=True)]
        condition = FLAG_TYPE.filter_variable(pt.as_tensor(condition))
        outs, n = self.fgraph.outputs, self.n_outs
        types = [_either(a.type, b.type) for a, b in zip(outs[:n], outs[n:], strict=True)]
        return Apply(self, [condition, *typed_operands], [t() for t in types])

    @property
    def bodies(self) -> Sequence[Any]:
        return self.branches

    def run(self, inputs: Sequence[Any], *steps: Step) -> list[Any]:
        condition, *operands = inputs
        outs = steps[0 if condition else 1](*operands)
        return [own(value) for value in outs]  # a branch may return an operand itself

    def shapes_of(self, node: Apply, shapes: Sequence[Sequence[Variable] | None]) -> list[Any]:
        # A shape may differ between the branches: it is the result's.
        from pytensor.tensor.shape import Shape_i

        ranks = [getattr(out.type, "ndim", None) for out in node.outputs]
        return [
            None if ndim is None else tuple(Shape_i(k)(out) for k in range(ndim))
            for out, ndim in zip(node.outputs, ranks, strict=True)
        ]

    # -- derivatives -----------------------------------------------------------------------------

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        body = self.unfrozen()
        n = self.n_outs
        rows = connections(body.inputs, body.outputs)
        either = [[a or b for a, b in zip(r[:n], r[n:], strict=True)] for r in rows]
        return [[False] * n, *either]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """A Cond of the pullbacks of the branches."""
        body, n = self.unfrozen(), self.n_outs
        seeded = [k for k, g in enumerate(cotangents) if is_connected(g) and is_float(outputs[k])]
        dummies = [outputs[k].type() for k in seeded]
        branches = [
            pull_back(body.inputs, [body.outputs[offset + k] for k in seeded], dummies)
            for offset in (0, n)
        ]
        in_cotangents: list[Any] = [None] * len(body.inputs)
        reached = []
        for k, (a, b) in enumerate(zip(*branches, strict=True)):
            if is_null(a) or is_null(b):
                in_cotangents[k] = a if is_null(a) else b
            elif a is not None or b is not None:
                reached.append(k)
        then, otherwise = [
            [zeros_for(body.inputs[k]) if branch[k] is None else branch[k] for k in reached]
            for branch in branches
        ]
        name = f"pullback of {self.name or 'cond'}"
        derived = Cond.from_branches([*body.inputs, *dummies], then, otherwise, name)
        if reached:
            bound = derived.bind(inputs[0], [*inputs[1:], *(cotangents[k] for k in seeded)])
            in_cotangents = with_items(in_cotangents, reached, bound)
        return pytensor_cotangents(self, inputs, outputs, cotangents, [None, *in_cotangents])

    def pushforward(
        self, inputs: Sequence[Any], outputs: Sequence[Variable], tangents: Sequence[Any]
    ) -> list[Any]:
        """A Cond of the pushforwards of the branches."""
        body, n = self.unfrozen(), self.n_outs
        dots = {
            v: v.type()
            for v, t in zip(body.inputs, tangents[1:], strict=True)
            if is_connected(t) and is_float(v)
        }
        out_tangents = push_forward(body.inputs, body.outputs, [dots.get(v) for v in body.inputs])
        moving = [
            k for k in range(n) if out_tangents[k] is not None or out_tangents[n + k] is not None
        ]
        then, otherwise = [
            [
                zeros_for(body.outputs[k]) if out_tangents[k] is None else out_tangents[k]
                for k in branch
            ]
            for branch in (moving, [n + k for k in moving])
        ]
        name = f"pushforward of {self.name or 'cond'}"
        derived = Cond.from_branches([*body.inputs, *dots.values()], then, otherwise, name)
        if not moving:
            return [disconnected_type()] * n
        seeds = [
            t.astype(x.type.dtype)
            for v, x, t in zip(body.inputs, inputs[1:], tangents[1:], strict=True)
            if v in dots
        ]
        bound = derived.bind(inputs[0], [*inputs[1:], *seeds])
        return with_items([disconnected_type()] * n, moving, bound)


def _either(a: Any, b: Any) -> Any:
    """A type that covers ``a`` and ``b``, which differ at most in their static shapes."""
    if a == b or a.is_super(b):
        return a
    if b.is_super(a) or not isinstance(a, TensorType):
        return b
    return a.clone(
        shape=tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True))
    )
