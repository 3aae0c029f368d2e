"""Assertions: checked at trace time if possible, and otherwise by ``jaxify(..., checks=)``.

A condition known while JAX traces raises there. Any other is left to checkify, with one warning that it is
skipped without that; raises when the program runs; or is left out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from pytensor.compile.ops import DeepCopyOp
from pytensor.raise_op import CheckAndRaise

from loopax.jax_backend.staging.checked import Failure, check_when_run
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced
from loopax.numerics.arrays import Array


@rule(CheckAndRaise)
def check_and_raise(site: Site, x: Array, *conditions: ArrayLike) -> Any:
    failure = Failure(site.op.exc_type, site.op.msg)
    traced = [c for c in conditions if is_traced(c)]
    for condition in conditions:
        if not is_traced(condition) and not bool(np.all(np.asarray(condition))):
            raise failure.error()
    if not traced:
        return x
    ok = jnp.all(jnp.stack([jnp.all(c) for c in traced])) if len(traced) > 1 else jnp.all(traced[0])
    # The value may be static even if the condition depends on traced values.
    return check_when_run(site.context, x, ok, failure)


@rule(DeepCopyOp)
def deep_copy(site: Site, x: Array) -> Any:
    return x if isinstance(x, jax.Array) else x.copy()
