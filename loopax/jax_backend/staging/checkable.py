"""Primitives with a jaxpr among their parameters, which JAX lowers whole, and into which checkify looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopax.base.upstream.jax import ClosedJaxpr, Jaxpr, Primitive, inner_jaxprs


class LoweredWhole(Primitive):
    """A primitive with a jaxpr among its parameters that JAX need not lower: its own lowering does.

    JAX 0.12 asks a primitive with a "high" one, in which a function has a derivative of its own, say, for a
    rule to replace it before anything is lowered.
    """

    def is_high(self, *avals: object, **params: object) -> bool:
        return False


class Checkable(LoweredWhole):
    """A primitive in whose ``call_jaxpr``, if it is bound with one, checkify sees checks."""

    def bind(self, *args: object, subfuns: Sequence[Any] = (), **params: object) -> Any:
        if subfuns:  # by checkify: the values of its errors so far come first
            (with_errors,) = subfuns
            return with_errors.call_wrapped(*args)
        return super().bind(*args, **params)


def has_checks(program: ClosedJaxpr | Jaxpr) -> bool:
    """Whether checkify sees checks in a jaxpr, or in one within it."""
    return any(
        (isinstance(eqn.primitive, Checkable) and "call_jaxpr" in eqn.params)
        or any(map(has_checks, inner_jaxprs(eqn)))
        for eqn in getattr(program, "jaxpr", program).eqns
    )
