"""Calls of a function of variables with fresh symbols, for derivatives with respect to some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Variable

from loopax.base.errors import LoopTypeError
from loopax.frontend.loops.leaves import as_variable, variables_of
from loopax.frontend.loops.trees import flatten, leaf_names
from loopax.frontend.mistakes import explained, name_of
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.named_axes import without_names
from loopax.ir.replace import replaced


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[str], Any]:
    """The leaves of a call's arguments as variables, their names, and the structure of both."""
    leaves, tree = flatten((args, kwargs))
    names = [f"args{n}" for n in leaf_names(args)] + [f"kwargs{n}" for n in leaf_names(kwargs)]
    return [as_variable(x, n) for x, n in zip(leaves, names, strict=True)], names, tree


@dataclass(frozen=True)
class Symbols:
    """The arguments of a call, and the symbols that stand for them."""

    # The leaves of the arguments as variables, their names for errors, and their symbols.
    leaves: list[Any]
    names: list[str]
    roots: list[Any]
    # The symbols in the structure of the arguments.
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # The symbols and the structure of each argument to differentiate with respect to.
    chosen: list[tuple[list[Any], Any]]
    single: bool  # whether ``argnums`` was a number, not a tuple

    @classmethod
    def of(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any], argnums: int | Sequence[int], label: str
    ) -> Symbols:
        """The symbols of a call; ``label`` names the derivative in an error.

        Raises `LoopTypeError` if there is no such argument, or it is not a float.
        """
        leaves, names, tree = arguments(args, kwargs)
        roots = [x.type() for x in leaves]
        symbols, by_name = tree.build(roots)
        single = isinstance(argnums, int)
        numbers = [argnums] if isinstance(argnums, int) else list(argnums)
        for k in numbers:
            if not (isinstance(k, int) and -len(args) <= k < len(args)):
                positions = ", ".join(f"{j}" for j in range(len(args)))
                raise LoopTypeError(
                    f"argnums has {k!r}, but there are {len(args)} arguments. argnums takes their "
                    f"positions, {positions}."
                )
        chosen = [flatten(symbols[k]) for k in numbers]
        instance = cls(leaves, names, roots, symbols, by_name, chosen, single)
        for v in instance.wrt:
            if not is_float(v):
                name = names[roots.index(v)]
                raise LoopTypeError(
                    f"{label} with respect to {name}, which is {v.type}: only tensors of floats have a "
                    "gradient. Convert it first, x.astype('float64'), or leave it out of argnums."
                )
        return instance

    @property
    def wrt(self) -> list[Any]:
        """The symbols to differentiate with respect to."""
        return [v for variables, _ in self.chosen for v in variables]

    def called(self, f: Callable[..., Any]) -> Any:
        with explained(name_of(f)):
            return f(*self.args, **self.kwargs)

    def value(self, f: Callable[..., Any], has_aux: bool) -> tuple[Any, list[Any], Any]:
        """The float scalar that ``f`` returns, with the leaves and structure of its auxiliary result."""
        with explained(name_of(f)):
            value = without_names(f(*self.args, **self.kwargs))
        aux: Any = None
        if has_aux:
            if not (isinstance(value, tuple) and len(value) == 2):
                raise LoopTypeError(
                    f"With has_aux=True the function returns (value, aux); it returned {value!r}."
                )
            value, aux = value
        if not isinstance(value, Variable) or getattr(value.type, "ndim", None) != 0:
            description = value.type if isinstance(value, Variable) else repr(value)
            raise LoopTypeError(
                "grad takes a function that returns one float scalar, but this one returned "
                f"{description}. Reduce the result, (y ** 2).sum() for example, or return the rest as "
                "aux, with has_aux=True."
            )
        if not is_float(value):
            raise LoopTypeError(
                "grad takes a function that returns one float scalar, but this one returned "
                f"{value.type}, which has no gradient. Convert it, y.astype('float64')."
            )
        leaves, tree = flatten(aux)
        return value, [as_variable(x, "aux") for x in leaves], tree

    def outputs(self, f: Callable[..., Any], label: str) -> tuple[list[Any], Any]:
        """The leaves of the result of ``f``, tensors of floats, and their structure.

        Raises `LoopTypeError` if a leaf is not a float.
        """
        outs, names, tree = variables_of(self.called(f), "result")
        for v, name in zip(outs, names, strict=True):
            if not is_float(v):
                raise LoopTypeError(
                    f"{label} of {name}, which is {v.type}: only tensors of floats have derivatives. "
                    "Convert it, y.astype('float64'), or return it from a separate function."
                )
        return outs, tree

    def placed(self, variables: Sequence[Variable]) -> list[Any]:
        """Move ``variables``, which depend on the symbols, to the arguments."""
        return replaced(variables, dict(zip(self.roots, self.leaves, strict=True)))

    def built(self, values: Sequence[Variable]) -> Any:
        """Put ``values``, one for each of `wrt`, into the structure of the arguments in ``argnums``."""
        remaining = iter(values)
        arguments = [
            tree.build([next(remaining) for _ in variables]) for variables, tree in self.chosen
        ]
        return arguments[0] if self.single else tuple(arguments)
