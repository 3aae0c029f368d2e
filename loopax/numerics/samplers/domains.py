"""Conditions on the parameters of each distribution: text, and elementwise truth.

A condition uses as few parameters as possible, so that it is known while JAX traces whenever they are.
The parameters are arrays of NumPy or JAX; NaN fulfils no condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.arrays import Array

# NumPy's bound, beyond which a draw could exceed the largest int64.
LARGEST_MEAN = 9.223372006484771e18

Conditions = Mapping[str, Any]


def anything(*parameters: Array) -> Conditions:
    return {}


def scale(scale: Array) -> Conditions:
    return {"scale >= 0": scale >= 0}


def location_scale(loc: Array, scale: Array) -> Conditions:
    return {"scale >= 0": scale >= 0}


def log_normal(mean: Array, sigma: Array) -> Conditions:
    return {"sigma >= 0": sigma >= 0}


def pareto(b: Array, scale: Array) -> Conditions:
    return {"b > 0": b > 0, "scale >= 0": scale >= 0}


def weibull(a: Array) -> Conditions:
    return {"shape >= 0": a >= 0}


def interval(low: Array, high: Array) -> Conditions:
    width = high - low
    return {"0 <= high - low < inf": (width >= 0) & (width < float("inf"))}


def corners(left: Array, mode: Array, right: Array) -> Conditions:
    return {
        "left <= mode": left <= mode,
        "mode <= right": mode <= right,
        "left < right": left < right,
    }


def truncated_exponential(b: Array, loc: Array, scale: Array) -> Conditions:
    return {"b > 0": b > 0, "scale >= 0": scale >= 0}


def von_mises(mu: Array, kappa: Array) -> Conditions:
    return {"kappa >= 0": kappa >= 0}


def wald(mean: Array, scale: Array) -> Conditions:
    return {"mean > 0": mean > 0, "scale > 0": scale > 0}


def shape_scale(a: Array, scale: Array) -> Conditions:
    return {"shape >= 0": a >= 0, "scale >= 0": scale >= 0}


def generalized_gamma(alpha: Array, p: Array, lambd: Array) -> Conditions:
    return {"alpha / p > 0": alpha * p > 0, "lambd >= 0": lambd >= 0}


def beta(a: Array, b: Array) -> Conditions:
    return {"alpha > 0": a > 0, "beta > 0": b > 0}


def student_t(df: Array, loc: Array, scale: Array) -> Conditions:
    return {"df > 0": df > 0, "scale >= 0": scale >= 0}


def dirichlet(a: Array) -> Conditions:
    return {"alphas >= 0": (a >= 0).all(-1), "sum(alphas) > 0": a.sum(-1) > 0}


def bernoulli(p: Array) -> Conditions:
    return {"0 <= p <= 1": _is_probability(p)}


def integers(low: Array, high: Array) -> Conditions:
    return {"low < high": low < high}


def poisson(mean: Array) -> Conditions:
    return {"0 <= lam < 9.2e18": (mean >= 0) & (mean <= LARGEST_MEAN)}


def binomial(n: Array, p: Array) -> Conditions:
    return {"n >= 0": n >= 0, "0 <= p <= 1": _is_probability(p)}


def beta_binomial(n: Array, a: Array, b: Array) -> Conditions:
    return {"n >= 0, whole": (n >= 0) & (n % 1 == 0), "a > 0": a > 0, "b > 0": b > 0}


def negative_binomial(n: Array, p: Array) -> Conditions:
    return {"n > 0": n > 0, "0 < p <= 1": (p > 0) & (p <= 1)}


def geometric(p: Array) -> Conditions:
    return {"0 < p <= 1": (p > 0) & (p <= 1)}


def hypergeometric(good: Array, bad: Array, sample: Array) -> Conditions:
    exact = 2**53 if jax.config.jax_enable_x64 else 2**24  # type: ignore[attr-defined]
    return {
        "ngood >= 0": good >= 0,
        "nbad >= 0": bad >= 0,
        "nsample >= 0": sample >= 0,
        "nsample <= ngood + nbad": sample <= good + bad,
        f"ngood + nbad <= {exact}": good + bad <= exact,
    }


def categorical(p: Array) -> Conditions:
    return {"p >= 0, with sum 1": _is_distribution(p)}


def multinomial(n: Array, p: Array) -> Conditions:
    leading = p[..., :-1]
    fits = (
        (leading.sum(-1) <= 1 + _tolerance(p)) & (p >= 0).all(-1) & (p <= 1 + _tolerance(p)).all(-1)
    )
    return {"n >= 0": n >= 0, "p >= 0, with sum(p[:-1]) <= 1": fits}


def choice(items: Array, *p_and_shape: Array) -> Conditions:
    """Conditions on the probabilities, if given; ``p_and_shape`` ends with the shape of a draw."""
    return categorical(p_and_shape[0]) if len(p_and_shape) == 2 else {}


def _is_probability(p: Array) -> Any:
    return (p >= 0) & (p <= 1)


def _is_distribution(p: Array) -> Any:
    """Whether the last axis has probabilities, within NumPy's tolerance."""
    total: Any = p.sum(-1)
    return (p >= 0).all(-1) & (abs(total - 1) <= _tolerance(p))


def _tolerance(p: Array) -> float:
    """NumPy's tolerance of a sum of probabilities in ``choice``: the root of the precision of ``p``."""
    dtype = p.dtype if jnp.issubdtype(p.dtype, jnp.floating) else np.float64
    return float(jnp.finfo(dtype).eps) ** 0.5
