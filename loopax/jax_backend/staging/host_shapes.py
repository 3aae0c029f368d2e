"""Shapes of an op's results on the host, which JAX must know at trace time.

They are, in order of preference: the static shape of the output's type; for a cotangent, the shape of its
input; the result of the op's own ``infer_shape``; and if all of these leave it open, the shape from one run
of the op, with ones for unknown inputs, or other numbers if it refuses ones. If a later run returns another
shape, that is an error, never a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import DynamicShapeError, describe
from loopax.ir.evaluation.evaluate import apply
from loopax.ir.shapes import symbolic_shape
from loopax.jax_backend.staging.evaluate import Site

Perform = Callable[[Sequence[Any]], Sequence[Any]]


def output_shapes(
    site: Site, values: Sequence[Any], perform: Perform
) -> list[jax.ShapeDtypeStruct]:
    """The shapes and dtypes of the outputs of ``site``'s node, which ``perform`` runs."""
    shapes = [_known(site, v, values) for v in site.node.outputs]
    if any(s is None for s in shapes):
        tried = [out.shape for out in _outputs_of_a_run(site, values, perform)]
        shapes = [t if s is None else s for s, t in zip(shapes, tried, strict=True)]
    return [
        jax.ShapeDtypeStruct(s, jax.dtypes.canonicalize_dtype(v.type.dtype))
        for s, v in zip(shapes, site.node.outputs, strict=True)
    ]


def output_shape(site: Site, v: Variable, values: Sequence[Any]) -> jax.ShapeDtypeStruct:
    """The shape and dtype of ``v``, one output of ``site``'s node; others may not be arrays."""
    shape = _known(site, v, values)
    if shape is None:
        shape = np.shape(
            _outputs_of_a_run(site, values, partial(apply, site.node))[site.node.outputs.index(v)]
        )
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(v.type.dtype))


def _known(site: Site, v: Variable, values: Sequence[Any]) -> tuple[int, ...] | None:
    if None not in v.type.shape:
        return tuple(v.type.shape)
    node = site.node
    inputs = [u.type() for u in node.inputs]
    applied = node.op.make_node(*inputs).outputs[node.outputs.index(v)]
    symbolic = [symbolic_shape(x) for x in inputs]
    awaited = site.frame.awaited_shape(v)
    if awaited is not None:
        return awaited
    try:
        dims = infer_shape([applied], inputs, symbolic)[0]
        graph = FunctionGraph(inputs, list(dims), clone=True)
        if any(n.op == node.op for n in graph.apply_nodes):
            return None  # it returns "the shape of what the op returns": no help
        return tuple(int(d) for d in site.run(graph, values, ["an input of an op"] * len(values)))
    except Exception:  # an infer_shape may fail in any way; the run below then decides
        return None


def _outputs_of_a_run(site: Site, values: Sequence[Any], perform: Perform) -> Sequence[Any]:
    node = site.node
    for numbers in (np.ones, _unlike_numbers):
        known = [
            numbers(jnp.shape(x)).astype(v.type.dtype) if isinstance(x, jax.Array) else x
            for x, v in zip(values, node.inputs, strict=True)
        ]
        try:
            return perform(known)
        except Exception as error:
            failed = error
    raise DynamicShapeError(
        f"{node.op}, for {describe(node.outputs[0])}, runs on the host, and JAX must know the shape of "
        "its result while it traces. Neither its type nor its infer_shape determines that shape, and "
        f"runs on ones and on other numbers failed ({failed}). Give the Op an `infer_shape` that uses "
        "only its inputs' shapes, or an output type with a static shape."
    ) from failed


def _unlike_numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Increasing numbers, like times; for square matrices, a positive definite matrix."""
    size = int(np.prod(shape))
    numbers = np.linspace(1.0, 2.0, size).reshape(shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        numbers = numbers + np.swapaxes(numbers, -1, -2) + 4.0 * shape[-1] * np.eye(shape[-1])
    return numbers
