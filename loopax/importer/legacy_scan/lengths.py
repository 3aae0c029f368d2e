"""Sequences and numbers of steps in their plain form, as far as the graph shows what they are.

The number of steps of a gradient, and the sequences it reads, are expressions of the length of a forward
trace, and slices that take all rows.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from loopax.ir.sizes import DimExpr, Dims, Length, head, position, read_of, slice_of


def plain(n: Variable, dims: Dims) -> Any:
    """``n``, or the variable that it comes to: ``Shape(trace)[0]`` is a loop's ``n_done``."""
    variable = dims.value(n).only_variable
    is_integer = isinstance(variable, Variable) and variable.type.dtype == "int64"
    return variable if is_integer else n


def rows_exactly(x: TensorVariable, n: Variable, dims: Dims) -> Any:
    """``x[:n]``, sliced no further where the graph shows that it is ``x`` already."""
    wanted = dims.value(n)
    x = _sliced(x, None, dims)
    while (y := _sliced(x, wanted, dims)) is not x and (
        dims.length(y) == wanted or _sliced(y, wanted, dims) is not y
    ):
        x = _sliced(y, None, dims)
    is_cut = dims.length(x) == wanted or _sliced(x, wanted, dims) is not x
    return x if is_cut else x[:n]


def _sliced(x: Variable, n: DimExpr | None, dims: Dims) -> Any:
    """``y`` where ``x`` is ``y[:n]`` (``y[0:]``, if ``n`` is None), else ``x``."""
    read = read_of(x.owner)
    if read is None or read.is_row or read.trailing:
        return x
    length = DimExpr.variable(Length(read.array, 0))  # whatever it is: to find out takes time
    wanted = length if n is None else position(dims, n, length)
    return read.array if slice_of(dims, read.rows, length) == head(wanted, length) else x
