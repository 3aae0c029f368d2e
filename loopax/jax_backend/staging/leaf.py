"""Leaf ops, converted by PyTensor's own registry, ``jax_funcify``.

PyTensor's conversions look for Constant inputs when they are made (a Split's sizes, a Sort's axis).
Here static values are known, so the node is rebuilt with them as Constants first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.experimental.sparse import BCOO
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.link.jax.dispatch import jax_funcify, jax_typify
from pytensor.scalar.basic import ScalarConstant, ScalarType
from pytensor.tensor.type import DenseTensorType

from loopax.facts.scalars import is_float
from loopax.ir.derivatives.after_forward import unwrapped
from loopax.ir.matrices import Part, factored_inputs
from loopax.jax_backend.staging.callback import call_back
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import has_conversion, leaf_rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.x64 import without_narrowing_warnings

_MAX_CONSTANT = 4096  # largest static input that becomes a Constant, in elements


@leaf_rule
def convert_leaf(site: Site, *values: object) -> Any:
    """Convert a node by PyTensor's conversion, or by a callback if there is none."""
    node = unwrapped(site.node)
    if not has_conversion(node.op):
        return call_back(site, values)
    node = with_constants(node, values)
    matrices = with_finite_matrices(node, values)
    try:
        with warnings.catch_warnings():
            # "Split node does not have constant axis", "JAX ignores the `order` parameter": warnings about
            # conversions before values are known, which does not happen here.
            warnings.simplefilter("ignore", UserWarning)
            function = jax_funcify(node.op, node=node)
    except NotImplementedError:
        return call_back(site, values)
    inputs = [as_jax(x, v) for x, v in zip(matrices, node.inputs, strict=True)]
    with without_narrowing_warnings():
        return function(*[_as_precise(x, node.outputs[0]) for x in inputs])


def with_finite_matrices(node: Apply, values: Sequence[Any]) -> list[Any]:
    """Replace each matrix that ``node`` factors by nan if an entry that is read is not finite."""
    results = list(values)
    for k, part in factored_inputs(node).items():
        results[k] = a = jnp.asarray(values[k])
        if jnp.issubdtype(a.dtype, jnp.inexact):
            results[k] = nan_unless(jnp.isfinite(_PARTS[part](a)).all(), a)
    return results


_PARTS: dict[Part, Callable[[jax.Array], jax.Array]] = {
    Part.WHOLE: jnp.asarray,
    Part.LOWER: jnp.tril,
    Part.UPPER: jnp.triu,
}


def nan_unless(condition: jax.Array, a: jax.Array) -> jax.Array:
    """Return ``a`` where ``condition`` holds, else nan. The derivative is one, or nan too."""
    return a + jnp.where(condition, 0, jnp.nan).astype(a.dtype)


def _as_precise(x: Any, out: Variable) -> Any:
    """Cast floats ``x`` to the precision of the output: JAX computes float32 times int64 in float32."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or not is_float(out) or not jnp.issubdtype(dtype, jnp.floating):
        return x
    precise = dtypes.canonicalize_dtype(np.finfo(out.type.dtype).dtype)
    return x.astype(precise) if np.dtype(dtype).itemsize < precise.itemsize else x


def with_constants(node: Apply, values: Sequence[Any]) -> Apply:
    """Replace the static inputs of ``node`` by Constants; return ``node`` itself if there is no change."""
    inputs = list(node.inputs)
    for k, (v, x) in enumerate(zip(node.inputs, values, strict=True)):
        if isinstance(v, Constant) or is_traced(x):
            continue
        if isinstance(v.type, ScalarType) and _plain(x):
            inputs[k] = ScalarConstant(v.type, v.type.filter(x))
        if not isinstance(v.type, DenseTensorType):
            continue
        if isinstance(x, np.ndarray) and x.size <= _MAX_CONSTANT:
            inputs[k] = v.type.clone(shape=x.shape).constant_type(v.type.clone(shape=x.shape), x)
    if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
        return node
    return node.op.make_node(*inputs)


def as_jax(x: object, v: Variable) -> Any:
    """Convert a static value to the kind that PyTensor's conversions expect for an input like ``v``.

    Small integers stay NumPy, as shapes, axes and indices must; everything else becomes a JAX array,
    because many conversions call ``x.at`` or pass ``x`` to functions that refuse NumPy.
    """
    if isinstance(x, BCOO):
        return jax.tree.map(jnp.asarray, x)
    if not isinstance(x, np.ndarray):
        return jax_typify(x) if isinstance(v, Constant) and not _plain(x) else x
    if x.dtype.kind in "iub" and x.ndim <= 1 and x.size <= 32:
        return x
    return jnp.asarray(x)


def _plain(x: object) -> bool:
    return x is None or isinstance(x, bool | int | float | complex | np.generic | slice | jax.Array)
