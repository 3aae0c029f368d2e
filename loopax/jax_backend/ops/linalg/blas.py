"""The BLAS ops that PyTensor's C and Numba modes put in the place of products."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from pytensor.tensor.blas import Dot22, Dot22Scalar, Gemm, Gemv

from loopax.ir.compat import Ger
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule


@rule(Gemv)
def gemv(site: Site, y: Any, alpha: Any, a: Any, x: Any, beta: Any) -> Any:
    return beta * jnp.asarray(y) + alpha * jnp.dot(a, x)


@rule(Gemm)
def gemm(site: Site, z: Any, a: Any, x: Any, y: Any, b: Any) -> Any:
    return b * jnp.asarray(z) + a * jnp.dot(x, y)


@rule(Dot22)
def dot22(site: Site, x: Any, y: Any) -> Any:
    return jnp.dot(x, y)


@rule(Dot22Scalar)
def dot22_scalar(site: Site, x: Any, y: Any, a: Any) -> Any:
    return jnp.dot(x, y) * a


@rule(Ger)
def ger(site: Site, a: Any, alpha: Any, x: Any, y: Any) -> Any:
    return jnp.asarray(a) + alpha * jnp.outer(x, y)
