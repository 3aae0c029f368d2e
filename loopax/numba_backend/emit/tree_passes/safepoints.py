"""Placement of safepoints, at which loops may be stopped; see `runtime.safepoints`.

A loop over steps checks for a stop once in a period of steps, and so does a loop around another one. An
innermost loop along an axis of an array has no check: LLVM vectorizes it, and it is short.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from loopax.numba_backend.emit.expressions import call, literal
from loopax.numba_backend.emit.statements import Block, Do, For, Function, If, Region
from loopax.numba_backend.runtime import (
    blas,
    checks,
    large_matrices,
    linalg,
    ordering,
    products,
    sums,
)

# Steps between two checks; 4096 steps without an inner loop take some microseconds.
_SHORT, _LONG = 4096, 16
_MOST_LINES = 64  # the most lines of a short step

_WITH_LOOPS = {
    **blas.FUNCTIONS,
    **large_matrices.FUNCTIONS,
    **linalg.FUNCTIONS,
    **ordering.FUNCTIONS,
    **products.FUNCTIONS,
    **sums.FUNCTIONS,
}


def add_safepoints(function: Function, namespace: Mapping[str, Any]) -> None:
    """Add safepoints to the loops of ``function``, whose globals are ``namespace``."""
    _add(function.body, namespace)


def _add(block: Block, namespace: Mapping[str, Any]) -> bool:
    """Add safepoints to a block; returns whether it contains a loop."""
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
                _insert_check(
                    statement, is_around or _takes_long(statement.body.lines(), namespace)
                )
    return has_loop


def _insert_check(loop: For, is_long: bool) -> None:
    period = _LONG if is_long else _SHORT
    if not isinstance(loop.count, int) or loop.count >= period:
        check = call("safepoint", loop.index, literal(period, "int64"))
        loop.body.statements.insert(0, Do(check))


def _takes_long(lines: list[str], namespace: Mapping[str, Any]) -> bool:
    """Whether a step without loops is long, or calls a function that may contain loops."""
    called = {name for line in lines for name in re.findall(r"(\w+)\(", line)}
    return len(lines) > _MOST_LINES or any(
        name in _WITH_LOOPS
        or (name not in checks.FUNCTIONS and hasattr(namespace.get(name), "py_func"))
        for name in called
    )
