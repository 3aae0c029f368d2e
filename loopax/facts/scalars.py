"""Records of scalar functions: their algebra and cost.

Nanoseconds were measured as described in `costs.py`, with native code's own vector functions. Cycles are
rough, for a number in a step of a loop, by the C library. A function that was never measured is assumed to
have an average cost.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as special
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op

from loopax.facts.record import Groups, ScalarFacts, inherited, is_foreign

ARITHMETIC = 0.06  # nanoseconds of a simple operation
_DEAR = 0.9  # an entry of a dearer operation costs more than writing and reading it

_JOINTLY, _SEPARATELY = "jointly", "separately"
_UNMEASURED = ScalarFacts(3.0, 20)

_scalars: dict[type, ScalarFacts] = {}


def register_scalar(op_class: type, facts: ScalarFacts) -> None:
    """Register the facts of ``op_class``, a class of scalar ops."""
    _scalars[op_class] = facts
    _facts_of_class.cache_clear()


def scalar_facts(op: Op) -> ScalarFacts | None:
    """The record of a scalar op; None for a composite, and for a user's op without one."""
    return _facts_of_class(type(op))


@cache
def _facts_of_class(op_class: type) -> ScalarFacts | None:
    known = inherited(op_class, _scalars)
    if known is not None or is_foreign(op_class) or issubclass(op_class, ps.ScalarInnerGraphOp):
        return known
    return _UNMEASURED


def parts_of(op: Op) -> list[Any]:
    """The scalar ops that ``op`` is composed of; ``op`` itself if it is not composite."""
    inner = getattr(op, "fgraph", None)
    return [op] if inner is None else [p for node in inner.apply_nodes for p in parts_of(node.op)]


def nanoseconds(op: Op) -> float:
    """The time of the scalar op for an entry; for a composite, the sum over its ops."""
    return sum((scalar_facts(part) or _UNMEASURED).nanoseconds for part in parts_of(op))


def cycles(op: Op) -> int:
    """The latency of the scalar op, in cycles."""
    return (scalar_facts(op) or _UNMEASURED).cycles


def is_dear(op: Op) -> bool:
    """Whether an entry costs more than a write and a read, as for an exponential or special function."""
    return any((scalar_facts(part) or _UNMEASURED).nanoseconds >= _DEAR for part in parts_of(op))


def linear_groups(op: Op, n: int) -> Groups:
    """Sets of the ``n`` arguments in which the scalar op is linear (`OpFacts.linear`)."""
    facts = scalar_facts(op)
    return () if facts is None else _groups(facts.linear, n)


def zero_groups(op: Op, n: int) -> Groups:
    """Sets of the ``n`` arguments whose zeros make the result zero (`OpFacts.zero`)."""
    facts = scalar_facts(op)
    if facts is None:
        return ()
    return _groups(_JOINTLY, n) if facts.keeps_zero else _groups(facts.linear, n)


@cache
def _groups(linear: str | Groups, n: int) -> Groups:
    if linear == _JOINTLY:
        return (frozenset(range(n)),)
    if linear == _SEPARATELY:
        return tuple(frozenset({k}) for k in range(n))
    assert not isinstance(linear, str)
    return linear


# -- where integers have no value --------------------------------------------------------------------


def is_float(v: Variable) -> bool:
    """Whether ``v`` is an array, or a number, with a float or complex dtype."""
    return str(getattr(v.type, "dtype", "")).startswith(("float", "complex"))


def is_real(v: Variable) -> bool:
    """Whether ``v`` is an array, or a number, with a real float dtype."""
    return str(getattr(v.type, "dtype", "")).startswith("float")


def _of_floats(node: Apply) -> bool:
    return is_float(node.outputs[0])


def _of_floats_or_two(node: Apply) -> bool:
    """Whether Python's unbounded integers are not involved: it adds three or more integers itself."""
    return is_float(node.outputs[0]) or len(node.inputs) <= 2


def _by_no_zero(node: Apply) -> bool:
    """Whether no integer is divided by zero, for which Python's operators raise."""
    divisor = node.inputs[1]
    return is_float(node.outputs[0]) or (
        isinstance(divisor, Constant) and bool(np.all(divisor.data))
    )


def _widens(node: Apply) -> bool:
    before, after = (str(v.type.dtype) for v in (node.inputs[0], node.outputs[0]))
    return is_float(node.outputs[0]) or after == "bool" or np.can_cast(before, after)


# -- the records -------------------------------------------------------------------------------------

