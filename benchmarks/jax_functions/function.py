"""``JaxFunction``: a function of JAX with arguments for it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class JaxFunction(NamedTuple):
    """``f`` of its first argument, an array of parameters, and of data, to a number.

    ``is_differentiable``: whether its reverse mode is measured. A ``while_loop`` has none, and what a
    sampler accepts or a table of integers holds has no slope that anyone asks for.
    """

    f: Callable[..., Any]
    args: tuple[Any, ...]
    is_differentiable: bool = True


def draws(*shape: int) -> np.ndarray:
    """Standard normal numbers, equal for equal shapes."""
    return np.random.default_rng(20261126).normal(size=shape)
