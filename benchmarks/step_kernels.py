"""How many kernels a step of a compiled loop starts, from the text of what XLA has compiled.

What a loop's body has but for parameters, tuples and views of memory is a kernel, or a copy, each. XLA puts
several into a CUDA graph, a computation called ``command_buffer``: they are kernels still, but started by
one call.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# What starts nothing on the device, or only names what is inside of other computations.
_NO_KERNEL = frozenset(
    (
        *("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all"),
        *("while", "conditional", "call", "opt-barrier", "add-dependency", "partition-id"),
    )
)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_OPERATION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([a-z][\w\-]*)\(")
_INSIDE = re.compile(r"(?:body|to_apply|true_computation|false_computation)=%?([\w.\-]+)")


class Launches(NamedTuple):
    """Kernels of the steps of all loops together, and how many graphs some of them are in."""

    kernels: int
    graphs: int

    def __str__(self) -> str:
        return f"{self.kernels}" + (f" + {self.graphs} g" if self.graphs else "")


def launches_in_loops(text: str) -> Launches:
    """Of one step of each loop of a compiled program; of one loop inside of another a step, too."""
    computations = _computations(text)
    bodies = dict.fromkeys(
        body
        for lines in computations.values()
        for line in lines
        if _opcode(line) == "while"
        for body in re.findall(r"body=%?([\w.\-]+)", line)
    )
    launches = [_launches(body, computations) for body in bodies]
    return Launches(sum(n for n, _ in launches), sum(g for _, g in launches))


def _launches(name: str, computations: dict[str, list[str]]) -> tuple[int, int]:
    kernels = graphs = 0
    for line in computations.get(name, ()):
        opcode = _opcode(line)
        if opcode is None or opcode.endswith("-done"):
            continue
        kernels += opcode not in _NO_KERNEL
        if opcode in ("call", "conditional"):
            for inner in _INSIDE.findall(line):
                graphs += inner.startswith("command_buffer")
                more = _launches(inner, computations)
                kernels, graphs = kernels + more[0], graphs + more[1]
    return kernels, graphs


def _opcode(line: str) -> str | None:
    match = _OPERATION.match(line)
    return match[1] if match else None


def _computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation, by its name."""
    by_computation: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            lines = by_computation.setdefault(head[1], [])
        else:
            lines.append(line)
    return by_computation
