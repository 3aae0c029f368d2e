"""Traces cut or padded to a number of rows: ``FitRows`` keeps the last ones, ``KeepRows`` the first."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op, OutputStorageType
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import WithShapes
from loopax.facts import OpFacts, Structure, register
from loopax.facts.families import in_first


class FitRows(WithShapes, Op):
    """``(rows, length) -> the last length rows, followed by zero rows where there are fewer``.

    ``pytensor.scan`` keeps a trace in a buffer whose length may differ from the number of steps: its
    memory-saving rewrites keep only the last rows, and a truncated gradient leaves a tail of zeros
    that no step writes.

    >>> FitRows()(pt.arange(5), 2).eval(), FitRows()(pt.arange(2), 3).eval()
    (array([3, 4]), array([0, 1, 0]))
    """

    __props__ = ()

    def make_node(self, rows: TensorLike, length: TensorLike) -> Apply:
        x, n = pt.as_tensor(rows), pt.as_tensor(length).astype("int64")
        return Apply(self, [x, n], [x.type.clone(shape=(None, *x.type.shape[1:]))()])

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: OutputStorageType
    ) -> None:
        rows, length = inputs
        output_storage[0][0] = fit_rows(rows, int(length), np)

    def shapes_of(self, node: Apply, shapes: Sequence[Sequence[Variable]]) -> list[Any]:
        return [(node.inputs[1], *shapes[0][1:])]

    def pullback(
        self,
        inputs: Sequence[TensorVariable],
        outputs: Sequence[Variable],
        cotangents: Sequence[TensorVariable],
    ) -> list[Any]:
        # Rows that were cut off at the beginning get zeros; cotangents of appended rows are dropped.
        (rows, length), (dy,) = inputs, cotangents
        n = rows.shape[0]
        trailing = [rows.shape[k] for k in range(1, rows.type.ndim)]
        cut = pt.zeros((pt.maximum(n - length, 0), *trailing), dtype=dy.dtype)
        cotangent = pt.concatenate([cut, dy[: pt.minimum(n, length)]])
        shape = (None, *rows.type.shape[1:])
        return [cotangent.type.clone(shape=shape).filter_variable(cotangent), disconnected_type()]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True], [False]]


def fit_rows(rows: Any, length: int, xp: ModuleType) -> Any:
    """The semantics of `FitRows`, for the array module ``xp`` (NumPy or one like it)."""
    n = rows.shape[0]
    if n >= length:
        return rows[n - length :]
    return xp.concatenate([rows, xp.zeros((length - n, *rows.shape[1:]), dtype=rows.dtype)])


class KeepRows(WithShapes, Op):
    """``(rows, count, length) -> length rows: the first count of rows, followed by zeros``.

    With ``last`` it is the last ``count`` rows, preceded by zeros. The trace of a loop that has
    stopped is the first ``n_done`` rows (``reverse``: the last) of a trace over all steps. A slice
    would do for one loop, but not for a batch whose rows have their own ``count``. The pullback is a
    `KeepRows` again.

    >>> KeepRows()(pt.arange(1, 5), 2, 3).eval(), KeepRows(last=True)(pt.arange(1, 5), 2, 3).eval()
    (array([1, 2, 0]), array([0, 3, 4]))
    """

    __props__ = ("last",)

    def __init__(self, last: bool = False) -> None:
        self.last = last

    def make_node(self, rows: TensorLike, count: TensorLike, length: TensorLike) -> Apply:
        rows = pt.as_tensor(rows)
        counts = [pt.as_tensor(n).astype("int64") for n in (count, length)]
        if any(n.type.ndim for n in counts):
            raise TypeError(f"KeepRows takes two integer scalars, got {counts}")
        return Apply(self, [rows, *counts], [rows.type.clone(shape=(None, *rows.type.shape[1:]))()])

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: OutputStorageType
    ) -> None:
        rows, count, length = inputs
        output_storage[0][0] = keep_rows(rows, int(count), int(length), self.last)

    def shapes_of(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [(node.inputs[2], *shapes[0][1:])]

    def pullback(
        self,
        inputs: Sequence[TensorVariable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Any]:
        rows, count, length = inputs
        cotangent = self(cotangents[0], pt.minimum(count, length), rows.shape[0])
        # The cotangent of integers is a float.
        rows_type = rows.type.clone(dtype=cotangents[0].type.dtype)
        return [rows_type.filter_variable(cotangent), disconnected_type(), disconnected_type()]

    def pushforward(
        self, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
    ) -> list[Any]:
        t = tangents[0]
        return [t if isinstance(t.type, DisconnectedType) else self(t, *inputs[1:])]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True], [False], [False]]


def keep_rows(rows: np.ndarray, count: int, length: int, last: bool = False) -> Any:
    """The semantics of `KeepRows`."""
    n = min(count, length, rows.shape[0])
    result = np.zeros((length, *rows.shape[1:]), dtype=rows.dtype)
    if last:
        result[length - n :] = rows[rows.shape[0] - n :]
    else:
        result[:n] = rows[:n]
    return result


for _class in (FitRows, KeepRows):
    register(
        _class,
        OpFacts(structure=Structure.MOVES, lengths=lambda node: node.inputs[-1:], linear=in_first),
    )
