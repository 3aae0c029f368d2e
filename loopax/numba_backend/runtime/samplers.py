"""Distributions: native functions that draw once, and what must hold of their parameters.

A sampler takes the same numbers from the generator as the op's ``rng_fn``, which is NumPy's or SciPy's,
so that a program draws what PyTensor's other modes draw, up to rounding. PyTensor registers samplers with
`numba_core_rv_funcify`, users can too; those in `_SAMPLERS` are for where PyTensor's draw differently.
Numba's generator takes any parameters, and may not come to an end with some, so that they are checked
here, as NumPy and SciPy do.
"""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

import numpy as np
import pytensor.tensor.random.basic as rv
from numba import types
from numba.extending import overload
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable

from loopax.base.upstream.numba import random_interval
from loopax.numba_backend.runtime.linalg import cholesky


def sampler(op: RandomVariable, node: Any) -> Any:
    """The native function for one draw of ``op``; None where there is none that draws the same."""
    known = {**numba_core_rv_funcify.registry, **_SAMPLERS}
    family = next((c for c in type(op).__mro__ if c in known), object)
    if family is object or not _draws_as(op, family):
        return None
    if family in _SAMPLERS:
        return _SAMPLERS[family](op)
    made = numba_core_rv_funcify(op, node)
    return made[0] if isinstance(made, tuple) else made


def _draws_as(op: RandomVariable, family: type) -> bool:
    """Whether ``op`` draws by the code of ``family``: a subclass with its own is another distribution."""
    methods = ("rng_fn", "rng_fn_scipy", "perform")
    same = all(
        getattr_static(type(op), m, None) is getattr_static(family, m, None) for m in methods
    )
    return same and op.name == getattr(family, "name", op.name)


def conditions(op: RandomVariable) -> tuple[str, ...]:
    """What must hold of the parameters of one draw, as source: ``{0}`` is the first one."""
    return next((_CONDITIONS[c] for c in type(op).__mro__ if c in _CONDITIONS), ())


# -- parts of ours ---------------------------------------------------------------------------------


def first_length(x: Any) -> int:
    """The length of an array, or the number that stands for one."""
    return x.shape[0] if np.ndim(x) else x


@overload(first_length)
def _first_length(x):  # type: ignore[no-untyped-def]
    if isinstance(x, types.Array) and x.ndim:
        return lambda x: x.shape[0]
    return lambda x: x


def taken(x: Any, order: Any) -> Any:
    """The rows of ``x`` in this order; the order itself where ``x`` is a number."""
    return x[order] if np.ndim(x) else order


@overload(taken)
def _taken(x, order):  # type: ignore[no-untyped-def]
    if not isinstance(x, types.Array) or not x.ndim:
        return lambda x, order: order

    def rows(x, order):  # type: ignore[no-untyped-def]
        out = np.empty_like(x)
        for k in range(len(order)):
            out[k] = x[order[k]]
        return out

    return rows


@numba_njit
def _inverse(x):  # type: ignore[no-untyped-def]
    """1 / x, rounded to float32 where x is, as NumPy does and Numba does not."""
    return np.reciprocal(x / np.float32(1))


# -- ours ------------------------------------------------------------------------------------------

_SAMPLERS: dict[type, Any] = {  # functions of the op
    # PyTensor's takes its numbers from the first elements only.
    rv.ChoiceWithoutReplacement: lambda op: None,
    rv.MvNormalRV: lambda op: _NORMALS[op.method],
}


def _draws(family: type) -> Any:
    def register(function: Any) -> Any:
        compiled = numba_njit(function, error_model="numpy")
        _SAMPLERS[family] = lambda op: compiled
        return function

    return register


@_draws(rv.BernoulliRV)
def bernoulli(rng, p):  # type: ignore[no-untyped-def]
    return rng.binomial(1, p)


@_draws(rv.CauchyRV)
def cauchy(rng, loc, scale):  # type: ignore[no-untyped-def]
    u = rng.random()
    if u < 0.5:
        return loc - scale / np.tan(np.pi * u)
    return loc + scale / np.tan(np.pi * (1 - u))


@_draws(rv.HalfCauchyRV)
def halfcauchy(rng, loc, scale):  # type: ignore[no-untyped-def]
    return loc + scale * np.tan(np.pi / 2 * rng.random())


@_draws(rv.GumbelRV)
def gumbel(rng, loc, scale):  # type: ignore[no-untyped-def]
    return loc - scale * np.log(-np.log(rng.random()))


@_draws(rv.TruncExponentialRV)
def truncexpon(rng, b, loc, scale):  # type: ignore[no-untyped-def]
    return loc - scale * np.log1p(rng.random() * np.expm1(-b))


@_draws(rv.GenGammaRV)
def gengamma(rng, alpha, p, lambd):  # type: ignore[no-untyped-def]
    return lambd * rng.standard_gamma(alpha / p) ** _inverse(p)


