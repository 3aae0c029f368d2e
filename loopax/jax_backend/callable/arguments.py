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

_ARRAY = type(jnp.zeros(()))


class JaxArguments(Arguments):
    """Binds a call's arguments to a program's inputs."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, TARGET)
        # Arrays of these dtypes and ranks need no second look: None where any input needs one.
        self.plain = None
        if all(isinstance(t, DenseTensorType) and t.shape == (None,) * t.ndim for t in self.types):
            self.plain = [(np.dtype(t.dtype), t.ndim) for t in self.types]

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
        if self.plain is not None:  # the fast path: arrays that are already what they should be
            for x, (dtype, ndim) in zip(args, self.plain, strict=True):
                if type(x) is not _ARRAY or x.dtype != dtype or x.ndim != ndim:
                    break
            else:
                return args, True
        values = tuple(
            accept(x, t, what) for x, t, what in zip(args, self.types, self.whats, strict=True)
        )
        return values, not any(map(is_traced, values))
