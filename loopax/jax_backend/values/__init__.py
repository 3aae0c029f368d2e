"""JAX values that are not plain arrays, and conversion at the border of a program."""
