"""An identity that forward mode passes and reverse mode does not, with an error of ours.

``lax.while_loop`` without a bound has no reverse mode: nobody knows how many states to keep. JAX says so
in its own terms; here the loop's results go through a primitive whose transpose says which argument is
missing. (``jax.custom_derivatives.linear_call`` would do, but it has no batching rule.)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from loopax.base.errors import UnsupportedOpError
from loopax.base.upstream.jax import Primitive, ad, batching, mlir

_forward_only = Primitive("forward_only")


def forward_only(tree: Any, message: str) -> Any:
    """``tree``; a reverse derivative of its floats raises `UnsupportedOpError` with ``message``."""

    def leaf(x: Any) -> Any:
        inexact = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.inexact)
        return _forward_only.bind(x, message=message) if inexact else x

    return jax.tree.map(leaf, tree)


def _refuse(cotangent: Any, x: Any, *, message: str) -> Any:
    raise UnsupportedOpError(message)


_forward_only.def_impl(lambda x, message: x)
_forward_only.def_abstract_eval(lambda x, message: x)
ad.deflinear2(_forward_only, _refuse)
batching.defvectorized(_forward_only)
mlir.register_lowering(_forward_only, lambda context, x, message: [x])
