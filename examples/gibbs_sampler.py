"""A Gibbs sampler for the year in which the flow of the Nile fell: updates, and one `lax.scan` over calls.

The annual flow y[0], ..., y[n-1] at Aswan, in 1e8 cubic metres, was lower in the 20th century than before
(Cobb 1978, The problem of the Nile: conditional solution to a changepoint problem, Biometrika 65, 243).
With all years up to `year` in one regime and the later ones in another:

    y[t] ~ N(level[0], 1 / precision) for t < year,   N(level[1], 1 / precision) for t >= year
    level[j] ~ N(LEVEL_MEAN, LEVEL_SD^2),   precision ~ Gamma(SHAPE, rate RATE)
    year uniform on 1, ..., n - 1 (how many years the first regime lasted)

A sweep draws each unknown given the others (Carlin, Gelfand & Smith 1992, Hierarchical Bayesian analysis
of changepoint problems, Applied Statistics 41, 389). With N[j] years of sum S[j] in regime j:

    level[j]   N((LEVEL_MEAN / LEVEL_SD^2 + precision S[j]) / P[j], 1 / P[j]),
               where P[j] = 1 / LEVEL_SD^2 + precision N[j]
    precision  Gamma(SHAPE + n / 2, rate RATE + sum (y - level)^2 / 2)
    year = c   with a probability in proportion to
               exp(-precision / 2 * (sum_{t < c} (y[t] - level[0])^2 + sum_{t >= c} (y[t] - level[1])^2))

In PyTensor the state of the chain is shared variables, and a sweep is their updates. `jaxify` makes of
this a pure function from a context, the chain's state, to the next one: `lax.scan` repeats it, and
`jax.vmap` runs a chain for each of a batch of contexts.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt

from loopax import jaxify
from loopax.demo.nile import read_flow

LEVEL_MEAN, LEVEL_SD = 1000.0, 300.0  # 1e8 m3
# The prior of the precision, whose mean is 1 / (122 * 1e8 m3)^2.
SHAPE, RATE = 2.0, 30_000.0
CHAINS, BURN_IN, SWEEPS = 1000, 30, 70


def graph():
    """One sweep in PyTensor: input, flow (n,) in 1e8 m3; draws by name; updates."""
    flow = pt.dvector("flow")
    level = pytensor.shared(
        np.array([LEVEL_MEAN, LEVEL_MEAN]), name="level"
    )
    precision = pytensor.shared(np.float64(SHAPE / RATE), name="precision")
    year = pytensor.shared(np.int64(1), name="year")
    rng = pt.random.shared_rng(np.random.default_rng(1871), name="rng")

    n = flow.shape[0]
    early = pt.arange(n) < year
    count = pt.stack([year, n - year])
    total = pt.stack([pt.sum(flow * early), pt.sum(flow * ~early)])
    certainty = 1 / LEVEL_SD**2 + precision * count
    mean = (LEVEL_MEAN / LEVEL_SD**2 + precision * total) / certainty
    next_rng, next_level = rng.normal(mean, 1 / pt.sqrt(certainty))

    squares = (
        flow[:, None] - next_level
    ) ** 2  # one column for each regime
    rate = RATE + pt.where(early, squares[:, 0], squares[:, 1]).sum() / 2
    next_rng, next_precision = next_rng.gamma(SHAPE + n / 2, scale=1 / rate)

    # The last candidate would leave the second regime without a year.
    log_weight = (
        -next_precision / 2 * pt.cumsum(squares[:, 0] - squares[:, 1])[:-1]
    )
    next_rng, place = next_rng.categorical(pt.special.softmax(log_weight))

    new = {
        "level": next_level,
        "precision": next_precision,
        "year": place + 1,
    }
    updates = {
        level: new["level"],
        precision: new["precision"],
        year: new["year"],
        rng: next_rng,
    }
    return flow, new, updates


def build():
    """One sweep, `ctx, draws = sweep.apply(ctx, flow)`, with flow (n,).

    The context has `level` (2,), `precision` (), `year` () and the generator
    `rng`; `draws` has the draws of the first three.
    """
    flow, draws, updates = graph()
    return jaxify([flow], draws, updates=updates)


def sample(sweep, context, flow, burn_in=BURN_IN, sweeps=SWEEPS):
    """The last contexts of a batch, and draws (chains, sweeps, ...)."""

    def chain(context):
        context, draws = jax.lax.scan(
            lambda context, _: sweep.apply(context, flow),
            context,
            length=burn_in + sweeps,
        )
        return context, jax.tree.map(lambda x: x[burn_in:], draws)

    return jax.jit(jax.vmap(chain))(context)


def chains(sweep, n_years, n=CHAINS):
    """`n` contexts, each with a generator and a start among all years."""
    return (
        sweep.init_context()
        .replicate(n)
        .set("year", 1 + jnp.arange(n) % (n_years - 1))
    )


def main():
    years, flow = read_flow()
    sweep = build()
    _, draws = sample(sweep, chains(sweep, len(flow)), flow)
    level, deviation = (
        draws["level"].reshape(-1, 2),
        draws["precision"] ** -0.5,
    )
    print(
        f"The flow of the Nile, {CHAINS} chains of {SWEEPS} sweeps after {BURN_IN}"
    )
    for j, when in enumerate(("before", "after")):
        print(
            f"  level {when:6}: {level[:, j].mean():7.1f} +- {level[:, j].std():4.1f} 1e8 m3"
        )
    print(
        f"  deviation   : {deviation.mean():7.1f} +- {deviation.std():4.1f} 1e8 m3"
    )
    last, counts = np.unique(np.asarray(draws["year"]), return_counts=True)
    for k in np.argsort(-counts)[:3]:
        print(
            f"  last year of the high level {years[last[k] - 1]}: {counts[k] / counts.sum():.3f}"
        )


if __name__ == "__main__":
    main()
