"""The callable that `jaxify` returns, for JAX."""
