"""What is written out many times, as a function of its own that is compiled once.

A product of two matrices with 3 rows is nine lines, an inverse some thirty, and the gradient of a Kalman
filter has dozens of them. Numba takes some 6 ms for each line, and a call is one; the compiler of machine
code puts the function in its place again. A function takes some 80 ms of its own. So what could be one is a
`Region` of the tree, and when all is there those are made calls that come often enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopax.numba_backend.emit.emitter import Emitter, Site
from loopax.numba_backend.emit.expressions import call, local, tuple_of
from loopax.numba_backend.emit.scopes import Scope
from loopax.numba_backend.emit.statements import Assign, Function, Region, Return
from loopax.numba_backend.emit.values import Small

Rule = Callable[..., Any]
_LINES = 14  # that a function has to save


@dataclass(frozen=True)
class Candidate:
    """A region that holds what ``rule`` has written for ``values``: ``results``, all of it in locals."""

    region: Region
    site: Site
    rule: Rule
    values: Sequence[Small]
    results: Sequence[Small]


def outlined(site: Site, rule: Rule, hint: str, *values: Small) -> Any:
    """What ``rule`` gives for ``values``, all of it in locals, in line or by a call of ``hint``."""
    emit, region = site.emit, Region()
    emit.add(region)
    with emit.inside(Scope(region.body)):
        found = rule(site, *values)
        results = tuple(map(emit.in_locals, found if isinstance(found, tuple) else (found,)))
    key = (hint, rule, site.op, *((v.shape, v.dtype) for v in values))
    candidate = Candidate(region, site, rule, values, results)
    emit.candidates.setdefault(key, []).append(candidate)
    return results if isinstance(found, tuple) else results[0]


def outline(emit: Emitter) -> None:
    """Make calls of the regions for which a function is worth it."""
    for (hint, *_), alike in emit.candidates.items():
        if is_worth_it([len(one.region.body.lines()) for one in alike]):
            name = _function(alike[0], emit.source.fresh(hint))
            for one in alike:
                one.region.call = _call(one, name)


def is_worth_it(lines: Sequence[int]) -> bool:
    """Whether what takes so many lines wherever it is written out is to be a function."""
    return sum(lines) - max(lines) - 1.5 * len(lines) > _LINES  # once it stays, each call is a line


def _function(one: Candidate, name: str) -> str:
    """A function that does what the region does; its name."""
    emit, sizes = one.site.emit, [v.elements.size for v in one.values]
    args = [local(f"x{k}") for k in range(sum(sizes))]
    inner = Emitter(Function(name, args), emit.largest, emit.keeps_shapes)
    parts = np.split(np.array(args, dtype=object), np.cumsum(sizes)[:-1])
    given = [
        Small(part.reshape(v.shape), v.dtype) for part, v in zip(parts, one.values, strict=True)
    ]
    found = one.rule(Site(inner, one.site.node, one.site.uses), *given)
    outs = map(inner.in_locals, found if isinstance(found, tuple) else (found,))
    found = [x for v in outs for x in v.elements.flat]
    inner.add(Return(tuple_of(found) if len(found) > 1 else found[0]))
    emit.define(inner)
    return name


def _call(one: Candidate, name: str) -> Assign:
    given = [x for v in one.values for x in v.elements.flat]
    results = [x for v in one.results for x in v.elements.flat]
    is_own = [x.is_name and x not in given for x in results]
    targets = [
        x if own else one.site.emit.local("t") for x, own in zip(results, is_own, strict=True)
    ]
    return Assign(tuple(targets), call(name, *given))
