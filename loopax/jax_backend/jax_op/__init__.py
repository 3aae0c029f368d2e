"""A JAX function as an op of a PyTensor program."""

from loopax.jax_backend.jax_op.functions import Batched, Pulled, Pushed
from loopax.jax_backend.jax_op.op import JaxOp, vectorize_jax_op

__all__ = ["Batched", "JaxOp", "Pulled", "Pushed", "vectorize_jax_op"]
