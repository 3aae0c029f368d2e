"""Foreign ops -> the IR: every op with an inner graph is opened.

    pytensor.scan's Scan             -> ir.Scan
    OpFromGraph                      -> its graph, inlined
    instances of one with a loop     -> ir.Call, if calls are kept (`instances.py`)
    OpFromGraph with its own pullback -> ir.Call
    Blockwise of one of these        -> Blockwise of ir.Call
    Blockwise of an op whose inputs all rows share -> the op, once
    LazyIfElse                       -> IfElse of the two inlined branches
    gradient that reads what an op leaves behind -> ir.after_forward.AfterForward
    DeepCopyOp, CpuContiguous        -> its input (a pure program has no aliases)
    calls of BLAS, xlogy             -> the products that they are
    Composite                        -> the elementwise ops that were fused
    Choose from a list               -> Choose from an array
    PyMC's op of a spline of SciPy's -> its polynomials

Inner graphs are imported before the graph around them, so that one pass is enough. A graph without such ops
stays as it is: the test takes a fiftieth of the time of lowering it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import Op
from pytensor.scan.op import Scan as LegacyScan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import CpuContiguous
from pytensor.tensor.linalg.decomposition.lu import LU, LUFactor

from loopax.base.errors import UnsupportedOpError, describe
from loopax.base.upstream.pytensor import IfElse, LazyIfElse, core_node_and_inputs, freeze, thaw
from loopax.importer.accumulators import widen_accumulators
from loopax.importer.choices import choice_from_rows
from loopax.importer.fused import unfused
from loopax.importer.instances import keep_instances
from loopax.importer.legacy_scan.batched_reads import batched_reads
from loopax.importer.legacy_scan.import_scan import import_scan
from loopax.importer.products import product_of
from loopax.importer.splines import spline_as_polynomials
from loopax.ir import Call
from loopax.ir.batching.row_values import unbatch_row_values
from loopax.ir.derivatives.after_forward import run_after_forward
from loopax.ir.derivatives.pullback import PullbackRule
from loopax.ir.named_axes import lower_names
from loopax.ir.ops.inner_graph_op import InnerGraphOp, core_of
from loopax.ir.replace import replaced
from loopax.ir.sizes import without_dims


def import_graph(graph: FunctionGraph, keeps_calls: bool = False) -> None:
    """Convert ``graph`` to the IR, in place.

    With ``keeps_calls``, instances of a graph that contains a loop become calls, which the pass
    `inline_calls` inlines.

    Raises `UnsupportedOpError`, listing everything without a counterpart in the IR, bodies included.
    """
    faults: list[str] = []
    _Importer(faults, keeps_calls).run(graph)
    if faults:
        raise UnsupportedOpError("\n".join(faults), faults)


class _Importer:
    def __init__(self, faults: list[str], keeps_calls: bool) -> None:
        self.faults = faults
        self.keeps_calls = keeps_calls
        self._opened: dict[
            Any, FrozenFunctionGraph
        ] = {}  # op with an inner graph -> that graph in the IR

    def run(self, graph: FunctionGraph) -> FunctionGraph:
        lower_names(graph)
        unbatch_row_values(graph)
        if self.keeps_calls:
            keep_instances(graph, _is_opened, self.opened)
        for node in graph.toposort():
            if node not in graph.apply_nodes:
                continue  # only a replaced node read it
            try:
                new = self.replacements(graph, node)
            except UnsupportedOpError as error:
                self.faults.append(str(error))
                continue
            if new:
                graph.replace_all(list(new.items()), import_missing=True, reason="import")
        run_after_forward(graph)
        widen_accumulators(graph)
        without_dims(graph)
        return graph

    def replacements(self, graph: FunctionGraph, node: Apply) -> dict[Variable, Any]:
        op: Any = node.op
        refuse_wide_and_tall(node)
        if isinstance(op, LegacyScan):
            return import_scan(graph, node, self.run(thaw(op.fgraph)))
        if isinstance(op, InnerGraphOp):  # a loop of loopax, whose step may hold anything
            new = op.with_graph(self.run(op.unfrozen()))
            same = new.fgraph == op.fgraph
            return {} if same else _zip(node, new.make_node(*node.inputs).outputs)
        if isinstance(op, DeepCopyOp | CpuContiguous):
            return {node.outputs[0]: node.inputs[0]}
        if (product := product_of(_unbatched(op), node.inputs)) is not None:
            return {node.outputs[0]: node.outputs[0].type.filter_variable(product)}
        if (opened := unfused(node)) is not None:
            return _zip(node, opened)
        if (chosen := choice_from_rows(node)) is not None:
            return {node.outputs[0]: chosen}
        if (polynomials := spline_as_polynomials(node)) is not None:
            return {node.outputs[0]: node.outputs[0].type.filter_variable(polynomials)}
        if isinstance(op, OpFromGraph):
            if _has_own_pullback(op):
                return _zip(node, self.call(op).make_node(*node.inputs).outputs)
            return _zip(node, self.inlined(op, node.inputs))
        if isinstance(op, LazyIfElse):
            condition, *inputs = node.inputs
            branches = [self.inlined(b, inputs) for b in (op.true_branch, op.false_branch)]
            return _zip(
                node, IfElse(len(node.outputs)).make_node(condition, *sum(branches, [])).outputs
            )
        if isinstance(op, Blockwise) and hasattr(op.core_op, "fgraph"):
            core: Any = op.core_op
            if isinstance(core, Call):
                return {}
            if isinstance(core, LegacyScan) and core.info.as_while:
                return self.stopping_loops(graph, node)
            call = self.call(core) if isinstance(core, OpFromGraph) else self.core_call(op, node)
            vectorized = Blockwise(call, signature=op.signature, name=op.name)
            return _zip(node, vectorized.make_node(*node.inputs).outputs)
        return {}

    def inlined(self, op: Op, inputs: Sequence[Variable]) -> list[Variable]:
        inner = thaw(self.opened(op))
        return replaced(inner.outputs, dict(zip(inner.inputs, inputs, strict=True)))

    def opened(self, op: Any) -> FrozenFunctionGraph:
        """Import the graph of an op, once for all of its instances."""
        if op not in self._opened:
            self._opened[op] = freeze(self.run(thaw(op.fgraph)))
        return self._opened[op]

    def call(self, op: OpFromGraph) -> Call:
        body = self.run(thaw(op.fgraph))
        rule = PullbackRule(op, op.input_types, import_graph) if _has_own_pullback(op) else None
        return Call.from_graph(body, rule, op.name or type(op).__name__)

    def stopping_loops(self, graph: FunctionGraph, node: Apply) -> dict[Variable, Any]:
        """Import a batch of stopping loops, with the reads of its results moved into each row."""
        op: Any = node.op
        core, inputs = core_node_and_inputs(op, node.inputs)
        of_row: Any = core.outputs
        pairs = batched_reads(graph, node.outputs, of_row)
        body = self.run(FunctionGraph(inputs, [one for _, one in pairs], clone=False))
        loops = [
            ",".join(f"r{k}{d}" for d in range(v.type.ndim)) for k, v in enumerate(body.outputs)
        ]
        core_inputs = [",".join(names) for names in op.inputs_sig]
        signature = "->".join(
            ",".join(f"({names})" for names in part) for part in (core_inputs, loops)
        )
        call = Call.from_graph(body, name=str(core.op))
        new = Blockwise(call, signature=signature, name=op.name).make_node(*node.inputs).outputs
        return dict(zip((v for v, _ in pairs), new, strict=True))

    def core_call(self, op: Blockwise, node: Any) -> Call:
        """A Call that applies ``op.core_op``, an op with an inner graph, to one batch row.

        A scan casts its inputs (a row of floats, if its step reads integers): these casts, between
        ``inputs`` and the inputs of the node, are part of the body.
        """
        core, inputs = core_node_and_inputs(op, node.inputs)
        body = self.run(FunctionGraph(inputs, core.outputs, clone=False))
        return Call.from_graph(body, name=str(core.op))


def _unbatched(op: Op) -> Any:
    """Unwrap a Blockwise of an op on scalars; any other ``op`` is returned unchanged."""
    return op.core_op if isinstance(op, Blockwise) and not any(op.inputs_sig) else op


def _is_opened(op: Op) -> bool:
    return isinstance(op, OpFromGraph) and not _has_own_pullback(op)


def _has_own_pullback(op: OpFromGraph) -> bool:
    """Whether ``op`` has a pullback of its own: passed to it, or defined in its class.

    PyTensor's own classes (softmax, logsumexp) differentiate their graph, which the passes see into.
    """
    is_overridden = op.pullback_overrides is not None
    return is_overridden or not type(op).pullback.__module__.startswith("pytensor.")


def _zip(node: Apply, new: list[Variable]) -> dict[Variable, Any]:
    return dict(zip(node.outputs, new, strict=True))


def refuse_wide_and_tall(node: Apply) -> None:
    """Raise a `ValueError` for LU of a matrix that is not square according to its type.

    PyTensor declares factors of m x n each (3.0.7, 3.3.8): no program that reads one can be right.
    """
    core = core_of(node.op)
    if not isinstance(core, LU | LUFactor):
        return
    a: Any = node.inputs[0]
    rows, columns = a.type.shape[-2:]
    if None not in (rows, columns) and rows != columns:
        raise ValueError(
            f"{core} of {describe(a)}, which is not square: PyTensor declares wrong shapes for it. Pad "
            "an m x n matrix with zeros: with k = max(m, n), its factors are the first rows and "
            "columns of pt.linalg.lu(pt.zeros((k, k))[:m, :n].set(a))."
        )
