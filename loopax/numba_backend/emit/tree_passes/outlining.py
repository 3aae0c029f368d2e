"""Outlining: repeated regions of a rule become one function that is compiled once.

A product of two matrices with 3 rows is nine lines, an inverse some thirty, and the gradient of a
Kalman filter has dozens of them. A line takes some 2 ms to compile (`..program_length`), and a call is
one line; LLVM inlines the function again. A function takes some 30 ms of its own. So each candidate is a
`Region` of the tree, and at the end of emission the frequent ones become calls.
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
from loopax.numba_backend.emit.values import Small, as_tuple

Rule = Callable[..., Any]
_LINES = 14  # lines that a function has to save


@dataclass(frozen=True)
class Candidate:
    """A region with the statements of ``rule`` for ``values``; all values and results are in locals."""

    region: Region
    site: Site
    rule: Rule
    values: Sequence[Small]
    results: Sequence[Small]


def outlined(site: Site, rule: Rule, hint: str, *values: Small) -> Any:
    """Apply ``rule`` to ``values`` in a region that `outline` may replace by a call of ``hint``."""
    emit, region = site.emit, Region()
    emit.add(region)
    with emit.inside(Scope(region.body)):
        outputs = rule(site, *values)
        results = tuple(map(emit.in_locals, as_tuple(outputs)))
    key = (hint, rule, site.op, *((v.shape, v.dtype) for v in values))
    candidate = Candidate(region, site, rule, values, results)
    emit.candidates.setdefault(key, []).append(candidate)
    return results if isinstance(outputs, tuple) else results[0]


def outline(emit: Emitter) -> None:
    """Replace regions by calls where a function saves lines."""
    for (hint, *_), alike in emit.candidates.items():
        if is_worth_it([len(candidate.region.body.lines()) for candidate in alike]):
            name = _function(alike[0], emit.source.fresh(hint))
            for candidate in alike:
                candidate.region.call = _call(candidate, name)


def is_worth_it(lines: Sequence[int]) -> bool:
    """Whether a function saves enough lines, for regions of these numbers of ``lines``."""
    # One body stays, and each call is a line.
    return sum(lines) - max(lines) - 1.5 * len(lines) > _LINES


def _function(candidate: Candidate, name: str) -> str:
    """Define a function with the statements of a region; returns its name."""
    emit, sizes = candidate.site.emit, [v.elements.size for v in candidate.values]
    args = [local(f"x{k}") for k in range(sum(sizes))]
    inner = Emitter(Function(name, args), emit.largest, emit.keeps_shapes)
    parts = np.split(np.array(args, dtype=object), np.cumsum(sizes)[:-1])
    operands = [
        Small(part.reshape(v.shape), v.dtype)
        for part, v in zip(parts, candidate.values, strict=True)
    ]
    outputs = candidate.rule(Site(inner, candidate.site.node, candidate.site.uses), *operands)
    outs = map(inner.in_locals, as_tuple(outputs))
    outputs = [x for v in outs for x in v.elements.flat]
    inner.add(Return(tuple_of(outputs) if len(outputs) > 1 else outputs[0]))
    emit.define(inner)
    return name


def _call(candidate: Candidate, name: str) -> Assign:
    operands = [x for v in candidate.values for x in v.elements.flat]
    results = [x for v in candidate.results for x in v.elements.flat]
    is_own = [x.is_name and x not in operands for x in results]
    targets = [
        x if own else candidate.site.emit.local("t") for x, own in zip(results, is_own, strict=True)
    ]
    return Assign(tuple(targets), call(name, *operands))
