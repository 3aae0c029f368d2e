"""A window ``x[i : i + n]`` with a traced ``i`` that may cross an end, where NumPy's is shorter.

In JAX an array has one length, so the window has ``n`` rows, and those that are not there are marked, by
nan in floats. Reductions and products along the window, also of a function of it, can leave rows out: then
the window is a `PaddedArray` of NumPy's length, and the sum is NumPy's.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.export import is_symbolic_dim
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i

from loopax.facts.elementwise import is_elementwise
from loopax.facts.families import normalized
from loopax.jax_backend.ops.indexing.index import Index, Window, clipped_bounds
from loopax.jax_backend.ops.indexing.slices import is_basic
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import PaddedArray


def read_clipped(site: Site, index: Index, x: jax.Array) -> PaddedArray | None:
    """Read ``x`` at ``index`` as NumPy does; None unless a reduced window is its only traced entry."""
    if len(index.windows) != 1 or sum(map(is_traced, index.entries)) != 1:
        return None
    ((axis, window),) = index.windows.items()
    entries = list(index.entries)
    entries[index.slices[axis]] = slice(None)
    if not window.may_cross or not window.length or not is_basic(entries):
        return None
    if is_symbolic_dim(x.shape[axis]) or not x.shape[axis]:
        return None
    axis_of_result = sum(isinstance(e, slice) for e in entries[: index.slices[axis]])
    if not _is_reduced(site, axis_of_result):
        return None
    return _clipped(x[tuple(entries)], window, axis_of_result)


def _clipped(x: jax.Array, window: Window, axis: int) -> PaddedArray:
    """Read ``window`` along ``axis`` of ``x``, with NumPy's length.

    The rows after the end repeat the last one, as in every `PaddedArray`.
    """
    length = x.shape[axis]
    first, last = clipped_bounds(window, length)
    count = last - first
    at = jnp.minimum(first + jnp.arange(window.length), jnp.maximum(last, 1) - 1)
    rows = x.at[(*[slice(None)] * axis, at)].get(mode="clip")
    # Without a derivative, since 0 times nan is nan: the mean of an empty window, for example, is nan.
    is_row = (jnp.arange(window.length) < count).reshape(-1, *[1] * (x.ndim - axis - 1))
    return PaddedArray(jnp.where(is_row, rows, jax.lax.stop_gradient(rows)), count, axis)


def _is_reduced(site: Site, axis: int) -> bool:
    """Whether ``axis`` of the result is reduced, or summed in a product, wherever the result is read.

    Functions of single elements may come in between.
    """
    plan = site.frame.plan
    stack = [(site.out, axis)]
    while stack:
        v, axis = stack.pop()
        results = [_results(node, v, axis) for node in plan.readers.get(v, ())]
        if v in plan.outputs or not results:
            return False
        for result in results:
            if result is None:
                return False
            stack += result
    return True


def _results(node: Apply, v: Variable, axis: int) -> list[tuple[Variable, int]] | None:
    """The results of ``node`` that have the axis of the window; None if its length must be known."""
    op = node.op
    if isinstance(op, Shape | Shape_i):
        return []
    if isinstance(op, CAReduce) and axis in normalized(op.axis, v.type.ndim):
        return []
    if isinstance(op, DimShuffle):
        return [(node.outputs[0], list(op.new_order).index(axis))]
    if isinstance(op, Dot):
        contracted = zip(node.inputs, (node.inputs[0].type.ndim - 1, 0), strict=True)
        return [] if all(axis == k for u, k in contracted if u is v) else None
    # Other arrays must be as long as the window; `padded.masked` compares the lengths.
    if is_elementwise(node) and not v.type.broadcastable[axis]:
        return [(out, axis) for out in node.outputs]
    return None
