"""Draws of a distribution without a sampler: its own ``rng_fn``, on the host.

The generator it draws from is NumPy's, seeded with the key, so the draw is still a pure function of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.base.errors import describe
from loopax.ir.evaluation.evaluate import apply
from loopax.jax_backend.staging.callback import (
    is_detached,
    refusal,
    unsupported,
    without_derivative,
)
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.host_shapes import output_shape
from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array


def draw_on_host(
    site: Site, key: jax.Array, size: tuple[int, ...] | None, parameters: Sequence[Array]
) -> Any:
    """Draw on the host, by the ``perform`` of ``site``'s op.

    Raises `UnsupportedOpError` with ``on_missing="raise"``; and if a derivative is taken, since
    there is none.
    """
    node, context = site.node, site.context
    line = unsupported(node)
    if context.on_missing == "raise":
        raise refusal([line])
    context.warn_once(line, f"{line}. It is drawn on the host, through jax.pure_callback.")
    generator = np.random.default_rng(0)
    out = output_shape(site, node.outputs[1], [generator, size, *parameters])

    def on_host(words: jax.Array, *numbers: jax.Array) -> np.ndarray:
        arrays = [
            np.asarray(x, dtype=v.type.dtype) for x, v in zip(numbers, node.inputs[2:], strict=True)
        ]
        rng = np.random.default_rng(np.asarray(words).ravel().tolist())
        draw = apply(node, [rng, size, *arrays])[1]
        if draw.shape != out.shape:
            raise ValueError(
                f"{node.op} drew {describe(node.outputs[1])} with the shape {draw.shape}, but loopax "
                f"expected {out.shape} from its size, its parameters and its signature."
            )
        return np.asarray(draw, dtype=out.dtype)

    def value(words: jax.Array, *numbers: jax.Array) -> Any:
        return manual_axes.pure_callback(on_host, out, words, *numbers, vmap_method="sequential")

    numbers = [jnp.asarray(x) for x in parameters]
    discrete = not jnp.issubdtype(out.dtype, jnp.inexact)
    if discrete or is_detached(site, [node.outputs[1]]):
        return value(jax.random.key_data(key), *map(jax.lax.stop_gradient, numbers))
    message = (
        f"{line}. A draw on the host has no derivative with respect to its parameters. Write it in "
        "terms of a distribution that has one, loc + scale * normal for instance, or keep it out of "
        "what is differentiated with `pytensor.gradient.disconnected_grad`."
    )
    return without_derivative(value, message)(jax.random.key_data(key), *numbers)
