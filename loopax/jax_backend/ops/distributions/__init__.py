"""Samplers of PyTensor's distributions in JAX. Importing this registers them all."""

from loopax.numerics.samplers import (  # noqa: F401
    bounded,
    counts,
    gammas,
    location_scale,
    shuffles,
    vectors,
)
