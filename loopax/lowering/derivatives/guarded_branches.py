"""Give branches of a ``switch`` finite derivatives where they are not taken, for JAX's derivatives.

    switch(x > 0, log(x), 0)  ->  switch(x > 0, log(masked_tangent(x, x > 0)), 0)

JAX multiplies the zero cotangent of a branch that is not taken by that branch's derivative. Where this is
infinite or NaN, as for ``log`` at 0 or at missing data, so is the product. The mask makes it 0 again.
Values stay as they are, and a program that is not differentiated is no slower.

An operand is masked where no output needs the function's value. The tests of all later switches determine
where that is, as for the derivatives that loopax takes itself: see `loopax.ir.derivatives.supports`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.gradient import DisconnectedGrad, ZeroGrad
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Structure, facts_of
from loopax.facts.elementwise import is_elementwise
from loopax.facts.scalars import is_float, is_real
from loopax.ir.derivatives.supports import (
    EVERYWHERE,
    Support,
    all_or_nothing,
    broadcast_axes,
    of_branches,
    supports_of_inputs,
)
from loopax.ir.derivatives.traversal import moving_variables
from loopax.ir.derivatives.unbounded_slopes import UnboundedSlopes
from loopax.ir.ops.inner_graph_op import InnerGraphOp, core_of
from loopax.ir.ops.masked_tangent import masked_tangent
from loopax.ir.ops.scan import Scan
from loopax.ir.replace import applied_to, replaced
from loopax.ir.shapes import filled, symbolic_shape


def guard_branches(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """Rebuild ``outputs``, computed from ``inputs``, with the operands in branches guarded."""
    nodes = list(toposort(outputs, blockers=inputs))
    return _Guard(inputs, outputs, nodes).guarded() if _have_switch(nodes) else list(outputs)


class _Guard:
    """The supports of the cotangents in a graph, by variable and by operand."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], nodes: list[Apply]) -> None:
        self._inputs, self._nodes, self._outputs = inputs, nodes, outputs
        self._moving = moving_variables(inputs, nodes)
        self._slopes = UnboundedSlopes(inputs, nodes, self._moving)
        # For variables with a derivative that reaches an output.
        self._supports: dict[Any, Support] = {v: EVERYWHERE for v in outputs if v in self._moving}
        self._of_operands: dict[Apply, list[Support | None]] = {}
        # Variables whose values a test needs: ancestors of the conditions, and of indices and lengths by
        # which a test goes to the operands of a node.
        self._tested: set[Any] = set()
        for node in reversed(nodes):
            self._add(node)

    def _add(self, node: Apply) -> None:
        """Add the supports of the cotangents that ``node`` propagates to its inputs."""
        needed = [v for v in node.outputs if v in self._supports]
        if not (self._tested.isdisjoint(node.outputs) or isinstance(node.op, Shape | Shape_i)):
            self._tested.update(node.inputs)
        if not needed or isinstance(node.op, DisconnectedGrad | ZeroGrad):
            return
        own = self._of_operands[node] = self._through(node, [self._supports[v] for v in needed])
        if is_elementwise(node, ps.Switch):
            self._tested.add(node.inputs[0])
        elif not is_elementwise(node) and any(s and s.tests and not s.is_whole for s in own):
            self._tested.update(v for v in node.inputs if v not in self._moving)
        within = _supports_in_body(node)
        for k, (v, support) in enumerate(zip(node.inputs, own, strict=True)):
            if v in self._moving and support is not None:
                part = _of_operand(v, node, support) if support.tests else within.get(k, support)
                before = self._supports.get(v)
                self._supports[v] = part if before is None else before.union(part)

    def support(self, v: Any) -> Support:
        """The region where the cotangent of ``v`` may be nonzero."""
        return self._supports.get(v, EVERYWHERE)

    def _through(self, node: Apply, supports: Sequence[Support]) -> list[Support | None]:
        """The supports at the operands of ``node``; for an elementwise op, before broadcasting."""
        y = node.outputs[0]
        floats = [v for v in (*node.inputs, *node.outputs) if v in self._moving]
        is_array = all(isinstance(v.type, DenseTensorType) for v in floats)
        if is_array and is_elementwise(node, ps.Switch):
            return of_branches(node, supports[0], self._slopes.tells_of_gaps(node.inputs[0]))
        if not all(s.tests for s in supports) or not is_array or self._would_run_twice(node):
            return [EVERYWHERE] * len(node.inputs)
        if is_elementwise(node) and len(node.outputs) == 1:
            return [supports[0]] * len(node.inputs)
        if len(node.outputs) > 1 or not is_real(y) or _writes_at_mask(node):
            return list(all_or_nothing(node, supports))
        return list(supports_of_inputs(node, supports[0]))

    def _would_run_twice(self, node: Apply) -> bool:
        """Whether XLA would run ``node`` once for a condition and again for the operands that it guards."""
        return _is_costly(node) and not self._tested.isdisjoint(node.outputs)

    def guarded(self) -> list[Any]:
        """Rebuild the outputs from operands that have no derivative outside their supports."""
        masked = self._masked_operands()
        copies: dict[Any, Any] = {}
        # Variables whose copies have other values where no reader needs them.
        changed: set[Any] = set()
        operands: dict[Any, Any] = {}
        # Ancestors of the tests: their copies where these exist by then, since they run anyway.
        known = self._shapes_alone() if masked else {}
        for node in self._nodes:
            own = self._of_operands.get(node, [None] * len(node.inputs))
            # An operand without a derivative, such as a condition, needs all values.
            inputs = [
                v if support is None and v in changed else copies.get(v, v)
                for v, support in zip(node.inputs, own, strict=True)
            ]
            is_changed = any(
                v in changed and x is not v for v, x in zip(node.inputs, inputs, strict=True)
            )
            for k, support in masked.get(node, {}).items():
                has_value = not self._adds_up_gaps(node, support)
                key = inputs[k], support.tests, has_value
                if key not in operands:
                    test = _computed_of(known, support.test)
                    operands[key] = _masked(inputs[k], test, has_value)
                inputs[k] = operands[key]
                is_changed |= not has_value
            if any(x is not v for x, v in zip(inputs, node.inputs, strict=True)):
                own_copies = dict(zip(node.outputs, applied_to(node, inputs).outputs, strict=True))
                copies |= own_copies
                if is_changed:
                    changed |= own_copies.keys()
                else:
                    known |= own_copies
        return [copies.get(v, v) for v in self._outputs]

    def _shapes_alone(self) -> dict[Any, Any]:
        """Zeros in place of loops for masks that read only their shapes: the loops need not be run."""
        results = [
            v
            for node, own in self._of_operands.items()
            if _is_costly(node) and _has_tests(own)
            for v in node.outputs
            if isinstance(v.type, DenseTensorType)
        ]
        # Of a copy: PyTensor cannot clone the nodes of a step, which are frozen.
        copies: dict[Any, Any] = {}
        for node in toposort(results, blockers=self._inputs):
            operands = [copies.get(v, v) for v in node.inputs]
            copy = Apply(node.op, operands, [v.type() for v in node.outputs])
            copies.update(zip(node.outputs, copy.outputs, strict=True))
        shapes = infer_shape(
            [copies[v] for v in results], self._inputs, [symbolic_shape(v) for v in self._inputs]
        )
        originals = {copy: v for v, copy in copies.items()}
        # `filled`: `pt.zeros` rewrites the graph of the lengths in place, and the frozen nodes in it are
        # those of all programs of the process.
        return {
            v: v.type.filter_variable(
                filled(pt.zeros((), v.type.dtype), replaced(shape, originals))
            )
            for v, shape in zip(results, shapes, strict=True)
        }

    def _masked_operands(self) -> dict[Apply, dict[int, Support]]:
        """The operands to mask, by node and position.

        In a chain of elementwise functions only the first operand is masked, if nothing else needs its
        elements: a NaN propagates back through elementwise functions up to that mask.
        """
        masked: dict[Apply, dict[int, Support]] = {}
        spoiled: set[Any] = set()  # variables whose cotangents may be NaN outside their supports
        for node in reversed(self._nodes):
            own = self._of_operands.get(node, ())
            if not _has_tests(own):
                continue
            if not (self._is_unbounded(node) or any(v in spoiled for v in node.outputs)):
                continue
            for k, (v, support) in enumerate(zip(node.inputs, own, strict=True)):
                if support is None or not support.tests or not is_float(v):
                    continue
                if self._ends_in_front_of(node, v, support):
                    spoiled.add(v)
                elif v in self._moving or self._adds_up_gaps(node, support):
                    masked.setdefault(node, {})[k] = support
        return masked

    def _ends_in_front_of(self, node: Apply, v: Variable, support: Support) -> bool:
        """Whether the function that computes ``v`` can mask its own operands instead of ``node``."""
        return (
            v in self._moving
            and _has_tests(self._of_operands.get(v.owner, ()))
            and self._supports[v].tests == support.tests
            and (support.is_whole or (is_elementwise(node) and is_elementwise(v.owner)))
            and (support.is_whole or not broadcast_axes(v, node.outputs[0].type))
        )

    def _is_unbounded(self, node: Apply) -> bool:
        return self._slopes.is_singular(node) or self._slopes.reads_values(node)

    def _adds_up_gaps(self, node: Apply, support: Support) -> bool:
        """Whether a sum mixes entries whose slopes may be NaN with entries of other rows."""
        is_sum = facts_of(node.op).structure is Structure.CONTRACTS and not support.is_whole
        return is_sum and (
            self._slopes.is_singular(node) or (support.has_gaps and self._slopes.reads_values(node))
        )


