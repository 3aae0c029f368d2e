"""Estimate the length of a program, which limits the size of arrays in locals.

A line takes about 2 ms to compile. An array in locals takes one line for each element, and so does a
short axis that is unrolled in a loop. So the lines are counted on the graph before emission: one for
each scalar op and each unrolled element. A variable with one reader is computed at the reader, once for
each read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.op import Op
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
from loopax.facts.families import normalized
from loopax.ir import Cond, Scan
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.sizes import DimExpr, Dims, Length
from loopax.numba_backend.emit.scalar_expressions import is_worth_a_loop
from loopax.numba_backend.emit.tree_passes.outlining import is_worth_it
from loopax.numba_backend.emit.uses import uses_of
from loopax.numba_backend.emit.values import LONGEST, is_small

Sizes = Mapping[tuple[int, int], int]  # (input, axis) -> length
Lengths = Sequence[int | None]

_SIZES, LINES = (64, 25, 9, 1), 1000
# Elements in locals, and the factor of lines, up to which a program is emitted to see what it repeats.
_REPEATED, _MOST_REPEATED = 9, 5
_LOOP = 2  # lines of a loop besides its body

_NAMES = (Alloc, DimShuffle, Shape, Shape_i, SpecifyShape)  # ops without statements,
_NUMBERS = (MakeVector, ScalarFromTensor, TensorFromScalar)
_MOVES = (Join, Subtensor, IncSubtensor)  # and ops without statements on values in locals


def largest_to_try(graph: FunctionGraph, sizes: Sizes, longest: int = LINES) -> list[int]:
    """The sizes of arrays in locals to try, so that the program has at most ``longest`` lines.

    The last size always fits. An earlier one fits if outlining shortens the program enough.
    """
    for n in _SIZES:
        lines = estimated_lines(graph, sizes, n)
        if lines <= longest:
            return [n]
        if n == _REPEATED and lines <= _MOST_REPEATED * longest:
            return [n, _SIZES[-1]]
    return [_SIZES[-1]]


def estimated_lines(graph: FunctionGraph, sizes: Sizes, largest: int) -> int:
    """Estimate the lines of the program of ``graph``, with arrays of up to ``largest`` locals."""
    shapes = [
        [sizes.get((k, axis)) if n is None else n for axis, n in enumerate(_declared(v))]
        for k, v in enumerate(graph.inputs)
    ]
    count = _Count(largest)
    lines = sum(len(s) + count.width(s) for s in shapes) + count.graph_lines(graph, shapes)
    return lines - sum(sum(n) - max(n) - len(n) for n in count.alike.values() if is_worth_it(n))


class _Count:
    """Counts the lines of graphs; ``alike`` has the lines of regions that may be outlined."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.alike: dict[Any, list[int]] = defaultdict(list)

    def graph_lines(self, graph: AbstractFunctionGraph, shapes: Sequence[Lengths]) -> int:
        shape_of, uses = _shapes(graph, shapes), uses_of(graph)
        elements_of: dict[Any, int] = {}  # variable -> unrolled elements of its reader
        lines = 0
        for node in reversed(graph.toposort()):
            ins, outs = [shape_of(v) for v in node.inputs], [shape_of(v) for v in node.outputs]
            own = max(self.width(outs[0]), elements_of.get(node.outputs[0], 1))
            n_read = self.elements_read(node, ins, outs[0], own)
            elements_of |= {
                v: n for v, n in zip(node.inputs, n_read, strict=True) if len(uses[v]) == 1
            }
            lines += self.node_lines(node.op, ins, outs, own, n_read[:1])
        return lines

    def width(self, shape: Lengths) -> int:
        """The number of unrolled elements; preceding axes have loops."""
        width = 1
        for n in reversed(shape):
            width *= n if n is not None and n <= LONGEST and width * n <= self.largest else 1
        return width

    def elements_read(
        self, node: Apply, ins: Sequence[Lengths], out: Lengths, own: int
    ) -> list[int]:
        """The number of elements of each input that ``own`` unrolled elements of the output read."""
        op: Any = node.op
        if isinstance(op, CAReduce):
            along = normalized(op.axis, len(ins[0]))
            return [self.width(out) * self.width([ins[0][k] for k in along])]
        is_elementwise = facts_of(op).structure is Structure.ELEMENTWISE
        if not (is_elementwise or isinstance(op, DimShuffle | SpecifyShape)):
            return [self.width(s) for s in ins]
        *patterns, out_pattern = [
            getattr(v.type, "broadcastable", ()) for v in (*node.inputs, node.outputs[0])
        ]
        return [
            own if pattern == out_pattern or isinstance(op, DimShuffle) else 1
            for pattern in patterns
        ]

    def node_lines(
        self, op: Op, ins: Sequence[Any], outs: Sequence[Lengths], own: int, n_read: Sequence[int]
    ) -> int:
        if isinstance(op, Scan):
            inner = self.graph_lines(op.fgraph, ins)
            return inner + 2 * sum(map(self.width, outs[: op.n_states])) + _LOOP
        if isinstance(op, Cond):
            counts = self, _Count(1) if op.is_likely else self  # see `Axes.in_few_lines`
            branches = zip(counts, op.branches, strict=True)
            inner = sum(count.graph_lines(branch, ins[1:]) for count, branch in branches)
            return inner + 2 * sum(map(self.width, outs)) + _LOOP
        if isinstance(op, InnerGraphOp | OpFromGraph):
            return self.graph_lines(op.fgraph, ins)
        in_locals = all(is_small(s, self.largest) for s in (*ins, *outs))
        if isinstance(op, (*_NAMES, *_NUMBERS)) or (in_locals and isinstance(op, _MOVES)):
            return 0
        if facts_of(op).structure is Structure.ELEMENTWISE:
            lines = own * _scalar_ops(op)
            if in_locals and is_worth_a_loop(getattr(op, "scalar_op", op), own):
                return 2 * own + _LOOP  # to memory and back
            return lines if in_locals else lines + own + _LOOP
        if isinstance(op, CAReduce):
            return own if in_locals else 2 * n_read[0] + _LOOP
        widest = max(map(self.width, [*ins, *outs]))
        if in_locals and ins and len(ins[0]) == 2:  # linear algebra
            lines = own if isinstance(op, Dot) else widest * _lines_of_elimination(op, ins[0][-1])
            self.alike[op, *map(tuple, ins)].append(lines)
            return lines
        return widest + _LOOP


