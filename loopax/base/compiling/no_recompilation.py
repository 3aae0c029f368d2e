"""Functions that refuse arguments of types that they were not compiled for.

Numba dispatches each call on the types of all arguments, and compiles if there is no code for
them. A check in Python that an array has this dtype and rank, is in C order and writeable takes as
long as the whole call. So a function without code for its arguments raises, and the caller
converts them; only then is anything compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopax.base.upstream.numba import Dispatcher, call_instead_of_compiling


class SignatureMismatch(Exception):
    """Raised where a function was not compiled for the types of its arguments."""


def no_recompilation(dispatcher: Dispatcher) -> Any:
    """Make ``dispatcher`` raise `SignatureMismatch` at such a call instead of compiling."""
    call_instead_of_compiling(dispatcher, _refuse)
    return dispatcher


def compile_for(dispatcher: Dispatcher, args: Sequence[Any]) -> None:
    """Compile ``dispatcher`` for ``args``, so that it accepts them."""
    dispatcher.compile(tuple(map(dispatcher.typeof_pyval, args)))


def _refuse(*args: object) -> Any:
    raise SignatureMismatch
