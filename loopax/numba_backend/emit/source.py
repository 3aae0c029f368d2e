"""Compilation of the text of a function. `statements` generates the text of programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from numba import njit

from loopax.base.compiling.compile_status import with_status
from loopax.base.compiling.pipeline import EmittedCode, InnerEmittedCode, njit_inner


class Source:
    """The text of a wrapper function, written line by line.

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
        """Define the Python function, with the globals ``namespace``."""
        return function_of(str(self), self.name, namespace)


def tuple_of(names: Sequence[str]) -> str:
    """``(a, b)``, ``(a,)``, ``()``."""
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def function_of(
    text: str, name: str, namespace: Mapping[str, Any], keys: Mapping[str, str] | None = None
) -> Any:
    """Define the function ``name`` of a source, with the globals ``namespace``.

    Its source is in ``__source__``; ``__keys__`` has the keys of globals for the cache on disk.
    """
    from pytensor.link.numba.cache import compile_numba_function_src

    # Numba loads a function from its cache by the module that its globals name.
    function: Any = compile_numba_function_src(text, name, {"__name__": __name__, **namespace})
    function.__keys__ = dict(keys or {})
    return function


def compiled(function: Callable[..., Any], inner: bool = False) -> Any:
    """Compile ``function`` at its first call.

    It divides as NumPy does: without a check for zero, which costs a sixth of a GARCH likelihood.
    Native code alone calls an ``inner`` function, Python any other; none has a C address. Other Python
    threads run meanwhile: to release the interpreter's lock takes 0.07 us a call.
    """
    options: dict[str, Any] = {"error_model": "numpy"}
    if inner:
        return njit_inner(function, pipeline_class=InnerEmittedCode, **options)
    options |= {"no_cfunc_wrapper": True, "nogil": True}
    return with_status(njit(function, pipeline_class=EmittedCode, **options))
