"""What is written out many times, as a function of its own that is compiled once.

A product of two matrices with 3 rows is nine lines, an inverse some thirty, and the gradient of a Kalman
filter has dozens of them. Numba takes some 6 ms for each line, and a call is one; the compiler of machine
code puts the function in its place again. A function takes some 80 ms of its own, so that a program is
written twice: once with everything in line, to see what comes how often, and then with the functions
that are worth it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopax.numba_backend.emit.emitter import Emitter, Site
from loopax.numba_backend.emit.source import Source, tuple_of
from loopax.numba_backend.emit.values import Small

Rule = Callable[..., Any]
_LINES = 14  # that a function has to save


def worth_it(tally: Mapping[Any, Sequence[int]]) -> set[Any]:
    """What is to be a function, given how many lines each took wherever it was written out."""
    return {
        key
        for key, lines in tally.items()
        if sum(lines) - max(lines) - 1.5 * len(lines)
        > _LINES  # once it stays, and each call is a line
    }


def outlined(site: Site, function: Rule, hint: str, *values: Small) -> Any:
    """What the rule ``function`` gives for ``values``, all of it in locals, by a call."""
    emit = site.emit
    key = (function, site.op, *((v.shape, v.dtype) for v in values))
    if key not in emit.worth_it:
        before = emit.source.written
        found = function(site, *values)
        emit.tally.setdefault(key, []).append(emit.source.written - before)
        return found
    if key not in emit.outlined:
        emit.outlined[key] = _made(site, function, hint, values)
    name, shapes = emit.outlined[key]
    args = [x for v in values for x in v.elements.flat]
    found = [Small(_locals(emit, shape), dtype) for shape, dtype in shapes]
    names = [x for v in found for x in v.elements.flat]
    emit.line(f"{tuple_of(names)[1:-1]} = {name}({', '.join(args)})")
    return tuple(found) if len(found) != 1 else found[0]


def _made(site: Site, function: Rule, hint: str, values: Sequence[Small]) -> Any:
    name = site.emit.source.fresh(hint)
    n = sum(v.elements.size for v in values)
    args = [f"x{k}" for k in range(n)]
    inner = Emitter(Source(name, args), site.emit.largest, site.emit.keeps_shapes)
    rest = iter(args)
    given = []
    for v in values:
        elements = np.empty(v.elements.shape, dtype=object)
        for at in np.ndindex(*elements.shape):
            elements[at] = next(rest)
        given.append(Small(elements, v.dtype))
    found = function(Site(inner, site.node, site.uses), *given)
    outs = [inner.in_locals(v) for v in (found if isinstance(found, tuple) else (found,))]
    inner.line(f"return {tuple_of([x for v in outs for x in v.elements.flat])}")
    site.emit.define(inner)
    return name, [(v.shape, v.dtype) for v in outs]


def _locals(emit: Emitter, shape: Any) -> np.ndarray:
    elements = np.empty(shape, dtype=object)
    for at in np.ndindex(*shape):
        elements[at] = emit.local("t")
    return elements
