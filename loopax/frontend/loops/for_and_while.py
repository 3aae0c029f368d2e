"""Loops without sequences, special cases of `scan`.

- `fori_loop` counts, and collects nothing;
- `while_loop` has a condition that stops it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.type import TensorType

from loopax.base.errors import LoopTypeError, describe
from loopax.frontend.loops import keywords
from loopax.frontend.loops.leaves import as_variable
from loopax.frontend.loops.loop import Emitted, build_loop, make_options, parameter
from loopax.frontend.loops.rows import Rows
from loopax.frontend.mistakes import label_of, refuse_no_step, refusing_arguments
from loopax.ir.ops.calling_convention import FLAG_TYPE, INDEX_TYPE, UNBOUNDED, Checkpoint

# The type of the results of a step and of the loop. Arguments are not typed: mypy would infer int for
# the c of `lambda c: 2 * c`.
C = TypeVar("C")


@refusing_arguments(keywords.FORI_LOOP)
def fori_loop(
    lo: TensorLike,
    hi: TensorLike,
    body: Callable[[Any, Any], C],
    init: object,
    max_steps: TensorLike | None = None,
    *,
    unroll: int = 1,
    checkpoint: Checkpoint = None,
    truncate_gradient: int = -1,
    strict: bool = False,
    name: str | None = None,
) -> C:
    """Loop over the integers from ``lo`` to ``hi - 1``.

    ::

        fori_loop :: (int, int, (int, c) -> c, c) -> c

        def fori_loop(lo, hi, body, carry, max_steps=infinity):
            for i in range(lo, min(hi, lo + max_steps)):
                carry = body(i, carry)
            return carry

    Parameters
    ----------
    lo, hi
        Integers or integer scalar variables; there is no step if ``hi <= lo``.
    body
        From the index, an int64 scalar, and a carry to a carry.
    max_steps
        A bound on the number of steps, an integer or an integer scalar variable. Reverse mode in JAX's
        operations (``jaxify(..., loops="xla")``, a GPU) needs it if ``hi - lo`` is known only when the
        program runs, and nothing in the program limits it. Reverse mode stores about the square root of
        ``max_steps`` states, and takes time in proportion to the steps taken. The index of an enclosing
        loop has its own bound, and so has ``pt.minimum(n, 100)``.
    init, unroll, checkpoint, truncate_gradient, strict, name
        As in `scan`.

    Raises
    ------
    LoopTypeError
        A bound is not an integer scalar; and as in `scan`.
    StatefulFunctionError, LoopaxError
        As in `scan`.

    Examples
    --------
    >>> from loopax import fori_loop
    >>> fori_loop(1, 6, lambda i, c: c * i, 1).eval()
    array(120)
    """
    label = label_of("fori_loop", name)
    refuse_no_step(body, f"{label}(lo, hi, body, init)", "body", ["i", "carry"])
    first, end = _bound(lo, "lo", label), _bound(hi, "hi", label)
    limit = None if max_steps is None else _max_steps(max_steps, label)
    if isinstance(first, int) and isinstance(end, int) and isinstance(limit, int | None):
        n_steps: Any = max(end - first, 0)
        n_steps = n_steps if limit is None else min(n_steps, limit)
    else:
        n_steps = pt.maximum(pt.as_tensor(end) - first, 0)
        n_steps = n_steps if limit is None else pt.minimum(n_steps, limit)
        n_steps = INDEX_TYPE.filter_variable(pt.cast(n_steps, "int64"))
    return build_loop(
        lambda i, carry, x: Emitted(body(i if first == 0 else i + first, carry)),
        init,
        Rows(None, label),
        n_steps,
        make_options(name, False, unroll, checkpoint, truncate_gradient),
        label=label,
        strict=strict,
        carried=parameter(body, 1),
        own_captures=[] if isinstance(first, int) else [first],
    ).final


@refusing_arguments(keywords.WHILE_LOOP)
def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], C],
    init: object,
    max_steps: TensorLike | None = None,
    *,
    checkpoint: Checkpoint = None,
    strict: bool = False,
    name: str | None = None,
) -> C:
    """Loop while ``cond`` of the carry holds.

    ::

        while_loop :: (c -> bool, c -> c, c) -> c

        def while_loop(cond, body, carry, max_steps=infinity):
            n = 0
            while n < max_steps and cond(carry):
                carry, n = body(carry), n + 1
            return carry

    Parameters
    ----------
    cond
        From a carry to a bool scalar.
    body
        From a carry to a carry.
    max_steps
        A bound on the number of steps, an integer or an integer scalar variable. Reverse mode needs it.
        ``jax.grad`` and native code go back through the steps taken; in JAX's operations a gradient by
        ``pytensor.grad`` takes time and memory in proportion to ``max_steps``.
    init, checkpoint, strict, name
        As in `scan`.

    Raises
    ------
    LoopTypeError
        ``cond`` does not return a bool scalar; and as in `scan`.
    StatefulFunctionError, LoopaxError
        As in `scan`.

    Examples
    --------
    >>> from loopax import while_loop
    >>> while_loop(lambda c: c < 100, lambda c: 2 * c, 3).eval()
    array(192)
    """
    label = label_of("while_loop", name)
    for function, role in ((cond, "cond"), (body, "body")):
        refuse_no_step(function, f"{label}(cond, body, init)", role, ["carry"])
    if max_steps is None:
        n_steps: Any = pt.constant(UNBOUNDED, name="UNBOUNDED", dtype="int64")
    else:
        n_steps = _max_steps(max_steps, label)

    def step(i: object, carry: object, x: object) -> Emitted:
        new = body(carry)
        if _is_flag(new) and not _is_flag(carry):
            raise LoopTypeError(
                f"body of {label} returns a bool instead of the next carry. If the functions are in the "
                f"wrong order, write {label}(cond, body, init)."
            )
        return Emitted(new)

    return build_loop(
        step,
        init,
        Rows(None, label),
        n_steps,
        make_options(name, checkpoint=checkpoint),
        label=label,
        strict=strict,
        carried=parameter(body, 0),
        go_on=cond,
    ).final


def _is_flag(x: object) -> bool:
    return isinstance(x, bool) or (isinstance(x, Variable) and x.type == FLAG_TYPE)


def _bound(x: Any, path: str, label: str) -> Any:
    """An int, or an int64 scalar."""
    v = as_variable(x, path)
    if (
        not isinstance(v.type, TensorType)
        or v.type.ndim
        or v.type.dtype not in pt.type.integer_dtypes
    ):
        raise LoopTypeError(
            f"{path} of {label} must be an integer or an integer scalar variable, got {describe(v)}."
        )
    return pt.cast(v, "int64") if isinstance(x, Variable) else int(x)


def _max_steps(x: object, label: str) -> Any:
    """A bound on the number of steps, from 0 on where it is known."""
    limit = _bound(x, "max_steps", label)
    if isinstance(limit, int) and limit < 0:
        raise LoopTypeError(
            f"max_steps of {label} must be a number of steps from 0 on, got {limit}."
        )
    return limit
