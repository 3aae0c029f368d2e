"""Integers and bools that depend on constants alone: indices, masks, numbers of bits.

JAX writes the index of ``x.at[1, 2]`` as operations on literals, and passes the indices of a step to its
loop as arguments. A rule that knows an index omits the handling of indices out of range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import walk
from pytensor.tensor.variable import TensorVariable

from loopax.ir.effects import may_be_folded
from loopax.ir.evaluation.evaluate import evaluate

_MOST_ELEMENTS, _MOST_ANCESTORS = 1000, 100


def known(v: Variable) -> np.ndarray | None:
    """The value of a small array of integers or bools; None if it does not depend on constants alone."""
    if v.type.dtype.startswith(("float", "complex")):
        return None
    if isinstance(v, Constant):
        return v.data
    is_small = None not in v.type.shape and np.prod(v.type.shape) <= _MOST_ELEMENTS
    if not is_small or not _follows_from_constants(v):
        return None
    (value,) = evaluate(FunctionGraph([], [v], clone=False))
    return value


def with_known(variables: Sequence[TensorVariable], values: Sequence[Variable]) -> list[Any]:
    """Replace ``variables``, the arguments of a body, by constants where their ``values`` are `known`."""
    pairs = zip(variables, map(known, values), strict=True)
    return [v if value is None else pt.constant(value) for v, value in pairs]


def _follows_from_constants(v: Variable) -> bool:
    def operands(ancestor: Any) -> Sequence[Variable]:
        return ancestor.owner.inputs if ancestor.owner else ()

    for n_visited, ancestor in enumerate(walk([v], operands)):
        if n_visited > _MOST_ANCESTORS:
            return False
        if ancestor.owner is None:
            if not isinstance(ancestor, Constant):
                return False
        elif not may_be_folded(ancestor.owner):
            return False
    return True
