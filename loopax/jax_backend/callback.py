"""Ops without a JAX conversion: run on the host through ``jax.pure_callback``.

The Op's ``perform`` gives the value and its own ``pullback`` the derivative: cotangents in, cotangents
out, as a graph that is itself evaluated by JAX. A forward derivative is the transpose of that linear
map, so ``jax.jvp`` and ``jax.hessian`` work as well. Under ``vmap`` the Op runs row by row.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.null_type import NullType
from pytensor.graph.replace import clone_replace
from pytensor.tensor.type import TensorType

from loopax.ir.errors import DynamicShapeError, UnsupportedOpError, describe
from loopax.ir.evaluate import apply
from loopax.jax_backend.custom import floats, with_pullback

if TYPE_CHECKING:
    from loopax.jax_backend.evaluate import Site


def unsupported(node: Apply) -> str:
    """One line about an op that has no conversion."""
    return f"{node.op} (class {type(node.op).__name__}), for {describe(node.outputs[0])}"


def refusal(lines: Sequence[str]) -> UnsupportedOpError:
    """The error that lists ops without a conversion."""
    return UnsupportedOpError(
        "These ops have no JAX conversion:\n  - "
        + "\n  - ".join(lines)
        + "\nRegister one with `pytensor.link.jax.dispatch.jax_funcify.register(OpClass)`, or let them "
        "run on the host through their `perform` with jaxify(..., on_missing='callback')."
    )


def call_back(site: Site, values: Sequence[Any]) -> Any:
    """The outputs of a node by its ``perform``, on the host."""
    node, context = site.node, site.context
    line = unsupported(node)
    tensors = all(isinstance(v.type, TensorType) for v in [*node.inputs, *node.outputs])
    if context.on_missing == "raise" or not tensors:
        raise refusal([line])
    if line not in context.warned:
        context.warned.add(line)
        warnings.warn(
            f"{line} has no JAX conversion: it runs on the host, through jax.pure_callback.",
            stacklevel=2,
        )
    given = [jnp.asarray(x) for x in values]
    shapes = _output_shapes(site, given)

    def on_host(*inputs: Any) -> tuple[Any, ...]:
        arrays = [np.asarray(x, dtype=v.type.dtype) for x, v in zip(inputs, node.inputs, strict=True)]
        outs = apply(node, arrays)
        for out, declared, v in zip(outs, shapes, node.outputs, strict=True):
            if out.shape != declared.shape:
                raise ValueError(
                    f"{node.op} gave {describe(v)} the shape {out.shape}; from its static type and "
                    f"`infer_shape` loopax had expected {declared.shape}."
                )
        return tuple(np.asarray(o, dtype=s.dtype) for o, s in zip(outs, shapes, strict=True))

    def value(*inputs: Any) -> tuple[Any, ...]:
        return tuple(jax.pure_callback(on_host, tuple(shapes), *inputs, vmap_method="sequential"))

    function = with_pullback(value, _PullbackOf(site), floats(node.inputs), floats(node.outputs))
    return function(*given)


class _PullbackOf:
    """The op's own pullback as a function, its graph built when a derivative is first taken."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.graph: FunctionGraph | None = None

    def __call__(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        if self.graph is None:
            self.graph = _pullback_graph(self.site.node)
        given = [*inputs, *outputs, *cotangents]
        return self.site.run(self.graph, given, ["an input of an op's pullback"] * len(given))


def _pullback_graph(node: Apply) -> FunctionGraph:
    """``[*inputs, *outputs, *float cotangents] -> [*cotangents of the float inputs]``."""
    op: Any = node.op
    inputs = [v.type() for v in node.inputs]
    outputs = [v.type() for v in node.outputs]
    applied = op.make_node(*inputs).outputs
    given = {k: outputs[k].type() for k in floats(outputs)}
    cotangents: list[Variable] = [given.get(k, DisconnectedType()()) for k in range(len(outputs))]
    try:
        found = op.pullback(inputs, applied, cotangents)
    except (NotImplementedError, AttributeError) as error:
        raise UnsupportedOpError(
            f"{unsupported(node)}, has no `pullback`, so it cannot be differentiated. Write one, or "
            "keep it out of what is differentiated with `pytensor.gradient.disconnected_grad`."
        ) from error
    wanted = []
    for k in floats(inputs):
        x, g = inputs[k], found[k]
        absent = isinstance(g.type, DisconnectedType | NullType)
        wanted.append(x.zeros_like() if absent else x.type.filter_variable(g.astype(x.type.dtype)))
    wanted = clone_replace(wanted, dict(zip(applied, outputs, strict=True)), rebuild_strict=False)
    return FunctionGraph([*inputs, *outputs, *given.values()], wanted, clone=True)


def _output_shapes(site: Site, values: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    """The outputs' shapes, from their types or the op's ``infer_shape``: JAX must know them now."""
    from pytensor.compile.builders import infer_shape

    node = site.node
    found = []
    for v in node.outputs:
        shape: Any = v.type.shape
        if None in shape:
            inputs = [u.type() for u in node.inputs]
            applied = node.op.make_node(*inputs).outputs[node.outputs.index(v)]
            dims = infer_shape([applied], inputs, [tuple(x.shape[k] for k in range(x.ndim)) for x in inputs])[0]
            try:
                graph = FunctionGraph(inputs, list(dims), clone=True)
                if any(n.op == node.op for n in graph.apply_nodes):
                    raise ValueError("its shape is only known by running it")
                computed = site.run(graph, values, ["an input"] * len(values))
                shape = tuple(int(d) for d in computed)
            except Exception as error:
                raise DynamicShapeError(
                    f"{unsupported(node)}, runs on the host, and JAX must know the shape of what it "
                    "returns while it traces. Give the Op an `infer_shape` that uses only its inputs' "
                    "shapes, or an output type with a static shape."
                ) from error
        found.append(jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(v.type.dtype)))
    return found
