"""``Leaves``: values of a program as a flat list of arrays, as a primitive of JAX takes them, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import jax


class Leaves:
    """The arrays that ``values`` consist of: of a padded array its data and its length, say.

    >>> import jax.numpy as jnp
    >>> from loopax.jax_backend.values.padded_array import PaddedArray
    >>> both = Leaves([PaddedArray(jnp.ones(3), 2), 5.0])
    >>> both.firsts, len(both.leaves), both.structured([jnp.zeros(3), 1, 6.0])[1]
    ([0, 2], 3, 6.0)
    """

    def __init__(self, values: Sequence[Any]) -> None:
        flat = [jax.tree.flatten(x) for x in values]
        self.leaves = [leaf for leaves, _ in flat for leaf in leaves]
        self._trees = [tree for _, tree in flat]
        # Where the leaves of each value begin: the first one is the data of an array.
        self.firsts = list(accumulate((len(leaves) for leaves, _ in flat), initial=0))[:-1]

    def structured(self, leaves: Sequence[Any]) -> list[Any]:
        """Values of the structure of these, with other ``leaves``."""
        ends = zip(self.firsts, self._trees, strict=True)
        return [jax.tree.unflatten(t, leaves[k : k + t.num_leaves]) for k, t in ends]
