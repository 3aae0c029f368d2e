"""An exception of native code as XLA's error.

Numba describes an exception by a pickle in the program's constants. It is read by Python, which a handler
calls for this alone: then the program has ended, and what it would have computed is not waited for.
"""

from __future__ import annotations

import ctypes
import pickle

from loopax.base.upstream.numba import llvm
from loopax.kernels.ffi.call_frame import API

SYMBOL = "loopax_xla_error"  # by which native code calls `_xla_error`

_ERROR_CREATE = 48  # bytes from the beginning of XLA_FFI_Api
_INVALID_ARGUMENT, _INTERNAL = 3, 13  # XLA's codes, those of absl

OTHER_SHAPE = -1  # the size of a pickle that is none: a result has another shape than XLA expects

STOPPED = 2  # a failure of a row that is none of XLA's: Python raises when it runs again


class _ErrorCreate(ctypes.Structure):
    """XLA_FFI_Error_Create_Args."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("errc", ctypes.c_int32),
    )


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
def _xla_error(frame: int, pickled: int, size: int) -> int:
    """The address of a new error that belongs to XLA. See `message` for the other arguments."""
    code = _INTERNAL if size == OTHER_SHAPE else _INVALID_ARGUMENT
    api = ctypes.c_int64.from_address(frame + API).value
    create = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(_ErrorCreate))(
        ctypes.c_int64.from_address(api + _ERROR_CREATE).value
    )
    said = _message(pickled, size).encode()
    return create(ctypes.byref(_ErrorCreate(ctypes.sizeof(_ErrorCreate), None, said, code)))


def _message(pickled: int, size: int) -> str:
    """What Numba's pickle at an address says; nothing may be raised here."""
    if size == OTHER_SHAPE:
        return "a native program made a result of another shape than was found while JAX traced it"
    try:
        error, arguments, *_ = pickle.loads(ctypes.string_at(pickled, size))
        said = ", ".join(map(str, arguments or ()))
        return f"{error.__name__}: {said}" if said else error.__name__
    except Exception:  # of an op of somebody else's, raised with what it computed
        return "a native program has raised an error"


llvm.add_symbol(SYMBOL, ctypes.cast(_xla_error, ctypes.c_void_p).value)
