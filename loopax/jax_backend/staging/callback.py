"""Ops without a JAX conversion, which run on the host through ``jax.pure_callback``.

The Op's ``perform`` computes the value, and its own ``pullback`` the derivative, as a graph that JAX
evaluates (`custom.py`). Under ``vmap`` the Op runs row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.gradient import DisconnectedGrad, ZeroGrad
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import DenseTensorType

from loopax.base.errors import UnsupportedOpError, describe
from loopax.importer.import_graph import import_graph
from loopax.ir.derivatives.after_forward import unwrapped
from loopax.ir.derivatives.pullback import PullbackRule, floats
from loopax.ir.evaluation.evaluate import apply
from loopax.jax_backend.staging.custom import refused_by, with_pullback
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.host_shapes import output_shapes
from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array


def unsupported(node: Apply) -> str:
    """Describe an op without a conversion in one line."""
    why = ""
    if isinstance(node.op, RandomVariable):
        why = "; no sampler is registered with `pytensor.link.jax.dispatch.random.jax_sample_fn`"
    return f"{node.op} (class {type(unwrapped(node).op).__name__}), for {describe(node.outputs[-1])}{why}"


def is_on_tensors(node: Apply) -> bool:
    """Whether ``node`` takes and returns only arrays and numbers, as a callback does."""
    return all(
        isinstance(v.type, DenseTensorType | ScalarType) for v in [*node.inputs, *node.outputs]
    )


def refusal(lines: Sequence[str]) -> UnsupportedOpError:
    """The error that lists ops without a conversion."""
    return UnsupportedOpError(
        "These ops have no JAX conversion:\n  - "
        + "\n  - ".join(lines)
        + "\nRegister one with `pytensor.link.jax.dispatch.jax_funcify.register(OpClass)`, or let them "
        "run on the host through their `perform` with jaxify(..., on_missing='callback').",
        lines,
    )


def call_back(site: Site, values: Sequence[Any]) -> Any:
    """Compute the outputs of a node by its ``perform``, on the host."""
    node, context = site.node, site.context
    line = unsupported(node)
    if context.on_missing == "raise" or not is_on_tensors(node):
        raise refusal([line])
    context.warn_once(
        line, f"{line} has no JAX conversion: it runs on the host, through jax.pure_callback."
    )
    operands = [jnp.asarray(x) for x in values]
    perform = partial(apply, node)
    shapes = output_shapes(site, values, perform)

    def on_host(*inputs: jax.Array) -> tuple[Any, ...]:
        arrays = [
            np.asarray(x, dtype=v.type.dtype) for x, v in zip(inputs, node.inputs, strict=True)
        ]
        outs = perform(arrays)
        for out, declared, v in zip(outs, shapes, node.outputs, strict=True):
            if out.shape != declared.shape:
                raise ValueError(
                    f"{node.op} returned {describe(v)} with the shape {out.shape}, but loopax expected "
                    f"{declared.shape} from its static type and `infer_shape`."
                )
        return tuple(np.asarray(o, dtype=s.dtype) for o, s in zip(outs, shapes, strict=True))

    def value(*inputs: jax.Array) -> tuple[Any, ...]:
        return tuple(
            manual_axes.pure_callback(on_host, tuple(shapes), *inputs, vmap_method="sequential")
        )

    if is_detached(site, node.outputs):
        return value(*map(jax.lax.stop_gradient, operands))
    rule = PullbackRule(node.op, [v.type for v in node.inputs], import_graph, site.used)

    def pulled_back(
        inputs: Sequence[Array], outputs: Sequence[Array], cotangents: Sequence[Array]
    ) -> Any:
        return site.pull_back(rule.graph, inputs, outputs, cotangents)

    float_ins, float_outs = floats(node.inputs), floats(node.outputs)
    return with_pullback(
        value, pulled_back, float_ins, lambda: float_outs, partial(refused_by, node, rule)
    )(*operands)


def is_detached(site: Site, outputs: Sequence[Variable]) -> bool:
    """Whether every read of these outputs of the node is through ``disconnected_grad`` or ``zero_grad``."""
    plan, produced = site.frame.plan, set(outputs)
    readers = [n.op for n, _ in plan.steps if not produced.isdisjoint(n.inputs)]
    detached = all(isinstance(op, DisconnectedGrad | ZeroGrad) for op in readers)
    # The core of a Blockwise has no readers in its frame.
    return bool(readers) and detached and produced.isdisjoint(plan.outputs)


def without_derivative(value: Callable[..., Any], message: str) -> Any:
    """Return ``value``, which raises an error with ``message`` when it is differentiated."""

    @jax.custom_jvp
    def function(*inputs: jax.Array) -> Any:
        return value(*inputs)

    @function.defjvp
    def function_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> Any:
        raise UnsupportedOpError(message) from None

    return function
