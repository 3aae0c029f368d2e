"""Whether the outputs of a jaxpr are linear in its last input, a cotangent.

What JAX transposes is linear. A rule of a ``jax.custom_vjp`` function need not be: it may clip, normalize
or round the cotangent, print it, or solve an equation up to a tolerance. In float16 no function is, because
small numbers become 0; users scale the loss for that reason.

Each value is zero, constant, or linear in the cotangent. Equations without a rule here must read constants
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.base.upstream.jax import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, inner_jaxprs
from loopax.kernels.native_call.equations import n_rows


class _Is(IntEnum):
    ZERO, CONSTANT, LINEAR = range(3)


class _NotLinear(Exception):
    """Raised at an equation that may not be linear in the cotangent."""


States = list[_Is]


def is_linear(jaxpr: ClosedJaxpr) -> bool:
    """Whether each output is linear in the last input; rounding in float32 counts as linear."""
    states = [_Is.CONSTANT] * len(jaxpr.in_avals)
    try:
        outputs = _outputs(jaxpr.jaxpr, [*states[:-1], _Is.LINEAR], jaxpr.consts)
    except _NotLinear:
        return False
    return _Is.CONSTANT not in outputs  # a rule may ignore its cotangent


def _outputs(jaxpr: Jaxpr, inputs: Sequence[_Is], consts: Sequence[Any] = ()) -> States:
    """The states of the outputs."""
    known: dict[Any, _Is] = dict(zip(jaxpr.invars, inputs, strict=True))
    known.update(dict.fromkeys(jaxpr.constvars, _Is.CONSTANT))
    known.update(zip(jaxpr.constvars, map(_state_of_number, consts), strict=False))  # or none

    def state(v: Any) -> _Is:
        return _state_of_number(v.val) if isinstance(v, Literal) else known[v]

    for eqn in jaxpr.eqns:
        operands = [state(v) for v in eqn.invars]
        rule = _RULES.get(eqn.primitive.name, _inner)
        if _Is.LINEAR in operands and eqn.effects:
            raise _NotLinear
        # Zeros matter too: a linear value may be added to what is computed from them.
        is_of_interest = _Is.LINEAR in operands or _Is.ZERO in operands
        results = rule(eqn, operands) if is_of_interest else [_Is.CONSTANT] * len(eqn.outvars)
        for v, is_ in zip(eqn.outvars, results, strict=True):
            if is_ is _Is.LINEAR and not _is_precise(v.aval):
                raise _NotLinear
            known[v] = is_
    return [state(v) for v in jaxpr.outvars]


def _state_of_number(x: Any) -> _Is:
    """The state of a constant; a tracer, or a key of random numbers, has no number to look at."""
    has_numbers = isinstance(getattr(x, "dtype", np.dtype(float)), np.dtype)
    is_hidden = isinstance(x, jax.core.Tracer) or not has_numbers
    return _Is.CONSTANT if is_hidden or np.any(x) else _Is.ZERO


def _is_precise(aval: Any) -> bool:
    dtype = aval.dtype
    return jnp.issubdtype(dtype, jnp.inexact) and jnp.finfo(dtype).bits >= 32


def _moved(eqn: JaxprEqn, operands: States) -> States:
    """Linear in the first operand; the others are indices or divisors."""
    first, *others = operands
    if _Is.LINEAR in others:
        raise _NotLinear
    return [first] * len(eqn.outvars)


def _unchanged(eqn: JaxprEqn, operands: States) -> States:
    return operands


def _sum(operands: States) -> _Is:
    """The state of a sum, or of values side by side: a constant beside a linear value is an offset."""
    if _Is.LINEAR in operands and _Is.CONSTANT in operands:
        raise _NotLinear
    return max(operands)


def _added(eqn: JaxprEqn, operands: States) -> States:
    return [_sum(operands)]


def _selected(eqn: JaxprEqn, operands: States) -> States:
    condition, *cases = operands
    if condition is _Is.LINEAR:
        raise _NotLinear
    return [_sum(cases)]


def _written(eqn: JaxprEqn, operands: States) -> States:
    """An array with values written or added; the remaining operands are indices."""
    place = 2 if eqn.primitive.name.startswith("scatter") else 1
    array, values = operands[0], operands[place]
    if _Is.LINEAR in [*operands[1:place], *operands[place + 1 :]]:
        raise _NotLinear
    return [_sum([array, values])]


def _product(eqn: JaxprEqn, operands: States) -> States:
    if operands.count(_Is.LINEAR) > 1:
        raise _NotLinear
    return [_Is.ZERO if _Is.ZERO in operands else max(operands)]


def _solution(eqn: JaxprEqn, operands: States) -> States:
    matrix, right_side = operands
    if matrix is _Is.LINEAR:
        raise _NotLinear
    return [right_side]


def _linear_solve(eqn: JaxprEqn, operands: States) -> States:
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    start = lengths.matvec + lengths.vecmat
    right_sides = operands[sum(lengths) :]
    if _Is.LINEAR in operands[: sum(lengths)]:
        raise _NotLinear
    return _outputs(jaxprs.solve.jaxpr, [*operands[start : start + lengths.solve], *right_sides])


def _scan(eqn: JaxprEqn, operands: States) -> States:
    body = eqn.params["jaxpr"].jaxpr
    m = len(eqn.outvars) - n_rows(eqn.outvars, body.outvars)
    n = len(operands) - m - n_rows(eqn.invars, body.invars)
    carry, rows = operands[n : n + m], operands[n + m :]
    while True:  # terminates: a carry rises at most twice
        outs = _outputs(body, [*operands[:n], *carry, *rows])
        if (wider := _joined(carry, outs[:m])) == carry:
            return [*carry, *outs[m:]]
        carry = wider


def _while(eqn: JaxprEqn, operands: States) -> States:
    n, m = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    of_condition, of_body, carry = operands[:n], operands[n : n + m], operands[n + m :]
    while True:
        outs = _outputs(eqn.params["body_jaxpr"].jaxpr, [*of_body, *carry])
        if (wider := _joined(carry, outs)) == carry:
            break
        carry = wider
    if _Is.LINEAR in _outputs(eqn.params["cond_jaxpr"].jaxpr, [*of_condition, *carry]):
        raise _NotLinear
    return carry


def _branches(eqn: JaxprEqn, operands: States) -> States:
    index, *arguments = operands
    if index is _Is.LINEAR:
        raise _NotLinear
    outs = [_outputs(branch.jaxpr, arguments) for branch in eqn.params["branches"]]
    joined = outs[0]
    for other in outs[1:]:
        joined = _joined(joined, other)
    return joined


def _joined(first: States, second: States) -> States:
    return [_sum([a, b]) for a, b in zip(first, second, strict=True)]


def _kernel(eqn: JaxprEqn, operands: States) -> States:
    """Linear in the last operands of a derivative kernel, its tangents or cotangents."""
    n = eqn.params["kernel"].linear
    if _Is.LINEAR in operands[: len(operands) - n]:
        raise _NotLinear
    return [_sum(operands[len(operands) - n :])] * len(eqn.outvars)


def _inner(eqn: JaxprEqn, operands: States) -> States:
    """The outputs of a call's jaxpr; of another equation without a rule, constants at best."""
    jaxprs = [getattr(inner, "jaxpr", inner) for inner in inner_jaxprs(eqn)]
    lengths = [(len(inner.invars), len(inner.outvars)) for inner in jaxprs]
    is_custom = eqn.primitive.name.startswith("custom_")
    if lengths == [(len(operands), len(eqn.outvars))] and not is_custom:
        return _outputs(jaxprs[0], operands)
    if _Is.LINEAR in operands:
        raise _NotLinear
    return [_Is.CONSTANT] * len(eqn.outvars)


Rule = Callable[[JaxprEqn, States], States]
_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        [
            *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice"),
            *("copy", "copy_p", "split", "unstack", "dynamic_slice", "gather", "neg", "reduce_sum"),
            *("cumsum", "convert_element_type", "real", "imag", "conj", "fft", "name"),
            *("reduce_window_sum", "div"),
        ],
        _moved,
    ),
    **dict.fromkeys(["add", "sub", "add_any", "concatenate", "pad", "complex"], _added),
    **dict.fromkeys(["dynamic_update_slice", "scatter-add", "scatter"], _written),
    **dict.fromkeys(["mul", "dot_general", "conv_general_dilated"], _product),
    "optimization_barrier": _unchanged,  # of jax.checkpoint
    "select_n": _selected,
    "triangular_solve": _solution,
    "custom_linear_solve": _linear_solve,
    "scan": _scan,
    "while": _while,
    "cond": _branches,
    "loopax_kernel": _kernel,
}
