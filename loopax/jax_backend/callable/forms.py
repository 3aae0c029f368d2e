"""Registry of forms of a program other than JAX's operations.

Native code on the CPU is one (`loopax.kernels`), which this backend does not import.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

_CHOICES = ("auto", "native", "xla")
_DEFAULT = os.environ.get("LOOPAX_LOOPS", _CHOICES[0])
if _DEFAULT not in _CHOICES:
    raise ValueError(
        f"The environment variable LOOPAX_LOOPS is {_DEFAULT!r}, but it must be one of "
        f"{', '.join(_CHOICES)}."
    )
# The values of ``jaxify(..., loops=)``, the default first.
LOOPS = (_DEFAULT, *(choice for choice in _CHOICES if choice != _DEFAULT))


class NativeForm(Protocol):
    """A program that may run as native code; ``remarks`` describe the form of each call so far."""

    remarks: dict[str, None]

    def run(self, args: Sequence[Any]) -> list[Any] | None:
        """Run the program on ``args``; None if JAX's operations must compute the outputs."""


_makers: list[Callable[..., NativeForm]] = []


def register_native_form(maker: Callable[..., NativeForm]) -> None:
    """Register ``maker`` as the native form; it is called as `loopax.kernels.choice.Candidate` is."""
    _makers[:] = [maker]


def native_form(*args: object) -> NativeForm | None:
    """The native form of a program; None if none is registered."""
    return _makers[0](*args) if _makers else None
