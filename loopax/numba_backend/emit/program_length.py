"""How long a program will be: what decides how large the arrays are that are held in locals.

A line takes about 2 ms to compile, and an array in locals takes one for each element, as a short axis does
that is written out in a loop. So the lines are counted in the graph before any is written: one for each
scalar op and each element that is written out. What is read once is computed where it is read, as often as
it is read there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.scalar.basic import Composite
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from loopax.facts import Structure, facts_of
from loopax.ir import Cond, Scan
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.sizes import DimExpr, Dims, Length
from loopax.numba_backend.emit.outlining import is_worth_it
from loopax.numba_backend.emit.uses import uses_of
from loopax.numba_backend.emit.values import LONGEST, is_small

Sizes = Mapping[tuple[int, int], int]  # of axes of inputs
Lengths = Sequence[int | None]

_SIZES, LINES = (64, 25, 9, 1), 1000
# Elements in locals, and how many times as many lines, of a program that is written to see what it repeats.
_REPEATED, _MOST_REPEATED = 9, 5
_LOOP = 2  # lines of a loop, besides those in it

_NAMES = (Alloc, DimShuffle, Shape, Shape_i, SpecifyShape)  # these compute nothing,
_NUMBERS = (MakeVector, ScalarFromTensor, TensorFromScalar)
_MOVES = (Join, Subtensor, IncSubtensor)  # and these where all is in locals


def largest_to_try(graph: FunctionGraph, sizes: Sizes, longest: int = LINES) -> list[int]:
    """How many elements of an array may be in locals, so that the program is no longer than so many lines.

    The last one is right. One before it is as well, if so much is repeated that it is no longer than that
    without repetitions.
    """
    for n in _SIZES:
        lines = estimated_lines(graph, sizes, n)
        if lines <= longest:
            return [n]
        if n == _REPEATED and lines <= _MOST_REPEATED * longest:
            return [n, _SIZES[-1]]
    return [_SIZES[-1]]


def estimated_lines(graph: FunctionGraph, sizes: Sizes, largest: int) -> int:
    """How long the program of ``graph`` is with up to ``largest`` elements of an array in locals."""
    shapes = [
        [sizes.get((k, axis)) if n is None else n for axis, n in enumerate(_declared(v))]
        for k, v in enumerate(graph.inputs)
    ]
    count = _Count(largest)
    lines = sum(len(s) + count.width(s) for s in shapes) + count.of_graph(graph, shapes)
    return lines - sum(sum(n) - max(n) - len(n) for n in count.alike.values() if is_worth_it(n))


class _Count:
    """Counts the lines of graphs, all of what may be outlined among them: ``alike``."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.alike: dict[Any, list[int]] = defaultdict(list)

    def of_graph(self, graph: AbstractFunctionGraph, shapes: Sequence[Lengths]) -> int:
        shape_of, uses = _shapes(graph, shapes), uses_of(graph)
        asked: dict[Any, int] = {}  # how many elements of a variable what reads it writes out
        lines = 0
        for node in reversed(graph.toposort()):
            ins, outs = [shape_of(v) for v in node.inputs], [shape_of(v) for v in node.outputs]
            own = max(self.width(outs[0]), asked.get(node.outputs[0], 1))
            read = self.elements_read(node, ins, outs[0], own)
            asked |= {v: n for v, n in zip(node.inputs, read, strict=True) if len(uses[v]) == 1}
            lines += self.of_node(node.op, ins, outs, own, read[:1])
        return lines

    def width(self, shape: Lengths) -> int:
        """How many elements are written out where the others are looped over."""
        width = 1
        for n in reversed(shape):
            width *= n if n is not None and n <= LONGEST and width * n <= self.largest else 1
        return width

    def elements_read(self, node: Apply, ins: Any, out: Lengths, own: int) -> list[int]:
        """How many elements of each input are read where ``own`` of the output are written out."""
        op: Any = node.op
        if isinstance(op, CAReduce):
            axes = range(len(ins[0])) if op.axis is None else op.axis
            return [self.width(out) * self.width([ins[0][k] for k in axes])]
        is_elementwise = facts_of(op).structure is Structure.ELEMENTWISE
        if not (is_elementwise or isinstance(op, DimShuffle | SpecifyShape)):
            return [self.width(s) for s in ins]
        *ones, of_out = [
            getattr(v.type, "broadcastable", ()) for v in (*node.inputs, node.outputs[0])
        ]
        return [own if of_in == of_out or isinstance(op, DimShuffle) else 1 for of_in in ones]

    def of_node(self, op: Any, ins: Any, outs: Any, own: int, read: Sequence[int]) -> int:
        if isinstance(op, Scan | Cond):
            held = outs if isinstance(op, Cond) else outs[: op.n_states]
            inner = self.of_graph(op.fgraph, ins[1:] if isinstance(op, Cond) else ins)
            return inner + 2 * sum(map(self.width, held)) + _LOOP
        if isinstance(op, InnerGraphOp | OpFromGraph):
            return self.of_graph(op.fgraph, ins)
        in_locals = all(is_small(s, self.largest) for s in (*ins, *outs))
        if isinstance(op, (*_NAMES, *_NUMBERS)) or (in_locals and isinstance(op, _MOVES)):
            return 0
        if facts_of(op).structure is Structure.ELEMENTWISE:
            lines = own * _scalar_ops(op)
            return lines if in_locals else lines + own + _LOOP
        if isinstance(op, CAReduce):
            return own if in_locals else 2 * read[0] + _LOOP
        widest = max(map(self.width, [*ins, *outs]))
        if in_locals and ins and len(ins[0]) == 2:  # linear algebra
            lines = own if isinstance(op, Dot) else widest * _lines_of_elimination(op, ins[0][-1])
            self.alike[op, *map(tuple, ins)].append(lines)
            return lines
        return widest + _LOOP


def _scalar_ops(op: Any) -> int:
    op = getattr(op, "scalar_op", op)
    return sum(_scalar_ops(n.op) for n in op.fgraph.apply_nodes) if isinstance(op, Composite) else 1


def _lines_of_elimination(op: Any, n: int) -> int:
    """For each element, of a matrix of order ``n``."""
    if n > 4:  # by a call, to memory and back
        return 2
    return n if isinstance(op, Cholesky | CholeskySolve | SolveTriangular) else 2 * n


def _declared(v: Any) -> Lengths:
    return getattr(v.type, "shape", ())


def _shapes(graph: AbstractFunctionGraph, given: Sequence[Lengths]) -> Callable[[Any], Lengths]:
    """The shape of a variable of ``graph``, whose inputs have the shapes ``given``."""
    dims, known = Dims(), dict(zip(graph.inputs, given, strict=True))
    lengths = {
        Length(v, axis): DimExpr(offset=n)
        for v, shape in known.items()
        for axis, n in enumerate(shape)
        if n is not None
    }

    def length(v: Any, axis: int) -> int | None:
        return dims.length(v, axis).replaced(lengths.get).constant if lengths else None

    def shape_of(v: Any) -> Lengths:
        if v not in known:
            known[v] = [length(v, k) if n is None else n for k, n in enumerate(_declared(v))]
        return known[v]

    return shape_of
