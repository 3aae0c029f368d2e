"""Assertions: checked where they can be, and otherwise said to be skipped, once."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp
from pytensor.raise_op import CheckAndRaise

from loopax.jax_backend.evaluate import Site
from loopax.jax_backend.registry import rule
from loopax.jax_backend.static import is_traced


@rule(CheckAndRaise)
def check_and_raise(site: Site, x: Any, *conditions: Any) -> Any:
    op = site.op
    for condition in conditions:
        if not is_traced(condition):
            if not bool(np.all(np.asarray(condition))):
                raise op.exc_type(op.msg)
            continue
        # A no-op unless the caller wraps the function in checkify.checkify.
        checkify.debug_check(jnp.all(condition), f"{op.exc_type.__name__}: {op.msg}")
        if op.msg not in site.context.warned:
            site.context.warned.add(op.msg)
            warnings.warn(
                f"The assertion {op.msg!r} depends on traced values: JAX can only check it under "
                "`jax.experimental.checkify.checkify`, and skips it otherwise.",
                stacklevel=2,
            )
    return x


@rule(DeepCopyOp)
def deep_copy(site: Site, x: Any) -> Any:
    return x if isinstance(x, jax.Array) else x.copy()


@rule(TypeCastingOp)
def type_cast(site: Site, x: Any) -> Any:
    return x
