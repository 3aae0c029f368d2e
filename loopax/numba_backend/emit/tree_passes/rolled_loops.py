"""Hide the lengths of short inner loops from LLVM, which would unroll them before it looks for vector code.

    for i in range(20):                  for i in range(20):
        for j in range(20):       ->         for j in range(hidden(20)):
            s = plus(s, a[i, j])                 s = plus(s, a[i, j])

An unrolled sum is scalar code. The quotient of a 48 x 48 matrix by its sums of rows takes 3.1 us with
known lengths, and 0.6 with hidden ones; an outer product of 24 elements 209 and 80 ns. Up to 8 elements
the unrolled loop is faster. So is a loop with functions, slow for the elements that fill no vector.

In the literature: this blocks full unrolling, as ``#pragma clang loop unroll(disable)`` does.
"""

from __future__ import annotations

import re

from loopax.numba_backend.emit.expressions import call, text_of
from loopax.numba_backend.emit.scalar_expressions import VECTORIZED
from loopax.numba_backend.emit.statements import (
    Assign,
    Block,
    For,
    Function,
    blocks_in,
    flattened,
    has_loop,
)

# The lengths that are hidden, by whether the loop is inside another one, and whether it sums up or divides.
# Shorter loops are faster unrolled, and longer ones LLVM does not unroll.
_HIDDEN = {
    (True, True): range(9, 64),
    (True, False): range(9, 48),
    (False, True): range(16, 80),
    (False, False): range(0),
}
_FUNCTIONS = re.compile(rf"\b(?:np\.\w+|math\.\w+|{'|'.join(VECTORIZED.values())})\(")
_INSTRUCTIONS = re.compile(r"\bnp\.(?:float\d+|u?int\d+|sqrt|maximum|minimum|floor|ceil|rint)\(")


def keep_rolled(function: Function) -> None:
    """Hide the lengths of inner loops of ``function``, in place."""
    _visit(function.body, is_inside=False)


def _visit(block: Block, is_inside: bool) -> None:
    """Visit a block; ``is_inside``: it is in a loop along an axis of an array."""
    for statement in flattened(block):
        for inner in blocks_in(statement):
            is_axis = isinstance(statement, For) and not statement.is_steps
            _visit(inner, is_inside or is_axis)
        if isinstance(statement, For) and _is_better_rolled(statement, is_inside):
            statement.count = call("hidden", text_of(statement.count))


def _is_better_rolled(loop: For, is_inside: bool) -> bool:
    if loop.is_steps or not isinstance(loop.count, int) or has_loop(loop.body):
        return False
    lines = loop.body.lines()
    is_slow_unrolled = _has_sum(loop.body) or any(" / " in line for line in lines)
    if loop.count not in _HIDDEN[is_inside, is_slow_unrolled]:
        return False
    return not any(_FUNCTIONS.search(_INSTRUCTIONS.sub("", line)) for line in lines)


def _has_sum(block: Block) -> bool:
    """Whether ``block`` only computes a local from its value in the step before, and stores nothing."""
    assigned = [s for s in flattened(block) if isinstance(s, Assign)]
    targets = [text_of(target) for s in assigned for target in s.targets]
    if any("[" in target for target in targets):
        return False
    return any(
        re.search(rf"\b{text_of(target)}\b", text_of(s.value))
        for s in assigned
        for target in s.targets
    )
