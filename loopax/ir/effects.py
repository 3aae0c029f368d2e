"""Effects of a node besides its outputs: errors, draws, prints and overwrites.

A pass that moves a computation asks: `speculation` before a move to another place in the program,
`errors` before a move to all rows of a loop at once or to fewer of its steps, `effects` before a move
to the time when a program is transpiled or traced. An op that is not listed may do anything.
"""

from __future__ import annotations

from enum import Flag, IntEnum, auto
from typing import Any

import pytensor.scalar as ps
from pytensor import gradient
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.printing import Print
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Errors, Work, facts_of
from loopax.facts.record import UNKNOWN, is_foreign
from loopax.facts.shapes import entries_of
from loopax.ir.ops.call import Call
from loopax.ir.ops.inner_graph_op import InnerGraphOp, core_of
from loopax.ir.sizes import Dims


class Effects(Flag):
    """The effects of an op besides its outputs."""

    NONE = 0
    DRAWS = auto()  # numbers from a generator
    PRINTS = auto()
    OVERWRITES = auto()  # an input
    UNKNOWN = auto()  # another library's op, which may read state that changes between two calls


class Speculation(IntEnum):
    """The freedom to run a node at a place where it did not run before."""

    FREE = 0  # no computation: another view of the same numbers
    CHEAP = 1  # cannot raise
    GUARDED = 2  # may raise, or is expensive
    FIXED = 3  # stays where it is


# -- effects -----------------------------------------------------------------------------------------


def effects(op: Op) -> Effects:
    """The effects of ``op`` and of all ops inside it."""
    flags = Effects.OVERWRITES if op.destroy_map else Effects.NONE
    if isinstance(op, RandomVariable):
        flags |= Effects.DRAWS
    if isinstance(op, Print):
        flags |= Effects.PRINTS
    if is_foreign(type(op)) and facts_of(op) is UNKNOWN:
        flags |= Effects.UNKNOWN
    if isinstance(op, Blockwise):
        flags |= effects(op.core_op)
    if isinstance(op, HasInnerGraph):
        for node in op.fgraph.apply_nodes:  # overwritten values are inside as well
            flags |= effects(node.op) & ~Effects.OVERWRITES
    return flags


# -- errors ------------------------------------------------------------------------------------------


def errors(node: Apply) -> Errors:
    """The errors that ``node`` may raise, judged by its op and the types and ancestors of its inputs."""
    facts = facts_of(node.op)
    raised = facts.errors(node)
    if (
        Errors.LENGTH in raised
        and (lengths := facts.lengths(node))
        and all(map(_are_lengths, lengths))
    ):
        raised &= ~Errors.LENGTH
    return raised


def _are_lengths(v: Variable) -> bool:
    """Whether ``v``, a scalar or a vector, has no negative entries except -1 for an open length."""
    if not v.type.ndim:
        return _is_length(v)
    entries = entries_of(v)
    if entries is None:
        return False
    return all(_is_length(x) or is_open(x) for x in entries) and sum(map(is_open, entries)) < 2


def _is_length(v: Variable) -> bool:
    dims = Dims()
    return dims.at_least(dims.value(v))


def is_open(v: Variable) -> bool:
    """Whether ``v``, an entry of a Reshape's shape, is the open length -1."""
    return Dims().value(v).constant == -1


# -- speculation -------------------------------------------------------------------------------------

_KEEPS_ITS_PLACE = Effects.DRAWS | Effects.PRINTS | Effects.OVERWRITES


def speculation(node: Apply) -> Speculation:
    """The freedom to move ``node``, judged by its op and the types of its inputs and outputs."""
    op: Any = node.op
    types = [v.type for v in (*node.inputs, *node.outputs)]
    if not all(isinstance(t, DenseTensorType | ps.ScalarType) for t in types):
        return Speculation.FIXED
    if effects(op) & _KEEPS_ITS_PLACE or _has_own_derivative(op):
        return Speculation.FIXED
    work = facts_of(op).work
    if work is Work.ARRAY or errors(node):
        return Speculation.GUARDED
    return Speculation.FREE if work is Work.VIEW else Speculation.CHEAP


def may_be_folded(node: Apply) -> bool:
    """Whether ``node`` with constant inputs may be folded. A loop may not: it may run long, or forever."""
    if isinstance(core_of(node.op), InnerGraphOp | OpFromGraph | AllocEmpty):
        return False
    return not effects(node.op) & Effects.UNKNOWN and speculation(node) is not Speculation.FIXED


def _has_own_derivative(op: Op) -> bool:
    """Whether the op has a derivative other than the derivative of its values.

    Examples are `grad_clip` and a `Call` with its own pullback. The derivative need not be linear: applied
    at every step it may differ from one application to the sum.
    """
    if isinstance(op, Blockwise):
        return isinstance(op.core_op, InnerGraphOp) or _has_own_derivative(op.core_op)
    if type(op).__module__ == gradient.__name__:
        return True
    if isinstance(op, Call) and op.rule is not None:
        return True
    return isinstance(op, InnerGraphOp) and any(
        _has_own_derivative(node.op) for node in op.fgraph.apply_nodes
    )
