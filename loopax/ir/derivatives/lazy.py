"""``Grad``, ``Pullback``, ``Pushforward``, ``Jacobian``: lazy derivatives, not taken yet.

Grammar, for a function of ``n`` inputs with ``m`` outputs::

    inputs   n, then one seed for each output (Pullback) or each of ``wrt`` (Pushforward)
    body     [n inputs] -> [m outputs]; of Grad one, a float scalar
    outputs  m, then the derivatives: one for each of ``wrt`` (Grad, Pullback), one for each output
             (Pushforward), or a block for each output and each of ``wrt`` (Jacobian)

A rewrite sees the function and the positions ``wrt``. The function's values are outputs of the same
node, so a value and its gradient share computations without a search. `expanded` is the derivative as
a graph, which is also what runs where the op has not been expanded. The Hessian is the Jacobian of a
function whose body is a `Grad`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pytensor.compile.builders import infer_shape
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph, FunctionGraph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import freeze
from loopax.facts.linearity import is_affine
from loopax.ir.derivatives.graph_derivatives import gradients, jacobian, pulled_back, pushed_forward
from loopax.ir.derivatives.inner_gradients import (
    is_connected,
    is_float,
    pytensor_cotangents,
    zeros_for,
)
from loopax.ir.evaluation.inner import CompiledBodies
from loopax.ir.ops.inner_graph_op import InnerGraphOp, Step
from loopax.ir.replace import replaced


class Derivative(CompiledBodies):
    """A derivative of the graph ``body``.

    Parameters
    ----------
    body
        The function.
    wrt
        The positions of the inputs to differentiate with respect to: tensors of floats.
    name
        For printing.
    """

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
        """The derivative of ``outputs`` at ``arguments``, in the place of ``roots``: a node's outputs.

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

    def with_body(self, body: FrozenFunctionGraph) -> Derivative:
        return type(self)(body, self.wrt, self.name)

    def with_wrt(self, wrt: Sequence[int]) -> Derivative:
        """The derivative of the same function with respect to other inputs."""
        return type(self)(self.fgraph, wrt, self.name)

    def _key(self) -> tuple[Any, ...]:
        return self.fgraph, self.wrt

    def __str__(self) -> str:
        return f"{type(self).__name__}{{{self.name}, wrt={list(self.wrt)}}}"

    # -- grammar -------------------------------------------------------------------------------------

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

    def run(self, inputs: Sequence[Any], *steps: Step) -> list[Any]:
        (step,) = steps
        return list(step(*inputs))

    # -- derivatives ---------------------------------------------------------------------------------

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[is_float(x) and is_float(y) for y in node.outputs] for x in node.inputs]

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """The cotangents, by a lazy product with this derivative's own Jacobian, never by a Hessian."""
        roots, wrt, outs = self._applied(inputs)
        seeds = [_seed(y, g) for y, g in zip(outputs, cotangents, strict=True)]
        products = Pullback.of(roots, inputs, wrt, outs, seeds, self.name)[len(outs) :]
        remaining = iter(products)
        in_cotangents = [next(remaining) if is_float(x) else None for x in inputs]
        return pytensor_cotangents(self, inputs, outputs, cotangents, in_cotangents)

    def pushforward(
        self, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
    ) -> list[Any]:
        roots, wrt, outs = self._applied(inputs)
        seeds = [_seed(x, t) for x, t in zip(inputs, tangents, strict=True) if is_float(x)]
        return Pushforward.of(roots, inputs, wrt, outs, seeds, self.name)[len(outs) :]

    def _applied(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """This op at fresh roots: the roots, the float ones among them, and the outputs."""
        roots = [x.type() for x in inputs]
        return roots, [v for v in roots if is_float(v)], self.make_node(*roots).outputs


def _seed(v: TensorVariable, g: Any) -> Any:
    """The tangent or cotangent ``g`` of ``v``; zeros where it is disconnected, or ``v`` is no float."""
    if is_connected(g) and is_float(v):
        return v.type.filter_variable(g.astype(v.type.dtype))
    return zeros_for(v)


def _cast(v: TensorVariable, declared: TensorType) -> Any:
    are_tensors = isinstance(declared, TensorType) and isinstance(v.type, TensorType)
    return v.astype(declared.dtype) if are_tensors and v.type.dtype != declared.dtype else v


def _joined(variables: Sequence[Variable]) -> Any:
    """The type of a derivative: the concatenated shapes of ``variables``, the first float's dtype."""
    shape = tuple(n for v in variables for n in v.type.shape)
    dtype = next((v.type.dtype for v in variables if is_float(v)), config.floatX)
    return TensorType(dtype, shape)


class Grad(Derivative):
    """The value of a float scalar, and its gradient with respect to some inputs.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax.ir import Grad
    >>> x, y = pt.dscalar("x"), pt.dscalar("y")
    >>> value, slope = Grad.of([x], [y], [x], [x**3])
    >>> value.eval({y: 2.0}), slope.eval({y: 2.0})
    (array(8.), array(12.))
    """

    def derivatives(
        self, wrt: Sequence[Variable], outputs: Sequence[TensorVariable], seeds: Sequence[Variable]
    ) -> list[Any]:
        return gradients(wrt, outputs)

    @cached_property
    def is_constant(self) -> bool:
        """Whether the gradient is the same at all points: the function is affine."""
        return is_affine([self.fgraph.inputs[k] for k in self.wrt], self.fgraph.outputs)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        pattern = super().connection_pattern(node)
        for k in self.wrt if self.is_constant else ():
            pattern[k][1:] = [False] * len(self.wrt)
        return pattern

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Variable], cotangents: Sequence[Any]
    ) -> list[Any]:
        """The cotangents, by a pushforward of the full gradient, as the Hessian is symmetric."""
        roots = [x.type() for x in inputs]
        floats = [k for k, x in enumerate(inputs) if is_float(x)]
        full_gradient = self.with_wrt(floats)
        slopes = full_gradient.make_node(*roots).outputs[1:]
        total: list[Any] = [None] * len(floats)
        by_value, *by_slopes = cotangents
        if is_connected(by_value):
            value_slopes = full_gradient.make_node(*inputs).outputs[1:]
            total = [by_value.astype(g.type.dtype) * g for g in value_slopes]
        if any(map(is_connected, by_slopes)):
            seeds = [_seed(inputs[k], g) for k, g in zip(self.wrt, by_slopes, strict=True)]
            wrt = [roots[k] for k in self.wrt]
            products = Pushforward.of(roots, inputs, wrt, slopes, seeds, self.name)[len(slopes) :]
            total = [t if g is None else g + t for g, t in zip(total, products, strict=True)]
        by_position = dict(zip(floats, total, strict=True))
        in_cotangents = [by_position.get(k) for k in range(len(inputs))]
        return pytensor_cotangents(self, inputs, outputs, cotangents, in_cotangents)


