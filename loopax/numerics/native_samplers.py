"""Native samplers: functions for one draw from a NumPy generator, for Numba to compile.

Each takes the same numbers from the generator as NumPy or SciPy, so that its draws equal theirs, up to
rounding. They check nothing: with invalid parameters a loop may not end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from loopax.base.upstream.numba import random_interval


def first_length(x: Any) -> int:
    """The length of an array, or the number ``x`` itself."""
    return x.shape[0] if np.ndim(x) else x


@overload(first_length)
def _first_length(x):  # type: ignore[no-untyped-def]
    if isinstance(x, types.Array) and x.ndim:
        return lambda x: x.shape[0]
    return lambda x: x


def rows_in_order(x: Any, order: Any) -> Any:
    """The rows of ``x`` in ``order``; the order itself where ``x`` is a number."""
    return x[order] if np.ndim(x) else order


@overload(rows_in_order)
def _rows_in_order(x, order):  # type: ignore[no-untyped-def]
    if not isinstance(x, types.Array) or not x.ndim:
        return lambda x, order: order

    def rows(x, order):  # type: ignore[no-untyped-def]
        out = np.empty_like(x)
        for k in range(len(order)):
            out[k] = x[order[k]]
        return out

    return rows


@register_jitable
def _inverse(x):  # type: ignore[no-untyped-def]
    """1 / x, rounded to float32 for a float32 x, as in NumPy and not in Numba."""
    return np.reciprocal(x / np.float32(1))


def bernoulli(rng, p):  # type: ignore[no-untyped-def]
    return rng.binomial(1, p)


def cauchy(rng, loc, scale):  # type: ignore[no-untyped-def]
    u = rng.random()
    if u < 0.5:
        return loc - scale / np.tan(np.pi * u)
    return loc + scale / np.tan(np.pi * (1 - u))


def halfcauchy(rng, loc, scale):  # type: ignore[no-untyped-def]
    return loc + scale * np.tan(np.pi / 2 * rng.random())


def gumbel(rng, loc, scale):  # type: ignore[no-untyped-def]
    return loc - scale * np.log(-np.log(rng.random()))


def truncexpon(rng, b, loc, scale):  # type: ignore[no-untyped-def]
    return loc - scale * np.log1p(rng.random() * np.expm1(-b))


def gengamma(rng, alpha, p, lambd):  # type: ignore[no-untyped-def]
    return lambd * rng.standard_gamma(alpha / p) ** _inverse(p)


def invgamma(rng, shape, scale):  # type: ignore[no-untyped-def]
    return 1 / rng.gamma(shape, _inverse(scale))


def dirichlet(rng, alpha):  # type: ignore[no-untyped-def]
    n = len(alpha)
    out = np.empty(n)
    largest = 0.0
    for k in range(n):
        largest = max(largest, alpha[k])
    if largest < 0.1:  # the gammas could all be 0: break a stick instead, as NumPy does
        tail_sums = np.empty(n + 1)
        tail_sums[n] = 0.0
        for k in range(n - 1, -1, -1):
            tail_sums[k] = tail_sums[k + 1] + alpha[k]
        remainder = 1.0
        for k in range(n - 1):
            part = rng.beta(alpha[k], tail_sums[k + 1])
            out[k] = remainder * part
            remainder *= 1.0 - part
        if n:
            out[n - 1] = remainder
        return out
    total = 0.0
    for k in range(n):
        out[k] = rng.standard_gamma(alpha[k])
        total += out[k]
    for k in range(n):
        out[k] /= total
    return out


def permutation(rng, x):  # type: ignore[no-untyped-def]
    # Numba's own takes ten seconds to compile.
    order = np.arange(first_length(x))
    for i in range(len(order) - 1, 0, -1):
        j = np.intp(random_interval(rng.bit_generator, i))
        order[i], order[j] = order[j], order[i]
    return rows_in_order(x, order)


@register_jitable
def correlated(rng, mean, root):  # type: ignore[no-untyped-def]
    """Draw normal numbers with the covariance ``root @ root.T``."""
    n = len(mean)
    noise = np.empty(n)
    for k in range(n):
        noise[k] = rng.normal()
    out = np.empty(n)
    for i in range(n):
        total = 0.0
        for k in range(n):
            total += root[i, k] * noise[k]
        out[i] = total + mean[i]
    return out


def normal_by_svd(rng, mean, cov):  # type: ignore[no-untyped-def]
    root, singular, _ = np.linalg.svd(cov.astype(np.float64))
    return correlated(rng, mean, root * np.sqrt(singular))


def normal_by_eigh(rng, mean, cov):  # type: ignore[no-untyped-def]
    values, root = np.linalg.eigh(cov.astype(np.float64))
    return correlated(rng, mean, root * np.sqrt(values))
