"""States of a loop that record nonfinite values so far: a flag, or a report.

Both are monoids, with the element `none` and the operation `first`. A flag costs a comparison in each step;
a report is computed only after a flag was set.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Flag(NamedTuple):
    """The fact whether any value was not finite."""

    @property
    def counts_steps(self) -> bool:
        return False

    def none(self) -> jax.Array:
        return jnp.zeros((), bool)

    def at(self, x: jax.Array, code: int) -> jax.Array:
        return jnp.logical_not(jnp.isfinite(x).all())

    def first(self, one: jax.Array, other: jax.Array) -> jax.Array:
        return one | other

    def in_step(self, finding: jax.Array, step: jax.Array | None, depth: int) -> jax.Array:
        return finding


class Report(NamedTuple):
    """The first nonfinite value, as numbers: ``[code, kind, *entry, *steps]``."""

    n_axes: int
    depth: int

    @property
    def counts_steps(self) -> bool:
        return True

    def none(self) -> jax.Array:
        return jnp.zeros(2 + self.n_axes + self.depth, "int32")

    def at(self, x: jax.Array, code: int) -> jax.Array:
        bad = jnp.logical_not(jnp.isfinite(x)).ravel()
        if not bad.size:
            return self.none()
        k = jnp.argmax(bad)
        value = x.ravel()[k]
        kind = jnp.where(jnp.isnan(value), 0, jnp.where(jnp.real(value) > 0, 1, 2))
        entry = jnp.unravel_index(k, x.shape)
        numbers = [jnp.where(bad[k], code, 0), kind, *entry]
        vector = jnp.stack([jnp.asarray(n).astype("int32") for n in numbers])
        return jnp.pad(vector, (0, len(self.none()) - len(numbers)))

    def first(self, one: jax.Array, other: jax.Array) -> jax.Array:
        return jnp.where(one[0] != 0, one, other)

    def in_step(self, finding: jax.Array, step: jax.Array | None, depth: int) -> jax.Array:
        return finding.at[2 + self.n_axes + depth].set(step)
