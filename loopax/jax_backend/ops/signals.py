"""Convolutions, windows, and real Fourier transforms, with complex numbers as a last axis of length 2."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from pytensor.tensor.extra_ops import Bartlett
from pytensor.tensor.fft import IRFFTOp, RFFTOp
from pytensor.tensor.signal.conv import Convolve1d, Convolve2d

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
    return jax.scipy.signal.convolve(
        jnp.asarray(x), jnp.asarray(kernel), mode, method="direct", precision=precision
    )


@rule(Bartlett)
def bartlett(site: Site, n: Array) -> Array:
    return jnp.bartlett(int(site.static(0)))
