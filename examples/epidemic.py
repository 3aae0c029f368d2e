"""A stochastic epidemic in a closed population: counts in a carry, two binomial draws a day.

The chain binomial form of the SIR model. Of S susceptible and I infectious people in a population of N,
on each day, independently of each other,

    each susceptible is infected   with probability 1 - exp(-contact I / N)
    each infectious one recovers   with probability 1 - exp(-recovery)

`contact` and `recovery` are rates per day. Where every infectious person recovers within the day this is
the model of Reed and Frost, with the probability exp(-contact / N) that one of them spares one susceptible
(Bailey 1975, The Mathematical Theory of Infectious Diseases, 2nd ed.; Andersson & Britton 2000, Stochastic
Epidemic Models and Their Statistical Analysis, ch. 1). In a large population the mean of few
infectious people grows by the factor exp(-recovery) + contact a day at first, though many outbreaks die
out by chance: the reason to simulate and not to solve the deterministic equations.
"""

import jax
import numpy as np
import pytensor.tensor as pt

from loopax import jaxify, scan

DAYS = 150
OUTBREAKS = 1000


def build(days=DAYS):
    """The epidemic as a JAX function of (key, susceptible, infectious, contact, recovery).

    It takes two counts at the start and two rates per day, and returns a dict: `cases`, the
    infections of each day, (days,); `infectious`, at the end of each day, (days,); `size`, how
    many were infected over all days, without those at the start, ().
    """
    rng = pt.random.rng("rng")
    susceptible, infectious = pt.lscalars("susceptible", "infectious")
    contact, recovery = pt.dscalars("contact", "recovery")
    population = susceptible + infectious

    def day(state, _):
        rng, s, i = state
        # -expm1(-x) is 1 - exp(-x) to full precision where x is small.
        rng, infected = rng.binomial(
            s, -pt.expm1(-contact * i / population)
        )
        rng, recovered = rng.binomial(i, -pt.expm1(-recovery))
        s, i = s - infected, i + infected - recovered
        return (rng, s, i), (infected, i)

    (_, left, _), (cases, prevalence) = scan(
        day, (rng, susceptible, infectious), length=days
    )
    return jaxify(
        [rng, susceptible, infectious, contact, recovery],
        {
            "cases": cases,
            "infectious": prevalence,
            "size": susceptible - left,
        },
    )


def main():
    susceptible, infectious, contact, recovery = 997, 3, 0.3, 0.15
    keys = jax.random.split(jax.random.key(1), OUTBREAKS)
    epidemics = jax.vmap(build(), in_axes=(0, None, None, None, None))
    outbreaks = epidemics(keys, susceptible, infectious, contact, recovery)
    size, cases = (
        np.asarray(outbreaks["size"]),
        np.asarray(outbreaks["cases"]),
    )
    major = size > susceptible / 10
    print(
        f"{OUTBREAKS} outbreaks, {infectious} infectious among {susceptible + infectious}"
    )
    print(f"  died out early: {1 - major.mean():.3f}")
    print(
        f"  infected, where not: {size[major].mean():.0f} +- {size[major].std():.0f} people"
    )
    peak = cases[major].argmax(axis=1) + 1
    print(
        f"  most new cases there on day {np.median(peak):.0f}, 90 % between days",
        end=" ",
    )
    print("{:.0f} and {:.0f}".format(*np.quantile(peak, [0.05, 0.95])))
    print(
        f"  still infectious after {DAYS} days: {(outbreaks['infectious'][:, -1] > 0).mean():.3f}"
    )


if __name__ == "__main__":
    main()
