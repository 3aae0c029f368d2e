"""How often each route runs: what is compiled for seconds seldom, and what shares work together."""

import random

from tests.random_programs.description import Program

# For what share of programs a route runs. Of the routes of one kind those with the larger shares run where
# the others do, so that what they need is made once: the gradients of the oracles, the lowered program.
# What XLA or Numba compiles takes seconds, and is the same program as the one that is run as Python.
SHARES = {
    "values": {
        "PyTensor's oracles": 1.0,
        "jax as Python": 0.6,
        "numba as Python": 0.6,
        "egraph in numba as Python": 0.25,
        "jit of jax as Python": 0.2,
        "compiled function in jax as Python": 0.1,
        "jax": 0.03,
        "numba": 0.03,
        "jit of jax": 0.02,
        "jit of xla jax": 0.02,
        "native jax": 0.02,
        "jit of native jax as Python": 0.2,
        "jit of native jax": 0.01,
        "compiled function in jax": 0.01,
        "PyTensor's NUMBA mode": 0.005,
    },
    "gradients": {
        "jax.grad of jax as Python": 0.25,
        "loopax.grad in numba as Python": 0.25,
        "jax.grad of native jax as Python": 0.25,
        "jax.jvp of jax as Python": 0.25,
        "jax.jvp of native jax as Python": 0.25,
        "loopax.jvp in numba as Python": 0.25,
        "pytensor.grad in jax as Python": 0.12,
        "pytensor.grad in numba as Python": 0.12,
        "pytensor.grad by egraph in numba as Python": 0.1,
        "PyTensor's gradients": 0.05,
        "jax.grad of jax": 0.02,
        "jax.grad of xla jax": 0.01,
        "jax.grad of native jax": 0.02,
        "loopax.grad in numba": 0.01,
        "lazy loopax.grad in jax as Python": 0.1,
        "lazy loopax.grad in numba as Python": 0.1,
        "pytensor.grad in jax": 0.01,
        "pytensor.grad in numba": 0.01,
    },
    # Of every program, one way or another: forward over reverse in either form, and reverse over forward.
    "second derivatives": {
        "jax.jvp of jax.grad of jax as Python": 0.6,
        "jax.jvp of jax.grad of native jax as Python": 0.6,
        "loopax.hvp in numba as Python": 0.4,
        "jax.grad of jax.jvp of jax as Python": 0.2,
        "jax.grad of jax.jvp of native jax as Python": 0.2,
        "loopax.grad of loopax.jvp in numba as Python": 0.2,
        "loopax.grad of loopax.jvp in jax as Python": 0.1,
        "jax.jvp of jax.grad of native jax": 0.01,
        "jax.jvp of jax.grad of jax": 0.005,
        "jax.grad of jax.jvp of native jax": 0.005,
        "loopax.hvp in numba": 0.01,
    },
    "batches": {
        "jax.vmap of jax as Python": 0.3,
        "loopax.vmap in numba as Python": 0.3,
        "jax.vmap of native jax as Python": 0.15,
        "jax.vmap of jax": 0.02,
        "jax.vmap of xla jax": 0.01,
        "jax.vmap of native jax": 0.02,
        "loopax.vmap in numba": 0.02,
    },
    "updates": {
        "updates in jax as Python": 1.0,
        "updates in numba as Python": 1.0,
        "updates in jax": 0.1,
        "updates in numba": 0.1,
    },
}


def routes_of(program: Program, every: bool = False) -> list[str]:
    """The routes of a program: ``every`` one, or those that its seed has drawn."""
    rng = random.Random(program.seed)
    chosen = []
    for kind, shares in SHARES.items():
        drawn = 0.0 if every else rng.random()
        if kind != "updates" or program.updates:
            chosen += [name for name, share in shares.items() if drawn < share]
    return chosen
