"""``FitRows``: a trace cut or padded to a number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from loopax.ir.compat import WithShapes


class FitRows(WithShapes, Op):
    """``(rows, length) -> the last length rows, zero rows behind them where there are fewer``.

    ``pytensor.scan`` keeps a trace in a buffer whose length may differ from the number of steps:
    its memory-saving rewrites keep only the last rows, and a truncated gradient leaves a tail that
    no step writes, which is zero.

    >>> pt.dvector("x").type, FitRows()(pt.arange(5), 2).eval(), FitRows()(pt.arange(2), 3).eval()
    (Vector(float64, shape=(?,)), array([3, 4]), array([0, 1, 0]))
    """

    __props__ = ()

    def make_node(self, rows: Any, length: Any) -> Apply:
        rows, length = pt.as_tensor(rows), pt.as_tensor(length).astype("int64")
        return Apply(self, [rows, length], [rows.type.clone(shape=(None, *rows.type.shape[1:]))()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        rows, length = inputs
        output_storage[0][0] = fit_rows(rows, int(length), np)

    def shapes_of(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [(node.inputs[1], *shapes[0][1:])]

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        # Two cases. Rows that were cut off, before, get zeros; rows that were put behind are dropped.
        (rows, length), (dy,) = inputs, cotangents
        n = rows.shape[0]
        trailing = [rows.shape[k] for k in range(1, rows.type.ndim)]
        cut = pt.zeros((pt.maximum(n - length, 0), *trailing), dtype=dy.dtype)
        found = pt.concatenate([cut, dy[: pt.minimum(n, length)]])
        shape = (None, *rows.type.shape[1:])
        return [found.type.clone(shape=shape).filter_variable(found), disconnected_type()]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True], [False]]


def fit_rows(rows: Any, length: int, xp: Any) -> Any:
    """The meaning of `FitRows`, for the array module ``xp`` (NumPy or one like it)."""
    n = rows.shape[0]
    if n >= length:
        return rows[n - length :]
    return xp.concatenate([rows, xp.zeros((length - n, *rows.shape[1:]), dtype=rows.dtype)])
