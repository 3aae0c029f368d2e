"""Variables of a graph replaced by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.traversal import toposort

from loopax.base.upstream.pytensor import copy_origin, thaw


def outputs_at(graph: Any, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of ``graph``, the inner one of an op, with ``inputs`` in the place of its own."""
    body = thaw(graph)
    return replaced(body.outputs, dict(zip(body.inputs, inputs, strict=True)))


def replaced(outputs: Sequence[Any], replace: Mapping[Any, Any]) -> list[Any]:
    """``outputs``, with some of the variables that they follow from replaced.

    PyTensor's `clone_replace` copies the replacements too, and all that those follow from: nothing can
    be differentiated with respect to one of them any more, and what is behind them is there twice. Here
    they stay the variables that they are; only what depends on them is made anew.
    """
    new = {old: v for old, v in replace.items() if old is not v}
    for node in toposort(outputs, blockers=[*new]):
        if any(v in new for v in node.inputs):
            made = applied_to(node, [new.get(v, v) for v in node.inputs])
            new.update(zip(node.outputs, made.outputs, strict=True))
    return [new.get(v, v) for v in outputs]


def applied_to(node: Apply, inputs: Sequence[Any]) -> Apply:
    """The op of ``node`` on ``inputs``. Where these are of the same types, so are the outputs.

    Else a type would be lost that the op has read off how an input is made, as of ``reshape(x, (n, 1))``.
    """
    if all(v.type == x.type for v, x in zip(node.inputs, inputs, strict=True)):
        made = Apply(node.op, list(inputs), [v.type.make_variable() for v in node.outputs])
    else:
        made = node.clone_with_new_inputs(list(inputs), strict=False)
    for old, new in zip(node.outputs, made.outputs, strict=True):
        copy_origin(old, new)
    return made
