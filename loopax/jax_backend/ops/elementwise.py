"""Elementwise ops: scalar ops broadcast over arrays, and the fused `Composite` of them.

The scalar functions themselves come from PyTensor's registry. This file adds PyTensor's dtypes and
broadcasting rules, which differ from JAX's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from jax.typing import ArrayLike
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import Composite, ScalarOp
from pytensor.scalar.loop import ScalarLoop
from pytensor.scalar.math import PolyGamma
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import discrete_dtypes

from loopax.base.errors import describe, undeclared
from loopax.jax_backend.ops.computed_once import computed_once, held
from loopax.jax_backend.ops.scalar_loop import scalar_loop
from loopax.jax_backend.ops.scalars import compares_exactly, convert, scalar_function
from loopax.jax_backend.staging.callback import call_back
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.values.x64 import without_narrowing_warnings
from loopax.numerics.arrays import Array


@rule(Elemwise)
def elemwise(site: Site, *values: ArrayLike) -> Any:
    _check_broadcast(site, values)
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in values))
    operands = tuple(map(_as_number, values))
    scalar_op = site.op.scalar_op
    try:
        outs = apply_scalar(site, scalar_op, site.node, operands)
    except NotImplementedError:
        return call_back(site, values)
    # A function that ignores some inputs does not broadcast to their shapes.
    whole = tuple(x if jnp.shape(x) == shape else jnp.broadcast_to(x, shape) for x in outs)
    return tuple(map(held, whole)) if computed_once(site) else whole


@rule(ScalarOp)
def scalar(site: Site, *values: ArrayLike) -> Any:
    """A scalar op outside of an Elemwise, on scalars from ``ScalarFromTensor``."""
    return tuple(apply_scalar(site, site.op, site.node, values))


def apply_scalar(site: Site, op: ScalarOp, node: Apply, values: Sequence[ArrayLike]) -> list[Any]:
    """Apply ``op`` elementwise to arrays; ``node`` has its types."""
    if isinstance(op, Composite):
        return _inner(site, op, values)
    if isinstance(op, ScalarLoop):
        return scalar_loop(op, values, partial(_inner, site, op))
    operands = _promoted(op, node, values)
    function = scalar_function(site, op, node)
    with without_narrowing_warnings():
        out = function(*operands)
    return list(out) if isinstance(out, tuple | list) else [out]


def _inner(site: Site, op: ps.ScalarInnerGraphOp, values: Sequence[ArrayLike]) -> list[Any]:
    """Evaluate the graph inside ``op``, with each value in the dtype that its variable declares."""
    env: dict[Variable, Any] = dict(zip(op.fgraph.inputs, values, strict=True))

    def read(v: Variable) -> Any:
        return np.asarray(v.data, dtype=v.type.dtype) if isinstance(v, Constant) else env[v]

    for node in op.fgraph.toposort():
        outs = apply_scalar(site, node.op, node, [read(v) for v in node.inputs])
        for v, x in zip(node.outputs, outs, strict=True):
            env[v] = x if x.dtype == v.type.dtype else jnp.asarray(x).astype(v.type.dtype)
    return [read(v) for v in op.fgraph.outputs]


def _promoted(op: ScalarOp, node: Apply, values: Sequence[ArrayLike]) -> Any:
    """Cast the inputs to the dtype that PyTensor computes in, where JAX would choose a narrower one.

    JAX keeps ``float32 * int64`` at float32; PyTensor and NumPy compute it in float64. Likewise
    ``int8 / int8`` and ``exp(int8)``, which PyTensor computes in the dtype of its result.
    """
    if isinstance(op, ps.Cast | ps.Identity | ps.Second):
        return values
    if compares_exactly(op, node):
        return values
    first = 1 if isinstance(op, ps.Switch) else 0  # a Switch's condition does not affect the dtype
    dtypes = [v.type.dtype for v in node.inputs[first:]]
    out = node.outputs[0].type.dtype
    common = ps.upcast(*dtypes)
    if common in discrete_dtypes and out not in discrete_dtypes:
        common = out
    if isinstance(op, ps.Pow) and dtypes[1] in discrete_dtypes and dtypes[0] not in discrete_dtypes:
        # An integer power stays one: exact, and differentiable at 0.
        return [_cast(values[0], common), values[1]]
    if isinstance(op, PolyGamma):  # its order is an integer
        return [values[0], _cast(values[1], out)]
    return [*values[:first], *(_cast(x, common) for x in values[first:])]


def _as_number(x: ArrayLike) -> Any:
    """Convert a static array with one element to a number: a literal in the program."""
    return x.reshape(()) if isinstance(x, np.ndarray) and x.size == 1 else x


def _cast(x: ArrayLike, dtype: str) -> Array:
    if not isinstance(x, jax.Array):
        return np.asarray(x, dtype=dtype)
    return x if x.dtype == dtype else convert(x, dtype)


def _check_broadcast(site: Site, values: Sequence[ArrayLike]) -> None:
    """Raise if an axis is broadcast whose *type* does not say that it has length 1, as in PyTensor."""
    shapes = {jnp.shape(x) for x in values}
    if len(shapes) <= 1:
        return
    for axis in range(site.out.type.ndim):
        lengths = {s[axis] for s in shapes}
        if len(lengths) == 1:
            continue
        for x, v in zip(values, site.node.inputs, strict=True):
            if jnp.shape(x)[axis] == 1 and not v.type.broadcastable[axis]:
                raise ValueError(undeclared(axis, v, site.op))
        if len(lengths - {1}) > 1:
            raise ValueError(
                f"{site.op} got inputs of the lengths {sorted(lengths)} along axis {axis}, for "
                f"{describe(site.out)}."
            )
