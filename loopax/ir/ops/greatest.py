"""``greatest``: the maximum of an array that may have no elements.

PyTensor 3.3 has it as ``pt.max(x, initial=-inf)``. The class here is for earlier releases, and can be
removed with their support.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import DTypeLike
from pytensor.graph.basic import Apply
from pytensor.tensor.math import Max, NonZeroDimsCAReduce
from pytensor.tensor.variable import TensorVariable

_IS_OPTION = "initial" in Max.__props__


class Greatest(Max):
    """The op `Max`, extended to minus infinity for an empty array."""

    initial = True

    def initial_value(self, dtype: DTypeLike) -> Any:
        """The value for an empty array: minus infinity, or the least integer."""
        kind = np.dtype(dtype).kind
        return -np.inf if kind == "f" else False if kind == "b" else np.iinfo(dtype).min

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        (x,) = inputs
        least = self.initial_value(x.dtype)
        output_storage[0][0] = np.asarray(np.max(x, axis=self.axis, initial=least), dtype=x.dtype)

    def _c_all(self, *args: Any) -> Any:
        return super(NonZeroDimsCAReduce, self)._c_all(*args)  # without the check that `Max` adds


def greatest(x: TensorVariable, axis: Sequence[int] | int | None, keepdims: bool = True) -> Any:
    """The maximum of floats along ``axis``; minus infinity along an empty axis.

    >>> greatest(pt.zeros((2, 0)), axis=1).eval().tolist()
    [[-inf], [-inf]]
    """
    if _IS_OPTION:
        maximum: Any = pt.max  # annotated as in the older release
        return maximum(x, axis=axis, keepdims=keepdims, initial=-np.inf)
    axes = range(x.type.ndim) if axis is None else np.atleast_1d(axis)
    places = tuple(sorted(int(a) % x.type.ndim for a in axes))
    m = Greatest(axis=places)(x)
    return pt.expand_dims(m, places) if keepdims else m
