"""Arguments of a call, matched with a program's inputs by position or by name."""

from __future__ import annotations

import difflib
import inspect
import keyword
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytensor.tensor.type_other import SliceType

from loopax.base.errors import MissingInputError, UnsupportedOpError, describe
from loopax.calling.types import crosses
from loopax.ir.program import Input, Program

_MISSING = object()


class Arguments:
    """Puts a call's arguments into the order of a program's inputs.

    Parameters
    ----------
    program
        The program that is called.
    target
        The name of what the program becomes, for errors: ``JAX``.

    Raises
    ------
    UnsupportedOpError
        An input, a shared variable or an output has a type whose values a backend cannot take or
        return.
    """

    def __init__(self, program: Program, target: str) -> None:
        self.name = program.name
        self.inputs = program.inputs
        for v in [spec.variable for spec in [*program.inputs, *program.shared]]:  # type: ignore[attr-defined]
            if not crosses(v.type):
                raise UnsupportedOpError(
                    f"Input {v} has the type {v.type}, which does not cross to {target}: inputs and "
                    "shared variables must be tensors, sparse matrices, random generators, slices, "
                    "None, or typed lists of these. Extract the values that the program computes "
                    "with, and make them inputs."
                )
        for v in program.graph.outputs:
            if not crosses(v.type) or isinstance(v.type, SliceType):
                raise UnsupportedOpError(
                    f"Output {describe(v)} has the type {v.type}, which {target} cannot return. Return "
                    "its parts, such as the start, stop and step of a slice."
                )
        self.types = [i.variable.type for i in self.inputs]
        self.labels = [
            f"Input {i.name!r} (argument {k})" if i.name else f"Argument {k}"
            for k, i in enumerate(self.inputs)
        ]
        self.names = [i.name or f"argument {k}" for k, i in enumerate(self.inputs)]
        self.names += program.shared_names
        self.shared_labels = [f"The shared variable {name!r}" for name in program.shared_names]
        self.positions = _by_keyword(self.inputs)
        self.signature = self._signature()

    def in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The values of all inputs, in order.

        Raises `MissingInputError` if an input is missing, given twice or misnamed.
        """
        if len(args) > len(self.inputs):
            raise MissingInputError(
                f"{self.name} takes {len(self.inputs)} inputs, but {len(args)} were passed. Its "
                f"signature is {self.name}{self.signature}."
            )
        values = [*args, *[_MISSING] * (len(self.inputs) - len(args))]
        for name, value in kwargs.items():
            k = self.positions.get(name)
            if k is None:
                near = difflib.get_close_matches(name, self.positions, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise MissingInputError(
                    f"{self.name} has no input named {name!r}.{hint} Its signature is "
                    f"{self.name}{self.signature}."
                )
            if k < len(args):
                raise MissingInputError(
                    f"Input {name!r} of {self.name} was passed twice, by position and by name. Pass it "
                    "once."
                )
            values[k] = value
        if len(args) == 1 < len(self.inputs) and isinstance(args[0], Mapping) and not kwargs:
            raise MissingInputError(
                f"{self.name} takes its inputs by position or by name. To pass a dict, write "
                f"{self.name}(**values). Its signature is {self.name}{self.signature}."
            )
        missing = [self.names[k] for k, x in enumerate(values) if x is _MISSING]
        if missing:
            raise MissingInputError(
                f"{self.name} was called without {', '.join(missing)}. Its signature is "
                f"{self.name}{self.signature}."
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
    """The positions of inputs that can be given by name: their names are unique.

    A name that is not an identifier can still be given as ``f(**{"sigma-log": x})``, the form of PyMC's
    points.
    """
    counts = Counter(i.name for i in inputs)
    return {i.name: k for k, i in enumerate(inputs) if i.name and counts[i.name] == 1}
