"""The states of a part after each step of a loop, by the part's method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from loopax.extensions.parallel.loops.newton import newton
from loopax.extensions.parallel.loops.part import Method, Part
from loopax.extensions.parallel.loops.pointers import places_behind
from loopax.extensions.parallel.loops.recurrence import affine_recurrence
from loopax.extensions.parallel.loops.trajectory import Equation, Step, trajectory
from loopax.jax_backend.staging.evaluate import Site
from loopax.numerics.manual_axes import scan, zeros_like


def states_behind(site: Site, part: Part, step: Step, rows: Any, start: Sequence[Any]) -> list[Any]:
    """The states of ``part`` after each step, for ``rows`` of all steps, from ``start``."""
    options = site.op.options
    if part.method is Method.KNOWN:
        return jax.vmap(lambda row: step(row, start))(rows)
    if part.method is Method.MAPS:
        return _by_maps(part, step, rows, start, options.reverse)
    if part.method is Method.ONE_BY_ONE:
        return _one_by_one(step, rows, start, options.reverse)
    at = part.coordinates
    begin = at.join(start)
    equation, consts = part.equation(
        step, jax.tree.map(lambda x: x[0], rows), begin, options.reverse
    )
    parameters = consts, jax.tree.leaves(rows)
    match part.method:
        case Method.AFFINE:
            states = _affine(part, equation, parameters, begin)
        case Method.NEWTON:
            states = newton(site, options.parallel, equation, parameters, begin)
        case _:
            assert part.solver is not None
            states, _ = trajectory(part.solver, equation, parameters, begin)
    return at.split(states)


def sum_at_the_end(part: Part, step: Step, rows: Any, start: Sequence[Any]) -> Any:
    """The final state of a part that is a sum."""
    at = part.coordinates
    zero = at.split(zeros_like(at.join(start)))
    offsets = jax.vmap(lambda row: at.join(step(row, zero)))(rows)
    (total,) = at.split(at.join(start) + offsets.sum(0))
    return total


def _affine(part: Part, equation: Equation, parameters: Any, start: Any) -> Any:
    zero, n = zeros_like(start), part.n_steps
    offsets = equation.step(parameters, jnp.broadcast_to(zero, (n, *zero.shape)))
    if part.is_sum:
        matrices, reads = 1 + zero[None, None, :1, :1], None
    else:
        consts, rows = parameters
        if not part.varies:
            rows, n = [x[:1] for x in rows], 1
        point = (consts, rows), jnp.broadcast_to(zero, (n, *zero.shape))
        matrices, reads = equation.matrices(*point), equation.reads(*point)
    return affine_recurrence(matrices, offsets, start, reads, equation.reverse)


def _by_maps(part: Part, step: Step, rows: Any, start: Sequence[Any], reverse: bool) -> list[Any]:
    """Compose the steps as maps, from the step of each row at every index."""
    places = jnp.arange(part.places, dtype=start[0].dtype)
    maps = jax.vmap(lambda row: jax.vmap(lambda k: step(row, [k])[0])(places))(rows)
    return [places_behind(maps, start[0], reverse)]


def _one_by_one(step: Step, rows: Any, start: Sequence[Any], reverse: bool) -> list[Any]:

    def body(states: Any, row: Any) -> Any:
        return (tuple(step(row, states)),) * 2

    return list(scan(body, tuple(start), rows, reverse=reverse)[1])
