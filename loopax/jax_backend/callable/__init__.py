"""The callable that `jaxify` returns, in JAX."""
