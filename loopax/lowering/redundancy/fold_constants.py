"""Values that depend on constants alone -> constants: ``sin(tile([1, 2], 1000))``.

Condition: the ops are PyTensor's or ours and have no effect: no draws, no prints, no loops (one with
constant operands may run for long, or forever). An op that raises stays, so that the error comes when the
program runs.

A result is kept where it has at most `FREE` bytes, or at most `FACTOR` times the bytes of the constants
behind it, which it replaces. Otherwise it stays in the program, and its operands are considered instead.
Results that cost nothing to make stay, too: fills, ranges, and views of something else.

Reason: PyTensor's rewrites, in `stabilize`, fold constants too, up to `FREE` bytes (`bounded_folding`), but
no fill that an elementwise op reads, and so nothing computed from one: `tile` consists of them, and the
basis of a spectral Gaussian process uses `tile`. XLA folds no large constant. JAX's static stage would
compute constants below a few thousand elements at each trace.

In the literature: constant folding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc, ARange, Eye
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Structure, facts_of
from loopax.facts.shapes import requested_size
from loopax.ir.effects import may_be_folded
from loopax.ir.evaluation.evaluate import apply
from loopax.lowering.bodies import map_bodies
from loopax.lowering.notes import note

FREE = 16 * 2**20  # bytes of a result that is always kept
FACTOR = 4
_PASSING = 2**28  # bytes of an intermediate result that is not kept

_LITTLE = (Alloc, ARange, Eye, DimShuffle, Reshape, Subtensor, Shape, Shape_i, SpecifyShape)


def fold_constants(graph: FunctionGraph) -> None:
    """Replace values that depend on constants alone by constants, in place, in the bodies of loops too."""
    values = known_values(graph, {})
    kept = list(kept_values(graph, values)) if values else []
    for v in kept:
        new = v.type.clone(shape=values[v].shape).constant_type(v.type, values[v], name=v.name)
        graph.replace(v, new, reason="fold_constants")
    map_bodies(graph, fold_constants, where=_has_constant_nodes)


def known_values(graph: AbstractFunctionGraph, inputs: dict[Variable, Any]) -> dict[Variable, Any]:
    """The computable values that depend on ``inputs`` and constants alone, including ``inputs``."""
    values = dict(inputs)
    for node in graph.toposort():
        if not _is_constant(node, values) or not may_be_folded(node):
            continue
        operands = [v.data if isinstance(v, Constant) else values[v] for v in node.inputs]
        if bytes_made(node, operands) > _PASSING:
            continue
        try:
            with np.errstate(all="ignore"):  # as in the program: a NaN is a value
                outs = apply(node, operands)
        except Exception:  # the program raises it, if it gets there
            continue
        values.update(zip(node.outputs, outs, strict=True))
    return values


def _is_constant(node: Apply, values: dict[Variable, Any]) -> bool:
    return bool(node.inputs) and all(isinstance(v, Constant) or v in values for v in node.inputs)


def _has_constant_nodes(body: AbstractFunctionGraph) -> bool:
    return any(
        isinstance(node.op, HasInnerGraph | Blockwise) or _is_constant(node, {})
        for node in body.apply_nodes
    )


def bytes_made(node: Apply, operands: list[Any]) -> float:
    """The bytes of the outputs of a node, estimated from its op and its operands."""
    size = float(np.dtype(getattr(node.outputs[0].type, "dtype", "float64")).itemsize)
    if (n := requested_size(node.op, operands)) is not None:
        return size * n
    if facts_of(node.op).structure is Structure.ELEMENTWISE:
        lengths = zip(*(np.shape(x) for x in operands), strict=True)
        return size * float(np.prod([float(max(n)) for n in lengths]))
    return size * float(
        np.prod([float(n or 1) for n in getattr(node.outputs[0].type, "shape", ())])
    )


def kept_values(graph: FunctionGraph, values: dict[Variable, Any]) -> Iterator[Variable]:
    """The computed ``values`` to keep: values that something else reads, within the budget.

    They come in reverse order of computation.
    """
    needed = {v for v in graph.outputs if v in values}
    parts: set[Variable] = set()  # operands of a constant that is too large; only that one is noted
    for node in reversed(list(graph.toposort())):
        mine = [v for v in node.outputs if v in values]
        if not mine:
            needed.update(v for v in node.inputs if v in values)
            continue
        read = [v for v in mine if v in needed]
        if all(_is_worth_it(v, values) for v in read):
            yield from read
        else:
            for v in read:
                if v not in parts:
                    _note_if_large(v, values[v])
            parts.update(node.inputs)
            needed.update(v for v in node.inputs if v in values)


def _is_worth_it(v: Variable, values: dict[Variable, Any]) -> bool:
    value = values[v]
    if not isinstance(v.type, DenseTensorType) or isinstance(v.owner.op, _LITTLE):
        return False
    return value.nbytes <= FREE or value.nbytes <= FACTOR * _bytes_behind(v, values)


def _note_if_large(v: Variable, value: np.ndarray | np.generic) -> None:
    if isinstance(v.type, DenseTensorType) and value.nbytes > FREE:
        shape = " x ".join(map(str, value.shape))
        note(
            f"{v.owner.op} of constants alone, {shape}: {value.nbytes / 2**20:.0f} MB are computed in the "
            f"program, and no constant of more than {FREE // 2**20} MB is kept of them"
        )


def _bytes_behind(v: Variable, values: dict[Variable, Any]) -> int:
    """The bytes of all constants and inputs that ``v`` depends on."""
    return sum(
        getattr(u.data if isinstance(u, Constant) else values.get(u), "nbytes", 0)
        for u in ancestors([v])
        if u.owner is None
    )
