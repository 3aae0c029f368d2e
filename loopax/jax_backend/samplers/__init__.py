"""Samplers of PyTensor's distributions in JAX. Importing this registers them all."""

from loopax.jax_backend.samplers import (
    bounded,
    counts,
    gammas,
    location_scale,
    shuffles,
    vectors,
)

__all__ = ["bounded", "counts", "gammas", "location_scale", "shuffles", "vectors"]
