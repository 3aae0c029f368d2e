"""Refusal of 64-bit products that would overflow in JAX's 32-bit mode, as float64 is refused.

Accepted are products that the graph shows to fit, products with a small factor, and products that are
indices: an index that does not fit is out of range anyway. Sums are accepted: they overflow only if one of
their terms is nearly too large, and indices and lengths are mostly sums.
"""

from __future__ import annotations

import math

import jax
import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, Prod
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from loopax.base.errors import LoopTypeError, describe
from loopax.facts import facts_of
from loopax.facts.elementwise import is_elementwise, scalar_op_of
from loopax.jax_backend.staging.frame import Frame
from loopax.jax_backend.staging.intervals import known_interval
from loopax.jax_backend.staging.static import is_traced

_PRODUCTS = tuple(type(op) for op in (ps.mul, ps.pow, ps.sqr))
_SMALL = 1000  # with a factor below two million it fits; counts and indices are rarely larger
# The number of leading inputs that are not indices.
_INDEXED = {Subtensor: 1, AdvancedSubtensor: 1, IncSubtensor: 2, AdvancedIncSubtensor: 2}
_SAME = (DimShuffle, ScalarFromTensor, TensorFromScalar)


def refuse_wrapped(frame: Frame, node: Apply) -> None:
    """Raise if ``node`` multiplies traced 64-bit integers whose product may not fit 32 bits.

    Raises `LoopTypeError` if JAX is in 32-bit mode, and would return the wrapped product.
    """
    out = node.outputs[0]
    dtype = getattr(out.type, "dtype", None)
    if dtype not in ("int64", "uint64") or not _multiplies(node.op):
        return
    if not any(is_traced(frame.read(v)) for v in node.inputs) or _fits(frame, node, dtype):
        return
    if _is_index(frame, out):
        return
    raise LoopTypeError(
        f"The program multiplies integers of 64 bits, for {describe(out)}, but JAX is in 32-bit mode, "
        "where the product would wrap around. Call jax.config.update('jax_enable_x64', True) first, "
        "compute in floats, x.astype('float32'), or declare that 32 bits are enough: x.astype('int32')."
    )


def _multiplies(op: Op) -> bool:
    if isinstance(op, CumOp):
        return op.mode == "mul"
    return isinstance(op, Prod | Dot) or (isinstance(scalar_op_of(op), _PRODUCTS))


def _fits(frame: Frame, node: Apply, dtype: str) -> bool:
    """Whether the graph shows that the product fits, or that all but one of its factors are small."""
    sizes = [_size(known_interval(frame, v)) for v in node.inputs]
    most = np.iinfo(jax.dtypes.canonicalize_dtype(dtype)).max
    scalar = getattr(node.op, "scalar_op", None)
    if not is_elementwise(node):  # a reduction, with an unknown number of factors
        return max(sizes) <= 1 and not isinstance(node.op, Dot)
    if isinstance(scalar, type(ps.pow)):
        return sizes[0] <= 1 or math.log2(sizes[0]) * sizes[1] < math.log2(most)
    if isinstance(scalar, type(ps.sqr)):
        sizes *= 2
    return math.prod(sorted(sizes)[:-1]) <= _SMALL or math.prod(sizes) <= most


def _size(interval: tuple[int, int] | None) -> float:
    return math.inf if interval is None else max(map(abs, interval))


def _is_index(frame: Frame, v: Variable) -> bool:
    """Whether ``v`` is read only as an index or a length, or as a part of one."""
    if v in frame.plan.outputs:
        return False
    readers = frame.plan.readers.get(v, ())
    return bool(readers) and all(_reads_index(frame, node, v) for node in readers)


def _reads_index(frame: Frame, node: Apply, v: Variable) -> bool:
    for kind, values in _INDEXED.items():
        if isinstance(node.op, kind):
            return v not in node.inputs[:values]
    if v in facts_of(node.op).lengths(node):
        return True
    out = node.outputs[0]
    if not (is_elementwise(node) or isinstance(node.op, _SAME)) or "int" not in str(
        getattr(out.type, "dtype", "")
    ):
        return False
    return _is_index(frame, out)
