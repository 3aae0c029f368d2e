"""Where the boxes of a directed graph without cycles are drawn: layers, then an order in each, then places.

The three steps are those of Sugiyama, Tagawa and Toda (1981). An edge that spans several layers gets a
*joint* in each layer between. Edges that leave one box share their joints, so that a constant which
every layer reads is one line with branches, and there are at most boxes times layers of them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

_ORDERINGS = 6  # more hardly ever find a better order
_PLACINGS = 16  # after as many, nothing moves that one would see
_STRAIGHT = 5.0  # how much more two joints of a line pull at one another than boxes do
_GAP = 14.0  # between neighbours in a layer
_LAYER = 58.0  # from one layer to the next
_MARGIN = 8.0

Point = tuple[float, float]


class Layout(NamedTuple):
    """``places`` are the centres of the boxes, ``routes`` what each edge passes between its two ends."""

    places: list[Point]
    routes: list[list[Point]]
    width: float
    height: float


def layout(
    widths: Sequence[float],
    height: float,
    edges: Sequence[tuple[int, int]],
    first: Collection[int] = (),
    last: Collection[int] = (),
) -> Layout:
    """Places for boxes of these ``widths`` and one ``height``, such that every edge goes down.

    Parameters
    ----------
    edges
        Pairs of positions in ``widths``, from and to. A box comes after those it has edges from.
    first, last
        The boxes of the uppermost and of the lowest layer. They have no edges from (to) others.
    """
    n = len(widths)
    layer_of = _layers(n, edges, first, last)
    chains = _with_joints(layer_of, edges)
    n_all = len(layer_of)  # with the joints, which `chains` has added
    links = sorted({link for chain in chains for link in zip(chain, chain[1:], strict=False)})
    layers: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for k, at in enumerate(layer_of):
        layers[at].append(k)
    above, below = _neighbours(n_all, links)
    layers = _ordered(layers, above, below)
    sizes = [*widths, *[0.0] * (n_all - n)]
    xs = _positions(layers, sizes, above, below)
    left = min((x - w / 2 for x, w in zip(xs, sizes, strict=True)), default=0.0) - _MARGIN
    points = [
        (x - left, _MARGIN + height / 2 + _LAYER * at) for x, at in zip(xs, layer_of, strict=True)
    ]
    right = max((x + w / 2 for (x, _), w in zip(points, sizes, strict=True)), default=0.0)
    return Layout(
        points[:n],
        [[points[k] for k in chain[1:-1]] for chain in chains],
        right + _MARGIN,
        2 * _MARGIN + height + _LAYER * max(len(layers) - 1, 0),
    )


# -- layers ------------------------------------------------------------------------------------------


def _layers(
    n: int, edges: Sequence[tuple[int, int]], first: Collection[int], last: Collection[int]
) -> list[int]:
    """The layer of each box: one below the lowest that it has an edge from."""
    above, below = _neighbours(n, edges)
    found = [0] * n
    for k in range(n):
        assert all(a < k for a in above[k]), "a box comes after those it has edges from"
        if k not in first:
            found[k] = 1 + max((found[a] for a in above[k]), default=0)
    # What reads nothing, a constant say, stands right above the first that reads it.
    for k in range(n):
        if k not in first and not above[k] and below[k]:
            found[k] = max(1, min(found[b] for b in below[k]) - 1)
    lowest = max([1, *(1 + found[k] for k in range(n) if k not in last)])
    for k in last:
        found[k] = lowest
    return found


def _with_joints(layer_of: list[int], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Each edge as a chain from layer to layer. The joints are added to ``layer_of``."""
    joints: dict[tuple[int, int], int] = {}
    chains = []
    for a, b in edges:
        chain = [a]
        for at in range(layer_of[a] + 1, layer_of[b]):
            if (a, at) not in joints:
                joints[a, at] = len(layer_of)
                layer_of.append(at)
            chain.append(joints[a, at])
        chains.append([*chain, b])
    return chains


def _neighbours(
    n: int, edges: Sequence[tuple[int, int]]
) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(n)]
    below: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        above[b].append(a)
        below[a].append(b)
    return above, below


# -- order in each layer -----------------------------------------------------------------------------


def _ordered(
    layers: list[list[int]], above: list[list[int]], below: list[list[int]]
) -> list[list[int]]:
    """The layers with few crossings: each sorted by the mean place of its neighbours, down and up."""
    best, fewest = layers, _crossings(layers, below)
    for sweep in range(_ORDERINGS):
        if not fewest:
            break
        layers = [list(layer) for layer in layers]
        down = sweep % 2 == 0
        towards = above if down else below
        indices = range(1, len(layers)) if down else range(len(layers) - 2, -1, -1)
        for at in indices:
            other = {k: float(j) for j, k in enumerate(layers[at - 1 if down else at + 1])}
            own = {k: float(j) for j, k in enumerate(layers[at])}
            layers[at].sort(key=_mean_of(towards, other, own))
        found = _crossings(layers, below)
        if found < fewest:
            best, fewest = layers, found
    return best


def _mean_of(
    neighbours: list[list[int]], place: dict[int, float], own: dict[int, float]
) -> Callable[[int], float]:
    def mean(k: int) -> float:
        found = [place[j] for j in neighbours[k]]
        return sum(found) / len(found) if found else own[k]

    return mean


def _crossings(layers: list[list[int]], below: list[list[int]]) -> int:
    total = 0
    for upper, lower in zip(layers, layers[1:], strict=False):
        place = {k: j for j, k in enumerate(lower)}
        seen: list[int] = []  # where the edges from further left end, sorted
        for k in upper:
            ends = [place[b] for b in below[k]]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


# -- places ------------------------------------------------------------------------------------------


def _positions(
    layers: list[list[int]],
    sizes: Sequence[float],
    above: list[list[int]],
    below: list[list[int]],
) -> list[float]:
    """Where each box has its centre, across: near its neighbours, in its layer's order."""
    xs = [0.0] * len(sizes)
    for layer in layers:
        x = 0.0
        for k in layer:
            xs[k] = x + sizes[k] / 2
            x += sizes[k] + _GAP
    for sweep in range(_PLACINGS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = []
            for k in layer:
                pulls = {
                    j: 1.0 if sizes[j] or sizes[k] else _STRAIGHT for j in (*above[k], *below[k])
                }
                total = sum(pulls.values())
                mean = sum(xs[j] * pull for j, pull in pulls.items())
                wanted.append(mean / total if total else xs[k])
            for k, x in zip(layer, _apart(wanted, [sizes[k] for k in layer]), strict=True):
                xs[k] = x
    return xs


def _apart(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """The places closest to those ``wanted``, in their order and without overlap.

    Less what stands to its left a place must not fall, which is isotonic regression: neighbours in the
    wrong order are pooled, and a pool goes to its mean.
    """
    offsets, offset = [], 0.0
    for k, size in enumerate(sizes):
        offset += (sizes[k - 1] + size) / 2 + _GAP if k else 0.0
        offsets.append(offset)
    pools: list[tuple[float, int]] = []  # sum, number
    for x, base in zip(wanted, offsets, strict=True):
        total, number = x - base, 1
        while pools and pools[-1][0] / pools[-1][1] > total / number:
            more, others = pools.pop()
            total, number = total + more, number + others
        pools.append((total, number))
    levels = [total / number for total, number in pools for _ in range(number)]
    return [level + base for level, base in zip(levels, offsets, strict=True)]
