"""Where LLVM optimizes: once, in the function that Python or XLA calls, with all that it calls in it.

Numba optimizes each function when it is compiled, makes machine code of it, and does both again in each
function that it becomes a part of. (The first passes, function by function, are run on all: without them, a
factorization took 1.1 of the time.)
"""

from __future__ import annotations

from typing import Any

from loopax.base.upstream.numba import JITCodeLibrary


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """Code of a function that other native code calls: a part of that, and nothing by itself.

    It has no address. Numba would write the function's environment, which none of these functions reads, to
    one of its own.
    """

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironments(self._codegen)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _WithoutEnvironments:
    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        pass
