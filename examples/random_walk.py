"""A Gaussian random walk with drift: a generator as input, as carry and as trace.

    x[0] = start,    x[t] = x[t-1] + drift + sigma e[t],    e[t] ~ N(0, 1)

Take x for a position in metres and a step for a second: drift is in metres a second, sigma in metres
per square root of a second. x[t] - start is a sum of t independent normal variables: its mean is t drift,
its variance t sigma^2, and the covariance of x[s] and x[t] is min(s, t) sigma^2.

The step takes a generator and returns the next one, so that the randomness is in plain sight: JAX sees
one key per walk, `jax.vmap` over keys gives independent walks, and for one key the end of the walk is a
smooth function of sigma. Each step also emits the generator that it leaves behind. From the k-th of
these the walk goes on as it did, without the k steps before it.
"""

import jax
import numpy as np
import pytensor.tensor as pt

from loopax import jaxify, scan

STEPS = 100
WALKS = 1000


def build(steps=STEPS):
    """The walk as a JAX function of (key, start, drift, sigma).

    It returns a dict: `path`, the positions after each step, (steps,); `generators`, the key
    that each step left behind, (steps,) keys; `end`, the last position, ().
    """
    rng = pt.random.rng("rng")
    start, drift, sigma = pt.dscalars("start", "drift", "sigma")

    def step(state, _):
        rng, x = state
        next_rng, x = rng.normal(x + drift, sigma)
        return (next_rng, x), (next_rng, x)

    (_, end), (generators, path) = scan(step, (rng, start), length=steps)
    return jaxify(
        [rng, start, drift, sigma],
        {"path": path, "generators": generators, "end": end},
    )


def main():
    walk, keys = build(), jax.random.split(jax.random.key(2026), WALKS)
    start, drift, sigma = 0.0, 0.1, 0.5
    walks = jax.vmap(walk, in_axes=(0, None, None, None))(
        keys, start, drift, sigma
    )
    print(
        f"{WALKS} walks of {STEPS} s, drift {drift} m/s, sigma {sigma} m/s^(1/2)"
    )
    for t in (1, 10, STEPS):
        x = np.asarray(walks["path"][:, t - 1])
        print(
            f"  after {t:3} s: mean {x.mean():6.2f} m (exact {start + t * drift:5.2f}),"
            f" variance {x.var(ddof=1):6.2f} m^2 (exact {t * sigma**2:5.2f})"
        )

    slope = jax.grad(
        lambda sigma: walk(keys[0], start, drift, sigma)["end"]
    )(sigma)
    first = jax.tree.map(lambda x: x[0], walks)
    noise = (first["end"] - start - STEPS * drift) / sigma
    print(
        f"  d end / d sigma of the first walk: {slope:.6f}, the sum of its noise: {noise:.6f}"
    )

    k = STEPS // 2
    tail = build(STEPS - k)(
        first["generators"][k - 1], first["path"][k - 1], drift, sigma
    )
    same = np.allclose(tail["path"], first["path"][k:], rtol=1e-12)
    print(
        f"  taken up again after {k} s, the first walk goes on as before: {same}"
    )


if __name__ == "__main__":
    main()
