"""JAX values that are not plain arrays, and conversions at the boundary of a program."""
