"""Transformed JAX functions, as records that compare by their parts and can be pickled.

A function takes arrays and returns a tuple of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.ir.sequences import with_items
from loopax.numerics.arrays import Array

Arrays = Callable[..., Sequence[Any]]


def _at(function: Arrays, inputs: Sequence[Any], ins: Sequence[int], outs: Sequence[int]) -> Any:
    """Restrict ``function`` to the inputs at ``ins`` and to the outputs at ``outs``."""

    def some(*arrays: jax.Array) -> tuple[Any, ...]:
        results = function(*with_items(inputs, ins, arrays))
        return tuple(jnp.asarray(results[j]) for j in outs)

    return some


@dataclass(frozen=True)
class _Derivative:
    """A derivative of ``function``: of the outputs at ``outs`` with respect to the inputs at ``ins``."""

    function: Arrays
    n_inputs: int
    ins: tuple[int, ...]
    outs: tuple[int, ...]


class Pulled(_Derivative):
    """The pullback ``[*inputs, *cotangents at outs] -> [*cotangents of the inputs at ins]``."""

    def __call__(self, *values: Array) -> Sequence[Any]:
        inputs, cotangents = values[: self.n_inputs], values[self.n_inputs :]
        some = _at(self.function, inputs, self.ins, self.outs)
        outputs, pullback = jax.vjp(some, *(inputs[k] for k in self.ins))
        converted = (jnp.asarray(g, y.dtype) for g, y in zip(cotangents, outputs, strict=True))
        return pullback(tuple(converted))


class Pushed(_Derivative):
    """The pushforward ``[*inputs, *tangents at ins] -> [*tangents of the outputs at outs]``."""

    def __call__(self, *values: Array) -> Sequence[Any]:
        inputs, tangents = values[: self.n_inputs], values[self.n_inputs :]
        some = _at(self.function, inputs, self.ins, self.outs)
        primals = tuple(inputs[k] for k in self.ins)
        converted = tuple(jnp.asarray(t, x.dtype) for t, x in zip(tangents, primals, strict=True))
        return jax.jvp(some, primals, converted)[1]


@dataclass(frozen=True)
class Batched:
    """Maps ``function`` over leading axes of its inputs; one of rank ``ranks[k]`` has no such axes."""

    function: Arrays
    ranks: tuple[int, ...]

    def __call__(self, *values: Array) -> Sequence[Any]:
        leads = [jnp.shape(x)[: np.ndim(x) - n] for x, n in zip(values, self.ranks, strict=True)]
        lead = jnp.broadcast_shapes(*leads)
        axes = tuple(0 if own else None for own in leads)
        converted = [
            jnp.broadcast_to(x, (*lead, *jnp.shape(x)[len(own) :])) if own else x
            for x, own in zip(values, leads, strict=True)
        ]
        function = self.function
        for _ in lead:
            function = jax.vmap(function, in_axes=axes)
        return function(*converted)
