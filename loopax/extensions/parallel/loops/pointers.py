"""A state that is an index into a row: each step is a map of indices, and maps compose.

    k' = row[k]        (f then g)[k] = g[f[k]]

The backward pass of Viterbi's algorithm over rows of pointers is such a loop. Composition is associative,
so that blocks of steps are composed in parallel; a map of ``S`` indices takes ``S`` reads where a step
takes one. A negative index counts from the end; an index out of range gives an invalid number, and so do
all later steps.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from pytensor.tensor.subtensor import Subtensor

from loopax.extensions.parallel.loops.blocks import scan_in_blocks
from loopax.facts.elementwise import uncast
from loopax.ir import Scan
from loopax.jax_backend.ops.indexing.index import from_front
from loopax.numerics.no_number import or_no_number


def row_of_pointers(op: Scan, k: int) -> Any:
    """The variable of the body that state ``k`` is read from at its own index; None if there is none."""
    node = uncast(op.outs.states[k]).owner
    if node is None or not isinstance(node.op, Subtensor) or len(node.inputs) != 2:
        return None
    row, place = node.inputs
    is_element = row.type.ndim == 1 and node.outputs[0].type.ndim == 0
    is_given = row in op.args.rows or row in op.args.consts
    return row if is_element and is_given and uncast(place) is op.args.states[k] else None


def places_behind(maps: Any, start: Any, reverse: bool) -> Any:
    """The indices after each step, from ``maps`` with one row for each step, or one for all."""
    return scan_in_blocks(_composed, _at, maps, start, reverse)


def _composed(first: Any, second: Any) -> Any:
    """The composition of maps ``(S, blocks)``."""
    size = second.shape[0]
    places = from_front(first, size)
    inside = (places >= 0) & (places < size)
    images = jnp.take_along_axis(second, jnp.where(inside, places, 0), axis=0)
    return or_no_number(inside, images)


def _at(maps: Any, places: Any) -> Any:
    return _composed(places[None], maps)[0]
