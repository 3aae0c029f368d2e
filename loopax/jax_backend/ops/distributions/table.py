"""Table of the sampler of each PyTensor distribution, and the conditions on its parameters."""

from __future__ import annotations

import pytensor.tensor.random.basic as ptr
from pytensor.tensor.random.op import RandomVariable

from loopax.jax_backend.ops.distributions.registry import family, pytensors
from loopax.numerics.samplers import (
    bounded,
    counts,
    domains,
    gammas,
    location_scale,
    shuffles,
    vectors,
)

_cls: type
for _cls in (ptr.NormalRV, ptr.CauchyRV, ptr.GumbelRV, ptr.LaplaceRV, ptr.LogisticRV):
    pytensors(_cls, domains.location_scale)
pytensors(ptr.ExponentialRV, domains.scale)
pytensors(ptr.ParetoRV, domains.pareto)

family(ptr.HalfNormalRV, domains.location_scale, location_scale.half_normal)
family(ptr.HalfCauchyRV, domains.location_scale, location_scale.half_cauchy)
family(ptr.LogNormalRV, domains.log_normal, location_scale.log_normal)
family(ptr.WeibullRV, domains.weibull, location_scale.weibull)

family(ptr.UniformRV, domains.interval, bounded.uniform)
family(ptr.TriangularRV, domains.corners, bounded.triangular)
family(ptr.TruncExponentialRV, domains.truncated_exponential, bounded.truncated_exponential)
family(ptr.VonMisesRV, domains.von_mises, bounded.wrapped_around)
family(ptr.WaldRV, domains.wald, bounded.wald)

family(ptr.GammaRV, domains.shape_scale, gammas.gamma)
family(ptr.InvGammaRV, domains.shape_scale, gammas.inverse_gamma)
family(ptr.GenGammaRV, domains.generalized_gamma, gammas.generalized_gamma)
family(ptr.BetaRV, domains.beta, gammas.beta)
family(ptr.StudentTRV, domains.student_t, gammas.student_t)
family(ptr.DirichletRV, domains.dirichlet, gammas.dirichlet)

family(ptr.IntegersRV, domains.integers, counts.integers, "as given")
for _cls, _domain, _draw in (
    (ptr.BernoulliRV, domains.bernoulli, counts.bernoulli),
    (ptr.PoissonRV, domains.poisson, counts.poisson),
    (ptr.BinomialRV, domains.binomial, counts.binomial),
    (ptr.BetaBinomialRV, domains.beta_binomial, counts.beta_binomial),
    (ptr.NegBinomialRV, domains.negative_binomial, counts.negative_binomial),
    (ptr.GeometricRV, domains.geometric, counts.geometric),
    (ptr.HyperGeometricRV, domains.hypergeometric, counts.hypergeometric),
    (ptr.CategoricalRV, domains.categorical, vectors.categorical),
    (ptr.MultinomialRV, domains.multinomial, vectors.multinomial),
):
    family(_cls, _domain, _draw, "widest")

family(
    ptr.MvNormalRV,
    domains.anything,
    vectors.multivariate_normal,
    options=lambda op: {"method": op.method},
)


def _of_range(op: RandomVariable) -> tuple[int, ...]:
    """The positions of parameters that are a number of rows, and so determine a shape."""
    return (0,) if op.ndims_params[0] == 0 else ()


family(
    ptr.PermutationRV,
    domains.anything,
    shuffles.permutation,
    "as given",
    known=_of_range,
    options=lambda op: {"core_ndim": op.ndims_params[0], "name": str(op)},
)
family(
    ptr.ChoiceWithoutReplacement,
    domains.choice,
    shuffles.choice,
    "as given",
    known=lambda op: (*_of_range(op), len(op.ndims_params) - 1),
    options=lambda op: {"core_ndim": op.ndims_params[0], "name": str(op)},
)
