"""Computations that feed no state move after the loop, as one operation on all rows.

    finals, ys = scan(lambda s, r: (g(s, r), f(s, r)), s, x)
    ->
    finals, ss = scan(lambda s, r: (g(s, r), s), s, x);  ys = F(ss, x)

The loop emits the states that ``f`` reads, before or after the step, and ``F`` is ``f`` for all rows. A
trace that a pullback pads with zeros (a truncated gradient) is padded after ``F``, as it was after ``f``:
the zeros stay zeros.

Condition: as in `push_out`, for the part that leaves. The loop does not emit more than before: each newly
emitted state is no larger than the trace that leaves, and there are no more states than traces, unless a
product, a sum or a function such as ``exp`` makes up for it. Products of small matrices stay where they
are.

Reason: one operation on all rows costs less than one per step, and a shorter step compiles faster.

No conflict with `fuse_loops`: it runs first, and a row that connects two loops feeds a state from then on.
Computations that leave here are no longer loops, so nothing fuses them back.

In the literature: loop fission.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.type import DenseTensorType

from loopax.ir.ops.scan import Scan
from loopax.ir.sizes import Dims
from loopax.lowering.analysis.atoms import Atom, atoms
from loopax.lowering.analysis.open_lengths import KnownLengths
from loopax.lowering.fission.push_out import conditions_of, outside_of, rewrite_loops, row_traces
from loopax.lowering.fission.row_wise_body import Bulk, RowWiseBody, is_small_product, largest
from loopax.lowering.fusion.fusion_plan import can_be_fused
from loopax.lowering.open_loop import OpenLoop, Y

Key = tuple[str, int]  # a state "before" the step or "after" it


def split_loops(graph: FunctionGraph) -> None:
    """Run the pass on the bodies of ``graph``, and then on ``graph`` itself, in place."""
    rewrite_loops(graph, leaving, "split_loops")


def leaving(node: Apply, dims: Dims, known: KnownLengths) -> dict[Any, Any]:
    """Map outputs of ``node`` to replacements outside or by a smaller loop; empty if nothing can leave."""
    op: Any = node.op
    if not can_be_fused(op) or not op.n_states or not op.n_ys:
        return {}
    if not all(isinstance(v.type, DenseTensorType) for v in op.args.states):
        return {}
    rows = [a for a in atoms(node) if a.is_row and (a.before or a.after)]
    return _leaving(node, rows, dims, known) if rows else {}


def _leaving(node: Apply, rows: list[Atom], dims: Dims, known: KnownLengths) -> dict[Any, Any]:
    """Map outputs of ``node`` to replacements, where some of ``rows`` can leave the loop."""
    op: Any = node.op
    conditions = conditions_of(op, node, dims, known)
    if conditions is None:
        return {}
    read = {v: key for a in rows for v, key in _states_of(op, a)}
    tensors = [
        v for v in (*op.args.rows, *read, *op.outs.ys) if isinstance(v.type, DenseTensorType)
    ]
    args = op.args._replace(rows=[*op.args.rows, *read])
    steps_known = known.covers(dims.value(node.inputs[0]))
    bulk = largest([Bulk.of(v) for v in tensors])
    body = RowWiseBody(args, op.fgraph.toposort(), bulk, steps_known)
    emitted = set(op.outs.ys)
    stays = set(toposort(op.outs.states))  # operands of the states are computed in the loop anyway
    rows = [a for a in rows if op.outs.ys[a.ys[0]].owner not in stays]
    leave: list[Atom] = []
    while True:  # terminates: it only grows
        more = [a for a in rows if a not in leave and _pays(op, a, body, emitted)]
        if not more:
            break
        leave += more
        emitted |= {v for a in more for v, _ in _states_of(op, a)}
    emitted = set(op.outs.ys)
    new = {v: key for a in leave for v, key in _states_of(op, a) if v not in emitted}
    if not leave or (
        len(new) > len(leave) and not any(op.outs.ys[a.ys[0]] in body.dear for a in leave)
    ):
        return {}
    loop = OpenLoop.of(node)
    gone = [a.ys[0] for a in leave]
    ys = [y for k, y in enumerate(loop.ys) if k not in gone]
    inner = {"before": [s.inner for s in loop.states], "after": [s.next for s in loop.states]}
    states = {v: Y(inner[which][k]) for v, (which, k) in new.items()}
    loop.ys = [*ys, *states.values()]
    loop.drop_unread()
    pairs: dict[Any, Any] = loop.close()
    of_state = {v: y.new for v, y in states.items()}
    for v, y in zip(op.outs.ys, op.split_outputs(node.outputs).traces, strict=True):
        if v in read and v not in of_state:
            of_state[v] = pairs[y]
    outside = outside_of(op.args, node, conditions) | of_state
    return pairs | row_traces(op, node, body, gone, outside, conditions)


def _states_of(op: Scan, atom: Atom) -> list[tuple[Any, Key]]:
    """The variables of the states that ``atom`` reads, with their keys."""
    before = [(op.args.states[k], ("before", k)) for k in atom.before]
    return [*before, *((op.outs.states[k], ("after", k)) for k in atom.after)]


def _pays(op: Scan, atom: Atom, body: RowWiseBody, emitted: set[Variable]) -> bool:
    y = op.outs.ys[atom.ys[0]]
    if y not in body or any(map(is_small_product, toposort([y]))):
        return False
    new = [v for v, _ in _states_of(op, atom) if v not in emitted]
    return all(Bulk.of(v).fits(Bulk.of(y)) for v in new)
