"""Logarithms of products of arrays that are not negative, and such products.

A product is a map from its factors to their powers, a sum a map from its terms to their coefficients. A
key is an array and the order of its axes in the value, as of `DimShuffle`, with "x" for each axis along
which it does not vary: equal factors have equal keys, and cancel.

    >>> import pytensor.tensor as pt
    >>> from loopax.lowering.log_domain.log_values import combined, moved, once
    >>> p = pt.vector("p", shape=(3,))
    >>> once(p, [0, "x"])
    {(p, (0, 'x')): 1}
    >>> combined((moved(once(p), ["x", 0]), 1), (once(p, ["x", 0]), -1))
    {}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Factors = Mapping[tuple[Any, tuple[Any, ...]], int]
DTYPES = "float32", "float64"


@dataclass(frozen=True)
class LogValue:
    """The logarithm of the product of ``factors``, none of which is negative, plus ``shift``."""

    factors: Factors
    shift: Factors

    def moved(self, order: Sequence[Any]) -> LogValue:
        return LogValue(moved(self.factors, order), moved(self.shift, order))


@dataclass(frozen=True)
class Product:
    """The product of ``factors``, none of which is negative, times the product of ``others``."""

    factors: Factors
    others: Factors

    def moved(self, order: Sequence[Any]) -> Product:
        return Product(moved(self.factors, order), moved(self.others, order))


@dataclass(frozen=True)
class Vanishes:
    """The test for a ``value`` that is the logarithm of 0, or for any other where ``is_negated``."""

    value: LogValue
    is_negated: bool = False

    def moved(self, order: Sequence[Any]) -> Vanishes:
        return Vanishes(self.value.moved(order), self.is_negated)


# What is known of a value: its form, or the result of a test.
Known = LogValue | Product | Vanishes | bool | None


def has_no_sign(known: Known) -> bool:
    """Whether a value is known to be a product of which no factor is negative."""
    return isinstance(known, Product) and not known.others


def once(array: Any, order: Sequence[Any] | None = None) -> Factors:
    """The factors that consist of ``array``, with ``order`` as of `DimShuffle`."""
    axes = range(array.type.ndim) if order is None else order
    return {(array, tuple("x" if k == "x" or array.type.shape[k] == 1 else k for k in axes)): 1}


def combined(*parts: tuple[Factors, int]) -> Factors:
    """The product of powers of products, or the sum of multiples of sums."""
    total: dict[Any, int] = {}
    for factors, power in parts:
        for key, n in factors.items():
            total[key] = total.get(key, 0) + power * n
    return {key: n for key, n in total.items() if n}


def moved(factors: Factors, order: Sequence[Any]) -> Factors:
    """The factors after a `DimShuffle` to ``order``."""
    return {
        (array, tuple("x" if k == "x" else own[k] for k in order)): n
        for (array, own), n in factors.items()
    }


def constant_along(factors: Factors, axes: Sequence[int]) -> bool:
    """Whether the product varies along none of ``axes``."""
    return all(order[k] == "x" for _, order in factors for k in axes)
