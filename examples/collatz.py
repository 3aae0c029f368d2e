"""Collatz's problem: a table of how long it takes to come to 1, each row a loop of its own.

    n -> n / 2 where n is even, 3 n + 1 where it is odd

From every n that anyone has tried this comes to 1 (Lagarias 2010, The Ultimate Challenge: The 3x+1
Problem). How many steps that takes is sequence A006577 of the On-Line Encyclopedia of Integer Sequences,
the greatest number on the way A025586.

The loop is written for one n. `jax.vmap` runs it for all of them, and each stops on its own.
"""

import jax
import numpy as np
import pytensor.tensor as pt

from loopax import jaxify, while_loop


def build(max_steps=1000):
    """The way from n to 1, as a JAX function of (n,): a dict of `steps` and `peak`, (), and `arrived`."""
    n = pt.lscalar("n")

    def step(state):
        n, steps, peak = state
        n = pt.where(pt.eq(n % 2, 0), n // 2, 3 * n + 1)
        return n, steps + 1, pt.maximum(peak, n)

    last, steps, peak = while_loop(
        lambda state: state[0] > 1, step, (n, 0, n), max_steps=max_steps
    )
    return jaxify([n], {"steps": steps, "peak": peak, "arrived": last <= 1})


def main():
    table = jax.jit(jax.vmap(build()))(np.arange(1, 10_000))
    steps, peak = np.asarray(table["steps"]), np.asarray(table["peak"])
    print("   n  steps   peak")
    for n in (1, 2, 3, 7, 27, 97, 871, 6171):
        print(f"{n:4d}  {steps[n - 1]:5d} {peak[n - 1]:6d}")
    print(f"all below 10000 arrive at 1: {bool(table['arrived'].all())}")
    print(
        f"the longest way is that of {steps.argmax() + 1}: {steps.max()} steps"
    )


if __name__ == "__main__":
    main()
