"""Slopes that may be infinite or NaN, at which the zeros of a cotangent do not stay 0.

A function such as ``sqrt`` has them at finite numbers. Any slope that depends on a value has them where
data are missing: constants that are NaN, and inputs where a test such as ``isnan``, or an array of bools,
marks them. Other numbers are assumed to be finite: an overflow does not justify the cost of a mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorConstant
from scipy.sparse import issparse

from loopax.facts import Structure, facts_of
from loopax.facts.elementwise import is_elementwise, scalar_op_of
from loopax.facts.linearity import read_by_slopes
from loopax.facts.scalars import is_float, scalar_facts

_REGULAR = Structure.MOVES, Structure.REDUCES, Structure.CONTRACTS, Structure.MAKES, Structure.SHAPE


class UnboundedSlopes:
    """The variables of a graph whose cotangents meet such slopes on their way back.

    Parameters
    ----------
    inputs
        The roots of the graph.
    nodes
        Its nodes, in order.
    moving
        The variables that have a derivative.
    """

    def __init__(self, inputs: Sequence[Any], nodes: Iterable[Apply], moving: set[Any]) -> None:
        self._moving = moving
        self._behind_values: set[Any] = set()  # they depend on nodes whose slopes read values
        self._behind_singular: set[Any] = set()
        self._nan: set[Any] = set()
        self._positive: set[Any] = set()
        self._gaps = {v for v in inputs if not is_float(v)}
        for node in nodes:
            self._add(node)

    def _add(self, node: Apply) -> None:
        if self._makes_positive(node):
            self._positive.add(node.outputs[0])
        is_singular = self.is_singular(node)
        if is_singular or any(v in self._nan or _has_nan(v) for v in node.inputs):
            self._nan.update(node.outputs)
        if is_elementwise(node, ps.IsNan, ps.IsInf) or any(map(self.tells_of_gaps, node.inputs)):
            self._gaps.update(v for v in node.outputs if not is_float(v))
        if not any(v in self._moving for v in node.inputs):
            return
        if self.reads_values(node) or any(v in self._behind_values for v in node.inputs):
            self._behind_values.update(node.outputs)
        if is_singular or any(v in self._behind_singular for v in node.inputs):
            self._behind_singular.update(node.outputs)

    def tells_of_gaps(self, condition: Any) -> bool:
        """Whether ``condition`` may mark missing data."""
        is_root = condition.owner is None and not isinstance(condition, Constant)
        return condition in self._gaps or (is_root and not is_float(condition))

    def are_behind(self, x: Any, has_gaps: bool) -> bool:
        """Whether a cotangent of ``x`` meets such a slope."""
        return x in (self._behind_values if has_gaps else self._behind_singular)

    def reads_values(self, node: Apply) -> bool:
        """Whether a derivative of ``node`` depends on numbers that are not known to be finite."""
        return any(not _is_finite(node.inputs[k]) for k in self._read_by_slopes(node))

    def is_singular(self, node: Apply) -> bool:
        """Whether a derivative of ``node`` may be infinite or NaN at finite inputs."""
        if isinstance(node.op, CheckAndRaise):
            return False
        if any(self._is_known_gap(node.inputs[k]) for k in self._read_by_slopes(node)):
            return True
        if (op := scalar_op_of(node.op)) is None:
            return facts_of(node.op).structure not in _REGULAR
        facts = scalar_facts(op)
        if facts is None or facts.singular is None:
            return facts is None
        return not facts.is_regular_above_0 or not self._is_positive(node.inputs[facts.singular])

    def _is_positive(self, v: Any) -> bool:
        numbers = _numbers(v)
        return v in self._positive if numbers is None else is_float(v) and bool((numbers > 0).all())

    def _makes_positive(self, node: Apply) -> bool:
        """Whether the output of ``node`` is positive, unless something underflows."""
        op = scalar_op_of(node.op)
        if facts := op and scalar_facts(op):
            is_kept = facts.positive == "kept" and all(map(self._is_positive, node.inputs))
            return is_kept or facts.positive == "always"
        is_move = isinstance(node.op, DimShuffle | Subtensor | AdvancedSubtensor | CheckAndRaise)
        return is_move and self._is_positive(node.inputs[0])

    def _is_known_gap(self, v: Any) -> bool:
        return v in self._nan or (_numbers(v) is not None and not _is_finite(v))

    def _read_by_slopes(self, node: Apply) -> set[int]:
        return read_by_slopes(node, (k for k, v in enumerate(node.inputs) if v in self._moving))


def _has_nan(v: Any) -> bool:
    numbers = _numbers(v)
    return numbers is not None and is_float(v) and bool(np.isnan(numbers).any())


def _is_finite(v: Any) -> bool:
    """Whether ``v`` is known to have finite numbers."""
    numbers = _numbers(v)
    return not is_float(v) or (numbers is not None and bool(np.isfinite(numbers).all()))


def _numbers(v: Any) -> Any:
    """The numbers of a constant, of a sparse one those that are stored and 0; None for other variables."""
    if not isinstance(v, TensorConstant):
        return None
    return np.append(v.data.data, 0) if issparse(v.data) else np.asarray(v.data)
