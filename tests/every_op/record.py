"""What an example is, and the arguments that most of them take."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

COLUMNS = ("JAX", "under jit", "jax.grad", "second", "vmap", "Numba", "loopax.grad")


@dataclass
class Example:
    """A small program with the op in it.

    Its inputs are those of `given` that it reads. ``expected`` is a program of other ops with the same
    meaning, where PyTensor's Python linker cannot run this one.
    """

    outputs: Any
    expected: Any = None
    # Random: shapes and dtypes are compared, not values. Of what was drawn, the values of the inputs then
    # and others now, what it would be now.
    draws: bool = False
    moved: Callable[[Any, Any, Any], Any] | None = None
    # So many that nobody would wait for a Python loop over them: they are compiled.
    many: bool = False
    # An op that is about derivatives alone: these are PyTensor's, and not differences.
    by_pytensor: bool = False
    rtol: float = 1e-9
    atol_slope: float = 1e-7
    atol_second: float = 1e-4


def given(value: Any, name: str | None = None, dtype: str | None = None) -> Any:
    """An input of unknown shape, with the value that it has in the examples."""
    value = np.asarray(value, dtype)
    v = pt.tensor(name, dtype=str(value.dtype), shape=(None,) * value.ndim)
    v.tag.value = value
    return v


def value_of(v: Any) -> Any:
    return v.tag.value


PLAIN = Mode(linker="py", optimizer=None)
A, B = given(0.75, "a"), given(1.25, "b")
V, U, W = (
    given([0.5, -1.5, 2.0], "v"),
    given([1.0, 4.0, -3.0], "u"),
    given([0.2, 1.1, 0.6, -0.4], "w"),
)
P, Q = given([0.3, 0.6, 0.8], "p"), given([1.7, 2.4, 3.3], "q")
M = given([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]], "m")
SQUARE = given([[2.0, -0.5, 0.3], [1.0, 3.0, 0.2], [-0.4, 0.6, 4.0]], "square")
OTHER = given([[1.0, 0.4, -0.7], [0.3, 2.0, 0.5], [0.9, -0.2, 1.5]], "other")
N, K = given(2, "n"), given([2, 0, 2], "k")
FLAGS = given([True, False, True], "flags")


def positive_definite() -> Any:
    return SQUARE @ SQUARE.T + pt.eye(3)
