"""Constants of a function: literals in its text, or globals."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType

from loopax.ir.ops.trace import TraceType
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.expressions import Expr, literal, local
from loopax.numba_backend.emit.statements import Function
from loopax.numba_backend.emit.storage import Storage
from loopax.numba_backend.emit.values import Array, Rows, Small, Value, indices_of


class Constants(Storage):
    """A `Storage` with the constants of its function."""

    def __init__(self, source: Function, largest: int) -> None:
        super().__init__(source, largest)
        self._constants: dict[Any, Expr] = {}  # arrays by content

    def constant(self, v: Constant) -> Value:
        """A constant: literals, or an array that is a global of the function."""
        data = np.asarray(v.data)
        if self.is_small(data.shape):
            elements = np.empty(data.shape, dtype=object)
            for at in indices_of(data.shape):
                elements[at] = literal(data[at])
            return Small(elements, str(data.dtype))
        return self.constant_array(data)

    def constant_array(self, data: np.ndarray) -> Array:
        """Add a constant array to the globals of the function."""
        key = (data.shape, str(data.dtype), data.tobytes())
        if key not in self._constants:
            self._constants[key] = local(self.bind(np.ascontiguousarray(data), "const"))
        return Array(self._constants[key], data.shape, str(data.dtype), compact=True)

    def constant_data(self, value: Value) -> np.ndarray | None:
        """The data of the array ``value`` where it is a constant, else None."""
        data = self.namespace.get(value.name.text) if isinstance(value, Array) else None
        return data if isinstance(data, np.ndarray) else None

    def constant_value(self, v: Constant) -> Any:
        if on_numbers(v):
            return self.constant(v)
        if isinstance(v.type, TraceType) and not v.data and on_numbers(v.type.ttype()):
            return self.no_rows(v)
        return opaque.constant(self, v) if opaque.needs_local(v.type) else v.data

    def no_rows(self, v: Variable) -> Rows:
        """An empty trace, which a loop is about to fill."""
        row = v.type.ttype
        name = self.empty([0] * (row.ndim + 1), row.dtype, "rows")
        return Rows(name, self.temp(0, "n"), row.ndim, row.dtype)


def on_numbers(v: Variable) -> bool:
    return isinstance(v.type, DenseTensorType | ScalarType)
