"""Samplers of PyTensor's distributions in JAX. Importing this registers them all."""

from loopax.jax_backend.ops.distributions import table as table
