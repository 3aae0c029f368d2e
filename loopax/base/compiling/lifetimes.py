"""The ends of locals, for those whose references Numba counts.

Numba ends each local after its last use, and walks the function six times to find where. Most locals of
generated code are numbers, whose ends mean nothing: they were two of three statements. An argument
belongs to the caller, who holds it until the function returns.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from loopax.base.compiling.locals import uses
from loopax.base.upstream.numba import (
    IRLegalization,
    canonicalize_cfg,
    compiler,
    compute_cfg_from_blocks,
    compute_dead_maps,
    compute_live_map,
    numba_ir,
    register_pass,
)


@register_pass(mutates_CFG=True, analysis_only=False)
class EmittedLegalization(IRLegalization):  # type: ignore[misc]  # Numba has no types
    """Numba's last pass before lowering; generated code has no generators."""

    def run_pass(self, state: compiler.StateDict) -> bool:
        function, models = state.func_ir, state.targetctx.data_model_manager
        function.generator_info = None
        function.blocks = blocks = canonicalize_cfg(function.blocks)
        counted = {
            kind for kind in set(state.typemap.values()) if models[kind].contains_nrt_meminfo()
        }
        owners = {name for name, kind in state.typemap.items() if kind in counted}
        owners -= borrowed_arguments(blocks)
        if owners:
            _end(blocks, owners)
        return True


def borrowed_arguments(blocks: dict[int, Any]) -> set[str]:
    """Locals that are an argument of the function from its first statement to its last."""
    assignments = [a for block in blocks.values() for a in block.find_insts(numba_ir.Assign)]
    counts = Counter(a.target.name for a in assignments)
    return {
        a.target.name
        for a in assignments
        if isinstance(a.value, numba_ir.Arg) and counts[a.target.name] == 1
    }


def _end(blocks: dict[int, Any], owners: set[str]) -> None:
    """Insert a ``Del`` after the last use of each local among ``owners``, on each path."""
    used, defined = {}, {}
    for label, block in blocks.items():
        used[label], defined[label] = _uses_and_definitions(block, owners)
    graph = compute_cfg_from_blocks(blocks)
    live = compute_live_map(graph, blocks, used, defined)
    dead = compute_dead_maps(graph, blocks, live, defined)
    for label, block in blocks.items():
        at_start, inside = sorted(dead.escaping[label]), set(dead.internal[label])
        if not at_start and not inside:
            continue
        *statements, terminator = block.body
        body: list[Any] = [terminator]
        for statement in reversed(statements):
            names = inside.intersection(_names(statement))
            inside -= names
            body += [numba_ir.Del(name, loc=statement.loc) for name in sorted(names)]
            body.append(statement)
        location = block.body[0].loc
        body += [numba_ir.Del(name, loc=location) for name in reversed(at_start)]
        block.body = body[::-1]


def _uses_and_definitions(block: Any, owners: set[str]) -> tuple[set[str], set[str]]:
    """The locals among ``owners`` that a block reads before it defines them, and those it defines."""
    used: set[str] = set()
    defined: set[str] = set()
    for statement in block.body:
        names = uses(statement)
        if isinstance(statement, numba_ir.Assign):
            target = statement.target.name
            if target in owners and target not in names:
                defined.add(target)
            names.append(target)
        used.update(name for name in names if name in owners and name not in defined)
    return used, defined


def _names(statement: Any) -> list[str]:
    """The locals that a statement reads or assigns."""
    names = uses(statement)
    return [*names, statement.target.name] if isinstance(statement, numba_ir.Assign) else names
