"""Convert an exception of native code to XLA's error.

Numba describes an exception by a pickle in the program's constants. A handler calls Python only to
read it: the program has ended by then, and nothing waits for its results.
"""

from __future__ import annotations

import ctypes
import pickle

from loopax.base.upstream.numba import llvm
from loopax.kernels.ffi.call_frame import API

SYMBOL = "loopax_xla_error"  # the symbol under which native code calls `_xla_error`

_ERROR_CREATE = 48  # bytes from the beginning of XLA_FFI_Api
_INVALID_ARGUMENT, _INTERNAL = 3, 13  # XLA's error codes, which are absl's

OTHER_SHAPE = -1  # instead of a pickle's size: a result has another shape than XLA expects

STOPPED = 2  # a failed row without an XLA error: Python raises when it runs the row again


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
    """The address of a new error that XLA owns. See `_message` for the other arguments."""
    code = _INTERNAL if size == OTHER_SHAPE else _INVALID_ARGUMENT
    api = ctypes.c_int64.from_address(frame + API).value
    create = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(_ErrorCreate))(
        ctypes.c_int64.from_address(api + _ERROR_CREATE).value
    )
    message = _message(pickled, size).encode()
    return create(ctypes.byref(_ErrorCreate(ctypes.sizeof(_ErrorCreate), None, message, code)))


def _message(pickled: int, size: int) -> str:
    """The message of the exception that Numba pickled at an address; it must not raise."""
    if size == OTHER_SHAPE:
        return (
            "a native program made a result of another shape than while JAX traced it: a slice "
            "x[i:i + n] that crosses an end, for example, is shorter"
        )
    try:
        error, arguments, *_ = pickle.loads(ctypes.string_at(pickled, size))
        details = ", ".join(map(str, arguments or ()))
        return f"{error.__name__}: {details}" if details else error.__name__
    except Exception:  # another library's op may raise with values that do not unpickle
        return "a native program has raised an error"


llvm.add_symbol(SYMBOL, ctypes.cast(_xla_error, ctypes.c_void_p).value)
