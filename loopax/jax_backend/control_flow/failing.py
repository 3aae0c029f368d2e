"""Steps and branches that raise while JAX traces them, although they may never run.

JAX traces both branches, and one step even of a loop that takes none: an index past the end of an array of
known length then raises, though the program does not. Code that raises is replaced by invalid values
(`no_number`) and a check that fails if it runs after all.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from loopax.base.errors import LoopaxError
from loopax.jax_backend.staging.checked import Failure, check_when_run
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.values.generators import is_key
from loopax.numerics.no_number import or_no_number

# What an op may raise of its operands, here as in PyTensor.
RAISED = (IndexError, ValueError, ArithmeticError, AssertionError)


def is_of_program(error: Exception) -> bool:
    """Whether the program itself raises ``error``, rather than JAX or loopax because of tracing."""
    ours = isinstance(error, LoopaxError | jax.errors.JAXTypeError | jax.errors.JAXIndexError)
    return isinstance(error, RAISED) and not ours


def without_numbers(site: Site, like: object, error: Exception, ok: ArrayLike = False) -> Any:
    """Return ``like``, a pytree of arrays, where ``ok``; else `no_number`, and a check that fails."""
    ok = jnp.asarray(ok)

    def hidden(x: jax.Array) -> jax.Array:
        if is_key(x):
            return x
        return or_no_number(ok, x)

    failure = Failure(type(error), str(error))
    return check_when_run(site.context, jax.tree.map(hidden, like), ok, failure)
