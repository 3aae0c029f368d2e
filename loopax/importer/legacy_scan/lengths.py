"""Simplify sequences and trip counts, as far as the graph allows.

The number of steps of a gradient is an expression in the length of a forward trace, and the sequences that
it reads are slices of all rows.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from loopax.ir.sizes import DimExpr, Dims, Length, head, position, read_of, slice_of


def plain(n: Variable, dims: Dims) -> Any:
    """Simplify ``n`` to a single variable if possible: ``Shape(trace)[0]`` is a loop's ``n_done``."""
    variable = dims.value(n).only_variable
    is_integer = isinstance(variable, Variable) and variable.type.dtype == "int64"
    return variable if is_integer else n


def rows_exactly(x: TensorVariable, n: Variable, dims: Dims) -> Any:
    """Build ``x[:n]``, or ``x`` itself if the graph shows that the two are equal."""
    wanted = dims.value(n)
    x = _sliced(x, None, dims)
    while (y := _sliced(x, wanted, dims)) is not x and (
        dims.length(y) == wanted or _sliced(y, wanted, dims) is not y
    ):
        x = _sliced(y, None, dims)
    is_cut = dims.length(x) == wanted or _sliced(x, wanted, dims) is not x
    return x if is_cut else x[:n]


def _sliced(x: Variable, n: DimExpr | None, dims: Dims) -> Any:
    """Undo a slice: ``y`` if ``x`` is ``y[:n]`` (``y[0:]``, if ``n`` is None), else ``x``."""
    read = read_of(x.owner)
    if read is None or read.is_row or read.trailing:
        return x
    length = DimExpr.variable(Length(read.array, 0))  # left symbolic, since finding it takes time
    wanted = length if n is None else position(dims, n, length)
    return read.array if slice_of(dims, read.rows, length) == head(wanted, length) else x
