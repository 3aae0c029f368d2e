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
    """How the entries of the outputs follow from those of the inputs."""

    ELEMENTWISE = auto()  # each from one entry of every input, broadcast
    MOVES = auto()  # each is an entry of an input, or of a sum of such
    SHAPE = auto()  # from the lengths of the inputs alone
    REDUCES = auto()  # each from all entries along some axes
    CONTRACTS = auto()  # each is a sum of products
    MAKES = auto()  # from lengths and bounds, of no array
    OTHER = auto()


class Work(IntEnum):
    """How much an op computes."""

    VIEW = 0  # nothing: the same numbers, seen otherwise
    ENTRY = 1  # one function for each entry of the result
    ARRAY = 2  # more than that


class Errors(Flag):
    """Errors that a node may raise, for some values of inputs of its types."""

    NONE = 0
    SHAPE = auto()  # lengths do not fit one another
    LENGTH = auto()  # one is negative, or zero where there must be an entry
    INDEX = auto()  # there is no such entry
    VALUE = auto()  # anything else


def _nothing(node: Apply) -> tuple[Any, ...]:
    return ()


def _nowhere(node: Apply, n: int) -> None:
    return None


def _anything(node: Apply) -> Errors:
    return ~Errors.NONE


@dataclass(frozen=True, kw_only=True)
class OpFacts:
    """Facts of an op. Every field has the answer of an op of which nothing is known."""

    structure: Structure = Structure.OTHER  # how entries of outputs follow from entries of inputs
    work: Work = Work.ARRAY  # how much it computes
    # What a node may raise. ``Errors.LENGTH`` is dropped where no number in ``lengths`` can be
    # negative.
    errors: Callable[[Apply], Errors] = _anything
    # The inputs of a node that are lengths of its output, or bounds of the rows that it takes:
    # scalars, or a vector of them.
    lengths: Callable[[Apply], Sequence[Variable]] = _nothing
    # For each input and each axis of the first output, the axis of the input that it runs along:
    # the entries of the output at position ``p`` of its axis follow from the entries of the input
    # at position ``p`` of that axis, which has the same length, or length 1 and is then broadcast.
    # None for an axis that follows from the whole input.
    axes: Callable[[Apply], Axes | None] = lambda node: None
    # For each input and each axis of the first output, the axis of the input whose length it has.
    # By default it is ``axes``.
    sizes: Callable[[Apply], Axes | None] | None = None
    # The op, or a function of variables, that does the same behind ``n`` more leading axes, or
    # fewer where ``n`` is negative; None where there is none. The inputs that ``axes`` gives a
    # leading axis have as many more or fewer; all others, ``lengths`` too, are as they were.
    behind: Callable[[Apply, int], Any] = _nowhere
    # Sets of inputs: in those of one set together the outputs are linear.
    linear: Callable[[Apply], Groups] = _nothing
    # Sets of inputs: where those of one set are zero everywhere, so are the outputs. By default it
    # is ``linear``.
    zero: Callable[[Apply], Groups] | None = None
    # The inputs of which a node reads more than the shape.
    reads: Callable[[Apply], Sequence[Variable]] = lambda node: node.inputs


class ScalarFacts(NamedTuple):
    """Facts of a function of numbers.

    ``linear`` has sets of arguments as `OpFacts.linear` has, or is ``"jointly"``, in all arguments
    together, or ``"separately"``, in each of them. ``keeps_zero`` is whether it is 0 where all arguments
    are. ``nanoseconds`` is what an entry of an array takes in native code, ``cycles`` is its latency.
    ``is_total`` is whether it has a value for all numbers of the types of a node. ``singular`` is the
    argument at which its derivative may be infinite or NaN, ``is_regular_above_0`` whether it is not where
    that argument is positive. ``positive`` is ``"always"`` if its values are, if nothing underflows, and
    ``"kept"`` if they are where all arguments are.
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
    """Say what the ops of ``op_class`` are, and those of its subclasses without a record of their own.

    Where PyTensor has no rule for a batch of them, ``facts.behind`` becomes that rule.
    """
    _records[op_class] = facts
    _record_of.cache_clear()
    if (
        facts.behind is not _nowhere
        and vectorize_rules.dispatch(op_class) is vectorize_node_fallback
    ):
        vectorize_rules.register(op_class, _batched)


def _batched(op: Op, node: Apply, *inputs: Variable) -> Any:
    """Results of ``op`` on a batch: of itself behind the batch's axes, or of a `Blockwise`."""
    added = {x.type.ndim - v.type.ndim for v, x in zip(node.inputs, inputs, strict=True)}
    behind = facts_of(op).behind(node, added.pop()) if len(added) == 1 else None
    if behind is None:
        return vectorize_node_fallback(op, node, *inputs)
    results = behind(*inputs)
    return results if isinstance(results, list | tuple) else [results]


def facts_of(op: object) -> OpFacts:
    """The record of ``op``; `UNKNOWN` where it has none."""
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
    """The record of the nearest base; None where there is none, or it says nothing of ``op_class``.

    A subclass of PyTensor's or loopax's is what its base is. A user's may compute anything: it inherits
    what users have said of a base of theirs, and nothing of PyTensor's.
    """
    base = next((c for c in op_class.__mro__ if c in records), None)
    if base is None or (is_foreign(op_class) and not is_foreign(base)):
        return None
    return records[base]
