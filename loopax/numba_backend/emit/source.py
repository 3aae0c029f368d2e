"""Python source that Numba compiles: a writer of lines, and the way from text to a function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from numba import njit

from loopax.numba_backend.compiling.pipeline import EmittedCode, InnerEmittedCode, njit_inner
from loopax.numba_backend.compiling.waited_for import waited_for


@dataclass
class Slot:
    """A place between two lines, into which lines are put later on.

    With a ``head`` they are the inside of a block, which is left out where there are none.
    """

    depth: int
    head: str | None = None
    lines: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append("    " * (self.depth + (self.head is not None)) + text)

    def written(self) -> list[str]:
        if self.head is None or not self.lines:
            return self.lines
        return ["    " * self.depth + self.head, *self.lines]


class Source:
    """The source of one function, written line by line.

    >>> double = Source("double", ["x"])
    >>> with double.block("if x > 0:"):
    ...     double.line("x = 2 * x")
    >>> double.line("return x")
    >>> print(double)
    def double(x):
        if x > 0:
            x = 2 * x
        return x
    """

    def __init__(self, name: str, args: Sequence[str]) -> None:
        self.name = name
        self._parts: list[str | Slot] = [f"def {name}({', '.join(args)}):"]
        self.depth = 1
        self.written = 0  # lines, those taken away again included
        self._args = {*args}
        self._taken: dict[str, int] = {}

    @property
    def lines(self) -> list[str]:
        parts = ([p] if isinstance(p, str) else p.written() for p in self._parts)
        return [line for part in parts for line in part]

    def line(self, text: str) -> None:
        self.written += 1
        self._parts.append("    " * self.depth + text)

    def slot(self, head: str | None = None) -> Slot:
        """A place here for lines that are known later."""
        slot = Slot(self.depth, head)
        self._parts.append(slot)
        return slot

    def mark(self) -> Any:
        """What `reset` goes back to: the lines that are there now."""
        slots = [(p, len(p.lines)) for p in self._parts if isinstance(p, Slot)]
        return len(self._parts), slots

    def reset(self, mark: Any) -> None:
        """Take away what was written since ``mark``. Names that were taken stay taken."""
        n, slots = mark
        del self._parts[n:]
        for slot, count in slots:
            del slot.lines[count:]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        start = len(self._parts)
        yield
        if not any(isinstance(part, str) for part in self._parts[start:]):
            self.line("pass")
        self.depth -= 1

    def fresh(self, hint: str) -> str:
        """A name that no earlier call gave."""
        self._taken[hint] = self._taken.get(hint, -1) + 1
        name = f"{hint}{self._taken[hint]}"
        return self.fresh(hint) if name in self._args else name

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def function(self, namespace: dict[str, Any], keys: Mapping[str, str] | None = None) -> Any:
        """The function, with ``namespace`` for its globals.

        Its source is in ``__source__``, in ``__keys__`` what stands for globals in the key of the cache.
        """
        from pytensor.link.numba.cache import compile_numba_function_src

        # Numba loads a function from its cache by the module that its globals name.
        namespace = {"__name__": __name__, **namespace}
        function: Any = compile_numba_function_src(str(self), self.name, namespace)
        function.__keys__ = dict(keys or {})
        return function


def tuple_of(names: Sequence[str]) -> str:
    """``(a, b)``, ``(a,)``, ``()``."""
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def compiled(function: Any, inner: bool = False) -> Any:
    """``function``, compiled when it is called first.

    It divides as NumPy does: without a check for zero, which costs a sixth of a GARCH likelihood.
    Native code alone calls it if it is ``inner``, else Python does; nobody has its address, as C would.
    """
    options: dict[str, Any] = {"error_model": "numpy"}
    if inner:
        return njit_inner(function, pipeline_class=InnerEmittedCode, **options)
    return waited_for(njit(function, pipeline_class=EmittedCode, no_cfunc_wrapper=True, **options))
