"""Sources of values that operations only move: transpose, reshape, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

_SAME_ELEMENTS = (
    "copy",
    "copy_p",
    "stop_gradient",
    "reduce_precision",
    "optimization_barrier",
    "pvary",
    "pcast",
)
MOVES = ("broadcast_in_dim", "reshape", "squeeze", "transpose", "expand_dims", *_SAME_ELEMENTS)

REDUCTIONS = tuple(f"reduce_{name}" for name in ("sum", "max", "min", "prod", "and", "or"))
# The parameter that names the axes of the operand that are removed, or mixed.
_GONE = {"squeeze": "dimensions", **dict.fromkeys(REDUCTIONS, "axes")}
_MIXED = {"rev": "dimensions", "cumsum": "axis", "concatenate": "dimension"}
Axes = tuple[int | None, ...]


class Place(NamedTuple):
    """A value, and for each axis of a moved copy of it the source axis, or None."""

    root: Any
    axes: tuple[int | None, ...]


def own_place(v: Any) -> Place:
    return Place(v, tuple(k if n != 1 else None for k, n in enumerate(v.aval.shape)))


def moved_place(eqn: Any, place: Place) -> Place:
    """The place of the result of an operation in `MOVES`, given the place of its operand."""
    axes = moved_axes(eqn, place.axes)
    return own_place(eqn.outvars[0]) if axes is None else Place(place.root, axes)


def without_axes(axes: Sequence[int | None], gone: Sequence[int]) -> Axes | None:
    """The remaining axes; None if a dropped one has a source."""
    if any(axes[k] is not None for k in gone):
        return None
    return tuple(a for k, a in enumerate(axes) if k not in gone)


def moved_axes(eqn: Any, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
    """The axes of a moved value; None if one of them is lost."""
    sources = axis_sources(eqn)
    if any(a is not None and k not in sources for k, a in enumerate(axes)):
        return None
    return tuple(None if k is None else axes[k] for k in sources)


def axis_sources(eqn: Any) -> Axes:
    """For each axis of an operation's result, the axis of its operand, or None."""
    name, params = eqn.primitive.name, eqn.params
    old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    if name == "broadcast_in_dim":
        at = {to: k for k, to in enumerate(params["broadcast_dimensions"]) if old[k] == new[to]}
        return tuple(map(at.get, range(len(new))))
    if name == "reshape":
        at = {(prod(old[:k]), n): k for k, n in enumerate(old) if n != 1}
        return tuple(at.get((prod(new[:k]), n)) for k, n in enumerate(new))
    if name == "transpose":
        return tuple(params["permutation"])
    gone = params[_GONE[name]] if name in _GONE else ()
    mixed = params[_MIXED[name]] if name in _MIXED else ()
    mixed = mixed if isinstance(mixed, tuple) else (mixed,)
    return tuple(None if k in mixed else k for k in range(len(old)) if k not in gone)
