"""Programs as one JAX primitive, native on the CPU: the native form of the JAX backend."""

from loopax.kernels import choice  # noqa: F401  (it registers the form)
