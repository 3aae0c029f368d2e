"""A mixture of two normal distributions, fitted by expectation and maximisation.

Each of the data comes from the first distribution with probability `weight`, else from the second. The
expectation step takes for each the probability that it comes from the first, given the parameters; the
maximisation step takes the parameters that these probabilities make most likely. The likelihood
never falls (Dempster, Laird & Rubin 1977, J. R. Stat. Soc. B 39, 1-38). How many rounds it takes depends
on how far the two lie apart: the loop stops when no parameter changes any more.

What comes out is a place where the likelihood is greatest, hence a smooth function of the data: its
derivative says how much each datum moves the estimate.
"""

import jax
import numpy as np
import pytensor.tensor as pt

from loopax import jaxify, scan

MAX_STEPS = 5_000


def log_densities(data, parameters):
    """Of each datum and each of the two, with the logarithm of the weight: (data, 2)."""
    weight, means, deviations = parameters
    weights = pt.stack([weight, 1 - weight])
    z = (data[:, None] - means) / deviations
    return (
        pt.log(weights)
        - z**2 / 2
        - pt.log(deviations)
        - np.log(2 * np.pi) / 2
    )


def build(tolerance=1e-12, max_steps=MAX_STEPS):
    """The fit as a JAX function of (data, means), the means to start with, (2,).

    It returns a dict: `weight` of the first, (); `means` and `deviations`, (2,); `log_likelihood`,
    (); `rounds`, (); `settled`, whether they were enough.
    """
    data, starts = pt.dvector("data"), pt.dvector("starts")

    def one_round(state, _):
        parameters, _, rounds = state
        joint = log_densities(data, parameters)
        each = pt.logsumexp(joint, axis=1)
        share = pt.exp(joint - each[:, None])
        counts = share.sum(axis=0)
        means = (share * data[:, None]).sum(axis=0) / counts
        variances = (share * (data[:, None] - means) ** 2).sum(
            axis=0
        ) / counts
        new = counts[0] / counts.sum(), means, pt.sqrt(variances)
        change = [
            pt.abs(a - b).max()
            for a, b in zip(new, parameters, strict=True)
        ]
        return (
            (new, each.sum(), rounds + 1),
            None,
            pt.maximum(*change[:2]) + change[2] < tolerance,
        )

    init = (pt.constant(0.5), starts, pt.ones(2) * data.std()), 0.0, 0
    (estimates, likelihood, rounds), _, settled = scan(
        one_round, init, length=max_steps
    )
    outputs = dict(
        zip(("weight", "means", "deviations"), estimates, strict=True)
    )
    outputs |= {
        "log_likelihood": likelihood,
        "rounds": rounds,
        "settled": settled,
    }
    return jaxify([data, starts], outputs)


def sample(seed=1, first=40, second=60):
    """Data: ``first`` from a normal distribution at -2, ``second`` from a wider one at 2."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.normal(-2.0, 0.8, first), rng.normal(2.0, 1.2, second)]
    )


def main():
    fit, data = build(), sample()
    starts = np.array([-1.0, 1.0])
    estimates = fit(data, starts)
    print(f"{len(data)} data, {estimates['rounds']} rounds")
    print(f"  weight {estimates['weight']:.4f} (drawn with 0.4)")
    print(f"  means {np.round(estimates['means'], 4)} (-2, 2)")
    print(f"  deviations {np.round(estimates['deviations'], 4)} (0.8, 1.2)")
    print(
        f"  logarithm of the likelihood {estimates['log_likelihood']:.6f}"
    )
    influence = jax.grad(lambda data: fit(data, starts)["means"][0])(data)
    k = int(np.argmax(abs(influence)))
    print(
        f"  the first mean follows most the datum {data[k]:.3f}: by {influence[k]:.4f} of its move"
    )
    many = np.stack([sample(seed) for seed in range(8)])
    fits = jax.jit(jax.vmap(fit, in_axes=(0, None)))(many, starts)
    print(
        f"  eight samples: weights {np.round(fits['weight'], 2)}, rounds {fits['rounds']}"
    )


if __name__ == "__main__":
    main()
