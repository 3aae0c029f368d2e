"""Facts about the locals of a function in Numba's IR: assigned once, used as an index."""

from __future__ import annotations

import operator
from collections import defaultdict
from typing import Any

from loopax.base.upstream.numba import (
    compute_cfg_from_blocks,
    must_use_alloca,
    numba_ir,
    operands_of,
)

# Operators by which a signed integer may wrap around.
_WRAPPING = {operator.add, operator.sub, operator.mul}


def values_once(blocks: dict[int, Any]) -> dict[str, bool]:
    """Locals with one assignment, which dominates all uses and is lowered before them.

    Blocks are lowered in order, so the assignment is in an earlier block, or earlier in the same
    one.

    Returns
    -------
    By name, whether each value of the local is deleted at most once.
    """
    graph = compute_cfg_from_blocks(blocks)
    dominators = graph.dominators()
    looped = {label for loop in graph.loops().values() for label in loop.body}
    assigned: dict[str, list[int]] = defaultdict(list)
    deleted: dict[str, list[int]] = defaultdict(list)
    for label, block in blocks.items():
        for statement in block.body:
            if isinstance(statement, numba_ir.Assign):
                assigned[statement.target.name].append(label)
            elif isinstance(statement, numba_ir.Del):
                deleted[statement.value].append(label)
    on_stack = must_use_alloca(blocks)
    definitions = {
        name: labels[0]
        for name, labels in assigned.items()
        if len(labels) == 1 and name not in on_stack
    }
    for label, block in blocks.items():
        assigned_here: set[str] = set()  # locals assigned in this block so far
        for statement in block.body:
            for name in uses(statement):
                defining_block = definitions.get(name)
                is_defined = (
                    name in assigned_here
                    if defining_block == label
                    else defining_block in dominators[label]
                )
                if defining_block is not None and not (is_defined and defining_block <= label):
                    del definitions[name]
            if isinstance(statement, numba_ir.Assign):
                assigned_here.add(statement.target.name)
    return {
        name: deleted[name] in ([], [label])
        or (len(deleted[name]) == 1 and looped.isdisjoint([label, *deleted[name]]))
        for name, label in definitions.items()
    }


def uses(statement: numba_ir.Stmt) -> list[str]:
    """The locals that a statement reads."""
    if isinstance(statement, numba_ir.Del):
        return [statement.value]
    if not isinstance(statement, numba_ir.Assign):
        return [v.name for v in statement.list_vars()]
    value = statement.value
    if isinstance(value, numba_ir.Var):
        return [value.name]
    names: list[str] = []
    if isinstance(value, numba_ir.Expr):
        _add_names(operands_of(value), names)
    return names


def _add_names(parts: Any, names: list[str]) -> None:
    """Add the names of the locals among the parts of an expression, which may be nested."""
    for part in parts:
        if isinstance(part, numba_ir.Var):
            names.append(part.name)
        elif isinstance(part, tuple | list):
            _add_names(part, names)
        elif isinstance(part, dict):
            _add_names(part.values(), names)


def used_as_indices(blocks: dict[int, Any]) -> set[str]:
    """Locals that are read only as the index of an element, or to compute one."""
    computed_from: dict[str, set[str]] = defaultdict(set)
    read_names, worklist = set(), []
    for block in blocks.values():
        for statement in block.find_insts(numba_ir.Stmt):
            if isinstance(statement, numba_ir.Del):
                continue
            names = uses(statement)
            read_names |= set(names)
            if _may_compute_index(statement):
                computed_from[statement.target.name] |= set(names)
                continue
            if (index := _index(statement)) is not None:
                names.remove(index.name)
            worklist += names
    non_indices: set[str] = set()
    while worklist:
        name = worklist.pop()
        if name not in non_indices:
            non_indices.add(name)
            worklist += computed_from[name]
    return read_names - non_indices


def _index(statement: numba_ir.Stmt) -> Any:
    """The local that indexes the element that a statement reads or writes; None without one."""
    reads_element = isinstance(statement, numba_ir.Assign) and (
        isinstance(statement.value, numba_ir.Expr) and statement.value.op == "getitem"
    )
    if reads_element or isinstance(statement, numba_ir.SetItem):
        return (statement.value if reads_element else statement).index
    return None


def _may_compute_index(statement: numba_ir.Stmt) -> bool:
    if not isinstance(statement, numba_ir.Assign):
        return False
    value = statement.value
    is_tuple = isinstance(value, numba_ir.Expr) and value.op == "build_tuple"
    return is_tuple or isinstance(value, numba_ir.Var) or is_arithmetic(value)


def is_arithmetic(value: object) -> bool:
    return (
        isinstance(value, numba_ir.Expr)
        and value.op in {"binop", "inplace_binop"}
        and (value.fn if value.op == "binop" else value.immutable_fn) in _WRAPPING
    )
