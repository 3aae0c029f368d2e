"""Special functions that replace JAX's, where these are wrong on a part of their domain."""
