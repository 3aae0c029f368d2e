"""From text to a compiled function. `statements` is how the text of a program comes about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from numba import njit

from loopax.base.compiling.pipeline import EmittedCode, InnerEmittedCode, njit_inner
from loopax.base.compiling.waited_for import waited_for


class Source:
    """The text of a function around a program, written line by line.

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
        self._lines = [f"def {name}({', '.join(args)}):"]
        self._depth = 1

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def __str__(self) -> str:
        return "\n".join(self._lines)

    def function(self, namespace: Mapping[str, Any]) -> Any:
        """It as Python's, with ``namespace`` for its globals."""
        return function_of(str(self), self.name, namespace)


def tuple_of(names: Sequence[str]) -> str:
    """``(a, b)``, ``(a,)``, ``()``."""
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def function_of(
    text: str, name: str, namespace: Mapping[str, Any], keys: Mapping[str, str] | None = None
) -> Any:
    """The function ``name`` of a source, with ``namespace`` for its globals.

    Its source is in ``__source__``, in ``__keys__`` what stands for globals in the key of the cache.
    """
    from pytensor.link.numba.cache import compile_numba_function_src

    # Numba loads a function from its cache by the module that its globals name.
    function: Any = compile_numba_function_src(text, name, {"__name__": __name__, **namespace})
    function.__keys__ = dict(keys or {})
    return function


def compiled(function: Any, inner: bool = False) -> Any:
    """``function``, compiled when it is called first.

    It divides as NumPy does: without a check for zero, which costs a sixth of a GARCH likelihood.
    Native code alone calls it if it is ``inner``, else Python does; nobody has its address, as C would.
    Python's other threads go on while it runs: to release the interpreter's lock takes 0.07 us a call.
    """
    options: dict[str, Any] = {"error_model": "numpy"}
    if inner:
        return njit_inner(function, pipeline_class=InnerEmittedCode, **options)
    options |= {"no_cfunc_wrapper": True, "nogil": True}
    return waited_for(njit(function, pipeline_class=EmittedCode, **options))
