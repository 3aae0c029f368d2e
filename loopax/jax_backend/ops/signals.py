"""Convolutions, windows, and real Fourier transforms, with complex numbers as a last axis of length 2."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from pytensor.tensor.extra_ops import Bartlett
from pytensor.tensor.fft import IRFFTOp, RFFTOp
from pytensor.tensor.signal.conv import Convolve1d, Convolve2d
from pytensor.tensor.type import integer_dtypes

from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.numerics.arrays import Array


@rule(RFFTOp)
def rfft(site: Site, a: Array, s: Array) -> Array:
    sizes = tuple(int(n) for n in site.static(1))
    transform = jnp.fft.rfftn(a, s=sizes, axes=tuple(range(-len(sizes), 0)))
    return jnp.stack([transform.real, transform.imag], axis=-1)


@rule(IRFFTOp)
def irfft(site: Site, a: Array, s: Array) -> Array:
    """The inverse transform without NumPy's normalisation, which the factor of the size undoes."""
    sizes = tuple(int(n) for n in site.static(1))
    transform = jnp.fft.irfftn(
        a[..., 0] + 1j * a[..., 1], s=sizes, axes=tuple(range(-len(sizes), 0))
    )
    return transform * jnp.prod(jnp.asarray(sizes))


@rule(Convolve1d, Convolve2d)
def convolve(site: Site, x: Array, kernel: Array, full: ArrayLike) -> Array:
    """Convolve; in PyTensor's derivatives the lengths of ``x`` and ``kernel`` determine the mode."""
    mode: Literal["full", "valid"] = "full" if site.static(2) else "valid"
    precision = jax.lax.Precision.HIGHEST
    x, kernel = jnp.asarray(x), jnp.asarray(kernel)
    if site.out.type.dtype in integer_dtypes and x.size and kernel.size:
        return _of_integers(x, kernel, mode, site.out.type.dtype)
    return jax.scipy.signal.convolve(x, kernel, mode, method="direct", precision=precision)


def _of_integers(x: Array, kernel: Array, mode: str, dtype: str) -> jax.Array:
    """The convolution in integers, which wrap around: JAX's is one of floats, rounded and saturated."""
    if mode == "valid" and x.size < kernel.size:
        x, kernel = kernel, x
    beyond = [n - 1 if mode == "full" else 0 for n in kernel.shape]
    x, kernel = (jnp.asarray(v, dtype)[None, None] for v in (x, jnp.flip(kernel)))
    return jax.lax.conv_general_dilated(
        x, kernel, [1] * len(beyond), [(n, n) for n in beyond], preferred_element_type=dtype
    )[0, 0]


@rule(Bartlett)
def bartlett(site: Site, n: Array) -> Array:
    return jnp.bartlett(int(site.static(0)))
