"""The call frame that XLA passes to a handler, and code that reads it.

The layout is defined in ``xla/ffi/api/c_api.h`` (its folder is ``jax.ffi.include_dir()``) on 64 bits. The
fields named here have the same offsets in all versions of the interface from 0.1 to 0.5: fields are only
ever added at the end of a struct.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopax.base.upstream.numba import ir

I32, I64 = ir.IntType(32), ir.IntType(64)

# Bytes from the beginning of XLA_FFI_CallFrame, ...
EXTENSION, API, CONTEXT, _ARGUMENTS, _RESULTS = 8, 16, 24, 72, 112
# ... of XLA_FFI_Buffer, ...
_DATA, _DIMENSIONS = 24, 40
# ... of XLA_FFI_Extension_Base, and of the XLA_FFI_Metadata that one of this type points to.
_EXTENSION_TYPE, _METADATA = 8, 24
_METADATA_TYPE = 1
_MAJOR, _MINOR, _TRAITS = 24, 28, 32

VERSION = (0, 1)  # the oldest version of the interface that has these fields


class CallFrame:
    """The call frame at ``address``, an i64."""

    def __init__(self, builder: ir.IRBuilder, address: ir.Value) -> None:
        self._builder = builder
        self._address = address

    def argument(self, k: int) -> Buffer:
        return Buffer(self._builder, self._load(self._load(self._address, _ARGUMENTS), 8 * k))

    def result(self, k: int) -> Buffer:
        return Buffer(self._builder, self._load(self._load(self._address, _RESULTS), 8 * k))

    @contextmanager
    def is_call(self) -> Iterator[None]:
        """A context for code that computes; calls that ask for metadata are answered before it."""
        builder = self._builder
        extension = self._load(self._address, EXTENSION)
        extended = builder.icmp_unsigned("!=", extension, I64(0))
        computes = builder.alloca(ir.IntType(1))
        builder.store(ir.IntType(1)(1), computes)
        with builder.if_then(extended, likely=False):
            kind = self._load(extension, _EXTENSION_TYPE, I32)
            with builder.if_then(builder.icmp_signed("==", kind, I32(_METADATA_TYPE))):
                metadata = self._load(extension, _METADATA)
                values = zip((_MAJOR, _MINOR, _TRAITS), (*VERSION, 0), strict=True)
                for offset, value in values:
                    builder.store(I32(value), pointer(builder, metadata, offset, I32))
                builder.store(ir.IntType(1)(0), computes)
        with builder.if_then(builder.load(computes), likely=True):
            yield

    def _load(self, base: ir.Value, offset: int, kind: ir.Type = I64) -> Any:
        return self._builder.load(pointer(self._builder, base, offset, kind))


class Buffer:
    """An array of a call frame, row-major and contiguous."""

    def __init__(self, builder: ir.IRBuilder, address: ir.Value) -> None:
        self._builder = builder
        self._address = address

    @property
    def data(self) -> Any:
        """The address of the first element, an i64."""
        return self._builder.load(pointer(self._builder, self._address, _DATA, I64))

    def length(self, axis: int) -> Any:
        """The length of ``axis``, an i64."""
        lengths = self._builder.load(pointer(self._builder, self._address, _DIMENSIONS, I64))
        return self._builder.load(pointer(self._builder, lengths, 8 * axis, I64))


def pointer(builder: ir.IRBuilder, base: ir.Value, offset: int, kind: ir.Type) -> Any:
    """The address ``base + offset``, as a pointer to ``kind``."""
    return builder.inttoptr(builder.add(base, I64(offset)), ir.PointerType(kind))