def _scalar_ops(op: Op) -> int:
    op = getattr(op, "scalar_op", op)
    return sum(_scalar_ops(n.op) for n in op.fgraph.apply_nodes) if isinstance(op, Composite) else 1


def _lines_of_elimination(op: Op, n: int) -> int:
    """Lines for each element of a matrix of order ``n``."""
    if n > 4:  # by a call, to memory and back
        return 2
    return n if isinstance(op, Cholesky | CholeskySolve | SolveTriangular) else 2 * n


def _declared(v: Variable) -> Lengths:
    return getattr(v.type, "shape", ())


def _shapes(
    graph: AbstractFunctionGraph, input_shapes: Sequence[Lengths]
) -> Callable[[Any], Lengths]:
    """Shapes of the variables of ``graph``, whose inputs have ``input_shapes``."""
    dims, shapes = Dims(), dict(zip(graph.inputs, input_shapes, strict=True))
    lengths = {
        Length(v, axis): DimExpr(offset=n)
        for v, shape in shapes.items()
        for axis, n in enumerate(shape)
        if n is not None
    }

    def length(v: Variable, axis: int) -> int | None:
        return dims.length(v, axis).replaced(lengths.get).constant if lengths else None

    def shape_of(v: Variable) -> Lengths:
        if v not in shapes:
            shapes[v] = [length(v, k) if n is None else n for k, n in enumerate(_declared(v))]
        return shapes[v]

    return shape_of