class Pullback(Derivative):
    """The outputs, and the transposed Jacobian times a cotangent for each output."""

    def _seeded(self) -> list[Any]:
        return list(self.fgraph.outputs)

    def derivatives(
        self, wrt: Sequence[Variable], outputs: Sequence[TensorVariable], seeds: Sequence[Variable]
    ) -> list[Any]:
        return pulled_back(wrt, outputs, seeds)


class Pushforward(Derivative):
    """The outputs, and the Jacobian times a tangent for each of ``wrt``."""

    def _seeded(self) -> list[Any]:
        return [self.fgraph.inputs[k] for k in self.wrt]

    def _derived(self) -> list[Any]:
        return [(v,) for v in self.fgraph.outputs]

    def derivatives(
        self,
        wrt: Sequence[TensorVariable],
        outputs: Sequence[TensorVariable],
        seeds: Sequence[Variable],
    ) -> list[Any]:
        return pushed_forward(wrt, outputs, seeds)


class Jacobian(Derivative):
    """The outputs, and a block for each output and each of ``wrt``."""

    def _derived(self) -> list[Any]:
        return [(y, self.fgraph.inputs[k]) for y in self.fgraph.outputs for k in self.wrt]

    def derivatives(
        self,
        wrt: Sequence[TensorVariable],
        outputs: Sequence[TensorVariable],
        seeds: Sequence[Variable],
    ) -> list[Any]:
        # The Jacobian of a gradient is square, and a pushforward is cheaper than a pullback.
        forward = all(v.owner and isinstance(v.owner.op, Grad) for v in self.fgraph.outputs)
        return [block for row in jacobian(wrt, outputs, forward or None) for block in row]


def expand(graph: FunctionGraph) -> None:
    """Expand each lazy derivative in ``graph``, in bodies too, in place."""
    for node in graph.toposort():
        op = node.op
        if isinstance(op, Derivative):
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
        isinstance(node.op, Derivative)
        or (isinstance(node.op, InnerGraphOp) and has_derivatives(node.op.fgraph))
        for node in graph.apply_nodes
    )
