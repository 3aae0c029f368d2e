"""A rewrite for PyTensor's ``mode="JAX"``: values that follow from shapes are computed at trace time.

    split(x, [k, n - k])  with  n = x.shape[0], k = minimum(n, 3)   ->   Call(x)

That mode turns every integer into a tracer, and then cannot split, slice or reshape by it, which the
gradients of truncated and checkpointed loops need throughout. But loopax evaluates the graph of a `Call`,
in two stages. So an op that reads such a value goes into a Call together with the nodes that compute the
value, if it has a conversion of loopax; for an op of the IR the value alone suffices.

Condition: the graph has an op of the IR, so that the mode is unchanged for other programs. Each Call reads
only values that its op depended on before: there is no cycle.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.typed_list.basic import Length

from loopax.ir import Call
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.jax_backend.staging.registry import find_rule
from loopax.lowering.canonical.stabilize import KNOWN_SHAPES

_SOURCES = (Shape, Shape_i, Length)
_ARITHMETIC = (
    Elemwise,
    ScalarOp,
    DimShuffle,
    CAReduce,
    MakeVector,
    Join,
    Subtensor,
    IncSubtensor,
    ScalarFromTensor,
    TensorFromScalar,
    CheckAndRaise,
)
_TRACED = (Elemwise, CAReduce, DimShuffle)  # these accept tracers
_SMALL = 32  # elements of a constant that is a shape or an index


class KnownShapes(GraphRewriter):
    """The pass, in the form that PyTensor's database takes."""

    def apply(self, fgraph: FunctionGraph) -> None:
        if not any(isinstance(node.op, InnerGraphOp) for node in fgraph.apply_nodes):
            return
        known: dict[
            Apply, list[Variable]
        ] = {}  # node -> the arrays that determine it by their shapes
        for node in fgraph.toposort():
            arrays = _follows_from(node, known)
            if arrays:
                known[node] = arrays
        replacements: dict[Variable, Variable] = {}
        for node in fgraph.toposort():
            reads = [v for v in node.inputs if v.owner in known and _is_worth_it(v)]
            if not reads or node in known or isinstance(node.op, _TRACED):
                continue
            arrays = [x for v in reads for x in known[v.owner]]
            if isinstance(node.op, InnerGraphOp):
                replacements.update((v, _call([v], known[v.owner], replacements)[0]) for v in reads)
            elif find_rule(node.op) is not None:
                others = [v for v in node.inputs if v not in reads and not isinstance(v, Constant)]
                outs = _call(node.outputs, list(dict.fromkeys([*others, *arrays])), replacements)
                replacements.update(zip(node.outputs, outs, strict=True))
        fgraph.replace_all(list(replacements.items()), import_missing=True, reason=KNOWN_SHAPES)


def _follows_from(node: Apply, known: dict[Apply, list[Variable]]) -> list[Variable]:
    """The arrays whose shapes alone determine ``node``; empty if it depends on anything else."""
    if isinstance(node.op, _SOURCES):
        return list(node.inputs)
    if not isinstance(node.op, _ARITHMETIC):
        return []
    arrays: list[Variable] = []
    for v in node.inputs:
        if v.owner in known:
            arrays += known[v.owner]
        elif not isinstance(v, Constant) or getattr(v.data, "size", 1) > _SMALL:
            return []
    return list(dict.fromkeys(arrays))


def _is_worth_it(v: Variable) -> bool:
    """Whether ``v`` is an integer that PyTensor's own conversions would trace."""
    integers = v.type.dtype.startswith(("int", "uint", "bool"))
    return integers and not isinstance(v.owner.op, _SOURCES)


def _call(
    outputs: Sequence[Variable], inputs: Sequence[Variable], replacements: dict[Variable, Variable]
) -> list[Variable]:
    """Compute ``outputs`` by a Call of ``inputs``, with their ``replacements``."""
    dummies = {x: x.type() for x in inputs}
    body = FunctionGraph(list(dummies.values()), clone_replace(outputs, dummies), clone=True)
    return (
        Call.from_graph(body, name="known")
        .make_node(*[replacements.get(x, x) for x in inputs])
        .outputs
    )


def register_rewrite() -> None:
    """Add the pass to PyTensor's database, once, for the mode with the tag ``jax``."""
    if KNOWN_SHAPES not in optdb:
        # PyTensor's own rewrites for JAX, which change how shapes are made, are at 100.
        optdb.register(KNOWN_SHAPES, KnownShapes(), "jax", position=99)
