"""The front door of a callable: which argument is for which input, by position or by name."""

from __future__ import annotations

import difflib
import inspect
import keyword
from collections import Counter
from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.type_other import SliceType

from loopax.ir.errors import MissingInputError, UnsupportedOpError, describe
from loopax.ir.program import Input, Program
from loopax.jax_backend.crossing import accept, crosses
from loopax.jax_backend.static import is_traced

_ARRAY = type(jnp.zeros(()))
_MISSING = object()


class Arguments:
    """Binds a call's arguments to a program's inputs.

    Raises
    ------
    MissingInputError
        An input is missing, given twice or misnamed.
    LoopTypeError
        A value has another rank or static shape, or a dtype that the input's cannot hold.
    """

    def __init__(self, program: Program) -> None:
        self.name = program.name
        self.inputs = program.inputs
        for spec in [*program.inputs, *program.shared]:
            if not crosses(spec.variable.type):
                raise UnsupportedOpError(
                    f"Input {spec.variable} has the type {spec.variable.type}, which does not cross to "
                    "JAX: inputs and shared variables must be tensors, sparse matrices, random "
                    "generators, slices, None, or typed lists of these. Take out of it what the program "
                    "computes with, and make that an input."
                )
        for v in program.graph.outputs:
            if not crosses(v.type) or isinstance(v.type, SliceType):
                raise UnsupportedOpError(
                    f"Output {describe(v)} has the type {v.type}, which JAX cannot return. Return what it "
                    "is made of: the start, stop and step of a slice."
                )
        types = [i.variable.type for i in self.inputs]
        # Arrays of these dtypes and ranks need no second look: None where any input needs one.
        self.plain = None
        if all(isinstance(t, DenseTensorType) and t.shape == (None,) * t.ndim for t in types):
            self.plain = [(np.dtype(t.dtype), t.ndim) for t in types]
        self.whats = [
            f"Input {i.name!r} (argument {k})" if i.name else f"Argument {k}"
            for k, i in enumerate(self.inputs)
        ]
        self.names = [i.name or f"argument {k}" for k, i in enumerate(self.inputs)]
        self.names += program.shared_names
        self.shared_whats = [f"The shared variable {name!r}" for name in program.shared_names]
        self.positions = _by_keyword(self.inputs)
        self.signature = self._signature()

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], bool]:
        """The values of all inputs, in order, and whether all of them are concrete.

        The values are JAX arrays or tracers, or NumPy arrays that fit.
        """
        if kwargs or len(args) != len(self.inputs):
            args = self._by_name(args, kwargs)
        if self.plain is not None:  # the fast path: arrays that are already what they should be
            for x, (dtype, ndim) in zip(args, self.plain, strict=True):
                if type(x) is not _ARRAY or x.dtype != dtype or x.ndim != ndim:
                    break
            else:
                return args, True
        values = tuple(
            accept(x, i.variable.type, what)
            for x, i, what in zip(args, self.inputs, self.whats, strict=True)
        )
        return values, not any(map(is_traced, values))

    def kind(self, k: int) -> str:
        """What input ``k`` of the program's graph is."""
        return f"argument {k}" if k < len(self.inputs) else "a shared variable"

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if len(args) > len(self.inputs):
            raise MissingInputError(
                f"{self.name} takes {len(self.inputs)} inputs, but {len(args)} were given. It is "
                f"{self.name}{self.signature}."
            )
        values = [*args, *[_MISSING] * (len(self.inputs) - len(args))]
        for name, value in kwargs.items():
            k = self.positions.get(name)
            if k is None:
                near = difflib.get_close_matches(name, self.positions, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise MissingInputError(
                    f"{self.name} has no input named {name!r}.{hint} It is {self.name}{self.signature}."
                )
            if k < len(args):
                raise MissingInputError(
                    f"Input {name!r} of {self.name} is given twice, by position and by name."
                )
            values[k] = value
        missing = [self.names[k] for k, x in enumerate(values) if x is _MISSING]
        if missing:
            raise MissingInputError(
                f"{self.name} was called without {', '.join(missing)}. It is {self.name}{self.signature}."
            )
        return tuple(values)

    def _signature(self) -> inspect.Signature:
        names = {
            k: name
            for name, k in self.positions.items()
            if name.isidentifier() and not keyword.iskeyword(name)
        }
        unnamed = [k for k in range(len(self.inputs)) if k not in names]
        last_unnamed = max(unnamed, default=-1)
        by_position, by_either = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        parameters = [
            inspect.Parameter(
                names.get(k, f"_{k}"), by_position if k <= last_unnamed else by_either
            )
            for k in range(len(self.inputs))
        ]
        return inspect.Signature(parameters)


def _by_keyword(inputs: tuple[Input, ...]) -> dict[str, int]:
    """Which inputs can be given by name: those with a name that no other one has.

    A name that is no identifier can still be given as ``f(**{"sigma-log": x})``, which is how models
    pass a point.
    """
    counts = Counter(i.name for i in inputs)
    return {i.name: k for k, i in enumerate(inputs) if i.name and counts[i.name] == 1}
