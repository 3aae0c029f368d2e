"""Arguments as values of JAX, with a short way for arrays that fit as they are."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.tensor.type import DenseTensorType

from loopax.calling.arguments import Arguments
from loopax.ir.program import Program
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.crossing import TARGET, accept
from loopax.jax_backend.values.x64 import narrowed

_ARRAY = type(jnp.zeros(()))


class JaxArguments(Arguments):
    """Binds a call's arguments to a program's inputs."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, TARGET)
        # Arrays of these dtypes and shapes need no second look: None where any input needs one.
        self.plain = None
        if all(isinstance(t, DenseTensorType) for t in self.types):
            self.plain = [(np.dtype(t.dtype), t.shape) for t in self.types]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], bool]:
        """The values of all inputs, in order, and whether all of them are concrete.

        The values are JAX arrays or tracers, or NumPy arrays that fit.

        Raises
        ------
        MissingInputError
            An input is missing, given twice or misnamed.
        LoopTypeError
            A value has another rank or static shape, or a dtype that the input's cannot hold.
        """
        if kwargs or len(args) != len(self.inputs):
            args = self.in_order(args, kwargs)
        if self.plain is not None:  # the fast path: to accept an array takes 5 us, a small model 10
            for x, (dtype, shape) in zip(args, self.plain, strict=True):
                if not _fits(x, dtype, shape):
                    break
            else:
                return args, True
        values = tuple(
            accept(x, t, what) for x, t, what in zip(args, self.types, self.whats, strict=True)
        )
        return values, not any(map(is_traced, values))


def _fits(x: Any, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> bool:
    """Whether ``x`` is a concrete array that `accept` would return as it is.

    Of JAX's arrays and NumPy's own; where it says no, `accept` may still take or convert the value.
    """
    kind = type(x)
    if kind is _ARRAY:
        x = x.aval  # its shape and dtype are attributes, those of the array are looked up in Python
    elif kind is not np.ndarray or not x.flags.aligned or (dtype.kind in "iu" and narrowed(x)):
        return False
    if x.dtype != dtype or len(x.shape) != len(shape):
        return False
    for n, expected in zip(x.shape, shape, strict=True):  # a generator would cost as much again
        if n != expected and expected is not None:
            return False
    return True
