"""``Blockwise``, an op on the last axes repeated over leading ones: loops around the rule of the op.

So each rule is written once, for its own rank, and serves batched ops too; products of two stacks of
matrices are the product of two matrices, repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot
from pytensor.tensor.type import TensorType

from loopax.ir import Call
from loopax.ir.matrices import batch_signature
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.sizes import Dims, Length
from loopax.ir.sizes.dim_expr import Clipped, DimExpr
from loopax.lowering.scan_to_loop import scan_to_loop
from loopax.numba_backend.emit.emitter import Emitter, Site, find_rule, rule
from loopax.numba_backend.emit.expressions import FALSE, TRUE, Dim, Expr, Index, call, expr
from loopax.numba_backend.emit.storage import new_array
from loopax.numba_backend.emit.uses import uses_of_node
from loopax.numba_backend.emit.values import (
    Array,
    Small,
    Value,
    Virtual,
    as_tuple,
    is_cheap,
    shared,
)


@rule(Blockwise)
def blockwise(site: Site, *values: Value) -> Any:
    ranks = [len(names) for names in site.op.inputs_sig]
    types = [_core(v.type, rank) for v, rank in zip(site.node.inputs, ranks, strict=True)]
    core = site.op.core_op.make_node(*[t() for t in types])
    names: dict[str, Dim] = {}
    inputs_sig, outputs_sig = batch_signature(site.op)
    for v, sig in zip(values, inputs_sig, strict=True):
        names.update(zip(sig, v.shape[len(v.shape) - len(sig) :], strict=True))
    shapes = [[names.get(name) for name in sig] for sig in outputs_sig]
    return repeated(
        site, _lowered(core), values, ranks, shapes, _lengths_of_row(site.emit, core, values)
    )


@rule(BatchedDot)
def batched_dot(site: Site, a: Value, b: Value) -> Any:
    types = [_core(v.type, v.type.ndim - 1) for v in site.node.inputs]
    node = Dot().make_node(*[t() for t in types])
    shape = [*a.shape[1:-1], *b.shape[2:]]
    ranks = [len(v.shape) - 1 for v in (a, b)]
    return repeated(site, node, (a, b), ranks, [shape], [shape], stretches=False)


def _lengths_of_row(emit: Emitter, node: Apply, values: Sequence[Value]) -> list[list[Dim | None]]:
    """Shapes of the outputs of ``node``, inferred from the shapes of one row of each of ``values``.

    They serve a batch without rows. Otherwise the first result decides, since a step may return another
    length than declared.
    """
    op: Any = node.op
    graph: Any = op.fgraph if isinstance(op, Call) else node
    inputs, dims = list(graph.inputs), Dims()

    def dim(expression: DimExpr) -> Dim | None:
        total: Any = expression.offset
        for variable, k in expression.terms:
            match variable:
                case Length(of=v, axis=axis) if v in inputs:
                    shape = values[inputs.index(v)].shape
                    n: Any = shape[len(shape) - v.type.ndim + axis]
                case Clipped(largest=largest, a=a, b=b):
                    both = dim(a), dim(b)
                    n = None if None in both else call("max" if largest else "min", *both)
                case Variable() if variable in inputs:
                    n = _shared_number(emit, values[inputs.index(variable)])
                case _:
                    n = None
            if n is None:
                return None
            total = total + n * k
        return total

    return [[dim(dims.length(v, axis)) for axis in range(v.type.ndim)] for v in graph.outputs]


def _shared_number(emit: Emitter, value: Value) -> Expr | None:
    """The number that all rows share; None if each may have its own."""
    at = [0] * len(value.shape)
    return emit.read(value, at) if all(n == 1 for n in value.shape) else None


def _lowered(node: Apply) -> Apply:
    """Lower the body of a core op, whose loops no pass has seen."""
    if not isinstance(node.op, InnerGraphOp):
        return node
    inputs = [v.type() for v in node.inputs]
    graph = FunctionGraph(inputs, node.op.make_node(*inputs).outputs, clone=False)
    scan_to_loop(graph)
    return graph.outputs[0].owner


def _core(batched: TensorType, rank: int) -> TensorType:
    return TensorType(batched.dtype, shape=batched.shape[len(batched.shape) - rank :])


def repeated(
    site: Site,
    node: Apply,
    values: Sequence[Value],
    ranks: Sequence[int],
    shapes: Sequence[Sequence[Dim | None]],
    without_rows: Sequence[Sequence[Dim | None]],
    stretches: bool = True,
) -> tuple[Value, ...]:
    """Emit ``node`` for each index into the leading axes; its inputs have ``ranks``.

    Its outputs have ``shapes``, with None for a length that the first result decides. ``without_rows``
    are their shapes in an empty batch, with None for an unknown length.
    """
    emit = site.emit
    n_batch = len(values[0].shape) - ranks[0]
    if not n_batch:
        operands = [v if site.reads_alone(k) else shared(v) for k, v in enumerate(values)]
        results = _emitted(emit, node, operands)
        return tuple(v if is_cheap(v) else emit.dense(v) for v in results)
    batch: list[Dim] = []
    for k in range(n_batch):
        own = [
            v.shape[k]
            for v, declared in zip(values, site.node.inputs, strict=True)
            if not (stretches and declared.type.broadcastable[k])
        ]
        batch.append(emit.agree(*own) if own else 1)
    operands = [v if _indexed_at_no_cost(v) else emit.dense(v) for v in values]
    places = [
        _Place(emit, v, batch, shape) for v, shape in zip(site.node.outputs, shapes, strict=True)
    ]
    with ExitStack() as stack:
        at: list[Index] = [0 if n == 1 else emit.local("i") for n in batch]
        for i, n in zip(at, batch, strict=True):
            if isinstance(i, Expr):
                stack.enter_context(emit.repeated(i, n))
        cores = [
            _element(emit, v, at, declared.type.broadcastable if stretches else ())
            for v, declared in zip(operands, site.node.inputs, strict=True)
        ]
        for place, value in zip(places, _emitted(emit, node, cores), strict=True):
            place.write(at, value)
    return tuple(place.array(shape) for place, shape in zip(places, without_rows, strict=True))


def _emitted(emit: Emitter, node: Apply, values: Sequence[Value]) -> tuple[Value, ...]:
    return as_tuple(find_rule(node.op)(Site(emit, node, uses_of_node(node)), *values))


def _indexed_at_no_cost(v: Value) -> bool:
    return v.elements.size == 1 if isinstance(v, Small) else is_cheap(v)


def _element(emit: Emitter, v: Value, at: Sequence[Index], stretched: Sequence[bool]) -> Value:
    """The row of ``v`` at an index into its leading axes."""
    start = [0 if k < len(stretched) and stretched[k] else i for k, i in enumerate(at)]
    return Virtual(
        v.shape[len(at) :], v.dtype, lambda core_index: emit.read(v, [*start, *core_index])
    )


class _Place:
    """The array of the results, allocated by the first result if that decides the shape."""

    def __init__(
        self, emit: Emitter, v: Variable, batch: list[Dim], core: Sequence[Dim | None]
    ) -> None:
        self.emit, self.batch, self.dtype = emit, batch, v.type.dtype
        declared = v.type.shape[len(batch) :]
        self.core = [n if n is not None else d for n, d in zip(core, declared, strict=True)]
        self.has_known_shape = None not in self.core
        if self.has_known_shape:
            self.name = emit.empty([*batch, *self.core], self.dtype)
        else:
            self.name = emit.local("a")
            self.rows = [emit.temp(0, "n") for _ in self.core]
            self._allocate(self.rows)
            self.is_allocated = emit.temp(FALSE, "made")

    def _allocate(self, core: Sequence[Dim]) -> None:
        self.emit.set(self.name, new_array([*self.batch, *core], self.dtype))

    def _allocate_empty(self, core: Sequence[Dim | None]) -> None:
        """Allocate the array of an empty batch."""
        lengths = [n for n in core if n is not None]
        if len(lengths) < len(core):
            message = "a batch of no rows: the shape of a row's result is unknown"
            self.emit.fail("ValueError", message)
            return
        self._allocate(lengths)
        for row, n in zip(self.rows, lengths, strict=True):
            self.emit.set(row, n)

    def write(self, at: Sequence[Index], value: Value) -> None:
        emit = self.emit
        if not self.has_known_shape:
            with emit.when(expr("not {}", self.is_allocated)):
                self._allocate(value.shape)
                for row, n in zip(self.rows, value.shape, strict=True):
                    emit.set(row, n)
                emit.set(self.is_allocated, TRUE)
            for row, n in zip(self.rows, value.shape, strict=True):
                emit.do("agree", row, n)
        value = value if emit.is_small(value.shape) else emit.indexable(value)
        with emit.loops(value.shape) as indices:
            for core_index in indices:
                emit.set(self.name[*at, *core_index], emit.read(value, core_index))

    def array(self, without_rows: Sequence[Dim | None]) -> Array:
        if not self.has_known_shape:
            with self.emit.when(expr("not {}", self.is_allocated)):
                self._allocate_empty(without_rows)
        shape = (*self.batch, *(self.core if self.has_known_shape else self.rows))
        return Array(self.name, shape, self.dtype, fresh=True, compact=True)
