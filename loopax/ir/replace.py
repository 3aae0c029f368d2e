"""Replacement of variables of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.traversal import toposort

from loopax.base.upstream.pytensor import copy_origin, thaw


def outputs_at(graph: FrozenFunctionGraph, inputs: Sequence[Variable]) -> list[Any]:
    """The outputs of ``graph``, an inner graph of an op, with ``inputs`` substituted."""
    body = thaw(graph)
    return replaced(body.outputs, dict(zip(body.inputs, inputs, strict=True)))


def replaced(
    outputs: Sequence[Any], replace: Mapping[Any, Any], roots: Sequence[Any] = ()
) -> list[Any]:
    """Rebuild ``outputs`` with some ancestors replaced; the search ends at ``roots``.

    PyTensor's `clone_replace` copies the replacements and their ancestors too: derivatives with
    respect to a replacement are lost, and its ancestors are duplicated. Here replacements stay the
    same variables; only nodes that depend on them are rebuilt.
    """
    replacements = {original: v for original, v in replace.items() if original is not v}
    for node in toposort(outputs, blockers=[*replacements, *roots]):
        if any(v in replacements for v in node.inputs):
            copy = applied_to(node, [replacements.get(v, v) for v in node.inputs])
            replacements.update(zip(node.outputs, copy.outputs, strict=True))
    return [replacements.get(v, v) for v in outputs]


def applied_to(node: Apply, inputs: Sequence[Any]) -> Apply:
    """Apply the op of ``node`` to ``inputs``, keeping the output types where the input types are equal.

    Otherwise types that the op derived from the ancestors of an input would be lost, as in
    ``reshape(x, (n, 1))``.
    """
    if all(v.type == x.type for v, x in zip(node.inputs, inputs, strict=True)):
        applied = Apply(node.op, list(inputs), [v.type.make_variable() for v in node.outputs])
    else:
        applied = node.op.make_node(*inputs)  # a frozen node has no clone_with_new_inputs
    for source, target in zip(node.outputs, applied.outputs, strict=True):
        copy_origin(source, target)
    return applied
