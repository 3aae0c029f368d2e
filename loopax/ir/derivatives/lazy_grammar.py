"""The grammar of lazy derivatives: the groups of their inputs and outputs, their application and meaning.

For a function of ``n`` inputs with ``m`` outputs::

    inputs   n, then one seed for each output (Pullback) or each of ``wrt`` (Pushforward)
    body     [n inputs] -> [m outputs]; of Grad one, a float scalar
    outputs  m, then the derivatives: one for each of ``wrt`` (Grad, Pullback), one for each output
             (Pushforward), or a block for each output and each of ``wrt`` (Jacobian)

A rewrite sees the function and the positions ``wrt``. The function's values are outputs of the same
node, so a value and its gradient share computations without a search. `expanded` is the derivative as
a graph, which is also what runs where the op has not been expanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

from pytensor.compile.builders import infer_shape
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph, FunctionGraph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import freeze
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.evaluation.inner import CompiledBodies
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.replace import replaced


class DerivativeGrammar(CompiledBodies):
    """The parts of a lazy derivative; the parameters are as in `Derivative`."""

    def __init__(self, body: FrozenFunctionGraph, wrt: Sequence[int], name: str = "f") -> None:
        self.fgraph, self.wrt, self.name = body, tuple(wrt), name
        assert all(is_float(body.inputs[k]) for k in self.wrt)

    @classmethod
    def of(
        cls,
        roots: Sequence[Variable],
        arguments: Sequence[Variable],
        wrt: Sequence[Variable],
        outputs: Sequence[Variable],
        seeds: Sequence[Variable] = (),
        name: str = "f",
    ) -> list[Any]:
        """Differentiate ``outputs`` with respect to ``roots``, at ``arguments``; return a node's outputs.

        Other ancestors of ``outputs``, shared variables too, become inputs.
        """
        captured = [
            v for v in graph_inputs(outputs) if not isinstance(v, Constant) and v not in roots
        ]
        inner = [*roots, *(v.type() for v in captured)]
        outs = replaced(outputs, dict(zip(captured, inner[len(roots) :], strict=True)))
        body = freeze(FunctionGraph(inner, outs, clone=True))
        op = cls(body, [list(roots).index(v) for v in wrt], name)
        return list(op.make_node(*arguments, *captured, *seeds).outputs)

    def with_body(self, body: FrozenFunctionGraph) -> Self:
        return type(self)(body, self.wrt, self.name)

    def with_wrt(self, wrt: Sequence[int]) -> Self:
        """The derivative of the same function with respect to other inputs."""
        return type(self)(self.fgraph, wrt, self.name)

    def _key(self) -> tuple[Any, ...]:
        return self.fgraph, self.wrt

    def __str__(self) -> str:
        return f"{type(self).__name__}{{{self.name}, wrt={list(self.wrt)}}}"

    # -- groups of the flat lists --------------------------------------------------------------------

    @property
    def n_outs(self) -> int:
        """The number of outputs of the function."""
        return len(self.fgraph.outputs)

    @property
    def n_inputs(self) -> int:
        """The number of inputs of the function; seeds follow them."""
        return len(self.fgraph.inputs)

    def _seeded(self) -> list[Any]:
        return []

    def _derived(self) -> list[Any]:
        """The variables of the body whose shapes, concatenated, are the shape of each derivative."""
        return [(self.fgraph.inputs[k],) for k in self.wrt]

    def derivatives(
        self, wrt: Sequence[Any], outputs: Sequence[Any], seeds: Sequence[Variable]
    ) -> list[Any]:
        """The derivatives of ``outputs`` with respect to roots ``wrt``, as graphs."""
        raise NotImplementedError(type(self).__name__)

    def make_node(self, *inputs: Variable) -> Apply:
        inner = [*self.fgraph.inputs, *self._seeded()]
        operands = [v.type.filter_variable(x) for v, x in zip(inner, inputs, strict=True)]
        outs = [v.type() for v in self.fgraph.outputs]
        outs += [_joined(variables)() for variables in self._derived()]
        return Apply(self, operands, outs)

    def shapes_of(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        body, own = self.unfrozen(), shapes[: self.n_inputs]
        at = dict(zip(body.inputs, node.inputs, strict=False))
        outs = [
            None if s is None else tuple(replaced(s, at))
            for s in infer_shape(body.outputs, body.inputs, own)
        ]
        variables = [*self.fgraph.inputs, *self.fgraph.outputs]
        shape_of = dict(zip(variables, [*own, *outs], strict=True))
        derived = [sum((tuple(shape_of[v]) for v in vs), ()) for vs in self._derived()]
        return [*outs, *derived]

    # -- meaning -------------------------------------------------------------------------------------

    def expanded(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs as a graph without lazy derivatives."""
        body = self.unfrozen()
        expand(body)
        seeds = [v.type() for v in self._seeded()]
        derivatives = self.derivatives([body.inputs[k] for k in self.wrt], body.outputs, seeds)
        outs = [*body.outputs, *derivatives]
        types = [v.type for v in self.make_node(*inputs).outputs]
        outs = replaced(outs, dict(zip([*body.inputs, *seeds], inputs, strict=True)))
        # PyTensor's gradient by a float32 that is compared with an int64 is a float64.
        return [t.filter_variable(_cast(v, t)) for t, v in zip(types, outs, strict=True)]

    @cached_property
    def expansion(self) -> FrozenFunctionGraph:
        inputs = [v.type() for v in [*self.fgraph.inputs, *self._seeded()]]
        return freeze(FunctionGraph(inputs, self.expanded(inputs), clone=True))

    @property
    def bodies(self) -> Sequence[Any]:
        return (self.expansion,)


def _cast(v: TensorVariable, declared: TensorType) -> Any:
    are_tensors = isinstance(declared, TensorType) and isinstance(v.type, TensorType)
    return v.astype(declared.dtype) if are_tensors and v.type.dtype != declared.dtype else v


def _joined(variables: Sequence[Variable]) -> Any:
    """The type of a derivative: the concatenated shapes of ``variables``, the first float's dtype."""
    shape = tuple(n for v in variables for n in v.type.shape)
    dtype = next((v.type.dtype for v in variables if is_float(v)), config.floatX)
    return TensorType(dtype, shape)


def expand(graph: FunctionGraph) -> None:
    """Expand each lazy derivative in ``graph``, in bodies too, in place."""
    for node in graph.toposort():
        op = node.op
        if isinstance(op, DerivativeGrammar):
            outputs = op.expanded(node.inputs)
        elif isinstance(op, InnerGraphOp) and has_derivatives(op.fgraph):
            body = op.unfrozen()
            expand(body)
            outputs = op.with_graph(body).make_node(*node.inputs).outputs
        else:
            continue
        pairs = list(zip(node.outputs, outputs, strict=True))
        graph.replace_all(pairs, import_missing=True, reason="expand")


def has_derivatives(graph: AbstractFunctionGraph) -> bool:
    """Whether ``graph`` contains a lazy derivative, in bodies too."""
    return any(
        isinstance(node.op, DerivativeGrammar)
        or (isinstance(node.op, InnerGraphOp) and has_derivatives(node.op.fgraph))
        for node in graph.apply_nodes
    )
