"""The states of a part after each step of a loop, by the part's method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from loopax.extensions.parallel.loops.newton import newton
from loopax.extensions.parallel.loops.part import Method, Part
from loopax.extensions.parallel.loops.pointers import places_behind
from loopax.extensions.parallel.loops.recurrence import affine_recurrence
from loopax.extensions.parallel.loops.trajectory import Equation, trajectory
from loopax.jax_backend.staging.evaluate import Site
from loopax.numerics.manual_axes import scan, zeros_like

OwnStep = Callable[..., list[Any]]  # (row, own states of a part) -> next ones


def states_behind(
    site: Site, part: Part, step: OwnStep, rows: Any, start: Sequence[Any]
) -> list[Any]:
    """The states of ``part`` after each step, for ``rows`` of all steps, from ``start``."""
    options = site.op.options
    match part.method:
        case Method.AFFINE:
            return _affine(part, step, rows, start, options.reverse)
        case Method.MAPS:
            return _by_maps(part, step, rows, start, options.reverse)
        case Method.SOLVER:
            return _by_solver(part, step, rows, start, options.reverse)
        case Method.NEWTON:
            at = part.coordinates
            states = newton(site, options.parallel, step, rows, at, at.join(start), options.reverse)
            return at.split(states)
    return _one_by_one(step, rows, start, options.reverse)


def sum_at_the_end(part: Part, step: OwnStep, rows: Any, start: Sequence[Any]) -> Any:
    """The final state of a part that is a sum."""
    at = part.coordinates
    (total,) = at.split(at.join(start) + _offsets(part, step, rows, start).sum(0))
    return total


def _offsets(part: Part, step: OwnStep, rows: Any, start: Sequence[Any]) -> Any:
    """The constant that each step adds to the linear part of an affine function."""
    at = part.coordinates
    zero = at.split(zeros_like(at.join(start)))
    return jax.vmap(lambda row: at.join(step(row, zero)))(rows)


def _affine(part: Part, step: OwnStep, rows: Any, start: Sequence[Any], reverse: bool) -> list[Any]:
    at = part.coordinates
    begin = at.join(start)
    zero = at.split(zeros_like(begin))
    if part.is_sum:
        matrices = 1 + zeros_like(begin[:1, :1])[None, None]
    elif part.varies:
        matrices = jax.vmap(lambda row: at.matrix(lambda *s: step(row, s), zero))(rows)
    else:
        first = _first(rows)
        matrices = at.matrix(lambda *s: step(first, s), zero)[None]
    offsets = _offsets(part, step, rows, start)
    return at.split(affine_recurrence(matrices, offsets, begin, reverse))


def _by_solver(
    part: Part, step: OwnStep, rows: Any, start: Sequence[Any], reverse: bool
) -> list[Any]:
    at, solver = part.coordinates, part.solver
    assert solver is not None
    begin = at.join(start)
    equation, consts = Equation.of(step, _first(rows), at, begin, reverse)
    behind, *_ = trajectory(solver, equation, (consts, jax.tree.leaves(rows)), begin)
    return at.split(behind)


def _by_maps(
    part: Part, step: OwnStep, rows: Any, start: Sequence[Any], reverse: bool
) -> list[Any]:
    """Compose the steps as maps, from the step of each row at every index."""
    places = jnp.arange(part.places, dtype=start[0].dtype)
    maps = jax.vmap(lambda row: jax.vmap(lambda k: step(row, [k])[0])(places))(rows)
    return [places_behind(maps, start[0], reverse)]


def _one_by_one(step: OwnStep, rows: Any, start: Sequence[Any], reverse: bool) -> list[Any]:

    def body(states: Any, row: Any) -> Any:
        return (tuple(step(row, states)),) * 2

    return list(scan(body, tuple(start), rows, reverse=reverse)[1])


def _first(rows: Any) -> Any:
    return jax.tree.map(lambda x: x[0], rows)
