"""``Program``: a graph with its front door: named inputs, shared values, the structure it returns.

The front end makes one, the passes rewrite its graph, the backends run it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph


@dataclass(frozen=True)
class Input:
    """One argument of the callable."""

    variable: Variable
    name: str | None


@dataclass(frozen=True)
class Shared:
    """A value that PyTensor keeps: ``storage[0]`` is what it is now.

    The storage is read at every call and nothing of it is kept: PyTensor's functions change the
    array in it in place.
    """

    variable: Variable
    storage: list[Any]

    @property
    def value(self) -> Any:
        return self.storage[0]


@dataclass
class Program:
    """What a front end makes of ``fn``.

    ``graph``'s inputs are those of ``inputs``, then those of ``shared``, in order; its outputs are
    the leaves of what the callable returns, which ``build`` puts into their structure.
    """

    graph: FunctionGraph
    inputs: tuple[Input, ...]
    shared: tuple[Shared, ...]
    build: Callable[[Any], Any]
    name: str = "program"
    doc: str | None = None
    updated: tuple[str, ...] = field(default=())  # names of the shared variables that it updates
