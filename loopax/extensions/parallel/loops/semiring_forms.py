"""Recognition of steps that are linear in a semiring, by the algebra of their operations.

    ``logs``     logsumexp replaces sums, and sums replace products: forward passes
    ``max``      max, and sums: Viterbi, queues, running maxima
    ``min``      min, and sums: shortest paths
    ``linear``   sums and products: forward passes of normalised probabilities

Each value of a step, a jaxpr, is `Fixed`, which depends on no state; or a `Form`: linear in the states in
that sense, times arbitrary factors that all its elements share; or `Other`. Examples of factors are the
shift of a safe logsumexp, which cancels in the end, and the normalisation of a filter, which does not. If
one does not cancel, the step must be of degree 0: the linear part alone then gives the carry up to a
factor, and one more step gives it exactly.

An operation that is not in the tables makes an `Other`, so that the analysis is sound.

A step that tests whether the largest of its numbers is infinite either makes a sum safe, or restarts in
that case. Its value at zero tells which: `Linear.asks_for_infinity` says that this must be checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from loopax.base.upstream.jax import Jaxpr, Literal
from loopax.extensions.parallel.loops.forms import (
    EXTREMES,
    INFINITE,
    PARTS,
    ZEROS,
    Fixed,
    Form,
    Linear,
    Other,
    Value,
    all_alike,
    constants,
    degrees,
    extent,
    fixed,
    flipped,
    true_where,
    with_axes,
)
from loopax.extensions.parallel.loops.homogeneous import SAME, degree
from loopax.extensions.parallel.loops.places import (
    MOVES,
    moved_axes,
    moved_place,
    own_place,
    without_axes,
)


def linear_in(semiring: str, jaxpr: Jaxpr, known: Sequence[Any]) -> Linear | None:
    """The linear dependence of the output of a flat ``jaxpr`` on its last input; None if there is none.

    ``known`` has the values of its constants and of its other inputs, or None. The output and the last
    input are vectors ``(K, M)``, and different columns are independent.
    """
    reading = _Reading(semiring)
    logs = semiring != "linear"
    *others, states = jaxpr.invars
    values: dict[Any, Value] = {
        v: Fixed() if x is None else Fixed.of(x)
        for v, x in zip([*jaxpr.constvars, *others], known, strict=True)
    }
    kind = "add" if logs else "mul"
    values[states] = Form(logs, own_place(states), (kind, SAME[1] + 1), {}, states)

    def value(v: Any) -> Value:
        return Fixed.of(v.val) if isinstance(v, Literal) else values[v]

    for k, eqn in enumerate(jaxpr.eqns):
        values |= zip(
            eqn.outvars, reading.outputs(k, eqn, [value(v) for v in eqn.invars]), strict=True
        )
    (out,) = jaxpr.outvars
    x = value(out)
    if not isinstance(x, Form) or x.is_log != logs or x.is_negative or x.is_constant:
        return None
    told = reading.is_unsure, reading.asks_for_infinity
    if not x.factors:
        is_linear = semiring == "linear"
        return None if is_linear else Linear(semiring, out, (), False, reading.offsets, *told)
    for axes, _ in x.factors.values():
        if axes[0] is not None:
            return None
    if x.degree != SAME or x.linear is None or reading.offsets:
        return None
    return Linear(semiring, x.linear, x.moves, True, {}, *told)


class _Reading:
    """The rules of one semiring."""

    def __init__(self, semiring: str) -> None:
        self.semiring, self.signed = semiring, semiring == "linear"
        self.offsets: dict[int, int] = {}
        self.is_unsure = self.asks_for_infinity = False

    def outputs(self, k: int, eqn: Any, operands: list[Value]) -> list[Value]:
        if eqn.primitive.name == "masked_tangent":  # its value is the first operand's
            return operands[:1]
        if all(isinstance(x, Fixed) for x in operands):
            return [fixed(eqn, operands)] * len(eqn.outvars)
        if len(eqn.outvars) == 1:
            return [self._output(k, eqn, operands)]
        same = all(d == SAME for d in degrees(operands))
        return [Other(own_place(v), SAME if same else None) for v in eqn.outvars]

    def _output(self, k: int, eqn: Any, operands: list[Value]) -> Value:
        (out,) = eqn.outvars
        if eqn.primitive.name == "select_n" and isinstance(operands[0], Other):
            # The choice for finite numbers. Otherwise the form is 0, as is the step at unit vectors.
            if operands[0].true_where is not None:
                self.asks_for_infinity = True
                return operands[1 if operands[0].true_where == INFINITE else 2]
        if (constant := self._constant(eqn, operands)) is not None:
            return constant
        if any(isinstance(x, Form) for x in operands):
            form = self._form(k, eqn, operands)
            if form is not None:
                return form
        d = degree(eqn, degrees(operands), constants(operands))
        x = operands[0]
        if isinstance(x, Other) and eqn.primitive.name in MOVES:
            return Other(moved_place(eqn, x.place), d, x.true_where, x.is_extreme)
        if isinstance(x, Other) and eqn.primitive.name == "not":
            return Other(own_place(out), d, flipped(x.true_where))
        name = eqn.primitive.name
        kept = name == "abs" and isinstance(x, Other) and x.is_extreme
        return Other(own_place(out), d, true_where(eqn, operands), kept or name in EXTREMES)

    def _constant(self, eqn: Any, operands: list[Value]) -> Form | None:
        """A fixed value, in logarithms, minus a value that may also be a factor of forms."""
        if self.signed or eqn.primitive.name not in ("add", "sub") or len(operands) != 2:
            return None
        others = [j for j, x in enumerate(operands) if isinstance(x, Other)]
        if len(others) != 1 or not isinstance(operands[1 - others[0]], Fixed):
            return None
        (j,) = others
        y: Any = operands[j]
        own = y.place.axes or (None,) * eqn.outvars[0].aval.ndim
        factors = {(y.place.root, True): (own, -1 if j and eqn.primitive.name == "sub" else 1)}
        d = degree(eqn, degrees(operands), constants(operands))
        return Form(True, own_place(eqn.outvars[0]), d, factors, is_constant=True)

    def _form(self, k: int, eqn: Any, operands: list[Value]) -> Form | None:
        """The result of an operation on forms, if it is a form; else None."""
        name = eqn.primitive.name
        x = next(x for x in operands if isinstance(x, Form))
        # A zero has any degree.
        each = [
            x.degree if self._is_zero(y) else e
            for y, e in zip(operands, degrees(operands), strict=True)
        ]
        d = degree(eqn, each, constants(operands))
        linear = None if x.factors else eqn.outvars[0]
        place = moved_place(eqn, x.place) if name in MOVES else own_place(eqn.outvars[0])
        new = Form(x.is_log, place, d, x.factors, linear, (), x.is_negative, x.is_constant)
        if name in MOVES:
            if x.factors and x.linear is not None:
                new = replace(new, linear=x.linear, moves=(*x.moves, eqn))
            return with_axes(new, [moved_axes(eqn, axes) for axes, _ in x.factors.values()])
        if name in PARTS:
            return self._parts(eqn, operands, new)
        if name in ("add", "add_any", "sub", "mul", "div"):
            in_logs = name in ("add", "add_any", "sub")
            if x.is_log == in_logs:
                return self._product(
                    eqn, operands, new, 1 if name in ("add", "add_any", "mul") else -1
                )
            return self._sum(k, eqn, operands, new) if in_logs and not x.is_log else None
        if name == "neg":
            if self.signed:
                return new
            return self._turned(new)
        if name == "exp" and x.is_log and self.semiring == "logs":
            return replace(new, is_log=False)
        if name == "log" and not x.is_log and self.semiring == "logs":
            return replace(new, is_log=True)
        plus = {"max": "min", "min": "max"}[self.semiring] if x.is_negative else self.semiring
        if name == f"reduce_{plus}" or (name == "reduce_sum" and not x.is_log):
            gone = eqn.params["axes"]
            return with_axes(new, [without_axes(axes, gone) for axes, _ in x.factors.values()])
        if name == plus:
            return self._sum(k, eqn, operands, new)
        if name == "dot_general" and not x.is_log:
            return self._contracted(eqn, operands, new)
        if name == "select_n" and isinstance(operands[0], Fixed):
            zeros = (
                new.is_log != self.signed and not new.is_negative
            )  # a literal zero is the semiring's zero
            forms = [y for y in operands[1:] if not (zeros and self._is_zero(y))]
            return new if all_alike(forms) else None
        return None

    def _is_zero(self, x: Value) -> bool:
        """Whether ``x`` is the zero of the semiring."""
        return isinstance(x, Fixed) and x.value == ZEROS[self.semiring]

    def _use(self, y: Any, x: Form) -> None:
        """Record the use of a fixed factor in a form: if it is negative it has no logarithm."""
        self.is_unsure |= not (x.is_log or y.is_nonnegative or self.signed)

    def _turned(self, x: Form) -> Form | None:
        factors = {root: (axes, -power) for root, (axes, power) in x.factors.items()}
        new = replace(x, is_negative=not x.is_negative, factors=factors)
        return new if self.semiring in ("max", "min") else None

    def _product(self, eqn: Any, operands: list[Value], new: Form, power: int) -> Form | None:
        """A form times a fixed value, or times another value that becomes a factor."""
        a, b = operands
        second = not isinstance(a, Form)
        if isinstance(a, Form) and isinstance(b, Form) and power > 0:
            second = extent(a) < extent(b)
        x, y, v = (b, a, eqn.invars[1]) if second else (a, b, eqn.invars[0])
        assert isinstance(x, Form)
        if second and power < 0:
            return self._turned(new) if isinstance(y, Fixed) and x.is_log else None
        if isinstance(y, Fixed):
            self._use(y, x)
            return new
        shape = eqn.outvars[0].aval.shape
        own = y.place.axes or (None,) * len(shape)  # a scalar combined with an array
        key = y.place.root, x.is_log
        axes, before = x.factors.get(key, (own, 0))
        if axes != own or v.aval.shape != shape:
            return None
        factors = {**x.factors, key: (own, before + power)}
        if not before + power:
            del factors[key]
        if not factors:
            return replace(new, factors=factors, linear=eqn.outvars[0])
        linear, moves = (x.linear, x.moves) if x.factors else (v, ())
        return replace(new, factors=factors, linear=linear, moves=moves)

    def _sum(self, k: int, eqn: Any, operands: list[Value], new: Form) -> Form | None:
        """A sum of forms with equal factors, one perhaps constant; or of a form and a fixed value."""
        if eqn.primitive.name == "sub" and not self.signed:
            return None
        if all_alike(operands):
            return new
        if self.signed:
            return None
        constant = [j for j, x in enumerate(operands) if isinstance(x, Form) and x.is_constant]
        if constant and all(isinstance(x, Form) and x.kind == new.kind for x in operands):
            self.offsets[k] = constant[0]
            return replace(new, is_constant=False)
        fixed = [j for j, x in enumerate(operands) if isinstance(x, Fixed)]
        if not fixed or new.factors or new.is_constant:
            return None
        self._use(operands[fixed[0]], new)
        self.offsets[k] = fixed[0]
        return new

    def _parts(self, eqn: Any, operands: list[Value], new: Form) -> Form | None:
        """Slices, concatenations or paddings of forms, along axes without factors."""
        name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
        forms = [x for x in operands if isinstance(x, Form)]
        fixed_parts = [x for x in operands if not isinstance(x, Form)]
        if (
            not all(map(self._is_zero, fixed_parts))
            or (fixed_parts and new.is_negative)
            or not all_alike(forms)
            or (fixed_parts and not new.is_log and not self.signed)
        ):
            return None
        first = next(v for v, x in zip(eqn.invars, operands, strict=True) if isinstance(x, Form))
        changed = {
            j for j, (m, n) in enumerate(zip(first.aval.shape, shape, strict=True)) if m != n
        }
        changed |= set(eqn.params["dimensions"]) if name == "rev" else set()
        changed |= {eqn.params["dimension"]} if name == "concatenate" else set()
        if any(axes[j] is not None for axes, _ in new.factors.values() for j in changed):
            return None
        return new

    def _contracted(self, eqn: Any, operands: list[Value], new: Form) -> Form | None:
        """A ``dot_general`` of a form and a fixed value."""
        side = 0 if isinstance(operands[0], Form) else 1
        y = operands[1 - side]
        if not isinstance(y, Fixed):
            return None
        self._use(y, new)
        contracted, batched = (dims[side] for dims in eqn.params["dimension_numbers"])
        (c0, c1), (b0, b1) = eqn.params["dimension_numbers"]
        others = [
            [k for k in range(v.aval.ndim) if k not in (*c, *b)]
            for v, c, b in zip(eqn.invars, (c0, c1), (b0, b1), strict=True)
        ]
        moved: list[tuple[int | None, ...] | None] = []
        for axes, _ in new.factors.values():
            if any(axes[k] is not None for k in contracted):
                return None
            own = [axes[k] for k in others[side]]
            none: list[int | None] = [None] * len(others[1 - side])
            moved.append((*(axes[k] for k in batched), *(own + none if not side else none + own)))
        return with_axes(new, moved)
