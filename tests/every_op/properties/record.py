"""What a case is: programs that differ in the keywords of one op class, with what each of them gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tests.every_op.record import given

Case = Callable[[], Iterator["Variation"]]


class Variation(NamedTuple):
    """One program. ``expected`` are its values; None where PyTensor's Python linker says what they are."""

    label: str
    outputs: Any
    expected: Any = None
    shapes_fit: bool = (
        True  # the shapes that PyTensor declares, where those of the arguments are known
    )


def variation(
    label: Any,
    program: Callable[..., Any],
    arguments: Any,
    reference: Any = None,
    shapes_fit: bool = True,
) -> Variation:
    """``program`` of inputs that have the values ``arguments``, and ``reference`` of the values."""
    arguments = [np.asarray(x) for x in arguments]
    inputs = [given(x, "xyzw"[k], str(x.dtype)) for k, x in enumerate(arguments)]
    expected = reference(*arguments) if callable(reference) else reference
    return Variation(str(label), program(*inputs), expected, shapes_fit)


def numbers(*shape: int, seed: int = 0, kind: str = "float64") -> Any:
    """An array without structure."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape)).astype(kind) if "complex" in kind else x.astype(kind)
