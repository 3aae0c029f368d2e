"""A sum that a state adds early -> a sequence of the loop's own rows.

    y = join(0, [0], w), n + 1 rows                  k = f(k + w row), from 0
    s = f(s) + y[:-1] row, from y[-1], backwards ->  the final of s is k's

A state ``s' = f(s) + x`` is replaced by ``k = s - x``, with the ``x`` that was added last, so that
``k' = f(k + z)``, where ``z`` is ``x`` one step earlier, and the initial state in the first step. If ``x``
is a sum, only those terms are moved for which it helps. States that only pass a row on, as in a window of
several taps, form a chain

    s' = f(r) + x,  q' = g(r) + s,  r' = h(r) + q

and a term of ``x`` may move to any state of it: added to ``r`` it is read three steps late.

Condition: the initial states and the rows of ``x`` are the rows of one tensor, which is a sum of windows,
and a term of it becomes a whole tensor, or takes fewer slices, when it is read some rows later. Nothing
else in the step reads the row, or a state from the first one to the one that the term is added to.

Reason: PyTensor's gradients keep the cotangents of all states in a buffer, including the initial
ones: a loop that goes through it reads what an earlier step made next to what its own step
made. No loop over the same steps can fuse with it, where a loop that reads ``w`` can.

The pass does not undo itself: a term that is read row by row costs nothing, and would if shifted again.

In the literature: loop shifting (alignment of iterations).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorVariable

from loopax.facts.elementwise import is_elementwise
from loopax.ir import Scan
from loopax.ir.replace import replaced
from loopax.ir.sizes import DimExpr, Window
from loopax.ir.sizes.dim_expr import total
from loopax.lowering.access.index_facts import checked_dims
from loopax.lowering.access.pieces import Pieces
from loopax.lowering.access.row_pieces import NONE, ONE, Piece, Rows, is_zero, joined, part
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


def _adds_rows(op: Op) -> bool:
    """Whether a state of ``op`` is a sum with a row: a quick test that rules out most loops."""
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
    after = _handed_to(op, uses)
    moves: list[tuple[int, list[int], _Moved]] = []
    for k in range(op.n_states):
        at = _row_added(op, k, uses)
        if at is not None:
            chain = _chain(k, after, {state for _, states, _ in moves for state in states})
            inits = [node.inputs[1 + op.n_seqs + state] for state in chain]
            moved = _moved(pieces, node, node.inputs[1 + at], inits)
            if moved is not None:
                moves.append((at, chain[: len(moved.states)], moved))
    if not moves:
        return
    loop = OpenLoop.of(node)
    rows = [*loop.rows]
    for at, chain, moved in moves:
        _rotate(loop, [loop.states[k] for k in chain], rows[at], moved)
    new = loop.close()
    for _, chain, moved in moves:
        for k, state in zip(chain, moved.states, strict=True):
            if state.final_terms is not None:
                new[node.outputs[k]] = new[node.outputs[k]] + state.final_terms
    replace_outputs(graph, new, "align_sums")


# -- the step ------------------------------------------------------------------------------------


def _handed_to(op: Scan, uses: Counter[Any]) -> dict[int, int]:
    """Map each state to the state that takes it over as a term, where nothing else reads it."""
    place = {v: k for k, v in enumerate(op.args.states)}
    after: dict[int, int] = {}
    for k, v in enumerate(op.outs.states):
        terms, sums = _terms(v)
        if not any(uses[x] > 1 for x in sums):
            after |= {place[x]: k for x in terms if x in place and uses[x] == 1}
    alike = {k for k, v in enumerate(op.args.states) if isinstance(v.type, DenseTensorType)}
    return {
        k: then
        for k, then in after.items()
        if {k, then} <= alike and op.args.states[k].type == op.args.states[then].type
    }


def _chain(k: int, after: dict[int, int], used: set[int]) -> list[int]:
    """State ``k`` and the states that take it over, one after the other."""
    chain = [k]
    while (then := after.get(chain[-1])) is not None and then not in used and then not in chain:
        chain.append(then)
    return chain


def _row_added(op: Scan, k: int, uses: Counter[Any]) -> int | None:
    """The row that state ``k`` adds last, None if the row or the sum is also read elsewhere."""
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


def _terms(v: Variable) -> tuple[list[Any], list[Any]]:
    """The terms of the sum ``v``, and the nested sums that it is made of."""
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


def _rotate(loop: OpenLoop, chain: list[State], row: Input, moved: _Moved) -> None:
    """Redefine the states of ``chain`` to exclude the moved terms of ``row``."""
    if moved.kept is None:
        loop.rows.remove(row)
        others = [v for v in _terms(chain[0].next)[0] if v is not row.inner]
        chain[0].next = others[0] if len(others) == 1 else pt.add(*others)
    else:
        row.outer = moved.kept
    for state, change in zip(chain, moved.states, strict=True):
        state.init = state.inner.type.filter_variable(change.init)
        if change.late is not None:
            late = change.late
            new = Input(late.type.clone(shape=late.type.shape[1:])(), late)
            loop.rows.append(new)
            loop.set_outputs(replaced(loop.outputs(), {state.inner: state.inner + new.inner}))


# -- the rows outside ----------------------------------------------------------------------------


class _State(NamedTuple):
    late: Any  # rows that are added to the state before the step; None if there are none
    init: Any
    final_terms: Any  # terms that the final state lacks; None if there are none


class _Moved(NamedTuple):
    kept: Any  # rows that are added to states after the first, as before; None if there are none
    states: list[_State]


def _moved(pieces: Pieces, node: Apply, x: Variable, inits: list[TensorVariable]) -> _Moved | None:
    """A replacement for the rows ``x``, added to the first state of a chain with initial values ``inits``.

    The rows of the inits and of ``x`` are numbered in one sequence. State ``k`` of the chain, from 1, holds
    at each step the row that was added ``k`` steps before.
    """
    op: Any = node.op
    n, depth, reverse = pieces.dims.value(node.inputs[0]), len(inits), op.options.reverse
    if pieces.dims.length(x) != n or x.type.ndim != inits[0].type.ndim + 1:
        return None
    firsts = [pieces.as_row(init) for init in inits]

    def late(term: Rows, by: int) -> Rows | None:
        """The ``n`` rows of ``term`` that are read where each is added ``by`` steps late."""
        return part(pieces.dims, term, DimExpr(offset=by if reverse else depth - by), n)

    by_delay: list[list[Rows]] = [[] for _ in range(depth + 1)]
    for term in _all_terms(pieces, x, firsts, reverse):
        costs = {k: pieces.cost(t) for k in range(depth + 1) if (t := late(term, k)) is not None}
        if not costs:
            return None
        by_delay[min(costs, key=lambda k: (costs[k], k))].append(term)
    if not any(by_delay[1:]):
        return None

    def added(delay: int) -> Any:
        return _sum([pieces.build(t, x) for term in by_delay[delay] if (t := late(term, delay))])

    states = []
    for k in range(1, depth + 1):
        begin = n + (k - 1) if reverse else DimExpr(offset=depth - k)
        end = DimExpr(offset=k - 1) if reverse else n + (depth - k)
        start = _rows_at(pieces, [t for moved in by_delay[:k] for t in moved], begin)
        missing = _rows_at(pieces, [t for moved in by_delay[k:] for t in moved], end)
        if start is None or missing is None:
            return None
        at_first = [pieces.row(p, x) for p in start] or [pieces.row(pieces.zeros(x.type.dtype), x)]
        final_terms = _sum([pieces.row(p, x) for p in missing])
        states.append(_State(added(k), _sum(at_first), final_terms))
    return _Moved(added(0), states)


def _all_terms(pieces: Pieces, x: Variable, firsts: list[Piece], reverse: bool) -> list[Rows]:
    """The rows ``x`` and the initial rows ``firsts``, given last step first, in storage order, as a sum."""
    rows = joined((*pieces.rows(x), *firsts) if reverse else (*firsts[::-1], *pieces.rows(x)))
    return _terms_of_buffer(pieces, x, rows) or terms(pieces, rows, x)


def _terms_of_buffer(pieces: Pieces, x: Variable, rows: Rows) -> list[Rows] | None:
    """The terms of the buffer that ``rows`` begin in, None if the buffer does not hold all of them.

    Rows at its end may have been traced to the tensors they were copied from.
    """
    first, *others = rows
    if not isinstance(first, Window) or first.step != 1:
        return None
    n, length = total(piece.count for piece in rows), pieces.dims.length(first.source)
    whole = terms(pieces, (Window(first.source, NONE, length),), x)
    cuts = [part(pieces.dims, term, first.start, n) for term in whole]
    at = first.count
    for piece in others:
        there = [
            p for term in cuts for p in part(pieces.dims, term or (), at, piece.count) or (None,)
        ]
        if [p for p in there if p is None or not is_zero(p)] != ([] if is_zero(piece) else [piece]):
            return None
        at = at + piece.count
    return None if None in cuts else cuts  # type: ignore[return-value]  # None is in no cut


def _rows_at(pieces: Pieces, terms: list[Rows], at: DimExpr) -> list[Piece] | None:
    """The row of each term at position ``at``, without zeros; None if one is not known."""
    parts = [part(pieces.dims, term, at, ONE) for term in terms]
    if any(rows is None for rows in parts):
        return None
    return [p for rows in parts for p in rows or () if not is_zero(p)]


def _sum(terms: list[Variable]) -> Any:
    """The sum of the terms, None if there are none."""
    if len(terms) < 2:
        return terms[0] if terms else None
    return pt.add(*terms)
