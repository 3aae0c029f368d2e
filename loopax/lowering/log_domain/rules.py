"""The rules of `Interpretation`: what is known of a node's output, from what is known of its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedGrad
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import CAReduce, DimShuffle

from loopax.facts.elementwise import scalar_op_of
from loopax.facts.families import normalized
from loopax.lowering.analysis.shifted_terms import number_in
from loopax.lowering.log_domain.interpretation import Interpretation, Rule
from loopax.lowering.log_domain.log_values import (
    DTYPES,
    Known,
    LogValue,
    Product,
    Vanishes,
    combined,
    constant_along,
    has_no_sign,
    moved,
    once,
)


def known_of(step: Interpretation, node: Apply, known: list[Known]) -> Known:
    """The form of the output of ``node``, whose inputs have the forms ``known``; None if it has none."""
    op: Any = node.op
    if isinstance(op, DimShuffle):
        return known[0] if isinstance(known[0], bool | None) else known[0].moved(op.new_order)
    if isinstance(op, DisconnectedGrad):
        return known[0]
    if isinstance(op, CAReduce):
        return _reduction(step, node, known)
    rule = _ELEMENTWISE.get(type(scalar_op_of(op)))
    return None if rule is None else rule(step, node, known)


def _reduction(step: Interpretation, node: Apply, known: list[Any]) -> Known:
    """A sum of products, or the maximum of log values; factors constant along the axes leave it."""
    op: Any = node.op
    (x,) = known
    ndim = node.inputs[0].type.ndim
    axes = normalized(op.axis, ndim)
    kept = [k for k in range(ndim) if k not in axes]
    is_sum = isinstance(op.scalar_op, ps.Add) and has_no_sign(x)
    is_maximum = isinstance(op.scalar_op, ps.ScalarMaximum) and isinstance(x, LogValue)
    if not (is_sum or is_maximum) or (is_maximum and not constant_along(x.shift, axes)):
        return None
    inside = {key: n for key, n in x.factors.items() if not constant_along({key: n}, axes)}
    if not inside:
        return None  # it counts the entries
    outside = {key: n for key, n in x.factors.items() if key not in inside}
    array = step.product(inside, ndim)
    reduced = pt.sum(array, axis=axes) if is_sum else op(array)  # which may raise for no entries
    step.reduced(reduced, inside, axes)
    factors = combined((once(reduced), 1), (moved(outside, kept), 1))
    return Product(factors, {}) if is_sum else LogValue(factors, moved(x.shift, kept))


# -- arithmetic --------------------------------------------------------------------------------------


def _powers(signs: tuple[int, ...], n: int) -> list[int]:
    return [*signs, *[signs[-1]] * n][:n]


def _linear(*signs: int) -> Rule:
    """The rule of a sum of terms with ``signs``, the last one for all further terms."""

    def rule(step: Interpretation, node: Apply, known: list[Known]) -> Known:
        shifts = [k.shift for k in known if isinstance(k, LogValue)]
        terms = [step.log_value(v, shifts) for v in node.inputs]
        if not shifts or any(t is None for t in terms):
            return None
        pairs: Any = list(zip(terms, _powers(signs, len(terms)), strict=True))
        return LogValue(
            step.merged(*((t.factors, n) for t, n in pairs)),
            combined(*((t.shift, n) for t, n in pairs)),
        )

    return rule


def _product(*signs: int) -> Rule:
    """The rule of a product of powers; a numerator may have factors of which nothing is known."""

    def rule(step: Interpretation, node: Apply, known: list[Known]) -> Known:
        if node.outputs[0].type.dtype not in DTYPES:
            return None
        parts, others = [], []
        for v, k, power in zip(node.inputs, known, _powers(signs, len(known)), strict=True):
            if isinstance(k, Product) and (power == 1 or not k.others):
                parts.append((k.factors, power))
                others.append((k.others, 1))
            elif power == 1:
                others.append((step.factor(v), 1))
            else:
                return None
        if not parts or any(n != 1 for n in combined(*others).values()):
            return None
        return Product(step.merged(*parts), combined(*others))

    return rule


def _exp(step: Interpretation, node: Apply, known: list[Known]) -> Known:
    (x,) = known
    return Product(x.factors, {}) if isinstance(x, LogValue) and not x.shift else None


def _log(step: Interpretation, node: Apply, known: list[Any]) -> Known:
    (x,) = known
    return LogValue(x.factors, {}) if has_no_sign(x) else None


def _abs(step: Interpretation, node: Apply, known: list[Known]) -> Known:
    (x,) = known
    return x if has_no_sign(x) else None


def _cast(step: Interpretation, node: Apply, known: list[Known]) -> Known:
    (x,) = known
    is_number = isinstance(x, LogValue | Product) and node.outputs[0].type.dtype in DTYPES
    return x if is_number else None


# -- products that may be 0 ----------------------------------------------------------------------------


def _maximum(step: Interpretation, node: Apply, known: list[Known]) -> Known:
    """The maximum of minus infinity and one other value."""
    others = [k for v, k in zip(node.inputs, known, strict=True) if number_in(v) != -np.inf]
    return others[0] if len(others) == 1 else None


def _is_nan(step: Interpretation, node: Apply, known: list[Any]) -> Known:
    return False if _is_number(step, known[0]) else None


def _is_infinite(step: Interpretation, node: Apply, known: list[Any]) -> Known:
    return Vanishes(known[0]) if _is_number(step, known[0]) else None


def _exceeds(step: Interpretation, node: Apply, known: list[Any]) -> Known:
    """The test ``x > 0`` of a product, or ``x > -inf`` of a logarithm."""
    x, bound = known[0], number_in(node.inputs[1])
    if has_no_sign(x) and bound == 0.0:
        x = LogValue(x.factors, {})
    elif bound != -np.inf:
        return None
    return Vanishes(x, is_negated=True) if _is_number(step, x) else None


def _is_number(step: Interpretation, x: Known) -> bool:
    """Whether ``x`` is a logarithm, of 0 or of a number, once no denominator is 0."""
    if not isinstance(x, LogValue):
        return False
    for (array, _), n in x.factors.items():
        if n < 0:
            step.check_positive(array)
    return True


def _not(step: Interpretation, node: Apply, known: list[Known]) -> Known:
    (x,) = known
    match x:
        case Vanishes(value, is_negated):
            return Vanishes(value, not is_negated)
        case bool():
            return not x
    return None


def _or(step: Interpretation, node: Apply, known: list[Known]) -> Known:
    """The one test that is not known to fail."""
    others = [k for k in known if k is not False]
    return others[0] if len(others) == 1 and isinstance(others[0], Vanishes) else None


def _switch(step: Interpretation, node: Apply, known: list[Known]) -> Known:
    """A value with a guard for where it is 0, or minus infinity; or the choice between two log values."""
    test, *values = known
    if isinstance(test, Vanishes):
        value, other = (1, 2) if test.is_negated else (2, 1)
        return _guarded(step, test.value, known[value], node.inputs[other])
    if not step.is_fixed(node.inputs[0]):
        return None
    return _choice(step, node, *(v for v in values if isinstance(v, LogValue)))


def _guarded(step: Interpretation, tested: LogValue, x: Known, other: Any) -> Known:
    """``x``, or ``other`` where the product of ``tested`` is 0."""
    if x == tested and step.is_zero(other):
        return step.guarded(tested)
    if has_no_sign(x) and x == Product(tested.factors, {}) and number_in(other) == 1.0:
        guarded = step.guarded(tested)
        return None if guarded is None else Product(guarded.factors, {})
    if isinstance(x, LogValue) and number_in(other) == -np.inf:
        return step.unguarded(x, tested)
    return None


def _choice(step: Interpretation, node: Apply, *values: LogValue) -> Known:
    """One of two log values, by a test that depends on no state, as for sequences of other lengths."""
    if len(values) < 2:
        return None
    test, ndim = node.inputs[0], node.outputs[0].type.ndim
    first, second = values
    array = pt.switch(test, *(step.product(v.factors, ndim) for v in values))
    factors = once(step.computed(array, first.factors, second.factors))
    common = {k: n for k, n in first.shift.items() if second.shift.get(k) == n}
    others = [step.terms(combined((v.shift, 1), (common, -1))) for v in values]
    if not any(others):
        return LogValue(factors, common)
    zero = pt.zeros((1,) * ndim)
    chosen = pt.switch(test, *(pt.add(zero, *terms) for terms in others))
    return LogValue(factors, combined((once(chosen), 1), (common, 1)))


_ELEMENTWISE: dict[type, Rule] = {
    ps.Add: _linear(1),
    ps.Sub: _linear(1, -1),
    ps.Neg: _linear(-1),
    ps.Mul: _product(1),
    ps.TrueDiv: _product(1, -1),
    ps.Reciprocal: _product(-1),
    ps.Exp: _exp,
    ps.Log: _log,
    ps.Abs: _abs,
    ps.Cast: _cast,
    ps.ScalarMaximum: _maximum,
    ps.IsNan: _is_nan,
    ps.IsInf: _is_infinite,
    ps.GT: _exceeds,
    ps.Invert: _not,
    ps.OR: _or,
    ps.Switch: _switch,
}
