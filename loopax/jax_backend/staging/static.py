"""The static stage: values known at trace time, computed by each Op's own ``perform``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.math import Dot
from pytensor.typed_list.basic import TypedListType

from loopax.base.upstream.pytensor import IfElse
from loopax.facts.shapes import requested_size
from loopax.ir import FitRows, KeepRows
from loopax.ir.effects import Effects, effects
from loopax.ir.evaluation.evaluate import apply
from loopax.jax_backend.staging.symbolic import is_symbolic

FOLD_CAP = 4096  # elements; a larger array is staged, so that no large constant is built

# Not evaluated while tracing: loops and calls, which are worth tracing; ops whose outputs are larger than
# their inputs, which are left to XLA; and uninitialized memory.
_STAGED = (HasInnerGraph, Blockwise, IfElse, AllocEmpty, Repeat, Dot, FitRows, KeepRows)
# A foreign Op may have effects: it runs when the program does.
_WHEN_IT_RUNS = Effects.DRAWS | Effects.PRINTS | Effects.UNKNOWN


def is_traced(x: object) -> bool:
    """Whether ``x`` is known only at run time."""
    if isinstance(x, jax.Array):
        return isinstance(x, jax.core.Tracer)
    if isinstance(x, np.ndarray | np.generic):
        return False
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x))


def fold(node: Apply, values: Sequence[Any]) -> list[Any] | None:
    """The outputs of ``node`` if all ``values`` are static and the results small; else None."""
    for x in values:
        if not isinstance(x, np.ndarray):
            if isinstance(x, jax.Array) or not _plain(x):
                return None
        elif x.size > FOLD_CAP or is_symbolic(x):
            return None
    if isinstance(node.op, _STAGED) or effects(node.op) & _WHEN_IT_RUNS:
        return None
    if any(isinstance(v.type, TypedListType) for v in [*node.inputs, *node.outputs]):
        return None
    if _elements(node.op, values) > FOLD_CAP:
        return None
    return apply(node, values)


class NotKnown(Exception):
    """Raised where a value is not known while JAX traces."""


def compute(node: Apply, values: Sequence[Any]) -> list[Any]:
    """Compute ``node``, which `fold` leaves to XLA, because a shape needs one of its outputs.

    Raises `NotKnown` if the op may have effects, or is one on lists or sparse matrices, which have
    forms of their own here.
    """
    own_form = any(
        isinstance(v.type, TypedListType | SparseTensorType) for v in [*node.inputs, *node.outputs]
    )
    if own_form or effects(node.op) & _WHEN_IT_RUNS:
        raise NotKnown
    return apply(node, values)


def _plain(x: object) -> bool:
    return x is None or isinstance(x, bool | int | float | complex | np.generic | slice)


def _elements(op: Op, values: Sequence[Any]) -> float:
    """An upper bound on the number of elements of the largest output."""
    if (n := requested_size(op, values)) is not None:
        return n
    try:  # elementwise, or smaller than its inputs
        shape = np.broadcast_shapes(*(np.shape(x) for x in values))
    except ValueError:
        return 0.0
    return float(np.prod(shape, dtype=np.float64))