_VALUE_OF = (frozenset({1}),)  # of ``second(like, value)``
_RECORDS: list[tuple[ScalarFacts, tuple[type, ...]]] = [
    (ScalarFacts(ARITHMETIC, 4, _JOINTLY, is_total=_of_floats_or_two), (ps.Add,)),
    (ScalarFacts(ARITHMETIC, 4, _JOINTLY), (ps.Sub,)),
    (ScalarFacts(ARITHMETIC, 1, _JOINTLY), (ps.Neg,)),
    (ScalarFacts(ARITHMETIC, 0, _JOINTLY), (ps.Identity,)),
    (ScalarFacts(ARITHMETIC, 2, _JOINTLY, is_total=_widens), (ps.Cast,)),
    (ScalarFacts(ARITHMETIC, 4, _SEPARATELY, is_total=_of_floats_or_two), (ps.Mul,)),
    (ScalarFacts(0.11, 13, (frozenset({0}),)), (ps.TrueDiv,)),
    (ScalarFacts(ARITHMETIC, 2, (frozenset({1, 2}),)), (ps.Switch,)),
    (ScalarFacts(ARITHMETIC, 0, _VALUE_OF), (ps.Second,)),
    (ScalarFacts(ARITHMETIC, 4, keeps_zero=True), (ps.Sqr,)),
    (ScalarFacts(ARITHMETIC, 1, keeps_zero=True), (ps.Abs, ps.Sign)),
    (ScalarFacts(0.13, 4, keeps_zero=True), (ps.ScalarMaximum, ps.ScalarMinimum)),
    (ScalarFacts(0.13, 8), (ps.Clip,)),
    (ScalarFacts(ARITHMETIC, 2), (ps.LogicalComparison, ps.IsNan, ps.IsInf)),
    (ScalarFacts(ARITHMETIC, 1), (ps.OR, ps.AND, ps.XOR, ps.Invert)),
    (ScalarFacts(0.11, 13), (ps.Reciprocal,)),
    (ScalarFacts(0.3, 15, keeps_zero=True), (ps.Sqrt,)),
    (ScalarFacts(0.3, 20, is_total=_by_no_zero), (ps.IntDiv, ps.Mod)),
    (
        ScalarFacts(0.13, 8, keeps_zero=True),
        (ps.Ceil, ps.Floor, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero),
    ),
    (ScalarFacts(ARITHMETIC, 1, keeps_zero=True), (ps.Real, ps.Imag, ps.Conj, ps.Complex)),
    (ScalarFacts(4.3, 20, is_total=_of_floats), (ps.Pow,)),
    (ScalarFacts(0.95, 20), (ps.Exp, ps.Exp2)),
    (ScalarFacts(1.05, 20), (ps.Log, ps.Log2, ps.Log10)),
    (ScalarFacts(1.8, 20, keeps_zero=True), (ps.Expm1,)),
    (ScalarFacts(1.0, 20, keeps_zero=True), (ps.Log1p,)),
    (ScalarFacts(2.1, 20, keeps_zero=True), (ps.Tanh,)),
    (
        ScalarFacts(3.0, 20, keeps_zero=True),
        (
            *(ps.Sin, ps.Tan, ps.ArcSin, ps.ArcTan, ps.Sinh, ps.ArcSinh, ps.ArcTanh),
            *(special.Erfinv, special.J1, special.I1),
        ),
    ),
    (ScalarFacts(3.3, 20, keeps_zero=True), (special.Erf,)),
    (ScalarFacts(3.1, 20), (special.Erfc,)),
    (ScalarFacts(2.9, 20), (special.Erfcx,)),
    (ScalarFacts(1.1, 20), (special.Sigmoid,)),
    (ScalarFacts(2.45, 45), (special.Softplus,)),  # two functions, or more
    (ScalarFacts(5.2, 45), (special.Log1mexp,)),
    (ScalarFacts(5.3, 60), (special.GammaLn,)),
    (ScalarFacts(3.4, 20), (special.Psi,)),
]
# The position of the argument at which a derivative may be infinite, and whether it is finite where this
# argument is positive.
_SINGULAR: dict[tuple[int, bool], tuple[type, ...]] = {
    (0, True): (
        *(ps.Log, ps.Log2, ps.Log10, ps.Log1p, ps.Sqrt, ps.Reciprocal, ps.Pow),
        *(special.Gamma, special.GammaLn, special.Psi, special.TriGamma),
    ),
    (0, False): (
        *(ps.ArcSin, ps.ArcCos, ps.ArcTanh, ps.ArcTan2, ps.ArcCosh),
        *(special.Erfinv, special.Erfcinv, special.Log1mexp),
    ),
    (1, True): (
        *(special.GammaInc, special.GammaIncC, special.Kve, special.PolyGamma),
        *(ps.TrueDiv, ps.Mod),
    ),
    (2, False): (special.BetaInc,),
    (3, False): (special.Hyp2F1,),
}
_POSITIVE: dict[str, tuple[type, ...]] = {
    "always": (ps.Exp, ps.Exp2, ps.Cosh, special.Softplus, special.Sigmoid, special.Erfcx),
    "kept": (
        *(ps.Add, ps.Mul, ps.TrueDiv, ps.Reciprocal, ps.Sqrt, ps.Sqr, ps.Pow),
        *(ps.ScalarMaximum, ps.ScalarMinimum, ps.Cast),
    ),
}


def _extend(classes: tuple[type, ...], **fields: Any) -> None:
    for cls in classes:
        register_scalar(cls, _scalars.get(cls, _UNMEASURED)._replace(**fields))


for _facts, _classes in _RECORDS:
    for _class in _classes:
        register_scalar(_class, _facts)
for (_singular, _is_regular), _classes in _SINGULAR.items():
    _extend(_classes, singular=_singular, is_regular_above_0=_is_regular)
for _positive, _classes in _POSITIVE.items():
    _extend(_classes, positive=_positive)
