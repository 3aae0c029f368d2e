"""Equal ports of a loop are merged.

    sequences (x, x), constants (c, c)                     ->  x, c
    states with equal initial values and equal updates     ->  one state
    traces of one variable                                 ->  one trace

Condition: both are computed outside by the same computation. For states it is coinductive: states that
start equal are assumed equal, and states whose next values are then different computations are separated
again, until a fixed point. Only ports of one kind and one type are compared.

Reason: each derivative passes inputs to the loop that it already reads.

Variables are equal if the same op is applied to equal inputs, found by numbering computations once, in
topological order; Constants are compared bit by bit. No two graphs are compared with one another.

In the literature: common subexpression elimination of ports; for states by partition refinement.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.ir import Scan
from loopax.ir.replace import replaced
from loopax.lowering.bodies import alternate
from loopax.lowering.open_loop import OpenLoop, replace_outputs

_LARGE = 2**16  # elements of a larger Constant, which is equal only to itself


def merge_inputs(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    # With a trace less in an inner loop, two computations may have become equal.
    alternate(graph, _merge, merge_inputs)


def _merge(graph: FunctionGraph) -> bool:
    nodes = graph.toposort()
    if not any(isinstance(node.op, Scan) for node in nodes):
        return False
    numbers = Numbers()
    changed = False
    for node in nodes:
        new = _merged(node, numbers) if isinstance(node.op, Scan) else {}
        if new:
            replace_outputs(graph, new, "merge_inputs")
            changed = True
        else:
            numbers.enter(node)
    return changed


class Numbers:
    """Value numbers: equal computations have one number."""

    def __init__(self, numbers: dict[Any, int] | None = None) -> None:
        self._of: dict[Any, int] = {}  # by variable
        self._seen: dict[Hashable, int] = {}  # by computation
        self._count = 0
        if numbers:
            self._of.update(numbers)
            self._count = max(numbers.values()) + 1

    def number(self, v: Variable) -> int:
        if v not in self._of:
            if v.owner is None:
                self._of[v] = self._numbered(_key(v))
            else:  # from a merger just now: its inputs have numbers
                self.enter(v.owner)
        return self._of[v]

    def enter(self, node: Apply) -> None:
        op: Any = node.op
        key: Any = (op, *map(self.number, node.inputs), *(v.type for v in node.outputs))
        if op.destroy_map:  # it overwrites its operand
            key = (id(node), key)
        for k, v in enumerate(node.outputs):
            self._of[v] = self._numbered((key, k))

    def _numbered(self, key: Hashable) -> int:
        if key not in self._seen:
            self._seen[key] = self._count
            self._count += 1
        return self._seen[key]


def _key(v: Variable) -> Hashable:
    if isinstance(v, Constant) and isinstance(v.type, DenseTensorType) and v.data.size <= _LARGE:
        return v.type, v.data.tobytes()
    if isinstance(v, Constant) and not isinstance(v.type, DenseTensorType):
        try:
            signature = v.signature()
            hash(signature)
        except TypeError:  # a random generator
            return v
        return signature
    return v


def _merged(node: Apply, numbers: Numbers) -> dict[Any, Any]:
    """Map outputs of ``node`` to outputs of one with fewer ports; empty if all ports differ."""
    op: Any = node.op
    operands, inner, outs = op.split_inputs(node.inputs), op.args, op.outs
    rows, states, consts = (
        _classes((numbers.number(x), v.type) for x, v in zip(group, variables, strict=True))
        for group, variables in (
            (operands.sequences, inner.rows),
            (operands.states, inner.states),
            (operands.consts, inner.consts),
        )
    )
    if op.n_ys < 2 and all(map(_all_differ, (rows, states, consts))):
        return {}
    states, labels = _parted(op, rows, states, consts)
    ys = _classes((labels.number(y), y.type) for y in outs.ys)
    if all(map(_all_differ, (rows, states, consts, ys))):
        return {}
    loop = OpenLoop.of(node)
    same: dict[Any, Any] = {}
    for ports, classes in ((loop.rows, rows), (loop.states, states), (loop.consts, consts)):
        same.update((ports[k].inner, ports[first].inner) for k, first in enumerate(classes))
    loop.set_outputs(replaced(loop.outputs(), same))
    finals = [(loop.states[k].final, loop.states[first].final) for k, first in enumerate(states)]
    traces = [(loop.ys[k].trace, loop.ys[first].trace) for k, first in enumerate(ys)]
    loop.rows, loop.states = _firsts(loop.rows, rows), _firsts(loop.states, states)
    loop.consts, loop.ys = _firsts(loop.consts, consts), _firsts(loop.ys, ys)
    new = loop.close()
    return new | {v: new[first] for v, first in [*finals, *traces]}


def _parted(
    op: Scan, rows: Sequence[int], states: Sequence[int], consts: Sequence[int]
) -> tuple[list[int], Numbers]:
    """The classes of equal states, and the value numbers of the body under them."""
    inner = op.args
    while True:  # terminates: classes only split
        start = {inner.i: 0}
        for variables, classes in (
            (inner.rows, rows),
            (inner.states, states),
            (inner.consts, consts),
        ):
            first = len(start)
            start.update((v, first + classes[k]) for k, v in enumerate(variables))
        labels = Numbers(start)
        for node in op.fgraph.toposort():
            labels.enter(node)
        parted = _classes(
            (k, labels.number(v)) for k, v in zip(states, op.outs.states, strict=True)
        )
        if parted == states:
            return states, labels
        states = parted


def _classes(keys: Iterable[Hashable]) -> list[int]:
    """For each key, the position of the first equal key."""
    first: dict[Hashable, int] = {}
    return [first.setdefault(key, k) for k, key in enumerate(keys)]


def _all_differ(classes: Sequence[int]) -> bool:
    return list(classes) == list(range(len(classes)))


def _firsts(ports: Sequence[Any], classes: Sequence[int]) -> list[Any]:
    return [port for k, port in enumerate(ports) if classes[k] == k]
