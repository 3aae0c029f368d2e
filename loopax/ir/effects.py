"""What a node does besides computing its outputs: what it may raise, what it draws, prints or overwrites.

Whoever moves a computation asks here: to another place in the program (`speculation`), to all rows of a
loop at once or to fewer of its steps (`errors`), to the time when a program is transpiled or traced
(`effects`). What is not listed may do anything.
"""

from __future__ import annotations

from enum import Flag, IntEnum, auto
from typing import Any

import pytensor.scalar as ps
from pytensor import gradient
from pytensor.graph.basic import Apply
from pytensor.graph.op import HasInnerGraph
from pytensor.printing import Print
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Errors, Work, facts_of
from loopax.facts.entries import entries_of
from loopax.facts.record import UNKNOWN, is_foreign
from loopax.ir.ops.call import Call
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.sizes import Dims


class Effects(Flag):
    """What an op does besides computing its outputs from its inputs."""

    NONE = 0
    DRAWS = auto()  # numbers from a generator
    PRINTS = auto()
    OVERWRITES = auto()  # an input
    UNKNOWN = auto()  # neither PyTensor's nor ours: it may read what changes between two calls


class Speculation(IntEnum):
    """How freely a node may run where it did not before."""

    FREE = 0  # nothing is computed: another view of the same numbers
    CHEAP = 1  # cannot raise
    GUARDED = 2  # may raise, or is expensive
    FIXED = 3  # stays where it is


# -- effects -----------------------------------------------------------------------------------------


def effects(op: Any) -> Effects:
    """The effects of ``op``, and of all that is inside of it."""
    found = Effects.OVERWRITES if op.destroy_map else Effects.NONE
    if isinstance(op, RandomVariable):
        found |= Effects.DRAWS
    if isinstance(op, Print):
        found |= Effects.PRINTS
    if is_foreign(type(op)) and facts_of(op) is UNKNOWN:
        found |= Effects.UNKNOWN
    if isinstance(op, Blockwise):
        found |= effects(op.core_op)
    if isinstance(op, HasInnerGraph):
        for node in op.fgraph.apply_nodes:  # what they overwrite is inside as well
            found |= effects(node.op) & ~Effects.OVERWRITES
    return found


# -- errors ------------------------------------------------------------------------------------------


def errors(node: Apply) -> Errors:
    """What ``node`` may raise, by its op, the types of its inputs and what these are made of."""
    facts = facts_of(node.op)
    raised = facts.errors(node)
    if (
        Errors.LENGTH in raised
        and (lengths := facts.lengths(node))
        and all(map(_are_lengths, lengths))
    ):
        raised &= ~Errors.LENGTH
    return raised


def _are_lengths(v: Any) -> bool:
    """Whether ``v``, a scalar or a vector, has no negative number but -1 for a length that is left open."""
    if not v.type.ndim:
        return _is_length(v)
    entries = entries_of(v)
    if entries is None:
        return False
    return all(_is_length(x) or is_open(x) for x in entries) and sum(map(is_open, entries)) < 2


def _is_length(v: Any) -> bool:
    dims = Dims()
    return dims.at_least(dims.value(v))


def is_open(v: Any) -> bool:
    """Whether ``v``, an entry of the shape that a Reshape asks for, is left to the number of entries."""
    return Dims().value(v).constant == -1


# -- speculation -------------------------------------------------------------------------------------

_KEEPS_ITS_PLACE = Effects.DRAWS | Effects.PRINTS | Effects.OVERWRITES


def speculation(node: Apply) -> Speculation:
    """How freely ``node`` may run where it did not, by its op and the types of its inputs and outputs."""
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


def _has_own_derivative(op: Any) -> bool:
    """Whether the derivative is not that of the values (`grad_clip`, a `Call` with a pullback of its own).

    It need not be linear, so that it makes a difference whether it is taken at every step or once of
    their sum.
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
