"""Values in JAX that are no plain arrays, and the border of a program."""
