"""A program as text: statements, of which some hold functions, over inputs that have values.

The text is the program. A graph is made of it by running it (`tests.random_programs.building`), and a
person who pastes what `source` gives has what was run. All names are different, bodies included, and of the
form ``v12``: what a statement reads is found by looking for names.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

NAME = re.compile(r"\b[vxspf]\d+\b")


@dataclass(frozen=True)
class Function:
    """``def name(params): body; return returns``, written in front of the statement that has it."""

    name: str
    params: tuple[str, ...]
    body: tuple["Statement", ...]
    returns: str


@dataclass(frozen=True)
class Statement:
    """``targets = code``. The kind is what the counts are by."""

    kind: str
    targets: tuple[str, ...]
    code: str
    functions: tuple[Function, ...] = ()


@dataclass(frozen=True)
class Input:
    """A variable with a value: what its type says of the shape, and whether it is shared."""

    name: str
    value: np.ndarray
    shape: tuple[int | None, ...]
    shared: bool = False

    @property
    def makes_shapes(self) -> bool:
        """Whether it is a number that lengths are made of: static under jit, the same in a batch."""
        return self.value.ndim == 0 and self.value.dtype == np.int64 and not self.shared


@dataclass(frozen=True)
class Program:
    """What is run: ``updates`` are pairs of a shared variable and its next value."""

    seed: int
    inputs: tuple[Input, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    updates: tuple[tuple[str, str], ...] = ()
    features: Mapping[str, int] = field(default_factory=dict, compare=False)

    def with_seed(self, seed: int) -> "Program":
        return replace(self, seed=seed)

    @property
    def given(self) -> list[Input]:
        return [x for x in self.inputs if not x.shared]

    @property
    def shared(self) -> list[Input]:
        return [x for x in self.inputs if x.shared]


# -- text --------------------------------------------------------------------------------------------

HEADER = """\
import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy import array, inf, nan

import loopax
from tests.random_programs.building import OpFromGraph, ifelse, sparse, typed_list
"""


def literal(x: Any) -> str:
    """``np.array(...)`` that makes ``x`` again, of every dtype, bit by bit."""
    x = np.asarray(x)
    with np.printoptions(threshold=10**6, floatmode="unique", linewidth=10**6):
        values = np.array2string(x, separator=", ").replace("\n", "")
    if not x.size:
        return f"np.zeros({x.shape}, {str(x.dtype)!r})"
    return f"np.array({values}, {str(x.dtype)!r})"


def lines(statements: tuple[Statement, ...], indent: str = "") -> Iterator[str]:
    for s in statements:
        for f in s.functions:
            yield f"{indent}def {f.name}({', '.join(f.params)}):"
            yield from lines(f.body, indent + "    ")
            yield f"{indent}    return {f.returns}"
        yield f"{indent}{', '.join(s.targets)} = {s.code}"


def declaration(x: Input) -> str:
    if x.shared:
        return f"{x.name} = pytensor.shared({literal(x.value)}, name={x.name!r})"
    kind = f"{x.name!r}, dtype={str(x.value.dtype)!r}, shape={x.shape!r}"
    return f"{x.name} = pt.tensor({kind})"


def source(program: Program) -> str:
    """The program as a person can paste it."""
    text = [HEADER, *map(declaration, program.inputs), *lines(program.statements)]
    text += [
        f"inputs = [{', '.join(x.name for x in program.given)}]",
        f"outputs = [{', '.join(program.outputs)}]",
        f"values = [{', '.join(literal(x.value) for x in program.given)}]",
    ]
    if program.updates:
        text.append(f"updates = {{{', '.join(f'{s}: {v}' for s, v in program.updates)}}}")
    return "\n".join(text) + "\n"


# -- what is read ------------------------------------------------------------------------------------


def reads(statement: Statement) -> set[str]:
    """The names that a statement reads, its functions included."""
    names = set(NAME.findall(statement.code))
    for f in statement.functions:
        inner = set(NAME.findall(f.returns)).union(*map(reads, f.body))
        names |= inner - {*f.params}.union(*(s.targets for s in f.body))
        names.discard(f.name)
    return names


def needed(statements: tuple[Statement, ...], names: set[str]) -> tuple[Statement, ...]:
    """The statements that ``names`` follow from, those of bodies alike."""
    kept: list[Statement] = []
    names = set(names)
    for s in reversed(statements):
        if names.isdisjoint(s.targets):
            continue
        functions = tuple(
            Function(f.name, f.params, needed(f.body, set(NAME.findall(f.returns))), f.returns)
            for f in s.functions
        )
        kept.append(Statement(s.kind, s.targets, s.code, functions))
        names |= reads(kept[-1])
    return tuple(reversed(kept))


def trimmed(program: Program) -> Program:
    """Without what no output follows from."""
    names = {*program.outputs, *(v for _, v in program.updates)}
    statements = needed(program.statements, names)
    names |= {s for s, _ in program.updates}.union(*map(reads, statements))
    inputs = tuple(x for x in program.inputs if x.name in names)
    return replace(program, inputs=inputs, statements=statements)
