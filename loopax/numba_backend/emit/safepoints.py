"""Where loops may be stopped: `runtime.safepoints` says how.

A loop over steps looks every so many of them, and so does a loop around another one. The innermost loop
along an axis of an array does not: LLVM makes vector code of it, and it ends when the array does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from loopax.numba_backend.emit.expressions import call, literal
from loopax.numba_backend.emit.statements import Block, Do, For, Function, If, Region
from loopax.numba_backend.runtime import checks, linalg, ordering, products, sums

# In how many steps a loop looks once. Of lines without a loop in them 4096 take some microseconds.
_SHORT, _LONG = 4096, 16
_MOST_LINES = 64  # of a short step

_WITH_LOOPS = {**linalg.FUNCTIONS, **ordering.FUNCTIONS, **products.FUNCTIONS, **sums.FUNCTIONS}


def add_safepoints(function: Function, namespace: Mapping[str, Any]) -> None:
    """Have the loops of ``function``, with ``namespace`` for its globals, look whether they are to stop."""
    _add(function.body, namespace)


def _add(block: Block, namespace: Mapping[str, Any]) -> bool:
    """Add safepoints to a block; whether there is a loop in it."""
    has_loop = False
    for statement in block.statements:
        if isinstance(statement, Block):
            has_loop |= _add(statement, namespace)
        elif isinstance(statement, If):
            has_loop |= _add(statement.body, namespace)
            has_loop |= _add(statement.orelse, namespace)
        elif isinstance(statement, Region):
            has_loop |= statement.call is None and _add(statement.body, namespace)
        elif isinstance(statement, For):
            has_loop = True
            is_around = _add(statement.body, namespace)
            if is_around or statement.is_steps:
                _look(statement, is_around or _takes_long(statement.body.lines(), namespace))
    return has_loop


def _look(loop: For, is_long: bool) -> None:
    period = _LONG if is_long else _SHORT
    if not isinstance(loop.count, int) or loop.count >= period:
        asked = call("safepoint", loop.index, literal(period, "int64"))
        loop.body.statements.insert(0, Do(asked))


def _takes_long(lines: list[str], namespace: Mapping[str, Any]) -> bool:
    """Whether a step without loops calls a function that may have some."""
    called = {name for line in lines for name in re.findall(r"(\w+)\(", line)}
    return len(lines) > _MOST_LINES or any(
        name in _WITH_LOOPS
        or (name not in checks.FUNCTIONS and hasattr(namespace.get(name), "py_func"))
        for name in called
    )
