"""Derivatives of a function of arrays by finite differences, along random directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Arrays = Sequence[Any]

_STEPS = (3e-3, 1e-4, 3e-6)  # relative to the size of each entry


def directions(values: Arrays, seed: int = 0) -> list[Any]:
    """A random direction for each array, in which each entry moves by about its own size."""
    rng = np.random.default_rng(seed)
    steps = []
    for x in values:
        x = np.asarray(x)
        size = np.abs(x)
        largest = float(size.max(initial=0.0)) or 1.0
        scale = np.maximum(size, 1e-3 * largest)
        signs = rng.choice([-1.0, 1.0], size=x.shape) * rng.uniform(0.5, 1.0, size=x.shape)
        steps.append((signs * scale).astype(x.dtype))
    return steps


def along(f: Callable[..., Any], values: Arrays, direction: Arrays) -> list[list[Any]]:
    """The derivative of ``f`` along ``direction`` by central differences, for several step sizes.

    Each is Richardson's extrapolation of two steps, whose error is of the fourth order.
    """

    def central(h: float) -> list[Any]:
        up = f(*(x + h * d for x, d in zip(values, direction, strict=True)))
        down = f(*(x - h * d for x, d in zip(values, direction, strict=True)))
        pairs = zip(up, down, strict=True)
        return [(np.asarray(a, float) - np.asarray(b, float)) / (2 * h) for a, b in pairs]

    return [
        [(4 * a - b) / 3 for a, b in zip(central(h / 2), central(h), strict=True)] for h in _STEPS
    ]


def inner(left: Arrays, right: Arrays) -> float:
    """The inner product of two lists of arrays."""
    return float(
        sum(np.sum(np.asarray(a) * np.asarray(b)) for a, b in zip(left, right, strict=True))
    )


def contradiction(f: Callable[..., Any], values: Arrays, slopes: Arrays, seed: int) -> float:
    """The relative difference of ``slopes`` and finite differences, along one direction.

    ``f`` returns one number. Where its terms cancel, the difference is relative to their sizes.
    """
    direction = directions(values, seed)
    own = inner(slopes, direction)
    pairs = zip(slopes, direction, strict=True)
    terms = sum(float(np.sum(np.abs(np.asarray(g) * d))) for g, d in pairs)
    apart = []
    for (expected,) in along(f, values, direction):
        size = max(abs(own), abs(float(expected)), 1e-3 * terms)
        apart.append(abs(own - float(expected)) / size if size else 0.0)
    return least(apart)


def function_of(
    f: Callable[..., Any], values: Sequence[Any], at: Sequence[int]
) -> Callable[..., Any]:
    """Restrict ``f`` to the arguments at positions ``at``, cast to their own types."""

    def partial(*moved: object) -> Any:
        arguments = list(values)
        for k, x in zip(at, moved, strict=True):
            arguments[k] = np.asarray(x, np.asarray(values[k]).dtype)
        result = f(*arguments)
        return result if isinstance(result, tuple | list) else [result]

    return partial


def least(apart: Sequence[float]) -> float:
    """The least of the differences for several step sizes; 0 where none could be computed.

    Rounding and kinks spoil some step sizes, but do not make a wrong derivative agree.
    """
    finite = [x for x in apart if np.isfinite(x)]
    return min(finite, default=0.0)
