"""Functions that refuse arguments of other types than they were compiled for.

Numba looks at the types of all arguments at each call, to find the code that was compiled for them; where
there is none, it compiles. To check by hand that an array has this dtype and rank, is in C order and may be
written to takes as long again as the whole call. So a function that has no code for its arguments says so,
the caller converts them, and only then it is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class OtherTypes(Exception):
    """A function was not compiled for the types of what it is called with."""


def exact(dispatcher: Any) -> Any:
    """``dispatcher``, which raises `OtherTypes` in the place of compiling when it is called."""
    dispatcher._compile_for_args = _refuse
    return dispatcher


def compile_for(dispatcher: Any, args: Sequence[Any]) -> None:
    """Have ``dispatcher`` compiled for ``args``, so that it does not refuse them."""
    dispatcher.compile(tuple(map(dispatcher.typeof_pyval, args)))


def _refuse(*args: Any) -> Any:
    raise OtherTypes
