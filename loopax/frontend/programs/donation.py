"""Donated inputs, `jaxify(..., donate=)`: from arguments by name or number to inputs of a `Program`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, TypeAlias

from pytensor.graph.basic import Variable

from loopax.base.errors import MissingInputError
from loopax.frontend.loops.trees import flatten
from loopax.frontend.programs.read import variable_of
from loopax.ir.program import Program

# What a user may write: inputs, their names or their numbers.
Donate: TypeAlias = (
    Variable | int | str | Sequence[Variable | int | str] | Set[Variable | int | str]
)
Donated = tuple[int | str, ...]  # arguments by their numbers and names


def donated_arguments(donate: Donate | None, inputs: object = ()) -> Donated:
    """Convert ``donate`` to numbers and names of arguments; variables become numbers in ``inputs``.

    Raises `MissingInputError` if a variable is not among ``inputs``; `TypeError` if an entry is not a
    variable, name or number.
    """
    if donate is None:
        return ()
    specs = list(inputs) if isinstance(inputs, Sequence) else [inputs]
    variables = [variable_of(v) for v in specs]
    arguments: list[int | str] = []
    entries: Iterable[object] = [donate]
    if isinstance(donate, Sequence | Set) and not isinstance(donate, str):
        entries = donate
    for entry in entries:
        if isinstance(entry, Variable):
            positions = [k for k, v in enumerate(variables) if v is entry]
            if not positions:
                raise MissingInputError(
                    f"donate has the variable {entry}, which is not an entry of the inputs. Pass "
                    "entries of that list, their names or their numbers: jaxify([x, y], z, donate=x)."
                )
            arguments += positions
        elif isinstance(entry, int | str) and not isinstance(entry, bool):
            arguments.append(entry)
        else:
            raise TypeError(
                f"donate takes inputs, their names or their numbers, one or several; got {entry!r} of "
                f"type {type(entry).__name__}. Write jaxify([x, y], z, donate=('x', 1))."
            )
    return tuple(arguments)


def donating(program: Program, arguments: Donated) -> Program:
    """Mark ``arguments`` of ``program``, each of whose inputs is an argument, as donated.

    Raises `MissingInputError` if there is no such input.
    """
    return _donating(program, _numbers(arguments, [i.name for i in program.inputs], program.name))


def donating_leaves(
    program: Program,
    arguments: Donated,
    fn: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, Any],
) -> Program:
    """Apply `donating` for a function ``fn`` with pytree arguments, where each leaf is an input.

    ``args`` and ``kwargs`` have the numbers of the inputs in place of the leaves.
    """
    names, chosen = _names(fn), arguments_of(fn, arguments)
    leaves = [x for k, x in enumerate(args) if k in chosen]
    leaves += [x for name, x in kwargs.items() if {name, _position(names, name)} & chosen]
    return _donating(program, flatten(leaves)[0])


def arguments_of(fn: Callable[..., Any], arguments: Donated) -> set[int | str]:
    """The donated ``arguments`` of ``fn``, by number, or by name if they have none.

    Raises `MissingInputError` if the function has no such argument.
    """
    parameters = signature(fn).parameters
    kinds = {p.kind for p in parameters.values()}
    by_name = [p.name for p in parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
    names, label = _names(fn), getattr(fn, "__name__", "the function")
    free = {
        x
        for x in arguments
        if x in by_name
        or (isinstance(x, int) and x >= len(names) and Parameter.VAR_POSITIONAL in kinds)
        or (isinstance(x, str) and x not in names and Parameter.VAR_KEYWORD in kinds)
    }
    return free | _numbers([x for x in arguments if x not in free], names, label)


def _names(fn: Callable[..., Any]) -> list[str]:
    numbered = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    return [p.name for p in signature(fn).parameters.values() if p.kind in numbered]


def _position(names: Sequence[str], name: str) -> int | None:
    return names.index(name) if name in names else None


def _numbers(arguments: Sequence[int | str], names: Sequence[str | None], label: str) -> set[Any]:
    numbers = set()
    for x in arguments:
        is_known = names.count(x) == 1 if isinstance(x, str) else -len(names) <= x < len(names)
        if not is_known:
            listed = ", ".join(f"{name!r} ({k})" for k, name in enumerate(names)) or "none"
            twice = ", more than once" if x in names else ""
            raise MissingInputError(
                f"donate has {x!r}, which is not an input of {label}{twice}. By name and number the "
                f"inputs are {listed}. To donate shared variables, donate their context: "
                "jax.jit(f.apply, donate_argnums=0)."
            )
        numbers.add(names.index(x) if isinstance(x, str) else x % len(names))
    return numbers


def _donating(program: Program, numbers: Collection[int]) -> Program:
    inputs = tuple(replace(i, donated=k in numbers) for k, i in enumerate(program.inputs))
    return replace(program, inputs=inputs)
