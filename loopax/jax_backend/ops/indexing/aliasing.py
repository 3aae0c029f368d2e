"""Writes of a value that reads the target array, which XLA must not do in place.

XLA on the CPU fuses ``e = x.reshape(3, 3); e.at[1:].set(2 * e[:-1])`` into one loop that reads ``x`` and
writes to the same memory, so that later rows read values that earlier ones have written: it checks that a
value reads only elements that are not yet written, but does not look through the reshape (jaxlib 0.10 and
0.12). It also moves a reshape through elementwise functions. A write expressed as an elementwise selection
by position is not done in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import walk
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import Subtensor

from loopax.base.upstream.pytensor import indices_from_subtensor
from loopax.facts.elementwise import is_elementwise


def value_reads_target(
    target: Variable,
    value: Variable,
    needs_reshape: bool = False,
    is_harmless: Callable[[Variable], bool] = lambda v: False,
) -> bool:
    """Whether ``value`` may read the memory of ``target``, in which XLA writes it.

    Parameters
    ----------
    target, value
        The array, and the value written to a part of it.
    needs_reshape
        Whether only a reshape in the graph of ``target`` makes that possible. Otherwise the arguments of
        the program may come from one.
    is_harmless
        Whether a variable reads only elements that are not written.
    """
    sources = list(walk([target], _sources_in_the_same_memory))
    if needs_reshape and not any(_is_reshaped(v) for v in sources):
        return False
    memory = {v for v in sources if not isinstance(v, Constant)}

    def operands(v: Variable) -> Sequence[Variable]:
        return () if v.owner is None or is_harmless(v) else v.owner.inputs

    return any(v in memory for v in walk([value], operands))


def reads_elsewhere(
    v: Variable, target: Variable, written: Sequence[Any], shape: Sequence[int]
) -> bool:
    """Whether ``v`` is a constant slice of ``target`` that is disjoint from the slice ``written``.

    Parameters
    ----------
    written
        The other slice: an int or slice for each of the first axes.
    shape
        The lengths of ``target``.
    """
    node = v.owner
    if not isinstance(node.op, Subtensor) or node.inputs[0] is not target:
        return False
    if not all(isinstance(k, Constant) for k in node.inputs[1:]):
        return False
    read = indices_from_subtensor([int(k.data) for k in node.inputs[1:]], node.op.idx_list)
    return any(_are_disjoint(a, b, n) for a, b, n in zip(read, written, shape, strict=False))


def _are_disjoint(one: slice | int, other: slice | int, n: int) -> bool:
    """Whether two ints or slices are disjoint along an axis of length ``n``."""
    one, other = (k if isinstance(k, slice) else slice(k, k + 1 or None) for k in (one, other))
    is_in_one = np.zeros(n, bool)
    is_in_one[one] = True
    return not is_in_one[other].any()


def _is_reshaped(v: Variable) -> bool:
    return v.owner is not None and isinstance(v.owner.op, Reshape | DimShuffle)


def _sources_in_the_same_memory(v: Variable) -> list[Variable]:
    if _is_reshaped(v):
        return v.owner.inputs[:1]
    return list(v.owner.inputs) if is_elementwise(v.owner) else []
