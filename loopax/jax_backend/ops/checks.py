"""Assertions: checked where they can be, and otherwise as ``jaxify(..., checks=)`` says.

What is known while JAX traces raises there. What is not is seen by checkify, and said once to be skipped
without it; raises when the program runs; or is left out.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp
from pytensor.raise_op import CheckAndRaise

from loopax.jax_backend.staging.checked import Failure, checked
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced


@rule(CheckAndRaise)
def check_and_raise(site: Site, x: Any, *conditions: Any) -> Any:
    failure, context = Failure(site.op.exc_type, site.op.msg), site.context
    traced = [c for c in conditions if is_traced(c)]
    for condition in conditions:
        if not is_traced(condition) and not bool(np.all(np.asarray(condition))):
            raise failure.error()
    if not traced or context.checks == "ignore":
        return x
    if context.checks == "raise":
        context.failures.add(failure)
    elif failure.message not in context.warned:
        context.warned.add(failure.message)
        warnings.warn(
            f"The assertion {failure.message!r} depends on traced values: JAX can only check it under "
            "`jax.experimental.checkify.checkify`, and skips it otherwise. To have it raise when the "
            'program runs, make that with jaxify(..., checks="raise"); to leave it out without this '
            'warning, with checks="ignore".',
            stacklevel=2,
        )
    ok = jnp.all(jnp.stack([jnp.all(c) for c in traced])) if len(traced) > 1 else jnp.all(traced[0])
    # The value may be static: a condition alone can hang on traced values.
    return checked(x, ok, failure, raises=context.checks == "raise")


@rule(DeepCopyOp)
def deep_copy(site: Site, x: Any) -> Any:
    return x if isinstance(x, jax.Array) else x.copy()


@rule(TypeCastingOp)
def type_cast(site: Site, x: Any) -> Any:
    return x
