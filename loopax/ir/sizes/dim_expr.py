"""``DimExpr``: a length or a number of steps, as an affine expression over dimension variables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from loopax.facts.accesses import access_of
from loopax.ir.ops.scan_grammar import ScanGrammar


class Length(NamedTuple):
    """The length of a variable along an axis, as a dimension variable."""

    of: Variable
    axis: int


def asked_length(v: Variable) -> Length | None:
    """The length that the integer scalar ``v`` reads from an array; None for any other scalar."""
    node: Any = v.owner
    if node is None or not isinstance(node.op, Shape_i | Subtensor | DimShuffle) or v.type.ndim:
        return None
    x = node.inputs[0]
    if isinstance(node.op, Shape_i):
        return Length(x, node.op.i)
    if x.owner is None or not isinstance(x.owner.op, Shape):
        return None
    (array,) = x.owner.inputs
    if isinstance(node.op, DimShuffle):  # an array with one axis
        return Length(array, 0)
    index = access_of(node).rows
    axis = int(index.data) if isinstance(index, Constant) else array.type.ndim
    return Length(array, axis) if 0 <= axis < array.type.ndim else None


class Bound(NamedTuple):
    """The position of index ``at`` among ``length`` rows, from either end, as a dimension variable."""

    at: DimExpr
    length: DimExpr


class Clipped(NamedTuple):
    """The larger (``largest``) or smaller of two expressions, as a dimension variable."""

    largest: bool
    a: DimExpr
    b: DimExpr

    def replaced(self, value_of: Callable[[Any], DimExpr | None]) -> DimExpr:
        a, b = self.a.replaced(value_of), self.b.replaced(value_of)
        if a.constant is None or b.constant is None:
            return DimExpr.variable(Clipped(self.largest, a, b))
        return DimExpr(offset=(max if self.largest else min)(a.constant, b.constant))


# A number of a graph that only a run determines.
DimVariable: TypeAlias = Variable | Length | Bound | Clipped


@dataclass(frozen=True)
class DimExpr:
    """An affine expression: ``offset`` and a sum of dimension variables, each with a factor.

    A dimension variable is a `DimVariable`: an integer scalar of a graph, or a description of one.

    >>> (DimExpr.variable("n") + 2 - DimExpr.variable("n")).constant
    2
    """

    terms: frozenset[tuple[Any, int]] = frozenset()
    offset: int = 0

    @classmethod
    def variable(cls, variable: Hashable) -> DimExpr:
        """``variable`` itself."""
        return cls(frozenset([(variable, 1)]))

    @property
    def constant(self) -> int | None:
        """The constant value; None if it may vary between runs."""
        return None if self.terms else self.offset

    @property
    def only_variable(self) -> Any:
        """The dimension variable that is the whole expression; None otherwise."""
        ((variable, k), *further) = self.terms or [(None, 1)]
        return variable if k == 1 and not further and not self.offset else None

    def roots(self) -> list[Any]:
        """The dimension variables of the expression, and of its `Clipped` ones."""
        variables: list[Any] = []
        for v, _ in self.terms:
            variables += [*v.a.roots(), *v.b.roots()] if isinstance(v, Clipped) else [v]
        return variables

    def replaced(self, value_of: Callable[[Any], DimExpr | None]) -> DimExpr:
        """The expression with ``value_of`` applied to dimension variables, in `Clipped` ones too."""
        result = DimExpr(offset=self.offset)
        for v, k in self.terms:
            if isinstance(v, Clipped):
                value: DimExpr | None = v.replaced(value_of)
            else:
                value = value_of(v)
            result = result + (DimExpr.variable(v) if value is None else value) * k
        return result

    def __add__(self, other: DimExpr | int) -> DimExpr:
        if isinstance(other, int):
            return DimExpr(self.terms, self.offset + other)
        offset = self.offset + other.offset
        if not (
            self.terms and other.terms
        ):  # the usual case; without it half of the time goes to dicts
            return DimExpr(self.terms or other.terms, offset)
        counts = dict(self.terms)
        for variable, k in other.terms:
            counts[variable] = counts.get(variable, 0) + k
        return DimExpr(frozenset((v, k) for v, k in counts.items() if k), offset)

    def __mul__(self, k: int) -> DimExpr:
        if not k:
            return DimExpr()
        return DimExpr(frozenset((v, k * n) for v, n in self.terms), k * self.offset)

    def __neg__(self) -> DimExpr:
        return self * -1

    def __sub__(self, other: DimExpr | int) -> DimExpr:
        if isinstance(other, DimExpr) and self.terms == other.terms:
            return DimExpr(offset=self.offset - other.offset)
        return self + -other


class EqualDims:
    """Equalities between expressions, and their consequences."""

    def __init__(self, pairs: Iterable[tuple[DimExpr, DimExpr]]) -> None:
        self._is: dict[Any, DimExpr] = {}  # values of dimension variables
        for a, b in pairs:
            a, b = self.canonical(a), self.canonical(b)
            if a.only_variable is None:
                a, b = b, a
            if a.only_variable is not None and a.only_variable not in b.roots():
                self._is[a.only_variable] = b

    def canonical(self, expr: DimExpr) -> DimExpr:
        """The representative of all expressions equal to ``expr``: a number where one is."""
        while (simplified := expr.replaced(self._is.get)) != expr:
            expr = simplified
        return expr


def total(expressions: Iterable[DimExpr]) -> DimExpr:
    result = DimExpr()
    for expression in expressions:
        result = result + expression
    return result


def counts_steps(variable: DimVariable) -> bool:
    """Whether ``variable`` is the number of steps that a loop has taken before it stopped."""
    node = variable.owner if isinstance(variable, Variable) else None
    return (
        node is not None
        and isinstance(node.op, ScanGrammar)
        and node.op.stops
        and variable is node.outputs[-2]
    )
