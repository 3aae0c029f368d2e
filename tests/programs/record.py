"""The record that every program of the corpus is, and what differs between releases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytensor
from pytensor.tensor.type import DenseTensorType

try:
    from pytensor.conditional import ifelse
except ImportError:  # 3.0
    from pytensor.ifelse import ifelse

__all__ = ["Program", "ifelse", "program", "scan"]

scan = partial(pytensor.scan, return_updates=False)


@dataclass(frozen=True, eq=False)
class Program:
    """One small program that somebody reported, with arguments to run it on.

    `build()` gives `(inputs, outputs)`, or `(inputs, outputs, options)` with what
    `pytensor.function` and `jaxify` take besides (`givens`, `updates`).
    """

    name: str
    theme: str
    thread: str
    build: Callable[[], tuple]
    values: tuple
    # The issue that must make it run: 2 now, 3 front end, 4 random and sparse, 5 early stop.
    issue: int = 2
    # Inputs after which jax.grad is compared with pytensor.grad.
    grad_wrt: tuple[str, ...] = ()
    # Inputs whose value makes a shape: closed over under somebody else's jit.
    static: tuple[str, ...] = ()
    # Inputs stacked for jax.vmap (every other one is shared by all rows).
    batch: tuple[str, ...] = ()
    # Input after which jax.hessian is compared with pytensor's hessian; the output is a scalar.
    hessian_wrt: str | None = None
    # What is right, from NumPy arguments, where PyTensor is wrong or its releases differ.
    expected: Callable[..., Any] | None = None
    # The same for the gradients; called with the cost's weights before the arguments.
    expected_grads: Callable[..., Any] | None = None
    rtol: float = 1e-10
    grad_rtol: float = 1e-8
    # False where only dtypes and shapes can agree: random draws.
    values_match: bool = True
    # What it must raise instead: the name of a class, or what the message says.
    error: str | None = None

    def __str__(self) -> str:
        return f"{self.theme}-{self.name}"

    def arguments(self, inputs) -> list:
        """The values in the dtypes of the inputs; what is no tensor is taken as it is."""
        return [
            np.asarray(value, dtype=dtype) if (dtype := _tensor_dtype(var)) else value
            for var, value in zip(inputs, self.values, strict=True)
        ]


def _tensor_dtype(var) -> str | None:
    var = getattr(var, "variable", var)  # an In
    return var.type.dtype if isinstance(var.type, DenseTensorType) else None


def program(*values, thread: str, **flags) -> Callable[[Callable], Program]:
    """Make a Program of a builder; its name and theme are the function's and the module's."""

    def record(build):
        theme = build.__module__.rpartition(".")[2]
        return Program(build.__name__, theme, thread, build, values, **flags)

    return record
