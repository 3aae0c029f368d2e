"""Cached results of PyTensor's rewrites on graphs, shared by processes through the disk."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from loopax.cache import cache_folder
from loopax.cache.facts import Fact, fact_of_graph
from loopax.cache.results import cached
from loopax.lowering.canonical.registered import registered_rewrites

if TYPE_CHECKING:
    from pytensor.graph.basic import Variable


def rewritten(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    make: Callable[[], Sequence[Any]],
    *parts: Hashable,
) -> list[Any]:
    """Run ``make``, which applies PyTensor's rewrites to a graph, or load the result; see `cached`."""
    if (rewrites := _rewrites_to_keep()) is None:
        return list(make())
    return cached(inputs, outputs, make, rewrites, *parts)


def fact_of_rewritten(
    inputs: Sequence[Variable], outputs: Sequence[Variable], *parts: Hashable
) -> Fact:
    """Cached numbers about the graph that PyTensor's rewrites and our passes produce."""
    return fact_of_graph(inputs, outputs, _rewrites_to_keep(), *parts)


def _rewrites_to_keep() -> str | None:
    """The key of PyTensor's rewrites; None where nothing is cached."""
    return None if cache_folder() is None else registered_rewrites()
