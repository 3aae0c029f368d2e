"""A panel of series divided over devices: a log-density with one all-reduce, and chains side by side.

Each series is an autoregression; what they share, persistence and scale, has one posterior. A device has
some of the series, and computes its part of the log-density with loops that know nothing of the others.
What is added up over all devices is one number, and in the gradient one vector.

On a machine with one CPU, ``XLA_FLAGS=--xla_force_host_platform_device_count=8`` makes eight devices of it.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from jax.sharding import PartitionSpec

import loopax

EVERYWHERE, DIVIDED = PartitionSpec(), PartitionSpec("devices")


def build(loops="auto"):
    """``log_density(theta, panel)``; ``theta`` is atanh of the persistence, log of the scale."""
    theta, panel = pt.dvector("theta"), pt.dmatrix("panel")
    persistence, scale = pt.tanh(theta[0]), pt.exp(theta[1])

    def of_series(series):
        def step(before, now):
            z = (now - persistence * before) / scale
            return now, -0.5 * z**2 - pt.log(scale)

        return loopax.scan(step, 0.0, series)[1].sum()

    return loopax.jaxify(
        [theta, panel], loopax.map(of_series, panel).sum(), loops=loops
    )


def over_devices(log_density, mesh):
    """The log-density of a panel whose series are divided over ``mesh``, and its gradient."""

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(EVERYWHERE, DIVIDED),
        out_specs=EVERYWHERE,
    )
    def total(theta, panel):
        return jax.lax.psum(log_density(theta, panel), "devices")

    return jax.jit(jax.value_and_grad(total))


def chains_over_devices(log_density, mesh, steps=1000, size=0.02):
    """Random-walk Metropolis, ``run(keys, panel)``: each device has its chains, none waits for others."""

    def chain(key, panel):
        def step(state, key):
            theta, before = state
            to_move, to_accept = jax.random.split(key)
            proposal = theta + size * jax.random.normal(
                to_move, theta.shape
            )
            after = log_density(proposal, panel)
            accept = jnp.log(jax.random.uniform(to_accept)) < after - before
            state = jax.tree.map(
                partial(jnp.where, accept),
                (proposal, after),
                (theta, before),
            )
            return state, state[0]

        start = jax.lax.pcast(jnp.zeros(2), "devices", to="varying")
        return jax.lax.scan(
            step,
            (start, log_density(start, panel)),
            jax.random.split(key, steps),
        )[1]

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(DIVIDED, EVERYWHERE),
        out_specs=DIVIDED,
    )
    def run(keys, panel):
        return jax.vmap(chain, (0, None))(keys, panel)

    return jax.jit(run)


def simulated(series=32, steps=200, persistence=0.6, scale=0.5, seed=0):
    """A panel, one row for each series."""
    noise = scale * np.random.default_rng(seed).normal(size=(steps, series))
    rows = [np.zeros(series)]
    for z in noise:
        rows.append(persistence * rows[-1] + z)
    return np.stack(rows[1:], axis=1)


def main():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("devices",))
    log_density, panel = build(), simulated(series=8 * mesh.size)
    value, slope = over_devices(log_density, mesh)(np.zeros(2), panel)
    print(
        f"{mesh.size} devices: log-density {value:.2f}, gradient {np.asarray(slope).round(2)}"
    )
    draws = chains_over_devices(log_density, mesh)(
        jax.random.split(jax.random.key(1), 2 * mesh.size), panel
    )
    persistence = np.tanh(draws[:, 500:, 0]).mean()
    print(
        f"persistence by {len(draws)} chains: {persistence:.3f}, simulated with 0.6"
    )


if __name__ == "__main__":
    main()
