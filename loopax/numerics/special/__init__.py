"""Special functions where JAX's are wrong on a part of their domain."""
