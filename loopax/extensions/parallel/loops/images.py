"""The dependence of each value of a step on the states before it: none, affine, or other.

The step is a jaxpr, which has few operations. Each of its values is a `Known`, which depends on no state,
or an `Image` of the states. An image records whether it is affine in them, whether its coefficients change
between steps, and which of its axes lie along an axis of the states, unmixed: elements at index ``p`` of
the image then depend only on elements at index ``p`` of the states.

An affine map with all axes unmixed has a diagonal matrix; a map with none, a full one. An operation that is
not in the tables below makes an image without any of these properties, so that the analysis is sound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from loopax.base.upstream.jax import Jaxpr, Literal
from loopax.extensions.parallel.loops.flat_jaxpr import CALLS
from loopax.extensions.parallel.loops.places import REDUCTIONS, axis_sources


@dataclass(frozen=True)
class Known:
    """A value that depends on no state; ``varying`` says whether it differs between steps."""

    varying: bool


@dataclass(frozen=True)
class Image:
    """A value that depends on states."""

    # For each axis, the axis of the states that it is, unmixed; else None.
    axes: tuple[int | None, ...]
    affine: bool = True  # whether it is affine in the states
    # Whether its linear part may differ from step to step. The offset always may.
    varying: bool = False
    unit: bool = False  # whether it is one state plus a known value
    # Whether values that only a run tells, such as a flag or an index, decide which states it reads.
    selects: bool = False
    broken_by: str = ""  # the first operation that is not affine in the states


Value = Known | Image


def state_image(ndim: int) -> Image:
    """The image of a state of this rank under the identity."""
    return Image(tuple(range(ndim)), unit=True)


def images(jaxpr: Jaxpr, inputs: Sequence[Value]) -> list[Value]:
    """The images of the outputs of ``jaxpr`` for the given ``inputs``; its constants are known."""
    images_of: dict[Any, Value] = dict.fromkeys(jaxpr.constvars, Known(varying=False))
    images_of |= zip(jaxpr.invars, inputs, strict=True)

    def value(v: Any) -> Value:
        return Known(varying=False) if isinstance(v, Literal) else images_of[v]

    for eqn in jaxpr.eqns:
        inputs = [value(v) for v in eqn.invars]
        outs = [_with_culprit(eqn.primitive.name, inputs, x) for x in _outputs(eqn, inputs)]
        images_of.update(zip(eqn.outvars, outs, strict=True))
    return [value(v) for v in jaxpr.outvars]


def _with_culprit(name: str, operands: list[Value], x: Value) -> Value:
    """Record in ``x``, the result of the operation ``name``, the operation that makes it not affine."""
    if isinstance(x, Known) or x.affine or x.broken_by:
        return x
    before = [y.broken_by for y in operands if isinstance(y, Image) and not y.affine]
    return replace(x, broken_by=(before or [name])[0])


def _outputs(eqn: Any, operands: list[Value]) -> list[Value]:
    of_states = [x for x in operands if isinstance(x, Image)]
    if not of_states:
        return [Known(any(x.varying for x in operands))] * len(eqn.outvars)
    name = eqn.primitive.name
    if name in CALLS:
        inner = eqn.params[CALLS[name]]
        return images(getattr(inner, "jaxpr", inner), operands)
    if name == "custom_jvp_call":  # its derivative may not match an affine map
        images_inside = images(eqn.params["call_jaxpr"].jaxpr, operands)
        return [_selecting(_not_affine(x)) for x in images_inside]
    if name == "cond":
        return _conditional(eqn, operands)
    if name == "optimization_barrier":
        return operands
    if name == "masked_tangent":  # where the mask is false, the value is not used
        return operands[:1]
    rule = _RULES.get(name)
    if rule is None:
        return [_mixed(v) for v in eqn.outvars]
    if rule in _ELEMENTWISE:
        operands = [_of_rank(x, eqn.outvars[0].aval.ndim) for x in operands]
    return [rule(eqn, operands)] * len(eqn.outvars)


def _of_rank(x: Value, ndim: int) -> Value:
    """Pad the axes of a scalar operand of an elementwise operation to the rank of arrays."""
    if isinstance(x, Known) or len(x.axes) == ndim:
        return x
    return replace(x, axes=(None,) * ndim, unit=False)


def _not_affine(x: Value) -> Value:
    if isinstance(x, Known):
        return x
    return Image(x.axes, affine=False, varying=True, selects=x.selects)


def _selecting(x: Value) -> Value:
    return x if isinstance(x, Known) else replace(x, selects=True)


def _mixed(v: Any) -> Image:
    return Image((None,) * v.aval.ndim, affine=False, varying=True, selects=True)


def _merged(a: Value, b: Value) -> Value:
    """Merge two values of one shape, by a sum or a selection."""
    if isinstance(a, Known):
        if isinstance(b, Known):
            return Known(a.varying or b.varying)
        return b
    if isinstance(b, Known):
        return a
    axes = tuple(p if p == q else None for p, q in zip(a.axes, b.axes, strict=True))
    varying, selects = a.varying or b.varying, a.selects or b.selects
    return Image(axes, a.affine and b.affine, varying, selects=selects)


def _varies(operands: Sequence[Value]) -> bool:
    return any(x.varying for x in operands if isinstance(x, Known))


def _first(operands: Sequence[Value]) -> Image:
    return next(x for x in operands if isinstance(x, Image))


# -- elementwise -----------------------------------------------------------------------------------------


def _sum(eqn: Any, operands: list[Value]) -> Value:
    merged = reduce(_merged, operands)
    is_negated = eqn.primitive.name == "sub" and isinstance(operands[1], Image)
    return replace(merged, unit=False) if is_negated and isinstance(merged, Image) else merged


def _scaled(eqn: Any, operands: list[Value]) -> Value:
    """A product or quotient: affine if only one factor, or only the numerator, depends on states."""
    a, b = operands
    image = reduce(_merged, operands)
    assert isinstance(image, Image)
    varying = image.varying or _varies(operands)
    exact = eqn.primitive.name == "mul" or _is_float(eqn.outvars[0])
    affine = isinstance(b, Known) if eqn.primitive.name == "div" else not _both(a, b)
    return replace(image, affine=image.affine and affine and exact, varying=varying, unit=False)


def _both(a: Value, b: Value) -> bool:
    return isinstance(a, Image) and isinstance(b, Image)


def _converted(eqn: Any, operands: list[Value]) -> Value:
    (x,) = operands
    same = eqn.invars[0].aval.dtype == eqn.outvars[0].aval.dtype
    floats = _is_float(eqn.invars[0]) and _is_float(eqn.outvars[0])
    return replace(
        _first(operands), affine=_first(operands).affine and (floats or same), unit=False
    )


def _is_float(v: Any) -> bool:
    return bool(np.issubdtype(v.aval.dtype, np.inexact))


def _selected(eqn: Any, operands: list[Value]) -> Value:
    which, *cases = operands
    image = reduce(_merged, cases)
    if isinstance(which, Image):  # the selector depends on the states too
        return _selecting(_not_affine(_merged(image, which)))
    assert isinstance(image, Image)
    return replace(image, varying=image.varying or which.varying, unit=False, selects=True)


def _elementwise(eqn: Any, operands: list[Value]) -> Value:
    """An elementwise function: not affine, but axes stay unmixed."""
    image = _not_affine(reduce(_merged, operands))
    return _selecting(image) if eqn.primitive.name == "clamp" else image


# -- shapes ----------------------------------------------------------------------------------------------


def _moved(eqn: Any, operands: list[Value]) -> Value:
    """The image of a result with moved elements, or mixed along some axes."""
    image = _first(operands)
    axes = tuple(None if k is None else image.axes[k] for k in axis_sources(eqn))
    kept = eqn.primitive.name in ("broadcast_in_dim", "reshape") and (
        eqn.outvars[0].aval.shape == eqn.invars[0].aval.shape
    )
    return replace(image, axes=axes, unit=image.unit and kept)


def _of_whole_axes(eqn: Any, operands: list[Value]) -> Value:
    """A part of one operand, or a padding of it: axes that change their length are mixed."""
    new = eqn.outvars[0].aval.shape
    if any(len(x.axes) != len(new) for x in operands if isinstance(x, Image)):
        return _mixed(eqn.outvars[0])  # an index, or a padding value
    merged: Any = None
    for x, v in zip(operands, eqn.invars, strict=True):
        if isinstance(x, Image):
            old = v.aval.shape
            axes = tuple(a if m == n else None for a, m, n in zip(x.axes, old, new, strict=True))
            part = replace(x, axes=axes, unit=False)
            merged = part if merged is None else _merged(merged, part)
    selects = merged.selects or eqn.primitive.name.startswith("dynamic")
    return replace(merged, varying=merged.varying or _varies(operands), selects=selects)


def _mixing(eqn: Any, operands: list[Value]) -> Image:
    """Linear in the operands that depend on states, with known indices or matrices."""
    image = _mixed(eqn.outvars[0])
    parts = [x for x in operands if isinstance(x, Image)]
    varying = any(x.varying for x in operands)
    affine, selects = all(x.affine for x in parts), any(x.selects for x in parts)
    return replace(image, affine=affine, varying=varying, selects=selects)


def _indexed(eqn: Any, operands: list[Value]) -> Value:
    """A gather or scatter: affine if the indices are known."""
    mixed = _mixing(eqn, operands)
    affine = mixed.affine and isinstance(operands[1], Known)
    return replace(mixed, affine=affine, selects=True)


def _solved(eqn: Any, operands: list[Value]) -> Value:
    """A triangular solve: linear in its right-hand side."""
    mixed = _mixing(eqn, operands)
    return replace(mixed, affine=mixed.affine and isinstance(operands[0], Known))


def _product(eqn: Any, operands: list[Value]) -> Value:
    """A ``dot_general``: batch axes, then remaining axes of the first and of the second operand."""
    (contracted, batched) = eqn.params["dimension_numbers"]
    axes: list[list[int | None]] = []
    for x, v in zip(operands, eqn.invars, strict=True):
        axes.append(list(x.axes) if isinstance(x, Image) else [None] * v.aval.ndim)
    a, b = operands
    of_batch = [
        # If both depend on the states, both must agree on the axis.
        (p if p == q else None) if _both(a, b) else (p if isinstance(a, Image) else q)
        for p, q in ((axes[0][i], axes[1][j]) for i, j in zip(*batched, strict=True))
    ]
    kept_axes: list[int | None] = []
    for side in (0, 1):
        done = {*contracted[side], *batched[side]}
        kept_axes += [x for k, x in enumerate(axes[side]) if k not in done]
    image = _mixing(eqn, operands)
    if _both(a, b):
        return replace(
            image, axes=(*of_batch, *[None] * len(kept_axes)), affine=False, varying=True
        )
    return replace(image, axes=(*of_batch, *kept_axes))


def _conditional(eqn: Any, inputs: list[Value]) -> list[Value]:
    """A conditional: the selection of a branch by a known index."""
    which, *operands = inputs
    branches = [images(branch.jaxpr, operands) for branch in eqn.params["branches"]]
    merged = [reduce(_merged, values) for values in zip(*branches, strict=True)]
    if isinstance(which, Image):
        return [_mixed(v) for v in eqn.outvars]
    return [_selecting(replace(x, varying=x.varying or which.varying)) for x in merged]


_RULES: dict[str, Callable[[Any, list[Value]], Value]] = {
    **dict.fromkeys(("add", "add_any", "sub"), _sum),
    **dict.fromkeys(("mul", "div"), _scaled),
    **dict.fromkeys(("copy", "copy_p", "reduce_precision"), lambda eqn, operands: _first(operands)),
    "neg": lambda eqn, operands: replace(_first(operands), unit=False),
    "convert_element_type": _converted,
    "select_n": _selected,
    **dict.fromkeys(("broadcast_in_dim", "reshape", "squeeze", "transpose"), _moved),
    **dict.fromkeys(("slice", "dynamic_update_slice", "dynamic_slice", "pad"), _of_whole_axes),
    **dict.fromkeys(("rev", "cumsum"), _moved),
    **dict.fromkeys(REDUCTIONS, lambda eqn, operands: _not_affine(_moved(eqn, operands))),
    "reduce_sum": _moved,
    # The coefficients of known operands are zeros, and so the same in every step.
    "concatenate": lambda eqn, operands: _moved(eqn, [reduce(_merged, operands)]),
    **dict.fromkeys(("gather", "scatter", "scatter-add", "scatter_add"), _indexed),
    "triangular_solve": _solved,
    "dot_general": _product,
    **dict.fromkeys(
        (
            *("max", "min", "abs", "sign", "square", "integer_pow", "pow", "sqrt", "rsqrt", "cbrt"),
            *("exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "sin", "cos", "tan"),
            *("asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh"),
            *("erf", "erfc", "erf_inv", "lgamma", "digamma", "floor", "ceil", "round", "rem"),
            *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor", "is_finite", "clamp"),
            *("nextafter", "stop_gradient"),
        ),
        _elementwise,
    ),
}
_ELEMENTWISE = (_sum, _scaled, _selected, _elementwise)
