"""Types of the arguments that JAX passes to the rules of a primitive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import jax

from loopax.base.upstream.jax import ad

# Tangents in a JVP, or cotangents in a transpose: a `Zero` has no array.
Tangents: TypeAlias = Sequence[jax.Array | ad.Zero]
# An operand in a transpose: that in which the primitive is linear has no value.
Operand: TypeAlias = jax.Array | ad.UndefinedPrimal
# The axis of a batch in each operand; None for an operand without it.
BatchAxes: TypeAlias = Sequence[int | None]
