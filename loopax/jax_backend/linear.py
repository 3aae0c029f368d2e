"""A linear function with a transpose of its own: what JAX's ``custom_jvp`` and ``custom_vjp`` leave out.

A ``custom_vjp`` has no forward mode; the tangent of a ``custom_jvp`` is transposed by JAX, which a
``lax.while_loop`` does not survive. Here the tangent of a ``custom_jvp`` is a primitive that knows both
directions. (``jax.custom_derivatives.linear_call`` is the same without a rule for ``vmap``.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


@dataclass(frozen=True, eq=False)
class Linear:
    """A function of residuals and, linearly, of tangents. All arguments are flat lists of arrays.

    ``forward(residuals, tangents)`` gives its results, ``transpose(residuals, cotangents)`` the
    cotangents of the tangents, and ``smooth(residuals, tangents)`` the results by a program that JAX can
    differentiate again.
    """

    forward: Callable[[Any, Any], Sequence[Any]]
    transpose: Callable[[Any, Any], Sequence[Any]]
    smooth: Callable[[Any, Any], Sequence[Any]]

    def __call__(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        return _linear.bind(*residuals, *tangents, of=self, n=len(residuals))


_linear = Primitive("linear")
_linear.multiple_results = True


def _run(*args: Any, of: Linear, n: int) -> list[Any]:
    return list(of.forward(list(args[:n]), list(args[n:])))


@_linear.def_abstract_eval
def _shapes(*args: Any, of: Linear, n: int) -> list[Any]:
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in args]
    outs = jax.eval_shape(lambda *xs: _run(*xs, of=of, n=n), *shapes)
    return [jax.core.ShapedArray(o.shape, o.dtype) for o in outs]


def _jvp(primals: Any, tangents: Any, *, of: Linear, n: int) -> Any:
    if all(isinstance(t, ad.Zero) for t in tangents[:n]):
        dots = [ad.instantiate_zeros(t) for t in tangents[n:]]
        return _linear.bind(*primals, of=of, n=n), _linear.bind(*primals[:n], *dots, of=of, n=n)
    moving = [k for k, t in enumerate(tangents) if not isinstance(t, ad.Zero)]

    def smooth(*some: Any) -> list[Any]:
        args = list(primals)
        for k, x in zip(moving, some, strict=True):
            args[k] = x
        return list(of.smooth(args[:n], args[n:]))

    return jax.jvp(smooth, [primals[k] for k in moving], [tangents[k] for k in moving])


def _transpose(cotangents: Any, *args: Any, of: Linear, n: int) -> list[Any]:
    given = [ad.instantiate_zeros(c) for c in cotangents]
    return [*[None] * n, *of.transpose(list(args[:n]), given)]


def _batch(args: Any, axes: Any, *, of: Linear, n: int) -> Any:
    size = next(x.shape[a] for x, a in zip(args, axes, strict=True) if a is not None)
    args = [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(args, axes, strict=True)]
    # Each row has tangents of its own, so that each has cotangents.
    tangents = [
        jnp.broadcast_to(x, (size, *x.shape)) if a is None else x
        for x, a in zip(args[n:], axes[n:], strict=True)
    ]
    inside = [None if a is None else 0 for a in axes[:n]]

    def rows(f: Any) -> Any:
        return lambda residuals, linear: jax.vmap(f, in_axes=(inside, 0))(residuals, linear)

    batch = Linear(rows(of.forward), rows(of.transpose), rows(of.smooth))
    outs = batch(args[:n], tangents)
    return outs, [0] * len(outs)


_linear.def_impl(lambda *args, of, n: jax.jit(lambda *xs: _run(*xs, of=of, n=n))(*args))
mlir.register_lowering(_linear, mlir.lower_fun(_run, multiple_results=True))
ad.primitive_jvps[_linear] = _jvp
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _batch
