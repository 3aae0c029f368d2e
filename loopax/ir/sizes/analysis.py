"""Lengths and trip counts as affine expressions, with which passes prove conditions.

    x[1:].shape[0] + 1  ->  length of x        where x has a row
    alloc(0, n + 1)     ->  n + 1 rows

A `DimExpr` is ``c + sum of k * variable``; a dimension variable is an integer, or the length of an
array along an axis, without further known structure. Equal expressions are equal in every run. A
value that cannot be analysed becomes a variable of its own, which keeps the analysis sound.

A length is 0 or more, and so is the number of steps that a loop has taken. Any other assumption about
a dimension variable is a `Fact`, which names the node that raises where it does not hold.

In the literature: symbolic shapes, as in JAX's shape polymorphism; the analysis follows a changing
graph as PyTensor's ``ShapeFeature`` does (`loopax.ir.sizes.feature`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, SupportsInt

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.typed_list import length as list_length

from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.sizes.dim_expr import Clipped, DimExpr, DimVariable, Length, counts_steps
from loopax.ir.sizes.rules import length_rule, value_rule

_DEPTH = 50  # nested questions; each takes some six Python frames


class Fact(NamedTuple):
    """An assumption: ``node`` raises unless ``expr >= least``; used where ``expr`` has one variable."""

    node: Apply
    expr: DimExpr
    least: int


def loop_facts(graph: AbstractFunctionGraph, dims: Dims) -> list[Fact]:
    """The facts of the loops in ``graph``, which raise for a negative number of steps."""
    loops = [node for node in graph.toposort() if isinstance(node.op, ScanGrammar)]
    return [Fact(node, dims.value(node.inputs[0]), 0) for node in loops]


class Dims:
    """The analysis of the dimensions in a graph. Answers are cached until `forget`.

    Parameters
    ----------
    facts
        The assumptions; without any, answers hold whichever nodes the graph contains.

    Examples
    --------
    >>> dims, x = Dims(), pt.dvector("x")
    >>> dims.length(pt.concatenate([x, x])) == dims.value(2 * x.shape[0])
    True
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._known: dict[Any, DimExpr] = {}
        self._readers: dict[
            Any, set[Any]
        ] = {}  # of each question, those whose answers depend on it
        self._stack: list[Any] = []
        self._variables: dict[DimExpr, Any] = {}
        self.least: dict[Any, int] = {}  # the lower bounds of dimension variables, from the facts
        for _, expr, least in facts:
            if [k for _, k in expr.terms] == [1]:
                ((variable, _),) = expr.terms
                bound = least - expr.offset
                self.least[variable] = max(self.least.get(variable, bound), bound)

    # -- questions -------------------------------------------------------------------------------

    def value(self, v: Variable | SupportsInt) -> DimExpr:
        """The value of ``v``, an integer scalar: a number, a tensor or PyTensor's scalar variable."""
        if not isinstance(v, Variable):
            return DimExpr(offset=int(v))
        if isinstance(v, Constant):
            discrete = is_integer(v) or v.type.dtype == "bool"
            return DimExpr(offset=int(v.data)) if discrete else DimExpr.variable(v)
        return self._answer(v, v, value_rule)

    def length(self, x: Variable, axis: int = 0) -> DimExpr:
        """The length of ``x``, a tensor or a typed list, along ``axis``."""
        static = getattr(x.type, "shape", None)
        if static is not None and static[axis] is not None:
            return DimExpr(offset=static[axis])
        if isinstance(x, Constant):
            return DimExpr(offset=len(x.data) if axis == 0 else x.data.shape[axis])
        return self._answer(Length(x, axis), x, length_rule, x, axis)

    def at_least(self, expr: DimExpr, k: int = 0) -> bool:
        """Whether ``expr >= k`` provably holds in every run."""
        return self._at_least(expr - k, 4)

    def clipped(self, largest: bool, a: DimExpr, b: DimExpr) -> DimExpr:
        """The larger (``largest``) or the smaller of two expressions."""
        if self.at_least(a - b):
            return a if largest else b
        if self.at_least(b - a):
            return b if largest else a
        return DimExpr.variable(Clipped(largest, a, b))

    def _at_least(self, expr: DimExpr, rounds: int) -> bool:
        """Whether ``expr >= 0`` by lower bounds of its variables; ``rounds`` limits nested clipped ones."""
        least = expr.offset
        for variable, k in expr.terms:
            if isinstance(variable, Clipped) and rounds:
                # max(a, b) >= a, -min(a, b) >= -a: each of the two is a lower bound. In the other
                # cases it is one of the two, unknown which.
                enough = any if variable.largest == (k > 0) else all
                other_terms = expr - DimExpr(frozenset([(variable, k)]))
                return enough(
                    self._at_least(other_terms + side * k, rounds - 1)
                    for side in (variable.a, variable.b)
                )
            bound = self._least_of(variable)
            if bound is None or k < 0:
                return False
            least += k * bound
        return least >= 0

    def _least_of(self, variable: DimVariable) -> int | None:
        bound = self.least.get(variable)
        is_unsigned = str(getattr(getattr(variable, "type", None), "dtype", "")).startswith("uint")
        if isinstance(variable, Length) or is_unsigned or counts_steps(variable):
            return max(0, bound or 0)
        return bound

    # -- answers ---------------------------------------------------------------------------------

    def maker(self, v: Variable) -> Any:
        """The node of ``v``, None for an input; for rules that read beyond their own node."""
        self._is_read(v)
        return v.owner

    def is_unknown(self, v: Variable) -> bool:
        """Whether the analysis of ``v``, or of a length of it, found nothing but a new variable."""
        return any(self._known.get(key) == DimExpr.variable(key) for key in _questions(v))

    def forget(self, changed: Iterable[Variable]) -> None:
        """Drop the answers that depend on one of ``changed``, or on its node."""
        stack = [key for v in changed for key in _questions(v)]
        if stack:
            self._variables.clear()
        while stack:
            key = stack.pop()
            self._known.pop(key, None)
            stack += self._readers.pop(key, ())

    def _is_read(self, key: DimVariable) -> None:
        if self._stack:
            self._readers.setdefault(key, set()).add(self._stack[-1])

    def _answer(
        self,
        key: DimVariable,
        v: Variable,
        rule: Callable[..., DimExpr | None],
        *args: Variable | int,
    ) -> DimExpr:
        self._is_read(key)
        if key in self._known:
            return self._known[key]
        if self._stack:
            return self._derive(key, v, rule, *args)
        questions: list[tuple[Any, ...]] = [(key, v, rule, *args)]
        while questions:  # terminates: each added question is further up in the graph
            try:
                self._derive(*questions[-1])
                questions.pop()
            except _TooDeep as deep:
                questions.append(deep.question)
        return self._known[key]

    def _derive(
        self,
        key: DimVariable,
        v: Variable,
        rule: Callable[..., DimExpr | None],
        *args: Variable | int,
    ) -> DimExpr:
        if len(self._stack) >= _DEPTH:
            raise _TooDeep((key, v, rule, *args))
        answer = None
        if v.owner is not None:
            self._stack.append(key)
            try:
                answer = rule(v.owner.op, self, v.owner, *args)
            finally:
                self._stack.pop()
        self._known[key] = DimExpr.variable(key) if answer is None else answer
        return self._known[key]

    # -- expressions as variables of the graph ---------------------------------------------------

    def variable(self, expr: DimExpr) -> Any:
        """Build ``expr`` as an int64 scalar, one variable for each expression."""
        if expr not in self._variables:
            self._variables[expr] = self._written(expr)
        return self._variables[expr]

    def first(self, expr: DimExpr, v: Variable) -> Any:
        """The first variable with the value ``expr``; ``v`` if there was none."""
        return self._variables.setdefault(expr, v)

    def _written(self, expr: DimExpr) -> Any:
        """Build ``expr`` one term at a time, so that the partial sums are cached as well."""
        if not expr.terms:
            return pt.constant(expr.offset, dtype="int64")
        if expr.offset:
            remainder, offset = self.variable(DimExpr(expr.terms)), expr.offset
            return remainder + offset if offset > 0 else remainder - -offset
        *leading, (variable, k) = sorted(expr.terms, key=lambda term: (-term[1], str(term[0])))
        if not leading:
            if abs(k) == 1:
                v = self._as_integer(variable).astype("int64")
            else:
                v = self.variable(DimExpr.variable(variable)) * abs(k)
            return v if k > 0 else -v
        remainder, last = (
            self.variable(DimExpr(frozenset(leading))),
            DimExpr.variable(variable) * abs(k),
        )
        return remainder + self.variable(last) if k > 0 else remainder - self.variable(last)

    def _as_integer(self, variable: Variable | Length | Clipped) -> Any:
        if isinstance(variable, Length):
            x: Any = variable.of
            return x.shape[variable.axis] if hasattr(x.type, "ndim") else list_length(x)
        if isinstance(variable, Clipped):
            choose = pt.maximum if variable.largest else pt.minimum
            return choose(self.variable(variable.a), self.variable(variable.b))
        return pt.as_tensor(variable)


class _TooDeep(Exception):
    """Raised to have ``question`` answered first, which limits the recursion depth."""

    def __init__(self, question: tuple[Any, ...]) -> None:
        self.question = question


def is_integer(v: Variable) -> bool:
    return str(getattr(v.type, "dtype", "")).startswith(("int", "uint"))


def _questions(v: Variable) -> list[Any]:
    return [v, *(Length(v, axis) for axis in range(getattr(v.type, "ndim", 1)))]
