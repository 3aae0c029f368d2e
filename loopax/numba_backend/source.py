"""Python source that Numba compiles: a writer of lines, and the way from text to a function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


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
        self.lines = [f"def {name}({', '.join(args)}):"]
        self.depth = 1
        self._taken: dict[str, int] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, hint: str) -> str:
        """A name that no earlier call gave."""
        self._taken[hint] = self._taken.get(hint, -1) + 1
        return f"{hint}{self._taken[hint]}"

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def function(self, namespace: dict[str, Any]) -> Any:
        """The function, with ``namespace`` for its globals. Its source is in ``__source__``."""
        from pytensor.link.numba.cache import compile_numba_function_src

        # Numba loads a function from its cache by the module that its globals name.
        return compile_numba_function_src(str(self), self.name, {"__name__": __name__, **namespace})


def tuple_of(names: Sequence[str]) -> str:
    """``(a, b)``, ``(a,)``, ``()``."""
    return f"({', '.join(names)}{',' * (len(names) == 1)})"
