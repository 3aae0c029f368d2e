"""Distributions: native functions for one draw, and conditions on their parameters.

A sampler takes the same numbers from the generator as the op's ``rng_fn``, which is NumPy's or SciPy's, so
that a program draws the values of PyTensor's other modes, up to rounding. PyTensor registers samplers with
`numba_core_rv_funcify`, and users may too; `_DRAWS` and `_NORMALS` replace PyTensor's samplers that draw
differently by functions of `loopax/numerics/native_samplers.py`. Numba's generator takes any parameters,
and may not terminate with some, so that they are checked here, as in NumPy and SciPy.
"""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

import numpy as np
import pytensor.tensor.random.basic as rv
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable

from loopax.numba_backend.runtime.linalg import cholesky
from loopax.numerics import native_samplers as native


def sampler(op: RandomVariable, node: Apply) -> Any:
    """The native function for one draw of ``op``; None if none draws equal values."""
    families = {*numba_core_rv_funcify.registry, *_DRAWS, *_NOT_PYTENSORS, rv.MvNormalRV}
    family = next((c for c in type(op).__mro__ if c in families), object)
    if family is object or family in _NOT_PYTENSORS or not _draws_as(op, family):
        return None
    if isinstance(op, rv.MvNormalRV):
        return _NORMALS[op.method]
    if family in _DRAWS:
        return _DRAWS[family]
    function = numba_core_rv_funcify(op, node)
    return function[0] if isinstance(function, tuple) else function


def _draws_as(op: RandomVariable, family: type) -> bool:
    """Whether ``op`` draws by the code of ``family``; False for a subclass with its own code."""
    methods = ("rng_fn", "rng_fn_scipy", "perform")
    has_its_methods = all(
        getattr_static(type(op), m, None) is getattr_static(family, m, None) for m in methods
    )
    return has_its_methods and op.name == getattr(family, "name", op.name)


def conditions(op: RandomVariable) -> tuple[str, ...]:
    """Conditions on the parameters of one draw, as source: ``{0}`` is the first parameter."""
    return next((_CONDITIONS[c] for c in type(op).__mro__ if c in _CONDITIONS), ())


# -- ours ------------------------------------------------------------------------------------------


def _normal_by_cholesky(rng, mean, cov):  # type: ignore[no-untyped-def]
    root = np.empty(cov.shape)
    root[:] = cov
    if not cholesky(root, True):
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    return native.correlated(rng, mean, root)


_NORMALS = {
    "cholesky": numba_njit(_normal_by_cholesky),
    "svd": numba_njit(native.normal_by_svd),
    "eigh": numba_njit(native.normal_by_eigh),
}
_DRAWS = {
    family: numba_njit(draw, error_model="numpy")
    for family, draw in {
        rv.BernoulliRV: native.bernoulli,
        rv.CauchyRV: native.cauchy,
        rv.HalfCauchyRV: native.halfcauchy,
        rv.GumbelRV: native.gumbel,
        rv.TruncExponentialRV: native.truncexpon,
        rv.GenGammaRV: native.gengamma,
        rv.InvGammaRV: native.invgamma,
        rv.DirichletRV: native.dirichlet,
        rv.PermutationRV: native.permutation,
    }.items()
}
# PyTensor's sampler chooses among the first elements alone.
_NOT_PYTENSORS = {rv.ChoiceWithoutReplacement}

# -- parameters ------------------------------------------------------------------------------------

# nan passes where NumPy accepts it: `not x < 0` holds for it, `x >= 0` does not.
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
