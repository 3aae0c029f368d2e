"""Special functions in place of JAX's where these are wrong on a part of their domain."""