@_draws(rv.InvGammaRV)
def invgamma(rng, shape, scale):  # type: ignore[no-untyped-def]
    return 1 / rng.gamma(shape, _inverse(scale))


@_draws(rv.DirichletRV)
def dirichlet(rng, alpha):  # type: ignore[no-untyped-def]
    n = len(alpha)
    out = np.empty(n)
    largest = 0.0
    for k in range(n):
        largest = max(largest, alpha[k])
    if largest < 0.1:  # the gammas could all be 0: break a stick instead, as NumPy does
        rest = np.empty(n + 1)
        rest[n] = 0.0
        for k in range(n - 1, -1, -1):
            rest[k] = rest[k + 1] + alpha[k]
        left = 1.0
        for k in range(n - 1):
            part = rng.beta(alpha[k], rest[k + 1])
            out[k] = left * part
            left *= 1.0 - part
        if n:
            out[n - 1] = left
        return out
    total = 0.0
    for k in range(n):
        out[k] = rng.standard_gamma(alpha[k])
        total += out[k]
    for k in range(n):
        out[k] /= total
    return out


@_draws(rv.PermutationRV)
def permutation(rng, x):  # type: ignore[no-untyped-def]
    # Numba's own takes ten seconds to compile.
    order = np.arange(first_length(x))
    for i in range(len(order) - 1, 0, -1):
        j = np.intp(random_interval(rng.bit_generator, i))
        order[i], order[j] = order[j], order[i]
    return taken(x, order)


@numba_njit
def _correlated(rng, mean, root):  # type: ignore[no-untyped-def]
    """Normal numbers of which ``root`` times its transpose is the covariance."""
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


@numba_njit
def _normal_by_cholesky(rng, mean, cov):  # type: ignore[no-untyped-def]
    root = np.empty(cov.shape)
    root[:] = cov
    if not cholesky(root, True):
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    return _correlated(rng, mean, root)


@numba_njit
def _normal_by_svd(rng, mean, cov):  # type: ignore[no-untyped-def]
    root, singular, _ = np.linalg.svd(cov.astype(np.float64))
    return _correlated(rng, mean, root * np.sqrt(singular))


@numba_njit
def _normal_by_eigh(rng, mean, cov):  # type: ignore[no-untyped-def]
    values, root = np.linalg.eigh(cov.astype(np.float64))
    return _correlated(rng, mean, root * np.sqrt(values))


_NORMALS = {
    "cholesky": _normal_by_cholesky,
    "svd": _normal_by_svd,
    "eigh": _normal_by_eigh,
}

# -- parameters ------------------------------------------------------------------------------------

# nan is let through where NumPy lets it through: `not x < 0` holds for it, `x >= 0` does not.
_SCALE = ("not {1} < 0",)
_P = ("{0} >= 0 and {0} <= 1",)

_CONDITIONS: dict[type, tuple[str, ...]] = {
    rv.UniformRV: ("not {1} - {0} < 0 and np.isfinite({1} - {0})",),
    rv.TriangularRV: ("{0} <= {1} and {1} <= {2} and {0} < {2}",),
    rv.BetaRV: ("{0} > 0 and {1} > 0",),
    rv.NormalRV: _SCALE,
    rv.HalfNormalRV: ("{1} >= 0",),
    rv.LogNormalRV: _SCALE,
    rv.GammaRV: ("not {0} < 0", "not {1} < 0"),
    rv.ParetoRV: ("{0} > 0 and {1} >= 0",),
    rv.GumbelRV: ("{1} >= 0",),
    rv.ExponentialRV: ("not {0} < 0",),
    rv.WeibullRV: ("not {0} < 0",),
    rv.LogisticRV: _SCALE,
    rv.VonMisesRV: _SCALE,
    rv.DirichletRV: ("np.all({0} >= 0)",),
    rv.PoissonRV: ("{0} >= 0 and {0} < 9.2e18",),
    rv.GeometricRV: ("{0} > 0 and {0} <= 1",),
    rv.CauchyRV: ("{1} >= 0",),
    rv.HalfCauchyRV: ("{1} >= 0",),
    rv.InvGammaRV: ("not {0} < 0", "not {1} < 0"),
    rv.WaldRV: ("{0} > 0 and {1} > 0",),
    rv.TruncExponentialRV: ("{0} > 0 and {2} >= 0",),
    rv.StudentTRV: ("{0} > 0 and {2} >= 0",),
    rv.BernoulliRV: _P,
    rv.LaplaceRV: _SCALE,
    rv.BinomialRV: ("{0} >= 0", "{1} >= 0 and {1} <= 1"),
    rv.NegBinomialRV: ("{0} > 0", "{1} > 0 and {1} <= 1"),
    rv.GenGammaRV: ("{0} > 0 and {1} > 0 and {2} >= 0",),
    rv.MultinomialRV: (
        "{0} >= 0",
        "np.all({1} >= 0) and np.all({1} <= 1) and np.sum({1}[:-1]) <= 1 + 1e-12",
    ),
    rv.IntegersRV: ("{0} < {1}",),
}
