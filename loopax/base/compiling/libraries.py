"""Optimize LLVM code once, in the function that Python or XLA calls, with its callees linked in.

Numba optimizes each function when it is compiled, emits machine code for it, and does both again in
each function that calls it. (LLVM's first passes still run on every function: without them, a
factorization took 1.1 of the time.)

These first passes do not see the callees. They would unroll a loop over twenty elements with a call of
``exp``, as a call is one instruction, and leave no loop for vector code once the call is inlined: steps of
a planetary system took 2.1 of the time, the gradient of an LSTM 1.5. So they unroll no loops of programs.
"""

from __future__ import annotations

from typing import Any

from loopax.base.upstream.numba import JITCodeLibrary, optimize_without_unrolling


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """The code of a function that only native code calls, and that is linked into its callers.

    It has no address, at which Numba would store the function's environment; none of these functions
    reads one.
    """

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironments(self._codegen)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class EmittedLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """The code of a program that Python calls, which the cache on disk may store."""

    _optimize_functions = optimize_without_unrolling

    def __init__(self, codegen: object, name: str) -> None:
        super().__init__(codegen, name)
        self.enable_object_caching()


class InnerEmittedLibrary(InnerLibrary):
    """The code of a program that only native code calls."""

    _optimize_functions = optimize_without_unrolling


class _WithoutEnvironments:
    def __init__(self, codegen: object) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: object) -> None:
        pass
