"""Power iteration: how fast a population with age classes grows, and what that depends on.

A matrix A takes the numbers in each age class to those a year later. Multiplied by A again and again, any
population comes to a stable distribution w over the classes, and grows by the factor lambda each year: the
greatest eigenvalue of A and its eigenvector. How lambda depends on each entry of A is its sensitivity,

    d lambda / d A[i, j] = v[i] w[j] / (v . w),    v the left eigenvector

(Caswell 2001, Matrix Population Models, 2nd ed., ch. 9). Here it is `jax.grad` of the loop.

The loop stops when the distribution has settled, which takes more steps the nearer the second eigenvalue
is to the first in modulus. In a batch each matrix stops on its own.
"""

import jax
import numpy as np
import pytensor.tensor as pt

from loopax import jaxify, scan

MAX_STEPS = 10_000

# Births per year of a female in each of three classes in the first row, survival below. Made up.
LESLIE = np.array([[0.0, 1.2, 0.9], [0.5, 0.0, 0.0], [0.0, 0.6, 0.3]])


def build(tolerance=1e-13, max_steps=MAX_STEPS):
    """The growth as a JAX function of (matrix,), square, without negative entries.

    It returns a dict: `growth`, lambda, (); `distribution`, w, of sum 1, (classes,); `steps`, ();
    `settled`, whether they were enough.
    """
    matrix = pt.dmatrix("matrix")

    def year(state, _):
        w, _, steps = state
        grown = matrix @ w
        growth = grown.sum()
        new = grown / growth
        return (
            (new, growth, steps + 1),
            None,
            pt.abs(new - w).max() < tolerance,
        )

    even = pt.ones(matrix.shape[:1]) / matrix.shape[0]
    (w, growth, steps), _, settled = scan(
        year, (even, 0.0, 0), length=max_steps
    )
    outputs = {
        "growth": growth,
        "distribution": w,
        "steps": steps,
        "settled": settled,
    }
    return jaxify([matrix], outputs)


def main():
    population = build()
    projection = population(LESLIE)
    print(
        f"growth {projection['growth']:.6f} a year, after {projection['steps']} steps"
    )
    print(
        f"  numpy.linalg.eigvals: {np.linalg.eigvals(LESLIE).real.max():.6f}"
    )
    print(
        f"  stable distribution {np.round(projection['distribution'], 4)}"
    )
    sensitivity = jax.grad(lambda a: population(a)["growth"])(LESLIE)
    print("  sensitivity of the growth to births and survivals:")
    for row in np.asarray(sensitivity):
        print("   ", np.round(row, 4))
    survivals = np.linspace(0.1, 0.9, 5)
    batch = np.repeat(LESLIE[None], 5, axis=0)
    batch[:, 1, 0] = survivals
    many = jax.vmap(population)(batch)
    print("  survival of the first year, growth, steps:")
    for row in zip(survivals, many["growth"], many["steps"], strict=True):
        print("    {:.1f} {:.4f} {:4d}".format(*row))


if __name__ == "__main__":
    main()
