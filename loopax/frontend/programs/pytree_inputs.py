"""Inputs in pytrees: an argument of a program may be a dict, list or dataclass of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from inspect import Parameter, Signature
from typing import Any

from pytensor.compile.io import In
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from loopax.base.errors import LoopTypeError, StatefulFunctionError
from loopax.frontend.loops.trees import Tree, flatten
from loopax.frontend.programs.read import read_variables, variable_of
from loopax.ir.program import Program


def has_pytrees(inputs: object) -> bool:
    """Whether an argument is a pytree other than a single variable."""
    return any(not isinstance(x, In) and _is_pytree(x) for x in _arguments(inputs))


def _arguments(inputs: object) -> list[Any]:
    """The arguments as a list: a dict is one argument, a list has several."""
    return list(inputs) if isinstance(inputs, list | tuple) else [inputs]


def _is_pytree(x: object) -> bool:
    if isinstance(x, Variable):
        return False
    leaves, _ = flatten(x)
    return bool(leaves) and all(isinstance(leaf, Variable) for leaf in leaves)


def signature_of(arguments: Sequence[Any]) -> Signature:
    """The signature of a function of ``arguments``, by their names; ``arg2`` if one has none."""
    names = [getattr(x, "name", None) for x in arguments]
    kind = Parameter.POSITIONAL_OR_KEYWORD
    return Signature(
        [Parameter(n if n and n.isidentifier() else f"arg{k}", kind) for k, n in enumerate(names)]
    )


@dataclass(frozen=True, eq=False)
class PytreeInputs:
    """A program with ``inputs`` in pytrees; called with variables it returns its outputs at these.

    Raises
    ------
    LoopTypeError
        The arguments of a call have another structure.
    StatefulFunctionError
        It is called with variables, and has updates.
    """

    inputs: Any
    outputs: Any
    updates: Any
    givens: Any
    name: str | None

    @property
    def __name__(self) -> str:
        return self.name or "program"

    @cached_property
    def __signature__(self) -> Signature:
        return signature_of(_arguments(self.inputs))

    @cached_property
    def _flat(self) -> tuple[list[Any], Tree]:
        return flatten(tuple(map(variable_of, _arguments(self.inputs))))

    def __getstate__(self) -> dict[str, Any]:
        return {
            f.name: getattr(self, f.name) for f in fields(self)
        }  # other attributes are computed from these

    def program(self) -> Program:
        """The program from the leaves of the arguments."""
        return read_variables(self._flat[0], self.outputs, self.updates, self.givens, self.name)

    def numbered(self) -> tuple[Any, ...]:
        """The arguments with the numbers of the program's inputs in place of their leaves."""
        leaves, tree = self._flat
        return tree.build(list(range(len(leaves))))

    def leaves_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call's arguments; a list of numbers in place of a vector is one leaf."""
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        _, tree = self._flat
        values = tuple(bound.arguments.values())
        try:
            return tree.leaves_of(values)
        except (ValueError, AttributeError) as error:
            raise LoopTypeError(
                f"The arguments of {self.__name__} have the structure {tree.treedef}, the arguments of "
                f"the call {flatten(values)[1].treedef}: {error}"
            ) from None

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self.updates:
            raise StatefulFunctionError(
                f"{self.__name__} updates shared variables, so it has no derivative and takes no "
                "batch. Make a function of the outputs alone: jaxify(inputs, y)."
            )
        variables, _ = self._flat
        replaced = {
            v: v.type.filter_variable(x)
            for v, x in zip(variables, self.leaves_of(args, kwargs), strict=True)
        }
        leaves, tree = flatten(self.outputs)
        if self.givens:
            leaves = clone_replace(leaves, dict(self.givens), rebuild_strict=False)
        return tree.build(clone_replace(leaves, replaced, rebuild_strict=False))
