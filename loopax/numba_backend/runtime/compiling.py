"""How Numba compiles functions: those that native code alone calls, and those that somebody waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from numba import njit
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager

from loopax.ir.collection import uncollected
from loopax.ir.waiting import waiting

# Without the wrappers by which Python and C call a function, which take as long to compile as the function:
# 18 ms instead of 61 for one of numbers, 65 instead of 140 for one of arrays. A call from Python would end
# the process; that of its ``py_func`` does not.
njit_inner = partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True)

# Of Numba's passes, what an emitted function has no use for: it has no functions in it, no expressions of
# arrays, and no local that changes its type. A third of the time of a hidden Markov chain's gradient, of
# 775 lines and 80 loops.
_OMITTED = {"InlineClosureLikes", "NopythonRewrites", "ReconstructSSA"}


class EmittedCode(CompilerBase):
    """Numba's compiler for functions that the emitter writes: ``njit(pipeline_class=EmittedCode)``."""

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("loopax")
        for part in (
            DefaultPassBuilder.define_untyped_pipeline,
            DefaultPassBuilder.define_typed_pipeline,
            DefaultPassBuilder.define_nopython_lowering_pipeline,
        ):
            passes.passes.extend(
                one for one in part(self.state).passes if one[0].__name__ not in _OMITTED
            )
        passes.finalize()
        return [passes]


def waited_for(dispatcher: Any) -> Any:
    """``dispatcher``, which says that it is waited for while it compiles, or reads what it has on disk.

    Numba's own events tell of all that is compiled in a process, and would have to be asked for on import.
    """
    dispatcher.compile = _said(dispatcher.compile, dispatcher.py_func)
    return dispatcher


def _said(compile_: Any, function: Any) -> Any:
    @wraps(compile_)
    def compile_and_say(signature: Any) -> Any:
        with compilation_of(function):
            return compile_(signature)

    return compile_and_say


@contextmanager
def compilation_of(function: Any) -> Iterator[None]:
    """In the block somebody waits for ``function``."""
    with uncollected(), waiting(f"native code{_lines_of(function)}"):
        yield


def _lines_of(function: Any) -> str:
    """How long the source of ``function`` is, in words, if it is one of ours."""
    source = getattr(function, "__source__", None)
    return f" of {source.count(chr(10)) + 1} lines" if source else ""
