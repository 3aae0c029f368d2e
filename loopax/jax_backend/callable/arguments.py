"""Arguments as JAX values, with a fast path for arrays that need no conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxlib.xla_client import ArrayImpl
from pytensor.tensor.type import DenseTensorType

from loopax.calling.arguments import Arguments
from loopax.ir.program import Program
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.crossing import TARGET, accept
from loopax.jax_backend.values.x64 import narrowed

# The class of JAX's concrete arrays, imported, not taken from an array made here: a first array starts XLA,
# and an import must leave `jax.distributed.initialize`, `jax.config` and forks to the caller's program.
ARRAY = ArrayImpl


class JaxArguments(Arguments):
    """Binds a call's arguments to a program's inputs."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, TARGET)
        # Arrays of these dtypes, ranks and shapes are accepted as they are; None if any input needs a
        # closer look. Without static lengths only the rank is compared.
        self.plain = None
        if all(isinstance(t, DenseTensorType) for t in self.types):
            self.plain = [
                (np.dtype(t.dtype), t.ndim, None if set(t.shape) <= {None} else t.shape)
                for t in self.types
            ]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], bool]:
        """The values of all inputs, in order, and whether all of them are concrete.

        The values are JAX arrays or tracers, or NumPy arrays that fit.

        Raises `MissingInputError` if an input is missing, given twice or misnamed; `LoopTypeError`
        if a value has another rank or static shape, or a dtype that the input's cannot hold.
        """
        if kwargs or len(args) != len(self.inputs):
            args = self.in_order(args, kwargs)
        if self.fit(args):
            return args, True
        values = tuple(
            accept(x, t, what) for x, t, what in zip(args, self.types, self.labels, strict=True)
        )
        return values, not any(map(is_traced, values))

    def fit(self, args: tuple[Any, ...]) -> bool:
        """Whether these are all arguments, and concrete arrays that `bind` would return unchanged.

        It covers JAX's and NumPy's own arrays; if it is False, `bind` may still accept or convert a value.
        """
        plain = self.plain
        if plain is None or len(args) != len(plain):
            return False
        for x, (dtype, ndim, shape) in zip(args, plain):  # noqa: B905  # strict costs as much as a check
            kind = type(x)
            if kind is ARRAY:
                x = x.aval  # its shape and dtype are attributes, the array's are Python properties
            elif (
                kind is not np.ndarray
                or not x.flags.aligned
                or (dtype.kind in "iu" and narrowed(x))
            ):
                return False
            if (x.dtype is not dtype and x.dtype != dtype) or len(x.shape) != ndim:
                return False
            if shape is not None:
                for n, expected in zip(x.shape, shape):  # noqa: B905  # they have one length
                    if n != expected and expected is not None:
                        return False
        return True


def wait_for(results: Sequence[Any]) -> None:
    """Wait until ``results``, pytrees, are computed; errors of the computation are raised here.

    For single arrays it takes 0.4 microseconds where `jax.block_until_ready` takes 1.2.
    """
    for result in results:
        if type(result) is ARRAY:
            result.block_until_ready()
        else:
            jax.block_until_ready(result)
