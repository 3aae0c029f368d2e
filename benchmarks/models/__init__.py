"""Real models by name. Importing this imports PyMC."""

from collections.abc import Callable

import pymc as pm

from benchmarks.models import (
    covariances,
    differential_equations,
    factors,
    gaussian_processes,
    hidden_states,
    hierarchies,
    limited_outcomes,
    missing_data,
    mixtures,
    regressions,
    survival,
    time_series,
)

FAMILIES = (
    regressions,
    hierarchies,
    covariances,
    mixtures,
    gaussian_processes,
    limited_outcomes,
    missing_data,
    time_series,
    hidden_states,
    differential_equations,
    factors,
    survival,
)

MODELS: dict[str, Callable[[], pm.Model]] = {
    build.__name__: build for family in FAMILIES for build in family.MODELS
}
