"""Traces of rows that are not tensors: typed lists, and conversions from and to tensors.

A trace is the list of rows that the steps of a loop emit. Where a row is a tensor the trace is
stacked along a leading axis; where it is anything else (a random generator, a list) the trace is a
`TraceType`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op, OutputStorageType
from pytensor.graph.type import Type
from pytensor.tensor.type import DenseTensorType, TensorType
from pytensor.typed_list.basic import TypedListConstant, TypedListVariable, make_list
from pytensor.typed_list.type import TypedListType

from loopax.base.upstream.pytensor import WithShapes


class TraceConstant(TypedListConstant):
    """A constant list that can be part of a body: PyTensor's own has no hash, and cannot be frozen."""

    def signature(self) -> Any:
        row = self.type.ttype
        return self.type, tuple(row.make_constant(x).signature() for x in self.data)


class TraceType(TypedListType):
    """A typed list of rows of type ``ttype``, as a loop emits them.

    The type of ``pytensor.typed_list`` has a Type as its ``dtype``, at which its gradients fail.
    """

    variable_type = TypedListVariable
    constant_type = TraceConstant

    def __init__(self, ttype: Type) -> None:
        super().__init__(ttype)

    @property
    def dtype(self) -> Any:
        return getattr(self.ttype, "dtype", "object")

    def is_super(self, otype: Type) -> bool | None:
        # PyTensor's own lists are traces too: a user may pass one to a loop as a sequence.
        narrower = isinstance(otype, TypedListType) and self.ttype.is_super(otype.ttype)
        return True if narrower else None

    def __repr__(self) -> str:
        return f"Trace({self.ttype!r})"

    __str__ = __repr__


def stacked(row: Type) -> Any:
    """The type of a sequence or trace of unknown length with rows of the type ``row``."""
    if isinstance(row, DenseTensorType):
        return TensorType(row.dtype, (None, *row.shape))
    return TraceType(row)


class Stack(WithShapes, Op):
    """``(list, *shape) -> tensor``: a typed list of tensors of one ``shape``, stacked.

    The shape of an element is an input, so that an empty list can be stacked as well.

    >>> from pytensor.typed_list import make_list
    >>> rows = make_list([pt.constant([1.0, 2.0]), pt.constant([3.0, 4.0])])
    >>> Stack()(rows, 2).eval()
    array([[1., 2.],
           [3., 4.]])
    """

    __props__ = ()

    def make_node(self, rows: Variable, *shape: Variable) -> Apply:
        element = rows.type.ttype
        if not isinstance(element, DenseTensorType):
            raise TypeError(f"Stack takes a typed list of tensors, got {rows.type}")
        dims = [pt.as_tensor(n).astype("int64") for n in shape]
        if len(dims) != element.ndim:
            raise TypeError(f"The elements of {rows} have rank {element.ndim}, not {len(dims)}")
        return Apply(self, [rows, *dims], [stacked(element)()])

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: OutputStorageType
    ) -> None:
        rows, *dims = inputs
        shape = tuple(map(int, dims))
        for k, row in enumerate(rows):
            if row.shape != shape:
                raise ValueError(
                    f"Row {k} of a list has the shape {row.shape}, but all rows must have {shape}: pad "
                    "the rows to one shape before you stack them."
                )
        dtype = node.outputs[0].type.dtype
        output_storage[0][0] = np.stack(rows) if rows else np.empty((0, *shape), dtype)

    def shapes_of(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        from pytensor.typed_list import length

        return [(length(node.inputs[0]), *node.inputs[1:])]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True], *[[False]] * (len(node.inputs) - 1)]

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Any]:
        disconnected = DisconnectedType()
        return [Unstack()(cotangents[0]), *[disconnected() for _ in inputs[1:]]]


class Unstack(Op):
    """``tensor -> list of its rows``, a `TraceType`.

    >>> Unstack()(pt.arange(3)).eval()
    [array(0), array(1), array(2)]
    """

    __props__ = ()

    def make_node(self, x: Variable) -> Apply:
        x = pt.as_tensor(x)
        row = TensorType(x.type.dtype, x.type.shape[1:])
        return Apply(self, [x], [TraceType(row)()])

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: OutputStorageType
    ) -> None:
        output_storage[0][0] = [np.array(row) for row in inputs[0]]


__all__ = ["Stack", "TraceType", "Unstack", "make_list", "stacked"]
