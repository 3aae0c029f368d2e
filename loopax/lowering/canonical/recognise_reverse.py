"""Loops over flipped sequences  ->  loops that run backwards.

    trace = Scan(xs=x[::-1])  ->  trace = Scan{reverse}(xs=x)[::-1]

A reader that flips the trace again reads the trace itself: flips of flips cancel, even with other ops
between them (`loopax.lowering.access.flips`). A step that reads its index reads ``n_steps - 1 - i``.

Condition: fewer flips remain, of sequences and of traces together, counted for one loop or for all loops
that read the traces of one another. Never a loop that stops, which counts from its first step, or a loop
with a truncated derivative.

Reason: the loops of ``pytensor.grad`` read ``x[::-1]`` for every sequence. A loop that runs backwards
reads ``x`` itself: no copy, and one kernel less to compile for each sequence and each trace, which was a
fifth of the time to the first gradient of an AR(2) model.

In the literature: loop reversal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorVariable

from loopax.ir import Scan
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.ir.replace import replaced
from loopax.ir.sizes import access_of, mirrored_row, read_of
from loopax.lowering.access.flips import Flips
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import Input, OpenLoop, replace_outputs


def recognise_reverse(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    if any(map(_has_step, graph.apply_nodes)):
        traces = _turn_loops(graph)
        _cancel(graph, traces)
        MergeOptimizer().rewrite(graph)  # two reads of one array may each have their own slice node
    map_bodies(graph, recognise_reverse)


def _has_step(node: Apply) -> bool:
    read = read_of(node)
    return read is not None and not read.is_row and read.rows.step is not None


def _can_turn(op: Op) -> bool:
    return (
        isinstance(op, Scan)
        and not op.stops
        and op.options.truncate_gradient < 0
        and all(isinstance(v.type, DenseTensorType) for v in (*op.args.rows, *op.outs.ys))
    )


# -- which loops ---------------------------------------------------------------------------------------


class _Read(NamedTuple):
    """A read of a tensor with rows, by the loop ``by`` or by anything else."""

    sources: tuple[tuple[Any, int, bool], ...]  # loop or None, weight, whether flipped
    cost: int  # of its present flips
    by: Apply | None

    def loops(self) -> set[Apply]:
        return {x for x in (self.by, *(x for x, _, _ in self.sources)) if x is not None}

    def flips(self, turned: set[Apply]) -> int:
        """The weight of the flips if the loops in ``turned`` are reversed."""
        reads = self.by in turned
        each = sum(w for x, w, flipped in self.sources if flipped != (reads != (x in turned)))
        more = sum(w for x, w, _ in self.sources if x in turned)
        own = max((w for _, w, _ in self.sources), default=1) if reads else 0
        return min(each, self.cost + more + own)


def _turn_loops(graph: FunctionGraph) -> set[Any]:
    """Reverse the loops that save flips; return the traces of all loops that could be reversed."""
    loops = [node for node in graph.toposort() if _can_turn(node.op)]
    loop_of = {t: node for node in loops for t in _split(node)[1].traces}
    if not loops:
        return set()
    turned = _choose(loops, _reads(graph, Flips(graph, loop_of), loop_of, set(loops)))
    traces = set(loop_of)
    for node in loops:  # in topological order: later loops then see their final inputs
        if node in turned:
            new = _turn(node, Flips(graph, traces))
            traces -= {*_split(node)[1].traces}
            traces |= {x.owner.inputs[0] for old, x in new.items() if old in loop_of}
            replace_outputs(graph, new, "recognise_reverse")
    return traces


def _split(node: Apply) -> tuple[Any, Any]:
    return node.op.split_inputs(node.inputs), node.op.split_outputs(node.outputs)


def _reads(
    graph: FunctionGraph, flips: Flips, loop_of: dict[Any, Apply], loops: set[Apply]
) -> list[_Read]:
    asked: dict[tuple[Any, Apply | None], None] = {}
    for node in graph.toposort():
        if node in loops:
            asked |= dict.fromkeys((x, node) for x in _split(node)[0].sequences)
            others = [node.inputs[0], *node.inputs[1 + node.op.n_seqs :]]
        elif isinstance(node.op, Shape | Shape_i) or _is_row(node):
            others = []  # it can be read from the flipped loop as well
        else:
            followed = {x for v in node.outputs if _has_rows(v) for x in flips.known(v).parts}
            others = [v for v in node.inputs if v not in followed]
        asked |= dict.fromkeys((v, None) for v in others if _has_rows(v))
    asked |= dict.fromkeys((v, None) for v in graph.outputs if _has_rows(v))

    def read(v: TensorVariable, by: Apply | None) -> _Read:
        known = flips.known(v)
        sources = tuple((loop_of.get(x), flips.weight(x), flipped) for x, flipped in known.sources)
        return _Read(sources, known.cost, by)

    return [r for r in (read(v, by) for v, by in asked) if r.loops()]


def _has_rows(v: Variable) -> bool:
    return isinstance(v.type, DenseTensorType) and v.type.ndim > 0


def _is_row(node: Apply) -> bool:
    """Whether ``node`` is ``x[k]`` with an integer ``k``, with or without further indices."""
    read = read_of(node)
    return read is not None and read.is_row


def _choose(loops: list[Apply], reads: list[_Read]) -> set[Apply]:
    """Choose the loops to reverse, one or an agreeing group at a time, as long as that saves flips."""
    of: dict[Apply, list[_Read]] = defaultdict(list)
    for read in reads:
        for loop in read.loops():
            of[loop].append(read)
    turned: set[Apply] = set()

    def saves(group: Iterable[Apply]) -> bool:
        concerned = list({id(r): r for loop in group for r in of[loop]}.values())
        after = turned ^ {*group}
        return sum(r.flips(after) for r in concerned) < sum(r.flips(turned) for r in concerned)

    while True:  # terminates: each round has fewer flips
        before = set(turned)
        for loop in reversed(loops):  # if two disagree, flip the later one: a gradient's loop
            if saves([loop]):
                turned ^= {loop}
        if turned == before:
            for group in _agreeing(loops, reads, turned):
                if saves(group):
                    turned ^= {*group}
                    break
        if turned == before:
            return turned


def _agreeing(loops: list[Apply], reads: list[_Read], turned: set[Apply]) -> list[list[Apply]]:
    """Group the loops that read traces of one another without a flip."""
    first = {loop: loop for loop in loops}

    def find(loop: Apply) -> Apply:
        while first[loop] is not loop:
            first[loop] = loop = first[first[loop]]
        return loop

    for read in reads:
        for x, _, flipped in read.sources:
            if x is None or read.by is None or flipped != ((read.by in turned) != (x in turned)):
                continue
            first[find(read.by)] = find(x)
    groups: dict[Apply, list[Apply]] = defaultdict(list)
    for loop in loops:
        groups[find(loop)].append(loop)
    return [group for group in groups.values() if len(group) > 1]


# -- one loop ------------------------------------------------------------------------------------------


def _turn(node: Apply, flips: Flips) -> dict[Any, Any]:
    """Map the outputs of ``node`` to the corresponding outputs of the reversed loop."""
    loop = OpenLoop.of(node)
    for row in loop.rows:
        row.outer = flips.turned(row.outer)
    if node.op.args.i in set(ancestors(node.op.fgraph.outputs)):
        loop.set_outputs(replaced(loop.outputs(), {loop.i: _last(loop) - loop.i}))
    loop.options = loop.options._replace(reverse=not loop.options.reverse)
    new: dict[Any, Any] = loop.close()
    for y in loop.ys:
        new[y.trace] = new[y.trace][::-1]
    return new


def _last(loop: OpenLoop) -> Any:
    """Build ``n_steps - 1`` inside ``loop``."""
    if isinstance(loop.n_steps, Constant):
        return pt.constant(int(loop.n_steps.data) - 1, dtype="int64")
    for c in loop.consts:
        if c.outer is loop.n_steps:
            return c.inner - 1
    loop.consts.append(Input(INDEX_TYPE("n_steps"), loop.n_steps))
    return loop.consts[-1].inner - 1


# -- flips of flips ------------------------------------------------------------------------------------


def _cancel(graph: FunctionGraph, traces: set[Variable]) -> None:
    flips = Flips(graph, traces)
    new: dict[Any, Any] = {}
    for node in graph.toposort():
        for v in node.outputs:
            if _has_rows(v) and flips.saves(v):
                new[v] = flips.straight(v)
        if not _is_row(node) and not isinstance(node.op, Shape | Shape_i):
            continue
        x, *index = node.inputs
        if not _has_rows(x) or not (cost := flips.known(x).cost):
            continue
        turn = flips.cost(x, True) < flips.cost(x, False)
        if flips.cost(x, turn) < cost:
            y = flips.turned(x) if turn else flips.straight(x)
            new[node.outputs[0]] = _row(node, y) if turn and index else _same(node, y)
    # From the outputs back: nodes that only later replacements read are gone by then.
    for v, replacement in reversed(new.items()):
        if v in graph.variables:
            replace_outputs(graph, {v: replacement}, "recognise_reverse")


def _row(node: Apply, y: TensorVariable) -> Any:
    read = access_of(node)
    return y[(mirrored_row(read.rows), *read.trailing)]


def _same(node: Apply, y: Variable) -> Any:
    return node.op.make_node(y, *node.inputs[1:]).outputs[0]
