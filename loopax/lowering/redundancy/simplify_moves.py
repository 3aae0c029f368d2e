"""Remove moves of elements that undo each other, or move nothing.

    x.T.T, x[:, None][:, 0], specify_shape(x, 3) of three elements  ->  x
    x.dimshuffle(...).dimshuffle(...)                                 ->  one dimshuffle

Condition: for an index or a check of lengths, the lengths are static.

Reason: native code reads an array in place; after a move it may have to copy it, for a product, a solve or
the caller. JAX programs have such moves around each batch, PyTensor's derivatives around each broadcast.

In the literature: canonicalization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import Subtensor

from loopax.facts.accesses import access_of, static_places
from loopax.facts.axes import shuffled, unshuffled
from loopax.lowering.bodies import map_bodies, with_nodes


def simplify_moves(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    for node in graph.toposort():
        simpler = _simpler(node)
        out = node.outputs[0]
        if simpler is not None and out.type.is_super(simpler.type):
            if simpler.owner is not None:  # constants may be shared with other programs
                simpler.name = simpler.name or out.name
            graph.replace(out, simpler, reason="simplify_moves")
    map_bodies(graph, simplify_moves, where=with_nodes(lambda node: type(node.op) in _RULES))


def _simpler(node: Apply) -> Any:
    """The output of ``node`` with fewer moves; None if there is no such form."""
    rule = _RULES.get(type(node.op))
    return None if rule is None else rule(node)


def _dimshuffle(node: Apply) -> Any:
    x, order = node.inputs[0], list(node.op.new_order)
    is_idle = unshuffled(x) is not x or order == list(range(x.type.ndim))
    return shuffled(x, order) if is_idle else None


def _specify_shape(node: Apply) -> Any:
    x, *lengths = node.inputs
    is_known = all(
        (isinstance(n, Constant) and n.data is None) or (static is not None and _is(n, static))
        for n, static in zip(lengths, x.type.shape, strict=True)
    )
    return x if is_known else None


def _is(length: Variable, n: int) -> bool:
    return isinstance(length, Constant) and int(length.data) == n


def _reshape(node: Apply) -> Any:
    x, out = node.inputs[0], node.outputs[0]
    is_same = None not in out.type.shape and x.type.shape == out.type.shape
    return x if is_same else None


def _subtensor(node: Apply) -> Any:
    """The operand ``x`` itself, or without axes of length 1, if an index reads all of it in order."""
    x = node.inputs[0]
    kept = list(range(x.type.ndim))
    for k, (entry, n) in enumerate(zip(access_of(node).index, x.type.shape, strict=False)):
        if isinstance(entry, slice):
            if not _is_whole(entry, n):
                return None
        elif n == 1 and isinstance(entry, Constant) and entry.data in (0, -1):
            kept.remove(k)
        else:
            return None
    return shuffled(x, kept)


def _is_whole(entry: slice, n: int | None) -> bool:
    """Whether a slice reads all of an axis of length ``n``, forwards."""
    return entry == slice(None) or (n is not None and static_places(entry, n) == range(n))


_RULES: dict[type, Callable[[Apply], Any]] = {
    DimShuffle: _dimshuffle,
    SpecifyShape: _specify_shape,
    Reshape: _reshape,
    Subtensor: _subtensor,
}
