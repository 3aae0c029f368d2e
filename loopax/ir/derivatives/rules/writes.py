"""The pullback of a write at indices that may repeat.

    z = x with z[i] = y:    x̄ = z̄ with x̄[i] = 0,    ȳ = z̄[i] where y is the final value at i

PyTensor's rule passes ``z̄[i]`` to overwritten elements too (3.0.7, 3.3.8). Which element is written
last at an index depends on the backend, so the same op determines it: the elements' numbers are written,
and read back. An addition that ignores duplicates is a write of ``x[i] + y``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1, AdvancedSubtensor1, adds_last_only
from loopax.ir.derivatives.rules.elementwise import summed
from loopax.ir.derivatives.rules.registry import Fault, fault_of, own_pullback, pullback_of


@pullback_of.register(AdvancedIncSubtensor1)
@pullback_of.register(AdvancedIncSubtensor)
def _write(
    op: AdvancedIncSubtensor,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    x, y, *indices = inputs
    in_cotangents = list(own_pullback(op, inputs, outputs, cotangents))
    if not x.type.dtype.startswith("float"):
        return in_cotangents
    (g,) = cotangents
    if not (op.set_instead_of_inc or adds_last_only(op)) or not may_repeat(indices):
        return [in_cotangents[0], summed(in_cotangents[1], y), *in_cotangents[2:]]
    reader = _reader(op)
    entries = reader(g, *indices)
    numbers = pt.arange(entries.size, dtype="int64").reshape(entries.shape, ndim=entries.type.ndim)
    none = pt.full_like(x, -1 if op.set_instead_of_inc else 0, dtype="int64")
    is_last = pt.eq(reader(op(none, numbers, *indices), *indices), numbers)
    return [in_cotangents[0], summed(pt.switch(is_last, entries, 0), y), *in_cotangents[2:]]


@fault_of.register(AdvancedIncSubtensor1)
@fault_of.register(AdvancedIncSubtensor)
def _fault(op: AdvancedIncSubtensor, node: Apply) -> Fault | None:
    if not (op.set_instead_of_inc or adds_last_only(op)) or not _do_repeat(node.inputs[2:]):
        return None
    return Fault(1, "an index repeats, and it counts what a later element overwrites")


def _reader(op: Op) -> Any:
    """The op that reads at the indices of the write ``op``."""
    if isinstance(op, AdvancedIncSubtensor1):
        return AdvancedSubtensor1()
    idx_list = getattr(op, "idx_list", None)  # 3.0 has none
    reader_class: Any = AdvancedSubtensor
    return reader_class() if idx_list is None else reader_class(idx_list)


def may_repeat(indices: Sequence[Any]) -> bool:
    """Whether arrays of indices can repeat a position. A mask cannot; constants are compared."""
    arrays = [v for v in indices if getattr(v.type, "ndim", 0) and v.type.dtype != "bool"]
    if not all(isinstance(v, Constant) for v in arrays):
        return bool(arrays)
    if len(arrays) != 1 or any(getattr(v.type, "dtype", "") == "bool" for v in indices):
        return bool(arrays)
    numbers = np.asarray(arrays[0].data).ravel()
    # -1 and n - 1 are the same position, and n is unknown.
    return len(np.unique(numbers)) < len(numbers) or bool(
        (numbers < 0).any() and (numbers >= 0).any()
    )


def _do_repeat(indices: Sequence[Any]) -> bool:
    """Whether arrays of indices, all constant, repeat a position."""
    if not all(isinstance(v, Constant) and v.type.dtype != "bool" for v in indices):
        return False
    positions = np.stack([v.ravel() for v in np.broadcast_arrays(*(v.data for v in indices))])
    return np.unique(positions, axis=1).shape < positions.shape
