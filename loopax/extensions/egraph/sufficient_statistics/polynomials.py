"""Which sums of a program are over rows that are polynomials in constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.lowering.redundancy.fold_constants import known_values

LEAST = 32  # rows: of fewer there is nothing to gain
_GATHERS = AdvancedSubtensor, AdvancedSubtensor1
SCATTERS = AdvancedIncSubtensor, AdvancedIncSubtensor1


class Polynomial(NamedTuple):
    """What the rows of a vector are: of which degree, of which constants and gathers, in order."""

    degree: int
    constants: tuple[Variable, ...] = ()
    gathers: tuple[Apply, ...] = ()


class Sums(NamedTuple):
    """A node that sums rows: of a polynomial, of what is read or written where, across which matrix."""

    of: Polynomial
    across: tuple[Variable, ...] = ()
    scatters: tuple[Apply, ...] = ()


def length_of(v: Any) -> int | None:
    """How many rows a vector has, (n,) or (n, 1), where it has enough of them and is of doubles."""
    shape: Any = getattr(v.type, "shape", ())
    if len(shape) not in (1, 2) or shape[1:] not in ((), (1,)) or v.type.dtype != "float64":
        return None
    return shape[0] if shape[0] is not None and shape[0] >= LEAST else None


def is_layout(node: Apply) -> bool:
    """Whether a node makes (n,) of (n, 1), or the other way round."""
    if not isinstance(node.op, DimShuffle) or tuple(node.op.new_order) not in ((0,), (0, "x")):
        return False
    n = length_of(node.inputs[0])
    return n is not None and n == length_of(node.outputs[0])


class Search:
    """The sums of a graph whose operands are polynomials, by how many rows these have."""

    def __init__(self, graph: FunctionGraph) -> None:
        self._values = known_values(graph, {})
        self._of: dict[Variable, Polynomial] = {}
        self.sums: dict[int, list[Sums]] = {}
        for node in graph.toposort():
            if node.outputs[0] in self._values:
                continue
            if (found := self._polynomial(node)) is not None:
                self._of[node.outputs[0]] = found
            if (sums := self._sums(node)) is not None:
                n, found_sums = sums
                self.sums.setdefault(n, []).append(found_sums)

    def value(self, v: Any) -> Any:
        """The value of what is constant, None of what is not."""
        return v.data if isinstance(v, Constant) else self._values.get(v)

    def polynomial(self, v: Any) -> Polynomial | None:
        if (value := self.value(v)) is None:
            return self._of.get(v)
        if length_of(v) is None or not np.all(np.isfinite(value)):
            return None
        return Polynomial(1, (v,))

    def _polynomial(self, node: Apply) -> Polynomial | None:
        op: Any = node.op
        n = length_of(node.outputs[0])
        if n is None or len(node.outputs) > 1:
            return None
        if is_layout(node) or isinstance(op, CheckAndRaise):
            return self.polynomial(node.inputs[0])
        if is_gather(node):
            return Polynomial(0, gathers=(node,))
        if isinstance(op, Dot):
            return (
                Polynomial(1, tuple(node.inputs[:1])) if self._is_matrix(node.inputs[0]) else None
            )
        return self._elementwise(node) if isinstance(op, Elemwise) else None

    def _elementwise(self, node: Apply) -> Polynomial | None:
        scalar: Any = node.op.scalar_op  # type: ignore[attr-defined]
        parts = [Polynomial(0) if _is_number(v) else self.polynomial(v) for v in node.inputs]
        found = [one for one in parts if one is not None]
        if len(found) < len(parts):
            return None
        degrees = [one.degree for one in found]
        if isinstance(scalar, ps.Add | ps.Sub | ps.Neg):
            degree = max(degrees)
        elif isinstance(scalar, ps.Mul):
            degree = sum(degrees)
        elif isinstance(scalar, ps.Sqr):
            degree = 2 * degrees[0]
        elif isinstance(scalar, ps.TrueDiv):
            degree = degrees[0] + 3 * degrees[1]
        else:
            degree = 3 * sum(degrees)
        if degree > 2:
            return None
        constants = dict.fromkeys(v for one in found for v in one.constants)
        gathers = dict.fromkeys(v for one in found for v in one.gathers)
        return Polynomial(degree, tuple(constants), tuple(gathers))

    def _sums(self, node: Apply) -> tuple[int, Sums] | None:
        op: Any = node.op
        across: tuple[Variable, ...] = ()
        if isinstance(op, Sum) and node.outputs[0].type.ndim == 0:
            x = node.inputs[0]
        elif isinstance(op, Dot) and self._is_matrix(node.inputs[0]):
            *across, x = node.inputs  # type: ignore[assignment]
        elif is_scatter(node):
            x = node.inputs[1]
        else:
            return None
        n = length_of(x)
        if n is None or self.value(x) is not None or (found := self.polynomial(x)) is None:
            return None
        if across and (found.degree > 1 or np.shape(self.value(across[0]))[1] != n):
            return None
        return n, Sums(found, tuple(across), (node,) if is_scatter(node) else ())

    def _is_matrix(self, v: Any) -> bool:
        value = self.value(v)
        is_one = value is not None and v.type.dtype == "float64" and np.ndim(value) == 2
        return is_one and bool(np.all(np.isfinite(value)))


def _is_number(v: Any) -> bool:
    return all(n == 1 for n in v.type.shape)


def is_gather(node: Apply) -> bool:
    """Whether a node reads an entry for each row, at constant places."""
    n = length_of(node.outputs[0])
    is_one = isinstance(node.op, _GATHERS) and node.outputs[0].type.ndim == 1 and n is not None
    return is_one and _is_index(node.inputs[1:], n)


def is_scatter(node: Apply) -> bool:
    """Whether a node adds rows to entries at constant places."""
    if not isinstance(node.op, SCATTERS) or node.op.set_instead_of_inc:
        return False
    n = length_of(node.inputs[1])
    return n is not None and node.inputs[1].type.ndim == 1 and _is_index(node.inputs[2:], n)


def _is_index(index: Sequence[Any], n: int | None) -> bool:
    return bool(index) and all(
        isinstance(v, Constant) and v.data.dtype.kind in "iu" and v.data.shape in ((), (n,))
        for v in index
    )


def at_rows(node: Apply, rows: np.ndarray) -> Apply:
    """A gather or a scatter with the entries of its index at ``rows``."""
    index = [
        type(v)(v.type.clone(shape=rows.shape), v.data[rows]) if v.type.ndim else v
        for v in index_of(node)
    ]
    first = node.inputs[: len(node.inputs) - len(index)]
    if len(first) == 2:
        first = [first[0], first[1].type.clone(shape=rows.shape)()]
    return node.op.make_node(*first, *index)


def index_of(node: Apply) -> list[Any]:
    return node.inputs[2 if isinstance(node.op, SCATTERS) else 1 :]
