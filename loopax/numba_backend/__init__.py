"""IR -> Numba: ops of the IR in PyTensor's own Numba mode, and programs as one native function.

Importing this package does not import Numba, which takes half a second.
"""

from typing import Any

from loopax.numba_backend.callable.backend import NUMBA
from loopax.numba_backend.callable.context import NumbaContext
from loopax.numba_backend.callable.function import NumbaFunction
from loopax.numba_backend.pytensor_mode.registration import register_with_pytensor


def __getattr__(name: str) -> Any:
    if name in ("NativeProgram", "compile_program"):
        from loopax.numba_backend.callable import program

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
