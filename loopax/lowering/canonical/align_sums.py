"""A sum that a state adds one row late -> a sequence of the loop's own rows.

    y = join(0, [0], w), n + 1 rows                  k = f(k + w row), from 0
    s = f(s) + y[:-1] row, from y[-1], backwards ->  the final of s is k's

A state ``s' = f(s) + x`` is taken for ``k = s - x``, with the ``x`` that was added last, so that
``k' = f(k + z)`` where ``z`` is what ``x`` was one step before, and the initial state before that. Of
a sum ``x`` only the terms are moved for which it helps.

Condition: the initial state and the rows of ``x`` are the rows of one tensor, which is a sum of windows,
and a term of it is a tensor or fewer cuts of one when it is read one row on. The row is read nowhere
else in the step, nor is the state as it is behind the step.

Reason: PyTensor's gradients keep the cotangents of all states in a buffer, that of the first one
included: a loop that goes through it reads what the step before it made next to what its own step
made. No loop over the same steps can fuse with it, where a loop that reads ``w`` can.

It does not undo itself: a term that is read row by row costs nothing, and would cost one row on.

In the literature: loop shifting (alignment of iterations).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.facts.elementwise import is_elementwise
from loopax.ir import Scan
from loopax.ir.replace import replaced
from loopax.ir.sizes import DimExpr
from loopax.lowering.access.index_facts import checked_dims
from loopax.lowering.access.pieces import Pieces
from loopax.lowering.access.row_pieces import NONE, ONE, Piece, Rows, is_zero, part
from loopax.lowering.access.row_sums import terms
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import Input, OpenLoop, State, replace_outputs


def align_sums(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    loops = [node for node in graph.toposort() if _adds_rows(node.op)]
    if loops:
        pieces = Pieces(checked_dims(graph))
        for node in loops:
            _align(graph, node, pieces)
    map_bodies(graph, align_sums)


def _adds_rows(op: Any) -> bool:
    """Whether a state of ``op`` is a sum with a row: all that most loops are asked."""
    if not isinstance(op, Scan) or op.stops or op.options.truncate_gradient >= 0 or not op.n_seqs:
        return False
    rows = set(op.args.rows)
    return any(
        is_elementwise(v.owner, ps.Add) and not rows.isdisjoint(_terms(v)[0])
        for v in op.outs.states
    )


def _align(graph: FunctionGraph, node: Apply, pieces: Pieces) -> None:
    op: Any = node.op
    uses = Counter([v for inner in op.fgraph.apply_nodes for v in inner.inputs])
    uses.update(op.fgraph.outputs)
    moves = []
    for k in range(op.n_states):
        at = _row_added(op, k, uses)
        if at is not None:
            moved = _moved(pieces, node, node.inputs[1 + at], node.inputs[1 + op.n_seqs + k])
            if moved is not None:
                moves.append((k, at, moved))
    if not moves:
        return
    loop = OpenLoop.of(node)
    rows = [*loop.rows]
    for k, at, moved in moves:
        _rotate(loop, loop.states[k], rows[at], moved)
    new = loop.close()
    for k, _, moved in moves:
        if moved.rest is not None:
            new[node.outputs[k]] = new[node.outputs[k]] + moved.rest
    replace_outputs(graph, new, "align_sums")


# -- the step ------------------------------------------------------------------------------------


def _row_added(op: Any, k: int, uses: Counter[Any]) -> int | None:
    """Which row state ``k`` adds last, if it is read nowhere else and the sum is not either."""
    state = op.args.states[k]
    if not isinstance(state.type, DenseTensorType) or state.type.dtype == "bool":
        return None
    terms, sums = _terms(op.outs.states[k])
    alike = all(v.type.dtype == state.type.dtype for v in terms) and all(
        v.type.broadcastable == state.type.broadcastable for v in terms
    )
    if len(terms) < 2 or not alike or any(uses[v] > 1 for v in sums):
        return None
    rows = op.args.rows
    places = (at for at, row in enumerate(rows) if uses[row] == 1 and row in terms)
    return next(places, None)


def _terms(v: Any) -> tuple[list[Any], list[Any]]:
    """The terms of the sum ``v``, and the sums that it is made of."""
    terms: list[Any] = []
    sums, stack = [], [v]
    while stack:
        v = stack.pop()
        if is_elementwise(v.owner, ps.Add):
            sums.append(v)
            stack += reversed(v.owner.inputs)
        else:
            terms.append(v)
    return terms, sums


def _rotate(loop: OpenLoop, state: State, row: Input, moved: _Moved) -> None:
    """Have ``state`` stand for itself without the moved terms of ``row``."""
    if moved.kept is None:
        loop.rows.remove(row)
        others = [v for v in _terms(state.next)[0] if v is not row.inner]
        state.next = others[0] if len(others) == 1 else pt.add(*others)
    else:
        row.outer = moved.kept
    before = moved.before
    new = Input(before.type.clone(shape=before.type.shape[1:])(), before)
    loop.rows.append(new)
    state.init = state.inner.type.filter_variable(moved.init)
    loop.set_outputs(replaced(loop.outputs(), {state.inner: state.inner + new.inner}))


# -- the rows outside ----------------------------------------------------------------------------


class _Moved(NamedTuple):
    before: Any  # rows that are added to the state before the step
    kept: Any  # rows that are added behind it, as before; None if there are none
    init: Any
    rest: Any  # what the final lacks, None if nothing


def _moved(pieces: Pieces, node: Apply, x: Any, init: Any) -> _Moved | None:
    """A replacement for the rows ``x`` that are added to a state that begins as ``init``."""
    op: Any = node.op
    n = pieces.dims.value(node.inputs[0])
    if pieces.dims.length(x) != n or x.type.ndim != init.type.ndim + 1:
        return None
    first = pieces.as_row(init)
    rows = (*pieces.rows(x), first) if op.options.reverse else (first, *pieces.rows(x))
    behind, begin, end = (0, n, NONE) if op.options.reverse else (1, NONE, n)
    moved: list[Rows] = []
    kept: list[Rows] = []
    for term in terms(pieces, rows, x):
        here, before = (part(pieces.dims, term, DimExpr(offset=k), n) for k in (behind, 1 - behind))
        if here is None and before is None:
            return None
        if before is not None and (here is None or pieces.cost(before) < pieces.cost(here)):
            moved.append(term)
        else:
            kept.append(term)
    if not moved:
        return None
    inits, missing = _rows_at(pieces, kept, begin), _rows_at(pieces, moved, end)
    if inits is None or missing is None:
        return None
    at_first = [pieces.row(p, x) for p in inits] or [pieces.row(pieces.zeros(x.type.dtype), x)]
    return _Moved(
        _sum([pieces.build(_part(pieces, t, 1 - behind, n), x) for t in moved]),
        _sum([pieces.build(_part(pieces, t, behind, n), x) for t in kept]),
        _sum(at_first),
        _sum([pieces.row(p, x) for p in missing]),
    )


def _part(pieces: Pieces, term: Rows, start: int, n: DimExpr) -> Rows:
    rows_of_part = part(pieces.dims, term, DimExpr(offset=start), n)
    assert rows_of_part is not None
    return rows_of_part


def _rows_at(pieces: Pieces, terms: list[Rows], at: DimExpr) -> list[Piece] | None:
    """The row of each term at one position, without zeros; None if one is not known."""
    parts = [part(pieces.dims, term, at, ONE) for term in terms]
    if any(rows is None for rows in parts):
        return None
    return [p for rows in parts for p in rows or () if not is_zero(p)]


def _sum(terms: list[Any]) -> Any:
    """The sum, None where there is nothing to add."""
    if len(terms) < 2:
        return terms[0] if terms else None
    return pt.add(*terms)
