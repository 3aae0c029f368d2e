"""States of a loop as a batch of small vectors, and the linear part of a step as matrices.

    states, each (..., *shape)   ->   one array (..., K, M)

The axes that a step does not mix form the batch, of size ``M``; all other axes of all states form the
vector, of size ``K``. For elementwise steps ``K`` is the number of states; for a vector that a matrix
multiplies, its length. All arrays here may have additional leading axes, for example of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from loopax.extensions.parallel.loops.images import Image
from loopax.numerics.manual_axes import axes_of, varying


@dataclass(frozen=True)
class Coordinates:
    """The states of the ``shapes``, whose axes ``batch`` are not mixed."""

    shapes: tuple[tuple[int, ...], ...]
    batch: tuple[int, ...]

    @classmethod
    def of(cls, shapes: Sequence[tuple[int, ...]], following: Sequence[Image]) -> Coordinates:
        """Build coordinates for states of these shapes, from the images of the next states."""
        first, *others = shapes
        same = [k for k, n in enumerate(first) if all(s[k : k + 1] == (n,) for s in others)]
        batch = tuple(k for k in same if all(x.axes[k] == k for x in following))
        return cls(tuple(shapes), batch)

    @property
    def width(self) -> int:
        """The number ``M`` of vectors."""
        return prod(self.shapes[0][k] for k in self.batch)

    @property
    def sizes(self) -> list[int]:
        """The number of vector entries that each state takes."""
        return [prod(n for k, n in enumerate(s) if k not in self.batch) for s in self.shapes]

    @property
    def size(self) -> int:
        """The length ``K`` of a vector."""
        return sum(self.sizes)

    def join(self, states: Sequence[Any]) -> Any:
        """Join states, each of its shape behind leading axes, to one array ``(..., K, M)``."""
        parts = []
        for x, shape, size in zip(states, self.shapes, self.sizes, strict=True):
            lead = jnp.ndim(x) - len(shape)
            last = [jnp.ndim(x) - len(self.batch) + k for k in range(len(self.batch))]
            x = jnp.moveaxis(x, [lead + k for k in self.batch], last)
            parts.append(x.reshape(*x.shape[:lead], size, self.width))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-2)

    def split(self, x: Any) -> list[Any]:
        """Split an array ``(..., K, M)`` into states."""
        lead, parts, start = x.shape[:-2], [], 0
        for shape, size in zip(self.shapes, self.sizes, strict=True):
            part = x[..., start : start + size, :]
            start += size
            mixed = [n for k, n in enumerate(shape) if k not in self.batch]
            part = part.reshape(*lead, *mixed, *(shape[k] for k in self.batch))
            last = [part.ndim - len(self.batch) + k for k in range(len(self.batch))]
            parts.append(jnp.moveaxis(part, last, [len(lead) + k for k in self.batch]))
        return parts

    def matrix(self, step: Callable[..., list[Any]], at: Sequence[Any], unit: float = 1.0) -> Any:
        """The linear part ``(K, K, M)`` of ``step``, from states to next states, at the given states.

        Its columns are images of ``unit`` in one entry: with NaN, of an inexact dtype, they are NaN in the
        rows that read the entry.
        """
        like = self.join(at)
        if not jnp.issubdtype(like.dtype, jnp.inexact):
            # Integers have no derivative. Their differences are exact, and so is what wraps around.
            offset = self.join(step(*at))

            def column(unit: Any) -> Any:
                moved = self.split(like + unit)
                return self.join(step(*moved)) - offset

        else:

            def column(unit: Any) -> Any:
                return self.join(jax.jvp(step, tuple(at), tuple(self.split(unit)))[1])

        own = jnp.eye(self.size, dtype=bool)[:, :, None]
        units = jnp.where(own, jnp.asarray(unit, like.dtype), jnp.zeros((), like.dtype))
        units = jnp.broadcast_to(units, (self.size, self.size, self.width))
        units = varying(units, axes_of(like))
        if self.size == 1:
            return column(units[0])[:, None]
        return jax.vmap(column, out_axes=1)(units)
