"""The rows of an array that a node reads or writes: ``array[rows, *trailing]``."""

from __future__ import annotations

from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from loopax.base.upstream.pytensor import indices_from_subtensor


class Access(NamedTuple):
    """An access ``array[rows, *trailing]``; ``rows`` is a slice of the leading axis or one row number."""

    array: Any
    rows: Any
    trailing: tuple[Any, ...]

    @property
    def index(self) -> tuple[Any, ...]:
        return (self.rows, *self.trailing)

    @property
    def is_row(self) -> bool:
        """Whether the access is to one row, or to the part of it that ``trailing`` selects."""
        return not isinstance(self.rows, slice)

    @property
    def is_whole(self) -> bool:
        """Whether the access is to whole rows."""
        return all(entry == slice(None) for entry in self.trailing)


def access_of(node: Apply) -> Access:
    """The read or write of ``node``, a Subtensor or an IncSubtensor."""
    op = node.op
    entries = node.inputs[2 if isinstance(op, IncSubtensor) else 1 :]
    rows, *trailing = indices_from_subtensor(entries, op.idx_list) or (slice(None),)
    return Access(node.inputs[0], rows, tuple(trailing))


def static_places(entry: slice, n: int) -> range | None:
    """The positions that a slice takes of an axis of length ``n``; None unless its bounds are constants.

    ``entry`` is a part of `Access.index`.
    """
    if not isinstance(entry, slice):
        return None
    bounds = entry.start, entry.stop, entry.step
    if not all(v is None or isinstance(v, Constant) for v in bounds):
        return None
    return range(n)[slice(*(None if v is None else int(v.data) for v in bounds))]


def read_of(node: Apply | None) -> Access | None:
    """The read of ``node``, if it is a Subtensor, else None."""
    if node is None or not isinstance(node.op, Subtensor):
        return None
    return access_of(node)
