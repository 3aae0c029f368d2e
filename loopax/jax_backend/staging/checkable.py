"""Primitives with a jaxpr parameter that JAX lowers as a whole, and that checkify looks into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopax.base.upstream.jax import ClosedJaxpr, Jaxpr, Primitive, inner_jaxprs


class LoweredWhole(Primitive):
    """A primitive with a jaxpr parameter that JAX need not lower: its own lowering does.

    If the jaxpr is "high", for example because it contains a function with its own derivative, JAX 0.12
    asks the primitive for a rule to replace it before anything is lowered.
    """

    def is_high(self, *avals: object, **params: object) -> bool:
        return False


class Checkable(LoweredWhole):
    """A primitive in whose ``call_jaxpr``, if it is bound with one, checkify finds checks."""

    def bind(self, *args: object, subfuns: Sequence[Any] = (), **params: object) -> Any:
        if subfuns:  # called by checkify, whose error values so far come first
            (with_errors,) = subfuns
            return with_errors.call_wrapped(*args)
        return super().bind(*args, **params)


def has_checks(program: ClosedJaxpr | Jaxpr) -> bool:
    """Whether checkify finds checks in a jaxpr, or in a nested one."""
    return any(
        (isinstance(eqn.primitive, Checkable) and "call_jaxpr" in eqn.params)
        or any(map(has_checks, inner_jaxprs(eqn)))
        for eqn in getattr(program, "jaxpr", program).eqns
    )
