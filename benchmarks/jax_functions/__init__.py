"""Functions in plain JAX that have a loop of small steps, by name."""

from benchmarks.jax_functions import dynamics, filters, iterations, networks, simulations, tables
from benchmarks.jax_functions.function import JaxFunction

FUNCTIONS: dict[str, JaxFunction] = {
    **filters.FUNCTIONS,
    **networks.FUNCTIONS,
    **simulations.FUNCTIONS,
    **dynamics.FUNCTIONS,
    **tables.FUNCTIONS,
    **iterations.FUNCTIONS,
}
