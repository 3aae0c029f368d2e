"""The front door of a callable: binding names, checking types, converting values."""

from __future__ import annotations

import difflib
import inspect
import keyword
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Variable
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list.type import TypedListType

from loopax.ir.errors import LoopTypeError, MissingInputError, UnsupportedOpError
from loopax.ir.program import Input, Program
from loopax.ir.trace import stacked
from loopax.jax_backend.lists import RaggedList, StackedList, from_rows
from loopax.jax_backend.static import is_traced
from loopax.jax_backend.x64 import narrowed

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
            if not _crosses(spec.variable.type):
                raise UnsupportedOpError(
                    f"Input {spec.variable} has the type {spec.variable.type}, which does not cross to "
                    "JAX yet: inputs and shared variables must be tensors, or typed lists of them."
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
        self.names += [str(s.variable) for s in program.shared]
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


def _crosses(t: Any) -> bool:
    return _crosses(t.ttype) if isinstance(t, TypedListType) else isinstance(t, DenseTensorType)


def accept(x: Any, expected: Any, what: str) -> Any:
    """``x`` as a value of the type ``expected``: an array of its dtype and rank, or a list of them.

    ``what`` says whose value it is.
    """
    if isinstance(expected, TypedListType) and not isinstance(x, Variable):
        return _accept_list(x, expected, what)
    if isinstance(x, Variable):
        raise LoopTypeError(
            f"{what} is the PyTensor variable {x}: a jaxified function takes arrays. To use it in a "
            "graph, call the PyTensor function that it was made from."
        )
    if isinstance(x, jax.Array):
        return _accept_jax(x, expected, what)
    try:
        # PyTensor's own rules: no rank is added, no precision lost, Python numbers fit any float.
        value = expected.filter(x, strict=False, allow_downcast=None)
    except (TypeError, ValueError, OverflowError) as error:
        found = (
            f"{np.asarray(x).dtype}, shape {np.shape(x)}" if _is_arraylike(x) else type(x).__name__
        )
        raise LoopTypeError(
            f"{what} must be {_describe(expected)}, but {found} was given. Convert it, for instance "
            f"with np.asarray(x, dtype={expected.dtype!r}), or give the input another type."
        ) from error
    if narrowed(value):
        raise LoopTypeError(
            f"{what} holds integers beyond 32 bits, and JAX is in 32-bit mode, where they would wrap. "
            "Call jax.config.update('jax_enable_x64', True) first."
        )
    return value


def _accept_list(x: Any, expected: Any, what: str) -> Any:
    """A list from its rows, in a Python list or along the leading axis of an array."""
    row_type = expected.ttype
    if isinstance(x, StackedList):
        x = x.data if isinstance(row_type, DenseTensorType) else list(x)
    if isinstance(x, list | tuple | RaggedList):
        what = f"{what[0].lower()}{what[1:]}"
        return from_rows(
            [accept(r, row_type, f"Row {k} of {what}") for k, r in enumerate(x)], row_type
        )
    if not np.ndim(x):
        raise LoopTypeError(
            f"{what} must be {_describe(expected)}, but {type(x).__name__} was given. Give the rows as "
            "[first, second], or as an array with one row after the other along its leading axis."
        )
    if isinstance(row_type, DenseTensorType):
        return StackedList(accept(x, stacked(row_type), what))
    return _accept_list(list(x), expected, what)


def _accept_jax(x: Any, expected: Any, what: str) -> Any:
    fits = x.ndim == expected.ndim and all(
        n is None or n == m for n, m in zip(expected.shape, x.shape, strict=True)
    )
    dtype = str(x.dtype)
    if fits and dtype != expected.dtype:
        # A weak float stands for a Python number; a weak integer may be too large to narrow.
        weak = x.aval.weak_type and np.dtype(dtype).kind == np.dtype(expected.dtype).kind == "f"
        narrow = str(jax.dtypes.canonicalize_dtype(expected.dtype)) == dtype
        fits = weak or narrow or _widens(dtype, expected.dtype)
        if fits and not narrow:
            x = x.astype(jax.dtypes.canonicalize_dtype(expected.dtype))
    if not fits:
        raise LoopTypeError(
            f"{what} must be {_describe(expected)}, but {dtype}, shape {x.shape} was given. Convert it "
            f"with x.astype({expected.dtype!r}), or give the input another type."
        )
    return x


def _widens(dtype: str, to: str) -> bool:
    """Whether PyTensor would cast ``dtype`` to ``to`` by itself: nothing is lost."""
    return np.dtype(dtype).kind in "biufc" and bool(ps.upcast(dtype, to) == to)


def _describe(expected: Any) -> str:
    if isinstance(expected, TypedListType):
        return f"a list of rows, each {_describe(expected.ttype)}"
    shape = ", ".join("?" if n is None else str(n) for n in expected.shape)
    return f"{expected.dtype} of rank {expected.ndim}, shape ({shape})"


def _is_arraylike(x: Any) -> bool:
    try:
        return np.asarray(x).dtype.kind != "O"
    except Exception:
        return False


def _by_keyword(inputs: tuple[Input, ...]) -> dict[str, int]:
    """Which inputs can be given by name: those with a name that no other one has.

    A name that is no identifier can still be given as ``f(**{"sigma-log": x})``, which is how models
    pass a point.
    """
    counts = Counter(i.name for i in inputs)
    return {i.name: k for k, i in enumerate(inputs) if i.name and counts[i.name] == 1}
