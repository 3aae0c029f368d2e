"""Two-stage evaluation of a graph under a JAX trace."""