def _has_tests(supports: Iterable[Support | None]) -> bool:
    return any(s is not None and s.tests for s in supports)


def _is_costly(node: Apply) -> bool:
    """Whether ``node`` is a loop, a call or a draw: XLA does not merge two of these with equal operands."""
    return isinstance(core_of(node.op), InnerGraphOp | RandomVariable)


def _writes_at_mask(node: Apply) -> bool:
    """Whether the pullback reads entries at a mask: loops in JAX do not allow their varying number."""
    is_write = isinstance(node.op, AdvancedIncSubtensor)
    return is_write and any(getattr(v.type, "dtype", None) == "bool" for v in node.inputs[2:])


def _have_switch(nodes: Iterable[Apply]) -> bool:
    """Whether ``nodes``, or the steps of loops among them, contain a ``switch``."""
    return any(
        is_elementwise(node, ps.Switch)
        or (isinstance(node.op, Scan) and _have_switch(node.op.fgraph.toposort()))
        for node in nodes
    )


def _supports_in_body(node: Apply) -> dict[int, Support]:
    """The supports of the cotangents of loop constants, from the switches in the step, by position.

    A test in the step that depends on constants alone is the same at every step.
    """
    op = node.op
    if not isinstance(op, Scan):
        return {}
    body, inner, outer = op.fgraph, op.args.consts, op.split_inputs(node.inputs).consts
    nodes = list(body.toposort())
    if not outer or not _have_switch(nodes):
        return {}
    guard = _Guard(body.inputs, body.outputs, nodes)
    supports = {}
    for k, c in enumerate(inner, len(node.inputs) - len(outer)):
        support = guard.support(c)
        tests = [test for test, _ in support.tests]
        roots = (v for v in graph_inputs(tests) if not isinstance(v, Constant))
        if tests and all(v in inner for v in roots):
            values = replaced(tests, dict(zip(inner, outer, strict=True)))
            pairs = zip(values, support.tests, strict=True)
            supports[k] = Support(
                tuple((x, is_true) for x, (_, is_true) in pairs), support.has_gaps
            )
    return supports


def _computed_of(known: dict[Any, Any], v: Any) -> Any:
    """Compute ``v`` from the copies in ``known``, and add the new intermediate results to ``known``."""
    for node in toposort([v], blockers=list(known)):
        inputs = [known.get(u, u) for u in node.inputs]
        is_copy = any(x is not u for x, u in zip(inputs, node.inputs, strict=True))
        outputs = applied_to(node, inputs).outputs if is_copy else node.outputs
        known.update(zip(node.outputs, outputs, strict=True))
    return known.get(v, v)


def _masked(x: Any, test: Any, has_value: bool) -> Any:
    """Drop the derivative of ``x`` where ``test`` is false; unless ``has_value``, the value too."""
    return masked_tangent(x, test) if has_value else pt.switch(test, x, pt.ones_like(x))


def _of_operand(v: Any, node: Apply, support: Support) -> Support:
    """The support of the cotangent of ``v``, given its support as an operand of ``node``."""
    if not support.tests or not is_elementwise(node):
        return support
    axes = broadcast_axes(v, node.outputs[0].type)
    return support.projected(axes) if axes else support
