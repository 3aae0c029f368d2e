"""A bootstrap particle filter for the flow of the Nile: draws and resampling within the loop.

The local level model of `loopax.demo.nile` (Durbin & Koopman 2012, Time Series Analysis by State Space
Methods, 2nd ed., sec. 2.1 and ch. 12), flows and levels in 1e8 cubic metres, variances in that squared:

    flow[t]    = level[t] + noise,     noise  ~ N(0, observation variance)
    level[t+1] = level[t] + change,    change ~ N(0, level variance)

The first flow, of which nothing else is known, starts the level: level[0] ~ N(flow[0], observation
variance). A cloud of particles then follows the distribution of the level given the flows so far (Gordon,
Salmond & Smith 1993, Novel approach to nonlinear/non-Gaussian Bayesian state estimation, IEE Proceedings F
140, 107). Each year every particle moves by a draw of the change; its weight is the density of this year's
flow given its level; and as many particles are drawn again by their weights, systematically: one uniform
number places a comb of equal teeth over the cumulative weights (Carpenter, Clifford & Fearnhead 1999,
Improved particle filter for nonlinear problems, IEE Proceedings - Radar, Sonar and Navigation 146, 2).

The product over the years of the mean weights estimates the likelihood p(flow[1:] | flow[0]) without bias,
since a particle is drawn in proportion to its weight in the mean (Andrieu, Doucet & Holenstein 2010,
Particle Markov chain Monte Carlo methods, J. R. Statist. Soc. B 72, 269). For this model the Kalman filter
knows the likelihood, so that the estimate can be judged; the same step with another density filters models
that have no exact solution.
"""

import jax
import numpy as np
import pytensor.tensor as pt

from loopax import jaxify, scan
from loopax.demo.nile import PUBLISHED_VARIANCES, read_flow

PARTICLES = 100
FILTERS = 1000
LOG_2PI = np.log(2 * np.pi)


def systematic(rng, weights):
    """The next generator, and the indices of `n` particles drawn by weight.

    Weights (n,) sum to 1. Particle k is drawn floor or ceil of n weights[k]
    times, n weights[k] in the mean.
    """
    n = weights.shape[0]
    rng, offset = rng.uniform()
    teeth = (pt.arange(n) + offset) / n
    # Rounding may leave the last sum below the last tooth.
    return rng, pt.minimum(
        pt.searchsorted(pt.cumsum(weights), teeth), n - 1
    )


def graph(particles=PARTICLES):
    """The filter in PyTensor: inputs, and outputs by name, as in `build`."""
    rng, flow = pt.random.rng("rng"), pt.dvector("flow")
    variance, level_variance = pt.dscalars(
        "observation_variance", "level_variance"
    )

    def year(state, flow_t):
        rng, level = state
        rng, level = rng.normal(level, pt.sqrt(level_variance))
        log_weight = -0.5 * (
            LOG_2PI + pt.log(variance) + (flow_t - level) ** 2 / variance
        )
        log_sum = pt.logsumexp(log_weight)
        weight = pt.exp(log_weight - log_sum)
        rng, chosen = systematic(rng, weight)
        return (rng, level[chosen]), (
            log_sum - np.log(particles),
            pt.sum(weight * level),
        )

    start_rng, start = rng.normal(
        flow[0], pt.sqrt(variance), size=(particles,)
    )
    _, (log_densities, level) = scan(year, (start_rng, start), flow[1:])
    outputs = {"log_likelihood": log_densities.sum(), "level": level}
    return [rng, flow, variance, level_variance], outputs


def build(particles=PARTICLES):
    """The filter as a JAX function of key, flow (n,) and two variances.

    It returns a dict: `log_likelihood`, (), the logarithm of the estimate;
    `level`, (n - 1,), the estimated mean of level[t] given flow[:t + 1], from
    the second year on.
    """
    return jaxify(*graph(particles))


def main():
    years, flow = read_flow()
    keys = jax.random.split(jax.random.key(1), FILTERS)
    filters = jax.jit(jax.vmap(build(), in_axes=(0, None, None, None)))
    filtered = filters(keys, flow, *PUBLISHED_VARIANCES)
    log_likelihood, level = (
        np.asarray(filtered["log_likelihood"]),
        np.asarray(filtered["level"]),
    )
    print(
        f"The flow of the Nile, {FILTERS} filters of {PARTICLES} particles each"
    )
    print(
        f"  log-likelihood: {log_likelihood.mean():.2f} +- {log_likelihood.std():.2f}"
    )
    largest = log_likelihood.max()
    mean = np.log(np.exp(log_likelihood - largest).mean()) + largest
    print(f"  logarithm of the mean likelihood: {mean:.2f}")
    for t in (27, 47, 98):
        x = level[:, t]
        print(
            f"  level in {years[t + 1]}: {x.mean():.0f} +- {x.std():.0f} 1e8 m3 between filters"
        )


if __name__ == "__main__":
    main()
