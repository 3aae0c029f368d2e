"""One array, written into zeros at several places  ->  windows of one zero-padded array.

    pad(y, ((0, 2),)) + pad(y, ((1, 1),)) + pad(y, ((2, 0),))
        ->  f[2:] + f[1:-1] + f[:-2]  with  f = pad(y, ((2, 2),))

Condition: the places are slices with static bounds, and the padded array has at most twice as many entries
as the array itself: a few entries in a long array of zeros stay.

Reason: the derivative of a stencil, which reads a padded array at several places, has this form. Each array
of zeros is written and read in sweeps of its own; windows of one array are read in the loop that adds them
up. The gradient of the heat equation, 100 steps on 32 x 32, takes 0.62 of the time. For native code alone:
XLA pads in the loop that reads.

In the literature: halo (ghost cells) of a stencil.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.tensor.subtensor import IncSubtensor

from loopax.facts.accesses import access_of, static_places
from loopax.lowering.bodies import has_bodies, map_bodies
from loopax.lowering.redundancy.add_entries import is_zero

_LARGEST = 2  # most entries of the padded array for each entry of the array


def share_frames(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    padded = defaultdict(list)
    for node in graph.toposort():
        if (p := _padding(node)) is not None:
            padded[p.source].append(p)
    for source, paddings in padded.items():
        if len(paddings) > 1:
            _share(graph, source, paddings)
    map_bodies(graph, share_frames, where=_may_pad)


def _may_pad(body: AbstractFunctionGraph) -> bool:
    n_writes = sum(isinstance(node.op, IncSubtensor) for node in body.apply_nodes)
    return n_writes > 1 or has_bodies(body)


class _Padding(NamedTuple):
    """An array ``out`` that is zero outside ``source``, which begins at ``starts``."""

    out: Any
    source: Any
    starts: tuple[int, ...]


def _padding(node: Apply) -> _Padding | None:
    op: Any = node.op
    if not isinstance(op, IncSubtensor) or not op.set_instead_of_inc or op.inplace:
        return None
    zeros, source, (out,) = node.inputs[0], node.inputs[1], node.outputs
    lengths, own = out.type.shape, source.type.shape
    if (
        None in lengths
        or None in own
        or len(own) != len(lengths)
        or source.type.dtype != out.type.dtype
    ):
        return None
    index = access_of(node).index
    index += (slice(None),) * (len(lengths) - len(index))
    places = [static_places(entry, n) for entry, n in zip(index, lengths, strict=True)]
    windows = [
        w for w, n in zip(places, own, strict=True) if w is not None and (w.step, len(w)) == (1, n)
    ]
    if len(windows) < len(places) or not is_zero(zeros):
        return None
    return _Padding(out, source, tuple(w.start for w in windows))


def _share(graph: FunctionGraph, source: Variable, paddings: list[_Padding]) -> None:
    n_axes = source.type.ndim
    before = [max(p.starts[k] for p in paddings) for k in range(n_axes)]
    behind = [max(p.out.type.shape[k] - p.starts[k] for p in paddings) for k in range(n_axes)]
    shape = [a + b for a, b in zip(before, behind, strict=True)]
    if prod(shape) > _LARGEST * prod(source.type.shape):
        return
    place = tuple(slice(a, a + n) for a, n in zip(before, source.type.shape, strict=True))
    frame: Any = pt.set_subtensor(pt.zeros(shape, dtype=source.type.dtype)[place], source)
    pairs = []
    for p in paddings:
        starts = [a - s for a, s in zip(before, p.starts, strict=True)]
        window = tuple(slice(a, a + n) for a, n in zip(starts, p.out.type.shape, strict=True))
        pairs.append((p.out, p.out.type.filter_variable(frame[window])))
    graph.replace_all(pairs, reason="share_frames")
