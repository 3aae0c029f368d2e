"""Loops over flipped sequences, as loops that run backwards.

The loops of ``pytensor.grad`` read ``x[::-1]`` for every sequence. ``lax.scan(reverse=True)`` reads
``x`` itself: one kernel less to compile for each sequence and each trace, which was a fifth of the
time to the first gradient of an AR(2) model. A pass over the IR should do this for all backends; then
this file goes.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from pytensor.graph.basic import Variable
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor

from loopax.jax_backend.evaluate import Site
from loopax.jax_backend.static import is_traced


def unflipped(site: Site, variables: Any, n_steps: int) -> list[Any] | None:
    """The rows of each sequence in reverse order, where none of them needs a flip; else None.

    ``variables`` are the sequences of ``site``'s loop, each of ``n_steps`` rows.
    """
    if not variables or not n_steps:
        return None
    found = []
    for v in variables:
        source = _source(site, v)
        if source is None or source[1].step != -1:
            return None
        base, rows = source
        found.append(jnp.asarray(base)[rows[-1] : rows[0] + 1])
    return found


def _source(site: Site, v: Variable) -> tuple[Any, range] | None:
    """The array that ``v`` takes rows from through static slices, and which; a range slices too."""
    slices = []
    while v.owner is not None and isinstance(v.owner.op, Subtensor):
        node = v.owner
        index = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        if len(index) != 1 or not isinstance(index[0], slice):
            break
        bounds = [index[0].start, index[0].stop, index[0].step]
        values = [b if b is None or isinstance(b, int) else site.frame.read(b) for b in bounds]
        if any(is_traced(b) for b in values):
            return None
        slices.append(slice(*(None if b is None else int(b) for b in values)))
        v = node.inputs[0]
    if not slices:
        return None
    base = site.frame.read(v)
    rows = range(base.shape[0])
    for s in reversed(slices):
        rows = rows[s]
    return base, rows
