"""Random draws: shapes, dtypes and derivatives; that the law is right is for tests/numerics/samplers."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.traversal import graph_inputs
from scipy import stats

from tests.every_op.record import COLUMNS, PLAIN, Example, P, Q, V, positive_definite
from tests.numerics.samplers.laws import CONTINUOUS

TITLE = "Random variables"
OF_MANY = "BetaRV", "DirichletRV", "StudentTRV"
SLOW = {("MvNormalRV", "Numba"), ("*", "second"), ("*", "vmap")}
SLOW |= {(name, c) for name in OF_MANY for c in COLUMNS}
REASONS: list[str] = []
BASES = {"ScipyRandomVariable": "a base class"}


def rng() -> Any:
    v = pt.random.type.random_generator_type("rng")
    v.tag.value = np.random.default_rng(1)
    return v


Law = Callable[..., Any]


def _now(outputs: Any, parameters: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """The values of the parameters, given those of the example's inputs."""
    inputs = [v for v in dict.fromkeys(graph_inputs([outputs])) if hasattr(v.tag, "value")]
    parameters = [pt.as_tensor_variable(p) for p in parameters]
    run = pytensor.function(inputs, parameters, mode=PLAIN, on_unused_input="ignore")
    return lambda values: run(*map(copy.deepcopy, values))


def draw(name: str, *parameters: Any, law: Law | None = None, **options: Any) -> Any:
    """Draws of one noise, which move with the quantiles of ``law``, as SciPy has it."""

    def build() -> Example:
        outs = getattr(pt.random, name)(*parameters, rng=rng(), return_next_rng=True, **options)
        now = _now(outs[1], [*parameters, *options.values()])
        of = law or (CONTINUOUS[name][1] if name in CONTINUOUS else None)

        def moved(x: Any, before: Any, after: Any) -> list[Any]:
            assert of is not None, name
            return [of(*now(after)).ppf(of(*now(before)).cdf(x))]

        return Example(outs[1], draws=True, moved=moved)

    return build


def expectation(name: str, mean: Callable[..., Any], *parameters: Any) -> Any:
    """The mean of draws that are made of several noises, and so move as they please, but not on average."""

    def build() -> Example:
        size = (2000, 3) if name != "dirichlet" else (2000,)
        actual = getattr(pt.random, name)(*parameters, size=size, rng=rng(), return_next_rng=True)
        out = actual[1].mean(axis=0)
        now = _now(out, parameters)
        return Example(
            out,
            draws=True,
            many=True,
            moved=lambda x, before, after: [mean(*now(after))],
            atol_slope=0.05,
            atol_second=0.2,
        )

    return build


def multivariate_normal() -> Example:
    covariance = positive_definite()
    outs = pt.random.multivariate_normal(V, covariance, rng=rng(), return_next_rng=True)
    now = _now(outs[1], [V, pt.linalg.cholesky(covariance)])

    def moved(x: Any, before: Any, after: Any) -> list[Any]:
        (mean, root), (new_mean, new_root) = now(before), now(after)
        return [new_mean + new_root @ np.linalg.solve(root, x - mean)]

    return Example(outs[1], draws=True, moved=moved)


def along_with(drawn: Any, mean: Any) -> Example:
    """Draws that move as their mean does."""
    now = _now(drawn, [mean])
    return Example(
        drawn, draws=True, moved=lambda x, before, after: [x + now(after)[0] - now(before)[0]]
    )


def shuffled(name: str, **options: Any) -> Any:
    def build() -> Example:
        outs = getattr(pt.random, name)(V, rng=rng(), return_next_rng=True, **options)
        now = _now(outs[1], [V])

        def moved(x: Any, before: Any, after: Any) -> list[Any]:
            (old,), (new,) = now(before), now(after)
            return [new[np.argmin(abs(x[:, None] - old), axis=1)]]

        return Example(outs[1], draws=True, moved=moved)

    return build


EXAMPLES: dict[str, Any] = {
    "NormalRV": draw("normal", V, Q),
    "UniformRV": draw("uniform", V, V + Q),
    "TriangularRV": draw("triangular", V - 1, V, V + Q),
    "BetaRV": expectation("beta", lambda a, b: a / (a + b), Q, Q + 1),
    "HalfNormalRV": draw("halfnormal", V, Q),
    "LogNormalRV": draw("lognormal", V, Q),
    "GammaRV": draw("gamma", Q, scale=P),
    "InvGammaRV": draw("invgamma", Q, P),
    "GenGammaRV": draw("gengamma", Q, Q, P),
    "ParetoRV": draw("pareto", Q, P),
    "GumbelRV": draw("gumbel", V, Q),
    "LaplaceRV": draw("laplace", V, Q),
    "LogisticRV": draw("logistic", V, Q),
    "CauchyRV": draw("cauchy", V, Q),
    "HalfCauchyRV": draw("halfcauchy", V, Q),
    "ExponentialRV": draw("exponential", Q),
    "WeibullRV": draw("weibull", Q),
    "TruncExponentialRV": draw("truncexpon", Q, V, P),
    "StudentTRV": expectation("t", lambda df, loc, scale: loc, Q + 4, V, P),
    "WaldRV": draw("wald", Q, P),
    "VonMisesRV": draw("vonmises", V, Q, law=lambda mu, kappa: stats.vonmises(kappa, mu)),
    "BernoulliRV": draw("bernoulli", P),
    "PoissonRV": draw("poisson", Q),
    "BinomialRV": draw("binomial", np.array([5, 9, 2]), P),
    "NegBinomialRV": draw("negative_binomial", Q, P),
    "BetaBinomialRV": draw("betabinom", np.array([5, 9, 2]), Q, Q),
    "GeometricRV": draw("geometric", P),
    "HyperGeometricRV": draw(
        "hypergeometric", np.array([5, 9]), np.array([3, 4]), np.array([4, 6])
    ),
    "IntegersRV": draw("integers", 0, np.array([5, 9])),
    "CategoricalRV": draw("categorical", P / P.sum()),
    "DirichletRV": expectation("dirichlet", lambda a: a / a.sum(), Q),
    "MultinomialRV": draw("multinomial", 7, P / P.sum()),
    "MvNormalRV": multivariate_normal,
    "PermutationRV": shuffled("permutation"),
    "ChoiceWithoutReplacement": shuffled("choice", size=(2,), replace=False),
}
