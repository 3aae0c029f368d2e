"""Search for sums of a program over rows that are polynomials in constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.facts.elementwise import is_elementwise
from loopax.lowering.redundancy.fold_constants import known_values

LEAST = 32  # the least rows for which a replacement pays off
_GATHERS = AdvancedSubtensor, AdvancedSubtensor1
SCATTERS = AdvancedIncSubtensor, AdvancedIncSubtensor1


class Polynomial(NamedTuple):
    """A vector whose rows are polynomials of a degree in constants, with coefficients from gathers."""

    degree: int
    constants: tuple[Variable, ...] = ()
    gathers: tuple[Apply, ...] = ()


class Sums(NamedTuple):
    """A node that sums the rows of a polynomial: a sum, a scatter, or a product with ``across``."""

    polynomial: Polynomial
    across: tuple[Variable, ...] = ()
    scatters: tuple[Apply, ...] = ()


def length_of(v: Variable) -> int | None:
    """The number of rows of a float64 vector, (n,) or (n, 1); None where it has too few."""
    shape: Any = getattr(v.type, "shape", ())
    if len(shape) not in (1, 2) or shape[1:] not in ((), (1,)) or v.type.dtype != "float64":
        return None
    return shape[0] if shape[0] is not None and shape[0] >= LEAST else None


def is_layout(node: Apply) -> bool:
    """Whether a node reshapes (n, 1) to (n,), or the reverse."""
    if not isinstance(node.op, DimShuffle) or tuple(node.op.new_order) not in ((0,), (0, "x")):
        return False
    n = length_of(node.inputs[0])
    return n is not None and n == length_of(node.outputs[0])


class Search:
    """The sums of a graph whose operands are polynomials, by number of rows."""

    def __init__(self, graph: FunctionGraph) -> None:
        self._values = known_values(graph, {})
        self._polynomials: dict[Variable, Polynomial] = {}
        self.sums: dict[int, list[Sums]] = {}
        for node in graph.toposort():
            if node.outputs[0] in self._values:
                continue
            if (polynomial := self._polynomial(node)) is not None:
                self._polynomials[node.outputs[0]] = polynomial
            if (sums := self._sums(node)) is not None:
                n, entry = sums
                self.sums.setdefault(n, []).append(entry)

    def value(self, v: Variable) -> Any:
        """The value of a constant variable; None for any other."""
        return v.data if isinstance(v, Constant) else self._values.get(v)

    def polynomial(self, v: Variable) -> Polynomial | None:
        if (value := self.value(v)) is None:
            return self._polynomials.get(v)
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
        return self._elementwise(node) if is_elementwise(node) else None

    def _elementwise(self, node: Apply) -> Polynomial | None:
        scalar: Any = node.op.scalar_op
        parts = [Polynomial(0) if _is_number(v) else self.polynomial(v) for v in node.inputs]
        polynomials = [polynomial for polynomial in parts if polynomial is not None]
        if len(polynomials) < len(parts):
            return None
        degrees = [polynomial.degree for polynomial in polynomials]
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
        constants = dict.fromkeys(v for polynomial in polynomials for v in polynomial.constants)
        gathers = dict.fromkeys(v for polynomial in polynomials for v in polynomial.gathers)
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
        if n is None or self.value(x) is not None or (polynomial := self.polynomial(x)) is None:
            return None
        if across and (polynomial.degree > 1 or np.shape(self.value(across[0]))[1] != n):
            return None
        return n, Sums(polynomial, tuple(across), (node,) if is_scatter(node) else ())

    def _is_matrix(self, v: Variable) -> bool:
        value = self.value(v)
        is_one = value is not None and v.type.dtype == "float64" and np.ndim(value) == 2
        return is_one and bool(np.all(np.isfinite(value)))


def _is_number(v: Variable) -> bool:
    return all(n == 1 for n in v.type.shape)


def is_gather(node: Apply) -> bool:
    """Whether a node reads an entry for each row, at constant positions."""
    n = length_of(node.outputs[0])
    is_one = isinstance(node.op, _GATHERS) and node.outputs[0].type.ndim == 1 and n is not None
    return is_one and _is_index(node.inputs[1:], n)


def is_scatter(node: Apply) -> bool:
    """Whether a node adds rows to entries at constant positions."""
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
    """Restrict a gather or a scatter to the entries of its index at ``rows``."""
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
