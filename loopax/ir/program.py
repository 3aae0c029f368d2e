"""``Program``: a graph with its front door: named inputs, shared values, the structure it returns.

The front end makes one, the passes rewrite its graph, the backends run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytensor.graph.basic import Variable, clone
from pytensor.graph.fg import FunctionGraph


@dataclass(frozen=True)
class Input:
    """One argument of the callable; one that is ``donated`` is not used by the caller again."""

    variable: Variable
    name: str | None
    donated: bool = False


@dataclass(frozen=True)
class Shared:
    """A value that PyTensor keeps: ``storage[0]`` is what it is now.

    The storage is read at every call and nothing of it is kept: PyTensor's functions change the
    array in it in place. All variables that stand for one shared variable have the same storage.
    """

    variable: Variable
    storage: list[Any]

    @property
    def value(self) -> Any:
        return self.storage[0]


@dataclass
class Program:
    """What a front end makes of ``fn``.

    ``graph``'s inputs are those of ``inputs``, then those of ``shared``, in order. Its outputs are
    the leaves of what the callable returns, which ``build`` puts into their structure, and then the
    next values of ``shared[k]`` for the ``k`` in ``updates``. ``as_read`` has the inputs and outputs
    of a copy from before the first pass, if somebody made one: derivatives are taken of it. With
    ``has_flag`` the last output is one more, whether a value of the program is nan or infinite.
    ``watching`` has the inputs and outputs of a copy in which values are watched, if there is one; in
    ``graph`` none are.
    """

    graph: FunctionGraph
    inputs: tuple[Input, ...]
    shared: tuple[Shared, ...]
    build: Callable[[Any], Any]
    name: str = "program"
    doc: str | None = None
    updates: tuple[int, ...] = ()
    as_read: tuple[list[Variable], list[Variable]] | None = None
    has_flag: bool = False
    watching: tuple[list[Variable], list[Variable]] | None = None

    @property
    def n_returned(self) -> int:
        return len(self.graph.outputs) - len(self.updates) - self.has_flag

    def before_passes(self) -> Program:
        """The program as it was before the first pass, which ``as_read`` keeps: a copy to be lowered."""
        assert self.as_read is not None
        return self.with_graph(FunctionGraph(*clone(*self.as_read), clone=False))

    def with_watches(self) -> Program:
        """A copy of the program from before its passes, in which values are watched, to be built anew."""
        found = self.watching
        if found is None:
            assert self.as_read is not None
            outputs = self.as_read[1]
            found = self.as_read[0], outputs[: len(outputs) - self.has_flag]
        new = self.with_graph(FunctionGraph(*clone(*found), clone=False))
        return replace(new, as_read=None, has_flag=False, watching=None)

    def with_graph(self, graph: FunctionGraph) -> Program:
        """The program with another ``graph``, whose inputs and outputs stand for those of this one."""
        n = len(self.inputs)
        return replace(
            self,
            graph=graph,
            inputs=tuple(
                replace(i, variable=v) for i, v in zip(self.inputs, graph.inputs[:n], strict=True)
            ),
            shared=tuple(
                replace(s, variable=v) for s, v in zip(self.shared, graph.inputs[n:], strict=True)
            ),
        )

    @property
    def shared_names(self) -> tuple[str, ...]:
        return unique_names(self.shared)


def unique_names(shared: Sequence[Shared]) -> tuple[str, ...]:
    """A name for each: its variable's, or ``shared``; a second one of that name gets ``_1``, and so on.

    A name that a variable has as its own is never given to another one.
    """
    wanted = [s.variable.name or "shared" for s in shared]
    taken = set(wanted)
    found: list[str] = []
    for name in wanted:
        k, new = 0, name
        while new in found or (k and new in taken):
            k, new = k + 1, f"{name}_{k + 1}"
        found.append(new)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class EarlyPart:
    """A program in two parts.

    ``early`` computes, of the shared variables at ``reads``, values that are the last inputs of ``rest``.
    Before these ``rest`` has the program's inputs, and the shared variables at ``left``.
    """

    early: FunctionGraph
    reads: tuple[int, ...]
    rest: FunctionGraph
    left: tuple[int, ...]
