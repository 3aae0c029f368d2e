"""Lengths and numbers of steps as affine expressions, so that a pass can prove what it needs of them.

    x[1:].shape[0] + 1  ->  length of x        where x has a row
    alloc(0, n + 1)     ->  n + 1 rows

A `DimExpr` is ``c + sum of k * variable``; a dimension variable is an integer, or the length of an array
along an axis, that nothing more is known of. Two expressions that are equal are equal in every run. What
cannot be followed is a variable of its own, so that nothing is ever claimed that does not hold.

Known of dimension variables: a length is 0 or more, and so is the number of steps that a loop has taken.
All else that is assumed of one is a `Fact`, which names the node that raises where it does not hold.

In the literature: symbolic shapes, as in JAX's shape polymorphism; the life of the analysis, beside a graph
that changes, is that of PyTensor's ``ShapeFeature`` (`loopax.ir.sizes.feature`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.typed_list import length as list_length

from loopax.ir import Scan
from loopax.ir.sizes.dim_expr import Clipped, DimExpr, Length, counts_steps
from loopax.ir.sizes.rules import length_rule, value_rule

_DEPTH = (
    50  # how many questions ask one another; a rule and what it asks take some six Python frames
)


class Fact(NamedTuple):
    """``node`` raises where ``expr >= least`` does not hold; used where ``expr`` is of one variable."""

    node: Apply
    expr: DimExpr
    least: int


def loop_facts(graph: AbstractFunctionGraph, dims: Dims) -> list[Fact]:
    """A loop of ``graph`` raises if asked for fewer than 0 steps; ``dims`` says what it is asked for."""
    loops = [node for node in graph.toposort() if isinstance(node.op, Scan)]
    return [Fact(node, dims.value(node.inputs[0]), 0) for node in loops]


class Dims:
    """What is known of the dimensions in a graph. Answers are kept until `forget`.

    Parameters
    ----------
    facts
        What is taken for granted; without any, only what holds whichever of the nodes are there.

    Examples
    --------
    >>> dims, x = Dims(), pt.dvector("x")
    >>> dims.length(pt.concatenate([x, x])) == dims.value(2 * x.shape[0])
    True
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._known: dict[Any, DimExpr] = {}
        self._readers: dict[Any, set[Any]] = {}  # of each question, those whose answers hang on it
        self._asking: list[Any] = []
        self._variables: dict[DimExpr, Any] = {}
        self.least: dict[Any, int] = {}  # of dimension variables, by the facts
        for _, expr, least in facts:
            if [k for _, k in expr.terms] == [1]:
                ((variable, _),) = expr.terms
                bound = least - expr.offset
                self.least[variable] = max(self.least.get(variable, bound), bound)

    # -- questions -------------------------------------------------------------------------------

    def value(self, v: Any) -> DimExpr:
        """The value of ``v``, an integer scalar: a number, a tensor or PyTensor's scalar."""
        if not isinstance(v, Variable):
            return DimExpr(offset=int(v))
        if isinstance(v, Constant):
            discrete = is_integer(v) or v.type.dtype == "bool"
            return DimExpr(offset=int(v.data)) if discrete else DimExpr.variable(v)
        return self._answer(v, v, value_rule)

    def length(self, x: Any, axis: int = 0) -> DimExpr:
        """The length of ``x``, a tensor or a typed list, along ``axis``."""
        static = getattr(x.type, "shape", None)
        if static is not None and static[axis] is not None:
            return DimExpr(offset=static[axis])
        if isinstance(x, Constant):
            return DimExpr(offset=len(x.data) if axis == 0 else x.data.shape[axis])
        return self._answer(Length(x, axis), x, length_rule, x, axis)

    def at_least(self, expr: DimExpr, k: int = 0) -> bool:
        """Whether ``expr >= k`` in every run, as far as can be told."""
        return self._at_least(expr - k, 4)

    def clipped(self, largest: bool, a: DimExpr, b: DimExpr) -> DimExpr:
        """The larger (``largest``) or the smaller of two expressions."""
        if self.at_least(a - b):
            return a if largest else b
        if self.at_least(b - a):
            return b if largest else a
        return DimExpr.variable(Clipped(largest, a, b))

    def _at_least(self, expr: DimExpr, rounds: int) -> bool:
        """``expr >= 0``, by the least value of each variable; a clipped one is either of its two."""
        least = expr.offset
        for variable, k in expr.terms:
            if isinstance(variable, Clipped) and rounds:
                # max(a, b) >= a, -min(a, b) >= -a: each of the two bounds it from below. Or it is one
                # of the two, nobody knows which.
                enough = any if variable.largest == (k > 0) else all
                without = expr - DimExpr(frozenset([(variable, k)]))
                return enough(
                    self._at_least(without + side * k, rounds - 1)
                    for side in (variable.a, variable.b)
                )
            bound = self._least_of(variable)
            if bound is None or k < 0:
                return False
            least += k * bound
        return least >= 0

    def _least_of(self, variable: Any) -> int | None:
        known = self.least.get(variable)
        is_unsigned = str(getattr(getattr(variable, "type", None), "dtype", "")).startswith("uint")
        if isinstance(variable, Length) or is_unsigned or counts_steps(variable):
            return max(0, known or 0)
        return known

    # -- answers ---------------------------------------------------------------------------------

    def maker(self, v: Any) -> Any:
        """The node that makes ``v``, None of an input, for a rule that looks further than its own node."""
        self._is_read(v)
        return v.owner

    def is_unknown(self, v: Any) -> bool:
        """Whether ``v``, or a length of it, was asked for, and nothing more is known of it."""
        return any(self._known.get(key) == DimExpr.variable(key) for key in _questions(v))

    def forget(self, changed: Iterable[Variable]) -> None:
        """Drop the answers that hang on one of ``changed``, or on what makes it."""
        stack = [key for v in changed for key in _questions(v)]
        if stack:
            self._variables.clear()
        while stack:
            key = stack.pop()
            self._known.pop(key, None)
            stack += self._readers.pop(key, ())

    def _is_read(self, key: Any) -> None:
        if self._asking:
            self._readers.setdefault(key, set()).add(self._asking[-1])

    def _answer(self, key: Any, v: Any, rule: Callable[..., DimExpr | None], *args: Any) -> DimExpr:
        self._is_read(key)
        if key in self._known:
            return self._known[key]
        if self._asking:
            return self._derive(key, v, rule, *args)
        questions = [(key, v, rule, *args)]
        while questions:  # ends: each one added is further up in the graph
            try:
                self._derive(*questions[-1])
                questions.pop()
            except _TooDeep as deep:
                questions.append(deep.question)
        return self._known[key]

    def _derive(self, key: Any, v: Any, rule: Callable[..., DimExpr | None], *args: Any) -> DimExpr:
        if len(self._asking) >= _DEPTH:
            raise _TooDeep((key, v, rule, *args))
        answer = None
        if v.owner is not None:
            self._asking.append(key)
            try:
                answer = rule(v.owner.op, self, v.owner, *args)
            finally:
                self._asking.pop()
        self._known[key] = DimExpr.variable(key) if answer is None else answer
        return self._known[key]

    # -- expressions as variables of the graph ---------------------------------------------------

    def variable(self, expr: DimExpr) -> Any:
        """``expr`` as an int64 scalar, one for each."""
        if expr not in self._variables:
            self._variables[expr] = self._written(expr)
        return self._variables[expr]

    def first(self, expr: DimExpr, v: Any) -> Any:
        """The first variable that was made or asked for that is ``expr``; it may be ``v``."""
        return self._variables.setdefault(expr, v)

    def _written(self, expr: DimExpr) -> Any:
        """One term at a time, so that what is left of each is kept as well."""
        if not expr.terms:
            return pt.constant(expr.offset, dtype="int64")
        if expr.offset:
            rest, offset = self.variable(DimExpr(expr.terms)), expr.offset
            return rest + offset if offset > 0 else rest - -offset
        *others, (variable, k) = sorted(expr.terms, key=lambda term: (-term[1], str(term[0])))
        if not others:
            if abs(k) == 1:
                v = self._as_integer(variable).astype("int64")
            else:
                v = self.variable(DimExpr.variable(variable)) * abs(k)
            return v if k > 0 else -v
        rest, last = self.variable(DimExpr(frozenset(others))), DimExpr.variable(variable) * abs(k)
        return rest + self.variable(last) if k > 0 else rest - self.variable(last)

    def _as_integer(self, variable: Any) -> Any:
        if isinstance(variable, Length):
            x: Any = variable.of
            return x.shape[variable.axis] if hasattr(x.type, "ndim") else list_length(x)
        if isinstance(variable, Clipped):
            choose = pt.maximum if variable.largest else pt.minimum
            return choose(self.variable(variable.a), self.variable(variable.b))
        return pt.as_tensor(variable)


class _TooDeep(Exception):
    """``question`` is to be asked first, so that the one that led to it goes no deeper."""

    def __init__(self, question: Any) -> None:
        self.question = question


def is_integer(v: Any) -> bool:
    """Whether ``v`` is of an integer dtype."""
    return str(getattr(v.type, "dtype", "")).startswith(("int", "uint"))


def _questions(v: Any) -> list[Any]:
    return [v, *(Length(v, axis) for axis in range(getattr(v.type, "ndim", 1)))]
