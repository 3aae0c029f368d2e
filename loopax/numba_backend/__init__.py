"""IR -> Numba: the ops of the IR in PyTensor's own Numba mode, and programs as one native function.

Importing this package does not import Numba, which takes half a second.
"""

from typing import Any

from loopax.numba_backend.backend import NUMBA
from loopax.numba_backend.context import NumbaContext
from loopax.numba_backend.function import NumbaFunction
from loopax.numba_backend.registration import register_with_pytensor


def __getattr__(name: str) -> Any:
    if name in ("NativeProgram", "compile_program"):
        from loopax.numba_backend import program

        return getattr(program, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "NUMBA",
    "NativeProgram",
    "NumbaContext",
    "NumbaFunction",
    "compile_program",
    "register_with_pytensor",
]
