"""Loops over ranges with the step 1 or -1, with one counter in place of Numba's iterator.

Numba divides to find the number of iterations, and keeps that number, the next value and a pair of both
with a flag in nine stack slots: some 80 instructions a loop, of a program that has hundreds of loops.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from loopax.base.compiling.locals import uses
from loopax.base.upstream.numba import cgutils, ir, numba_ir


class Counter(NamedTuple):
    """A range that a loop runs over: the slot of its next value, its end, and its step, 1 or -1."""

    slot: Any
    stop: Any
    step: Any
    is_signed: bool
    is_never_negative: bool

    def next(self, builder: Any) -> tuple[Any, Any]:
        """The next value, and whether it is in the range; advances the counter.

        The sum that follows the last value is the end, so it does not overflow. The sum that follows the
        end may, and nobody reads it.
        """
        value = builder.load(self.slot)
        compare = builder.icmp_signed if self.is_signed else builder.icmp_unsigned
        is_in_range = compare("<" if self.step.constant > 0 else ">", value, self.stop)
        flags = ["nsw"] if self.is_signed else []
        builder.store(builder.add(value, self.step, flags=flags), self.slot)
        return value, is_in_range


def counter_of(builder: Any, state: Any, is_signed: bool) -> Counter | None:
    """The counter of a range, an LLVM struct of its start, end and step; None for other steps.

    A sum with a larger step may pass the largest integer, and the next comparison would read it.
    """
    start, stop, step = (builder.extract_value(state, k) for k in range(3))
    if not isinstance(step, ir.Constant) or step.constant not in {1, -1}:
        return None
    slot = cgutils.alloca_once(builder, start.type)
    builder.store(start, slot)
    is_from_zero_on = isinstance(start, ir.Constant) and (start.constant or 0) >= 0
    return Counter(slot, stop, step, is_signed, is_from_zero_on and step.constant > 0)


def counted_iterators(blocks: dict[int, Any], assigned_once: set[str]) -> set[str]:
    """Locals that hold an iterator and are only advanced, copied to each other, and deleted."""
    names: set[str] = set()
    copies: list[tuple[str, str]] = []
    for block in blocks.values():
        for statement in block.find_insts(numba_ir.Assign):
            value, target = statement.value, statement.target.name
            if isinstance(value, numba_ir.Expr) and value.op == "getiter":
                names.add(target)
            elif isinstance(value, numba_ir.Var):
                copies.append((target, value.name))
    size = -1
    while size < (size := len(names)):
        names |= {target for target, source in copies if source in names}
    refused = names - assigned_once
    for block in blocks.values():
        for statement in block.body:
            if not _keeps_iterators(statement):
                refused |= names.intersection(uses(statement))
    size = -1
    while size < (size := len(refused)):
        for target, source in copies:
            if target in refused or source in refused:
                refused |= {target, source} & names
    return names - refused


def _keeps_iterators(statement: Any) -> bool:
    """Whether a statement only advances, copies or deletes the iterators that it names."""
    if isinstance(statement, numba_ir.Del):
        return True
    if not isinstance(statement, numba_ir.Assign):
        return False
    value = statement.value
    return isinstance(value, numba_ir.Var) or (
        isinstance(value, numba_ir.Expr) and value.op == "iternext"
    )
