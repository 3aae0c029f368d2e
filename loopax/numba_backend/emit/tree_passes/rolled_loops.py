"""Hide the lengths of short inner loops from LLVM, which would unroll them before it looks for vector code.

    for i in range(20):                  for i in range(20):
        for j in range(20):       ->         for j in range(hidden(20)):
            s = plus(s, a[i, j])                 s = plus(s, a[i, j])

An unrolled sum is scalar code. The quotient of a 48 x 48 matrix by its sums of rows takes 3.1 us with
known lengths, and 0.6 with hidden ones; an outer product of 24 elements 209 and 80 ns. Up to 8 elements
the unrolled loop is faster. So is a loop with functions, slow for the elements that fill no vector.

LLVM also copies a hidden loop, its vector code and its remainder, for each iteration of a short loop
around it. The copies are up to 1.2 times as fast, but each takes 10 ms to compile: where a function would
have many, the lengths of the outer loops are hidden too. The gradient of an LSTM of 8 units compiles in
0.8 s less, and takes as long to run.

In the literature: this blocks full unrolling, as ``#pragma clang loop unroll(disable)`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
_MOST_COPIES = 32  # of loops of hidden or unknown length, in one function
_NOT_COPIED = 16  # iterations from which LLVM makes no copies of such a loop
_FUNCTIONS = re.compile(rf"\b(?:np\.\w+|math\.\w+|{'|'.join(VECTORIZED.values())})\(")
_INSTRUCTIONS = re.compile(r"\bnp\.(?:float\d+|u?int\d+|sqrt|maximum|minimum|floor|ceil|rint)\(")


def keep_rolled(function: Function) -> None:
    """Hide the lengths of inner loops of ``function``, in place."""
    _visit(function.body, is_inside=False)
    around = list(_loops_around_unknown(function.body))
    if sum(loop.count for loop in around if isinstance(loop.count, int)) > _MOST_COPIES:
        for loop in around:
            _hide(loop)


def _hide(loop: For) -> None:
    loop.count = call("hidden", text_of(loop.count))


def _loops_around_unknown(block: Block) -> Iterator[For]:
    """The short loops along axes of known length around a loop whose length LLVM does not know."""
    for statement in flattened(block):
        for inner in blocks_in(statement):
            yield from _loops_around_unknown(inner)
        if not isinstance(statement, For) or statement.is_steps:
            continue
        inner_loops = [s for s in flattened(statement.body) if isinstance(s, For)]
        is_around = any(not isinstance(loop.count, int) for loop in inner_loops)
        if is_around and isinstance(statement.count, int) and statement.count < _NOT_COPIED:
            yield statement


def _visit(block: Block, is_inside: bool) -> None:
    """Visit a block; ``is_inside``: it is in a loop along an axis of an array."""
    for statement in flattened(block):
        for inner in blocks_in(statement):
            is_axis = isinstance(statement, For) and not statement.is_steps
            _visit(inner, is_inside or is_axis)
        if isinstance(statement, For) and _is_better_rolled(statement, is_inside):
            _hide(statement)


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
