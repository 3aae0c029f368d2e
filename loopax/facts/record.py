"""The record of an op, which every analysis, pass and cost estimate reads.

>>> import pytensor.tensor as pt
>>> from loopax.facts import facts_of
>>> x = pt.dmatrix("x")
>>> node = x.sum(axis=1).owner
>>> facts_of(node.op).axes(node)  # axis 0 of the result runs along axis 0 of the input
((0,),)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, Flag, IntEnum, auto
from functools import cache
from typing import Any, NamedTuple, TypeVar

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import vectorize_node_fallback

from loopax.base.upstream.pytensor import vectorize_rules

# For each input of a node, and each axis of its first output: the axis of the input that it runs along.
Axes = Sequence[Sequence[int | None]]
# Sets of inputs: the outputs are linear in all inputs of a set together, the others held fixed.
Groups = Sequence[frozenset[int]]


class Structure(Enum):
    """The dependence of output entries on input entries."""

    ELEMENTWISE = auto()  # each entry from one entry of every input, broadcast
    MOVES = auto()  # each entry is an entry of an input, or a sum of some
    SHAPE = auto()  # depends only on the lengths of the inputs
    REDUCES = auto()  # each entry from all entries along some axes
    CONTRACTS = auto()  # each entry is a sum of products
    MAKES = auto()  # depends on lengths and bounds, not on an array
    OTHER = auto()


class Work(IntEnum):
    """The amount of computation of an op."""

    VIEW = 0  # none: another view of the same numbers
    ENTRY = 1  # one function for each entry of the result
    ARRAY = 2  # more than that


class Errors(Flag):
    """Errors that a node may raise, for some input values of its types."""

    NONE = 0
    SHAPE = auto()  # lengths do not match
    LENGTH = auto()  # a length is negative, or zero where an entry is needed
    INDEX = auto()  # an index is out of range
    VALUE = auto()  # anything else


def _nothing(node: Apply) -> tuple[Any, ...]:
    return ()


def _nowhere(node: Apply, n: int) -> None:
    return None


def _anything(node: Apply) -> Errors:
    return ~Errors.NONE


@dataclass(frozen=True, kw_only=True)
class OpFacts:
    """Facts about an op. The defaults of all fields describe an unknown op."""

    structure: Structure = Structure.OTHER  # how output entries depend on input entries
    work: Work = Work.ARRAY  # how much it computes
    # What a node may raise. ``Errors.LENGTH`` is dropped where no number in ``lengths`` can be
    # negative.
    errors: Callable[[Apply], Errors] = _anything
    # The inputs of a node that are lengths of its output, or bounds of the rows that it takes:
    # scalars, or a vector of them.
    lengths: Callable[[Apply], Sequence[Variable]] = _nothing
    # For each input and each axis of the first output, the axis of the input that it runs along: the
    # entries of the output at position ``p`` of its axis depend only on the entries of the input at
    # position ``p`` of that axis, which has the same length, or has length 1 and is broadcast. None for an
    # axis that depends on the whole input.
    axes: Callable[[Apply], Axes | None] = lambda node: None
    # For each input and each axis of the first output, the axis of the input with the same length. By
    # default it is ``axes``.
    sizes: Callable[[Apply], Axes | None] | None = None
    # The op, or a function of variables, that does the same with ``n`` more leading axes, or fewer if ``n``
    # is negative; None where there is none. The inputs with a leading axis in ``axes`` gain or lose as many
    # axes; all others, including ``lengths``, do not change.
    behind: Callable[[Apply, int], Any] = _nowhere
    # Sets of inputs: the outputs are linear in the inputs of each set together.
    linear: Callable[[Apply], Groups] = _nothing
    # Sets of inputs: if all inputs of a set are zero everywhere, so are the outputs. By default it is
    # ``linear``.
    zero: Callable[[Apply], Groups] | None = None
    # The inputs whose values a node reads, not only their shapes.
    reads: Callable[[Apply], Sequence[Variable]] = lambda node: node.inputs


class ScalarFacts(NamedTuple):
    """Facts about a scalar function.

    ``linear`` has sets of arguments as in `OpFacts.linear`, or is ``"jointly"``, in all arguments together,
    or ``"separately"``, in each of them. ``keeps_zero``: it is 0 if all arguments are. ``nanoseconds``:
    time for an array entry in native code; ``cycles``: its latency. ``is_total``: it has a value for all
    numbers of the types of a node. ``singular``: the argument at which its derivative may be infinite or
    NaN; ``is_regular_above_0``: the derivative is finite where that argument is positive. ``positive``:
    ``"always"`` if its values are positive unless they underflow, ``"kept"`` if they are when all arguments
    are.
    """

    nanoseconds: float
    cycles: int
    linear: str | Groups = ()
    keeps_zero: bool = False
    is_total: Callable[[Apply], bool] = lambda node: True
    singular: int | None = None
    is_regular_above_0: bool = False
    positive: str = ""


UNKNOWN = OpFacts()
F = TypeVar("F")

_records: dict[type, OpFacts] = {}


def register(op_class: type, facts: OpFacts) -> None:
    """Register the facts of ``op_class``, also for subclasses without a record of their own.

    If PyTensor has no vectorization rule for them, ``facts.behind`` becomes that rule.
    """
    _records[op_class] = facts
    _record_of.cache_clear()
    if (
        facts.behind is not _nowhere
        and vectorize_rules.dispatch(op_class) is vectorize_node_fallback
    ):
        vectorize_rules.register(op_class, _batched)


def _batched(op: Op, node: Apply, *inputs: Variable) -> Any:
    """Apply ``op`` to a batch, by its own form with more leading axes, or as a `Blockwise`."""
    added = {x.type.ndim - v.type.ndim for v, x in zip(node.inputs, inputs, strict=True)}
    behind = facts_of(op).behind(node, added.pop()) if len(added) == 1 else None
    if behind is None:
        return vectorize_node_fallback(op, node, *inputs)
    results = behind(*inputs)
    return results if isinstance(results, list | tuple) else [results]


def facts_of(op: object) -> OpFacts:
    """The record of ``op``; `UNKNOWN` if it has none."""
    return _record_of(type(op))  # type: ignore[arg-type]  # mypy does not take a class for hashable


@cache
def _record_of(op_class: type) -> OpFacts:
    return inherited(op_class, _records) or UNKNOWN


# A class may define these and still compute what its base computes.
_WITHOUT_EFFECT = frozenset(
    (
        "__init__ __str__ __repr__ __hash__ __eq__ __props__ _props _props_dict __slots__ __dict__ "
        "__weakref__ __module__ __qualname__ __doc__ __annotations__ __annotate_func__ "
        "__annotations_cache__ __firstlineno__ __static_attributes__ __abstractmethods__ "
        "__parameters__ __orig_bases__ _abc_impl"
    ).split()
)


def is_foreign(op_class: type) -> bool:
    """Whether ``op_class`` is a user's: its ops may do anything, and keep something between two runs.

    A subclass of an op of PyTensor's that overrides nothing is not: PyMC's check of a parameter is a check
    with another exception.
    """
    return _is_foreign(op_class)  # type: ignore[arg-type]  # mypy does not take a class for hashable


@cache
def _is_foreign(op_class: type) -> bool:
    own = [c for c in op_class.__mro__ if not c.__module__.startswith(("pytensor.", "loopax."))]
    base = next((c for c in op_class.__mro__ if c not in own), object)
    overridden = {name for c in own if c is not object for name in vars(c)}.intersection(dir(base))
    return base is object or not overridden <= _WITHOUT_EFFECT


def inherited(op_class: type, records: Mapping[type, F]) -> F | None:
    """The record of the nearest base; None if there is none, or it does not apply to ``op_class``.

    A subclass in PyTensor or loopax inherits the record of its base. A user's may compute anything: it
    inherits records that users have registered for their own bases, and nothing from PyTensor's.
    """
    base = next((c for c in op_class.__mro__ if c in records), None)
    if base is None or (is_foreign(op_class) and not is_foreign(base)):
        return None
    return records[base]
